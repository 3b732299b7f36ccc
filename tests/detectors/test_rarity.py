"""Rarity: scores by counting, worlds against refits, exactness by enumeration, and power."""

import numpy as np
import pandas as pd
import pytest

from enumeration import excess, judged
from reconform import ConformalDetector, Prepare
from reconform.detectors import Rarity
from reconform.ensemble.refitting import OneModel
from reconform.methods import Full


def by_counting(rows, i):
    """The score of row i of a multiset, as the module says, with plain loops."""
    found = []
    for j in range(rows.shape[1]):
        column = rows[:, j].tolist()
        gone = [x != x for x in column]

        def fewer(cells, some):
            own = sum(c == cells[i] for c in cells)
            return sum(sum(c == d for c in cells) <= own for d in some)

        there = [x for x in column if x == x]
        found += [len(rows) if gone[i] else fewer(column, there), fewer(gone, gone)]
    return min(found) + sum(found) / (len(found) * (len(rows) + 1.0))


def mixed(seed, rows):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 4, size=(rows, 3)).astype(float)
    X[rng.random(X.shape) < 0.15] = np.nan
    X[:, seed % 3] = [rng.normal(size=rows), np.ones(rows), np.full(rows, np.nan)][seed % 3]
    return X


@pytest.mark.parametrize("seed", range(6))
def test_scores_are_counted(seed):
    X = mixed(seed, 12)
    assert Rarity()._training_scores(X) == pytest.approx([by_counting(X, i) for i in range(12)])
    model = Rarity().fit(X[:-1])
    assert model.score_samples(X[-1:])[0] == pytest.approx(by_counting(X, 11))


@pytest.mark.parametrize("seed", range(12))
def test_worlds_are_those_of_refits(seed):
    X, seeds = mixed(seed, 14), np.random.SeedSequence(0)
    D, T = X[:9], X[9:]
    ensemble = Rarity().fit_plan(D, Full().plan(len(D)), [seeds])
    refits = OneModel(Rarity(), D, seeds, None).augmented_scores(T, np.arange(5))
    mine = ensemble.augmented_scores(T, np.arange(5))
    for here, there in zip(_rows(mine), _rows(refits), strict=True):
        assert np.array_equal(here, there)
    for j, r in enumerate(ensemble.ranks(T, strictly=True).at_most):
        own = [by_counting(np.vstack([D, T[j]]), i) for i in range(10)]
        assert r == sum(round(s, 9) <= round(own[-1], 9) for s in own)


def _rows(blocks):
    for block in blocks:
        for j, own, others in zip(block.rows, block.own, block.others, strict=True):
            yield np.append(own, np.delete(others, j))


def table(rng, n):
    frame = pd.DataFrame(
        {
            "fragment": np.zeros(n),
            "service": rng.choice(["http", "smtp", "ftp"], n, p=[0.7, 0.25, 0.05]),
            "bytes": rng.lognormal(5, 2, n),
        }
    )
    frame.loc[rng.random(n) < 0.02, "bytes"] = np.nan
    return frame


@pytest.mark.filterwarnings("ignore::reconform.errors.ReferenceWarning")
@pytest.mark.parametrize("seed", range(3))
def test_the_choice_with_it_is_exact(seed):
    """All worlds of 14 rows, beside three new rows that have a value never seen."""
    rng = np.random.default_rng(seed)
    rows, others = table(rng, 14), table(rng, 3).assign(fragment=[3.0, 3.0, 1.0])
    rows.loc[4, "fragment"], rows.loc[5, "service"] = 1.0, "gopher"

    def judge(reference, new):
        choice = Prepare([Rarity(), "knn", "iforest", "contrast"])
        cad = ConformalDetector(choice, "full", random_state=1).fit(rows.iloc[reference])
        return cad.discover(pd.concat([rows.iloc[[new]], others]), fdr=0.5).p_values[0]

    assert excess(judged(judge, len(rows), seed)) <= 0


@pytest.mark.filterwarnings("ignore::reconform.errors.ReferenceWarning")
@pytest.mark.parametrize(("n", "m", "odd"), [(1500, 400, 8), (16_000, 20_000, 60)])
def test_a_value_never_seen_is_found(n, m, odd, rng):
    """In a column that never changed, by full and by split; labels and gaps never seen as well."""
    normal, new = table(rng, n), table(rng, m)
    for j in range(12):
        normal[f"x{j}"], new[f"x{j}"] = rng.normal(size=n), rng.normal(size=m)
    normal["kind"], new["kind"] = "a", "a"
    new.loc[: odd // 2 - 1, "fragment"] = rng.integers(1, 9, odd // 2)
    new.loc[odd // 2 : odd - 1, "kind"] = None
    found = ConformalDetector(Prepare("auto"), random_state=0).fit(normal).discover(new)
    assert found.mask[:odd].all()
    assert found.count <= 1.5 * odd
