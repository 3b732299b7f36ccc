"""Rows that are too many for a detector or a rule are refused; nothing is written."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from reconform.cli import main
from reconform.files import result as results

REFERENCE, NEW = 150, 130


@pytest.fixture
def tables(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for name, rows in (("normal", REFERENCE), ("new", NEW)):
        frame = pd.DataFrame(rng.normal(size=(rows, 2)), columns=["x", "y"])
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        frame.to_csv(tmp_path / f"{name}.csv.gz", index=False)
        frame.to_parquet(tmp_path / f"{name}.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def detect(new, *options):
    return CliRunner().invoke(main, ["detect", "normal.csv", new, "--output", "out.csv", *options])


TOO_MANY = {
    "contrast": ("--detector", "contrast", "--method", "full"),
    "contrast, by size": ("--detector", "contrast"),
    "a choice, full": ("--method", "full"),
    "certified": ("--detector", "knn", "--method", "full", "--validity", "proven"),
    "certified, jackknife+": ("--detector", "iforest", "--method", "cv+", "--validity", "proven"),
}


@pytest.mark.parametrize(
    ("new", "options"),
    [
        *(("new.csv", options) for options in TOO_MANY.values()),
        *((name, TOO_MANY["contrast"]) for name in ("new.csv.gz", "new.parquet")),
    ],
)
def test_too_many_rows_are_refused(tables, monkeypatch, new, options):
    monkeypatch.setattr(results, "MOST_DISCOVERIES", NEW - 1)
    result = detect(new, *options)
    assert result.exit_code == 1
    assert f"more than {NEW - 1} rows" in result.stderr
    assert not (tables / "out.csv").exists()


@pytest.mark.slow
@pytest.mark.parametrize("options", TOO_MANY.values(), ids=TOO_MANY.keys())
def test_as_many_rows_as_can_be_judged_are(tables, monkeypatch, options):
    monkeypatch.setattr(results, "MOST_DISCOVERIES", NEW)
    assert detect("new.csv", *options).exit_code == 0


@pytest.mark.parametrize(
    "options",
    [("--detector", "knn"), ("--detector", "knn", "--validity", "proven", "--procedure", "by")],
    ids=["counts", "proven from counts"],
)
def test_what_needs_counts_only_is_not_refused(tables, monkeypatch, options):
    monkeypatch.setattr(results, "MOST_DISCOVERIES", NEW - 1)
    assert detect("new.csv", "--method", "full", *options).exit_code == 0
