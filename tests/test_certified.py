"""Certified lists through the estimator: their level, what they say of themselves, refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import binom
from sklearn.svm import OneClassSVM

from reconform import ConformalDetector, Resampling, Split, Weights, load, report, save
from reconform.cli import main
from reconform.detectors import KNN
from reconform.files.judge import ReadOptions, judge_file
from reconform.rule import Rule

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


# --- what it says of itself ----------------------------------------------------------------------


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
    assert data["levels"][data["chosen"]] == 0.1
    assert levels[0.1] == found.count
    assert levels[0.3] == (plain.q_values <= 0.3).sum() > found.count
    told = [said["meaning"].startswith("Nominal: the rows that plain") for said in data["words"]]
    assert not told[data["chosen"]]
    assert told[-1]
    # At other levels the page flags by q-value, whatever was certified.
    places = dict(zip((line[0] for line in data["lines"]), data["plain"], strict=True))
    by_q = np.lexsort((found.scores, found.p_values, found.q_values))
    assert [by_q[places[k + 1] - 1] for k in range(60)] == found.order.tolist()


# --- what "auto", the default, stands for --------------------------------------------------------


@pytest.mark.parametrize("detector", ["auto", "knn", ["knn", "iforest"]])
def test_auto_is_proven_for_the_method_auto_on_full(detector, batch):
    D, X = batch
    cad = ConformalDetector(detector, random_state=0).fit(D)
    found, proven = cad.discover(X), cad.discover(X, validity="proven")
    assert found.certified
    assert np.array_equal(found.mask, proven.mask)
    assert found.guarantee == proven.guarantee
    assert found.claim.status == "proven"
    assert not cad.discover(X, validity="nominal").certified
    for options in (
        {"procedure": "by"},
        {"procedure": "storey"},
        {"false_alarms": 2},
    ):
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
    pooled = ConformalDetector("knn", random_state=0, unknown_groups="pooled").fit(D, groups=labels)
    strange = np.where(np.arange(len(X)) < 30, 7, 0)
    assert not pooled.discover(X, groups=strange).certified
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
    # As of a model file that lacks what certifies.
    monkeypatch.setattr(ConformalDetector, "can_certify", False)
    assert not ConformalDetector("knn", random_state=0).fit(D).discover(X).certified


def test_what_everybody_reads(batch):
    D, X = batch
    cad = ConformalDetector("knn", random_state=0).fit(D)
    for found, status, are in [
        (cad.discover(X), "proven", "are"),
        (cad.discover(X, validity="nominal"), "measured, not proven", "should be"),
    ]:
        assert str(found).splitlines()[:4] == [
            "Discoveries: 8 of 60 rows flagged",
            f"On average at most 10% of them {are} false alarms ({status}, if normal new rows come "
            "from the same process as the reference).",
            "Nothing seen speaks against the assumption that normal new rows come from the same "
            "process as the reference rows.",
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
    assert broken.verdict.word == "broken"
    assert broken.promise == ""
    assert "looks broken: no promise" in broken.headline


def test_one_row_is_flagged_where_its_p_value_is_at_most_the_level(batch):
    D, X = batch
    cad = ConformalDetector("knn", "full").fit(D)
    for i in range(20):
        found = certified(cad, X[i : i + 1], 0.2)
        assert found.mask[0] == (found.p_values[0] <= 0.2)


def test_a_file_gets_the_list_of_the_batch(batch, tmp_path):
    D, X = batch
    frame = pd.DataFrame(X, columns=["a", "b"])
    cad = ConformalDetector("knn", "jackknife+").fit(pd.DataFrame(D, columns=["a", "b"]))
    frame.to_csv(tmp_path / "new.csv", index=False)
    found = certified(cad, frame)
    rule, read = Rule(validity="proven"), ReadOptions(batch_rows=7)
    judged = judge_file(cad, tmp_path / "new.csv", tmp_path / "out.csv", rule, read=read)
    assert judged.count == found.count
    assert judged.guarantee == found.guarantee
    written = pd.read_csv(tmp_path / "out.csv")
    assert list(written.columns) == ["a", "b", "score", "p_value", "nominal_q_value", "anomaly"]
    assert np.array_equal(written["anomaly"], found.mask)
    assert np.allclose(written["nominal_q_value"], found.q_values)
    assert np.array_equal(judged.to_discoveries().e_values, found.e_values)
    assert set(judged.flagged.positions) == set(np.flatnonzero(found.mask))


def run(*arguments):
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_command_line(batch, tmp_path):
    for name, rows in zip(("normal.csv", "new.csv"), batch, strict=True):
        pd.DataFrame(rows, columns=["a", "b"]).to_csv(tmp_path / name, index=False)
    files = [str(tmp_path / "normal.csv"), str(tmp_path / "new.csv")]
    options = ["--detector", "knn", "--method", "full", "--validity", "proven"]
    said = json.loads(run("detect", *files, *options, "--json"))
    assert "FDR proven (conditional calibration)" in said["guarantee"]
    assert said["flagged_without_certificate"] >= said["flagged"] > 0
    assert all("nominal_q_value" in row and "q_value" not in row for row in said["anomalies"])
    page = str(tmp_path / "page.html")
    shown = run("detect", *files, *options, "--report", page)
    assert "nominal q-value" in shown
    said = (
        "8 of 60 rows flagged",
        "On average at most 10% of them are false alarms (proven, if normal new rows come from the "
        "same process as the reference).",
        "Nothing seen speaks against the assumption that normal new rows come from the same "
        "process as the reference rows.",
        "Ranked by knn.",
    )
    usual = ["detect", *files, "--detector", "knn"]
    assert tuple(run(*usual, "--output", str(tmp_path / "a.csv")).splitlines()[:4]) == said
    text = run(*usual, "--details", "--output", str(tmp_path / "b.csv"))
    assert "exchangeable" not in "".join(said)
    assert "FDR proven (conditional calibration) for the list certified from full" in text
    assert "Certified 8 of the 8 rows that Benjamini-Hochberg finds." in text
    assert "Nominal q-values are those of plain Benjamini-Hochberg" in text
    assert all(line in Path(page).read_text().replace("<strong id=", "") for line in said[1:])


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "procedure", "said"),
    [
        ("jab+", "bh", "none is known for jab"),
        ("jackknife", "bh", "none is known for basic"),
        (Resampling([np.arange(75), np.arange(75, 150)]), "bh", "none is known for resampling"),
        ("full", "storey", "for STOREY on full; use `procedure='bh'`"),
        ("jackknife+", "storey", "for STOREY on jackknife"),
        (Split(repeats=3), "bh", "for BH on repeated split; use `procedure='by'`"),
    ],
)
def test_what_has_no_theorem_is_refused(method, procedure, said, batch):
    cad = ConformalDetector("knn", method, random_state=0).fit(batch[0])
    with pytest.raises(ValueError, match=said):
        cad.discover(batch[1], procedure=procedure, validity="proven")


def test_counts_cannot_certify(batch):
    cad = ConformalDetector("knn", "full").fit(batch[0])
    with pytest.raises(ValueError, match="needs the whole batch in memory"):
        cad.decide_counts(cad.rank_counts(batch[1]), Rule(validity="proven"))
    by = Rule(validity="proven", procedure="by")
    assert "FDR proven" in cad.decide_counts(cad.rank_counts(batch[1]), by).guarantee


def test_a_file_with_too_many_rows_is_refused_before_a_row_is_written(batch, tmp_path, monkeypatch):
    D, X = batch
    cad = ConformalDetector("knn", "full").fit(pd.DataFrame(D, columns=["a", "b"]))
    pd.DataFrame(X, columns=["a", "b"]).to_csv(tmp_path / "new.csv", index=False)
    monkeypatch.setattr("reconform.files.result.MOST_DISCOVERIES", 59)
    rule = Rule(validity="proven")
    with pytest.raises(ValueError, match=r"more than 59 rows.*Use `procedure='by'`"):
        judge_file(cad, tmp_path / "new.csv", tmp_path / "out.csv", rule)
    assert not (tmp_path / "out.csv").exists()
    by = Rule(validity="proven", procedure="by")
    assert judge_file(cad, tmp_path / "new.csv", tmp_path / "out.csv", by).tested == 60


def test_a_loaded_model(batch, tmp_path):
    D, X = batch
    knn = ConformalDetector("knn", "jackknife+", random_state=0).fit(D)
    spheres = ConformalDetector("inne", "cv+", random_state=0).fit(D)
    assert certified(spheres, X).e_values is not None
    for name, cad in (("knn", knn), ("spheres", spheres)):
        save(cad, tmp_path / f"{name}.reconform")
    again = load(tmp_path / "knn.reconform")
    assert np.array_equal(certified(again, X).e_values, certified(knn, X).e_values)
    with pytest.raises(ValueError, match="does not keep the reference rows"):
        certified(load(tmp_path / "spheres.reconform"), X)


@pytest.mark.parametrize("detector", ["iforest", "inne"])
def test_a_loaded_full_model_needs_no_refits(detector, batch, tmp_path):
    D, X = batch
    cad = ConformalDetector(detector, "full", random_state=0).fit(D)
    save(cad, tmp_path / "full.reconform")
    again = load(tmp_path / "full.reconform")
    assert again.ensemble_.by_refitting is None
    assert np.array_equal(certified(again, X).e_values, certified(cad, X).e_values)


# --- symmetry ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("detector", ["knn", "iforest", "inne", OneClassSVM(gamma=0.1)])
def test_the_list_does_not_depend_on_the_order_of_rows(detector, method, batch):
    D, X = batch
    rng = np.random.default_rng(0)
    a, b = rng.permutation(len(D)), rng.permutation(len(X))
    one = certified(ConformalDetector(detector, method, random_state=0).fit(D), X)
    two = certified(ConformalDetector(detector, method, random_state=0).fit(D[a]), X[b])
    assert one.e_values.any()
    assert np.array_equal(one.e_values[b], two.e_values)
    assert np.array_equal(one.mask[b], two.mask)


def last_is_unusual(X):
    """A detector that looks at the order of its rows: the last one is anomalous."""
    last = X[-1].copy()
    return lambda Z: np.where((last == Z).all(axis=1), -1.0, 0.0)


def test_a_detector_that_knows_the_last_row_gains_nothing():
    """Rows are sorted by content before a fit, so the last of them is seldom the new one.

    Without sorting, plain BH flags all 200 normal rows. A new row is the last of 100 by content
    with probability 1/100; more than 10 of 200 such rows have a probability below 1e-4.
    """
    rng = np.random.default_rng(0)
    plain, kept = 0, 0
    for _ in range(40):
        D, X = rng.normal(size=(99, 1)), rng.normal(size=(5, 1))
        cad = ConformalDetector(last_is_unusual, "full", larger_is="normal").fit(D)
        found = certified(cad, X)
        plain += found.plain_mask.sum()
        kept += found.mask.sum()
    assert plain <= 10
    assert kept <= plain


# --- the level -----------------------------------------------------------------------------------

# All new rows are sent to one level of the score together: every p-value is exact, the list of
# Benjamini-Hochberg is not. A hash of all rows but one says to which of ten levels, or to none,
# that row belongs; in each the ten rows with the smallest second hash get the level as their score.
BATCH, REFERENCE, LEVEL = 10, 999, 0.1


def _mixed(z):
    z = np.atleast_1d(np.asarray(z, dtype=np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _uniform(h):
    return (h >> np.uint64(11)).astype(float) / 2**53


def _shares():
    """How often each level is taken: the mean list length that makes its list likeliest."""
    chosen = []
    for k in range(1, BATCH + 1):
        a = np.linspace(0.3 if k == 1 else 0.5 * k, BATCH, 400)
        chosen.append(a[(binom.sf(k - 1, BATCH, np.minimum(a / BATCH, 1)) / a).argmax()])
    return np.cumsum([LEVEL / a for a in chosen])


SHARES = _shares()


def conspiring(X):
    """Fit on rows of one feature in [0, 1); symmetric in its rows."""
    hashes = _mixed(np.ascontiguousarray(X[:, 0]).view(np.uint64))
    total = np.bitwise_xor.reduce(hashes)

    def places(h):
        level = np.searchsorted(SHARES, _uniform(_mixed(total ^ h)), side="right") + 1
        return level, _uniform(_mixed(_mixed(total + np.uint64(7)) ^ h))

    level, second = places(hashes)
    size = round(LEVEL * (REFERENCE + 1) / BATCH)
    cuts = [np.sort(second[level == k])[:size].max(initial=-1.0) for k in range(1, BATCH + 1)]

    def score(Z):
        level, second = places(_mixed(np.ascontiguousarray(Z[:, 0]).view(np.uint64)))
        known = np.append(cuts, -1.0)[np.minimum(level, BATCH + 1) - 1]
        return np.where(second <= known, level, 100.0)

    return score


def false_lists(repetitions, detector, method, n, m, fdr, d, seed):
    """How often the plain and the certified list of normal rows are not empty."""
    rng = np.random.default_rng(seed)
    draw = rng.random if d == 1 else rng.normal
    plain, kept = 0, 0
    for i in range(repetitions):
        D, X = draw(size=(n, d)), draw(size=(m, d))
        cad = ConformalDetector(detector, method, larger_is=None, random_state=i)
        if callable(detector):
            cad.set_params(larger_is="normal")
        found = certified(cad.fit(D), X, fdr)
        plain += found.plain_mask.any()
        kept += found.mask.any()
    return plain / repetitions, kept / repetitions


@pytest.mark.slow
def test_plain_bh_exceeds_its_level_where_the_certified_list_does_not():
    """1,000 batches. Plain: 0.21, above 0.15 in all but 1 of 10^5 runs of a correct program.

    Certified: at most 0.1, and below 0.13 in all but 1 of 1,000.
    """
    plain, kept = false_lists(1000, conspiring, "full", REFERENCE, BATCH, LEVEL, 1, seed=0)
    assert plain > 0.15
    assert kept < 0.13


@pytest.mark.slow
@pytest.mark.parametrize("fdr", [0.1, 0.2])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("detector", ["knn", "iforest", "inne", "mahalanobis", "kde"])
def test_batches_of_normal_rows(detector, method, fdr):
    """400 batches (100 unless kNN): any discovery is false, so their share is the FDR.

    A correct program is above the level by more than 3.5 standard errors in 1 of 4,000 runs.
    """
    repetitions = 400 if detector == "knn" else 100
    _, kept = false_lists(repetitions, detector, method, 60, 10, fdr, 2, seed=0)
    assert kept <= fdr + 3.5 * np.sqrt(fdr * (1 - fdr) / repetitions)


@pytest.mark.parametrize(
    "detector", ["knn", KNN(scale="robust"), "kde", "lof", "iforest", "inne", "contrast", "auto"]
)
def test_no_row_may_be_flagged(detector):
    """No rank is small enough for any list: there is no world to look at."""
    rng = np.random.default_rng(0)
    cad = ConformalDetector(detector, "full", random_state=0).fit(rng.normal(size=(20, 2)))
    found = cad.discover(rng.normal(size=(8, 2)), fdr=0.01, validity="proven")
    assert found.certified
    assert not found.mask.any()
