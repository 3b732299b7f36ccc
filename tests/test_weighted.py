"""Covariate shift: weighted p-values and lists."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.neighbors import LocalOutlierFactor

from commands import run
from reconform import ConformalDetector, ReconformError, Rule, Weights
from reconform.ensemble import AugmentedScores
from reconform.statistics.weighted import ranks_by_refits, ranks_of_one_model, whole_weights
from refusals import refused


def in_units(reference, own):
    """The weights of one E_j, rounded down and up: fractions, and nothing about other new rows."""
    E = [*map(Fraction, map(float, [*reference, own]))]
    bits = min(53, 62 - len(E).bit_length())
    unit = Fraction(2) ** (math.frexp(max(E))[1] - bits)
    return [w // unit for w in E], [-(-w // unit) for w in E]


def by_definition(own, others, rows, reference, new, level):
    """Sums of fractions, row by row, and no sorting."""
    m = len(new)
    result = []
    for i, j in enumerate(rows):
        down, E = in_units(reference, new[j])
        total = sum(down)

        def p(score, E=E, i=i, total=total):
            at_most = Fraction(sum(w for w, s in zip(E, own[i], strict=True) if s <= score), total)
            return min(at_most, Fraction(1))

        p_values = sorted([Fraction(0), *(p(others[i][k]) for k in range(m) if k != j)])
        length = max(k for k in range(1, m + 1) if p_values[k - 1] <= level * k / m)
        line = level * length / m
        found = sum(w for w, s in zip(E, own[i], strict=True) if p(s) <= line)
        mine = p(own[i][-1])
        e = Fraction(total, found) if mine <= line and found else Fraction(0)
        result.append((mine, length, e))
    return result


def spread(rng, size):
    """Weights of all magnitudes, some of them 0 and some of them the same."""
    some = rng.exponential(size=size) * 2.0 ** rng.choice([-1070, -300, -40, -1, 0, 30], size=size)
    return np.where(rng.random(size) < 0.1, 0.0, some) if size > 1 else rng.exponential(size=size)


@pytest.mark.parametrize("seed", range(12))
def test_kernels_against_the_definition(seed):
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 14)), int(rng.integers(1, 9 if seed < 10 else 50))
    ties = seed % 2
    draw = (lambda *shape: rng.integers(0, 5, shape) * 1.0) if ties else rng.normal
    own = draw(m, n + 1) if ties else rng.normal(size=(m, n + 1))
    others = draw(m, m) if ties else rng.normal(size=(m, m))
    ours, theirs = spread(rng, n), spread(rng, m)
    level, order = Fraction(2, 5), rng.permutation(n)
    weights = whole_weights(ours, theirs)
    found = ranks_by_refits([(np.arange(m), own, others, order)], weights, level)
    expected = by_definition(own, others, range(m), ours[order], theirs, level)
    assert found.fractions == [p for p, _, _ in expected]
    assert found.lengths.tolist() == [length for _, length, _ in expected]
    assert found.e_values == [e for _, _, e in expected]


@pytest.mark.parametrize("seed", range(12))
def test_one_model_is_the_same_scores_for_every_row(seed):
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 40)), int(rng.integers(1, 20))
    if seed % 2:
        calibration, scores = rng.integers(0, 6, n) * 1.0, rng.integers(-1, 5, m) * 1.0
    else:
        calibration, scores = rng.normal(size=n), rng.normal(-0.5, 1, size=m)
    weights = whole_weights(spread(rng, n), spread(rng, m))
    level = Fraction(3, 10)
    quick = ranks_of_one_model(calibration, scores, weights, level)
    own = np.column_stack([np.tile(calibration, (m, 1)), scores])
    augmented = np.arange(m), own, np.tile(scores, (m, 1)), None
    slow = ranks_by_refits([augmented], weights, level)
    for name in ("at_most", "total", "lengths", "limits"):
        assert np.array_equal(getattr(quick, name), getattr(slow, name)), name
    assert quick.e_values == slow.e_values


@pytest.mark.parametrize("seed", range(6))
def test_equal_weights_give_the_list_of_benjamini_hochberg(seed):

    rng = np.random.default_rng(seed)
    n, m = 60, 25
    calibration, scores = rng.normal(size=n).round(1), rng.normal(size=m).round(1)
    scores[:6] -= 4
    same = whole_weights(np.full(n, 0.37), np.full(m, 0.37))
    for level in (Fraction(1, 10), Fraction(1, 5), Fraction(1, 2)):
        ranks = ranks_of_one_model(calibration, scores, same, level)
        at_most = 1 + (calibration <= scores[:, None]).sum(axis=1)
        plain = Rule(fdr=level).decide_p_values(at_most / (n + 1), n_calibration=n)
        assert np.array_equal(ranks.p_values, at_most / (n + 1))
        assert np.array_equal(ranks.selected(level), plain.mask)
        assert np.array_equal(ranks.benjamini_hochberg(level), plain.mask)
        assert plain.mask.any()


# --- validity ---


def w_of(X):
    """A weight that is known: large far out."""
    return np.exp(np.minimum(X[:, 0] ** 2, 700.0))


@pytest.mark.parametrize("others", [[[0.4]], [[0.4], [26.0]], [[-2.0], [3.0], [1.9]]])
@pytest.mark.parametrize(
    ("detector", "method"), [("knn", "full"), ("auto", "full"), ("knn", "prefit")]
)
def test_every_row_in_the_place_of_the_new_one(detector, method, others):
    """All worlds of one new row, each as likely as its weight says: exact sums, no simulation.

    Another new row (26.0) whose weight is 10^290 times all others changes nothing.
    """
    rng = np.random.default_rng(3)
    E, X = np.append(rng.normal(size=(11, 1)), [[2.5]], axis=0), np.array(others)
    chances = [Fraction(float(w)) for w in w_of(E)]
    total, found, trained_on = sum(chances), [], rng.normal(size=(30, 1))
    for i in range(len(E)):
        D, T = np.delete(E, i, axis=0), np.append(E[i : i + 1], X, axis=0)
        model = LocalOutlierFactor(5, novelty=True).fit(trained_on)
        cad = ConformalDetector(model if method == "prefit" else detector, method).fit(D)
        weights = Weights(w_of(D), w_of(T))
        one = cad.discover(T, 0.5, weights=weights, validity="proven")
        found.append((one.p_values[0], one.e_values[0], one.mask[0]))
    for t in {p for p, _, _ in found}:
        chance = sum(w for w, (p, _, _) in zip(chances, found, strict=True) if p <= t) / total
        assert chance <= Fraction(t) + Fraction(1, 10**12), t
    mean = sum(w * Fraction(e) for w, (_, e, _) in zip(chances, found, strict=True)) / total
    assert mean <= 1 + Fraction(1, 10**12)


# --- lists ----------------------------------------------------------------------------------------


def tilted(seed, n=300, m=100, t=0.8, anomalies=8):
    rng = np.random.default_rng(seed)
    D, T = rng.normal(size=(n, 2)), rng.normal(size=(m, 2))
    T[:, 0] += t
    T[:anomalies, 1] += 7
    return D, T, Weights(np.exp(t * D[:, 0]), np.exp(t * T[:, 0]))


@pytest.mark.parametrize("method", ["full", "split"])
@pytest.mark.parametrize("detector", ["knn", "iforest", "lof", "kde", "contrast", "auto"])
def test_p_values_against_the_definition(detector, method):
    """Of the scores that the detector gives with every new row there, in the order of the rows."""
    if detector == "contrast" and method == "split":
        pytest.skip("contrast is full-conformal")
    D, T, weights = tilted(0, 40, 12, anomalies=2)
    cad = ConformalDetector(detector, method, random_state=0).fit(D)
    found = cad.discover(T, 0.3, weights=weights)
    w = weights.reference[cad.calibration_.rows]
    if detector == "auto" and method == "full":
        ranks = cad.rank(T, together=True)
        blocks = cad.ensemble_.augmented_by_chosen(T, np.arange(12), ranks.choice.chosen)
    elif method == "full":
        blocks = cad.ensemble_.augmented_scores(T, np.arange(12))
    else:
        ranks = cad.rank(T, together=True)
        scores = ranks.scores
        among = cad.calibration_.scores if ranks.against is None else ranks.against
        own = np.column_stack([np.tile(among, (12, 1)), scores])
        blocks = [AugmentedScores(np.arange(12), own, np.tile(scores, (12, 1)))]
    for augmented in blocks:
        mine = w if augmented.order is None else w[augmented.order]
        for j, own in zip(augmented.rows, augmented.own, strict=True):
            down, up = in_units(mine, weights.new[j])
            at_most = sum(w for w, s in zip(up, own, strict=True) if s <= own[-1])
            assert found.p_values[j] == min(at_most / sum(down), 1.0)


@pytest.mark.parametrize("method", ["full", "split"])
@pytest.mark.parametrize("validity", ["nominal", "proven"])
def test_equal_weights_change_nothing(method, validity):
    D, T, _ = tilted(1)
    cad = ConformalDetector("knn", method, random_state=0).fit(D)
    plain = cad.discover(T, 0.2, validity=validity)
    for value in (1.0, 0.37):
        found = cad.discover(
            T, 0.2, validity=validity, weights=Weights(np.full(300, value), np.full(100, value))
        )
        assert np.array_equal(found.mask, plain.mask)
        assert np.array_equal(found.p_values, plain.p_values)
        assert found.guarantee == plain.guarantee
    assert plain.count


def test_neither_the_order_of_rows_nor_a_common_factor_changes_anything(rng):
    D, T, weights = tilted(2)
    a, b = rng.permutation(300), rng.permutation(100)
    for detector, factor in (("knn", 1.0), ("iforest", 1.0), ("knn", 1e-3), ("knn", 7.7)):
        moved = Weights(factor * weights.reference[a], factor * weights.new[b])
        here = ConformalDetector(detector, "full", random_state=0).fit(D)
        there = ConformalDetector(detector, "full", random_state=0).fit(D[a])
        for validity in ("nominal", "proven"):
            one = here.discover(T, 0.2, weights=weights, validity=validity)
            two = there.discover(T[b], 0.2, weights=moved, validity=validity)
            assert np.array_equal(one.mask[b], two.mask)
            assert one.p_values[b] == pytest.approx(two.p_values, rel=1e-8 * (factor != 1), abs=0)
        assert one.count or detector == "iforest"


def test_what_is_said():
    D, T, weights = tilted(4)
    cad = ConformalDetector("knn", "full").fit(D)
    ask = {"fdr": 0.2, "weights": weights}
    nominal, proven = (cad.discover(T, validity=v, **ask) for v in ("nominal", "proven"))
    assert nominal.guarantee.startswith("FDR measured, not proven, for BH on weighted p-values")
    assert proven.guarantee.startswith("FDR proven (weighted conformal selection) for the list")
    assert "weighted reference rows count as much as" in proven.guarantee
    assert proven.e_values is not None
    assert proven.weights is weights
    assert nominal.verdict.word == "holds"
    assert [finding.check for finding in nominal.verdict.findings] == ["weights"]
    guess = Weights.estimate(D[:, :1], T[:, :1])
    estimated = cad.discover(T, 0.2, weights=guess)
    assert estimated.guarantee.startswith("FDR measured, not proven: the weights are estimated.")
    alarms = cad.discover(T, weights=weights, false_alarms=1)
    assert alarms.guarantee.startswith("Expected number of false alarms at most 1, proven for full")
    assert alarms.mask.tolist() == (alarms.p_values <= 1 / 100).tolist()


def test_rows_of_a_weighted_list_are_explained():
    D, T, weights = tilted(4)
    cad = ConformalDetector("knn", "full").fit(D)
    plain, weighted = cad.discover(T, 0.2), cad.discover(T, 0.2, weights=weights)
    one, two = plain.explain(position=3), weighted.explain(position=3)
    assert (two.features, two.nearest) == (one.features, one.nearest)
    assert f"p = {weighted.p_values[3]:.4g}" in two.headline


def test_the_check_suggests_weights_where_they_help(rng):
    D, T = rng.normal(size=(800, 2)), rng.normal(size=(400, 2))
    cad = ConformalDetector("knn", "full").fit(D)
    near, far = (cad.discover(T + np.array([by, 0])).verdict for by in (0.7, 6.0))
    assert near.word == far.word == "broken"
    assert "weight the reference rows accordingly: `reconform detect --shift 0`" in str(near)
    assert "Weighting the reference rows would not help" in str(far)
    one_by_one = ConformalDetector("knn", "jackknife+").fit(D)  # which takes no weights
    assert "eigh" not in str(one_by_one.discover(T + np.array([0.7, 0])).verdict)
    poor = Weights(np.append(np.full(799, 1e-6), 1.0), np.ones(400))
    assert cad.discover(T, weights=poor).verdict.word == "doubtful"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda D, T: ([1.0], np.ones(100)), "one weight per row that `fit` got, 300; got 1"),
        (lambda D, T: (np.ones(300), np.ones(7)), "one weight per new row, 100; got 7"),
        (lambda D, T: (-np.ones(300), np.ones(100)), "not negative; row 0 .* has -1.0"),
        (lambda D, T: (np.full(300, np.nan), np.ones(100)), "must be finite"),
        (lambda D, T: (np.zeros(300), np.ones(100)), "are all 0"),
        (lambda D, T: (np.ones((300, 1)), np.ones(100)), r"one number per row; got \(300, 1\)"),
    ],
)
def test_weights_that_are_refused(make, sentence):
    D, T, _ = tilted(5)
    with pytest.raises(ReconformError, match=sentence):
        ConformalDetector("knn", "split", random_state=0).fit(D).discover(
            T, weights=Weights(*make(D, T))
        )


@pytest.mark.parametrize(
    ("method", "options", "sentence"),
    [
        ("jackknife+", {}, "use `method='full'` or `method='split'`"),
        ("split", {"procedure": "storey"}, "leave out `procedure='storey'`"),
        ("split", {"conditional": "simes"}, "leave out `conditional`"),
    ],
)
def test_uses_that_are_refused(method, options, sentence):
    D, T, weights = tilted(6)
    with pytest.raises(ReconformError, match=sentence):
        ConformalDetector("knn", method, random_state=0).fit(D).discover(
            T, weights=weights, **options
        )


def test_estimates_that_are_refused():
    D, T, _ = tilted(7)
    cad = ConformalDetector("knn", "full").fit(D)
    with pytest.raises(ReconformError, match="there is none for estimated weights"):
        cad.discover(T, weights=Weights.estimate(D, T), validity="proven")
    refused("tables with the same columns", Weights.estimate, D, T[:, :1])
    refused("at least 5 rows of both tables", Weights.estimate, D, T[:3])
    smoothed = ConformalDetector("knn", "full", ties="randomized", random_state=0).fit(D)
    refused("ties='conservative'", smoothed.discover, T, weights=Weights.estimate(D, T))


def test_estimates_are_near_the_truth():
    D, T, weights = tilted(8, 3000, 3000, 0.5, anomalies=0)
    guess = Weights.estimate(D, T)
    truth = weights.reference * np.exp(-(0.5**2) / 2)
    assert np.median(np.abs(np.log(guess.reference / truth))) < 0.1
    assert guess.usable
    assert not guess.clipped


# --- files ----------------------------------------------------------------------------------------


def test_the_command(tmp_path):
    D, T, _ = tilted(9, 400, 120, 1.0, anomalies=6)
    for name, X in (("normal.csv", D), ("new.csv", T)):
        np.savetxt(tmp_path / name, X, delimiter=",", header="load,heat", comments="")
    both = [str(tmp_path / "normal.csv"), str(tmp_path / "new.csv")]
    common = ["--detector", "knn", "--method", "full", "--json"]
    facts = json.loads(run("detect", *both, *common, "--shift", "load").stdout)
    weights = Weights.estimate(D[:, :1], T[:, :1])
    found = ConformalDetector("knn", "full", random_state=0).fit(D).discover(T, weights=weights)
    assert facts["flagged"] == found.count > 0
    assert "the weights are estimated" in facts["guarantee"]
    out = tmp_path / "out.csv"
    run("detect", *both, *common, "--shift", "load", "--output", out)
    table = np.genfromtxt(out, delimiter=",", names=True, dtype=None, encoding=None)
    assert np.allclose(table["p_value"], found.p_values)
    wrong = run("detect", *both, "--shift", "laod", code=1)
    assert "Did you mean 'load'?" in " ".join(wrong.stderr.split())


@pytest.fixture
def files(tmp_path, monkeypatch):
    D, T, _ = tilted(9, 400, 120, 1.0, anomalies=6)
    for name, X in (("normal", D), ("new", T)):
        frame = pd.DataFrame({"id": [f"{name} {i}" for i in range(len(X))]})
        frame.assign(load=X[:, 0], heat=X[:, 1]).to_csv(tmp_path / f"{name}.csv", index=False)
    monkeypatch.chdir(tmp_path)


KNN = ("--detector", "knn", "--method", "full")


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (("--shift", "load", "--group", "id"), "--shift cannot be combined with --group"),
        (("--shift", "load", *KNN[:2], "--method", "cv+"), "use --method full or --method split"),
        (("--shift", "load", *KNN[:2], "--method", "jackknife+"), "use --method full or"),
        (("--shift", "load", "--method", "learned"), "use --method full or --method split"),
        (("--shift", "load", "--procedure", "by", *KNN), "leave out --procedure by"),
        (("--shift", "load", "--validity", "proven", *KNN), "there is none for estimated"),
    ],
)
def test_what_takes_no_weights_is_refused(files, asked, sentence):
    common = ["normal.csv", "new.csv", "--id", "id", "--output", "out.csv"]
    said = run("detect", *common, *asked, code=2 if "--group" in asked else 1).stderr
    assert sentence in " ".join(said.replace("│", " ").split())
    assert not Path("out.csv").exists()
