"""The report: exact numbers, honest words, safe text, one whole file."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from reconform import ConformalDetector, Discoveries, Prepare
from reconform.discoveries import Provenance
from reconform.errors import ReferenceWarning
from reconform.explain.features import robust_scale, robust_scales
from reconform.reporting import carry, render, report
from reconform.reporting.summary import LEVELS, summarise
from reconform.rule import Rule
from reconform.statistics.certificates import Claim
from reconform.statistics.fdr import RankCounts, adjust
from refusals import refused

HOSTILE = "</script><script>window.ran = true</script><!--"


def judged(scores, calibration_scores, *, fdr=0.1, procedure="bh", scheme="split", **more):
    """A decision on scores, small = anomalous, made the way `discover` makes it."""
    c, t = np.asarray(calibration_scores, float), np.asarray(scores, float)
    n = len(c)
    ranks = 1 + np.searchsorted(np.sort(c), t, side="right")
    decision = RankCounts(n, "f").add(ranks).decide(fdr, procedure=procedure)
    provenance = Provenance(
        detector="'max'",
        method="'split'",
        scheme=scheme,
        variant="plus",
        n_reference=2 * n,
        n_calibration=n,
        n_features=2,
        calibration_scores=c,
        calibration_fingerprint="f" * 64,
        feature_names=(),
        random_state="0",
        version="0.1.0",
        one_split=scheme == "split",
    )
    fields = {
        "mask": decision.mask(ranks),
        "p_values": ranks / (n + 1),
        "q_values": decision.q_values(ranks),
        "scores": t,
        "p_threshold": decision.p_threshold,
        "procedure": procedure,
        "fdr": fdr,
        "claim": Claim("It holds."),
        "ranks": ranks,
        "provenance": provenance,
    }
    return Discoveries(**{**fields, **more})


def batch(m=400, n=300, anomalous=40, seed=0, **more):
    rng = np.random.default_rng(seed)
    scores = np.r_[rng.normal(size=m - anomalous), rng.normal(-5, 1, size=anomalous)]
    return judged(scores, rng.normal(size=n), **more)


def embedded(html):
    """The data that the page's script reads."""
    return json.loads(re.search(r'id="data">(.*?)</script>', html, re.S)[1])


# --- the numbers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("procedure", ["bh", "by", "storey"])
def test_counts_at_every_level_are_those_of_the_q_values(procedure):
    found = batch(n=900, procedure=procedure)
    summary = summarise(found)
    assert set(LEVELS) <= set(summary.levels.tolist())
    for i, (level, count) in enumerate(zip(summary.levels, summary.counts, strict=True)):
        flagged = found.q_values <= level
        assert count == flagged.sum()
        assert set(summary.order[:count]) == set(np.flatnonzero(flagged))
        assert summary.p_histogram.flagged[i].sum() == count
        assert summary.scores.histogram.flagged[i].sum() == count
    assert summary.counts[summary.chosen] == found.count > 0
    for histogram in (summary.p_histogram, summary.scores.histogram):
        assert histogram.counts.sum() == len(found)
        assert (histogram.flagged <= histogram.counts).all()
    assert summary.scores.reference.sum() == 900


def test_a_decision_at_an_unusual_level_has_its_place_on_the_slider():
    summary = summarise(batch(fdr=0.123))
    assert summary.levels[summary.chosen] == 0.123
    assert (np.diff(summary.levels) > 0).all()


def test_the_line_parts_the_sorted_p_values_where_the_decision_does():
    found = batch(n=900)
    summary, k = summarise(found), np.arange(1, len(found) + 1)
    for level, count in zip(summary.levels, summary.counts, strict=True):
        below = k[np.sort(found.p_values) <= level * k / summary.line * (1 + 1e-12)]
        assert below.max(initial=0) == count
    assert '"line":null' in render(batch(procedure="storey"))


@pytest.mark.parametrize("n", [1, 7, 19, 20, 178, 1000])
def test_normal_rows_fill_the_bins_in_equal_parts(n):
    # One row on every point of the grid: the exact law of a normal row.
    c = np.arange(n, dtype=float)
    found = judged(np.arange(n + 1) - 0.5, c)
    histogram = summarise(found).p_histogram
    assert histogram.counts.tolist() == np.rint(np.diff(histogram.edges) * (n + 1)).tolist()
    assert 1 <= len(histogram.counts) <= 20


def test_scores_far_out_and_infinite_ones_are_counted():
    found = judged([-np.inf, -1e9, 0.1, 0.2, 0.3, np.inf], [0.0, 0.1, 0.2, 0.4])
    histogram = summarise(found).scores.histogram
    assert (histogram.counts.sum(), histogram.counts[0]) == (6, 2)
    same = summarise(judged([1.0, 1.0], [1.0, 1.0])).scores.histogram
    assert same.counts.sum() == 2
    render(found)


# --- the reading ---------------------------------------------------------------------------------


def kinds(found):
    return [f.check for f in found.verdict.findings]


def test_a_reference_that_is_too_small():
    warning = Rule(0.1).warning(100, 5000)
    scores = np.r_[np.linspace(0, 100, 4700), np.full(300, -9.0)]
    found = judged(scores, np.arange(100.0), warning=warning)
    assert found.count == 0
    assert "at least 496 rows must stand out" in found.why_nothing
    # Ten rows more unusual than 100 others are what chance gives, and could not be flagged.
    scores[4700:4990] = np.linspace(0, 100, 290)
    few = judged(scores, np.arange(100.0), warning=warning)
    assert few.why_nothing.endswith("than chance explains.")
    # Where none is, more reference rows do not help.
    scores[4990:] = 50
    assert kinds(judged(scores, np.arange(100.0), warning=warning)) == []


def test_smoothed_p_values_are_checked_like_ranks(rng):
    reference, new = (np.round(rng.normal(size=(rows, 4))) for rows in (6_200, 300))
    cad = ConformalDetector("knn", "split", ties="randomized", random_state=0).fit(reference)
    assert kinds(cad.discover(new)) == []
    moved = replace(cad.discover(new + 3), compared=None)
    assert moved.verdict.word == "broken"


# --- features ------------------------------------------------------------------------------------


def test_robust_scale_falls_back_where_most_values_are_equal():
    assert robust_scale(np.array([0.0] * 3 + [1.0, 2.0]))[1] == pytest.approx(1 / 1.349)
    assert robust_scale(np.array([0.0] * 9 + [1.0]))[1] == pytest.approx(1.2533 / 10)
    assert robust_scale(np.array([np.nan, np.nan]))[1] == 0.0
    normal = np.random.default_rng(0).normal(10, 3, size=100_000)
    # Both estimates have a standard error below 0.02.
    assert robust_scale(normal) == pytest.approx((10, 3), abs=0.1)


def test_scales_of_many_columns_are_those_of_each():
    rows = np.random.default_rng(0).normal(size=(6, 21))
    rows[1, :15] = 0.0
    rows[2, 3] = np.nan
    rows[3] = np.inf
    rows[4, ::2] = 1e308
    medians, spreads = robust_scales(rows)
    one_by_one = [robust_scale(row) for row in rows]
    np.testing.assert_array_equal(medians, [median for median, _ in one_by_one])
    np.testing.assert_array_equal(spreads, [spread for _, spread in one_by_one])


def test_scores_near_the_largest_numbers_can_be_drawn(tmp_path):
    found = batch(m=20, n=30, anomalous=3)
    for scores in ([-1.7e308, 1.7e308, -np.inf], [-1e308, 1e-320, 0.0]):
        huge = np.concatenate([scores, found.scores[3:] * 1e-300])
        page = report(replace(found, scores=huge), tmp_path / "huge.html", overwrite=True)
        assert "Infinity" not in page.read_text().split("<script")[1].split("</script")[0]


def frame():
    reference = pd.DataFrame(
        {
            "size": np.arange(200.0) + 0.25,
            "colour": ["red"] * 150 + ["blue"] * 49 + ["grey"],
            "same": 5,
            "gap": [1.0, 2.0] * 100,
        }
    )
    rows = pd.DataFrame(
        {
            "gap": [1.0, np.nan, 2.0],
            "same": [5, 5, 6],
            "colour": ["red", HOSTILE, "grey"],
            "size": [100.0, 1000.0, -900.0],
            "extra": [9e9, 9e9, 9e9],
        }
    )
    return reference, rows


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_what_is_unusual_about_a_row(kind):
    convert = {"pandas": lambda x: x, "polars": pl.from_pandas, "arrow": pa.Table.from_pandas}
    reference, rows = (convert[kind](f) for f in frame())
    cad = ConformalDetector(Prepare("knn"), "full").fit(reference)
    with pytest.warns(UserWarning, match="did not have, 'extra': not looked at"):
        explainer = cad.discover(rows).explainer
    described = explainer.unusual([0, 1, 2])
    told = [[(explainer.features[u.feature].name, u.value, u.note) for u in d] for d in described]
    assert told == [
        [],
        [
            ("colour", HOSTILE, "never in the reference"),
            ("gap", "missing", "never in the reference"),
            ("size", "1000", ""),
        ],
        [
            ("same", "6", "it was 5 in all 200 reference rows"),
            ("size", "-900", ""),
            ("colour", "grey", "0.5% of the reference"),
        ],
    ]
    size = described[2][1]
    assert size.strength == pytest.approx((-900 - 99.75) / (1.4826 * 50), abs=0.01)


def test_labels_that_do_not_fit_are_refused(tmp_path):
    found = batch(m=10, n=20, anomalous=2)
    target = tmp_path / "report.html"
    refused("one label per row: 10 rows, 3", report, found, target, ids=["a", "b", "c"])
    assert list(tmp_path.iterdir()) == []


# --- the page ------------------------------------------------------------------------------------


@pytest.fixture
def hostile_page():
    found = batch(m=60, n=60, anomalous=12)
    rng = np.random.default_rng(0)
    reference = pd.DataFrame({HOSTILE: rng.normal(size=120), "kind": ["a"] * 119 + ["b"]})
    rows = pd.DataFrame({HOSTILE: np.r_[rng.normal(size=48), np.full(12, 50)], "kind": HOSTILE})
    ids = [f"{HOSTILE} {i} \ud800" for i in range(60)]
    explainer = ConformalDetector(Prepare("knn"), "full").fit(reference).discover(rows).explainer
    found = replace(found, claim=Claim(HOSTILE, HOSTILE), explainer=explainer)
    return render(found, ids=ids, title=HOSTILE)


def test_text_from_the_data_is_shown_and_not_run(hostile_page):
    # Two scripts of our own, none of theirs; and all of their text is still there.
    assert len(re.findall(r"<script", hostile_page, re.I)) == 2
    assert len(re.findall(r"</script", hostile_page, re.I)) == 2
    assert "<!--" not in hostile_page
    data = embedded(hostile_page)
    assert data["names"] == [HOSTILE, "kind"]
    assert data["lines"][0][1].startswith(HOSTILE)
    assert data["lines"][0][5][0][1] == HOSTILE
    assert HOSTILE in unescape(re.search(r"<h1>(.*?)</h1>", hostile_page)[1])
    hostile_page.encode()


def test_nothing_is_loaded_and_only_our_script_may_run(hostile_page):
    assert not re.search(r"(https?:)?//[a-z]", hostile_page.split("<style>")[0], re.I)
    assert "http:" not in hostile_page
    assert "https:" not in hostile_page
    assert not re.search(r"\s(src|srcset|style|on[a-z]+)=", hostile_page.split('id="data"')[0])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', hostile_page)[1]
    script = re.search(r"<script>(.*?)</script>", hostile_page, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; ")
    assert policy.endswith(f"; script-src 'sha256-{digest}'")
    assert "unsafe" not in policy


def test_a_hundred_thousand_rows_fit_in_five_megabytes_with_exact_counts():
    m = 100_000
    found = batch(m=m, n=5_000, anomalous=60_000, scheme="jackknife")
    reference = np.random.default_rng(0).normal(size=(10_000, 8))
    rows = np.random.default_rng(1).normal(3, 1, size=(m, 8))
    names = [f"{'<' * 70} {j}" for j in range(8)]
    ids = [f"{i} {'<é' * 60}" for i in range(m)]
    known, new = (pd.DataFrame(X, columns=names) for X in (reference, rows))
    cad = ConformalDetector("mahalanobis", "split", random_state=0).fit(known)
    found = replace(found, explainer=cad.discover(new).explainer)
    page = render(found, ids=ids)
    assert 3_000_000 < len(page.encode()) < 5_000_000
    data = embedded(page)
    for level, count in zip(data["levels"], data["counts"], strict=True):
        assert count == (found.q_values <= level).sum()
    held, leading = len(data["lines"]), data["leading"]
    assert 0 < leading < found.count
    assert f"This page carries {held:,} of 100,000 rows: the {leading:,} most unusual" in page
    assert f"a sample of {held - leading:,} others" in page
    assert [line[0] for line in data["lines"][:leading]] == list(range(1, leading + 1))


def test_rows_come_most_unusual_first_and_the_sample_is_spread_over_the_rest():
    found = batch(m=5_000, n=2_000, anomalous=100)
    summary = summarise(found)
    carried = carry(found, summary.order, 300, np.arange(5_000))
    places = [line[0] for line in carried.lines]
    assert (places[:300], len(places)) == (list(range(1, 301)), 1_300)
    assert ((places[300], places[-1]), carried.leading) == ((301, 5_000), 300)
    row = carried.lines[7]
    i = summary.order[7]
    assert row[1] == str(i)
    numbers = (found.scores, found.p_values, found.q_values)
    assert row[2:5] == [float(f"{v[i]:.4g}") for v in numbers]


@pytest.mark.parametrize("m", [10, 1_121, 1_300, 5_000])
def test_the_rows_that_come_first_are_all_there(m):
    """With nothing flagged the page speaks of the ten that come first."""
    found = batch(m=m, n=60, anomalous=0)
    assert found.count == 0
    page = render(found)
    lines = embedded(page)["lines"]
    assert [line[0] for line in lines][:10] == list(range(1, 11))
    assert embedded(page)["names"] == []
    if m == 10:
        assert sorted(int(line[1]) for line in lines) == list(range(m))
        assert f"All {m} rows are on this page." in page


def test_labels_come_from_ids_or_the_index():
    found = replace(batch(m=3, n=60, anomalous=1), index=pd.Index(["x", "y", "z"]))
    assert {line[1] for line in embedded(render(found))["lines"]} == {"x", "y", "z"}
    lines = embedded(render(found, ids=[(1, 2), (3, 4), (5, 6)]))["lines"]
    assert {line[1] for line in lines} == {"(1, 2)", "(3, 4)", "(5, 6)"}


def test_the_headline_and_how_it_was_computed():
    found = batch()
    page = render(found, title="Plant 7")
    said = embedded(page)["words"]
    summary = summarise(found)
    assert f'<strong id="count">{found.count}</strong>' in page
    assert '<span id="headline">of 400 rows flagged</span>' in page
    assert "On average at most 10% of them should be false alarms (measured, not proven, if" in page
    assert "It holds." in page
    assert "exchangeable" in page
    assert (len(said), said[summary.chosen]["moved"]) == (len(summary.levels), "")
    assert "The decision was made at 10%" in said[0]["moved"]
    for fact in ("max", "split", "600", "Benjamini-Hochberg", "numpy", "f" * 64):
        assert f"<dd>{fact}</dd>" in page or fact in page
    assert "<title>Plant 7</title>" in page


def lines_of_groups(page):
    """The cells of the table of groups."""
    table = re.search(r'<section id="groups".*?</section>', page, flags=re.DOTALL).group()
    lines = re.findall(r"<tr>(<td.*?)</tr>", table)
    return [[unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", one)] for one in lines]


def test_groups_have_a_line_each(rng):
    hostile = "<b>press</b>" + "x" * 100
    X, new = rng.normal(size=(1212, 2)), rng.normal(size=(120, 2))
    groups = np.repeat(["fan", "pump", hostile], [400, 800, 12])
    theirs = np.repeat(["fan", "pump", hostile], [40, 71, 9])
    new[[0, 40, 41, 42]] += 12
    cad = ConformalDetector("knn", "split", random_state=0)
    with pytest.warns(ReferenceWarning, match="press"):
        cad.fit(X, groups=groups)
    found = cad.discover(new, 0.2, groups=theirs)
    page = render(found)
    lines = {line[0]: line[1:] for line in lines_of_groups(page)}
    assert next(iter(lines)) == "pump"  # most flagged
    two = "only in a list of 2 or more"
    assert lines["pump"] == ["800 (400 calibrate)", "71", "3", "0.002494 (1/401)", two]
    assert lines["fan"][:3] == ["400 (200 calibrate)", "40", "1"]
    (press,) = (name for name in lines if name.startswith("<b>press</b>xx"))
    assert len(press) < 70
    numbers = ["12 (6 calibrate)", "9", "0", "0.1429 (1/7)"]
    assert lines[press] == [*numbers, "only in a list of 86 or more"]
    assert "about the level of the decision, 20%" in page
    # what the warning says, too
    assert [one.shortest for one in found.groups if one.name == hostile] == [86]
    assert "fewer than 86" in found.warning
    plain = ConformalDetector("knn", "split", random_state=0).fit(X).discover(new)
    assert 'id="groups"' not in render(plain)


def test_very_many_groups_are_cut(rng):
    X, groups = rng.normal(size=(240, 2)), np.arange(240) // 4
    with pytest.warns(ReferenceWarning, match="is the column one of groups"):
        cad = ConformalDetector("knn", "full").fit(X, groups=groups)
    page = render(cad.discover(X[::4] + 0.1, groups=groups[::4]))
    assert len(lines_of_groups(page)) == 50
    assert "10 more groups have 10 new rows, of which 0 are flagged." in page


def test_a_bound_for_this_very_list_is_said_where_there_is_one():
    found = batch()
    summary = summarise(found)
    for i, count in enumerate(summary.counts.tolist()):
        threshold = found.p_values[summary.order[:count]].max(initial=0.0)
        share = found.fdp_bound(threshold) if count else 0.0
        assert summary.false_bounds[i] == round(share * summary.counts[i])
    bound = summary.false_bounds[summary.chosen]
    assert 0 < bound < found.count
    said = f"With 95% confidence, at most {bound} of these {found.count} rows are false alarms"
    assert said in render(found)
    # Anomalies in plenty are flagged at 50%, and so are normal ones; a bound is still a bound.
    assert (summary.false_bounds <= summary.counts).all()
    for silent in (batch(scheme="jackknife"), replace(found, ranks=None)):
        assert "confidence" not in json.dumps(embedded(render(silent))["words"])


def test_doubts_are_said_beside_the_headline():
    rng = np.random.default_rng(1)
    drifted = render(judged(rng.normal(-0.7, 1, 300), rng.normal(size=300), scheme="jackknife"))
    assert "as ordinary to the detector" in drifted[: drifted.index('id="level"')]


def test_a_decision_without_provenance_still_makes_a_page():
    page = render(replace(batch(), provenance=None))
    assert embedded(page)["scores"]["reference"] is None
    assert "Calibration scores" not in page


def test_nothing_to_show_is_refused():
    nothing = np.zeros(0, bool), *[np.zeros(0)] * 3
    empty = Discoveries(*nothing, p_threshold=0.0, procedure="bh", fdr=0.1)
    refused("found has no rows", render, empty)


def test_smoothed_p_values_and_other_methods_make_a_page(blobs):
    reference, new = blobs
    for options in ({"ties": "randomized"}, {}):
        cad = ConformalDetector("knn", "split", random_state=0, **options).fit(reference)
        found = cad.discover(new)
        q = adjust(found.p_values) if options else found.q_values
        data = embedded(render(found))
        assert data["counts"] == [int((q <= level).sum()) for level in data["levels"]]
        assert data["names"]


def test_a_notebook_shows_the_page():
    page = report(batch())
    assert page.lower().startswith("<!doctype html>")
    shown = page._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "<script" not in shown
