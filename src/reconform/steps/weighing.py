"""Lists for new rows that come in other proportions than the reference: weighted ranks."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from ..arrays import FloatArray, IndexArray
from ..assumption import Finding
from ..detectors.auto.ensembles import ChoiceEnsemble
from ..errors import ReconformError
from ..rule import WITHIN_ALARMS, Rule
from ..statistics.fdr import PROCEDURES, Outcome
from ..statistics.ranks import Ranks
from ..statistics.weighted import WeightedRanks, ranks_by_sight, ranks_of_one_model, whole_weights
from ..statistics.worlds import inner_level
from ..weights import Weights
from .ranking import Ranker

# One model is compared with m rows for each of m rows.
MOST_ROWS = 100_000


def check_weighted(cad: Ranker, rule: Rule, weights: Weights, m: int) -> None:
    """Refuse what weights cannot be used with, before any row is ranked."""
    if cad.joint is not None:
        raise ReconformError(
            "`weights` and `groups` do not go together; weigh the rows of each group by a detector "
            "of its own."
        )
    weights.check_sizes(cad.plan_.n, m)
    scheme = cad.plan_.scheme
    if not (scheme == "full" or (scheme in ("split", "prefit") and cad.plan_.n_models <= 1)):
        raise ReconformError(
            f"weights need scores that treat the reference rows and the new row alike, or one "
            f"model; use `method='full'` or 'split' instead of {cad.method!r}."
        )
    if rule.procedure not in ("bh", WITHIN_ALARMS):
        raise ReconformError(
            "weighted lists are decided by Benjamini-Hochberg or, if proven, by conformal "
            f"selection; leave out `procedure={rule.procedure!r}`."
        )
    if rule.conditional is not None:
        raise ReconformError(
            "conditional p-values count calibration rows alike, and weights do not; leave out "
            "`conditional`."
        )
    if cad.ties == "randomized":
        raise ReconformError("weighted p-values are not smoothed; use ties='conservative'.")
    if rule.validity == "proven" and not weights.known:
        raise ReconformError(
            "`validity='proven'` asks for a theorem, and there is none for estimated weights; give "
            "known ones, or `validity='nominal'`."
        )
    if not cad.ensemble_.knows_order:
        raise ReconformError(
            "this model file does not keep the order of the reference rows, which weights go by; "
            "fit again."
        )
    if m > MOST_ROWS:
        raise ReconformError(
            f"weighted lists are for at most {MOST_ROWS:,} new rows at a time; got {m:,}."
        )


def weighted_ranks(
    cad: Ranker, X: FloatArray, ranks: Ranks, weights: Weights, rule: Rule
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
    ours, theirs = whole_weights(weights.reference, weights.new)
    ensemble, m = cad.ensemble_, len(X)
    # A number of false alarms needs the p-values only.
    level = Fraction(1, 10) if rule.false_alarms is not None else rule.level
    if cad.plan_.scheme != "full":
        calibration = cad.calibration_
        ours = ours[calibration.rows]
        if not isinstance(ensemble, ChoiceEnsemble):
            return ranks_of_one_model(calibration.scores, ranks.scores, ours, theirs, level)
    else:
        # Lists are a little shorter where another row is the new one; see `inner_level`.
        level = inner_level(level, m)

    def sights() -> Iterator[tuple[IndexArray, FloatArray, FloatArray, IndexArray | None]]:
        rows = np.arange(m)
        if isinstance(ensemble, ChoiceEnsemble):
            assert ranks.choice is not None
            every = ensemble.see_chosen(X, rows, ranks.choice.chosen)
        else:
            every = ensemble.see_with_each(X, rows)
        for sight in every:
            yield sight.rows, sight.own, sight.others, sight.order

    return ranks_by_sight(sights(), ours, theirs, level)


def decide_weighted(ranks: WeightedRanks, rule: Rule) -> Outcome:
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
        q_values=np.full(len(p_values), np.nan),
        e_values=np.array([float(value) for value in ranks.e_values]),
        plain=plain,
    )


def weighted_claim(cad: Ranker, rule: Rule, weights: Weights) -> str:
    """Say what holds for a weighted list, and what the weights leave of the reference."""
    name, true = cad.guarantee_.name, "if the weights are the true ones and rows are independent"
    if not weights.known:
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
    return f"{said} {weights}"


def weights_finding(weights: Weights) -> Finding:
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
