"""The result of judging rows that need not fit in memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..discoveries import CountedDiscoveries

RESULTS = {"score": "float64", "p_value": "float64", "q_value": "float64", "anomaly": "bool"}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ScaledDiscoveries(CountedDiscoveries):
    """The decision on rows that need not fit in memory.

    Attributes
    ----------
    frame : dask.dataframe.DataFrame
        Lazy: ``score``, ``p_value``, ``q_value`` and ``anomaly`` of every row, in the partitions
        and under the row labels of the input.
    output : Path or None
        The folder that was written, if a folder was judged.
    decision, rank_counts, guarantee, provenance, warning, ...
        As in every list of discoveries that was decided by counts.
    """

    frame: Any
    output: Path | None = None

    def _shown(self) -> list[str]:
        return [] if self.output is None else [f"written to {self.output}"]
