"""What a file may not choose for the machine that loads it, and how much work it may ask for.

A parameter can name a folder that pickles are written to and read from, a number of workers, a
device. Such settings belong to whoever runs a model and not to whoever wrote the file. So they
come back at the default of their class, wherever in a model they stand; one table says which.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from ..records import require

# Libraries whose parameters mean the same wherever they occur. Other classes, which are made only
# if their user trusts them by name, lose the number of jobs, and what they have from these.
KNOWN_LIBRARIES = ("sklearn", "pyod", "reconform")

# Parameter -> its value where the class has no default of its own.
SETTINGS: Mapping[str, Any] = {
    "n_jobs": None,  # workers
    "nthread": None,
    "parallel_execution": False,
    "pre_dispatch": "2*n_jobs",
    "memory": None,  # a folder of pickles
    "input": "content",  # "filename": rows are names of files to read
    "callback": None,  # code
    "device": None,
    "use_compile": False,  # a compiler
    "compile_mode": None,
    "cache_size": 200,  # megabytes
    "verbose": 0,  # what is printed
    "silent": True,
}
FOR_ALL = ("n_jobs",)

# Words that PyOD takes for the name of a model to be found and loaded.
NAMES_A_MODEL = ("encoder",)

# What decides how long the fit of a detector takes and how much memory it needs. A file of a few
# bytes could ask for any number.
MOST_INTEGER = 1 << 24
MOST: Mapping[str, int] = {
    "n_estimators": 10_000,
    "n_init": 100,
    "n_bins": 1 << 16,
    "n_random_cuts": 1 << 16,
    "n_components": 1 << 16,
    "n_knots": 1 << 10,
    "degree": 1 << 5,
    "iterated_power": 1 << 10,
    "n_oversamples": 1 << 16,
    "leaf_size": 1 << 20,
    "max_iter": 1 << 17,
}

# Numbers that the reference may become on its way through a pipeline: half a gigabyte.
MOST_CELLS = 1 << 26


def pipelines() -> Any:
    """Return scikit-learn's class `Pipeline`; none where nothing has imported it, which takes long.

    Then nothing is one.
    """
    module = sys.modules.get("sklearn.pipeline")
    return () if module is None else module.Pipeline


def parts_of(thing: Any) -> Iterator[Any]:
    """All objects that an object contains, itself first, each once.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> parts = parts_of(make_pipeline(StandardScaler()))
    >>> [type(part).__name__ for part in parts if hasattr(part, "fit")]
    ['Pipeline', 'StandardScaler']
    """
    seen: dict[int, Any] = {}
    waiting = [thing]
    while waiting:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, str | bytes | int | float | type | None):
            continue
        seen[id(part)] = part  # kept, so that no id is given twice
        yield part
        waiting.extend(reversed(_inside(part)))


def _inside(part: Any) -> list[Any]:
    if isinstance(part, dict):
        return [*part.keys(), *part.values()]
    if isinstance(part, list | tuple | set | frozenset):
        return list(part)
    if isinstance(part, np.ndarray):
        return part.ravel().tolist() if part.dtype == object else []
    if isinstance(part, MethodType):
        return [part.__self__]
    if isinstance(part, partial):
        return [part.func, part.args, part.keywords]
    if isinstance(part, FunctionType | ModuleType) or type(part).__module__.startswith("numba"):
        return []
    return list(attributes_of(part).values())


def attributes_of(part: Any) -> dict[str, Any]:
    """Return the attributes of an object itself, to be read or changed."""
    values = getattr(part, "__dict__", None)
    return values if isinstance(values, dict) else {}


def neutral(kind: type, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a class, with every setting at its default.

    Examples
    --------
    >>> from sklearn.pipeline import Pipeline
    >>> neutral(Pipeline, {"memory": "folder", "verbose": True, "transform_input": None})
    {'memory': None, 'verbose': False, 'transform_input': None}
    """
    names = _settings_of(kind)
    defaults = inspect.signature(kind).parameters if set(parameters) & set(names) else {}
    return {
        name: _default(name, defaults) if name in names else value
        for name, value in parameters.items()
    }


def _settings_of(kind: type) -> set[str]:
    """The settings that a class has, by itself or from a class that it is derived from."""
    known = [base for base in kind.__mro__ if base.__module__.split(".")[0] in KNOWN_LIBRARIES]
    if kind in known:
        return set(SETTINGS)
    inherited = {name for base in known for name in inspect.signature(base).parameters}
    return {*FOR_ALL, *inherited} & set(SETTINGS)


def _default(name: str, parameters: Mapping[str, inspect.Parameter]) -> Any:
    default = parameters[name].default if name in parameters else inspect.Parameter.empty
    if default is inspect.Parameter.empty or (name == "n_jobs" and default not in (None, 1)):
        return SETTINGS[name]
    return default


def disarm(thing: Any) -> None:
    """Put every setting of an object, and of all that it contains, at its default."""
    for part in parts_of(thing):
        values = attributes_of(part)
        for name in NAMES_A_MODEL:
            require(not isinstance(values.get(name), str), f"{name} names a model to be loaded")
        if set(values) & set(SETTINGS):
            values.update(neutral(type(part), values))


def check_cost(template: Any, n: int, d: int) -> None:
    """Refuse a detector whose refit on n rows of d columns would cost too much.

    Parameters of the file decide on it, and a few bytes could ask for anything.
    """
    for part in parts_of(template):
        for name, value in attributes_of(part).items():
            several = name in MOST and isinstance(value, list | tuple | np.ndarray)
            for count in np.ravel(value).tolist() if several else [value]:
                if isinstance(count, int | np.integer):
                    most = max(MOST.get(name, MOST_INTEGER), n if name == "leaf_size" else 0)
                    seed = "random_state" in name or "seed" in name
                    require(
                        seed or count <= most, f"{name} is {count}, and at most {most:,} may be"
                    )
    _columns_behind(template, n, d)


def _columns_behind(step: Any, n: int, d: int) -> int:
    """Count the columns that may come out of a step on n rows of d columns; refuse too many."""
    kinds = {base.__name__ for base in type(step).__mro__ if base.__module__.startswith("sklearn.")}
    columns, rows = d, n + 1
    if "Pipeline" in kinds:
        for _, inner in step.steps:
            columns = _columns_behind(inner, n, columns)
    elif "FeatureUnion" in kinds:
        columns = sum(_columns_behind(inner, n, d) for _, inner in step.transformer_list)
    elif "ColumnTransformer" in kinds:
        columns += sum(_columns_behind(inner, n, d) for _, inner, _ in step.transformers)
    elif "PolynomialFeatures" in kinds:
        low, high = (0, step.degree) if isinstance(step.degree, int) else step.degree
        alone, bias = bool(step.interaction_only), bool(step.include_bias)
        columns = type(step)._num_combinations(d, low, high, alone, bias)
    elif "KBinsDiscretizer" in kinds and step.encode != "ordinal":
        columns = d * int(np.max(step.n_bins))
    elif kinds & {"RBFSampler", "BaseRandomProjection"} and step.n_components != "auto":
        columns, rows = int(step.n_components), max(rows, d)
    most = max(MOST_CELLS, 4 * n * d)
    fits = columns == d or rows * columns <= most
    require(fits, f"{columns:,} columns would come out of {type(step).__name__}")
    return columns
