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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from ..arrays import FloatArray, IndexArray, RankArray, UInt64Array
from ..assumption.columns import Category
from ..assumption.order import InOrder, Runs, seconds_of
from ..assumption.sample import Reservoir, drawn_digests
from ..atomic import stops_by_exception
from ..content import digests_of
from ..deciding import Observed
from ..detector import ConformalDetector
from ..discoveries import CountedDiscoveries, Discoveries
from ..errors import InputError, ReconformError
from ..frames import without_calendar
from ..rule import Rule
from ..scan import RowsPart, Scanned, scan
from ..statistics.ranks import Ranks
from ..tables import Feature
from ..tables.cells import TIMES, Fingerprint, to_python
from ..updating import apart_from
from ..weights import Weights
from . import result
from .batches import (
    Batches,
    ReadOptions,
    blaming,
    group_labels,
    missing_counts,
    open_batches,
    open_units,
)
from .formats import Layout, WriteOptions, check_output, check_separate, layout_like
from .result import FileDiscoveries, SecondPass
from .source import Spill

# A row of text has an end of line and something before it, at least.
LEAST_BYTES = 2


def has_more_rows(batches: Batches, most: int | None = None) -> bool:
    """Say whether there are more rows than so many, or than can be kept; text is counted."""
    source, most = batches.source, result.MOST_DISCOVERIES if most is None else most
    if source.rows is not None:
        return source.rows > most
    if source.is_text and not getattr(source, "compressed", False):
        # Between two cells stands a delimiter, even if both are empty.
        row = max(LEAST_BYTES, len(source.schema.names))
        if os.stat(source.path).st_size <= row * most:
            return False
    rows = 0
    for table in source.tables(batches.names[:1], batches.batch_rows):
        rows += table.num_rows
        if rows > most:
            return True
    return False


def too_many(batches: Batches, *, uses_batch: bool) -> InputError:
    """Say that not all rows of a file can be kept, and what to do."""
    if uses_batch:
        why = (
            "that a detector can compare with each other. Use `detector='knn'`, `method='split'`, "
            "or a part of the file."
        )
    else:
        why = (
            "of which `validity='proven'` can certify a list. Use `procedure='by'`, which is "
            "proven from counts, `method='split'`, or a part of the file."
        )
    return InputError(
        batches.source.label, f"it has more than {result.MOST_DISCOVERIES:,} rows, the most {why}"
    )


T = TypeVar("T")


class Wanted:
    """Finds rows by their positions from 0, or by any of their identifiers."""

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
            ids = list(map(str, cells))
            for name in {", ".join(ids), *ids} & self._named.keys():
                self._named[name].append(start + i)

    def found(self, label: str, rows: int) -> IndexArray:
        """Return the positions; refuse what is not there."""
        positions = []
        for one in self._wanted:
            if not isinstance(one, str):
                if not 0 <= one < rows:
                    raise InputError(label, f"there is no row {one + 1:,}; it has {rows:,} rows.")
                positions.append(int(one))
                continue
            places = self._named[one]
            if not places and one.isascii() and one.isdigit() and 0 < int(one) <= rows:
                places = [int(one) - 1]  # no row has the name: it is the number of one
            if len(places) != 1:
                many = "no row" if not places else f"{len(places):,} rows"
                raise InputError(label, f"{many} with the identifier {one!r}; one is needed.")
            positions.append(places[0])
        return np.array(positions, dtype=np.intp)


Progress = Callable[[str, int, int | None], None]

# Labels that the reference does not have are kept by name up to so many per column, if short.
MOST_LABELS = 1_000
LONGEST_LABEL = 1_000


@dataclass
class Unseen:
    """Labels of a column that the reference does not have: rows, and some labels by name."""

    rows: int = 0
    labels: Counter[str] = field(default_factory=Counter)

    def add(self, labels: Counter[str]) -> None:
        """Count the labels of a batch."""
        self.rows += labels.total()
        for label in [label for label in labels if len(label) > LONGEST_LABEL]:
            del labels[label]
        room = MOST_LABELS - len(self.labels)
        new = [label for label in labels if label not in self.labels]
        for label in new[max(0, room) :]:
            del labels[label]
        self.labels.update(labels)


class FileScan:
    """The rows of a file as a source of parts, and what is noticed on the way through them.

    Features of the rows are kept as far as `read` allows, or with `keep_all` of all rows; ranks and
    scores are in a `Spill`.
    """

    scanned: Scanned  # the ranks of all rows, and their counts

    def __init__(
        self,
        cad: ConformalDetector,
        batches: Batches,
        read: ReadOptions,
        progress: Progress | None,
        *,
        keep_all: bool,
        sample: int | None = None,
    ) -> None:
        waits = cad.ranks_rows == "batch"
        if (keep_all or waits) and has_more_rows(batches):
            raise too_many(batches, uses_batch=waits)
        self.cad, self.batches, self.read, self.progress = cad, batches, read, progress
        self.in_memory = keep_all or waits
        self.digest = Fingerprint(batches.features)
        self.missing: Counter[str] = Counter()
        self.unseen: defaultdict[int, Unseen] = defaultdict(Unseen)  # by position of the column
        self.kept: list[FloatArray] | None = []
        self.codes: list[IndexArray] = []
        self.sample, self.of_sample = Reservoir(), Reservoir()  # which take the same rows
        # Rows in their order; and beside them their times, as they are in the file, and groups.
        self.in_order, self.times, self.of_order = Runs(), Runs(), Runs()
        self.sizes: list[int] = []
        self.asked = sample
        self.digests: list[UInt64Array] = []
        wanted = Wanted(read.wanted, read.id_columns) if read.wanted else None
        self._wanted = wanted
        self.scanned = scan(cad, self)
        tested = sum(self.sizes)
        if not keep_all and tested * len(batches.features) > read.most_cells:
            self.kept = None
        self.wanted = np.empty(0, dtype=np.intp)
        if wanted is not None:
            self.wanted = wanted.found(batches.source.label, tested)

    def decide(self, rule: Rule) -> CountedDiscoveries:
        """Decide for the whole file by the counts of ranks."""
        groups, drawn, none = self.of_sample.rows, None, Unseen()
        if self.asked is not None:  # a random sample of all rows
            key = self.cad.state_.tie_key
            drawn = drawn_digests(np.concatenate(self.digests), key, self.asked)
        seen = Observed(
            sample=self.sample.rows,
            together=self.scanned.together,
            choice=self.scanned.choice,
            categories={
                j: Category(
                    feature.labels, self.unseen.get(j, none).labels, self.unseen.get(j, none).rows
                )
                for j, feature in enumerate(self.batches.features)
                if feature.labels is not None
            },
            sample_groups=None if groups is None else groups[:, 0].astype(np.intp),
            in_order=self._in_order(),
            drawn=drawn,
        )
        return self.cad.decide_counts(self.scanned.counts, rule, seen)

    def _in_order(self) -> InOrder:
        """Some of the rows in their order, with their scores and times."""
        seen, place, scores = self.in_order.positions, 0, []
        for part in self.ranked:
            mine = seen[(seen >= place) & (seen < place + len(part.at_most))] - place
            scores.append(part.scores[mine])
            place += len(part.at_most)
        times = None
        if self.batches.time_column is not None:
            cells = self.times.rows.tolist()
            with blaming(self.batches.source.label, str(self.batches.time_column)):
                times = seconds_of(cells, len(cells))
        elif self.read.time_column is not None:
            times = seen.astype(np.float64)
        groups = self.of_order.rows if self.of_order.seen else None
        made = [one.made for one in self.batches.features if one.made is not None]
        dates = [column for column, written, _ in made if written not in TIMES]
        named = self.batches.time_column or next(iter(dates), "rows")
        rows = without_calendar(self.in_order.rows, [one.name for one in self.batches.features])
        return InOrder(rows, np.concatenate(scores), times, groups, named)

    def certify(
        self, rule: Rule, weights: Callable[[FloatArray], Weights] | None = None
    ) -> Discoveries:
        """Decide by all features, which were kept; drop them if they are too many."""
        assert self.kept is not None
        X = np.concatenate(self.kept)
        if X.size > self.read.most_cells:
            self.kept = None
        together = self.scanned.together
        if together is None or not len(together.at_most):
            at_most, scores = self.everything()
            together = Ranks(at_most, None, scores)
        return self.cad.decide_ranked(X, together, rule, None if weights is None else weights(X))

    @property
    def ranked(self) -> Spill:
        """Ranks and scores of all rows, by batches of the file."""
        assert isinstance(self.scanned.ranked, Spill)
        return self.scanned.ranked

    def everything(self) -> tuple[RankArray, FloatArray]:
        """Ranks and scores of all rows."""
        parts = list(self.ranked)
        at_most = np.concatenate([part.at_most for part in parts])
        return at_most, np.concatenate([part.scores for part in parts])

    def _parts(self) -> Iterator[RowsPart]:
        """Read the rows; the first time all that is to be known of them is noticed."""
        notice = not self.sizes
        rows = 0
        for table, X in self.batches.read(self._wanted.columns if notice and self._wanted else ()):
            group, source, groups = self.batches.group_column, self.batches.source, None
            if group is not None:
                cells, label = table.column(group), source.label
                groups = group_labels(cells, group, source.layout, label, before=rows)
            codes = self.cad.codes_of(groups, len(X))
            part = RowsPart(X, codes)
            if notice:
                self._notice(table, part, rows)
            rows += len(X)
            yield part._replace(X=self.cad.of_file(X))
            if self.progress is not None:
                self.progress("ranking", rows, self.batches.source.rows)

    def _notice(self, table: Any, part: RowsPart, before: int) -> None:
        X, codes = part
        if self._wanted is not None:
            self._wanted.add(table, before)
        self.sizes.append(len(X))
        self.sample.add(X)
        if self.asked is not None:
            self.digests.append(digests_of(X)[1])
        self.in_order.add(X)
        if self.batches.time_column is not None:
            cells = to_python(table.column(self.batches.time_column))
            self.times.add(np.array(cells, dtype=object))
        if codes is not None:
            self.of_order.add(codes)
            self.of_sample.add(codes[:, None].astype(np.float64))
        self.digest.add(X)
        self.missing.update(missing_counts(X, self.batches.features))
        for j, labels in self.batches.unseen(table, X).items():
            self.unseen[j].add(labels)
        if self.kept is None:
            return
        self.kept.append(X)
        rows = before + len(X)
        if self.in_memory:
            self.codes += [] if codes is None else [codes]
            if rows > result.MOST_DISCOVERIES:
                raise too_many(self.batches, uses_batch=self.cad.ranks_rows == "batch")
        elif rows * X.shape[1] > self.read.most_cells:
            self.kept = None

    def each(self, work: Callable[[RowsPart], Any]) -> Spill:
        """As `Parts` has it."""
        spill = Spill()
        for part in self._parts():
            spill.add(work(part))
        return spill

    def total(self, work: Callable[[RowsPart], T], merge: Callable[[T, T], T]) -> T:
        """As `Parts` has it."""
        return reduce(merge, map(work, self._parts()))

    def whole(self) -> RowsPart:
        """All rows, which are kept."""
        for _ in self._parts():
            pass
        assert self.kept is not None
        codes = np.concatenate(self.codes) if self.codes else None
        return RowsPart(self.cad.of_file(np.concatenate(self.kept)), codes)

    def cut(self, ranks: Ranks) -> Spill:
        """The ranks of all rows, by batches of the file."""
        spill = Spill()
        for stop, size in zip(np.cumsum(self.sizes), self.sizes, strict=True):
            spill.add(ranks.taken(np.arange(stop - size, stop)))
        return spill


__all__ = ["FileDiscoveries", "ReadOptions", "WriteOptions", "features_of", "judge_file"]


def judge_file(
    cad: ConformalDetector,
    path: str | Path,
    output: str | Path | None = None,
    rule: Rule = Rule(),  # noqa: B008 - a frozen value
    *,
    read: ReadOptions = ReadOptions(),  # noqa: B008
    write: WriteOptions = WriteOptions(),  # noqa: B008
    progress: Progress | None = None,
    weights: Callable[[FloatArray], Weights] | None = None,
) -> FileDiscoveries:
    r"""Find the anomalies in a file, aiming at a false discovery rate.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted.
    path : str or Path
        The new rows; ``-`` for standard input, or several files as in `read_reference`.
    output : str or Path, optional
        Where to write the rows with `Discoveries.to_frame`'s columns; ``-`` for standard output.
        Where the rule has a `top`, only so many rows, those that come first, flagged or not.
    rule : Rule
        The level, the procedure and the p-values: one that counts of ranks can decide, or for a
        file of at most a million rows one that certifies its list. A detector that compares new
        rows with each other (``"contrast"``) judges a file of at most a million rows as one batch.
    read : ReadOptions
    write : WriteOptions
    progress : callable, optional
        Called as ``progress(stage, done, total)`` after every batch; total may be None.
    weights : callable, optional
        From the new rows, as the detector sees them, to the `Weights` of a covariate shift; for a
        file of at most 100,000 rows.

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
    _check_rule(cad, rule, write)
    check_grouped(cad, read.group_column)
    opened = _opened(cad, path, read)
    with stops_by_exception(), opened as batches:
        batches.timed_by(read.time_column)
        if output is not None:
            check_separate({"output": output}, {"path": path})
            known = batches.source.layout  # with what was guessed of a text file
            like = known if isinstance(known, Layout) else read.layout
            write = replace(write, layout=write.layout or layout_like(path, like, output))
            check_output(output, layout=write.layout, overwrite=write.overwrite)
        before = os.stat(batches.source.path)
        most = cad.most_rows
        if most is not None and has_more_rows(batches, most):
            cad = cad.for_rows(most + 1)
        if cad.state_.origins is not None:
            cad = _apart(cad, batches, read.id_columns)
        certifies = weights is not None or rule.resolved(cad).whole_batch(cad) is not None
        first = FileScan(cad, batches, read, progress, keep_all=certifies, sample=rule.sample)
        certified = first.certify(rule, weights) if certifies else None
        found = first.decide(replace(rule, validity="nominal") if certifies else rule)
        second = SecondPass(
            batches, first, found, certified, read, write, before, progress, rule.top
        )
        return second.run(output)


def _opened(
    cad: ConformalDetector, path: str | Path, read: ReadOptions
) -> AbstractContextManager[Batches]:
    """Open the new rows, or the units that they make up."""
    units, allows = cad.state_.units, bool(get_tags(cad).input_tags.allow_nan)
    if units is None and read.unit_column is not None:
        raise ReconformError(
            "this detector was fitted on rows; leave `units` out, or fit it with `units`."
        )
    if units is not None and read.unit_column is None:
        raise ReconformError(
            "this detector was fitted on units; name the column of units by `units`."
        )
    if units is not None:
        return open_units(path, units, read, allow_missing=allows)
    return open_batches(
        path,
        features_of(cad, read.features),
        id_columns=read.id_columns,
        allow_missing=allows,
        batch_rows=read.batch_rows,
        layout=read.layout,
        remember=True,
        group_column=read.group_column,
    )


def _apart(cad: ConformalDetector, batches: Batches, ids: Sequence[str]) -> ConformalDetector:
    """Return the detector without known anomalies that were marked in this very file."""
    digests, labels = [np.empty(0, dtype=np.uint64)], []
    for table, X in batches.read(ids):
        digests.append(digests_of(cad.of_file(X))[1])
        labels += labels_of_rows(table, ids)
    return apart_from(cad, np.concatenate(digests), labels if ids else None)


def labels_of_rows(table: Any, ids: Sequence[str]) -> list[str]:
    """What the rows of a table are called, by its columns of identifiers."""
    columns = [to_python(table.column(name)) for name in ids]
    return [", ".join(map(str, cells)) for cells in zip(*columns, strict=True)]


def _check_rule(cad: ConformalDetector, rule: Rule, write: WriteOptions) -> None:
    """Refuse a rule that cannot judge a file."""
    check_is_fitted(cad, "ensemble_")
    if rule.top is not None and write.only_anomalies:
        raise ReconformError(
            "`top` and `only_anomalies` each say which rows are written; give one of them."
        )
    rule = rule.resolved(cad)
    if rule.whole_batch(cad) is not None:
        rule.grid(cad)
    else:
        rule.counting_grid(cad, "a file", "whole")


def check_grouped(
    cad: ConformalDetector, column: str | int | None, argument: str = "group_column"
) -> None:
    """Refuse a column of groups that the detector has no use for, and the lack of one."""
    if cad.grouping_ is None and column is not None:
        raise ReconformError(
            f"this detector was fitted without groups; leave `{argument}` out, or fit it with "
            "`groups`."
        )
    if cad.grouping_ is not None and column is None:
        raise ReconformError(
            "this detector was fitted with groups, and ranks rows within them; name the column of "
            f"groups by `{argument}`."
        )


def features_of(
    cad: ConformalDetector, features: Sequence[Feature] | None = None
) -> tuple[Feature, ...]:
    """Return the columns that a detector was fitted on: those given, or numbers under its names."""
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
