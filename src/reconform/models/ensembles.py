"""Every ensemble, described for the file. A new one needs a record here, and nothing elsewhere.

A plan is stored once, for the whole model; an ensemble stores its calibration scores, and who was
held out where follows from the plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from ..detectors.foreign import FittedDetector, ForeignDetector
from ..detectors.forest_ensemble import ForestEnsemble
from ..detectors.full_forest import FullForest
from ..detectors.full_neighbours import FullNeighbours
from ..detectors.inne_ensembles import FullINNE, SeparateINNE, SharedINNE
from ..detectors.knn_ensembles import LeaveOneOut, OneTable
from ..detectors.native import NativeDetector
from ..detectors.shared_forest import SharedForestEnsemble
from ..ensemble import Ensemble, RefitEnsemble
from ..keep import KeptModel
from ..methods import Plan
from ..repeats import RepeatedSplit
from ..transductive import FullRefit
from .blocks import (
    COMMON_SPHERES,
    DRAWS,
    FLOAT,
    FOREST,
    FOREST_DRAWS,
    INT,
    JOBS,
    KNN_MODEL,
    RECIPE,
    REPLACEMENTS,
    SEARCH,
    SHARED_DRAWS,
    SHARED_TREES,
    SLOTS,
    SPHERES,
    rows_of,
)
from .kinds import (
    Array,
    Detector,
    Json,
    Many,
    Maybe,
    OneOf,
    Reader,
    Record,
    Scalar,
    Setting,
    Spec,
    Writer,
    ascending,
    require,
    within,
)
from .plain import Plain
from .plans import calibration_of
from .sound import check_columns, check_refit

ROWS, SCORES, SUMS = Array("f8", ndim=2), Array("f8", ndim=1), Array("i8", ndim=1)

_FOREIGN: Mapping[str, Spec] = {
    "score_name": Scalar(str, None), "sign": INT, "name": Scalar(str)
}  # fmt: skip


def _check_scoring(detector: FittedDetector | ForeignDetector, model: Any) -> None:
    # Any other method of the model would be called with the rows.
    known = detector.score_name in ("score_samples", "decision_function")
    require(known and detector.sign in (-1, 1), f"nothing is scored by {detector.score_name!r}")
    require(hasattr(model, "fit"), "a detector is none")


def _check_fitted(detector: FittedDetector, d: int) -> None:
    _check_scoring(detector, detector.model)
    check_columns(detector.model, d)


def _check_template(detector: ForeignDetector, d: int) -> None:
    _check_scoring(detector, detector.template)
    check_columns(detector.template, d)


FITTED_DETECTOR = Record(
    FittedDetector, {"model": Detector(fitted=True), **_FOREIGN}, _check_fitted
)
FOREIGN_DETECTOR = Record(
    ForeignDetector, {"template": Detector(fitted=False), **_FOREIGN}, _check_template
)


class _Model(OneOf):
    """One fitted model; one that is kept in a folder comes from there."""

    def write(self, value: Any, at: str, out: Writer) -> Json:
        """Write the model itself."""
        return super().write(value.load() if isinstance(value, KeptModel) else value, at, out)


MODEL = _Model(FITTED_DETECTOR, KNN_MODEL)


# --- what must hold ------------------------------------------------------------------------------


def _check_count(models: int, ensemble: Any) -> None:
    plan = ensemble.plan
    wanted = plan.n_models if plan.full and plan.variant != "basic" else 0
    require(models == wanted, "the ensemble has another number of models than its plan")


def _check_kept(kept: Any, plan: Plan) -> None:
    retained = plan.variant != "basic"
    require((kept is not None) == retained, "the ensemble does not suit the variant of its plan")


def _check_refit(ensemble: RefitEnsemble, d: int) -> None:
    _check_count(len(ensemble.models), ensemble)


def _check_forests(ensemble: ForestEnsemble, d: int) -> None:
    _check_count(len(ensemble.forests), ensemble)


def _check_separate(ensemble: SeparateINNE, d: int) -> None:
    _check_count(0 if ensemble.models is None else ensemble.models.models, ensemble)
    require(ensemble.full.models == 1, "A(D) is one model")


def _check_leave_one_out(ensemble: LeaveOneOut, d: int) -> None:
    n = len(rows_of(ensemble.full.search))
    require(ensemble.plan.leaves_one_out and n == ensemble.plan.n, "a row has no model")
    require(ensemble.full.high < n, "a model looks at more neighbours than it has rows")


def _check_table(ensemble: OneTable, d: int) -> None:
    n, table = len(rows_of(ensemble.full.search)), ensemble.multiplicity
    _check_kept(table, ensemble.plan)
    require(n == ensemble.plan.n and 1 <= ensemble.width <= n, "the table has the wrong size")
    if table is not None:
        require(table.shape == (n, ensemble.plan.n_models), "the table has the wrong shape")
        counts = table.sum(axis=0, dtype="u8")
        require((counts >= ensemble.full.high).all(), "a model has too few neighbours")


def _check_shared_forest(ensemble: SharedForestEnsemble, d: int) -> None:
    n, some, full = ensemble.plan.n, ensemble.replacements, ensemble.full
    require(ensemble.plan.leaves_one_out and len(ensemble.path_sums) == n, "a row has no model")
    _check_kept(ensemble.regrown, ensemble.plan)
    require(ensemble.recipe.psi == full.psi, "trees draw another number of rows")
    require(ensemble.recipe.n_trees == len(full), "the forest has another number of trees")
    require(within(some.rows, 0, n) and within(some.left_out, 0, n), "a row does not exist")
    require(within(some.trees, 0, len(full)), "a tree that is replaced does not exist")
    if ensemble.regrown is not None:
        fits = len(ensemble.regrown) == len(some) and ensemble.regrown.psi == full.psi
        require(fits, "the trees that replace others are not those that should")


def _check_shared_inne(ensemble: SharedINNE, d: int) -> None:
    require(ensemble.plan.leaves_one_out and ensemble.full.models == 1, "a row has no model")
    _check_kept(ensemble.slots, ensemble.plan)
    draws, n = ensemble.draws, ensemble.plan.n
    require(within(draws.samples, 0, n) and within(draws.redrawn, 0, n), "a row does not exist")
    require(len(draws.samples) == ensemble.full.sets, "a set has no draws")
    if ensemble.slots is not None:
        require(within(ensemble.slots.rows, 0, ensemble.plan.n), "a row does not exist")


def _check_reference(n: int, ensemble: Any) -> None:
    require(n == len(ensemble.calibration), "the reference has another size than its scores")


def _check_full_neighbours(ensemble: FullNeighbours, d: int) -> None:
    n, high = ensemble.near.shape
    _check_reference(n, ensemble)
    require(n == len(rows_of(ensemble.search)), "a row has no neighbours")
    require(1 <= ensemble.low <= high <= n, "rows have the wrong number of neighbours")
    require(ensemble.root > 0 and (ensemble.near >= 0).all(), "a distance is not one")
    require(ascending(ensemble.near.T), "neighbours are not in order")


def _check_full_forest(ensemble: FullForest, d: int) -> None:
    n, trees, psi = len(ensemble.sums), len(ensemble.draws.keys), ensemble.recipe.psi
    draws, drawn = ensemble.draws, ensemble.drawn
    _check_reference(n, ensemble)
    require(ensemble.shared.psi == psi <= n + 1, "trees draw more rows than there are")
    require(len(ensemble.shared) + trees == ensemble.recipe.n_trees, "a tree is missing")
    require(ascending(ensemble.sums), "the reference is not in order")
    require(draws.samples.shape == (trees, psi), "a tree has no rows")
    require(within(draws.samples, -1, len(drawn) + 1), "a tree drew a row that does not exist")
    require(trees == 0 or len(draws.features) in (1, trees), "a tree has no features")
    require(within(draws.features, 0, d), "a tree splits a feature that does not exist")
    require(drawn.shape[1] == ensemble.reference.shape[1] == d, "rows have the wrong shape")
    require(len(ensemble.reference) == (n if trees else 0), "the reference has another size")
    for rows in (drawn, ensemble.reference):
        require(np.isfinite(rows).all(), "a row is not finite")


def _check_full_inne(ensemble: FullINNE, d: int) -> None:
    n = len(ensemble.reference)
    _check_reference(n, ensemble)
    require(ensemble.reference.shape[1] == d, "the reference has the wrong shape")
    require(np.isfinite(ensemble.reference).all(), "a row is not finite")
    require(ensemble.common.models == 1, "the common sets are one model")
    require(within(ensemble.draws.samples, 0, n + 1), "a set drew a row that does not exist")
    require(len(ensemble.order) == len(ensemble.common_sums) == n, "a row has no sum")
    require(within(ensemble.order, 0, n), "a row does not exist")
    require(ascending(ensemble.common_sums), "the reference is not in order")
    drew = (ensemble.draws.samples == n).any(axis=1)
    require(ensemble.common.sets + drew.sum() == len(drew) > 0, "a set is missing")


def _check_full_refit(ensemble: FullRefit, d: int) -> None:
    n = len(ensemble.reference)
    _check_reference(n, ensemble)
    require(ensemble.reference.shape[1] == d, "the reference has the wrong shape")
    require(isinstance(ensemble.seed, np.random.SeedSequence), "the seed is none")
    assert isinstance(ensemble.algorithm, ForeignDetector)
    missing = np.isnan(ensemble.reference) if ensemble.algorithm.accepts_nan else False
    require((np.isfinite(ensemble.reference) | missing).all(), "a row is not finite")
    check_refit(ensemble.algorithm.template, n)
    if isinstance(ensemble.algorithm.template, NativeDetector):
        # Whether its parameters suit these rows, one fit says, as every row to come will take.
        ensemble.algorithm.fit_model(ensemble.reference, ensemble.seed)


# --- the ensembles -------------------------------------------------------------------------------

ENSEMBLES = OneOf(
    Record(RefitEnsemble, {"models": Many(MODEL), "full": MODEL, "n_jobs": JOBS}, _check_refit),
    Record(
        FullRefit,
        {
            "algorithm": FOREIGN_DETECTOR,
            "reference": ROWS,
            "seed": Plain(),
            "n_jobs": JOBS,
            "verbose": Setting(int, bool, default=0),
        },
        _check_full_refit,
    ),
    Record(LeaveOneOut, {"full": KNN_MODEL}, _check_leave_one_out),
    Record(
        OneTable,
        {"full": KNN_MODEL, "multiplicity": Maybe(Array("u1", "u4", ndim=2)), "width": INT},
        _check_table,
    ),
    Record(
        FullNeighbours,
        {"search": SEARCH, "root": FLOAT, "near": ROWS, "low": INT, "n_jobs": JOBS},
        _check_full_neighbours,
    ),
    Record(
        ForestEnsemble,
        {"forests": Many(FOREST), "full": FOREST, "n_jobs": JOBS},
        _check_forests,
    ),
    Record(
        SharedForestEnsemble,
        {
            "full": FOREST,
            "recipe": RECIPE,
            "replacements": REPLACEMENTS,
            "regrown": Maybe(FOREST),
            "path_sums": SUMS,
            "n_jobs": JOBS,
        },
        _check_shared_forest,
    ),
    Record(
        FullForest,
        {
            "recipe": RECIPE,
            "shared": SHARED_TREES,
            "sums": SUMS,
            "reference": ROWS,
            "drawn": ROWS,
            "draws": FOREST_DRAWS,
            "n_jobs": JOBS,
        },
        _check_full_forest,
    ),
    Record(
        SeparateINNE,
        {"full": SPHERES, "models": Maybe(SPHERES), "n_jobs": JOBS},
        _check_separate,
    ),
    Record(
        SharedINNE,
        {"full": SPHERES, "draws": SHARED_DRAWS, "slots": Maybe(SLOTS), "n_jobs": JOBS},
        _check_shared_inne,
    ),
    Record(
        FullINNE,
        {
            "reference": ROWS,
            "draws": DRAWS,
            "common": COMMON_SPHERES,
            "order": SUMS,
            "common_sums": SUMS,
            "n_jobs": JOBS,
        },
        _check_full_inne,
    ),
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
    scores = ensemble.calibration.scores
    follows = calibration_of(plan, scores).fingerprint == ensemble.calibration.fingerprint
    require(follows, "the calibration does not follow from the plan")
    return {
        "calibration": SCORES.write(scores, f"{at}/calibration", out),
        "models": ENSEMBLES.write(ensemble, at, out),
    }


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
    scores = SCORES.read(json["calibration"], source)
    require(not np.isnan(scores).any(), "a score is not a number")
    known: dict[str, Any] = {"plan": plan, "calibration": calibration_of(plan, scores)}
    record = ENSEMBLES.record(json["models"]["kind"])
    names = {item.name for item in fields(record.kind)}
    # Full-conformal ensembles have no models that a plan could list.
    require(("plan" in names) == (plan.scheme != "full"), "the ensemble does not suit its plan")
    more = {key: value for key, value in known.items() if key in names}
    ensemble: Ensemble = record.make(json["models"], source, more)
    return ensemble
