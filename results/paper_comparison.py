"""Compare a study with the paper or another study, cell by cell, in combined standard errors."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paper_tables import METRICS, title_of

from reconform.errors import ReconformError
from reconform.study import Cell, Estimate, Study

HERE = Path(__file__).parent

PAPER_DRAWS = 25

# The public package of the paper's authors calls pooled "plus", and the paper's tables look like
# it: with kNN its J+ and J columns are identical, as pooling makes them and pairing does not.
PAPER_READING = {
    "split": "split",
    "jab-pooled": "jab+",
    "cv-pooled": "cv+",
    "jackknife-pooled": "jackknife+",
    "jab": "jab",
    "cv": "cv",
    "jackknife": "jackknife",
}

# The paper prints three digits: a smaller difference cannot be seen.
LEAST_SE = 0.001

ReferenceKey = tuple[str, str, str, str]


@dataclass(frozen=True)
class Reference:
    """A table of results to compare with.

    Attributes
    ----------
    name : str
    estimates : mapping of (detector, dataset, method, metric) to Estimate
    reading : mapping
        Which of our methods is read against which of its own, unless the caller says otherwise.
        Methods that are not in it are read against their namesake, if it is empty.
    """

    name: str
    estimates: Mapping[ReferenceKey, Estimate]
    reading: Mapping[str, str]


@dataclass(frozen=True)
class ComparedCell:
    """One number of ours next to one of theirs.

    Attributes
    ----------
    detector, dataset, method : str
        Ours.
    reference_method : str
        What the method is called in the reference.
    metric : {"fdr", "power"}
    ours, reference : Estimate
    """

    detector: str
    dataset: str
    method: str
    reference_method: str
    metric: str
    ours: Estimate
    reference: Estimate

    @property
    def standard_error(self) -> float:
        """Combine both standard errors; at least 0.001, the last digit that the paper prints."""
        combined = math.hypot(self.ours.standard_error, self.reference.standard_error)
        return max(combined, LEAST_SE)

    @property
    def z(self) -> float:
        """Difference of the means in combined standard errors."""
        return (self.ours.mean - self.reference.mean) / self.standard_error


@dataclass(frozen=True)
class Comparison:
    """All cells that both sides have.

    Attributes
    ----------
    name : str
        Of the reference.
    cells : tuple of ComparedCell
    missing : tuple of (detector, dataset, method, metric)
        Numbers of the reference that we have no counterpart for.
    """

    name: str
    cells: tuple[ComparedCell, ...]
    missing: tuple[ReferenceKey, ...] = ()

    def within(self, errors: float) -> int:
        """Count the cells whose means are at most so many standard errors apart."""
        return sum(abs(cell.z) <= errors for cell in self.cells)

    def beyond(self, errors: float) -> list[ComparedCell]:
        """List the cells whose means are further apart, the furthest first."""
        far = [cell for cell in self.cells if abs(cell.z) > errors]
        return sorted(far, key=lambda cell: -abs(cell.z))

    def __str__(self) -> str:
        total = len(self.cells)
        if not total:
            return f"No cell in common with {self.name}."
        shares = [
            f"{self.within(k)} of {total} cells ({self.within(k) / total:.1%}) within {k} "
            "standard errors"
            for k in (2, 3)
        ]
        largest = max(abs(cell.z) for cell in self.cells)
        text = f"Against {self.name}: {', '.join(shares)}; the largest difference is {largest:.1f}."
        if self.missing:
            text += f" {len(self.missing)} of its numbers have no counterpart here."
        return text

    def to_markdown(self, *, beyond: float = 2.5) -> str:
        """Write the summary, the cells beyond so many standard errors, and all side by side."""
        header = ["| metric | detector | data set | method | ours | reference | difference |"]
        header.append("|---" * 7 + "|")
        far = self.beyond(beyond)
        parts = [f"{self}\n"]
        if far:
            parts.append(f"Beyond {beyond:g} standard errors:\n")
            parts.append("\n".join(header + [_line(cell) for cell in far]) + "\n")
        else:
            parts.append(f"No cell is beyond {beyond:g} standard errors.\n")
        parts.append("All cells; the difference is in combined standard errors:\n")
        parts.append("\n".join(header + [_line(cell) for cell in self.cells]) + "\n")
        return "\n".join(parts)

    def to_csv(self) -> str:
        """Write all cells, one per line."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            [
                *("detector", "dataset", "method", "reference_method", "metric"),
                *("mean", "std", "draws", "reference_mean", "reference_std", "reference_draws"),
                *("standard_error", "z"),
            ]
        )
        for cell in self.cells:
            ours, theirs = cell.ours, cell.reference
            writer.writerow(
                [
                    *(cell.detector, cell.dataset, cell.method, cell.reference_method, cell.metric),
                    *(f"{ours.mean:.6f}", f"{ours.sd:.6f}", ours.draws),
                    *(f"{theirs.mean:g}", f"{theirs.sd:g}", theirs.draws),
                    *(f"{cell.standard_error:.6f}", f"{cell.z:.3f}"),
                ]
            )
        return text.getvalue()


def _line(cell: ComparedCell) -> str:
    method = cell.method
    if cell.reference_method != method:
        method += f" (as {cell.reference_method})"
    names = (title_of(name) for name in (cell.detector, cell.dataset))
    return (
        f"| {METRICS[cell.metric]} | {' | '.join(names)} | {method} | {cell.ours} | "
        f"{cell.reference} | {cell.z:+.2f} |"
    )


def read_reference(source: str | os.PathLike[str] = "paper") -> Reference:
    """Read the paper's 288 numbers, or a CSV file as `paper_tables.table` writes it.

    Parameters
    ----------
    source : str or path
        ``"paper"``, or a file with columns ``detector, dataset, method, metric, mean, std`` and
        optionally ``draws`` (25 where it is missing).

    Examples
    --------
    >>> paper = read_reference("paper")
    >>> len(paper.estimates)
    288
    >>> print(paper.estimates["knn", "wbc", "jab+", "power"])
    0.638 ± 0.192
    """
    if source == "paper":
        text = (HERE / "published.csv").read_text("utf-8")
        return Reference("the paper", _parse(text, "the paper's numbers"), PAPER_READING)
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(
            f"reference must be 'paper' or a CSV file as `table(study, 'csv')` writes it; there is "
            f"no file {str(path)!r}."
        )
    return Reference(path.name, _parse(path.read_text(), str(path)), {})


def _parse(text: str, where: str) -> dict[ReferenceKey, Estimate]:
    try:
        return {
            (row["detector"], row["dataset"], row["method"], row["metric"]): Estimate(
                float(row["mean"]), float(row["std"]), int(row.get("draws") or PAPER_DRAWS)
            )
            for row in csv.DictReader(io.StringIO(text))
        }
    except (KeyError, TypeError, ValueError) as error:
        raise ReconformError(
            f"{where} must be a CSV file with the columns detector, dataset, method, metric, mean "
            f"and std; {error!r}."
        ) from error


def compare_cells(
    cells: Sequence[Cell], reference: Reference, reading: Mapping[str, str] | None = None
) -> Comparison:
    """Set our cells next to those of a reference.

    Parameters
    ----------
    cells : sequence of Cell
        Of at least two draws: one has no standard error.
    reference : Reference
    reading : mapping, optional
        Our method to theirs; by default the reference's own.

    Examples
    --------
    >>> ours = Cell("wbc", "knn", "jab-pooled", Estimate(0.08, 0.09, 25),
    ...             Estimate(0.60, 0.19, 25), target=0.1)
    >>> comparison = compare_cells([ours], read_reference("paper"))
    >>> [(cell.metric, cell.reference_method, round(cell.z, 2)) for cell in comparison.cells]
    [('fdr', 'jab+', 0.08), ('power', 'jab+', -0.7)]
    """
    chosen = reference.reading if reading is None else reading
    if any(cell.fdr.draws < 2 for cell in cells):
        raise ReconformError(
            "a comparison needs standard errors, so at least two draws per cell; got one."
        )
    compared = tuple(_pairs(cells, reference, chosen))
    ours = {(cell.detector, cell.dataset, cell.reference_method, cell.metric) for cell in compared}
    missing = tuple(key for key in reference.estimates if key not in ours)
    return Comparison(reference.name, compared, missing)


def compare(study: Study, reading: Mapping[str, str] | None = None) -> Comparison:
    """Compare a study with the paper's numbers, in standard errors."""
    return compare_cells(study.cells(), read_reference("paper"), reading)


def stored_cells(path: str | os.PathLike[str], *, fdr: float = 0.1) -> list[Cell]:
    """Read back the cells of a table that was written as CSV."""
    found = read_reference(path).estimates
    return [
        Cell(dataset, detector, method, estimate, found[detector, dataset, method, "power"], fdr)
        for (detector, dataset, method, metric), estimate in found.items()
        if metric == "fdr"
    ]


def _pairs(
    cells: Iterable[Cell], reference: Reference, reading: Mapping[str, str]
) -> Iterable[ComparedCell]:
    for cell in cells:
        theirs = reading.get(cell.method) if reading else cell.method
        for metric in METRICS:
            key = (cell.detector, cell.dataset, theirs or "", metric)
            if key in reference.estimates:
                yield ComparedCell(
                    *(cell.detector, cell.dataset, cell.method, key[2], metric),
                    *(getattr(cell, metric), reference.estimates[key]),
                )
