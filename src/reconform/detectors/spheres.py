"""Spheres around randomly drawn rows: what the models of INNE are made of.

All centres of all models are rows of D. So the distances of a scored row to the rows of D serve
every set of every model, and a model is only a list of centres, radii and ratios. Scores are sums
of integers (`kernels.inne.UNIT`), hence exact: no order of work changes them, and what was added
can be taken away again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ..aggregation import FloatArray
from ..kernels import inne as kernels
from ..methods import IndexArray
from ..progress import track
from ..randomness import root_seed
from ..threads import run_blocks

SumArray = npt.NDArray[np.int64]

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
    """Which rows of its training multiset a model draws as centres.

    Attributes
    ----------
    samples : int array of shape (sets, psi)
        Positions within the training multiset; distinct within a set.
    """

    samples: IndexArray

    @classmethod
    def of(cls, size: int, psi: int, sets: int, seed: np.random.SeedSequence) -> Self:
        """Draw `sets` times `psi` out of `size` rows, without replacement within a set.

        Examples
        --------
        >>> import numpy as np
        >>> Draws.of(5, 5, 2, np.random.SeedSequence(0)).samples
        array([[0, 2, 1, 4, 3],
               [1, 3, 2, 0, 4]])
        """
        samples = np.empty((sets, psi), dtype=np.intp)
        kernels.draw_samples(seed.generate_state(1, np.uint64)[0], size, samples)
        return cls(samples)


@dataclass(frozen=True, eq=False)
class SharedDraws:
    """The centres of all leave-one-out models, which share their sets.

    A set that did not draw row i is a set of A(D without i): it has the same law. Only the sets
    that drew i are drawn again for model i, from the other rows.

    Attributes
    ----------
    samples : int array of shape (sets, psi)
        Rows of D: the sets of A(D).
    redrawn : int array of shape (sets, psi, psi)
        ``redrawn[t, j]`` takes the place of set t in the model without row ``samples[t, j]``.
    """

    samples: IndexArray
    redrawn: IndexArray

    @classmethod
    def of(cls, n: int, psi: int, sets: int, seed: np.random.SeedSequence) -> Self:
        """Draw the sets of A(D) as `Draws.of` does, and those that replace them."""
        samples = Draws.of(n, psi, sets, seed).samples
        redrawn = Draws.of(n - 1, psi, sets * psi, root_seed(seed).spawn(1)[0]).samples
        redrawn += redrawn >= samples.reshape(-1, 1)  # positions in D without the row, to rows
        return cls(samples, redrawn.reshape(sets, psi, psi))

    def without(self, i: int) -> IndexArray:
        """Rows of D that are the centres of model i, as (sets, psi)."""
        centres = self.samples.copy()
        sets, slots = np.nonzero(self.samples == i)
        centres[sets] = self.redrawn[sets, slots]
        return centres


@dataclass(frozen=True, eq=False)
class Spheres:
    """The spheres of one or more models; the arrays are described in `kernels.inne`.

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
    centre: npt.NDArray[np.uint32]
    radius: FloatArray
    ratio: SumArray
    edges: SumArray
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
        _run(kernels.build_spheres, arrays, len(sizes), work, n_jobs)
        used = np.zeros(len(X), dtype=bool)
        used[rows] = True
        centre = (np.cumsum(used, dtype=np.uint32) - np.uint32(1))[rows]
        return cls(X[used], centre, radius, ratio, edges, len(centres))

    @property
    def sets(self) -> int:
        """Sets per model."""
        return (len(self.edges) - 1) // self.models

    def scores(self, X: FloatArray, *, n_jobs: int | None = None) -> FloatArray:
        """Scores of every model, (models, rows); small = strange."""
        return conformity(self.sums(X, n_jobs=n_jobs), self.sets)

    def sums(self, X: FloatArray, *, n_jobs: int | None = None) -> SumArray:
        """Sum the isolation scores over the sets of every model: (models, rows)."""
        lanes = self._lanes(len(X))
        sums = np.empty((self.models, len(X)), dtype=np.int64)
        work = len(X) * (len(self.centre) + self.table.size)
        blocks = -(-len(X) // lanes)
        _run(kernels.all_sums, (*self._arrays, X, lanes, sums), blocks, work, n_jobs)
        return sums

    def only_sums(self, X: FloatArray, *, n_jobs: int | None = None, verbose: int = 0) -> SumArray:
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
        models: npt.NDArray[np.int32],
        *,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> SumArray:
        """Sum for row ``rows[j]`` of X under ``models[indptr[j]:indptr[j + 1]]``, beside these."""
        lanes = self._lanes(len(rows))
        sums = np.empty(len(models), dtype=np.int64)
        # Rows with a model in common next to each other, so that a block asks for few models.
        order = np.argsort(models[indptr[:-1]], kind="stable")
        work = len(models) * len(self.centre) // self.models
        for step in _steps(len(rows), verbose):
            asked = (X, rows, indptr, models, order[step], lanes, sums)
            blocks = -(-len(order[step]) // lanes)
            _run(kernels.chosen_sums, (*self._arrays, *asked), blocks, work, n_jobs)
        return sums

    def count_strange(
        self,
        X: FloatArray,
        order: IndexArray,
        known: SumArray,
        bands: tuple[IndexArray, IndexArray],
        own: SumArray,
        *,
        n_jobs: int | None = None,
    ) -> tuple[SumArray, SumArray]:
        """For every model k count the rows whose sum is at least ``own[k]``, and those above it.

        Parameters
        ----------
        X : float array of shape (n, d)
        order : int array of shape (n,)
            Rows of X in the order of `known`.
        known : int array of shape (n,)
            What each of them has already, from sets that are not here.
        bands : two int arrays of shape (models,)
            From where to where in `order` each model looks.
        own : int array of shape (models,)

        Returns
        -------
        at_least, above : int arrays of shape (models,)
        """
        low, high = bands
        at_least, above = np.empty_like(own), np.empty_like(own)
        lanes = self._lanes(len(order))
        work = int((high - low).sum()) * (len(self.centre) // self.models + X.shape[1])
        asked = (X, order, known, low, high, own, lanes, at_least, above)
        _run(kernels.count_strange, (*self._arrays, *asked), self.models, work, n_jobs)
        return at_least, above

    @property
    def _arrays(self) -> tuple[Any, ...]:
        return self.table, self.centre, self.radius, self.ratio, self.edges, self.sets

    def _lanes(self, rows: int) -> int:
        fit = CACHE_BYTES // (8 * max(1, len(self.table)))
        return max(1, min(max(LEAST_LANES, fit), MOST_LANES, rows))


def conformity(sums: SumArray, sets: int) -> FloatArray:
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
    _run(kernels.measure_pairs, (X, pairs), n, n * X.size, n_jobs)
    return pairs


def _steps(total: int, verbose: int) -> Iterator[slice]:
    """Cut the rows to calibrate into steps, with a bar."""
    starts = range(0, total, STEP_ROWS)
    for start in track(starts, total=len(starts), label="calibrating INNE", verbose=verbose):
        yield slice(start, start + STEP_ROWS)


def _run(
    kernel: Any, arguments: tuple[Any, ...], total: int, work: int, n_jobs: int | None
) -> None:
    """Call ``kernel(*arguments, start, stop)`` on blocks, in threads where the work is worth it."""
    run_blocks(
        lambda start, stop: kernel(*arguments, start, stop),
        total,
        n_jobs=n_jobs if work >= LEAST_WORK else 1,
    )
