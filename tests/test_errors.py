"""What is raised on purpose has one base class, by which blame is decided."""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import LocalOutlierFactor

import reconform
from reconform import ConformalDetector, ReconformError, errors
from refusals import refused

SOURCES = sorted(Path(reconform.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_nothing_is_raised_as_a_plain_value_error(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Raise) and node.exc is not None:
            assert "ValueError" not in ast.unparse(node.exc).split("(")[0], node.lineno


def test_all_our_errors_have_the_base():
    ours = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, Exception)]
    assert len(ours) >= 5
    assert all(issubclass(c, ReconformError) for c in ours if not issubclass(c, Warning))


class Grumbling:
    def fit(self, X):
        return self

    def score_samples(self, X):
        raise ValueError("these rows are not for me")


def test_sentences_of_other_libraries_become_ours():
    X = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(ReconformError, match="Input X contains NaN"):  # scikit-learn's check
        ConformalDetector("knn").fit(np.full((30, 2), np.nan))
    with pytest.raises(ReconformError, match="X has 1 features, but ConformalDetector is exp"):
        ConformalDetector("knn").fit(X).p_values(X[:, :1])
    with pytest.raises(ReconformError, match="n_neighbors"):  # scikit-learn's detector
        ConformalDetector(LocalOutlierFactor(-1, novelty=True), "split").fit(X)
    refused("these rows are not for me", ConformalDetector(Grumbling(), "split").fit, X)


def test_not_fitted_stays_scikit_learns():
    with pytest.raises(NotFittedError) as caught:
        ConformalDetector("knn").p_values([[1.0]])
    assert not isinstance(caught.value, ReconformError)
