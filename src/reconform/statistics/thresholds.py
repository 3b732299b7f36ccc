"""Promises given the calibration set: a raw score cut-off, and calibration-conditional p-values.

A raw score cut-off for production, with a bound on its false-alarm rate.

One fact carries it: the k-th smallest of n calibration scores lies at a level that is at most a
Beta(k, n + 1 - k) variable, whatever the distribution of the scores. Scores follow the paper's
convention, small = anomalous.

Calibration-conditional p-values: valid given the calibration set, with confidence.

A conformal p-value r / (n + 1) is valid on average over calibration sets. Given one of them, its
level at rank r is U_(r), the r-th smallest of n uniforms, which may be larger than r / (n + 1). If
b_1 <= ... <= b_n are such that P(U_(1) <= b_1, ..., U_(n) <= b_n) >= 1 - δ, then reporting b_r
instead of r / (n + 1) is valid given the calibration set, for all but a share δ of them, at every
level at once (Bates et al. 2023). Every adjustment is a table over the n + 1 ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special

from ..arrays import AnyArray, BoolArray, FloatArray, IntArray
from ..errors import ReconformError, check_count, unknown_choice
from .exact import exact_fraction

# A binomial tail this close (relatively) to the risk is settled in integers, up to so many rows.
# Beyond them the cut-off errs on the safe side.
_ROUNDING = 1e-9
_EXACT_UP_TO = 2_000


@dataclass(frozen=True)
class ScoreThreshold:
    """A cut-off: rows whose score lies *strictly* beyond it are flagged.

    Attributes
    ----------
    cutoff : float
        A calibration score, or -inf (flag nothing) if there are too few of them.
    order : int
        The cut-off is the order-th smallest calibration score; 0 if there is none.
    n : int
        Number of calibration scores.
    needed : int
        The least number of calibration scores that allows any cut-off at all.
    false_alarm_rate, confidence : float
        The claim, as it was asked for.
    larger_is : {"normal", "anomalous"}
        What a large score means, and so on which side of the cut-off rows are flagged: strictly
        below it if large scores are normal, strictly above it if they are anomalous.
    """

    cutoff: float
    order: int
    n: int
    needed: int
    false_alarm_rate: float
    confidence: float
    larger_is: str = "normal"

    @property
    def enough(self) -> bool:
        """Whether the calibration set is large enough for the claim."""
        return self.order > 0

    @property
    def mean_rate(self) -> float:
        """The false-alarm rate to expect: at most order / (n + 1) on average."""
        return self.order / (self.n + 1)

    def turned(self) -> ScoreThreshold:
        """The same cut-off for scores of the other direction."""
        other = "anomalous" if self.larger_is == "normal" else "normal"
        return replace(self, cutoff=-self.cutoff, larger_is=other)

    def flags(self, scores: npt.ArrayLike) -> BoolArray:
        """Which rows to flag: those with a score strictly beyond the cut-off.

        Examples
        --------
        >>> limit = score_threshold(range(1000), 0.01)
        >>> limit.flags([3.0, 4.0, 5.0])
        array([ True, False, False])
        >>> limit.turned().flags([-3.0, -4.0, -5.0])
        array([ True, False, False])
        """
        array = np.asarray(scores, dtype=np.float64)
        return np.asarray(
            array < self.cutoff if self.larger_is == "normal" else array > self.cutoff
        )

    def __str__(self) -> str:
        claim = (
            f"at most {self.false_alarm_rate:g} of future normal rows, with confidence "
            f"{self.confidence:g}"
        )
        if not self.enough:
            return (
                f"Flag nothing: {self.n} calibration rows are too few to claim {claim}; "
                f"{self.needed} are needed."
            )
        side = "below" if self.larger_is == "normal" else "above"
        return f"Flag rows with a score strictly {side} {self.cutoff:.6g}: {claim}."


def score_threshold(
    calibration_scores: npt.ArrayLike,
    false_alarm_rate: float | Fraction,
    confidence: float | Fraction = 0.95,
) -> ScoreThreshold:
    """Find the highest cut-off whose false-alarm rate is bounded with confidence.

    With probability at least `confidence` over the calibration set, a future normal row has a
    score *strictly below* the cut-off with probability at most `false_alarm_rate`.

    Parameters
    ----------
    calibration_scores : array-like of float
        Scores of normal rows that the model has not seen; small = anomalous.
    false_alarm_rate : float
        The rate that future normal rows may be flagged at.
    confidence : float
        The probability, over calibration sets, that the claim holds.

    Returns
    -------
    ScoreThreshold

    Notes
    -----
    Let F be the distribution function of a normal row's score and c_(k) the k-th smallest of n
    calibration scores. Write c_i = F⁻(U_i) with U_i uniform and F⁻ the quantile function. Then
    P(s < c_(k) | calibration) = F(c_(k)-) <= U_(k), with equality if F is continuous: just below a
    quantile of level u, no more than u of the mass lies. This is where *strictly* is needed: with
    ties, P(s <= c_(k)) can be as large as 1. U_(k) exceeds the rate iff fewer than k of n uniforms
    are below it, so P(U_(k) > rate) = P(Bin(n, rate) <= k - 1). The order returned is the largest
    k for which this is at most 1 - confidence; with k = 1 it reads (1 - rate)^n, which gives the
    number of rows needed. This is Wilks' one-sided tolerance limit.

    References
    ----------
    S. S. Wilks, "Determination of sample sizes for setting tolerance limits", Annals of
    Mathematical Statistics 12 (1941).

    Examples
    --------
    >>> import numpy as np
    >>> limit = score_threshold(np.arange(1000.0), 0.01)
    >>> limit.cutoff, limit.order
    (4.0, 5)
    >>> few = score_threshold(np.arange(100.0), 0.01)  # 0.99^100 > 0.05
    >>> few.cutoff, few.needed
    (-inf, 299)
    """
    scores = np.asarray(calibration_scores, dtype=np.float64)
    if scores.ndim != 1 or not len(scores):
        raise ReconformError(
            "calibration_scores must be a non-empty one-dimensional array; "
            f"got shape {scores.shape}."
        )
    if np.isnan(scores).any():
        raise ReconformError(
            "calibration_scores must not contain NaN; drop the rows it comes from."
        )
    order = tolerance_order(len(scores), false_alarm_rate, confidence)
    cutoff = float(np.partition(scores, order - 1)[order - 1]) if order else -math.inf
    return ScoreThreshold(
        cutoff,
        order,
        len(scores),
        rows_needed(false_alarm_rate, confidence),
        float(false_alarm_rate),
        float(confidence),
    )


def tolerance_order(n: int, rate: float | Fraction, confidence: float | Fraction) -> int:
    """Find the largest k such that the k-th of n order statistics stays at a level below `rate`.

    Parameters
    ----------
    n : int
        Number of independent draws.
    rate : float
    confidence : float

    Returns
    -------
    int
        The largest k with P(U_(k) > rate) <= 1 - confidence, U_(k) the k-th smallest of n
        uniforms; 0 if there is none.

    Examples
    --------
    >>> tolerance_order(1000, 0.01, 0.95)
    5
    >>> tolerance_order(2, 0.5, 0.75)  # (1/2)^2 is exactly the risk allowed
    1
    """
    n = check_count("n", n, least=1)
    level = exact_fraction("rate", rate)
    risk = 1 - exact_fraction("confidence", confidence)
    low, high = 0, n + 1  # order `low` is safe, order `high` is not
    while high - low > 1:
        middle = (low + high) // 2
        if _tail_within(n, middle, level, risk):
            low = middle
        else:
            high = middle
    return low


def rows_needed(rate: float | Fraction, confidence: float | Fraction) -> int:
    """Find the least n with (1 - rate)^n <= 1 - confidence.

    Examples
    --------
    >>> rows_needed(0.01, 0.95)
    299
    """
    level = exact_fraction("rate", rate)
    risk = 1 - exact_fraction("confidence", confidence)
    n = max(1, math.ceil(math.log(risk) / math.log1p(-level)))
    while not _tail_within(n, 1, level, risk):
        n += 1
    while n > 1 and _tail_within(n - 1, 1, level, risk):
        n -= 1
    return n


def _tail_within(n: int, k: int, rate: Fraction, risk: Fraction) -> bool:
    """P(Bin(n, rate) <= k - 1) <= risk."""
    tail, bound = float(special.betaincc(k, n - k + 1, float(rate))), float(risk)
    if abs(tail - bound) > _ROUNDING * bound:
        return tail < bound
    if n > _EXACT_UP_TO:
        return False
    yes, no = rate.numerator, rate.denominator - rate.numerator
    total = sum(math.comb(n, j) * yes**j * no ** (n - j) for j in range(k))
    return bool(total * risk.denominator <= risk.numerator * rate.denominator**n)


# Neighbouring ranks of `rank_grid` are apart by this share of the noise in a rank.
_SPACING = 0.2
# A simulated critical value is an order statistic chosen so that the level it stands for exceeds
# the nominal one with at most this probability.
SIMULATION_RISK = Fraction(1, 10_000)
_LARGEST_SIMULATED = Fraction(999, 1000)


def conditional_table(
    n: int, kind: str, confidence: float | Fraction = 0.9, *, seed: int = 0
) -> FloatArray:
    """Tabulate the calibration-conditional p-value of every rank.

    With probability at least `confidence` over the n calibration rows, the table h satisfies
    P(h[r] <= t | calibration) <= t for *all* t simultaneously, r the rank of a new normal row.

    Parameters
    ----------
    n : int
        Number of calibration scores.
    kind : {"simes", "montecarlo"}
        How the bounds b_r are shaped; see Notes.
    confidence : float
        1 - δ. At most 0.999 for ``"montecarlo"``.
    seed : int
        The seed of the simulation behind ``"montecarlo"``; ignored by ``"simes"``.

    Returns
    -------
    float array of shape (n + 2,)
        Entry r is the p-value of rank r = 1, ..., n + 1; nondecreasing, in [0, 1], the last is 1.
        Entry 0 belongs to no rank, and is 0.

    Notes
    -----
    ``"simes"``
        b_{n+1-i} = 1 - (δ i(i-1)...(i-k+1) / n(n-1)...(n-k+1))^(1/k) with k = n // 2, from the
        generalised Simes inequality. Coverage is exactly 1 - δ. Sharpest at the smallest ranks,
        where b_1 is about 2 log(1/δ) / n; says nothing (1) in the upper half.
    ``"montecarlo"``
        b_r solves n KL((r - 1/2)/n, b_r) = c, in the lower half, KL the divergence of two coins:
        the one-sided Berk-Jones band, whose ranks have nearly equal shares in δ. c is simulated,
        and rounded up such that the coverage is below 1 - δ with probability at most 0.0001 over
        the simulation. Close to ``"simes"`` at the smallest ranks, clearly sharper from a few
        dozen on.
    Scores may have ties: conservative ranks only gain from them (docs/guarantees).

    References
    ----------
    S. Bates, E. Candès, L. Lei, Y. Romano, M. Sesia, "Testing for outliers with conformal
    p-values", Annals of Statistics 51 (2023).

    S. K. Sarkar, "Generalizing Simes' test and Hochberg's stepup procedure", Annals of Statistics
    36 (2008).

    R. H. Berk, D. H. Jones, "Goodness-of-fit test statistics that dominate the Kolmogorov
    statistics", Zeitschrift für Wahrscheinlichkeitstheorie 47 (1979).

    Examples
    --------
    >>> table = conditional_table(1000, "simes", confidence=0.9)
    >>> table[[1, 10, 100, 1001]].round(4)  # instead of 0.001, 0.01, 0.0999, 1
    array([0.0046, 0.017 , 0.1416, 1.    ])
    """
    n = check_count("n", n, least=1)
    if kind not in BANDS:
        raise unknown_choice("kind", kind, BANDS)
    risk = 1 - exact_fraction("confidence", confidence)
    bounds = BANDS[kind](n, risk, seed)
    table = np.ones(n + 2)
    table[0] = 0.0
    # U_(r) <= U_(r') <= b_r' for r' > r, so a bound holds for every rank below its own.
    table[1:-1] = np.minimum(np.minimum.accumulate(bounds[::-1])[::-1], 1.0)
    return table


# --- the bounds b_1, ..., b_n --------------------------------------------------------------------


def _simes(n: int, risk: Fraction, seed: int) -> FloatArray:
    k = max(1, n // 2)
    # i(i-1)...(i-k+1) shrinks by the factor (i - k)/i from i to i - 1; logs add up without loss.
    falling = np.log1p(-k / np.arange(n, k, -1.0))
    shares = np.concatenate(([0.0], np.cumsum(falling)))
    bounds = np.ones(n)
    bounds[: n + 1 - k] = -np.expm1((math.log(risk) + shares) / k)
    return bounds


def _montecarlo(n: int, risk: Fraction, seed: int) -> FloatArray:
    ranks = rank_grid(n)
    critical = _critical_divergence(n, risk, seed)
    low, high = (ranks - 0.5) / n, np.ones(len(ranks))
    for _ in range(60):  # halving [0, 1] down to the last bit
        middle = (low + high) / 2
        above = _divergence(n, ranks, middle, 1 - middle) > critical
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    bounds = np.ones(n)
    bounds[: ranks[-1]] = high[np.searchsorted(ranks, np.arange(1, ranks[-1] + 1))]
    return bounds


# b_1, ..., b_n from n, the risk δ and a seed.
BANDS: dict[str, Callable[[int, Fraction, int], FloatArray]] = {
    "simes": _simes,
    "montecarlo": _montecarlo,
}


# --- the simulation ------------------------------------------------------------------------------


def rank_grid(n: int, noise: float = 1.0) -> IntArray:
    """Choose the ranks of the lower half at which a simulated bound is compared.

    A bound at rank r' holds for all r < r', so ranks that are close, relative to the noise of an
    empirical distribution there, need only one bound. All small ranks are in; the number of
    ranks grows like sqrt(n).

    Parameters
    ----------
    n : int
    noise : float
        The variance of a rank, relative to that of U_(r) n.

    Returns
    -------
    int array
        Increasing, from 1 to n // 2 (or 1).

    Examples
    --------
    >>> len(rank_grid(1_000)), len(rank_grid(1_000_000))
    (280, 7979)
    """
    top, r = max(1, n // 2), 0
    ranks = []
    while r < top:
        r += 1
        deviation = math.sqrt(noise * r * (1 - r / (n + 1)))
        # Far below one expected false alarm the noise says little; the ratio of ranks does.
        step = int(min(_SPACING * deviation, 0.05 * r))
        r = min(top, r + max(0, step - 1))
        ranks.append(r)
    return np.array(ranks, dtype=np.int64)


def simulation_size(columns: int, risk: Fraction, *, budget: int) -> int:
    """Choose how many paths of so many ranks to simulate, for about `budget` draws in all.

    A thousand paths beyond the critical value make it good to a tenth of the risk; thirty are the
    least, and 2,000 paths.

    Examples
    --------
    >>> simulation_size(500, Fraction(1, 20), budget=40_000_000)
    20000
    """
    if 1 - risk > _LARGEST_SIMULATED:
        raise ReconformError(
            f"confidence must be at most {float(_LARGEST_SIMULATED)} where bounds are simulated; "
            f"got {float(1 - risk)}. For p-values 'simes' has a formula."
        )
    return max(min(math.ceil(1_000 / risk), budget // columns), math.ceil(30 / risk), 2_000)


def critical_value(statistics: FloatArray, risk: Fraction) -> float:
    """Take the simulated quantile that a new draw exceeds with probability at most `risk`.

    The k-th largest of B draws is exceeded with a probability that is at most Beta(k, B + 1 - k)
    distributed; k is the largest for which this exceeds `risk` with probability 0.0001 at most.

    Examples
    --------
    >>> critical_value(np.arange(10_000.0), Fraction(1, 10))  # the quantile itself is 8999
    9110.0
    """
    k = tolerance_order(len(statistics), risk, 1 - SIMULATION_RISK)
    return float(np.partition(statistics, -k)[-k])


def _divergence(n: int, ranks: AnyArray, level: FloatArray, complement: FloatArray) -> FloatArray:
    """N KL((r - 1/2)/n, u) where u is the larger one, 0 elsewhere."""
    count = ranks - 0.5
    with np.errstate(divide="ignore"):  # u = 1: infinitely far
        divergence = count * np.log(count / (n * level)) + (n - count) * np.log(
            (n - count) / (n * complement)
        )
    return np.where(n * level > count, divergence, 0.0)


@lru_cache(maxsize=64)
def _critical_divergence(n: int, risk: Fraction, seed: int) -> float:
    """Simulate the largest divergence over the rank grid, for n uniforms."""
    ranks = rank_grid(n)
    paths = simulation_size(len(ranks), risk, budget=40_000_000)
    rng = np.random.default_rng(np.random.SeedSequence([seed, n]))
    # Uniform order statistics are partial sums of exponentials; a gap of g ranks is Gamma(g).
    gaps = np.diff(ranks, prepend=0, append=n + 1).astype(np.float64)
    largest = np.empty(paths)
    chunk = max(1, 2_000_000 // len(ranks))
    for start in range(0, paths, chunk):
        rows = min(chunk, paths - start)
        sums = np.cumsum(rng.standard_gamma(gaps, size=(rows, len(gaps))), axis=1)
        total = sums[:, -1:]
        level, complement = sums[:, :-1] / total, (total - sums[:, :-1]) / total
        largest[start : start + rows] = _divergence(n, ranks, level, complement).max(axis=1)
    return critical_value(largest, risk)
