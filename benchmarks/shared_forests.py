"""jackknife+ with isolation forests that share their trees: time and memory, by size.

    python benchmarks/shared_forests.py                       # this tree, n = 5,000 and 1,000,000
    python benchmarks/shared_forests.py --against ../other    # another checkout as well, in turn
    python benchmarks/shared_forests.py --n 5000 --repeats 9

Fit and p-values of m = 1,000 new rows with 10 features, two threads. Every cell runs in a process
of its own: once to warm up, then the repeats, of which the median and the spread are printed, the
median of the processor seconds, which says more on a busy machine, and the peak memory of the
process. With ``--against`` both trees are measured one right after the other for every n, by the
same Python, and their p-values are compared.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from harness import THREADS, Contender, Measurement, measure
from jobs import correlation, gaussian, reconform

HERE = Path(__file__).resolve().parent.parent


def rows_in(tree: Path, n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Make the rows, in a process whose `reconform` is that of a tree."""
    source = tree / "src"
    sys.path.insert(0, str(source))
    import reconform as package

    found = Path(package.__file__).resolve()
    if not found.is_relative_to(source.resolve()):
        raise SystemExit(f"reconform comes from {found}, and not from {source}")
    return gaussian(n, m)


def forests_of(tree: Path, n: int, m: int, repeats: int) -> Contender:
    work = partial(reconform, detector="iforest", method="jackknife+")
    return Contender(str(tree), partial(rows_in, tree, n, m), work, repeats)


def cells(got: Measurement) -> list[str]:
    spread = f"{min(got.seconds):.2f} to {max(got.seconds):.2f}"
    return [
        f"{got.median:.2f} ({spread})",
        f"{median(got.processor):.2f}",
        f"{got.gigabytes:.2f}",
    ]


def line(*shown: Any) -> str:
    return f"| {' | '.join(map(str, shown))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="another checkout to measure as well")
    parser.add_argument("--n", type=int, nargs="+", default=[5_000, 1_000_000])
    parser.add_argument("--m", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    other = arguments.against
    if other is not None and not (other / "src" / "reconform").is_dir():
        parser.error(f"--against {other} is no checkout: it has no src/reconform")
    print(f"iforest, jackknife+, m = {arguments.m:,}, {THREADS} threads; medians (spread)\n")
    heads = ["n", "s", "processor s", "GB"]
    if other is not None:
        heads += [f"{head}, other tree" for head in heads[1:]] + ["p-values"]
    print(line(*heads), line(*["---"] * len(heads)), sep="\n", flush=True)
    for n in arguments.n:
        sizes = n, arguments.m, arguments.repeats
        trees = [HERE] if other is None else [HERE, other]
        now, *before = measure(*[forests_of(tree, *sizes) for tree in trees])
        shown = cells(now)
        for one in before:
            shown += [*cells(one), correlation(one.answer, now.answer)]
        print(line(f"{n:,}", *shown), flush=True)


if __name__ == "__main__":
    main()
