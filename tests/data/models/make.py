"""Write the model file that `test_models` reads: ``python tests/data/models/make.py``.

Run it again where the format changes on purpose; until a release there is one format.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from reconform import ConformalDetector
from reconform.detectors import IForest
from reconform.models import save

HERE = Path(__file__).parent


def main() -> None:
    rng = np.random.default_rng(20261115)
    X, rows = rng.normal(size=(24, 3)), rng.normal(0, 1.5, size=(15, 3)).round(3)
    # Ranks of this one are sums of integers, the same everywhere, and draws go on after loading.
    cad = ConformalDetector(IForest(n_estimators=5, max_samples=6), "full", random_state=1).fit(X)
    save(cad, HERE / "iforest-full.rcad", overwrite=True)
    expected = {
        "ensemble": type(cad.ensemble_).__name__,
        "fingerprint": cad.calibration_.fingerprint,
        "rows": rows.tolist(),
        "ranks": cad.ranks(rows).tolist(),
    }
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
