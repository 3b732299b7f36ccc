"""Alarms that go on: the statistics, their run lengths, when a change began, and crashes."""

import math

import numpy as np
import pytest

from reconform.stream import Change, ChangeMonitor
from reconform.stream.monitor import SimpleJumper
from streams import calibrated


def literal(factors, limit):
    """The definition with a sum over all rows at which a change may have begun."""
    alarms, course, start, products = [], [], 0, []
    for t, f in enumerate(factors):
        products = [q * f for q in (*products, 1.0)]  # from row start + i on, up to t
        course.append(sum(products))
        if course[-1] >= limit:
            # the first of the best is the earliest; the last lowest capital is the latest
            best = max(i for i, q in enumerate(products) if q >= max(products) * (1 - 1e-12))
            alarms.append(Change(t, start + best))
            start, products = t + 1, []
    return alarms, course


def test_the_statistic_is_its_definition(rng):
    c, x = rng.normal(size=300), np.concatenate([rng.normal(size=60), rng.normal(-2, 1, size=120)])
    monitor = ChangeMonitor(calibrated(c), 50, random_state=0)
    reports = [monitor.update(part) for part in np.split(x[:, None], [1, 50, 51, 170])]
    p_values = np.concatenate([report.p_values for report in reports])
    path = SimpleJumper().advance(p_values)
    alarms, course = literal(np.exp(np.diff(path, prepend=0.0)), 50)
    assert monitor.changes == alarms == [one for report in reports for one in report.changes]
    assert len(alarms) >= 2
    got = np.concatenate([report.log10_evidence for report in reports])
    assert got == pytest.approx(np.log10(course), abs=1e-8)
    assert monitor.log10_evidence == pytest.approx(
        got[-1] if alarms[-1].row < len(x) - 1 else monitor.log10_evidence
    )


def test_an_alarm_says_when_the_change_began():
    """60 streams that shift by 1.5 sd at row 400: the median is within 15 rows of it.

    Standard errors of these medians are about 2 rows; a correct program is off by 15 in fewer than
    1 in 10,000 runs.
    """
    rng, began, delay = np.random.default_rng(3), [], []
    for stream in range(60):
        c = rng.normal(size=1_000)
        x = np.concatenate([rng.normal(size=400), rng.normal(-1.5, 1, size=200)])
        monitor = ChangeMonitor(calibrated(c), 1_000, random_state=stream)
        after = [one for one in monitor.update(x[:, None]).changes if one.row >= 400]
        began.append(after[0].began)
        delay.append(after[0].row - 400)
    assert abs(np.median(began) - 400) <= 15
    assert np.median(delay) <= 120


def test_alarms_come_again():
    """Down, back to normal, and up: there is an alarm for the second change as well."""
    rng = np.random.default_rng(4)
    cad = calibrated(rng.normal(size=2_000))
    monitor = ChangeMonitor(cad, 1_000, random_state=0)
    monitor.update(rng.normal(size=(300, 1)))
    assert not monitor.changes
    assert monitor.update(rng.normal(-2, 1, size=(60, 1))).alarm
    monitor.update(rng.normal(size=(300, 1)))
    before = len(monitor.changes)
    report = monitor.update(rng.normal(2, 0.5, size=(60, 1)))
    assert report.alarm
    assert len(monitor.changes) > before
    assert abs(report.changes[0].began - 660) < 30


def test_what_is_said():
    rng = np.random.default_rng(6)
    monitor = ChangeMonitor(calibrated(rng.normal(size=200)), 100)
    assert "at most T / 100 false alarms are expected in T rows" in monitor.guarantee
    assert ChangeMonitor(monitor.cad, 2_000_000).log10_evidence == -math.inf
    assert "T / 2,000,000 false" in ChangeMonitor(monitor.cad, 2_000_000).guarantee
    monitor.update(rng.normal(-3, 1, size=(200, 1)))
    assert monitor.changes[-1].row < 200
