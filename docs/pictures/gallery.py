"""Examples that are shown with what they print and draw: runs them, and keeps both.

    python docs/pictures/gallery.py                  # the gallery and all notebooks
    python docs/pictures/gallery.py transactions     # a notebook

docs/gallery.md: an SVG beside this file for every example with a `picture`, named after its
heading. docs/notebooks/NAME.py: scripts in cells (``# %%``), which editors and Jupytext open as
notebooks. Each becomes the page NAME.md, with the output of every cell, the `table` (Markdown) and
the `picture` that it made, whose title is what those read who do not see it. The site shows the
pages and runs nothing; tests run the scripts and compare.
"""

from __future__ import annotations

import re
import sys
import textwrap
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "gallery.md"
NOTEBOOKS = HERE.parent / "notebooks"
sys.path.append(str(HERE.parents[1] / "results"))  # the paper's tables


def draw_gallery() -> None:
    """Run the page from top to bottom, as the tests do, and write every picture."""
    names: dict[str, Any] = {}
    text = PAGE.read_text(encoding="utf-8")
    sections = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    for heading, section in sections:
        for block in re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
            exec(compile(block, str(PAGE), "exec"), names)
            path = HERE / f"{heading.lower().replace(' ', '-')}.svg"
            names["picture"].save(str(path))
            print(path.name)


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
    start = f"*A notebook: `docs/notebooks/{script.name}`, with what it printed and drew.*"
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
    if not chosen:
        draw_gallery()
    for script in sorted(NOTEBOOKS.glob("*.py")):
        if not chosen or script.stem in chosen:
            page, pictures = run(script)
            script.with_suffix(".md").write_text(page, encoding="utf-8")
            for file, picture in pictures.items():
                picture.save(str(HERE / file))
            print(script.stem, *pictures)


if __name__ == "__main__":
    main()
