"""Alarms that go on: every change of the stream, and when it began."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..detector import ConformalDetector
from ..errors import ReconformError, is_number, unknown_choice
from ..randomness import root_seed
from .journal import Content
from .monitor import BatchEvidence, ScoreMonitor

STATISTICS = ("shiryaev-roberts", "cusum", "restart")


@dataclass(frozen=True)
class Change:
    """An alarm.

    Attributes
    ----------
    row : int
        Position in the stream of the row at which it sounded, from 0.
    began : int
        Where the change began, by estimate: the row from which on the bets have won most.
    """

    row: int
    began: int


@dataclass(frozen=True, eq=False)
class ChangeReport(BatchEvidence):
    """What a batch has added.

    Attributes
    ----------
    batch, row, p_values
        As in `BatchEvidence`.
    log10_evidence : float array
        The statistic after each row; at an alarm the value that raised it.
    changes : tuple of Change
        The alarms of this batch.
    """

    changes: tuple[Change, ...]

    @property
    def alarm(self) -> bool:
        """Whether there was an alarm in this batch."""
        return bool(self.changes)


class ChangeMonitor(ScoreMonitor[ChangeReport]):
    """Raise an alarm at every change of the stream, at a stated average run length.

    Rows are ranked and bets are made as in `ExchangeabilityMonitor`, which asks whether *anything*
    ever changed and is silent after its alarm. Here the evidence begins anew after each alarm, and
    it does not have to win back what it lost in quiet times.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted, with one model that has not seen the calibration rows: ``method="split"`` with one
        repeat, or ``"prefit"``. Others are refused.
    run_length : float, default=10_000
        While nothing changes, a false alarm comes after so many rows on average, or later.
    statistic : {"shiryaev-roberts", "cusum", "restart"}, default="shiryaev-roberts"
        Evidence from all rows at which a change may have begun, added up; from the best of them; or
        from the last alarm on, which asks for the most and has the fewest false alarms.
    martingale : {"simple-jumper", "mixture", "power"}, default="simple-jumper"
    epsilon : float, default=0.92
    jump : float, default=0.01
        How to bet, as in `ExchangeabilityMonitor`.
    random_state : int, RandomState, Generator or None, default=None
        The seed of the uniform numbers that smooth the p-values, one per row of the stream.
    journal : str or Path, optional
        Write every batch to this file before its report is returned. The file must not exist:
        after a crash use `resume`.

    Attributes
    ----------
    changes : list of Change
        All alarms so far.
    guarantee : str
        What holds, in words.
    log10_evidence : float
        The statistic now.
    evidence : Evidence
        Its course so far, for a chart.
    batches, rows : int
        How many there were so far; `batches` is also the number of the next batch.

    Notes
    -----
    Let f_t be what the bettor's capital is multiplied by at row t; its mean is 1 given the past.
    Shiryaev-Roberts is R_t = (R_{t-1} + 1) f_t, CUSUM is C_t = max(C_{t-1}, 1) f_t, and restart is
    M_t = M_{t-1} f_t from M = 1; all of them begin anew after an alarm, which sounds at
    `run_length`. R_t minus the number of rows is a martingale, so that within T rows at most
    T / `run_length` false alarms are expected, for every T, and a run lasts `run_length` rows on
    average or longer. M <= C <= R, so this holds for all three. For restart more is true: k false
    alarms ever have a probability of at most `run_length` ** -k. The proofs are in docs/stream.md.

    All scores stay in the pool that new ones are ranked in. After a change that lasts, alarms come
    again, until the new rows have become the usual ones; then fit with newer rows.

    References
    ----------
    V. Vovk, I. Petej, I. Nouretdinov, E. Ahlberg, L. Carlsson, A. Gammerman, "Retrain or not
    retrain: conformal test martingales for change-point detection", PMLR 152 (2021).

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> from reconform.stream import ChangeMonitor
    >>> rng = np.random.default_rng(0)
    >>> cad = ConformalDetector("knn", "split", random_state=0).fit(rng.normal(size=(4_000, 2)))
    >>> monitor = ChangeMonitor(cad, run_length=5_000, random_state=0)
    >>> monitor.update(rng.normal(size=(500, 2))).changes
    ()
    >>> monitor.update(rng.normal(scale=2.0, size=(60, 2))).changes
    (Change(row=520, began=501), Change(row=552, began=521))
    """

    kind: ClassVar[str] = "change monitor"

    def __init__(
        self,
        cad: ConformalDetector,
        run_length: float = 10_000,
        statistic: str = "shiryaev-roberts",
        martingale: str = "simple-jumper",
        *,
        epsilon: float = 0.92,
        jump: float = 0.01,
        random_state: Any = None,
        journal: str | Path | None = None,
    ) -> None:
        key = int(root_seed(random_state).generate_state(1, np.uint64)[0])
        self._set_up(cad, run_length, statistic, martingale, epsilon, jump, key)
        if journal is not None:
            self._begin_journal(journal)

    def _set_up(
        self,
        cad: ConformalDetector,
        run_length: float,
        statistic: str,
        martingale: str,
        epsilon: float,
        jump: float,
        key: int,
    ) -> None:
        self._prepare(cad, martingale, epsilon, jump, key)
        if statistic not in STATISTICS:
            raise unknown_choice("statistic", statistic, STATISTICS)
        if not is_number(run_length) or not 1 < run_length < math.inf:
            raise ReconformError(
                f"`run_length` must be a number of rows above 1; got {run_length!r}."
            )
        self.run_length = float(run_length)
        self.statistic = statistic
        self.changes: list[Change] = []
        self._log_capital = 0.0  # of the bettor, after the last row
        self._run = _Run.beginning(statistic, 0, 0.0)

    @property
    def guarantee(self) -> str:
        """What holds while nothing changes, in words."""
        length = f"{self.run_length:,.10g}"
        said = (
            f"While calibration rows and stream are exchangeable, at most T / {length} false "
            "alarms are expected in T rows, for every T, and the next one comes after "
            f"{length} rows on average or later: proven."
        )
        if self.statistic == "restart":
            said += (
                " A false alarm ever has a probability of at most "
                f"{1 / self.run_length:.3g}, and k of them the k-th power of it."
            )
        return said

    @property
    def log10_evidence(self) -> float:
        """The statistic now; minus infinity as long as there is none."""
        return _log10(self._run.value) if self._run.value > 0 else -math.inf

    @property
    def limit(self) -> float:
        """The logarithm to base 10 of the statistic at which there is an alarm."""
        return math.log10(self.run_length)

    @property
    def alarm_rows(self) -> list[int]:
        """Positions in the stream of the rows with alarms."""
        return [change.row for change in self.changes]

    @property
    def headline(self) -> str:
        """What there is to say, in a line."""
        rare = f"(run length {self.run_length:,.10g})"
        if not self.changes:
            return f"No alarm in {self.rows:,} rows {rare}"
        last, count = self.changes[-1], len(self.changes)
        many = "1 alarm" if count == 1 else f"{count:,} alarms, the last"
        return f"{many} at row {last.row:,} of {self.rows:,}, begun at {last.began:,} {rare}"

    def _report(self, found: Content, common: Content) -> ChangeReport:
        return ChangeReport(**common, changes=tuple(Change(*change) for change in found["changes"]))

    def _decide(self, given: list[float]) -> Content:
        p_values, path = self._bet(given)
        course, changes = [], []
        for row, log_capital in enumerate(path.tolist(), start=self.rows):
            factor = math.exp(log_capital - self._log_capital)
            self._log_capital = log_capital
            value = self._run.advance(self.statistic, factor, row, log_capital)
            course.append(_log10(value))
            if value >= self.run_length:
                changes.append([row, self._run.began])
                self._run = _Run.beginning(self.statistic, row + 1, log_capital)
        self.changes += [Change(*change) for change in changes]
        self._history.extend(np.array(course))
        return {"p_values": p_values.tolist(), "log10_evidence": course, "changes": changes}

    # --- what `ResumableStream` asks for ---

    def _settings(self) -> Content:
        return {"run_length": self.run_length, "statistic": self.statistic, **self._bets()}


@dataclass
class _Run:
    """The evidence since the last alarm.

    Attributes
    ----------
    value : float
        The statistic.
    began : int
        The row before which the capital was lowest: from there on the bets have won most.
    lowest : float
        The logarithm of the capital then.
    """

    value: float
    began: int
    lowest: float

    @classmethod
    def beginning(cls, statistic: str, row: int, log_capital: float) -> _Run:
        """Begin anew with this row, where the capital is this."""
        return cls(1.0 if statistic == "restart" else 0.0, row, log_capital)

    def advance(self, statistic: str, factor: float, row: int, log_capital: float) -> float:
        """Take in a row, at which the capital was multiplied by `factor`."""
        if statistic == "shiryaev-roberts":
            self.value = (self.value + 1.0) * factor
        elif statistic == "cusum":
            self.value = max(self.value, 1.0) * factor
        else:
            self.value *= factor
        if log_capital <= self.lowest:
            self.began, self.lowest = row + 1, log_capital
        return self.value


def _log10(value: float) -> float:
    """The logarithm; of a statistic that has become nothing, the least there is in a journal."""
    return math.log10(value) if value > 0 else -324.0
