"""Algorithm 1 of the paper, transcribed literally, with loops. Slow and obviously right.

Everything else in this library is compared with it.
"""

import math
from fractions import Fraction

import numpy as np


def phi_of(aggregate):
    """The aggregation rule φ, on a plain list of numbers."""
    if aggregate == "median":
        return lambda scores: _median(sorted(scores))
    if aggregate == "mean":
        return lambda scores: sum(scores) / len(scores)
    if aggregate == "min":
        return min
    if aggregate == "max":
        return max
    if callable(aggregate):
        return lambda scores: aggregate(np.array(scores))
    return lambda scores: float(np.quantile(np.array(scores), aggregate))


def _median(ordered):
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2


def held_out(n, T_k):
    """Lines 2-3: H_k = [n] without the support of T_k."""
    return [i for i in range(n) if i not in set(T_k)]


def calibration_scores(D, A, T, phi):
    """Lines 5-11: the pairs (i, c_i) for all i that some model held out, and the models."""
    n = len(D)
    s_hat = []
    for T_k in T:
        s_hat.append(A(D[list(T_k)]))
    c = {}
    K = {}
    for i in range(n):
        K_i = [k for k in range(len(T)) if i in held_out(n, T[k])]
        if not K_i:  # footnote in the bootstrap section: excluded from the calibration set
            continue
        K[i] = K_i
        c[i] = phi([float(s_hat[k](D[[i]])[0]) for k in K_i])
    return c, K, s_hat


def p_value(D, A, x, T, phi, variant):
    """Algorithm 1: the resampling-conformal p-value of one row, as an exact fraction."""
    c, K, s_hat = calibration_scores(D, A, T, phi)
    count = 0
    if variant == "basic":
        s = A(D)
        t = float(s(x[None])[0])
        for i in c:
            if c[i] <= t:
                count += 1
    elif variant == "plus":
        for i in c:
            t_i = phi([float(s_hat[k](x[None])[0]) for k in K[i]])
            if c[i] <= t_i:
                count += 1
    elif variant == "pooled":  # not in the paper; see the design
        t = phi([float(s(x[None])[0]) for s in s_hat])
        for i in c:
            if c[i] <= t:
                count += 1
    return Fraction(1 + count, len(c) + 1)


def benjamini_hochberg(p, level, *, factor=Fraction(1)):
    """Section V on exact fractions: the rejected positions, step by step."""
    m = len(p)
    order = sorted(range(m), key=lambda j: p[j])
    k_max = 0
    for k in range(1, m + 1):
        if p[order[k - 1]] * factor <= Fraction(k) * level / m:
            k_max = k
    cut = p[order[k_max - 1]] if k_max else Fraction(-1)
    return [p[j] <= cut for j in range(m)]


def harmonic(m):
    """The factor of Benjamini and Yekutieli."""
    return sum((Fraction(1, i) for i in range(1, m + 1)), Fraction(0))


def storey_share(p, lam, n):
    """(1 + #{p >= λ}) / (m (1 - λ)), with λ rounded up to the grid r / (n + 1) below 1."""
    grid = [Fraction(r, n + 1) for r in range(1, n + 1)]
    lam = min([value for value in grid if value >= lam], default=grid[-1])
    return Fraction(1 + sum(1 for value in p if value >= lam)) / (len(p) * (1 - lam))


def binomial_upper(trials, level, failure):
    """The count that Binomial(trials, level) exceeds with probability at most `failure`."""
    from scipy.stats import binom

    return math.ceil(binom.isf(failure, trials, level))


def all_augmented_scores(source, new, rows):
    """What `augmented_scores` yields, together: own scores of D in order, x_j's, the others'.

    The scores of D may come in any order, and what stands for x_j among the others is left out.
    """
    parts = list(source.augmented_scores(new, rows))
    assert np.concatenate([part.rows for part in parts]).tolist() == list(rows)
    own, others = (np.vstack([getattr(part, name) for part in parts]) for name in ("own", "others"))
    others[np.arange(len(rows)), rows] = 0.0
    return np.sort(own[:, :-1], axis=1), own[:, -1], others


def distance(X, random_state):
    """Distance from a randomly jittered centre: data and draws both matter."""
    jitter = np.random.default_rng(random_state).normal(scale=0.1, size=X.shape[1])
    center = np.median(X, axis=0) + jitter
    return lambda Z: np.abs(Z - center).sum(axis=1)
