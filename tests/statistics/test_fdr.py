from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import false_discovery_control

import oracle
from reconform import RankCounts
from reconform.statistics.exact import exact_fraction, harmonic_number
from reconform.statistics.fdr import adjust
from refusals import refused

LEVELS = [Fraction(1, 10), Fraction(1, 4), Fraction(1, 20), Fraction(1, 3), Fraction(9, 10)]


def batches(most_n=12, most_m=25):
    return st.integers(1, most_n).flatmap(
        lambda n: st.tuples(
            st.just(n), st.lists(st.integers(1, n + 1), min_size=1, max_size=most_m)
        )
    )


def factor_of(procedure, p, lam, n):
    if procedure == "bh":
        return Fraction(1)
    if procedure == "by":
        return oracle.harmonic(len(p))
    return oracle.storey_share(p, lam, n)


@pytest.mark.parametrize("procedure", ["bh", "by", "storey"])
@given(batches(), st.sampled_from(LEVELS), st.sampled_from([Fraction(1, 2), Fraction(1, 10)]))
@settings(max_examples=200)
# On the line: n = 9, m = 10, fdr = 0.1; five rows of rank 1 give p = 0.1 = 0.1 * 10 / 10 only if
# all ten share it, and one short of it they do not.
@example(batch=(9, [1] * 10), level=Fraction(1, 10), lam=Fraction(1, 2))
@example(batch=(9, [1] * 9 + [10]), level=Fraction(1, 10), lam=Fraction(1, 2))
@example(batch=(29, [1, 2, 3] * 10), level=Fraction(1, 10), lam=Fraction(1, 2))
def test_decisions_equal_brute_force_in_fractions(procedure, batch, level, lam):
    n, ranks = batch
    p = [Fraction(r, n + 1) for r in ranks]
    expected = oracle.benjamini_hochberg(p, level, factor=factor_of(procedure, p, lam, n))
    decision = RankCounts(n, "x").add(ranks).decide(level, procedure=procedure, storey_lambda=lam)
    mask = decision.mask(np.array(ranks))
    assert (mask.tolist(), decision.count) == (expected, sum(expected))
    assert decision.tested == len(ranks)
    # a row is a discovery exactly when its q-value is at most the level
    assert ((decision.q_values(np.array(ranks)) <= float(level)) == mask).all()
    if any(expected):
        assert decision.p_threshold == float(max(q for q, e in zip(p, expected, strict=True) if e))
    else:
        assert decision.p_threshold == 0.0


@pytest.mark.parametrize("procedure", ["bh", "by"])
@given(batch=batches(most_n=40, most_m=60))
@settings(max_examples=100)
def test_q_values_equal_scipys_adjusted_p_values(procedure, batch):
    n, ranks = batch
    p = np.array(ranks) / (n + 1)
    expected = false_discovery_control(p, method=procedure)
    ours = RankCounts(n, "x").add(ranks).decide(0.1, procedure=procedure)
    np.testing.assert_allclose(ours.q_values(np.array(ranks)), expected, rtol=1e-12)
    np.testing.assert_allclose(adjust(p, procedure=procedure), expected, rtol=1e-12)


@given(batch=batches(), lam=st.sampled_from([0.5, 0.25]))
def test_plain_and_counted_storey_agree_where_lambda_is_on_the_grid(batch, lam):
    n, ranks = batch
    if Fraction(lam) * (n + 1) % 1:
        return
    counted = RankCounts(n, "x").add(ranks).decide(0.1, procedure="storey", storey_lambda=lam)
    plain = adjust(np.array(ranks) / (n + 1), procedure="storey", storey_lambda=lam)
    np.testing.assert_allclose(plain, counted.q_values(np.array(ranks)), rtol=1e-12)


def test_ties_on_the_line_are_decided_exactly_where_floats_are_not():
    """k rows of rank r and m - k of the last, with r m / (n + 1) = 0.3 k exactly on the line."""
    float_is_wrong = 0
    for n in range(1, 50):
        for m in range(1, 40):
            for k in range(1, m + 1):
                r = Fraction(3 * (n + 1) * k, 10 * m)
                if r.denominator > 1 or r < 1:
                    continue
                ranks = [int(r)] * k + [n + 1] * (m - k)
                assert RankCounts(n, "x").add(ranks).decide(0.3).count >= k
                float_is_wrong += not int(r) / (n + 1) <= 0.3 * k / m
    assert float_is_wrong > 0


@pytest.mark.parametrize("procedure", ["bh", "by", "storey"])
@given(batch=batches(most_n=20, most_m=60), cuts=st.lists(st.integers(0, 60), max_size=5))
def test_counts_of_any_partition_decide_like_the_whole(procedure, batch, cuts):
    n, ranks = batch
    whole = RankCounts(n, "x").add(ranks).decide(0.2, procedure=procedure)
    merged = RankCounts(n, "x")
    for part in np.split(np.array(ranks), sorted(min(c, len(ranks)) for c in cuts)):
        merged = merged.merge(RankCounts(n, "x").add(part))
    parts = merged.decide(0.2, procedure=procedure)
    assert (parts.rank_threshold, parts.count) == (whole.rank_threshold, whole.count)
    assert np.array_equal(parts.q_table, whole.q_table)


def test_counts_from_different_calibrations_do_not_merge():
    refused("same calibration", RankCounts(9, "a").merge, RankCounts(9, "b"))
    refused("same calibration", RankCounts(9, "a").merge, RankCounts(8, "a"))


@pytest.mark.parametrize(
    ("ranks", "words"),
    [([0.5], "ranks must be integers"), ([0], "lie in 1 .. 10"), ([11], "lie in 1 .. 10")],
)
def test_what_is_not_a_rank_is_refused(ranks, words):
    refused(words, RankCounts(9, "a").add, ranks)


def test_an_empty_batch_has_no_discoveries():
    for procedure in ("bh", "by", "storey"):
        assert RankCounts(9, "a").decide(0.1, procedure=procedure).count == 0
        assert adjust([], procedure=procedure).shape == (0,)


@pytest.mark.parametrize("fdr", [0, 1, -0.1, 1.5, "0.1", None, True, float("nan")])
def test_a_level_outside_0_1_is_refused(fdr):
    with pytest.raises(ValueError, match="fdr must be a number strictly between 0 and 1"):
        RankCounts(9, "a").add([1]).decide(fdr)


def test_an_unknown_procedure_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'storey'"):
        RankCounts(9, "a").add([1]).decide(0.1, procedure="story")
    refused("procedure must be one of", adjust, [0.1], procedure="bonferroni")


@pytest.mark.parametrize("p", [[[0.1]], [1.2], [-0.1], [float("nan")]])
def test_what_is_not_a_p_value_is_refused(p):
    refused("p_values must", adjust, p)


def test_levels_are_read_as_written():
    assert exact_fraction("fdr", 0.1) == Fraction(1, 10)
    assert exact_fraction("fdr", 1e-3) == Fraction(1, 1000)
    assert exact_fraction("fdr", np.float64(0.05)) == Fraction(1, 20)
    assert exact_fraction("fdr", Fraction(1, 7)) == Fraction(1, 7)


@pytest.mark.parametrize("m", [1_000, 1_001, 4_321])
def test_the_harmonic_number_is_bracketed(m):
    low, high = harmonic_number(m)
    assert low < oracle.harmonic(m) < high
    assert high - low < Fraction(1, 10**29)


def test_counts_beyond_64_bits_still_decide():
    counts = RankCounts(10**5, "x")
    counts.counts[1] = 10**12
    counts.counts[-1] = 10**15
    decision = counts.decide(0.5)
    assert decision.count == 10**12
    assert decision.q_table[1] == pytest.approx((10**15 + 10**12) / 10**12 / (10**5 + 1))
