"""Throw damaged mark files and logs at `update` and `record`, and look for what must never happen.

Run ``python tests/fuzz/feedback.py --count 10000``; see `worker`. A finding is an exception that is
no sentence, an input that was changed, or something that was written.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent.parent))

from worker import fuzz, serve

ODD = (
    "", " ", "nan", "1e999", "-1", "0", "1.5", "9" * 400, "real", "REAL ", "maybe not", "true",
    "{}", "null", "\0", "\ufeff", "a,b", '"', "'", "\n", "x" * 5_000, "٣", "=1+1", "day.csv",
    "/dev/null", "[[[[", "NaN", "Infinity", '{"command":"check"}', "1e308", "é", "\x1b[2J", "..",
    "1.0",
)  # fmt: skip


def written() -> tuple[bytes, bytes, bytes]:
    """New rows, a mark file about them, and a log of two runs."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(40, 2)), rng.normal(6, 0.2, size=(4, 2))])
    lines = ["a,b,name", *(f"{a:.4f},{b:.4f},r{i}" for i, (a, b) in enumerate(X))]
    marks = ["batch,file,row,id,flagged,sample,mark,comment"]
    for i, said in ((40, "real"), (41, "false"), (42, "unsure"), (43, ""), (3, "false")):
        cells = ("yes", "") if i >= 40 else ("", "yes")
        marks.append(f",day.csv,{i + 1},r{i},{cells[0]},{cells[1]},{said},seen")
    run = {
        "command": "check", "time": "2026-03-01T06:00:00Z", "model": "m.rcad", "flagged": 4,
        "new": {"path": "day.csv", "rows": 44, "sha256": "ab" * 32}, "decision": {"fdr": 0.1},
        "assumption": {"verdict": "holds", "findings": []},
        "anomalies": [{"row": i + 1, "id": {"name": f"r{i}"}} for i in range(40, 44)],
        "seen": {"rows": 44, "columns": {"a": [-1.2, -0.6, 0.0, 0.6, 1.2]}},
    }  # fmt: skip
    log = "\n".join(json.dumps({**run, "time": f"2026-03-0{d}T06:00:00Z"}) for d in (1, 2))
    return tuple("\n".join(text).encode() for text in (lines, marks, log.split("\n")))


def damaged(dice: random.Random, text: bytes) -> bytes:
    """Change bytes, cells, lines or the end of a text."""
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(text) + 1)
        way = dice.randrange(7)
        if way == 0:
            text = text[:at]
        elif way == 1:
            text = text[:at] + bytes([dice.randrange(256)]) + text[at + 1 :]
        elif way == 2:
            text = text[:at] + dice.choice(ODD).encode() + text[at:]
        elif way == 3:
            text = text[:at] + text[max(0, at - 30) :]
        else:
            mark = dice.choice((b",", b"\n", b":", b'"'))
            parts = text.split(mark)
            k = dice.randrange(len(parts))
            new = [dice.choice(ODD).encode()] if way < 6 else [parts[k]] * dice.choice((0, 2))
            text = mark.join([*parts[:k], *new, *parts[k + 1 :]])
    return text


def work() -> None:
    warnings.simplefilter("ignore")
    from reconform import ConformalDetector, ReconformError
    from reconform.files.marks import read_marks
    from reconform.reporting.record import record, render_record

    day, marks, log = written()
    Path("day.csv").write_bytes(day)
    X = np.loadtxt("day.csv", delimiter=",", skiprows=1, usecols=(0, 1))
    cad = ConformalDetector("contrast", "full").fit(pd.DataFrame(X[:30], columns=["a", "b"]))

    def answer(seed: int, number: int) -> dict[str, Any]:
        dice = random.Random(f"{seed}/{number}")
        which = dice.choice(("marks", "log", "both"))
        Path("marks.csv").write_bytes(damaged(dice, marks) if which != "log" else marks)
        Path("log.jsonl").write_bytes(damaged(dice, log) if which != "marks" else log)
        before = {name: hashlib.sha256(Path(name).read_bytes()).digest() for name in os.listdir()}
        said: dict[str, Any] = {"end": "read"}
        try:
            read = read_marks("marks.csv")
            told = record("log.jsonl", [read] if dice.random() < 0.8 else [])
            assert len(render_record(told, "log.jsonl")) > 1_000
            json.dumps(told.to_dict(), allow_nan=False)
            read.looked_at(cad, id_columns=["name"])
        except (ReconformError, OSError) as error:
            said["end"] = "a sentence"
            if len(str(error)) > 3_000 or "\n" in str(error):
                said["finding"] = f"no sentence: {str(error)[:200]!r}"
        except Exception as error:
            said["finding"] = f"{type(error).__name__}: {error}"[:300]
        after = {name: hashlib.sha256(Path(name).read_bytes()).digest() for name in os.listdir()}
        return said if before == after else {**said, "finding": "a file was changed"}

    serve(answer)


def judged(said: dict[str, Any]) -> tuple[str, list[str]]:
    return said["end"], [said["finding"]] if "finding" in said else []


def keep(seed: int, number: int, folder: Path) -> None:
    """Both files follow from the two numbers."""


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        if "--worker" in sys.argv:
            os.chdir(folder)
        sys.exit(
            fuzz(str(Path(__file__).resolve()), "damaged mark files and logs", work, judged, keep)
        )
