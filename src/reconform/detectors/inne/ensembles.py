"""All models of a plan, made of spheres.

Every model has sets of its own (`SeparateINNE`), or leave-one-out models with one seed share theirs
(`LeaveOneOutINNE`), or there is a model per new row (`EnteredINNE`). The centres of a set are the
psi rows with the smallest hashes. Leaving out one of them moves the row with the next hash up, and
a new row with a smaller hash takes the place of the last; both are what a fit on these rows gives.

All centres of all models are rows of D. So the distances of a scored row to the rows of D serve
every set of every model, and a model is only a list of centres, radii and ratios. Scores are sums
of integers (`kernels.UNIT`), hence exact: no order of work changes them, and what was added
can be taken away again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
import numpy.typing as npt

from ...arrays import FloatArray, IndexArray, Int32Array, IntArray, UInt32Array, UInt64Array
from ...content import Contents, draw_rows
from ...ensemble import ResampledEnsemble, blocks_of, reference_calibration
from ...methods import Plan
from ...parallel import run_blocks, track
from ...statistics.ranks import Calibration, calibrate_beside, reduction
from ..one_more import EnteredEnsemble
from . import kernels

# Rows are scored in blocks, as many at a time as keep their distances to all centres within this
# much of the processor's cache, but no fewer and no more than these.
CACHE_BYTES = 1 << 22
LEAST_LANES, MOST_LANES = 16, 64

# Calibration moves the progress bar after this many rows.
STEP_ROWS = 1 << 16

# One of so many distances or comparisons is as much work as a simple step of `run_blocks`.
VECTOR = 8


def draw_centres(
    contents: Contents,
    psi: int,
    sets: int,
    seed: np.random.SeedSequence,
    train: npt.NDArray[np.integer] | None = None,
    *,
    n_jobs: int | None = 1,
) -> IndexArray:
    """Draw the centres of the sets of a model, (sets, psi): the rows with the smallest hashes.

    By increasing hash: this order decides between centres that are equally near.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [3.0]])
    >>> here = draw_centres(Contents.of(X), 2, 5, np.random.SeedSequence(0))
    >>> there = draw_centres(Contents.of(X[::-1]), 2, 5, np.random.SeedSequence(0))
    >>> bool((X[here] == X[::-1][there]).all())
    True
    """
    rows = draw_rows(contents, set_streams(seed, sets), psi, train, n_jobs=n_jobs).rows
    return rows.astype(np.intp)


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
        kernel = partial(kernels.build_spheres, X, rows, edges, radius, ratio)
        work = int((sizes**2).sum()) // 2 * X.shape[1] / VECTOR
        run_blocks(kernel, len(sizes), n_jobs=n_jobs, work=work)
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
        kernel = partial(kernels.all_sums, self.arrays, X, lanes, sums)
        work = len(X) * (len(self.centre) + self.table.size) / VECTOR
        run_blocks(kernel, -(-len(X) // lanes), n_jobs=n_jobs, work=work)
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
        work = len(models) * len(self.centre) // self.models / VECTOR
        for step in _steps(len(rows), verbose):
            asked = X, rows, indptr, models, order[step], lanes, sums
            kernel = partial(kernels.chosen_sums, self.arrays, *asked)
            run_blocks(kernel, -(-len(order[step]) // lanes), n_jobs=n_jobs, work=work)
        return sums

    @property
    def arrays(self) -> kernels.Sets:
        """The spheres as the kernels take them."""
        arrays = self.table, self.centre, self.radius, self.ratio, self.edges
        return kernels.Sets(*arrays, self.sets)

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


def _steps(total: int, verbose: int) -> Iterator[slice]:
    """Cut the rows to calibrate into steps, with a bar."""
    starts = range(0, total, STEP_ROWS)
    for start in track(starts, total=len(starts), label="calibrating INNE", verbose=verbose):
        yield slice(start, start + STEP_ROWS)


@dataclass(eq=False)
class SeparateINNE(ResampledEnsemble):
    """All models of a plan, each with sets of its own.

    Attributes
    ----------
    plan : Plan
    calibration : Calibration
    full : Spheres
        A(D), or the only model of a plan without one.
    models : Spheres or None
        The resampled models; None after a basic fit, which needs them for calibration only.
    n_jobs : int or None
        Threads for scoring.
    """

    plan: Plan
    calibration: Calibration
    full: Spheres
    models: Spheres | None
    n_jobs: int | None = None

    @classmethod
    def fit(
        cls,
        X: FloatArray,
        plan: Plan,
        centres: Sequence[IndexArray],
        full_centres: IndexArray | None,
        *,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> Self:
        """Build every model around its centres, rows of D as (sets, psi), and calibrate."""
        models = Spheres.around(X, centres, n_jobs=n_jobs)
        sums = models.chosen_sums(X, *plan.membership, n_jobs=n_jobs, verbose=verbose)
        calibration = calibrate_beside(
            plan, conformity(sums, models.sets), reduction(plan.aggregate)
        )
        if full_centres is None:  # a plan without A(D)
            return cls(plan, calibration, models, None, n_jobs)
        full = Spheres.around(X, [full_centres], n_jobs=n_jobs)
        return cls(plan, calibration, full, None if plan.variant == "basic" else models, n_jobs)

    @property
    def retained(self) -> bool:
        """Whether the resampled models are kept."""
        return self.models is not None

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every resampled model, (models, rows)."""
        assert self.models is not None
        return self.models.scores(X, n_jobs=self.n_jobs)

    def full_scores(self, X: FloatArray) -> FloatArray:
        """Scores of A(D), or of the only model."""
        return np.asarray(self.full.scores(X, n_jobs=self.n_jobs)[0])


class Slots:
    """The base sets, and those that take their place in the models without a drawn row.

    A slot is a base set and one row that it drew. Slots are kept in the order of their rows.

    Attributes
    ----------
    rows : int array
        The affected rows of D: those that some set drew. The model without any other row has
        the base sets.
    replaced : int array of shape (slots,)
        The base set that each slot replaces.
    """

    def __init__(
        self, X: FloatArray, samples: IndexArray, redrawn: IndexArray, *, n_jobs: int | None
    ) -> None:
        """Take the sets (sets, psi), and those that replace one for each of its rows."""
        self._sets, psi = samples.shape
        drawn = samples.ravel()
        order = np.argsort(drawn, kind="stable")
        self.rows, self._starts = np.unique(drawn[order], return_index=True)
        self.replaced = order // psi
        centres = np.concatenate([samples, redrawn.reshape(-1, psi)[order]])
        self._spheres = _sets_apart(X, centres, n_jobs)

    @property
    def sets(self) -> int:
        """Base sets, and those that replace one."""
        return self._spheres.models

    def scores(self, X: FloatArray, *, n_jobs: int | None) -> tuple[FloatArray, FloatArray]:
        """Scores of the base sets, (m,), and of the models without an affected row, (rows, m)."""
        values = self._spheres.sums(X, n_jobs=n_jobs)
        base, redrawn = values[: self._sets], values[self._sets :]
        total = base.sum(axis=0)
        affected = total + self._by_row(redrawn - base[self.replaced])
        return conformity(total, self._sets), conformity(affected, self._sets)

    def own_changes(self, X: FloatArray, *, n_jobs: int | None) -> IntArray:
        """For every affected row i: its sum under model i, less that under the base sets."""
        n_slots = len(self.replaced)
        asked = np.stack([self.replaced, self._sets + np.arange(n_slots)], axis=1)
        pairs = self._spheres.chosen_sums(
            X,
            np.repeat(self.rows, np.diff(np.append(self._starts, n_slots))),
            np.arange(0, 2 * n_slots + 1, 2),
            asked.ravel().astype(np.int32),
            n_jobs=n_jobs,
        ).reshape(n_slots, 2)
        return self._by_row(pairs[:, 1] - pairs[:, 0])

    def _by_row(self, values: IntArray) -> IntArray:
        """Add up the values of the slots of each affected row."""
        return np.asarray(np.add.reduceat(values, self._starts, axis=0))


@dataclass(eq=False)
class LeaveOneOutINNE(ResampledEnsemble):
    """Models on D without a row, with one seed: each equals `INNE.fit` on these rows.

    Attributes
    ----------
    plan : Plan
    calibration : Calibration
    full : Spheres
        A(D).
    slots : Slots or None
        The base sets, and those that replace them in the models without a row; None after a basic
        fit, which needs them for calibration only.
    model : int array of shape (n_models,)
        For every row that is left out the position of its model in ``slots.rows``; -1 where none
        of its sets is replaced. Equal rows have one model.
    n_jobs : int or None
        Threads for scoring.
    """

    plan: Plan
    calibration: Calibration
    full: Spheres
    slots: Slots | None
    model: IndexArray
    n_jobs: int | None = None

    @classmethod
    def fit(
        cls,
        X: FloatArray,
        plan: Plan,
        psi_for: Callable[[int], int],
        sets: int,
        seed: np.random.SeedSequence,
        *,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> Self:
        """Draw one centre more than a set has, and let it replace each of the others in turn."""
        n, psi, whole = len(X), psi_for(len(X) - 1), psi_for(len(X))
        contents = Contents.of(X, n_jobs=n_jobs)
        drawn = draw_centres(contents, psi + 1, sets, seed, n_jobs=n_jobs)
        places = np.arange(psi)
        others = places[None, :] + (places[None, :] >= places[:, None])
        slots = Slots(X, drawn[:, :psi], drawn[:, others], n_jobs=n_jobs)
        at = np.full(n, -1, dtype=np.intp)
        at[slots.rows] = np.arange(len(slots.rows))
        model = at[contents.last]
        base = Spheres.around(X, [drawn[:, :psi]], n_jobs=n_jobs)
        sums = base.only_sums(X, n_jobs=n_jobs, verbose=verbose)
        # Of equal rows, the last stands for all: what it gains in its own model, they gain.
        sums += np.append(slots.own_changes(X, n_jobs=n_jobs), 0)[model]
        full = base if whole == psi else Spheres.around(X, [drawn[:, :whole]], n_jobs=n_jobs)
        assert plan.left_out is not None
        calibration = calibrate_beside(
            plan, conformity(sums[plan.left_out], sets), reduction(plan.aggregate)
        )
        kept = None if plan.variant == "basic" else slots
        return cls(plan, calibration, full, kept, model[plan.left_out], n_jobs=n_jobs)

    @property
    def retained(self) -> bool:
        """Whether the resampled models are kept."""
        return self.slots is not None

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every resampled model, (models, rows)."""
        assert self.slots is not None
        base, affected = self.slots.scores(X, n_jobs=self.n_jobs)
        return np.vstack([affected, base])[self.model]

    def full_scores(self, X: FloatArray) -> FloatArray:
        """Scores of A(D)."""
        return np.asarray(self.full.scores(X, n_jobs=self.n_jobs)[0])


@dataclass(eq=False)
class EnteredINNE(EnteredEnsemble):
    """A model on D and x for every new row x; it equals `INNE.fit` on both, bit for bit.

    Attributes
    ----------
    calibration : Calibration
        Scores of D by the base sets; the ranks do not use them.
    reference, totals : arrays of shape (n, d) and (n,)
        D, and its sums over the base sets.
    streams : uint64 array of shape (sets,)
        They hash the rows.
    psi : int
        Centres of a set of n + 1 rows.
    drawn, hashes : arrays of shape (sets, min(psi, n))
        Rows of the base sets by increasing hash, and these hashes.
    base : Spheres
        The sets on D alone; those that a new row enters give way.
    n_jobs : int or None
        Threads for ranking.
    """

    calibration: Calibration
    reference: FloatArray
    totals: IntArray
    streams: UInt64Array
    psi: int
    drawn: Int32Array
    hashes: UInt64Array
    base: Spheres
    n_jobs: int | None = None

    sign = -1

    @classmethod
    def fit(
        cls,
        X: FloatArray,
        psi: int,
        sets: int,
        seed: np.random.SeedSequence,
        *,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> Self:
        """Score the reference by the sets on D alone; `psi` is that of n + 1 rows."""
        contents, streams = Contents.of(X, n_jobs=n_jobs), set_streams(seed, sets)
        drawn = draw_rows(contents, streams, min(psi, len(X)), n_jobs=n_jobs)
        base = Spheres.around(X, [drawn.rows.astype(np.intp)], n_jobs=n_jobs)
        totals = base.only_sums(X, n_jobs=n_jobs, verbose=verbose)
        calibration = reference_calibration(conformity(totals, sets))
        known = X, totals, streams, psi, drawn.rows, drawn.hashes
        return cls(calibration, *known, base, n_jobs)

    def limits_of_parts(self) -> tuple[UInt64Array, UInt64Array, Int32Array]:
        """Streams of the sets, and hash and number of their last rows."""
        every = self.psi > len(self.reference)
        last = np.full(len(self.streams), -1, np.int32) if every else self.drawn[:, -1].copy()
        return self.streams, self.hashes[:, -1].copy(), last

    def sums_of(self, X: FloatArray) -> IntArray:
        """Sums over the base sets."""
        return np.asarray(self.base.sums(X, n_jobs=self.n_jobs)[0])

    def scores_of(self, sums: IntArray) -> FloatArray:
        """Scores from sums."""
        return conformity(sums, len(self.streams))

    def sums_with(self, new: FloatArray, X: FloatArray, totals: IntArray) -> IntArray:
        """Sums of rows X under the models on D and a new row, (new, X)."""
        words, enters, hashes = self.entries(new)
        together = np.vstack([self.reference, new])
        sums = np.tile(totals, (len(new), 1))
        affected = np.flatnonzero(enters.any(axis=1))
        # The values of all replaced sets are held at once.
        most = int(enters.sum(axis=1).max(initial=1))
        for some in blocks_of(affected, most * len(X)):
            at, sets = np.nonzero(enters[some])
            centres = np.empty((len(sets), self.psi), dtype=np.intp)
            known = self.contents.words, self.drawn, self.hashes
            kernels.enter_sets(*known, words, hashes, some[at], sets, centres)
            used, replaced = np.unique(sets, return_inverse=True)
            old = _sets_apart(self.reference, self.drawn[used].astype(np.intp), self.n_jobs)
            values = _sets_apart(together, centres, self.n_jobs).sums(X, n_jobs=self.n_jobs)
            values -= old.sums(X, n_jobs=self.n_jobs)[replaced]
            starts = np.searchsorted(at, np.arange(len(some)))
            sums[some] += np.add.reduceat(values, starts, axis=0)
        return sums


def _sets_apart(X: FloatArray, centres: IndexArray, n_jobs: int | None) -> Spheres:
    """Build sets around these rows of X, (sets, psi), and score each as a model of its own."""
    return replace(Spheres.around(X, [centres], n_jobs=n_jobs), models=len(centres))
