"""More rows than one machine holds: the same answers, row for row, through Dask.

With one detector, a row's rank depends on no other row, and n + 1 counts of ranks say everything
that the decision asks of all rows together. So pass one maps parts of the rows to ranks, wherever
they are, and adds up counts; pass two marks the rows. Where one of several detectors is chosen for
every row, scores come before ranks (`parts`).
"""

from __future__ import annotations

from ..extras import extra

extra("dask.dataframe", "dask", "reconform.distributed")

from .parts import DistributedDiscoveries
from .rows import discover, fit

__all__ = ["DistributedDiscoveries", "discover", "fit"]
