"""Tables that are made to break a reader: small on disk, and endless, huge or odd when read.

Every row of `AIMED` writes its files into a folder and returns the arguments of a command.
``python tests/aimed/tables.py`` runs all of them, and says what each took; ``NAME ...`` some.
`tests/files/test_fuzz.py` runs each in a child process within limits of time and memory.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

# Of the child process: address space, resident memory and seconds of the processor, so that a busy
# machine is no failure. The interpreter with all that it imports has 0.3 GB of resident memory
# before it reads anything.
MOST_ADDRESSES = 6 << 30
MOST_RESIDENT = 1 << 30
MOST_SECONDS = 60
# A disk that is full at some time: rows without an end go to temporary files.
MOST_FILE = 1 << 30

KNN = ("--detector", "knn", "--method", "split")
CSV = ("--output", "out.csv")
MEGABYTE = b"7" * (1 << 20)

Aimed = Callable[[Path], list[str]]
Write = Callable[[Path], object]
Content = bytes | Callable[[], bytes]


# --- files ---------------------------------------------------------------------------------------


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(count, 2)).round(3)


def beside(count: int, **columns: Any) -> pa.Table:
    """A table of two columns of numbers, and others beside them."""
    values = rows(count)
    return pa.table({"a": values[:, 0], "b": values[:, 1], **columns})


def aim(write: Write, name: str, *options: str, reference: bool = False) -> Aimed:
    """Write a file that is aimed, and an ordinary one; judge one by the other."""

    def make(folder: Path) -> list[str]:
        write(folder / name)
        lines = [f"{a},{b}" for a, b in rows(200)]
        (folder / "normal.csv").write_text("\n".join(["a,b", *lines, ""]))
        given = [name, "normal.csv"] if reference else ["normal.csv", name]
        return ["detect", *given, *KNN, *options]

    return make


def made(content: Content) -> bytes:
    return content() if callable(content) else content


def text(content: Content, name: str = "new.csv") -> Aimed:
    return aim(lambda path: path.write_bytes(made(content)), name)


def zipped(*parts: tuple[Content, int]) -> Write:
    """Write gzip members: each a content and how often it is repeated."""

    def write(path: Path) -> None:
        with path.open("wb") as file:
            for content, times in parts:
                member = gzip.compress(made(content), 1, mtime=0)
                for _ in range(times):
                    file.write(member)

    return write


def gz(*parts: tuple[Content, int], options: tuple[str, ...] = ()) -> Aimed:
    return aim(zipped(*parts), "new.csv.gz", *options)


def parquet(table: Callable[[], pa.Table], **how: Any) -> Aimed:
    def write(path: Path) -> None:
        pq.write_table(table(), path, **how)

    return aim(write, "new.parquet", "--output", "out.parquet")


def arrow(
    table: Callable[[], pa.Table], *options: str, compression: str | None = None,
    new: Callable[..., Any] = pa.ipc.new_file, **more: bool,
) -> Aimed:  # fmt: skip
    def write(path: Path) -> None:
        rows = table()
        how = pa.ipc.IpcWriteOptions(compression=compression)
        with new(path, rows.schema, options=how) as writer:
            writer.write(rows)

    return aim(write, "new.arrow", *options, **more)


def linked(target: str, name: str = "new.csv") -> Aimed:
    return aim(lambda path: path.symlink_to(target), name)


# --- what takes more than a line -----------------------------------------------------------------


def many_labels(folder: Path) -> list[str]:
    """18 columns of text with 20,000 labels each: by the commonest alone, more than is used."""
    lines = (f"{i % 7}" + f",L{i % 20_000}" * 18 for i in range(60_000))
    names = ",".join(["a", *(f"label {j}" for j in range(18))])
    (folder / "old.csv").write_text("\n".join([names, *lines, ""]))
    return ["detect", "old.csv", "old.csv"]


def many_labels_of_few_rows(folder: Path) -> list[str]:
    """As many labels as may be, and new rows that would be a table of 2 GB at once."""
    for name, count in (("old.csv", 4_000), ("new.csv", 60_000)):
        lines = (f"{i % 7},{i % 11},L{i % 1_900}" for i in range(count))
        (folder / name).write_text("\n".join(["a,b,label", *lines, ""]))
    return ["detect", "old.csv", "new.csv", "--detector", "iforest", *KNN[2:]]


def long_labels(folder: Path) -> list[str]:
    labels = ((b"1,2,%d" % i + b"L" * 500_000 + b"\n", 1) for i in range(3_000))
    zipped((b"a,b,c\n", 1), *labels)(folder / "old.csv.gz")
    return ["detect", "old.csv.gz", "old.csv.gz", *KNN]


def pipe(path: Path) -> None:
    os.mkfifo(path)

    def write() -> None:
        with path.open("wb") as file:
            file.write(b"a,b\n1,2\n")
            for _ in range(64):
                file.write(MEGABYTE)

    threading.Thread(target=write, daemon=True).start()


def long_cells(count: int = 700) -> pa.DictionaryArray:
    """One cell of 1 MB in all rows."""
    return pa.DictionaryArray.from_arrays(np.zeros(count, dtype=np.int32), pa.array(["x" * 10**6]))


def runs(count: int, value: Any) -> pa.RunEndEncodedArray:
    return pa.RunEndEncodedArray.from_arrays(pa.array([count], pa.int32()), pa.array([value]))


def lists_of_a_shared_cell() -> pa.Table:
    places = pa.array([0, 3_000, 6_000, 9_000], pa.int32())
    return beside(3, note=pa.ListArray.from_arrays(places, long_cells(9_000)))


def a_dictionary_that_swells() -> pa.Table:
    """A dictionary that is compressed, in a file whose footer alone says where it is."""
    cells = pa.array([bytes(1 << 20)] * 512, pa.large_binary())
    return beside(4, note=pa.DictionaryArray.from_arrays(np.zeros(4, dtype=np.int32), cells))


def a_list_of_equal_numbers() -> pa.Table:
    """A column that nobody looks at: lists of 500 million zeros in a few kilobytes."""
    values = pa.array(np.zeros(1 << 25, dtype=np.int8))
    lists = pa.ListArray.from_arrays(pa.array([0, 1 << 25], pa.int32()), values)
    return beside(16, note=pa.chunked_array([lists] * 16))


def nested_lists(depth: int) -> pa.Table:
    kind: pa.DataType = pa.int8()
    for _ in range(depth):
        kind = pa.list_(kind)
    return beside(3, deep=pa.nulls(3, kind))


def equal_rows(path: Path) -> None:
    """A billion rows in a few megabytes: more than fits into memory as a reference."""
    table = pa.table({"a": np.zeros(1 << 24), "b": np.zeros(1 << 24)})
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for _ in range(32):
            writer.write_table(table, row_group_size=1 << 24)


def overwritten(table: pa.Table, place: slice, data: bytes, **how: Any) -> Write:
    """Write Parquet, and other bytes over some of it."""

    def write(path: Path) -> None:
        pq.write_table(table, path, **how)
        content = bytearray(path.read_bytes())
        content[place] = data
        path.write_bytes(content)

    return write


ZEROS = np.random.default_rng(0).normal(size=(20_000, 2))

# What is aimed, and what the refusal says; with no words the command ends well.
AIMED: dict[str, tuple[str, Aimed]] = {
    # Text.
    "a_long_line_in_gzip": ("longer than", gz((b"a,b\n1,2\n3,", 1), (lambda: 16 * MEGABYTE, 128))),
    "an_endless_header": ("longer than", gz((lambda: b"x1," * (1 << 22), 128))),
    "many_columns": ("columns", gz(
        (lambda: ",".join(f"c{i}" for i in range(900_000)).encode() + b"\n", 1),
        (lambda: b"1," * 899_999 + b"1\n", 9))),
    # Every row fits the blocks of the reader just about, and the next is longer.
    "rows_that_grow": ("longer than", gz((b"a,b,c\n", 1), *(
        (lambda bits=bits: b"1,2," + b"x" * (1 << bits) + b"\n", 20) for bits in range(16, 27)))),
    # Much text in a column that nobody looks at: carried through, in pieces.
    "long_notes": ("", gz((b"a,b,note\n", 1), (b"1,2," + MEGABYTE + b"\n", 600), options=CSV)),
    "long_notes_of_flagged_rows": ("", gz(
        (b"a,b,note\n", 1), (b"90,90," + MEGABYTE[: 1 << 19] + b"\n", 400),
        options=("--only-anomalies", *CSV))),
    "long_notes_of_the_reference": ("", aim(
        zipped((b"a,b,note\n", 1), (b"1,2," + MEGABYTE + b"\n", 700)), "old.csv.gz",
        "--drop", "note", reference=True)),
    "long_labels": ("no categories", long_labels),
    "an_open_quote": ("a quote that opens", text(
        lambda: b'a,b\n1,2\n3,"' + 100 * (b"4,5\n" * (1 << 18)))),
    "bytes_that_are_no_text_far_out": ("utf-8", gz(
        (b"a,b\n", 1), (b"1,2" + b" " * (1 << 20) + b"\n", 1_000), (b"\xff\xfe\n", 1))),
    "many_members": ("", gz((b"a,b\n", 1), (b"1,2\n", 10_000))),
    "many_labels": ("too many labels", many_labels),
    "many_labels_of_few_rows": ("", many_labels_of_few_rows),
    # What is no file.
    "a_loop_of_links": ("link", linked("new.csv")),
    "a_device_without_end": ("device", linked("/dev/zero")),
    "a_device_without_end_as_parquet": ("device", linked("/dev/zero", "new.parquet")),
    "a_pipe": ("longer than", aim(pipe, "new.csv")),
    # Parquet and Arrow.
    "a_dictionary_of_long_cells": ("", parquet(
        lambda: beside(700, note=long_cells()), compression="zstd")),
    "a_dictionary_of_long_cells_in_arrow": ("", arrow(
        lambda: beside(700, note=long_cells()), "--output", "out.arrow", compression="zstd")),
    "a_run_of_long_cells_in_arrow": ("", arrow(
        lambda: beside(700, note=runs(700, "x" * 10**6)), "--output", "out.arrow")),
    "a_reference_of_equal_rows": ("rows", aim(equal_rows, "old.parquet", reference=True)),
    # A gigabyte of zeros in some kilobytes.
    "a_batch_that_swells_in_arrow": ("too large", arrow(
        lambda: pa.table({"a": np.zeros(1 << 26), "b": np.zeros(1 << 26)}), compression="zstd",
        new=pa.ipc.new_stream)),
    "a_dictionary_that_swells_in_arrow": ("too large", arrow(
        a_dictionary_that_swells, *CSV, compression="zstd")),
    "lists_of_a_shared_cell_in_arrow": ("too large", arrow(lists_of_a_shared_cell, *CSV)),
    "a_run_of_equal_numbers_in_arrow": ("too large", arrow(
        lambda: pa.record_batch([runs(2**31 - 1, 1.0)] * 2, names=["a", "b"]), reference=True)),
    # Columns of nothing: 2^31 rows take no byte.
    "rows_without_end_in_arrow": ("too large", arrow(
        lambda: pa.record_batch([pa.nulls(2**31 - 1)] * 2, names=["a", "b"]),
        reference=True)),
    "a_list_of_equal_numbers": ("too large", parquet(
        a_list_of_equal_numbers, compression="zstd", row_group_size=16)),
    # One page of a gigabyte of zeros.
    "a_page_that_swells": ("too large", parquet(
        lambda: beside(1_000, note=pa.array([bytes(1 << 20)] * 1_000, pa.large_binary())),
        compression="zstd", use_dictionary=False, data_page_size=1 << 31)),
    "very_deep_nesting": ("", arrow(lambda: nested_lists(50), *CSV, new=pa.ipc.new_stream)),
    "many_columns_of_parquet": ("columns", parquet(
        lambda: pa.table([pa.array([1.0, 2.0])] * 150_000, [f"c{i}" for i in range(150_000)]))),
    "a_huge_row_group": ("", parquet(
        lambda: pa.concat_tables([beside(1 << 16)] * (1 << 6)), row_group_size=1 << 22)),
    "a_footer_of_two_gigabytes": ("cannot be read", aim(
        overwritten(beside(4), slice(-8, -4), (2**31 - 1).to_bytes(4, "little")), "new.parquet")),
    # Structs within structs, deeper than a recursion may go.
    "a_page_header_without_a_bottom": ("cannot be read", aim(
        overwritten(pa.table({"a": ZEROS[:, 0], "b": ZEROS[:, 1]}), slice(4, 60_004),
                    b"\x1c" * 60_000, compression="zstd", use_dictionary=False), "new.parquet")),
}  # fmt: skip


# --- running -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    said: str
    megabytes: float
    seconds: float
    left: list[str]


# The memory of a process counts that of the one that it was forked from: so a small one starts it.
LAUNCHER = f"""
import os, resource, signal, subprocess, sys
for what, most in (("AS", {MOST_ADDRESSES}), ("FSIZE", {MOST_FILE}), ("CPU", {MOST_SECONDS})):
    resource.setrlimit(getattr(resource, "RLIMIT_" + what), (most, most))
child = subprocess.Popen([sys.executable, "-m", "reconform", *sys.argv[1:]])
signal.signal(signal.SIGALRM, lambda *_: child.kill())
signal.alarm({10 * MOST_SECONDS})
_, status, used = os.wait4(child.pid, 0)
print("ENDED", os.waitstatus_to_exitcode(status), used.ru_maxrss)
"""


def run(name: str, folder: Path) -> Ended:
    """Make an aimed table and run its command in a child process."""
    arguments = AIMED[name][1](folder)
    before = set(os.listdir(folder))
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *arguments], cwd=folder, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, text=True, errors="replace",
        env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip
    left = sorted(set(os.listdir(folder)) - before)
    said, _, numbers = done.stdout.rpartition("ENDED ")
    code, peak = map(int, numbers.split())
    return Ended(code, said, peak / 1e3, time.monotonic() - start, left)


def trouble(name: str, ended: Ended) -> str:
    """What is wrong with how it ended, or nothing."""
    words = AIMED[name][0]
    good = ended.code == bool(words) and words in ended.said.lower()
    good &= "Traceback" not in ended.said and not (words and ended.left)
    good &= ended.megabytes < MOST_RESIDENT / 1e6
    return "" if good else f"WRONG: {ended}"


if __name__ == "__main__":
    wrong = 0
    for name in sys.argv[1:] or AIMED:
        with tempfile.TemporaryDirectory(prefix="aimed-") as folder:
            ended = run(name, Path(folder))
        wrong += bool(trouble(name, ended))
        print(name, trouble(name, ended) or ended, flush=True)
    sys.exit(min(wrong, 1))
