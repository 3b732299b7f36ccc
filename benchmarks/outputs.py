"""Print what all commands say, on good and on bad data, into one file: to read it as a stranger.

    python benchmarks/outputs.py outputs.txt

Words cannot be tested for being understood. This is what a reviewer of words reads, from top to
bottom; beside it, ``tests/cli/test_advice.py`` pastes what is advised.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
from click.testing import CliRunner

from reconform import ConformalDetector, load, save
from reconform.cli import main

PLAIN = ["heat", "noise", "flow"]


def rows(count: int, seed: int, *, far: int = 0, moved: float = 0.0) -> pd.DataFrame:
    """Rows of three sensors, of which the first are anomalies."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 3))
    X[:, 0] += moved
    X[:far] += 6
    frame = pd.DataFrame(np.round(X * [5, 2, 9] + [70, 20, 300], 3), columns=PLAIN)
    frame["kind"] = np.where(np.arange(count) % 2, "pump", "fan")
    frame["id"] = [f"m{i:04d}" for i in range(count)]
    return frame


def tables() -> dict[str, pd.DataFrame]:
    """Files for all situations, by what is special about them."""
    rng = np.random.default_rng(0)
    normal, new = rows(600, 1), rows(200, 2, far=12)
    dirty = normal.copy()
    dirty.loc[:19, PLAIN] += [30, 12, 54]
    following = rows(400, 5)
    following["heat"] = np.round(70 + np.cumsum(rng.normal(size=400)) / 2, 3)
    following["at"] = pd.date_range("2026-01-01", periods=400, freq="h")
    later = rows(120, 6, far=5).assign(at=pd.date_range("2026-02-01", periods=120, freq="h"))
    runs = rows(2_000, 7).assign(run=np.repeat(np.arange(100), 20))
    newruns = rows(400, 8, far=40).assign(run=np.repeat(np.arange(200, 220), 20))
    return {
        "normal": normal[PLAIN],
        "new": new[PLAIN],
        "named": normal.drop(columns="kind"),
        "newnamed": new.drop(columns="kind"),
        "quiet": rows(200, 3)[PLAIN] * 0.2 + [56, 16, 240],
        "plain": rows(200, 3)[PLAIN],
        "tiny": normal[PLAIN][:12],
        "one": normal[PLAIN][:1],
        "none": normal[PLAIN][:0],
        "moved": rows(200, 4, moved=1.0)[PLAIN],
        "mixed": normal,
        "mixednew": new,
        "dirty": dirty[PLAIN],
        "dirtynew": rows(200, 9, far=20)[PLAIN],
        "gaps": normal[PLAIN].mask(rng.random((600, 3)) < 0.02),
        "gapsnew": new[PLAIN].mask(rng.random((200, 3)) < 0.3),
        "following": following.drop(columns=["kind", "id"]),
        "later": later.drop(columns=["kind", "id"]),
        "runs": runs.drop(columns=["kind", "id"]),
        "newruns": newruns.drop(columns=["kind", "id"]),
        "renamed": new[PLAIN].rename(columns={"heat": "temperature"}),
        "labelled": rows(400, 10, far=40)[PLAIN].assign(fault=[1] * 40 + [0] * 360),
        "counted": new[PLAIN].assign(heat=np.arange(200) + 5_000),
    }


QUICK = "--detector knn --method jackknife+"
COMMANDS = {
    "Ordinary lists": [
        "detect named.csv newnamed.csv",
        "detect named.csv newnamed.csv --id id",
        "detect normal.csv new.csv --detector knn",
        f"detect normal.csv new.csv {QUICK}",
        f"detect normal.csv new.csv {QUICK} --fdr 0.3",
        "detect normal.csv new.csv --detector iforest --method split",
        "detect normal.csv new.csv --detector auto --method split",
        "detect normal.csv new.csv --detector auto --method full --validity nominal",
        "detect normal.csv new.csv --detector knn --method learned",
        "detect normal.csv new.csv --detector contrast",
        f"detect normal.csv new.csv {QUICK} --top 5",
        f"detect normal.csv new.csv {QUICK} --false-alarms 1",
        f"detect normal.csv new.csv {QUICK} --validity proven",
        f"detect normal.csv new.csv {QUICK} --procedure by",
        "detect normal.csv new.csv --method split --set repeats=3 --detector knn",
        "detect normal.csv new.csv --detector knn --method cv+",
        f"detect normal.csv new.csv {QUICK} --explain 2",
        f"detect normal.csv new.csv {QUICK} --output out.csv --report page.html",
        f"detect normal.csv new.csv {QUICK} --output out.csv",
        f"detect normal.csv new.csv {QUICK} --output - --only-anomalies",
        f"detect normal.csv new.csv {QUICK} --json",
        f"detect normal.csv new.csv {QUICK} --quiet",
    ],
    "Empty lists": [
        "detect normal.csv quiet.csv",
        "detect normal.csv plain.csv --detector knn",
        "detect normal.csv plain.csv --detector knn --false-alarms 0.01",
        "detect normal.csv plain.csv --method learned",
        "detect tiny.csv new.csv",
        "detect tiny.csv new.csv --detector knn --method split",
        "detect one.csv new.csv",
        "detect none.csv new.csv",
        "detect normal.csv none.csv",
        "detect dirty.csv dirtynew.csv --detector knn",
    ],
    "The assumption": [
        "detect normal.csv moved.csv",
        f"detect normal.csv moved.csv {QUICK} --top 3",
        "detect normal.csv moved.csv --method split --shift heat",
        "detect normal.csv counted.csv",
        "detect following.csv later.csv",
        "detect following.csv later.csv --time at",
        "detect named.csv newnamed.csv --time id",
        "detect following.csv later.csv --unit at --every 1d",
        "detect runs.csv newruns.csv --unit run",
        "detect runs.csv newruns.csv --unit run --output out.csv",
        "detect normal.csv normal.csv --detector knn",
    ],
    "Groups, mixed tables, missing values": [
        "detect mixed.csv mixednew.csv",
        "detect mixed.csv mixednew.csv --id id --group kind",
        "detect mixed.csv mixednew.csv --id id --group kind --detector auto",
        "detect mixed.csv mixednew.csv --id id --detector knn",
        "detect gaps.csv gapsnew.csv",
        "detect normal.csv gapsnew.csv",
        "detect mixed.csv new.csv",
    ],
    "What is refused": [
        "detect absent.csv new.csv",
        "detect normal.csv renamed.csv",
        "detect normal.csv new.csv --id machine",
        "detect normal.csv new.csv --fdr 2",
        "detect normal.csv new.csv --detector nknn",
        "detect normal.csv new.csv --method full --detector iforest --set n_trees=3",
        "detect normal.csv new.csv --detector auto --method cv+",
        "detect normal.csv new.csv --detector auto --method jackknife+",
        "detect normal.csv new.csv --method split --set folds=3 --detector knn",
        "detect normal.csv new.csv --detector contrast --method jackknife+",
        "detect normal.csv new.csv --detector knn --method learned",
        f"detect normal.csv new.csv {QUICK} --procedure storey --validity proven",
        f"detect normal.csv new.csv {QUICK} --output page.html",
        "detect normal.csv",
        "detct normal.csv new.csv",
        "detect bad.csv new.csv",
        "detect text.csv new.csv",
        "detect folder new.csv",
    ],
    "Models": [
        "fit named.csv --id id --model plant.rcad",
        f"fit normal.csv {QUICK} --model knn.rcad",
        "fit normal.csv --detector iforest --method split --model forest.rcad",
        "fit normal.csv --detector sklearn:OneClassSVM --method split --model svm.rcad",
        "fit normal.csv --model plant.rcad",
        "inspect plant.rcad",
        "inspect knn.rcad",
        "inspect svm.rcad",
        "inspect knn.rcad --json",
        "score plant.rcad newnamed.csv",
        "score knn.rcad new.csv --fdr 0.01",
        "score svm.rcad new.csv",
        "score svm.rcad new.csv --trust-objects",
        "score knn.rcad renamed.csv",
        "score damaged.rcad new.csv",
        "score new.csv new.csv",
        "check knn.rcad new.csv",
        "check knn.rcad plain.csv --before checks.jsonl",
        "check knn.rcad moved.csv",
        "check knn.rcad renamed.csv",
    ],
    "Streams": [
        "stream knn.rcad --false-alarms 1 --per 100 < rows.jsonl",
        "stream knn.rcad --by windows --window 50 --fdr 0.1 < rows.jsonl",
        "stream knn.rcad --false-alarms 1 --per 1000 --journal plant.journal < rows.jsonl",
        "stream knn.rcad < new.csv",
        "stream plant.rcad --false-alarms 1 --per 100 < rows.jsonl",
    ],
    "Reviews": [
        "clean dirty.csv",
        "clean dirty.csv --output review.csv",
        "clean dirty.csv --marks marked.csv",
        "detect dirty.csv dirtynew.csv --detector knn --marks marked.csv",
        "clean tiny.csv",
    ],
    "The rest": ["demo", "demo --json", "warm", "", "--version"],
}


def prepared(folder: Path) -> None:
    """Write all files that the commands read."""
    for name, table in tables().items():
        table.to_csv(folder / f"{name}.csv", index=False)
    (folder / "bad.csv").write_text("heat,noise,flow\n1,2,3\n4,5\n")
    (folder / "text.csv").write_bytes(b"\xff\xfe\x00\x01 no table")
    (folder / "folder").mkdir()
    rows(120, 2, far=6)[PLAIN].to_json(folder / "rows.jsonl", orient="records", lines=True)


def spoil(folder: Path, line: str) -> None:
    """Make the files that need what ran before."""
    if line.startswith("inspect plant"):
        data = (folder / "knn.rcad").read_bytes()
        (folder / "damaged.rcad").write_bytes(data[: len(data) // 2])
    if "marked.csv" in line:
        review = pd.read_csv(folder / "review.csv")
        review["mark"] = ["real" if one <= 20 else "false" for one in review["row"]]
        review.to_csv(folder / "marked.csv", index=False)


def of_commands(folder: Path) -> Iterator[str]:
    """What every command says, a section each."""
    runner = CliRunner()
    for title, lines in COMMANDS.items():
        yield f"\n{'#' * 100}\n# {title}\n"
        for line in lines:
            spoil(folder, line)
            words, _, fed = line.partition(" < ")
            with warnings.catch_warnings():
                warnings.simplefilter("default")
                done = runner.invoke(
                    main,
                    shlex.split(words),
                    prog_name="reconform",
                    input=Path(fed).read_bytes() if fed else None,
                )
            yield f"{'─' * 100}\n$ reconform {line}    [exit {done.exit_code}]\n"
            yield shown(done.output)
            if done.exit_code == 70 and done.exc_info:
                yield "".join(traceback.format_exception(done.exception))


def shown(said: str, longest: int = 60) -> str:
    """Cut what is long: rows of data repeat themselves."""
    lines = said.splitlines()
    more = [f"... {len(lines) - longest} more lines"] if len(lines) > longest else []
    return "\n".join([*lines[:longest], *more]) + "\n"


@contextmanager
def aloud() -> Iterator[Callable[[], str]]:
    """Collect what Python prints and warns of."""
    out, before = io.StringIO(), sys.stdout
    sys.stdout = out
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield (
                lambda: (
                    out.getvalue()
                    + "".join(f"{w.category.__name__}: {w.message}\n" for w in warned)
                )
            )
    finally:
        sys.stdout = before


PYTHON = [
    "print(quick.discover(new))",
    "quick.discover(new)",
    "print(quick.discover(new).guarantee)",
    "print(quick.discover(new).promise)",
    "print(quick.discover(new).verdict)",
    "quick.discover(new).verdict",
    "print(quick.discover(new).explain(2))",
    "print(quick.discover(new).to_frame().head(3))",
    "print(quick.discover(new).summary())",
    "print(quick.discover(new).first(5))",
    "print(quick.discover(new).fdp_bound())",
    "print(quick.discover(plain))",
    "print(quick.discover(moved))",
    "print(quick.discover(moved).verdict)",
    "print(split.discover(new).false_bound(0.95))",
    "print(cad.discover(new))",
    "print(cad.discover(new).guarantee)",
    "print(cad.discover(new).choice)",
    "print(cad.discover(new).ranked_by)",
    "print(tiny.discover(new))",
    "quick",
    "cad.p_values(new)[:3]",
    "quick.discover(new.rename(columns={'heat': 'x'}))",
    "quick.discover(new, fdr=2)",
    "quick.discover(new, fdr=0.1, false_alarms=3)",
    "quick.discover(new, procedure='bhh')",
    "quick.discover(new, validity='proven', procedure='storey')",
    "quick.discover(new.mask(new > 300))",
    "quick.discover(new[:0])",
    "quick.fdp_bound(new)",
    "quick.discover(new, groups=['a'] * 200)",
    "quick.discover(new, weights=np.ones(200))",
    "ConformalDetector('knnn').fit(normal)",
    "ConformalDetector('knn', 'cv++').fit(normal)",
    "ConformalDetector('auto', 'cv+').fit(normal)",
    "ConformalDetector().discover(new)",
    "ConformalDetector('knn').fit(normal[:1])",
    "ConformalDetector('knn').fit(normal.assign(heat=1.0))",
    "ConformalDetector('knn').fit(normal.assign(heat='red'))",
    "ConformalDetector('knn').fit(normal.mask(normal > 310))",
    "ConformalDetector(lambda X, Y: Y[:, 0]).fit(normal)",
    "save(cad, 'plant.rcad')",
    "load('damaged.rcad')",
    "load('new.csv')",
    "load('absent.rcad')",
]


def of_python() -> Iterator[str]:
    """What Python prints, warns of and raises."""
    yield f"\n{'#' * 100}\n# Python\n"
    world = {"np": np, "ConformalDetector": ConformalDetector, "save": save, "load": load}
    world |= {name: pd.read_csv(f"{name}.csv") for name in ("normal", "new", "plain", "moved")}
    for name, made in {
        "cad": "ConformalDetector(random_state=0).fit(normal)",
        "quick": "ConformalDetector('knn', 'jackknife+', random_state=0).fit(normal)",
        "split": "ConformalDetector('knn', 'split', random_state=0).fit(normal)",
        "tiny": "ConformalDetector('knn', 'jackknife+', random_state=0).fit(normal[:12])",
    }.items():
        world[name] = eval(made, world)
        yield f">>> {name} = {made}\n"
    for line in PYTHON:
        with aloud() as said:
            try:
                value = eval(line, world)
                print(repr(value) if value is not None else "", end="")
            except Exception as error:
                print(f"{type(error).__name__}: {error}")
            heard = said()
        yield f"{'─' * 100}\n>>> {line}\n{shown(heard)}"


def run(path: Path) -> None:
    """Write everything into a file."""
    os.environ.setdefault("COLUMNS", "120")
    with tempfile.TemporaryDirectory() as name:
        folder, path = Path(name), path.resolve()
        prepared(folder)
        os.chdir(folder)
        with path.open("w") as file:
            for said in (*of_commands(folder), *of_python()):
                file.write(re.sub(re.escape(str(folder)), "FOLDER", said))
                file.flush()


if __name__ == "__main__":
    run(Path(sys.argv[1] if len(sys.argv) > 1 else "outputs.txt"))
