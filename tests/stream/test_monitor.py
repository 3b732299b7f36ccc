"""Conformal test martingales: uniform p-values, Ville's bound, what is refused, what survives."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from reconform import ConformalDetector
from reconform.statistics.ranks import row_uniforms
from reconform.stream import ExchangeabilityMonitor
from reconform.stream.monitor import OrderedScores, SimpleJumper
from refusals import refused
from streams import calibrated


@given(
    st.lists(st.one_of(st.integers(-3, 3).map(float), st.floats(allow_nan=False)), max_size=60),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_ordered_scores_count_what_came_before(values, first, second):
    x = np.array(values)
    ordered = OrderedScores(x[:first])
    rows = x[first:second], x[max(first, second) :]
    parts = [ordered.rank_and_insert(part) for part in rows]
    below, equal = (np.concatenate(counts) for counts in zip(*parts, strict=True))
    for j, i in enumerate(range(min(first, len(x)), len(x))):
        assert below[j] == (x[:i] < x[i]).sum()
        assert equal[j] == (x[:i] == x[i]).sum()
    assert len(ordered) == len(x)


def test_ordered_scores_in_any_order():
    """Orders that would make a search tree without balance slow; many scores at a time."""
    n = 20_000
    up, none = np.arange(n), np.zeros(n, dtype=int)
    for x, below, equal in (
        (up, up, none),
        (-up, none, none),
        (up * (-1) ** up, np.where(up % 2, 0, up), none),
        (none, none, up),
    ):
        found = OrderedScores(np.empty(0)).rank_and_insert(x.astype(float))
        np.testing.assert_array_equal(found, [below, equal])


def test_p_values_are_smoothed_ranks_among_calibration_and_stream(rng):
    """The definition, literally, with ties."""
    c, x = rng.integers(0, 9, size=30).astype(float), rng.integers(0, 9, size=40).astype(float)
    monitor = ExchangeabilityMonitor(calibrated(c), random_state=5)
    p = np.concatenate([monitor.update(part.reshape(-1, 1)).p_values for part in (x[:1], x[1:])])
    key = int(np.random.SeedSequence(5).generate_state(1, np.uint64)[0])
    u = row_uniforms(key, 0, 40)
    for j in range(40):
        seen = np.concatenate([c, x[: j + 1]])
        expected = ((seen < x[j]).sum() + u[j] * (seen == x[j]).sum()) / len(seen)
        assert p[j] == expected


@pytest.mark.parametrize("past", [[], [0.01], [0.9, 0.3, 0.02, 0.6]])
def test_bets_are_fair(past):
    """Whatever has happened, a uniform p-value leaves the capital as it is on average."""

    def capital(*p):
        return math.exp(SimpleJumper().advance(np.array(p))[-1]) if p else 1.0

    assert quad(lambda p: capital(*past, p), 0, 1)[0] == pytest.approx(capital(*past), rel=1e-6)


def test_the_simple_jumper_is_algorithm_1():
    """Vovk et al. 2021, transcribed, with plain numbers."""
    p = np.random.default_rng(2).beta(0.7, 1.0, size=300)
    capital = dict.fromkeys((-1, 0, 1), 1 / 3)
    expected, total = [], 1.0
    for value in p:
        for e in capital:
            capital[e] = 0.99 * capital[e] + 0.01 / 3 * total
        for e in capital:
            capital[e] *= 1 + e * (value - 0.5)
        total = sum(capital.values())
        expected.append(math.log(total))
    assert SimpleJumper().advance(p) == pytest.approx(expected, rel=1e-10)


def test_a_shift_is_noticed_soon():
    rng = np.random.default_rng(6)
    cad = ConformalDetector("knn", "split", random_state=0).fit(rng.normal(size=(1_000, 2)))
    monitor = ExchangeabilityMonitor(cad, 0.01, random_state=0)
    normal = monitor.update(rng.normal(size=(300, 2)))
    assert not normal.alarm
    assert normal.alarm_row is None
    shifted = monitor.update(rng.normal(1, 1, size=(500, 2)))
    assert shifted.alarm
    assert shifted.log10_evidence[shifted.alarm_row - 300] >= 2
    assert (shifted.log10_evidence[: shifted.alarm_row - 300] < 2).all()
    back = monitor.update(rng.normal(size=(50, 2)))
    assert back.alarm_row == shifted.alarm_row == monitor.alarm_row  # the first one stays


def test_rows_that_are_less_unusual_are_noticed_too():
    rng = np.random.default_rng(7)
    cad, X = calibrated(rng.normal(size=500)), rng.normal(1, 1, size=(500, 1))
    assert ExchangeabilityMonitor(cad, 0.01, random_state=0).update(X).alarm


def test_a_choice_of_detectors_is_monitored_by_the_first(rng):
    X, new = rng.normal(size=(300, 2)), rng.normal(size=(50, 2))
    reports = [
        ExchangeabilityMonitor(
            ConformalDetector(detector, "split", random_state=0).fit(X), random_state=0
        ).update(new)
        for detector in (["knn", "mahalanobis"], "knn")
    ]
    assert np.array_equal(reports[0].log10_evidence, reports[1].log10_evidence)
    few = ConformalDetector(random_state=0).fit(X[:50])  # method="auto" is full
    refused(r"method='auto' cannot be monitored.*'split'", ExchangeabilityMonitor, few)
