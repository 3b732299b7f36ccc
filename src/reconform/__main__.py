"""The command ``reconform``, and ``python -m reconform``."""

from __future__ import annotations

import gc

from .cli import main


def run() -> None:
    """Run the command line, as the only thing that this process does."""
    # What was imported stays to the end: the collector need not go through it again and again.
    gc.freeze()
    main(prog_name="reconform")


if __name__ == "__main__":
    run()
