"""What the native detectors' models are made of, described for the file: searches, trees, spheres.

To store a new class, describe it here or in `ensembles`: one record. Its check says what the
compiled kernels rely on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..detectors.forest import UNITS, Forest, ForestDraws, Recipe
from ..detectors.inne_ensembles import Slots
from ..detectors.knn_ensembles import KNNModel
from ..detectors.neighbours import (
    Formula,
    PairwiseSearch,
    TreeSearch,
    WideSearch,
    _directions,
)
from ..detectors.shared_forest import Replacements
from ..detectors.spheres import Draws, SharedDraws, Spheres
from ..kernels.inne import UNIT
from .arrays import AnyArray
from .kinds import (
    Array,
    Maybe,
    Named,
    OneOf,
    Record,
    Scalar,
    Setting,
    Spec,
    ascending,
    increasing,
    require,
    within,
)
from .plain import Plain

INT, FLOAT = Scalar(int), Scalar(float)
JOBS = Setting(int, None, default=None)

# A leaf is filled up to its size, so a tree of few rows could be made to take any memory: so many
# numbers it may have anyway, and so many times as many as the rows.
FEW_IN_LEAF, LEAF_GROWTH = 1 << 22, 16

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
    most = max(FEW_IN_LEAF, LEAF_GROWTH * search.rows.size)
    fits = search.leaf_size > 0 and search.leaf_size * columns <= most
    require(fits, f"leaf_size is {search.leaf_size}")


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


# Paths are shorter than this for any number of rows; sums of them must not overflow.
LONGEST = UNITS << 7


def _check_forest(forest: Forest, d: int) -> None:
    width = 1 << (max(forest.psi, 2) - 1).bit_length()
    shapes = {forest.thresholds.shape, forest.features.shape, forest.lengths.shape}
    require(forest.psi >= 1 and shapes == {(len(forest), width)}, "trees have the wrong shape")
    require(within(forest.features, 0, d), "a tree splits a feature that does not exist")
    require(within(forest.lengths, 0, LONGEST), "a path is longer than any")


def check_grown(forest: Forest, d: int) -> None:
    """Refuse what is no forest, and a forest without trees."""
    _check_forest(forest, d)
    require(len(forest), "a forest has no trees")


def _check_recipe(recipe: Recipe, d: int) -> None:
    require(recipe.n_trees >= 1 and recipe.psi >= 1, "a recipe has no trees or no rows")
    require(1 <= recipe.n_features <= d, "a recipe draws features that do not exist")


def _check_replacements(some: Replacements, d: int) -> None:
    count = len(some.keys)
    require(len(some.indptr) == len(some.rows) + 1, "rows and their trees do not go together")
    require(increasing(some.indptr, count), "the trees of a row are not in order")
    require(ascending(some.rows, strictly=True), "the rows of replacements are not in order")
    require(
        len(some.trees) == len(some.left_out) == count, "every replacement has a tree and a row"
    )
    left_out = np.repeat(some.rows, np.diff(some.indptr))
    require(np.array_equal(some.left_out, left_out), "a replacement leaves out another row")


_HEAPS: Mapping[str, Spec] = {
    "psi": INT,
    "thresholds": Array("f8", ndim=2),
    "features": Array("u4", ndim=2),
    "lengths": Array("i8", ndim=2),
}
FOREST = Record(Forest, _HEAPS, check_grown)
SHARED_TREES = Record(Forest, _HEAPS, _check_forest)  # every tree may have drawn the new row
RECIPE = Record(
    Recipe,
    {"n_trees": INT, "psi": INT, "n_features": INT, "replace": Scalar(bool)},
    _check_recipe,
)
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
    sets = len(spheres.edges) - 1
    require(
        1 <= spheres.models <= max(1, sets) and sets % spheres.models == 0,
        "models must have equally many sets",
    )
    require(within(spheres.ratio, 0, UNIT + 1), "a ratio is not one")
    require(spheres.table.shape[1] == d, "centres have the wrong shape")
    require(np.isfinite(spheres.table).all(), "a centre is not finite")
    require(within(spheres.centre, 0, len(spheres.table)), "a sphere has no centre")


def check_sets(spheres: Spheres, d: int) -> None:
    """Refuse what is no spheres, and models without any sets."""
    _check_spheres(spheres, d)
    require(spheres.sets, "a model has no sets")


def _check_shared_draws(draws: SharedDraws, d: int) -> None:
    sets, psi = draws.samples.shape
    require(draws.redrawn.shape == (sets, psi, psi), "a set that was drawn again is missing")


def _check_slots(slots: Slots, d: int) -> None:
    require(len(slots._starts) == len(slots.rows) > 0, "every row has its slots")
    require(ascending(slots.rows, strictly=True), "the rows of slots are not in order")
    require(
        slots._starts[0] == 0 and ascending(slots._starts, strictly=True), "slots are not in order"
    )
    require(slots._sets >= 1, "A(D) has no sets")
    require(within(slots._starts, 0, len(slots.replaced)), "a row has no slots")
    require(slots._spheres.sets == 1, "slots are scored set by set")
    require(slots._spheres.models == slots._sets + len(slots.replaced), "a slot has no set")
    require(within(slots.replaced, 0, slots._sets), "a slot replaces a set that does not exist")


DRAWS = Record(Draws, {"samples": Array("i8", ndim=2)})
SHARED_DRAWS = Record(
    SharedDraws,
    {"samples": Array("i8", ndim=2), "redrawn": Array("i8", ndim=3)},
    _check_shared_draws,
)
_SETS: Mapping[str, Spec] = {
    "table": Array("f8", ndim=2),
    "centre": Array("u4", ndim=1),
    "radius": Array("f8", ndim=1),
    "ratio": Array("i8", ndim=1),
    "edges": Array("i8", ndim=1),
    "models": INT,
}
SPHERES = Record(Spheres, _SETS, check_sets)
COMMON_SPHERES = Record(Spheres, _SETS, _check_spheres)  # every set may have drawn the new row
SLOTS = Record(
    Slots,
    {
        **dict.fromkeys(("rows", "replaced", "_starts"), Array("i8", ndim=1)),
        "_sets": INT,
        "_spheres": SPHERES,
    },
    _check_slots,
)
