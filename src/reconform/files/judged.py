"""The result of judging a file: the decision, the rows that come first, and the output."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays import FloatArray, IndexArray, RankArray
from ..discoveries import CountedDiscoveries, Discoveries
from ..errors import ReconformError
from ..explaining import Explainer
from ..explaining.explanation import Explanation, Judged
from ..statistics.bounds import FirstRows

# A result keeps no more flagged rows, and the numbers of every row only for files of at most so
# many rows.
MOST_FLAGGED = 10_000
MOST_DISCOVERIES = 1_000_000


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a file.

    Attributes
    ----------
    positions : int array
        Of the rows in the file, from 0.
    table : pyarrow.Table
        The columns of the file, and the results as the last four; without an output, and where
        the file has columns of such names, these begin with ``result_``.
    X : float array
        The features, as the detector saw them.
    """

    positions: IndexArray
    table: Any
    X: FloatArray

    def __len__(self) -> int:
        return len(self.positions)

    def head(self, rows: int) -> Rows:
        """The first of them."""
        return Rows(self.positions[:rows], self.table.slice(0, rows), self.X[:rows])


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FileDiscoveries(CountedDiscoveries):
    """The decision on the rows of a file, and what a report of it needs.

    Attributes
    ----------
    path : str
    output : str or None
    listed : Rows
        The rows that come first (`first`), in this order: at most 10,000 of the discoveries, and
        others after them if the rows asked for, or 10, are more.
    wanted : Rows
        Those that were asked for by `ReadOptions.wanted`, in this order.
    rows : Rows or None
        All rows, where these were asked for and are few enough. Of the columns of the file the
        table has only those of labels.
    missing, unseen : dict
        By column, where there are any: values that are missing, and labels that the reference
        does not have.
    fingerprint : str
        Of the new rows, as `Table.fingerprint` of the reference.
    certified : Discoveries or None
        The list, where it was certified by conditional calibration; `decision` is then that of
        the plain list at the same level.
    decision, rank_counts, guarantee, provenance, warning, ...
        As in every list of discoveries that was decided by counts.
    """

    path: str
    output: str | None
    listed: Rows
    wanted: Rows
    rows: Rows | None
    missing: dict[str, int]
    unseen: dict[str, int]
    fingerprint: str
    certified: Discoveries | None
    _numbers: tuple[RankArray, FloatArray] | None
    _index: list[Any] | None
    _explainer: Explainer | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_explainer": None}

    @property
    def count(self) -> int:
        """Number of discoveries."""
        return super().count if self.certified is None else self.certified.count

    @property
    def letter(self) -> str:
        """What is shown beside the p-value: "q", or "e" for e-values."""
        return "q" if self.certified is None else self.certified.evidence[0]

    @property
    def flagged(self) -> Rows:
        """The most anomalous discoveries, in this order; at most 10,000, fewer if they are long."""
        return self.listed.head(min(self.count, MOST_FLAGGED))

    def _largest_rank(self) -> int:
        return super()._largest_rank() if self.certified is None else self.certified._largest_rank()

    def _first(self, rows: int) -> FirstRows:
        return super()._first(rows) if self.certified is None else self.certified._first(rows)

    def _shown(self) -> list[str]:
        return [] if self.output is None else [f"written to {self.output}"]

    def explain(self, row: Any = None, *, position: int | None = None) -> Explanation:
        """Explain why a row stands out, or does not; see `Explanation`.

        Parameters
        ----------
        row : object, optional
            The identifier of the row, where there is an identifier column; otherwise its position
            in the file, from 0. By default the row that comes first.
        position : int, optional
            Instead of `row`: its position in the file, from 0.

        Returns
        -------
        Explanation

        Notes
        -----
        Rows can be explained that were kept: those that come first (`listed`), those that
        `ReadOptions.wanted` asked for, and all where `rows` are there.
        """
        if row is None and position is None and len(self.listed):
            position = int(self.listed.positions[0])
        if self._numbers is not None or self.certified is not None:
            return self.to_discoveries().explain(row, position=position)
        if position is None:
            position = row
        return self._explained(position)

    def _explained(self, position: Any) -> Explanation:
        """Explain a row of a file of which the numbers of every row were not kept."""
        for some in (self.listed, self.wanted):
            at = np.flatnonzero(some.positions == position)
            if len(at) and self._explainer is not None:
                cells = some.table.slice(int(at[0]), 1).columns[-4:]
                _, p_value, evidence, mask = (cell[0].as_py() for cell in cells)
                judged = Judged(str(position), bool(mask), p_value, (self.letter, evidence))
                place = self._explainer.place(int(position))
                assert place is not None  # both are among the rows that it has
                return self._explainer.explain([place], [judged])[0]
        raise ReconformError(
            f"the row {position!r} of {self.path} was not kept: of so many rows only those that "
            "come first are. Name it in `ReadOptions(wanted=...)`, or give it to cad.explain(row)."
        )

    def to_discoveries(self) -> Discoveries:
        """Return every row's numbers, as `ConformalDetector.discover` does; up to a million rows.

        The identifier column, if there is one, labels the rows.
        """
        if self.certified is not None:
            found = replace(
                self.certified,
                index=self._index,
                compared=self.compared,
                explainer=self._explainer,
            )
            return self._judged_alike(found)
        if self._numbers is None:
            raise ReconformError(
                f"{self.path} has {self.tested:,} rows, and the numbers of every row are kept for "
                f"at most {MOST_DISCOVERIES:,}; use rank_counts and flagged."
            )
        ranks, scores = self._numbers
        found = Discoveries(
            mask=self.decision.mask(ranks),
            p_values=self.decision.grid.values(ranks),
            q_values=self.decision.q_values(ranks),
            scores=scores,
            ranks=ranks,
            index=self._index,
            decision=self.decision,
            p_threshold=self.p_threshold,
            procedure=self.procedure,
            fdr=self.fdr,
            false_alarms=self.false_alarms,
            top=self.top,
            claim=self.claim,
            compared=self.compared,
            provenance=self.provenance,
            warning=self.warning,
            choice=self.choice,
            explainer=self._explainer,
            groups=self.groups,
            row_groups=self._row_groups(ranks),
        )
        return self._judged_alike(found)

    def _row_groups(self, ranks: RankArray) -> Any:
        """The group of every row, where there are groups."""
        if not self.groups:
            return None
        names = np.array([group.name for group in self.groups], dtype=object)
        joint = self.provenance.joint
        return names[np.zeros(len(ranks), np.intp) if joint is None else joint.apart(ranks)[0]]

    def _judged_alike(self, found: Discoveries) -> Discoveries:
        """Hand the verdict on to the same list in another form: it is worked out once."""
        vars(found)["verdict"] = self.verdict
        return found
