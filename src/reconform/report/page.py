"""One self-contained HTML page: no network, nothing run that came from the data."""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt

from ..discoveries import Discoveries
from ..whole import check_place, write_whole
from . import words
from .carried import Carried, Describe, carry
from .features import unusual_features
from .readings import Reading, read_p_values
from .summary import Summary, p_value_nature, summarise
from .tables import Table, count_copies, matched, read_table
from .text import percent, script_json, shorten

SCRIPTS = ("page.js", "charts.js", "table.js", "start.js")
LONGEST_TITLE = 200


def report(
    found: Discoveries,
    path: str | os.PathLike[str],
    *,
    rows: Any = None,
    reference: Any = None,
    ids: Any = None,
    title: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a page that shows what was found, for a person deciding what to inspect first.

    The page is one file and needs no network. It has the result in words, a slider for the FDR
    level, the charts of `chart`, the flagged rows, and how all was computed.

    Parameters
    ----------
    found : Discoveries
    path : str or path
        Where to write; the folder must exist.
    rows : array-like or frame of shape (m, d), optional
        The new rows. Together with `reference`, the table names the most unusual features of each
        row, and copies of reference rows are looked for.
    reference : array-like or frame of shape (n, d), optional
        The normal rows that the detector was fitted on. Columns match by name, or by position
        where there are no names.
    ids : sequence of length m, optional
        A label per row; by default the input's index, or the position.
    title : str, optional
    overwrite : bool, default=False
        Replace an existing file.

    Returns
    -------
    pathlib.Path
        What was written.

    See Also
    --------
    reconform.chart : The same charts in a notebook.

    Notes
    -----
    Rows are embedded in the page: whoever gets it can read them. Up to about 30,000 rows are
    carried, the strangest first, so that the page stays below 5 MB; counts and charts are about
    all rows. The page is written to a temporary file and renamed, so there is never half a page.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from reconform.demo import run_demo
    >>> from reconform.report import report
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = report(run_demo().found, Path(folder) / "report.html")
    ...     "of 229 rows flagged" in page.read_text()
    True
    """
    target = Path(path)
    check_place(target, overwrite=overwrite)
    html = render(found, rows=rows, reference=reference, ids=ids, title=title)
    # Labels, and names of files, may be any bytes.
    write_whole(target, html.encode(errors="replace"), overwrite=overwrite)
    return target


def render(
    found: Discoveries,
    *,
    rows: Any = None,
    reference: Any = None,
    ids: Any = None,
    title: str | None = None,
) -> str:
    """Make the page as a text; the arguments are those of `report`."""
    summary = summarise(found)
    tables = _tables(found, rows, reference)
    wanted = int(summary.counts[-1])
    carried = carry(
        found,
        summary.order,
        wanted,
        _labels(found, ids),
        describe=tables.describe,
        names=tables.names,
    )
    return _fill(found, summary, carried, tables, title or "Anomaly report")


@dataclass(frozen=True, eq=False)
class _Tables:
    """What the feature tables contribute."""

    describe: Describe | None
    names: tuple[str, ...]
    copies: tuple[int, float]
    fingerprints: dict[str, str]


def _tables(found: Discoveries, rows: Any, reference: Any) -> _Tables:
    provenance = found.provenance
    names = provenance.feature_names if provenance else ()
    new = None if rows is None else read_table("rows", rows, names=names)
    known = None if reference is None else read_table("reference", reference, names=names)
    if new is not None and new.rows != len(found):
        raise ValueError(
            f"rows must be the rows that found is about: it has {len(found):,}, and rows has "
            f"{new.rows:,}."
        )
    if known is not None and provenance and known.rows != provenance.n_reference:
        raise ValueError(
            f"reference must be the rows given to fit: {provenance.n_reference:,} of them, and "
            f"this one has {known.rows:,}."
        )
    read: dict[str, Table | None] = {"reference": known, "new rows": new}
    fingerprints = {name: table.fingerprint for name, table in read.items() if table is not None}
    if new is None or known is None:
        return _Tables(None, (), (0, 0.0), fingerprints)
    new, known = matched(new, known, names)
    used = tuple(column.name for column in known.columns)
    return _Tables(unusual_features(new, known), used, count_copies(new, known), fingerprints)


def _labels(found: Discoveries, ids: Any) -> npt.NDArray[Any]:
    labels = ids if ids is not None else found.index
    if labels is None:
        return np.arange(len(found))
    array = np.empty(len(labels), dtype=object)
    array[:] = list(labels)
    if len(array) != len(found):
        raise ValueError(f"ids must have one label per row: {len(found):,} rows, {len(array):,}.")
    return array


def _fill(
    found: Discoveries, summary: Summary, carried: Carried, tables: _Tables, title: str
) -> str:
    web = files(__package__) / "web"
    style = (web / "style.css").read_text("utf-8")
    script = "\n".join((web / name).read_text("utf-8") for name in SCRIPTS)
    said = [words.level_sentences(summary, i) for i in range(len(summary.levels))]
    readings = _readings(found, summary, tables)
    now = {name: escape(text) for name, text in said[summary.chosen].items()}
    return Template((web / "page.html").read_text("utf-8")).substitute(
        now,
        policy=_policy(style, script),
        style=style,
        script=script,
        data=script_json({**_numbers(summary), **_rows(carried), "words": said}),
        title=escape(shorten(title, LONGEST_TITLE)),
        guarantee=escape(found.guarantee),
        assumption=escape(words.ASSUMPTION),
        last=len(summary.levels) - 1,
        chosen=summary.chosen,
        level=percent(summary.levels[summary.chosen]),
        notice="".join(_notice(reading) for reading in readings if reading.doubtful),
        readings="\n".join(map(_reading, readings)),
        shapes="\n".join(_shape(kind, text, readings) for kind, text in words.SHAPES.items()),
        carried=escape(words.carried_sentence(carried, summary.rows)),
        description=escape(words.DESCRIPTION) if tables.describe else "",
        facts="\n".join(_fact(*fact) for fact in words.facts(found, tables.fingerprints)),
    )


def _readings(found: Discoveries, summary: Summary, tables: _Tables) -> tuple[Reading, ...]:
    provenance = found.provenance
    return read_p_values(
        found.p_values,
        fdr=found.fdr,
        count=found.count,
        n_calibration=summary.n_calibration,
        calibration_scores=provenance.calibration_scores if provenance else None,
        nature=p_value_nature(found),
        line=summary.line,
        copies=tables.copies,
    )


def _reading(reading: Reading) -> str:
    tone = " good" if reading.kind == "healthy" else ""
    return (
        f'<div class="reading{tone}" data-kind="{escape(reading.kind)}">'
        f"<h3>{escape(reading.title)}</h3><p>{escape(reading.text)}</p>"
        f'<p class="rule">{escape(reading.rule)}</p></div>'
    )


def _notice(reading: Reading) -> str:
    """Point from the headline to what may speak against it."""
    return f'  <p class="notice"><a href="#shape">{escape(reading.title)}</a></p>\n'


def _fact(name: str, value: str) -> str:
    long = ' class="long"' if name.startswith("SHA-256") else ""
    return f"<div{long}><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"


def _shape(kind: str, text: str, readings: tuple[Reading, ...]) -> str:
    """A little histogram and what it would mean; marked if it is the one that was read."""
    bars = "".join(
        f'<rect x="{6 * i}" y="{20 - h}" width="5" height="{h}" class="new"/>'
        for i, h in enumerate(words.SILHOUETTES[kind])
    )
    on = ' class="on"' if any(reading.kind == kind for reading in readings) else ""
    drawing = f'<svg viewBox="0 0 47 20" aria-hidden="true">{bars}</svg>'
    return f"<li{on}>{drawing}<span>{escape(text)}</span></li>"


def _numbers(summary: Summary) -> dict[str, Any]:
    """What the charts are drawn from."""
    p, scores = summary.p_histogram, summary.score_histogram
    k, curve = summary.curve
    return {
        "rows": summary.rows,
        "chosen": summary.chosen,
        "levels": summary.levels.tolist(),
        "labels": [percent(level) for level in summary.levels],
        "counts": summary.counts.tolist(),
        "line": summary.line,
        "pValues": {
            "edges": p.edges.tolist(),
            "counts": p.counts.tolist(),
            "flagged": p.flagged.tolist(),
        },
        "curve": {"k": k.tolist(), "p": [float(f"{value:.6g}") for value in curve]},
        "scores": {
            "edges": [float(f"{edge:.6g}") for edge in scores.edges],
            "counts": scores.counts.tolist(),
            "flagged": scores.flagged.tolist(),
            "reference": None if scores.reference is None else scores.reference.tolist(),
            "centre": scores.centre,
            "spread": scores.spread,
        },
    }


def _rows(carried: Carried) -> dict[str, Any]:
    return {
        "lines": carried.lines,
        "names": carried.names,
        "strangest": carried.strangest,
    }


def _policy(style: str, script: str) -> str:
    """Let only this page's own style and script run, and nothing be loaded from anywhere."""
    digests = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (style, script)
    ]
    return f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'"
