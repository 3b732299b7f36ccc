"""Files that appear whole or not at all, alone and together."""

import errno
import io
import os
import stat
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from reconform import ConformalDetector, report, save
from reconform.atomic import (
    atomic_file,
    atomic_group,
    blamed_on,
    check_place,
    draft_of,
    write_atomic,
)
from reconform.files import open_output
from reconform.files.formats import check_separate
from refusals import refused


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("permissions", [0o600, 0o640, 0o444])
def test_what_is_replaced_passes_its_permissions_on(tmp_path, permissions):
    path = tmp_path / "out"
    path.write_text("old")
    path.chmod(permissions)
    with atomic_file(path, overwrite=True) as draft:
        assert mode(draft) == 0o600  # nobody else reads it meanwhile
        draft.write_text("new")
    assert (path.read_text(), mode(path)) == ("new", permissions)


def test_a_new_file_has_the_usual_permissions(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "out", b"")
    finally:
        os.umask(before)
    assert mode(tmp_path / "out") == 0o640


def test_names_may_be_as_long_as_the_system_allows(tmp_path):
    longest = tmp_path / ("x" * 251 + ".csv")
    write_atomic(longest, b"all")
    assert longest.read_bytes() == b"all"
    longer = tmp_path / ("x" * 252 + ".csv")
    for call in (lambda: check_place(longer, overwrite=False), lambda: write_atomic(longer, b"")):
        with pytest.raises(OSError, match="it cannot be written") as caught:
            call()
        assert (caught.value.errno, caught.value.filename) == (errno.ENAMETOOLONG, str(longer))


@pytest.mark.parametrize(
    ("function", "number"), [("open", errno.EROFS), ("fsync", errno.ENOSPC), ("link", errno.EDQUOT)]
)
def test_errors_name_the_target_and_leave_nothing(tmp_path, monkeypatch, function, number):
    real = os.replace

    def fail(first, *rest, **options):
        name = first if isinstance(first, str | Path) else None
        raise OSError(number, os.strerror(number), name)

    if function == "link":  # then there are no hard links, and the file is renamed
        monkeypatch.setattr(os, "replace", fail)
    monkeypatch.setattr(os, function, fail)
    with pytest.raises(OSError, match=r"it cannot be written") as caught:
        write_atomic(tmp_path / "out.csv", b"all")
    monkeypatch.undo()
    assert os.replace is real
    assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path / "out.csv"))
    assert names(tmp_path) == []


def test_errors_about_other_files_are_left_alone():
    def open_missing():
        with blamed_on("out.csv"):
            os.stat("no-such-input")

    with pytest.raises(FileNotFoundError) as caught:
        open_missing()
    assert caught.value.filename == "no-such-input"


def test_files_appear_together(tmp_path):
    sink = io.BytesIO()
    (tmp_path / "b").write_text("old")
    with atomic_group():
        write_atomic(tmp_path / "a", b"1")
        write_atomic(tmp_path / "b", b"2", overwrite=True)
        with atomic_file("a stream", open_sink=lambda: nullcontext(sink)) as draft:
            draft.write_bytes(b"3")
        assert draft_of(tmp_path / "a").read_bytes() == b"1"
        assert not (tmp_path / "a").exists()
        assert ((tmp_path / "b").read_text(), sink.getvalue()) == ("old", b"")
    assert (names(tmp_path), (tmp_path / "b").read_text()) == (["a", "b"], "2")
    assert sink.getvalue() == b"3"


def write_three(folder, last):
    with atomic_group():
        write_atomic(folder / "new", b"1", overwrite=True)
        write_atomic(folder / "old", b"2", overwrite=True)
        write_atomic(folder / "last", b"3")
        last()


def test_a_failure_leaves_everything_as_it_was(tmp_path):
    (tmp_path / "old").write_text("precious")

    def wrong():
        raise RuntimeError("wrong")

    refused("wrong", write_three, tmp_path, wrong, error=RuntimeError)
    assert (names(tmp_path), (tmp_path / "old").read_text()) == (["old"], "precious")


def test_a_name_that_is_taken_at_the_last_moment_takes_the_others_back(tmp_path):
    (tmp_path / "old").write_text("precious")
    with pytest.raises(FileExistsError, match="last: it exists already"):
        write_three(tmp_path, lambda: (tmp_path / "last").write_text("someone else's"))
    assert (names(tmp_path), (tmp_path / "old").read_text()) == (["last", "old"], "precious")
    assert (tmp_path / "last").read_text() == "someone else's"


def test_a_stream_that_fails_keeps_files_from_appearing(tmp_path):
    def write_both():
        with atomic_group():
            write_atomic(tmp_path / "a", b"1")
            write_atomic("/dev/full", b"2")

    with pytest.raises(OSError, match="it cannot be written") as caught:
        write_both()
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/dev/full")
    assert names(tmp_path) == []


def test_one_that_failed_does_not_appear_with_the_others(tmp_path):
    with atomic_group():
        write_atomic(tmp_path / "a", b"1")
        with pytest.raises(ImportError), atomic_file(tmp_path / "b"):
            raise ImportError
    assert names(tmp_path) == ["a"]


def test_one_file_by_many_names(tmp_path, here):
    Path("sub").mkdir()
    Path("new.csv").write_text("x")
    Path("symbolic.csv").symlink_to("new.csv")
    os.link("new.csv", "hard.csv")
    for same in ("new.csv", "./sub/../new.csv", "symbolic.csv", "hard.csv", tmp_path / "new.csv"):
        with pytest.raises(ValueError, match=r"^--output .* and NEW new\.csv are the same file"):
            check_separate({"--output": same}, {"NEW": "new.csv"})
    for one, other in (("a.csv", "sub/../a.csv"), ("a.csv", "A.csv")):
        refused("are the same file", check_separate, {"--output": one, "--report": other}, {})
    check_separate({"--output": "a.csv", "--report": "sub/a.csv"}, {"NEW": "new.csv"})
    check_separate({"--output": "/dev/null", "--report": "/dev/null"}, {"NEW": "/dev/null"})


def write_table(path, **given):
    table = pa.table({"a": [1.0, 2.0]})
    with open_output(path, table.schema, **given) as write:
        write(table)


@pytest.fixture(scope="module")
def writers():
    X = np.random.default_rng(0).normal(size=(30, 2))
    cad = ConformalDetector("knn", "split", random_state=0).fit(X)
    found = cad.discover(X)
    return {
        "out.csv": write_table,
        "out.parquet": write_table,
        "out.rcad": lambda path, **given: save(cad, path, **given),
        "out.html": lambda path, **given: report(found, path, **given),
    }


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.rcad", "out.html"])
def test_every_writer_is_careful(writers, name, tmp_path, monkeypatch):
    write, path = writers[name], tmp_path / name
    write(path)
    whole = path.read_bytes()
    umask = os.umask(0)
    os.umask(umask)
    assert mode(path) == 0o666 & ~umask
    path.write_text("precious")
    refused(r"it exists already; replace it with `overwrite=T", write, path, error=FileExistsError)
    for function in ("fsync", "replace"):
        with monkeypatch.context() as failing:
            failing.setattr(os, function, lambda *_: (_ for _ in ()).throw(OSError("disk full")))
            refused("disk full", write, path, overwrite=True, error=OSError)
        assert (path.read_text(), names(tmp_path)) == ("precious", [name])
    link = tmp_path / f"link-{name}"
    link.symlink_to(path)
    write(link, overwrite=True)
    assert link.is_symlink()
    assert abs(len(path.read_bytes()) - len(whole)) < 100  # with another time in it
    with pytest.raises(FileNotFoundError, match=r"there is no folder '.*nowhere' to write to"):
        write(tmp_path / "nowhere" / name)
    (tmp_path / f"folder-{name}").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write(tmp_path / f"folder-{name}", overwrite=True)
    write("/dev/null", overwrite=True) if name == "out.rcad" else None
    assert Path("/dev/null").is_char_device()
