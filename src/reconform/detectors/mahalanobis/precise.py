"""The model of a reference in as many digits as it takes, where doubles would lose what matters.

A fill value of 1e37 among ordinary numbers makes a scatter of which doubles keep nothing but that
value. The ridge bounds its condition, and so the digits that are needed are known beforehand.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from ...arrays import FloatArray, RankArray

Decimals = npt.NDArray[np.object_]

# Digits beyond those that cancel.
SPARE = 40

# Scores and rows beyond it are shown as it, so that products of them are finite.
LARGEST = 2.0**400

_decimals = np.frompyfunc(Decimal, 1, 1)


def digits_for(sizes: FloatArray, count: int, ridge: float) -> int:
    """Digits that are enough for rows whose values are at most these sizes, column by column.

    Distances, what a row changes in them, and what it leaves to the others each cancel at most as
    many as the condition of the scatter has.
    """
    squared = np.logaddexp.reduce(2.0 * np.log(np.maximum(sizes, 1e-320)))
    condition = np.logaddexp(0.0, squared + np.log(4.0 * count) - np.log(ridge))
    return SPARE + int(np.ceil(3.0 * condition / np.log(10.0)))


class PreciseModel:
    """Mean and scatter of rows, and rows as they look through them, in decimal digits.

    Parameters
    ----------
    rows : float array of shape (n, d)
    ridge : float
    digits : int
        As `digits_for` says, for all rows that will be seen.
    """

    def __init__(self, rows: FloatArray, ridge: float, digits: int) -> None:
        n, d = rows.shape
        self.n, self.digits, self.wide = n, digits, d > n
        with self._context():
            exact: Decimals = np.asarray(_decimals(rows))
            self.mean = exact.sum(axis=0) / n
            gaps = exact - self.mean
            self.root = Decimal(ridge).sqrt()
            if self.wide:
                # One row after another, as those before it see it, joins the scatter I + z z',
                # whose inverse root takes a share of z out of what is seen.
                self.factor = gaps / self.root
                self.shares = np.zeros(n, dtype=object)
                for k in range(n):
                    z = self.factor[k]
                    square = z @ z
                    if square:
                        self.shares[k] = (1 - 1 / (1 + square).sqrt()) / square
                        later = self.factor[k + 1 :]
                        later -= np.outer(later @ z * self.shares[k], z)
            else:
                factor = gaps.T @ gaps
                factor[np.diag_indices(d)] += Decimal(ridge)
                for k in range(d):
                    factor[k, k:] /= factor[k, k].sqrt()
                    share = factor[k, k + 1 :]
                    factor[k + 1 :, k + 1 :] -= np.outer(share, share)
                self.factor = factor

    def _context(self) -> AbstractContextManager[Any]:
        return localcontext(Context(prec=self.digits, Emax=MAX_EMAX, Emin=MIN_EMIN))

    def whiten(self, X: FloatArray) -> Decimals:
        """Return rows as they look when the scatter is the identity and the mean the origin."""
        with self._context():
            seen: Decimals = _decimals(X) - self.mean
            if self.wide:
                seen = seen / self.root
                for z, share in zip(self.factor, self.shares, strict=True):
                    seen -= np.outer(seen @ z * share, z)
                return seen
            for k, row in enumerate(self.factor):
                seen[:, k] /= row[k]
                seen[:, k + 1 :] -= np.outer(seen[:, k], row[k + 1 :])
            return seen

    def scores(self, seen: Decimals) -> FloatArray:
        """Score rows by the model itself."""
        with self._context():
            return doubles(-(seen * seen).sum(axis=1))

    def scores_with(self, seen: Decimals, new: Decimals, *, held_out: bool) -> FloatArray:
        """Score rows by the models with one new row more: (rows, new rows).

        Parameters
        ----------
        seen, new : arrays of Decimal
            As `whiten` returns them.
        held_out : bool
            Whether the rows are of the reference, and each is scored without itself.
        """
        n = self.n
        with self._context():
            a, b, p = (seen * seen).sum(axis=1)[:, None], (new * new).sum(axis=1), seen @ new.T
            part, along = Decimal(n) / (n + 1), p - b / (n + 1)
            square = a - 2 * p / (n + 1) + b / (n + 1) ** 2 - along * along * part / (1 + part * b)
            return doubles(-self._alone(square, n + 1) if held_out else -square)

    def compare(self, seen: Decimals, new: Decimals) -> tuple[RankArray, RankArray]:
        """Count the rows of the reference that score at most as much as each new row, and less."""
        n = self.n
        with self._context():
            a, b, p = (seen * seen).sum(axis=1)[:, None], (new * new).sum(axis=1), seen @ new.T
            gap = (n + 1) * (a - b) + 2 * (b - p) + n * (a * b - p * p)
            # Far below what the condition leaves of a difference, far above what rounding does.
            tie = Decimal(10) ** (-2 * self.digits // 3)
            margin = tie * ((n + 1) * (a + b) + n * (a * b + p * p))
            return (gap >= -margin).sum(axis=0), (gap > margin).sum(axis=0)

    def held_out_scores(self, seen: Decimals) -> FloatArray:
        """Score rows of the reference, each by the model without it."""
        with self._context():
            return doubles(-self._alone((seen * seen).sum(axis=1), self.n))

    @staticmethod
    def _alone(square: Any, count: int) -> Any:
        """Squared distance of one of `count` rows by the model of the others."""
        more = Decimal(count) / (count - 1)
        return more * more * square / (1 - more * square)


def doubles(values: Decimals) -> FloatArray:
    """Round numbers; those that are too large for products become as large as can be."""
    return np.clip(values.astype(np.float64), -LARGEST * LARGEST, LARGEST * LARGEST)


def shortened(seen: Decimals) -> FloatArray:
    """Round rows as they are seen; those too far away are brought near, in the same direction.

    At such a distance only the direction matters to a comparison.
    """
    largest = np.abs(seen).max(axis=1, initial=0)
    far = largest > LARGEST
    seen = seen.copy()
    seen[far] = seen[far] / largest[far, None] * Decimal(LARGEST)
    return seen.astype(np.float64)
