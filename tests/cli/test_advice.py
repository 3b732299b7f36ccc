"""Every command that the tool advises runs as it is pasted, and every advised option is taken.

Situations are commands that end with advice: an empty list, a broken verdict, a refusal, a next
step. Whole commands stand in backquotes or on a line of their own. An option is added to the
command that ran, in the place of one that was there; where advice names no value, one that makes
sense here is taken.
"""

import functools
import itertools
import re
import shlex
import shutil
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from reconform.cli import main

# What ends with a result: nothing, anomalies, a broken assumption.
FINE = (0, 3, 4)

# Values for options that advice names without one.
VALUES = {
    "--detector": "knn", "--method": "full", "--fdr": "0.3", "--false-alarms": "50", "--drop": "a",
    "--id": "a", "--missing": "unknown", "--category": "c", "--output": "out.csv --overwrite",
}  # fmt: skip
FLAGS = ("--prepare", "--trust-objects", "--overwrite", "--only-anomalies",
         "--json", "--quiet")  # fmt: skip
# Of a method, and gone with it.
OF_METHODS = ("repeats=", "calibration=", "folds=", "draws=")

WHOLE = re.compile(r'`(reconform [^`]+)`|^ {4}(reconform .+)$|"next": "(reconform [^"]+)"', re.M)
LEFT_OUT = re.compile(r"(?:leave out|without) (--[a-z-]+)|leave (--[a-z-]+) out")
NAMED = re.compile(
    r"(?:reconform (?P<of>fit|detect) )?(?P<option>--[a-z][a-z-]*)"
    r"(?: (?P<value>'[^']+'|[\w.+:=-]*[\w+]))?"
)
# Words after an option that are no value of it.
WORDS = {"and", "or", "which", "with", "out", "may", "gives", "goes", "in", "is", "that", "writes"}


def run(line):
    result = CliRunner().invoke(main, shlex.split(line)[1:])
    assert result.exit_code != 70, result.output
    return result.exit_code, f"{result.stdout}\n{result.stderr}"


def set_option(line, option, value):
    """Put an option into a command, in the place of what it said before."""
    words = without(line, option)
    if option == "--method":
        words = [word for word in words if not word.startswith(OF_METHODS)]
        pairs = pairwise([*words, "--"])
        words = [word for word, next in pairs if (word, next[:2]) != ("--set", "--")]
    return shlex.join([*words, option, *([] if value is None else value.split())])


def without(line, option):
    words = shlex.split(line)
    while option in words:
        at = words.index(option)
        del words[at : at + (1 if option in FLAGS else 2)]
    return words


def advised(line, said, fitted=""):
    """All commands that come of the advice in what a command said; `fitted` made its model."""
    for found in WHOLE.finditer(said):
        yield found[1] or found[2] or found[3]
    said = WHOLE.sub("", said).replace("--output FILE --only-anomalies", "--output")
    said = re.sub(r"Error: --\S+ \S+ must", "", said)  # which is about a default
    for found in LEFT_OUT.finditer(said):
        option = found[1] or found[2]
        if option in line:
            yield shlex.join(without(line, option))
    said = LEFT_OUT.sub("", said)
    together = "--detector knn with --method split"
    if together in said:
        yield set_option(set_option(line, "--detector", "knn"), "--method", "split")
        said = said.replace(together, "")
    for found in NAMED.finditer(said):
        of, option, value = found["of"], found["option"], found["value"]
        value = None if value in WORDS or value is None else value.strip("'").rstrip(".,")
        other = said[: found.start()].endswith("another ")
        if not other and (f"{option} {value}" in line or (value is None and option in line)):
            continue  # it speaks of what was asked for
        if option not in FLAGS:
            value = value or VALUES[option]
        assert of in (None, "fit"), said
        yield set_option(line if of is None else fitted, option, value)


def tried(line, said, steps=1, fitted="", run=run):
    """Run what is advised; where it is refused in turn, what that advises, for so many steps."""
    count = 0
    for again in dict.fromkeys(advised(line, said, fitted)):
        code, then = run(again)
        if code not in FINE and steps > 1:
            count += tried(again, then, steps - 1, run=run)
            continue
        assert code in FINE, f"{line}\nsaid: {said}\nadvised: {again}\nwhich said: {then}"
        count += 1
    assert count, f"{line}\nadvised nothing: {said}"
    return count


def rows(rng, count, *, far=0, moved=0.0, decimals=4):
    X = rng.normal(size=(count, 3))
    X[:, 0] += moved
    X[:far] += 12
    frame = pd.DataFrame(np.round(X, decimals), columns=["a", "b", "c"])
    frame["kind"] = np.where(np.arange(count) % 2, "left", "right")
    frame["id"] = [f"r{i:04d}" for i in range(count)]
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files for all situations, by what is special about them."""
    folder, rng = tmp_path_factory.mktemp("advice"), np.random.default_rng(0)
    plain = ["a", "b", "c"]
    normal = rows(rng, 500)
    dirty = normal.copy()
    dirty.loc[:14, plain] = 7 + 0.5 * rng.normal(size=(15, 3))
    dirty.loc[:3, plain] += 4
    new, hidden = rows(rng, 200, far=12), rows(rng, 300)[plain]
    hidden[:30] = 7 + 0.5 * rng.normal(size=(30, 3))
    tables = {
        "normal": normal[plain],
        "tiny": normal[plain][:30],
        "small": normal[plain][:9],
        "dirty": dirty[plain],
        "mixed": normal,
        "large": rows(rng, 3_000)[plain],
        "labelled": rows(rng, 600, far=40).assign(label=[1] * 40 + [0] * 560),
        "gaps": normal[plain].assign(a=normal["a"].mask(rng.random(500) < 0.03)),
        "text": normal[["kind", "b", "c"]].rename(columns={"kind": "a"}),
        "textnew": new[["kind", "b", "c"]].rename(columns={"kind": "a"}),
        "new": new[plain],
        "middle": rows(rng, 200)[plain] * 0.9,
        "flat": rows(rng, 200)[plain].clip(-2, 2),
        "moved": rows(rng, 200, moved=0.9)[plain],
        "hidden": hidden,
        "mixednew": new,
        "mixedmoved": rows(rng, 200, moved=0.9),
        "counted": rows(rng, 200)[plain].assign(a=np.arange(200.0) + 900),
        "gapsnew": new[plain].assign(a=new["a"].mask(rng.random(200) < 0.3)),
        "short": rows(rng, 90),
        "shortnew": rows(rng, 30, far=4),
        "all": rows(rng, 400, far=60)[plain],
    }
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    return folder


@pytest.fixture(autouse=True)
def here(folder, tmp_path, monkeypatch):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


DETECT = "reconform detect"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        # empty lists, each for its reason
        (f"{DETECT} tiny.csv new.csv", "at least 65 rows must stand out before any can be flagged"),
        (f"{DETECT} tiny.csv new.csv --detector knn --method split", "--method cv+, which calib"),
        (f"{DETECT} tiny.csv new.csv --detector auto --method split", "--method full, which calib"),
        (f"{DETECT} small.csv flat.csv --detector knn --set n_neighbors=1 --method split", "10%"),
        (f"{DETECT} large.csv flat.csv --detector knn", "or this detector does not see them"),
        (f"{DETECT} large.csv middle.csv --method learned", "or this method does not see them"),
        (f"{DETECT} large.csv flat.csv --detector knn --false-alarms 0.01", "0.01 false alarms"),
        (f"{DETECT} dirty.csv hidden.csv --detector knn", "reconform clean dirty.csv`"),
        (f"{DETECT} tiny.csv new.csv --validity proven --method split", "must stand out"),
        # broken and doubtful verdicts
        (f"{DETECT} normal.csv moved.csv", "reconform detect normal.csv moved.csv --shift a`"),
        (f"{DETECT} normal.csv moved.csv --method split --fdr 0.2", "--method split --shift a`"),
        (f"{DETECT} mixed.csv mixedmoved.csv --id id --detector knn", "--id id --shift a`"),
        (f"{DETECT} normal.csv moved.csv --detector sklearn:OneClassSVM", "with --drop."),
        (f"{DETECT} mixed.csv mixedmoved.csv --group kind --id id", "with --drop."),
        (f"{DETECT} normal.csv counted.csv", "a time? Leave it out with --drop"),
        # data that are refused
        # lists that go on
        (f"{DETECT} large.csv all.csv --fdr 0.5", "--output FILE --only-anomalies writes them all"),
    ],
)
def test_advice_of_detect(line, sentence):
    code, said = run(line)
    assert code in (0, 1), said
    assert sentence in " ".join(said.split()), said
    tried(line, said)


DETECTORS = ("", "--detector knn", "--detector contrast", "--detector sklearn:OneClassSVM")
METHODS = ("", *(f"--method {name}" for name in ("full", "split", "cv+", "jab+", "batch")))
METHODS += ("--method learned", "--method jackknife", "--method split --set repeats=3")
DECISIONS = ("", "--validity proven", "--procedure storey")
DECISIONS += ("--validity proven --procedure storey",)
COLUMNS = ("", "--shift a", "--group kind")


def test_what_refuses_a_combination_advises_one_that_is_taken():
    """All pairs; where one of two is refused by itself, its own advice may come first."""
    refused, run_once = {}, functools.cache(run)  # many are advised more than once
    for asked in itertools.product(DETECTORS, METHODS, DECISIONS, COLUMNS):
        given = [one for one in asked if one]
        if len(given) > 2:
            continue
        grouped = any("--group" in one for one in given)
        files = f"short.csv shortnew.csv --drop id{'' if grouped else ',kind'}"
        line = shlex.join(shlex.split(f"{DETECT} {files} {' '.join(given)}"))
        code, said = run_once(line)
        if code in FINE:
            continue
        assert code == 1, said
        assert not re.search(r"prefit|blocks|=\[", said), said
        refused[line] = True
        alone = [
            one for one in given if len(given) == 2 and run_once(f"{DETECT} {files} {one}")[0] == 1
        ]
        tried(line, said, steps=1 + len(alone), run=run_once)
    assert len(refused) > 40


def test_advice_of_models():
    """A model has no --detector, --method or --drop: these are options of fit and detect."""
    for name, options in (
        ("tiny", "--detector knn --method split"),
        ("normal", ""),
        ("normal", "--detector sklearn:OneClassSVM --method split"),
        ("mixed", "--prepare --id id"),
    ):
        fitted = f"reconform fit {name}.csv --model m.rcad --overwrite {options}"
        run_once = functools.cache(run)  # score and check give the same advice
        assert run(fitted)[0] == 0
        news = ("mixednew", "mixedmoved") if name == "mixed" else ("new", "moved", "counted")
        for new, command in itertools.product(news, ("score", "check")):
            line = f"reconform {command} m.rcad {new}.csv"
            if "sklearn" in options or "--prepare" in options:
                line += " --trust-objects"
            code, said = run(line)
            assert code in FINE, said
            if command == "check":
                said = said.replace('\\"', '"')
            missing = [o for o in ("--detector", "--method", "--drop", "--shift") if o in said]
            for option in missing:
                assert re.search(rf"reconform (fit|detect)[^`]* {option}", said), said
            if list(advised(line, said, fitted)):
                tried(line, said, fitted=fitted, run=run_once)


def test_next_steps_of_a_review():
    """Also with options that the later rounds need, and with names that a shell would cut."""
    shutil.copy("mixed.csv", "my rows.csv")
    line = "reconform clean 'my rows.csv' --id id --top 50 --detector lof --output 'my review.csv'"
    code, said = run(line)
    assert code == 0, said
    review = pd.read_csv("my review.csv")
    review["mark"] = ["real", *["false"] * (len(review) - 1)]
    review.to_csv("my review.csv", index=False)
    (command,) = (found[1] for found in WHOLE.finditer(said))
    code, then = run(command)
    assert code == 0, then
    assert "of 499 reference rows" in then
