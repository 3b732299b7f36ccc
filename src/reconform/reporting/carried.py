"""Which rows the page carries: the most unusual, and a sample of the others, within a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import AnyArray, IndexArray, RankArray
from ..discoveries import Discoveries
from ..explaining.features import Unusual
from .safe_text import number, script_json, shorten

# Bytes of rows on the page; with everything else it stays below 5 MB.
BUDGET = 4_400_000
SAMPLE = 1_000
BLOCK = 2_048
LONGEST_ID, LONGEST_VALUE, LONGEST_NAME = 120, 60, 80

Describe = Callable[[Sequence[int]], list[list[Unusual]]]


@dataclass(frozen=True, eq=False)
class SomeRows:
    """The features of some of the rows that a list is about, where there are too many of them.

    Attributes
    ----------
    positions : int array
        Which rows they are.
    table : array-like or frame
        Their features, in this order.
    """

    positions: IndexArray
    table: Any

    def describe(self, describe: Describe) -> Describe:
        """Describe rows by their positions in the list; nothing is said of the others."""
        known = {position: k for k, position in enumerate(self.positions.tolist())}

        def described(positions: Sequence[int]) -> list[list[Unusual]]:
            here = [known[position] for position in positions if position in known]
            features = iter(describe(here) if here else [])
            return [next(features) if position in known else [] for position in positions]

        return described


@dataclass(frozen=True, eq=False)
class RowNames(Sequence[Any]):
    """A label per row, of which only some are known: the others have their number, from 1.

    Attributes
    ----------
    rows : int
    names : dict of int to str
        By position.
    """

    rows: int
    names: dict[int, str]

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, position: Any) -> Any:
        return self.names.get(int(position), int(position) + 1)


@dataclass(frozen=True, eq=False)
class Carried:
    """Rows on the page, the most unusual first.

    Attributes
    ----------
    lines : list of list
        For each row its place (1 = most unusual), id, score, p-value, q-value or e-value, and
        its unusual features as (index in `names`, value, strength, note).
    names : list of str
        Of the features that are mentioned.
    leading : int
        The first so many places are all there; what follows is a sample.
    """

    lines: list[list[Any]]
    names: list[str]
    leading: int


def carry(
    found: Discoveries,
    order: RankArray,
    wanted: int,
    ids: AnyArray | Sequence[Any],
    *,
    describe: Describe | None = None,
    names: Sequence[str] = (),
    budget: int = BUDGET,
    sample: int = SAMPLE,
) -> Carried:
    """Pick the rows that the page carries.

    Parameters
    ----------
    found : Discoveries
    order : int array
        Positions, the most unusual first.
    wanted : int
        How many of the most unusual should be there: the discoveries at the highest level.
    ids : array or sequence
        A label per row.
    describe : callable, optional
        From positions to unusual features.
    names : sequence of str
        Of all features.
    budget : int
        Bytes that the rows may take.
    sample : int
        Rows beyond the `wanted` ones, spread evenly over the others.

    Returns
    -------
    Carried
    """
    others = len(order) - wanted
    spread = wanted + np.unique(np.linspace(0, others - 1, min(sample, others)).astype(np.intp))
    lines: list[list[Any]] = []
    used: dict[int, int] = {}
    spent = 0
    # The most unusual leave a twentieth of the budget to the sample.
    for places, limit in ((np.arange(wanted), budget * 19 // 20), (spread, budget)):
        for place, features in _described(places, order, describe):
            fresh = {u.feature for u in features} - used.keys()
            line = _line(found, int(order[place]), place, ids)
            line.append([[u.feature, *_words(u)] for u in features])
            spent += len(script_json(line).encode()) + 1
            spent += sum(len(script_json(shorten(names[j], LONGEST_NAME)).encode()) for j in fresh)
            if spent > limit:
                break
            used.update({j: len(used) + i for i, j in enumerate(sorted(fresh))})
            line[-1] = [[used[j], *words] for j, *words in line[-1]]
            lines.append(line)
    leading = sum(line[0] <= wanted for line in lines)
    return Carried(lines, [shorten(names[j], LONGEST_NAME) for j in used], leading)


def _described(
    places: IndexArray, order: RankArray, describe: Describe | None
) -> Iterator[tuple[int, list[Unusual]]]:
    """Blocks, so that a spent budget ends the work."""
    for start in range(0, len(places), BLOCK):
        block = places[start : start + BLOCK]
        features = describe(order[block].tolist()) if describe else [[] for _ in block]
        yield from zip(block.tolist(), features, strict=True)


def _line(found: Discoveries, i: int, place: int, ids: AnyArray | Sequence[Any]) -> list[Any]:
    values = (found.scores[i], found.p_values[i], found.evidence[1][i])
    return [place + 1, shorten(str(ids[i]), LONGEST_ID), *map(number, map(float, values))]


def _words(unusual: Unusual) -> list[Any]:
    words: list[Any] = [shorten(unusual.value, LONGEST_VALUE), number(unusual.strength)]
    return [*words, unusual.note] if unusual.note else words
