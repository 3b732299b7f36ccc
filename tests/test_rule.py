"""The decision as a value, the table of procedures, and the recipes of docs/architecture.md."""

import inspect
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reconform import ConformalDetector, RankCounts, Rule, Split
from reconform.discoveries import BaseDiscoveries
from reconform.files.judge import judge_file
from reconform.rule import RuleOptions
from reconform.statistics import PROCEDURES, p_values_of, ranks_of
from reconform.statistics.certificates import VALIDITY, Validity
from reconform.statistics.exact import usual
from reconform.statistics.fdr import Outcome, Procedure, counted_names, procedures_markdown
from refusals import refused

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    normal = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    new = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    new.iloc[50:] += 6.0
    return normal, new


@pytest.fixture(scope="module")
def cad(data):
    return ConformalDetector("knn", "split", random_state=0).fit(data[0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"fdr": 0}, "fdr must be a number strictly between 0 and 1"),
        ({"storey_lambda": 1}, "storey_lambda must be a number strictly between 0 and 1"),
        ({"confidence": "0.9"}, "confidence must be a number strictly between 0 and 1"),
        ({"alpha_bh": 2.0}, "alpha_bh must be a number strictly between 0 and 1"),
        ({"procedure": "hb"}, "procedure must be one of 'bh', 'by', 'storey', 'ebh'; got 'hb'"),
        ({"validity": "prooven"}, "validity must be one of .* Did you mean 'proven'"),
        ({"conditional": "simmes"}, "conditional must be one of .* Did you mean 'simes'"),
    ],
)
def test_a_rule_checks_itself(given, message):
    refused(message, Rule, **given)


@pytest.mark.parametrize("procedure", ["bh", "by", "storey"])
def test_rows_counts_and_discover_agree(cad, data, procedure):
    rule = Rule(fdr=0.3, procedure=procedure)
    rows = cad.decide(data[1], rule)
    other = ConformalDetector("knn", "split", random_state=0).fit(data[0] + 1)
    refused("same calibration", cad.rank_counts(data[1]).merge, other.rank_counts(data[1] + 1))
    counted = cad.decide_counts(cad.rank_counts(data[1]), rule)
    shell = cad.discover(data[1], 0.3, procedure=procedure)
    assert rows.count >= 10
    assert np.array_equal(rows.mask, shell.mask)
    assert np.array_equal(rows.mask, counted.decision.mask(rows.ranks))
    for found in (rows, counted, shell):
        assert isinstance(found, BaseDiscoveries)
        assert (found.count, found.tested, len(found)) == (shell.count, 60, 60)
        assert (found.headline, found.guarantee) == (shell.headline, rule.claim(cad).full)
        assert (found.p_threshold, found.warning) == (shell.p_threshold, shell.warning)
        assert found.fdp_bound() == shell.fdp_bound()
        assert np.array_equal(found.rank_counts.counts, counted.rank_counts.counts)
        assert found.decision.rank_threshold == counted.decision.rank_threshold


def test_what_counts_cannot_decide_is_refused_before_a_row_is_read(cad, data, tmp_path):
    missing = tmp_path / "there is no such file.csv"
    with pytest.raises(ValueError, match="procedure must be one of 'bh', 'by', 'storey'; got"):
        judge_file(cad, missing, rule=Rule(procedure="ebh"))
    with pytest.raises(ValueError, match="procedure must be one of 'bh', 'by', 'storey'; got"):
        cad.decide_counts(RankCounts(100, cad.calibration_.fingerprint), Rule(procedure="ebh"))
    repeated = ConformalDetector("knn", Split(repeats=3), random_state=0).fit(data[0])
    refused("needs one model", judge_file, repeated, missing, rule=Rule(conditional="simes"))


def test_the_one_door_to_ranking(data):
    cad = ConformalDetector("knn", "cv+", random_state=0).fit(data[0])
    ranked = cad.rank(data[1])
    assert np.array_equal(ranked.at_most, cad.ranks(data[1]))
    assert ranked.below is None
    again = cad.rank(data[1].to_numpy(), checked=True)
    assert np.array_equal(again.at_most, ranked.at_most)
    assert np.array_equal(again.scores, cad.discover(data[1]).scores)
    assert not np.array_equal(cad.rank(data[1], variant="basic").at_most, ranked.at_most)
    smooth = ConformalDetector("knn", "cv+", ties="randomized", random_state=0).fit(data[0])
    assert (smooth.rank(data[1]).below <= ranked.at_most).all()


def test_nothing_else_asks_an_ensemble_for_ranks():
    source = ROOT / "src" / "reconform"
    found = [
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"ensemble_\.(ranks|scores|splits)|\bcad\._ranks", path.read_text())
    ]
    assert found == ["detector.py"]


@pytest.mark.parametrize("sign", [1, -1])
def test_scores_from_elsewhere_get_the_p_values_of_prefit(cad, data, sign):
    calibration, scores = cad.calibration_.scores, cad.rank(data[1]).scores
    larger_is = "normal" if sign > 0 else "anomalous"
    p = p_values_of(sign * calibration, sign * scores, larger_is=larger_is)
    assert np.array_equal(p, cad.p_values(data[1]))
    ranks = ranks_of(sign * calibration, sign * scores, larger_is=larger_is)
    assert np.array_equal(ranks, cad.ranks(data[1]))
    for rule in (Rule(0.1), Rule(0.3, "by"), Rule(0.3, "storey")):
        outcome = rule.decide_p_values(p, n_calibration=len(calibration))
        found = cad.decide(data[1], rule)
        assert np.array_equal(outcome.mask, found.mask)
        assert np.array_equal(outcome.q_values, found.q_values)


def test_p_values_on_a_grid_are_decided_exactly():
    """One of 3 rows with p = 1/10 lies exactly on the line 0.3 * 1 / 3; floats miss it."""
    p = [0.1, 1.0, 1.0]
    assert Rule(fdr=0.3).decide_p_values(p, n_calibration=9).mask.tolist() == [True, False, False]
    assert not Rule(fdr=0.3).decide_p_values(p).mask.any()
    refused("multiples of 1/4", Rule().decide_p_values, p, n_calibration=3)


@pytest.mark.parametrize(
    ("calibration", "new", "larger_is", "message"),
    [
        ([1.0], [2.0], "odd", "larger_is must be one of 'anomalous', 'normal'"),
        ([[1.0]], [2.0], "normal", "calibration_scores must be one-dimensional"),
        ([1.0], [np.nan], "normal", "new_scores must not contain NaN"),
        ([], [1.0], "normal", "calibration_scores must hold at least one score"),
    ],
)
def test_scores_that_are_none_are_refused(calibration, new, larger_is, message):
    refused(message, p_values_of, calibration, new, larger_is=larger_is)


# Benjamini-Hochberg at half the level, as the one row that the recipe asks for.
TOY = """
from dataclasses import fields
from fractions import Fraction
from reconform.statistics.fdr import ANY, PROCEDURES, Procedure

PROCEDURES["half"] = Procedure(
    "half",
    "Benjamini-Hochberg at half the level",
    "for the cautious",
    ANY,
    factor=lambda tally: (Fraction(2), Fraction(2)),
    least_factor=lambda m: Fraction(2),
)
"""


@pytest.fixture
def toy(monkeypatch):
    for name, row in PROCEDURES.items():
        monkeypatch.setitem(PROCEDURES, name, row)
    exec(TOY, {})
    yield "half"
    del PROCEDURES["half"]


def test_a_procedure_is_one_row(toy, cad, data, tmp_path):
    found = cad.discover(data[1], 0.2, procedure=toy)
    plain = cad.discover(data[1], 0.1)
    assert found.count >= 10
    assert np.array_equal(found.mask, plain.mask)
    assert np.array_equal(found.q_values, np.minimum(2 * plain.q_values, 1.0))
    assert found.guarantee == (
        "FDR proven for HALF on split, on average over random splits, if each normal new row is "
        "exchangeable with the reference rows."
    )
    assert Rule(0.2, toy).smallest_list(100, 60) == Rule(0.1).smallest_list(100, 60)
    smooth = ConformalDetector("knn", "split", ties="randomized", random_state=0).fit(data[0])
    q = smooth.discover(data[1], 0.2, procedure=toy).q_values
    assert np.array_equal(q, np.minimum(2 * smooth.discover(data[1]).q_values, 1.0))
    data[1].to_csv(tmp_path / "new.csv", index=False)
    judged = judge_file(cad, tmp_path / "new.csv", rule=Rule(0.2, toy)).to_discoveries()
    assert np.array_equal(judged.q_values, found.q_values)
    assert judged.guarantee == found.guarantee


def test_the_command_line_offers_a_row_of_the_table(data, tmp_path):
    data[0].to_csv(tmp_path / "normal.csv", index=False)
    data[1].to_csv(tmp_path / "new.csv", index=False)
    command = (
        f"{TOY}\nimport sys\nfrom reconform.cli import main\n"
        "main(sys.argv[1:], prog_name='reconform')"
    )
    common = [sys.executable, "-c", command, "detect"]
    shown = subprocess.run([*common, "--help"], capture_output=True, text=True, check=True).stdout
    words = " ".join(shown.split()).replace("- ", "-")  # lines also end after a hyphen
    assert "half: Benjamini-Hochberg at half the level, for the cautious" in words
    arguments = ["normal.csv", "new.csv", "--detector", "knn", "--method", "split", "--json"]
    chosen = ["--procedure", "half", "--fdr", "0.2"]
    done = subprocess.run(
        [*common, *arguments, *chosen], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    facts = json.loads(done.stdout)
    assert facts["flagged"] >= 10
    assert facts["decision"]["procedure"] == "half"
    assert facts["guarantee"].startswith("FDR proven for HALF")


def test_a_procedure_that_needs_the_whole_batch(monkeypatch, cad, data, tmp_path):
    def lowest(batch, level):
        mask = np.arange(len(batch.ranks.at_most)) == np.argmin(batch.ranks.scores)
        return Outcome(mask, np.where(mask, 0.0, 1.0))

    row = Procedure("lowest", "The lowest", "for a test", on_batch=lowest)
    monkeypatch.setitem(PROCEDURES, "lowest", row)
    found = cad.discover(data[1], procedure="lowest")
    assert found.count == 1
    assert found.guarantee == "FDR measured, not proven, for LOWEST on split."
    with pytest.raises(ValueError, match="procedure must be one of 'bh', 'by', 'storey'; got"):
        judge_file(cad, tmp_path / "none.csv", rule=Rule(procedure="lowest"))


def test_a_validity_is_one_row(monkeypatch, cad, data, tmp_path):
    """p-values twice as large, on a grid: every way of judging takes them."""
    grid = usual(cad.n_calibration_)
    doubled = type(grid)(np.minimum(2 * grid.numerators, grid.denominator), grid.denominator)
    monkeypatch.setitem(VALIDITY, "doubled", Validity("twice as large", lambda *_: doubled))
    found = cad.discover(data[1], 0.2, validity="doubled")
    assert np.array_equal(found.p_values, np.minimum(2 * cad.p_values(data[1]), 1.0))
    assert np.array_equal(cad.p_values(data[1], validity="doubled"), found.p_values)
    assert np.array_equal(found.mask, cad.discover(data[1], 0.1).mask)
    data[1].to_csv(tmp_path / "new.csv", index=False)
    judged = judge_file(cad, tmp_path / "new.csv", rule=Rule(0.2, validity="doubled"))
    assert np.array_equal(judged.to_discoveries().p_values, found.p_values)


def test_a_validity_may_decide_a_whole_batch(monkeypatch, cad, data):
    def certify(guarantee, procedure):
        def nothing(batch, level):
            m = len(batch.ranks.at_most)
            return Outcome(np.zeros(m, dtype=bool), np.ones(m))

        return nothing if guarantee.name == "split" else None

    row = Validity("a certificate", lambda plan, guarantee, n: usual(n), certify)
    monkeypatch.setitem(VALIDITY, "certified", row)
    assert cad.discover(data[1], 0.2).count >= 10
    assert cad.discover(data[1], 0.2, validity="certified").count == 0
    with pytest.raises(ValueError, match="needs the whole batch in memory"):
        Rule(validity="certified").counting_grid(cad, "a folder")
    other = ConformalDetector("knn", "cv+", random_state=0).fit(data[0])
    assert other.discover(data[1], 0.2, validity="certified").count >= 10


def test_the_documents_render_the_table_of_procedures():
    assert procedures_markdown() in (ROOT / "docs" / "methods.md").read_text()
    names = "\\|".join(counted_names())
    assert f"`--procedure {names}`" in (ROOT / "docs" / "cli.md").read_text()


def test_the_keywords_of_discover_are_the_fields_of_a_rule(cad, data):
    described = {"fdr": "float | Fraction", **RuleOptions.__annotations__}
    assert list(described) == [field.name for field in fields(Rule)]
    for field in fields(Rule):
        stated = getattr(described[field.name], "__forward_arg__", described[field.name])
        assert stated == field.type, field.name
    keywords = inspect.getdoc(ConformalDetector.discover)
    for name in described:
        assert re.search(rf"^(\w+, )*{name}(, \w+)*( :|$)", keywords, re.MULTILINE), name
    with pytest.raises(TypeError, match="unexpected keyword argument 'level'"):
        cad.discover(data[1], level=0.1)
