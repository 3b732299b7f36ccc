"""Exact search for nearest neighbours: the metrics, and a search that suits the data.

Two distances that are equal must come out equal, whichever way they are reached, or a tie is
broken by rounding and a rank is wrong. So each metric has one formula. `TreeSearch` uses nothing
else; `WideSearch` lets a matrix product propose candidates and measures them by the formula.

`neighbours_among` says how many neighbours to look for where reference and new rows are fitted
together.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from ...arrays import AnyArray, BoolArray, FloatArray, Int32Array
from ...errors import ReconformError, check_count, unknown_choice
from ...parallel import run_blocks
from .kernels import nearest, squared_distances

ALGORITHMS = ("auto", "kd_tree", "ball_tree", "brute")

Table = tuple[FloatArray, Int32Array]

# Wider than this, boxes hardly prune and a matrix product is quicker (scikit-learn's rule).
NARROW = 15
# Starting scikit-learn's search takes some milliseconds: about so many differences of two numbers.
SMALL_WORK = 1 << 25
# One of so many differences is as much work as a simple step: vectors, and rows that are passed by.
SPARED = 8
# The squares of larger numbers overflow.
LARGEST = 1e150
# Candidates that a matrix product proposes beyond those that are needed.
SPARE = 4
# Products of two numbers in one call: about half a second of one core.
AT_ONCE = 1 << 33


class Search(Protocol):
    """The rows of a model, ready to be searched."""

    def nearest(
        self, X: FloatArray, width: int, *, own: Int32Array | None = None, n_jobs: int | None = None
    ) -> Table:
        """Find the `width` nearest rows of each row of X.

        Parameters
        ----------
        X : float array of shape (m, d)
        width : int
            Not more than there are rows (besides the row itself).
        own : int array of shape (m,), optional
            For rows of X that are rows of the model: which one, so that a row is not its own
            neighbour. -1 for none.
        n_jobs : int, optional
            Threads; never changes a number.

        Returns
        -------
        distances, rows : arrays of shape (m, width)
            Sorted by distance, then by row.
        """
        ...


def make_search(
    X: FloatArray,
    *,
    metric: str = "minkowski",
    p: float = 2,
    algorithm: str = "auto",
    leaf_size: int = 30,
) -> Search:
    """Prepare rows for a search; parameters as in scikit-learn's `NearestNeighbors`.

    Examples
    --------
    >>> import numpy as np
    >>> search = make_search(np.array([[0.0], [2.0], [5.0]]))
    >>> search.nearest(np.array([[1.5]]), 2)
    (array([[0.5, 1.5]]), array([[1, 0]], dtype=int32))
    """
    if algorithm not in ALGORITHMS:
        raise unknown_choice("algorithm", algorithm, ALGORITHMS)
    if not p > 0:
        raise ReconformError(f"p must be a positive number; got {p!r}.")
    formulas = {**FORMULAS, "minkowski": Formula(float(p), 1.0 if p == np.inf else 1.0 / float(p))}
    if not isinstance(metric, str) or metric not in formulas:
        raise ReconformError(
            f"metric must be one of {', '.join(sorted(formulas))}; got {metric!r}. For any other, "
            "give PyOD's detector: `detector=pyod.models.knn.KNN(metric=...)`."
        )
    tree = TreeSearch(X, formulas[metric], leaf_size)
    wide = algorithm == "brute" or (algorithm == "auto" and tree.rows.shape[1] > NARROW)
    wide = wide and tree.formula.power == 2 and np.abs(tree.rows).max() < LARGEST
    return WideSearch(tree) if wide else tree


@dataclass(frozen=True)
class Formula:
    """A distance: (sum of |a - b|^power)^root of the rows as `embed` sees them."""

    power: float
    root: float
    embed: Callable[[FloatArray], FloatArray] | None = None


def _directions(X: FloatArray) -> FloatArray:
    """Shrink rows to length sqrt(1/2): then |a - b|^2 = 1 - cos(a, b).

    A row of zeros has no direction. As in scikit-learn it is at distance 1 from all that have
    one, which a feature of its own does; unlike there, it is at distance 0 from its like.
    """
    scale = np.abs(X).max(axis=1)
    empty = scale == 0
    unit = X / np.where(empty, 1.0, scale)[:, None]
    # Feature by feature, so that the sum of a row does not depend on how many rows there are.
    squares = np.zeros(len(X))
    for column in unit.T:
        squares += column * column
    unit /= np.sqrt(2.0 * np.where(empty, 1.0, squares))[:, None]
    return np.column_stack([unit, np.where(empty, np.sqrt(0.5), 0.0)])


_EUCLIDEAN, _MANHATTAN, _CHEBYSHEV = Formula(2.0, 0.5), Formula(1.0, 1.0), Formula(np.inf, 1.0)
# Every metric but Minkowski's, which has a power of its own.
FORMULAS = {
    "euclidean": _EUCLIDEAN,
    "l2": _EUCLIDEAN,
    "sqeuclidean": Formula(2.0, 1.0),
    "manhattan": _MANHATTAN,
    "cityblock": _MANHATTAN,
    "l1": _MANHATTAN,
    "chebyshev": _CHEBYSHEV,
    "infinity": _CHEBYSHEV,
    "cosine": Formula(2.0, 1.0, _directions),
}


def build_tree(X: FloatArray, leaf_size: int) -> tuple[FloatArray, Int32Array, FloatArray]:
    """Halve the rows along their widest feature until `leaf_size` of them are left.

    Parameters
    ----------
    X : float array of shape (n, d)
    leaf_size : int

    Returns
    -------
    leaves : float array of shape (n_leaves, d, leaf_size)
        The rows of each leaf, feature by feature. All leaves are full but the last, which is
        filled up with infinity.
    ids : int array of shape (n_leaves, leaf_size)
        Which row of X each one is; -1 where the last leaf is filled up.
    boxes : float array of shape (2 n_leaves - 1, 2, d)
        The smallest and largest value of each feature in every node, in preorder.
    """
    n, d = X.shape
    n_leaves = -(-n // leaf_size)
    order = np.arange(n)
    boxes = np.empty((2 * n_leaves - 1, 2, d))
    nodes = [(0, 0, n_leaves)]
    while nodes:
        node, first, last = nodes.pop()
        start, stop = first * leaf_size, min(last * leaf_size, n)
        rows = X[order[start:stop]]
        boxes[node] = rows.min(axis=0), rows.max(axis=0)
        if last - first > 1:
            middle = (first + last) // 2
            with np.errstate(over="ignore"):
                widest = rows[:, np.argmax(boxes[node, 1] - boxes[node, 0])]
            halves = np.argpartition(widest, middle * leaf_size - start)
            order[start:stop] = order[start:stop][halves]
            nodes.append((node + 1, first, middle))
            nodes.append((node + 2 * (middle - first), middle, last))
    leaves = np.full((n_leaves * leaf_size, d), np.inf)
    leaves[:n] = X[order]
    ids = np.full(n_leaves * leaf_size, -1, dtype=np.int32)
    ids[:n] = order
    by_feature = leaves.reshape(n_leaves, leaf_size, d).transpose(0, 2, 1)
    return np.ascontiguousarray(by_feature), ids.reshape(n_leaves, leaf_size), boxes


class TreeSearch:
    """A tree of boxes; exact because bounds and distances are one formula."""

    def __init__(self, X: FloatArray, formula: Formula, leaf_size: int = 30) -> None:
        self.formula = formula
        self.rows = self.embed(X)
        self.leaf_size = -8 * (-leaf_size // 8)  # whole vector registers

    def embed(self, X: FloatArray) -> FloatArray:
        """See rows as the formula does."""
        rows = X if self.formula.embed is None else self.formula.embed(X)
        # A kernel is compiled once more for read-only arrays; a copy is cheaper.
        return np.require(rows, dtype=np.float64, requirements=["C", "W"])

    @cached_property
    def tree(self) -> tuple[FloatArray, Int32Array, FloatArray]:
        """Leaves, ids and boxes of `build_tree`."""
        return build_tree(self.rows, self.leaf_size)

    def nearest(
        self, X: FloatArray, width: int, *, own: Int32Array | None = None, n_jobs: int | None = None
    ) -> Table:
        """Find the nearest rows, as `Search` says."""
        return self.nearest_embedded(self.embed(X), width, own, n_jobs)

    def nearest_embedded(
        self, queries: FloatArray, width: int, own: Int32Array | None, n_jobs: int | None
    ) -> Table:
        """Find the nearest rows of queries that are embedded already."""
        m = len(queries)
        itself = np.full(m, -1, dtype=np.int32) if own is None else own
        distances = np.empty((m, width))
        rows = np.empty((m, width), dtype=np.int32)
        power, root, tree = self.formula.power, self.formula.root, self.tree
        kernel = partial(nearest, queries, itself, *tree, power, root, distances, rows)
        run_blocks(kernel, m, n_jobs=n_jobs, work=m * self.rows.size / SPARED)
        return distances, rows


class WideSearch:
    """Candidates from a matrix product, measured by the formula and checked; for wide rows.

    The product is inexact, so a row just outside the candidates might really be nearer than one
    inside. Where rounding could have done that, the tree answers instead.
    """

    def __init__(self, exact: TreeSearch) -> None:
        self.exact = exact

    @cached_property
    def middle(self) -> FloatArray:
        """Where the origin is put, because the product loses digits with the distance from it.

        Not at the mean of the rows, which a single row far away would move.
        """
        return np.asarray(np.median(self.exact.rows, axis=0))

    @cached_property
    def proposals(self) -> Any:
        """scikit-learn's brute-force search."""
        # Imported when needed: `import reconform` stays quick.
        from sklearn.neighbors import NearestNeighbors

        return NearestNeighbors(algorithm="brute").fit(self.exact.rows - self.middle)

    def nearest(
        self, X: FloatArray, width: int, *, own: Int32Array | None = None, n_jobs: int | None = None
    ) -> Table:
        """Find the nearest rows, as `Search` says."""
        exact, queries = self.exact, self.exact.embed(X)
        (m, d), n = queries.shape, len(exact.rows)
        if m * n * d <= SMALL_WORK or np.abs(queries).max() >= LARGEST:
            return exact.nearest_embedded(queries, width, own, n_jobs)

        centred = queries - self.middle
        count = min(width + (own is not None) + SPARE, n)
        proposed, rows = self._propose(centred, count)
        squares = np.empty(rows.shape)
        kernel = partial(squared_distances, queries, exact.rows, rows, squares)
        run_blocks(kernel, m, n_jobs=n_jobs, work=squares.size * d / SPARED)
        if own is not None:
            squares[rows == own[:, None]] = np.nan  # sorts last, behind infinity
        order = np.argsort(squares, axis=1, kind="stable")[:, :width]
        squares = np.take_along_axis(squares, order, axis=1)
        rows = np.take_along_axis(rows, order, axis=1)
        distances = np.sqrt(squares) if exact.formula.root == 0.5 else squares
        if count < n:
            doubtful = ~self._certain(centred, squares[:, -1], proposed[:, -1])
            if doubtful.any():
                distances[doubtful], rows[doubtful] = exact.nearest_embedded(
                    queries[doubtful], width, None if own is None else own[doubtful], n_jobs
                )
        return distances, rows

    def _propose(self, centred: FloatArray, count: int) -> Table:
        """Approximate distances of the candidates, in their order, and which rows they are."""
        m = len(centred)
        proposed, rows = np.empty((m, count)), np.empty((m, count), dtype=np.int32)
        size = max(1, AT_ONCE // self.exact.rows.size)
        for start in range(0, m, size):  # Ctrl-C is seen in between
            part = slice(start, start + size)
            proposed[part], found = self.proposals.kneighbors(centred[part], count)
            rows[part] = np.sort(found, axis=1)
        return proposed, rows

    def _certain(self, centred: FloatArray, needed: FloatArray, cut: FloatArray) -> BoolArray:
        """Say where no row beyond the proposals can be nearer than the last one needed.

        A row y nearer than sqrt(needed) to x has |y| <= |x| + sqrt(needed), and the product finds
        |x|^2 - 2 x.y + |y|^2 with an error of at most d + 8 roundings of (|x| + |y|)^2, generously
        doubled twice. So it would have been proposed if `cut` is larger than that.
        """
        lengths = np.sqrt((centred * centred).sum(axis=1))
        reach = (2.0 * lengths + np.sqrt(needed)) ** 2
        error = 4.0 * (centred.shape[1] + 8) * np.finfo(float).eps * reach
        return np.asarray(cut * cut > needed + error + np.finfo(float).tiny)


def tree_of(search: Search) -> TreeSearch:
    """The tree that answers, or that answers where a matrix product is in doubt."""
    tree = search.exact if isinstance(search, WideSearch) else search
    assert isinstance(tree, TreeSearch)
    return tree


def without_root(search: Search) -> tuple[Search, float]:
    """Search in reduced distances, and the root that was left out."""
    reduced = copy.copy(tree_of(search))
    root = reduced.formula.root
    reduced.formula = replace(reduced.formula, root=1.0)
    return WideSearch(reduced) if isinstance(search, WideSearch) else reduced, root


def nearest_of_own(search: Search, width: int, *, n_jobs: int | None = None) -> Table:
    """Find the `width` nearest other rows of every row that is searched in."""
    tree = tree_of(search)
    rows, own = tree.rows, np.arange(len(tree.rows), dtype=np.int32)
    if tree.formula.embed is not None:  # the rows are embedded already
        return tree.nearest_embedded(rows, width, own, n_jobs)
    return search.nearest(rows, width, own=own, n_jobs=n_jobs)


def reach_in_tree(ids: Int32Array, reach: FloatArray) -> tuple[FloatArray, FloatArray]:
    """How far the neighbourhoods in a tree reach.

    Parameters
    ----------
    ids : int array of shape (leaves, leaf_size)
        Of `build_tree`.
    reach : float array of shape (n,)
        How far that of each row reaches.

    Returns
    -------
    of_rows, of_nodes : float arrays of shapes (leaves, leaf_size) and (nodes,)
        The reach of the rows in the leaves, and the largest in each node.
    """
    of_rows = np.where(ids >= 0, reach[ids], -np.inf)
    return of_rows, over_nodes(of_rows.max(axis=1), np.maximum)


def over_nodes(of_leaves: AnyArray, reduce: np.ufunc) -> AnyArray:
    """Reduce numbers of the leaves of a tree to one per node, numbered as in `build_tree`.

    Examples
    --------
    >>> over_nodes(np.array([3, 1, 2]), np.maximum)
    array([3, 3, 2, 1, 2])
    """
    of_nodes = np.empty(2 * len(of_leaves) - 1, dtype=of_leaves.dtype)
    nodes = [(0, 0, len(of_leaves))]
    while nodes:
        node, first, last = nodes.pop()
        of_nodes[node] = reduce.reduce(of_leaves[first:last])
        if last - first > 1:
            middle = (first + last) // 2
            nodes.append((node + 1, first, middle))
            nodes.append((node + 2 * (middle - first), middle, last))
    return of_nodes


# Up to so large a share of the new rows may be anomalies that resemble each other.
MOST_ALIKE = 5
# The table of the distances of all rows stays within so many numbers.
MOST_DISTANCES = 1 << 25


def neighbours_among(count: int, n: int, m: int) -> int:
    """Say how many neighbours are looked at: a fifth of the new rows, by their numbers alone.

    Anomalies that resemble each other have each other for neighbours. A row among fewer of them
    than there are neighbours has to look further, to the reference.

    Parameters
    ----------
    count : int
        What the detector was given; never fewer.
    n, m : int
        Reference rows, and new rows.

    Examples
    --------
    >>> neighbours_among(5, 1_000, 300), neighbours_among(5, 1_000, 10)
    (60, 5)
    >>> neighbours_among(5, 100_000, 100_000)  # tables of more distances do not fit
    167
    """
    count = check_count("n_neighbors", count, least=1)
    return max(count, min(m // MOST_ALIKE, MOST_DISTANCES // max(n + m, 1)))
