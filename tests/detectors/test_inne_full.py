"""Full-conformal INNE: the ranks of one refit per new row, without the refits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from sklearn.base import clone

from oracle import binomial_upper
from oracle_detectors import Refits, reference_sums
from reconform import ConformalDetector, Full
from reconform.content import Contents
from reconform.detectors.inne import INNE
from reconform.detectors.inne import ensembles as inne_ensembles
from reconform.detectors.inne import ensembles as spheres
from reconform.detectors.inne.ensembles import Draws, EnteredINNE
from reconform.detectors.inne.kernels import UNIT
from reconform.ensemble import blocks_of
from reconform.ensemble.refitting import OneModel, fit_full
from rows import few_valued

SEED = np.random.SeedSequence(7)


class SymmetricRefits(Refits):
    """The slow road: A fitted anew on D and every new row, scoring what it was fitted on."""

    def training_scores(self, model, X):
        return model.score_samples(X)


def fitted(X, detector, seed=SEED, **options):
    ensemble = detector.fit_plan(X, Full().plan(len(X)), [seed], **options)
    assert isinstance(ensemble, EnteredINNE)
    return ensemble


def assert_same_ranks(ours, theirs):
    assert np.array_equal(ours.at_most, theirs.at_most)
    assert np.array_equal(ours.below, theirs.below)
    assert np.array_equal(ours.scores, theirs.scores)


def rows(kind, n, m, d=3):
    rng = np.random.default_rng(n)
    if kind == "continuous":
        return rng.normal(size=(n, d)), rng.normal(scale=1.5, size=(m, d))
    if kind == "ties":
        return few_valued(rng, n, d), few_valued(rng, m, d)
    # Every reference row several times, and new rows among them.
    X = rng.normal(size=(-(-n // 3), d))[rng.integers(0, -(-n // 3), size=n)]
    return X, np.vstack([X[rng.integers(0, n, size=m - 1)], X[:1] + 5.0])


# --- the same numbers as one refit per row --------------------------------------------------


@pytest.mark.parametrize("kind", ["continuous", "ties", "duplicates"])
@pytest.mark.parametrize("n", [2, 7, 8, 9, 30, 300])
def test_equals_one_fit_per_row(n, kind):
    X, new = rows(kind, n, 12)
    detector = INNE(n_estimators=40)
    fast = fitted(X, detector)
    slow = fit_full(SymmetricRefits(detector), X, SEED)
    assert_same_ranks(fast.ranks(new, strictly=True), slow.ranks(new, strictly=True))


@pytest.mark.parametrize(("max_samples", "psi"), [(1, 1), (2, 2), (20, 20), (0.5, 21), (1.0, 42)])
@pytest.mark.parametrize("kind", ["continuous", "ties"])
def test_equals_one_fit_per_row_whatever_the_size_of_sets(max_samples, psi, kind):
    X, new = rows(kind, 41, 12)
    detector = INNE(n_estimators=10, max_samples=max_samples)
    fast = fitted(X, detector)
    assert fast.psi == psi
    slow = fit_full(SymmetricRefits(detector), X, SEED)
    assert_same_ranks(fast.ranks(new, strictly=True), slow.ranks(new, strictly=True))


@given(st.data())
def test_equals_pyods_lines_in_integers(data):
    """Against NumPy, with few-valued coordinates, so that everything ties."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n, d = int(rng.integers(2, 25)), int(rng.integers(1, 4))
    values = data.draw(st.integers(1, 4))
    X = rng.integers(0, values, size=(n, d)).astype(float)
    new = rng.integers(-1, 2 * values, size=(3, d)) / 2
    sets = data.draw(st.integers(1, 6))
    seed = np.random.SeedSequence(int(rng.integers(1000)))
    ensemble = fitted(X, INNE(n_estimators=sets), seed)
    ranks = ensemble.ranks(new, strictly=True)
    for j, x in enumerate(new):
        together = np.vstack([X, x])
        centres = Draws.of(Contents.of(together), min(8, n + 1), sets, seed).samples
        sums = reference_sums(together, centres, together)
        assert ranks.at_most[j] == 1 + (sums[:-1] >= sums[-1]).sum()
        assert ranks.below[j] == 1 + (sums[:-1] > sums[-1]).sum()
        assert ranks.scores[j] == 0.0 - sums[-1] / (sets * UNIT)


def test_rows_that_enter_no_set():
    X, new = rows("ties", 500, 40)
    fast = fitted(X, INNE(n_estimators=9))
    slow = fit_full(SymmetricRefits(INNE(n_estimators=9)), X, SEED)
    assert_same_ranks(fast.ranks(new, strictly=True), slow.ranks(new, strictly=True))


@pytest.mark.parametrize(
    "X",
    [
        np.zeros((20, 2)),
        np.column_stack([np.ones(20), np.arange(20.0)]),
        np.random.default_rng(2).normal(size=(20, 200)),
        np.vstack([np.random.default_rng(3).normal(size=(18, 2)), [[1e200, 0], [-1e200, 1e308]]]),
    ],
    ids=["all equal", "constant column", "200 features", "overflow"],
)
def test_difficult_data(X):
    new = np.vstack([X[:3], X[:1] + 1.0, X[:1] * 2.0, X[:1] * 0.0 - 1e200])
    fast = fitted(X, INNE(n_estimators=20))
    slow = fit_full(SymmetricRefits(INNE(n_estimators=20)), X, SEED)
    assert_same_ranks(fast.ranks(new, strictly=True), slow.ranks(new, strictly=True))


@pytest.mark.parametrize("n", [5, 30])
def test_the_calibration_shows_the_sets_without_any_new_row(n):
    X, _ = rows("continuous", n, 2)
    ensemble = fitted(X, INNE(n_estimators=12))
    centres = Draws.of(Contents.of(X), min(8, n), 12, SEED).samples
    expected = 0.0 - reference_sums(X, centres, X) / (12 * UNIT)
    assert np.array_equal(ensemble.calibration.scores, expected)
    assert np.array_equal(ensemble.calibration.rows, np.arange(n))


def test_below_is_there_when_asked_for():
    X, new = rows("ties", 30, 5)
    assert fitted(X, INNE(n_estimators=5)).ranks(new).below is None


# --- all rows as each model sees them -------------------------------------------------------


def joined(blocks):
    return [
        np.concatenate([getattr(augmented, name) for augmented in blocks])
        for name in ("rows", "own", "others")
    ]


@pytest.mark.parametrize("kind", ["continuous", "ties", "duplicates"])
@pytest.mark.parametrize("n", [2, 6, 7, 8, 30, 300])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sees_all_rows_as_one_refit_per_row(seed, n, kind):
    X, new = rows(kind, n, 12)
    new[3] = X[n // 2]
    detector, sequence = INNE(n_estimators=20), np.random.SeedSequence(seed)
    asked = np.arange(len(new)) if seed else np.array([7, 3, 11])
    fast = fitted(X, detector, sequence)
    blocks = list(fast.augmented_scores(new, asked))
    slow = OneModel(detector, X, sequence, 1).augmented_scores(new, asked)
    for ours, theirs in zip(joined(blocks), joined(list(slow)), strict=True):
        assert np.array_equal(ours, theirs)
    ranks = fast.ranks(new, strictly=True)
    for augmented in blocks:
        mine, theirs = augmented.own[:, -1:], augmented.own[:, :-1]
        assert np.array_equal(1 + (theirs <= mine).sum(axis=1), ranks.at_most[augmented.rows])
        assert np.array_equal(1 + (theirs < mine).sum(axis=1), ranks.below[augmented.rows])


@pytest.mark.parametrize("max_samples", [1, 2, 20, 0.5, 1.0])
def test_sees_all_rows_as_one_refit_per_row_whatever_the_size_of_sets(max_samples):
    X, new = rows("duplicates", 41, 12)
    detector, asked = INNE(n_estimators=10, max_samples=max_samples), np.arange(12)
    fast = list(fitted(X, detector).augmented_scores(new, asked))
    slow = list(OneModel(detector, X, SEED, 1).augmented_scores(new, asked))
    for ours, theirs in zip(joined(fast), joined(slow), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("n", [5, 40])
def test_blocks_and_threads_do_not_change_what_is_seen(n, monkeypatch):
    X, new = rows("ties", n, 15)
    detector, asked = INNE(n_estimators=25), np.arange(15)
    (whole,) = fitted(X, detector, n_jobs=1).augmented_scores(new, asked)
    monkeypatch.setattr(spheres, "LEAST_WORK", 0)
    monkeypatch.setattr(
        inne_ensembles, "blocks_of", lambda rows, width: blocks_of(rows, width << 16)
    )
    parts = list(fitted(X, detector, n_jobs=2).augmented_scores(new, asked))
    assert len(parts) > 1
    for ours, theirs in zip(joined(parts), joined([whole]), strict=True):
        assert np.array_equal(ours, theirs)
    assert not list(fitted(X, detector).augmented_scores(new, asked[:0]))


# --- what must not matter -------------------------------------------------------------------


@pytest.mark.parametrize("n", [6, 40, 300])
def test_a_row_does_not_depend_on_its_batch_or_its_place_in_it(n):
    X, new = rows("continuous", n, 33)
    ensemble = fitted(X, INNE(n_estimators=25))
    together = ensemble.ranks(new, strictly=True)
    backwards = ensemble.ranks(np.ascontiguousarray(new[::-1]), strictly=True)
    for j in range(len(new)):
        alone = ensemble.ranks(new[[j]], strictly=True)
        for part, whole in ((alone, 0), (backwards, len(new) - 1 - j)):
            assert part.at_most[whole] == together.at_most[j]
            assert part.below[whole] == together.below[j]
            assert part.scores[whole] == together.scores[j]
    assert np.array_equal(ensemble.ranks(new).at_most, together.at_most)
    assert SEED.n_children_spawned == 0


@pytest.mark.parametrize("n", [7, 40, 300])
def test_threads_and_blocks_do_not_matter(n, monkeypatch):
    X, new = rows("ties", n, 50)
    detector = INNE(n_estimators=25)

    def answers(n_jobs=None):
        ensemble = fitted(X, detector, n_jobs=n_jobs)
        return ensemble.calibration.fingerprint, ensemble.ranks(new, strictly=True)

    fingerprint, expected = answers()

    def check(n_jobs=None):
        again, ranks = answers(n_jobs)
        assert again == fingerprint
        assert_same_ranks(ranks, expected)

    check(2)
    monkeypatch.setattr(spheres, "LEAST_WORK", 0)
    for lanes in (1, 3, 16, 1000):
        monkeypatch.setattr(spheres, "LEAST_LANES", lanes)
        monkeypatch.setattr(spheres, "MOST_LANES", lanes)
        for n_jobs in (1, 3):
            check(n_jobs)
    monkeypatch.setattr(spheres, "STEP_ROWS", 20)
    monkeypatch.setattr(inne_ensembles, "LEAST_WORK", 0)
    check(3)


# --- the guarantee --------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "sets"), [(9, 3), (19, 20)])
def test_the_level_is_exact_over_data_and_draws(n, sets):
    """3,000 null data sets, drawn anew together with the sets; rounded, so that rows tie.

    P(p <= α) <= α at four levels (5e-6 each), and the rank with ties broken at random is uniform
    on 1, ..., n + 1 (chi-square at 5e-5): a correct program fails with probability below 1e-4.
    """
    rng = np.random.default_rng(n)
    detector = INNE(n_estimators=sets)
    trials = 3000
    at_most, broken = np.empty(trials, dtype=int), np.empty(trials, dtype=int)
    for j, seed in enumerate(np.random.SeedSequence(n).spawn(trials)):
        X = np.round(rng.normal(size=(n + 1, 2)), 1)
        ranks = fitted(X[:n], detector, seed).ranks(X[n:], strictly=True)
        at_most[j] = ranks.at_most[0]
        broken[j] = rng.integers(ranks.below[0], ranks.at_most[0], endpoint=True)
    for alpha in (0.1, 0.2, 0.3, 0.5):
        hits = (at_most <= round(alpha * (n + 1))).sum()
        assert hits <= binomial_upper(trials, alpha, 5e-6)
    assert chisquare(np.bincount(broken, minlength=n + 2)[1:]).pvalue > 5e-5


def test_in_a_conformal_detector(blobs):
    reference, new = blobs
    cad = ConformalDetector(INNE(), method="full", random_state=0).fit(reference)
    p = cad.p_values(new)
    assert cad.n_calibration_ == len(reference)
    assert cad.guarantee_.name == "full"
    assert np.array_equal(p, clone(cad).set_params(n_jobs=2).fit(reference).p_values(new))
    assert np.array_equal(p[::-1], cad.p_values(new[::-1]))
    assert (p[-4:] <= np.sort(p)[4]).all()
    smoothed = clone(cad).set_params(ties="randomized").fit(reference).p_values(new)
    assert ((smoothed > 0) & (smoothed <= p)).all()


def test_progress(blobs, capsys):
    ConformalDetector(INNE(), method="full", verbose=1).fit(blobs[0])
    assert "calibrating INNE" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["continuous", "ties", "duplicates"])
@pytest.mark.parametrize("n", [2, 9, 120])
def test_few_wide_rows_are_ranked_as_many_are(n, kind, monkeypatch):
    X, new = rows(kind, n, 70, d=20)
    few = fitted(X, INNE()).ranks(new, strictly=True)
    monkeypatch.setattr(inne_ensembles, "FEW_ROWS", 0)
    assert_same_ranks(few, fitted(X, INNE()).ranks(new, strictly=True))
