from fractions import Fraction
from itertools import accumulate, combinations, product
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconform.statistics import bounds as fdp_bounds
from reconform.statistics.bounds import false_discovery_table, fdp_bound, null_envelope
from refusals import refused


def miss(envelope, n, nulls):
    """P(N(r) > E(r) for some r): orders of n + s scores, counted in integers.

    Between neighbouring calibration scores any number of test scores may lie; every way to place
    all s of them is equally likely.
    """
    ways = [1] + [0] * nulls
    for r in range(1, n + 2):
        ways = list(accumulate(ways))
        ways[int(envelope[r]) + 1 :] = [0] * (nulls - int(envelope[r]))
    return float(1 - Fraction(ways[nulls], comb(n + nulls, nulls)))


def ranks_of(calibration, test):
    return 1 + np.searchsorted(np.sort(calibration), test, side="right")


def test_the_count_of_orders_is_right():
    n, nulls = 3, 4
    envelope = np.array([0, 2, 3, 3, 4])
    worse = 0
    for places in combinations(range(n + nulls), nulls):
        calibration = np.setdiff1d(np.arange(n + nulls), places)
        below = [(ranks_of(calibration, places) <= r).sum() for r in range(n + 2)]
        worse += (below > envelope).any()
    assert miss(envelope, n, nulls) == pytest.approx(worse / comb(n + nulls, n), abs=1e-15)


SIZES = [(1, 1), (1, 40), (40, 1), (9, 9), (30, 200), (200, 30), (250, 250)]


@pytest.mark.parametrize(("n", "nulls"), SIZES)
def test_the_envelope_has_its_confidence(n, nulls):
    # Exact, but for the simulated critical value: it is too low with probability 1e-4 at most.
    for confidence in (0.5, 0.9, 0.99):
        envelope = null_envelope(n, nulls, confidence)
        assert (np.diff(envelope) >= 0).all()
        assert (envelope[0], envelope[-1]) == (0, nulls)
        assert miss(envelope, n, nulls) <= 1 - confidence + 1e-12


@pytest.mark.parametrize(("n", "nulls"), [(30, 200), (200, 30), (250, 250)])
def test_the_simulated_envelope_is_sharp(n, nulls):
    # A simulation leaves less than 0.7 δ with a probability far below 1e-4; the rest of the gap
    # is that counts are integers.
    assert miss(null_envelope(n, nulls, 0.9), n, nulls) > 0.07


@pytest.mark.parametrize(("n", "m"), [(60, 40), (12, 100)])
def test_fewer_normal_rows_have_lower_envelopes_that_hold(n, m):
    # Along the way down every curve has its confidence (simulation: 1e-4 each), for all numbers
    # of normal rows that it serves, and lies below the one before. (12 and 100 are an instance
    # where curves that do not know of each other cross.)
    risk = Fraction(1, 10)
    sizes = fdp_bounds._sizes(m)
    assert (sizes[0], sizes[-1]) == (m, 1)
    above = np.full(n + 2, m)
    for step, size in enumerate(sizes):
        envelope = fdp_bounds._envelope(n, m, step, risk, 0)
        assert (envelope <= above).all()
        served = range(sizes[step + 1] + 1 if step + 1 < len(sizes) else 1, size + 1)
        for nulls in served:
            assert miss(np.minimum(envelope, nulls), n, nulls) <= 0.1 + 1e-12
        above = envelope


@settings(max_examples=40)
@given(ranks=st.lists(st.one_of(st.just(1), st.integers(1, 9)), min_size=1, max_size=9))
def test_the_table_is_full_closed_testing(ranks):
    # A set of rows may be normal unless some N(r) among them is beyond the envelope of its size.
    n, m, risk = 8, len(ranks), Fraction(1, 2)
    sizes = fdp_bounds._sizes(m)
    envelopes = {}
    for size in range(1, m + 1):
        step = max(i for i, s in enumerate(sizes) if s >= size)
        envelopes[size] = fdp_bounds._envelope(n, m, step, risk, 0)
    expected = np.zeros(n + 2, dtype=int)
    for chosen in product([False, True], repeat=m):
        subset = np.bincount(np.array(ranks)[list(chosen)], minlength=n + 2).cumsum()
        if not any(chosen) or (subset <= envelopes[sum(chosen)]).all():
            expected = np.maximum(expected, subset)
    counts = np.bincount(ranks, minlength=n + 2)
    table = false_discovery_table(counts, 1 - risk)
    assert table.tolist() == expected.tolist()


def test_the_bound_is_close_to_the_truth_where_anomalies_are(rng):
    # Means over 50 batches; the gap is tens of standard errors wide.
    bounds = np.zeros(3)
    for _ in range(50):
        scores = rng.normal(size=2000)
        scores[1900:] -= 4
        ranks = ranks_of(scores[:1000], scores[1000:])
        bounds += fdp_bound(ranks, 1000, [0.005, 0.01, 0.05], 0.95) / 50
    assert (bounds < [0.2, 0.25, 0.5]).all()


@given(n=st.integers(1, 300), data=st.data())
@settings(max_examples=30)
def test_thresholds_compare_as_p_values_do(n, data):
    ranks = np.array(data.draw(st.lists(st.integers(1, n + 1), min_size=1, max_size=20)))
    p = ranks / (n + 1)
    limits = np.concatenate([p, np.nextafter(p, 0), [0.0, 1.0, 0.5, -1.0, 7.0]])
    table = false_discovery_table(np.bincount(ranks, minlength=n + 2), 0.9)
    bounds = fdp_bound(ranks, n, limits, 0.9)
    for limit, bound in zip(limits, bounds, strict=True):
        flagged = ranks[p <= limit]
        expected = table[flagged.max()] / len(flagged) if len(flagged) else 0.0
        # Between two ranks that occur the table does not change.
        assert bound == expected


def test_everything_normal_gives_no_false_comfort():
    rng = np.random.default_rng(3)
    scores = rng.normal(size=1000)
    bounds = fdp_bound(ranks_of(scores[:500], scores[500:]), 500, [0.01, 0.1, 0.5, 1.0])
    assert bounds.tolist() == [1.0, 1.0, 1.0, 1.0]


def test_one_threshold_and_no_rows():
    assert fdp_bound([1, 1, 5], 9, 0.1).shape == ()
    assert fdp_bound(np.empty(0, dtype=int), 9, [0.1, 1.0]).tolist() == [0.0, 0.0]
    assert false_discovery_table(np.zeros(11, dtype=int)).tolist() == [0] * 11


def test_the_same_seed_gives_the_same_envelope():
    first = null_envelope(300, 300, 0.9, seed=1)
    fdp_bounds._montecarlo.cache_clear()
    assert (first == null_envelope(300, 300, 0.9, seed=1)).all()


def test_bad_arguments():
    refused("ranks must be integers; got float64", fdp_bound, [0.1], 9, 0.1)
    refused(r"ranks must lie in 1 .. 10; got 0 .. 3", fdp_bound, [0, 3], 9, 0.1)
    refused("thresholds must be numbers; got NaN", fdp_bound, [1], 9, [np.nan])
    refused(r"confidence must be at most 0\.999", fdp_bound, [1], 9, 0.1, 0.9999)
    refused("counts must be integers", false_discovery_table, [0.0, 1.0, 2.0])
