"""The main job, on data that ships with scikit-learn: find the malignant among the benign."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .detector import ConformalDetector
from .discoveries import Discoveries


@dataclass(frozen=True)
class Demo:
    """What the demo did.

    Attributes
    ----------
    found : Discoveries
    truth : bool array
        Which new rows are malignant.
    n_reference : int
        Number of benign reference rows.
    """

    found: Discoveries
    truth: np.typing.NDArray[np.bool_]
    n_reference: int

    @property
    def false_share(self) -> float:
        """Share of the flagged rows that are benign."""
        return float((self.found.mask & ~self.truth).sum() / max(1, self.found.count))

    @property
    def power(self) -> float:
        """Share of the malignant rows that are flagged."""
        return float((self.found.mask & self.truth).sum() / self.truth.sum())


def run_demo(detector: str = "knn", method: str = "jackknife+", fdr: float = 0.1) -> Demo:
    """Fit on half of the benign rows, and judge the rest mixed with malignant ones.

    Examples
    --------
    >>> demo = run_demo()
    >>> demo.n_reference, len(demo.found)
    (178, 229)
    """
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    rng = np.random.default_rng(0)
    benign = rng.permutation(X[y == 1])
    malignant = rng.permutation(X[y == 0])[:50]
    reference, rest = benign[:178], benign[178:]
    new = np.vstack([rest, malignant])
    order = rng.permutation(len(new))
    truth = np.r_[np.zeros(len(rest), bool), np.ones(len(malignant), bool)][order]
    cad = ConformalDetector(detector, method, random_state=0).fit(reference)
    return Demo(cad.discover(new[order], fdr=fdr), truth, len(reference))
