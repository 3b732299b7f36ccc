"""How models of `Mahalanobis` are saved, and what must hold for them when they are loaded."""

from __future__ import annotations

import numpy as np

from ...records import check_reference, require
from ...records.specs import FLOAT, JOBS, ROWS, Array, DetectorRecord, Maybe, Record
from .ensembles import FullMahalanobis, LeaveOneOutMahalanobis
from .model import MahalanobisModel, Whitened, valid_ridge


def _check_model(model: MahalanobisModel, d: int) -> None:
    require(model.mean.shape == (d,), "the mean has the wrong shape")
    size = d
    if model.basis is not None:
        size = len(model.basis)
        require(model.basis.shape[1] == d and size < d, "the basis has the wrong shape")
        require((np.abs(model.basis) <= 2.0).all(), "a direction is longer than 1")
    require(model.factor.shape == (size, size), "the factor has the wrong shape")
    finite = np.isfinite(model.mean).all() and np.isfinite(model.factor).all()
    require(finite, "a mean or a factor is not finite")
    require((np.diagonal(model.factor) > 0).all(), "a factor has no inverse")
    require(valid_ridge(model.ridge), f"the ridge is {model.ridge}")


def _check_whitened(reference: Whitened, d: int) -> None:
    n, columns = reference.rows.shape
    require(n >= 2 and columns == d, "the reference has the wrong shape")
    require(np.isfinite(reference.rows).all(), "a row is not finite")
    require(valid_ridge(reference.ridge), f"the ridge is {reference.ridge}")


MODEL = Record(
    "MahalanobisModel",
    MahalanobisModel,
    {
        "mean": Array("f8", ndim=1),
        "basis": Maybe(ROWS),
        "factor": ROWS,
        "ridge": FLOAT,
        "n_jobs": JOBS,
    },
    _check_model,
)
WHITENED = Record(
    "Whitened", Whitened, {"rows": ROWS, "ridge": FLOAT, "n_jobs": JOBS}, _check_whitened
)


def _check_leave_one_out(ensemble: LeaveOneOutMahalanobis, d: int) -> None:
    plan, n = ensemble.plan, len(ensemble.reference.rows)
    require(plan.left_out is not None and n == plan.n, "a row has no model")


def _check_full(ensemble: FullMahalanobis, d: int) -> None:
    check_reference(len(ensemble.reference.rows), ensemble)


MAHALANOBIS_RECORD = DetectorRecord(
    "Mahalanobis",
    {"_fitted": MODEL},
    ensembles=(
        Record(
            "LeaveOneOutMahalanobis",
            LeaveOneOutMahalanobis,
            {"reference": WHITENED},
            _check_leave_one_out,
        ),
        Record("FullMahalanobis", FullMahalanobis, {"reference": WHITENED}, _check_full),
    ),
)
