"""Several detectors at once: each is fitted as it would be alone, and a row is ranked by one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from ... import forecast
from ...arrays import FloatArray, IndexArray, IntArray, RankArray
from ...ensemble import (
    Ensemble,
    ResampledEnsemble,
    Sight,
    WithinGroups,
    blocks_of,
    worlds_by_sight,
)
from ...ensemble.refitting import FullRefit
from ...parallel import run_blocks, run_threads, track
from ...statistics.conditional_calibration import Exchanges, StepUp
from ...statistics.ranks import Calibration, Choice, Ranks
from .choosing import choose, limits_for, stands_first, weigh
from .survey import ChoiceSurvey

# So many triples of a detector, a new row and any row take some seconds; it is then worth a few
# milliseconds to say how many.
FORETELL = 50_000_000


@dataclass(eq=False)
class ChoiceEnsemble(Ensemble):
    """Several detectors, fitted by one plan on the same rows.

    Attributes
    ----------
    calibration : Calibration
        That of the first detector.
    names : tuple of str
        What to call the detectors.
    fitted : list of Ensemble
    n_jobs, verbose : int
    """

    calibration: Calibration
    names: tuple[str, ...]
    fitted: list[Ensemble]
    n_jobs: int | None = None
    verbose: int = 0

    @property
    def ranks_rows(self) -> str:
        """Which detector ranks a row depends on the other new rows."""
        return "batch"

    @property
    def candidates(self) -> tuple[str, ...]:
        """All of them."""
        return self.names

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows, each by itself, by the first detector."""
        return self.fitted[0].ranks(X, variant=variant, strictly=strictly)

    @abstractmethod
    def chosen_for(self, X: FloatArray, rows: IndexArray) -> IndexArray:
        """Choose a detector for some new rows."""

    @abstractmethod
    def see_chosen(self, X: FloatArray, rows: IndexArray, chosen: IndexArray) -> Iterator[Sight]:
        """Score all rows by the detectors that were chosen for some new rows."""

    def see_with_each(self, X: FloatArray, rows: IndexArray) -> Iterator[Sight]:
        """Score all rows by the detector that is chosen for each new row."""
        return self.see_chosen(X, rows, self.chosen_for(X, rows))

    def worlds_of_choice(
        self, X: FloatArray, rows: IndexArray, step: StepUp, choice: Choice
    ) -> Iterator[tuple[int, Exchanges]]:
        """Go through all worlds of some rows, as `worlds`, for which the choice is known."""
        return worlds_by_sight(self.see_chosen(X, rows, choice.chosen[rows]), step)


# --- full-conformal ------------------------------------------------------------------------------


class FullChoice(ChoiceEnsemble):
    """Every detector full-conformal; each row is ranked by the one that is chosen for it."""

    def batch_ranks(
        self, X: FloatArray, *, rows: IndexArray | None = None, strictly: bool = False
    ) -> Ranks:
        """Rank every row by the detector that finds most among the others; see `choosing`."""
        rows = np.arange(len(X)) if rows is None else rows
        choice = self._choice(X, rows)
        at_most, below = np.empty((2, len(rows)), dtype=np.int64)
        scores, clumped = np.empty(len(rows)), np.zeros(len(rows), dtype=np.bool_)
        for k, ensemble in enumerate(self.fitted):
            mine = np.flatnonzero(choice.chosen == k)
            if not len(mine):
                continue
            found = ensemble.batch_ranks(X, rows=rows[mine], strictly=strictly)
            at_most[mine] = choice.ranks[k, mine] = found.at_most
            scores[mine] = found.scores
            if found.below is not None:
                below[mine] = found.below
            if found.clumped is not None:
                clumped[mine] = found.clumped
        # Scores of different detectors have different units: those of one are shown for all rows.
        if len(np.unique(choice.chosen)) > 1:
            scores = self.fitted[0].ranks(X[rows]).scores
        return Ranks(at_most, below if strictly else None, scores, clumped=clumped, choice=choice)

    def ranks_within(
        self,
        X: FloatArray,
        groups: IndexArray,
        members: Sequence[IndexArray],
        *,
        together: bool = False,
        strictly: bool = False,
    ) -> Ranks:
        """Rank every row in its group by the detector that finds most among all other rows."""
        if not together:
            return self.fitted[0].ranks_within(X, groups, members, strictly=strictly)
        found = [WithinGroups(groups, members) for _ in self.fitted]
        chosen = self._choice(X, np.arange(len(X)), lambda k, sight: found[k].add(sight)).chosen
        each = [one.ranks(strictly, clumps=True) for one in found]
        return chosen_ranks(self.names, chosen, each, strictly)

    def chosen_for(self, X: FloatArray, rows: IndexArray) -> IndexArray:
        """Ask all detectors."""
        return self._choice(X, rows).chosen

    def see_chosen(self, X: FloatArray, rows: IndexArray, chosen: IndexArray) -> Iterator[Sight]:
        """Score all rows by the models of the chosen detectors."""
        for k, ensemble in enumerate(self.fitted):
            mine = rows[chosen == k]
            if len(mine):
                yield from ensemble.see_with_each(X, mine)

    def _choice(
        self,
        X: FloatArray,
        rows: IndexArray,
        look: Callable[[int, Sight], None] | None = None,
    ) -> Choice:
        """Ask all detectors; `look` is shown what each of them sees."""
        n, m = len(self.calibration), len(X)
        limits = limits_for(n, m)
        evidence, ranks = np.empty((2, len(self.fitted), len(rows)), dtype=np.int64)
        place = np.empty(m, dtype=np.intp)
        place[rows] = np.arange(len(rows))

        def ask(k: int, some: IndexArray) -> None:
            for sight in self.fitted[k].see_with_each(X, some):
                at = place[sight.rows]
                evidence[k, at], ranks[k, at] = _weighed(sight, limits, self.n_jobs)
                if look is not None:
                    look(k, sight)

        pairs = len(rows) * (n + m) * len(self.fitted)
        long = pairs > FORETELL and len(rows) >= 10
        left = self._foretold(ask, rows, m) if long and forecast.is_asked() else rows
        # Compiled code lets another thread run; refits of other detectors share their processes.
        compiled = [k for k, one in enumerate(self.fitted) if not isinstance(one, FullRefit)]
        others = [k for k in range(len(self.fitted)) if k not in compiled]
        calls = ((k, left) for k in compiled)
        steps = chain(
            run_threads(ask, calls, total=len(compiled), n_jobs=self.n_jobs),
            run_threads(ask, ((k, left) for k in others), total=len(others), n_jobs=1),
        )
        total, label = len(self.fitted), "asking detectors"
        for _ in track(steps, total=total, label=label, verbose=self.verbose, least=total):
            pass
        first = stands_first([ensemble.ranks_rows == "batch" for ensemble in self.fitted], m)
        return Choice(self.names, choose(evidence, first), ranks)

    def _foretold(
        self, ask: Callable[[int, IndexArray], None], rows: IndexArray, m: int
    ) -> IndexArray:
        """Ask all detectors about a few rows, say how long the others will take, return these.

        A detector takes some time to start and then so much per row. The first question lets it
        prepare; the next two, about a few rows and about three times as many, tell these apart.
        """
        few = -(-len(rows) // 200)
        seconds = 0.0
        for k in range(len(self.fitted)):
            ask(k, rows[:few])
            times = [forecast.clock()]
            for some in (rows[few : 2 * few], rows[2 * few : 5 * few]):
                ask(k, some)
                times.append(forecast.clock())
            short, long = times[1] - times[0], times[2] - times[1]
            seconds += short + max(0.0, long - short) / (2 * few) * len(rows)
        what = f"{len(self.fitted)} detectors on {len(self.calibration):,} and {m:,} rows"
        forecast.foretell(seconds, what)
        return rows[5 * few :]


def chosen_ranks(
    names: tuple[str, ...], chosen: IndexArray, each: Sequence[Ranks], strictly: bool
) -> Ranks:
    """Take the ranks of every row from the detector that was chosen for it."""
    every = np.arange(len(chosen))
    at_most = np.array([ranks.at_most for ranks in each])
    # Scores of different detectors have different units: those of one are shown for all rows.
    one = chosen[0] if len(np.unique(chosen)) == 1 else 0
    below = np.array([ranks.below for ranks in each]) if strictly else None
    clumped = [np.zeros(len(chosen), bool) if r.clumped is None else r.clumped for r in each]
    return Ranks(
        at_most[chosen, every],
        None if below is None else below[chosen, every],
        each[one].scores,
        clumped=np.array(clumped)[chosen, every],
        choice=Choice(names, chosen, at_most),
    )


def _weighed(sight: Sight, limits: RankArray, n_jobs: int | None) -> tuple[IntArray, RankArray]:
    evidence, ranks = np.empty((2, len(sight.rows)), dtype=np.int64)

    def kernel(start: int, stop: int) -> None:
        weigh(sight.own, sight.others, sight.rows, limits, start, stop, evidence, ranks)

    run_blocks(kernel, len(sight.rows), n_jobs=n_jobs)
    return evidence, ranks


# --- one model each, on a part of the rows -------------------------------------------------------


class SplitChoice(ChoiceEnsemble):
    """One model of every detector, calibrated on the same rows; scores are all that is needed."""

    @property
    def models(self) -> list[ResampledEnsemble]:
        """The detectors, as what scores."""
        return [model for model in self.fitted if isinstance(model, ResampledEnsemble)]

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of rows by every detector: (detectors, m)."""
        return np.array([model.full_scores(X) for model in self.models])

    @property
    def ranks_rows(self) -> str:
        """By the scores of all new rows, which may come in parts."""
        return "pool"

    @property
    def takes_notes(self) -> bool:
        """Scores are all that it needs of rows."""
        return True

    def notes(self, X: FloatArray) -> FloatArray:
        """Scores of rows by every detector."""
        return self.scores(X)

    def survey(self) -> ChoiceSurvey:
        """Begin to count scores."""
        references = tuple(model.calibration.sorted_scores for model in self.models)
        return ChoiceSurvey(self.names, references)

    def ranks_within(
        self,
        X: FloatArray,
        groups: IndexArray,
        members: Sequence[IndexArray],
        *,
        together: bool = False,
        strictly: bool = False,
    ) -> Ranks:
        """Rank every row in its group by the detector that finds most among all other rows."""
        if not together:
            return self.fitted[0].ranks_within(X, groups, members, strictly=strictly)
        chosen = self.chosen_for(X, np.arange(len(X)))
        each = [model.ranks_within(X, groups, members, strictly=strictly) for model in self.models]
        return chosen_ranks(self.names, chosen, each, strictly)

    def chosen_for(self, X: FloatArray, rows: IndexArray) -> IndexArray:
        """Choose by the scores of the whole batch."""
        choice = self.batch_ranks(X, rows=rows).choice
        assert choice is not None
        return choice.chosen

    def see_chosen(self, X: FloatArray, rows: IndexArray, chosen: IndexArray) -> Iterator[Sight]:
        """Score all rows by the chosen detectors: no model changes."""
        scores = self.scores(X)
        for k, model in enumerate(self.models):
            for block in blocks_of(rows[chosen == k], len(self.calibration) + len(X)):
                shape = (len(block), 1)
                own = np.hstack([np.tile(model.calibration.scores, shape), scores[k, block, None]])
                yield Sight(block, own, np.tile(scores[k], shape))
