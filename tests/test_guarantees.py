"""Certificates as a user meets them: through the estimator and its results."""

import numpy as np
import pytest

from reconform import ConformalDetector, RankCounts, Split
from reconform.statistics.bounds import fdp_bound
from reconform.statistics.exact import from_floats
from reconform.statistics.thresholds import conditional_table
from refusals import refused


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(600, 3))
    new = np.vstack([rng.normal(size=(180, 3)), rng.normal(6, 1, size=(20, 3))])
    return reference, new


@pytest.fixture(scope="module")
def split(batch):
    return ConformalDetector("knn", "split", random_state=0).fit(batch[0])


@pytest.mark.parametrize("kind", ["simes", "montecarlo"])
def test_conditional_p_values_are_a_table_over_the_ranks(kind, split, batch):
    table = conditional_table(split.n_calibration_, kind, 0.8)
    p = split.p_values(batch[1], conditional=kind, confidence=0.8)
    np.testing.assert_allclose(p, table[split.ranks(batch[1])], rtol=1e-12)
    found = split.discover(batch[1], 0.2, conditional=kind, confidence=0.8)
    assert np.array_equal(found.p_values, p)
    counts = RankCounts(split.n_calibration_, split.calibration_.fingerprint)
    decision = counts.add(split.ranks(batch[1])).decide(0.2, grid=from_floats(table))
    assert np.array_equal(decision.mask(split.ranks(batch[1])), found.mask)
    assert "given the calibration set" in found.guarantee


def test_conditional_p_values_need_one_model(batch):
    for method in ("jackknife+", "jab+", "full", Split(repeats=3)):
        cad = ConformalDetector("knn", method, random_state=0).fit(batch[0][:50])
        refused("needs one model", cad.p_values, batch[1], conditional="simes")
    with pytest.raises(ValueError, match="Did you mean 'simes'"):
        ConformalDetector("knn", "split").fit(batch[0]).p_values(batch[1], conditional="sims")


def test_fdp_bound_of_a_result(split, batch):
    found = split.discover(batch[1], 0.1)
    ranks, n = split.ranks(batch[1]), split.n_calibration_
    assert found.fdp_bound(0.05) == float(fdp_bound(ranks, n, 0.05))
    assert found.fdp_bound() == float(fdp_bound(ranks, n, found.p_threshold))
    assert found.fdp_bound(confidence=0.5) <= found.fdp_bound(confidence=0.99)


def test_fdp_bound_says_what_it_needs(batch):
    for cad in (
        ConformalDetector("knn", "jackknife+"),
        ConformalDetector("knn", Split(repeats=3)),
        ConformalDetector("knn", "split", ties="randomized"),
    ):
        found = cad.fit(batch[0]).discover(batch[1])
        refused("use method='split'", found.fdp_bound)


def test_a_broken_assumption_leaves_no_bound(split, batch):
    moved = split.discover(batch[1] + 3.0)
    assert moved.count > 0
    assert moved.verdict.word == "broken"
    assert moved.first().bound is None
    refused("looks broken; `verdict` says why", moved.fdp_bound)


@pytest.mark.parametrize("larger_is", ["anomalous", "normal"])
def test_threshold_is_in_the_detectors_own_polarity(larger_is):
    rng = np.random.default_rng(1)
    sign = 1 if larger_is == "anomalous" else -1
    detector = lambda X: lambda Z: sign * np.abs(Z[:, 0])  # noqa: E731
    cad = ConformalDetector(detector, "split", larger_is=larger_is, random_state=0)
    cad.fit(rng.normal(size=(4_000, 1)))
    limit = cad.threshold(0.01)
    assert limit.larger_is == larger_is
    assert limit.flags([sign * 10.0, 0.0, limit.cutoff]).tolist() == [True, False, False]
    fresh = sign * np.abs(rng.normal(size=20_000))
    assert 0.001 < limit.flags(fresh).mean() < 0.013
    assert ("above" if larger_is == "anomalous" else "below") in str(limit)


def test_too_few_rows_for_a_threshold(split, batch):
    limit = split.threshold(0.001)
    assert not limit.enough
    assert not limit.flags([-np.inf, -1e9]).any()
    assert "2995 are needed" in str(limit)
    with pytest.raises(ValueError, match="use method='split' or 'prefit'"):
        ConformalDetector("knn", "cv+").fit(batch[0]).threshold()


def test_ebh_averages_over_repeats(batch):
    cad = ConformalDetector("knn", Split(repeats=10), random_state=0).fit(batch[0])
    found = cad.discover(batch[1], 0.1, procedure="ebh")
    assert found.mask[180:].all()
    assert found.count <= 25
    assert np.array_equal(found.mask, found.q_values <= 0.1)
    assert "FDR proven for EBH" in found.guarantee
    bold = cad.discover(batch[1], 0.1, procedure="ebh", alpha_bh=0.1)
    assert bold.count <= len(bold)


def test_ebh_says_what_it_needs(split, batch):
    with pytest.raises(ValueError, match="needs the e-values of splits"):
        ConformalDetector("knn", "cv+").fit(batch[0]).discover(batch[1], procedure="ebh")
    with pytest.raises(ValueError, match="alpha_bh must be a number strictly between 0 and 1"):
        split.discover(batch[1], 0.1, procedure="ebh", alpha_bh=1)
    refused("leave validity", split.discover, batch[1], 0.1, procedure="ebh", validity="proven")


@pytest.mark.parametrize("alpha_bh", [None, 0.02, 0.1, 0.3])
@pytest.mark.parametrize("repeats", [1, 2, 7])
@pytest.mark.parametrize("seed", range(4))
def test_q_values_of_ebh_are_the_smallest_level_at_which_a_row_is_found(seed, repeats, alpha_bh):
    """By brute force: decide at 250 levels, and a rounding error above and below every q-value."""
    rng = np.random.default_rng(seed)
    new = np.vstack([rng.normal(size=(25, 2)), rng.normal(3.5, 1, size=(25, 2))])
    cad = ConformalDetector("knn", Split(repeats=repeats), random_state=seed)
    cad.fit(np.round(rng.normal(size=(160, 2)), 1))
    options = {"procedure": "ebh", "alpha_bh": alpha_bh}
    stated = cad.discover(new, 0.3, **options).q_values
    above, below = np.nextafter(stated, 2), np.nextafter(stated, 0)
    levels = np.unique(np.r_[np.arange(1, 250) / 250, above, below])
    smallest = np.ones(len(new))
    for level in levels[(levels > 0) & (levels < 1)][::-1].tolist():
        found = cad.discover(new, level, **options)
        assert np.array_equal(found.q_values, stated)
        assert np.array_equal(found.mask, stated <= level)
        smallest[found.mask] = level
    assert np.array_equal(smallest, np.minimum(above, 1))


@pytest.mark.parametrize("ties", ["conservative", "randomized"])
def test_ebh_on_one_split_reports_the_q_values_of_bh(ties, batch):
    cad = ConformalDetector("knn", "split", ties=ties, random_state=0).fit(batch[0])
    bh = ConformalDetector("knn", "split", random_state=0).fit(batch[0]).discover(batch[1], 0.1)
    found = cad.discover(batch[1], 0.1, procedure="ebh")
    assert np.array_equal(found.q_values, bh.q_values)
    assert np.array_equal(found.mask, bh.mask)
