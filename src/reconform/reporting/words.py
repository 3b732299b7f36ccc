"""The sentences of the page, written here once, and text that is safe on it.

The page's script chooses among the sentences.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from typing import Any

from ..discoveries import Discoveries
from ..display import NOMINAL, bound_in_words, headline, percent
from ..grouping import GroupFound
from ..rule import false_alarms_in_words
from ..statistics.fdr import PROCEDURES
from .summary import CONFIDENCE, Summary


def script_json(value: Any) -> str:
    r"""Write JSON that can stand inside a ``<script>`` element: nothing in it ends the element.

    Examples
    --------
    >>> print(script_json({"id": "</script>"}))
    {"id":"\u003c/script\u003e"}
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def shorten(text: str, longest: int) -> str:
    """Cut a text that is too long for its place; replace what is not valid Unicode.

    Examples
    --------
    >>> shorten("a long name", 6)
    'a lon…'
    """
    clean = text.encode("utf-8", "replace").decode()
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


def counted(number: int, what: str = "row") -> str:
    """Say how many there are.

    Examples
    --------
    >>> counted(1), counted(1200, "event")
    ('1 row', '1,200 events')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def number(value: float) -> float | str:
    """Round for showing; JSON has no infinity, so that is a text.

    Examples
    --------
    >>> number(0.123456), number(float("-inf"))
    (0.1235, '-inf')
    """
    return float(f"{value:.4g}") if math.isfinite(value) else str(value)


def small_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table whose cells know the names of their columns, for narrow screens."""
    lines = (
        "".join(
            f'<td data-head="{escape(name)}">{escape(text)}</td>'
            for name, text in zip(head, cells, strict=True)
        )
        for cells in rows
    )
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    return (
        f'  <table class="small-table"><thead><tr>{names}</tr></thead><tbody>\n{body}\n'
        "  </tbody></table>\n"
    )


ASSUMPTION = (
    "It rests on one assumption: the normal rows among the new ones come from the same process as "
    "the reference rows, in no particular order (they are exchangeable)."
)
DESCRIPTION = (
    "Most unusual features: how far each value lies from the reference's median, in robust "
    "standard deviations (median and MAD); for categories, how rare they are. This describes the "
    "row, not why the detector flagged it."
)

# The name of a group is cut after so many characters.
LONGEST_GROUP = 60

OPENS = "Rows with an arrow open, and show why they stand out."


def level_sentences(summary: Summary, i: int, broken: bool = False) -> dict[str, str]:
    """What the page says when the slider stands at level i; no promise if `broken`.

    Returns
    -------
    dict
        count, headline, meaning, bound and moved; empty where there is nothing to say.
    """
    count, level, alarms = int(summary.counts[i]), float(summary.levels[i]), summary.counts_alarms
    said = headline(count, summary.rows, level, alarms=alarms, broken=broken)
    large = f"All {count:,}" if said.startswith("All") else f"{count:,}"
    meaning = bound = moved = ""
    if i != summary.chosen:
        moved = (
            f"The decision was made at {level_in_words(summary, summary.chosen)}. Moving the level "
            "after looking is for exploration: what is promised holds for a level fixed beforehand."
        )
    if broken and count:
        meaning = "Do not treat this as a list of anomalies before you understand the reason above."
    elif count and summary.certified and moved:  # of lists beside a certified one
        meaning = f"Nominal: the rows that plain Benjamini-Hochberg flags. {NOMINAL}"
    elif count:
        meaning = summary.claim.promise(f"{level:g}" if alarms else percent(level))
    elif moved:
        meaning = "No row is unusual enough for a list at this level."
    if count and not broken and summary.false_bounds is not None:
        most, confidence = int(summary.false_bounds[i]), percent(CONFIDENCE)
        bound = (
            f"No bound can be given for this list with {confidence} confidence."
            if most >= count
            else f"{bound_in_words(most, count, CONFIDENCE)}, wherever the slider stands."
        )
    return {
        "count": large,
        "headline": said.removeprefix(large).lstrip(),
        "meaning": meaning,
        "bound": bound,
        "moved": moved,
    }


def level_in_words(summary: Summary, i: int) -> str:
    """Name a level: a rate in percent, or a number of false alarms."""
    level = float(summary.levels[i])
    return false_alarms_in_words(level) if summary.counts_alarms else percent(level)


# The table of groups, and how many of them it holds.
GROUP_HEAD = (
    "Group",
    "Reference rows",
    "New rows",
    "Flagged",
    "Smallest possible p-value",
    "Rows can be flagged",
)
MOST_GROUPS = 50


def group_cells(group: GroupFound, tested: int) -> tuple[str, ...]:
    """One line of the table of groups, of so many new rows in all.

    Examples
    --------
    >>> from fractions import Fraction
    >>> fans = GroupFound("fan", 24, 12, 20, 0, 0.5, Fraction(1, 13), shortest=16)
    >>> group_cells(fans, 200)
    ('fan', '24 (12 calibrate)', '20', '0', '0.07692 (1/13)', 'only in a list of 16 or more')
    """
    calibrate = (
        f" ({group.calibration:,} calibrate)" if group.calibration != group.reference else ""
    )
    return (
        shorten(group.name, LONGEST_GROUP),
        f"{group.reference:,}{calibrate}",
        f"{group.rows:,}",
        f"{group.flagged:,}",
        f"{float(group.least_p):.4g} ({group.least_p})",
        group.reach(tested),
    )


def groups_section(found: Discoveries, level: str) -> str:
    """The table of groups, those with the most flagged rows first, and what is below it."""
    groups = sorted(found.groups, key=lambda group: -group.flagged)
    rest = groups[MOST_GROUPS:]
    said = (
        "Every row is compared with reference rows of its own group, and one list is made of all "
        f"groups. The table is about the level of the decision, {level}, wherever the slider is."
    )
    if rest:
        said += (
            f" {len(rest):,} more groups have {sum(one.rows for one in rest):,} new rows, of "
            f"which {sum(one.flagged for one in rest):,} are flagged."
        )
    cells = [group_cells(one, len(found)) for one in groups[:MOST_GROUPS]]
    return (
        '\n<section id="groups" aria-labelledby="groups-title">\n'
        '  <h2 id="groups-title">By group</h2>\n'
        f"{small_table(GROUP_HEAD, cells)}"
        f'  <p class="small">{escape(said)}</p>\n'
        "</section>\n"
    )


def facts(found: Discoveries) -> list[tuple[str, str]]:
    """How it was computed, as names and values."""
    known: list[tuple[str, Any]] = []
    provenance = found.provenance
    if provenance:
        known = [
            ("Detector", provenance.detector.strip("'\"")),
            ("Method", provenance.method.strip("'\"")),
            ("Plan", f"{provenance.scheme}, {provenance.variant}"),
            ("Reference rows", f"{provenance.n_reference:,}"),
            ("Calibration scores", f"{provenance.n_calibration:,}"),
            ("Features", f"{provenance.n_features:,}"),
            ("Seed", provenance.random_state),
        ]
    if found.not_tried:
        known.append(("Not tried, as this is a split or large", ", ".join(found.not_tried)))
    known += [
        ("New rows", f"{len(found):,}"),
        ("Procedure", PROCEDURES[found.procedure].title),
        ("False alarms allowed", f"{found.level:g}")
        if found.fdr is None
        else ("Level", percent(found.fdr)),
        ("Largest p-value flagged", f"{found.p_threshold:.4g}" if found.count else "none"),
    ]
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    packages = {name: version(name) for name in ("numpy", "scipy", "scikit-learn")}
    packages = {"reconform": provenance.version if provenance else version("reconform"), **packages}
    known += [
        ("Versions", ", ".join([f"{n} {v}" for n, v in packages.items()])),
        ("Python", platform.python_version()),
        ("Report made", made),
    ]
    if provenance:
        known.append(("SHA-256, calibration", provenance.calibration_fingerprint))
    return known
