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
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from ..arrays import FloatArray
from ..detector import ConformalDetector
from ..detectors.prepare import Feature
from ..errors import ReconformError
from ..rule import Rule
from ..weights import Weights
from ..whole import stops_by_exception
from .address import noted
from .first_pass import Progress, rank_rows
from .formats import Layout, is_standard, layout_like
from .judged import FileDiscoveries
from .reading import Batches, ReadOptions, open_batches
from .second_pass import ByRank, ByRow, Marks, SecondPass, result_of
from .tables import check_separate
from .writing import CERTIFIED_NAMES, RESULT_NAMES, WriteOptions, check_output

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
        The new rows; ``-`` for standard input, or a query as in `read_reference`.
    output : str or Path, optional
        Where to write the rows with ``score``, ``p_value``, ``q_value`` and ``anomaly``; ``-``
        for standard output, or a table of a database such as ``"plant.duckdb#flagged"``. It appears
        when it is complete. Where the rule has a `top`, only so many rows are written, those that
        come first, flagged or not.
    rule : Rule
        The level, the procedure and the p-values: one that counts of ranks can decide, or for a
        file of at most a million rows one that certifies its list. A detector that compares new
        rows with each other (``"contrast"``) judges a file of at most a million rows as one batch.
    read : ReadOptions
    write : WriteOptions
    progress : callable, optional
        Called as ``progress(stage, done, total)`` after every batch; total may be None.
    weights : callable, optional
        From the new rows, as the detector sees them, or where `read` has a `weight_column` from
        its numbers, to the `Weights` of a covariate shift; for a file of at most 100,000 rows.

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
    certifies = _checked_rule(cad, rule, write) or weights is not None
    check_grouped(cad, read.group_column)
    names = CERTIFIED_NAMES if certifies and rule.validity == "proven" else RESULT_NAMES
    opened = _opened(cad, path, read)
    with stops_by_exception(), opened as batches:
        if read.weight_column is not None:
            batches.check_weights(read.weight_column)
        write = _checked_output(path, output, batches.source.schema, names, read, write)
        before = os.stat(batches.source.path)
        first = rank_rows(cad, batches, read, progress, keep_all=certifies)
        certified = first.certify(rule, read.most_cells, weights) if certifies else None
        found = first.decide(replace(rule, validity="nominal") if certifies else rule)
        marks: Marks = ByRank(found.decision) if certified is None else ByRow(certified)
        second = SecondPass(batches, marks, first, read, write, before, progress, rule.top)
        return result_of(found, certified, second, noted(path, batches.source.label), output)


def _checked_rule(cad: ConformalDetector, rule: Rule, write: WriteOptions) -> bool:
    """Refuse a rule that cannot judge a file; say whether it certifies its list."""
    check_is_fitted(cad, "ensemble_")
    if rule.top is not None and write.only_anomalies:
        raise ReconformError(
            "`top` and `only_anomalies` each say which rows are written; give one of them."
        )
    if rule.whole_batch(cad) is not None:
        rule.grid(cad)
        return True
    rule.counting_grid(cad, "a file", "whole")
    return False


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


def _opened(
    cad: ConformalDetector, path: str | Path, read: ReadOptions
) -> AbstractContextManager[Batches]:
    """Open the new rows as the detector wants them."""
    return open_batches(
        path,
        features_of(cad, read.features),
        id_columns=read.id_columns,
        allow_missing=bool(get_tags(cad).input_tags.allow_nan),
        batch_rows=read.batch_rows,
        layout=read.layout,
        remember=True,
        group_column=read.group_column,
    )


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
        inputs = {"path": "/dev/stdin" if is_standard(path) else path}
        check_separate({"output": output}, inputs, read.layout or Layout())
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
