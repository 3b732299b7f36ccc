"""The detectors that have a name: one row each, read by everything that lists or saves them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..methods import MOST_REFERENCE
from ..records.specs import DetectorRecord
from .auto.detector import AUTO_RECORD, Auto
from .base import NativeDetector
from .contrast.detector import Contrast
from .contrast.record import CONTRAST_RECORD
from .iforest.detector import IForest
from .iforest.record import IFOREST_RECORD
from .inne.detector import INNE
from .inne.record import INNE_RECORD
from .kde.detector import KDE
from .kde.record import KDE_RECORD
from .knn.detector import KNN
from .knn.record import KNN_RECORD
from .lof.detector import LOF
from .lof.record import LOF_RECORD
from .mahalanobis.detector import Mahalanobis
from .mahalanobis.record import MAHALANOBIS_RECORD


@dataclass(frozen=True)
class Entry:
    """A detector that users can choose by name.

    Attributes
    ----------
    name : str
        What users write.
    kind : type
        Its class; made without arguments.
    title : str
        Its name in tables.
    summary : str
        One line for help texts: what the score is.
    scale_matters : bool
        Whether another unit for a column changes its scores; then ``prepare`` rescales.
    record : DetectorRecord
        How it is saved.
    tried_with : tuple of dict
        The settings in which ``"auto"`` tries it; none, if it does not.
    quick : bool
        Whether ``"auto"`` tries it for very many rows, too.
    """

    name: str
    kind: type[NativeDetector]
    title: str
    summary: str
    scale_matters: bool
    record: DetectorRecord
    tried_with: tuple[dict[str, Any], ...] = ()
    quick: bool = False


AS_IT_IS: dict[str, Any] = {}
SCALED = {"scale": "robust"}


DETECTORS = {
    entry.name: entry
    for entry in (
        Entry(
            "knn",
            KNN,
            "k-Nearest Neighbors",
            "the distance to the nearest neighbours",
            scale_matters=True,
            record=KNN_RECORD,
            tried_with=(AS_IT_IS, SCALED),
            quick=True,
        ),
        Entry(
            "iforest",
            IForest,
            "Isolation Forest",
            "how soon random splits separate a row from the others",
            scale_matters=False,
            record=IFOREST_RECORD,
            tried_with=(AS_IT_IS,),
            quick=True,
        ),
        Entry(
            "inne",
            INNE,
            "Isolation-based Nearest-Neighbor Ensemble",
            "how large the spheres between random rows are where a row lies",
            scale_matters=True,
            record=INNE_RECORD,
            tried_with=(AS_IT_IS, SCALED),
            quick=True,
        ),
        Entry(
            "lof",
            LOF,
            "Local Outlier Factor",
            "how much thinner a row's neighbourhood is than those of its neighbours",
            scale_matters=True,
            record=LOF_RECORD,
            tried_with=(AS_IT_IS, SCALED),
        ),
        Entry(
            "mahalanobis",
            Mahalanobis,
            "Mahalanobis Distance",
            "the distance to the mean, measured by the scatter of the rows",
            scale_matters=True,
            record=MAHALANOBIS_RECORD,
            tried_with=(AS_IT_IS,),
            quick=True,
        ),
        Entry(
            "kde",
            KDE,
            "Kernel Density",
            "the density of Gaussian kernels around the other rows",
            scale_matters=True,
            record=KDE_RECORD,
            tried_with=(AS_IT_IS, SCALED),
        ),
        Entry(
            "contrast",
            Contrast,
            "Contrast kNN",
            "the distance to reference rows against that to the other new rows",
            scale_matters=True,
            record=CONTRAST_RECORD,
            tried_with=(AS_IT_IS, SCALED),
        ),
        Entry(
            "auto",
            Auto,
            "Choice of detector",
            "that of the detector which is chosen for a row, among all of these",
            scale_matters=False,
            record=AUTO_RECORD,
        ),
    )
}


def named(conjunction: str, *, with_shortcut: bool = False) -> str:
    """List the names of all detectors for a message, or of those that need no refits.

    Examples
    --------
    >>> named("or")
    "'knn', 'iforest'... or '...'"
    """
    names = [
        repr(entry.name)
        for entry in DETECTORS.values()
        if entry.kind.has_shortcut() or not with_shortcut
    ]
    return listed(names, conjunction)


def scale_matters_to() -> str:
    """List the detectors that see another unit of a column.

    Examples
    --------
    >>> scale_matters_to()
    'knn... and ...'
    """
    return listed([entry.name for entry in DETECTORS.values() if entry.scale_matters], "and")


def listed(words: list[str], conjunction: str) -> str:
    """Join words as a sentence does.

    Examples
    --------
    >>> listed(["a", "b", "c"], "and"), listed(["a"], "and")
    ('a, b and c', 'a')
    """
    *most, last = words
    return f"{', '.join(most)} {conjunction} {last}" if most else last


def offered(augments: bool, n: int = 0) -> list[NativeDetector]:
    """Make the detectors that ``"auto"`` tries.

    Parameters
    ----------
    augments : bool
        Whether the plan has a model for each new row; a split has no detector that compares these.
    n : int
        Reference rows: if they are very many, only quick detectors are tried.

    Examples
    --------
    >>> offered(False)[:2]
    [KNN(), KNN(scale='robust')]
    """
    return [
        entry.kind(**settings)
        for entry in DETECTORS.values()
        for settings in entry.tried_with
        if augments or not entry.kind.uses_batch
        if n <= MOST_REFERENCE or entry.quick
    ]


def entry_of(detector: object) -> Entry | None:
    """Return the row of a detector object, or None if its class has none."""
    return next((entry for entry in DETECTORS.values() if entry.kind is type(detector)), None)
