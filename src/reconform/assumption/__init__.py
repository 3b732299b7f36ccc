"""Does the assumption hold? Checks of a batch against the reference, and the verdict.

Every guarantee rests on one sentence: normal new rows come from the same process as the reference
rows. The checks look for what would break it, cheaply, each with a stated rate of false alarms
(docs/assumptions). They see samples of the rows and the counts of the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ..arrays import FloatArray, IntArray
from ..statistics.fdr import RankCounts
from .batch import unused_batch
from .closeness import clump_finding, copy_findings
from .columns import column_findings
from .contamination import dirt_finding, held_back
from .sample import Reservoir, new_sample, reference_sample
from .shift import MOST_COMBINED, shift_finding, shift_tests
from .silence import why_nothing
from .verdict import Finding, Verdict

# Fewer rows on either side say nothing.
LEAST_ROWS = 20
# Scaled numbers beyond this are as far away as any.
FARTHEST = 1e6
# A list this long is not one of anomalies.
MOST_FLAGGED = 0.5


@dataclass(frozen=True, eq=False)
class Compared:
    """What a batch is checked by; the verdict is worked out when it is asked for.

    Attributes
    ----------
    reference, new : float arrays of shape (s, d), (t, d) or None
        Samples, from `reference_sample` and `new_sample` or a `Reservoir`; None if not kept.
    names : tuple of str
        Of the columns; may be empty.
    found : tuple of Finding
        What was found on the way to the ranks.
    """

    reference: FloatArray | None = field(repr=False)
    new: FloatArray | None = field(repr=False)
    names: tuple[str, ...] = ()
    found: tuple[Finding, ...] = ()

    def verdict(
        self, counts: RankCounts | None, flagged: int, tested: int, level: float
    ) -> Verdict:
        """Check the batch.

        Parameters
        ----------
        counts : RankCounts, optional
            Of the ranks of all new rows.
        flagged, tested : int
            Rows flagged, of so many.
        level : float
            The false discovery rate that was aimed at.

        Returns
        -------
        Verdict
        """
        if tested < LEAST_ROWS:
            return Verdict.of(self.found)
        few = counts is None or counts.n_calibration < LEAST_ROWS
        ranks = None if counts is None or few else counts.counts
        found = [*self.found, *self._by_rows(ranks, tested), _share(flagged, tested)]
        if not any(finding is not None and finding.level == "broken" for finding in found):
            found.append(self._dirt(ranks, flagged, level))  # rows that moved look like dirt, too
        return Verdict.of(finding for finding in found if finding is not None)

    def _dirt(self, ranks: IntArray | None, flagged: int, level: float) -> Finding | None:
        """Anomalies among the reference rows: by the neighbours of unusual rows, or by ranks."""
        found = None
        reference, new = self.reference, self.new
        if reference is not None and new is not None and _comparable(reference, new):
            found = dirt_finding(*_alike(reference, new), flagged, level)
        if found is None and ranks is not None:
            held = held_back(ranks, flagged, level)
            found = None if held is None else held.finding()
        return found

    def _by_rows(self, ranks: IntArray | None, tested: int) -> Iterator[Finding | None]:
        """What the rows show; where there are none, the ranks still show a shift."""
        reference, new = self.reference, self.new
        if reference is None or new is None or min(len(reference), len(new)) < LEAST_ROWS:
            if ranks is not None:
                yield shift_finding(shift_tests(None, None, names=(), of=tested, counts=ranks))
            return
        names = self.names or [str(j) for j in range(reference.shape[1])]
        yield from column_findings(reference, new, names)
        yield shift_finding(shift_tests(reference, new, names=names, of=tested, counts=ranks))
        ours, theirs = ([row.tobytes() for row in X] for X in (reference, new))
        yield from copy_findings(ours, theirs)
        if _comparable(reference, new):
            yield clump_finding(*_alike(reference, new))


def _comparable(reference: FloatArray, new: FloatArray) -> bool:
    """Whether distances between rows are worth their time."""
    return min(len(reference), len(new)) >= LEAST_ROWS and reference.shape[1] <= MOST_COMBINED


def _alike(reference: FloatArray, new: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Both samples in units of the reference's spread, missing numbers at its median."""
    middle = np.nan_to_num(np.nanmedian(reference, axis=0))
    known = np.where(np.isnan(reference), middle, reference)
    low, high = np.quantile(known, [0.25, 0.75], axis=0)
    spread = np.where(high > low, high - low, known.std(axis=0))
    spread = np.where(spread > 0, spread, 1.0)
    seen = np.where(np.isnan(new), middle, new)
    return (known - middle) / spread, np.clip((seen - middle) / spread, -FARTHEST, FARTHEST)


def _share(flagged: int, tested: int) -> Finding | None:
    if tested < LEAST_ROWS or flagged <= MOST_FLAGGED * tested:
        return None
    return Finding(
        "share flagged",
        "doubtful",
        f"{flagged:,} of {tested:,} rows are flagged: anomalies are rare, and these are most of "
        "the rows.",
        "Look for something that all new rows share, such as another unit, another machine or a "
        "column that counts up.",
    )


__all__ = [
    "Compared",
    "Finding",
    "Reservoir",
    "Verdict",
    "new_sample",
    "reference_sample",
    "unused_batch",
    "why_nothing",
]
