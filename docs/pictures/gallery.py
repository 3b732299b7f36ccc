"""What the pages show that code makes: figures, and what commands and examples print.

    python docs/pictures/gallery.py                  # everything
    python docs/pictures/gallery.py figures          # or a notebook, or a page, by its name

Figures are drawn by figures.py. Notebooks are scripts in cells (``# %%``), docs/notebooks/NAME.py,
which editors open; each becomes NAME.ipynb and the page NAME.md, with the output of every cell, the
`table` (Markdown) and the `picture` that it made, whose title is what those read who do not see it.
In the `SHOWN` pages a ``text`` block behind a ``python`` or ``bash`` block is what that printed:
blocks run from top to bottom in an empty folder. The site shows the pages and runs nothing; tests
run all of it and compare.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from contextlib import chdir, redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NOTEBOOKS = HERE.parent / "notebooks"
SHOWN = (ROOT / "README.md", HERE.parent / "start.md")
SHOWN_ROWS = 16  # of one command; more is cut
sys.path.append(str(HERE))


def draw_figures() -> None:
    """Draw every figure beside this file."""
    for name, made in import_module("figures").FIGURES.items():
        made().save(str(HERE / f"{name}.svg"))
        print(name)


def refreshed(page: Path) -> str:
    """The page with what its commands and examples print today."""
    names: dict[str, Any] = {}
    pattern = r"^```(python|bash)\n(.*?)^```(\n\n```text\n.*?^```)?"

    def again(block: re.Match[str]) -> str:
        language, code, shown = block.groups()
        printed = StringIO()
        if language == "python":
            with redirect_stdout(printed):
                exec(compile(code, str(page), "exec"), names)
        else:
            for line in code.replace("\\\n", " ").splitlines():
                if shlex.split(line)[:1] == ["reconform"]:
                    printed.write(command(shlex.split(line)[1:]))
        if shown is None:
            return block[0]
        return f"```{language}\n{code}```\n\n```text\n{cut(printed.getvalue())}\n```"

    with TemporaryDirectory() as folder, chdir(folder):
        return re.sub(pattern, again, page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def command(arguments: list[str]) -> str:
    """What a command of reconform prints."""
    said = subprocess.run(
        [sys.executable, "-m", "reconform", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
    )
    if said.returncode:
        raise RuntimeError(said.stderr)
    return said.stdout


def cut(printed: str) -> str:
    """The first lines of an output, broken where they are too long; "..." for the others."""
    lines = [part for line in printed.strip("\n").splitlines() for part in folded(line.rstrip())]
    return "\n".join(lines if len(lines) <= SHOWN_ROWS else [*lines[:SHOWN_ROWS], "..."])


def cells(script: str) -> list[tuple[str, str]]:
    """The cells of a script in their order: ("text", Markdown) or ("code", Python)."""
    _, *parts = re.split(r"^# %%(.*)\n", script, flags=re.MULTILINE)
    made = []
    for mark, body in zip(parts[::2], parts[1::2], strict=True):
        if mark.strip() == "[markdown]":
            made.append(("text", re.sub(r"^# ?", "", body, flags=re.MULTILINE).strip()))
        else:
            made.append(("code", body.strip()))
    return made


def jupyter(script: str) -> str:
    """The script as a notebook for Jupyter, not yet run; a picture that a cell made is shown."""
    made = []
    for number, (kind, body) in enumerate(cells(script)):
        cell: dict[str, Any] = {"cell_type": "markdown", "id": f"cell-{number}", "metadata": {}}
        if kind == "code":
            cell |= {"cell_type": "code", "execution_count": None, "outputs": []}
            body += "\npicture" if re.search("^picture = ", body, flags=re.MULTILINE) else ""
        made.append({**cell, "source": body})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(about, indent=1, ensure_ascii=False) + "\n"


def run(script: Path) -> tuple[str, dict[str, Any]]:
    """Run a notebook: its page, and its pictures by the names of their files."""
    names: dict[str, Any] = {"__name__": "__main__"}
    pieces: list[str] = []
    pictures: dict[str, Any] = {}
    for kind, body in cells(script.read_text(encoding="utf-8")):
        if kind == "text":
            pieces.append(body)
            continue
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(body, str(script), "exec"), names)
        pieces.append(f"```python\n{body}\n```")
        if printed.getvalue().strip():
            lines = printed.getvalue().strip("\n").splitlines()
            shown = [part for line in lines for part in folded(line.rstrip())]
            pieces.append("\n".join(["```text", *shown, "```"]))
        if (table := names.pop("table", None)) is not None:
            pieces.append(table.strip())
        if (picture := names.pop("picture", None)) is not None:
            file = f"{script.stem}-{len(pictures) + 1}.svg"
            pictures[file] = picture
            pieces.append(f"![{picture.title}](../pictures/{file})")
    start = f"*What a notebook printed and drew: [open it in Jupyter]({script.stem}.ipynb).*"
    return "\n\n".join([pieces[0].split("\n\n")[0], start, *after(pieces)]) + "\n", pictures


def folded(line: str) -> list[str]:
    """A line of output; sentences that are too long for a page are broken at words."""
    return textwrap.wrap(line, 100) if len(line) > 110 else [line]


def after(pieces: list[str]) -> list[str]:
    """What follows the title."""
    return [pieces[0].partition("\n\n")[2], *pieces[1:]]


def main() -> None:
    """Run what is named, or everything."""
    chosen = sys.argv[1:]
    if not chosen or "figures" in chosen:
        draw_figures()
    for page in SHOWN:
        if not chosen or page.stem in chosen:
            page.write_text(refreshed(page), encoding="utf-8")
            print(page.name)
    for script in sorted(NOTEBOOKS.glob("*.py")):
        if not chosen or script.stem in chosen:
            page_text, pictures = run(script)
            script.with_suffix(".md").write_text(page_text, encoding="utf-8")
            made = jupyter(script.read_text(encoding="utf-8"))
            script.with_suffix(".ipynb").write_text(made, encoding="utf-8")
            for file, picture in pictures.items():
                picture.save(str(HERE / file))
            print(script.stem, *pictures)


if __name__ == "__main__":
    main()
