"""Detectors, fitted or not: native ones as parameters and arrays, all others through skops."""

from __future__ import annotations

import inspect
import io
import sys
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
from ..detectors.prepared import MOST, Labels, Prepared, label_counts
from ..detectors.registry import entry_of, named
from ..display import printable
from ..ensemble import FEW_AT_ONCE
from ..errors import ModelFileError, ReconformError
from ..extras import extra
from ..records import FLOAT, Array, DetectorRecord, Json, Plain, Reader, Spec, Writer, require
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
        if entry_of(detector) is not None:
            return self._native(detector, fitted)
        if type(detector) is Prepared:
            return self._prepared(detector, fitted)
        if type(detector) is Prepare:
            inner = detector.detector
            scales = detector.distance_based
            return {
                "prepare": inner if isinstance(inner, str) else self.write(inner, fitted=False),
                "categories": list(detector.categories),
                "distance_based": None if scales is None else bool(scales),
            }
        if type(detector) is FrozenEstimator and entry_of(detector.estimator) is not None:
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

    def _native(self, detector: NativeDetector, fitted: bool) -> Json:
        record = _record_of(detector)
        at = f"estimators/{len(self.entries)}"
        values = neutral(type(detector), detector.get_params(deep=False))
        candidates, labels = (
            values.pop(name, None) if isinstance(detector, Auto) else None
            for name in ("candidates", "labels")
        )
        parameters = Plain().write(values, f"{at}/parameters", self.out)
        entry = {"native": record.name, "parameters": parameters}
        if candidates is not None:
            entry["candidates"] = [
                one if isinstance(one, str) else self.write(one, fitted=False) for one in candidates
            ]
        if labels is not None:
            entry["labels"] = self._codes(labels)
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

    def _codes(self, labels: Labels) -> Json:
        self.out.budget.spend(label_units(labels), "a detector")
        return [
            [int(code) for code in codes] if isinstance(codes, tuple) else int(codes)
            for codes in labels
        ]

    def _prepared(self, detector: Prepared, fitted: bool) -> Json:
        at = f"estimators/{len(self.entries)}"
        entry = {
            "prepared": self.write(detector.detector, fitted=False),
            "labels": self._codes(detector.labels),
            "scaled": bool(detector.scaled),
            "contamination": FLOAT.write(detector.contamination, f"{at}/contamination", self.out),
        }
        if fitted:
            entry["fit"] = {
                "detector": self.write(detector.fitted_, fitted=True),
                "units": UNITS.write(detector.units_, f"{at}/units", self.out),
                "offset": FLOAT.write(detector.offset_, f"{at}/offset", self.out),
                "n_features": detector.n_features_in_,
                "feature_names": names_in(detector),
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

    def read(self, number: Json) -> Any:
        """Return the detector with a number; whoever visits its parts, visits shared ones again."""
        require(type(number) is int and 0 <= number < len(self.entries), "a detector is missing")
        if number not in self._made:
            outside, self._parts = self._parts, 0
            made = self._make(self.entries[number], number)
            require(self._parts < MOST_PARTS, "a detector has too many parts")
            self._made[number] = made, self._parts + 1
            self._parts = outside
        made, parts = self._made[number]
        self._parts += parts
        return made

    def _make(self, entry: Json, number: int) -> Any:
        match entry:
            case {"foreign": int(place)}:
                require(0 <= place < len(self.foreign), "an object is missing")
                return self.foreign[place]
            case {"frozen": int(inner)} if inner < number:
                return FrozenEstimator(self.read(inner))
            case {"prepared": int(inner), "labels": list(labels), "scaled": bool(), **_rest}:
                require(inner < number, "a detector contains itself")
                return self._make_prepared(inner, labels, entry, entry.get("fit"))
            case {"prepare": inner, "categories": list(names), "distance_based": scales}:
                known = all(type(name) in (str, int) for name in names)
                require(known and scales in (None, True, False), "a column is not named")
                if type(inner) is int:
                    require(inner < number, "a detector contains itself")
                    inner = self.read(inner)
                elif not isinstance(inner, str) or inner not in DETECTORS:
                    raise ReconformError("a detector is of no known kind")
                return Prepare(inner, categories=tuple(names), distance_based=scales)
            case {"native": kind, "parameters": parameters}:
                native = _kind_named(kind)
                detector = native(**neutral(native, Plain().read(parameters, self.source)))
                if "labels" in entry:
                    require(isinstance(detector, Auto), "a detector takes no labels")
                    detector.labels = self._labels(entry["labels"])
                if "candidates" in entry:
                    self._restore_candidates(detector, entry["candidates"], number)
                if "fitted" in entry:
                    self._restore(detector, entry)
                return detector
        raise ReconformError("a detector is of no known kind")

    def _labels(self, labels: list[Json]) -> Labels:
        require(isinstance(labels, list), "the labels of a column are not counted")
        codes = [
            tuple(float(code) for code in of if type(code) is int and abs(code) <= MOST)
            if type(of) is list
            else of
            for of in labels
        ]
        right = all(
            isinstance(of, tuple) or (type(of) is int and 0 <= of <= MOST_FEATURES) for of in codes
        )
        require(
            right and sum(label_counts(codes)) <= MOST_FEATURES,
            "the labels of a column are not counted",
        )
        self.source.budget.spend(label_units(codes), "a detector")
        return tuple(codes)

    def _make_prepared(self, inner: int, labels: list[Json], entry: Json, fit: Json) -> Prepared:
        detector = Prepared(
            self.read(inner),
            self._labels(labels),
            FLOAT.read(entry["contamination"], self.source),
            scaled=entry["scaled"],
        )
        require(
            isinstance(detector.detector, NativeDetector), "a detector is not one of reconform's"
        )
        if fit is not None:
            restore_columns(detector, fit["n_features"], fit["feature_names"])
            detector.units_ = UNITS.read(fit["units"], self.source)
            detector.offset_ = FLOAT.read(fit["offset"], self.source)
            detector.fitted_ = self.read(fit["detector"])
            require(
                isinstance(detector.fitted_, NativeDetector), "a detector is not one of reconform's"
            )
            columns = columns_in(detector, detector.units_, detector.n_features_in_)
            fits = getattr(detector.fitted_, "n_features_in_", None) == columns
            require(fits, "a detector was fitted on other columns")
        return detector

    def _restore_candidates(self, detector: NativeDetector, listed: Json, number: int) -> None:
        require(
            isinstance(detector, Auto) and isinstance(listed, list),
            "the candidates of a choice are missing",
        )
        assert isinstance(detector, Auto)
        known = all(one in DETECTORS or (type(one) is int and one < number) for one in listed)
        require(known and len(listed) > 0, "a candidate is missing")
        detector.candidates = [one if isinstance(one, str) else self.read(one) for one in listed]

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


def _record_of(detector: NativeDetector) -> DetectorRecord:
    entry = entry_of(detector)
    assert entry is not None
    return entry.record


def _kind_named(name: Json) -> type[NativeDetector]:
    kinds = {entry.record.name: entry.kind for entry in DETECTORS.values()}
    require(isinstance(name, str) and name in kinds, f"no detector is called {name!r}")
    return kinds[name]


def _fitted_specs(detector: NativeDetector, whole: bool) -> Mapping[str, Spec]:
    """What `fit` sets; the models of a plan, which are not whole detectors, have no offset."""
    units: Mapping[str, Spec] = {} if detector._units() is None else {UNITS_KEY: UNITS}
    offset: Mapping[str, Spec] = {"offset_": FLOAT} if whole else {}
    return {**units, **offset, **_record_of(detector).fitted}


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


def label_units(labels: Labels) -> int:
    """Units (see `Budget`) of new rows, some at a time, with a column for every label."""
    return FEW_AT_ONCE * sum(label_counts(labels))


# --- objects of others, through skops: what it makes of them runs code of other libraries -------

SCHEMA = "schema.json"  # of skops
MOST_SHOWN = 20


def _skops(doing: str) -> ModuleType:
    return extra(
        "skops.io", "skops", f"{doing} a model with objects of scikit-learn, PyOD or others"
    )


def dump_foreign(thing: Any) -> tuple[bytes, list[str]]:
    """Write an object; refuse one that could not be found again by the names of its types.

    Returns what skops made of it, not compressed, and the types and functions in it.
    """
    io_ = _skops("saving")
    name = type(thing).__name__
    try:
        data: bytes = io_.dumps(thing)
        types = types_in(data)
    except Exception as error:
        raise ReconformError(f"{name} cannot be saved: {error}") from error
    lost = [known for known in types if not _can_be_found(known)]
    if lost:
        raise ReconformError(
            f"{name} cannot be saved: it contains {', '.join(lost)}, which cannot be found again "
            "by name. Lambdas, and functions and classes made inside a function, have no place in "
            "a model file; define them in a module."
        )
    return data, types


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


def _can_be_found(name: str) -> bool:
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        thing: Any = sys.modules.get(".".join(parts[:cut]))
        if thing is not None:
            for part in parts[cut:]:
                thing = getattr(thing, part, None)
            return thing is not None
    return False


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
