"""`method="learned"`: AdaDetect, against its definition; levels, and what breaks them."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from commands import run, run_json
from reconform import ConformalDetector, Learned, Prepare, RankCounts, ReconformError
from reconform.ensemble.batch import ContentSample, LearnedScores, Learning, folds_of
from reconform.statistics.evalues import average_e_values, closed_e_bh, conformal_e_values
from reconform.statistics.ranks import Calibration

NOTHING = Calibration(np.empty(0), np.empty(0, int), np.zeros(1, int), np.empty(0, np.int32))


def data(n=200, m=60, d=2, anomalies=6, seed=0):
    rng = np.random.default_rng(seed)
    D, T = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    T[:anomalies] += 4
    return D, T


def scores_of(trained, calibrating, new, method, seed=0):
    """Scores of calibration and new rows, as one array."""
    classifier = Learning(method).classifier()
    seed = np.random.SeedSequence(seed)
    learned = LearnedScores(classifier, trained, calibrating, NOTHING, method, seed)
    ranks = learned.batch_ranks(new)
    return np.concatenate([ranks.against, ranks.scores])


def test_p_values_are_those_of_the_definition():
    """One classifier, all rows: the training part is 0, calibration and new rows are 1."""
    D, T = data()
    method = Learned(LogisticRegression(), folds=1)
    cad = ConformalDetector(method=method, random_state=3).fit(D)
    found = cad.discover(T)
    train, held = cad.plan_.train[0], cad.plan_.held_out[0]
    X = np.vstack([D[train], D[held], T])
    y = [0] * len(train) + [1] * (len(held) + len(T))
    normal = LogisticRegression().fit(X, y).predict_proba(X)[:, 0]
    own, new = normal[len(train) : -len(T)], normal[-len(T) :]
    expected = [(1 + sum(c <= s + 1e-9 for c in own)) / (len(held) + 1) for s in new]
    assert found.p_values == pytest.approx(expected)


def test_a_row_is_scored_by_a_classifier_that_has_not_seen_its_fold():
    D, T = data()
    T[7] = D[11]
    method = Learned(KNeighborsClassifier(3), folds=4)
    seed = np.random.SeedSequence(5)
    learned = LearnedScores(method.classifier, D[:90], D[90:], NOTHING, method, seed)
    survey = learned.survey()
    survey = survey.merge(survey.seen(T))
    union = np.vstack([D[90:], T])
    folds = folds_of(union, survey._fold_stream, 4)
    assert set(folds) == {0, 1, 2, 3}
    for i in range(0, len(union), 9):
        others = union[folds != folds[i]]
        X, y = np.vstack([D[:90], others]), [0] * 90 + [1] * len(others)
        expected = -KNeighborsClassifier(3).fit(X, y).predict_proba(union[[i]])[0, 1]
        assert survey.scores(union[[i]])[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    "method",
    [
        Learned(DecisionTreeClassifier(), folds=1),
        Learned(DecisionTreeClassifier(), folds=3, most_rows=25),
        Learned(RandomForestClassifier(5), most_rows=40),
        Learned(LinearSVC()),
    ],
)
def test_scores_belong_to_rows_and_not_to_places(method):
    """Calibration and new rows that change places take their scores along, copies included."""
    D, T = data(n=80, m=30)
    D[50] = T[3] = D[45]
    union, rng = np.vstack([D[40:], T]), np.random.default_rng(1)
    before = scores_of(D[:40], union[:40], union[40:], method)
    assert before[5] == before[10] == before[43]
    for _ in range(3):
        order = rng.permutation(len(union))
        moved = union[order]
        after = scores_of(D[:40], moved[:40], moved[40:], method)
        assert after == pytest.approx(before[order], abs=1e-12)


def test_every_choice_of_new_rows_gives_the_level_exactly():
    """Among 8 normal rows, all 70 choices of 4 new ones: the mean is at most q, exactly."""
    rng = np.random.default_rng(2)
    trained, union = rng.normal(size=(8, 2)), rng.normal(size=(8, 2))
    method, found = Learned(LogisticRegression(), folds=1, most_rows=6), 0
    for chosen in combinations(range(8), 4):
        rest = [i for i in range(8) if i not in chosen]
        scores = scores_of(trained, union[rest], union[list(chosen)], method)
        ranks = 1 + (scores[:4] <= scores[4:, None]).sum(axis=1)
        found += RankCounts(4, "").add(ranks).decide(0.4).count > 0
    assert 0 < found / 70 <= 0.4


def test_a_sample_by_content_is_a_function_of_the_multiset(rng):
    """In any order and in any parts; memory holds no more contents than were asked for."""
    X = np.vstack([rng.normal(size=(300, 2)), rng.integers(0, 3, size=(200, 2)).astype(float)])
    X[7], X[8] = [0.0, -0.0], [-0.0, 0.0]
    whole = ContentSample(11, 50)
    whole.add(X)
    parts = ContentSample(11, 50)
    for part in np.array_split(X[rng.permutation(len(X))], 37):
        parts.add(part)
        assert len(parts._rows) <= 50
    assert (whole.rows == parts.rows).all()
    assert whole.rows.shape == (50, 2)
    everything = ContentSample(11, 1000)
    everything.add(X)
    assert sorted(map(tuple, everything.rows)) == sorted(map(tuple, X + 0.0))


def test_missing_values_are_contents_too():
    X = np.array([[np.nan, 1.0], [2.0, np.nan], [np.nan, 1.0]])
    sample = ContentSample(3, 10)
    for row in X:
        sample.add(row[None])
    assert (len(sample.rows), len(np.unique(np.isnan(sample.rows), axis=0))) == (3, 2)
    D, T = data()
    D[5, 1] = T[3, 0] = np.nan  # trees take them
    cad = ConformalDetector(method=Learned(DecisionTreeClassifier()), random_state=0).fit(D)
    assert len(cad.discover(T)) == len(T)


def test_all_that_is_proven_of_a_split():
    D, T = data(n=600, m=150, anomalies=30)
    cad = ConformalDetector(method=Learned(LogisticRegression()), random_state=0).fit(D)
    found = cad.discover(T, validity="proven")
    assert found.mask[:30].sum() > 20
    assert set(cad.guarantee_.proven) >= {"bh", "by", "storey", "ebh"}
    assert cad.discover(T, procedure="storey").count >= found.count
    assert (cad.discover(T, procedure="ebh").mask == found.mask).all()
    assert 0 <= found.fdp_bound() < 1
    assert "is little" in found.warning


def test_repeats_average_e_values():
    D, T = data(n=300, m=80, anomalies=12)
    method = Learned(LogisticRegression(), repeats=3)
    cad = ConformalDetector(method=method, random_state=0).fit(D)
    assert cad.guarantee_.name == "repeated learned"
    ranks = cad.rank(T, together=True)
    every = [conformal_e_values(one.against, one.scores, 0.05) for one in ranks.splits]
    found = cad.discover(T, fdr=0.1, procedure="ebh")
    assert (found.mask == closed_e_bh(average_e_values(every), 0.1)).all()
    assert found.count
    halves = np.sort([one.at_most for one in ranks.splits], axis=0)[1]
    assert (ranks.at_most == np.minimum(2 * halves, 151)).all()
    with pytest.raises(ReconformError, match="fdp_bound"):
        cad.discover(T).fdp_bound()


@pytest.mark.parametrize("repeats", [1, 2])
def test_a_row_of_a_list_is_explained(repeats):
    D, T = data()
    method = Learned(LogisticRegression(), repeats=repeats)
    cad = ConformalDetector(method=method, random_state=0).fit(D)
    told = cad.discover(T).explain(0)
    assert "ranked by a classifier that learned from the batch" in str(told)


def test_the_classifier_gets_prepared_rows(here, rng):
    """Text and missing values: as for any other method, and without a word about detectors."""
    frame = pd.DataFrame({"x": rng.normal(size=900), "kind": rng.choice(["a", "b"], 900)})
    frame.loc[::9, "x"] = np.nan
    frame.loc[880:, "kind"] = "z"
    normal, new = frame.iloc[:700], frame.iloc[700:]
    cad = ConformalDetector(Prepare("auto"), "learned", random_state=0).fit(normal)
    found = cad.discover(new, 0.2)
    assert found.mask[-20:].sum() >= 15
    assert found.count < 40
    normal.to_csv("normal.csv", index=False)
    new.to_csv("new.csv", index=False)
    asked = ["detect", "normal.csv", "new.csv", "--method", "learned", "--fdr", "0.2"]
    assert run_json(*asked)["flagged"] == found.count
    refused = run(*asked, "--detector", "sklearn:OneClassSVM", code=1).stderr
    assert "takes no detector; leave --detector out (got " in refused
    assert len(refused) < 300


def test_what_cannot_learn_is_refused_with_a_sentence():
    D, _ = data()
    with pytest.raises(ReconformError, match="takes no detector"):
        ConformalDetector("knn", method="learned").fit(D)
    for wrong in (LogisticRegression, object(), "forest"):
        with pytest.raises(ReconformError, match="classifier must be a scikit-learn classifier"):
            ConformalDetector(method=Learned(wrong)).fit(D)
    with pytest.raises(ReconformError, match="folds"):
        ConformalDetector(method=Learned(folds=0)).fit(D)
