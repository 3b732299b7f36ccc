"""Masked cells are missing, and dates are no numbers, wherever rows come in."""

import numpy as np
import pytest
from scipy import sparse

from reconform import ConformalDetector, ReconformError
from reconform.detectors import resolve_detector
from reconform.detectors.prepare import make_prepared
from reconform.frames import unmasked
from refusals import refused

X = np.random.default_rng(0).normal(size=(60, 2))
MASKED = np.ma.masked_array(X, mask=np.abs(X) > 1.5)


def detector():
    return ConformalDetector("knn", "split", random_state=0)


def test_masked_cells_are_missing():
    fitted, forest = detector().fit(X), resolve_detector("iforest")
    for method in (
        detector().fit,
        lambda rows: detector().fit(list(rows)),  # rows that are masked, in a list
        fitted.p_values,
        fitted.ranks,
        fitted.predict,
        forest.fit,
        resolve_detector("iforest").fit(X).score_samples,
    ):
        refused("NaN", method, MASKED)
    plain = detector().fit(X).p_values(X)  # a mask that hides nothing
    np.testing.assert_array_equal(detector().fit(np.ma.masked_array(X)).p_values(X), plain)
    counts = np.ma.masked_array([[1, 2], [3, 4]], mask=[[False, True], [False, False]])
    np.testing.assert_array_equal(unmasked(counts), [[1.0, np.nan], [3.0, 4.0]])


def test_a_detector_that_takes_missing_values_takes_masked_ones():
    cad = ConformalDetector(make_prepared("iforest", [0, 1], []), "split", random_state=0)
    missing = np.where(np.ma.getmaskarray(MASKED), np.nan, X)
    expected = cad.fit(missing).p_values(missing)
    np.testing.assert_array_equal(cad.fit(MASKED).p_values(MASKED), expected)


@pytest.mark.parametrize(
    ("detector", "method"), [("knn", "full"), ("iforest", "split"), ("auto", "auto")]
)
def test_sparse_rows_are_those_of_the_array(detector, method):
    X, new = (sparse.random_array((n, 8), density=0.3, rng=n) for n in (200, 40))
    plain = ConformalDetector(detector, method, random_state=0).fit(X.toarray())
    thin = ConformalDetector(detector, method, random_state=0).fit(X.tocsr())
    assert np.array_equal(thin.p_values(new), plain.p_values(new.toarray()))
    found, expected = (
        cad.discover(rows, fdr=0.2) for cad, rows in ((thin, new), (plain, new.toarray()))
    )
    assert np.array_equal(found.p_values, expected.p_values)
    assert np.array_equal(thin.predict(new.tocsc()), plain.predict(new.toarray()))


def test_a_sparse_matrix_that_is_too_large_is_refused():
    with pytest.raises(ReconformError, match="TruncatedSVD"):
        ConformalDetector("knn").fit(sparse.csr_array((1 << 20, 1 << 20)))
