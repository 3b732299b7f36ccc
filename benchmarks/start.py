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
for detector in ("knn", "iforest", "inne"):
    for method in ("split", "jackknife+", "cv+", "jab+", "full"):
        ConformalDetector(detector, method, random_state=0).fit(X).discover(X[:50])
"""


def seconds_of(code: str, **environment: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **environment})
    return time.perf_counter() - start


def measure(repeats: int = 7) -> dict[str, Any]:
    """Seconds of the first use, of later ones, and of the imports."""
    with tempfile.TemporaryDirectory() as cache:
        first = seconds_of(FIRST_USE, NUMBA_CACHE_DIR=cache)
        later = [seconds_of(FIRST_USE, NUMBA_CACHE_DIR=cache) for _ in range(3)]
        ours, base = [], []
        for _ in range(repeats):  # taken in turn, so that both meet the same noise
            ours.append(seconds_of("import reconform", NUMBA_CACHE_DIR=cache))
            base.append(seconds_of("import sklearn.base, numba", NUMBA_CACHE_DIR=cache))
    return {
        "first use, every detector and method, compiling": round(first, 2),
        "the same from the cache": round(statistics.median(later), 2),
        "import reconform": round(statistics.median(ours), 3),
        "import sklearn.base, numba": round(statistics.median(base), 3),
        "ratio of imports (asked: <= 1.3)": round(
            statistics.median(ours) / statistics.median(base), 2
        ),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
