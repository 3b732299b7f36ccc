"""Scatter and kernels, written down: the slow road to the formulas of mahalanobis and kde."""

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from reconform.detectors.scaling import rescale, scale_exponents, spreads


class Scatter:
    """Minus squared Mahalanobis distances."""

    least = 0.0

    def __init__(self, ridge=1.0):
        self.ridge = ridge

    def by(self, D, X):
        """Scores of rows by the model on D."""
        gaps, moved = D - D.mean(axis=0), X - D.mean(axis=0)
        inverse = np.linalg.inv(gaps.T @ gaps + self.ridge * np.eye(D.shape[1]))
        return -np.einsum("ij,jk,ik->i", moved, inverse, moved)

    def own(self, E):
        """Scores of the rows of the model itself."""
        return self.by(E, E)


class Kernels:
    """Log densities; a row of the model is not its own neighbour."""

    least = 1.0

    def __init__(self, bandwidth=1.0):
        self.bandwidth = bandwidth

    def _logs(self, A, B):
        return -cdist(A, B, "sqeuclidean") / (2.0 * self.bandwidth**2)

    def by(self, D, X):
        constant = np.log(len(D)) + D.shape[1] * np.log(self.bandwidth * np.sqrt(2 * np.pi))
        return logsumexp(self._logs(X, D), axis=1) - constant

    def own(self, E):
        K = self._logs(E, E)
        np.fill_diagonal(K, -np.inf)
        return logsumexp(K, axis=1)


def not_above(slow, c, t, strictly):
    """What differs in the ninth digit only is a tie."""
    margin = 1e-9 * np.maximum(slow.least, np.maximum(np.abs(c), np.abs(t)))
    return (c < t - margin) if strictly else (c <= t + margin)


def full_ranks(model_of, X, new, strictly=False):
    """Ranks by one model per new row; `model_of` rows is a slow one, and their units."""
    ranks = []
    for x in new:
        E = np.vstack([X, x])
        slow, measure = model_of(E)
        s = slow.own(measure(E))
        ranks.append(1 + not_above(slow, s[:-1], s[-1], strictly).sum())
    return ranks


def plus_ranks(model_of, X, new, strictly=False):
    """Ranks by one model per row that is left out."""
    ranks = np.ones(len(new), dtype=int)
    for i in range(len(X)):
        rest = np.delete(X, i, axis=0)
        slow, measure = model_of(rest)
        c, t = (slow.by(measure(rest), measure(rows)) for rows in (X[i : i + 1], new))
        ranks += not_above(slow, c, t, strictly)
    return ranks.tolist()


def scatters():
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(4, 4))
    X = rng.normal(size=(40, 4)) @ mixing
    yield "smooth", X, np.vstack([X[:5], rng.normal(size=(20, 4)) @ mixing * 1.5])
    X = rng.integers(-2, 3, size=(60, 2)).astype(float)
    yield "lattice", np.vstack([X, -X]), np.vstack([X[:10], -X[10:20], [[9.0, 9.0], [0.0, 0.0]]])
    X = rng.normal(size=(12, 30))
    yield "wide", X, np.vstack([X[:3], rng.normal(size=(10, 30))])
    X = np.repeat(rng.normal(size=(6, 20)), [1, 1, 1, 2, 2, 4], axis=0)
    yield "wide copies", X, np.vstack([X[:7], X[:3] + X[3:6] - X[5:8], rng.normal(size=(5, 20))])
    X = np.hstack([rng.normal(size=(25, 2)), np.full((25, 1), 3.0)])
    new = np.vstack([X[:3], rng.normal(size=(5, 3)), X[3:5] + np.array([0, 0, 100.0])])
    yield "constant", X, new
    X = rng.normal(size=(30, 3))
    yield "far", X + 1e4, np.vstack([X[:5] + 1e4, X[:5] - 1e4, X[5:9] * 1e5])


def densities():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    yield "smooth", X, np.vstack([X[:5], rng.normal(size=(20, 3)) * 1.5]), 0.5
    X = rng.integers(-2, 3, size=(80, 2)).astype(float)
    yield "lattice", X, np.vstack([X[:10], -X[10:20], [[9.0, 9.0], [0.5, 0.5]]]), 1.0
    X = rng.normal(size=(30, 40))
    yield "wide", X, np.vstack([X[:3], rng.normal(size=(10, 40))]), 2.0
    X = np.hstack([rng.normal(size=(25, 2)), np.full((25, 1), 3.0)])
    new = np.vstack([X[:3], rng.normal(size=(5, 3)), X[3:5] + np.array([0, 0, 100.0])])
    yield "constant", X, new, 1.0
    yield "two rows", np.array([[0.0], [1.0]]), np.array([[0.0], [0.5], [2.0], [-1.0], [1.0]]), 1.0
    X = rng.normal(size=(40, 1))
    yield "narrow", X, np.vstack([X[:5], rng.normal(size=(20, 1)) * 2]), 0.01


def literal_units(rows, scale):
    """The rule of docs/methods.md: exponents of the scales, and that of the bandwidth."""
    spread = spreads(rows)
    exponents = scale_exponents(spread) if scale == "robust" else np.zeros(len(spread), int)
    measured = [s / 2.0**e for s, e in zip(spread, exponents, strict=True) if s > 0]
    d = max(len(measured), 1)
    sigma = np.sqrt(sum(s * s for s in measured) / d) / 1.349
    h = sigma * (4.0 / ((d + 2) * len(rows))) ** (1 / (d + 4))
    return exponents, int(np.round(np.log2(h))) if h > 0 else 0


def kernel_units(scale):
    """The kernels of some rows, and these rows in their units."""

    def units(rows):
        exponents, bandwidth = literal_units(rows, scale)
        return Kernels(2.0**bandwidth), lambda some: rescale(some, exponents)

    return units
