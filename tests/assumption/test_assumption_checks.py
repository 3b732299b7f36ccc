"""Checks of columns, copies, clusters and contaminated references: what they say, and how often."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom

import oracle
from reconform import ConformalDetector, assumption, load, save
from reconform.assumption import Compared, contamination
from reconform.assumption.closeness import cluster_finding, copy_findings
from reconform.assumption.columns import (
    Category,
    code_findings,
    column_findings,
    label_findings,
)
from reconform.assumption.contamination import contamination_finding, held_back, mixed_neighbours
from reconform.assumption.sample import reference_positions
from reconform.assumption.shift import TOLERATED, normal_rows_at_least
from reconform.assumption.verdict import LEVELS, Finding
from reconform.content import Contents
from reconform.detectors import Contrast
from reconform.detectors.prepare import prepared
from reconform.frames import label_code
from reconform.statistics.fdr import RankCounts
from reconform.tables import Feature

RNG = np.random.default_rng


def kinds(findings):
    return {(f.check, f.level) for f in findings}


# --- columns -------------------------------------------------------------------------------------


def two_files(seed, anomalies, n=150, m=50):
    """Two files with many kinds of columns, from one process, with some anomalies."""
    rng = RNG(seed)
    size = n + m
    X = np.column_stack(
        [
            rng.normal(size=size),
            rng.integers(0, 3, size),
            rng.random(size) < 0.01,
            rng.poisson(30, size),
            rng.integers(0, 10**9, size),
            rng.integers(0, 20000, size),
            np.where(rng.random(size) < 0.1, np.nan, rng.normal(size=size)),
        ]
    ).astype(float)
    X[n : n + round(anomalies * m)] = 1e6
    return X[:n], X[n:], list("abcdefg")


@pytest.mark.parametrize("anomalies", [0.0, 0.2])
def test_files_of_one_process_are_seldom_called_doubtful(anomalies):
    # 400 files; three kinds of tests at 0.005 each; a correct program fails with 1e-4.
    found = (column_findings(*two_files(seed, anomalies)) for seed in range(400))
    loud = sum(any(f.level != "note" for f in one) for one in found)
    assert loud <= binom.isf(1e-4, 400, 0.015), loud


def one(ours, theirs):
    rng = RNG(1)
    plain = rng.normal(size=len(ours)), rng.normal(size=len(theirs))
    ours, theirs = (np.column_stack([p, x]) for p, x in zip(plain, (ours, theirs), strict=True))
    return column_findings(ours, theirs, ["x", "c"])


RANDOM = RNG(0).normal(1, 1, size=300)
IDS, WIDE = RNG(0).permutation(250) * 1.0, RNG(0).integers(0, 10**8, 250) * 1.0
SORTED = np.sort(RNG(0).random(250))


@pytest.mark.parametrize(
    ("ours", "theirs", "check", "level"),
    [
        (np.arange(200.0), np.arange(200.0, 250.0), "identifier", "broken"),  # an id goes on
        (np.arange(200.0), np.arange(50.0), "identifier", "doubtful"),  # starts anew
        (IDS[:200], IDS[200:], "identifier", "doubtful"),  # is shuffled
        (WIDE[:200], WIDE[200:], None, None),  # whole numbers of a wide range
        (SORTED[:200], SORTED[200:], "range", "broken"),  # times
        (np.arange(100.0) % 37, np.array([200.5, 300.5]), None, None),  # two rows are no evidence
        (np.ones(100), RANDOM[:60], "constant", "broken"),
        (RANDOM[:100], np.ones(60), "constant", "broken"),
        (np.ones(100), np.where(np.arange(60) < 6, 5.0, 1.0), None, None),  # a tenth are anomalies
        (RANDOM[:200], np.where(np.arange(100) < 10, np.nan, RANDOM[200:]), "missing", "note"),
        (RANDOM[:200], np.where(np.arange(100) < 60, np.nan, RANDOM[200:]), "missing", "broken"),
    ],
)
def test_columns_that_are_unlike(ours, theirs, check, level):
    found = one(ours, theirs)
    assert kinds(found) == ({(check, level)} if check else set())
    assert all("olumn 'c'" in finding.sentence for finding in found)
    if check == "identifier":
        assert "`id_columns`" in found[0].advice


def test_many_odd_columns_are_said_in_a_few_sentences():
    X = RNG(0).normal(size=(100, 30))
    found = column_findings(X, X[:50] + 99, [str(j) for j in range(30)])
    assert (len(found), found[-1].sentence) == (6, "25 more columns are unlike.")


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (lambda rng: rng.integers(10**8, 10**9, 400), True),  # customer numbers
        (lambda rng: rng.integers(10**6, 10**9, 400), False),  # of any length: bytes, prices
        (lambda rng: np.r_[0, rng.integers(10**8, 10**9, 399)], False),
        (lambda rng: np.repeat(rng.integers(10**8, 10**9, 200), 2), False),
        (lambda rng: rng.integers(10**8, 10**9, 400) + 0.5, False),
        (lambda rng: rng.integers(101_000, 102_000, 400), False),  # pressures
    ],
)
def test_long_numbers_of_one_length_are_named(column, named):
    values = np.asarray(column(RNG(0)), dtype=float)[:, None]
    found = column_findings(values[:300], values[300:], ["customer"])
    assert kinds(found) == ({("identifier", "note")} if named else set())
    assert all("9 digits, and none twice: an id?" in str(finding) for finding in found)


# --- copies and clusters -------------------------------------------------------------------------


def test_copies():
    assert kinds(copy_findings(range(100), range(90, 110))) == {("copies", "doubtful")}
    assert not copy_findings(range(100), range(100, 130))
    rng = RNG(0)
    # Few possible rows: copies are normal. 300 pairs at 0.01; a correct program fails with 1e-4.
    draws = ([rng.integers(0, 60, k).tolist() for k in (200, 60)] for _ in range(300))
    loud = sum(f.level != "note" for both in draws for f in copy_findings(*both))
    assert loud <= binom.isf(1e-4, 300, 0.01), loud


def test_copies_in_a_large_reference_are_looked_up(tmp_path):
    """Of 3,000 sampled new rows few have a copy among 2,000 sampled ones; 5 % can be looked up."""
    rng = RNG(1)
    D = rng.normal(size=(40_000, 2))
    new = np.vstack([D[:600], rng.normal(size=(1_400, 2))])
    cad = ConformalDetector("iforest", "split", random_state=0).fit(D)
    save(cad, tmp_path / "model")
    for kept in (cad, load(tmp_path / "model")):
        (said,) = [f for f in kept.discover(new).verdict.findings if f.check == "copies"]
        assert said.level == "doubtful"
        assert "new rows that were looked up are exact copies of reference rows" in said.sentence
        copies, _, looked_up, *_ = said.sentence.split()
        copies, looked_up = int(copies), int(looked_up)
        assert abs(looked_up - 100) <= 40  # 4 sigma
        assert abs(copies - 30) <= 22
    clean = cad.discover(rng.normal(size=(2_000, 2))).verdict
    assert not any(finding.check == "copies" for finding in clean.findings)


def test_a_reference_of_few_is_compared_as_a_whole():
    D = RNG(1).normal(size=(1_999, 2))
    found = ConformalDetector("iforest", "split", random_state=0).fit(D).discover(D[:300])
    (said,) = [f.sentence for f in found.verdict.findings if f.check == "copies"]
    assert said.startswith("300 of 300 new rows are exact copies of reference rows")


def test_looking_up_raises_no_alarm_where_copies_are_normal():
    """100 pairs at 0.01, where about half the rows have a copy; a correct program fails at 1e-4."""
    rng = RNG(2)
    loud = 0
    for _ in range(100):
        contents, new = (Contents.of(cells_of(rng, size)) for size in (6_000, 1_500))
        rows = reference_positions(contents)
        known = assumption.LookedUp.of(contents, rows)
        assert 0.3 < known.occurrences.twins / known.occurrences.rows < 0.8
        sample = contents.digests[rows].tolist()
        found = copy_findings(sample, new.digests.tolist(), looked_up=known)
        loud += any(finding.level != "note" for finding in found)
    assert loud <= binom.isf(1e-4, 100, 0.01), loud


def cells_of(rng, size):
    """Rows of which some values are common, and others rare."""
    return np.round(rng.normal(scale=60, size=(size, 1)) ** 2)


def test_duplicated_new_rows():
    twice = [*range(100, 130), *range(100, 130)]
    assert kinds(copy_findings(range(100), twice)) == {("duplicates", "doubtful")}
    few = [*range(100, 130), *range(100, 105)]
    assert kinds(copy_findings(range(100), few)) == {("duplicates", "note")}


def test_near_copies_in_pairs_are_doubtful_among_few_rows_too():
    """30 reference rows and 9 pairs: the guard of contrast sees 3 batches in 10, the verdict most.

    The seeds are fixed; 145 of 150 batches are doubtful, so that fewer than 25 of 30 have a chance
    below 1e-4. Of 60 batches without pairs a correct program calls more than 3 doubtful with a
    chance below 1e-4, as each is with a chance of 0.005 at most.
    """
    doubtful = clean = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        D, T = rng.normal(size=(30, 3)), rng.normal(size=(18, 3))
        clean += ConformalDetector("knn", "full").fit(D).discover(T).verdict.word != "holds"
        if seed < 30:
            T[9:] = T[:9] + 1e-3 * rng.normal(size=(9, 3))
            cad = ConformalDetector(Contrast(n_neighbors=1), "full").fit(D)
            found = cad.discover(T, 0.2, validity="proven")
            doubtful += found.verdict.word == "doubtful"
            assert "given the other new rows" in found.guarantee
            assert "copies and repeated measurements are not" in found.guarantee
    assert doubtful >= 25
    assert clean <= 3


def test_clusters():
    rng = RNG(0)
    D = rng.normal(size=(300, 4))
    pairs = np.repeat(rng.normal(size=(40, 4)), 2, axis=0)
    (found,) = cluster_finding(D, pairs + rng.normal(scale=0.01, size=pairs.shape))
    assert found.level == "doubtful"
    # 200 clean batches, of which a fifth of the rows is a tight cluster far away; the rate is
    # 5e-4, a correct program fails with less than 1e-3.
    loud = 0
    for _ in range(200):
        T = rng.normal(size=(80, 4))
        T[:16] = 9 + 0.01 * T[:16]
        loud += bool(cluster_finding(rng.normal(size=(300, 4)), T))
    assert loud <= 1
    lattice = rng.integers(0, 2, size=(300, 4)).astype(float)
    assert cluster_finding(lattice[:200], lattice[200:]) == []


# --- dirty references ----------------------------------------------------------------------------


def ranked(ours, theirs):
    """Counts of ranks; large scores are unusual."""
    return RankCounts(len(ours), "").add(1 + (ours[:, None] >= theirs).sum(axis=0))


def test_what_if_is_bh_without_the_rows():
    rng = RNG(0)
    for _ in range(50):
        ours, theirs = rng.normal(size=40).round(1), np.r_[rng.normal(size=10), 2.5, 3, 3].round(1)
        for k in range(4):
            left = np.sort(ours)[: len(ours) - k]
            p = [Fraction(1 + int((left >= t).sum()), len(left) + 1) for t in theirs]
            found = contamination.flagged_without(ranked(ours, theirs), k, 0.2)
            assert found == sum(oracle.benjamini_hochberg(p, Fraction(1, 5)))


def test_the_hint_keeps_its_level_without_anomalies():
    # 500 clean references and batches; at most 0.2, a correct program fails with 1e-4.
    rng = RNG(1)
    draws = (ranked(rng.normal(size=300), rng.normal(size=100)) for _ in range(500))
    hints = sum(held_back(one, 0, 0.1) is not None for one in draws)
    assert hints <= binom.isf(1e-4, 500, 0.2), hints


def test_no_hint_where_the_list_would_only_be_twice_as_long():
    ours = np.r_[np.arange(292.0), np.full(8, 500.0)]
    for found, hinted in ((10, False), (0, True)):
        theirs = np.r_[np.linspace(0, 280, 80), np.full(found, 600.0), np.full(10, 400.0)]
        counts = ranked(ours, theirs)
        flagged = contamination.flagged_without(counts, 0, 0.1)
        assert flagged == found
        assert contamination.flagged_without(counts, 8, 0.1) >= found + 10
        assert (held_back(counts, flagged, 0.1) is not None) is hinted
    assert contamination.some_k(10).tolist() == [1, 2, 3]
    assert contamination.some_k(1500)[-1] == 75


def dirty_files(rng, dirt, n=1000, m=333, anomalies=0.1, spread=1.0, d=5):
    """Normal rows with heavy tails, and anomalies in a place of their own."""
    ours, theirs = rng.standard_t(6, size=(n, d)), rng.standard_t(6, size=(m, d))
    bad, new = round(dirt * n), round(anomalies * m)
    ours[:bad] = 4 + spread * rng.normal(size=(bad, d))
    theirs[:new] = 4 + spread * rng.normal(size=(new, d))
    return ours, theirs


def company_of(rng, ours, theirs):
    n, m = len(ours), len(theirs)
    u, v = contamination.unusual(ours, theirs, rng.permutation(n)[:400])
    return u, v, mixed_neighbours(ours, theirs, u, v, rng.permutation(n + m))


@pytest.mark.parametrize("dirt", [0.02, 0.03])
def test_dirt_is_noticed(dirt):
    rng = RNG(3)
    ours, theirs = dirty_files(rng, dirt)
    u, v, company = company_of(rng, ours, theirs)
    assert company.doubtful
    bad = round(dirt * len(ours))
    assert (company.reference_rows < bad).mean() > 0.8  # the dirt itself is pointed at
    counts = ranked(u, v)
    hint = held_back(counts, contamination.flagged_without(counts, 0, 0.1), 0.1)
    assert hint.would_be >= 25
    for finding in (hint.finding(), company.finding()):
        assert "reconform clean" in finding.advice


def test_clean_references_are_seldom_called_doubtful():
    # 60 draws; measured rate below 0.01: a correct program fails with less than 1e-3.
    rng = RNG(4)
    loud = 0
    for draw in range(60):
        anomalies = (0.0, 0.05, 0.1, 0.2)[draw % 4]
        files = dirty_files(rng, 0.0, n=600, m=200, anomalies=anomalies)
        loud += bool(contamination_finding(files, None, flagged=0, level=0.1))
    assert loud <= 2


def test_small_references_get_the_what_if():
    files = dirty_files(RNG(5), 0.02, n=150, m=50)
    (found,) = contamination_finding(files, None, flagged=0, level=0.1)
    assert found.check == "reference extremes"
    assert "by distance" in found.sentence


def test_one_row_is_spoken_of_as_one():
    assert str(
        contamination.HeldBack(1, 0, 11, 1.0, 0.01).finding(", by distance from the others")
    ) == (
        "Without the most unusual reference row, by distance from the others, 11 new rows would be "
        "flagged instead of 0; by chance about 1 would be as unusual. If it is an anomaly, take "
        "it out of the reference with `reconform clean`."
    )


def test_the_what_if_does_not_say_that_rows_are_alike_which_are_not():
    """Five new rows lie beyond all reference rows, and many more among the 5 % that come next."""
    counts = RankCounts(2_000, "").add([1] * 5 + list(range(60, 100)) * 2 + [1_000] * 315)
    sentence = held_back(counts, 5, 0.1).finding().sentence
    assert sentence.startswith("Without the 100 most unusual reference rows, ")
    assert "as unusual as" not in sentence


def test_dirt_in_a_tight_cluster_does_not_hide_itself():
    rng = RNG(6)
    ours, theirs = dirty_files(rng, 0.03, spread=0.01)
    u, _, company = company_of(rng, ours, theirs)
    assert np.median(u[:30]) > np.quantile(u, 0.95)
    assert company.doubtful


def files_with_rare_events(rng, dirt, n=1000, m=333):
    """Twenty columns near 0 but for a fifth of the rows; a cluster of anomalies in ten others."""

    def rows(count, cluster):
        plain = rng.normal(size=(count, 10))
        plain[:cluster] = 4 + 0.1 * plain[:cluster]
        rare = rng.random((count, 20)) < 0.2
        return np.hstack([plain, rng.normal(size=(count, 20)) * np.where(rare, 1.0, 0.01)])

    return rows(n, round(dirt * n)), rows(m, round(0.1 * m))


def test_columns_of_rare_events_do_not_hide_a_cluster_of_dirt():
    # 20 draws each. Of 100 others with dirt 100 were noticed, of 100 clean ones none: even at
    # rates of 0.97 and 0.03 a correct program fails with less than 6e-3.
    loud = {
        dirt: sum(
            bool(contamination_finding(files_with_rare_events(RNG(seed), dirt), None, 0, 0.1))
            for seed in range(20)
        )
        for dirt in (0.0, 0.02)
    }
    assert loud[0.0] <= 3
    assert loud[0.02] >= 17


def test_extremes_of_a_clean_reference_are_no_dirt():
    # Anomalies that overlap with heavy tails: without its extremes the reference would flag more,
    # but hardly any of them lies among the anomalies.
    found = []
    for seed in range(12):
        ours, theirs = dirty_files(RNG(seed), 0.0)
        theirs[:33] -= 1.5
        listed = ConformalDetector("knn", "full").fit(ours).discover(theirs)
        if held_back(listed._checked(), listed.count, 0.1) is not None:
            found.append((listed.count, listed.verdict.findings))
    some = [findings for count, findings in found if count]
    nothing = [str(finding) for count, findings in found if not count for finding in findings]
    assert len(some) >= 3
    assert not any(some)  # this was said to be a sign of dirt
    assert len(nothing) >= 3
    assert all("normal extremes, or anomalies of another kind" in said for said in nothing)


# --- odd numbers ---------------------------------------------------------------------------------

ODD = {
    "missing": lambda column, rng: np.full_like(column, np.nan),
    "partly missing": lambda column, rng: np.where(rng.random(len(column)) < 0.3, np.nan, column),
    "constant": lambda column, rng: np.full_like(column, 7.0),
    "huge": lambda column, rng: np.clip(column, -1, 1) * 1.7e308,
    "two ends": lambda column, rng: np.r_[-1.7e308, 1.7e308, column[2:]],
    "counting": lambda column, rng: np.arange(float(len(column))),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("theirs", ODD)
@pytest.mark.parametrize("ours", ODD)
def test_odd_numbers_give_no_warning_of_numpy(ours, theirs):
    rng = RNG(0)
    for d in (1, 3):
        D, X = rng.normal(size=(40, d)), rng.normal(size=(30, d))
        D[:, 0], X[:, 0] = ODD[ours](D[:, 0], rng), ODD[theirs](X[:, 0], rng)
        counts = RankCounts(40, "").add(rng.integers(1, 42, 30))
        assert Compared(D, X).verdict(counts, 0, 30, 0.1).word in ("holds", "doubtful", "broken")


# --- codes for missing ---------------------------------------------------------------------------


def test_a_column_with_a_fill_value_is_named():
    rng = RNG(0)
    D, X = rng.normal(size=(100, 3)), rng.normal(size=(60, 3))
    D[[3, 40], 1] = 9.96921e36, -9.96921e36
    X[7, 2] = -1e20
    (ours, theirs) = (f for f in column_findings(D, X, ["a", "flow", "c"]) if f.check == "codes")
    assert (ours.level, theirs.level) == ("note", "note")
    assert "'flow' has values of up to 9.97e+36 in 2 of 100 reference rows" in ours.sentence
    assert "'c' has values of up to 1e+20 in 1 of 60 new rows" in theirs.sentence
    cad = ConformalDetector("mahalanobis", "full").fit(D)
    assert "9.97e+36" in str(cad.discover(X).verdict)


def test_heavy_tails_and_large_units_have_no_codes_for_missing():
    """A correct program speaks of one of these 300 Cauchy columns in one of 10,000 seeds."""
    rng, whose = RNG(1), ([str(j) for j in range(100)], "new")
    for scale in (1.0, 1e12, 1e-12):
        assert not code_findings(rng.standard_cauchy(size=(2000, 100)) * scale, *whose)
        assert not code_findings(rng.lognormal(sigma=4.0, size=(2000, 20)) * scale, *whose)
    noise = np.where(rng.random((2000, 5)) < 0.95, 1e-17 * rng.normal(size=(2000, 5)), 1.0)
    assert not code_findings(noise, *whose)
    assert not code_findings(np.full((30, 2), np.nan), *whose)


# --- labels --------------------------------------------------------------------------------------


CODES = np.array([label_code(label) for label in "abc"])


def labels(ours, theirs, category=None, tolerated=TOLERATED):
    normal = normal_rows_at_least(len(theirs), tolerated)
    category = Category(("a", "b", "c")) if category is None else category
    of, theirs = len(theirs), np.array(theirs)
    return label_findings("colour", category, np.array(ours), theirs, normal=normal, of=of)


def test_a_few_new_labels_are_a_note_and_many_break_the_assumption():
    known = RNG(0).choice(CODES, 200)
    few = np.where(np.arange(60) < 6, -9.0, known[:60])
    many = np.where(np.arange(60) < 40, -9.0, known[:60])
    mauve = Category(("a", "b", "c"), {"mauve": 5, "teal": 1}, rows=6)
    (found,) = labels(known, few, mauve)
    assert (found.check, found.level) == ("new labels", "note")
    assert "'colour'" in found.sentence
    assert "in 6 of 60 new rows: 'mauve' (5), 'teal' (1)." in found.sentence
    assert "reference" in found.advice
    assert kinds(labels(known, many)) == {("new labels", "broken")}
    assert not labels(known, known[:60])


def test_labels_that_are_gone_or_missing_are_named():
    known = RNG(0).choice(CODES, 300)
    (found,) = labels(known, RNG(1).choice(CODES[:2], 100))
    assert (found.check, found.level) == ("labels", "broken")
    assert "is 'c' in 0 of 100 new rows" in found.sentence
    gone = np.where(np.arange(100) < 60, np.nan, known[:100])
    assert ("missing", "broken") in kinds(labels(known, gone))


@pytest.mark.parametrize("rare", [0.0, 1.4])
def test_rare_labels_and_anomalies_keep_the_level(rare):
    # 1,000 pairs of files; a fifth of the new rows are anomalies with a label of their own; with
    # `rare` (the exponent of Zipf's law) most files hold labels that the other does not have. Both
    # tests together may alarm at 0.01; a correct program fails with 1e-4.
    rng = RNG(5)
    loud = 0
    for _ in range(1000):
        both = rng.zipf(rare, 160).clip(max=10**6) if rare else rng.integers(0, 4, 160)
        ours, theirs = both[:100].astype(float), both[100:].astype(float)
        theirs[:12] = -1e9
        unlisted = ~np.isin(theirs, ours)
        theirs[unlisted] = -theirs[unlisted].clip(min=1) - 1
        loud += any(f.level != "note" for f in labels(ours, theirs, Category()))
    assert loud <= binom.isf(1e-4, 1000, 0.01), loud


def messy(rng, n):
    return np.column_stack([rng.normal(size=(n, 2)), rng.choice(CODES, n)])


@pytest.mark.parametrize("detector", ["knn", "iforest"])
def test_categories_are_found_in_the_detector(detector):
    rng = RNG(0)
    features = [Feature("x"), Feature("y"), Feature("colour", ("a", "b", "c"))]
    method = "full" if detector == "knn" else "split"
    cad = ConformalDetector(prepared(detector, features), method, random_state=0)
    cad.fit(messy(rng, 300))
    new = messy(rng, 100)
    assert cad.discover(new).verdict.word == "holds"
    new[:70, 2] = [label_code(f"label {i % 7}") for i in range(70)]
    found = cad.discover(new).verdict
    assert found.word == "broken"
    assert [f.check for f in found.findings if f.level == "broken"][:1] == ["new labels"]
    # A label is no number: no check of numbers speaks of the column of labels.
    others = [f.sentence for f in found.findings if f.check != "new labels"]
    assert not any("olumn" in sentence for sentence in others)
    few = cad.discover(new[65:75]).verdict  # too few rows for any test
    assert kinds(few.findings) == {("new labels", "note")}


# --- the table -----------------------------------------------------------------------------------


def test_a_check_is_one_row(monkeypatch):
    """The recipe of `Check`: a function and a row, and lists and reports say what it found."""

    def _weekend(seen):
        return [Finding("weekend", "broken", f"All {seen.tested} rows are of a Sunday.", "Wait.")]

    rng = RNG(0)
    cad = ConformalDetector("knn", "split", random_state=0).fit(rng.normal(size=(80, 2)))
    new = rng.normal(size=(40, 2))
    before = {f.check for f in cad.discover(new).verdict.findings}
    known, row = assumption.CHECKS, assumption.Check("weekend", _weekend, (), "broken")
    monkeypatch.setattr(assumption, "CHECKS", [*known, row])
    found = cad.discover(new)
    assert {f.check for f in found.verdict.findings} == {"weekend", *before}
    assert found.verdict.word == "broken"
    assert found.guarantee.startswith("No promise")
    assert "All 40 rows are of a Sunday. Wait." in str(found)
    needs = replace(row, needs=("has_sample",))  # of a file, not of an array
    monkeypatch.setattr(assumption, "CHECKS", [*known, needs])
    assert Compared(None, None).verdict(None, 0, 40, 0.1).findings == ()


def test_rows_of_the_table_name_what_there_is():
    assert len({check.name for check in assumption.CHECKS}) == len(assumption.CHECKS)
    for check in assumption.CHECKS:
        assert check.worst in LEVELS
        evidence = assumption.CheckInput(Compared(None, None), None, 0, 0, 0.1, [])
        assert all(isinstance(getattr(evidence, need), bool) for need in check.needs)


@pytest.mark.parametrize("seed", range(6))
def test_no_check_finds_worse_than_its_row_says(seed):
    rng = RNG(seed)
    D, X = rng.normal(size=(120, 3)), rng.normal(size=(60, 3))
    X[:, seed % 3] += 3 * (seed > 2)
    X[: 10 * seed] = X[0]
    D[:, 2] = rng.permutation(np.arange(120.0) + 1e6)
    counts = RankCounts(120, "").add(rng.integers(1, 30 if seed > 3 else 121, size=60))
    rows = Compared(D, X)
    seen = assumption.CheckInput(rows, counts, 40, 60, 0.1, [])
    for check in assumption.CHECKS:
        if all(getattr(seen, need) for need in check.needs):
            found = list(check.find(seen))
            seen.findings += found
            assert all(LEVELS.index(f.level) <= LEVELS.index(check.worst) for f in found)
    assert seen.findings
