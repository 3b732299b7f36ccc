"""Certified lists with kNN: `statistics.conditional_calibration`, computed exactly.

Tables of neighbours are made once, and one call of a kernel per new row does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from ...arrays import FloatArray, RankArray
from ...parallel import run_threads
from ...statistics.conditional_calibration import Exchanges, StepUp, count_ranked_exchanges
from .kernels import measure_leaf
from .search import PairwiseSearch, Search, Table, nearest_of_own, reach_in_tree, tree_of
from .world_kernels import all_worlds, within_reach

if TYPE_CHECKING:
    from .ensembles import FullNeighbours, KNNModel


@dataclass(eq=False)
class NeighbourWorlds:
    """The reference D with its neighbour tables, from which the worlds of new rows are computed.

    Attributes
    ----------
    search : Search
        D in reduced distances.
    root : float
        A distance is its reduced form to this power.
    table : arrays of shape (n, high + 1)
        Neighbours of D in D: one more than a score needs, for the worlds without one of them.
    low, high : int
        A score is minus the mean of the low-th to the high-th distance.
    n_jobs : int or None
        Threads; never changes a number.
    """

    search: Search
    root: float
    table: Table
    low: int
    high: int
    n_jobs: int | None

    @classmethod
    def of(cls, search: Search, root: float, averaged: KNNModel | FullNeighbours) -> Self:
        """Look up the neighbours of every row of D.

        Parameters
        ----------
        search : Search
            D in reduced distances.
        root : float
        averaged : KNNModel or FullNeighbours

        Returns
        -------
        NeighbourWorlds
        """
        high, n_jobs = averaged.high, averaged.n_jobs
        n = len(_rows_of(search))
        table = _empty_table(n, high + 1)
        there = min(high + 1, n - 1)
        if there:
            found = nearest_of_own(search, there, n_jobs=n_jobs)
            table[0][:, :there], table[1][:, :there] = found
        return cls(search, root, table, averaged.low, high, n_jobs)

    def worlds(
        self, X: FloatArray, rows: RankArray, step: StepUp, *, plus: bool = False
    ) -> Iterator[tuple[int, Exchanges]]:
        """Go through all worlds of some of the new rows.

        Parameters
        ----------
        X : float array of shape (m, d)
            All new rows.
        rows : int array
            Those whose worlds are asked for: rows of a rank up to ``step.highest``.
        step : StepUp
        plus : bool
            Ranks of jackknife+ instead of full.

        Yields
        ------
        row, worlds : int, Exchanges
        """
        new = self._neighbours(X)
        distances = _Distances(self, X)
        start, reached, reaching = distances.reached()

        def worlds(j: int) -> Exchanges:
            found = all_worlds(
                j, *self.table, *new, *distances.among(j), start, reached, reaching,
                step.limits, self.low, self.high, self.root, plus,
            )  # fmt: skip
            return count_ranked_exchanges(*found, step)

        calls = ((j,) for j in rows.tolist())
        every = run_threads(worlds, calls, total=len(rows), n_jobs=self.n_jobs)
        yield from zip(rows.tolist(), every, strict=True)

    def _neighbours(self, X: FloatArray) -> Table:
        """Neighbours of the new rows in D."""
        table = _empty_table(len(X), self.high + 2)
        there = min(self.high + 2, len(self.table[0]))
        found = self.search.nearest(X, there, n_jobs=self.n_jobs)
        table[0][:, :there], table[1][:, :there] = found
        return table


def _empty_table(rows: int, width: int) -> Table:
    """A table of infinite distances and rows -1: there may be fewer than `width` neighbours."""
    return np.full((rows, width), np.inf), np.full((rows, width), -1, dtype=np.int32)


def _rows_of(search: Search) -> FloatArray:
    rows = search.rows if isinstance(search, PairwiseSearch) else tree_of(search).rows
    return np.asarray(rows)


class _Distances:
    """Distances of new rows to each other, and to the rows of D that they reach."""

    def __init__(self, neighbours: NeighbourWorlds, X: FloatArray) -> None:
        self.search, self.X = neighbours.search, X
        self.reach = neighbours.table[0][:, -1]

    def among(self, j: int) -> tuple[FloatArray, FloatArray]:
        """Distances of the new rows to x_j, and of x_j to the new rows."""
        search, X = self.search, self.X
        if isinstance(search, PairwiseSearch):
            # A metric that is given as a function need not be symmetric.
            to_new = _measure(search, X, X[j : j + 1])[:, 0]
            return np.ascontiguousarray(to_new), _measure(search, X[j : j + 1], X)[0]
        to_new = np.empty(len(X))
        measure_leaf(self._embedded[j], self._by_feature, tree_of(search).formula.power, to_new)
        return to_new, to_new

    @cached_property
    def _embedded(self) -> FloatArray:
        return tree_of(self.search).embed(self.X)

    @cached_property
    def _by_feature(self) -> FloatArray:
        return np.ascontiguousarray(self._embedded.T)

    def reached(self) -> tuple[RankArray, RankArray, FloatArray]:
        """Rows of D to which a new row is nearer than the last in their table, compressed."""
        lists = self._by_rows() if isinstance(self.search, PairwiseSearch) else self._by_tree()
        start = np.cumsum([0, *(len(rows) for rows, _ in lists)])
        return (
            start,
            np.concatenate([rows for rows, _ in lists]).astype(np.int64),
            np.concatenate([distances for _, distances in lists]),
        )

    def _by_tree(self) -> list[tuple[RankArray, FloatArray]]:
        tree = tree_of(self.search)
        reaches = reach_in_tree(tree.tree[1], self.reach)
        power = tree.formula.power
        return [within_reach(x, *tree.tree, *reaches, power) for x in self._embedded]

    def _by_rows(self) -> list[tuple[RankArray, FloatArray]]:
        search, lists = self.search, []
        assert isinstance(search, PairwiseSearch)
        for x in self.X:
            distances = _measure(search, search.rows, x[None])[:, 0]
            rows = np.flatnonzero(distances < self.reach)
            lists.append((rows, distances[rows]))
        return lists


def _measure(search: PairwiseSearch, X: FloatArray, Y: FloatArray) -> FloatArray:
    """Distances of rows X, which are scored, to rows Y."""
    rows = PairwiseSearch(Y, search.metric, search.parameters)
    return rows._measure(rows._prepare(X), 0)
