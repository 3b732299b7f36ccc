"""All models of a plan, each on rows in its own units; models with equal units together.

Leave-one-out ranks add up over the groups of models; the scores of any other plan are put together
from them; full-conformal ranks have one group of new rows for all that have equal units with D.
The numbers are those of separate fits of the scaled detector: units are integers and the same
whichever way they are found, and rows in them are the same, too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from ..arrays import FloatArray, IndexArray, IntArray
from ..ensemble import AugmentedScores, Ensemble, ResampledEnsemble, Within
from ..ensemble.refitting import Algorithm, Model, OneModel, in_threads, refit
from ..frames import stacked
from ..methods import Full, Plan
from ..statistics.ranks import Calibration, Ranks, calibrate, reduction
from .scaling import Units, groups

if TYPE_CHECKING:
    from .base import NativeDetector  # which fits plans by this module

# Full-conformal fits that are kept: nearly all new rows want the same one, some few another.
MOST_FITS = 4


@dataclass(frozen=True, eq=False)
class ScaledModel:
    """One model: a plain one, on rows in its units.

    Attributes
    ----------
    detector : NativeDetector
        The one that scales, not fitted.
    units : int array of shape (k,)
    model : Model
        Fitted on rows in these units.
    """

    detector: NativeDetector
    units: IntArray
    model: Model

    @property
    def in_threads(self) -> bool:
        """As the plain model says."""
        return in_threads(self.model)

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows, small = anomalous."""
        return self.model.score_samples(self.measure(X))

    def measure(self, X: FloatArray) -> FloatArray:
        """Rows in the units of the model."""
        return units_of(self.detector).measure(X, self.units)


def units_of(detector: NativeDetector) -> Units:
    """Say how a detector that scales measures rows."""
    units = detector._units()
    assert units is not None
    return units


@dataclass(frozen=True, eq=False)
class ScaledAlgorithm:
    """A detector that scales, as an algorithm that fits one model at a time.

    Attributes
    ----------
    detector : NativeDetector
    """

    detector: NativeDetector

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return self.detector.name

    @property
    def in_threads(self) -> bool:
        """As the detector says."""
        return self.detector.in_threads

    def fit_model(self, X: FloatArray, seed: np.random.SeedSequence) -> ScaledModel:
        """Fit a plain model on rows in their own units."""
        ways = units_of(self.detector)
        units = ways.of(X)
        plain = algorithm_of(ways.plain(units))
        return ScaledModel(self.detector, units, plain.fit_model(ways.measure(X, units), seed))

    def check_model(self, model: Model, X: FloatArray) -> None:
        """Refuse a model whose score of a row depends on the rest of the batch."""
        assert isinstance(model, ScaledModel)
        self._plain(model).check_model(model.model, model.measure(X))

    def training_scores(self, model: Model, X: FloatArray) -> FloatArray:
        """Score the rows that a model was fitted on, all alike."""
        assert isinstance(model, ScaledModel)
        return self._plain(model).training_scores(model.model, model.measure(X))

    def _plain(self, model: ScaledModel) -> Algorithm:
        return algorithm_of(units_of(self.detector).plain(model.units))


def algorithm_of(detector: NativeDetector) -> Algorithm:
    """Return a detector as what fits one model at a time, in units if it has them."""
    return detector if detector._units() is None else ScaledAlgorithm(detector)


def fit_scaled(
    detector: NativeDetector,
    X: FloatArray,
    plan: Plan,
    seeds: Sequence[np.random.SeedSequence],
    *,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Ensemble:
    """Fit all models of a plan; parameters as in `NativeDetector.fit_plan`."""
    if plan.row.augments:
        return ScaledFull(detector, X, seeds[-1], n_jobs, verbose)
    algorithm = ScaledAlgorithm(detector)
    if not plan.full:  # one model
        return refit(algorithm, X, plan, seeds, n_jobs=n_jobs, verbose=verbose)
    ensemble = ScaledEnsemble.fit(detector, X, plan, seeds, n_jobs=n_jobs, verbose=verbose)
    ensemble.by_refitting = OneModel(algorithm, X, seeds[-1], n_jobs)
    return ensemble


# --- resampled models ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Group:
    """Models that have equal units, fitted together.

    Attributes
    ----------
    units : int array of shape (k,)
    models : int array
        Which models of the plan these are.
    ensemble : ResampledEnsemble
        Of ``plan.part(models)``, on rows in these units.
    """

    units: IntArray
    models: IndexArray
    ensemble: ResampledEnsemble


@dataclass(eq=False)
class ScaledEnsemble(ResampledEnsemble):
    """The models of a plan in groups, and A(D).

    Attributes
    ----------
    plan : Plan
    calibration : Calibration
    groups : list of Group
        Every model is in one of them; empty after a basic fit, which needs them for calibration
        only.
    full : ScaledModel
        A(D).
    """

    plan: Plan
    calibration: Calibration
    groups: list[Group]
    full: ScaledModel

    @classmethod
    def fit(
        cls,
        detector: NativeDetector,
        X: FloatArray,
        plan: Plan,
        seeds: Sequence[np.random.SeedSequence],
        *,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> Self:
        """Fit every group of models as a plan of its own."""
        full = ScaledAlgorithm(detector).fit_model(X, seeds[-1])
        ways = units_of(detector)
        if plan.left_out is not None:
            units = ways.without_each(X)[plan.left_out]
        else:
            units = np.array([ways.of(X[train]) for train in plan.train])
        fitted, rows = [], []
        for key, models in groups(units):
            rows.append(ways.measure(X, key))
            every = len(models) == plan.n_models
            own = seeds if every else [*(seeds[k] for k in models), seeds[-1]]
            ensemble = ways.plain(key).fit_plan(
                rows[-1], plan.part(models), own, n_jobs=n_jobs, verbose=verbose
            )
            assert isinstance(ensemble, ResampledEnsemble)
            fitted.append(Group(key, models, ensemble))
        calibration = _calibration(plan, fitted, rows)
        return cls(plan, calibration, [] if plan.variant == "basic" else fitted, full)

    @property
    def retained(self) -> bool:
        """Whether the resampled models are kept."""
        return bool(self.groups)

    @property
    def n_jobs(self) -> int | None:
        """Threads of the detector."""
        return getattr(self.full.detector, "n_jobs", None)

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every resampled model, (models, rows)."""
        scores = np.empty((self.plan.n_models, len(X)))
        for group in self.groups:
            scores[group.models] = group.ensemble.scores(self._measure(X, group))
        return scores

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows; plus by adding up over groups where each model has one held-out row."""
        plus = (variant or self.plan.variant) == "plus" and self.plan.left_out is not None
        if not plus or not self.groups:
            return super().ranks(X, variant=variant, strictly=strictly)
        return self._added_up(
            X, lambda one, rows: one.ranks(rows, variant="plus", strictly=strictly)
        )

    def ranks_within(self, X: FloatArray, within: Within) -> Ranks:
        """Rank rows within groups of rows; plus by adding up over the groups of models."""
        if self.plan.variant != "plus" or self.plan.left_out is None or not self.groups:
            return super().ranks_within(X, within)
        members = [self.calibration.rows[some] for some in within.members]

        def rank(one: ResampledEnsemble, rows: FloatArray) -> Ranks:
            theirs = [np.flatnonzero(np.isin(one.calibration.rows, some)) for some in members]
            return one.ranks_within(rows, replace(within, members=theirs))

        return self._added_up(X, rank)

    def _added_up(
        self, X: FloatArray, rank: Callable[[ResampledEnsemble, FloatArray], Ranks]
    ) -> Ranks:
        """Add up the ranks by the models of every group, in its units."""
        found = [rank(group.ensemble, self._measure(X, group)) for group in self.groups]
        below = [one.below - 1 for one in found if one.below is not None]
        same = [np.array_equal(group.units, self.full.units) for group in self.groups]
        return Ranks(
            1 + np.sum([one.at_most - 1 for one in found], axis=0),
            1 + np.sum(below, axis=0) if below else None,
            # Those of A(D), which some of the models may be in the units of.
            found[same.index(True)].scores if any(same) else self.full_scores(X),
        )

    def _measure(self, X: FloatArray, group: Group) -> FloatArray:
        return units_of(self.full.detector).measure(X, group.units)


def _calibration(plan: Plan, fitted: list[Group], rows: list[FloatArray]) -> Calibration:
    """Put the calibration together, from groups and the rows of D in their units."""
    if len(fitted) == 1:
        return fitted[0].ensemble.calibration
    held, indptr, models = plan.membership
    if (np.diff(indptr) == 1).all():  # every row has one model: its group has calibrated it
        by_row = np.empty(plan.n)
        for group in fitted:
            part = group.ensemble.calibration
            by_row[part.rows] = part.scores
        return Calibration(by_row[held], held, indptr, models)
    by_model: list[FloatArray] = [np.empty(0)] * plan.n_models
    for group, measured in zip(fitted, rows, strict=True):
        scores = group.ensemble.scores(measured)
        for k, of_model in zip(group.models, scores, strict=True):
            by_model[k] = of_model[plan.held_out[k]]
    return calibrate(plan, by_model, reduction(plan.aggregate))


# --- full-conformal ------------------------------------------------------------------------------


@dataclass(eq=False)
class ScaledFull(Ensemble):
    """A model on D and x, in their units, for every new row x.

    Attributes
    ----------
    detector : NativeDetector
        The one that scales, not fitted.
    reference : float array of shape (n, d)
        D.
    seed : SeedSequence
        The same for every row.
    n_jobs, verbose : int
    """

    detector: NativeDetector
    reference: FloatArray
    seed: np.random.SeedSequence
    n_jobs: int | None = None
    verbose: int = 0

    @cached_property
    def calibration(self) -> Calibration:  # type: ignore[override]
        """Scores of D in its own units, which most new rows do not change; ranks do not use them.

        A choice, which measures all rows in the units of the pool, does not ask for them.
        """
        return self.fit_in(units_of(self.detector).of(self.reference)).calibration

    def fit_in(self, units: IntArray) -> Ensemble:
        """Fit the plain full-conformal ensemble on D in some units, or find it among the last."""
        fits, key = self._fits, units.tobytes()
        if key not in fits:
            ways = units_of(self.detector)
            fits[key] = ways.plain(units).fit_plan(
                ways.measure(self.reference, units),
                Full().plan(len(self.reference)),
                [self.seed],
                n_jobs=self.n_jobs,
                verbose=self.verbose,
            )
            if len(fits) > MOST_FITS:
                fits.popitem(last=False)
        fits.move_to_end(key)
        return fits[key]

    @cached_property
    def _fits(self) -> OrderedDict[bytes, Ensemble]:
        return OrderedDict()

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows, those together that have equal units with D; there are no variants."""
        measure = units_of(self.detector).measure

        def rank(units: IntArray, rows: IndexArray) -> Ranks:
            return self.fit_in(units).ranks(measure(X[rows], units), strictly=strictly)

        return self._rank_groups(X, rank)

    @property
    def ranks_rows(self) -> str:
        """As the detector says."""
        return "batch" if self.detector.uses_batch else "alone"

    def for_pool(self, X: FloatArray) -> tuple[Ensemble, FloatArray]:
        """Measure D and a whole batch in units that are learned from both together."""
        return self._in_pool(X)[:2]

    def _in_pool(self, X: FloatArray) -> tuple[Ensemble, FloatArray, IndexArray]:
        """What `for_pool` returns, and of which columns those that are measured were made."""
        detector, reference, X = units_of(self.detector).together(self.reference, X)
        if detector is not self.detector:
            return replace(self, detector=detector, reference=reference)._in_pool(X)
        ways = units_of(self.detector)
        pool = stacked(reference, X)
        filled = ways.filled(pool) if np.isnan(pool).any() else pool
        if filled is not pool:
            n = len(reference)
            return replace(self, reference=filled[:n])._in_pool(filled[n:])
        units = ways.of(pool)
        plain, measured = self.fit_in(units).for_pool(ways.measure(X, units))
        return plain, measured, ways.columns(units, X.shape[1])

    def carried(self, X: FloatArray, j: int) -> tuple[FloatArray, str] | None:
        """As in the units of the pool, by the columns that were measured."""
        plain, measured, columns = self._in_pool(X)
        found = plain.carried(measured, j)
        if found is None:
            return None
        parts = np.zeros(X.shape[1])
        np.add.at(parts, columns, found[0])
        return parts, found[1]

    def batch_ranks(
        self, X: FloatArray, *, rows: IndexArray | None = None, strictly: bool = False
    ) -> Ranks:
        """Rank new rows; in the units of the pool, if they are compared with each other."""
        if not self.detector.uses_batch:
            return super().batch_ranks(X, rows=rows, strictly=strictly)
        plain, measured = self.for_pool(X)
        return plain.batch_ranks(measured, rows=rows, strictly=strictly)

    def ranks_within(self, X: FloatArray, within: Within) -> Ranks:
        """Rank rows within groups of rows, those together that have equal units with D."""
        if self.detector.uses_batch:
            return super().ranks_within(X, within)
        measure = units_of(self.detector).measure

        def rank(units: IntArray, rows: IndexArray) -> Ranks:
            some = replace(within, groups=within.groups[rows])
            return self.fit_in(units).ranks_within(measure(X[rows], units), some)

        return self._rank_groups(X, rank)

    def _rank_groups(self, X: FloatArray, rank: Callable[[IntArray, IndexArray], Ranks]) -> Ranks:
        """Put the ranks of new rows together, group by group."""
        units = groups(units_of(self.detector).with_each(self.reference, X))
        return Ranks.joined(len(X), [(rows, rank(key, rows)) for key, rows in units])

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows in the units of D and the new row, or in those of the pool."""
        if self.detector.uses_batch:
            plain, measured = self.for_pool(X)
            yield from plain.augmented_scores(measured, rows)
            return
        detector, reference, X = units_of(self.detector).together(self.reference, X)
        if detector is not self.detector:
            finer = replace(self, detector=detector, reference=reference)
            yield from finer.augmented_scores(X, rows)
            return
        ways = units_of(self.detector)
        found: dict[int, AugmentedScores] = {}
        for units, some in groups(ways.with_each(self.reference, X[rows])):
            parts = self.fit_in(units).augmented_scores(ways.measure(X, units), rows[some])
            if len(some) == len(rows):
                yield from parts
                return
            found.update((int(j), part.taken(k)) for part in parts for k, j in enumerate(part.rows))
        yield from (found[j] for j in rows.tolist())
