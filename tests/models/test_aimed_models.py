"""Aimed model files: refused, or scored with, within limits of memory and time; see `aimed`."""

import re
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
sys.path.insert(0, str(HERE / "fuzz"))

from worker import Worker  # noqa: E402

from aimed.models import AIMED, MOST_MEGABYTES, MOST_SECONDS, NEW_ROWS  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aimed")
    made = Worker([sys.executable, str(HERE / "aimed" / "models.py"), "--worker", str(folder)])
    yield made
    made.close()


@pytest.mark.parametrize("name", AIMED)
def test_aimed_model(worker, name):
    match, _ = AIMED[name]
    # The time to make the file, to import and to compile comes on top of the time that is measured.
    said, trouble = worker.ask(0, list(AIMED).index(name), 60)
    assert trouble is None, f"{trouble}\n{said}"
    assert said["end"] in (("refused", "scored") if match == "" else ("refused",)), said
    assert re.search(match, said["said"]), said
    assert said["seconds"] < MOST_SECONDS, said
    assert said["megabytes"] < MOST_MEGABYTES, said


def test_there_are_rows_enough_to_notice():
    assert NEW_ROWS >= 1_000
    assert len(AIMED) >= 55
