"""Ratios against peers, measured in one run: ``make bench``.

Every contender of a job runs in a process of its own, on the same data, with two threads or jobs:
one warm-up, then several repeats in turn with the other, of which the median and the spread are
reported, and the peak memory of the process. Answers are compared before times are. Prints a
table; ``--json`` writes it.

    python benchmarks/bench.py                 # everything
    python benchmarks/bench.py peers scale     # some groups
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import jobs
import paired
import proven
import start
from harness import THREADS, run

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "speed.md"
HEAD = "| job | peer | ours | peer / ours | peak memory, ours | answers |\n"


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown: medians; results.json has the spread."""
    lines = [HEAD + "|---|---|---|---|---|---|"]
    for row in rows:
        if row["asked"] == "reported":
            continue
        times = [f"{row[f'{who}_seconds']:.3g} s" for who in ("peer", "our")]
        cells = [row["job"], *times, f"{row['ratio']:.1f}x"]
        cells += [f"{row['our_gigabytes']} GB", row["answers"]]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def fill_page() -> None:
    """Put the rows of results.json into docs/speed.md."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, after = text.partition(HEAD)
    rest = after[after.index("\n\n") :]
    rows = json.loads((HERE / "results.json").read_text(encoding="utf-8"))
    PAGE.write_text(before + table(rows) + rest, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "groups", nargs="*", help="peers, scale, single, full, certified, paired, start, proven"
    )
    parser.add_argument("--only", default="", help="only jobs whose title contains this")
    parser.add_argument("--json", type=Path, help="write the rows here")
    parser.add_argument("--page", action="store_true", help="only fill the table of docs/speed.md")
    arguments = parser.parse_args()
    if arguments.page:
        fill_page()
        return
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
        cells = proven.measure()
        if arguments.json:
            proven.fill_page(cells)


if __name__ == "__main__":
    main()
