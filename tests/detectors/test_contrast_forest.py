"""The contrast forest against one that is grown anew in every world; its worlds; what it finds."""

import pickle

import numpy as np
import pytest

from enumeration import excess, judged, mean_e
from reconform import ConformalDetector
from reconform.content import digests_of
from reconform.detectors import Contrast, ContrastForest, contrast_forest
from reconform.detectors.contrast_forest import LEAST, PoolForest, kernels
from reconform.randomness import GOLDEN, mix_array


def mixed(word):
    return mix_array(np.array([word], dtype=np.uint64))[0]


class Literal:
    """The forest of one world: E has label 0, the other new rows have label 1."""

    def __init__(self, E, others, trees, seed):
        self.X, self.new = np.vstack([E, others]), np.arange(len(E) + len(others)) >= len(E)
        n, m = len(E) - 1, len(others) + 1
        self.weights = np.array([1 / (n + 1), 1 / (m - 1), 2 / (n + m)])
        self.votes = np.zeros(len(self.X), dtype=np.int64)
        asked = np.zeros(len(self.X), dtype=np.int64)
        digests, limit = digests_of(self.X)[1], np.uint64(2**63)
        for key in seed.generate_state(trees, np.uint64):
            drawn = mix_array(digests ^ key) < limit
            self.grow(np.flatnonzero(drawn), np.flatnonzero(~drawn), key)
            asked += ~drawn
        self.scores = self.votes / (-kernels.VOTES * np.maximum(asked, 1))

    def splits(self, rows, key):
        """Random cuts of random features, those that leave enough rows on either side."""
        d, tried = self.X.shape[1], 0
        for _ in range(2 * int(np.sqrt(d))):
            with np.errstate(over="ignore"):
                feature = int(mixed(key + GOLDEN) % np.uint64(d))
                key = key + GOLDEN + GOLDEN
            share = float(mixed(key) >> np.uint64(11)) * 2.0**-53
            values = self.X[rows, feature]
            low, high = values.min(), values.max()
            if low == high:
                continue
            cut = low + share * (high - low)
            cut = cut if cut < high else low
            left = values <= cut
            if LEAST <= left.sum() <= len(rows) - LEAST:
                yield feature, cut, rows[left]
            tried += 1
            if tried == int(np.sqrt(d)):
                return

    def grow(self, rows, rest, key):
        new = int(self.new[rows].sum())
        old, best, chosen = len(rows) - new, -1.0, None
        for feature, cut, left in self.splits(rows, key) if len(rows) >= 2 * LEAST else ():
            there = int(self.new[left].sum())
            gain = kernels._gain(len(left) - there, there, old, new, self.weights)
            if gain > best:
                best, chosen = gain, (feature, cut)
        if chosen is None:
            self.votes[rest] += kernels.vote_of(old, new, self.weights)
            return
        feature, cut = chosen
        for side, word in ((True, kernels._LEFT), (False, kernels._RIGHT)):
            some = [r[(self.X[r, feature] <= cut) == side] for r in (rows, rest)]
            self.grow(*some, mixed(key ^ word))


@pytest.mark.parametrize("d", [1, 4, 9])
@pytest.mark.parametrize("values", [2, 3, 1000])
def test_scores_are_those_of_forests_grown_anew_in_every_world(values, d):
    """Bit for bit, with ties and duplicates, of E and of the other new rows."""
    rng = np.random.default_rng(d)
    D, T = (rng.integers(0, values, size=(k, d)).astype(float) for k in (20, 12))
    T[:4] += values // 2
    T[5], D[3] = T[4], T[0]
    seed = np.random.SeedSequence(values)
    for n_jobs in (1, 2):
        scores = PoolForest.of(D, T, 30, seed, n_jobs).scores(np.arange(len(T)))
        for j in range(len(T)):
            slow = Literal(np.vstack([D, T[j]]), np.delete(T, j, axis=0), 30, seed).scores
            mine = [scores[j, :20], scores[j, 20 + j], np.delete(scores[j, 20:], j)]
            assert np.array_equal(np.hstack(mine), slow)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(contrast_forest, "FEWEST_REFERENCE", 2)
    monkeypatch.setattr(contrast_forest, "FEWEST_NEW", 2)


def batch(seed=0, values=None):
    rng = np.random.default_rng(seed)
    E, others = rng.normal(size=(17, 2)), rng.normal(size=(9, 2))
    if values is not None:
        E, others = np.round(E * values), np.round(others * values)
    others[:3] += 2
    return E, others


@pytest.mark.parametrize("values", [None, 1])
@pytest.mark.parametrize("scale", ["none", "robust"])
def test_p_values_and_certificates_in_all_worlds(small, values, scale):
    """The other new rows stay, every row of E in turn is new: P(p <= t) <= t, mean e <= 1."""
    detector = ContrastForest(n_estimators=20, scale=scale)
    for seed in range(3):
        E, others = batch(seed, values)

        def judge(D, new, E=E, others=others):
            cad = ConformalDetector(detector, "full", random_state=0).fit(E[D])
            found = cad.discover(np.vstack([others, E[new]]), fdr=0.5, validity="proven")
            return found.p_values[-1], found.e_values[-1]

        p, e = judged(judge, len(E)).T
        assert excess(p) <= 0
        assert mean_e(e) <= 1 + 1e-12


def test_few_rows_and_clusters_are_ranked_by_contrast(rng):
    D, T = rng.normal(size=(200, 2)), rng.normal(size=(60, 2))
    copies = np.repeat(T[:30], 2, axis=0) + 1e-6 * rng.normal(size=(60, 2))
    for new in (T[:19], copies):
        ours, theirs = (
            ConformalDetector(one(scale="robust"), "full", random_state=0).fit(D).discover(new)
            for one in (ContrastForest, Contrast)
        )
        assert np.array_equal(ours.p_values, theirs.p_values)
    assert "clusters" in [finding.check for finding in ours.verdict.findings]
    assert not np.array_equal(
        ConformalDetector("contrast-forest", "full", random_state=0).fit(D).discover(T).p_values,
        ConformalDetector(Contrast(scale="robust"), "full").fit(D).discover(T).p_values,
    )


def test_the_forest_of_a_batch_is_not_pickled_and_serves_no_other(rng):
    D, T = rng.normal(size=(80, 3)), rng.normal(size=(2, 40, 3))
    ensemble = ConformalDetector(ContrastForest(scale="none"), "full").fit(D).ensemble_
    size = len(pickle.dumps(ensemble))
    one = ensemble.batch_ranks(T[0]).at_most
    other = ensemble.batch_ranks(T[1]).at_most
    assert np.array_equal(ensemble.batch_ranks(T[0]).at_most, one)
    assert not np.array_equal(one, other)
    # What neighbours were looked up may stay; a forest alone would be some hundred kB.
    assert len(pickle.dumps(ensemble)) < size + 50_000


def test_known_anomalies_have_the_label_of_new_rows(rng):
    """What is known of a kind of anomaly makes a few more of it stand out."""
    D, T = rng.normal(size=(300, 6)), rng.normal(size=(100, 6))
    anomalies = rng.normal(size=(60, 6))
    T[:5, :2], anomalies[:, :2] = 2.0 + T[:5, :2] / 9, 2.0 + anomalies[:, :2] / 9
    cad = ConformalDetector("contrast-forest", "full", random_state=0)
    without = cad.fit(D).discover(T).p_values[:5]
    known = cad.fit(D, anomalies=anomalies).discover(T).p_values[:5]
    assert known.mean() < without.mean()


def test_anomalies_that_only_a_few_columns_show():
    rng = np.random.default_rng(1)
    D, T = rng.normal(size=(400, 20)), rng.normal(size=(200, 20))
    T[:20, :3] = rng.uniform(1.8, 2.5, size=(20, 3))
    found = {}
    for name in ("knn", "contrast", "contrast-forest"):
        cad = ConformalDetector(name, "full", random_state=0).fit(D)
        found[name] = int(cad.discover(T, fdr=0.2).mask[:20].sum())
    assert found["contrast-forest"] >= 15
    assert max(found["knn"], found["contrast"]) <= 5
