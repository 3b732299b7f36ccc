"""Groups of rows: the labels that users give, which of them are known, what was found in each.

Ranks are made within a group (Mondrian conformal prediction): machines of one type are compared
with reference rows of this type. Decisions are made for all groups together (`statistics.joint`).
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from .arrays import BoolArray, FloatArray, IndexArray, IntArray, ObjectArray
from .errors import ReconformError, ReferenceWarning, listed, warn_once
from .methods import Plan
from .statistics.joint import JointRanks

# Groups with fewer calibration rows are named when they are fitted.
FEW = 20
# So many groups are named in a warning.
MOST_NAMED = 5


def label_of(value: Any) -> str | None:
    """Write one label as text; None if it is missing.

    Numbers that are whole are written without a point, so that 3, 3.0 and "3" are one group,
    whichever way a table was read.

    Examples
    --------
    >>> label_of(3.0), label_of("pump"), label_of(float("nan"))
    ('3', 'pump', None)
    """
    if value is None or (isinstance(value, numbers.Real) and math.isnan(value)):
        return None
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    text = str(value)
    return None if text in ("", "NaT", "<NA>") else text


def labels_of(groups: Any, rows: int) -> ObjectArray:
    """Read group labels, one per row, as an array of text; refuse missing ones.

    Parameters
    ----------
    groups : array-like of shape (rows,)
    rows : int

    Examples
    --------
    >>> labels_of(["a", "b", "a"], 3)
    array(['a', 'b', 'a'], dtype=object)
    """
    if isinstance(groups, str):
        raise ReconformError(
            f"`groups` must be one label per row; got the text {groups!r}. Give the column itself, "
            "such as frame['machine']."
        )
    values = groups.to_pylist() if hasattr(groups, "to_pylist") else list(groups)
    if len(values) != rows:
        raise ReconformError(
            f"`groups` must have one label per row: {rows:,} rows, {len(values):,} labels."
        )
    known: dict[Any, str | None] = {}
    labels = np.empty(rows, dtype=object)
    for i, value in enumerate(values):
        try:
            if value not in known:
                known[value] = label_of(value)
            labels[i] = known[value]
        except TypeError:
            raise ReconformError(
                f"`groups` must be one label per row; got {type(value).__name__} for row {i}."
            ) from None
    missing = np.flatnonzero(labels == None)  # noqa: E711 - element by element
    if len(missing):
        raise ReconformError(
            f"`groups` has no label for {len(missing):,} rows, the first of them row "
            f"{missing[0]:,}; leave these rows out, or give them a group of their own."
        )
    return labels


@dataclass(frozen=True, eq=False)
class ReferenceGroups:
    """The groups of reference rows, and how they are to be used.

    Attributes
    ----------
    names : tuple of str
        In increasing order.
    codes : int array of shape (n,)
        The group of every reference row, as a position in `names`.
    models : bool
        Whether every group has a detector of its own.
    """

    names: tuple[str, ...]
    codes: IndexArray
    models: bool = False

    @classmethod
    def of(cls, groups: Any, rows: int, *, models: bool) -> ReferenceGroups:
        """Read the labels that a user gave."""
        names, codes = np.unique(labels_of(groups, rows).astype(str), return_inverse=True)
        return cls(tuple(names.tolist()), codes, models)

    @property
    def single(self) -> bool:
        """Whether there is one group only: everything is then as without groups."""
        return len(self.names) == 1

    def calibrated(self, rows: IndexArray) -> Grouping:
        """What new rows are told of, where these reference rows calibrate."""
        groups = len(self.names)
        return Grouping(
            self.names,
            np.bincount(self.codes, minlength=groups),
            np.bincount(self.codes[rows], minlength=groups),
            self.models,
        )


@dataclass(frozen=True, eq=False)
class Grouping:
    """The groups of a reference, and how many of its rows calibrate in each.

    Attributes
    ----------
    names : tuple of str
        In increasing order.
    reference : int array of shape (groups,)
        Reference rows of each group.
    calibration : int array of shape (groups,)
        Those of them that calibrate.
    models : bool
        Whether every group has a detector of its own.
    """

    names: tuple[str, ...]
    reference: IntArray
    calibration: IntArray
    models: bool = False

    @property
    def joint(self) -> JointRanks:
        """The joint ranks of all groups."""
        return JointRanks(self.calibration.astype(np.int64))

    @property
    def single(self) -> bool:
        """Whether there is one group only: everything is then as without groups."""
        return len(self.names) == 1

    def codes(self, labels: ObjectArray) -> IndexArray:
        """Numbers of the groups of new rows; refuse unknown ones.

        Parameters
        ----------
        labels : object array
            From `labels_of`.
        """
        number = {name: g for g, name in enumerate(self.names)}
        codes = np.array([number.get(label, -1) for label in labels], dtype=np.intp)
        if (codes < 0).any():
            unknown = sorted({str(label) for label in labels[codes < 0]})
            raise ReconformError(
                f"the reference has no rows of group {listed(unknown[:5])}"
                f"{' and others' if len(unknown) > 5 else ''}: {int((codes < 0).sum()):,} new rows "
                "have nothing to be compared with. Leave them out, or add reference rows of these "
                "groups."
            )
        return codes

    def labels(self, codes: IndexArray | None, rows: int) -> ObjectArray:
        """The names of the groups of rows."""
        names = np.array(self.names, dtype=object)
        return names[np.zeros(rows, dtype=np.intp) if codes is None else codes]

    def small(self) -> list[str]:
        """Sentences for groups with few calibration rows, the first few by name."""
        said = [
            f"Group {name!r} has {_rows(n, full)}: its smallest p-value is 1/{n + 1}."
            for name, n, full in zip(
                self.names, self.calibration.tolist(), self.reference.tolist(), strict=True
            )
            if n < FEW
        ]
        return _few(said, "like these")


def _rows(calibration: int, reference: int) -> str:
    rows = "1 reference row" if reference == 1 else f"{reference:,} reference rows"
    return rows if calibration == reference else f"{rows}, of which {calibration:,} calibrate"


def _few(sentences: list[str], what: str) -> list[str]:
    """Keep the first sentences, and say of how many more groups the same holds.

    Examples
    --------
    >>> _few(["A is small.", "B is small."] * 3, "like these")[-1]
    '1 more group is like these: is the column one of groups?'
    """
    more = len(sentences) - MOST_NAMED
    if more <= 0:
        return sentences
    groups = "group is" if more == 1 else "groups are"
    return [*sentences[:MOST_NAMED], f"{more:,} more {groups} {what}: is the column one of groups?"]


def check_groupable(plan: Plan, method: Any, anomalies: bool = False) -> None:
    """Refuse methods whose ranks within groups mean nothing that is known; known anomalies, too."""
    if anomalies:
        raise ReconformError("known `anomalies` do not go with `groups`; leave one of them out.")
    one_partition = len(plan.repeats) == 1
    if not (plan.row.takes_groups and plan.variant == "plus" and one_partition):
        several = "" if one_partition else f" on {len(plan.repeats)} splits"
        named = f"`method={method!r}`" if isinstance(method, str) else f"{plan.scheme}{several}"
        raise ReconformError(
            f"{named} has no ranks within groups; use `method='full'` or `method='split'`"
            f"{', without `repeats`' if several else ''}."
        )


def warn_of_small_groups(grouping: Grouping, key: object) -> None:
    """Name the groups that have few calibration rows, once for an object `key`."""
    small = grouping.small()
    if small:
        warn_once(key, "small groups", " ".join(small), ReferenceWarning)


@dataclass(frozen=True)
class GroupFound:
    """What became of one group.

    Attributes
    ----------
    name : str
        ``"(unknown)"`` for rows of groups that the reference does not have.
    reference, calibration : int
        Reference rows, and those of them that calibrate.
    rows : int
        New rows.
    flagged : int
    smallest_p : float
        The smallest p-value among the new rows; NaN if there are none.
    least_p : Fraction
        The smallest p-value that the group can have.
    shortest : int or None
        The shortest list that can hold one of its rows; more than there are new rows if none can.
        None where that is not known before the p-values are.

    Examples
    --------
    >>> small = GroupFound("fan", 12, 12, 20, 0, 1 / 13, Fraction(1, 13), shortest=16)
    >>> small.reach(200), small.reach(15)
    ('only in a list of 16 or more', 'not at this level')
    """

    name: str
    reference: int
    calibration: int
    rows: int
    flagged: int
    smallest_p: float
    least_p: Fraction
    shortest: int | None = None

    def reach(self, tested: int) -> str:
        """Say when rows of the group can be flagged, in a list from so many rows.

        Parameters
        ----------
        tested : int
            New rows of all groups.
        """
        if self.shortest is None:
            return ""
        if self.shortest > tested:
            return "not at this level"
        return (
            "also alone" if self.shortest <= 1 else f"only in a list of {self.shortest:,} or more"
        )


def found_in_groups(
    grouping: Grouping,
    least_p: Sequence[Fraction],
    codes: IndexArray,
    p_values: FloatArray,
    mask: BoolArray,
    counts: IntArray | None = None,
) -> tuple[GroupFound, ...]:
    """Say what became of every group.

    Parameters
    ----------
    grouping : Grouping
    least_p : sequence of Fraction
        The smallest p-value of each group.
    codes, p_values, mask : arrays of one length
        Of rows, or of kinds of rows that occur as often as `counts` says.
    counts : int array, optional
    """
    counts = np.ones(len(codes), dtype=np.int64) if counts is None else counts
    found = []
    for g, name in enumerate(grouping.names):
        mine = (codes == g) & (counts > 0)
        found.append(
            GroupFound(
                name,
                int(grouping.reference[g]),
                int(grouping.calibration[g]),
                int(counts[mine].sum()),
                int(counts[mine & mask].sum()),
                float(p_values[mine].min()) if mine.any() else math.nan,
                least_p[g],
            )
        )
    return tuple(found)


def out_of_reach(groups: Sequence[GroupFound], count: int) -> list[str]:
    """Name the groups whose rows could not be flagged in a list as short as this one.

    Parameters
    ----------
    groups : sequence of GroupFound
    count : int
        Rows flagged.
    """
    said = []
    tested = sum(one.rows for one in groups)
    for group in groups:
        if group.shortest is None or group.shortest <= max(count, 1) or not group.rows:
            continue
        what = f"cannot be flagged in a list of fewer than {group.shortest:,}"
        if group.shortest > tested:
            what = "cannot be flagged at all at this level"
        p = group.least_p
        new = "1 new row" if group.rows == 1 else f"{group.rows:,} new rows"
        said.append(
            f"Group {group.name!r} has {_rows(group.calibration, group.reference)}: its smallest "
            f"p-value is {p.numerator}/{p.denominator:,}, and its {new} {what}."
        )
    return _few(said, "like these")
