"""Kernel density: how many other rows are near, weighed by a Gaussian kernel.

A bandwidth by rule is a power of two that is learned from the rows of a model, symmetrically. Its
exponent joins those of the scales (`reconform.detectors.scaling`), so that models with another
bandwidth are found, and fitted apart from the others, like those with another scale.

One model, and one per new row, from sums over the reference.

A row is scored by the logarithm of the density that Gaussian kernels around the rows of the model
add up to. Whether row i of D is at least as anomalous as the new row x, among D and x, is a
comparison of two sums that both contain the kernel of i and x. Without it they are the scores of
i and of x under the model without row i, and so they are compared: next to a near-copy of an
outlier the common kernel would hide all others. Differences that rounding could have made count as
ties, against the new row.

Rows are measured in bandwidths and held feature by feature, in the order of their contents, so that
no sum depends on how they came. The exponent of a pair of rows is -|e - l|^2 / 2. Sums are taken
relative to their largest term, as the terms themselves underflow far from all rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from ...arrays import FloatArray, IndexArray, IntArray, RankArray
from ...compiled import njit
from ...content import sorted_by_content
from ...ensemble import AugmentedScores, Ensemble, augmented_blocks
from ...errors import ReconformError, is_number
from ...methods import Plan
from ...parallel import run_blocks
from ...records import FLOAT, JOBS, ROWS, DetectorRecord, Record, check_reference, require
from ..base import Attribution, ModelDetector, in_shares
from ..one_more import Comparing, ComparingFull, on_grid
from ..scaling import OF_NORMAL, Units, WithExponent, nearest_exponents, spreads, spreads_with

# Numbers of bandwidths beyond it are taken for it, so that no sum of squares overflows.
LARGEST = 2.0**400

# Two log-sums that differ by less than this, or this part of them, are tied.
TIE = 2.0**-30

LEAST_BANDWIDTH, LARGEST_BANDWIDTH = 2.0**-400, 2.0**400

# Terms below exp(-42) of the largest one do not change a sum of less than a million in 12 digits.
SMALLEST = -42.0


@njit(cache=True, nogil=True)
def _exponents_of(x: FloatArray, rows: FloatArray, exponents: FloatArray) -> None:
    """Exponents of the kernels between one row and all others."""
    exponents[:] = 0.0
    for j in range(len(rows)):
        for row in range(len(exponents)):
            gap = rows[j, row] - x[j]
            exponents[row] += gap * gap
    for row in range(len(exponents)):
        exponents[row] *= -0.5


@njit(cache=True, nogil=True)
def _log_sum(exponents: FloatArray, without: Any) -> float:
    """Log of the sum of the exponentials of all but one of the exponents; -1 for all."""
    largest = -np.inf
    for row in range(len(exponents)):
        if row != without and exponents[row] > largest:
            largest = exponents[row]
    total = 0.0
    for row in range(len(exponents)):
        if row != without and exponents[row] - largest > SMALLEST:
            total += np.exp(exponents[row] - largest)
    return float(largest + np.log(total))


@njit(cache=True, nogil=True)
def log_sums(
    X: FloatArray, own: IndexArray, rows: FloatArray, sums: FloatArray, start: int, stop: int
) -> None:
    """Logs of the sums of kernels of rows `start` to `stop`, each without its own row, if any."""
    exponents = np.empty(rows.shape[1])
    for q in range(start, stop):
        _exponents_of(X[q], rows, exponents)
        sums[q] = _log_sum(exponents, own[q])


@njit(cache=True, nogil=True)
def _log_sums_without(
    x: FloatArray,
    rows: FloatArray,
    left_out: IndexArray,
    exponents: FloatArray,
    terms: FloatArray,
    without: FloatArray,
) -> float:
    """Log-sums of one row without each of some rows, and with all of them.

    Taking a term from the sum loses no digits as long as the largest one stays; where that is left
    out, the others are added up again.
    """
    _exponents_of(x, rows, exponents)
    first = 0
    for row in range(len(exponents)):
        if exponents[row] > exponents[first]:
            first = row
    largest = exponents[first]
    total = 0.0
    for row in range(len(exponents)):
        gap = exponents[row] - largest
        terms[row] = np.exp(gap) if gap > SMALLEST else 0.0
        total += terms[row]
    for at in range(len(left_out)):
        if left_out[at] == first:
            without[at] = _log_sum(exponents, first)
        else:
            without[at] = largest + np.log(total - terms[left_out[at]])
    return float(largest + np.log(total))


@njit(cache=True, nogil=True)
def rank_rows(
    X: FloatArray,
    rows: FloatArray,
    left_out: IndexArray,
    c: FloatArray,
    at_most: RankArray,
    below: RankArray,
    sums: FloatArray,
    start: int,
    stop: int,
) -> None:
    """Compare c with the log-sums of new rows `start` to `stop` without the same rows of D.

    Adds to the ranks, and writes the log-sums over all of D.
    """
    n = rows.shape[1]
    exponents, terms, without = np.empty(n), np.empty(n), np.empty(len(left_out))
    for q in range(start, stop):
        sums[q] = _log_sums_without(X[q], rows, left_out, exponents, terms, without)
        for at in range(len(left_out)):
            margin = TIE * max(1.0, abs(without[at]))
            at_most[q] += c[at] <= without[at] + margin
            below[q] += c[at] < without[at] - margin


@njit(cache=True, nogil=True)
def _log_add(log_sum: float, exponent: float) -> float:
    """Log of a sum with one term more."""
    gap = exponent - log_sum
    if gap <= SMALLEST:
        return log_sum
    if gap >= -SMALLEST:
        return exponent
    return float(max(log_sum, exponent) + np.log1p(np.exp(-abs(gap))))


@njit(cache=True, nogil=True)
def augmented_scores(
    X: FloatArray,
    by_feature: FloatArray,
    sums: FloatArray,
    rows: FloatArray,
    c: FloatArray,
    own_constant: float,
    constant: float,
    block: IndexArray,
    own: FloatArray,
    others: FloatArray,
    start: int,
    stop: int,
) -> None:
    """Score D and all new rows with one new row there: ``block[start:stop]``, one after another.

    Log-sums of the new rows are over D, those of D (`c`) each without the row itself. The constants
    make log-sums of n and of n + 1 terms the logarithms of densities. Rows are given twice: one
    after the other, and feature by feature.
    """
    n, m = len(c), len(sums)
    exponents, between = np.empty(n), np.empty(m)
    for at in range(start, stop):
        j = block[at]
        mine = own[at]
        mine[n] = on_grid(sums[j] + own_constant, 1.0)
        _exponents_of(X[j], rows, exponents)
        for i in range(n):
            # A sum with one term more is that of a refit up to rounding, as terms are added in
            # another order. A row that equals the new one has the sum over D, as the new one has.
            if exponents[i] == 0.0:
                mine[i] = mine[n]
            else:
                mine[i] = on_grid(_log_add(c[i], exponents[i]) + own_constant, 1.0)
        _exponents_of(X[j], by_feature, between)
        for other in range(m):
            others[at, other] = on_grid(_log_add(sums[other], between[other]) + constant, 1.0)


def valid_bandwidth(bandwidth: float) -> bool:
    """Whether a number can be a bandwidth.

    Examples
    --------
    >>> valid_bandwidth(0.5), valid_bandwidth(0.0)
    (True, False)
    """
    return LEAST_BANDWIDTH <= bandwidth <= LARGEST_BANDWIDTH


@dataclass(frozen=True, eq=False)
class KDEModel(Comparing):
    """Rows, and the bandwidth of the kernels around them.

    Attributes
    ----------
    rows : float array of shape (n, d)
    bandwidth : float
    n_jobs : int or None
        Threads; never changes a number.

    Examples
    --------
    >>> import numpy as np
    >>> model = KDEModel(np.array([[0.0], [1.0], [3.0]]), bandwidth=1.0)
    >>> np.exp(model.score_samples(np.array([[0.0]]))).round(3)
    array([0.215])
    """

    rows: FloatArray
    bandwidth: float
    n_jobs: int | None = None

    in_threads = True

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows by the logarithm of the density, small = anomalous."""
        return self._log_sums(X, np.full(len(X), -1)) + self.constant()

    def training_scores(self, X: FloatArray) -> FloatArray:
        """Scores of all rows of the model, each without its own kernel."""
        return self.held_out_scores()

    def held_out_scores(self) -> FloatArray:
        """Scores of all rows of the model, each without its own kernel."""
        return self._log_sums(self.rows, self._place) + self.constant(fewer=1)

    def compare(
        self, X: FloatArray, left_out: IndexArray, c: FloatArray
    ) -> tuple[RankArray, RankArray, FloatArray]:
        """Compare new rows with some rows of the model, both with the new row there."""
        queries, rows, places = self._in_bandwidths(X), self._ordered, self._place[left_out]
        at_most, below = np.ones((2, len(X)), dtype=np.int64)
        own, sums = c - self.constant(fewer=1), np.empty(len(X))
        kernel = partial(rank_rows, queries, rows, places, own, at_most, below, sums)
        run_blocks(kernel, len(X), n_jobs=self.n_jobs, work=len(X) * self.rows.size)
        return at_most, below, sums + self.constant()

    def augmented_scores(
        self, X: FloatArray, rows: IndexArray, c: FloatArray
    ) -> Iterator[AugmentedScores]:
        """Score all rows by the models with one new row more, for some new rows."""
        queries, sums = self._in_bandwidths(X), self._log_sums(X, np.full(len(X), -1))
        new = queries, np.ascontiguousarray(queries.T), sums
        own = (c - self.constant(fewer=1))[self._order]
        constants = self.constant(), self.constant(fewer=-1)
        return augmented_blocks(
            partial(augmented_scores, *new, self._ordered, own, *constants),
            rows,
            len(self.rows),
            len(X),
            n_jobs=self.n_jobs,
            work_per_row=self.rows.size,
            order=self._order,
        )

    def constant(self, fewer: int = 0) -> float:
        """What makes a log-sum the logarithm of a density, over so many rows less."""
        n, d = self.rows.shape
        width = math.log(self.bandwidth) + 0.5 * math.log(2.0 * math.pi)
        return -math.log(n - fewer) - float(d) * width

    @cached_property
    def _order(self) -> IndexArray:
        return sorted_by_content(self.rows)[1]

    @cached_property
    def _place(self) -> IndexArray:
        """Where each row stands in the order of contents."""
        place = np.empty(len(self.rows), dtype=np.intp)
        place[self._order] = np.arange(len(self.rows))
        return place

    @cached_property
    def _ordered(self) -> FloatArray:
        """The rows in bandwidths, by content, feature by feature."""
        return np.ascontiguousarray(self._in_bandwidths(self.rows[self._order]).T)

    def _in_bandwidths(self, X: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(np.clip(X / self.bandwidth, -LARGEST, LARGEST))

    def _log_sums(self, X: FloatArray, own: IndexArray) -> FloatArray:
        queries, sums = self._in_bandwidths(X), np.empty(len(X))
        kernel = partial(log_sums, queries, own, self._ordered, sums)
        run_blocks(kernel, len(X), n_jobs=self.n_jobs, work=len(X) * self.rows.size)
        return sums


class FullKDE(ComparingFull):
    """A model on D and x for every new row x, by one term more in every sum.

    Examples
    --------
    >>> import numpy as np
    >>> full = FullKDE.fit(KDEModel(np.array([[0.0], [1.0], [3.0]]), bandwidth=1.0))
    >>> full.ranks(np.array([[0.5], [9.0]])).at_most
    array([4, 1])
    """


def bandwidth_exponents(spread: FloatArray, n: int) -> IntArray:
    """Choose bandwidths that are powers of two, by Silverman's rule for n rows.

    Features without any spread do not count.

    Parameters
    ----------
    spread : float array of shape (..., d)
        Spreads of the features, such as `scaling.spreads_with` gives for every new row.
    n : int
        Rows that the spreads are of.

    Returns
    -------
    int array of shape (...)
        The bandwidth is 2 to this power.

    Examples
    --------
    >>> import numpy as np
    >>> bandwidth_exponents(np.array([[1.3, 1.4], [13.0, 14.0], [0.0, 1.4], [0.0, 0.0]]), 1000)
    array([-2,  2, -2,  0])
    """
    largest = spread.max(axis=-1)
    # Relative to the largest, as squares might overflow.
    relative = spread / np.where(largest > 0, largest, 1.0)[..., None]
    # In order: NumPy's own sum depends on the shape, a running one does not.
    total = np.cumsum(relative**2, axis=-1)[..., -1]
    d = np.maximum((relative > 0).sum(axis=-1), 1.0)
    factor = (4.0 / ((d + 2.0) * n)) ** (1.0 / (d + 4.0)) / OF_NORMAL
    return nearest_exponents(factor * largest * np.sqrt(total / d)).astype(np.int64)


class KernelUnits(WithExponent):
    """The exponents of the scales, and that of the bandwidth.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform.detectors.kde import KDE
    >>> units = KernelUnits(KDE(scale="robust"))
    >>> X = np.array([[0.0, 50.0], [1.0, 10.0], [2.0, 30.0], [3.0, 90.0]])
    >>> units.of(X)
    array([ 0,  4, -1])
    >>> units.plain(units.of(X))
    KDE(bandwidth=0.5)
    """

    parameter = "bandwidth"

    def exponent(self, X: FloatArray) -> int:
        """By the spreads of measured rows."""
        return int(bandwidth_exponents(spreads(X), len(X)))

    def exponents_with(self, X: FloatArray, new: FloatArray) -> IntArray:
        """By the spreads with one new row."""
        return bandwidth_exponents(spreads_with(X, new), len(X) + 1)


class KDE(ModelDetector):
    """Density of Gaussian kernels around the rows, with one model per new row from the same sums.

    Parameters
    ----------
    bandwidth : float or "auto", default="auto"
        Standard deviation of the kernels, in the units of the rescaled features, or of the
        features themselves with ``scale="none"``. By default a power of two near to Silverman's
        rule for the rows of a model.
    scale : {"none", "robust", "direction"}, default="none"
        Take features as they are; or divide every feature by a power of two near to its spread
        among the rows of a model (the distance of the quartiles). With ``"direction"`` every row
        is divided by its length, too.
    contamination : float, default=0.1
        Share of the training rows that `predict` calls outliers. Has no influence on conformal
        p-values.
    n_jobs : int or None, default=None
        Threads, as in joblib. Inside a `ConformalDetector` its own `n_jobs` counts, if it has one.

    Attributes
    ----------
    offset_ : float
        `score_samples` below it is an outlier; set so that a share `contamination` of the
        training rows is.
    n_features_in_ : int
    feature_names_in_ : array of str

    See Also
    --------
    reconform.ConformalDetector

    Notes
    -----
    `score_samples` is the logarithm of the density (in rescaled units, with ``scale="robust"``):
    small = anomalous. Nothing is random. Every pair of rows is looked at, so time grows with the
    square of the number of rows.

    Scores that differ by less than a part in 10^9 are tied in full-conformal ranks, so that
    rounding cannot break a tie in favour of a new row.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform.detectors.kde import KDE
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> KDE().fit(X).predict([[0.0, 0.0], [6.0, 6.0]])
    array([ 1, -1])
    """

    def __init__(
        self,
        bandwidth: float | str = "auto",
        scale: str = "none",
        *,
        contamination: float = 0.1,
        n_jobs: int | None = None,
    ) -> None:
        self.bandwidth = bandwidth
        self.scale = scale
        self.contamination = contamination
        self.n_jobs = n_jobs

    in_threads = True

    def _units(self) -> Units | None:
        return KernelUnits(self) if self._checked_bandwidth() is None else super()._units()

    def _fit_together(
        self, X: FloatArray, plan: Plan, seeds: Sequence[np.random.SeedSequence], verbose: int
    ) -> Ensemble | None:
        if plan.row.augments:
            return FullKDE.fit(self._model(X))
        return None  # there is nothing to fit

    def _offset_scores(self, X: FloatArray) -> FloatArray:
        return self._score_rows(X)  # as `predict` will score them

    def _carried(self, x: FloatArray, rows: FloatArray) -> Attribution | None:
        """By the distances to reference rows, each with its weight in the density."""
        bandwidth = self._checked_bandwidth()
        assert bandwidth is not None  # units state it
        with np.errstate(over="ignore"):
            squares = (((rows - x) / bandwidth) ** 2).sum(axis=1)
        if not np.isfinite(squares.min()):
            return None
        weights = np.exp((squares.min() - squares) / 2)
        parts = weights @ (rows - x) ** 2
        return in_shares(
            parts, "the squared distances to reference rows, weighted as in the density"
        )

    def _model(self, X: FloatArray) -> KDEModel:
        bandwidth = self._checked_bandwidth()
        if bandwidth is None:
            bandwidth = 2.0 ** int(self.units_[-1])  # of a model that stands by itself
        return KDEModel(X, bandwidth, self.n_jobs)

    def _checked_bandwidth(self) -> float | None:
        """Return the bandwidth, None where the rows are to say it; refuse what is neither."""
        given = self.bandwidth
        if isinstance(given, str) and given == "auto":
            return None
        if not is_number(given) or not valid_bandwidth(float(given)):
            raise ReconformError(
                f"`bandwidth` must be 'auto' or a number between {LEAST_BANDWIDTH:.1g} and "
                f"{LARGEST_BANDWIDTH:.1g}; got {given!r}."
            )
        return float(given)


def _check_model(model: KDEModel, d: int) -> None:
    n, columns = model.rows.shape
    require(n >= 1 and columns == d, "rows have the wrong shape")
    require(np.isfinite(model.rows).all(), "a row is not finite")
    require(valid_bandwidth(model.bandwidth), f"the bandwidth is {model.bandwidth}")


MODEL = Record(
    "KDEModel", KDEModel, {"rows": ROWS, "bandwidth": FLOAT, "n_jobs": JOBS}, _check_model
)


def _check_full(ensemble: FullKDE, d: int) -> None:
    check_reference(len(ensemble.reference.rows), ensemble)
    require(len(ensemble.reference.rows) >= 2, "the reference has the wrong shape")


KDE_RECORD = DetectorRecord(
    "KDE",
    {"_fitted": MODEL},
    models=(MODEL,),
    ensembles=(Record("FullKDE", FullKDE, {"reference": MODEL}, _check_full),),
)
