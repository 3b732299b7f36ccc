"""Detectors: native ones, and the door for everyone else's."""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import unknown_choice
from .foreign import ForeignDetector, adapt
from .native import NativeDetector

NAMES = ("knn", "iforest", "inne")


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
    """
    if isinstance(detector, str):
        if detector not in NAMES:
            raise unknown_choice("detector", detector, NAMES)
        detector = _from_pyod(detector)
    if isinstance(detector, NativeDetector) and refit and larger_is in (None, "normal"):
        return detector
    return adapt(detector, larger_is)


def _from_pyod(name: str) -> Any:
    try:
        module = importlib.import_module(f"pyod.models.{name}")
    except ImportError as error:
        raise ImportError(
            f"detector={name!r} needs PyOD: pip install 'reconform[pyod]'."
        ) from error
    return getattr(module, {"knn": "KNN", "iforest": "IForest", "inne": "INNE"}[name])()


__all__ = ["ForeignDetector", "NativeDetector", "adapt", "resolve_detector"]
