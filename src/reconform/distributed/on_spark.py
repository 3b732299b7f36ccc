"""Spark DataFrames as parts: batches of Arrow are ranked on the executors, counts come here.

Ranks and scores become two columns beside the rows, persisted, so that no row is ranked twice
unless an executor is lost. Counts and surveys travel as pickled bytes from our own code on the
executors to the driver, added up in a tree.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from ..discoveries import Discoveries
from ..errors import ReconformError
from ..scan import Parts, RowsPart
from ..statistics.fdr import Decision
from ..statistics.ranks import Ranks
from . import NO_ROWS, RESULTS, DistributedRows, Work, certified_results, merged_or_other, results

# So many counts are merged at a time: a thousand parts are added up in four rounds.
MERGED_AT_ONCE = 8

RANK, SCORE, BLOB = "__reconform_rank", "__reconform_score", "blob"

T = TypeVar("T", covariant=True)
U = TypeVar("U")

Batches = Iterator[pa.RecordBatch]


def rows_of(data: Any) -> SparkRows:
    """The rows of a frame."""
    return SparkRows(data)


def _shared(frame: Any, value: U) -> Callable[[], U]:
    """Send a value to every executor once: broadcast, or with the tasks (Spark Connect)."""
    try:
        broadcast = frame.sparkSession.sparkContext.broadcast(value)
    except AttributeError:  # that of Spark Connect is one, too
        return lambda: value
    return lambda: broadcast.value


def _schema(frame: Any, names: Sequence[str], **more: str) -> Any:
    """The schema of some columns of a frame, and of more."""
    schema = deepcopy(frame.select(*(f"`{name}`" for name in names)).schema)
    for name, kind in more.items():
        schema.add(name, kind)
    return schema


def _extended(batch: pa.RecordBatch, columns: dict[str, Any]) -> pa.RecordBatch:
    arrays = [*batch.columns, *(pa.array(values) for values in columns.values())]
    return pa.RecordBatch.from_arrays(arrays, names=[*batch.schema.names, *columns])


def _total(frame: Any, value_of: Callable[[pa.RecordBatch], Any], merge: Any) -> Any:
    """Add up what comes of every batch, in a tree, so that nobody ever holds more than a few."""
    add = partial(merged_or_other, merge)

    def folded(values: Iterator[Any]) -> Batches:
        total = None
        for value in values:
            total = add(total, value)
        if total is not None:
            yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(total)])], names=[BLOB])

    def first(batches: Batches) -> Batches:
        return folded(value_of(batch) for batch in batches if batch.num_rows)

    def again(batches: Batches) -> Batches:
        return folded(pickle.loads(blob.as_py()) for batch in batches for blob in batch.column(0))

    blobs = frame.mapInArrow(first, f"{BLOB} binary").persist()
    try:
        left = blobs.count()
        merged = blobs
        while left > MERGED_AT_ONCE:
            left = -(-left // MERGED_AT_ONCE)
            merged = merged.repartition(left).mapInArrow(again, f"{BLOB} binary")
        total = None
        for row in merged.collect():
            total = add(total, pickle.loads(row[BLOB]))
    finally:
        blobs.unpersist()
    if total is None:
        raise ReconformError(NO_ROWS)
    return total


@dataclass(frozen=True, eq=False)
class SparkRanks(Parts[Ranks]):
    """Rows with their ranks and scores beside them."""

    frame: Any

    def each(self, work: Callable[[Ranks], U]) -> Parts[U]:
        """Nothing asks for it: ranks are counted, and then marked."""
        raise NotImplementedError

    def total(self, work: Callable[[Ranks], U], merge: Callable[[U, U], U]) -> U:
        """As `Parts` has it."""
        narrow = self.frame.select(RANK, SCORE)
        total: U = _total(narrow, lambda batch: work(_ranks_in(batch)), merge)
        return total


def _ranks_in(batch: pa.RecordBatch) -> Ranks:
    return Ranks(batch.column(RANK).to_numpy(), None, batch.column(SCORE).to_numpy())


@dataclass(frozen=True, eq=False)
class SparkRows(DistributedRows):
    """A frame as a source of parts."""

    name = "Spark"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Say what an executor says of rows that cannot be judged, without its traceback."""
        try:
            yield
        except Exception as error:
            said = re.search(r"ReconformError: ((?:.+\n?)+)", str(error))
            if said is None or isinstance(error, ReconformError):
                raise
            raise ReconformError(" ".join(said[1].split())) from None

    @property
    def carried(self) -> list[Any]:
        """Every column: rows of Spark have no labels."""
        return self.names

    def count(self) -> int:
        """How many rows there are."""
        return int(self.data.count())

    @property
    def _used(self) -> Any:
        return self.data.select(*(f"`{name}`" for name in self.columns.used))

    def each(self, work: Callable[[RowsPart], U]) -> Parts[U]:
        """The ranks of all rows; nothing else is made of each part."""
        shared = _shared(self.data, Work(self.cad, self.columns, work))

        def ranked(batches: Batches) -> Batches:
            for batch in batches:
                found = _done(shared(), batch)
                empty: Any = np.empty(0)
                values = (empty, empty) if found is None else (found.at_most, found.scores)
                added = {RANK: values[0].astype(np.int64), SCORE: values[1].astype(np.float64)}
                yield _extended(batch, added)

        schema = _schema(self.data, self.columns.used, **{RANK: "long", SCORE: "double"})
        frame = self._used.mapInArrow(ranked, schema)
        return SparkRanks(frame.persist())  # type: ignore[return-value]

    def total(self, work: Callable[[RowsPart], U], merge: Callable[[U, U], U]) -> U:
        """As `Parts` has it."""
        shared = _shared(self.data, Work(self.cad, self.columns, work))
        total: U = _total(self._used, lambda batch: _done(shared(), batch), merge)
        return total

    @cached_property
    def _table(self) -> pa.Table:
        return self._used.toArrow()

    def together(self) -> Any:
        """All rows as they came."""
        return self._table.to_pandas()

    def cut(self, ranks: Ranks) -> Parts[Ranks]:
        """The rows that were fetched, with the ranks beside them."""
        return SparkRanks(self._sent({RANK: ranks.at_most, SCORE: ranks.scores}))

    def _sent(self, columns: dict[str, Any]) -> Any:
        table = self._table
        for name, values in columns.items():
            table = table.append_column(name, pa.array(values))
        return self.data.sparkSession.createDataFrame(table)

    def marked(self, ranked: Parts[Ranks], decision: Decision) -> Any:
        """The identifiers of every row, and its results."""
        assert isinstance(ranked, SparkRanks)
        shared, ids = _shared(self.data, decision), self.columns.ids

        def marks(batches: Batches) -> Batches:
            for batch in batches:
                found = _ranks_in(batch)
                yield _extended(batch.select(ids), results(shared(), found.at_most, found.scores))

        kinds = dict.fromkeys(RESULTS, "double") | {"anomaly": "boolean"}
        return ranked.frame.mapInArrow(marks, _schema(ranked.frame, ids, **kinds))

    def with_results(self, found: Discoveries) -> Any:
        """The same of a list that was certified in memory."""
        columns = certified_results(found)
        sent = self._sent(columns)
        return sent.select(*(f"`{name}`" for name in [*self.columns.ids, *columns]))


def _done(work: Work, batch: pa.RecordBatch) -> Any:
    return work.done(pa.Table.from_batches([batch]).to_pandas(), "data")
