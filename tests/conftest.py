import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from sklearn.datasets import load_breast_cancer

# Deterministic examples: a run that is green stays green.
settings.register_profile("reconform", derandomize=True, deadline=None)
settings.load_profile("reconform")


def pytest_configure(config):
    """Workers share the cores: threads of OpenMP beside them would wait for each other."""
    if getattr(config.option, "numprocesses", None):
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")  # whose limits test_nested.py looks at


@pytest.fixture(scope="session")
def breast():
    """Benign (normal) and malignant (anomalous) rows of the data set inside scikit-learn."""
    X, y = load_breast_cancer(return_X_y=True)
    return X[y == 1], X[y == 0]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder of one's own, which is where commands run."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def rng():
    """Numbers that are the same in every test that asks."""
    return np.random.default_rng(0)


@pytest.fixture
def blobs():
    """A reference, normal new rows and a few far away."""
    rng = np.random.default_rng(0)
    reference = rng.normal(size=(60, 3))
    new = np.vstack([rng.normal(size=(30, 3)), rng.normal(8, 1, size=(4, 3))])
    return reference, new


@pytest.fixture(scope="session")
def data_folder():
    """The paper's data sets, where the environment says they are."""
    folder = os.environ.get("RECONFORM_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs the paper's data sets: set RECONFORM_DATA to their folder")
    return Path(folder)
