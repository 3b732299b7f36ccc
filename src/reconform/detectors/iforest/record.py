"""How models of `IForest` are saved, and what must hold for them when they are loaded."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...records import (
    ascending,
    check_entries,
    check_kept,
    check_reference,
    expected_entries,
    increasing,
    require,
    within,
)
from ...records.specs import (
    INT,
    JOBS,
    ROWS,
    SUMS,
    Array,
    DetectorRecord,
    Maybe,
    Record,
    Scalar,
    Spec,
)
from .ensembles import EnteredForest, LeaveOneOutForests, Variants
from .model import UNITS, FittedForest, Forest, Recipe, TreeDraws

# Paths are shorter than this for any number of rows; sums of them must not overflow.
LONGEST = UNITS << 7


def _check_forest(forest: Forest, d: int) -> None:
    width = 1 << (max(forest.psi, 2) - 1).bit_length()
    shapes = {forest.thresholds.shape, forest.features.shape, forest.lengths.shape}
    require(forest.psi >= 1 and shapes == {(len(forest), width)}, "trees have the wrong shape")
    require(within(forest.features, 0, d), "a tree splits a feature that does not exist")
    require(within(forest.lengths, 0, LONGEST), "a path is longer than any")


def check_grown(forest: Forest, d: int) -> None:
    """Refuse arrays that do not form a forest, and a forest without trees."""
    _check_forest(forest, d)
    require(len(forest), "a forest has no trees")


def _check_recipe(recipe: Recipe, d: int) -> None:
    require(recipe.n_trees >= 1 and recipe.psi >= 1, "a recipe has no trees or no rows")
    require(1 <= recipe.n_features <= d, "a recipe draws features that do not exist")


_HEAPS: Mapping[str, Spec] = {
    "psi": INT,
    "thresholds": Array("f8", ndim=2),
    "features": Array("u4", ndim=2),
    "lengths": Array("i8", ndim=2),
}
FOREST = Record("Forest", Forest, _HEAPS, check_grown)
SOME_TREES = Record("Forest", Forest, _HEAPS, _check_forest)  # there may be none
RECIPE = Record(
    "Recipe",
    Recipe,
    {"n_trees": INT, "psi": INT, "n_features": INT, "replace": Scalar(bool)},
    _check_recipe,
)
FITTED_FOREST = Record("FittedForest", FittedForest, {"forest": FOREST, "n_jobs": JOBS})


def _check_variants(some: Variants, d: int) -> None:
    require(len(some.indptr) == len(some.rows) + 1, "rows and their trees do not go together")
    require(increasing(some.indptr, len(some.trees)), "the trees of a row are not in order")
    require(ascending(some.rows, strictly=True), "the rows of variants are not in order")


TREE_DRAWS = Record(
    "TreeDraws",
    TreeDraws,
    {
        "keys": Array("u8", ndim=1),
        "features": Array("i4", ndim=2),
        "sizes": Array("i8", ndim=1),
    },
)
VARIANTS = Record(
    "Variants",
    Variants,
    dict.fromkeys(("rows", "indptr", "trees", "model"), Array("i8", ndim=1)),
    _check_variants,
)


def _check_leave_one_out_forests(ensemble: LeaveOneOutForests, d: int) -> None:
    n, some, base = ensemble.plan.n, ensemble.variants, ensemble.base
    require(ensemble.plan.leaves_one_out and len(ensemble.path_sums) == n, "a row has no model")
    check_kept(ensemble.regrown, ensemble.plan)
    require(ensemble.recipe.psi == base.psi, "trees draw another number of rows")
    sizes = {ensemble.recipe.n_trees, len(base), len(ensemble.full)}
    require(len(sizes) == 1, "the forest has another number of trees")
    require(within(some.rows, 0, n), "a row does not exist")
    require(len(some.model) == n and within(some.model, -1, len(some.rows)), "a row has no model")
    require(within(some.trees, 0, len(base)), "a tree that is replaced does not exist")
    if ensemble.regrown is not None:
        fits = len(ensemble.regrown) == len(some) and ensemble.regrown.psi == base.psi
        require(fits, "the trees that replace others are not those that should")


def _check_entered_forest(ensemble: EnteredForest, d: int) -> None:
    n, psi, draws = len(ensemble.sums), ensemble.recipe.psi, ensemble.draws
    trees, drawn = ensemble.recipe.n_trees, ensemble.drawn
    check_reference(n, ensemble)
    require(ensemble.base.psi == psi <= n + 1, "trees draw more rows than there are")
    each = (ensemble.base, draws.keys, draws.sizes, ensemble.limits, ensemble.last)
    require(all(len(one) == trees for one in each), "a tree is missing")
    require(ascending(ensemble.sums), "the reference is not in order")
    require(within(draws.sizes, 1, psi + 1), "a tree has too many rows")
    require(ensemble.samples.shape == (trees, min(psi, n)), "a tree has no rows")
    exist = within(ensemble.samples, 0, len(drawn)) and within(ensemble.last, -1, len(drawn))
    require(exist, "a tree drew a row that does not exist")
    require(((ensemble.last < 0) == (draws.sizes > n)).all(), "a tree has no last row")
    require(len(draws.features) in (1, trees), "a tree has no features")
    require(within(draws.features, 0, d), "a tree splits a feature that does not exist")
    require(drawn.shape[1] == d, "rows have the wrong shape")
    require(ensemble.reference.shape == (n, d), "the reference has another size")
    check_entries(_entered(ensemble), trees * psi, n)
    for rows in (drawn, ensemble.reference):
        require(np.isfinite(rows).all(), "a row is not finite")


def _entered(ensemble: EnteredForest) -> float:
    return expected_entries(ensemble.limits, ensemble.draws.sizes > len(ensemble.sums))


def _entered_cost(ensemble: EnteredForest) -> int:
    """A new row enters the trees in which its hash is small enough, and these are grown again."""
    n, psi = len(ensemble.sums), max(ensemble.recipe.psi, 1)
    return int(_entered(ensemble) * (8 * psi + 2 * n) * psi.bit_length())


IFOREST_RECORD = DetectorRecord(
    "IForest",
    {"max_samples_": INT, "forest_": FOREST},
    models=(FITTED_FOREST,),
    ensembles=(
        Record(
            "LeaveOneOutForests",
            LeaveOneOutForests,
            {
                "full": FOREST,
                "other_base": Maybe(FOREST),
                "recipe": RECIPE,
                "variants": VARIANTS,
                "regrown": Maybe(SOME_TREES),
                "path_sums": SUMS,
                "n_jobs": JOBS,
            },
            _check_leave_one_out_forests,
        ),
        Record(
            "EnteredForest",
            EnteredForest,
            {
                "recipe": RECIPE,
                "base": FOREST,
                "draws": TREE_DRAWS,
                "limits": Array("u8", ndim=1),
                "last": Array("i4", ndim=1),
                "reference": ROWS,
                "sums": SUMS,
                "drawn": ROWS,
                "samples": Array("i4", ndim=2),
                "n_jobs": JOBS,
            },
            _check_entered_forest,
            cost=_entered_cost,
        ),
    ),
)
