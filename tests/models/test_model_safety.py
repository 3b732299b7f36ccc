"""What a model file may not do to whoever loads it, however it was written."""

import json
import os
import time

import numpy as np
import pytest
from sklearn.model_selection import ShuffleSplit

from forge import array, as_npy, forge, members_of, put, says, state
from reconform import ConformalDetector, CrossValidation, Resampling, records
from reconform.detectors import INNE, KDE, KNN, LOF, Contrast, IForest, Mahalanobis
from reconform.detectors.prepared import Prepared
from reconform.models import ModelFileError, load, save

RNG = np.random.default_rng(5)
X = RNG.normal(size=(30, 3))
NEW = RNG.normal(size=(4, 3))


def saved(detector, method, path, X=X, **options):
    cad = ConformalDetector(detector, method, random_state=7, **options).fit(X)
    save(cad, path, overwrite=True)
    return cad


def refused(path, match="damaged"):
    with pytest.raises(ModelFileError, match=match):
        load(path)


def edited(path, edit):
    """Change what model.json says, and the members."""
    members = members_of(path)
    model = json.loads(members["model.json"])
    edit(model, members)
    return forge(path, {**members, "model.json": json.dumps(model).encode()})


# --- 1. settings ---------------------------------------------------------------------------------


def test_settings_come_back_at_their_defaults(tmp_path):
    path = tmp_path / "m.rcad"
    for method in ("split", "full"):
        saved(KNN(n_neighbors=2, n_jobs=3), method, path, n_jobs=2, verbose=1)
        again = load(path)
        assert (again.n_jobs, again.verbose, again.detector.n_jobs) == (None, 0, None)
    saved("iforest", "split", path)

    def ask(model, members):
        model["parameters"] = {"dict": [["n_jobs", 24], ["verbose", 3]]}
        model["ensemble"]["models"]["n_jobs"] = 24

    again = load(edited(path, ask))
    assert (again.n_jobs, again.verbose) == (None, 0)
    assert again.ensemble_.n_jobs is None
    assert again.set_params(n_jobs=2).n_jobs == 2  # until its user says otherwise


# --- 2. plans ------------------------------------------------------------------------------------


def test_plans_of_small_training_sets_come_back(tmp_path):
    path = tmp_path / "m.rcad"
    few = ShuffleSplit(n_splits=40, train_size=10, random_state=0)
    cad = saved(KNN(n_neighbors=2), Resampling(few), path, RNG.normal(size=(3000, 3)))
    assert sum(map(len, cad.plan_.held_out)) == 40 * 2990
    assert np.array_equal(load(path, trusted=True).ranks(NEW), cad.ranks(NEW))


def test_what_would_be_refused_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "FREE_UNITS", 10)
    monkeypatch.setattr(records, "UNITS_PER_BYTE", 0)
    with pytest.raises(ValueError, match="cannot be saved: using it would take far more memory"):
        saved("knn", "cv+", tmp_path / "m.rcad")
    assert not os.listdir(tmp_path)


# --- 3. what does not fit together ---------------------------------------------------------------


def repeat_first(array):
    array[:] = array[0]


def turn(array):
    array[:] = array[::-1].copy()


def reach_out(array):
    array.flat[-1] = 200


def reach_back(array):
    return np.where(array == array.max(), np.int64(-5), array)


def no_sets(model, members):
    """An array of bounds with one entry stands for no sets, however many models are said to be."""
    for name in ("centre", "radius", "ratio"):
        put(members, f"ensemble/full/{name}.npy", lambda array: array[:0])
    put(members, "ensemble/full/edges.npy", lambda array: array[:1])
    model["ensemble"]["models"]["full"]["models"] = 1 << 40


def parameter(name, value):
    """Of a detector that is fitted again."""

    def edit(model, members):
        pairs = model["estimators"][0]["parameters"]["dict"]
        next(pair for pair in pairs if pair[0] == name)[1] = value

    return edit


def added(name, value):
    """A parameter of all estimators, beside those that are there."""

    def edit(model, members):
        for entry in model["estimators"]:
            entry["parameters"]["dict"].append([name, value])

    return edit


def labelled(value):
    def edit(model, members):
        for entry in model["estimators"]:
            for pair in entry["parameters"]["dict"]:
                pair[1] = value if pair[0] == "labels" else pair[1]

    return edit


UNITS = KNN(n_neighbors=3, scale="robust")
LABELLED = Prepared(KNN(n_neighbors=3, scale="robust"), (0, 3, 0))
TREES = IForest(2, max_samples=4), CrossValidation(folds=2)
FOREST, SPHERES = IForest(9, max_samples=8), INNE(9, max_samples=4)
SHARED_FOREST = IForest(9, max_samples=8, share=True)
SHARED_SPHERES = INNE(n_estimators=9, max_samples=4, share=True)
NEAR, FACTORS, SEVERAL = KNN(n_neighbors=3), LOF(n_neighbors=4), Contrast(n_neighbors=(1, 3))
FITTED = "ensemble/full"
MODELS = ("ensemble", "models")

FORGED = {
    "a class that is not ours": (*TREES, says(*MODELS, "kind", "Popen")),
    "another ensemble": (*TREES, says(*MODELS, "kind", "EnteredForest")),
    "a field too many": (*TREES, says(*MODELS, "__class__", 1)),
    "a field too few": (*TREES, lambda m, _: m["ensemble"]["models"].pop("full")),
    "a number for a forest": (*TREES, says(*MODELS, "full", 3)),
    "a word for a number": (*TREES, says(*MODELS, "full", "forest", "psi", "4")),
    "more rows than there are bytes": (*TREES, says("plan", "n", 10**12)),
    "leave-one-out of many": (
        *TREES, lambda m, _: m["plan"].update(n=10**12, sets="leave-one-out")),
    "another plan": (*TREES, says("plan", "sets", "train")),
    "an unknown scheme": (*TREES, says("plan", "scheme", "magic")),
    **{f"a plan of {name}": (*TREES, says("plan", "scheme", name))
       for name in ("full", "prefit", "split")},
    "a basic plan": (*TREES, says("plan", "variant", "basic")),
    "an aggregate": (*TREES, says("plan", "aggregate", "os.system")),
    "an array twice": (*TREES, lambda m, _: m["plan"].update(rows=m["plan"]["sizes"])),
    "an array of nobody": (*TREES, says("ensemble", {})),
    "a file elsewhere": (*TREES, says("plan", "rows", "/etc/passwd")),
    "an unknown parameter": (*TREES, says("parameters", {"dict": [["code", 1]]})),
    "a class as a detector": (*TREES, says("estimators", 0, "native", "Popen")),
    "a detector that contains itself": (
        *TREES, lambda m, _: m.update(detector={"estimator": 0}, estimators=[{"frozen": 0}])),
    "a generator that is none": (
        *TREES, state({"generator": {"dict": [["bit_generator", "seed"]]}})),
    "a type of objects": (
        *TREES, says("parameters", {"dict": [["alpha", {"scalar": ["O", 1]}]]})),
    **{f"{n} features": ("knn", "split", says("n_features", n))
       for n in (0, 1, 4, 10**30, 1 << 25, True, 2.0)},
    "names that do not fit": (*TREES, says("feature_names", ["a"])),
    "names that are a text": ("knn", "split", says("feature_names", "xxx")),
    "sets that do not add up": (*TREES, array("plan/sizes", reach_out)),
    "a row out of bounds": (*TREES, array("plan/rows", reach_out)),
    "another tree out of bounds": (
        *TREES, array("ensemble/models/1/forest/features", reach_out)),
    "a tree cut off": (*TREES, array("ensemble/full/forest/lengths", lambda x: x[:, :2])),
    "a score too few": (*TREES, array("ensemble/calibration", lambda x: x[:-1])),
    "another score": (*TREES, array("ensemble/calibration", reach_out)),
    "other scores": (*TREES, array("ensemble/calibration", lambda x: x.astype("f4"))),
    "scores in a table": (*TREES, array("ensemble/calibration", lambda x: x.reshape(2, -1))),
    "a model too few": (*TREES, lambda m, _: m["ensemble"]["models"]["models"].pop()),
    "too deep": (*TREES, says("parameters", json.loads("[" * 900 + "]" * 900))),
    "not an object": (*TREES, lambda m, _: m.clear()),
    **{str(value)[:40]: ("knn", "split", state(value)) for value in (
        {"fraction": ["1e50000000"]}, {"fraction": ["1", "3"]}, {"fraction": [1.5, 2]},
        {"fraction": [1, 0]}, {"fraction": [True, 2]}, {"fraction": [1, 2, 3]}, {"float": "1e5"},
        {"float": 3}, {"scalar": ["<f8", [1, 2, 3]]}, {"scalar": ["(1000000,)f8", 0]},
        {"seed": [1, [], 1 << 30]}, {"seed": [1, [], 0]}, {"seed": [[1] * 10_000, [], 4]},
        {"dict": [["a", 1, 2]]}, {"dict": [[1, 2]]})},
    # Indices that kernels would follow.
    **{f"{name} of {detector} {change.__name__}": (detector, method,
                                                   array(f"ensemble/{name}", change))
       for detector, method, name in (
           (FOREST, "split", "full/forest/features"),
           (SHARED_FOREST, "jackknife+", "regrown/features"),
           (SHARED_FOREST, "jackknife+", "variants/trees"),
           (SHARED_FOREST, "jackknife+", "variants/indptr"),
           (SHARED_FOREST, "jackknife+", "variants/rows"),
           (SHARED_FOREST, "jackknife+", "variants/model"),
           (FOREST, "full", "samples"),
           (FOREST, "full", "last"),
           (FOREST, "full", "draws/sizes"),
           (FOREST, "full", "draws/features"),
           (FOREST, "full", "base/features"),
           (SPHERES, "cv+", "models/centre"),
           (SPHERES, "cv+", "models/edges"),
           (SPHERES, "cv", "full/centre"),
           (SHARED_SPHERES, "jackknife+", "slots/spheres/centre"),
           (SHARED_SPHERES, "jackknife+", "slots/replaced"),
           (SHARED_SPHERES, "jackknife+", "slots/rows"),
           (SHARED_SPHERES, "jackknife+", "slots/starts"),
           (SPHERES, "full", "drawn"),
           (SHARED_SPHERES, "jackknife+", "model"))
       for change in (reach_out, reach_back)},
    # Arrays that do not fit together.
    **{f"{name} of {detector}, {method}, {k}": (detector, method,
                                                array(f"ensemble/{name}", change))
       for k, (detector, method, name, change) in enumerate((
           (SHARED_FOREST, "jackknife+", "variants/rows", repeat_first),
           (SHARED_FOREST, "jackknife+", "variants/rows", turn),
           (SHARED_FOREST, "jackknife", "variants/rows", turn),
           (SHARED_FOREST, "jackknife", "variants/model", lambda a: a + 1000),
           (SHARED_FOREST, "jackknife", "full/lengths", lambda a: a.astype("i8") - (1 << 62)),
           (SHARED_SPHERES, "jackknife+", "slots/rows", turn),
           (SHARED_SPHERES, "jackknife+", "slots/starts", turn),
           (SHARED_SPHERES, "jackknife+", "model", lambda a: a + 1000),
           (SHARED_SPHERES, "jackknife", "full/ratio", lambda a: a.astype(np.int64) - 5),
           (FOREST, "full", "totals", lambda a: a[:-1]),
           (SPHERES, "full", "totals", lambda a: a[:-1]),
           (SPHERES, "full", "drawn", lambda a: a[:-1]),
           (NEAR, "full", "near", lambda a: a[:, ::-1]),
           (NEAR, "full", "near", lambda a: a * np.nan),
           (NEAR, "split", "calibration", lambda a: a * np.nan),
           (NEAR, "jackknife+", "full/search/rows", lambda a: a * np.nan),
           (Mahalanobis(), "full", "reference/rows", lambda a: a[:-1]),
           (Mahalanobis(), "full", "reference/rows", lambda a: a * np.nan),
           (Mahalanobis(), "full", "reference/rows", lambda a: a[:-1]),
           (Mahalanobis(), "full", "reference/rows", lambda a: a[:, :-1]),
           (KDE(0.5), "full", "reference/rows", lambda a: a[:-1]),
           (KDE(0.5), "full", "reference/rows", lambda a: a * np.inf),
           (KDE(0.5), "full", "reference/rows", lambda a: a[:, :-1]),
           (FACTORS, "full", "order", lambda a: a * 0),
           (FACTORS, "full", "order", lambda a: a + 1),
           (FACTORS, "full", "X", turn),
           (FACTORS, "full", "X", lambda a: a[:-1]),
           (FACTORS, "full", "X", lambda a: a * np.inf),
           (FACTORS, "full", "X", lambda a: a[:, :-1]),
           (SEVERAL, "full", "model/ks", lambda a: a * 0),
           (SEVERAL, "full", "model/ks", lambda a: a + 100),
           (SEVERAL, "full", "model/ks", lambda a: a[:0]),
           (SEVERAL, "full", "model/ks", turn),
           (SEVERAL, "full", "model/X", lambda a: a[:, :-1]),
           (SEVERAL, "full", "model/X", lambda a: a[:-1]),
           (SEVERAL, "full", "model/X", lambda a: a * np.nan)))},
    # A scatter that is none; the basis is that of few rows.
    **{f"{name} of a scatter, {k}": (Mahalanobis(), "split", array(f"{FITTED}/{name}", change))
       for k, (name, change) in enumerate((
           ("mean", lambda a: a[:-1]),
           ("mean", lambda a: a * np.inf),
           ("basis", lambda a: a[:-1]),
           ("basis", lambda a: a[:, :-1]),
           ("basis", lambda a: a * np.nan),
           ("basis", lambda a: a * 1e9),
           ("factor", lambda a: a[:-1]),
           ("factor", lambda a: a * np.nan),
           ("factor", lambda a: a * 0.0)))},
    **{f"{name} {value}, {method}": (detector, method, says(*MODELS, "reference", name, value))
       for detector, name in ((Mahalanobis(), "ridge"), (KDE(0.5), "bandwidth"))
       for value in (0.0, -1.0, "inf", 1e300, None)
       for method in ("full",)},
    **{f"{path[-2]} {path[-1]}, {method}": (NEAR, method, says(*MODELS, *path))
       for method, *path in (
           ("jackknife+", "full", "high", 41),
           ("jackknife+", "full", "low", 0),
           ("cv+", "width", 42),
           ("full", "low", 4),
           ("split", "full", "search", "leaf_size", 1 << 40),
           ("split", "full", "search", "leaf_size", 0),
           ("split", "full", "search", "formula", "embed", "os.system"),
           ("split", "full", "n_jobs", "all"))},
    **{f"copies that were counted, {path}": ("knn", "split", says("looked_up", *path))
       for path in (
           ("limit", 1 << 64), ("limit", -1), ("limit", 0.5), ("occurrences", "rows", 10**30),
           ("occurrences", "twins", -1), ("occurrences", "twins", 10**6),
           ("occurrences", "contents", 0), ("occurrences", "contents", 2_001),
           ("occurrences", "repeated", 10**6))},
    # Groups of models with equal units.
    **{f"units of {name}, {k}": (UNITS, "jackknife+", array(f"ensemble/{name}", change))
       for name in ("full/units", "groups/0/units")
       for k, change in enumerate((lambda u: u[:2], lambda u: u.astype("i8") + 1000))},
    **{f"models of a group, {k}": (UNITS, "jackknife+", array("ensemble/groups/0/models", change))
       for k, change in enumerate((lambda m: m[::-1].copy(), lambda m: m + np.uint8(99),
                                   lambda m: m[:-1]))},
    "a group too few": (
        UNITS, "jackknife+", lambda m, _: m["ensemble"]["models"]["groups"].clear()),
    "a group without units": (
        UNITS, "jackknife+", lambda m, _: m["ensemble"]["models"]["groups"][0].pop("units")),
    "a group too many": (
        UNITS, "jackknife", lambda m, _: m["ensemble"]["models"]["groups"].append({})),
    "neighbours beyond all rows": (UNITS, "full", added("n_neighbors", 4096)),
    **{f"units of what has none, {m}": (UNITS, m, added("scale", "none"))
       for m in ("full", "jackknife+")},
    "a reference of NaN": (UNITS, "full", array("ensemble/reference", lambda rows: rows * np.nan)),
    "a narrow reference": (
        UNITS, "full", array("ensemble/reference", lambda rows: rows[:, :2].copy())),
    **{f"labels {labels}, {method}": (LABELLED, method, labelled(labels)) for labels, method in (
        ([0, 1 << 23, 0], "full"), ([0, 1 << 25, 0], "full"), ([0, "3", 0], "full"),
        ([0, 3], "full"), ([0, 9, 0], "jackknife+"))},
    **{f"units of labels, {k}": (LABELLED, "jackknife+", array("ensemble/full/units", change))
       for k, change in enumerate((lambda u: u[:-1], lambda u: u.astype("i8") + 600))},
    "no sets": (SPHERES, "split", no_sets),
    "refits of no trees": (FOREST, "full", parameter("n_estimators", None)),
    "refits of true features": (FOREST, "full", parameter("max_features", True)),
    "refits by nonsense": (NEAR, "full", parameter("metric", "nonsense")),
}  # fmt: skip


@pytest.mark.parametrize("what", FORGED)
def test_forged_models_are_refused(what, tmp_path):
    detector, method, edit = FORGED[what]
    options = {"larger_is": "anomalous"} if what.startswith("refits") else {}
    rows = RNG.normal(size=(2_500, 1)) if what.startswith("copies") else X
    if detector is LABELLED:
        rows = np.column_stack([X[:, 0], np.arange(len(X)) % 3, X[:, 2]])
    path = tmp_path / "m.rcad"
    saved(detector, method, path, X[:4] if what.startswith("basis") else rows, **options)
    refused(edited(path, edit))


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_a_scatter_that_no_fit_has_made_gives_numbers(factor, tmp_path):
    path = tmp_path / "m.rcad"
    saved(Mahalanobis(), "split", path)
    beyond = np.triu(np.full((3, 3), 1e300), 1)
    change = array(f"{FITTED}/factor", lambda a: beyond + np.diag(np.diag(a) * factor))
    assert not np.isnan(load(edited(path, change)).rank(NEW).scores).any()


def test_a_file_is_loaded_without_a_fit_on_all_its_rows(tmp_path):
    """All pairs of these rows would take a quarter of a minute."""
    path, n = tmp_path / "m.rcad", 60_000
    saved(KDE(scale="robust"), "full", path)

    def many(model, members):
        model["plan"]["n"] = n
        members["ensemble/reference.npy"] = as_npy(RNG.normal(size=(n, 3)))
        members["ensemble/calibration.npy"] = as_npy(np.zeros(n))

    edited(path, many)
    start = time.process_time()
    refused(path, "calibration is not the one")
    assert time.process_time() - start < 5
