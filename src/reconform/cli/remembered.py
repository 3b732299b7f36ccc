"""What `reconform fit` notes in a model file, for those who judge new rows with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..detectors.prepare import Feature, describe, restore
from ..models import ModelInfo
from ..models.archive import refusing
from ..records import require
from ..rule import Rule
from .declare import names_typed
from .options import Deciding, Files, Writing

# Where it stands among the extras of a model file.
OURS = "command line"


@dataclass(frozen=True)
class Remembered:
    """The options of `fit` that hold for every run with the model, unless they are given again.

    Attributes
    ----------
    detector : str
        As it was given; the model itself has what became of it.
    prepare : bool
    features : tuple of Feature
        The columns, with the labels of categories.
    reference : str
        The file of normal rows.
    id_columns : tuple of str
        Columns that name the rows.
    prefix : str
        In front of the names of added columns.
    deciding : Deciding
        Level and procedure.
    group : str or None
        The column of groups.
    """

    detector: str
    prepare: bool
    features: tuple[Feature, ...]
    reference: str
    id_columns: tuple[str, ...] = ()
    prefix: str = ""
    deciding: Deciding = field(default_factory=Deciding)
    group: str | None = None

    def extras(self) -> dict[str, Any]:
        """Write it as plain data, for the extras of a model file."""
        return {
            OURS: {
                "detector": self.detector,
                "prepare": self.prepare,
                "features": describe(self.features),
                "reference": self.reference,
                "id": list(self.id_columns),
                "prefix": self.prefix,
                "decision": self.deciding.parameters(),
                **({} if self.group is None else {"group": self.group}),
            }
        }

    def typed(self, method: str | None) -> dict[str, Any]:
        """How the reference was read and used, as options are typed: for advised commands."""
        typed: dict[str, Any] = {
            "reference": self.reference,
            "columns": [names_typed([feature.name for feature in self.features])],
            "detector": self.detector,
        }
        typed |= {"method": method} if method in ("full", "split") else {}
        typed |= {"prepare": True} if self.prepare else {}
        typed |= {"id_columns": [names_typed(self.id_columns)]} if self.id_columns else {}
        return typed | ({"group": self.group} if self.group is not None else {})

    def files(self, given: Files) -> Files:
        """The identifiers that were given, or those of the model."""
        return replace(given, id_columns=given.id_columns or self.id_columns)

    def writing(self, given: Writing) -> Writing:
        """The prefix that was given, or that of the model, where rows are written."""
        return given if given.output is None else replace(given, prefix=given.prefix or self.prefix)


def remembered(info: ModelInfo) -> Remembered | None:
    """Read what `reconform fit` noted in a model; None for a model that was saved in Python.

    Anything that we would not have written is refused.
    """
    if OURS not in info.extras:
        return None
    with refusing(info.path, "it does not say what we say"):
        return _read(info.extras[OURS])


def _read(noted: Mapping[str, Any]) -> Remembered:
    known = {"detector", "prepare", "features", "reference", "id", "prefix", "decision", "group"}
    require(not set(noted) - known, f"it notes {sorted(set(noted) - known)!r}")
    ids, decision = noted["id"], noted["decision"]
    for name, kind in (
        ("detector", str), ("prepare", bool), ("reference", str), ("id", list), ("prefix", str),
        ("decision", dict),
    ):  # fmt: skip
        require(type(noted[name]) is kind, f"{name} is {noted[name]!r}")
    require(type(noted.get("group", "")) is str, f"group is {noted.get('group')!r}")
    require(all(type(name) is str for name in ids), f"id is {ids!r}")
    require("top" not in decision and "alpha_bh" not in decision, f"decision is {decision!r}")
    Rule(**decision)  # checks every value
    return Remembered(
        noted["detector"],
        noted["prepare"],
        restore(noted["features"]),
        noted["reference"],
        tuple(ids),
        noted["prefix"],
        Deciding(**decision),
        noted.get("group"),
    )
