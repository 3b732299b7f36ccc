"""How `Contrast` is saved, and what must hold for it when it is loaded.

Files have the rows; neighbours are looked up again when they are first needed.
"""

from __future__ import annotations

import numpy as np

from ...records import ascending, check_reference, require
from ...records.specs import JOBS, ROWS, SUMS, DetectorRecord, Record
from .ensembles import FullContrast
from .model import ContrastModel


def _check_model(model: ContrastModel, d: int) -> None:
    require(len(model.X) and model.X.shape[1] == d, "rows have the wrong shape")
    require(np.isfinite(model.X).all(), "a row is not finite")
    require(len(model.ks) and ascending(model.ks, strictly=True), "neighbours are not in order")
    enough = model.ks[0] >= 1 and model.ks[-1] <= len(model.X)
    require(enough, "a model looks at more neighbours than it has rows")


def _check_full(ensemble: FullContrast, d: int) -> None:
    check_reference(len(ensemble.model.X), ensemble)


def _cost(model: ContrastModel) -> int:
    """Every row has a table of its neighbours."""
    return 2 * len(model.X) * int(model.ks.max(initial=0))


MODEL = Record(
    "ContrastModel",
    ContrastModel,
    {"X": ROWS, "ks": SUMS, "n_jobs": JOBS},
    _check_model,
    cost=_cost,
)

CONTRAST_RECORD = DetectorRecord(
    "Contrast",
    {"_fitted": MODEL},
    ensembles=(Record("FullContrast", FullContrast, {"model": MODEL}, _check_full),),
)
