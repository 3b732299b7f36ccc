"""Which of several detectors each new row was ranked by, and what each would have found alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..arrays import BoolArray, IndexArray, RankArray

# A sentence names no more detectors than this.
SHOWN = 4


@dataclass(frozen=True, eq=False)
class Choice:
    """Which of several detectors each new row was ranked by.

    Attributes
    ----------
    names : tuple of str
        The detectors.
    chosen : int array of shape (m,)
        For every row the detector.
    ranks : int array of shape (detectors, m)
        The ranks that each of them gives.
    """

    names: tuple[str, ...]
    chosen: IndexArray
    ranks: RankArray

    def taken(self, rows: IndexArray) -> Choice:
        """Return the choice for some of the rows."""
        return Choice(self.names, self.chosen[rows], self.ranks[:, rows])


@dataclass(frozen=True)
class Candidate:
    """What became of one detector that was tried.

    Attributes
    ----------
    name : str
    rows : int
        New rows that it was chosen for.
    flagged : int
        Those of them that are flagged.
    alone : int
        Rows that it would have flagged at the same level, had nothing else been tried.
    """

    name: str
    rows: int
    flagged: int
    alone: int


class ChoiceCounts:
    """Counts of the ranks of all detectors, of rows that come in parts.

    Parameters
    ----------
    names : tuple of str
    n_calibration : int
        Ranks lie in 1 .. n_calibration + 1.
    """

    def __init__(self, names: tuple[str, ...], n_calibration: int) -> None:
        self.names = names
        shape = (len(names), n_calibration + 2)
        self.by_rank = np.zeros(shape, dtype=np.int64)
        self.chosen_by_rank = np.zeros(shape, dtype=np.int64)

    def add(self, choice: Choice) -> ChoiceCounts:
        """Count some rows; return itself."""
        size = self.by_rank.shape[1]
        for k, ranks in enumerate(choice.ranks):
            self.by_rank[k] += np.bincount(ranks, minlength=size)
            self.chosen_by_rank[k] += np.bincount(ranks[choice.chosen == k], minlength=size)
        return self

    def merge(self, other: ChoiceCounts) -> ChoiceCounts:
        """Add up the counts of two parts of a batch."""
        both = ChoiceCounts(self.names, self.by_rank.shape[1] - 2)
        both.by_rank = self.by_rank + other.by_rank
        both.chosen_by_rank = self.chosen_by_rank + other.chosen_by_rank
        return both

    def candidates(
        self, flagged: BoolArray, alone: Callable[[RankArray], int]
    ) -> tuple[Candidate, ...]:
        """Say what became of every detector, those that were chosen most often first.

        Parameters
        ----------
        flagged : bool array
            Whether rows of rank 0 (none), 1, ... are flagged.
        alone : callable
            From the numbers of rows with rank 0, 1, ... to how many of them a list would have.
        """
        made = [
            Candidate(
                name,
                rows=int(mine.sum()),
                flagged=int(mine[flagged].sum()),
                alone=alone(every),
            )
            for name, mine, every in zip(self.names, self.chosen_by_rank, self.by_rank, strict=True)
        ]
        return tuple(sorted(made, key=lambda one: -one.rows))


def with_mask(
    candidates: tuple[Candidate, ...], choice: Choice, mask: BoolArray
) -> tuple[Candidate, ...]:
    """Count the flagged rows of every detector by a mask, where no threshold says it."""
    flagged = {name: int(mask[choice.chosen == k].sum()) for k, name in enumerate(choice.names)}
    return tuple(Candidate(c.name, c.rows, flagged[c.name], c.alone) for c in candidates)


def choice_sentence(candidates: tuple[Candidate, ...]) -> str:
    """Say in words what was chosen, and what the others would have found.

    Examples
    --------
    >>> kde, knn = Candidate("kde", 90, 31, 33), Candidate("knn", 10, 0, 12)
    >>> print(choice_sentence((kde, knn, Candidate("lof", 0, 0, 4))))
    Chosen among 3 detectors: kde for 90 of 100 rows (31 flagged), knn for 10 (0 flagged). Alone,
    kde would have flagged 33, knn 12, lof 4.
    """
    if not candidates:
        return ""
    total = sum(one.rows for one in candidates)
    chosen = [one for one in candidates if one.rows]
    parts = [f"{one.name} for {one.rows:,} ({one.flagged:,} flagged)" for one in chosen[:SHOWN]]
    if parts:
        first = chosen[0]
        parts[0] = f"{first.name} for {first.rows:,} of {total:,} rows ({first.flagged:,} flagged)"
    best = sorted(candidates, key=lambda one: -one.alone)
    alone = [f"{one.name} {one.alone:,}" for one in best[:SHOWN]]
    alone[0] = f"{best[0].name} would have flagged {best[0].alone:,}"
    if len(best) > SHOWN:
        most = best[SHOWN].alone
        alone.append(f"the others {most:,} or fewer" if most else "the others 0")
    return (
        f"Chosen among {len(candidates)} detectors: {', '.join(parts)}. Alone, {', '.join(alone)}."
    )
