import importlib.util
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

from oracle import binomial_upper
from reconform import ConformalDetector, methods
from reconform.statistics.certificates import (
    TABLE,
    WITHIN,
    guarantee,
    guarantee_of,
    markdown,
    proven_grid,
)
from reconform.statistics.exact import Grid, from_floats, usual
from reconform.statistics.fdr import ANY, PROCEDURES
from refusals import refused

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("method", "name", "kind"),
    [
        (methods.Split(), "split", "exact"),
        (methods.Split(repeats=3), "repeated split", "exact"),
        (methods.Prefit(), "prefit", "exact"),
        (methods.Full(), "full", "exact"),
        (methods.Jackknife(), "jackknife+", "bounded"),
        (methods.CrossValidation(3), "cv+", "bounded"),
        (methods.Bootstrap(3), "jab+", "measured"),
        (methods.Jackknife("basic"), "basic", "measured"),
        (methods.Bootstrap(3, variant="pooled"), "pooled", "measured"),
        (methods.Resampling([[0, 1]]), "resampling", "measured"),
    ],
    ids=str,
)
def test_every_plan_finds_its_row(method, name, kind):
    row = guarantee_of(method.plan(9))
    assert (row.name, row.kind) == (name, kind)


def test_sentences_follow_from_the_table():
    assert guarantee("split").sentence("bh").startswith("FDR proven for BH on split")
    assert guarantee("full").sentence("by").startswith("FDR proven for BY on full")
    assert "not proven" in guarantee("full").sentence("bh")
    assert "not proven" in guarantee("jackknife+").sentence("by")
    assert "proven" in guarantee("jackknife+").sentence("by", validity="proven")
    assert "not proven" in guarantee("repeated split").sentence("bh")
    for procedure in ("bh", "by"):
        assert "FDR proven" in guarantee("split").sentence(procedure, smoothed=True)
    assert "not proven" in guarantee("split").sentence("storey", smoothed=True)
    assert "not proven" in guarantee("full").sentence("bh", smoothed=True)
    refused("Did you mean 'split'", guarantee, "splot")
    row = guarantee("full")
    assert "false in general" in row.sentence("bh")
    assert "BH false in general" in row.fdr
    assert "false in general" not in row.sentence("by") + guarantee("split").fdr
    cad = ConformalDetector("knn", "cv+").fit(np.arange(40.0).reshape(20, 2))
    for row in (guarantee("cv+"), cad.guarantee_):
        assert "m-1 further rows" in str(row)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_promise_says_what_it_needs(row):
    """Whatever is called proven says when, and over what; nothing is said to hold whatever."""
    alone, anomalies, others = (
        "exchangeable with the reference rows",
        "exchangeable with the reference rows given the anomalies",
        "exchangeable with the reference rows given the other new rows",
    )
    uses_batch = row.name == "full with the batch"
    fits_batch = row.name.endswith(("batch", "learned"))
    for procedure in (*row.proven, *(["bh"] if row.certified else [])):
        level = Fraction(2)
        said = row.sentence(procedure, validity="proven", level=level)
        assert "proven" in said
        assert "not proven" not in said
        if row.certifies(procedure, "proven") or uses_batch:
            wanted = others
        elif PROCEDURES[procedure].proof != ANY or fits_batch:
            wanted = anomalies
        else:
            wanted = alone
        assert wanted in said
        assert (" given the " in said.split(" in every group")[0]) == (wanted != alone)
        assert ("random splits" in said) == row.name.startswith(("split", "repeated", "learned"))
        assert ("of the others" in said) == ("within groups" in row.name)
        assert ("never saw" in said) == (row.name == "prefit")
        assert "whatever" not in said
    told = guarantee("split").sentence("bh", conditional="simes")
    assert "independent draws from one process, and independent of the anomalies" in told


def smoothed(calibration, score, u):
    """(#{c < s} + u (1 + #{c = s})) / (n + 1), exactly."""
    below, equal = (calibration < score).sum(), (calibration == score).sum()
    return (int(below) + u * (1 + int(equal))) / Fraction(len(calibration) + 1)


@pytest.mark.parametrize("scores", [(0, 0, 0, 0, 0), (0, 1, 1, 2, 3), (0, 0, 1, 1, 1), range(5)])
@pytest.mark.parametrize("anomaly", [-1, 1])
@pytest.mark.parametrize("level", [Fraction(1, 4), Fraction(1, 2), Fraction(4, 5)])
def test_bh_on_smoothed_p_values_of_a_split_by_enumeration(scores, anomaly, level):
    """Three of five normal scores calibrate, all choices alike; each u is one of 1/5, ..., 1.

    Such a u has P(u <= t) <= t, which is what the proof uses. With the anomaly there are three new
    rows, two of them normal: the false discovery rate is at most 2/3 of the level.
    """
    values, us = np.array(scores), [Fraction(k, 5) for k in range(1, 6)]
    total, cases = Fraction(0), 0
    for chosen in combinations(range(5), 3):
        calibration = values[list(chosen)]
        new = [*np.delete(values, list(chosen)), anomaly]
        for drawn in product(us, repeat=3):
            p = [smoothed(calibration, s, u) for s, u in zip(new, drawn, strict=True)]
            k = max((k for k in (1, 2, 3) if sorted(p)[k - 1] <= level * k / 3), default=0)
            found = [one <= level * k / 3 for one in p] if k else [False] * 3
            total += Fraction(sum(found[:2]), max(1, sum(found)))
            cases += 1
    assert total / cases <= level * Fraction(2, 3)


@pytest.mark.slow
def test_bh_on_full_exceeds_its_level_with_a_symmetric_detector():
    """The claim of the table, shown: 300 batches of normal rows, each p-value exact.

    If the rate were 0.1, more than 51 of 300 batches would have a discovery with probability
    below 1e-4. It is about 0.22, so that a correct program fails with probability 0.02 over seeds;
    the seed is fixed.
    """
    spec = importlib.util.spec_from_file_location("levels", ROOT / "benchmarks" / "levels.py")
    levels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(levels)
    share, rate = levels.measure_full(300, seed=1)
    assert 300 * rate > binomial_upper(300, 0.1, 1e-4)
    # The ten p-values of a batch depend on each other: four standard errors of 300 of them.
    assert share < 0.1 + 4 * 0.3 / 300**0.5


def test_the_documents_render_the_table():
    page = (ROOT / "docs" / "guarantees.md").read_text()
    lines = markdown().splitlines()
    assert "\n".join(line for line in lines if WITHIN not in line.split(" | ")[0]) in page
    # One sentence of the page says what those within groups have in common.
    for row in (row for row in TABLE if row.name.endswith(WITHIN)):
        alone = guarantee(row.name.removesuffix(WITHIN))
        added = row.p_value.removeprefix(alone.p_value).removeprefix("; ")
        assert added in page
        assert row.fdr == alone.fdr.replace(", EBH", "")
    assert len(TABLE) == len({row.name for row in TABLE})


def as_fractions(grid):
    return [Fraction(int(num), grid.denominator) for num in grid.numerators[1:]]


def test_proven_grids_equal_their_formulas():
    plan = methods.Jackknife().plan(10)
    grid = proven_grid(plan, guarantee_of(plan), 10)
    assert as_fractions(grid) == [min(Fraction(1), Fraction(2 * r - 1, 11)) for r in range(1, 12)]

    n, folds, m = 12, 4, 3
    plan = methods.CrossValidation(folds).plan(n)
    grid = proven_grid(plan, guarantee_of(plan), n)
    assert as_fractions(grid) == [
        min(Fraction(1), Fraction(2 * r + folds - 2, n + folds), Fraction(2 * r + m - 2, n + m))
        for r in range(1, n + 2)
    ]
    plan = methods.CrossValidation(5).plan(n)  # folds of 3, 3, 2, 2, 2: no tournament
    grid = proven_grid(plan, guarantee_of(plan), n)
    expected = [min(Fraction(1), Fraction(2 * r + 3, n + 5)) for r in range(1, n + 2)]
    assert as_fractions(grid) == expected

    plan = methods.Full().plan(5)
    assert as_fractions(proven_grid(plan, guarantee_of(plan), 5)) == as_fractions(usual(5))


def test_the_correction_of_jackknife_plus_is_the_smallest_that_the_tournament_allows():
    """All 3^10 results among five rows: a pair has a loser, or neither of them loses."""
    players, n = 5, 4
    pairs = list(combinations(range(players), 2))
    ranks = np.ones((3 ** len(pairs), players), dtype=np.int64)
    for games, results in zip(ranks, product(range(3), repeat=len(pairs)), strict=True):
        for (i, j), result in zip(pairs, results, strict=True):
            games[i] += result != 0  # i does not lose to j
            games[j] += result != 1
    plan = methods.Jackknife().plan(n)
    grid = proven_grid(plan, guarantee_of(plan), n)
    for r in range(1, n + 2):
        most = int((ranks <= r).sum(axis=1).max())  # P(rank <= r) = E|S| / (n + 1)
        assert most == min(2 * r - 1, n + 1) == int(grid.numerators[r])
    assert grid.denominator == n + 1


@pytest.mark.parametrize("method", ["jab+", "jab", "cv", "jackknife"])
def test_what_is_only_measured_is_refused_as_proven(method, blobs):
    cad = ConformalDetector("knn", method, random_state=0).fit(blobs[0])
    refused("asks for a theorem", cad.p_values, blobs[1], validity="proven")


def test_proven_p_values_and_discoveries(blobs):
    reference, new = blobs
    cad = ConformalDetector("knn", "jackknife+").fit(reference)
    corrected = np.minimum(2 * cad.ranks(new) - 1, 61)
    assert np.array_equal(cad.p_values(new, validity="proven"), corrected / 61)
    found = cad.discover(new, 0.8, procedure="by", validity="proven")
    assert "FDR proven for BY" in found.guarantee
    assert "(proven, if normal new rows" in repr(found)
    assert found.count >= cad.discover(new, 0.4, procedure="by").count > 0
    refused("Did you mean 'proven'", cad.p_values, new, validity="proved")


def test_corrections_need_ranks(blobs):
    cad = ConformalDetector("knn", "jackknife+", ties="randomized").fit(blobs[0])
    refused("smoothed p-values have none", cad.p_values, blobs[1], validity="proven")


def test_grids():
    assert usual(3).table.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    grid = from_floats(np.array([0.0, 1 / 3, 1.0]))
    assert grid.numerators[1] >= grid.denominator / 3
    assert grid.table[1] == pytest.approx(1 / 3)
    refused("nondecreasing", from_floats, np.array([0.0, 0.5, 0.4]))
    refused("nondecreasing", from_floats, np.array([0.0, 0.5, 1.4]))
    assert isinstance(grid, Grid)
