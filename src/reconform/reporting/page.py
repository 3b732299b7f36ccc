"""One self-contained HTML page: no network, nothing run that came from the data."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from ..arrays import AnyArray, IndexArray, RankArray
from ..assumption import Finding, Verdict
from ..assumption.closeness import copy_findings
from ..atomic import check_place, write_atomic
from ..discoveries import USUAL_FIRST, Discoveries
from ..display import GLOSSARY
from ..errors import ReconformError, check_count
from ..explain.explainer import FEATURE_HEAD, NEAREST_HEAD, feature_cells, nearest_cells
from ..explain.features import FeatureTable, Unusual, matched, read_table, unusual_features
from ..grouping import GroupFound
from . import words
from .summary import Summary, summarise
from .words import Diagnosis, number, read_histogram, script_json, shorten

# Bytes of rows on the page; with everything else it stays below 5 MB.
BUDGET = 4_400_000
SAMPLE = 1_000
BLOCK = 2_048
LONGEST_ID, LONGEST_VALUE, LONGEST_NAME = 120, 60, 80

Describe = Callable[[Sequence[int]], list[list[Unusual]]]


@dataclass(frozen=True, eq=False)
class SomeRows:
    """The features of some of the rows that a list is about, where there are too many of them.

    Attributes
    ----------
    positions : int array
        Which rows they are.
    table : array-like or frame
        Their features, in this order.
    """

    positions: IndexArray
    table: Any

    def describe(self, describe: Describe) -> Describe:
        """Describe rows by their positions in the list; nothing is said of the others."""
        known = {position: k for k, position in enumerate(self.positions.tolist())}

        def described(positions: Sequence[int]) -> list[list[Unusual]]:
            here = [known[position] for position in positions if position in known]
            features = iter(describe(here) if here else [])
            return [next(features) if position in known else [] for position in positions]

        return described


@dataclass(frozen=True, eq=False)
class RowNames(Sequence[Any]):
    """A label per row, of which only some are known: the others have their number, from 1.

    Attributes
    ----------
    rows : int
    names : dict of int to str
        By position.
    """

    rows: int
    names: dict[int, str]

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, position: Any) -> Any:
        return self.names.get(int(position), int(position) + 1)


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


def carry(
    found: Discoveries,
    order: RankArray,
    wanted: int,
    ids: AnyArray | Sequence[Any],
    *,
    describe: Describe | None = None,
    names: Sequence[str] = (),
    budget: int = BUDGET,
    sample: int = SAMPLE,
) -> Carried:
    """Pick the rows that the page carries.

    Parameters
    ----------
    found : Discoveries
    order : int array
        Positions, the most unusual first.
    wanted : int
        How many of the most unusual should be there: the discoveries at the highest level.
    ids : array or sequence
        A label per row.
    describe : callable, optional
        From positions to unusual features.
    names : sequence of str
        Of all features.
    budget : int
        Bytes that the rows may take.
    sample : int
        Rows beyond the `wanted` ones, spread evenly over the others.

    Returns
    -------
    Carried
    """
    others = len(order) - wanted
    spread = wanted + np.unique(np.linspace(0, others - 1, min(sample, others)).astype(np.intp))
    lines: list[list[Any]] = []
    used: dict[int, int] = {}
    spent = 0
    # The most unusual leave a twentieth of the budget to the sample.
    for places, limit in ((np.arange(wanted), budget * 19 // 20), (spread, budget)):
        for place, features in _described(places, order, describe):
            fresh = {u.feature for u in features} - used.keys()
            line = _line(found, int(order[place]), place, ids)
            line.append([[u.feature, *_words(u)] for u in features])
            spent += len(script_json(line).encode()) + 1
            spent += sum(len(script_json(shorten(names[j], LONGEST_NAME)).encode()) for j in fresh)
            if spent > limit:
                break
            used.update({j: len(used) + i for i, j in enumerate(sorted(fresh))})
            line[-1] = [[used[j], *words] for j, *words in line[-1]]
            lines.append(line)
    leading = sum(line[0] <= wanted for line in lines)
    return Carried(lines, [shorten(names[j], LONGEST_NAME) for j in used], leading)


def carried_sentence(carried: Carried, rows: int) -> str:
    """Say which rows are on the page."""
    held, sampled = len(carried.lines), len(carried.lines) - carried.leading
    if held == rows:
        return f"All {rows:,} rows are on this page." if rows > 1 else "The row is on this page."
    parts = [f"the {carried.leading:,} most unusual"] if carried.leading else []
    parts += [f"a sample of {sampled:,} others"] if sampled else []
    return (
        f"This page carries {held:,} of {rows:,} rows: {' and '.join(parts)}. Counts and charts "
        "are about all rows."
    )


def _described(
    places: IndexArray, order: RankArray, describe: Describe | None
) -> Iterator[tuple[int, list[Unusual]]]:
    """Blocks, so that a spent budget ends the work."""
    for start in range(0, len(places), BLOCK):
        block = places[start : start + BLOCK]
        features = describe(order[block].tolist()) if describe else [[] for _ in block]
        yield from zip(block.tolist(), features, strict=True)


def _line(found: Discoveries, i: int, place: int, ids: AnyArray | Sequence[Any]) -> list[Any]:
    values = (found.scores[i], found.p_values[i], found.q_values[i])
    return [place + 1, shorten(str(ids[i]), LONGEST_ID), *map(number, map(float, values))]


def _words(unusual: Unusual) -> list[Any]:
    words: list[Any] = [shorten(unusual.value, LONGEST_VALUE), number(unusual.strength)]
    return [*words, unusual.note] if unusual.note else words


SCRIPTS = ("page.js", "charts.js", "table.js", "start.js")
LONGEST_TITLE, LONGEST_ROW = 200, 120
# Rows that open to an explanation: about 2 kB each.
EXPLAINED = 30


def render(
    found: Discoveries,
    *,
    rows: Any = None,
    reference: Any = None,
    ids: Any = None,
    title: str | None = None,
    explained: int | None = None,
    spell: Callable[[str], str] = str,
) -> str:
    """Make the page as a text.

    Parameters
    ----------
    found, rows, reference, ids, title, explained
        As in `report`.
    spell : callable
        Turns parameters in a sentence (`validity='proven'`) into what the reader knows them by.
    """
    if explained is not None:
        check_count("explained", explained, least=0)
    most = (EXPLAINED if rows is not None else 0) if explained is None else explained
    summary = summarise(found)
    tables = _tables(found, rows, reference)
    # A certified list may lack rows of the nominal lists at other levels, which come after it.
    listed = np.union1d(summary.order[: found.count], summary.plain[: summary.counts[-1]])
    wanted = min(max(len(listed), found.top or USUAL_FIRST), len(found))
    labels = _labels(found, ids)
    carried = carry(
        found,
        summary.order,
        wanted,
        labels,
        describe=tables.describe,
        names=tables.names,
    )
    told = _explained(found, summary, labels, most)

    def said(text: str) -> str:
        return spell(text).replace("`", "")

    return _fill(found, summary, carried, tables, told, title or "Anomaly report", said)


def write_page(path: Path, make: Callable[[], str], *, overwrite: bool) -> Path:
    """Write a page that `make` renders, whole or not at all; refuse a bad place beforehand."""
    check_place(path, overwrite=overwrite)
    # Labels, and names of files, may be any bytes.
    write_atomic(path, make().encode(errors="replace"), overwrite=overwrite)
    return path


def _explained(
    found: Discoveries, summary: Summary, labels: AnyArray | Sequence[Any], most: int
) -> dict[str, Any]:
    """Explanations of the rows that come first, by their places from 1, as cells of tables."""
    explainer = found.explainer
    if explainer is None or not most:
        return {}
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


@dataclass(frozen=True, eq=False)
class _Tables:
    """What the feature tables contribute."""

    describe: Describe | None
    names: tuple[str, ...]
    copies: tuple[Finding, ...]
    fingerprints: dict[str, str]


def _tables(found: Discoveries, rows: Any, reference: Any) -> _Tables:
    provenance = found.provenance
    names = provenance.feature_names if provenance else ()
    part = rows if isinstance(rows, SomeRows) else None
    given = rows if part is None else part.table
    new = None if given is None else read_table("rows", given, names=names)
    known = None if reference is None else read_table("reference", reference, names=names)
    if new is not None and new.rows != (len(found) if part is None else len(part.positions)):
        raise ReconformError(
            f"rows must be the rows that found is about: it has {len(found):,}, and rows has "
            f"{new.rows:,}."
        )
    if known is not None and provenance and known.rows != provenance.n_reference:
        raise ReconformError(
            f"reference must be the rows given to fit: {provenance.n_reference:,} of them, and "
            f"this one has {known.rows:,}."
        )
    whole = new if part is None else None
    read: dict[str, FeatureTable | None] = {"reference": known, "new rows": whole}
    fingerprints = {name: table.fingerprint for name, table in read.items() if table is not None}
    if new is None or known is None:
        return _Tables(None, (), (), fingerprints)
    new, known = matched(new, known, names)
    used = tuple(column.name for column in known.columns)
    if part is not None:
        return _Tables(part.describe(unusual_features(new, known)), used, (), fingerprints)
    copies = tuple(copy_findings(known.digests(), new.digests()))
    return _Tables(unusual_features(new, known), used, copies, fingerprints)


def _labels(found: Discoveries, ids: Any) -> AnyArray | Sequence[Any]:
    labels = ids if ids is not None else found.index
    if labels is None:
        return range(len(found))
    if isinstance(labels, RowNames) and len(labels) == len(found):
        return labels  # those of a few rows, of many
    array = np.empty(len(labels), dtype=object)
    array[:] = list(labels)
    if len(array) != len(found):
        raise ReconformError(
            f"ids must have one label per row: {len(found):,} rows, {len(array):,}."
        )
    return array


def _fill(
    found: Discoveries,
    summary: Summary,
    carried: Carried,
    tables: _Tables,
    told: dict[str, Any],
    title: str,
    said: Callable[[str], str],
) -> str:
    web = files(__package__) / "web"
    style = (web / "style.css").read_text("utf-8")
    script = "\n".join((web / name).read_text("utf-8") for name in SCRIPTS)
    # Whole tables show copies that the samples of the checks may not hold.
    checks = {finding.check for finding in found.verdict.findings}
    more = (finding for finding in tables.copies if finding.check not in checks)
    verdict = Verdict.of([*found.verdict.findings, *more], found.verdict.unchecked)
    broken = verdict.word == "broken"
    levels = [words.level_sentences(summary, i, broken) for i in range(len(summary.levels))]
    diagnoses = read_histogram(found, verdict, said)
    now = {name: escape(text) for name, text in levels[summary.chosen].items()}
    return Template((web / "page.html").read_text("utf-8")).substitute(
        now,
        policy=_policy(style, script),
        style=style,
        script=script,
        data=script_json(
            {
                **_numbers(summary, f"{found.q_name}-value"),
                **_rows(carried),
                "plain": _plain(summary, carried),
                "words": levels,
                "top": found.top or 1,
                "told": told,
                "heads": {"features": FEATURE_HEAD, "nearest": NEAREST_HEAD},
            }
        ),
        title=escape(shorten(title, LONGEST_TITLE)),
        why=escape(said(found.why_nothing or "")),
        guarantee=escape(said(found.guarantee)),
        choice=escape(found.ranked_by),
        first=_first(found),
        groups=_groups(found, words.level_in_words(summary, summary.chosen)),
        assumption=escape(words.ASSUMPTION),
        last=len(summary.levels) - 1,
        chosen=summary.chosen,
        level=words.level_in_words(summary, summary.chosen),
        verdict=_verdict(verdict, said) if verdict.findings else "",
        assumed=_assumed(verdict),
        tone=" all" if found.count == len(found) > 1 else "" if found.count else " none",
        open=" open" if broken else "",
        notice="".join(_notice(diagnosis) for diagnosis in diagnoses if diagnosis.doubtful),
        diagnoses="\n".join(map(_diagnosis, diagnoses)),
        shapes="\n".join(_shape(kind, text, diagnoses) for kind, text in words.SHAPES.items()),
        carried=escape(carried_sentence(carried, summary.rows)),
        description=escape(words.DESCRIPTION) if tables.describe else "",
        opens=escape(words.OPENS) if told else "",
        facts="\n".join(_fact(*fact) for fact in words.facts(found, tables.fingerprints)),
        glossary="\n".join(_fact(*entry) for entry in GLOSSARY.items()),
    )


def _first(found: Discoveries) -> str:
    """A line about the rows that come first, where they were asked for or nothing is flagged."""
    if found.top is None and found.count:
        return ""
    return f'  <p class="meaning" id="first">{escape(found.first().sentence)}</p>\n'


def _groups(found: Discoveries, level: str) -> str:
    """A table with a line per group, where there are groups."""
    if not found.groups:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in words.GROUP_HEAD)
    lines = "\n".join(_group(group, len(found)) for group in words.groups_shown(found.groups))
    return (
        '\n<section id="groups" aria-labelledby="groups-title">\n'
        '  <h2 id="groups-title">By group</h2>\n'
        f'  <table class="small-table"><thead><tr>{head}</tr></thead><tbody>\n{lines}\n'
        "  </tbody></table>\n"
        f'  <p class="small">{escape(words.groups_sentence(found.groups, level))}</p>\n'
        "</section>\n"
    )


def _group(group: GroupFound, tested: int) -> str:
    cells = zip(words.GROUP_HEAD, words.group_cells(group, tested), strict=True)
    return (
        "<tr>"
        + "".join(f'<td data-head="{escape(name)}">{escape(text)}</td>' for name, text in cells)
        + "</tr>"
    )


def _verdict(verdict: Verdict, said: Callable[[str], str]) -> str:
    """A box above everything else, where something speaks against the assumption."""
    items = "".join(f"<li>{escape(said(str(finding)))}</li>" for finding in verdict.findings)
    sentence = escape(verdict.sentence)
    return f'<section class="verdict {verdict.word}"><h2>{sentence}</h2><ul>{items}</ul></section>'


def _assumed(verdict: Verdict) -> str:
    """A line above the table, where nothing speaks against the assumption."""
    if verdict.findings:
        return ""
    return f'  <p class="assumed">{escape(verdict.sentence)}</p>\n'


def _diagnosis(diagnosis: Diagnosis) -> str:
    tone = " good" if diagnosis.kind == "healthy" else ""
    return (
        f'<div class="diagnosis{tone}" data-kind="{escape(diagnosis.kind)}">'
        f"<h3>{escape(diagnosis.title)}</h3><p>{escape(diagnosis.text)}</p>"
        + (f'<p class="rule">{escape(diagnosis.rule)}</p>' if diagnosis.rule else "")
        + "</div>"
    )


def _notice(diagnosis: Diagnosis) -> str:
    """A line under the headline, where there is a reason to doubt it."""
    return f'  <p class="notice"><a href="#shape">{escape(diagnosis.title)}</a></p>\n'


def _fact(name: str, value: str) -> str:
    long = ' class="long"' if name.startswith("SHA-256") else ""
    return f"<div{long}><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"


def _shape(kind: str, text: str, diagnoses: tuple[Diagnosis, ...]) -> str:
    """A little histogram and what it would mean; marked if it is the one that was read."""
    bars = "".join(
        f'<rect x="{6 * i}" y="{20 - h}" width="5" height="{h}" class="new"/>'
        for i, h in enumerate(words.SILHOUETTES[kind])
    )
    on = ' class="on"' if any(diagnosis.kind == kind for diagnosis in diagnoses) else ""
    drawing = f'<svg viewBox="0 0 47 20" aria-hidden="true">{bars}</svg>'
    return f"<li{on}>{drawing}<span>{escape(text)}</span></li>"


def _numbers(summary: Summary, evidence: str) -> dict[str, Any]:
    """What the charts are drawn from."""
    p, scores = summary.p_histogram, summary.score_histogram
    k, curve = summary.curve
    return {
        "evidence": evidence,
        "rows": summary.rows,
        "chosen": summary.chosen,
        "levels": summary.levels.tolist(),
        "labels": [words.level_in_words(summary, i) for i in range(len(summary.levels))],
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


def _plain(summary: Summary, carried: Carried) -> list[int] | None:
    """The places of the carried rows by q-value, where these are not those of the list."""
    if not summary.certified:
        return None
    places = np.argsort(summary.plain)[summary.order] + 1
    found: list[int] = places[[line[0] - 1 for line in carried.lines]].tolist()
    return found


def _rows(carried: Carried) -> dict[str, Any]:
    return {
        "lines": carried.lines,
        "names": carried.names,
        "leading": carried.leading,
    }


def _policy(style: str, script: str) -> str:
    """Let only this page's own style and script run, and nothing be loaded from anywhere."""
    digests = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (style, script)
    ]
    return f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'"
