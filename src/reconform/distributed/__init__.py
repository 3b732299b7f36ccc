"""More rows than one machine holds: the same answers, row for row, on Dask or Spark.

All that a decision asks of the rows together is how many have each rank. So pass one ranks the
rows where they are, and adds up n + 1 counts; pass two marks them. Each engine is a source of rows
in parts (`reconform.scan`), and a row of `ENGINES`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from importlib import import_module
from typing import Any, Self, TypeVar, Unpack

import numpy as np
from joblib import cpu_count
from sklearn.utils.validation import check_is_fitted

from ..arrays import FloatArray
from ..assumption.order import InOrder
from ..deciding import Observed
from ..detector import ConformalDetector
from ..discoveries import BaseDiscoveries, CountedDiscoveries, Discoveries
from ..errors import ReconformError, listed
from ..files.judge import check_grouped
from ..parallel import share_of
from ..rule import Rule, RuleOptions
from ..scan import Parts, RowsPart, scan
from ..statistics.fdr import Decision
from ..statistics.ranks import Ranks

__all__ = ["DistributedDiscoveries", "discover"]

FDR = 0.1

# The package that a frame comes from, and the module that reads it.
ENGINES = {"dask": ".on_dask", "pyspark": ".on_spark"}


RESULTS = ("score", "p_value", "q_value", "anomaly")

# Beside a certified list.
CERTIFIED = ("score", "p_value", "nominal_q_value", "anomaly")

NO_ROWS = "data has no rows; give at least one row to judge."

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


def discover(
    cad: ConformalDetector,
    data: Any,
    fdr: float | Fraction = FDR,
    *,
    groups: str | int | None = None,
    times: str | int | None = None,
    id_columns: Sequence[str] = (),
    rule: Rule | None = None,
    **options: Unpack[RuleOptions],
) -> DistributedDiscoveries:
    """Find anomalies among any number of rows, aiming at a false discovery rate.

    The answer is that of ``cad.discover`` on all rows at once, row for row, whatever the
    partitions; with ``method="auto"`` rows are counted first. Ranks are computed where the
    partitions are, by the Dask client or the Spark session of the caller; only counts come here.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted.
    data : dask.dataframe.DataFrame, dask.array.Array or pyspark.sql.DataFrame
        The new rows. A frame must have the columns that `cad` was fitted with, in any order, and
        may have others. Ranks and scores, 12 bytes per row, wait between the passes in the memory
        of the workers.
    fdr : float, default=0.1
        False discovery rate aimed at.
    groups : str or int, optional
        The column of groups, where `cad` was fitted with groups; of an array the position.
    times : str or int, optional
        The column that says when every row was taken; of an array the position. For Dask.
    id_columns : sequence of str
        Columns that tell which row is which; they are carried through to `frame`. Of Spark, which
        has no row labels, all columns are if none are named.
    rule : Rule, optional
        The decision as a value, in place of `fdr` and the other keywords.
    **options
        All other keywords of ``cad.discover`` that are fields of a `Rule`.

    Returns
    -------
    DistributedDiscoveries
        `count` and `decision` are there; `frame` is lazy.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> cad = ConformalDetector("knn", "split", random_state=0).fit(rng.normal(size=(400, 2)))
    >>> new = np.vstack([rng.normal(size=(95, 2)), rng.normal(9, 1, size=(5, 2))])
    >>> found = discover(cad, da.from_array(new, chunks=(30, 2)), fdr=0.1)
    >>> found.count, found.frame.npartitions
    (5, 4)
    >>> int(found.frame["anomaly"].sum().compute())
    5
    """
    check_is_fitted(cad, "ensemble_")
    if rule is None:
        rule = Rule(fdr, **options)
    elif options or fdr != FDR:
        raise ReconformError("`rule` says how to decide; leave `fdr` and other keywords out.")
    check_grouped(cad, groups, "groups")
    source = _source(data)
    _check_order(cad, source, times)
    cad, rule = _suited(cad, rule, source)
    source = source.judged_by(cad, UsedColumns.of(cad, source, id_columns, groups, times))
    if rule.whole_batch(cad) is not None:
        return _certified(cad, rule, source)
    with source.running():
        scanned = scan(cad, source)
    seen = Observed(together=scanned.together, choice=scanned.choice, in_order=source.in_order())
    found = cad.decide_counts(scanned.counts, rule, seen)
    return DistributedDiscoveries(
        **vars(found), frame=source.marked(scanned.ranked, found.decision)
    )


def _check_order(cad: ConformalDetector, source: DistributedRows, times: Any) -> None:
    """Refuse units, whose rows may be apart, and times of rows without an order."""
    if cad.state_.units is not None:
        raise ReconformError(
            "`cad` was fitted on units, whose rows may lie in several partitions. Make one row of "
            "features of every unit and fit on these, or judge the rows in memory by "
            "`cad.discover`."
        )
    if times is not None and not source.has_order:
        raise ReconformError(
            "rows of Spark have no order to be tested; leave `times` out, and give those of the "
            "reference to `fit`."
        )


def _source(data: Any) -> DistributedRows:
    """The rows of a collection, by the engine that it belongs to."""
    package = type(data).__module__.partition(".")[0]
    if package not in ENGINES:
        raise ReconformError(
            "data must be a Dask DataFrame, a Dask array or a Spark DataFrame; got "
            f"{type(data).__name__}. Read files by dask.dataframe.read_parquet or "
            "spark.read.parquet; for what is in memory use the detector's own methods."
        )
    source: DistributedRows = import_module(ENGINES[package], __name__).rows_of(data)
    return source


def _suited(
    cad: ConformalDetector, rule: Rule, source: DistributedRows
) -> tuple[ConformalDetector, Rule]:
    """Return the detector that judges so many rows, and the rule as it is with it.

    Rules and detectors that need all rows in memory are refused where these are not few, before
    any row is read.
    """
    found = cad if cad.most_rows is None else cad.for_rows(source.count())
    few = cad.most_rows is not None and found is cad
    rule = rule.resolved(found) if few else rule
    if not few or rule.whole_batch(found) is None:
        rule.counting_grid(found, f"a {source.name} collection", "whole" if few else "parts")
    return found, rule


def _certified(
    cad: ConformalDetector, rule: Rule, source: DistributedRows
) -> DistributedDiscoveries:
    """Certify the list of few rows, which takes all of them in memory."""
    source.whole()  # says what cannot be judged
    columns, here = source.columns, source.together()
    found = cad.decide(columns.rows(here), rule, groups=columns.groups(here))
    assert found.ranks is not None  # smoothed p-values are never certified
    counts = cad.no_counts().add(found.ranks)
    return DistributedDiscoveries(
        **{each.name: getattr(found, each.name) for each in fields(BaseDiscoveries)},
        decision=rule.decide_counts(counts, rule.grid(cad)),
        rank_counts=counts,
        certified=found,
        frame=source.with_results(found),
    )
