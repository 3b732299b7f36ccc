"""Judge a file of any size: one pass for the ranks, one for the results.

The first pass ranks every batch and counts the ranks; the counts decide for the whole file, exactly
as if it had been judged at once. Ranks and scores of the rows wait on disk. The second pass writes
every row with its results; it reads the file again, unless that is small enough to stay in memory.
Of a large file, one batch and the counts do; to write the flagged rows in order, also their
positions, scores and q-values.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from .aggregation import FloatArray
from .detector import ConformalDetector
from .discoveries import Discoveries, Provenance
from .errors import unknown_choice
from .fdr import PROCEDURES, Decision, RankCounts, exact_fraction
from .files import (
    RESULT_NAMES,
    Batches,
    InputError,
    Layout,
    add_results,
    check_output,
    open_batches,
    open_output,
)
from .files.cells import Fingerprint, to_python
from .files.reading import missing_counts
from .files.source import TEXT_FORMATS, is_standard
from .files.spill import RowStore, Spill
from .prepare import UNSEEN, Feature
from .pvalues import RankArray
from .smallest import smallest_batch_warning
from .whole import check_apart, stops_by_exception

Progress = Callable[[str, int, int | None], None]
Positions = npt.NDArray[np.intp]

# A judgement keeps no more flagged rows, no larger a sample of the others, and the numbers of
# every row only for files of at most so many rows.
MOST_FLAGGED = 10_000
MOST_SAMPLED = 10_000
MOST_DISCOVERIES = 1_000_000

FOUND = np.dtype([("position", "<i8"), ("score", "<f8"), ("q", "<f8")])


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

    positions: Positions
    table: Any
    X: FloatArray

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True, eq=False)
class Judgement:
    """The decision on a file, and what a report of it needs.

    Attributes
    ----------
    path : str
    output : str or None
    decision : Decision
    rank_counts : RankCounts
        How many rows got each rank: the histogram of p-values, and every other level's decision.
    flagged : Rows
        The strangest discoveries, strangest first; at most 10,000.
    sample : Rows
        Rows that are not flagged, drawn at random, in the order of the file; at most 10,000.
    rows : Rows or None
        All rows, where these were asked for and are few enough. Of the columns of the file the
        table has only those of labels.
    missing, unseen : dict
        By column, where there are any: values that are missing, and labels that the reference
        does not have.
    fingerprint : str
        Of the new rows, as `Table.fingerprint` of the reference.
    warning : str or None
        A sentence if the reference is too small to flag few anomalies among so many rows.
    guarantee : str
    provenance : Provenance
    """

    path: str
    output: str | None
    decision: Decision
    rank_counts: RankCounts
    flagged: Rows = field(repr=False)
    sample: Rows = field(repr=False)
    rows: Rows | None = field(repr=False)
    missing: dict[str, int]
    unseen: dict[str, int]
    fingerprint: str
    warning: str | None
    guarantee: str
    provenance: Provenance = field(repr=False)
    _numbers: tuple[RankArray, FloatArray] | None = field(repr=False)
    _index: list[Any] | None = field(repr=False)

    @property
    def count(self) -> int:
        """Number of discoveries."""
        return self.decision.count

    @property
    def tested(self) -> int:
        """Number of rows."""
        return self.decision.tested

    def to_discoveries(self) -> Discoveries:
        """Return every row's numbers, as `ConformalDetector.discover` does; up to a million rows.

        The identifier column, if there is one, labels the rows.
        """
        if self._numbers is None:
            raise ValueError(
                f"{self.path} has {self.tested:,} rows, and the numbers of every row are kept for "
                f"at most {MOST_DISCOVERIES:,}; use rank_counts, flagged and sample."
            )
        ranks, scores = self._numbers
        return Discoveries(
            mask=self.decision.mask(ranks),
            p_values=self.decision.grid.values(ranks),
            q_values=self.decision.q_values(ranks),
            scores=scores,
            ranks=ranks,
            p_threshold=self.decision.p_threshold,
            procedure=self.decision.procedure,
            fdr=float(self.decision.fdr),
            guarantee=self.guarantee,
            index=self._index,
            provenance=self.provenance,
        )


def judge_file(
    cad: ConformalDetector,
    path: str | Path,
    output: str | Path | None = None,
    *,
    features: Sequence[Feature] | None = None,
    fdr: float | Fraction = 0.1,
    procedure: str = "bh",
    storey_lambda: float | Fraction = 0.5,
    validity: str = "nominal",
    conditional: str | None = None,
    confidence: float = 0.9,
    id_columns: Sequence[str] = (),
    only_anomalies: bool = False,
    overwrite: bool = False,
    prefix: str = "",
    layout: Layout | None = None,
    output_layout: Layout | None = None,
    batch_rows: int | None = None,
    most_cells: int = 0,
    progress: Progress | None = None,
) -> Judgement:
    r"""Find the anomalies in a file, aiming at a false discovery rate.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted.
    path : str or Path
        The new rows; ``-`` for standard input.
    output : str or Path, optional
        Where to write the rows with ``score``, ``p_value``, ``q_value`` and ``anomaly``; ``-``
        for standard output. It appears when it is complete.
    features : sequence of Feature, optional
        The columns that `cad` was fitted on (`Table.features`); by default numbers under the
        names that it was fitted with.
    fdr, procedure, storey_lambda, validity, conditional, confidence
        As in `ConformalDetector.discover`.
    id_columns : sequence of str
        Columns that name the rows.
    only_anomalies : bool
        Write only the flagged rows, strangest first: by q-value, then by raw score.
    overwrite : bool
        Replace an output that exists.
    prefix : str
        Of the names of the added columns.
    layout, output_layout : Layout, optional
        How the files are written, where their names do not say it. By default an output in the
        format of the input is laid out like it, and standard output is in this format.
    batch_rows : int, optional
        Rows of a batch. It changes no number.
    most_cells : int
        Keep the features of all rows, as `Judgement.rows`, if they are no more cells than this.
    progress : callable, optional
        Called as ``progress(stage, done, total)`` after every batch; total may be None.

    Returns
    -------
    Judgement

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from sklearn.svm import OneClassSVM
    >>> from reconform.files import read_reference
    >>> folder = tempfile.TemporaryDirectory()
    >>> normal, new = Path(folder.name, "normal.csv"), Path(folder.name, "new.csv")
    >>> _ = normal.write_text("x\n" + "\n".join(map(str, np.arange(100) % 13)))
    >>> _ = new.write_text("name,x\na,3\nb,400\nc,7\n")
    >>> reference = read_reference(normal)
    >>> cad = ConformalDetector(OneClassSVM(), "split", random_state=0).fit(reference.frame)
    >>> found = judge_file(cad, new, Path(folder.name, "out.csv"), only_anomalies=True)
    >>> found.count, found.tested, found.flagged.table["name"].to_pylist()
    (1, 3, ['b'])
    >>> folder.cleanup()
    """
    level = exact_fraction("fdr", fdr)
    if procedure not in PROCEDURES:
        raise unknown_choice("procedure", procedure, PROCEDURES)
    check_is_fitted(cad, "ensemble_")
    if cad.ties == "randomized":
        raise ValueError(
            "a file is judged by counting ranks, and smoothed p-values have none; use "
            "ties='conservative'."
        )
    grid = cad.grid(validity=validity, conditional=conditional, confidence=confidence)
    features = _features_of(cad) if features is None else tuple(features)
    if len(features) != cad.n_features_in_:
        raise ValueError(
            f"features must be the {cad.n_features_in_} columns that the detector was fitted on; "
            f"got {len(features)}."
        )
    opened = open_batches(
        path,
        features,
        id_columns=id_columns,
        allow_missing=bool(get_tags(cad).input_tags.allow_nan),
        batch_rows=batch_rows,
        layout=layout,
        remember=True,
    )
    if output is not None and not is_standard(output):
        check_apart({"output": output}, {"path": "/dev/stdin" if is_standard(path) else path})
    with stops_by_exception(), opened as batches, Spill() as spill:
        if output is None:
            prefix = _free_prefix(prefix, batches.source.schema.names)
        else:
            output_layout = output_layout or _like(path, layout or Layout(), output)
            check_output(
                output,
                batches.source.schema,
                layout=output_layout,
                overwrite=overwrite,
                prefix=prefix,
            )
        before = os.stat(batches.source.path)
        first = _rank(cad, batches, spill, most_cells, progress)
        decision = first.counts.decide(
            level, procedure=procedure, storey_lambda=storey_lambda, grid=grid
        )
        second = _Second(batches, spill, decision, first, id_columns, prefix, before, progress)
        flagged, sample, rows, index = second.run(output, output_layout, only_anomalies, overwrite)
        return Judgement(
            path=batches.source.label,
            output=None if output is None else str(output),
            decision=decision,
            rank_counts=first.counts,
            flagged=flagged,
            sample=sample,
            rows=rows,
            missing=dict(first.missing),
            unseen=dict(first.unseen),
            fingerprint=first.fingerprint,
            warning=smallest_batch_warning(
                cad.n_calibration_,
                decision.tested,
                level,
                procedure=procedure,
                n_reference=cad.plan_.n,
                smallest_p=Fraction(int(grid.numerators[1]), grid.denominator),
            ),
            guarantee=cad.guarantee_.sentence(
                procedure, validity=validity, conditional=conditional
            ),
            provenance=cad.provenance(),
            _numbers=spill.everything() if decision.tested <= MOST_DISCOVERIES else None,
            _index=index,
        )


def _free_prefix(prefix: str, names: Sequence[str]) -> str:
    """Find a prefix with which no result has the name of a column."""
    while any(prefix + name in names for name in RESULT_NAMES):
        prefix += "result_"
    return prefix


def _features_of(cad: ConformalDetector) -> tuple[Feature, ...]:
    names = getattr(cad, "feature_names_in_", None)
    if names is None:
        raise ValueError(
            "the detector was fitted without column names; give features, as read_reference "
            "returns them."
        )
    return tuple(Feature(str(name)) for name in names)


def _like(path: str | Path, layout: Layout, output: str | Path) -> Layout:
    """The layout of an output that was not told any."""
    format = layout.format_of(path)
    if is_standard(output) or Layout().format_of(output) == format:
        return replace(layout, format=format)
    return Layout()


# --- the first pass: ranks -----------------------------------------------------------------------


@dataclass
class _First:
    counts: RankCounts
    fingerprint: str
    missing: Counter[str]
    unseen: Counter[str]
    features: list[FloatArray] | None


def _rank(
    cad: ConformalDetector,
    batches: Batches,
    spill: Spill,
    most_cells: int,
    progress: Progress | None,
) -> _First:
    counts = RankCounts(cad.n_calibration_, cad.calibration_.fingerprint)
    fingerprint = Fingerprint(batches.features)
    missing: Counter[str] = Counter()
    unseen: Counter[str] = Counter()
    features: list[FloatArray] | None = []
    for X in batches:
        ranks = cad.ensemble_.ranks(X)
        counts.add(ranks.at_most)
        spill.add(ranks.at_most, ranks.scores)
        fingerprint.add(X)
        missing.update(missing_counts(X, batches.features))
        for j, feature in enumerate(batches.features):
            if feature.is_category and (new := int((X[:, j] == UNSEEN).sum())):
                unseen[feature.name] += new
        if features is not None:
            features.append(X)
            if counts.rows * X.shape[1] > most_cells:
                features = None
        if progress is not None:
            progress("ranking", counts.rows, batches.source.rows)
    return _First(counts, fingerprint.hexdigest(), missing, unseen, features)


# --- the second pass: results --------------------------------------------------------------------


@dataclass
class _Second:
    """The second pass over a file, after the decision."""

    batches: Batches
    spill: Spill
    decision: Decision
    first: _First
    id_columns: Sequence[str]
    prefix: str
    before: os.stat_result
    progress: Progress | None

    def run(
        self,
        output: str | Path | None,
        layout: Layout | None,
        only_anomalies: bool,
        overwrite: bool,
    ) -> tuple[Rows, Rows, Rows | None, list[Any] | None]:
        """Write the output; return flagged rows, a sample of the others, all rows, identifiers."""
        everything = only_anomalies and output is not None
        order = self._strangest(self.decision.count if everything else MOST_FLAGGED)
        typed = output is not None and (layout or Layout()).format_of(output) not in TEXT_FORMATS
        empty = self._judged(self.batches.source.schema.empty_table(), *_NOTHING, typed)
        write: Callable[[Any], None] | None = None
        inside, drawn = np.sort(order), self._draw()
        sampled, chosen, ids = [empty], [], []
        labels = [feature.name for feature in self.batches.features if feature.is_category]
        cells = []
        keep_ids = bool(self.id_columns) and self.decision.tested <= MOST_DISCOVERIES
        with ExitStack() as stack:
            if output is not None:
                write = stack.enter_context(
                    open_output(output, empty.schema, layout=layout, overwrite=overwrite)
                )
            store = stack.enter_context(RowStore(empty.schema))
            for start, table, ranks, scores in self._joined():
                stop = start + table.num_rows
                judged = self._judged(table, ranks, scores, typed)
                if write is not None and not only_anomalies:
                    write(judged)
                store.add(judged.take(_between(inside, start, stop)))
                here = _between(drawn, start, stop)
                here = here[~self.decision.mask(ranks[here])]
                sampled.append(judged.take(here))
                chosen.append(here + start)
                if self.first.features is not None:
                    cells.append(table.select(labels))
                if keep_ids:
                    ids.append(table.select(list(self.id_columns)))
                if self.progress is not None:
                    self.progress("writing", stop, self.decision.tested)
            if write is not None and only_anomalies:
                step = self.batches.batch_rows
                for first in range(0, len(order), step):
                    write(store.take(np.searchsorted(inside, order[first : first + step])))
            top = order[:MOST_FLAGGED]
            flagged = self._rows(top, store.take(np.searchsorted(inside, top)))
            sample = self._rows(np.concatenate(chosen), pa.concat_tables(sampled))
        return flagged, sample, self._everything(cells), _index(ids) if keep_ids else None

    def _strangest(self, most: int) -> Positions:
        """Positions of the strangest discoveries: by q-value, then raw score, then position."""
        best = np.empty(0, dtype=FOUND)
        start = 0
        for ranks, scores in self.spill.batches(self.batches.batch_rows):
            here = np.flatnonzero(self.decision.mask(ranks))
            found = np.empty(len(here), dtype=FOUND)
            found["position"] = here + start
            found["score"] = scores[here]
            found["q"] = self.decision.q_values(ranks[here])
            best = np.concatenate([best, found])
            if len(best) > 2 * most:
                best = _sorted(best)[:most]
            start += len(ranks)
        return np.asarray(_sorted(best)[:most]["position"], dtype=np.intp)

    def _draw(self) -> Positions:
        """Positions of a sample: of the same file, always the same."""
        rng = np.random.default_rng(int(self.first.fingerprint[:16], 16))
        tested = self.decision.tested
        drawn = rng.choice(tested, min(MOST_SAMPLED, tested), replace=False, shuffle=False)
        return np.sort(drawn).astype(np.intp)

    def _joined(self) -> Iterator[tuple[int, Any, RankArray, FloatArray]]:
        """Batches of the file beside their ranks and scores."""
        start = 0
        numbers = self.spill.batches(self.batches.batch_rows)
        nothing = (np.empty(0, np.int64), np.empty(0))
        for table in self.batches.tables():
            ranks, scores = next(numbers, nothing)
            if len(ranks) != table.num_rows:
                raise self._changed()
            yield start, table, ranks, scores
            start += table.num_rows
        after = os.stat(self.batches.source.path)
        then, now = ((s.st_size, s.st_mtime_ns) for s in (self.before, after))
        if start != self.decision.tested or then != now:
            raise self._changed()

    def _changed(self) -> InputError:
        return InputError(
            self.batches.source.label,
            "the file changed while it was judged; run again when nothing writes to it.",
        )

    def _judged(self, table: Any, ranks: RankArray, scores: FloatArray, typed: bool) -> Any:
        return add_results(
            self.batches.typed(table) if typed else table,
            scores,
            self.decision.grid.values(ranks),
            self.decision.q_values(ranks),
            self.decision.mask(ranks),
            prefix=self.prefix,
        )

    def _rows(self, positions: Positions, table: Any) -> Rows:
        return Rows(positions, table, self.batches.matrix(table)[0])

    def _everything(self, cells: list[Any]) -> Rows | None:
        if self.first.features is None:
            return None
        positions = np.arange(self.decision.tested, dtype=np.intp)
        return Rows(positions, pa.concat_tables(cells), np.concatenate(self.first.features))


def _sorted(found: Any) -> Any:
    return found[np.lexsort((found["position"], found["score"], found["q"]))]


_NOTHING = (np.empty(0, dtype=np.int64), np.empty(0))


def _between(positions: Positions, start: int, stop: int) -> Positions:
    """Those of the sorted positions that lie in a batch, counted from its start."""
    low, high = np.searchsorted(positions, (start, stop))
    return positions[low:high] - start


def _index(ids: list[Any]) -> list[Any]:
    columns = [to_python(column) for column in pa.concat_tables(ids).columns]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
