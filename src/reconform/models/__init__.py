"""Models as files: one zip of JSON and plain arrays. Loading it executes nothing.

`archive` is the container and what it says about itself; `estimators` and `ensembles` say how the
parts of a model are written and read, by the descriptions in `reconform.records` and in
the folders of the detectors; `saving` is where it comes together.
"""

from __future__ import annotations

from ..errors import ModelFileError
from .archive import ModelInfo, inspect
from .saving import load, save

__all__ = ["ModelFileError", "ModelInfo", "inspect", "load", "save"]
