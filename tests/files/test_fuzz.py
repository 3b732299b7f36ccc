"""The fuzzer finds what it is there to find, and nothing else; aimed tables are refused."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

import tables
from worker import Worker

from aimed.tables import AIMED, run, trouble

SCRIPT = Path(tables.__file__)


def test_a_short_run_finds_nothing():
    run = [sys.executable, SCRIPT, "--count", "25", "--seed", "0"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "25 mutated tables" in done.stdout
    assert "0 findings" in done.stdout


LONG = ["long_labels", "long_notes", "a_reference_of_equal_rows", "a_run_of_equal_numbers_in_arrow"]
LONG += ["bytes_that_are_no_text_far_out", "a_page_that_swells", "many_columns_of_parquet"]
MARKED = [pytest.param(one, marks=[pytest.mark.slow] * (one in LONG)) for one in AIMED]


@pytest.mark.parametrize("name", MARKED)
def test_aimed_tables_are_bounded(name, tmp_path):
    assert not trouble(name, run(name, tmp_path))


def test_mutants_are_made_from_their_numbers_alone():
    assert tables.make(3, 14) == tables.make(3, 14) != tables.make(3, 15)


@pytest.mark.parametrize(
    ("program", "what"),
    [
        ("Path('out.csv').write_text('half'); raise SystemExit(1)", "left behind"),
        ("raise SystemExit(70)", "exit code 70"),
        ("1 / 0", "ZeroDivisionError"),
        ("click.echo('Traceback (most recent call last)')", "a traceback"),
        ("[path.write_bytes(b'') for path in Path().iterdir()]", "files were changed"),
        ("assert len(bytearray(b'x') * 1_200_000_000) > 1", "MB of memory"),
    ],
)
def test_what_must_not_happen_is_found(monkeypatch, program, what):
    @click.command(context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def fake(arguments):
        exec(program)

    monkeypatch.setattr("reconform.cli.main", fake)
    mutant = tables.Mutant({"a.csv": b"x\n1\n"}, [["detect", "a.csv"]])
    assert what in "; ".join(tables.findings(tables.run(mutant)))


@pytest.mark.parametrize(
    ("program", "what"),
    [
        ("import os, sys; sys.stdin.readline(); os.abort()", "the worker died (-6)"),
        ("import time; time.sleep(60)", "more than 0.5 s"),
        ("while True: pass", "more than 0.5 s"),
    ],
)
def test_dead_and_hanging_workers_are_found(program, what):
    worker = Worker([sys.executable, "-c", program])
    try:
        for number in (0, 1):  # it is started again
            assert worker.ask(0, number, 30 if "died" in what else 0.5)[1] == what
    finally:
        worker.close()
