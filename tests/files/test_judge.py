"""A file in two passes: the same as the whole batch at once, whatever the batches."""

import io
import sys
import tempfile
import tracemalloc
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.svm import OneClassSVM

from reconform import ConformalDetector, RankCounts, Rule
from reconform.detectors.prepare import prepared
from reconform.files import InputError, Layout, open_output, read_reference
from reconform.files.judge import ReadOptions, WriteOptions, judge_file
from reconform.statistics.exact import harmonic_number
from reconform.tables import Feature
from refusals import refused

RESULTS = ["score", "p_value", "q_value", "anomaly"]


def save(table, path):
    with open_output(path, table.schema) as write:
        write(table)
    return path


def read(path):
    """Any output as columns; text files through Arrow's own reader."""
    if path.suffix == ".parquet":
        return pq.read_table(path)
    if path.suffix == ".arrow":
        return pa.ipc.open_file(path.read_bytes()).read_all()
    import pyarrow.csv

    return pyarrow.csv.read_csv(path)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(80, 3))
    new = np.vstack([rng.normal(size=(200, 3)), rng.normal(7, 1, size=(30, 3))])
    new = new[rng.permutation(len(new))]
    return reference, new


@pytest.fixture(scope="module")
def cad(data):
    frame = pa.table(dict(zip("abc", data[0].T, strict=True)))
    return ConformalDetector(OneClassSVM(gamma=0.1), "cv+", random_state=0).fit(frame)


@pytest.fixture
def new_table(data):
    new = data[1]
    return pa.table(
        {
            "note": [f"row {i}, say" for i in range(len(new))],
            "c": new[:, 2],
            "a": new[:, 0],
            "id": np.arange(len(new)) * 7,
            "b": new[:, 1],
        }
    )


def discover(cad, data, **options):
    names = dict(zip("abc", data[1].T, strict=True))
    return cad.discover(pa.table(names), **options)


@pytest.mark.parametrize("batch_rows", [1, 7, 64, 230, 10_000, None])
def test_two_passes_give_what_one_batch_gives(tmp_path, cad, data, new_table, batch_rows):
    found = discover(cad, data)
    path = save(new_table, tmp_path / "new.parquet")
    out = tmp_path / "out.parquet"
    judged = judge_file(cad, path, out, read=ReadOptions(batch_rows=batch_rows, id_columns=["id"]))
    written = read(out)
    assert written.column_names == [*new_table.column_names, *RESULTS]
    assert written.select(new_table.column_names).equals(new_table)
    assert np.array_equal(written["score"].to_numpy(), found.scores)
    assert np.array_equal(written["p_value"].to_numpy(), found.p_values)
    assert np.array_equal(written["q_value"].to_numpy(), found.q_values)
    assert np.array_equal(written["anomaly"].to_numpy(), found.mask)
    assert (judged.count, judged.tested) == (found.count, 230)
    assert found.count > 10
    same = judged.to_discoveries()
    assert np.array_equal(same.ranks, found.ranks)
    for name in ("p_threshold", "procedure", "fdr"):
        assert getattr(same, name) == getattr(found, name)
    assert list(same.index) == list(np.arange(230) * 7)
    assert same.provenance.calibration_fingerprint == found.provenance.calibration_fingerprint


@pytest.mark.parametrize(
    ("source", "target"),
    [(".csv", ".parquet"), (".tsv", ".arrow"), (".csv.gz", ".csv"), (".arrow", ".tsv")],
)
def test_formats_in_and_out(tmp_path, cad, data, new_table, source, target):
    found = discover(cad, data)
    path = save(new_table, tmp_path / f"new{source}")
    out = tmp_path / f"out{target}"
    judge_file(cad, path, out, read=ReadOptions(batch_rows=100))
    if target == ".tsv":
        out = tmp_path / "as.csv"
        judge_file(cad, path, out, write=WriteOptions(layout=Layout(delimiter=",")))
    written = read(out)
    assert written.column_names == [*new_table.column_names, *RESULTS]
    assert np.array_equal(written["q_value"].to_numpy(), found.q_values)
    assert np.array_equal(written["anomaly"].to_numpy(zero_copy_only=False), found.mask)
    # Features are numbers in formats that have types, even from text.
    assert np.array_equal(written["a"].to_numpy(), data[1][:, 0])
    assert written["note"].to_pylist() == new_table["note"].to_pylist()


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
@pytest.mark.parametrize("batch_rows", [3, 1000])
def test_only_anomalies_most_unusual_first(
    tmp_path, cad, data, new_table, suffix, batch_rows, monkeypatch
):
    monkeypatch.setattr("reconform.files.result.MOST_FLAGGED", 5)
    found = discover(cad, data)
    path = save(new_table, tmp_path / "new.csv")
    out = tmp_path / f"out{suffix}"
    read_, write = ReadOptions(batch_rows=batch_rows), WriteOptions(only_anomalies=True)
    judged = judge_file(cad, path, out, read=read_, write=write)
    expected = np.lexsort((found.scores, found.p_values))[: found.count]
    # In text an identifier is text, and stays so: 007 is not 7.
    assert [int(i) for i in read(out)["id"].to_pylist()] == (expected * 7).tolist()
    assert read(out)["anomaly"].to_pylist() == [True] * found.count
    # Most share their p-value, so the score decides.
    assert len(set(found.p_values[expected])) < found.count
    assert judged.flagged.positions.tolist() == expected[:5].tolist()
    assert np.array_equal(judged.flagged.X, data[1][expected[:5]])
    assert len(judged.flagged.table) == 5
    every = judge_file(cad, path, read=ReadOptions(batch_rows=batch_rows))
    assert every.flagged.positions.tolist() == expected[:5].tolist()


def test_so_many_flagged_rows_are_written_in_order(tmp_path, cad, data, new_table, monkeypatch):
    path, write = save(new_table, tmp_path / "new.csv"), WriteOptions(only_anomalies=True)
    monkeypatch.setattr("reconform.files.result.MOST_DISCOVERIES", discover(cad, data).count - 1)
    with pytest.raises(InputError, match="Leave out `only_anomalies`"):
        judge_file(cad, path, tmp_path / "out.csv", write=write)
    assert not (tmp_path / "out.csv").exists()


def test_a_few_flagged_rows_need_no_temporary_file(tmp_path, cad, new_table, monkeypatch):
    path = save(new_table, tmp_path / "new.csv")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    assert judge_file(cad, path, tmp_path / "out.csv").count > 4


def test_long_flagged_rows_wait_on_disk(tmp_path, cad, new_table, monkeypatch):
    path, write = save(new_table, tmp_path / "new.csv"), WriteOptions(only_anomalies=True)
    outs = tmp_path / "few.csv", tmp_path / "long.csv"
    read = ReadOptions(batch_rows=20, wanted=[200, 7])
    few = judge_file(cad, path, outs[0], read=read, write=write)
    monkeypatch.setattr("reconform.files.result.SPILL_BYTES", 1)
    monkeypatch.setattr("reconform.files.result.PIECE_BYTES", 500)
    long = judge_file(cad, path, outs[1], read=read, write=write)
    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert 0 < len(long.flagged) < len(few.flagged)
    assert long.flagged.table.equals(few.flagged.table.slice(0, len(long.flagged)))
    assert long.wanted.positions.tolist() == few.wanted.positions.tolist() == [200, 7]
    assert long.wanted.table.equals(few.wanted.table)


def test_nothing_flagged(tmp_path, cad, new_table):
    calm = new_table.filter(pa.array(np.abs(new_table["a"].to_numpy()) < 0.5))
    path = save(calm, tmp_path / "calm.parquet")
    for suffix in (".csv", ".parquet"):
        out = tmp_path / f"out{suffix}"
        judged = judge_file(cad, path, out, write=WriteOptions(only_anomalies=True))
        assert judged.count == len(judged.flagged) == read(out).num_rows == 0
        assert read(out).column_names == [*new_table.column_names, *RESULTS]


def test_the_fingerprint_is_that_of_the_reference(tmp_path, cad, new_table):
    path = save(new_table.select(["a", "b", "c"]), tmp_path / "new.csv")
    assert judge_file(cad, path).fingerprint == read_reference(path).fingerprint


def test_unseen_labels_and_missing_values_are_counted(tmp_path, rng):
    normal = pa.table({"x": rng.normal(size=60), "colour": rng.choice(["red", "blue"], 60)})
    reference = read_reference(save(normal, tmp_path / "normal.csv"))
    cad = ConformalDetector(prepared(OneClassSVM(), reference.features), "cv+", random_state=0)
    cad.fit(reference.X)
    path = tmp_path / "new.csv"
    path.write_text("colour,x\nred,0\nmauve,1\nmauve,\n,0.5\nteal,0\n")
    for batch_rows in (1, 2, 100):
        read = ReadOptions(features=reference.features, batch_rows=batch_rows)
        judged = judge_file(cad, path, read=read)
        assert (judged.unseen, judged.missing) == ({"colour": 3}, {"colour": 1, "x": 1})
    assert judged.tested == 5


def test_an_output_is_laid_out_like_the_input(tmp_path, cad, monkeypatch):
    path = tmp_path / "new.csv"
    path.write_text("b;note;a;c\n0,5;x;0;1\n-1,5;y;7,25;8\n")
    layout = Layout(delimiter=";", decimal=",")
    judged = judge_file(cad, path, tmp_path / "out.csv", read=ReadOptions(layout=layout))
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == "b;note;a;c;score;p_value;q_value;anomaly"
    assert lines[2].startswith("-1,5;y;7,25;8;")
    p = judged.to_discoveries().p_values[1]
    assert lines[2].split(";")[5] == str(p).replace(".", ",")
    judge_file(cad, path, tmp_path / "out.tsv", read=ReadOptions(layout=layout))
    assert "\t" in (tmp_path / "out.tsv").read_text()
    stdout = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(stdout))
    judge_file(cad, path, "-", read=ReadOptions(layout=layout))
    assert stdout.getvalue() == (tmp_path / "out.csv").read_bytes()


def test_progress_is_reported(tmp_path, cad, new_table):
    seen = []
    path = save(new_table, tmp_path / "new.parquet")
    read = ReadOptions(batch_rows=100)
    judge_file(cad, path, read=read, progress=lambda *step: seen.append(step))
    assert seen == [(stage, done, 230) for stage in ("ranking", "writing")
                    for done in (100, 200, 230)]  # fmt: skip


# --- nothing half done ---------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["ranking", "writing"])
@pytest.mark.parametrize("only_anomalies", [True, False])
def test_an_interrupted_run_leaves_everything_as_it_was(
    tmp_path, cad, new_table, stage, only_anomalies, monkeypatch
):
    spools = tmp_path / "spools"
    spools.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spools))
    path = save(new_table, tmp_path / "new.csv")
    out = tmp_path / "out.parquet"
    out.write_text("precious")

    def interrupt(now, done, total):
        if now == stage and done > 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge_file(
            cad,
            path,
            out,
            read=ReadOptions(batch_rows=50),
            write=WriteOptions(overwrite=True, only_anomalies=only_anomalies),
            progress=interrupt,
        )
    assert out.read_text() == "precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new.csv", "out.parquet", "spools"]
    assert list(spools.iterdir()) == []


@pytest.mark.parametrize("extra", ["x,1,1,1,1\n", ""])
def test_a_file_that_changes_meanwhile_is_refused(tmp_path, cad, new_table, extra):
    path = save(new_table, tmp_path / "new.csv")

    def meddle(stage, done, total):
        if stage == "ranking" and done == 230:
            text = path.read_text() + extra
            path.write_text(text if extra else text.replace("row 5,", "row X,"))

    with pytest.raises(InputError, match="changed while"):
        judge_file(cad, path, tmp_path / "out.csv", progress=meddle)
    assert not (tmp_path / "out.csv").exists()


def test_a_bad_output_is_refused_before_any_work(tmp_path, cad, new_table):
    def fail(*step):
        raise AssertionError("work was done")

    path = save(new_table, tmp_path / "new.csv")
    (tmp_path / "there.csv").write_text("precious")
    with pytest.raises(FileExistsError, match="`overwrite=True`"):
        judge_file(cad, path, tmp_path / "there.csv", progress=fail)
    with pytest.raises(InputError, match="read, not written; name it"):
        judge_file(cad, path, tmp_path / "out.xlsx", progress=fail)
    clash = save(new_table.append_column("anomaly", new_table["id"]), tmp_path / "clash.csv")
    judge_file(cad, clash, tmp_path / "out.csv")
    assert read(tmp_path / "out.csv").column_names[-4:] == [f"result_{name}" for name in RESULTS]


def test_bad_arguments(tmp_path, cad, data, new_table):
    path = save(new_table, tmp_path / "new.csv")
    refused("3 columns", judge_file, cad, path, read=ReadOptions(features=[Feature("a")]))
    refused("batch_rows", judge_file, cad, path, read=ReadOptions(batch_rows=0))
    with pytest.raises(InputError, match="`id_columns` names"):
        judge_file(cad, path, read=ReadOptions(id_columns=["ID"]))
    with pytest.raises(NotFittedError):
        judge_file(ConformalDetector(OneClassSVM()), path)
    nameless = ConformalDetector(OneClassSVM(), "split").fit(data[0])
    refused("column names", judge_file, nameless, path)
    smoothed = ConformalDetector(OneClassSVM(), "split", ties="randomized").fit(data[0])
    refused("conservative", judge_file, smoothed, path)


# --- memory --------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_file(tmp_path, rng):
    names = [f"x{j}" for j in range(10)]
    schema = pa.schema([(name, pa.float64()) for name in names])
    path = tmp_path / "large.parquet"
    with open_output(path, schema) as write:
        for _ in range(30):
            write(pa.table(dict(zip(names, rng.normal(size=(10, 10_000)), strict=True))))

    def fit(X):
        mean = X.mean(axis=0)
        return lambda rows: np.abs(rows - mean).sum(axis=1)

    cad = ConformalDetector(fit, "split", larger_is="anomalous", random_state=0)
    cad.fit(rng.normal(size=(1000, 10)))
    features = [Feature(name) for name in names]
    peaks = []

    def watch(*step):
        peaks.append(pa.total_allocated_bytes())

    before = pa.total_allocated_bytes()
    tracemalloc.start()
    read = ReadOptions(features=features, batch_rows=5000)
    judged = judge_file(cad, path, tmp_path / "out.parquet", read=read, progress=watch)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert judged.tested == 300_000
    # 300,000 x 10 doubles are 24 MB, and the ranks and scores 3.6 MB of it are kept on purpose,
    # for `to_discoveries`. A batch is 0.4 MB, a spill at most 16 MB before it goes to disk.
    assert peak < 20e6
    assert max(peaks) - before < 16e6


# --- the smallest number that can be flagged -----------------------------------------------------


@pytest.mark.parametrize("procedure", ["bh", "by"])
def test_exactly_so_many_can_be_flagged(procedure, rng):
    reached = 0
    for _ in range(300):
        n, m = int(rng.integers(1, 60)), int(rng.integers(1, 80))
        fdr = Fraction(int(rng.integers(1, 40)), 100)
        fewest = Rule(fdr, procedure).smallest_list(n, m)
        assert fewest >= 1
        for k in {fewest - 1, fewest} & set(range(1, m + 1)):
            ranks = np.r_[np.full(k, 1), np.full(m - k, n + 1)]
            count = RankCounts(n, "").add(ranks).decide(fdr, procedure=procedure).count
            assert (count >= k) == (k >= fewest)
            reached += k == fewest
    assert reached > 30


def test_the_issues_example():
    sentence = Rule(0.1).warning(100, 5_000)
    assert sentence.startswith(
        "With 100 reference rows and 5,000 new ones, at least 496 rows must stand out before any "
        "can be flagged at 10%: no p-value is below 1/101."
    )
    assert "with 49,999 a single anomaly can be flagged" in sentence
    assert Rule(0.1).smallest_list(49_999, 5_000) == 1
    assert Rule(0.1).smallest_list(49_998, 5_000) == 2
    assert Rule(0.1).warning(49_999, 5_000) is None


def test_other_warnings():
    assert "no row can be flagged at 2.5%" in Rule(0.025).warning(10, 20)
    split = Rule(0.1).warning(50, 5_000, n_reference=100)
    assert split.startswith("With 50 calibration rows and 5,000 new ones, at least 981 rows ")
    plus = Rule(0.1).warning(50, 5_000, n_reference=100, instead="jackknife+")
    assert "`method='jackknife+'`" in plus
    assert Rule(0.1, "storey").warning(100, 5_000) is None
    fewest = Rule(0.1, "by").smallest_list(100, 5_000)
    assert fewest == -(-5_000 * harmonic_number(5_000)[0] * 10 // 101)
    assert f"{fewest:,}" in Rule(0.1, "by").warning(100, 5_000)
    doubled = Rule(0.1).warning(100, 5_000, smallest_p=Fraction(2, 101))
    assert "at least 991 rows " in doubled
    assert "below 2/101" in doubled


def test_a_judgement_carries_the_warning(tmp_path, cad, new_table):
    path = save(new_table, tmp_path / "new.csv")
    assert judge_file(cad, path, rule=Rule(fdr=0.1)).warning.startswith(
        "With 80 reference rows and 230 new ones, at least 29 rows "
    )
