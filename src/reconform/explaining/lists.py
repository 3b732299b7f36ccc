"""What explains the rows of a list, from the detector that judged them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import IndexArray
from ..detectors import resolve_detector
from ..detectors.prepare import Feature, Prepare
from ..detectors.prepared import category_columns
from ..errors import ReconformError
from ..frames import columns_of, frame_as_it_is, package_of, read_column
from ..steps.intake import Frames
from .explainer import Explainer, Known
from .feature_columns import Words

if TYPE_CHECKING:
    from ..detector import ConformalDetector


def explainer_for(
    cad: ConformalDetector,
    read: Callable[[], Any],
    *,
    choose: Callable[[], IndexArray] | None = None,
    positions: IndexArray | None = None,
    features: Sequence[Feature] | None = None,
    unlisted: Words | None = None,
) -> Explainer | None:
    """Make what explains rows that a detector has judged.

    Parameters
    ----------
    cad : ConformalDetector
    read, choose, positions, unlisted
        As in `Explainer`.
    features : sequence of Feature, optional
        The columns, as a reader of files knows them.

    Returns
    -------
    Explainer or None
        None where no reference rows are kept.
    """
    known = known_rows(cad)
    if known is None:
        return None
    columns = tuple(features or _features(cad))
    chosen = choose if cad.ensemble_.candidates else None
    return Explainer(
        known, cad.ensemble_, _resolved(cad), columns, read, chosen, positions, unlisted
    )


def known_rows(cad: ConformalDetector) -> Known | None:
    """Return the reference rows that are kept: those of the fit, or what a model file has."""
    known: Known | None = cad._known
    if known is not None:
        return known
    if cad._reference is not None:
        return Known(cad._reference, cad.plan_.n, np.arange(cad.plan_.n))
    sample = cad.reference_sample_
    if sample is None:
        return None
    frames = isinstance(cad._intake, Frames) and not cad._intake.text
    return Known(cad.of_file(sample) if frames else sample, cad.plan_.n)


def words_of(X: Any) -> Words | None:
    """Look up labels in a frame; None for an array, which has none."""
    frame = frame_as_it_is(X)
    if package_of(frame) is None:
        return None

    def look_up(i: int, name: str) -> str | None:
        cells = {str(column): cells for column, cells in columns_of(frame).items()}[name]
        return next(iter(read_column(cells[i : i + 1]).words), None)

    return look_up


NO_REFERENCE = (
    "a row is explained by the reference rows, and this model was saved without them; save it with "
    "them, or explain with the detector as it was fitted."
)


def refuse_without_reference(explainer: Explainer | None) -> Explainer:
    """Return what explains rows; refuse to do so without reference rows."""
    if explainer is None:
        raise ReconformError(NO_REFERENCE)
    return explainer


def _features(cad: ConformalDetector) -> tuple[Feature, ...]:
    columns: tuple[Feature, ...] = getattr(cad._intake, "columns", ())
    if columns:
        return columns
    names = cad._names() or [f"feature {j}" for j in range(cad.n_features_in_)]
    labels = set(category_columns(cad.detector))
    return tuple(Feature(name, () if j in labels else None) for j, name in enumerate(names))


def _resolved(cad: ConformalDetector) -> Any:
    """The detector as what was fitted."""
    detector = cad.detector
    if isinstance(detector, Prepare):
        detector = detector.for_features(cad.features)
    return resolve_detector(detector, cad.larger_is, refit=not cad.plan_.row.frozen)
