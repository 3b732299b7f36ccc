"""The figures of the pages, one function each: run `python docs/pictures/gallery.py figures`.

A function returns a chart of Altair, which is drawn beside this file as NAME.svg. The tests call
all of them, so what a figure shows is what the code does today.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import altair as alt
import numpy as np
from sklearn.datasets import make_moons

from reconform import ConformalDetector
from reconform.metrics import false_discovery_proportion
from reconform.stream import ExchangeabilityMonitor

RED, BLUE, GREY = "#e45756", "#4c78a8", "#bbbbbb"


def values(rows: list[dict[str, Any]]) -> alt.Data:
    """Rows as the data of a chart."""
    return alt.Data(values=rows)


def on_top(**keywords: Any) -> alt.Legend:
    """A legend above the chart."""
    return alt.Legend(orient="top", labelLimit=300, labelFontSize=13, **keywords)


def how_many_false_alarms() -> alt.Chart:
    """The share of false alarms by how rare anomalies are: 40 batches of 400 rows at each share."""
    rng = np.random.default_rng(0)
    cad = ConformalDetector("knn", method="split", random_state=0).fit(rng.normal(size=(8_000, 2)))
    drawn = []
    for share in (0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2):
        anomalous = np.arange(400) < 400 * share
        for _ in range(40):
            found = cad.discover(rng.normal(size=(400, 2)) + 6 * anomalous[:, None], fdr=0.1)
            lists = {
                "a cut-off (5 % of normal rows)": found.p_values <= 0.05,
                "reconform, fdr = 0.1": found.mask,
            }
            drawn += [
                {"share": share, "list": name, "false": false_discovery_proportion(mask, anomalous)}
                for name, mask in lists.items()
            ]
    axis = alt.Axis(format="%", values=[0.0025, 0.01, 0.05, 0.2])
    lines = (
        alt.Chart(values(drawn))
        .mark_line(point=True, strokeWidth=3)
        .encode(
            alt.X(
                "share:Q",
                title="anomalies in the batch",
                axis=axis,
                scale=alt.Scale(type="log"),
            ),
            alt.Y(
                "mean(false):Q",
                title="false alarms in the list",
                axis=alt.Axis(format="%"),
                scale=alt.Scale(domain=[0, 1]),
            ),
            alt.Color("list:N", title=None, legend=on_top(), scale=alt.Scale(range=[RED, BLUE])),
        )
    )
    level = alt.Chart(values([{"level": 0.1}])).mark_rule(strokeDash=[4, 4]).encode(y="level:Q")
    return (lines + level).properties(width=520, height=260)


def moons() -> tuple[np.ndarray, np.ndarray]:
    """Normal rows in two half moons, and 200 new ones, the last 20 of them between the moons."""
    rng = np.random.default_rng(0)
    normal, _ = make_moons(500, noise=0.06, random_state=0)
    new, _ = make_moons(180, noise=0.06, random_state=1)
    return normal, np.vstack([new, rng.normal([0.5, 0.25], 0.07, size=(20, 2))])


def what_is_flagged() -> alt.Chart:
    """The list of the moons: anomalies lie where no single column is unusual."""
    normal, new = moons()
    found = ConformalDetector("knn", method="full").fit(normal).discover(new, fdr=0.1)
    assert found.mask[180:].mean() > 0.5
    kinds = {
        "reference": (normal, "#cccccc"),
        "new, not flagged": (new[~found.mask], BLUE),
        "new, flagged": (new[found.mask], RED),
    }
    points = [
        {"x": float(x), "y": float(y), "row": kind}
        for kind, (rows, _) in kinds.items()
        for x, y in rows
    ]
    scale = alt.Scale(domain=[*kinds], range=[colour for _, colour in kinds.values()])
    return (
        alt.Chart(values(points))
        .mark_circle(opacity=0.9)
        .encode(
            alt.X("x:Q", title="column 1"),
            alt.Y("y:Q", title="column 2"),
            alt.Color("row:N", title=None, legend=on_top(), sort=None, scale=scale),
        )
        .properties(width=520, height=280)
    )


def where_the_line_is() -> alt.Chart:
    """The smallest p-values of that list, and the line of Benjamini-Hochberg."""
    normal, new = moons()
    found = ConformalDetector("knn", method="full").fit(normal).discover(new, fdr=0.1)
    p = np.sort(found.p_values)[:60]
    steps = [
        {"row": i, "p": float(value), "line": 0.1 * i / len(new)} for i, value in enumerate(p, 1)
    ]
    base = alt.Chart(values(steps)).encode(alt.X("row:Q", title="rows, the most unusual first"))
    points = base.mark_circle(size=40, color=BLUE).encode(alt.Y("p:Q", title="p-value"))
    return (points + base.mark_line(color=RED).encode(alt.Y("line:Q"))).properties(
        width=520, height=240
    )


def how_the_choice_is_made() -> alt.Chart:
    """The moons with one column in other units: what each candidate finds, and which is chosen."""
    normal, new = moons()
    units = [1, 1000]
    found = ConformalDetector(random_state=0).fit(normal * units).discover(new * units, fdr=0.1)
    assert found.mask[180:].mean() > 0.5
    told = [
        {
            "detector": one.name,
            "found": one.alone,
            "what": "chosen" if one.rows else "not chosen",
        }
        for one in found.choice
    ]
    return (
        alt.Chart(values(told))
        .mark_bar()
        .encode(
            alt.X("found:Q", title="rows in the list (20 are anomalies)"),
            alt.Y("detector:N", title=None, sort=None),
            alt.Color(
                "what:N",
                title=None,
                legend=on_top(),
                scale=alt.Scale(domain=["chosen", "not chosen"], range=[RED, GREY]),
            ),
        )
        .properties(width=420, height=280)
    )


def when_the_process_moves() -> alt.Chart:
    """Evidence against the reference, row by row; the process moves at row 500."""
    rng = np.random.default_rng(0)
    cad = ConformalDetector("knn", method="split", random_state=0).fit(rng.normal(size=(8_000, 2)))
    monitor = ExchangeabilityMonitor(cad, alpha=0.01, random_state=0)
    reports = [monitor.update(rng.normal(mean, 1, size=(m, 2))) for mean, m in ((0, 500), (1, 200))]
    assert monitor.alarm
    assert monitor.alarm_row >= 500
    evidence = np.concatenate([report.log10_evidence for report in reports]).tolist()
    course = [{"row": i, "evidence": value} for i, value in enumerate(evidence)]
    limit = alt.Chart(values([{"limit": 2}])).mark_rule(color=RED).encode(y="limit:Q")
    line = (
        alt.Chart(values(course))
        .mark_line(color=BLUE)
        .encode(
            alt.X("row:Q", title="row of the stream"),
            alt.Y("evidence:Q", title="evidence (powers of ten)"),
        )
    )
    return line.properties(width=520, height=240) + limit


FIGURES: dict[str, Callable[[], alt.Chart]] = {
    "how-many-false-alarms": how_many_false_alarms,
    "what-is-flagged": what_is_flagged,
    "where-the-line-is": where_the_line_is,
    "how-the-choice-is-made": how_the_choice_is_made,
    "when-the-process-moves": when_the_process_moves,
}
