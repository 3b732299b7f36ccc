"""Whether the reference still describes the stream: evidence against exchangeability."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from ..arrays import FloatArray
from ..detector import ConformalDetector
from ..errors import ReconformError, check_probability
from ..randomness import root_seed
from ..statistics.ranks import row_uniforms
from .evidence import Evidence, EvidenceHistory
from .journal import Content
from .martingales import make_martingale
from .order import OrderedScores
from .state import ResumableStream, Shape, check_shape, claim, is_finite


@dataclass(frozen=True, eq=False)
class BatchEvidence:
    """What monitors say of a batch.

    Attributes
    ----------
    batch : int
        Number of the batch, from 0.
    row : int
        Position of its first row in the stream, from 0.
    p_values : float array
        Smoothed p-value of each row among the calibration and all rows before it.
    log10_evidence : float array
        Evidence after each row.
    """

    batch: int
    row: int
    p_values: FloatArray = field(repr=False)
    log10_evidence: FloatArray = field(repr=False)

    def __len__(self) -> int:
        return len(self.p_values)


@dataclass(frozen=True, eq=False)
class MonitorReport(BatchEvidence):
    """What a batch has added to the evidence.

    Attributes
    ----------
    batch, row, p_values
        As in `BatchEvidence`.
    log10_evidence : float array
        Evidence after each row: 2 means odds of 100 to 1 against exchangeability.
    alarm : bool
        Whether the evidence has ever reached 1/alpha, up to the end of this batch.
    alarm_row : int or None
        Position in the stream of the row at which it first did.
    alpha : float
    """

    alarm: bool
    alarm_row: int | None
    alpha: float


Report = TypeVar("Report", bound=BatchEvidence)


class ScoreMonitor(ResumableStream, Generic[Report]):
    """What monitors have in common: each score is ranked among all before it, and a bettor bets.

    If calibration rows and stream are exchangeable, the p-values are independent and uniform, also
    given everything before.
    """

    def _prepare(
        self, cad: ConformalDetector, martingale: str, epsilon: float, jump: float, key: int
    ) -> None:
        super().__init__(cad)
        if not cad.plan_.one_model:
            raise ReconformError(
                f"method={cad.method!r} cannot be monitored: the scores of calibration rows and "
                "of new rows must come from one model that has seen neither, or they are not "
                "exchangeable even where the rows are. Use method='split' (one repeat) or "
                "'prefit'. p-values against a fixed calibration set would be no way out: they "
                "are not independent, and inflate the rate of false alarms several-fold."
            )
        self.martingale = martingale
        self._key = key
        self._bettor = make_martingale(martingale, epsilon=epsilon, jump=jump)
        self.epsilon, self.jump = float(epsilon), float(jump)
        self._ordered = OrderedScores(cad.calibration_.scores)
        self._history = EvidenceHistory()

    def update(self, X: Any, *, batch: int | None = None) -> Report:
        """Add the next rows, in their order.

        Parameters
        ----------
        X : array-like or frame of shape (m, d), dict, or list of dicts
        batch : int, optional
            The number of the batch, from 0. A batch that was added before gets the same report
            again and changes nothing. Without a number, X is taken for new rows.

        Returns
        -------
        MonitorReport or ChangeReport
        """
        record = self._submit(self._rank(X).scores.tolist(), batch)
        found = record["found"]
        common = {
            "batch": record["batch"],
            "row": record["row"],
            "p_values": np.array(found["p_values"]),
            "log10_evidence": np.array(found["log10_evidence"]),
        }
        return self._report(found, common)

    @abstractmethod
    def _report(self, found: Content, common: Content) -> Report:
        """What a batch has added: what `_decide` found, and what all monitors say."""

    @property
    def evidence(self) -> Evidence:
        """The course of the evidence so far."""
        return self._history.evidence

    def _bet(self, given: list[float]) -> tuple[FloatArray, FloatArray]:
        """p-values of the next scores, and the logarithm of the capital after each."""
        scores = np.array(given, dtype=np.float64)
        earlier = len(self._ordered) + np.arange(len(scores))
        below, equal = self._ordered.rank_and_insert(scores)
        uniforms = row_uniforms(self._key, self.rows, len(scores))
        # The row itself is one of those that its score ties with.
        p_values = (below + uniforms * (equal + 1)) / (earlier + 1)
        return p_values, self._bettor.advance(p_values)

    def _bets(self) -> Content:
        """What the bets are made with, for `_settings`."""
        return {
            "martingale": self.martingale,
            "epsilon": self.epsilon,
            "jump": self.jump,
            "key": self._key,
        }

    # The scores are the whole state: everything else follows from them.

    def _snapshot(self) -> Content:
        return {"scores": self._ordered.scores[self.cad.n_calibration_ :].tolist()}

    def _restore(self, snapshot: Content) -> None:
        scores, last = snapshot["scores"], self._last
        claim(len(scores) == self.rows, "rows are missing, or too many")
        if last is None:
            return
        claim(last["given"] == scores[last["row"] :], "the last batch is another one")
        self.rows = 0
        if last["row"]:
            self._decide(scores[: last["row"]])
            self.rows = last["row"]
        last["found"] = self._decide(last["given"])
        self.rows = len(scores)

    def _shapes(self) -> tuple[Shape, Shape, Shape]:
        return is_finite, lambda value: True, {"scores": [is_finite]}

    def _same(self, given: list[float], recorded: list[float]) -> bool:
        # Another machine may round scores otherwise.
        return len(given) == len(recorded) and np.allclose(given, recorded, rtol=1e-5, atol=0)

    @abstractmethod
    def _set_up(self, cad: ConformalDetector, *settings: Any, **named: Any) -> None:
        """Begin; the settings are those of `_settings`."""

    @classmethod
    def _make(cls, cad: ConformalDetector, settings: Content) -> Self:
        stream = cls.__new__(cls)
        check_shape(settings["key"], lambda key: type(key) is int and 0 <= key < 1 << 64, "key")
        stream._set_up(cad, **settings)
        return stream

    # --- what a chart shows ---

    @property
    @abstractmethod
    def limit(self) -> float:
        """The logarithm to base 10 of the evidence at which there is an alarm."""

    @property
    @abstractmethod
    def alarm_rows(self) -> list[int]:
        """Positions in the stream of the rows with alarms."""

    @property
    @abstractmethod
    def headline(self) -> str:
        """What there is to say, in a line."""


class ExchangeabilityMonitor(ScoreMonitor[MonitorReport]):
    """Raise an alarm when new rows no longer look like draws from where the reference came from.

    Every new score is ranked among those of the calibration rows *and of all rows before it*. If
    all of them are exchangeable, the smoothed p-values are independent and uniform, and what a
    bettor wins against them is a test martingale; the alarm sounds when it reaches 1/alpha. Over
    the whole life of the stream, however long, the probability of a false alarm is at most alpha.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted, with one model that has not seen the calibration rows: ``method="split"`` with one
        repeat, or ``"prefit"``. Others are refused.
    alpha : float, default=0.05
        Probability of a false alarm.
    martingale : {"simple-jumper", "mixture", "power"}, default="simple-jumper"
        How to bet. The simple jumper bets on small and on large p-values and is quick to change
        its mind; the others bet on small ones only, that is on rows that are more anomalous.
    epsilon : float, default=0.92
        For the power martingale, p -> epsilon p^(epsilon - 1).
    jump : float, default=0.01
        For the simple jumper: the share of the capital that is divided anew before every row.
    random_state : int, RandomState, Generator or None, default=None
        The seed of the uniform numbers that smooth the p-values, one per row of the stream.
    journal : str or Path, optional
        Write every batch to this file before its report is returned. The file must not exist:
        after a crash use `resume`.

    Attributes
    ----------
    alarm : bool
    alarm_row : int or None
        Position in the stream of the row with the alarm.
    log10_evidence : float
        Evidence now.
    evidence : Evidence
        Its course so far, for a chart.
    batches, rows : int
        How many there were so far; `batches` is also the number of the next batch.

    Notes
    -----
    p-values against the calibration rows alone, those of `ConformalDetector.p_values`, are no
    substitute. Each is uniform, but they share one calibration set and are not independent: on a
    long stream they settle at whatever that set got wrong by chance, and a bettor wins from it.

    It stops at its first alarm; `ChangeMonitor` goes on.

    A row takes O(log) time; all scores of the stream are kept, 40 bytes each.

    References
    ----------
    V. Vovk, A. Gammerman, G. Shafer, "Algorithmic Learning in a Random World", second edition
    (2022), chapter 8.

    V. Vovk, I. Petej, I. Nouretdinov, E. Ahlberg, L. Carlsson, A. Gammerman, "Retrain or not
    retrain: conformal test martingales for change-point detection", PMLR 152 (2021).

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> from reconform.stream import ExchangeabilityMonitor
    >>> rng = np.random.default_rng(0)
    >>> cad = ConformalDetector("knn", "split", random_state=0).fit(rng.normal(size=(1_000, 2)))
    >>> monitor = ExchangeabilityMonitor(cad, alpha=0.01, random_state=0)
    >>> monitor.update(rng.normal(size=(500, 2))).alarm
    False
    >>> report = monitor.update(rng.normal(scale=1.5, size=(500, 2)))
    >>> report.alarm, report.alarm_row
    (True, 561)
    """

    kind: ClassVar[str] = "exchangeability monitor"

    def __init__(
        self,
        cad: ConformalDetector,
        alpha: float = 0.05,
        martingale: str = "simple-jumper",
        *,
        epsilon: float = 0.92,
        jump: float = 0.01,
        random_state: Any = None,
        journal: str | Path | None = None,
    ) -> None:
        key = int(root_seed(random_state).generate_state(1, np.uint64)[0])
        self._set_up(cad, alpha, martingale, epsilon, jump, key)
        if journal is not None:
            self._begin_journal(journal)

    def _set_up(
        self,
        cad: ConformalDetector,
        alpha: float,
        martingale: str,
        epsilon: float,
        jump: float,
        key: int,
    ) -> None:
        self._prepare(cad, martingale, epsilon, jump, key)
        self.alpha = check_probability("alpha", alpha)
        self.alarm_row: int | None = None
        self.log10_evidence = 0.0

    @property
    def alarm(self) -> bool:
        """Whether the evidence has ever reached 1/alpha."""
        return self.alarm_row is not None

    @property
    def limit(self) -> float:
        """The logarithm to base 10 of the evidence at which there is an alarm."""
        return -math.log10(self.alpha)

    @property
    def alarm_rows(self) -> list[int]:
        """The position of the row with the alarm, if there was one."""
        return [] if self.alarm_row is None else [self.alarm_row]

    @property
    def headline(self) -> str:
        """What there is to say, in a line."""
        rare = f"(false alarms: at most {self.alpha:g})"
        if self.alarm_row is None:
            return f"No alarm in {self.rows:,} rows {rare}"
        return f"Alarm at row {self.alarm_row:,} of {self.rows:,} {rare}"

    def _report(self, found: Content, common: Content) -> MonitorReport:
        row = found["alarm_row"]
        return MonitorReport(**common, alarm=row is not None, alarm_row=row, alpha=self.alpha)

    # --- the evidence ---

    def _decide(self, given: list[float]) -> Content:
        p_values, path = self._bet(given)
        reached = np.flatnonzero(path >= -math.log(self.alpha))
        if self.alarm_row is None and len(reached):
            self.alarm_row = self.rows + int(reached[0])
        log10 = path / math.log(10)
        self._history.extend(log10)
        self.log10_evidence = float(log10[-1])
        return {
            "p_values": p_values.tolist(),
            "log10_evidence": log10.tolist(),
            "alarm_row": self.alarm_row,
        }

    # --- what `ResumableStream` asks for ---

    def _settings(self) -> Content:
        return {
            "alpha": self.alpha,
            **self._bets(),
        }
