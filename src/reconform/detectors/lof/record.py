"""How models of `LOF` are saved, and what must hold for them when they are loaded.

Files have the rows; who is near to whom is looked up again when it is first needed, with the same
result. So there are no indices in a file that compiled code would follow.
"""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray
from ...content import sorted_by_content
from ...records import check_reference, require
from ...records.specs import INT, JOBS, ROWS, SUMS, DetectorRecord, Record
from .ensembles import FullLOF, LeaveOneOutLOF
from .model import LOFModel


def _check_rows(X: FloatArray, d: int) -> None:
    require(len(X) >= 2 and X.shape[1] == d, "rows have the wrong shape")
    require(np.isfinite(X).all(), "a row is not finite")
    # Ties between neighbours are settled by the order of the rows.
    require((sorted_by_content(X)[1] == np.arange(len(X))).all(), "rows are not in order")


def _check_model(model: LOFModel, d: int) -> None:
    _check_rows(model.X, d)
    require(1 <= model.k < len(model.X), "a model looks at more neighbours than it has rows")


def _check_leave_one_out(ensemble: LeaveOneOutLOF, d: int) -> None:
    n = len(ensemble.full.X)
    fits = ensemble.plan.left_out is not None and n == ensemble.plan.n > 2
    require(fits, "a row has no model")
    every = len(ensemble.places) == n and (np.sort(ensemble.places) == np.arange(n)).all()
    require(every, "a row is missing")


def _check_full(ensemble: FullLOF, d: int) -> None:
    _check_rows(ensemble.X, d)
    check_reference(len(ensemble.X), ensemble)
    require(1 <= ensemble.k <= len(ensemble.X), "rows have the wrong number of neighbours")
    n = len(ensemble.X)
    every = len(ensemble.order) == n and (np.sort(ensemble.order) == np.arange(n)).all()
    require(every, "a row has no place")


def _cost(some: LOFModel | FullLOF) -> int:
    """Every row has a table of its neighbours, their distances and who has it in turn."""
    return 3 * len(some.X) * some.k


LOF_MODEL = Record(
    "LOFModel", LOFModel, {"X": ROWS, "k": INT, "n_jobs": JOBS}, _check_model, cost=_cost
)

LOF_RECORD = DetectorRecord(
    "LOF",
    {"_fitted": LOF_MODEL},
    models=(LOF_MODEL,),
    ensembles=(
        Record(
            "LeaveOneOutLOF",
            LeaveOneOutLOF,
            {"full": LOF_MODEL, "places": SUMS},
            _check_leave_one_out,
        ),
        Record(
            "FullLOF",
            FullLOF,
            {"X": ROWS, "k": INT, "order": SUMS, "n_jobs": JOBS},
            _check_full,
            cost=_cost,
        ),
    ),
)
