"""Compiled functions: kept on disk where that is possible, compiled again where it is not.

Numba's own ``cache=True`` raises where no folder can be written to, when a module is imported;
where a file of its cache is cut short; and where the disk is full.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import FunctionCache, NullCache

_LOG = logging.getLogger(__name__)
_said: list[str] = []

F = TypeVar("F", bound=Callable[..., Any])


def njit(*, cache: bool, **options: Any) -> Callable[[F], F]:
    """Compile a function as `numba.njit` does, with a cache that never raises.

    Examples
    --------
    >>> @njit(cache=True, nogil=True)
    ... def twice(x):
    ...     return 2 * x
    >>> twice(21)
    42
    """

    def decorate(function: F) -> F:
        kernel: Any = numba.njit(**options)(function)
        if cache and hasattr(kernel, "_cache"):  # it has none where NUMBA_DISABLE_JIT is set
            try:
                kernel._cache = _Cache(function)
            except (RuntimeError, OSError):  # no folder can be written to
                kernel._cache = _NoCache()
        return cast(F, kernel)

    return decorate


class _Cache(FunctionCache):
    """Numba's cache, whose files may be damaged and whose disk may be full."""

    def load_overload(self, *arguments: Any) -> Any:
        try:
            return super().load_overload(*arguments)
        except Exception:  # unpickling what is cut short raises anything
            with suppress(Exception):
                self.flush()  # so that it is written anew
            return None

    def save_overload(self, *arguments: Any) -> None:
        try:
            super().save_overload(*arguments)
        except Exception as error:
            _say_once(str(error))


class _NoCache(NullCache):
    def save_overload(self, *arguments: Any) -> None:
        _say_once("no folder for it can be written to")


def _say_once(why: str) -> None:
    if not _said:
        _said.append(why)
        _LOG.warning(
            "compiled code cannot be kept (%s): every start compiles it again, unless "
            "NUMBA_CACHE_DIR names a folder that can be written to",
            why,
        )
