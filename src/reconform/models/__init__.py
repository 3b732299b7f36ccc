"""Models as files: one zip of JSON and plain arrays. Loading it executes nothing.

The rooms: `archive`, the container; `arrays`, its ``.npy`` members; `kinds`, how classes are
described; `plain`, `blocks`, `plans`, `estimators`, `foreign` and `ensembles`, the descriptions;
`settings`, what a file may not choose; `sound`, whether other people's objects fit together;
`manifest`, what a file says about itself; `saving`, where it comes together.
"""

from __future__ import annotations

from .archive import ModelFileError
from .manifest import ModelInfo, Part, inspect
from .saving import load, save

__all__ = ["ModelFileError", "ModelInfo", "Part", "inspect", "load", "save"]
