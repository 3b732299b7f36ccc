"""The charts of the page as an Altair chart, for notebooks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..discoveries import Discoveries
from ..extras import extra
from .summary import LEVELS, Histogram, Summary, summarise
from .words import level_in_words, level_sentences

FLAG, NEW, KNOWN, LINE = "#bf4312", "#bcc4d1", "#17727b", "#5f6570"
# The levels of a slider with even steps of a hundredth.
SLIDER = tuple(level for level in LEVELS if level >= 0.01)
WIDTH, HEIGHT = 270, 200
AT_LEVEL = "abs(datum.level - level) < 1e-9"
SCORE = "{centre} + {spread} * (exp(datum.value) - exp(-datum.value)) / 2"


def draw(found: Discoveries) -> Any:
    """Draw the charts; see `reconform.chart`."""
    alt = extra("altair", "report", "chart()")
    # A certified list is proven at its own level only.
    summary = summarise(found, () if found.certified else SLIDER)
    q_values = np.where(found.mask, found.level, 1.0) if found.certified else found.q_values
    slider = alt.binding_range(min=SLIDER[0], max=SLIDER[-1], step=0.01, name="FDR level ")
    bound = {} if found.fdr is None or found.certified else {"bind": slider}
    level = alt.param("level", value=found.level, **bound)
    charts = (
        _p_values(alt, summary),
        _sorted_p_values(alt, summary, np.sort(q_values)),
        _scores(alt, summary),
    )
    whole = alt.vconcat(_headline(alt, summary), alt.hconcat(*charts, spacing=28)).add_params(level)
    return whole.configure_view(stroke=None).configure_axis(
        grid=False, titleFontWeight="normal", labelColor=LINE, titleColor=LINE
    )


def _headline(alt: Any, summary: Summary) -> Any:
    values = []
    for i, level in enumerate(summary.levels.tolist()):
        words, said = level_in_words(summary, i), level_sentences(summary, i)
        values.append({"level": level, "text": f"{words}: {said['count']} {said['headline']}"})
    return (
        alt.Chart(alt.Data(values=values), width=3 * WIDTH, height=24)
        .transform_filter(AT_LEVEL)
        .mark_text(align="left", fontSize=17, x=0, color=FLAG)
        .encode(text="text:N")
    )


def _bars(alt: Any, summary: Summary, histogram: Histogram, unit: Any, x: Any, y: Any) -> list[Any]:
    """All rows, and over them those that are discoveries at the level of the slider."""
    low, high = histogram.edges[:-1], histogram.edges[1:]
    unit = np.broadcast_to(unit, low.shape)
    columns = (low.tolist(), high.tolist(), histogram.counts.tolist(), unit.tolist())
    every = [
        {"low": a, "high": b, "rows": rows, "height": rows / one}
        for a, b, rows, one in zip(*columns, strict=True)
    ]
    flagged = [
        {**bar, "level": level, "rows": rows, "height": rows / one}
        for level, counts in zip(summary.levels.tolist(), histogram.flagged.tolist(), strict=True)
        for bar, rows, one in zip(every, counts, columns[3], strict=True)
        if rows
    ]
    encoding = {"x": x, "x2": "high:Q", "y": y, "y2": alt.datum(0), "tooltip": ["rows:Q"]}
    return [
        alt.Chart(alt.Data(values=every)).mark_rect(color=NEW, stroke="white").encode(**encoding),
        alt.Chart(alt.Data(values=flagged))
        .transform_filter(AT_LEVEL)
        .mark_rect(color=FLAG, stroke="white")
        .encode(**encoding),
    ]


def _p_values(alt: Any, summary: Summary) -> Any:
    histogram = summary.p_histogram
    expected = summary.rows * np.diff(histogram.edges)
    x = alt.X("low:Q", title="p-value", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("height:Q", title="rows, times expected if all were normal")
    uniform = alt.Chart(alt.Data(values=[{"one": 1}])).mark_rule(strokeDash=[5, 4])
    bars = _bars(alt, summary, histogram, expected, x, y)
    return alt.layer(*bars, uniform.encode(y="one:Q"), width=WIDTH, height=HEIGHT)


def _sorted_p_values(alt: Any, summary: Summary, sorted_q: Any) -> Any:
    k, p = summary.curve
    columns = (k.tolist(), p.tolist(), sorted_q[k - 1].tolist())
    values = [{"k": a, "p": b, "q": c} for a, b, c in zip(*columns, strict=True)]
    reach = min(summary.rows, max(20, 1.7 * int(summary.counts[summary.chosen])))
    level = float(summary.levels[summary.chosen])
    height = 1.0 if summary.line is None else min(1.0, 2.2 * level * reach / summary.line)
    x = alt.X("k:Q", title="rows, the most unusual first", scale=alt.Scale(domain=[0, reach]))
    y = alt.Y("p:Q", title="p-value", scale=alt.Scale(domain=[0, max(height, 3 * float(p[0]))]))
    colour = alt.when("datum.q <= level").then(alt.value(FLAG)).otherwise(alt.value(NEW))
    base = alt.Chart(alt.Data(values=values))
    points = base.mark_point(filled=True, opacity=1, clip=True).encode(
        x=x, y=y, color=colour, tooltip=["k:Q", "p:Q", "q:Q"]
    )
    layers = [points]
    if summary.line is not None:
        line = base.transform_calculate(limit=f"level * datum.k / {summary.line!r}")
        layers.append(
            line.mark_line(strokeDash=[5, 4], color="black", clip=True).encode(x=x, y="limit:Q")
        )
    return alt.layer(*layers, width=WIDTH, height=HEIGHT).interactive()


def _scores(alt: Any, summary: Summary) -> Any:
    histogram = summary.score_histogram
    label = SCORE.format(centre=histogram.centre, spread=histogram.spread)
    axis = alt.Axis(labelExpr=f"format({label}, '.3~r')", tickCount=5)
    x = alt.X("low:Q", title="score: the further left, the more unusual", axis=axis)
    y = alt.Y("height:Q", title="share of rows", axis=alt.Axis(format="%"))
    layers = _bars(alt, summary, histogram, summary.rows, x, y)
    if histogram.reference is not None:
        shares = histogram.reference / max(1, histogram.reference.sum())
        steps = zip(histogram.edges.tolist(), [*shares.tolist(), 0.0], strict=True)
        values = [{"low": low, "height": share, "rows": "reference"} for low, share in steps]
        layers.append(
            alt.Chart(alt.Data(values=values))
            .mark_line(interpolate="step-after", color=KNOWN)
            .encode(x=x, y=y)
        )
    return alt.layer(*layers, width=WIDTH, height=HEIGHT)
