"""Betting against exchangeability: scores are ranked among all before them, and a bettor bets.

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

from ..arrays import AnyArray, FloatArray, IntArray, RankArray
from ..compiled import njit
from ..errors import unknown_choice

# Below, the incomplete gamma function is left to its expansion: doubles end at 1e-308.
_LEAST_SHARE = 1e-250


@dataclass
class Power:
    """f(p) = ε p^(ε-1): bets on small p-values, with one fixed ε in (0, 1).

    The smaller ε, the bolder: at most a share 1 - ε is lost by a row.

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

    `surprise` is -log p_1 - ... - log p_rows: with `rows` all that the capital depends on.

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

    `jump` is that share; `small`, `none`, `large` are the shares of the three bettors.

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

MARTINGALES: dict[str, type[Martingale]] = {
    "simple-jumper": SimpleJumper,
    "mixture": Mixture,
    "power": Power,
}


def make_martingale(name: str) -> Martingale:
    """Make a martingale that has not bet yet."""
    if name not in MARTINGALES:
        raise unknown_choice("martingale", name, MARTINGALES)
    return MARTINGALES[name]()


def log_mixture(rows: IntArray, surprise: FloatArray) -> FloatArray:
    """Take the log of the integral of ε^N exp((1 - ε) S) over ε in (0, 1), without loss of digits.

    N is a number of rows and S the sum of their -log p. With a = N + 1 the integral is
    e^S S^-a γ(a, S), γ the lower incomplete gamma function. Its
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


# --- the scores so far, in order ---

# A node reaches one level higher with probability 1/4; sixteen levels serve 4^16 scores.
LEVELS = 16
REACHES_HIGHER = 0.25


class OrderedScores:
    """A growing multiset of scores that ranks each new one among all before it, in O(log) time.

    A skip list in compiled code, because no dependency has one: a sorted array moves half of
    all scores for every new one.

    Examples
    --------
    >>> import numpy as np
    >>> ordered = OrderedScores(np.array([3.0, 1.0, 2.0]))
    >>> below, equal = ordered.rank_and_insert(np.array([2.0, 2.0, 9.0]))
    >>> below, equal
    (array([1, 1, 5]), array([1, 2, 0]))
    >>> ordered.scores
    array([3., 1., 2., 2., 2., 9.])
    """

    def __init__(self, scores: FloatArray) -> None:
        self._heights = np.random.default_rng(0)  # they decide about speed, never about a number
        self._scores = np.empty(0)
        self._count = 0
        self._links = np.zeros((LEVELS, 2), dtype=np.int64)
        self._ahead = np.full(LEVELS, np.inf)
        self._end = LEVELS
        self.rank_and_insert(scores)

    def __len__(self) -> int:
        return self._count

    @property
    def scores(self) -> FloatArray:
        """All scores, in the order in which they came."""
        return self._scores[: self._count]

    def rank_and_insert(self, scores: FloatArray) -> tuple[RankArray, RankArray]:
        """Rank scores in turn, each among all that came before it, and keep them.

        Returns how many earlier scores are smaller than each, and how many are equal to it.
        """
        scores = np.ascontiguousarray(scores, dtype=np.float64)
        heights = np.minimum(self._heights.geometric(1 - REACHES_HIGHER, len(scores)), LEVELS)
        count, end = self._count + len(scores), self._end + int(heights.sum())
        self._scores = _with_room(self._scores, count)
        self._links, self._ahead = _with_room(self._links, end), _with_room(self._ahead, end)
        below, equal = np.empty((2, len(scores)), dtype=np.int64)
        _rank_and_insert(scores, heights, self._links, self._ahead, LEVELS, self._end, below, equal)
        self._scores[self._count : count] = scores
        self._count, self._end = count, end
        return below, equal


def _with_room(array: AnyArray, needed: int) -> AnyArray:
    """Return the array, or a copy of at least twice its length, so that it is seldom copied."""
    if needed <= len(array):
        return array
    longer = np.empty((max(needed, 2 * len(array)), *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


@njit(cache=True, nogil=True)
def _rank_and_insert(
    scores: FloatArray,
    heights: IntArray,
    links: IntArray,
    ahead: FloatArray,
    levels: int,
    end: int,
    below: IntArray,
    equal: IntArray,
) -> None:
    """Count, for each score in turn, the earlier ones below and equal to it; then put it in.

    The list is a skip list with counts, on flat arrays. A node is a run of links, one per level of
    its own, and goes by the position of the first. Link ``at`` leads to node ``links[at, 0]``, the
    next that reaches this level (0: there is none), and moves on by ``links[at, 1]`` places;
    ``ahead[at]`` is the score there (infinite: there is none), so that a step looks at neighbours
    in memory. Node 0 stands before all scores and has every level. Finding a place takes O(log n)
    steps in expectation over the heights, in whatever order the scores come.
    """
    before = np.empty(levels, dtype=np.int64)  # on each level the last link below the score
    passed = np.empty(levels, dtype=np.int64)  # and how many scores lie before it
    for j in range(len(scores)):
        score = scores[j]
        node, position = 0, 0
        for level in range(levels - 1, -1, -1):
            while ahead[node + level] < score:
                position += links[node + level, 1]
                node = links[node + level, 0]
            before[level], passed[level] = node + level, position
        below[j], equal[j] = position, 0
        if links[node, 0] != 0 and ahead[node] == score:  # ties: go down again, past them
            node, after = 0, 0
            for level in range(levels - 1, -1, -1):
                while links[node + level, 0] != 0 and ahead[node + level] <= score:
                    after += links[node + level, 1]
                    node = links[node + level, 0]
            equal[j] = after - position
        for level in range(levels):
            at = before[level]
            if level < heights[j]:
                moved = position - passed[level]
                links[end + level, 0], links[end + level, 1] = links[at, 0], links[at, 1] - moved
                ahead[end + level] = ahead[at]
                links[at, 0], links[at, 1] = end, moved + 1
                ahead[at] = score
            else:
                links[at, 1] += 1
        end += heights[j]
