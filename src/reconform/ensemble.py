"""All models of a plan. The general ensemble clones and refits any detector, through joblib."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from joblib import Parallel, delayed

from .aggregation import FloatArray, reduction
from .methods import IndexArray, Plan
from .progress import track
from .pvalues import BLOCK_BYTES, Calibration, Ranks, calibrate, ranks_among, ranks_paired

# Detectors make copies of the rows they score; a chunk has no more rows than this.
MOST_ROWS = 1 << 17


class Ensemble(Protocol):
    """What the estimator asks of an ensemble: its calibration, and ranks."""

    calibration: Calibration

    @property
    def shares_draws(self) -> bool:
        """Whether the models share random draws to save work."""
        ...

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows; `variant` other than the plan's where the models for it are kept."""
        ...


class Model(Protocol):
    """One fitted model."""

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows, small = strange."""
        ...


class Algorithm(Protocol):
    """A of Algorithm 1: fits one model on the rows it is given."""

    @property
    def name(self) -> str:
        """What to call it in messages."""
        ...

    def fit_model(self, X: FloatArray, seed: np.random.SeedSequence) -> Model:
        """Fit a fresh model with its own stream of randomness."""
        ...

    def check_model(self, model: Model, X: FloatArray) -> None:
        """Refuse a model that cannot give valid p-values."""
        ...


class ScoringEnsemble(Protocol):
    """An ensemble that goes the usual way to ranks, through the scores of its models."""

    plan: Plan
    calibration: Calibration

    @property
    def retained(self) -> bool:
        """Whether the resampled models are there."""
        ...

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every resampled model, (models, rows)."""
        ...

    def full_scores(self, X: FloatArray) -> FloatArray:
        """Scores of A(D), or of the only model where the plan has no A(D)."""
        ...


def ranks_by_scores(
    ensemble: ScoringEnsemble,
    X: FloatArray,
    *,
    variant: str | None = None,
    strictly: bool = False,
    n_jobs: int | None = None,
) -> Ranks:
    """Rank new rows through the scores of all models, chunk by chunk.

    Memory does not grow with the product of reference and test rows: a chunk of test rows times
    the number of models stays below a fixed budget.
    """
    plan, calibration = ensemble.plan, ensemble.calibration
    variant = plan.variant if variant is None else variant
    if not plan.full:  # one model: the three comparisons are the same
        variant = "basic"
    elif variant != "basic" and not ensemble.retained:
        raise ValueError(
            f"variant={variant!r} needs the resampled models, and a basic fit keeps only the one "
            "fitted on all rows; fit with variant='plus' to compare both."
        )
    phi = reduction(plan.aggregate)
    at_most = np.empty(len(X), dtype=np.int64)
    below = np.empty(len(X), dtype=np.int64) if strictly else None
    raw = np.empty(len(X))
    width = 1 if variant == "basic" else plan.n_models
    step = min(max(1, BLOCK_BYTES // (8 * width)), MOST_ROWS)
    for start in range(0, len(X), step):
        chunk = slice(start, start + step)
        raw[chunk] = ensemble.full_scores(X[chunk])
        if variant == "plus":
            scores = ensemble.scores(X[chunk])
            paired = partial(ranks_paired, calibration, scores, plan.aggregate, n_jobs=n_jobs)
            at_most[chunk] = paired()
            if below is not None:
                below[chunk] = paired(strictly=True)
        else:
            t = raw[chunk] if variant == "basic" else phi(ensemble.scores(X[chunk]))
            at_most[chunk] = ranks_among(calibration.sorted_scores, t)
            if below is not None:
                below[chunk] = ranks_among(calibration.sorted_scores, t, strictly=True)
    return Ranks(at_most, below, raw)


@dataclass(eq=False)
class RefitEnsemble:
    """Every model of a plan, each fitted on its own.

    Attributes
    ----------
    plan : Plan
    calibration : Calibration
    models : list of Model
        The resampled models; empty after a basic fit, which needs them for calibration only.
    full : Model
        A(D), or the only model of a plan without one (split, prefit).
    n_jobs : int or None
        Jobs for scoring.
    """

    plan: Plan
    calibration: Calibration
    models: list[Model]
    full: Model
    n_jobs: int | None = None

    @property
    def shares_draws(self) -> bool:
        """Every model has draws of its own."""
        return False

    @property
    def retained(self) -> bool:
        """Whether the resampled models are there."""
        return bool(self.models)

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every resampled model, (models, rows)."""
        # Threads by default: models stay where they are, and most scoring releases the GIL.
        parallel = Parallel(n_jobs=self.n_jobs, prefer="threads")
        rows = parallel(delayed(model.score_samples)(X) for model in self.models)
        return np.array(rows, dtype=np.float64)

    def full_scores(self, X: FloatArray) -> FloatArray:
        """Scores of A(D), or of the only model."""
        return self.full.score_samples(X)

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows through the scores of all models."""
        return ranks_by_scores(self, X, variant=variant, strictly=strictly, n_jobs=self.n_jobs)


def _fit_one(
    algorithm: Algorithm,
    X: FloatArray,
    train: IndexArray,
    held_out: IndexArray,
    seed: np.random.SeedSequence,
    keep: bool,
    probe: bool,
) -> tuple[Model | None, FloatArray]:
    """Lines 6 and 11 of Algorithm 1 for one k: fit on T_k, score H_k."""
    model = algorithm.fit_model(X[train], seed)
    if probe:
        algorithm.check_model(model, X)
    scores = model.score_samples(X[held_out]) if len(held_out) else np.empty(0)
    return (model if keep else None), scores


def refit(
    algorithm: Algorithm,
    X: FloatArray,
    plan: Plan,
    seeds: Sequence[np.random.SeedSequence],
    *,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> RefitEnsemble:
    """Fit every model of a plan, each on its own: the slow way, for any detector.

    Parameters
    ----------
    algorithm : Algorithm
    X : float array of shape (n, d)
    plan : Plan
    seeds : sequence of SeedSequence
        One stream per resampled model, and a last one for A(D).
    n_jobs, verbose : int
        As in joblib; the caller's ``parallel_config`` chooses the backend.

    Returns
    -------
    RefitEnsemble
    """
    keep = plan.variant != "basic" or not plan.full
    nothing = np.empty(0, dtype=np.intp)
    # The first fit runs here and alone: it tells within one model's time that a detector cannot
    # be used, instead of after all of them.
    if plan.full:
        full, _ = _fit_one(algorithm, X, np.arange(plan.n), nothing, seeds[-1], True, True)
    calls = (
        delayed(_fit_one)(
            algorithm, X, plan.train[k], plan.held_out[k], seeds[k], keep, not plan.full and k == 0
        )
        for k in range(plan.n_models)
    )
    fitted = list(
        track(
            _run(calls, n_jobs=n_jobs),
            total=plan.n_models,
            label=f"fitting {algorithm.name}",
            verbose=verbose,
        )
    )
    calibration = calibrate(plan, [scores for _, scores in fitted], reduction(plan.aggregate))
    models = [model for model, _ in fitted if model is not None]
    if not plan.full:
        return RefitEnsemble(plan, calibration, [], models[0], n_jobs)
    assert full is not None
    return RefitEnsemble(plan, calibration, models, full, n_jobs)


def _run(calls: Iterable[Any], *, n_jobs: int | None) -> Iterable[Any]:
    """Results in order, one by one where the caller's joblib backend can do that."""
    parallel: Callable[[Iterable[Any]], Iterable[Any]]
    try:
        parallel = Parallel(n_jobs=n_jobs, return_as="generator")
    except ValueError:  # multiprocessing hands back everything at the end
        parallel = Parallel(n_jobs=n_jobs)
    return parallel(calls)


def calibrate_fitted(
    model: Model, X: FloatArray, plan: Plan, *, n_jobs: int | None = None
) -> RefitEnsemble:
    """Calibrate the one model of a plan that was fitted elsewhere."""
    calibration = calibrate(plan, [model.score_samples(X)], reduction(plan.aggregate))
    return RefitEnsemble(plan, calibration, [], model, n_jobs)
