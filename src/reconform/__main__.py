"""The command ``reconform``, and ``python -m reconform``."""

from __future__ import annotations

import gc


def run() -> None:
    """Run the command line, as the only thing that this process does."""
    # What is imported stays to the end: the collector need not go through it again and again.
    gc.disable()
    from .cli import main

    gc.freeze()
    gc.enable()
    main(prog_name="reconform")


if __name__ == "__main__":
    run()
