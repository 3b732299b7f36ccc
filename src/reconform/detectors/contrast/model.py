"""One model without a batch: distances to reference rows, which is all that a single row has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arrays import FloatArray, RankArray
from ..knn.search import Search, make_search, nearest_of_own


@dataclass(eq=False)
class ContrastModel:
    """The reference rows, and which neighbours matter.

    Attributes
    ----------
    X : float array of shape (n, d)
    ks : int array
        In increasing order; the last is at most n.
    n_jobs : int or None
        Threads; never changes a number.
    """

    X: FloatArray
    ks: RankArray
    n_jobs: int | None

    @property
    def width(self) -> int:
        """The last neighbour that matters."""
        return int(self.ks[-1])

    @cached_property
    def search(self) -> Search:
        """D, by squared distances."""
        return make_search(self.X, metric="sqeuclidean")

    @cached_property
    def near(self) -> FloatArray:
        """Squared distances of the rows of D to their neighbours in D; infinity beyond the last."""
        near = np.full((len(self.X), self.width), np.inf)
        found = min(self.width, len(self.X) - 1)
        if found:
            near[:, :found], _ = nearest_of_own(self.search, found, n_jobs=self.n_jobs)
        return near

    def neighbours(self, X: FloatArray) -> FloatArray:
        """Squared distances of new rows to their neighbours in D."""
        return self.search.nearest(X, self.width, n_jobs=self.n_jobs)[0]

    def score(self, squares: FloatArray) -> FloatArray:
        """Minus the distance to the k-th neighbour; for several k, their geometric mean.

        Examples
        --------
        >>> import numpy as np
        >>> ContrastModel(np.zeros((3, 1)), np.array([1, 3]), None).score(np.array([[1.0, 4, 16]]))
        array([-2.])
        """
        distances = np.sqrt(squares[:, self.ks - 1])
        if len(self.ks) == 1:
            return np.asarray(-distances[:, 0])
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = np.exp(np.log(distances).mean(axis=1))
        return np.asarray(-np.where((distances == 0).any(axis=1), 0.0, mean))

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows, small = anomalous."""
        return self.score(self.neighbours(X))

    def training_scores(self) -> FloatArray:
        """Score the rows of D, each among the others; by those that there are."""
        short = self.near if len(self.X) > self.width else self.near[:, :-1]
        if not short.shape[1]:
            return np.zeros(len(self.X))
        ks = np.unique(np.minimum(self.ks, short.shape[1]))
        return ContrastModel(self.X, ks, self.n_jobs).score(short)
