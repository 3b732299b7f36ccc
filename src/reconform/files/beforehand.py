"""What can be refused before a detector is fitted: too many new rows, weights it cannot take."""

from __future__ import annotations

import os
import warnings
from typing import Any

from sklearn.base import clone

from ..deciding import check_weighable
from ..detector import ConformalDetector
from ..detectors import Auto, NativeDetector
from ..errors import InputError, ReconformError
from ..fitter import method_for_rows
from ..methods import Full, Method, Split, resolve_method
from ..rule import Rule
from ..steps.intake import taken_in
from . import judged
from .reading import Batches, Table

# A detector that is fitted on so many reference rows shows what all of them would.
SOME_ROWS = 100
# A row of text has an end of line and something before it, at least.
LEAST_BYTES = 2


def refuse_too_many(cad: ConformalDetector, reference: Table, batches: Batches, rule: Rule) -> None:
    """Refuse new rows that are too many for this detector and this rule, before it is fitted.

    What needs all new rows at once is known of fitted detectors. So one is fitted on a few rows,
    if the file is so large that there may be too many.

    Parameters
    ----------
    cad : ConformalDetector
        Not fitted.
    reference : Table
    batches : Batches
        The new rows.
    rule : Rule
    """
    if not _may_be_many(batches, judged.MOST_DISCOVERIES):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame = reference.frame
            shown = clone(cad).set_params(method=_method(cad, frame), verbose=0)
            shown.fit(frame.slice(0, SOME_ROWS))
            waits = shown.ranks_rows == "batch"
            needs_all = waits or rule.whole_batch(shown) is not None
    except ReconformError:
        return  # the fit on all rows has the better words
    if needs_all and has_more_rows(batches):
        raise too_many(batches, uses_batch=waits)


def refuse_weights(cad: ConformalDetector, frame: Any, rule: Rule, *, known: bool) -> None:
    """Refuse a method or a rule that takes no weights, before the detector is fitted.

    Parameters
    ----------
    cad : ConformalDetector
        Not fitted.
    frame : Arrow table
        The reference rows.
    rule : Rule
    known : bool
        Whether the weights are known, and not estimated.
    """
    detector, _ = taken_in(cad.detector, frame, cad.larger_is)
    method = method_for_rows(resolve_method(cad.method), detector, len(frame))
    try:
        plan = method.plan(min(len(frame), SOME_ROWS), random_state=0)
    except ReconformError:
        return  # the fit on all rows has the better words
    check_weighable(plan, cad.method, cad.ties, rule, known=known)


def _method(cad: ConformalDetector, frame: Any) -> Method:
    """Return the method that will judge very many rows, for the few reference rows to be fitted."""
    method = resolve_method(cad.method)
    detector, _ = taken_in(cad.detector, frame, cad.larger_is)
    suited = method_for_rows(method, detector, len(frame))
    uses_batch = isinstance(detector, NativeDetector) and detector.uses_batch
    if isinstance(suited, Full) and suited is not method:
        # For very many rows "auto" takes a split (`ConformalDetector.for_rows`), if there is one.
        return suited if uses_batch and not isinstance(detector, Auto) else Split()
    return Split() if isinstance(suited, Split) else suited


def _may_be_many(batches: Batches, most: int) -> bool:
    """Whether a look at the file does not tell that its rows are few enough."""
    source = batches.source
    if source.rows is not None:
        return source.rows > most
    if not source.is_text or getattr(source, "compressed", False):
        return True
    # Between two cells stands a delimiter, even if both are empty.
    row = max(LEAST_BYTES, len(source.schema.names))
    return os.stat(source.path).st_size > row * most


def has_more_rows(batches: Batches, most: int | None = None) -> bool:
    """Say whether there are more rows than so many, or than can be kept; text is counted."""
    most = judged.MOST_DISCOVERIES if most is None else most
    if batches.source.rows is not None or not _may_be_many(batches, most):
        return _may_be_many(batches, most)
    rows = 0
    for table in batches.source.tables(batches.names[:1], batches.batch_rows):
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
        batches.source.label, f"it has more than {judged.MOST_DISCOVERIES:,} rows, the most {why}"
    )
