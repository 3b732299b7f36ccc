"""The evidence over time, as an Altair chart."""

from __future__ import annotations

import math
from typing import Any

from ..extras import extra
from .monitor import ExchangeabilityMonitor

ALARM, LINE, TEXT = "#bf4312", "#17727b", "#5f6570"
WIDTH, HEIGHT = 640, 260


def chart(monitor: ExchangeabilityMonitor) -> Any:
    """Draw the evidence against exchangeability over the rows of the stream.

    Parameters
    ----------
    monitor : ExchangeabilityMonitor

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
    limit = alt.Chart(alt.Data(values=[{"log10": -math.log10(monitor.alpha)}]))
    layers = [course, limit.mark_rule(strokeDash=[5, 4], color=ALARM).encode(y="log10:Q")]
    if monitor.alarm_row is not None:
        alarm = alt.Chart(alt.Data(values=[{"row": monitor.alarm_row}]))
        layers.append(alarm.mark_rule(color=ALARM).encode(x="row:Q"))
    title = alt.Title(_headline(monitor), anchor="start", fontWeight="normal")
    whole = alt.layer(*layers, width=WIDTH, height=HEIGHT, title=title)
    return whole.configure_view(stroke=None).configure_axis(
        titleFontWeight="normal", labelColor=TEXT, titleColor=TEXT
    )


def _headline(monitor: ExchangeabilityMonitor) -> str:
    if monitor.alarm_row is None:
        return f"No alarm in {monitor.rows:,} rows (false alarms: at most {monitor.alpha:g})"
    return (
        f"Alarm at row {monitor.alarm_row:,} of {monitor.rows:,} "
        f"(false alarms: at most {monitor.alpha:g})"
    )
