"""Objects of scikit-learn, PyOD and others, through skops: made only for a caller who trusts them.

skops stores an object as JSON and arrays. What it makes of them runs code of other libraries on
values that nobody has checked, so that an object is as safe as the person who made it.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn
from zipfile import ZIP_STORED, ZipFile

from ..display import printable
from ..errors import ModelFileError, ReconformError
from ..extras import extra
from ..records import require
from .archive import parse_json

SCHEMA = "schema.json"  # of skops
MOST_SHOWN = 20


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
        The types and functions in it.
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


def refuse(types: Sequence[str], *, path: str | Path) -> NoReturn:
    """Refuse a model with objects of these types, which its caller does not trust."""
    more = [f"{len(types) - MOST_SHOWN:,} more"] if len(types) > MOST_SHOWN else []
    raise ModelFileError(
        f"{path}: the model contains objects of other libraries "
        f"({printable(', '.join([*types[:MOST_SHOWN], *more]))}), and these are as safe as the "
        "person who made them. If you know where the file comes from, give `trusted=True`."
    )


def construct(dumps: Sequence[bytes]) -> list[Any]:
    """Make the objects of the dumps."""
    if not dumps:
        return []
    io_ = _skops("loading")
    return [io_.loads(data, trusted=io_.get_untrusted_types(data=data)) for data in dumps]
