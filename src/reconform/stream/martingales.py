"""Test martingales: what a bettor against uniform p-values has won so far, as a logarithm.

A betting function f >= 0 with mean 1 over [0, 1] multiplies the bettor's capital by f(p). If the
p-values are independent and uniform, the capital is a martingale that starts at 1, and it ever
reaches 1/α with probability at most α (Ville 1939). All take p-values in turn and return the
logarithm of the capital after each; the result does not depend on how the p-values are batched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc, gammaln

from ..arrays import FloatArray, IntArray
from ..errors import check_probability, unknown_choice

# Below, the incomplete gamma function is left to its expansion: doubles end at 1e-308.
_LEAST_SHARE = 1e-250


@dataclass
class Power:
    """f(p) = ε p^(ε-1): bets on small p-values, with one fixed ε in (0, 1).

    Attributes
    ----------
    epsilon : float
        The smaller, the bolder: at most a share 1 - ε is lost by a row.
    log_capital : float

    Examples
    --------
    >>> Power(0.5).advance(np.array([0.25, 1.0])).round(4)
    array([ 0.    , -0.6931])
    """

    epsilon: float = 0.92
    log_capital: float = 0.0

    def advance(self, p_values: FloatArray) -> FloatArray:
        """Bet on p-values in turn; return the logarithm of the capital after each."""
        gains = math.log(self.epsilon) + (self.epsilon - 1) * np.log(p_values)
        path = _running_sum(self.log_capital, gains)
        self.log_capital = float(path[-1])
        return path[1:]


@dataclass
class Mixture:
    """The mean of all power martingales with ε in (0, 1): no ε has to be chosen.

    Attributes
    ----------
    rows : int
    surprise : float
        -log p_1 - ... - log p_rows; with `rows` all that the capital depends on.

    Examples
    --------
    >>> Mixture().advance(np.array([1.0, 1.0]))  # 1/2 and 1/3
    array([-0.69314718, -1.09861229])
    """

    rows: int = 0
    surprise: float = 0.0

    def advance(self, p_values: FloatArray) -> FloatArray:
        """Bet on p-values in turn; return the logarithm of the capital after each."""
        path = _running_sum(self.surprise, -np.log(p_values))
        rows = self.rows + 1 + np.arange(len(p_values))
        self.rows += len(p_values)
        self.surprise = float(path[-1])
        return log_mixture(rows, path[1:])


@dataclass
class SimpleJumper:
    """f(p) = 1 + ε (p - 1/2), ε jumping between -1, 0 and 1: bets on both sides.

    Three bettors, each with an ε of its own; before every row a share of the capital is divided
    among them anew, so that the one who is right now soon has most of it (Vovk et al. 2021).

    Attributes
    ----------
    jump : float
        The share.
    log_capital : float
    small, none, large : float
        Shares of the capital that bet on small p-values, on nothing, on large ones.

    Examples
    --------
    >>> SimpleJumper().advance(np.array([0.5, 1.0])).round(4)
    array([0., 0.])
    """

    jump: float = 0.01
    log_capital: float = 0.0
    small: float = 1 / 3
    none: float = 1 / 3
    large: float = 1 / 3

    def advance(self, p_values: FloatArray) -> FloatArray:
        """Bet on p-values in turn; return the logarithm of the capital after each."""
        path = np.empty(len(p_values))
        stay, move = 1 - self.jump, self.jump / 3
        small, none, large, log_capital = self.small, self.none, self.large, self.log_capital
        for j, p in enumerate(p_values.tolist()):
            small = (stay * small + move) * (1.5 - p)
            none = stay * none + move
            large = (stay * large + move) * (0.5 + p)
            factor = small + none + large
            log_capital += math.log(factor)
            small, none, large = small / factor, none / factor, large / factor
            path[j] = log_capital
        self.small, self.none, self.large, self.log_capital = small, none, large, log_capital
        return path


Martingale = Power | Mixture | SimpleJumper

MARTINGALES = ("simple-jumper", "mixture", "power")


def make_martingale(name: str, *, epsilon: float, jump: float) -> Martingale:
    """Make a martingale that has not bet yet.

    Parameters
    ----------
    name : {"power", "mixture", "simple-jumper"}
    epsilon : float
        For the power martingale.
    jump : float
        For the simple jumper.
    """
    if name not in MARTINGALES:
        raise unknown_choice("martingale", name, MARTINGALES)
    epsilon, jump = check_probability("epsilon", epsilon), check_probability("jump", jump)
    if name == "power":
        return Power(epsilon)
    return SimpleJumper(jump) if name == "simple-jumper" else Mixture()


def log_mixture(rows: IntArray, surprise: FloatArray) -> FloatArray:
    """Take the log of the integral of ε^N exp((1 - ε) S) over ε in (0, 1), without loss of digits.

    Parameters
    ----------
    rows : int array
        N.
    surprise : float array
        S, the sum of -log p.

    Notes
    -----
    With a = N + 1 the integral is e^S S^-a γ(a, S), γ the lower incomplete gamma function. Its
    factors are huge; by Stirling's formula the logarithm is a (r - 1 - log r) + log(2π/a)/2 +
    1/(12 a) - ... + log P(a, S), with r = S/a and P in [0, 1]. Where P is too small for a double, S
    is far below a, and γ(a, S) = S^a e^-S (1/d)(1 - S/d^2 + ...), d = a - S (DLMF 8.11.6).

    Examples
    --------
    >>> log_mixture(np.array([0, 1_000_000]), np.array([0.0, 1_010_000.0])).round(3)
    array([ 0.  , 43.67])
    """
    a = np.asarray(rows, dtype=np.float64) + 1
    S = np.asarray(surprise, dtype=np.float64)
    share = gammainc(a, S)
    far = share < _LEAST_SHARE
    value = np.empty(len(a))

    near_a, near_S = a[~far], S[~far]
    excess = (near_S - near_a) / near_a
    value[~far] = (
        near_a * (excess - np.log1p(excess))
        + 0.5 * np.log(2 * np.pi / near_a)
        + _stirling_rest(near_a)
        + np.log(share[~far])
    )

    far_a, far_S = a[far], S[far]
    d = far_a - far_S
    r = far_S / far_a
    x = far_a / d**2
    value[far] = -np.log(d) + np.log1p(
        -r * x + r * (2 * r + 1) * x**2 - r * (6 * r**2 + 8 * r + 1) * x**3
    )
    return value


def _stirling_rest(a: FloatArray) -> FloatArray:
    """Compute log Γ(a) - (a - 1/2) log a + a - log(2π)/2, for large a by its series."""
    series = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / 1680 / a**2) / a**2) / a**2) / a
    difference = gammaln(a) - (a - 0.5) * np.log(a) + a - 0.5 * math.log(2 * math.pi)
    return np.where(a < 20, difference, series)


def _running_sum(start: float, terms: FloatArray) -> FloatArray:
    """start, start + t_1, ...: added from left to right, as if batches had never been."""
    return np.cumsum(np.concatenate([[start], terms]))
