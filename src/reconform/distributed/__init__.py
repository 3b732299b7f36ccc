"""More rows than one machine holds: the same answers, row for row, on Dask or Spark.

All that a decision asks of the rows together is how many have each rank. So pass one ranks the
rows where they are, and adds up n + 1 counts; pass two marks them. Each engine is a source of rows
in parts (`reconform.scan`), and a row of `ENGINES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from fractions import Fraction
from importlib import import_module
from typing import Any, Unpack

from sklearn.utils.validation import check_is_fitted

from ..deciding import Observed
from ..detector import ConformalDetector
from ..discoveries import BaseDiscoveries
from ..errors import ReconformError
from ..files.judge import check_grouped
from ..rule import Rule, RuleOptions
from ..scan import scan
from .rows import DistributedDiscoveries, DistributedRows, UsedColumns

__all__ = ["DistributedDiscoveries", "discover"]

FDR = 0.1

# The package that a frame comes from, and the module that reads it.
ENGINES = {"dask": ".on_dask", "pyspark": ".on_spark"}


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
