"""The verdict on the assumption: what the checks found, in one word and in sentences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# From best to worst. A note is worth saying and no reason for doubt.
LEVELS = ("note", "doubtful", "broken")

# What a headline says in place of the level.
WITHDRAWN = "but the assumption looks broken: no promise about false ones"

ASSUMED = "normal new rows come from the same process as the reference rows"


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

    @classmethod
    def of(cls, findings: Iterable[Finding], unchecked: str = "") -> Verdict:
        """Put findings in order, the worst first."""
        ordered = sorted(findings, key=lambda finding: -LEVELS.index(finding.level))
        return cls(tuple(ordered), unchecked)

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
        if self.word == "broken":
            return (
                "The assumption looks broken: normal new rows do not seem to come from the same "
                "process as the reference rows."
            )
        if self.word == "doubtful":
            return f"The assumption is doubtful: perhaps not all {ASSUMED}."
        if self.unchecked:
            return f"It was not checked whether {ASSUMED}: {self.unchecked}."
        if self.findings:
            return f"No test speaks against the assumption that {ASSUMED}, but look at this."
        return f"Nothing seen speaks against the assumption that {ASSUMED}."

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
            "findings": [
                {
                    "check": finding.check,
                    "level": finding.level,
                    "sentence": finding.sentence,
                    "advice": finding.advice,
                }
                for finding in self.findings
            ],
        }

    def __str__(self) -> str:
        return "\n".join([self.sentence, *(f"- {finding}" for finding in self.findings)])
