"""Does the assumption hold? Checks of a batch against the reference, and the verdict.

Every guarantee rests on one sentence: normal new rows come from the same process as the reference
rows. The checks look for what would break it, cheaply, each with a stated rate of false alarms
(docs/assumptions). They see samples of the rows and the counts of the ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..arrays import FloatArray
from ..statistics.fdr import RankCounts
from .sample import Reservoir, new_sample, reference_sample
from .shift import shift_finding, shift_tests
from .verdict import Finding, Verdict

# Fewer rows on either side say nothing.
LEAST_ROWS = 20
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
    """

    reference: FloatArray | None = field(repr=False)
    new: FloatArray | None = field(repr=False)
    names: tuple[str, ...] = ()

    def verdict(self, counts: RankCounts | None, flagged: int, tested: int) -> Verdict:
        """Check the batch.

        Parameters
        ----------
        counts : RankCounts, optional
            Of the ranks of all new rows.
        flagged, tested : int
            Rows flagged, of so many.

        Returns
        -------
        Verdict
        """
        found = [self._shift(counts, tested), _share(flagged, tested)]
        return Verdict.of(finding for finding in found if finding is not None)

    def _shift(self, counts: RankCounts | None, tested: int) -> Finding | None:
        reference, new = self.reference, self.new
        if reference is None or new is None or min(len(reference), len(new)) < LEAST_ROWS:
            reference = new = None
        few = counts is not None and counts.n_calibration < LEAST_ROWS
        ranks = None if counts is None or few else counts.counts
        if tested < LEAST_ROWS or (reference is None and ranks is None):
            return None
        names = self.names
        if reference is not None and not names:
            names = tuple(str(j) for j in range(reference.shape[1]))
        return shift_finding(shift_tests(reference, new, names=names, of=tested, counts=ranks))


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
]
