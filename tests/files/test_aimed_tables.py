"""Tables that are made to break a reader: bounded in memory and time, refused in a sentence."""

from __future__ import annotations

import pytest

pytest.importorskip("resource")

from aimed.tables import AIMED, MOST_RESIDENT, run


@pytest.mark.parametrize("name", AIMED)
def test_aimed_tables_are_bounded(name, tmp_path):
    ended = run(name, tmp_path)
    words = AIMED[name][1]
    assert ended.code == bool(words), ended.said
    assert words in ended.said.lower()
    assert "Traceback" not in ended.said
    assert ended.megabytes < MOST_RESIDENT / 1e6
    assert not words or ended.left == []
