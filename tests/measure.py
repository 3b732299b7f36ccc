"""The size and shape of the source: `python tests/measure.py`, or `make measure`.

Modules, lines of code (without docstrings, comments and blank lines), the functions that the
default three lines (fit, discover, print) and `reconform detect --report` run, long functions,
lines of tests, words of documents. `LIMITS` are gates: `tests/test_architecture.py` holds them.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LONG = 80
REFERENCE = {
    "cli",
    "api",
    "glossary",
    "guarantees",
}  # pages where one looks something up, and proofs

# The most that there may be of each. A feature that needs more room makes it first.
LIMITS: dict[str, int] = {
    "modules": 140,
    "lines of code": 30_860,
    "functions over 80 lines": 0,
    "lines of tests": 26_900,
    "words in docs": 44_900,
    "words in docs, beside reference and proofs": 25_000,
    "fit, discover, print: functions": 480,
    "fit, discover, print: outside detectors/": 274,
    "fit, discover, print: modules": 60,
    "detect --report: functions": 745,
    "detect --report: modules": 82,
}

_DEFAULT = """
import numpy as np
from reconform import ConformalDetector
rng = np.random.default_rng(0)
X, T = rng.normal(size=(300, 4)), rng.normal(size=(200, 4))
T[190:] += 4
with traced():
    found = ConformalDetector(random_state=0).fit(X).discover(T, fdr=0.1)
    str(found)
"""
_DETECT = """
import contextlib, io, os, tempfile
import numpy as np
rng = np.random.default_rng(0)
os.chdir(tempfile.mkdtemp())
for name, m in (("a.csv", 300), ("b.csv", 200)):
    rows = rng.normal(size=(m, 4))
    rows[190:200] += 4 * (name == "b.csv")
    np.savetxt(name, rows, delimiter=",", header="w,x,y,z", comments="")
import sys
sys.argv = ["reconform", "detect", "a.csv", "b.csv", "--report", "report.html", "--overwrite"]
from reconform.__main__ import run
for tracing in (contextlib.nullcontext(), traced()):  # what imports run does not count
    with tracing, contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        run()
"""
_TRACED = """
import contextlib, sys, threading
seen = set()
@contextlib.contextmanager
def traced():
    def note(frame, event, arg):
        code = frame.f_code
        if event == "call" and "/reconform/" in code.co_filename:
            seen.add((code.co_filename.split("/reconform/")[-1], code.co_qualname))
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
"""
_COUNTED = """
named = {(file, name) for file, name in seen if not name.split(".")[-1].startswith("<")}
print(len(named), len({file for file, _ in named}),
      sum(not file.startswith("detectors/") for file, _ in named))
"""


def code_lines(path: Path) -> int:
    """Lines of a module that are neither docstring nor comment nor blank."""
    text = path.read_text(encoding="utf-8")
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            said = node.body[0]
            left_out.update(range(said.lineno, (said.end_lineno or said.lineno) + 1))
    empty = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
        tokenize.ENDMARKER,
    }  # fmt: skip
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in empty:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - left_out)


def long_functions(path: Path) -> Iterator[str]:
    """Functions of more than 80 lines, without their docstrings."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if ast.get_docstring(node):
                said = node.body[0]
                lines -= (said.end_lineno or 0) - said.lineno + 1
            if lines > LONG:
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name} ({lines})"


def functions_run(script: str) -> tuple[int, int, int]:
    """How many of our functions a script runs, in how many modules, and outside `detectors/`."""
    done = subprocess.run(
        [sys.executable, "-c", _TRACED + script + _COUNTED],
        capture_output=True,
        text=True,
        check=True,
    )
    functions, modules, outside = map(int, done.stdout.split()[-3:])
    return functions, modules, outside


def shape() -> dict[str, int]:
    """What can be counted without running anything."""
    source = sorted((ROOT / "src" / "reconform").rglob("*.py"))
    words = {
        page.stem: len(page.read_text("utf-8").split()) for page in (ROOT / "docs").rglob("*.md")
    }
    return {
        "modules": len(source),
        "lines of code": sum(map(code_lines, source)),
        f"functions over {LONG} lines": sum(1 for path in source for _ in long_functions(path)),
        "lines of tests": sum(
            len(path.read_text("utf-8").splitlines()) for path in (ROOT / "tests").rglob("*.py")
        ),
        "words in docs": sum(words.values()),
        "words in docs, beside reference and proofs": sum(
            count for page, count in words.items() if page not in REFERENCE
        ),
    }


def paths() -> dict[str, int]:
    """What the default three lines and `detect --report` run."""
    default, modules, outside = functions_run(_DEFAULT)
    report, report_modules, _ = functions_run(_DETECT)
    return {
        "fit, discover, print: functions": default,
        "fit, discover, print: outside detectors/": outside,
        "fit, discover, print: modules": modules,
        "detect --report: functions": report,
        "detect --report: modules": report_modules,
    }


if __name__ == "__main__":
    for counted in (shape, paths):
        for what, count in counted().items():
            limit = f"  (at most {LIMITS[what]:,})" if what in LIMITS else ""
            print(f"{what}: {count:,}{limit}")
    for path in sorted((ROOT / "src" / "reconform").rglob("*.py")):
        for found in long_functions(path):
            print(f"  long: {found}")
