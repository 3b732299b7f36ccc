"""Rows of all kinds: with ties, repeated, wide, far from the origin, tiny and huge."""

import numpy as np

from reconform import files

FILL = 9.96921e36  # netCDF's value for what is missing


def grid(n=40, m=25, d=2):
    """Few values: ties everywhere, and repeated rows."""
    rng = np.random.default_rng(1)
    return rng.integers(0, 4, (n, d)).astype(float), rng.integers(-1, 6, (m, d)).astype(float)


def normal(n=40, m=25, d=3, shift=0.0):
    rng = np.random.default_rng(2)
    return rng.normal(shift, 1, (n, d)), rng.normal(shift, 2, (m, d))


def repeated():
    X, Z = normal(12)
    return np.repeat(X, 4, axis=0), np.vstack([Z, X])


def constant_columns():
    X, Z = normal()
    X[:, 1], Z[:, 1] = 7.25, 7.25
    X[:, 2], Z[:, 2] = 0.1, 0.3
    return X, Z


DATA = {
    "grid": grid(),
    "grid of one feature": grid(d=1),
    "one feature": normal(d=1),
    "repeated rows": repeated(),
    "constant columns": constant_columns(),
    "all rows equal": (np.ones((20, 3)), np.arange(9.0).reshape(3, 3)),
    "n barely larger than k": normal(7, 10),
    "200 features": normal(d=200),
    "200 features of few values": grid(d=200),
    "far from the origin": normal(shift=1e8),
    "grid far from the origin": tuple(a + 1e8 for a in grid(d=20)),
    "tiny and huge": tuple(a * np.array([1e-160, 1.0, 1e150]) for a in normal()),
}


def few_valued(rng, n, d):
    """Rows with many ties: equal rows, equal distances, rows on the edge of spheres."""
    return rng.integers(0, 3, size=(n, d)).astype(float)


def extremes(kind, rng, shape):
    rows = rng.normal(size=shape) if rng.random() < 0.6 else rng.integers(-2, 3, shape) * 1.0
    if kind == "one size":
        return rows * 10.0 ** rng.uniform(-300, 300)
    if kind == "columns":
        return rows * 10.0 ** rng.uniform(-300, 300, size=shape[1])
    if kind == "rows":
        return rows * 10.0 ** rng.uniform(-300, 300, size=(shape[0], 1))
    if kind == "cells":
        return rows * np.where(rng.random(shape) < 0.3, 10.0 ** rng.integers(-40, 40, shape), 1)
    if kind == "far":
        return rows + 10.0 ** rng.uniform(0, 18, size=shape[1])
    return np.where(rng.random(shape) < 0.3, FILL * rng.choice([-1, 1]), rows)


def read_reference(path, **how):
    """Read a reference by options that are keywords here."""
    return files.read_reference(path, files.TableOptions(**how))
