"""Scores that are learned from the reference and the whole batch together.

``method="learned"`` (AdaDetect): a part of the reference trains (label 0), the other part
calibrates. A classifier learns to tell the training rows from the calibration rows and the new ones
together (label 1): what it can tell apart are the anomalies. Which rows of the union of calibration
and new rows it learns from, and which fold a row is in, goes by the contents of rows and not by
where they come from. So scores are an equivariant function of the union, and everything that is
proven of a split holds (docs/guarantees). What a batch needs of memory is bounded: two passes over
its rows do.

``method="batch"``: one model is fitted on the reference and the whole batch. It scores the n + m
rows that it was fitted on, all alike, and a new row is ranked by its score among those of the n
reference rows. Rows are put in the order of their contents before the fit, there is one seed, and
equal rows get equal scores: so the scores are an equivariant function of the rows, and everything
that is proven of a split holds with all n rows (docs/guarantees).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from ..arrays import FloatArray, IndexArray, IntArray, UInt64Array
from ..content import (
    Contents,
    canonical_words,
    digests_of,
    first_rows,
    scores_by_content,
    sorted_by_content,
)
from ..errors import ReconformError, blame_input
from ..frames import stacked
from ..methods import Learned, Plan
from ..randomness import Streams, mix_array
from ..statistics.ranks import Calibration, Ranks, calibrate, ranks_among, reduction
from . import MOST_ROWS, Ensemble, Survey, reference_calibration
from .refitting import Algorithm, Model, allows_nan, checked_scores, seed_model


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


def default_classifier(n_jobs: int | None = None) -> Any:
    """Return the classifier that learns where none is given: a random forest of short trees."""
    from sklearn.ensemble import RandomForestClassifier  # slow to import

    return RandomForestClassifier(n_estimators=100, max_depth=10, n_jobs=n_jobs)


class ContentSample:
    """Rows of a multiset that comes in parts, drawn by content: bounded memory, in any order.

    Of all different contents those with the smallest hashes are kept, with how often each occurs:
    a content that is among the smallest at the end was so at any time before, and all its
    occurrences were counted.

    Parameters
    ----------
    stream : int
        Keys the hashes.
    most : int
        Rows of the sample.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(12.0)[:, None] // 2
    >>> here, there = ContentSample(7, 4), ContentSample(7, 4)
    >>> _ = here.add(X)
    >>> for row in X[::-1]:
    ...     there = there.merge(ContentSample(7, 4).add(row[None]))
    >>> bool((here.rows == there.rows).all()), here.rows.shape
    (True, (4, 1))
    """

    def __init__(self, stream: int, most: int) -> None:
        self._stream, self._most = np.uint64(stream), most
        self._rows: FloatArray | None = None
        self._hashes: UInt64Array = np.empty(0, dtype=np.uint64)
        self._counts: IntArray = np.empty(0, dtype=np.int64)

    def add(self, X: FloatArray, counts: IntArray | None = None) -> Self:
        """Add some rows, each so many times; return itself."""
        counts = np.ones(len(X), dtype=np.int64) if counts is None else counts
        hashes = mix_array(digests_of(X)[1] ^ self._stream)
        if len(self._hashes) == self._most:
            near = hashes <= self._hashes[-1]
            X, hashes, counts = X[near], hashes[near], counts[near]
        X = np.asarray(X, dtype=np.float64) + 0.0
        rows = X if self._rows is None else np.vstack([self._rows, X])
        hashes = np.concatenate([self._hashes, hashes])
        counts = np.concatenate([self._counts, counts])
        words = canonical_words(np.ascontiguousarray(rows).view(np.uint64))
        order = np.argsort(hashes, kind="stable")
        if _collides(words[order], hashes[order]):
            order = np.lexsort((*words.T[::-1], hashes))
        first = ~_equal_to_previous(words[order], hashes[order])
        counted = np.add.reduceat(counts[order], np.flatnonzero(first)) if len(order) else counts
        kept = order[first][: self._most]
        self._rows, self._hashes, self._counts = rows[kept], hashes[kept], counted[: self._most]
        return self

    def merge(self, other: ContentSample) -> ContentSample:
        """The sample of both multisets; neither is changed."""
        both = ContentSample(int(self._stream), self._most)
        for one in (self, other):
            if one._rows is not None:
                both.add(one._rows, one._counts)
        return both

    @property
    def rows(self) -> FloatArray:
        """The sample: rows by their hashes, equal ones as often as they occur, until it is full."""
        contents, counts = self.contents
        return np.repeat(contents, counts, axis=0)[: self._most]

    @property
    def contents(self) -> tuple[FloatArray, IntArray]:
        """The different contents by their hashes, and how often each occurs."""
        assert self._rows is not None
        return self._rows, self._counts

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        rows = 0 if self._rows is None else self._rows.nbytes
        return int(rows + self._hashes.nbytes + self._counts.nbytes)


def _equal_to_previous(words: UInt64Array, hashes: UInt64Array) -> Any:
    same = np.zeros(len(words), dtype=np.bool_)
    same[1:] = (hashes[1:] == hashes[:-1]) & (words[1:] == words[:-1]).all(axis=1)
    return same


def _collides(words: UInt64Array, hashes: UInt64Array) -> bool:
    """Whether two different contents have one hash, so that equal rows may not be neighbours."""
    same = hashes[1:] == hashes[:-1]
    return bool((same & (words[1:] != words[:-1]).any(axis=1)).any())


def folds_of(X: FloatArray, stream: np.uint64, folds: int) -> IntArray:
    """Say which fold rows are in; equal rows are in the same one."""
    hashes = mix_array(digests_of(X)[1] ^ stream)
    return np.asarray(hashes % np.uint64(folds), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """A classifier for every fold, which has not seen the rows of its fold.

    Attributes
    ----------
    stream : int
        Keys the folds.
    models : list of estimators
        None for a fold without one, whose rows score 0.
    """

    stream: np.uint64
    models: list[Any]

    def scores(
        self, X: FloatArray, seen: Callable[[FloatArray], FloatArray] | None = None
    ) -> FloatArray:
        """Score rows, as the classifiers have `seen` rows; small = anomalous."""
        scores = np.zeros(len(X))
        for start in range(0, len(X), MOST_ROWS):
            chunk = X[start : start + MOST_ROWS]
            folds = folds_of(chunk, self.stream, len(self.models))
            features = chunk if seen is None else seen(chunk)
            for fold, model in enumerate(self.models):
                mine = np.flatnonzero(folds == fold)
                if model is not None and len(mine):
                    scores[start + mine] = _how_normal(model, features[mine])
        return scores


@dataclass(eq=False)
class LearnedScores(Ensemble):
    """What stays the same from batch to batch: the parts of the reference, and what learns.

    Attributes
    ----------
    classifier : estimator
        Not fitted.
    trained : float array of shape (t, d)
        The rows with label 0.
    calibrating : float array of shape (n, d)
        The rows that calibrate.
    calibration : Calibration
        Without scores, as there are none before a batch is.
    method : Learned
        How many rows are learned from, and in how many folds.
    seed : SeedSequence
    anomalies : float array of shape (a, d), optional
        Known from elsewhere: they have label 1, too, and are not scored.
    """

    classifier: Any
    trained: FloatArray
    calibrating: FloatArray
    calibration: Calibration
    method: Learned
    seed: np.random.SeedSequence
    anomalies: FloatArray | None = None
    ranked_by = "a classifier that learned from the batch"

    @property
    def ranks_rows(self) -> str:
        """By what was learned from all new rows."""
        return "pool"

    def survey(self) -> LearnedSurvey:
        """Begin with a batch, which may come in parts."""
        return LearnedSurvey(self)

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Refuse: a row by itself is another batch."""
        raise ReconformError(
            "`method='learned'` learns from the reference and the whole batch, and a row by itself "
            "has no p-value there; use discover(X) with all new rows, or `method='split'`."
        )


class LearnedSurvey(Survey):
    """One batch: a sample of all its rows and of the calibration rows, which is learned from.

    Parameters
    ----------
    learned : LearnedScores
    sample : ContentSample, optional
        By default of the calibration rows alone.
    """

    def __init__(self, learned: LearnedScores, sample: ContentSample | None = None) -> None:
        self._learned = learned
        draw, fold, *self._models_seeds = Streams(learned.seed, 2 + learned.method.folds)
        self._fold_stream = fold.generate_state(1, np.uint64)[0]
        self._stream = int(draw.generate_state(1, np.uint64)[0])
        self._sample = self._sampled(learned.calibrating) if sample is None else sample

    def _sampled(self, X: FloatArray) -> ContentSample:
        return ContentSample(self._stream, self._learned.method.most_rows).add(X)

    def seen(self, part: FloatArray) -> LearnedSurvey:
        """Draw from some of the new rows."""
        return LearnedSurvey(self._learned, self._sampled(part))

    def merge(self, other: LearnedSurvey) -> LearnedSurvey:
        """Draw from both."""
        return LearnedSurvey(self._learned, self._sample.merge(other._sample))

    @cached_property
    def models(self) -> list[Any]:
        """For every fold the classifier that has not seen its rows; None where it has seen none.

        With one fold there is one classifier, which has seen what it scores.
        """
        union = sorted_by_content(self._sample.rows)[0]
        folds = folds_of(union, self._fold_stream, len(self._models_seeds))
        known = sorted_by_content(self._learned.trained)[0]
        models: list[Any] = []
        for fold, seed in enumerate(self._models_seeds):
            rows = union if len(self._models_seeds) == 1 else union[folds != fold]
            models.append(self._fit(known, rows, seed) if len(rows) else None)
        return models

    @blame_input()
    def _fit(self, known: FloatArray, rows: FloatArray, seed: np.random.SeedSequence) -> Any:
        model = clone(self._learned.classifier)
        seed_model(model, seed)
        if self._learned.anomalies is not None:
            rows = np.vstack([rows, self._learned.anomalies])
        labels = np.repeat([0, 1], [len(known), len(rows)])
        return model.fit(np.vstack([known, rows]), labels)

    def scores(self, X: FloatArray) -> FloatArray:
        """Score rows, each by the classifier that has not seen its fold; small = anomalous."""
        return CrossFitted(self._fold_stream, self.models).scores(X)

    @cached_property
    def against(self) -> FloatArray:
        """The scores of the calibration rows."""
        return self.scores(self._learned.calibrating)

    def ranks(self, part: FloatArray, *, strictly: bool = False) -> Ranks:
        """Rank rows that were seen before."""
        scores, among = self.scores(part), self._among
        below = ranks_among(among, scores, strictly=True) if strictly else None
        return Ranks(ranks_among(among, scores), below, scores, against=self.against)

    @cached_property
    def _among(self) -> FloatArray:
        return np.sort(self.against)


def _how_normal(model: Any, X: FloatArray) -> FloatArray:
    """Minus how much rows look like the union, by what the classifier has."""
    name = type(model).__name__
    with blame_input():
        if hasattr(model, "predict_proba"):
            return checked_scores(-model.predict_proba(X)[:, 1], len(X), name=name)
        return checked_scores(-model.decision_function(X), len(X), name=name)


@dataclass(frozen=True, eq=False)
class Learning:
    """A classifier in the place of a detector, which fits the plans of `Learned`.

    Attributes
    ----------
    method : Learned
    """

    method: Learned
    frozen = False

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return type(self.classifier()).__name__

    @property
    def accepts_nan(self) -> bool:
        """Whether the classifier says that it can handle missing values."""
        return allows_nan(self.classifier())

    def classifier(self, n_jobs: int | None = None) -> Any:
        """Return the classifier; refuse anything else."""
        given = self.method.classifier
        if given is None:
            return default_classifier(n_jobs)
        scores = hasattr(given, "predict_proba") or hasattr(given, "decision_function")
        if isinstance(given, type) or not (hasattr(given, "fit") and scores):
            raise ReconformError(
                "classifier must be a scikit-learn classifier with predict_proba or "
                f"decision_function, such as RandomForestClassifier(); got {given!r}."
            )
        return given

    def fit_plan(
        self,
        X: FloatArray,
        plan: Plan,
        seeds: Sequence[np.random.SeedSequence],
        *,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> Ensemble:
        """Cut the reference into its parts; what is learned is learned when a batch is there."""
        (train,), (held,) = plan.train, plan.held_out
        trained = X[train]
        if len(trained) > self.method.most_rows:
            contents = Contents.of(trained)
            trained = trained[first_rows(contents, seeds[-1], self.method.most_rows)]
        nothing = calibrate(plan, [np.zeros(len(held))], reduction(plan.aggregate))
        classifier = self.classifier(n_jobs)
        return LearnedScores(classifier, trained, X[held], nothing, self.method, seeds[0])
