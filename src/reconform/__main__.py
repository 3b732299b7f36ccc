"""The command ``reconform``, and ``python -m reconform``."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import threading
import time
from contextlib import suppress

INTERRUPTED = 130
_noticed = threading.Event()

# Seconds that a command has to end by itself after Ctrl-C, and to remove temporary files.
PATIENCE, TO_TIDY_UP = 1.2, 0.5


def run() -> None:
    """Run the command line, as the only thing that this process does."""
    # What is imported stays to the end: the collector need not go through it again and again.
    gc.disable()
    try:
        _end_soon_after_interrupt()
        from .cli import main

        gc.freeze()
        gc.enable()
        main(prog_name="reconform")
    except KeyboardInterrupt:  # before a command has begun
        _leave()
    except SystemExit as end:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done, and only has to end
        # Nothing is left to wait for, such as threads; click calls an early Ctrl-C "aborted".
        if end.code == INTERRUPTED or (end.code and _noticed.wait(0.05)):
            _leave()
        raise


def _end_soon_after_interrupt() -> None:
    """Let Ctrl-C end the process also where compiled code of other libraries does not look.

    Python raises `KeyboardInterrupt` when that code returns, which may take minutes. A pipe gets
    the signal at once, and a thread that waits there gives the command a moment to end by itself.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reading,), daemon=True).start()


def _watch(reading: int) -> None:
    while os.read(reading, 1)[0] != signal.SIGINT:
        pass
    _noticed.set()
    time.sleep(PATIENCE)
    with suppress(OSError):
        os.write(2, b"Interrupted. No file is half written.\n")
    _leave()


def _leave() -> None:
    """End the process, whatever its other threads do; what is temporary is removed at exit."""
    tidy = threading.Thread(target=atexit._run_exitfuncs, daemon=True)
    tidy.start()
    tidy.join(TO_TIDY_UP)
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    run()
