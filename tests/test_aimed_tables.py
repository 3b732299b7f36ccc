"""Tables that are made to break a reader: bounded in memory and time, refused in a sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "aimed"))

pytest.importorskip("resource")

from tables import AIMED, MOST_RESIDENT, run


@pytest.mark.parametrize("name", AIMED)
def test_aimed_tables_are_bounded(name, tmp_path):
    ended = run(name, tmp_path)
    words = AIMED[name][1]
    assert ended.code == bool(words), ended.said
    assert words in ended.said.lower()
    assert "Traceback" not in ended.said
    assert ended.megabytes < MOST_RESIDENT / 1e6
    assert not words or ended.left == []
