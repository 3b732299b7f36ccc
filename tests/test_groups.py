"""Ranks within groups, decided together: against literal versions in fractions and over worlds."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from reconform import ConformalDetector, load, methods, save
from reconform.cli import main
from reconform.detectors import KNN
from reconform.ensemble.grouped import worlds_within
from reconform.errors import ReconformError, ReferenceWarning
from reconform.files.judge import ReadOptions, judge_file
from reconform.rule import Rule
from reconform.statistics.exact import usual
from reconform.statistics.fdr import RankCounts
from reconform.statistics.joint import JointGrid, JointRanks, JointStepUp
from reconform.stream import (
    ChangeMonitor,
    ExchangeabilityMonitor,
    FalseAlarmBudget,
    MicroBatches,
)

SIZES = (19, 7, 12)


def two_types(seed=0, n=(60, 40), m=(40, 25), anomalies=(5, 4)):
    """Two types of machine with different laws; anomalies of each come last."""
    rng = np.random.default_rng(seed)
    centre, spread = (0.0, 6.0), (1.0, 3.0)
    parts = [
        (
            c + s * rng.normal(size=(k, 2)),
            c + s * (8 * (np.arange(m_) >= m_ - a)[:, None] + rng.normal(size=(m_, 2))),
        )
        for c, s, k, m_, a in zip(centre, spread, n, m, anomalies, strict=True)
    ]
    X, new = (np.vstack([part[i] for part in parts]) for i in (0, 1))
    return X, np.repeat(["a", "b"], n), new, np.repeat(["a", "b"], m)


def joint_ranks(rng, rows):
    joint = JointRanks(np.array(SIZES))
    codes = rng.integers(0, len(SIZES), rows)
    ranks = np.array([rng.integers(1, SIZES[g] + 2) ** 2 // (SIZES[g] + 1) or 1 for g in codes])
    return joint, codes, ranks


# --- decisions -----------------------------------------------------------------------------------


def literal(p, level, procedure, share):
    """Step up on fractions, as the definition has it."""
    m = len(p)
    factor = Fraction(1)
    if procedure == "by":
        factor = sum((Fraction(1, i) for i in range(1, m + 1)), Fraction(0))
    if procedure == "storey":
        factor = Fraction(1 + sum(one >= share for one in p), m) / (1 - share)
    lengths = [k for k in range(1, m + 1) if sum(one * factor <= level * k / m for one in p) >= k]
    cut = level * max(lengths, default=0) / m
    return [one * factor <= cut for one in p]


@pytest.mark.parametrize("procedure", ["bh", "by", "storey"])
def test_decisions_are_those_on_fractions(procedure):
    rng = np.random.default_rng(0)
    share = Fraction(1, 2)
    for trial in range(40):
        sizes = np.array([19, 7, 3]) if procedure == "storey" else np.array(SIZES)
        joint = JointRanks(sizes)
        codes = rng.integers(0, 3, 30)
        ranks = 1 + (rng.random(30) ** 4 * (sizes[codes] + 1)).astype(int)
        p = [Fraction(int(r), int(sizes[g]) + 1) for g, r in zip(codes, ranks, strict=True)]
        level = Fraction(1 + trial % 5, 10)
        flat = joint.joined(codes, ranks)
        counts = RankCounts(joint.highest - 1, "").add(flat)
        grid = JointGrid.of([usual(int(n)) for n in sizes])
        found = counts.decide(level, procedure=procedure, storey_lambda=share, grid=grid)
        wanted = literal(p, level, procedure, share)
        assert found.mask(flat).tolist() == wanted
        assert found.count == sum(wanted)
        assert grid.values(flat).tolist() == [float(one) for one in p]
        # the q-value of a row is the smallest level at which it is found
        for q in np.unique(found.q_values(flat)):
            for near, wanted in ((1 + 1e-9, q), (1 - 1e-9, np.nextafter(q, 0))):
                if 0 < q * near < 1:
                    options = {"procedure": procedure, "storey_lambda": share, "grid": grid}
                    there = counts.decide(Fraction(q * near), **options).mask(flat)
                    assert (there == (found.q_values(flat) <= wanted)).all()


def test_denominators_that_no_machine_number_holds():
    sizes = [p - 1 for p in (10_007, 10_009, 10_037, 10_039, 10_061)]  # their lcm has 67 bits
    grid = JointGrid.of([usual(n) for n in sizes])
    assert grid.numerators.dtype == object
    joint = JointRanks(np.array(sizes))
    codes, ranks = np.array([0, 1, 2, 3, 4]), np.array([1, 1, 1, 9_000, 5_000])
    flat = joint.joined(codes, ranks)
    wanted = [r / (sizes[g] + 1) for g, r in zip(codes, ranks, strict=True)]
    assert grid.values(flat).tolist() == wanted
    counts = RankCounts(joint.highest - 1, "").add(flat)
    assert counts.decide(0.1, grid=grid).mask(flat).tolist() == [True] * 3 + [False] * 2


def test_joint_ranks_and_back():
    rng = np.random.default_rng(1)
    joint, codes, ranks = joint_ranks(rng, 200)
    groups, within = joint.apart(joint.joined(codes, ranks))
    assert (groups == codes).all()
    assert (within == ranks).all()


# --- ranks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["split", "full", "jackknife+", "cv+"])
@pytest.mark.parametrize("detector", ["knn", "iforest"])
def test_ranks_within_groups_add_up_to_ranks(detector, method):
    X, groups, new, theirs = two_types()
    plain = ConformalDetector(detector, method, random_state=0).fit(X)
    every, codes = plain.ensemble_, (groups == "b").astype(int)
    members = [np.flatnonzero(codes[every.calibration.rows] == g) for g in (0, 1)]
    ranks = [every.ranks_within(new, np.full(len(new), g), members).at_most for g in (0, 1)]
    assert (ranks[0] + ranks[1] - 1 == plain.ranks(new)).all()
    if method != "split":  # whose split is drawn in every group
        cad = ConformalDetector(detector, method, random_state=0).fit(X, groups=groups)
        sizes = np.where(theirs == "b", 40, 60)
        wanted = np.where(theirs == "b", ranks[1], ranks[0]) / (sizes + 1)
        assert (cad.p_values(new, groups=theirs) == wanted).all()


def test_a_split_calibrates_the_same_share_of_every_group():
    X, groups, *_ = two_types()
    cad = ConformalDetector("knn", "split", random_state=0).fit(X, groups=groups)
    assert cad.grouping_.names == ("a", "b")
    assert cad.grouping_.calibration.tolist() == [30, 20]
    own = ConformalDetector("knn", "split", random_state=0, group_models=True)
    assert own.fit(X, groups=groups).grouping_.calibration.tolist() == [30, 20]


@pytest.mark.parametrize("method", ["split", "full", "jackknife+"])
def test_models_of_their_own_rank_like_separate_detectors(method):
    X, groups, new, theirs = two_types()
    own = ConformalDetector("knn", method, random_state=0, group_models=True)
    p = own.fit(X, groups=groups).p_values(new, groups=theirs)
    for group in ("a", "b"):
        alone = ConformalDetector("knn", method, random_state=0).fit(X[groups == group])
        assert (p[theirs == group] == alone.p_values(new[theirs == group])).all()


@pytest.mark.parametrize("models", [False, True])
@pytest.mark.parametrize("validity", ["nominal", "proven"])
@pytest.mark.parametrize("method", ["split", "full"])
def test_one_group_gives_the_same_numbers_as_none(method, validity, models):
    X, _, new, _ = two_types()
    plain = ConformalDetector("knn", method, random_state=0).fit(X)
    cad = ConformalDetector("knn", method, random_state=0, group_models=models)
    cad.fit(X, groups=np.full(len(X), 7))
    ones = ["7"] * len(new)
    wanted, found = (
        plain.discover(new, 0.2, validity=validity),
        cad.discover(new, 0.2, validity=validity, groups=ones),
    )
    for name in ("mask", "p_values", "q_values", "scores", "ranks"):
        assert np.array_equal(getattr(found, name), getattr(wanted, name), equal_nan=True)
    assert found.guarantee == wanted.guarantee
    assert (found.e_values is None) == (wanted.e_values is None)
    assert found.groups[0].flagged == found.count
    by_counts = cad.decide_counts(cad.rank_counts(new, groups=ones), Rule(0.2))
    assert by_counts.count == plain.decide_counts(plain.rank_counts(new), Rule(0.2)).count


def test_storey_on_one_group_rounds_its_lambda_as_ever():
    X, _, new, _ = two_types()
    plain = ConformalDetector("knn", "full").fit(X)
    cad = ConformalDetector("knn", "full").fit(X, groups=["x"] * len(X))
    wanted = plain.discover(new, 0.2, procedure="storey")
    found = cad.discover(new, 0.2, procedure="storey", groups=["x"] * len(new))
    assert (found.mask == wanted.mask).all()


# --- a detector is chosen for every row ----------------------------------------------------------

CANDIDATES = ["knn", "mahalanobis"]


@pytest.mark.parametrize("models", [False, True])
@pytest.mark.parametrize("validity", ["nominal", "proven"])
@pytest.mark.parametrize("method", ["split", "full", "auto"])
def test_a_choice_in_one_group_is_the_choice_without(method, validity, models):
    X, _, new, _ = two_types(n=(300, 200))
    plain = ConformalDetector(CANDIDATES, method, random_state=0).fit(X)
    cad = ConformalDetector(CANDIDATES, method, random_state=0, group_models=models)
    cad.fit(X, groups=["x"] * len(X))
    wanted = plain.discover(new, 0.3, validity=validity)
    found = cad.discover(new, 0.3, validity=validity, groups=["x"] * len(new))
    assert wanted.count > 0
    for name in ("mask", "p_values", "q_values", "scores", "ranks"):
        assert np.array_equal(getattr(found, name), getattr(wanted, name), equal_nan=True)
    assert found.choice == wanted.choice
    assert found.guarantee == wanted.guarantee


def test_the_default_detector_in_one_group_is_the_default_without():
    X, _, new, _ = two_types(n=(60, 40), m=(12, 8), anomalies=(2, 2))
    wanted = ConformalDetector(random_state=0).fit(X).discover(new, 0.3)
    cad = ConformalDetector(random_state=0).fit(X, groups=["x"] * len(X))
    found = cad.discover(new, 0.3, groups=["x"] * len(new))
    assert (found.p_values == wanted.p_values).all()
    assert found.choice == wanted.choice
    assert len(found.choice) > 5


@pytest.mark.parametrize("method", ["split", "full"])
def test_choices_of_their_own_are_those_of_separate_batches(method):
    X, groups, new, theirs = two_types()
    own = ConformalDetector(CANDIDATES, method, random_state=0, group_models=True)
    found = own.fit(X, groups=groups).discover(new, 0.2, groups=theirs)
    for group in ("a", "b"):
        alone = ConformalDetector(CANDIDATES, method, random_state=0).fit(X[groups == group])
        wanted = alone.discover(new[theirs == group], 0.2)
        assert (found.p_values[theirs == group] == wanted.p_values).all()


@pytest.mark.slow
@pytest.mark.parametrize("models", [False, True])
@pytest.mark.parametrize("method", ["split", "full"])
def test_a_choice_without_anomalies_keeps_its_level(method, models):
    # 300 batches of 7 rows, in which one row alone can be flagged at either level. The list is
    # certified, and false if it is not empty: a share of at most the level. A correct program fails
    # at 3 standard errors, about once in 700 times for each of the eight.
    flagged = {0.1: [], 0.2: []}
    for seed in range(300):
        X, groups, new, theirs = two_types(seed, n=(240, 160), m=(4, 3), anomalies=(0, 0))
        cad = ConformalDetector(CANDIDATES, method, random_state=seed, group_models=models)
        cad.fit(X, groups=groups)
        for level, lists in flagged.items():
            found = cad.discover(new, level, groups=theirs, validity="proven")
            assert all(one.shortest == 1 for one in found.groups)
            lists.append(found.count > 0)
    for level, lists in flagged.items():
        assert 0 < np.mean(lists) <= level + 3 * np.sqrt(level * (1 - level) / len(lists))


# --- certificates --------------------------------------------------------------------------------


def literal_e_value(own, others, groups, j, references, level):
    """All worlds of row j, one after the other: Benjamini-Hochberg in each, by one set of scores.

    `own` are scores of D_g and x_j, `others` of all new rows, `references` of D_h for every h.
    """
    m, mine = len(others), groups[j]
    found = []
    for w in range(len(own)):
        p = []
        for k in range(m):
            here = np.delete(own, w) if groups[k] == mine else references[groups[k]]
            score = own[w] if k == j else others[k]
            p.append(Fraction(1 + int((here <= score).sum()), len(here) + 1))
        mask = literal(p, level, "bh", None)
        found.append(Fraction(int(mask[j]), max(sum(mask), 1)))
    mean = sum(found, Fraction(0)) / len(found)
    return found[-1] / mean if found[-1] else Fraction(0)


def test_worlds_are_those_of_the_definition():
    rng = np.random.default_rng(2)
    positive = 0
    for trial in range(60):
        sizes = np.array([9, 14])
        references = [np.round(rng.normal(size=n), 1) for n in sizes]  # with ties
        groups = rng.integers(0, 2, 8)
        others = np.round(rng.normal(-1.5, 1, size=8), 1)
        j, level = trial % 8, Fraction(2 + trial % 3, 5)
        own = np.append(references[groups[j]], others[j])
        step = JointStepUp(level, sizes, 8)
        needed = np.empty(8, dtype=np.int64)
        for k in range(8):
            same = groups[k] == groups[j]
            at_most = (own <= others[k]).sum()
            if not same:
                at_most = 1 + (references[groups[k]] <= others[k]).sum()
            needed[k] = step.needed(groups[k : k + 1], np.array([at_most]))[0]
        worlds = worlds_within(own, np.delete(needed, j), int(groups[j]), step)
        wanted = literal_e_value(own, others, groups, j, references, level)
        assert worlds.e_value == wanted
        positive += wanted > 0
    assert positive > 20


@pytest.mark.parametrize("models", [False, True])
def test_certified_lists_find_the_anomalies_of_both_types(models):
    X, groups, new, theirs = two_types(n=(150, 100), anomalies=(8, 6))
    cad = ConformalDetector("contrast", "full", group_models=models).fit(X, groups=groups)
    found = cad.discover(new, 0.2, validity="proven", groups=theirs)
    assert found.certified
    assert "proven (conditional calibration)" in found.guarantee
    anomalous = np.r_[np.arange(32, 40), np.arange(59, 65)]
    assert found.mask[anomalous].sum() >= 12
    assert found.count <= 17


# --- what is said, and what is refused -----------------------------------------------------------


def test_what_became_of_every_group():
    X, groups, new, theirs = two_types()
    cad = ConformalDetector("knn", "full", group_models=True).fit(X, groups=groups)
    found = cad.discover(new, 0.2, groups=theirs)
    for one in found.groups:
        mine = theirs == one.name
        assert (one.rows, one.flagged) == (mine.sum(), found.mask[mine].sum())
        assert one.smallest_p == found.p_values[mine].min()
        assert one.least_p == Fraction(1, one.reference + 1)
    frame = found.to_frame(order="input")
    assert frame["group"].tolist() == theirs.tolist()
    assert found.first(3).rows == 3


def test_small_groups_are_named():
    X, groups, new, theirs = two_types(n=(200, 9))
    with pytest.warns(ReferenceWarning, match=r"Group 'b' has 9 reference rows.* 1/10"):
        cad = ConformalDetector("knn", "full").fit(X, groups=groups)
    found = cad.discover(new, 0.05, groups=theirs)
    assert "Group 'b' has 9 reference rows: its smallest p-value is 1/10" in found.warning
    assert "cannot be flagged at all" in found.warning


def test_unknown_groups_are_refused_or_pooled():
    X, groups, new, theirs = two_types()
    other = theirs.copy()
    other[:2] = "c"
    with pytest.raises(ReconformError, match=r"no rows of group 'c'.*unknown_groups='pooled'"):
        ConformalDetector("knn", "full").fit(X, groups=groups).p_values(new, groups=other)
    for models in (False, True):
        cad = ConformalDetector("knn", "full", group_models=models, unknown_groups="pooled").fit(
            X, groups=groups
        )
        p = cad.p_values(new, groups=other)
        plain = ConformalDetector("knn", "full").fit(X).p_values(new)
        assert (p[:2] == plain[:2]).all()
        known = ConformalDetector("knn", "full", group_models=models).fit(X, groups=groups)
        assert (p[2:] == known.p_values(new, groups=theirs)[2:]).all()
        found = cad.discover(new, 0.2, groups=other, validity="proven")
        assert not found.mask[:2].any()
        assert "2 rows of unknown groups" in found.claim.full
    split = ConformalDetector("knn", "split", unknown_groups="pooled", random_state=0)
    split.fit(X, groups=groups)
    assert "FDR proven for BH" in split.discover(new, 0.2, groups=theirs).claim.full
    assert "FDR measured, not proven, for BH" in split.discover(new, 0.2, groups=other).claim.full


def test_storeys_lambda_lies_on_every_grid():
    X, groups, new, theirs = two_types(n=(59, 39))
    cad = ConformalDetector("knn", "full").fit(X, groups=groups)
    assert cad.discover(new, 0.2, procedure="storey", groups=theirs).count >= 0
    X, groups, new, theirs = two_types(n=(59, 38))
    cad = ConformalDetector("knn", "full").fit(X, groups=groups)
    with pytest.raises(
        ReconformError, match=r"multiples of 1/39; use `procedure=.bh.`, or in Python Fraction"
    ):
        cad.discover(new, 0.2, procedure="storey", groups=theirs)
    named = Fraction(1, 3)
    assert cad.discover(new, 0.2, procedure="storey", storey_lambda=named, groups=theirs).count >= 0


@pytest.mark.parametrize(
    ("method", "asked", "match"),
    [
        ("split", {"conditional": "simes"}, "`conditional` cannot be used with `groups`"),
        ("split", {"procedure": "ebh"}, "ebh'` cannot be used with `groups`"),
    ],
)
def test_rules_that_groups_cannot_have(method, asked, match):
    X, groups, new, theirs = two_types()
    cad = ConformalDetector("knn", method, random_state=0).fit(X, groups=groups)
    with pytest.raises(ReconformError, match=match):
        cad.discover(new, groups=theirs, **asked)


def test_a_model_per_group_calibrates_on_rows_of_this_group(monkeypatch, tmp_path):
    """By size, all but 2,000 rows calibrate: of each group, where each has a model of its own."""
    monkeypatch.setattr(methods, "MOST_TRAINING", 100)
    rng = np.random.default_rng(0)
    sizes = {"a": 500, "b": 300, "c": 120}
    X, groups = rng.normal(size=(920, 2)), np.repeat(list(sizes), list(sizes.values()))
    new, theirs = rng.normal(size=(60, 2)), np.repeat(list(sizes), 20)
    new[::4] += 9
    for limit, most in (("MOST_REFERENCE", 800), ("MOST_PAIRS", 1_000)):  # split at fit, or later
        with monkeypatch.context() as few:
            few.setattr(methods, limit, most)
            cad = ConformalDetector("knn", group_models=True, random_state=0).fit(X, groups=groups)
            found = cad.discover(new, groups=theirs)
        assert [one.calibration for one in found.groups] == [400, 200, 60]
        assert found.mask[::4].all()
        assert found.provenance.scheme == "split"


def test_a_file_without_a_label_is_refused_by_the_number_of_the_row(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = ["kind,x", *(f"{'ab'[i % 2]},{i % 17}" for i in range(40))]
    for name, broken in (("whole.csv", None), ("gap.csv", 31)):
        lines = rows if broken is None else [*rows[:broken], ",3", *rows[broken + 1 :]]
        Path(name).write_text("\n".join(lines))
    for files in (("gap.csv", "whole.csv"), ("whole.csv", "gap.csv")):
        asked = ["detect", *files, "--group", "kind", "--detector", "knn", "--method", "split"]
        said = CliRunner().invoke(main, asked)
        assert said.exit_code == 1
        sentence = "gap.csv: the group of row 31 in column 'kind' is missing"
        assert sentence in " ".join(said.stderr.split())


def test_methods_and_labels_that_are_refused():
    X, groups, new, theirs = two_types()
    for method in ("jab+", "jackknife", "cv"):
        with pytest.raises(ReconformError, match=r"no ranks within groups; use `method=.full.`"):
            ConformalDetector("knn", method, random_state=0).fit(X, groups=groups)
    cad = ConformalDetector("knn", "split", random_state=0).fit(X, groups=groups)
    with pytest.raises(ReconformError, match="give `groups`, one label per row"):
        cad.discover(new)
    with pytest.raises(ReconformError, match="65 rows, 3 labels"):
        cad.p_values(new, groups=["a"] * 3)
    with pytest.raises(ReconformError, match="no label for 1 rows, the first of them row 0"):
        cad.p_values(new, groups=[None, *theirs[1:]])
    with pytest.raises(ReconformError, match="needs ranks in one calibration set"):
        cad.discover(new, groups=theirs).fdp_bound()
    with pytest.raises(ReconformError, match="within groups"):
        cad.threshold()
    with pytest.raises(ReconformError, match="`anomalies` do not go with `groups`"):
        ConformalDetector("contrast", "full").fit(X, groups=groups, anomalies=new[-2:])
    plain = ConformalDetector("knn", "split", random_state=0).fit(X)
    with pytest.raises(ReconformError, match="fitted without groups"):
        plain.discover(new, groups=theirs)
    alone = np.where(np.arange(len(groups)) == 0, "c", groups)
    with pytest.raises(ReconformError, match="group 'c': a detector of its own needs"):
        ConformalDetector("knn", "full", group_models=True).fit(X, groups=alone)


def test_other_shares_of_the_groups_are_no_shift():
    X, groups, new, theirs = two_types(n=(300, 60), m=(40, 200), anomalies=(0, 0))
    cad = ConformalDetector("knn", "full", group_models=True).fit(X, groups=groups)
    assert cad.discover(new, groups=theirs).verdict.word == "holds"
    assert ConformalDetector("knn", "full").fit(X).discover(new).verdict.word != "holds"


@pytest.mark.parametrize(
    "begin",
    [
        MicroBatches,
        lambda cad: FalseAlarmBudget(cad, 1, 100),
        ExchangeabilityMonitor,
        ChangeMonitor,
    ],
)
@pytest.mark.parametrize("single", [False, True])
def test_streams_refuse_groups_before_a_row_comes(begin, single):
    X, groups, *_ = two_types()
    labels = ["x"] * len(X) if single else groups
    cad = ConformalDetector("knn", "split", random_state=0).fit(X, groups=labels)
    with pytest.raises(ReconformError, match="rows of a stream are ranked without groups"):
        begin(cad)


# --- files, models -------------------------------------------------------------------------------


@pytest.mark.parametrize("models", [False, True])
@pytest.mark.parametrize("validity", ["nominal", "proven"])
@pytest.mark.parametrize("detector", ["lof", "iforest"])
def test_files_and_saved_models_decide_like_memory(tmp_path, detector, validity, models):
    X, groups, new, theirs = two_types()
    theirs[3] = "unheard of"
    frame, rows = (pd.DataFrame(some, columns=["x", "y"]) for some in (X, new))
    cad = ConformalDetector(
        detector, "full", random_state=0, group_models=models, unknown_groups="pooled"
    ).fit(frame, groups=groups)
    wanted = cad.discover(rows, 0.2, groups=theirs, validity=validity)
    save(cad, tmp_path / "m.rcad")
    again = load(tmp_path / "m.rcad")
    found = again.discover(rows, 0.2, groups=theirs, validity=validity)
    for name in ("mask", "p_values", "q_values", "ranks"):
        assert np.array_equal(getattr(found, name), getattr(wanted, name), equal_nan=True)
    assert found.groups == wanted.groups
    assert found.guarantee == wanted.guarantee
    rows.assign(type=theirs).to_csv(tmp_path / "new.csv", index=False)
    read = ReadOptions(group_column="type", batch_rows=13)
    judged = judge_file(again, tmp_path / "new.csv", rule=Rule(0.2, validity=validity), read=read)
    assert (judged.to_discoveries().mask == wanted.mask).all()
    assert judged.to_discoveries().row_groups.tolist() == wanted.row_groups.tolist()
    assert judged.groups == wanted.groups
    with pytest.raises(ReconformError, match="name the column of groups by `group_column`"):
        judge_file(again, tmp_path / "new.csv")


@pytest.mark.parametrize("models", [False, True])
@pytest.mark.parametrize("method", ["jackknife+", "cv+"])
def test_loaded_models_of_neighbours_certify_within_groups(tmp_path, method, models):
    X, groups, new, theirs = two_types(n=(150, 100), anomalies=(8, 6))
    cad = ConformalDetector("knn", method, random_state=0, group_models=models)
    cad.fit(X, groups=groups)
    wanted = cad.discover(new, 0.2, validity="proven", groups=theirs)
    assert wanted.count > 0
    save(cad, tmp_path / "m.rcad")
    found = load(tmp_path / "m.rcad").discover(new, 0.2, validity="proven", groups=theirs)
    assert (found.mask == wanted.mask).all()
    assert (found.e_values == wanted.e_values).all()
    # by one fit per row
    for ensemble in cad.ensemble_.ensembles if models else [cad.ensemble_.ensemble]:
        rows = np.arange(5)
        D = X[groups == "a"] if models else X
        (augmented,) = ensemble.augmented_scores(new[:12], rows)
        for j, own, others in zip(rows, augmented.own, augmented.others, strict=True):
            knn = KNN().fit(np.vstack([D, new[j : j + 1]]))
            assert np.allclose(own, knn._training_scores(np.vstack([D, new[j : j + 1]])))
            elsewhere = np.delete(np.arange(12), j)
            assert np.allclose(others[elsewhere], knn.score_samples(new[elsewhere]))
        break  # the second group is like the first


@pytest.mark.parametrize("method", ["jackknife+", "cv+"])
def test_model_files_without_the_reference_certify_nothing_and_say_so(tmp_path, method):
    X, groups, new, theirs = two_types()
    cad = ConformalDetector("kde", method, random_state=0).fit(X, groups=groups)
    save(cad, tmp_path / "m.rcad")
    again = load(tmp_path / "m.rcad")
    with pytest.raises(ReconformError, match=r"does not keep the reference rows.* `method='full'`"):
        again.discover(new, 0.2, validity="proven", groups=theirs)
    plain = again.discover(new, 0.2, groups=theirs)
    assert (plain.mask == cad.discover(new, 0.2, groups=theirs).mask).all()


# --- levels --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.1, 0.2])
@pytest.mark.parametrize(("method", "validity"), [("split", "nominal"), ("full", "proven")])
def test_without_anomalies_few_lists_flag_anything(method, validity, level):
    # 300 batches; the standard error is at most 0.024. A correct program fails at 3 of them, about
    # once in 700 times for each of the four.
    flagged = []
    for seed in range(300):
        X, groups, new, theirs = two_types(seed, n=(60, 39), m=(20, 10), anomalies=(0, 0))
        cad = ConformalDetector("knn", method, random_state=seed).fit(X, groups=groups)
        flagged.append(cad.discover(new, level, groups=theirs, validity=validity).count > 0)
    assert np.mean(flagged) <= level + 3 * np.sqrt(level * (1 - level) / len(flagged))


def test_a_column_that_is_no_group_is_said_in_a_few_words():
    """Every row a group of its own: five are named, and how many more there are."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.warns(ReferenceWarning, match="Group") as told:
        ConformalDetector("knn", "full").fit(X, groups=np.arange(60))
    (said,) = (str(one.message) for one in told if "Group" in str(one.message))
    assert said.count("1 reference row:") == 5
    assert "55 more groups are like these: is the column one of groups?" in said


# --- explanations --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["full", "split"])
@pytest.mark.parametrize("models", [False, True])
@pytest.mark.parametrize(
    "detector", ["iforest", [KNN(), KNN(n_neighbors=3)]], ids=["one", "several"]
)
def test_rows_that_are_ranked_within_groups_are_explained(detector, models, method):
    X, groups, new, other = two_types()
    cad = ConformalDetector(detector, method, random_state=0, group_models=models)
    found = cad.fit(X, groups=groups).discover(new, 0.2, groups=other)
    explained = found.explain(int(np.flatnonzero(other == "a")[-1]))
    assert explained.features
    assert explained.nearest
