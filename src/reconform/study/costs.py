"""What retaining costs: fit time, scoring time and size of the models, per method."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import unknown_choice
from .layout import title_of


@dataclass(frozen=True)
class CostCell:
    """Medians over the draws.

    Attributes
    ----------
    detector, dataset, method : str
    fit_seconds, score_seconds : float
    model_bytes : float
        NaN where the models cannot be pickled.
    """

    detector: str
    dataset: str
    method: str
    fit_seconds: float
    score_seconds: float
    model_bytes: float


def summarise_costs(costs: Any) -> list[CostCell]:
    """Take medians over the draws.

    Parameters
    ----------
    costs : table
        As `Study.costs_`: a pyarrow table, a frame, or a mapping of arrays.

    Returns
    -------
    list of CostCell
        In the order in which they first appear.
    """
    names = ("detector", "dataset", "method", "fit_seconds", "score_seconds", "model_bytes")
    columns = [np.asarray(costs[name]).tolist() for name in names]
    groups: dict[tuple[str, str, str], list[list[float]]] = {}
    for detector, dataset, method, *values in zip(*columns, strict=True):
        known = [float("nan") if value is None else float(value) for value in values]
        groups.setdefault((detector, dataset, method), []).append(known)
    return [
        CostCell(*labels, *np.median(values, axis=0).tolist()) for labels, values in groups.items()
    ]


def format_costs(cells: Sequence[CostCell], *, fmt: str = "markdown") -> str:
    """Write costs as a table.

    Parameters
    ----------
    cells : sequence of CostCell
    fmt : {"markdown", "csv"}

    Returns
    -------
    str

    Examples
    --------
    >>> print(format_costs([CostCell("knn", "wbc", "cv+", 0.0123, 0.002, 51200)]))
    | detector | data set | method | fit (ms) | score (ms) | model (kB) |
    |---|---|---|---|---|---|
    | k-Nearest Neighbors | WBC | cv+ | 12.3 | 2 | 51.2 |
    """
    if fmt == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = ("detector", "dataset", "method", "fit_seconds", "score_seconds", "model_bytes")
        writer.writerow(names)
        writer.writerows([getattr(cell, name) for name in names] for cell in cells)
        return text.getvalue()
    if fmt != "markdown":
        raise unknown_choice("fmt", fmt, ("markdown", "csv"))
    lines = [
        "| detector | data set | method | fit (ms) | score (ms) | model (kB) |",
        "|---" * 6 + "|",
    ]
    for cell in cells:
        titles = [title_of(name) for name in (cell.detector, cell.dataset)]
        numbers = (cell.fit_seconds, cell.score_seconds, cell.model_bytes / 1e6)
        shown = " | ".join(_three_digits(1e3 * number) for number in numbers)
        lines.append(f"| {' | '.join(titles)} | {cell.method} | {shown} |")
    return "\n".join(lines) + "\n"


def _three_digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
