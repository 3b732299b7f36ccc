"""`reconform demo`: find anomalies in data that ship with scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..arrays import BoolArray
from ..detector import ConformalDetector
from ..discoveries import Discoveries
from ..display import percent
from ..files.formats import is_standard
from ..metrics import false_discovery_proportion, power
from ..reporting.page import EXPLAINED, render, write_page
from ..whole import check_place
from .declare import Command, family, in_options, share
from .judging import Flagged
from .options import OVERWRITE, REPORT, detector_option, method_option, voice_options
from .output import Voice

MOST_SHOWN = 5


demo_options = family(
    "asked",
    "Options",
    dict,
    [
        detector_option("auto"),
        method_option("auto"),
        share("--fdr", 0.1, "Aim at this false discovery rate.", metavar="LEVEL"),
        REPORT,
        OVERWRITE,
    ],
)


@click.command(cls=Command, examples=["reconform demo --report demo.html"])
@demo_options
@voice_options
def demo(asked: dict[str, Any], voice: Voice) -> None:
    """Find malignant tumours among benign ones: no files are needed.

    The data ship with scikit-learn.
    """
    report, overwrite = asked["report"], asked["overwrite"]
    if report is not None:
        if is_standard(report):
            raise click.UsageError("--report writes a page: give the name of a file.")
        check_place(report, overwrite=overwrite)
    with voice.gathering_warnings():
        done = run_demo(asked["detector"], asked["method"], asked["fdr"])
    with voice.last_words():
        if report is not None:
            page = partial(
                render, done.found, title="Tumours", explained=EXPLAINED, spell=in_options
            )
            write_page(Path(report), page, overwrite=overwrite)
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
                "guarantee": in_options(done.found.guarantee),
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
    voice.say(found.headline, style="bold")
    if found.chosen is not None:
        voice.say(found.chosen)
    voice.say(in_options(found.guarantee))
    top = found.order[: min(found.count, MOST_SHOWN)]
    if len(top):
        flagged = Flagged(
            rows=(top + 1).tolist(),
            ids={},
            scores=found.scores[top],
            p_values=found.p_values[top],
            letter="q",
            evidence=found.q_values[top],
        )
        voice.say()
        voice.show(flagged.table())
        voice.say()
    voice.say(
        f"The truth, which the detector never saw: {done.power:.0%} of the malignant rows are "
        f"flagged, and {done.false_share:.0%} of the flagged rows are benign (aimed at: at most "
        f"{percent(found.level)} on average)."
    )


@dataclass(frozen=True)
class Demo:
    """What the demo did.

    Attributes
    ----------
    found : Discoveries
    truth : bool array
        Which new rows are malignant.
    n_reference : int
        Number of benign reference rows.
    """

    found: Discoveries
    truth: BoolArray
    n_reference: int

    @property
    def false_share(self) -> float:
        """Share of the flagged rows that are benign."""
        return false_discovery_proportion(self.found, self.truth)

    @property
    def power(self) -> float:
        """Share of the malignant rows that are flagged."""
        return power(self.found, self.truth)


def run_demo(detector: str = "auto", method: str = "auto", fdr: float = 0.1) -> Demo:
    """Fit on half of the benign rows, and judge the rest mixed with malignant ones.

    Examples
    --------
    >>> demo = run_demo()
    >>> demo.n_reference, len(demo.found)
    (178, 229)
    """
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    rng = np.random.default_rng(0)
    benign = rng.permutation(X[y == 1])
    malignant = rng.permutation(X[y == 0])[:50]
    reference, rest = benign[:178], benign[178:]
    new = np.vstack([rest, malignant])
    order = rng.permutation(len(new))
    truth = np.r_[np.zeros(len(rest), bool), np.ones(len(malignant), bool)][order]
    cad = ConformalDetector(detector, method, random_state=0).fit(reference)
    return Demo(cad.discover(new[order], fdr=fdr), truth, len(reference))
