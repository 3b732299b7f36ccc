"""All models of a plan, made of spheres.

Every model has sets of its own (`SeparateINNE`), or leave-one-out models share theirs
(`SharedINNE`), or there is a model per new row (`FullINNE`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ...arrays import BoolArray, FloatArray, IndexArray, IntArray, RankArray
from ...ensemble import Ensemble, ResampledEnsemble, reference_calibration
from ...methods import Plan
from ...statistics.aggregation import reduction
from ...statistics.ranks import BLOCK_BYTES, Calibration, Ranks, calibrate, ranks_among
from .kernels import UNIT
from .model import Draws, SharedDraws, Spheres, conformity

# Full-conformal ranks are found for as many new rows at a time as keep the spheres around them, of
# so many bytes each, within BLOCK_BYTES, but no more than this.
SPHERE_BYTES, MOST_NEW = 40, 1 << 12


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
        calibration = _calibration(plan, conformity(sums, models.sets))
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
    """The sets of A(D), and those that take their place in the models without a drawn row.

    A slot is a set of A(D) and one row that it drew. Slots are kept in the order of their rows.

    Attributes
    ----------
    rows : int array
        The affected rows of D: those that some set drew. For every other row i, model i is A(D).
    replaced : int array of shape (slots,)
        The set of A(D) that each slot replaces.
    """

    def __init__(self, X: FloatArray, draws: SharedDraws, *, n_jobs: int | None) -> None:
        self._sets, psi = draws.samples.shape
        drawn = draws.samples.ravel()
        order = np.argsort(drawn, kind="stable")
        self.rows, self._starts = np.unique(drawn[order], return_index=True)
        self.replaced = order // psi
        centres = np.concatenate([draws.samples, draws.redrawn.reshape(-1, psi)[order]])
        # Every set is scored by itself, as a model of one set.
        self._spheres = replace(Spheres.around(X, [centres], n_jobs=n_jobs), models=len(centres))

    def scores(self, X: FloatArray, *, n_jobs: int | None) -> tuple[FloatArray, FloatArray]:
        """Scores of A(D), (m,), and of the models without an affected row, (rows, m)."""
        values = self._spheres.sums(X, n_jobs=n_jobs)
        base, redrawn = values[: self._sets], values[self._sets :]
        total = base.sum(axis=0)
        affected = total + self._by_row(redrawn - base[self.replaced])
        return conformity(total, self._sets), conformity(affected, self._sets)

    def own_changes(self, X: FloatArray, *, n_jobs: int | None) -> IntArray:
        """For every affected row i: its sum under model i, less its sum under A(D)."""
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
class SharedINNE(ResampledEnsemble):
    """All leave-one-out models, which share the sets of A(D).

    Attributes
    ----------
    plan : Plan
    calibration : Calibration
    full : Spheres
        A(D).
    draws : SharedDraws
        The rows of D that are centres, of every model.
    slots : Slots or None
        The sets drawn again; None after a basic fit, which needs them for calibration only.
    n_jobs : int or None
        Threads for scoring.
    """

    plan: Plan
    calibration: Calibration
    full: Spheres
    draws: SharedDraws
    slots: Slots | None
    n_jobs: int | None = None

    shares_draws = True

    @classmethod
    def fit(
        cls,
        X: FloatArray,
        plan: Plan,
        draws: SharedDraws,
        *,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> Self:
        """Score all rows by A(D), and correct those that some set drew."""
        full = Spheres.around(X, [draws.samples], n_jobs=n_jobs)
        slots = Slots(X, draws, n_jobs=n_jobs)
        sums = full.only_sums(X, n_jobs=n_jobs, verbose=verbose)
        sums[slots.rows] += slots.own_changes(X, n_jobs=n_jobs)
        calibration = _calibration(plan, conformity(sums, full.sets))
        kept = None if plan.variant == "basic" else slots
        return cls(plan, calibration, full, draws, kept, n_jobs)

    @property
    def retained(self) -> bool:
        """Whether the resampled models are kept."""
        return self.slots is not None

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every resampled model, (models, rows)."""
        assert self.slots is not None
        full, affected = self.slots.scores(X, n_jobs=self.n_jobs)
        scores = np.tile(full, (self.plan.n, 1))
        scores[self.slots.rows] = affected
        return scores

    def full_scores(self, X: FloatArray) -> FloatArray:
        """Scores of A(D)."""
        return np.asarray(self.full.scores(X, n_jobs=self.n_jobs)[0])

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows; for plus, compare every c_i with A(D) and correct the affected ones."""
        if (variant or self.plan.variant) != "plus" or self.slots is None:
            return super().ranks(X, variant=variant, strictly=strictly)
        at_most = np.empty(len(X), dtype=np.int64)
        below = np.empty(len(X), dtype=np.int64) if strictly else None
        raw = np.empty(len(X))
        step = max(1, BLOCK_BYTES // (8 * len(self.slots.replaced)))
        for start in range(0, len(X), step):
            chunk = slice(start, start + step)
            raw[chunk], affected = self.slots.scores(X[chunk], n_jobs=self.n_jobs)
            at_most[chunk] = self._ranks_plus(raw[chunk], affected, strictly=False)
            if below is not None:
                below[chunk] = self._ranks_plus(raw[chunk], affected, strictly=True)
        return Ranks(at_most, below, raw)

    def _ranks_plus(self, full: FloatArray, affected: FloatArray, *, strictly: bool) -> RankArray:
        """Count c_i <= t_i, where t_i is `full` but for the affected i."""
        assert self.slots is not None
        c = self.calibration.scores[self.slots.rows]
        compare = np.less if strictly else np.less_equal
        ranks = ranks_among(self.calibration.sorted_scores, full, strictly=strictly)
        ranks -= ranks_among(np.sort(c), full, strictly=strictly) - 1
        return np.asarray(ranks + compare(c[:, None], affected).sum(axis=0))


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

    @classmethod
    def fit(
        cls, X: FloatArray, draws: Draws, *, n_jobs: int | None = None, verbose: int = 0
    ) -> Self:
        """Score the reference by the sets that every new row leaves alone."""
        drew = _drew(draws, len(X))
        common = Spheres.around(X, [draws.samples[~drew]], n_jobs=n_jobs)
        sums = common.only_sums(X, n_jobs=n_jobs, verbose=verbose)
        order = np.argsort(sums, kind="stable")
        changing = draws.samples[drew]
        emptied = changing[changing != len(X)].reshape(len(changing), changing.shape[1] - 1)
        shown = sums + Spheres.around(X, [emptied], n_jobs=n_jobs).only_sums(X, n_jobs=n_jobs)
        calibration = reference_calibration(conformity(shown, len(draws.samples)))
        return cls(calibration, X, draws, common, order, sums[order], n_jobs)

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
        at_least, above = models.count_anomalous(
            self.reference, self.order, self.common_sums, (low, high), own, n_jobs=self.n_jobs
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


def _calibration(plan: Plan, scores: FloatArray) -> Calibration:
    """Calibrate with the scores of held-out rows beside the models of ``plan.membership``."""
    phi = reduction(plan.aggregate)
    rows, indptr, models = plan.membership
    if plan.leaves_one_out:
        return Calibration(phi(scores[None]), rows, indptr, models)
    # Models increase within a row, so each finds its score behind those already taken.
    cursor = np.zeros(plan.n, dtype=np.intp)
    cursor[rows] = indptr[:-1]
    by_model = []
    for held_out in plan.held_out:
        by_model.append(scores[cursor[held_out]])
        cursor[held_out] += 1
    return calibrate(plan, by_model, phi)
