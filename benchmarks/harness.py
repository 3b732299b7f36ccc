"""How a job is measured: contenders in processes of their own and in turn, answers before times."""

from __future__ import annotations

import multiprocessing
import os
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

THREADS = 2
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, str(THREADS))


@dataclass(frozen=True)
class Contender:
    """One side of a job: a function that makes the data, and one that does the work on them."""

    name: str
    prepare: Callable[[], Any]
    work: Callable[[Any], Any]
    repeats: int = 3
    warm_up: bool = True


@dataclass(frozen=True)
class Job:
    """A peer, us, and the ratio that is asked for."""

    group: str
    title: str
    peer: Contender
    ours: Contender
    at_least: float | None = None  # peer / ours
    at_most: float | None = None  # ours / peer
    agree: Callable[[Any, Any], str] = lambda peer, ours: "not comparable"
    most_gigabytes: float | None = None
    or_seconds: float | None = None  # good enough whatever the ratio is


@dataclass(frozen=True)
class Timed:
    """What work returns that knows better than the clock what it took."""

    seconds: float
    answer: Any = None


@dataclass
class Measurement:
    """What a contender took."""

    seconds: list[float] = field(default_factory=list)
    gigabytes: float = 0.0
    answer: Any = None
    processor: list[float] = field(
        default_factory=list
    )  # of all threads; says more on a busy machine

    @property
    def median(self) -> float:
        """Median of the seconds."""
        return statistics.median(self.seconds)


def _work(contender: Contender, pipe: Any) -> None:
    """Repeat the work whenever the other end of the pipe says so; then tell what it took."""
    data = contender.prepare()
    answer = contender.work(data) if contender.warm_up else None
    seconds, processor = [], []
    pipe.send(None)
    while pipe.recv():
        start, used = time.perf_counter(), time.process_time()
        answer = contender.work(data)
        seconds.append(time.perf_counter() - start)
        processor.append(time.process_time() - used)
        if isinstance(answer, Timed):
            seconds[-1], answer = answer.seconds, answer.answer
        pipe.send(None)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    pipe.send(Measurement(seconds, peak, answer, processor))
    pipe.close()
    os._exit(0)  # a normal exit would wait minutes for loky's idle workers


class _Worker:
    """A contender in a process of its own, ready for its first repeat."""

    def __init__(self, contender: Contender) -> None:
        context = multiprocessing.get_context("spawn")  # loky does not survive a fork
        self.contender = contender
        self.done = 0
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(contender, theirs))
        self._process.start()
        theirs.close()
        self._answer()

    def _answer(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError:
            raise SystemExit(f"{self.contender.name} died without an answer") from None

    @property
    def share(self) -> float:
        """How much of the repeats is done."""
        return self.done / self.contender.repeats

    def repeat(self) -> None:
        """Do the work once more."""
        self._pipe.send(True)
        self._answer()
        self.done += 1

    def finish(self) -> Measurement:
        """What all repeats took."""
        self._pipe.send(False)
        result: Measurement = self._answer()
        self._process.join()
        return result


def measure(*contenders: Contender) -> list[Measurement]:
    """Run contenders in turn, so that a slow minute of the machine meets all of them.

    Each has a process of its own, which waits while another one works.
    """
    workers = [_Worker(contender) for contender in contenders]
    while any(worker.share < 1 for worker in workers):
        min(workers, key=lambda worker: worker.share).repeat()
    return [worker.finish() for worker in workers]


def verdict(job: Job, ratio: float, ours: Measurement) -> str:
    """Whether the job reaches what it should."""
    ok = True
    if job.at_least is not None:
        ok = ratio >= job.at_least
    if job.at_most is not None:
        ok = 1 / ratio <= job.at_most
    if job.or_seconds is not None:
        ratio_counts = job.at_least is not None or job.at_most is not None
        ok = (ok and ratio_counts) or ours.median <= job.or_seconds
    if job.most_gigabytes is not None:
        ok = ok and ours.gigabytes <= job.most_gigabytes
    return "reached" if ok else "MISSED"


def run(jobs: list[Job]) -> list[dict[str, Any]]:
    """Measure every job and print a line for each."""
    rows = []
    for job in jobs:
        peer, ours = measure(job.peer, job.ours)
        ratio = peer.median / ours.median
        row = {
            "group": job.group,
            "job": job.title,
            "peer": job.peer.name,
            "peer_seconds": round(peer.median, 4),
            "peer_spread": [round(min(peer.seconds), 4), round(max(peer.seconds), 4)],
            "ours": job.ours.name,
            "our_seconds": round(ours.median, 4),
            "our_spread": [round(min(ours.seconds), 4), round(max(ours.seconds), 4)],
            "ratio": round(ratio, 2),
            "asked": _asked(job),
            "verdict": verdict(job, ratio, ours),
            "peer_gigabytes": round(peer.gigabytes, 2),
            "our_gigabytes": round(ours.gigabytes, 2),
            "answers": job.agree(peer.answer, ours.answer),
        }
        rows.append(row)
        print(
            f"{job.group:8s} {job.title:58s} {row['peer_seconds']:>10} s {row['our_seconds']:>9} s "
            f"{ratio:>8.1f}x  asked {row['asked']:22s} {row['verdict']:8s} "
            f"{row['our_gigabytes']:.2f} GB  {row['answers']}",
            flush=True,
        )
    return rows


def _asked(job: Job) -> str:
    words = []
    if job.at_least is not None:
        words.append(f">= {job.at_least:g}x faster")
    if job.at_most is not None:
        words.append(f"<= {job.at_most:g}x its time")
    if job.or_seconds is not None:
        words.append(f"{'or ' if words else ''}< {job.or_seconds:g} s")
    if job.most_gigabytes is not None:
        words.append(f"< {job.most_gigabytes:g} GB")
    return ", ".join(words) or "reported"
