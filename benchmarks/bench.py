"""Ratios against peers, measured in one run: ``make bench``.

Every contender of a job runs in a process of its own, on the same data, with two threads or jobs:
one warm-up, then several repeats, of which the median and the spread are reported, and the peak
memory of the process. Answers are compared before times are. Prints a table; ``--json`` writes it.

    python benchmarks/bench.py                 # everything
    python benchmarks/bench.py peers scale     # some groups
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

import jobs
import paired
import proven
import start
from harness import THREADS, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "groups", nargs="*", help="peers, scale, single, full, certified, paired, start, proven"
    )
    parser.add_argument("--only", default="", help="only jobs whose title contains this")
    parser.add_argument("--json", type=Path, help="write the rows here")
    arguments = parser.parse_args()
    chosen = [job for job in jobs.every() if not arguments.groups or job.group in arguments.groups]
    chosen = [job for job in chosen if arguments.only in job.title]
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, "
        f"{THREADS} threads; median seconds of peer and of ours, ratio peer / ours"
    )
    rows = run(chosen)
    if arguments.json:  # now: the rest prints, and takes long
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")
    if not arguments.groups or "paired" in arguments.groups:
        print("paired  ", json.dumps(paired.measure(), default=str))
    if not arguments.groups or "start" in arguments.groups:
        print("start   ", json.dumps(start.measure(), default=str))
    if not arguments.groups or "proven" in arguments.groups:
        proven.measure()


if __name__ == "__main__":
    main()
