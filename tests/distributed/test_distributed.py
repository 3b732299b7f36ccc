"""Many partitions, one answer, also where workers die."""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from joblib import effective_n_jobs, parallel_config
from sklearn.base import BaseEstimator
from sklearn.ensemble import IsolationForest

from reconform import Bootstrap, ConformalDetector, CrossValidation, Rule, Split
from reconform.errors import ReconformError
from refusals import refused

pytest.importorskip("dask", reason="needs reconform[dask]")
pytest.importorskip("distributed", reason="needs reconform[dask]")

import dask
import dask.array as da
import dask.dataframe as dd
from distributed import Client, LocalCluster

from reconform.distributed import DistributedDiscoveries, discover

NAMES = ["flow", "heat", "speed"]


def rows_of(seed, normal, anomalous=0):
    rng = np.random.default_rng(seed)
    rows = np.vstack([rng.normal(size=(normal, 3)), rng.normal(6, 1, size=(anomalous, 3))])
    return pd.DataFrame(rng.permutation(rows), columns=NAMES)


REFERENCE = rows_of(0, 1000)
NEW = rows_of(1, 440, 60)
NEW.index = pd.Index(np.arange(500) * 2 + 7, name="line")


def detector(method="split", algorithm="knn", **parameters):
    return ConformalDetector(algorithm, method, random_state=0, **parameters).fit(REFERENCE)


def expected(cad, rows=NEW, **options):
    return cad.discover(rows, **options).to_frame(order="input")


def assert_same(found: DistributedDiscoveries, whole: pd.DataFrame):
    pd.testing.assert_frame_equal(found.frame.compute(), whole, check_exact=True)
    assert found.count == whole["anomaly"].sum() > 0
    assert found.tested == len(found) == len(whole)


@pytest.fixture(scope="module")
def cluster():
    """Two real worker processes; those that are killed are not waited for longer than needed."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    patience = dask.config.set({"distributed.comm.timeouts.connect": "3s"})
    with patience, LocalCluster(**options) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture
def client(cluster):
    """Both workers there, also after a test that killed one."""
    cluster.wait_for_workers(2)
    return cluster


@pytest.fixture
def threads():
    """Dask's threads in this process, whatever cluster other tests have."""
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


# --- frames and arrays ---------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 3, 20])
def test_any_partitions_give_the_answer_of_the_whole(partitions, threads):
    cad = detector()
    found = discover(cad, dd.from_pandas(NEW, npartitions=partitions), fdr=0.1)
    assert_same(found, expected(cad))
    assert found.frame.known_divisions
    assert found.frame.npartitions == partitions


@pytest.mark.parametrize("method", ["cv", Bootstrap(draws=10), Split(repeats=3)], ids=str)
def test_methods_and_detectors_of_others(method, threads):
    cad = detector(method, IsolationForest(n_estimators=5))
    assert_same(discover(cad, dd.from_pandas(NEW, npartitions=4)), expected(cad))


def test_proven_p_values(threads):
    cad = detector("jackknife+")
    rows = dd.from_pandas(NEW, npartitions=4)
    found = discover(cad, rows, validity="proven", fdr=0.2, procedure="by")
    assert_same(found, expected(cad, validity="proven", fdr=0.2, procedure="by"))
    refused("needs the whole batch in memory", discover, cad, rows, validity="proven", fdr=0.2)


def test_columns_are_matched_by_name(threads):
    cad = detector()
    other = NEW[["speed", "flow", "heat"]].assign(note="text", score=1.0)
    assert_same(discover(cad, dd.from_pandas(other, npartitions=4)), expected(cad))


def test_results_go_beside_the_rows(threads):
    cad = detector()
    ddf = dd.from_pandas(NEW, npartitions=4)
    joined = dd.concat([ddf, discover(cad, ddf).frame], axis=1).compute()
    pd.testing.assert_frame_equal(joined, NEW.join(expected(cad)))
    unknown = ddf.clear_divisions()
    with pytest.warns(UserWarning, match="unknown divisions"):
        joined = dd.concat([unknown, discover(cad, unknown).frame], axis=1).compute()
    pd.testing.assert_frame_equal(joined, NEW.join(expected(cad)))


def test_identifiers_are_carried_through(threads):
    cad = detector()
    rows = NEW.assign(day=pd.Categorical(["a", "b"] * 250), number=np.arange(500), other=1.0)
    ddf = dd.from_pandas(rows, npartitions=4)
    found = discover(cad, ddf, id_columns=["number", "day", "heat"])
    whole = rows[["number", "day", "heat"]].join(expected(cad))
    pd.testing.assert_frame_equal(found.frame.compute(), whole)
    assert list(found.frame.columns) == list(whole.columns)
    unnamed = ConformalDetector("knn", "split", random_state=0).fit(REFERENCE.to_numpy())
    ddf = ddf[[*NAMES, "number"]]
    found = discover(unnamed, ddf, id_columns=["number"])
    pd.testing.assert_frame_equal(found.frame.compute(), rows[["number"]].join(expected(cad)))


@pytest.mark.parametrize("reader", ["fsspec", "arrow"])
def test_files_read_by_dask_stay_partitions(reader, tmp_path, threads):
    cad = detector()
    for k in range(10):  # with columns that are not used, and files so small that Dask joins them
        part = NEW.iloc[50 * k : 50 * (k + 1)].assign(**{f"other{j}": "x" for j in range(9)})
        part.to_parquet(tmp_path / f"{k}.parquet")
    ddf = dd.read_parquet(tmp_path, filesystem=reader)
    found = discover(cad, ddf)
    assert found.frame.npartitions == ddf.npartitions == 10
    whole = expected(cad).loc[ddf.compute().index]  # in the order in which Dask reads the files
    assert_same(found, whole)


def test_empty_partitions_count_nothing(threads):
    cad = detector()
    ddf = dd.from_pandas(NEW, npartitions=10)
    few = ddf[ddf["flow"] > 7]
    found = discover(cad, few)
    assert 0 in few.map_partitions(len).compute().tolist()
    assert_same(found, expected(cad, NEW[NEW["flow"] > 7]))
    refused("data has no rows", discover, cad, ddf[ddf["flow"] > 1e6])


@pytest.mark.parametrize("chunks", [(500, 3), (130, 3), (99, 2)])
def test_arrays(chunks, threads):
    cad = ConformalDetector("knn", "split", random_state=0).fit(REFERENCE.to_numpy())
    array = da.from_array(NEW.to_numpy(), chunks=chunks)
    assert_same(discover(cad, array), expected(cad, NEW.to_numpy()))
    if chunks == (130, 3):  # of a size that is not known
        found = discover(cad, array[array[:, 0] > 0])
        whole = expected(cad, NEW.to_numpy()[NEW["flow"] > 0])
        assert_same(found, whole.set_axis(found.frame.index.compute()))


def test_it_says_what_it_found(threads):
    text = repr(discover(detector(), dd.from_pandas(NEW, npartitions=2)))
    assert text.startswith("DistributedDiscoveries: 70 ")
    assert "70 of 500 rows flagged\nOn average at most 10% of them are false alarms (proven" in text


class Counting(BaseEstimator):
    """A detector that notes every batch it scores, and can be told to take the process along."""

    def __init__(self, log=None, deadly=None):
        self.log = log
        self.deadly = deadly

    def fit(self, X, y=None):
        self.centre_ = X.mean(axis=0)
        return self

    def score_samples(self, X):
        if self.deadly is not None and len(X) == 50:  # a partition, and not the calibration
            try:
                os.unlink(self.deadly)  # only one process gets to do this
            except FileNotFoundError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        if self.log is not None:
            with open(self.log, "a") as log:
                log.write(f"{os.getpid()} {len(X)}\n")
        return -np.abs(X - self.centre_).max(axis=1)

    def __setstate__(self, state):
        super().__setstate__(state)
        if self.log is not None:
            with open(f"{self.log}.loads", "a") as log:
                log.write(f"{os.getpid()}\n")


def lines(path):
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def test_ranks_are_not_computed_twice(tmp_path, threads):
    log = tmp_path / "log"
    cad = detector(algorithm=Counting(str(log)))
    whole = expected(cad)
    log.unlink()
    found = discover(cad, dd.from_pandas(NEW, npartitions=10))
    assert_same(found, whole)
    assert lines(log) == [f"{os.getpid()} 50"] * 10


def test_partitions_are_the_only_parallelism(threads):
    jobs = set()

    def fit_centre(X):
        def score(new):
            if len(new) == 50:  # a partition
                jobs.add(effective_n_jobs(8))
            return -np.abs(new - X.mean(axis=0)).max(axis=1)

        return score

    cad = detector(algorithm=fit_centre, larger_is="normal")
    assert_same(discover(cad, dd.from_pandas(NEW, npartitions=10)), expected(cad))
    assert jobs == {1}


def test_a_partition_that_lacks_a_column_is_named(threads):
    message = r"a partition of data lacks a column: .*heat"
    for rows in (NEW, NEW.assign(note="text")):  # as it is, and after Dask has chosen columns
        parts = [rows.iloc[:50], rows.iloc[50:100].drop(columns="heat"), rows.iloc[100:]]
        ddf = dd.from_delayed([dask.delayed(part) for part in parts], meta=rows, verify_meta=False)
        refused(message, discover, detector(), ddf)
    with pytest.raises(ValueError, match=r"data lacks 'heat'; it has 'flow', 'speed'"):
        discover(detector(), ddf[["flow", "speed"]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"procedure": "ebh"}, "procedure must be one of 'bh', 'by', 'storey'"),
        ({"fdr": 0}, "fdr must be a number strictly between 0 and 1"),
        ({"id_columns": ["score"]}, "id_columns must not have the names of results; got 'score'"),
        ({"id_columns": ["nr"]}, "data lacks 'nr'; it has 'flow', 'heat', 'speed'"),
        ({"data": NEW}, "a Dask array or a Spark DataFrame; got DataFrame"),
        ({"data": da.zeros(5)}, "data must have two dimensions; got a Dask array of 1"),
        ({"data": "folder"}, "got str. Read files by dask.dataframe.read_parquet"),
    ],
)
def test_what_cannot_be_done_is_said(options, message, threads):
    arguments = {"data": dd.from_pandas(NEW, npartitions=2), **options}
    refused(message, discover, detector(), **arguments)


def test_a_rule_takes_the_place_of_the_keywords(threads):
    cad, rows = detector(), dd.from_pandas(NEW, npartitions=4)
    found = discover(cad, rows, rule=Rule(0.2, procedure="by"))
    assert_same(found, expected(cad, fdr=0.2, procedure="by"))
    for more in ({"fdr": 0.2}, {"procedure": "by"}):
        refused("`rule` says how to decide; leave `fdr`", discover, cad, rows, rule=Rule(), **more)


def test_smoothed_p_values_cannot_be_counted(threads):
    with pytest.raises(ValueError, match="smoothed p-values have none"):
        discover(detector(ties="randomized"), dd.from_pandas(NEW, npartitions=2))


# --- a detector is chosen for every row ----------------------------------------------------------

CANDIDATES = ["knn", "mahalanobis", "kde"]


def stretched(seed, normal, anomalous=0, shift=6.0):
    """One column drowns the others, so that not every detector finds the anomalies."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(normal + anomalous, 3))
    rows[:anomalous, 0] += shift
    rows[:, 1] *= 1000
    return pd.DataFrame(rng.permutation(rows), columns=NAMES)


NEW_STRETCHED = stretched(5, 470, 30).set_index(NEW.index)


def choosing(method="split", algorithm=CANDIDATES, named=True):
    reference = stretched(0, 1000)
    cad = ConformalDetector(algorithm, method, random_state=0)
    return cad.fit(reference if named else reference.to_numpy())


def assert_same_choice(found, whole):
    assert_same(found, whole.to_frame(order="input"))
    assert (found.choice, found.ranked_by) == (whole.choice, whole.ranked_by)
    assert found.claim == whole.claim
    assert sum(one.rows for one in found.choice) == whole.tested


def test_a_choice_for_arrays(threads):
    cad = choosing(named=False)
    array = da.from_array(NEW_STRETCHED.to_numpy(), chunks=(99, 2))
    assert_same_choice(discover(cad, array), cad.discover(NEW_STRETCHED.to_numpy()))


def test_a_choice_on_a_cluster_is_that_of_all_rows(client):
    cad = choosing()
    whole = cad.discover(NEW_STRETCHED)
    assert whole.choice[0].name != "knn"  # something was chosen
    found = discover(cad, dd.from_pandas(NEW_STRETCHED, npartitions=20))
    assert_same_choice(found, whole)
    assert found.frame.npartitions == 20


@pytest.mark.parametrize("algorithm", ["knn", CANDIDATES], ids=str)
@pytest.mark.parametrize("many", [False, True])
def test_the_method_depends_on_the_number_of_rows(algorithm, many, threads, monkeypatch):
    if many:  # 500 new rows and 1,000 reference rows are too many for full
        monkeypatch.setattr("reconform.methods.MOST_PAIRS", 100_000)
    cad = choosing("auto", algorithm)
    whole = cad.discover(NEW_STRETCHED)
    assert whole.provenance.scheme == ("split" if many else "full")
    found = discover(cad, dd.from_pandas(NEW_STRETCHED, npartitions=4))
    pd.testing.assert_frame_equal(found.frame.compute(), whole.to_frame(order="input"))
    assert (found.choice, found.provenance.scheme) == (whole.choice, whole.provenance.scheme)


def test_few_rows_that_cannot_be_judged_are_refused(threads):
    holes = NEW_STRETCHED.copy()
    holes.iloc[260, 1] = np.nan
    for method, message in [("auto", "data cannot"), ("split", "partition 2 of data cannot")]:
        with pytest.raises(ValueError, match=rf"(?s){message} be judged: .*NaN"):
            discover(choosing(method), dd.from_pandas(holes, npartitions=5))
    parts = [NEW[:50], NEW[50:100].drop(columns="heat")]
    ddf = dd.from_delayed([dask.delayed(part) for part in parts], meta=NEW, verify_meta=False)
    for method in ("auto", "split"):
        refused("heat", discover, choosing(method), ddf)


def test_what_needs_all_rows_in_memory_is_refused(threads):
    ddf = dd.from_pandas(NEW_STRETCHED, npartitions=4)
    few = discover(choosing("auto", "contrast"), ddf)  # by their number, few enough for memory
    assert few.count == choosing("auto", "contrast").discover(NEW_STRETCHED).count
    for cad in (choosing("full"), choosing("full", "contrast")):
        refused("a Dask collection is judged in parts", discover, cad, ddf)
    assert discover(choosing(), ddf, validity="proven").count == discover(choosing(), ddf).count
    refused("known before new rows are", discover, choosing(), ddf, conditional="simes")


def test_counts_of_a_choice_are_refused_with_a_way_out():
    for method in ("split", "auto"):
        with pytest.raises(ValueError, match=r"depends on all new rows; .*distributed.*'knn'"):
            choosing(method).rank_counts(NEW_STRETCHED)


# --- a cluster -----------------------------------------------------------------------------------


def test_on_a_cluster_the_detector_travels_once_per_worker(client, tmp_path):
    log = tmp_path / "log"
    cad = detector(algorithm=Counting(str(log)))
    whole = expected(cad)
    here = str(os.getpid())
    Path(f"{log}.loads").unlink(missing_ok=True)
    assert_same(discover(cad, dd.from_pandas(NEW, npartitions=20)), whole)
    workers = [process for process in lines(f"{log}.loads") if process != here]
    scored = [line.split()[0] for line in lines(log) if line.endswith(" 25")]
    assert len(scored) == 20
    assert set(scored) <= set(workers)
    # fitted model and template: two objects per copy of the detector
    assert all(workers.count(process) <= 2 for process in workers)


def test_fits_go_through_the_cluster_and_the_data_once(client, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(3000, 4))

    def make():
        return ConformalDetector(Counting(), CrossValidation(folds=6), random_state=0)

    usual = make().fit(rows)
    scattered, sent = [], []
    scatter, submit = client.scatter, client.submit

    def noted_scatter(data, **options):
        scattered.append(data)
        return scatter(data, **options)

    def noted_submit(function, *arguments, **options):
        sent.append(len(pickle.dumps(options["tasks"])))
        return submit(function, *arguments, **options)

    monkeypatch.setattr(client, "scatter", noted_scatter)
    monkeypatch.setattr(client, "submit", noted_submit)
    with parallel_config("dask"):
        there = make().fit(rows)
    assert np.array_equal(there.calibration_.scores, usual.calibration_.scores)
    assert np.array_equal(there.ranks(rows[:50]), usual.ranks(rows[:50]))
    shapes = [np.shape(data) for data in scattered]
    assert shapes.count(rows.shape) == 1
    assert set(shapes) <= {rows.shape, (500,)}  # and indices of held-out rows
    assert max(sent) < rows.nbytes / 10


# --- workers that die ----------------------------------------------------------------------------


def test_a_killed_worker_changes_nothing(client, tmp_path):
    deadly = tmp_path / "deadly"
    cad = detector(algorithm=Counting(deadly=str(deadly)))
    whole = expected(cad)
    before = set(client.run(os.getpid).values())
    deadly.touch()
    found = discover(cad, dd.from_pandas(NEW, npartitions=10))
    assert_same(found, whole)
    assert not deadly.exists()
    client.wait_for_workers(2)
    assert len(before - set(client.run(os.getpid).values())) == 1


def test_a_worker_killed_after_the_ranks_changes_nothing(client):
    cad = detector()
    found = discover(cad, dd.from_pandas(NEW, npartitions=10))
    process = next(iter(client.run(os.getpid).values()))
    os.kill(process, signal.SIGKILL)  # and with it the ranks that it kept
    assert_same(found, expected(cad))


# --- groups --------------------------------------------------------------------------------------

SOURCES = np.where(np.arange(1000) < 640, "pump", "fan")
TYPES = np.where(np.arange(500) % 7 < 3, "fan", "pump")
UNHEARD = np.where(np.arange(500) == 230, "unheard of", TYPES)
MACHINES = NEW.assign(kind=TYPES)


def in_groups(method="split", algorithm="knn", **parameters):
    cad = ConformalDetector(algorithm, method, random_state=0, **parameters)
    return cad.fit(REFERENCE, groups=SOURCES)


def assert_same_groups(found, whole):
    frame = whole.to_frame(order="input").drop(columns="group")
    assert_same(found, frame)
    assert (found.groups, found.guarantee) == (whole.groups, whole.guarantee)
    assert found.warning == whole.warning
    assert (found.rank_counts.counts.sum(), found.rank_counts.rows) == (500, 500)


def test_groups_of_arrays_and_identifiers_and_empty_partitions(threads):
    codes = (TYPES == "pump").astype(float)
    whole = np.column_stack([NEW.to_numpy(), codes])
    plain = ConformalDetector("knn", "split", random_state=0)
    cad = plain.fit(REFERENCE.to_numpy(), groups=(SOURCES == "pump").astype(float))
    found = discover(cad, da.from_array(whole, chunks=(130, 2)), groups=3)
    wanted = cad.discover(NEW.to_numpy(), groups=codes)
    assert (found.frame["p_value"].compute() == wanted.p_values).all()
    named = ConformalDetector("knn", "split", random_state=0).fit(REFERENCE, groups=SOURCES)
    parts = [MACHINES[:170], MACHINES[:0], MACHINES[170:]]
    rows = dd.from_delayed([dask.delayed(part) for part in parts], meta=MACHINES)
    found = discover(named, rows, groups="kind", id_columns=["kind"])
    assert (found.frame["kind"].compute() == TYPES).all()
    assert (found.frame["p_value"].compute().to_numpy() == wanted.p_values).all()


@pytest.mark.parametrize("many", [False, True])
def test_few_rows_with_groups_and_a_choice(many, threads, monkeypatch):
    cad = in_groups("auto", ["knn", "mahalanobis"])
    rows = dd.from_pandas(MACHINES, npartitions=3)
    if many:
        monkeypatch.setattr("reconform.methods.MOST_PAIRS", 100_000)
        refused("a Dask collection is judged in parts", discover, cad, rows, groups="kind")
        return
    whole = cad.discover(NEW, groups=TYPES)
    found = discover(cad, rows, groups="kind")
    assert_same_groups(found, whole)
    assert found.choice == whole.choice


def test_groups_that_are_not_there_are_named(threads):
    cad, rows = in_groups(), dd.from_pandas(NEW.assign(kind=UNHEARD), npartitions=5)
    unknown = r"no rows of group 'unheard of'.* Leave them out"
    with pytest.raises(ReconformError, match=f"partition 2 of data cannot be judged: .*{unknown}"):
        discover(cad, rows, groups="kind")
    refused("name the column of groups by `groups`", discover, cad, rows)
    refused("data lacks 'type'; it has", discover, cad, rows, groups="type")
    refused("fitted without groups", discover, detector(), rows, groups="kind")
    lost = dd.from_pandas(NEW.assign(kind=[None, *TYPES[1:]]), npartitions=5)
    refused(r"partition 0 of data .*no label for 1 rows", discover, cad, lost, groups="kind")


@pytest.mark.parametrize("models", [False, True])
def test_groups_on_a_cluster_are_those_of_the_whole(models, client):
    cad = in_groups(group_models=models)
    found = discover(cad, dd.from_pandas(MACHINES, npartitions=20), groups="kind")
    assert_same_groups(found, cad.discover(NEW, groups=TYPES))
    assert sum(one.rows for one in found.groups) == len(NEW)
