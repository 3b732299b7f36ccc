"""Partitions of Dask as parts: what comes of them waits in the memory of the workers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, TypeVar

import dask.array as da
import dask.config
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.base import compute as _compute
from dask.base import persist as _persist
from dask.delayed import delayed as _delayed
from dask.sizeof import sizeof

from ..assumption.order import MOST_RUNS, RUN, InOrder, seconds_of
from ..discoveries import Discoveries
from ..ensemble.split_choice import ChoiceSurvey
from ..errors import ReconformError
from ..scan import Parts, RowsPart
from ..statistics.fdr import Decision, RankCounts
from ..statistics.ranks import Ranks
from . import (
    NO_ROWS,
    RESULTS,
    DistributedRows,
    Work,
    certified_results,
    merged_or_other,
    part_of,
    results,
)

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


def rows_of(data: Any) -> DaskRows:
    """The rows of a frame or an array."""
    if isinstance(data, dd.DataFrame):
        return DaskRows(data)
    if not isinstance(data, da.Array):
        raise ReconformError(
            f"data must be a Dask DataFrame or a Dask array; got {type(data).__name__}. Read files "
            "by dask.dataframe.read_parquet."
        )
    if data.ndim != 2:
        raise ReconformError(f"data must have two dimensions; got a Dask array of {data.ndim}.")
    return DaskArrayRows(dd.from_dask_array(data))


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
class _Call:
    """A function as a node of the graph, so that a worker gets it once."""

    call: Callable[..., Any]


def _value(node: _Call, part: tuple[Any, Any]) -> Any:
    _, value = part
    return None if value is None else node.call(value)


def _with_ids(node: _Call, part: tuple[Any, Any]) -> Any:
    return node.call(*part)


@dataclass(frozen=True, eq=False)
class Delayed(Parts[T]):
    """Identifiers and something else of every partition; None of one without rows."""

    parts: Sequence[Any]

    def each(self, work: Callable[[T], U]) -> Delayed[U]:
        """As `Parts` has it."""
        node, task = delayed(_Call(work)), delayed(lambda n, part: (part[0], _value(n, part)))
        return Delayed(persist(*(task(node, part) for part in self.parts)))

    def total(self, work: Callable[[T], U], merge: Callable[[U, U], U]) -> U:
        """As `Parts` has it."""
        node, task = delayed(_Call(work)), delayed(_value)
        values = [task(node, part) for part in self.parts]
        found: U | None = merged(values, partial(merged_or_other, merge)).compute()
        if found is None:
            raise ReconformError(NO_ROWS)
        return found

    def later_with_ids(self, work: Callable[[Any, Any], Any]) -> Sequence[Any]:
        """Plan to make something of the identifiers and values of every part."""
        node, task = delayed(_Call(work)), delayed(_with_ids)
        return [task(node, part) for part in self.parts]


@dataclass(frozen=True, eq=False)
class DaskRows(DistributedRows):
    """The partitions of a frame as a source of parts."""

    name = "Dask"
    has_order = True

    def count(self) -> int:
        """How many rows there are."""
        return len(self.data)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Say it if a partition is not what the collection says it is."""
        with _large_graphs():
            try:
                yield
            except KeyError as error:
                raise ReconformError(f"a partition of data lacks a column: {error}.") from error

    def _later(self, work: Callable[[RowsPart], Any]) -> Sequence[Any]:
        """Plan to do something to the rows of every partition."""
        # One node of the graph, which a worker gets once, with the detector in it.
        node = delayed(_Call(partial(_judged, Work(self.cad, self.columns, work))))
        # Mapped and not delayed, so that a partition is judged in the same task that reads it.
        return _partitions(
            self._used.map_partitions(_on_rows, node, meta=self._empty(()), enforce_metadata=False)
        )

    @property
    def _used(self) -> Any:
        return self.data[self.columns.used]

    def _empty(self, columns: Sequence[str]) -> pd.DataFrame:
        """No rows: the identifiers and row labels, and these columns."""
        empty: pd.DataFrame = self.data._meta[self.columns.ids].iloc[:0]
        types = {name: bool if name == "anomaly" else float for name in columns}
        return empty.assign(**{name: pd.Series(dtype=kind) for name, kind in types.items()})

    def each(self, work: Callable[[RowsPart], U]) -> Delayed[U]:
        """As `Parts` has it."""
        return Delayed(persist(*self._later(work)))

    def total(self, work: Callable[[RowsPart], U], merge: Callable[[U, U], U]) -> U:
        """As `Parts` has it."""
        return Delayed[U](self._later(work)).total(_same, merge)

    def together(self) -> pd.DataFrame:
        """All rows as they came."""
        return pd.concat(self._computed)

    def in_order(self) -> InOrder | None:
        """The first rows of a few partitions, in their order.

        They are read once more; without ranks, the more normal half is that of the middle.
        """
        frame = self._used
        few = sorted(set(np.linspace(0, frame.npartitions - 1, MOST_RUNS).astype(int).tolist()))
        heads = compute(*(frame.partitions[k].head(RUN, compute=False) for k in few))
        head = pd.concat(heads)
        if not len(head):
            return None
        part = part_of(self.cad, self.columns, head, "data")
        time = self.columns.time
        times = None if time is None else seconds_of(head[time], len(head))
        return InOrder(np.asarray(part.X), times=times, groups=part.groups)

    def cut(self, ranks: Ranks) -> Delayed[Ranks]:
        """The ranks of all rows, by partition."""
        ids = self.columns.ids
        return Delayed(
            [delayed((part[ids], ranks.taken(np.arange(*at)))) for part, at in self._placed()]
        )

    def _placed(self) -> Iterator[tuple[pd.DataFrame, tuple[int, int]]]:
        stop = 0
        for part in self._computed:
            stop += len(part)
            yield part, (stop - len(part), stop)

    @cached_property
    def _computed(self) -> Sequence[pd.DataFrame]:
        """Every partition, in memory."""
        parts: Sequence[pd.DataFrame] = compute(*_partitions(self._used))
        return parts

    def marked(self, ranked: Parts[Ranks], decision: Decision) -> Any:
        """The results of every partition, in its order and under its labels."""
        assert isinstance(ranked, Delayed)
        return dd.from_delayed(
            ranked.later_with_ids(partial(_marked, decision)),
            meta=self._empty(RESULTS),
            divisions=self.data.divisions if self.data.known_divisions else None,
            verify_meta=False,
        )

    def with_results(self, found: Discoveries) -> Any:
        """The same of a list that was certified in memory."""
        whole = self.together()[self.columns.ids].assign(**certified_results(found))
        parts = [delayed(whole[slice(*at)]) for _, at in self._placed()]
        return dd.from_delayed(parts, meta=whole[:0], verify_meta=False)


class DaskArrayRows(DaskRows):
    """An array, whose columns have positions and no names."""

    has_names = False


def _large_graphs() -> AbstractContextManager[Any]:
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


def _partitions(frame: Any) -> list[Any]:
    """Every partition, delayed: with only the columns that are used, and in as few tasks as can be.

    Tuned, Dask would also join partitions with few columns, and they would no longer be those of
    the input.
    """
    with dask.config.set({"optimization.tune.active": False}):
        return list(frame.optimize().to_delayed(optimize_graph=False))


def _on_rows(part: pd.DataFrame, node: _Call, partition_info: dict[str, Any]) -> Any:
    return node.call(part, partition_info["number"])


def _judged(work: Work, part: pd.DataFrame, number: int) -> tuple[pd.DataFrame, Any]:
    """Identifiers of a partition, and what is made of its rows."""
    return part[work.columns.ids], work.done(part, f"partition {number} of data")


def _same(found: U) -> U:
    return found


def _marked(decision: Decision, ids: pd.DataFrame, found: Ranks | None) -> pd.DataFrame:
    """The results of one partition."""
    if found is None:
        return ids.assign(**results(decision, [], np.empty(0)))
    return ids.assign(**results(decision, found.at_most, found.scores))
