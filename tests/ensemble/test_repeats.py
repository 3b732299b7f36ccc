import numpy as np
import pytest

from oracle import distance
from reconform import ConformalDetector, Split
from reconform.methods import resolve_method
from refusals import refused


def fitted(reference, repeats, **parameters):
    parameters |= {"larger_is": "anomalous", "random_state": 0}
    return ConformalDetector(distance, Split(repeats=repeats), **parameters).fit(reference)


@pytest.mark.parametrize("repeats", [2, 3, 4, 7])
def test_p_values_are_twice_the_median_over_the_splits(repeats, blobs):
    cad = fitted(blobs[0], repeats)
    every = [split.ranks(blobs[1]).at_most for split in cad.ensemble_.splits]
    assert (cad.n_calibration_, len(every)) == (30, repeats)
    expected = np.minimum(1.0, 2 * np.median(every, axis=0) / 31)
    np.testing.assert_allclose(cad.p_values(blobs[1]), expected, rtol=1e-15)


def test_the_splits_differ_and_one_repeat_is_a_plain_split(blobs):
    cad = fitted(blobs[0], 3)
    rows = [tuple(split.plan.held_out[0]) for split in cad.ensemble_.splits]
    assert len(set(rows)) == 3
    one = fitted(blobs[0], 1)
    plain = ConformalDetector(distance, "split", larger_is="anomalous", random_state=0)
    assert np.array_equal(one.ranks(blobs[1]), plain.fit(blobs[0]).ranks(blobs[1]))


def test_what_repeats_cannot_do_is_said(blobs):
    refused("repeats must be an integer of at least 1", Split(repeats=0).plan, 10)
    cad = fitted(blobs[0], 3, ties="randomized")
    refused("repeats=1", cad.p_values, blobs[1])
    refused("needs one model", fitted(blobs[0], 3).p_values, blobs[1], conditional="simes")


def test_counts_work_on_the_doubled_ranks(blobs):
    cad = fitted(blobs[0], 3)
    found = cad.discover(blobs[1], 0.4)
    decision = cad.rank_counts(blobs[1]).decide(0.4)
    assert decision.count == found.count
    assert "measured, not proven" in found.guarantee
    assert resolve_method("split").repeats == 1
