"""Functions on arrays: ranks, grids, procedures, e-values, bounds. Nothing here knows of detectors.

For people who bring their own scores: `ranks_of`, `p_values_of`, `adjust`; and `reconform.Rule`
decides on p-values.
"""

from __future__ import annotations

from .fdr import PROCEDURES, RankCounts, adjust
from .scores import p_values_of, ranks_of

__all__ = ["PROCEDURES", "RankCounts", "adjust", "p_values_of", "ranks_of"]
