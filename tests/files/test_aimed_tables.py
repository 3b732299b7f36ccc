"""Tables that are made to break a reader: bounded in memory and time, refused in a sentence."""

import pytest

pytest.importorskip("resource")

from aimed.tables import AIMED, run, trouble


@pytest.mark.parametrize("name", AIMED)
def test_aimed_tables_are_bounded(name, tmp_path):
    assert not trouble(name, run(name, tmp_path))
