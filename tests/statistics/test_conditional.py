from fractions import Fraction
from math import perm

import numpy as np
import pytest
from scipy import fft, special

from reconform.statistics.thresholds import conditional_table
from refusals import refused

KINDS = ["simes", "montecarlo"]


def coverage(bounds):
    """P(U_(1) <= b_1, ..., U_(n) <= b_n), by the recursion of Moscovich and Nadler (2017).

    A Poisson process of rate n has at least r points up to b_r, for all r; then it is conditioned
    on having n points in all. Only positive numbers are added, so this is good to 1e-10.
    """
    n = len(bounds)
    points = np.arange(n + 1)
    size = fft.next_fast_len(2 * n + 2, real=True)
    law, last = np.zeros(n + 1), 0.0
    law[0] = 1.0
    for r, bound in enumerate(bounds, start=1):
        mean = n * (bound - last)
        step = np.exp(special.xlogy(points, mean) - mean - special.gammaln(points + 1))
        law = fft.irfft(fft.rfft(law, size) * fft.rfft(step, size), size)[: n + 1].clip(0)
        law[:r] = 0.0
        last = bound
    mean = n * (1 - last)
    rest = np.exp(special.xlogy(n - points, mean) - mean - special.gammaln(n - points + 1))
    return (law * rest).sum() / np.exp(n * np.log(n) - n - special.gammaln(n + 1))


def exact_coverage(bounds):
    """n! times the volume of {u_1 < ... < u_n, u_i <= b_i}: polynomials with exact coefficients."""
    volume = [Fraction(1)]  # of the part further right, as a polynomial in u_i
    for i, bound in reversed(list(enumerate(map(Fraction, bounds), start=1))):
        antiderivative = [Fraction(0), *(c / (j + 1) for j, c in enumerate(volume))]
        at_bound = sum(c * bound**j for j, c in enumerate(antiderivative))
        volume = [-c for c in antiderivative]
        volume[0] += at_bound
        volume = [i * c for c in volume]
    return volume[0]


def test_the_recursion_is_right():
    for bounds in ([0.3], [0.2, 0.5], [0.1, 0.4, 0.4, 0.9], [0.05, 0.2, 0.7, 0.8, 1.0, 1.0]):
        assert coverage(bounds) == pytest.approx(float(exact_coverage(bounds)), abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 101, 500])
@pytest.mark.parametrize("confidence", [0.3, 0.9, 0.99])
def test_simes_has_exactly_its_coverage(n, confidence):
    table = conditional_table(n, "simes", confidence)
    assert coverage(table[1:-1]) == pytest.approx(confidence, abs=1e-9)


def test_simes_is_the_formula_of_the_paper():
    n, k, delta = 11, 5, 0.1
    table = conditional_table(n, "simes", 0.9)
    for i in range(1, n + 1):
        share = delta * perm(i, k) / perm(n, k)
        assert table[n + 1 - i] == pytest.approx(1 - share ** (1 / k), rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 10, 100, 1000])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_montecarlo_covers_and_is_sharp(n, confidence):
    # The critical value is chosen such that a simulation misses the coverage with probability at
    # most 1e-4, and it lies 0.2 δ too high with far less.
    delta = 1 - confidence
    miss = 1 - coverage(conditional_table(n, "montecarlo", confidence)[1:-1])
    assert 0.75 * delta < miss <= delta


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 17, 1000, 20_000])
@pytest.mark.parametrize("confidence", [0.05, 0.9, 0.999])
def test_a_table_of_p_values(kind, n, confidence):
    table = conditional_table(n, kind, confidence)
    assert (table.shape, table[0]) == ((n + 2,), 0)
    assert table[-1] == 1
    assert (table[1:] > 0).all()
    assert (np.diff(table) >= 0).all()


def test_a_million_rows():
    table = conditional_table(1_000_000, "simes", 0.9)
    assert (np.diff(table) >= 0).all()
    assert (table[1:] >= np.arange(1, 1_000_002) / 1_000_001 * (1 - 1e-12)).all()


def test_marginal_p_values_are_inflated_for_most_calibration_sets():
    # What the adjustment is for: r / (n + 1) itself is valid given the calibration set rarely.
    assert coverage(np.arange(1, 101) / 101) < 0.1


def test_the_same_seed_gives_the_same_table():
    first = conditional_table(200, "montecarlo", 0.9, seed=1)
    assert (first == conditional_table(200, "montecarlo", 0.9, seed=1)).all()
    assert (first != conditional_table(200, "montecarlo", 0.9, seed=2)).any()


def test_bad_arguments():
    refused(r"kind .* got 'sime'\. Did you mean 'simes'", conditional_table, 10, "sime", 0.9)
    refused("n must be an integer of at least 1; got 0", conditional_table, 0, "simes", 0.9)
    refused("confidence must be a number strictly between", conditional_table, 10, "simes", 1.0)
    with pytest.raises(ValueError, match=r"confidence must be at most 0\.999 .* got 0\.9999"):
        conditional_table(10, "montecarlo", 0.9999)
