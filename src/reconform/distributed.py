"""More rows than one machine holds: the same answers, row for row, through Dask.

With one detector, a row's rank depends on no other row, and n + 1 counts of ranks say everything
that the decision asks of all rows together. So pass one maps partitions to ranks, wherever they
are, and adds up counts; pass two marks the rows. Where one of several detectors is chosen for every
row, scores come before ranks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property, partial, reduce
from typing import Any, TypeVar, Unpack

from .extras import extra

extra("dask.dataframe", "dask", "reconform.distributed")

import dask.array as da
import dask.config
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.base import compute as _compute
from dask.base import persist as _persist
from dask.delayed import delayed as _delayed
from dask.sizeof import sizeof
from joblib import cpu_count
from sklearn.utils.validation import check_is_fitted

from .assumption import InOrder
from .assumption.order import MOST_RUNS, RUN
from .deciding import Observed
from .detector import ConformalDetector
from .discoveries import BaseDiscoveries, CountedDiscoveries
from .ensemble.split_choice import ChoiceSurvey
from .errors import ReconformError, listed
from .files.judge import check_grouped
from .parallel import share_of
from .rule import Rule, RuleOptions
from .scan import Parts, RowsPart, scan
from .statistics.fdr import Decision, RankCounts
from .statistics.ranks import Ranks

__all__ = ["DistributedDiscoveries", "discover"]

RESULTS = {"score": "float64", "p_value": "float64", "q_value": "float64", "anomaly": "bool"}

# Beside a certified list.
CERTIFIED = ("score", "p_value", "nominal_q_value", "anomaly")

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


FDR = 0.1
WHERE = "a Dask collection"


def discover(
    cad: ConformalDetector,
    data: Any,
    fdr: float | Fraction = FDR,
    *,
    groups: str | int | None = None,
    id_columns: Sequence[str] = (),
    rule: Rule | None = None,
    **options: Unpack[RuleOptions],
) -> DistributedDiscoveries:
    """Find anomalies among any number of rows, aiming at a false discovery rate.

    The answer is that of ``cad.discover`` on all rows at once, row for row, whatever the
    partitions; with ``method="auto"`` rows are counted first. Ranks are computed where the
    partitions are, by the Dask client or scheduler that the caller has chosen; only counts come
    here.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted.
    data : dask.dataframe.DataFrame or dask.array.Array
        The new rows. A frame must have the columns that `cad` was fitted with, in any order, and
        may have others. Ranks and scores, 12 bytes per row, wait between the passes in the memory
        of the workers; where a detector is chosen for every row, the scores of all detectors do.
    fdr : float, default=0.1
        False discovery rate aimed at.
    groups : str or int, optional
        The column of groups, where `cad` was fitted with groups; of an array the position.
    id_columns : sequence of str
        Columns that tell which row is which; they are carried through to `frame`.
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
    frame = _frame(data)
    cad, rule = _suited(cad, rule, frame)
    columns = _Columns.of(cad, data, id_columns, groups)
    source = _Partitions(cad, frame[columns.used], columns)
    if rule.whole_batch(cad) is not None:
        return _certified(cad, rule, source)
    with with_models():
        try:
            scanned = scan(cad, source)
        except KeyError as error:
            raise ReconformError(f"a partition of data lacks a column: {error}.") from error
    assert isinstance(scanned.ranked, Delayed)
    seen = Observed(together=scanned.together, choice=scanned.choice, in_order=source.in_order())
    found = cad.decide_counts(scanned.counts, rule, seen)
    marked = dd.from_delayed(
        scanned.ranked.later_with_ids(partial(_marked, found.decision)),
        meta=_empty(RESULTS, columns.ids, frame),
        divisions=frame.divisions if frame.known_divisions else None,
        verify_meta=False,
    )
    return DistributedDiscoveries(**vars(found), frame=marked)


def _suited(cad: ConformalDetector, rule: Rule, frame: Any) -> tuple[ConformalDetector, Rule]:
    """Return the detector that judges so many rows, and the rule as it is with it.

    Rules and detectors that need all rows in memory are refused where these are not few, before
    any row is read.
    """
    found = cad if cad.most_rows is None else cad.for_rows(len(frame))
    few = cad.most_rows is not None and found is cad
    rule = rule.resolved(found) if few else rule
    if not few or rule.whole_batch(found) is None:
        rule.counting_grid(found, WHERE, "whole" if few else "parts")
    return found, rule


def _certified(cad: ConformalDetector, rule: Rule, source: _Partitions) -> DistributedDiscoveries:
    """Certify the list of few rows, which takes all of them in memory."""
    source.whole()  # says what cannot be judged
    columns, here = source.columns, source.together()
    found = cad.decide(columns.rows(here), rule, groups=columns.groups(here))
    results = (found.scores, found.p_values, found.q_values, found.mask)
    marked = here[columns.ids].assign(**dict(zip(CERTIFIED, results, strict=True)))
    stops = np.cumsum([len(part) for part in source.computed])
    parts = [
        delayed(marked[stop - len(part) : stop])
        for stop, part in zip(stops, source.computed, strict=True)
    ]
    assert found.ranks is not None  # smoothed p-values are never certified
    counts = cad.no_counts().add(found.ranks)
    return DistributedDiscoveries(
        **{each.name: getattr(found, each.name) for each in fields(BaseDiscoveries)},
        decision=rule.decide_counts(counts, rule.grid(cad)),
        rank_counts=counts,
        certified=found,
        frame=dd.from_delayed(parts, meta=marked[:0], verify_meta=False),
    )


def _frame(data: Any) -> Any:
    if isinstance(data, da.Array):
        if data.ndim != 2:
            raise ReconformError(f"data must have two dimensions; got a Dask array of {data.ndim}.")
        return dd.from_dask_array(data)
    if isinstance(data, dd.DataFrame):
        return data
    raise ReconformError(
        f"data must be a Dask DataFrame or a Dask array; got {type(data).__name__}. Read files by "
        "dask.dataframe.read_parquet; for what is in memory use the detector's own methods."
    )


@dataclass(frozen=True)
class _Columns:
    """Which columns are looked at, which are carried through.

    Attributes
    ----------
    features, ids : list of labels
    group : label or None
        The column of groups.
    named : bool
        Whether the detector knows the features by name.
    """

    features: list[Any]
    ids: list[Any]
    group: Any
    named: bool

    @classmethod
    def of(
        cls, cad: ConformalDetector, data: Any, id_columns: Sequence[str], group: str | int | None
    ) -> _Columns:
        ids = list(id_columns)
        taken = [name for name in ids if name in {*RESULTS, *CERTIFIED}]
        if taken:
            raise ReconformError(
                f"id_columns must not have the names of results; got {listed(taken)}."
            )
        columns = list(_frame(data).columns)
        named = hasattr(cad, "feature_names_in_") and not isinstance(data, da.Array)
        if named:
            features = [str(name) for name in cad.feature_names_in_]
        else:
            features = [name for name in columns if name not in ids and name != group]
        more = ids if group is None else [*ids, group]
        gone = [name for name in [*features, *more] if name not in columns]
        if gone:
            raise ReconformError(f"data lacks {listed(gone)}; it has {listed(columns)}.")
        return cls(features, ids, group, named)

    @property
    def used(self) -> list[Any]:
        more = [] if self.group is None else [self.group]
        return list(dict.fromkeys([*self.features, *self.ids, *more]))

    def rows(self, part: pd.DataFrame) -> Any:
        """The features, as the detector knows them."""
        X = part[self.features]
        return X if self.named else X.to_numpy()

    def groups(self, part: pd.DataFrame) -> Any:
        """The labels of the groups, where there are any."""
        return None if self.group is None else part[self.group].to_numpy(dtype=object)


def _empty(columns: dict[str, str], ids: list[Any], frame: Any) -> pd.DataFrame:
    """No rows: the identifiers and row labels of a frame, and these columns."""
    empty: pd.DataFrame = frame._meta[ids].iloc[:0]
    return empty.assign(**{name: pd.Series(dtype=dtype) for name, dtype in columns.items()})


def _partitions(frame: Any) -> list[Any]:
    """Every partition, delayed: with only the columns that are used, and in as few tasks as can be.

    Tuned, Dask would also join partitions with few columns, and they would no longer be those of
    the input.
    """
    with dask.config.set({"optimization.tune.active": False}):
        return list(frame.optimize().to_delayed(optimize_graph=False))


# --- partitions as parts -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Partitions:
    """The partitions of a frame as a source of parts."""

    cad: ConformalDetector
    frame: Any
    columns: _Columns
    in_memory = False

    def _later(self, work: Callable[[RowsPart], Any]) -> Sequence[Any]:
        """Plan to do something to the rows of every partition."""
        # One node of the graph, which a worker gets once, with the detector in it.
        node = delayed(Work(partial(_judged, self.cad, self.columns, work)))
        meta = _empty({}, self.columns.ids, self.frame)
        # Mapped and not delayed, so that a partition is judged in the same task that reads it.
        return _partitions(
            self.frame.map_partitions(_on_rows, node, meta=meta, enforce_metadata=False)
        )

    def each(self, work: Callable[[RowsPart], U]) -> Delayed[U]:
        """As `Parts` has it."""
        return Delayed(persist(*self._later(work)))

    def total(self, work: Callable[[RowsPart], U], merge: Callable[[U, U], U]) -> U:
        """As `Parts` has it."""
        return Delayed[U](self._later(work)).total(_same, merge)

    def whole(self) -> RowsPart:
        """All rows, which are few."""
        whole = self.together()
        try:
            return self.cad.part_of(self.columns.rows(whole), self.columns.groups(whole))
        except (TypeError, ValueError) as error:
            raise ReconformError(f"data cannot be judged: {error}") from error

    def together(self) -> pd.DataFrame:
        """All rows as they came."""
        whole = pd.concat(self.computed)
        if not len(whole):
            raise ReconformError(NO_ROWS)
        return whole

    def in_order(self) -> InOrder | None:
        """The first rows of a few partitions, in their order.

        They are read once more; without ranks, the more normal half is that of the middle.
        """
        count = self.frame.npartitions
        few = sorted(set(np.linspace(0, count - 1, MOST_RUNS).astype(int).tolist()))
        heads = compute(*(self.frame.partitions[k].head(RUN, compute=False) for k in few))
        head = pd.concat(heads)
        if not len(head):
            return None
        part = self.cad.part_of(self.columns.rows(head), self.columns.groups(head))
        return InOrder(np.asarray(part.X), groups=part.groups)

    def cut(self, ranks: Ranks) -> Delayed[Ranks]:
        """The ranks of all rows, by partition."""
        parts = self.computed
        stops = np.cumsum([len(part) for part in parts])
        return Delayed(
            [
                delayed((part[self.columns.ids], ranks.taken(np.arange(stop - len(part), stop))))
                for stop, part in zip(stops, parts, strict=True)
            ]
        )

    @cached_property
    def computed(self) -> Sequence[pd.DataFrame]:
        """Every partition, in memory."""
        parts: Sequence[pd.DataFrame] = compute(*_partitions(self.frame))
        return parts


def _on_rows(part: pd.DataFrame, work: Work, partition_info: dict[str, Any]) -> Any:
    return work.call(part, partition_info["number"])


def _judged(
    cad: ConformalDetector,
    columns: _Columns,
    work: Callable[[RowsPart], Any],
    part: pd.DataFrame,
    number: int,
) -> tuple[pd.DataFrame, Any]:
    """Identifiers of a partition, and what is made of its rows; None if there are none."""
    if not len(part):
        return part[columns.ids], None
    try:
        # The partitions are the parallelism; within one there is no more of it.
        with share_of(cpu_count()):
            return part[columns.ids], work(cad.part_of(columns.rows(part), columns.groups(part)))
    except (TypeError, ValueError) as error:
        raise ReconformError(f"partition {number} of data cannot be judged: {error}") from error


def _same(found: U) -> U:
    return found


def _marked(decision: Decision, ids: pd.DataFrame, found: Ranks | None) -> pd.DataFrame:
    """The results of one partition."""
    ranks = np.empty(0, dtype=np.int64) if found is None else found.at_most
    results = (
        np.empty(0) if found is None else found.scores,
        decision.grid.values(ranks),
        decision.q_values(ranks),
        decision.mask(ranks),
    )
    return ids.assign(**dict(zip(RESULTS, results, strict=True)))
