"""Which of `AugmentedScores` belongs to which reference row: needed where rows are not alike."""

import numpy as np
import pytest
from sklearn.svm import OneClassSVM

from reconform import ConformalDetector, load, save
from reconform.detectors import DETECTORS

SCALED = [
    DETECTORS[name].kind(scale="robust")
    for name in DETECTORS
    if name != "auto" and "scale" in DETECTORS[name].kind().get_params()
]
NAMED = [name for name in DETECTORS if name != "auto"]


def scores_by_row(cad, T, n):
    """Scores of the reference rows, in their order, with every new row there."""
    found = np.empty((len(T), n))
    for augmented in cad.ensemble_.augmented_scores(T, np.arange(len(T))):
        order = np.arange(n) if augmented.order is None else augmented.order
        found[np.ix_(augmented.rows, order)] = augmented.own[:, :n]
    return found


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    D = rng.normal(size=(60, 3))
    D[7] = D[3]  # duplicates have equal scores
    return D, np.vstack([rng.normal(size=(8, 3)), D[:1]]), rng.permutation(60)


@pytest.mark.parametrize("detector", [*NAMED, *SCALED, OneClassSVM()], ids=str)
def test_scores_move_with_their_rows(rows, detector):
    D, T, moved = rows
    here, there = (
        ConformalDetector(detector, "full", random_state=0).fit(X) for X in (D, D[moved])
    )
    expected = scores_by_row(here, T, 60)[:, moved]
    assert np.array_equal(scores_by_row(there, T, 60), expected)


@pytest.mark.parametrize("name", NAMED)
def test_after_a_model_file(rows, name, tmp_path):
    D, T, _ = rows
    cad = ConformalDetector(name, "full", random_state=0).fit(D)
    save(cad, tmp_path / "m.reconform")
    loaded = load(tmp_path / "m.reconform")
    assert np.array_equal(scores_by_row(loaded, T, 60), scores_by_row(cad, T, 60))
