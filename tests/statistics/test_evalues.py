from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle_worlds import oracle_closed_list
from reconform.statistics.evalues import (
    EValues,
    average_e_values,
    closed_e_bh,
    closed_q_values,
    conformal_e_values,
)
from reconform.statistics.fdr import RankCounts
from refusals import refused

LEVELS = [Fraction(1, 10), Fraction(1, 4), Fraction(1, 3), Fraction(1, 2), Fraction(9, 10)]
scores = st.lists(st.integers(0, 6), min_size=1, max_size=8)


def literal(calibration, test, alpha):
    """The definition, word for word, in fractions."""
    n, m = len(calibration), len(test)
    threshold = None
    for t in sorted({*calibration, *test}):
        alarms, flagged = 1 + sum(c <= t for c in calibration), sum(s <= t for s in test)
        if Fraction(m * alarms, (n + 1) * max(1, flagged)) <= alpha:
            threshold = t
    if threshold is None:
        return [Fraction(0)] * m
    e = Fraction(n + 1, 1 + sum(c <= threshold for c in calibration))
    return [e if s <= threshold else Fraction(0) for s in test]


def exact(e_values):
    """The e-values of all rows as fractions."""
    pairs = list(zip(e_values.weights, e_values.masks, strict=True))
    return [sum((w for w, mask in pairs if mask[j]), Fraction(0)) for j in range(len(e_values))]


def e_bh(e, level):
    """The list that closed e-BH can only make longer."""
    m, largest = len(e), sorted(e, reverse=True)
    k = max((k for k in range(1, m + 1) if largest[k - 1] >= m / (level * k)), default=0)
    return np.array([k > 0 and value >= largest[k - 1] for value in e], dtype=bool)


@given(calibration=scores, test=scores, alpha=st.sampled_from(LEVELS))
def test_e_values_are_the_definition(calibration, test, alpha):
    assert exact(conformal_e_values(calibration, test, alpha)) == literal(calibration, test, alpha)


@given(
    calibration=st.lists(scores, min_size=1, max_size=3),
    m=st.integers(1, 7),
    data=st.data(),
    alpha=st.sampled_from(LEVELS),
    level=st.sampled_from(LEVELS),
)
def test_averages_and_decisions_are_exact(calibration, m, data, alpha, level):
    batches = [data.draw(st.lists(st.integers(0, 4), min_size=m, max_size=m)) for _ in calibration]
    splits = list(zip(calibration, batches, strict=True))
    mean = average_e_values([conformal_e_values(c, s, alpha) for c, s in splits])
    columns = zip(*(literal(c, s, alpha) for c, s in splits), strict=True)
    expected = [sum(column) / len(splits) for column in columns]
    assert exact(mean) == expected
    assert mean.values.tolist() == [float(value) for value in expected]
    decision = closed_e_bh(mean, level)
    assert set(np.flatnonzero(decision)) == oracle_closed_list(expected, level)
    assert (e_bh(expected, level) <= decision).all()
    assert (closed_q_values(mean) <= float(level)).tolist() == decision.tolist()


@given(e=st.lists(st.floats(0, 1e3), max_size=7), level=st.sampled_from(LEVELS))
def test_plain_floats_are_taken_for_what_they_are(e, level):
    expected = oracle_closed_list([Fraction(value) for value in e], level)
    assert set(np.flatnonzero(closed_e_bh(e, level))) == expected


@given(calibration=scores, test=scores, level=st.sampled_from(LEVELS))
def test_one_repeat_is_benjamini_hochberg(calibration, test, level):
    ranks = 1 + np.searchsorted(np.sort(calibration), test, side="right")
    decision = RankCounts(len(calibration), "").add(ranks).decide(level)
    found = closed_e_bh(conformal_e_values(calibration, test, level), level)
    assert found.tolist() == decision.mask(ranks).tolist()


def test_a_row_on_the_line_is_a_discovery():
    # Three thirds of 10 are 10; added up as floats they would fall short of it.
    thirds = [EValues((Fraction(10),), np.array([[j == k for j in range(3)]])) for k in range(3)]
    mean = average_e_values([*thirds, *thirds, *thirds])
    assert exact(mean) == [Fraction(10, 3)] * 3
    assert closed_e_bh(mean, Fraction(3, 10)).tolist() == [True] * 3
    assert closed_q_values(mean).tolist() == [0.3] * 3


@given(
    values=st.lists(st.integers(0, 5), min_size=3, max_size=7),
    anomalies=st.lists(st.integers(-1, 5), max_size=3),
    n=st.integers(1, 4),
    alpha=st.sampled_from(LEVELS),
)
def test_normal_rows_sum_to_at_most_their_number(values, anomalies, n, alpha):
    # Exact: given the scores of all normal rows, ties included, every choice of n of them for the
    # calibration set is equally likely.
    n = min(n, len(values) - 1)
    total = Fraction(0)
    choices = list(combinations(range(len(values)), n))
    for chosen in choices:
        calibration = [values[i] for i in chosen]
        normal = [v for i, v in enumerate(values) if i not in chosen]
        e = exact(conformal_e_values(calibration, normal + anomalies, alpha))
        total += sum(e[: len(normal)], Fraction(0))
    assert total / len(choices) <= len(values) - n


def test_nothing_to_find():
    none = conformal_e_values([0.0, 1.0], [5.0, 6.0], 0.1)
    assert none.values.tolist() == [0.0, 0.0]
    assert closed_e_bh(none, 0.5).tolist() == [False, False]
    assert (closed_q_values(none).tolist(), closed_e_bh([], 0.1).tolist()) == ([1.0, 1.0], [])
    assert len(conformal_e_values([1.0], [], 0.1)) == 0


def test_bad_arguments():
    refused("test_scores must not contain NaN", conformal_e_values, [1.0], [np.nan], 0.1)
    refused("calibration_scores must be one-dimensional", conformal_e_values, [[1.0]], [1.0], 0.1)
    with pytest.raises(ValueError, match="alpha_bh must be a number strictly between 0 and 1"):
        conformal_e_values([1.0], [1.0], 0)
    refused("e_values must be finite", closed_e_bh, [np.inf], 0.1)
    refused("at least one set", average_e_values, [])
    with pytest.raises(ValueError, match=r"same rows; got sets of \[1, 2\] rows"):
        average_e_values([conformal_e_values([1.0], [1.0] * k, 0.5) for k in (1, 2)])
