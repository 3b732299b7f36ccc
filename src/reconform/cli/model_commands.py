"""`reconform fit`, `score` and `inspect`: a detector that is fitted once and used often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.filesize import decimal
from rich.table import Table as RichTable

from .. import models
from ..atomic import check_place
from ..detectors.prepare import Feature
from ..display import percent
from ..errors import InputError
from ..extras import extra
from ..files.formats import is_standard
from ..files.judge import ReadOptions
from ..models import ModelInfo
from ..models.saving import check_can_be_saved
from .declare import MODEL, Command, family, in_options, option
from .detect import facts_of, fit_detector, read_rows
from .judging import judge
from .options import (
    JOBS,
    OVERWRITE,
    PATH,
    PREFIX,
    Columns,
    Deciding,
    Files,
    Fitting,
    Writing,
    deciding_options,
    files_options,
    fitting_options,
    parallel,
    reference_options,
    voice_options,
    writing_options,
)
from .output import Voice, check_separate, one_line, printable
from .remembered import Remembered, remembered

MOST_NAMES = 20


@dataclass(frozen=True)
class Saving:
    """Where a model goes, and what it remembers of outputs to come."""

    model: str
    overwrite: bool
    prefix: str

    def __post_init__(self) -> None:
        if is_standard(self.model):
            raise click.UsageError("--model must be the name of a file; got '-'.")


saving_options = family(
    "saving",
    "Model",
    Saving,
    [
        option(
            "--model",
            type=PATH,
            required=True,
            metavar="FILE",
            help="Save the model here; by custom its name ends in .rcad.",
        ),
        OVERWRITE,
        PREFIX,
    ],
)

_TRUST = option(
    "--trust-objects",
    library="trusted",
    is_flag=True,
    help="Use the objects of other libraries in the model, which are as safe as the person who "
    "made them; 'reconform inspect' names them.",
)
_GROUP = option(
    "--group",
    library=("group_column", "groups"),
    metavar="COL",
    show_default="as fitted",
    help="Take the groups of the new rows from this column, for a model that was fitted with "
    "groups.",
)
# A stream has no groups.
loading_options = family("loading", "Model", dict, [_TRUST, JOBS])
judging_options = family("loading", "Model", dict, [_TRUST, _GROUP, JOBS])


@click.command(
    cls=Command,
    examples=["reconform fit normal.parquet --detector knn --method jackknife+ --model plant.rcad"],
)
@click.argument("reference", type=PATH)
@saving_options
@fitting_options
@deciding_options
@reference_options
@files_options
@voice_options
def fit(
    reference: str,
    saving: Saving,
    fitting: Fitting,
    deciding: Deciding,
    columns: Columns,
    files: Files,
    voice: Voice,
) -> None:
    """Fit a detector to the normal rows in REFERENCE and save it.

    The model remembers the columns, --id, --prefix and the decision: score and check take them up
    unless others are given.
    """
    model = saving.model
    check_can_be_saved(fitting.method)
    check_separate({"--model": model}, {"REFERENCE": reference, **fitting.inputs})
    check_place(model, overwrite=saving.overwrite)
    if columns.prepare or ":" in fitting.detector:
        # Say now what is missing, not after the fit.
        what = "that was fitted with --prepare" if columns.prepare else f"of {fitting.detector}"
        extra("skops", "skops", f"saving a model {what}")
    (layout,) = files.layouts(reference)
    table = read_rows(voice, reference, layout, files.id_columns, columns)
    cad = fit_detector(voice, table, fitting, columns)
    deciding.rule.grid(cad)  # refuses what this method cannot have
    deciding.rule.whole_batch(cad)
    voice.step(f"Writing {model}")
    known = Remembered(
        fitting.detector,
        columns.prepare,
        table.features,
        table.path,
        files.id_columns,
        saving.prefix,
        deciding,
        columns.group,
    )
    with voice.last_words() as written:
        models.save(cad, model, overwrite=saving.overwrite, extras=known.extras())
        info = replace(models.inspect(written.draft_of(model)), path=model)
        voice.say(
            f"{fitting.detector}, {fitting.method}: fitted to {len(table):,} rows of "
            f"{len(table.features):,} columns, {cad.n_calibration_:,} calibration scores",
            style="bold",
        )
        rule = deciding.rule.resolved(cad)
        level = percent(float(rule.level)) if rule.false_alarms is None else f"{rule.level}"
        voice.say(rule.claim(cad).promise(level, "the flagged rows"))
        voice.say(f"Model: {model} ({decimal(info.file_bytes)})")
        if info.foreign_types:
            voice.say(
                "It contains objects of other libraries: score, check and stream take it with "
                "--trust-objects."
            )
        voice.finish({"command": "fit", "reference": facts_of(table), **_facts(info)})


@click.command(
    cls=Command,
    examples=["reconform score plant.rcad new.parquet --fdr 0.05 --output scored.parquet"],
)
@click.argument("model", type=PATH)
@click.argument("new", type=PATH)
@deciding_options
@writing_options
@files_options
@judging_options
@voice_options
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

    Columns, identifiers, prefix and level are those that the model was fitted with, unless they are
    given.
    """
    writing.check(voice, MODEL=model, NEW=new)
    info = models.inspect(model)
    with voice.last_words(), parallel(loading["jobs"]):
        facts = judge_with(
            voice, info, new, files=files, deciding=deciding, writing=writing, loading=loading
        )
        voice.finish({"command": "score", "model": model, **facts})


def judge_with(
    voice: Voice,
    info: ModelInfo,
    new: str,
    *,
    files: Files,
    deciding: Deciding,
    writing: Writing,
    loading: Mapping[str, Any],
) -> dict[str, Any]:
    """Load a model and judge a file with it, as `judge`, by what the model remembers."""
    cad = models.load(info.path, trusted=loading["trust_objects"])
    group = loading["group"]
    known = remembered(info)
    by_model = () if known is None or files.id_columns else known.id_columns
    if known is not None:
        files, writing = known.files(files), known.writing(writing)
        deciding = deciding.over(known.deciding)
        group = group or known.group
        method = None if one_line(info.method) == "auto" else cad.plan_.scheme
        click.get_current_context().meta[MODEL] = known.typed(method)
    (layout,) = files.layouts(new)
    features = None if known is None else known.features
    read = ReadOptions(features, files.id_columns, layout, group_column=group)
    cad.name_reference(range(1, cad.plan_.n + 1))
    try:
        return judge(voice, cad, new, read, files=files, deciding=deciding, writing=writing)
    except InputError as error:
        if error.column in by_model:
            error.add_note(f"The model remembers --id {error.column}; give another --id.")
        raise


@click.command(cls=Command, examples=["reconform inspect plant.rcad"])
@click.argument("model", type=PATH)
@voice_options
def inspect(model: str, voice: Voice) -> None:
    """Say what is in a saved MODEL, and how large each part is. Nothing in it is run."""
    info = models.inspect(model)
    with voice.last_words():
        if voice.talks:
            voice.show(_facts_table(info))
            voice.say()
            voice.show(_parts_table(info))
        voice.finish({"command": "inspect", **_facts(info)})


def _facts(info: ModelInfo) -> dict[str, Any]:
    return {"model": info.path, **{k: v for k, v in asdict(info).items() if k != "path"}}


def _facts_table(info: ModelInfo) -> RichTable:
    table = RichTable.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    known = remembered(info)
    prepared = f"{known.detector}, with --prepare" if known and known.prepare else ""
    source = "" if known is None else f" of {known.reference}"
    facts = {
        "Model": info.path,
        "Detector": prepared or one_line(info.detector),
        "Method": one_line(info.method),
        "Guarantee": in_options(info.guarantee),
        "Reference": f"{info.n_reference:,} rows{source}",
        "Calibration": f"{info.n_calibration:,} scores",
        "Features": _columns(info, known),
        "Remembers": "" if known is None else _said(known),
        "Seed": info.parameters.get("random_state", "unknown"),
        "Objects of others": ", ".join(info.foreign_types),
        "Written": f"{info.created} by reconform {info.reconform}, format {info.format_version}",
        "With": ", ".join(f"{name} {number}" for name, number in info.versions.items()),
        "Size": decimal(info.file_bytes),
    }
    for name, value in facts.items():
        if value:
            table.add_row(name, printable(value))
    return table


def _said(known: Remembered) -> str:
    """What runs with the model take up, as options."""
    options = [f"--id {','.join(known.id_columns)}"] if known.id_columns else []
    options += [f"--prefix {known.prefix}"] if known.prefix else []
    options += [f"--group {known.group}"] if known.group is not None else []
    decision = known.deciding.parameters().items()
    return " ".join(
        [*options, *(f"--{name.replace('_', '-')} {_typed(value)}" for name, value in decision)]
    )


def _typed(value: Any) -> str:
    """A value as it is typed: 3 false alarms, not 3.0."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _columns(info: ModelInfo, known: Remembered | None) -> str:
    named = [Feature(name) for name in info.feature_names or ()]
    features = named if known is None else known.features
    names = [
        f.name if f.labels is None else f"{f.name} ({len(f.labels):,} labels)" for f in features
    ]
    more = [f"{len(names) - MOST_NAMES:,} more"] if len(names) > MOST_NAMES else []
    return ": ".join([f"{info.n_features:,}", ", ".join(names[:MOST_NAMES] + more)]).rstrip(": ")


def _parts_table(info: ModelInfo) -> RichTable:
    table = RichTable(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("part")
    table.add_column("in the file", justify="right")
    table.add_column("in memory", justify="right")
    for part in info.parts:
        table.add_row(printable(part.name), decimal(part.stored), decimal(part.bytes))
    return table
