"""Full-conformal ranks for any detector: one refit per new row."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from joblib import effective_n_jobs

from .arrays import FloatArray
from .ensemble import Model
from .parallel import run_jobs, track
from .statistics.ranks import Calibration, Ranks

# Longer than this in all, and a word about the cost comes before the work.
_WARN_SECONDS = 30.0


class SymmetricAlgorithm(Protocol):
    """What full-conformal asks of a detector: fit, and score its own training rows alike."""

    @property
    def name(self) -> str:
        """What to call it in messages."""
        ...

    def fit_model(self, X: FloatArray, seed: np.random.SeedSequence) -> Model:
        """Fit a fresh model."""
        ...

    def training_scores(self, model: Model, X: FloatArray) -> FloatArray:
        """Score the rows the model was fitted on, all alike; small = strange."""
        ...


def reference_calibration(scores: FloatArray) -> Calibration:
    """The reference scored without any new row: for showing, and to fingerprint the fit."""
    n = len(scores)
    every = np.arange(n)
    return Calibration(scores, every, np.arange(n + 1), every.astype(np.int32))


@dataclass(eq=False)
class FullRefit:
    """Fit A on D and x together, for every new row x, and rank x among all n + 1 scores.

    Attributes
    ----------
    algorithm : SymmetricAlgorithm
    reference : float array of shape (n, d)
        D.
    seed : SeedSequence
        The same for every row, so that a p-value does not depend on the rest of the batch.
    calibration : Calibration
        Scores of D under A(D); the ranks do not use them.
    n_jobs, verbose : int
    """

    algorithm: SymmetricAlgorithm
    reference: FloatArray
    seed: np.random.SeedSequence
    calibration: Calibration
    n_jobs: int | None = None
    verbose: int = 0

    shares_draws = False

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row by a refit of its own."""
        started = time.perf_counter()
        first = _rank_one(self.algorithm, self.reference, self.seed, X[0])
        self._word_about_cost(time.perf_counter() - started, len(X))
        calls = ((self.algorithm, self.reference, self.seed, x) for x in X[1:])
        rest = run_jobs(_rank_one, calls, total=len(X) - 1, n_jobs=self.n_jobs)
        label = f"refitting {self.algorithm.name}"
        rows = [first, *track(rest, total=len(X) - 1, label=label, verbose=self.verbose)]
        at_most, below, scores = zip(*rows, strict=True)
        return Ranks(
            np.array(at_most, dtype=np.int64),
            np.array(below, dtype=np.int64) if strictly else None,
            np.array(scores),
        )

    def _word_about_cost(self, seconds: float, rows: int) -> None:
        total = seconds * rows / effective_n_jobs(self.n_jobs)
        if total > _WARN_SECONDS:
            warnings.warn(
                f"`method='full'` fits {self.algorithm.name} once per new row: {rows:,} fits of "
                f"about {seconds:.2g} s, some {total / 60:.1f} minutes in all. 'knn', 'iforest' "
                "and 'inne' need no refits; 'jackknife+' or 'cv+' fit once for all rows.",
                UserWarning,
                stacklevel=5,
            )


def _rank_one(
    algorithm: SymmetricAlgorithm,
    reference: FloatArray,
    seed: np.random.SeedSequence,
    x: FloatArray,
) -> tuple[int, int, float]:
    """Rank one new row among the scores of D, all under A(D and x)."""
    together = np.vstack([reference, x])
    model = algorithm.fit_model(together, seed)
    scores = algorithm.training_scores(model, together)
    mine = scores[-1]
    return (
        1 + int((scores[:-1] <= mine).sum()),
        1 + int((scores[:-1] < mine).sum()),
        float(mine),
    )


def fit_full(
    algorithm: SymmetricAlgorithm,
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
