"""What a study compares, each under a label: data sets, detectors and methods.

The same models can be read in three ways. "jab", "jab+" and "jab-pooled" all come from one set of
bootstrap models, so a study fits those once and asks them three questions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone

from ..arrays import BoolArray, FloatArray, IndexArray
from ..detectors import DETECTORS, resolve_detector
from ..errors import ReconformError
from ..frames import frame_as_it_is
from ..intake import Coded, preparing
from ..methods import Bootstrap, CrossValidation, Method, recorded_methods, resolve_method
from ..tables import Feature

# --- data sets ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled rows: what a study draws from.

    Attributes
    ----------
    name : str
    X : float array of shape (n, d)
    y : bool array of shape (n,)
        True for outliers.
    features : tuple of Feature or None
        What the columns are, if detectors are to be prepared for them.
    """

    name: str
    X: FloatArray
    y: BoolArray
    features: tuple[Feature, ...] | None = None

    @property
    def normal(self) -> IndexArray:
        """Positions of the normal rows."""
        return np.flatnonzero(~self.y)

    @property
    def outliers(self) -> IndexArray:
        """Positions of the outliers."""
        return np.flatnonzero(self.y)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of shape, rows and labels: equal exactly when two data sets are the same."""
        digest = hashlib.sha256(str(self.X.shape).encode())
        digest.update(self.X.tobytes())
        digest.update(self.y.tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        rows, features = self.X.shape
        return f"Dataset({self.name!r}, rows={rows}, features={features}, outliers={self.y.sum()})"


def make_dataset(name: str, X: Any, y: npt.ArrayLike) -> Dataset:
    """Check rows and labels, and turn them into float64 and bool.

    Parameters
    ----------
    name : str
    X : array-like or frame of shape (n, d)
        Numbers of any type; in a frame also text, dates and missing values, for which detectors
        are prepared. They become float64: ADBench stores some as uint8, and differences of those
        wrap around.
    y : array-like of shape (n,)
        1 or True for outliers, 0 or False for normal rows.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> make_dataset("mine", [[1, 2], [3, 4], [90, 90]], [0, 0, 1])
    Dataset('mine', rows=3, features=2, outliers=1)
    """
    features = None
    X = frame_as_it_is(X)
    prepare = preparing("knn", X)
    if prepare is not None:
        features = prepare.features_of(X)
        coded = Coded(features)
        X = coded.read(BaseEstimator(), X, reset=True, least=2, finite="allow-nan")
    try:
        rows = np.ascontiguousarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ReconformError(f"data set {name!r}: X must be numbers; {error}.") from error
    labels = np.asarray(y)
    if rows.ndim != 2 or not rows.shape[1]:
        raise ReconformError(
            f"data set {name!r}: X must have two dimensions, rows and features; got shape "
            f"{rows.shape}."
        )
    if labels.shape != (len(rows),):
        raise ReconformError(
            f"data set {name!r}: y must have one label per row; X has {len(rows)} rows and y has "
            f"shape {labels.shape}."
        )
    values = np.unique(labels)
    if not set(values.tolist()) <= {0, 1}:  # False == 0 and True == 1
        shown = ", ".join(map(repr, values[:5].tolist())) + (", ..." if len(values) > 5 else "")
        raise ReconformError(
            f"data set {name!r}: labels must be 0 or False for normal rows and 1 or True for "
            f"outliers; got {shown}."
        )
    outliers = labels.astype(bool)
    if len(outliers) - outliers.sum() < 2 or not outliers.any():
        raise ReconformError(
            f"data set {name!r}: a study needs at least two normal rows and one outlier; got "
            f"{int((~outliers).sum())} and {int(outliers.sum())}."
        )
    return Dataset(name, rows, outliers, features)


def resolve_datasets(sources: Iterable[Any]) -> list[Dataset]:
    """Turn whatever names data sets into them: ``(name, X, y)``, or `Dataset` objects.

    Examples
    --------
    >>> resolve_datasets([("mine", [[1], [2], [90]], [0, 0, 1])])
    [Dataset('mine', rows=3, features=1, outliers=1)]
    """
    datasets = []
    for source in as_list("datasets", sources):
        if isinstance(source, tuple | list) and len(source) == 3 and isinstance(source[0], str):
            source = make_dataset(*source)
        if not isinstance(source, Dataset):
            raise ReconformError(
                "a data set must be (name, X, y), of arrays or frames; got "
                f"{type(source).__name__}."
            )
        datasets.append(source)
    check_labels("datasets", [dataset.name for dataset in datasets])
    return datasets


# --- detectors and methods ------------------------------------------------------------------------

POOLED = "-pooled"


def describe(value: object) -> str:
    """Write a detector or a method down, the same in every process.

    `repr` will not do: it shortens arrays, leaves out defaults and shows memory addresses.

    Our own methods and detectors have names that never change. Everything else is called by its
    module and class.

    Examples
    --------
    >>> describe(CrossValidation(folds=5))
    "CrossValidation(folds=5, variant='plus')"
    """
    if isinstance(value, np.ndarray) and value.dtype != object:
        content = hashlib.sha256(str((value.shape, value.dtype)).encode())
        content.update(np.ascontiguousarray(value).tobytes())
        return f"array:{content.hexdigest()[:16]}"
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{describe(k)}: {describe(v)}" for k, v in value.items())
        return f"{{{pairs}}}"
    if isinstance(value, list | tuple | np.ndarray):
        return f"[{', '.join(map(describe, value))}]"
    named = value if isinstance(value, type) or hasattr(value, "__qualname__") else type(value)
    name = name_of(named)
    if named is value:  # a class or a function
        return name
    if hasattr(value, "get_params"):
        parameters = value.get_params(deep=False)
        shown = ", ".join(f"{key}={describe(parameters[key])}" for key in sorted(parameters))
        return f"{name}({shown})"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def name_of(kind: Any) -> str:
    """Name a class or a function: ours as they are recorded, others by module and name.

    Examples
    --------
    >>> name_of(Bootstrap), name_of(sum)
    ('Bootstrap', 'builtins.sum')
    """
    return _own_names().get(kind, f"{kind.__module__}.{kind.__qualname__}")


def _own_names() -> dict[Any, str]:
    detectors = {entry.kind: entry.record.name for entry in DETECTORS.values()}
    return {**{kind: name for name, kind in recorded_methods().items()}, **detectors}


@dataclass(frozen=True, eq=False)
class Labelled:
    """One detector of a study.

    Attributes
    ----------
    label : str
        Its name in tables.
    detector : str, estimator or callable
        As `ConformalDetector` takes it.
    """

    label: str
    detector: Any


def resolve_detectors(detectors: Iterable[Any]) -> list[Labelled]:
    """Turn detectors and ``(label, detector)`` pairs into labelled detectors.

    Examples
    --------
    >>> from sklearn.neighbors import LocalOutlierFactor
    >>> lof = LocalOutlierFactor(novelty=True)
    >>> [detector.label for detector in resolve_detectors(["knn", lof, ("mine", lof)])]
    ['knn', 'LocalOutlierFactor', 'mine']
    """
    labelled = []
    for given in as_list("detectors", detectors):
        label, detector = unpack(given)
        resolve_detector(detector)  # says now what is wrong with it, not after an hour
        if label is None:
            named = detector if hasattr(detector, "__qualname__") else type(detector)
            label = detector if isinstance(detector, str) else named.__name__
        labelled.append(Labelled(label, detector))
    check_labels("detectors", [detector.label for detector in labelled])
    return labelled


@dataclass(frozen=True, eq=False)
class Reading:
    """One method of a study.

    Attributes
    ----------
    label : str
        Its name in tables.
    method : Method
        As one would give it to `ConformalDetector`.
    """

    label: str
    method: Method

    @property
    def variant(self) -> str | None:
        """The comparison it makes; None where there is only one (split, full)."""
        return getattr(self.method, "variant", None)

    @property
    def family(self) -> str:
        """What is fitted for it; readings of one family share their models."""
        return describe(self._with_variant("plus"))

    def _with_variant(self, variant: str) -> Method:
        if self.variant is None:
            return self.method
        changed: Method = clone(self.method).set_params(variant=variant)
        return changed


def method_to_fit(readings: Iterable[Reading]) -> Method:
    """Return the one method that answers all readings of a family.

    One reading is fitted as it is. Several are fitted as "plus", which keeps every model.

    Examples
    --------
    >>> family = resolve_readings(["cv", "cv-pooled"], folds=5)
    >>> method_to_fit(family), method_to_fit(family[:1])
    (CrossValidation(folds=5), CrossValidation(folds=5, variant='basic'))
    """
    family = list(readings)
    return family[0].method if len(family) == 1 else family[0]._with_variant("plus")


def resolve_readings(
    methods: Iterable[Any], *, folds: int = 10, bootstrap_draws: int = 100
) -> list[Reading]:
    """Turn names, methods and ``(label, method)`` pairs into readings.

    Parameters
    ----------
    methods : iterable
        Names as in `ConformalDetector`, besides ``"jackknife-pooled"``, ``"cv-pooled"`` and
        ``"jab-pooled"``; method objects; or pairs of a label and either.
    folds, bootstrap_draws : int
        Of the methods that are given by name.

    Returns
    -------
    list of Reading

    Examples
    --------
    >>> [reading.method for reading in resolve_readings(["split", "jab-pooled"])]
    [Split(), Bootstrap(variant='pooled')]
    """
    readings = []
    for given in as_list("methods", methods):
        label, method = unpack(given)
        if isinstance(method, str):
            label = method if label is None else label
            method = _by_name(method, folds, bootstrap_draws)
        else:
            method = resolve_method(method)
        readings.append(Reading(repr(method) if label is None else label, method))
    check_labels("methods", [reading.label for reading in readings])
    return readings


def _by_name(name: str, folds: int, bootstrap_draws: int) -> Method:
    base = name.removesuffix(POOLED)
    try:
        method = resolve_method(base)
    except ValueError as error:
        error.add_note("A study also knows 'jackknife-pooled', 'cv-pooled' and 'jab-pooled'.")
        raise
    if name != base:
        if getattr(method, "variant", None) != "basic":
            raise ReconformError(
                f"method {name!r} does not exist: only 'jackknife', 'cv' and 'jab' can be pooled."
            )
        method.set_params(variant="pooled")
    if isinstance(method, CrossValidation):
        method.set_params(folds=folds)
    if isinstance(method, Bootstrap):
        method.set_params(draws=bootstrap_draws)
    return method


def as_list(argument: str, given: Iterable[Any]) -> list[Any]:
    """Return a list, and refuse the string that was meant to be in one.

    Examples
    --------
    >>> as_list("methods", "cv")
    Traceback (most recent call last):
    ...
    reconform.errors.ReconformError: methods must be a list; got 'cv'. Say methods=['cv'].
    """
    if isinstance(given, str):
        raise ReconformError(
            f"{argument} must be a list; got {given!r}. Say {argument}=[{given!r}]."
        )
    return list(given)


def unpack(given: Any) -> tuple[str | None, Any]:
    """Take a ``(label, thing)`` pair apart; a thing on its own has no label yet."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        return given
    return None, given


def check_labels(argument: str, labels: list[str]) -> None:
    """Refuse an empty list, and labels that occur twice."""
    if not labels:
        raise ReconformError(f"{argument} must have at least one entry; got none.")
    twice = [label for label in labels if labels.count(label) > 1]
    if twice:
        raise ReconformError(
            f"{argument} must have different labels; got {twice[0]!r} more than once. Put a label "
            "of your own in front, (label, ...), to tell them apart."
        )
