"""A folder of Parquet files, judged into another folder: whole, or not there at all.

Everything is written to a work folder beside the output: the ranks of every input file (before them
its scores, where a detector is chosen for every row), then every input file again with its results,
each under a temporary name until it is whole. At the end comes a manifest, and the work folder gets
the name of the output. A run that was interrupted leaves the work folder, and the next one takes
from it whatever was made from the same input by the same detector.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.utils.validation import check_is_fitted

from ..arrays import FloatArray, ObjectArray
from ..detector import ConformalDetector
from ..detectors.auto.tally import LowScores
from ..detectors.prepare import Feature
from ..errors import InputError
from ..files import FORMATS
from ..files.judge import check_grouped, features_of
from ..files.reading import ReadOptions
from ..rule import Rule
from ..statistics.fdr import Decision, RankCounts
from ..whole import blamed_on, write_whole
from .parquet import (
    LAYOUT,
    GroupedRows,
    Origin,
    Refusals,
    choose_file,
    low_in_file,
    mark_file,
    rank_file,
    read_file,
    score_file,
    write_ranks,
)
from .parts import (
    RESULTS,
    Counted,
    ScaledDiscoveries,
    chooser_of,
    delayed,
    merged,
    suited,
    with_models,
)

SUFFIXES = FORMATS["parquet"].suffixes
MANIFEST = "_SUCCESS"
RANKS = "_ranks"
SCORES = "_scores"
WHERE = "a folder of files"

# An error lists so many of the files that are of no use.
MOST_LISTED = 10


def discover_folder(
    cad: ConformalDetector,
    folder: str | Path,
    output: str | Path,
    rule: Rule = Rule(),  # noqa: B008 - a frozen value
    *,
    features: Sequence[Feature] | None = None,
    group_column: str | None = None,
    overwrite: bool = False,
) -> ScaledDiscoveries:
    """Judge all Parquet files of a folder together, and write each again with its results.

    Files are worked on side by side by the Dask client or scheduler that the caller has chosen.
    Each is read in batches, so that its size does not matter. Every worker must see both folders.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted.
    folder : str or Path
        Parquet files, also in subfolders; names that begin with ``_`` or ``.`` are passed over.
    output : str or Path
        A folder that is not there yet. It gets one file per input file, of the same name, with the
        columns of the input and ``score``, ``p_value``, ``q_value`` and ``anomaly``, and a
        manifest, ``_SUCCESS``. It appears when all of it is there; until then the work is in a
        folder of that name and ``.partial``, from which the same call goes on.
    rule : Rule
        The level, the procedure and the p-values; one that counts of ranks can decide.
    features : sequence of Feature, optional
        The columns that `cad` was fitted on; by default numbers under the names of the fit.
    group_column : str, optional
        The column with the group of every row, where `cad` was fitted with groups.
    overwrite : bool
        Replace an output that exists, once the new one is whole, if it has only Parquet files.

    Returns
    -------
    ScaledDiscoveries

    Raises
    ------
    InputError
        If files cannot be used; it names them.
    OSError
        If files cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> normal = pd.DataFrame(rng.normal(size=(400, 2)), columns=["flow", "heat"])
    >>> cad = ConformalDetector("knn", "split", random_state=0).fit(normal)
    >>> place = tempfile.TemporaryDirectory()
    >>> os.mkdir(f"{place.name}/new")
    >>> for day, shift in [("monday", 0), ("tuesday", 9)]:
    ...     rows = pd.DataFrame(rng.normal(size=(50, 2)) + shift, columns=["flow", "heat"])
    ...     rows.to_parquet(f"{place.name}/new/{day}.parquet")
    >>> found = discover_folder(cad, f"{place.name}/new", f"{place.name}/judged")
    >>> found.count, sorted(os.listdir(found.output))
    (50, ['_SUCCESS', 'monday.parquet', 'tuesday.parquet'])
    >>> place.cleanup()
    """
    check_is_fitted(cad, "ensemble_")
    check_grouped(cad, group_column)
    if cad.uses_batch and not cad.chooses:
        rule.counting_grid(cad, WHERE)  # refuses it, before any file is looked at
    read = ReadOptions(features_of(cad, features), layout=LAYOUT, group_column=group_column)
    job = _Job.check(cad, Path(folder).absolute(), Path(output).absolute(), read, overwrite)
    cad = suited(cad, rule, WHERE, job.count_rows)
    with with_models():
        job, counted = replace(job, cad=cad).rank()
        found = cad.decide_counts(counted.ranks, rule, counted.observed)
        job.mark(found.decision)
    job.finish(found.decision)
    files = [str(job.output / name) for name in job.names]
    frame = dd.read_parquet(files, columns=list(RESULTS))
    return ScaledDiscoveries(**vars(found), frame=frame, output=job.output)


@dataclass(frozen=True)
class _Job:
    """One run over a folder.

    Attributes
    ----------
    cad : ConformalDetector
    read : ReadOptions
        Features, and the column of groups.
    folder, output : Path
    names : tuple of str
        The input files, relative to the folder.
    made_by : str
        Fingerprint of what the ranks depend on, once they are there.
    """

    cad: ConformalDetector
    read: ReadOptions
    folder: Path
    output: Path
    names: tuple[str, ...]
    made_by: str = ""

    @classmethod
    def check(
        cls,
        cad: ConformalDetector,
        folder: Path,
        output: Path,
        read: ReadOptions,
        overwrite: bool,
    ) -> _Job:
        if not folder.is_dir():
            raise InputError(folder, "there is no such folder.")
        if output.resolve().is_relative_to(folder.resolve()):
            raise InputError(output, f"the output must not lie in the input folder {folder}.")
        if not output.parent.is_dir():
            raise InputError(output, f"there is no folder {str(output.parent)!r} to write to.")
        if folder.resolve().is_relative_to(output.resolve()):
            raise InputError(
                output, f"the input folder {folder} lies in it, and would be replaced with it."
            )
        if output.is_symlink():
            output = output.resolve()  # a link stays, and what it points to is replaced
        if output.exists() and not overwrite:
            raise InputError(output, "the output exists already; replace it with `overwrite=True`.")
        work = _work_of(output)
        with blamed_on(output, work), suppress(FileNotFoundError):
            os.stat(work)  # a name that is too long is refused here
        if work.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                output,
                f"the work would be done in the input folder {folder}; choose another name.",
            )
        _check_ours(output, finished=True)
        _check_ours(work, finished=False)
        names = tuple(sorted(_parquet_files(folder)))
        if not names:
            raise InputError(folder, f"it holds no file that ends in {' or '.join(SUFFIXES)}.")
        return cls(cad, read, folder, output, names)

    @property
    def work(self) -> Path:
        """Where everything is until it is whole."""
        return _work_of(self.output)

    def count_rows(self) -> int:
        """Rows of all files, by what the files say; those that cannot be read are named later."""
        rows = 0
        for name in self.names:
            with suppress(OSError, pa.ArrowException):
                rows += pq.read_metadata(self.folder / name).num_rows
        return rows

    def rank(self) -> tuple[_Job, Counted]:
        """Pass one: the ranks of every file on disk, and the counts of all."""
        if not self.cad.chooses:
            made_by, counted = self._one_by_one()
        elif self.cad.tally() is not None:
            made_by, counted = self._by_choice()
        else:
            made_by, counted = self._together()
        return replace(self, made_by=made_by), counted

    def _one_by_one(self) -> tuple[str, Counted]:
        """Every row is ranked by itself."""
        model, rank = delayed(self.cad), delayed(rank_file)
        parts = [
            rank(model, self.read, self.folder / name, self.work / RANKS / name)
            for name in self.names
        ]
        counts: RankCounts
        counts, refused = self._run(merged(parts, _merge))
        self._stop_if(refused)
        self._stop_if_empty(counts.rows)
        return counts.fingerprint, Counted(counts)

    def _by_choice(self) -> tuple[str, Counted]:
        """The scores of all rows by every detector choose one for each row."""
        tally = self.cad.tally()
        assert tally is not None
        gauge = tally.gauge
        model, mark, score = delayed(self.cad), delayed(gauge), delayed(score_file)
        scored = [self.work / SCORES / name for name in self.names]
        sources = [self.folder / name for name in self.names]
        parts = [
            score(model, mark, self.read, source, target)
            for source, target in zip(sources, scored, strict=True)
        ]
        low: LowScores
        low, refused = self._run(merged(parts, _merge))
        self._stop_if(refused)
        self._stop_if_empty(low.m)
        chooser = chooser_of(gauge, low, scored, low_in_file, self._run)
        model, choose = delayed(chooser), delayed(choose_file)
        parts = [
            choose(model, self.read, source, scores, self.work / RANKS / name)
            for source, scores, name in zip(sources, scored, self.names, strict=True)
        ]
        counted: Counted
        counted, refused = self._run(merged(parts, _merge))
        self._stop_if(refused)
        return chooser.fingerprint, counted

    def _together(self) -> tuple[str, Counted]:
        """Few rows, which are ranked as one batch here."""
        read: list[tuple[str, Origin, list[GroupedRows]]] = []
        refused: list[str] = []
        for name in self.names:
            origin = Origin.of(self.folder / name, "", self.read)
            rows, why = read_file(self.cad, self.read, self.folder / name)
            read.append((name, origin, rows))
            refused.extend(why)
        self._stop_if(tuple(refused))
        every = [part for _, _, rows in read for part in rows]
        self._stop_if_empty(sum(len(X) for X, _ in every))
        whole = np.concatenate([X for X, _ in every])
        labels = [some for _, some in every if some is not None]
        groups = np.concatenate(labels) if labels else None
        found = self.cad.rank(whole, groups=groups, checked=True, together=True)
        made_by = self._made_by(whole, groups)
        start = 0
        for name, origin, rows in read:
            ends = start + np.cumsum([0, *(len(X) for X, _ in rows)])
            spans = [np.arange(*span) for span in pairwise(ends.tolist())]
            origin = replace(origin, calibration=made_by)
            with blamed_on(self.work / RANKS / name, self.work):
                write_ranks(origin, self.work / RANKS / name, map(found.taken, spans))
            start = int(ends[-1])
        counted = Counted.of(found, self.cad.no_counts())
        return made_by, replace(counted, together=found)

    def _made_by(self, whole: FloatArray, groups: ObjectArray | None) -> str:
        """What ranks of rows depend on that were ranked together."""
        digest = hashlib.sha256(self.cad.calibration_.fingerprint.encode() + whole.tobytes())
        if groups is not None:
            digest.update(json.dumps(groups.tolist()).encode())
        return digest.hexdigest()

    def _stop_if_empty(self, rows: int) -> None:
        if not rows:
            raise InputError(self.folder, "its files have no rows.")

    def mark(self, decision: Decision) -> None:
        """Pass two: every file again, with its results."""
        rule, mark = delayed(decision), delayed(mark_file)
        parts = [
            mark(
                rule,
                self.made_by,
                self.read,
                self.folder / name,
                self.work / RANKS / name,
                self.work / name,
            )
            for name in self.names
        ]
        self._stop_if(self._run(merged(parts, operator.add)))

    def _run(self, task: Any) -> Any:
        try:
            return task.compute()
        except OSError as error:
            reason = f"{error.strerror or error}; {self._no_output}"
            raise OSError(error.errno, reason, error.filename) from error

    def _stop_if(self, refused: Refusals) -> None:
        if refused:
            more = len(refused) - MOST_LISTED
            raise InputError(
                self.folder,
                f"{len(refused):,} of {len(self.names):,} files cannot be used; {self._no_output}. "
                + " ".join(refused[:MOST_LISTED])
                + (f" And {more:,} more." if more > 0 else ""),
            )

    @property
    def _no_output(self) -> str:
        return f"no output was made, and the same call goes on from what is done in {self.work}"

    def finish(self, decision: Decision) -> None:
        """Check that everything is there, write the manifest, and give the folder its name."""
        rows = {name: self._rows(name, decision) for name in self.names}
        if sum(rows.values()) != decision.tested:
            raise OSError(f"{self.work}: {sum(rows.values()):,} of {decision.tested:,} rows.")
        manifest = {
            "reconform": version("reconform"),
            "input": str(self.folder),
            "calibration": self.cad.calibration_.fingerprint,
            "procedure": decision.procedure,
            "fdr": str(decision.fdr),
            "rank_threshold": decision.rank_threshold,
            "rows": decision.tested,
            "discoveries": decision.count,
            "files": rows,
        }
        # First, so that at any time the folder can be told for one of ours.
        write_whole(self.work / MANIFEST, json.dumps(manifest, indent=1).encode(), overwrite=True)
        shutil.rmtree(self.work / RANKS)
        shutil.rmtree(self.work / SCORES, ignore_errors=True)  # where there are any
        for path in self.work.rglob("*"):  # leftovers of runs that were killed, or of other inputs
            if not path.is_dir() and str(path.relative_to(self.work)) not in {*rows, MANIFEST}:
                path.unlink()
        old = self.output.with_name(f".reconform-{secrets.token_hex(8)}.old")
        with blamed_on(self.output, self.work):
            if self.output.exists():
                os.replace(self.output, old)
            os.replace(self.work, self.output)
        if old.exists():
            shutil.rmtree(old)

    def _rows(self, name: str, decision: Decision) -> int:
        origin = Origin.of(self.folder / name, self.made_by, self.read)
        if not origin.decided(decision).made(self.work / name):
            raise OSError(
                f"{self.work / name}: it is not what this run wrote. Has the input changed, or "
                "does another run write to the same output?"
            )
        return int(pq.read_metadata(self.work / name).num_rows)


def _check_ours(place: Path, *, finished: bool) -> None:
    """Refuse to replace, or to tidy up, what is there and looks like nothing that we write."""
    if not place.exists():
        return
    ours = any((place / name).exists() for name in (MANIFEST, RANKS))
    if not ours and place.is_dir():
        files = [path for path in place.rglob("*") if not path.is_dir()]
        ours = not files or (finished and all(path.suffix.lower() in SUFFIXES for path in files))
    if not ours:
        raise InputError(
            place,
            "it would be replaced, and is no folder of Parquet files that an earlier call may have "
            "written; remove it, or choose another output.",
        )


def _work_of(output: Path) -> Path:
    return output.with_name(output.name + ".partial")


def _merge(one: tuple[Any, Refusals], other: tuple[Any, Refusals]) -> tuple[Any, Refusals]:
    return one[0].merge(other[0]), one[1] + other[1]


def _parquet_files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        hidden = any(part.startswith(("_", ".")) for part in name.parts)
        if path.suffix.lower() in SUFFIXES and path.is_file() and not hidden:
            yield str(name)
