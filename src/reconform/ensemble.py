"""All models of a plan. The general ensemble clones and refits any detector, through joblib."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from .arrays import FloatArray, IndexArray
from .errors import ReconformError
from .keep import MEMORY, ModelFolder, check_keep
from .methods import Plan
from .parallel import run_jobs, track
from .statistics.aggregation import reduction
from .statistics.ranks import BLOCK_BYTES, Calibration, Ranks, calibrate, ranks_among, ranks_paired

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
        raise ReconformError(
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
    folder : ModelFolder or None
        Where the resampled models are, if they are not in memory.
    """

    plan: Plan
    calibration: Calibration
    models: list[Model]
    full: Model
    n_jobs: int | None = None
    folder: ModelFolder | None = None

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
        calls = ((model, X) for model in self.models)
        rows = run_jobs(_score, calls, total=len(self.models), n_jobs=self.n_jobs, prefer="threads")
        return np.array(list(rows), dtype=np.float64)

    def full_scores(self, X: FloatArray) -> FloatArray:
        """Scores of A(D), or of the only model."""
        return self.full.score_samples(X)

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows through the scores of all models."""
        return ranks_by_scores(self, X, variant=variant, strictly=strictly, n_jobs=self.n_jobs)

    def close(self) -> None:
        """Remove models that are kept in a folder, now rather than with this object."""
        if self.folder is not None:
            self.folder.close()


def _score(model: Model, X: FloatArray) -> FloatArray:
    return model.score_samples(X)


def _fit_one(
    algorithm: Algorithm,
    X: FloatArray,
    rows: npt.NDArray[np.integer],
    rows_train: bool,
    seed: np.random.SeedSequence,
    k: int,
    keep: bool | ModelFolder,
    probe: bool,
) -> tuple[Model | None, FloatArray]:
    """Lines 6 and 11 of Algorithm 1 for one k: fit on T_k, score H_k."""
    others = _complement(len(X), rows)
    train, held_out = (rows, others) if rows_train else (others, rows)
    model: Model = algorithm.fit_model(X[train], seed)
    if probe:
        algorithm.check_model(model, X)
    scores = model.score_samples(X[held_out]) if len(held_out) else np.empty(0)
    if isinstance(keep, ModelFolder):
        model = keep.put(model, k)
    return (model if keep else None), scores


def _complement(n: int, rows: npt.NDArray[np.integer]) -> IndexArray:
    left = np.ones(n, dtype=bool)
    left[rows] = False
    return np.flatnonzero(left)


def _compact(plan: Plan, k: int) -> tuple[npt.NDArray[np.integer], bool]:
    """T_k, or H_k where that is shorter and says it all; and whether it is T_k.

    What travels with every task: n - 1 indices for each of n leave-one-out models would be n times
    as many as there are rows. Each is the complement of the other, unless T_k repeats rows or has
    an order of its own.
    """
    train, held_out = plan.train[k], plan.held_out[k]
    ascending = len(train) + len(held_out) == plan.n and bool((np.diff(train) > 0).all())
    rows_train = not ascending or len(train) <= len(held_out)
    rows = train if rows_train else held_out
    return rows.astype(np.min_scalar_type(plan.n)), rows_train


def refit(
    algorithm: Algorithm,
    X: FloatArray,
    plan: Plan,
    seeds: Sequence[np.random.SeedSequence],
    *,
    n_jobs: int | None = None,
    verbose: int = 0,
    keep: str | Path = MEMORY,
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
    keep : "memory" or a folder
        Where the resampled models stay. In a folder they are written where they are fitted, and
        loaded one at a time to score.

    Returns
    -------
    RefitEnsemble
    """
    retain = plan.variant != "basic" or not plan.full
    parent = check_keep(keep)
    folder = ModelFolder(parent) if parent is not None and retain else None
    with ExitStack() as undo:
        if folder is not None:
            undo.callback(folder.close)
        # The first fit runs here and alone: it tells within one model's time that a detector
        # cannot be used, instead of after all of them.
        if plan.full:
            everything = np.arange(plan.n)
            full, _ = _fit_one(algorithm, X, everything, True, seeds[-1], plan.n_models, True, True)
        calls = (
            (algorithm, X, *_compact(plan, k), seeds[k], k, folder or retain, not (k or plan.full))
            for k in range(plan.n_models)
        )
        fitted = list(
            track(
                run_jobs(_fit_one, calls, total=plan.n_models, n_jobs=n_jobs),
                total=plan.n_models,
                label=f"fitting {algorithm.name}",
                verbose=verbose,
            )
        )
        undo.pop_all()
    calibration = calibrate(plan, [scores for _, scores in fitted], reduction(plan.aggregate))
    models = [model for model, _ in fitted if model is not None]
    if not plan.full:
        return RefitEnsemble(plan, calibration, [], models[0], n_jobs, folder)
    assert full is not None
    return RefitEnsemble(plan, calibration, models, full, n_jobs, folder)


def calibrate_fitted(
    model: Model, X: FloatArray, plan: Plan, *, n_jobs: int | None = None
) -> RefitEnsemble:
    """Calibrate the one model of a plan that was fitted elsewhere."""
    calibration = calibrate(plan, [model.score_samples(X)], reduction(plan.aggregate))
    return RefitEnsemble(plan, calibration, [], model, n_jobs)


class RepeatedSplit:
    """The ensembles of several splits of the same reference.

    Attributes
    ----------
    splits : sequence of Ensemble
        One-model ensembles, with calibration sets of one size.
    calibration : Calibration
        All their calibration scores; `groups` says which split each belongs to.
    """

    shares_draws = False

    def __init__(self, splits: Sequence[Ensemble]) -> None:
        self.splits = splits
        parts = [split.calibration for split in splits]
        sizes = [len(part) for part in parts]
        self.calibration = Calibration(
            scores=np.concatenate([part.scores for part in parts]),
            rows=np.concatenate([part.rows for part in parts]),
            indptr=np.arange(sum(sizes) + 1),
            models=np.repeat(np.arange(len(parts), dtype=np.int32), sizes),
            groups=np.repeat(np.arange(len(parts)), sizes),
        )

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Twice the median rank over the splits, at most n + 1.

        Twice the median of p-values is a p-value, whatever their dependence (Rüger 1978). Twice a
        median of integers is an integer, so the grid stays the same.
        """
        if strictly:
            raise ReconformError(
                "ties='randomized' smooths one p-value per row and Split(repeats=...) has several; "
                "use ties='conservative' or repeats=1."
            )
        every = tuple(split.ranks(X) for split in self.splits)
        ranks = np.sort([part.at_most for part in every], axis=0)
        half = len(ranks) // 2
        doubled = ranks[half] + ranks[-half - 1]
        largest = len(self.splits[0].calibration) + 1
        scores = reduction("mean")(np.array([part.scores for part in every]))
        return Ranks(np.minimum(doubled, largest), None, scores, every)

    def scores(self, X: FloatArray) -> FloatArray:
        """Test scores of every split, (splits, rows)."""
        return np.array([split.ranks(X).scores for split in self.splits])
