"""How models of `INNE` are saved, and what must hold for them when they are loaded."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...records import (
    ascending,
    check_entries,
    check_kept,
    check_models,
    check_reference,
    expected_entries,
    increasing,
    require,
    within,
)
from ...records.specs import (
    INT,
    JOBS,
    ROWS,
    SUMS,
    Array,
    DetectorRecord,
    Maybe,
    Record,
    Spec,
)
from .ensembles import EnteredINNE, LeaveOneOutINNE, SeparateINNE, Slots
from .kernels import UNIT
from .model import Draws, Spheres


def _check_spheres(spheres: Spheres, d: int) -> None:
    count = len(spheres.centre)
    require(len(spheres.radius) == len(spheres.ratio) == count, "a sphere has no radius or ratio")
    require(increasing(spheres.edges, count), "the sets of spheres are not in order")
    sets = len(spheres.edges) - 1
    require(
        1 <= spheres.models <= max(1, sets) and sets % spheres.models == 0,
        "models must have equally many sets",
    )
    require(within(spheres.ratio, 0, UNIT + 1), "a ratio is not one")
    require(spheres.table.shape[1] == d, "centres have the wrong shape")
    require(np.isfinite(spheres.table).all(), "a centre is not finite")
    require(within(spheres.centre, 0, len(spheres.table)), "a sphere has no centre")


def check_sets(spheres: Spheres, d: int) -> None:
    """Refuse arrays that do not form spheres, and models without any sets."""
    _check_spheres(spheres, d)
    require(spheres.sets, "a model has no sets")


def check_one_model(spheres: Spheres, d: int) -> None:
    """Refuse spheres of several models: each of them would score every row."""
    check_sets(spheres, d)
    require(spheres.models == 1, "a detector is one model")


def _check_slots(slots: Slots, d: int) -> None:
    require(len(slots._starts) == len(slots.rows) > 0, "every row has its slots")
    require(ascending(slots.rows, strictly=True), "the rows of slots are not in order")
    require(
        slots._starts[0] == 0 and ascending(slots._starts, strictly=True), "slots are not in order"
    )
    require(slots._sets >= 1, "A(D) has no sets")
    require(within(slots._starts, 0, len(slots.replaced)), "a row has no slots")
    require(slots._spheres.sets == 1, "slots are scored set by set")
    require(slots._spheres.models == slots._sets + len(slots.replaced), "a slot has no set")
    require(within(slots.replaced, 0, slots._sets), "a slot replaces a set that does not exist")


DRAWS = Record("Draws", Draws, {"samples": Array("i8", ndim=2)})
_SETS: Mapping[str, Spec] = {
    "table": Array("f8", ndim=2),
    "centre": Array("u4", ndim=1),
    "radius": Array("f8", ndim=1),
    "ratio": Array("i8", ndim=1),
    "edges": Array("i8", ndim=1),
    "models": INT,
}
SPHERES = Record("Spheres", Spheres, _SETS, check_sets)
ONE_MODEL = Record("Spheres", Spheres, _SETS, check_one_model)
SLOTS = Record(
    "Slots",
    Slots,
    {
        **dict.fromkeys(("rows", "replaced", "_starts"), Array("i8", ndim=1)),
        "_sets": INT,
        "_spheres": SPHERES,
    },
    _check_slots,
)


def _check_separate(ensemble: SeparateINNE, d: int) -> None:
    check_models(0 if ensemble.models is None else ensemble.models.models, ensemble)
    require(ensemble.full.models == 1, "A(D) is one model")


def _check_leave_one_out_inne(ensemble: LeaveOneOutINNE, d: int) -> None:
    n, slots = ensemble.plan.n, ensemble.slots
    one = ensemble.plan.left_out is not None
    require(one and ensemble.full.models == 1, "a row has no model")
    check_kept(slots, ensemble.plan)
    affected = n if slots is None else len(slots.rows)
    fits = len(ensemble.model) == ensemble.plan.n_models and within(ensemble.model, -1, affected)
    require(fits, "a row has no model")
    if slots is not None:
        require(within(slots.rows, 0, n), "a row does not exist")
        require(slots._sets == ensemble.full.sets, "models have other numbers of sets")


def _check_entered_inne(ensemble: EnteredINNE, d: int) -> None:
    n, sets, psi = len(ensemble.reference), len(ensemble.streams), ensemble.psi
    check_reference(n, ensemble)
    require(ensemble.reference.shape[1] == d, "the reference has the wrong shape")
    require(np.isfinite(ensemble.reference).all(), "a row is not finite")
    require(1 <= psi <= n + 1, "sets draw more rows than there are")
    shapes = {ensemble.drawn.shape, ensemble.hashes.shape}
    require(shapes == {(sets, min(psi, n))}, "a set has no centres")
    require(ensemble.base.models == 1 and ensemble.base.sets == sets, "a set is missing")
    require(within(ensemble.drawn, 0, n), "a set drew a row that does not exist")
    require(len(ensemble.order) == len(ensemble.sums) == n, "a row has no sum")
    require(within(ensemble.order, 0, n), "a row does not exist")
    require(ascending(ensemble.sums), "the reference is not in order")
    check_entries(_entered(ensemble), sets * psi, n)


def _entered(ensemble: EnteredINNE) -> float:
    every = ensemble.psi > len(ensemble.reference)
    return expected_entries(ensemble.hashes.max(axis=1, initial=0), every)


def _entered_cost(ensemble: EnteredINNE) -> int:
    """A new row enters the sets in which its hash is small enough, and these are made again."""
    n, d = ensemble.reference.shape
    entered = _entered(ensemble)
    return int(entered * (ensemble.psi**2 + n) * d) // 64  # an honest file may take as long


INNE_RECORD = DetectorRecord(
    "INNE",
    {"max_samples_": INT, "draws_": DRAWS, "_spheres": ONE_MODEL},
    ensembles=(
        Record(
            "SeparateINNE",
            SeparateINNE,
            {"full": SPHERES, "models": Maybe(SPHERES), "n_jobs": JOBS},
            _check_separate,
        ),
        Record(
            "LeaveOneOutINNE",
            LeaveOneOutINNE,
            {
                "full": SPHERES,
                "slots": Maybe(SLOTS),
                "model": SUMS,
                "n_jobs": JOBS,
            },
            _check_leave_one_out_inne,
        ),
        Record(
            "EnteredINNE",
            EnteredINNE,
            {
                "reference": ROWS,
                "streams": Array("u8", ndim=1),
                "psi": INT,
                "drawn": Array("i4", ndim=2),
                "hashes": Array("u8", ndim=2),
                "base": SPHERES,
                "order": SUMS,
                "sums": SUMS,
                "n_jobs": JOBS,
            },
            _check_entered_inne,
            cost=_entered_cost,
        ),
    ),
)
