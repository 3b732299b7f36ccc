"""Throw damaged and odd tables at the command line, and look for what must never happen.

Run ``python tests/fuzz/tables.py --seconds 60 --seed 0``, or ``make fuzz``; see `worker`. Every
mutant is a reference, new rows and options. A finding is exit code 70, or an exception that got
out; a worker that dies (a crash in compiled code); a command that takes more than 60 seconds of the
processor; a file that is left behind although the exit code says failure, or a file that was
changed; memory that grows by more than 1 GB.
"""

from __future__ import annotations

import gzip
import io
import os
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent.parent))

from worker import MOST_MEGABYTES, forget_the_peak, fuzz, megabytes, serve

from arrow_types import ZOO

PRECIOUS = b"precious"

SUFFIXES = (".csv", ".csv", ".tsv", ".csv.gz", ".parquet", ".parquet", ".arrow", ".feather")
TEXT = (".csv", ".tsv", ".csv.gz")
ODD_CELLS = (
    "", " ", "NaN", "nan", "NULL", "inf", "-Infinity", "1e400", "1e-400", "-0.0", "0x1F", "1_000",
    "1,5", "1.000,5", "1e308", "true", "FALSE", "2024-01-31", "31/12/99", "12:30", "red", "rot",
    '"', '""', 'a"b', "a\nb", "a\r\nb", "a,b", "a;b", "a\tb", "\0", "\ufeff", "é", "日本", "😀",
    "\x1b[2J", "=1+1", "-", "+", ".", "e", "1e", "٣", "１", "9" * 400, "x" * 200_000, "<b>&", "%s",
)  # fmt: skip
ODD_NAMES = (
    *("", " ", "a", "a.b", "score", "p_value", "anomaly", "x" * 5_000, "a,b", 'q"q', "n\nn", "1.5"),
    *("__index_level_0__", "é", "\ufeff", "\x1b[31m", "None", "-", "--fdr", "{x}", "a\tb", "index"),
)
ENCODINGS = ("latin-1", "utf-16", "utf-16-le", "utf-32", "utf-8-sig", "cp1252", "utf-7", "cp037")
DELIMITERS = (*';\t| :.-e0#é"\\^]a', "tab")


@dataclass
class Mutant:
    """One run: the files by name, what to run, and what is given on standard input."""

    files: dict[str, bytes]
    commands: list[list[str]]
    stdin: bytes | None = None


# --- making mutants ------------------------------------------------------------------------------


def make(seed: int, number: int) -> Mutant:
    """Make a mutant; the same for the same two numbers."""
    dice = random.Random(f"{seed}/{number}")
    columns = dice.randint(1, 4)
    tables = [
        _table(dice, columns, dice.choice((3, 20, 40, 40, 40, 40))),
        _table(dice, columns, 12),
    ]
    for name, share, cell in (("colour", 0.3, _label), ("id", 0.5, "r{}".format)):
        if dice.random() < share:
            tables = [
                table.append_column(name, pa.array([cell(i) for i in range(len(table))]))
                for table in tables
            ]
    which = dice.choice(("reference", "new", "new", "both"))
    suffixes = [dice.choice(SUFFIXES)] * 2 if dice.random() < 0.7 else dice.choices(SUFFIXES, k=2)
    files = {}
    for name, table, suffix in zip(("reference", "new"), tables, suffixes, strict=True):
        touched = which in (name, "both")
        times = dice.choice((1, 1, 1, 2, 3)) if touched else 0
        files[name + suffix] = _written(dice, table, suffix, times)
    return _with_options(dice, files, [str(n) for n in tables[0].column_names])


def _table(dice: random.Random, columns: int, rows: int) -> Any:
    rng = np.random.default_rng(dice.getrandbits(32))
    values = rng.normal(size=(rows, columns)).round(3)
    values[-1] += 9
    return pa.table({f"x{j}": values[:, j] for j in range(columns)})


def _label(row: int) -> str:
    return ("red", "green", "blue", "green")[row * row % 7 % 4]


def _written(dice: random.Random, table: Any, suffix: str, times: int) -> bytes:
    """Write a table with so many mutations of its columns, its cells, its text and its bytes."""
    kinds = dice.choices(("columns", "format", "format", "format", "bytes"), k=times)
    for _ in range(kinds.count("columns")):
        table = dice.choice(COLUMN_MUTATIONS)(dice, table)
    if suffix in TEXT:
        content = _as_text(dice, table, suffix, kinds.count("format"))
    else:
        for _ in range(kinds.count("format")):
            table = dice.choice(TYPE_MUTATIONS)(dice, table)
        content = _as_binary(dice, table, suffix, "format" in kinds)
    for _ in range(kinds.count("bytes")):
        content = dice.choice(BYTE_MUTATIONS)(dice, content)
    if suffix.endswith(".gz"):
        content = gzip.compress(content, mtime=0)
        if "bytes" in kinds and dice.random() < 0.3:
            content = dice.choice(BYTE_MUTATIONS)(dice, content)
    return content


def _put(dice: random.Random, table: Any, column: Any) -> Any:
    """A column in the place of one that is there."""
    j = dice.randrange(table.num_columns)
    return table.set_column(j, table.column_names[j], column)


def _rename(dice: random.Random, table: Any) -> Any:
    names = list(table.column_names)
    names[dice.randrange(len(names))] = dice.choice((*ODD_NAMES, names[0]))
    return table.rename_columns(names)


def _constant(dice: random.Random, table: Any) -> Any:
    value = dice.choice((0.0, 1e308, -1e308, float("inf"), float("nan"), None, 5e-324))
    return _put(dice, table, pa.array([value] * len(table), pa.float64()))


def _spoil_number(dice: random.Random, table: Any) -> Any:
    j = dice.randrange(table.num_columns)
    if not len(table) or not pa.types.is_floating(table.column(j).type):
        return table
    values = table.column(j).to_pylist()
    for _ in range(dice.choice((1, 2, len(values)))):
        odd = (None, float("nan"), float("inf"), -float("inf"), 1e308, 1e-308, 1e200, -0.0)
        values[dice.randrange(len(values))] = dice.choice(odd)
    return table.set_column(j, table.column_names[j], pa.array(values, pa.float64()))


COLUMN_MUTATIONS: list[Callable[[random.Random, Any], Any]] = [
    *(_rename, _rename, _constant, _spoil_number),
    lambda dice, t: t.remove_column(dice.randrange(t.num_columns)) if t.num_columns > 1 else t,
    lambda dice, t: t.select(dice.sample(range(t.num_columns), t.num_columns)),  # shuffled
    lambda dice, t: t.append_column(dice.choice(t.column_names), t.column(0)),
    lambda dice, t: t.slice(0, dice.choice((0, 1, 2, 3))),
]


def _retype(dice: random.Random, table: Any) -> Any:
    """Put a column of an odd type in place of one, or beside them."""
    name = dice.choice(list(ZOO))
    column = ZOO[name]
    try:
        column = pa.concat_arrays([column] * (len(table) // len(column) + 1)).slice(0, len(table))
    except pa.ArrowException:
        return table
    if dice.random() < 0.8:
        return table.append_column(dice.choice((name, "id2")), column)
    return _put(dice, table, column)


def _cast(dice: random.Random, table: Any) -> Any:
    types = [pa.float16(), pa.float32(), pa.int8(), pa.uint64(), pa.string(), pa.large_string()]
    types += [pa.bool_(), pa.decimal128(20, 3), pa.string_view(), pa.timestamp("s"), pa.date32()]
    j = dice.randrange(table.num_columns)
    try:
        column = table.column(j).cast(dice.choice(types), safe=False)
    except pa.ArrowException:
        return table
    return table.set_column(j, table.column_names[j], column)


TYPE_MUTATIONS: list[Callable[[random.Random, Any], Any]] = [_retype, _retype, _cast, _spoil_number]


def _as_binary(dice: random.Random, table: Any, suffix: str, odd: bool) -> bytes:
    sink = io.BytesIO()
    if odd and dice.random() < 0.3:
        table = table.replace_schema_metadata({b"pandas": b"{", b"\xff": b"\xfe"})
    step = dice.choice((1, 5, 1_000)) if odd else 1_000
    if suffix == ".parquet":
        options = {"compression": dice.choice(("none", "snappy", "zstd", "gzip", "lz4"))}
        if odd:
            options["version"] = dice.choice(("1.0", "2.4", "2.6"))
            options["data_page_version"] = dice.choice(("1.0", "2.0"))
            options["use_dictionary"] = dice.random() < 0.5
        try:
            pq.write_table(table, sink, row_group_size=step, **options)
            return sink.getvalue()
        except (pa.ArrowException, UnicodeDecodeError):  # what Parquet has no type for
            sink = io.BytesIO()
    compression = dice.choice((None, "lz4", "zstd"))
    choose = pa.ipc.new_stream if odd and dice.random() < 0.3 else pa.ipc.new_file
    settings = pa.ipc.IpcWriteOptions(compression=compression, emit_dictionary_deltas=True)
    with choose(sink, table.schema, options=settings) as writer:
        writer.write_table(table, max_chunksize=step)
    return sink.getvalue()


def _as_text(dice: random.Random, table: Any, suffix: str, mutations: int) -> bytes:
    columns = [[_cell(v) for v in column.to_pylist()] for column in table.columns]
    lines = [list(table.column_names), *map(list, zip(*columns, strict=True))]
    delimiter = "\t" if suffix == ".tsv" else ","
    quote, ending, encoding = True, "\n", "utf-8"
    for _ in range(mutations):
        what = dice.randrange(9)
        line = dice.choice(lines)
        if what <= 3 and line:
            for _ in range(dice.choice((1, 1, 3, 20))):
                line[dice.randrange(len(line))] = dice.choice(ODD_CELLS)
        elif what == 4:
            delimiter = dice.choice(DELIMITERS)
            delimiter = "\t" if delimiter == "tab" else delimiter
        elif what == 5:
            encoding = dice.choice(ENCODINGS)
        elif what == 6:
            ending = dice.choice(("\r\n", "\r", "\n\n", "\n\r", " \n", "\x85", "\u2028"))
        elif what == 7:
            quote = False
        elif line:  # a ragged line
            line[:] = line + line if dice.random() < 0.5 else line[:-1]
    text = ending.join(delimiter.join(_quoted(c, delimiter, quote) for c in line) for line in lines)
    return (text + dice.choice(("", ending))).encode(encoding, "replace")


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _quoted(cell: str, delimiter: str, quote: bool) -> str:
    if quote and any(c in cell for c in (delimiter, '"', "\n", "\r")):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def _flip(dice: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(dice.choice((1, 1, 2, 8, 40))):
        if changed:
            changed[dice.randrange(len(changed))] = dice.choice((0, 255, dice.randrange(256)))
    return bytes(changed)


def _flip_end(dice: random.Random, content: bytes) -> bytes:
    """Change what stands near the end, where Parquet and Arrow keep their footers."""
    cut = max(0, len(content) - dice.choice((16, 200, 1_000)))
    return content[:cut] + _flip(dice, content[cut:])


def _place(dice: random.Random, content: bytes) -> int:
    return dice.randrange(len(content) + 1)


def _insert(dice: random.Random, content: bytes) -> bytes:
    place = _place(dice, content)
    odd = (b"\0", b"\xff", b'"', b"\n", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"PAR1", b"\0" * 500)
    return content[:place] + dice.choice(odd) + content[place:]


def _remove(dice: random.Random, content: bytes) -> bytes:
    place = _place(dice, content)
    return content[:place] + content[place + dice.choice((1, 2, 8, 100)) :]


BYTE_MUTATIONS: list[Callable[[random.Random, bytes], bytes]] = [
    *(_flip, _flip, _flip_end, _insert, _remove),
    lambda dice, content: content[: _place(dice, content)],
    lambda dice, content: content[: _place(dice, content)] + content[_place(dice, content) :],
]


FITTINGS = (
    *[("knn", "split")] * 8, *[("knn", "cv+")] * 4, *[("knn", "jackknife+")] * 4,
    ("iforest", "split"), ("inne", "split"), ("knn", "full"), ("knn", "jab+"), ("knn", "cv"),
)  # fmt: skip


def _with_options(dice: random.Random, files: dict[str, bytes], names: list[str]) -> Mutant:
    def some(*options: tuple[float, str, Any]) -> list[str]:
        """Options, each with a chance of its own, and one of its values where it has some."""
        words = []
        for chance, option, values in options:
            values = [value for value in values if "\0" not in value]
            if dice.random() < chance:
                words += [option, dice.choice(values)] if values else [option]
        return words

    reference, new = files
    odd, features = [*names, *ODD_NAMES], [name for name in names if name.startswith("x")]
    detector, method = dice.choice(FITTINGS)
    columns = some(  # whatever else there is must not matter
        (0.5 * bool(features), "--columns", [",".join(features[: dice.randint(1, 4)])]),
        *((0.03, option, odd) for option in ("--columns", "--drop", "--category")),
    )
    shared = some(
        (float("id" in names), "--id", ["id"]),
        (0.1, "--id", ["id2", *odd]),
        (0.03, "--delimiter", DELIMITERS),
        (0.03, "--decimal", ",."),
        (0.03, "--missing", ODD_CELLS),
        (0.03, "--format", ("csv", "tsv", "parquet", "arrow")),
        (0.2, "--json", ()),
    )
    judging = some(
        (1.0, "--fdr", ("0.1", "0.5", "0.999", "1e-9")), (0.3, "--report", ["report.html"])
    )
    judging += some((0.05, "--procedure", ("by", "storey")), (0.05, "--validity", ["proven"]))
    if dice.random() < 0.5:
        judging += ["--output", f"out{dice.choice(SUFFIXES)}"]
        judging += some((0.3, "--only-anomalies", ()))
    if dice.random() < 0.05:
        files["out.csv"] = files["report.html"] = PRECIOUS
    stdin = None
    if dice.random() < 0.05:
        format = Path(new.removesuffix(".gz")).suffix[1:].replace("feather", "arrow")
        stdin, new = files[new], "-"
        shared += ["--format", format]
    fitting = ["--detector", detector, "--method", method, *columns]
    if dice.random() < 0.2:
        fit = ["fit", reference, "--model", "m.rcad", *fitting, *shared]
        return Mutant(files, [fit, ["score", "m.rcad", new, *judging, *shared]], stdin)
    return Mutant(files, [["detect", reference, new, *fitting, *judging, *shared]], stdin)


# --- the worker ----------------------------------------------------------------------------------


def run(mutant: Mutant) -> list[dict[str, Any]]:
    """Run a mutant's commands in a folder of their own; say how each ended."""
    from click.testing import CliRunner

    from reconform.cli import main

    results: list[dict[str, Any]] = []
    before_folder = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for name, content in mutant.files.items():
            Path(folder, name).write_bytes(content)
        os.chdir(folder)
        try:
            for command in mutant.commands:
                before = _contents(folder)
                memory = forget_the_peak()
                done = CliRunner().invoke(main, command, input=mutant.stdin)
                after = _contents(folder)
                escaped = done.exception is not None and not isinstance(done.exception, SystemExit)
                results.append(
                    {
                        "exit": done.exit_code,
                        "escaped": repr(done.exception)[:300] if escaped else "",
                        "output": done.output[-3_000:],
                        "changed": sorted(n for n in before if after.get(n) != before[n]),
                        "left": sorted(after.keys() - before.keys()),
                        "megabytes": megabytes() - memory,
                    }
                )
                if done.exit_code:
                    break
        finally:
            os.chdir(before_folder)
    return results


def findings(results: list[dict[str, Any]]) -> list[str]:
    """Say what must not have happened."""
    found = []
    for result in results:
        if result["exit"] not in (0, 1, 2):
            found.append(f"exit code {result['exit']}")
        if result["escaped"]:
            found.append(f"an exception got out: {result['escaped']}")
        elif "Traceback (most recent call last)" in result["output"]:
            found.append("a traceback")
        if result["exit"] and result["left"]:
            found.append(f"exit code {result['exit']}, and {result['left']} left behind")
        if result["changed"]:
            found.append(f"files were changed: {result['changed']}")
        if result["megabytes"] > MOST_MEGABYTES:
            found.append(f"{result['megabytes']:,.0f} MB of memory")
    return found


def _contents(folder: str) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in Path(folder).iterdir() if p.is_file()}


def judged(results: list[dict[str, Any]]) -> tuple[str, list[str]]:
    said = findings(results)
    return f"with {results[-1]['exit']}", [*said, results[-1]["output"]] if said else []


def keep(seed: int, number: int, folder: Path) -> None:
    mutant = make(seed, number)
    for name, content in {**mutant.files, "commands": repr(mutant.commands).encode()}.items():
        (folder / f"{seed}-{number}-{name}").write_bytes(content)


if __name__ == "__main__":
    work = partial(serve, lambda seed, number: run(make(seed, number)))
    sys.exit(fuzz(__file__, "mutated tables", work, judged, keep))
