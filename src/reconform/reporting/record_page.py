"""The record as a page: one glance for the person who pays. No script, no network."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template

from ..display import percent
from . import policy
from .record import Run, TrackRecord
from .words import shorten

WIDTH, LEFT, RIGHT = 720, 52, 700
# The panels of the chart: where they begin and end, from above.
RATE, LISTS, DRIFT = (16, 156), (196, 276), (316, 376)
HEIGHT = 404
# A dot, a bar and a date each, up to so many runs; of more, the newest.
MOST_DRAWN, DATES = 400, 5


def render_record(record: TrackRecord, title: str) -> str:
    """Make the page as a text."""
    web = files(__package__) / "web"
    style = (web / "style.css").read_text("utf-8")
    happened, *said = record.sentences
    rate = record.running[-1][0] if record.running and record.total("looked") else None
    numbers = (
        ("none" if rate is None else percent(round(rate, 3)), "observed false discovery rate"),
        (
            "none" if record.promised is None else percent(round(record.promised, 3)),
            "promised at most",
        ),
        (f"{len(record.runs):,}", "runs"),
        (f"{record.total('flagged'):,}", "rows flagged"),
        (f"{record.total('looked'):,}", "of them judged"),
        (f"{record.total('false'):,}", "of these false"),
    )
    return Template((web / "record.html").read_text("utf-8")).substitute(
        policy=policy(style),
        style=style,
        title=escape(shorten(title, 200)),
        tone=" warns" if record.broken_since else "",
        advice=escape(record.advice.replace("`", "")),
        numbers="\n".join(
            f"<div><dd>{escape(number)}</dd><dt>{escape(name)}</dt></div>"
            for number, name in numbers
        ),
        happened=escape(happened),
        said="\n".join(f"<p>{escape(one.replace('`', ''))}</p>" for one in said[:-1]),
        chart=_chart(record) if record.runs else "",
    )


def _chart(record: TrackRecord) -> str:
    """Three panels over the runs: the rate so far, the lists by verdict, and drift."""
    runs = record.runs[-MOST_DRAWN:]
    first = len(record.runs) - len(runs)
    step = (RIGHT - LEFT) / max(len(runs), 1)
    places = {id(run): LEFT + step * (k + 0.5) for k, run in enumerate(runs)}
    drawn = [
        *_rate(record, places),
        *_lists(runs, places, step),
        *_drift(record.drift[first:], [places[id(run)] for run in runs]),
    ]
    for k in sorted({round(j * (len(runs) - 1) / (DATES - 1)) for j in range(DATES)}):
        drawn.append(_text(places[id(runs[k])], HEIGHT - 8, runs[k].time[:10], "middle"))
    said = f"The observed rate, the lists and the drift of {len(runs):,} runs, the newest last"
    return (
        f'<svg role="img" aria-label="{said}" viewBox="0 0 {WIDTH} {HEIGHT}" class="chart">'
        f"{''.join(drawn)}</svg>"
    )


def _rate(record: TrackRecord, places: dict[int, float]) -> list[str]:
    counted = list(zip(record.counted, record.running, strict=True))
    shown = [(places[id(run)], run, now) for run, now in counted if id(run) in places]
    top = max([0.2, record.promised or 0.0, *(now[0] for _, _, now in shown)]) * 1.5
    top = min(1.0, top)

    def y(value: float) -> float:
        return RATE[1] - (RATE[1] - RATE[0]) * min(value, top) / top

    drawn = _axis(
        RATE, "Observed false discovery rate so far, and its interval", percent(round(top, 2))
    )
    if shown:
        high = " ".join(f"{x:.1f},{y(now[2]):.1f}" for x, _, now in shown)
        low = " ".join(f"{x:.1f},{y(now[1]):.1f}" for x, _, now in reversed(shown))
        mean = " ".join(f"{x:.1f},{y(now[0]):.1f}" for x, _, now in shown)
        drawn.append(f'<polygon class="band" points="{high} {low}"/>')
        drawn.append(f'<polyline class="flag-line" points="{mean}"/>')
        drawn += [
            f'<circle class="flag" cx="{x:.1f}" cy="{y(run.share or 0.0):.1f}" r="2">'
            f"<title>{escape(run.day)}: {run.false:,} of {run.looked:,} judged rows false</title>"
            "</circle>"
            for x, run, _ in shown
            if run.flagged
        ]
    if record.promised is not None:
        at = y(record.promised)
        drawn.append(f'<line class="even" x1="{LEFT}" x2="{RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        drawn.append(_text(RIGHT, at - 4, f"promised {percent(round(record.promised, 3))}", "end"))
    return drawn


def _lists(runs: tuple[Run, ...], places: dict[int, float], step: float) -> list[str]:
    most = max(1, *(run.flagged for run in runs))
    drawn = _axis(LISTS, "Rows flagged, by what the assumption looked like", f"{most:,}")
    for run in runs:
        high = (LISTS[1] - LISTS[0]) * run.flagged / most
        wide, x = max(0.5, 0.8 * step), places[id(run)]
        told = f"{escape(run.day)}: {run.flagged:,} of {run.rows:,} flagged, {run.verdict}"
        for height, foot in ((high, LISTS[1]), (4, LISTS[1] + 6)):  # a bar, and a cell below it
            drawn.append(
                f'<rect class="{run.verdict}" x="{x - wide / 2:.1f}" y="{foot - height:.1f}" '
                f'width="{wide:.1f}" height="{height:.1f}"><title>{told}</title></rect>'
            )
    return drawn


def _drift(drift: list[float], places: list[float]) -> list[str]:
    top = max(0.5, *drift)
    drawn = _axis(
        DRIFT, "How far columns moved since the first run, in quartile ranges", f"{top:.1f}"
    )
    points = " ".join(
        f"{x:.1f},{DRIFT[1] - (DRIFT[1] - DRIFT[0]) * moved / top:.1f}"
        for x, moved in zip(places, drift, strict=True)
    )
    return [*drawn, f'<polyline class="known" points="{points}"/>']


def _axis(panel: tuple[int, int], name: str, top: str) -> list[str]:
    low, high = panel[1], panel[0]
    return [
        f'<line class="axis" x1="{LEFT}" x2="{RIGHT}" y1="{low}" y2="{low}"/>',
        _text(LEFT - 6, low + 4, "0", "end"),
        _text(LEFT - 6, high + 8, top, "end"),
        _text(LEFT, high - 4, name, "start"),
    ]


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
