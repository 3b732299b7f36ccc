"""Rows with missing numbers and categories, for detectors that scale: nothing forces refits.

What has to be learned from the rows of a model are a few integers per column of numbers: the
exponent of its scale, its median in quarters of the scale, and whether it has missing values. They
are units (`units`): functions of the multiset of rows that one row more or less seldom changes.

Next to nothing is learned for a category. One column of zeros and ones per label puts any two
different labels at the same distance, whichever labels there are: so it does not matter that the
list of labels was taken from the reference, nor which of the rows of D and x brought a label along.
To a detector that draws by what the columns hold it would matter: its models have the columns of
the labels that their own rows have, in the order of their codes, which are hashes of the labels.
Of a category with very many labels, only the commonest among the rows of a model have columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from sklearn.base import clone
from sklearn.utils import Tags

from ..arrays import BoolArray, FloatArray, IndexArray, IntArray
from ..content import sorted_by_content
from ..errors import ReconformError
from ..records import require, within
from .base import NativeDetector
from .scaling import (
    LARGEST_EXPONENT,
    Units,
    rescale,
    scale_exponents,
    smallest_with,
    smallest_without,
    spreads,
    spreads_with,
    spreads_without,
)

# A missing number becomes the median, rounded to a multiple of the scale divided by this.
STEPS = 4
# Missing numbers are estimated by numbers within so many scales of the median, in so many passes;
# by correlations that are shrunk a little, of not too many columns.
WIDE, PASSES, RIDGE, MOST_REGRESSED, MOST_AT_ONCE = 4.0, 2, 0.02, 256, 1 << 22
# For every column the codes of its labels, or their number if the codes are 0, 1, ...
Labels = Sequence[int | tuple[float, ...]]


def label_counts(labels: Labels) -> list[int]:
    """How many labels every column has."""
    return [len(of) if isinstance(of, tuple) else of for of in labels]


# The columns that a category has besides those of its labels: missing, and for all other labels.
MORE_COLUMNS = 2
# Cells of the columns that labels become: half a gigabyte.
MOST_ENCODED = 1 << 26
# Labels of a category that have columns of their own, and columns that all categories share.
MOST_OWN, MOST_SHARED = 64, 256


def own_columns(categories: int) -> int:
    """How many labels of each of so many categories have columns of their own.

    Examples
    --------
    >>> own_columns(3), own_columns(18)
    (64, 14)
    """
    return min(MOST_OWN, max(4, MOST_SHARED // max(1, categories)))


# What the part of a pipeline is called that encodes labels.
CATEGORIES = "categories"


class Prepared(NativeDetector):
    """A detector that knows only numbers, for numbers, missing numbers and categories.

    Numbers are divided by a power of two near to their spread; a missing one becomes the median,
    in quarters of that scale, and columns with missing values among the rows of a model get a
    column that says where they were. A category becomes a column of zeros and ones per label; a
    missing one is a label like others, and so is one that is not listed, or not among the 64
    commonest.

    Parameters
    ----------
    detector : NativeDetector
    labels : sequence of int or tuple
        For every column the codes of its labels, or their number if the codes are 0, 1, ...; 0
        for a column of numbers. Other codes are labels that are not listed, NaN is missing.
    contamination : float, default=0.1
        Share of the training rows that `predict` calls outliers.
    scaled : bool, default=True
        Whether numbers are divided by their scales.

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
        self,
        detector: NativeDetector,
        labels: Sequence[int | tuple[float, ...]],
        contamination: float = 0.1,
        *,
        scaled: bool = True,
    ) -> None:
        self.detector = detector
        self.labels = labels
        self.contamination = contamination
        self.scaled = scaled

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
        return self._with(self.detector._among(n, m), self.labels)

    def _with(self, detector: NativeDetector, labels: Labels) -> Prepared:
        """The same with another detector, or for other labels."""
        return Prepared(detector, labels, self.contamination, scaled=self.scaled)

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
        As `ConformalDetector` takes it; of a `Prepared`, of an `Auto`, and of a pipeline that
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
    labels = getattr(detector, "labels", None)
    if labels is not None:
        return tuple(j for j, count in enumerate(labels) if count)
    return tuple(
        j
        for _, step in getattr(detector, "steps", ())
        for part, _, columns in getattr(step, "transformers", ())
        if part == CATEGORIES and isinstance(columns, list)
        for j in columns
        if isinstance(j, int)  # others have parts of this name, too, with names of columns
    )


class PreparedUnits(Units):
    """Exponents of scales, medians and whether values are missing; labels of the rows.

    Units are blocks: three have an integer for every column of numbers, one has an integer for
    every category, the smallest code among the rows that is not listed, or 0. Of a detector that
    draws, and of a category with very many labels, the last one has a bit for every listed label
    that has no column.
    """

    detector: Prepared

    def __init__(self, detector: Prepared) -> None:
        super().__init__(detector)
        try:
            codes = [
                np.array(sorted(of) if isinstance(of, tuple) else range(of), dtype=np.float64)
                for of in detector.labels
            ]
            right = all(isinstance(of, tuple) or of >= 0 for of in detector.labels)
        except TypeError:
            right = False
        if not right:
            raise ReconformError(
                "labels must be the codes of the labels, or their number, for every column; got "
                f"{detector.labels!r}."
            )
        self.codes = codes
        self.numbers: IndexArray = np.flatnonzero([not len(of) for of in codes])
        self.categories: IndexArray = np.flatnonzero([len(of) > 0 for of in codes])
        self.draws = hasattr(detector.detector, "random_state")
        # Integers that the absent labels of each category take, where these are written down.
        self.sizes = [
            -(-len(codes[j]) // 64) * (self.draws or self._is_wide(int(j))) for j in self.categories
        ]

    def _is_wide(self, j: int) -> bool:
        """Whether only the commonest labels of a column have columns of their own."""
        return len(self.codes[j]) > own_columns(len(self.categories))

    def _uncommon(self, counts: IntArray) -> BoolArray:
        """Mark labels that occur nowhere, or are not among the commonest."""
        uncommon, most = np.ones(len(counts), dtype=np.bool_), own_columns(len(self.categories))
        uncommon[np.argsort(-counts, kind="stable")[:most]] = False
        return np.asarray(uncommon | (counts == 0))

    def of(self, X: FloatArray) -> IntArray:
        """Units of all rows together."""
        self._check_rows(X)
        units = self._units(
            1, lambda j: self._block(_of_column(X[:, j])), lambda j: self._labels_of(X, j)
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
            if self._is_wide(j):
                return self._wide(j, X[:, j], new[:, j], 1)
            own, x = self._labels_of(X, j), new[:, j]
            units, joins = np.repeat(own, len(new), axis=0), self._unlisted(x, j)
            # The only row with such a label has a column of its own in any case.
            if self.draws or own[0, 0]:
                units[joins, 0] = np.minimum(own[0, 0] or MOST, x[joins])
            if self.draws:
                absent = self.codes[j] != x[:, None]
                absent &= ~np.isin(self.codes[j], X[:, j])
                units[:, 1:] = _bits(absent)
            return units

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
            if self._is_wide(j):
                return self._wide(j, X[:, j], X[:, j], -1)
            units, codes = np.repeat(self._labels_of(X, j), len(X), axis=0), X[:, j]
            first, second = [*np.sort(codes[self._unlisted(codes, j)])[:2], 0, 0][:2]
            units[:, 0] = np.where(codes == first, second, first)
            if self.draws:
                here = codes[:, None] == self.codes[j]
                units[:, 1:] = _bits(here.sum(axis=0) - here == 0)
            return units

        return self._units(len(X), numbers, categories)

    def measure(self, X: FloatArray, units: IntArray) -> FloatArray:
        """Impute, divide and encode."""
        exponents, medians, has_missing, _ = self._blocks(units)
        labels = sum(map(len, self._columns_of(units)))
        if len(X) * labels > MOST_ENCODED:
            raise ReconformError(
                f"{len(X):,} rows with {labels:,} labels are too many at once; judge "
                "fewer rows at a time, or leave out columns with very many labels."
            )
        numbers = rescale(X[:, self.numbers], exponents.astype(np.int32))
        missing = np.isnan(numbers)
        numbers = np.where(missing, medians / STEPS, numbers)
        if not self.detector.scaled:
            numbers = rescale(numbers, -exponents.astype(np.int32))
        parts = [numbers, missing[:, has_missing > 0].astype(np.float64)]
        for j, codes in zip(self.categories, self._columns_of(units), strict=True):
            parts.append(_encoded(X[:, j], codes))
        return np.hstack(parts)

    def columns(self, units: IntArray, d: int) -> IndexArray:
        """Numbers, where they are missing, and the labels of every category."""
        has_missing = self._blocks(units)[2] > 0
        counts = [len(codes) + MORE_COLUMNS for codes in self._columns_of(units)]
        encoded = np.repeat(self.categories, counts)
        return np.concatenate([self.numbers, self.numbers[has_missing], encoded])

    def plain(self, units: IntArray) -> NativeDetector:
        """Return the detector without scaling."""
        plain: NativeDetector = clone(self.detector.detector)
        robust = getattr(plain, "scale", "none") == "robust"
        return plain.set_params(scale="none") if robust else plain

    def together(
        self, reference: FloatArray, X: FloatArray
    ) -> tuple[NativeDetector, FloatArray, FloatArray]:
        """List the labels of the batch, too: two new rows may have the same one, or not."""
        labels, both = list(self.detector.labels), np.vstack([reference, X])
        for j in self.categories:
            unlisted = np.unique(both[self._unlisted(both[:, j], j), j])
            if len(unlisted) > 1:  # a single one has a column of its own already
                labels[j] = (*self.codes[j].tolist(), *unlisted.tolist())
        if labels == list(self.detector.labels):
            return self.detector, reference, X
        return self.detector._with(self.detector.detector, tuple(labels)), reference, X

    def filled(self, pool: FloatArray) -> FloatArray:
        """Estimate missing numbers by the other columns of their rows, for all but trees.

        The median in place of a number that others tell would make its row an outlier. The
        regressions are linear, and learned from the pool in the order of its contents.
        """
        from .registry import entry_of  # which imports this module

        entry, missing = entry_of(self.detector.detector), np.isnan(pool[:, self.numbers])
        if not missing.any() or not (entry is None or entry.scale_matters):
            return pool
        rows, order = sorted_by_content(pool)
        units = self.of(rows)
        exponents, medians, *_ = self._blocks(units)
        scaled = rescale(rows[:, self.numbers], exponents.astype(np.int32)) - medians / STEPS
        encoded = [
            _encoded(rows[:, j], codes)
            for j, codes in zip(self.categories, self._columns_of(units), strict=True)
        ]
        seen = np.hstack(
            [np.clip(scaled, -WIDE, WIDE), *(one - one.mean(axis=0) for one in encoded)]
        )
        if seen.shape[1] > MOST_REGRESSED:
            return pool
        seen = _regressed(seen.tobytes(), seen.shape[1])
        estimated = seen[:, : len(self.numbers)] + medians / STEPS
        filled = pool.copy()
        numbers = np.empty_like(estimated)
        numbers[order] = rescale(estimated, -exponents.astype(np.int32))
        filled[:, self.numbers] = np.where(missing, numbers, pool[:, self.numbers])
        return filled

    def check(self, units: IntArray, d: int) -> int:
        """Count the columns that these rows become."""
        require(d == len(self.codes), "a column has no number of labels")
        size = 3 * len(self.numbers) + len(self.categories) + sum(self.sizes)
        require(len(units) == size, "a unit is missing")
        exponents, medians, has_missing, unlisted = self._blocks(units)
        right = within(exponents, -LARGEST_EXPONENT, LARGEST_EXPONENT + 1)
        require(right and within(medians, -MOST, MOST + 1), "a scale is not one")
        right = within(unlisted[: len(self.categories)], -MOST, MOST + 1)
        require(within(has_missing, 0, 2) and right, "a unit is not one")
        return len(self.columns(units, d))

    def _check_rows(self, X: FloatArray) -> None:
        """Refuse training rows with other columns, or other codes than there should be."""
        if X.shape[1] != len(self.codes):
            raise ReconformError(
                f"labels must have an entry for every column: there are {X.shape[1]} columns, and "
                f"it has {len(self.codes)}."
            )
        for j in self.categories:
            codes = _present(X[:, j])
            wrong = (np.abs(codes) > MOST) | (codes != np.floor(codes))
            if wrong.any():
                raise ReconformError(
                    f"column {j} holds {codes[wrong][0]:g}, and codes of labels are integers."
                )

    def _unlisted(self, codes: FloatArray, j: int) -> BoolArray:
        return ~np.isnan(codes) & ~np.isin(codes, self.codes[j])

    def _labels_of(self, X: FloatArray, j: int) -> IntArray:
        """Units of a category, all rows together: (1, 1 + integers for absent labels)."""
        codes = X[:, j]
        if self._is_wide(j):
            return self._wide(j, codes, codes[:1], 0)
        least = [min(codes[self._unlisted(codes, j)], default=0.0)]
        if not self.draws:
            return np.array([least]).astype(np.int64)
        absent = _bits(~np.isin(self.codes[j], codes)[None])
        return np.hstack([np.array([least]).astype(np.int64), absent])

    def _wide(self, j: int, codes: FloatArray, new: FloatArray, more: int) -> IntArray:
        """Units of a category with very many labels: for each new row, added or taken away."""
        listed = self.codes[j]
        counts = np.zeros(len(listed), dtype=np.int64)
        there = codes[np.isin(codes, listed)]
        np.add.at(counts, np.searchsorted(listed, there), 1)
        units = np.zeros((len(new), 1 + -(-len(listed) // 64)), dtype=np.int64)
        units[:, 1:] = _bits(self._uncommon(counts)[None])
        for label in np.unique(new[np.isin(new, listed)]) if more else ():
            own = counts.copy()
            own[np.searchsorted(listed, label)] += more
            units[new == label, 1:] = _bits(self._uncommon(own)[None])
        return units

    def _columns_of(self, units: IntArray) -> list[FloatArray]:
        """Codes of the labels that have a column of their own, for every category."""
        rest = self._blocks(units)[3]
        unlisted, masks = rest[: len(self.categories)], rest[len(self.categories) :]
        columns, done = [], 0
        for j, least, size in zip(self.categories, unlisted, self.sizes, strict=True):
            codes = self.codes[j]
            if size:
                bits = np.unpackbits(masks[done : done + size].copy().view(np.uint8))
                codes = codes[bits[: len(codes)] == 0]
                done += size
            columns.append(np.sort(np.append(codes, float(least))) if least else codes)
        return columns

    def _blocks(self, units: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        k = len(self.numbers)
        return units[:k], units[k : 2 * k], units[2 * k : 3 * k], units[3 * k :]

    def _units(
        self, rows: int, numbers: Callable[[int], IntArray], categories: Callable[[int], IntArray]
    ) -> IntArray:
        """Units of several multisets, (rows, k), column by column."""
        k, c = len(self.numbers), len(self.categories)
        units = np.empty((rows, 3 * k + c + sum(self.sizes)), dtype=np.int64)
        for at, j in enumerate(self.numbers):
            units[:, at], units[:, k + at], units[:, 2 * k + at] = numbers(int(j))
        done = 3 * k + c
        for at, (j, size) in enumerate(zip(self.categories, self.sizes, strict=True)):
            both = categories(int(j))
            units[:, 3 * k + at], units[:, done : done + size] = both[:, 0], both[:, 1:]
            done += size
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


@lru_cache(maxsize=1)  # all detectors that are tried ask for the same rows
def _regressed(rows: bytes, width: int) -> FloatArray:
    """Put what a linear regression on the other columns says in the place of NaN.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[-2.0, -4.0], [-1.0, -2.0], [1.0, np.nan], [2.0, 4.0]])
    >>> _regressed(rows.tobytes(), 2)[2].round(1)
    array([1. , 1.9])
    """
    seen = np.frombuffer(rows).reshape(-1, width).copy()
    gaps = np.isnan(seen)
    seen[gaps] = 0.0
    told, counts = seen.copy(), gaps.sum(axis=1)
    for _ in range(PASSES):
        scatter = seen.T @ seen / len(seen)
        precision = np.linalg.inv(scatter + np.diag(np.diag(scatter) * RIDGE + RIDGE**2))
        for count in np.unique(counts[counts > 0]):
            of = np.flatnonzero(counts == count)
            parts = -(-len(of) * count * width // MOST_AT_ONCE)
            for some in np.array_split(of, parts):  # each row by itself: equal rows alike
                gone = np.nonzero(gaps[some])[1].reshape(len(some), count)
                pull = (precision[gone] * told[some][:, None]).sum(axis=2)
                among = precision[gone[:, :, None], gone[:, None]]
                seen[some[:, None], gone] = -np.linalg.solve(among, pull[:, :, None])[:, :, 0]
    return seen


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


def _bits(marks: BoolArray) -> IntArray:
    """Marks as bits of integers: (rows, integers)."""
    padded = np.zeros((len(marks), -(-marks.shape[1] // 64) * 64), dtype=np.bool_)
    padded[:, : marks.shape[1]] = marks
    return np.packbits(padded, axis=1).view(np.int64)


def _encoded(codes: FloatArray, labels: FloatArray) -> FloatArray:
    """Zeros and ones: a column per label, for missing ones, and for all other labels.

    Examples
    --------
    >>> import numpy as np
    >>> _encoded(np.array([7.0, np.nan, 3.0, 8.0]), np.array([3.0, 7.0]))
    array([[0., 1., 0., 0.],
           [0., 0., 1., 0.],
           [1., 0., 0., 0.],
           [0., 0., 0., 1.]])
    """
    count = len(labels)
    place = np.minimum(np.searchsorted(labels, codes), count - 1) if count else codes * 0.0
    known = labels[place] == codes if count else np.zeros(len(codes), dtype=np.bool_)
    place = np.where(known, place, np.where(np.isnan(codes), count, count + 1)).astype(np.intp)
    encoded = np.zeros((len(codes), count + MORE_COLUMNS))
    encoded[np.arange(len(codes)), place] = 1.0
    return encoded
