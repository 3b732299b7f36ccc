"""`reconform fit`, `score` and `inspect`: a detector that is fitted once and used often."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.filesize import decimal
from rich.table import Table as RichTable

from .. import models
from ..errors import ModelFileError
from ..extras import extra
from ..files.formats import is_standard
from ..files.judge import ReadOptions
from ..models import ModelInfo
from ..models.archive import refusing
from ..prepare import Feature, describe, restore
from ..whole import check_place
from . import fitting as fits
from .declare import Command, family, option
from .judging import judge, leave
from .options import (
    JOBS,
    OVERWRITE,
    PATH,
    Columns,
    Deciding,
    Files,
    Fitting,
    Writing,
    columns_options,
    deciding_options,
    files_options,
    fitting_options,
    parallel,
    voice_options,
    writing_options,
)
from .output import Voice, check_separate, one_line, printable

# Where `fit` puts what `score` needs to know, among the extras of a model file.
OURS = "command line"
MOST_NAMES = 20


@dataclass(frozen=True)
class Saving:
    """Where a model goes."""

    model: str
    overwrite: bool

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
            help="Where to save the model; by custom its name ends in .rcad.",
        ),
        OVERWRITE,
    ],
)

loading_options = family(
    "loading",
    "Model",
    dict,
    [
        option(
            "--trust",
            library="trusted",
            multiple=True,
            metavar="TYPE",
            help="A foreign type in the model that may be made; 'reconform inspect' names them. "
            "May be repeated.",
        ),
        JOBS,
    ],
)


@click.command(
    cls=Command,
    examples=["reconform fit normal.parquet --detector knn --method jackknife+ --model plant.rcad"],
)
@click.argument("reference", type=PATH)
@saving_options
@fitting_options
@columns_options
@files_options
@voice_options
def fit(
    reference: str,
    saving: Saving,
    fitting: Fitting,
    columns: Columns,
    files: Files,
    voice: Voice,
) -> None:
    """Fit a detector to the normal rows in REFERENCE and save it."""
    model = saving.model
    check_separate({"--model": model}, {"REFERENCE": reference})
    check_place(model, overwrite=saving.overwrite)
    if columns.prepare or ":" in fitting.detector:
        # Say now what is missing, not after the fit.
        what = "that was fitted with --prepare" if columns.prepare else f"of {fitting.detector}"
        extra("skops", "skops", f"saving a model {what}")
    (layout,) = files.layouts(reference)
    table = fits.read(voice, reference, layout, files.id_columns, columns)
    cad = fits.fit(voice, table, fitting, prepare=columns.prepare)
    voice.step(f"Writing {model}")
    known = {
        "detector": fitting.detector,
        "prepare": columns.prepare,
        "features": describe(table.features),
        "reference": table.path,
    }
    with voice.last_words() as written:
        models.save(cad, model, overwrite=saving.overwrite, extras={OURS: known})
        info = replace(models.inspect(written.draft_of(model)), path=model)
        voice.say(
            f"{fitting.detector}, {fitting.method}: fitted to {len(table):,} rows of "
            f"{len(table.features):,} columns, {cad.n_calibration_:,} calibration scores",
            style="bold",
        )
        voice.say(f"Guarantee: {info.guarantee}")
        voice.say(f"Model: {model} ({decimal(info.file_bytes)})")
        voice.finish({"command": "fit", "reference": fits.facts_of(table), **_facts(info)})


@click.command(
    cls=Command,
    examples=["reconform score plant.rcad new.parquet --fdr 0.05 --output scored.parquet"],
)
@click.argument("model", type=PATH)
@click.argument("new", type=PATH)
@deciding_options
@writing_options
@files_options
@loading_options
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
    """Find the anomalies in NEW with a saved MODEL."""
    writing.check(voice, MODEL=model, NEW=new)
    (layout,) = files.layouts(new)
    info = models.inspect(model)
    untrusted = [name for name in info.foreign_types if name not in loading["trust"]]
    if untrusted:
        raise ModelFileError(
            f"{model}: the model contains {', '.join(untrusted)}, which reconform does not make "
            "from a file unless you trust it by name. If you know where the file comes from, give "
            f"{' '.join(f'--trust {name}' for name in untrusted)}."
        )
    read = ReadOptions(_features(info), files.id_columns, layout)
    with voice.last_words(), parallel(loading["jobs"]):
        cad = models.load(model, trusted=loading["trust"])
        facts = judge(voice, cad, new, read, files=files, deciding=deciding, writing=writing)
        voice.finish({"command": "score", "model": model, **facts})
    leave(facts, writing)


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


def _features(info: ModelInfo) -> tuple[Feature, ...] | None:
    """The columns as `reconform fit` saved them; a model saved in Python has only their names."""
    if OURS not in info.extras:
        return None
    with refusing(info.path, "it does not describe its columns as we do"):
        return restore(info.extras[OURS]["features"])


def _facts(info: ModelInfo) -> dict[str, Any]:
    return {"model": info.path, **{k: v for k, v in asdict(info).items() if k != "path"}}


def _facts_table(info: ModelInfo) -> RichTable:
    table = RichTable.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    with refusing(info.path, "it does not say what we say"):
        known = info.extras.get(OURS, {})
        detector, prepare = known.get("detector"), known.get("prepare")
        source = f" of {known['reference']}" if known else ""
    facts = {
        "Model": info.path,
        "Detector": f"{detector}, with --prepare" if prepare else one_line(info.detector),
        "Method": one_line(info.method),
        "Guarantee": info.guarantee,
        "Reference": f"{info.n_reference:,} rows{source}",
        "Calibration": f"{info.n_calibration:,} scores",
        "Features": _columns(info),
        "Seed": info.parameters.get("random_state", "unknown"),
        "Needs trust in": ", ".join(info.foreign_types),
        "Written": f"{info.created} by reconform {info.reconform}, format {info.format_version}",
        "With": ", ".join(f"{name} {number}" for name, number in info.versions.items()),
        "Size": decimal(info.file_bytes),
    }
    for name, value in facts.items():
        if value:
            table.add_row(name, printable(value))
    return table


def _columns(info: ModelInfo) -> str:
    features = _features(info) or [Feature(name) for name in info.feature_names or ()]
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
