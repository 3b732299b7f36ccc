"""Objects of scikit-learn, PyOD and others, through skops: audited by name before they are made.

skops stores an object as JSON and arrays, and says which types it would have to make. What is not
known to be harmless is made only if the caller trusts it by name.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import numpy as np

from ..arrays import AnyArray
from ..errors import ModelFileError, ReconformError
from ..extras import extra
from ..records import require, within
from ..records.plain import MOST_POOL
from ..records.specs import Json
from .archive import MOST_EMPTY, grows_too_much, parse_json
from .sound import check_sound, needs_trust

OLDEST_PROTOCOL = 2  # of skops
MOST_HOLLOW = 1 << 12

# What the compiled classes of a module are made from, in order: see `_has_form`. Trees of
# neighbours: rows, their order, nodes, bounds, seven counts, the distance, weights.
COMPILED = {
    "sklearn.neighbors._kd_tree": "aaaa" + 7 * "n" + "ow",
    "sklearn.neighbors._ball_tree": "aaaa" + 7 * "n" + "ow",
    "sklearn.metrics._dist_metrics": "naa",
}

# Harmless, and not on the list of skops: a type of numbers, and plain descriptions of splits.
TRUSTED = frozenset(
    {
        "numpy.dtype",
        *(
            f"sklearn.model_selection._split.{name}"
            for name in (
                "GroupKFold", "GroupShuffleSplit", "KFold", "LeaveOneGroupOut", "LeaveOneOut",
                "LeavePGroupsOut", "LeavePOut", "PredefinedSplit", "RepeatedKFold",
                "RepeatedStratifiedKFold", "ShuffleSplit", "StratifiedGroupKFold",
                "StratifiedKFold", "StratifiedShuffleSplit", "TimeSeriesSplit",
            )
        ),
    }
)  # fmt: skip


def _skops(doing: str) -> ModuleType:
    return extra(
        "skops.io", "skops", f"{doing} a model with objects of scikit-learn, PyOD or others"
    )


def dump(thing: Any) -> tuple[bytes, list[str]]:
    """Write an object; refuse one that could not be found again by the names of its types.

    Parameters
    ----------
    thing : object

    Returns
    -------
    data : bytes
        In the format of skops, not compressed.
    types : list of str
        Those that need the trust of whoever loads it.
    """
    io_ = _skops("saving")
    name = type(thing).__name__
    try:
        check_sound(thing)  # what would be refused is not written
        data: bytes = io_.dumps(thing)
        types = sorted({*io_.get_untrusted_types(data=data), *_check_dump(data)})
    except Exception as error:
        raise ReconformError(f"{name} cannot be saved: {error}") from error
    lost = [known for known in types if not _can_be_found(known)]
    if lost:
        raise ReconformError(
            f"{name} cannot be saved: it contains {_listed(lost)}, which cannot be found again by "
            "name. Lambdas, and functions and classes made inside a function, have no place in a "
            "file that is safe to load; define them in a module."
        )
    return data, [known for known in types if known not in TRUSTED]


def _can_be_found(name: str) -> bool:
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        thing: Any = sys.modules.get(".".join(parts[:cut]))
        if thing is not None:
            for part in parts[cut:]:
                thing = getattr(thing, part, None)
            return thing is not None
    return False


def construct(dumps: Sequence[bytes], trusted: Iterable[str], *, path: str | Path) -> list[Any]:
    """Make the objects of the dumps, if all their types are trusted.

    Parameters
    ----------
    dumps : sequence of bytes
    trusted : iterable of str
        Types that the caller trusts, by name.
    path : str or Path
        For the message.

    Returns
    -------
    list of objects
    """
    if not dumps:
        return []
    io_ = _skops("loading")
    found: set[str] = set()
    for data in dumps:
        found.update(_check_dump(data))
        found.update(io_.get_untrusted_types(data=data))  # which makes nothing
    names = {*trusted, *TRUSTED}
    refused = sorted(found - names)
    if refused:
        raise ModelFileError(
            f"{path}: the model contains {_listed(refused)}, which reconform does not make from a "
            "file unless you trust it by name. If you know where the file comes from: "
            f"load(path, trusted={refused!r})."
        )
    return [io_.loads(data, trusted=sorted(names)) for data in dumps]


def _check_dump(data: bytes) -> set[str]:
    """Refuse a dump that would be larger than it looks; return classes that we want trust for."""
    with ZipFile(io.BytesIO(data)) as dumped:
        members = dumped.infolist()
        require(
            all(member.compress_type == ZIP_STORED for member in members)
            and sum(member.file_size for member in members) <= len(data)
            and len({member.filename for member in members}) == len(members),
            "an object is not stored as skops does it",
        )
        for member in members:
            content = dumped.read(member)
            if member.filename.endswith(".npy"):
                _check_npy(content)
            elif member.filename.endswith(".npz"):  # sparse matrices: a zip in the zip in the zip
                with ZipFile(io.BytesIO(content)) as inner:
                    sizes = [array.file_size for array in inner.infolist()]
                    require(not grows_too_much(sizes, len(content)), "a sparse matrix is too large")
                    for array in inner.infolist():
                        _check_npy(inner.read(array))
        schema = parse_json(dumped.read("schema.json"))
        # Older protocols are read by older code, and none of our files has one.
        require(schema.get("protocol", 0) >= OLDEST_PROTOCOL, "an object has an older format")
        return _check_schema(schema, dumped)


def _check_npy(content: bytes) -> AnyArray:
    """Read an array of anything but objects, if it is as large as it says."""
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    require(version in readers, "an array has a format that we never write")
    shape, _, dtype = readers[version](stream)
    count = math.prod(shape)
    fits = not dtype.hasobject and all(size >= 0 for size in shape)
    require(fits and count * dtype.itemsize == len(content) - stream.tell(), "an array is cut")
    # An array without bytes may say that it has any number of rows or columns.
    solid = math.prod(max(size, 1) for size in shape) <= max(MOST_HOLLOW, len(content))
    require(solid, f"an array has the shape {shape}")
    array: AnyArray = np.load(io.BytesIO(content), allow_pickle=False)
    return array


def _check_schema(schema: Json, dumped: ZipFile) -> set[str]:
    """Check what code of others runs on while an object is made; return the classes in it."""
    found: set[str] = set()
    numbered: dict[Any, list[Json]] = {}
    states: list[tuple[Json, str]] = []
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        if not isinstance(node, dict):
            continue
        waiting.extend(node.values())
        loader, kind = node.get("__loader__"), f"{node.get('__module__')}.{node.get('__class__')}"
        if "__id__" in node:
            numbered.setdefault(node["__id__"], []).append(node)
        if loader == "ObjectNode":
            if node.get("__module__") in COMPILED:
                states.append((node.get("content"), COMPILED[node["__module__"]]))
            if needs_trust(kind):
                found.add(kind)
        elif loader == "TreeNode":
            _check_tree_size(node["__reduce__"]["args"]["content"], dumped)
        elif loader == "RandomGeneratorNode":
            size = node["content"]["seed_seq"]["content"]["pool_size"]["content"]
            require(4 <= parse_json(size.encode()) <= MOST_POOL, "the pool of a seed is too large")
    for state, form in states:
        values = _checked_state(state, form)
        # What has been made once is not made again, whatever is written in the second place.
        for value in (state, *values):
            same = (_alike(other, value) for other in numbered.get(value.get("__id__"), ()))
            require(all(same), "two things in an object have the same number")
    return found


def _checked_state(state: Json, form: str) -> list[Json]:
    """Check the form of what compiled code unpacks: it reads past the end of a shorter tuple."""
    values = state.get("content") if isinstance(state, dict) else None
    require(
        isinstance(values, list)
        and state["__loader__"] == "TupleNode"
        and len(values) == len(form)
        and all(_has_form(value, letter) for value, letter in zip(values, form, strict=True)),
        "the state of a compiled object has another form",
    )
    return list(state["content"])


def _alike(one: Json, other: Json) -> bool:
    """Whether two nodes make the same; of objects the class, as each state is checked anyway."""
    same = ("__loader__", "__module__", "__class__")
    if one.get("__loader__") != "ObjectNode":
        return bool(one == other)
    return all(one.get(key) == other.get(key) for key in same)


def _has_form(value: Json, letter: str) -> bool:
    """Whether a node is an array (a), a number (n), an object (o), or an array or nothing (w)."""
    loader = value.get("__loader__") if isinstance(value, dict) else None
    if loader == "NdArrayNode":
        return letter in "aw" and value.get("type") == "numpy"
    if loader == "ObjectNode":
        return letter == "o"
    if loader != "JsonNode" or letter not in "nw":
        return False
    number = parse_json(value["content"].encode())
    return number is None if letter == "w" else type(number) in (int, float)


def _check_tree_size(arguments: Json, dumped: ZipFile) -> None:
    """Check what the memory of a tree is allocated by: columns, classes, outputs."""
    columns, classes, outputs = arguments
    counts = _check_npy(dumped.read(classes["file"]))
    sizes = [parse_json(number["content"].encode()) for number in (columns, outputs)]
    require(all(type(size) is int and 1 <= size <= MOST_EMPTY for size in sizes), "a tree is large")
    fits = counts.shape == (sizes[1],) and counts.dtype == np.intp and within(counts, 1, 1 << 16)
    require(fits, "the outputs of a tree do not fit together")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
