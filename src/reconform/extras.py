"""Packages that only a study needs: imported when used, and named clearly where missing."""

from __future__ import annotations

import importlib
from types import ModuleType


def need(module: str, purpose: str) -> ModuleType:
    """Import an optional package, or say what it is for and how to get it.

    Examples
    --------
    >>> need("math", "Arithmetic").sqrt(4)
    2.0
    >>> need("no_such_package", "Reading tea leaves")
    Traceback (most recent call last):
    ...
    ImportError: Reading tea leaves needs no_such_package: pip install 'reconform[study]'.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(f"{purpose} needs {package}: pip install 'reconform[study]'.") from error
