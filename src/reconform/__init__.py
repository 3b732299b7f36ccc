"""Conformal anomaly detection: any detector, p-values, lists at a chosen false discovery rate."""

from __future__ import annotations

import logging
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from .detector import ConformalDetector
from .detectors.prepare import Prepare
from .discoveries import Discoveries
from .errors import (
    BatchDependenceError,
    ModelFileError,
    ReconformError,
    ReferenceWarning,
    UnlabelledRowWarning,
)
from .explaining.explanation import Explanation
from .methods import (
    Batch,
    Bootstrap,
    CrossValidation,
    Full,
    Jackknife,
    Learned,
    Prefit,
    Resampling,
    Split,
)
from .report import chart, report
from .rule import Rule
from .statistics.fdr import RankCounts
from .weights import Weights

if TYPE_CHECKING:
    from . import models as models
    from . import study as study
    from .cleaning import Review as Review
    from .cleaning import review as review
    from .models import load as load
    from .models import save as save

__version__ = version("reconform")

# What the library chose and will do is logged; where it goes is the business of the program.
logging.getLogger(__name__).addHandler(logging.NullHandler())

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
    "chart",
    "load",
    "report",
    "review",
    "save",
]

# Imported when first used: few programs save models, and fewer review a reference or run studies.
_LATER = {
    "Review": "cleaning",
    "load": "models",
    "models": "models",
    "review": "cleaning",
    "save": "models",
    "study": "study",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{_LATER[name]}", __name__)
    value = module if name == _LATER[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LATER})
