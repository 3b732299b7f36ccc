"""The course of the evidence, in as many numbers as a chart can show; and the chart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import FloatArray, IntArray
from ..extras import extra

if TYPE_CHECKING:
    from .monitor import ScoreMonitor  # which keeps a history

MOST_POINTS = 2048

ALARM, LINE, TEXT = "#bf4312", "#17727b", "#5f6570"
WIDTH, HEIGHT = 640, 260


@dataclass(frozen=True, eq=False)
class Evidence:
    """The highest evidence within each stretch of rows; no peak is ever lost.

    Attributes
    ----------
    row : int array
        First row of each stretch.
    log10 : float array
        The highest log10 evidence in it.
    every : int
        Rows in a stretch; 1 for short streams.
    """

    row: IntArray
    log10: FloatArray
    every: int


class EvidenceHistory:
    """Keep the course of the evidence; when there is too much of it, merge neighbours.

    Parameters
    ----------
    most : int
        Numbers to keep at most; even.

    Examples
    --------
    >>> history = EvidenceHistory(most=4)
    >>> history.extend(np.array([0.0, 1.0, 0.5, 3.0, 2.0]))
    >>> history.evidence.row, history.evidence.log10
    (array([0, 2, 4]), array([1., 3., 2.]))
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._highest = np.full(most, -np.inf)
        self._every = 1
        self._rows = 0

    @property
    def evidence(self) -> Evidence:
        """The course so far."""
        used = -(-self._rows // self._every)
        row = np.arange(used, dtype=np.int64) * self._every
        return Evidence(row, self._highest[:used].copy(), self._every)

    def extend(self, log10: FloatArray) -> None:
        """Add the evidence after each of the next rows."""
        rows = self._rows + len(log10)
        while rows > len(self._highest) * self._every:
            merged = self._highest.reshape(-1, 2).max(axis=1)
            self._highest = np.append(merged, np.full(len(merged), -np.inf))
            self._every *= 2
        stretch = np.arange(self._rows, rows) // self._every
        np.maximum.at(self._highest, stretch, log10)
        self._rows = rows


def chart(monitor: ScoreMonitor[Any]) -> Any:
    """Draw the evidence against exchangeability over the rows of the stream.

    Parameters
    ----------
    monitor : ExchangeabilityMonitor or ChangeMonitor

    Returns
    -------
    altair.LayerChart
        Shown inline in notebooks; ``chart(monitor).save("evidence.html")`` writes it to a file.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> from reconform.stream import ExchangeabilityMonitor, chart
    >>> rng = np.random.default_rng(0)
    >>> cad = ConformalDetector("knn", "split", random_state=0).fit(rng.normal(size=(200, 2)))
    >>> monitor = ExchangeabilityMonitor(cad, random_state=0)
    >>> report = monitor.update(rng.normal(3, 1, size=(100, 2)))
    >>> type(chart(monitor)).__name__
    'LayerChart'
    """
    alt = extra("altair", "stream", "chart()")
    evidence = monitor.evidence
    columns = zip(evidence.row.tolist(), evidence.log10.tolist(), strict=True)
    points = [{"row": row, "log10": log10} for row, log10 in columns]
    within = "" if evidence.every == 1 else f" (highest of every {evidence.every:,} rows)"
    axis = alt.Axis(format=",d", grid=False, tickCount=8)
    x = alt.X("row:Q", title="row of the stream", axis=axis)
    y = alt.Y("log10:Q", title=f"log10 evidence{within}")
    course = (
        alt.Chart(alt.Data(values=points))
        .mark_line(color=LINE, interpolate="step-after" if evidence.every > 1 else "linear")
        .encode(x=x, y=y, tooltip=["row:Q", alt.Tooltip("log10:Q", format=".2f")])
    )
    limit = alt.Chart(alt.Data(values=[{"log10": monitor.limit}]))
    layers = [course, limit.mark_rule(strokeDash=[5, 4], color=ALARM).encode(y="log10:Q")]
    if monitor.alarm_rows:
        alarm = alt.Chart(alt.Data(values=[{"row": row} for row in monitor.alarm_rows]))
        layers.append(alarm.mark_rule(color=ALARM).encode(x="row:Q"))
    title = alt.Title(monitor.headline, anchor="start", fontWeight="normal")
    whole = alt.layer(*layers, width=WIDTH, height=HEIGHT, title=title)
    return whole.configure_view(stroke=None).configure_axis(
        titleFontWeight="normal", labelColor=TEXT, titleColor=TEXT
    )
