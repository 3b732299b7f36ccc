"""The choice on a split: evidence from counts and few scores is that of all rows at once."""

from __future__ import annotations

import pickle
from functools import reduce

import numpy as np
import pytest

from reconform.ensemble import surveyed
from reconform.ensemble.choosing import ChoiceSurvey, limits_for, weigh


def brute_force(reference, new):
    """What is found among the other rows, for every row, from all scores."""
    n, m = len(reference), len(new)
    own = np.hstack([np.tile(reference, (m, 1)), new[:, None]])
    evidence, ranks = np.empty((2, m), dtype=np.int64)
    weigh(own, np.tile(new, (m, 1)), np.arange(m), limits_for(n, m), 0, m, evidence, ranks)
    return evidence, ranks


def in_parts(survey, parts):
    """The survey, as it is made where parts are on different machines: all of it is sent."""

    def everywhere(begun):
        seen = (pickle.loads(pickle.dumps(begun.seen(part))) for part in parts)
        return reduce(ChoiceSurvey.merge, seen)

    return pickle.loads(pickle.dumps(surveyed(survey, everywhere)))


def draw(rng):
    """Scores with and without ties, with no, some or many anomalies."""
    n, m = rng.integers(1, 60, size=2)
    values = rng.choice([5, 30, 10**6])
    reference = np.sort(rng.integers(0, values, n) / values)
    new = rng.integers(0, values, m) / values * rng.choice([1.0, 0.3, 0.1])
    new[: rng.choice([0, 1, m // 3, m])] -= rng.choice([0.1, 1.0])
    return reference, rng.permutation(new)


@pytest.mark.parametrize("seed", range(400))
def test_evidence_is_that_of_all_scores(seed):
    rng = np.random.default_rng(seed)
    reference, new = draw(rng)
    survey = ChoiceSurvey(("one",), (reference,))
    done = in_parts(survey, np.array_split(new[None], rng.integers(1, 5), axis=1))
    evidence, ranks = brute_force(reference, new)
    below = np.searchsorted(reference, new, side="right")
    assert np.array_equal(done._evidence[0].of_rows(below, new), evidence)
    assert np.array_equal(done.ranks(new[None]).at_most, ranks)


def test_known_anomalies_count_like_other_rows_and_are_not_ranked():
    rng = np.random.default_rng(3)
    references = tuple(np.sort(rng.normal(size=(2, 99))))
    new, known = rng.normal(size=(2, 40)), rng.normal(size=(2, 7)) - 4
    survey = ChoiceSurvey(("one", "two"), references)
    beside = in_parts(survey.beside(known), [new[:, :11], new[:, 11:]]).ranks(new)
    among = in_parts(survey, [np.hstack([new, known])]).ranks(np.hstack([new, known]))
    assert np.array_equal(beside.at_most, among.at_most[:40])
    assert np.array_equal(beside.choice.chosen, among.choice.chosen[:40])


def test_what_is_sent_does_not_grow_with_the_rows():
    rng = np.random.default_rng(0)
    survey = ChoiceSurvey(("one", "two"), tuple(np.sort(rng.normal(size=(2, 999)))))
    sizes, kept = set(), []
    for m in (1_000, 100_000):
        scores = rng.normal(size=(2, m))
        scores[0, : m // 20] -= 6
        sizes.add(survey.seen(scores).low.nbytes)
        kept.append(sum(map(len, in_parts(survey, [scores]).low.kept)))
    assert len(sizes) == 1
    # All scores that a list might hold are about two fifths of the rows.
    assert kept[1] < 0.01 * 100_000
