"""Streams over a score that is known: the first column of a row."""

import numpy as np

from reconform import ConformalDetector
from reconform.stream import FalseAlarmBudget


class FirstColumn:
    """A model that was fitted elsewhere: the score of a row is its first column."""

    fitted_ = True

    def fit(self, X):
        return self

    def score_samples(self, X):
        return X[:, 0]


def calibrated(rows):
    rows = np.random.default_rng(0).permutation(rows)  # sorted ones would be asked about
    return ConformalDetector(FirstColumn(), "prefit").fit(np.reshape(rows, (-1, 1)))


def budget(cad, **more):
    """A stream that flags a tenth of normal rows, so that decisions are not all alike."""
    return FalseAlarmBudget(cad, 100, 1_000, **more)


def batches_of(seed, sizes=(1, 7, 30, 1, 12, 20)):
    """Rows of which a third are anomalous, in batches."""
    rng = np.random.default_rng(seed)
    return [np.where(rng.random((m, 1)) < 0.3, -1.0, rng.uniform(size=(m, 1))) for m in sizes]
