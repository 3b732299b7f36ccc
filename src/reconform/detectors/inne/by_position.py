"""INNE whose draws go by position: for model files of format 1 only.

Before draws were keyed by content, a set drew positions among its training rows. Full-conformal
ranks, and refits of a detector inside another, need these draws again when such a file is used: it
keeps its numbers, and what was proven of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...arrays import BoolArray, FloatArray, IndexArray, IntArray, RankArray
from ...ensemble import Ensemble
from ...plan import Plan
from ...records import require, within
from ...statistics.ranks import BLOCK_BYTES, Calibration, Ranks
from .ensembles import LeaveOneOutINNE, Slots
from .kernels import UNIT
from .model import Draws, Spheres, conformity, run_kernel
from .position_kernels import count_anomalous, draw_samples

# Ranks are found for as many new rows at a time as keep the spheres around them, of so many bytes
# each, within BLOCK_BYTES, but no more than this.
SPHERE_BYTES, MOST_NEW = 40, 1 << 12


def draw(size: int, psi: int, sets: int, seed: np.random.SeedSequence) -> Draws:
    """Draw `sets` times `psi` out of `size` positions, without replacement within a set."""
    samples = np.empty((sets, psi), dtype=np.intp)
    draw_samples(seed.generate_state(1, np.uint64)[0], size, samples)
    return Draws(samples)


@dataclass(eq=False)
class FullINNE(Ensemble):
    """Full-conformal: for every new row x, A fitted on D and x together scores all n + 1 rows.

    The sets are drawn once, out of n + 1 positions, the last of which stands for x. A set that
    did not draw it is the same for every x, so D is scored by these once and for all. The others,
    ``sets * psi / (n + 1)`` on average, are built anew around each x.

    Attributes
    ----------
    calibration : Calibration
        Scores of D under all sets with the place of the new row left empty: for showing, the
        ranks do not use them.
    reference : float array of shape (n, d)
        D.
    draws : Draws
        Positions in D and, as position n, the new row.
    common : Spheres
        The sets that did not draw the new row.
    order : int array of shape (n,)
        Rows of D by increasing sum over the common sets.
    common_sums : int array of shape (n,)
        These sums, in that order.
    n_jobs : int or None
        Threads for ranking.
    """

    calibration: Calibration
    reference: FloatArray
    draws: Draws
    common: Spheres
    order: IndexArray
    common_sums: IntArray
    n_jobs: int | None = None

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row among the n + 1 rows of the model fitted on D and that row."""
        changing = self.draws.samples[_drew(self.draws, len(self.reference))]
        at_least = np.empty(len(X), dtype=np.int64)
        above, sums = np.empty_like(at_least), np.empty_like(at_least)
        step = min(max(1, BLOCK_BYTES // (SPHERE_BYTES * max(1, changing.size))), MOST_NEW)
        for start in range(0, len(X), step):
            chunk = slice(start, start + step)
            at_least[chunk], above[chunk], sums[chunk] = self._count(X[chunk], changing)
        raw = conformity(sums, len(self.draws.samples))
        return Ranks(1 + at_least, 1 + above if strictly else None, raw)

    def _count(self, X: FloatArray, changing: IndexArray) -> tuple[RankArray, RankArray, IntArray]:
        """How many rows of D sum to at least as much as each new row, and to more; its own sum."""
        n = len(self.reference)
        own = self.common.sums(X, n_jobs=self.n_jobs)[0]
        if not len(changing):  # usual where n is large
            low = np.searchsorted(self.common_sums, own, side="left")
            high = np.searchsorted(self.common_sums, own, side="right")
            return n - low, n - high, own
        models = self._models(X, changing)
        each = np.arange(len(X) + 1)
        numbers = each[:-1].astype(np.int32)
        own += models.chosen_sums(X, each[:-1], each, numbers, n_jobs=self.n_jobs)
        # A set adds at most UNIT. So rows of D beyond own are above it anyway, and those too far
        # below cannot reach it: only the rows between, neighbours in the order, need a look.
        low = np.searchsorted(self.common_sums, own - len(changing) * UNIT, side="left")
        high = np.searchsorted(self.common_sums, own, side="right")
        at_least, above = _count_above(
            models,
            self.reference,
            self.order,
            self.common_sums,
            (low, high),
            own,
            n_jobs=self.n_jobs,
        )
        return at_least + (n - high), above + (n - high), own

    def _models(self, X: FloatArray, changing: IndexArray) -> Spheres:
        """One model per new row: the sets that drew it, built around it."""
        n = len(self.reference)
        rows, places = np.unique(changing[changing < n], return_inverse=True)
        centres = np.empty((len(X), *changing.shape), dtype=np.intp)
        centres[:, changing < n] = places
        centres[:, changing == n] = len(rows) + np.arange(len(X))[:, None]
        return Spheres.around(
            np.vstack([self.reference[rows], X]), list(centres), n_jobs=self.n_jobs
        )


def _drew(draws: Draws, position: int) -> BoolArray:
    """Which sets drew a position."""
    return np.asarray((draws.samples == position).any(axis=1))


@dataclass(frozen=True, eq=False)
class SharedDraws:
    """The centres of all sets."""

    samples: IndexArray
    redrawn: IndexArray


@dataclass(frozen=True, eq=False)
class SharedINNE:
    """Leave-one-out models that shared the sets of A(D)."""

    full: Spheres
    draws: SharedDraws
    slots: Slots | None
    n_jobs: int | None

    def now(self, plan: Plan, calibration: Calibration) -> LeaveOneOutINNE:
        """Return the same models as the ensemble that is fitted today."""
        n, draws = plan.n, self.draws
        require(within(draws.samples, 0, n) and within(draws.redrawn, 0, n), "a row does not exist")
        require(len(draws.samples) == self.full.sets, "a set has no draws")
        rows = np.unique(draws.samples) if self.slots is None else self.slots.rows
        require(within(rows, 0, n), "a row does not exist")
        model = np.full(n, -1, dtype=np.intp)
        model[rows] = np.arange(len(rows))
        return LeaveOneOutINNE(
            plan, calibration, self.full, self.slots, model, shares_draws=True, n_jobs=self.n_jobs
        )


def _count_above(
    spheres: Spheres,
    X: FloatArray,
    order: IndexArray,
    known: IntArray,
    bands: tuple[IndexArray, IndexArray],
    own: IntArray,
    *,
    n_jobs: int | None = None,
) -> tuple[IntArray, IntArray]:
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
    lanes = spheres.lanes(len(order))
    work = int((high - low).sum()) * (len(spheres.centre) // spheres.models + X.shape[1])
    asked = (X, order, known, low, high, own, lanes, at_least, above)
    run_kernel(count_anomalous, (*spheres.arrays, *asked), spheres.models, work, n_jobs)
    return at_least, above
