"""Lists with weights: new rows come in other proportions than the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import BoolArray, FloatArray, IndexArray
from .assumption import Finding
from .ensemble.choosing import FullChoice
from .errors import ReconformError
from .grouping import GroupFound
from .rule import WITHIN_ALARMS, Rule
from .statistics.certificates import MEASURED, PROVEN, Claim
from .statistics.exact import SLACK
from .statistics.fdr import PROCEDURES, Outcome
from .statistics.ranks import Candidate, Choice, Ranks
from .statistics.weighted import WeightedRanks, ranks_by_refits, ranks_of_one_model, whole_weights
from .weights import Weights

if TYPE_CHECKING:
    from .detector import ConformalDetector

# One model is compared with m rows for each of m rows.
MOST_ROWS = 100_000


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
    if m > MOST_ROWS:
        return f"weighted lists are for at most {MOST_ROWS:,} new rows at a time; got {m:,}."
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
            return ranks_of_one_model(among, ranks.scores, whole, level)

        def blocks() -> Iterator[tuple[IndexArray, FloatArray, FloatArray, IndexArray | None]]:
            rows, every = np.arange(m), None
            if isinstance(ensemble, FullChoice):
                assert ranks.choice is not None
                every = ensemble.augmented_by_chosen(X, rows, ranks.choice.chosen)
            for one in ensemble.augmented_scores(X, rows) if every is None else every:
                yield one.rows, one.own, one.others, one.order

        whole = whole_weights(weights.reference, weights.new)
        return ranks_by_refits(blocks(), whole, level if m == 1 else level * SLACK)

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
        return self.rule.warning(max(1, int(size)), m, rows="reference rows' worth of weight")
