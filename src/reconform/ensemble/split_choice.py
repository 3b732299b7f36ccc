"""One of several detectors for all new rows, chosen from calibration and new rows together.

A part of the training rows is held back, and every candidate is fitted on the rest. Its evidence is
how many rows a list could hold beyond those that the rows held back lead to expect, of the *pool*:
the calibration rows and the new rows as one multiset, or a sample of it that is drawn by content.
Nothing asks which rows of the pool are new. So scores are a function of the training rows and of
the pool, calibration rows and normal new rows stay exchangeable given the anomalies, and all that
is proven of a split holds (docs/guarantees).

Two candidates are classifiers that tell training rows from the pool, as AdaDetect does it: one by
the rows as they are, one also by the scores of the other candidates. Every row is scored by a
classifier that has not seen its fold, and folds go by content.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Self, cast

import numpy as np
from threadpoolctl import threadpool_limits

from ..arrays import BoolArray, FloatArray, IndexArray, IntArray
from ..content import Contents, canonical_order
from ..methods import MOST_TRAINING, Plan
from ..randomness import Streams
from ..statistics.ranks import Calibration, Choice, Chosen, Ranks, ranks_among
from . import MOST_ROWS, Ensemble, ResampledEnsemble, Survey, Within, surveyed
from .batch import ContentSample, CrossFitted, folds_of
from .refitting import seed_model

# Detectors are fitted on so many rows at least, if there is one more to hold back.
FEWEST_ROWS = 6

# The list whose length is the evidence: levels, of which the mean is taken.
LEVELS = (Fraction(1, 20), Fraction(1, 10), Fraction(1, 5))

# Another detector must have more evidence than the first, by more than so many rows.
MARGIN = 5

# A sample of the pool has no more rows, nor cells; more say hardly more than the rows held back.
MOST_SAMPLED, MOST_CELLS = 1 << 17, 1 << 24

# Classifiers: rows of either kind that are learned from, folds, and how few rows held back do.
MOST_LEARNED, FOLDS, ENOUGH_TO_LEARN = 20_000, 3, 200

CLASSIFIERS = ("classifier", "stacked classifier")

# Scores of a detector that counts are below this for a value never seen where nothing ever changed;
# such rows then have the second score.
NEVER_SEEN, FIRST = 2.0, -1e9


def held_back(
    X: FloatArray, plan: Plan, seed: np.random.SeedSequence
) -> tuple[IndexArray, IndexArray]:
    """Cut the training rows into those that detectors are tried with, and those held back.

    Both are in an order that goes by content: the first rows of each are a random draw.
    """
    (train,) = plan.train
    order = train[canonical_order(Contents.of(X[train]), seed)]
    tried = min(MOST_TRAINING, max(-(-len(train) // 2), FEWEST_ROWS), len(train) - 1)
    return order[:tried], order[tried:]


def plan_of_one(trained: int, calibrating: int) -> Plan:
    """The plan of every detector: so many rows train it, and those after them calibrate."""
    n = trained + calibrating
    return Plan(n, (np.arange(trained),), (np.arange(trained, n),), scheme="split")


def trained_on(trained: int, selecting: int, counts_all: bool) -> tuple[int, int]:
    """How many of the training rows a detector is tried with, and how many it is fitted on.

    One that only counts takes all of them, and a quarter of those held back to be tried with.
    """
    every = trained + selecting
    if counts_all:
        return trained + selecting // 4, every
    return trained, max(trained, min(every, MOST_TRAINING))


def evidence_of(held: FloatArray, scores: FloatArray, counts: IntArray, share: float) -> float:
    """Estimate how many anomalies a list from the pool has, on average over the levels.

    A list reaches up to a row that was held back, the k-th of s. Of N rows of the pool N k/(s + 1)
    are expected there; the excess, less one standard error, is what a list finds, if it is so large
    that few of the *new* rows in the list are false.

    Parameters
    ----------
    held : float array of shape (s,)
        Scores of the rows held back.
    scores, counts : arrays
        Of the pool; how often each of its rows occurs.
    share : float
        The share of new rows in the pool.

    Examples
    --------
    >>> held, normal = np.arange(0, 1, 0.01), np.arange(0, 1, 0.001)
    >>> for pool in (normal, np.append(normal, np.full(100, -1.0))):
    ...     print(round(evidence_of(held, pool, np.ones(len(pool), dtype=int), 0.5), 1))
    0.0
    51.8
    """
    held, order = np.sort(held), np.argsort(scores, kind="stable")
    upto = np.concatenate([[0], np.cumsum(counts[order])])
    below, total = upto[np.searchsorted(scores[order], held)], upto[-1]
    expected = total * np.arange(1, len(held) + 1) / (len(held) + 1)
    excess = below - expected - np.sqrt(expected * (1 + total / len(held)))
    found = 0.0
    for level in LEVELS:
        # new rows among the expected <= level (excess + new rows among the expected)
        enough = (1 - float(level)) * share * expected <= float(level) * excess
        found += float(excess[enough].max(initial=0.0))
    return found / len(LEVELS)


def never_seen_evidence(
    held: BoolArray, scores: FloatArray, counts: IntArray, share: float
) -> float:
    """Estimate how many anomalies rows with a value never seen have: `evidence_of` these alone.

    Examples
    --------
    >>> held, ones = np.zeros(999, dtype=bool), np.ones(2000, dtype=int)
    >>> for never in (8, 80):
    ...     scores = np.where(np.arange(2000) < never, 1.0, 3.0)
    ...     print(round(never_seen_evidence(held, scores, ones, 0.5), 1))
    0.0
    75.5
    """
    rest = np.where(held, 0.0, 1.0)
    return evidence_of(rest, np.where(scores < NEVER_SEEN, 0.0, 1.0), counts, share)


def choose(evidence: Sequence[float]) -> int:
    """Choose the candidate with most evidence, if it has clearly more than the first.

    Examples
    --------
    >>> choose([4, 8, 6]), choose([4, 16, 20])
    (0, 2)
    """
    best = int(np.argmax(evidence))
    return best if evidence[best] > evidence[0] + MARGIN else 0


def _scores_by(one: ResampledEnsemble, X: FloatArray) -> FloatArray:
    """Score rows, not too many at once."""
    scores = np.empty(len(X))
    for start in range(0, len(X), MOST_ROWS):
        chunk = slice(start, start + MOST_ROWS)
        scores[chunk] = one.full_scores(X[chunk])
    return scores


@dataclass(eq=False)
class SplitChoice(Ensemble):
    """Several detectors, each fitted on the same part of the training rows.

    Attributes
    ----------
    calibration : Calibration
        That of the first detector, which judges rows alone.
    names : tuple of str
        What to call the candidates: the detectors, and the classifiers after them.
    fitted : list of Ensemble
        The detectors that rank, fitted on the first of all training rows by `plan_of_one`.
    tried : list of Ensemble
        Those that are chosen by: fitted without the rows held back.
    trained, selecting, calibrating : float arrays
        The rows that detectors are tried with, those that are held back, and those that calibrate.
    seed : SeedSequence
        Of samples, folds and classifiers.
    """

    calibration: Calibration
    names: tuple[str, ...]
    fitted: list[ResampledEnsemble]
    tried: list[ResampledEnsemble]
    trained: FloatArray
    selecting: FloatArray
    calibrating: FloatArray
    seed: np.random.SeedSequence
    _scored = cast("tuple[tuple[FloatArray, FloatArray], ...]", ())

    @property
    def ranks_rows(self) -> str:
        """By a detector that is chosen for all rows, which may come in parts."""
        return "pool"

    @property
    def candidates(self) -> tuple[str, ...]:
        """All of them."""
        return self.names

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows, each by itself, by the first detector."""
        return self.fitted[0].ranks(X, variant=variant, strictly=strictly)

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of rows by every detector that is tried: (detectors, m).

        Classifiers ask again for the rows that were looked at last: those are remembered.
        """
        for rows, scores in self._scored:
            same = rows.ctypes.data == X.ctypes.data and rows.strides == X.strides
            if same and 0 < len(X) <= len(rows):
                return scores[:, : len(X)]
        scores = np.array([_scores_by(one, X) for one in self.tried])
        self._scored = ((X, scores), *self._scored[:1])
        return scores

    def __getstate__(self) -> dict[str, object]:
        """Leave out what is remembered."""
        return {name: value for name, value in vars(self).items() if name != "_scored"}

    @property
    def seen(self) -> list[int]:
        """How many of the rows held back each detector was tried with nevertheless."""
        return [len(one.plan.train[0]) - len(self.trained) for one in self.tried]

    def held_scores(self) -> Iterator[FloatArray]:
        """Scores of the rows held back by every detector that has not seen them."""
        for one, seen in zip(self.tried, self.seen, strict=True):
            yield _scores_by(one, self.selecting[seen:])

    def survey(self) -> ChoiceSurvey:
        """Begin with the calibration rows."""
        d = self.calibrating.shape[1]
        most = min(MOST_SAMPLED, max(MOST_LEARNED, MOST_CELLS // d))
        stream = int(Streams(self.seed, 1)[0].generate_state(1, np.uint64)[0])
        sample = ContentSample(stream, most)
        return ChoiceSurvey(stream, most, sample.add(self.calibrating), 0, self)

    def ranks_within(self, X: FloatArray, within: Within) -> Ranks:
        """Rank every row in its group, all by the detector that is chosen from all rows."""
        if not within.together:
            return self.fitted[0].ranks_within(X, within)
        return surveyed(self.survey(), lambda one: one.seen(X)).ranks_within(X, within)


@dataclass(eq=False)
class ChoiceSurvey(Survey):
    """A sample of the pool, and what is chosen by it.

    Attributes
    ----------
    stream, most : int
        As in `ContentSample`.
    sample : ContentSample
    m : int
        New rows.
    choice : SplitChoice or None
        None in what was seen of a part alone: it need not be sent along.
    known : float array, optional
        Known anomalies, which stand beside the pool.
    """

    stream: int
    most: int
    sample: ContentSample
    m: int
    choice: SplitChoice | None = None
    known: FloatArray | None = None

    def seen(self, part: FloatArray) -> Self:
        """Draw from some of the new rows."""
        sample = ContentSample(self.stream, self.most).add(np.asarray(part, dtype=np.float64))
        return replace(self, sample=sample, m=len(part), choice=None, known=None)

    def merge(self, other: Self) -> Self:
        """Draw from both."""
        return replace(self, sample=self.sample.merge(other.sample), m=self.m + other.m)

    def beside(self, part: FloatArray) -> Self:
        """Let known anomalies count like other rows of the pool."""
        return replace(self, known=np.asarray(part, dtype=np.float64))

    def settle(self) -> None:
        """Choose; what is sent along from now on is what was chosen."""
        assert self.chosen is not None
        assert self.against is not None

    @cached_property
    def _classifiers(self) -> list[_Classifier]:
        """Those that are tried."""
        choice, (rows, counts) = self._fitted_choice, self.pool
        if len(choice.names) == len(choice.fitted):
            return []
        seeds = Streams(choice.seed, 3)
        every = np.vstack([choice.trained, choice.selecting])
        plain = _Classifier.fit(every, rows, counts, seeds[1], None)
        unseen = choice.selecting[max(choice.seen) :]
        return [plain, _Classifier.fit(unseen, rows, counts, seeds[2], choice)]

    @property
    def _fitted_choice(self) -> SplitChoice:
        assert self.choice is not None
        return self.choice

    @cached_property
    def pool(self) -> tuple[FloatArray, IntArray]:
        """The sample: different rows, and how often each occurs; known anomalies come first."""
        rows, counts = self.sample.contents
        if self.known is None:
            return rows, counts
        ones = np.ones(len(self.known), dtype=np.int64)
        return np.vstack([self.known, rows]), np.concatenate([ones, counts])

    @cached_property
    def chosen(self) -> Chosen:
        """The candidate that ranks all rows, and the evidence of each."""
        choice, (rows, counts) = self._fitted_choice, self.pool
        n = len(choice.calibrating)
        share = self.m / (n + self.m)
        pairs = list(zip(choice.held_scores(), choice.scores(rows), strict=True))
        pairs += [(one.scores(one.known), one.scores(rows)) for one in self._classifiers]
        found = [evidence_of(held, scores, counts, share) for held, scores in pairs]
        # Of all rows, and not of the sample only.
        found = [one * (n + self.m) / int(counts.sum()) for one in found]
        return Chosen(choice.names, choose(found), tuple(round(one) for one in found))

    def scores(self, X: FloatArray) -> FloatArray:
        """Score rows by what was chosen; values never seen come first, if the pool has many."""
        choice, k = self._fitted_choice, self.chosen.index
        if k >= len(choice.fitted):
            scores = self._classifiers[k - len(choice.fitted)].scores(np.asarray(X))
        else:
            scores = _scores_by(choice.fitted[k], X)
        if self._counter is not None:
            scores[_scores_by(self._counter, X) < NEVER_SEEN] = FIRST
        return scores

    @cached_property
    def _counter(self) -> ResampledEnsemble | None:
        """The detector that counts values, if rows with values never seen make a list of their own.

        By the same evidence as every candidate has, of these rows alone: so many of them that more
        than `MARGIN` are beyond chance, and so few by chance that the list would be at its level.
        It counts in the pool, as the choice does: which rows of it are new, nobody asks.
        """
        choice, (rows, counts) = self._fitted_choice, self.pool
        share = self.m / (len(choice.calibrating) + self.m)
        for k, seen in enumerate(choice.seen):
            if seen and k != self.chosen.index:
                held = _scores_by(choice.tried[k], choice.selecting[seen:]) < NEVER_SEEN
                if never_seen_evidence(held, choice.scores(rows)[k], counts, share) > MARGIN:
                    return choice.fitted[k]
        return None

    @cached_property
    def against(self) -> FloatArray:
        """The scores of the calibration rows."""
        choice, k = self._fitted_choice, self.chosen.index
        if k >= len(choice.fitted) or self._counter is not None:
            return self.scores(choice.calibrating)
        return choice.fitted[k].calibration.scores

    @cached_property
    def _among(self) -> FloatArray:
        return np.sort(self.against)

    def ranks(self, part: FloatArray, *, strictly: bool = False) -> Ranks:
        """Rank the rows of a part by what was chosen."""
        scores = self.scores(part)
        below = ranks_among(self._among, scores, strictly=True) if strictly else None
        at_most = ranks_among(self._among, scores)
        choice = self.chosen.for_rows(len(part))
        return Ranks(at_most, below, scores, choice=choice, against=self.against)

    def ranks_within(self, X: FloatArray, within: Within) -> Ranks:
        """Rank rows by what was chosen, each among the calibration rows of its group."""
        scores, (at_most, below) = self.scores(X), np.ones((2, len(X)), dtype=np.int64)
        for g in np.unique(within.groups):
            mine, among = within.groups == g, np.sort(self.against[within.members[g]])
            at_most[mine] = ranks_among(among, scores[mine])
            below[mine] = ranks_among(among, scores[mine], strictly=True)
        choice: Choice = self.chosen.for_rows(len(X))
        return Ranks(at_most, below if within.strictly else None, scores, choice=choice)


@dataclass(frozen=True, eq=False)
class _Classifier:
    """Tells known training rows from the pool, by the rows and by the scores of a choice."""

    known: FloatArray
    fitted: CrossFitted
    choice: SplitChoice | None

    @classmethod
    def fit(
        cls,
        known: FloatArray,
        pool: FloatArray,
        counts: IntArray,
        seed: np.random.SeedSequence,
        choice: SplitChoice | None,
    ) -> _Classifier:
        """Learn from rows of the other folds, for every fold."""
        from sklearn.ensemble import HistGradientBoostingClassifier  # slow to import

        fold, *seeds = Streams(seed, 1 + FOLDS)
        made = cls(known, CrossFitted(fold.generate_state(1, np.uint64)[0], []), choice)
        known, pool, counts = known[:MOST_LEARNED], pool[:MOST_LEARNED], counts[:MOST_LEARNED]
        # Rows that occur often are repeated, so that there are about so many in all.
        counts = -(-counts * MOST_LEARNED // max(int(counts.sum()), MOST_LEARNED))
        of_known, of_pool = (folds_of(X, made.fitted.stream, FOLDS) for X in (known, pool))
        ours, theirs = made.seen(known), made.seen(pool)
        for k, own in enumerate(seeds):
            zeros = ours[of_known != k]
            ones = np.repeat(theirs[of_pool != k], counts[of_pool != k], axis=0)
            model = HistGradientBoostingClassifier(
                max_iter=60,
                learning_rate=0.05,
                max_leaf_nodes=8,
                l2_regularization=1.0,
                early_stopping=False,
            )
            seed_model(model, own)
            if len(zeros) and len(ones):
                labels = np.repeat([0, 1], [len(zeros), len(ones)])
                # Threads would add up in another order, and the answer is the same everywhere.
                with threadpool_limits(1, user_api="openmp"):
                    model.fit(np.vstack([zeros, ones]), labels)
            made.fitted.models.append(model if len(zeros) and len(ones) else None)
        return made

    def seen(self, X: FloatArray) -> FloatArray:
        """Rows as the classifiers see them."""
        return X if self.choice is None else np.column_stack([X, *self.choice.scores(X)])

    def scores(self, X: FloatArray) -> FloatArray:
        """Score rows, each by a classifier that has not seen it."""
        with threadpool_limits(1, user_api="openmp"):  # which wait for each other busily
            return self.fitted.scores(X, self.seen)
