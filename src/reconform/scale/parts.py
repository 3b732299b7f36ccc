"""Rows in partitions of Dask as a source of parts, and the result of judging them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Generic, TypeVar

import dask.config
from dask.base import compute as _compute
from dask.base import persist as _persist
from dask.delayed import delayed as _delayed
from dask.sizeof import sizeof

from ..detectors.auto.survey import ChoiceSurvey
from ..discoveries import CountedDiscoveries
from ..scan import Counted

RESULTS = {"score": "float64", "p_value": "float64", "q_value": "float64", "anomaly": "bool"}

# So many counts are merged at a time: a thousand parts are added up in four rounds.
MERGED_AT_ONCE = 8

T = TypeVar("T")
U = TypeVar("U")

# A task, or a node that holds a value. Not pure: to hash a fitted detector would take a while.
delayed: Callable[..., Any] = partial(_delayed, pure=False)
compute: Callable[..., Any] = _compute
persist: Callable[..., Any] = _persist

# The size of counts in bytes, from which Dask decides where to merge them.
_register: Callable[..., Any] = sizeof.register
_register(Counted, lambda counted: int(counted.ranks.counts.nbytes))
_register(ChoiceSurvey, lambda survey: survey.low.nbytes)


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
class _Work:
    """What is done to every part: a node of the graph, so that a worker gets it once."""

    call: Callable[[Any], Any]


def _done(work: _Work, part: Any) -> Any:
    return work.call(part)


@dataclass(frozen=True, eq=False)
class Delayed(Generic[T]):
    """Something of every partition, which waits in the memory of the workers."""

    parts: Sequence[Any]

    def later(self, work: Callable[[T], Any]) -> Sequence[Any]:
        """Plan to do something to every part."""
        node, task = delayed(_Work(work)), delayed(_done)
        return [task(node, part) for part in self.parts]

    def each(self, work: Callable[[T], U]) -> Delayed[U]:
        """As `Parts` has it."""
        return Delayed(persist(*self.later(work)))

    def total(self, work: Callable[[T], U], merge: Callable[[U, U], U]) -> U:
        """As `Parts` has it."""
        found: U = merged(self.later(work), merge).compute()
        return found


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
class ScaledDiscoveries(CountedDiscoveries):
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
