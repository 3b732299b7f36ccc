"""Judge a file of any size: one pass for the ranks, one for the results.

The first pass ranks every batch and counts the ranks; the counts decide for the whole file, exactly
as if it had been judged at once. Ranks and scores of the rows wait on disk. The second pass writes
every row with its results; it reads the file again, unless that is small enough to stay in memory.
Of a large file, memory holds one batch and the counts; to write the flagged rows in order, also
their positions, scores and p-values. A certified list needs all rows in memory, and so does a
detector that compares new rows with each other; they are kept, up to a million.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from ..arrays import BoolArray, FloatArray, IndexArray, RankArray
from ..assumption import Category, Reservoir
from ..detector import ConformalDetector
from ..discoveries import USUAL_FIRST, CountedDiscoveries, Discoveries
from ..errors import ReconformError
from ..first_rows import FirstRows
from ..prepare import Feature
from ..rule import Rule
from ..statistics.choice import ChoiceCounts
from ..statistics.fdr import Decision, RankCounts
from ..statistics.ranks import Ranks
from ..whole import check_apart, stops_by_exception
from . import (
    CERTIFIED_NAMES,
    RESULT_NAMES,
    Batches,
    InputError,
    Layout,
    add_results,
    check_output,
    open_batches,
    open_output,
)
from .cells import Fingerprint
from .column_types import to_python
from .formats import FORMATS, is_standard, layout_like
from .reading import missing_counts
from .spill import RowStore, ScoreSpill, Spill

Progress = Callable[[str, int, int | None], None]

# A result keeps no more flagged rows, and the numbers of every row only for files of at most so
# many rows.
MOST_FLAGGED = 10_000
MOST_DISCOVERIES = 1_000_000
# Labels that the reference does not have are kept by name up to so many per column.
MOST_LABELS = 1_000

FOUND = np.dtype([("position", "<i8"), ("score", "<f8"), ("p", "<f8"), ("plain", "?")])


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
    rows: Rows | None
    missing: dict[str, int]
    unseen: dict[str, int]
    fingerprint: str
    certified: Discoveries | None
    _numbers: tuple[RankArray, FloatArray] | None
    _index: list[Any] | None

    @property
    def count(self) -> int:
        """Number of discoveries."""
        return super().count if self.certified is None else self.certified.count

    @property
    def flagged(self) -> Rows:
        """The most anomalous discoveries, in this order; at most 10,000."""
        return self.listed.head(min(self.count, MOST_FLAGGED))

    def _largest_rank(self) -> int:
        return super()._largest_rank() if self.certified is None else self.certified._largest_rank()

    def _first(self, rows: int) -> FirstRows:
        return super()._first(rows) if self.certified is None else self.certified._first(rows)

    def _shown(self) -> list[str]:
        return [] if self.output is None else [f"written to {self.output}"]

    def to_discoveries(self) -> Discoveries:
        """Return every row's numbers, as `ConformalDetector.discover` does; up to a million rows.

        The identifier column, if there is one, labels the rows.
        """
        if self.certified is not None:
            found = replace(self.certified, index=self._index, compared=self.compared)
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
        )
        return self._judged_alike(found)

    def _judged_alike(self, found: Discoveries) -> Discoveries:
        """Hand the verdict on to the same list in another form: it is worked out once."""
        vars(found)["verdict"] = self.verdict
        return found


@dataclass(frozen=True)
class ReadOptions:
    """How the new rows are read.

    Attributes
    ----------
    features : sequence of Feature, optional
        The columns that the detector was fitted on (`Table.features`); by default numbers under
        the names that it was fitted with.
    id_columns : sequence of str
        Columns that name the rows.
    layout : Layout, optional
        How the file is laid out, where its name does not say it.
    batch_rows : int, optional
        Rows of a batch. It changes no number.
    most_cells : int
        Keep the features of all rows, as `FileDiscoveries.rows`, if they are no more cells than
        this.
    most_rows : int, optional
        Keep the numbers of every row, for `FileDiscoveries.to_discoveries`, up to so many rows; by
        default a million.
    """

    features: Sequence[Feature] | None = None
    id_columns: Sequence[str] = ()
    layout: Layout | None = None
    batch_rows: int | None = None
    most_cells: int = 0
    most_rows: int | None = None


@dataclass(frozen=True)
class WriteOptions:
    """How the results are written.

    Attributes
    ----------
    only_anomalies : bool
        Write only the flagged rows, the most anomalous first: by p-value, then by raw score.
    overwrite : bool
        Replace an output that exists.
    prefix : str
        Put in front of the names of the added columns.
    layout : Layout, optional
        How the output is laid out, where its name does not say it. By default an output in the
        format of the input is laid out like it, and standard output is in this format.
    """

    only_anomalies: bool = False
    overwrite: bool = False
    prefix: str = ""
    layout: Layout | None = None


def judge_file(
    cad: ConformalDetector,
    path: str | Path,
    output: str | Path | None = None,
    rule: Rule = Rule(),  # noqa: B008 - a frozen value
    *,
    read: ReadOptions = ReadOptions(),  # noqa: B008
    write: WriteOptions = WriteOptions(),  # noqa: B008
    progress: Progress | None = None,
) -> FileDiscoveries:
    r"""Find the anomalies in a file, aiming at a false discovery rate.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted.
    path : str or Path
        The new rows; ``-`` for standard input.
    output : str or Path, optional
        Where to write the rows with ``score``, ``p_value``, ``q_value`` and ``anomaly``; ``-``
        for standard output. It appears when it is complete. Where the rule has a `top`, only so
        many rows are written, those that come first, flagged or not.
    rule : Rule
        The level, the procedure and the p-values: one that counts of ranks can decide, or for a
        file of at most a million rows one that certifies its list. A detector that compares new
        rows with each other (``"contrast"``) judges a file of at most a million rows as one batch.
    read : ReadOptions
    write : WriteOptions
    progress : callable, optional
        Called as ``progress(stage, done, total)`` after every batch; total may be None.

    Returns
    -------
    FileDiscoveries

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
    >>> found = judge_file(cad, new, Path(folder.name, "out.csv"))
    >>> found.count, found.tested, found.flagged.table["name"].to_pylist()
    (1, 3, ['b'])
    >>> folder.cleanup()
    """
    check_is_fitted(cad, "ensemble_")
    if rule.top is not None and write.only_anomalies:
        raise ReconformError(
            "`top` and `only_anomalies` each say which rows are written; give one of them."
        )
    certifies = rule.whole_batch(cad) is not None
    if certifies:
        rule.grid(cad)
    else:
        rule.counting_grid(cad, "a file", together=True)
    names = CERTIFIED_NAMES if certifies else RESULT_NAMES
    opened = open_batches(
        path,
        features_of(cad, read.features),
        id_columns=read.id_columns,
        allow_missing=bool(get_tags(cad).input_tags.allow_nan),
        batch_rows=read.batch_rows,
        layout=read.layout,
        remember=True,
    )
    with stops_by_exception(), opened as batches, Spill() as spill:
        write = _checked_output(path, output, batches.source.schema, names, read, write)
        before = os.stat(batches.source.path)
        first = _rank(cad, batches, spill, read.most_cells, progress, keep_all=certifies)
        cad = first.cad
        certified = _certify(cad, rule, first, spill, read.most_cells) if certifies else None
        plain = replace(rule, validity="nominal") if certifies else rule
        found = cad.decide_counts(
            first.counts,
            plain,
            new=first.sample.rows,
            together=first.together,
            choice=first.choice,
            categories=_categories(batches.features, first.unseen),
            monotone=first.sample.monotone,
        )
        marks: Marks = ByRank(found.decision) if certified is None else ByRow(certified)
        second = _Second(batches, spill, marks, first, read, write, before, progress, rule.top)
        return _result(found, certified, second, output)


def _checked_output(
    path: str | Path,
    output: str | Path | None,
    schema: Any,
    names: tuple[str, ...],
    read: ReadOptions,
    write: WriteOptions,
) -> WriteOptions:
    """Refuse an output that cannot be written; complete the options that say how."""
    if output is None:
        return replace(write, prefix=_free_prefix(write.prefix, names, schema.names))
    if not is_standard(output):
        check_apart({"output": output}, {"path": "/dev/stdin" if is_standard(path) else path})
    write = replace(write, layout=write.layout or layout_like(path, read.layout, output))
    check_output(
        output,
        schema,
        layout=write.layout,
        overwrite=write.overwrite,
        prefix=write.prefix,
        names=names,
    )
    return write


def _check_few(batches: Batches, rows: int, uses_batch: bool) -> None:
    """Refuse a file of which not all rows can be kept."""
    if rows <= MOST_DISCOVERIES:
        return
    if uses_batch:
        why = (
            "that a detector can compare with each other. Use a detector such as 'knn', or a part "
            "of the file."
        )
    else:
        why = (
            "of which `validity='proven'` can certify a list. Use `procedure='by'`, which is "
            "proven from counts, `method='split'`, or a part of the file."
        )
    raise InputError(
        batches.source.label, f"it has more than {MOST_DISCOVERIES:,} rows, the most {why}"
    )


def _free_prefix(prefix: str, names: Sequence[str], taken: Sequence[str]) -> str:
    """Find a prefix with which no result has the name of a column."""
    while any(prefix + name in taken for name in names):
        prefix += "result_"
    return prefix


def features_of(
    cad: ConformalDetector, features: Sequence[Feature] | None = None
) -> tuple[Feature, ...]:
    """Return the columns that a detector was fitted on: those given, or numbers under its names.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted.
    features : sequence of Feature, optional
    """
    if features is None:
        features = cad.features
        if not features:
            raise ReconformError(
                "the detector was fitted without column names, and the columns of files are "
                "matched by name; fit on a frame, or give features, as read_reference returns them."
            )
    if len(features) != cad.n_features_in_:
        raise ReconformError(
            f"features must be the {cad.n_features_in_} columns that the detector was fitted on; "
            f"got {len(features)}."
        )
    return tuple(features)


# --- the first pass: ranks -----------------------------------------------------------------------


@dataclass
class Unseen:
    """Labels of a column that the reference does not have: rows, and some labels by name."""

    rows: int = 0
    labels: Counter[str] = field(default_factory=Counter)

    def add(self, labels: Counter[str]) -> None:
        """Count the labels of a batch."""
        self.rows += labels.total()
        room = MOST_LABELS - len(self.labels)
        new = [label for label in labels if label not in self.labels]
        for label in new[max(0, room) :]:
            del labels[label]
        self.labels.update(labels)


@dataclass
class _First:
    cad: ConformalDetector
    counts: RankCounts
    fingerprint: str
    missing: Counter[str]
    unseen: dict[int, Unseen]
    features: list[FloatArray] | None
    sample: Reservoir
    together: Ranks | None = None
    choice: ChoiceCounts | None = None


class _Ranking:
    """Ranks rows as they come: batch by batch, or after the last of them.

    Parameters
    ----------
    cad : ConformalDetector
    spill : Spill
    """

    def __init__(self, cad: ConformalDetector, spill: Spill) -> None:
        self._spill = spill
        self.choice: ChoiceCounts | None = None
        self.together: Ranks | None = None
        self._use(cad)

    def _use(self, cad: ConformalDetector) -> None:
        self.cad = cad
        self.counts = RankCounts(cad.n_calibration_, cad.calibration_.fingerprint)
        self._tally = cad.tally()
        self._scores = None if self._tally is None else ScoreSpill(len(self._tally.names))

    @property
    def waits(self) -> bool:
        """Whether rows have to be kept until all of them are there."""
        return self.cad.uses_batch and self._tally is None

    def add(self, X: FloatArray) -> None:
        """Take some rows; where it `waits`, they are ranked by `finish`."""
        if self._tally is not None:
            assert self._scores is not None
            scores = self._tally.scores(X)
            self._tally.add(scores)
            self._scores.add(scores)
        elif not self.waits:
            self._put(self.cad.rank(X, checked=True))

    def outgrown(self, rows: int, before: list[FloatArray]) -> bool:
        """Say whether rows became too many for the detector; then another one takes over."""
        most = self.cad.most_rows
        if not self.waits or most is None or rows <= most:
            return False
        self._use(self.cad.for_rows(rows))
        for X in before:
            self.add(X)
        return True

    def finish(self, kept: list[FloatArray] | None, batch_rows: int) -> None:
        """Rank what has waited."""
        if self.waits:
            assert kept is not None
            self.together = self.cad.rank(np.concatenate(kept), checked=True, together=True)
            self._put(self.together)
        elif self._tally is not None:
            assert self._scores is not None
            with self._scores:
                for scores in self._scores.batches(batch_rows):
                    self._put(self._tally.ranks(scores))

    def _put(self, ranks: Ranks) -> None:
        self.counts.add(ranks.at_most)
        self._spill.add(ranks.at_most, ranks.scores)
        if ranks.choice is not None:
            if self.choice is None:
                self.choice = ChoiceCounts(ranks.choice.names, self.cad.n_calibration_)
            self.choice.add(ranks.choice)


def _rank(
    cad: ConformalDetector,
    batches: Batches,
    spill: Spill,
    most_cells: int,
    progress: Progress | None,
    *,
    keep_all: bool,
) -> _First:
    """Rank all rows; keep their features up to `most_cells`, or with `keep_all` of all rows."""
    ranking = _Ranking(cad.for_rows(batches.source.rows or 0), spill)
    if keep_all or ranking.waits:
        _check_few(batches, batches.source.rows or 0, ranking.waits)
    fingerprint = Fingerprint(batches.features)
    missing: Counter[str] = Counter()
    unseen: defaultdict[int, Unseen] = defaultdict(Unseen)
    features: list[FloatArray] | None = []
    sample = Reservoir()
    rows = 0
    for table, X in batches.read():
        rows += len(X)
        sample.add(X)
        if not ranking.outgrown(rows, [*(features or []), X]):
            ranking.add(X)
        fingerprint.add(X)
        missing.update(missing_counts(X, batches.features))
        for j, labels in batches.unseen(table, X).items():
            unseen[j].add(labels)
        if features is not None:
            features.append(X)
            if keep_all or ranking.waits:
                _check_few(batches, rows, ranking.waits)
            elif rows * X.shape[1] > most_cells:
                features = None
        if progress is not None:
            progress("ranking", rows, batches.source.rows)
    ranking.finish(features, batches.batch_rows)
    if not keep_all and rows * len(batches.features) > most_cells:
        features = None
    return _First(
        ranking.cad,
        ranking.counts,
        fingerprint.hexdigest(),
        missing,
        unseen,
        features,
        sample,
        ranking.together,
        ranking.choice,
    )


def _categories(features: Sequence[Feature], unseen: Mapping[int, Unseen]) -> dict[int, Category]:
    """What is known of the columns that hold labels."""
    none = Unseen()
    return {
        j: Category(feature.labels, unseen.get(j, none).labels, unseen.get(j, none).rows)
        for j, feature in enumerate(features)
        if feature.labels is not None
    }


def _certify(
    cad: ConformalDetector, rule: Rule, first: _First, spill: Spill, most_cells: int
) -> Discoveries:
    """Certify a list, for which `first` kept the features of all rows; drop them if too many."""
    assert first.features is not None
    ranks, scores = spill.everything()
    X = np.concatenate(first.features)
    if X.size > most_cells:
        first.features = None
    return cad.decide_ranked(X, first.together or Ranks(ranks, None, scores), rule)


# --- the second pass: results --------------------------------------------------------------------


class Marks(ABC):
    """What the second pass writes beside every row."""

    count: int
    tested: int
    names = RESULT_NAMES

    @abstractmethod
    def numbers(self, start: int, ranks: RankArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        """P-values, q-values or e-values, and the mask, of rows from `start` on."""


class ByRank(Marks):
    """Results from a decision on ranks."""

    def __init__(self, decision: Decision) -> None:
        self.decision = decision
        self.count, self.tested = decision.count, decision.tested

    def numbers(self, start: int, ranks: RankArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        """What every rank is worth."""
        decision = self.decision
        return decision.grid.values(ranks), decision.q_values(ranks), decision.mask(ranks)


class ByRow(Marks):
    """Results from a certified list, which has them for every row."""

    names = CERTIFIED_NAMES

    def __init__(self, found: Discoveries) -> None:
        self.found = found
        self.count, self.tested = found.count, found.tested

    def numbers(self, start: int, ranks: RankArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        """What the list says of these rows."""
        rows, found = slice(start, start + len(ranks)), self.found
        return found.p_values[rows], found.evidence[1][rows], found.mask[rows]


@dataclass
class _Second:
    """The second pass over a file, after the decision."""

    batches: Batches
    spill: Spill
    marks: Marks
    first: _First
    read: ReadOptions
    write: WriteOptions
    before: os.stat_result
    progress: Progress | None
    top: int | None

    def run(self, output: str | Path | None) -> tuple[Rows, Rows | None, list[Any] | None]:
        """Write the output; return the rows that come first, all rows, and the identifiers."""
        marks = self.marks
        listed = min(max(marks.count, self.top or USUAL_FIRST), MOST_FLAGGED)
        written = self.top or (marks.count if self.write.only_anomalies else None)
        only = written is not None and output is not None
        order = self._first(max(listed, written or 0) if only else listed)
        layout = self.write.layout or Layout()
        typed = output is not None and not FORMATS[layout.format_of(output)].is_text
        nothing = pa.Table.from_batches([], self.batches.source.schema)
        schema = self._judged(nothing, 0, *_NOTHING, typed).schema
        inside = np.sort(order)
        with ExitStack() as stack:
            write: Callable[[Any], None] | None = None
            if output is not None:
                overwrite = self.write.overwrite
                write = stack.enter_context(
                    open_output(output, schema, layout=layout, overwrite=overwrite)
                )
            store = stack.enter_context(RowStore(schema))
            kept = _Kept(self)
            for start, table, ranks, scores in self._joined():
                stop = start + table.num_rows
                judged = self._judged(table, start, ranks, scores, typed)
                if write is not None and not only:
                    write(judged)
                here = _between(inside, start, stop)
                if len(here):
                    store.add(judged.take(here))
                kept.add(table)
                if self.progress is not None:
                    self.progress("writing", stop, self.marks.tested)
            if write is not None and only:
                step, chosen = self.batches.batch_rows, order[:written]
                for first in range(0, len(chosen), step):
                    write(store.take(np.searchsorted(inside, chosen[first : first + step])))
            top = order[:listed]
            table = store.take(np.searchsorted(inside, top))
            rows = Rows(top, table, self.batches.matrix(table)[0])
        return rows, kept.rows(), kept.index()

    def _first(self, most: int) -> IndexArray:
        """Positions: the flagged rows, then the others, by p-value, raw score and position."""
        best = np.empty(0, dtype=FOUND)
        worst = np.inf  # a row with a larger p-value that is not flagged cannot be among them
        start = 0
        for ranks, scores in self.spill.batches(self.batches.batch_rows):
            p_values, _, mask = self.marks.numbers(start, ranks)
            here = np.flatnonzero(mask | (p_values <= worst))
            found = np.empty(len(here), dtype=FOUND)
            found["position"] = here + start
            found["score"] = scores[here]
            found["p"] = p_values[here]
            found["plain"] = ~mask[here]
            best = np.concatenate([best, found])
            if len(best) > 2 * most:
                best = _sorted(best)[:most]
                worst = best["p"][-1] if best["plain"][-1] else -np.inf
            start += len(ranks)
        return np.asarray(_sorted(best)[:most]["position"], dtype=np.intp)

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
        if start != self.marks.tested or then != now:
            raise self._changed()

    def _changed(self) -> InputError:
        return InputError(
            self.batches.source.label,
            "the file changed while it was judged; run again when nothing writes to it.",
        )

    def _judged(
        self, table: Any, start: int, ranks: RankArray, scores: FloatArray, typed: bool
    ) -> Any:
        return add_results(
            self.batches.typed(table) if typed else table,
            scores,
            *self.marks.numbers(start, ranks),
            prefix=self.write.prefix,
            names=self.marks.names,
        )


# What a certified list says in place of the counted one.
_SHARED = ("p_threshold", "claim", "warning", "choice")


def _result(
    found: CountedDiscoveries,
    certified: Discoveries | None,
    second: _Second,
    output: str | Path | None,
) -> FileDiscoveries:
    """Write the output, and put together what was found."""
    listed, rows, index = second.run(output)
    kept = second.read.most_rows or MOST_DISCOVERIES
    first, said = second.first, found if certified is None else certified
    return FileDiscoveries(
        **{**vars(found), **{name: getattr(said, name) for name in _SHARED}},
        path=second.batches.source.label,
        output=None if output is None else str(output),
        listed=listed,
        rows=rows,
        missing=dict(first.missing),
        unseen={
            second.batches.features[j].name: found.rows for j, found in sorted(first.unseen.items())
        },
        fingerprint=first.fingerprint,
        certified=certified,
        _numbers=second.spill.everything() if found.tested <= kept else None,
        _index=index,
    )


class _Kept:
    """What stays in memory of every row: labels for a report, and identifiers."""

    def __init__(self, second: _Second) -> None:
        self._first, self._tested = second.first, second.marks.tested
        features = second.batches.features
        self._labels = [feature.name for feature in features if feature.is_category]
        keeps_ids = self._tested <= MOST_DISCOVERIES
        self._ids = list(second.read.id_columns) if keeps_ids else []
        self._label_tables: list[Any] = []
        self._id_tables: list[Any] = []

    def add(self, table: Any) -> None:
        if self._first.features is not None:
            self._label_tables.append(table.select(self._labels))
        if self._ids:
            self._id_tables.append(table.select(self._ids))

    def rows(self) -> Rows | None:
        if self._first.features is None:
            return None
        positions = np.arange(self._tested, dtype=np.intp)
        X = np.concatenate(self._first.features)
        return Rows(positions, pa.concat_tables(self._label_tables), X)

    def index(self) -> list[Any] | None:
        if not self._ids:
            return None
        columns = [to_python(column) for column in pa.concat_tables(self._id_tables).columns]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _sorted(found: Any) -> Any:
    keys = [found[name] for name in ("position", "score", "p", "plain")]
    return found[np.lexsort(keys)]


_NOTHING = (np.empty(0, dtype=np.int64), np.empty(0))


def _between(positions: IndexArray, start: int, stop: int) -> IndexArray:
    """Those of the sorted positions that lie in a batch, counted from its start."""
    low, high = np.searchsorted(positions, (start, stop))
    return positions[low:high] - start
