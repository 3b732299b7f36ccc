"""The paper's eight data sets, and what it evaluates on them.

The eight are files of ADBench at a pinned commit. They are downloaded when asked for, checked
against their SHA-256 sums and kept; or taken from the folder that the environment variable
RECONFORM_DATA names, and checked just the same.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from urllib.request import urlopen

import numpy as np

from reconform.study import Dataset, make_dataset

COMMIT = "3dac8221081e190f157d78e93bfa8867f90d0965"
BASE_URL = (
    f"https://raw.githubusercontent.com/Minqi824/ADBench/{COMMIT}/adbench/datasets/Classical/"
)

# Name in the paper, file, SHA-256; in the order of the paper's Table I.
_FILES = """
wbc 42_WBC.npz 650f9dcb129248f67a291be0974f533ef259fcbde50fce5c8ad2a1cb2652d03b
ionosphere 18_Ionosphere.npz bca46cb0cfd1bf9ddef6cde5ad2215d54fb0189508d0d4c4eb98e788cad69001
wdbc 43_WDBC.npz 78d4606a1ab516f5b60b00c196497f3bbd6bd5e4548fd04cf5f2475209b34b85
breast 4_breastw.npz 4f37ce07dbc25ddad8178fdc6d664ab46d2d0000ee28c2787c3c7ff3c03ef9f6
musk 25_musk.npz 2ed3f4392197b76a1e59116ff880c7720a4b026cf4842073a53b56fdea265017
thyroid 38_thyroid.npz 8de161b3f235b7647bb0b39a836d983ff61d67bf234edac461da2d71e889cb87
satellite 30_satellite.npz 1f048f5686f1b8c16a227fdfa3c81a62cd9a92715714a6b24c69b1c5ad96b46e
mammography 23_mammography.npz a0308ac9712d78321073b1c2dc98dc37665c0f35c1cc33019416fe8f8d7de7ea
"""
REGISTRY: dict[str, tuple[str, str]] = {
    name: (file, digest) for name, file, digest in map(str.split, _FILES.split("\n")[1:-1])
}
PAPER_DETECTORS = ("knn", "iforest", "inne")
# The paper's tables, in our reading: its retaining columns look like pooling (see the design).
PAPER_METHODS = (
    "split",
    "jab-pooled",
    "cv-pooled",
    "jackknife-pooled",
    "jab",
    "cv",
    "jackknife",
)


def load(name: str) -> Dataset:
    """Load one of the data sets; from a folder, or from the network and into a folder."""
    if name not in REGISTRY:
        raise SystemExit(f"{name!r} is none of the paper's data sets: {', '.join(REGISTRY)}.")
    file, expected = REGISTRY[name]
    given = os.environ.get("RECONFORM_DATA")
    path = Path(given or Path.home() / ".cache" / "reconform") / file
    if not path.is_file():
        if given:
            raise SystemExit(f"there is no {path}; unset RECONFORM_DATA to download it.")
        with urlopen(BASE_URL + file) as answer:
            content = answer.read()
        _check(content, expected, BASE_URL + file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    _check(path.read_bytes(), expected, str(path))
    with np.load(path) as data:
        return make_dataset(name, data["X"], data["y"])


def load_all(names: Iterable[str] = REGISTRY) -> list[Dataset]:
    """Load several of the data sets: all of them, unless some are named."""
    return [load(name) for name in names]


def _check(content: bytes, expected: str, source: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise SystemExit(
            f"{source} is not the file that the paper used: its SHA-256 sum is {found[:16]}... and "
            f"should be {expected[:16]}..."
        )
