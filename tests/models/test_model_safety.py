"""What a model file may not do to whoever loads it, however it was written."""

from __future__ import annotations

import json
import os
import time
from fractions import Fraction

import numpy as np
import pytest
from sklearn.model_selection import ShuffleSplit
from sklearn.pipeline import make_pipeline

from forge import as_npy, forge, members_of, put
from reconform import ConformalDetector, Resampling, records
from reconform.detectors import INNE, KDE, KNN, LOF, Contrast, IForest, Mahalanobis
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
    detector = make_pipeline(KNN(n_neighbors=2, n_jobs=3), memory=str(tmp_path), verbose=True)
    for method in ("split", "full"):
        saved(detector, method, path, n_jobs=2, verbose=1)
        again = load(path, trusted=True)
        assert (again.n_jobs, again.verbose) == (None, 0)
        assert (again.detector.memory, again.detector.verbose) == (None, False)
        assert again.detector[-1].n_jobs is None


def test_forged_settings(tmp_path):
    path = tmp_path / "m.rcad"
    saved("iforest", "split", path)
    asked = {"n_jobs": 24, "verbose": 3}

    def ask(model, members):
        model["parameters"] = {"dict": [[name, value] for name, value in asked.items()]}
        model["ensemble"]["models"]["n_jobs"] = 24

    again = load(edited(path, ask))
    assert (again.n_jobs, again.verbose) == (None, 0)
    assert again.ensemble_.n_jobs is None
    assert again.set_params(n_jobs=2).n_jobs == 2  # until its user says otherwise


def test_how_many_rows_can_be_judged_comes_back(tmp_path):
    """With method="auto" a split takes the place of full, and is fitted when it is needed."""
    path = tmp_path / "m.rcad"
    cad = saved(IForest(5, max_samples=8), "auto", path)
    assert cad.most_rows is not None
    assert load(path).most_rows == cad.most_rows


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


@pytest.mark.parametrize(
    "facts",
    [
        {"scheme": "full"},
        {"scheme": "prefit"},
        {"scheme": "split"},
        {"variant": "basic"},
    ],
    ids=str,
)
def test_plans_that_are_none(facts, tmp_path):
    path = tmp_path / "m.rcad"
    saved("iforest", "cv+", path)
    refused(edited(path, lambda model, _: model["plan"].update(facts)))


# --- 3. numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        {"fraction": ["1e50000000"]},
        {"fraction": ["1", "3"]},
        {"fraction": [1.5, 2]},
        {"fraction": [1, 0]},
        {"fraction": [True, 2]},
        {"fraction": [1, 2, 3]},
        {"float": "1e5"},
        {"float": 3},
        {"scalar": ["<f8", [1, 2, 3]]},
        {"scalar": ["(1000000,)f8", 0]},
        {"seed": [1, [], 1 << 30]},
        {"seed": [1, [], 0]},
        {"seed": [[1] * 10_000, [], 4]},
        {"dict": [["a", 1, 2]]},
        {"dict": [[1, 2]]},
    ],
    ids=str,
)
def test_values_that_are_none(value, tmp_path):
    path = tmp_path / "m.rcad"
    saved("knn", "split", path)
    edited(path, lambda m, _: m.update(parameters={"dict": [["random_state", value]]}))
    refused(path)


def test_exact_levels_come_back(tmp_path):
    path = tmp_path / "m.rcad"
    cad = saved("knn", "split", path)
    for level in (Fraction(1, 7), Fraction(1e-300)):
        save(cad.set_params(alpha=level), path, overwrite=True)
        assert load(path).alpha == level


# --- 5. shapes and ranges ------------------------------------------------------------------------


@pytest.mark.parametrize("n_features", [10**30, 1 << 25, True, 2.0, 4])
def test_widths_that_are_none(n_features, tmp_path):
    path = tmp_path / "m.rcad"
    saved("knn", "split", path)
    refused(edited(path, lambda model, _: model.update(n_features=n_features)))


def repeat_first(array):
    array[:] = array[0]


def turn(array):
    array[:] = array[::-1].copy()


SHARED_FOREST = IForest(n_estimators=9, max_samples=8, share=True)
SHARED_SPHERES = INNE(n_estimators=9, max_samples=4, share=True)


@pytest.mark.parametrize(
    ("detector", "method", "name", "change"),
    [
        (SHARED_FOREST, "jackknife+", "variants/rows", repeat_first),
        (SHARED_FOREST, "jackknife+", "variants/rows", turn),
        (SHARED_FOREST, "jackknife", "variants/rows", turn),
        (SHARED_FOREST, "jackknife", "variants/model", lambda a: a + 1000),
        (SHARED_FOREST, "jackknife", "full/lengths", lambda a: a.astype(np.int64) - (1 << 62)),
        (SHARED_SPHERES, "jackknife+", "slots/rows", turn),
        (SHARED_SPHERES, "jackknife+", "slots/starts", turn),
        (SHARED_SPHERES, "jackknife+", "model", lambda a: a + 1000),
        (SHARED_SPHERES, "jackknife", "full/ratio", lambda a: a.astype(np.int64) - 5),
        (IForest(5, max_samples=8), "full", "totals", lambda a: a[:-1]),
        (INNE(5, max_samples=4), "full", "totals", lambda a: a[:-1]),
        (INNE(5, max_samples=4), "full", "drawn", lambda a: a[:-1]),
        (KNN(n_neighbors=3), "full", "near", lambda a: a[:, ::-1]),
        (KNN(n_neighbors=3), "full", "near", lambda a: a * np.nan),
        (KNN(n_neighbors=3), "split", "calibration", lambda a: a * np.nan),
        (Mahalanobis(), "full", "reference/rows", lambda a: a[:-1]),
        (Mahalanobis(), "full", "reference/rows", lambda a: a * np.nan),
        (Mahalanobis(), "jackknife+", "reference/rows", lambda a: a[:-1]),
        (Mahalanobis(), "jackknife+", "reference/rows", lambda a: a[:, :-1]),
        (KDE(0.5), "full", "reference/rows", lambda a: a[:-1]),
        (KDE(0.5), "jackknife+", "reference/rows", lambda a: a * np.inf),
        (KDE(0.5), "jackknife+", "reference/rows", lambda a: a[:, :-1]),
        (LOF(n_neighbors=4), "jackknife+", "places", lambda a: a * 0),
        (LOF(n_neighbors=4), "jackknife+", "places", lambda a: a + 1),
        (LOF(n_neighbors=4), "jackknife+", "full/X", turn),
        (LOF(n_neighbors=4), "jackknife+", "full/X", lambda a: a[:-1]),
        (LOF(n_neighbors=4), "full", "X", lambda a: a * np.inf),
        (LOF(n_neighbors=4), "full", "X", lambda a: a[:, :-1]),
        (Contrast(n_neighbors=(1, 3)), "full", "model/ks", lambda a: a * 0),
        (Contrast(n_neighbors=(1, 3)), "full", "model/ks", lambda a: a + 100),
        (Contrast(n_neighbors=(1, 3)), "full", "model/ks", lambda a: a[:0]),
        (Contrast(n_neighbors=(1, 3)), "full", "model/ks", turn),
        (Contrast(n_neighbors=(1, 3)), "full", "model/X", lambda a: a[:, :-1]),
        (Contrast(n_neighbors=(1, 3)), "full", "model/X", lambda a: a[:-1]),
        (Contrast(n_neighbors=(1, 3)), "full", "model/X", lambda a: a * np.nan),
    ],
)
def test_arrays_that_do_not_fit_together(detector, method, name, change, tmp_path):
    path = tmp_path / "m.rcad"
    saved(detector, method, path)
    refused(edited(path, lambda _, members: put(members, f"ensemble/{name}.npy", change)))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mean", lambda a: a[:-1]),
        ("mean", lambda a: a * np.inf),
        ("basis", lambda a: a[:-1]),
        ("basis", lambda a: a[:, :-1]),
        ("basis", lambda a: a * np.nan),
        ("basis", lambda a: a * 1e9),
        ("factor", lambda a: a[:-1]),
        ("factor", lambda a: a * np.nan),
        ("factor", lambda a: a * 0.0),
    ],
)
def test_a_scatter_that_is_none(name, change, tmp_path):
    path = tmp_path / "m.rcad"
    saved(Mahalanobis(), "split", path, X[:4] if name == "basis" else X)
    at = f"estimators/1/fitted/{name}.npy"
    refused(edited(path, lambda _, members: put(members, at, change)))


@pytest.mark.parametrize("factor", [1e-300, 1e300])
def test_a_scatter_that_no_fit_has_made_gives_numbers(factor, tmp_path):
    path = tmp_path / "m.rcad"
    saved(Mahalanobis(), "split", path)

    def change(_, members):
        beyond = np.triu(np.full((3, 3), 1e300), 1)
        at = "estimators/1/fitted/factor.npy"
        put(members, at, lambda a: beyond + np.diag(np.diag(a) * factor))

    ranks = load(edited(path, change)).rank(NEW)
    assert not np.isnan(ranks.scores).any()


@pytest.mark.parametrize("value", [0.0, -1.0, "inf", 1e300, None])
@pytest.mark.parametrize("method", ["full", "jackknife+"])
@pytest.mark.parametrize(
    ("detector", "field"),
    [(Mahalanobis(), ("reference", "ridge")), (KDE(0.5), ("reference", "bandwidth"))],
)
def test_a_ridge_or_a_bandwidth_that_is_none(detector, field, method, value, tmp_path):
    path = tmp_path / "m.rcad"
    saved(detector, method, path)

    def change(model, _):
        model["ensemble"]["models"][field[0]][field[1]] = value

    refused(edited(path, change))


def test_models_without_any_sets(tmp_path):
    """An array of bounds with one entry stands for no sets, however many models are said to be."""
    path = tmp_path / "m.rcad"
    saved(INNE(5, max_samples=4), "split", path)

    def none_of_many(model, members):
        for name in ("centre", "radius", "ratio"):
            put(members, f"ensemble/full/{name}.npy", lambda array: array[:0])
        put(members, "ensemble/full/edges.npy", lambda array: array[:1])
        model["ensemble"]["models"]["full"]["models"] = 1 << 40

    refused(edited(path, none_of_many), "equally many sets")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("limit", 1 << 64),
        ("limit", -1),
        ("limit", 0.5),
        ("rows", 10**30),
        ("twins", -1),
        ("twins", 10**6),
        ("contents", 0),
        ("contents", 2_001),
        ("repeated", 10**6),
    ],
)
def test_copies_that_cannot_have_been_counted(field, value, tmp_path):
    path = tmp_path / "m.rcad"
    saved("knn", "split", path, RNG.normal(size=(2_500, 1)))

    def count(model, _):
        known = model["looked_up"]
        (known if field == "limit" else known["occurrences"])[field] = value

    refused(edited(path, count))


def test_names_of_columns_are_a_list(tmp_path):
    path = tmp_path / "m.rcad"
    saved("knn", "split", path)
    width = load(path).n_features_in_
    refused(edited(path, lambda model, _: model.update(feature_names="x" * width)))


def test_parameters_that_cannot_be_fitted_with(tmp_path):
    path = tmp_path / "m.rcad"
    for detector, name, value in (
        (IForest(5, max_samples=8), "n_estimators", None),
        (IForest(5, max_samples=8), "max_features", True),
        (KNN(n_neighbors=3), "metric", "nonsense"),
    ):
        saved(detector, "full", path, larger_is="anomalous")

        def change(model, _, name=name, value=value):
            parameters = model["estimators"][0]["parameters"]["dict"]
            next(pair for pair in parameters if pair[0] == name)[1] = value

        refused(edited(path, change))


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
