"""What both fuzzers share: a process that tries mutants, the one that asks it, memory, arguments.

A mutant is made from the seed and its number alone. The process that tries them lives on until
something kills it, and is started anew. ``--first N --count 1`` repeats number N of a seed;
``--keep FOLDER`` keeps its files.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

LONGEST_SECONDS = 60
MOST_MEGABYTES = 1_000


class Worker:
    """A process that is asked for mutants by seed and number, a line each, and answers in JSON."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self._start()

    def _start(self) -> None:
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
        self.replies: queue.Queue[str] = queue.Queue()
        self.errors: list[str] = []
        out = self.process.stdout, self.replies.put
        err = self.process.stderr, self.errors.append
        self.pumps = [threading.Thread(target=_pump, args=to, daemon=True) for to in (out, err)]
        for pump in self.pumps:
            pump.start()

    def ask(self, seed: int, number: int, seconds: float) -> tuple[Any, str | None]:
        """Try one mutant; return the answer, or what was on stderr and why there is no answer.

        The seconds are of the processor, so that a busy machine is no finding; of the clock, ten
        times as many pass.
        """
        self.errors.clear()
        try:
            self.process.stdin.write(f"{seed} {number}\n")
            self.process.stdin.flush()
        except OSError:  # it died between two mutants
            self.close()
            self._start()
            return self.ask(seed, number, seconds)
        end, most = time.monotonic() + 10 * seconds, self._processor_seconds() + seconds
        while time.monotonic() < end and self._processor_seconds() < most:
            try:
                return json.loads(self.replies.get(timeout=0.2)), None
            except queue.Empty:
                if self.process.poll() is not None:
                    break
        code = self.process.poll()
        said = "".join(self.errors)[-3_000:]
        self.close()
        self._start()
        return said, f"more than {seconds:g} s" if code is None else f"the worker died ({code})"

    def _processor_seconds(self) -> float:
        """What the process has used so far; nothing where there is no /proc to tell it."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        with contextlib.suppress(OSError):  # what it did not read
            self.process.stdin.close()
        for pump in self.pumps:
            pump.join(timeout=5)


def _pump(stream: Any, put: Callable[[str], None]) -> None:
    with stream:
        for line in stream:
            put(line)


def megabytes(field: str = "VmHWM") -> float:
    """The largest size of this process, or its size (VmRSS); nothing where there is no /proc."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))
    return 0.0


def forget_the_peak() -> float:
    """Forget the largest size so far, where Linux lets us; return the size now."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return megabytes()
    return megabytes("VmRSS")


def serve(answer: Callable[[int, int], Any]) -> None:
    """Answer the numbers that come in: a line of two in, a line of JSON out."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is no reply
    for line in sys.stdin:
        print(json.dumps(answer(*map(int, line.split()))), file=replies, flush=True)


def fuzz(
    script: str,
    what: str,
    work: Callable[[], None],
    judged: Callable[[Any], tuple[str, list[str]]],
    keep: Callable[[int, int, Path], None],
) -> int:
    """Ask for mutants until time is up, and tell what was found.

    `judged` says how an answer ended and what must not have happened, `keep` writes a mutant.
    """
    parser = argparse.ArgumentParser(description=f"Throw {what} at reconform.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--count", type=int, help="how many; by default as many as time allows")
    parser.add_argument("--seconds", type=float, default=None if "--count" in sys.argv else 60)
    parser.add_argument("--keep", type=Path, help="write the mutants that were found here")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work()
        return 0
    worker = Worker([sys.executable, script, "--worker"])
    worker.ask(options.seed, 0, 600)  # the first makes what all need, and compiles
    start, ends, found = time.monotonic(), Counter[str](), 0
    try:
        for number in range(options.first, options.first + (options.count or sys.maxsize)):
            if options.seconds is not None and time.monotonic() - start > options.seconds:
                break
            answer, trouble = worker.ask(options.seed, number, LONGEST_SECONDS)
            end, said = judged(answer) if trouble is None else (trouble, [trouble, answer])
            if trouble is not None:
                worker.ask(options.seed, 0, 600)
            ends[end] += 1
            if said:
                found += 1
                print(f"Finding: {'; '.join(said)}\n  again: python {script} --seed "
                      f"{options.seed} --first {number} --count 1", flush=True)  # fmt: skip
                if options.keep is not None:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    keep(options.seed, number, options.keep)
    finally:
        worker.close()
    counts = ", ".join(f"{count:,} {end}" for end, count in ends.most_common())
    print(f"{sum(ends.values()):,} {what} in {time.monotonic() - start:.0f} s (seed {options.seed})"
          f": {found} findings. {counts}.")  # fmt: skip
    return 1 if found else 0
