"""Decisions on rows as they arrive: by a false-alarm budget, in windows, by decaying memory."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np

from ..arrays import BoolArray, FloatArray
from ..detector import ConformalDetector
from ..errors import ReconformError, check_count, unknown_choice
from ..extras import extra
from ..rule import Rule, RuleOptions, false_alarms_in_words
from ..statistics.certificates import Claim
from ..statistics.exact import Grid, exact_fraction
from ..statistics.fdr import RankCounts
from ..statistics.thresholds import rows_needed, tolerance_order
from .state import Content, DecisionStream, StreamDecisions

# The confidence of a certificate where none was asked for.
USUAL_CONFIDENCE = 0.9


class OutlookWarning(UserWarning):
    """Said before the first row: what can be found with this reference."""


class RowDecisions(DecisionStream):
    """Streams that decide about every row when it arrives."""

    _grid: Grid

    def update(self, X: Any, *, batch: int | None = None) -> StreamDecisions:
        """Decide about the next rows, for good.

        Parameters
        ----------
        X : array-like or frame of shape (m, d), dict, or list of dicts
        batch : int, optional
            The number of the batch, from 0. A batch that was decided before gets the same
            decisions again. Without a number, X is taken for new rows.

        Returns
        -------
        StreamDecisions
        """
        return self._decisions(self._submit(self.given(X), batch))[0]

    def _decisions(self, record: Content) -> list[StreamDecisions]:
        mask = np.isin(np.arange(len(record["given"])), record["found"]["flagged"])
        p_values = self._grid.values(np.array(record["given"], dtype=np.int64))
        level = self._level(p_values, mask)
        place = {"batch": record["batch"], "row": record["row"], "guarantee": self.guarantee}
        return [StreamDecisions(mask=mask, p_values=p_values, level=level, **place)]

    def _level(self, p_values: FloatArray, mask: BoolArray) -> float:
        """The largest p-value that is flagged."""
        return float(p_values[mask].max(initial=0.0))


class FalseAlarmBudget(RowDecisions):
    """Flag rows as they arrive, with at most so many false alarms in so many rows.

    One cut-off for all rows: nothing is used up, so a stream never goes blind, and a row is decided
    when it arrives, whatever came before. The plain choice for streams.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted, with ``ties="conservative"``. Rows are judged one by one, as by `p_values`: with
        ``detector="auto"`` by the first candidate.
    false_alarms : float, int or Fraction, default=1
        How many false alarms may be expected ...
    per : int, default=1000
        ... in so many rows.
    confidence : float, None or "auto", default="auto"
        With a number, for split and prefit: a cut-off with a certificate. For all but a share
        1 - `confidence` of calibration sets the expected number of false alarms *given the
        calibration set* is within the budget. With None, p-values of at most `false_alarms` / `per`
        are flagged: the expected number is within the budget on average over references, and some
        references have more. ``"auto"`` is 0.9 where there are enough calibration rows for a
        certificate, and None otherwise; `guarantee` says which it is.
    validity : {"nominal", "proven"}, default="nominal"
        The p-values that are used without a certificate, as in `ConformalDetector.p_values`.
    journal : str or Path, optional
        Write the decisions of every batch to this file before they are returned. If the file
        exists, go on where it ends.

    Attributes
    ----------
    guarantee : str
        What holds, in words.
    outlook : str
        Which rows are flagged, in words.
    batches, rows, discoveries : int
        How many there were so far; `batches` is also the number of the next batch.

    Warns
    -----
    UserWarning
        At the start, if there are too few calibration rows for any row to be flagged.

    See Also
    --------
    MicroBatches : A list for every window, at a false discovery rate.
    ConformalDetector.threshold : The cut-off with a certificate, as a raw score.

    Notes
    -----
    *With a certificate.* A row is flagged if its score is strictly below the k-th smallest of n
    calibration scores, that is if its rank is at most k. Given the calibration set, a normal row is
    flagged with probability at most U_(k), the k-th smallest of n uniforms, and k is the largest
    number with P(U_(k) > false_alarms / per) <= 1 - confidence. *Without.* P(p <= v/m) <= v/m for a
    normal row, and there are at most m of them. Expectations add up, so new rows may depend on
    each other; the calibration rows may not: a reference of neighbours in time breaks the promise.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> from reconform.stream import FalseAlarmBudget
    >>> rng = np.random.default_rng(0)
    >>> cad = ConformalDetector("knn", "split", random_state=0).fit(rng.normal(size=(10_000, 2)))
    >>> budget = FalseAlarmBudget(cad, false_alarms=1, per=1_000)
    >>> print(budget.outlook)
    A row is flagged if fewer than 2 of 5,000 calibration rows are as unusual: p-values of at most
    0.0004.
    >>> budget.update([[0.3, 0.1], [9.0, 9.0]]).mask
    array([False,  True])
    """

    kind: ClassVar[str] = "false-alarm budget"

    def __init__(
        self,
        cad: ConformalDetector,
        false_alarms: float | Fraction = 1,
        per: int = 1_000,
        *,
        confidence: float | str | None = "auto",
        validity: str = "nominal",
        journal: str | Path | None = None,
    ) -> None:
        super().__init__(cad)
        self._rule = Rule(false_alarms=false_alarms, validity=validity)
        self._grid = self._rule.counting_grid(cad, "a stream", "alone")
        self._per = check_count("per", per, least=1)
        self._share = self._rule.level / self._per
        if self._share >= 1:
            raise ReconformError(
                f"`false_alarms={false_alarms}` in {self._per:,} rows would let every row be "
                "flagged; give fewer, or a larger `per`."
            )
        self.discoveries = 0
        self.confidence = self._choose_confidence(confidence)
        self._last_rank = (
            self._last_within() if self.confidence is None else self._certified(self.confidence)
        )
        self.guarantee = self._promise()
        level = str(self._rule.level)
        told = {"false_alarms": level, "per": self._per, "confidence": confidence}
        self._begin(journal, {**told, "validity": validity})

    # --- the cut-off ---

    @property
    def _one_model(self) -> bool:
        return self.cad.plan_.one_model

    def _choose_confidence(self, asked: float | str | None) -> float | None:
        if asked is None:
            return None
        if isinstance(asked, str):
            if asked != "auto":
                raise unknown_choice("confidence", asked, ["auto"])
            usable = self._one_model and self._rule.validity == "nominal"
            return USUAL_CONFIDENCE if usable and self._certified(USUAL_CONFIDENCE) else None
        exact_fraction("confidence", asked)
        if not self._one_model:
            raise ReconformError(
                f"`confidence={asked}` needs one model and calibration rows it has not seen; use "
                f"`method='split'` or 'prefit' instead of {self.cad.method!r}, or leave "
                "`confidence` out: the budget then holds on average over references."
            )
        if self._rule.validity != "nominal":
            raise ReconformError(
                "`confidence` makes a cut-off that is proven as it is; leave out `validity`."
            )
        return float(asked)

    def _certified(self, confidence: float) -> int:
        return tolerance_order(self.cad.n_calibration_, self._share, confidence)

    def _last_within(self) -> int:
        """The largest rank whose p-value is at most false_alarms / per."""
        limit = self._share.numerator * self._grid.denominator // self._share.denominator
        return int(np.searchsorted(self._grid.numerators[1:], limit, side="right"))

    # --- what is said ---

    @property
    def _budget(self) -> str:
        return f"{false_alarms_in_words(self._rule.level)} in any {self._per:,} rows"

    def _promise(self) -> str:
        if self.confidence is not None:
            said = (
                f"At most {self._budget} expected, given the calibration set: proven for a share "
                f"{self.confidence:g} of calibration sets, if their rows are independent draws and "
                "each normal new row is one more."
            )
            return self.cad.guarantee_alone.after_cleaning(Claim(said)).full
        said = self.cad.guarantee_alone.sentence(
            "false-alarms", validity=self._rule.validity, level=self._rule.level
        )
        return f"{said} It holds in any {self._per:,} rows, on average over references."

    @property
    def promise(self) -> str:
        """The guarantee in one plain sentence, where there is one."""
        if self.confidence is not None or self.withdrawn:
            return self.guarantee
        claim = self.cad.guarantee_alone.claim(
            "false-alarms", validity=self._rule.validity, level=self._rule.level
        )
        return f"On average at most {self._budget} ({claim.status}, if {claim.condition})."

    @property
    def outlook(self) -> str:
        """Which rows are flagged, in words."""
        n = self.cad.n_calibration_
        if not self._last_rank:
            return f"Nothing can be flagged: {self._why_nothing()}"
        level = float(self._grid.values(np.array([self._last_rank]))[0])
        fewer = "none" if self._last_rank == 1 else f"fewer than {self._last_rank:,}"
        return (
            f"A row is flagged if {fewer} of {n:,} calibration rows are as unusual: p-values of at "
            f"most {level:.3g}."
        )

    def _why_nothing(self) -> str:
        n = self.cad.n_calibration_
        if self.confidence is not None:
            needed = rows_needed(self._share, self.confidence)
            claim = f"at a confidence of {self.confidence:g}"
        else:
            needed, claim = math.ceil(1 / self._share) - 1, "on average"
        at_least = "at least " if self._grid.smallest * (n + 1) == 1 else "more than "
        return (
            f"{n:,} calibration rows are too few for {self._budget} {claim}. Use "
            f"{at_least}{needed:,} calibration rows, or allow more `false_alarms`."
        )

    def _warn(self) -> None:
        if not self._last_rank and not self.rows:
            warnings.warn(f"nothing can be flagged: {self._why_nothing()}", OutlookWarning, 4)

    # --- the decisions ---

    def _level(self, p_values: FloatArray, mask: BoolArray) -> float:
        return float(self._grid.values(np.array([self._last_rank]))[0]) if self._last_rank else 0.0

    def _decide(self, given: list[int]) -> Content:
        flagged = [place for place, rank in enumerate(given) if rank <= self._last_rank]
        self.discoveries += len(flagged)
        return {"flagged": flagged}


class DecayingMemory(RowDecisions):
    """Flag rows as they arrive, aiming at a false discovery rate of the recent past.

    LORD with memory decay (Rebjock et al. 2021): a discovery raises the level of the rows after it,
    less and less. Measured, not proven: the theorem asks for independent p-values, and those of
    one reference are not.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted, with ``ties="conservative"``.
    fdr : float, default=0.1
        False discovery rate aimed at, where older rows count less.
    decay : float, default=0.99
        What a row counts for in comparison with the next one.
    journal : str or Path, optional
        As in `FalseAlarmBudget`.

    Notes
    -----
    It needs the package online-fdr: ``pip install 'reconform[online]'``. A row is never tested at
    less than `fdr` (1 - `decay`) / 2, so that it takes about 2 / (`fdr` (1 - `decay`)) calibration
    rows to find a first anomaly; `outlook` says it.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> from reconform.stream import DecayingMemory
    >>> rng = np.random.default_rng(0)
    >>> cad = ConformalDetector("knn", "split", random_state=0).fit(rng.normal(size=(6_000, 2)))
    >>> DecayingMemory(cad).update([[0.3, 0.1], [9.0, 9.0]]).mask
    array([False,  True])
    """

    kind: ClassVar[str] = "decaying memory"

    def __init__(
        self,
        cad: ConformalDetector,
        fdr: float = 0.1,
        *,
        decay: float = 0.99,
        journal: str | Path | None = None,
    ) -> None:
        super().__init__(cad)
        online = extra("online_fdr.p_values", "online", "deciding with decaying memory")
        level, kept = (exact_fraction(*one) for one in (("fdr", fdr), ("decay", decay)))
        self._grid = Rule(fdr).counting_grid(cad, "a stream", "alone")
        self._test = online.LORDMemoryDecay(alpha=float(level), delta=float(kept))
        self._least = float(level) * float(1 - kept) / 2
        self.discoveries = 0
        self.guarantee = (
            f"Of the rows flagged lately, about {float(100 * level):g}% should be false alarms: "
            "measured, not proven."
        )
        self._begin(journal, {"fdr": str(level), "decay": str(kept)})

    @property
    def outlook(self) -> str:
        """What can be found with this reference, in words."""
        smallest = float(self._grid.smallest)
        if smallest <= self._least:
            return f"P-values of at most {self._least:.3g} are flagged, and more soon after others."
        return (
            f"After a quiet time nothing can be flagged: no p-value is below {smallest:.3g}, and "
            f"the level falls to {self._least:.3g}. Use {math.ceil(1 / self._least):,} calibration "
            "rows."
        )

    def _decide(self, given: list[int]) -> Content:
        p_values = self._grid.values(np.array(given, dtype=np.int64)).tolist()
        flagged = [place for place, p in enumerate(p_values) if self._test.test_one(p)]
        self.discoveries += len(flagged)
        return {"flagged": flagged}


class MicroBatches(DecisionStream):
    """Collect rows in windows, and decide about a window as a whole when it is complete.

    A row waits no longer than its window. Windows do not depend on the batches in which rows
    arrive.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted, with ``ties="conservative"``. Rows are ranked one by one, as by `p_values`: with
        ``detector="auto"`` by the first candidate.
    rows : int, default=200
        Rows of a window.
    fdr : float, default=0.1
        Target false discovery rate of the list of each window.
    journal : str or Path, optional
        Write the decisions of every batch to this file before they are returned. If the file
        exists, go on where it ends.
    **rule
        `procedure`, `storey_lambda`, `validity`, `conditional`, `confidence` and `false_alarms`, as
        in `ConformalDetector.discover`. `false_alarms` are those of one window: p-values of at most
        `false_alarms` / m are flagged in a window of m rows.

    Attributes
    ----------
    guarantee : str
        What holds, in words.
    outlook : str
        What can be found in a window with this reference, in words.
    waiting : int
        Rows whose window is not complete.
    windows, batches, rows, discoveries : int
        How many there were so far; `batches` is also the number of the next batch.

    Warns
    -----
    UserWarning
        Once, if a single anomaly in a window cannot be found, and with it what helps.

    See Also
    --------
    FalseAlarmBudget : Decides about a row when it arrives.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> from reconform.stream import MicroBatches
    >>> rng = np.random.default_rng(0)
    >>> cad = ConformalDetector("knn", "split", random_state=0).fit(rng.normal(size=(10_000, 2)))
    >>> windows = MicroBatches(cad, rows=4, fdr=0.1)
    >>> windows.update([[0.3, 0.1], [9.0, 9.0]])
    []
    >>> for window in windows.update([[0.0, -1.0], [8.0, -9.0], [0.5, 0.5]]):
    ...     print(window.row, window.mask)
    0 [False  True False  True]
    >>> windows.waiting
    1
    """

    kind: ClassVar[str] = "micro-batches"

    def __init__(
        self,
        cad: ConformalDetector,
        rows: int = 200,
        *,
        fdr: float | Fraction = 0.1,
        journal: str | Path | None = None,
        **rule: Unpack[RuleOptions],
    ) -> None:
        super().__init__(cad)
        for name in ("top", "alpha_bh"):
            if name in rule:
                raise ReconformError(f"`{name}` is not for windows; leave it out.")
        self._size = check_count("rows", rows, least=1)
        self._rule = Rule(fdr, **rule)
        self._grid = self._rule.counting_grid(cad, "a stream", "alone")
        self.discoveries = 0
        self.windows = 0
        self._pending: list[int] = []  # ranks of the rows whose window is not complete
        self._decided = 0  # rows of complete windows
        self.guarantee = self._promise()
        names = ("fdr", "false_alarms", "procedure", "storey_lambda", "validity", "conditional")
        told = {name: getattr(self._rule, name) for name in (*names, "confidence")}
        plain = {name: None if value is None else str(value) for name, value in told.items()}
        self._begin(journal, {"rows": self._size, **plain})

    @property
    def waiting(self) -> int:  # type: ignore[override]
        """Rows whose window is not complete."""
        return len(self._pending)

    # --- what is said ---

    def _promise(self) -> str:
        rule = self._rule
        claim = self.cad.guarantee_alone.claim(
            rule.procedure, validity=rule.validity, conditional=rule.conditional, level=rule.level
        )
        if rule.false_alarms is not None:
            return f"{claim.full} It holds in each window, and adds up over windows."
        level = f"{float(100 * rule.level):g}%"
        return (
            f"{claim.promise(level, 'the rows flagged in a window')} Over all windows it is "
            "measured only, and higher where most windows have no anomaly."
        )

    @property
    def _limit(self) -> str | None:
        n, smallest = self.cad.n_calibration_, self._grid.smallest
        return self._rule.warning(n, self._size, smallest_p=smallest, rows="calibration rows")

    @property
    def outlook(self) -> str:
        """What can be found in a window with this reference, in words."""
        return self._limit or f"A single anomaly in a window of {self._size:,} rows can be found."

    def _warn(self) -> None:
        if self._limit is not None:
            warnings.warn(self._limit, OutlookWarning, stacklevel=4)

    # --- rows ---

    def update(self, X: Any, *, batch: int | None = None) -> list[StreamDecisions]:
        """Add the next rows; return the lists of all windows that are complete with them.

        Parameters
        ----------
        X : array-like or frame of shape (m, d), dict, or list of dicts
        batch : int, optional
            The number of the batch, from 0. A batch that was added before gets the same lists again
            and changes nothing. Without a number, X is taken for new rows.

        Returns
        -------
        list of StreamDecisions
        """
        return self._decisions(self._submit(self.given(X), batch))

    def flush(self, *, batch: int | None = None) -> list[StreamDecisions]:
        """Decide about the rows that wait, as a window of their own; a batch without rows.

        Parameters
        ----------
        batch : int, optional
            As in `update`.

        Returns
        -------
        list of StreamDecisions
            Empty if no row waits.
        """
        if batch is None and not self._pending:
            return []
        return self._decisions(self._submit([], batch))

    # --- the decisions ---

    def _decide(self, given: list[int]) -> Content:
        closed: list[Content] = []
        if not given and self._pending:
            closed.append(self._close())
        for rank in given:
            self._pending.append(rank)
            if len(self._pending) == self._size:
                closed.append(self._close())
        return {"windows": closed}

    def _close(self) -> Content:
        """Decide about the rows that wait."""
        ranks = np.array(self._pending, dtype=np.int64)
        counts = RankCounts(self.cad.n_calibration_, self.cad.calibration_.fingerprint)
        last = self._rule.decide_counts(counts.add(ranks), self._grid).rank_threshold
        content = {
            "window": self.windows,
            "row": self._decided,
            "last_rank": int(last),
            "ranks": self._pending,
        }
        self._decided += len(ranks)
        self.discoveries += int((ranks <= last).sum())
        self.windows += 1
        self._pending = []
        return content

    def _decisions(self, record: Content) -> list[StreamDecisions]:
        return [
            StreamDecisions(
                window=window["window"],
                row=window["row"],
                mask=np.array(window["ranks"]) <= window["last_rank"],
                p_values=self._grid.values(np.array(window["ranks"])),
                level=float(self._grid.table[window["last_rank"]]) if window["last_rank"] else 0.0,
                guarantee=self.guarantee,
            )
            for window in record["found"]["windows"]
        ]
