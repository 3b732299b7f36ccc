"""One fit per model: what travels with a task, and that rows arrive as they were planned."""

import numpy as np
import pytest
from joblib import parallel_config

from reconform import Bootstrap, CrossValidation, Jackknife, Split
from reconform.ensemble.refitting import refit
from reconform.methods import Resampling
from reconform.statistics.ranks import calibrate, reduction


class Witness:
    """An algorithm whose models tell which rows they were given, and how these came."""

    name = "Witness"

    def fit_model(self, rows, seed):
        return Seen(rows[:, 0])

    def check_model(self, model, rows):
        model.mapped = isinstance(rows, np.memmap)


class Seen:
    def __init__(self, rows):
        self.rows = rows

    def score_samples(self, rows):
        return rows[:, 0] + self.rows[0] / 1024


@pytest.mark.parametrize(
    "method",
    [
        Split(0.1),
        Split(0.9),
        CrossValidation(folds=3),
        Bootstrap(draws=4),
        Jackknife(),
        Resampling([[5, 3, 4], np.arange(299)[::-1], np.repeat(np.arange(290), 2)]),
    ],
    ids=["split", "mostly held out", "cv", "bootstrap", "jackknife", "by hand"],
)
def test_indices_arrive_as_they_were_planned(method):
    n = 300  # more than a byte can number
    plan = method.plan(n, random_state=0)
    rows = np.arange(n, dtype=float)[:, None]
    ensemble = refit(Witness(), rows, plan, [None] * (plan.n_models + 1))
    models = ensemble.models if plan.full else [ensemble.full]
    assert all(np.array_equal(m.rows, T_k) for m, T_k in zip(models, plan.train, strict=True))
    scores = [Seen(rows[T_k, 0]).score_samples(rows[H_k]) for T_k, H_k in pairs(plan)]
    expected = calibrate(plan, scores, reduction(plan.aggregate))
    assert ensemble.calibration.fingerprint == expected.fingerprint


def pairs(plan):
    return zip(plan.train, plan.held_out, strict=True)


def test_processes_map_the_reference_instead_of_copying_it():
    rows = np.zeros((100_000, 2))
    plan = Split(0.5).plan(len(rows), random_state=0)
    with parallel_config("loky", n_jobs=2):
        ensemble = refit(Witness(), rows, plan, [None] * 2)
    assert ensemble.full.mapped
