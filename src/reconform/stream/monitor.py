"""Whether the reference still describes the stream: evidence of a change, and alarms."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from ..arrays import FloatArray, IntArray
from ..detector import ConformalDetector
from ..errors import ReconformError, check_probability, is_number, unknown_choice
from ..extras import extra
from ..randomness import root_seed
from ..statistics.ranks import row_uniforms
from .betting import OrderedScores, make_martingale
from .state import Content, ResumableStream, Shape, check_shape, claim, is_finite

STATISTICS = ("shiryaev-roberts", "cusum", "restart")
MOST_POINTS = 2048

ALARM, LINE, TEXT = "#bf4312", "#17727b", "#5f6570"
WIDTH, HEIGHT = 640, 260


@dataclass(frozen=True, eq=False)
class Evidence:
    """The highest evidence within each stretch of rows; no peak is ever lost.

    Attributes
    ----------
    row : int array
        First row of each stretch.
    log10 : float array
        The highest log10 evidence in it.
    every : int
        Rows in a stretch; 1 for short streams.
    """

    row: IntArray
    log10: FloatArray
    every: int


class EvidenceHistory:
    """Keep the course of the evidence; when there is too much of it, merge neighbours.

    Examples
    --------
    >>> history = EvidenceHistory(most=4)
    >>> history.extend(np.array([0.0, 1.0, 0.5, 3.0, 2.0]))
    >>> history.evidence.row, history.evidence.log10
    (array([0, 2, 4]), array([1., 3., 2.]))
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._highest = np.full(most, -np.inf)
        self._every = 1
        self._rows = 0

    @property
    def evidence(self) -> Evidence:
        """The course so far."""
        used = -(-self._rows // self._every)
        row = np.arange(used, dtype=np.int64) * self._every
        return Evidence(row, self._highest[:used].copy(), self._every)

    def extend(self, log10: FloatArray) -> None:
        """Add the evidence after each of the next rows."""
        rows = self._rows + len(log10)
        while rows > len(self._highest) * self._every:
            merged = self._highest.reshape(-1, 2).max(axis=1)
            self._highest = np.append(merged, np.full(len(merged), -np.inf))
            self._every *= 2
        stretch = np.arange(self._rows, rows) // self._every
        np.maximum.at(self._highest, stretch, log10)
        self._rows = rows


@dataclass(frozen=True, eq=False)
class BatchEvidence:
    """What monitors say of a batch."""

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
    batch, row : int
        Number of the batch, and position of its first row in the stream, from 0.
    p_values : float array
        Smoothed p-value of each row among the calibration and all rows before it.
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

    def _set_up(self, cad: ConformalDetector, settings: Content) -> None:
        super()._set_up(cad, settings)
        if not cad.plan_.one_model:
            raise ReconformError(
                f"method={cad.method!r} cannot be monitored: the scores of calibration rows and "
                "of new rows must come from one model that has seen neither, or they are not "
                "exchangeable even where the rows are. Use method='split' (one repeat) or "
                "'prefit'. p-values against a fixed calibration set would be no way out: they "
                "are not independent, and inflate the rate of false alarms several-fold."
            )
        self.martingale, self._key = settings["martingale"], settings["key"]
        check_shape(self._key, lambda key: type(key) is int and 0 <= key < 1 << 64, "key")
        self._bettor = make_martingale(self.martingale)
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

    def _settings(self) -> Content:
        return {"martingale": self.martingale, "key": self._key}

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
        random_state: Any = None,
        journal: str | Path | None = None,
    ) -> None:
        self._begin(cad, journal, alpha=alpha, martingale=martingale, key=_key(random_state))

    def _set_up(self, cad: ConformalDetector, settings: Content) -> None:
        super()._set_up(cad, settings)
        self.alpha = check_probability("alpha", settings["alpha"])
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
        return {"alpha": self.alpha, **super()._settings()}


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
    batch, row : int
        Number of the batch, and position of its first row in the stream, from 0.
    p_values : float array
        Smoothed p-value of each row among the calibration and all rows before it.
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
        random_state: Any = None,
        journal: str | Path | None = None,
    ) -> None:
        self._begin(
            cad,
            journal,
            run_length=run_length,
            statistic=statistic,
            martingale=martingale,
            key=_key(random_state),
        )

    def _set_up(self, cad: ConformalDetector, settings: Content) -> None:
        super()._set_up(cad, settings)
        run_length, statistic = settings["run_length"], settings["statistic"]
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
        own = {"run_length": self.run_length, "statistic": self.statistic}
        return {**own, **super()._settings()}


@dataclass
class _Run:
    """The evidence since the last alarm: the statistic, and where the capital was lowest.

    From `began` on the bets have won most: `lowest` was the logarithm of the capital before it.
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


def _key(random_state: Any) -> int:
    """The seed of the uniform numbers that smooth the p-values."""
    return int(root_seed(random_state).generate_state(1, np.uint64)[0])


def _log10(value: float) -> float:
    """The logarithm; of a statistic that has become nothing, the least there is in a journal."""
    return math.log10(value) if value > 0 else -324.0


def chart(monitor: ExchangeabilityMonitor | ChangeMonitor) -> Any:
    """Draw the evidence against exchangeability over the rows of the stream.

    Parameters
    ----------
    monitor : ExchangeabilityMonitor or ChangeMonitor

    Returns
    -------
    altair.LayerChart
        Shown inline in notebooks; ``chart(monitor).save("evidence.html")`` writes it to a file.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> from reconform.stream import ExchangeabilityMonitor, chart
    >>> rng = np.random.default_rng(0)
    >>> cad = ConformalDetector("knn", "split", random_state=0).fit(rng.normal(size=(200, 2)))
    >>> monitor = ExchangeabilityMonitor(cad, random_state=0)
    >>> report = monitor.update(rng.normal(3, 1, size=(100, 2)))
    >>> type(chart(monitor)).__name__
    'LayerChart'
    """
    alt = extra("altair", "stream", "chart()")
    evidence = monitor.evidence
    columns = zip(evidence.row.tolist(), evidence.log10.tolist(), strict=True)
    points = [{"row": row, "log10": log10} for row, log10 in columns]
    within = "" if evidence.every == 1 else f" (highest of every {evidence.every:,} rows)"
    axis = alt.Axis(format=",d", grid=False, tickCount=8)
    x = alt.X("row:Q", title="row of the stream", axis=axis)
    y = alt.Y("log10:Q", title=f"log10 evidence{within}")
    course = (
        alt.Chart(alt.Data(values=points))
        .mark_line(color=LINE, interpolate="step-after" if evidence.every > 1 else "linear")
        .encode(x=x, y=y, tooltip=["row:Q", alt.Tooltip("log10:Q", format=".2f")])
    )
    limit = alt.Chart(alt.Data(values=[{"log10": monitor.limit}]))
    layers = [course, limit.mark_rule(strokeDash=[5, 4], color=ALARM).encode(y="log10:Q")]
    if monitor.alarm_rows:
        alarm = alt.Chart(alt.Data(values=[{"row": row} for row in monitor.alarm_rows]))
        layers.append(alarm.mark_rule(color=ALARM).encode(x="row:Q"))
    title = alt.Title(monitor.headline, anchor="start", fontWeight="normal")
    whole = alt.layer(*layers, width=WIDTH, height=HEIGHT, title=title)
    return whole.configure_view(stroke=None).configure_axis(
        titleFontWeight="normal", labelColor=TEXT, titleColor=TEXT
    )
