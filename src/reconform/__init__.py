"""Conformal anomaly detection: any detector, p-values, lists at a chosen false discovery rate."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .extras import imported_later

if TYPE_CHECKING:
    from . import models as models
    from . import study as study
    from .cleaning import Review as Review
    from .cleaning import review as review
    from .detector import ConformalDetector as ConformalDetector
    from .detectors.prepare import Prepare as Prepare
    from .discoveries import Discoveries as Discoveries
    from .errors import BatchDependenceError as BatchDependenceError
    from .errors import ModelFileError as ModelFileError
    from .errors import ReconformError as ReconformError
    from .errors import ReferenceWarning as ReferenceWarning
    from .errors import UnlabelledRowWarning as UnlabelledRowWarning
    from .explain import Explanation as Explanation
    from .methods import Batch as Batch
    from .methods import Bootstrap as Bootstrap
    from .methods import CrossValidation as CrossValidation
    from .methods import Full as Full
    from .methods import Jackknife as Jackknife
    from .methods import Learned as Learned
    from .methods import Prefit as Prefit
    from .methods import Resampling as Resampling
    from .methods import Split as Split
    from .models import load as load
    from .models import save as save
    from .reporting import report as report
    from .rule import Rule as Rule
    from .scored import discover_scores as discover_scores
    from .statistics.fdr import RankCounts as RankCounts
    from .weights import Weights as Weights

    __version__: str

# What the library chose and will do is logged; where it goes is the business of the program.
logging.getLogger(__name__).addHandler(logging.NullHandler())

# Every name is imported when it is first used: scikit-learn alone takes a second, and who saves
# no model or writes no report need not wait for what does.
_HOMES = {
    "cleaning": ("Review", "review"),
    "detector": ("ConformalDetector",),
    "detectors.prepare": ("Prepare",),
    "discoveries": ("Discoveries",),
    "errors": (
        "BatchDependenceError",
        "ModelFileError",
        "ReconformError",
        "ReferenceWarning",
        "UnlabelledRowWarning",
    ),
    "explain": ("Explanation",),
    "methods": (
        "Batch",
        "Bootstrap",
        "CrossValidation",
        "Full",
        "Jackknife",
        "Learned",
        "Prefit",
        "Resampling",
        "Split",
    ),
    "models": ("load", "save"),
    "reporting": ("report",),
    "rule": ("Rule",),
    "scored": ("discover_scores",),
    "statistics.fdr": ("RankCounts",),
    "weights": ("Weights",),
}
_PACKAGES = ("models", "study")

__all__ = [
    "Batch",
    "BatchDependenceError",
    "Bootstrap",
    "ConformalDetector",
    "CrossValidation",
    "Discoveries",
    "Explanation",
    "Full",
    "Jackknife",
    "Learned",
    "ModelFileError",
    "Prefit",
    "Prepare",
    "RankCounts",
    "ReconformError",
    "ReferenceWarning",
    "Resampling",
    "Review",
    "Rule",
    "Split",
    "UnlabelledRowWarning",
    "Weights",
    "__version__",
    "discover_scores",
    "load",
    "report",
    "review",
    "save",
]


_get, _names = imported_later(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("reconform")
    return import_module(f".{name}", __name__) if name in _PACKAGES else _get(name)


def __dir__() -> list[str]:
    return sorted({*_names(), *_PACKAGES, "__version__"})
