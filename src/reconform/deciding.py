"""What the ranks of new rows are worth: p-values, a decision, and what is said of it.

There are two ways. `ByGrid`: every rank has its p-value, on the grid of one calibration or, where
rows are ranked within groups, on the joint grid of all of them. `ByWeights`: new rows come in other
proportions than the reference, and ranks are weighted. Whatever assembles a list asks one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import BoolArray, FloatArray, IndexArray, RankArray
from .assumption import Finding, unused_batch
from .ensemble import Ensemble
from .ensemble.choosing import FullChoice
from .ensemble.grouped import GroupedEnsemble
from .errors import ReconformError
from .grouping import POOLED, GroupFound, found_in_groups, out_of_reach
from .methods import MOST_REFERENCE, BySize, CrossValidation, Plan
from .parallel import track
from .rule import WITHIN_ALARMS, Rule
from .statistics.certificates import CERTIFIABLE, MEASURED, PROVEN, Claim
from .statistics.conditional_calibration import Exchanges, inner_level
from .statistics.exact import Grid, usual
from .statistics.fdr import PROCEDURES, Outcome
from .statistics.joint import JointGrid
from .statistics.ranks import Candidate, Choice, RankedBatch, Ranks, by_evidence
from .statistics.weighted import (
    WeightedRanks,
    ranks_by_sight,
    ranks_of_one_model,
    whole_weights,
)
from .weights import Weights

if TYPE_CHECKING:
    from .detector import ConformalDetector

# One model is compared with m rows for each of m rows.
MOST_ROWS = 100_000


@dataclass(frozen=True, eq=False)
class JudgedRows:
    """Rows, or kinds of rows that occur `counts` times, and what became of them."""

    codes: IndexArray | None
    p_values: FloatArray
    mask: BoolArray
    counts: RankArray | None = None


@dataclass(frozen=True, eq=False)
class ByGrid:
    """A grid says what ranks are worth: that of one calibration, or the joint one of groups.

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

    @property
    def weights(self) -> Weights | None:
        """None: rows count alike."""
        return None

    @property
    def on_grid(self) -> bool:
        """Whether ranks say what p-values do; not where these are smoothed."""
        return self.cad.ties != "randomized"

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
            cad.highest_rank - 1,
            not self.on_grid,
            partial(_worlds, cad, X, ranks),
            cad.joint,
            None if cad.joint is None or cad.grouping_ is None else len(cad.grouping_.names),
        )
        return p_values, self.rule.decide_batch(batch, cad)

    @property
    def _by_ranks(self) -> bool:
        """A certified list is made from ranks, whatever the p-values beside it are worth."""
        return self.rule.whole_batch(self.cad) is not None

    def groups(self, rows: JudgedRows) -> tuple[GroupFound, ...]:
        """Say what became of every group; nothing where there are none."""
        cad = self.cad
        if cad.grouping_ is None:
            return ()
        codes = np.zeros(len(rows.mask), dtype=np.intp) if rows.codes is None else rows.codes
        if self._by_ranks:
            sizes = [cad.n_calibration_] if cad.joint is None else cad.joint.sizes.tolist()
            least = [Fraction(1, n + 1) for n in sizes]
        else:
            least = self.grid.smallest_of_each()
        found = found_in_groups(
            cad.grouping_, least, codes, rows.p_values, rows.mask, counts=rows.counts
        )
        m = sum(one.rows for one in found)
        return tuple(self._in_reach(one, m) for one in found)

    def _in_reach(self, group: GroupFound, m: int) -> GroupFound:
        """Add the shortest of the lists from m rows that can hold rows of a group."""
        if self._by_ranks and group.name == POOLED:  # which no certificate covers
            return group
        shortest = self.rule.smallest_list(group.calibration, m, smallest_p=group.least_p)
        return replace(group, shortest=shortest)

    def choice(self, choice: Choice, mask: BoolArray) -> tuple[Candidate, ...]:
        """Say what became of every detector that was chosen from, and what it finds alone."""
        size = len(choice.names)
        rows = np.bincount(choice.chosen, minlength=size).tolist()
        flagged = np.bincount(choice.chosen[mask], minlength=size).tolist()
        if choice.evidence is not None:
            return by_evidence(choice.names, choice.evidence.tolist(), rows, flagged)
        counts = (np.bincount(one, minlength=self.cad.highest_rank + 1) for one in choice.ranks)
        made = map(Candidate, choice.names, rows, flagged, map(self.alone, counts))
        return tuple(sorted(made, key=lambda one: -one.rows))

    def alone(self, by_rank: RankArray) -> int:
        """Count what a plain list of rows would have, of which so many have rank 0, 1, ..."""
        counts = self.cad.no_counts().add_counts(by_rank)
        plain = replace(self.rule, validity="nominal", conditional=None)
        if self.cad.joint is None:
            return plain.decide_counts(counts, usual(self.cad.n_calibration_)).count
        grid = JointGrid.of([usual(n) for n in self.cad.joint.sizes.tolist()])
        return plain.decide_counts(counts, grid).count

    def claim(self, groups: tuple[GroupFound, ...]) -> Claim:
        """Say what holds for the list."""
        unknown = sum(group.rows for group in groups if group.name == POOLED)
        said = self.rule.claim(self.cad, doubtful=unknown)
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
        plan = self.cad.plan_
        smallest = None if self._by_ranks else self.grid.smallest
        few = self.rule.warning(
            self.cad.n_calibration_,
            m,
            n_reference=plan.n,
            smallest_p=smallest,
            instead=_calibrating_on_all(self.cad, self.rule, m),
        )
        cautious = plan.n < plan.row.cautious_below
        more = plan.row.caution.format(n=plan.n) if cautious else ""
        return " ".join(said for said in (few, more) if said) or None


@dataclass(frozen=True, eq=False)
class ByWeights:
    """Ranks are weighted: new rows come in other proportions than the reference.

    Attributes
    ----------
    cad : ConformalDetector
        The one that ranked the rows.
    rule : Rule
    weights : Weights
    """

    cad: ConformalDetector
    rule: Rule
    weights: Weights

    @property
    def on_grid(self) -> bool:
        """No: weighted p-values do not follow from ranks."""
        return False

    def decide(
        self, X: FloatArray, ranks: Ranks, p_values: FloatArray
    ) -> tuple[FloatArray, Outcome]:
        """Decide for a batch in memory; return the weighted p-values, too."""
        check_weighted(self.cad, self.rule, self.weights, len(p_values))
        weighted = _weighted_ranks(self.cad, X, ranks, self.weights, self.rule)
        return weighted.p_values, _decide_weighted(weighted, self.rule)

    def groups(self, rows: JudgedRows) -> tuple[GroupFound, ...]:
        """Nothing: weights and groups do not go together."""
        return ()

    def choice(self, choice: Choice, mask: BoolArray) -> tuple[Candidate, ...]:
        """Nothing: what detectors find alone is counted without weights."""
        return ()

    def claim(self, groups: tuple[GroupFound, ...]) -> Claim:
        """Say what holds for the list, and what the weights leave of the reference."""
        return _weighted_claim(self.cad, self.rule, self.weights)

    def findings(self, together: Ranks | None) -> tuple[Finding, ...]:
        """Say what the weights are, in place of a test for a shift."""
        return (_weights_finding(self.weights),)

    def warning(self, m: int, groups: tuple[GroupFound, ...]) -> str | None:
        """Say what may keep anomalies from being flagged, by the rows that the weights leave."""
        size = self.weights.effective_size_of(self.cad.calibration_.rows)
        return self.rule.warning(max(1, int(size)), m, rows="reference rows' worth of weights")


Decider = ByGrid | ByWeights


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


def weighable(cad: ConformalDetector, rule: Rule, m: int) -> bool:
    """Whether estimated weights could be used for m rows as these are judged now."""
    if cad.joint is not None or m > MOST_ROWS:
        return False
    try:
        check_weighable(cad.plan_, cad.method, cad.ties, rule, known=False)
    except ReconformError:
        return False
    return True


def decider_for(
    cad: ConformalDetector, rule: Rule, grid: Grid, weights: Weights | None = None
) -> Decider:
    """Choose what ranks are worth: weights that are all equal are as good as none."""
    if weights is None or weights.constant:
        return ByGrid(cad, rule, grid)
    return ByWeights(cad, rule, weights)


def can_certify(ensemble: Ensemble) -> bool:
    """Whether an ensemble knows the worlds of new rows; see `Ensemble.worlds`."""
    one = ensemble.first() if isinstance(ensemble, GroupedEnsemble) else ensemble
    own = type(one).worlds is not Ensemble.worlds
    own = own or type(one).augmented_scores is not Ensemble.augmented_scores
    return own or one.by_refitting is not None


def _worlds(
    cad: ConformalDetector, X: FloatArray, ranks: Ranks, candidates: RankArray, step: Any
) -> Iterator[tuple[int, Exchanges]]:
    """`Ensemble.worlds` of new rows, with a bar where it was asked for."""
    choice, fitted = ranks.choice, cad.ensemble_
    if isinstance(fitted, GroupedEnsemble):
        assert cad.joint is not None
        assert ranks.groups is not None
        within = replace(cad.joint.within(ranks)[0], choice=choice)
        every = fitted.worlds_in(X, ranks.groups, candidates, step, within)
    elif choice is not None and isinstance(fitted, FullChoice):
        every = fitted.worlds_of_choice(X, candidates, step, choice)
    else:
        every = fitted.worlds(X, candidates, step)
    return track(every, total=len(candidates), label="certifying rows", verbose=cad.verbose)


def check_weighted(cad: ConformalDetector, rule: Rule, weights: Weights, m: int) -> None:
    """Refuse weights of other rows, and what weights cannot be used with."""
    if cad.joint is not None:
        raise ReconformError(
            "`weights` cannot be combined with `groups`; weigh the rows of each group by its own "
            "detector."
        )
    weights.check_sizes(cad.plan_.n, m)
    check_weighable(cad.plan_, cad.method, cad.ties, rule, known=weights.known)
    if m > MOST_ROWS:
        raise ReconformError(
            f"weighted lists are for at most {MOST_ROWS:,} new rows at a time; got {m:,}."
        )


def check_weighable(plan: Plan, method: Any, ties: str, rule: Rule, *, known: bool) -> None:
    """Refuse methods and rules that take no weights: known before anything is fitted.

    Parameters
    ----------
    plan : Plan
        Of the method, for any number of rows.
    method : Any
        As the user gave it.
    ties : str
    rule : Rule
    known : bool
        Whether the weights are known, and not estimated.
    """
    if not plan.row.takes_weights or len(plan.repeats) > 1:
        how = "use `method='full'` or `method='split'`"
        if plan.row.takes_weights:
            how = "leave out `repeats`"
        raise ReconformError(
            "weights need scores that treat the reference rows and the new row alike, or one "
            f"model, and {method!r} has neither; {how}."
        )
    if rule.procedure not in ("bh", WITHIN_ALARMS):
        raise ReconformError(
            "only Benjamini-Hochberg can be combined with `weights`; leave out "
            f"`procedure={rule.procedure!r}`."
        )
    if rule.conditional is not None:
        raise ReconformError(
            "`conditional` cannot be combined with `weights`; leave out `conditional`."
        )
    if ties == "randomized":
        raise ReconformError(
            "`weights` cannot be combined with ties='randomized'; use ties='conservative'."
        )
    if rule.validity == "proven" and not known:
        raise ReconformError(
            "`validity='proven'` asks for a theorem, and there is none for estimated weights; give "
            "known ones, or `validity='nominal'`."
        )


def _weighted_ranks(
    cad: ConformalDetector, X: FloatArray, ranks: Ranks, weights: Weights, rule: Rule
) -> WeightedRanks:
    """Weigh the new rows of a batch.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted, with ``"full"`` or one split.
    X : float array of shape (m, d)
    ranks : Ranks
        Those without weights.
    weights : Weights
    rule : Rule

    Returns
    -------
    WeightedRanks
    """
    ensemble, m = cad.ensemble_, len(X)
    # A number of false alarms needs the p-values only.
    level = Fraction(1, 10) if rule.false_alarms is not None else rule.level
    full, calibration = cad.plan_.row.augments, cad.calibration_
    ours = weights.reference if full else weights.reference[calibration.rows]
    whole = whole_weights(ours, weights.new)
    if full:
        # Lists are a little shorter where another row is the new one; see `inner_level`.
        level = inner_level(level, m)
    else:  # given the rows of the pool, the scores of one model or of the chosen one are fixed
        among = calibration.scores if ranks.against is None else ranks.against
        return ranks_of_one_model(among, ranks.scores, whole, level)

    def augmented_blocks() -> Iterator[
        tuple[IndexArray, FloatArray, FloatArray, IndexArray | None]
    ]:
        rows = np.arange(m)
        if isinstance(ensemble, FullChoice):
            assert ranks.choice is not None
            every = ensemble.augmented_by_chosen(X, rows, ranks.choice.chosen)
        else:
            every = ensemble.augmented_scores(X, rows)
        for augmented in every:
            yield augmented.rows, augmented.own, augmented.others, augmented.order

    return ranks_by_sight(augmented_blocks(), whole, level)


def _decide_weighted(ranks: WeightedRanks, rule: Rule) -> Outcome:
    """Decide for a weighted batch.

    Parameters
    ----------
    ranks : WeightedRanks
    rule : Rule

    Returns
    -------
    Outcome
        Benjamini-Hochberg on the weighted p-values; under ``validity="proven"`` weighted conformal
        selection, with e-values and the former list beside it.
    """
    p_values = ranks.p_values
    adjusted = PROCEDURES[rule.procedure].adjust(p_values, rule.options)
    if rule.false_alarms is not None:
        return Outcome(ranks.within_alarms(rule.level), adjusted)
    plain = ranks.benjamini_hochberg(rule.level)
    if rule.validity != "proven":
        return Outcome(plain, adjusted)
    return Outcome(
        mask=ranks.selected(rule.level),
        q_values=adjusted,
        e_values=np.array([float(value) for value in ranks.e_values]),
        plain=plain,
    )


def _weighted_claim(cad: ConformalDetector, rule: Rule, weights: Weights) -> Claim:
    """Say what holds for a weighted list, and what the weights leave of the reference."""
    name, true = cad.guarantee_.name, "if the weights are the true ones and rows are independent"
    status = PROVEN if rule.validity == "proven" or rule.false_alarms is not None else MEASURED
    if not weights.known:
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
    claim = cad.guarantee_.after_cleaning(Claim(said, status, true.removeprefix("if ")))
    return replace(claim, full=f"{claim.full} {weights.worth}")


def _weights_finding(weights: Weights) -> Finding:
    """What the check of the assumption says instead of testing for a shift."""
    if weights.usable:
        return Finding(
            "weights",
            "note",
            f"{weights} Whether the columns moved is not tested, as the weights are there for it.",
        )
    return Finding(
        "weights",
        "doubtful",
        str(weights),
        "Take a reference that has more rows like the new ones; weights cannot make up for rows "
        "that are not there.",
    )
