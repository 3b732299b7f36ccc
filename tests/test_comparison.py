"""The page that compares packages is what the stored answers say, and ours are true today.

The other packages need not be installed: `make compare` asks them and stores what it hears.
"""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def compare():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import compare

        yield compare
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def test_the_page_is_what_the_command_writes(compare):
    page = compare.PAGE.read_text("utf-8")
    assert page.count("<!-- compare: ") == page.count("<!-- /compare -->") == 6
    assert compare.written(page) == page, "python benchmarks/compare.py --write"


def test_tables_follow_what_is_stored(compare):
    stored = json.loads(compare.STORED.read_text("utf-8"))
    title = next(iter(stored["features"]["fcnd"]))
    stored["features"]["fcnd"][title] = "another answer"
    bench = json.loads(compare.BENCH.read_text("utf-8"))
    page = compare.PAGE.read_text("utf-8")
    again = compare.filled(page, stored, bench)
    lines = zip(page.split("\n"), again.split("\n"), strict=True)
    changed = [after for before, after in lines if before != after]
    assert len(changed) == 1
    assert title in changed[0]
    assert "another answer" in changed[0]


def test_the_code_on_the_page_is_the_code_that_was_run(compare):
    stored = json.loads(compare.STORED.read_text("utf-8"))
    jobs = compare.sections(compare.PAGE.read_text("utf-8"))
    assert list(jobs) == list(stored["jobs"])
    for heading, section in jobs.items():
        data, *_ = (codes := compare.contenders(section)).values()
        ran = {package: cell["code"] for package, cell in stored["jobs"][heading].items()}
        codes.pop("data")
        now = {package: compare.fingerprint(data + code) for package, code in codes.items()}
        assert now == ran, f"{heading}: make compare"


def test_what_is_said_of_reconform_is_so(compare, here):
    stored = json.loads(compare.STORED.read_text("utf-8"))["features"]
    assert compare.probes.column("reconform") == stored["reconform"]
    assert {tuple(answers) for answers in stored.values()} == {tuple(stored["reconform"])}
