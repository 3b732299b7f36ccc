"""From ranks to a list: what a rule decides for new rows, and what the list says of itself.

There are two ways. `ByGrid`: every rank has its p-value, on the grid of one calibration or, where
rows are ranked within groups, on the joint grid of all of them. `ByWeights`: new rows come in other
proportions than the reference, and ranks are weighted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import BoolArray, FloatArray, IndexArray, RankArray
from .assumption import Compared
from .assumption.closeness import unused_batch
from .assumption.columns import Category
from .assumption.order import InOrder, in_runs
from .assumption.sample import alike_in_groups, drawn_rows, new_rows
from .assumption.verdict import Finding
from .detectors.auto import name_of
from .detectors.prepared import Prepared, category_columns
from .discoveries import CountedDiscoveries, Discoveries, Provenance
from .ensemble.choosing import FullChoice
from .ensemble.grouped import GroupedEnsemble
from .errors import ReconformError
from .explain import explainer_for
from .explain.features import Words
from .frames import without_calendar
from .grouping import GroupFound, found_in_groups, out_of_reach
from .methods import MOST_REFERENCE, BySize, CrossValidation
from .parallel import track
from .rule import WITHIN_ALARMS, Rule
from .statistics.certificates import CERTIFIABLE, MEASURED, PROVEN, Claim
from .statistics.conditional_calibration import cost_sentence
from .statistics.exact import SLACK, Grid, usual
from .statistics.fdr import PROCEDURES, Outcome, RankCounts
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
from .statistics.weighted import WeightedRanks, ranks_by_refits, ranks_of_one_model, whole_weights
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
    looked_at, in_order = new_rows(X), in_runs(len(X))
    seen = Observed(
        np.array(X[looked_at]),
        ranks,
        None,
        new.categories,
        None if ranks.groups is None else ranks.groups[looked_at],
        InOrder(
            without_calendar(np.asarray(X[in_order]), cad.names),
            ranks.scores[in_order],
            None if new.times is None else new.times[in_order],
            None if ranks.groups is None else ranks.groups[in_order],
        ),
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
            units="" if cad.state_.units is None else cad.state_.units.called,
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
        cad, rule, counts = self.cad, self.rule, self.cad.no_counts()
        batch = RankedBatch(
            ranks,
            self.grid,
            cad.calibration_,
            counts.n_calibration,
            partial(_e_values, cad, X, ranks),
            cad.joint,
        )
        certify = rule.whole_batch(cad)
        if certify is not None:
            return p_values, certify(batch, rule.level)
        if rule.row.on_batch is not None:
            return p_values, rule.row.on_batch(batch, rule.level, **rule.options)
        if cad.ties == "randomized":
            return p_values, rule.decide_p_values(p_values)
        decision = rule.decide_counts(counts.add(ranks.at_most), self.grid)
        return p_values, Outcome.of(decision, ranks.at_most)

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
        if together is None or together.clustered is None:
            return ()
        return unused_batch(together.clustered)

    def warning(self, m: int, groups: tuple[GroupFound, ...]) -> str | None:
        """Say what may keep anomalies from being flagged, whatever they are like."""
        if self.cad.joint is not None:
            # Groups that are too small for any of their rows to be flagged in this list.
            said = out_of_reach(groups, sum(one.flagged for one in groups))
            return " ".join(said) or None
        plan, certified = self.cad.plan_, self.rule.whole_batch(self.cad) is not None
        part = plan.n > self.cad.n_calibration_
        few = self.rule.warning(
            self.cad.n_calibration_,
            m,
            n_reference=plan.n,
            smallest_p=None if certified else self.grid.smallest,
            instead=_calibrating_on_all(self.cad, self.rule, m) if part else None,
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


# --- with weights: new rows come in other proportions than the reference --------------------------

# One model is compared with m rows for each of m rows.
MOST_WEIGHED = 100_000


def check_weighted(cad: ConformalDetector, rule: Rule, weights: Weights, m: int) -> None:
    """Refuse weights of other rows, and what weights cannot be used with."""
    if not isinstance(weights, Weights):
        raise ReconformError(
            f"weights must be a Weights object, such as Weights.estimate(X_normal, X_new) or "
            f"Weights(reference, new); got {type(weights).__name__}."
        )
    weights.check_sizes(cad.plan_.n, m)
    why = why_not_weighed(cad, rule, m, known=weights.known)
    if why is not None:
        raise ReconformError(why)


def why_not_weighed(
    cad: ConformalDetector, rule: Rule, m: int, *, known: bool = False
) -> str | None:
    """Say why m rows cannot be weighed, with weights that are `known` or estimated; or None."""
    plan = cad.plan_
    if cad.joint is not None:
        return (
            "`weights` cannot be combined with `groups`; weigh the rows of each group by its own "
            "detector."
        )
    if not plan.row.takes_weights or len(plan.repeats) > 1:
        how = "use `method='full'` or `method='split'`"
        how = "leave out `repeats`" if plan.row.takes_weights else how
        return (
            "weights need scores that treat the reference rows and the new row alike, or one "
            f"model, and {cad.method!r} has neither; {how}."
        )
    if rule.procedure not in ("bh", WITHIN_ALARMS):
        return (
            "only Benjamini-Hochberg can be combined with `weights`; leave out "
            f"`procedure={rule.procedure!r}`."
        )
    if rule.conditional is not None:
        return "`conditional` cannot be combined with `weights`; leave out `conditional`."
    if cad.ties == "randomized":
        return "`weights` cannot be combined with ties='randomized'; use ties='conservative'."
    if rule.validity == "proven" and not known:
        return (
            "`validity='proven'` asks for a theorem, and there is none for estimated weights; give "
            "known ones, or `validity='nominal'`."
        )
    if m > MOST_WEIGHED:
        return f"weighted lists are for at most {MOST_WEIGHED:,} new rows at a time; got {m:,}."
    return None


@dataclass(frozen=True, eq=False)
class ByWeights:
    """Ranks are weighted; the counterpart of `ByGrid`.

    Attributes
    ----------
    cad : ConformalDetector
        The one that ranked the rows, with ``"full"`` or one split.
    rule : Rule
    weights : Weights
    """

    cad: ConformalDetector
    rule: Rule
    weights: Weights

    def decide(
        self, X: FloatArray, ranks: Ranks, p_values: FloatArray
    ) -> tuple[FloatArray, Outcome]:
        """Decide for a batch in memory; return the weighted p-values, too.

        Benjamini-Hochberg on the weighted p-values; under ``validity="proven"`` weighted conformal
        selection, with e-values and the former list beside it.
        """
        rule = self.rule
        check_weighted(self.cad, rule, self.weights, len(p_values))
        weighted = self._ranks(X, ranks)
        adjusted = PROCEDURES[rule.procedure].adjust(weighted.p_values, rule.options)
        if rule.false_alarms is not None:
            return weighted.p_values, Outcome(weighted.within_alarms(rule.level), adjusted)
        plain = weighted.benjamini_hochberg(rule.level)
        if rule.validity != "proven":
            return weighted.p_values, Outcome(plain, adjusted)
        return weighted.p_values, Outcome(
            mask=weighted.selected(rule.level),
            q_values=adjusted,
            e_values=np.array([float(value) for value in weighted.e_values]),
            plain=plain,
        )

    def _ranks(self, X: FloatArray, ranks: Ranks) -> WeightedRanks:
        """Weigh the new rows of a batch; `ranks` are those without weights."""
        cad, weights, m = self.cad, self.weights, len(X)
        # A number of false alarms needs the p-values only.
        level = Fraction(1, 10) if self.rule.false_alarms is not None else self.rule.level
        ensemble, calibration = cad.ensemble_, cad.calibration_
        if not cad.plan_.row.augments:
            # Given the rows of the pool, the scores of one model or of the chosen one are fixed.
            among = calibration.scores if ranks.against is None else ranks.against
            whole = whole_weights(weights.reference[calibration.rows], weights.new)
            return ranks_of_one_model(among, ranks.scores, whole, level, n_jobs=cad.n_jobs)

        def blocks() -> Iterator[tuple[IndexArray, FloatArray, FloatArray, IndexArray | None]]:
            rows, every = np.arange(m), None
            if isinstance(ensemble, FullChoice):
                assert ranks.choice is not None
                every = ensemble.augmented_by_chosen(X, rows, ranks.choice.chosen)
            for one in ensemble.augmented_scores(X, rows) if every is None else every:
                yield one.rows, one.own, one.others, one.order

        whole = whole_weights(weights.reference, weights.new)
        level = level if m == 1 else level * SLACK
        return ranks_by_refits(blocks(), whole, level, n_jobs=cad.n_jobs)

    def groups(self, rows: Any) -> tuple[GroupFound, ...]:
        """Nothing: weights and groups do not go together."""
        return ()

    def choice(self, choice: Choice, mask: BoolArray) -> tuple[Candidate, ...]:
        """Nothing: what detectors find alone is counted without weights."""
        return ()

    def claim(self, groups: tuple[GroupFound, ...]) -> Claim:
        """Say what holds for the list, and what the weights leave of the reference."""
        rule, name = self.rule, self.cad.guarantee_.name
        true = "if the weights are the true ones and rows are independent"
        status = PROVEN if rule.validity == "proven" or rule.false_alarms is not None else MEASURED
        if not self.weights.known:
            status = f"{MEASURED}: the weights are estimated"
            what = "FDR" if rule.false_alarms is None else "Expected number of false alarms"
            said = f"{what} measured, not proven: the weights are estimated."
        elif rule.false_alarms is not None:
            number = f"{float(rule.level):g}"
            said = f"Expected number of false alarms at most {number}, proven for {name}, {true}."
        elif rule.validity == "proven":
            said = f"FDR proven (weighted conformal selection) for the list from {name}, {true}."
        else:
            said = (
                f"FDR measured, not proven, for BH on weighted p-values of {name}; each of them is "
                f"exact, {true}."
            )
        claim = Claim(said, status, true.removeprefix("if "))
        claim = self.cad.guarantee_.after_cleaning(claim)
        return replace(claim, full=f"{claim.full} {self.weights.remains}")

    def findings(self, together: Ranks | None) -> tuple[Finding, ...]:
        """Say what the weights are, in place of a test for a shift."""
        said = str(self.weights)
        if self.weights.usable:
            said += " Whether the columns moved is not tested, as the weights account for it."
            return (Finding("weights", "note", said),)
        advice = (
            "Take a reference that has more rows like the new ones; weights cannot make up for "
            "rows that are not there."
        )
        return (Finding("weights", "doubtful", said, advice),)

    def warning(self, m: int, groups: tuple[GroupFound, ...]) -> str | None:
        """Say what may keep anomalies from being flagged, by the rows that the weights leave."""
        size = self.weights.effective_size_of(self.cad.calibration_.rows)
        return self.rule.warning(max(1, int(size)), m, rows="reference rows left by the weights")
