"""Frames of pandas, Polars and Arrow: as they are for pipelines, by name for everybody."""

from __future__ import annotations

import datetime
import warnings

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator, OutlierMixin, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import IsolationForest
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import OneClassSVM

from reconform import (
    ConformalDetector,
    Prepare,
    ReconformError,
    ReferenceWarning,
    Rule,
    load,
    methods,
    save,
)
from reconform.detectors.prepare import prepared
from reconform.files import read_reference
from reconform.frames import label_code, numbers_of, read_column
from reconform.tables import Feature
from refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore:With .* rows and:reconform.ReferenceWarning")

KINDS = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


class Median(OutlierMixin, BaseEstimator):
    """Cheap, and draws nothing: the distance to the median."""

    def fit(self, X, y=None):
        self.middle_ = np.median(np.asarray(X, dtype=float), axis=0)
        return self

    def score_samples(self, X):
        return -np.abs(np.asarray(X, dtype=float) - self.middle_).sum(axis=1)


class Seen(TransformerMixin, BaseEstimator):
    """Passes on the numbers of a frame, and notes what it was given."""

    kinds: list = []  # noqa: RUF012 - of the class: clones share it

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        Seen.kinds.append((type(X).__module__.partition(".")[0], tuple(map(str, X.dtypes))))
        return X[["x", "y"]].to_numpy()


def table(n, seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "colour": rng.choice(["red", "blue"], n),
            "count": rng.integers(0, 5, n),
            "y": rng.normal(size=n),
        }
    )


REFERENCE, NEW = table(24, 0), table(8, 1)
NEW.loc[0, "colour"] = "mauve"
NEW.loc[1, ["x", "y"]] = 40.0


def pipeline():
    columns = ColumnTransformer(
        [
            ("numbers", StandardScaler(), ["x", "y"]),
            ("categories", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["colour"]),
        ]
    )
    return make_pipeline(columns, Median())


METHODS = ["split", "jackknife", "jackknife+", "cv", "cv+", "full"]
METHODS += [methods.Bootstrap(draws=7), methods.Resampling(KFold(3))]


def by_hand(train, rows):
    """The pipeline above, written out."""
    labels = sorted(set(train["colour"]))

    def encode(frame):
        scaled = (frame[["x", "y"]] - train[["x", "y"]].mean()) / train[["x", "y"]].std(ddof=0)
        ones = np.array([[value == label for label in labels] for value in frame["colour"]])
        return np.hstack([scaled.to_numpy(), ones])

    return -np.abs(encode(rows) - np.median(encode(train), axis=0)).sum(axis=1)


# --- frames as they are --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_text_columns_reach_a_pipeline(kind, method):
    as_kind = KINDS[kind]
    cad = ConformalDetector(pipeline(), method, random_state=0).fit(as_kind(REFERENCE))
    assert cad.n_features_in_ == 4
    assert cad.feature_names_in_.tolist() == ["x", "colour", "count", "y"]
    p = cad.p_values(as_kind(NEW))
    assert p[1] == 1 / (cad.n_calibration_ + 1)
    # permuted rows and columns change nothing, nor do other rows in the batch
    order = np.random.default_rng(2).permutation(len(REFERENCE))
    if not isinstance(method, methods.Resampling):  # which takes rows by their place, literally
        permuted = as_kind(REFERENCE.iloc[order].reset_index(drop=True))
        again = ConformalDetector(pipeline(), method, random_state=0).fit(permuted)
        assert np.array_equal(again.p_values(as_kind(NEW)), p)
    turned = NEW[["y", "count", "x", "colour"]]
    assert np.array_equal(cad.p_values(as_kind(turned)), p)
    assert np.array_equal(cad.p_values(as_kind(NEW.iloc[1:3])), p[1:3])


@pytest.mark.parametrize("kind", KINDS)
def test_p_values_of_frames_are_those_of_the_definition(kind):
    cad = ConformalDetector(pipeline(), methods.CrossValidation(5), random_state=0)
    cad.fit(KINDS[kind](REFERENCE))
    at_most = np.zeros(len(NEW), dtype=int)
    for train, held in zip(cad.plan_.train, cad.plan_.held_out, strict=True):
        c = by_hand(REFERENCE.iloc[train], REFERENCE.iloc[held])
        t = by_hand(REFERENCE.iloc[train], NEW)
        at_most += (c[:, None] <= t + 1e-9).sum(axis=0)
    assert cad.ranks(KINDS[kind](NEW)).tolist() == (1 + at_most).tolist()


def test_a_frame_arrives_with_its_types():
    Seen.kinds.clear()
    mixed = REFERENCE.assign(colour=REFERENCE["colour"].astype("category"))
    ConformalDetector(make_pipeline(Seen(), Median()), "split", random_state=0).fit(mixed)
    assert {kind for kind, _ in Seen.kinds} == {"pandas"}
    assert {types for _, types in Seen.kinds} == {("float64", "category", "int64", "float64")}


@pytest.mark.parametrize("ties", ["conservative", "randomized"])
def test_lists_of_frames(ties):
    cad = ConformalDetector(pipeline(), "full", ties=ties, random_state=0).fit(REFERENCE)
    found = cad.discover(NEW, fdr=0.5)
    assert found.mask[1]
    assert np.array_equal(found.p_values, cad.p_values(NEW))
    if ties == "conservative":
        assert cad.discover(NEW, fdr=0.5, validity="proven").certified
    for kind in KINDS:
        again = ConformalDetector(pipeline(), "full", ties=ties, random_state=0)
        again.fit(KINDS[kind](REFERENCE))
        assert np.array_equal(again.discover(KINDS[kind](NEW)).p_values, found.p_values)


def test_a_fitted_pipeline_is_calibrated_on_frames():
    model = pipeline().fit(REFERENCE[:12])
    cad = ConformalDetector(model, "prefit").fit(REFERENCE[12:])
    c, t = model.score_samples(REFERENCE[12:]), model.score_samples(NEW)
    assert cad.ranks(NEW).tolist() == (1 + (c[:, None] <= t).sum(axis=0)).tolist()
    forest = IsolationForest(n_estimators=10, random_state=0).fit(REFERENCE[["x", "y"]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # scikit-learn warns where names get lost
        ConformalDetector(forest, "prefit").fit(REFERENCE[["y", "x"]]).ranks(NEW[["x", "y"]])


def test_missing_cells_are_a_matter_of_the_pipeline():
    holes = REFERENCE.copy()
    holes.loc[::4, "colour"] = None
    cad = ConformalDetector(pipeline(), "cv+", random_state=0).fit(holes)
    assert len(cad.p_values(NEW)) == len(NEW)
    assert np.isnan(numbers_of(holes, [None] * 4)[0, 1])


def test_a_function_is_given_a_frame_with_text():
    def rare(frame):
        share = frame["colour"].value_counts(normalize=True)
        return lambda rows: rows["colour"].map(share).fillna(0.0).to_numpy(dtype=float)

    cad = ConformalDetector(rare, "split", larger_is="normal", random_state=0).fit(REFERENCE)
    assert cad.p_values(NEW)[0] == 1 / (cad.n_calibration_ + 1)


@pytest.mark.parametrize("method", [methods.CrossValidation(3), "split", "full"], ids=str)
def test_pipelines_of_frames_can_be_saved(tmp_path, method):
    detector = make_pipeline(pipeline()[0], OneClassSVM())
    cad = ConformalDetector(detector, method, random_state=0).fit(REFERENCE)
    if method == "full":
        refused("a frame has no place in a model file; use anoth", save, cad, tmp_path / "m.rcad")
        assert not list(tmp_path.iterdir())
        return
    save(cad, tmp_path / "m.rcad")
    again = load(tmp_path / "m.rcad", trusted=True)
    for kind in KINDS.values():
        assert np.array_equal(again.p_values(kind(NEW[::-1])), cad.p_values(NEW[::-1]))
    assert again.discover(NEW).verdict.word == cad.discover(NEW).verdict.word
    refused(r"hold no numbers \('colour'\); give a frame", again.p_values, NEW.to_numpy())


def test_checks_of_the_assumption_see_text():
    for detector in (pipeline(), Prepare(Median())):
        cad = ConformalDetector(detector, "split", random_state=0).fit(table(200, 3))
        found = cad.discover(table(100, 4).assign(colour="mauve"))
        assert found.verdict.word == "broken"
        assert "does not have, in 100 of 100 new rows: 'mauve' (100)." in str(found.verdict)
        assert cad.discover(table(100, 4)).verdict.word == "holds"


# --- columns by name -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("detector", ["knn", Median(), "pipeline"], ids=str)
def test_columns_are_matched_by_name(kind, detector):
    columns = ["x", "count", "y"]
    if detector == "pipeline":
        detector, columns = pipeline(), list(REFERENCE)
    as_kind = KINDS[kind]
    cad = ConformalDetector(detector, "split", random_state=0).fit(as_kind(REFERENCE[columns]))
    p = cad.p_values(as_kind(NEW[columns]))
    assert np.array_equal(cad.p_values(as_kind(NEW[columns[::-1]])), p)
    with pytest.warns(UserWarning, match="did not have, 'id': not looked at") as told:
        more = cad.p_values(as_kind(NEW[columns].assign(id=range(8))))
    assert told[0].filename == __file__
    assert np.array_equal(more, p)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cad.p_values(as_kind(NEW[columns].assign(id=range(8))))  # it is said once
    for method in (cad.p_values, cad.discover, cad.rank_counts, cad.predict):
        with pytest.raises(ReconformError, match="lacks the column 'y' of the reference"):
            method(as_kind(NEW[columns].drop(columns="y")))
    renamed = as_kind(NEW[columns].rename(columns={"count": "counts"}))
    refused(r"'count' .* Did you mean 'counts'\?", cad.p_values, renamed)


def test_names_that_are_there_twice_or_not_at_all():
    numbers = REFERENCE[["x", "y"]]
    cad = ConformalDetector("knn", "split", random_state=0).fit(numbers)
    with pytest.raises(ReconformError, match="more than one column 'x'"):
        cad.p_values(pd.DataFrame(np.zeros((3, 3)), columns=["x", "y", "x"]))
    plain = ConformalDetector("knn", "split", random_state=0).fit(pd.DataFrame(numbers.to_numpy()))
    assert not hasattr(plain, "feature_names_in_")
    assert np.array_equal(plain.p_values(numbers.to_numpy()), cad.p_values(numbers))


@pytest.mark.filterwarnings("ignore::reconform.errors.ReferenceWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_is_read_like_a_file(tmp_path, kind):
    """Text, dates, gaps and identifiers, without any option: the same features and numbers."""
    rng, n = np.random.default_rng(0), 120
    rows = pd.DataFrame(
        {
            "id": [f"A{i:04d}" for i in range(n)],
            "when": pd.date_range("2024-01-01", periods=n, freq="97min"),
            "flow": np.where(np.arange(n) % 17 == 0, np.nan, rng.normal(size=n)),
            "valve": rng.choice(["open", "shut"], n),
        }
    )
    rows.to_parquet(tmp_path / "rows.parquet")
    table = read_reference(tmp_path / "rows.parquet")
    cad = ConformalDetector("knn", "split", random_state=0)
    with pytest.warns(UserWarning, match=r"not used: 'id' \(id, different in most rows"):
        cad.fit(KINDS[kind](rows))
    assert (cad.features, list(cad.feature_names_in_)) == (table.features, list(table.names))
    expected = ConformalDetector(prepared("knn", table.features), "split", random_state=0)
    turned = KINDS[kind](rows[::-1])
    assert np.array_equal(cad.p_values(turned), expected.fit(table.X).p_values(table.X[::-1]))
    with pytest.warns(UserWarning, match="did not have, 'note': not looked at"):
        cad.p_values(KINDS[kind](rows.assign(note="new")))  # of 'id', nothing is said again
    odd = rows.assign(flow="high")
    refused(r"^X: text where the reference has numbers.*'flow'", cad.p_values, KINDS[kind](odd))
    save(cad, tmp_path / "model.rcad")
    again = load(tmp_path / "model.rcad").discover(KINDS[kind](rows))
    assert np.array_equal(again.p_values, cad.discover(KINDS[kind](rows)).p_values)


def test_what_prepares_itself():
    """Labels by type, nullable types, several kinds of cells: as what they say."""
    n = 40
    frame = pd.DataFrame(
        {
            "site": pd.Categorical(np.arange(n) % 3),
            "count": pd.array([None, *(np.arange(1, n) % 7)], dtype="Int64"),
            "mixed": [1, "a"] * (n // 2),
            "day": pd.period_range("2024-01-01", periods=n, freq="D"),
            "none": None,
        }
    )
    with pytest.warns(UserWarning, match="'none' .empty"):
        cad = ConformalDetector("knn", "split", random_state=0).fit(frame)
    found = {one.name: one.labels for one in cad.features}
    assert (found["site"], found["mixed"]) == (("0", "1", "2"), ("1", "a"))
    assert found["count"] is None
    assert {"day: weekday (sin)", "day: weekday (cos)"} <= set(found)
    plain = ConformalDetector("knn", "split", random_state=0).fit(REFERENCE[["x", "y"]])
    assert plain.n_features_in_ == 2


# --- sentences -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, "labels"])
@pytest.mark.parametrize(
    ("detector", "way_out"),
    [
        (IsolationForest(n_estimators=5), r"Prepare\(detector\)"),
        (make_pipeline(StandardScaler(), Median()), "ColumnTransformer"),
    ],
    ids=str,
)
def test_text_for_a_detector_of_numbers_gets_a_sentence(kind, detector, way_out):
    labels = REFERENCE.assign(colour=REFERENCE["colour"].astype("string").astype("category"))
    frame = KINDS[kind](REFERENCE) if kind in KINDS else labels
    with pytest.raises(ReconformError, match=rf"text in the column 'colour'.*{way_out}"):
        ConformalDetector(detector, "split", random_state=0).fit(frame)


def test_missing_numbers_get_a_sentence():
    frame = pd.DataFrame({"x": np.arange(40.0), "y": 1.0 * (np.arange(40) % 7)})
    frame.loc[3, "y"] = None
    for gone in (frame, frame.convert_dtypes()):
        with pytest.raises(ReconformError, match=r"missing in the column 'y', .*Prepare") as said:
            ConformalDetector(Median()).fit(gone)
        assert "supervised" not in str(said.value)
    with pytest.raises(ReconformError, match=r"NaN: values are missing, and this detector takes"):
        ConformalDetector("knn").fit(frame.to_numpy())


def test_a_step_that_cannot_read_arrow_is_said():
    steps = ColumnTransformer([("x", StandardScaler(), ["x"]), ("y", "passthrough", ["y"])])
    table = pa.table({"x": np.arange(40.0), "y": np.arange(40.0) % 7})
    with pytest.raises(ReconformError, match=r"cannot read Arrow tables.*X\.to_pandas\(\)"):
        ConformalDetector(make_pipeline(steps, OneClassSVM()), "split").fit(table)


DAYS = pd.date_range("2024-01-01", periods=24)
DATES = {
    "pandas with a zone": REFERENCE.assign(when=DAYS.tz_localize("UTC")),
    "pandas with differences": REFERENCE.assign(when=DAYS - DAYS[0]),
    "pandas": REFERENCE.assign(when=DAYS),
    "pandas with dates of Python": REFERENCE.assign(when=DAYS.date),
    "pandas with periods": REFERENCE.assign(when=DAYS.to_period("D")),
    "pandas with types of Arrow": REFERENCE.assign(
        when=pd.Series(DAYS).astype(pd.ArrowDtype(pa.timestamp("ns")))
    ),
    "polars": pl.from_pandas(REFERENCE.assign(when=DAYS)),
    "polars with times of day": pl.from_pandas(REFERENCE).with_columns(
        when=pl.Series([datetime.time(i % 24) for i in range(24)])
    ),
    "pyarrow": pa.Table.from_pandas(REFERENCE.assign(when=DAYS)),
}


@pytest.mark.parametrize("frame", DATES.values(), ids=DATES.keys())
@pytest.mark.parametrize(
    "detector",
    [IsolationForest(n_estimators=5), make_pipeline(StandardScaler(), Median())],
    ids=["IsolationForest", "pipeline"],
)
def test_dates_get_our_sentence(frame, detector):
    with pytest.raises(ReconformError, match=r"dates or times \('when'\).*hour of the day"):
        ConformalDetector(detector, "split", random_state=0).fit(frame)


@pytest.mark.parametrize(
    "rows",
    [
        np.array([[1.0, datetime.date(2024, 1, d)] for d in range(1, 20)], dtype=object),
        [[1.0, datetime.datetime(2024, 1, d)] for d in range(1, 20)],
        [[np.timedelta64(d, "s"), 1.0] for d in range(19)],
        np.arange(40).reshape(20, 2).astype("datetime64[s]"),
        list(np.arange(40).reshape(20, 2).astype("timedelta64[ms]")),
    ],
    ids=["array of objects", "lists", "timedeltas", "datetimes", "list of arrays"],
)
def test_dates_in_arrays_get_our_sentence(rows):
    with pytest.raises(ReconformError, match=r"dates or times \((column [01]|.*64.*)\)"):
        ConformalDetector("knn", "split", random_state=0).fit(rows)


def test_a_pipeline_may_make_something_of_dates():
    hour = FunctionTransformer(lambda frame: frame["when"].dt.hour.to_frame())
    columns = ColumnTransformer([("x", "passthrough", ["x"]), ("hour", hour, ["when"])])
    frame = REFERENCE.assign(when=pd.date_range("2024-01-01", periods=24, freq="h"))
    cad = ConformalDetector(make_pipeline(columns, Median()), "cv+", random_state=0).fit(frame)
    assert len(cad.p_values(frame)) == 24
    unused = ColumnTransformer([("x", "passthrough", ["x"])])
    ConformalDetector(make_pipeline(unused, Median()), "cv+", random_state=0).fit(frame)
    wrong = ColumnTransformer([("x", StandardScaler(), ["x", "when"])])
    with pytest.raises(ReconformError, match=r"dates or times \('when'\)"):
        ConformalDetector(make_pipeline(wrong, Median()), "cv+", random_state=0).fit(frame)


def test_lazy_frames_and_record_batches():
    numbers = REFERENCE[["x", "y"]]
    cad = ConformalDetector("knn", "split", random_state=0)
    refused(r"LazyFrame.*X.collect\(\)", cad.fit, pl.from_pandas(numbers).lazy())
    batch = pa.RecordBatch.from_pandas(numbers, preserve_index=False)
    assert np.array_equal(cad.fit(batch).p_values(batch), cad.fit(numbers).p_values(numbers))


# --- what the reference cannot tell --------------------------------------------------------------


def test_columns_that_never_change_are_named(rng):
    X, new = rng.normal(size=(60, 2)), rng.normal(size=(20, 2))
    plain = ConformalDetector("knn", "jackknife+").fit(X).p_values(new)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(site=7.0, plant=1)
    with pytest.warns(ReferenceWarning, match="columns 'site', 'plant' never change") as told:
        cad = ConformalDetector("knn", "jackknife+").fit(frame)
    assert told[0].filename == __file__
    same = pd.DataFrame(new, columns=["a", "b"]).assign(site=7.0, plant=1)
    assert np.array_equal(cad.p_values(same), plain)
    assert "ignored" not in str(told[0].message)  # a new row with another value looks unusual
    assert cad.p_values(same.assign(site=99.0)).tolist() == [1 / 61] * len(same)
    with pytest.warns(ReferenceWarning, match="the column '1' never changes"):
        ConformalDetector("knn", "split").fit(np.column_stack([X[:, 0], np.ones(60)]))


def test_a_detector_whose_scores_say_nothing_is_named():
    X = np.random.default_rng(0).normal(size=(40, 2))

    def nothing(X):
        return lambda rows: np.zeros(len(rows))

    with pytest.warns(ReferenceWarning, match=r"are equal.*detector nothing does not tell"):
        ConformalDetector(nothing, "split", larger_is="normal", random_state=0).fit(X)

    def overflow(X):
        return lambda rows: np.where(rows[:, 0] > 0, np.inf, rows[:, 0])

    with pytest.warns(ReferenceWarning, match=r"detector overflow gives \d+ of 20 calibration"):
        ConformalDetector(overflow, "split", larger_is="anomalous", random_state=0).fit(X)
    with pytest.warns(ReferenceWarning, match="detector KNN gives 40 of 40 calibration rows"):
        ConformalDetector("knn", "jackknife+").fit(X * 1e200)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        *((name, "GroupKFold") for name in ("split", "jackknife+", "cv+", "jab+", "full")),
        ("prefit", "GroupKFold"),
        (methods.Resampling(KFold(5)), ""),
        (methods.Resampling([np.arange(20)]), ""),
    ],
    ids=str,
)
def test_blocks_that_a_method_ignores_are_refused(method, said):
    X, groups = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) // 4
    fitted = IsolationForest(n_estimators=5, random_state=0).fit(X)
    with pytest.raises(ReconformError, match=rf"ignores blocks.*{said}"):
        ConformalDetector(fitted if method == "prefit" else "knn", method).fit(X, blocks=groups)
    cad = ConformalDetector("knn", methods.Resampling(GroupKFold(5))).fit(X, blocks=groups)
    assert cad.plan_.n_models == 5


@pytest.mark.filterwarnings("default")
def test_a_reference_that_is_too_small_warns_once(rng):
    cad = ConformalDetector("knn", "jackknife+").fit(rng.normal(size=(20, 2)))
    new = rng.normal(size=(30, 2))
    with pytest.warns(ReferenceWarning, match="With 20 reference rows and 30 new ones") as told:
        found = cad.discover(new, fdr=0.01)
    assert (told[0].filename, str(told[0].message)) == (__file__, found.warning)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cad.discover(new, fdr=0.01)
        large = ConformalDetector("knn", "jackknife+").fit(rng.normal(size=(300, 2)))
        assert large.discover(new, fdr=0.2).warning is None


# --- results -------------------------------------------------------------------------------------


def test_results_are_frames_of_the_same_library():
    cad = ConformalDetector(pipeline(), "cv+", random_state=0).fit(REFERENCE)
    labelled = NEW.set_index(pd.Index([f"r{i}" for i in range(8)]))
    found = {kind: cad.discover(KINDS[kind](NEW)) for kind in KINDS}
    pandas, polars, arrow = (found[kind].to_frame() for kind in KINDS)
    assert isinstance(polars, pl.DataFrame)
    assert isinstance(arrow, pa.Table)
    assert polars.columns == arrow.column_names == ["row", *pandas.columns]
    assert polars["row"].to_list() == arrow["row"].to_pylist() == pandas.index.tolist()
    assert polars["p_value"].to_list() == pandas["p_value"].tolist()
    assert arrow["anomaly"].to_pylist() == pandas["anomaly"].tolist()
    assert cad.discover(labelled).to_frame(library="polars")["row"][0] == "r1"
    assert cad.discover(labelled).to_frame().index[0] == "r1"
    refused("library must be one of 'pandas', 'polars'", found["pandas"].to_frame, library="panda")


def test_results_without_pandas_are_tables_of_arrow(monkeypatch):
    monkeypatch.setattr("reconform.discoveries.installed", lambda package, otherwise: otherwise)
    X = np.random.default_rng(0).normal(size=(50, 2))
    found = ConformalDetector("knn", "jackknife+").fit(X).discover(X + 9)
    frame = found.to_frame()
    assert isinstance(frame, pa.Table)
    assert (frame.num_rows, frame["row"].to_pylist()) == (50, found.order.tolist())


# --- Prepare -------------------------------------------------------------------------------------


HOLES = REFERENCE.copy()
HOLES.loc[::5, "x"] = np.nan
HOLES.loc[3, "colour"] = None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("detector", ["knn", "iforest", Median()], ids=str)
@pytest.mark.parametrize("method", ["split", "jackknife+", "full"])
def test_prepare_takes_text_and_missing_values(kind, detector, method):
    as_kind = KINDS[kind]
    cad = ConformalDetector(Prepare(detector), method, random_state=0).fit(as_kind(HOLES))
    p = cad.p_values(as_kind(NEW[["y", "x", "count", "colour"]]))
    colour = Feature("colour", ("blue", "red"))
    assert cad.features == (Feature("x"), colour, Feature("count"), Feature("y"))
    # the same as the codes of the same features, which files are read as
    by_codes = ConformalDetector(prepared(detector, cad.features), method, random_state=0)
    codes = {label: label_code(label) for label in ("blue", "red")}
    coded = HOLES.assign(colour=HOLES["colour"].map(codes)).to_numpy(dtype=float)
    by_codes.fit(coded)
    assert np.array_equal(by_codes.calibration_.scores, cad.calibration_.scores)
    assert ((p > 0) & (p <= 1)).all()
    order = np.random.default_rng(2).permutation(len(HOLES))
    permuted = as_kind(HOLES.iloc[order].reset_index(drop=True))
    again = ConformalDetector(Prepare(detector), method, random_state=0).fit(permuted)
    assert np.array_equal(again.p_values(as_kind(NEW)), p)


def test_prepared_models_judge_files(tmp_path):
    from reconform.files.judge import judge_file

    NEW.to_csv(tmp_path / "new.csv", index=False)
    columns = ColumnTransformer([("numbers", StandardScaler(), ["x", "y"])])
    numbers = REFERENCE.drop(columns="colour")
    scaled = make_pipeline(columns, Median())
    for detector, reference in ((Prepare("knn"), REFERENCE), (scaled, numbers)):
        cad = ConformalDetector(detector, "split", random_state=0).fit(reference)
        judged = judge_file(cad, tmp_path / "new.csv", None, Rule(fdr=0.5))
        assert judged.count == cad.discover(NEW[list(reference)], fdr=0.5).count
    cad = ConformalDetector(pipeline(), "split", random_state=0).fit(REFERENCE)
    with pytest.raises(ReconformError, match=r"text \('colour'\).*Prepare"):
        judge_file(cad, tmp_path / "new.csv", None, Rule(fdr=0.5))


def test_prepare_takes_arrays():
    X = np.column_stack([REFERENCE["x"], REFERENCE["count"]])
    X[::7, 0] = np.nan
    cad = ConformalDetector(Prepare("knn", categories=[1]), "jackknife+").fit(X)
    assert cad.features == (Feature("0"), Feature("1", ("0", "1", "2", "3", "4")))
    assert len(cad.p_values(X)) == 24


@pytest.mark.parametrize("detector", ["auto", "knn"])
def test_very_many_rows_are_prepared_alike(detector):
    """By size, a split takes the place of full-conformal ranks: with the labels that it had."""
    reference, new = table(120, 5), table(30, 6)
    new.loc[0, ["x", "y"]], new.loc[1, "colour"] = 30.0, "mauve"
    cad = ConformalDetector(Prepare(detector), "auto", random_state=0).fit(reference)
    large = cad.for_rows(10**9)
    assert (cad.plan_.scheme, large.plan_.scheme) == ("full", "split")
    assert large.features == cad.features
    by_split = ConformalDetector(Prepare(detector), large.method, random_state=0).fit(reference)
    turned = new[["y", "count", "colour", "x"]]
    expected = by_split.discover(new, fdr=0.5)
    assert np.array_equal(large.discover(turned, fdr=0.5).p_values, expected.p_values)
    assert expected.mask[0]


def test_what_prepare_refuses():
    with pytest.raises(ReconformError, match=r"`categories` names a column 'counts'.*'count'"):
        ConformalDetector(Prepare("knn", categories=["counts"]), "split").fit(REFERENCE)
    names = REFERENCE.assign(colour=[f"part {i}" for i in range(24)])
    with pytest.warns(UserWarning, match=r"not used: 'colour' \(id, different in most rows"):
        ConformalDetector(Prepare("knn"), "split").fit(names)
    cad = ConformalDetector(Prepare("knn"), "split", random_state=0).fit(REFERENCE)
    with pytest.raises(ReconformError, match=r"text where the reference has numbers.*'x'.*'high'"):
        cad.p_values(NEW.assign(x="high"))
    refused("prefit", ConformalDetector(Prepare("knn"), "prefit").fit, REFERENCE)
    refused("infinity", cad.p_values, NEW.assign(x=np.inf))


def test_what_streams_arrow_is_a_frame():
    class Stream:
        """Anything that hands its rows over as Arrow does."""

        def __arrow_c_stream__(self, requested_schema=None):
            return pa.Table.from_pandas(REFERENCE).__arrow_c_stream__(requested_schema)

    relation = pytest.importorskip("duckdb").from_arrow(pa.Table.from_pandas(REFERENCE))
    expected = ConformalDetector(Prepare("knn"), "jackknife+").fit(REFERENCE).p_values(NEW)
    for rows in (Stream(), relation):
        cad = ConformalDetector(Prepare("knn"), "jackknife+").fit(rows)
        np.testing.assert_array_equal(cad.p_values(NEW), expected)
        assert cad.discover(rows).library == "pyarrow"
    reader = pa.Table.from_pandas(REFERENCE).to_reader()
    refused(r"give X\.read_all\(\)", ConformalDetector(Prepare("knn")).fit, reader)


TYPES = [
    pd.Series([1, None], dtype="Int64"),
    pd.Series([True, None], dtype="boolean"),
    pd.Series([1.5, None], dtype="float32[pyarrow]"),
    pd.Series([True, None], dtype=object),
    pd.Series([datetime.date(2020, 1, 2), None], dtype=object),
    pd.Series(["a", None], dtype="category"),
    pd.Series([["a"], None], dtype=object),
    pl.Series([1, None]),
    pl.Series([True, None]),
    pl.Series([None, None]),
    pl.Series(["a", None], dtype=pl.Categorical),
    pa.chunked_array([[2**60, None]]),
    pa.chunked_array([pa.array([15, None], type=pa.decimal128(4, 2))]),
]


@pytest.mark.parametrize("cells", TYPES, ids=lambda cells: str(getattr(cells, "dtype", "arrow")))
def test_a_missing_cell_of_any_type_is_missing(cells):
    column = read_column(nw.from_native(cells, series_only=True))
    read = column.codes() if column.values is None else column.values
    assert np.isnan(read[1])
    first = cells[0].as_py() if isinstance(cells, pa.ChunkedArray) else cells[0]
    if column.values is not None:
        assert first is None or read[0] == float(first)
    else:
        assert column.words == [str(first)]
        assert read[0] == label_code(str(first))


@pytest.mark.parametrize("detector", ["knn", "inne", "iforest", OneClassSVM()], ids=str)
@pytest.mark.parametrize("method", ["split", "jackknife+", "cv+", "full"])
def test_prepared_models_are_saved(tmp_path, detector, method):
    if method == "jackknife+" and not isinstance(detector, str):
        return  # a fit per row, and an object of others each
    prepare = Prepare(detector, categories=["count"])
    cad = ConformalDetector(prepare, method, random_state=0).fit(HOLES)
    save(cad, tmp_path / "m.rcad")
    again = load(tmp_path / "m.rcad", trusted=True)
    assert again.features == cad.features
    assert np.array_equal(again.p_values(NEW), cad.p_values(NEW))
    assert repr(again.detector) == repr(prepare)


def test_rows_that_are_dicts_are_a_frame():
    """For fit and for judging, in any order of their keys; a key of the first row must be there."""
    rows, new = REFERENCE.to_dict("records"), NEW.to_dict("records")
    expected = ConformalDetector(Prepare("knn"), "jackknife+").fit(REFERENCE)
    cad = ConformalDetector(Prepare("knn"), "jackknife+").fit(rows)
    turned = [dict(reversed(row.items())) for row in new]
    np.testing.assert_array_equal(cad.p_values(turned), expected.p_values(NEW))
    assert cad.discover(turned).count == expected.discover(NEW).count
    refused("row 1 lacks the key", cad.fit, [rows[0], {}])
