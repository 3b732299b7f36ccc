"""The pictures of docs/gallery.md: runs its examples and keeps what each of them draws.

    python docs/pictures/gallery.py

writes an SVG beside this file for every example with a `picture`, named after its heading.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from reconform.study import save_chart

HERE = Path(__file__).parent
PAGE = HERE.parent / "gallery.md"


def main() -> None:
    """Run the page from top to bottom, as the tests do, and write every picture."""
    names: dict[str, Any] = {}
    text = PAGE.read_text(encoding="utf-8")
    sections = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    for heading, section in sections:
        for block in re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
            exec(compile(block, str(PAGE), "exec"), names)
            path = HERE / f"{heading.lower().replace(' ', '-')}.svg"
            print(save_chart(names["picture"], path).name)


if __name__ == "__main__":
    main()
