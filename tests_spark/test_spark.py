"""The Spark recipe of docs/scale.md, run as it stands: local mode, real Java, real workers.

Not part of the ordinary tests, for pyspark is a large download: ``make test-spark``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("pyspark", reason="needs pyspark: make test-spark installs it")

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
NAMES = ["flow", "heat", "speed"]
RESULTS = ["p_value", "q_value", "anomaly"]


def java():
    """What Java there is, or None."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    try:
        result = subprocess.run([found or "java", "-version"], capture_output=True, text=True)
    except OSError:
        return None
    return result.stderr if result.returncode == 0 else None


@pytest.fixture(scope="module")
def spark():
    if java() is None:
        pytest.skip("Spark needs Java 17 or newer: no java on the PATH, and no JAVA_HOME")
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


def rows_of(seed, normal, strange=0):
    rng = np.random.default_rng(seed)
    rows = np.vstack([rng.normal(size=(normal, 3)), rng.normal(5, 1, size=(strange, 3))])
    return pd.DataFrame(rng.permutation(rows), columns=NAMES)


@pytest.mark.parametrize("partitions", [1, 7])
def test_the_recipe_gives_the_answer_of_one_machine(spark, partitions):
    (recipe,) = re.findall(r"^```python-spark\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.M)
    normal, new = rows_of(0, 2000), rows_of(1, 4900, 100).assign(number=np.arange(5000))
    rows = spark.createDataFrame(new).repartition(partitions, "number")
    names = {"spark": spark, "normal": normal, "rows": rows}
    exec(compile(recipe, str(PAGE), "exec"), names)
    judged = names["judged"].toPandas().sort_values("number", ignore_index=True)

    whole = names["cad"].discover(new[NAMES], fdr=0.1)
    expected = whole.to_frame(order="input")[RESULTS]
    pd.testing.assert_frame_equal(judged[RESULTS], expected, check_exact=True)
    pd.testing.assert_frame_equal(judged[[*NAMES, "number"]], new, check_exact=True)
    assert names["decision"].count == whole.count > 50
    names["ranked"].unpersist()


def test_empty_partitions_do_no_harm(spark):
    (recipe,) = re.findall(r"^```python-spark\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.M)
    normal, new = rows_of(0, 2000), rows_of(1, 0, 3)
    names = {"spark": spark, "normal": normal, "rows": spark.createDataFrame(new).repartition(9)}
    exec(compile(recipe, str(PAGE), "exec"), names)
    assert names["decision"].tested == len(names["judged"].toPandas()) == 3
