"""One Parquet file: its ranks on disk, then its rows again with their results.

Either file says in its metadata what it was made from, so that a later run knows whether it can
take it as it is. That an input cannot be used is returned and not raised, so that a run over many
files can name them all; that an output cannot be written is raised, and ends the run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from joblib import cpu_count
from sklearn.utils import get_tags

from ..arrays import BoolArray, FloatArray, ObjectArray
from ..detector import ConformalDetector
from ..detectors.auto.tally import Chooser, Gauge, LowScores
from ..errors import InputError, listed
from ..files import RESULT_NAMES, Batches, Layout, add_results, open_batches, open_output
from ..files.reading import ReadOptions
from ..parallel import share_of
from ..statistics.fdr import Decision, RankCounts
from ..statistics.ranks import Ranks
from ..whole import blamed_on
from .parts import Counted, count_choice

Refusals = tuple[str, ...]
# Some rows, and the labels of their groups, where there are any.
GroupedRows = tuple[FloatArray, ObjectArray | None]

LAYOUT = Layout(format="parquet")
RANKS = pa.schema([("rank", pa.int32()), ("score", pa.float64())])
METADATA = b"reconform"
CHANGED = "it has changed since its rows were ranked; run again."


@dataclass(frozen=True)
class Origin:
    """What a file of ranks or of results was made from.

    Attributes
    ----------
    calibration : str
        Fingerprint of the calibration, and of whatever else ranks depend on.
    features : list of str
    groups : str or None
        The column of groups.
    size, modified : int
        Of the input file: bytes, and the time in nanoseconds.
    decision : str
        For results: a digest of the decision.
    """

    calibration: str
    features: list[str]
    groups: str | None
    size: int
    modified: int
    decision: str = ""

    @classmethod
    def of(cls, source: Path, calibration: str, read: ReadOptions) -> Origin:
        """Look at the input file as it is now."""
        try:
            now = source.stat()
        except OSError as error:
            raise InputError(source, f"it cannot be read ({error.strerror}).") from error
        names = [feature.name for feature in read.features or ()]
        return cls(calibration, names, read.group_column, now.st_size, now.st_mtime_ns)

    def decided(self, decision: Decision) -> Origin:
        """Add what marks the rows: the threshold, and the p- and q-value of every rank."""
        rule = hashlib.sha256(str(decision.rank_threshold).encode())
        rule.update(decision.grid.table.tobytes())
        rule.update(decision.q_table.tobytes())
        return replace(self, decision=rule.hexdigest())

    def write_into(self, schema: Any) -> Any:
        """Return the schema with this as metadata."""
        return schema.with_metadata({METADATA: self._text()})

    def made(self, path: Path) -> bool:
        """Whether a file is there that was made from just this."""
        try:
            return (pq.read_schema(path).metadata or {}).get(METADATA) == self._text()
        except (OSError, pa.ArrowException):  # not there, or not ours
            return False

    def _text(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def rank_file(
    cad: ConformalDetector, read: ReadOptions, source: Path, target: Path
) -> tuple[RankCounts, Refusals]:
    """Write the ranks and scores of a file, a row group per batch, and count the ranks.

    Parameters
    ----------
    cad : ConformalDetector
    read : ReadOptions
        The columns to look at.
    source, target : Path

    Returns
    -------
    RankCounts, tuple of str
        The counts; and a sentence if the file cannot be used.
    """
    counts = cad.no_counts()
    return counts, _refusals(partial(_rank, counts, cad, read), source, target)


def _rank(
    counts: RankCounts,
    cad: ConformalDetector,
    read: ReadOptions,
    source: Path,
    target: Path,
) -> None:
    origin = Origin.of(source, counts.fingerprint, read)
    if origin.made(target):
        for batch in pq.ParquetFile(target).iter_batches(columns=["rank"]):
            counts.add(batch["rank"].to_numpy())
        return
    with _open_input(cad, read, source) as batches:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_output(target, origin.write_into(RANKS), layout=LAYOUT, overwrite=True) as write:
            for X, groups in _rows(batches):
                with share_of(cpu_count()):  # files are the parallelism; within one there is none
                    found = cad.rank(X, groups=groups, checked=True)
                counts.add(found.at_most)
                write(_as_table(found))


@contextmanager
def _open_input(cad: ConformalDetector, read: ReadOptions, source: Path) -> Iterator[Batches]:
    missing = bool(get_tags(cad).input_tags.allow_nan)
    with _open(source, read, allow_missing=missing) as batches:
        clash = [name for name in RESULT_NAMES if name in batches.names]
        if clash:
            raise InputError(
                source, f"it has columns {listed(clash)}, the names of results; rename them."
            )
        yield batches


def _open(
    source: Path, read: ReadOptions, *, allow_missing: bool = False
) -> AbstractContextManager[Batches]:
    return open_batches(
        source,
        read.features or (),
        allow_missing=allow_missing,
        layout=LAYOUT,
        group_column=read.group_column,
    )


def _rows(batches: Batches) -> Iterator[GroupedRows]:
    """The rows of every batch, and the labels of their groups, where there are any."""
    rows = 0
    for table, X in batches.read() if batches.source.rows else ():
        yield X, batches.groups(table, rows)
        rows += len(X)


def _as_table(found: Ranks) -> Any:
    return pa.table([found.at_most.astype(np.int32), found.scores], schema=RANKS)


# --- where a detector is chosen for every row ----------------------------------------------------


def score_file(
    cad: ConformalDetector,
    gauge: Gauge,
    read: ReadOptions,
    source: Path,
    target: Path,
) -> tuple[LowScores, Refusals]:
    """Write the scores of a file by every detector, a row group per batch, and count them.

    Parameters
    ----------
    cad : ConformalDetector
        It chooses among detectors on a split.
    gauge : Gauge
        Its own.
    read : ReadOptions
    source, target : Path

    Returns
    -------
    LowScores, tuple of str
        Counts, without scores; and a sentence if the file cannot be used.
    """
    refused = _refusals(partial(_score, cad, gauge, read), source, target)
    nothing = gauge.counted(np.empty((len(gauge.names), 0)))
    if refused:
        return nothing, refused
    none = np.zeros_like(nothing.gaps)
    return low_in_file(gauge, none, target), ()


def _score(
    cad: ConformalDetector, gauge: Gauge, read: ReadOptions, source: Path, target: Path
) -> None:
    origin = Origin.of(source, gauge.fingerprint, read)
    if origin.made(target):
        return
    schema = pa.schema([(str(k), pa.float64()) for k in range(len(gauge.names))])
    with _open_input(cad, read, source) as batches:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_output(target, origin.write_into(schema), layout=LAYOUT, overwrite=True) as write:
            for X, groups in _rows(batches):
                cad.codes_of(groups, len(X))  # of a single group: nothing is ranked by it
                with share_of(cpu_count()):
                    scores = cad.candidate_scores(X, checked=True)
                write(pa.table(list(scores), schema=schema))


def _scores_in(path: Path) -> Iterator[FloatArray]:
    """Scores by every detector, a row group at a time."""
    file = pq.ParquetFile(path)
    for number in range(file.num_row_groups):
        yield np.array([column.to_numpy() for column in file.read_row_group(number).columns])


def low_in_file(gauge: Gauge, gaps: BoolArray, scores: Path) -> LowScores:
    """`Gauge.low` of the rows of a file.

    Parameters
    ----------
    gauge : Gauge
    gaps : bool array
    scores : Path
        What `score_file` wrote.
    """
    low = LowScores(len(gauge.names), gauge.n, gaps)
    for part in _scores_in(scores):
        low.add(gauge.references, part)
    return low


def choose_file(
    chooser: Chooser, read: ReadOptions, source: Path, scores: Path, target: Path
) -> tuple[Counted, Refusals]:
    """Write the ranks of a file from its scores, a row group per batch, and count them.

    Parameters
    ----------
    chooser : Chooser
    read : ReadOptions
    source, scores, target : Path
        The input, what `score_file` wrote for it, and the ranks.

    Returns
    -------
    Counted, tuple of str
    """
    counted = [count_choice(chooser, np.empty((len(chooser.gauge.names), 0)))[1]]

    def choose(source: Path, target: Path) -> None:
        if not Origin.of(source, chooser.gauge.fingerprint, read).made(scores):
            raise InputError(source, CHANGED)
        schema = Origin.of(source, chooser.fingerprint, read).write_into(RANKS)
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_output(target, schema, layout=LAYOUT, overwrite=True) as write:
            for part in _scores_in(scores):
                found, count = count_choice(chooser, part)
                counted[0] = counted[0].merge(count)
                write(_as_table(found))

    refused = _refusals(choose, source, target)
    return counted[0], refused


# --- where all rows are ranked at once -----------------------------------------------------------


def read_file(
    cad: ConformalDetector, read: ReadOptions, source: Path
) -> tuple[list[GroupedRows], Refusals]:
    """Read the rows of a small file and their groups, in its batches.

    Parameters
    ----------
    cad : ConformalDetector
    read : ReadOptions
    source : Path

    Returns
    -------
    list of pairs of arrays, tuple of str
    """
    rows: list[GroupedRows] = []

    def keep(source: Path, target: Path) -> None:
        with _open_input(cad, read, source) as batches:
            for X, groups in _rows(batches):
                cad.codes_of(groups, len(X))  # refuses unknown ones, and names the file
                rows.append((X, groups))

    refused = _refusals(keep, source, source)
    return rows, refused


def write_ranks(origin: Origin, target: Path, parts: Iterable[Ranks]) -> None:
    """Write the ranks of a file, a row group per batch.

    Parameters
    ----------
    origin : Origin
    target : Path
    parts : iterable of Ranks
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_output(target, origin.write_into(RANKS), layout=LAYOUT, overwrite=True) as write:
        for found in parts:
            write(_as_table(found))


# --- the results ---------------------------------------------------------------------------------


def mark_file(
    decision: Decision,
    calibration: str,
    read: ReadOptions,
    source: Path,
    ranks: Path,
    target: Path,
) -> Refusals:
    """Write a file again, with the results of its rows.

    Parameters
    ----------
    decision : Decision
    calibration : str
        Fingerprint of the calibration.
    read : ReadOptions
    source, ranks, target : Path
        The input, what `rank_file` wrote for it, and the output.

    Returns
    -------
    tuple of str
        A sentence if the file cannot be used.
    """
    return _refusals(partial(_mark, decision, calibration, read, ranks), source, target)


def _mark(
    decision: Decision,
    calibration: str,
    read: ReadOptions,
    ranks: Path,
    source: Path,
    target: Path,
) -> None:
    origin = Origin.of(source, calibration, read)
    if origin.decided(decision).made(target):
        return
    if not origin.made(ranks):
        raise InputError(source, CHANGED)
    ranked = pq.ParquetFile(ranks)
    with _open(source, read) as batches:
        schema = _judged(batches.source.schema.empty_table(), RANKS.empty_table(), decision).schema
        schema = origin.decided(decision).write_into(schema)
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_output(target, schema, layout=LAYOUT, overwrite=True) as write:
            numbers, more = RANKS.empty_table(), ranked.iter_batches(columns=RANKS.names)
            for table in batches.tables():
                while len(numbers) < len(table):
                    numbers = pa.concat_tables([numbers, pa.Table.from_batches([next(more)])])
                write(_judged(table, numbers.slice(0, len(table)), decision))
                numbers = numbers.slice(len(table))


def _judged(table: Any, numbers: Any, decision: Decision) -> Any:
    ranks = numbers["rank"].to_numpy()
    return add_results(
        table,
        numbers["score"].to_numpy(),
        decision.grid.values(ranks),
        decision.q_values(ranks),
        decision.mask(ranks),
    )


def _refusals(work: Callable[[Path, Path], None], source: Path, target: Path) -> Refusals:
    try:
        with blamed_on(target, target.parent):
            work(source, target)
    except InputError as error:
        return (str(error),)
    except ValueError as error:
        return (f"{source}: {error}",)
    return ()
