"""From p-values to discoveries at a false discovery rate.

Decisions are made in integers and exact fractions. All p-values of one calibration lie on the
grid r / (n + 1), so n + 1 counts say everything about a batch that a step-up procedure asks; the
counts of batches add up (`RankCounts`), and so a batch, a file or a cluster get the same decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ..arrays import BoolArray, FloatArray, RankArray
from ..errors import ReconformError, unknown_choice
from .exact import exact_fraction, harmonic_number
from .grid import Grid, usual

PROCEDURES = ("bh", "by", "storey")


# --- the step-up rule on counts ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Decision:
    """What a procedure decided, as a rule on integer ranks.

    Attributes
    ----------
    rank_threshold : int
        Rows of at most this rank are discoveries; 0 if there are none.
    count : int
        Number of discoveries.
    tested : int
        Number of rows, m.
    grid : Grid
        What each rank is worth.
    fdr : Fraction
        The level, exactly.
    procedure : str
    q_table : float array of shape (n_calibration + 2,)
        The q-value of every rank (entry 0 is unused).
    """

    rank_threshold: int
    count: int
    tested: int
    grid: Grid
    fdr: Fraction
    procedure: str
    q_table: FloatArray = field(repr=False)

    @property
    def p_threshold(self) -> float:
        """The largest p-value that is a discovery; 0.0 if there is none."""
        return float(self.grid.table[self.rank_threshold])

    def mask(self, ranks: RankArray) -> BoolArray:
        """Which of these rows are discoveries."""
        return np.asarray(ranks <= self.rank_threshold)

    def q_values(self, ranks: RankArray) -> FloatArray:
        """Adjust p-values: the smallest level at which each row would be a discovery."""
        return np.asarray(self.q_table[ranks])


class RankCounts:
    """How many rows got each rank: all that a whole batch has to say for FDR control.

    Counts of any partition of a batch merge to the counts of the batch, and the decision is
    exactly the one that the whole batch would have got.

    Parameters
    ----------
    n_calibration : int
        Ranks lie in 1 .. n_calibration + 1.
    fingerprint : str
        Of the calibration that the ranks come from; only counts with the same one merge.

    Examples
    --------
    >>> counts = RankCounts(9, "plant-7").add([1, 1, 8])
    >>> both = counts.merge(RankCounts(9, "plant-7").add([1, 10]))
    >>> both
    RankCounts(rows=5, n_calibration=9)
    >>> both.decide(fdr=0.2).count
    3
    """

    def __init__(self, n_calibration: int, fingerprint: str) -> None:
        self.n_calibration = n_calibration
        self.fingerprint = fingerprint
        self.counts = np.zeros(n_calibration + 2, dtype=np.int64)

    def __repr__(self) -> str:
        return f"RankCounts(rows={self.rows}, n_calibration={self.n_calibration})"

    @property
    def rows(self) -> int:
        """Number of rows counted."""
        return int(self.counts.sum())

    def add(self, ranks: npt.ArrayLike) -> RankCounts:
        """Count the ranks of some rows, in place.

        Parameters
        ----------
        ranks : array-like of int
            As `ConformalDetector.ranks` returns them. Smoothed p-values are off the grid and have
            no rank; they are refused.
        """
        array = np.asarray(ranks)
        if array.size and not np.issubdtype(array.dtype, np.integer):
            raise ReconformError(
                f"ranks must be integers; got {array.dtype}. p-values, and smoothed ones in "
                "particular, cannot be counted: use ranks(X) with ties='conservative'."
            )
        if array.size and (array.min() < 1 or array.max() > self.n_calibration + 1):
            raise ReconformError(
                f"ranks must lie in 1 .. {self.n_calibration + 1}; got {array.min()} .. "
                f"{array.max()}. Do they come from another calibration?"
            )
        self.counts += np.bincount(array.astype(np.int64).ravel(), minlength=self.n_calibration + 2)
        return self

    def merge(self, other: RankCounts) -> RankCounts:
        """Add up two counts from the same calibration."""
        if (self.n_calibration, self.fingerprint) != (other.n_calibration, other.fingerprint):
            raise ReconformError(
                "rank counts merge only if they come from the same calibration; got fingerprints "
                f"{self.fingerprint[:12]!r} (n={self.n_calibration}) and "
                f"{other.fingerprint[:12]!r} (n={other.n_calibration})."
            )
        merged = RankCounts(self.n_calibration, self.fingerprint)
        merged.counts = self.counts + other.counts
        return merged

    def decide(
        self,
        fdr: float | Fraction = 0.1,
        *,
        procedure: str = "bh",
        storey_lambda: float | Fraction = 0.5,
        grid: Grid | None = None,
    ) -> Decision:
        """Apply a step-up procedure, exactly.

        A row of rank r is a discovery iff for some r' >= r, with k rows of rank at most r',
        r' m den <= num k (n + 1), where num / den is the level (divided by the harmonic number
        for BY, by Storey's estimate of the share of nulls for Storey).

        Parameters
        ----------
        fdr : float or Fraction
            Target level; a float is read as the decimal number it prints as.
        procedure : {"bh", "by", "storey"}
        storey_lambda : float
            Storey's λ, fixed beforehand; rounded up to the grid of p-values.
        grid : Grid, optional
            What each rank is worth; by default r / (n + 1).

        Returns
        -------
        Decision
        """
        level = exact_fraction("fdr", fdr)
        grid = usual(self.n_calibration) if grid is None else grid
        low, high = self._factor(procedure, storey_lambda, grid)
        m = self.rows
        ranks = np.flatnonzero(self.counts)
        upto = np.cumsum(self.counts[ranks])
        worth = grid.numerators[ranks]
        # p * factor <= level * k / m, multiplied out; Python's integers do not overflow.
        left_high = m * high.numerator * level.denominator
        right_high = grid.denominator * high.denominator * level.numerator
        left_low = m * low.numerator * level.denominator
        right_low = grid.denominator * low.denominator * level.numerator
        threshold, count = 0, 0
        columns = (ranks[::-1].tolist(), worth[::-1].tolist(), upto[::-1].tolist())
        for r, w, k in zip(*columns, strict=True):
            if w * left_high <= k * right_high or (
                w * left_low <= k * right_low
                and _harmonic_below(m, level * k * grid.denominator / (w * m))
            ):
                threshold, count = r, k
                break
        q_table = self._q_table(ranks, worth, upto, high / grid.denominator)
        return Decision(threshold, count, m, grid, level, procedure, q_table)

    def _factor(
        self, procedure: str, storey_lambda: float | Fraction, grid: Grid
    ) -> tuple[Fraction, Fraction]:
        """Bounds on what p-values are multiplied by: 1, H_m, or Storey's share of nulls."""
        if procedure == "bh":
            return Fraction(1), Fraction(1)
        if procedure == "by":
            return harmonic_number(self.rows)
        if procedure == "storey":
            # λ rounded up to a p-value of the grid, or down where there is none below 1. Counting
            # p > λ and dividing by 1 - λ, as for continuous p-values, loses a little validity.
            asked = exact_fraction("storey_lambda", storey_lambda) * grid.denominator
            below_one = grid.numerators[1:][grid.numerators[1:] < grid.denominator]
            if not len(below_one):
                return Fraction(1), Fraction(1)
            first = int(np.searchsorted(below_one, -int(-asked // 1)))
            cut = int(below_one[min(first, len(below_one) - 1)])
            above = int(self.counts[grid.numerators >= cut].sum())
            factor = _storey_share(above, self.rows, Fraction(cut, grid.denominator))
            return factor, factor
        raise unknown_choice("procedure", procedure, PROCEDURES)

    def _q_table(
        self, ranks: RankArray, worth: RankArray, upto: RankArray, factor: Fraction
    ) -> FloatArray:
        table = np.ones(self.n_calibration + 2)
        if not len(ranks):
            return table
        numerator, denominator = self.rows * factor.numerator, factor.denominator
        if max(numerator * int(worth[-1]), denominator * self.rows) < 1 << 53:
            # both products are exact in a double, and one division rounds once
            raw = (worth * float(numerator)) / (upto * float(denominator))
        else:
            pairs = zip(worth.tolist(), upto.tolist(), strict=True)
            raw = np.array([(w * numerator) / (k * denominator) for w, k in pairs])
        q = np.minimum(np.minimum.accumulate(raw[::-1])[::-1], 1.0)
        # A rank that no row has takes the q-value of the next one that occurs.
        position = np.searchsorted(ranks, np.arange(self.n_calibration + 2))
        inside = position < len(ranks)
        table[inside] = q[position[inside]]
        return table


def _storey_share(above: int, m: int, share: Fraction) -> Fraction:
    """(1 + #{p >= λ}) / (m (1 - λ)); not capped at 1, which the proof does not allow."""
    return Fraction(1 + above, max(m, 1)) / (1 - share)


def _harmonic_below(m: int, bound: Fraction) -> bool:
    """H_m <= bound, for a bound that lies within 10^-30 of H_m: settled by the sum itself."""
    return sum((Fraction(1, i) for i in range(1, m + 1)), Fraction(0)) <= bound


# --- the same procedures on plain p-values -------------------------------------------------------


def adjust(
    p_values: npt.ArrayLike, *, procedure: str = "bh", storey_lambda: float | Fraction = 0.5
) -> FloatArray:
    """Adjust plain p-values: weighted, smoothed, or anyone's.

    A row is a discovery at level fdr iff its adjusted p-value is at most fdr. Plain p-values are
    floats, and so is this arithmetic; `RankCounts` decides exactly.

    Parameters
    ----------
    p_values : array-like of float in [0, 1]
    procedure : {"bh", "by", "storey"}
    storey_lambda : float

    Returns
    -------
    float array
        q-values, in the order of the input.

    Examples
    --------
    >>> adjust([0.01, 0.04, 0.03, 0.5])
    array([0.04      , 0.05333333, 0.05333333, 0.5       ])
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1:
        raise ReconformError(f"p_values must be one-dimensional; got shape {p.shape}.")
    if p.size and not (p.min() >= 0 and p.max() <= 1):  # also false for NaN
        raise ReconformError(f"p_values must lie in [0, 1]; got {p.min()} .. {p.max()}.")
    m = len(p)
    if procedure == "bh":
        factor = 1.0
    elif procedure == "by":
        factor = float(harmonic_number(m)[1]) if m else 1.0
    elif procedure == "storey":
        share = exact_fraction("storey_lambda", storey_lambda)
        factor = float(_storey_share(int((p >= float(share)).sum()), m, share))
    else:
        raise unknown_choice("procedure", procedure, PROCEDURES)
    order = np.argsort(p, kind="stable")
    raw = p[order] * (factor * m) / np.arange(1, m + 1)
    q = np.empty(m)
    q[order] = np.minimum(np.minimum.accumulate(raw[::-1])[::-1], 1.0)
    return q
