"""Explanations of a row: what is unusual, which normal rows are near, what carries the score."""

import json
import pickle
from html import escape

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import reconform
from commands import run
from reconform import ConformalDetector, Explanation, Prepare
from reconform.detectors import KDE, KNN, LOF, Contrast, Mahalanobis
from reconform.detectors.base import by_replacing
from reconform.detectors.contrast_forest import PoolForest
from reconform.detectors.contrast_forest.kernels import NEW, OLD, vote_of
from reconform.display import prose
from reconform.files.judge import ReadOptions, judge_file
from refusals import refused

HOSTILE = "<img src=x onerror=alert(1)>\x1b[2J"
FAR = 2  # the column in which the odd row is odd


def normal_rows(n=120, d=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def new_rows(m=30, d=4, seed=1):
    """Normal rows, of which row 5 is far out in one column."""
    X = normal_rows(m, d, seed)
    X[5, FAR] = 11.0
    return X


# --- what carries the score ----------------------------------------------------------------------

pytestmark = pytest.mark.filterwarnings("ignore::reconform.ReferenceWarning")

METHODS = ["split", "jackknife+", "cv+", "jab+", "jackknife"]
NATIVE = ["knn", "lof", "kde", "mahalanobis", "contrast", "iforest", "inne"]


@pytest.mark.parametrize("detector", [*NATIVE, "auto"])
def test_the_feature_that_is_far_out_carries_the_score_of_every_detector(detector):
    cad = ConformalDetector(detector, "full", random_state=0).fit(normal_rows())
    told = cad.discover(new_rows(), fdr=0.4).explain(5)
    first = told.features[0]
    assert first.name == f"feature {FAR}"
    assert first.share > 0.5
    assert first.place == "above all 120"
    assert first.unusual
    assert first.strength > 5
    low, middle, high = np.quantile(normal_rows()[:, FAR], [0.05, 0.5, 0.95])
    assert first.typical == f"{low:.4g} to {high:.4g}, median {middle:.4g}"
    assert sum(one.share for one in told.features) <= 1 + 1e-9
    assert told.flagged
    if detector != "auto":
        assert told.detector == detector


def test_the_shares_of_mahalanobis_are_terms_of_its_squared_distance():
    X = normal_rows() @ np.array([[1, 0.9, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0.5], [0, 0, 0, 2.0]])
    x = np.array([1.0, -2.0, 0.5, 3.0])
    detector = Mahalanobis(ridge=1.0)
    shares = detector.attribution(x, X).shares
    # A literal version: the root of the correlation matrix, by scipy's general square root.
    from scipy.linalg import inv, sqrtm

    scatter = (X - X.mean(0)).T @ (X - X.mean(0)) + np.eye(4)
    spread = np.sqrt(np.diag(scatter))
    terms = (inv(sqrtm(scatter / np.outer(spread, spread))) @ ((x - X.mean(0)) / spread)) ** 2
    total = -Mahalanobis(ridge=1.0).fit(X).score_samples([x])[0]
    assert terms.sum() == pytest.approx(total)
    np.testing.assert_allclose(shares, terms / total, atol=1e-10)


def test_the_shares_of_knn_are_those_of_its_distance():
    X, x = normal_rows(), np.array([3.0, 0.0, -1.0, 5.0])
    for power, metric in ((2.0, "euclidean"), (1.0, "manhattan"), (3.0, "minkowski")):
        knn = KNN(n_neighbors=4, metric=metric, p=power)
        far = (np.abs(X - x) ** power).sum(axis=1)
        fourth = X[np.argsort(far)[3]]
        parts = np.abs(fourth - x) ** power
        assert parts.sum() ** (1 / power) == pytest.approx(-knn.fit(X).score_samples([x])[0])
        np.testing.assert_allclose(knn.attribution(x, X).shares, parts / parts.sum())
    assert KNN(metric="cosine").attribution(x, X) is None


def test_the_shares_of_kde_follow_the_slope_of_the_density():
    # The gradient of the log density is the weighted mean difference: for one row, all of it.
    X, x = np.array([[0.0, 0.0], [100.0, 100.0]]), np.array([1.0, 3.0])
    np.testing.assert_allclose(KDE(bandwidth=1.0).attribution(x, X).shares, [0.1, 0.9])


def test_lof_and_contrast_look_at_their_own_neighbours():
    X, x = normal_rows(), np.array([3.0, 0.0, -1.0, 5.0])
    order = np.argsort(((X - x) ** 2).sum(axis=1))
    for detector, rows in ((LOF(n_neighbors=7), order[:7]), (Contrast(n_neighbors=3), order[2:3])):
        parts = ((X[rows] - x) ** 2).sum(axis=0)
        np.testing.assert_allclose(detector.attribution(x, X).shares, parts / parts.sum())


def test_the_shares_of_a_contrast_forest_are_votes_that_splits_add(rng):
    """By a literal walk; and a feature that all anomalies show carries what a forest finds."""
    D, T = rng.normal(size=(300, 8)), rng.normal(size=(150, 8))
    T[:15, 6] += 6
    cad = ConformalDetector("contrast-forest", "full", random_state=0).fit(D)
    found = cad.discover(T, fdr=0.2)
    assert found.mask[:15].all()
    for row in range(15):
        told = found.explain(row)
        first = max(told.features, key=lambda one: one.share)
        assert first.name == "feature 6"
        assert first.share > 0.5
        assert "votes" in told.carried_by

    forest = PoolForest.of(D, T, 30, np.random.SeedSequence(0), None)
    _, nodes, _, _, votes = forest._grown
    parts, total, root = forest.carried(300), 0, 0
    for t in np.flatnonzero(~forest.hit[:, 300]):
        total += int(votes[t, 300])
        root += vote_of(nodes[t, 0, OLD], nodes[t, 0, NEW], forest._weights)
    assert parts.sum() == total - root  # from the vote of all rows to that of the leaf


def test_rescaled_columns_and_labels_are_put_back_to_the_columns_they_came_from():
    frame = pd.DataFrame(normal_rows(200, 2), columns=["a", "b"])
    frame["b"] *= 1000
    frame["c"] = np.random.default_rng(1).choice(["x", "y"], 200)
    frame.loc[3, "a"] = np.nan
    new = frame.iloc[:30].copy()
    new.loc[7, ["a", "b", "c"]] = [0.1, 0.2, "z"]
    for detector in ("knn", "kde"):
        cad = ConformalDetector(Prepare(detector), "full", random_state=0).fit(frame)
        told = cad.discover(new).explain(7)
        assert (told.features[0].name, told.features[0].value) == ("c", "z")
        assert told.features[0].place == "never in the reference"
        assert told.features[0].typical.count("%") == 2
        missing = cad.discover(new).explain(3)
        cells = {one.name: one.value for one in missing.features}
        assert cells.get("a", "missing") == "missing"


def test_numbers_too_large_to_square_have_no_share_and_do_no_harm():
    X = normal_rows()
    x = np.array([1e200, 0.0, 0.0, 0.0])
    for detector in (KNN(), LOF(), Mahalanobis()):
        found = detector.attribution(x, X)
        assert found is None or found.shares[0] == pytest.approx(1.0)
    told = ConformalDetector("mahalanobis", "split", random_state=0).fit(X).explain([x])
    assert told.features[0].name == "feature 0"
    json.dumps(told.to_dict(), allow_nan=False)


def test_replacing_shares_out_only_what_raises_the_score():
    assert by_replacing(-1.0, np.array([-1.0, -2.0])).shares.tolist() == [0.0, 0.0]
    assert by_replacing(-np.inf, np.array([-1.0, -np.inf])) is None


# --- any detector, method and kind of rows -------------------------------------------------------


@pytest.mark.parametrize("method", [*METHODS, "full", "batch"])
def test_foreign_detectors_are_asked_with_one_feature_replaced(method):
    factor = LocalOutlierFactor(n_neighbors=10, novelty=True)
    cad = ConformalDetector(factor, method, random_state=0).fit(normal_rows(40))
    told = cad.discover(new_rows(8)).explain(5)
    assert (told.features[0].name, told.detector) == (f"feature {FAR}", "LocalOutlierFactor")
    assert "one feature alone" in told.carried_by
    assert ("other new rows mattered" in told.carried_by) == (method == "batch")


def test_a_function_and_a_prefit_model():
    def centre(X):
        middle = np.median(X, axis=0)
        return lambda rows: np.abs(rows - middle).max(axis=1)

    X = normal_rows()
    cad = ConformalDetector(centre, "split", larger_is="anomalous", random_state=0).fit(X)
    assert cad.discover(new_rows()).explain(5).features[0].share == pytest.approx(1.0)
    model = LocalOutlierFactor(novelty=True).fit(X[:60])
    cad = ConformalDetector(model, "prefit").fit(X[60:])
    assert cad.discover(new_rows()).explain(5).features[0].name == f"feature {FAR}"


@pytest.mark.parametrize("convert", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_frames_that_a_pipeline_reads_as_they_are(convert):
    def made(X, seed):
        kind = np.random.default_rng(seed).choice(["p", "q"], len(X))
        return convert(pd.DataFrame(X, columns=list("abcd")).assign(kind=kind))

    columns = make_column_transformer((OneHotEncoder(), ["kind"]), remainder=StandardScaler())
    columns.set_output(transform="default")
    pipeline = make_pipeline(columns, LocalOutlierFactor(novelty=True))
    cad = ConformalDetector(pipeline, "split", random_state=0)
    told = cad.fit(made(normal_rows(), 0)).discover(made(new_rows(), 1)).explain(5)
    assert told.features[0].name == "c"
    assert told.features[0].share > 0.5


def test_with_auto_a_row_is_explained_by_the_detector_that_was_chosen_for_it():
    X, new = normal_rows(150), new_rows(60)
    for method in ("full", "split"):
        cad = ConformalDetector(["knn", "mahalanobis"], method, random_state=0).fit(X)
        found = cad.discover(new)
        chosen = {one.name for one in found.choice if one.rows}
        told = found.explain_several(list(range(len(new))))
        assert {one.detector for one in told} == chosen
        for name, how in (("knn", "5th nearest"), ("mahalanobis", "decorrelated")):
            assert all(how in one.carried_by for one in told if one.detector == name)


# --- nearest rows, names, samples ----------------------------------------------------------------


def test_the_nearest_normal_rows_have_their_labels_and_differ_where_they_differ():
    reference = pd.DataFrame(normal_rows(), columns=list("abcd"))
    reference.index = [f"day {i}" for i in range(len(reference))]
    row = reference.iloc[[17]].copy()
    row["b"] += 9.0
    row.index = ["today"]
    cad = ConformalDetector("knn", "full").fit(reference)
    told = cad.discover(row).explain("today")
    assert told.row == "today"
    assert told.nearest[0].label == "day 17" or told.nearest[0].distance < 20
    near = {one.label: one for one in told.nearest}
    assert all(one.differs[0][0] == "b" for one in told.nearest)
    distances = [one.distance for one in told.nearest]
    assert (distances, len(near)) == (sorted(distances), 3)
    copied = cad.discover(reference.iloc[[17]]).explain(position=0)
    assert (copied.nearest[0].label, copied.nearest[0].distance) == ("day 17", 0.0)
    assert copied.nearest[0].differs == ()


def test_rows_are_found_by_label_or_position_as_the_list_shows_them():
    new = pd.DataFrame(new_rows(), index=range(100, 130))
    found = ConformalDetector("knn", "split", random_state=0).fit(normal_rows()).discover(new)
    assert found.explain(105) == found.explain(position=5) == found.explain("105")
    assert found.explain() == found.explain(position=int(found.order[0]))
    array = ConformalDetector("knn", "split", random_state=0).fit(normal_rows())
    assert array.discover(new_rows()).explain(5).row == "5"
    for wrong, sentence in (
        ({"row": 5}, "no row has it: 5"),
        ({"row": 105, "position": 5}, "give one of them"),
        ({"position": 30}, "from 0 to 29; got 30"),
        ({"position": True}, "got True"),
    ):
        refused(sentence, found.explain, **wrong)
    twice = found.__class__(**{**vars(found), "index": ["a"] * 30})
    refused("30 rows have it", twice.explain, "a")


def test_a_large_reference_is_explained_by_a_sample_that_says_so(monkeypatch):
    monkeypatch.setattr("reconform.detector.MOST_CELLS", 1_000)
    X = normal_rows(2_500, 4)
    X[:, 0] = np.arange(2_500)
    cad = ConformalDetector("knn", "split", random_state=0).fit(X)
    told = cad.name_reference([f"r{i}" for i in range(2_500)]).explain([[77.0, 0, 0, 9.0]])
    assert "2,000 of the 2,500 reference rows, a sample" in told.compared_with
    assert all(one.label[0] == "r" for one in told.nearest)
    refused("2,500 rows, and 3 labels", cad.name_reference, ["a", "b", "c"])


@pytest.mark.parametrize("detector", ["knn", "iforest", "auto"])
def test_a_saved_model_explains_with_the_rows_it_keeps(detector, tmp_path):
    X = normal_rows(400, 4)
    cad = ConformalDetector(detector, "split", random_state=0).fit(X)
    reconform.save(cad, tmp_path / "m.rcad")
    loaded = reconform.load(tmp_path / "m.rcad")
    one, other = (c.discover(new_rows()).explain(5) for c in (cad, loaded))
    assert [f.name for f in one.features] == [f.name for f in other.features]
    assert other.compared_with == "Compared with all 400 reference rows."
    assert one.nearest[0].distance == other.nearest[0].distance
    assert one.nearest[0].label is not None


def test_a_model_that_was_saved_without_rows_says_so(tmp_path):
    cad = ConformalDetector("mahalanobis", "split", random_state=0).fit(normal_rows())
    reconform.save(cad, tmp_path / "m.rcad")
    loaded = reconform.load(tmp_path / "m.rcad")
    loaded.reference_sample_ = None
    refused("saved without", loaded.explain, new_rows()[[5]])
    refused("saved without reference rows", loaded.discover(new_rows()).explain, 5)


# --- sources -------------------------------------------------------------------------------------


def test_what_was_only_counted_or_pickled_has_no_rows_to_explain():
    cad = ConformalDetector("knn", "split", random_state=0).fit(normal_rows())
    counted = cad.decide_counts(cad.rank_counts(new_rows()), reconform.rule.Rule())
    refused(r"cad\.explain\(row\)", counted.explain, 5)
    again = pickle.loads(pickle.dumps(cad.discover(new_rows())))
    refused("pickled", again.explain, 5)
    refused("takes one row; got 30", cad.explain, new_rows())


@pytest.mark.parametrize("detector", ["knn", "auto"])
@pytest.mark.parametrize("method", ["full", "split"])
def test_a_file_explains_the_rows_that_it_keeps(detector, method, tmp_path):
    names = list("abcd")
    reference = pd.DataFrame(normal_rows(), columns=names)
    new = pd.DataFrame(new_rows(60), columns=names)
    new.insert(0, "id", [f"r{i}" for i in range(60)])
    new.to_csv(tmp_path / "new.csv", index=False)
    cad = ConformalDetector(detector, method, random_state=0).fit(reference)
    read = ReadOptions(id_columns=["id"], wanted=["r40", 41])
    found = judge_file(cad, tmp_path / "new.csv", read=read)
    memory = cad.discover(new[names])
    assert found.wanted.positions.tolist() == [40, 41]
    for row in ("r5", "r40", "r41"):
        told = found.explain(row)
        assert told.row == row
        same = memory.explain(int(row[1:]))
        for part in ("features", "nearest", "detector"):
            assert getattr(told, part) == getattr(same, part)
    assert found.explain().row == "r5"
    assert found.to_discoveries().explain("r5") == found.explain("r5")
    last = int(memory.order[-1])
    refused("was not kept", found.explain, position=last)
    pickle.loads(pickle.dumps(found))


def test_rows_of_a_file_that_are_not_there_are_refused_before_anything_is_written(tmp_path):
    reference = pd.DataFrame(normal_rows(), columns=list("abcd"))
    new = pd.DataFrame(new_rows(), columns=list("abcd"))
    new.insert(0, "id", ["twice"] * 2 + [f"r{i}" for i in range(28)])
    new.to_csv(tmp_path / "new.csv", index=False)
    cad = ConformalDetector("knn", "split", random_state=0).fit(reference)
    for wanted, sentence in (
        ([30], "there is no row 31; it has 30 rows"),
        (["r99"], "no row with the identifier 'r99'"),
        (["twice"], "2 rows with the identifier 'twice'"),
    ):
        read = ReadOptions(id_columns=["id"], wanted=wanted)
        refused(sentence, judge_file, cad, tmp_path / "new.csv", tmp_path / "out.csv", read=read)
        assert not (tmp_path / "out.csv").exists()


# --- how it reads --------------------------------------------------------------------------------


def told_about_markup():
    reference = pd.DataFrame(normal_rows(), columns=[HOSTILE, "b", "c", "d"])
    reference.index = [HOSTILE] * len(reference)
    new = pd.DataFrame(new_rows(), columns=reference.columns)
    new.iloc[5, 0] = 30.0
    new.index = [f"{HOSTILE}{i}" for i in range(30)]
    cad = ConformalDetector("knn", "split", random_state=0).fit(reference)
    return cad.discover(new).explain(f"{HOSTILE}5")


def test_it_reads_well_in_a_terminal_and_obeys_nothing():
    told = told_about_markup()
    assert isinstance(told, Explanation)
    assert "\x1b" not in str(told)
    assert str(told).startswith("Row ")
    assert max(map(len, str(told).splitlines())) < 400
    assert "Nearest normal rows" in str(told)
    assert "does not prove a cause" in str(told)
    html = told._repr_html_()
    assert "&lt;img" in html
    assert "<img" not in html
    assert "<script" not in html


def test_to_dict_is_json_and_complete():
    told = told_about_markup()
    facts = json.loads(json.dumps(told.to_dict(), allow_nan=False))
    assert set(facts) == set(vars(told))
    assert facts["features"][0]["share"] == told.features[0].share
    assert set(facts["nearest"][0]["differs"][0]) == {"name", "here", "there"}
    assert facts["evidence"] == {"q": told.evidence[1]}


def test_a_row_that_is_unusual_in_nothing_says_so():
    cad = ConformalDetector("knn", "split", random_state=0).fit(normal_rows())
    told = cad.explain([np.median(normal_rows(), axis=0)])
    assert not any(one.unusual for one in told.features)
    assert "No feature is unusual by itself" in str(told)
    assert told.flagged is None
    assert "judged by itself" in told.headline


# --- the page and notebooks ----------------------------------------------------------------------


def data_of(path):
    text = path.read_text()
    start = text.index('id="data">') + len('id="data">')
    return json.loads(text[start : text.index("</script>", start)])


def test_the_page_explains_a_bounded_number_of_rows(tmp_path):
    X, new = normal_rows(), np.vstack([new_rows(), normal_rows(40, seed=3) + 9.0])
    cad = ConformalDetector("knn", "full").fit(X)
    found = cad.discover(new)
    assert found.count > 30
    page = tmp_path / "page.html"
    reconform.report(found, page)
    told = data_of(page)["told"]
    assert list(told) == [str(k) for k in range(1, 31)]
    first = found.explain(position=int(found.order[0]))
    assert (told["1"]["title"], told["1"]["notes"]) == (first.headline, list(first.notes))
    assert data_of(page)["names"]
    reconform.report(found, page, overwrite=True, explained=0)  # no values are in it
    assert data_of(page)["told"] == {}
    assert not data_of(page)["names"]
    reconform.report(found, page, overwrite=True, explained=2)
    assert list(data_of(page)["told"]) == ["1", "2"]
    page.unlink()
    for wrong in (-1, 1.5, "all"):
        refused("explained", reconform.report, found, page, explained=wrong)
        assert not page.exists()


def test_notebooks_show_decision_verdict_drawing_and_rows():
    cad = ConformalDetector("knn", "split", random_state=0).fit(normal_rows(400))
    found = cad.discover(new_rows(40))
    html = found._repr_html_()
    order = [found.headline, found.verdict.sentence, "<svg", "<table", "<details"]
    places = [html.index(escape(part) if part[0] != "<" else part) for part in order]
    assert places == sorted(places)
    assert "<script" not in html
    counted = cad.decide_counts(cad.rank_counts(new_rows(40)), reconform.Rule())
    drawn = html[html.index("<svg") : html.index("</svg>")]
    assert drawn in counted._repr_html_()


def test_the_estimator_shows_its_diagram_and_what_was_fitted():
    cad = ConformalDetector("knn", "jackknife+")
    assert "Fitted</strong>" not in cad._repr_mimebundle_()["text/html"]
    html = cad.fit(normal_rows())._repr_mimebundle_()["text/html"]
    assert "sk-top-container" in html
    after = html[html.index("<strong>Fitted") :]
    assert "120 rows of 4 features" in after
    assert "jackknife+" in after
    assert prose(str(cad.guarantee_)) in after


# --- the command line ----------------------------------------------------------------------------


def test_the_command_line_explains_rows_by_number_and_by_identifier(tmp_path, here):
    names = list("abcd")
    pd.DataFrame(normal_rows(), columns=names).to_csv("normal.csv", index=False)
    new = pd.DataFrame(new_rows(), columns=names)
    new.to_csv("new.csv", index=False)
    new.assign(id=[f"r{i}" for i in range(30)]).to_csv("named.csv", index=False)
    fast = ["--detector", "knn", "--method", "split"]
    done = run("detect", "normal.csv", "new.csv", *fast, "--explain", "6", "--json")
    (told,) = json.loads(done.stdout)["explanations"]
    assert (told["row"], told["features"][0]["name"]) == ("6", "c")
    done = run("detect", "normal.csv", "named.csv", *fast, "--id", "id", "--explain", "r5")
    assert "Row r5: not flagged" in done.stdout
    assert "Nearest normal rows" in done.stdout
    run("fit", "normal.csv", *fast, "--model", "m.rcad")
    again = run("score", "m.rcad", "new.csv", "--explain", "6", "--json")
    (saved,) = json.loads(again.stdout)["explanations"]
    assert saved["features"] == told["features"]
    for wrong, code, sentence in (
        ("0", 2, "--explain must be the number of a row, from 1"),
        ("x", 2, "got 'x'"),
        ("31", 1, "new.csv: there is no row 31; it has 30 rows."),
    ):
        files = ["--output", "out.csv", "--report", "out.html"]
        asked = ["detect", "normal.csv", "new.csv", *fast, "--explain", wrong, *files]
        failed = run(*asked, code=code)
        assert sentence in failed.stderr
        assert not list(tmp_path.glob("out.*"))
