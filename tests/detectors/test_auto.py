"""A choice of detectors: against its definition, in all worlds, and over many null batches.

The rule, literally: for new row j let E be the reference rows and x_j. Every candidate is fitted on
E, and its evidence is the number of rows that Benjamini-Hochberg finds if the p-value of another
new row is its rank among E over n + 1, and that of x_j is 0, added up over four levels.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import IsolationForest
from sklearn.svm import OneClassSVM

import oracle
from oracle import all_augmented_scores
from oracle_detectors import is_clustered, score
from reconform import ConformalDetector, CrossValidation, Full, Split
from reconform.detectors import INNE, KDE, KNN, LOF, Auto, Contrast, IForest, Mahalanobis
from reconform.detectors.auto import names_of
from reconform.detectors.base import NativeDetector
from reconform.detectors.contrast import FullContrast
from reconform.detectors.one_more import on_grid
from reconform.detectors.scaled import algorithm_of
from reconform.ensemble import choosing as ensembles
from reconform.ensemble.choosing import FullChoice, choose, stands_first
from reconform.ensemble.refitting import OneModel
from reconform.errors import ReconformError
from reconform.methods import MOST_PAIRS, MOST_REFERENCE, BySize
from reconform.models import load, save
from refusals import refused

SEED = np.random.SeedSequence(20261116)
LEVELS = [Fraction(level, 100) for level in (5, 10, 15, 20)]


# --- the definition ------------------------------------------------------------------------------


def evidence_of(own, others):
    """What Benjamini-Hochberg finds among the others and a row of p-value 0, over the levels."""
    p = [Fraction(0), *(Fraction(sum(e <= s for e in own), len(own)) for s in others)]
    return sum(sum(oracle.benjamini_hochberg(p, level)) for level in LEVELS)


def chosen_by(evidence, first):
    """The first candidate, unless others find more by 5/4 of the root of what it finds and 16."""
    best, most = first, 0
    for k, found in enumerate(evidence):
        gain = Fraction(found - evidence[first], 4)  # on average over four levels
        clear = gain > 0 and gain**2 > Fraction(25, 16) * (Fraction(evidence[first], 4) + 16)
        if clear and gain > most:
            best, most = k, gain
    return best


def in_units_of_the_pool(detector, D, new):
    """The detector for rows in the units of all rows together, and these rows."""
    ways = detector._units()
    if ways is None:
        return detector, D, new
    units = ways.of(np.vstack([D, new]))
    return ways.plain(units), ways.measure(D, units), ways.measure(new, units)


def refitted(detector, D, new, j):
    """Scores of E, x_j last, and of the other new rows, by a fit on E."""
    detector, D, new = in_units_of_the_pool(detector, D, new)
    if isinstance(detector, Contrast):
        return by_contrast(detector, D, new, j)
    (augmented,) = OneModel(algorithm_of(detector), D, SEED).augmented_scores(new, np.array([j]))
    own, others = augmented.own[0], np.delete(augmented.others[0], j)
    if isinstance(detector, (KDE, Mahalanobis)):  # equal but for rounding is equal: `on_grid`
        least = 1.0 if isinstance(detector, KDE) else 0.0
        own, others = (np.array([on_grid(s, least) for s in part]) for part in (own, others))
    return own, others


def by_contrast(detector, D, new, j):
    """The same for contrast, from distances."""
    E, T, k = np.vstack([D, new[j]]), np.delete(new, j, axis=0), detector.n_neighbors
    use = len(T) >= k and not is_clustered(E, T, k)
    own = [score(E[i], np.delete(E, i, axis=0), T, (k,), use) for i in range(len(E))]
    nowhere = np.full((1, E.shape[1]), np.inf)  # where there are too few others
    rest = [np.vstack([np.delete(T, i, axis=0), nowhere]) for i in range(len(T))]
    others = [score(t, E, r, (k,), use) for t, r in zip(T, rest, strict=True)]
    return np.array(own), np.array(others)


def by_definition(candidates, D, new, first):
    """Evidence and rank of every candidate, and the choice, for every new row."""
    evidence, ranks = np.empty((2, len(candidates), len(new)), dtype=int)
    for j in range(len(new)):
        for k, detector in enumerate(candidates):
            own, others = refitted(detector, D, new, j)
            evidence[k, j] = evidence_of(own, others)
            ranks[k, j] = sum(e <= own[-1] for e in own)
    return evidence, ranks, [chosen_by(column.tolist(), first) for column in evidence.T]


CANDIDATES = [
    KNN(n_neighbors=3),
    KNN(n_neighbors=3, scale="robust"),
    IForest(n_estimators=8),
    INNE(n_estimators=8, max_samples=4),
    INNE(n_estimators=8, max_samples=4, scale="robust"),
    LOF(n_neighbors=3),
    LOF(n_neighbors=3, scale="robust"),
    Mahalanobis(),
    KDE(),
    KDE(scale="robust"),
    Contrast(n_neighbors=3),
    Contrast(n_neighbors=3, scale="robust"),
]


def cases():
    rng = np.random.default_rng(0)
    D, T = rng.normal(size=(19, 2)), rng.normal(size=(12, 2))
    units = np.array([1.0, 1000.0])
    T[:6, 0] += 9
    yield "units", D * units, T * units
    yield "anomalies", D, T + [[3.0, 0.0]] * 12
    yield "rows of the reference", D, np.vstack([D[:3], T[:7], D[:2]])
    D, T = rng.integers(0, 3, size=(18, 2)) * 1.0, rng.integers(0, 4, size=(13, 2)) * 1.0
    yield "lattice", D, T
    D, T = rng.normal(size=(20, 2)), rng.normal(size=(6, 2))
    yield "pairs", D, np.vstack([T, T + 1e-9, T])
    D[:, 1] = 3.0
    yield "constant column", D, np.column_stack([T[:, 0], [3.0, 3.0, 3.0, 3.0, 3.0, 4.0]])
    yield "constant", np.ones((12, 2)), np.vstack([np.ones((4, 2)), T[:3]])
    D = rng.normal(size=(15, 3))
    yield "one new row", D, rng.normal(size=(1, 3)) * 4
    yield "two new rows", D, rng.normal(size=(2, 3)) * 4
    yield "one more new row than neighbours", D, rng.normal(size=(4, 3)) * 2
    yield "four reference rows", D[:4], rng.normal(size=(9, 3)) * 2
    yield "more new rows", D[:8], rng.normal(size=(20, 3)) * 2


CASES = {name: rest for name, *rest in cases()}


def full(candidates, D, n_jobs=None):
    ensemble = Auto(candidates).fit_plan(D, Full().plan(len(D)), [SEED], n_jobs=n_jobs)
    assert isinstance(ensemble, FullChoice)
    return ensemble


@pytest.fixture
def seen(monkeypatch):
    """The evidence that choices were made by, in a list."""
    made = []

    def spy(evidence, first):
        made.append(evidence)
        return choose(evidence, first)

    monkeypatch.setattr(ensembles, "choose", spy)
    return made


@pytest.mark.parametrize("name", CASES)
def test_full_is_the_definition(name, seen):
    """Bit for bit: evidence, ranks and choices, with fits on E that share nothing."""
    D, new = CASES[name]
    evidence, ranks, chosen = by_definition(CANDIDATES, D, new, 0)
    found = full(CANDIDATES, D).batch_ranks(new, strictly=True)
    assert np.array_equal(seen[0], evidence)
    assert np.array_equal(found.choice.ranks, ranks)
    assert found.choice.chosen.tolist() == chosen
    assert found.at_most.tolist() == [ranks[k, j] for j, k in enumerate(chosen)]
    assert (found.below <= found.at_most).all()
    if name == "units":
        assert set(chosen) - {0}


def test_contrast_stands_first_in_large_batches(seen, monkeypatch):
    D, new = CASES["units"]
    monkeypatch.setattr(FullContrast, "enough_new", len(new))
    evidence, _, chosen = by_definition(CANDIDATES, D, new, 11)
    assert full(CANDIDATES, D).batch_ranks(new).choice.chosen.tolist() == chosen
    assert np.array_equal(seen[0], evidence)


def test_who_stands_first():
    assert (stands_first([None, 300, 100], 99), stands_first([None, 300, 100], 100)) == (0, 2)
    assert (stands_first([None, 300, None], 300), stands_first([None, None], 10**6)) == (1, 0)


@given(st.lists(st.lists(st.integers(4, 400), min_size=3, max_size=3), min_size=1, max_size=5))
def test_the_margin(rows):
    evidence = np.array(rows).T
    for first in range(3):
        expected = [chosen_by(row, first) for row in rows]
        assert choose(evidence, first).tolist() == expected


@pytest.mark.parametrize("name", ["units", "lattice", "pairs", "rows of the reference"])
def test_neither_the_order_of_rows_nor_threads_matter(name):
    D, new = CASES[name]
    rng = np.random.default_rng(1)
    here, there = rng.permutation(len(D)), rng.permutation(len(new))
    for method in ("full", "split"):
        candidates = [d for d in CANDIDATES if method == "full" or not d.uses_batch]
        one, other = (
            ConformalDetector(candidates, method, random_state=3, n_jobs=n) for n in (1, 2)
        )
        one.fit(D), other.fit(D[here])
        expected, got = one.discover(new, fdr=0.2), other.discover(new[there], fdr=0.2)
        assert np.array_equal(got.p_values, expected.p_values[there])
        assert np.array_equal(got.scores, expected.scores[there])
        assert got.choice == expected.choice


# --- all worlds ----------------------------------------------------------------------------------


def worlds(D, new, j):
    """Exchange x_j with every row of the reference, and with itself."""
    for w in range(len(D)):
        reference, batch = D.copy(), new.copy()
        reference[w], batch[j] = new[j], D[w]
        yield reference, batch
    yield D, new


WORLDS = {
    "smooth": (CASES["units"][0][:9] / [1.0, 9.0], CASES["units"][1][3:9] / [1.0, 9.0]),
    "lattice": (CASES["lattice"][0][:9], CASES["lattice"][1][:6]),
    "copies": (CASES["pairs"][0][:8], np.vstack([CASES["pairs"][1][:3]] * 2)),
}


@pytest.mark.parametrize("margin", [None, 0], ids=["margin", "by noise"])
@pytest.mark.parametrize("name", WORLDS)
def test_nothing_tells_which_row_is_new(name, margin, monkeypatch):
    """In all worlds of a row: the same choice and scores; so ranks are exact, by counting."""
    if margin is not None:
        monkeypatch.setattr(ensembles, "MARGIN", margin)
    D, new = WORLDS[name]
    for j in range(len(new)):
        row, others = np.array([j]), np.arange(len(new)) != j
        expected, ranks = None, []
        for reference, batch in worlds(D, new, j):
            ensemble = full(CANDIDATES, reference)
            found = ensemble.batch_ranks(batch, rows=row)
            got = [found.choice.chosen]
            for part in (*ensemble.fitted, ensemble):
                own, mine, rest = all_augmented_scores(part, batch, row)
                got += [np.sort(np.append(own, mine)), rest[:, others]]
            expected = got if expected is None else expected
            assert all(map(np.array_equal, got, expected))
            ranks.append(int(found.at_most[0]))
        for r in range(1, len(D) + 2):
            assert sum(rank <= r for rank in ranks) <= r


class WholeBatch:
    """Scores a batch by the ranks of its own rows, as ECOD does."""

    def fit(self, X):
        self.n_features_in_ = X.shape[1]
        self.training = X
        return self

    def decision_function(self, X):
        pool = np.vstack([self.training, X])
        return np.array([sum((pool <= x).sum(axis=0) * 0.1 ** np.arange(len(x))) for x in X])


def test_a_detector_that_scores_batches_does_not_see_the_new_row_among_the_others():
    D, new = WORLDS["smooth"]
    row, others = np.array([2]), np.arange(len(new)) != 2
    expected = None
    for reference, batch in worlds(D, new, 2):
        cad = ConformalDetector(WholeBatch(), "full", larger_is="normal").fit(reference)
        own, mine, rest = all_augmented_scores(cad.ensemble_, batch, row)
        got = np.sort(np.append(own, mine)), rest[:, others]
        expected = got if expected is None else expected
        assert all(map(np.array_equal, got, expected))


# --- the estimator -------------------------------------------------------------------------------


def rows_with_anomalies(seed=0):
    rng = np.random.default_rng(seed)
    D, new = rng.normal(size=(80, 2)), rng.normal(size=(30, 2))
    D[:, 1] *= 1000
    new[:, 1] *= 1000
    new[:12, 0] += 9
    return D, new


SOME = ["knn", KNN(scale="robust"), "mahalanobis", IsolationForest(n_estimators=5), OneClassSVM()]


@pytest.mark.parametrize("method", ["auto", "full", "split"])
def test_a_row_by_itself_does_not_depend_on_the_batch(method):
    D, new = rows_with_anomalies()
    cad = ConformalDetector(SOME[:3], method, random_state=0).fit(D)
    first = ConformalDetector("knn", method, random_state=0).fit(D)
    for name in ("p_values", "score_samples", "predict", "ranks"):
        together = getattr(cad, name)(new)
        assert np.array_equal(together, [getattr(cad, name)(row[None])[0] for row in new])
        assert np.array_equal(together, getattr(first, name)(new))
    found = cad.discover(new, fdr=0.1)
    ranked = cad.rank(new, together=True)
    assert np.array_equal(found.p_values, ranked.at_most / (cad.n_calibration_ + 1))
    assert not np.array_equal(found.p_values, cad.p_values(new))  # others were chosen
    assert found.mask[:12].all()


def test_too_few_rows_for_the_default_candidates():
    for method, n in (("full", 5), ("split", 12)):
        with pytest.raises(ReconformError, match=r"at least 6 rows to train them; got n_samples ="):
            ConformalDetector("auto", method, random_state=0).fit(np.eye(n))
        ConformalDetector("auto", method, random_state=0).fit(np.eye(n + 2)).discover(np.eye(n + 2))


def test_what_was_chosen_adds_up():
    D, new = rows_with_anomalies()
    cad = ConformalDetector(SOME[:3], "full").fit(D)
    for options in ({}, {"validity": "proven"}, {"procedure": "by"}):
        found = cad.discover(new, fdr=0.2, **options)
        assert sum(one.rows for one in found.choice) == len(new)
        assert sum(one.flagged for one in found.choice) == found.count
    alone = {one.name: one.alone for one in cad.discover(new, fdr=0.2).choice}
    for name, detector in zip(("knn", "scaled knn", "mahalanobis"), SOME, strict=False):
        assert alone[name] == ConformalDetector(detector, "full").fit(D).discover(new, 0.2).count


def test_candidates_of_one_class_are_told_apart():
    D, new = rows_with_anomalies()
    cad = ConformalDetector([KNN(n_neighbors=1), KNN(n_neighbors=7), "mahalanobis"], "full").fit(D)
    found = cad.discover(new, fdr=0.2)
    assert {one.name for one in found.choice} == {
        "KNN(n_neighbors=1)", "KNN(n_neighbors=7)", "mahalanobis",
    }  # fmt: skip
    assert sum(one.flagged for one in found.choice) == found.count
    assert names_of([KNN(), KNN()]) == ("KNN()", "KNN() (2)")


class Frozen(KNN):
    frozen = True


@pytest.mark.parametrize(
    ("candidates", "method", "message"),
    [
        ([], "full", "got an empty one"),
        (Auto("knn"), "full", "must be a list of detectors"),
        (["knn", "auto"], "full", "other detectors than Auto"),
        (["knn", Frozen()], "full", "is frozen"),
        (["knn", "contrast"], "split", "only `method='full'` can do"),
        (["knn", "lof"], "jackknife+", "'split'` or `method='full'"),
        (["knn", "lof"], "cv+", "'split'` or `method='full'"),
        (["knn", "lof"], "jab+", "'split'` or `method='full'"),
        (["knn", "lof"], "prefit", "method='prefit'"),
        (["knn", "lof"], Split(repeats=3), "chosen on one split"),
        (["knn", "no such"], "full", "no such"),
    ],
)
def test_what_cannot_be_chosen_from(candidates, method, message):
    D, _ = rows_with_anomalies()
    refused(message, ConformalDetector(candidates, method).fit, D)


def test_what_a_choice_on_a_split_has_no_theorem_for():
    D, new = rows_with_anomalies()
    cad = ConformalDetector(SOME[:3], "split", random_state=0).fit(D)
    for more in ({}, {"false_alarms": 2}):
        refused("known before new rows are", cad.discover, new, conditional="simes", **more)


class Slowly(NativeDetector):
    """A detector of ours without a quick way."""

    def _fit_rows(self, X, seed):
        self.centre_ = np.median(X, axis=0)

    def _score_rows(self, X):
        return -np.abs(X - self.centre_).sum(axis=1)


def test_the_method_is_chosen_by_size_alone():
    size = BySize()
    for n in (10, 999, 5_000, MOST_REFERENCE):
        most = size.most_rows(n)
        assert most * (n + most) <= MOST_PAIRS < (most + 1) * (n + most + 1)
        assert isinstance(size.method_for(n), Full)
        assert isinstance(size.method_for(n, most), Full)
        assert isinstance(size.method_for(n, most + 1), Split)
        assert isinstance(size.method_for(n, most, refits=True), CrossValidation)
        assert isinstance(size.method_for(n, most, refits=True, uses_batch=True), Split)
    assert isinstance(size.method_for(MOST_REFERENCE + 1), Split)
    for n, held in ((1_000_000, 998_000), (5_001, 3_001), (2_001, 1_001), (999, 500)):
        assert len(size.method_for(n, 10**9).plan(n, random_state=0).held_out[0]) == held
    choosing = size.method_for(1_000_000, uses_batch=True)
    for n, held in ((1_000_000, 980_000), (40_001, 20_001), (999, 500)):
        assert len(choosing.plan(n, random_state=0).held_out[0]) == held
    # What it says does not depend on what rows hold.
    D, _ = rows_with_anomalies()
    kinds = {
        "full": ("auto", ["knn", "lof"], "knn"),
        "split": (["knn", Slowly()], ["knn", IsolationForest(n_estimators=5)]),
        "cv": (Slowly(), IsolationForest(n_estimators=5)),
    }
    for scheme, detectors in kinds.items():
        for detector in detectors:
            for rows in (D, D * 1e6, np.round(D)):
                plan = ConformalDetector(detector, random_state=0).fit(rows).plan_
                assert plan.scheme == scheme


@pytest.mark.parametrize("detector", ["knn", ["knn", "mahalanobis"]], ids=["one", "list"])
def test_very_many_rows_are_judged_by_a_plain_split(detector, monkeypatch, tmp_path):
    D, new = rows_with_anomalies()
    monkeypatch.setattr("reconform.methods.MOST_PAIRS", 20 * (len(D) + 20))
    cad = ConformalDetector(detector, random_state=0).fit(D)
    assert cad.most_rows == 20
    assert cad.for_rows(20) is cad
    save(cad, tmp_path / "size.rcad")
    plain = ConformalDetector(detector, "split", random_state=0).fit(D)
    expected = plain.discover(new, fdr=0.2)
    for one in (cad, load(tmp_path / "size.rcad")):
        twin = one.for_rows(21)
        assert twin.plan_.scheme == "split"
        assert one.for_rows(30) is twin
        got = one.discover(new, fdr=0.2)
        assert np.array_equal(got.p_values, expected.p_values)
        assert np.array_equal(got.mask, expected.mask)
        assert got.choice == expected.choice
        assert one.discover(new[:20], fdr=0.2).provenance.scheme == "full"
        assert one.discover(new, fdr=0.2).provenance.scheme == "split"
    assert ConformalDetector(detector, "full").fit(D).most_rows is None
    assert ConformalDetector(detector, "split").fit(D).for_rows(10**9).plan_.scheme == "split"


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(3)], ids=["none", "legacy"])
def test_very_many_rows_have_one_split_without_a_seed(random_state, monkeypatch, tmp_path):
    """Otherwise a model file could be asked until the list is long enough."""
    D, new = rows_with_anomalies()
    monkeypatch.setattr("reconform.methods.MOST_PAIRS", 20 * (len(D) + 20))
    cad = ConformalDetector(["knn", "mahalanobis"], random_state=random_state).fit(D)
    save(cad, tmp_path / "size.rcad")
    expected = cad.discover(new).p_values
    for _ in range(2):
        assert np.array_equal(load(tmp_path / "size.rcad").discover(new).p_values, expected)


# --- functions among the candidates --------------------------------------------------------------


def middle_out(X):
    middle = np.median(X, axis=0)
    return lambda rows: np.abs(rows - middle).sum(axis=1)


@pytest.mark.parametrize("method", ["split", "full"])
def test_a_function_may_be_a_candidate(method, tmp_path, rng):
    X, new = rng.normal(size=(60, 2)), np.vstack([rng.normal(size=(10, 2)), [[9.0, 9.0]] * 6])
    several = ConformalDetector(["knn", middle_out], method, larger_is="anomalous", random_state=0)
    found = several.fit(X).discover(new, fdr=0.3)
    assert [one.name for one in found.choice] == ["knn", "middle_out"]
    assert found.mask[10:].all()
    alone = ConformalDetector(middle_out, method, larger_is="anomalous", random_state=0).fit(X)
    by_function = next(one for one in found.choice if one.name == "middle_out")
    if method == "full":
        assert by_function.alone == alone.discover(new, fdr=0.3).count
    refused("state larger_is", ConformalDetector(["knn", middle_out], method).fit, X)
    refused("middle_out", save, several, tmp_path / "model.rcad")
    assert not (tmp_path / "model.rcad").exists()


def test_some_rows_are_chosen_for_as_all_are():
    D, new = CASES["units"]
    ensemble = full(CANDIDATES, D)
    every, some = ensemble.batch_ranks(new), np.array([7, 0, 5])
    found = ensemble.batch_ranks(new, rows=some)
    assert np.array_equal(found.at_most, every.at_most[some])
    assert np.array_equal(found.choice.chosen, every.choice.chosen[some])
    assert np.array_equal(found.choice.ranks, every.choice.ranks[:, some])
