"""Updates: who joins, who shapes scores, what is then still promised, and what is never used."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import reconform
from forge import array, forge, members_of, says
from reconform import ConformalDetector, Split
from reconform.errors import ReferenceWarning
from reconform.files import open_batches
from reconform.files.batches import ReadOptions
from reconform.files.judge import judge_file
from reconform.rule import Rule
from reconform.updating import marks_of
from refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore::reconform.ReferenceWarning")
N, M, FEW = 200, 120, 20


def a_day(seed, n=M, few=FEW, far=2.6):
    """New rows, the last few of them alike and far away."""
    rng = np.random.default_rng(seed)
    return np.vstack([rng.normal(size=(n - few, 3)), rng.normal(far, 0.3, size=(few, 3))])


@pytest.fixture(scope="module")
def judged():
    """A detector, a batch, its list with a random sample, and what a person says of both."""
    reference = np.random.default_rng(99).normal(size=(N, 3))
    cad = ConformalDetector("contrast", "full", random_state=0).fit(reference)
    X = a_day(0)
    found = cad.discover(X, 0.2, sample=30)
    marks = np.full(M, "", dtype=object)
    looked = np.union1d(np.flatnonzero(found.mask), found.sample)
    marks[looked] = np.where(looked >= M - FEW, "real", "false")
    return cad, X, found, marks


def test_who_joins_and_who_shapes_scores(judged):
    cad, X, found, marks = judged
    real, false = marks == "real", marks == "false"
    drawn = np.isin(np.arange(M), found.sample)
    assert (false & ~drawn).any()
    newer = cad.update(X, marks, sample=found.sample)
    update = newer.state_.updates[-1]
    assert (update.real, update.sampled, update.false) == (real.sum(), (false & drawn).sum(), 0)
    assert update.drawn == (real & drawn).sum()
    expected = np.vstack([cad.state_.known.rows, X[false & drawn]])
    assert np.array_equal(newer.state_.known.rows, expected)
    assert np.array_equal(newer.ensemble_.anomalies, X[real])
    assert update.parent == cad.calibration_.fingerprint
    assert cad.state_.updates == (), "the one that was updated stays as it is"
    both = cad.update(X, marks, sample=found.sample, add_false=True)
    assert both.state_.updates[-1].false == (false & ~drawn).sum()
    assert both.plan_.n == N + false.sum()


def test_it_is_the_fit_on_these_rows_with_these_anomalies(judged):
    cad, X, found, marks = judged
    newer, day = cad.update(X, marks, sample=found.sample), a_day(1)
    drawn = np.isin(np.arange(M), found.sample)
    rows = np.vstack([cad.state_.known.rows, X[drawn & (marks == "false")]])
    again = ConformalDetector("contrast", "full", random_state=0)
    again.fit(rows, anomalies=X[marks == "real"])
    assert np.array_equal(newer.discover(day).p_values, again.discover(day).p_values)


def test_the_same_marks_count_once(judged):
    cad, X, found, marks = judged
    once = cad.update(X, marks, sample=found.sample)
    twice = once.update(X, marks, sample=found.sample)
    assert twice.state_.updates[-1].real == twice.state_.updates[-1].sampled == 0
    assert np.array_equal(twice.calibration_.scores, once.calibration_.scores)


def test_the_promise_says_what_marks_did(judged):
    cad, X, found, marks = judged
    day = a_day(1)
    newer = cad.update(X, marks, sample=found.sample)
    met = newer.state_.updates[-1].real - newer.state_.updates[-1].drawn
    said = f"{met} known anomalies were marked on lists by this reference"
    for text in (newer.guarantee_.cleaned, newer.discover(day).guarantee, str(newer.guarantee_)):
        assert said in text
    assert "not proven" in newer.discover(day, validity="proven").guarantee
    only_drawn = np.where(np.isin(np.arange(M), found.sample), marks, "")
    proven = cad.update(X, only_drawn, sample=found.sample)
    assert proven.guarantee_.cleaned == "", "looks that were drawn at random void no theorem"
    some = only_drawn.copy()
    some[found.sample[:2]] = "unsure"
    newest = cad.update(X, some, sample=found.sample)
    assert "2 rows of the random sample" in newest.guarantee_.cleaned
    left = cad.update(normal=a_day(2)[:-FEW], left_out=5)
    assert left.left_out_ == 5
    assert "5 of 305 reference rows were marked" in left.guarantee_.cleaned
    assert "flagged rows joined" in cad.update(X, marks, add_false=True).guarantee_.cleaned


def test_rows_of_a_batch_do_not_vouch_for_themselves(judged):
    cad, X, _, marks = judged
    newer = cad.update(X, np.where(np.arange(M) == 5, "real", marks))
    with pytest.warns(ReferenceWarning, match="marked in this very batch, and set aside"):
        again = newer.discover(X, 0.2)
    assert again.p_values[5] == cad.discover(X, 0.2).p_values[5]
    # Other batches with the same rows, by their features, are what known anomalies are for.
    other = np.vstack([a_day(7, few=0), X[-FEW:]])
    with_marks, without = (one.discover(other, 0.2).mask[-FEW:].mean() for one in (newer, cad))
    assert with_marks > without - 1e-9
    assert newer.discover(other).p_values[-1] < 0.02
    assert len(newer.ensemble_.anomalies) == (marks == "real").sum() + 1


def test_rows_with_labels_are_known_by_them(judged):
    cad, X, _, marks = judged
    frame = pd.DataFrame(X, index=[f"r{i}" for i in range(M)])
    newer = cad.update(frame, marks)
    more = pd.concat([frame, pd.DataFrame(a_day(3), index=[f"s{i}" for i in range(M)])])
    with pytest.warns(ReferenceWarning, match="set aside"):
        newer.discover(more)
    renamed = frame.set_axis([f"t{i}" for i in range(M)])
    with warnings.catch_warnings():  # other rows, which hold the same
        warnings.filterwarnings("error", "set aside")
        newer.discover(renamed)


def test_a_rolling_reference_keeps_the_newest(judged):
    cad, *_ = judged
    newer = cad.update(normal=a_day(2)[:-FEW], keep=150)
    update = newer.state_.updates[-1]
    assert (update.normal, update.forgotten, update.reference) == (M - FEW, 150, 150)
    assert np.array_equal(newer.state_.known.rows[-1], a_day(2)[M - FEW - 1])


@pytest.mark.parametrize(
    ("detector", "method"), [("auto", "auto"), ("auto", "split"), ("knn", "split"), ("knn", "cv+")]
)
def test_models_keep_it_all(judged, tmp_path, detector, method):
    _, X, found, marks = judged
    reference = np.random.default_rng(99).normal(size=(N, 3))
    cad = ConformalDetector(detector, method, random_state=0).fit(reference)
    newer, day = cad.update(X, marks, sample=found.sample), a_day(1)
    path = tmp_path / "m.rcad"
    reconform.save(newer, path)
    again = reconform.load(path)
    assert again.state_.updates == newer.state_.updates
    assert np.array_equal(again.discover(day).p_values, newer.discover(day).p_values)
    assert again.discover(day).guarantee == newer.discover(day).guarantee
    (line,) = reconform.models.inspect(path).updates
    assert str(newer.state_.updates[0]) in line
    third, fourth = (one.update(a_day(4), marks, keep=150) for one in (again, newer))
    assert np.array_equal(third.calibration_.scores, fourth.calibration_.scores)
    assert len(third.state_.updates) == 2
    used = detector == "auto"
    assert bool(newer.state_.updates[0].real) == used
    assert bool(newer.state_.updates[0].unused) != used


def test_batches_of_very_many_rows_know_it_too(judged, monkeypatch):
    _, X, found, marks = judged
    reference = np.random.default_rng(99).normal(size=(N, 3))
    newer = ConformalDetector(random_state=0).fit(reference).update(X, marks, sample=found.sample)
    large = newer.for_rows(10**9)
    assert large is not newer
    assert large.guarantee_.cleaned == newer.guarantee_.cleaned != ""
    assert np.array_equal(large.state_.origins, newer.state_.origins)


def test_the_sample_is_drawn_by_content_alone(judged, tmp_path):
    cad, X, found, _ = judged
    turn = np.random.default_rng(1).permutation(M)
    assert np.array_equal(X[turn][cad.discover(X[turn], sample=30).sample], X[found.sample])
    fewer = cad.discover(X, 0.01, procedure="by", sample=12).sample
    assert np.array_equal(fewer, found.sample[:12])
    assert len(cad.discover(X, sample=M + 5).sample) == M
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.to_csv(tmp_path / "new.csv", index=False)
    named = ConformalDetector("contrast", "full", random_state=0)
    named.fit(pd.DataFrame(cad.state_.known.rows, columns=["a", "b", "c"]))
    for size in (M, 17):
        read = ReadOptions(batch_rows=size)
        assert np.array_equal(
            judge_file(named, tmp_path / "new.csv", rule=Rule(sample=30), read=read).sample,
            named.discover(frame, sample=30).sample,
        )
    copies = np.repeat(X[:1], 50, axis=0)
    share = [
        np.isin(
            cad.discover(np.vstack([X, copies + k / 97]), sample=40).sample, range(M, M + 50)
        ).mean()
        for k in range(20)
    ]
    assert 0.2 < np.mean(share) < 0.4, "copies are drawn as often as other rows"
    with open_batches(tmp_path / "new.csv", named.features) as batches:
        assert sum(map(len, batches)) == M


def test_refusals(judged):
    cad, X, _, marks = judged
    refused("a mark must be real, false, unsure or nothing", marks_of, ["perhaps"])
    refused("one per row: 120 rows, 3 marks", cad.update, X, ["real"] * 3)
    groups = np.repeat(["a", "b"], N // 2)
    grouped = ConformalDetector("knn", Split()).fit(cad.state_.known.rows, groups=groups)
    refused("groups or units", grouped.update, X, marks)
    frozen = ConformalDetector(lambda rows: rows[:, 0], "prefit", larger_is="normal").fit(X)
    refused("prefit", frozen.update, X, marks)
    split = ConformalDetector("knn", "split").fit(cad.state_.known.rows)
    split.state_.known = None
    refused("does not keep the rows of its reference", split.update, X, marks)


@pytest.mark.parametrize(
    "edit",
    [
        array("origins", lambda keys: keys[1:]),
        array("rows", lambda rows: rows[1:]),
        array("joined", lambda keys: keys.astype(float)),
        lambda model, members: model["updates"][0].update(real=-1),
        lambda model, members: model["updates"][0].update(drawn=999),
        lambda model, members: model["updates"][0].update(parent="x" * 99),
        lambda model, members: model["updates"][0].update(said="more"),
        says("updates", [{}]),
    ],
)
def test_forged_models_are_refused(judged, tmp_path, edit):
    _, X, found, marks = judged
    cad = ConformalDetector(["knn", "iforest"], "split", random_state=0)
    cad.fit(np.random.default_rng(99).normal(size=(N, 3)))
    path = tmp_path / "m.rcad"
    reconform.save(cad.update(X, marks, sample=found.sample), path)
    members = members_of(path)
    model = json.loads(members["model.json"])
    edit(model, members)
    forge(path, {**members, "model.json": json.dumps(model).encode()})
    with pytest.raises(reconform.ModelFileError):
        reconform.load(path)
