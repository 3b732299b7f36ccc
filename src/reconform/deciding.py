"""From ranks to a list: what a rule decides for new rows, and what the list says of itself.

There are two ways. `ByGrid`: every rank has its p-value, on the grid of one calibration or, where
rows are ranked within groups, on the joint grid of all of them. `ByWeights` (`weighing.py`): new
rows come in other proportions than the reference, and ranks are weighted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import BoolArray, FloatArray, IndexArray, RankArray
from .assumption import (
    Category,
    Compared,
    Finding,
    InOrder,
    alike_in_groups,
    drawn_rows,
    in_runs,
    new_rows,
    unused_batch,
)
from .detectors.auto import name_of
from .detectors.prepared import Prepared, category_columns
from .discoveries import CountedDiscoveries, Discoveries, Provenance
from .ensemble.choosing import FullChoice
from .ensemble.grouped import GroupedEnsemble
from .explain import explainer_for
from .explain.features import Words
from .frames import without_calendar
from .grouping import GroupFound, found_in_groups, out_of_reach
from .methods import MOST_REFERENCE, BySize, CrossValidation
from .parallel import track
from .rule import Rule
from .statistics.certificates import CERTIFIABLE, Claim
from .statistics.conditional_calibration import cost_sentence
from .statistics.exact import Grid, usual
from .statistics.fdr import Outcome, RankCounts
from .statistics.joint import JointGrid
from .statistics.ranks import (
    Candidate,
    Choice,
    Chosen,
    RankedBatch,
    Ranks,
    by_evidence,
    choice_sentence,
)
from .weighing import ByWeights, why_not_weighed
from .weights import Weights

if TYPE_CHECKING:
    from .detector import ConformalDetector

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class NewRows:
    """A batch in memory that has been ranked.

    Attributes
    ----------
    X : float array of shape (m, d)
        The rows, as the detector sees them.
    read : callable
        Gives them again, for explanations that are asked for later.
    ranks : Ranks
    p_values : float array of shape (m,)
    index : sequence, optional
        Labels of the rows.
    library : str, optional
        Whose frame the rows came in.
    categories : mapping, optional
        As in `Observed`.
    unlisted : callable, optional
        As in `reconform.explain.Explainer`.
    times : float array of shape (m,), optional
        Seconds, where the rows have a time.
    """

    X: FloatArray
    read: Callable[[], FloatArray]
    ranks: Ranks
    p_values: FloatArray
    index: Any = None
    library: str | None = None
    categories: Mapping[int, Category] | None = None
    unlisted: Words | None = None
    times: FloatArray | None = None

    def in_order(self, names: Sequence[str]) -> InOrder:
        """The rows that the order is tested by."""
        seen, ranks = in_runs(len(self.X)), self.ranks
        return InOrder(
            without_calendar(np.asarray(self.X[seen]), names),
            ranks.scores[seen],
            None if self.times is None else self.times[seen],
            None if ranks.groups is None else ranks.groups[seen],
        )


@dataclass(frozen=True, eq=False)
class Observed:
    """What is known of new rows beside the counts of their ranks; all of it may be missing.

    Attributes
    ----------
    sample : float array of shape (t, d), optional
        Some of the rows (`reconform.assumption.Reservoir`), to check the assumption by.
    together : Ranks, optional
        Of all rows, where these are one batch that was ranked together.
    choice : Choice or Chosen, optional
        Which detectors were chosen: for every row of `together`, or one for all rows.
    categories : mapping of int to Category, optional
        What columns of labels hold, by their positions, as a reader of files found it.
    sample_groups : int array of shape (t,), optional
        The groups of the sample.
    in_order : InOrder, optional
        Some of the rows in their order.
    drawn : int array, optional
        The positions of rows that were drawn at random, to be looked at.
    """

    sample: FloatArray | None = None
    together: Ranks | None = None
    choice: Choice | Chosen | None = None
    categories: Mapping[int, Category] | None = None
    sample_groups: IndexArray | None = None
    in_order: InOrder | None = None
    drawn: IndexArray | None = None


def decided_in_memory(
    cad: ConformalDetector, rule: Rule, grid: Grid, new: NewRows, weights: Weights | None = None
) -> Discoveries:
    """Decide for a batch in memory.

    Parameters
    ----------
    cad : ConformalDetector
        The one that ranked the rows.
    rule : Rule
        Resolved.
    grid : Grid
        Of both.
    new : NewRows
    weights : Weights, optional
        Weights that are all equal are as good as none.
    """
    X, ranks = new.X, new.ranks
    decider: ByGrid | ByWeights = ByGrid(cad, rule, grid)
    if weights is not None and not weights.constant:
        decider = ByWeights(cad, rule, weights)
    p_values, outcome = decider.decide(X, ranks, new.p_values)
    # Weighted and smoothed p-values do not follow from ranks.
    on_grid = isinstance(decider, ByGrid) and cad.ties != "randomized"
    looked_at = new_rows(X)
    seen = Observed(
        np.array(X[looked_at]),
        ranks,
        None,
        new.categories,
        None if ranks.groups is None else ranks.groups[looked_at],
        new.in_order(cad.names),
        None if rule.sample is None else drawn_rows(X, cad.state_.tie_key, rule.sample),
    )
    groups = decider.groups(JudgedRows(ranks.groups, p_values, outcome.mask))
    facts = _facts(decider, len(p_values), seen, groups)
    if outcome.plain is not None:
        said = facts["claim"]
        cost = cost_sentence(outcome.mask, outcome.plain)
        facts["claim"] = replace(said, full=f"{said.full} {cost}")
    if ranks.choice is not None:
        facts["choice"] = decider.choice(ranks.choice, outcome.mask)
        _LOG.info("%s", choice_sentence(facts["choice"]))
    return Discoveries(
        mask=outcome.mask,
        p_values=p_values,
        q_values=outcome.q_values,
        scores=ranks.scores,
        ranks=ranks.at_most if on_grid else None,
        index=new.index,
        library=new.library,
        decision=outcome.decision,
        e_values=outcome.e_values,
        plain_mask=outcome.plain,
        explainer=explainer_for(
            cad,
            new.read,
            choose=None if ranks.choice is None else partial(getattr, ranks.choice, "chosen"),
            unlisted=new.unlisted,
        ),
        row_groups=cad.grouping_.labels(ranks.groups, len(X))
        if cad.grouping_ is not None and groups
        else None,
        p_threshold=float(p_values[outcome.mask].max(initial=0.0)),
        **facts,
    )


def decided_by_counts(
    cad: ConformalDetector, rule: Rule, counts: RankCounts, seen: Observed
) -> CountedDiscoveries:
    """Decide for all rows whose ranks were counted, exactly as if they had been one batch."""
    as_one = seen.together is not None or seen.choice is not None
    grid = rule.counting_grid(cad, "what is merged", "whole" if as_one else "parts")
    decider = ByGrid(cad, rule, grid)
    decision = rule.decide_counts(counts, grid)
    every = np.arange(1, len(counts.counts))
    codes = None if cad.joint is None else cad.joint.apart(every)[0]
    tally = JudgedRows(codes, grid.values(every), decision.mask(every), counts.counts[1:])
    facts = _facts(decider, decision.tested, seen, decider.groups(tally))
    if isinstance(seen.choice, Chosen):
        one = np.arange(len(seen.choice.names)) == seen.choice.index
        numbers = (one * decision.tested).tolist(), (one * decision.count).tolist()
        facts["choice"] = by_evidence(seen.choice.names, seen.choice.evidence, *numbers)
    elif seen.choice is not None:
        assert seen.together is not None
        facts["choice"] = decider.choice(seen.choice, decision.mask(seen.together.at_most))
    if seen.choice is not None:
        _LOG.info("%s", choice_sentence(facts["choice"]))
    return CountedDiscoveries(
        decision=decision, rank_counts=counts, p_threshold=decision.p_threshold, **facts
    )


def provenance_of(cad: ConformalDetector, against: FloatArray | None = None) -> Provenance:
    """Say where decisions of a detector come from: method, detector, sizes, seed, version.

    `against` are calibration scores that depend on the new rows.
    """
    plan = cad.plan_
    one_split = len(plan.repeats) == 1 and not cad.guarantee_.cleaned and cad.joint is None
    one_split &= bool(plan.row.fits_batch) or (plan.one_model and cad.ranks_rows != "batch")
    return Provenance(
        detector=repr(cad.detector),
        name=name_of(cad.detector) if isinstance(cad.detector, Prepared) else "",
        method=repr(cad.method),
        scheme=plan.scheme,
        variant=plan.variant,
        n_reference=plan.n,
        n_calibration=cad.n_calibration_,
        n_features=cad.n_features_in_,
        calibration_scores=cad.calibration_.scores if against is None else against,
        calibration_fingerprint=cad.calibration_.fingerprint,
        feature_names=cad.names,
        random_state=repr(cad.random_state),
        version=version("reconform"),
        joint=cad.joint,
        left_out=cad.left_out_,
        one_split=one_split,
    )


def _facts(
    decider: ByGrid | ByWeights, m: int, seen: Observed, groups: tuple[GroupFound, ...]
) -> dict[str, Any]:
    """What every list says of itself, whatever the source of the rows."""
    cad, rule = decider.cad, decider.rule
    weights = decider.weights if isinstance(decider, ByWeights) else None
    categories = seen.categories
    if categories is None:
        columns = category_columns(cad.detector)
        categories = cad.state_.intake.categories() or {j: Category() for j in columns}
    reference, sample, in_order = cad.reference_sample_, seen.sample, seen.in_order
    if in_order is not None and cad.judges_windows:
        in_order = in_order.by_scores
    ours, theirs = cad.state_.sample_groups, seen.sample_groups
    if cad.joint is not None and reference is not None and sample is not None:
        assert ours is not None
        assert theirs is not None
        reference, sample = alike_in_groups(reference, ours, sample, theirs)
    return {
        "procedure": rule.procedure,
        "fdr": None if rule.false_alarms is not None else float(rule.level),
        "false_alarms": None if rule.false_alarms is None else float(rule.level),
        "top": rule.top,
        "sample": seen.drawn,
        "claim": decider.claim(groups),
        "compared": Compared(
            reference,
            sample,
            cad.names,
            decider.findings(seen.together),
            categories,
            weighted=weights is not None,
            weighable=why_not_weighed(cad, rule, m) is None,
            looked_up=cad.state_.looked_up if cad.joint is None else None,
            learned=seen.together is not None and seen.together.learned,
            order=cad.state_.order,
            in_order=in_order,
            units=cad.state_.units is not None,
            windows=cad.judges_windows,
        ),
        "provenance": provenance_of(cad, None if seen.together is None else seen.together.against),
        "warning": decider.warning(m, groups),
        "weights": weights,
        "groups": groups,
    }


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """Rows, or kinds of rows that occur `counts` times, and what became of them."""

    codes: IndexArray | None
    p_values: FloatArray
    mask: BoolArray
    counts: RankArray | None = None


@dataclass(frozen=True, eq=False)
class ByGrid:
    """A grid says which p-value a rank has: that of one calibration, or the joint one of groups.

    Attributes
    ----------
    cad : ConformalDetector
        The one that ranked the rows.
    rule : Rule
    grid : Grid
        Of the rule and the detector.
    """

    cad: ConformalDetector
    rule: Rule
    grid: Grid

    def decide(
        self, X: FloatArray, ranks: Ranks, p_values: FloatArray
    ) -> tuple[FloatArray, Outcome]:
        """Decide for a batch in memory; return the p-values, too.

        Parameters
        ----------
        X : float array of shape (m, d)
        ranks : Ranks
        p_values : float array of shape (m,)
            On the grid, or smoothed.
        """
        cad = self.cad
        batch = RankedBatch(
            ranks,
            p_values,
            self.grid,
            cad.calibration_,
            cad.no_counts().n_calibration,
            cad.ties == "randomized",
            partial(_e_values, cad, X, ranks),
            cad.joint,
        )
        return p_values, self.rule.decide_batch(batch, cad)

    def groups(self, rows: JudgedRows) -> tuple[GroupFound, ...]:
        """Say what became of every group; nothing where there are none."""
        cad = self.cad
        if cad.grouping_ is None:
            return ()
        codes = np.zeros(len(rows.mask), dtype=np.intp) if rows.codes is None else rows.codes
        certified = self.rule.whole_batch(cad) is not None
        if certified:  # a list that is made from ranks, whatever the p-values beside it are
            sizes = [cad.n_calibration_] if cad.joint is None else cad.joint.sizes.tolist()
            least = [Fraction(1, n + 1) for n in sizes]
        else:
            least = self.grid.smallest_of_each()
        found = found_in_groups(
            cad.grouping_, least, codes, rows.p_values, rows.mask, counts=rows.counts
        )
        m = sum(one.rows for one in found)
        return tuple(
            replace(
                one, shortest=self.rule.smallest_list(one.calibration, m, smallest_p=one.least_p)
            )
            for one in found
        )

    def choice(self, choice: Choice, mask: BoolArray) -> tuple[Candidate, ...]:
        """Say what became of every detector that was chosen from, and what it finds alone."""
        size = len(choice.names)
        rows = np.bincount(choice.chosen, minlength=size).tolist()
        flagged = np.bincount(choice.chosen[mask], minlength=size).tolist()
        if choice.evidence is not None:
            return by_evidence(choice.names, choice.evidence.tolist(), rows, flagged)
        joint, plain = self.cad.joint, replace(self.rule, validity="nominal", conditional=None)
        if joint is None:
            grid = usual(self.cad.n_calibration_)
        else:
            grid = JointGrid.of([usual(n) for n in joint.sizes.tolist()])
        alone = [
            plain.decide_counts(self.cad.no_counts().add(ranks), grid).count
            for ranks in choice.ranks
        ]
        made = map(Candidate, choice.names, rows, flagged, alone)
        return tuple(sorted(made, key=lambda one: -one.rows))

    def claim(self, groups: tuple[GroupFound, ...]) -> Claim:
        """Say what holds for the list."""
        said = self.rule.claim(self.cad)
        # A model file may lack what certifies a list.
        gone = "" if self.cad.can_certify else CERTIFIABLE
        return replace(said, full=said.full.replace(gone, "")) if gone else said

    def findings(self, together: Ranks | None) -> tuple[Finding, ...]:
        """Say what was found about the assumption on the way to the ranks."""
        return () if together is None else unused_batch(together.clustered)

    def warning(self, m: int, groups: tuple[GroupFound, ...]) -> str | None:
        """Say what may keep anomalies from being flagged, whatever they are like."""
        if self.cad.joint is not None:
            # Groups that are too small for any of their rows to be flagged in this list.
            said = out_of_reach(groups, sum(one.flagged for one in groups))
            return " ".join(said) or None
        plan, certified = self.cad.plan_, self.rule.whole_batch(self.cad) is not None
        few = self.rule.warning(
            self.cad.n_calibration_,
            m,
            n_reference=plan.n,
            smallest_p=None if certified else self.grid.smallest,
            instead=_calibrating_on_all(self.cad, self.rule, m),
        )
        cautious = plan.n < plan.row.cautious_below
        more = plan.row.caution.format(n=plan.n) if cautious else ""
        return " ".join(said for said in (few, more) if said) or None


def _calibrating_on_all(cad: ConformalDetector, rule: Rule, m: int) -> str | None:
    """Name a method that calibrates on all reference rows and goes with detector and rule."""
    plan = cad.plan_
    if plan.row.frozen or rule.conditional is not None or rule.procedure == "ebh":
        return None
    if cad.ranks_rows != "alone":
        few = plan.n <= MOST_REFERENCE and m <= BySize().most_rows(plan.n)
        return "full" if few else None
    proven_only_by_bh = rule.validity == "proven" and rule.procedure != "bh"
    return None if plan.n < CrossValidation().folds or proven_only_by_bh else "cv+"


def _e_values(
    cad: ConformalDetector, X: FloatArray, ranks: Ranks, candidates: RankArray, step: Any
) -> Iterator[tuple[int, Fraction]]:
    """`Ensemble.e_values` of new rows, with a bar where it was asked for."""
    choice, fitted = ranks.choice, cad.ensemble_
    if isinstance(fitted, GroupedEnsemble):
        assert cad.joint is not None
        assert ranks.groups is not None
        within = replace(cad.joint.within(ranks)[0], choice=choice)
        every = fitted.e_values_in(X, ranks.groups, candidates, step, within)
    elif choice is not None and isinstance(fitted, FullChoice):
        every = fitted.e_values_of_choice(X, candidates, step, choice)
    else:
        every = fitted.e_values(X, candidates, step)
    return track(every, total=len(candidates), label="certifying rows", verbose=cad.verbose)
