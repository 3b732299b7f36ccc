"""What a study recommends: the first of the ranking, in a sentence and as a line of Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..methods import Method, named
from .ranked import Ranked, Ranking
from .subjects import Labelled, Reading

# Of those that are as good as the best one, so many are named.
MOST_NAMED = 3


@dataclass(frozen=True)
class Recommendation:
    """The best of a study, to be used.

    Attributes
    ----------
    sentence : str
        What is recommended, and what it is worth; or why nothing is.
    chosen : Ranked or None
        The first of the ranking; None if nothing can be recommended.
    detector : str, estimator or callable
        As `ConformalDetector` takes it.
    method : Method or None
    prepare : bool
        Whether the detector is to be prepared, with `reconform.Prepare`.
    """

    sentence: str
    chosen: Ranked | None = None
    detector: Any = None
    method: Method | None = None
    prepare: bool = False

    @property
    def python(self) -> str | None:
        """It as a line of Python; None if nothing is recommended."""
        if self.method is None:
            return None
        made = getattr(self.detector, "__name__", None) or " ".join(repr(self.detector).split())
        made = f"Prepare({made})" if self.prepare else made
        name, changed = named(self.method) or (None, {})
        method = repr(self.method) if name is None or changed else repr(name)
        return f"ConformalDetector({made}, method={method}, random_state=0)"

    def __str__(self) -> str:
        if self.python is None:
            return self.sentence
        return f"{self.sentence}\n\n    {self.python}"


def recommend(
    ranking: Ranking,
    detectors: Sequence[Labelled],
    readings: Sequence[Reading],
    *,
    prepare: bool = False,
) -> Recommendation:
    """Recommend the first of a ranking.

    Parameters
    ----------
    ranking : Ranking
    detectors : sequence of Labelled
    readings : sequence of Reading
        All that were ranked are among them.
    prepare : bool
        Whether the detectors were prepared.

    Returns
    -------
    Recommendation
    """
    best = ranking.best
    if best is None:
        return Recommendation(_nothing(ranking))
    sentence = (
        f"Recommended: {best.detector} with {best.method}, which found {best.power.mean:.0%} of "
        f"the anomalies at a false discovery rate of {best.fdr.mean:.1%}."
    )
    if ranking.equals:
        shown = [f"{row.detector} with {row.method}" for row in ranking.equals[:MOST_NAMED]]
        more = len(ranking.equals) - len(shown)
        others = ", ".join(shown) + (f" and {more} more" if more else "")
        sentence += f" It cannot be told apart from {others}."
    return Recommendation(
        sentence,
        best,
        next(one.detector for one in detectors if one.label == best.detector),
        next(one.method for one in readings if one.label == best.method),
        prepare,
    )


def _nothing(ranking: Ranking) -> str:
    if ranking[0].violation:
        return (
            "Nothing is recommended: the false discovery rate of each was above "
            f"{ranking.level:g}, by more than chance. Anomalies that are labelled as normal would "
            "explain it, or rows that depend on each other; look at some false alarms."
        )
    return (
        "Nothing is recommended: no anomaly was found by any of them. The columns may not show "
        "what is wrong with the anomalies, or the reference is too small for the level: try more "
        "rows or a larger `fdr`."
    )
