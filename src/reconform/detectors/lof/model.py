"""Local outlier factors on D: who is near to whom, and the scores that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from ...arrays import FloatArray, Int32Array, RankArray
from ...content import scores_by_content, sorted_by_content
from ...parallel import run_blocks
from ...statistics.ranks import BLOCK_BYTES
from ..knn.search import Search, make_search, over_nodes, tree_of, worthwhile_jobs
from .kernels import fit_scores, score_new, settle


@dataclass(frozen=True, eq=False)
class Graph:
    """D in the order of its contents, who is near to whom, and the scores of D.

    Attributes
    ----------
    X : float array of shape (n, d)
    k : int
        Neighbours that make a score.
    search : Search
        D, by squared distances.
    squares, distances, rows : arrays of shape (n, width)
        The nearest other rows of every row, sorted, and which they are: `width` of them, k or
        more. Where there are not as many, row n at infinity.
    indptr, near_to : int arrays
        Row o is among the k neighbours of ``near_to[indptr[o]:indptr[o + 1]]``.
    reach, density, scores : float arrays of shape (n,)
        Under the model on D, every row among the others. Zero where there are fewer than k.
    n_jobs : int or None
        Threads; never changes a number.
    """

    X: FloatArray
    k: int
    search: Search
    squares: FloatArray
    distances: FloatArray
    rows: Int32Array
    indptr: RankArray
    near_to: Int32Array
    reach: FloatArray
    density: FloatArray
    scores: FloatArray
    n_jobs: int | None

    @classmethod
    def of(cls, X: FloatArray, k: int, width: int, n_jobs: int | None = None) -> Self:
        """Look up the neighbours of every row of D, and score it among the others.

        Parameters
        ----------
        X : float array of shape (n, d)
            D in the order of its contents.
        k, width : int
            Neighbours that make a score, and neighbours to look up.
        n_jobs : int, optional

        Returns
        -------
        Graph

        Examples
        --------
        >>> import numpy as np
        >>> Graph.of(np.array([[0.0], [1.0], [2.0], [9.0]]), 2, 2).scores.round(2)
        array([-0.88, -1.33, -0.88, -4.37])
        """
        n = len(X)
        search = make_search(X, metric="sqeuclidean")
        squares, rows = np.full((n, width), np.inf), np.full((n, width), n, dtype=np.int32)
        found = min(width, n - 1)
        if found:
            own = np.arange(n, dtype=np.int32)
            table = nearest_settled(search, X, found, own=own, n_jobs=n_jobs)
            squares[:, :found], rows[:, :found] = table
        distances = np.sqrt(squares)
        nearest = np.ascontiguousarray(rows[:, :k])
        by_neighbour = np.argsort(nearest.ravel(), kind="stable")
        indptr = np.searchsorted(nearest.ravel()[by_neighbour], np.arange(n + 1)).astype(np.int64)
        near_to = (by_neighbour[: indptr[-1]] // k).astype(np.int32)
        if found < k:
            fitted = np.zeros(n), np.zeros(n), np.zeros(n)
        else:
            fitted = fit_scores(nearest, np.ascontiguousarray(distances[:, :k]))
        return cls(X, k, search, squares, distances, rows, indptr, near_to, *fitted, n_jobs)

    def nearest(self, X: FloatArray, width: int) -> tuple[FloatArray, Int32Array]:
        """Squared distances of new rows to their neighbours in D, and which they are."""
        return nearest_settled(self.search, X, width, n_jobs=self.n_jobs)

    def score(self, X: FloatArray) -> FloatArray:
        """Score new rows by the model on D."""
        scores = np.empty(len(X))
        step = max(1, BLOCK_BYTES // (16 * self.k))
        for first in range(0, len(X), step):
            block = slice(first, first + step)
            squares, rows = self.nearest(X[block], self.k)
            scores[block] = score_new(rows, np.sqrt(squares), self.k, self.reach, self.density)
        return scores


def nearest_settled(
    search: Search,
    X: FloatArray,
    width: int,
    *,
    own: Int32Array | None = None,
    n_jobs: int | None = None,
) -> tuple[FloatArray, Int32Array]:
    """Find the nearest rows; among rows at one distance the first ones.

    Parameters
    ----------
    search : Search
        By squared distances, of rows in the order of their contents: then the choice among rows
        at one distance does not depend on how they came.
    X : float array of shape (m, d)
    width : int
        Not more than there are rows (besides the row itself).
    own : int array of shape (m,), optional
        For rows that are searched in: which one, so that a row is not its own neighbour.
    n_jobs : int, optional

    Returns
    -------
    squares, rows : arrays of shape (m, width)
        Sorted by distance, then by row.

    Examples
    --------
    >>> import numpy as np
    >>> search = make_search(np.array([[0.0], [2.0], [2.0], [4.0]]), metric="sqeuclidean")
    >>> nearest_settled(search, np.array([[2.0], [1.0]]), 1)[1]
    array([[1],
           [0]], dtype=int32)
    """
    exact = tree_of(search)
    look_up = min(width + 1, len(exact.rows) - (own is not None))
    squares, rows = search.nearest(X, look_up, own=own, n_jobs=n_jobs)
    if look_up == width:
        return squares, rows
    tied = np.flatnonzero(squares[:, width - 1] == squares[:, width])
    squares, rows = squares[:, :width].copy(), rows[:, :width].copy()
    if len(tied):
        queries = exact.embed(X)
        itself = np.full(len(X), -1, dtype=np.int32) if own is None else own
        tree, first = exact.tree, _first_rows(exact.tree[1])

        def kernel(start: int, stop: int) -> None:
            settle(queries, itself, *tree, first, tied, start, stop, squares, rows)

        run_blocks(kernel, len(tied), n_jobs=worthwhile_jobs(n_jobs, len(tied) * exact.rows.size))
    return squares, rows


def _first_rows(ids: Int32Array) -> RankArray:
    """The first row in every node of a tree; `ids` as in `build_tree`."""
    in_leaves = np.where(ids >= 0, ids, np.iinfo(np.int32).max).min(axis=1)
    return over_nodes(in_leaves.astype(np.int64), np.minimum)


@dataclass(eq=False)
class LOFModel:
    """One model.

    Attributes
    ----------
    X : float array of shape (n, d)
        The training rows, in the order of their contents.
    k : int
        Neighbours, fewer than there are rows.
    n_jobs : int or None
        Threads; never changes a number.
    """

    X: FloatArray
    k: int
    n_jobs: int | None

    in_threads = True

    @classmethod
    def of(cls, X: FloatArray, n_neighbors: int, n_jobs: int | None) -> Self:
        """Fit a model on rows in any order, with all neighbours that there are."""
        return cls(sorted_by_content(X)[0], min(n_neighbors, len(X) - 1), n_jobs)

    @cached_property
    def graph(self) -> Graph:
        """Neighbours and scores of the training rows."""
        return Graph.of(self.X, self.k, self.k, self.n_jobs)

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows, small = anomalous."""
        return self.graph.score(X)

    def training_scores(self, X: FloatArray) -> FloatArray:
        """Score the training rows, in whatever order they come, each among the others."""
        return scores_by_content(X, sorted_by_content(X)[1], self.graph.scores)
