"""How long work will take, said as soon as a small part of it is done.

Whoever wants to know listens: ``with listening(say): ...``, as the command line does, or reads the
log, where it stands at level INFO. Work that goes on in steps is timed where its progress is shown
(`parallel.track`), so nothing is done twice and nothing waits for it. Work that takes less than
`LONG` seconds is not spoken of.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

# Seconds. Work that takes less is not spoken of; a part that takes less says little of the rest.
LONG = 10.0
TELLING = 1.0

clock: Callable[[], float] = time.perf_counter


@dataclass(eq=False)
class _Listener:
    say: Callable[[str], None]
    busy: int = 0  # work that is timed already: its parts are not spoken of


class _Log(threading.local):
    """Stands for a listener where nobody listens but the log."""

    busy = 0


_LOG = logging.getLogger(__name__)
_TO_LOG = _Log()
_LISTENER: ContextVar[_Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(say: Callable[[str], None]) -> Iterator[None]:
    """Be told, inside, how long long work will take.

    Examples
    --------
    >>> with listening(print):
    ...     foretell(130.0, "12 detectors on 20,000 rows")
    ...     foretell(3.0, "2 detectors on 200 rows")
    About 2 minutes: 12 detectors on 20,000 rows.
    """
    token = _LISTENER.set(_Listener(say))
    try:
        yield
    finally:
        _LISTENER.reset(token)


def is_asked() -> bool:
    """Whether anybody listens, and no larger work that this is a part of is timed."""
    listener = _who_listens()
    return listener is not None and not listener.busy


def _who_listens() -> _Listener | _Log | None:
    logged = _TO_LOG if _LOG.isEnabledFor(logging.INFO) else None
    return _LISTENER.get() or logged


def foretell(seconds: float, what: str) -> None:
    """Say that some work will take so long in all, if that is long."""
    if seconds > LONG:
        tell(f"About {duration(seconds)}: {what}.")


def tell(sentence: str) -> None:
    """Say a sentence to whoever listens, and to the log."""
    _LOG.info(sentence)
    listener = _LISTENER.get()
    if listener is not None:
        listener.say(sentence)


def duration(seconds: float) -> str:
    """Say a time as a person would.

    Examples
    --------
    >>> [duration(s) for s in (12.0, 47.0, 100.0, 1300.0, 9000.0)]
    ['10 seconds', '50 seconds', '2 minutes', '22 minutes', '2.5 hours']
    """
    if seconds < 90:
        return f"{max(10, round(seconds / 10) * 10)} seconds"
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"


class Pace:
    """Times work whose parts are alike, and foretells its time once.

    Parameters
    ----------
    what : str
    total : int
        Parts.
    at_once : int
        Parts that are worked on at the same time.
    least : int
        Parts after which the others can be judged.
    """

    def __init__(self, what: str, total: int, *, at_once: int = 1, least: int = 1) -> None:
        self.what, self.total = what, total
        self._at_once, self._least = max(1, min(at_once, total)), least
        self._started = clock()
        self._told = False

    def done(self, parts: int) -> None:
        """Hear that so many parts are done."""
        if self._told or parts < self._least:
            return
        passed = clock() - self._started
        if passed >= TELLING:
            # After the first part, others are nearly done as well.
            seconds = passed * self.total / max(parts, self._at_once)
            if seconds - passed > LONG / 2:
                foretell(seconds, self.what)
            self._told = True


T = TypeVar("T")


def paced(items: Iterable[T], pace: Callable[[], Pace]) -> Iterator[T]:
    """Yield from `items`; say how long all of them will take when a few are done."""
    listener = _who_listens()
    if listener is None or listener.busy:
        yield from items
        return
    timed = pace()
    listener.busy += 1
    try:
        for before, item in enumerate(items):
            if before:  # this item may be yet to be worked on: its time may be the caller's
                timed.done(before)
            yield item
    finally:
        listener.busy -= 1
