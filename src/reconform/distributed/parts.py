"""Rows in parts: Dask's tasks and sums in a tree, what parts add up to, and the result.

Where a detector is chosen for every row, on a split, the choice needs no more of the other rows
than counts of their scores, and the scores themselves where a list may end
(`reconform.detectors.auto.tally`). Every part is scored once; the scores are then counted, looked
through for those few, and ranked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import dask.config
from dask.base import compute as _compute
from dask.base import persist as _persist
from dask.delayed import delayed as _delayed
from dask.sizeof import sizeof

from ..detector import ConformalDetector
from ..detectors.auto.tally import LowScores
from ..discoveries import CountedDiscoveries
from ..errors import ReconformError
from ..rule import Rule
from ..statistics.choice import ChoiceCounts
from ..statistics.fdr import RankCounts
from ..statistics.ranks import Ranks
from ..steps.deciding import Observed

RESULTS = {"score": "float64", "p_value": "float64", "q_value": "float64", "anomaly": "bool"}

# So many counts are merged at a time: a thousand parts are added up in four rounds.
MERGED_AT_ONCE = 8

# A task, or a node that holds a value. Not pure: to hash a fitted detector would take a while.
delayed: Callable[..., Any] = partial(_delayed, pure=False)
compute: Callable[..., Any] = _compute
persist: Callable[..., Any] = _persist

# The size of counts in bytes, from which Dask decides where to merge them.
_register: Callable[..., Any] = sizeof.register
_register(RankCounts, lambda counts: int(counts.counts.nbytes))
_register(ChoiceCounts, lambda counts: int(2 * counts.by_rank.nbytes))
_register(LowScores, lambda low: low.nbytes)


def merged(parts: Sequence[Any], merge: Callable[[Any, Any], Any]) -> Any:
    """Add up delayed parts in a tree, so that no worker ever holds more than a few of them.

    Examples
    --------
    >>> import operator
    >>> merged([delayed(i) for i in range(100)], operator.add).compute()
    4950
    """
    fold = delayed(reduce)
    while len(parts) > 1:
        steps = range(0, len(parts), MERGED_AT_ONCE)
        parts = [fold(merge, list(parts[i : i + MERGED_AT_ONCE])) for i in steps]
    return parts[0]


def with_models() -> AbstractContextManager[Any]:
    """Keep Dask from warning that a graph is large: it holds the fitted detector.

    The detector is a node of the graph and not data scattered beforehand: what was scattered is
    lost with the worker that holds it, and what is in the graph is sent again.
    """
    if "distributed" not in sys.modules:  # the warning comes from there, and so does the setting
        return nullcontext()
    quiet: AbstractContextManager[Any] = dask.config.set(
        {"distributed.admin.large-graph-warning-threshold": "1 TiB"}
    )
    return quiet


def suited(
    cad: ConformalDetector, rule: Rule, where: str, rows: Callable[[], int]
) -> ConformalDetector:
    """Return the detector that judges so many rows; refuse a rule or detector that cannot.

    Rows are counted only where the method depends on that (``method="auto"``).
    """
    if cad.uses_batch and not cad.chooses:
        rule.counting_grid(cad, where)  # refuses it, before rows are counted
    found = cad if cad.most_rows is None else cad.for_rows(rows())
    # All rows at once are in memory only where they are known to be few.
    few = cad.most_rows is not None and found is cad
    if found.chooses and found.joint is not None and not few:
        raise ReconformError(
            f"{where} is judged in parts, and a detector is chosen for each row within its group "
            "only with all rows in memory; use discover(X, groups=...), judge_file, or a single "
            "detector such as 'knn'."
        )
    rule.counting_grid(found, where, together=found.chooses and (few or found.tally() is not None))
    return found


@dataclass(frozen=True, eq=False)
class Counted:
    """What the decision needs of all rows.

    Attributes
    ----------
    ranks : RankCounts
    choice : ChoiceCounts or None
        Where a detector was chosen for every row.
    together : Ranks or None
        Where all rows were ranked at once, in memory.
    """

    ranks: RankCounts
    choice: ChoiceCounts | None = None
    together: Ranks | None = None

    @property
    def observed(self) -> Observed:
        """What the decision takes beside the counts."""
        return Observed(together=self.together, choice=self.choice)

    @classmethod
    def of(cls, found: Ranks, none: RankCounts) -> Counted:
        """Count the rows of one part, beginning with `none`."""
        counts = none.add(found.at_most)
        if found.choice is None:
            return cls(counts)
        chosen = ChoiceCounts(found.choice.names, none.n_calibration).add(found.choice)
        return cls(counts, chosen)

    def merge(self, other: Counted) -> Counted:
        """Add up two parts."""
        ranks = self.ranks.merge(other.ranks)
        if self.choice is None or other.choice is None:
            return Counted(ranks)
        return Counted(ranks, self.choice.merge(other.choice))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DistributedDiscoveries(CountedDiscoveries):
    """The decision on rows that need not fit in memory.

    Attributes
    ----------
    frame : dask.dataframe.DataFrame
        Lazy: ``score``, ``p_value``, ``q_value`` and ``anomaly`` of every row, in the partitions
        and under the row labels of the input.
    decision, rank_counts, guarantee, provenance, warning, ...
        As in every list of discoveries that was decided by counts.
    """

    frame: Any
