"""Jobs that people come with (issue 16), from one end to the other, on real rows.

Those that are one command have their tests with it: explanations, checks, streams, lists of rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

from commands import run, run_json
from reconform import ConformalDetector
from reconform.study import PAPER_DATASETS, load

pytestmark = [
    pytest.mark.filterwarnings("ignore::reconform.ReferenceWarning"),
    pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning"),
]

QUICK = ["--detector", "knn", "--method", "full"]


@pytest.fixture(scope="module")
def tumours():
    """Last month (benign), and today (benign and 15 malignant), with names and times."""
    data = load_breast_cancer(as_frame=True)
    frame = data.data.iloc[:, :10].rename(columns=lambda name: name.replace(" ", "_"))
    frame.insert(0, "patient", [f"P{i:03d}" for i in range(len(frame))])
    benign, malignant = frame[data.target == 1], frame[data.target == 0]
    today = pd.concat([benign[250:], malignant[:15]]).sample(frac=1, random_state=0)
    return {"month": benign[:250], "today": today, "malignant": set(malignant["patient"])}


@pytest.fixture
def here(tumours, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("month", "today"):
        tumours[name].to_csv(f"{name}.csv", index=False)
    return tmp_path


def numbers(frame):
    return frame.drop(columns="patient")


# --- 1. today's file against last month's --------------------------------------------------------


def test_todays_file_against_last_months(here, tumours):
    told = run("detect", "month.csv", "today.csv", *QUICK).output
    assert "Column 'patient': id, different in most rows: left out." in told
    facts = run_json("detect", "month.csv", "today.csv", "--id", "patient", *QUICK, "--fdr", "0.2",
                     "--output", "flagged.csv", "--report", "report.html")  # fmt: skip
    flagged = pd.read_csv("flagged.csv").query("anomaly")
    assert len(flagged) == facts["flagged"] >= 5
    assert flagged["patient"].isin(tumours["malignant"]).mean() >= 0.7
    assert facts["assumption"]["verdict"] in ("holds", "doubtful")
    assert Path("report.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("name", PAPER_DATASETS)
def test_the_papers_data(name, data_folder):
    """A first look at each of the eight: some outliers are found, few normal rows are flagged."""
    data = load(name, data_folder)
    rng = np.random.default_rng(0)
    normal, odd = rng.permutation(data.normal)[:600], rng.permutation(data.outliers)[:30]
    n = len(normal) // 2
    rows = np.concatenate([normal[n:], odd])
    cad = ConformalDetector("knn", random_state=0).fit(data.X[normal[:n]])
    found = cad.discover(data.X[rows], fdr=0.2)
    anomalous = np.arange(len(rows)) >= len(normal) - n
    if found.count:
        assert (found.mask & ~anomalous).sum() <= max(2, 0.6 * found.count)
    else:
        assert found.why_nothing
    assert len(found.first(20).positions) == 20
