"""What a model file may not do to whoever loads it, however it was written."""

from __future__ import annotations

import inspect
import io
import json
import os
import resource
import subprocess
import sys
import warnings
from fractions import Fraction

import joblib
import numpy as np
import pytest
from sklearn.covariance import EllipticEnvelope
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.kernel_approximation import RBFSampler
from sklearn.model_selection import ShuffleSplit
from sklearn.neighbors import KernelDensity, LocalOutlierFactor
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection
from sklearn.svm import OneClassSVM
from sklearn.utils import all_estimators

from forge import as_npy, forge, members_of, packed, put
from reconform import ConformalDetector, Resampling
from reconform.detectors import INNE, KDE, KNN, IForest, Mahalanobis
from reconform.models import ModelFileError, load, plans, save, settings, sound
from reconform.models import inspect as facts_of

pytest.importorskip("skops", reason="foreign objects are saved through skops")

RNG = np.random.default_rng(5)
X = RNG.normal(size=(30, 3))
NEW = RNG.normal(size=(4, 3))


def saved(detector, method, path, X=X, **options):
    cad = ConformalDetector(detector, method, random_state=7, **options).fit(X)
    save(cad, path, overwrite=True)
    return cad


def loaded(path):
    return load(path, trusted=facts_of(path).foreign_types)


def refused(path, match="damaged"):
    with pytest.raises(ModelFileError, match=match):
        loaded(path)


def edited(path, edit):
    """Change what model.json says, and the members."""
    members = members_of(path)
    model = json.loads(members["model.json"])
    edit(model, members)
    return forge(path, {**members, "model.json": json.dumps(model).encode()})


def object_edited(path, edit, number=0):
    """Change an object that skops stored: its schema, and its members."""
    members = members_of(path)
    name = f"foreign/{number}.skops"
    inner = members_of(io.BytesIO(members[name]))
    schema = json.loads(inner["schema.json"])
    edit(schema, inner)
    inner["schema.json"] = json.dumps(schema).encode()
    return forge(path, {**members, name: packed(inner)})


def nodes(schema):
    """Every node of a schema."""
    if isinstance(schema, dict):
        yield schema
    for child in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(child, dict | list):
            yield from nodes(child)


def attributes(schema, kind):
    """The attributes of the first object of a class."""
    return next(n for n in nodes(schema) if n.get("__class__") == kind)["content"]["content"]


def json_node(value):
    return {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode",
            "content": json.dumps(value), "is_json": True}  # fmt: skip


# --- 1. settings ---------------------------------------------------------------------------------


class Planted:
    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (self.place,)


@pytest.mark.parametrize(
    "detector",
    [
        make_pipeline(StandardScaler(), PCA(2), KNN(n_neighbors=2)),  # in model.json
        make_pipeline(StandardScaler(), PCA(2), OneClassSVM()),  # by skops
        make_pipeline(Pipeline([("inner", make_pipeline(StandardScaler()))]), OneClassSVM()),
    ],
    ids=["native", "skops", "nested"],
)
def test_a_file_chooses_no_folder_of_pickles(detector, tmp_path):
    path, folder, place = tmp_path / "m.rcad", tmp_path / "cache", tmp_path / "executed"
    for part in settings.parts_of(detector):
        if isinstance(part, Pipeline):
            part.set_params(memory=str(folder))
    cad = saved(detector, "full", path)
    assert list(folder.rglob("*.pkl"))  # it was used while fitting, as the user asked for
    for cached in folder.rglob("*.pkl"):
        joblib.dump(Planted(str(place)), cached)

    def ask(model, members):
        for entry in model["estimators"]:
            if "pipeline" in entry:
                entry["parameters"] = {"dict": [["memory", str(folder)], ["verbose", True]]}

    edited(path, ask)
    again = loaded(path)
    before = sorted(folder.rglob("*"))
    ranks = again.ranks(NEW)
    assert not place.exists()
    assert sorted(folder.rglob("*")) == before
    for part in settings.parts_of(again):
        if isinstance(part, Pipeline):
            assert part.memory is None
            assert part.verbose is False
    cad.set_params(detector=again.detector)
    assert np.array_equal(ranks, cad.fit(X).ranks(NEW))


# Whatever names a folder, code, a device, workers, or what is printed.
SUSPICIOUS = (
    "memory", "path", "dir", "file", "folder", "job", "worker", "thread", "backend", "device",
    "verbose", "cache", "callback", "parallel", "dispatch", "gpu", "cuda", "url", "silent", "input",
)  # fmt: skip
HARMLESS = {
    "decision_function_shape", "direction", "fit_path", "path_method", "transform_input",
    "verbose_feature_names_out", "verbose_interval", "n_iter_without_progress", "input_type",
    "probability", "warm_start",
}  # fmt: skip


def test_every_suspicious_parameter_of_scikit_learn_is_in_the_table():
    for name, kind in all_estimators():
        for parameter in inspect.signature(kind).parameters:
            if any(word in parameter for word in SUSPICIOUS) and parameter not in HARMLESS:
                assert parameter in settings.SETTINGS, f"{parameter} of {name}"


def test_settings_come_back_at_their_defaults_at_every_level(tmp_path):
    path = tmp_path / "m.rcad"
    inner = LocalOutlierFactor(novelty=True, n_neighbors=4, n_jobs=3)
    outer = make_pipeline(StandardScaler(), inner, verbose=True)
    for method in ("split", "full"):
        saved(outer, method, path, n_jobs=2, verbose=1)
        for part in settings.parts_of(loaded(path)):
            values = settings.attributes_of(part)
            assert values.get("n_jobs") is None
            assert not values.get("verbose")
    pyod = pytest.importorskip("pyod.models.lof", reason="needs reconform[pyod]")
    saved(pyod.LOF(n_neighbors=4, n_jobs=3), "split", path)
    jobs = [settings.attributes_of(p).get("n_jobs") for p in settings.parts_of(loaded(path))]
    assert set(jobs) <= {None, 1}  # PyOD's own default is 1


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


def test_what_is_scored_by_is_one_of_two_methods(tmp_path):
    path = tmp_path / "m.rcad"
    saved(OneClassSVM(), "split", path)
    for name in ("fit", "set_params", "__init__", None):
        refused(
            edited(path, lambda m, _, n=name: m["ensemble"]["models"]["full"].update(score_name=n))
        )


def test_a_refit_at_any_price_is_refused(tmp_path):
    path = tmp_path / "m.rcad"
    saved(IForest(5, max_samples=8), "full", path, larger_is="anomalous")

    def more(model, members):
        parameters = model["estimators"][0]["parameters"]["dict"]
        next(pair for pair in parameters if pair[0] == "n_estimators")[1] = 10**9

    refused(edited(path, more), "n_estimators is 1000000000")


@pytest.mark.parametrize(
    ("step", "name", "value", "match"),
    [
        (PolynomialFeatures(degree=1), "degree", 30, "columns would come out of Polynomial"),
        (PolynomialFeatures(degree=1), "degree", [0, 10**9], "degree is 1000000000"),
        (KBinsDiscretizer(2, encode="onehot-dense"), "n_bins", 1 << 16, None),
        (RBFSampler(n_components=2), "n_components", 1 << 16, None),
        (FeatureUnion([("one", PolynomialFeatures(degree=1))]), "degree", 30, None),
        (make_pipeline(PolynomialFeatures(degree=1)), "degree", 30, None),
        (GaussianRandomProjection(2), "n_components", 1 << 16, None),
    ],
)
def test_a_refit_on_any_number_of_columns_is_refused(step, name, value, match, tmp_path):
    path, wide = tmp_path / "m.rcad", RNG.normal(size=(12, 1100))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        saved(make_pipeline(step, OneClassSVM()), "full", path, wide)
    loaded(path)

    def more(schema, members):
        for node in nodes(schema):
            if name in (content := node.get("content", {})) and isinstance(content, dict):
                content[name] = json_node(value)

    refused(object_edited(path, more), match or "columns would come out")


def test_a_fit_by_a_batch_of_very_many_rows_has_a_price_too(tmp_path):
    """With method="auto" a split takes the place of full, and is fitted when it is needed."""
    path = tmp_path / "m.rcad"
    cad = saved(IForest(5, max_samples=8), "auto", path)
    assert cad.most_rows is not None
    assert loaded(path).most_rows == cad.most_rows

    def more(model, members):
        place = model["detector"]["estimator"]
        parameters = model["estimators"][place]["parameters"]["dict"]
        next(pair for pair in parameters if pair[0] == "n_estimators")[1] = 10**9

    refused(edited(path, more), "n_estimators is 1000000000")


class OtherPipeline(Pipeline):
    """A pipeline of another library, which its user trusts by name."""


def test_settings_of_what_is_derived_come_back_at_their_defaults(tmp_path):
    path = tmp_path / "m.rcad"
    steps = [("scale", StandardScaler()), ("svm", OneClassSVM())]
    saved(OtherPipeline(steps, memory=str(tmp_path / "cache"), verbose=True), "full", path)
    template = loaded(path).ensemble_.algorithm.template
    assert type(template) is OtherPipeline
    assert (template.memory, template.verbose) == (None, False)


# --- 2. plans ------------------------------------------------------------------------------------

MEASURE = """
import resource, sys
from reconform.models import ModelFileError, load
import skops.io
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    load(sys.argv[1])
    print("loaded")
except ModelFileError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024, "MB")
"""


def test_a_plan_costs_no_more_than_the_file_has(tmp_path):
    path = tmp_path / "m.rcad"
    saved("iforest", Resampling([np.arange(10), np.arange(10, 20)]), path)

    def many(model, members):
        model["plan"].update(n=900_000, sets="train", steps=False)
        members["plan/rows.npy"] = as_npy(np.zeros(0, dtype=np.int64))
        members["plan/sizes.npy"] = as_npy(np.zeros(300, dtype=np.int64))
        members["ensemble/calibration.npy"] = as_npy(np.zeros(112_500))

    edited(path, many)
    assert path.stat().st_size < 50_000
    out = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True
    ).stdout
    assert "holds out 270,000,000 rows is too large" in out
    assert int(out.split()[-2]) < 100


def test_plans_of_small_training_sets_come_back(tmp_path):
    path = tmp_path / "m.rcad"
    few = ShuffleSplit(n_splits=40, train_size=10, random_state=0)
    cad = saved(KNN(n_neighbors=2), Resampling(few), path, RNG.normal(size=(3000, 3)))
    assert sum(map(len, cad.plan_.held_out)) == 40 * 2990
    assert np.array_equal(loaded(path).ranks(NEW), cad.ranks(NEW))


def test_what_would_be_refused_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(plans, "FEW_HELD", 10)
    monkeypatch.setattr(plans, "HELD_PER_BYTE", 0)
    with pytest.raises(ValueError, match="too large"):
        saved("knn", "cv+", tmp_path / "m.rcad")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "facts",
    [
        {"scheme": "full"},
        {"scheme": "prefit"},
        {"scheme": "split"},
        {"full": False},
        {"variant": "basic"},
        {"variant": "pooled", "full": False},
    ],
    ids=str,
)
def test_plans_that_are_none(facts, tmp_path):
    path = tmp_path / "m.rcad"
    saved("iforest", "cv+", path)
    refused(edited(path, lambda model, _: model["plan"].update(facts)))


def test_sizes_that_overflow_do_not_add_up(tmp_path):
    path = tmp_path / "m.rcad"
    saved("iforest", "cv+", path)

    def wrap(sizes):
        sizes = sizes.astype(np.int64)
        sizes[:4] += 1 << 62  # four of them are 2**64, which is 0
        return sizes

    refused(edited(path, lambda _, members: put(members, "plan/sizes.npy", wrap)), "add up")


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


@pytest.mark.parametrize("text", ["1" * 5000, "-" + "1" * 1001, "1e400", "-1e999999"])
def test_numbers_in_json_are_bounded(text, tmp_path):
    path = tmp_path / "m.rcad"
    saved("knn", "split", path)
    members = members_of(path)
    model = members["model.json"].replace(b'"random_state", 7', b'"random_state", ' + text.encode())
    assert model != members["model.json"]
    refused(forge(path, {**members, "model.json": model}), "digits|larger than")


@pytest.mark.parametrize(
    ("state", "field"),
    [
        (np.random.RandomState(1), "pos"),
        (np.random.Generator(np.random.MT19937(1)), "pos"),
        (np.random.Generator(np.random.Philox(1)), "buffer_pos"),
    ],
    ids=["RandomState", "MT19937", "Philox"],
)
def test_generators_read_no_further_than_they_have(state, field, tmp_path):
    path = tmp_path / "m.rcad"
    cad = saved("knn", "split", path)
    save(cad.set_params(random_state=state), path, overwrite=True)

    def beyond(node):
        for pair in node if isinstance(node, list) else node.values():
            if isinstance(pair, list) and pair and pair[0] == field:
                pair[1] = 1 << 30
            elif isinstance(pair, dict | list):
                beyond(pair)

    loaded(path)
    refused(edited(path, lambda model, _: beyond(model)), f"{field} of a generator")


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
    saved(OneClassSVM(), "split", path)
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
        (IForest(5, max_samples=8), "full", "sums", turn),
        (INNE(5, max_samples=4), "full", "sums", turn),
        (INNE(5, max_samples=4), "full", "drawn", lambda a: a[:-1]),
        (KNN(n_neighbors=3), "full", "near", lambda a: a[:, ::-1]),
        (KNN(n_neighbors=3), "full", "near", lambda a: a * np.nan),
        (KNN(n_neighbors=3), "split", "calibration", lambda a: a * np.nan),
        (Mahalanobis(), "full", "reference/rows", lambda a: a[:-1]),
        (Mahalanobis(), "full", "reference/rows", lambda a: a * np.nan),
        (Mahalanobis(), "jackknife+", "reference/rows", lambda a: a[:-1]),
        (Mahalanobis(), "jackknife+", "reference/rows", lambda a: a[:, :-1]),
        (KDE(0.5), "full", "full/rows", lambda a: a[:-1]),
        (KDE(0.5), "full", "own", lambda a: a[:-1]),
        (KDE(0.5), "full", "own", lambda a: a * np.nan),
        (KDE(0.5), "jackknife+", "full/rows", lambda a: a * np.inf),
        (KDE(0.5), "jackknife+", "full/rows", lambda a: a[:, :-1]),
        (KDE(0.5), "jackknife+", "own", lambda a: a[:-1]),
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

    ranks = loaded(edited(path, change)).rank(NEW)
    assert not np.isnan(ranks.scores).any()


@pytest.mark.parametrize("value", [0.0, -1.0, "inf", 1e300, None])
@pytest.mark.parametrize("method", ["full", "jackknife+"])
@pytest.mark.parametrize(
    ("detector", "field"),
    [(Mahalanobis(), ("reference", "ridge")), (KDE(0.5), ("full", "bandwidth"))],
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


def test_leaves_are_no_larger_than_their_rows(tmp_path):
    path = tmp_path / "m.rcad"
    saved(KNN(n_neighbors=3), "split", path, RNG.normal(size=(30, 200)))

    def fill(model, _):
        model["ensemble"]["models"]["full"]["search"]["exact"]["leaf_size"] = 1 << 20

    refused(edited(path, fill), "leaf_size")  # 1.6 GB


def test_the_weights_of_a_distance_fit_the_rows(tmp_path):
    path = tmp_path / "m.rcad"
    for metric, name, value in (("mahalanobis", "VI", np.eye(3)), ("seuclidean", "V", np.ones(3))):
        saved(KNN(n_neighbors=3, metric=metric, metric_params={name: value}), "split", path)
        loaded(path)
        at = f"ensemble/full/search/parameters/{name}.npy"
        refused(edited(path, lambda _, m, at=at: put(m, at, lambda a: a[:1, ...])), "shape")
        with pytest.raises(ValueError, match="must have the shape"):
            ConformalDetector(
                KNN(n_neighbors=3, metric=metric, metric_params={name: value[:1]})
            ).fit(X)


# Attributes of objects of scikit-learn, and what becomes of each.
FOREIGN = {
    "svm": (OneClassSVM(), "OneClassSVM", ["_dual_coef_", "support_vectors_", "support_"]),
    "svm counts": (OneClassSVM(), "OneClassSVM", ["_n_support", "_intercept_"]),
    "lof": (
        LocalOutlierFactor(novelty=True, n_neighbors=3),
        "LocalOutlierFactor",
        ["_fit_X", "_lrd", "_distances_fit_X_"],
    ),
    "kd_tree": (
        LocalOutlierFactor(novelty=True, n_neighbors=3, algorithm="kd_tree", leaf_size=5),
        "LocalOutlierFactor",
        ["_fit_X"],
    ),
    "envelope": (EllipticEnvelope(random_state=0), "EllipticEnvelope", ["precision_", "location_"]),
    "one hot": (
        make_pipeline(OneHotEncoder(handle_unknown="ignore"), OneClassSVM()),
        "OneHotEncoder",
        ["_n_features_outs"],
    ),
}


def shorter(node, members):
    """Cut the array of a node in half, or a list of numbers."""
    if node.get("__loader__") == "NdArrayNode":
        array = np.load(io.BytesIO(members[node["file"]]))
        stream = io.BytesIO()
        np.save(stream, array[..., : array.shape[-1] // 2])
        members[node["file"]] = stream.getvalue()
    else:
        node.update(json_node([1 << 30]))


@pytest.mark.parametrize("what", FOREIGN)
def test_objects_whose_arrays_were_cut(what, tmp_path):
    detector, kind, names = FOREIGN[what]
    for name in names:
        path = tmp_path / "m.rcad"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # EllipticEnvelope: the matrix is not of full rank
            saved(detector, "split", path, X.round(0))
        loaded(path)
        foreign = len([m for m in members_of(path) if m.endswith(".skops")])

        def cut(schema, members, kind=kind, name=name):
            shorter(attributes(schema, kind)[name], members)

        cut_at_all = 0
        for number in range(foreign):
            try:
                object_edited(path, cut, number)
            except (StopIteration, KeyError, TypeError):
                continue  # the detector as it was before fit
            cut_at_all += 1
        assert cut_at_all, name
        refused(path)


def edit_tree(change):
    """Change the nodes of every tree."""

    def edit(schema, members):
        for node in nodes(schema):
            if node.get("__loader__") == "TreeNode":
                change(node, node["content"]["content"], members)

    return edit


def set_nodes(field, value):
    def change(node, state, members):
        name = state["nodes"]["file"]
        array = np.load(io.BytesIO(members[name])).copy()
        array[field][0] = value
        stream = io.BytesIO()
        np.save(stream, array)
        members[name] = stream.getvalue()

    return change


def set_arguments(place, value):
    def change(node, state, members):
        node["__reduce__"]["args"]["content"][place] = json_node(value)

    return change


TREE_EDITS = {
    "a child far away": set_nodes("left_child", 1 << 40),
    "a tree without end": set_nodes("left_child", 0),
    "a child that is none": set_nodes("right_child", -7),
    "a column far away": set_nodes("feature", 1 << 40),
    "one child": set_nodes("left_child", -1),
    "fewer nodes than there are": lambda n, s, m: s.update(node_count=json_node(1)),
    "many columns": set_arguments(0, 5),
    "many outputs": set_arguments(2, 1 << 20),
}


@pytest.mark.parametrize("what", TREE_EDITS)
def test_trees_of_scikit_learn(what, tmp_path):
    path = tmp_path / "m.rcad"
    saved(IsolationForest(n_estimators=2, random_state=0), "split", path)
    loaded(path)
    name = "foreign/0.skops"
    number = 0 if b"TreeNode" in members_of(path)[name] else 1
    refused(object_edited(path, edit_tree(TREE_EDITS[what]), number))


@pytest.mark.parametrize(
    "change",
    ["places", "nodes", "levels", "metric", "empty", "short", "list", "words", "same", "distance"],
)
@pytest.mark.parametrize("algorithm", ["kd_tree", "ball_tree"])
def test_trees_of_neighbours(algorithm, change, tmp_path):
    path = tmp_path / "m.rcad"
    saved(KernelDensity(algorithm=algorithm, leaf_size=4), "split", path)
    loaded(path)

    def edit(schema, members):
        kind = "KDTree" if algorithm == "kd_tree" else "BallTree"
        tree = next(n for n in nodes(schema) if n.get("__class__") == kind)
        state = tree["content"]["content"]
        if change == "empty":  # compiled code reads past its end
            tree["content"] = {**tree["content"], "content": []}
        elif change == "short":
            state.pop()
        elif change == "list":
            tree["content"].update(__class__="list", __loader__="ListNode")
        elif change == "words":
            state[5] = json_node("one")
        elif change == "same":  # a thing that was made before is taken instead of the tuple
            schema["content"]["content"]["metric_params"] = {**tree["content"], "content": []}
        elif change == "distance":
            state[11]["content"]["content"] = []
        elif change == "levels":
            state[5], state[6] = json_node(20), json_node(2**20 - 1)
        elif change == "metric":
            state[11].update(__class__="SEuclideanDistance64")
        else:
            node = state[1 if change == "places" else 2]
            array = np.load(io.BytesIO(members[node["file"]])).copy()
            array[array.dtype.names[1] if array.dtype.names else slice(1)] = 1 << 40
            stream = io.BytesIO()
            np.save(stream, array)
            members[node["file"]] = stream.getvalue()

    number = next(
        int(name[8:-6])
        for name, data in members_of(path).items()
        if name.endswith(".skops") and b"Distance64" in data
    )
    object_edited(path, edit, number)
    trusted = [*facts_of(path).foreign_types, "sklearn.metrics._dist_metrics.SEuclideanDistance64"]
    with pytest.raises(ModelFileError, match="damaged"):
        load(path, trusted=trusted)


def test_sparse_matrices_stay_within(tmp_path):
    path = tmp_path / "m.rcad"
    one_hot = OneHotEncoder(handle_unknown="ignore")
    saved(make_pipeline(one_hot, OneClassSVM()), "split", path, X.round(0))
    members = members_of(path)
    number = next(
        int(name[8:-6])
        for name, data in members.items()
        if name.endswith("skops") and b"npz" in data
    )

    def reach(schema, inner):
        for name in [name for name in inner if name.endswith(".npz")]:
            arrays = dict(np.load(io.BytesIO(inner[name])))
            arrays["indices"][-1] = 1 << 30
            stream = io.BytesIO()
            np.savez(stream, **arrays)
            inner[name] = stream.getvalue()

    loaded(path)
    refused(object_edited(path, reach, number))


def test_attributes_do_not_replace_methods(tmp_path):
    path = tmp_path / "m.rcad"
    saved(make_pipeline(FunctionTransformer(np.exp), OneClassSVM()), "full", path)
    loaded(path)

    def replace(schema, members):
        own = attributes(schema, "OneClassSVM")
        own["_impl"] = own.pop("verbose") | json_node("c_svc")

    refused(object_edited(path, replace), "_impl of OneClassSVM is replaced")


def test_names_of_columns_are_a_list(tmp_path):
    path = tmp_path / "m.rcad"
    saved("knn", "split", path)
    width = load(path).n_features_in_
    refused(edited(path, lambda model, _: model.update(feature_names="x" * width)))


def test_components_that_are_none(tmp_path):
    """PCA multiplies them by each other: a million of them, without columns, take 8 TB."""
    path = tmp_path / "m.rcad"
    saved(PCA(2), "split", path)
    loaded(path)
    for shape in ((1 << 20, 0), (5, 3), (2, 2)):

        def change(schema, members, shape=shape):
            node = attributes(schema, "PCA")["components_"]
            stream = io.BytesIO()
            np.save(stream, np.zeros(shape))
            members[node["file"]] = stream.getvalue()

        number = 0 if b"components_" in members_of(path)["foreign/0.skops"] else 1
        refused(object_edited(path, change, number))


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
    saved(OneClassSVM(), "full", path)

    def wrong(schema, _):
        attributes(schema, "OneClassSVM")["nu"].update(json_node("a word"))

    refused(object_edited(path, wrong), "'nu' parameter")


def test_products_without_end(tmp_path):
    path = tmp_path / "m.rcad"
    saved(make_pipeline(PolynomialFeatures(2), OneClassSVM()), "split", path)

    def many(schema, members):
        own = attributes(schema, "PolynomialFeatures")
        own["_max_degree"] = json_node(10**6)

    loaded(path)
    for number in (0, 1):
        object_edited(path, many, number)
    refused(path, "degree|products")


def test_other_classes_need_trust_by_name(tmp_path):
    cluster = pytest.importorskip("sklearn.cluster", reason="needs the clusterings of scikit-learn")
    path = tmp_path / "m.rcad"
    saved(make_pipeline(cluster.KMeans(2, n_init=1), OneClassSVM()), "split", path)
    with pytest.raises(ModelFileError, match=r"trusted=\['sklearn.cluster._kmeans.KMeans'\]"):
        load(path)
    assert loaded(path).ranks(NEW).min() >= 1


def test_the_lists_name_classes_that_exist():
    import importlib

    for name in (*sound.ARITHMETIC, *sound.CHECKED, *sound.CHECKS):
        module, kind = name.rsplit(".", 1)
        known = importlib.import_module(module)
        exists = hasattr(known, kind) or "BinaryTree" in kind
        assert exists, name


def test_arrays_that_are_larger_than_they_say(tmp_path):
    path = tmp_path / "m.rcad"
    saved(OneClassSVM(), "split", path)
    for shape in ((1 << 30,), (0, 1 << 60), (-1,)):

        def lie(schema, members, shape=shape):
            name = next(name for name in members if name.endswith(".npy"))
            stream = io.BytesIO()
            header = {"descr": "<f8", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(stream, header)
            members[name] = stream.getvalue()

        number = 0 if b".npy" in members_of(path)["foreign/0.skops"] else 1
        refused(object_edited(path, lie, number))


def test_memory_is_measured_in_kilobytes():
    """The unit of ru_maxrss, which the test of plans relies on."""
    assert 1 << 14 < resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1 << 25
