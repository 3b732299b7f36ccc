"""Options that several commands share: each family is one value, checked when it is made."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from typing import Any

import click
from joblib import parallel_config

from ..atomic import check_place
from ..detectors import DETECTORS
from ..detectors.registry import make_detector, parse_setting, scale_matters_to
from ..errors import InputError, ReconformError
from ..files import FORMATS, Layout, TableOptions
from ..files.formats import is_standard
from ..methods import (
    Bootstrap,
    CrossValidation,
    Method,
    Prefit,
    Split,
    method_names,
    resolve_method,
)
from ..parallel import compiled_code_on
from ..rule import Rule
from ..statistics.certificates import VALIDITY
from ..statistics.fdr import PROCEDURES, counted_names
from ..timeseries import WINDOW, Windows, advised_method
from ..units import BY_TIME
from .declare import Function, Given, Number, choice, count, family, file, flag, option
from .output import Voice, check_separate

# A model that was fitted elsewhere comes as an object, which a command has none of.
METHODS = tuple(name for name, (kind, _) in method_names().items() if kind is not Prefit)

# Which methods a parameter belongs to, and what they are called.
OWNERS: dict[str, tuple[type[Method], str]] = {
    "folds": (CrossValidation, "cv or cv+"),
    "draws": (Bootstrap, "jab or jab+"),
    "calibration": (Split, "split or learned"),
    "repeats": (Split, "split or learned"),
}


# --- kinds of values -----------------------------------------------------------------------------


def _names(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Column names, repeated or separated by commas; quoted as in CSV where they contain one."""
    names: list[str] = []
    for value in values:
        try:
            names += next(csv.reader([value], strict=True), []) or [""]
        except csv.Error as error:
            raise click.BadParameter(f"{value!r}: {error}.", ctx, param) from error
    return tuple(dict.fromkeys(names))


def _columns_option(
    name: str, help: str, *, parameter: str | None = None, library: str | None = None
) -> Given:
    names = (name,) if parameter is None else (name, parameter)
    return option(
        *names, library=library, multiple=True, callback=_names, metavar="COL,...", help=help
    )


def column(name: str, help: str, **attributes: Any) -> Given:
    """Declare an option that takes the name of a column."""
    return option(name, metavar="COL", help=help, **attributes)


# --- the families --------------------------------------------------------------------------------


@dataclass
class Fitting:
    """Which detector and method, with which parameters.

    `made` and `how` are the detector and the method: a name, or an object where something about it
    was chosen.
    """

    detector: str
    method: str
    seed: int
    jobs: int | None
    settings: tuple[str, ...] = ()
    anomalies: str | None = None
    made: Any = field(init=False)
    how: str | Method = field(init=False)

    def __post_init__(self) -> None:
        own = dict(map(parse_setting, self.settings))
        of_method = {name: own.pop(name) for name in OWNERS if name in own}
        self.made, self.how = make_detector(self.detector, own), self.method
        method = resolve_method(self.method)
        for name in of_method:
            owner, called = OWNERS[name]
            if not isinstance(method, owner):
                raise ReconformError(
                    f"--set {name} goes with --method {called}; got {self.method}."
                )
        if of_method:
            self.how = method.set_params(**of_method)

    def for_windows(self, count: int) -> Fitting:
        """What is advised for so many windows of a time series, where nothing was chosen."""
        method = advised_method(count) if self.method == "auto" else self.method
        detector = "extreme" if self.detector == "auto" else self.detector
        return replace(self, detector=detector, method=method)


JOBS = option(
    "--jobs",
    library="n_jobs",
    type=int,
    metavar="N",
    show_default="all for compiled code, 1 for the fits of other libraries",
    help="Use N processors; -1 stands for all. Results do not depend on it.",
)
SEED = count(
    "--seed",
    0,
    "Draw all random numbers from this seed: the same seed gives the same result.",
    least=0,
)


SET = option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter of the detector, such as n_neighbors=10, or of the method: folds of cv "
    "and cv+, draws of jab and jab+, calibration (a share or a number of rows) and repeats of "
    "split and learned. May be repeated.",
)


def fitting_family(detector: str, method: str) -> Callable[[Function], Function]:
    """The options of detector and method, with what these are by default."""
    return family("fitting", "Detector and method", Fitting, _fitting(detector, method))


def _fitting(detector: str, method: str) -> list[Given]:
    rows = " ".join(f"{name}: {row.summary}." for name, row in DETECTORS.items())
    return [
        option(
            "--detector",
            metavar="NAME",
            default=detector,
            show_default=True,
            help=f"Score the rows with this detector. {rows} Others are named by library and "
            "class, such as sklearn:OneClassSVM or pyod:ECOD.",
        ),
        SET,
        choice(
            "--method",
            METHODS,
            method,
            "Calibrate the scores by this method. auto: full where that is cheap, split where rows "
            "are many. batch: one model of the reference and all new rows. learned: a classifier "
            "learns what tells new rows from the reference.",
        ),
        SEED,
        JOBS,
    ]


ANOMALIES = file(
    "--anomalies",
    "Use known anomalies from elsewhere, a table with the columns of the reference: they "
    "improve scores and choices and are never used to calibrate. For auto, contrast and learned.",
)
fitting = family("fitting", "Detector and method", Fitting, [*_fitting("auto", "auto"), ANOMALIES])


def parallel(jobs: int | None) -> AbstractContextManager[Any]:
    """Use so many processors inside, also for what was fitted or loaded without a number.

    Without a number, compiled code uses all, and detectors of other libraries one.
    """
    if jobs is None:
        return compiled_code_on(-1)
    if jobs == 0:
        raise click.UsageError("--jobs must be at least 1, or -1 for all; got 0.")
    context: AbstractContextManager[Any] = parallel_config(n_jobs=jobs)
    return context


@dataclass(frozen=True)
class Deciding:
    """Which rows are flagged: the fields of a `Rule`, None where an option was not given."""

    fdr: float | None = None
    false_alarms: float | None = None
    procedure: str | None = None
    validity: str | None = None

    def __post_init__(self) -> None:
        if self.false_alarms is not None:
            for name in ("fdr", "procedure"):
                if getattr(self, name) is not None:
                    raise click.UsageError(
                        f"--false-alarms replaces --fdr and --procedure: leave out --{name}."
                    )
        _ = self.rule  # refuses what no rule can have

    def parameters(self) -> dict[str, Any]:
        """Those that were given; the others have their defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def facts(self) -> dict[str, Any]:
        """What the decision is made by, as plain data."""
        rule = self.rule
        usual: dict[str, Any] = {} if rule.false_alarms is not None else {"fdr": float(rule.level)}
        usual |= {"procedure": rule.procedure, "validity": rule.validity}
        return {**usual, **self.parameters()}

    def over(self, remembered: Deciding) -> Deciding:
        """What was given, and what a model remembers where nothing was.

        A level or a procedure that was given takes the place of the other way to say it.
        """
        given = self.parameters()
        known = remembered.parameters()
        for one, other in (("false_alarms", "fdr"), ("false_alarms", "procedure")):
            if one in given or other in given:
                known.pop(other if one in given else one, None)
        return Deciding(**{**known, **given})

    @property
    def rule(self) -> Rule:
        """The rule that they make."""
        return Rule(**self.parameters())


def _procedures_help() -> str:
    rows = [PROCEDURES[name] for name in counted_names()]
    return "Turn p-values into a list by this procedure. " + " ".join(
        f"{row.name}: {row.title}, {row.about}." for row in rows
    )


def fdr_option(default: str) -> Given:
    """`--fdr`; a default in words leaves it open whether it was given."""
    return option(
        "--fdr",
        type=Number(0, 1, min_open=True, max_open=True),
        help="Aim at this false discovery rate: the share of false alarms among the flagged "
        "rows, on average.",
        metavar="LEVEL",
        show_default=default,
    )


deciding = family(
    "deciding",
    "Decision",
    Deciding,
    [
        fdr_option("0.1"),
        option(
            "--false-alarms",
            type=Number(0, min_open=True),
            metavar="NUMBER",
            help="Instead of --fdr: flag p-values of at most NUMBER divided by the number of new "
            "rows, so that no more than NUMBER false alarms are expected in the file.",
        ),
        option(
            "--procedure",
            type=click.Choice(counted_names()),
            show_default="bh",
            help=_procedures_help(),
        ),
        option(
            "--validity",
            type=click.Choice(list(VALIDITY)),
            show_default="auto",
            help="Choose what must be known about the list. "
            + " ".join(f"{name}: {row.about}." for name, row in VALIDITY.items()),
        ),
    ],
)


@dataclass
class Columns:
    """Which columns of the reference are used, and how.

    `windows` says how rows are cut into windows: where they have a time, if they are not units.
    """

    columns: tuple[str, ...]
    drop: tuple[str, ...]
    category: tuple[str, ...]
    prepare: bool = False
    elapsed: tuple[str, ...] = ()
    label: str | None = None
    shift: tuple[str, ...] = ()
    group: str | None = None
    time: str | None = None
    unit: str | None = None
    series: str | None = None
    window: int | None = None
    marks: tuple[str, ...] = ()
    windows: Windows | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        for name, given in (("--series", self.series), ("--window", self.window)):
            if given is not None and (self.time is None or self.unit is not None):
                raise click.UsageError(f"{name} goes with --time, and not with --unit.")
        if self.time is not None and self.unit is None and self.window != 1:
            if self.group is not None:
                raise click.UsageError(
                    "--time judges windows, which have no --group; name several series by "
                    "--series, or judge rows with --window 1."
                )
            self.unit, self.windows = WINDOW, Windows(self.time, self.series, self.window)
        if self.shift and self.group is not None:
            raise click.UsageError(
                "--shift cannot be combined with --group; give --shift in one run per group."
            )

    def reading(self, ids: tuple[str, ...], layout: Layout | None) -> TableOptions:
        """How the library reads a table; identifiers, groups and times are no features."""
        period = None if self.unit is None else BY_TIME.fullmatch(self.unit)
        unit = (self.unit, None if period is None else period[1])
        aside = (name for name in (self.group, self.time, self.series, *unit) if name is not None)
        unused = tuple(dict.fromkeys((*ids, *aside)))
        used = self.columns or None
        return TableOptions(used, self.drop, unused, self.category, layout, self.elapsed)


_COLUMNS = [
    _columns_option("--columns", "Use these columns only."),
    _columns_option("--drop", "Leave these columns out."),
    _columns_option(
        "--category", "Treat the numbers in these columns as labels.", library="categories"
    ),
]
_ELAPSED = _columns_option(
    "--elapsed", "Use these columns of dates as elapsed time, instead of as hour and weekday."
)
_MARKS = file(
    "--marks",
    "Leave out the rows of REFERENCE that this file marks as real anomalies: a review file of "
    "'reconform clean'. May be repeated.",
    multiple=True,
)
reviewed = family("columns", "Columns", Columns, [*_COLUMNS, _MARKS])
_LABEL = column(
    "--label",
    "Use only the rows of REFERENCE that this column labels as normal (1 or true for "
    "anomalies, 0 or false for normal rows); it is no feature.",
)
_ASIDE = [
    column(
        "--group",
        "Compare a row with reference rows of its own group only, by this column of both "
        "files, such as the type of machine; one list is made of all groups.",
        library=("group_column", "groups"),
    ),
    column(
        "--time",
        "Use this column of both files as the time of each row, not as a feature; 'rows' if rows "
        "are in time order. Without --unit, windows of rows are judged by what forecasts miss of "
        "them.",
        library="times",
    ),
    column("--series", "Read several series from one file, told apart by this column, for --time."),
    count(
        "--window",
        "10 to 60, by the number of rows",
        "Judge windows of N rows, for --time; 1 for rows one by one.",
    ),
    column(
        "--unit",
        "Judge units of rows as a whole: the runs, charges or patients in this column of both "
        "files, or the periods of a column of times, such as when:day. A unit becomes one row of "
        "features, and must not be in both files.",
        library=("units", "unit_column"),
    ),
]
_SHIFT = _columns_option(
    "--shift",
    "Correct for columns whose values come in other proportions among the new rows, while what is "
    "normal has not changed; 'all' for all columns. Reference rows get estimated weights, so the "
    "false discovery rate is measured, not proven.",
    library="weights",
)
_READ = [*_COLUMNS, _ELAPSED, _LABEL, _MARKS]
_PREPARE = flag(
    "--prepare",
    "Let values be missing, and columns have other labels, in rows to come although none are in "
    f"REFERENCE; numbers are brought to one scale for {scale_matters_to()}.",
)
reference = family("columns", "Columns", Columns, [*_READ, _PREPARE, *_ASIDE])
compared = family("columns", "Columns", Columns, [*_READ, _SHIFT, *_ASIDE])


@dataclass
class Files:
    """How the files are laid out that are read; `layout` is that of a file whose name tells it."""

    id_columns: tuple[str, ...]
    format: str | None
    delimiter: str | None
    decimal: str
    missing: tuple[str, ...]
    no_header: bool = False
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        delimiter = {"\\t": "\t", "tab": "\t"}.get(self.delimiter or "", self.delimiter)
        self.layout = Layout(
            delimiter=delimiter,
            decimal=self.decimal,
            missing=self.missing,
            no_header=self.no_header,
        )

    def layouts(self, *paths: str) -> list[Layout]:
        """One layout per input.

        ``--format`` is for standard input and for names that tell nothing; if there is no such
        input, it overrules the names.
        """
        silent = [not _tells_format(path) for path in paths]
        return [
            replace(self.layout, format=self.format if mute or not any(silent) else None)
            for mute in silent
        ]

    def output_layout(self, output: str) -> Layout | None:
        """The layout of an output whose name tells nothing; otherwise None."""
        if self.format is None or is_standard(output) or _tells_format(output):
            return None
        return replace(self.layout, format=self.format)


def _tells_format(path: str) -> bool:
    try:
        Layout().format_of(path)
    except InputError:
        return False
    return not is_standard(path)


def ids_option(help: str) -> Given:
    """`--id`, columns that are carried through."""
    return _columns_option("--id", help, parameter="id_columns")


files = family(
    "files",
    "Files",
    Files,
    [
        ids_option("Copy these columns of identifiers or times to the results, unused."),
        choice(
            "--format",
            FORMATS,
            None,
            "Read standard input, and files whose names do not show their format, in this one.",
        ),
        option(
            "--delimiter",
            metavar="CHAR",
            help="Read text files with this character between the columns; 'tab' is a tabulator.",
        ),
        choice(
            "--decimal", (".", ","), ".", "Read the numbers of text files with this decimal sign."
        ),
        option(
            "--missing",
            multiple=True,
            metavar="TEXT",
            help="Treat this text as a missing value, besides the usual ones; may be repeated.",
        ),
        flag(
            "--no-header",
            "Read text files without a header line; columns are called 'column 1' and so on.",
        ),
    ],
)


@dataclass
class Writing:
    """What is written where; `layout` is that of an output whose name does not tell it."""

    output: str | None
    only_anomalies: bool
    report: str | None
    overwrite: bool
    safe_cells: bool = False
    fail_on: tuple[str, ...] = ()
    top: int | None = None
    sample: int | None = None
    explain: tuple[str, ...] = ()
    layout: Layout | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.top is not None and self.only_anomalies:
            raise click.UsageError(
                "--top and --only-anomalies both choose the rows that are written: give one."
            )
        if self.output is None and self.only_anomalies:
            raise click.UsageError("--only-anomalies needs --output.")
        if self.report is not None and is_standard(self.report):
            raise click.UsageError("--report must be the name of a file; got '-'.")

    def wanted(self, ids: Sequence[str]) -> tuple[int | str, ...]:
        """The rows to explain: positions from 0, or identifiers where a column has them."""
        if ids:
            return self.explain
        for row in self.explain:
            if not (row.isascii() and row.isdigit() and int(row) > 0):
                raise click.UsageError(
                    f"--explain must be the number of a row, from 1, or with --id an identifier; "
                    f"got {row!r}."
                )
        return tuple(int(row) - 1 for row in self.explain)

    def check(self, voice: Voice, files: Files, **inputs: str | None) -> None:
        """Refuse what cannot be written, or would replace an input, before any work is done."""
        check_separate({"--output": self.output, "--report": self.report}, inputs)
        if self.output is not None:
            self.layout = files.output_layout(self.output)
        if self.output is not None and is_standard(self.output):
            voice.leave_stdout_to_data()
        for path in (self.output, self.report):
            if path is not None and not is_standard(path):
                check_place(path, overwrite=self.overwrite)


# What may end a run with another exit code than 0, and with which.
FAILURES = {"anomalies": 3, "doubtful": 4, "broken": 4}


def _failures(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    words = tuple(word.strip() for word in (value or "").split(",") if word.strip())
    for word in words:
        if word not in FAILURES:
            raise click.BadParameter(
                f"it must be {', '.join(FAILURES)}, or several of these; got {word!r}.", ctx, param
            )
    return words


REPORT = file("--report", "Write an HTML report to this file.")
OVERWRITE = flag("--overwrite", "Replace files and tables that exist.")


_WRITING = [
    file(
        "--output",
        "Write the rows with score, p_value, q_value (nominal_q_value where the list is certified) "
        "and anomaly; '-' is standard output.",
    ),
    flag("--only-anomalies", "Write the flagged rows only, the most unusual first."),
    count(
        "--top",
        "flagged rows",
        "Show the N most unusual rows, flagged or not, and say how many of them may be "
        "false; --output writes these rows only.",
    ),
    count(
        "--sample",
        "none",
        "Draw N of all new rows at random, before anything is judged, to be looked at beside the "
        "list; the report shows them, and those that are normal may join the reference.",
    ),
    option(
        "--explain",
        library="wanted",
        multiple=True,
        metavar="ROW",
        help="Say why a row stands out, by its number or, with --id, its identifier: unusual "
        "values, the nearest normal rows, which features carry its score. May be repeated.",
    ),
    REPORT,
    OVERWRITE,
    flag(
        "--safe-cells",
        "Write an apostrophe before text that a spreadsheet would take for a formula, in "
        "CSV and TSV.",
    ),
]
FAIL_ON = option(
    "--fail-on",
    callback=_failures,
    metavar="WORD,...",
    help="End with exit code 3 if there are anomalies, with 4 if the assumption looks doubtful or "
    "broken.",
    default="anomalies,broken",
    show_default=True,
)
writing = family("writing", "Results", Writing, _WRITING)
checking = family("writing", "Results", Writing, [*_WRITING, FAIL_ON])

voice = family(
    "voice",
    "Messages",
    Voice,
    [
        flag("--json", "Print everything as one JSON object."),
        flag("--quiet", "Print nothing but errors."),
    ],
)
