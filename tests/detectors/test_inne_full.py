"""Full-conformal INNE: the ranks of one refit per new row, without the refits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle_detectors import reference_sums
from reconform import Full
from reconform.content import Contents
from reconform.detectors.inne import INNE
from reconform.detectors.inne.ensembles import EnteredINNE, draw_centres
from reconform.detectors.inne.kernels import UNIT
from rows import few_valued

SEED = np.random.SeedSequence(7)


def fitted(X, detector, seed=SEED, **options):
    ensemble = detector.fit_plan(X, Full().plan(len(X)), [seed], **options)
    assert isinstance(ensemble, EnteredINNE)
    return ensemble


def rows(kind, n, m, d=3):
    rng = np.random.default_rng(n)
    if kind == "continuous":
        return rng.normal(size=(n, d)), rng.normal(scale=1.5, size=(m, d))
    if kind == "ties":
        return few_valued(rng, n, d), few_valued(rng, m, d)
    # Every reference row several times, and new rows among them.
    X = rng.normal(size=(-(-n // 3), d))[rng.integers(0, -(-n // 3), size=n)]
    return X, np.vstack([X[rng.integers(0, n, size=m - 1)], X[:1] + 5.0])


# --- the same numbers as one refit per row --------------------------------------------------


@given(st.data())
def test_equals_pyods_lines_in_integers(data):
    """Against NumPy, with few-valued coordinates, so that everything ties."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    n, d = int(rng.integers(2, 25)), int(rng.integers(1, 4))
    values = data.draw(st.integers(1, 4))
    X = rng.integers(0, values, size=(n, d)).astype(float)
    new = rng.integers(-1, 2 * values, size=(3, d)) / 2
    sets = data.draw(st.integers(1, 6))
    seed = np.random.SeedSequence(int(rng.integers(1000)))
    ensemble = fitted(X, INNE(n_estimators=sets), seed)
    ranks = ensemble.ranks(new, strictly=True)
    for j, x in enumerate(new):
        together = np.vstack([X, x])
        centres = draw_centres(Contents.of(together), min(8, n + 1), sets, seed)
        sums = reference_sums(together, centres, together)
        assert ranks.at_most[j] == 1 + (sums[:-1] >= sums[-1]).sum()
        assert ranks.below[j] == 1 + (sums[:-1] > sums[-1]).sum()
        assert ranks.scores[j] == 0.0 - sums[-1] / (sets * UNIT)


@pytest.mark.parametrize("n", [5, 30])
def test_the_calibration_shows_the_sets_without_any_new_row(n):
    X, _ = rows("continuous", n, 2)
    ensemble = fitted(X, INNE(n_estimators=12))
    centres = draw_centres(Contents.of(X), min(8, n), 12, SEED)
    expected = 0.0 - reference_sums(X, centres, X) / (12 * UNIT)
    assert np.array_equal(ensemble.calibration.scores, expected)
    assert np.array_equal(ensemble.calibration.rows, np.arange(n))
