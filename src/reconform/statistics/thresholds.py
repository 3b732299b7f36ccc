"""A raw score cut-off for production, with a bound on its false-alarm rate.

One fact carries it: the k-th smallest of n calibration scores lies at a level that is at most a
Beta(k, n + 1 - k) variable, whatever the distribution of the scores. Scores follow the paper's
convention, small = anomalous.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy import special

from ..arrays import BoolArray
from ..errors import ReconformError, check_count
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
