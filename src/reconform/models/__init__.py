"""Models as files: one zip of JSON and plain arrays. Loading it executes nothing.

Its modules: `archive`, the container; `npy`, the arrays in it; `plans`, `estimators`,
`skops_objects` and `ensemble_records`, how the parts of a model are written and read, by the
descriptions in `reconform.records` and in the folders of the detectors; `settings`, what a file may
not choose; `sound`, whether other people's objects fit together; `manifest`, what a file says about
itself; `saving`, where it comes together.
"""

from __future__ import annotations

from ..errors import ModelFileError
from .manifest import ModelInfo, Part, inspect
from .saving import load, save

__all__ = ["ModelFileError", "ModelInfo", "Part", "inspect", "load", "save"]
