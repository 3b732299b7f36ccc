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
from typing import Any, NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table as RichTable
from rich.text import Text

from ..arrays import BoolArray, FloatArray
from ..assumption import Verdict
from ..assumption.history import seen_in
from ..detector import ConformalDetector
from ..errors import InputError, ReconformError, nearest
from ..explain import IN_BRACKETS, NO_REFERENCE, Explanation
from ..explain.features import Unusual, labelled, unusual_features
from ..files import Layout, Table, check_output, open_batches, result
from ..files.formats import is_standard
from ..files.judge import FileDiscoveries, ReadOptions, judge_file
from ..reporting import render, write_page
from ..reporting.words import shorten
from ..statistics.bounds import false_discovery_table
from ..tables.cells import labels_in, to_python
from ..timeseries import WindowRows
from ..weights import Weights
from .declare import in_options
from .options import FAILURES, Columns, Deciding, Files, Writing
from .output import Voice, one_line, printable

LONGEST_CELL = 40
# A method that is advised, as messages name it.
METHOD = re.compile(r"`method='([^']+)'`")
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

    def __len__(self) -> int:
        return len(self.rows)

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


def take_flagged(judgement: FileDiscoveries, ids: Sequence[str], most: int) -> Flagged:
    """Take the most anomalous of the rows that a judgement has flagged."""
    return replace(take_first(judgement, ids, min(most, judgement.count)), mask=None)


def take_first(judgement: FileDiscoveries, ids: Sequence[str], most: int) -> Flagged:
    """Take the rows that come first, flagged or not."""
    rows = judgement.listed.head(most)
    table = rows.table
    # The results are the last columns, whatever they are called.
    scores, p_values, q_values, mask = (table.column(i).to_numpy() for i in range(-4, 0))
    return Flagged(
        rows=(rows.positions + 1).tolist(),
        ids={name: to_python(table.column(name)) for name in ids},
        numbers={"score": scores, "p-value": p_values, f"{judgement.q_name}-value": q_values},
        mask=mask,
    )


def unusual_words(judgement: FileDiscoveries, reference: Table, most: int) -> list[str]:
    """Say for the rows that come first which features are most unusual against the reference."""
    rows = judgement.listed.head(most)
    return words_about(rows.X, reference, rows.table)


def words_about(X: FloatArray, reference: Table, cells: Any = None) -> list[str]:
    """Say for rows which of their features are most unusual against the reference."""
    features, names = reference.features, reference.names
    rows = labelled(X, features, None if cells is None else labels_in(cells))
    found = unusual_features(rows, labelled(reference.X, features))
    return [", ".join(_said(u, names) for u in row) for row in found]


def _said(unusual: Unusual, names: Sequence[str]) -> str:
    name, value = (
        shorten(names[unusual.feature], LONGEST_CELL),
        shorten(unusual.value, LONGEST_CELL),
    )
    return f"{name} {value} ({unusual.note or format(unusual.strength, '+.1f')})"


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
MOST_UNITS = 5
MOST_LISTED = 1_000


def check_header(
    path: str,
    reference: Table,
    layout: Layout,
    files: Files,
    writing: Writing | None = None,
    *,
    columns: Columns | None = None,
) -> None:
    """Refuse new rows without the columns of the reference before a detector is fitted."""
    group = None if columns is None else columns.group
    if writing is not None:
        writing.wanted(files.with_unit(None if columns is None else columns.unit))
    if not Path(path).is_file():  # a pipe can be read only once
        return
    features = reference.features if reference.units is None else reference.units.columns
    opened = open_batches(
        path, features, id_columns=files.id_columns, layout=layout, group_column=group
    )
    with opened as batches:
        batches.timed_by(None if columns is None else columns.time)
        if reference.units is not None:  # whose columns are others
            return
        if writing is not None and writing.output is not None and not is_standard(writing.output):
            written = files.output_layout(writing.output)
            check_output(writing.output, layout=written, overwrite=writing.overwrite)


class ReferenceRows(NamedTuple):
    """The reference rows, and how new rows are weighed by them; None where all count alike."""

    table: Table
    weigh: Callable[[FloatArray], Weights] | None = None


def weighing(reference: Table, shift: Sequence[str]) -> ReferenceRows:
    """Weigh by the columns that come in another mix, if there are any."""
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
    weigh = partial(_estimated, reference.X[:, used], used)
    return ReferenceRows(reference, weigh if shift else None)


def _estimated(reference: FloatArray, used: list[int], X: FloatArray) -> Weights:
    return Weights.estimate(reference, X[:, used])


def judge(
    voice: Voice,
    cad: ConformalDetector,
    path: str,
    read: ReadOptions,
    *,
    files: Files,
    deciding: Deciding,
    writing: Writing,
    known: ReferenceRows | None = None,
) -> dict[str, Any]:
    """Judge a file, write what was asked for, say what was found, and return it as plain data.

    With the reference it says what is unusual about a row.
    """
    reference = None if known is None else known.table
    read = replace(read, wanted=writing.wanted(files))
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
            write=writing.options(files),
            progress=progress,
            weights=None if known is None else known.weigh,
        )
    if writing.report is not None:
        voice.step(f"Writing {writing.report}")
        _write_page(
            voice,
            judgement,
            writing.report,
            ids=files.id_columns,
            overwrite=writing.overwrite,
        )
    explained = _explained(judgement, files.id_columns)
    bound = false_bound(judgement)
    if judgement.count and judgement.groups and judgement.warning:
        voice.warn(judgement.spoken(judgement.warning))
    if voice.talks:
        _tell(voice, judgement, explained, files, writing, reference)
    listed = take_flagged(judgement, files.id_columns, MOST_LISTED)
    facts = {
        **_facts(judgement, deciding),
        "false_bound": bound,
        "anomalies": listed.records(**_rows_within(judgement, listed, files.id_columns)),
        "top": _first(judgement, files.id_columns),
        "sample": None if judgement.sample is None else (judgement.sample + 1).tolist(),
        "seen": _seen(judgement),
    }
    if isinstance(judgement.units, WindowRows):
        facts["events"] = [asdict(event) for event in judgement.events]
    if explained:
        facts["explanations"] = [explanation.to_dict() for explanation in explained]
    return {**facts, "output": judgement.output, "report": writing.report}


def _seen(judgement: FileDiscoveries) -> dict[str, Any]:
    """What the new rows look like, for those that compare runs."""
    compared = judgement.compared
    new, names = (None, ()) if compared is None else (compared.new, compared.names)
    return seen_in(new, names, judgement.tested)


def _rows_within(
    judgement: FileDiscoveries, listed: Flagged, ids: Sequence[str]
) -> dict[str, list[Any]]:
    """The rows of every unit that stand out, by their numbers in the file; nothing for rows."""
    units = judgement.units
    if units is None:
        return {}
    found = (units.within(name) for name in listed.ids[ids[0]])
    return {"rows": [[{**one, "row": one["row"] + 1} for one in rows] for rows in found]}


def _explained(judgement: FileDiscoveries, ids: Sequence[str]) -> list[Explanation]:
    """Explain the rows that were asked for, under the names that they have everywhere."""
    positions = judgement.wanted.positions.tolist()
    named = [to_python(judgement.wanted.table.column(name)) for name in ids]
    names = [", ".join(map(str, cells)) for cells in zip(*named, strict=True)]
    return [
        replace(judgement.explain(position=position), row=printable(name))
        for name, position in zip(names or [str(p + 1) for p in positions], positions, strict=True)
    ]


def _tell(
    voice: Voice,
    judgement: FileDiscoveries,
    explained: Sequence[Explanation],
    files: Files,
    writing: Writing,
    reference: Table | None,
) -> None:
    """Say what was found, and where it was written."""
    _tell_verdict(voice, judgement.verdict, judgement.why_nothing)
    _tell_decision(voice, judgement)
    if writing.top is not None or not judgement.count:
        voice.say(judgement.spoken(judgement.first().sentence))
    if writing.output is None:
        _tell_rows(voice, judgement, files.id_columns, reference)
    for explanation in explained:
        voice.say()
        voice.say(str(explanation))
    for what, where in (("Rows", writing.output), ("Report", writing.report)):
        if where is not None and not is_standard(where):
            voice.say(f"{what}: {where}")
    if reference is not None and not explained:
        _tell_next(voice, judgement, files.id_columns, writing)


def _tell_next(
    voice: Voice, judgement: FileDiscoveries, ids: Sequence[str], writing: Writing
) -> None:
    """Advise one command where nothing has yet: a method that can flag, or a look at one row."""
    advised = [str(finding) for finding in judgement.verdict.findings]
    if any("`reconform" in said for said in (*advised, judgement.why_nothing or "")):
        return
    method = METHOD.search(judgement.why_nothing or "")
    if method is not None:
        voice.say(in_options(f"Next: `reconform detect --method {method[1]}`"))
    elif judgement.count and writing.output is None and len(ids) < 2:
        first = take_flagged(judgement, ids, 1)
        name = str(first.ids[ids[0]][0] if ids else first.rows[0])
        voice.say(in_options(f"Next: `reconform detect --explain {shlex.quote(name)}`"))


def _write_page(
    voice: Voice,
    judgement: FileDiscoveries,
    target: str,
    *,
    ids: Sequence[str],
    overwrite: bool,
) -> None:
    """Write the page; say what it could not be given."""
    if judgement.tested > result.MOST_DISCOVERIES:
        raise InputError(
            judgement.path,
            f"it has more than {result.MOST_DISCOVERIES:,} rows, the most that a report covers. "
            "Leave out --report, or report on a part of the file.",
        )
    found = judgement.to_discoveries()
    if judgement.rows is None and found.explainer is not None:
        voice.warn(
            f"The report names unusual features of the first {_rows(len(judgement.listed))} only: "
            f"{judgement.path} has more than {MOST_CELLS:,} cells."
        )
    labels: Any = range(1, found.tested + 1) if found.index is None else found.index
    if len(ids) > 1:
        labels = [", ".join(map(str, several)) for several in labels]
    page = partial(
        render,
        found,
        ids=labels,
        title=f"Anomalies in {Path(judgement.path).name}",
        spell=in_options,
        batch=judgement.fingerprint,
        file=_place(judgement.path),
    )
    write_page(Path(target), page, overwrite=overwrite)


def _place(path: str) -> str:
    """Where a file is, whoever reads its name later; nothing for what is no file."""
    return os.path.abspath(path) if os.path.isfile(path) else ""


STYLES = {"broken": "bold red", "doubtful": "bold yellow", "holds": ""}


def _tell_verdict(voice: Voice, verdict: Verdict, later: str | None) -> None:
    """Say what speaks against the assumption, before anything that rests on it.

    What comes `later`, as the reason for an empty list, is not said twice.
    """
    findings = [finding for finding in verdict.findings if str(finding) != later]
    if verdict.reasons:
        voice.say(verdict.sentence, style=STYLES[verdict.word])
    elif findings:
        voice.say("The checks found nothing against the assumption, but note:")
    for finding in findings:
        voice.say(f"- {in_options(str(finding))}")
    if verdict.reasons:
        voice.say()


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


def _tell_decision(voice: Voice, judgement: FileDiscoveries) -> None:
    """Say what everybody should know; the page and --json say the whole theorem."""
    voice.say(judgement.headline, style="bold")
    checks = "" if judgement.verdict.findings else judgement.verdict.sentence
    broken = judgement.verdict.word == "broken"
    why = in_options("" if broken else judgement.why_nothing or "")
    for said in filter(None, (judgement.promise, checks, why, judgement.ranked_by)):
        voice.say(said)
    _tell_groups(voice, judgement)
    if judgement.missing:
        counts = judgement.missing.items()
        said = ", ".join(f"{name!r} in {_rows(count)}" for name, count in counts)
        voice.say(f"Missing values, imputed: {said}.")


def _tell_rows(
    voice: Voice, judgement: FileDiscoveries, ids: Sequence[str], reference: Table | None
) -> None:
    first = judgement.top is not None or not judgement.count
    most = min(judgement.first().rows, MOST_LISTED) if first else MOST_SHOWN
    rows = (take_first if first else take_flagged)(judgement, ids, most)
    unusual = unusual_words(judgement, reference, len(rows)) if reference is not None else []
    units = judgement.units
    events = judgement.events
    if events:
        voice.say()
        voice.say(f"{_counted(len(events), 'event')}:", style="bold")
        for event in events[:MOST_SHOWN]:
            voice.say(f"  {printable(event.sentence)}")
    voice.say()
    voice.show(rows.table(unusual))
    voice.say()
    if unusual:
        voice.say(CAPTION, style="dim")
    if units is not None:
        for name in rows.ids[ids[0]][:MOST_UNITS]:
            voice.say(f"Within {printable(name)}: {'; '.join(map(_row_said, units.within(name)))}.")
    left = judgement.count - len(rows)
    if left > 0 and not first:
        voice.say(f"... and {left:,} more; --output FILE --only-anomalies writes them all.")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _row_said(row: Mapping[str, Any]) -> str:
    """A row of a unit, by its number in the file."""
    column = shorten(printable(row["column"]), LONGEST_CELL)
    return f"row {row['row'] + 1:,}, {column} {row['value']:.4g} ({row['strength']:+.1f})"


def _first(judgement: FileDiscoveries, ids: Sequence[str]) -> dict[str, Any] | None:
    """The rows that come first, where they were asked for or nothing is flagged."""
    if judgement.top is None and judgement.count:
        return None
    known = judgement.first()
    return {
        "asked": judgement.top,
        "rows": take_first(judgement, ids, min(known.rows, MOST_LISTED)).records(),
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


def groups_of(judgement: FileDiscoveries) -> dict[str, Any]:
    """What became of every group, as plain data; nothing where there are none."""
    if not judgement.groups:
        return {}
    return {
        "groups": [
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
    }


def _tell_groups(voice: Voice, judgement: FileDiscoveries) -> None:
    """Say in a line what became of every group."""
    if len(judgement.groups) > 1:
        each = [f"{group.name}: {group.flagged:,} of {group.rows:,}" for group in judgement.groups]
        more = [f"and {len(each) - MOST_SHOWN:,} more"] if len(each) > MOST_SHOWN else []
        voice.say(f"Flagged by group: {'; '.join([*each[:MOST_SHOWN], *more])}.")


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


def _facts(judgement: FileDiscoveries, deciding: Deciding) -> dict[str, Any]:
    source, plain = judgement.provenance, judgement.decision.count
    certifies = judgement.certified is not None and judgement.weights is None
    return {
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
        **groups_of(judgement),
        "decision": deciding.facts(),
        "flagged": judgement.count,
        "p_threshold": judgement.p_threshold,
        "promise": judgement.promise,
        "guarantee": in_options(judgement.guarantee),
        "assumption": _verdict_facts(judgement.verdict),
        "why_nothing": None if judgement.count else in_options(judgement.why_nothing or ""),
        **({"flagged_without_certificate": plain} if certifies else {}),
    }


def _verdict_facts(verdict: Verdict) -> dict[str, Any]:
    """A verdict as plain data, with the options that its advice is about."""
    facts = verdict.to_dict()
    for finding in facts["findings"]:
        finding.update({name: in_options(finding[name]) for name in ("sentence", "advice")})
    return facts
