"""Every detector in all worlds: numbers of any size, weights, and the guard of `contrast`."""

import numpy as np
import pytest

from enumeration import excess, judged, mean_e
from reconform import ConformalDetector, Weights
from reconform.detectors import INNE, KDE, KNN, LOF, Contrast, IForest, Mahalanobis
from rows import extremes

DETECTORS = {
    "knn": KNN(n_neighbors=3),
    "scaled knn": KNN(n_neighbors=3, scale="robust"),
    "lof": LOF(n_neighbors=3),
    "kde": KDE(),
    "scaled kde": KDE(scale="robust"),
    "iforest": IForest(n_estimators=10, max_samples=6, random_state=0),
    "inne": INNE(n_estimators=10, max_samples=6, random_state=0),
    "contrast": Contrast(n_neighbors=1),
    "mahalanobis": Mahalanobis(),
    "scaled mahalanobis": Mahalanobis(scale="robust"),
    "shrunk mahalanobis": Mahalanobis("auto", "robust"),
    "directional mahalanobis": Mahalanobis("auto", "direction"),
    "auto": "auto",
}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def test_what_is_counted():
    assert excess([1 / 3, 2 / 3, 1.0]) == 0
    assert excess([1 / 3, 1 / 3, 1.0]) > 0
    assert excess([0.5, 1.0, 0.5, 1.0], groups=["a", "a", "b", "b"]) == 0
    assert excess([0.5, 1.0, 1.0], weights=[2, 1, 1]) == 0
    assert excess([0.5, 1.0, 1.0], weights=[2, 1, 0]) > 0
    assert mean_e([2.0, 0.0], weights=[1, 3]) == 0.5


@pytest.mark.parametrize("kind", ["one size", "columns", "rows", "cells", "far", "fill"])
@pytest.mark.parametrize("name", DETECTORS)
def test_numbers_of_any_size_make_no_p_value_too_small(name, kind, rng):
    """From 1e-300 to 1e300, mixed: whatever overflows, P(p <= t) <= t for every t."""
    for _ in range(1 if name == "auto" else 3):
        E = extremes(kind, rng, (12, int(rng.integers(1, 4))))

        def judge(D, new, E=E):
            cad = ConformalDetector(DETECTORS[name], "full", random_state=0).fit(E[D])
            return cad.p_values(E[[new]])[0]

        assert excess(judged(judge, len(E))) <= 0


def test_the_guard_of_contrast_in_all_worlds():
    """Other new rows are the same in all worlds, near copies of each other among them."""
    rng = np.random.default_rng(1)
    E, others = rng.normal(size=(18, 2)), np.repeat(rng.normal(size=(3, 2)), 2, axis=0)
    others += 1e-3 * rng.normal(size=others.shape)

    def judge(D, new):
        cad = ConformalDetector(Contrast(n_neighbors=1), "full").fit(E[D])
        found = cad.discover(np.vstack([E[[new]], others]), fdr=0.5, validity="proven")
        return found.p_values[0], found.e_values[0]

    p, e = judged(judge, len(E)).T
    assert excess(p) <= 0
    assert mean_e(e) <= 1 + 1e-12


@pytest.mark.parametrize("name", ["shrunk mahalanobis", "directional mahalanobis", "auto"])
def test_wide_rows_in_all_worlds(name):
    """Ridges and scales are learned from the pool; certified lists have e-values of mean 1."""
    rng = np.random.default_rng(3)
    relation = rng.normal(size=(3, 40))
    for copies in (0, 3):
        E, others = (rng.normal(size=(k, 3)) @ relation + rng.normal(size=(k, 40)) for k in (15, 6))
        E[:copies], others[:3] = E[3 : 3 + copies], rng.normal(size=40) + others[:3]
        others[4] = E[7]

        def judge(D, new, E=E, others=others):
            detectors = name if name == "auto" else ["knn", DETECTORS[name]]
            cad = ConformalDetector(detectors, "full", random_state=0).fit(E[D])
            found = cad.discover(np.vstack([others, E[[new]]]), fdr=0.5, validity="proven")
            return found.p_values[-1], found.e_values[-1]

        p, e = judged(judge, len(E)).T
        assert excess(p) <= 0
        assert mean_e(e) <= 1 + 1e-12


def test_known_weights_in_all_worlds():
    """A world is as likely as the weight of its new row."""
    rng = np.random.default_rng(2)
    E, w = rng.normal(size=(18, 2)), rng.integers(1, 6, 18).astype(float)

    def judge(D, new):
        cad = ConformalDetector("knn", "full").fit(E[D])
        weights = Weights(w[D], w[[new]])
        found = cad.discover(E[[new]], fdr=0.5, validity="proven", weights=weights)
        return found.p_values[0], found.e_values[0]

    p, e = judged(judge, len(E)).T
    assert excess(p, weights=w) <= 2.0**-30  # weights are rounded to 32 bits
    assert mean_e(e, weights=w) <= 1 + 2.0**-30
