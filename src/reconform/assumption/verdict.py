"""The verdict on the assumption, in one word and in sentences; and why a list is empty."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..arrays import IntArray
from ..statistics.chances import at_least_before

# From best to worst. A note is worth saying and no reason for doubt.
LEVELS = ("note", "doubtful", "broken")

# What a headline says in place of the level.
WITHDRAWN = "without a promise: the assumption looks broken"

ASSUMED = "normal new rows come from the same process as the reference rows"


def of_units(text: str, unit: str = "unit") -> str:
    """Say of units, or windows, what was said of rows; names in quotes and commands stay.

    Examples
    --------
    >>> of_units("2 of 9 rows flagged; 'rows' differs, see `times=rows`")
    "2 of 9 units flagged; 'rows' differs, see `times=rows`"
    """
    quoted = r"`[^`]*`|(?<!\w)'[^']*'"
    return re.sub(rf"({quoted})|\brow(s?)\b", lambda found: found[1] or f"{unit}{found[2]}", text)


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes
    ----------
    check : str
        Which check: "shift", "share flagged", "copies", "identifier", ...
    level : {"note", "doubtful", "broken"}
        How much it speaks against the assumption.
    sentence : str
        What was seen, with its numbers.
    advice : str
        What to do; may be empty.
    """

    check: str
    level: str
    sentence: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.sentence} {self.advice}".rstrip()


@dataclass(frozen=True)
class Verdict:
    """Whether the assumption behind every guarantee looks true for a batch.

    Attributes
    ----------
    findings : tuple of Finding
        The worst first.
    unchecked : str
        Why the rows could not be checked, where they are too few; empty where they were.
    units : str
        "unit" or "window" if it is about these; empty if it is about rows.

    Examples
    --------
    >>> moved = Finding("shift", "broken", "The new rows moved.", "Take a new reference.")
    >>> print(Verdict.of([moved]))
    The assumption looks broken: normal new rows do not seem to come from the same process as the
    reference rows.
    - The new rows moved. Take a new reference.
    >>> Verdict.of([]).word
    'holds'
    """

    findings: tuple[Finding, ...] = ()
    unchecked: str = ""
    units: str = ""

    @classmethod
    def of(cls, findings: Iterable[Finding], unchecked: str = "", *, units: str = "") -> Verdict:
        """Put findings in order, the worst first."""
        # Where neighbours are alike, that is often why other checks find something.
        ordered = sorted(findings, key=lambda one: (-LEVELS.index(one.level), one.check != "order"))
        if units:
            ordered = [
                replace(
                    one,
                    sentence=of_units(one.sentence, units),
                    advice=of_units(one.advice, units),
                )
                for one in ordered
            ]
        return cls(tuple(ordered), unchecked, units)

    @property
    def word(self) -> str:
        """One of "holds", "doubtful" and "broken"."""
        worst = self.findings[0].level if self.findings else "note"
        return "holds" if worst == "note" else worst

    @property
    def reasons(self) -> tuple[Finding, ...]:
        """The findings that speak against the assumption."""
        return tuple(finding for finding in self.findings if finding.level != "note")

    @property
    def sentence(self) -> str:
        """The verdict in a sentence."""
        said = f"The checks found nothing against the assumption that {ASSUMED}"
        if self.word == "broken":
            said = (
                "The assumption looks broken: normal new rows do not seem to come from the same "
                "process as the reference rows."
            )
        elif self.word == "doubtful":
            said = (
                "The assumption is doubtful: some normal new rows may not come from the same "
                "process as the reference rows."
            )
        elif self.unchecked:
            said = f"The assumption that {ASSUMED} was not checked: {self.unchecked}."
        else:
            said += ", but note:" if self.findings else "."
        return of_units(said, self.units) if self.units else said

    def promise(self, guarantee: str) -> str:
        """Say what is left of a guarantee: a broken assumption takes it away."""
        if self.word != "broken":
            return guarantee
        return (
            "No promise about false discoveries: the assumption that it needs looks broken. "
            f"(If it held: {guarantee})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain data, for JSON."""
        return {
            "verdict": self.word,
            "checked": not self.unchecked,
            "findings": [asdict(finding) for finding in self.findings],
        }

    def __str__(self) -> str:
        return "\n".join([self.sentence, *(f"- {finding}" for finding in self.findings)])


# --- why a list is empty: the reasons, in the order of the evidence ---

# Shares of the reference, the most unusual rows, beyond which new rows are counted.
SHARES = (0.01, 0.03, 0.1, 0.2)
# As many beyond one of them have this chance, or less, if all new rows are normal.
CHANCE = 0.1

FLAT = "No more new rows are unusual than chance explains."
BLIND = "There may be no anomalies, or this {judge} does not see them."
NONE = "There may be no anomalies."
MASKED = (
    "If you expect some, the reference may hold anomalies of their kind, which make them look "
    "normal: look through it with `reconform clean`."
)
EVEN = "More new rows are unusual than chance explains, but not unusual enough for this level."


def looks_flat(counts: IntArray) -> bool:
    """Whether no more new rows than by chance lie beyond the reference's most unusual rows.

    Parameters
    ----------
    counts : int array of shape (n + 2,)
        How many new rows have each rank, 1 to n + 1.

    Examples
    --------
    >>> import numpy as np
    >>> looks_flat(np.bincount(np.arange(1, 101), minlength=102))
    True
    >>> looks_flat(np.bincount([1, 1, 1, 1, 50, 60, 70, 80, 90, 99], minlength=102))
    False
    """
    n, m = len(counts) - 2, int(counts.sum())
    cuts = {max(1, round(share * (n + 1))) for share in SHARES}
    chances = [at_least_before(int(counts[: r + 1].sum()), m, r, n) for r in cuts]
    return bool(len(cuts) * min(chances) > CHANCE)


def why_nothing(
    counts: IntArray | None, verdict: Verdict, warning: str | None, judge: str = "detector"
) -> str:
    """Say why no row is flagged: too small a reference, anomalies in it, a blind detector.

    Parameters
    ----------
    counts : int array, optional
        How many new rows have each rank.
    verdict : Verdict
    warning : str, optional
        What is said of a reference that is too small.
    judge : {"detector", "method", ""}
        What may not see the anomalies; empty where several detectors were tried.

    Returns
    -------
    str
    """
    flat = counts is not None and len(counts) > 2 and looks_flat(counts)
    # Rows beyond all reference rows are held back by nothing but the size of the reference.
    if warning is not None and counts is not None and counts[1]:
        return f"{warning} {FLAT}" if flat else warning
    for finding in verdict.findings:
        # Where the p-values are flat, a few extreme reference rows are no reason.
        if finding.check == "contamination" or (finding.check == "reference extremes" and not flat):
            return str(finding)
    if flat:
        extremes = any(finding.check == "reference extremes" for finding in verdict.findings)
        blind = BLIND.format(judge=judge) if judge else NONE
        return f"{FLAT} {f'{NONE} {MASKED}' if extremes else blind}"
    return warning or EVEN
