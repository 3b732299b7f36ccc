"""Does the assumption hold? Checks of a batch against the reference, and the verdict.

Every guarantee rests on one sentence: normal new rows come from the same process as the reference
rows. The checks look for what would break it, cheaply, each with a stated rate of false alarms
(docs/assumptions). They see samples of the rows and the counts of the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ..arrays import BoolArray, FloatArray
from ..content import digests_of
from ..statistics.fdr import RankCounts
from .closeness import cluster_finding, copy_findings, in_units, unused_batch
from .columns import column_findings, order_findings
from .contamination import Level, dirt_finding
from .labels import Category, label_findings
from .sample import (
    MOST_REFERENCE,
    LookedUp,
    Occurrences,
    Reservoir,
    alike_in_groups,
    monotone_columns,
    new_rows,
    new_sample,
    reference_positions,
    reference_sample,
)
from .shape import HEAPED, LEFT, shape_finding
from .shift import (
    MOST_COMBINED,
    moved_columns,
    normal_rows_at_least,
    shift_finding,
    shift_tests,
    with_weights,
)
from .silence import why_nothing
from .verdict import WITHDRAWN, Finding, Verdict

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
    found : tuple of Finding
        What was found on the way to the ranks.
    categories : mapping
        By position, the columns that hold codes of labels. They are no numbers: labels have checks
        of their own, and distances are measured without them.
    monotone : bool array of shape (d,), optional
        Columns that only rise or only fall from one new row to the next.
    weighted : bool
        Whether weights make up for a shift, which is then not tested for.
    weighable : bool
        Whether weights could be used as these rows are judged.
    looked_up : LookedUp, optional
        Which new rows can be looked up in all of the reference, where `reference` is a part of it.
    """

    reference: FloatArray | None = field(repr=False)
    new: FloatArray | None = field(repr=False)
    names: tuple[str, ...] = ()
    found: tuple[Finding, ...] = ()
    categories: Mapping[int, Category] = field(default_factory=dict)
    monotone: BoolArray | None = field(default=None, repr=False)
    weighted: bool = False
    weighable: bool = True
    looked_up: LookedUp | None = None

    def verdict(
        self,
        counts: RankCounts | None,
        flagged: int,
        tested: int,
        level: Level,
        calibration: FloatArray | None = None,
    ) -> Verdict:
        """Check the batch.

        Parameters
        ----------
        counts : RankCounts, optional
            Of the ranks of all new rows.
        flagged, tested : int
            Rows flagged, of so many.
        level : float or callable
            The false discovery rate that was aimed at; or how many rows are flagged, from counts.
        calibration : float array, optional
            Calibration scores, to tell ties from a shape of the histogram.

        Returns
        -------
        Verdict
        """
        if tested < LEAST_ROWS:
            unchecked = _too_few(tested, "new row")
            few_rows = [*self.found, *self._labels(tested), *filter(None, [self._clusters()])]
            return Verdict.of(few_rows, unchecked)
        few = counts is None or counts.n_calibration < LEAST_ROWS
        ranked = None if few or self.weighted else counts
        found = [*self.found, *self._by_rows(ranked, tested), _share(flagged, tested)]
        broken = any(finding is not None and finding.level == "broken" for finding in found)
        if not broken and not self.weighted:
            # Rows that moved look like dirt, too.
            found.append(dirt_finding(self._measured(), ranked, flagged, level))
        if ranked is not None:
            found.append(_shape(ranked, calibration, {f.check for f in found if f is not None}))
        unchecked = ""
        if few and self._both() is None and (known := self._known(counts)) is not None:
            unchecked = _too_few(known, "reference row")
        return Verdict.of((finding for finding in found if finding is not None), unchecked)

    def _known(self, counts: RankCounts | None) -> int | None:
        """How many reference rows new rows are compared with; None if nothing is known."""
        if self.reference is not None:
            return len(self.reference)
        return None if counts is None else counts.n_calibration

    def _by_rows(self, counts: RankCounts | None, tested: int) -> Iterator[Finding | None]:
        """What the rows show; where there are none, the ranks still show a shift."""
        ranks = None if counts is None else counts.counts
        yield from self._labels(tested)
        if self._numbers is not None:
            reference, new, names = self._numbers
            odd = column_findings(reference, new, names)
            yield from odd
            if self.monotone is not None and not any(f.check == "identifier" for f in odd):
                used = [j for j in range(len(self.monotone)) if j not in self.categories]
                yield from order_findings(new, self.monotone[used], names)
            if not self.weighted:
                tests = shift_tests(reference, new, names=names, of=tested, counts=ranks)
                moved = shift_finding(tests)
                if moved is not None and self.weighable:
                    moved = with_weights(moved, moved_columns(tests, names), reference, new, names)
                yield moved
        elif ranks is not None:
            yield shift_finding(shift_tests(None, None, names=(), of=tested, counts=ranks))
        if (both := self._both()) is not None:
            ours, theirs = (digests_of(X)[1].tolist() for X in both)
            more = len(ours) == MOST_REFERENCE
            yield from copy_findings(ours, theirs, looked_up=self.looked_up, sampled=more)
        yield self._clusters()

    def _clusters(self) -> Finding | None:
        """Look for clusters: copies of each other are seen among few rows, too."""
        used = self._used()
        if self.reference is None or self.new is None or not 0 < len(used) <= MOST_COMBINED:
            return None
        return cluster_finding(*in_units(self.reference[:, used], self.new[:, used]))

    def _labels(self, tested: int) -> Iterator[Finding]:
        """What columns of labels show; of few rows only which labels the reference lacks."""
        if self.reference is None or self.new is None:
            return
        normal = 0 if self._both() is None else normal_rows_at_least(len(self.new))
        for j, category in self.categories.items():
            yield from label_findings(
                self._name(j),
                category,
                self.reference[:, j],
                self.new[:, j],
                normal=normal,
                of=tested,
                columns=len(self.categories),
            )

    def _name(self, j: int) -> str:
        return self.names[j] if self.names else str(j)

    def _both(self) -> tuple[FloatArray, FloatArray] | None:
        """Both samples; None if there are too few rows to test anything."""
        if self.reference is None or self.new is None:
            return None
        enough = min(len(self.reference), len(self.new)) >= LEAST_ROWS
        return (self.reference, self.new) if enough else None

    def _used(self) -> list[int]:
        """The columns of numbers."""
        columns = 0 if self.reference is None else self.reference.shape[1]
        return [j for j in range(columns) if j not in self.categories]

    @cached_property
    def _numbers(self) -> tuple[FloatArray, FloatArray, list[str]] | None:
        """The columns of numbers of both samples, and their names."""
        if (both := self._both()) is None:
            return None
        reference, new = both
        used = self._used()
        if not used:
            return None
        return reference[:, used], new[:, used], [self._name(j) for j in used]

    def _measured(self) -> tuple[FloatArray, FloatArray] | None:
        """The numbers of both samples; None where distances are not worth their time."""
        if self._numbers is None or len(self._numbers[2]) > MOST_COMBINED:
            return None
        return self._numbers[:2]


def _too_few(rows: int, what: str) -> str:
    said = f"there {'is' if rows == 1 else 'are'} only {rows:,} {what}{'' if rows == 1 else 's'}"
    return f"{said}, and it takes {LEAST_ROWS}"


def _shape(counts: RankCounts, calibration: FloatArray | None, checks: set[str]) -> Finding | None:
    """What the histogram of p-values shows, unless a better test has said it."""
    if calibration is not None and len(calibration) != counts.n_calibration:
        return None  # ranks are medians over repeated splits, and not uniform
    found = shape_finding(counts.counts, calibration)
    said = {LEFT: "shift", HEAPED: "copies"}
    return None if found is None or said.get(found.check) in checks else found


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
    "WITHDRAWN",
    "Category",
    "Compared",
    "Finding",
    "LookedUp",
    "Occurrences",
    "Reservoir",
    "Verdict",
    "alike_in_groups",
    "monotone_columns",
    "new_rows",
    "new_sample",
    "reference_positions",
    "reference_sample",
    "unused_batch",
    "why_nothing",
]
