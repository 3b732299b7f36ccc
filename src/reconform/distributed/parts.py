"""Rows in partitions of Dask as a source of parts, and the result of judging them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, TypeVar

import dask.config
from dask.base import compute as _compute
from dask.base import persist as _persist
from dask.delayed import delayed as _delayed
from dask.sizeof import sizeof

from ..discoveries import CountedDiscoveries
from ..ensemble.split_choice import ChoiceSurvey
from ..errors import ReconformError
from ..scan import Parts
from ..statistics.fdr import RankCounts

RESULTS = {"score": "float64", "p_value": "float64", "q_value": "float64", "anomaly": "bool"}

NO_ROWS = "data has no rows; give at least one row to judge."

# So many counts are merged at a time: a thousand parts are added up in four rounds.
MERGED_AT_ONCE = 8

T = TypeVar("T", covariant=True)
U = TypeVar("U")

# A task, or a node that holds a value. Not pure: to hash a fitted detector would take a while.
delayed: Callable[..., Any] = partial(_delayed, pure=False)
compute: Callable[..., Any] = _compute
persist: Callable[..., Any] = _persist

# The size of counts in bytes, from which Dask decides where to merge them.
_register: Callable[..., Any] = sizeof.register
_register(RankCounts, lambda counted: int(counted.counts.nbytes))
_register(ChoiceSurvey, lambda survey: survey.sample.nbytes)


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


@dataclass(frozen=True)
class Work:
    """What is done to every part: a node of the graph, so that a worker gets it once."""

    call: Callable[..., Any]


def _done(work: Work, part: tuple[Any, Any]) -> tuple[Any, Any]:
    ids, value = part
    return ids, None if value is None else work.call(value)


def _value(work: Work, part: tuple[Any, Any]) -> Any:
    return _done(work, part)[1]


def _merged(merge: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    """Add up two parts, of which either may be empty."""
    return other if one is None else one if other is None else merge(one, other)


@dataclass(frozen=True, eq=False)
class Delayed(Parts[T]):
    """Identifiers and something else of every partition, which wait in the memory of the workers.

    A partition without rows has None.
    """

    parts: Sequence[Any]

    def each(self, work: Callable[[T], U]) -> Delayed[U]:
        """As `Parts` has it."""
        node, task = delayed(Work(work)), delayed(_done)
        return Delayed(persist(*(task(node, part) for part in self.parts)))

    def total(self, work: Callable[[T], U], merge: Callable[[U, U], U]) -> U:
        """As `Parts` has it."""
        node, task = delayed(Work(work)), delayed(_value)
        values = [task(node, part) for part in self.parts]
        found: U | None = merged(values, partial(_merged, merge)).compute()
        if found is None:
            raise ReconformError(NO_ROWS)
        return found

    def later_with_ids(self, work: Callable[[Any, Any], Any]) -> Sequence[Any]:
        """Plan to make something of the identifiers and values of every part."""
        node, task = delayed(Work(work)), delayed(_with_ids)
        return [task(node, part) for part in self.parts]


def _with_ids(work: Work, part: tuple[Any, Any]) -> Any:
    return work.call(*part)


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
