"""Detectors that scale, in the file: units, and plain models and ensembles on rows in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..detectors import INNE, Auto
from ..detectors.base import NativeDetector
from ..detectors.prepare import Prepare
from ..detectors.prepared import Labels, Prepared, label_counts
from ..detectors.scaled import Group, ScaledEnsemble, ScaledFull, ScaledModel
from ..ensemble import FEW_AT_ONCE, Ensemble, ResampledEnsemble
from ..methods import Plan
from ..records import ascending, check_reference, require
from ..records.specs import (
    JOBS,
    ROWS,
    Array,
    Detector,
    Json,
    OneOf,
    Plain,
    Reader,
    Record,
    Setting,
    Spec,
    Writer,
)
from ..statistics.ranks import Calibration

UNITS = Array("i8", ndim=1)

MOST_TRIED = 1 << 10


def columns_in(detector: Any, units: Any, d: int) -> int:
    """Count the columns of rows of d columns in these units; refuse what are none."""
    require(isinstance(detector, NativeDetector), "a detector is none of ours")
    ways = detector._units()
    require(ways is not None, "a detector does not scale")
    assert ways is not None
    width: int = ways.check(units, d)
    return width


class _ScaledModelRecord(Record):
    """A plain model has the columns of rows in its units, which come first."""

    def write(self, value: Any, at: str, out: Writer) -> Json:
        width = columns_in(value.detector, value.units, out.n_features)
        return super().write(value, at, replace(out, n_features=width))

    def make(self, json: Json, source: Reader, more: Mapping[str, Any]) -> Any:
        whole = isinstance(json, dict) and set(json) == {"kind", *self.fields}
        require(whole, "the fields of a ScaledModel are not what they should be")
        detector = self.fields["detector"].read(json["detector"], source)
        units = self.fields["units"].read(json["units"], source)
        inner = replace(source, n_features=columns_in(detector, units, source.n_features))
        return ScaledModel(detector, units, self.fields["model"].read(json["model"], inner))


def scaled_model(models: Spec) -> Record:
    """Describe a model on rows in units, given what plain models may be."""
    fields: dict[str, Spec] = {
        "detector": Detector(fitted=False), "units": UNITS, "model": models
    }  # fmt: skip
    return _ScaledModelRecord("ScaledModel", ScaledModel, fields)


def refit_units(detector: Any, n: int, d: int) -> int:
    """Units (see `Budget`) of a fit on n rows of d columns, by what a file says of the detector."""
    if isinstance(detector, Auto):
        named = [one for one in detector.candidates or () if not isinstance(one, str)]
        return sum(refit_units(one, n, d) for one in named)
    if isinstance(detector, Prepare | Prepared):
        return refit_units(detector.detector, n, d)
    trees, near = _count(detector, "n_estimators"), _count(detector, "n_neighbors")
    drawn = min(n, _count(detector, "max_samples", share=n, word=1 << 8))
    each = 16 * drawn + (drawn * drawn * d // 8 if isinstance(detector, INNE) else 0)
    return trees * each + n * min(near, n) + _count(detector, "leaf_size") * d


def _count(detector: Any, name: str, *, share: int = 0, word: int = 0) -> int:
    """The largest number that a parameter names; `fit` refuses what is none."""
    value = getattr(detector, name, 0)
    if isinstance(value, float | str):
        return share if isinstance(value, float) else word
    several = value if isinstance(value, list | tuple | np.ndarray) else [value]
    return max((int(k) for k in several if isinstance(k, int | np.integer)), default=0)


def some_rows(reference: FloatArray, detector: Any) -> FloatArray:
    """Rows to try the parameters of a detector on: enough for its neighbours."""
    inner = getattr(detector, "detector", detector)
    return reference[: max(MOST_TRIED, 2 * _count(inner, "n_neighbors") + 2)]


def label_units(labels: Labels) -> int:
    """Units (see `Budget`) of new rows, some at a time, with a column for every label."""
    return FEW_AT_ONCE * sum(label_counts(labels))


def _scaled_full_cost(ensemble: ScaledFull) -> int:
    n, d = ensemble.reference.shape
    columns = int(d) + sum(label_counts(getattr(ensemble.detector, "labels", ())))
    return int(n) * columns + refit_units(ensemble.detector, n, columns)


def check_refitted(ensemble: Any, detector: Any, d: int) -> None:
    """Refuse a reference that a detector could not be fitted on again."""
    check_reference(len(ensemble.reference), ensemble)
    require(ensemble.reference.shape[1] == d, "the reference has the wrong shape")
    require(isinstance(ensemble.seed, np.random.SeedSequence), "the seed is none")
    missing = np.isnan(ensemble.reference) if detector.accepts_nan else False
    require((np.isfinite(ensemble.reference) | missing).all(), "a row is not finite")


def _check_scaled_full(ensemble: ScaledFull, d: int) -> None:
    detector = ensemble.detector
    require(isinstance(detector, NativeDetector), "a detector is none of ours")
    ways = detector._units()
    require(ways is not None, "a detector does not scale")
    assert ways is not None
    check_refitted(ensemble, detector, d)
    # Whether its parameters suit such rows, a fit says; on all of them it may take long.
    few = replace(ensemble, reference=some_rows(ensemble.reference, detector))
    units = ways.of(few.reference)
    few.fit_in(units).ranks(ways.measure(few.reference[:1], units))


SCALED_FULL = Record(
    "ScaledFull",
    ScaledFull,
    {
        "detector": Detector(fitted=False),
        "reference": ROWS,
        "seed": Plain(),
        "n_jobs": JOBS,
        "verbose": Setting(int, bool, default=0),
    },
    _check_scaled_full,
    cost=_scaled_full_cost,
)

WriteEnsemble = Callable[[Ensemble, Plan, Writer, str], Json]
ReadEnsemble = Callable[[Json, Plan, Reader], Ensemble]


def write_scaled(
    ensemble: ScaledEnsemble, plan: Plan, out: Writer, at: str, models: OneOf, write: WriteEnsemble
) -> Json:
    """Write the groups of models, each as the ensemble of its part of the plan."""
    detector = ensemble.full.detector
    groups = []
    for k, group in enumerate(ensemble.groups):
        width = columns_in(detector, group.units, out.n_features)
        part, inner = plan.part(group.models), replace(out, n_features=width)
        groups.append(
            {
                "units": UNITS.write(group.units, f"{at}/groups/{k}/units", out),
                "models": UNITS.write(group.models, f"{at}/groups/{k}/models", out),
                "ensemble": write(group.ensemble, part, inner, f"{at}/groups/{k}"),
            }
        )
    return {
        "kind": "ScaledEnsemble",
        "full": models.write(ensemble.full, f"{at}/full", out),
        "groups": groups,
    }


def read_scaled(
    json: Json,
    plan: Plan,
    calibration: Calibration,
    source: Reader,
    models: OneOf,
    read: ReadEnsemble,
) -> ScaledEnsemble:
    """Read the groups, which must have every model of the plan once."""
    require(set(json) == {"kind", "full", "groups"}, "an ensemble is incomplete")
    require(plan.full and not plan.row.augments, "the ensemble does not suit its plan")
    full = models.read(json["full"], source)
    require(isinstance(full, ScaledModel), "a model does not scale")
    require(isinstance(json["groups"], list), "a list is missing")
    groups = []
    for entry in json["groups"]:
        whole = isinstance(entry, dict) and set(entry) == {"units", "models", "ensemble"}
        require(whole, "a group of models is incomplete")
        units, which = (UNITS.read(entry[key], source) for key in ("units", "models"))
        width = columns_in(full.detector, units, source.n_features)
        require(len(which) and ascending(which, strictly=True), "models are not in order")
        require(which[0] >= 0 and which[-1] < plan.n_models, "a model does not exist")
        ensemble = read(entry["ensemble"], plan.part(which), replace(source, n_features=width))
        require(isinstance(ensemble, ResampledEnsemble), "the ensemble does not suit its plan")
        assert isinstance(ensemble, ResampledEnsemble)
        groups.append(Group(units, which, ensemble))
    every = np.sort(np.concatenate([np.empty(0, np.int64), *(group.models for group in groups)]))
    wanted = 0 if plan.variant == "basic" else plan.n_models
    require(np.array_equal(every, np.arange(wanted)), "a model is in no group, or in two")
    return ScaledEnsemble(plan, calibration, groups, full)
