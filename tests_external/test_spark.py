"""Spark on real executors: the answers of one machine, row for row, also where one is killed.

Not part of the ordinary tests, for pyspark is a large download: ``make test-spark``.
"""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest

pytest.importorskip("pyspark", reason="needs pyspark: make test-spark installs it")

from reconform import ConformalDetector
from reconform.distributed import discover
from reconform.errors import ReconformError

PAGE = Path(__file__).parent.parent / "docs" / "distributed.md"
NAMES = ["flow", "heat", "speed"]
RESULTS = ["score", "p_value", "q_value", "anomaly"]


def java_version() -> int | None:
    """Major version of the Java that Spark would use, or None."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home, "bin", "java")) if home else "java"
    try:
        result = subprocess.run([command, "-version"], capture_output=True, text=True)
    except OSError:
        return None
    found = re.search(r'version "(\d+)', result.stderr)
    return int(found[1]) if found else None


@pytest.fixture(scope="module")
def spark():
    """A cluster on this machine: two executors, each a process of its own."""
    version = java_version()
    if version is None or version < 17:
        pytest.skip(f"Spark needs Java 17 or newer; found {version or 'none'}. Set JAVA_HOME.")
    import pyspark
    from pyspark.sql import SparkSession

    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "700")
        .getOrCreate()
    )
    yield session
    session.stop()


def rows_of(seed, normal, strange=0):
    """Normal rows and strange ones, shuffled."""
    rng = np.random.default_rng(seed)
    rows = np.vstack([rng.normal(size=(normal, 3)), rng.normal(5, 1, size=(strange, 3))])
    return pd.DataFrame(rng.permutation(rows), columns=NAMES)


def numbered(new):
    """Rows that can be told apart, with a column that pandas would change on the way."""
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(k % 365) for k in range(len(new))]
    return new.assign(number=np.arange(len(new)), day=days)


def same(found, whole, new):
    """Whether both say the same of every row, and the columns came through."""
    judged = found.frame.toPandas().sort_values("number", ignore_index=True)
    expected = whole.to_frame(order="input").reset_index(drop=True)[RESULTS]
    pd.testing.assert_frame_equal(judged[RESULTS], expected, check_exact=True)
    pd.testing.assert_frame_equal(judged[list(new.columns)], new, check_exact=True)
    assert found.count == whole.count > 0
    assert found.tested == len(new)
    assert found.guarantee == whole.guarantee


NEW = numbered(rows_of(1, 2600, 400))
REFERENCE = rows_of(0, 2000)


@pytest.mark.parametrize(
    ("detector", "method", "partitions"), [("iforest", "split", 1), ("knn", "cv+", 20)]
)
def test_the_answer_is_that_of_one_machine(spark, detector, method, partitions):
    """Row for row, whatever the partitions."""
    cad = ConformalDetector(detector, method, random_state=0).fit(REFERENCE)
    rows = spark.createDataFrame(NEW).repartition(partitions, "number")
    same(discover(cad, rows), cad.discover(NEW[NAMES]), NEW)


def test_a_detector_is_chosen_from_the_pool(spark):
    """The surveys of the partitions add up to one choice."""
    cad = ConformalDetector(["knn", "mahalanobis", "iforest"], "split", random_state=0)
    cad.fit(REFERENCE)
    rows = spark.createDataFrame(NEW).repartition(9)
    found, whole = discover(cad, rows), cad.discover(NEW[NAMES])
    same(found, whole, NEW)
    assert found.choice == whole.choice


def test_few_rows_are_judged_together_by_default(spark):
    """A certified list, as on one machine."""
    new = NEW[:60]
    cad = ConformalDetector(["knn", "iforest"], "auto", random_state=0).fit(REFERENCE[:300])
    whole = cad.discover(new[NAMES])
    judged = discover(cad, spark.createDataFrame(new).repartition(3)).frame.toPandas()
    judged = judged.sort_values("number", ignore_index=True)
    assert judged["p_value"].tolist() == whole.p_values.tolist()
    assert judged["anomaly"].tolist() == whole.mask.tolist()


def test_groups_and_false_alarms(spark):
    """Rows are ranked within their groups; a budget of false alarms is a rule like any other."""
    groups = np.where(np.arange(2000) < 1200, "pump", "fan")
    cad = ConformalDetector("iforest", "split", random_state=0).fit(REFERENCE, groups=groups)
    new = NEW.assign(kind=np.where(NEW["number"] % 3, "pump", "fan"))
    rows = spark.createDataFrame(new).repartition(4)
    same(discover(cad, rows, groups="kind"), cad.discover(new[NAMES], groups=new["kind"]), new)
    found = discover(cad, rows, groups="kind", false_alarms=5, id_columns=["number"])
    assert found.count == cad.discover(new[NAMES], groups=new["kind"], false_alarms=5).count
    assert found.frame.columns == ["number", *RESULTS]


def test_empty_partitions_do_no_harm(spark):
    """More partitions than rows; and no rows at all."""
    cad = ConformalDetector("knn", "split", random_state=0).fit(REFERENCE)
    rows = spark.createDataFrame(rows_of(1, 0, 3)).repartition(9)
    found = discover(cad, rows)
    assert found.tested == found.frame.count() == 3
    with pytest.raises(ReconformError, match="data has no rows"):
        discover(cad, rows.limit(0))


def test_a_killed_executor_changes_nothing(spark):
    """Its ranks are computed again on another one."""
    cad = ConformalDetector("knn", "split", random_state=0).fit(REFERENCE)
    found = discover(cad, spark.createDataFrame(NEW).repartition(8, "number"))
    executors = [
        one
        for one in psutil.Process().children(recursive=True)
        if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline())
    ]
    assert len(executors) >= 2
    executors[0].kill()
    same(found, cad.discover(NEW[NAMES]), NEW)


def test_what_cannot_be_judged_is_said(spark):
    """Columns that are missing, groups that nobody asked for, a row that has a gap."""
    cad = ConformalDetector("knn", "split", random_state=0).fit(REFERENCE)
    with pytest.raises(ReconformError, match="data lacks 'heat'"):
        discover(cad, spark.createDataFrame(NEW.drop(columns="heat")))
    with pytest.raises(ReconformError, match="fitted without groups"):
        discover(cad, spark.createDataFrame(NEW), groups="kind")
    with pytest.raises(ReconformError, match=r"^data cannot be judged: .*NaN"):
        discover(cad, spark.createDataFrame(NEW.assign(heat=NEW["heat"].where(NEW["heat"] < 2))))


def test_the_page_runs(spark):
    """The example of docs/distributed.md, as it stands."""
    (example,) = re.findall(r"^```python-spark\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.M)
    names = {"spark": spark, "normal": REFERENCE, "rows": spark.createDataFrame(NEW)}
    exec(compile(example, str(PAGE), "exec"), names)
    assert names["found"].count == names["anomalies"].count() > 50
