"""A real MLflow: models saved, logged, loaded, and asked over HTTP.

Not part of the ordinary tests, for MLflow is a large download: ``make test-mlflow``.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

mlflow = pytest.importorskip("mlflow", reason="needs MLflow: make test-mlflow installs it")

import reconform.mlflow as flavor
from reconform import ConformalDetector, Prepare
from reconform.errors import ReconformError

NAMES = ["flow", "heat"]


def rows(seed, normal, strange=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        np.vstack([rng.normal(size=(normal, 2)), rng.normal(7, 1, size=(strange, 2))]),
        columns=NAMES,
    )


NEW = rows(1, 45, 5)


@pytest.fixture(scope="module")
def cad():
    return ConformalDetector(["knn", "mahalanobis"], random_state=0).fit(rows(0, 300))


@pytest.fixture(scope="module")
def saved(cad, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model"
    flavor.save_model(cad, path)
    return path


def test_a_saved_model_is_our_file_and_no_pickle(cad, saved):
    assert not list(saved.rglob("*.pkl"))
    again = flavor.load_model(saved)
    assert again.p_values(NEW).tolist() == cad.p_values(NEW).tolist()
    with pytest.raises(ReconformError, match=r"has no detector\.reconform"):
        flavor.load_model(saved / "MLmodel")


def test_pyfunc_judges_rows_alone_and_makes_a_list_where_it_is_asked_for(cad, saved):
    served = mlflow.pyfunc.load_model(str(saved))
    alone = served.predict(NEW)
    assert alone["p_value"].tolist() == cad.p_values(NEW).tolist()
    assert alone["outlier"].tolist() == (cad.predict(NEW) < 0).tolist()
    assert "send a batch" in alone["judged"][0]
    listed, found = (
        served.predict(NEW, params={"discover": True, "fdr": 0.2}),
        cad.discover(NEW, 0.2),
    )
    assert listed["anomaly"].tolist() == found.mask.tolist()
    assert found.count >= 5
    assert listed["judged"][0] == str(found)
    with pytest.raises(mlflow.exceptions.MlflowException, match="heat"):
        served.predict(NEW[["flow"]])


def test_a_model_is_logged_and_registered(cad, tmp_path):
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'runs.db'}")
    mlflow.create_experiment("machines", artifact_location=str(tmp_path / "artifacts"))
    mlflow.set_experiment("machines")
    with mlflow.start_run():
        logged = flavor.log_model(cad, registered_model_name="pump", input_example=NEW[:3])
    for uri in (logged.model_uri, "models:/pump/1"):
        assert flavor.load_model(uri).p_values(NEW).tolist() == cad.p_values(NEW).tolist()


def test_arrays_and_text_have_their_signatures(tmp_path):
    X = rows(0, 300).to_numpy()
    flavor.save_model(ConformalDetector("knn", "split").fit(X), tmp_path / "array")
    assert len(mlflow.pyfunc.load_model(str(tmp_path / "array")).predict(X[:3])) == 3
    mixed = rows(0, 300).assign(kind=np.where(np.arange(300) % 3, "pump", "fan"))
    cad = ConformalDetector(Prepare("knn"), "split", random_state=0).fit(mixed)
    with pytest.raises(ReconformError, match="'kind' is text; give `input_example`"):
        flavor.save_model(cad, tmp_path / "mixed")
    flavor.save_model(cad, tmp_path / "mixed", input_example=mixed[:3])
    served = mlflow.pyfunc.load_model(str(tmp_path / "mixed"))
    assert served.predict(mixed[:9])["p_value"].tolist() == cad.p_values(mixed[:9]).tolist()


def test_a_served_model_answers_over_http(cad, saved, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", str(saved)]
    options = ["--env-manager", "local", "-h", "127.0.0.1", "-p", str(port), "--workers", "1"]
    log = Path(tmp_path, "log").open("w")  # noqa: SIM115
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    server = subprocess.Popen(
        command + options,
        stdout=log,
        stderr=log,
        env={**os.environ, "PATH": path},
        start_new_session=True,
    )

    def asked(body):
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["predictions"]

    split = NEW.to_dict(orient="split", index=False)
    try:
        for _ in range(120):
            try:
                alone = asked({"dataframe_split": split})
                break
            except OSError:
                assert server.poll() is None, Path(tmp_path, "log").read_text()
                time.sleep(1)
        listed = asked({"dataframe_split": split, "params": {"discover": True}})
    finally:
        os.killpg(server.pid, 15)
        server.wait(30)
        log.close()
    assert [one["p_value"] for one in alone] == cad.p_values(NEW).tolist()
    assert [one["anomaly"] for one in listed] == cad.discover(NEW).mask.tolist()
    assert "false alarms" in listed[0]["judged"]
