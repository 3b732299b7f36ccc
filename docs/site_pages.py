"""Pages of the site that are not written by hand: a hook of MkDocs, see mkdocs.yml.

- ``reference/PACKAGE.md``: every name in the ``__all__`` of a package, from its docstring. The
  sources are read, not imported.
- ``changelog.md``, from CHANGELOG.md.
- ``results/``: the tables and charts of the study. On GitHub docs/results.md links to
  ``../results``, which lies outside of the site; here the links lead to these copies.
- In ``api.md``, names in the first column of a table become links to the reference, those of
  classes, too.
- In docstrings choices, ``{"a", "b"}``, are put in words and names become links (`Docstrings`).
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

from griffe import Extension
from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "reconform"
PACKAGES = (
    "detectors",
    "distributed",
    "files",
    "metrics",
    "models",
    "statistics",
    "stream",
    "study",
)
RESULTS = ROOT / "results"
SHOWN = (".csv", ".json", ".md", ".svg", ".tex")


def parsed(package: str) -> ast.Module:
    """The source of the package itself (``""``), or of a package or a module below it."""
    module = SOURCE / f"{package}.py"
    if not module.exists():
        module = SOURCE / package / "__init__.py"
    return ast.parse(module.read_text(encoding="utf-8"))


def public_names(package: str) -> list[str]:
    """Names in its ``__all__``, in their order."""
    for node in parsed(package).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return [name for name in names if not name.startswith("__")]
    raise LookupError(f"reconform.{package} has no __all__")


def reference_page(package: str) -> str:
    """The page of a package: what it is for is in its docstring, then every name."""
    full = f"reconform.{package}" if package else "reconform"
    about = ast.get_docstring(parsed(package)) or ""
    parts = [f"# {full}", about, *(f"::: {full}.{name}" for name in public_names(package))]
    return "\n\n".join([*parts, ""])


def results_page() -> str:
    """The list of the files of the study."""
    files = sorted(path.name for path in RESULTS.iterdir() if path.suffix in SHOWN)
    start = ["# Files of the study", "", "What they say is in [results](../results.md).", ""]
    return "\n".join([*start, *(f"- [{name}]({name})" for name in files), ""])


def on_files(files: Any, config: Any) -> Any:
    """Add the pages."""
    pages = {"reference/reconform.md": reference_page("")}
    pages |= {f"reference/{package}.md": reference_page(package) for package in PACKAGES}
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    pages["changelog.md"] = changes.replace("](docs/", "](")
    pages["results/index.md"] = results_page()
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    for path in sorted(RESULTS.iterdir()):
        if path.suffix in SHOWN:
            files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead links to results/ to the copies, and names in the API page to the reference."""
    up = "../" * page.file.src_uri.count("/")
    markdown = markdown.replace(f"]({up}../results/)", f"]({up}results/index.md)")
    markdown = markdown.replace(f"]({up}../results/", f"]({up}results/")
    return linked(markdown) if page.file.src_uri == "api.md" else markdown


def linked(markdown: str) -> str:
    """The API page with links: a table is about ``reconform``, or what is named above it."""
    known = {"reconform": set(public_names(""))}
    known |= {f"reconform.{name}": set(public_names(name)) for name in PACKAGES}
    owner, lines = "reconform", []
    for line in markdown.splitlines():
        if line.startswith("## "):
            named = re.fullmatch(r"## `(\w+)`", line)
            owner = f"reconform.{named[1]}" if named else "reconform"
        elif head := re.match(r"\| `(reconform\.\w+)` \|", line):
            owner = head[1]
        elif line.startswith("| "):
            _, first, rest = line.split("|", 2)
            line = f"|{linked_names(first, owner, known)}|{rest}"
        lines.append(line)
    return "\n".join(lines)


def linked_names(text: str, owner: str, known: dict[str, set[str]]) -> str:
    """The text with every name that is known as a link to its place in the reference.

    What belongs to a class is linked where the reference has it: not what scikit-learn adds.
    """

    def link(name: re.Match[str]) -> str:
        place = f"{owner}.{name[2]}"
        if owner not in known:
            return f'<autoref optional identifier="{place}"><code>{name[1]}</code></autoref>'
        return f"[{name[0]}][{place}]" if name[2] in known[owner] else name[0]

    return re.sub(r"`((\w+)(?:\(\))?)`", link, text)


class Docstrings(Extension):
    """Write choices in words, and make links of names that the reference has.

    Griffe takes the first of ``{"a", "b"}, default="b"`` for the default, whatever is said behind.
    """

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        """Rewrite the docstring of whatever was read."""
        if obj.docstring is not None:
            obj.docstring.value = with_links(without_braces(obj.docstring.value))


def without_braces(docstring: str) -> str:
    """The docstring with the choices of its parameters in words."""

    def worded(line: re.Match[str]) -> str:
        start, choices, more, end = line.groups()
        return f"{start}{' or '.join(choices.split(', '))}{f' or {more}' if more else ''}{end}"

    others = r"(?:, (?!optional|default)(.+?))?"
    pattern = rf"^(\w+ : (?:\w+ or )?)\{{([^{{}}]+)\}}{others}(, optional|, default=.+|)$"
    return re.sub(pattern, worded, docstring, flags=re.MULTILINE)


@cache
def homes() -> dict[str, str]:
    """The package of every public name; the shortest where there are several."""
    below = {name: f"reconform.{package}" for package in PACKAGES for name in public_names(package)}
    return below | dict.fromkeys(public_names(""), "reconform")


def with_links(docstring: str) -> str:
    """The docstring with links from classes, and from names that begin with ``reconform.``."""
    classes = "|".join(name for name in homes() if name[0].isupper())

    def link(found: re.Match[str]) -> str:
        name = found[2] or found[3]
        place = (
            name if name.startswith("reconform.") else f"{homes()[name.partition('.')[0]]}.{name}"
        )
        return f'<autoref optional identifier="{place}"><code>{name}</code></autoref>'

    ours = r"reconform(?:\.\w+)+"
    pattern = rf"(`{{1,2}})({ours}|(?:{classes})(?:\.\w+)*)\1|(?<![\w`.])({ours})(?![\w`(\[])"
    lines = docstring.splitlines()
    examples = next((i for i, line in enumerate(lines) if line == "Examples"), len(lines))
    told = [re.sub(pattern, link, line) for line in lines[:examples]]
    return "\n".join([*told, *lines[examples:]])
