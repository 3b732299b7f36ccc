"""`reconform stream`: rows come in on standard input, decisions go out on standard output."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any

import click
from sklearn.utils import get_tags

from .. import models
from ..assumption.order import seconds_of
from ..detector import ConformalDetector
from ..errors import InputError
from ..files.judge import features_of
from ..files.lines import DELIMITERS, LABEL, Block, LineReader, blocks_of_lines
from ..reporting.words import counted
from ..rule import Rule
from ..statistics.fdr import counted_names
from ..stream import (
    DecayingMemory,
    DecidedWindow,
    FalseAlarmBudget,
    MicroBatches,
    OutlookWarning,
    WindowStream,
)
from ..stream.state import DecisionStream, Delivery
from ..timeseries import IN_ROWS, WindowFeatures
from .declare import PATH, Command, Number, choice, count, family, flag, in_options, option
from .model_commands import loading_options, remembered
from .options import fdr_option, ids_option, parallel
from .output import STDOUT, Voice, check_separate, complain

# The words that a decision has, in the order in which they are written.
WORDS = ("row", "line", "window", "p_value", "anomaly")

# Bad lines that get a sentence each; of further ones only the number is said.
MOST_SENTENCES = 100

BUDGET, WINDOWS, DECAY = "budget", "windows", "decay"

# Which ways to decide an option belongs to.
OWNERS: dict[str, tuple[str, ...]] = {
    "false_alarms": (BUDGET, WINDOWS),
    "per": (BUDGET,),
    "window": (WINDOWS,),
    "procedure": (WINDOWS,),
    "fdr": (WINDOWS, DECAY),
}


@dataclass(frozen=True)
class Flagging:
    """How rows are decided; None where an option was not given."""

    by: str
    false_alarms: float | None
    per: int | None
    window: int | None
    fdr: float | None
    procedure: str | None

    def __post_init__(self) -> None:
        for name, owners in OWNERS.items():
            if getattr(self, name) is not None and self.by not in owners:
                flag = name.replace("_", "-")
                raise click.UsageError(
                    f"--{flag} goes with --by {' or '.join(owners)}; it is --by {self.by} here."
                )
        Rule(**self.given("fdr", "procedure", "false_alarms"))  # refuses what none can have

    def make(self, cad: ConformalDetector, journal: Path | None) -> DecisionStream:
        """Begin a stream, or go on with one that has a journal."""
        if self.by == BUDGET:
            given = self.given("false_alarms", "per")
            return FalseAlarmBudget(cad, **given, journal=journal)
        if self.by == DECAY:
            return DecayingMemory(cad, **self.given("fdr"), journal=journal)
        given = self.given("fdr", "procedure", "false_alarms")
        return MicroBatches(cad, self.window or 200, **given, journal=journal)

    def given(self, *names: str) -> dict[str, Any]:
        """Those of the options that were given."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: values[name] for name in names if values[name] is not None}


flagging_options = family(
    "flagging",
    "Decision",
    Flagging,
    [
        choice(
            "--by",
            (BUDGET, WINDOWS, DECAY),
            BUDGET,
            "Decide in this way. budget: every row at once, with at most so many false alarms "
            "in so many rows. windows: a list for every window. decay: every row at once, by LORD "
            "with memory decay.",
        ),
        option(
            "--false-alarms",
            type=Number(0, min_open=True),
            metavar="NUMBER",
            show_default="1",
            help="Expect at most this many false alarms: in --per rows (budget), or in each window "
            "(windows), instead of --fdr.",
        ),
        count("--per", "1000", "Count --false-alarms in N rows; for budget."),
        count("--window", "200", "Put N rows into each window; for windows.", library="rows"),
        fdr_option("0.1"),
        choice(
            "--procedure",
            counted_names(),
            None,
            "Use this procedure on each window; bh by default.",
        ),
    ],
)


@dataclass(frozen=True)
class Incoming:
    """How lines are read, and what is done about those that cannot be."""

    id_columns: tuple[str, ...]
    format: str
    on_error: str
    journal: str | None
    start: int

    def __post_init__(self) -> None:
        if self.start and self.journal is None:
            raise click.UsageError("--from goes with --journal, which holds the rows before it.")

    def reader(self, cad: ConformalDetector, info: models.ModelInfo) -> LineReader:
        """What turns lines into rows of this model."""
        known = remembered(info)
        ids = self.id_columns or known.id_columns
        for name in ids:
            if name in WORDS:
                raise click.UsageError(
                    f"--id names the key {name!r}, which every decision has already; rename the "
                    "key in the rows."
                )
        return LineReader(
            features_of(cad, known.features),
            ids,
            format=self.format,
            allow_missing=bool(get_tags(cad).input_tags.allow_nan),
        )


incoming_options = family(
    "incoming",
    "Rows",
    Incoming,
    [
        ids_option("Write these keys or columns of a row with its decision, and never use them."),
        choice(
            "--format",
            ("jsonl", *DELIMITERS),
            "jsonl",
            "Read lines in this format: one JSON object per line, or text with a header.",
        ),
        choice(
            "--on-error",
            ("stop", "skip"),
            "stop",
            "End at a line that cannot be used, after the decisions on all lines before it (stop), "
            "or leave it out (skip); both say what is wrong.",
        ),
        option(
            "--journal",
            type=click.Path(path_type=str),
            metavar="FILE",
            help="Write every decision to this file before it goes out. If the file exists, go on "
            "where it ends: rows that come again get their decisions again.",
        ),
        count(
            "--from",
            0,
            "Number the first line N: the rows before it are in --journal.",
            least=0,
            library="start",
            parameter="start",
        ),
    ],
)

quiet_option = family("voice", "Messages", Voice, [flag("--quiet", "Print nothing but errors.")])


@click.command(
    cls=Command,
    examples=[
        "reconform stream plant.rcad --false-alarms 1 --per 1000 < rows.jsonl > decisions.jsonl",
        "reconform stream plant.rcad --by windows --window 200 --fdr 0.1 --journal plant.journal",
    ],
)
@click.argument("model", type=PATH)
@flagging_options
@incoming_options
@loading_options
@quiet_option
def stream(
    model: str, flagging: Flagging, incoming: Incoming, loading: dict[str, Any], voice: Voice
) -> None:
    """Decide about rows as they arrive on standard input, with a saved MODEL.

    Every line is a row; every row gets one line of JSON on standard output: row (its number, from
    0), line, the keys that --id names, p_value and anomaly. Rows are judged and
    written as soon as they arrive. A model of windows (fit --time) gives one line per window when
    it is complete. Messages go to standard error.
    """
    if sys.stdin is None:
        raise OSError(f"{LABEL}: it is closed, so no rows can be read.")
    if sys.stdout is None:
        raise OSError(f"{STDOUT}: it is closed, so decisions cannot be written.")
    around = {"MODEL": model, "standard input": "-", STDOUT: "/dev/stdout"}
    check_separate({"--journal": incoming.journal}, around)
    info = models.inspect(model)
    with parallel(loading["jobs"]):
        cad = models.load(info.path, trusted=loading["trust_objects"])
        with ExitStack() as stack:
            if cad.judges_windows:
                run: _Run = _Windows(cad, flagging, incoming, voice)
            else:
                reader = incoming.reader(cad, info)
                journal = None if incoming.journal is None else Path(incoming.journal)
                with voice.gathering_warnings():
                    warnings.simplefilter("ignore", OutlookWarning)
                    decisions = stack.enter_context(closing(flagging.make(cad, journal)))
                run = _Rows(decisions, reader, voice, incoming)
            with suppress(BrokenPipeError):  # nobody reads any more: that is the end
                run.to_the_end(sys.stdin.buffer)
            voice.note(str(run))


class _Run:
    """One run of the command: lines in, decisions out."""

    def __init__(self, reader: LineReader, voice: Voice, incoming: Incoming) -> None:
        self.reader, self.voice, self.skips = reader, voice, incoming.on_error == "skip"
        self.rows = self.skipped = 0

    def to_the_end(self, source: IO[bytes]) -> None:
        """Read and decide until the input ends."""
        for lines in blocks_of_lines(source):
            with self.voice.gathering_warnings():
                block = self.reader.read(lines)
            bad = block.errors[0] if block.errors and not self.skips else None
            if bad is not None:
                block = block.before(bad.line or 0)
            if block.lines:
                with self.voice.gathering_warnings():
                    self.decide(block)
            if bad is not None:
                self.finish(cut_short=True)
                raise bad
            for error in block.errors:
                self._skip(error)
        self.finish(cut_short=False)

    def decide(self, block: Block) -> None:
        """Take some rows, and write what is decided with them."""
        raise NotImplementedError

    def finish(self, *, cut_short: bool) -> None:
        """Write what is decided when no more rows come."""
        raise NotImplementedError

    def write(self, told: Sequence[Mapping[str, Any]]) -> None:
        """Write decisions, in ASCII: right whatever the encoding."""
        for one in told:
            print(json.dumps(one))
        sys.stdout.flush()

    def _skip(self, error: InputError) -> None:
        self.skipped += 1
        if self.skipped <= MOST_SENTENCES and not self.voice.quiet:
            complain(in_options(str(error)), label="Skipped: ")
        if self.skipped == MOST_SENTENCES and not self.voice.quiet:
            complain("further lines that cannot be used are only counted.", label="Skipped: ")


class _Windows(_Run):
    """With a model of windows: rows in, windows out."""

    def __init__(
        self, cad: ConformalDetector, flagging: Flagging, incoming: Incoming, voice: Voice
    ) -> None:
        if flagging.by != BUDGET or incoming.journal is not None:
            raise click.UsageError("a model of windows is decided by a budget, without --journal.")
        known = cad.state_.units
        assert isinstance(known, WindowFeatures)
        self.time, self.by = known.time, known.by
        self.beside = [name for name in (self.time, self.by) if name not in (IN_ROWS, "")]
        reader = LineReader(known.columns, self.beside, format=incoming.format)
        super().__init__(reader, voice, incoming)
        with voice.gathering_warnings():
            warnings.simplefilter("ignore", OutlookWarning)  # which is said below
            self.stream = WindowStream(cad, **flagging.given("false_alarms", "per"))
        self.windows = 0
        voice.note(in_options(self.stream.outlook))
        voice.note(in_options(self.stream.guarantee))

    def decide(self, block: Block) -> None:
        """Add the rows, with their times and series."""
        columns = {name: [row[name] for row in block.carried] for name in self.beside}
        times, series = columns.get(self.time), columns.get(self.by)
        seconds = None if times is None else seconds_of(times, len(block.X))
        self.rows += len(block.X)
        self._tell(self.stream.add(block.X, seconds, series))

    def finish(self, *, cut_short: bool) -> None:
        """Decide about the rows that wait, unless more may come after what is wrong."""
        if not cut_short:
            self._tell(self.stream.flush())

    def _tell(self, decided: list[DecidedWindow]) -> None:
        self.windows += len(decided)
        every = [
            {("anomaly" if k == "flagged" else k): v for k, v in vars(d).items()} for d in decided
        ]
        self.write([{k: v for k, v in one.items() if v not in (None, "", ())} for one in every])

    def __str__(self) -> str:
        return (
            f"{self.rows:,} rows in {self.windows:,} windows decided, {self.stream.events:,} "
            f"events; {counted(self.skipped, 'line')} skipped."
        )


class _Rows(_Run):
    """With any other model: rows in, rows out."""

    def __init__(
        self, decisions: DecisionStream, reader: LineReader, voice: Voice, incoming: Incoming
    ) -> None:
        super().__init__(reader, voice, incoming)
        self.delivery = Delivery(decisions, incoming.start)
        self.flagged = 0
        self._about: dict[int, tuple[int, dict[str, Any]]] = {}  # line and identifiers, by row
        voice.note(in_options(decisions.outlook))
        voice.note(in_options(decisions.promise))
        if self.delivery.known:
            voice.note(
                f"{incoming.journal} has {self.delivery.known:,} rows; the first line is taken for "
                f"row {incoming.start:,}."
            )

    def decide(self, block: Block) -> None:
        """Add the rows, which may have been decided before."""
        about = zip(block.lines, block.carried, strict=True)
        self._about |= enumerate(about, start=self.delivery.next_row)
        self._tell(self.delivery.add(block.X, checked=True))

    def finish(self, *, cut_short: bool) -> None:
        """Decide about the rows that wait for their window."""
        self._tell(self.delivery.finish())

    def _tell(self, decided: list[dict[str, Any]]) -> None:
        self.rows += len(decided)
        self.flagged += sum(one["anomaly"] for one in decided)
        told = []
        for one in decided:
            line, carried = self._about.pop(one["row"], (None, {}))
            known = {"row": one["row"], **({} if line is None else {"line": line}), **carried}
            told.append(known | {word: one[word] for word in WORDS if one.get(word) is not None})
        self.write(told)

    def __str__(self) -> str:
        rows, lines = counted(self.rows, "row"), counted(self.skipped, "line")
        return f"{rows} decided, {self.flagged:,} flagged; {lines} skipped."
