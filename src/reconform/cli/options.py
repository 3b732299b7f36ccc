"""Options that several commands share: each family is one value, checked when it is made."""

from __future__ import annotations

import csv
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from typing import Any

import click
from joblib import parallel_config

from ..certificates import VALIDITY
from ..detectors import NAMED
from ..fdr import PROCEDURES
from ..files import FORMATS, InputError, Layout
from ..files.source import DELIMITER, is_delimiter, is_standard
from ..methods import Bootstrap, CrossValidation, Method, Split, resolve_method
from ..whole import check_place
from .declare import family, option
from .output import Voice, check_separate

METHODS = ("split", "jackknife", "jackknife+", "cv", "cv+", "jab", "jab+", "full")
CONDITIONAL = ("simes", "dkw", "montecarlo", "asymptotic")

# Which methods a parameter belongs to, and what they are called.
OWNERS: dict[str, tuple[type[Method], str]] = {
    "folds": (CrossValidation, "cv or cv+"),
    "draws": (Bootstrap, "jab or jab+"),
    "calibration": (Split, "split"),
    "repeats": (Split, "split"),
}


# --- kinds of values -----------------------------------------------------------------------------


def _share_or_count(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> float | int | None:
    """A share of rows such as 0.5, or a number of them such as 200."""
    if value is None:
        return None
    try:
        if value.isdecimal() and int(value) >= 1:
            return int(value)
        if 0 < float(value) < 1:
            return float(value)
    except ValueError:
        pass
    raise click.BadParameter(
        f"it must be a share between 0 and 1, or a number of rows; got {value!r}.", ctx, param
    )


def _names(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Column names, repeated or separated by commas; quoted as in CSV where they contain one."""
    names: list[str] = []
    for value in values:
        try:
            names += next(csv.reader([value], strict=True), []) or [""]
        except csv.Error as error:
            raise click.BadParameter(f"{value!r}: {error}.", ctx, param) from error
    return tuple(dict.fromkeys(names))


def _jobs(ctx: click.Context, param: click.Parameter, value: int | None) -> int | None:
    if value == 0:
        raise click.BadParameter("it must be at least 1, or -1 for all; got 0.", ctx, param)
    return value


def _delimiter(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    value = {"\\t": "\t", "tab": "\t"}.get(value or "", value)
    if value is not None and not is_delimiter(value):
        raise click.BadParameter(f"it must be {DELIMITER}, or 'tab'; got {value!r}.", ctx, param)
    return value


PATH = click.Path(path_type=str, allow_dash=True)
PROBABILITY = click.FloatRange(0, 1, min_open=True, max_open=True)


# --- the families --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fitting:
    """Which detector and method, with which parameters."""

    detector: str
    method: str
    folds: int | None
    draws: int | None
    calibration: float | int | None
    repeats: int | None
    seed: int
    jobs: int | None

    def __post_init__(self) -> None:
        method = resolve_method(self.method)
        for name, (owner, called) in OWNERS.items():
            if getattr(self, name) is not None and not isinstance(method, owner):
                raise click.UsageError(f"--{name} goes with --method {called}; got {self.method}.")

    def make_method(self) -> str | Method:
        """The method by its name, or an object if something about it was chosen."""
        chosen = {name: getattr(self, name) for name in OWNERS if getattr(self, name) is not None}
        if not chosen:
            return self.method
        method: Method = resolve_method(self.method).set_params(**chosen)
        return method


JOBS = option(
    "--jobs",
    type=int,
    callback=_jobs,
    metavar="N",
    show_default="1",
    help="Use N processors; -1 for all.",
)
SEED = option(
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    default=0,
    show_default=True,
    help="Of everything random.",
)

fitting_options = family(
    "fitting",
    "Detector and method",
    Fitting,
    [
        option(
            "--detector",
            type=click.Choice(list(NAMED)),
            default="iforest",
            show_default=True,
            help="What scores the rows.",
        ),
        option(
            "--method",
            type=click.Choice(METHODS),
            default="jab+",
            show_default=True,
            help="How it is calibrated.",
        ),
        option(
            "--folds", type=click.IntRange(2), metavar="N", show_default="10", help="Of cv and cv+."
        ),
        option(
            "--draws",
            type=click.IntRange(1),
            metavar="N",
            show_default="100",
            help="Bootstrap samples of jab and jab+.",
        ),
        option(
            "--calibration",
            callback=_share_or_count,
            metavar="SHARE|COUNT",
            show_default="0.5",
            help="Reference rows that split calibrates on.",
        ),
        option(
            "--repeats",
            type=click.IntRange(1),
            metavar="N",
            show_default="1",
            help="Independent splits of split.",
        ),
        SEED,
        JOBS,
    ],
)


def parallel(jobs: int | None) -> AbstractContextManager[Any]:
    """Use so many processors inside, also for what was fitted or loaded without a number."""
    context: AbstractContextManager[Any] = parallel_config(n_jobs=1 if jobs is None else jobs)
    return context


@dataclass(frozen=True)
class Deciding:
    """Which rows are flagged; the parameters of `judge_file`."""

    fdr: float
    procedure: str
    storey_lambda: float | None
    validity: str
    conditional: str | None
    confidence: float | None

    def __post_init__(self) -> None:
        if self.storey_lambda is not None and self.procedure != "storey":
            raise click.UsageError("--storey-lambda goes with --procedure storey.")
        if self.confidence is not None and self.conditional is None:
            raise click.UsageError("--confidence goes with --conditional.")

    def parameters(self) -> dict[str, Any]:
        """Those that were given; the others have their defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


deciding_options = family(
    "deciding",
    "Decision",
    Deciding,
    [
        option(
            "--fdr",
            type=PROBABILITY,
            default=0.1,
            show_default=True,
            metavar="LEVEL",
            help="False discovery rate: the share of false alarms among the flagged rows, on "
            "average, that is aimed at.",
        ),
        option(
            "--procedure",
            type=click.Choice(PROCEDURES),
            default="bh",
            show_default=True,
            help="Benjamini-Hochberg, Benjamini-Yekutieli (any dependence), or Storey.",
        ),
        option(
            "--storey-lambda",
            type=PROBABILITY,
            metavar="SHARE",
            show_default="0.5",
            help="Of storey.",
        ),
        option(
            "--validity",
            type=click.Choice(VALIDITY),
            default="nominal",
            show_default=True,
            help="proven: p-values that a theorem covers, where there is one.",
        ),
        option(
            "--conditional",
            type=click.Choice(CONDITIONAL),
            help="p-values that hold given the calibration rows, for split.",
        ),
        option(
            "--confidence",
            type=PROBABILITY,
            metavar="SHARE",
            show_default="0.9",
            help="Of --conditional.",
        ),
    ],
)


@dataclass(frozen=True)
class Columns:
    """Which columns of the reference are used, and how."""

    columns: tuple[str, ...]
    drop: tuple[str, ...]
    prepare: bool
    category: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.category and not self.prepare:
            raise click.UsageError("--category goes with --prepare, which encodes categories.")


columns_options = family(
    "columns",
    "Columns",
    Columns,
    [
        option(
            "--columns",
            multiple=True,
            callback=_names,
            metavar="COL,...",
            help="Use these columns only.",
        ),
        option(
            "--drop", multiple=True, callback=_names, metavar="COL,...", help="Leave these out."
        ),
        option(
            "--prepare",
            is_flag=True,
            help="Impute missing values, encode text as categories, and standardise numbers for "
            "knn and inne; inside every model, so that nothing leaks.",
        ),
        option(
            "--category",
            multiple=True,
            callback=_names,
            metavar="COL,...",
            help="Columns of numbers that are only labels; with --prepare.",
        ),
    ],
)


@dataclass(frozen=True)
class Files:
    """How the files are laid out that are read."""

    id_columns: tuple[str, ...]
    format: str | None
    delimiter: str | None
    decimal: str
    missing: tuple[str, ...]

    def layouts(self, *paths: str) -> list[Layout]:
        """One layout per input.

        ``--format`` is for standard input and for names that tell nothing; if there is no such
        input, it overrules the names.
        """
        silent = [not _tells_format(path) for path in paths]
        return [self._layout(self.format if mute or not any(silent) else None) for mute in silent]

    def output_layout(self, output: str | None) -> Layout | None:
        """The layout of an output whose name tells nothing; otherwise None."""
        if output is None or self.format is None or is_standard(output) or _tells_format(output):
            return None
        return self._layout(self.format)

    def _layout(self, format: str | None) -> Layout:
        return Layout(format, self.delimiter, self.decimal, self.missing)


def _tells_format(path: str) -> bool:
    try:
        Layout().format_of(path)
    except InputError:
        return False
    return not is_standard(path)


files_options = family(
    "files",
    "Files",
    Files,
    [
        option(
            "--id",
            "id_columns",
            multiple=True,
            callback=_names,
            metavar="COL,...",
            help="Identifiers or times: carried through, never used.",
        ),
        option(
            "--format",
            type=click.Choice(FORMATS),
            help="Of standard input, and of files whose name does not tell it.",
        ),
        option(
            "--delimiter",
            callback=_delimiter,
            metavar="CHAR",
            help="Between columns of text files: a character, or 'tab'.",
        ),
        option(
            "--decimal",
            type=click.Choice([".", ","]),
            default=".",
            show_default=True,
            help="Decimal sign of text files.",
        ),
        option(
            "--missing",
            multiple=True,
            metavar="TEXT",
            help="A text that means missing, besides the usual ones; may be repeated.",
        ),
    ],
)


@dataclass(frozen=True)
class Writing:
    """What is written where."""

    output: str | None
    only_anomalies: bool
    prefix: str
    report: str | None
    overwrite: bool

    def __post_init__(self) -> None:
        if self.output is None and (self.only_anomalies or self.prefix):
            name = "--only-anomalies" if self.only_anomalies else "--prefix"
            raise click.UsageError(f"{name} is about what --output writes: give --output too.")
        if self.report is not None and is_standard(self.report):
            raise click.UsageError("--report writes a page: give the name of a file.")

    def check(self, voice: Voice, **inputs: str) -> None:
        """Refuse what cannot be written, or would replace an input, before any work is done."""
        check_separate({"--output": self.output, "--report": self.report}, inputs)
        if self.output is not None and is_standard(self.output):
            voice.leave_stdout_to_data()
        for path in (self.output, self.report):
            if path is not None and not is_standard(path):
                check_place(path, overwrite=self.overwrite)


OVERWRITE = option("--overwrite", is_flag=True, help="Replace files that exist.")

writing_options = family(
    "writing",
    "Results",
    Writing,
    [
        option(
            "--output",
            type=PATH,
            metavar="FILE",
            help="Write the rows with score, p_value, q_value and anomaly; '-' is standard output.",
        ),
        option(
            "--only-anomalies", is_flag=True, help="Write the flagged rows only, strangest first."
        ),
        option(
            "--prefix", default="", metavar="TEXT", help="In front of the names of added columns."
        ),
        option("--report", type=PATH, metavar="FILE", help="Write a page to look at (HTML)."),
        OVERWRITE,
    ],
)

voice_options = family(
    "voice",
    "Messages",
    Voice,
    [
        option("--json", is_flag=True, help="Say everything as one JSON object."),
        option("--quiet", is_flag=True, help="Say nothing but errors."),
    ],
)
