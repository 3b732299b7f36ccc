"""Text and missing values for detectors that know only numbers: what ``prepare=True`` does.

A table becomes a float64 matrix by naming only: a category is written as the position of its label
in a list (`Feature.labels`), a missing value as NaN. Everything that is learned from data, medians,
scales, which categories exist, is learned from the rows of a model as a part of the algorithm A, so
no held-out row has a part in preparing the rows that it is compared with. Detectors of ours that
measure distances do it themselves (`detectors.prepared`); for all others a pipeline does it
(`make_prepared`) that ends in the detector, and is fitted anew for every model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone
from sklearn.pipeline import Pipeline

from .detectors import Auto, NativeDetector, resolve_detector
from .detectors.prepared import CATEGORIES, Prepared
from .detectors.registry import entry_of
from .errors import ReconformError

# The code of a label that the reference does not have is this or less, another one for every such
# label. No model has seen it, so that every one-hot encoder turns it into zeros, as it does with a
# label that only held-out rows have.
UNSEEN = -1.0


def unseen_code(label: str) -> float:
    """Code of a label that the reference does not have: a hash, so that it depends on nothing else.

    Examples
    --------
    >>> unseen_code("mauve") == unseen_code("mauve") <= UNSEEN
    True
    """
    digest = hashlib.blake2b(label.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return UNSEEN - int.from_bytes(digest, "little")


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
        The categories of the reference, in the order of their codes 0, 1, ...; None for a column
        of numbers.

    Examples
    --------
    >>> Feature("colour", ("blue", "red")).is_category
    True
    """

    name: str
    labels: tuple[str, ...] | None = None

    @property
    def is_category(self) -> bool:
        """Whether the column holds labels instead of numbers."""
        return self.labels is not None


def describe(features: Sequence[Feature]) -> list[dict[str, Any]]:
    """Write features as plain data, for a saved model's manifest.

    Examples
    --------
    >>> describe([Feature("x"), Feature("colour", ("blue", "red"))])
    [{'name': 'x', 'kind': 'number'},
     {'name': 'colour', 'kind': 'category', 'labels': ['blue', 'red']}]
    """
    return [
        {"name": feature.name, "kind": "number"}
        if feature.labels is None
        else {"name": feature.name, "kind": "category", "labels": list(feature.labels)}
        for feature in features
    ]


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
        case {"name": str(name), "kind": "category", "labels": list(labels), **rest} if (
            not rest
            and all(isinstance(label, str) for label in labels)
            and len(set(labels)) == len(labels)
        ):
            return Feature(name, tuple(labels))
    raise ReconformError(
        "a feature must have a name, a kind ('number' or 'category') and, for a category, "
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
    # Slow to import, and most commands do without.
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import MissingIndicator, SimpleImputer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    estimator = _estimator(detector)
    if distance_based is None:
        entry = entry_of(estimator)
        of_others = type(estimator).__name__.lower() not in SCALE_FREE
        distance_based = of_others if entry is None else entry.scale_matters
    numbers = [("impute", SimpleImputer(strategy="median", keep_empty_features=True))]
    if distance_based:
        numbers.append(("scale", StandardScaler()))
    parts: list[tuple[str, Any, list[int]]] = []
    if len(numeric_columns):
        numeric = list(numeric_columns)
        parts.append(("numbers", Pipeline(numbers), numeric))
        parts.append(("missing", MissingIndicator(error_on_new=False), numeric))
    if len(categorical_columns):
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        parts.append((CATEGORIES, encoder, list(categorical_columns)))
    prepare = ColumnTransformer(parts, sparse_threshold=0.0)
    return Pipeline([("prepare", prepare), ("detector", estimator)])


def prepared(
    detector: Any, features: Sequence[Feature], *, distance_based: bool | None = None
) -> Pipeline | NativeDetector:
    """Prepare for the columns of a table.

    A detector of ours that measures distances does it itself, and so that its models are still
    fitted together (`Prepared`); any other one becomes a pipeline (`make_prepared`). Of several to
    choose from, each is prepared; by default those that measure distances.

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
    >>> features = [Feature("x"), Feature("colour", ("blue", "red"))]
    >>> pipeline = prepared("iforest", features)
    >>> [name for name, _, columns in pipeline["prepare"].transformers]
    ['numbers', 'missing', 'categories']
    >>> prepared("knn", features)
    Prepared(detector=KNN(scale='robust'), labels=(0, 2))
    """
    estimator = _estimator(detector)
    if isinstance(estimator, Auto):
        scaled = [one for one in estimator.resolved() if getattr(one, "scale", None) == "robust"]
        return clone(estimator).set_params(
            candidates=[prepared(one, features) for one in estimator.candidates or scaled]
        )
    scales = isinstance(estimator, NativeDetector) and hasattr(estimator, "scale")
    if scales and distance_based is not False:
        scaled = clone(estimator).set_params(scale="robust")
        return Prepared(scaled, tuple(_count_labels(feature) for feature in features))
    return make_prepared(
        detector,
        [j for j, feature in enumerate(features) if not feature.is_category],
        [j for j, feature in enumerate(features) if feature.is_category],
        distance_based=distance_based,
    )


def _count_labels(feature: Feature) -> int:
    # A category without any label is missing in all reference rows: one column does no harm.
    return 0 if feature.labels is None else max(1, len(feature.labels))


def _estimator(detector: Any) -> Any:
    """Return the estimator itself: a detector from elsewhere comes wrapped."""
    resolved = resolve_detector(detector)
    return getattr(resolved, "template", resolved)
