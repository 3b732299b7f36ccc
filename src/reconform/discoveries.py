"""The result: a decision, and all that explains it, wherever the rows are.

`Discoveries` holds the rows in memory, `CountedDiscoveries` only the counts of their ranks; what
was judged in a file or on a cluster is the latter with a place where the rows are.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import BoolArray, FloatArray, IndexArray, ObjectArray, RankArray
from .assumption import Compared
from .assumption.verdict import Verdict, of_units, why_nothing
from .detectors.auto import names_of
from .detectors.registry import offered
from .display import (
    details,
    headline,
    histogram_svg,
    html_table,
    in_bins,
    one_line,
    paragraphs,
    percent,
    text_table,
    verdict_html,
)
from .errors import ReconformError, check_count, unknown_choice
from .explain import Explainer, Explanation, Judged
from .extras import installed
from .frames import PACKAGES, make_frame
from .grouping import GroupFound
from .methods import METHODS
from .statistics.bounds import (
    FirstRows,
    WholeList,
    bound_on_first,
    counted_fdp_bound,
    describe_first,
    last_of_first,
)
from .statistics.certificates import Claim
from .statistics.exact import exact_number, usual
from .statistics.fdr import PROCEDURES, Decision, RankCounts
from .statistics.joint import JointRanks
from .statistics.ranks import Candidate, choice_sentence
from .units import OF_EVENTS, ONE_ALARM, UnitRows
from .weights import Weights

# Rows that are described, and shown, where nobody says how many.
USUAL_FIRST = 10
# Of a detector; of longer ones the class is named.
LONGEST_NAME = 60


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
        c_i, small = anomalous.
    calibration_fingerprint : str
    feature_names : tuple of str
        Empty if the reference had none.
    random_state : str
        As it prints.
    version : str
        Of reconform.
    joint : JointRanks, optional
        The joint ranks, where rows were ranked within several groups.
    one_split : bool
        Whether one model was calibrated on rows it had not seen, and on all of these: split without
        repeats, prefit.
    left_out : int
        How many rows were marked as anomalies and left out of the reference.
    name : str
        What people call a detector that rows are prepared for; empty where `detector` says it.
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
    joint: JointRanks | None = field(default=None, repr=False)
    one_split: bool = False
    left_out: int = 0
    name: str = ""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class BaseDiscoveries(ABC):
    """What every list of discoveries says of itself, wherever its rows are.

    Attributes
    ----------
    procedure : str
    fdr : float or None
        The level that was aimed at; None where `false_alarms` was.
    p_threshold : float
        The largest p-value that is a discovery; 0.0 if there is none.
    false_alarms : float or None
        The number of false alarms that may be expected, where it was given.
    top : int or None
        How many rows a person can look at, where that was given; see `first`.
    sample : int array or None
        The positions of the rows that were drawn at random, where that was asked for, in the order
        of the draw.
    claim : Claim
        What holds if the assumption does; `promise` and `guarantee` say what is left of it.
    compared : Compared, optional
        What `verdict` is worked out from.
    provenance : Provenance, optional
        Detector, method, sizes and seed.
    warning : str or None
        A sentence if the reference is too small to flag few anomalies among so many rows.
    choice : tuple of Candidate
        Where a detector was chosen for every row: for each that was tried, how many rows it was
        chosen for, and what it would have flagged alone; `ranked_by` says it in words.
    weights : Weights or None
        Where rows were weighted.
    groups : tuple of GroupFound
        Where rows were ranked within groups: what became of each. A warning names those that are
        too small for their rows to be flagged in this list.
    """

    procedure: str
    fdr: float | None
    p_threshold: float
    false_alarms: float | None = None
    top: int | None = None
    sample: IndexArray | None = None
    claim: Claim = field(default_factory=Claim)
    compared: Compared | None = None
    provenance: Provenance | None = None
    warning: str | None = None
    choice: tuple[Candidate, ...] = ()
    weights: Weights | None = None
    groups: tuple[GroupFound, ...] = ()

    if TYPE_CHECKING:  # a field where only counts were kept

        @property
        def rank_counts(self) -> RankCounts | None:
            """How many rows got each rank, where they have ranks."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of discoveries."""

    @property
    @abstractmethod
    def tested(self) -> int:
        """Number of rows."""

    def __len__(self) -> int:
        return self.tested

    @cached_property
    def verdict(self) -> Verdict:
        """Whether the assumption behind the guarantee looks true for these rows.

        Worked out when it is asked for first, from samples of both files and the ranks.
        """
        compared = self.compared or Compared(None, None)
        again = self.fdr if self.fdr is not None else self._within_alarms
        return compared.verdict(self._checked(), self.count, self.tested, again)

    def _within_alarms(self, counts: RankCounts) -> int:
        """How many rows the same number of false alarms would allow to be flagged."""
        grid, level = usual(counts.n_calibration), exact_number("false_alarms", self.level)
        return PROCEDURES[self.procedure].decide(counts, grid, level, {}).count

    @property
    def level(self) -> float:
        """What the list was made for: a false discovery rate, or a number of false alarms."""
        level = self.fdr if self.false_alarms is None else self.false_alarms
        assert level is not None  # a rule has one of them
        return level

    @property
    def promise(self) -> str:
        """What share of the flagged rows is false, and on what condition, in one plain sentence.

        Empty where no row is flagged, and where the assumption looks broken.
        """
        if not self.count or self.verdict.word == "broken":
            return ""
        level = f"{self.level:g}" if self.fdr is None else percent(self.fdr)
        return self.spoken(self.claim.promise(level)) + self._of_events

    @property
    def guarantee(self) -> str:
        """What holds, in full; nothing, where the assumption looks broken."""
        return self.spoken(self.verdict.promise(self.claim.full)) + self._of_events

    @property
    def _of_windows(self) -> bool:
        return self.compared is not None and self.compared.units == "window"

    @property
    def _of_events(self) -> str:
        """What a number of false windows says of events: every false one has a false window."""
        if self.fdr is not None or not self._of_windows or self.verdict.word == "broken":
            return ""
        return f" {OF_EVENTS}"

    @property
    def why_nothing(self) -> str | None:
        """Why no row is flagged, the best supported reason; None where some are."""
        if self.count or not self.tested:
            return None
        counts, source = self._checked(), self.provenance
        judge = "method" if source is not None and METHODS[source.scheme].learns else "detector"
        judge = "" if self.choice else judge
        ranks = None if counts is None else counts.counts
        said = self.spoken(why_nothing(ranks, self.verdict, self.warning, judge))
        few = self.warning is not None and said.startswith(self.spoken(self.warning))
        return f"{said} {ONE_ALARM}" if few and self._of_windows else said

    @property
    def ranked_by(self) -> str:
        """Which detector ranked the rows, or which ones were chosen for them, in a sentence."""
        if self.choice or self.provenance is None:
            return choice_sentence(self.choice)
        if METHODS[self.provenance.scheme].learns:
            return "Ranked by a classifier that was trained on reference and new rows."
        name = self.provenance.name or one_line(self.provenance.detector).strip("'")
        if name == "auto":  # of weighted rows, each judged by itself
            return "Ranked by the first of the detectors that there are to choose from."
        return f"Ranked by {name if len(name) <= LONGEST_NAME else name.split('(')[0]}."

    @property
    def not_tried(self) -> tuple[str, ...]:
        """Detectors that ``"auto"`` leaves out on a split, or for very many rows."""
        detector = "" if self.provenance is None else self.provenance.detector
        if not self.choice or "auto" not in detector.lower() or "[" in detector:
            return ()
        tried = {one.name for one in self.choice}
        return tuple(name for name in names_of(offered(augments=True)) if name not in tried)

    @property
    def headline(self) -> str:
        """How many rows are flagged; and the verdict, where it takes the promise away."""
        broken, alarms = self.verdict.word == "broken", self.fdr is None
        said = headline(self.count, self.tested, float(self.level), alarms=alarms, broken=broken)
        return self.spoken(said)

    def spoken(self, text: str) -> str:
        """Say of units what was said of rows, where units were judged."""
        units = "" if self.compared is None else self.compared.units
        return of_units(text, units) if units else text

    def _checked(self) -> RankCounts | None:
        """The counts that the checks look at."""
        counts, source = self.rank_counts, self.provenance
        if counts is None or source is None or source.joint is None:
            return counts
        return source.joint.on_one_grid(counts.counts)

    def fdp_bound(self, p_threshold: float | None = None, *, confidence: float = 0.95) -> float:
        """Bound the false discovery proportion in this very batch, after looking at it.

        The FDR is an average over repetitions. This is a statement about this one list:
        with probability `confidence`, the share of normal rows among those with p <= `p_threshold`
        is at most the bound, for every threshold at once, so thresholds may be tried out. It asks
        that calibration rows and normal new rows be exchangeable (for batch and learned: given the
        anomalies). Like the guarantee it is withdrawn, here by an error, where the verdict is
        broken.

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
        source, counts = self.provenance, self.rank_counts
        if source is not None and source.joint is not None:
            raise ReconformError(
                "fdp_bound needs ranks in one calibration set, and rows were ranked within groups; "
                "judge each group by a detector of its own."
            )
        if source is not None and source.left_out:
            raise ReconformError(
                f"fdp_bound is not proven where marked rows were left out of the reference, and "
                f"{source.left_out:,} were."
            )
        if source is None or counts is None or not source.one_split:
            raise ReconformError(
                "fdp_bound can be had for one split only; use method='split' or 'prefit', with "
                "ties='conservative'."
            )
        if self.verdict.word == "broken":
            raise ReconformError(
                "fdp_bound needs normal new rows that come from the same process as the reference "
                "rows, and this looks broken; `verdict` says why."
            )
        if p_threshold is None:  # the discoveries', on the scale of r / (n + 1)
            p_threshold = self._largest_rank() / (source.n_calibration + 1)
        return float(counted_fdp_bound(counts.counts, p_threshold, confidence))

    @abstractmethod
    def _largest_rank(self) -> int:
        """The largest rank of a discovery; 0 if there is none."""

    def first(self, rows: int | None = None) -> FirstRows:
        """Say what is known of the rows that come first, flagged or not.

        The order is that of the decision: the flagged rows, then the others; within both by
        p-value, ties by raw score, and then in the order of the input.

        Parameters
        ----------
        rows : int, optional
            How many; by default the `top` that was given, or 10.

        Returns
        -------
        FirstRows
            An estimate of the false ones, for split and prefit also a bound with confidence, and
            a sentence. `positions` where the rows are in memory.
        """
        wanted = check_count("rows", self.top or USUAL_FIRST if rows is None else rows, least=1)
        return self._first(min(wanted, self.tested))

    @abstractmethod
    def _first(self, rows: int) -> FirstRows:
        """`first`, for at most as many rows as there are."""

    def _describe(
        self,
        rows: int,
        flagged: int,
        largest_p: float,
        ranks: tuple[int, int] | None,
        positions: IndexArray | None = None,
    ) -> FirstRows:
        """Describe first rows; `ranks` are the largest of them, and how many are smaller."""
        source, counts = self.provenance, self.rank_counts
        one_split = source is not None and source.one_split and counts is not None
        broken = self.verdict.word == "broken"
        bound = None
        if one_split and ranks is not None and rows and not broken:
            assert counts is not None
            bound = bound_on_first(counts, *ranks, rows)
        whole = WholeList(
            self.tested,
            "false discovery rate" if self.fdr is not None else "number of false alarms",
            broken=broken,
        )
        return describe_first(rows, flagged, largest_p, whole, bound=bound, positions=positions)

    def explain(self, row: Any = None, *, position: int | None = None) -> Explanation:
        """Explain why a row stands out, or does not; see `Explanation`.

        Parameters
        ----------
        row : object, optional
            The row as the list shows it: by its label, where the input has labels, otherwise by its
            position, from 0. By default the row that comes first.
        position : int, optional
            Instead of `row`: its position in the input, from 0.

        Returns
        -------
        Explanation
            Its unusual values and the range that is typical, the nearest normal rows, and which
            features carry the score of the detector that ranked it. A description, no proof.

        Notes
        -----
        The rows that were judged are looked at again: an array that was changed meanwhile gives
        the explanation of another row. A list that was pickled has no rows any more.

        Examples
        --------
        >>> import numpy as np
        >>> from reconform import ConformalDetector
        >>> rng = np.random.default_rng(0)
        >>> cad = ConformalDetector("knn", "full").fit(rng.normal(size=(200, 2)))
        >>> told = cad.discover([[0.0, 0.1], [9.0, 0.2]], fdr=0.2).explain(1)
        >>> told.headline
        'Row 1: flagged (p = 0.004975, q = 0.00995), ranked by knn'
        >>> [(one.name, one.typical, one.place) for one in told.features]
        [('feature 0', '-1.533 to 1.48, median -0.1318', 'above all 200')]
        """
        raise ReconformError(
            "only the ranks of these rows were counted, and the rows were not kept. Give a "
            "row to `explain` of the detector, which judges it by itself: cad.explain(row)."
        )

    def _shown(self) -> list[str]:
        """Lines about the rows, for `repr`."""
        return []

    @abstractmethod
    def _histogram(self) -> tuple[FloatArray, FloatArray]:
        """How many rows have a p-value in every bin from 0 to 1, and how many are flagged."""

    def _rows_html(self) -> str:
        """The rows that come first, as HTML, where they are here."""
        return paragraphs(self._shown())

    @property
    def _reason(self) -> str:
        """Why nothing is flagged, unless the verdict says it; else which groups are small."""
        reason = self.why_nothing or self.spoken((self.groups and self.warning) or "")
        verdict = self.verdict
        return "" if verdict.word == "broken" or reason in map(str, verdict.findings) else reason

    def _repr_html_(self) -> str:
        if not self.tested:
            return paragraphs([self.headline])
        first = self.first().sentence if self.top is not None else None
        return (
            f'<p style="font-size:1.15em"><strong>{escape(self.headline)}</strong></p>'
            + paragraphs([self.promise])
            + verdict_html(self.verdict)
            + histogram_svg(*self._histogram())
            + self._rows_html()
            + paragraphs([first, self._reason, self.ranked_by])
            + details("What is promised exactly", [self.guarantee])
        )

    def __repr__(self) -> str:
        if not self.tested:
            return f"{type(self).__name__}: {self.headline}"
        first = self.first().sentence if self.top is not None else ""
        checks, more = str(self.verdict), [self._reason, first, *self._shown()]
        said = [self.promise, checks, self.ranked_by, *more]
        return "\n".join([f"{type(self).__name__}: {self.headline}", *filter(None, said)])


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class CountedDiscoveries(BaseDiscoveries):
    """The decision on rows of which only the ranks were counted.

    Attributes
    ----------
    decision : Decision
        The rule on ranks, from the counts of all rows.
    rank_counts : RankCounts
        How many rows got each rank: the histogram of p-values, and every other level's decision.
    provenance : Provenance
        Always there.
    certified : Discoveries or None
        The list, where it was certified by conditional calibration; `decision` is then that of
        the plain list at the same level.
    """

    provenance: Provenance
    decision: Decision
    rank_counts: RankCounts
    certified: Discoveries | None = None

    @property
    def count(self) -> int:
        """Number of discoveries."""
        return self.decision.count if self.certified is None else self.certified.count

    @property
    def q_name(self) -> str:
        """What q-values are called: "q", or "nominal q" beside a certified list."""
        return "q" if self.certified is None else self.certified.q_name

    @property
    def tested(self) -> int:
        """Number of rows."""
        return self.decision.tested

    def _largest_rank(self) -> int:
        if self.certified is not None:
            return self.certified._largest_rank()
        return self.decision.rank_threshold

    def _histogram(self) -> tuple[FloatArray, FloatArray]:
        if self.certified is not None:
            return self.certified._histogram()
        counts, table = self.rank_counts.counts, self.decision.grid.table
        flagged = np.where(np.arange(len(counts)) <= self.decision.rank_threshold, counts, 0)
        return in_bins(table, counts), in_bins(table, flagged)

    def _first(self, rows: int) -> FirstRows:
        if self.certified is not None:
            return self.certified._first(rows)
        grid = self.decision.grid
        last, below = last_of_first(grid.ordered(self.rank_counts), rows)
        largest_p = float(grid.in_order.table[last])
        return self._describe(rows, min(rows, self.count), largest_p, (last, below))


@dataclass(frozen=True, eq=False, repr=False)
class Discoveries(BaseDiscoveries):
    """The decision on a batch in memory, and all that explains it.

    Attributes
    ----------
    mask : bool array
        Which rows are discoveries.
    p_values, q_values : float arrays
        Conformal p-values, and the smallest FDR level at which each row would be a discovery (with
        `false_alarms`, the smallest number of them: p times the number of rows). A certified list
        is proven at its own level only: beside it, q-values are nominal, those of plain
        Benjamini-Hochberg, and shown under that name.
    scores : float array
        One raw score per row, small = anomalous; breaks ties among equal p-values.
    procedure, fdr, false_alarms, p_threshold, claim, compared, provenance, warning
        What was asked, what holds and where it comes from, as in every list of discoveries.
    ranks : int array or None
        Conservative ranks; None for smoothed p-values, which have none.
    index : sequence, optional
        The input's row labels.
    library : str, optional
        ``"pandas"``, ``"polars"`` or ``"pyarrow"``: whose frame the input was; None for an array.
    decision : Decision or None
        The rule on ranks, where their counts decided; None for smoothed p-values and e-values.
    e_values : float array or None
        Of a list that was certified by conditional calibration (``validity="proven"``): the
        evidence against each row, at this level. None for all other lists.
    plain_mask : bool array or None
        For a certified list, the rows that the procedure finds at the same level without a
        certificate.
    explainer : Explainer or None
        What `explain` asks; it holds on to the rows and the detector, and is not pickled.
    row_groups : array of str, or None
        The group of every row, where the detector was fitted with groups; `groups` sums them up.
    units : UnitRows or None
        Where units were judged, their rows: ``units.within(name)`` are those that stand out.
    """

    mask: BoolArray
    p_values: FloatArray
    q_values: FloatArray
    scores: FloatArray
    ranks: RankArray | None = field(default=None, kw_only=True)
    index: Any = field(default=None, kw_only=True)
    library: str | None = field(default=None, kw_only=True)
    decision: Decision | None = field(default=None, kw_only=True)
    e_values: FloatArray | None = field(default=None, kw_only=True)
    plain_mask: BoolArray | None = field(default=None, kw_only=True)
    explainer: Explainer | None = field(default=None, kw_only=True)
    row_groups: ObjectArray | None = field(default=None, kw_only=True)
    units: UnitRows | None = field(default=None, kw_only=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "explainer": None}

    @property
    def events(self) -> list[Any]:
        """Flagged windows of a time series that are neighbours, as one event each."""
        return [] if self.units is None else self.units.events(self.mask, self.p_values)

    @property
    def certified(self) -> bool:
        """Whether the list was certified by conditional calibration."""
        return self.e_values is not None

    @property
    def q_name(self) -> str:
        """What q-values are called: "q", or "nominal q" beside a certified list."""
        return "nominal q" if self.certified else "q"

    @property
    def count(self) -> int:
        """Number of discoveries."""
        return int(self.mask.sum())

    @property
    def tested(self) -> int:
        """Number of rows."""
        return len(self.mask)

    @cached_property
    def rank_counts(self) -> RankCounts | None:
        """How many rows got each rank; None for smoothed and weighted p-values."""
        source = self.provenance
        if self.ranks is None or source is None:
            return None
        highest = source.n_calibration + 1 if source.joint is None else source.joint.highest
        return RankCounts(highest - 1, source.calibration_fingerprint).add(self.ranks)

    def _checked(self) -> RankCounts | None:
        if self.ranks is not None or self.provenance is None:
            return super()._checked()
        if self.provenance.joint is not None:
            return None
        # A smoothed p-value is that of a rank among ties that was drawn.
        counts = RankCounts(self.provenance.n_calibration, "smoothed")
        drawn = np.ceil(self.p_values * (counts.n_calibration + 1)).astype(np.int64)
        return counts.add(np.clip(drawn, 1, counts.n_calibration + 1))

    def _largest_rank(self) -> int:
        return 0 if self.ranks is None else int(self.ranks[self.mask].max(initial=0))

    @property
    def order(self) -> RankArray:
        """Row positions in the order of the decision: the flagged rows come first.

        Within both parts by q-value and p-value; ties are broken by the raw score.
        """
        return np.lexsort((self.scores, self.p_values, self.q_values, ~self.mask))

    def _first(self, rows: int) -> FirstRows:
        positions = self.order[:rows]
        flagged = int(self.mask[positions].sum())
        largest_p = float(self.p_values[positions].max(initial=0.0))
        ranks = None
        if self.ranks is not None and rows:
            these = self.ranks[positions]
            ranks = int(these.max()), int((these < these.max()).sum())
        return self._describe(rows, flagged, largest_p, ranks, positions)

    def explain(self, row: Any = None, *, position: int | None = None) -> Explanation:
        """Explain why a row stands out, or does not; see `BaseDiscoveries.explain`."""
        return self.explain_several([self.position_of(row, position)])[0]

    def explain_several(self, positions: Sequence[int]) -> list[Explanation]:
        """Explain rows by their positions, from 0; see `explain`."""
        if self.explainer is None:
            raise ReconformError(
                "these rows were not kept, so they cannot be explained: the list was "
                "pickled, or the model that made it was saved without reference rows. "
                "Explain rows where they are judged."
            )
        places = [self.explainer.place(position) for position in positions]
        if None in places:
            position = positions[places.index(None)]
            raise ReconformError(
                f"the row at position {position:,} was not kept: of many rows only those that come "
                "first are. Judge it by itself: cad.explain(row)."
            )
        here = [place for place in places if place is not None]
        return self.explainer.explain(here, [self._judged(position) for position in positions])

    def _judged(self, i: int) -> Judged:
        q_value = (self.q_name, float(self.q_values[i]))
        label = str(self._labels()[i])
        return Judged(label, bool(self.mask[i]), float(self.p_values[i]), q_value)

    def position_of(self, row: Any = None, position: int | None = None) -> int:
        """Find a row by its label, or check its position; by default the row that comes first."""
        if row is not None and position is not None:
            raise ReconformError("`row` and `position` both say which row: give one of them.")
        if not self.tested:
            raise ReconformError("there are no rows to explain.")
        if row is None and position is None:
            return int(self.order[0])
        if row is None or self.index is None:
            return _checked_position(
                "row" if position is None else "position",
                row if position is None else position,
                self.tested,
            )
        return _position_of_label(self.index, row)

    def to_frame(self, *, order: str = "anomalous", library: str | None = None) -> Any:
        """Return the rows as a frame of the library that the input was a frame of.

        Parameters
        ----------
        order : {"anomalous", "input"}
            Sort the most anomalous first, or keep the order of the input.
        library : {"pandas", "polars", "pyarrow"}, optional
            Another library. By default that of the input; for an array pandas, or Arrow where
            pandas is not installed.

        Returns
        -------
        pandas.DataFrame, polars.DataFrame or pyarrow.Table
            Columns ``score``, ``p_value``, ``q_value`` (beside a certified list
            ``nominal_q_value``), ``anomaly``; with groups also ``group``, which comes first. In
            pandas the index is the input's row labels, or the positions in the input, from 0; the
            others have no index, and a first column ``row`` in its place.

        Examples
        --------
        >>> import numpy as np
        >>> from reconform import ConformalDetector
        >>> X = np.random.default_rng(0).normal(size=(100, 2))
        >>> cad = ConformalDetector("knn", "jackknife+").fit(X)
        >>> cad.discover([[0.0, 0.0], [9.0, 9.0]]).to_frame(library="pyarrow").column_names
        ['row', 'score', 'p_value', 'q_value', 'anomaly']
        """
        if order not in ("anomalous", "input"):
            raise unknown_choice("order", order, ("anomalous", "input"))
        if library not in (None, *PACKAGES):
            raise unknown_choice("library", library, PACKAGES)
        made = library or self.library or installed("pandas", otherwise="pyarrow")
        rows = slice(None) if order == "input" else self.order
        columns = {
            "score": self.scores[rows],
            "p_value": self.p_values[rows],
            f"{self.q_name.replace(' ', '_')}_value": self.q_values[rows],
            "anomaly": self.mask[rows],
        }
        if self.row_groups is not None:
            columns = {"group": np.asarray(self.row_groups, dtype=str)[rows], **columns}
        labels = self._labels()
        if made == "pandas":
            if isinstance(labels, list):  # identifiers in a file; several columns make tuples
                return make_frame(made, columns, [labels[i] for i in np.arange(len(self))[rows]])
            return make_frame(made, columns, labels[rows])
        labels = np.asarray(labels)
        if labels.dtype == object:
            labels = np.array([str(label) for label in labels])
        return make_frame(made, {"row": labels[rows], **columns})

    def _labels(self) -> Any:
        return np.arange(len(self)) if self.index is None else self.index

    def _columns(self) -> tuple[str, ...]:
        return ("row", "score", "p-value", f"{self.q_name}-value", "anomaly")

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

    def _shown(self) -> list[str]:
        if self.top is None:
            return []
        return text_table([self._columns(), *self._top(self.top)], right=True)

    def _histogram(self) -> tuple[FloatArray, FloatArray]:
        return in_bins(self.p_values), in_bins(self.p_values[self.mask])

    def _rows_html(self) -> str:
        more = len(self) - USUAL_FIRST
        left = f"<p>… and {more:,} more rows, less anomalous</p>" if more > 0 else ""
        return html_table(self._columns(), self._top(USUAL_FIRST)) + left


def _checked_position(name: str, given: Any, rows: int) -> int:
    whole = isinstance(given, numbers.Integral) and not isinstance(given, bool)
    if not whole or not 0 <= int(given) < rows:
        raise ReconformError(
            f"`{name}` must be the position of a row, from 0 to {rows - 1:,}; got {given!r}."
        )
    return int(given)


def _position_of_label(index: Any, row: Any) -> int:
    """Find the one row that has a label, as it is or as it prints."""
    exact = [i for i, label in enumerate(index) if _equal(label, row)]
    found = exact or [i for i, label in enumerate(index) if str(label) == row]
    if len(found) == 1:
        return found[0]
    problem = f"{len(found):,} rows have it" if found else "no row has it"
    raise ReconformError(
        f"`row` must be the label of one row, and {problem}: {row!r}. Give a label, or `position`, "
        "which counts from 0."
    )


def _equal(label: Any, row: Any) -> bool:
    try:
        return bool(label == row)
    except (TypeError, ValueError):  # arrays, and what cannot be compared
        return False
