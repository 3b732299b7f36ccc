"""Conformal anomaly detection: any detector, honest p-values, bounded false discoveries."""

from __future__ import annotations

from importlib.metadata import version

from .detector import ConformalDetector
from .discoveries import Discoveries
from .errors import BatchDependenceError
from .fdr import RankCounts
from .methods import Bootstrap, CrossValidation, Full, Jackknife, Prefit, Resampling, Split

__version__ = version("reconform")

__all__ = [
    "BatchDependenceError",
    "Bootstrap",
    "ConformalDetector",
    "CrossValidation",
    "Discoveries",
    "Full",
    "Jackknife",
    "Prefit",
    "RankCounts",
    "Resampling",
    "Split",
    "__version__",
]
