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

Weights are whole numbers here, so that sums and comparisons are exact. They are measured in a unit
that depends on the rows of E_j alone, a power of two, and rounded down in the total of E_j and up
elsewhere. So p is never too small and e never too large, and the weight of another new row touches
neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from ..arrays import BoolArray, FloatArray, IndexArray, IntArray
from ..errors import ReconformError
from ..parallel import run_blocks
from .evalues import closed_e_bh
from .kernels import weigh_rows, weigh_rows_of_one_model

# Sums and products in the kernels stay below 2^62.
BITS = 62
# A shift that leaves nothing of a whole weight.
AWAY = 62
# Below the exponent of every float.
NOTHING = -1100


@dataclass(frozen=True, eq=False)
class WholeWeights:
    """Weights as whole numbers, rounded down and up, in a unit that E_j sets for new row j.

    Attributes
    ----------
    down, up : int arrays of shape (n,)
        Of the reference rows, in the unit that their own largest weight sets.
    own_down, own_up : int arrays of shape (m,)
        Of every new row, in the unit of its E_j.
    shift : int array of shape (m,)
        The unit of E_j is 2^shift times that of the reference rows.
    """

    down: IntArray
    up: IntArray
    own_down: IntArray
    own_up: IntArray
    shift: IntArray

    def __getitem__(self, rows: IndexArray) -> WholeWeights:
        """The same, with some of the reference rows, or with all of them in another order."""
        return replace(self, down=self.down[rows], up=self.up[rows])


def whole_weights(reference: FloatArray, new: FloatArray) -> WholeWeights:
    """Turn weights into whole numbers, as many bits of the largest in E_j as sums can hold.

    Examples
    --------
    >>> weights = whole_weights(np.array([1.0, 0.5]), np.array([0.25, 4.0]))
    >>> weights.up // weights.up[1], weights.own_up // weights.up[1], weights.shift
    (array([2, 1]), array([0, 2]), array([0, 2]))
    """
    bits = min(53, BITS - (len(reference) + 1).bit_length())
    theirs = np.where(new > 0, np.frexp(new)[1], NOTHING)
    ours = np.frexp(reference.max(initial=0.0))[1] if (reference > 0).any() else NOTHING
    units = np.maximum(ours, theirs)

    def whole(weights: FloatArray, exponents: IntArray | int) -> tuple[IntArray, IntArray]:
        scaled = np.ldexp(weights, bits - np.asarray(exponents))
        # A weight that is not 0 never becomes 0: its row is possible.
        up = np.where(weights > 0, np.maximum(np.ceil(scaled), 1.0), 0.0)
        return np.floor(scaled).astype(np.int64), up.astype(np.int64)

    shift = np.minimum(units - ours, AWAY).astype(np.int64)
    return WholeWeights(*whole(reference, ours), *whole(new, units), shift)


@dataclass(frozen=True, eq=False)
class WeightedRanks:
    """What the weights of E_j come to, for every new row j.

    Attributes
    ----------
    at_most : int array of shape (m,)
        The weight of the rows of E_j that score at most s(x_j), x_j among them; rounded up.
    total : int array of shape (m,)
        The weight of E_j; rounded down.
    lengths : int array of shape (m,)
        K_j.
    found : int array of shape (m,)
        The weight of the rows of E_j that would be found in the place of x_j; rounded up.
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
        return np.array([float(p) for p in self.fractions], dtype=np.float64)

    @property
    def fractions(self) -> list[Fraction]:
        """The p-values, exactly."""
        pairs = zip(self.at_most.tolist(), self.total.tolist(), strict=True)
        return [min(Fraction(part, whole), Fraction(1)) if whole else Fraction(1)
                for part, whole in pairs]  # fmt: skip

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


def ranks_by_refits(
    augmented: Iterable[tuple[IndexArray, FloatArray, FloatArray, IndexArray | None]],
    weights: WholeWeights,
    level: Fraction,
    *,
    n_jobs: int | None = None,
) -> WeightedRanks:
    """Weigh new rows, each by the scores of a model on the reference and the row.

    Parameters
    ----------
    augmented : iterable of (rows, own, others, order)
        As in `reconform.ensemble.AugmentedScores`.
    weights : WholeWeights
        Of all reference rows, in their order, and of the new rows.
    level : Fraction
        a, fixed beforehand.
    n_jobs : int, optional

    Returns
    -------
    WeightedRanks
    """
    m = len(weights.shift)
    top, bottom = _checked_line(level, m)
    out = np.zeros((5, m), dtype=np.int64)
    for rows, own, others, order in augmented:
        here = weights if order is None else weights[order]
        weigh = partial(
            weigh_rows, own, others, rows, here.down, here.up, here.own_down, here.own_up,
            here.shift, top, bottom, out,
        )  # fmt: skip
        run_blocks(weigh, len(rows), n_jobs=n_jobs)
    return WeightedRanks(*out)


def ranks_of_one_model(
    calibration: FloatArray,
    scores: FloatArray,
    weights: WholeWeights,
    level: Fraction,
    *,
    n_jobs: int | None = None,
) -> WeightedRanks:
    """Weigh new rows by the scores of one model that has seen none of the calibration rows.

    Equal to `ranks_by_refits` with these scores for every row, in m steps per row.

    Parameters
    ----------
    calibration : float array of shape (n,)
        Scores of the calibration rows.
    scores : float array of shape (m,)
        Scores of the new rows.
    weights : WholeWeights
        Of the calibration rows and of the new rows.
    level : Fraction
        a, fixed beforehand.
    n_jobs : int, optional

    Returns
    -------
    WeightedRanks

    Examples
    --------
    >>> same = whole_weights(np.ones(9), np.ones(3))
    >>> scores = np.array([-1.0, 4.0, 9.0])
    >>> ranks = ranks_of_one_model(np.arange(9.0), scores, same, Fraction(1, 2))
    >>> ranks.p_values
    array([0.1, 0.6, 1. ])
    >>> ranks.selected(Fraction(1, 2))
    array([ True, False, False])
    """
    m = len(weights.shift)
    top, bottom = _checked_line(level, m)
    order = np.argsort(calibration, kind="stable")
    ordered, weights = calibration[order], weights[order]
    by_score = np.argsort(scores, kind="stable")
    ends = np.searchsorted(ordered, ordered, side="right")  # ties go together
    # How many calibration rows score at most as much as a new row, and how many less.
    upto, below = (np.searchsorted(ordered, scores, side=side) for side in ("right", "left"))
    place = np.empty(m, dtype=np.int64)
    place[by_score] = np.arange(m)
    # Where the new rows begin that score at least as much.
    tied = np.searchsorted(scores[by_score], scores, side="left")
    out = np.zeros((5, m), dtype=np.int64)
    for shift in np.unique(weights.shift).tolist():  # new rows of one unit together
        rows = np.flatnonzero(weights.shift == shift)
        sums = np.append(0, np.cumsum(-(-weights.up >> shift)))
        at_most, totals = sums[upto], weights.own_down + (weights.down >> shift).sum()
        weigh = partial(
            weigh_rows_of_one_model, rows, sums, ends, at_most[by_score], place, tied, below,
            at_most, weights.own_up, totals, top, bottom, out,
        )  # fmt: skip
        run_blocks(weigh, len(rows), n_jobs=n_jobs)
    return WeightedRanks(*out)


def _checked_line(level: Fraction, m: int) -> tuple[int, int]:
    """The level times K over m is `top` K / `bottom`; refuse numbers that kernels cannot hold."""
    top, bottom = (level / max(m, 1)).as_integer_ratio()
    if top * max(m, 1) * bottom >= 1 << BITS:
        raise ReconformError(
            f"a level of {level} has too many digits for a weighted list of {m:,} rows; round it "
            "to three digits."
        )
    return top, bottom
