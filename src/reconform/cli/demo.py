"""`reconform demo`: the main job, on data that ships with scikit-learn."""

from __future__ import annotations

import click

from ..demo import Demo, run_demo
from ..detectors import NAMED
from ..report import report as write_report
from ..report.text import percent
from ..whole import check_place
from .declare import Command
from .flagged import Flagged
from .options import METHODS, PATH, PROBABILITY, voice_options
from .output import Voice

MOST_SHOWN = 5


@click.command(cls=Command, examples=["reconform demo --report demo.html"])
@click.option(
    "--detector",
    type=click.Choice(list(NAMED)),
    default="knn",
    show_default=True,
    help="What scores the rows.",
)
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default="jackknife+",
    show_default=True,
    help="How it is calibrated.",
)
@click.option(
    "--fdr",
    type=PROBABILITY,
    default=0.1,
    show_default=True,
    metavar="LEVEL",
    help="False discovery rate that is aimed at.",
)
@click.option("--report", type=PATH, metavar="FILE", help="Write a page to look at (HTML).")
@click.option("--overwrite", is_flag=True, help="Replace a page that exists.")
@voice_options
def demo(
    detector: str, method: str, fdr: float, report: str | None, overwrite: bool, voice: Voice
) -> None:
    """Find malignant tumours among benign ones: no files are needed.

    The data ship with scikit-learn.
    """
    if report is not None:
        check_place(report, overwrite=overwrite)
    with voice.gathering_warnings():
        done = run_demo(detector, method, fdr)
    with voice.last_words():
        if report is not None:
            write_report(done.found, report, title="Tumours", overwrite=overwrite)
        _tell(voice, done)
        if report is not None:
            voice.say(f"Report: {report}")
        voice.finish(
            {
                "command": "demo",
                "n_reference": done.n_reference,
                "tested": len(done.found),
                "malignant": int(done.truth.sum()),
                "flagged": done.found.count,
                "power": done.power,
                "false_share": done.false_share,
                "p_threshold": done.found.p_threshold,
                "guarantee": done.found.guarantee,
                "report": report,
            }
        )


def _tell(voice: Voice, done: Demo) -> None:
    found = done.found
    voice.say(
        f"Breast cancer data: {done.n_reference} benign rows as reference, {len(found)} new rows, "
        f"of which {done.truth.sum()} are malignant."
    )
    voice.say()
    voice.say(
        f"{found.count:,} of {len(found):,} rows flagged at a false discovery rate of "
        f"{percent(found.fdr)}",
        style="bold",
    )
    voice.say(found.guarantee)
    top = found.order[: min(found.count, MOST_SHOWN)]
    if len(top):
        strangest = Flagged(
            rows=(top + 1).tolist(),
            ids={},
            scores=found.scores[top],
            p_values=found.p_values[top],
            q_values=found.q_values[top],
        )
        voice.say()
        voice.show(strangest.table())
        voice.say()
    voice.say(
        f"The truth, which the detector never saw: {done.power:.0%} of the malignant rows are "
        f"flagged, and {done.false_share:.0%} of the flagged rows are benign (aimed at: at most "
        f"{percent(found.fdr)} on average)."
    )
