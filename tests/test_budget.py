"""A budget: a number of false alarms, and the rows that come first."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from commands import run, run_json
from reconform import ConformalDetector, RankCounts, Rule, Split, Weights
from reconform.cli.declare import in_options
from reconform.files.judge import ReadOptions, WriteOptions, judge_file
from reconform.statistics.bounds import WholeList, describe_first, last_of_first
from reconform.statistics.certificates import TABLE, guarantee
from reconform.statistics.exact import usual
from reconform.statistics.fdr import adjust
from refusals import refused

COLUMNS = ["a", "b", "c"]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    normal = pd.DataFrame(rng.normal(size=(400, 3)), columns=COLUMNS)
    new = pd.DataFrame(rng.normal(size=(150, 3)), columns=COLUMNS)
    new.iloc[138:] += 4.0
    return normal, new.sample(frac=1.0, random_state=0).reset_index(drop=True)


@pytest.fixture(scope="module")
def cad(data):
    return ConformalDetector("knn", "split", random_state=0).fit(data[0])


@pytest.fixture
def here(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [f"N{i:03d}" for i in range(150)]
    data[0].to_csv("normal.csv", index=False)
    data[1].assign(name=names).to_csv("new.csv", index=False)
    return tmp_path


SPLIT = ["--detector", "knn", "--method", "split"]
DETECT = ["detect", "normal.csv", "new.csv", "--id", "name", *SPLIT]


# --- a number of false alarms --------------------------------------------------------------------


@pytest.mark.parametrize("allowed", [0.5, 1, 2, Fraction(7, 3), 40, 150, 1e6])
def test_what_is_flagged_has_a_p_value_of_at_most_v_over_m(cad, data, allowed):
    ranks = cad.ranks(data[1])
    exact = Fraction(repr(allowed)) if isinstance(allowed, float) else Fraction(allowed)
    literal = [Fraction(int(rank), 201) <= exact / 150 for rank in ranks]
    found = cad.discover(data[1], false_alarms=allowed)
    assert found.mask.tolist() == literal
    assert found.count == sum(literal) >= (0 if allowed < 1 else 7)
    assert np.array_equal(found.q_values, np.array([150 * int(r) / 201 for r in ranks]))
    assert np.array_equal(found.q_values <= float(exact), found.mask)
    assert (found.procedure, found.fdr, found.false_alarms) == ("false-alarms", None, float(exact))
    assert found.p_threshold == found.p_values[found.mask].max(initial=0.0)


def test_a_p_value_on_the_line_is_flagged_exactly():
    """0.3 / 3 = 1 / 10 for ranks among 9: in floating point 0.1 * 3 > 0.3."""
    counts = RankCounts(9, "").add([1, 2, 10])
    rule = Rule(false_alarms=0.3)
    assert (rule.level, rule.decide_counts(counts, usual(9)).count) == (Fraction(3, 10), 1)
    assert rule.decide_p_values([0.1, 0.2, 1.0], n_calibration=9).mask.tolist() == [True, 0, 0]
    assert Rule(false_alarms=0.29).decide_counts(counts, usual(9)).count == 0
    assert Rule(false_alarms=0.3).decide_counts(RankCounts(9, ""), usual(9)).count == 0


def test_smoothed_and_foreign_p_values(data):
    smooth = ConformalDetector("knn", "split", ties="randomized", random_state=0).fit(data[0])
    found = smooth.discover(data[1], false_alarms=2)
    assert np.array_equal(found.mask, found.p_values * 150 <= 2.0)
    assert found.guarantee.startswith("Expected number of false alarms at most 2, proven")
    assert np.array_equal(adjust([0.1, 0.5], procedure="false-alarms"), [0.2, 1.0])


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("split", "at most 2, proven for split, on average over random splits, if each normal"),
        (Split(repeats=3), "at most 2, proven for repeated split, on average over random splits"),
        ("full", "at most 2, proven for full, if each normal new row is exchangeable with the"),
        ("jackknife+", "measured, not proven, for jackknife+; proven is only: at most 4, on"),
        ("cv+", "measured, not proven, for cv+; proven is only: at most 4 and a fold term"),
        ("jab+", "at most 2 measured, not proven, for jab+."),
        ("cv", "at most 2 measured, not proven, for basic."),
    ],
    ids=str,
)
def test_the_sentence_says_what_is_proven(data, method, words):
    cad = ConformalDetector("knn", method, random_state=0).fit(data[0])
    said = cad.discover(data[1], false_alarms=2).guarantee
    assert said.startswith("Expected number of false alarms")
    assert words in said


def test_proven_and_conditional_p_values(data, cad):
    plus = ConformalDetector("knn", "jackknife+", random_state=0).fit(data[0])
    proven = plus.discover(data[1], false_alarms=2, validity="proven")
    assert "at most 2, proven on the corrected p-values of jackknife+" in proven.guarantee
    assert not proven.certified
    assert np.array_equal(proven.mask, (2 * proven.ranks - 1) * 150 <= 2 * 401)
    given = cad.discover(data[1], false_alarms=2, conditional="simes")
    assert "given the calibration set, proven for all but the stated share" in given.guarantee
    with pytest.raises(ValueError, match="none is known for jab"):
        ConformalDetector("knn", "jab+", random_state=0).fit(data[0]).discover(
            data[1], false_alarms=2, validity="proven"
        )


def test_every_method_of_the_table_has_a_sentence_and_no_fdr_is_claimed():
    for row in TABLE:
        said = row.sentence("false-alarms", level=Fraction(2))
        assert ("proven for" in said) == (row.kind == "exact")
        assert "FDR" not in said
        assert "FALSE-ALARMS" not in row.fdr
    assert "given the other new rows" in guarantee("full with the batch").sentence(
        "false-alarms", level=Fraction(2)
    )


def test_too_small_a_reference_is_said(cad, data):
    few = cad.discover(data[1], false_alarms=0.7)
    assert few.count == 0
    assert few.warning == (
        "With 200 calibration rows and 150 new ones, no row can be flagged with 0.7 false alarms "
        "allowed: no p-value is below 1/201. Use `method='cv+'`, which calibrates on all of them, "
        "more reference rows (with 214 for calibration a single anomaly can be flagged), fewer new "
        "rows at a time, or more `false_alarms`."
    )
    assert Rule(false_alarms=0.7).smallest_list(213, 150) == 151
    assert Rule(false_alarms=0.7).smallest_list(214, 150) == 1
    assert Rule(false_alarms=0.7).warning(214, 150) is None


def test_a_broken_assumption_withdraws_the_promise(cad, data):
    moved = cad.discover(data[1] + 3.0, false_alarms=2)
    assert moved.verdict.word == "broken"
    assert moved.guarantee.startswith("No promise about false discoveries")
    assert "without a promise" in moved.headline
    first = cad.discover(data[1] + 3.0, top=20).first()
    assert (first.estimate, first.bound) == (None, None)
    assert "How many of them are normal cannot be estimated" in first.sentence


@pytest.mark.parametrize("allowed", [0, -1, float("nan"), float("inf"), "2", True, None])
def test_numbers_that_are_none(allowed):
    if allowed is None:
        refused("needs their number; give `false_alarms`", Rule, procedure="false-alarms")
        return
    refused("false_alarms must be a positive number; got", Rule, false_alarms=allowed)


def test_one_way_to_say_how_long_a_list_may_be():
    refused("give one", Rule, fdr=0.05, false_alarms=2)
    refused("leave out `procedure='by'`", Rule, procedure="by", false_alarms=2)
    refused("has no false discovery rate", RankCounts(9, "").decide, 0.1, procedure="false-alarms")
    refused("procedure must be one of 'bh', 'by', 'storey', 'ebh'", Rule, procedure="false")


def test_false_alarms_on_the_command_line(cad, data, here):
    found = cad.discover(data[1], false_alarms=2)
    facts = run_json(*DETECT, "--false-alarms", 2, "--output", "out.csv", "--report", "page.html")
    assert facts["flagged"] == found.count
    assert facts["decision"] == {
        "procedure": "false-alarms", "false_alarms": 2.0, "validity": "auto",
    }  # fmt: skip
    assert facts["guarantee"] == found.guarantee
    assert pd.read_csv("out.csv")["anomaly"].sum() == found.count
    page = (here / "page.html").read_text()
    assert found.promise in page
    assert found.guarantee in page
    assert json.loads(page.split('id="data">')[1].split("</script>")[0])["levels"] == [2.0]
    said = run(*DETECT, "--false-alarms", 2).stdout
    assert f"{found.count} of 150 rows flagged\n{found.promise}\n" in said
    assert found.promise.startswith("On average at most 2 of them are false alarms (proven, if")


# --- the rows that come first --------------------------------------------------------------------


def test_the_order_is_that_of_the_decision(cad, data):
    found = cad.discover(data[1], top=20)
    plain = cad.discover(data[1])
    assert np.array_equal(found.mask, plain.mask)  # a budget changes no decision
    keys = zip(~found.mask, found.p_values, found.scores, range(150), strict=True)
    literal = [key[-1] for key in sorted(keys)]
    assert (found.order.tolist(), found.first().positions.tolist()) == (literal, literal[:20])
    assert (found.first().rows, plain.first().rows, plain.first(3).rows) == (20, 10, 3)
    assert (plain.first(1000).rows, found.to_frame().index[:20].tolist()) == (150, literal[:20])
    refused("rows must be an integer of at least 1", plain.first, 0)


def test_a_certified_list_puts_its_rows_first(data):
    full = ConformalDetector("knn", "full", random_state=0).fit(data[0])
    found = full.discover(data[1], 0.2, validity="proven", top=12)
    assert found.certified
    assert found.mask[found.order[: found.count]].all()
    assert found.first().flagged == min(12, found.count)
    assert found.first().bound is None
    assert "confidence" not in str(found.first())


def test_one_split_alone_has_a_bound(data):
    reference, new = data
    groups = np.arange(len(reference)) % 2
    split = ConformalDetector("knn", "split", random_state=0)

    def bound(found):
        first = found.first(15)
        assert (first.bound is not None) == ("With 95% confidence" in first.sentence)
        return first.bound

    assert bound(split.fit(reference).discover(new)) is not None
    assert bound(ConformalDetector("knn", random_state=0).fit(reference).discover(new)) is None
    grouped = split.fit(reference, groups=groups).discover(new, groups=groups[: len(new)])
    assert bound(grouped) is None
    unlike = Weights(1.0 + groups, np.ones(len(new)))
    assert bound(split.fit(reference).discover(new, weights=unlike)) is None
    chosen = ConformalDetector(["knn", "lof"], "split", random_state=0).fit(reference)
    assert bound(chosen.discover(new)) is not None


def test_one_row_is_spoken_of_as_one():
    whole = WholeList(200, "false discovery rate", broken=False)
    said = str(describe_first(1, 1, 0.004, whole, bound=0))
    assert "; it is flagged. Of 200 normal rows, about 0.8 would be as unusual." in said
    assert "With 95% confidence it is not normal, however many rows are looked at." in said
    usual_row = str(describe_first(1, 0, 0.1, whole))
    assert "Of 200 normal rows, at least as many would be as unusual." in usual_row
    broken = str(describe_first(1, 1, 0.1, replace(whole, broken=True)))
    assert "Whether it is normal cannot be estimated" in broken
    assert "them" not in said + broken


def test_the_estimate_and_the_bound(cad, data):
    found = cad.discover(data[1], top=20)
    first = found.first()
    p = found.p_values[first.positions]
    assert first.estimate == min(20.0, 150 * p.max())
    assert first.bound is not None
    assert first.bound <= 20 * found.fdp_bound(p.max()) + 1
    said = first.sentence
    assert f"The 20 most unusual rows; {found.count} of" in said
    assert f"With 95% confidence at most {first.bound} of them are normal" in said
    assert "The promise on the false discovery rate is about the flagged rows only." in said
    assert said in repr(found)
    assert said in found._repr_html_()
    assert said not in repr(cad.discover(data[1]))
    counted = cad.decide_counts(cad.rank_counts(data[1]), Rule(top=20)).first()
    assert (counted.sentence, counted.bound, counted.positions) == (said, first.bound, None)
    alarms = cad.discover(data[1], false_alarms=2, top=20).first().sentence
    assert "The promise on the number of false alarms is about the flagged rows only." in alarms


def test_the_last_of_the_first_rows_is_counted(rng):
    for _ in range(100):
        ranks = rng.integers(1, 102, size=200)
        order = np.argsort(ranks, kind="stable")[:15]
        last, below = last_of_first(RankCounts(100, "").add(ranks), 15)
        assert (last, below) == (ranks[order].max(), (ranks[order] < ranks[order].max()).sum())


def test_methods_without_a_bound_have_an_estimate(data):
    plus = ConformalDetector("knn", "jackknife+", random_state=0).fit(data[0])
    first = plus.discover(data[1], top=20).first()
    assert first.bound is None
    assert first.estimate > 0
    assert "confidence" not in first.sentence
    one = plus.discover(data[1], top=1).first().sentence
    assert one.startswith("The most unusual row; it is flagged. Of 150 normal rows, about ")


@pytest.mark.parametrize("top", [0, -3, 2.5, True, "20"])
def test_numbers_of_rows_that_are_none(cad, data, top):
    refused("top must be an integer of at least 1; got", cad.discover, data[1], top=top)


@pytest.mark.parametrize("batch_rows", [7, 1000])
@pytest.mark.parametrize("top", [3, 20, 150, 400])
def test_a_file_writes_the_first_rows(cad, data, here, top, batch_rows):
    found = cad.discover(data[1], top=top)
    read = ReadOptions(id_columns=["name"], batch_rows=batch_rows)
    judged = judge_file(cad, here / "new.csv", here / "best.csv", Rule(top=top), read=read)
    best = pd.read_csv("best.csv")
    assert best["name"].tolist() == [f"N{i:03d}" for i in found.order[:top]]
    assert best["anomaly"].tolist() == found.mask[found.order[:top]].tolist()
    assert judged.first().sentence == found.first().sentence
    assert judged.listed.positions.tolist() == found.order[: max(top, found.count)].tolist()
    assert judged.flagged.positions.tolist() == found.order[: found.count].tolist()
    assert judged.to_discoveries().first().sentence == found.first().sentence
    only = WriteOptions(only_anomalies=True)
    with pytest.raises(ValueError, match="each say which rows are written"):
        judge_file(cad, here / "new.csv", rule=Rule(top=top), write=only)


def test_the_best_20_on_the_command_line(cad, data, here):
    found = cad.discover(data[1], top=20)
    facts = run_json(*DETECT, "--top", 20, "--output", "best.csv", "--report", "page.html")
    top = facts["top"]
    assert (facts["flagged"], top["asked"], top["flagged"]) == (found.count, 20, found.count)
    assert [row["row"] for row in top["rows"]] == (found.order[:20] + 1).tolist()
    assert [row["anomaly"] for row in top["rows"]] == found.mask[found.order[:20]].tolist()
    assert top["sentence"] == found.first().sentence
    assert (top["estimated_false"], top["false_bound"], top["confidence"]) == (
        found.first().estimate, found.first().bound, 0.95,
    )  # fmt: skip
    assert len(pd.read_csv("best.csv")) == 20
    page = (here / "page.html").read_text()
    assert found.first().sentence in page
    assert json.loads(page.split('id="data">')[1].split("</script>")[0])["top"] == 20
    said = run(*DETECT, "--top", 20).stdout
    assert found.first().sentence in said
    shown = [line.split() for line in said.splitlines() if line[:2] in ("N0", "N1")]
    assert len(shown) == 20
    assert sum("yes" in cells[4:5] for cells in shown) == found.count
    assert run_json(*DETECT)["top"] is None


def test_there_is_always_something_to_look_at(cad, data, here):
    """Nothing is flagged: the most unusual rows are shown all the same, and why."""
    strict = [*DETECT, "--fdr", "0.001"]
    said = run(*strict).stdout
    found = cad.discover(data[1], 0.001)
    assert found.count == 0
    assert "0 of 150 rows flagged" in said
    assert in_options(found.why_nothing) in said
    assert found.first(10).sentence in said
    assert "none of them is flagged" in said
    assert [line.split()[0] for line in said.splitlines() if line[:2] in ("N0", "N1")] == [
        f"N{i:03d}" for i in found.order[:10]
    ]
    facts = run_json(*strict)
    assert facts["why_nothing"] == in_options(found.why_nothing)
    first = [row["id"]["name"] for row in facts["top"]["rows"]]
    assert first == [f"N{i:03d}" for i in found.order[:10]]
    assert (facts["top"]["asked"], facts["anomalies"]) == (None, [])
    run(*strict, "--output", "out.csv", "--report", "page.html")
    assert len(pd.read_csv("out.csv")) == 150
    assert found.first(10).sentence in (here / "page.html").read_text()
