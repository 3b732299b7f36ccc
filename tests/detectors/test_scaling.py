"""Scales: order statistics with one row more or less are those of the sorted rows themselves."""

import numpy as np

from reconform.detectors import KNN, scaling


def samples():
    rng = np.random.default_rng(0)
    for n in (2, 3, 4, 5, 7, 8, 15, 16, 17, 64, 65, 200):
        smooth = rng.standard_t(2, size=(n, 3)) * [1e-8, 1.0, 1e12]
        discrete = rng.poisson([0.02, 0.3, 3.0], size=(n, 3)).astype(float)
        constant = np.full((n, 1), 3.7)
        X = np.hstack([smooth, discrete, constant])
        new = np.vstack([X[: min(n, 4)], X[:3] * 0.999, X[:2] * -100.0, X[:2] + 1e-3])
        yield X, new


def test_one_row_more_or_less_is_like_sorting_again():
    for X, new in samples():
        expected = [scaling.spreads(np.vstack([X, x])) for x in new]
        assert np.array_equal(scaling.spreads_with(X, new), expected)
        if len(X) > 2:
            expected = [scaling.spreads(np.delete(X, i, axis=0)) for i in range(len(X))]
            assert np.array_equal(scaling.spreads_without(X), expected)


def test_spreads_do_not_depend_on_the_order_or_on_one_wild_row():
    for X, _ in samples():
        assert np.array_equal(scaling.spreads(X), scaling.spreads(X[::-1]))
    X = np.zeros((50, 1))
    X[7] = 1e6
    assert scaling.spreads(X) == 0.0
    X[8] = 5e5
    assert scaling.spreads(X) == 5e5


def test_rescaling_is_exact():
    for X, _ in samples():
        exponents = scaling.scale_exponents(scaling.spreads(X))
        assert np.array_equal(np.ldexp(scaling.rescale(X, exponents), exponents), X)
    spread = np.array([5e-324, 1e308, np.finfo(float).max, 0.0])
    assert (np.abs(scaling.scale_exponents(spread)) <= 400).all()


def test_exponents_are_nearest_by_ratio():
    spread = np.random.default_rng(1).lognormal(0.0, 20.0, size=1000)
    off = np.log2(spread / 1.349) - scaling.scale_exponents(spread)
    assert np.abs(off).max() <= 0.5 + 1e-12


def test_most_new_rows_change_no_scale():
    rng = np.random.default_rng(2)
    X, new = rng.normal(size=(500, 10)), rng.normal(size=(300, 10)) * 3.0
    exponents = scaling.scale_exponents(scaling.spreads_with(X, new))
    sizes = [len(at) for _, at in scaling.groups(exponents)]
    assert max(sizes) >= 290


def test_directions_are_those_of_cosine_distances(rng):
    X, new = rng.normal(size=(60, 5)), rng.normal(size=(30, 5)) * rng.lognormal(size=(30, 1))
    X *= 1.349 / scaling.spreads(X)  # nothing is rescaled
    direction = KNN(scale="direction").fit(X)
    cosine = KNN(metric="cosine").fit(X)
    got, expected = direction.score_samples(new), cosine.score_samples(new)
    np.testing.assert_allclose(got**2 / 2, -expected)
    assert np.array_equal(direction.score_samples(new * 8.0), got)


def test_rescaling_is_ldexp_bit_for_bit_down_to_subnormal_numbers(rng):
    bits = rng.integers(0, 2**63, size=(5_000, 7), dtype=np.uint64)
    X = np.where(np.isfinite(bits.view(np.float64)), bits.view(np.float64), -0.0)
    X[:500] = rng.normal(size=(500, 7)) * 5e-310
    exponents = np.array([-400, -53, -1, 0, 1, 53, 400], dtype=np.int32)
    with np.errstate(over="ignore"):
        expected = np.clip(np.ldexp(X, -exponents), -scaling.LARGEST, scaling.LARGEST)
    assert np.array_equal(scaling.rescale(X, exponents).view(np.uint64), expected.view(np.uint64))


def test_groups_are_the_distinct_rows():
    rng = np.random.default_rng(1)
    for d in (1, 3, 30):
        keys = rng.integers(-1, 2, size=(60, d))
        keys[:, 2:] = 5  # so that there are equal rows, and the last columns decide
        keys[:, -1:] = rng.integers(0, 2, size=(60, 1))
        found = list(scaling.groups(keys))
        others = np.unique(keys[(keys != keys[0]).any(axis=1)], axis=0)
        assert [key.tolist() for key, _ in found] == [keys[0].tolist(), *others.tolist()]
        for key, rows in found:
            assert np.array_equal(rows, np.flatnonzero((keys == key).all(axis=1)))
