"""Certificates by the lists of few worlds, against every world gone through by itself."""

from fractions import Fraction

import numpy as np
import pytest

from enumeration import judged, mean_e
from reconform import ConformalDetector, Full
from reconform.detectors import KNN, IForest
from reconform.ensemble import e_values_by_scores
from reconform.statistics.conditional_calibration import StepUp


def full(detector, D):
    return detector.fit_plan(D, Full().plan(len(D)), [np.random.SeedSequence(0)])


def rank_of(detector, D, x):
    return int(full(detector, D).ranks(x[None]).at_most[0])


def literal(detector, D, X, j, step):
    """The e-value of row j: its share of b over all worlds, one after the other."""
    E, others, m = np.vstack([D, X[j]]), np.delete(X, j, axis=0), len(X)
    ensemble = full(detector, D)
    (augmented,) = ensemble.augmented_scores(X, np.array([j]))
    among = [sum(e <= s for e in augmented.own[0]) for s in np.delete(augmented.others[0], j)]
    V = [rank_of(detector, np.delete(E, w, axis=0), E[w]) for w in range(len(E))]

    def reach(length):
        return step.limits[min(2 * length + 8, m)]

    def list_in(w, reached):
        near = [x for x, rank in zip(others, among, strict=True) if rank <= 3 * reached + 8]
        ranks = [rank_of(detector, np.delete(E, w, axis=0), x) for x in near]
        return max(k for k in range(1, m + 1) if 1 + sum(r <= step.limits[k] for r in ranks) >= k)

    longest = step.count(np.array(among))
    most = ensemble.refits_for(sum(v <= reach(longest) for v in V))
    asked = [w for w in range(len(E)) if V[w] <= most]  # ties have the largest of their ranks
    first = [list_in(w, reach(longest)) for w in asked if V[w] == min(V)]
    longest = max([longest, *first])
    cap, reached = min(2 * longest + 8, m), reach(longest)
    rest = [list_in(w, reached) for w in asked if min(V) < V[w] <= reached]
    longest = min(max([longest, *rest]), cap)
    b = [int(v <= step.limits[longest]) for v in V]
    return Fraction(b[-1] * len(b), max(sum(b), 1))


FOREST = IForest(n_estimators=8, max_samples=6, random_state=0)


@pytest.mark.parametrize("detector", [KNN(n_neighbors=2), FOREST])
@pytest.mark.parametrize("kind", ["smooth", "lattice", "anomalies alike"])
@pytest.mark.parametrize("level", [0.3, 0.5])
def test_e_values_are_those_of_all_worlds(detector, kind, level, rng):
    positive = 0
    for _ in range(4):
        D, X = rng.normal(size=(14, 2)), rng.normal(size=(7, 2))
        if kind == "lattice":
            D, X = np.round(D), np.round(X)
        X[:3] += 4 if kind == "anomalies alike" else [4, 0]
        step = StepUp.at(level, len(D), len(X))
        for j, found in full(detector, D).e_values(X, np.arange(len(X)), step):
            assert found == literal(detector, D, X, j, step)
            positive += found > 0
    assert positive


@pytest.mark.parametrize(
    "detector", ["auto", FOREST, KNN(n_neighbors=1), KNN(n_neighbors=2, scale="robust")]
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


def test_many_worlds_are_counted_by_one_model(rng):
    X = rng.normal(size=(12, 2))
    X[:4] = 4 + X[:4] / 10  # each is the others' neighbour where it is a reference row
    rows, lists = np.arange(12), []
    for n in (40, 80_000):  # cells of more references than may be searched anew
        D = rng.normal(size=(n, 2))
        ensemble, step = full(KNN(n_neighbors=1), D), StepUp.at(0.3, n, 12)
        by_one = dict(e_values_by_scores(ensemble.augmented_scores(X, rows), step))
        lists.append(dict(ensemble.e_values(X, rows, step)) == by_one)
    assert lists == [False, True]
