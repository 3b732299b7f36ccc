"""Dask DataFrames and arrays: ranks by partition, counts in a tree, marks when asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NoReturn, TypeVar, Unpack

import dask.array as da
import dask.config
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.utils import format_bytes, parse_bytes
from joblib import cpu_count
from sklearn.utils.validation import check_is_fitted

from ..arrays import BoolArray, FloatArray
from ..detector import ConformalDetector
from ..detectors.auto.tally import Chooser, Gauge, LowScores
from ..errors import ReconformError, listed
from ..files.judge import check_grouped
from ..parallel import share_of
from ..rule import Rule, RuleOptions
from ..statistics.fdr import Decision, RankCounts
from ..statistics.ranks import Ranks
from .parts import (
    RESULTS,
    Counted,
    DistributedDiscoveries,
    compute,
    delayed,
    merged,
    persist,
    suited,
    with_models,
)

FDR = 0.1
RANKS = {"rank": "int32", "score": "float64"}
NO_ROWS = "data has no rows; give at least one row to judge."

Found = TypeVar("Found")


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
    cad = suited(cad, rule, "a Dask collection", lambda: len(frame))
    columns = _Columns.of(cad, data, id_columns, groups)
    ranked, counted = _ranked(cad, frame, columns)
    found = cad.decide_counts(counted.ranks, rule, counted.observed)
    return DistributedDiscoveries(
        **vars(found), frame=_marked(ranked, found.decision, frame, columns)
    )


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
        taken = [name for name in ids if name in {*RANKS, *RESULTS}]
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

    def judged(
        self, part: pd.DataFrame, number: int, judge: Callable[[Any, Any], Found], nothing: Found
    ) -> Found:
        """What a detector says of the rows and groups of a partition; `nothing`, if it is empty."""
        self.check(part, number)
        if not len(part):
            return nothing
        try:
            # The partitions are the parallelism; within one there is no more of it.
            with share_of(cpu_count()):
                return judge(self.rows(part), self.groups(part))
        except (TypeError, ValueError) as error:
            raise ReconformError(f"partition {number} of data cannot be judged: {error}") from error


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


# --- pass one ------------------------------------------------------------------------------------


Ranked = tuple[Sequence[Any], Counted]


def _ways(cad: ConformalDetector) -> Callable[..., Ranked]:
    """How delayed frames of ranks and scores, and the counts of all, are come by."""
    if not cad.chooses:
        return _one_by_one
    return _by_choice if cad.tally() is not None else _together


def _ranked(cad: ConformalDetector, frame: Any, columns: _Columns) -> Ranked:
    """Pass one; a partition that lacks a column is named, and so are no rows at all."""
    with with_models():
        try:
            ranked, counted = _ways(cad)(cad, frame[columns.used], columns)
        except KeyError as error:
            _refuse_lacking(frame, columns, error)
    if not counted.ranks.rows:
        raise ReconformError(NO_ROWS)
    return ranked, counted


def _one_by_one(cad: ConformalDetector, frame: Any, columns: _Columns) -> Ranked:
    """Every row is ranked by itself."""
    ranked = persist(*_mapped(_rank, RANKS, cad, frame, columns))
    count, whose = delayed(_count), (cad.highest_rank - 1, cad.calibration_.fingerprint)
    counts = merged([count(part, *whose) for part in ranked], RankCounts.merge).compute()
    return ranked, Counted(counts)


def _by_choice(cad: ConformalDetector, frame: Any, columns: _Columns) -> Ranked:
    """The scores of all rows by every detector choose one for each row."""
    tally = cad.tally()
    assert tally is not None
    gauge, kinds = tally.gauge, dict.fromkeys(_score_names(len(tally.names)), "float64")
    scored = persist(*_mapped(_score, kinds, cad, frame, columns))
    model, low = delayed(gauge), delayed(_counted)
    counted = merged([low(model, part) for part in scored], LowScores.merge).compute()
    if not counted.m:
        raise ReconformError(NO_ROWS)
    chooser = _chooser(gauge, counted, scored)
    model, count, rank = delayed(chooser), delayed(_count_chosen), delayed(_rank_chosen)
    counts = merged([count(model, part) for part in scored], Counted.merge).compute()
    return [rank(model, part) for part in scored], counts


def _together(cad: ConformalDetector, frame: Any, columns: _Columns) -> Ranked:
    """Few rows, which are ranked as one batch here."""
    parts = compute(*_partitions(frame))
    for number, part in enumerate(parts):
        columns.check(part, number)
    whole = pd.concat(parts)
    if not len(whole):
        raise ReconformError(NO_ROWS)
    try:
        found = cad.rank(columns.rows(whole), groups=columns.groups(whole), together=True)
    except (TypeError, ValueError) as error:
        raise ReconformError(f"data cannot be judged: {error}") from error
    starts = np.cumsum([0, *map(len, parts)])
    ranked = [
        delayed(_numbered(part[columns.ids], found.taken(np.arange(start, start + len(part)))))
        for start, part in zip(starts, parts, strict=False)
    ]
    counted = Counted.of(found, cad.no_counts())
    return ranked, replace(counted, together=found)


def _mapped(
    numbers: Callable[..., pd.DataFrame],
    kinds: dict[str, str],
    cad: ConformalDetector,
    frame: Any,
    columns: _Columns,
) -> Sequence[Any]:
    """Delayed frames of numbers of the rows."""
    model = delayed(cad)  # one node of the graph, which a worker gets once
    meta = _empty(kinds, columns.ids, frame)
    # Mapped and not delayed, so that a partition is judged in the same task that reads it.
    return _partitions(
        frame.map_partitions(numbers, model, columns, meta=meta, enforce_metadata=False)
    )


def _rank(
    part: pd.DataFrame, cad: ConformalDetector, columns: _Columns, partition_info: dict[str, Any]
) -> pd.DataFrame:
    """Identifiers, ranks and scores of one partition."""
    nothing = Ranks(np.empty(0, dtype=np.int64), None, np.empty(0))
    found = columns.judged(
        part, partition_info["number"], lambda X, groups: cad.rank(X, groups=groups), nothing
    )
    return _numbered(part[columns.ids], found)


def _numbered(ids: pd.DataFrame, found: Ranks) -> pd.DataFrame:
    return ids.assign(rank=found.at_most.astype(np.int32), score=found.scores)


def _score_names(detectors: int) -> list[str]:
    return [f"reconform score {k}" for k in range(detectors)]


def _score(
    part: pd.DataFrame, cad: ConformalDetector, columns: _Columns, partition_info: dict[str, Any]
) -> pd.DataFrame:
    """Identifiers, and the scores of one partition by every detector."""
    tally = cad.tally()
    assert tally is not None
    names = _score_names(len(tally.names))
    nothing = np.empty((len(names), 0))

    def judge(X: Any, groups: Any) -> FloatArray:
        cad.codes_of(groups, len(X))  # of a single group: nothing is ranked by it
        return cad.candidate_scores(X)

    scores = columns.judged(part, partition_info["number"], judge, nothing)
    return part[columns.ids].assign(**dict(zip(names, scores, strict=True)))


def _scores_in(gauge: Gauge, scored: pd.DataFrame) -> FloatArray:
    columns = [scored[name].to_numpy() for name in _score_names(len(gauge.names))]
    return np.array(columns, dtype=np.float64)


def _counted(gauge: Gauge, scored: pd.DataFrame) -> LowScores:
    return gauge.counted(_scores_in(gauge, scored))


def _low(gauge: Gauge, gaps: BoolArray, scored: pd.DataFrame) -> LowScores:
    return gauge.low(_scores_in(gauge, scored), gaps)


def _chooser(gauge: Gauge, counted: LowScores, scored: Sequence[Any]) -> Chooser:
    """What ranks rows, by another look at the scores where a list may end."""
    gaps = counted.undecided()
    if not gaps.any():
        return Chooser(gauge, counted)
    model, wanted, low = delayed(gauge), delayed(gaps), delayed(_low)
    found = merged([low(model, wanted, part) for part in scored], LowScores.merge)
    return Chooser(gauge, found.compute())


def _count_chosen(chooser: Chooser, scored: pd.DataFrame) -> Counted:
    found = chooser.ranks(_scores_in(chooser.gauge, scored))
    return Counted.of(found, RankCounts(chooser.gauge.n, chooser.fingerprint))


def _rank_chosen(chooser: Chooser, scored: pd.DataFrame) -> pd.DataFrame:
    found = chooser.ranks(_scores_in(chooser.gauge, scored))
    return _numbered(scored.drop(columns=_score_names(len(chooser.gauge.names))), found)


def _count(ranked: pd.DataFrame, ranks: int, fingerprint: str) -> RankCounts:
    return RankCounts(ranks, fingerprint).add(ranked["rank"].to_numpy())


def _refuse_lacking(frame: Any, columns: _Columns, error: KeyError) -> NoReturn:
    """Say which partition lacks a column: by another look, since Dask's error does not know."""
    check = delayed(columns.check)
    compute(*(check(part, number) for number, part in enumerate(_partitions(frame))))
    raise error


# --- pass two ------------------------------------------------------------------------------------


def _marked(ranked: Sequence[Any], decision: Decision, frame: Any, columns: _Columns) -> Any:
    rule, mark = delayed(decision), delayed(_mark)
    return dd.from_delayed(
        [mark(rule, part) for part in ranked],
        meta=_empty(RESULTS, columns.ids, frame),
        divisions=frame.divisions if frame.known_divisions else None,
        verify_meta=False,
    )


def _mark(decision: Decision, ranked: pd.DataFrame) -> pd.DataFrame:
    ranks = ranked["rank"].to_numpy()
    results = (
        ranked["score"].to_numpy(),
        decision.grid.values(ranks),
        decision.q_values(ranks),
        decision.mask(ranks),
    )
    return ranked.drop(columns=list(RANKS)).assign(**dict(zip(RESULTS, results, strict=True)))
