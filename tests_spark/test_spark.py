"""The Spark recipe of docs/distributed.md, run as it stands: local mode, real Java, real workers.

Not part of the ordinary tests, for pyspark is a large download: ``make test-spark``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pyspark", reason="needs pyspark: make test-spark installs it")

PAGE = Path(__file__).parent.parent / "docs" / "distributed.md"
NAMES = ["flow", "heat", "speed"]
RESULTS = ["p_value", "q_value", "anomaly"]


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
    """Spark on two cores of this machine."""
    version = java_version()
    if version is None or version < 17:
        pytest.skip(f"Spark needs Java 17 or newer; found {version or 'none'}. Set JAVA_HOME.")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "700")
        .getOrCreate()
    )
    yield session
    session.stop()


def run_recipe(spark, normal, rows):
    """Run the recipe, and return all names that it made."""
    (recipe,) = re.findall(r"^```python-spark\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.M)
    names = {"spark": spark, "normal": normal, "rows": rows}
    exec(compile(recipe, str(PAGE), "exec"), names)
    return names


def rows_of(seed, normal, strange=0):
    """Normal rows and strange ones, shuffled."""
    rng = np.random.default_rng(seed)
    rows = np.vstack([rng.normal(size=(normal, 3)), rng.normal(5, 1, size=(strange, 3))])
    return pd.DataFrame(rng.permutation(rows), columns=NAMES)


@pytest.mark.parametrize("partitions", [1, 7])
def test_the_recipe_gives_the_answer_of_one_machine(spark, partitions):
    """Row for row, whatever the partitions."""
    new = rows_of(1, 4900, 100).assign(number=np.arange(5000))
    rows = spark.createDataFrame(new).repartition(partitions, "number")
    names = run_recipe(spark, rows_of(0, 2000), rows)
    judged = names["judged"].toPandas().sort_values("number", ignore_index=True)

    whole = names["cad"].discover(new[NAMES], fdr=0.1)
    expected = whole.to_frame(order="input")[RESULTS]
    pd.testing.assert_frame_equal(judged[RESULTS], expected, check_exact=True)
    pd.testing.assert_frame_equal(judged[[*NAMES, "number"]], new, check_exact=True)
    assert names["decision"].count == whole.count > 50
    names["ranked"].unpersist()


def test_empty_partitions_do_no_harm(spark):
    """More partitions than rows."""
    rows = spark.createDataFrame(rows_of(1, 0, 3)).repartition(9)
    names = run_recipe(spark, rows_of(0, 2000), rows)
    assert names["decision"].tested == len(names["judged"].toPandas()) == 3
