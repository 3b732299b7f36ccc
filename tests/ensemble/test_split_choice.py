"""The choice from the pool on a split: symmetric, exact, the same however the rows come."""

import pickle
from collections import Counter
from functools import reduce
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import reconform.ensemble.split_choice as module
from reconform import ConformalDetector, Split, Weights
from reconform.detectors import KNN, Auto
from reconform.ensemble import surveyed
from reconform.ensemble.split_choice import CLASSIFIERS, ChoiceSurvey, evidence_of

FEW = ["knn", "mahalanobis"]


def rows_with_anomalies(n=1_200, m=500, seed=0):
    """Anomalies in a column that the others drown, unless columns are rescaled."""
    rng = np.random.default_rng(seed)
    D, new = rng.normal(size=(n, 3)), rng.normal(size=(m, 3))
    new[: m // 10, 0] += 6
    return D * [1, 100, 100], new * [1, 100, 100]


@pytest.fixture
def learning(monkeypatch):
    """Classifiers on few rows."""
    monkeypatch.setattr(module, "ENOUGH_TO_LEARN", 4)
    monkeypatch.setattr("reconform.detectors.auto.ENOUGH_TO_LEARN", 4)


def by_definition(held, pool, m, n):
    """The evidence, written down row by row."""
    held, total, found = sorted(held), len(pool), []
    for level in (0.05, 0.1, 0.2):
        best = 0.0
        for k, score in enumerate(held, start=1):
            expected = total * k / (len(held) + 1)
            excess = sum(one < score for one in pool) - expected
            excess -= (expected * (1 + total / len(held))) ** 0.5
            false = expected * m / (n + m)  # of the new rows
            if false <= level * (excess + false) * (1 + 1e-12):
                best = max(best, excess)
        found.append(best)
    return sum(found) / 3


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 60), st.integers(1, 60))
def test_evidence_is_the_definition(seed, s, n, m):
    rng = np.random.default_rng(seed)
    held, pool = rng.integers(0, 20, s) * 1.0, rng.integers(0, 20, n + m) * 1.0
    pool[: rng.integers(0, m + 1)] -= 30
    values, counts = np.unique(pool, return_counts=True)
    got = evidence_of(held, values, counts, m / (n + m))
    assert got == pytest.approx(by_definition(held, pool, m, n), abs=1e-9)


def worlds_of(choice, X, m):
    """All ways to say which m rows of the pool are new: their choice, scores and ranks."""
    for new in combinations(range(len(X)), m):
        old = [i for i in range(len(X)) if i not in new]
        one = type(choice)(
            choice.calibration, choice.names, choice.fitted, choice.tried, choice.trained,
            choice.selecting, X[old], choice.seed,
        )  # fmt: skip
        for fitted in one.fitted:
            scores = fitted.full_scores(X[old])
            fitted.calibration = type(fitted.calibration)(
                scores, np.arange(len(old)), np.arange(len(old) + 1), np.zeros(len(old), np.int32)
            )
        done = surveyed(one.survey(), lambda begun, new=new: begun.seen(X[list(new)]))
        yield list(new), old, done, done.ranks(X[list(new)])


@pytest.mark.parametrize("classifier", [False, True])
@pytest.mark.parametrize("values", [3, 10**6], ids=["ties", "no ties"])
def test_all_assignments_give_one_choice_and_one_score_per_row(classifier, values, learning):
    """And BH at 1/2 has a false discovery rate of at most 1/2: all of it is enumerated."""
    rng = np.random.default_rng(values)
    D = rng.integers(0, values, size=(28, 2)) * 1.0
    cad = ConformalDetector(Auto(FEW, classifier=classifier), "split", random_state=0).fit(D)
    assert len(cad.ensemble_.names) == 2 + 2 * classifier
    X = rng.integers(0, values, size=(8, 2)) * 1.0
    seen, false, ranks_of_first, worlds = set(), 0.0, Counter(), 0
    for new, old, done, ranks in worlds_of(cad.ensemble_, X, 3):
        scores = np.empty(8)
        scores[new], scores[old] = ranks.scores, done.against
        seen.add((done.chosen, scores.tobytes()))
        p = np.sort(ranks.at_most) / 6
        false += float((p <= 0.5 * np.arange(1, 4) / 3).any())  # all are normal: any is false
        ranks_of_first.update(ranks.at_most.tolist())
        worlds += 1
    assert len(seen) == 1
    assert false <= 0.5 * worlds
    for r in range(1, 7):
        assert sum(ranks_of_first[k] for k in range(1, r + 1)) <= r / 6 * 3 * worlds


def test_the_size_of_the_sample_does_not_matter_for_symmetry(learning, monkeypatch, rng):
    for name, most in (("MOST_SAMPLED", 7), ("MOST_LEARNED", 5), ("MOST_CELLS", 14)):
        monkeypatch.setattr(module, name, most)
    D, X = rng.normal(size=(40, 2)), rng.normal(size=(8, 2))
    cad = ConformalDetector(Auto(FEW, classifier=True), "split", random_state=0).fit(D)
    worlds = worlds_of(cad.ensemble_, X, 2)
    seen = {(done.chosen, tuple(done.pool[0].ravel())) for _, _, done, _ in worlds}
    assert (len(seen), len(next(iter(seen))[1])) == (1, 14)


def test_order_parts_and_threads_do_not_matter(rng):
    D, new = rows_with_anomalies()
    cad = ConformalDetector("auto", "split", random_state=0, n_jobs=1).fit(D)
    found = cad.discover(new)
    assert len(found.choice) == len(cad.ensemble_.names) == 11
    order, place = rng.permutation(len(D)), rng.permutation(len(new))
    other = ConformalDetector("auto", "split", random_state=0, n_jobs=2).fit(D[order])
    again = other.discover(new[place])
    assert again.choice == found.choice
    assert np.array_equal(again.p_values, found.p_values[place])
    assert np.array_equal(again.scores, found.scores[place])
    parts = np.array_split(np.arange(len(new)), [3, 3, 77, 300])
    done = surveyed(
        cad.ensemble_.survey(),
        lambda begun: reduce(
            ChoiceSurvey.merge,
            [pickle.loads(pickle.dumps(begun.seen(new[part]))) for part in parts if len(part)],
        ),
    )
    sent = pickle.loads(pickle.dumps(done))
    for part in parts:
        assert np.array_equal(sent.ranks(new[part]).scores, found.scores[part])


def test_what_was_chosen_is_said_for_all_rows():
    D, new = rows_with_anomalies()
    cad = ConformalDetector(["knn", KNN(scale="robust")], "split", random_state=0).fit(D)
    found = cad.discover(new)
    first, other = found.choice
    assert (first.name, first.rows, first.flagged) == ("scaled knn", len(new), found.count)
    assert (other.name, other.rows, other.flagged) == ("knn", 0, 0)
    assert first.evidence > 20 > other.evidence
    assert first.alone is None
    assert found.ranked_by == "Ranked by scaled knn, chosen among 2 detectors."
    assert found.guarantee.startswith("FDR proven for BH on split with the batch")
    assert "exchangeable with the reference rows given the anomalies" in found.guarantee
    assert found.mask[:50].mean() > 0.9


def test_e_values_bounds_storey_and_false_alarms_are_proven():
    D, new = rows_with_anomalies()
    cad = ConformalDetector(["knn", KNN(scale="robust")], "split", random_state=0).fit(D)
    plain = cad.discover(new)
    for options in ({"procedure": "ebh"}, {"procedure": "storey"}, {"procedure": "by"}):
        assert cad.discover(new, **options).guarantee.startswith("FDR proven")
    assert np.array_equal(cad.discover(new, validity="proven").mask, plain.mask)
    assert "at most 2, proven" in cad.discover(new, false_alarms=2).guarantee
    assert 0 < plain.fdp_bound() < 0.5


def test_weights_go_with_what_was_chosen():
    D, new = rows_with_anomalies()
    cad = ConformalDetector(["knn", KNN(scale="robust")], "split", random_state=0).fit(D)
    heavy = np.where(D[:, 1] > 0, 2.0, 1.0), np.where(new[:, 1] > 0, 2.0, 1.0)
    weights = Weights(*heavy, known=True)
    for validity in ("nominal", "proven"):
        found = cad.discover(new, weights=weights, validity=validity)
        assert found.mask[:50].mean() > 0.5
        assert np.array_equal(found.scores, cad.discover(new).scores)
    assert "FDR proven (weighted conformal selection)" in found.guarantee


def test_groups_share_one_choice():
    D, new = rows_with_anomalies()
    groups, theirs = np.arange(len(D)) % 2, np.arange(len(new)) % 2
    cad = ConformalDetector(["knn", KNN(scale="robust")], "split", random_state=0)
    found = cad.fit(D, groups=groups).discover(new, groups=theirs)
    assert (found.choice[0].name, found.choice[0].rows) == ("scaled knn", len(new))
    assert found.mask[:50].mean() > 0.9
    apart = clone(cad).set_params(group_models=True).fit(D, groups=groups)
    each = apart.discover(new, groups=theirs)
    assert sum(one.rows for one in each.choice) == len(new)


def test_classifiers_find_what_no_detector_does(rng):
    """Anomalies that lie close together where normal rows are common."""
    D, new = rng.normal(size=(6_000, 4)), rng.normal(size=(3_000, 4))
    new[:150] = 0.6 + 0.05 * rng.normal(size=(150, 4))
    cad = ConformalDetector("auto", Split(), random_state=0).fit(D)
    found = cad.discover(new)
    assert found.choice[0].name in CLASSIFIERS
    assert found.mask[:150].mean() > 0.9
    assert found.mask[150:].sum() < 0.25 * found.count
    names = ConformalDetector(Auto(classifier=False), Split(), random_state=0).fit(D)
    assert not set(CLASSIFIERS) & set(names.ensemble_.names)
