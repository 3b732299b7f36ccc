"""The paper's evaluation on any labelled rows: protocol, ranking, recommendation.

>>> from reconform.study import Protocol, Study
>>> study = Study(["pumps.csv", "valves.csv"], ["knn"], ["split", "cv+"], Protocol(draws=3))
>>> study.protocol.draws
3
"""

from __future__ import annotations

from .datasets import Dataset, make_dataset, read
from .protocol import Protocol
from .ranked import Cell, Estimate, Ranked, Ranking, Recommendation, summarise
from .runner import OWN_DETECTORS, OWN_METHODS, Study

__all__ = [
    "OWN_DETECTORS",
    "OWN_METHODS",
    "Cell",
    "Dataset",
    "Estimate",
    "Protocol",
    "Ranked",
    "Ranking",
    "Recommendation",
    "Study",
    "make_dataset",
    "read",
    "summarise",
]
