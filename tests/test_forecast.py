"""How long work will take: told once, early, of long work only, and without a change of numbers."""

from __future__ import annotations

import re

import numpy as np
import pytest
from click.testing import CliRunner

from reconform import ConformalDetector, forecast
from reconform.cli import main
from reconform.ensemble import choosing as ensembles
from reconform.forecast import Pace, listening, paced
from reconform.parallel import track
from reconform.study import Protocol, Study


class Clock:
    """A clock that goes on when it is told to, or by a little whenever somebody looks."""

    def __init__(self, tick=0.0):
        self.now, self.tick = 0.0, tick

    def __call__(self):
        self.now += self.tick
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(forecast, "clock", made)
    return made


def worked(clock, items, seconds, **given):
    """Work on items, each for some seconds; return what was said, and after how many of them."""
    said = []
    done = 0
    with listening(lambda text: said.append((text, done))):
        for _ in track(range(items), total=items, label="fitting", verbose=0, **given):
            clock.now += seconds
            done += 1
    return said


def test_long_work_is_foretold_after_its_first_part(clock):
    assert worked(clock, 60, 2.0) == [("About 2 minutes: fitting, 60 in all.", 1)]
    assert worked(clock, 10_000, 0.01) == [("About 2 minutes: fitting, 10,000 in all.", 100)]


def test_short_work_is_not_spoken_of(clock):
    assert worked(clock, 4, 2.0) == []
    assert worked(clock, 900, 0.01) == []


def test_where_parts_differ_several_are_waited_for(clock):
    assert worked(clock, 60, 2.0, least=5) == [("About 2 minutes: fitting, 60 in all.", 5)]


def test_it_is_not_foretold_when_it_is_nearly_over(clock):
    assert worked(clock, 12, 1.0, least=11) == []


def test_what_is_done_at_once_counts_once(clock):
    said = []
    with listening(said.append):
        pace = Pace("fitting", 100, at_once=4)
        clock.now += 2.0
        pace.done(1)
    assert said == ["About 50 seconds: fitting."]


def test_only_the_outermost_work_is_spoken_of(clock):
    said = []
    with listening(said.append):
        for _ in track(range(20), total=20, label="outer", verbose=0):
            for _ in track(range(20), total=20, label="inner", verbose=0):
                clock.now += 2.0
        assert forecast.is_asked()  # again
    assert said == ["About 13 minutes: outer, 20 in all."]


def test_nobody_listens_and_nothing_is_timed(clock):
    def never():
        raise AssertionError

    assert list(paced(range(3), never)) == [0, 1, 2]


# --- a choice of detectors -----------------------------------------------------------------------


def discovered(monkeypatch, least, tick, said):
    """Discover with several detectors; each question takes one tick of the clock."""
    monkeypatch.setattr(ensembles, "FORETELL", least)
    monkeypatch.setattr(forecast, "clock", Clock(tick))
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(60, 3)), rng.normal(size=(40, 3))
    new[:4] += 6.0
    cad = ConformalDetector(["knn", "iforest", "mahalanobis"], "full", random_state=0).fit(X)
    with listening(said.append):
        return cad.discover(new, fdr=0.2)


def test_a_choice_of_detectors_is_foretold_and_stays_the_same(monkeypatch):
    said = []
    plain = discovered(monkeypatch, 10**12, 20.0, said)
    assert said == []
    told = discovered(monkeypatch, 0, 20.0, said)
    # Starting takes 20 s each by this clock, a row more takes nothing.
    assert said == ["About 60 seconds: 3 detectors on 60 and 40 rows."]
    np.testing.assert_array_equal(told.p_values, plain.p_values)
    np.testing.assert_array_equal(told.scores, plain.scores)
    assert told.choice == plain.choice
    assert told.ranked_by == plain.ranked_by


def test_a_quick_choice_of_detectors_is_not_spoken_of(monkeypatch):
    said = []
    discovered(monkeypatch, 0, 0.01, said)
    assert said == []


@pytest.mark.parametrize("silent", [False, True])
def test_the_command_line_says_it_before_the_result(tmp_path, monkeypatch, silent):
    monkeypatch.setattr(ensembles, "FORETELL", 0)
    monkeypatch.setattr(forecast, "clock", Clock(20.0))
    rng = np.random.default_rng(0)
    for name in ("normal", "new"):
        lines = [f"{x:.6f},{y:.6f}" for x, y in rng.normal(size=(40, 2))]
        (tmp_path / f"{name}.csv").write_text("\n".join(["x,y", *lines]) + "\n")
    paths = [str(tmp_path / "normal.csv"), str(tmp_path / "new.csv")]
    result = CliRunner().invoke(main, ["detect", *paths, *(["--quiet"] if silent else [])])
    assert result.exit_code == 0, result.output
    said = [line for line in result.stderr.splitlines() if "detectors on 40 and 40 rows" in line]
    assert len(said) == (0 if silent else 1)
    assert "About" not in result.stdout


def test_a_study_says_what_it_tries_while_it_cannot_foretell(monkeypatch):
    """A trial of one draw may take minutes: it is not silent, and has a bound as soon as it can."""
    monkeypatch.setattr(forecast, "FIRST_WORD", 0.01)
    monkeypatch.setattr(forecast, "NEXT_WORD", 0.01)
    said = []
    protocol = Protocol(draws=2, test_sets=2)
    with forecast.listening(said.append):
        Study(["breast_cancer"], ["knn", "iforest"], ["split", "cv+"], protocol).run()
    assert said[0].startswith("Trying on one draw what all of them will take: ")
    # Which of the pairs are met depends on the machine; that they are named does not.
    assert any(re.search(r" with .+ on breast_cancer", sentence) for sentence in said)
    assert any("seconds in all by now." in sentence for sentence in said)


def test_short_work_that_cannot_be_foretold_is_not_spoken_of():
    said = []
    with forecast.listening(said.append), forecast.speaking(lambda: "Still there."):
        pass
    assert said == []
