"""How models of `KNN` are saved, and what must hold for them when they are loaded."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import AnyArray
from ...records import ascending, check_kept, check_reference, require
from ...records.specs import (
    FLOAT,
    INT,
    JOBS,
    ROWS,
    Array,
    DetectorRecord,
    Maybe,
    Named,
    OneOf,
    Plain,
    Record,
    Scalar,
)
from .ensembles import FullNeighbours, KNNModel, LeaveOneOut, OneTable
from .search import Formula, PairwiseSearch, TreeSearch, WideSearch, _directions

# An inverse covariance is positive up to this.
ROUNDING = 1e-6


# --- neighbours ----------------------------------------------------------------------------------


def _check_formula(formula: Formula, d: int) -> None:
    require(formula.power > 0 and formula.root > 0, "the power of a distance must be positive")


def _check_tree(search: TreeSearch, d: int) -> None:
    columns = d if search.formula.embed is None else d + 1
    require(len(search.rows) and search.rows.shape[1] == columns, "rows have the wrong shape")
    # Among distances that are no numbers there are not as many nearest ones as were asked for.
    require(np.isfinite(search.rows).all(), "a row is not finite")
    require(search.leaf_size > 0, f"leaf_size is {search.leaf_size}")


def _tree_cost(search: TreeSearch) -> int:
    """The last leaf is filled up to its size."""
    return search.leaf_size * int(search.rows.shape[1])


def _check_wide(search: WideSearch, d: int) -> None:
    require(search.exact.formula.power == 2, "only squared distances can be proposed by a product")
    require(len(search.middle) == search.exact.rows.shape[1], "the middle has the wrong shape")
    require(np.isfinite(search.middle).all(), "the middle is not finite")


def _check_pairwise(search: PairwiseSearch, d: int) -> None:
    require(len(search.rows) and search.rows.shape[1] == d, "rows have the wrong shape")
    require(isinstance(search.parameters, dict), "the parameters of a metric are a dict")
    unknown = set(search.parameters) - {"p", "w", "V", "VI"}
    require(not unknown, f"no metric has the parameters {sorted(unknown)}")
    search.check_parameters(d)
    require(np.isfinite(search.rows).all(), "a row is not finite")
    for name, value in search.parameters.items():
        numbers = np.asarray(value)
        known = value is not None and numbers.dtype.kind in "biuf" and not np.isnan(numbers).any()
        require(known, f"{name} of a metric is no number")
        if name == "VI":  # or distances would be roots of negative numbers
            sizes = np.linalg.eigvalsh((numbers + numbers.T) / 2)
            require((sizes >= -ROUNDING * np.abs(sizes).max()).all(), "VI has negative directions")
        else:
            require((numbers > 0 if name in "pV" else numbers >= 0).all(), f"{name} is negative")


FORMULA = Record(
    "Formula",
    Formula,
    {"power": FLOAT, "root": FLOAT, "embed": Maybe(Named(directions=_directions))},
    _check_formula,
)
TREE = Record(
    "TreeSearch",
    TreeSearch,
    {"formula": FORMULA, "rows": Array("f8", ndim=2), "leaf_size": INT},
    _check_tree,
    cost=_tree_cost,
)
WIDE = Record("WideSearch", WideSearch, {"exact": TREE, "middle": Array("f8", ndim=1)}, _check_wide)
PAIRWISE = Record(
    "PairwiseSearch",
    PairwiseSearch,
    {"metric": Scalar(str), "parameters": Plain(), "rows": Array("f8", "?", ndim=2)},
    _check_pairwise,
)
SEARCH = OneOf(TREE, WIDE, PAIRWISE)


def rows_of(search: Any) -> AnyArray:
    """The rows that are searched."""
    rows: AnyArray = search.exact.rows if isinstance(search, WideSearch) else search.rows
    return rows


def _check_knn(model: KNNModel, d: int) -> None:
    enough = 1 <= model.low <= model.high <= len(rows_of(model.search))
    require(enough, "a model looks at more neighbours than it has rows")


def _knn_cost(model: KNNModel) -> int:
    """Neighbours are put in order one after the other, and moved by blocks."""
    return model.high * model.high // 16


KNN_MODEL = Record(
    "KNNModel",
    KNNModel,
    {"search": SEARCH, "low": INT, "high": INT, "n_jobs": JOBS},
    _check_knn,
    cost=_knn_cost,
)


def _check_leave_one_out(ensemble: LeaveOneOut, d: int) -> None:
    n = len(rows_of(ensemble.full.search))
    one = ensemble.plan.left_out is not None
    require(one and n == ensemble.plan.n, "a row has no model")
    require(ensemble.full.high < n, "a model looks at more neighbours than it has rows")


def _check_table(ensemble: OneTable, d: int) -> None:
    n, table = len(rows_of(ensemble.full.search)), ensemble.multiplicity
    check_kept(table, ensemble.plan)
    require(n == ensemble.plan.n and 1 <= ensemble.width <= n, "the table has the wrong size")
    if table is not None:
        require(table.shape == (n, ensemble.plan.n_models), "the table has the wrong shape")
        counts = table.sum(axis=0, dtype="u8")
        require((counts >= ensemble.full.high).all(), "a model has too few neighbours")


def _check_full_neighbours(ensemble: FullNeighbours, d: int) -> None:
    n, high = ensemble.near.shape
    check_reference(n, ensemble)
    require(n == len(rows_of(ensemble.search)), "a row has no neighbours")
    require(1 <= ensemble.low <= high <= n, "rows have the wrong number of neighbours")
    require(ensemble.root > 0 and (ensemble.near >= 0).all(), "a distance is not one")
    require(ascending(ensemble.near.T), "neighbours are not in order")


KNN_RECORD = DetectorRecord(
    "KNN",
    {"_fitted": KNN_MODEL},
    models=(KNN_MODEL,),
    ensembles=(
        Record(
            "LeaveOneOut",
            LeaveOneOut,
            {"full": KNN_MODEL},
            _check_leave_one_out,
            cost=lambda ensemble: ensemble.full.high**2,  # each neighbour is left out in turn
        ),
        Record(
            "OneTable",
            OneTable,
            {"full": KNN_MODEL, "multiplicity": Maybe(Array("u1", "u4", ndim=2)), "width": INT},
            _check_table,
        ),
        Record(
            "FullNeighbours",
            FullNeighbours,
            {"search": SEARCH, "root": FLOAT, "near": ROWS, "low": INT, "n_jobs": JOBS},
            _check_full_neighbours,
        ),
    ),
)
