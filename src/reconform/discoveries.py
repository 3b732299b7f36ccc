"""The result: a decision on a batch, and all that explains it."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from .arrays import BoolArray, FloatArray, RankArray
from .errors import ReconformError, unknown_choice
from .extras import extra
from .statistics.bounds import fdp_bound

COLUMNS = ("row", "score", "p-value", "q-value", "anomaly")


@dataclass(frozen=True, eq=False)
class Provenance:
    """Where a decision comes from: enough to explain it, and to make it again.

    Attributes
    ----------
    detector, method : str
        As they print.
    scheme, variant : str
        Of the plan.
    n_reference, n_calibration, n_features : int
        Rows given to `fit`, calibration scores, columns.
    calibration_scores : float array
        c_i, small = strange.
    calibration_fingerprint : str
    feature_names : tuple of str
        Empty if the reference had none.
    random_state : str
        As it prints.
    version : str
        Of reconform.
    one_split : bool
        Whether one model was calibrated on rows it had not seen: split without repeats, prefit.
    """

    detector: str
    method: str
    scheme: str
    variant: str
    n_reference: int
    n_calibration: int
    n_features: int
    calibration_scores: FloatArray = field(repr=False)
    calibration_fingerprint: str
    feature_names: tuple[str, ...]
    random_state: str
    version: str
    one_split: bool = False


@dataclass(frozen=True, eq=False)
class Discoveries:
    """The decision on a batch, and all that explains it.

    Attributes
    ----------
    mask : bool array
        Which rows are discoveries.
    p_values, q_values : float arrays
        Conformal p-values, and the smallest FDR level at which each row would be a discovery.
    scores : float array
        One raw score per row, small = strange; breaks ties among equal p-values.
    p_threshold : float
        The largest p-value that is a discovery; 0.0 if there is none.
    procedure : str
    fdr : float
    guarantee : str
        What holds, in a sentence.
    ranks : int array or None
        Conservative ranks; None for smoothed p-values, which have none.
    index : sequence, optional
        The input's row labels.
    provenance : Provenance, optional
        Detector, method, sizes and seed.
    """

    mask: BoolArray
    p_values: FloatArray
    q_values: FloatArray
    scores: FloatArray
    p_threshold: float
    procedure: str
    fdr: float
    guarantee: str = ""
    ranks: RankArray | None = field(default=None, repr=False)
    index: Any = None
    provenance: Provenance | None = field(default=None, repr=False)

    @property
    def count(self) -> int:
        """Number of discoveries."""
        return int(self.mask.sum())

    def __len__(self) -> int:
        return len(self.mask)

    @property
    def order(self) -> RankArray:
        """Row positions, the strangest first; ties in p are broken by the raw score."""
        return np.lexsort((self.scores, self.p_values))

    def fdp_bound(self, p_threshold: float | None = None, *, confidence: float = 0.95) -> float:
        """Bound the false discovery proportion in this very batch, after looking at it.

        The FDR is an average over repetitions. This is a statement about the one list at hand:
        with probability `confidence`, the share of normal rows among those with p <= `p_threshold`
        is at most the bound, for every threshold at once, so thresholds may be tried out.

        Parameters
        ----------
        p_threshold : float, optional
            On the scale of r / (n + 1); by default that of the discoveries.
        confidence : float, default=0.95

        Returns
        -------
        float
            In [0, 1]; 0 where no row is flagged.

        See Also
        --------
        reconform.statistics.bounds : Construction and reference.
        """
        source = self.provenance
        if source is None or self.ranks is None or not source.one_split:
            raise ReconformError(
                "fdp_bound needs conservative ranks of one split, whose joint law is known; use "
                "method='split' or 'prefit' with ties='conservative'."
            )
        if p_threshold is None:  # the discoveries', on the scale of r / (n + 1)
            largest = int(self.ranks[self.mask].max(initial=0))
            p_threshold = largest / (source.n_calibration + 1)
        return float(fdp_bound(self.ranks, source.n_calibration, p_threshold, confidence))

    def to_frame(self, *, order: str = "strangest") -> Any:
        """Return the rows as a pandas DataFrame under the input's row labels.

        Parameters
        ----------
        order : {"strangest", "input"}
            Sort the strangest first, or keep the order of the input.

        Returns
        -------
        pandas.DataFrame
            Columns ``score``, ``p_value``, ``q_value``, ``anomaly``.
        """
        if order not in ("strangest", "input"):
            raise unknown_choice("order", order, ("strangest", "input"))
        pd = extra("pandas", None, "to_frame()")
        frame = pd.DataFrame(
            {
                "score": self.scores,
                "p_value": self.p_values,
                "q_value": self.q_values,
                "anomaly": self.mask,
            },
            index=self.index,
        )
        return frame if order == "input" else frame.iloc[self.order]

    def _labels(self) -> Any:
        return np.arange(len(self)) if self.index is None else self.index

    def _headline(self) -> str:
        return (
            f"{self.count:,} of {len(self):,} rows flagged at FDR {self.fdr:g} "
            f"({self.procedure.upper()})"
        )

    def _top(self, most: int) -> list[tuple[str, ...]]:
        labels = self._labels()
        return [
            (
                str(labels[i]),
                f"{self.scores[i]:.4g}",
                f"{self.p_values[i]:.4g}",
                f"{self.q_values[i]:.4g}",
                "yes" if self.mask[i] else "",
            )
            for i in self.order[:most]
        ]

    def __repr__(self) -> str:
        lines = [f"Discoveries: {self._headline()}"]
        if len(self):
            table = [COLUMNS, *self._top(5)]
            widths = [max(len(line[c]) for line in table) for c in range(5)]
            lines += [
                "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
                for line in table
            ]
            if len(self) > 5:
                lines.append(f"... and {len(self) - 5:,} more rows, less strange")
        if self.guarantee:
            lines.append(self.guarantee)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{c}</th>" for c in COLUMNS)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>"
            for line in self._top(10)
        )
        more = f"<p>… and {len(self) - 10:,} more rows, less strange</p>" if len(self) > 10 else ""
        return (
            f"<p><strong>{escape(self._headline())}</strong></p><table><thead><tr>{head}</tr>"
            f"</thead><tbody>{body}</tbody></table>{more}<p>{escape(self.guarantee)}</p>"
        )
