"""Rows with missing numbers and categories, for detectors that scale: nothing forces refits.

What has to be learned from the rows of a model are a few integers per column of numbers: the
exponent of its scale, its median in quarters of the scale, and whether it has missing values. They
are units (`units`): functions of the multiset of rows that one row more or less seldom changes.

Nothing is learned for a category. One column of zeros and ones per label puts any two different
labels at the same distance, whichever labels there are: so it does not matter that the list of
labels was taken from the reference, nor which of the rows of D and x brought a label along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from sklearn.base import clone
from sklearn.utils import Tags

from ..arrays import BoolArray, FloatArray, IndexArray, IntArray
from ..errors import ReconformError
from ..records import require, within
from .base import NativeDetector
from .scaling import (
    LARGEST_EXPONENT,
    rescale,
    scale_exponents,
    smallest_with,
    smallest_without,
    spreads,
    spreads_with,
    spreads_without,
)
from .units import Units

# A missing number becomes the median, rounded to a multiple of the scale divided by this.
STEPS = 4
# The columns that a category has besides those of its labels: missing, and two for labels that
# are not listed, one of which the rows of the model may have.
MORE_COLUMNS = 3
# Cells of the columns that labels become: half a gigabyte.
MOST_ENCODED = 1 << 26


# What the part of a pipeline is called that encodes labels.
CATEGORIES = "categories"


class Prepared(NativeDetector):
    """A detector that measures distances, for numbers, missing numbers and categories.

    Numbers are divided by a power of two near to their spread; a missing one becomes the median,
    in quarters of that scale, and columns with missing values among the rows of a model get a
    column that says where they were. A category becomes a column of zeros and ones per label; a
    missing one is a label like others, and so is one that is not listed.

    Parameters
    ----------
    detector : NativeDetector
        One with a parameter `scale`.
    labels : sequence of int
        For every column the number of its labels, whose codes are 0, 1, ...; 0 for a column of
        numbers. Negative codes are labels that are not listed, NaN is missing.
    contamination : float, default=0.1
        Share of the training rows that `predict` calls outliers.

    Attributes
    ----------
    fitted_ : NativeDetector
        The plain detector, fitted on the rows as they are measured.
    units_ : int array

    Examples
    --------
    >>> import numpy as np
    >>> from reconform.detectors.knn import KNN
    >>> X = np.array([[0.0, 0], [1.0, 0], [np.nan, 1], [3.0, 1], [4.0, np.nan]])
    >>> detector = Prepared(KNN(n_neighbors=1), labels=(0, 2)).fit(X)
    >>> detector.score_samples([[1.0, 0], [1.0, 1], [np.nan, 1], [9.0, -1]])
    array([-0.        , -1.        , -0.        , -2.87228132])
    """

    accepts_nan = True

    def __init__(
        self, detector: NativeDetector, labels: Sequence[int], contamination: float = 0.1
    ) -> None:
        self.detector = detector
        self.labels = labels
        self.contamination = contamination

    @property
    def name(self) -> str:
        """What to call it in messages: the detector."""
        return self.detector.name

    @property
    def in_threads(self) -> bool:  # type: ignore[override]
        """As the detector says."""
        return self.detector.in_threads

    @property
    def uses_batch(self) -> bool:  # type: ignore[override]
        """As the detector says."""
        return self.detector.uses_batch

    @property
    def random_state(self) -> object:
        """That of the detector."""
        return getattr(self.detector, "random_state", None)

    @property
    def n_jobs(self) -> int | None:
        """That of the detector."""
        return getattr(self.detector, "n_jobs", None)

    @n_jobs.setter
    def n_jobs(self, n_jobs: int | None) -> None:
        if hasattr(self.detector, "n_jobs"):
            self.detector.set_params(n_jobs=n_jobs)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _units(self) -> Units:
        return PreparedUnits(self)

    def _among(self, n: int, m: int) -> Prepared:
        return Prepared(self.detector._among(n, m), self.labels, self.contamination)

    def _fit_rows(self, X: FloatArray, seed: np.random.SeedSequence) -> None:
        self.fitted_ = self._units().plain(self.units_)
        self.fitted_.n_features_in_ = X.shape[1]
        self.fitted_._fit_rows(X, seed)

    def _score_rows(self, X: FloatArray) -> FloatArray:
        return self.fitted_._score_rows(X)

    def _training_scores(self, X: FloatArray) -> FloatArray:
        return self.fitted_._training_scores(X)


def category_columns(detector: object) -> tuple[int, ...]:
    """Positions of the columns that hold codes of labels.

    Parameters
    ----------
    detector : object
        As `ConformalDetector` takes it; of a `Prepared`, and of a pipeline that
        `reconform.detectors.prepare.make_prepared` made, it is known.

    Returns
    -------
    tuple of int

    Examples
    --------
    >>> from reconform.detectors.knn import KNN
    >>> category_columns(Prepared(KNN(), labels=(0, 3, 0, 2))), category_columns("knn")
    ((1, 3), ())
    """
    if isinstance(detector, Prepared):
        return tuple(j for j, count in enumerate(detector.labels) if count)
    return tuple(
        j
        for _, step in getattr(detector, "steps", ())
        for part, _, columns in getattr(step, "transformers", ())
        if part == CATEGORIES and isinstance(columns, list)
        for j in columns
        if isinstance(j, int)  # others have parts of this name, too, with names of columns
    )


class PreparedUnits(Units):
    """Exponents of scales, medians and whether values are missing; a label that is not listed.

    Units are four blocks: the first three have an integer for every column of numbers, the last
    one for every category: the smallest code among the rows that is not listed, or 0.
    """

    detector: Prepared

    def __init__(self, detector: Prepared) -> None:
        super().__init__(detector)
        counts = np.array(detector.labels, dtype=np.int64)
        if counts.ndim != 1 or (counts < 0).any():
            raise ReconformError(
                f"labels must be a number of labels for every column; got {detector.labels!r}."
            )
        if not hasattr(detector.detector, "scale"):
            raise ReconformError(
                f"detector must be one that has a parameter scale; got {detector.detector!r}."
            )
        self.counts = counts
        self.numbers: IndexArray = np.flatnonzero(counts == 0)
        self.categories: IndexArray = np.flatnonzero(counts > 0)

    def of(self, X: FloatArray) -> IntArray:
        """Units of all rows together."""
        self._check_rows(X)
        units = self._units(
            1, lambda j: self._block(_of_column(X[:, j])), lambda j: _least_unlisted(X[:, j])
        )
        return units.ravel()

    def with_each(self, X: FloatArray, new: FloatArray) -> IntArray:
        """Units of D and one new row."""

        def numbers(j: int) -> IntArray:
            values, x = _present(X[:, j]), new[:, j]
            missing = np.isnan(x)
            spread, median = (np.repeat(part, len(x)) for part in _of_column(X[:, j])[:2])
            spread[~missing] = spreads_with(values[:, None], x[~missing, None])[:, 0]
            median[~missing] = _median_with(values, x[~missing])
            return self._block((spread, median, missing | (len(values) < len(X))))

        def categories(j: int) -> IntArray:
            least = _least_unlisted(X[:, j])
            if not least:  # the only row with such a label has the column for it in any case
                return np.zeros(len(new), dtype=np.int64)
            return np.minimum(least, np.nan_to_num(new[:, j]).astype(np.int64))

        return self._units(len(new), numbers, categories)

    def without_each(self, X: FloatArray) -> IntArray:
        """Units of D without one row."""

        def numbers(j: int) -> IntArray:
            values, missing = _present(X[:, j]), np.isnan(X[:, j])
            spread, median = (np.repeat(part, len(X)) for part in _of_column(X[:, j])[:2])
            spread[~missing] = spreads_without(values[:, None])[:, 0]
            median[~missing] = _median_without(values)
            left = missing.sum() - missing
            return self._block((spread, median, left > 0))

        def categories(j: int) -> IntArray:
            ordered = np.sort(np.append(_present(X[:, j]), [0.0, 0.0]))
            first, second = ordered[:2].astype(np.int64)
            return np.asarray(np.where(X[:, j] == first, second, first))

        return self._units(len(X), numbers, categories)

    def measure(self, X: FloatArray, units: IntArray) -> FloatArray:
        """Impute, divide and encode."""
        exponents, medians, has_missing, unlisted = self._blocks(units)
        if len(X) * int(self.counts.sum()) > MOST_ENCODED:
            raise ReconformError(
                f"{len(X):,} rows with {self.counts.sum():,} labels are too many at once; judge "
                "fewer rows at a time, or leave out columns with very many labels."
            )
        numbers = rescale(X[:, self.numbers], exponents.astype(np.int32))
        missing = np.isnan(numbers)
        numbers = np.where(missing, medians / STEPS, numbers)
        parts = [numbers, missing[:, has_missing > 0].astype(np.float64)]
        for j, least in zip(self.categories, unlisted, strict=True):
            parts.append(_encoded(X[:, j], int(self.counts[j]), int(least)))
        return np.hstack(parts)

    def columns(self, units: IntArray, d: int) -> IndexArray:
        """Numbers, where they are missing, and the labels of every category."""
        has_missing = self._blocks(units)[2] > 0
        encoded = np.repeat(self.categories, self.counts[self.categories] + MORE_COLUMNS)
        return np.concatenate([self.numbers, self.numbers[has_missing], encoded])

    def plain(self, units: IntArray) -> NativeDetector:
        """Return the detector without scaling."""
        plain: NativeDetector = clone(self.detector.detector).set_params(scale="none")
        return plain

    def together(
        self, reference: FloatArray, X: FloatArray
    ) -> tuple[NativeDetector, FloatArray, FloatArray]:
        """List the labels of the batch, too: two new rows may have the same one, or not."""
        counts, both = self.counts.copy(), np.vstack([reference, X])
        for j in self.categories:
            unlisted = np.unique(both[both[:, j] < 0, j])
            if len(unlisted) > 1:  # a single one has a column of its own already
                where = both[:, j] < 0
                both[where, j] = counts[j] + np.searchsorted(unlisted, both[where, j])
                counts[j] += len(unlisted)
        if np.array_equal(counts, self.counts):
            return self.detector, reference, X
        n, inner = len(reference), self.detector.detector
        finer = Prepared(inner, tuple(counts.tolist()), self.detector.contamination)
        return finer, both[:n], both[n:]

    def check(self, units: IntArray, d: int) -> int:
        """Count the columns that these rows become."""
        require(d == len(self.counts), "a column has no number of labels")
        require(len(units) == 3 * len(self.numbers) + len(self.categories), "a unit is missing")
        exponents, medians, has_missing, unlisted = self._blocks(units)
        right = within(exponents, -LARGEST_EXPONENT, LARGEST_EXPONENT + 1)
        require(right and within(medians, -MOST, MOST + 1), "a scale is not one")
        require(within(has_missing, 0, 2) and within(unlisted, -MOST, 1), "a unit is not one")
        encoded = int((self.counts[self.categories] + MORE_COLUMNS).sum())
        return len(self.numbers) + int(has_missing.sum()) + encoded

    def _check_rows(self, X: FloatArray) -> None:
        """Refuse training rows with other columns, or other codes than there should be."""
        if X.shape[1] != len(self.counts):
            raise ReconformError(
                f"labels must have a number for every column: there are {X.shape[1]} columns, and "
                f"it has {len(self.counts)}."
            )
        for j in self.categories:
            codes, count = _present(X[:, j]), self.counts[j]
            wrong = (codes >= count) | (codes < -MOST) | (codes != np.floor(codes))
            if wrong.any():
                raise ReconformError(
                    f"column {j} holds {codes[wrong][0]:g}, and its {count} labels have the codes "
                    f"0 to {count - 1}; labels that are not listed have negative integers."
                )

    def _blocks(self, units: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        k = len(self.numbers)
        return units[:k], units[k : 2 * k], units[2 * k : 3 * k], units[3 * k :]

    def _units(
        self, rows: int, numbers: Callable[[int], IntArray], categories: Callable[[int], IntArray]
    ) -> IntArray:
        """Units of several multisets, (rows, k), column by column."""
        k = len(self.numbers)
        units = np.empty((rows, 3 * k + len(self.categories)), dtype=np.int64)
        for at, j in enumerate(self.numbers):
            units[:, at], units[:, k + at], units[:, 2 * k + at] = numbers(int(j))
        for at, j in enumerate(self.categories):
            units[:, 3 * k + at] = categories(int(j))
        return units

    @staticmethod
    def _block(column: tuple[FloatArray, FloatArray, BoolArray]) -> IntArray:
        """Exponents, medians in quarters of the scale, and flags, (3, rows), from a column."""
        spread, median, has_missing = column
        exponents = scale_exponents(spread)
        steps = np.round(rescale(median, exponents) * STEPS)
        return np.stack(
            [exponents.astype(np.int64), np.clip(steps, -MOST, MOST).astype(np.int64), has_missing]
        )


# Medians in quarters of the scale, and codes of labels, stay within what floats count exactly.
MOST = 1 << 53


def _present(values: FloatArray) -> FloatArray:
    return values[~np.isnan(values)]


def _of_column(column: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Spread and lower median of what is there, and whether something is not; (1,) each."""
    values = np.sort(_present(column))
    median = values[(len(values) - 1) // 2] if len(values) else 0.0
    missing = len(values) < len(column)
    return spreads(values[:, None]), np.array([median]), np.array([missing])


def _median_with(values: FloatArray, x: FloatArray) -> FloatArray:
    """Lower median of values and one more, for each of these."""
    return smallest_with(values, x)(len(values) // 2)


def _median_without(values: FloatArray) -> FloatArray:
    """Lower median of values without one, for each of them; 0 if nothing is left."""
    if len(values) < 2:
        return np.zeros(len(values))
    return smallest_without(values)((len(values) - 2) // 2)


def _least_unlisted(codes: FloatArray) -> IntArray:
    """The smallest code of a label that is not listed, or 0."""
    return np.array(_present(codes).min(initial=0.0)).astype(np.int64)


def _encoded(codes: FloatArray, count: int, least: int) -> FloatArray:
    """Zeros and ones: a column per label, for missing ones, and two for labels not listed.

    The first of these is for the code that the rows of the model have, the other for all others;
    if the model has none, the first is for all of them.

    Examples
    --------
    >>> import numpy as np
    >>> _encoded(np.array([1.0, np.nan, -7.0, -8.0]), 2, -7)
    array([[0., 1., 0., 0., 0.],
           [0., 0., 1., 0., 0.],
           [0., 0., 0., 1., 0.],
           [0., 0., 0., 0., 1.]])
    """
    missing = np.isnan(codes)
    unlisted = ~missing & ((codes < 0) | (codes >= count) | (codes != np.floor(codes)))
    place = np.where(missing, count, np.where(unlisted, count + 1, codes))
    place[unlisted & (codes != least) & (least < 0)] = count + 2
    encoded = np.zeros((len(codes), count + MORE_COLUMNS))
    encoded[np.arange(len(codes)), place.astype(np.intp)] = 1.0
    return encoded
