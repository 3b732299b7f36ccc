"""Conformal test martingales: uniform p-values, Ville's bound, what is refused, what survives."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import binom, kstest

from reconform import ConformalDetector, Split
from reconform.statistics.ranks import row_uniforms
from reconform.stream import ExchangeabilityMonitor
from reconform.stream.monitor import OrderedScores, SimpleJumper
from streams import calibrated

# A correct program fails each statistical test below with at most this probability.
FAILURE = 1e-4


# --- ranks among all that came before ------------------------------------------------------------


@given(
    st.lists(st.one_of(st.integers(-3, 3).map(float), st.floats(allow_nan=False)), max_size=60),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_ordered_scores_count_what_came_before(values, first, second):
    x = np.array(values)
    ordered = OrderedScores(x[:first])
    parts = [
        ordered.rank_and_insert(x[first:second]),
        ordered.rank_and_insert(x[max(first, second) :]),
    ]
    below, equal = (np.concatenate(counts) for counts in zip(*parts, strict=True))
    for j, i in enumerate(range(min(first, len(x)), len(x))):
        assert below[j] == (x[:i] < x[i]).sum()
        assert equal[j] == (x[:i] == x[i]).sum()
    assert len(ordered) == len(x)


@pytest.mark.parametrize("order", ["sorted", "reversed", "alternating", "equal"])
def test_ordered_scores_in_any_order(order):
    """Orders that would make a search tree without balance slow; many scores at a time."""
    n = 20_000
    x = {
        "sorted": np.arange(n),
        "reversed": -np.arange(n),
        "alternating": np.arange(n) * (-1) ** np.arange(n),
        "equal": np.zeros(n),
    }[order].astype(float)
    below, equal = OrderedScores(np.empty(0)).rank_and_insert(x)
    assert (
        below.tolist()
        == {
            "sorted": list(range(n)),
            "reversed": [0] * n,
            "alternating": [0 if i % 2 else i for i in range(n)],
            "equal": [0] * n,
        }[order]
    )
    assert equal.tolist() == (list(range(n)) if order == "equal" else [0] * n)


def test_p_values_are_smoothed_ranks_among_calibration_and_stream():
    """The definition, literally, with ties."""
    rng = np.random.default_rng(0)
    c, x = rng.integers(0, 9, size=30).astype(float), rng.integers(0, 9, size=40).astype(float)
    monitor = ExchangeabilityMonitor(calibrated(c), random_state=5)
    p = np.concatenate([monitor.update(part.reshape(-1, 1)).p_values for part in (x[:1], x[1:])])
    key = int(np.random.SeedSequence(5).generate_state(1, np.uint64)[0])
    u = row_uniforms(key, 0, 40)
    for j in range(40):
        seen = np.concatenate([c, x[: j + 1]])
        expected = ((seen < x[j]).sum() + u[j] * (seen == x[j]).sum()) / len(seen)
        assert p[j] == expected


@pytest.mark.parametrize("ties", [False, True])
def test_p_values_of_a_normal_stream_are_independent_uniforms(ties):
    """Neighbours too: the position of (p_j, p_j+1) on a grid of 4 x 4 is uniform (chi-square)."""
    from scipy.stats import chisquare

    rng = np.random.default_rng(1)
    pairs, everything = np.zeros((4, 4)), []
    for stream in range(300):
        scores = rng.normal(size=60)
        scores = np.round(scores) if ties else scores
        monitor = ExchangeabilityMonitor(calibrated(scores[:20]), random_state=stream)
        p = monitor.update(scores[20:].reshape(-1, 1)).p_values
        everything.append(p)
        cell = np.minimum((4 * p).astype(int), 3)
        np.add.at(pairs, (cell[:-1:2], cell[1::2]), 1)
    assert kstest(np.concatenate(everything), "uniform").pvalue > FAILURE / 2
    assert chisquare(pairs.ravel()).pvalue > FAILURE / 2


# --- martingales ---------------------------------------------------------------------------------


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


def test_batches_do_not_matter():
    rng = np.random.default_rng(3)
    cad, X = calibrated(rng.normal(size=100)), rng.normal(-1, size=(400, 1))
    whole = ExchangeabilityMonitor(cad, random_state=0)
    report = whole.update(X)
    pieces = ExchangeabilityMonitor(cad, random_state=0)
    parts = [pieces.update(part) for part in np.split(X, [1, 2, 50, 333])]
    joined = np.concatenate([part.log10_evidence for part in parts])
    assert np.array_equal(joined, report.log10_evidence)
    assert pieces.alarm_row == whole.alarm_row == report.alarm_row is not None
    assert pieces.log10_evidence == whole.log10_evidence == joined[-1]
    other = ExchangeabilityMonitor(cad, random_state=1)
    assert not np.array_equal(other.update(X).p_values, report.p_values)


# --- alarms --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_ville_says():
    """Many normal streams of a small calibration set."""
    alpha, streams, alarms = 0.2, 800, 0
    rng = np.random.default_rng(4)
    for stream in range(streams):
        cad, X = calibrated(rng.normal(size=50)), rng.normal(size=(300, 1))
        alarms += ExchangeabilityMonitor(cad, alpha, random_state=stream).update(X).alarm
    assert alarms <= binom.ppf(1 - FAILURE, streams, alpha)
    assert alarms > 0.1 * alpha * streams  # the bound is not idle


def test_a_fixed_calibration_set_would_inflate_the_rate():
    """Why p-values of the detector are not taken: they are uniform each, and not independent.

    A rate of 0.05 is asked for, and 0.24 is what such streams have (8,000 of them were tried).
    """
    alpha, streams, alarms = 0.05, 600, 0
    rng = np.random.default_rng(5)
    for _ in range(streams):
        c, x, u = np.sort(rng.normal(size=100)), rng.normal(size=2_000), 1 - rng.random(2_000)
        p = (np.searchsorted(c, x) + u) / 101
        alarms += SimpleJumper().advance(p).max() >= -math.log(alpha)
    assert alarms > 3 * alpha * streams


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


@pytest.mark.parametrize(
    "method", ["jackknife+", "cv+", "cv", "jab+", "full", Split(repeats=3)], ids=str
)
def test_methods_without_one_fixed_model_are_refused(method):
    X = np.random.default_rng(0).normal(size=(40, 2))
    cad = ConformalDetector("knn", method, random_state=0).fit(X)
    with pytest.raises(ValueError, match=r"cannot be monitored.*'split'.*'prefit'.*several-fold"):
        ExchangeabilityMonitor(cad)


def test_a_choice_of_detectors_is_monitored_by_the_first():
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(300, 2)), rng.normal(size=(50, 2))
    reports = [
        ExchangeabilityMonitor(
            ConformalDetector(detector, "split", random_state=0).fit(X), random_state=0
        ).update(new)
        for detector in (["knn", "mahalanobis"], "knn")
    ]
    assert np.array_equal(reports[0].log10_evidence, reports[1].log10_evidence)
    few = ConformalDetector(random_state=0).fit(X[:50])  # method="auto" is full
    with pytest.raises(ValueError, match=r"method='auto' cannot be monitored.*'split'"):
        ExchangeabilityMonitor(few)


def test_bad_arguments_get_a_sentence():
    cad = calibrated(np.arange(9.0))
    with pytest.raises(ValueError, match="alpha must be a number strictly between 0 and 1"):
        ExchangeabilityMonitor(cad, alpha=1.0)
    with pytest.raises(ValueError, match="no rows"):
        ExchangeabilityMonitor(cad).update(np.empty((0, 1)))
    with pytest.raises(ValueError, match="random_state"):
        ExchangeabilityMonitor(cad, random_state="x")


# --- what survives a crash -----------------------------------------------------------------------


def test_resuming_anywhere_gives_the_same_evidence(tmp_path):
    rng = np.random.default_rng(8)
    cad = calibrated(rng.normal(size=60))
    parts = np.split(rng.normal(-0.3, size=(200, 1)).round(1), [3, 4, 90, 150])
    plain = ExchangeabilityMonitor(cad, 0.1)
    whole = [plain.update(part) for part in parts]
    journal = tmp_path / "journal"
    for number, part in enumerate(parts):
        monitor = ExchangeabilityMonitor(cad, 0.1, journal=journal)
        for place in (number, number, 0):
            got = monitor.update(parts[place], batch=place)
            assert np.array_equal(got.p_values, whole[place].p_values)
            assert np.array_equal(got.log10_evidence, whole[place].log10_evidence)
            assert got.alarm_row == whole[place].alarm_row
            assert (got.batch, got.row, got.alpha) == (place, whole[place].row, 0.1)
        with pytest.raises(ValueError, match="with other rows"):
            monitor.update(part + 1, batch=number)
        monitor.close()
    assert monitor.alarm_row == plain.alarm_row
    assert monitor.log10_evidence == plain.log10_evidence
    other = calibrated(rng.normal(size=60))
    with pytest.raises(ValueError, match="another calibration"):
        ExchangeabilityMonitor(other, 0.1, journal=journal)
    with pytest.raises(ValueError, match="other options"):
        ExchangeabilityMonitor(cad, 0.1, random_state=1, journal=journal)
