"""Any detector, the general way: one fit per model, and for full-conformal one per new row.

Scores must be one number per row, and the same number in any batch.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from joblib import effective_n_jobs
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags

from ..arrays import FloatArray, IndexArray
from ..content import scores_by_content, sorted_by_content
from ..errors import BatchDependenceError, ReconformError
from ..frames import stacked
from ..methods import Plan
from ..parallel import run_jobs, run_threads, track
from ..statistics.ranks import Calibration, Ranks, calibrate, reduction
from . import AugmentedScores, Ensemble, ResampledEnsemble, blocks_of, reference_calibration

_LOG = logging.getLogger(__name__)

# If full-conformal ranks take longer than this in all, a warning about it comes first.
WARN_SECONDS = 30.0


class Model(Protocol):
    """One fitted model."""

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows, small = anomalous."""
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

    def training_scores(self, model: Model, X: FloatArray) -> FloatArray:
        """Score the rows the model was fitted on, all alike; small = anomalous."""
        ...


def in_threads(thing: Algorithm | Model) -> bool:
    """Whether a detector or a model is compiled code, to be run in threads of this process.

    It says so by an attribute ``in_threads``; all others go through the caller's joblib backend.
    """
    return bool(getattr(thing, "in_threads", False))


@dataclass(eq=False)
class RefitEnsemble(ResampledEnsemble):
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
    def retained(self) -> bool:
        """Whether the resampled models are kept."""
        return bool(self.models)

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every resampled model, (models, rows)."""
        calls, total = ((model, X) for model in self.models), len(self.models)
        if in_threads(self.full):
            rows = run_threads(_score, calls, total=total, n_jobs=self.n_jobs)
        else:
            # Threads by default: models stay where they are, and most scoring releases the GIL.
            rows = run_jobs(_score, calls, total=total, n_jobs=self.n_jobs, prefer="threads")
        return np.array(list(rows), dtype=np.float64)


def _score(model: Model, X: FloatArray) -> FloatArray:
    return model.score_samples(X)


def _fit_one(
    algorithm: Algorithm,
    X: FloatArray,
    rows: npt.NDArray[np.integer],
    rows_train: bool,
    seed: np.random.SeedSequence,
    keep: bool,
    probe: bool,
) -> tuple[Model | None, FloatArray]:
    """Lines 6 and 11 of Algorithm 1 for one k: fit on T_k, score H_k."""
    others = _complement(len(X), rows)
    train, held_out = (rows, others) if rows_train else (others, rows)
    model: Model = algorithm.fit_model(X[train], seed)
    if probe:
        algorithm.check_model(model, X)
    scores = model.score_samples(X[held_out]) if len(held_out) else np.empty(0)
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
    if plan.left_out is not None:
        return plan.held_out[k].astype(np.min_scalar_type(plan.n)), False
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
) -> RefitEnsemble:
    """Fit every model of a plan, each on its own and by its own seed; the last is that of A(D)."""
    if plan.n_models > 1:
        _LOG.info("fitting %s %d times", algorithm.name, plan.n_models + plan.full)
    retain = plan.variant != "basic" or not plan.full
    # The first fit runs here and alone: it tells within one model's time that a detector cannot be
    # used, instead of after all of them.
    if plan.full:
        full, _ = _fit_one(algorithm, X, np.arange(plan.n), True, seeds[-1], True, True)
    calls = (
        (algorithm, X, *_compact(plan, k), seeds[k], retain, not (k or plan.full))
        for k in range(plan.n_models)
    )
    run = run_threads if in_threads(algorithm) else run_jobs
    fitted = list(
        track(
            run(_fit_one, calls, total=plan.n_models, n_jobs=n_jobs),
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


def calibrate_fitted(
    model: Model, X: FloatArray, plan: Plan, *, n_jobs: int | None = None
) -> RefitEnsemble:
    """Calibrate the one model of a plan that was fitted elsewhere."""
    calibration = calibrate(plan, [model.score_samples(X)], reduction(plan.aggregate))
    return RefitEnsemble(plan, calibration, [], model, n_jobs)


@dataclass(eq=False)
class FullRefit(Ensemble):
    """Fit A on D and x together, for every new row x, and rank x among all n + 1 scores.

    Attributes
    ----------
    algorithm : Algorithm
    reference : float array of shape (n, d)
        D.
    seed : SeedSequence
        The same for every row, so that a p-value does not depend on the rest of the batch.
    calibration : Calibration
        Scores of D under A(D); the ranks do not use them.
    n_jobs, verbose : int
    """

    algorithm: Algorithm
    reference: FloatArray
    seed: np.random.SeedSequence
    calibration: Calibration
    n_jobs: int | None = None
    verbose: int = 0

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row by a refit of its own."""
        _LOG.info("fitting %s once per new row: %d times", self.algorithm.name, len(X))
        started = time.perf_counter()
        first = _rank_one(self.algorithm, self.reference, self.seed, X[0])
        _warn_about_cost(
            f"`method='full'` fits {self.algorithm.name} once per new row",
            time.perf_counter() - started,
            len(X),
            self.n_jobs,
        )
        calls = ((self.algorithm, self.reference, self.seed, x) for x in X[1:])
        run = run_threads if in_threads(self.algorithm) else run_jobs
        rest = run(_rank_one, calls, total=len(X) - 1, n_jobs=self.n_jobs)
        label = f"refitting {self.algorithm.name}"
        rows = [first, *track(rest, total=len(X) - 1, label=label, verbose=self.verbose)]
        at_most, below, scores = zip(*rows, strict=True)
        return Ranks(
            np.array(at_most, dtype=np.int64),
            np.array(below, dtype=np.int64) if strictly else None,
            np.array(scores),
        )

    @cached_property
    def _on_reference(self) -> Model:
        return self.algorithm.fit_model(self.reference, self.seed)

    def raw_scores(self, X: FloatArray) -> FloatArray:
        """Score rows by A(D), one fit for all of them; for explanations, not for ranks."""
        return self._on_reference.score_samples(X)

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows by one model for each of some new rows."""
        one = OneModel(self.algorithm, self.reference, self.seed, self.n_jobs)
        return one.augmented_scores(X, rows)


def _warn_about_cost(what: str, seconds: float, fits: int, n_jobs: int | None) -> None:
    total = seconds * fits / effective_n_jobs(n_jobs)
    if total > WARN_SECONDS:
        warnings.warn(
            f"{what}: {fits:,} fits of about {seconds:.2g} s, some {total / 60:.1f} minutes in "
            "all. Detectors of our own, such as 'knn', need no refits for `method='full'`; "
            "'jackknife+' or 'cv+' fit once for all rows, if the list need not be proven.",
            UserWarning,
            stacklevel=6,
        )


def _rank_one(
    algorithm: Algorithm, reference: FloatArray, seed: np.random.SeedSequence, x: FloatArray
) -> tuple[int, int, float]:
    """Rank one new row among the scores of D, all under A(D and x)."""
    together = stacked(reference, x)
    model = algorithm.fit_model(together, seed)
    scores = algorithm.training_scores(model, together)
    mine = scores[-1]
    return (1 + int((scores[:-1] <= mine).sum()), 1 + int((scores[:-1] < mine).sum()), float(mine))


def fit_full(
    algorithm: Algorithm,
    X: FloatArray,
    seed: np.random.SeedSequence,
    *,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> FullRefit:
    """Prepare full-conformal ranks for any detector; fits A(D) once, to show its scores."""
    model = algorithm.fit_model(X, seed)
    calibration = reference_calibration(algorithm.training_scores(model, X))
    return FullRefit(algorithm, X, seed, calibration, n_jobs, verbose)


# --- models that see all rows ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OneModel:
    """One model per new row x_j, on D and x_j, that scores everything.

    Attributes
    ----------
    algorithm : Algorithm
    reference : float array of shape (n, d)
        D.
    seed : SeedSequence
        The same for every row.
    n_jobs : int or None
    """

    algorithm: Algorithm
    reference: FloatArray
    seed: np.random.SeedSequence
    n_jobs: int | None = None

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows by one model for each of some new rows, as `Ensemble` says."""
        if not len(rows):
            return
        _LOG.info("fitting %s once per row looked at: %d times", self.algorithm.name, len(rows))
        common = self.algorithm, self.reference, self.seed, X
        started = time.perf_counter()
        own, others = _augmented_with(*common, int(rows[0]))
        yield AugmentedScores(rows[:1], own[None], others[None])
        _warn_about_cost(
            f"{self.algorithm.name} is fitted once per row that is looked at",
            time.perf_counter() - started,
            len(rows),
            self.n_jobs,
        )
        run = run_threads if in_threads(self.algorithm) else run_jobs
        for block in blocks_of(rows[1:], len(self.reference) + len(X)):
            calls = ((*common, j) for j in block.tolist())
            seen = list(run(_augmented_with, calls, total=len(block), n_jobs=self.n_jobs))
            yield AugmentedScores(
                block, np.array([a for a, _ in seen]), np.array([b for _, b in seen])
            )


def _augmented_with(
    algorithm: Algorithm, reference: FloatArray, seed: np.random.SeedSequence, X: FloatArray, j: int
) -> tuple[FloatArray, FloatArray]:
    """Score the reference and row j of X, and all rows of X, by one model on the former."""
    together = stacked(reference, X[j])
    # In the order of their contents: the scores must not tell which of these rows is the new one.
    ordered, order = sorted_by_content(together)
    model = algorithm.fit_model(ordered, seed)
    own = scores_by_content(together, order, algorithm.training_scores(model, ordered))
    # Without row j, which is not one of the others: some detectors score a batch as a whole.
    others = np.full(len(X), own[-1])
    left = np.arange(len(X)) != j
    if left.any():
        others[left] = model.score_samples(X[left])
    return own, others


# Infinite scores become this, so that aggregates of them are numbers and keep their order.
LARGEST = float(np.finfo(np.float64).max) / 8

# The probe compares a few rows scored alone with the same rows in a batch of up to this many.
PROBE_BATCH = 512
PROBE_TOLERANCE = 1e-5


def checked_scores(scores: Any, n_rows: int, *, name: str) -> FloatArray:
    """Return scores as finite floats; refuse what is not one number per row.

    Examples
    --------
    >>> checked_scores([1, 2], 2, name="mine")
    array([1., 2.])
    """
    checked: FloatArray = np.asarray(scores, dtype=np.float64)
    if checked.shape == (n_rows, 1):
        checked = checked[:, 0]
    if checked.shape != (n_rows,):
        raise ReconformError(
            f"detector {name} must return one score per row; for {n_rows} rows it "
            f"returned an array of shape {checked.shape}."
        )
    if np.isnan(checked).any():
        row = int(np.flatnonzero(np.isnan(checked))[0])
        raise ReconformError(
            f"detector {name} returned NaN for {int(np.isnan(checked).sum())} of {n_rows} "
            f"rows (first at position {row}). A row without a score has no p-value: check the "
            "detector on these data, or scale or impute them in a pipeline."
        )
    return np.clip(checked, -LARGEST, LARGEST)


def probe_batch_dependence(model: Model, X: FloatArray, *, name: str) -> None:
    """Refuse a model whose score of a row depends on the other rows of the batch.

    A handful of rows is scored alone and within a larger batch. Equal up to rounding is all that
    conformal validity asks for; ECOD and its kin, which rank a batch against itself, differ by
    far more even on a large reference.

    Parameters
    ----------
    model : Model
    X : float array
        Rows to probe with; reference rows will do.
    name : str
        What to call the detector in the message.
    """
    batch = X[:PROBE_BATCH]
    together = model.score_samples(batch)
    finite = together[np.isfinite(together)]
    tolerance = PROBE_TOLERANCE * max(np.abs(finite).max(initial=0.0), np.finfo(float).tiny)
    for count in (1, 7):
        try:
            alone = model.score_samples(batch[:count])
        except NotFittedError:
            raise
        except Exception as error:
            raise _batch_dependence(
                name, f"it cannot score {count} row(s) alone ({error})"
            ) from error
        with np.errstate(invalid="ignore"):
            apart = np.where(alone == together[:count], 0.0, np.abs(alone - together[:count]))
        if not apart.max() <= tolerance:
            raise _batch_dependence(
                name,
                f"a row scored {_one(alone, apart):.6g} in a batch of {count} and "
                f"{_one(together[:count], apart):.6g} in a batch of {len(batch)}",
            )


def _one(scores: FloatArray, apart: FloatArray) -> float:
    return float(scores[int(np.nanargmax(apart))])


def _batch_dependence(name: str, evidence: str) -> BatchDependenceError:
    return BatchDependenceError(
        f"detector {name} cannot be used: its score of a row depends on the other rows of the "
        f"batch, or on chance ({evidence}). A conformal p-value compares scores of one fixed "
        "function; with this detector calibration and test rows would be scored by different "
        "ones, and no error rate would hold. Use a detector that scores rows one by one after "
        "fitting, such as 'knn', or `method='full'`, which fits and scores all rows "
        "together, once per new row, or `method='batch'`, once for all of them."
    )


# --- models of other libraries ------------------------------------------------------------------


def allows_nan(detector: Any) -> bool:
    """Whether missing values may enter: what a pipeline's first step says, or the tags."""
    for _, step in getattr(detector, "steps", None) or []:
        if step not in (None, "passthrough"):
            return allows_nan(step)
    parts = [part for _, part, *_ in getattr(detector, "transformers", None) or []]
    if parts:  # a ColumnTransformer
        return all(part in ("drop", "passthrough") or allows_nan(part) for part in parts)
    try:
        return bool(get_tags(detector).input_tags.allow_nan)
    except Exception:  # an object without scikit-learn's tags makes no such promise
        return False


def model_seeds(seed: np.random.SeedSequence, count: int) -> list[int]:
    """Whole numbers for models; of 31 bits, as some libraries read them as signed ones of 32."""
    return [int(state >> 1) for state in seed.generate_state(count)]


def seed_model(model: Any, seed: np.random.SeedSequence) -> None:
    """Set every ``random_state`` of the model and of what it contains."""
    if not hasattr(model, "get_params"):
        if hasattr(model, "random_state"):
            model.random_state = model_seeds(seed, 1)[0]
        return
    names = sorted(
        name for name in model.get_params(deep=True) if name.split("__")[-1] == "random_state"
    )
    if names:
        model.set_params(**dict(zip(names, model_seeds(seed, len(names)), strict=True)))
