"""Weighted ranks: normal new rows come in other proportions than the reference rows.

Let w(x) be the density of normal new rows over that of reference rows, and all rows independent.
Given E_j, the reference and x_j together, and the other new rows, a normal x_j is row e of E_j with
probability w(e) / (sum of w over E_j). So

    p_j = (sum of w over the rows of E_j that score at most s(x_j)) / (sum of w over E_j)

has P(p_j <= α) <= α for every score that treats the rows of E_j alike. With weights that are all
the same it is the rank over n + 1.

A list with a theorem: let K_j be what Benjamini-Hochberg at a level a finds if E_j is the reference
and x_j has p-value 0; it does not depend on which row of E_j is new. Row e of E_j would be found in
the place of x_j if its own p-value is at most a K_j / m, and

    e_j = 1{x_j is found} / (the weight of all rows of E_j that would be found)

is an e-value. For one model and w = 1 this is the list of Benjamini-Hochberg itself. The proof is
in docs/guarantees.

Weights are whole numbers here, so that sums and comparisons are exact: the largest weight is 2^32.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..arrays import BoolArray, FloatArray, IndexArray, IntArray
from ..errors import ReconformError
from ..parallel import run_blocks
from .weighted_kernels import weigh_rows, weigh_rows_of_one_model
from .worlds import closed_e_bh

# The largest weight.
LARGEST = 1 << 32
# Products in the kernels stay below this.
MOST = 1 << 62


def whole_weights(reference: FloatArray, new: FloatArray) -> tuple[IntArray, IntArray]:
    """Turn weights into whole numbers of which the largest is 2^32.

    Examples
    --------
    >>> ours, theirs = whole_weights(np.array([1.0, 0.5]), np.array([0.25, 0.0]))
    >>> ours * 4 // LARGEST, theirs * 4 // LARGEST
    (array([4, 2]), array([1, 0]))
    """
    largest = max(reference.max(initial=0.0), new.max(initial=0.0))

    def whole(weights: FloatArray) -> IntArray:
        scaled = np.rint(weights / largest * LARGEST).astype(np.int64)
        # A weight that is not 0 never becomes 0: its row is possible.
        return np.where((scaled == 0) & (weights > 0), 1, scaled)

    return whole(reference), whole(new)


@dataclass(frozen=True, eq=False)
class WeightedRanks:
    """What the weights of E_j come to, for every new row j.

    Attributes
    ----------
    at_most : int array of shape (m,)
        The weight of the rows of E_j that score at most s(x_j), x_j among them.
    total : int array of shape (m,)
        The weight of E_j.
    lengths : int array of shape (m,)
        K_j.
    found : int array of shape (m,)
        The weight of the rows of E_j that would be found in the place of x_j.
    limits : int array of shape (m,)
        x_j is found if `at_most` is no more than this.
    """

    at_most: IntArray
    total: IntArray
    lengths: IntArray
    found: IntArray
    limits: IntArray

    @property
    def p_values(self) -> FloatArray:
        """The weighted p-values; 1 where E_j has no weight at all."""
        return np.where(self.total > 0, self.at_most / np.maximum(self.total, 1), 1.0)

    @property
    def fractions(self) -> list[Fraction]:
        """The p-values, exactly."""
        pairs = zip(self.at_most.tolist(), self.total.tolist(), strict=True)
        return [Fraction(part, whole) if whole else Fraction(1) for part, whole in pairs]

    @property
    def e_values(self) -> list[Fraction]:
        """e_j: 0 where x_j is not found."""
        triples = zip(
            (self.at_most <= self.limits).tolist(),
            self.total.tolist(),
            self.found.tolist(),
            strict=True,
        )
        return [Fraction(total, found) if is_in and found else Fraction(0)
                for is_in, total, found in triples]  # fmt: skip

    def selected(self, fdr: Fraction) -> BoolArray:
        """The list whose false discovery rate is at most `fdr`, by a theorem for true weights."""
        return closed_e_bh(self.e_values, fdr)

    def benjamini_hochberg(self, fdr: Fraction) -> BoolArray:
        """What Benjamini-Hochberg finds on the weighted p-values; exact, but not a theorem."""
        m = len(self.total)
        # Row j is in lists of at least so many rows.
        least = np.array([-(-p * m // fdr) for p in self.fractions], dtype=np.float64)
        enough = np.searchsorted(np.sort(least), np.arange(1, m + 1), side="right")
        lengths = np.flatnonzero(enough >= np.arange(1, m + 1))
        return least <= (lengths[-1] + 1 if len(lengths) else 0)

    def within_alarms(self, number: Fraction) -> BoolArray:
        """Flag p-values of at most `number` / m."""
        m = len(self.total)
        return np.array([p * m <= number for p in self.fractions], dtype=np.bool_)


def ranks_by_sight(
    sights: Iterable[tuple[IndexArray, FloatArray, FloatArray, IndexArray | None]],
    reference: IntArray,
    new: IntArray,
    level: Fraction,
    *,
    n_jobs: int | None = None,
) -> WeightedRanks:
    """Weigh new rows, each by the scores of a model on the reference and the row.

    Parameters
    ----------
    sights : iterable of (rows, own, others, order)
        As in `reconform.ensemble.Sight`.
    reference : int array of shape (n,)
    new : int array of shape (m,)
        Whole weights.
    level : Fraction
        a, fixed beforehand.
    n_jobs : int, optional

    Returns
    -------
    WeightedRanks
    """
    m = len(new)
    top, bottom = _checked_line(level, m)
    out = np.zeros((5, m), dtype=np.int64)
    for rows, own, others, order in sights:
        weights = reference if order is None else reference[order]

        def weigh(
            start: int,
            stop: int,
            rows: IndexArray = rows,
            own: FloatArray = own,
            others: FloatArray = others,
            weights: IntArray = weights,
        ) -> None:
            weigh_rows(own, others, rows, weights, new, top, bottom, start, stop, out)

        run_blocks(weigh, len(rows), n_jobs=n_jobs)
    return WeightedRanks(*out)


def ranks_of_one_model(
    calibration: FloatArray,
    scores: FloatArray,
    reference: IntArray,
    new: IntArray,
    level: Fraction,
    *,
    n_jobs: int | None = None,
) -> WeightedRanks:
    """Weigh new rows by the scores of one model that has seen none of the calibration rows.

    Equal to `ranks_by_sight` with these scores for every row, in m steps per row.

    Parameters
    ----------
    calibration : float array of shape (n,)
        Scores of the calibration rows.
    scores : float array of shape (m,)
        Scores of the new rows.
    reference, new : int arrays of shape (n,) and (m,)
        Whole weights.
    level : Fraction
        a, fixed beforehand.
    n_jobs : int, optional

    Returns
    -------
    WeightedRanks

    Examples
    --------
    >>> same = np.full(9, LARGEST), np.full(3, LARGEST)
    >>> scores = np.array([-1.0, 4.0, 9.0])
    >>> ranks = ranks_of_one_model(np.arange(9.0), scores, *same, Fraction(1, 2))
    >>> ranks.p_values
    array([0.1, 0.6, 1. ])
    >>> ranks.selected(Fraction(1, 2))
    array([ True, False, False])
    """
    m = len(new)
    top, bottom = _checked_line(level, m)
    order = np.argsort(calibration, kind="stable")
    ordered = calibration[order]
    upto = np.append(0, np.cumsum(reference[order]))
    by_score = np.argsort(scores, kind="stable")
    ends = np.searchsorted(ordered, ordered, side="right")  # ties go together
    at_most = upto[np.searchsorted(ordered, scores, side="right")]
    place = np.empty(m, dtype=np.int64)
    place[by_score] = np.arange(m)
    # Where the new rows begin that score at least as much.
    tied = np.searchsorted(scores[by_score], scores, side="left")
    # How many calibration rows score less than a new row.
    below = np.searchsorted(ordered, scores, side="left")
    out = np.zeros((5, m), dtype=np.int64)

    def weigh(start: int, stop: int) -> None:
        weigh_rows_of_one_model(
            upto, ends, at_most[by_score], place, tied, below, at_most, new, top, bottom,
            start, stop, out,
        )  # fmt: skip

    run_blocks(weigh, m, n_jobs=n_jobs)
    return WeightedRanks(*out)


def _checked_line(level: Fraction, m: int) -> tuple[int, int]:
    """The level times K over m is `top` K / `bottom`; refuse numbers that kernels cannot hold."""
    top, bottom = (level / max(m, 1)).as_integer_ratio()
    if top * max(m, 1) * bottom >= MOST:
        raise ReconformError(
            f"a level of {level} has too many digits for a weighted list of {m:,} rows; round it "
            "to three digits."
        )
    return top, bottom
