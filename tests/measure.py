"""Counts the shape of the source: `python tests/measure.py [ROOT]`, or `make measure`.

Modules, lines, modules with a single importer, modules under 100 lines, and names at the top level
of the package. They are a sign, not an aim: docs/architecture.md says what a module is.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path

SMALL = 100


def modules_of(root: Path) -> dict[str, Path]:
    """All modules of the package by their dotted names."""
    source = root / "src" / "reconform"
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = ("reconform", *path.relative_to(source).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def importers(modules: dict[str, Path]) -> dict[str, set[str]]:
    """Which modules import each module, anywhere in their text."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, path in modules.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for name in _imported(node, package, modules):
                if name in modules and name != module:
                    found[name].add(module)
    return found


def _imported(node: ast.AST, package: str, modules: dict[str, Path]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    parts = [node.module] if node.module else []
    if node.level:
        above = package.split(".")
        parts = above[: len(above) - (node.level - 1)] + parts
    base = ".".join(parts)
    each = [f"{base}.{alias.name}" for alias in node.names]
    return [name if name in modules else base for name in each]


def measured(root: Path) -> dict[str, int]:
    """All counts, by what they count."""
    modules = modules_of(root)
    lines = {
        name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules.items()
    }
    by = importers(modules)
    small = [
        name for name, path in modules.items() if path.name != "__init__.py" and lines[name] < SMALL
    ]
    return {
        "modules": len(modules),
        "lines": sum(lines.values()),
        "single importer": sum(len(by[name]) == 1 for name in modules),
        f"under {SMALL} lines, without __init__": len(small),
        "top-level names": sum(name.count(".") == 1 for name in modules),
    }


if __name__ == "__main__":
    here = Path(__file__).parent.parent
    for what, count in measured(Path(sys.argv[1]) if len(sys.argv) > 1 else here).items():
        print(f"{what}: {count:,}")
