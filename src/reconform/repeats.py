"""Several independent splits, for decisions that depend less on the luck of one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .aggregation import FloatArray, reduction
from .ensemble import Ensemble
from .pvalues import Calibration, Ranks


class RepeatedSplit:
    """The ensembles of several splits of the same reference.

    Attributes
    ----------
    splits : sequence of Ensemble
        One-model ensembles, with calibration sets of one size.
    calibration : Calibration
        All their calibration scores; `groups` says which split each belongs to.
    """

    shares_draws = False

    def __init__(self, splits: Sequence[Ensemble]) -> None:
        self.splits = splits
        parts = [split.calibration for split in splits]
        sizes = [len(part) for part in parts]
        self.calibration = Calibration(
            scores=np.concatenate([part.scores for part in parts]),
            rows=np.concatenate([part.rows for part in parts]),
            indptr=np.arange(sum(sizes) + 1),
            models=np.repeat(np.arange(len(parts), dtype=np.int32), sizes),
            groups=np.repeat(np.arange(len(parts)), sizes),
        )

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Twice the median rank over the splits, at most n + 1.

        Twice the median of p-values is a p-value, whatever their dependence (Rüger 1978). Twice a
        median of integers is an integer, so the grid stays the same.
        """
        if strictly:
            raise ValueError(
                "ties='randomized' smooths one p-value per row and Split(repeats=...) has several; "
                "use ties='conservative' or repeats=1."
            )
        every = tuple(split.ranks(X) for split in self.splits)
        ranks = np.sort([part.at_most for part in every], axis=0)
        half = len(ranks) // 2
        doubled = ranks[half] + ranks[-half - 1]
        largest = len(self.splits[0].calibration) + 1
        scores = reduction("mean")(np.array([part.scores for part in every]))
        return Ranks(np.minimum(doubled, largest), None, scores, every)

    def scores(self, X: FloatArray) -> FloatArray:
        """Test scores of every split, (splits, rows)."""
        return np.array([split.ranks(X).scores for split in self.splits])
