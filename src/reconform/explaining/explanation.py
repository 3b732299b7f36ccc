"""An explanation of one row, as a value: for a terminal, for JSON and for notebooks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Protocol

from ..display import html_table, text_table

IN_BRACKETS = "In brackets: robust standard deviations from the reference's median."
CAVEAT = "This describes the row. It is no proof of a cause."


@dataclass(frozen=True)
class Judged:
    """What a list says of a row; see `Explanation`."""

    row: str
    flagged: bool | None
    p_value: float
    evidence: tuple[str, float] | None = None


class Explains(Protocol):
    """What explains the rows of a list; `reconform.explaining.Explainer` does."""

    def place(self, position: int) -> int | None:
        """Say where a row of the list is among the rows that are there; None if it is not."""
        ...

    def explain(self, places: Sequence[int], judged: Sequence[Judged]) -> list[Explanation]:
        """Explain some of the rows that are there."""
        ...


@dataclass(frozen=True)
class SeenFeature:
    """One feature of the row, against the reference.

    Attributes
    ----------
    name, value : str
    typical : str
        The range of the reference from its 5% to its 95% quantile; of labels, the most common.
    quantiles : tuple of float or None
        The reference's quantiles at 5%, 50% and 95%; None for labels.
    place : str
        Where the value lies among those of the reference, in words.
    strength : float or None
        Robust standard deviations from the reference's median; None for labels and missing values.
    unusual : bool
        Whether the value is unusual by itself.
    share : float or None
        Of the score, as `Explanation.carried_by` says; None where that is not known.
    """

    name: str
    value: str
    typical: str
    quantiles: tuple[float, float, float] | None
    place: str
    strength: float | None
    unusual: bool
    share: float | None


@dataclass(frozen=True)
class NormalRow:
    """One of the reference rows that are nearest to the row.

    Attributes
    ----------
    label : str or None
        Of the row in the reference; None where it is not known.
    distance : float
        In units of the reference's spread (the distance of the quartiles), over all features.
    differs : tuple of (str, str, str)
        The features in which it differs most: name, value of the row, value of the normal row.
    """

    label: str | None
    distance: float
    differs: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Explanation:
    """Why a row stands out, or does not.

    Attributes
    ----------
    row : str
        Its label, or its position.
    flagged : bool or None
        None for a row that was judged by itself.
    p_value : float
    evidence : tuple of (str, float) or None
        The q-value, ``("q", 0.03)``, or the e-value of a certified list.
    detector : str
        The one that ranked the row; with ``"auto"`` the one that was chosen for it.
    features : tuple of SeenFeature
        Those that carry most of the score, and those that are unusual by themselves.
    carried_by : str
        What shares are shares of, in a sentence.
    nearest : tuple of NormalRow
        The nearest first.
    compared_with : str
        Which reference rows it was compared with, in a sentence.

    Notes
    -----
    It is a description, not a theorem, and says nothing about causes: features that go together
    share what one of them may have done alone.
    """

    row: str
    flagged: bool | None
    p_value: float
    evidence: tuple[str, float] | None
    detector: str
    features: tuple[SeenFeature, ...]
    carried_by: str
    nearest: tuple[NormalRow, ...]
    compared_with: str

    @property
    def headline(self) -> str:
        """The row and the decision, in a line."""
        decision = {True: "flagged", False: "not flagged", None: "judged by itself"}[self.flagged]
        numbers = f"p = {self.p_value:.4g}"
        if self.evidence is not None and not math.isnan(self.evidence[1]):
            numbers += f", {self.evidence[0]} = {self.evidence[1]:.4g}"
        return f"Row {self.row}: {decision} ({numbers}), ranked by {self.detector}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What the numbers are, in sentences."""
        unusual = any(one.unusual for one in self.features)
        far = any(one.strength is not None for one in self.features)
        said = ("" if unusual else NOTHING_UNUSUAL, IN_BRACKETS if far else "", self.carried_by)
        return (*filter(None, said), f"{self.compared_with} {CAVEAT}")

    def to_dict(self) -> dict[str, Any]:
        """Return everything as what JSON can hold: an infinite number is None."""
        made: dict[str, Any] = _finite(asdict(self))
        made["evidence"] = None if self.evidence is None else dict([made["evidence"]])
        for one in made["nearest"]:
            keys = ("name", "here", "there")
            one["differs"] = [dict(zip(keys, cells, strict=True)) for cells in one["differs"]]
        return made

    def __str__(self) -> str:
        lines = [self.headline, ""]
        lines += text_table([FEATURE_HEAD, *map(feature_cells, self.features)])
        if self.nearest:
            lines += ["", "Nearest normal rows"]
            lines += text_table([NEAREST_HEAD, *map(nearest_cells, self.nearest)])
        return "\n".join([*lines, "", *self.notes])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return (
            f"<p><strong>{escape(self.headline)}</strong></p>"
            + html_table(FEATURE_HEAD, map(feature_cells, self.features))
            + (
                "<p>Nearest normal rows</p>"
                + html_table(NEAREST_HEAD, map(nearest_cells, self.nearest))
                if self.nearest
                else ""
            )
            + notes
        )


NOTHING_UNUSUAL = "No feature is unusual by itself: it is how they go together, if anything."
FEATURE_HEAD = ("feature", "value", "typical (5% to 95%)", "among the reference", "carries")
NEAREST_HEAD = ("row", "distance", "differs most in")


def feature_cells(one: SeenFeature) -> tuple[str, ...]:
    """Write a feature as the cells of a table.

    Examples
    --------
    >>> feature_cells(SeenFeature("flow", "41", "1.2 to 8.9", (1.2, 4.0, 8.9), "above all 300",
    ...                           12.34, True, 0.713))
    ('flow', '41', '1.2 to 8.9', 'above all 300 (+12)', '71%')
    """
    far = "" if one.strength is None else f" ({one.strength:+.2g})"
    share = "" if one.share is None else f"{one.share:.0%}"
    return one.name, one.value, one.typical, one.place + far, share


def nearest_cells(one: NormalRow) -> tuple[str, ...]:
    """Write a normal row as the cells of a table."""
    differs = ", ".join(f"{name} {there} (here {here})" for name, here, there in one.differs)
    return one.label or "?", f"{one.distance:.3g}", differs or "nothing"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
