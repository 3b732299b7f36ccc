"""Saved models: the same numbers after a round trip, and a refusal of everything else."""

import dataclasses
import io
import json
import os
import pickle
import stat
import sys
import time
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.covariance import EllipticEnvelope
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import RepeatedKFold
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import OneClassSVM

from ensembles_of_ours import ENSEMBLES, NATIVE
from forge import forge, members_of
from reconform import ConformalDetector, RankCounts, methods
from reconform.detectors import INNE, KNN, IForest
from reconform.detectors.prepare import make_prepared
from reconform.models import ModelFileError, archive, ensembles, inspect, load, save
from reconform.records import OneOf, Plain, Record
from reconform.statistics.certificates import CERTIFIABLE

pytest.importorskip("skops", reason="foreign objects are saved through skops")

DATA = Path(__file__).parents[1] / "data" / "models"

RNG = np.random.default_rng(0)
X = RNG.normal(size=(41, 3)).round(1)  # rounded: ties
NEW = np.vstack([RNG.normal(size=(20, 3)).round(1), RNG.normal(6, 1, size=(3, 3)), X[:4]])

METHODS = {
    "split": "split",
    "repeated split": methods.Split(calibration=0.4, repeats=3),
    "jackknife": "jackknife",
    "jackknife+": "jackknife+",
    "jackknife pooled": methods.Jackknife(variant="pooled"),
    "cv": methods.CrossValidation(folds=4, variant="basic"),
    "cv+": methods.CrossValidation(folds=4),
    "cv pooled": methods.CrossValidation(folds=4, variant="pooled"),
    "jab": methods.Bootstrap(draws=7, variant="basic"),
    "jab+": methods.Bootstrap(draws=7),
    "jab+ mean": methods.Bootstrap(draws=7, aggregate="mean"),
    "jab pooled": methods.Bootstrap(draws=7, aggregate=0.3, variant="pooled"),
    "listed": methods.Resampling([np.arange(20), [*range(10, 41)], [5] * 3 + [*range(30, 41)]]),
    "full": "full",
}


def fitted(detector, method, X=X, **options):
    options = {"random_state": 7, **options}
    return ConformalDetector(detector, method, **options).fit(X)


def equal(a, b):
    """Equal to the last bit, for what results are made of."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    if dataclasses.is_dataclass(a):
        # What explains rows holds on to the detector; two of them are never equal.
        names = [f.name for f in dataclasses.fields(a) if f.name != "explainer"]
        return type(a) is type(b) and all(equal(getattr(a, n), getattr(b, n)) for n in names)
    if isinstance(a, RankCounts):
        return equal(vars(a), vars(b))
    if hasattr(a, "equals"):  # the index of a frame
        return a.equals(b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, str) and isinstance(b, str):  # a file may lack what certifies a list
        return a.replace(CERTIFIABLE, "") == b.replace(CERTIFIABLE, "")
    return a == b


def outcome(action):
    """The result, or the complaint."""
    try:
        return action()
    except ValueError as error:
        return str(error)


def assert_same(cad, again, new=NEW):
    assert type(again.ensemble_) is type(cad.ensemble_)
    assert again.get_params(deep=False).keys() == cad.get_params(deep=False).keys()
    assert again.n_jobs is None  # whoever loads a model says how many
    assert repr(again) == repr(clone(cad).set_params(n_jobs=None))
    for name in ("n_calibration_", "offset_", "n_features_in_", "guarantee_"):
        assert getattr(again, name) == getattr(cad, name), name
    names = [getattr(c, "feature_names_in_", np.empty(0, object)) for c in (cad, again)]
    assert equal(*names)
    assert dataclasses.astuple(again.plan_)[3:] == dataclasses.astuple(cad.plan_)[3:]
    for sets in ("train", "held_out"):
        ours, theirs = getattr(cad.plan_, sets), getattr(again.plan_, sets)
        assert len(ours) == len(theirs)
        assert all(map(equal, ours, theirs))
    assert equal(cad.calibration_, again.calibration_)
    for strictly in (False, True):
        ours, theirs = (
            outcome(lambda c=c, s=strictly: c.ensemble_.ranks(np.asarray(new), strictly=s))
            for c in (cad, again)
        )
        assert equal(ours, theirs)
    assert equal(cad.ranks(new), again.ranks(new))
    assert equal(cad.p_values(new), again.p_values(new))
    assert equal(cad.discover(new, fdr=0.2), again.discover(new, fdr=0.2))
    ours, theirs = (outcome(lambda c=c: vars(c.rank_counts(new))) for c in (cad, again))
    assert equal(ours, theirs)


def round_trip(cad, tmp_path, *, trusted=False, new=NEW):
    path = tmp_path / "model.rcad"
    save(cad, path, overwrite=True)
    again = load(path, trusted=trusted)
    assert_same(cad, again, new)
    return path


# --- the same numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("detector", ["knn", "iforest-shared"])
def test_every_plan_comes_back_the_same(detector, method, tmp_path):
    round_trip(fitted(NATIVE[detector], METHODS[method]), tmp_path)


@pytest.mark.parametrize("name", ENSEMBLES)
def test_every_ensemble_comes_back_the_same(name, tmp_path):
    assert set(ENSEMBLES) == set(ensembles.known_ensembles().records)
    detector, method, options = ENSEMBLES[name]
    cad = fitted(detector, method, **options)
    assert type(cad.ensemble_).__name__ == name
    round_trip(cad, tmp_path)


@pytest.mark.parametrize("name", ["knn", "iforest", "inne"])
def test_names_and_smoothed_ties(name, tmp_path):
    round_trip(fitted(name, "jab+", ties="randomized", alpha=0.2, n_jobs=2), tmp_path)


@pytest.mark.parametrize("detector", NATIVE)
def test_fitted_natives_calibrated_elsewhere(detector, tmp_path):
    model = type(NATIVE[detector])().fit(X[:25])
    path = round_trip(fitted(model, "prefit", X[25:]), tmp_path)
    again = load(path)
    assert again.detector is again.ensemble_.full.model  # stored once
    assert equal(model.predict(NEW), again.detector.predict(NEW))
    round_trip(fitted(FrozenEstimator(model), "prefit", X[25:]), tmp_path)


@pytest.mark.parametrize("method", ["split", "cv+", "full"])
@pytest.mark.parametrize(
    "options",
    [
        {"method": "mean"},
        {"method": "median", "metric": "manhattan"},
        {"metric": "chebyshev"},
        {"p": np.inf, "algorithm": "brute"},
        {"p": 1.5, "leaf_size": 3},
        {"metric": "cosine"},
        {"metric": "cosine", "algorithm": "brute"},
        {"algorithm": "brute"},
    ],
    ids=str,
)
def test_every_kind_of_search(options, method, tmp_path):
    round_trip(fitted(KNN(n_neighbors=4, **options), method), tmp_path)


def test_wide_rows_tiny_training_sets_and_natives_turned_around(tmp_path):
    rng = np.random.default_rng(1)
    wide, new = rng.normal(size=(60, 20)), rng.normal(size=(9, 20))
    round_trip(fitted("knn", "cv+", wide), tmp_path, new=new)
    tiny = methods.Resampling([[0, 1, 2, 3], [4, 5, 6, 7]])  # searched one by one
    path = round_trip(fitted(KNN(n_neighbors=2), tiny), tmp_path)
    assert type(load(path).ensemble_).__name__ == "RefitEnsemble"
    round_trip(fitted(IForest(5, max_samples=8), "cv+", larger_is="anomalous"), tmp_path)
    cad = fitted(IForest(5, max_samples=8), "auto")  # a split is fitted when it is needed
    assert load(round_trip(cad, tmp_path)).most_rows == cad.most_rows is not None


def test_column_names_come_back(tmp_path):
    pd = pytest.importorskip("pandas", reason="needs pandas")
    names = ["druck", "température", "流量"]
    frame = pd.DataFrame(X, columns=names)
    new = pd.DataFrame(NEW, columns=names)
    path = round_trip(fitted("iforest", "split", frame), tmp_path, new=new)
    assert inspect(path).feature_names == tuple(names)
    with pytest.raises(ValueError, match=r"lacks the columns .druck."):
        load(path).ranks(pd.DataFrame(NEW, columns=["a", "b", "c"]))


@pytest.mark.parametrize(
    "seed",
    [None, np.int64(3), np.random.SeedSequence(5, spawn_key=(1, 2)), np.random.default_rng(1),
     np.random.RandomState(1)],
    ids=lambda seed: type(seed).__name__,
)  # fmt: skip
def test_every_random_state(seed, tmp_path):
    cad = fitted(IForest(3, max_samples=4), "jab+", random_state=seed)
    for level in (Fraction(1, 7), Fraction(1e-300)):
        save(cad.set_params(alpha=level), tmp_path / "model.rcad", overwrite=True)
        again = load(tmp_path / "model.rcad")
        assert again.alpha == level
    assert equal(cad.ranks(NEW), again.ranks(NEW))
    if seed is None or hasattr(seed, "bytes"):  # a generator that the fit has used up is not kept
        assert again.random_state is None
    else:
        cad.set_params(alpha=0.1), again.set_params(alpha=0.1)
        assert equal(cad.fit(X).ranks(NEW), again.fit(X).ranks(NEW))


# --- foreign models ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["cv+", "full", "prefit"])
@pytest.mark.parametrize(
    "detector",
    [
        IsolationForest(n_estimators=4, random_state=0),
        OneClassSVM(gamma=0.5),
        LocalOutlierFactor(novelty=True, n_neighbors=4),
        EllipticEnvelope(random_state=0),
        make_pipeline(StandardScaler(), OneClassSVM()),
        make_pipeline(StandardScaler(), IForest(5, max_samples=8)),
        make_pipeline(StandardScaler(), "passthrough", KNN()),
        make_prepared("inne", [0, 1], [2]),
        make_prepared(OneClassSVM(), [0, 1], [2]),
    ],
    ids=lambda item: type(getattr(item, "steps", [[item]])[-1][-1]).__name__,
)
def test_scikit_learn(detector, method, tmp_path):
    method = methods.CrossValidation(folds=3) if method == "cv+" else method
    if method == "prefit":
        detector.fit(X[:20])
    cad = fitted(detector, method, X[20:] if method == "prefit" else X)
    path = round_trip(cad, tmp_path, trusted=True, new=NEW[:4] if method == "full" else NEW)
    kind = type(detector)
    named = f"{kind.__module__}.{kind.__name__}"
    assert named in inspect(path).foreign_types
    with pytest.raises(ModelFileError, match=rf"{named}.*as safe as the person.*trusted=True"):
        load(path)


@pytest.mark.parametrize("method", ["cv+", "prefit"])
@pytest.mark.parametrize("name", ["hbos.HBOS", "iforest.IForest"])
def test_pyod(name, method, tmp_path):
    pytest.importorskip("pyod", reason="needs reconform[pyod]")
    module, kind = name.split(".")
    detector = getattr(__import__(f"pyod.models.{module}", fromlist=[kind]), kind)()
    if kind == "IForest":
        detector.set_params(n_estimators=5)
    method = methods.CrossValidation(folds=3) if method == "cv+" else method
    cad = fitted(detector.fit(X[:20]) if method == "prefit" else detector, method)
    path = tmp_path / "model.rcad"
    save(cad, path)
    assert f"pyod.models.{name}" in inspect(path).foreign_types
    with pytest.raises(ModelFileError, match=f"pyod.models.{name}.*trusted=True"):
        load(path)
    assert_same(cad, load(path, trusted=True))


def test_splitters_are_objects_of_others(tmp_path):
    cad = fitted("knn", methods.Resampling(RepeatedKFold(n_splits=3, n_repeats=2, random_state=1)))
    path = round_trip(cad, tmp_path, trusted=True)
    refused(path, "RepeatedKFold")


def test_nothing_of_others_is_made_without_trust(tmp_path, monkeypatch):
    io_ = pytest.importorskip("skops.io", reason="foreign objects are saved through skops")
    path = tmp_path / "model.rcad"
    save(fitted(IsolationForest(n_estimators=3), "split"), path)
    for name in ("loads", "get_untrusted_types"):
        monkeypatch.setattr(io_, name, lambda *_, **__: pytest.fail("skops was asked"))
    for trusted in ({}, {"trusted": False}):
        with pytest.raises(ModelFileError, match=r"IsolationForest, .*sklearn.tree._tree.Tree"):
            load(path, **trusted)
    for wrong in ("sklearn.tree._tree.Tree", ["sklearn.tree._tree.Tree"], 1, None):
        with pytest.raises(ValueError, match="`trusted` is True or False"):
            load(path, trusted=wrong)
    monkeypatch.undo()
    assert load(path, trusted=True).n_calibration_ == 21


def test_a_class_of_ones_own(tmp_path):
    path = tmp_path / "model.rcad"
    cad = fitted(Distance(), "split")
    save(cad, path)
    assert any(name.endswith("test_models.Distance") for name in inspect(path).foreign_types)
    assert_same(cad, load(path, trusted=True))


class Distance(OutlierMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.mean_ = X.mean(axis=0)
        return self

    def score_samples(self, X):
        return -np.abs(X - self.mean_).sum(axis=1)


def test_a_clear_word_without_skops(tmp_path, monkeypatch):
    path = tmp_path / "model.rcad"
    save(fitted(OneClassSVM(), "split"), path)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(ImportError, match=r"loading .*reconform\[skops\]"):
        load(path, trusted=True)
    with pytest.raises(ImportError, match=r"saving .*reconform\[skops\]"):
        save(fitted(OneClassSVM(), "split"), tmp_path / "other.rcad")
    assert os.listdir(tmp_path) == ["model.rcad"]
    assert "sklearn.svm._classes.OneClassSVM" in inspect(path).foreign_types
    refused(path, "OneClassSVM")  # without skops, too


# --- what cannot be saved ------------------------------------------------------------------------


def bare(X):
    mean = X.mean(axis=0)
    return lambda rows: np.abs(rows - mean).sum(axis=1)


class Halves(methods.Split):
    pass


@pytest.mark.parametrize(
    ("cad", "message"),
    [
        (lambda: fitted(bare, "split", larger_is="anomalous"), "bare function"),
        (lambda: fitted(lambda X: bare(X), "cv", larger_is="anomalous"), "bare function"),
        (lambda: fitted("knn", methods.Bootstrap(5, np.median)), "aggregate=.* is a function"),
        (lambda: fitted("knn", Halves()), "method Halves"),
        (lambda: ConformalDetector("knn").set_params(alpha=0.2), "not fitted"),
        (lambda: IForest().fit(X), "only a ConformalDetector"),
    ],
    ids=["function", "lambda", "aggregate", "method", "unfitted", "detector"],
)
def test_what_cannot_be_saved_is_said(cad, message, tmp_path):
    with pytest.raises((ValueError, NotFittedError), match=message):
        save(cad(), tmp_path / "model.rcad")
    assert os.listdir(tmp_path) == []


def test_lambdas_inside_a_pipeline_are_found(tmp_path):
    hidden = make_pipeline(FunctionTransformer(lambda rows: rows), OneClassSVM())
    with pytest.raises(ValueError, match=r"lambda.*cannot be found again"):
        save(fitted(hidden, "split"), tmp_path / "model.rcad")
    assert os.listdir(tmp_path) == []


def test_extras_are_plain_json(tmp_path):
    path = tmp_path / "model.rcad"
    cad = fitted("knn", "split")
    extras = {"columns": ["a", "ß", "\udc00"], "codes": {"x": [1, 2.5, None, True]}}
    save(cad, path, extras=extras)
    assert inspect(path).extras == extras
    for bad in ({"t": (1, 2)}, {1: 2}, {"x": np.nan}, {"x": np.zeros(2)}, {"x": object()}):
        with pytest.raises(ValueError, match="extras"):
            save(cad, path, overwrite=True, extras=bad)
    assert inspect(path).extras == extras


# --- the file ------------------------------------------------------------------------------------


def test_the_facts(tmp_path):
    path = tmp_path / "model.rcad"
    cad = fitted(IForest(9, max_samples=8), methods.Bootstrap(draws=7), ties="randomized")
    before = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    save(cad, path)
    info = inspect(path)
    assert before <= info.created <= time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    assert (info.detector, info.method) == (repr(cad.detector), "Bootstrap(draws=7)")
    assert (info.scheme, info.variant) == ("jab", "plus")
    assert info.parameters["ties"] == "'randomized'"
    assert (info.n_features, info.feature_names) == (3, None)
    assert (info.n_reference, info.n_calibration, info.n_models) == (41, cad.n_calibration_, 7)
    assert info.fingerprint == cad.calibration_.fingerprint
    assert info.guarantee == str(cad.guarantee_)
    assert info.format_version == archive.FORMAT_VERSION
    assert info.file_bytes == path.stat().st_size
    assert str(path) in str(info)
    assert "41 reference rows, 3 features" in str(info)


def test_a_terminal_obeys_nothing_that_a_file_says(small, tmp_path):
    path = tmp_path / "model.rcad"
    members = members_of(small[0])
    evil = "pump\x1b[2J\x07\x9b31m\u202e\r\n  needs nothing"
    facts = dict.fromkeys(("detector", "method", "guarantee", "created", "reconform"), evil)
    manifest = {**json.loads(members[archive.MANIFEST]), **facts, "foreign_types": [evil]}
    said = str(inspect(forge(path, members, manifest)))
    assert all(c.isprintable() or c == "\n" for c in said)
    assert "\n  needs nothing" not in said
    assert "pump\ufffd[2J" in said


def test_sizes(tmp_path):
    def size(detector, method):
        path = tmp_path / "model.rcad"
        save(fitted(detector, method, rows), path, overwrite=True)
        return path.stat().st_size

    rows = np.random.default_rng(3).normal(size=(300, 4))
    for detector in ("iforest", "inne", IForest(20, share=True), INNE(50, share=True)):
        for scheme in ("cv", "jackknife"):
            if (detector, scheme) != ("iforest", "jackknife"):  # 300 forests
                assert 2 * size(detector, scheme) < size(detector, scheme + "+")
    for scheme in ("cv", "jab"):
        assert size("knn", scheme) < size("knn", scheme + "+")
    # leave-one-out neighbours: the reference, a score per row, the rows to check by, and no more
    assert size("knn", "jackknife+") < 2 * rows.nbytes + 8 * len(rows) + 4000


def test_constant_data_is_no_bomb(tmp_path):
    path = tmp_path / "model.rcad"
    zeros = np.zeros((1 << 14, 40))
    with pytest.warns(UserWarning, match="equal"):
        cad = ConformalDetector(KNN(1), methods.Split(calibration=2)).fit(zeros)
    save(cad, path)  # 5 MB of zeros would shrink a thousandfold, and is not compressed
    assert path.stat().st_size > zeros.nbytes // 2
    assert equal(load(path).ranks(zeros[:2]), cad.ranks(zeros[:2]))


# --- refusals ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A small file, and what it should say."""
    path = tmp_path_factory.mktemp("small") / "model.rcad"
    cad = fitted(IForest(2, max_samples=4), methods.CrossValidation(folds=2), X[:12])
    save(cad, path)
    return path, cad


def refused(path, match):
    with pytest.raises(ModelFileError, match=match) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_forged_files_with_the_right_contents_load(small, tmp_path):
    path, cad = small
    assert_same(cad, load(forge(tmp_path / "forged.rcad", members_of(path))))


def test_foreign_files(tmp_path):
    path = tmp_path / "model.rcad"
    for content in (b"", pickle.dumps([1, 2])):
        path.write_bytes(content)
        refused(path, "not a zip")
    for members, said in (
        ({}, "no manifest.json"),
        ({"data.json": "{}"}, "no manifest.json"),
        ({"manifest.json": '{"format": "something else"}'}, "not one of ours"),
    ):
        with zipfile.ZipFile(path, "w") as file:
            for name, text in members.items():
                file.writestr(name, text)
        refused(path, said)


def test_newer_formats(small, tmp_path):
    members = members_of(small[0])
    manifest = {**json.loads(members[archive.MANIFEST]), "format_version": 2, "reconform": "9.9"}
    path = forge(tmp_path / "new.rcad", members, manifest)
    refused(path, "format version 2.*9.9.*install a newer")
    with pytest.raises(ModelFileError, match="install a newer"):
        inspect(path)
    for version in (0, "1", True, None):
        refused(forge(path, members, {**manifest, "format_version": version}), "format version is")


def test_altered_members(small, tmp_path):
    members = members_of(small[0])
    name = "ensemble/calibration.npy"
    changed = bytearray(members[name])
    changed[-1] ^= 1
    path = tmp_path / "altered.rcad"
    refused(forge(path, {**members, name: bytes(changed)}, sums=False), f"SHA-256 of {name}")
    refused(forge(path, {**members, name: members[name] + b"\0"}, sums=False), "size of")
    missing = {key: value for key, value in members.items() if key != name}
    refused(forge(path, missing, sums=False), "not those that the manifest lists")
    refused(forge(path, {**members, "more.npy": members[name]}, sums=False), "not those that")
    forge(path, members)
    with zipfile.ZipFile(path, "a") as file:
        file.comment = b""
    refused(path, "manifest.json was altered")


def test_truncated_files(small, tmp_path):
    data = small[0].read_bytes()
    path = tmp_path / "cut.rcad"
    for length in [*range(0, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:length])
        refused(path, "model")
    path.write_bytes(data[: len(data) // 2])
    refused(path, "cut short")


def test_random_damage_is_refused_or_harmless(small, tmp_path, rng):
    """Never another exception, and never another number."""
    path, cad = small
    data = path.read_bytes()
    ranks = cad.ranks(NEW)
    damaged = tmp_path / "damaged.rcad"
    count = 0
    for trial in range(1200):
        changed = bytearray(data)
        # half of the trials aim at the directory, at the end of the file
        first = 0 if trial % 2 else len(data) - 1500
        for place in rng.integers(first, len(data), size=rng.integers(1, 5)):
            changed[place] = rng.integers(256)
        if trial % 7 == 0:
            del changed[rng.integers(len(data)) :]
        damaged.write_bytes(changed)
        try:
            again = load(damaged)
        except ModelFileError:
            count += 1
        else:
            assert equal(again.ranks(NEW), ranks)
    assert count > 900


class Malice:
    """Says so if it is ever unpickled."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (self.place,)


def test_pickles_are_not_executed(small, tmp_path):
    place, path = str(tmp_path / "executed"), tmp_path / "pickle.rcad"
    stream = io.BytesIO()
    np.save(stream, np.array([Malice(place)], dtype=object), allow_pickle=True)
    members = members_of(small[0])
    for name in members:
        if name != archive.MANIFEST:
            refused(forge(path, {**members, name: stream.getvalue()}), "damaged")
            refused(forge(path, {**members, name: pickle.dumps(Malice(place))}), "damaged")
    path.write_bytes(pickle.dumps(Malice(place)))
    refused(path, "not a zip")
    assert not os.path.exists(place)
    np.load(io.BytesIO(stream.getvalue()), allow_pickle=True)
    assert os.path.exists(place)  # it would have been noticed


def test_forged_objects_are_named_and_not_made(tmp_path):
    place, path = str(tmp_path / "executed"), tmp_path / "model.rcad"
    save(fitted(OneClassSVM(), "split"), path)
    members = members_of(path)
    run = {"__class__": "mkdir", "__module__": "os", "__loader__": "FunctionNode", "__id__": 1}
    for schema, match in (
        ({"content": [run]}, "os.mkdir"),
        ({"content": [{"__class__": "\x1b[2J", "__module__": "a"}]}, "a.\ufffd\\[2J"),
        ({"content": [{"__class__": f"k{k}", "__module__": "a"} for k in range(90)]}, "71 more"),
    ):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as file:
            file.writestr("schema.json", json.dumps(schema))
        refused(forge(path, {**members, "foreign/0.skops": stream.getvalue()}), match)
    for junk in (b"", b"junk", pickle.dumps(Malice(place))):
        refused(forge(path, {**members, "foreign/0.skops": junk}), "damaged")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("schema.json", b" " * (1 << 22))
    refused(forge(path, {**members, "foreign/0.skops": stream.getvalue()}), "as skops does")
    assert not os.path.exists(place)


def test_zip_bombs(small, tmp_path, monkeypatch):
    members = members_of(small[0])
    path = tmp_path / "bomb.rcad"
    zeros = bytes(1 << 23)
    refused(forge(path, {**members, "bomb.npy": zeros}), "times as many")
    with pytest.raises(ModelFileError, match="times as many"):
        inspect(path)
    refused(forge(path, {**members, "model.json": zeros}), "times as many")
    # a member that is larger than the directory says, and then also than the manifest says
    larger, truth = {**members, "plan/sizes.npy": bytes(1 << 15)}, (1 << 15).to_bytes(4, "little")
    forge(path, larger)
    manifest = json.loads(members_of(path)[archive.MANIFEST])
    for said in (100, 1 << 14):
        lie = forge(path, larger).read_bytes().replace(truth, said.to_bytes(4, "little"))
        path.write_bytes(lie)
        refused(path, "size of plan/sizes.npy")
        manifest["members"]["plan/sizes.npy"]["bytes"] = said
        lie = forge(path, larger, manifest, sums=False).read_bytes()
        path.write_bytes(lie.replace(truth, said.to_bytes(4, "little")))
        refused(path, "damaged")
    text = b" " * (archive.MOST_TEXT_BYTES + 1)
    refused(forge(path, {**members, "model.json": text}, compression=0), "larger than")
    monkeypatch.setattr(archive, "MOST_MEMBERS", len(members))
    refused(forge(path, {**members, "m.npy": b""}), "members, and at most")


@pytest.mark.parametrize(
    "name",
    ["../evil.npy", "/etc/evil.npy", "a/../../evil.npy", "a\\b.npy", "evil.py", "C:evil.npy", "a/",
     "a//b.npy", ".npy", "ä.npy", "nul\0.npy", "r\u0435ference.npy", "a\u202eypn.npy"],
)  # fmt: skip
def test_names_that_lead_elsewhere(name, small, tmp_path):
    info = zipfile.ZipInfo("placeholder")
    info.filename = name
    path = forge(tmp_path / "names.rcad", members_of(small[0]), more=[(info, b"")])
    refused(path, "called|members|not a reconform model")


def test_links_and_duplicates_in_the_zip(small, tmp_path):
    members, path = members_of(small[0]), tmp_path / "links.rcad"
    link = zipfile.ZipInfo("link.npy")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    refused(forge(path, members, more=[(link, b"/etc/passwd")]), "is not a plain file")
    with pytest.warns(UserWarning, match="Duplicate"):
        forge(path, members, more=[("model.json", members["model.json"])])
    refused(path, "same name")
    packed = zipfile.ZipInfo("packed.npy")
    packed.compress_type = zipfile.ZIP_BZIP2
    refused(forge(path, members, more=[(packed, b"123")]), "compressed in a way")


# --- the format ----------------------------------------------------------------------------------


def records():
    """Every record that can be reached from the ensembles."""
    found, waiting = {}, list(ensembles.known_ensembles().records.values())
    while waiting:
        spec = waiting.pop()
        if isinstance(spec, Record) and spec.kind not in found:
            found[spec.kind] = spec
            waiting += spec.fields.values()
        elif isinstance(spec, OneOf):
            waiting += spec.records.values()
        elif hasattr(spec, "spec"):
            waiting.append(spec.spec)
    return found.values()


def test_descriptions_and_classes_agree():
    """A field that a class gains must be described, or it would be lost."""
    for record in records():
        if dataclasses.is_dataclass(record.kind):
            names = {field.name for field in dataclasses.fields(record.kind)}
            kept = names - {"plan", "calibration"}
            assert set(record.fields) == kept, record.name


def test_descriptions_of_plain_classes_agree():
    wide = fitted(KNN(algorithm="brute"), "split").ensemble_.full.search
    slots = fitted(NATIVE["inne-shared"], "jackknife+").ensemble_.slots
    described = {record.kind: set(record.fields) for record in records()}
    cached = {"tree", "proposals", "middle"}
    for thing in (wide, wide.exact, slots):
        assert set(vars(thing)) - cached == described[type(thing)] - cached


def test_a_file_of_this_format_keeps_loading():
    """Written once (tests/data/models/make.py), so that a change of the format is noticed."""
    expected = json.loads((DATA / "expected.json").read_text())
    path = DATA / "iforest-full.rcad"
    cad = load(path)
    assert inspect(path).format_version == archive.FORMAT_VERSION == 1
    assert type(cad.ensemble_).__name__ == expected["ensemble"]
    assert cad.calibration_.fingerprint == expected["fingerprint"]
    assert cad.ranks(np.array(expected["rows"])).tolist() == expected["ranks"]


def test_functions_are_no_plain_values():
    with pytest.raises(ValueError, match=r"parameters/metric is .*function.* only plain values"):
        Plain().write(abs, "parameters/metric", None)


@pytest.mark.parametrize(("n", "d"), [(250, 30), (215, 400)])
def test_a_default_detector_of_many_columns_can_be_saved(n, d, tmp_path, rng):
    """Its small spheres are counted as small when a file's cost is bounded."""
    X = rng.normal(size=(n, d))
    cad = ConformalDetector(random_state=0).fit(X[:-10])
    save(cad, tmp_path / "m.rcad")
    again = load(tmp_path / "m.rcad")
    assert again.discover(X[-10:]).p_values.tolist() == cad.discover(X[-10:]).p_values.tolist()
