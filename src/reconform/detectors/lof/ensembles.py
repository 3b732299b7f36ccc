"""All models of leave-one-out, and a model per new row, by local repairs of the one on D.

A row that joins changes the neighbours of the rows it is near to; then the densities of these and
of rows that have them as neighbours; then the scores of these and of rows that have those as
neighbours. Everything else stays. The same holds for a row that leaves. What is repaired is added
up in the order of a fit from scratch, so scores are the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

import numpy as np

from ...arrays import FloatArray, IndexArray, Int32Array, RankArray
from ...content import scores_by_content, sorted_by_content
from ...ensemble import (
    AugmentedScores,
    Ensemble,
    ResampledEnsemble,
    augmented_blocks,
    left_out_calibration,
    reference_calibration,
)
from ...methods import Plan
from ...parallel import run_blocks
from ...statistics.ranks import BLOCK_BYTES, Calibration, Ranks
from ..knn.search import Search, make_search, over_nodes, tree_of, worthwhile_jobs
from .kernels import (
    augmented_full,
    count_changes,
    count_models,
    fit_scores,
    held_out_scores,
    list_changes,
    rank_full,
    score_by_models,
    score_new,
    settle,
)


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


# What `score_by_models` takes of the models: which row each leaves out, the neighbours of D, reach
# and density of the model on D, and the densities that are others.
Known = tuple[
    Int32Array, Int32Array, FloatArray, FloatArray, FloatArray, RankArray, Int32Array, FloatArray
]
# What `rank_full` and `augmented_full` take of D: columns, neighbours, reach, density, scores.
Tables = tuple[
    FloatArray, FloatArray, FloatArray, Int32Array, RankArray, Int32Array, FloatArray, FloatArray,
    FloatArray,
]  # fmt: skip

# use(first, start, t): t are the scores of new rows from `start` on by models from `first` on.
# Called in threads, for the same models and different rows.
Use = Callable[[int, int, FloatArray], None]

# So many models are compared with new rows at a time, and so many new rows with them: what models
# change is in memory.
MODELS_AT_ONCE = 4096
ROWS_AT_ONCE = 64


def _held_out(graph: Graph, held: RankArray) -> FloatArray:
    """Scores of some rows of the graph by the model without them."""
    c = np.empty(len(held))
    tables = held, graph.rows, graph.distances, graph.indptr, graph.near_to

    def kernel(start: int, stop: int) -> None:
        held_out_scores(*tables, graph.reach, graph.density, start, stop, c)

    run_blocks(kernel, len(c), n_jobs=graph.n_jobs)
    return c


@dataclass(eq=False)
class LeaveOneOutLOF(ResampledEnsemble):
    """All leave-one-out models, or some of them, as changes to the one on D.

    Attributes
    ----------
    plan : Plan
    calibration : Calibration
    full : LOFModel
        A(D), which has all that the other models need: they are kept whatever the variant.
    places : int array of shape (n,)
        Where each row of D is among those of A(D).
    """

    plan: Plan
    calibration: Calibration
    full: LOFModel
    places: RankArray

    @classmethod
    def fit(cls, X: FloatArray, n_neighbors: int, plan: Plan, n_jobs: int | None = None) -> Self:
        """Score every row that is left out by the model without it."""
        full = LOFModel.of(X, n_neighbors, n_jobs)
        graph = _one_more(full)
        places = np.empty(plan.n, dtype=np.int64)
        places[sorted_by_content(X)[1]] = np.arange(plan.n)
        scores = _held_out(graph, places[plan.left_out])
        calibration = left_out_calibration(plan, scores)
        ensemble = cls(plan, calibration, full, places)
        ensemble.graph = graph
        return ensemble

    @cached_property
    def graph(self) -> Graph:
        """Neighbours in D, one more than the models without a row look at."""
        return _one_more(self.full)

    def full_scores(self, X: FloatArray) -> FloatArray:
        """Scores of A(D)."""
        same = self.graph.k == self.full.k
        return self.graph.score(X) if same else self.full.score_samples(X)

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every resampled model, (models, rows)."""
        scores = np.empty((self.plan.n_models, len(X)))

        def write(first: int, start: int, t: FloatArray) -> None:
            scores[first : first + t.shape[1], start : start + len(t)] = t.T

        self._score_by_models(X, write)
        return scores

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows, some models and all new rows at a time."""
        variant = self.plan.variant if variant is None else variant
        if variant != "plus":
            return super().ranks(X, variant=variant, strictly=strictly)
        at_most, below = np.ones((2, len(X)), dtype=np.int64)
        c = self.calibration.scores

        def count(first: int, start: int, t: FloatArray) -> None:
            count_models(c[first : first + t.shape[1]], t, start, at_most, below)

        self._score_by_models(X, count)
        return Ranks(at_most, below if strictly else None, self.full_scores(X))

    def _score_by_models(self, X: FloatArray, use: Use) -> None:
        """Call ``use(first, start, t)`` with the scores of some new rows by some models."""
        graph = self.graph
        squares, new_rows = graph.nearest(X, graph.k + 1)
        new = new_rows, np.sqrt(squares)
        held = self.places[self.plan.left_out]
        for first in range(0, len(held), MODELS_AT_ONCE):
            some = held[first : first + MODELS_AT_ONCE]
            place = np.full(len(graph.X), -1, dtype=np.int32)
            place[some] = np.arange(len(some))
            fitted = place, graph.rows, graph.distances, graph.reach, graph.density
            kernel = partial(_use, new, (*fitted, *_changes(graph, some)), first, len(some), use)
            run_blocks(kernel, len(X), n_jobs=graph.n_jobs)


def _one_more(full: LOFModel) -> Graph:
    """The graph of the models without a row: all their neighbours are among the first k + 1."""
    k = min(full.k, len(full.X) - 2)
    return Graph.of(full.X, k, k + 1, full.n_jobs)


def _changes(graph: Graph, held: RankArray) -> tuple[RankArray, Int32Array, FloatArray]:
    """Densities that are not those of the model on D: where each row's begin, models, densities."""
    tables = graph.distances, graph.indptr, graph.near_to
    edges = np.zeros(len(graph.X) + 1, dtype=np.int64)
    np.cumsum(count_changes(held, *tables), out=edges[1:])
    which, densities = np.empty(edges[-1], dtype=np.int32), np.empty(edges[-1])
    list_changes(held, graph.rows, *tables, graph.reach, edges[:-1].copy(), which, densities)
    return edges, which, densities


def _use(
    new: tuple[Int32Array, FloatArray],
    known: Known,
    model: int,
    models: int,
    use: Use,
    start: int,
    stop: int,
) -> None:
    """Score new rows ``start`` to ``stop`` by models from `model` on, and use the scores."""
    for first in range(start, stop, ROWS_AT_ONCE):
        last = min(first + ROWS_AT_ONCE, stop)
        t = np.empty((last - first, models))
        score_by_models(new[0], new[1], *known, first, last, t)
        use(model, first, t)


# --- full-conformal ------------------------------------------------------------------------------


@dataclass(eq=False)
class FullLOF(Ensemble):
    """A model on D and x for every new row x, as changes to the one on D.

    Attributes
    ----------
    calibration : Calibration
        Scores of D without any new row, for showing.
    X : float array of shape (n, d)
        D, in the order of its contents.
    k : int
        Neighbours, of n + 1 rows: at most n.
    order : int array of shape (n,)
        Where the rows of X stood in the reference.
    n_jobs : int or None
        Threads; never changes a number.
    """

    calibration: Calibration
    X: FloatArray
    k: int
    order: IndexArray
    n_jobs: int | None = None

    @classmethod
    def fit(cls, X: FloatArray, n_neighbors: int, n_jobs: int | None = None) -> Self:
        """Look up the neighbours of every row of D.

        Examples
        --------
        >>> import numpy as np
        >>> full = FullLOF.fit(np.array([[0.0], [1.0], [2.0], [4.0]]), 2)
        >>> full.ranks(np.array([[1.5], [9.0]])).at_most
        array([3, 1])
        """
        model = LOFModel.of(X, n_neighbors, n_jobs)
        k = min(n_neighbors, len(X))
        calibration, order = (
            reference_calibration(model.training_scores(X)),
            sorted_by_content(X)[1],
        )
        ensemble = cls(calibration, model.X, k, order, n_jobs)
        if k == model.k:
            ensemble.graph = model.graph
        return ensemble

    @cached_property
    def graph(self) -> Graph:
        """Neighbours in D, as many as a score among n + 1 rows needs."""
        return Graph.of(self.X, self.k, self.k, self.n_jobs)

    @cached_property
    def _tables(self) -> Tables:
        graph = self.graph
        lists = graph.squares, graph.distances, graph.rows, graph.indptr, graph.near_to
        fitted = graph.reach, graph.density, graph.scores
        return np.ascontiguousarray(graph.X.T), *lists, *fitted

    @cached_property
    def _ordered(self) -> FloatArray:
        return np.sort(self.graph.scores)

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row x among D, all of them scored with x there; there are no variants."""
        at_most, below = np.empty((2, len(X)), dtype=np.int64)
        t = np.empty(len(X))
        squares, rows = self.graph.nearest(X, self.k)
        distances, places = np.sqrt(squares), positions(self.X, X)
        queries, tables, ordered = np.ascontiguousarray(X), self._tables, self._ordered

        def kernel(start: int, stop: int) -> None:
            rank_full(
                queries, places, distances, rows, *tables, ordered, start, stop, at_most, below, t
            )

        run_blocks(kernel, len(X), n_jobs=self.n_jobs)
        return Ranks(at_most, below if strictly else None, t)

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows with each of some new rows there, as refits do, bit for bit."""
        squares, near = self.graph.nearest(X, self.k)
        places, (starts, stops) = positions(self.X, X), _runs(self.X)
        at = np.minimum(np.searchsorted(starts, places), len(starts) - 1)
        equal = (self.X[starts[at]] == X).all(axis=1) & (starts[at] == places)
        copies = np.where(equal, stops[at] - starts[at], 0)
        several = np.column_stack([starts, stops])[stops - starts > 1]
        queries, tables = np.ascontiguousarray(X), self._tables
        by_feature, distances = np.ascontiguousarray(X.T), np.sqrt(squares)

        def kernel(
            block: IndexArray, start: int, stop: int, own: FloatArray, others: FloatArray
        ) -> None:
            augmented_full(
                queries, by_feature, places, copies, several, squares, distances, near, *tables,
                block, start, stop, own, others,
            )  # fmt: skip

        return augmented_blocks(
            kernel, rows, len(self.X), len(X), n_jobs=self.n_jobs, order=self.order
        )


def _runs(ordered: FloatArray) -> tuple[RankArray, RankArray]:
    """Where rows that equal each other begin and end, of rows in the order of their contents."""
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    starts = np.flatnonzero(first).astype(np.int64)
    return starts, np.append(starts[1:], len(ordered))


def positions(ordered: FloatArray, X: FloatArray) -> RankArray:
    """Say before which row each row of X belongs by its content: ahead of rows that equal it.

    Examples
    --------
    >>> import numpy as np
    >>> positions(np.array([[0.0], [2.0]]), np.array([[2.0], [-1.0], [3.0]]))
    array([1, 0, 2])
    """
    # The new rows come first and the sort is stable, so they are ahead of their equals.
    order = sorted_by_content(np.vstack([X, ordered]))[1]
    is_old = order >= len(X)
    before = np.empty(len(X), dtype=np.int64)
    before[order[~is_old]] = np.cumsum(is_old)[~is_old]
    return before
