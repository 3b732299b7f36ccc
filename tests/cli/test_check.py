"""Scheduled runs: `reconform check`, what a model remembers, the log, and the recipes."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner

from commands import run, run_json
from reconform import ConformalDetector
from reconform import models as model_files
from reconform.cli import main, options
from reconform.cli.model_commands import OURS

PAGE = Path(__file__).parents[2] / "docs" / "daily.md"
QUICK = ["--detector", "knn", "--method", "jackknife+"]
NAMES = ["flow", "heat", "load"]


def table(rng, rows, far=0, moved=0.0):
    X = rng.normal(size=(rows, 3)) + moved
    X[:far] += 9.0
    names = [f"N{i:03d}" for i in range(rows)]
    return pd.DataFrame(X.round(4), columns=NAMES).assign(machine=names)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("check")
    rng = np.random.default_rng(0)
    for name, made in {
        "normal": table(rng, 200),
        "calm": table(rng, 60),
        "today": table(rng, 60, far=8),
        "moved": table(rng, 60, moved=3.0),
    }.items():
        made.to_csv(place / f"{name}.csv", index=False)
    before = Path.cwd()
    os.chdir(place)
    try:
        run("fit", "normal.csv", "--id", "machine", *QUICK, "--fdr", "0.15",
            "--model", "plant.rcad")  # fmt: skip
    finally:
        os.chdir(before)
    return place


@pytest.fixture
def here(folder, tmp_path, monkeypatch):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(*arguments, code):
    """Run `check`; unlike other commands it speaks on standard output also with codes 3 and 4."""
    done = CliRunner().invoke(main, ["check", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


def log_lines(path="checks.jsonl"):
    text = Path(path).read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("new", "given", "code"),
    [
        ("calm.csv", [], 0),
        ("today.csv", [], 3),
        ("moved.csv", [], 4),
        ("today.csv", ["--fail-on", "broken"], 0),
        ("moved.csv", ["--fail-on", "anomalies"], 3),
        ("moved.csv", ["--fail-on", ""], 0),
    ],
)
def test_exit_codes(here, new, given, code):
    facts = json.loads(check("plant.rcad", new, *given, code=code).stdout)
    assert (facts["command"], facts["exit"], facts["new"]["path"]) == ("check", code, new)
    assert (facts["assumption"]["verdict"] == "broken") == (new == "moved.csv")
    assert (facts["flagged"] > 0) == (new != "calm.csv")
    said = check("plant.rcad", new, *given, "--quiet", code=code)
    assert (said.stdout, said.stderr) == ("", "")


def test_the_object_is_that_of_score(here):
    facts = json.loads(check("plant.rcad", "today.csv", code=3).stdout)
    scored = run_json("score", "plant.rcad", "today.csv")
    assert facts["calibration"] == model_files.inspect("plant.rcad").fingerprint
    for name in ("exit", "time", "calibration"):
        del facts[name]
    assert {**facts, "command": "score"} == scored


def test_a_model_remembers(here):
    """The identifiers and the level of `fit` hold for `score` and `check`."""
    for command in ("score", "check"):
        given = [command, "plant.rcad", "today.csv"]
        given += ["--fail-on", ""] if command == "check" else []
        said = CliRunner().invoke(main, [*given, *(["--json"] if command == "score" else [])])
        facts = json.loads(said.stdout)
        assert facts["decision"] == {"fdr": 0.15, "procedure": "bh", "validity": "auto"}
        assert facts["anomalies"][0]["id"].keys() == {"machine"}
        run(*given, "--output", f"{command}.csv", "--quiet")
        assert pd.read_csv(f"{command}.csv").columns[-4:].tolist() == [
            "score", "p_value", "q_value", "anomaly",
        ]  # fmt: skip
    assert "--id machine --fdr 0.15" in run("inspect", "plant.rcad").stdout


def test_what_is_given_goes_before_what_is_remembered(here):
    given = ["score", "plant.rcad", "today.csv"]
    assert run_json(*given, "--fdr", "0.3")["decision"]["fdr"] == 0.3
    alarms = run_json(*given, "--false-alarms", "2")["decision"]
    assert alarms == {"procedure": "false-alarms", "false_alarms": 2.0, "validity": "auto"}
    assert run_json(*given, "--procedure", "by")["decision"] == {
        "fdr": 0.15, "procedure": "by", "validity": "auto",
    }  # fmt: skip
    assert run_json(*given, "--id", "flow")["anomalies"][0]["id"].keys() == {"flow"}


@pytest.mark.parametrize(
    ("known", "given", "made"),
    [
        ({"false_alarms": 2}, {"fdr": 0.1}, {"fdr": 0.1}),
        ({"false_alarms": 2}, {"procedure": "by"}, {"procedure": "by"}),
        ({"procedure": "storey", "fdr": 0.2}, {"procedure": "bh"}, {"procedure": "bh", "fdr": 0.2}),
        ({"procedure": "storey"}, {"fdr": 0.1}, {"procedure": "storey", "fdr": 0.1}),
        ({"procedure": "storey", "fdr": 0.2, "validity": "proven"}, {"false_alarms": 1},
         {"false_alarms": 1, "validity": "proven"}),
    ],
)  # fmt: skip
def test_a_level_takes_the_place_of_the_other_way_to_say_it(known, given, made):
    decided = options.Deciding(**given).over(options.Deciding(**known))
    assert decided.parameters() == made
    assert decided.rule.level


def test_a_model_that_lacks_what_fit_notes_is_refused(here):
    """There is one format, and all of it has to be there."""
    info = model_files.inspect("plant.rcad")
    noted = {k: v for k, v in info.extras[OURS].items() if k not in ("id_columns", "deciding")}
    cad = model_files.load("plant.rcad")
    model_files.save(cad, "old.rcad", extras={OURS: noted})
    refused = check("old.rcad", "today.csv", code=1).stderr
    assert "its notes are not those of reconform fit" in refused


@pytest.mark.parametrize(
    "noted",
    [
        {"id_columns": "machine"}, {"id_columns": {"tuple": [3]}}, {"decision": []},
        {"decision": {"fdr": 2}}, {"decision": {"fdr": "0.1"}}, {"prepare": "yes"}, {"detector": 3},
        {"decision": {"fdr": 0.2, "false_alarms": 2}}, {"decision": {"procedure": "__class__"}},
        {"decision": {"confidence": 0.5}}, {"decision": {"top": 3}}, {"decision": {"run": "rm"}},
        {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_what_we_would_not_have_noted_is_refused(here, noted):
    info = model_files.inspect("plant.rcad")
    ours = info.extras[OURS]
    if isinstance(noted.get("decision"), dict):
        noted = {"deciding": {**ours["deciding"], **noted["decision"]}}
    extras = {OURS: {**ours, **noted}}
    model_files.save(model_files.load("plant.rcad"), "odd.rcad", extras=extras)
    for command in ("inspect", "score", "check"):
        arguments = [command, "odd.rcad", *(["today.csv"] if command != "inspect" else [])]
        said = CliRunner().invoke(main, arguments)
        assert said.exit_code == 1
        assert said.stderr.startswith("Error: odd.rcad: its notes are not those of reconform fit (")


def test_the_decision_that_fit_notes(here):
    given = ["fit", "normal.csv", "--id", "machine", "--detector", "knn", "--model", "x.rcad"]
    said = run(*given, "--method", "jab+", "--validity", "proven", code=1).stderr
    assert "none is known for jab+" in said
    assert not Path("x.rcad").exists()
    run(*given, "--method", "split", "--false-alarms", "3")
    assert "--false-alarms 3\n" in run("inspect", "x.rcad").stdout.replace(" \n", "\n")


def test_identifiers_that_the_model_remembers_and_the_file_lacks(here):
    pd.read_csv("today.csv").drop(columns="machine").to_csv("nameless.csv", index=False)
    given = ["plant.rcad", "nameless.csv", "--output", "x.csv"]
    said = run("score", *given, code=1).stderr
    assert "--id names a column 'machine' that is not there" in said
    assert said.endswith("The model remembers --id machine; give another --id.\n")
    assert "remembers" not in run("score", *given, "--id", "pump", code=1).stderr
    assert not Path("x.csv").exists()


def test_every_run_says_one_line_also_one_that_fails(here):
    found = check("plant.rcad", "today.csv", "--output", "out.csv", code=3).stdout
    gone = check("plant.rcad", "gone.csv", code=1)
    assert found.count("\n") == gone.stdout.count("\n") == 1
    first, second = json.loads(found), json.loads(gone.stdout)
    assert (first["exit"], first["output"], second["exit"]) == (3, "out.csv", 1)
    assert (second["new"], f"Error: {second['error']}\n") == ({"path": "gone.csv"}, gone.stderr)
    for line in (first, second):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["time"])
    quiet = check("plant.rcad", "gone.csv", "--quiet", code=1)
    assert (quiet.stdout, quiet.stderr) == ("", gone.stderr)


def test_bad_options_of_check(here):
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    given = ["--output", "out.csv", "--report", "page.html", "--fail-on", "anomaly"]
    said = check("plant.rcad", "today.csv", *given, code=2)
    assert "it must be anomalies, doubtful, broken" in said.stderr
    assert said.stdout == ""
    assert {path.name: path.read_bytes() for path in here.iterdir()} == before


def block(language, after):
    text = PAGE.read_text().split(after)[1]
    return re.search(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[1]


@pytest.fixture
def program(tmp_path_factory, monkeypatch):
    """`reconform` on the path, as an installation puts it there."""
    place = tmp_path_factory.mktemp("bin")
    made = place / "reconform"
    made.write_text(f'#!/bin/sh\nexec {sys.executable} -m reconform "$@"\n')
    made.chmod(made.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("calm.csv", ""),
        ("today.csv", "Anomalies: see flagged-"),
        ("moved.csv", "Today's rows do not look like the reference: see report-"),
        (None, "The check failed; the last line of checks.jsonl says why."),
    ],
    ids=str,
)
def test_the_recipe_for_cron(here, program, rows, words):
    script = here / "check.sh"
    script.write_text(block("sh", "## cron"))
    script.chmod(0o755)
    content = (here / rows).read_bytes() if rows else b"flow\nx\n"
    (here / "today.csv").write_bytes(content)
    done = subprocess.run([script], cwd="/", capture_output=True, text=True)
    assert done.stdout.startswith(words)
    assert bool(done.stdout) == bool(words)
    if rows:
        assert done.stderr == ""
        named = re.findall(r"[\w-]+\.(?:csv|html)", done.stdout)
        assert all((here / name).exists() for name in named)
    assert len(log_lines(here / "checks.jsonl")) == 1
    assert re.fullmatch(r"30 6 \* \* \* /srv/plant/check.sh\n", block("cron", "## cron"))


@pytest.mark.parametrize(
    ("rows", "code", "words"),
    [
        ("calm.csv", 0, "Nothing is flagged."),
        ("today.csv", 3, "There are anomalies: see report.html."),
        ("moved.csv", 4, "The rows do not look like the reference."),
        (None, 1, ""),
    ],
    ids=str,
)
def test_the_recipe_for_github_actions(here, program, monkeypatch, rows, code, words):
    """Its steps are run as a runner does it: by ``bash -e``, in the checkout."""
    workflow = yaml.safe_load(block("yaml", "## GitHub Actions"))
    steps = workflow["jobs"]["check"]["steps"]
    ours = [step for step in steps if "run" in step and step["name"] != "install"]
    assert len(ours) == 1
    (here / "today.csv").write_bytes((here / rows).read_bytes() if rows else b"flow\nx\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(here / "summary"))
    (here / "step.sh").write_text(ours[0]["run"])
    done = subprocess.run(["bash", "-e", "step.sh"], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    summary = here / "summary"
    assert (summary.read_text().strip() if summary.exists() else "") == words
    kept = steps[-1]["with"]["path"].split()
    assert steps[-1]["if"] == "always()"
    lost = [name for name in kept if not (here / name).exists()]
    assert lost == ([] if rows else ["report.html"])


def test_a_model_saved_in_python_is_checked_too(here):
    cad = ConformalDetector("knn", "split", random_state=0)
    cad.fit(pd.read_csv("normal.csv")[NAMES])
    model_files.save(cad, "mine.rcad")
    assert json.loads(check("mine.rcad", "today.csv", "--fdr", 0.3, code=3).stdout)["flagged"] >= 8
