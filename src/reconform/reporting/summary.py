"""The numbers behind the page and the charts: exact counts over all rows, small whatever m is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import FloatArray, RankArray
from ..discoveries import Discoveries
from ..errors import ReconformError
from ..statistics.bounds import false_discovery_table
from ..statistics.certificates import Claim
from ..statistics.fdr import PROCEDURES

# Where the slider can stand. k / 100 is the very float that the decimal is read as.
LEVELS = (0.001, 0.002, 0.005, *(k / 100 for k in range(1, 51)))
CONFIDENCE = 0.95

P_BINS = 20
LARGEST_SCORE = 1e150
SCORE_BINS = 40
# The curve of sorted p-values is thinned out beyond this many rows.
CURVE_HEAD, CURVE_TAIL = 200, 300


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts in the bins (edges[b], edges[b + 1]].

    Attributes
    ----------
    edges : float array of shape (bins + 1,)
    counts : int array of shape (bins,)
        All new rows.
    flagged : int array of shape (levels, bins)
        Those that are discoveries at each level.
    """

    edges: FloatArray
    counts: RankArray
    flagged: RankArray

    @classmethod
    def of(cls, edges: FloatArray, values: FloatArray, lists: list[RankArray]) -> Histogram:
        """Count values; what lies outside goes into the outer bins."""
        bins, size = np.searchsorted(edges[1:-1], values, side="left"), len(edges) - 1
        flagged = np.array([np.bincount(bins[rows], minlength=size) for rows in lists])
        return cls(edges, np.bincount(bins, minlength=size), flagged)

    def plain(self) -> dict[str, Any]:
        """What a chart is drawn from."""
        edges = [float(f"{edge:.6g}") for edge in self.edges]
        return {"edges": edges, "counts": self.counts.tolist(), "flagged": self.flagged.tolist()}


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of new rows and of the reference, in bins of equal width on a stretched scale.

    Some detectors score anomalies a hundred times further out than ordinary ones. On the scale
    asinh((score - centre) / spread), linear inside and logarithmic outside, both can be seen.

    Attributes
    ----------
    histogram : Histogram
        Its edges are on the scale.
    reference : int array of shape (bins,), or None
        Calibration scores.
    centre, spread : float
        Of the scale.
    """

    histogram: Histogram
    reference: RankArray | None
    centre: float
    spread: float


@dataclass(frozen=True, eq=False)
class Summary:
    """What the page and the charts show, computed over all rows.

    Attributes
    ----------
    rows : int
        m.
    counts_alarms : bool
        Whether the level is a number of false alarms, and not a false discovery rate.
    claim : Claim
        Of the decision.
    certified : bool
        Whether the decision is a certified list; those at other levels are nominal then.
    levels, counts : arrays of shape (levels,)
        How many rows are discoveries at each level.
    chosen : int
        Which of the levels is the one of the decision.
    false_bounds : int array of shape (levels,), or None
        With `CONFIDENCE`, at most so many of each list are false; where that is known.
    order : int array of shape (rows,)
        Positions, the most unusual first: the discoveries come first.
    plain : int array of shape (rows,)
        The same by q-value: the discoveries at any other level come first.
    line : float or None
        The line of Benjamini-Hochberg is level * k / line; None for other procedures.
    p_histogram : Histogram
    scores : Scores
    curve : tuple of arrays
        Some k, and the k-th smallest p-value.
    """

    rows: int
    counts_alarms: bool
    claim: Claim
    certified: bool
    levels: FloatArray
    counts: RankArray
    chosen: int
    false_bounds: RankArray | None
    order: RankArray
    plain: RankArray
    line: float | None
    p_histogram: Histogram
    scores: Scores
    curve: tuple[RankArray, FloatArray]


def summarise(found: Discoveries, levels: Sequence[float] = LEVELS) -> Summary:
    """Count everything that is shown.

    Parameters
    ----------
    found : Discoveries
    levels : sequence of float
        FDR levels to count at; that of the decision is added. A certified list is known at its
        own level only: at others q-values decide, which are nominal. A number of false alarms is
        no such level.

    Returns
    -------
    Summary

    Examples
    --------
    >>> from reconform.cli.detect import run_demo
    >>> found = run_demo()[0]
    >>> summary = summarise(found, [0.05, 0.2])
    >>> summary.levels, summary.counts
    (array([0.05, 0.1 , 0.2 ]), array([38, 39, 48]))
    """
    if not len(found):
        raise ReconformError("found has no rows; there is nothing to show.")
    grid = np.unique([found.level] if found.fdr is None else [*levels, found.level])
    chosen = int(np.searchsorted(grid, found.level))
    # A row is a discovery at level q iff its q-value is at most q. The mask was decided in exact
    # fractions, so at the level of `found` the mask decides, not a q-value that was rounded.
    order = found.order
    plain = np.lexsort((found.scores, found.p_values, found.q_values))
    counts = np.searchsorted(found.q_values[plain], grid, side="right")
    counts[chosen] = found.count
    lists = [plain[:count] for count in counts]
    lists[chosen] = np.flatnonzero(found.mask)
    provenance = found.provenance
    n = provenance.n_calibration if provenance else None
    # Bins that end on the grid of p-values, so that normal rows fill them in equal parts.
    bins = P_BINS if n is None else n + 1
    cuts = np.rint(np.linspace(0, bins, min(P_BINS, bins) + 1))
    ascending = np.sort(found.p_values)
    k = _thin(len(found), counts)
    return Summary(
        rows=len(found),
        counts_alarms=found.fdr is None,
        claim=found.claim,
        certified=found.certified,
        levels=grid,
        counts=counts,
        chosen=chosen,
        false_bounds=_false_bounds(found, order, counts),
        order=order,
        plain=plain,
        line=None if found.certified or found.procedure != "bh" else float(len(found)),
        p_histogram=Histogram.of(cuts / bins, found.p_values, lists),
        scores=_scores(found, lists),
        curve=(k, ascending[k - 1]),
    )


def _false_bounds(found: Discoveries, order: RankArray, counts: RankArray) -> RankArray | None:
    """The certificate on each list, simultaneously; there is none outside split and prefit."""
    provenance = found.provenance
    if provenance is None or not provenance.one_split:
        return None
    if found.ranks is None or not PROCEDURES[found.procedure].counts:
        return None
    by_rank = np.bincount(found.ranks, minlength=provenance.n_calibration + 2)
    table = false_discovery_table(by_rank, CONFIDENCE)
    # A list holds all rows up to the rank of its last one.
    last = np.where(counts > 0, found.ranks[order][np.maximum(counts, 1) - 1], 0)
    return np.asarray(np.minimum(table[last], counts))


def _thin(m: int, counts: RankArray) -> RankArray:
    """Pick k from 1 .. m: all of the first, fewer later, and wherever a decision falls."""
    k = np.concatenate(
        [
            np.arange(1, min(m, CURVE_HEAD) + 1),
            np.geomspace(1, m, CURVE_TAIL),
            np.linspace(1, m, CURVE_TAIL),
            counts,
            counts + 1,
        ]
    )
    k = np.unique(np.rint(k).astype(np.int64))
    return k[(k >= 1) & (k <= m)]


def _scores(found: Discoveries, lists: list[RankArray]) -> Scores:
    known = found.provenance.calibration_scores if found.provenance else np.empty(0)
    everything = np.concatenate([found.scores, known])
    # Beyond these, differences and ratios of scores overflow.
    finite = np.clip(everything[np.isfinite(everything)], -LARGEST_SCORE, LARGEST_SCORE)
    low, centre, high = np.quantile(finite, [0.25, 0.5, 0.75]) if len(finite) else (0.0, 0.0, 0.0)
    lowest, highest = finite.min(initial=centre), finite.max(initial=centre)
    spread = float(high - low) or float(highest - lowest) or 1.0

    def stretched(scores: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            ratios = (np.clip(scores, -LARGEST_SCORE, LARGEST_SCORE) - centre) / spread
        return np.arcsinh(np.clip(ratios, -(LARGEST_SCORE**2), LARGEST_SCORE**2))

    start, stop = stretched(np.array([lowest, highest])).tolist()
    if start == stop:
        start, stop = start - 0.5, stop + 0.5
    edges = np.linspace(start, stop, SCORE_BINS + 1)
    reference = Histogram.of(edges, stretched(known), []).counts if len(known) else None
    new = Histogram.of(edges, stretched(found.scores), lists)
    return Scores(new, reference, float(centre), spread)
