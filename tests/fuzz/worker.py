"""A process that tries mutants one after the other, and is started anew after it died."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable
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
        for stream, put in (
            (self.process.stdout, self.replies.put),
            (self.process.stderr, self.errors.append),
        ):
            threading.Thread(target=_pump, args=(stream, put), daemon=True).start()

    def ask(self, seed: int, number: int, seconds: float) -> tuple[Any, str | None]:
        """Try one mutant; return the answer, or what was on stderr and why there is no answer."""
        self.errors.clear()
        try:
            self.process.stdin.write(f"{seed} {number}\n")
            self.process.stdin.flush()
        except OSError:  # it died between two mutants
            self.close()
            self._start()
            return self.ask(seed, number, seconds)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
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

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def _pump(stream: Any, put: Callable[[str], None]) -> None:
    for line in stream:
        put(line)
