"""What a study recommends, as a command to paste."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Sequence

from ..detectors.by_name import written
from ..files import Layout
from ..methods import Method, named
from ..study import Recommendation, Study
from .options import OWNERS

# Files whose names the reader has to put in.
REFERENCE, NEW = "normal.csv", "new.csv"


def command_of(advice: Recommendation, study: Study) -> str | None:
    """Write the command that does what is recommended; None where there is none.

    Parameters
    ----------
    advice : Recommendation
    study : Study
        If it is about one table, the normal rows of this table are the reference.
    """
    if advice.method is None:
        return None
    detector, method = written(advice.detector), _method(advice.method)
    if detector is None or method is None:
        return None
    path = study.table_path
    tables = study.tables
    words = ["reconform", "detect", path or REFERENCE, NEW]
    if path is not None:
        words += ["--label", study.label]
        for option, names in (
            ("--id", tables.id_columns),
            ("--drop", [name for name in tables.drop if name != study.label]),
            ("--columns", tables.columns or ()),
        ):
            words += [option, _names(names)] if names else []
        words += _layout(tables.layout or Layout())
    words += ["--prepare"] if tables.prepare else []
    words += ["--category", _names(tables.categories)] if tables.categories else []
    name, settings = detector
    words += ["--detector", name]
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    return shlex.join([*words, *method, "--fdr", f"{float(study.protocol.fdr):g}"])


def in_words(advice: Recommendation, study: Study) -> str:
    """Say what is recommended, with the command or else with the line of Python."""
    command = command_of(advice, study)
    if command is None:
        return str(advice)
    files = f"{NEW} stands for your new rows"
    if study.table_path is None:
        files = f"{REFERENCE} and {NEW} stand for your files"
    return f"{advice.sentence} Paste this; {files}:\n\n    {command}"


def _method(method: Method) -> list[str] | None:
    """The options for a method; None where there are none."""
    known = named(method)
    if known is None or not set(known[1]) <= set(OWNERS):
        return None
    name, changed = known
    words = ["--method", name]
    for key, value in changed.items():
        words += [f"--{key}", str(value)]
    return words


def _layout(layout: Layout) -> list[str]:
    words = []
    for option in ("format", "delimiter"):
        value = getattr(layout, option)
        words += [] if value is None else [f"--{option}", "tab" if value == "\t" else value]
    words += ["--decimal", layout.decimal] if layout.decimal != "." else []
    for text in layout.missing:
        words += ["--missing", text]
    return words


def _names(names: Sequence[str]) -> str:
    """Names of columns with commas between them, as the options read them."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return line.getvalue()
