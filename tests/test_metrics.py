"""The false discovery proportion and the power of a list, given the truth."""

import math

import numpy as np
import pandas as pd
import pytest

from reconform import ConformalDetector
from reconform.metrics import false_discovery_proportion, false_shares, found_shares, power
from refusals import refused

FLAGGED = [True, True, True, False, False]
TRUTH = [True, False, True, True, False]


@pytest.mark.parametrize(
    "kind",
    [
        list,
        np.array,
        pd.Series,
        lambda mask: [int(yes) for yes in mask],
        lambda mask: np.array(mask, float),
        lambda mask: pd.Series(mask, index=list("edcba")),
        lambda mask: np.array(mask, object),
    ],
)
def test_masks_of_any_kind(kind):
    assert false_discovery_proportion(kind(FLAGGED), kind(TRUTH)) == 1 / 3
    assert power(kind(FLAGGED), kind(TRUTH)) == 2 / 3


def test_edges(rng):
    assert false_discovery_proportion([0, 0], [1, 0]) == 0.0, "an empty list has nothing false"
    assert power([0, 0], [1, 0]) == 0.0
    assert math.isnan(power([1, 0], [0, 0])), "nothing to find"
    assert false_discovery_proportion([1, 0], [0, 0]) == 1.0
    assert false_discovery_proportion([], []) == 0.0
    assert math.isnan(power([], []))
    new, truth = rng.normal(size=(60, 2)), np.arange(60) >= 50
    new[truth] += 9
    found = ConformalDetector("knn", "full").fit(rng.normal(size=(80, 2))).discover(new)
    assert found.count
    assert false_discovery_proportion(found, truth) == np.mean(~truth[found.mask])
    assert power(found, truth) == np.mean(found.mask[truth])


@pytest.mark.parametrize(
    ("flagged", "truth", "sentence"),
    [
        ([95, 96], [0, 1], r"`flagged` must say yes or no .* got 95\. Of positions make a mask"),
        ([1, -1], [0, 1], r"got -1\..*predictions == -1"),
        ([1.0, math.nan], [0, 1], "got nan"),
        ([1, 0], pd.Series([True, pd.NA]), "got <NA>"),
        (["1", "0"], [1, 0], "got .1."),
        ([1, 0], ["yes", "no"], "`is_anomaly` must say yes or no .* got 'yes'"),
        ([1, 0, 1], [0, 1], "must be about the same rows: 3 and 2"),
        ([[1, 0]], [[0, 1]], r"one value per row; got shape \(1, 2\)"),
        (True, [1], r"got shape \(\)"),
    ],
)
def test_what_is_no_list_is_refused(flagged, truth, sentence):
    for metric in (false_discovery_proportion, power):
        refused(sentence, metric, flagged, truth)


def test_many_lists_at_once_have_the_same_definition():
    rng = np.random.default_rng(1)
    flagged, truth = rng.random((50, 12)) < 0.2, rng.random((50, 12)) < 0.3
    truth[:, 0] = True
    pairs = list(zip(flagged, truth, strict=True))
    assert false_shares(flagged, truth).tolist() == [false_discovery_proportion(*p) for p in pairs]
    assert found_shares(flagged, truth).tolist() == [power(*p) for p in pairs]
