"""What the histogram of p-values says, in plain words.

Nothing is tested here. What speaks against the assumption was found by the checks
(`reconform.assumption`) and why nothing is flagged by `found.why_nothing`; this says how it looks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..assumption import Verdict
from ..assumption.shift import BULK, LEAST_KNOWN, LEAST_NEW, readable
from ..discoveries import Discoveries
from .summary import p_value_nature


@dataclass(frozen=True)
class Diagnosis:
    """One conclusion from the histogram.

    Attributes
    ----------
    kind : str
        "healthy", "drifted", "cautious", "duplicates", "reference too small", "too few rows" or
        "not uniform by design".
    title, text : str
        In words.
    rule : str
        The numbers behind it.
    """

    kind: str
    title: str
    text: str
    rule: str

    @property
    def doubtful(self) -> bool:
        """Whether it is a reason to doubt the result."""
        return self.kind in ("drifted", "cautious", "duplicates", "reference too small")


# What a finding of a check looks like in the histogram: kind, title and text.
LOOKS = {
    "shift": (
        "drifted",
        "The new rows as a whole are not like the reference: drifted?",
        "Rows of the reference's kind are too few, whatever the anomalies are. What is said of "
        "false alarms does not hold then: take a new reference.",
    ),
    "leans left": (
        "drifted",
        "The whole histogram leans left: drifted?",
        "Not only a few rows are unusual: ordinary new rows are more unusual than the reference "
        "too.",
    ),
    "leans right": (
        "cautious",
        "The histogram leans right: new rows are more ordinary than the reference",
        "False alarms are rarer than stated, and anomalies harder to find: a cleaner reference "
        "would help.",
    ),
    "heap near 1": (
        "duplicates",
        "A heap near 1: copies of reference rows?",
        "Rows look like this that a model has already seen: they can hide anomalies, and say "
        "nothing about new ones.",
    ),
    "copies": (
        "duplicates",
        "Reference rows are in the new data",
        "The detector has already seen them, so their p-values say nothing: leave them out and "
        "run again.",
    ),
}


def _in_python(text: str) -> str:
    return text.replace("`", "")


def read_histogram(
    found: Discoveries, verdict: Verdict | None = None, said: Callable[[str], str] = _in_python
) -> tuple[Diagnosis, ...]:
    """Say what the histogram of a batch looks like.

    Parameters
    ----------
    found : Discoveries
    verdict : Verdict, optional
        That of `found` by default.
    said : callable, optional
        How parameters in a sentence are spelled; as in Python by default.

    Returns
    -------
    tuple of Diagnosis
        What needs attention first; healthy only on its own.

    Examples
    --------
    >>> from reconform.cli.demo_command import run_demo
    >>> [diagnosis.kind for diagnosis in read_histogram(run_demo().found)]
    ['healthy']
    """
    verdict = found.verdict if verdict is None else verdict
    diagnoses = _too_small(found, said)
    kinds = set()
    for finding in verdict.findings:
        if finding.check in LOOKS:
            kind, title, text = LOOKS[finding.check]
            if kind not in kinds:
                diagnoses.append(Diagnosis(kind, title, text, said(str(finding))))
            kinds.add(kind)
    if p_value_nature(found) == "corrected":
        return (*diagnoses, _CORRECTED)
    source, counts = found.provenance, found.rank_counts
    known = None if source is None else source.calibration_scores
    if source is not None and source.joint is not None:
        counts, known = found._checked()
    if counts is not None and not readable(counts.counts, known):
        return (*diagnoses, _TOO_FEW)
    spoken = diagnoses or verdict.findings or verdict.unchecked
    return tuple(diagnoses) if spoken else (_healthy(found.count),)


def _too_small(found: Discoveries, said: Callable[[str], str]) -> list[Diagnosis]:
    """Say of a reference that is too small, if that is why nothing is flagged, how small it is."""
    reason = found.why_nothing or ""
    if found.provenance is None or not found.warning or not reason.startswith(found.warning):
        return []
    if found.provenance.joint is not None:
        return []  # the warning names the groups
    beyond = 0 if found.ranks is None else int((found.ranks == 1).sum())
    seen = "1 new row is" if beyond == 1 else f"{beyond:,} new rows are"
    return [
        Diagnosis(
            "reference too small",
            "The reference is too small for this batch",
            said(found.warning),
            f"{seen} more unusual than every reference row.",
        )
    ]


_TOO_FEW = Diagnosis(
    "too few rows",
    "Too few rows to read the shape",
    "With so few p-values, chance alone makes any shape. The decision stands; the histogram can "
    "neither confirm nor question it.",
    f"{LEAST_NEW} new and {LEAST_KNOWN} reference rows with p > {BULK:g} are needed.",
)
_CORRECTED = Diagnosis(
    "not uniform by design",
    "Corrected p-values: the shape is not read",
    "These p-values were made larger, so that a theorem holds for them. Their histogram is not "
    "flat even if every row is normal, so its shape says nothing about the data.",
    "The p-values are not on the grid r/(n+1).",
)


def _healthy(count: int) -> Diagnosis:
    shape = (
        "Flat, with a peak at the left: some anomalies among rows that look like the reference."
        if count
        else "Flat: the new rows look like the reference."
    )
    text = f"{shape} This is what the method assumes, and nothing here speaks against it."
    return Diagnosis("healthy", "The histogram looks healthy", text, "")
