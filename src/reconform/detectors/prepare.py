"""Text and missing values for detectors that know only numbers: `Prepare`, and ``prepare=True``.

A table becomes a float64 matrix by naming only: a category is written as a hash of its label
(`frames.label_code`), a missing value as NaN. Everything that is learned from data, medians,
scales, which categories exist, is learned from the rows of a model as a part of the algorithm A, so
no held-out row has a part in preparing the rows that it is compared with. Detectors of ours that
measure distances do it themselves (`detectors.prepared`); for all others a pipeline does it
(`make_prepared`) that ends in the detector, and is fitted anew for every model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from ..errors import MOST_LISTED, ReconformError, listed, nearest
from ..frames import (
    CALENDAR,
    ELAPSED,
    Column,
    checked_rows,
    columns_of,
    frame_as_it_is,
    label_code,
    package_of,
    read_column,
    refuse_times,
    time_columns,
)
from . import Auto, NativeDetector, resolve_detector
from .prepared import CATEGORIES, MOST_ENCODED, Labels, Prepared, own_columns
from .registry import entry_of

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

# Detectors of others that look at one column at a time by order alone: the scale of columns is
# nothing to them. By class name, since PyOD is optional and slow to import.
SCALE_FREE = frozenset({"iforest", "isolationforest"})


@dataclass(frozen=True)
class Feature:
    """A column that the detector looks at, and how it becomes a number.

    Attributes
    ----------
    name : str
    labels : tuple of str or None
        The categories of the reference; None for a column of numbers.
    made : tuple of str, optional
        For what is made of a date: its column, how dates are written there, and which part it is.

    Examples
    --------
    >>> Feature("colour", ("blue", "red")).is_category
    True
    """

    name: str
    labels: tuple[str, ...] | None = None
    made: tuple[str, str, str] | None = None

    @property
    def column(self) -> str:
        """The column of a table that it is read from."""
        return self.name if self.made is None else self.made[0]

    @property
    def is_category(self) -> bool:
        """Whether the column holds labels instead of numbers."""
        return self.labels is not None


# A column of text with more labels than this, most of them in a single row, is an identifier.
FEW_LABELS = 20


# Labels of all columns together, each of which is looked up for every part of the new rows.
MOST_LABELS = 1 << 17


def too_many_labels(features: Sequence[Feature], rows: int) -> str | None:
    """Say that labels are too many, or that their columns would not fit into memory; else None.

    Examples
    --------
    >>> too_many_labels([Feature("colour", ("blue", "red"))], 1000)
    """
    labels = {f.name: len(f.labels) for f in features if f.labels is not None}
    total, most = sum(labels.values()), own_columns(len(labels))
    cells = rows * sum(min(count, most) for count in labels.values())
    if total > MOST_LABELS:
        why = f"All columns together have {total:,}, and at most {MOST_LABELS:,} are used."
    elif cells > MOST_ENCODED:
        why = (
            f"As columns of zeros and ones, in {rows:,} rows, they would take "
            f"{8 * cells / 1e9:,.1f} GB, and at most {8 * MOST_ENCODED / 1e9:,.1f} GB are used."
        )
    else:
        return None
    named = sorted(labels, key=lambda name: -labels[name])[:MOST_LISTED]
    return (
        f"too many labels: {', '.join(f'{name!r} has {labels[name]:,}' for name in named)}. {why} "
        "Leave such a column out with `drop`, or write its rare labels as one, such as 'other'."
    )


class Prepare(BaseEstimator):
    """Any detector, for frames with text and missing values.

    Text is taken as categories: a column of zeros and ones per label, with missing, and a label
    that the reference does not have, as labels like others. A missing number becomes the median,
    and a column says where numbers were missing. For detectors that measure distances the numbers
    are brought to one scale. All of this is learned from the rows of each model, so that no
    held-out row has a part in it, and nothing that is proven is lost.

    Parameters
    ----------
    detector : str or estimator
        As `ConformalDetector` takes it; a name or an object with ``fit``.
    categories : sequence of str
        Columns of numbers that are only labels, such as the number of a machine; for arrays their
        positions.
    distance_based : bool, optional
        Whether to bring columns of numbers to one scale. By default, for all but isolation
        forests.

    See Also
    --------
    reconform.files.read_reference : The same for files, with ``prepare=True``.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from reconform import ConformalDetector, Prepare
    >>> rng = np.random.default_rng(0)
    >>> normal = pd.DataFrame({"flow": rng.normal(size=200), "valve": rng.choice(["a", "b"], 200)})
    >>> normal.loc[::20, "flow"] = np.nan
    >>> new = pd.DataFrame({"valve": ["a", "b", "c"], "flow": [0.1, 9.0, None]})
    >>> cad = ConformalDetector(Prepare("knn"), "jackknife+", random_state=0).fit(normal)
    >>> (cad.p_values(new) < 0.01).tolist()
    [False, True, True]
    """

    def __init__(
        self,
        detector: Any,
        *,
        categories: Sequence[str | int] = (),
        distance_based: bool | None = None,
    ) -> None:
        self.detector = detector
        self.categories = categories
        self.distance_based = distance_based

    def features_of(self, X: Any) -> tuple[Feature, ...]:
        """Find out what the columns of a reference are.

        Parameters
        ----------
        X : array-like or frame

        Returns
        -------
        tuple of Feature

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"x": [1.0, 2.0], "colour": ["red", "blue"]})
        >>> [(one.name, one.labels) for one in Prepare("knn").features_of(frame)]
        [('x', None), ('colour', ('blue', 'red'))]
        """
        X = frame_as_it_is(X)
        if package_of(X) is None:
            numbers = np.asarray(checked_rows(X), dtype=np.float64)
            names: list[Any] = list(range(numbers.shape[1] if numbers.ndim == 2 else 0))
            columns = [Column(numbers[:, j]) for j in names]
        else:
            times = time_columns(X)
            if times:
                refuse_times(listed(times))
            names = list(columns_of(X))
            columns = [read_column(cells) for cells in columns_of(X).values()]
        for name in self.categories:
            if name not in names:
                raise ReconformError(
                    f"`categories` names a column {name!r} that is not there."
                    f"{nearest(str(name), list(map(str, names)))} There are "
                    f"{listed(map(str, names))}."
                )
        features = tuple(
            Feature(str(name), self._labels(str(name), column, name in self.categories))
            for name, column in zip(names, columns, strict=True)
        )
        many = too_many_labels(features, len(X))
        if many is not None:
            raise ReconformError(many)
        return features

    def _labels(self, name: str, column: Column, is_label: bool) -> tuple[str, ...] | None:
        if column.values is not None and not is_label:
            return None
        labels = tuple(sorted(set(column.words)))
        present = sum(column.rows_by_label)
        if column.values is None and len(labels) > max(FEW_LABELS, present / 2):
            raise ReconformError(
                f"the column {name!r} has a different text in most rows ({len(labels):,} in "
                f"{present:,} rows): identifiers are no categories; leave it out."
            )
        return labels

    def for_features(self, features: Sequence[Feature]) -> Pipeline | Prepared:
        """Make the detector for these columns, as `prepared` does."""
        return prepared(self.detector, features, distance_based=self.distance_based)


def describe(features: Sequence[Feature]) -> list[dict[str, Any]]:
    """Write features as plain data, for a saved model's manifest.

    Examples
    --------
    >>> describe([Feature("x"), Feature("colour", ("blue", "red"))])
    [{'name': 'x', 'kind': 'number'},
     {'name': 'colour', 'kind': 'category', 'labels': ['blue', 'red']}]
    """
    return [_described(feature) for feature in features]


def _described(feature: Feature) -> dict[str, Any]:
    if feature.made is not None:
        return {"name": feature.name, "kind": "date", "made": list(feature.made)}
    if feature.labels is None:
        return {"name": feature.name, "kind": "number"}
    return {"name": feature.name, "kind": "category", "labels": list(feature.labels)}


def dated(column: str, written: str, parts: Sequence[str]) -> tuple[Feature, ...]:
    """Make the features of a date: two for every part of the calendar, as on a clock.

    Examples
    --------
    >>> [feature.name for feature in dated("when", "iso", ["hour"])]
    ['when: hour (sin)', 'when: hour (cos)']
    """
    waves = [
        wave
        for part in parts
        for wave in ([part] if part == ELAPSED else [f"{part} (sin)", f"{part} (cos)"])
    ]
    return tuple(Feature(f"{column}: {wave}", made=(column, written, wave)) for wave in waves)


def restore(description: Sequence[Mapping[str, Any]]) -> tuple[Feature, ...]:
    """Read features back from what `describe` wrote; refuse anything else.

    Examples
    --------
    >>> features = (Feature("x"), Feature("colour", ("blue", "red")))
    >>> restore(describe(features)) == features
    True
    """
    features = tuple(_restore_one(entry) for entry in description)
    names = [feature.name for feature in features]
    if len(set(names)) < len(names):
        raise ReconformError(f"features must have distinct names; got {names!r}.")
    return features


def _restore_one(entry: Mapping[str, Any]) -> Feature:
    match dict(entry):
        case {"name": str(name), "kind": "number", **rest} if not rest:
            return Feature(name)
        case {"name": str(name), "kind": "date", "made": [str(column), str(how), str(part)]} if (
            part in CALENDAR and len(entry) == 3
        ):
            return Feature(name, made=(column, how, part))
        case {"name": str(name), "kind": "category", "labels": list(labels), **rest} if (
            not rest
            and all(isinstance(label, str) for label in labels)
            and len(set(labels)) == len(labels)
        ):
            return Feature(name, tuple(labels))
    raise ReconformError(
        "a feature must have a name, a kind ('number', 'category' or 'date') and, for a category, "
        f"distinct labels; got {entry!r}."
    )


def make_prepared(
    detector: Any,
    numeric_columns: Sequence[int],
    categorical_columns: Sequence[int],
    *,
    distance_based: bool | None = None,
) -> Pipeline:
    """Put imputing, encoding and scaling in front of a detector, as one algorithm.

    Numbers: a missing one becomes the median, and every column with missing values among the
    training rows gets a column that says where they were. For detectors that measure distances
    the numbers are also standardised. Categories: one column of zeros and ones per label among
    the training rows; missing is a label like others, and a label that is not among the training
    rows gives zeros.

    Parameters
    ----------
    detector : str or estimator
        As `ConformalDetector` takes it; a name or an object with ``fit``.
    numeric_columns, categorical_columns : sequences of int
        Positions in the matrix.
    distance_based : bool, optional
        Whether to standardise. By default, for all but isolation forests.

    Returns
    -------
    sklearn.pipeline.Pipeline
        For ``ConformalDetector(detector=...)``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neighbors import LocalOutlierFactor
    >>> X = np.array([[1.0, 0], [np.nan, 1], [3.0, 1], [5.0, 0]])
    >>> pipeline = make_prepared(LocalOutlierFactor(novelty=True), [0], [1])
    >>> pipeline[:-1].fit_transform(X)
    array([[-1.41421356,  0.        ,  1.        ,  0.        ],
           [ 0.        ,  1.        ,  0.        ,  1.        ],
           [ 0.        ,  0.        ,  0.        ,  1.        ],
           [ 1.41421356,  0.        ,  1.        ,  0.        ]])
    """
    estimator = _estimator(detector)
    if distance_based is None:
        entry = entry_of(estimator)
        of_others = type(estimator).__name__.lower() not in SCALE_FREE
        distance_based = of_others if entry is None else entry.scale_matters
    return _behind_preparation(
        "detector", estimator, numeric_columns, categorical_columns, scaled=distance_based
    )


def _behind_preparation(
    name: str,
    estimator: Any,
    numeric_columns: Sequence[int],
    categorical_columns: Sequence[int],
    *,
    scaled: bool,
) -> Pipeline:
    # Slow to import, and most commands do without.
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import MissingIndicator, SimpleImputer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = [("impute", SimpleImputer(strategy="median", keep_empty_features=True))]
    if scaled:
        numbers.append(("scale", StandardScaler()))
    parts: list[tuple[str, Any, list[int]]] = []
    if len(numeric_columns):
        numeric = list(numeric_columns)
        parts.append(("numbers", Pipeline(numbers), numeric))
        parts.append(("missing", MissingIndicator(error_on_new=False), numeric))
    if len(categorical_columns):
        most = own_columns(len(categorical_columns)) + 1
        encoder = OneHotEncoder(
            handle_unknown="infrequent_if_exist", max_categories=most, sparse_output=False
        )
        parts.append((CATEGORIES, encoder, list(categorical_columns)))
    prepare = ColumnTransformer(parts, sparse_threshold=0.0)
    return Pipeline([("prepare", prepare), (name, estimator)])


def prepared_classifier(classifier: Any, resolved: Any) -> Any:
    """Prepare rows for a classifier in the way that was meant for a choice of detectors.

    Parameters
    ----------
    classifier : scikit-learn classifier
    resolved : detector
        What `prepared` made of ``"auto"``; None is returned for anything else.
    """
    labels = resolved.labels if isinstance(resolved, Auto) else None
    if labels is None:
        return None
    return _behind_preparation("classifier", classifier, *_positions(labels), scaled=True)


def _positions(labels: Labels) -> tuple[list[int], list[int]]:
    """Columns of numbers, and of labels."""
    columns = range(len(labels))
    return [j for j in columns if not labels[j]], [j for j in columns if labels[j]]


def prepared_by(detector: Any, labels: Labels, *, distance_based: bool | None = None) -> Any:
    """Prepare one detector for columns with these codes of labels; 0 stands for numbers.

    One of ours learns what it needs so that its models are still fitted together (`Prepared`); any
    other becomes a pipeline (`make_prepared`).
    """
    estimator = getattr(detector, "template", detector)
    if isinstance(estimator, NativeDetector):
        if estimator.accepts_nan:
            return estimator
        scaled = getattr(estimator, "scale", "none") != "none"
        return Prepared(estimator, tuple(labels), scaled=scaled)
    return make_prepared(detector, *_positions(labels), distance_based=distance_based)


def prepared(
    detector: Any, features: Sequence[Feature], *, distance_based: bool | None = None
) -> Pipeline | NativeDetector:
    """Prepare for the columns of a table.

    A detector of ours does it itself, and so that its models are still fitted together
    (`Prepared`), on rescaled columns if the scale matters to it; any other one becomes a pipeline
    (`make_prepared`). Of several to choose from, all are prepared.

    Parameters
    ----------
    detector : str or estimator
        As `ConformalDetector` takes it; a name or an object with ``fit``.
    features : sequence of Feature
    distance_based : bool, optional
        Whether to bring columns of numbers to one scale. By default, for all but isolation
        forests.

    Returns
    -------
    Prepared, Auto or sklearn.pipeline.Pipeline
        For ``ConformalDetector(detector=...)``.

    Examples
    --------
    >>> from sklearn.svm import OneClassSVM
    >>> features = [Feature("x"), Feature("colour", ("blue", "red"))]
    >>> pipeline = prepared(OneClassSVM(), features)
    >>> [name for name, _, columns in pipeline["prepare"].transformers]
    ['numbers', 'missing', 'categories']
    >>> prepared("knn", features).detector
    KNN(scale='robust')
    """
    labels = tuple(_codes(feature) for feature in features)
    estimator = _estimator(detector)
    if isinstance(estimator, Auto):
        return clone(estimator).set_params(labels=labels)
    if isinstance(estimator, NativeDetector) and hasattr(estimator, "scale"):
        scale = "none" if distance_based is False else "robust"
        estimator = clone(estimator).set_params(scale=scale)
    return prepared_by(
        estimator if isinstance(estimator, NativeDetector) else detector,
        labels,
        distance_based=distance_based,
    )


def _codes(feature: Feature) -> int | tuple[float, ...]:
    # A category without any label is missing in all reference rows: one column does no harm.
    return 0 if feature.labels is None else tuple(map(label_code, feature.labels)) or 1


def _estimator(detector: Any) -> Any:
    """Return the estimator itself: a detector from elsewhere comes wrapped."""
    resolved = resolve_detector(detector)
    return getattr(resolved, "template", resolved)
