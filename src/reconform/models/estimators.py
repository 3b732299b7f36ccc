"""Detectors, fitted or not: native ones as parameters and arrays, all others through skops."""

from __future__ import annotations

import inspect
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn
from zipfile import ZIP_STORED, ZipFile

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from ..detectors import DETECTORS, INNE, Auto, NativeDetector, iforest, inne
from ..detectors.prepare import Prepare
from ..detectors.prepared import MOST, Prepared, label_counts
from ..detectors.registry import named
from ..display import printable
from ..ensemble import FEW_AT_ONCE
from ..errors import ModelFileError, ReconformError
from ..extras import extra
from ..records import (
    FLOAT,
    Array,
    Budget,
    Detector,
    DetectorRecord,
    Json,
    Plain,
    Reader,
    Spec,
    Writer,
    require,
)
from .archive import parse_json

# Trees do not say how many columns their rows have; more than this is a mistake.
MOST_FEATURES = 1 << 24

# The fitted attribute of a detector that scales.
UNITS_KEY = "units_"


# Detectors in a detector, each counted wherever it is referred to.
MOST_PARTS = 1 << 10

# What belongs to whoever runs a model and not to whoever wrote the file.
SETTINGS = ("n_jobs", "verbose")


def neutral(kind: type, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a class, with every setting at its default, and no generator that fits used up.

    Examples
    --------
    >>> from reconform import ConformalDetector
    >>> neutral(ConformalDetector, {"alpha": 0.2, "verbose": True})
    {'alpha': 0.2, 'verbose': 0}
    """
    known = inspect.signature(kind).parameters
    used = (np.random.Generator, np.random.RandomState)
    return {
        name: known[name].default
        if name in known and (name in SETTINGS or isinstance(value, used))
        else value
        for name, value in parameters.items()
    }


@dataclass
class DetectorsOut:
    """Detectors that are being written, each once.

    Attributes
    ----------
    entries : list
        What `model.json` says of each.
    dumps : list of bytes
        Foreign objects, by skops.
    types : set of str
        The types in them.
    """

    out: Writer = field(init=False)
    entries: list[Json] = field(default_factory=list)
    dumps: list[bytes] = field(default_factory=list)
    types: set[str] = field(default_factory=set)
    _known: dict[tuple[int, bool], int] = field(default_factory=dict)
    _kept: list[Any] = field(default_factory=list)  # so that no id is given twice
    _begun: int = 0

    def write(self, detector: Any, *, fitted: bool) -> int:
        """Keep a detector; return its number."""
        key = (id(detector), fitted)
        if key not in self._known:
            self._kept.append(detector)
            entry = self._entry(detector, fitted)  # first, so that parts have smaller numbers
            self._known[key] = len(self.entries)
            self.entries.append(entry)
        return self._known[key]

    def _entry(self, detector: Any, fitted: bool) -> Json:
        if _record_of(detector) is not None:
            return self._own(detector, fitted)
        if type(detector) is FrozenEstimator and _record_of(detector.estimator) is not None:
            return {"frozen": self.write(detector.estimator, fitted=True)}
        if not hasattr(detector, "fit") and not hasattr(detector, "split"):
            raise ReconformError(
                f"detector {getattr(detector, '__name__', detector)!r} is a bare function, and a "
                "function has no place in a file that is safe to load; write it as a class with "
                f"fit and score_samples, or use a detector that can be saved: {named('or')}, or "
                "any of scikit-learn and PyOD."
            )
        data, types = dump_foreign(detector if fitted else _unfitted(detector))
        self.dumps.append(data)
        self.types.update(types)
        return {"foreign": len(self.dumps) - 1}

    def _own(self, detector: Any, fitted: bool) -> Json:
        record = _record_of(detector)
        assert record is not None
        at = f"estimators/{self._begun}"
        self._begun += 1
        check_parameters(detector, self.out.budget)
        values = neutral(type(detector), detector.get_params(deep=False))
        entry = {
            "native": record.name,
            "parameters": Plain().write(values, f"{at}/parameters", self.out),
        }
        if fitted:
            columns = _columns_of(detector, detector.n_features_in_)
            out = replace(self.out, n_features=columns)
            entry["n_features"] = detector.n_features_in_
            entry["feature_names"] = names_in(detector)
            entry["fitted"] = {
                key: spec.write(getattr(detector, key), f"{at}/{key.strip('_')}", out)
                for key, spec in _fitted_specs(detector, hasattr(detector, "offset_")).items()
            }
        return entry


@dataclass
class DetectorsIn:
    """Detectors that are being read: each is made once, when it is asked for first.

    Attributes
    ----------
    entries : list
        What `model.json` says of each.
    foreign : list of objects
        Those that skops made.
    """

    entries: list[Json]
    foreign: list[Any]
    source: Reader = field(init=False)
    _made: dict[int, tuple[Any, int]] = field(default_factory=dict)
    _parts: int = 0
    _within: int | None = None  # the number of the detector that is being made

    def read(self, number: Json) -> Any:
        """Return the detector with a number; whoever visits its parts, visits shared ones again."""
        require(type(number) is int and 0 <= number < len(self.entries), "a detector is missing")
        inside = self._within is not None and number >= self._within
        require(not inside, "a detector contains itself")
        if number not in self._made:
            outside = self._parts, self._within
            self._parts, self._within = 0, number
            made = self._make(self.entries[number])
            require(self._parts < MOST_PARTS, "a detector has too many parts")
            self._made[number] = made, self._parts + 1
            self._parts, self._within = outside
        made, parts = self._made[number]
        self._parts += parts
        return made

    def _make(self, entry: Json) -> Any:
        match entry:
            case {"foreign": int(place)}:
                require(0 <= place < len(self.foreign), "an object is missing")
                return self.foreign[place]
            case {"frozen": int(inner)}:
                return FrozenEstimator(self.read(inner))
            case {"native": name, "parameters": parameters}:
                kind = next((kind for kind, one in kinds().items() if one.name == name), None)
                if kind is None:
                    raise ReconformError(f"no detector is called {name!r}")
                detector = kind(**neutral(kind, Plain().read(parameters, self.source)))
                check_parameters(detector, self.source.budget)
                if "fitted" in entry:
                    self._restore(detector, entry)
                return detector
        raise ReconformError("a detector is of no known kind")

    def _restore(self, detector: NativeDetector, entry: dict[str, Json]) -> None:
        specs = _fitted_specs(detector, "offset_" in entry["fitted"])
        require(set(entry["fitted"]) == set(specs), "the fit of a detector is incomplete")
        restore_columns(detector, entry["n_features"], entry["feature_names"])
        source = self.source
        for key, spec in specs.items():  # units come first: they say which columns a fit has
            if key != UNITS_KEY:
                columns = _columns_of(detector, entry["n_features"])
                source = replace(self.source, n_features=columns)
            setattr(detector, key, spec.read(entry["fitted"][key], source))
        if isinstance(detector, Prepared):
            _own_detector(detector.fitted_)
            fits = getattr(detector.fitted_, "n_features_in_", None) == source.n_features
            require(fits, "a detector was fitted on other columns")


# Detectors of ours that stand around others, and are no rows of the registry.
AROUND: Mapping[type, DetectorRecord] = {
    Prepare: DetectorRecord("Prepare", {}),
    Prepared: DetectorRecord("Prepared", {"fitted_": Detector(fitted=True)}),
}


def kinds() -> Mapping[type, DetectorRecord]:
    """Every detector of ours, those that were added to the registry meanwhile among them."""
    return {**{entry.kind: entry.record for entry in DETECTORS.values()}, **AROUND}


def _record_of(detector: Any) -> DetectorRecord | None:
    return kinds().get(type(detector))


def check_parameters(detector: Any, budget: Budget) -> None:
    """Refuse parameters that `fit` would refuse too late: detectors in detectors, and labels."""
    if isinstance(detector, Prepare):
        known = all(type(name) in (str, int) for name in detector.categories)
        require(known and detector.distance_based in (None, True, False), "a column is not named")
    if isinstance(detector, Prepared):
        _own_detector(detector.detector)
    inner = getattr(detector, "candidates", getattr(detector, "detector", None))
    for one in () if inner is None else inner if isinstance(detector, Auto) else (inner,):
        known = one in DETECTORS if isinstance(one, str) else hasattr(one, "fit")
        require(known, "a detector is of no known kind")
    labels = getattr(detector, "labels", None)
    if labels is not None:
        codes = [code for of in labels if isinstance(of, tuple) for code in of]
        counts = [of for of in labels if not isinstance(of, tuple)]
        right = all(type(code) is float and abs(code) <= MOST for code in codes)
        right = right and all(type(of) is int and 0 <= of <= MOST_FEATURES for of in counts)
        require(
            right and sum(label_counts(labels)) <= MOST_FEATURES,
            "the labels of a column are not counted",
        )
        # Units of new rows, some at a time, with a column for every label.
        budget.spend(FEW_AT_ONCE * sum(label_counts(labels)), "a detector")


def _own_detector(detector: Any) -> None:
    require(isinstance(detector, NativeDetector), "a detector is not one of reconform's")


def _fitted_specs(detector: NativeDetector, whole: bool) -> Mapping[str, Spec]:
    """What `fit` sets; the models of a plan, which are not whole detectors, have no offset."""
    units: Mapping[str, Spec] = {} if detector._units() is None else {UNITS_KEY: UNITS}
    offset: Mapping[str, Spec] = {"offset_": FLOAT} if whole else {}
    return {**units, **offset, **kinds()[type(detector)].fitted}


def _columns_of(detector: NativeDetector, d: int) -> int:
    """Count the columns of the rows that a detector was fitted on, as it measures them."""
    return d if detector._units() is None else columns_in(detector, detector.units_, d)


def names_in(estimator: Any) -> list[str] | None:
    """The names of the columns that an estimator was fitted on, if they had any."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def restore_columns(estimator: Any, n_features: Json, names: Json) -> None:
    """Set what `fit` learned about columns."""
    known = type(n_features) is int and 1 <= n_features <= MOST_FEATURES
    require(known, f"the number of features is {n_features!r}")
    estimator.n_features_in_ = n_features
    if names is not None:
        words = isinstance(names, list) and all(isinstance(name, str) for name in names)
        fits = words and len(names) == n_features
        require(fits, "the names of the features do not fit their number")
        estimator.feature_names_in_ = np.array(names, dtype=object)


def _unfitted(detector: Any) -> Any:
    """Copy a detector without attributes that an earlier fit of it has set."""
    return clone(detector) if hasattr(detector, "get_params") else detector


# --- units that rows are measured in, and what a fit takes ---

UNITS = Array("i8", ndim=1)


def columns_in(detector: Any, units: Any, d: int) -> int:
    """Count the columns of rows of d columns in these units; refuse what are none."""
    require(isinstance(detector, NativeDetector), "a detector is not one of reconform's")
    ways = detector._units()
    require(ways is not None, "a detector does not scale")
    assert ways is not None
    width: int = ways.check(units, d)
    return width


def refit_units(detector: Any, n: int, d: int) -> int:
    """Units (see `Budget`) of a fit on n rows of d columns, by what a file says of the detector."""
    if isinstance(detector, Auto):
        named = [one for one in detector.candidates or () if not isinstance(one, str)]
        return sum(refit_units(one, n, d) for one in named)
    if isinstance(detector, Prepare | Prepared):
        return refit_units(detector.detector, n, d)
    trees, near = largest_count(detector, "n_estimators"), largest_count(detector, "n_neighbors")
    spheres = isinstance(detector, INNE)
    auto = (inne if spheres else iforest).AUTO_SAMPLES
    drawn = min(n, largest_count(detector, "max_samples", share=n, word=auto))
    each = 16 * drawn + (drawn * drawn * d // 8 if spheres else 0)
    return trees * each + n * min(near, n) + largest_count(detector, "leaf_size") * d


def largest_count(detector: Any, name: str, *, share: int = 0, word: int = 0) -> int:
    """The largest number that a parameter names; `fit` refuses what is none."""
    value = getattr(detector, name, 0)
    if isinstance(value, float | str):
        return share if isinstance(value, float) else word
    several = value if isinstance(value, list | tuple | np.ndarray) else [value]
    return max((int(k) for k in several if isinstance(k, int | np.integer)), default=0)


# --- objects of others, through skops: what it makes of them runs code of other libraries -------

SCHEMA = "schema.json"  # of skops
MOST_SHOWN = 20


def _skops(doing: str) -> ModuleType:
    return extra(
        "skops.io", "skops", f"{doing} a model with objects of scikit-learn, PyOD or others"
    )


def dump_foreign(thing: Any) -> tuple[bytes, list[str]]:
    """Write an object, and refuse one that cannot be made again.

    Returns what skops made of it, not compressed, and the types and functions in it.
    """
    io_ = _skops("saving")
    try:
        data: bytes = io_.dumps(thing)
        make_foreign([data])
        return data, types_in(data)
    except Exception as error:
        raise ReconformError(
            f"{type(thing).__name__} cannot be saved: {error}. Lambdas, and functions and classes "
            "made inside a function, cannot be found again by name; define them in a module."
        ) from error


def types_in(data: bytes) -> list[str]:
    """Name the types and functions in what skops wrote; nothing of it is made."""
    with ZipFile(io.BytesIO(data)) as dumped:
        schema = dumped.getinfo(SCHEMA)
        stored = schema.compress_type == ZIP_STORED and schema.file_size <= len(data)
        require(stored, "an object is not stored as skops does it")
        waiting = [parse_json(dumped.read(schema))]
    found = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            module, kind = node.get("__module__"), node.get("__class__")
            named = isinstance(module, str) and isinstance(kind, str) and module != "builtins"
            if named and node.get("__loader__") != "NdArrayNode":  # plain numbers
                found.add(f"{module}.{kind}")
        if isinstance(node, dict | list):
            waiting.extend(node.values() if isinstance(node, dict) else node)
    return sorted(found)


def refuse_foreign(types: Sequence[str], *, path: str | Path) -> NoReturn:
    """Refuse a model with objects of these types, which its caller does not trust."""
    more = [f"{len(types) - MOST_SHOWN:,} more"] if len(types) > MOST_SHOWN else []
    raise ModelFileError(
        f"{path}: the model contains objects of other libraries "
        f"({printable(', '.join([*types[:MOST_SHOWN], *more]))}), and these are as safe as the "
        "person who made them. If you know where the file comes from, give `trusted=True`."
    )


def make_foreign(dumps: Sequence[bytes]) -> list[Any]:
    """Make the objects of the dumps."""
    if not dumps:
        return []
    io_ = _skops("loading")
    return [io_.loads(data, trusted=io_.get_untrusted_types(data=data)) for data in dumps]
