from fractions import Fraction
from math import comb, inf

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconform.statistics.thresholds import rows_needed, score_threshold, tolerance_order
from refusals import refused

levels = st.fractions(Fraction(1, 50), Fraction(49, 50), max_denominator=50)


def tail(n, k, rate):
    """P(Bin(n, rate) <= k - 1), exactly."""
    return sum(comb(n, j) * rate**j * (1 - rate) ** (n - j) for j in range(k))


@given(n=st.integers(1, 40), rate=levels, confidence=levels)
@example(n=2, rate=Fraction(1, 2), confidence=Fraction(3, 4))
@example(n=3, rate=Fraction(1, 2), confidence=Fraction(1, 2))
@example(n=1, rate=Fraction(1, 10), confidence=Fraction(1, 10))
def test_the_order_is_the_largest_one(n, rate, confidence):
    order = tolerance_order(n, rate, confidence)
    safe = [k for k in range(1, n + 1) if tail(n, k, rate) <= 1 - confidence]
    assert order == max(safe, default=0)


@given(rate=levels, confidence=levels)
@example(rate=Fraction(1, 2), confidence=Fraction(3, 4))
@example(rate=Fraction(1, 10), confidence=Fraction(19, 100))
def test_rows_needed(rate, confidence):
    n = rows_needed(rate, confidence)
    assert (1 - rate) ** n <= 1 - confidence
    assert n == 1 or (1 - rate) ** (n - 1) > 1 - confidence
    assert tolerance_order(n, rate, confidence) >= 1


def test_floats_are_read_as_decimals():
    # 0.9^2 = 0.81 = 1 - 0.19; as binary numbers the two differ.
    assert rows_needed(0.1, 0.19) == 2


def test_large_and_extreme():
    assert tolerance_order(10_000_000, 0.01, 0.95) == pytest.approx(1e5 - 1.645 * 315, rel=1e-4)
    assert rows_needed(1e-9, 0.95) == pytest.approx(2.9957e9, rel=1e-4)


def test_flagging_at_the_cutoff_would_break_the_claim():
    limit = score_threshold(np.zeros(1000), 0.01, 0.95)
    assert limit.cutoff == 0.0
    assert not (np.zeros(10) < limit.cutoff).any()
    assert (np.zeros(10) <= limit.cutoff).all()


def test_too_few_rows():
    limit = score_threshold(np.arange(298.0), 0.01, 0.95)
    assert (limit.cutoff, limit.order, limit.needed, limit.enough) == (-inf, 0, 299, False)
    limit = score_threshold(np.arange(299.0)[::-1], 0.01, 0.95)
    assert (limit.cutoff, limit.order, limit.needed, limit.enough) == (0.0, 1, 299, True)
    assert limit.mean_rate == 1 / 300


def test_bad_arguments():
    refused(r"calibration_scores .* got shape \(0,\)", score_threshold, [], 0.1)
    refused("calibration_scores must not contain NaN", score_threshold, [1.0, np.nan], 0.1)
    refused("rate must be a number strictly between 0 and 1; got 1", score_threshold, [1.0], 1.0)
