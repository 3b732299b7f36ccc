"""`reconform warm`: compile ahead what the defaults run, for images and shared machines."""

from __future__ import annotations

import time
import warnings

import click
import numpy as np

from ..detector import ConformalDetector
from ..errors import ReferenceWarning
from ..parallel import run_jobs
from .output import console

# Reference and new rows: all in memory at once, and a split.
SIZES = ((300, 100), (300, 20_000))


def _judged(n: int, m: int) -> int:
    warnings.simplefilter("ignore", ReferenceWarning)  # in a process of its own
    rng = np.random.default_rng(0)
    cad = ConformalDetector(random_state=0, n_jobs=1).fit(rng.normal(size=(n, 4)))
    return cad.discover(rng.normal(size=(m, 4))).tested


@click.command(name="warm")
def warm() -> None:
    """Compile what the defaults run, so that the first command after it is as quick as later ones.

    The compiled code is kept beside the package, or in the folder that NUMBA_CACHE_DIR names.
    """
    start = time.monotonic()
    list(run_jobs(_judged, SIZES, total=len(SIZES), n_jobs=len(SIZES), prefer="processes"))
    console().print(f"Compiled, and kept for all later starts ({time.monotonic() - start:.0f} s).")
