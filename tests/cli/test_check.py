"""Scheduled runs: `reconform check`, what a model remembers, the log, and the recipes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner

from commands import run, run_json
from reconform import ConformalDetector
from reconform import models as model_files
from reconform.atomic import append_line, atomic_group, write_atomic
from reconform.cli import main, options
from reconform.cli.model_commands import OURS

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
QUICK = ["--detector", "knn", "--method", "jackknife+"]
NAMES = ["flow", "heat", "load"]


def table(rng, rows, far=0, moved=0.0):
    X = rng.normal(size=(rows, 3)) + moved
    X[:far] += 9.0
    return pd.DataFrame(X.round(4), columns=NAMES).assign(
        machine=[f"N{i:03d}" for i in range(rows)]
    )


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
        run("fit", "normal.csv", "--id", "machine", *QUICK, "--fdr", "0.15", "--prefix", "r_",
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


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


# --- the command ---------------------------------------------------------------------------------


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
    del facts["exit"]
    assert {**facts, "command": "score"} == scored


# --- what a model remembers ----------------------------------------------------------------------


def test_a_model_remembers(here):
    """The identifiers, the prefix and the level of `fit` hold for `score` and `check`."""
    for command in ("score", "check"):
        given = [command, "plant.rcad", "today.csv"]
        given += ["--fail-on", ""] if command == "check" else []
        said = CliRunner().invoke(main, [*given, *(["--json"] if command == "score" else [])])
        facts = json.loads(said.stdout)
        assert facts["decision"] == {"fdr": 0.15, "procedure": "bh", "validity": "auto"}
        assert facts["anomalies"][0]["id"].keys() == {"machine"}
        run(*given, "--output", f"{command}.csv", "--quiet")
        assert pd.read_csv(f"{command}.csv").columns[-4:].tolist() == [
            "r_score", "r_p_value", "r_q_value", "r_anomaly",
        ]  # fmt: skip
    assert "--id machine --prefix r_ --fdr 0.15" in run("inspect", "plant.rcad").stdout


def test_what_is_given_goes_before_what_is_remembered(here):
    given = ["score", "plant.rcad", "today.csv"]
    assert run_json(*given, "--fdr", "0.3")["decision"]["fdr"] == 0.3
    alarms = run_json(*given, "--false-alarms", "2")["decision"]
    assert alarms == {"procedure": "false-alarms", "false_alarms": 2.0, "validity": "auto"}
    assert run_json(*given, "--procedure", "by")["decision"] == {
        "fdr": 0.15, "procedure": "by", "validity": "auto",
    }  # fmt: skip
    assert run_json(*given, "--id", "flow")["anomalies"][0]["id"].keys() == {"flow"}
    run(*given, "--prefix", "mine_", "--output", "out.csv")
    assert pd.read_csv("out.csv").columns[-1] == "mine_anomaly"


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
    noted = {k: v for k, v in info.extras[OURS].items() if k not in ("id", "prefix", "decision")}
    cad = model_files.load("plant.rcad")
    model_files.save(cad, "old.rcad", extras={OURS: noted})
    assert "it does not say what we say" in check("old.rcad", "today.csv", code=1).stderr


@pytest.mark.parametrize(
    "noted",
    [
        {"id": "machine"}, {"id": [3]}, {"prefix": None}, {"prefix": 3}, {"decision": []},
        {"decision": {"fdr": 2}}, {"decision": {"fdr": "0.1"}}, {"prepare": "yes"}, {"detector": 3},
        {"decision": {"fdr": 0.2, "false_alarms": 2}}, {"decision": {"procedure": "__class__"}},
        {"decision": {"confidence": 0.5}}, {"decision": {"top": 3}}, {"decision": {"run": "rm"}},
        {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_what_we_would_not_have_noted_is_refused(here, noted):
    info = model_files.inspect("plant.rcad")
    extras = {OURS: {**info.extras[OURS], **noted}}
    model_files.save(model_files.load("plant.rcad"), "odd.rcad", extras=extras)
    for command in ("inspect", "score", "check"):
        arguments = [command, "odd.rcad", *(["today.csv"] if command != "inspect" else [])]
        said = CliRunner().invoke(main, arguments)
        assert (said.exit_code, said.stdout) == (1, "")
        assert said.stderr.startswith("Error: odd.rcad: it does not say what we say (")


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


# --- the log -------------------------------------------------------------------------------------


def test_the_log_has_a_line_per_run(here):
    check("plant.rcad", "calm.csv", "--log", "checks.jsonl", code=0)
    given = ["--output", "out.csv", "--report", "page.html", "--log", "checks.jsonl", "--quiet"]
    check("plant.rcad", "today.csv", *given, code=3)
    gone = check("plant.rcad", "gone.csv", "--log", "checks.jsonl", code=1)
    first, second, third = log_lines()
    assert [line["exit"] for line in (first, second, third)] == [0, 3, 1]
    assert second["model"]["sha256"] == sha256("plant.rcad")
    assert second["model"]["calibration"] == model_files.inspect("plant.rcad").fingerprint
    assert (second["output"], second["report"]) == ("out.csv", "page.html")
    scored = run_json("score", "plant.rcad", "today.csv")
    for name in ("new", "flagged", "decision", "guarantee", "p_threshold", "warnings"):
        assert second[name] == scored[name]
    assert (first["output"], first["flagged"], first["verdict"]) == (None, 0, "holds")
    assert first["why_nothing"] == run_json("score", "plant.rcad", "calm.csv")["why_nothing"]
    assert (bool(first["why_nothing"]), second["why_nothing"]) == (True, None)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", first["time"])
    assert third["new"] == {"path": "gone.csv"}
    assert f"Error: {third['error']}\n" == gone.stderr


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (["--log", "-"], 2, "--log must be the name of a file"),
        (["--log", "plant.rcad"], 2, "are the same file"),
        (["--log", "today.csv"], 2, "are the same file"),
        (["--log", "out.csv"], 2, "are the same file"),
        (["--log", "page.html"], 2, "are the same file"),
        (["--log", "normal.csv"], 1, "it holds something else than a log of reconform"),
        (["--log", "notes.json"], 1, "it holds something else than a log of reconform"),
        (["--log", "no/such/log"], 1, "there is no folder"),
        (["--log", "."], 1, "a log must be a regular file"),
        (["--log", "/dev/full"], 1, "a log must be a regular file"),
        (["--fail-on", "anomaly"], 2, "it must be anomalies, doubtful, broken"),
    ],
    ids=str,
)
def test_bad_options_of_check(here, given, code, words):
    Path("notes.json").write_text('{"reconform": "nice"}\n')
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    outputs = ["--output", "out.csv", "--report", "page.html", "--overwrite"]
    said = check("plant.rcad", "today.csv", *outputs, *given, code=code)
    assert words in said.stderr
    assert said.stdout == ""
    assert {path.name: path.read_bytes() for path in here.iterdir()} == before


def test_a_log_that_cannot_be_written_leaves_no_output(here):
    """A disk that is full when the line is appended: the outputs are taken back."""
    code = (
        "import sys\n"
        "from reconform.cli import main\n"
        "from reconform import atomic\n"
        "def full(self, file, before):\n"
        "    file.write(self._line[:10])\n"
        "    raise OSError(28, 'No space left on device')\n"
        "atomic._Line._write = full\n"
        "main(sys.argv[1:], prog_name='reconform')"
    )
    append_line("checks.jsonl", '{"reconform": "0", "exit": 0}')
    before = Path("checks.jsonl").read_bytes()
    given = ["check", "plant.rcad", "today.csv", "--output", "out.csv", "--log", "checks.jsonl"]
    done = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True)
    assert done.returncode == 1
    assert "checks.jsonl: it cannot be written (No space left on device)" in done.stderr
    assert not Path("out.csv").exists()
    assert Path("checks.jsonl").read_bytes() == before
    assert not list(here.glob(".reconform-*"))


def test_lines_of_two_runs_do_not_mix(tmp_path):
    """Twenty threads and four processes append long lines: each stands whole."""
    log, long = tmp_path / "log", "x" * 200_000
    code = (
        "import sys; from reconform.atomic import append_line\n"
        "for k in range(10): append_line(sys.argv[1], sys.argv[2] * 200_000)"
    )
    runs = [subprocess.Popen([sys.executable, "-c", code, str(log), c]) for c in "abcd"]
    threads = [threading.Thread(target=append_line, args=(log, long)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait() for process in runs] == [0] * 4
    lines = log.read_text().splitlines()
    assert len(lines) == 60
    assert all(len(line) == 200_000 and len(set(line)) == 1 for line in lines)


def test_a_line_after_one_that_was_cut_short(tmp_path):
    log = tmp_path / "log"
    log.write_text('{"whole": 1}\n{"cut sho')
    append_line(log, '{"whole": 2}')
    assert log.read_text().splitlines() == ['{"whole": 1}', '{"cut sho', '{"whole": 2}']


def test_a_line_comes_after_the_files_or_not_at_all(tmp_path):
    log = tmp_path / "log"

    def both():
        with atomic_group():
            write_atomic(tmp_path / "a", b"1")
            append_line(log, "written")
            assert not log.exists()
            (tmp_path / "a").write_bytes(b"someone else's")

    with pytest.raises(FileExistsError):
        both()
    assert not log.exists()
    with atomic_group():
        append_line(log, "written")
        write_atomic(tmp_path / "b", b"1")
    assert log.read_text() == "written\n"


# --- the recipes ---------------------------------------------------------------------------------


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
    script.write_text(block("sh", "### Every morning, by cron"))
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
    assert re.fullmatch(r"30 6 \* \* \* /srv/plant/check.sh\n", block("cron", "by cron"))


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
    workflow = yaml.safe_load(block("yaml", "### Every morning, by GitHub Actions"))
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
    assert [name for name in kept if not (here / name).exists()] == (
        [] if rows else ["report.html"]
    )


def test_a_model_saved_in_python_is_checked_too(here):
    cad = ConformalDetector("knn", "split", random_state=0)
    cad.fit(pd.read_csv("normal.csv")[NAMES])
    model_files.save(cad, "mine.rcad")
    assert json.loads(check("mine.rcad", "today.csv", "--fdr", 0.3, code=3).stdout)["flagged"] >= 8
