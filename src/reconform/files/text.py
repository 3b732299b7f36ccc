"""CSV and TSV: reading, what is wrong with a file that cannot be read, and writing.

Every cell is read as the text that it is. Numbers are made of the cells that a detector needs and
of no others, so identifiers such as ``007`` come out as they went in, and whether a cell is a
number never depends on the cells around it.

The quick reader is Arrow's. Where it fails, the file is read once more and slowly, by Python's
own reader, to say what is wrong on which line.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from ..errors import InputError, warn_once
from ..tables import Source
from ..tables.cells import blocks, kind_of, words

if TYPE_CHECKING:
    from .formats import Layout, Stored

# The reader has up to 32 blocks in memory. A row must fit into one: in wide tables they are larger.
BLOCK_BYTES = 1 << 20
LARGEST_FIRST = 1 << 24
ROWS_IN_BLOCK = 64
CELL_BYTES = 32

# The longest row, header included, that is read; blocks grow up to twice this size.
LONGEST_ROW = 1 << 23

OTHER_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}
# Rows in which another delimiter has to be plain.
FEW_RECORDS = 100


A_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")


class TextSource(Source):
    """A CSV or TSV file."""

    def __init__(self, file: Stored, layout: Layout, usual: str) -> None:
        self.path, self.label, self.compressed = file
        self.layout: Layout = layout
        self.delimiter = layout.delimiter or usual
        names, row = self._first_records()
        if len(names) == 1 and layout.delimiter != usual:
            names, row = self._split_otherwise(names[0]) or (names, row)
        if layout.no_header:
            names = [""] * len(names)
        elif all(A_NUMBER.fullmatch(name) for name in names) and (
            any(re.search(r"[.eE-]", name) for name in names)
        ):
            raise InputError(
                self.label,
                f"the first line holds numbers ({', '.join(names[:3])}, ...) and should hold the "
                "names of the columns; add a header, or say `no_header=True`.",
                line=1,
            )
        self.layout = replace(self.layout, delimiter=self.delimiter)  # which outputs take over
        self._names = _named(names)
        self._renamed = self._names != names
        names = self._names
        longest = min(len(self.delimiter.join(row).encode()), CELL_BYTES * len(names))
        self._block = max(BLOCK_BYTES, min(ROWS_IN_BLOCK * longest, LARGEST_FIRST))
        self.schema = pa.schema([(name, pa.string()) for name in names])

    def tables(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield Arrow tables of text, with all columns, as large as the blocks of the reader."""
        last, done = None, 0
        while True:
            again = done  # rows that were yielded before the blocks grew
            try:
                # By bytes, since Arrow takes a name for UTF-8, which it need not be.
                file = pa.OSFile(os.fsencode(self.path))
                with pa.CompressedInputStream(file, "gzip") if self.compressed else file as stream:
                    for batch in self._reader(stream):
                        new = batch.slice(min(again, batch.num_rows))
                        again -= batch.num_rows - new.num_rows
                        if new.num_rows:
                            last = new
                            done += new.num_rows
                            yield pa.Table.from_batches([new])
                break
            except (pa.ArrowException, OSError) as error:
                if "straddl" not in str(error) or self._block >= 2 * LONGEST_ROW:
                    self._explain(error)
                self._block = min(8 * self._block, 2 * LONGEST_ROW)
        if last is not None and _breaks_lines(last.slice(last.num_rows - 1)):
            self._scan()  # the last row may have swallowed others after a quote

    def line(self, row: int) -> int | None:
        """Line of a row, found by reading up to it."""
        for number, (line, _) in enumerate(
            self._records(), start=0 if self.layout.no_header else -1
        ):
            if number == row:
                return line
        return None

    def _reader(self, stream: Any) -> Any:
        names: dict[str, Any] = {}
        if self._renamed:
            names = {
                "column_names": self._names,
                "skip_rows_after_names": int(not self.layout.no_header),
            }
        return arrow_csv.open_csv(
            stream,
            read_options=arrow_csv.ReadOptions(block_size=self._block, **names),
            parse_options=arrow_csv.ParseOptions(
                delimiter=self.delimiter, newlines_in_values=True, ignore_empty_lines=True
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=self.schema, strings_can_be_null=False
            ),
        )

    def _bytes(self) -> IO[bytes]:
        if self.compressed:
            return gzip.open(self.path, "rb")  # type: ignore[return-value]
        return self.path.open("rb")

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Lines and fields of every record, the header first, by Python's reader."""
        with self._bytes() as raw:
            text = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
            taken = 0  # characters of this row, which may take only so many

            def lines() -> Iterator[str]:
                nonlocal taken
                while line := text.readline(LONGEST_ROW + 1 - taken):
                    taken += len(line)
                    if taken > LONGEST_ROW:
                        raise _TooLongError
                    yield line

            reader = csv.reader(lines(), delimiter=self.delimiter, strict=True)
            line = 1
            try:
                while True:
                    taken = 0
                    # The limit of Python's reader is of the whole process, so only meanwhile.
                    before = csv.field_size_limit(LONGEST_ROW)
                    try:
                        fields = next(reader, None)
                    finally:
                        csv.field_size_limit(before)
                    if fields is None:
                        return
                    if fields:
                        yield line, fields
                    line = reader.line_num + 1
            except UnicodeDecodeError as error:
                self._refuse_bytes()
                raise InputError(self.label, "this is not UTF-8 text.") from error
            except csv.Error as error:
                what = f"{error}"
                if "unexpected end" in what:
                    what = "a quote opens here and never closes"
                raise InputError(
                    self.label, f"{what}. Quotes inside a cell are written twice.", line=line
                ) from error
            except _TooLongError as error:
                quoted = reader.line_num >= line  # the row goes on over lines
                raise self._too_long(line, quoted=quoted) from error

    def _first_records(self) -> tuple[list[str], list[str]]:
        """Column names and the first row; refuse a file without any."""
        try:
            records = self._records()
            _, names = next(records, (0, []))
            _, row = (0, names) if self.layout.no_header else next(records, (0, []))
        except (OSError, EOFError, zlib.error) as error:  # a broken gzip
            raise InputError(self.label, f"it cannot be read ({error}).") from error
        if not row:
            raise InputError(
                self.label, "it has a header and no rows." if names else "the file is empty."
            )
        return names, row

    def _split_otherwise(self, name: str) -> tuple[list[str], list[str]] | None:
        """Read a file that seems to have one column by what plainly separates several.

        What was said overrules it, unless that is plainly wrong; where it is not plain, ask.
        """
        said = self.delimiter
        for other, word in OTHER_DELIMITERS.items():
            if other not in name:
                continue
            rows = self._first_rows_by(other)
            if rows and self.layout.delimiter is None:
                self._tell(word, rows)
                return self._first_records()
            way = "`format='tsv'`" if other == "\t" else f"`delimiter={other!r}`"
            if rows:
                raise InputError(
                    self.label,
                    f"`delimiter={said!r}` makes one column of it, and {word} separate its "
                    f"columns: leave `delimiter` out, or give {way}.",
                )
            if self.layout.delimiter is None:
                raise InputError(
                    self.label,
                    f"the header is a single column, {name[:60]!r}, which contains {word}. "
                    f"If {word} separate the columns, give {way}; if not, give "
                    f"`delimiter={said!r}`.",
                )
        return None

    def _first_rows_by(self, other: str) -> list[list[str]]:
        """The first rows by another delimiter, which stays if they all have as many fields."""
        said, self.delimiter = self.delimiter, other
        with suppress(InputError):
            records = [fields for _, fields in itertools.islice(self._records(), FEW_RECORDS)]
            if len({len(fields) for fields in records}) == 1:
                return records[1 - self.layout.no_header :]
        self.delimiter = said
        return []

    def _tell(self, word: str, rows: list[list[str]]) -> None:
        """Say what separates columns; and which decimal sign numbers have, where it is plain."""
        cells = [cell.strip() for row in rows for cell in row]
        commas = [cell for cell in cells if re.fullmatch(r"[+-]?\d+,\d+", cell)]
        points = any(re.fullmatch(r"[+-]?\d*\.\d+", cell) for cell in cells)
        # 1,565 may be more than a thousand.
        plain = any(len(cell.partition(",")[2]) != 3 for cell in commas) and not points
        plain = plain and self.layout.decimal == "."
        if plain:
            self.layout = replace(self.layout, decimal=",")
        also = ", and its numbers have decimal commas" if plain else ""
        sentence = f"{self.label}: {word} separate its columns{also}."
        warn_once(None, "delimiter", f"{sentence} `delimiter` overrules it.", UserWarning)

    # --- what is wrong ---------------------------------------------------------------------------

    def _explain(self, error: Exception) -> NoReturn:
        """Find the line at which the quick reader failed."""
        self._refuse_bytes()
        self._scan()
        if "straddl" in str(error):
            raise self._too_long(None) from error
        raise InputError(self.label, f"it cannot be read ({error}).") from error

    def _too_long(self, line: int | None, *, quoted: bool = False) -> InputError:
        what = "the header" if line == 1 else "a row"
        opens = " A quote that opens there and never closes may be the reason." if quoted else ""
        return InputError(
            self.label,
            f"{what} is longer than {LONGEST_ROW:,} bytes, the most that is read.{opens} Write one "
            "row per line, and leave out columns of such long cells.",
            line=line,
        )

    def _refuse_bytes(self) -> None:
        """Refuse the first line that is not UTF-8."""
        with self._bytes() as raw:
            try:
                for number, line in enumerate(iter(lambda: raw.readline(LONGEST_ROW), b""), 1):
                    if len(line) == LONGEST_ROW:
                        return  # its text may be cut within a character; it is refused as too long
                    try:
                        line.decode("utf-8")
                    except UnicodeDecodeError as error:
                        raise InputError(
                            self.label,
                            f"this is not UTF-8 text: byte 0x{line[error.start]:02x} at position "
                            f"{error.start + 1} of the line. If the file is Latin-1, convert it: "
                            "iconv -f latin1 -t utf-8.",
                            line=number,
                        ) from error
            except (OSError, EOFError, zlib.error) as error:  # a broken gzip
                raise InputError(self.label, f"it cannot be read ({error}).") from error

    def _scan(self) -> None:
        """Refuse the first ragged line, or a quote that never closes."""
        records = self._records()
        _, names = next(records)
        records = itertools.chain([(1, names)], records)
        for line, fields in records:
            if len(fields) != len(names):
                hint = ""
                if self.delimiter == "," and len(fields) == 2 * len(names):
                    hint = (
                        " Twice as many: numbers with decimal commas? They cannot be told from "
                        "the commas between columns; write the file with another delimiter."
                    )
                raise InputError(
                    self.label,
                    f"the line has {len(fields):,} field{'s' * (len(fields) != 1)}, and the header "
                    f"has {len(names)}.{hint}",
                    line=line,
                )


def _named(names: list[str]) -> list[str]:
    """Give columns without a name one, by their number; the first may be the index of a frame.

    Examples
    --------
    >>> _named(["", "x", "", ""])
    ['', 'x', 'column 3', 'column 4']
    >>> _named(["", ""])
    ['column 1', 'column 2']
    """
    index = len(names) > 1 and any(names[1:])
    return [
        name if name.strip() or (index and not j) else f"column {j + 1}"
        for j, name in enumerate(names)
    ]


class _TooLongError(Exception):
    """A row that is not read to its end."""


def _breaks_lines(row: Any) -> bool:
    """Whether a cell of the row contains a line break."""
    breaks = pc.match_substring_regex(pa.chunked_array(row.columns), "[\r\n]")
    return pc.any(breaks).as_py() is True


# --- writing -------------------------------------------------------------------------------------


# What a spreadsheet takes for a formula; with apostrophes before it, so that nothing is ambiguous.
FORMULA = r"^'*[=+\-@\t\r\n＝＋－＠]"
SIGNED_NUMBER = r"^[+-]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][+-]?[0-9]+)?$"


def safe_text(text: str) -> str:
    """Write an apostrophe before a text that a spreadsheet would take for a formula.

    Examples
    --------
    >>> [safe_text(text) for text in ("=1+1", "-3.5", "-x", "'=1+1", "plain")]
    ["'=1+1", '-3.5', "'-x", "''=1+1", 'plain']
    """
    return "'" + text if re.match(FORMULA, text) and not re.match(SIGNED_NUMBER, text) else text


def safe_table(table: Any) -> Any:
    """Do to all texts and names of a table what `safe_text` does."""
    columns = []
    for column in table.columns:
        if kind_of(column.type) in ("text", "other"):
            cells = pc.cast(words(column), pa.large_string())
            odd = pc.and_not(
                pc.match_substring_regex(cells, FORMULA),
                pc.match_substring_regex(cells, SIGNED_NUMBER),
            )
            if pc.any(odd).as_py():
                marked = pc.binary_join_element_wise(_text("'"), cells, _text(""))
                column = pc.if_else(odd, marked, cells)
        columns.append(column)
    return pa.table(columns, names=[safe_text(name) for name in table.column_names])


class TextWriter:
    """Writes tables as text, with quotes only where a cell needs them."""

    def __init__(self, sink: Any, schema: Any, delimiter: str, decimal: str) -> None:
        self.sink = sink
        self.delimiter = delimiter
        self.decimal = decimal
        cells = pa.array(schema.names, pa.string())
        names = pa.table([cells.slice(j, 1) for j in range(len(cells))], names=schema.names)
        sink.write(_lines(names, delimiter, "."))

    def write_table(self, table: Any) -> None:
        """Add the rows of a table."""
        if table.num_rows:
            self.sink.write(_lines(table, self.delimiter, self.decimal))

    def close(self) -> None:
        """Do nothing: the text ends with its last row."""


def _lines(table: Any, delimiter: str, decimal: str) -> Any:
    """Rows of a table as one buffer of text; quotes only where a cell needs them."""
    cells: list[Any] = [None] * table.num_columns
    for where, column in blocks(table.columns):
        written = _as_text(column.combine_chunks(), delimiter, decimal)
        for i, j in enumerate(where):
            cells[j] = written.slice(i * table.num_rows, table.num_rows)
    rows = pc.binary_join_element_wise(
        *cells, _text(delimiter), null_handling="replace", null_replacement=""
    )
    return pc.binary_join_element_wise(rows, _text(""), _text("\n")).buffers()[2]


def _as_text(column: Any, delimiter: str, decimal: str) -> Any:
    cells = pc.cast(words(column), pa.large_string())
    if decimal == "," and pa.types.is_floating(column.type):
        cells = pc.replace_substring(cells, ".", ",")
    special = pc.match_substring_regex(cells, f'["\r\n{_escaped(delimiter)}]')
    if not pc.any(special).as_py():
        return cells
    doubled = pc.replace_substring(cells, '"', '""')
    quoted = pc.binary_join_element_wise(_text('"'), doubled, _text('"'), _text(""))
    return pc.if_else(special, quoted, cells)


def _text(text: str) -> Any:
    return pa.scalar(text, pa.large_string())


def _escaped(delimiter: str) -> str:
    return "\\" + delimiter if delimiter in "\\]^-[" else delimiter
