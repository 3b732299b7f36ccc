"""All forests of any plan, each fitted on its own draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from joblib import effective_n_jobs

from ...arrays import FloatArray
from ...ensemble import ranks_by_scores
from ...methods import Plan
from ...parallel import run_blocks
from ...statistics.aggregation import reduction
from ...statistics.ranks import Calibration, Ranks, calibrate
from .model import WALKS_PER_GROWTH, Forest, Recipe, fit_forest, worth


@dataclass(eq=False)
class ForestEnsemble:
    """Every forest of a plan, each fitted on its own.

    Attributes
    ----------
    plan : Plan
    calibration : Calibration
    forests : list of Forest
        The resampled models; empty after a basic fit, and where the plan has one model only.
    full : Forest
        A(D), or the only model of a plan without one.
    n_jobs : int or None
        Threads for scoring.
    """

    plan: Plan
    calibration: Calibration
    forests: list[Forest]
    full: Forest
    n_jobs: int | None = None

    @property
    def shares_draws(self) -> bool:
        """Every model has draws of its own."""
        return False

    @property
    def retained(self) -> bool:
        """Whether the resampled models are there."""
        return bool(self.forests)

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every resampled model, (models, rows)."""
        scores = np.empty((len(self.forests), len(X)))
        outer, inner = _spread(len(self.forests), self.n_jobs)

        def score(start: int, stop: int) -> None:
            for k in range(start, stop):
                scores[k] = self.forests[k].scores(X, n_jobs=inner)

        walks = len(X) * sum(map(len, self.forests))
        run_blocks(score, len(self.forests), n_jobs=worth(outer, walks))
        return scores

    def full_scores(self, X: FloatArray) -> FloatArray:
        """Scores of A(D), or of the only model."""
        return self.full.scores(X, n_jobs=self.n_jobs)

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows through the scores of all models."""
        return ranks_by_scores(self, X, variant=variant, strictly=strictly, n_jobs=self.n_jobs)


def _spread(n_models: int, n_jobs: int | None) -> tuple[int | None, int | None]:
    """Threads over models if there are many, else within every model."""
    return (n_jobs, 1) if n_models >= 4 * effective_n_jobs(n_jobs) else (1, n_jobs)


def fit_separately(
    X: FloatArray,
    plan: Plan,
    recipe_for: Callable[[int], Recipe],
    seeds: Sequence[np.random.SeedSequence],
    *,
    n_jobs: int | None = None,
) -> ForestEnsemble:
    """Fit every forest of any plan on its own draws.

    Parameters
    ----------
    X : float array of shape (n, d)
    plan : Plan
    recipe_for : callable
        From the number of training rows to the recipe of a forest.
    seeds : sequence of SeedSequence
        One per resampled model, and a last one for A(D).
    n_jobs : int, optional
        Threads.

    Returns
    -------
    ForestEnsemble
    """
    keep = plan.variant != "basic" or not plan.full
    kept: dict[int, Forest] = {}
    held_scores: list[FloatArray] = [np.empty(0)] * plan.n_models
    outer, inner = _spread(plan.n_models, n_jobs)

    def fit(start: int, stop: int) -> None:
        for k in range(start, stop):
            train = plan.train[k]
            forest = fit_forest(X, train, recipe_for(len(train)), seeds[k], n_jobs=inner)
            held_scores[k] = forest.scores(X[plan.held_out[k]], n_jobs=inner)
            if keep:
                kept[k] = forest

    trees = plan.n_models * recipe_for(plan.n).n_trees
    run_blocks(fit, plan.n_models, n_jobs=worth(outer, trees * WALKS_PER_GROWTH))
    calibration = calibrate(plan, held_scores, reduction(plan.aggregate))
    if not plan.full:
        return ForestEnsemble(plan, calibration, [], kept[0], n_jobs)
    full = fit_forest(X, np.arange(plan.n), recipe_for(plan.n), seeds[-1], n_jobs=n_jobs)
    forests = [kept[k] for k in sorted(kept)]
    return ForestEnsemble(plan, calibration, forests, full, n_jobs)
