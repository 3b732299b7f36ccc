"""Conformal test martingales: uniform p-values, Ville's bound, what is refused, what survives."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import binom, kstest

from reconform import ConformalDetector, Split
from reconform.statistics.ranks import row_uniforms
from reconform.stream import ExchangeabilityMonitor, chart
from reconform.stream.betting import (
    MARTINGALES,
    Mixture,
    OrderedScores,
    Power,
    SimpleJumper,
    log_mixture,
    make_martingale,
)
from reconform.stream.monitor import EvidenceHistory
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
    assert np.array_equal(ordered.scores, x)


@pytest.mark.parametrize("order", ["sorted", "reversed", "alternating", "equal"])
def test_ordered_scores_in_any_order(order):
    """Orders that make a search tree without balance slow; a skip list does not mind."""
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
@pytest.mark.parametrize("name", MARTINGALES)
def test_bets_are_fair(name, past):
    """Whatever has happened, a uniform p-value leaves the capital as it is on average."""

    def log_capital(*p):
        return make_martingale(name).advance(np.array(p))[-1] if p else 0.0

    def after(s):  # p = e^-s; beyond the smallest double the mixture is asked directly
        if name == "mixture":
            surprise = s - np.log(past).sum()
            return math.exp(log_mixture(np.array([len(past) + 1]), np.array([surprise]))[0] - s)
        return math.exp(log_capital(*past, math.exp(-s)) - s)

    mean = quad(after, 0, np.inf if name == "mixture" else 600, limit=500)[0]
    assert mean == pytest.approx(math.exp(log_capital(*past)), rel=1e-6)


def test_the_power_martingale_is_its_formula():
    p = np.array([0.2, 0.9, 0.0001])
    assert Power(0.92).advance(p)[-1] == pytest.approx(np.log(0.92 * p ** (0.92 - 1)).sum())


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


@pytest.mark.parametrize("rows", [0, 1, 5, 30, 500, 3_000, 100_000])
@pytest.mark.parametrize("ratio", [0, 1e-3, 0.3, 0.7, 0.8, 0.95, 0.99, 1, 1.01, 1.1, 3])
def test_the_mixture_is_its_integral(rows, ratio):
    """Against adaptive quadrature in pieces around the peak."""
    S = ratio * max(rows, 1)
    peak = min(1.0, rows / S) if S else 1.0
    exponent = lambda e: (rows * math.log(e) if rows else 0.0) + (1 - e) * S  # noqa: E731
    top = exponent(peak) if peak else S
    width = max(peak / math.sqrt(rows + 1), 1e-9)
    steps = width * np.geomspace(0.01, 50, 40)
    edges = np.unique(np.clip([0, 1, peak, *(peak - steps), *(peak + steps)], 0, 1))
    pieces = [
        quad(lambda e: math.exp(exponent(e) - top) if e else float(not rows), a, b, epsrel=1e-11)[0]
        for a, b in zip(edges, edges[1:], strict=False)
    ]
    expected = top + math.log(math.fsum(pieces))
    got = log_mixture(np.array([rows]), np.array([float(S)]))[0]
    assert got == pytest.approx(expected, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("name", MARTINGALES)
def test_batches_do_not_matter(name):
    rng = np.random.default_rng(3)
    cad, X = calibrated(rng.normal(size=100)), rng.normal(-1, size=(400, 1))
    whole = ExchangeabilityMonitor(cad, martingale=name, random_state=0)
    report = whole.update(X)
    pieces = ExchangeabilityMonitor(cad, martingale=name, random_state=0)
    parts = [pieces.update(part) for part in np.split(X, [1, 2, 50, 333])]
    joined = np.concatenate([part.log10_evidence for part in parts])
    assert np.array_equal(joined, report.log10_evidence)
    assert pieces.alarm_row == whole.alarm_row == report.alarm_row is not None
    assert pieces.log10_evidence == whole.log10_evidence == joined[-1]
    assert np.array_equal(pieces.evidence.log10, whole.evidence.log10)
    other = ExchangeabilityMonitor(cad, martingale=name, random_state=1)
    assert not np.array_equal(other.update(X).p_values, report.p_values)


# --- alarms --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_ville_says():
    """Many normal streams of a small calibration set; each martingale by itself."""
    alpha, streams = 0.2, 800
    rng = np.random.default_rng(4)
    alarms = dict.fromkeys(MARTINGALES, 0)
    for stream in range(streams):
        cad, X = calibrated(rng.normal(size=50)), rng.normal(size=(300, 1))
        for name in MARTINGALES:
            monitor = ExchangeabilityMonitor(cad, alpha, name, random_state=stream)
            alarms[name] += monitor.update(X).alarm
    for name, count in alarms.items():
        assert count <= binom.ppf(1 - FAILURE, streams, alpha), name
        assert count > 0.1 * alpha * streams, name  # the bound is not idle: rates are 0.07 to 0.14


def test_a_fixed_calibration_set_would_inflate_the_rate():
    """Why p-values of the detector are not taken: they are uniform each, and not independent.

    A rate of 0.05 is asked for, and 0.24 is what such streams have (8,000 of them were tried).
    """
    alpha, streams, alarms = 0.05, 600, 0
    rng = np.random.default_rng(5)
    for _ in range(streams):
        c, x, u = np.sort(rng.normal(size=100)), rng.normal(size=2_000), 1 - rng.random(2_000)
        p = (np.searchsorted(c, x) + u) / 101
        alarms += Mixture().advance(p).max() >= -math.log(alpha)
    assert alarms > 3 * alpha * streams


@pytest.mark.parametrize("name", MARTINGALES)
def test_a_shift_is_noticed_soon(name):
    rng = np.random.default_rng(6)
    cad = ConformalDetector("knn", "split", random_state=0).fit(rng.normal(size=(1_000, 2)))
    monitor = ExchangeabilityMonitor(cad, 0.01, name, random_state=0)
    normal = monitor.update(rng.normal(size=(300, 2)))
    assert not normal.alarm
    assert normal.alarm_row is None
    shifted = monitor.update(rng.normal(1, 1, size=(500, 2)))
    assert shifted.alarm
    assert shifted.log10_evidence[shifted.alarm_row - 300] >= 2
    assert (shifted.log10_evidence[: shifted.alarm_row - 300] < 2).all()
    back = monitor.update(rng.normal(size=(50, 2)))
    assert back.alarm_row == shifted.alarm_row == monitor.alarm_row  # the first one stays


def test_only_the_simple_jumper_notices_rows_that_are_less_unusual():
    rng = np.random.default_rng(7)
    cad, X = calibrated(rng.normal(size=500)), rng.normal(1, 1, size=(500, 1))
    alarms = {
        name: ExchangeabilityMonitor(cad, 0.01, name, random_state=0).update(X).alarm
        for name in MARTINGALES
    }
    assert alarms == {"simple-jumper": True, "mixture": False, "power": False}


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
    with pytest.raises(ValueError, match="Did you mean 'power'"):
        ExchangeabilityMonitor(cad, martingale="powr")
    with pytest.raises(ValueError, match="alpha must be a number strictly between 0 and 1"):
        ExchangeabilityMonitor(cad, alpha=1.0)
    with pytest.raises(ValueError, match="no rows"):
        ExchangeabilityMonitor(cad).update(np.empty((0, 1)))
    with pytest.raises(ValueError, match="random_state"):
        ExchangeabilityMonitor(cad, random_state="x")


# --- what survives a crash -----------------------------------------------------------------------


@pytest.mark.parametrize("name", MARTINGALES)
def test_resuming_anywhere_gives_the_same_evidence(name, tmp_path):
    rng = np.random.default_rng(8)
    cad = calibrated(rng.normal(size=60))
    parts = np.split(rng.normal(-0.3, size=(200, 1)).round(1), [3, 4, 90, 150])
    plain = ExchangeabilityMonitor(cad, 0.1, name, random_state=0)
    whole = [plain.update(part) for part in parts]
    saved, journal = tmp_path / "state.json", tmp_path / "journal"
    monitor = ExchangeabilityMonitor(cad, 0.1, name, random_state=0)
    ExchangeabilityMonitor(cad, 0.1, name, random_state=0, journal=journal).close()
    for number, part in enumerate(parts):
        monitor.save(saved)
        monitor = ExchangeabilityMonitor.resume(cad, saved)
        journaled = ExchangeabilityMonitor.resume(cad, journal)
        for one in (monitor, journaled):
            report = one.update(part, batch=number)
            again = one.update(part, batch=number)
            for got in (report, again):
                assert np.array_equal(got.p_values, whole[number].p_values)
                assert np.array_equal(got.log10_evidence, whole[number].log10_evidence)
                assert got.alarm_row == whole[number].alarm_row
                assert (got.batch, got.row, got.alpha) == (number, whole[number].row, 0.1)
        first = journaled.update(parts[0], batch=0)
        assert np.array_equal(first.log10_evidence, whole[0].log10_evidence)
        assert first.alarm_row == whole[0].alarm_row
        journaled.close()
    assert monitor.alarm_row == plain.alarm_row
    assert np.array_equal(monitor.evidence.log10, plain.evidence.log10)
    json.loads(saved.read_text())
    with pytest.raises(ValueError, match="with other rows"):
        monitor.update(parts[-1] + 1, batch=4)
    other = calibrated(rng.normal(size=60))
    with pytest.raises(ValueError, match="another calibration"):
        ExchangeabilityMonitor.resume(other, saved)


# --- the course of the evidence ------------------------------------------------------------------


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.sampled_from([2, 8, 16]))
def test_no_peak_is_lost(sizes, most):
    path = np.random.default_rng(len(sizes)).normal(size=sum(sizes))
    history = EvidenceHistory(most)
    for part in np.split(path, np.cumsum(sizes)[:-1]):
        history.extend(part)
    kept = history.evidence
    assert len(kept.row) <= most
    assert kept.every == 1 or len(path) > most * kept.every // 2
    for row, highest in zip(kept.row, kept.log10, strict=True):
        assert highest == path[row : row + kept.every].max()


def test_the_chart_shows_evidence_limit_and_alarm():
    pytest.importorskip("altair", reason="needs Altair: pip install 'reconform[stream]'")
    rng = np.random.default_rng(9)
    cad = calibrated(rng.normal(size=100))
    monitor = ExchangeabilityMonitor(cad, 0.01, random_state=0)
    monitor.update(rng.normal(size=(50, 1)))
    calm = chart(monitor).to_dict()
    assert len(calm["layer"]) == 2
    assert calm["title"]["text"].startswith("No alarm in 50 rows")
    assert [point["row"] for point in calm["layer"][0]["data"]["values"]] == list(range(50))
    assert calm["layer"][1]["data"]["values"] == [{"log10": 2.0}]
    monitor.update(rng.normal(-2, 1, size=(5_000, 1)))
    alarmed = chart(monitor).to_dict()
    assert alarmed["title"]["text"].startswith(f"Alarm at row {monitor.alarm_row} of 5,050")
    assert alarmed["layer"][2]["data"]["values"] == [{"row": monitor.alarm_row}]
    assert len(alarmed["layer"][0]["data"]["values"]) <= 2_048
    assert "highest of every 4 rows" in alarmed["layer"][0]["encoding"]["y"]["title"]


def test_without_altair_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    monitor = ExchangeabilityMonitor(calibrated(np.arange(9.0)))
    with pytest.raises(ImportError, match=r"reconform\[stream\]"):
        chart(monitor)
