"""The recipe "Add a detector" of docs/architecture.md, followed with a toy detector.

The toy has what a detector must have, `_fit_rows` and `_score_rows`, and no shortcut. One row of
the registry, and every method, saving and loading, the study, `prepare` and the command line know
it.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from reconform import Bootstrap, ConformalDetector, CrossValidation, Split
from reconform.content import sorted_by_content
from reconform.detectors import DETECTORS, NativeDetector, resolve_detector
from reconform.detectors.prepare import make_prepared
from reconform.detectors.registry import Entry, named
from reconform.ensemble.refitting import FullRefit
from reconform.errors import BatchDependenceError
from reconform.models import inspect, load, save
from reconform.records import Array, DetectorRecord
from refusals import refused

DOCS = Path(__file__).parents[2] / "docs"


class Toy(NativeDetector):
    """The distance to the mean of a random half of the training rows."""

    def __init__(self, power=1.0, contamination=0.1, random_state=None):
        self.power = power
        self.contamination = contamination
        self.random_state = random_state

    def _fit_rows(self, X, seed):
        drawn = np.random.default_rng(seed).choice(len(X), -(-len(X) // 2), replace=False)
        self.centre_ = X[np.sort(drawn)].mean(axis=0)

    def _score_rows(self, X):
        return -(((X - self.centre_) ** 2).sum(axis=1) ** self.power)


ROW = Entry(
    "toy",
    Toy,
    "Distance to a centre",
    "the distance to the mean of some rows",
    scale_matters=True,
    record=DetectorRecord("toy", {"centre_": Array("f8", ndim=1)}),
)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Step 2 of the recipe."""
    monkeypatch.setitem(DETECTORS, ROW.name, ROW)


def data(n=100, m=30, d=3):
    rng = np.random.default_rng(5)
    new = np.vstack([rng.normal(size=(m - 5, d)), rng.normal(7, 1, size=(5, d))])
    return rng.normal(size=(n, d)), new


METHODS = {
    "split": "split",
    "repeated split": Split(repeats=3),
    "jackknife+": "jackknife+",
    "jackknife": "jackknife",
    "cv+": CrossValidation(folds=4),
    "jab+": Bootstrap(draws=12),
    "full": "full",
}


def fitted(method, **parameters):
    X, _ = data()
    return ConformalDetector("toy", method, random_state=0, **parameters).fit(X)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_every_method_and_the_same_numbers_from_a_file(method, tmp_path):
    _, new = data()
    cad = fitted(method)
    found = cad.discover(new, fdr=0.2)
    # Five of 30 need p <= 1/30, and a repeated split, which doubles p-values, has none below 2/51.
    assert found.mask[-5:].all() == (not isinstance(method, Split))
    path = tmp_path / "toy.rcad"
    save(cad, path)
    assert inspect(path).foreign_types == ()
    again = load(path)
    assert np.array_equal(again.p_values(new), cad.p_values(new))
    assert np.array_equal(again.discover(new, fdr=0.2).mask, found.mask)
    assert type(again.ensemble_) is type(cad.ensemble_)
    assert "toy" in str(inspect(path))


def test_the_default_full_conformal_ranks_are_those_of_one_fit_per_row():
    X, new = data()
    cad = fitted("full", ties="randomized")
    assert type(cad.ensemble_) is FullRefit
    seed = cad.ensemble_.seed
    for x, rank in zip(new, cad.ranks(new), strict=True):
        together = np.vstack([X, x])
        scores = Toy(random_state=seed).fit(sorted_by_content(together)[0]).score_samples(together)
        assert rank == 1 + (scores[:-1] <= scores[-1]).sum()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_a_single_model_is_a_detector_of_scikit_learn():
    check_estimator(Toy())


def test_a_fitted_one_is_calibrated_and_saved_as_it_is(tmp_path):
    X, new = data()
    cad = ConformalDetector(Toy(random_state=3).fit(X[:50]), "prefit").fit(X[50:])
    save(cad, tmp_path / "toy.rcad")
    again = load(tmp_path / "toy.rcad")
    assert np.array_equal(again.p_values(new), cad.p_values(new))
    assert again.detector.offset_ == cad.detector.offset_


def test_files_from_elsewhere_are_checked(tmp_path):
    from forge import forge, members_of

    path = tmp_path / "toy.rcad"
    save(fitted("split"), path)
    members = members_of(path)
    model = json.loads(members["model.json"])
    (entry,) = model["estimators"]
    for change in ({"native": "Popen"}, {"fitted": {}}, {"parameters": {"dict": [["code", 1]]}}):
        forged = {**model, "estimators": [{**entry, **change}]}
        forge(path, {**members, "model.json": json.dumps(forged).encode()})
        refused("damaged", load, path)


class BatchToy(Toy):
    """Breaks the one promise that a detector must keep: a row is scored by itself."""

    def _score_rows(self, X):
        return super()._score_rows(X - X.mean(axis=0))


def test_a_detector_that_looks_at_the_batch_is_refused():
    X, _ = data()
    for method in ("split", "cv+", "jackknife+"):
        with pytest.raises(BatchDependenceError, match="one by one after fitting, such as 'knn'"):
            ConformalDetector(BatchToy(), method).fit(X)


def test_messages_know_it():
    assert named("or").startswith("'knn', ")
    assert named("or").endswith(" or 'toy'")
    refused(r"'knn', .*, 'toy'; got 'tow'", resolve_detector, "tow")
    refused(f"detector must be {named('or')}", ConformalDetector(7).fit, data()[0])


def test_prepare_reads_whether_scale_matters(monkeypatch):
    def steps():
        return [name for name, _ in make_prepared("toy", [0, 1], [])[0].transformers[0][1].steps]

    assert steps() == ["impute", "scale"]
    row = Entry("toy", Toy, ROW.title, ROW.summary, scale_matters=False, record=ROW.record)
    monkeypatch.setitem(DETECTORS, "toy", row)
    assert steps() == ["impute"]


def test_a_study(tmp_path):
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    from reconform.study import Protocol, Study

    X, new = data(n=60, m=40)
    study = Study(
        [("mine", np.vstack([X, new]), np.repeat([0, 1], [95, 5]))],
        ["toy", ("strong", Toy(power=2.0))],
        ["split", "cv+"],
        Protocol(draws=2, test_sets=3, folds=4),
    )
    results = study.run(tmp_path).results_
    assert len(results) == 8
    assert study.run(tmp_path).results_.equals(results)
    identities = [json.loads(path.read_bytes())["identity"] for path in tmp_path.glob("parts/*")]
    strong = "toy(contamination=0.1, power=2.0, random_state=None)"
    assert {identity["detector"] for identity in identities} == {"'toy'", strong}


def test_the_command_line(tmp_path):
    """A process of its own: the choices are read from the registry when the options are made."""
    X, new = data()
    for name, rows in (("normal.csv", X), ("new.csv", new)):
        np.savetxt(tmp_path / name, rows, delimiter=",", header="a,b,c", comments="")
    run = (
        "import sys; sys.path[:0] = sys.argv.pop(1), sys.argv.pop(1); "
        "import test_recipe_detector as recipe; recipe.DETECTORS['toy'] = recipe.ROW; "
        "from reconform.cli import main; main()"
    )

    def reconform(*arguments):
        program = [sys.executable, "-c", run, *map(str, Path(__file__).parents[:2]), *arguments]
        wide = {**os.environ, "COLUMNS": "200"}
        return subprocess.run(program, cwd=tmp_path, env=wide, capture_output=True, text=True)

    chosen = "--detector", "toy", "--method", "cv+", "--fdr", "0.2"
    said = reconform("detect", "normal.csv", "new.csv", *chosen, "--output", "out.csv", "--json")
    assert said.returncode == 0, said.stderr
    flagged = [line.endswith(",true") for line in (tmp_path / "out.csv").read_text().split()[1:]]
    expected = ConformalDetector("toy", "cv+", random_state=0).fit(X).discover(new, fdr=0.2)
    assert flagged == expected.mask.tolist()
    listed = reconform("fit", "--help").stdout
    assert "toy" in listed
    assert ROW.summary in re.sub(r"\s+", " ", listed)


def test_documents_list_every_detector():
    methods, cli = ((DOCS / name).read_text() for name in ("methods.md", "cli.md"))
    for name, row in DETECTORS.items():
        if row is not ROW:
            matters = "yes" if row.scale_matters else "no"
            assert f'| `"{name}"` | `{row.kind.__name__}` | {row.summary} | {matters} |' in methods
            assert f"`{name}`" in cli
            assert f'``"{name}"``' in ConformalDetector.__doc__
