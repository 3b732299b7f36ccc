"""Scores that another program has made: p-values and lists from two arrays, without a model."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from .arrays import FloatArray
from .detector import ConformalDetector, index_of
from .discoveries import Discoveries
from .errors import ReconformError
from .frames import package_of
from .rule import RuleOptions


class GivenScores:
    """What `ConformalDetector` asks a fitted model: the score of a row is its only column."""

    def fit(self, X: npt.ArrayLike) -> GivenScores:
        """Learn nothing."""
        return self

    def score_samples(self, X: npt.ArrayLike) -> FloatArray:
        """Return the column."""
        return np.asarray(X, dtype=np.float64)[:, 0]

    def __repr__(self) -> str:
        """Show what the report says."""
        return "scores from elsewhere"


def discover_scores(
    reference: npt.ArrayLike,
    new: npt.ArrayLike,
    fdr: float | Fraction = 0.1,
    *,
    larger_is: str = "anomalous",
    groups: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    random_state: Any = None,
    **rule: Unpack[RuleOptions],
) -> Discoveries:
    """Find anomalies by scores of any model: an image model, a language model, another language.

    The list is proven, if the model has not seen the rows of `reference`, and normal new rows come
    from the same process as these: it is that of ``method="prefit"``.

    Parameters
    ----------
    reference : array-like of shape (n,)
        The scores of normal rows that the model was not fitted on.
    new : array-like of shape (m,)
        The scores of the rows to judge; a Series keeps its labels.
    fdr : float, default=0.1
        False discovery rate aimed at.
    larger_is : {"anomalous", "normal"}, default="anomalous"
        What a large score means.
    groups : pair of array-like of shapes (n,) and (m,), optional
        The groups of both, such as cameras or kinds of object: rows are ranked within theirs.
    random_state : int, optional
        Seed of ties, where a rule smooths p-values.
    **rule
        All other keywords of `ConformalDetector.discover`.

    Returns
    -------
    Discoveries

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> distances = rng.chisquare(8, size=500)            # of images that are known to be good
    >>> new = np.append(rng.chisquare(8, size=95), [60, 70, 80, 90, 100])
    >>> found = discover_scores(distances, new, fdr=0.05)
    >>> np.flatnonzero(found.mask)
    array([95, 96, 97, 98, 99])
    """
    old, later = (None, None) if groups is None else groups
    cad = ConformalDetector(
        GivenScores(), "prefit", larger_is=larger_is, random_state=random_state
    ).fit(_column("reference", reference), groups=old)
    found = cad.discover(_column("new", new), fdr, groups=later, **rule)
    return replace(found, index=index_of(new), library=package_of(new))


def _column(name: str, scores: Any) -> FloatArray:
    """Scores as rows of one column."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1:
        raise ReconformError(
            f"`{name}` must be one score per row; got an array of shape {values.shape}."
        )
    return values[:, np.newaxis]
