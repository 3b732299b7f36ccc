"""Plans in few bytes: one of T_k and H_k follows from the other, and leave-one-out from n alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import IndexArray
from ..ensemble import reference_calibration
from ..errors import ReconformError
from ..methods import METHODS, VARIANTS, Complements, Jackknife, Plan
from ..records import require, within
from ..records.specs import Array, Budget, Json, Reader, Scalar, Writer
from ..statistics.aggregation import check_aggregate
from ..statistics.ranks import Calibration

INDEX = Array("i8", ndim=1)

# Units (see `Budget`) of a row that is held out, while it is counted, and of a set of rows.
HELD_UNITS, SET_UNITS = 5, 1 << 8


def write_plan(plan: Plan, out: Writer, at: str = "plan") -> Json:
    """Write a plan; its index sets go to `out`."""
    if callable(plan.aggregate):
        raise ReconformError(
            f"aggregate={plan.aggregate!r} is a function, and a function has no place in a file "
            "that is safe to load; use 'median', 'mean', 'min', 'max' or a quantile."
        )
    json = {
        "n": plan.n,
        "scheme": plan.scheme,
        "variant": plan.variant,
        "aggregate": Scalar(str, float, int).write(plan.aggregate, "aggregate", out),
    }
    if plan.leaves_one_out:
        _spend(plan.n, 0, 0, out.budget)
        return {**json, "sets": "leave-one-out"}
    _spend(plan.n, plan.n_models, sum(map(len, plan.held_out)), out.budget)
    if isinstance(plan.train, Complements):
        return {**json, "sets": "held out", **_write_sets(plan.held_out, out, at)}
    for held, follows in zip(plan.held_out, Complements(plan.n, plan.train), strict=True):
        require(np.array_equal(held, follows), "held-out rows are those that do not train")
    return {**json, "sets": "train", **_write_sets(plan.train, out, at)}


def _write_sets(sets: Sequence[IndexArray], out: Writer, at: str) -> dict[str, Json]:
    sizes = np.array([len(rows) for rows in sets], dtype=np.int64)
    # From row to row a set that is in order takes small steps, and those take few bytes.
    steps = all((np.diff(rows) >= 0).all() for rows in sets)
    rows = [np.diff(rows, prepend=0) for rows in sets] if steps else sets
    return {
        "rows": INDEX.write(np.concatenate([np.empty(0, np.int64), *rows]), f"{at}/rows", out),
        "sizes": INDEX.write(sizes, f"{at}/sizes", out),
        "steps": steps,
    }


def read_plan(json: Json, source: Reader) -> Plan:
    """Read a plan."""
    n, aggregate = json["n"], json["aggregate"]
    require(type(n) is int and n >= 1, f"n is {n!r}")
    row = METHODS.get(json["scheme"])
    require(row is not None and json["variant"] in VARIANTS, "the scheme is unknown")
    assert row is not None
    check_aggregate(aggregate)
    facts: dict[str, Any] = {key: json[key] for key in ("scheme", "variant", "aggregate")}
    if json["sets"] == "leave-one-out":
        require(row.resamples, "the scheme leaves more out")
        _spend(n, 0, 0, source.budget)
        return replace(Jackknife().plan(n), **facts)
    sets = _read_sets(json, n, source)
    # A model per new row or per batch is none that a plan could list, and a frozen one is alone.
    suits = bool(sets) != row.augments and not row.fits_batch and not (row.frozen and len(sets) > 1)
    require(suits, f"{len(sets):,} models are no plan of scheme {row.name}")
    if json["sets"] == "held out":
        distinct = all(len(np.unique(held)) == len(held) for held in sets)
        require(distinct, "a model holds a row out twice")
        return Plan(n, Complements(n, sets), sets, **facts)
    require(json["sets"] == "train", "the sets of a plan are unknown")
    held = HELD_UNITS * sum(n - len(np.unique(train)) for train in sets)
    source.budget.spend(held, f"a plan of {len(sets):,} models")
    return Plan(n, sets, tuple(Complements(n, sets)), **facts)


def _spend(n: int, sets: int, held: int, budget: Budget) -> None:
    """Ask for what a plan on n rows takes in memory that is not in the file."""
    budget.spend(n + SET_UNITS * sets + HELD_UNITS * held, f"a plan of {n:,} rows")


def _read_sets(json: Json, n: int, source: Reader) -> tuple[IndexArray, ...]:
    rows, sizes = INDEX.read(json["rows"], source), INDEX.read(json["sizes"], source)
    _spend(n, len(sizes), len(rows) if json["sets"] == "held out" else 0, source.budget)
    adds_up = within(sizes, 0, len(rows) + 1) and sum(sizes.tolist()) == len(rows)
    require(adds_up, "the sets of a plan do not add up")
    sets = np.split(rows, np.cumsum(sizes)[:-1]) if len(sizes) else []
    if json["steps"]:
        sets = [np.cumsum(steps) for steps in sets]
    for some in sets:
        require(not len(some) or (some.min() >= 0 and some.max() < n), "a row does not exist")
    return tuple(sets)


def calibration_of(plan: Plan, scores: Any) -> Calibration:
    """The calibration of a plan, from which it follows which model held out which rows."""
    if plan.row.augments:
        require(len(scores) == plan.n, "the reference has another number of scores")
        return reference_calibration(scores)
    rows, indptr, models = plan.membership
    require(len(scores) == len(rows) > 0, "the calibration has another number of scores")
    return Calibration(scores, rows, indptr, models)
