"""Conformal anomaly detection: any detector, p-values, lists at a chosen false discovery rate."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from .detector import ConformalDetector
from .discoveries import Discoveries
from .errors import BatchDependenceError, ModelFileError, ReconformError, UnlabelledRowWarning
from .methods import Bootstrap, CrossValidation, Full, Jackknife, Prefit, Resampling, Split
from .report import chart, report
from .rule import Rule
from .statistics.fdr import RankCounts

if TYPE_CHECKING:
    from . import models as models
    from . import study as study
    from .models import load as load
    from .models import save as save

__version__ = version("reconform")

__all__ = [
    "BatchDependenceError",
    "Bootstrap",
    "ConformalDetector",
    "CrossValidation",
    "Discoveries",
    "Full",
    "Jackknife",
    "ModelFileError",
    "Prefit",
    "RankCounts",
    "ReconformError",
    "Resampling",
    "Rule",
    "Split",
    "UnlabelledRowWarning",
    "__version__",
    "chart",
    "load",
    "report",
    "save",
]

# Imported when first used: few programs save models, and fewer run studies.
_LATER = {"load": "models", "models": "models", "save": "models", "study": "study"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{_LATER[name]}", __name__)
    value = module if name == _LATER[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LATER})
