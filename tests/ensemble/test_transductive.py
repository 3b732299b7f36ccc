"""Full-conformal detection with any detector: one refit per row, and an exact level."""

import numpy as np
import pytest
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM

from reconform import ConformalDetector, Full

pytest.importorskip("pyod", reason="needs reconform[pyod]")
from pyod.models.ecod import ECOD
from pyod.models.lof import LOF


def by_hand(fit_and_score, reference, new):
    ranks = []
    for x in new:
        scores = fit_and_score(np.vstack([reference, x]))
        ranks.append(1 + sum(s <= scores[-1] for s in scores[:-1]))
    return ranks


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("detector", "fit_and_score"),
    [
        (OneClassSVM(), lambda Z: OneClassSVM().fit(Z).score_samples(Z)),
        # leave-one-out style training scores of its own
        (
            LocalOutlierFactor(novelty=True),
            lambda Z: LocalOutlierFactor().fit(Z).negative_outlier_factor_,
        ),
        (LOF(), lambda Z: -LOF().fit(Z).decision_scores_),
        # ranks the batch against itself: refused elsewhere, symmetric and so welcome here
        (ECOD(), lambda Z: -ECOD().fit(Z).decision_scores_),
        (
            make_pipeline(StandardScaler(), LocalOutlierFactor(novelty=True)),
            lambda Z: (
                LocalOutlierFactor().fit(StandardScaler().fit_transform(Z)).negative_outlier_factor_
            ),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_ranks_among_all_rows_of_one_symmetric_model(detector, fit_and_score, blobs):
    reference, new = blobs[0], blobs[1][[0, 1, 2, 33]]
    cad = ConformalDetector(detector, "full", random_state=0).fit(reference)
    assert cad.ranks(new).tolist() == by_hand(fit_and_score, reference, new)
    assert (cad.n_calibration_, cad.guarantee_.name) == (len(reference), "full")
    two = ConformalDetector(detector, Full(), random_state=0, n_jobs=2).fit(reference)
    assert np.array_equal(two.ranks(new[::-1])[::-1], cad.ranks(new))


class Both:
    """scikit-learn's score_samples (large = normal) beside PyOD's attribute (large = anomalous)."""

    def fit(self, X):
        self.middle_ = np.median(X, axis=0)
        self.decision_scores_ = -self.score_samples(X)
        self.negative_outlier_factor_ = -self.score_samples(X)  # a name, and the wrong direction
        return self

    def score_samples(self, X):
        return -np.abs(X - self.middle_).sum(axis=1)

    def decision_function(self, X):
        return -self.score_samples(X)


@pytest.mark.parametrize("larger_is", [None, "normal"])
def test_the_direction_of_scores_comes_from_one_place(larger_is, rng):
    reference, anomalous = rng.normal(size=(30, 2)), np.array([[9.0, 9.0]])
    cad = ConformalDetector(Both(), "full", larger_is=larger_is, random_state=0).fit(reference)
    assert cad.ranks(anomalous).tolist() == [1]
    middle = np.median(reference, axis=0)[None]
    assert cad.ranks(middle)[0] > 25
    turned = ConformalDetector(Both(), "full", larger_is="anomalous", random_state=0)
    assert turned.fit(reference).ranks(anomalous).tolist() == [31]


def test_a_word_about_the_cost_and_progress(blobs, monkeypatch, capsys):
    monkeypatch.setattr("reconform.ensemble.refitting.WARN_SECONDS", 0.0)
    cad = ConformalDetector(OneClassSVM(), "full", verbose=1).fit(blobs[0])
    with pytest.warns(UserWarning, match="fits OneClassSVM once per new row: 34 fits"):
        cad.ranks(blobs[1])
    assert "refitting OneClassSVM" in capsys.readouterr().err
