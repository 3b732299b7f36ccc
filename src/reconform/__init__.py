"""Conformal anomaly detection: any detector, p-values, lists at a chosen false discovery rate."""

from __future__ import annotations

from importlib.metadata import version

from .detector import ConformalDetector
from .discoveries import Discoveries
from .errors import BatchDependenceError, ModelFileError, ReconformError, UnlabelledRowWarning
from .methods import Bootstrap, CrossValidation, Full, Jackknife, Prefit, Resampling, Split
from .models import load, save
from .report import chart, report
from .rule import Rule
from .statistics.fdr import RankCounts

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
