"""Dask's graphs, as collections and folders of files use them: tasks, and sums in a tree."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial, reduce
from typing import Any

import dask.config
from dask.base import compute as _compute
from dask.base import persist as _persist
from dask.delayed import delayed as _delayed
from dask.sizeof import sizeof

from ..detectors.auto.tally import LowScores
from ..statistics.choice import ChoiceCounts
from ..statistics.fdr import RankCounts

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
