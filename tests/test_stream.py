"""Decisions as rows arrive: levels, error control, warnings, and crashes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy.stats import binom

from reconform import ConformalDetector
from reconform.errors import ReconformError
from reconform.statistics.thresholds import conditional_table
from reconform.stream import (
    ChangeMonitor,
    ExchangeabilityMonitor,
    FalseAlarmBudget,
    MicroBatches,
    OnlineDiscoveries,
    OutlookWarning,
)
from reconform.stream.procedures import ONLINE, PROCEDURES, make_test, next_level

pytest.importorskip("online_fdr", reason="needs online-fdr: pip install 'reconform[stream]'")

pytestmark = pytest.mark.filterwarnings("ignore::reconform.stream.OutlookWarning")

# A correct program fails each statistical test below with at most this probability.
FAILURE = 1e-4


class FirstColumn:
    """A model that was fitted elsewhere: the score of a row is its first column."""

    fitted_ = True

    def fit(self, X):
        return self

    def score_samples(self, X):
        return X[:, 0]


def calibrated(rows):
    return ConformalDetector(FirstColumn(), "prefit").fit(np.reshape(rows, (-1, 1)))


@pytest.fixture(scope="module")
def cad():
    return calibrated(np.random.default_rng(0).uniform(size=30_000))


def batches_of(seed, sizes=(1, 7, 30, 1, 12, 20)):
    """Rows of which a third are anomalous, in batches."""
    rng = np.random.default_rng(seed)
    return [np.where(rng.random((m, 1)) < 0.3, -1.0, rng.uniform(size=(m, 1))) for m in sizes]


def assert_same(one, other):
    assert (one.batch, one.row) == (other.batch, other.row)
    for name in ("mask", "p_values", "levels"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


# --- the levels are those of the papers ----------------------------------------------------------


def gamma_log(j):
    return 0.07720838 * math.log(max(j, 2)) / (j * math.exp(math.sqrt(math.log(j))))


def gamma_power(j):
    return 0.4374901658 / j**1.6


def lond_level(alpha, p, found):
    """Javanmard and Montanari 2018, LOND."""
    return alpha * gamma_log(len(p) + 1) * (sum(found) + 1)


def lord_level(alpha, p, found):
    """Ramdas et al. 2017, LORD++, with w_0 = alpha / 2."""
    t, tau = len(p) + 1, [i + 1 for i, one in enumerate(found) if one]
    rest = sum(gamma_log(t - i) for i in tau[1:])
    first = gamma_log(t - tau[0]) if tau else 0.0
    return alpha / 2 * gamma_log(t) + alpha / 2 * first + alpha * rest


def saffron_level(alpha, p, found, share=0.5):
    """Ramdas et al. 2018, SAFFRON with a constant lambda and w_0 = alpha / 2."""
    t, tau = len(p) + 1, [i + 1 for i, one in enumerate(found) if one]
    since = lambda i: t - i - sum(q <= share for q in p[i:])  # noqa: E731
    first = gamma_power(since(tau[0])) if tau else 0.0
    rest = sum(gamma_power(since(i)) for i in tau[1:])
    raw = alpha / 2 * gamma_power(since(0)) + alpha / 2 * first + alpha * rest
    return min(share, (1 - share) * raw)


@pytest.mark.parametrize(
    ("procedure", "formula"),
    [("lond", lond_level), ("lord", lord_level), ("saffron", saffron_level)],
)
def test_levels_are_those_of_the_papers(procedure, formula):
    rng = np.random.default_rng(1)
    test = make_test(procedure, 0.2)
    p, found = [], []
    for value in np.where(rng.random(150) < 0.3, 1e-6, rng.random(150)).tolist():
        expected = formula(0.2, p, found)
        assert next_level(test) == pytest.approx(expected, rel=1e-9)
        found.append(test.test_one(value))
        p.append(value)
    assert 20 < sum(found) < 80


@pytest.mark.parametrize("procedure", ONLINE)
def test_the_budget_adds_up_to_no_more_than_the_level(procedure):
    """The γ that a procedure divides its level by; the tail by an integral from above."""
    test, many = make_test(procedure, 0.1), 100_000
    if procedure in ("lond", "lord"):
        v = math.sqrt(math.log(many))
        tail = 0.07720838 * 2 * math.exp(-v) * (v**3 + 3 * v**2 + 6 * v + 6)
        total = sum(test.seq.calc_gamma(j, alpha=1.0) for j in range(1, many + 1)) + tail
        assert total <= 1
    else:
        tail = 0.4374901658 * many**-0.6 / 0.6
        total = math.fsum(test.seq.calc_gamma(j) for j in range(1, many + 1)) + tail
        # The sum alone is 1 + 6e-11, so the procedure is given a little less than 0.1 to spend.
        assert total * test.alpha0 <= 0.1 * (1 + 1e-7)
        assert (1 + 6e-11) * test.alpha0 <= 0.1


@pytest.mark.parametrize("procedure", ONLINE)
def test_looking_ahead_is_right_and_spends_nothing(procedure):
    rng = np.random.default_rng(2)
    asked, silent = make_test(procedure, 0.1), make_test(procedure, 0.1)
    for p in np.where(rng.random(200) < 0.2, 1e-7, rng.random(200)).tolist():
        ahead = next_level(asked)
        assert ahead == next_level(asked)
        assert asked.test_one(p) == silent.test_one(p)
        assert asked.last_test_level == silent.last_test_level == ahead
    assert asked.snapshot() == silent.snapshot()


@pytest.mark.parametrize("procedure", ONLINE)
def test_levels_rise_only_with_discoveries(procedure):
    """What the warning says: once nothing can be found, nothing will be."""
    rng = np.random.default_rng(3)
    test = make_test(procedure, 0.1)
    for p in np.where(rng.random(300) < 0.2, 1e-7, rng.random(300)).tolist():
        before, found = next_level(test), test.test_one(p)
        assert found or next_level(test) <= before


# --- decisions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("procedure", ONLINE)
def test_batches_do_not_matter(cad, procedure):
    parts = batches_of(4)
    whole = OnlineDiscoveries(cad, procedure=procedure).update(np.concatenate(parts))
    online = OnlineDiscoveries(cad, procedure=procedure)
    pieces = [online.update(part) for part in parts]
    for name in ("mask", "p_values", "levels"):
        joined = np.concatenate([getattr(piece, name) for piece in pieces])
        assert np.array_equal(joined, getattr(whole, name))
    assert [piece.row for piece in pieces] == [0, 1, 8, 38, 39, 51]
    assert online.rows == 71
    assert online.discoveries == whole.count > 5
    assert np.array_equal(whole.mask, whole.p_values <= whole.levels)


@pytest.mark.parametrize("conditional", [None, "simes"])
def test_batch_bh_is_discover_on_every_batch(cad, conditional):
    online = OnlineDiscoveries(cad, fdr=0.2, procedure="batch-bh", conditional=conditional)
    for part in batches_of(5):
        decided, found = online.update(part), cad.discover(part, fdr=0.2, conditional=conditional)
        assert np.array_equal(decided.mask, found.mask)
        assert np.array_equal(decided.p_values, found.p_values)
        assert (decided.levels == found.p_threshold).all()


@pytest.mark.filterwarnings("ignore:nothing can be found")
def test_p_values_are_the_detectors(cad):
    X = batches_of(6)[2]
    plain = OnlineDiscoveries(cad).update(X)
    assert np.array_equal(plain.p_values, cad.p_values(X))
    careful = OnlineDiscoveries(cad, procedure="saffron", conditional="dkw", confidence=0.8)
    expected = cad.p_values(X, conditional="dkw", confidence=0.8)
    assert np.array_equal(careful.update(X).p_values, expected)


@pytest.mark.parametrize(
    ("procedure", "method", "conditional", "said"),
    [
        ("lond", "split", None, "at most 0.1 .* proven for LOND on split"),
        ("lond", "jackknife+", None, "measured, not proven, for LOND on jackknife"),
        ("lord", "split", None, "measured, not proven, .*`conditional='simes'` it is proven"),
        ("lord", "split", "simes", "proven for LORD on simes .* share 0.9 of calibration sets"),
        ("saffron", "split", "montecarlo", "proven for SAFFRON on montecarlo"),
        ("saffron", "split", "asymptotic", "only approximately"),
        ("addis", "split", None, "measured, not proven, for ADDIS on split: .*each other.$"),
        ("addis", "split", "simes", "not proven, for ADDIS: .* uniformly conservative"),
        ("batch-bh", "split", None, "proven for BH on split, .* each batch, not for all batches"),
        ("batch-bh", "jab+", None, "measured, not proven, for BH on jab.* each batch"),
    ],
)
def test_what_is_proven_is_said(procedure, method, conditional, said):
    X = np.random.default_rng(0).normal(size=(60, 2))
    cad = ConformalDetector("knn", method, random_state=0).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        online = OnlineDiscoveries(cad, procedure=procedure, conditional=conditional)
        assert re.search(said, online.guarantee), online.guarantee
        assert online.update(X[:2]).guarantee == online.guarantee


def test_addis_is_not_proven_on_conditional_p_values():
    """Its proof needs P(p <= xτ | p <= τ) <= x; here is a calibration set that lacks it."""
    n, tau = 1_000, 0.5
    table = conditional_table(n, "simes", 0.9)[1:-1]
    # U_(r), the true level of rank r: as on average, but for the first, which is at its bound.
    level = np.maximum(np.arange(1, n + 1) / (n + 1), table[0])
    assert (level <= table).all()  # so the conditional p-values are valid, at every level at once
    x = table[0] / tau
    within, discarded_from = level[0], level[np.searchsorted(table, tau, "right") - 1]
    assert within / discarded_from > 1.3 * x


@pytest.mark.filterwarnings("ignore:(nothing|in a batch)")
@pytest.mark.parametrize("procedure", ["lond", "batch-bh"])
@pytest.mark.parametrize(("method", "said"), [("auto", "full"), ("split", "split")])
def test_a_choice_of_detectors_judges_rows_by_the_first(procedure, method, said, tmp_path):
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(300, 2)), rng.normal(size=(40, 2))
    new[::8] += 9
    several = ConformalDetector(["knn", "mahalanobis"], method, random_state=0).fit(X)
    first = ConformalDetector("knn", said, random_state=0).fit(X)
    path = tmp_path / "journal"
    streams = [
        OnlineDiscoveries(several, 0.2, procedure, journal=path),
        OnlineDiscoveries(first, 0.2, procedure),
    ]
    for rows in np.split(new, 4):
        assert_same(*(stream.update(rows) for stream in streams))
    assert np.array_equal(several.p_values(new), first.p_values(new))
    assert streams[0].guarantee == streams[1].guarantee  # not that of a list of discover
    streams[0].close()
    again = OnlineDiscoveries.resume(several, path)
    assert_same(again.update(new[30:], batch=3), streams[1].update(new[30:], batch=3))


@pytest.mark.filterwarnings("ignore:nothing can be found")
def test_the_default_detector_judges_row_by_row():
    rng = np.random.default_rng(0)
    cad = ConformalDetector(random_state=0).fit(rng.normal(size=(120, 2)))
    new = rng.normal(size=(6, 2))
    whole, single = OnlineDiscoveries(cad), OnlineDiscoveries(cad)
    p_values = np.concatenate([single.update(row[None]).p_values for row in new])
    assert np.array_equal(whole.update(new).p_values, p_values)
    assert np.array_equal(cad.p_values(new), p_values)


def test_bad_arguments_get_a_sentence(cad):
    with pytest.raises(ValueError, match=r"procedure must be one of .*Did you mean 'lond'"):
        OnlineDiscoveries(cad, procedure="lund")
    with pytest.raises(ValueError, match="fdr must be a number strictly between 0 and 1"):
        OnlineDiscoveries(cad, fdr=10)
    with pytest.raises(ValueError, match="no rows"):
        OnlineDiscoveries(cad).update(np.empty((0, 1)))
    X = np.random.default_rng(0).normal(size=(40, 1))
    smoothed = ConformalDetector("knn", "split", ties="randomized", random_state=0).fit(X)
    with pytest.raises(ValueError, match="ties='conservative'"):
        OnlineDiscoveries(smoothed)
    resampled = ConformalDetector("knn", "cv+", random_state=0).fit(X)
    with pytest.raises(ValueError, match="use `method='split'` or 'prefit'"):
        OnlineDiscoveries(resampled, procedure="saffron", conditional="simes")


@pytest.mark.parametrize("procedure", PROCEDURES)
def test_without_the_library_the_extra_is_named(cad, procedure, monkeypatch):
    monkeypatch.setitem(sys.modules, "online_fdr", None)
    if procedure == "batch-bh":
        assert OnlineDiscoveries(cad, procedure=procedure).update([[-1.0]]).mask.all()
        return
    with pytest.raises(ImportError, match=r"reconform\[stream\]"):
        OnlineDiscoveries(cad, procedure=procedure)


# --- resolution ----------------------------------------------------------------------------------


@pytest.mark.parametrize("procedure", ONLINE)
def test_the_outlook_says_when_nothing_can_be_found_any_more(procedure):
    """For LOND and LORD exactly; for the others within a factor of 2 of what normal rows need."""
    cad = calibrated(np.linspace(0, 1, 20_000))
    with pytest.warns(OutlookWarning, match="no p-value can be small enough") as caught:
        online = OnlineDiscoveries(cad, procedure=procedure)
    assert caught[0].filename == __file__
    assert str(caught[0].message) == online.outlook
    said = int(re.search(r"after (?:about )?([\d,]+) rows", online.outlook)[1].replace(",", ""))
    rng = np.random.default_rng(0)
    while next_level(online._test) >= 1 / 20_001:
        online.update(rng.uniform(0.05, 1, size=(1, 1)))
    if procedure in ("lond", "lord"):
        assert online.rows == said
    else:
        assert said / 2 <= online.rows <= 2 * said
    assert online.discoveries == 0


def test_a_long_outlook_is_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        far = OnlineDiscoveries(calibrated(np.linspace(0, 1, 300_000)), fdr=0.2, procedure="lond")
        batches = OnlineDiscoveries(calibrated(np.linspace(0, 1, 999)), procedure="batch-bh")
    assert int(re.search(r"after ([\d,]+) rows", far.outlook)[1].replace(",", "")) > 1_000
    assert "m is at most 100" in batches.outlook


def rows_asked_for(message):
    return int(re.search(r"What helps: \D*([\d,]+) cal", message)[1].replace(",", ""))


@pytest.mark.parametrize("procedure", ["lond", "lord"])
def test_warns_once_when_nothing_can_be_found_any_more(procedure):
    online = OnlineDiscoveries(calibrated(np.linspace(0, 1, 2_000)), procedure=procedure)
    X = np.full((1, 1), 0.5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        while not caught:
            assert next_level(online._test) >= 1 / 2_001
            online.update(X)
        level = next_level(online._test)
        assert level < 1 / 2_001
        dead = online.rows
        for _ in range(20):
            online.update(X)
    assert [one.category for one in caught] == [UserWarning]
    assert caught[0].filename == __file__
    message = str(caught[0].message)
    assert f"nothing can be found from here on: the next row ({dead}) is" in message
    needed = rows_asked_for(message)
    assert 1 / (needed + 1) <= level < 1 / needed
    # the most unusual of all rows is not found now, and would be with so many rows
    assert not online.update([[-1.0]]).mask.any()
    more = OnlineDiscoveries(calibrated(np.linspace(0, 1, needed)), procedure=procedure)
    assert more.update([[0.5]] * dead + [[-1.0]]).mask.tolist() == [False] * dead + [True]


def test_warns_at_once_where_the_first_row_cannot_be_found():
    cad = ConformalDetector("knn", "split", random_state=0).fit(np.arange(200.0).reshape(-1, 2))
    with pytest.warns(UserWarning, match=r"the next row \(0\) .* that is 372 reference rows"):
        OnlineDiscoveries(cad, fdr=0.1)


@pytest.mark.parametrize("kind", ["simes", "dkw"])
def test_rows_needed_with_conditional_p_values(kind):
    n = 300 if kind == "simes" else 3_000
    with pytest.warns(UserWarning, match="about") as caught:
        online = OnlineDiscoveries(calibrated(np.linspace(0, 1, n)), conditional=kind)
    level = next_level(online._test)
    assert conditional_table(n, kind)[1] > level
    needed = rows_asked_for(str(caught[0].message))
    assert conditional_table(int(1.02 * needed), kind)[1] <= level
    assert conditional_table(int(0.98 * needed), kind)[1] > level


def test_batches_too_large_for_one_anomaly_are_named():
    online = OnlineDiscoveries(calibrated(np.linspace(0, 1, 99)), fdr=0.1, procedure="batch-bh")
    rows = np.linspace(0.2, 1, 11).reshape(-1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        online.update(rows[:10])  # 10 rows: 0.1 / 10 is 1 / 100 exactly
    with pytest.warns(UserWarning, match=r"batch of 11 rows fewer than 2 .* at least 109 cal"):
        online.update(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        online.update(rows)
        online.update(rows[:1])
    with pytest.warns(UserWarning, match="batch of 11 rows"):  # it was possible in between
        online.update(rows)


# --- error control -------------------------------------------------------------------------------


@pytest.mark.slow
def test_lond_on_split_keeps_the_rate():
    """Null streams: P(any discovery) is at most the level times the γ of the rows tested.

    The bound is not far off (0.118 of 0.142 here: rows are nearly independent, discoveries rare),
    so this would notice levels that are twice as large as they may be.
    """
    fdr, rows, streams = 0.9, 30, 2_000
    spent = fdr * sum(gamma_log(j) for j in range(1, rows + 1))
    found = 0
    rng = np.random.default_rng(7)
    for _ in range(streams):
        cad = calibrated(rng.uniform(size=999))
        found += OnlineDiscoveries(cad, fdr=fdr).update(rng.uniform(size=(rows, 1))).count > 0
    assert binom.ppf(FAILURE, streams, 0.7 * spent) < found
    assert found <= binom.ppf(1 - FAILURE, streams, spent)


@pytest.mark.filterwarnings("ignore:nothing can be found")
@pytest.mark.parametrize("procedure", ["lord", "saffron"])
def test_conditional_p_values_keep_the_rate(procedure):
    """With anomalies, LORD and SAFFRON on simes; Hoeffding's bound on the mean of proportions."""
    fdr, streams, confidence = 0.3, 600, 0.9
    rng = np.random.default_rng(8)
    proportions, found = [], 0
    for _ in range(streams):
        cad = calibrated(rng.uniform(size=1_000))
        anomalous = rng.random(60) < 0.3
        X = np.where(anomalous, rng.uniform(-1, 0.001, size=60), rng.uniform(size=60))
        online = OnlineDiscoveries(cad, fdr, procedure, conditional="simes", confidence=confidence)
        mask = online.update(X[:, None]).mask
        proportions.append((mask & ~anomalous).sum() / max(1, mask.sum()))
        found += mask.sum()
    assert found > streams
    slack = math.sqrt(math.log(1 / FAILURE) / (2 * streams))
    assert np.mean(proportions) <= fdr + (1 - confidence) + slack


# --- a crash loses nothing and spends nothing twice ----------------------------------------------


@pytest.mark.parametrize("conditional", [None, "simes"])
@pytest.mark.parametrize("procedure", PROCEDURES)
def test_resuming_anywhere_gives_the_same_decisions(cad, procedure, conditional, tmp_path):
    parts = batches_of(9)
    make = lambda: OnlineDiscoveries(cad, 0.1, procedure, conditional=conditional)  # noqa: E731
    online = make()
    whole = [online.update(part) for part in parts]
    path = tmp_path / "state.json"
    online = make()
    for part, expected in zip(parts, whole, strict=True):
        online.save(path)
        online = OnlineDiscoveries.resume(cad, path)
        assert_same(online.update(part), expected)
    online.save(path)
    resumed = OnlineDiscoveries.resume(cad, path)
    assert (resumed.rows, resumed.batches, resumed.discoveries) == (71, 6, online.discoveries)
    assert resumed.guarantee == online.guarantee
    assert_same(resumed.update(parts[-1], batch=5), whole[-1])  # its result may have got lost
    json.loads(path.read_text())
    assert [one.name for one in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize("procedure", ["lond", "saffron"])
def test_a_journal_cut_off_at_any_byte_can_be_resumed(cad, procedure, tmp_path):
    """Whatever of the file a crash has left, the stream goes on as if there had been none."""
    parts = batches_of(10, sizes=(2, 1, 2))
    path, cut = tmp_path / "whole", tmp_path / "cut"
    online = OnlineDiscoveries(cad, procedure=procedure, journal=path)
    whole = [online.update(part) for part in parts]
    online.close()
    raw = path.read_bytes()
    head = raw.index(b"\n") + 1
    ends = [i + j for i, byte in enumerate(raw, 1) if byte == 10 for j in (-1, 0, 1)]
    sizes = {*range(head, len(raw), 5), *ends[2:-1]}
    for size in sorted(sizes):
        cut.write_bytes(raw[:size])
        online = OnlineDiscoveries.resume(cad, cut)
        assert online.batches == raw[:size].count(b"\n") - 1
        for number in range(len(parts)):  # everything is sent once more
            assert_same(online.update(parts[number], batch=number), whole[number])
        online.close()
        assert cut.read_bytes() == raw
    for size in (0, head // 2, head - 1):
        cut.write_bytes(raw[:size])
        with pytest.raises(ValueError, match="no whole first line"):
            OnlineDiscoveries.resume(cad, cut)


def test_batches_are_decided_once(cad, tmp_path):
    parts = batches_of(11)
    online = OnlineDiscoveries(cad)
    first = online.update(parts[1], batch=0)
    assert_same(online.update(parts[1], batch=0), first)
    second = online.update(parts[2])
    assert (second.batch, online.rows) == (1, 37)
    with pytest.raises(ValueError, match="batch=3 skips batches: the next one is 2"):
        online.update(parts[0], batch=3)
    with pytest.raises(ValueError, match="batch=1 was decided before, with other rows"):
        online.update(parts[2][::-1], batch=1)
    with pytest.raises(ValueError, match=r"batch=0 was decided before, .*not kept.* journal"):
        online.update(parts[1], batch=0)
    assert online.rows == 37
    journal = tmp_path / "j"
    online = OnlineDiscoveries(cad, journal=journal)
    whole = [online.update(part) for part in parts]
    for number in (0, 3, 5, 1):
        assert_same(online.update(parts[number], batch=number), whole[number])
    assert online.rows == 71


def test_warnings_made_errors_spend_nothing_twice():
    online = OnlineDiscoveries(calibrated(np.linspace(0, 1, 2_000)))
    X = np.full((30, 1), 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="nothing can be found"):
            online.update(X, batch=0)
    with pytest.warns(UserWarning, match="nothing can be found"):  # nobody has heard it yet
        assert len(online.update(X, batch=0)) == online.rows == 30
    assert "30 rows in 1 batches" in repr(online)


def test_a_journal_made_short_goes_on(cad, tmp_path):
    parts = batches_of(12)
    path = tmp_path / "journal"
    online = OnlineDiscoveries(cad, journal=path)
    plain = OnlineDiscoveries(cad)
    whole = [plain.update(part) for part in parts]
    for part in parts[:3]:
        online.update(part)
    online.save(tmp_path / "copy")
    online.save(path)
    assert path.read_bytes().count(b"\n") == 1
    assert_same(online.update(parts[3]), whole[3])
    online.close()
    with pytest.raises(RuntimeError, match=r"was closed; go on with OnlineDiscoveries\.resume"):
        online.update(parts[4])
    online = OnlineDiscoveries.resume(cad, path)
    assert_same(online.update(parts[4], batch=4), whole[4])
    assert_same(online.update(parts[3], batch=3), whole[3])
    with pytest.raises(ValueError, match="not kept"):
        online.update(parts[0], batch=0)
    # a saved state is not written to, unless a journal is asked for
    other = OnlineDiscoveries.resume(cad, tmp_path / "copy", journal=tmp_path / "second")
    assert_same(other.update(parts[3]), whole[3])
    assert (tmp_path / "copy").read_bytes().count(b"\n") == 1
    assert (tmp_path / "second").read_bytes().count(b"\n") == 2
    with pytest.raises(ValueError, match="is a journal already"):
        OnlineDiscoveries.resume(cad, path, journal=tmp_path / "third")


def test_one_journal_one_stream(cad, tmp_path):
    path = tmp_path / "journal"
    online = OnlineDiscoveries(cad, journal=path)
    with pytest.raises(FileExistsError, match="resume from it"):
        OnlineDiscoveries(cad, journal=path)
    if sys.platform != "win32":
        with pytest.raises(ReconformError, match="is in use"):
            OnlineDiscoveries.resume(cad, path)
    online.close()
    OnlineDiscoveries.resume(cad, path).close()


def test_states_of_other_things_are_refused(cad, tmp_path):
    path = tmp_path / "state"
    OnlineDiscoveries(cad).save(path)
    other = calibrated(np.random.default_rng(1).uniform(size=30_000))
    with pytest.raises(ValueError, match="belongs to another calibration"):
        OnlineDiscoveries.resume(other, path)
    with pytest.raises(ValueError, match="must hold a state of ExchangeabilityMonitor"):
        ExchangeabilityMonitor.resume(cad, path)
    path.write_text('{"hello": "world"}\n')
    with pytest.raises(ValueError, match=r"line 1: .*damaged or no line"):
        OnlineDiscoveries.resume(cad, path)
    with pytest.raises(FileNotFoundError):
        OnlineDiscoveries.resume(cad, tmp_path / "nothing")


def test_damage_is_noticed(cad, tmp_path):
    parts = batches_of(13)
    path = tmp_path / "journal"
    online = OnlineDiscoveries(cad, journal=path)
    for part in parts:
        online.update(part)
    online.close()
    lines = path.read_bytes().splitlines(keepends=True)
    wrongs = {
        "a digit": [*lines[:2], lines[2].replace(b"false", b"true", 1), *lines[3:]],
        "a line lost": [*lines[:2], *lines[3:]],
        "lines swapped": [*lines[:2], lines[3], lines[2], *lines[4:]],
        "zeros": [*lines[:2], bytes(len(lines[2]) - 1) + b"\n", *lines[3:]],
    }
    for name, wrong in wrongs.items():
        assert wrong != lines, name
        path.write_bytes(b"".join(wrong))
        with pytest.raises(ValueError, match=r"line 3: .*damaged"):
            OnlineDiscoveries.resume(cad, path)


def resealed(path, change):
    """Rewrite a journal as an attacker would: other contents, and all seals right."""
    contents = [json.loads(line)["content"] for line in path.read_text().splitlines()]
    change(contents)
    seal, lines = "", []
    for content in contents:
        text = json.dumps(content, sort_keys=True)
        seal = hashlib.sha256((seal + text).encode()).hexdigest()[:32]
        lines.append(json.dumps({"content": content, "seal": seal}) + "\n")
    path.write_text("".join(lines))


def put(*places, value):
    """A change of one value in a journal."""

    def change(contents):
        *way, last = places
        inside = contents
        for place in way:
            inside = inside[place]
        inside[last] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        put(0, "settings", "fdr", value="1e50000000"),  # hung
        put(0, "settings", "fdr", value="1/0"),
        put(0, "settings", "other", value=1),
        put(0, "settings", value=None),
        put(0, "state", value=None),
        put(0, "calibration", value=5),
        put(0, "rows", value="many"),
        put(0, "batches", value=10**400),
        put(0, "last", value=[]),
        put(0, value=[1, 2]),
        put(1, value=[1, 2]),
        put(1, "row", value=-1),
        put(1, "given", value=None),
        put(1, "given", 0, value="first"),
        put(1, "given", 0, value=10**30),
        put(1, "found", value=None),
    ],
)
@pytest.mark.parametrize("procedure", ["lond", "batch-bh"])
def test_journals_with_right_seals_and_wrong_contents(cad, change, procedure, tmp_path):
    path = tmp_path / "journal"
    online = OnlineDiscoveries(cad, procedure=procedure, journal=path)
    online.update(batches_of(13)[2])
    online.close()
    resealed(path, lambda contents: None)
    OnlineDiscoveries.resume(cad, path).close()
    resealed(path, change)
    with pytest.raises(ReconformError, match="journal"):
        OnlineDiscoveries.resume(cad, path)


# One of every kind of stream, and the times of its rows where it needs them.
KINDS = {
    "budget": lambda cad, **more: FalseAlarmBudget(cad, 100, 1_000, **more),
    "budget per day": lambda cad, **more: FalseAlarmBudget(cad, 9, "day", rate=0.01, **more),
    "windows": lambda cad, **more: MicroBatches(cad, 4, **more),
    "whole stream": lambda cad, **more: MicroBatches(cad, 4, scope="stream", **more),
    "seconds": lambda cad, **more: MicroBatches(cad, seconds=3, **more),
    "exchangeability": lambda cad, **more: ExchangeabilityMonitor(cad, random_state=0, **more),
    "power": lambda cad, **more: ExchangeabilityMonitor(
        cad, martingale="power", random_state=0, **more
    ),
    "mixture": lambda cad, **more: ExchangeabilityMonitor(
        cad, martingale="mixture", random_state=0, **more
    ),
    "changes": lambda cad, **more: ChangeMonitor(cad, 2, random_state=0, **more),
}
WRONG = [
    None, True, -1, 0, 1, 10**30, 0.5, -0.5, math.nan, math.inf, 1e308, "", "x", "1/3",
    [], [1], [[1, 2]], {}, {"a": 1},
]  # fmt: skip


def add(stream, X, start):
    """Add rows, one per second where the stream goes by time."""
    timed = isinstance(stream, MicroBatches) and stream.seconds is not None
    return stream.update(X, **({"times": start + np.arange(len(X))} if timed else {}))


def ways_into(node, way=()):
    """Every place of a journal; of long lists the first two."""
    inside = node.items() if isinstance(node, dict) else enumerate(node[:2])
    for key, value in inside:
        yield (*way, key)
        if isinstance(value, dict | list):
            yield from ways_into(value, (*way, key))


def wrong_contents(contents):
    """The contents of a journal with one place missing, or with another value there."""
    for *way, last in list(ways_into(contents)):
        for value in [*WRONG, "missing"]:
            changed = json.loads(json.dumps(contents))
            inside = changed
            for place in way:
                inside = inside[place]
            if value == "missing":
                del inside[last]
            else:
                inside[last] = value
            yield (*way, last, value), changed


@pytest.mark.parametrize("form", ["journal", "state"])
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_journal_claims_is_refused_or_works(kind, form, tmp_path):
    """Anyone can write right seals: one value after the other is another one."""
    rng = np.random.default_rng(0)
    cad, path = calibrated(rng.uniform(size=300)), tmp_path / "journal"
    first, second, later = (rng.uniform(size=(m, 1)) for m in (7, 3, 5))
    stream = KINDS[kind](cad, **({"journal": path} if form == "journal" else {}))
    add(stream, first, 100)
    add(stream, second, 110)
    if form == "state":
        stream.save(path)
    stream.close()
    contents = [json.loads(line)["content"] for line in path.read_text().splitlines()]
    refused = works = 0
    for what, wrong in wrong_contents(contents):
        resealed(path, lambda contents, wrong=wrong: contents.__setitem__(slice(None), wrong))
        try:
            resumed = type(stream).resume(cad, path)
        except ReconformError:
            refused += 1
            continue
        works += 1
        try:
            with contextlib.suppress(ReconformError):  # it is another batch now
                resumed.update(second, batch=1, **({"times": 110.0} if kind == "seconds" else {}))
            add(resumed, later, 1e6)
            if isinstance(resumed, MicroBatches):
                resumed.flush()
            if isinstance(resumed, ExchangeabilityMonitor | ChangeMonitor):
                assert resumed.headline
                assert resumed.evidence.log10.shape == (15,)
            else:
                told = [resumed.told(record) for record in resumed.history()]
                assert told or form == "state"
            resumed.close()
        except Exception as error:
            raise AssertionError(f"accepted, and then failed: {what}") from error
    assert refused > 200
    assert works


def test_another_version_that_decides_otherwise_is_noticed(cad, tmp_path, monkeypatch):
    path = tmp_path / "journal"
    online = OnlineDiscoveries(cad, journal=path)
    online.update(batches_of(14)[2])
    online.close()
    from online_fdr.core.utils.sequence import DefaultLondGammaSequence

    monkeypatch.setattr(DefaultLondGammaSequence, "calc_gamma", lambda self, j, alpha: alpha / 2**j)
    with pytest.raises(ValueError, match="batch 0 does not come out as it was recorded"):
        OnlineDiscoveries.resume(cad, path)


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_failing_disk_stops_the_stream(cad, where, tmp_path, monkeypatch):
    """The line may or may not be on the disk; either way nothing is spent twice."""
    parts = batches_of(15)
    plain = OnlineDiscoveries(cad)
    whole = [plain.update(part) for part in parts]
    path = tmp_path / "journal"
    online = OnlineDiscoveries(cad, journal=path)
    online.update(parts[0])

    def full(handle):
        if where == "before":
            os.ftruncate(handle, os.fstat(handle).st_size - 5)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            online.update(parts[1])
    for action in (lambda: online.update(parts[1]), lambda: online.save(tmp_path / "state")):
        with pytest.raises(RuntimeError, match=r"interrupted.*OnlineDiscoveries\.resume"):
            action()
    online.close()
    online = OnlineDiscoveries.resume(cad, path)
    assert online.batches == (1 if where == "before" else 2)
    for number, part in enumerate(parts):
        assert_same(online.update(part, batch=number), whole[number])


def test_a_state_that_cannot_be_written_leaves_the_old_one(cad, tmp_path, monkeypatch):
    path = tmp_path / "state"
    online = OnlineDiscoveries(cad)
    online.save(path)
    before = path.read_bytes()
    online.update([[-1.0]])

    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            online.save(path)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["state"]
    online.save(path)
    assert OnlineDiscoveries.resume(cad, path).rows == 1


KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
import numpy as np
from test_stream import batches_of, calibrated
from reconform.stream import OnlineDiscoveries

cad = calibrated(np.random.default_rng(0).uniform(size=30_000))
parts = batches_of(16, sizes=(2,) * 300)
journal, outbox = Path("journal"), Path("outbox")

def work():
    if journal.exists():
        online = OnlineDiscoveries.resume(cad, journal)
    else:
        online = OnlineDiscoveries(cad, procedure="saffron", journal=journal)
    # The receiver may have missed the batch before; whoever lost track sends some again.
    for number in range(max(0, online.batches - 2), len(parts)):
        decided = online.update(parts[number], batch=number)
        with outbox.open("a") as file:
            line = [number, decided.row, decided.mask.tolist(), decided.levels.tolist()]
            file.write(json.dumps(line) + chr(10))

chance, kills = random.Random(0), 0
while True:
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    time.sleep(chance.uniform(0, 0.03 * 1.05**kills))  # it gets done on a slow machine too
    try:
        os.kill(child, signal.SIGKILL)
    finally:
        status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status):
        print(kills)
        sys.exit(os.WEXITSTATUS(status))
    kills += 1
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork to be killed often")
def test_killed_at_random_instants(cad, tmp_path):
    code = KILLED.format(tests=os.path.dirname(__file__))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 5
    online = OnlineDiscoveries(cad, procedure="saffron")
    expected = [online.update(part) for part in batches_of(16, sizes=(2,) * 300)]
    delivered = set()
    for line in (tmp_path / "outbox").read_text().splitlines():
        try:
            number, row, mask, levels = json.loads(line)
        except ValueError:  # the outbox itself was cut off
            continue
        one = expected[number]
        assert (row, mask, levels) == (one.row, one.mask.tolist(), one.levels.tolist())
        delivered.add(number)
    assert delivered == set(range(300))
    resumed = OnlineDiscoveries.resume(cad, tmp_path / "journal")
    assert (resumed.rows, resumed.discoveries) == (600, online.discoveries)
    assert next_level(resumed._test) == next_level(online._test)
