"""Plans and ensembles in the file: those of any detector, and what the detectors' records say.

A plan is stored once, for the whole model; an ensemble stores its calibration scores, and who was
held out where follows from the plan. Where rows are ranked within groups, the file has the names of
the groups, the groups of the reference rows, and the models of each group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..arrays import FloatArray, IndexArray
from ..detector import ConformalDetector
from ..detectors.base import NativeDetector, NativeModel
from ..detectors.foreign import FittedDetector, ForeignDetector
from ..detectors.prepared import label_counts
from ..detectors.registry import DETECTORS
from ..detectors.scaled import Group, ScaledEnsemble, ScaledFull, ScaledModel
from ..ensemble import Ensemble, RepeatedSplit, ResampledEnsemble, reference_calibration
from ..ensemble.choosing import FullChoice
from ..ensemble.grouped import (
    GroupedEnsemble,
    OneForAll,
    OnePerGroup,
    WithAnomalies,
    joined_calibration,
)
from ..ensemble.refitting import FullRefit, RefitEnsemble
from ..ensemble.split_choice import CLASSIFIERS, SplitChoice, plan_of_one, trained_on
from ..errors import ReconformError
from ..grouping import ReferenceGroups, check_groupable
from ..methods import METHODS, VARIANTS, Complements, Jackknife, Plan
from ..records import (
    INT,
    JOBS,
    ROWS,
    SCORES,
    Array,
    Budget,
    Detector,
    Json,
    Many,
    Maybe,
    OneOf,
    Plain,
    Reader,
    Record,
    Scalar,
    Setting,
    Spec,
    Writer,
    ascending,
    check_models,
    check_reference,
    require,
    within,
)
from ..statistics.ranks import Calibration, check_aggregate
from .estimators import UNITS, columns_in, largest_count, refit_units

# --- plans ---


INDEX = Array("i8", ndim=1)

# Units (see `Budget`) of a row that is held out, while it is counted, and of a set of rows.
HELD_UNITS, SET_UNITS = 5, 1 << 8


def write_plan(plan: Plan, out: Writer, at: str = "plan") -> Json:
    """Write a plan; its index sets go to `out`."""
    if callable(plan.aggregate):
        raise ReconformError(
            f"aggregate={plan.aggregate!r} is a function, and a function has no place in a file "
            "that is safe to load; use 'median', 'mean', 'min', 'max' or a quantile."
        )
    json = {
        "n": plan.n,
        "scheme": plan.scheme,
        "variant": plan.variant,
        "aggregate": Scalar(str, float, int).write(plan.aggregate, "aggregate", out),
    }
    if plan.leaves_one_out:
        _spend(plan.n, 0, 0, out.budget)
        return {**json, "sets": "leave-one-out"}
    _spend(plan.n, plan.n_models, sum(map(len, plan.held_out)), out.budget)
    if isinstance(plan.train, Complements):
        return {**json, "sets": "held out", **_write_sets(plan.held_out, out, at)}
    for held, follows in zip(plan.held_out, Complements(plan.n, plan.train), strict=True):
        require(np.array_equal(held, follows), "held-out rows are those that do not train")
    return {**json, "sets": "train", **_write_sets(plan.train, out, at)}


def _write_sets(sets: Sequence[IndexArray], out: Writer, at: str) -> dict[str, Json]:
    sizes = np.array([len(rows) for rows in sets], dtype=np.int64)
    # From row to row a set that is in order takes small steps, and those take few bytes.
    steps = all((np.diff(rows) >= 0).all() for rows in sets)
    rows = [np.diff(rows, prepend=0) for rows in sets] if steps else sets
    return {
        "rows": INDEX.write(np.concatenate([np.empty(0, np.int64), *rows]), f"{at}/rows", out),
        "sizes": INDEX.write(sizes, f"{at}/sizes", out),
        "steps": steps,
    }


def read_plan(json: Json, source: Reader) -> Plan:
    """Read a plan."""
    n, aggregate = json["n"], json["aggregate"]
    require(type(n) is int and n >= 1, f"n is {n!r}")
    row = METHODS.get(json["scheme"])
    require(row is not None and json["variant"] in VARIANTS, "the scheme is unknown")
    assert row is not None
    check_aggregate(aggregate)
    facts: dict[str, Any] = {key: json[key] for key in ("scheme", "variant", "aggregate")}
    if json["sets"] == "leave-one-out":
        require(row.resamples, "the scheme leaves more out")
        _spend(n, 0, 0, source.budget)
        return replace(Jackknife().plan(n), **facts)
    sets = _read_sets(json, n, source)
    # A model per new row or per batch is none that a plan could list, and a frozen one is alone.
    suits = bool(sets) != row.augments and not row.fits_batch and not (row.frozen and len(sets) > 1)
    require(suits, f"{len(sets):,} models are no plan of scheme {row.name}")
    if json["sets"] == "held out":
        distinct = all(len(np.unique(held)) == len(held) for held in sets)
        require(distinct, "a model holds a row out twice")
        return Plan(n, Complements(n, sets), sets, **facts)
    require(json["sets"] == "train", "the sets of a plan are unknown")
    held = HELD_UNITS * sum(n - len(np.unique(train)) for train in sets)
    source.budget.spend(held, f"a plan of {len(sets):,} models")
    return Plan(n, sets, tuple(Complements(n, sets)), **facts)


def _spend(n: int, sets: int, held: int, budget: Budget) -> None:
    """Ask for what a plan on n rows takes in memory that is not in the file."""
    budget.spend(n + SET_UNITS * sets + HELD_UNITS * held, f"a plan of {n:,} rows")


def _read_sets(json: Json, n: int, source: Reader) -> tuple[IndexArray, ...]:
    rows, sizes = INDEX.read(json["rows"], source), INDEX.read(json["sizes"], source)
    _spend(n, len(sizes), len(rows) if json["sets"] == "held out" else 0, source.budget)
    adds_up = within(sizes, 0, len(rows) + 1) and sum(sizes.tolist()) == len(rows)
    require(adds_up, "the sets of a plan do not add up")
    sets = np.split(rows, np.cumsum(sizes)[:-1]) if len(sizes) else []
    if json["steps"]:
        sets = [np.cumsum(steps) for steps in sets]
    for some in sets:
        require(not len(some) or (some.min() >= 0 and some.max() < n), "a row does not exist")
    return tuple(sets)


def calibration_of(plan: Plan, scores: Any) -> Calibration:
    """The calibration of a plan, from which it follows which model held out which rows."""
    if plan.row.augments:
        require(len(scores) == plan.n, "the reference has another number of scores")
        return reference_calibration(scores)
    rows, indptr, models = plan.membership
    require(len(scores) == len(rows) > 0, "the calibration has another number of scores")
    return Calibration(scores, rows, indptr, models)


# --- ensembles ---

_FOREIGN: Mapping[str, Spec] = {
    "score_name": Scalar(str, None), "sign": INT, "name": Scalar(str)
}  # fmt: skip


def _check_foreign(detector: FittedDetector | ForeignDetector, d: int) -> None:
    # Any other method of the model would be called with the rows.
    known = detector.score_name in ("score_samples", "decision_function")
    require(known and detector.sign in (-1, 1), f"nothing is scored by {detector.score_name!r}")
    model = detector.model if isinstance(detector, FittedDetector) else detector.template
    require(hasattr(model, "fit"), "an object is not a detector")
    _check_columns(model, d)


def _check_columns(detector: Any, d: int) -> None:
    columns = getattr(detector, "n_features_in_", None)
    require(columns is None or columns == d, f"a detector was fitted on {columns!r} columns")


FITTED_DETECTOR = Record(
    "FittedDetector", FittedDetector, {"model": Detector(fitted=True), **_FOREIGN}, _check_foreign
)
FOREIGN_DETECTOR = Record(
    "ForeignDetector",
    ForeignDetector,
    {"template": Detector(fitted=False), **_FOREIGN},
    _check_foreign,
)


def _check_native(model: NativeModel, d: int) -> None:
    require(isinstance(model.detector, NativeDetector), "a model is no detector of ours")
    _check_columns(model.detector, d)


NATIVE_MODEL = Record(
    "NativeModel", NativeModel, {"detector": Detector(fitted=True)}, _check_native
)


class _Algorithm:
    """A detector that is fitted again: a native one, or one of another library."""

    spec = FOREIGN_DETECTOR

    def write(self, value: Any, at: str, out: Writer) -> Json:
        """Write ours by its number among the detectors."""
        if isinstance(value, NativeDetector):
            return out.estimators.write(value, fitted=False)
        return self.spec.write(value, at, out)

    def read(self, json: Json, source: Reader) -> Any:
        """Read a number as one of ours."""
        if isinstance(json, dict):
            return self.spec.read(json, source)
        detector = source.estimators.read(json)
        require(isinstance(detector, NativeDetector), "a detector is not one of reconform's")
        return detector


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


# Rows that the parameters of a detector are tried on.
MOST_TRIED = 1 << 10


def some_rows(reference: FloatArray, detector: Any) -> FloatArray:
    """Rows to try the parameters of a detector on: enough for its neighbours."""
    inner = getattr(detector, "detector", detector)
    return reference[: max(MOST_TRIED, 2 * largest_count(inner, "n_neighbors") + 2)]


def _scaled_full_cost(ensemble: ScaledFull) -> int:
    n, d = ensemble.reference.shape
    columns = int(d) + sum(label_counts(getattr(ensemble.detector, "labels", ())))
    return int(n) * columns + refit_units(ensemble.detector, n, columns)


def check_refitted(ensemble: Any, detector: Any, d: int) -> None:
    """Refuse a reference that a detector could not be fitted on again."""
    check_reference(len(ensemble.reference), ensemble)
    require(ensemble.reference.shape[1] == d, "the reference has the wrong shape")
    require(isinstance(ensemble.seed, np.random.SeedSequence), "the seed is not a seed sequence")
    missing = np.isnan(ensemble.reference) if detector.accepts_nan else False
    require((np.isfinite(ensemble.reference) | missing).all(), "a row is not finite")


def _check_scaled_full(ensemble: ScaledFull, d: int) -> None:
    detector = ensemble.detector
    require(isinstance(detector, NativeDetector), "a detector is not one of reconform's")
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


def _check_refit(ensemble: RefitEnsemble, d: int) -> None:
    check_models(len(ensemble.models), ensemble)


def _check_full_refit(ensemble: FullRefit, d: int) -> None:
    algorithm: Any = ensemble.algorithm
    check_refitted(ensemble, algorithm, d)
    template = getattr(algorithm, "template", algorithm)
    if isinstance(template, NativeDetector):
        # Whether its parameters suit such rows, one fit says, as every row to come will take.
        algorithm.fit_model(some_rows(ensemble.reference, template), ensemble.seed)


def _full_refit_cost(ensemble: FullRefit) -> int:
    algorithm: Any = ensemble.algorithm
    return refit_units(getattr(algorithm, "template", algorithm), *ensemble.reference.shape)


def known_models() -> OneOf:
    """Every model that a file may have: those of any detector, and those of the registry."""
    records = [entry.record for entry in DETECTORS.values()]
    plain = (FITTED_DETECTOR, NATIVE_MODEL, *(m for record in records for m in record.models))
    # What a prepared detector is fitted on may be measured once more, for a bandwidth.
    scaled = OneOf(*plain, scaled_model(OneOf(*plain)))
    return OneOf(*plain, scaled_model(scaled))


def known_ensembles() -> OneOf:
    """Every ensemble that a file may have: some for any detector, and those of the registry."""
    records = [entry.record for entry in DETECTORS.values()]
    models = known_models()
    refit: dict[str, Spec] = {"models": Many(models), "full": models, "n_jobs": JOBS}
    full_refit: dict[str, Spec] = {
        "algorithm": _Algorithm(),
        "reference": ROWS,
        "seed": Plain(),
        "n_jobs": JOBS,
        "verbose": Setting(int, bool, default=0),
    }
    return OneOf(
        Record("RefitEnsemble", RefitEnsemble, refit, _check_refit),
        Record("FullRefit", FullRefit, full_refit, _check_full_refit, cost=_full_refit_cost),
        SCALED_FULL,
        *(ensemble for record in records for ensemble in record.ensembles),
    )


def write_ensemble(ensemble: Ensemble, plan: Plan, out: Writer, at: str = "ensemble") -> Json:
    """Write the ensemble of a plan."""
    if isinstance(ensemble, RepeatedSplit):
        splits = zip(ensemble.splits, plan.repeats, strict=True)
        return {
            "kind": "RepeatedSplit",
            "splits": [
                write_ensemble(split, own, out, f"{at}/splits/{k}")
                for k, (split, own) in enumerate(splits)
            ],
        }
    if isinstance(ensemble, WithAnomalies):
        return {
            "kind": WITH_ANOMALIES,
            "anomalies": ROWS.write(ensemble.anomalies, f"{at}/anomalies", out),
            "inner": write_ensemble(ensemble.inner, plan, out, f"{at}/inner"),
        }
    if isinstance(ensemble, FullChoice):
        models = [
            write_ensemble(one, plan, out, f"{at}/fitted/{k}")
            for k, one in enumerate(ensemble.fitted)
        ]
        return {"kind": type(ensemble).__name__, "names": list(ensemble.names), "fitted": models}
    if isinstance(ensemble, SplitChoice):
        json = {
            key: spec.write(getattr(ensemble, key), f"{at}/{key}", out)
            for key, spec in _SPLIT_ROWS.items()
        }
        for key in ("fitted", "tried"):
            json[key] = [
                None
                if key == "tried" and one is ensemble.fitted[k]
                else write_ensemble(one, one.plan, out, f"{at}/{key}/{k}")
                for k, one in enumerate(getattr(ensemble, key))
            ]
        most = max(trained_on(len(ensemble.trained), len(ensemble.selecting), counts_all=False))
        json["counts_all"] = [len(one.plan.train[0]) > most for one in ensemble.fitted]
        return {**json, "kind": type(ensemble).__name__, "names": list(ensemble.names)}
    scores = ensemble.calibration.scores
    follows = calibration_of(plan, scores).fingerprint == ensemble.calibration.fingerprint
    require(follows, "the calibration does not follow from the plan")
    if isinstance(ensemble, ScaledEnsemble):
        models = _write_scaled(ensemble, plan, out, at)
    else:
        models = known_ensembles().write(ensemble, at, out)
    return {"calibration": SCORES.write(scores, f"{at}/calibration", out), "models": models}


def read_ensemble(json: Json, plan: Plan, source: Reader) -> Ensemble:
    """Read the ensemble of a plan."""
    if json.get("kind") == "RepeatedSplit":
        splits, plans = json["splits"], plan.repeats
        require(len(splits) == len(plans) > 1, "a split has no model")
        read = [read_ensemble(split, own, source) for split, own in zip(splits, plans, strict=True)]
        sizes = {len(split.calibration) for split in read}
        require(len(sizes) == 1, "the splits calibrate on different numbers of rows")
        return RepeatedSplit(read)
    require(len(plan.repeats) == 1, "a split has no model")
    if json.get("kind") == WITH_ANOMALIES:
        return _read_with_anomalies(json, plan, source)
    if json.get("kind") in CHOICES:
        return _read_choice(json, plan, source)
    scores = SCORES.read(json["calibration"], source)
    require(not np.isnan(scores).any(), "a score is not a number")
    known: dict[str, Any] = {"plan": plan, "calibration": calibration_of(plan, scores)}
    models = json["models"]
    if models["kind"] == "ScaledEnsemble":
        return _read_scaled(models, **known, source=source)
    record = known_ensembles().record(models["kind"])
    # Full-conformal ensembles have no models that a plan could list.
    resampled = issubclass(record.kind, ResampledEnsemble)
    require(resampled != plan.row.augments, "the ensemble does not suit its plan")
    if not resampled:
        del known["plan"]
    ensemble: Ensemble = record.make(models, source, known)
    return ensemble


def _write_scaled(ensemble: ScaledEnsemble, plan: Plan, out: Writer, at: str) -> Json:
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
                "ensemble": write_ensemble(group.ensemble, part, inner, f"{at}/groups/{k}"),
            }
        )
    return {
        "kind": "ScaledEnsemble",
        "full": known_models().write(ensemble.full, f"{at}/full", out),
        "groups": groups,
    }


def _read_scaled(
    json: Json, plan: Plan, calibration: Calibration, source: Reader
) -> ScaledEnsemble:
    """Read the groups, which must have every model of the plan once."""
    require(set(json) == {"kind", "full", "groups"}, "an ensemble is incomplete")
    require(plan.full and not plan.row.augments, "the ensemble does not suit its plan")
    full = known_models().read(json["full"], source)
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
        ensemble = read_ensemble(
            entry["ensemble"], plan.part(which), replace(source, n_features=width)
        )
        require(isinstance(ensemble, ResampledEnsemble), "the ensemble does not suit its plan")
        assert isinstance(ensemble, ResampledEnsemble)
        groups.append(Group(units, which, ensemble))
    every = np.sort(np.concatenate([np.empty(0, np.int64), *(group.models for group in groups)]))
    wanted = 0 if plan.variant == "basic" else plan.n_models
    require(np.array_equal(every, np.arange(wanted)), "a model is in no group, or in two")
    return ScaledEnsemble(plan, calibration, groups, full)


# What a choice of detectors is called in files, and whether each new row has a model (`augments`).
CHOICES = {"FullChoice": True, "SplitChoice": False}
# What a choice from the pool needs of the reference.
_SPLIT_ROWS: dict[str, Spec] = {
    "trained": ROWS,
    "selecting": ROWS,
    "calibrating": ROWS,
    "seed": Plain(),
}


# What known anomalies beside an ensemble are called in files.
WITH_ANOMALIES = "WithAnomalies"


def _read_with_anomalies(json: Json, plan: Plan, source: Reader) -> WithAnomalies:
    """Read an ensemble that uses the batch, and the anomalies that stand beside it."""
    known, inner = ROWS.read(json["anomalies"], source), json["inner"]
    require(inner.get("kind") != WITH_ANOMALIES, "known anomalies are nested")
    require(
        known.shape[1] == source.n_features and len(known) > 0,
        "the known anomalies do not have the columns of the reference",
    )
    ensemble = read_ensemble(inner, plan, source)
    require(ensemble.ranks_rows != "alone", "a detector does not look at anomalies")
    accepts = np.isfinite(known) | np.isnan(known)
    require(bool(accepts.all()), "an anomaly is not finite")
    return WithAnomalies(ensemble, known)


def _read_choice(json: Json, plan: Plan, source: Reader) -> FullChoice | SplitChoice:
    """Read several detectors, of which one is chosen for every row, or for all."""
    augments = CHOICES[json["kind"]]
    suits = plan.row.takes_choice and plan.row.augments == augments
    require(suits, "the ensemble does not suit its plan")
    names, parts = json["names"], json["fitted"]
    words = isinstance(names, list) and all(isinstance(name, str) for name in names)
    require(words and isinstance(parts, list) and len(parts) > 0, "a name is missing")
    more = () if augments or len(names) == len(parts) else CLASSIFIERS
    require(tuple(names[len(parts) :]) == more, "a name is missing")
    listed = [*parts, *json.get("tried", ())]
    nested = any(part is not None and part.get("kind") in CHOICES for part in listed)
    require(not nested, "a choice of detectors contains another one")
    if augments:
        every = [read_ensemble(part, plan, source) for part in parts]
        sizes = {len(one.calibration) for one in every}
        require(len(sizes) == 1, "the detectors calibrate on different numbers of rows")
        return FullChoice(every[0].calibration, tuple(names), every)
    rows = {key: spec.read(json[key], source) for key, spec in _SPLIT_ROWS.items()}
    require(isinstance(rows["seed"], np.random.SeedSequence), "the seed is not a seed sequence")
    for key in ("trained", "selecting", "calibrating"):
        own = rows[key]
        require(own.shape[1] == source.n_features and len(own) > 0, "a row is missing")
        require(not np.isinf(own).any(), "a row is not finite")
    (train,), (held,) = plan.train, plan.held_out
    complete = len(rows["trained"]) + len(rows["selecting"]) == len(train)
    require(complete and len(rows["calibrating"]) == len(held), "a row is missing")
    kinds = json["counts_all"]
    known = isinstance(kinds, list) and all(type(kind) is bool for kind in kinds)
    require(known and len(kinds) == len(parts) == len(json["tried"]), "a model is missing")
    fitted: list[ResampledEnsemble] = []
    tried: list[ResampledEnsemble] = []
    for part, less, kind in zip(parts, json["tried"], kinds, strict=True):
        few, many = trained_on(len(rows["trained"]), len(rows["selecting"]), kind)
        require((less is None) == (few == many), "a model is missing")
        for to, some, size in ((fitted, part, many), (tried, less or part, few)):
            again = to is tried and less is None
            one = fitted[-1] if again else read_ensemble(some, plan_of_one(size, len(held)), source)
            require(isinstance(one, ResampledEnsemble), "a model scores no rows")
            assert isinstance(one, ResampledEnsemble)
            to.append(one)
    first = replace(fitted[0].calibration, rows=held)
    return SplitChoice(first, tuple(names), fitted, tried, **rows)


def write_groups(cad: ConformalDetector, out: Writer) -> dict[str, Json]:
    """Write which groups there are, and those of the reference rows; nothing without groups."""
    if cad.grouping_ is None:
        return {}
    codes, sample = cad.state_.groups, cad.state_.sample_groups
    assert codes is not None
    return {
        "groups": {
            "names": list(cad.grouping_.names),
            "codes": INDEX.write(codes.astype(np.int64), "groups/codes", out),
            "sample": Maybe(INDEX).write(sample, "groups/sample", out),
        }
    }


def read_groups(json: Json, cad: ConformalDetector, plan: Plan, source: Reader) -> Any:
    """Read the groups of the reference rows, and of the sample; two times None without groups."""
    require(type(cad.group_models) is bool, "group_models is true or false")
    if "groups" not in json:
        require(not cad.group_models, "the groups are missing")
        return None, None
    told = json["groups"]
    names, codes = told["names"], INDEX.read(told["codes"], source)
    words = isinstance(names, list) and all(isinstance(name, str) for name in names)
    require(words and names and sorted(set(names)) == names, "the groups have no names")
    fits = len(codes) == plan.n and within(codes, 0, len(names))
    require(fits and len(np.unique(codes)) == len(names), "a row has no group")
    sample = Maybe(INDEX).read(told["sample"], source)
    require(sample is None or within(sample, 0, len(names)), "a row has no group")
    groups = ReferenceGroups(tuple(names), codes, bool(cad.group_models))
    if not groups.single:
        check_groupable(plan, cad.method)
    return groups, sample


def write_fitted(cad: ConformalDetector, out: Writer) -> Json:
    """Write the models: of all rows, or of every group."""
    ensemble = cad.ensemble_
    if isinstance(ensemble, OneForAll):
        return write_ensemble(ensemble.ensemble, cad.plan_, out)
    if not isinstance(ensemble, OnePerGroup):
        return write_ensemble(ensemble, cad.plan_, out)
    each = list(zip(ensemble.plans, ensemble.ensembles, strict=True))
    return {
        "kind": "OnePerGroup",
        "plans": [write_plan(p, out, f"plans/{k}") for k, (p, _) in enumerate(each)],
        "fitted": [
            write_ensemble(one, p, out, f"ensembles/{k}") for k, (p, one) in enumerate(each)
        ],
    }


def read_fitted(
    json: Json, plan: Plan, groups: ReferenceGroups | None, source: Reader
) -> Ensemble | GroupedEnsemble:
    """Read the models, for ranks within the groups."""
    if groups is None or groups.single:
        return read_ensemble(json, plan, source)
    if not groups.models:
        ensemble = read_ensemble(json, plan, source)
        codes = groups.codes[ensemble.calibration.rows]
        require(len(np.unique(codes)) == len(groups.names), "a group has no calibration rows")
        return OneForAll(ensemble.calibration, ensemble, codes)
    require(json.get("kind") == "OnePerGroup", "the models of the groups are missing")
    plans = [read_plan(one, source) for one in json["plans"]]
    sizes = np.bincount(groups.codes).tolist()
    require([one.n for one in plans] == sizes, "a group has another number of rows")
    alike = all((p.scheme, p.variant) == (plan.scheme, plan.variant) for p in plans)
    require(alike and len(json["fitted"]) == len(plans), "the groups have different methods")
    fitted = [read_ensemble(one, p, source) for one, p in zip(json["fitted"], plans, strict=True)]
    kinds = {one.ranks_rows == "batch" for one in fitted}
    require(len(kinds) == 1, "the groups have different detectors")
    places = [np.flatnonzero(groups.codes == g) for g in range(len(groups.names))]
    parts = [one.calibration for one in fitted]
    return OnePerGroup(joined_calibration(parts, places), plans, fitted)
