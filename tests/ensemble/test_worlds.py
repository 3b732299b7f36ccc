"""Certificates by the lists of few worlds, against every world gone through by itself."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from enumeration import judged, mean_e
from reconform import ConformalDetector, Full
from reconform.detectors import KNN
from reconform.statistics.conditional_calibration import StepUp, count_exchanges


def full(detector, D):
    return detector.fit_plan(D, Full().plan(len(D)), [np.random.SeedSequence(0)])


def rank_of(detector, D, x):
    return int(full(detector, D).ranks(x[None]).at_most[0])


def literal(detector, D, X, j, step):
    """The e-value of row j: its share of b over all worlds, one after the other."""
    E, others = np.vstack([D, X[j]]), np.delete(X, j, axis=0)
    (augmented,) = full(detector, D).augmented_scores(X, np.array([j]))
    own, rest = augmented.own[0], np.delete(augmented.others[0], j)
    one = count_exchanges(own, rest, step)
    longest = step.count([sum(e <= s for e in own) for s in rest])
    cap = min(2 * longest + 8, len(X))
    b = []
    for w in range(len(E)):
        D_w = np.delete(E, w, axis=0)
        v = rank_of(detector, D_w, E[w])
        ranks = [rank_of(detector, D_w, x) for x in others]
        fits = [k for k in range(1, cap + 1) if 1 + sum(r <= step.limits[k] for r in ranks) >= k]
        found = v <= step.limits[cap] and v <= step.limits[fits[-1]]
        b.append(Fraction(1, fits[-1]) if found else Fraction(0))
    assert one.rows == len(b)
    return Fraction(0) if not b[-1] else b[-1] * len(b) / sum(b)


@pytest.mark.parametrize("kind", ["smooth", "lattice", "anomalies alike"])
@pytest.mark.parametrize("level", [0.2, 0.5])
def test_e_values_are_those_of_all_worlds(kind, level):
    rng = np.random.default_rng(0)
    positive = 0
    for _ in range(4):
        D, X = rng.normal(size=(14, 2)), rng.normal(size=(7, 2))
        if kind == "lattice":
            D, X = np.round(D), np.round(X)
        X[:3] += 4 if kind == "anomalies alike" else [4, 0]
        detector, step = KNN(n_neighbors=2), StepUp.at(level, len(D), len(X))
        found = dict(full(detector, D).worlds(X, np.arange(len(X)), step))
        for j, worlds in found.items():
            assert worlds.e_value == literal(detector, D, X, j, step)
            positive += worlds.e_value > 0
    assert positive > 3


@pytest.mark.parametrize(
    "detector", ["auto", KNN(n_neighbors=1), KNN(n_neighbors=2, scale="robust")]
)
def test_e_values_are_one_on_average(detector):
    """All worlds of E, with the same other new rows: in the mean at most 1."""
    rng = np.random.default_rng(1)
    for ties in (False, True):
        E, others = rng.normal(size=(13, 2)), rng.normal(size=(6, 2))
        if ties:
            E, others = np.round(E), np.round(others)
        others[:2] += 3

        def judge(D, new, E=E, others=others):
            cad = ConformalDetector(detector, "full", random_state=0).fit(E[D])
            found = cad.discover(np.vstack([others, E[new]]), fdr=0.5, validity="proven")
            return found.e_values[-1]

        assert mean_e(judged(judge, len(E))) <= 1 + 1e-12
