"""Ranks within groups, decided together: against literal versions in fractions and over worlds."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import oracle
from commands import run
from reconform import ConformalDetector, Full, load, methods, save
from reconform.detectors import KNN
from reconform.ensemble import Within
from reconform.errors import ReconformError, ReferenceWarning
from reconform.rule import Rule
from reconform.statistics.conditional_calibration import e_value
from reconform.statistics.exact import usual
from reconform.statistics.fdr import RankCounts
from reconform.statistics.joint import JointGrid, JointRanks, JointStepUp
from reconform.stream import ChangeMonitor, ExchangeabilityMonitor, FalseAlarmBudget, MicroBatches
from refusals import refused

SIZES = (19, 7, 12)


CANDIDATES = ["knn", "mahalanobis"]


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


# --- decisions -----------------------------------------------------------------------------------


def literal(p, level, procedure, share):
    """Step up on fractions, as the definition has it."""
    storey = Fraction(1 + sum(one >= share for one in p), len(p)) / (1 - share)
    factor = {"bh": Fraction(1), "by": oracle.harmonic(len(p)), "storey": storey}[procedure]
    return oracle.benjamini_hochberg(p, level, factor=factor)


@pytest.mark.parametrize("procedure", ["bh", "by", "storey"])
def test_decisions_are_those_on_fractions(procedure, rng):
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
        assert (found.mask(flat).tolist(), found.count) == (wanted, sum(wanted))
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


@pytest.mark.parametrize("method", ["split", "full", "jackknife+", "cv+"])
@pytest.mark.parametrize("detector", ["knn", "iforest"])
def test_ranks_within_groups_add_up_to_ranks(detector, method):
    X, groups, new, theirs = two_types()
    plain = ConformalDetector(detector, method, random_state=0).fit(X)
    every, codes = plain.ensemble_, (groups == "b").astype(int)
    members = [np.flatnonzero(codes[every.calibration.rows] == g) for g in (0, 1)]
    of_each = [Within(np.full(len(new), g), members) for g in (0, 1)]
    ranks = [every.ranks_within(new, within).at_most for within in of_each]
    assert (ranks[0] + ranks[1] - 1 == plain.ranks(new)).all()
    if method != "split":  # whose split is drawn in every group
        cad = ConformalDetector(detector, method, random_state=0).fit(X, groups=groups)
        sizes = np.where(theirs == "b", 40, 60)
        wanted = np.where(theirs == "b", ranks[1], ranks[0]) / (sizes + 1)
        assert (cad.p_values(new, groups=theirs) == wanted).all()


def test_a_split_calibrates_the_same_share_of_every_group():
    X, groups, *_ = two_types()
    cad = ConformalDetector("knn", "split", random_state=0).fit(X, groups=groups)
    assert (cad.grouping_.names, cad.grouping_.calibration.tolist()) == (("a", "b"), [30, 20])
    own = ConformalDetector("knn", "split", random_state=0, group_models=True)
    assert own.fit(X, groups=groups).grouping_.calibration.tolist() == [30, 20]


@pytest.mark.parametrize("models", [False, True])
@pytest.mark.parametrize(
    "rule", [{}, {"validity": "proven"}, {"procedure": "storey", "validity": "nominal"}], ids=str
)
@pytest.mark.parametrize("method", ["split", "full", "choice split", "choice full", "choice auto"])
def test_one_group_gives_the_same_numbers_as_none(method, rule, models):
    X, _, new, _ = two_types(n=(300, 200) if "choice" in method else (60, 40))
    chosen = (CANDIDATES if "choice" in method else "knn", method.split()[-1])
    plain = ConformalDetector(*chosen, random_state=0).fit(X)
    cad = ConformalDetector(*chosen, random_state=0, group_models=models)
    cad.fit(X, groups=np.full(len(X), 7))
    ones = ["7"] * len(new)
    wanted, found = plain.discover(new, 0.3, **rule), cad.discover(new, 0.3, **rule, groups=ones)
    for name in ("mask", "p_values", "q_values", "scores", "ranks"):
        assert np.array_equal(getattr(found, name), getattr(wanted, name), equal_nan=True)
    assert (found.guarantee, found.choice) == (wanted.guarantee, wanted.choice)
    assert (found.e_values is None) == (wanted.e_values is None)
    assert found.groups[0].flagged == found.count
    if "choice" in method:
        assert wanted.count > 0
    else:
        by_counts = cad.decide_counts(cad.rank_counts(new, groups=ones), Rule(0.2))
        assert by_counts.count == plain.decide_counts(plain.rank_counts(new), Rule(0.2)).count


@pytest.mark.parametrize("method", ["split", "full", "jackknife+"])
@pytest.mark.parametrize("detector", ["knn", CANDIDATES], ids=["one", "choice"])
def test_models_of_their_own_rank_like_separate_detectors(detector, method):
    if (detector, method) == (CANDIDATES, "jackknife+"):
        return
    X, groups, new, theirs = two_types()
    own = ConformalDetector(detector, method, random_state=0, group_models=True)
    own.fit(X, groups=groups)
    p, found = own.p_values(new, groups=theirs), own.discover(new, 0.2, groups=theirs)
    for group in ("a", "b"):
        mine = theirs == group
        alone = ConformalDetector(detector, method, random_state=0).fit(X[groups == group])
        assert (p[mine] == alone.p_values(new[mine])).all()
        assert (found.p_values[mine] == alone.discover(new[mine], 0.2).p_values).all()


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
        mask = [False] * m
        for k in range(1, m + 1):  # lists of more than five rows at 19/20 of the level
            line = level * max(min(k, 5), Fraction(19 * k, 20)) / m
            if sum(one <= line for one in p) >= k:
                mask = [one <= line for one in p]
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
        limit = step.limit(int(groups[j]), step.count(np.delete(needed, j)))
        wanted = literal_e_value(own, others, groups, j, references, level)
        assert e_value(own, limit) == wanted
        positive += wanted > 0
    assert positive > 20


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("method", ["full", "jackknife+", "cv+"])
def test_certificates_are_those_of_the_definition(method, seed, tmp_path):
    """By one model per row, on all rows and this one; also after a model file."""
    X, groups, new, theirs = two_types(seed, n=(24, 15), m=(7, 5), anomalies=(3, 2))
    new[[0, 1, 2, 3, 7, 8]] += 2.5 + seed / 4  # in between
    cad = ConformalDetector(KNN(n_neighbors=2), method).fit(X.round(), groups=groups)
    new, codes, level = new.round(), (theirs == "b").astype(int), Fraction(1, 2)
    found = cad.discover(new, level, validity="proven", groups=theirs)
    save(cad, tmp_path / "m.rcad")
    again = load(tmp_path / "m.rcad").discover(new, level, validity="proven", groups=theirs)
    assert np.array_equal(again.e_values, found.e_values)
    full = KNN(n_neighbors=2).fit_plan(X.round(), Full().plan(39), [np.random.SeedSequence(0)])
    for augmented in full.augmented_scores(new, np.arange(12)):
        order = np.arange(39) if augmented.order is None else augmented.order
        for j, own, others in zip(augmented.rows, augmented.own, augmented.others, strict=True):
            by_row = np.empty(39)
            by_row[order] = own[:-1]
            references = [by_row[groups == name] for name in ("a", "b")]
            mine = np.append(references[codes[j]], own[-1])
            wanted = literal_e_value(mine, others, codes, j, references, level)
            assert found.e_values[j] == pytest.approx(float(wanted), rel=1e-12)
    assert found.e_values.any() or seed


def test_certificates_of_models_of_their_own_are_those_of_the_definition():
    """With ties; rows of the other group keep their ranks."""
    positive = 0
    for seed in range(4):
        X, groups, new, theirs = two_types(seed, n=(24, 15), m=(7, 5), anomalies=(3, 2))
        new[[0, 1, 2, 3, 7, 8]] += 2.5 + seed / 4
        X, new, level = X.round(), new.round(), Fraction(1, 2)
        cad = ConformalDetector(KNN(n_neighbors=2), "full", group_models=True)
        found = cad.fit(X, groups=groups).discover(new, level, validity="proven", groups=theirs)
        codes, places = (theirs == "b").astype(int), found.ranks.astype(float)
        models = []
        for g, name in enumerate("ab"):
            mine, here = X[groups == name], codes == g
            plan = Full().plan(len(mine))
            models.append(KNN(n_neighbors=2).fit_plan(mine, plan, [np.random.SeedSequence(0)]))
            places[here] = models[g].ranks(new[here]).at_most - 2  # of 0, 1, ... so many lie below
        for g, model in enumerate(models):
            here = np.flatnonzero(codes == g)
            (augmented,) = model.augmented_scores(new[here], np.arange(len(here)))
            for j, own, others in zip(here, augmented.own, augmented.others, strict=True):
                scores = places.copy()
                scores[here] = others
                references = [np.arange(24), np.arange(15)]
                wanted = literal_e_value(own, scores, codes, j, references, level)
                assert found.e_values[j] == pytest.approx(float(wanted), rel=1e-12)
                positive += wanted > 0
    assert positive > 5


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
    assert (frame["group"].tolist(), found.first(3).rows) == (theirs.tolist(), 3)


def test_small_groups_are_named():
    X, groups, new, theirs = two_types(n=(200, 9))
    with pytest.warns(ReferenceWarning, match=r"Group 'b' has 9 reference rows.* 1/10"):
        cad = ConformalDetector("knn", "full").fit(X, groups=groups)
    found = cad.discover(new, 0.05, groups=theirs)
    assert "Group 'b' has 9 reference rows: its smallest p-value is 1/10" in found.warning
    assert "cannot be flagged at all" in found.warning


def test_unknown_groups_are_refused():
    X, groups, new, theirs = two_types()
    other = theirs.copy()
    other[:2] = "c"
    with pytest.raises(ReconformError, match=r"no rows of group 'c': 2 new rows .* Leave them out"):
        ConformalDetector("knn", "full").fit(X, groups=groups).p_values(new, groups=other)


def test_storeys_lambda_lies_on_every_grid():
    X, groups, new, theirs = two_types(n=(59, 39))
    cad = ConformalDetector("knn", "full").fit(X, groups=groups)
    assert cad.discover(new, 0.2, procedure="storey", groups=theirs).count >= 0
    X, groups, new, theirs = two_types(n=(59, 38))
    cad = ConformalDetector("knn", "full").fit(X, groups=groups)
    with pytest.raises(ReconformError, match=r"multiples of 1/39; use `procedure=.bh.`, or in"):
        cad.discover(new, 0.2, procedure="storey", groups=theirs)
    named = Fraction(1, 3)
    assert cad.discover(new, 0.2, procedure="storey", storey_lambda=named, groups=theirs).count >= 0


def test_rules_that_groups_cannot_have():
    X, groups, new, theirs = two_types()
    cad = ConformalDetector("knn", "split", random_state=0).fit(X, groups=groups)
    for asked in ({"conditional": "simes"}, {"procedure": "ebh"}):
        refused(r"`.*` cannot be used with `groups`", cad.discover, new, groups=theirs, **asked)


def test_a_model_per_group_calibrates_on_rows_of_this_group(monkeypatch, tmp_path, rng):
    """By size, all but 2,000 rows calibrate: of each group, where each has a model of its own."""
    monkeypatch.setattr(methods, "MOST_TRAINING", 100)
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


def test_a_file_without_a_label_is_refused_by_the_number_of_the_row(here):
    rows = ["kind,x", *(f"{'ab'[i % 2]},{i % 17}" for i in range(40))]
    for name, broken in (("whole.csv", None), ("gap.csv", 31)):
        lines = rows if broken is None else [*rows[:broken], ",3", *rows[broken + 1 :]]
        Path(name).write_text("\n".join(lines))
    for files in (("gap.csv", "whole.csv"), ("whole.csv", "gap.csv")):
        asked = ["detect", *files, "--group", "kind", "--detector", "knn", "--method", "split"]
        said = run(*asked, code=1)
        sentence = "gap.csv: the group of row 31 in column 'kind' is missing"
        assert sentence in " ".join(said.stderr.split())


def test_methods_and_labels_that_are_refused():
    X, groups, new, theirs = two_types()
    for method in ("jab+", "jackknife", "cv"):
        with pytest.raises(ReconformError, match=r"no ranks within groups; use `method=.full.`"):
            ConformalDetector("knn", method, random_state=0).fit(X, groups=groups)
    cad = ConformalDetector("knn", "split", random_state=0).fit(X, groups=groups)
    refused("give `groups`, one label per row", cad.discover, new)
    refused("65 rows, 3 labels", cad.p_values, new, groups=["a"] * 3)
    with pytest.raises(ReconformError, match="no label for 1 rows, the first of them row 0"):
        cad.p_values(new, groups=[None, *theirs[1:]])
    refused("needs ranks in one calibration set", cad.discover(new, groups=theirs).fdp_bound)
    refused("within groups", cad.threshold)
    with pytest.raises(ReconformError, match="`anomalies` do not go with `groups`"):
        ConformalDetector("contrast", "full").fit(X, groups=groups, anomalies=new[-2:])
    plain = ConformalDetector("knn", "split", random_state=0).fit(X)
    refused("fitted without groups", plain.discover, new, groups=theirs)
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
    [MicroBatches, lambda cad: FalseAlarmBudget(cad), ExchangeabilityMonitor, ChangeMonitor],
)
@pytest.mark.parametrize("single", [False, True])
def test_streams_refuse_groups_before_a_row_comes(begin, single):
    X, groups, *_ = two_types()
    labels = ["x"] * len(X) if single else groups
    cad = ConformalDetector("knn", "split", random_state=0).fit(X, groups=labels)
    refused("rows of a stream are ranked without groups", begin, cad)


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


def test_a_column_that_is_no_group_is_said_in_a_few_words():
    """Every row a group of its own: five are named, and how many more there are."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.warns(ReferenceWarning, match="Group") as told:
        ConformalDetector("knn", "full").fit(X, groups=np.arange(60))
    (said,) = (str(one.message) for one in told if "Group" in str(one.message))
    assert said.count("1 reference row:") == 5
    assert "55 more groups are like these: is the column one of groups?" in said


@pytest.mark.parametrize("method", ["full", "split"])
@pytest.mark.parametrize("models", [False, True])
@pytest.mark.parametrize("detector", ["iforest", [KNN(), KNN(n_neighbors=3)]], ids=["1", "2"])
def test_rows_that_are_ranked_within_groups_are_explained(detector, models, method):
    X, groups, new, other = two_types()
    cad = ConformalDetector(detector, method, random_state=0, group_models=models)
    found = cad.fit(X, groups=groups).discover(new, 0.2, groups=other)
    explained = found.explain(int(np.flatnonzero(other == "a")[-1]))
    assert explained.features
    assert explained.nearest
