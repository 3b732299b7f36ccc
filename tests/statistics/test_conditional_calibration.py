"""Conditional calibration: the shortcuts are the enumeration of all worlds, bit for bit."""

from fractions import Fraction

import numpy as np
import pytest

from oracle_worlds import nearest_neighbours, one_model_rule, oracle_e_value
from reconform.detectors.knn import KNN
from reconform.detectors.knn.ensembles import FullNeighbours
from reconform.ensemble import e_values_by_scores
from reconform.statistics.conditional_calibration import (
    StepUp,
    e_value,
    e_value_of_one_model,
    graded_e_value,
)
from reconform.statistics.evalues import closed_e_bh
from reconform.statistics.joint import JointStepUp


def worlds_in(knn, D):
    return FullNeighbours.fit(knn._model(D))


LEVELS = (Fraction(1, 10), Fraction(3, 10), Fraction(3, 5), Fraction(9, 10))


def small_case(seed, kind):
    """Few rows; on the grid with many ties and duplicates, and a copy of a reference row."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, 4))
    n, m, d = int(rng.integers(k + 2, 13)), int(rng.integers(1, 6)), int(rng.integers(1, 3))
    if kind == "grid":
        D, X = (rng.integers(0, 4, size=(rows, d)).astype(float) for rows in (n, m))
    else:
        D, X = (rng.normal(size=(rows, d)) for rows in (n, m))
    X[: m // 2] += 3
    if m > 1:
        X[-1] = D[0]
    return D, X, k


@pytest.mark.parametrize("kind", ["continuous", "grid"])
@pytest.mark.parametrize("seed", range(8))
def test_knn_worlds_equal_enumeration(seed, kind):
    """Where one model per row counts all worlds; for lists of their own see `test_worlds`."""
    D, X, k = small_case(seed, kind)
    neighbours = worlds_in(KNN(n_neighbors=k), D)
    for level in LEVELS:
        rule = one_model_rule(nearest_neighbours(k), level)
        step = StepUp.at(level, len(D), len(X))
        for j, found in e_values_by_scores(neighbours.augmented_scores(X, np.arange(len(X))), step):
            assert found == oracle_e_value(D, X, j, rule)


@pytest.mark.parametrize("kind", ["continuous", "grid"])
@pytest.mark.parametrize("seed", range(8))
def test_one_model_equals_enumeration(seed, kind):
    D, X, k = small_case(seed, kind)
    detector = nearest_neighbours(k)
    for level in LEVELS:
        step = StepUp.at(level, len(D), len(X))
        for j in range(len(X)):
            inside, score = detector(np.vstack([D, X[j]]))
            found = e_value_of_one_model(inside, score(np.delete(X, j, axis=0)), step)
            rule = one_model_rule(detector, level)
            assert found == oracle_e_value(D, X, j, rule)


@pytest.mark.parametrize("seed", range(40))
def test_one_model_equals_enumeration_on_scores(seed):
    """Scores fixed by content: the statistics alone, with heavy ties and infinities."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 13)), int(rng.integers(1, 7))
    values = rng.integers(0, int(rng.integers(2, 15)), size=n + m).astype(float)
    values[rng.random(n + m) < 0.1] = -np.inf
    D, X = values[:n, None], values[n:, None]

    def detector(E):
        return E[:, 0], lambda Z: Z[:, 0]

    level = Fraction(int(rng.integers(1, 20)), 20)
    step = StepUp.at(level, n, m)
    for j in range(m):
        found = e_value_of_one_model(np.append(D, X[j]), np.delete(X[:, 0], j), step)
        assert found == oracle_e_value(D, X, j, one_model_rule(detector, level))


@pytest.mark.parametrize("seed", range(6))
def test_lists_that_are_longer_than_the_slack_is_for(seed):
    """As above, with lists of more than twenty rows; and the mean over all worlds is at most 1."""
    rng = np.random.default_rng(seed)
    n, m = 8, 45
    E, others = rng.integers(0, 9, n + 1).astype(float), rng.integers(-20, 5, m - 1).astype(float)

    def detector(E):
        return E[:, 0], lambda Z: Z[:, 0]

    level, e, lengths = Fraction(3 + seed, 10), [], []
    for w in range(n + 1):
        D, X = np.delete(E, w), np.append(E[w], others)
        step = StepUp.at(level, n, m)
        lengths.append(step.count(1 + (others[:, None] >= D).sum(axis=1)))
        e.append(e_value_of_one_model(np.append(D, X[0]), others, step))
        rule = one_model_rule(detector, level)
        assert e[-1] == oracle_e_value(D[:, None], X[:, None], 0, rule)
    assert sum(e) <= n + 1
    assert max(lengths) > 20


def test_no_step_of_a_short_list_is_lost():
    """Ranks 1, 1, 2, 2, 2 among 200 and 50 rows: a list of five holds rank 2 at 0.1, not below."""
    step = StepUp.at(0.1, 200, 50)
    assert (step.limits[5], step.count(np.array([1, 1, 2, 2, *[150] * 45]))) == (2, 5)
    far = np.r_[np.linspace(-1, 1, 199), -14.0]
    X = np.r_[[-15.0, -15.0], [-13.0] * 3, np.linspace(0, 1, 45)]
    e = [e_value_of_one_model(np.append(far, X[j]), np.delete(X, j), step) for j in range(50)]
    assert closed_e_bh(e, 0.1).tolist() == [True] * 5 + [False] * 45


@pytest.mark.parametrize("m", [1, 19, 20, 21, 39, 40, 60])
def test_ranks_within_groups_have_the_same_limits(m):
    joint, step = JointStepUp(Fraction(1, 10), np.array([99]), m), StepUp.at(0.1, 99, m)
    ranks = np.arange(1, 101)
    needed = joint.needed(np.zeros(100, dtype=int), ranks)
    for k in range(1, m + 1):
        assert joint.limit(0, k) == step.limits[k]
        assert ((needed <= k) == (ranks <= step.limits[k])).all()


def test_a_fixed_score_gives_the_list_of_bh():
    """With a score that never changes (split), the certificate costs nothing."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        D, X = rng.normal(size=99), rng.normal(size=40)
        X[:8] -= 4
        step = StepUp.at(Fraction(1, 10), 99, 40)
        e = [e_value_of_one_model(np.append(D, X[j]), np.delete(X, j), step) for j in range(40)]
        ranks = 1 + (D[None] <= X[:, None]).sum(axis=1)
        passed = np.flatnonzero(np.sort(ranks) <= step.limits[1:])
        bh = ranks <= (step.limits[passed[-1] + 1] if len(passed) else 0)
        assert (closed_e_bh(e, Fraction(1, 10)) == bh).all()


@pytest.mark.parametrize("limit", [0, 1, 2, 5, 6, 7, 12])
def test_graded_e_values_are_at_most_1_on_average(rng, limit):
    """Every row of E_j in the place of the new one, in fractions; with ties, too."""
    for many in (2, 5, 30):
        own = rng.permutation(12) / 1 if many == 30 else rng.integers(0, many, size=12) + 0.0
        every = [graded_e_value(np.append(np.delete(own, w), own[w]), limit) for w in range(12)]
        assert sum(every) <= 12
        if limit and many == 30:  # no ties: nothing is lost
            assert sum(every) == 12
        plain = [e_value(np.append(np.delete(own, w), own[w]), limit) for w in range(12)]
        assert every == plain or limit in range(2, 7)
