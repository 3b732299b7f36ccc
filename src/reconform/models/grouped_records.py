"""Groups in the file: the names, the groups of the reference rows, and the models of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..detector import ConformalDetector
from ..ensemble import Ensemble
from ..ensemble.grouped import GroupedEnsemble, OneForAll, OnePerGroup, joined_calibration
from ..grouping import UNKNOWN, ReferenceGroups, check_groupable
from ..methods import Plan
from ..records.checks import require, within
from ..records.specs import Array, Json, Maybe, Reader, Writer
from .ensemble_records import read_ensemble, write_ensemble
from .plans import read_plan, write_plan

CODES = Array("i8", ndim=1)


def write_groups(cad: ConformalDetector, out: Writer) -> dict[str, Json]:
    """Write which groups there are, and those of the reference rows; nothing without groups."""
    if cad.grouping_ is None:
        return {}
    codes, sample = cad._reference_groups, cad._sample_groups
    assert codes is not None
    return {
        "groups": {
            "names": list(cad.grouping_.names),
            "codes": CODES.write(codes.astype(np.int64), "groups/codes", out),
            "sample": Maybe(CODES).write(sample, "groups/sample", out),
        }
    }


def read_groups(json: Json, cad: ConformalDetector, plan: Plan, source: Reader) -> Any:
    """Read the groups of the reference rows, and of the sample; two times None without groups."""
    require(type(cad.group_models) is bool, "group_models is true or false")
    require(cad.unknown_groups in UNKNOWN, f"unknown_groups is {cad.unknown_groups!r}")
    if "groups" not in json:
        require(not cad.group_models, "the groups are missing")
        return None, None
    told = json["groups"]
    names, codes = told["names"], CODES.read(told["codes"], source)
    words = isinstance(names, list) and all(isinstance(name, str) for name in names)
    require(words and names and sorted(set(names)) == names, "the groups have no names")
    fits = len(codes) == plan.n and within(codes, 0, len(names))
    require(fits and len(np.unique(codes)) == len(names), "a row has no group")
    sample = Maybe(CODES).read(told["sample"], source)
    require(sample is None or within(sample, 0, len(names)), "a row has no group")
    pooled = cad.unknown_groups == "pooled"
    groups = ReferenceGroups(tuple(names), codes, bool(cad.group_models), pooled)
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
        return OneForAll(ensemble.calibration, ensemble, codes, groups.pooled)
    require(json.get("kind") == "OnePerGroup", "the models of the groups are missing")
    plans = [read_plan(one, source) for one in json["plans"]]
    sizes = np.bincount(groups.codes).tolist() + [plan.n] * groups.pooled
    require([one.n for one in plans] == sizes, "a group has another number of rows")
    alike = all((p.scheme, p.variant) == (plan.scheme, plan.variant) for p in plans)
    require(alike and len(json["fitted"]) == len(plans), "the groups have different methods")
    fitted = [read_ensemble(one, p, source) for one, p in zip(json["fitted"], plans, strict=True)]
    kinds = {one.uses_batch for one in fitted}
    require(len(kinds) == 1, "the groups have different detectors")
    places = [np.flatnonzero(groups.codes == g) for g in range(len(groups.names))]
    parts = [one.calibration for one in fitted[: len(places)]]
    return OnePerGroup(joined_calibration(parts, places), plans, fitted, groups.pooled)
