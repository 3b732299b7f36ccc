"""Isolation forests whose draws go by position: for model files of format 1 only.

Before draws were keyed by content, a tree drew positions among its training rows, and its splits
from one stream. Full-conformal ranks, and refits of a detector inside another, need these draws
again when such a file is used: it keeps its numbers, and what was proven of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...arrays import FloatArray, IndexArray, Int32Array, IntArray, UInt64Array
from ...ensemble import Ensemble
from ...parallel import run_blocks
from ...plan import Plan
from ...records import require, within
from ...statistics.ranks import Calibration, Ranks
from .ensembles import LeaveOneOutForests, Variants
from .kernels import draw_positions
from .model import (
    FEATURES_STREAM,
    ROWS_STREAM,
    Forest,
    Recipe,
    conformity,
    leaf_lengths,
    tree_keys,
    walks_to_grow,
    worth,
)
from .position_kernels import grow_trees, rank_with_regrown


@dataclass(frozen=True, eq=False)
class ForestDraws:
    """The random draws that determine a forest.

    Attributes
    ----------
    samples : int array of shape (trees, psi)
        For every tree its positions among the training rows. Drawn with replacement, a position
        counts once, as in scikit-learn; -1 fills the row up.
    features : int array of shape (trees, features) or (1, d)
        The features that a tree may split; one row of it if every tree may split all.
    keys : uint64 array of shape (trees,)
        The key of the stream from which a tree's splits are drawn.
    """

    samples: Int32Array
    features: Int32Array
    keys: UInt64Array


def draw(recipe: Recipe, keys: UInt64Array, n_rows: int, n_columns: int) -> ForestDraws:
    """Draw the rows and features of every tree from its key.

    Parameters
    ----------
    recipe : Recipe
        Its number of trees is not looked at: there is a tree for every key.
    keys : uint64 array of shape (trees,)
    n_rows, n_columns : int
        Shape of the training data.

    Returns
    -------
    ForestDraws
    """
    samples = np.empty((len(keys), recipe.psi), dtype=np.int32)
    draw_positions(keys ^ ROWS_STREAM, n_rows, recipe.replace, samples)
    if recipe.n_features == n_columns:
        features = np.arange(n_columns, dtype=np.int32)[None, :]
    else:
        features = np.empty((len(keys), recipe.n_features), dtype=np.int32)
        draw_positions(keys ^ FEATURES_STREAM, n_columns, False, features)
    return ForestDraws(samples, features, keys)


def fit_forest(X: FloatArray, recipe: Recipe, seed: np.random.SeedSequence) -> Forest:
    """Fit one forest on all rows of X."""
    forest = Forest.empty(recipe.n_trees, recipe.psi)
    draws = draw(recipe, tree_keys(seed, recipe.n_trees), *X.shape)
    grow_trees(
        X,
        draws.samples,
        draws.features,
        draws.keys,
        leaf_lengths(recipe.psi),
        forest.thresholds,
        forest.features,
        forest.lengths,
    )
    return forest


@dataclass(eq=False)
class FullForest(Ensemble):
    """A forest on D and x for every new row x; it equals `fit_forest` on both, bit for bit.

    Attributes
    ----------
    calibration : Calibration
        Scores of D in the same forest grown without any new row; the ranks do not use them.
    recipe : Recipe
        That of a forest on n + 1 rows.
    shared : Forest
        The trees that did not draw the new row.
    sums : int array of shape (n,)
        Path lengths of the rows of D in the shared trees, added up, in increasing order.
    reference : float array of shape (n, d)
        D, in that order; without any rows if all trees are shared.
    drawn : float array of shape (k, d)
        The rows of D that the other trees drew.
    draws : ForestDraws
        Those of the other trees. Its samples are positions in `drawn`; k stands for the new row.
    n_jobs : int or None
        Threads for ranking.
    """

    calibration: Calibration
    recipe: Recipe
    shared: Forest
    sums: IntArray
    reference: FloatArray
    drawn: FloatArray
    draws: ForestDraws
    n_jobs: int | None = None

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row x among D in the forest on D and x; there are no variants.

        Sums of path lengths are compared as they are, in integers.
        """
        X = np.ascontiguousarray(X, dtype=np.float64)
        totals = self.shared.path_sums(X, n_jobs=self.n_jobs)
        if len(self.draws.keys):
            below, at_most = self._rank_with_regrown(X, totals)
        else:
            below = 1 + np.searchsorted(self.sums, totals, side="left")
            at_most = 1 + np.searchsorted(self.sums, totals, side="right")
        scores = conformity(totals, self.recipe.n_trees, self.recipe.psi)
        return Ranks(at_most, below if strictly else None, scores)

    def _rank_with_regrown(self, X: FloatArray, totals: IntArray) -> tuple[IntArray, IntArray]:
        """Ranks of X, strict and not; adds the path lengths in the grown trees to `totals`."""
        below, at_most = np.empty_like(totals), np.empty_like(totals)
        lengths_of_leaves = leaf_lengths(self.recipe.psi)

        def rank(start: int, stop: int) -> None:
            some = slice(start, stop)
            rows = np.vstack([self.drawn, np.empty_like(X[:1])])
            trees = Forest.empty(len(self.draws.keys), self.recipe.psi)
            rank_with_regrown(
                rows,
                self.draws.samples,
                self.draws.features,
                self.draws.keys,
                lengths_of_leaves,
                trees.thresholds,
                trees.features,
                trees.lengths,
                self.reference,
                self.sums,
                X[some],
                totals[some],
                below[some],
                at_most[some],
            )

        n_trees = len(self.draws.keys)
        walks = walks_to_grow(n_trees, self.recipe.psi) + n_trees * len(self.sums)
        run_blocks(rank, len(X), n_jobs=worth(self.n_jobs, len(X) * walks))
        return below, at_most


@dataclass(frozen=True, eq=False)
class Replacements:
    """Trees that replaced others, by the row that they were grown without."""

    rows: IndexArray
    indptr: IndexArray
    trees: IndexArray
    left_out: IndexArray
    keys: UInt64Array


@dataclass(frozen=True, eq=False)
class SharedForestEnsemble:
    """Leave-one-out forests that shared all trees but those that drew the row."""

    full: Forest
    recipe: Recipe
    replacements: Replacements
    regrown: Forest | None
    path_sums: IntArray
    n_jobs: int | None

    def now(self, plan: Plan, calibration: Calibration) -> LeaveOneOutForests:
        """Return the same models as the ensemble that is fitted today."""
        some = self.replacements
        require(within(some.rows, 0, plan.n), "a row does not exist")
        model = np.full(plan.n, -1, dtype=np.intp)
        model[some.rows] = np.arange(len(some.rows))
        variants = Variants(some.rows, some.indptr, some.trees, model)
        return LeaveOneOutForests(
            plan,
            calibration,
            self.full,
            None,
            self.recipe,
            variants,
            self.regrown,
            self.path_sums,
            shares_draws=True,
            n_jobs=self.n_jobs,
        )
