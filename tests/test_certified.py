"""Certified lists through the estimator: their level, what they say of themselves, refusals."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.svm import OneClassSVM

from commands import run
from reconform import ConformalDetector, Resampling, Split, Weights, load, report, save
from reconform.detectors import KNN
from reconform.rule import Rule
from refusals import refused

pd = pytest.importorskip("pandas", reason="needs pandas")

METHODS = ("full", "jackknife+", "cv+")


def certified(cad, X, fdr=0.1):
    return cad.discover(X, fdr, validity="proven")


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(3)
    new = rng.normal(size=(60, 2))
    new[:8] += 5
    return rng.normal(size=(150, 2)), new


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("detector", ["knn", OneClassSVM(gamma=0.1)])
def test_a_certified_list(detector, method, batch):
    D, X = batch
    cad = ConformalDetector(detector, method, random_state=0).fit(D)
    found = certified(cad, X)
    plain = cad.discover(X, 0.1)
    assert np.array_equal(found.plain_mask, plain.mask)
    assert found.guarantee.startswith("FDR proven (conditional calibration)")
    kept = (found.mask & plain.mask).sum()
    assert f"Certified {kept} of the {plain.count} rows that Benjamini-Hoch" in found.guarantee
    assert (found.e_values[found.mask] > 0).all()
    assert found.mask[:8].all() if detector == "knn" else found.count <= 60


def test_q_values_are_those_of_plain_bh_and_called_nominal(batch, tmp_path):
    D, X = batch
    cad = ConformalDetector("knn", "full").fit(D)
    found = cad.discover(X, 0.1, validity="proven", top=3)
    plain = cad.discover(X, 0.1)
    assert np.array_equal(found.q_values, plain.q_values)
    assert list(found.to_frame().columns) == ["score", "p_value", "nominal_q_value", "anomaly"]
    assert list(plain.to_frame().columns) == ["score", "p_value", "q_value", "anomaly"]
    for shown in (repr(found), found._repr_html_(), found.explain().headline):
        assert "nominal q" in shown
    page = report(found, tmp_path / "page.html").read_text()
    data = json.loads(re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', page, re.S)[1])
    assert data["evidence"] == "nominal q-value"
    levels = dict(zip(data["levels"], data["counts"], strict=True))
    assert (data["levels"][data["chosen"]], levels[0.1]) == (0.1, found.count)
    assert levels[0.3] == (plain.q_values <= 0.3).sum() > found.count
    told = [said["meaning"].startswith("Nominal: the rows that plain") for said in data["words"]]
    assert not told[data["chosen"]]
    assert told[-1]
    # At other levels the page flags by q-value, whatever was certified.
    places = dict(zip((line[0] for line in data["lines"]), data["plain"], strict=True))
    by_q = np.lexsort((found.scores, found.p_values, found.q_values))
    assert [by_q[places[k + 1] - 1] for k in range(60)] == found.order.tolist()


@pytest.mark.parametrize("detector", ["auto", "knn", ["knn", "iforest"]])
def test_auto_is_proven_for_the_method_auto_on_full(detector, batch):
    D, X = batch
    cad = ConformalDetector(detector, random_state=0).fit(D)
    found, proven = cad.discover(X), cad.discover(X, validity="proven")
    assert found.certified
    assert np.array_equal(found.mask, proven.mask)
    assert (found.guarantee, found.claim.status) == (proven.guarantee, "proven")
    assert not cad.discover(X, validity="nominal").certified
    for options in ({"procedure": "by"}, {"procedure": "storey"}, {"false_alarms": 2}):
        asked, nominal = cad.discover(X, **options), cad.discover(X, validity="nominal", **options)
        assert not asked.certified
        assert np.array_equal(asked.mask, nominal.mask)
        assert asked.guarantee == nominal.guarantee


@pytest.mark.parametrize("method", ["full", "jackknife+", "cv+", "jab+", "split", "batch"])
def test_auto_is_nominal_for_methods_by_name(method, batch):
    D, X = batch
    cad = ConformalDetector("knn", method, random_state=0).fit(D)
    found, nominal = cad.discover(X), cad.discover(X, validity="nominal")
    assert not found.certified
    assert np.array_equal(found.mask, nominal.mask)
    assert np.array_equal(found.q_values, nominal.q_values)
    assert found.guarantee == nominal.guarantee


def test_auto_never_refuses(batch, tmp_path, monkeypatch):
    D, X = batch
    labels = np.arange(len(D)) % 2
    smooth = ConformalDetector("knn", ties="randomized", random_state=0).fit(D)
    assert not smooth.discover(X).certified
    grouped = ConformalDetector("knn", random_state=0).fit(D, groups=labels)
    assert grouped.discover(X, groups=labels[: len(X)]).certified
    weights = Weights(np.linspace(1, 2, len(D)), np.ones(len(X)))
    for method, status in (("auto", "proven"), ("split", "measured, not proven")):
        cad = ConformalDetector("knn", method, random_state=0).fit(D)
        assert cad.discover(X, weights=weights).claim.status == status
        estimated = cad.discover(X, weights=Weights.estimate(D, X))
        assert estimated.claim.status == "measured, not proven: the weights are estimated"
    with monkeypatch.context() as patched:
        patched.setattr("reconform.methods.MOST_PAIRS", 1_000)
        many = ConformalDetector("knn", random_state=0).fit(D).discover(X)
    assert many.provenance.scheme == "split"
    assert (many.certified, many.claim.status) == (False, "proven")
    monkeypatch.setattr(ConformalDetector, "can_certify", False)  # as of some model files
    assert not ConformalDetector("knn", random_state=0).fit(D).discover(X).certified


def test_what_everybody_reads(batch):
    D, X = batch
    cad = ConformalDetector("knn", random_state=0).fit(D)
    nominal = cad.discover(X, validity="nominal")
    said = (cad.discover(X), "proven", "are"), (nominal, "measured, not proven", "should be")
    for found, status, are in said:
        assert str(found).splitlines()[:4] == [
            "Discoveries: 8 of 60 rows flagged",
            f"On average at most 10% of them {are} false alarms ({status}, if normal new rows come "
            "from the same process as the reference).",
            "The checks found nothing against the assumption that normal new rows come from the "
            "same process as the reference rows.",
            "Ranked by knn.",
        ]
        assert len(str(found).splitlines()) <= 5
        for jargon in ("false in general", "BH on full", "symmetric detector", "exchangeable"):
            assert jargon not in str(found)
    alarms = cad.discover(X, false_alarms=2)
    assert alarms.promise.startswith("On average at most 2 of them are false alarms (proven, if")
    nothing = cad.discover(X[8:])
    assert (nothing.count, nothing.promise) == (0, "")
    broken = cad.discover(X + 9)
    assert (broken.verdict.word, broken.promise) == ("broken", "")
    assert "without a promise: the assumption looks broken" in broken.headline


def test_one_row_is_flagged_where_its_p_value_is_at_most_the_level(batch):
    D, X = batch
    cad = ConformalDetector("knn", "full").fit(D)
    for i in range(20):
        found = certified(cad, X[i : i + 1], 0.2)
        assert found.mask[0] == (found.p_values[0] <= 0.2)


def test_the_command_line(batch, here):
    for name, rows in zip(("normal.csv", "new.csv"), batch, strict=True):
        pd.DataFrame(rows, columns=["a", "b"]).to_csv(name, index=False)
    files = ["detect", "normal.csv", "new.csv", "--detector", "knn"]
    options = ["--method", "full", "--validity", "proven"]
    said = json.loads(run(*files, *options, "--json").stdout)
    assert said["flagged_without_certificate"] >= said["flagged"] > 0
    assert all("nominal_q_value" in row and "q_value" not in row for row in said["anomalies"])
    assert "nominal q-value" in run(*files, *options, "--report", "page.html").stdout
    found = ConformalDetector("knn", random_state=0).fit(batch[0]).discover(batch[1])
    lines = str(found).removeprefix("Discoveries: ").splitlines()[:4]
    assert run(*files, "--output", "a.csv").stdout.splitlines()[:4] == lines
    assert list(pd.read_csv("a.csv"))[-4:] == ["score", "p_value", "nominal_q_value", "anomaly"]
    assert "FDR proven (conditional calibration) for the list certified" in said["guarantee"]
    page = Path("page.html").read_text().replace("<strong id=", "")
    assert all(line in page for line in lines[1:])


@pytest.mark.parametrize(
    ("method", "procedure", "said"),
    [
        ("jab+", "bh", "none is known for jab"),
        ("jackknife", "bh", "none is known for basic"),
        (Resampling([np.arange(75), np.arange(75, 150)]), "bh", "none is known for resampling"),
        ("full", "storey", "for Benjamini-Hochberg with Storey's .* full; use `procedure='bh'`"),
        ("jackknife+", "storey", "for Benjamini-Hochberg with Storey's .* with jackknife"),
        (Split(repeats=3), "bh", "Benjamini-Hochberg with repeated split; use `procedure='by'`"),
    ],
)
def test_what_has_no_theorem_is_refused(method, procedure, said, batch):
    cad = ConformalDetector("knn", method, random_state=0).fit(batch[0])
    refused(said, cad.discover, batch[1], procedure=procedure, validity="proven")


def test_counts_cannot_certify(batch):
    cad = ConformalDetector("knn", "full").fit(batch[0])
    with pytest.raises(ValueError, match="needs the whole batch in memory"):
        cad.decide_counts(cad.rank_counts(batch[1]), Rule(validity="proven"))
    by = Rule(validity="proven", procedure="by")
    assert "FDR proven" in cad.decide_counts(cad.rank_counts(batch[1]), by).guarantee


def test_a_loaded_model(batch, tmp_path):
    spheres = ConformalDetector("inne", "cv+", random_state=0).fit(batch[0])
    assert certified(spheres, batch[1]).e_values is not None
    save(spheres, tmp_path / "spheres.reconform")
    with pytest.raises(ValueError, match="does not keep the reference rows"):
        certified(load(tmp_path / "spheres.reconform"), batch[1])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("detector", ["knn", "iforest", "inne", OneClassSVM(gamma=0.1)])
def test_the_list_does_not_depend_on_the_order_of_rows(detector, method, batch, rng):
    D, X = batch
    a, b = rng.permutation(len(D)), rng.permutation(len(X))
    one = certified(ConformalDetector(detector, method, random_state=0).fit(D), X)
    two = certified(ConformalDetector(detector, method, random_state=0).fit(D[a]), X[b])
    assert one.e_values.any()
    assert np.array_equal(one.e_values[b], two.e_values)
    assert np.array_equal(one.mask[b], two.mask)


@pytest.mark.parametrize(
    "detector", ["knn", KNN(scale="robust"), "kde", "lof", "iforest", "inne", "contrast", "auto"]
)
def test_no_row_may_be_flagged(detector, rng):
    """No rank is small enough for any list: there is no world to look at."""
    cad = ConformalDetector(detector, "full", random_state=0).fit(rng.normal(size=(20, 2)))
    found = cad.discover(rng.normal(size=(8, 2)), fdr=0.01, validity="proven")
    assert found.certified
    assert not found.mask.any()
