"""The paper's evaluation, and anyone's own: data sets, protocol, ranking, recommendation.

>>> from reconform.study import Protocol, Study
>>> study = Study(["wbc", "breast"], ["knn"], ["split", "cv+"], Protocol(draws=3))
>>> study.protocol.draws
3
"""

from __future__ import annotations

from .datasets import Dataset, load, make_dataset, read
from .protocol import Protocol
from .ranked import Cell, Estimate, Ranked, Ranking, Recommendation, summarise
from .runner import (
    OWN_DETECTORS,
    OWN_METHODS,
    PAPER_DATASETS,
    PAPER_DETECTORS,
    PAPER_METHODS,
    Study,
)

__all__ = [
    "OWN_DETECTORS",
    "OWN_METHODS",
    "PAPER_DATASETS",
    "PAPER_DETECTORS",
    "PAPER_METHODS",
    "Cell",
    "Dataset",
    "Estimate",
    "Protocol",
    "Ranked",
    "Ranking",
    "Recommendation",
    "Study",
    "load",
    "make_dataset",
    "read",
    "summarise",
]
