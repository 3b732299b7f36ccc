"""Cold start: the first use in a new environment, compilation included; and what importing costs.

Run ``python benchmarks/start.py``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

FIRST_USE = """
import numpy as np
from reconform import ConformalDetector
X = np.random.default_rng(0).normal(size=(300, 4))
print(ConformalDetector(random_state=0).fit(X[:200]).discover(X[200:]))
"""


def seconds_of(*command: str, **environment: str) -> float:
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, *command],
        check=True,
        capture_output=True,
        env={**os.environ, **environment},
    )
    return time.perf_counter() - start


def measure(repeats: int = 7) -> dict[str, Any]:
    """Seconds of the first list in a new environment, of later ones, of the imports and of help."""
    with tempfile.TemporaryDirectory() as cache:
        first = seconds_of("-c", FIRST_USE, NUMBA_CACHE_DIR=cache)
        programs = {
            "the same from the cache": ("-c", FIRST_USE),
            "from reconform import ConformalDetector": (
                "-c",
                "from reconform import ConformalDetector",
            ),
            "import sklearn.base, numba": ("-c", "import sklearn.base, numba"),
            "reconform --help": ("-m", "reconform", "--help"),
        }
        taken: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(repeats):  # in turn, so that all meet the same noise
            for name, command in programs.items():
                taken[name].append(seconds_of(*command, NUMBA_CACHE_DIR=cache))
    made = {"the default list, compiling": round(first, 1)}
    return made | {name: round(statistics.median(each), 2) for name, each in taken.items()}


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
