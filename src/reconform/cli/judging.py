"""From new rows to what is said of them: what `detect` and `score` have in common."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable
from rich.text import Text

from ..arrays import BoolArray, FloatArray
from ..assumption.history import seen_in
from ..assumption.verdict import Verdict
from ..detector import ConformalDetector
from ..errors import InputError, ReconformError, nearest
from ..explain import IN_BRACKETS, NO_REFERENCE, Explanation
from ..explain.features import labelled, unusual_features
from ..files import Table, check_output, open_batches, result
from ..files.formats import is_standard
from ..files.judge import FileDiscoveries, ReadOptions, WriteOptions, judge_file
from ..reporting import render, write_page
from ..reporting.words import counted, shorten
from ..statistics.bounds import false_discovery_table
from ..tables.cells import labels_in, to_python
from ..timeseries import WindowRows
from ..weights import Weights
from .declare import in_options
from .options import FAILURES, Deciding, Writing
from .output import Voice, one_line, printable

LONGEST_CELL = 40
# A method that is advised, as messages name it.
METHOD = re.compile(r"`method='([^']+)'`")
ADVISED = re.compile(r"`reconform [^`]+`")
# Of what a check found, the first sentence, and what comes before its numbers.
SENTENCE = re.compile(r"(?:'[^']*'|.)*?[.?](?= |$)")
CLAUSE = re.compile(r"(?:'[^']*'|.)*?(?=: |[.?] |[.?]?$)")
CAPTION = f"{IN_BRACKETS} This describes the row, not why the detector flagged it."


@dataclass(frozen=True, eq=False)
class Flagged:
    """Rows that come first, the most anomalous first: those that are flagged, or some more.

    Attributes
    ----------
    rows : list of int
        Their numbers in the file, from 1.
    ids : dict of str to list
        Columns that name them.
    numbers : dict of str to float array
        Score, p-value, and q-value: a nominal one beside a certified list.
    mask : bool array, optional
        Which of them are flagged, if that is not all of them.
    """

    rows: list[int]
    ids: dict[str, list[Any]]
    numbers: dict[str, FloatArray]
    mask: BoolArray | None = None

    def records(self, **more: Sequence[Any]) -> list[dict[str, Any]]:
        """One dict of plain data per row; an infinite score is None, since JSON has none."""
        more |= {} if self.mask is None else {"anomaly": self.mask.tolist()}
        return [
            {
                "row": row,
                "id": {name: plain(values[i]) for name, values in self.ids.items()},
                **{
                    re.sub("[- ]", "_", name): plain(float(values[i]))
                    for name, values in self.numbers.items()
                },
                **{name: values[i] for name, values in more.items()},
            }
            for i, row in enumerate(self.rows)
        ]

    def table(self, unusual: Sequence[str] = (), *, counted: bool = False) -> RichTable:
        """Lay the rows out, with what is unusual about each of them if that is known.

        Rows have their numbers where nothing else names them, or if these are `counted`.
        """
        made = RichTable(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        counted = counted or not self.ids
        if counted:
            made.add_column("row", justify="right", no_wrap=True)
        for name in self.ids:
            made.add_column(_cell(name), no_wrap=True)
        for name in self.numbers:
            made.add_column(name, justify="right", no_wrap=True)
        if self.mask is not None:
            made.add_column("flagged", no_wrap=True)
        if unusual:
            made.add_column("most unusual")
        for i, row in enumerate(self.rows):
            # In a narrow window it is the words about the row that are cut, not the numbers.
            words = unusual[i : i + 1]
            made.add_row(
                *([f"{row:,}"] if counted else []),
                *(_cell(values[i]) for values in self.ids.values()),
                *(f"{values[i]:.4g}" for values in self.numbers.values()),
                *([] if self.mask is None else ["yes" if self.mask[i] else ""]),
                *(Text(printable(said), no_wrap=True, overflow="ellipsis") for said in words),
            )
        return made


def take(
    judgement: FileDiscoveries, ids: Sequence[str], most: int, *, flagged: bool = True
) -> Flagged:
    """Take the rows that come first; only those that are flagged, or also others."""
    rows = judgement.listed.head(min(most, judgement.count) if flagged else most)
    table = rows.table
    # The results are the last columns, whatever they are called.
    scores, p_values, q_values, mask = (table.column(i).to_numpy() for i in range(-4, 0))
    return Flagged(
        rows=(rows.positions + 1).tolist(),
        ids={name: to_python(table.column(name)) for name in ids},
        numbers={"score": scores, "p-value": p_values, f"{judgement.q_name}-value": q_values},
        mask=None if flagged else mask,
    )


def words_about(X: FloatArray, reference: Table, cells: Any = None) -> list[str]:
    """Say for rows which of their features are most unusual against the reference."""
    features, names = reference.features, reference.names
    rows = labelled(X, features, None if cells is None else labels_in(cells))
    return [
        ", ".join(
            f"{shorten(names[one.feature], LONGEST_CELL)} {shorten(one.value, LONGEST_CELL)} "
            f"({one.note or format(one.strength, '+.1f')})"
            for one in row
        )
        for row in unusual_features(rows, labelled(reference.X, features))
    ]


def _cell(value: object) -> str:
    return shorten(printable("" if value is None else value), LONGEST_CELL)


def plain(value: Any) -> Any:
    """What JSON can hold: numbers and words as they are, everything else as it prints."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


# All features of the new rows are in memory while a report is made, up to this many cells.
MOST_CELLS = 10_000_000

# The confidence of the bound on the false alarms in one list.
CONFIDENCE = 0.95

MOST_SHOWN = 20
# Findings that are named beside the rest, by their number.
MOST_BRIEF = 3
MOST_UNITS = 5
MOST_LISTED = 1_000


def check_header(path: str, reference: Table, read: ReadOptions, writing: Writing) -> None:
    """Refuse new rows without the columns of the reference before a detector is fitted."""
    if not Path(path).is_file():  # a pipe can be read only once
        return
    units = reference.units
    opened = open_batches(
        path,
        reference.features if units is None else units.columns,
        id_columns=[name for name in read.id_columns if name != read.unit_column],
        layout=read.layout,
        group_column=read.group_column,
    )
    with opened as batches:
        batches.timed_by(read.time_column)
        if units is None and writing.output is not None and not is_standard(writing.output):
            check_output(writing.output, layout=writing.layout, overwrite=writing.overwrite)


def weighing(reference: Table, shift: Sequence[str]) -> Callable[[FloatArray], Weights]:
    """How new rows are weighed by the columns that come in another mix."""
    names = reference.names
    columns = names if tuple(shift) == ("all",) and "all" not in names else shift
    for name in columns:
        if name not in names:
            raise InputError(
                reference.path,
                f"--shift names the column {name!r}, which is not one of the columns in "
                f"use.{nearest(name, names)}",
                column=name,
            )
    used = [names.index(name) for name in columns]
    return lambda X: Weights.estimate(reference.X[:, used], X[:, used])


def judge(
    voice: Voice,
    cad: ConformalDetector,
    path: str,
    read: ReadOptions,
    *,
    deciding: Deciding,
    writing: Writing,
    reference: Table | None = None,
    weights: Callable[[FloatArray], Weights] | None = None,
) -> tuple[FileDiscoveries, Callable[[], dict[str, Any]]]:
    """Judge a file, write what was asked for, and say what was found; return it, and its facts.

    With the reference it says what is unusual about a row.
    """
    ids = read.id_columns
    if writing.explain and cad.known_rows is None:
        raise ReconformError(NO_REFERENCE)
    if writing.report is not None:
        read = replace(read, most_cells=0 if cad.known_rows is None else MOST_CELLS)
    with voice.gathering_warnings(), voice.passes() as progress:
        judgement = judge_file(
            cad,
            path,
            writing.output,
            replace(deciding.rule, top=writing.top, sample=writing.sample),
            read=read,
            write=WriteOptions(
                writing.only_anomalies, writing.overwrite, writing.layout, writing.safe_cells
            ),
            progress=progress,
            weights=weights,
        )
    if writing.report is not None:
        voice.step(f"Writing {writing.report}")
        _write_page(voice, judgement, writing.report, ids, overwrite=writing.overwrite)
    explained = _explained(judgement, ids) if writing.explain else []
    if judgement.count and judgement.groups and judgement.warning:
        voice.warn(judgement.spoken(judgement.warning))
    if voice.talks:
        _tell(voice, judgement)
        if writing.top is not None or not judgement.count:
            voice.say(judgement.spoken(judgement.first().sentence))
        if writing.output is None:
            _tell_rows(voice, judgement, ids, reference)
        for explanation in explained:
            voice.say()
            voice.say(str(explanation))
        for what, where in (("Rows", writing.output), ("Report", writing.report)):
            if where is not None and not is_standard(where):
                voice.say(f"{what}: {where}")
    step = (
        ""
        if explained
        else _next_step(cad, judgement, ids, "score" if reference is None else "detect")
    )
    if "--method" in step or ("--explain" in step and writing.output is None):
        voice.say(in_options(f"Next: {step}"))  # other steps stand in a sentence above
    told = partial(_facts, judgement, explained, ids, deciding, writing)
    return judgement, lambda: {**told(), "next": in_options(step).strip("`") or None}


def _write_page(
    voice: Voice, judgement: FileDiscoveries, target: str, ids: Sequence[str], *, overwrite: bool
) -> None:
    """Write the page; say what it could not be given."""
    path = judgement.path
    if judgement.tested > result.MOST_DISCOVERIES:
        raise InputError(
            path,
            f"it has more than {result.MOST_DISCOVERIES:,} rows, the most that a report covers. "
            "Leave out --report, or report on a part of the file.",
        )
    found = judgement.to_discoveries()
    if judgement.rows is None and found.explainer is not None:
        voice.warn(
            f"The report names unusual features of the first {counted(len(judgement.listed))} "
            f"only: {path} has more than {MOST_CELLS:,} cells."
        )
    labels: Any = range(1, found.tested + 1) if found.index is None else found.index
    if len(ids) > 1:
        labels = [", ".join(map(str, several)) for several in labels]
    page = partial(
        render,
        found,
        ids=labels,
        title=f"Anomalies in {Path(path).name}",
        spell=in_options,
        batch=judgement.fingerprint,
        # Where it is, whoever reads the name later; nothing for what is no file.
        file=os.path.abspath(path) if os.path.isfile(path) else "",
    )
    write_page(Path(target), page, overwrite=overwrite)


def _explained(judgement: FileDiscoveries, ids: Sequence[str]) -> list[Explanation]:
    """Explain the rows that were asked for, under the names that they have everywhere."""
    positions = judgement.wanted.positions.tolist()
    named = [to_python(judgement.wanted.table.column(name)) for name in ids]
    names = [", ".join(map(str, cells)) for cells in zip(*named, strict=True)]
    return [
        replace(judgement.explain(position=position), row=printable(name))
        for name, position in zip(names or [str(p + 1) for p in positions], positions, strict=True)
    ]


# --- in words ------------------------------------------------------------------------------------

STYLES = {"broken": "bold red", "doubtful": "bold yellow", "holds": ""}


def _tell(voice: Voice, judgement: FileDiscoveries) -> None:
    """Say what everybody should know in a few lines; the page and --json say all of it."""
    verdict, why = judgement.verdict, judgement.why_nothing or ""
    voice.say(judgement.headline, style=f"bold {STYLES[verdict.word]}".strip())
    checks = _checks(verdict, why) or ("" if verdict.findings else verdict.sentence)
    why = "" if verdict.word == "broken" else in_options(why)
    for said in filter(None, (judgement.promise, checks, why, judgement.ranked_by)):
        voice.say(said)
    if len(judgement.groups) > 1:
        each = [f"{group.name}: {group.flagged:,} of {group.rows:,}" for group in judgement.groups]
        more = [f"and {len(each) - MOST_SHOWN:,} more"] if len(each) > MOST_SHOWN else []
        voice.say(f"Flagged by group: {'; '.join([*each[:MOST_SHOWN], *more])}.")
    if judgement.missing:
        counts = judgement.missing.items()
        said = ", ".join(f"{name!r} in {counted(count)}" for name, count in counts)
        voice.say(f"Missing values, imputed: {said}.")


def _checks(verdict: Verdict, why: str) -> str:
    """What the checks found, in a sentence and an advice; `why` comes later and is left out."""
    findings = [finding for finding in verdict.findings if str(finding) != why]
    if not findings:
        return ""
    first, left = findings[0], len(findings) - MOST_BRIEF
    also = [_part(CLAUSE, one.sentence) for one in findings[1:MOST_BRIEF]]
    also = [one[:1].lower() + one[1:] for one in also] + [f"{left:,} more"] * (left > 0)
    said = f"{_part(SENTENCE, first.sentence)} {first.advice}"
    said += f" Also: {'; '.join(also)}." if also else ""
    noted = "" if verdict.reasons else " nothing against the assumption, but note"
    return in_options(" ".join(f"The checks found{noted}: {said}".split()))


def _part(pattern: re.Pattern[str], sentence: str) -> str:
    found = pattern.match(sentence)
    return found[0] if found else sentence


def _tell_rows(
    voice: Voice, judgement: FileDiscoveries, ids: Sequence[str], reference: Table | None
) -> None:
    first = judgement.top is not None or not judgement.count
    most = min(judgement.first().rows, MOST_LISTED) if first else MOST_SHOWN
    listed = take(judgement, ids, most, flagged=not first)
    rows = judgement.listed.head(len(listed.rows))
    unusual = [] if reference is None else words_about(rows.X, reference, rows.table)
    events, units = judgement.events, judgement.units
    if events:
        voice.say()
        voice.say(f"{counted(len(events), 'event')}:", style="bold")
        for event in events[:MOST_SHOWN]:
            voice.say(f"  {printable(event.sentence)}")
    voice.say()
    voice.show(listed.table(unusual))
    voice.say()
    if unusual:
        voice.say(CAPTION, style="dim")
    if units is not None:
        for name in listed.ids[ids[0]][:MOST_UNITS]:
            voice.say(f"Within {printable(name)}: {'; '.join(map(_row_said, units.within(name)))}.")
    left = judgement.count - len(listed.rows)
    if left > 0 and not first:
        voice.say(f"... and {left:,} more; --output FILE --only-anomalies writes them all.")


def _row_said(row: Mapping[str, Any]) -> str:
    """A row of a unit, by its number in the file."""
    column = shorten(printable(row["column"]), LONGEST_CELL)
    return f"row {row['row'] + 1:,}, {column} {row['value']:.4g} ({row['strength']:+.1f})"


def _next_step(
    cad: ConformalDetector, judgement: FileDiscoveries, ids: Sequence[str], command: str
) -> str:
    """One command to go on with: what a check or an empty list advises, or a look at one row."""
    findings, why = judgement.verdict.findings, judgement.why_nothing or ""
    advised = ADVISED.search(f"{findings[0].advice if findings else ''} {why}")
    method = METHOD.search(why)
    if advised is not None:
        return advised[0]
    if method is not None and command == "detect":
        return f"`reconform detect --method {method[1]}`"
    if cad.known_rows is None or judgement.weights is not None or len(ids) > 1:
        return ""  # an explanation judges a row without weights
    first = take(judgement, ids, 1, flagged=judgement.count > 0)
    name = str(first.ids[ids[0]][0] if ids else first.rows[0])
    return f"`reconform {command} --explain {shlex.quote(name)}`"


# --- as plain data -------------------------------------------------------------------------------


def _facts(
    judgement: FileDiscoveries,
    explained: Sequence[Explanation],
    ids: Sequence[str],
    deciding: Deciding,
    writing: Writing,
) -> dict[str, Any]:
    """Say all that was found as plain data."""
    source, verdict = judgement.provenance, judgement.verdict.to_dict()
    for finding in verdict["findings"]:  # with the options that advice is about
        finding.update({name: in_options(finding[name]) for name in ("sentence", "advice")})
    certifies = judgement.certified is not None and judgement.weights is None
    listed, units, compared = take(judgement, ids, MOST_LISTED), judgement.units, judgement.compared
    within = {}
    if units is not None:
        found = (units.within(name) for name in listed.ids[ids[0]])
        within["rows"] = [[{**one, "row": one["row"] + 1} for one in rows] for rows in found]
    groups = [
        {
            "group": group.name,
            "n_reference": group.reference,
            "n_calibration": group.calibration,
            "rows": group.rows,
            "flagged": group.flagged,
            "smallest_p": group.smallest_p if group.rows else None,
            "least_p": float(group.least_p),
            "shortest_list": group.shortest,
        }
        for group in judgement.groups
    ]
    facts = {
        "new": {
            "path": judgement.path,
            "rows": judgement.tested,
            "sha256": judgement.fingerprint,
            "missing": judgement.missing,
            "unseen": judgement.unseen,
        },
        "detector": one_line(source.detector),
        "method": one_line(source.method),
        "scheme": source.scheme,
        "choice": [asdict(one) for one in judgement.choice],
        "seed": source.random_state,
        "n_reference": source.n_reference,
        "n_calibration": source.n_calibration,
        **({"groups": groups} if groups else {}),
        "decision": deciding.facts(),
        "flagged": judgement.count,
        "p_threshold": judgement.p_threshold,
        "promise": judgement.promise,
        "guarantee": in_options(judgement.guarantee),
        "assumption": verdict,
        "why_nothing": None if judgement.count else in_options(judgement.why_nothing or ""),
        **({"flagged_without_certificate": judgement.decision.count} if certifies else {}),
        "false_bound": false_bound(judgement),
        "anomalies": listed.records(**within),
        "top": _first(judgement, ids),
        "sample": None if judgement.sample is None else (judgement.sample + 1).tolist(),
        # What the new rows look like, for those that compare runs.
        "seen": seen_in(
            None if compared is None else compared.new,
            () if compared is None else compared.names,
            judgement.tested,
        ),
    }
    if isinstance(units, WindowRows):
        facts["events"] = [asdict(event) for event in judgement.events]
    if explained:
        facts["explanations"] = [explanation.to_dict() for explanation in explained]
    return {**facts, "output": judgement.output, "report": writing.report}


def _first(judgement: FileDiscoveries, ids: Sequence[str]) -> dict[str, Any] | None:
    """The rows that come first, where they were asked for or nothing is flagged."""
    if judgement.top is None and judgement.count:
        return None
    known = judgement.first()
    return {
        "asked": judgement.top,
        "rows": take(judgement, ids, min(known.rows, MOST_LISTED), flagged=False).records(),
        "flagged": known.flagged,
        "estimated_false": known.estimate,
        "false_bound": known.bound,
        "confidence": known.confidence,
        "sentence": known.sentence,
    }


def false_bound(judgement: FileDiscoveries) -> int | None:
    """Bound the false alarms in this list; only after one split, and not if that looks broken."""
    broken = judgement.verdict.word == "broken"
    if not judgement.provenance.one_split or not judgement.count or broken:
        return None
    table = false_discovery_table(judgement.rank_counts.counts, CONFIDENCE)
    bound = int(table[judgement.decision.rank_threshold])
    return bound if bound < judgement.count else None


def exit_code(facts: Mapping[str, Any], fail_on: Sequence[str]) -> int:
    """Tell the exit code that was asked for by what was found.

    An assumption that is broken as it was in earlier runs is no news.
    """
    verdict = facts["assumption"]["verdict"]
    if verdict == "broken" and facts.get("since", {}).get("as_before"):
        verdict = ""
    if verdict in fail_on or (verdict == "broken" and "doubtful" in fail_on):
        return FAILURES["broken"]
    return FAILURES["anomalies"] if "anomalies" in fail_on and facts["flagged"] else 0
