"""`update` and `record`: a week as a person lives it, and what is never lost or half written."""

import json
import random
import shlex
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commands import PROGRAM, run, run_json
from reconform.models import inspect, load
from reconform.reporting.record import TrackRecord, mean_interval, record


def write(name, X, prefix):
    rows = [f"{prefix}{i},{a:.5f},{b:.5f}" for i, (a, b) in enumerate(X)]
    Path(name).write_text("\n".join(["name,a,b", *rows]) + "\n")


def day(seed):
    rng = np.random.default_rng(seed)
    return np.vstack([rng.normal(size=(140, 2)), rng.normal(3.2, 0.2, size=(10, 2))])


def mark(number, line):
    """What the page saves of one run, by somebody who knows."""
    said, flagged = json.loads(line), {}
    flagged = {one["row"] for one in said["anomalies"]}
    cells = ["batch,file,row,id,flagged,sample,mark,comment"]
    for row in sorted(flagged | set(said["sample"])):
        on = "yes" if row in flagged else "", "yes" if row in said["sample"] else ""
        mark = "real" if row > 140 else "false"
        cells.append(f"{said['new']['sha256']},day{number}.csv,{row},,{on[0]},{on[1]},{mark},")
    Path(f"marks{number}.csv").write_text("\n".join(cells))
    return said


def facts_of(line):
    return run_json(*shlex.split(line))


@pytest.fixture
def week(here):
    """A model, two days with their marks, and the log."""
    write("normal.csv", np.random.default_rng(9).normal(size=(200, 2)), "n")
    run("fit normal.csv --detector contrast --method full --id name --model plant.rcad")
    lines = []
    for number in range(2):
        write(f"day{number}.csv", day(number), f"d{number}-")
        lines.append(run(f"check plant.rcad day{number}.csv --sample 12", code=3).stdout)
    Path("checks.jsonl").write_text("".join(lines))
    return [mark(*pair) for pair in enumerate(lines)]


def test_a_week(week):
    said = facts_of("update plant.rcad --marks marks0.csv --marks marks1.csv --output two.rcad")
    real = sum(one["row"] > 140 for facts in week for one in facts["anomalies"])
    assert said["update"]["real"] == real or said["update"]["drawn"]
    assert said["update"]["sampled"] + said["update"]["drawn"] <= 24
    assert "marked on lists by this reference" in said["guarantee"]
    assert said["update"]["parent"] == inspect("plant.rcad").fingerprint
    assert said["sentence"] in run("inspect two.rcad").stdout
    # The same attack comes again, with the same features: found, and no reason to end the job.
    again = np.vstack([np.random.default_rng(5).normal(size=(140, 2)), day(1)[140:]])
    write("again.csv", again, "e")
    facts = json.loads(run("check two.rcad again.csv", code=3).stdout)
    assert {one["row"] for one in facts["anomalies"]} >= set(range(141, 151))
    # The batch that was marked: its own marks are set aside, and nothing ends.
    assert "set aside" in run("score two.rcad day1.csv").stderr
    rolling = "update two.rcad --marks marks1.csv --normal day1.csv --keep 250"
    rolled = facts_of(f"{rolling} --output 3.rcad")
    assert rolled["update"]["real"] == rolled["update"]["sampled"] == 0
    assert rolled["update"]["left_out"] >= 9
    assert rolled["update"]["reference"] == 250
    assert "left out" in rolled["guarantee"]
    assert rolled["updates"] == len(inspect("3.rcad").updates) == 2


def test_a_split_finds_its_reference_and_refuses_another(week):
    run("fit normal.csv --detector knn --method split --id name --model split.rcad")
    said = facts_of("update split.rcad --marks marks0.csv --output split2.rcad")
    assert said["update"]["reference"] == 200 + said["update"]["sampled"]
    assert said["update"]["unused"] > 0
    Path("normal.csv").unlink()
    assert facts_of("update split2.rcad --marks marks1.csv --output 3.rcad")["updates"] == 2
    given = "update split.rcad --reference day0.csv --marks marks0.csv --output 4.rcad"
    refused = run(given, code=1)
    assert "does not hold the 200 rows that the model was fitted to" in refused.stderr


def test_marks_by_hand(week):
    run("detect normal.csv day0.csv --id name --only-anomalies --output list.csv --detector knn")
    head, *rows = Path("list.csv").read_text().splitlines()
    Path("hand.csv").write_text("\n".join([head + ",mark", *(f"{row},yes" for row in rows)]))
    by_features = facts_of("update plant.rcad --marks hand.csv --output a.rcad")
    names = [row.split(",")[0] for row in rows]
    Path("ids.csv").write_text("\n".join(["id,mark", *(f"{name},real" for name in names)]))
    by_name = facts_of("update plant.rcad --marks ids.csv --rows day0.csv --output b.rcad")
    assert (by_features["update"], by_name["update"]["real"]) == (by_name["update"], len(names))
    table = pd.read_csv("day0.csv").set_index("name")
    listed = load("plant.rcad").discover(table).to_frame().query("anomaly")
    listed.assign(mark="real").to_csv("frame.csv", index_label="id")
    by_frame = facts_of("update plant.rcad --marks frame.csv --rows day0.csv --output c.rcad")
    assert by_frame["update"]["real"] == len(listed) > 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("row\n1\n", "no column 'mark'"),
        ("row,mark\n1,perhaps\n", "a mark must be real, false, unsure or nothing; got 'perhaps'"),
        ("row,mark\n0,real\n", "'row' must be the number of a row, from 1; got '0'"),
        ("row,mark\n1,real\n1,real\n", "row 1 is there a second time"),
        ("mark\nreal\n", "name that file by --rows"),
        ("row,mark,file\n999,real,day0.csv\n", "there is no row 999"),
        ("row,mark,file,batch\n1,real,day0.csv,aa\n", "they have changed since"),
        ("row,mark,batch\n1,real,a\n2,real,b\n", "save one mark file for each"),
        ("id,mark,file\nnobody,real,day0.csv\n", "no row with the identifier 'nobody'"),
    ],
)
def test_what_is_wrong_with_a_mark_file(week, content, said):
    Path("bad.csv").write_text(content)
    assert said in run("update plant.rcad --marks bad.csv --output new.rcad", code=1).stderr
    assert not Path("new.rcad").exists()


def test_nothing_is_overwritten(week):
    before = Path("plant.rcad").read_bytes()
    Path("there.rcad").write_text("mine")
    for output, code in (("plant.rcad", 2), ("there.rcad", 1)):
        run(f"update plant.rcad --marks marks0.csv --output {output}", code=code)
    told = run("update plant.rcad --keep 50 --output there.rcad", code=1).stderr
    assert "overwrites nothing" in told
    assert (Path("plant.rcad").read_bytes(), Path("there.rcad").read_text()) == (before, "mine")
    assert "what is to change?" in run("update plant.rcad --output x.rcad", code=2).stderr


def test_the_record(week):
    said = facts_of("record checks.jsonl marks0.csv marks1.csv --output record.html")
    assert said["runs"] == 2
    assert said["looked"] == said["flagged"] == sum(facts["flagged"] for facts in week)
    false = [sum(one["row"] <= 140 for one in facts["anomalies"]) for facts in week]
    assert said["false"] == sum(false)
    shares = [count / facts["flagged"] for count, facts in zip(false, week, strict=True)]
    assert said["observed_fdr"] == pytest.approx(np.mean(shares))
    assert said["interval"][0] <= said["observed_fdr"] <= said["interval"][1]
    assert said["promised"] == pytest.approx(0.1)
    assert "<svg" in Path("record.html").read_text()
    run("record checks.jsonl --output record.html", code=1)
    assert "Nobody has marked" in run("record checks.jsonl").stdout
    assert "no lines of reconform check" in run("record day0.csv", code=1).stderr
    Path("other.csv").write_text("batch,row,mark\nff,1,real\n")
    assert "no run of checks.jsonl judged" in run("record checks.jsonl other.csv", code=1).stderr


def run_of(**facts):
    line = {
        "command": "check", "flagged": 0, "decision": {"fdr": 0.1}, "seen": {},
        "new": {"rows": 100, "sha256": facts.pop("batch"), "path": ""},
        "assumption": {"verdict": facts.pop("verdict", "holds")},
    }  # fmt: skip
    return json.dumps({**line, **facts})


def test_the_mean_is_over_runs_and_empty_lists_count_as_nothing(here):
    flagged = {"a": 4, "b": 0, "c": 1, "d": 8, "e": 3}
    days = enumerate(flagged.items(), start=1)
    lines = [run_of(batch=k, flagged=n, time=f"2026-03-0{day}") for day, (k, n) in days]
    lines += [run_of(batch="f", flagged=5, verdict="broken"), '{"command": "check", "error": "x"}']
    lines += [run_of(batch="a", flagged=2, time="2026-03-09"), "half a li"]
    Path("log").write_text("\n".join(lines))
    told = record("log")
    assert [run.batch for run in told.runs] == ["b", "c", "d", "e", "f", "a"], "judged again: once"
    assert told.failed == 1
    marked = {"a": (1, 1), "c": (0, 1), "d": (3, 0), "e": (0, 0), "f": (0, 5)}
    said = [marked.get(run.batch, (0, 0)) for run in told.runs]
    runs = [replace(r, real=n[0], false=n[1]) for r, n in zip(told.runs, said, strict=True)]
    told = TrackRecord(tuple(runs))
    # e was not looked at, so three quarters of the empty list count, which is rounded to all of it
    assert [run.batch for run in told.counted] == ["b", "c", "d", "a"]
    assert told.running[-1][0] == pytest.approx((0 + 1 + 0 + 1 / 2) / 4)
    assert told.pooled == pytest.approx(7 / 11)
    assert "no longer fits" not in told.advice
    later = (replace(runs[-2], time=f"2026-03-{day}") for day in (10, 11))
    broken = TrackRecord((*runs, *later))
    assert "no longer fits since 10 March 2026" in broken.advice


def test_the_interval_covers_the_mean_at_all_times():
    """500 records of 40 runs at 95%: a correct one fails this bound with probability below 1e-6."""
    rng, missed = np.random.default_rng(0), 0
    for _ in range(500):
        low, high = mean_interval(rng.beta(0.5, 4.5, 40) * (rng.random(40) < 0.7))
        missed += not ((low <= 0.07) & (high >= 0.07)).all()
        assert (np.diff(low) >= 0).all()
        assert (np.diff(high) <= 0).all()
    assert missed <= 52
    low, high = mean_interval(np.full(300, 0.1))
    assert 0.05 < low[-1] < 0.1 < high[-1] < 0.15


@pytest.mark.parametrize("what", ["update", "record"])
def test_killed_at_any_time_it_leaves_the_old_file_or_the_new_one(week, what):
    """Six times each, around the end, where files are written; a run takes about two seconds."""
    words, output = {
        "update": (["update", "plant.rcad", "--marks", "marks0.csv"], "new.rcad"),
        "record": (["record", "checks.jsonl", "marks0.csv", "--overwrite"], "page.html"),
    }[what]
    begun = time.monotonic()
    subprocess.run([*PROGRAM, *words, "--output", output], check=True, capture_output=True)
    whole, content = time.monotonic() - begun, Path(output).read_bytes()
    inputs = {path: path.read_bytes() for path in Path().iterdir() if path.name != output}
    for k in range(6):
        if what == "update":
            Path(output).unlink(missing_ok=True)
        else:
            Path(output).write_text("old")
        quiet = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
        process = subprocess.Popen([*PROGRAM, *words, "--output", output], **quiet)
        time.sleep(whole * random.Random(k).uniform(0.75, 1.05))
        process.send_signal(signal.SIGKILL)
        process.wait()
        if Path(output).exists() and Path(output).read_bytes() not in (b"old", content):
            assert what == "update", "half a page"
            assert inspect(output).n_reference > 200  # written at another time, and whole
        for path, before in inputs.items():
            assert path.read_bytes() == before
