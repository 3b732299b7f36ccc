"""Events on the page: a table, and a line in time of the columns that carry them."""

from __future__ import annotations

from html import escape

import numpy as np

from ..arrays import FloatArray, IndexArray
from ..timeseries import Event, WindowRows
from .words import counted, shorten, small_table

MOST_EVENTS, MOST_LINES, LONGEST = 100, 8, 80
# A picture has so many points across, each the mean of its rows.
POINTS, WIDTH, HEIGHT = 360, 720.0, 96.0
# The range of a forecast, in units of what it usually misses.
RANGE = 3.0
HEAD = ("From", "To", "Peak", "Columns", "Windows", "p-value")


def events_section(rows: WindowRows, events: list[Event]) -> str:
    """The events and their lines."""
    table = small_table(HEAD, [_cells(event) for event in events[:MOST_EVENTS]])
    more = len(events) - MOST_EVENTS
    left = f'  <p class="small">… and {more:,} more.</p>\n' if more > 0 else ""
    pictures = "".join(_picture(rows, events, k, j) for k, j in _shown(rows, events))
    return (
        '\n<section id="events" aria-labelledby="events-title">\n'
        f'  <h2 id="events-title">{counted(len(events), "event")}</h2>\n'
        f"{table if events else ''}{left}{pictures}"
        '  <p class="small">Flagged windows that are neighbours are one event, shaded. The band is '
        "what was forecast from the rows before, with three times what forecasts usually miss."
        "</p>\n</section>\n"
    )


def _cells(event: Event) -> list[str]:
    begin = f"{event.series}, {event.begin}" if event.series else event.begin
    columns = ", ".join(event.columns)
    cells = (begin, event.end, event.peak, columns, str(event.windows), f"{event.p_value:.4g}")
    return [shorten(cell, LONGEST) for cell in cells]


def _shown(rows: WindowRows, events: list[Event]) -> list[tuple[int, int]]:
    """Series and columns that carry events; without any, the first ones."""
    names = [one.name for one in rows.units.columns]
    found = [
        (int(rows.series[event.rows[0]]), names.index(column))
        for event in events
        for column in event.columns
    ]
    first = [(int(rows.series[0]), j) for j in range(min(len(names), 3))]
    return list(dict.fromkeys(found or first))[:MOST_LINES]


def _picture(rows: WindowRows, events: list[Event], series: int, column: int) -> str:
    """A column of a series in time, its forecast and range, and its events shaded."""
    here = np.flatnonzero(rows.series == series)
    values, expected = rows.X[rows.order[here], column], rows.forecasts()[here, column]
    wide = RANGE * float(rows.units.noise[column] * rows.units.spreads[series, column])
    bins = np.arange(len(here)) * min(POINTS, len(here)) // len(here)
    line, middle = (_means(bins, what) for what in (values, expected))
    every = np.concatenate([line, middle - wide, middle + wide])
    every = every[np.isfinite(every)]
    low, high = (every.min(), every.max()) if len(every) else (0.0, 1.0)
    x = (np.arange(len(line)) + 0.5) * WIDTH / len(line)

    def y(some: FloatArray) -> FloatArray:
        return np.asarray(HEIGHT * (1 - (some - low) / ((high - low) or 1.0)))

    band = np.concatenate([y(middle + wide), y(middle - wide)[::-1]])
    scale = WIDTH / len(here)
    shades = "".join(
        f'<rect class="event" x="{(a - here[0]) * scale:.1f}" y="0" height="{HEIGHT:g}" '
        f'width="{max((b + 1 - a) * scale, 2):.1f}"/>'
        for a, b in (event.rows for event in events)
        if rows.series[a] == series
    )
    name = rows.units.columns[column].name
    title = f"{rows.units.series[series]}: {name}" if rows.units.by else name
    said = escape(shorten(title, LONGEST))
    return (
        f'  <figure class="line"><figcaption><h3>{said}</h3><p>{low:.4g} to {high:.4g}</p>'
        f'</figcaption><svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" preserveAspectRatio="none" '
        f'role="img" aria-label="{said} in time">{shades}'
        f'<polygon class="range" points="{_points(np.concatenate([x, x[::-1]]), band)}"/>'
        f'<polyline class="values" points="{_points(x, y(line))}"/></svg></figure>\n'
    )


def _means(bins: IndexArray, values: FloatArray) -> FloatArray:
    """The mean of every bin; a bin without values has that of the one before."""
    there = np.isfinite(values)
    count = np.bincount(bins[there], minlength=bins[-1] + 1)
    sums = np.bincount(bins[there], values[there], minlength=bins[-1] + 1)
    last = np.maximum.accumulate(np.where(count > 0, np.arange(len(count)), 0))
    return np.asarray((sums / np.maximum(count, 1))[last])


def _points(x: FloatArray, y: FloatArray) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
