"""How values become JSON and arrays, and back: a few specifications to describe classes with.

A class that may stand in a file is described field by field (`Record`); the descriptions together
are the format. Writing and reading both go by the description, so that a file can neither name a
class nor set an attribute that is not described, and an object comes into being without any of
its code being run. Every record may state what must hold for its values (`check`): compiled
kernels do not check their indices, so a file must not be able to send them out of bounds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from .arrays import AnyArray
from .errors import ReconformError

Json = Any


# --- what must hold for values from a file, before compiled code relies on it ---


def require(holds: object, what: str) -> None:
    """Raise an error with this message unless the condition holds."""
    if not holds:
        raise ReconformError(what)


def within(array: AnyArray, low: int, high: int) -> bool:
    """Whether low <= x < high for all entries."""
    return not array.size or bool(low <= array.min() and array.max() < high)


def increasing(indptr: AnyArray, last: int) -> bool:
    """Whether an array of bounds runs from 0 to `last` and never back."""
    ends = bool(len(indptr)) and indptr[0] == 0 and indptr[-1] == last
    return bool(ends and (np.diff(indptr) >= 0).all())


def ascending(array: AnyArray, *, strictly: bool = False) -> bool:
    """Whether entries never fall, or always rise."""
    before, after = array[:-1], array[1:]
    return bool((before < after).all() if strictly else (before <= after).all())


def check_models(models: int, ensemble: Any) -> None:
    """Refuse an ensemble with another number of resampled models than its plan keeps."""
    plan = ensemble.plan
    wanted = plan.n_models if plan.full and plan.variant != "basic" else 0
    require(models == wanted, "the ensemble has another number of models than its plan")


def check_kept(kept: Any, plan: Any) -> None:
    """Refuse an ensemble that has what only other variants keep, or lacks what its own does."""
    retained = plan.variant != "basic"
    require((kept is not None) == retained, "the ensemble does not suit the variant of its plan")


def check_reference(n: int, ensemble: Any) -> None:
    """Refuse a full-conformal ensemble whose reference does not have n rows."""
    require(n == len(ensemble.calibration), "the reference has another size than its scores")


def expected_entries(limits: AnyArray, every: AnyArray | bool) -> float:
    """Count the trees or sets that a new row enters on average: all, or by the limits of hashes."""
    return float(np.where(every, 1.0, limits.astype(np.float64) / 2.0**64).sum())


def check_entries(entered: float, drawn: int, n: int) -> None:
    """Refuse limits of hashes that let a new row enter more than n rows and `drawn` draws of them.

    A limit is the largest of the smallest hashes. Among hashes as they fall, the sum of limits is
    near to its mean: three times as much, and one more, never comes.
    """
    require(entered <= 3 * drawn / (n + 1) + 1, "a new row would enter too many trees or sets")


# --- what is written and read ---


class Keeper(Protocol):
    """Writes detectors, each once, however many objects refer to it."""

    def write(self, detector: Any, *, fitted: bool) -> int:
        """Keep a detector; return its number."""
        ...


class Kept(Protocol):
    """Reads the detectors that a `Keeper` wrote."""

    def read(self, number: Json) -> Any:
        """Return the detector with a number."""
        ...


# What a model may take that is not in its file: so much in any case, and so much for every byte of
# the file as it lies on disk, where padding that compresses well counts for little. A unit is a
# number in memory, or a step (a nanosecond at most) of the work for one new row.
FREE_UNITS, UNITS_PER_BYTE = 1 << 24, 16


@dataclass
class Budget:
    """Memory and work that the numbers in a file ask for, beyond what the file itself holds.

    Attributes
    ----------
    size : int or None
        Bytes of the file; None while it is being written.
    spent : int
        Units so far.
    """

    size: int | None = None
    spent: int = 0

    def spend(self, units: int, what: str) -> None:
        """Add to what is spent; refuse what a file of this size cannot have been made for."""
        self.spent += max(units, 0)
        require(
            self.size is None or self.allows(self.size),
            f"{what} would take far more memory or time than a file of {self.size} bytes may",
        )

    def allows(self, size: int) -> bool:
        """Whether a file of this size may ask for what is spent."""
        return self.spent <= FREE_UNITS + UNITS_PER_BYTE * size


# Keeps no detectors and no arrays.
NOBODY: Any = None


@dataclass
class Writer:
    """What is being written.

    Attributes
    ----------
    estimators : Keeper
    n_features : int
        Columns of the rows that come in.
    arrays : dict of str to array
        Members, by name.
    budget : Budget
    """

    estimators: Keeper
    n_features: int
    arrays: dict[str, AnyArray] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)

    @classmethod
    def of_json(cls) -> Writer:
        """For values without detectors, whose arrays go nowhere."""
        return cls(NOBODY, 0)

    def array(self, array: AnyArray, at: str) -> str:
        """Keep an array; return the name of its member."""
        name = f"{at.replace('/_', '/')}.npy"
        require(name not in self.arrays, f"two arrays are called {name}")
        self.arrays[name] = array
        return name


@dataclass
class Reader:
    """What is being read.

    Attributes
    ----------
    load : callable
        From the name of an array to the array.
    budget : Budget
    estimators : Kept
    n_features : int
        Columns of the rows that will come in.
    unread : set of str
        Arrays that nothing has asked for yet. An array belongs to one place.
    """

    load: Callable[[str], AnyArray]
    budget: Budget
    estimators: Kept
    n_features: int
    unread: set[str]

    @classmethod
    def of_json(cls) -> Reader:
        """For values without detectors and arrays."""
        return cls(lambda name: NOBODY, Budget(), NOBODY, 0, set())

    def array(self, name: Json) -> AnyArray:
        """Read an array."""
        require(
            isinstance(name, str) and name in self.unread, f"there is no array {name!r} to read"
        )
        self.unread.remove(name)
        array = self.load(name)
        if not array.size:  # it takes no bytes, whatever its shape says
            self.budget.spend(math.prod(max(size, 1) for size in array.shape), name)
        return array


class Spec(Protocol):
    """How one kind of value is written and read."""

    def write(self, value: Any, at: str, out: Writer) -> Json:
        """Return the value as JSON; its arrays go to `out`, under the name `at`."""
        ...

    def read(self, json: Json, source: Reader) -> Any:
        """Return the value, or raise ValueError for what was never written."""
        ...


class Scalar:
    """A number, a word or a flag: one of these types, exactly."""

    def __init__(self, *types: type | None) -> None:
        self.types = tuple(type(None) if kind is None else kind for kind in types)

    def write(self, value: Any, at: str, out: Writer) -> Json:
        """Write infinity, which JSON lacks, as a word."""
        value = value.item() if isinstance(value, np.generic) else value
        require(type(value) in self.types, f"{at} cannot be {value!r}")
        return repr(value) if isinstance(value, float) and not math.isfinite(value) else value

    def read(self, json: Json, source: Reader) -> Any:
        """Read one of the types."""
        if float in self.types and json in ("inf", "-inf"):
            return float(json)
        require(type(json) in self.types, f"a value is {json!r}, and should be one of {self.types}")
        return json


class Setting:
    """A setting of the machine that runs a model, such as threads: it is read as its default."""

    def __init__(self, *types: type | None, default: Any) -> None:
        self.spec, self.default = Scalar(*types), default

    def write(self, value: Any, at: str, out: Writer) -> Json:
        """Write the default."""
        return self.default

    def read(self, json: Json, source: Reader) -> Any:
        """Read the default, whatever stands there."""
        self.spec.read(json, source)
        return self.default


class Array:
    """An array of one of these types, with so many dimensions."""

    def __init__(self, *dtypes: str, ndim: int) -> None:
        self.dtypes = [np.dtype(dtype) for dtype in dtypes]
        self.ndim = ndim

    def write(self, value: AnyArray, at: str, out: Writer) -> Json:
        """Keep the array; integers that can only be of one type are stored in fewer bytes."""
        require(value.dtype in self.dtypes, f"{at} cannot be an array of {value.dtype}")
        require(value.ndim == self.ndim, f"{at} cannot have {value.ndim} dimensions")
        return out.array(narrowed(value) if len(self.dtypes) == 1 else value, at)

    def read(self, json: Json, source: Reader) -> AnyArray:
        """Read the array, in the type that was written."""
        array = source.array(json)
        require(array.ndim == self.ndim, f"{json} has {array.ndim} dimensions")
        if len(self.dtypes) == 1:
            return widened(array, self.dtypes[0])
        require(array.dtype in self.dtypes, f"{json} is an array of {array.dtype}")
        return array


class Named:
    """One of a few functions of ours, by a name."""

    def __init__(self, **choices: Any) -> None:
        self.choices = choices

    def write(self, value: Any, at: str, out: Writer) -> Json:
        """Write the name."""
        for name, choice in self.choices.items():
            if choice is value:
                return name
        raise ReconformError(f"{at} cannot be {value!r}")

    def read(self, json: Json, source: Reader) -> Any:
        """Look the name up."""
        return self.choices[json]


class Maybe:
    """Something, or None."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def write(self, value: Any, at: str, out: Writer) -> Json:
        """Write None as it is."""
        return None if value is None else self.spec.write(value, at, out)

    def read(self, json: Json, source: Reader) -> Any:
        """Read None as it is."""
        return None if json is None else self.spec.read(json, source)


class Many:
    """A list of such things."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def write(self, value: Any, at: str, out: Writer) -> Json:
        """Write one after the other."""
        return [self.spec.write(item, f"{at}/{k}", out) for k, item in enumerate(value)]

    def read(self, json: Json, source: Reader) -> list[Any]:
        """Read one after the other."""
        require(isinstance(json, list), "a list is missing")
        return [self.spec.read(item, source) for item in json]


class Detector:
    """A detector, kept among the estimators; fitted or as it was before `fit`."""

    def __init__(self, *, fitted: bool) -> None:
        self.fitted = fitted

    def write(self, value: Any, at: str, out: Writer) -> Json:
        """Write its number."""
        return out.estimators.write(value, fitted=self.fitted)

    def read(self, json: Json, source: Reader) -> Any:
        """Read the one with that number."""
        return source.estimators.read(json)


@dataclass(frozen=True)
class Record:
    """A class, field by field.

    Attributes
    ----------
    name : str
        What the kind is called in a file. It never changes, whatever happens to the class.
    kind : type
    fields : mapping of str to Spec
        All that is stored. Whatever else an object has follows from it.
    check : callable, optional
        ``check(value, n_features)`` refuses, by `require`, what would not be safe to use.
    cost : callable, optional
        ``cost(value)`` says how many units (see `Budget`) using it may take beyond what is stored:
        for every number of a file that decides how much is allocated, or how long a loop is.
    """

    name: str
    kind: type
    fields: Mapping[str, Spec]
    check: Callable[[Any, int], object] | None = None
    cost: Callable[[Any], int] | None = None

    def write(self, value: Any, at: str, out: Writer) -> Json:
        """Write the fields under their names."""
        require(type(value) is self.kind, f"{at} cannot be a {type(value).__name__}")
        if self.check is not None:  # what would be refused is not written
            self.check(value, out.n_features)
        if self.cost is not None:
            out.budget.spend(self.cost(value), f"the {self.name}")
        return {
            "kind": self.name,
            **{
                key: s.write(getattr(value, key), f"{at}/{key}", out)
                for key, s in self.fields.items()
            },
        }

    def read(self, json: Json, source: Reader) -> Any:
        """Make an object of the fields; its own code is not run."""
        return self.make(json, source, {})

    def make(self, json: Json, source: Reader, more: Mapping[str, Any]) -> Any:
        """Make an object of the fields, and of `more` that is known already."""
        require(
            isinstance(json, dict) and set(json) == {"kind", *self.fields},
            f"the fields of a {self.name} are not what they should be",
        )
        require(json["kind"] == self.name, f"a {self.name} is missing")
        value: Any = object.__new__(self.kind)
        read = {key: spec.read(json[key], source) for key, spec in self.fields.items()}
        for key, item in {**more, **read}.items():
            object.__setattr__(value, key, item)  # a frozen dataclass is set like any other
        if self.cost is not None:  # first: a check may take as much as it says
            source.budget.spend(self.cost(value), f"the {self.name}")
        if self.check is not None:
            self.check(value, source.n_features)
        return value


def record_of(
    name: str, kind: type, check: Callable[[Any, int], object] | None = None, **others: Spec
) -> Record:
    """Describe a dataclass by the types of its fields; `others` are those that are not scalars."""
    types = {"int": int, "float": float, "bool": bool, "str": str, "None": None}
    described = {
        one.name: others.get(one.name) or Scalar(*(types[t] for t in str(one.type).split(" | ")))
        for one in fields(kind)
    }
    return Record(name, kind, described, check)


class OneOf:
    """One of several records."""

    def __init__(self, *records: Record) -> None:
        self.records = {record.name: record for record in records}

    def write(self, value: Any, at: str, out: Writer) -> Json:
        """Write by the record of its class."""
        for record in self.records.values():
            if record.kind is type(value):
                return record.write(value, at, out)
        raise ReconformError(f"a {type(value).__name__} is not expected here")

    def read(self, json: Json, source: Reader) -> Any:
        """Read by the record that is named."""
        require(isinstance(json, dict), "a record is missing")
        return self.record(json.get("kind")).read(json, source)

    def record(self, name: Any) -> Record:
        """Look a record up by its name."""
        require(isinstance(name, str) and name in self.records, f"a {name} is not expected here")
        return self.records[name]


@dataclass(frozen=True)
class DetectorRecord:
    """How one of our own detectors is saved.

    Attributes
    ----------
    name : str
        What it is called in a file. It never changes.
    fitted : mapping of str to Spec
        The attributes that `_fit_rows` sets.
    models : tuple of Record
        What its `fit_model` makes, if that is not the default.
    ensembles : tuple of Record
        What its `_fit_together` makes.
    """

    name: str
    fitted: Mapping[str, Spec]
    models: tuple[Record, ...] = ()
    ensembles: tuple[Record, ...] = ()


# Specifications that many records need.
INT, FLOAT = Scalar(int), Scalar(float)
JOBS = Setting(int, None, default=None)
ROWS, SCORES, SUMS = Array("f8", ndim=2), Array("f8", ndim=1), Array("i8", ndim=1)


# --- small integers ------------------------------------------------------------------------------


def narrowed(array: AnyArray) -> AnyArray:
    """Write integers in the smallest unsigned type that holds them, if one does.

    Examples
    --------
    >>> import numpy as np
    >>> narrowed(np.array([3, 300])).dtype, narrowed(np.array([-1, 300])).dtype
    (dtype('uint16'), dtype('int64'))
    """
    if array.dtype.kind not in "iu" or not array.size or array.min() < 0:
        return array
    smallest = np.min_scalar_type(int(array.max()))
    return array.astype(smallest) if smallest.itemsize < array.dtype.itemsize else array


def widened(array: AnyArray, dtype: np.dtype[Any]) -> AnyArray:
    """Undo `narrowed`; refuse any other type."""
    if array.dtype == dtype:
        return array
    if not (dtype.kind in "iu" and array.dtype.kind == "u" and array.itemsize < dtype.itemsize):
        raise ReconformError(f"an array is of {array.dtype}, and should be of {dtype}")
    return array.astype(dtype)


# --- parameters: plain values of Python and NumPy, exactly as they were ---

MOST_POOL = 1 << 10  # NumPy's default is 4
MOST_WORDS = 1 << 12

_NUMBER = re.compile(r"[<>|=]?[biuf]\d{1,2}")


class Plain:
    """Any value made of numbers, words, arrays, seeds, detectors, lists, tuples and dicts.

    What JSON has is written as it is, everything else as an object with the single key that says
    what it is.
    """

    def write(self, value: Any, at: str, out: Writer) -> Json:
        """Write a value; refuse what is not plain."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if type(value) is list:
            return self._items(value, at, out)
        if type(value) is tuple:
            return {"tuple": self._items(value, at, out)}
        if type(value) is dict:
            return {"dict": [self._item(key, value[key], at, out) for key in value]}
        if isinstance(value, Fraction):
            return {"fraction": [value.numerator, value.denominator]}
        if isinstance(value, np.generic) and value.dtype.kind in "biuf":
            item = self.write(value.item(), at, out)
            return {"scalar": [value.dtype.str, item]}
        if isinstance(value, np.ndarray):
            return {"array": out.array(value, at)}
        if isinstance(value, np.random.SeedSequence):
            seed = [value.entropy, value.spawn_key, value.pool_size]
            return {"seed": self._items(seed, at, out)}
        if hasattr(value, "fit") or hasattr(value, "split"):
            return {"estimator": out.estimators.write(value, fitted=False)}
        raise ReconformError(
            f"{at} is {value!r}, and only plain values can be saved: numbers, words, arrays, "
            "lists, tuples, dicts, seeds. A function has no place in a file that is safe to load; "
            "use a named choice instead."
        )

    def _items(self, values: Any, at: str, out: Writer) -> list[Json]:
        return [self.write(value, f"{at}/{k}", out) for k, value in enumerate(values)]

    def _item(self, key: Any, value: Any, at: str, out: Writer) -> list[Json]:
        require(isinstance(key, str), f"{at} has the key {key!r}, and only words can be keys")
        return [key, self.write(value, f"{at}/{re.sub('[^A-Za-z0-9_]', '_', key)}", out)]

    def read(self, json: Json, source: Reader) -> Any:
        """Read a value."""
        if isinstance(json, list):
            return [self.read(item, source) for item in json]
        if not isinstance(json, dict):
            return json
        require(len(json) == 1, "a value is of more than one kind")
        ((what, content),) = json.items()
        match what:
            case "float":
                require(content in ("inf", "-inf", "nan"), f"{content!r} is not a number")
                return float(content)
            case "tuple":
                require(isinstance(content, list), "a tuple is not written as a list")
                return tuple(self.read(content, source))
            case "dict":
                pairs = all(
                    isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
                    for pair in content
                )
                require(
                    isinstance(content, list) and pairs, "a dict is not written as a list of pairs"
                )
                return {key: self.read(value, source) for key, value in content}
            case "fraction":
                return _fraction(content)
            case "scalar":
                return _scalar(content, self.read(content[1], source))
            case "array":
                return source.array(content)
            case "estimator":
                return source.estimators.read(content)
            case "seed":
                return _seed(*self.read(content, source))
        raise ReconformError(f"a value is of the unknown kind {what!r}")


def _fraction(content: Json) -> Fraction:
    """Read two integers, whose size `parse_json` bounds; Fraction would take "1e50000000" too."""
    two = isinstance(content, list) and len(content) == 2 and all(type(k) is int for k in content)
    require(two and content[1] > 0, "a fraction is not two integers")
    return Fraction(*content)


def _scalar(content: Json, value: Any) -> Any:
    name, _ = content
    require(isinstance(name, str) and _NUMBER.fullmatch(name), f"{name!r} is not a type of numbers")
    require(type(value) in (bool, int, float), "a scalar is not one number")
    return np.dtype(name).type(value)


def _seed(entropy: Any, spawn_key: Any, pool_size: Any) -> np.random.SeedSequence:
    require(
        type(pool_size) is int and 4 <= pool_size <= MOST_POOL,
        "the pool size of a seed is out of range",
    )
    for words in (entropy, spawn_key):
        few = not isinstance(words, list | tuple) or len(words) <= MOST_WORDS
        require(few and not isinstance(words, str), "a seed is too long")
    return np.random.SeedSequence(entropy, spawn_key=spawn_key, pool_size=pool_size)
