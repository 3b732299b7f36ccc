"""How lists, explanations and detectors are shown: text for a terminal, plain HTML for notebooks.

There is no script in the HTML. Colours and letters are the notebook's own, light or dark; whatever
stands in the data is shown and not obeyed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from .arrays import AnyArray, FloatArray

if TYPE_CHECKING:  # the help of the command line has its words from here, and is there at once
    from .assumption.verdict import Verdict

# Of the histogram of p-values.
BINS = 20
FLAG, REST = "#c8501e", "#8d97a8"
WIDTH, HEIGHT = 420, 90
TONES = {"holds": "#2b8a57", "doubtful": "#b07a00", "broken": "#c8371e"}


def percent(share: float) -> str:
    """Write a level as people do.

    Examples
    --------
    >>> percent(0.07), percent(0.005)
    ('7%', '0.5%')
    """
    return f"{share * 100:g}%"


def headline(
    count: int, tested: int, level: float, *, alarms: bool = False, broken: bool = False
) -> str:
    """Say how many rows are flagged; of an empty list, of which no more is said, at which level.

    Examples
    --------
    >>> headline(12, 900, 0.1), headline(0, 900, 0.1)
    ('12 of 900 rows flagged', '0 of 900 rows flagged at a false discovery rate of 10%')
    """
    from .assumption.verdict import WITHDRAWN
    from .rule import false_alarms_in_words

    rows = f"{tested:,} row{'s' * (tested != 1)}"
    flagged = f"All {rows} flagged" if count == tested > 1 else f"{count:,} of {rows} flagged"
    if broken:
        return f"{flagged}, {WITHDRAWN}"
    if count:
        return flagged
    if alarms:
        return f"{flagged} with {false_alarms_in_words(level)} allowed"
    return f"{flagged} at a false discovery rate of {percent(level)}"


NOMINAL = (
    "Nominal q-values are those of plain Benjamini-Hochberg, without a theorem. The list is "
    "proven at its own level only."
)


def bound_in_words(bound: int, count: int, confidence: float) -> str:
    """Say how many rows of one list are false, with confidence."""
    return (
        f"With {percent(confidence)} confidence, at most {bound:,} of these {count:,} rows are "
        "false alarms"
    )


def text_table(lines: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
    """Write cells as lines of columns, flush left or right.

    Examples
    --------
    >>> text_table([["a", "bb"], ["ccc", "d"]])
    ['a    bb', 'ccc  d']
    >>> text_table([["a", "bb"], ["ccc", "d"]], right=True)
    ['  a  bb', 'ccc   d']
    """
    widths = [max(len(line[c]) for line in lines) for c in range(len(lines[0]))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        if right
        else "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def html_table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Write a table in HTML; whatever stands in a cell is shown and not obeyed.

    Examples
    --------
    >>> html_table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    heads = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in body
    )
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def prose(text: str) -> str:
    """Write a sentence in HTML, in which what stands between backticks is code.

    Examples
    --------
    >>> prose("a higher `fdr` < 1")
    'a higher <code>fdr</code> &lt; 1'
    """
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def paragraphs(texts: Iterable[str | None]) -> str:
    """Write sentences, those that there are."""
    return "".join(f"<p>{prose(text)}</p>" for text in texts if text)


def verdict_html(verdict: Verdict) -> str:
    """The verdict on the assumption, in its colour, and what it is based on."""
    found = "".join(f"<li>{prose(str(finding))}</li>" for finding in verdict.findings)
    return (
        f'<p style="border-left:4px solid {TONES[verdict.word]};padding-left:8px">'
        f"{escape(verdict.sentence)}</p>" + (f"<ul>{found}</ul>" if found else "")
    )


def in_bins(p_values: FloatArray, counts: AnyArray | None = None) -> FloatArray:
    """Count p-values in every bin from 0 to 1; each as often as `counts` says."""
    found: FloatArray = np.histogram(p_values, BINS, (0.0, 1.0), weights=counts)[0]
    return found.astype(np.float64)


def histogram_svg(rows: FloatArray, flagged: FloatArray) -> str:
    """Draw how many rows have a p-value in every bin from 0 to 1, and how many of them are flagged.

    Examples
    --------
    >>> drawn = histogram_svg(np.array([4.0, 1.0]), np.array([3.0, 0.0]))
    >>> drawn.count("<rect"), drawn.count("<text")
    (3, 3)
    """
    tallest, wide = max(float(rows.max(initial=0.0)), 1.0), WIDTH / len(rows)
    bars = []
    for counts, colour in ((rows, REST), (flagged, FLAG)):
        for i in np.flatnonzero(counts).tolist():
            high = (HEIGHT - 22) * float(counts[i]) / tallest
            bars.append(
                f'<rect x="{wide * i + 1:.1f}" y="{HEIGHT - 16 - high:.1f}" '
                f'width="{wide - 2:.1f}" height="{high:.1f}" fill="{colour}"/>'
            )
    texts = "".join(
        f'<text x="{x}" y="{HEIGHT - 3}" text-anchor="{anchor}" font-size="11" '
        f'fill="currentColor">{text}</text>'
        for x, anchor, text in (
            (0, "start", "0"),
            (WIDTH // 2, "middle", "p-values; flagged rows coloured"),
            (WIDTH, "end", "1"),
        )
    )
    said = f"Histogram of p-values: {int(flagged.sum()):,} of {int(rows.sum()):,} rows flagged"
    return (
        f'<svg role="img" aria-label="{said}" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}">{"".join(bars)}{texts}</svg>'
    )


def details(summary: str, texts: Iterable[str | None]) -> str:
    """Write what is one click away."""
    inside = paragraphs(texts)
    return f"<details><summary>{escape(summary)}</summary>{inside}</details>" if inside else ""


def facts_html(facts: Sequence[tuple[str, str]]) -> str:
    """Write names and values as a table."""
    return html_table(("", ""), facts).replace("<thead><tr><th></th><th></th></tr></thead>", "")


def one_line(thing: object) -> str:
    """Write a name as it is, and anything else as it prints, on one line.

    Examples
    --------
    >>> one_line("knn"), one_line(["knn", "lof"])
    ('knn', "['knn', 'lof']")
    """
    return thing if isinstance(thing, str) else " ".join(repr(thing).split())


def printable(text: object) -> str:
    r"""Replace what a terminal might obey instead of show.

    Examples
    --------
    >>> printable("pump \x1b[2J 7")
    'pump �[2J 7'
    """
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in str(text))


GLOSSARY = {
    "reference": "Rows that are known to be normal: what new rows are compared with.",
    "anomaly": "A row that does not come from the process that made the normal rows.",
    "flagged": "Named as an anomaly by this list, rightly or not.",
    "score": "How normal a row looks to the detector; small means unusual.",
    "calibration": "Scoring reference rows by models that have not seen them, for comparison.",
    "p-value": "How often a normal row would look at least this unusual.",
    "q-value": "The smallest false discovery rate at which the row would be flagged. Nominal "
    "ones stand beside a list that is proven at its own level only.",
    "e-value": "Evidence against the row being normal: at most 1 on average if it is.",
    "false discovery rate": "The share of false alarms among flagged rows, on average over "
    "repetitions.",
    "exchangeable": "In no particular order: reference rows and normal new rows come from one "
    "process, as if shuffled.",
    "proven": "A theorem says that the rate is kept, if rows are exchangeable.",
    "measured": "Experiments say that the rate is kept, and no theorem does.",
    "jab+": "The method that fits models on random draws of the reference rows, and scores each "
    "reference row by the models that did not draw it.",
}
