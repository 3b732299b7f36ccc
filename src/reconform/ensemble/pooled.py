"""One model on the reference and the whole batch together: ``method="batch"``.

The model scores the n + m rows that it was fitted on, all alike, and a new row is ranked by its
score among those of the n reference rows. Rows are put in the order of their contents before the
fit, there is one seed, and equal rows get equal scores: so the scores are an equivariant function
of the rows, and everything that is proven of a split holds with all n rows (docs/guarantees).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..arrays import FloatArray, IndexArray
from ..content import scores_by_content, sorted_by_content
from ..errors import ReconformError
from ..frames import stacked
from ..statistics.ranks import Calibration, Ranks, ranks_among
from . import Ensemble, reference_calibration
from .refitting import Algorithm, Model


@dataclass(eq=False)
class Pooled(Ensemble):
    """One fit on D and the new rows, for every batch.

    Attributes
    ----------
    algorithm : Algorithm
    reference : float array of shape (n, d)
        D.
    seed : SeedSequence
        The same for every batch.
    calibration : Calibration
        Scores of D under A(D), to be shown; ranks are among the scores of D with the batch.
    """

    algorithm: Algorithm
    reference: FloatArray
    seed: np.random.SeedSequence
    calibration: Calibration

    @property
    def ranks_rows(self) -> str:
        """By one model of all rows."""
        return "batch"

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Refuse: a row by itself is another batch."""
        raise ReconformError(
            "`method='batch'` fits one model on the reference and the whole batch, and a row by "
            "itself has no p-value there; use discover(X) with all new rows, or `method='full'`."
        )

    @cached_property
    def _on_reference(self) -> Model:
        return self.algorithm.fit_model(self.reference, self.seed)

    def raw_scores(self, X: FloatArray) -> FloatArray:
        """Score rows by A(D), without the batch; for explanations, not for ranks."""
        return self._on_reference.score_samples(X)

    def batch_ranks(
        self, X: FloatArray, *, rows: IndexArray | None = None, strictly: bool = False
    ) -> Ranks:
        """Rank new rows by the scores of one model that was fitted on all rows."""
        scores = pooled_scores(self.algorithm, self.reference, X, self.seed)
        own, new = scores[: len(self.reference)], scores[len(self.reference) :]
        new = new if rows is None else new[rows]
        among = np.sort(own)
        below = ranks_among(among, new, strictly=True) if strictly else None
        return Ranks(ranks_among(among, new), below, new, against=own)


def fit_pooled(algorithm: Algorithm, X: FloatArray, seed: np.random.SeedSequence) -> Pooled:
    """Prepare for batches: one fit on D alone shows its scores, and whether it can be fitted."""
    nothing = X[:0]
    scores = pooled_scores(algorithm, X, nothing, seed)
    return Pooled(algorithm, X, seed, reference_calibration(scores))


def pooled_scores(
    algorithm: Algorithm, reference: FloatArray, X: FloatArray, seed: np.random.SeedSequence
) -> FloatArray:
    """Score the reference and new rows by one model that was fitted on all of them.

    Parameters
    ----------
    algorithm : Algorithm
        With settings of its own for so many rows, if it has such (`NativeDetector.for_pool`).
    reference : float array of shape (n, d)
    X : float array of shape (m, d)
    seed : SeedSequence

    Returns
    -------
    float array of shape (n + m,)
    """
    for_pool = getattr(algorithm, "for_pool", None)
    if for_pool is not None:
        algorithm, reference, X = for_pool(reference, X)
    together = stacked(reference, X) if len(X) else reference
    ordered, order = sorted_by_content(together)
    model = algorithm.fit_model(ordered, seed)
    return scores_by_content(together, order, algorithm.training_scores(model, ordered))
