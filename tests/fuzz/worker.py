"""A process that tries mutants one after the other, and is started anew after it died."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Worker:
    """A process that is asked for mutants by seed and number, a line each, and answers in JSON.

    Parameters
    ----------
    command : list of str
        What to start.
    """

    def __init__(self, command: list[str]) -> None:
        self.command = command
        self._start()

    def _start(self) -> None:
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        self.replies: queue.Queue[str] = queue.Queue()
        self.errors: list[str] = []
        self.pumps = [
            threading.Thread(target=_pump, args=told, daemon=True)
            for told in (
                (self.process.stdout, self.replies.put),
                (self.process.stderr, self.errors.append),
            )
        ]
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
