"""A small detector and a method for every ensemble that a model file can hold."""

from reconform.detectors import INNE, KDE, KNN, LOF, Contrast, ContrastForest, IForest, Mahalanobis

NATIVE = {
    "knn": KNN(n_neighbors=3),
    "iforest": IForest(n_estimators=9, max_samples=8),
    "iforest-shared": IForest(n_estimators=9, max_samples=8, max_features=2, share=True),
    "inne": INNE(n_estimators=9, max_samples=4),
    "inne-shared": INNE(n_estimators=9, max_samples=4, share=True),
    "lof": LOF(n_neighbors=4),
    "mahalanobis": Mahalanobis(),
    "kde": KDE(0.5),
    "kde-by-rule": KDE(scale="robust"),
}
# Detector, method and options, by the class of the ensemble.
ENSEMBLES = {
    "EnteredForest": (NATIVE["iforest"], "full", {}),
    "EnteredINNE": (NATIVE["inne"], "full", {}),
    "FullContrast": (Contrast(n_neighbors=(1, 3)), "full", {}),
    "FullContrastForest": (ContrastForest(n_estimators=9, scale="none"), "full", {}),
    "FullKDE": (NATIVE["kde"], "full", {}),
    "FullLOF": (NATIVE["lof"], "full", {}),
    "FullMahalanobis": (NATIVE["mahalanobis"], "full", {}),
    "FullNeighbours": (NATIVE["knn"], "full", {}),
    "FullRarity": ("rarity", "full", {}),
    "FullRefit": (NATIVE["iforest"], "full", {"larger_is": "anomalous"}),
    "LeaveOneOut": (NATIVE["knn"], "jackknife+", {}),
    "LeaveOneOutForests": (NATIVE["iforest-shared"], "jackknife+", {}),
    "LeaveOneOutINNE": (NATIVE["inne-shared"], "jackknife+", {}),
    "OneTable": (NATIVE["knn"], "cv+", {}),
    "RefitEnsemble": (NATIVE["iforest"], "cv+", {}),
    "ScaledFull": (KNN(n_neighbors=3, scale="robust"), "full", {}),
    "SeparateINNE": (NATIVE["inne"], "cv+", {}),
}
