"""Does the assumption hold? Checks of a batch against the reference, and the verdict.

Every guarantee rests on one sentence: normal new rows come from the same process as the reference
rows. The checks look for what would break it, cheaply, each with a stated rate of false alarms
(docs/assumptions). They see samples of the rows and the counts of the ranks. A check is one row of
one table, `CHECKS`; the verdict is their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..arrays import FloatArray
from ..content import digests_of
from ..statistics.fdr import RankCounts
from .closeness import cluster_finding, copy_findings, in_units
from .columns import Category, column_findings, label_findings
from .contamination import Level, contamination_finding
from .order import InOrder, Order, order_findings
from .sample import MOST_REFERENCE, LookedUp
from .shift import (
    MOST_COMBINED,
    moved_columns,
    normal_rows_at_least,
    shift_finding,
    shift_tests,
    with_weights,
)
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
        Samples, by `reference_positions` and `new_rows` or a `Reservoir`; None if not kept.
    names : tuple of str
        Of the columns; may be empty.
    found : tuple of Finding
        What was found on the way to the ranks.
    categories : mapping
        By position, the columns that hold codes of labels. They are no numbers: labels have checks
        of their own, and distances are measured without them.
    weighted : bool
        Whether weights make up for a shift, which is then not tested for.
    weighable : bool
        Whether weights could be used as these rows are judged.
    looked_up : LookedUp, optional
        Which new rows can be looked up in all of the reference, where `reference` is a part of it.
    learned : bool
        As in `Ranks`: then no law is known for how many ranks are small.
    order : Order
        What the order of the reference shows.
    in_order : InOrder, optional
        New rows in their order.
    units : str
        What the rows are, if they are no rows: "unit" or "window" (of time series).
    """

    reference: FloatArray | None = field(repr=False)
    new: FloatArray | None = field(repr=False)
    names: tuple[str, ...] = ()
    found: tuple[Finding, ...] = ()
    categories: Mapping[int, Category] = field(default_factory=dict)
    weighted: bool = False
    weighable: bool = True
    looked_up: LookedUp | None = None
    learned: bool = False
    order: Order = field(default_factory=Order)
    in_order: InOrder | None = field(default=None, repr=False)
    units: str = ""

    def verdict(
        self, counts: RankCounts | None, flagged: int, tested: int, level: Level
    ) -> Verdict:
        """Check the batch: its ranks, and how many of so many rows are flagged at a level.

        The level is a false discovery rate, or says how many rows are flagged, from counts.
        """
        few = counts is None or counts.n_calibration < LEAST_ROWS
        ranked = None if few or self.weighted or tested < LEAST_ROWS else counts
        evidence = CheckInput(self, ranked, flagged, tested, level, [*self.found])
        for check in CHECKS:
            if all(getattr(evidence, need) for need in check.needs):
                evidence.findings += check.find(evidence)
        unchecked = _too_few(tested, "new row") if tested < LEAST_ROWS else ""
        known = None if counts is None else counts.n_calibration
        known = known if self.reference is None else len(self.reference)
        if not unchecked and few and not evidence.has_rows and known is not None:
            unchecked = _too_few(known, "reference row")
        return Verdict.of(evidence.findings, unchecked, units=self.units)


@dataclass(eq=False)
class CheckInput:
    """What checks look at, and words for what a check needs.

    Attributes
    ----------
    has_sample, has_rows, has_numbers : bool
        Whether rows of both files were kept; enough of both to test anything; with columns of
        numbers.
    unweighted : bool
        Whether no weights make up for a shift.
    sample, numbers : tuple of two float arrays
        The rows that were kept of reference and batch, and their columns of numbers.
    used : list of str
        Names of these columns.
    combined : bool
        Whether they are so few that they are looked at together: distances cost too much else.
    findings : list of Finding
        So far.
    """

    given: Compared
    ranks: RankCounts | None
    flagged: int
    tested: int
    level: Level
    findings: list[Finding]

    def __post_init__(self) -> None:
        reference, new = self.given.reference, self.given.new
        self.has_sample = reference is not None and new is not None
        self.unweighted = not self.given.weighted
        if reference is None or new is None:
            reference = new = np.empty((0, 0))
        self.sample = reference, new
        self.names = [*self.given.names] or [*map(str, range(reference.shape[1]))]
        used = [j for j in range(reference.shape[1]) if j not in self.given.categories]
        self.numbers, self.used = (reference[:, used], new[:, used]), [self.names[j] for j in used]
        self.has_rows = min(len(reference), len(new)) >= LEAST_ROWS
        self.has_numbers = self.has_rows and bool(used)
        self.combined = self.has_sample and 0 < len(used) <= MOST_COMBINED
        # Where scores are learned from all rows, no law is known for how many ranks are small.
        self.independent = None if self.given.learned else self.ranks

    @property
    def unbroken(self) -> bool:
        """Whether nothing so far breaks the assumption."""
        return all(finding.level != "broken" for finding in self.findings)


@dataclass(frozen=True)
class Check:
    """One row of the table of checks.

    To add a check, write a function from `CheckInput` to findings and add a row to `CHECKS`: lists,
    files, reports and the command line render what it finds. Its place is its turn: a check sees
    in `CheckInput.findings` what those before it have found.

    Attributes
    ----------
    name : str
    find : callable
        From `CheckInput` to findings.
    needs : tuple of str
        Properties of `CheckInput` without which it is left out.
    worst : {"note", "doubtful", "broken"}
        The level of the worst that it can find.
    """

    name: str
    find: Callable[[CheckInput], Iterable[Finding]]
    needs: tuple[str, ...] = ()
    worst: str = "note"


def _labels(seen: CheckInput) -> Iterator[Finding]:
    """What columns of labels show; of few rows only which labels the reference lacks."""
    reference, new = seen.sample
    normal = normal_rows_at_least(len(new)) if seen.has_rows else 0
    for j, category in seen.given.categories.items():
        columns = {"of": seen.tested, "columns": len(seen.given.categories)}
        yield from label_findings(
            seen.names[j], category, reference[:, j], new[:, j], normal=normal, **columns
        )


def _shift(seen: CheckInput) -> Iterator[Finding]:
    """Test the rows; where there are none, the ranks still show a shift."""
    counts = None if seen.independent is None else seen.independent.counts
    # Columns of windows drift, without p-values knowing of it.
    by_columns = seen.has_numbers and seen.given.units != "window"
    if not by_columns and counts is None:
        return
    rows, names = (seen.numbers, seen.used) if by_columns else ((None, None), [])
    tests = shift_tests(*rows, names=names, of=seen.tested, counts=counts)
    moved = shift_finding(tests)
    if moved is not None and by_columns and seen.given.weighable:
        moved = with_weights(moved, moved_columns(tests, names), *seen.numbers, names)
    if moved is not None:
        yield moved


def _copies(seen: CheckInput) -> list[Finding]:
    ours, theirs = (digests_of(X)[1].tolist() for X in seen.sample)
    more = len(ours) == MOST_REFERENCE
    return copy_findings(ours, theirs, looked_up=seen.given.looked_up, sampled=more)


def _share(seen: CheckInput) -> Iterator[Finding]:
    flagged, tested = seen.flagged, seen.tested
    if tested >= LEAST_ROWS and flagged > MOST_FLAGGED * tested:
        yield Finding(
            "share flagged",
            "doubtful",
            f"{flagged:,} of {tested:,} rows are flagged, but anomalies should be rare.",
            "Look for something that all new rows share, such as another unit, another machine or "
            "a column that counts up.",
        )


def _contamination(seen: CheckInput) -> list[Finding]:
    rows = seen.numbers if seen.has_rows and seen.combined else None
    return contamination_finding(rows, seen.independent, seen.flagged, seen.level)


CHECKS = [
    Check("labels", _labels, ("has_sample",), "broken"),
    Check(
        "columns",
        lambda seen: column_findings(*seen.numbers, seen.used),
        ("has_numbers",),
        "broken",
    ),
    Check("shift", _shift, ("unweighted",), "broken"),
    Check("copies", _copies, ("has_rows",), "doubtful"),
    # Copies of each other are seen among few rows, too.
    Check(
        "clusters",
        lambda seen: cluster_finding(*in_units(*seen.numbers)),
        ("combined",),
        "doubtful",
    ),
    Check("share flagged", _share, (), "doubtful"),
    # Rows that moved look like anomalies among the reference, too.
    Check("contamination", _contamination, ("unweighted", "unbroken")),
    Check(
        "order",
        lambda seen: order_findings(
            seen.given.order, seen.given.in_order, seen.given.names, seen.given.units
        ),
        (),
        "broken",
    ),
]


def _too_few(rows: int, what: str) -> str:
    said = f"there {'is' if rows == 1 else 'are'} only {rows:,} {what}{'' if rows == 1 else 's'}"
    return f"{said}, and the checks need {LEAST_ROWS}"
