"""Text and missing values for detectors that know only numbers: `Prepare`.

A table becomes a float64 matrix by naming only: a category is written as a hash of its label
(`frames.label_code`), a missing value as NaN. Everything that is learned from data, medians,
scales, which categories exist, is learned from the rows of a model as a part of the algorithm A, so
no held-out row has a part in preparing the rows that it is compared with. Detectors of ours that
measure distances do it themselves (`detectors.prepared`); for all others a pipeline does it
(`make_prepared`) that ends in the detector, and is fitted anew for every model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from ..errors import MOST_LISTED, ReconformError, listed, warn_once
from ..frames import Column, checked_rows, frame_as_it_is, label_code, opened
from ..tables import Feature
from . import Auto, NativeDetector, resolve_detector
from .prepared import CATEGORIES, MOST_ENCODED, Labels, Prepared, own_columns
from .registry import entry_of

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

# Detectors of others that look at one column at a time by order alone: the scale of columns is
# nothing to them. By class name, since PyOD is optional and slow to import.
SCALE_FREE = frozenset({"iforest", "isolationforest"})


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

    Columns are told apart as in files: dates are read by hour, weekday and month; identifiers, free
    text and empty columns are left out, with a warning that names them. Other text is taken as
    categories: a column of zeros and ones per label, with missing, and a label that the reference
    does not have, as labels like others. A missing number becomes the median, and a column says
    where numbers were missing; ``"auto"`` on full estimates it by the other columns. For detectors
    that measure distances the numbers are brought to one scale. All of this is learned from the
    rows of each model, so that no held-out row has a part in it, and nothing that is proven is
    lost. A detector of ours that is given a frame with text,
    dates or gaps is prepared by itself.

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
    reconform.files.read_reference : The same for files.

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
        if opened(X) is not None:
            from ..tables.uses import uses_in_frame

            uses = uses_in_frame(X, tuple(map(str, self.categories)))
            features = tuple(feature for use in uses for feature in use.features)
            many = too_many_labels(features, len(X))
            left = [f"{use.name!r} ({use.said})" for use in uses if not use.features]
            if many is not None or not features:
                raise ReconformError(many or f"no column of X is left to use: {listed(left)}.")
            if left:
                warn_once(self, "left out", f"X: not used: {', '.join(left)}.", UserWarning)
            return features
        numbers = np.asarray(checked_rows(X), dtype=np.float64)
        width = numbers.shape[1] if numbers.ndim == 2 else 0
        gone = [name for name in self.categories if name not in range(width)]
        if gone:
            raise ReconformError(
                f"`categories` names a column {gone[0]!r}, and X is an array of {width} columns, "
                "which go by their positions, from 0."
            )
        columns = [Column(numbers[:, j]) for j in range(width)]
        return tuple(
            Feature(str(j), tuple(sorted(column.words)) if j in self.categories else None)
            for j, column in enumerate(columns)
        )

    def for_features(self, features: Sequence[Feature]) -> Pipeline | Prepared:
        """Make the detector for these columns, as `prepared` does."""
        return prepared(self.detector, features, distance_based=self.distance_based)


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
