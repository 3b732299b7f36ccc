"""The recipe of `reconform.methods.MethodRow`, followed with a toy method.

A class with `plan` and one row of the table, and the estimator, files, lists, the study and the
command line know it. No comparison of a method's name is left that would have to learn it.
"""

import ast
from pathlib import Path

import numpy as np
import pytest

import reconform
from reconform import ConformalDetector, Resampling
from reconform.grouping import check_groupable
from reconform.methods import METHODS, Method, MethodRow, Plan, method_names, named, resolve_method
from reconform.models import load, save
from reconform.statistics.certificates import TABLE
from reconform.study.subjects import name_of
from refusals import refused


class Halves(Method):
    """Two models: one on the first half of the rows, one on the others."""

    def __init__(self, variant="plus"):
        self.variant = variant

    def _plan(self, n, groups, seed, shuffle):
        first, others = np.array_split(np.arange(n), 2)
        return Plan(n, (first, others), (others, first), scheme="halves", variant=self.variant)


NAMES = {"halves": {"variant": "basic"}, "halves+": {}}
ROW = MethodRow("halves", Halves, NAMES, guarantee="resampling", resamples=True)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(METHODS, ROW.name, ROW)


def data():
    rng = np.random.default_rng(5)
    return rng.normal(size=(100, 3)), np.vstack([rng.normal(size=(25, 3)), np.full((5, 3), 7.0)])


@pytest.mark.parametrize("detector", ["knn", "iforest", "mahalanobis"])
def test_a_row_is_enough(registered, detector, tmp_path):
    X, new = data()
    cad = ConformalDetector(detector, "halves+", random_state=0).fit(X)
    literal = Resampling([np.arange(50), np.arange(50, 100)])
    same = ConformalDetector(detector, literal, random_state=0).fit(X)
    assert np.array_equal(cad.p_values(new), same.p_values(new))
    found = cad.discover(new, fdr=0.2)
    assert found.mask[-5:].all()
    assert "measured, not proven, for BH on resampling" in found.guarantee
    path = tmp_path / "halves.rcad"
    save(cad, path)
    assert np.array_equal(load(path).p_values(new), cad.p_values(new))
    assert cad.rank(new, variant="plus").at_most.shape == (30,)
    assert (named(resolve_method("halves")), name_of(Halves)) == (("halves", {}), "Halves")
    refused(r"halves.* has no ranks within groups", check_groupable, cad.plan_, "halves+")


def test_an_object_of_the_method_is_saved_too(registered, tmp_path):
    X, _ = data()
    cad = ConformalDetector("knn", Halves("basic"), random_state=0).fit(X)
    save(cad, tmp_path / "halves.rcad")
    assert load(tmp_path / "halves.rcad").method.get_params() == {"variant": "basic"}


def test_rows_agree_with_what_they_name():
    names = {row.name for row in TABLE}
    for name, row in METHODS.items():
        assert name == row.name
        assert {row.guarantee, row.repeated, row.with_batch} - {""} <= names
        assert bool(row.with_batch) == row.takes_choice
        assert sum(map(bool, (row.one_model, row.augments, row.resamples, row.fits_batch))) == 1
        for typed in row.called:
            assert method_names()[typed][0] is row.kind
            assert resolve_method(typed).plan(20, random_state=0).row is row


def test_no_name_of_a_method_is_compared_outside_the_table():
    found = []
    for path in sorted(Path(reconform.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare) and any(
                isinstance(side, ast.Attribute | ast.Name)
                and "scheme" in (getattr(side, "attr", ""), getattr(side, "id", ""))
                and any(isinstance(leaf, ast.Constant) for leaf in ast.walk(node))
                for side in (node.left, *node.comparators)
            ):
                found.append(f"{path.name}:{node.lineno}")
    assert [place for place in found if not place.startswith(("address", "files"))] == []
