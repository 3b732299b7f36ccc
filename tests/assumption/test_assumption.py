"""The verdict on the assumption: the test of shifts, its level and power, and what is said."""

import json
import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import betabinom, binom, hypergeom

from commands import run
from reconform import ConformalDetector, load, report, save
from reconform.assumption import shift
from reconform.assumption.sample import Reservoir, new_rows, reference_positions
from reconform.assumption.verdict import Finding, Verdict, why_nothing
from reconform.content import Contents
from reconform.rule import Rule
from reconform.statistics.chances import at_least_before, at_most_marked, unlikely_counts

pd = pytest.importorskip("pandas", reason="needs pandas")

RULE = Rule(0.1)


def shift_tests(ours, theirs, names=None, counts=None):
    names = [str(j) for j in range(ours.shape[1])] if names is None else names
    return shift.shift_tests(ours, theirs, names=names, of=len(theirs), counts=counts)


@pytest.mark.parametrize(("n", "r", "trials"), [(5, 2, 3), (40, 20, 16), (1500, 187, 400)])
def test_table_is_beta_binomial(n, r, trials):
    expected = betabinom.cdf(np.arange(trials + 1), trials, r, n + 1 - r)
    np.testing.assert_allclose(shift.too_few(n, r, trials), expected, rtol=1e-6)


def test_chances_are_those_of_scipy(rng):
    for _ in range(300):
        n, m = rng.integers(1, 300, size=2).tolist()
        r, count = int(rng.integers(1, n + 1)), int(rng.integers(m + 2))
        expected = betabinom.sf(count - 1, m, r, n + 1 - r)
        assert at_least_before(count, m, r, n) == pytest.approx(expected, rel=1e-6, abs=1e-9)
        most, marked, drawn = rng.integers(n + m + 1, size=3).tolist()
        expected = hypergeom.cdf(most, n + m, marked, drawn)
        found = at_most_marked(most, n + m, marked, drawn)
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("chance", [0.3, 0.02, 1e-4])
def test_unlikely_counts_are_those_of_scipy(chance):
    # The guard of contrast, and so its p-values, depend on them: they are equal.
    trials = np.arange(2001)
    for share in (0.0, 1e-6, 0.011, 0.31, 0.5, 0.97):
        expected = np.maximum(binom.isf(chance, trials, share), 0)
        assert np.array_equal(unlikely_counts(chance, trials, share), expected)


def test_sample_is_never_below_the_mixture():
    n, r, drawn, m, normal = 60, 30, 50, 100, 80
    exact = np.zeros(drawn + 1)
    for trials in range(drawn + 1):
        table = np.ones(drawn + 1)
        table[: trials + 1] = shift.too_few(n, r, trials)
        exact += hypergeom.pmf(trials, m, normal, drawn) * table
    found = shift.too_few_in_sample(n, r, drawn, m, normal)
    assert np.all(found >= exact - 1e-12)
    assert np.all(found <= 1.6 * exact + 1e-8)


@pytest.mark.parametrize("values", [3, 20, None])
@pytest.mark.parametrize("side", [0, 1])
def test_worst_anomalies_and_ties_keep_the_level(values, side, rng):
    # 4,000 draws; every anomaly on the far side. A correct program fails with 1e-4 per level.
    n, m = 60, 25
    normal = shift.normal_rows_at_least(m)
    draws = 4000
    ours, theirs = rng.normal(size=(n, draws)), rng.normal(size=(m, draws))
    theirs[normal:] = 99 if side == 0 else -99
    if values is not None:
        edges = np.linspace(-2, 2, values - 1)
        theirs, ours = (np.searchsorted(edges, x).astype(float) for x in (theirs, ours))
    p = shift.shortfalls(ours, theirs, m, normal)[0][side]
    for level in p:
        for alpha in (0.01, 0.05, 0.2):
            assert (level <= alpha).sum() <= binom.isf(1e-4, draws, alpha)


def batch(rng, n, m, shift=0.0, anomalies=0.2, d=5):
    mix = np.eye(d) + 0.5
    ours, theirs = rng.normal(size=(n, d)) @ mix, rng.normal(size=(m, d)) @ mix
    theirs = theirs + shift * mix.std(axis=0) * 0 + shift * np.sqrt((mix**2).sum(axis=0))
    theirs[: int(anomalies * m)] += 6
    return ours, theirs


def test_anomalies_alone_raise_no_alarm_in_any_family():
    # 300 batches with 20 % anomalies on one side: the worst case, where rates may reach the
    # stated ones. `corrected` divides the rate by the number of families, so each alone may alarm
    # a quarter as often. A correct program fails with 6e-4.
    rng = np.random.default_rng(2)
    first, by_family = [], {}
    for _ in range(300):
        tests = shift_tests(*batch(rng, 150, 60))
        first.append(tests[0].corrected)
        for family in {t.family for t in tests}:
            least = min(t.corrected for t in tests if t.family == family)
            by_family.setdefault(family, []).append(least)
    assert set(by_family) == {"column", "given the others", "together", "learned"}
    for p, level, rate in (
        (first, shift.BROKEN, shift.BROKEN),
        (first, shift.DOUBTFUL, shift.DOUBTFUL),
        *((p, 0.2, 0.05) for p in by_family.values()),
    ):
        assert np.sum(np.array(p) <= level) <= binom.isf(1e-4, 300, rate)


def test_ranks_keep_their_level():
    # 2,000 batches, a fifth of the rows at rank 1; a correct program fails with 1e-4 per level.
    rng = np.random.default_rng(3)
    n, m, draws = 80, 40, 2000
    p = []
    for _ in range(draws):
        scores = rng.normal(size=n + m)
        ranks = 1 + (scores[:n, None] <= scores[n:]).sum(axis=0)
        ranks[: m // 5] = 1
        counts, normal = np.bincount(ranks, minlength=n + 2), shift.normal_rows_at_least(m)
        p.append(shift.rank_shortfall(counts, normal)[0])
    for alpha in (0.01, 0.05):
        assert (3 * np.array(p) <= alpha).sum() <= binom.isf(1e-4, draws, alpha)


def test_shift_is_noticed_and_named():
    rng = np.random.default_rng(3)
    ours, theirs = batch(rng, 600, 200, shift=0.7, anomalies=0.1)
    assert shift_tests(ours, theirs)[0].corrected <= shift.BROKEN
    ours, theirs = batch(rng, 600, 200, anomalies=0.1)
    theirs[:, 2] += 3
    first = shift_tests(ours, theirs, names=list("abcde"))[0]
    assert first.corrected <= shift.BROKEN
    assert first.what == "c"
    assert "in column 'c'" in first.sentence()
    assert "lowest" in first.sentence()


def test_order_of_columns_and_missing_numbers():
    rng = np.random.default_rng(4)
    ours, theirs = batch(rng, 200, 80, anomalies=0.0)
    ours[:20, 1] = theirs[:8, 1] = np.nan
    assert shift_tests(ours, theirs)[0].corrected > shift.DOUBTFUL
    theirs[:, 1] = np.nan
    assert shift_tests(ours, theirs)[0].corrected <= shift.BROKEN


# --- the verdict ---------------------------------------------------------------------------------


def test_a_verdict_is_as_bad_as_its_worst_finding():
    note, doubt, broken = (Finding("x", level, "Seen.") for level in ("note", "doubtful", "broken"))
    assert Verdict.of([]).word == Verdict.of([note]).word == "holds"
    assert Verdict.of([note, doubt]).word == "doubtful"
    verdict = Verdict.of([note, doubt, broken])
    assert (verdict.word, verdict.findings) == ("broken", (broken, doubt, note))
    assert verdict.promise("FDR proven.").startswith("No promise")
    assert Verdict.of([doubt]).promise("FDR proven.") == "FDR proven."
    assert verdict.to_dict()["verdict"] == "broken"


@pytest.fixture(scope="module")
def normal_and_new():
    rng = np.random.default_rng(0)
    names = list("abcd")
    new = rng.normal(size=(300, 4))
    new[:30] += 6
    return pd.DataFrame(rng.normal(size=(600, 4)), columns=names), pd.DataFrame(new, columns=names)


@pytest.mark.parametrize("method", ["split", "full", "jackknife+", "cv+", "jab+"])
def test_the_promise_is_withdrawn_where_rows_moved(method, normal_and_new):
    normal, new = normal_and_new
    cad = ConformalDetector("knn", method, random_state=0).fit(normal)
    found = cad.discover(new)
    assert (found.verdict.word, found.guarantee) == ("holds", found.claim.full)
    assert found.promise == found.claim.promise("10%")
    moved = cad.discover(new + 0.7)
    assert moved.verdict.word == "broken"
    assert moved.guarantee.startswith("No promise")
    assert moved.promise == ""
    assert "assumption looks broken" in moved.headline
    assert "too few of them lie in the lowest" in repr(moved)
    assert "too few of them lie in the lowest" in moved._repr_html_()


def test_counts_alone_are_checked_too(normal_and_new):
    normal, new = normal_and_new
    cad = ConformalDetector("knn", "split", random_state=0).fit(normal)
    assert cad.decide_counts(cad.rank_counts(new), RULE).verdict.word == "holds"
    far = cad.decide_counts(cad.rank_counts(new + 3), RULE)
    assert far.verdict.word == "broken"
    assert "ordinary to the detector" in str(far.verdict)


def test_a_batch_that_is_flagged_as_a_whole(normal_and_new):
    normal, new = normal_and_new
    cad = ConformalDetector("knn", "full").fit(normal)
    checks = {finding.check for finding in cad.discover(new + 9).verdict.findings}
    assert checks == {"range", "shift", "share flagged"}
    assert cad.discover(new).why_nothing is None


# --- why nothing is flagged ----------------------------------------------------------------------


def rows_of(kind):
    """Reference and new rows of which none is flagged, each for its reason."""
    rng = np.random.default_rng(kind == "flat")
    if kind == "dirty":
        D, X = rng.normal(size=(1000, 3)), rng.normal(size=(300, 3))
        D[:20], X[:30] = 7 + 0.5 * rng.normal(size=(20, 3)), 7 + 0.5 * rng.normal(size=(30, 3))
        D[:4] += 4
        return D, X
    D, X = rng.normal(size=(60, 3)), rng.normal(size=(50 if kind == "flat" else 200, 3))
    X[:20] += 9 * (kind == "small")
    return D, X


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("flat", "^No more new rows are unusual than chance explains.*does not see them"),
        ("small", "more reference rows"),
        ("dirty", "reconform clean"),
    ],
)
def test_the_reason_for_an_empty_list_is_said_once(kind, words, tmp_path):
    D, X = rows_of(kind)
    found = ConformalDetector("knn", "full").fit(D).discover(X)
    assert found.count == 0
    assert re.search(words, found.why_nothing)
    report(found, tmp_path / "page.html")
    for name, rows in (("known.csv", D), ("new.csv", X)):
        pd.DataFrame(rows, columns=list("abc")).to_csv(tmp_path / name, index=False)
    command = run("detect", tmp_path / "known.csv", tmp_path / "new.csv", *KNN).stdout
    start = found.why_nothing.split("`")[0]
    for said in (repr(found), found._repr_html_(), command):
        assert said.count(start) == 1
    page = (tmp_path / "page.html").read_text()
    assert start in page
    if kind == "flat":
        assert "more reference rows (" not in page
        assert 'data-kind="reference too small"' not in page


def test_flat_p_values_and_a_note_about_extremes_do_not_contradict_each_other():
    flat = np.bincount(np.arange(2, 102), minlength=102)
    extremes = Verdict.of([Finding("reference extremes", "note", "12 rows are unusual.")])
    assert "reconform clean" not in why_nothing(flat, Verdict(), None)
    said = why_nothing(flat, extremes, "more reference rows")
    assert said.startswith("No more new rows are unusual than chance explains.")
    assert "the reference may hold anomalies of their kind" in said
    assert "reconform clean" in said


def test_a_tiny_reference_is_the_first_reason(rng):
    """Twelve rows are far away; among 300 and 30, as many lie beyond all others by chance."""
    new = rng.normal(size=(300, 3))
    new[:12] += 50
    for detector in ("knn", "auto"):
        cad = ConformalDetector(detector, random_state=0).fit(rng.normal(size=(30, 3)))
        said = cad.discover(new).why_nothing
        assert said.startswith("With 30 reference rows and 300 new ones, at least 97 rows must")
        assert "There may be no anomalies" not in said


@pytest.mark.parametrize(
    ("known", "seen", "few"),
    [(300, 1, "only 1 new row,"), (300, 19, "only 19 new rows"), (19, 60, "only 19 reference"),
     (15, 12, "")],
)  # fmt: skip
def test_nobody_is_reassured_where_nothing_was_checked(tmp_path, known, seen, few, rng):
    cad = ConformalDetector("knn", "full").fit(rng.normal(size=(known, 2)))
    found = cad.discover(rng.normal(1, 1, size=(seen, 2)))  # moved, which nobody can see
    verdict = found.verdict
    assert verdict.sentence.startswith("The assumption that normal new rows come from")
    assert "was not checked: " in verdict.sentence
    assert few in verdict.sentence
    assert verdict.findings == ()
    assert verdict.to_dict()["checked"] is False
    assert verdict.sentence in repr(found)
    report(found, tmp_path / "few.html")
    page = (tmp_path / "few.html").read_text("utf-8")
    assert verdict.sentence in page
    assert "The checks found nothing against" not in page
    enough = cad.discover(rng.normal(size=(60, 2))).verdict
    assert enough.to_dict()["checked"] is (known >= 20)


def test_the_verdict_does_not_depend_on_the_order_of_rows(normal_and_new):
    normal, new = normal_and_new
    moved = new + 0.2
    words = {
        str(
            ConformalDetector("knn", "full")
            .fit(normal.sample(frac=1, random_state=k))
            .discover(moved.sample(frac=1, random_state=k))
            .verdict
        )
        for k in range(3)
    }
    assert len(words) == 1


def test_a_saved_model_checks_as_well(normal_and_new, tmp_path):
    normal, new = normal_and_new
    cad = ConformalDetector("iforest", "split", random_state=0).fit(normal)
    save(cad, tmp_path / "model.rcad")
    again = load(tmp_path / "model.rcad")
    assert np.array_equal(again.reference_sample_, cad.reference_sample_)
    assert str(again.discover(new + 0.7).verdict) == str(cad.discover(new + 0.7).verdict)


# --- samples -------------------------------------------------------------------------------------


def test_samples_are_bounded_and_rows_have_equal_chances():
    X = np.arange(5_000.0)[:, None]
    assert (len(reference_positions(Contents.of(X))), len(new_rows(X))) == (2_000, 3_000)
    rows = Reservoir(100)
    for part in np.array_split(X, 7):
        rows.add(part)
    assert rows.rows.shape == (100, 1)
    # Mean of 100 of 5,000 numbers; a correct program fails with about 1e-5, the seed is fixed.
    assert abs(rows.rows.mean() - 2_500) < 4.5 * 1_443 / 10


# --- command line and report ---------------------------------------------------------------------


@pytest.fixture
def files(normal_and_new, tmp_path):
    normal, new = normal_and_new
    paths = [tmp_path / name for name in ("normal.csv", "new.csv", "moved.csv")]
    for path, frame in zip(paths, (normal, new, new + 0.7), strict=True):
        frame.to_csv(path, index=False)
    return paths


KNN = ("--detector", "knn", "--method", "full")


@pytest.mark.parametrize("aim", [(), ("--false-alarms", "1")])
def test_the_command_line_says_it_first(files, aim):
    normal, new, moved = files
    promise = f"On average at most {1 if aim else '10%'} of them "
    good, bad = (run("detect", normal, path, *KNN, *aim) for path in (new, moved))
    assert good.stdout.splitlines()[2].startswith("The checks found nothing against the assumption")
    assert promise in good.stdout
    headline, checks, *_ = bad.stdout.splitlines()
    assert "rows flagged, without a promise: the assumption looks broken" in headline
    assert checks.startswith("The checks found: The new rows as a whole do not look like")
    assert promise not in bad.stdout
    assert "--drop" in bad.stdout
    details = json.loads(run("detect", normal, moved, *KNN, *aim, "--json").stdout)["guarantee"]
    assert details.startswith("No promise about false discoveries")
    split = run("detect", normal, moved, "--detector", "knn", "--method", "split", "--json")
    assert json.loads(split.stdout)["assumption"]["verdict"] == "broken"
    assert json.loads(split.stdout)["flagged"] > 0
    assert json.loads(split.stdout)["false_bound"] is None


def test_the_report_has_no_green_box_beside_it(files, tmp_path):
    normal, new, moved = (pd.read_csv(path) for path in files)
    cad = ConformalDetector("knn", "full").fit(normal)
    for rows, word in ((new, "holds"), (moved, "broken")):
        found = cad.discover(rows)
        report(found, tmp_path / f"{word}.html")
        page = (tmp_path / f"{word}.html").read_text()
        assert ('class="verdict broken"' in page) == (word == "broken")
        assert ("On average at most 10% of them should be" in page) == (word == "holds")
        assert ("rows flagged, without a promise" in page) == (word == "broken")


def test_the_pictures_are_those_of_the_command():
    folder = Path(__file__).parents[2] / "docs" / "pictures"
    made = runpy.run_path(str(folder / "assumptions.py"))
    for name, situation in made["situations"]().items():
        assert (folder / f"{name}.svg").read_text("utf-8") == made["picture"](*situation), name
