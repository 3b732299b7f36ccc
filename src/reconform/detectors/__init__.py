"""Detectors: our own, and everybody else's turned to one convention, small = anomalous."""

from __future__ import annotations

from typing import Any

from ..errors import unknown_choice
from .auto import Auto
from .base import NativeDetector
from .contrast import Contrast
from .contrast_forest import ContrastForest
from .extreme import Extreme
from .foreign import ForeignDetector, adapt
from .iforest import IForest
from .inne import INNE
from .kde import KDE
from .knn import KNN
from .lof import LOF
from .mahalanobis import Mahalanobis
from .rarity import Rarity
from .registry import DETECTORS, from_other_package


def resolve_detector(
    detector: Any, larger_is: str | None = None, *, refit: bool = True
) -> ForeignDetector | NativeDetector:
    """Turn a name or any detector into one that fits plans, small = anomalous.

    Parameters
    ----------
    detector : str, estimator, callable, or a list of these
        Of a list one is chosen for every new row, as `Auto` does it.
    larger_is : {"anomalous", "normal"}, optional
        What a large score means; of a list it is said of the functions in it.
    refit : bool
        False if the detector is to be used as it is fitted already.

    Examples
    --------
    >>> resolve_detector("knn")
    KNN()
    """
    if isinstance(detector, ForeignDetector):
        return detector
    if isinstance(detector, (list, tuple)):
        if any(map(_is_function, detector)):
            detector = [adapt(one, larger_is) if _is_function(one) else one for one in detector]
            larger_is = None
        detector = Auto(list(detector))
    if isinstance(detector, str):
        name, row = detector, DETECTORS.get(detector)
        detector = from_other_package(name) if row is None else row.kind()
        if detector is None:
            raise unknown_choice("detector", name, DETECTORS)
    if refit and larger_is in (None, "normal") and isinstance(detector, NativeDetector):
        return detector
    if refit and larger_is in (None, "anomalous"):
        for entry in DETECTORS.values():
            if entry.kind.takes(detector):
                return entry.kind.from_pyod(detector)  # the same numbers, sooner
    return adapt(detector, larger_is)


def _is_function(detector: Any) -> bool:
    """Whether it is ``fit(X) -> score(X)``, which does not say what a large score means."""
    return callable(detector) and not hasattr(detector, "fit") and not isinstance(detector, type)


__all__ = [
    "DETECTORS",
    "INNE",
    "KDE",
    "KNN",
    "LOF",
    "Auto",
    "Contrast",
    "ContrastForest",
    "Extreme",
    "ForeignDetector",
    "IForest",
    "Mahalanobis",
    "NativeDetector",
    "Rarity",
    "adapt",
    "resolve_detector",
]
