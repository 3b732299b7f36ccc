"""The paper's evaluation, and anyone's own: data sets, protocol, tables and charts.

>>> from reconform.study import Protocol, Study
>>> study = Study(["wbc", "breast"], ["knn"], ["split", "cv+"], Protocol(draws=3))
>>> study.protocol.draws
3
"""

from __future__ import annotations

from .averages import Cell, Estimate, summarise
from .comparison import Comparison, compare_cells, read_reference
from .datasets import Dataset, load, make_dataset, read
from .figures import comparison_chart, line_chart, results_chart, save_chart
from .layout import columns_of, format_table
from .protocol import Protocol
from .ranked import Ranked, Ranking, Recommendation
from .runner import (
    OWN_DETECTORS,
    OWN_METHODS,
    PAPER_DATASETS,
    PAPER_DETECTORS,
    PAPER_METHODS,
    Study,
)
from .trial import Forecast

__all__ = [
    "OWN_DETECTORS",
    "OWN_METHODS",
    "PAPER_DATASETS",
    "PAPER_DETECTORS",
    "PAPER_METHODS",
    "Cell",
    "Comparison",
    "Dataset",
    "Estimate",
    "Forecast",
    "Protocol",
    "Ranked",
    "Ranking",
    "Recommendation",
    "Study",
    "columns_of",
    "compare_cells",
    "comparison_chart",
    "format_table",
    "line_chart",
    "load",
    "make_dataset",
    "read",
    "read_reference",
    "results_chart",
    "save_chart",
    "summarise",
]
