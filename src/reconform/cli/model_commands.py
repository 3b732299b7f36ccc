"""`reconform fit`, `score`, `check` and `inspect`: a detector that is fitted once and used often.

`fit` notes its options in the model file, for those who judge new rows with it. `check` is `score`
for cron and other schedules: one line of JSON per run, also of one that fails.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import click
import numpy as np
from rich.filesize import decimal

from .. import models
from ..assumption.history import change_since, earlier_run
from ..assumption.verdict import of_units
from ..atomic import check_place, draft_of
from ..detector import ConformalDetector
from ..display import percent
from ..errors import InputError, ReconformError, ReferenceWarning
from ..extras import extra
from ..files.formats import is_standard
from ..files.judge import FileDiscoveries, ReadOptions
from ..files.marks import moved_by
from ..files.reading import plain_time
from ..models import ROW_COLUMNS, ModelInfo, check_can_be_saved
from ..models.archive import refusing
from ..parallel import run_jobs
from ..records import Plain, Reader, Writer, record_of, require
from ..tables import Feature
from ..timeseries import WINDOW
from . import INPUT, options, sentence_of
from .declare import MODEL, PATH, Command, count, family, file, flag, in_options, names_typed
from .detect import facts_of, fit_detector, read_rows
from .judging import exit_code, judge
from .options import FAILURES, Columns, Deciding, Files, Fitting, Writing, column, parallel
from .output import Voice, check_separate, console, one_line

# Where it stands among the extras of a model file.
OURS = "command line"


@dataclass(frozen=True)
class Remembered:
    """The options of `fit` that hold for every run with the model, unless they are given again.

    A model that was saved in Python remembers none.

    Attributes
    ----------
    detector : str or None
        As it was given; the model itself has what became of it.
    features : tuple of Feature or None
        The columns, with the labels of categories.
    reference : str or None
        The file of normal rows.
    id_columns : tuple of str
        Columns that name the rows.
    deciding : Deciding
        Level and procedure.
    group : str or None
        The column of groups.
    time : str or None
        The column of times.
    unit : str or None
        The column of units.
    """

    detector: str | None = None
    features: tuple[Feature, ...] | None = None
    reference: str | None = None
    id_columns: tuple[str, ...] = ()
    deciding: Deciding = field(default_factory=Deciding)
    group: str | None = None
    time: str | None = None
    unit: str | None = None

    @property
    def aside(self) -> dict[str, str]:
        """Columns that are no features."""
        named = {"group": self.group, "time": self.time, "unit": self.unit}
        return {name: one for name, one in named.items() if one not in (None, WINDOW)}

    def typed(self, method: str | None) -> dict[str, Any]:
        """How the reference was read and used, as options are typed: for advised commands."""
        typed: dict[str, Any] = {"reference": self.reference, "detector": self.detector}
        if self.unit is None:  # whose features are made of other columns
            names = list(dict.fromkeys(f.column for f in self.features or ()))
            typed["columns"] = [names_typed(names)]
        typed |= {"method": method} if method in ("full", "split") else {}
        typed |= {"id_columns": [names_typed(self.id_columns)]} if self.id_columns else {}
        return typed | self.aside


def remembered(info: ModelInfo) -> Remembered:
    """Read what `reconform fit` noted in a model; refuse what it would not have written."""
    if OURS not in info.extras:
        return Remembered()
    with refusing(info.path, "its notes are not those of reconform fit"):
        return NOTES.read(info.extras[OURS], Reader.of_json())  # type: ignore[no-any-return]


def _check_notes(known: Remembered, _: int) -> None:
    words = isinstance(known.id_columns, tuple) and all(type(n) is str for n in known.id_columns)
    require(words, f"id_columns is {known.id_columns!r}")


# How it stands in a model file: `Record` checks every value that is read.
NOTES = record_of(
    "fit",
    Remembered,
    _check_notes,
    features=ROW_COLUMNS,
    id_columns=Plain(),
    deciding=record_of("decision", Deciding, lambda deciding, _: deciding.rule),
)


MOST_NAMES = 20


saving_options = family(
    "saving",
    "Model",
    dict,
    [
        file("--model", "Save the model here; by custom its name ends in .rcad.", required=True),
        options.OVERWRITE,
    ],
)

_TRUST = flag(
    "--trust-objects",
    "Use the objects of other libraries in the model, which are as safe as the person who "
    "made them; 'reconform inspect' names them.",
    library="trusted",
)
_ASIDE = [
    column(
        "--group",
        "Read the groups of the new rows from this column, for a model that was fitted with "
        "groups.",
        library=("group_column", "groups"),
        show_default="as fitted",
    ),
    column(
        "--time",
        "Use this column as the time of each row; 'rows' if rows are in time order.",
        library="times",
        show_default="as fitted",
    ),
    column(
        "--unit",
        "Read the units of the new rows from this column, for a model that was fitted on units.",
        library=("units", "unit_column"),
        show_default="as fitted",
    ),
]
# A stream has no groups.
loading_options = family("loading", "Model", dict, [_TRUST, options.JOBS])
judging_options = family("loading", "Model", dict, [_TRUST, *_ASIDE, options.JOBS])


@click.command(
    cls=Command,
    examples=["reconform fit normal.parquet --detector knn --method jackknife+ --model plant.rcad"],
)
@click.argument("reference", type=PATH)
@saving_options
@options.fitting
@options.deciding
@options.reference
@options.files
@options.voice
def fit(
    reference: str,
    saving: dict[str, Any],
    fitting: Fitting,
    deciding: Deciding,
    columns: Columns,
    files: Files,
    voice: Voice,
) -> None:
    """Fit a detector to the normal rows in REFERENCE and save it.

    The model remembers the columns, --id and the decision: score and check take them up unless
    others are given.
    """
    model, overwrite = saving["model"], saving["overwrite"]
    if is_standard(model):
        raise click.UsageError("--model must be the name of a file; got '-'.")
    check_can_be_saved(fitting.method)
    check_separate({"--model": model}, {"REFERENCE": reference, "--anomalies": fitting.anomalies})
    check_place(model, overwrite=overwrite)
    if ":" in fitting.detector:  # say now what is missing, not after the fit
        extra("skops", "skops", f"saving a model of {fitting.detector}")
    (layout,) = files.layouts(reference)
    table = read_rows(voice, reference, layout, files.id_columns, columns)
    time = columns.time or plain_time(table, columns.unit)
    cad = fit_detector(voice, table, fitting, columns.group, time)
    deciding.rule.grid(cad)  # refuses what this method cannot have
    deciding.rule.whole_batch(cad)
    voice.step(f"Writing {model}")
    known = Remembered(
        fitting.detector,
        table.features,
        table.path,
        files.id_columns,
        deciding,
        columns.group,
        time,
        columns.unit,
    )
    with voice.last_words():
        models.save(
            cad,
            model,
            overwrite=overwrite,
            extras={OURS: NOTES.write(known, OURS, Writer.of_json())},
        )
        info = replace(models.inspect(draft_of(model)), path=model)
        method = cad.plan_.scheme if fitting.method == "auto" else fitting.method
        row = "row" if columns.unit is None else WINDOW if columns.unit == WINDOW else "unit"
        made = "columns" if row == "row" else "features"
        said = f"Fitted {fitting.detector} with method {method} to {len(table):,} rows of "
        voice.say(of_units(f"{said}{len(table.features):,} {made}", row), style="bold")
        rule = deciding.rule.resolved(cad)
        level = percent(float(rule.level)) if rule.false_alarms is None else f"{rule.level}"
        voice.say(of_units(rule.claim(cad).promise(level, "the flagged rows"), row))
        voice.say(f"Model: {model} ({decimal(info.file_bytes)})")
        if info.foreign_types:
            voice.say(
                "It contains objects of other libraries: score, check and stream need "
                "--trust-objects."
            )
        voice.finish({"command": "fit", "reference": facts_of(table), **_facts(info)})


@click.command(
    cls=Command,
    examples=["reconform score plant.rcad new.parquet --fdr 0.05 --output scored.parquet"],
)
@click.argument("model", type=PATH)
@click.argument("new", type=PATH)
@options.deciding
@options.writing
@options.files
@judging_options
@options.voice
def score(
    model: str,
    new: str,
    deciding: Deciding,
    writing: Writing,
    files: Files,
    loading: dict[str, Any],
    voice: Voice,
) -> None:
    """Find the anomalies in NEW with a saved MODEL.

    Columns, identifiers and level are those that the model was fitted with, unless they are
    given.
    """
    writing.check(voice, files, MODEL=model, NEW=new)
    info = models.inspect(model)
    with voice.last_words(), parallel(loading["jobs"]):
        _, _, facts = judge_with(
            voice, info, new, files=files, deciding=deciding, writing=writing, loading=loading
        )
        if voice.json:
            voice.finish({"command": "score", "model": model, **facts()})


@dataclass(frozen=True)
class Moving:
    """What one check hands to the next: earlier runs, and a reference that moves with time."""

    before: str | None
    keep: int | None
    marks: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.marks and self.keep is None:
            raise click.UsageError("--marks goes with --keep, which lets rows join the reference.")


def _move(
    cad: ConformalDetector, judged: FileDiscoveries, info: ModelInfo, moving: Moving
) -> dict[str, Any]:
    """Put a model in the place of another one, with the rows that it was asked about."""
    known, keep = remembered(info), moving.keep
    assert keep is not None
    again = moved_by(
        cad,
        judged,
        keep,
        moving.marks,
        features=known.features,
        id_columns=known.id_columns,
        reference=known.reference,
    )
    models.save(again, info.path, overwrite=True, extras=info.extras)
    return again.state_.updates[-1].to_dict()


@click.command(
    cls=Command,
    help=(
        "Check NEW with a saved MODEL, for a schedule: one line of JSON on standard output, and an "
        "exit code that says it all.\n\n"
        "Exit codes: 0 nothing is flagged, 3 anomalies, 4 the assumption looks broken (as "
        "--fail-on says), 1 the input is at fault, 2 usage. Identifiers and level are "
        "those that the model was fitted with, unless they are given."
    ),
    examples=[
        "reconform check plant.rcad new.csv --only-anomalies --output flagged.csv "
        "--before checks.jsonl >> checks.jsonl"
    ],
)
@click.argument("model", type=PATH)
@click.argument("new", type=PATH)
@options.checking
@options.deciding
@options.files
@judging_options
@family(
    "moving",
    "From check to check",
    Moving,
    [
        file(
            "--before",
            "Compare with earlier runs, whose lines are in this file, and end with exit code 4 "
            "only if something changed since.",
        ),
        count(
            "--keep",
            "the reference stays",
            "Let the rows of NEW join the reference after a check that does not end with 4, and "
            "keep the newest N rows, or windows; MODEL is replaced.",
            least=2,
        ),
        file(
            "--marks",
            "Leave out the rows that this mark file calls real, with --keep. May be repeated.",
            multiple=True,
        ),
    ],
)
@family(
    "voice",
    "Messages",
    lambda quiet: Voice(json=not quiet, quiet=quiet),
    [flag("--quiet", "Print nothing but errors; the exit code remains.")],
)
def check(
    model: str,
    new: str,
    writing: Writing,
    deciding: Deciding,
    files: Files,
    loading: dict[str, Any],
    moving: Moving,
    voice: Voice,
) -> None:
    """Check a file with a saved model, for a schedule."""
    time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {"command": "check", "time": time, "model": model}
    try:
        writing.check(voice, files, MODEL=model, NEW=new)
        info = models.inspect(model)
        with voice.last_words(), parallel(loading["jobs"]):
            cad, judged, told = judge_with(
                voice, info, new, files=files, deciding=deciding, writing=writing, loading=loading
            )
            facts = told()
            # A reference that moves is another one every day.
            known = {info.fingerprint, *(one.parent for one in cad.state_.updates)}
            facts |= _since(moving.before, known, facts)
            code = exit_code(facts, writing.fail_on)
            if moving.keep is not None:
                facts["moved"] = code != FAILURES["broken"] and _move(cad, judged, info, moving)
            found = {**about, "calibration": info.fingerprint, **facts, "exit": code}
            voice.finish(found, in_a_line=True)
    except (ReconformError, OSError) as error:
        failed = {**about, "new": {"path": new}, "exit": INPUT, "error": sentence_of(error)}
        with suppress(OSError), voice.last_words():  # it may be this stream that is at fault
            voice.finish(failed, in_a_line=True)
        raise
    if code:
        sys.exit(code)


# So many lines at the end of a file of earlier runs are read.
MOST_LINES = 1_000


def _since(path: str | None, calibrations: set[str], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Compare with earlier runs, where a file has their lines; the first run finds none."""
    if path is None:
        return {}
    lines: deque[str] = deque(maxlen=MOST_LINES)
    with suppress(FileNotFoundError), open(path, encoding="utf-8", errors="replace") as file:
        lines.extend(file)
    runs, strange = [], 0
    for line in filter(str.strip, lines):
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            said = None
        strange += not isinstance(said, dict) or said.get("command") != "check"
        run = earlier_run(said, calibrations)
        runs += [] if run is None else [run]
    if strange and strange == sum(1 for line in lines if line.strip()):
        raise ReconformError(
            f"{path}: it has no lines of reconform check; give the file that they are appended to, "
            "or the name of a new one."
        )
    findings = facts["assumption"]["findings"]
    broken = [one["check"] for one in findings if one["level"] == "broken"]
    return {"since": change_since(facts["seen"], broken, runs).to_dict()}


def judge_with(
    voice: Voice,
    info: ModelInfo,
    new: str,
    *,
    files: Files,
    deciding: Deciding,
    writing: Writing,
    loading: Mapping[str, Any],
) -> tuple[ConformalDetector, FileDiscoveries, Callable[[], dict[str, Any]]]:
    """Load a model and judge a file with it, as `judge`, by what the model remembers."""
    cad = models.load(info.path, trusted=loading["trust_objects"])
    known = remembered(info)
    by_model = () if files.id_columns else known.id_columns
    ids, deciding = files.id_columns or known.id_columns, deciding.over(known.deciding)
    if known.reference is not None:
        method = None if one_line(info.method) == "auto" else cad.plan_.scheme
        click.get_current_context().meta[MODEL] = known.typed(method)
    (layout,) = files.layouts(new)
    group, time, unit = (loading[one] or getattr(known, one) for one in ("group", "time", "unit"))
    if unit is not None:  # which name themselves
        ids = tuple(dict.fromkeys((unit, *ids)))
    read = ReadOptions(
        known.features,
        ids,
        layout,
        wanted=writing.wanted(ids),
        group_column=group,
        time_column=time,
        unit_column=unit,
    )
    cad.name_reference(range(1, cad.plan_.n + 1))
    try:
        return cad, *judge(voice, cad, new, read, deciding=deciding, writing=writing)
    except InputError as error:
        if error.column in by_model:
            error.add_note(f"The model remembers --id {error.column}; give another --id.")
        raise


@click.command(cls=Command, examples=["reconform inspect plant.rcad"])
@click.argument("model", type=PATH)
@options.voice
def inspect(model: str, voice: Voice) -> None:
    """Say what is in a saved MODEL. Nothing in it is run."""
    info = models.inspect(model)
    with voice.last_words():
        for line in filter(str.strip, _lines(info)):
            voice.say(line)
        voice.finish({"command": "inspect", **_facts(info)})


def _facts(info: ModelInfo) -> dict[str, Any]:
    return {"model": info.path, **{k: v for k, v in asdict(info).items() if k != "path"}}


def _lines(info: ModelInfo) -> list[str]:
    """What is in a model, and what runs with it take up."""
    known = remembered(info)
    lines = [in_options(str(info)), f"  {_columns(info, known)}"]
    if known.reference is not None:
        lines.append(f"  made by reconform fit of {known.reference}, {known.detector}")
        lines.append(f"  remembers {_said(known)}".removesuffix("remembers "))
    return [*lines, in_options("Next: `reconform inspect --json`, which has the theorems, too")]


def _said(known: Remembered) -> str:
    """What runs with the model take up, as options; 3 false alarms, not 3.0."""
    given = {"id": ",".join(known.id_columns)} if known.id_columns else {}
    given |= known.aside | known.deciding.parameters()
    return " ".join(
        f"--{name.replace('_', '-')} {value:g}" if isinstance(value, float) else f"--{name} {value}"
        for name, value in given.items()
    )


def _columns(info: ModelInfo, known: Remembered) -> str:
    named = [Feature(name) for name in info.feature_names or ()]
    features = named if known.features is None else known.features
    names = [
        f.name if f.labels is None else f"{f.name} ({len(f.labels):,} labels)" for f in features
    ]
    more = [f"{len(names) - MOST_NAMES:,} more"] if len(names) > MOST_NAMES else []
    said = ", ".join(names[:MOST_NAMES] + more)
    return ": ".join([f"{info.n_features:,} columns", said]).rstrip(": ")


# Reference and new rows: all in memory at once, and a split.
SIZES = ((300, 100), (300, 20_000))


def _judged(n: int, m: int) -> int:
    warnings.simplefilter("ignore", ReferenceWarning)  # in a process of its own
    rng = np.random.default_rng(0)
    cad = ConformalDetector(random_state=0, n_jobs=1).fit(rng.normal(size=(n, 4)))
    return cad.discover(rng.normal(size=(m, 4))).tested


@click.command(name="warm", cls=Command, examples=["reconform warm"])
def warm() -> None:
    """Compile what the defaults run, so that the first command after it is as quick as later ones.

    The compiled code is kept beside the package, or in the folder that NUMBA_CACHE_DIR names.
    """
    start = time.monotonic()
    list(run_jobs(_judged, SIZES, total=len(SIZES), n_jobs=len(SIZES), prefer="processes"))
    console().print(f"Compiled, and kept for all later starts ({time.monotonic() - start:.0f} s).")
