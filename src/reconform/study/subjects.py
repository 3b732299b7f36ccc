"""What a study compares: detectors and methods, each under a label.

The same models can be read in three ways. "jab", "jab+" and "jab-pooled" all come from one set of
bootstrap models, so a study fits those once and asks them three questions.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from ..detectors import DETECTORS, resolve_detector
from ..errors import ReconformError
from ..methods import Bootstrap, CrossValidation, Method, recorded_methods, resolve_method

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
