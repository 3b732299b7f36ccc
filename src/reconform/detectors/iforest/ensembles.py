"""Isolation forests on shared trees: all leave-one-out models, and one model per new row.

Leave-one-out. A tree that drew its psi rows from D and did not draw row i *is* a tree of A(D
without i): given that it did not, its rows are a uniform subsample of the others. So for model i
only the trees that drew i are grown again, each on a fresh subsample of D without i. Every model
has the law of a separate fit, and all n of them together take (1 + psi) times the trees of one,
whatever n is. What sharing changes is the dependence *between* the models: p-values vary more from
seed to seed than with separate fits.

Full-conformal. For a new row x the forest is fitted on D and x together, n + 1 rows. Which
positions a tree draws does not depend on the data; let the last one stand for x. The trees that did
not draw it are the same whatever x is: they are grown once, and score D once. Of a hundred trees
some 100 psi / (n + 1) did draw it, and only these are grown for every x. The draws treat all n + 1
positions alike, and a tree depends on its rows but not on their order. So the n + 1 scores are
exchangeable if the rows are, and P(p <= α) <= α holds exactly, over data and draws. All new rows
meet the same draws: a p-value depends on nothing else in its batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arrays import (
    BoolArray,
    FloatArray,
    IndexArray,
    Int32Array,
    IntArray,
    RankArray,
    UInt64Array,
)
from ...ensemble import Ensemble, ResampledEnsemble, reference_calibration
from ...errors import ReconformError
from ...methods import Plan
from ...parallel import run_blocks
from ...randomness import root_seed
from ...statistics.ranks import BLOCK_BYTES, Calibration, Ranks
from .kernels import leave_one_out_sums, rank_with_regrown
from .model import (
    DRAWN_AT_ONCE,
    WALKS_PER_GROWTH,
    Forest,
    ForestDraws,
    Recipe,
    conformity,
    draw,
    fit_forest,
    leaf_lengths,
    pieces,
    tree_keys,
    worth,
)

# Rows that are ranked at once, and models whose sums are held at once meanwhile.
CHUNK_ROWS = 4096
CHUNK_MODELS = 64


@dataclass(frozen=True, eq=False)
class Replacements:
    """Which trees of A(D) drew which row, and what replaces them in the model without that row.

    Sorted by row: model ``rows[a]`` replaces base tree ``trees[j]`` by a tree grown from
    ``keys[j]``, for every j from ``indptr[a]`` to ``indptr[a + 1]``. All other models are A(D)
    itself.

    Attributes
    ----------
    rows : int array of shape (affected,)
        Rows of D that some tree drew.
    indptr : int array of shape (affected + 1,)
    trees : int array of shape (replaced,)
    left_out : int array of shape (replaced,)
        The row of D that replacement j is grown without.
    keys : uint64 array of shape (replaced,)
    """

    rows: IndexArray
    indptr: IndexArray
    trees: IndexArray
    left_out: IndexArray
    keys: UInt64Array

    @classmethod
    def of(cls, samples: Int32Array, seed: np.random.SeedSequence) -> Replacements:
        """Replace every tree for every row it drew.

        Parameters
        ----------
        samples : int array of shape (trees, psi)
            The rows of the base trees.
        seed : SeedSequence
            That of A(D); the keys come from a child of it.
        """
        (child,) = root_seed(seed).spawn(1)
        # A key belongs to a tree and a place among its rows; places marked -1 need none.
        keys = tree_keys(child, samples.size)
        order = np.argsort(samples, axis=None, kind="stable")
        order = order[np.count_nonzero(samples < 0) :]
        left_out = samples.ravel()[order].astype(np.intp)
        rows, first = np.unique(left_out, return_index=True)
        indptr = np.append(first, len(left_out))
        return cls(rows, indptr, order // samples.shape[1], left_out, keys[order])

    def __len__(self) -> int:
        return len(self.keys)

    def draw(self, recipe: Recipe, n: int, d: int, start: int, stop: int) -> ForestDraws:
        """Draws of replacements start to stop, each among the n - 1 rows that are left."""
        draws = draw(recipe, self.keys[start:stop], n - 1, d)
        skipped = draws.samples >= self.left_out[start:stop, None]
        # Positions behind the row that is left out move up by one; so they are rows of D.
        return ForestDraws(draws.samples + skipped, draws.features, draws.keys)


@dataclass(eq=False)
class SharedForestEnsemble(ResampledEnsemble):
    """Leave-one-out forests that share all trees but those that drew the row.

    Attributes
    ----------
    plan : Plan
    calibration : Calibration
    full : Forest
        A(D).
    recipe : Recipe
        That of every model.
    replacements : Replacements
    regrown : Forest or None
        The trees that replace others, in the order of `replacements`; None after a basic fit.
    path_sums : int array of shape (n,)
        c_i before it is turned into a score: for every i the sum of the path lengths of X_i in
        the trees of the model without row i.
    n_jobs : int or None
        Threads for scoring.
    """

    plan: Plan
    calibration: Calibration
    full: Forest
    recipe: Recipe
    replacements: Replacements
    regrown: Forest | None
    path_sums: IntArray
    n_jobs: int | None = None

    shares_draws = True

    @property
    def retained(self) -> bool:
        """Whether the trees that replace others are kept."""
        return self.regrown is not None

    @cached_property
    def _sums_of_unaffected(self) -> IntArray:
        """Sorted path sums of the rows that no tree drew."""
        unaffected = np.ones(self.plan.n, dtype=bool)
        unaffected[self.replacements.rows] = False
        return np.sort(self.path_sums[unaffected])

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every leave-one-out model, (n, rows)."""
        base = self.full.path_lengths(X)
        total = base.sum(axis=0)
        sums = np.repeat(total[None, :], self.plan.n, axis=0)
        rows = self.replacements.rows

        def replace(start: int, stop: int) -> None:
            for low, high in pieces(start, stop, CHUNK_MODELS):
                sums[rows[low:high]] = self._sums(X, base, total, low, high)

        self._run(replace, len(X))
        return conformity(sums, len(self.full), self.full.psi)

    def full_scores(self, X: FloatArray) -> FloatArray:
        """Scores of A(D)."""
        return self.full.scores(X, n_jobs=self.n_jobs)

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows; plus by one look-up for all models that are A(D), one by one for others.

        All forests have equally many trees and the same psi, so sums of path lengths are compared
        as they are, in integers.
        """
        variant = self.plan.variant if variant is None else variant
        if variant != "plus" or not self.retained:
            return super().ranks(X, variant=variant, strictly=strictly)
        at_most = np.empty(len(X), dtype=np.int64)
        below = np.empty(len(X), dtype=np.int64) if strictly else None
        totals = np.empty(len(X), dtype=np.int64)
        step = max(1, min(CHUNK_ROWS, BLOCK_BYTES // (8 * len(self.full))))
        for low, high in pieces(0, len(X), step):
            chunk = slice(low, high)
            totals[chunk], at_most[chunk], strict = self._paired_ranks(X[chunk], strictly)
            if below is not None:
                below[chunk] = strict
        scores = conformity(totals, len(self.full), self.full.psi)
        return Ranks(at_most, below, scores)

    def _paired_ranks(self, X: FloatArray, strictly: bool) -> tuple[IntArray, RankArray, RankArray]:
        base = self.full.path_lengths(X)
        total = base.sum(axis=0)
        at_most = 1 + np.searchsorted(self._sums_of_unaffected, total, side="right")
        below = 1 + np.searchsorted(self._sums_of_unaffected, total, side="left")
        c = self.path_sums[self.replacements.rows, None]
        counts: list[tuple[RankArray, RankArray | int]] = []

        def count(start: int, stop: int) -> None:
            for low, high in pieces(start, stop, CHUNK_MODELS):
                t = self._sums(X, base, total, low, high)
                strict = np.sum(c[low:high] < t, axis=0) if strictly else 0
                counts.append((np.sum(c[low:high] <= t, axis=0), strict))

        self._run(count, len(X))
        for lax, strict in counts:  # integers: the order of the threads does not matter
            at_most += lax
            below += strict
        return total, at_most, below

    def _sums(
        self, X: FloatArray, base: IntArray, total: IntArray, start: int, stop: int
    ) -> IntArray:
        """Path sums of rows X in affected models start to stop."""
        if self.regrown is None:
            raise ReconformError(
                "a basic fit keeps only the forest fitted on all rows; fit with variant='plus' for "
                "the scores of every model."
            )
        indptr = self.replacements.indptr[start : stop + 1]
        first, last = int(indptr[0]), int(indptr[-1])
        trees = self.regrown.part(first, last)
        sums = np.empty((stop - start, len(X)), dtype=np.int64)
        leave_one_out_sums(
            trees.thresholds,
            trees.features,
            trees.lengths,
            indptr - first,
            self.replacements.trees[first:last],
            base,
            total,
            X,
            sums,
        )
        return sums

    def _run(self, kernel: Callable[[int, int], None], n_rows: int) -> None:
        jobs = worth(self.n_jobs, len(self.replacements) * n_rows)
        run_blocks(kernel, len(self.replacements.rows), n_jobs=jobs)


def fit_shared(
    X: FloatArray,
    plan: Plan,
    recipe: Recipe,
    seed: np.random.SeedSequence,
    *,
    n_jobs: int | None = None,
) -> SharedForestEnsemble:
    """Fit all leave-one-out forests on shared trees.

    Parameters
    ----------
    X : float array of shape (n, d)
    plan : Plan
        One that leaves every row out once.
    recipe : Recipe
        That of a forest on n - 1 rows, which must be the same for n rows.
    seed : SeedSequence
        That of A(D).
    n_jobs : int, optional
        Threads.

    Returns
    -------
    SharedForestEnsemble
    """
    n, d = X.shape
    full = fit_forest(X, np.arange(n), recipe, seed, n_jobs=n_jobs)
    samples = draw(recipe, tree_keys(seed, recipe.n_trees), n, d).samples
    replacements = Replacements.of(samples, seed)
    keep = plan.variant != "basic"
    regrown = Forest.empty(len(replacements), recipe.psi) if keep else None
    # What X_i gains when model i replaces a tree: its path in the new one minus that in the old.
    gains = np.empty(len(replacements), dtype=np.int64)

    def regrow(start: int, stop: int) -> None:
        for low, high in pieces(start, stop, max(1, DRAWN_AT_ONCE // recipe.psi)):
            draws = replacements.draw(recipe, n, d, low, high)
            size = high - low
            trees = Forest.empty(size, recipe.psi) if regrown is None else regrown.part(low, high)
            trees.grow(X, draws.samples, draws)
            left_out = replacements.left_out[low:high]
            gains[low:high] = trees.paired_lengths(np.arange(size), X, left_out)
            gains[low:high] -= full.paired_lengths(replacements.trees[low:high], X, left_out)

    jobs = worth(n_jobs, len(replacements) * WALKS_PER_GROWTH)
    run_blocks(regrow, len(replacements), n_jobs=jobs)
    path_sums = full.path_sums(X, n_jobs=n_jobs)
    path_sums[replacements.rows] += np.add.reduceat(gains, replacements.indptr[:-1])
    scores = conformity(path_sums, recipe.n_trees, recipe.psi)
    return SharedForestEnsemble(
        plan,
        Calibration(scores, *plan.membership),
        full,
        recipe,
        replacements,
        regrown,
        path_sums,
        n_jobs,
    )


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
