"""Rarity: a row is unusual if one of its values is seldom or never seen in its column.

In a multiset E of rows, let S of a value be how many rows have a value that occurs at most as often
in its column. A value that no other row has, in a column that is otherwise constant, has S = 1; in
a column where every value is different, S is the number of all rows, and says nothing. Missing or
not is a column of its own. The score of a row is its smallest S over all columns: with many columns
at once the rarest counts, and at most one row per column shares the first place with a value never
seen. Ties are broken by the mean of S over all columns.

Every row of E is treated alike, so full-conformal ranks are exact. One row more changes one count
per column: the scores of D and x follow from the counts of D (`scores_in_worlds`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...arrays import BoolArray, FloatArray, IndexArray, Int32Array, IntArray
from ...compiled import njit
from ...ensemble import (
    AugmentedScores,
    Ensemble,
    augmented_blocks,
    ranked_in_parts,
    reference_calibration,
)
from ...methods import Plan
from ...records import (
    INT,
    JOBS,
    ROWS,
    SUMS,
    Array,
    DetectorRecord,
    Record,
    check_reference,
    require,
)
from ...statistics.ranks import Calibration, Ranks
from ..base import Attribution, NativeDetector, in_shares


@dataclass(frozen=True, eq=False)
class _Counted:
    """How often the labels of a column occur, and in how many rows a label at most as often."""

    counts: IntArray
    upto: IntArray

    @classmethod
    def of(cls, codes: IntArray, labels: int) -> _Counted:
        """Count codes, of which those below 0 are none."""
        counts = np.bincount(codes[codes >= 0], minlength=labels)
        rows = np.bincount(counts, weights=counts, minlength=3).astype(np.int64)
        return cls(counts.astype(np.int64), np.cumsum(rows))

    def rows_upto(self, count: IntArray) -> IntArray:
        """S, for values that occur so often."""
        return self.upto[np.minimum(count, len(self.upto) - 1)]


@dataclass(frozen=True, eq=False)
class RarityModel:
    """What every value would score in a further row.

    Attributes
    ----------
    rows : int
        Rows that were counted.
    values : float array
        The values of every column, in order, one column after the other; without NaN.
    starts : int array of shape (d + 1,)
        Where each column begins.
    known : int array
        S of every value, in the rows and one more that has it.
    unknown : int array of shape (d,)
        S of a value that no row has.
    gaps : int array of shape (d, 2)
        S of a row that has a value, and of one that has none.
    """

    rows: int
    values: FloatArray
    starts: IntArray
    known: IntArray
    unknown: IntArray
    gaps: IntArray

    in_threads = True

    @classmethod
    def of(cls, X: FloatArray, more: int = 1) -> RarityModel:
        """Count the values of rows; with no `more`, S is that of the rows themselves."""
        parts, known, unknown, gaps = [], [], [], []
        for column in X.T:
            missing = np.isnan(column)
            values, counts = np.unique(column[~missing], return_counts=True)
            counted = _Counted.of(np.repeat(np.arange(len(values)), counts), len(values))
            parts.append(values)
            known.append(counted.rows_upto(counts + more) + more)
            unknown.append(int(counted.rows_upto(np.array(1))) + more)
            present = _Counted.of(missing.astype(np.int64), 2)
            gaps.append(present.rows_upto(present.counts + more) + more)
        starts = np.cumsum([0, *map(len, parts)])
        return cls(
            len(X) + more,
            np.concatenate(parts),
            starts.astype(np.int64),
            np.concatenate(known).astype(np.int64),
            np.array(unknown, dtype=np.int64),
            np.array(gaps, dtype=np.int64).reshape(-1, 2),
        )

    def rarities(self, X: FloatArray) -> IntArray:
        """S of every cell, and of every cell's being there: (m, 2 d)."""
        d = X.shape[1]
        found = np.empty((len(X), 2 * d), dtype=np.int64)
        for j, column in enumerate(X.T):
            start, stop = self.starts[j : j + 2]
            values, missing = self.values[start:stop], np.isnan(column)
            place = np.searchsorted(values, column)
            there = place < len(values)
            there[there] = values[place[there]] == column[there]
            found[:, j] = self.unknown[j]
            found[there, j] = self.known[start + place[there]]
            found[missing, j] = self.rows
            found[:, d + j] = self.gaps[j][missing.astype(np.intp)]
        return found

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows, small = anomalous."""
        found = self.rarities(X)
        mean = found.sum(axis=1) / (found.shape[1] * (self.rows + 1.0))
        return np.asarray(found.min(axis=1) + mean)


@njit(cache=True, nogil=True)
def scores_in_worlds(
    ours: Int32Array,
    theirs: Int32Array,
    more: int,
    width: int,
    rows: IndexArray,
    own: FloatArray,
    others: FloatArray,
    start: int,
    stop: int,
) -> None:
    """Score all rows in the worlds of some new rows.

    Parameters
    ----------
    ours : int array of shape (3, n, k)
        Of every cell of D: the code of its value, below 0 for none; how often it occurs in D; S.
    theirs : int array of shape (4, m, k)
        The same of new rows; S if the value occurs once and twice more often than in D.
    more, width : int
        Columns in which all rows are alike, and columns in all.
    rows, start, stop, own, others
        As `reconform.ensemble.augmented_blocks` has them.
    """
    n, k = ours.shape[1:]
    for r in range(start, stop):
        j = rows[r]
        for i in range(n + 1):
            least, total = n + 1, more * (n + 1)
            for c in range(k):
                mine, times = theirs[0, j, c], theirs[1, j, c]
                s = n + 1
                if i == n:
                    if mine >= 0:
                        s = theirs[2, j, c] + 1
                elif ours[0, i, c] >= 0:
                    s = ours[2, i, c]
                    if mine == ours[0, i, c]:
                        s = theirs[2, j, c] + 1
                    elif mine >= 0 and ours[1, i, c] == times:
                        s -= times
                    elif mine >= 0 and ours[1, i, c] > times:
                        s += 1
                least, total = min(least, s), total + s
            own[r, i] = least + total / (width * (n + 2.0))
        for o in range(theirs.shape[1]):
            least, total = n + 2, more * (n + 2)
            for c in range(k):
                mine, times = theirs[0, j, c], theirs[1, j, c]
                s = n + 2
                if theirs[0, o, c] >= 0:
                    s = theirs[2, o, c] + 1
                    if mine == theirs[0, o, c]:
                        s = theirs[3, o, c] + 2
                    elif mine >= 0 and theirs[1, o, c] + 1 == times:
                        s -= times
                    elif mine >= 0 and theirs[1, o, c] + 1 > times:
                        s += 1
                least, total = min(least, s), total + s
            others[r, o] = least + total / (width * (n + 3.0))


def _coded(X: FloatArray) -> Iterator[tuple[IntArray, int]]:
    """Codes of values, column by column, and of their being there; where rows differ and agree."""
    for column in X.T:
        missing: BoolArray = np.isnan(column)
        values, codes = np.unique(column, return_inverse=True)
        count = len(values) - bool(missing.any())
        if 1 < count < len(X) - missing.sum() or (missing.any() and count):
            yield np.where(missing, -1, codes), count
        if missing.any() and not missing.all():
            yield missing.astype(np.int64), 2


@dataclass(eq=False)
class FullRarity(Ensemble):
    """The model on D and x for every new row x, from the counts of D.

    Attributes
    ----------
    calibration : Calibration
    reference : float array of shape (n, d)
        D.
    n_jobs : int or None
    """

    calibration: Calibration
    reference: FloatArray
    n_jobs: int | None = None

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row by itself; there are no variants."""
        return ranked_in_parts(X, len(self.reference) + 64, partial(self._ranks, strictly=strictly))

    def _ranks(self, X: FloatArray, strictly: bool) -> Ranks:
        at_most, below, scores = np.ones(len(X)), np.ones(len(X)), np.empty(len(X))
        for augmented in self.augmented_scores(X, np.arange(len(X))):
            mine = augmented.own[:, -1:]
            at_most[augmented.rows] = (augmented.own <= mine).sum(axis=1)
            below[augmented.rows] += (augmented.own < mine).sum(axis=1)
            scores[augmented.rows] = mine[:, 0]
        return Ranks(at_most.astype(np.int64), below.astype(np.int64) if strictly else None, scores)

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows in the world of each of some new rows."""
        n, m = len(self.reference), len(X)
        ours, theirs = [], []
        for codes, labels in _coded(np.vstack([self.reference, X])):
            counted = _Counted.of(codes[:n], labels)
            times = np.where(codes >= 0, counted.counts[np.maximum(codes, 0)], 0)
            s = [counted.rows_upto(times + k) for k in range(3)]
            ours.append([codes[:n], times[:n], s[0][:n]])
            theirs.append([codes[n:], times[n:], s[1][n:], s[2][n:]])
        width = 2 * self.reference.shape[1]
        arrays = _by_row(ours, 3, n), _by_row(theirs, 4, m)
        kernel = partial(scores_in_worlds, *arrays, width - len(ours), width)
        return augmented_blocks(kernel, rows, n, m, n_jobs=self.n_jobs)


def _by_row(columns: list[list[IntArray]], facts: int, rows: int) -> Int32Array:
    """What is known of every cell, rows first: (facts, rows, columns)."""
    array = np.array(columns, dtype=np.int32).reshape(len(columns), facts, rows)
    return np.ascontiguousarray(array.transpose(1, 2, 0))


class Rarity(NativeDetector):
    """How rare the rarest value of a row is in its column: for values never seen, and labels.

    A value in a column that never changed, a label that no other row has, a missing value where
    nothing was missing: each is found by this detector, and by few others. Columns in which most
    values are different, such as measurements, have no part in it.

    Parameters
    ----------
    contamination : float, default=0.1
        Share of the training rows that `predict` calls outliers. Has no influence on conformal
        p-values.
    n_jobs : int or None, default=None
        Threads, as in joblib. Inside a `ConformalDetector` its own `n_jobs` counts, if it has one.

    Attributes
    ----------
    offset_ : float
        `score_samples` below it is an outlier.
    n_features_in_ : int
    feature_names_in_ : array of str

    Notes
    -----
    `score_samples` is the number of rows whose value occurs at most as often as that of the row, in
    the column where these are fewest, plus a fraction that breaks ties. NaN is a missing value.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform.detectors import Rarity
    >>> X = np.column_stack([np.arange(50.0), np.zeros(50)])
    >>> Rarity().fit(X).score_samples([[7.0, 0.0], [7.0, 3.0], [np.nan, 0.0]]).astype(int)
    array([51,  1,  1])
    """

    accepts_nan = True
    in_threads = True
    counts_all = True

    def __init__(self, contamination: float = 0.1, *, n_jobs: int | None = None) -> None:
        self.contamination = contamination
        self.n_jobs = n_jobs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _fit_together(
        self, X: FloatArray, plan: Plan, seeds: Sequence[np.random.SeedSequence], verbose: int
    ) -> Ensemble | None:
        if not plan.row.augments:
            return None
        return FullRarity(reference_calibration(self._training_scores(X)), X, self.n_jobs)

    def _fit_rows(self, X: FloatArray, seed: np.random.SeedSequence) -> None:
        self._fitted = RarityModel.of(X)

    def _score_rows(self, X: FloatArray) -> FloatArray:
        return self._fitted.score_samples(X)

    def _training_scores(self, X: FloatArray) -> FloatArray:
        return RarityModel.of(X, more=0).score_samples(X)

    def _carried(self, x: FloatArray, rows: FloatArray) -> Attribution | None:
        found, d = RarityModel.of(rows).rarities(x[None])[0], len(x)
        rarest = np.minimum(found[:d], found[d:])
        return in_shares((rarest == rarest.min()).astype(np.float64), "the rarest value")


def _check_model(model: RarityModel, d: int) -> None:
    starts = model.starts
    whole = len(starts) == d + 1 and starts[0] == 0 and (np.diff(starts) >= 0).all()
    whole = whole and starts[-1] == len(model.values) == len(model.known)
    require(whole and model.unknown.shape == (d,), "a column has no counts")
    require(model.gaps.shape == (d, 2) and model.rows >= 1, "a column has no counts")


def _check_full(ensemble: FullRarity, d: int) -> None:
    check_reference(len(ensemble.reference), ensemble)
    require(ensemble.reference.shape[1] == d, "the reference has the wrong shape")
    require(not np.isinf(ensemble.reference).any(), "a row is not finite")


RARITY_RECORD = DetectorRecord(
    "Rarity",
    {
        "_fitted": Record(
            "RarityModel",
            RarityModel,
            {
                "rows": INT,
                "values": Array("f8", ndim=1),
                "starts": SUMS,
                "known": SUMS,
                "unknown": SUMS,
                "gaps": Array("i8", ndim=2),
            },
            _check_model,
        )
    },
    ensembles=(Record("FullRarity", FullRarity, {"reference": ROWS, "n_jobs": JOBS}, _check_full),),
)
