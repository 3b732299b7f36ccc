"""The shape of the source: what issue 11 asked for, kept true by counting."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import measure

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "reconform"

LONGEST, MOST_PARAMETERS, MOST_LAYERS = 80, 8, 9

# scikit-learn's contract wants every parameter of an estimator in `__init__`.
ESTIMATORS = {"detector.py ConformalDetector.__init__", "detectors/knn/__init__.py KNN.__init__"}

# Every detector is a folder of the same rooms (docs/architecture.md).
ROOMS_OF_DETECTORS = {"ensembles", "kernels", "model"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE), ast.parse(path.read_text(encoding="utf-8"))


def functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, Function]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function):
            yield within + node.name, node
        named = isinstance(node, Function | ast.ClassDef)
        yield from functions(node, f"{within}{node.name}." if named else within)


def outside_kernels() -> Iterator[tuple[str, Function]]:
    """Compiled code takes plain arrays, many of them, and a loop is not cut for its length."""
    for path, tree in trees():
        for name, function in functions(tree):
            compiled = any("njit" in ast.unparse(one) for one in function.decorator_list)
            if "kernels" not in path.stem and not compiled:
                yield f"{path.as_posix()} {name}", function


def parameters(function: Function) -> int:
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return len(every) - (bool(every) and every[0].arg in ("self", "cls"))


def test_no_function_is_long():
    lengths = {name: one.end_lineno - one.lineno + 1 for name, one in outside_kernels()}
    assert len(lengths) > 1_000, "the functions were found"
    assert {name: n for name, n in lengths.items() if n > LONGEST} == {}


def test_many_parameters_are_a_value():
    many = {name for name, function in outside_kernels() if parameters(function) > MOST_PARAMETERS}
    assert many == ESTIMATORS


def test_names_mean_one_thing():
    modules, classes = defaultdict(list), defaultdict(list)
    for path, tree in trees():
        if path.stem not in ("__init__", *ROOMS_OF_DETECTORS):
            modules[path.stem].append(path.as_posix())
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(path.as_posix())
    for places in (modules, classes):
        assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_layers_are_few_and_hold_every_module():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    layers = contract["layers"]
    assert len(layers) <= MOST_LAYERS
    named = [name.strip() for layer in layers for name in layer.split(":")]
    modules = {f"reconform.{p.stem}" for p in SOURCE.glob("*.py") if p.stem != "__init__"}
    packages = {f"reconform.{p.parent.name}" for p in SOURCE.glob("*/__init__.py")}
    assert sorted(named) == sorted(modules | packages)


def test_the_page_names_every_folder():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    folders = [f"{path.parent.name}/" for path in SOURCE.glob("*/__init__.py")]
    assert [name for name in folders if f"`{name}`" not in page] == []


def test_the_counts_are_within_their_limits():
    """Gates: a feature that needs more room makes it first; `make measure` prints the counts."""
    counted = {**measure.shape(), **measure.paths()}
    assert set(counted) == set(measure.LIMITS)
    assert {what: n for what, n in counted.items() if n > measure.LIMITS[what]} == {}
