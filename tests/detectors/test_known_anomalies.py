"""Known anomalies from elsewhere: they shape scores and choices, and leave the level intact."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from reconform import ConformalDetector, Learned, ReconformError
from reconform.detectors import Contrast
from reconform.methods import BySize
from refusals import refused


def data(n=200, m=60, few=3, seed=0):
    """Normal rows; new rows of which a few are alike and not far away; known ones like these."""
    rng = np.random.default_rng(seed)
    D, T = rng.normal(size=(n, 3)), rng.normal(size=(m, 3))
    T[:few] = 1.6 + 0.02 * rng.normal(size=(few, 3))
    return D, T, 1.6 + 0.02 * rng.normal(size=(12, 3))


def literal_contrast(D, T, A, k):
    """p-values by the definition: known anomalies stand beside the other new rows."""

    def kth(e, rows):
        return sorted(float(np.sqrt(((e - r) ** 2).sum())) for r in rows)[k - 1]

    def score(e, own, others):
        far, near = kth(e, own), kth(e, others)
        return np.log(near) - 2 * np.log(far)

    p = []
    for j, x in enumerate(T):
        E = [*D, x]
        others = [*np.delete(T, j, axis=0), *A]
        scores = [score(e, E[:i] + E[i + 1 :], others) for i, e in enumerate(E)]
        p.append(sum(s <= scores[-1] + 1e-12 for s in scores) / len(E))
    return p


def test_contrast_with_anomalies_is_what_the_definition_says():
    D, T, A = data(n=25, m=12, few=2)
    cad = ConformalDetector(Contrast(n_neighbors=2), method="full").fit(D, anomalies=A)
    every, rows = np.vstack([T, A]), np.arange(len(T))
    ranks = cad.ensemble_.inner.rank_batch(every, rows, np.empty((0, 25)), False)
    expected = literal_contrast(D, T, A, 2)
    assert (ranks.at_most / 26, len(cad.discover(T))) == (pytest.approx(expected), len(T))


def test_the_promise_says_that_they_are_independent():
    D, T, A = data()
    said = ", and the known anomalies are independent of the reference and of normal new rows."
    learned = Learned(LogisticRegression(), repeats=2)
    for cad in (
        ConformalDetector("contrast", method="full"),
        ConformalDetector(["knn", "lof"], method="split", random_state=0),
        ConformalDetector(method=learned, random_state=0),
    ):
        for procedure in ("by", "bh"):
            told = cad.fit(D, anomalies=A).discover(T, procedure=procedure).claim.full
            assert (said in told) == ("not proven" not in told)
        claim = cad.discover(T, false_alarms=1).claim
        assert said in claim.full
        assert "the known anomalies are independent" in claim.promise("1")
        assert "known anomalies" in str(cad.guarantee_)
        assert "known anomalies" not in cad.fit(D).discover(T, procedure="by").claim.full


def test_rows_like_known_anomalies_are_found():
    """Three new rows that are alike hide among their neighbours; beside known ones they do not."""
    D, T, A = data()
    for anomalies, found in ((None, 0), (A, 3)):
        cad = ConformalDetector("contrast", method="full").fit(D, anomalies=anomalies)
        assert (cad.discover(T, fdr=0.3).mask[:3].sum(), cad.n_calibration_) == (found, len(D))
        proven = cad.discover(T, fdr=0.3, validity="proven")
        assert proven.count <= cad.discover(T, fdr=0.3).count
    method = Learned(LogisticRegression(), folds=2)
    scores = []
    for anomalies in (None, A):
        cad = ConformalDetector(method=method, random_state=0).fit(D, anomalies=anomalies)
        scores.append(cad.discover(T).p_values[:3].mean())
    assert scores[1] < scores[0]


def test_known_anomalies_speak_for_the_detector_that_finds_them(rng):
    """A detector that the new rows say nothing of is chosen by the known ones."""
    D, T = rng.normal(size=(300, 2)), rng.normal(size=(60, 2))
    for rows in (D, T):
        rows[:, 1] *= 1000  # drowns the first column, unless rows are rescaled
    T[0, 0] = 6
    A = np.column_stack([rng.normal(8, 1, size=40), 1000 * rng.normal(size=40)])
    for method in ("full", "split"):
        chosen = []
        for anomalies in (None, A):
            cad = ConformalDetector(["knn", "mahalanobis"], method=method, random_state=1)
            choice = cad.fit(D, anomalies=anomalies).rank(T, together=True).choice
            chosen.append(set(choice.chosen.tolist()))
        assert chosen == [{0}, {1}], method


def test_anomalies_of_the_reference_are_refused():
    D, _, A = data()
    learned = ConformalDetector(method=Learned(LogisticRegression()))
    for cad in (ConformalDetector("contrast", method="full"), learned):
        with pytest.raises(ReconformError, match=r"1 row that is also in the reference, row 13 of"):
            cad.fit(D, anomalies=np.vstack([A, D[5:6]]))


@pytest.mark.parametrize("detector", ["contrast", ["knn", "lof"], "learned"], ids=str)
def test_a_known_anomaly_may_come_again(detector):
    """A schedule does not end because a fault has the values of one that is known."""
    D, T, A = data()
    T[7] = A[0]
    method = "learned" if detector == "learned" else "auto"
    cad = ConformalDetector("auto" if method == "learned" else detector, method, random_state=0)
    assert len(cad.fit(D, anomalies=A).discover(T)) == len(T)


def test_what_looks_at_no_anomalies_refuses_them():
    D, _, A = data()
    for detector, method in (("knn", "full"), ("iforest", "jab+"), ("knn", "batch")):
        refused("does not use them", ConformalDetector(detector, method=method).fit, D, anomalies=A)
    refused("features", ConformalDetector("contrast", method="full").fit, D, anomalies=A[:, :2])


def test_a_very_large_batch_keeps_them(monkeypatch):
    """Where auto takes a split for many rows, it is fitted with the anomalies, too."""
    D, T, A = data()
    cad = ConformalDetector(["knn", "lof"], random_state=0).fit(D, anomalies=A)
    monkeypatch.setattr(BySize, "most_rows", lambda self, n: 10)
    suited = cad.for_rows(len(T))
    assert (suited.plan_.scheme, suited.ensemble_.anomalies.tolist()) == ("split", A.tolist())
