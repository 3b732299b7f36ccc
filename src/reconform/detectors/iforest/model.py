"""One isolation forest: what is drawn for it, how it is grown, and how it scores.

A forest is a deterministic function of its seed and of the multiset of its rows: tree t takes the
psi rows with the smallest hashes (`reconform.content`) and splits from its own key, node by node.
So the same seed and rows give the same trees, in whatever order the rows are.

Drawing with replacement changes only how many rows a tree has. A position that is drawn twice
counts once, as in scikit-learn; so a tree has K different rows, K distributed as the number of
different positions among psi draws out of n, and given K they are a uniform subset.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Self

import numpy as np
import numpy.typing as npt

from ...arrays import FloatArray, IndexArray, Int32Array, IntArray, UInt32Array, UInt64Array
from ...content import Contents, distinct_counts, draw_rows
from ...parallel import run_blocks
from . import kernels
from .kernels import FRESH, Draws, Trees

# Path lengths are integers in these units. A path is shorter than 2**7 for any number of rows, so
# sums are exact up to 2**24 trees.
UNITS = 1 << 32

# Simple steps of `run_blocks`: walking down a tree, and growing it.
WALK, GROWTH = 2, 1 << 11

# Rows are drawn for a few trees at a time, so that samples of any size stay small in memory.
DRAWN_AT_ONCE = 1 << 20

# How often the kernels count each row where none is listed for its copies: once.
ONCE = np.empty(0, dtype=np.int64)

# Each of a tree's streams of random numbers starts from its key, and from one of these.
ROWS_STREAM = np.uint64(0x6A09E667F3BCC909)
FEATURES_STREAM = np.uint64(0xBB67AE8584CAA73B)
SIZES_STREAM = np.uint64(0xA54FF53A5F1D36F1)


def average_path_length(sizes: npt.ArrayLike) -> FloatArray:
    """c(size): the mean depth at which a random tree isolates one of so many rows.

    Examples
    --------
    >>> average_path_length([1, 2, 256]).round(4)
    array([ 0.    ,  1.    , 10.2448])
    """
    size = np.asarray(sizes, dtype=np.float64)
    rest = np.maximum(size - 1, 1)
    harmonic = 2 * (np.log(rest) + np.euler_gamma) - 2 * rest / np.maximum(size, 1)
    return np.where(size > 2, harmonic, (size == 2).astype(np.float64))


@lru_cache(maxsize=32)
def leaf_lengths(psi: int) -> IntArray:
    """c(0), ..., c(psi) in `UNITS`: what a leaf with so many rows adds to its depth.

    The table is shared: it must not be changed.

    Examples
    --------
    >>> leaf_lengths(2)
    array([         0,          0, 4294967296])
    """
    return np.rint(average_path_length(np.arange(psi + 1)) * UNITS).astype(np.int64)


def conformity(path_sums: IntArray, n_trees: int, psi: int) -> FloatArray:
    """Scores of rows from the sums of their path lengths: -2 ** (-mean path / c(psi)).

    The one place where integers become scores. For forests of equally many trees and the same
    psi it keeps the order of the sums.

    Examples
    --------
    >>> import numpy as np
    >>> conformity(np.array([0, 3 * UNITS]), n_trees=3, psi=2)
    array([-1. , -0.5])
    """
    scale = n_trees * int(leaf_lengths(psi)[-1])
    if scale == 0:  # one row per tree: nothing to isolate it from; scikit-learn's convention
        return np.full(path_sums.shape, -0.5)
    return np.asarray(-np.exp2(path_sums / -scale))


@dataclass(frozen=True)
class Recipe:
    """The size of a forest, once the number of rows is known.

    Attributes
    ----------
    n_trees : int
    psi : int
        Rows drawn for a tree.
    n_features : int
        Features drawn for a tree.
    replace : bool
        Whether rows are drawn with replacement.
    """

    n_trees: int
    psi: int
    n_features: int
    replace: bool = False


@dataclass(frozen=True, eq=False)
class TreeDraws:
    """The random draws that determine the trees of a forest on n rows.

    Attributes
    ----------
    keys : uint64 array of shape (trees,)
    features : int array of shape (trees, features) or (1, d)
    sizes : int array of shape (trees,)
        Different rows of every tree: psi, or fewer where rows are drawn with replacement.
    """

    keys: UInt64Array
    features: Int32Array
    sizes: IntArray

    @classmethod
    def of(cls, recipe: Recipe, seed: np.random.SeedSequence, n: int, d: int) -> Self:
        """Draw keys, features and sizes; the rows follow from their contents."""
        keys = np.asarray(seed.generate_state(recipe.n_trees, np.uint64), dtype=np.uint64)
        if recipe.n_features == d:
            features = np.arange(d, dtype=np.int32)[None, :]
        else:
            features = np.empty((len(keys), recipe.n_features), dtype=np.int32)
            kernels.draw_features(keys ^ FEATURES_STREAM, d, features)
        sizes = np.full(len(keys), recipe.psi, dtype=np.int64)
        if recipe.replace:
            distinct_counts(keys ^ SIZES_STREAM, n, recipe.psi, sizes)
        return cls(keys, features, sizes)

    @property
    def row_streams(self) -> UInt64Array:
        """The streams that hash the rows."""
        return self.keys ^ ROWS_STREAM

    def only(self, trees: slice | IndexArray) -> TreeDraws:
        """Draws of some trees."""
        features = self.features[trees] if len(self.features) > 1 else self.features
        return TreeDraws(self.keys[trees], features, self.sizes[trees])


@dataclass(frozen=True, eq=False)
class Forest:
    """Isolation trees as heaps in flat arrays; see `reconform.detectors.iforest.kernels`.

    Attributes
    ----------
    psi : int
        Rows drawn for a tree.
    thresholds, features, lengths : arrays of shape (trees, 2 ** depth)
        Where node k splits, and the path length that ends at position j of the bottom level.
    """

    psi: int
    thresholds: FloatArray
    features: UInt32Array
    lengths: IntArray

    @classmethod
    def empty(cls, n_trees: int, psi: int) -> Forest:
        """Allocate so many trees, of depth ceil(log2(psi)) but at least 1."""
        shape = (n_trees, 1 << (max(psi, 2) - 1).bit_length())
        return cls(
            psi, np.empty(shape), np.empty(shape, dtype=np.uint32), np.empty(shape, dtype=np.int64)
        )

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def arrays(self) -> Trees:
        """Thresholds, features and lengths, as the kernels take them."""
        return Trees(self.thresholds, self.features, self.lengths)

    def only(self, trees: slice | IndexArray) -> Forest:
        """Some trees: a view of a slice of them, or a copy."""
        return Forest(self.psi, self.thresholds[trees], self.features[trees], self.lengths[trees])

    def grow(
        self,
        X: FloatArray,
        rows: Int32Array,
        draws: TreeDraws,
        *,
        leaving: IntArray | None = None,
        copies: IntArray = ONCE,
        n_jobs: int | None = 1,
    ) -> None:
        """Grow every tree on the rows of X that `rows` lists for it, as `kernels.grow_trees`."""
        gone = np.full(len(self), FRESH) if leaving is None else leaving
        drawn = Draws(draws.keys, draws.features, draws.sizes, leaf_lengths(self.psi))
        kernel = partial(kernels.grow_trees, X, copies, rows, gone, drawn, self.arrays)
        work = len(self) * GROWTH * math.ceil(self.psi / 256)
        run_blocks(kernel, len(self), n_jobs=n_jobs, work=work)

    def path_sums(self, X: FloatArray, *, n_jobs: int | None = 1) -> IntArray:
        """Sum of the path lengths of every row over all trees, in `UNITS`."""
        sums = np.zeros(len(X), dtype=np.int64)
        kernel = partial(kernels.add_path_lengths, self.arrays, X, sums)
        run_blocks(kernel, len(X), n_jobs=n_jobs, work=len(X) * len(self) * WALK)
        return sums

    def leaves(self, X: FloatArray) -> UInt32Array:
        """Where every row ends in every tree, (trees, rows): positions of the bottom level."""
        leaves = np.empty((len(self), len(X)), dtype=np.uint32)
        kernels.leaves_of(self.arrays, X, leaves)
        return leaves

    def lengths_at(self, leaves: UInt32Array) -> IntArray:
        """Path lengths that end there, (trees, rows), in `UNITS`."""
        return np.take_along_axis(self.lengths, leaves, axis=1)

    def paired_lengths(self, trees: IndexArray, X: FloatArray, rows: IndexArray) -> IntArray:
        """Path length of row ``rows[j]`` of X in tree ``trees[j]``, in `UNITS`."""
        lengths = np.empty(len(rows), dtype=np.int64)
        kernels.path_lengths_of_pairs(self.arrays, trees, X, rows, lengths)
        return lengths

    def scores(self, X: FloatArray, *, n_jobs: int | None = 1) -> FloatArray:
        """Score rows, small = anomalous."""
        return conformity(self.path_sums(X, n_jobs=n_jobs), len(self), self.psi)


def fit_forest(
    X: FloatArray,
    train: IndexArray | None,
    recipe: Recipe,
    seed: np.random.SeedSequence,
    *,
    contents: Contents | None = None,
    n_jobs: int | None = 1,
) -> Forest:
    """Fit one forest on the rows `train` of X, a multiset (all rows by default).

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [0.5], [9.0]])
    >>> recipe = Recipe(n_trees=50, psi=4, n_features=1)
    >>> forest = fit_forest(X, None, recipe, np.random.SeedSequence(0))
    >>> int(forest.scores(X).argmin())
    3
    >>> turned = fit_forest(X[::-1].copy(), None, recipe, np.random.SeedSequence(0))
    >>> bool((turned.thresholds == forest.thresholds).all())
    True
    """
    contents = Contents.of(X, n_jobs=n_jobs) if contents is None else contents
    n = len(X) if train is None else len(train)
    draws = TreeDraws.of(recipe, seed, n, X.shape[1])
    forest = Forest.empty(recipe.n_trees, recipe.psi)
    copies, distinct = ONCE, None
    if recipe.psi == n and not recipe.replace:
        # All rows are drawn, and their order does not matter: nothing needs hashes, and rows that
        # are equal are looked at once.
        every = contents.first if train is None else contents.first[train]
        copies = np.bincount(every, minlength=len(X))
        distinct = np.flatnonzero(copies).astype(np.int32)
        draws = replace(draws, sizes=np.full(recipe.n_trees, len(distinct)))
    for low, high in pieces(0, recipe.n_trees, max(1, DRAWN_AT_ONCE // recipe.psi)):
        some = draws.only(slice(low, high))
        if distinct is None:
            drawn = draw_rows(contents, some.row_streams, recipe.psi, train, n_jobs=n_jobs)
            rows = contents.first[drawn.rows]
        else:
            rows = np.tile(distinct, (high - low, 1))
        part = forest.only(slice(low, high))
        part.grow(X, rows, some, copies=copies, n_jobs=n_jobs)
    return forest


def pieces(start: int, stop: int, step: int) -> list[tuple[int, int]]:
    """Cut start to stop into pieces of at most `step`.

    Examples
    --------
    >>> pieces(3, 8, 2)
    [(3, 5), (5, 7), (7, 8)]
    """
    return [(low, min(low + step, stop)) for low in range(start, stop, step)]


@dataclass(frozen=True, eq=False)
class FittedForest:
    """One model of a plan: a forest, and the threads to score with."""

    forest: Forest
    n_jobs: int | None = None

    in_threads = True

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows, small = anomalous."""
        return self.forest.scores(X, n_jobs=self.n_jobs)
