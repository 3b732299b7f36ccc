from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from oracle_detectors import reference_sums, squared_distances
from reconform import randomness as random
from reconform.content import Contents
from reconform.detectors.inne import INNE
from reconform.detectors.inne.ensembles import LeaveOneOutINNE, SeparateINNE, Spheres, draw_centres
from reconform.detectors.inne.kernels import UNIT
from reconform.methods import CrossValidation, Full, Jackknife
from rows import few_valued


def seeds_for(plan, seed=7):
    return np.random.SeedSequence(seed).spawn(plan.n_models + 1)


# Rows that are not training rows: a training row that is a centre lies exactly on the edge of the
# spheres that it limits, where PyOD's dot products round to either side. On the continuous rows
# here no distance comes near a radius.
@pytest.mark.parametrize("d", [1, 3, 40])
@pytest.mark.parametrize("max_samples", ["auto", 2, 0.5])
def test_equals_pyod_given_the_same_centres(d, max_samples):
    from pyod.models import inne as pyod_inne

    rng = np.random.default_rng(d)
    X, new = rng.normal(size=(60, d)), rng.normal(scale=2, size=(200, d))
    peer = pyod_inne.INNE(n_estimators=50, max_samples=max_samples, random_state=3).fit(X)
    centres = np.array(
        [np.random.RandomState(s).choice(len(X), peer.max_samples_, False) for s in peer._seeds]
    )
    ours = Spheres.around(X, [centres]).scores(new)[0]
    np.testing.assert_allclose(ours, -peer.decision_function(new), rtol=0, atol=1e-12)
    assert INNE(max_samples=max_samples).fit(X).max_samples_ == peer.max_samples_


def test_same_parameters_as_pyod():
    from pyod.models import inne as pyod_inne

    theirs = pyod_inne.INNE().get_params()
    assert INNE().get_params() == theirs | {"n_jobs": None, "share": "auto", "scale": "none"}


def test_a_fit_is_its_draws(rng):
    X, new = few_valued(rng, 30, 2), few_valued(rng, 20, 2)
    model = INNE(n_estimators=20, random_state=5).fit(X)
    assert model.centres_.shape == (20, 8)
    expected = 0.0 - reference_sums(X, model.centres_, new) / (20 * UNIT)
    assert np.array_equal(model.score_samples(new), expected)
    again = INNE(n_estimators=20, random_state=5).fit(X)
    assert np.array_equal(again.score_samples(new), expected)
    other = INNE(n_estimators=20, random_state=6).fit(X)
    assert not np.array_equal(other.score_samples(new), expected)


def test_more_samples_than_rows():
    X = np.random.default_rng(0).normal(size=(5, 2))
    with pytest.warns(UserWarning, match="max_samples=6` is more than the 5 training rows"):
        model = INNE(max_samples=6, random_state=0).fit(X)
    assert model.max_samples_ == 5


def test_splitmix64():
    """The first numbers that Vigna's splitmix64.c gives for the seed 0."""
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    state, got = np.uint64(0), []
    for _ in expected:
        with np.errstate(over="ignore"):
            state += random.GOLDEN
        got.append(int(random.mix(state)))
    assert (got, random.uniform(random.GOLDEN)) == (expected, (expected[0] >> 11) / 2**53)


def numbered(n):
    return Contents.of(np.arange(float(n))[:, None])


def test_draws_are_uniform():
    # All 60 ordered triples out of 5 are equally likely. A correct program fails with
    # probability 1e-4.
    triples = draw_centres(numbered(5), 3, 60_000, np.random.SeedSequence(2))
    counts = Counter(map(tuple, triples.tolist()))
    assert len(counts) == 60
    assert chisquare(list(counts.values())).pvalue > 1e-4


@pytest.mark.parametrize("n", [5, 30])
def test_the_calibration_of_full_shows_the_sets_without_any_new_row(n):
    X = np.random.default_rng(n).normal(size=(n, 3))
    seed = np.random.SeedSequence(7)
    ensemble = INNE(n_estimators=12).fit_plan(X, Full().plan(n), [seed])
    centres = draw_centres(Contents.of(X), min(8, n), 12, seed)
    expected = 0.0 - reference_sums(X, centres, X) / (12 * UNIT)
    assert np.array_equal(ensemble.calibration.scores, expected)
    assert np.array_equal(ensemble.calibration.rows, np.arange(n))


@given(st.data())
def test_kernels_equal_numpy(data):
    """Few-valued coordinates, so that everything ties: rows, distances, radii, edges."""
    seed = data.draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    n, d, m = rng.integers(1, 12), rng.integers(1, 4), rng.integers(1, 9)
    sets = int(rng.integers(1, 5))
    X = rng.integers(0, data.draw(st.integers(1, 4)), size=(n, d)).astype(float)
    new = rng.integers(-1, 4, size=(m, d)) / 2
    # Models with sets of different sizes; a row may be drawn twice, as from a multiset.
    models = data.draw(st.integers(1, 4))
    centres = [rng.integers(0, n, size=(sets, rng.integers(1, 10))) for _ in range(models)]
    expected = np.array([reference_sums(X, model, new) for model in centres])
    built = Spheres.around(X, centres)
    assert np.array_equal(built.sums(new), expected)

    # Any choice of pairs of row and model.
    chosen = rng.random((m, len(centres))) < 0.5
    rows = np.flatnonzero(chosen.any(axis=1))
    indptr = np.concatenate([[0], np.cumsum(chosen[rows].sum(axis=1))])
    models = np.nonzero(chosen[rows])[1].astype(np.int32)
    flat = built.chosen_sums(new, rows, indptr, models)
    assert np.array_equal(flat, expected.T[chosen])


def test_sharing_is_automatic_above_a_thousand_rows():
    X = np.random.default_rng(0).normal(size=(1001, 2))
    for n, kind in ((1000, SeparateINNE), (1001, LeaveOneOutINNE)):
        plan = Jackknife().plan(n)
        assert isinstance(INNE(n_estimators=2).fit_plan(X[:n], plan, seeds_for(plan)), kind)
    plan = CrossValidation().plan(1001, random_state=0)
    detector = INNE(n_estimators=2, share=True)
    assert isinstance(detector.fit_plan(X, plan, seeds_for(plan)), SeparateINNE)
    # Half of 40 rows are 20 centres and half of 39 are 19.
    half = INNE(n_estimators=2, max_samples=0.5, share=True)
    plan = Jackknife().plan(40)
    assert isinstance(half.fit_plan(X[:40], plan, seeds_for(plan)), LeaveOneOutINNE)


def test_distances_do_not_depend_on_the_road():
    """Each row, as a scored row, lies exactly on the edge of the spheres that it limits."""
    X = np.random.default_rng(0).normal(size=(8, 7)) * 1e3 + 1e5
    centres = np.arange(8)[None]
    built = Spheres.around(X, [centres])
    by_road = squared_distances(X, X[centres[0]])
    np.fill_diagonal(by_road, np.inf)
    nearest = by_road.argmin(axis=1)
    assert np.array_equal(np.sort(built.radius), np.sort(by_road.min(axis=1)))
    # The nearest of row a limits a's sphere, is covered by it, and so is not fully isolated
    # unless a smaller sphere says so.
    assert np.array_equal(built.sums(X[nearest])[0], reference_sums(X, centres, X[nearest]))
