"""Write the fixtures of a format version: a small model per kind of ensemble, and its ranks.

A file is written once, by the reconform that introduced it, and never again:
``python tests/data/models/make.py`` writes those that are not there yet. Version 1 is in this
folder; version 2 has draws keyed by content, and only what it writes otherwise or what is new.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from reconform import Bootstrap, ConformalDetector, CrossValidation, Resampling, Split
from reconform.detectors import INNE, KDE, KNN, LOF, Contrast, IForest, Mahalanobis
from reconform.models import inspect, save
from reconform.models.archive import FORMAT_VERSION

HERE = Path(__file__).parent / f"version-{FORMAT_VERSION}"
CHANGED = (
    "iforest-shared-jackknife-plus",
    "iforest-shared-jackknife",
    "iforest-full",
    "iforest-refitted-full",
    "inne-shared-jackknife-plus",
    "inne-full",
    "knn-scaled-jackknife-plus",
    "knn-scaled-full",
    "inne-scaled-split",
    "lof-jackknife-plus",
    "lof-full",
    "mahalanobis-jackknife-plus",
    "mahalanobis-full",
    "mahalanobis-split",
    "kde-jackknife-plus",
    "kde-full",
    "kde-split",
    "kde-by-rule-jackknife-plus",
    "contrast-full",
)
FOREST = IForest(n_estimators=5, max_samples=6)
SHARED_FOREST = IForest(n_estimators=3, max_samples=4, share=True)
SPHERES = INNE(n_estimators=6, max_samples=4)
SHARED_SPHERES = INNE(n_estimators=4, max_samples=3, share=True)
TURNED = {"larger_is": "anomalous"}  # a native detector taken for a foreign one

MODELS = {
    "knn-split": (KNN(3), "split", {}),
    "knn-repeated-split": (KNN(2), Split(repeats=3), {}),
    "knn-jackknife-plus": (KNN(3), "jackknife+", {}),
    "knn-cosine-cv": (KNN(3, metric="cosine"), "cv", {}),
    "knn-jab-plus": (KNN(3), Bootstrap(draws=3), {}),
    "knn-canberra-full": (KNN(3, metric="canberra"), "full", {}),
    "knn-wide-full": (KNN(3, algorithm="brute"), "full", {}),
    "knn-few-rows": (KNN(n_neighbors=3), Resampling([np.arange(4), np.arange(10, 14)]), {}),
    "iforest-split": (FOREST, "split", {}),
    "iforest-jab-plus": (FOREST, Bootstrap(draws=4), {}),
    "iforest-cv-plus": (FOREST, CrossValidation(folds=3), {}),
    "iforest-cv": (FOREST, CrossValidation(folds=3, variant="basic"), {}),
    "iforest-shared-jackknife-plus": (SHARED_FOREST, "jackknife+", {}),
    "iforest-shared-jackknife": (SHARED_FOREST, "jackknife", {}),
    "iforest-full": (FOREST, "full", {}),
    "iforest-prefit": (FOREST, "prefit", {}),
    "iforest-refitted-full": (FOREST, "full", TURNED),
    "inne-split": (SPHERES, "split", {}),
    "inne-cv": (SPHERES, CrossValidation(folds=3, variant="basic"), {}),
    "inne-jab-pooled": (SPHERES, Bootstrap(draws=3, aggregate="mean", variant="pooled"), {}),
    "inne-shared-jackknife-plus": (SHARED_SPHERES, "jackknife+", {}),
    "inne-full": (SPHERES, "full", {}),
    "knn-scaled-jackknife-plus": (KNN(n_neighbors=3, scale="robust"), "jackknife+", {}),
    "knn-scaled-full": (KNN(n_neighbors=3, scale="robust"), "full", {}),
    "inne-scaled-split": (INNE(n_estimators=6, max_samples=4, scale="robust"), "split", {}),
    "lof-jackknife-plus": (LOF(n_neighbors=4), "jackknife+", {}),
    "lof-full": (LOF(n_neighbors=4), "full", {}),
    "mahalanobis-jackknife-plus": (Mahalanobis(), "jackknife+", {}),
    "mahalanobis-full": (Mahalanobis(), "full", {}),
    "mahalanobis-split": (Mahalanobis(), "split", {}),
    "kde-jackknife-plus": (KDE(0.5), "jackknife+", {}),
    "kde-full": (KDE(0.5), "full", {}),
    "kde-split": (KDE(0.5), "split", {}),
    "kde-by-rule-jackknife-plus": (KDE(), "jackknife+", {}),
    "contrast-full": (Contrast(n_neighbors=(1, 3)), "full", {}),
    "pipeline-cv-plus": (make_pipeline(StandardScaler(), FOREST), CrossValidation(folds=2), {}),
}


def main() -> None:
    """Write the files that are missing."""
    rng = np.random.default_rng(20261115)
    X, rows = rng.normal(size=(24, 3)), rng.normal(0, 1.5, size=(15, 3)).round(3)
    HERE.mkdir(exist_ok=True)
    facts_file = HERE / "expected.json"
    expected = json.loads(facts_file.read_text()) if facts_file.exists() else {}
    for name in CHANGED:
        if f"{name}.rcad" in expected:
            continue
        detector, method, options = MODELS[name]
        cad = ConformalDetector(detector, method, random_state=1, **options).fit(X)
        path = HERE / f"{name}.rcad"
        save(cad, path, overwrite=True)
        # Scores of forests are powers of two, whose last bit another machine may round otherwise;
        # a tie with a stored score may then count as less. All other arithmetic is exact, or
        # near ties count as ties.
        powers = "forest" in repr(detector).lower()
        ranks = cad.ensemble_.ranks(rows, strictly=powers)
        expected[path.name] = {
            "ensemble": type(cad.ensemble_).__name__,
            "foreign": any(part.name == "foreign" for part in inspect(path).parts),
            "fingerprint": cad.calibration_.fingerprint,
            "ranks": ranks.at_most.tolist(),
            "at_least": (ranks.below if powers else ranks.at_most).tolist(),
        }
    lines = [f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in expected.items()]
    facts_file.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
