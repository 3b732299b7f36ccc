"""Detectors written plainly, with loops, and the slow road of one fit per model."""

import numpy as np

from reconform.detectors.inne.kernels import UNIT
from reconform.statistics.chances import guard_limits

METHODS = ("largest", "mean", "median")


def squared_distances(A, B):
    """Sum of squared differences, feature after feature."""
    total = np.zeros((len(A), len(B)))
    for f in range(A.shape[1]):
        total += (A[:, None, f] - B[None, :, f]) ** 2
    return total


def reference_sums(X, centres, T):
    """PyOD's lines on the distances above, with scores as integers: (sets, rows) added up."""
    eps = np.finfo(float).eps
    total = np.zeros(len(T), dtype=np.int64)
    for rows in centres:
        between = squared_distances(X[rows], X[rows])
        np.fill_diagonal(between, np.inf)
        radius = between.min(axis=1)
        nearest = radius[between.argmin(axis=1)]
        # A lone centre is isolated; PyOD has inf / inf there.
        share = (nearest + eps) / (radius + eps) if len(rows) > 1 else np.zeros(1)
        ratio = np.floor((1 - share) * UNIT + 0.5).astype(np.int64)
        to = squared_distances(T, X[rows])
        for m in range(len(T)):
            covering = np.where(to[m] <= radius, radius, np.nan)
            total[m] += UNIT if np.isnan(covering).all() else ratio[np.nanargmin(covering)]
    return total


def squared(a, b):
    total = 0.0
    for u, v in zip(a.tolist(), b.tolist(), strict=True):  # as the search adds up
        total += (u - v) * (u - v)
    return total


def kth(e, others, k):
    return sorted(squared(e, o) for o in others)[k - 1]


def score(e, others, T, ks, use_new=True):
    v = 1.0
    for k in sorted(ks):
        normal = kth(e, others, k)
        if normal == 0.0:
            return np.inf
        if normal == np.inf:
            v = 0.0
            continue
        v *= (np.sqrt(kth(e, T, k)) if use_new else 1.0) / normal
        if v == np.inf:
            return v
    return v


def is_clustered(E, T, k):
    reach = sorted(kth(E[i], np.delete(E, i, axis=0), k) for i in range(len(E)))
    typical = reach[(len(E) - 1) // 2]
    inside, accompanied = 0, np.zeros(k)
    for at, x in enumerate(T):
        others = np.delete(T, at, axis=0)
        if kth(x, E, k) <= typical:
            inside += 1
            for c in range(1, k + 1):
                accompanied[c - 1] += len(others) >= c and kth(x, others, c) < kth(x, E, 1)
    limits = guard_limits(len(E) - 1, len(T) + 1, k)
    return bool((accompanied > limits[:, inside]).any())
