"""Full-conformal kNN: every one of n + 1 rows is scored by its nearest other rows.

Adding a new row x to D gives x a score, by its neighbours in D, and changes the scores of those
rows of D that x is nearer to than their last neighbour. These are few. So the rank of x is one
look-up of its score among the leave-one-out scores of D, corrected for them. They are found
without measuring all distances, by a tree that knows how far the neighbourhoods in each of its
branches reach; for metrics without a tree, all distances to x are measured, once.

Nothing is random and every row is treated alike, so P(p <= α) <= α holds exactly.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from ..aggregation import FloatArray
from ..kernels.full_knn import correct_by_rows, correct_by_tree, score_neighbours
from ..pvalues import BLOCK_BYTES, Calibration, RankArray, Ranks, ranks_among
from ..threads import run_blocks
from ..transductive import reference_calibration
from .knn_ensembles import KNNModel
from .neighbours import PairwiseSearch, Search, TreeSearch, WideSearch, worthwhile_jobs


@dataclass(eq=False)
class FullNeighbours:
    """A model on D and x for every new row x, without fitting any.

    Attributes
    ----------
    calibration : Calibration
        Leave-one-out scores of D without any new row, for showing.
    search : Search
        D, searched in reduced distances: before the root is taken.
    root : float
        A distance is its reduced form to this power.
    near : float array of shape (n, high)
        Reduced distances of the rows of D to their neighbours in D, sorted. Infinite where D has
        one row too few; the new row fills the gap.
    low : int
        A score is minus the mean of the low-th to the high-th distance.
    n_jobs : int or None
        Threads; never changes a number.
    """

    calibration: Calibration
    search: Search
    root: float
    near: FloatArray
    low: int
    n_jobs: int | None = None

    shares_draws = False

    @classmethod
    def fit(cls, model: KNNModel, X: FloatArray) -> Self:
        """Tabulate the neighbours of every row of D.

        Parameters
        ----------
        model : KNNModel
            A(D).
        X : float array of shape (n, d)
            D.

        Returns
        -------
        FullNeighbours

        Examples
        --------
        >>> import numpy as np
        >>> from reconform.detectors.neighbours import make_search
        >>> X = np.array([[0.0], [1.0], [3.0], [4.0]])
        >>> full = FullNeighbours.fit(KNNModel(make_search(X), 2, 2, None), X)
        >>> full.calibration.scores
        array([-3., -2., -2., -3.])
        >>> full.ranks(np.array([[2.0], [9.0]])).at_most
        array([5, 1])
        """
        n, high = len(X), model.high
        search, root = _without_root(model.search)
        near = np.full((n, high), np.inf)
        width = min(high, n - 1)
        if width:
            own = np.arange(n, dtype=np.int32)
            near[:, :width], _ = search.nearest(X, width, own=own, n_jobs=model.n_jobs)
        # What is shown stays finite: if need be, scores by as many neighbours as there are.
        there = np.ascontiguousarray(near[:, : max(width, 1)])
        shown = score_neighbours(there, min(model.low, there.shape[1]), root)
        calibration = reference_calibration(shown)
        return cls(calibration, search, root, near, model.low, model.n_jobs)

    @cached_property
    def scores(self) -> FloatArray:
        """Leave-one-out scores of D; -inf for a row that has no `high` others without x."""
        return score_neighbours(self.near, self.low, self.root)

    @cached_property
    def sorted_scores(self) -> FloatArray:
        """The scores in increasing order."""
        return np.sort(self.scores)

    @cached_property
    def reach(self) -> tuple[FloatArray, FloatArray]:
        """How far the neighbourhoods reach of the rows in each leaf, and in each node at most."""
        ids = self._tree.tree[1]
        of_rows = np.where(ids >= 0, self.near[ids, -1], -np.inf)
        of_leaves = of_rows.max(axis=1)
        of_nodes = np.empty(2 * len(ids) - 1)
        nodes = [(0, 0, len(ids))]
        while nodes:  # numbered as `build_tree` does
            node, first, last = nodes.pop()
            of_nodes[node] = of_leaves[first:last].max()
            if last - first > 1:
                middle = (first + last) // 2
                nodes.append((node + 1, first, middle))
                nodes.append((node + 2 * (middle - first), middle, last))
        return of_rows, of_nodes

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row x among D, all scored with x there; there are no variants."""
        t = np.empty(len(X))
        at_most, below = np.empty((2, len(X)), dtype=np.int64)
        rank = self._rank_by_rows if isinstance(self.search, PairwiseSearch) else self._rank_by_tree
        step = max(1, BLOCK_BYTES // (8 * self.near.shape[1]))
        for first in range(0, len(X), step):
            block = slice(first, first + step)
            rank(X[block], t[block], at_most[block], below[block])
        return Ranks(at_most, below if strictly else None, t)

    def _look_up(
        self, near: FloatArray, t: FloatArray, at_most: RankArray, below: RankArray
    ) -> None:
        """Score new rows by their neighbours, and rank them as if they changed no other score."""
        t[:] = score_neighbours(near, self.low, self.root)
        at_most[:] = ranks_among(self.sorted_scores, t)
        below[:] = ranks_among(self.sorted_scores, t, strictly=True)

    def _rank_by_tree(
        self, X: FloatArray, t: FloatArray, at_most: RankArray, below: RankArray
    ) -> None:
        near, _ = self.search.nearest(X, self.near.shape[1], n_jobs=self.n_jobs)
        self._look_up(near, t, at_most, below)
        exact = self._tree
        queries, tree, reach = exact.embed(X), exact.tree, self.reach
        mine = self.near, self.scores, self.low, exact.formula.power, self.root

        def kernel(start: int, stop: int) -> None:
            correct_by_tree(queries, t, *tree, *reach, *mine, start, stop, at_most, below)

        run_blocks(kernel, len(X), n_jobs=worthwhile_jobs(self.n_jobs, len(X) * exact.rows.size))

    @property
    def _tree(self) -> TreeSearch:
        search = self.search.exact if isinstance(self.search, WideSearch) else self.search
        assert isinstance(search, TreeSearch)
        return search

    def _rank_by_rows(
        self, X: FloatArray, t: FloatArray, at_most: RankArray, below: RankArray
    ) -> None:
        search = self.search
        assert isinstance(search, PairwiseSearch)
        n, high = self.near.shape
        step = max(1, BLOCK_BYTES // (8 * n))

        def kernel(start: int, stop: int) -> None:
            for first in range(start, stop, step):
                block = slice(first, min(first + step, stop))
                queries = search._prepare(X[block])
                distances = search._measure(queries, first)
                near = np.sort(np.partition(distances, high - 1, axis=1)[:, :high], axis=1)
                mine = t[block], at_most[block], below[block]
                self._look_up(near, *mine)
                if callable(search.metric):  # which need not be the same both ways
                    there = PairwiseSearch(X[block], search.metric, search.parameters)
                    distances = np.ascontiguousarray(there._measure(search.rows, 0).T)
                correct_by_rows(
                    distances, t[block], self.near, self.scores, self.low, *mine[1:]
                )

        run_blocks(kernel, len(X), n_jobs=worthwhile_jobs(self.n_jobs, len(X) * search.rows.size))


def _without_root(search: Search) -> tuple[Search, float]:
    """Search in reduced distances, and the root that was left out."""
    if isinstance(search, WideSearch):
        reduced, root = _without_root(search.exact)
        assert isinstance(reduced, TreeSearch)
        return WideSearch(reduced), root
    if isinstance(search, TreeSearch):
        reduced = copy.copy(search)
        reduced.formula = replace(search.formula, root=1.0)
        return reduced, search.formula.root
    return search, 1.0
