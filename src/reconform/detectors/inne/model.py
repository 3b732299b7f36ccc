"""Spheres around randomly drawn rows: what the models of INNE are made of.

All centres of all models are rows of D. So the distances of a scored row to the rows of D serve
every set of every model, and a model is only a list of centres, radii and ratios. Scores are sums
of integers (`kernels.UNIT`), hence exact: no order of work changes them, and what was added
can be taken away again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ...arrays import FloatArray, IndexArray, Int32Array, IntArray, UInt32Array, UInt64Array
from ...content import Contents, draw_rows
from ...parallel import run_blocks, track
from . import kernels

# Rows are scored in blocks, as many at a time as keep their distances to all centres within this
# much of the processor's cache, but no fewer and no more than these.
CACHE_BYTES = 1 << 22
LEAST_LANES, MOST_LANES = 16, 64

# Calibration moves the progress bar after this many rows.
STEP_ROWS = 1 << 16

# Threads are worth starting from about this many distances or comparisons.
LEAST_WORK = 1 << 25

# All pairs of rows are measured beforehand if they are no more than these, and if a distance takes
# longer to measure than to look up.
MOST_PAIRS = 1 << 22
LEAST_FEATURES = 16


@dataclass(frozen=True, eq=False)
class Draws:
    """Which rows a model draws as centres: in every set those with the smallest hashes.

    Attributes
    ----------
    samples : int array of shape (sets, psi)
        Rows, by increasing hash; this order decides between centres that are equally near.
    """

    samples: IndexArray

    @classmethod
    def of(
        cls,
        contents: Contents,
        psi: int,
        sets: int,
        seed: np.random.SeedSequence,
        train: npt.NDArray[np.integer] | None = None,
        *,
        n_jobs: int | None = 1,
    ) -> Self:
        """Draw `sets` times `psi` rows, without replacement within a set, keyed by content.

        Examples
        --------
        >>> import numpy as np
        >>> X = np.array([[0.0], [1.0], [3.0]])
        >>> here = Draws.of(Contents.of(X), 2, 5, np.random.SeedSequence(0)).samples
        >>> there = Draws.of(Contents.of(X[::-1]), 2, 5, np.random.SeedSequence(0)).samples
        >>> bool((X[here] == X[::-1][there]).all())
        True
        """
        rows = draw_rows(contents, set_streams(seed, sets), psi, train, n_jobs=n_jobs).rows
        return cls(rows.astype(np.intp))


def set_streams(seed: np.random.SeedSequence, sets: int) -> UInt64Array:
    """The streams that hash the rows, one per set."""
    return np.asarray(seed.generate_state(sets, np.uint64), dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class Spheres:
    """The spheres of one or more models; the arrays are described in `kernels`.

    Attributes
    ----------
    table : float array of shape (centres, d)
        Every distinct centre.
    centre, radius, ratio : arrays of shape (spheres,)
    edges : int array of shape (models * sets + 1,)
        Where each set begins and ends.
    models : int
        Number of models, which have equally many sets.
    """

    table: FloatArray
    centre: UInt32Array
    radius: FloatArray
    ratio: IntArray
    edges: IntArray
    models: int

    @classmethod
    def around(
        cls, X: FloatArray, centres: Sequence[IndexArray], *, n_jobs: int | None = None
    ) -> Self:
        """Build the spheres of models whose centres are these rows of X, as (sets, psi) each.

        Examples
        --------
        >>> import numpy as np
        >>> X = np.array([[0.0], [1.0], [3.0]])
        >>> Spheres.around(X, [np.array([[0, 1, 2]])]).scores(np.array([[0.5], [2.5], [9.0]]))
        array([[ 0.  , -0.75, -1.  ]])
        """
        rows = np.concatenate([model.ravel() for model in centres])
        sizes = np.repeat([model.shape[1] for model in centres], len(centres[0]))
        edges = np.concatenate([[0], np.cumsum(sizes)])
        radius, ratio = np.empty(len(rows)), np.empty(len(rows), dtype=np.int64)
        asked = int((sizes**2).sum()) // 2
        pairs = _pairs(X, asked, n_jobs)
        work = asked if len(pairs) else asked * X.shape[1]
        arrays = (X, pairs, rows, edges, radius, ratio)
        run_kernel(kernels.build_spheres, arrays, len(sizes), work, n_jobs)
        used = np.zeros(len(X), dtype=bool)
        used[rows] = True
        centre = (np.cumsum(used, dtype=np.uint32) - np.uint32(1))[rows]
        return cls(X[used], centre, radius, ratio, edges, len(centres))

    @property
    def sets(self) -> int:
        """Sets per model."""
        return (len(self.edges) - 1) // self.models

    def scores(self, X: FloatArray, *, n_jobs: int | None = None) -> FloatArray:
        """Scores of every model, (models, rows); small = anomalous."""
        return conformity(self.sums(X, n_jobs=n_jobs), self.sets)

    def sums(self, X: FloatArray, *, n_jobs: int | None = None) -> IntArray:
        """Sum the isolation scores over the sets of every model: (models, rows)."""
        lanes = self.lanes(len(X))
        sums = np.empty((self.models, len(X)), dtype=np.int64)
        work = len(X) * (len(self.centre) + self.table.size)
        blocks = -(-len(X) // lanes)
        run_kernel(kernels.all_sums, (*self.arrays, X, lanes, sums), blocks, work, n_jobs)
        return sums

    def only_sums(self, X: FloatArray, *, n_jobs: int | None = None, verbose: int = 0) -> IntArray:
        """Sum for all rows of D under the only model, (rows,), with a progress bar."""
        sums = np.empty(len(X), dtype=np.int64)
        for step in _steps(len(X), verbose):
            sums[step] = self.sums(X[step], n_jobs=n_jobs)[0]
        return sums

    def chosen_sums(
        self,
        X: FloatArray,
        rows: IndexArray,
        indptr: IndexArray,
        models: Int32Array,
        *,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> IntArray:
        """Sum for row ``rows[j]`` of X under ``models[indptr[j]:indptr[j + 1]]``, beside these."""
        lanes = self.lanes(len(rows))
        sums = np.empty(len(models), dtype=np.int64)
        # Rows with a model in common next to each other, so that a block asks for few models.
        order = np.argsort(models[indptr[:-1]], kind="stable")
        work = len(models) * len(self.centre) // self.models
        for step in _steps(len(rows), verbose):
            asked = (X, rows, indptr, models, order[step], lanes, sums)
            blocks = -(-len(order[step]) // lanes)
            run_kernel(kernels.chosen_sums, (*self.arrays, *asked), blocks, work, n_jobs)
        return sums

    @property
    def arrays(self) -> tuple[Any, ...]:
        """What every kernel asks for."""
        return self.table, self.centre, self.radius, self.ratio, self.edges, self.sets

    def lanes(self, rows: int) -> int:
        """Rows that are scored at a time."""
        fit = CACHE_BYTES // (8 * max(1, len(self.table)))
        return max(1, min(max(LEAST_LANES, fit), MOST_LANES, rows))


def conformity(sums: IntArray, sets: int) -> FloatArray:
    """Turn sums of isolation scores into conformity scores: minus their mean over the sets.

    Examples
    --------
    >>> import numpy as np
    >>> conformity(np.array([0, kernels.UNIT, 3 * kernels.UNIT]), 4)
    array([ 0.  , -0.25, -0.75])
    """
    return np.asarray(0.0 - sums / float(kernels.UNIT * sets))


def _pairs(X: FloatArray, asked: int, n_jobs: int | None) -> FloatArray:
    """Measure all rows against each other, where sets would measure the same pairs many times."""
    n = len(X)
    if n * n > min(asked, MOST_PAIRS) or X.shape[1] < LEAST_FEATURES:
        return np.empty((0, 0))
    pairs = np.empty((n, n))
    columns = np.ascontiguousarray(X.T)
    run_kernel(kernels.measure_pairs, (X, columns, pairs), n, n * X.size, n_jobs)
    return pairs


def _steps(total: int, verbose: int) -> Iterator[slice]:
    """Cut the rows to calibrate into steps, with a bar."""
    starts = range(0, total, STEP_ROWS)
    for start in track(starts, total=len(starts), label="calibrating INNE", verbose=verbose):
        yield slice(start, start + STEP_ROWS)


def run_kernel(
    kernel: Any, arguments: tuple[Any, ...], total: int, work: int, n_jobs: int | None
) -> None:
    """Call ``kernel(*arguments, start, stop)`` on blocks, in threads where the work is worth it."""
    run_blocks(
        lambda start, stop: kernel(*arguments, start, stop),
        total,
        n_jobs=n_jobs if work >= LEAST_WORK else 1,
    )
