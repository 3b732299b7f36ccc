"""Decisions as rows arrive: batches, crashes, and journals that anyone may have written."""

import contextlib
import hashlib
import itertools
import json
import math
import os
import sys

import numpy as np
import pytest

from reconform import ConformalDetector, Split
from reconform.errors import ReconformError
from reconform.stream import ChangeMonitor, ExchangeabilityMonitor, FalseAlarmBudget, MicroBatches
from streams import batches_of, budget, calibrated


@pytest.fixture(scope="module")
def cad():
    return calibrated(np.random.default_rng(0).uniform(size=30_000))


def assert_same(one, other):
    assert (one.batch, one.row) == (other.batch, other.row)
    for name in ("mask", "p_values", "level"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


# One of every kind of stream.
KINDS = {
    "budget": FalseAlarmBudget,
    "windows": MicroBatches,
    "exchangeability": ExchangeabilityMonitor,
    "changes": ChangeMonitor,
}
SMALL = {
    "budget": {"false_alarms": 100, "per": 1_000},
    "windows": {"rows": 4},
    "exchangeability": {"random_state": 0},
    "changes": {"run_length": 2, "random_state": 0},
}


def same(one, other):
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return all(np.array_equal(vars(one)[name], vars(other)[name]) for name in vars(one))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *SMALL.items(),
        ("budget", {"false_alarms": 100, "per": 1_000, "confidence": 0.9}),
        ("windows", {"rows": 7, "conditional": "simes"}),
        ("windows", {"rows": 7, "procedure": "storey", "storey_lambda": 0.3, "fdr": 0.15}),
        ("windows", {"rows": 4, "false_alarms": 0.5}),
        ("exchangeability", {"alpha": 0.1}),
        ("changes", {"run_length": 30, "random_state": 1}),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:in a window")
def test_resuming_anywhere_gives_the_same_decisions(cad, kind, options, tmp_path):
    make, parts, path = KINDS[kind], batches_of(9), tmp_path / "journal"
    plain = make(cad, **options)
    whole = [plain.update(part) for part in parts]
    for number, (part, expected) in enumerate(zip(parts, whole, strict=True)):
        stream = make(cad, **options, journal=path)
        assert same(stream.update(part), expected)
        for place in (number, 0):  # whose results may have got lost
            assert same(stream.update(parts[place], batch=place), whole[place])
        with pytest.raises(ValueError, match="with other rows"):
            stream.update(part + 1, batch=number)
        if sys.platform != "win32" and number == 0:
            with pytest.raises(ReconformError, match="is in use"):
                make(cad, **options, journal=path)
        stream.close()
    with pytest.raises(RuntimeError, match=r"was closed; make the stream again"):
        stream.update(parts[4])
    resumed = make(cad, **options, journal=path)
    assert (resumed.rows, resumed.batches) == (71, 6)
    names = {"discoveries", "guarantee", "settings", "windows", "waiting", "changes", "alarm_row"}
    for name in names & set(dir(plain)):
        assert getattr(resumed, name) == getattr(plain, name), name
    ours, theirs = (getattr(one, "log10_evidence", 0.0) for one in (resumed, plain))
    assert np.array_equal(ours, theirs)
    if kind == "windows":
        assert same(resumed.flush(), plain.flush())
    resumed.close()
    assert [one.name for one in tmp_path.iterdir()] == ["journal"]
    other = calibrated(np.random.default_rng(1).uniform(size=30_000))
    with pytest.raises(ValueError, match="another calibration"):
        make(other, **options, journal=path)
    for name in set(KINDS) - {kind}:
        with pytest.raises(ValueError, match=f"must be a journal of {KINDS[name].__name__}"):
            KINDS[name](cad, **SMALL[name], journal=path)
    changed = {"alpha": 0.3} if kind == "exchangeability" else {next(iter(options)): 17}
    with pytest.raises(ValueError, match="other options"):
        make(cad, **{**options, **changed}, journal=path)
    path.write_text('{"hello": "world"}\n')
    with pytest.raises(ValueError, match=r"line 1: .*damaged, or not one"):
        make(cad, **options, journal=path)


@pytest.mark.parametrize(
    ("kind", "arguments", "said"),
    [
        ("budget", {"false_alarms": 0}, "false_alarms must be a positive number; got 0"),
        ("budget", {"false_alarms": math.inf}, "false_alarms must be a positive number"),
        ("budget", {"per": 0}, "per must be an integer of at least 1; got 0"),
        ("budget", {"per": 2.5}, "per must be an integer"),
        ("budget", {"per": "day"}, "per must be an integer"),
        ("budget", {"false_alarms": 1_000}, "would let every row be flagged"),
        ("budget", {"confidence": "often"}, "confidence must be one of 'auto'"),
        ("budget", {"confidence": 1.0}, "confidence must be a number strictly between 0 and 1"),
        ("budget", {"confidence": 0.9, "validity": "proven"}, "leave out `validity`"),
        ("budget", {"validity": "sure"}, "validity must be one of"),
        ("windows", {"rows": 0}, "rows must be an integer of at least 1; got 0"),
        ("windows", {"fdr": 2}, "fdr must be a number strictly between 0 and 1"),
        ("windows", {"procedure": "bhh"}, "procedure must be one of"),
        ("windows", {"procedure": "ebh"}, "ebh"),
        ("windows", {"fdr": 0.2, "false_alarms": 1}, "give one"),
        ("windows", {"top": 5}, "`top` is not for windows"),
        ("exchangeability", {"alpha": 1.0}, "alpha must be a number strictly between 0 and 1"),
        ("exchangeability", {"random_state": "x"}, "random_state"),
        ("changes", {"run_length": 1}, "`run_length` must be a number of rows above 1; got 1"),
        ("changes", {"run_length": math.inf}, "`run_length` must be a number of rows above 1"),
        ("changes", {"run_length": "1000"}, "`run_length` must be a number"),
    ],
)
def test_bad_arguments_get_a_sentence(cad, kind, arguments, said):
    with pytest.raises(ValueError, match=said):
        KINDS[kind](cad, **arguments)
    with pytest.raises(ValueError, match="no rows"):
        KINDS[kind](cad, **SMALL[kind]).update(np.empty((0, 1)))


@pytest.mark.parametrize(
    "method", ["jackknife+", "cv+", "cv", "jab+", "full", Split(repeats=3)], ids=str
)
def test_methods_without_one_fixed_model_are_not_monitored(method):
    X = np.random.default_rng(0).normal(size=(40, 2))
    cad = ConformalDetector("knn", method, random_state=0).fit(X)
    for kind in ("exchangeability", "changes"):
        with pytest.raises(ValueError, match=r"cannot be monitored.*'split'.*'prefit'.*several-"):
            KINDS[kind](cad)


# --- decisions -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:in a window")
@pytest.mark.parametrize("kind", KINDS)
def test_batches_do_not_matter(cad, kind):
    def judged(stream, parts):
        found = [stream.update(part) for part in parts]
        if kind != "windows":
            return found
        assert stream.waiting == stream.rows % 4
        windows = [*itertools.chain(*found), *stream.flush()]
        assert stream.flush() == []
        assert [len(window) for window in windows] == [4] * 17 + [3]
        return windows

    parts, streams = batches_of(4), [KINDS[kind](cad, **SMALL[kind]) for _ in range(2)]
    whole, pieces = judged(streams[0], [np.concatenate(parts)]), judged(streams[1], parts)
    for name in ("mask", "p_values", "log10_evidence"):
        if hasattr(whole[0], name):
            both = ([getattr(one, name) for one in found] for found in (whole, pieces))
            ours, theirs = map(np.concatenate, both)
            assert np.array_equal(ours, theirs)
    for name in ("rows", "discoveries", "alarm_row", "changes"):
        assert getattr(streams[0], name, None) == getattr(streams[1], name, None)
    assert streams[1].rows == 71
    if kind == "budget":
        assert [piece.row for piece in pieces] == [0, 1, 8, 38, 39, 51]
        assert np.array_equal(whole[0].mask, whole[0].p_values <= whole[0].level)
        assert streams[0].discoveries == whole[0].count > 5


@pytest.mark.parametrize(("method", "said"), [("auto", "full"), ("split", "split")])
def test_a_choice_of_detectors_judges_rows_by_the_first(method, said, tmp_path, rng):
    X, new = rng.normal(size=(300, 2)), rng.normal(size=(40, 2))
    new[::8] += 9
    several = ConformalDetector(["knn", "mahalanobis"], method, random_state=0).fit(X)
    first = ConformalDetector("knn", said, random_state=0).fit(X)
    path = tmp_path / "journal"
    streams = [budget(several, journal=path), budget(first)]
    for rows in np.split(new, 4):
        assert_same(*(stream.update(rows) for stream in streams))
    assert np.array_equal(several.p_values(new), first.p_values(new))
    assert streams[0].guarantee == streams[1].guarantee  # not that of a list of discover
    streams[0].close()
    again = budget(several, journal=path)
    assert_same(again.update(new[30:], batch=3), streams[1].update(new[30:], batch=3))
    again.close()


def test_bad_rows_and_detectors_get_a_sentence():
    X = np.random.default_rng(0).normal(size=(40, 1))
    smoothed = ConformalDetector("knn", "split", ties="randomized", random_state=0).fit(X)
    with pytest.raises(ValueError, match="ties='conservative'"):
        budget(smoothed)
    nameless = budget(ConformalDetector("knn", "split", random_state=0).fit(X))
    with pytest.raises(ValueError, match="the reference had no names"):
        nameless.update([{"x": 1.0}])
    assert nameless.rows == 0


# --- a crash loses nothing and spends nothing twice ----------------------------------------------


def test_a_journal_cut_off_at_any_byte_can_be_resumed(cad, tmp_path):
    """Whatever of the file a crash has left, the stream goes on as if there had been none."""
    parts = batches_of(10, sizes=(2, 1, 2))
    path, cut = tmp_path / "whole", tmp_path / "cut"
    stream = budget(cad, journal=path)
    whole = [stream.update(part) for part in parts]
    stream.close()
    raw = path.read_bytes()
    head = raw.index(b"\n") + 1
    ends = [i + j for i, byte in enumerate(raw, 1) if byte == 10 for j in (-1, 0, 1)]
    sizes = {*range(head, len(raw), 5), *ends[2:-1]}
    for size in sorted(sizes):
        cut.write_bytes(raw[:size])
        stream = budget(cad, journal=cut)
        assert stream.batches == raw[:size].count(b"\n") - 1
        for number in range(len(parts)):  # everything is sent once more
            assert_same(stream.update(parts[number], batch=number), whole[number])
        stream.close()
        assert cut.read_bytes() == raw
    for size in (0, head // 2, head - 1):
        cut.write_bytes(raw[:size])
        with pytest.raises(ValueError, match="no whole line"):
            budget(cad, journal=cut)


def test_batches_are_decided_once(cad, tmp_path):
    parts = batches_of(11)
    stream = budget(cad)
    first = stream.update(parts[1], batch=0)
    assert_same(stream.update(parts[1], batch=0), first)
    second = stream.update(parts[2])
    assert (second.batch, stream.rows) == (1, 37)
    with pytest.raises(ValueError, match="batch=3 skips batches: the next one is 2"):
        stream.update(parts[0], batch=3)
    with pytest.raises(ValueError, match="batch=1 was decided before, with other rows"):
        stream.update(parts[2][::-1], batch=1)
    with pytest.raises(ValueError, match=r"batch=0 was decided before, .*not kept.* journal"):
        stream.update(parts[1], batch=0)
    assert stream.rows == 37
    journal = tmp_path / "j"
    stream = budget(cad, journal=journal)
    whole = [stream.update(part) for part in parts]
    for number in (0, 3, 5, 1):
        assert_same(stream.update(parts[number], batch=number), whole[number])
    assert stream.rows == 71
    stream.close()


def test_damage_is_noticed(cad, tmp_path):
    parts = batches_of(13)
    path = tmp_path / "journal"
    stream = budget(cad, journal=path)
    for part in parts:
        stream.update(part)
    stream.close()
    lines = path.read_bytes().splitlines(keepends=True)
    wrongs = {
        "a digit": [*lines[:2], lines[2].replace(b"[", b"[7, ", 1), *lines[3:]],
        "a line lost": [*lines[:2], *lines[3:]],
        "lines swapped": [*lines[:2], lines[3], lines[2], *lines[4:]],
        "zeros": [*lines[:2], bytes(len(lines[2]) - 1) + b"\n", *lines[3:]],
    }
    for name, wrong in wrongs.items():
        assert wrong != lines, name
        path.write_bytes(b"".join(wrong))
        with pytest.raises(ValueError, match=r"line 3: .*damaged"):
            budget(cad, journal=path)


def resealed(path, change):
    """Rewrite a journal as an attacker would: other contents, and all seals right."""
    contents = [json.loads(line)["content"] for line in path.read_text().splitlines()]
    change(contents)
    seal, lines = "", []
    for content in contents:
        text = json.dumps(content, sort_keys=True)
        seal = hashlib.sha256((seal + text).encode()).hexdigest()[:32]
        lines.append(json.dumps({"content": content, "seal": seal}) + "\n")
    path.write_text("".join(lines))


def put(*places, value):
    """A change of one value in a journal."""

    def change(contents):
        *way, last = places
        inside = contents
        for place in way:
            inside = inside[place]
        inside[last] = value

    return change


WRONG = [
    None, True, -1, 0, 1, 10**30, 0.5, -0.5, math.nan, math.inf, 1e308, "", "x", "1/3", "1/0",
    "1e50000000", [], [1], [[1, 2]], {}, {"a": 1},
]  # fmt: skip


def ways_into(node, way=()):
    """Every place of a journal; of long lists the first two."""
    inside = node.items() if isinstance(node, dict) else enumerate(node[:2])
    for key, value in inside:
        yield (*way, key)
        if isinstance(value, dict | list):
            yield from ways_into(value, (*way, key))


def wrong_contents(contents):
    """The contents of a journal with one place missing, or with another value there."""
    for *way, last in list(ways_into(contents)):
        for value in [*WRONG, "missing"]:
            changed = json.loads(json.dumps(contents))
            inside = changed
            for place in way:
                inside = inside[place]
            if value == "missing":
                del inside[last]
            else:
                inside[last] = value
            yield (*way, last, value), changed


@pytest.mark.filterwarnings("ignore:With .* calibration rows")
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_journal_claims_is_refused_or_works(kind, tmp_path, rng):
    """Anyone can write right seals: one value after the other is another one."""
    cad, path = calibrated(rng.uniform(size=300)), tmp_path / "journal"
    first, second, later = (rng.uniform(size=(m, 1)) for m in (7, 3, 5))
    stream = KINDS[kind](cad, **SMALL[kind], journal=path)
    stream.update(first)
    stream.update(second)
    stream.close()
    contents = [json.loads(line)["content"] for line in path.read_text().splitlines()]
    refused = works = 0
    for what, wrong in wrong_contents(contents):
        resealed(path, lambda contents, wrong=wrong: contents.__setitem__(slice(None), wrong))
        try:
            resumed = KINDS[kind](cad, **SMALL[kind], journal=path)
        except ReconformError:
            refused += 1
            continue
        works += 1
        try:
            with contextlib.suppress(ReconformError):  # it is another batch now
                resumed.update(second, batch=1)
            resumed.update(later)
            if isinstance(resumed, MicroBatches):
                resumed.flush()
            if isinstance(resumed, ExchangeabilityMonitor | ChangeMonitor):
                assert resumed.rows
            else:
                assert [resumed.told(record) for record in resumed.history()]
            resumed.close()
        except Exception as error:
            raise AssertionError(f"accepted, and then failed: {what}") from error
    assert refused > 200
    assert works


def test_another_version_that_decides_otherwise_is_noticed(cad, tmp_path):
    path = tmp_path / "journal"
    stream = budget(cad, journal=path)
    stream.update(batches_of(14)[2])
    stream.close()
    resealed(path, put(1, "found", "flagged", value=[0]))  # as other code may have decided
    with pytest.raises(ValueError, match="batch 0 does not come out as it was recorded"):
        budget(cad, journal=path)


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_failing_disk_stops_the_stream(cad, where, tmp_path, monkeypatch):
    """The line may or may not be on the disk; either way nothing is spent twice."""
    parts = batches_of(15)
    plain = budget(cad)
    whole = [plain.update(part) for part in parts]
    path = tmp_path / "journal"
    stream = budget(cad, journal=path)
    stream.update(parts[0])

    def full(handle):
        if where == "before":
            os.ftruncate(handle, os.fstat(handle).st_size - 5)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            stream.update(parts[1])
    with pytest.raises(RuntimeError, match=r"interrupted.*make the stream again"):
        stream.update(parts[1])
    stream.close()
    stream = budget(cad, journal=path)
    assert stream.batches == (1 if where == "before" else 2)
    for number, part in enumerate(parts):
        assert_same(stream.update(part, batch=number), whole[number])
    stream.close()
