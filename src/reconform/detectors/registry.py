"""The detectors that have a name: one row each, read by everything that lists or saves them.

A command line writes ``knn``, ``sklearn:OneClassSVM``, ``pyod:ECOD`` (`make_detector`). Only
classes of the installed scikit-learn and PyOD are found, by the name of the class. Python code
passes the object instead, and a model file never names a class to be looked up here.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from sklearn.base import BaseEstimator

from ..errors import ReconformError, nearest, unknown_choice
from ..extras import extra
from ..methods import MOST_REFERENCE
from ..records import DetectorRecord
from .auto import AUTO_RECORD, Auto
from .base import NativeDetector
from .contrast import CONTRAST_RECORD, Contrast
from .contrast_forest import CONTRAST_FOREST_RECORD, ContrastForest
from .extreme import EXTREME_RECORD, Extreme
from .foreign import adapt
from .iforest import IFOREST_RECORD, IForest
from .inne import INNE, INNE_RECORD
from .kde import KDE, KDE_RECORD
from .knn import KNN, KNN_RECORD
from .lof import LOF, LOF_RECORD
from .mahalanobis import MAHALANOBIS_RECORD, Mahalanobis
from .rarity import RARITY_RECORD, Rarity


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
            "rarity",
            Rarity,
            "Rarest Value",
            "how rare the rarest of a row's values is in its column",
            scale_matters=False,
            record=RARITY_RECORD,
            tried_with=(AS_IT_IS,),
            quick=True,
        ),
        Entry(
            "extreme",
            Extreme,
            "Farthest Value",
            "how far the farthest of a row's values lies out in its column",
            scale_matters=False,
            record=EXTREME_RECORD,
        ),
        Entry(
            "contrast",
            Contrast,
            "Contrast kNN",
            "the distance to reference rows against that to the other new rows",
            scale_matters=True,
            record=CONTRAST_RECORD,
            tried_with=(AS_IT_IS,),
        ),
        Entry(
            "contrast-forest",
            ContrastForest,
            "Contrast Forest",
            "how many trees that tell new rows from reference rows call a row new",
            scale_matters=False,
            record=CONTRAST_FOREST_RECORD,
            tried_with=(AS_IT_IS,),
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


def named(conjunction: str) -> str:
    """List the names of all detectors for a message.

    Examples
    --------
    >>> named("or")
    "'knn', 'iforest'... or '...'"
    """
    return listed([repr(name) for name in DETECTORS], conjunction)


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


# Where scikit-learn keeps what scores rows; importing all of it takes seconds.
SKLEARN_MODULES = ("covariance", "ensemble", "linear_model", "mixture", "neighbors", "svm")


def make_detector(name: str, settings: Mapping[str, Any] | None = None) -> Any:
    """Make a detector from its name.

    Parameters
    ----------
    name : str
        One of ours, ``sklearn:CLASS``, ``pyod:CLASS``, or what an installed package added.
    settings : mapping, optional
        Parameters that differ from their defaults.

    Returns
    -------
    str or estimator
        The name itself where it is ours and nothing is set; otherwise an object, not fitted.

    Examples
    --------
    >>> make_detector("knn", {"n_neighbors": 10})
    KNN(n_neighbors=10)
    >>> make_detector("sklearn:LocalOutlierFactor")
    LocalOutlierFactor(novelty=True)
    """
    if name in DETECTORS:
        return with_settings(name, DETECTORS[name].kind(), settings) if settings else name
    added = from_other_package(name)
    if added is not None:
        return with_settings(name, added, settings)
    library, colon, kind = name.partition(":")
    if not colon or library not in _LIBRARIES or not kind.isidentifier():
        if colon:
            raise ReconformError(
                f"`detector` {name!r} is not known; other detectors are written sklearn:CLASS or "
                "pyod:CLASS, for example sklearn:OneClassSVM."
            )
        raise unknown_choice("detector", name, [*DETECTORS, "sklearn:CLASS", "pyod:CLASS"])
    made = _LIBRARIES[library](kind)()
    if "novelty" in made.get_params():  # of LocalOutlierFactor: whether it can score new rows
        made.set_params(novelty=True)
    made = with_settings(name, made, settings or {})
    adapt(made)  # says it if the class scores no rows
    return made


# The group of entry points by which other packages add detectors: a name, and a class or function
# that makes one without arguments.
ADDED = "reconform.detectors"


def from_other_package(name: str) -> Any:
    """Make a detector that an installed package added under this name; None if there is none."""
    found = entry_points(group=ADDED, name=name)
    return next((one.load()() for one in found), None)


def with_settings(name: str, detector: Any, settings: Mapping[str, Any] | None) -> Any:
    """Set parameters of a detector; refuse those that it does not have."""
    known = detector.get_params(deep=False)
    for parameter in settings or {}:
        if parameter not in known:
            hint = nearest(parameter, list(known)) or f" It has {', '.join(known) or 'none'}."
            raise ReconformError(f"{name} has no parameter {parameter!r}.{hint}")
    return detector.set_params(**settings) if settings else detector


def parse_setting(text: str) -> tuple[str, Any]:
    """Read ``NAME=VALUE``: a number, True, False, None, a list or tuple of these, or a word.

    Examples
    --------
    >>> parse_setting("n_neighbors=10"), parse_setting("kernel=rbf"), parse_setting("gamma=0.1")
    (('n_neighbors', 10), ('kernel', 'rbf'), ('gamma', 0.1))
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise ReconformError(f"{text!r} must have the form NAME=VALUE, such as n_neighbors=10.")
    try:
        read = ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        read = value.strip()  # a word
    return name.strip(), read


# --- where classes are found ---------------------------------------------------------------------


def _sklearn_class(name: str) -> type[Any]:
    found = {}
    for part in SKLEARN_MODULES:
        module = importlib.import_module(f"sklearn.{part}")
        if name in module.__all__:
            kind = getattr(module, name)
            if isinstance(kind, type) and issubclass(kind, BaseEstimator):
                return kind
        found.update(dict.fromkeys(module.__all__))
    raise _unknown(name, "scikit-learn", list(found))


def _pyod_class(name: str) -> type[Any]:
    """Find a class by the module that has its name; other modules may need more packages."""
    models = extra("pyod.models", "pyod", f"the detector pyod:{name}")
    base = importlib.import_module("pyod.models.base").BaseDetector
    modules = {
        module.name.replace("_", ""): module.name
        for module in pkgutil.iter_modules(models.__path__)
    }
    if name.lower() in modules:
        try:
            module = importlib.import_module(f"pyod.models.{modules[name.lower()]}")
        except ImportError as error:
            raise ReconformError(
                f"pyod:{name} cannot be imported: {error}. It needs more packages."
            ) from error
        kind = getattr(module, name, None)
        if isinstance(kind, type) and issubclass(kind, base):
            return kind
        own = [n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, base)]
        raise _unknown(name, "PyOD", own)
    raise _unknown(name, "PyOD", list(modules))


_LIBRARIES = {"sklearn": _sklearn_class, "pyod": _pyod_class}


def _unknown(name: str, library: str, names: Sequence[str]) -> ReconformError:
    hint = nearest(name, names)
    return ReconformError(f"`detector`: {library} has no detector called {name!r}.{hint}")
