"""`method="batch"`: one fit on the reference and all new rows; against its definition, and levels.

The definition is written out with loops. Given the rows as one set, with all rows normal, every
choice of the new ones is equally likely: for small sets all choices are gone through, so that the
level of a list is a fraction and no estimate.
"""

from collections import Counter
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from reconform import Batch, ConformalDetector, Learned, RankCounts, Rule, save
from reconform.detectors import KNN
from reconform.detectors.knn.search import neighbours_among
from reconform.stream import FalseAlarmBudget
from refusals import refused

NATIVE = ("knn", "lof", "mahalanobis", "kde", "iforest", "inne")


def data(n=60, m=30, d=2, anomalies=4, seed=0):
    rng = np.random.default_rng(seed)
    D, T = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    T[:anomalies] += 6
    return D, T


def literal_knn(D, T, k):
    """p-values as fractions: the distance to the k-th nearest other row of both sets."""
    pool = [tuple(row) for row in np.vstack([D, T])]

    def score(i):
        pairs = (zip(pool[i], pool[j], strict=True) for j in range(len(pool)) if j != i)
        gaps = sorted(sum((a - b) ** 2 for a, b in pair) for pair in pairs)
        return -gaps[k - 1]

    scores = [score(i) for i in range(len(pool))]
    own, new = scores[: len(D)], scores[len(D) :]
    return [Fraction(1 + sum(c <= s for c in own), len(D) + 1) for s in new]


def test_p_values_are_those_of_the_definition():
    D, T = data()
    T[5] = D[7]  # an equal row in both sets: a tie, whoever is new
    found = ConformalDetector("knn", method="batch").fit(D).discover(T)
    k = neighbours_among(5, len(D), len(T))
    assert k == 6
    assert found.p_values.tolist() == [float(p) for p in literal_knn(D, T, k)]


def test_neighbours_never_become_fewer():
    D, T = data()
    found = ConformalDetector(KNN(n_neighbors=9), method=Batch()).fit(D).discover(T)
    assert found.p_values.tolist() == [float(p) for p in literal_knn(D, T, 9)]


@pytest.mark.parametrize("detector", NATIVE)
def test_scores_belong_to_rows_and_not_to_places(detector):
    """Rows of the reference and new rows that change places take their scores along."""
    D, T = data()
    D[3] = T[8] = D[0]
    pool, rng = np.vstack([D, T]), np.random.default_rng(1)

    def scores(pool):
        cad = ConformalDetector(detector, method="batch", random_state=3).fit(pool[: len(D)])
        ranks = cad.rank(pool[len(D) :], together=True)
        return np.concatenate([ranks.against, ranks.scores])

    before = scores(pool)
    assert before[0] == before[3] == before[len(D) + 8]
    for _ in range(3):
        order = rng.permutation(len(pool))
        assert (scores(pool[order]) == before[order]).all()


def _fickle(X):
    """A symmetric detector of the worst kind: which rows look unusual is a hash of all of them."""
    total = X.sum()
    return lambda Z: np.sin(1e4 * total * (1 + Z[:, 0]))


@pytest.mark.parametrize("detector", ["knn", _fickle])
@pytest.mark.parametrize("q", [Fraction(1, 5), Fraction(1, 3), Fraction(1, 2)])
def test_every_choice_of_new_rows_gives_the_level_exactly(detector, q):
    """The mean over all 126 choices of 4 new rows among 9 normal ones is at most q, exactly."""
    rows = np.random.default_rng(5).normal(size=(9, 1))
    larger_is = None if detector == "knn" else "normal"
    lists, count = Counter(), 0
    for chosen in combinations(range(9), 4):
        rest = [i for i in range(9) if i not in chosen]
        cad = ConformalDetector(detector, method="batch", larger_is=larger_is).fit(rows[rest])
        ranks = cad.rank(rows[list(chosen)], together=True)
        counts = RankCounts(cad.n_calibration_, "").add(ranks.at_most)
        for rule in (Rule(fdr=q), Rule(fdr=q, procedure="storey")):
            found = rule.decide_counts(counts, rule.grid(cad, together=True)).count
            lists[rule.procedure] += found > 0
        count += 1
    assert count == 126
    # All rows are normal: a list that is not empty is all false.
    assert 0 < Fraction(lists["bh"], count) <= q
    assert Fraction(lists["storey"], count) <= q


@pytest.mark.parametrize("name", ["ecod", "copod"])
def test_detectors_that_rank_a_batch_against_itself_are_legal(name):
    module = pytest.importorskip(f"pyod.models.{name}", reason="needs reconform[pyod]")
    detector = getattr(module, name.upper())()
    D, T = data(anomalies=5)
    refused("depends on the other rows", ConformalDetector(detector, method="split").fit, D)
    found = ConformalDetector(detector, method="batch").fit(D).discover(T, fdr=0.2)
    assert found.mask[:5].all()
    assert "proven for BH on batch" in found.guarantee


def test_all_that_is_proven_of_a_split():
    D, T = data(n=200, m=60, anomalies=6)
    cad = ConformalDetector("knn", method="batch").fit(D)
    assert set(cad.guarantee_.proven) >= {"bh", "by", "storey", "ebh"}
    found = cad.discover(T, validity="proven")
    assert found.mask[:6].all()
    assert cad.discover(T, procedure="storey", validity="proven").count >= found.count
    assert (cad.discover(T, procedure="ebh").mask == found.mask).all()
    assert cad.discover(T, procedure="ebh", alpha_bh=0.05).mask[:6].all()
    assert 0 <= found.fdp_bound(confidence=0.9) < 1
    alarms = cad.discover(T, false_alarms=1).guarantee
    assert "proven for batch, if normal new rows are exchangeable" in alarms
    # e-values are made of the scores of the reference beside this batch, not without it
    assert found.provenance.calibration_scores.tolist() != cad.calibration_.scores.tolist()


def test_anomalies_that_resemble_each_other_are_looked_beyond_and_warned_of(rng):
    D, T = rng.normal(size=(300, 3)), rng.normal(size=(100, 3))
    T[:12] = 4 + 0.01 * rng.normal(size=(12, 3))
    found = ConformalDetector("knn", method="batch").fit(D).discover(T)
    assert found.mask[:12].all()
    T[:40] = 4 + 0.01 * rng.normal(size=(40, 3))  # more than a fifth
    hidden = ConformalDetector("knn", method="batch").fit(D).discover(T)
    assert not hidden.mask[:40].any()
    assert "anomalies that resemble each other" in hidden.warning


@pytest.mark.parametrize("method", ["batch", Learned(LogisticRegression())], ids=str)
@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda cad, X: cad.p_values(X), "a row by itself has no p-value"),
        (lambda cad, X: cad.predict(X), "a row by itself has no p-value"),
        (lambda cad, X: cad.rank_counts(X), "the counts of batches are merged"),
        (lambda cad, X: cad.threshold(), "threshold needs one model"),
        (lambda cad, X: cad.discover(X, conditional="simes"), "known before new rows are"),
        (lambda cad, X: save(cad, "never-written.rcad"), "no model exists that could be saved"),
    ],
)
def test_what_has_no_meaning_is_refused_with_a_sentence(method, ask, said):
    D, T = data()
    cad = ConformalDetector("knn" if method == "batch" else "auto", method=method).fit(D)
    refused(said, ask, cad, T)


def test_streams_clusters_and_choices_are_refused():
    D, _ = data()
    cad = ConformalDetector("knn", method="batch").fit(D)
    refused("a stream is judged row by row, and `method='batch'`", FalseAlarmBudget, cad)
    for detector in ("auto", "contrast"):
        refused("`method='full'` only", ConformalDetector(detector, method="batch").fit, D)


def test_prepared_rows_with_labels_that_only_new_rows_have(rng):
    """Two labels that the reference lacks are told apart, as two labels of the reference are."""
    import pandas as pd

    from reconform import Prepare

    def frame(labels):
        return pd.DataFrame({"x": rng.normal(size=len(labels)), "kind": labels})

    D = frame(["a", "b"] * 30)
    T = frame(["a"] * 20 + ["new one", "new two"])
    pool = pd.concat([D, T], ignore_index=True)
    scores = []
    for order in (np.arange(82), np.r_[np.arange(58), 80, 81, np.arange(60, 80), 58, 59]):
        rows = pool.iloc[order].reset_index(drop=True)
        cad = ConformalDetector(Prepare("knn"), method="batch").fit(rows[:60])
        ranks = cad.rank(rows[60:], together=True)
        placed = np.empty(82)
        placed[order] = np.concatenate([ranks.against, ranks.scores])
        scores.append(placed)
    assert scores[0].tolist() == scores[1].tolist()
