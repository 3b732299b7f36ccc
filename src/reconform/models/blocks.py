"""What the native detectors' models are made of, described for the file: searches, trees, spheres.

To store a new class, describe it here or in `ensembles`: one record. Its check says what the
compiled kernels rely on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..detectors.iforest.model import Forest, ForestDraws, Recipe
from ..detectors.iforest.shared import Replacements
from ..detectors.inne.ensembles import Slots
from ..detectors.inne.model import Draws, SharedDraws, Spheres
from ..detectors.knn.ensembles import KNNModel
from ..detectors.knn.search import Formula, PairwiseSearch, TreeSearch, WideSearch, _directions
from .kinds import Array, Maybe, Named, OneOf, Record, Scalar, require
from .npy import AnyArray
from .plain import Plain

INT, FLOAT, JOBS = Scalar(int), Scalar(float), Scalar(int, None)

# A leaf is filled up to its size, so a tree of few rows could be made to take any memory.
MOST_LEAF = 1 << 20


def within(array: AnyArray, low: int, high: int) -> bool:
    """Whether low <= x < high for all entries."""
    return not array.size or bool(low <= array.min() and array.max() < high)


def increasing(indptr: AnyArray, last: int) -> bool:
    """Whether an array of bounds runs from 0 to `last` and never back."""
    ends = bool(len(indptr)) and indptr[0] == 0 and indptr[-1] == last
    return bool(ends and (np.diff(indptr) >= 0).all())


# --- neighbours ----------------------------------------------------------------------------------


def _check_formula(formula: Formula, d: int) -> None:
    require(formula.power > 0 and formula.root > 0, "the power of a distance must be positive")


def _check_tree(search: TreeSearch, d: int) -> None:
    columns = d if search.formula.embed is None else d + 1
    require(len(search.rows) and search.rows.shape[1] == columns, "rows have the wrong shape")
    # Among distances that are no numbers there are not as many nearest ones as were asked for.
    require(np.isfinite(search.rows).all(), "a row is not finite")
    require(0 < search.leaf_size <= MOST_LEAF, "leaf_size is too large")


def _check_wide(search: WideSearch, d: int) -> None:
    require(search.exact.formula.power == 2, "only squared distances can be proposed by a product")
    require(len(search.middle) == search.exact.rows.shape[1], "the middle has the wrong shape")


def _check_pairwise(search: PairwiseSearch, d: int) -> None:
    require(len(search.rows) and search.rows.shape[1] == d, "rows have the wrong shape")
    require(isinstance(search.parameters, dict), "the parameters of a metric are a dict")


FORMULA = Record(
    Formula, {"power": FLOAT, "root": FLOAT, "embed": Maybe(Named(directions=_directions))},
    _check_formula,
)  # fmt: skip
TREE = Record(
    TreeSearch,
    {"formula": FORMULA, "rows": Array("f8", ndim=2), "leaf_size": INT},
    _check_tree,
)
WIDE = Record(WideSearch, {"exact": TREE, "middle": Array("f8", ndim=1)}, _check_wide)
PAIRWISE = Record(
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


KNN_MODEL = Record(
    KNNModel, {"search": SEARCH, "low": INT, "high": INT, "n_jobs": JOBS}, _check_knn
)


# --- isolation trees -----------------------------------------------------------------------------


def _check_forest(forest: Forest, d: int) -> None:
    width = 1 << (max(forest.psi, 2) - 1).bit_length()
    shapes = {forest.thresholds.shape, forest.features.shape, forest.lengths.shape}
    require(forest.psi >= 1 and shapes == {(len(forest), width)}, "trees have the wrong shape")
    require(within(forest.features, 0, d), "a tree splits a feature that does not exist")


def _check_replacements(some: Replacements, d: int) -> None:
    count = len(some.keys)
    require(len(some.indptr) == len(some.rows) + 1, "rows and their trees do not go together")
    require(increasing(some.indptr, count), "the trees of a row are not in order")
    require(
        len(some.trees) == len(some.left_out) == count, "every replacement has a tree and a row"
    )


FOREST = Record(
    Forest,
    {
        "psi": INT,
        "thresholds": Array("f8", ndim=2),
        "features": Array("u4", ndim=2),
        "lengths": Array("i8", ndim=2),
    },
    _check_forest,
)
RECIPE = Record(Recipe, {"n_trees": INT, "psi": INT, "n_features": INT, "replace": Scalar(bool)})
FOREST_DRAWS = Record(
    ForestDraws,
    {
        "samples": Array("i4", ndim=2),
        "features": Array("i4", ndim=2),
        "keys": Array("u8", ndim=1),
    },
)
REPLACEMENTS = Record(
    Replacements,
    {
        **dict.fromkeys(("rows", "indptr", "trees", "left_out"), Array("i8", ndim=1)),
        "keys": Array("u8", ndim=1),
    },
    _check_replacements,
)


# --- spheres -------------------------------------------------------------------------------------


def _check_spheres(spheres: Spheres, d: int) -> None:
    count = len(spheres.centre)
    require(len(spheres.radius) == len(spheres.ratio) == count, "a sphere has no radius or ratio")
    require(increasing(spheres.edges, count), "the sets of spheres are not in order")
    require(
        spheres.models >= 1 and (len(spheres.edges) - 1) % spheres.models == 0,
        "models must have equally many sets",
    )
    require(spheres.table.shape[1] == d, "centres have the wrong shape")
    require(within(spheres.centre, 0, len(spheres.table)), "a sphere has no centre")


def _check_slots(slots: Slots, d: int) -> None:
    require(len(slots._starts) == len(slots.rows), "every row has its slots")
    require(within(slots._starts, 0, len(slots.replaced)), "a row has no slots")
    require(slots._spheres.sets == 1, "slots are scored set by set")
    require(slots._spheres.models == slots._sets + len(slots.replaced), "a slot has no set")
    require(within(slots.replaced, 0, slots._sets), "a slot replaces a set that does not exist")


DRAWS = Record(Draws, {"samples": Array("i8", ndim=2)})
SHARED_DRAWS = Record(SharedDraws, {"samples": Array("i8", ndim=2), "redrawn": Array("i8", ndim=3)})
SPHERES = Record(
    Spheres,
    {
        "table": Array("f8", ndim=2),
        "centre": Array("u4", ndim=1),
        "radius": Array("f8", ndim=1),
        "ratio": Array("i8", ndim=1),
        "edges": Array("i8", ndim=1),
        "models": INT,
    },
    _check_spheres,
)
SLOTS = Record(
    Slots,
    {
        **dict.fromkeys(("rows", "replaced", "_starts"), Array("i8", ndim=1)),
        "_sets": INT,
        "_spheres": SPHERES,
    },
    _check_slots,
)
