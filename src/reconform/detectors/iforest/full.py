"""Full-conformal isolation forest: one forest per new row, and almost all trees in common.

For a new row x the forest is fitted on D and x together, n + 1 rows. Which positions a tree draws
does not depend on the data; let the last one stand for x. The trees that did not draw it are the
same whatever x is: they are grown once, and score D once. Of a hundred trees some
100 psi / (n + 1) did draw it, and only these are grown for every x.

The draws treat all n + 1 positions alike, and a tree depends on its rows but not on their order.
So the n + 1 scores are exchangeable if the rows are, and P(p <= α) <= α holds exactly, over data
and draws. All new rows meet the same draws: a p-value depends on nothing else in its batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...arrays import BoolArray, FloatArray, Int32Array, IntArray
from ...parallel import run_blocks
from ...statistics.ranks import Calibration, Ranks
from ...transductive import reference_calibration
from .kernels import rank_with_regrown
from .model import (
    WALKS_PER_GROWTH,
    Forest,
    ForestDraws,
    Recipe,
    conformity,
    draw,
    leaf_lengths,
    tree_keys,
    worth,
)


@dataclass(eq=False)
class FullForest:
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

    @property
    def shares_draws(self) -> bool:
        """There is no other model to share with: one row meets one forest."""
        return False

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
        walks = _walks_to_grow(n_trees, self.recipe.psi) + n_trees * len(self.sums)
        run_blocks(rank, len(X), n_jobs=worth(self.n_jobs, len(X) * walks))
        return below, at_most


def fit_full_forest(
    X: FloatArray, recipe: Recipe, seed: np.random.SeedSequence, *, n_jobs: int | None = None
) -> FullForest:
    """Grow and score all that is the same for every new row.

    Parameters
    ----------
    X : float array of shape (n, d)
        D.
    recipe : Recipe
        That of a forest on n + 1 rows.
    seed : SeedSequence
        That of every forest on D and a new row.
    n_jobs : int, optional
        Threads.

    Returns
    -------
    FullForest

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(99, 2))
    >>> recipe = Recipe(n_trees=100, psi=20, n_features=2)
    >>> full = fit_full_forest(X, recipe, np.random.SeedSequence(0))
    >>> len(full.shared), len(full.draws.keys)
    (71, 29)
    >>> full.ranks(np.array([[5.0, 5.0]])).at_most
    array([1])
    """
    n, d = X.shape
    draws = draw(recipe, tree_keys(seed, recipe.n_trees), n + 1, d)
    drew_new = (draws.samples == n).any(axis=1)
    same, others = _only(draws, ~drew_new), _only(draws, drew_new)
    # From the largest position down: the new row comes first, and marks of -1 stay at the end.
    samples = np.sort(others.samples, axis=1)[:, ::-1]

    shared = _grow(X, recipe, same, same.samples, n_jobs)
    sums = shared.path_sums(X, n_jobs=n_jobs)
    without_new = _grow(X, recipe, others, samples[:, 1:], n_jobs)
    shown = sums + without_new.path_sums(X, n_jobs=n_jobs)

    order = np.argsort(sums)
    used = np.unique(samples[samples >= 0])
    places = np.where(samples < 0, -1, np.searchsorted(used, samples)).astype(np.int32)
    return FullForest(
        reference_calibration(conformity(shown, recipe.n_trees, recipe.psi)),
        recipe,
        shared,
        sums[order],
        X[order] if len(samples) else X[:0].copy(),
        X[used[:-1]],
        ForestDraws(places, others.features, others.keys),
        n_jobs,
    )


def _only(draws: ForestDraws, trees: slice | BoolArray) -> ForestDraws:
    """Draws of some trees."""
    features = draws.features[trees] if len(draws.features) > 1 else draws.features
    return ForestDraws(draws.samples[trees], features, draws.keys[trees])


def _grow(
    X: FloatArray, recipe: Recipe, draws: ForestDraws, samples: Int32Array, n_jobs: int | None
) -> Forest:
    """Grow a tree for every key of `draws`, on the rows of X that `samples` lists for it."""
    forest = Forest.empty(len(samples), recipe.psi)
    samples = np.ascontiguousarray(samples)

    def grow(start: int, stop: int) -> None:
        some = slice(start, stop)
        forest.part(start, stop).grow(X, samples[some], _only(draws, some))

    run_blocks(grow, len(forest), n_jobs=worth(n_jobs, _walks_to_grow(len(forest), recipe.psi)))
    return forest


def _walks_to_grow(n_trees: int, psi: int) -> int:
    """Say how many walks take as long as growing so many trees."""
    return n_trees * WALKS_PER_GROWTH * math.ceil(psi / 256)
