"""Extreme: scores against a plain version, and what carries them."""

import numpy as np

from reconform import ConformalDetector
from reconform.detectors import Extreme


def plainly(rows, x):
    """The score of x by the rows, with plain loops."""
    found = []
    for j, column in enumerate(rows.T.tolist()):
        middle = sorted(column)
        half = len(middle) // 2
        median = middle[half] if len(middle) % 2 else (middle[half - 1] + middle[half]) / 2
        farthest = sorted((abs(v - median) for v in column), reverse=True)
        most = max(1, round(len(column) / 5))
        found.append(abs(x[j] - median) / (sum(farthest[:most]) / most))
    return -max(found)


def test_scores_against_a_plain_version(rng):
    for n in (5, 12, 41):
        rows, new = rng.standard_t(2, size=(n, 3)), rng.normal(size=(6, 3)) * 3
        scores = Extreme().fit(rows).score_samples(new)
        np.testing.assert_allclose(scores, [plainly(rows, x) for x in new], rtol=1e-12)


def test_a_column_that_never_changed_comes_first_when_it_does():
    rows = np.random.default_rng(1).normal(size=(50, 2))
    rows[:, 1] = 7.0
    found = ConformalDetector("extreme", "jackknife").fit(rows).discover([[0, 7.1], [9, 7]])
    assert found.scores[0] < found.scores[1]
    assert found.ranks.tolist() == [1, 1]


def test_the_column_that_lies_far_out_carries_the_score():
    rows = np.random.default_rng(2).normal(size=(60, 4))
    shares = Extreme().fit(rows).attribution(np.array([0.0, 9.0, 0.0, 3.0]), rows).shares
    assert (shares.argmax(), shares[[0, 2]].sum()) == (1, 0)
