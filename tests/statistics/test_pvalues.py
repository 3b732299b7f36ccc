"""Every method x variant x φ against the literal Algorithm 1, ties included."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import oracle
from reconform import ConformalDetector, Resampling
from reconform.methods import resolve_method
from reconform.statistics.ranks import Ranks, ranks_among, row_uniforms, smoothed_p_values


def few_valued(X):
    """A detector with five possible scores, all exact in binary: ties everywhere."""
    total = X.sum() + 3 * len(X)
    return lambda Z: ((2 * Z[:, 0] + Z[:, 1] + total) % 5) / 2


AGGREGATES = ["median", "mean", "min", "max", 0.25, 0.5, 0.9, lambda s: float(s[0]), np.median]


def small_rows(n):
    row = st.tuples(st.integers(0, 3), st.integers(0, 3))
    return st.lists(row, min_size=n, max_size=n).map(lambda rows: np.array(rows, dtype=float))


def check_against_oracle(cad, D, X):
    T = [train.tolist() for train in cad.plan_.train]
    phi = oracle.phi_of(cad.plan_.aggregate)
    variant = "plus" if not cad.plan_.full else cad.plan_.variant
    expected = [oracle.p_value(D, few_valued, x, T, phi, variant) for x in X]
    ranks, grid = cad.ranks(X), cad.n_calibration_ + 1
    assert [Fraction(int(r), grid) for r in ranks] == expected
    assert cad.p_values(X).tolist() == [float(p) for p in expected]
    c, _, _ = oracle.calibration_scores(D, few_valued, T, phi)
    rows, scores = cad.calibration_.rows.tolist(), cad.calibration_.scores.tolist()
    assert dict(zip(rows, scores, strict=True)) == c


@pytest.mark.filterwarnings("ignore:all .* calibration scores are equal")
@pytest.mark.parametrize("name", ["split", "jackknife", "jackknife+", "cv", "cv+", "jab", "jab+"])
@given(data=st.data())
@settings(max_examples=15)
def test_named_methods_equal_algorithm_1(name, data):
    D = data.draw(small_rows(data.draw(st.integers(4, 12))))
    X = data.draw(small_rows(5))
    method = resolve_method(name)
    if name.startswith("cv"):
        method.set_params(folds=3)
    if name.startswith("jab"):
        method.set_params(draws=6, aggregate=data.draw(st.sampled_from(AGGREGATES)))
    cad = ConformalDetector(
        few_valued, method, larger_is="normal", random_state=data.draw(st.integers(0, 99))
    ).fit(D)
    check_against_oracle(cad, D, X)


@pytest.mark.filterwarnings("ignore:all .* calibration scores are equal")
@pytest.mark.parametrize("variant", ["basic", "plus", "pooled"])
@pytest.mark.parametrize("aggregate", AGGREGATES, ids=lambda a: getattr(a, "__name__", str(a)))
@given(data=st.data())
@settings(max_examples=15)
def test_any_resampling_equals_algorithm_1(variant, aggregate, data):
    n = data.draw(st.integers(3, 9))
    one = st.lists(st.integers(0, n - 1), min_size=1, max_size=n)
    sets = data.draw(st.lists(one, min_size=1, max_size=7))
    if all(len(set(s)) == n for s in sets):
        return
    D, X = data.draw(small_rows(n)), data.draw(small_rows(4))
    cad = ConformalDetector(
        few_valued, Resampling(sets, aggregate=aggregate, variant=variant), larger_is="normal"
    ).fit(D)
    check_against_oracle(cad, D, X)


def test_rows_that_no_model_held_out_leave_the_calibration_set():
    D = np.arange(8, dtype=float).reshape(4, 2)
    cad = ConformalDetector(few_valued, Resampling([[0, 1], [0, 2, 3]]), larger_is="normal").fit(D)
    assert (cad.n_calibration_, cad.calibration_.rows.tolist()) == (3, [1, 2, 3])
    assert set((cad.p_values(D) * 4).tolist()) <= {1.0, 2.0, 3.0, 4.0}


@given(
    c=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    t=st.lists(st.integers(-1, 5), min_size=1, max_size=6),
)
@example(c=[0], t=[0])
def test_ranks_among_counts(c, t):
    scores = np.sort(np.array(c, dtype=float))
    tests = np.array(t, dtype=float)
    assert ranks_among(scores, tests).tolist() == [1 + sum(v <= x for v in c) for x in t]
    strict = ranks_among(scores, tests, strictly=True)
    assert strict.tolist() == [1 + sum(v < x for v in c) for x in t]


def test_smoothed_p_values_lie_between_the_strict_and_the_conservative_rank(blobs):
    reference, new = np.round(blobs[0]), np.round(blobs[1])
    few = {"detector": few_valued, "method": "jab+", "larger_is": "normal", "random_state": 0}
    smooth = ConformalDetector(**few, ties="randomized").fit(reference)
    crisp = ConformalDetector(few_valued, "jab+", larger_is="normal", random_state=0).fit(reference)
    p = smooth.p_values(new)
    assert np.array_equal(p, smooth.p_values(new))
    assert (p <= crisp.p_values(new)).all()
    assert (p > 0).all()
    ranks = smooth.ensemble_.ranks(new, strictly=True)
    assert (p > (ranks.below - 1) / (smooth.n_calibration_ + 1)).all()
    with pytest.raises(ValueError, match="need ranks with `below`"):
        smoothed_p_values(Ranks(ranks.at_most, None, ranks.scores), 9, p)


def test_smoothed_p_values_of_ties_are_uniform():
    # One score for everything: the smoothed p-value is the uniform itself. Kolmogorov-Smirnov at
    # 1e-6 for 2,000 rows: a correct program would fail for one seed in a million.
    from scipy.stats import kstest

    ranks = Ranks(np.full(2_000, 10), np.full(2_000, 1), np.zeros(2_000))
    p = smoothed_p_values(ranks, 9, row_uniforms(3, 0, 2_000))
    assert kstest(p, "uniform").pvalue > 1e-6


@given(start=st.integers(0, 50), count=st.integers(0, 20))
def test_the_uniform_of_a_row_is_keyed_by_its_position(start, count):
    assert np.array_equal(row_uniforms(9, start, count), row_uniforms(9, 0, 80)[start:][:count])


def test_comparing_many_rows_with_many_models_stays_small():
    """All comparisons at once would be 640 MB; chunks keep it within a quarter of that."""
    n, m = 2_000, 40_000
    rng = np.random.default_rng(0)
    D, X = rng.normal(size=(n, 1)), rng.normal(size=(m, 1))
    cad = ConformalDetector(lambda D: lambda Z: Z[:, 0], "jackknife+", larger_is="normal").fit(D)
    tracemalloc.start()
    ranks = cad.ranks(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(ranks, ranks_among(np.sort(D[:, 0]), X[:, 0]))
    assert peak < n * m * 8 / 4
