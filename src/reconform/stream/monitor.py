"""Whether the reference still describes the stream: evidence of a change, and alarms.

Scores are ranked among all before them, and a bettor bets. A betting function f >= 0 with mean 1
over [0, 1] multiplies the bettor's capital by f(p). If the p-values are independent and uniform,
the capital is a martingale that starts at 1, and it ever reaches 1/α with probability at most α
(Ville 1939).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..arrays import FloatArray, RankArray
from ..detector import ConformalDetector
from ..errors import ReconformError, check_probability, is_number
from ..randomness import root_seed
from ..statistics.ranks import row_uniforms
from .state import Content, ResumableStream


@dataclass
class SimpleJumper:
    """f(p) = 1 + ε (p - 1/2), ε jumping between -1, 0 and 1: bets on both sides.

    Three bettors, each with an ε of its own; before every row a share of the capital is divided
    among them anew, so that the one who is right now soon has most of it (Vovk et al. 2021).

    `jump` is that share; `small`, `none`, `large` are the shares of the three bettors.

    Examples
    --------
    >>> SimpleJumper().advance(np.array([0.5, 1.0])).round(4)
    array([0., 0.])
    """

    jump: float = 0.01
    log_capital: float = 0.0
    small: float = 1 / 3
    none: float = 1 / 3
    large: float = 1 / 3

    def advance(self, p_values: FloatArray) -> FloatArray:
        """Bet on p-values in turn; return the logarithm of the capital after each."""
        path = np.empty(len(p_values))
        stay, move = 1 - self.jump, self.jump / 3
        small, none, large, log_capital = self.small, self.none, self.large, self.log_capital
        for j, p in enumerate(p_values.tolist()):
            small = (stay * small + move) * (1.5 - p)
            none = stay * none + move
            large = (stay * large + move) * (0.5 + p)
            factor = small + none + large
            log_capital += math.log(factor)
            small, none, large = small / factor, none / factor, large / factor
            path[j] = log_capital
        self.small, self.none, self.large, self.log_capital = small, none, large, log_capital
        return path


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
class MonitorReport:
    """What a batch has added to the evidence.

    Attributes
    ----------
    batch, row : int
        Number of the batch, and position of its first row in the stream, from 0.
    p_values : float array
        Smoothed p-value of each row among the calibration and all rows before it.
    log10_evidence : float array
        Evidence after each row: 2 means odds of 100 to 1 against exchangeability. Of a
        `ChangeMonitor` its statistic; at an alarm the value that raised it.
    alarm_row : int or None
        Position in the stream of the row of the first alarm: of the stream up to the end of this
        batch, or of this batch where evidence begins anew after an alarm.
    changes : tuple of Change
        The alarms of this batch, of a `ChangeMonitor`.
    """

    batch: int
    row: int
    p_values: FloatArray = field(repr=False)
    log10_evidence: FloatArray = field(repr=False)
    alarm_row: int | None
    changes: tuple[Change, ...] = ()

    @property
    def alarm(self) -> bool:
        """Whether there is an alarm."""
        return self.alarm_row is not None

    def __len__(self) -> int:
        return len(self.p_values)


class ScoreMonitor(ResumableStream):
    """What monitors have in common: each score is ranked among all before it, and a bettor bets.

    If calibration rows and stream are exchangeable, the p-values are independent and uniform, also
    given everything before.
    """

    def __init__(self, cad: ConformalDetector, random_state: Any) -> None:
        super().__init__(cad)
        if not cad.plan_.one_model:
            raise ReconformError(
                f"method={cad.method!r} cannot be monitored: the scores of calibration rows and "
                "of new rows must come from one model that has seen neither, or they are not "
                "exchangeable even where the rows are. Use method='split' (one repeat) or "
                "'prefit'. p-values against a fixed calibration set would be no way out: they "
                "are not independent, and inflate the rate of false alarms several-fold."
            )
        self._key = int(root_seed(random_state).generate_state(1, np.uint64)[0])
        self._bettor = SimpleJumper()
        self._ordered = OrderedScores(cad.calibration_.scores)

    def update(self, X: Any, *, batch: int | None = None) -> MonitorReport:
        """Add the next rows, in their order.

        Parameters
        ----------
        X : array-like or frame of shape (m, d), dict, or list of dicts
        batch : int, optional
            The number of the batch, from 0. A batch that was added before gets the same report
            again and changes nothing. Without a number, X is taken for new rows.

        Returns
        -------
        MonitorReport
        """
        record = self._submit(self._rank(X).scores.tolist(), batch)
        found = record["found"]
        changes = tuple(Change(*change) for change in found.get("changes", ()))
        return MonitorReport(
            batch=record["batch"],
            row=record["row"],
            p_values=np.array(found["p_values"]),
            log10_evidence=np.array(found["log10_evidence"]),
            alarm_row=found.get("alarm_row", changes[0].row if changes else None),
            changes=changes,
        )

    def _bet(self, given: list[float]) -> tuple[FloatArray, FloatArray]:
        """p-values of the next scores, and the logarithm of the capital after each."""
        scores = np.array(given, dtype=np.float64)
        earlier = len(self._ordered) + np.arange(len(scores))
        below, equal = self._ordered.rank_and_insert(scores)
        uniforms = row_uniforms(self._key, self.rows, len(scores))
        # The row itself is one of those that its score ties with.
        p_values = (below + uniforms * (equal + 1)) / (earlier + 1)
        return p_values, self._bettor.advance(p_values)

    def _is_given(self, value: Any) -> bool:
        return type(value) is float and math.isfinite(value)

    def _same(self, given: list[float], recorded: list[float]) -> bool:
        # Another machine may round scores otherwise.
        return len(given) == len(recorded) and np.allclose(given, recorded, rtol=1e-5, atol=0)


class ExchangeabilityMonitor(ScoreMonitor):
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
    random_state : int, RandomState, Generator or None, default=0
        The seed of the uniform numbers that smooth the p-values, one per row of the stream.
    journal : str or Path, optional
        Write every batch to this file before its report is returned. If the file exists, go on
        where it ends.

    Attributes
    ----------
    alarm : bool
    alarm_row : int or None
        Position in the stream of the row with the alarm.
    log10_evidence : float
        Evidence now.
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
        *,
        random_state: Any = 0,
        journal: str | Path | None = None,
    ) -> None:
        super().__init__(cad, random_state)
        self.alpha = check_probability("alpha", alpha)
        self.alarm_row: int | None = None
        self.log10_evidence = 0.0
        self._begin(journal, {"alpha": self.alpha, "random_state": self._key})

    @property
    def alarm(self) -> bool:
        """Whether the evidence has ever reached 1/alpha."""
        return self.alarm_row is not None

    # --- the evidence ---

    def _decide(self, given: list[float]) -> Content:
        p_values, path = self._bet(given)
        reached = np.flatnonzero(path >= -math.log(self.alpha))
        if self.alarm_row is None and len(reached):
            self.alarm_row = self.rows + int(reached[0])
        log10 = path / math.log(10)
        self.log10_evidence = self._bettor.log_capital / math.log(10)
        return {
            "p_values": p_values.tolist(),
            "log10_evidence": log10.tolist(),
            "alarm_row": self.alarm_row,
        }


class ChangeMonitor(ScoreMonitor):
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
    random_state : int, RandomState, Generator or None, default=0
        The seed of the uniform numbers that smooth the p-values, one per row of the stream.
    journal : str or Path, optional
        Write every batch to this file before its report is returned. If the file exists, go on
        where it ends.

    Attributes
    ----------
    changes : list of Change
        All alarms so far.
    guarantee : str
        What holds, in words.
    log10_evidence : float
        The statistic now.
    batches, rows : int
        How many there were so far; `batches` is also the number of the next batch.

    Notes
    -----
    Let f_t be what the bettor's capital is multiplied by at row t; its mean is 1 given the past.
    The Shiryaev-Roberts statistic R_t = (R_{t-1} + 1) f_t adds up the evidence for a change at
    every earlier row; it begins anew after an alarm, which sounds at `run_length`. R_t minus the
    number of rows is a martingale, so that within T rows at most T / `run_length` false alarms are
    expected, for every T, and a run lasts `run_length` rows on average or longer. The proof is in
    docs/stream.md.

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
        *,
        random_state: Any = 0,
        journal: str | Path | None = None,
    ) -> None:
        super().__init__(cad, random_state)
        if not is_number(run_length) or not 1 < run_length < math.inf:
            raise ReconformError(
                f"`run_length` must be a number of rows above 1; got {run_length!r}."
            )
        self.run_length = float(run_length)
        self.changes: list[Change] = []
        self._log_capital = 0.0  # of the bettor, after the last row
        self._value = 0.0  # the statistic, since the last alarm
        self._began, self._lowest = 0, 0.0  # from there on bets have won most; the capital before
        self._begin(journal, {"run_length": self.run_length, "random_state": self._key})

    @property
    def guarantee(self) -> str:
        """What holds while nothing changes, in words."""
        length = f"{self.run_length:,.10g}"
        return (
            f"While calibration rows and stream are exchangeable, at most T / {length} false "
            "alarms are expected in T rows, for every T, and the next one comes after "
            f"{length} rows on average or later: proven."
        )

    @property
    def log10_evidence(self) -> float:
        """The statistic now; minus infinity as long as there is none."""
        return math.log10(self._value) if self._value > 0 else -math.inf

    def _decide(self, given: list[float]) -> Content:
        p_values, path = self._bet(given)
        course, changes = [], []
        for row, log_capital in enumerate(path.tolist(), start=self.rows):
            self._value = (self._value + 1.0) * math.exp(log_capital - self._log_capital)
            self._log_capital = log_capital
            if log_capital <= self._lowest:
                self._began, self._lowest = row + 1, log_capital
            # A statistic that has become nothing is the least there is in a journal.
            course.append(math.log10(self._value) if self._value > 0 else -324.0)
            if self._value >= self.run_length:
                changes.append([row, self._began])
                self._value, self._began, self._lowest = 0.0, row + 1, log_capital
        self.changes += [Change(*change) for change in changes]
        return {"p_values": p_values.tolist(), "log10_evidence": course, "changes": changes}


# --- the scores so far, in order ---

# So many scores are put in order beside all others, which are then seldom moved.
RECENT = 4_096

# So many at a time are compared with each other directly.
FEW = 256


class OrderedScores:
    """A growing multiset of scores that ranks each new one among all before it.

    Examples
    --------
    >>> import numpy as np
    >>> ordered = OrderedScores(np.array([3.0, 1.0, 2.0]))
    >>> ordered.rank_and_insert(np.array([2.0, 2.0, 9.0]))
    (array([1, 1, 5]), array([1, 2, 0]))
    """

    def __init__(self, scores: FloatArray) -> None:
        self._settled, self._recent = np.sort(scores), np.empty(0)

    def __len__(self) -> int:
        return len(self._settled) + len(self._recent)

    def rank_and_insert(self, scores: FloatArray) -> tuple[RankArray, RankArray]:
        """Rank scores in turn, each among all that came before it, and keep them.

        Returns how many earlier scores are smaller than each, and how many are equal to it.
        """
        parts = [self._rank(scores[k : k + FEW]) for k in range(0, len(scores), FEW)]
        below, equal = np.hstack([np.empty((2, 0), dtype=np.int64), *parts])
        return below, equal

    def _rank(self, scores: FloatArray) -> RankArray:
        """Rank a few scores, which are compared with each other directly."""
        before = np.tri(len(scores), k=-1, dtype=bool)
        smaller, same = scores < scores[:, None], scores == scores[:, None]
        found: RankArray = np.array([(smaller & before).sum(1), (same & before).sum(1)])
        for ordered in (self._settled, self._recent):
            left = np.searchsorted(ordered, scores)
            found += left, np.searchsorted(ordered, scores, side="right") - left
        self._recent = _merged(self._recent, np.sort(scores))
        if len(self._recent) > RECENT:
            self._settled = _merged(self._settled, self._recent)
            self._recent = np.empty(0)
        return found


def _merged(ordered: FloatArray, more: FloatArray) -> FloatArray:
    return np.insert(ordered, np.searchsorted(ordered, more), more)
