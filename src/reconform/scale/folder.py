"""A folder of Parquet files, judged into another folder: whole, or not there at all.

Everything is written to a work folder beside the output: the ranks of every input file, then every
input file again with its results, each under a temporary name until it is whole. At the end comes
a manifest, and the work folder gets the name of the output. A run that was interrupted leaves the
work folder, and the next one takes from it whatever was made from the same input by the same
detector.
"""

from __future__ import annotations

import json
import operator
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import pyarrow.parquet as pq

from ..detector import ConformalDetector
from ..fdr import Decision, RankCounts
from ..files import InputError
from ..prepare import Feature
from ..whole import blamed_on, write_whole
from .graph import delayed, merged, with_models
from .parquet import Origin, Refusals, mark_file, rank_file
from .result import RESULTS, Question, ScaledDiscoveries

SUFFIXES = (".parquet", ".pq")
MANIFEST = "_SUCCESS"
RANKS = "_ranks"

# An error lists so many of the files that are of no use.
MOST_LISTED = 10


def discover_folder(
    cad: ConformalDetector,
    folder: str | Path,
    output: str | Path,
    fdr: float | Fraction = 0.1,
    *,
    procedure: str = "bh",
    storey_lambda: float | Fraction = 0.5,
    validity: str = "nominal",
    conditional: str | None = None,
    confidence: float = 0.9,
    features: Sequence[Feature] | None = None,
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
    fdr, procedure, storey_lambda, validity, conditional, confidence
        As in `ConformalDetector.discover`.
    features : sequence of Feature, optional
        The columns that `cad` was fitted on; by default numbers under the names of the fit.
    overwrite : bool
        Replace an output that exists, once the new one is whole.

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
    question = Question.check(cad, fdr, procedure, storey_lambda, validity, conditional, confidence)
    job = _Job.check(cad, Path(folder).absolute(), Path(output).absolute(), features, overwrite)
    with with_models():
        counts = job.rank()
        decision = question.decide(counts)
        job.mark(decision)
    job.finish(decision)
    files = [str(job.output / name) for name in job.names]
    frame = dd.read_parquet(files, columns=list(RESULTS))
    return question.answer(counts, decision, frame, job.output)


@dataclass(frozen=True)
class _Job:
    """One run over a folder.

    Attributes
    ----------
    cad : ConformalDetector
    features : tuple of Feature
    folder, output : Path
    names : tuple of str
        The input files, relative to the folder.
    """

    cad: ConformalDetector
    features: tuple[Feature, ...]
    folder: Path
    output: Path
    names: tuple[str, ...]

    @classmethod
    def check(
        cls,
        cad: ConformalDetector,
        folder: Path,
        output: Path,
        features: Sequence[Feature] | None,
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
        if output.exists() and not overwrite:
            raise InputError(output, "the output exists already; replace it with `overwrite=True`.")
        work = _work_of(output)
        with blamed_on(output, work), suppress(FileNotFoundError):
            os.stat(work)  # a name that is too long is refused here
        names = tuple(sorted(_parquet_files(folder)))
        if not names:
            raise InputError(folder, f"it holds no file that ends in {' or '.join(SUFFIXES)}.")
        if features is None:
            columns = getattr(cad, "feature_names_in_", None)
            if columns is None:
                raise ValueError(
                    "the detector was fitted without column names, and the columns of files are "
                    "matched by name; fit on a frame, or give features."
                )
            features = [Feature(str(name)) for name in columns]
        if len(features) != cad.n_features_in_:
            raise ValueError(
                f"features must be the {cad.n_features_in_} columns that the detector was fitted "
                f"on; got {len(features)}."
            )
        return cls(cad, tuple(features), folder, output, names)

    @property
    def work(self) -> Path:
        """Where everything is until it is whole."""
        return _work_of(self.output)

    @property
    def calibration(self) -> str:
        return self.cad.calibration_.fingerprint

    def rank(self) -> RankCounts:
        """Pass one: the ranks of every file on disk, and the counts of all."""
        model, rank = delayed(self.cad), delayed(rank_file)
        parts = [
            rank(model, self.features, self.folder / name, self.work / RANKS / name)
            for name in self.names
        ]
        counts: RankCounts
        counts, refused = self._run(merged(parts, _merge))
        self._stop_if(refused)
        if not counts.rows:
            raise InputError(self.folder, "its files have no rows.")
        return counts

    def mark(self, decision: Decision) -> None:
        """Pass two: every file again, with its results."""
        rule, mark = delayed(decision), delayed(mark_file)
        parts = [
            mark(
                rule,
                self.calibration,
                self.features,
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
        shutil.rmtree(self.work / RANKS)
        for path in self.work.rglob("*"):  # leftovers of runs that were killed, or of other inputs
            if not path.is_dir() and str(path.relative_to(self.work)) not in rows:
                path.unlink()
        manifest = {
            "reconform": version("reconform"),
            "input": str(self.folder),
            "calibration": self.calibration,
            "procedure": decision.procedure,
            "fdr": str(decision.fdr),
            "rank_threshold": decision.rank_threshold,
            "rows": decision.tested,
            "discoveries": decision.count,
            "files": rows,
        }
        write_whole(self.work / MANIFEST, json.dumps(manifest, indent=1).encode(), overwrite=True)
        old = self.output.with_name(f".reconform-{secrets.token_hex(8)}.old")
        with blamed_on(self.output, self.work):
            if self.output.exists():
                os.replace(self.output, old)
            os.replace(self.work, self.output)
        if old.exists():
            shutil.rmtree(old)

    def _rows(self, name: str, decision: Decision) -> int:
        origin = Origin.of(self.folder / name, self.calibration, self.features)
        if not origin.decided(decision).made(self.work / name):
            raise OSError(
                f"{self.work / name}: it is not what this run wrote. Has the input changed, or "
                "does another run write to the same output?"
            )
        return int(pq.read_metadata(self.work / name).num_rows)


def _work_of(output: Path) -> Path:
    return output.with_name(output.name + ".partial")


def _merge(
    one: tuple[RankCounts, Refusals], other: tuple[RankCounts, Refusals]
) -> tuple[RankCounts, Refusals]:
    return one[0].merge(other[0]), one[1] + other[1]


def _parquet_files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        hidden = any(part.startswith(("_", ".")) for part in name.parts)
        if path.suffix.lower() in SUFFIXES and path.is_file() and not hidden:
            yield str(name)
