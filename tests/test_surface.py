"""What users may rely on: the public names, and the signature of the estimator."""

import inspect
import subprocess
import sys

import pytest

import reconform

NAMES = [
    "Batch",
    "BatchDependenceError",
    "Bootstrap",
    "ConformalDetector",
    "CrossValidation",
    "Discoveries",
    "Explanation",
    "Full",
    "Jackknife",
    "Learned",
    "ModelFileError",
    "Prefit",
    "Prepare",
    "RankCounts",
    "ReconformError",
    "ReferenceWarning",
    "Resampling",
    "Review",
    "Rule",
    "Split",
    "UnlabelledRowWarning",
    "Weights",
    "discover_scores",
    "load",
    "report",
    "review",
    "save",
    "__version__",
]


def test_public_names():
    assert sorted(reconform.__all__) == sorted(NAMES)
    assert all(hasattr(reconform, name) for name in NAMES)


def test_signature_of_the_estimator():
    signature = inspect.signature(reconform.ConformalDetector)
    assert str(signature).replace("'", '"').split(" -> ")[0] == (
        '(detector: "Any" = "auto", method: "str | Method" = "auto", *, '
        'alpha: "float" = 0.1, ties: "str" = "conservative", larger_is: "str | None" = None, '
        'random_state: "Any" = None, n_jobs: "int | None" = None, verbose: "int" = 0, '
        'group_models: "bool" = False)'
    )
    public = {name for name in dir(reconform.ConformalDetector) if not name.startswith("_")}
    assert {"fit", "ranks", "p_values", "discover", "rank_counts"} <= public


def test_everything_public_is_documented():
    for name in NAMES[:-1]:
        thing = getattr(reconform, name)
        assert thing.__doc__, name
        for attribute, value in inspect.getmembers(thing):
            if not attribute.startswith("_") and callable(value):
                assert inspect.getdoc(value), f"{name}.{attribute}"


def test_importing_takes_nothing_along():
    extras = ["pyod", "polars", "altair", "dask", "skops", "matplotlib", "click"]
    late = [f"reconform.{name}" for name in ("models", "reporting", "study", "files", "cli")]
    unwanted = [*extras, *late, "numpy", "sklearn", "numba"]
    code = f"import sys, reconform; print([m for m in {unwanted} if m in sys.modules])"
    code += "; import reconform.models; print('skops' in sys.modules)"
    ask = [sys.executable, "-c", code]
    result = subprocess.run(ask, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["[]", "False"]


def test_what_is_imported_late_is_there():
    from reconform import load, models, save, study

    assert (load, save) == (models.load, models.save)
    assert study.Study.__module__.startswith("reconform.study")
    assert {"load", "models", "study"} <= set(dir(reconform))
    assert callable(reconform.report), "the function, also when its package is imported"
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        reconform.nothing  # noqa: B018


def test_every_public_name_has_a_home():
    homes = [name for names in reconform._HOMES.values() for name in names]
    assert sorted([*homes, "__version__"]) == sorted(reconform.__all__)
    assert len(set(homes)) == len(homes)
