"""Models in a folder: the same numbers, one at a time in memory, and nothing left behind."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.ensemble import IsolationForest

from reconform import Bootstrap, ConformalDetector, CrossValidation, Jackknife, Split
from reconform.ensemble.keep import KeptModel
from reconform.ensemble.refitting import refit
from reconform.methods import Resampling
from reconform.statistics.aggregation import reduction
from reconform.statistics.ranks import calibrate

X = np.random.default_rng(0).normal(size=(40, 2))
NEW = np.random.default_rng(1).normal(size=(15, 2)) * 2


def fitted(keep, method=None, **parameters):
    method = CrossValidation(folds=4) if method is None else method
    forest = IsolationForest(n_estimators=4)
    return ConformalDetector(forest, method, random_state=0, keep=keep, **parameters).fit(X)


@pytest.mark.parametrize(
    "method",
    [
        Split(),
        Split(repeats=3),
        CrossValidation(folds=4),
        CrossValidation(folds=4, variant="basic"),
        CrossValidation(folds=4, variant="pooled"),
        Bootstrap(draws=5, aggregate="mean"),
        Jackknife(),
    ],
    ids=str,
)
def test_a_folder_changes_no_number(method, tmp_path):
    kept, usual = fitted(tmp_path, method), fitted("memory", method)
    assert np.array_equal(kept.calibration_.scores, usual.calibration_.scores)
    assert np.array_equal(kept.ranks(NEW), usual.ranks(NEW))


@pytest.mark.parametrize("backend", ["threading", "loky", "multiprocessing"])
def test_models_are_written_where_they_are_fitted(backend, tmp_path):
    with parallel_config(backend, n_jobs=2):
        kept = fitted(tmp_path)
    (folder,) = tmp_path.iterdir()
    assert sorted(path.name for path in folder.iterdir()) == [f"{k}.joblib" for k in range(4)]
    assert all(type(model) is KeptModel for model in kept.ensemble_.models)
    assert np.array_equal(kept.ranks(NEW), fitted("memory").ranks(NEW))


def test_only_this_user_can_read_the_folder(tmp_path):
    kept = fitted(tmp_path)
    assert kept.ensemble_.folder.path.stat().st_mode & 0o077 == 0


def test_one_model_at_a_time_is_in_memory(tmp_path, monkeypatch):
    kept = fitted(tmp_path)
    alive, most = [0], [0]
    load = KeptModel.load

    class Counted:
        def __init__(self, model):
            self.model = model
            alive[0] += 1
            most[0] = max(most[0], alive[0])

        def __del__(self):
            alive[0] -= 1

        def score_samples(self, rows):
            return self.model.score_samples(rows)

    monkeypatch.setattr(KeptModel, "load", lambda self: Counted(load(self)))
    kept.ranks(NEW)
    assert most == [1]


def test_the_folder_goes_with_the_detector(tmp_path):
    kept = fitted(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    kept.fit(X)  # the models of the first fit go, those of the second come
    gc.collect()
    assert len(list(tmp_path.iterdir())) == 1
    del kept
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_close_removes_the_models_at_once(tmp_path):
    kept = fitted(tmp_path)
    kept.ensemble_.close()
    kept.ensemble_.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError, match="cache that lives as long as the fitted detector"):
        kept.ranks(NEW)


def test_the_folder_goes_when_the_program_ends(tmp_path):
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); "
        "from test_keep import fitted; "
        f"kept = fitted({str(tmp_path)!r}); print(len(kept.ensemble_.models))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "4", result.stderr
    assert list(tmp_path.iterdir()) == []


def test_copies_read_the_folder_but_never_remove_it(tmp_path):
    kept = fitted(tmp_path)
    ranks = kept.ranks(NEW)
    for copied in (pickle.loads(pickle.dumps(kept)), copy.deepcopy(kept)):
        assert np.array_equal(copied.ranks(NEW), ranks)
        copied.ensemble_.close()
    del copied
    gc.collect()
    assert np.array_equal(kept.ranks(NEW), ranks)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_remove_it(tmp_path):
    kept = fitted(tmp_path)
    child = os.fork()
    if not child:
        kept.ensemble_.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert len(kept.ranks(NEW)) == len(NEW)


def test_clone_keeps_the_parameter(tmp_path):
    assert clone(ConformalDetector(keep=tmp_path)).keep == tmp_path


def test_native_detectors_write_nothing(tmp_path):
    ConformalDetector("knn", "cv+", random_state=0, keep=tmp_path).fit(X)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keep", ["disk", None, 3, __file__])
def test_what_is_no_folder_is_refused(keep):
    with pytest.raises(ValueError, match="keep must be 'memory' or a folder that exists; got"):
        fitted(keep)


def test_a_full_disk_is_named_and_nothing_is_left(tmp_path, monkeypatch):
    def dump(model, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("joblib.dump", dump)
    with pytest.raises(OSError, match=r"model 0 cannot be written .*No space left") as caught:
        fitted(tmp_path)
    assert caught.value.errno == 28
    assert str(tmp_path) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


# --- what travels with a fit ---------------------------------------------------------------------


class Witness:
    """An algorithm whose models tell which rows they were given, and how these came."""

    name = "Witness"

    def fit_model(self, rows, seed):
        return Seen(rows[:, 0])

    def check_model(self, model, rows):
        model.mapped = isinstance(rows, np.memmap)


class Seen:
    def __init__(self, rows):
        self.rows = rows

    def score_samples(self, rows):
        return rows[:, 0] + self.rows[0] / 1024


@pytest.mark.parametrize(
    "method",
    [
        Split(0.1),
        Split(0.9),
        CrossValidation(folds=3),
        Bootstrap(draws=4),
        Jackknife(),
        Resampling([[5, 3, 4], np.arange(299)[::-1], np.repeat(np.arange(290), 2)]),
    ],
    ids=["split", "mostly held out", "cv", "bootstrap", "jackknife", "by hand"],
)
def test_indices_arrive_as_they_were_planned(method):
    n = 300  # more than a byte can number
    plan = method.plan(n, random_state=0)
    rows = np.arange(n, dtype=float)[:, None]
    ensemble = refit(Witness(), rows, plan, [None] * (plan.n_models + 1))
    models = ensemble.models if plan.full else [ensemble.full]
    assert all(np.array_equal(m.rows, T_k) for m, T_k in zip(models, plan.train, strict=True))
    scores = [Seen(rows[T_k, 0]).score_samples(rows[H_k]) for T_k, H_k in pairs(plan)]
    expected = calibrate(plan, scores, reduction(plan.aggregate))
    assert ensemble.calibration.fingerprint == expected.fingerprint


def pairs(plan):
    return zip(plan.train, plan.held_out, strict=True)


def test_processes_map_the_reference_instead_of_copying_it():
    rows = np.zeros((100_000, 2))
    plan = Split(0.5).plan(len(rows), random_state=0)
    with parallel_config("loky", n_jobs=2):
        ensemble = refit(Witness(), rows, plan, [None] * 2)
    assert ensemble.full.mapped
