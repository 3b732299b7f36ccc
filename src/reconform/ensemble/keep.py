"""Where the models of a fit are kept: in memory, or in a folder and loaded one at a time.

A folder is a cache that belongs to one fit in this process, not a model file: the fit makes a
subfolder of its own with a random name, which only this user can read, and it is removed with the
ensemble. The models are pickled by joblib; nothing is loaded that this fit did not write.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib

from ..arrays import FloatArray
from ..errors import ReconformError

MEMORY = "memory"


def check_keep(keep: object) -> Path | None:
    """Return the folder to keep models in, or None for memory.

    Examples
    --------
    >>> check_keep("memory")
    >>> check_keep("no/such/folder")
    Traceback (most recent call last):
    ...
    reconform.errors.ReconformError: keep must be 'memory' or a folder that exists; got
    'no/such/folder'.
    """
    if isinstance(keep, str) and keep == MEMORY:
        return None
    if isinstance(keep, str | os.PathLike) and Path(keep).is_dir():
        return Path(keep).absolute()
    raise ReconformError(f"keep must be 'memory' or a folder that exists; got {keep!r}.")


class ModelFolder:
    """The models of one fit, in a folder of their own.

    A copy, such as a worker gets, writes and reads the same files but never removes them. That is
    done by the original, when it is closed or garbage collected, or when the program ends.

    Parameters
    ----------
    parent : Path
        Where to make the folder. Workers on other machines must see it under the same name.

    Examples
    --------
    >>> parent = tempfile.TemporaryDirectory()
    >>> folder = ModelFolder(Path(parent.name))
    >>> folder.path.is_dir()
    True
    >>> folder.close()
    >>> folder.path.exists()
    False
    >>> parent.cleanup()
    """

    def __init__(self, parent: Path) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="reconform-models-", dir=parent))
        self._owner = weakref.finalize(self, _remove, self.path, os.getpid())

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def put(self, model: Any, number: int) -> KeptModel:
        """Write a model, and return what stands for it."""
        path = self.path / f"{number}.joblib"
        try:
            joblib.dump(model, path)
        except OSError as error:
            raise OSError(
                error.errno,
                f"model {number} cannot be written to the folder given as keep "
                f"({error.strerror or error}); make room there, or give another folder",
                str(self.path),
            ) from error
        return KeptModel(path)

    def close(self) -> None:
        """Remove the folder and all models in it; a copy leaves them alone."""
        if "_owner" in vars(self):
            self._owner()


def _remove(path: Path, process: int) -> None:
    if os.getpid() == process:  # a forked child has the object, but does not own the folder
        shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class KeptModel:
    """A model on disk: loaded to score, and not kept in memory."""

    path: Path

    def load(self) -> Any:
        """Load the model."""
        try:
            return joblib.load(self.path)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                error.errno,
                "a model that was kept on disk is gone. The folder given as keep is a cache that "
                "lives as long as the fitted detector it belongs to, on machines that see it; "
                "use keep='memory' for a detector that is pickled or sent elsewhere",
                str(self.path),
            ) from error

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows, small = anomalous."""
        scores: FloatArray = self.load().score_samples(X)
        return scores
