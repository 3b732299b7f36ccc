"""LORD with memory decay: the package's own decisions, journals, and what is said of it."""

import json

import numpy as np
import pytest
from online_fdr.p_values import LORDMemoryDecay

from reconform import ConformalDetector
from reconform.errors import ReconformError
from reconform.stream import DecayingMemory


@pytest.fixture(scope="module")
def cad():
    rows = np.random.default_rng(0).normal(size=(5_000, 2))
    return ConformalDetector("knn", "split", random_state=0).fit(rows)


def stream(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 2))
    X[rng.random(300) < 0.05] += 6
    return X


def test_decisions_are_those_of_the_package_in_any_batches(cad, tmp_path):
    X, test = stream(1), LORDMemoryDecay(alpha=0.1, delta=0.99)
    expected = [test.test_one(p) for p in cad.p_values(X).tolist()]
    assert sum(expected) > 5
    assert DecayingMemory(cad).update(X).mask.tolist() == expected
    journal = tmp_path / "decay.journal"
    first = DecayingMemory(cad, journal=journal)
    found = [first.update(rows).mask for rows in np.split(X[:200], 4)]
    first.close()
    again = DecayingMemory(cad, journal=journal)  # decides all of it again
    assert again.rows == 200
    found.append(again.update(X[200:]).mask)
    assert np.concatenate(found).tolist() == expected
    again.close()
    told = again.told(again._last)
    assert [row["anomaly"] for row in told] == expected[200:]
    json.dumps(told)


def test_it_says_what_it_is(cad):
    memory = DecayingMemory(cad)
    assert "measured, not proven" in memory.guarantee
    assert memory.outlook.startswith("P-values of at most 0.0005")
    few = ConformalDetector("knn", "split", random_state=0).fit(stream(2))
    assert "2,000 calibration rows" in DecayingMemory(few).outlook
    for wrong in ({"fdr": 0}, {"decay": 1.5}, {"fdr": "much"}):
        with pytest.raises(ReconformError):
            DecayingMemory(cad, **wrong)
