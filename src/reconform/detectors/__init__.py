"""Detectors: native ones, and the door for everyone else's."""

from __future__ import annotations

from typing import Any

from ..errors import unknown_choice
from .base import NativeDetector
from .foreign import ForeignDetector, adapt
from .iforest.detector import IForest
from .inne.detector import INNE
from .knn.detector import KNN

NAMED: dict[str, type[NativeDetector]] = {"knn": KNN, "iforest": IForest, "inne": INNE}


def resolve_detector(
    detector: Any, larger_is: str | None = None, *, refit: bool = True
) -> ForeignDetector | NativeDetector:
    """Turn a name or any detector into one that fits plans, small = strange.

    Parameters
    ----------
    detector : str, estimator or callable
    larger_is : {"strange", "normal"}, optional
    refit : bool
        False if the detector is to be used as it is fitted already.

    Examples
    --------
    >>> resolve_detector("knn")
    KNN()
    """
    if isinstance(detector, str):
        if detector not in NAMED:
            raise unknown_choice("detector", detector, NAMED)
        detector = NAMED[detector]()
    if refit and larger_is in (None, "normal") and isinstance(detector, NativeDetector):
        return detector
    if refit and larger_is in (None, "strange") and KNN.takes(detector):
        return KNN.from_pyod(detector)  # the numbers are the same, the road is shorter
    return adapt(detector, larger_is)


__all__ = [
    "INNE",
    "KNN",
    "ForeignDetector",
    "IForest",
    "NativeDetector",
    "adapt",
    "resolve_detector",
]
