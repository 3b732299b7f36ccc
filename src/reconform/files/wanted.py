"""Rows of a file that somebody named, to be explained: found in the first pass, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import IndexArray
from ..errors import InputError, ReconformError
from .column_types import to_python


class Wanted:
    """Finds rows by their positions or identifiers.

    Parameters
    ----------
    wanted : sequence of int or str
        Positions from 0, or identifiers.
    ids : sequence of str
        The columns that identifiers stand in.
    """

    def __init__(self, wanted: Sequence[int | str], ids: Sequence[str]) -> None:
        self._wanted, self._ids = wanted, ids
        self._named: dict[str, list[int]] = {one: [] for one in wanted if isinstance(one, str)}
        if self._named and not ids:
            raise ReconformError(
                "`wanted` names rows by identifiers, and no column has them: give `id_columns`, or "
                "positions."
            )

    @property
    def columns(self) -> Sequence[str]:
        """Columns to read along."""
        return self._ids if self._named else ()

    def add(self, table: Any, start: int) -> None:
        """Look at a batch."""
        if not self._named:
            return
        columns = [to_python(table.column(name)) for name in self._ids]
        for i, cells in enumerate(zip(*columns, strict=True)):
            name = ", ".join(map(str, cells))
            if name in self._named:
                self._named[name].append(start + i)

    def found(self, label: str, rows: int) -> IndexArray:
        """Return the positions; refuse what is not there."""
        positions = []
        for one in self._wanted:
            if not isinstance(one, str):
                if not 0 <= one < rows:
                    raise InputError(label, f"it has {rows:,} rows, and row {one + 1:,} is none.")
                positions.append(int(one))
                continue
            places = self._named[one]
            if len(places) != 1:
                many = "no row" if not places else f"{len(places):,} rows"
                raise InputError(label, f"{many} with the identifier {one!r}; one is needed.")
            positions.append(places[0])
        return np.array(positions, dtype=np.intp)
