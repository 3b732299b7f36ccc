"""How models of `KDE` are saved, and what must hold for them when they are loaded."""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray
from ...records import check_reference, require
from ...records.specs import FLOAT, JOBS, ROWS, SCORES, DetectorRecord, Record
from .ensembles import FullKDE, LeaveOneOutKDE
from .model import KDEModel, valid_bandwidth


def _check_model(model: KDEModel, d: int) -> None:
    n, columns = model.rows.shape
    require(n >= 1 and columns == d, "rows have the wrong shape")
    require(np.isfinite(model.rows).all(), "a row is not finite")
    require(valid_bandwidth(model.bandwidth), f"the bandwidth is {model.bandwidth}")


MODEL = Record(
    "KDEModel", KDEModel, {"rows": ROWS, "bandwidth": FLOAT, "n_jobs": JOBS}, _check_model
)


def _check_own(own: FloatArray, count: int) -> None:
    require(len(own) == count, "a row has no density")
    require(np.isfinite(own).all(), "a density is not a number")


def _check_leave_one_out(ensemble: LeaveOneOutKDE, d: int) -> None:
    plan, n = ensemble.plan, len(ensemble.full.rows)
    require(plan.left_out is not None and n == plan.n >= 2, "a row has no model")
    _check_own(ensemble.own, plan.n_models)


def _check_full(ensemble: FullKDE, d: int) -> None:
    n = len(ensemble.full.rows)
    check_reference(n, ensemble)
    require(n >= 2, "the reference has the wrong shape")
    _check_own(ensemble.own, n)


KDE_RECORD = DetectorRecord(
    "KDE",
    {"_fitted": MODEL},
    ensembles=(
        Record(
            "LeaveOneOutKDE", LeaveOneOutKDE, {"full": MODEL, "own": SCORES}, _check_leave_one_out
        ),
        Record("FullKDE", FullKDE, {"full": MODEL, "own": SCORES}, _check_full),
    ),
)
