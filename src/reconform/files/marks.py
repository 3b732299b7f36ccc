"""Mark files: what a person says of rows that were flagged, or drawn at random.

A mark file is a table in any format with a column ``mark``: real, false, unsure, or nothing. What
it says of a row beside that is either its features, and the row is in the file itself; or its
number (``row``, from 1) or its ``id``, and the row is in the file that was judged. The report saves
such files; a list of flagged rows, or `Discoveries.to_frame`, with one more column is one.

A review file marks rows of a reference, to be left out when a detector is fitted. Each row of it
has a seal of what the row holds, so that marks are never applied to other rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from sklearn.utils import get_tags

from ..arrays import BoolArray, IndexArray, UInt64Array
from ..assumption.sample import reference_positions
from ..content import Contents, digests_of
from ..detector import ConformalDetector
from ..errors import InputError, ReconformError, listed
from ..tables import Feature
from ..tables.cells import Fingerprint, words
from ..updating import MARK_COLUMNS, Looked, marks_of, moved, reference_of, row_keys, updated
from .batches import default_batch_rows, open_batches
from .formats import Layout, free_names
from .judge import Wanted, features_of, labels_of_rows
from .reading import Table
from .result import FileDiscoveries
from .source import open_source

# What a person marks is not a million rows.
MOST_MARKS = 100_000
YES = ("yes", "y", "true", "1")
# The column of a review file that says what a row holds, in letters no spreadsheet changes.
SEAL = "seal"


@dataclass(frozen=True, eq=False)
class MarkFile:
    """The rows of a mark file.

    Attributes
    ----------
    path : str
    marks : array of str
        ``"real"``, ``"false"``, ``"unsure"`` or ``""`` for every row.
    flagged, sample : bool arrays
        Whether the row was on the list, and in the random sample. A file that does not say it is
        about flagged rows.
    rows : tuple of int, or None
        Their numbers in the file that was judged, from 1.
    ids : tuple of str, or None
    batch, file : str
        The digest of the rows that were judged, and where they were; empty where it is not said.
    table : pyarrow.Table
        All columns.
    """

    path: str
    marks: Any
    flagged: BoolArray
    sample: BoolArray
    rows: tuple[int, ...] | None
    ids: tuple[str, ...] | None
    batch: str
    file: str
    table: Any

    def __len__(self) -> int:
        return len(self.marks)

    def looked_at(
        self,
        cad: ConformalDetector,
        *,
        features: Sequence[Feature] | None = None,
        id_columns: Sequence[str] = (),
        rows: str | None = None,
    ) -> Looked:
        """Find the marked rows.

        Parameters
        ----------
        cad : ConformalDetector
            The detector that is to be updated, which says how rows are read.
        features, id_columns
            As in `ReadOptions`: the columns, and those that name a row.
        rows : str, optional
            The file that was judged; by default the mark file itself, if it has the columns, or the
            file that it names.

        Returns
        -------
        Looked
        """
        if SEAL in self.table.column_names:
            raise InputError(
                self.path,
                "it marks rows of a reference, which leave when a detector is fitted: give it to "
                "'reconform fit', with the reference.",
            )
        columns = {one.column for one in features_of(cad, features)}
        own = columns <= set(self.table.column_names)
        place = rows or (self.path if own else self.file)
        if not place:
            raise InputError(
                self.path,
                "it has neither the columns of the reference nor the name of the file that was "
                "judged; name that file by `rows`.",
            )
        if place == self.path:
            one = rows_with_keys(cad, place, features, id_columns, whole=False)
            at = np.arange(len(one.X))
        else:
            wanted = Wanted(self._wanted(), id_columns)
            one = rows_with_keys(cad, place, features, id_columns, wanted)
            if self.batch and one.digest != self.batch:
                raise InputError(
                    place,
                    f"it does not hold the rows that were judged when {self.path} was marked: they "
                    "have changed since. Name the file that still has them by `rows`.",
                )
            at = wanted.found(place, len(one.X))
        return Looked(one.X[at], self.marks, self.sample, one.keys[at])

    def _wanted(self) -> list[int | str]:
        """Which rows of the file that was judged: by position, or by identifier."""
        if self.rows is not None:
            return [row - 1 for row in self.rows]
        if self.ids is not None:
            return list(self.ids)
        raise InputError(
            self.path, "it does not say which rows it marks: give a column 'row', from 1, or 'id'."
        )


class Keyed(NamedTuple):
    """Rows of a file as the detector sees them, which they are (`row_keys`), and their digest."""

    X: Any
    keys: UInt64Array
    digest: str


def rows_with_keys(
    cad: ConformalDetector,
    path: str,
    features: Sequence[Feature] | None,
    id_columns: Sequence[str],
    wanted: Wanted | None = None,
    *,
    whole: bool = True,
) -> Keyed:
    """Read all rows of a file, of which `wanted` are to be found; `whole` if it is a batch."""
    features = features_of(cad, features)
    digest, labels, start = Fingerprint(features), [], 0
    parts = [np.empty((0, len(features)))]
    allows = bool(get_tags(cad).input_tags.allow_nan)
    with open_source(path, Layout()) as source:
        ids = [name for name in id_columns if name in source.schema.names]
    with open_batches(path, features, id_columns=ids, allow_missing=allows) as batches:
        for table, X in batches.read(ids):
            if wanted is not None:
                wanted.add(table, start)
            labels += labels_of_rows(table, ids)
            parts.append(X)
            digest.add(X)
            start += len(X)
    seen = cad.of_file(np.concatenate(parts))
    keys = row_keys(digests_of(seen)[1], labels if ids else None, whole=whole)
    return Keyed(seen, keys, digest.hexdigest())


def reference_rows(
    cad: ConformalDetector, path: str | None, features: Sequence[Feature] | None
) -> Any:
    """Read the rows of a reference that the model does not keep; refuse other rows."""
    if path is None:
        raise ReconformError(
            "this model does not keep the rows of its reference; give them by `reference`."
        )
    rows, sample = rows_with_keys(cad, path, features, ()).X, cad.reference_sample_
    here = np.asarray(rows[reference_positions(Contents.of(rows))])
    same = len(rows) == cad.plan_.n and (
        sample is None or np.array_equal(here, sample, equal_nan=True)
    )
    if not same:
        raise InputError(
            path,
            f"it does not hold the {cad.plan_.n:,} rows that the model was fitted to; name the "
            "file that does by `reference`, or fit again.",
        )
    return rows


def moved_by(
    cad: ConformalDetector,
    judged: FileDiscoveries,
    keep: int,
    marks: Sequence[str] = (),
    *,
    features: Sequence[Feature] | None = None,
    id_columns: Sequence[str] = (),
    reference: str | None = None,
) -> ConformalDetector:
    """Let the rows of a file that was judged join the reference, and the oldest leave it.

    Rows or windows that mark files call real do not join: `marks`. `reference` is the file of the
    reference, where the model does not keep its rows.
    """
    told = [read_marks(path) for path in marks]
    if judged.units is not None:
        names, real = judged.units.names, set()
        for one in told:
            called = one.ids or [str(names[row - 1]) for row in one.rows or () if row <= len(names)]
            real.update(np.array(called, dtype=object)[one.marks == "real"])
        return moved(cad, judged.units, keep, sorted(real))
    looked = Looked.merged(
        [
            one.looked_at(cad, features=features, id_columns=id_columns, rows=judged.path)
            for one in told
        ]
    )
    X, keys, _ = rows_with_keys(cad, judged.path, features, id_columns)
    real_ones = np.zeros(len(keys), dtype=bool)
    if looked is not None:
        real_ones = np.isin(keys, looked.keys[looked.marks == "real"])
    rows = reference_rows(cad, reference, features) if reference_of(cad) is None else None
    left_out = int(real_ones.sum())
    return updated(cad, normal=X[~real_ones], left_out=left_out, keep=keep, reference=rows)


def read_marks(path: str | Path, layout: Layout | None = None) -> MarkFile:
    r"""Read a mark file.

    Parameters
    ----------
    path : str or Path
    layout : Layout, optional

    Returns
    -------
    MarkFile

    Raises
    ------
    InputError
        With a sentence that says what is wrong, where, and what to do.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "monday.csv")
    >>> _ = path.write_text("row,mark\n7,real\n12,false alarm\n31,\n")
    >>> found = read_marks(path)
    >>> found.rows, found.marks.tolist()
    ((7, 12, 31), ['real', 'false', ''])
    >>> folder.cleanup()
    """
    with open_source(path, layout or Layout()) as source:
        names = [*source.schema.names]
        if "mark" not in names:
            raise InputError(
                source.label,
                f"it has no column 'mark' (real, false, unsure, or nothing). It has "
                f"{listed(names)}.",
                column="mark",
            )
        table = source.schema.empty_table()
        for part in source.tables(names, default_batch_rows(len(names))):
            table = pa.concat_tables([table, part])
            if len(table) > MOST_MARKS:
                raise InputError(source.label, f"it has more than {MOST_MARKS:,} rows.")
        texts = {
            name: [(cell or "").strip() for cell in words(table.column(name)).to_pylist()]
            for name in (*MARK_COLUMNS, "anomaly")
            if name in names
        }
        try:
            marks = marks_of(texts["mark"])
        except ReconformError as error:
            raise InputError(source.label, str(error), column="mark") from error
        flagged = texts.get("flagged", texts.get("anomaly"))
        return MarkFile(
            source.label,
            marks,
            np.array([cell.lower() in YES for cell in flagged], dtype=bool)
            if flagged is not None
            else np.ones(len(table), dtype=bool),
            np.array(
                [cell.lower() in YES for cell in texts.get("sample", [""] * len(table))], bool
            ),
            _numbers(texts["row"], source.label) if "row" in texts else None,
            tuple(texts["id"]) if "id" in texts else None,
            _one(texts.get("batch", []), "batch", source.label),
            _one(texts.get("file", []), "file", source.label),
            table,
        )


def _numbers(cells: Sequence[str], label: str) -> tuple[int, ...]:
    """Numbers of rows, from 1."""
    seen: set[int] = set()
    for cell in cells:
        digits = cell.removesuffix(".0")
        if not (digits.isascii() and digits.isdigit() and 0 < len(digits) < 16 and int(digits)):
            raise InputError(
                label,
                f"'row' must be the number of a row, from 1; got {cell[:40]!r}.",
                column="row",
            )
        if int(digits) in seen:
            raise InputError(label, f"row {int(digits):,} is there a second time.", column="row")
        seen.add(int(digits))
    return tuple(int(cell.removesuffix(".0")) for cell in cells)


def _one(cells: Sequence[str], name: str, label: str) -> str:
    """What a column says of all rows."""
    several = sorted(set(cells) - {""})
    if len(several) > 1:
        raise InputError(
            label,
            f"its column {name!r} names {len(several):,} of them; save one mark file for each.",
            column=name,
        )
    return several[0] if several else ""


def review_table(
    reference: str | Path, layout: Layout, positions: IndexArray, added: Mapping[str, Any]
) -> Any:
    """Make a review file: rows of a reference to be marked, what is known of them, all columns."""
    rows = _rows_at(reference, layout, positions)
    named = ("row", "mark", *added, SEAL)
    kept = {*named, *MARK_COLUMNS, "anomaly"}
    return pa.table(
        [
            pa.array(positions + 1),
            pa.nulls(len(positions), pa.string()),
            *map(pa.array, added.values()),
            pa.array(_seals(rows), pa.string()),
            *rows.columns,
        ],
        names=[
            *named,
            *(free_names([name], kept)[0] for name in rows.column_names),
        ],
    )


def marked_rows(
    paths: Sequence[str], reference: Table, layout: Layout, id_columns: Sequence[str]
) -> BoolArray:
    """Which rows of a reference, read from a file, mark files call real."""
    leaves = np.zeros(len(reference), dtype=bool)
    for path in paths:
        marks = read_marks(path, replace(layout, format=None, no_header=False))
        if marks.batch:
            raise InputError(
                marks.path,
                "it marks rows that were judged, and not those of the reference; an update of a "
                "model takes such marks.",
            )
        wanted = Wanted(marks._wanted(), id_columns)
        wanted.add(reference.ids, 0)
        at = wanted.found(reference.path, len(reference))
        if SEAL in marks.table.column_names:
            seals = words(marks.table.column(SEAL)).to_pylist()
            for i, seal in enumerate(_seals(_rows_at(reference.path, layout, at))):
                if seal != seals[i]:
                    raise InputError(
                        marks.path,
                        f"row {at[i] + 1:,} of {reference.path} does not hold what it held when it "
                        "was reviewed. If the reference has changed, review it again.",
                        column=SEAL,
                    )
        leaves[at[marks.marks == "real"]] = True
    return leaves


def _seals(rows: Any) -> list[str]:
    """Say in a few letters what every row holds."""
    cells = zip(*(words(column).to_pylist() for column in rows.columns), strict=True)
    return [f"s{hashlib.blake2b(repr(row).encode(), digest_size=6).hexdigest()}" for row in cells]


def _rows_at(path: str | Path, layout: Layout, positions: IndexArray) -> Any:
    """Some rows of a file as they are there, in this order."""
    inside, start = np.sort(positions), 0
    with open_source(path, layout) as source:
        names = source.schema.names
        kept = [source.schema.empty_table()]
        for table in source.tables(names, default_batch_rows(len(names))):
            here = inside[(inside >= start) & (inside < start + table.num_rows)]
            kept.append(table.select(names).take(pa.array(here - start)))
            start += table.num_rows
    return pa.concat_tables(kept).take(pa.array(np.searchsorted(inside, positions)))
