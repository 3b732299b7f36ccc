"""The sentences of the page. Written here once; the page's script chooses among them."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from ..assumption import WITHDRAWN
from ..discoveries import Discoveries
from ..grouping import GroupFound
from ..rule import false_alarms_in_words
from ..statistics.fdr import PROCEDURES
from .carried import Carried
from .safe_text import percent, shorten
from .summary import CONFIDENCE, Summary

ASSUMPTION = (
    "It rests on one assumption: the normal rows among the new ones come from the same process as "
    "the reference rows, in no particular order (they are exchangeable)."
)
DESCRIPTION = (
    "Most unusual features: how far each value lies from the reference's median, in robust "
    "standard deviations (median and MAD); for categories, how rare they are. This describes the "
    "row. It is not the detector's reason for flagging it."
)

# The name of a group is cut after so many characters.
LONGEST_GROUP = 60

OPENS = "A row whose name has an arrow opens: why it stands out."

# What the histogram can look like, for readers who have never seen one.
SHAPES = {
    "healthy": "Flat, perhaps with a peak at the left: as it should be.",
    "drifted": "Leaning left throughout: the process has moved.",
    "cautious": "Leaning right: the reference is more varied than the new rows.",
    "duplicates": "A heap at the right: reference rows among the new ones.",
    "reference too small": "A peak, and nothing flagged: too few reference rows to tell.",
}
SILHOUETTES = {
    "healthy": (20, 6, 5, 6, 5, 6, 5, 6),
    "drifted": (18, 16, 13, 11, 8, 6, 4, 2),
    "cautious": (2, 4, 6, 8, 11, 13, 16, 18),
    "duplicates": (6, 5, 6, 5, 6, 5, 6, 20),
    "reference too small": (10, 6, 5, 6, 5, 6, 5, 6),
}


def level_sentences(summary: Summary, i: int, broken: bool = False) -> dict[str, str]:
    """What the page says when the slider stands at level i; no promise if `broken`.

    Returns
    -------
    dict
        count, headline, meaning, bound, least and moved; empty where there is nothing to say.
    """
    count, level = int(summary.counts[i]), level_in_words(summary, i)
    rows = f"{summary.rows:,} row" + ("s" if summary.rows != 1 else "")
    aims_at = f"at a false discovery rate of {level}"
    meaning = f"at most {level} of such a list is false"
    if summary.counts_alarms:
        aims_at = f"where {level} may be expected"
        meaning = (
            f"at most {float(summary.levels[i]):g} of the rows flagged in such a batch are false"
        )
    aims_at = f", {WITHDRAWN}" if broken else f" {aims_at}"
    every = count == summary.rows > 1
    return {
        "count": f"All {count:,}" if every else f"{count:,}",
        "headline": f"rows flagged{aims_at}" if every else f"of {rows} flagged{aims_at}",
        "meaning": (
            f"The list aims at this: on average over repetitions, {meaning}."
            if count and not broken
            else "Do not take this for a list of anomalies before the reason above is understood."
            if count
            else "No row is unusual enough for a list at this level."
        ),
        "bound": "" if broken else _bound(summary, i, count),
        "least": _least(summary, i),
        "moved": (
            ""
            if i == summary.chosen
            else f"The decision was made at {level_in_words(summary, summary.chosen)}. A level "
            "moved after looking is for exploring: the statement on averages is about a level "
            "fixed beforehand."
        ),
    }


def level_in_words(summary: Summary, i: int) -> str:
    """Name a level: a rate in percent, or a number of false alarms."""
    level = float(summary.levels[i])
    return false_alarms_in_words(level) if summary.counts_alarms else percent(level)


def _bound(summary: Summary, i: int, count: int) -> str:
    if summary.false_bounds is None or not count:
        return ""
    bound, confidence = int(summary.false_bounds[i]), percent(CONFIDENCE)
    if bound >= count:
        return f"For this very list no bound can be given with {confidence} confidence."
    return (
        f"In this very list, with {confidence} confidence, at most {bound:,} of {count:,} are "
        "false, whatever level the slider is moved to."
    )


def _least(summary: Summary, i: int) -> str:
    if summary.least is None or summary.least[i] < 2:
        return ""
    scores, least = f"{summary.n_calibration:,} calibration scores", int(summary.least[i])
    if least > summary.rows:
        return f"{scores} are too few for any list at this level."
    return f"{scores} allow no list shorter than {least:,} rows at this level."


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


def groups_shown(groups: Sequence[GroupFound]) -> list[GroupFound]:
    """The groups of the table: those with the most flagged rows first."""
    return sorted(groups, key=lambda group: -group.flagged)[:MOST_GROUPS]


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


def groups_sentence(groups: Sequence[GroupFound], level: str) -> str:
    """What is below the table of groups."""
    said = (
        "Every row is compared with reference rows of its own group, and one list is made of all "
        f"groups. The table is about the level of the decision, {level}, wherever the slider is."
    )
    rest = sorted(groups, key=lambda group: -group.flagged)[MOST_GROUPS:]
    if not rest:
        return said
    return (
        f"{said} {len(rest):,} more groups have {sum(one.rows for one in rest):,} new rows, of "
        f"which {sum(one.flagged for one in rest):,} are flagged."
    )


def facts(found: Discoveries, fingerprints: dict[str, str]) -> list[tuple[str, str]]:
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
        fingerprints = {"calibration": provenance.calibration_fingerprint, **fingerprints}
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
    known += [(f"SHA-256, {name}", digest) for name, digest in fingerprints.items()]
    return known
