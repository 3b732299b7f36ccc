"""Packages that other packages import and no command needs, imported when they are needed."""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Any


class Later(ModuleType):
    """A package that is imported when something in it is asked for.

    `importlib.util.LazyLoader` would not do: to it, ``import scipy.stats`` asks for something.
    """

    _turn = RLock()

    def __getattr__(self, name: str) -> Any:
        with self._turn:  # another thread waits until all of it is there
            if "_begun" not in vars(self):
                self._begun = True
                assert self.__spec__ is not None
                assert self.__spec__.loader is not None
                self.__spec__.loader.exec_module(self)
        try:
            return vars(self)[name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None


def import_later(package: str, name: str) -> None:
    """Let a subpackage be imported when something in it is asked for, not before.

    Parameters
    ----------
    package : str
        It is imported now.
    name : str
        Of the subpackage.
    """
    whole = f"{package}.{name}"
    if whole in sys.modules or (spec := find_spec(whole)) is None:
        return
    module = module_from_spec(spec)
    module.__class__ = Later
    sys.modules[whole] = module
    setattr(sys.modules[package], name, module)
