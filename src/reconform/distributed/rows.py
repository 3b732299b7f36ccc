"""What the engines share: which columns are used, what is added to the rows, what a source owes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
from joblib import cpu_count

from ..arrays import FloatArray
from ..assumption import InOrder
from ..detector import ConformalDetector
from ..discoveries import CountedDiscoveries, Discoveries
from ..errors import ReconformError, listed
from ..parallel import share_of
from ..scan import Parts, RowsPart
from ..statistics.fdr import Decision
from ..statistics.ranks import Ranks

RESULTS = ("score", "p_value", "q_value", "anomaly")

# Beside a certified list.
CERTIFIED = ("score", "p_value", "nominal_q_value", "anomaly")

NO_ROWS = "data has no rows; give at least one row to judge."

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class DistributedDiscoveries(CountedDiscoveries):
    """The decision on rows that need not fit in memory.

    Attributes
    ----------
    frame : dask.dataframe.DataFrame or pyspark.sql.DataFrame
        Lazy: ``score``, ``p_value``, ``q_value`` and ``anomaly`` of every row. On Dask in the
        partitions and under the row labels of the input, on Spark beside its columns.
    decision, rank_counts, guarantee, provenance, warning, ...
        As in every list of discoveries that was decided by counts.
    """

    frame: Any


@dataclass(frozen=True)
class UsedColumns:
    """Which columns are looked at, which are carried through.

    Attributes
    ----------
    features, ids : list of labels
    group, time : label or None
        The columns of groups and of times.
    named : bool
        Whether the detector knows the features by name.
    """

    features: list[Any]
    ids: list[Any]
    group: Any
    time: Any
    named: bool

    @classmethod
    def of(
        cls,
        cad: ConformalDetector,
        source: DistributedRows,
        id_columns: Sequence[str],
        group: str | int | None,
        time: str | int | None = None,
    ) -> UsedColumns:
        """Match the columns of a collection with those that the detector was fitted with."""
        columns, ids = source.names, list(id_columns) or source.carried
        taken = [name for name in ids if name in {*RESULTS, *CERTIFIED}]
        if taken:
            raise ReconformError(
                f"id_columns must not have the names of results; got {listed(taken)}."
            )
        named = hasattr(cad, "feature_names_in_") and source.has_names
        if named:
            features = [str(name) for name in cad.feature_names_in_]
        else:
            features = [name for name in columns if name not in [*id_columns, group, time]]
        more = [*ids, *(name for name in (group, time) if name is not None)]
        gone = [name for name in [*features, *more] if name not in columns]
        if gone:
            raise ReconformError(f"data lacks {listed(gone)}; it has {listed(columns)}.")
        return cls(features, ids, group, time, named)

    @property
    def used(self) -> list[Any]:
        """All of them, once."""
        more = [name for name in (self.group, self.time) if name is not None]
        return list(dict.fromkeys([*self.features, *self.ids, *more]))

    def rows(self, part: Any) -> Any:
        """The features of a pandas frame, as the detector knows them."""
        X = part[self.features]
        return X if self.named else X.to_numpy()

    def groups(self, part: Any) -> Any:
        """The labels of the groups, where there are any."""
        return None if self.group is None else part[self.group].to_numpy(dtype=object)


@dataclass(frozen=True, eq=False)
class DistributedRows(ABC):
    """The rows of a collection as a source of parts; see `reconform.scan.RowSource`.

    Attributes
    ----------
    data : dask or Spark frame
    cad : ConformalDetector
        The one that judges the rows; None until it is known how many they are.
    columns : UsedColumns
    """

    data: Any
    cad: ConformalDetector = None  # type: ignore[assignment]
    columns: UsedColumns = None  # type: ignore[assignment]

    name = ""
    in_memory = False
    has_names = True
    has_order = False

    def judged_by(self, cad: ConformalDetector, columns: UsedColumns) -> Self:
        """The same rows, for a detector."""
        return replace(self, cad=cad, columns=columns)

    @property
    def names(self) -> list[Any]:
        """The names of all columns."""
        return list(self.data.columns)

    @property
    def carried(self) -> list[Any]:
        """The columns that are carried through where none are named."""
        return []

    @abstractmethod
    def count(self) -> int:
        """How many rows there are."""

    @abstractmethod
    def each(self, work: Callable[[RowsPart], U]) -> Parts[U]:
        """As `Parts` has it."""

    @abstractmethod
    def total(self, work: Callable[[RowsPart], U], merge: Callable[[U, U], U]) -> U:
        """As `Parts` has it."""

    @abstractmethod
    def cut(self, ranks: Ranks) -> Parts[Ranks]:
        """The ranks of all rows, which are few and have been ranked together."""

    @abstractmethod
    def together(self) -> Any:
        """All rows as they came, which are few, as a pandas frame."""

    @abstractmethod
    def marked(self, ranked: Parts[Ranks], decision: Decision) -> Any:
        """A lazy frame of what became of every row."""

    @abstractmethod
    def with_results(self, found: Discoveries) -> Any:
        """The same of a list that was certified in memory."""

    def in_order(self) -> InOrder | None:
        """Some of the rows in their order, where they have one."""
        return None

    def running(self) -> AbstractContextManager[Any]:
        """What holds while the cluster works."""
        return nullcontext()

    def whole(self) -> RowsPart:
        """All rows, which are few."""
        return self._whole

    @cached_property
    def _whole(self) -> RowsPart:
        whole = self.together()
        if not len(whole):
            raise ReconformError(NO_ROWS)
        return part_of(self.cad, self.columns, whole, "data")


def part_of(cad: ConformalDetector, columns: UsedColumns, part: Any, name: str) -> RowsPart:
    """The rows of a pandas frame as the detector sees them; say which part cannot be judged."""
    try:
        return cad.part_of(columns.rows(part), columns.groups(part))
    except (TypeError, ValueError) as error:
        raise ReconformError(f"{name} cannot be judged: {error}") from error


@dataclass(frozen=True)
class Work:
    """What is done to every part, with all that it needs: sent to a worker once.

    Attributes
    ----------
    cad : ConformalDetector
    columns : UsedColumns
    call : callable
        What is made of the rows of a part.
    """

    cad: ConformalDetector
    columns: UsedColumns
    call: Callable[[RowsPart], Any]

    def done(self, part: Any, name: str) -> Any:
        """Do it to a pandas frame; None if that has no rows."""
        if not len(part):
            return None
        # The partitions are the parallelism; within one there is no more of it.
        with share_of(cpu_count()):
            return self.call(part_of(self.cad, self.columns, part, name))


def results(decision: Decision, ranks: Any, scores: FloatArray) -> dict[str, Any]:
    """The columns that are added to rows of these ranks."""
    ranks = np.asarray(ranks, dtype=np.int64)
    values = (scores, decision.grid.values(ranks), decision.q_values(ranks), decision.mask(ranks))
    return dict(zip(RESULTS, values, strict=True))


def certified_results(found: Discoveries) -> dict[str, Any]:
    """The columns that are added to rows of a certified list."""
    return dict(
        zip(CERTIFIED, (found.scores, found.p_values, found.q_values, found.mask), strict=True)
    )


def merged_or_other(merge: Callable[[U, U], U], one: U | None, other: U | None) -> U | None:
    """Add up two parts, of which either may be empty."""
    return other if one is None else one if other is None else merge(one, other)
