"""What every detector owes, whatever the plan and wherever its rows come from.

Fast roads give the numbers of one fit per model, bit for bit; threads, blocks, the order of rows
and the source of rows change no number; with `full` a row is ranked by one model of all rows, and
the level is exact. What is particular to a detector is in its own file.
"""

import functools
import pickle

import dask
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.svm import OneClassSVM

import oracle
from commands import run_json
from enumeration import judged
from oracle import all_augmented_scores
from reconform import ConformalDetector, Learned, ReconformError, Rule, distributed, methods
from reconform.cli.declare import in_options
from reconform.detectors import (
    DETECTORS,
    INNE,
    KDE,
    KNN,
    LOF,
    Contrast,
    ContrastForest,
    Extreme,
    IForest,
    Mahalanobis,
    Rarity,
)
from reconform.ensemble.refitting import OneModel
from reconform.files.judge import ReadOptions, judge_file
from reconform.models import load, save
from refits import SEED, assert_same_ensemble, assert_same_ranks, fits, plans, refits, seeds_for
from refusals import refused
from rows import DATA, few_valued, grid, normal, repeated

# A plan of any of these is what separate fits are, to the last bit.
TO_THE_BIT = {
    "iforest": IForest(n_estimators=6, share=False),
    "iforest, small trees": IForest(6, max_samples=16, max_features=1, share=False),
    "iforest, bootstrap": IForest(6, max_samples=0.6, bootstrap=True, share=False),
    "iforest, shared": IForest(10, max_samples=12, share=True),
    "iforest, shared bootstrap": IForest(10, max_samples=12, bootstrap=True, share=True),
    "inne": INNE(n_estimators=15, share=False),
    "inne, half": INNE(n_estimators=15, max_samples=0.5, share=False),
    "inne, shared": INNE(n_estimators=12, share=True),
    "inne, lone centres": INNE(n_estimators=12, max_samples=1, share=True),
    "knn": KNN(),
    "knn, nearest": KNN(n_neighbors=1),
    "knn, mean": KNN(method="mean"),
    "knn, mean of 2": KNN(n_neighbors=2, method="mean"),
    "knn, median": KNN(method="median"),
    "knn, median of 4": KNN(n_neighbors=4, method="median"),
    "lof": LOF(n_neighbors=4),
    "rarity": Rarity(),
    "extreme": Extreme(),
}
# Here leave-one-out and full are formulas, whose last digits are compared in their own files.
FORMULAS = {"kde": KDE(1.0), "mahalanobis": Mahalanobis()}
SCALED = {
    "kde, by rule": KDE(),
    "kde, scaled": KDE(scale="robust"),
    "mahalanobis, scaled": Mahalanobis(scale="robust"),
    "mahalanobis, shrunk, scaled": Mahalanobis("auto", "robust"),
    "knn, scaled": KNN(n_neighbors=3, scale="robust"),
    "lof, scaled": LOF(n_neighbors=5, scale="robust"),
    "inne, scaled": INNE(n_estimators=12, max_samples=4, scale="robust"),
}
ALL = TO_THE_BIT | FORMULAS | SCALED
# These learn from the rows that are judged together: `full` is all that they have.
BATCH = {"contrast": Contrast(), "contrast-forest": ContrastForest(n_estimators=20)}
MORE_BATCH = BATCH | {
    "contrast, scaled": Contrast(scale="robust"),
    "contrast, several": Contrast(n_neighbors=(1, 3)),
    "contrast-forest, scaled": ContrastForest(n_estimators=20, scale="robust"),
}


def test_every_detector_is_here():
    ours = {row.kind for name, row in DETECTORS.items() if name not in ("auto", "toy")}
    assert ours == {type(detector) for detector in (ALL | BATCH).values()}


# --- plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", DATA)
@pytest.mark.parametrize("name", TO_THE_BIT | FORMULAS)
def test_every_plan_gives_the_numbers_of_its_refits(name, rows):
    detector, (X, new) = ALL[name], DATA[rows]
    if "iforest" in name and any(word in rows for word in ("far", "tiny", "200", "grid of one")):
        return  # trees compare numbers and add none: these say nothing new of them
    for plan in plans(len(X)).values():
        if fits(detector, plan) and not (plan.leaves_one_out and name in FORMULAS):
            seeds = seeds_for(detector, plan)
            fast = detector.fit_plan(X, plan, seeds)
            assert_same_ensemble(fast, refits(detector, X, plan, seeds), new)


@pytest.mark.filterwarnings("ignore:.max_samples=.* is more than")
@pytest.mark.parametrize(
    ("n", "detector"),
    [
        *((n, IForest(20, share=True, bootstrap=b)) for n, b in ((12, False), (15, True))),
        *((60, IForest(20, max_samples=size, share=True)) for size in (8, 59, 60)),
        (60, IForest(20, max_samples=0.5, max_features=2, share=True)),
        (60, IForest(20, max_samples=20, bootstrap=True, share=True)),
        *((n, INNE(20, share=True)) for n in (3, 6, 7, 8, 9, 10)),
        *((60, INNE(20, max_samples=size, share=True)) for size in (1, 2, 59, 60)),
    ],
    ids=str,
)
def test_shared_draws_are_those_of_separate_fits(n, detector):
    """As many rows as a set has, one more, one less; and far more."""
    rng, plan = np.random.default_rng(n), methods.Jackknife().plan(n)
    for X in (rng.normal(size=(n + 9, 3)), few_valued(rng, n + 9, 3)):
        fast = detector.fit_plan(X[:n], plan, [SEED])  # the last seed is enough
        slow = refits(detector, X[:n], plan, [SEED] * (n + 1))
        assert_same_ensemble(fast, slow, X[n:])


@pytest.mark.parametrize("plan", plans(40, "basic"))
@pytest.mark.parametrize("name", TO_THE_BIT)
def test_a_basic_fit_keeps_what_it_needs(name, plan):
    detector, (X, new), plan = ALL[name], DATA["grid"], plans(40, "basic")[plan]
    if not fits(detector, plan):
        return
    seeds = seeds_for(detector, plan)
    fast, slow = detector.fit_plan(X, plan, seeds), refits(detector, X, plan, seeds)
    assert fast.calibration.fingerprint == slow.calibration.fingerprint
    assert_same_ranks(fast.ranks(new, strictly=True), slow.ranks(new, strictly=True))
    for variant in ("plus", "pooled"):
        if fast.retained:  # A(D) is all that is kept, and all that the others need
            ranked = (one.ranks(new, variant=variant, strictly=True) for one in (fast, slow))
            assert_same_ranks(*ranked)
        else:
            refused("keeps only the one", fast.ranks, new, variant=variant)


@pytest.mark.parametrize("name", TO_THE_BIT | FORMULAS)
def test_ranks_are_algorithm_1(name):
    """A row that no model holds out does not count: of the multisets, row 0."""
    detector, (X, new) = ALL[name], normal(12, 4, d=2)
    for kind, plan in plans(12).items():
        if not fits(detector, plan) or (kind == "jackknife" and name in FORMULAS):
            continue
        seeds = seeds_for(detector, plan)
        ensemble = detector.fit_plan(X, plan, seeds)
        assert kind != "multisets" or 0 not in ensemble.calibration.rows
        slow = refits(detector, X, plan, seeds)
        models = [*(slow.models or [slow.full]), *([slow.full] if plan.full else [])]
        train, phi = [rows.tolist() for rows in plan.train], oracle.phi_of(plan.aggregate)
        for variant in ("plus", "basic", "pooled") if plan.full else ("plus",):
            ranks = ensemble.ranks(new, variant=variant).at_most
            for x, rank in zip(new, ranks, strict=True):
                fitted = iter(models)  # the oracle fits in the order of the plan, and A(D) last
                p = oracle.p_value(
                    X, lambda D, f=fitted: next(f).score_samples, x, train, phi, variant
                )
                assert p == oracle.Fraction(int(rank), len(ensemble.calibration) + 1)


@pytest.mark.parametrize("name", FORMULAS)
def test_models_may_be_ranked_in_parts(name):
    X, new = normal()
    plan = methods.Jackknife().plan(len(X))
    whole, first, second = (
        ALL[name].fit_plan(X, part, [SEED] * (len(X) + 1))
        for part in (plan, plan.part(np.arange(9)), plan.part(np.arange(9, len(X))))
    )
    counted = first.ranks(new).at_most + second.ranks(new).at_most - 1
    assert np.array_equal(whole.ranks(new).at_most, counted)
    assert np.array_equal(whole.scores(new), np.vstack([first.scores(new), second.scores(new)]))
    held = np.concatenate([first.calibration.scores, second.calibration.scores])
    assert np.array_equal(whole.calibration.scores, held)


# --- one more row --------------------------------------------------------------------------------

ONE_MORE = {name: TO_THE_BIT[name] for name in TO_THE_BIT if "shared" not in name} | {
    f"knn, {metric}": KNN(n_neighbors=3, method="mean", **metric)
    for metric in map(dict, ([("p", 1)], [("p", 3)], [("metric", "chebyshev")],
                             [("metric", "cosine")], [("metric", "sqeuclidean")]))
}  # fmt: skip


def assert_full_is_one_model_per_row(detector, X, new):
    new = np.vstack([new, X[:2], X[-1:]])  # rows that are in D already
    asked = np.arange(len(new))[::-1]
    full = detector.fit_plan(X, methods.Full().plan(len(X)), [SEED])
    expected = all_augmented_scores(OneModel(detector, X, SEED, 1), new, asked)
    for ours, theirs in zip(all_augmented_scores(full, new, asked), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    own, mine, _ = (part[::-1] for part in expected)
    ranks = full.ranks(new, strictly=True)
    assert ranks.at_most.dtype == ranks.below.dtype == np.int64
    np.testing.assert_array_equal(ranks.at_most, 1 + (own <= mine[:, None]).sum(axis=1))
    np.testing.assert_array_equal(ranks.below, 1 + (own < mine[:, None]).sum(axis=1))
    np.testing.assert_array_equal(ranks.scores, mine)
    assert full.ranks(new).below is None
    assert not list(full.augmented_scores(new, asked[:0]))


@pytest.mark.parametrize("rows", DATA)
@pytest.mark.parametrize("name", ONE_MORE)
def test_full_is_one_model_per_row(name, rows):
    """All scores with each new row, and the ranks that follow from them."""
    assert_full_is_one_model_per_row(ONE_MORE[name], *DATA[rows])


@pytest.mark.parametrize("n", [6, 7, 8, 9, 30, 254, 255, 256, 257, 300])
@pytest.mark.parametrize("name", ["iforest", "inne"])
def test_full_whatever_the_number_of_rows(name, n):
    """About as many rows as a sphere has centres, or a tree rows; and far more."""
    rng = np.random.default_rng(n)
    detector = {"iforest": IForest(n_estimators=30), "inne": INNE(n_estimators=20)}[name]
    for draw in (rng.normal(size=(n + 6, 3)), few_valued(rng, n + 6, 3)):
        assert_full_is_one_model_per_row(detector, draw[:n], draw[n:])


@pytest.mark.parametrize(
    "detector",
    [
        IForest(max_samples=16),
        IForest(max_samples=16, bootstrap=True, max_features=2),
        IForest(n_estimators=10, max_samples=1.0),
        IForest(n_estimators=10, max_samples=1.0, bootstrap=True),
        IForest(max_samples=0.1, max_features=0.5),
        IForest(max_samples=32, max_features=1, bootstrap=True),
        IForest(max_samples=1),
        IForest(n_estimators=300, max_samples=2),  # most rows enter few trees, or none
        IForest(n_estimators=1, max_samples=300, max_features=2),
        *(INNE(n_estimators=10, max_samples=size) for size in (1, 2, 20, 0.5, 1.0)),
    ],
    ids=str,
)
def test_full_whatever_is_drawn(detector, rng):
    X = rng.normal(size=(90, 4))[rng.integers(0, 30, size=90)]  # many copies
    assert_full_is_one_model_per_row(detector, X, np.vstack([X[:3] + 5.0, rng.normal(size=(6, 4))]))


@given(st.data())
@settings(max_examples=150)
def test_full_on_any_few_rows(data):
    """Few values, few rows, and any parameters: everything ties."""
    draw = data.draw
    n, d = draw(st.integers(2, 40)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = rng.normal(size=(n + 3, d)).round(draw(st.integers(0, 2)))
    size, sets = draw(st.integers(1, n + 1)), draw(st.integers(1, 8))
    k, method = draw(st.integers(1, n)), draw(st.sampled_from(["largest", "mean", "median"]))
    metric = draw(st.sampled_from([{}, {"p": 3}, {"metric": "manhattan"}, {"metric": "cosine"}]))
    detector = draw(
        st.sampled_from(
            [
                IForest(
                    sets, size, max_features=draw(st.integers(1, d)), bootstrap=draw(st.booleans())
                ),
                INNE(sets, size),
                KNN(n_neighbors=k, method=method, leaf_size=1, **metric),
                LOF(n_neighbors=k),
            ]
        )
    )
    assert_full_is_one_model_per_row(detector, rows[:n], rows[n:])


def scores_by_row(cad, T, n):
    """Scores of the reference rows, in their order, with every new row there."""
    found = np.empty((len(T), n))
    for augmented in cad.ensemble_.augmented_scores(T, np.arange(len(T))):
        order = np.arange(n) if augmented.order is None else augmented.order
        found[np.ix_(augmented.rows, order)] = augmented.own[:, :n]
    return found


@pytest.mark.parametrize("detector", [*ALL.values(), *MORE_BATCH.values(), OneClassSVM()], ids=str)
def test_augmented_scores_move_with_their_rows(detector, tmp_path, rng):
    """Also after a model file: who scores what is needed where rows are not alike."""
    D, moved = rng.normal(size=(60, 3)), rng.permutation(60)
    D[7] = D[3]  # duplicates have equal scores
    T = np.vstack([rng.normal(size=(24, 3)), D[:1]])
    here, there = (
        ConformalDetector(detector, "full", random_state=0).fit(X) for X in (D, D[moved])
    )
    expected = scores_by_row(here, T, 60)
    assert np.array_equal(scores_by_row(there, T, 60), expected[:, moved])
    if not isinstance(detector, OneClassSVM):
        save(here, tmp_path / "m.rcad")
        assert np.array_equal(scores_by_row(load(tmp_path / "m.rcad"), T, 60), expected)


@pytest.mark.parametrize("name", ALL)
def test_a_copy_is_tied_with_its_original(name):
    for rows in ("grid", "one feature", "repeated rows", "constant columns"):
        X, _ = DATA[rows]
        ranks = ConformalDetector(ALL[name], "full", ties="randomized", random_state=0).fit(X)
        ranks = ranks.rank(X)
        assert (ranks.at_most > ranks.below).all()


# --- what changes no number ----------------------------------------------------------------------

# What decides how work is cut into blocks and given to threads: as small as it may be.
BLOCKS = {
    "reconform.ensemble.BLOCK_BYTES": 700,
    "reconform.parallel.LEAST_WORK": 0,
    "reconform.detectors.knn.search.SMALL_WORK": 0,
    "reconform.detectors.knn.search.AT_ONCE": 1000,
    "reconform.detectors.one_more.LEAST_AT_ONCE": 2,
    "reconform.detectors.knn.ensembles.BLOCK_BYTES": 1000,
    "reconform.detectors.iforest.model.DRAWN_AT_ONCE": 500,
    "reconform.detectors.iforest.ensembles.DRAWN_AT_ONCE": 100,
    "reconform.detectors.iforest.ensembles.CHUNK_MODELS": 4,
    "reconform.detectors.iforest.ensembles.CHUNK_NODES": 1,
    "reconform.detectors.inne.ensembles.STEP_ROWS": 20,
    "reconform.detectors.lof.BLOCK_BYTES": 200,
}
METHODS = {
    "split": "split",
    "jackknife+": "jackknife+",
    "jackknife": "jackknife",
    "pooled": methods.Jackknife("pooled"),
    "cv+": methods.CrossValidation(3),
    "jab+": methods.Bootstrap(5),
    "repeats": methods.Split(repeats=3),
    "full": "full",
}


def detector(name, method, **given):
    """One that tells ties apart, where p-values can be smoothed."""
    ties = "conservative" if method == "repeats" else "randomized"
    return ConformalDetector(ALL[name], METHODS[method], ties=ties, random_state=0, **given)


@pytest.mark.filterwarnings("ignore:all .* calibration scores are equal")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ALL)
def test_order_threads_and_blocks_change_nothing(name, method, monkeypatch):
    def ranked(D, new, n_jobs=None):
        return detector(name, method, n_jobs=n_jobs).fit(D).rank(new)

    copies = grid(40, 12)
    copies[0][::7] *= -0.0  # equal to the others, and other bits
    for D, new in (copies, normal(40, 12, d=17)):
        order = np.random.default_rng(1).permutation(len(D))
        expected = ranked(D, new)
        assert_same_ranks(ranked(D[order], new, n_jobs=2), expected)
    for where, value in BLOCKS.items():
        monkeypatch.setattr(where, value)
    for lanes in (1, 3, 1000) if "inne" in name else (1,):
        monkeypatch.setattr("reconform.detectors.inne.ensembles.LEAST_LANES", lanes)
        monkeypatch.setattr("reconform.detectors.inne.ensembles.MOST_LANES", lanes)
        assert_same_ranks(ranked(D, new, n_jobs=2), expected)


@pytest.mark.parametrize("name", ALL)
def test_blocks_and_threads_do_not_change_augmented_scores(name, monkeypatch):
    X, new = grid(40, 15, d=3)
    asked = np.array([3, 0, 7, 11])

    def fitted(n_jobs):
        return ALL[name].fit_plan(X, methods.Full().plan(len(X)), [SEED], n_jobs=n_jobs)

    whole = all_augmented_scores(fitted(1), new, asked)
    for where, value in BLOCKS.items():
        monkeypatch.setattr(where, value)
    for ours, theirs in zip(all_augmented_scores(fitted(2), new, asked), whole, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert len(list(fitted(2).augmented_scores(new, asked))) > 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ALL)
def test_neither_batch_nor_place_nor_memory(name, method, tmp_path):
    """A row alone, backwards, in any layout; a pickled copy; a model file, written twice."""
    X, new = (np.array(part) for part in normal(40, 12))
    X.flags.writeable = new.flags.writeable = False
    cad = detector(name, method).fit(X)
    expected = cad.rank(new)
    for part in ("at_most", "scores") if method == "repeats" else ("at_most", "below", "scores"):
        whole = getattr(expected, part)
        assert np.array_equal(getattr(cad.rank(new[::-1]), part)[::-1], whole)
        assert np.array_equal([getattr(cad.rank(x[None]), part)[0] for x in new], whole)
    assert_same_ranks(cad.rank(np.asfortranarray(new)), expected)
    assert_same_ranks(pickle.loads(pickle.dumps(cad)).rank(new), expected)
    for path in (tmp_path / "one.rcad", tmp_path / "two.rcad"):
        save(cad, path)
        cad = load(path)
        assert_same_ranks(cad.rank(new), expected)


@pytest.mark.parametrize("name", MORE_BATCH)
def test_with_the_batch_order_threads_and_files_change_nothing(name, tmp_path):
    rng = np.random.default_rng(3)
    for D, new in ((rng.normal(size=(80, 3)), rng.normal(size=(40, 3))), grid(80, 40)):
        new[:8, 0] += 2
        order, place = rng.permutation(80), rng.permutation(40)
        one, other = (
            ConformalDetector(MORE_BATCH[name], "full", random_state=0, n_jobs=n) for n in (1, 2)
        )
        here, there = one.fit(D), other.fit(D[order])
        save(here, tmp_path / "m.rcad", overwrite=True)
        for found, of in ((there.discover(new[place]), place), (load(tmp_path / "m.rcad"), ...)):
            found = found if of is place else found.discover(new)
            assert np.array_equal(found.p_values, here.discover(new).p_values[of])
            assert np.array_equal(found.scores, here.discover(new).scores[of])
            assert found.guarantee == here.discover(new).guarantee
        assert not np.array_equal(found.p_values, here.p_values(new))


# --- sources -------------------------------------------------------------------------------------

FROM = {
    "list": lambda rows: rows.tolist(),
    "polars": lambda rows: pl.DataFrame(rows, schema=list("abc")),
    "arrow": lambda rows: pa.table(dict(zip("abc", rows.T, strict=True))),
    "pandas": lambda rows: pd.DataFrame(rows, columns=list("abc")),
}
SIX = ("iforest", "inne", "knn", "lof", "kde", "mahalanobis")
SOURCED = {name: ALL[name] for name in (*SIX, "knn, scaled")} | BATCH


LEARNER = LogisticRegression()
KINDS = {"groups": "kind"}
# Detector, method, what fit takes (and whether rows have groups), the rule, and the same for the
# command line, where it can be said there.
LISTS = {
    "choice on a split": (["knn", "mahalanobis", "kde"], "split", {}, {}, None),
    "choice": (["knn", "contrast"], "full", {}, {}, None),
    "choice with others": (["knn", OneClassSVM()], "split", {}, {}, None),
    "auto": ("auto", "auto", {}, {}, ""),
    "learned": ("auto", Learned(LEARNER, most_rows=70), {}, {}, None),
    "learned, repeats": ("auto", Learned(LEARNER, repeats=3, most_rows=70), {}, {}, None),
    "batch": ("knn", "batch", {}, {}, "--detector knn --method batch"),
    "contrast": ("contrast", "full", {}, {}, "--detector contrast --method full"),
    "certified": ("knn", "jackknife+", {}, {"validity": "proven"},
                  "--detector knn --method jackknife+ --validity proven"),
    "certified choice": (["knn", "lof"], "full", {}, {"validity": "proven"}, None),
    "false alarms": ("knn", "split", {}, {"false_alarms": 2},
                     "--detector knn --method split --false-alarms 2"),
    "conditional": ("knn", "split", {}, {"conditional": "simes"}, None),
    "storey": ("knn", "split", {}, {"procedure": "storey"},
               "--detector knn --method split --procedure storey"),
    "known anomalies": ("contrast", "full", {"anomalies": True}, {},
                        "--detector contrast --method full --anomalies known.csv"),
    "anomalies speak": (["knn", "lof"], "split", {"anomalies": True}, {}, None),
    "groups": ("lof", "split", KINDS, {}, "--detector lof --method split --group kind"),
    "groups, certified": ("iforest", "full", KINDS, {"validity": "proven"},
                          "--detector iforest --method full --group kind --validity proven"),
    "groups, by alarms": ("knn", "cv+", KINDS, {"false_alarms": 3},
                          "--detector knn --method cv+ --group kind --false-alarms 3"),
    "group models": ("lof", "full", KINDS | {"group_models": True}, {},
                     None),
    "group models, choice": (["knn", "mahalanobis"], "split",
                             KINDS | {"group_models": True}, {}, None),
}  # fmt: skip
IN_MEMORY = ("choice", "contrast", "certified", "certified choice", "known anomalies", "batch",
             "groups, certified", "group models, choice")  # fmt: skip


@functools.cache
def fitted_for(name):
    """All rows of a list, what is asked about them, and the answer from memory."""
    detector, method, fit, rule, _ = LISTS[name]
    rng = np.random.default_rng(8)
    X, new, known = (
        pd.DataFrame(rng.normal(size=(rows, 3)).round(3) + shift, columns=list("abc"))
        for rows, shift in ((240, 0), (60, 0), (12, 4))
    )
    new.iloc[:9] += 4
    given = {"groups": np.resize(["u", "v", "v"], 240)} if "groups" in fit else {}
    asked = {"groups": np.resize(["v", "u"], 60)} if "groups" in fit else {}
    given |= {"anomalies": known} if "anomalies" in fit else {}
    more = {"group_models": True} if "group_models" in fit else {}
    cad = ConformalDetector(detector, method, random_state=0, **more).fit(X, **given)
    rule = Rule(**({} if "false_alarms" in rule else {"fdr": 0.3}), **rule)
    return X, new, known, given, asked, cad, rule, cad.decide(new, rule, **asked)


@pytest.mark.parametrize("source", ["parts", "model file", "dask", "command"])
@pytest.mark.parametrize("name", LISTS)
def test_every_list_is_the_same_from_every_source(name, source, here):
    X, new, known, given, asked, cad, rule, expected = fitted_for(name)
    command = LISTS[name][-1]
    X.assign(kind=given.get("groups")).to_csv("normal.csv", index=False)
    new.assign(kind=asked.get("groups")).to_csv("new.csv", index=False)
    known.to_csv("known.csv", index=False)
    if source == "parts":
        read = ReadOptions(group_column="kind" if asked else None, batch_rows=13)
        found = judge_file(cad, "new.csv", rule=rule, read=read).to_discoveries()
    elif source == "model file":
        if name in ("batch", "learned", "learned, repeats"):
            refused("no model exists", save, cad, "m.rcad")
            return
        save(cad, "m.rcad")
        found = load("m.rcad", trusted=True).decide(new, rule, **asked)
    elif source == "dask":
        dd = pytest.importorskip("dask.dataframe", reason="needs reconform[dask]")
        rows = dd.from_pandas(new.assign(**({"kind": asked["groups"]} if asked else {})), 3)
        column = {"groups": "kind"} if asked else {}
        if name in IN_MEMORY:
            with pytest.raises(ReconformError, match=r"in memory|in parts|one batch"):
                distributed.discover(cad, rows, rule=rule, **column)
            return
        with dask.config.set(scheduler="threads"):
            found = distributed.discover(cad, rows, rule=rule, **column)
            frame = found.frame.compute()
        assert np.array_equal(frame["p_value"], expected.p_values)
        assert np.array_equal(frame["anomaly"], expected.mask)
    elif command is not None:
        unused = [] if asked else ["--drop", "kind"]
        level = [] if rule.false_alarms else ["--fdr", rule.fdr]
        facts = run_json("detect", "normal.csv", "new.csv", *command.split(), *unused, *level,
                         "--output", "out.csv")  # fmt: skip
        assert facts["flagged"] == expected.count
        assert facts["guarantee"] == in_options(expected.guarantee)
        written = pd.read_csv("out.csv")
        assert np.allclose(written["p_value"], expected.p_values, rtol=1e-15)
        assert np.array_equal(written["anomaly"], expected.mask)
        return
    else:
        return
    assert expected.count > 3
    for part in ("count", "tested", "guarantee", "choice", "ranked_by", "groups", "headline"):
        assert getattr(found, part) == getattr(expected, part), part
    if source != "dask":
        for part in ("mask", "p_values", "q_values", "scores", "e_values"):
            ours, theirs = getattr(found, part), getattr(expected, part)
            assert (ours is None and theirs is None) or np.array_equal(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("method", ["split", "jackknife+", "cv+", "jab+", "full"])
@pytest.mark.parametrize("name", SOURCED)
def test_every_source_gives_the_same_list(name, method, tmp_path):
    if name in BATCH and method != "full":
        return
    rng = np.random.default_rng(5)
    X, new = rng.normal(size=(60, 3)).round(3), rng.normal(size=(31, 3)).round(3)
    new[:4] += 8.0
    detector = ConformalDetector(SOURCED[name], method, random_state=0)
    expected = clone(detector).fit(X).discover(new, fdr=0.2)
    for convert in FROM.values():
        cad = clone(detector).fit(convert(X))
        found = cad.discover(convert(new), fdr=0.2)
        for part in ("mask", "q_values", "p_values", "scores"):
            assert np.array_equal(getattr(found, part), getattr(expected, part))
    pd.DataFrame(new, columns=list("abc")).to_csv(tmp_path / "new.csv", index=False)
    read = ReadOptions(batch_rows=7)
    found = judge_file(cad, tmp_path / "new.csv", read=read).to_discoveries()
    for part in ("p_values", "scores"):
        assert np.array_equal(getattr(found, part), getattr(expected, part))


# --- the level, and what is proven ---------------------------------------------------------------

LEVELS = {
    "iforest": IForest(n_estimators=10, max_samples=8),
    "iforest, bootstrap": IForest(n_estimators=10, max_samples=8, bootstrap=True),
    "inne": INNE(n_estimators=20),
    "inne, few sets": INNE(n_estimators=3),
    "knn": KNN(n_neighbors=3),
    "knn, mean": KNN(n_neighbors=3, method="mean"),
    "knn, median": KNN(n_neighbors=3, method="median"),
    "lof": LOF(n_neighbors=3),
    "kde": KDE(1.0),
    "mahalanobis": Mahalanobis(),
}


@pytest.mark.parametrize("name", LEVELS)
def test_over_all_worlds_the_level_of_full_is_exact(name):
    """Each of 20 rows in turn is the new one, ties and copies among them.

    A smoothed p-value is uniform between two ranks: over all worlds every step of the grid is met
    once, which also bounds P(p <= α) of the conservative ones.
    """
    for E in (grid(20)[0], normal(20)[0], repeated()[0][:20]):

        def judge(D, new, E=E):
            ensemble = LEVELS[name].fit_plan(E[D], methods.Full().plan(19), [SEED])
            ranks = ensemble.ranks(E[[new]], strictly=True)
            return ranks.below[0], ranks.at_most[0]

        met = np.zeros(20)
        for below, at_most in judged(judge, 20).astype(int):
            met[below - 1 : at_most] += 1 / (at_most - below + 1)
        np.testing.assert_allclose(met, 1.0)


@pytest.mark.parametrize("method", ["full", "jackknife+", "cv+"])
@pytest.mark.parametrize("name", ["lof", "knn", "iforest", "inne", *FORMULAS, *SCALED])
def test_certified_lists(name, method, tmp_path, rng):
    """By one model per candidate, on D and the candidate, also after a model file."""
    X, new = rng.normal(size=(99, 2)), np.vstack([rng.normal(size=(16, 2)), np.full((4, 2), 7.0)])
    cad = ConformalDetector(ALL[name], method, random_state=0).fit(X)
    found = cad.discover(new, fdr=0.2, validity="proven")
    assert found.certified
    assert found.guarantee.startswith("FDR proven (conditional calibration)")
    assert found.mask[-4:].all() or "inne" in name
    assert found.count <= (8 if "scaled" in name or "inne" in name else 5)
    if method == "full" or (name == "knn" and method == "jackknife+"):
        save(cad, tmp_path / "model.rcad")
        again = load(tmp_path / "model.rcad").discover(new, fdr=0.2, validity="proven")
        assert np.array_equal(again.e_values, found.e_values)


@pytest.mark.filterwarnings("error", "ignore:all .* calibration scores are equal")
@pytest.mark.parametrize("name", [*FORMULAS, "kde, by rule", "kde, scaled", "mahalanobis, scaled"])
def test_huge_numbers(name):
    detector, X = ALL[name], np.random.default_rng(4).normal(size=(30, 2))
    for D, x in (
        (X, [[1e300, 0.0], [0.0, -1e308]]),
        (np.vstack([X, [[1e300, 1e300]]]), [[0.0, 0.0]]),
        (X * 1e300, [[0.0, 0.0]]),
        (X * 1e-300, [[0.0, 0.0]]),
    ):
        for method in ("full", "jackknife+", "jackknife", "cv+"):
            ranks = ConformalDetector(detector, method).fit(D).rank(x)
            assert np.isfinite(ranks.scores).all()
            assert D is not X or ranks.at_most.tolist() == [1, 1]


@pytest.mark.filterwarnings("ignore:all . calibration scores are equal")
@pytest.mark.parametrize("rows", [[[0.0, 1.0], [1.0, 1.0]], [[2.0, 2.0]] * 3], ids=len)
@pytest.mark.parametrize("name", [*FORMULAS, "kde, by rule"])
def test_few_and_equal_rows(name, rows):
    for method in ("full", "jackknife+"):
        p = ConformalDetector(ALL[name], method).fit(rows).p_values([rows[0], [50.0, 50.0]])
        assert p.tolist() == [1.0, 1 / (len(rows) + 1)]


# --- parameters ----------------------------------------------------------------------------------

COUNT, SHARE = "must be an integer of at least 1; got", r"share in \(0, 1\]; got"
BAD = [
    (KNN(n_neighbors=0), f"n_neighbors {COUNT} 0"),
    (KNN(n_neighbors=2.5), "n_neighbors must be an integer"),
    (KNN(method="max"), "method must be one of 'largest', 'mean', 'median'; got 'max'"),
    (KNN(algorithm="tree"), "algorithm must be one of"),
    (KNN(leaf_size=0), f"leaf_size {COUNT} 0"),
    (KNN(p=0), "p must be a positive number; got 0"),
    (KNN(metric="no such"), "metric must be one of .*; got 'no such'.* PyOD"),
    (KNN(metric=abs), "metric must be one of "),
    (LOF(n_neighbors=0), f"n_neighbors {COUNT} 0"),
    *((IForest(**{name: value}), f"{name}.*{value}")
      for name, value in (("n_estimators", 0), ("max_samples", "all"), ("max_samples", 0),
                          ("max_samples", 1.5), ("max_samples", True), ("max_features", 99),
                          ("max_features", 0.0), ("max_features", "sqrt"), ("share", "yes"))),
    (INNE(n_estimators=0), f"n_estimators {COUNT} 0"),
    (INNE(max_samples="all"), "max_samples must be one of 'auto'; got 'all'"),
    (INNE(max_samples=0), f"max_samples {COUNT} 0"),
    *((INNE(max_samples=value), f"{SHARE} {value}") for value in (1.5, None)),
    (INNE(max_samples=0.01), r"max_samples=0.01 of \d+ training rows is less than one row"),
    (INNE(share="yes"), "share must be 'auto', True or False; got 'yes'"),
    *((Mahalanobis(value), "`ridge` must be 'auto' or a number between")
      for value in (0, -1.0, np.nan, np.inf, True, "1", None)),
    *((KDE(value), "`bandwidth` must be 'auto' or a number between")
      for value in (0, -1.0, np.nan, np.inf, True, "scott", None)),
    *((kind(scale="standard"), "scale must be one of 'none', 'robust', 'direction'; got 'standard'")
      for kind in (KNN, LOF, INNE, KDE, Mahalanobis, Contrast, ContrastForest)),
    *((kind(contamination=value), "contamination must be a number strictly between 0 and 1")
      for kind in (KNN, IForest, INNE) for value in (0.0, 1)),
    (IForest(random_state="seven"), "random_state.*seven"),
]  # fmt: skip


@pytest.mark.parametrize(("detector", "message"), BAD, ids=str)
def test_bad_parameters_are_named(detector, message):
    """Alone, and before any plan fits a model."""
    X = np.zeros((20, 2))
    refused(message, clone(detector).fit, X)
    if {"contamination", "random_state"} & set(message.split(".*")[0].split()):
        return  # of a detector by itself
    for method in ("full", "jackknife+", "split"):
        if not getattr(detector, "uses_batch", False) or method == "full":
            refused(message, ConformalDetector(detector, method).fit, X)
