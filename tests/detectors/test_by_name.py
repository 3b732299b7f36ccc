"""Detectors of other libraries by name, and parameters: Python, command line, study."""

import json

import numpy as np
import pytest
from sklearn.svm import OneClassSVM

from commands import run
from reconform import ConformalDetector
from reconform.detectors.registry import make_detector, parse_setting
from refusals import refused

pd = pytest.importorskip("pandas", reason="needs pandas")


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    new = np.vstack([rng.normal(size=(40, 3)), rng.normal(7, 1, size=(8, 3))])
    paths = tmp_path / "normal.csv", tmp_path / "new.csv"
    for path, rows in zip(paths, (rng.normal(size=(120, 3)), new), strict=True):
        pd.DataFrame(rows, columns=list("abc")).to_csv(path, index=False)
    return paths


def test_names_of_ours_stay_names():
    assert make_detector("knn") == "knn"
    assert make_detector("knn", {"n_neighbors": 3}).n_neighbors == 3


SKLEARN = "OneClassSVM IsolationForest EllipticEnvelope KernelDensity LocalOutlierFactor"


@pytest.mark.parametrize("name", SKLEARN.split())
def test_detectors_of_scikit_learn(name):
    made = make_detector(f"sklearn:{name}")
    assert type(made).__name__ == name
    assert getattr(made, "novelty", True)  # local outliers are made for new rows


def test_detectors_of_pyod():
    pytest.importorskip("pyod", reason="needs reconform[pyod]")
    made = make_detector("pyod:HBOS", {"n_bins": 7})
    assert (type(made).__module__, made.n_bins) == ("pyod.models.hbos", 7)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("knnn", "Did you mean 'knn'"),
        ("sklearn:OneClasSVM", "Did you mean 'OneClassSVM'"),
        ("sklearn:os.system", "sklearn:CLASS or pyod:CLASS"),
        ("os:system", "sklearn:CLASS or pyod:CLASS"),
        ("pyod:..base", "sklearn:CLASS or pyod:CLASS"),
        ("sklearn:RandomForestClassifier", "score_samples"),
        ("pyod:NoSuchThing", "PyOD has no detector called 'NoSuchThing'"),
    ],
)
def test_names_that_are_none(name, told):
    if name.startswith("pyod:N"):
        pytest.importorskip("pyod", reason="needs reconform[pyod]")
    refused(told, make_detector, name)


def test_an_estimator_takes_objects_and_no_such_names():
    """A model file could hold the name: what it says is never looked up in a library."""
    with pytest.raises(ValueError, match="detector must be one of"):
        ConformalDetector("sklearn:OneClassSVM").fit(np.zeros((9, 2)))


@pytest.mark.parametrize(
    ("text", "value"),
    [("a=1", 1), ("a=-0.5", -0.5), ("a=True", True), ("a=None", None), ("a=auto", "auto"),
     ("a=(1, 2)", (1, 2)), ("a=x=y", "x=y"), ("a='7'", "7"), ("a=", ""),
     ("a=__import__('os')", "__import__('os')")],
)  # fmt: skip
def test_values_are_literals_or_words(text, value):
    assert parse_setting(text) == ("a", value)


@pytest.mark.parametrize("text", ["", "a", "=1", "a b=1", "a.b=1"])
def test_settings_that_are_none(text):
    refused("NAME=VALUE", parse_setting, text)


def test_detect_with_a_detector_of_scikit_learn(files):
    normal, new = files
    done = run("detect", normal, new, "--detector", "sklearn:OneClassSVM", "--set", "gamma=0.1",
               "--set", "nu=0.1", "--method", "split", "--json")  # fmt: skip
    said = json.loads(done.stdout)
    frames = [pd.read_csv(path) for path in files]
    detector = OneClassSVM(gamma=0.1, nu=0.1)
    found = ConformalDetector(detector, "split", random_state=0).fit(frames[0]).discover(frames[1])
    assert found.count > 0
    assert said["flagged"] == found.count
    assert "OneClassSVM" in said["detector"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--detector", "sklearn:OneClasSVM"], "Did you mean 'OneClassSVM'"),
        (["--detector", "knn", "--set", "neighbours=3"], "knn has no parameter 'neighbours'"),
        (["--set", "n_neighbors"], "NAME=VALUE"),
    ],
)
def test_bad_options_leave_no_file(options, told, files, tmp_path):
    normal, new = files
    done = run("detect", normal, new, "--output", tmp_path / "out.csv", *options, code=2)
    assert told in done.stderr.replace("\n", " ")
    assert not (tmp_path / "out.csv").exists()
