"""Ensembles around others: of groups of rows, and with known anomalies beside the new rows.

Rows are ranked within groups, by one detector on all rows or by one for each group. Of a single
group there is none: it has the ensemble that it would have without groups.

Anomalies that are known from elsewhere shape scores and choices, never the calibration. For a
detector that compares new rows with each other, and for the choice between detectors, known
anomalies stand beside the other new rows: rows that look like them have companions, and a detector
that finds them has more evidence. They are never ranked, and nothing is ranked among them. So
p-values are as exact as without, if the reference and a new row are exchangeable given the other
new rows *and the known anomalies* (docs/guarantees). That fails for rows of the reference itself:
who was confirmed as an anomaly there was looked at, and copies of such rows are refused. A new row
whose values are those of a known anomaly is only one more of its kind.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from ..arrays import FloatArray, IndexArray, RankArray
from ..content import Contents
from ..errors import ReconformError
from ..frames import stacked
from ..methods import Plan
from ..statistics.conditional_calibration import StepUp, e_value
from ..statistics.joint import JointStepUp
from ..statistics.ranks import Calibration, Choice, Ranks
from . import AugmentedScores, Ensemble, Survey, Within, e_values_by_scores
from .choosing import FullChoice


class GroupedEnsemble(Ensemble):
    """What ranks rows within groups. Groups are numbers, as `Grouping.codes` gives them."""

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Refuse rows without groups."""
        raise ReconformError(
            "this detector was fitted with groups, and ranks rows within them; give `groups`, one "
            "label per row."
        )

    @abstractmethod
    def ranks_in(
        self, X: FloatArray, codes: IndexArray, *, together: bool = False, strictly: bool = False
    ) -> Ranks:
        """Rank new rows within their groups.

        Parameters
        ----------
        X : float array of shape (m, d)
        codes : int array of shape (m,)
            Their groups; the number of groups for rows that are ranked against all.
        together : bool
            X is a whole batch; see `Ensemble.batch_ranks`.
        strictly : bool
            As in `Ensemble.ranks`.

        Returns
        -------
        Ranks
            Each in 1 .. n_g + 1, within the group.
        """

    @abstractmethod
    def e_values_in(
        self, X: FloatArray, codes: IndexArray, rows: RankArray, step: JointStepUp, ranks: Ranks
    ) -> Iterator[tuple[int, Fraction]]:
        """Find the e-values of some new rows; worlds exchange a row with one of its group.

        Parameters
        ----------
        X, codes
            All new rows.
        rows : int array
            Those whose e-values are asked for; none of unknown groups.
        step : JointStepUp
        ranks : Ranks
            What `ranks_in` gave for all rows.

        Yields
        ------
        row, e_value : int, Fraction
        """

    @property
    def ranks_rows(self) -> str:
        """With the batch in memory, unless its detectors rank rows alone."""
        return "alone" if self.first().ranks_rows == "alone" else "batch"

    @property
    def candidates(self) -> tuple[str, ...]:
        """As its detectors say."""
        return self.first().candidates

    @abstractmethod
    def first(self) -> Ensemble:
        """The ensemble of the first group, which is like those of the others."""

    def for_all(self) -> Ensemble | None:
        """The one detector that scores the rows of all groups; None where each has its own."""
        return None


@dataclass(eq=False)
class OneForAll(GroupedEnsemble):
    """One detector on all rows, which ranks a new row among the reference rows of its group.

    Attributes
    ----------
    calibration : Calibration
    ensemble : Ensemble
        Fitted on all rows.
    codes : int array of shape (n_calibration,)
        The group of every calibration row.
    """

    calibration: Calibration
    ensemble: Ensemble
    codes: IndexArray

    @cached_property
    def members(self) -> list[IndexArray]:
        """Positions of the calibration rows of every group."""
        return [np.flatnonzero(self.codes == g) for g in range(int(self.codes.max()) + 1)]

    def first(self) -> Ensemble:
        """The detector."""
        return self.ensemble

    def for_all(self) -> Ensemble:
        """The detector."""
        return self.ensemble

    def ranks_in(
        self, X: FloatArray, codes: IndexArray, *, together: bool = False, strictly: bool = False
    ) -> Ranks:
        """Rank rows by the one detector, among the members of their groups."""
        return self.ensemble.ranks_within(X, Within(codes, self.members, together, strictly))

    def e_values_in(
        self, X: FloatArray, codes: IndexArray, rows: RankArray, step: JointStepUp, ranks: Ranks
    ) -> Iterator[tuple[int, Fraction]]:
        """Find e-values by one model per row, on all rows and this one, which scores everything."""
        members = [self.calibration.rows[some] for some in self.members]
        for augmented in _augmented_scores(self.ensemble, X, rows, ranks.choice):
            columns = [augmented.columns(some) for some in members]
            for j, own, others in augmented:
                needed = np.empty(len(X), dtype=np.int64)
                for g, some in enumerate(columns):
                    theirs = np.flatnonzero(codes == g)
                    if not len(theirs):
                        continue
                    low = np.sort(own[some])
                    at_most = 1 + np.searchsorted(low, others[theirs], side="right")
                    needed[theirs] = step.needed(codes[theirs], at_most)
                mine = columns[codes[j]]
                in_world = np.append(own[mine], own[-1])
                alike = codes == codes[j]
                at_most = np.searchsorted(np.sort(in_world), others[alike], side="right")
                needed[alike] = step.needed(codes[alike], at_most)
                length = step.count(np.delete(needed, j))
                yield j, e_value(in_world, step.limit(int(codes[j]), length))


@dataclass(eq=False)
class OnePerGroup(GroupedEnsemble):
    """A detector for every group, fitted on its rows alone.

    Attributes
    ----------
    calibration : Calibration
        Of all groups, one after the other.
    plans : list of Plan
        How the rows of each group train and calibrate.
    ensembles : list of Ensemble
        By group.
    """

    calibration: Calibration
    plans: list[Plan]
    ensembles: list[Ensemble]

    def first(self) -> Ensemble:
        """The detector of the first group."""
        return self.ensembles[0]

    def ranks_in(
        self, X: FloatArray, codes: IndexArray, *, together: bool = False, strictly: bool = False
    ) -> Ranks:
        """Rank the rows of every group by its own detector."""
        parts = []
        for g, ensemble in enumerate(self.ensembles):
            rows = np.flatnonzero(codes == g)
            if len(rows):
                rank = ensemble.batch_ranks if together else ensemble.ranks
                parts.append((rows, rank(X[rows], strictly=strictly)))
        return _joined(parts, len(X))

    def e_values_in(
        self, X: FloatArray, codes: IndexArray, rows: RankArray, step: JointStepUp, ranks: Ranks
    ) -> Iterator[tuple[int, Fraction]]:
        """Find e-values within each group; the ranks in other groups are as they are."""
        actual = step.needed(codes, ranks.at_most)
        for g, ensemble in enumerate(self.ensembles):
            here = np.flatnonzero(codes == g)
            wanted = np.searchsorted(here, rows[codes[rows] == g])
            if not len(wanted):
                continue
            choice = None if ranks.choice is None else ranks.choice.taken(here)
            for augmented in _augmented_scores(ensemble, X[here], wanted, choice):
                for j, own, others in augmented:
                    needed = actual.copy()
                    at_most = np.searchsorted(np.sort(own), others, side="right")
                    needed[here] = step.needed(codes[here], at_most)
                    row = int(here[j])
                    yield row, e_value(own, step.limit(g, step.count(np.delete(needed, row))))


def _augmented_scores(
    ensemble: Ensemble, X: FloatArray, rows: RankArray, choice: Choice | None
) -> Iterable[AugmentedScores]:
    """All rows as the models on the reference and one new row see them."""
    if choice is not None and isinstance(ensemble, FullChoice):
        return ensemble.augmented_by_chosen(X, rows, choice.chosen[rows])
    return ensemble.augmented_scores(X, rows)


def joined_calibration(parts: Sequence[Calibration], places: Sequence[IndexArray]) -> Calibration:
    """The calibrations of several groups as one, to be shown and to tell fits apart.

    Parameters
    ----------
    parts : sequence of Calibration
    places : sequence of int arrays
        Which rows of all those of each group are.
    """
    sizes = [np.diff(part.indptr) for part in parts]
    models = [len(np.unique(part.models)) for part in parts]
    before = np.concatenate([[0], np.cumsum(models)[:-1]]).astype(np.int32)
    return Calibration(
        np.concatenate([part.scores for part in parts]),
        np.concatenate([rows[part.rows] for part, rows in zip(parts, places, strict=True)]),
        np.concatenate([[0], np.cumsum(np.concatenate(sizes))]),
        np.concatenate([part.models + k for part, k in zip(parts, before, strict=True)]),
    )


def _joined(parts: list[tuple[IndexArray, Ranks]], m: int) -> Ranks:
    """Put the ranks of several groups together."""
    names = {None if part.choice is None else part.choice.names for _, part in parts}
    same = names.pop() if len(names) == 1 else None
    chosen = np.zeros(m, dtype=np.intp)
    by_each = np.ones((len(same or ()), m), dtype=np.int64)
    total: RankArray | None = None  # of the evidence, where detectors were chosen from the pool
    for rows, part in parts:
        if same is not None and part.choice is not None:
            chosen[rows] = part.choice.chosen
            if part.choice.evidence is not None:
                by_each = by_each[:0]
                total = part.choice.evidence + (0 if total is None else total)
            else:
                by_each[:, rows] = part.choice.ranks
    choice = None if same is None else Choice(same, chosen, by_each, total)
    return replace(Ranks.joined(m, parts), choice=choice)


@dataclass(eq=False)
class WithAnomalies(Ensemble):
    """An ensemble that uses the batch, with known anomalies beside every batch.

    Attributes
    ----------
    inner : Ensemble
    anomalies : float array of shape (a, d)
    """

    inner: Ensemble
    anomalies: FloatArray

    @property
    def bare(self) -> Ensemble:
        """What they stand beside."""
        return self.inner

    @property
    def calibration(self) -> Calibration:  # type: ignore[override]
        """As without anomalies."""
        return self.inner.calibration

    @property
    def ranks_rows(self) -> str:
        """As without anomalies."""
        return self.inner.ranks_rows

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row by itself, as without anomalies."""
        return self.inner.ranks(X, variant=variant, strictly=strictly)

    def raw_scores(self, X: FloatArray) -> FloatArray:
        """Score rows, as without anomalies."""
        return self.inner.raw_scores(X)

    def batch_ranks(
        self, X: FloatArray, *, rows: IndexArray | None = None, strictly: bool = False
    ) -> Ranks:
        """Rank new rows; the anomalies are among the rows that these are compared with."""
        if self.ranks_rows == "pool":
            return super().batch_ranks(X, rows=rows, strictly=strictly)
        rows = np.arange(len(X)) if rows is None else rows
        return self.inner.batch_ranks(self._beside(X), rows=rows, strictly=strictly)

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows, the anomalies standing beside them."""
        for augmented in self.inner.augmented_scores(self._beside(X), rows):
            yield replace(augmented, others=np.ascontiguousarray(augmented.others[:, : len(X)]))

    def e_values(
        self, X: FloatArray, rows: RankArray, step: StepUp
    ) -> Iterator[tuple[int, Fraction]]:
        """Find the e-values of some new rows; the anomalies are in none of the lists."""
        return e_values_by_scores(self.augmented_scores(X, rows), step)

    def survey(self) -> Survey:
        """Begin a survey in which the anomalies stand beside the new rows."""
        return self.inner.survey().beside(self.anomalies)

    def _beside(self, X: FloatArray) -> FloatArray:
        both: FloatArray = stacked(X, self.anomalies)
        return both


def refuse_copies(anomalies: FloatArray, reference: FloatArray) -> None:
    """Refuse known anomalies that are rows of the reference.

    Parameters
    ----------
    anomalies : float array of shape (a, d)
    reference : float array of shape (n, d)

    Examples
    --------
    >>> import numpy as np
    >>> refuse_copies(np.array([[9.0, 9.0]]), np.array([[0.0, 1.0], [9.0, 9.0]]))
    Traceback (most recent call last):
        ...
    reconform.errors.ReconformError: `anomalies` has 1 row that is also in the reference, row 1 of
    it (counted from 1). Anomalies that were confirmed there were looked at, and with these p-values
    would no longer hold: they have to come from elsewhere. Take such rows out of both.
    """
    both = Contents.of(np.vstack([np.asarray(reference), np.asarray(anomalies)]))
    there = np.unique(both.group[: len(reference)])
    copies = np.flatnonzero(np.isin(both.group[len(reference) :], there))
    if len(copies):
        one = len(copies) == 1
        rows = "1 row that is" if one else f"{len(copies):,} rows that are"
        first = "row" if one else "the first is row"
        raise ReconformError(
            f"`anomalies` has {rows} also in the reference, {first} {copies[0] + 1:,} of it "
            "(counted from 1). Anomalies that were confirmed there were looked at, and with these "
            "p-values would no longer hold: they have to come from elsewhere. Take such rows out "
            "of both."
        )
