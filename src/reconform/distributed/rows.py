"""Dask DataFrames and arrays: ranks by partition, counts in a tree, marks when asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, NoReturn, TypeVar, Unpack

import dask.array as da
import dask.config
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.utils import format_bytes, parse_bytes
from joblib import cpu_count
from sklearn.utils.validation import check_is_fitted

from ..detector import ConformalDetector
from ..errors import ReconformError, listed
from ..files.judge import check_grouped
from ..listing import Observed
from ..parallel import share_of
from ..rule import Rule, RuleOptions
from ..scan import RowsPart, scan
from ..statistics.fdr import Decision
from ..statistics.ranks import Ranks
from .parts import (
    NO_ROWS,
    RESULTS,
    Delayed,
    DistributedDiscoveries,
    Work,
    compute,
    delayed,
    persist,
    with_models,
)

FDR = 0.1
WHERE = "a Dask collection"

U = TypeVar("U")


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
        All other keywords of ``cad.discover`` that are fields of a `Rule`. What needs the whole
        batch in memory is refused.

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
    cad = _suited(cad, rule, frame)
    columns = _Columns.of(cad, data, id_columns, groups)
    source = _Partitions(cad, frame[columns.used], columns)
    with with_models():
        try:
            scanned = scan(cad, source)
        except KeyError as error:
            _refuse_lacking(frame, columns, error)
    ranked = scanned.ranked
    assert isinstance(ranked, Delayed)
    observed = Observed(together=scanned.together, choice=scanned.choice)
    found = cad.decide_counts(scanned.counts, rule, observed)
    marked = dd.from_delayed(
        ranked.later_with_ids(partial(_marked, found.decision)),
        meta=_empty(RESULTS, columns.ids, frame),
        divisions=frame.divisions if frame.known_divisions else None,
        verify_meta=False,
    )
    return DistributedDiscoveries(**vars(found), frame=marked)


def _suited(cad: ConformalDetector, rule: Rule, frame: Any) -> ConformalDetector:
    """Return the detector that judges so many rows.

    Rules and detectors that need all rows in memory are refused where these are not few, before
    any row is read.
    """
    if cad.most_rows is None:
        rule.counting_grid(cad, WHERE)
        return cad
    found = cad.for_rows(len(frame))
    rule.counting_grid(found, WHERE, "whole" if found is cad else "parts")
    return found


def fit(
    cad: ConformalDetector,
    data: Any,
    *,
    groups: str | int | None = None,
    budget: int | str = "1 GiB",
) -> ConformalDetector:
    """Fit on a Dask DataFrame or array of normal rows, if it fits in memory here.

    Parameters
    ----------
    cad : ConformalDetector
    data : dask.dataframe.DataFrame or dask.array.Array
        Normal rows.
    groups : str or int, optional
        The column with the group of every row, which is then no feature; of an array the position.
    budget : int or str, default="1 GiB"
        Bytes that the reference may take as float64, also as ``"500 MB"``; what fitting itself
        takes comes on top.

    Returns
    -------
    ConformalDetector
        `cad`, fitted.

    Examples
    --------
    >>> rows = da.from_array(np.random.default_rng(0).normal(size=(200, 3)), chunks=(50, 3))
    >>> fit(ConformalDetector("knn", "split"), rows).n_calibration_
    100
    >>> fit(ConformalDetector("knn", "split"), rows, budget="4 kB")
    Traceback (most recent call last):
        ...
    reconform.errors.ReconformError: the reference of 200 rows and 3 columns takes 4.69 kiB as
    float64, more than budget=3.91 kiB. Give a larger budget, or fit on a share of 0.79 of its rows
    drawn at random.
    """
    frame = _frame(data)
    allowed = parse_bytes(budget)
    rows, columns = len(frame), len(frame.columns)
    if (size := 8 * rows * columns) > allowed:
        raise ReconformError(
            f"the reference of {rows:,} rows and {columns:,} columns takes {format_bytes(size)} as "
            f"float64, more than budget={format_bytes(allowed)}. Give a larger budget, or fit on a "
            f"share of {0.95 * allowed / size:.2g} of its rows drawn at random."
        )
    if groups is None:
        return cad.fit(data.compute())
    if groups not in frame.columns:
        raise ReconformError(f"data lacks {groups!r}; it has {listed(frame.columns)}.")
    here = frame.compute()
    labels, X = here[groups].to_numpy(dtype=object), here.drop(columns=groups)
    return cad.fit(X.to_numpy() if isinstance(data, da.Array) else X, groups=labels)


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
        taken = [name for name in ids if name in set(RESULTS)]
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

    def check(self, part: pd.DataFrame, number: int) -> None:
        """Refuse a partition that is unlike the others."""
        gone = [name for name in self.used if name not in part.columns]
        if gone:
            raise ReconformError(
                f"partition {number} of data lacks {listed(gone)}, which other partitions have."
            )

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
        parts = self._computed
        whole = pd.concat(parts)
        if not len(whole):
            raise ReconformError(NO_ROWS)
        try:
            return self.cad.part_of(self.columns.rows(whole), self.columns.groups(whole))
        except (TypeError, ValueError) as error:
            raise ReconformError(f"data cannot be judged: {error}") from error

    def cut(self, ranks: Ranks) -> Delayed[Ranks]:
        """The ranks of all rows, by partition."""
        parts = self._computed
        stops = np.cumsum([len(part) for part in parts])
        return Delayed(
            [
                delayed((part[self.columns.ids], ranks.taken(np.arange(stop - len(part), stop))))
                for stop, part in zip(stops, parts, strict=True)
            ]
        )

    @cached_property
    def _computed(self) -> Sequence[pd.DataFrame]:
        parts: Sequence[pd.DataFrame] = compute(*_partitions(self.frame))
        for number, part in enumerate(parts):
            self.columns.check(part, number)
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
    columns.check(part, number)
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


def _refuse_lacking(frame: Any, columns: _Columns, error: KeyError) -> NoReturn:
    """Say which partition lacks a column: by another look, since Dask's error does not know."""
    check = delayed(columns.check)
    compute(*(check(part, number) for number, part in enumerate(_partitions(frame))))
    raise error


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
