"""The paper's evaluation on any labelled rows: protocol, ranking, recommendation.

>>> from reconform.study import Protocol, Study
>>> mine = ("mine", [[1.0], [1.1], [9.9]], [0, 0, 1])
>>> study = Study([mine], ["knn"], ["split", "cv+"], Protocol(draws=3))
>>> study.protocol.draws
3
"""

from __future__ import annotations

from .protocol import Protocol
from .ranked import Cell, Estimate, Ranked, Ranking, summarise
from .runner import OWN_DETECTORS, OWN_METHODS, Study
from .subjects import Dataset, make_dataset

__all__ = [
    "OWN_DETECTORS",
    "OWN_METHODS",
    "Cell",
    "Dataset",
    "Estimate",
    "Protocol",
    "Ranked",
    "Ranking",
    "Study",
    "make_dataset",
    "summarise",
]
