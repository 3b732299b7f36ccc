"""What not everybody needs: imported when used, and named clearly where missing."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from .errors import ExtraImportError


def extra(module: str, group: str | None, purpose: str) -> ModuleType:
    """Import a package that is optional, or say what it is for and how to get it.

    Parameters
    ----------
    module : str
        What to import.
    group : str or None
        The optional dependencies of reconform that it belongs to; None for a package of its own.
    purpose : str
        Beginning of the sentence: what needs it.

    Returns
    -------
    module

    Raises
    ------
    ExtraImportError
        If it cannot be imported.

    Examples
    --------
    >>> extra("math", None, "Arithmetic").sqrt(4)
    2.0
    >>> extra("no_such_package", "online", "reading tea leaves")
    Traceback (most recent call last):
    ...
    reconform.errors.ExtraImportError: reading tea leaves needs no_such_package: pip install
    'reconform[online]'.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        what = package if group is None else f"'reconform[{group}]'"
        raise ExtraImportError(f"{purpose} needs {package}: pip install {what}.") from error


def installed(package: str, *, otherwise: str) -> str:
    """Return the name of a package if it is installed, and of another one otherwise.

    Examples
    --------
    >>> installed("no_such_package", otherwise="math")
    'math'
    """
    return otherwise if importlib.util.find_spec(package) is None else package


def imported_later(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Import the names of a package when they are first used.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : mapping from str to sequence of str
        The names that each of its modules has.

    Returns
    -------
    callable, callable
        What the package calls ``__getattr__`` and ``__dir__``.

    Examples
    --------
    >>> get, names = imported_later("reconform", {"rule": ["Rule"]})
    >>> get("Rule").__module__, "Rule" in names()
    ('reconform.rule', True)
    >>> get("no_such_name")
    Traceback (most recent call last):
    ...
    AttributeError: module 'reconform' has no attribute 'no_such_name'
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f".{home_of[name]}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return get, names
