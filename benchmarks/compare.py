"""The tables of docs/comparison.md: asks every package, and writes what it hears into the page.

    make compare                           # both of the following, where all four are installed
    python benchmarks/compare.py --ask     # runs probes and the code on the page: comparison.json
    python benchmarks/compare.py --write   # fills the tables of the page, and asks nobody

Tables stand between ``<!-- compare: NAME -->`` and ``<!-- /compare -->``; everything else on the
page is written by hand. Features are the rows of ``probes.py``. ``--ask`` runs the code on the page
on DRAWS draws of its data (the seed of the first block is counted up); our blocks, marked
``python``, are run by the tests as well, those of other packages are marked ``py``. Speed comes
from ``results.json`` (`make bench`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import probes

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "comparison.md"
STORED = HERE / "comparison.json"
BENCH = HERE / "results.json"
DRAWS = 50


# --- the code on the page ------------------------------------------------------------------------


def sections(page: str) -> dict[str, str]:
    """Jobs with code side by side, by heading: sections that have a table of what was found."""
    parts = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    return {heading: text for heading, text in parts if "<!-- compare: found -->" in text}


def contenders(section: str) -> dict[str, str]:
    """The code of each package in a section; the block without a name makes the data."""
    blocks = re.findall(
        r"(?:^\*\*(\w+)\*\*\n\n)?^```(?:python|py)\n(.*?)^```", section, re.DOTALL | re.MULTILINE
    )
    return {name or "data": code for name, code in blocks}


def fingerprint(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()[:12]


def found(code: str, data: str, draws: int) -> dict[str, Any]:
    """Mean share of false ones and power of the lists that code makes."""
    shares, powers = [], []
    for draw in range(draws):
        names: dict[str, Any] = {}
        exec(data.replace("default_rng(0)", f"default_rng({draw})"), names)
        exec(code, names)
        mask, true = np.asarray(names["flagged"], bool), np.asarray(names["anomalous"], bool)
        shares.append((mask & ~true).sum() / max(1, mask.sum()))
        powers.append((mask & true).sum() / true.sum())
    error = stdev(shares) / draws**0.5
    return {"fdr": mean(shares), "error": error, "power": mean(powers), "draws": draws}


def ask() -> dict[str, Any]:
    """Ask every package."""
    columns = {package: probes.column(package) for package in probes.PACKAGES}
    jobs: dict[str, Any] = {}
    for heading, section in sections(PAGE.read_text("utf-8")).items():
        data, *_ = (codes := contenders(section)).values()
        for package, code in codes.items():
            if package != "data":
                result = {**found(code, data, DRAWS), "code": fingerprint(data + code)}
                jobs.setdefault(heading, {})[package] = result
                print(heading, package, result, flush=True)
    return {
        "python": platform.python_version(),
        "versions": {package: version(package) for package in probes.PACKAGES},
        "features": columns,
        "jobs": jobs,
    }


# --- the tables ----------------------------------------------------------------------------------


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def names(stored: dict[str, Any]) -> list[str]:
    shown = {"reconform": "reconform", "nonconform": "nonconform", "pyod": "PyOD", "fcnd": "fcnd"}
    return [f"{shown[package]} {stored['versions'][package]}" for package in probes.PACKAGES]


def features(stored: dict[str, Any]) -> str:
    """One row per feature, one column per package."""
    columns = [stored["features"][package] for package in probes.PACKAGES]
    titles = list(columns[0])
    rows = [[title, *(column[title] for column in columns)] for title in titles]
    return table(["", *names(stored)], rows)


def job(stored: dict[str, Any], heading: str) -> str:
    """What the code of a section found."""
    rows = [
        [package, f"{cell['fdr']:.3f} ± {cell['error']:.3f}", f"{cell['power']:.2f}"]
        for package, cell in stored["jobs"][heading].items()
    ]
    draws = next(iter(stored["jobs"][heading].values()))["draws"]
    return table([f"{draws} draws", "share of false ones", "found"], rows)


def speed(bench: list[dict[str, Any]]) -> str:
    """Jobs of `make bench` against nonconform."""
    rows = [
        [
            row["job"].replace(", against nonconform", ""),
            f"{row['peer_seconds']:.3g} s",
            f"{row['our_seconds']:.3g} s",
            f"{row['ratio']:.0f}x",
            row["answers"],
        ]
        for row in bench
        if row["peer"].startswith("nonconform")
    ]
    return table(["job", "nonconform", "reconform", "ratio", "answers"], rows)


def filled(page: str, stored: dict[str, Any], bench: list[dict[str, Any]]) -> str:
    """The page with its tables."""
    heading = ""

    def fill(match: re.Match[str]) -> str:
        nonlocal heading
        if match["heading"]:
            heading = match["heading"]
            return match[0]
        made = {
            "features": lambda: features(stored),
            "found": lambda: job(stored, heading),
            "speed": lambda: speed(bench),
        }[match["name"]]()
        return f"<!-- compare: {match['name']} -->\n\n{made}\n\n<!-- /compare -->"

    block = r"<!-- compare: (?P<name>\w+) -->(?:.|\n)*?<!-- /compare -->"
    return re.sub(rf"^## (?P<heading>.*)$|{block}", fill, page, flags=re.MULTILINE)


def written(page: str) -> str:
    """The page as the stored answers have it."""
    stored, bench = (json.loads(path.read_text("utf-8")) for path in (STORED, BENCH))
    return filled(page, stored, bench)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ask", action="store_true", help="run the probes and the code")
    parser.add_argument("--write", action="store_true", help="fill the tables of the page")
    arguments = parser.parse_args()
    if arguments.ask:
        warnings.simplefilter("ignore")
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)  # some probes write model files
            answers = ask()
            os.chdir(HERE)
        STORED.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n", "utf-8")
    if arguments.write:
        PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
