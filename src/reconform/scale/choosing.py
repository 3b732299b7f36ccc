"""A detector that is chosen for every row, where the rows are in parts.

On a split, the choice needs no more of the other rows than counts of their scores, and the scores
themselves where a list may end (`reconform.detectors.auto.tally`). Every part is scored once; the
scores are then counted, looked through for those few, and ranked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..arrays import FloatArray
from ..detector import ConformalDetector
from ..detectors.auto.tally import Chooser, Gauge, LowScores
from ..rule import Rule
from ..statistics.choice import ChoiceCounts
from ..statistics.fdr import RankCounts
from ..statistics.ranks import Ranks
from .graph import delayed, merged


def suited(
    cad: ConformalDetector, rule: Rule, where: str, rows: Callable[[], int]
) -> ConformalDetector:
    """Return the detector that judges so many rows; refuse a rule or detector that cannot.

    Parameters
    ----------
    cad : ConformalDetector
    rule : Rule
    where : str
        What is judged, for the message.
    rows : callable
        Counts the rows, where the method depends on that (``method="auto"``).
    """
    by_size = cad.most_rows is not None
    if cad.uses_batch and not cad.chooses:
        rule.counting_grid(cad, where)  # refuses it, before rows are counted
    if by_size:
        cad = cad.for_rows(rows())
    # All rows at once are in memory only where they are known to be few.
    rule.counting_grid(cad, where, together=cad.chooses and (by_size or cad.tally() is not None))
    return cad


@dataclass(frozen=True, eq=False)
class Counted:
    """What the decision needs of all rows.

    Attributes
    ----------
    ranks : RankCounts
    choice : ChoiceCounts or None
        Where a detector was chosen for every row.
    together : Ranks or None
        Where all rows were ranked at once, in memory.
    """

    ranks: RankCounts
    choice: ChoiceCounts | None = None
    together: Ranks | None = None

    @classmethod
    def of(cls, found: Ranks, n_calibration: int, fingerprint: str) -> Counted:
        """Count the rows of one part."""
        counts = RankCounts(n_calibration, fingerprint).add(found.at_most)
        if found.choice is None:
            return cls(counts)
        return cls(counts, ChoiceCounts(found.choice.names, n_calibration).add(found.choice))

    def merge(self, other: Counted) -> Counted:
        """Add up two parts."""
        ranks = self.ranks.merge(other.ranks)
        if self.choice is None or other.choice is None:
            return Counted(ranks)
        return Counted(ranks, self.choice.merge(other.choice))


def chooser_of(
    gauge: Gauge,
    counted: Any,
    parts: Sequence[Any],
    low_of: Callable[..., LowScores],
    run: Callable[[Any], Any],
) -> Chooser:
    """Look at the scores of all rows, wherever they are, and return what ranks rows.

    Parameters
    ----------
    gauge : Gauge
    counted : LowScores
        `Gauge.counted` of all rows.
    parts : sequence
        Where the scores are: delayed, or names.
    low_of : callable
        From a gauge, gaps and a part to `Gauge.low`.
    run : callable
        Computes a delayed value.
    """
    gaps = counted.undecided()
    if not gaps.any():
        return Chooser(gauge, counted)
    model, wanted, low = delayed(gauge), delayed(gaps), delayed(low_of)
    return Chooser(
        gauge, run(merged([low(model, wanted, part) for part in parts], LowScores.merge))
    )


def count_choice(chooser: Chooser, scores: FloatArray) -> tuple[Ranks, Counted]:
    """Rank the rows of one part, and count them."""
    found = chooser.ranks(scores)
    return found, Counted.of(found, chooser.gauge.n, chooser.fingerprint)
