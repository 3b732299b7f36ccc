"""Ranks within groups of different sizes, decided together: p = r / (n_g + 1), in exact fractions.

A rank within a group and the group itself are one number, a *joint rank*: group after group, the
ranks 1 .. n_g + 1 of each. Counts of joint ranks add up like all others, and say of every group
what became of its rows. What is different is the order: p-values do not grow with joint ranks. A
`JointGrid` knows the order, puts counts into it, and the procedures see one grid as always.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from ..arrays import BoolArray, FloatArray, IndexArray, IntArray, RankArray
from ..errors import ReconformError
from .exact import SHORT, SLACK, Grid, exact_fraction, rows_counted
from .fdr import Decision, RankCounts
from .ranks import Ranks

# Products of integers below this are exact in a double.
_EXACT = 1 << 53


@dataclass(frozen=True, eq=False)
class JointRanks:
    """Where the ranks of each group stand among all joint ranks.

    Attributes
    ----------
    sizes : int array of shape (groups,)
        Calibration rows of each group, n_g.

    Examples
    --------
    >>> joint = JointRanks(np.array([4, 2]))
    >>> joint.joined(np.array([0, 1, 1]), np.array([5, 1, 3]))
    array([5, 6, 8])
    >>> joint.apart(np.array([5, 6, 8]))
    (array([0, 1, 1]), array([5, 1, 3]))
    >>> joint.highest
    8
    """

    sizes: IntArray

    @cached_property
    def starts(self) -> IntArray:
        """The joint rank before the first of each group; and the last of all."""
        return np.concatenate([[0], np.cumsum(self.sizes + 1)]).astype(np.int64)

    @property
    def highest(self) -> int:
        """Joint ranks lie in 1 .. this."""
        return int(self.starts[-1])

    def joined(self, groups: IndexArray, ranks: RankArray) -> RankArray:
        """Joint ranks of rows with these ranks in these groups."""
        return np.asarray(self.starts[groups] + ranks)

    def apart(self, joint: RankArray) -> tuple[IndexArray, RankArray]:
        """Groups, and ranks in them, of rows with these joint ranks."""
        groups = np.searchsorted(self.starts, joint, side="left") - 1
        return groups, np.asarray(joint - self.starts[groups])

    def within(self, ranks: Ranks) -> tuple[Ranks, IntArray]:
        """Ranks within groups, of joint ones; and for every row how many rows its group has."""
        groups, at_most = self.apart(ranks.at_most)
        below = None if ranks.below is None else ranks.below - self.starts[groups]
        return Ranks(at_most, below, ranks.scores), self.sizes[groups]

    def of_group(self, by_rank: IntArray, group: int) -> IntArray:
        """The part of a table over joint ranks (entry 0 for none) that belongs to a group."""
        return by_rank[self.starts[group] + 1 : self.starts[group + 1] + 1]

    def on_one_grid(self, by_rank: IntArray) -> RankCounts | None:
        """Counts of joint ranks as counts on the coarsest grid among groups that have rows.

        P-values are rounded up to it. For checks that look at the histogram of all p-values, and
        not for decisions. None if there are no rows.
        """
        parts = [self.of_group(by_rank, g) for g in range(len(self.sizes))]
        here = [int(n) for n, part in zip(self.sizes, parts, strict=True) if part.sum()]
        if not here:
            return None
        coarse = RankCounts(min(here), "on one grid")
        for n, part in zip(self.sizes.tolist(), parts, strict=True):
            if part.sum():
                ranks = np.arange(1, n + 2)
                rounded = -(-ranks * (coarse.n_calibration + 1) // (n + 1))
                np.add.at(coarse.counts, rounded, part)
        return coarse


@dataclass(frozen=True, eq=False)
class JointGrid(Grid):
    """p-values of joint ranks: those of every group on its own grid.

    Attributes
    ----------
    numerators : int array of shape (highest + 2,)
        By joint rank, over the least common denominator; Python's integers where that is large.
        They do not increase: `order` says how they do.
    denominator : int
    joint : JointRanks
    """

    joint: JointRanks

    @classmethod
    def of(cls, grids: Sequence[Grid]) -> JointGrid:
        """Put the grids of all groups together.

        Examples
        --------
        >>> from reconform.statistics.exact import usual
        >>> JointGrid.of([usual(3), usual(1)]).table
        array([0.  , 0.25, 0.5 , 0.75, 1.  , 0.5 , 1.  ])
        """
        denominator = math.lcm(*(grid.denominator for grid in grids))
        kind = np.int64 if denominator < _EXACT else object
        parts = [
            grid.numerators[1:].astype(kind) * (denominator // grid.denominator) for grid in grids
        ]
        numerators = np.concatenate([np.zeros(1, dtype=kind), *parts])
        sizes = np.array([grid.n_calibration for grid in grids], dtype=np.int64)
        return cls(numerators, denominator, JointRanks(sizes))

    @property
    def smallest(self) -> Fraction:
        """The smallest p-value that there is, in any group."""
        return Fraction(int(self.numerators[1:].min()), self.denominator)

    def smallest_of_each(self) -> list[Fraction]:
        """The smallest p-value of every group."""
        first = self.numerators[self.joint.starts[:-1] + 1].tolist()
        return [Fraction(int(w), self.denominator) for w in first]

    @cached_property
    def table(self) -> FloatArray:
        """The p-value of every joint rank as a float."""
        return np.asarray(self.numerators / self.denominator, dtype=np.float64)

    @cached_property
    def place(self) -> RankArray:
        """Where each joint rank stands in the order of p-values; equal ones by group."""
        place = np.empty(len(self.numerators), dtype=np.int64)
        place[np.argsort(self.numerators, kind="stable")] = np.arange(len(place))
        return place

    @cached_property
    def in_order(self) -> Grid:
        """The same p-values in increasing order: a grid like any other."""
        return Grid(np.sort(self.numerators, kind="stable"), self.denominator)

    def ordered(self, counts: RankCounts) -> RankCounts:
        """Counts of joint ranks in the order of p-values."""
        made = RankCounts(counts.n_calibration, counts.fingerprint)
        made.counts[self.place] = counts.counts
        return made

    def decide(
        self, counts: RankCounts, how: Callable[[RankCounts, Grid], Decision]
    ) -> JointDecision:
        """Decide in the order of p-values, and turn it into a decision on joint ranks."""
        decision = how(self.ordered(counts), self.in_order)
        facts = {name: getattr(decision, name) for name in ("count", "tested", "fdr", "procedure")}
        return JointDecision(
            decision.rank_threshold, **facts, grid=self, q_table=decision.q_table[self.place]
        )


@dataclass(frozen=True, eq=False)
class JointDecision(Decision):
    """A rule on joint ranks.

    Attributes
    ----------
    rank_threshold : int
        Of places in the order of p-values: rows up to this place are discoveries.
    grid : JointGrid
    count, tested, fdr, procedure, q_table
        As in `Decision`.
    """

    grid: JointGrid

    @property
    def p_threshold(self) -> float:
        """The largest p-value that is a discovery; 0.0 if there is none."""
        return float(self.grid.in_order.table[self.rank_threshold])

    def mask(self, ranks: RankArray) -> BoolArray:
        """Which of these rows are discoveries."""
        return np.asarray(self.grid.place[ranks] <= self.rank_threshold)


def check_lambda(grids: Sequence[Grid], storey_lambda: float | Fraction) -> None:
    """Refuse a λ of Storey's that is not a p-value of every group.

    Examples
    --------
    >>> from reconform.statistics.exact import usual
    >>> check_lambda([usual(9), usual(19)], 0.5)
    >>> check_lambda([usual(8), usual(11)], 0.5)
    Traceback (most recent call last):
        ...
    reconform.errors.ReconformError: `storey_lambda=0.5` must be a p-value of every group, and
    it is none of the group with 8 calibration rows, whose p-values are multiples of 1/9; use
    `procedure='bh'`, or in Python Fraction(1, 3).
    """
    share = exact_fraction("storey_lambda", storey_lambda)
    off = [grid for grid in grids if not _holds(grid, share)]
    if not off:
        return
    common = set.intersection(*(_values(grid) for grid in _distinct(grids)))
    raise ReconformError(
        f"`storey_lambda={storey_lambda}` must be a p-value of every group, and it is none of the "
        f"group with {off[0].n_calibration:,} calibration rows, whose p-values are multiples of "
        f"1/{off[0].denominator:,}; {_nearest(common, share)}"
    )


def _nearest(common: set[Fraction], share: Fraction) -> str:
    if not common:
        return (
            "there is no λ that is one of all of them: leave out reference rows until the numbers "
            "n + 1 have a common divisor, or use `procedure='bh'`."
        )
    best = min(common, key=lambda value: (abs(value - share), value))
    short = f"{float(best):g}"
    if Fraction(short) == best:
        return f"use `storey_lambda={short}`, or `procedure='bh'`."
    return f"use `procedure='bh'`, or in Python Fraction({best.numerator}, {best.denominator})."


def _holds(grid: Grid, share: Fraction) -> bool:
    wanted = share * grid.denominator
    return wanted.denominator == 1 and bool((grid.numerators[1:] == wanted.numerator).any())


def _distinct(grids: Sequence[Grid]) -> list[Grid]:
    return list({(grid.n_calibration, grid.denominator): grid for grid in grids}.values())


def _values(grid: Grid) -> set[Fraction]:
    """The p-values between 0 and 1."""
    numerators = {int(value) for value in grid.numerators[1:]}
    return {Fraction(w, grid.denominator) for w in numerators if 0 < w < grid.denominator}


@dataclass(frozen=True, eq=False)
class JointStepUp:
    """Benjamini-Hochberg at a level fixed beforehand, on ranks within groups.

    A row with p-value p is in a list of k rows iff p <= a `rows_counted(k)` / m: so every row is
    given the length of the shortest list that could hold it, an integer, whatever its group.

    Attributes
    ----------
    level : Fraction
        a.
    sizes : int array of shape (groups,)
    m : int
        New rows.

    Examples
    --------
    >>> step = JointStepUp(Fraction(1, 10), np.array([99, 49]), 4)
    >>> step.needed(np.array([0, 0, 1]), np.array([2, 3, 3]))
    array([1, 2, 3])
    >>> step.count(np.array([2, 9]))
    2
    >>> step.limit(1, 2)
    2
    """

    level: Fraction
    sizes: IntArray
    m: int

    def needed(self, groups: IndexArray, ranks: RankArray) -> RankArray:
        """Length of the shortest list that may hold rows of these ranks."""
        short = self._shortest(groups, ranks, self.level)
        return np.where(short <= SHORT, short, self._shortest(groups, ranks, self.level * SLACK))

    def _shortest(self, groups: IndexArray, ranks: RankArray, level: Fraction) -> RankArray:
        """The least k with p m / level <= k."""
        top = self.m * level.denominator
        bottom = level.numerator * (self.sizes + 1)
        if (int(self.sizes.max(initial=0)) + 1) * top < 1 << 62:
            return np.asarray(-(-(ranks * top) // bottom[groups]))
        pairs = zip(ranks.tolist(), bottom[groups].tolist(), strict=True)
        return np.array([-(-(r * top) // b) for r, b in pairs], dtype=np.int64)

    def count(self, needed: RankArray) -> int:
        """Count what is found among m rows: these, one of rank 0, and others out of reach."""
        counts = np.bincount(np.minimum(needed, self.m + 1), minlength=self.m + 2)
        upto = 1 + np.cumsum(counts[: self.m + 1])
        lengths = np.flatnonzero(upto[1:] >= np.arange(1, self.m + 1))
        return int(lengths[-1]) + 1 if len(lengths) else 0

    def limit(self, group: int, length: int) -> int:
        """The largest rank in a group that a list of this length holds."""
        share = self.level * rows_counted(length) * (int(self.sizes[group]) + 1) / self.m
        return share.numerator // share.denominator
