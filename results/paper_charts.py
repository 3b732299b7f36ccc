"""Charts of a study: results with error bars, ours against theirs, and curves of sweeps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
import numpy as np
from paper_comparison import Comparison
from paper_tables import METRICS, MethodColumn, title_of

from reconform.study import Cell
from reconform.study.ranked import mean_and_sd

# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = ("#000000", "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999")
SHAPES = ("circle", "triangle-up", "square", "diamond", "cross")

# Lines between the data sets, not through them.
BANDS = {"grid": True, "ticks": False, "bandPosition": 1}

# Error bars reach this many standard errors to either side: about 95%.
ERRORS = 2.0


def results_chart(cells: Sequence[Cell], columns: Sequence[MethodColumn]) -> Any:
    """Draw FDR and power per data set and method, a row of panels per detector.

    Parameters
    ----------
    cells : sequence of Cell
    columns : sequence of MethodColumn
        Their order and headings, as in the tables.
    """
    headings = {column.label: column.heading for column in columns}
    families = {column.label: _family(column.heading) for column in columns}
    blocks = {column.label: column.block or "Split, full" for column in columns}
    datasets = _distinct(title_of(cell.dataset) for cell in cells)
    colours = _distinct(families[column.label] for column in columns)
    shapes = _distinct(blocks[column.label] for column in columns)

    def panel(detector: str, metric: str) -> Any:
        rows: list[dict[str, Any]] = []
        for cell in cells:
            if cell.detector == detector:
                estimate = getattr(cell, metric)
                rows.append(
                    {
                        "data set": title_of(cell.dataset),
                        "method": headings[cell.method],
                        "family": families[cell.method],
                        "kind": blocks[cell.method],
                        **_interval(estimate.mean, estimate.standard_error),
                    }
                )
        base = alt.Chart(alt.InlineData(values=rows)).encode(
            y=alt.Y("data set:N", sort=datasets, title=None, axis=alt.Axis(**BANDS)),
            yOffset=alt.YOffset("method:N", sort=[column.heading for column in columns]),
            color=alt.Color("family:N", title="method", scale=_scale(colours, COLOURS)),
        )
        highest = max((row["high"] for row in rows), default=0.0)
        top = 1.0 if metric == "power" else max(highest, 2 * cells[0].target)
        axis = alt.X("low:Q", title=METRICS[metric], axis=alt.Axis(tickCount=5))
        axis = axis.scale(domain=[0, top])
        bars = base.mark_rule(strokeWidth=1.2).encode(x=axis, x2="high:Q")
        points = base.mark_point(filled=True, size=38, opacity=1).encode(
            x="mean:Q",
            shape=alt.Shape("kind:N", title="comparison", scale=_scale(shapes, SHAPES)),
            tooltip=["data set:N", "method:N", alt.Tooltip("mean:Q", format=".3f")],
        )
        layers = [bars, points]
        if metric == "fdr":
            target = alt.Chart(alt.InlineData(values=[{"x": cells[0].target}]))
            layers.insert(0, target.mark_rule(color="#D55E00", strokeDash=[4, 3]).encode(x="x:Q"))
        height = 9 * len(datasets) * (len(columns) + 1)
        return alt.layer(*layers).properties(width=300, height=max(height, 60))

    detectors = _distinct(cell.detector for cell in cells)
    return alt.vconcat(
        *(
            alt.hconcat(panel(detector, "fdr"), panel(detector, "power")).properties(
                title=title_of(detector)
            )
            for detector in detectors
        )
    ).properties(
        title=alt.Title(
            "Mean over the draws, and two standard errors to either side",
            subtitle=f"The dashed line is the level that was asked for, {cells[0].target:g}.",
        )
    )


def comparison_chart(comparison: Comparison) -> Any:
    """Draw our means against those of a reference; on the diagonal they agree."""
    detectors = _distinct(title_of(cell.detector) for cell in comparison.cells)

    def panel(metric: str) -> Any:
        rows: list[dict[str, Any]] = []
        for cell in comparison.cells:
            if cell.metric == metric:
                ours = _interval(cell.ours.mean, cell.ours.standard_error)
                theirs = _interval(cell.reference.mean, cell.reference.standard_error)
                rows.append(
                    {
                        "data set": title_of(cell.dataset),
                        "detector": title_of(cell.detector),
                        "method": cell.method,
                        "standard errors apart": round(cell.z, 2),
                        **ours,
                        **{f"their {name}": value for name, value in theirs.items()},
                    }
                )
        top = max((max(row["high"], row["their high"]) for row in rows), default=1.0)
        scale = alt.Scale(domain=[0, top], nice=False)
        base = alt.Chart(alt.InlineData(values=rows)).encode(
            color=alt.Color(
                "detector:N",
                scale=_scale(detectors, COLOURS[1:]),
                legend=alt.Legend(symbolOpacity=1),
            )
        )
        x = alt.X("their mean:Q", title=f"{METRICS[metric]}, {comparison.name}", scale=scale)
        y = alt.Y("mean:Q", title=f"{METRICS[metric]}, ours", scale=scale)
        upright = base.mark_rule(opacity=0.35).encode(x=x, y=alt.Y("low:Q", scale=scale), y2="high")
        level = base.mark_rule(opacity=0.35).encode(
            x=alt.X("their low:Q", scale=scale), x2="their high", y=y
        )
        points = base.mark_circle(size=32, opacity=0.9).encode(
            x=x,
            y=y,
            tooltip=[
                *("data set:N", "detector:N", "method:N"),
                *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("mean", "their mean")),
                "standard errors apart:Q",
            ],
        )
        ends = alt.Chart(alt.InlineData(values=[{"v": 0}, {"v": top}]))
        diagonal = ends.mark_line(color="#999999", strokeDash=[4, 3]).encode(
            x=alt.X("v:Q", scale=scale), y=alt.Y("v:Q", scale=scale)
        )
        return alt.layer(diagonal, upright, level, points).properties(width=320, height=320)

    return alt.hconcat(panel("fdr"), panel("power"))


def line_chart(
    table: Any, *, x: str, y: str = "cpower", by: str = "method", facet: str | None = None
) -> Any:
    """Draw the mean of a column against a parameter, with a band of two standard errors.

    Parameters
    ----------
    table : table
        Tidy, one row per draw: a pyarrow table, a frame or a mapping of arrays, such as
        `Study.sweep` returns.
    x : str
        The parameter, a column of numbers.
    y : str
        What is averaged.
    by : str
        A line per value of this column.
    facet : str, optional
        A panel per value of this column.
    """
    names = [x, by] + ([facet] if facet else [])
    columns = [np.asarray(table[name]).tolist() for name in (*names, y)]
    groups: dict[tuple[Any, ...], list[float]] = {}
    for *key, value in zip(*columns, strict=True):
        groups.setdefault(tuple(key), []).append(value)
    rows = []
    for group, values in groups.items():
        mean, sd = mean_and_sd(values)
        shown = dict(zip(names, group, strict=True))
        rows.append({**shown, **_interval(mean, sd / np.sqrt(len(values)))})
    lines = _distinct(row[by] for row in rows)
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X(f"{x}:Q", title=x.replace("_", " ")).scale(zero=False),
        color=alt.Color(
            f"{by}:N", scale=_scale(lines, COLOURS), legend=alt.Legend(symbolOpacity=1)
        ),
    )
    title = {"cpower": METRICS["power"], "cfdr": METRICS["fdr"]}.get(y, y)
    band = base.mark_area(opacity=0.15).encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    line = base.mark_line(point=True).encode(y="mean:Q")
    chart = alt.layer(band, line).properties(width=320, height=220)
    return chart.facet(facet=alt.Facet(f"{facet}:N", title=None), columns=3) if facet else chart


def _interval(mean: float, standard_error: float) -> dict[str, float]:
    reach = 0.0 if np.isnan(standard_error) else ERRORS * standard_error
    return {"mean": mean, "low": max(mean - reach, 0.0), "high": min(mean + reach, 1.0)}


def _family(heading: str) -> str:
    return heading.removesuffix("+").removesuffix(" pooled")


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _scale(values: Sequence[Any], looks: Sequence[str]) -> Any:
    """Give every value a look of its own, as far as there are enough."""
    return alt.Scale(domain=values, range=[looks[i % len(looks)] for i in range(len(values))])
