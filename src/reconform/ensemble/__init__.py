"""All models of a plan, fitted and calibrated: the base class of every ensemble.

The estimator asks an ensemble for its calibration and for ranks. The usual way to ranks goes
through the scores of all models (`ResampledEnsemble`); a class with a shorter way overrides
`ranks`. Full-conformal ensembles have no models to score with and only answer `ranks`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from ..arrays import BoolArray, FloatArray, IndexArray, RankArray
from ..errors import ReconformError
from ..methods import Plan
from ..parallel import run_blocks
from ..statistics.conditional_calibration import StepUp, e_value_of_one_model
from ..statistics.ranks import (
    BLOCK_BYTES,
    Calibration,
    Chosen,
    Ranks,
    ranks_among,
    ranks_paired,
    reduction,
)

# Detectors make copies of the rows they score; a chunk has no more rows than this.
MOST_ROWS = 1 << 17

# New rows that are looked at together where they have nothing to do with each other.
FEW_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class AugmentedScores:
    """All rows as the models on D and one new row see them, for some new rows.

    Scores of D and x_j are a function of these rows as one set and of the other new rows, which
    does not know which row of the set is new.

    Attributes
    ----------
    rows : int array of shape (b,)
        The new rows j.
    own : float array of shape (b, n + 1)
        Scores of the rows of D, in the order of `order`, and of x_j, which comes last; all treated
        alike.
    others : float array of shape (b, m)
        Scores of all new rows. What stands at x_j itself is not looked at.
    clustered : bool array of shape (b,), optional
        As in `Ranks`.
    order : int array of shape (n,), optional
        Which rows of D the scores in `own` belong to; by default they stand as D does.
    """

    rows: IndexArray
    own: FloatArray
    others: FloatArray
    clustered: BoolArray | None = None
    order: IndexArray | None = None

    def __iter__(self) -> Iterator[tuple[int, FloatArray, FloatArray]]:
        return zip(self.rows.tolist(), self.own, self.others, strict=True)

    def taken(self, k: int) -> AugmentedScores:
        """What is said of one of the new rows."""
        some = slice(k, k + 1)
        clustered = None if self.clustered is None else self.clustered[some]
        rows, own, others = self.rows[some], self.own[some], self.others[some]
        return AugmentedScores(rows, own, others, clustered, self.order)

    def columns(self, members: IndexArray) -> IndexArray:
        """Where the scores of some rows of D stand in `own`."""
        if self.order is None:
            return members
        place = np.empty(len(self.order), dtype=np.intp)
        place[self.order] = np.arange(len(place))
        return place[members]


class ScoresAugmented(Protocol):
    """Something that fits a model on D and each new row; see `Ensemble.augmented_scores`."""

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows by the models on D and one new row."""
        ...


def blocks_of(rows: IndexArray, width: int) -> Iterator[IndexArray]:
    """Cut rows into blocks for which `width` numbers each are not too many at once."""
    step = max(1, BLOCK_BYTES // (8 * max(width, 1)))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def ranked_in_parts(X: FloatArray, width: int, rank: Callable[[FloatArray], Ranks]) -> Ranks:
    """Rank new rows, so many at a time that `width` numbers for each are not too many at once."""
    blocks = list(blocks_of(np.arange(len(X)), width))
    if len(blocks) <= 1:
        return rank(X)
    return Ranks.joined(len(X), [(some, rank(X[some])) for some in blocks])


@dataclass(frozen=True, eq=False)
class Within:
    """Which rows are ranked within which groups.

    Attributes
    ----------
    groups : int array of shape (m,)
        Which of the `members` each new row is compared with.
    members : sequence of int arrays
        Positions of calibration rows, of every group.
    together, strictly : bool
        The new rows are a whole batch, as for `batch_ranks`; also count strictly smaller scores.
    """

    groups: IndexArray
    members: Sequence[IndexArray]
    together: bool = False
    strictly: bool = False


class RanksWithin:
    """Ranks within groups, from what the models on D and each new row see."""

    def __init__(self, within: Within) -> None:
        self.within = within
        self.at_most, self.below = np.ones((2, len(within.groups)), dtype=np.int64)
        self.scores = np.empty(len(within.groups))
        self.clustered = np.zeros(len(within.groups), dtype=np.bool_)

    def add(self, augmented: AugmentedScores, start: int = 0) -> None:
        """Rank the rows of one block, of a part of the new rows that begins at `start`."""
        rows, groups = augmented.rows + start, self.within.groups
        self.scores[rows] = augmented.own[:, -1]
        if augmented.clustered is not None:
            self.clustered[rows] = augmented.clustered
        for g in np.unique(groups[rows]):
            mine = np.flatnonzero(groups[rows] == g)
            own = augmented.own[np.ix_(mine, augmented.columns(self.within.members[g]))]
            t = augmented.own[mine, -1:]
            self.at_most[rows[mine]] = 1 + (own <= t).sum(axis=1)
            self.below[rows[mine]] = 1 + (own < t).sum(axis=1)

    def ranks(self, clusters: bool) -> Ranks:
        """All of them."""
        return Ranks(
            self.at_most,
            self.below if self.within.strictly else None,
            self.scores,
            clustered=self.clustered if clusters else None,
        )


# kernel(rows, own, others, start, stop) writes what the models of rows[start:stop] see.
WriteScores = Callable[[IndexArray, FloatArray, FloatArray, int, int], None]


def augmented_blocks(
    kernel: WriteScores,
    rows: IndexArray,
    n: int,
    m: int,
    *,
    n_jobs: int | None,
    work_per_row: float = math.inf,
    order: IndexArray | None = None,
) -> Iterator[AugmentedScores]:
    """Score all rows with each of some new rows, by a kernel that is called in threads.

    Parameters
    ----------
    kernel : callable
        ``kernel(block, own, others, start, stop)`` writes rows `start` to `stop` of both arrays,
        as `AugmentedScores` has them for the new rows ``block``.
    rows : int array
    n, m : int
        Rows of D, and new rows in all.
    n_jobs : int or None
    work_per_row : float
        As in `run_blocks`, of one new row.
    order : int array of shape (n,), optional
        As in `AugmentedScores`.
    """
    for block in blocks_of(rows, n + 1 + m):
        own, others = np.empty((len(block), n + 1)), np.empty((len(block), m))
        work = len(block) * work_per_row
        run_blocks(partial(kernel, block, own, others), len(block), n_jobs=n_jobs, work=work)
        yield AugmentedScores(block, own, others, order=order)


SurveyT = TypeVar("SurveyT", bound="Survey")


class Survey(ABC):
    """What has to be known of all new rows before any of them can be ranked.

    It is made of parts of the rows: `seen` surveys a part, and surveys of parts merge.
    """

    @abstractmethod
    def seen(self, part: FloatArray) -> Self:
        """Survey one part, by itself."""

    @abstractmethod
    def merge(self, other: Self) -> Self:
        """Add up the surveys of two parts."""

    def beside(self, part: FloatArray) -> Self:
        """Let known anomalies stand beside the rows: in the survey, and never ranked."""
        raise NotImplementedError

    def settle(self) -> None:  # noqa: B027 - most have nothing to do
        """Find out, once and before parts are ranked, what follows from all of them."""

    @property
    def against(self) -> FloatArray | None:
        """The calibration scores, where they depend on the new rows; as in `Ranks`."""
        return None

    @property
    def chosen(self) -> Chosen | None:
        """Which of several detectors ranks the rows, after all of them were seen."""
        return None

    @abstractmethod
    def ranks(self, part: FloatArray, *, strictly: bool = False) -> Ranks:
        """Rank the rows of a part, after all of them were seen."""


def surveyed(survey: SurveyT, everywhere: Callable[[SurveyT], SurveyT]) -> SurveyT:
    """Survey all rows, from a survey of none and a function to what it sees in all parts."""
    done = survey.merge(everywhere(survey))
    done.settle()
    return done


class Ensemble(ABC):
    """What the estimator asks for: the calibration, and the ranks of new rows.

    Attributes
    ----------
    calibration : Calibration
    ranks_rows : {"alone", "pool", "batch"}
        How a list ranks a row: by itself; by a `survey` of all new rows, which may come in parts;
        or with all new rows in memory. What is not "alone" may depend on the other new rows.
    ranked_by : str or None
        What ranks rows, if that is not the detector: it has no scores without a batch then.
    enough_new : int or None
        New rows from which it stands first among several detectors; None for never.
    by_refitting : ScoresAugmented or None
        What answers `augmented_scores` for an ensemble that has no way of its own.
    anomalies : float array or None
        Known anomalies that shape scores or the choice.
    """

    calibration: Calibration
    enough_new: int | None = None
    by_refitting: ScoresAugmented | None = None
    ranked_by: str | None = None
    anomalies: FloatArray | None = None

    @property
    def ranks_rows(self) -> str:
        """How a list ranks a row; see the attributes."""
        return "alone"

    @property
    def bare(self) -> Ensemble:
        """The same without known anomalies."""
        return self

    @property
    def candidates(self) -> tuple[str, ...]:
        """The detectors that a list chooses from; none where there is only one."""
        return ()

    @abstractmethod
    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows.

        Parameters
        ----------
        X : float array of shape (m, d)
        variant : str, optional
            Another comparison than the plan's, where the models for it are kept. Ensembles that
            make only one comparison ignore it.
        strictly : bool
            Also count strictly smaller scores, for smoothed p-values.
        """

    def raw_scores(self, X: FloatArray) -> FloatArray:
        """Score rows, each by itself, as `ranks` does it: small = anomalous."""
        return self.ranks(X).scores

    def batch_ranks(
        self, X: FloatArray, *, rows: IndexArray | None = None, strictly: bool = False
    ) -> Ranks:
        """Rank new rows that are judged together, for a list.

        An ensemble that uses the batch ranks row j by a function of D and x_j as one set and of the
        other new rows, which does not know which row of the set is new: then P(p <= α) <= α holds
        if D and x_j are exchangeable given the other new rows (docs/guarantees). `ranks`
        judges every row by itself, for everything else.

        Parameters
        ----------
        X : float array of shape (m, d)
            The whole batch.
        rows : int array, optional
            Which of its rows to rank; by default all.
        strictly : bool
            As in `ranks`.

        Returns
        -------
        Ranks
            With `clustered`, where the ensemble uses the batch.
        """
        if self.ranks_rows == "alone":
            return self.ranks(X if rows is None else X[rows], strictly=strictly)
        done = surveyed(self.survey(), lambda survey: survey.seen(X))
        ranks = done.ranks(X, strictly=strictly)
        return ranks if rows is None else ranks.taken(rows)

    def carried(self, X: FloatArray, j: int) -> tuple[FloatArray, str] | None:
        """Say what each feature adds to the score of row j of a batch, and how that is meant.

        None where the batch has taught nothing that a row alone does not show.
        """
        return None

    def for_pool(self, X: FloatArray) -> tuple[Ensemble, FloatArray]:
        """Return an ensemble that has learned its units from D and a batch, and the batch in them.

        The pool of D and all new rows is the same whichever row of D and x_j is new: what is
        learned from it keeps ranks exact where these hold given the other new rows, and nothing is
        fitted anew for a row. By default there is nothing to learn.
        """
        return self, X

    def survey(self) -> Survey:
        """Begin a survey of new rows, where these are ranked by one."""
        raise NotImplementedError(f"{type(self).__name__} ranks rows {self.ranks_rows}")

    def ranks_within(self, X: FloatArray, within: Within) -> Ranks:
        """Rank each new row among the calibration rows of its group.

        By what the models on D and each new row see; an ensemble with other models overrides it.
        Ranks are 1 + #{i among the members : c_i <= t_i}.
        """
        uses_batch = self.ranks_rows != "alone"
        batch = within.together and uses_batch
        # Rows that use no batch see as few others as can be, and those that could see none.
        step = len(X) if batch else 1 if uses_batch else FEW_AT_ONCE
        found = RanksWithin(within)
        for start in range(0, len(X), max(step, 1)):
            part = X[start : start + step]
            for augmented in self.augmented_scores(part, np.arange(len(part))):
                found.add(augmented, start)
        return found.ranks(batch)

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows by the models on D and one new row, for some new rows.

        For lists that are certified, and to choose between detectors.

        Parameters
        ----------
        X : float array of shape (m, d)
            All new rows.
        rows : int array
            Those whose models are asked for.

        Yields
        ------
        AugmentedScores
            Block by block, in the order of `rows`.
        """
        if self.by_refitting is None:
            raise ReconformError(
                "`validity='proven'` certifies a list by models on the reference rows and one new "
                "row, and a model file does not keep the reference rows of this detector and "
                "method; fit again, or use `method='full'`, whose model files keep them."
            )
        return self.by_refitting.augmented_scores(X, rows)

    def e_values(
        self, X: FloatArray, rows: RankArray, step: StepUp
    ) -> Iterator[tuple[int, Fraction]]:
        """Find the e-values of some new rows, for a certified list.

        By one model per row, on D and the row, that scores everything; where the ensemble can be
        fitted `on` other rows, lists are made anew in the place of some reference rows.

        Parameters
        ----------
        X : float array of shape (m, d)
            All new rows.
        rows : int array
            Those whose e-values are asked for.
        step : StepUp
        """
        augmented = self.augmented_scores(X, rows)
        if self.fitted_on is None:
            return e_values_by_scores(augmented, step)
        return e_values_by_refits(self, X, augmented, step)

    @property
    def fitted_on(self) -> FloatArray | None:
        """D, where the ensemble can be fitted `on` other rows, which seldom takes long."""
        return None

    def refits_for(self, within: int) -> int:
        """How many rows of E_j the ensemble is fitted without, one by one, of so many in reach."""
        return within

    def on(self, reference: FloatArray) -> Ensemble:
        """Fit the same full-conformal ensemble on other reference rows."""
        raise NotImplementedError(f"{type(self).__name__} is fitted once")


def e_values_by_scores(
    augmented_blocks: Iterable[AugmentedScores], step: StepUp
) -> Iterator[tuple[int, Fraction]]:
    """Find e-values of new rows, each by the model on D and the row, which scores everything."""
    for augmented in augmented_blocks:
        for j, own, others in augmented:
            yield j, e_value_of_one_model(own, np.delete(others, j), step)


def e_values_by_refits(
    ensemble: Ensemble, X: FloatArray, augmented_blocks: Iterable[AugmentedScores], step: StepUp
) -> Iterator[tuple[int, Fraction]]:
    """Find e-values of new rows by lists that are as long as full-conformal ranks make them.

    In the worlds of the most unusual rows of E_j every other new row is ranked by a model of its
    own, and the longest of their lists counts: a function of D and x_j as one set and of the other
    new rows (docs/guarantees). An anomaly is among these rows, and its own list with it.
    """
    assert ensemble.fitted_on is not None
    D, actual, m = ensemble.fitted_on, ensemble.batch_ranks(X).at_most, len(X)
    for augmented in augmented_blocks:
        if augmented.order is not None:
            D = ensemble.fitted_on[augmented.order]
        for j, own, others in augmented:
            there, ordered = np.delete(np.arange(m), j), np.sort(own)
            among = np.searchsorted(ordered, others[there], side="right")
            ranks = np.searchsorted(ordered, own, side="right")
            longest, every = step.count(among), np.vstack([D, X[j]])
            most = ensemble.refits_for(int((ranks <= _reach(longest, step)).sum()))
            asked = own < ordered[most] if most <= len(D) else np.ones(len(own), dtype=np.bool_)
            # The most unusual row says how far the others are asked; ties are asked together.
            for later in (False, True):
                cap, reached = min(2 * longest + 8, m), _reach(longest, step)
                if later and ranks[-1] > reached:
                    break  # x_j is not found, however long the list
                near = there[among <= 3 * reached + 8]
                unusual = (own > ordered[0]) & (ranks <= reached) if later else own == ordered[0]
                for w in np.flatnonzero(asked & unusual):
                    theirs = actual[near]
                    if w != len(D):
                        batch = X.copy()
                        batch[j] = every[w]
                        other = ensemble.on(np.delete(every, w, axis=0))
                        theirs = other.batch_ranks(batch, rows=near).at_most
                    longest = max(longest, step.count(theirs))
            yield j, step.e_value(own, min(longest, cap))


def _reach(longest: int, step: StepUp) -> int:
    """Say how large ranks may get in lists of at most twice this length, or a little more."""
    return int(step.limits[min(2 * longest + 8, len(step.limits) - 1)])


class ResampledEnsemble(Ensemble):
    """The resampled models of a plan and A(D), the model fitted on all rows.

    A subclass gives the scores of its models, and has A(D) as `full`; ranks follow from them.
    """

    plan: Plan
    full: Any

    @property
    def n_jobs(self) -> int | None:
        """Threads for ranking, by default those of A(D); never changes a number."""
        jobs: int | None = getattr(self.full, "n_jobs", None)
        return jobs

    @property
    def retained(self) -> bool:
        """Whether the resampled models are kept; a basic fit needs them for calibration only."""
        return True

    @abstractmethod
    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every resampled model, (models, rows)."""

    def full_scores(self, X: FloatArray) -> FloatArray:
        """Scores of A(D), or of the only model where the plan has no A(D)."""
        scores: FloatArray = self.full.score_samples(X)
        return scores

    def raw_scores(self, X: FloatArray) -> FloatArray:
        """Score rows by A(D): no ranks are needed for that."""
        return self.full_scores(X)

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows through the scores of all models, chunk by chunk.

        Memory does not grow with the product of reference and new rows: a chunk of new rows times
        the number of models stays below a fixed budget.
        """
        plan, calibration = self.plan, self.calibration
        variant = plan.variant if variant is None else variant
        if not plan.full:  # one model: the three comparisons are the same
            variant = "basic"
        elif variant != "basic" and not self.retained:
            raise ReconformError(
                f"variant={variant!r} needs the resampled models, and a basic fit keeps only the "
                "one fitted on all rows; fit with variant='plus' to compare both."
            )
        return self._rank_parts(X, variant, strictly, lambda chunk: [(calibration, slice(None))])

    def ranks_within(self, X: FloatArray, within: Within) -> Ranks:
        """Rank each new row through the scores of all models, among the rows of its group."""
        variant = self.plan.variant if self.plan.full else "basic"
        parts = [self.calibration.part(some) for some in within.members]

        def of_each(chunk: slice) -> list[tuple[Calibration, IndexArray]]:
            here = within.groups[chunk]
            return [(parts[g], np.flatnonzero(here == g)) for g in np.unique(here)]

        return self._rank_parts(X, variant, within.strictly, of_each)

    def _rank_parts(
        self,
        X: FloatArray,
        variant: str,
        strictly: bool,
        parts: Callable[[slice], Sequence[tuple[Calibration, IndexArray | slice]]],
    ) -> Ranks:
        """Rank rows chunk by chunk, each part of a chunk in a calibration of its own."""
        plan, phi = self.plan, reduction(self.plan.aggregate)
        at_most = np.empty(len(X), dtype=np.int64)
        below = np.empty(len(X), dtype=np.int64) if strictly else None
        raw = np.empty(len(X))
        width = 1 if variant == "basic" else plan.n_models
        step = min(max(1, BLOCK_BYTES // (8 * width)), MOST_ROWS)
        for start in range(0, len(X), step):
            chunk = slice(start, start + step)
            raw[chunk] = self.full_scores(X[chunk])
            if variant == "plus":
                scores = self.scores(X[chunk])
            else:
                t = raw[chunk] if variant == "basic" else phi(self.scores(X[chunk]))
            for calibration, some in parts(chunk):
                if variant == "plus":
                    count = partial(
                        ranks_paired,
                        calibration,
                        scores[:, some],
                        plan.aggregate,
                        n_jobs=self.n_jobs,
                    )
                else:
                    count = partial(ranks_among, calibration.sorted_scores, t[some])
                at_most[chunk][some] = count()
                if below is not None:
                    below[chunk][some] = count(strictly=True)
        return Ranks(at_most, below, raw)


NOT_SMOOTHED = (
    "ties='randomized' smooths one p-value per row and Split(repeats=...) has several; use "
    "ties='conservative' or repeats=1."
)


class RepeatedSplit(Ensemble):
    """The ensembles of several splits of the same reference.

    Attributes
    ----------
    splits : sequence of Ensemble
        One-model ensembles, with calibration sets of one size.
    calibration : Calibration
        All their calibration scores; `groups` says which split each belongs to.
    """

    def __init__(self, splits: Sequence[Ensemble]) -> None:
        self.splits = splits
        self.ranked_by, self.anomalies = splits[0].ranked_by, splits[0].anomalies
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
            raise ReconformError(NOT_SMOOTHED)
        return self.merged([split.ranks(X) for split in self.splits])

    @property
    def ranks_rows(self) -> str:
        """As the splits do."""
        return self.splits[0].ranks_rows

    def survey(self) -> Survey:
        """Begin a survey for every split."""
        return _InEverySplit(self, [split.survey() for split in self.splits])

    def merged(self, every: Sequence[Ranks]) -> Ranks:
        """Merge the ranks of the splits: twice the median, at most n + 1."""
        ranks = np.sort([part.at_most for part in every], axis=0)
        half = len(ranks) // 2
        doubled = ranks[half] + ranks[-half - 1]
        largest = len(self.splits[0].calibration) + 1
        scores = reduction("mean")(np.array([part.scores for part in every]))
        against = [part.against for part in every if part.against is not None]
        return Ranks(
            np.minimum(doubled, largest),
            None,
            scores,
            tuple(every),
            against=np.concatenate(against) if against else None,
        )

    def scores(self, X: FloatArray) -> FloatArray:
        """Test scores of every split, (splits, rows)."""
        return np.array([split.ranks(X).scores for split in self.splits])


@dataclass(eq=False)
class _InEverySplit(Survey):
    """A survey of the same rows for every split."""

    repeated: RepeatedSplit
    surveys: Sequence[Survey]

    def seen(self, part: FloatArray) -> Self:
        return replace(self, surveys=[one.seen(part) for one in self.surveys])

    def merge(self, other: Self) -> Self:
        pairs = zip(self.surveys, other.surveys, strict=True)
        return replace(self, surveys=[one.merge(two) for one, two in pairs])

    @cached_property
    def against(self) -> FloatArray | None:
        found = [one.against for one in self.surveys if one.against is not None]
        return np.concatenate(found) if found else None

    def ranks(self, part: FloatArray, *, strictly: bool = False) -> Ranks:
        if strictly:
            raise ReconformError(NOT_SMOOTHED)
        return self.repeated.merged([one.ranks(part) for one in self.surveys])


def reference_calibration(scores: FloatArray) -> Calibration:
    """The calibration of a full-conformal ensemble: the reference scored without any new row.

    Ranks do not use it; it is there to be shown, and to fingerprint the fit.
    """
    n = len(scores)
    every = np.arange(n)
    return Calibration(scores, every, np.arange(n + 1), every.astype(np.int32))
