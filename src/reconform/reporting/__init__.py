"""What was found, to look at: one HTML page, which needs no network and runs nothing from data."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from ..arrays import IndexArray, RankArray
from ..atomic import check_place, write_atomic
from ..discoveries import USUAL_FIRST, Discoveries
from ..display import GLOSSARY
from ..errors import ReconformError, check_count
from ..explain import FEATURE_HEAD, NEAREST_HEAD, Explainer, feature_cells, nearest_cells
from ..explain.features import Unusual
from ..timeseries import WindowRows
from ..updating import MARK_COLUMNS
from . import words
from .summary import Summary, summarise
from .timeline import events_section
from .words import number, script_json, shorten

__all__ = ["report"]

# Bytes of rows on the page; with everything else it stays below 5 MB.
BUDGET = 4_400_000
SAMPLE = 1_000
BLOCK = 16_384
LONGEST_ID, LONGEST_VALUE, LONGEST_NAME = 120, 60, 80
SCRIPTS = ("page.js", "charts.js", "table.js", "marks.js", "start.js")
LONGEST_TITLE, LONGEST_ROW = 200, 120
# Rows that open to an explanation: about 2 kB each.
EXPLAINED = 30


class Page(str):
    """A page as a text, which a notebook shows in a frame of its own."""

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self)}" width="100%" height="900"></iframe>'


def report(
    found: Discoveries,
    path: str | os.PathLike[str] | None = None,
    *,
    ids: Any = None,
    title: str | None = None,
    overwrite: bool = False,
    explained: int = 30,
) -> Path | Page:
    """Make a page that shows what was found, for a person deciding what to inspect first.

    The page is one file and needs no network. It has the result in words, a slider for the FDR
    level, charts of p-values and scores, the flagged rows, and how all was computed.

    Parameters
    ----------
    found : Discoveries
    path : str or path, optional
        Where to write; the folder must exist. Without it the page is returned, and a notebook
        shows it.
    ids : sequence of length m, optional
        A label per row; by default the input's index, or the position.
    title : str, optional
    overwrite : bool, default=False
        Replace an existing file.
    explained : int, default=30
        So many of the rows that come first open to an explanation (`found.explain`), which shows
        values of these and of reference rows; the table names the most unusual features of all.
        With 0, no value of any row is on the page.

    Returns
    -------
    pathlib.Path or str
        The file that was written; or the page itself.

    Notes
    -----
    Rows are embedded in the page: whoever gets it can read them. Up to about 30,000 rows are
    carried, the most unusual first, so that the page stays below 5 MB; counts and charts are about
    all rows. The page is written to a temporary file and renamed, so there is never half a page.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from reconform.cli.detect import run_demo
    >>> from reconform.reporting import report
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = report(run_demo()[0], Path(folder) / "report.html")
    ...     "of 229 rows flagged" in page.read_text()
    True
    """
    page = partial(render, found, ids=ids, title=title, explained=explained)
    return Page(page()) if path is None else write_page(Path(path), page, overwrite=overwrite)


@dataclass(frozen=True, eq=False)
class Carried:
    """Rows on the page, the most unusual first.

    Attributes
    ----------
    lines : list of list
        For each row its place (1 = most unusual), id, score, p-value, q-value, and
        its unusual features as (index in `names`, value, strength, note).
    names : list of str
        Of the features that are mentioned.
    leading : int
        The first so many places are all there; what follows is a sample.
    """

    lines: list[list[Any]]
    names: list[str]
    leading: int

    def sentence(self, rows: int) -> str:
        """Say which rows are on the page."""
        held, sampled = len(self.lines), len(self.lines) - self.leading
        if held == rows:
            return (
                f"All {rows:,} rows are on this page." if rows > 1 else "The row is on this page."
            )
        parts = [f"the {self.leading:,} most unusual"] if self.leading else []
        parts += [f"a sample of {sampled:,} others"] if sampled else []
        return (
            f"This page carries {held:,} of {rows:,} rows: {' and '.join(parts)}. Counts and "
            "charts are about all rows."
        )


def carry(
    found: Discoveries,
    order: RankArray,
    wanted: int,
    ids: Sequence[Any],
    explainer: Explainer | None = None,
    *,
    budget: int = BUDGET,
) -> Carried:
    """Pick the rows that the page carries, of an order with the most unusual first.

    These are the `wanted` first, the discoveries at the highest level, and some that are spread
    evenly over the others, as long as they take no more bytes than the budget.
    """
    names = (
        []
        if explainer is None
        else [shorten(feature.name, LONGEST_NAME) for feature in explainer.features]
    )
    others = len(order) - wanted
    drawn = np.flatnonzero(np.isin(order, [] if found.sample is None else found.sample))
    drawn = drawn[drawn >= wanted]
    evenly = wanted + np.unique(np.linspace(0, others - 1, min(SAMPLE, others)).astype(np.intp))
    spread = np.concatenate([drawn, np.setdiff1d(evenly, drawn)])
    lines: list[list[Any]] = []
    used: dict[int, int] = {}
    spent = 0
    # The most unusual leave a twentieth of the budget to the sample.
    for places, limit in ((np.arange(wanted), budget * 19 // 20), (spread, budget)):
        for place, features in _described(places, order, explainer):
            fresh = {u.feature for u in features} - used.keys()
            i = int(order[place])
            values = map(float, (found.scores[i], found.p_values[i], found.q_values[i]))
            line: list[Any] = [place + 1, shorten(str(ids[i]), LONGEST_ID), *map(number, values)]
            line.append(
                [
                    [u.feature, shorten(u.value, LONGEST_VALUE), number(u.strength)]
                    + ([u.note] if u.note else [])
                    for u in features
                ]
            )
            spent += len(script_json(line).encode()) + 1
            spent += sum(len(script_json(names[j]).encode()) for j in fresh)
            if spent > limit:
                break
            used.update({j: len(used) + i for i, j in enumerate(sorted(fresh))})
            line[-1] = [[used[j], *words] for j, *words in line[-1]]
            lines.append(line)
    leading = sum(line[0] <= wanted for line in lines)
    return Carried(lines, [names[j] for j in used], leading)


def _described(
    places: IndexArray, order: RankArray, explainer: Explainer | None
) -> Iterator[tuple[int, list[Unusual]]]:
    """Blocks, so that a spent budget ends the work."""
    for start in range(0, len(places), BLOCK):
        block = places[start : start + BLOCK]
        features = explainer.unusual(order[block].tolist()) if explainer else [[] for _ in block]
        yield from zip(block.tolist(), features, strict=True)


def render(
    found: Discoveries,
    *,
    ids: Any = None,
    title: str | None = None,
    explained: int = EXPLAINED,
    spell: Callable[[str], str] = str,
    batch: str = "",
    file: str = "",
) -> str:
    """Make the page as a text, of what `report` takes.

    `spell` turns parameters in a sentence (`validity='proven'`) into what the reader knows them by.
    Mark files that the page saves name the digest of the new rows, the `batch`, and their `file`.
    """
    check_count("explained", explained, least=0)
    summary = summarise(found)
    # A certified list may lack rows of the nominal lists at other levels, which come after it.
    listed = np.union1d(summary.order[: found.count], summary.plain[: summary.counts[-1]])
    wanted = min(max(len(listed), found.top or USUAL_FIRST), len(found))
    given = found.index if ids is None else ids
    labels = range(len(found)) if given is None else list(given)
    if len(labels) != len(found):
        raise ReconformError(
            f"ids must have one label per row: {len(found):,} rows, {len(labels):,}."
        )
    explainer = found.explainer if explained else None
    carried = carry(found, summary.order, wanted, labels, explainer)
    told = {} if explainer is None else _explained(found, explainer, summary, labels, explained)
    marking = {
        "batch": batch,
        "file": file,
        "digest": hashlib.sha256(found.p_values.tobytes() + found.scores.tobytes()).hexdigest(),
        "columns": MARK_COLUMNS,
        "rows": [int(summary.order[line[0] - 1]) + 1 for line in carried.lines],
        "sample": [] if found.sample is None else (found.sample + 1).tolist(),
    }
    return _fill(found, summary, carried, told, marking, title or "Anomaly report", spell)


def write_page(path: Path, make: Callable[[], str], *, overwrite: bool) -> Path:
    """Write a page that `make` renders, whole or not at all; refuse a bad place beforehand."""
    check_place(path, overwrite=overwrite)
    # Labels, and names of files, may be any bytes.
    write_atomic(path, make().encode(errors="replace"), overwrite=overwrite)
    return path


def _explained(
    found: Discoveries, explainer: Explainer, summary: Summary, labels: Sequence[Any], most: int
) -> dict[str, Any]:
    """Explanations of the rows that come first, by their places from 1, as cells of tables."""
    count = max(int(summary.counts[summary.chosen]), found.top or USUAL_FIRST)
    first = summary.order[: min(count, most)].tolist()
    here = [(k, i) for k, i in enumerate(first) if explainer.place(i) is not None]
    told = found.explain_several([i for _, i in here])
    return {
        str(k + 1): {
            "title": replace(one, row=shorten(str(labels[i]), LONGEST_ROW)).headline,
            "features": [list(feature_cells(feature)) for feature in one.features],
            "shares": [feature.share for feature in one.features],
            "nearest": [list(nearest_cells(row)) for row in one.nearest],
            "notes": list(one.notes),
        }
        for (k, i), one in zip(here, told, strict=True)
    }


def _fill(
    found: Discoveries,
    summary: Summary,
    carried: Carried,
    told: dict[str, Any],
    marking: dict[str, Any],
    title: str,
    spell: Callable[[str], str],
) -> str:
    web = files(__package__) / "web"
    style = (web / "style.css").read_text("utf-8")
    script = "\n".join((web / name).read_text("utf-8") for name in SCRIPTS)
    verdict = found.verdict
    broken = verdict.word == "broken"
    levels = [
        {name: found.spoken(text) for name, text in at_level.items()}
        for at_level in (
            words.level_sentences(summary, i, broken) for i in range(len(summary.levels))
        )
    ]
    now = {name: escape(text) for name, text in levels[summary.chosen].items()}
    level, windows = words.level_in_words(summary, summary.chosen), found.units
    why, guarantee, *findings = (
        escape(spell(text).replace("`", ""))
        for text in (found.why_nothing or "", found.guarantee, *map(str, verdict.findings))
    )
    # A box above everything else where something speaks against the assumption, or a line.
    items, assumed = "".join(f"<li>{one}</li>" for one in findings), escape(verdict.sentence)
    box = f'<section class="verdict {verdict.word}"><h2>{assumed}</h2><ul>{items}</ul></section>'
    first = found.top is not None or not found.count
    # The places of the carried rows by q-value, where these are not those of the list.
    places: list[int] | None = None
    if summary.certified:
        by_q_value = np.argsort(summary.plain)[summary.order] + 1
        places = by_q_value[[line[0] - 1 for line in carried.lines]].tolist()
    return Template((web / "page.html").read_text("utf-8")).substitute(
        now,
        policy=policy(style, script),
        style=style,
        script=script,
        data=script_json(
            {
                **_numbers(summary, f"{found.q_name}-value"),
                "lines": carried.lines,
                "names": carried.names,
                "leading": carried.leading,
                "plain": places,
                "words": levels,
                "top": found.top or 1,
                "told": told,
                "marking": marking,
                "heads": {"features": FEATURE_HEAD, "nearest": NEAREST_HEAD},
            }
        ),
        title=escape(shorten(title, LONGEST_TITLE)),
        why="" if broken else why,
        guarantee=guarantee,
        choice=escape(found.ranked_by),
        first=(
            f'  <p class="meaning" id="first">{escape(found.first().sentence)}</p>\n'
            if first
            else ""
        ),
        events=events_section(windows, found.events) if isinstance(windows, WindowRows) else "",
        groups=words.groups_section(found, level) if found.groups else "",
        assumption=escape(words.ASSUMPTION),
        last=len(summary.levels) - 1,
        chosen=summary.chosen,
        level=level,
        verdict=box if findings else "",
        assumed="" if findings else f'  <p class="assumed">{assumed}</p>\n',
        tone=" all" if found.count == len(found) > 1 else "" if found.count else " none",
        drawn='<option value="sample">the random sample</option>' if marking["sample"] else "",
        carried=escape(carried.sentence(summary.rows)),
        description=escape(words.DESCRIPTION) if carried.names else "",
        opens=escape(words.OPENS) if told else "",
        facts="\n".join(_fact(*fact) for fact in words.facts(found)),
        glossary="\n".join(_fact(*entry) for entry in GLOSSARY.items()),
    )


def _fact(name: str, value: str) -> str:
    long = ' class="long"' if name.startswith("SHA-256") else ""
    return f"<div{long}><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"


def _numbers(summary: Summary, evidence: str) -> dict[str, Any]:
    """What the charts are drawn from."""
    shown, (k, curve) = summary.scores, summary.curve
    reference = None if shown.reference is None else shown.reference.tolist()
    return {
        "evidence": evidence,
        "rows": summary.rows,
        "chosen": summary.chosen,
        "levels": summary.levels.tolist(),
        "labels": [words.level_in_words(summary, i) for i in range(len(summary.levels))],
        "counts": summary.counts.tolist(),
        "line": summary.line,
        "pValues": summary.p_histogram.plain(),
        "curve": {"k": k.tolist(), "p": [float(f"{value:.6g}") for value in curve]},
        "scores": {
            **shown.histogram.plain(),
            "reference": reference,
            "centre": shown.centre,
            "spread": shown.spread,
        },
    }


def policy(style: str, script: str = "") -> str:
    """Let only this page's own style and script run, and nothing be loaded from anywhere."""
    said = ["default-src 'none'"]
    for name, text in (("style", style), ("script", script)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        said += [f"{name}-src 'sha256-{digest}'"] if text else []
    return "; ".join(said)
