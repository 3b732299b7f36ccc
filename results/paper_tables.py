"""Results in the paper's layout: a block for FDR, a block for power, as Markdown, LaTeX and CSV.

Beside it, what the draws cost: seconds, and bytes of model files.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from reconform.detectors import DETECTORS
from reconform.errors import unknown_choice
from reconform.study import OWN_METHODS, Cell, Estimate, Study
from reconform.study.subjects import resolve_readings

FORMATS = ("markdown", "latex", "csv")
DAGGER = "†"

DATASET_TITLES = {
    "wbc": "WBC",
    "ionosphere": "Ionosphere",
    "wdbc": "WDBC",
    "breast": "Breast",
    "musk": "Musk",
    "thyroid": "Thyroid",
    "satellite": "Satellite",
    "mammography": "Mammography",
}

# Blocks in the order of the paper's columns; which one follows from the method's variant.
BLOCKS = {None: "", "plus": "Retaining (+)", "pooled": "Pooled", "basic": "Non-retaining"}
WITHIN_BLOCK = ("split", "full", "jab", "cv", "jackknife")


def title_of(label: str) -> str:
    """Return the title of a detector or a data set of the paper in tables; others are their label.

    Examples
    --------
    >>> title_of("knn"), title_of("wbc"), title_of("mine")
    ('k-Nearest Neighbors', 'WBC', 'mine')
    """
    if label in DETECTORS:
        return DETECTORS[label].title
    return DATASET_TITLES.get(label, label)


@dataclass(frozen=True)
class MethodColumn:
    """One method's place in a table.

    Attributes
    ----------
    label : str
    heading, latex : str
    block : str
        Best power is marked within a block; the empty block is split and full.
    """

    label: str
    heading: str
    latex: str
    block: str


def columns_of(variants: Mapping[str, str | None], *, folds: int = 10) -> list[MethodColumn]:
    """Arrange methods like the paper: split, then retaining, pooled, non-retaining.

    Parameters
    ----------
    variants : mapping
        The comparison that each method makes, by label; None for split and full.
    folds : int
        Shown in the headings of cross-validation.

    Examples
    --------
    >>> [c.heading for c in columns_of({"cv": "basic", "split": None, "jab+": "plus"})]
    ['Split', 'JaB+', '10-CV']
    """
    stems = {"jab": "JaB", "cv": f"{folds}-CV", "jackknife": "Jackknife"}
    columns = []
    for label, variant in variants.items():
        stem = label.removesuffix("+").removesuffix("-pooled")
        if stem in stems:
            heading = label.replace(stem, stems[stem]).replace("-pooled", " pooled")
            power = {"plus": "+", "pooled": r"\mathrm{pool}"}.get(variant or "")
            raised = f"^{{{power}}}" if power else ""
            latex = rf"{stems[stem]}${raised}_{{\mathrm{{AD}}}}$"
        else:
            heading = label.capitalize() if label in WITHIN_BLOCK else label
            latex = _escape(heading)
        columns.append(MethodColumn(label, heading, latex, BLOCKS[variant]))
    places = list(BLOCKS.values())

    def place(column: MethodColumn) -> tuple[int, int]:
        stem = column.label.removesuffix("+").removesuffix("-pooled")
        last = len(WITHIN_BLOCK)
        inside = WITHIN_BLOCK.index(stem) if stem in WITHIN_BLOCK else last
        return places.index(column.block), inside

    return sorted(columns, key=place)


def best_power(cells: Iterable[Cell], columns: Sequence[MethodColumn]) -> set[str]:
    """Methods to print in bold, among the cells of one data set and one detector.

    Within every block the highest power, as printed, of those without an FDR violation; ties all.
    Split and full are no block to win: they are marked if nothing in the row is better.
    """
    blocks = {column.label: column.block for column in columns}
    valid = {
        cell.method: (blocks[cell.method], round(cell.power.mean, 3))
        for cell in cells
        if not cell.violation
    }
    highest: dict[str, float] = {}
    for block, power in valid.values():
        highest[block] = max(power, highest.get(block, power))
    overall = max(highest.values(), default=0.0)
    return {
        method
        for method, (block, power) in valid.items()
        if power == (highest[block] if block else overall)
    }


def format_table(
    cells: Sequence[Cell], columns: Sequence[MethodColumn], *, fmt: str = "markdown"
) -> str:
    """Lay cells out like the paper's tables.

    Parameters
    ----------
    cells : sequence of Cell
        Detectors and data sets appear in their order.
    columns : sequence of MethodColumn
    fmt : {"markdown", "latex", "csv"}
        CSV has a line per cell and metric, in the columns of the paper's numbers, and some more.

    Examples
    --------
    >>> cell = Cell("wbc", "knn", "cv+", Estimate(0.05, 0.08, 25), Estimate(0.6, 0.2, 25), 0.1)
    >>> print(format_table([cell], columns_of({"cv+": "plus"}), fmt="csv"))
    detector,dataset,method,metric,mean,std,draws,violation,best
    knn,wbc,cv+,fdr,0.050000,0.080000,25,0,1
    knn,wbc,cv+,power,0.600000,0.200000,25,0,1
    """
    layouts = {"markdown": _markdown, "latex": _latex, "csv": _csv}
    if fmt not in layouts:
        raise unknown_choice("fmt", fmt, FORMATS)
    return layouts[fmt](list(cells), list(columns))


def columns(study: Study) -> list[MethodColumn]:
    """Arrange the methods of a study."""
    methods = OWN_METHODS if study.methods is None else study.methods
    readings = resolve_readings(methods, folds=study.protocol.folds)
    variants = {reading.label: reading.variant for reading in readings}
    return columns_of(variants, folds=study.protocol.folds)


def table(study: Study, fmt: str = "markdown") -> str:
    """Lay the results of a study out like the paper's tables."""
    return format_table(study.cells(), columns(study), fmt=fmt)


# --- rows of a table ---------------------------------------------------------------------------


def _by_detector(cells: list[Cell]) -> dict[str, dict[str, dict[str, Cell]]]:
    """cells[detector][dataset][method]."""
    nested: dict[str, dict[str, dict[str, Cell]]] = {}
    for cell in cells:
        nested.setdefault(cell.detector, {}).setdefault(cell.dataset, {})[cell.method] = cell
    return nested


def _entries(
    row: dict[str, Cell],
    columns: list[MethodColumn],
    metric: str,
    bold: str,
    dagger: str,
    empty: str,
) -> list[str]:
    best = best_power(row.values(), columns) if metric == "power" else set()
    entries = []
    for column in columns:
        cell = row.get(column.label)
        if cell is None:
            entries.append(empty)
            continue
        text = str(getattr(cell, metric))
        if metric == "fdr" and cell.violation:
            text += dagger
        entries.append(bold.format(text) if column.label in best else text)
    return entries


METRICS = {"fdr": "False discovery rate", "power": "Statistical power"}


def _legend(cells: list[Cell], dagger: str) -> str:
    draws = sorted({cell.fdr.draws for cell in cells})
    count = str(draws[0]) if len(draws) == 1 else f"{draws[0]} to {draws[-1]}"
    exceed = (
        f"{dagger} marks evidence that the marginal FDR exceeds {cells[0].target:g}."
        if any(cell.violation for cell in cells)
        else f"There is no evidence that a marginal FDR exceeds {cells[0].target:g}."
    )
    return (
        f"Mean ± standard deviation over {count} draws. Bold marks the highest valid power within "
        f"a block, ties included. {exceed}"
    )


def _markdown(cells: list[Cell], columns: list[MethodColumn]) -> str:
    parts = []
    for detector, rows in _by_detector(cells).items():
        parts.append(f"### {title_of(detector)}\n")
        for metric, title in METRICS.items():
            lines = [
                f"| {title} | {' | '.join(column.heading for column in columns)} |",
                "|---" * (len(columns) + 1) + "|",
            ]
            for dataset, row in rows.items():
                entries = _entries(row, columns, metric, "**{}**", f" {DAGGER}", "—")
                lines.append(f"| {title_of(dataset)} | {' | '.join(entries)} |")
            parts.append("\n".join(lines) + "\n")
        every = [cell for row in rows.values() for cell in row.values()]
        parts.append(_legend(every, DAGGER) + "\n")
    return "\n".join(parts)


def _latex(cells: list[Cell], columns: list[MethodColumn]) -> str:
    width = len(columns) + 1
    spans = [(block, len(list(group))) for block, group in groupby(c.block for c in columns)]
    blocks, rules, first = [], [], 2
    for block, span in spans:
        title = rf"\textbf{{{block.replace('(+)', '($+$)')}}}" if block else ""
        blocks.append(rf"& \multicolumn{{{span}}}{{c}}{{{title}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + span - 1}}}")
        first += span
    headings = [rf"& \multicolumn{{1}}{{c}}{{{column.latex}}}" for column in columns]
    tables = []
    for detector, rows in _by_detector(cells).items():
        name = _escape(title_of(detector))
        every = [cell for row in rows.values() for cell in row.values()]
        legend = _legend(every, r"\textsuperscript{\dag}").replace("±", r"$\pm$")
        lines = [
            r"\begin{table*}[h]",
            rf"    \caption{{{name}. {legend}}}",
            rf"    \begin{{tabular}}{{{'l' * width}}}",
            rf"        & \multicolumn{{{width - 1}}}{{c}}{{\textbf{{{name}}}}} \\",
        ]
        for metric, title in METRICS.items():
            lines += [
                rf"        \toprule & \multicolumn{{{width - 1}}}{{c}}{{{title}}} \\"
                rf" \cmidrule{{2-{width}}}",
                *(f"        {block}" for block in blocks[:-1]),
                rf"        {blocks[-1]} \\ {' '.join(rules)}",
                *(f"        {heading}" for heading in headings[:-1]),
                rf"        {headings[-1]} \\ {' '.join(rules)}",
            ]
            for dataset, row in rows.items():
                entries = _entries(
                    *(row, columns, metric),
                    *(r"\textbf{{{}}}", r"\textsuperscript{\dag}", "---"),
                )
                shown = " & ".join(entries).replace("±", r"$\pm$")
                lines.append(rf"        {_escape(title_of(dataset))} & {shown} \\")
        lines += [
            r"        \bottomrule",
            r"    \end{tabular}",
            rf"    \label{{tab:study_{''.join(filter(str.isalnum, detector))}}}",
            r"\end{table*}",
        ]
        tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)


def _csv(cells: list[Cell], columns: list[MethodColumn]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["detector", "dataset", "method", "metric", "mean", "std", "draws", "violation", "best"]
    )
    for detector, rows in _by_detector(cells).items():
        for metric in METRICS:
            for dataset, row in rows.items():
                best = best_power(row.values(), columns)
                for column in columns:
                    cell = row.get(column.label)
                    if cell is None:
                        continue
                    value: Estimate = getattr(cell, metric)
                    writer.writerow(
                        [
                            *(detector, dataset, column.label, metric),
                            *(f"{value.mean:.6f}", f"{value.sd:.6f}", value.draws),
                            *(int(cell.violation), int(column.label in best)),
                        ]
                    )
    return text.getvalue()


def _escape(text: str) -> str:
    named = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(named.get(c) or ("\\" + c if c in "&%$#_{}" else c) for c in text)


@dataclass(frozen=True)
class CostCell:
    """Medians over the draws.

    Attributes
    ----------
    detector, dataset, method : str
    fit_seconds, score_seconds : float
    model_bytes : float
        NaN where the models cannot be pickled.
    """

    detector: str
    dataset: str
    method: str
    fit_seconds: float
    score_seconds: float
    model_bytes: float


def summarise_costs(costs: Any) -> list[CostCell]:
    """Take medians over the draws.

    Parameters
    ----------
    costs : table
        A mapping of columns: labels, seconds and bytes.

    Returns
    -------
    list of CostCell
        In the order in which they first appear.
    """
    names = ("detector", "dataset", "method", "fit_seconds", "score_seconds", "model_bytes")
    columns = [np.asarray(costs[name]).tolist() for name in names]
    groups: dict[tuple[str, str, str], list[list[float]]] = {}
    for detector, dataset, method, *values in zip(*columns, strict=True):
        known = [float("nan") if value is None else float(value) for value in values]
        groups.setdefault((detector, dataset, method), []).append(known)
    return [
        CostCell(*labels, *np.median(values, axis=0).tolist()) for labels, values in groups.items()
    ]


def format_costs(cells: Sequence[CostCell]) -> str:
    """Write costs as a table in Markdown.

    Examples
    --------
    >>> print(format_costs([CostCell("knn", "wbc", "cv+", 0.0123, 0.002, 51200)]))
    | detector | data set | method | fit (ms) | score (ms) | model (kB) |
    |---|---|---|---|---|---|
    | k-Nearest Neighbors | WBC | cv+ | 12.3 | 2 | 51.2 |
    """
    lines = [
        "| detector | data set | method | fit (ms) | score (ms) | model (kB) |",
        "|---" * 6 + "|",
    ]
    for cell in cells:
        titles = [title_of(name) for name in (cell.detector, cell.dataset)]
        numbers = (cell.fit_seconds, cell.score_seconds, cell.model_bytes / 1e6)
        shown = " | ".join(_three_digits(1e3 * number) for number in numbers)
        lines.append(f"| {' | '.join(titles)} | {cell.method} | {shown} |")
    return "\n".join(lines) + "\n"


def _three_digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
