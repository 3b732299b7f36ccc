"""Tables that are made to break a reader: small on disk, and endless, huge or odd when read.

Every entry of `AIMED` writes its files into a folder and returns the arguments of a command.
``python tests/aimed/tables.py`` runs all of them, and says what each took; ``NAME ...`` some.
`tests/files/test_aimed_tables.py` runs each in a child process within limits of time and memory.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

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

Aimed = Callable[[Path], list[str]]
AIMED: dict[str, tuple[Aimed, str]] = {}


def aimed(words: str) -> Callable[[Aimed], Aimed]:
    """Add a generator, and what the refusal says; with no words the command ends well."""

    def add(make: Aimed) -> Aimed:
        AIMED[make.__name__] = (make, words)
        return make

    return add


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 2)).round(3)


def plain(folder: Path, name: str = "normal.csv", count: int = 200) -> str:
    """An ordinary file of two columns."""
    lines = [f"{a},{b}" for a, b in rows(count)]
    Path(folder, name).write_text("\n".join(["a,b", *lines, ""]))
    return name


def judged(folder: Path, new: str, *options: str) -> list[str]:
    return ["detect", plain(folder), new, *KNN, *options]


def zipped(path: Path, parts: Iterator[tuple[bytes, int]]) -> None:
    """Write gzip members: each a content and how often it is repeated."""
    with path.open("wb") as file:
        for content, times in parts:
            member = gzip.compress(content, 1, mtime=0)
            for _ in range(times):
                file.write(member)


MEGABYTE = b"7" * (1 << 20)


# --- text ----------------------------------------------------------------------------------------


@aimed("longer than")
def a_long_line_in_gzip(folder: Path) -> list[str]:
    zipped(folder / "new.csv.gz", iter([(b"a,b\n1,2\n3,", 1), (16 * MEGABYTE, 128)]))
    return judged(folder, "new.csv.gz")


@aimed("longer than")
def a_long_first_row_in_gzip(folder: Path) -> list[str]:
    zipped(folder / "new.csv.gz", iter([(b"a,b\n3,", 1), (16 * MEGABYTE, 128)]))
    return judged(folder, "new.csv.gz")


@aimed("longer than")
def an_endless_header(folder: Path) -> list[str]:
    zipped(folder / "new.csv.gz", iter([(b"x1," * (1 << 22), 128)]))
    return judged(folder, "new.csv.gz")


@aimed("longer than")
def an_endless_header_in_quotes(folder: Path) -> list[str]:
    zipped(folder / "new.csv.gz", iter([(b'"x\n",' * (1 << 21), 128)]))
    return judged(folder, "new.csv.gz")


@aimed("columns")
def many_columns(folder: Path) -> list[str]:
    names = ",".join(f"c{i}" for i in range(900_000)).encode()
    zipped(folder / "new.csv.gz", iter([(names + b"\n", 1), (b"1," * 899_999 + b"1\n", 9)]))
    return judged(folder, "new.csv.gz")


@aimed("longer than")
def rows_that_grow(folder: Path) -> list[str]:
    """Every row fits the blocks of the reader just about, and the next is longer."""
    sizes = [1 << bits for bits in range(16, 27)]
    zipped(
        folder / "new.csv.gz",
        iter([(b"a,b,c\n", 1), *((b"1,2," + b"x" * size + b"\n", 20) for size in sizes)]),
    )
    return judged(folder, "new.csv.gz")


@aimed("")
def long_notes(folder: Path) -> list[str]:
    """Much text in a column that nobody looks at: carried through, in pieces."""
    zipped(folder / "new.csv.gz", iter([(b"a,b,note\n", 1), (b"1,2," + MEGABYTE + b"\n", 600)]))
    return judged(folder, "new.csv.gz", "--output", "out.csv")


@aimed("")
def long_notes_of_flagged_rows(folder: Path) -> list[str]:
    note = b"90,90," + MEGABYTE[: 1 << 19] + b"\n"
    zipped(folder / "new.csv.gz", iter([(b"a,b,note\n", 1), (note, 500)]))
    return judged(folder, "new.csv.gz", "--only-anomalies", "--output", "out.csv")


@aimed("")
def long_notes_of_the_reference(folder: Path) -> list[str]:
    zipped(folder / "old.csv.gz", iter([(b"a,b,note\n", 1), (b"1,2," + MEGABYTE + b"\n", 700)]))
    return ["detect", "old.csv.gz", plain(folder), *KNN, "--drop", "note"]


@aimed("no categories")
def long_labels(folder: Path) -> list[str]:
    labels = ((b"1,2,%d" % i + b"L" * 500_000 + b"\n", 1) for i in range(3_000))
    zipped(folder / "old.csv.gz", iter([(b"a,b,c\n", 1), *labels]))
    return ["detect", "old.csv.gz", "old.csv.gz", *KNN, "--prepare"]


@aimed("a quote that opens")
def an_open_quote(folder: Path) -> list[str]:
    with (folder / "new.csv").open("wb") as file:
        file.write(b'a,b\n1,2\n3,"')
        for _ in range(100):
            file.write(b"4,5\n" * (1 << 18))
    return judged(folder, "new.csv")


@aimed("utf-8")
def bytes_that_are_no_text_far_out(folder: Path) -> list[str]:
    line = b"1,2" + b" " * (1 << 20) + b"\n"
    zipped(folder / "new.csv.gz", iter([(b"a,b\n", 1), (line, 1_000), (b"\xff\xfe\n", 1)]))
    return judged(folder, "new.csv.gz")


@aimed("zero bytes")
def zero_bytes(folder: Path) -> list[str]:
    (folder / "new.csv").write_bytes(b"a,b\n1,2\n" + bytes(1 << 20))
    return judged(folder, "new.csv")


@aimed("")
def mixed_line_ends(folder: Path) -> list[str]:
    (folder / "new.csv").write_bytes(b"\xef\xbb\xbfa,b\r\n1,2\n3,4\r5,6\r\n")
    return judged(folder, "new.csv")


@aimed("utf-16")
def utf_16(folder: Path) -> list[str]:
    (folder / "new.csv").write_text("a,b\n1,2\n", encoding="utf-16")
    return judged(folder, "new.csv")


@aimed("")
def many_members(folder: Path) -> list[str]:
    zipped(folder / "new.csv.gz", iter([(b"a,b\n", 1), (b"1,2\n", 10_000)]))
    return judged(folder, "new.csv.gz")


@aimed("not utf-8")
def gzip_in_gzip(folder: Path) -> list[str]:
    content = gzip.compress(gzip.compress(b"a,b\n1,2\n" * 1_000))
    (folder / "new.csv.gz").write_bytes(content)
    return judged(folder, "new.csv.gz")


@aimed("not utf-8")
def xz(folder: Path) -> list[str]:
    (folder / "new.csv").write_bytes(lzma.compress(b"a,b\n1,2\n" * 1_000))
    return judged(folder, "new.csv")


@aimed("it cannot be read")
def a_gzip_that_breaks_off(folder: Path) -> list[str]:
    content = gzip.compress(b"a,b\n" + b"1,2\n" * 10_000)
    (folder / "new.csv.gz").write_bytes(content[: len(content) // 2])
    return judged(folder, "new.csv.gz")


@aimed("too many labels")
def many_labels(folder: Path) -> list[str]:
    """A column of text with 20,000 labels in 60,000 rows: a dense table of 9 GB."""
    lines = (f"{i % 7},{i % 11},L{i % 20_000}" for i in range(60_000))
    (folder / "old.csv").write_text("\n".join(["a,b,label", *lines, ""]))
    return ["detect", "old.csv", "old.csv", "--prepare"]


@aimed("")
def many_labels_of_few_rows(folder: Path) -> list[str]:
    """As many labels as may be, and new rows that would be a table of 2 GB at once."""
    for name, count in (("old.csv", 4_000), ("new.csv", 60_000)):
        lines = (f"{i % 7},{i % 11},L{i % 1_900}" for i in range(count))
        (folder / name).write_text("\n".join(["a,b,label", *lines, ""]))
    return ["detect", "old.csv", "new.csv", "--prepare", "--detector", "iforest", *KNN[2:]]


# --- what is no file -----------------------------------------------------------------------------


@aimed("folder")
def a_folder(folder: Path) -> list[str]:
    (folder / "new.csv").mkdir()
    return judged(folder, "new.csv")


@aimed("link")
def a_loop_of_links(folder: Path) -> list[str]:
    (folder / "new.csv").symlink_to("newer.csv")
    (folder / "newer.csv").symlink_to("new.csv")
    return judged(folder, "new.csv")


@aimed("device")
def a_device_without_end(folder: Path) -> list[str]:
    (folder / "new.csv").symlink_to("/dev/zero")
    return judged(folder, "new.csv")


@aimed("device")
def a_device_without_end_as_parquet(folder: Path) -> list[str]:
    (folder / "new.parquet").symlink_to("/dev/zero")
    return judged(folder, "new.parquet")


@aimed("longer than")
def a_pipe(folder: Path) -> list[str]:
    path = folder / "new.csv"
    os.mkfifo(path)

    def write() -> None:
        with path.open("wb") as file:
            file.write(b"a,b\n1,2\n")
            for _ in range(64):
                file.write(MEGABYTE)

    threading.Thread(target=write, daemon=True).start()
    return judged(folder, "new.csv")


# --- Parquet and Arrow ---------------------------------------------------------------------------


def parquet(folder: Path, table: pa.Table, **options: object) -> list[str]:
    pq.write_table(table, folder / "new.parquet", **options)
    return judged(folder, "new.parquet", "--output", "out.parquet")


def beside(count: int, **columns: pa.Array) -> pa.Table:
    values = rows(count)
    return pa.table({"a": values[:, 0], "b": values[:, 1], **columns})


def long_cells() -> pa.DictionaryArray:
    """One cell of 1 MB in 700 rows."""
    return pa.DictionaryArray.from_arrays(np.zeros(700, dtype=np.int32), pa.array(["x" * 10**6]))


@aimed("")
def a_dictionary_of_long_cells(folder: Path) -> list[str]:
    return parquet(folder, beside(700, note=long_cells()), compression="zstd")


@aimed("")
def a_dictionary_of_long_cells_in_arrow(folder: Path) -> list[str]:
    table = beside(700, note=long_cells())
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(folder / "new.arrow", table.schema, options=options) as writer:
        writer.write_table(table)
    return judged(folder, "new.arrow", "--output", "out.arrow")


@aimed("")
def a_run_of_long_cells_in_arrow(folder: Path) -> list[str]:
    cells = pa.RunEndEncodedArray.from_arrays(pa.array([700], pa.int32()), pa.array(["x" * 10**6]))
    table = beside(700, note=cells)
    with pa.ipc.new_file(folder / "new.arrow", table.schema) as writer:
        writer.write_table(table)
    return judged(folder, "new.arrow", "--output", "out.arrow")


@aimed("rows")
def a_reference_of_equal_rows(folder: Path) -> list[str]:
    """A billion rows in a few megabytes: more than fits into memory as a reference."""
    table = pa.table({"a": np.zeros(1 << 24), "b": np.zeros(1 << 24)})
    with pq.ParquetWriter(folder / "old.parquet", table.schema, compression="zstd") as writer:
        for _ in range(32):
            writer.write_table(table, row_group_size=1 << 24)
    return ["detect", "old.parquet", plain(folder), *KNN]


@aimed("too large")
def a_batch_that_swells_in_arrow(folder: Path) -> list[str]:
    """A gigabyte of zeros in some kilobytes."""
    table = pa.table({"a": np.zeros(1 << 26), "b": np.zeros(1 << 26)})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(folder / "new.arrow", table.schema, options=options) as writer:
        writer.write_table(table)
    return judged(folder, "new.arrow")


@aimed("too large")
def a_dictionary_that_swells_in_arrow(folder: Path) -> list[str]:
    """A dictionary that is compressed, in a file whose footer alone says where it is."""
    cells = pa.DictionaryArray.from_arrays(
        np.zeros(4, dtype=np.int32), pa.array([bytes(1 << 20)] * 512, pa.large_binary())
    )
    table = beside(4, note=cells)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(folder / "new.arrow", table.schema, options=options) as writer:
        writer.write_table(table)
    return judged(folder, "new.arrow", "--output", "out.csv")


@aimed("too large")
def lists_of_a_shared_cell_in_arrow(folder: Path) -> list[str]:
    cell = pa.array(["x" * 10**6])
    shared = pa.DictionaryArray.from_arrays(np.zeros(9_000, dtype=np.int32), cell)
    lists = pa.ListArray.from_arrays(pa.array([0, 3_000, 6_000, 9_000], pa.int32()), shared)
    table = beside(3, note=lists)
    with pa.ipc.new_file(folder / "new.arrow", table.schema) as writer:
        writer.write_table(table)
    return judged(folder, "new.arrow", "--output", "out.csv")


@aimed("too large")
def a_run_of_equal_numbers_in_arrow(folder: Path) -> list[str]:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2**31 - 1], pa.int32()), pa.array([1.0]))
    with pa.ipc.new_file(
        folder / "old.arrow", pa.schema([("a", runs.type), ("b", runs.type)])
    ) as writer:
        writer.write_batch(pa.record_batch([runs, runs], names=["a", "b"]))
    return ["detect", "old.arrow", plain(folder), *KNN]


@aimed("too large")
def rows_without_end_in_arrow(folder: Path) -> list[str]:
    """Columns of nothing: 2^31 rows take no byte."""
    nothing = pa.nulls(2**31 - 1)
    with pa.ipc.new_file(
        folder / "old.arrow", pa.schema([("a", pa.null()), ("b", pa.null())])
    ) as writer:
        writer.write_batch(pa.record_batch([nothing, nothing], names=["a", "b"]))
    return ["detect", "old.arrow", plain(folder), *KNN, "--prepare"]


@aimed("too large")
def a_list_of_equal_numbers(folder: Path) -> list[str]:
    """A column that nobody looks at: lists of 500 million zeros in a few kilobytes."""
    values = pa.array(np.zeros(1 << 25, dtype=np.int8))
    lists = pa.ListArray.from_arrays(pa.array([0, 1 << 25], pa.int32()), values)
    few = rows(16)
    table = pa.table({"a": few[:, 0], "b": few[:, 1], "note": pa.chunked_array([lists] * 16)})
    return parquet(folder, table, compression="zstd", row_group_size=16)


@aimed("too large")
def a_page_that_swells(folder: Path) -> list[str]:
    """One page of a gigabyte of zeros."""
    cells = pa.array([bytes(1 << 20)] * 1_000, pa.large_binary())
    return parquet(
        folder,
        beside(1_000, note=cells),
        compression="zstd",
        use_dictionary=False,
        data_page_size=1 << 31,
    )


@aimed("")
def deep_nesting(folder: Path) -> list[str]:
    cells = pa.array([1, 2, 3])
    for _ in range(60):
        cells = pa.StructArray.from_arrays([cells], ["x"])
    values = rows(3)
    return parquet(folder, pa.table({"a": values[:, 0], "b": values[:, 1], "deep": cells}))


@aimed("")
def very_deep_nesting(folder: Path) -> list[str]:
    """As deep as Arrow reads it."""
    kind: pa.DataType = pa.int8()
    for _ in range(50):
        kind = pa.list_(kind)
    values = rows(3)
    table = pa.table({"a": values[:, 0], "b": values[:, 1], "deep": pa.nulls(3, kind)})
    with pa.ipc.new_stream(folder / "new.arrow", table.schema) as writer:
        writer.write_table(table)
    return judged(folder, "new.arrow", "--output", "out.csv")


@aimed("columns")
def many_columns_of_parquet(folder: Path) -> list[str]:
    one = pa.array([1.0, 2.0])
    return parquet(folder, pa.table([one] * 150_000, names=[f"c{i}" for i in range(150_000)]))


@aimed("")
def a_huge_row_group(folder: Path) -> list[str]:
    values = np.tile(rows(1 << 16), (1 << 6, 1))
    table = pa.table({"a": values[:, 0], "b": values[:, 1]})
    return parquet(folder, table, row_group_size=1 << 22)


def _arrow_file(table: pa.Table) -> bytearray:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return bytearray(sink.getvalue())


@aimed("cannot be read")
def bad_offsets(folder: Path) -> list[str]:
    content = _arrow_file(beside(4, note=pa.array(["one", "two", "three", "four"])))
    offsets = np.array([0, 3, 6, 11, 15], dtype="<i4").tobytes()
    place = content.index(offsets)
    content[place + 4 : place + 20] = np.array([2**30, 6, -5, 2**31 - 1], dtype="<i4").tobytes()
    (folder / "new.arrow").write_bytes(content)
    return judged(folder, "new.arrow", "--output", "out.csv")


@aimed("cannot be read")
def a_footer_of_two_gigabytes(folder: Path) -> list[str]:
    pq.write_table(beside(4), folder / "new.parquet")
    content = bytearray((folder / "new.parquet").read_bytes())
    content[-8:-4] = (2**31 - 1).to_bytes(4, "little")
    (folder / "new.parquet").write_bytes(content)
    return judged(folder, "new.parquet")


@aimed("cannot be read")
def a_page_header_without_a_bottom(folder: Path) -> list[str]:
    """Structs within structs, deeper than a recursion may go."""
    values = np.random.default_rng(0).normal(size=(20_000, 2))
    table = pa.table({"a": values[:, 0], "b": values[:, 1]})
    pq.write_table(table, folder / "new.parquet", compression="zstd", use_dictionary=False)
    content = bytearray((folder / "new.parquet").read_bytes())
    content[4:60_004] = b"\x1c" * 60_000
    (folder / "new.parquet").write_bytes(content)
    return judged(folder, "new.parquet")


# --- databases -----------------------------------------------------------------------------------


def sqlite(folder: Path, *statements: str, query: str = "select * from new") -> list[str]:
    with closing(sqlite3.connect(folder / "new.sqlite")) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return judged(folder, f"new.sqlite#{query}")


ENDLESS = "with recursive c(i) as (select 1 union all select i + 1 from c)"


@aimed("too large")
def a_view_without_end(folder: Path) -> list[str]:
    return sqlite(
        folder, f"create view new as {ENDLESS} select i as a, zeroblob(65536) as b from c"
    )


@aimed("too large")
def a_reference_without_end(folder: Path) -> list[str]:
    sqlite(folder, f"create view new as {ENDLESS} select i as a, zeroblob(65536) as b from c")
    return ["detect", "new.sqlite#new", plain(folder), *KNN]


@aimed("too large")
def huge_blobs(folder: Path) -> list[str]:
    view = "create view new as select 1 as a, zeroblob(800000000) as b union all select 2, 3"
    return sqlite(folder, view)


@aimed("too large")
def huge_texts(folder: Path) -> list[str]:
    return sqlite(folder, "create view new as select 1 as a, hex(zeroblob(400000000)) as b")


@aimed("too large")
def large_blobs(folder: Path) -> list[str]:
    """Cells below the limit of one, and many of them."""
    view = f"create view new as {ENDLESS} select i as a, i as b, zeroblob(8000000) as c from c"
    return sqlite(folder, view)


@aimed("")
def odd_unicode(folder: Path) -> list[str]:
    """Lone surrogates and other bytes that are no UTF-8: as cells, and in names."""
    bad = "cast(x'eda080ff66' as text)"
    return sqlite(
        folder,
        "create table new (a, b, note)",
        f"insert into new values (1, 2, {bad}), (3, 4, 'x')",
    )


@aimed("name")
def odd_unicode_in_names(folder: Path) -> list[str]:
    sqlite(folder, 'create table new (a, b, "noteXY")', "insert into new values (1, 2, 3)")
    path = folder / "new.sqlite"
    path.write_bytes(path.read_bytes().replace(b"noteXY", b"note\xed\xff"))
    return judged(folder, "new.sqlite#select * from new")


@aimed("too large")
def a_query_without_end_in_duckdb(folder: Path) -> list[str]:
    import duckdb

    with closing(duckdb.connect(str(folder / "new.duckdb"))) as connection:
        connection.execute(
            "create view new as select range as a, repeat('x', 65536) as b from range(1000000000)"
        )
    return judged(folder, "new.duckdb#new")


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
    arguments = AIMED[name][0](folder)
    before = set(os.listdir(folder))
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
        text=True,
        errors="replace",
        env={**os.environ, "TMPDIR": str(folder)},
    )
    seconds = time.monotonic() - start
    left = sorted(set(os.listdir(folder)) - before)
    said, _, numbers = done.stdout.rpartition("ENDED ")
    code, peak = map(int, numbers.split())
    return Ended(code, said, peak / 1e3, seconds, left)


def main() -> int:
    """Run some or all, and tell what each took."""
    wrong = 0
    for name in sys.argv[1:] or AIMED:
        with tempfile.TemporaryDirectory(prefix="aimed-") as folder:
            ended = run(name, Path(folder))
        words = AIMED[name][1]
        good = ended.code == bool(words) and words in ended.said.lower()
        good &= ended.megabytes < MOST_RESIDENT / 1e6
        wrong += not good
        print(
            f"{'' if good else 'WRONG '}{name}: exit {ended.code}, {ended.megabytes:,.0f} MB, "
            f"{ended.seconds:.1f} s: {' '.join(ended.said[-600 if not good else -300 :].split())}",
            flush=True,
        )
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
