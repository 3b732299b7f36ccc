"""The store of a study: finished draws, one file each, so that a stopped run continues.

A store is a folder::

    parts/           one small JSON file per (data set, detector, method, draw)
    results.parquet  dataset, detector, method, draw, cfdr, cpower: the same bytes in every run
    costs.parquet    seconds, bytes and versions of the same rows: different in every run

Every file is written next to its place and then moved there in one step, so a reader, or a run
that follows a killed one, sees it whole or not at all. The tables are sorted and derived from the
parts alone; an interrupted and resumed study ends with the bytes that an undisturbed one writes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable
from dataclasses import Field, asdict, dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet

from ..atomic import sweep, write_atomic
from ..errors import ReconformError

Key = tuple[str, str, str, int]
Identity = dict[str, Any]

# A temporary file that old belongs to a run that was killed.


@dataclass(frozen=True)
class Result:
    """The result of one draw of one cell: all that the tables are made of.

    Attributes
    ----------
    dataset, detector, method : str
        Labels.
    draw : int
        j, from 0.
    cfdr, cpower : float
        Mean FDP and mean power over the test sets of the draw.
    """

    dataset: str
    detector: str
    method: str
    draw: int
    cfdr: float
    cpower: float

    @property
    def key(self) -> Key:
        """What tells rows apart."""
        return self.dataset, self.detector, self.method, self.draw


@dataclass(frozen=True)
class Cost:
    """Time and memory that a row took. Not part of the results, as it differs from run to run.

    Attributes
    ----------
    fitted : str
        The method that was fitted. If it is not the row's own, its models were shared, and the
        fit time and the bytes are those of the shared fit.
    fit_seconds, score_seconds : float
        Wall-clock time of fitting with calibration, and of ranking the whole pool.
    model_bytes : int or None
        Size of the fitted ensemble when pickled; None if it cannot be.
    versions : str
        Of the packages that made the row.
    """

    fitted: str
    fit_seconds: float
    score_seconds: float
    model_bytes: int | None
    versions: str


@dataclass(frozen=True)
class StoredResult:
    """A finished row, and what it is the result of.

    Attributes
    ----------
    result : Result
    cost : Cost
    identity : dict
        The protocol and descriptions of data, detector and method, in words and numbers.
    """

    result: Result
    cost: Cost
    identity: Identity


class Store:
    """A folder of finished rows.

    Parameters
    ----------
    folder : path
        Created when the first row is put into it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(folder)
    ...     result = Result("wbc", "knn", "cv+", 0, 0.1, 0.5)
    ...     store.put(StoredResult(result, Cost("cv+", 0.2, 0.1, 512, ""), {"seed": 0}))
    ...     list(store.parts_by_key())
    [('wbc', 'knn', 'cv+', 0)]
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def put(self, part: StoredResult) -> None:
        """Write one finished row, whole or not at all."""
        content = json.dumps(asdict(part), indent=1, sort_keys=True)
        self._write(f"parts/{_name(part.result.key)}", content.encode())

    def parts_by_key(self) -> dict[Key, StoredResult]:
        """Read every finished row."""
        found = map(self._read, (self.folder / "parts").glob("*.json"))
        return {part.result.key: part for part in found}

    def write_tables(self, parts: Iterable[StoredResult]) -> None:
        """Derive both tables from the parts."""
        ordered = sorted(parts, key=lambda part: part.result.key)
        for name, table in (
            ("results", results_table(part.result for part in ordered)),
            ("costs", costs_table(ordered)),
        ):
            buffer = io.BytesIO()
            pyarrow.parquet.write_table(table, buffer)
            self._write(f"{name}.parquet", buffer.getvalue())

    def remove_leftovers(self) -> None:
        """Delete temporary files of runs that were killed."""
        for folder in (self.folder, self.folder / "parts"):
            sweep(folder)

    def _write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content, overwrite=True)

    def _read(self, path: Path) -> StoredResult:
        try:
            content = json.loads(path.read_bytes())
            return StoredResult(
                Result(**content["result"]), Cost(**content["cost"]), content["identity"]
            )
        except (ValueError, TypeError, KeyError) as error:
            raise ReconformError(
                f"{path} is not a finished row of a study ({error!r}). Delete it and run again: "
                "only this row is computed anew."
            ) from error


def check_identity(part: StoredResult, expected: Identity) -> None:
    """Refuse a row that has the right labels and comes from another study."""
    for name, now in expected.items():
        before = part.identity.get(name, "not written down")
        if before != now:
            dataset, detector, method, _ = part.result.key
            raise ReconformError(
                f"the store already has rows of data set {dataset!r}, detector {detector!r}, "
                f"method {method!r} from another study: {name} was {before} and is {now}. Use "
                "another folder, or other labels."
            )


def results_table(results: Iterable[Result]) -> Any:
    """Arrange results in a pyarrow table."""
    return _table([fields(Result)], [(result,) for result in results])


def costs_table(parts: Iterable[StoredResult]) -> Any:
    """Arrange the costs of the same rows in a pyarrow table."""
    labels = fields(Result)[:4]
    return _table([labels, fields(Cost)], [(part.result, part.cost) for part in parts])


def _table(columns: list[tuple[Field[Any], ...]], rows: list[tuple[Any, ...]]) -> Any:
    """Columns from the fields of the first, second, ... thing in every row."""
    kinds = {"str": pa.string(), "int": pa.int64(), "float": pa.float64()}
    arrays = {
        field.name: pa.array(
            [getattr(row[place], field.name) for row in rows],
            type=kinds[str(field.type).removesuffix(" | None")],
        )
        for place, described in enumerate(columns)
        for field in described
    }
    return pa.table(arrays)


def _name(key: Key) -> str:
    *labels, draw = key
    return f"{','.join(map(_safe, labels))},{draw:04d}.json"


def _safe(label: str) -> str:
    """A label as part of a file name: readable, and different for different labels."""
    quoted = quote(label, safe="+ ()=")
    if len(quoted) <= 60:
        return quoted
    return f"{quoted[:48]}~{hashlib.sha256(label.encode()).hexdigest()[:11]}"
