"""What each package can do, asked by code: the rows of the table in docs/comparison.md.

A cell is code that is run, or a search for words. Code that runs means "yes", or what it returns if
that is a text; code that raises is a fault of the probe and stops the command. ``Lacks`` means
"no": no class, function or parameter of the package has one of these words in its name. ``Said`` is
not asked by code but known from the package's documents; the page sets it in italics.
``benchmarks/compare.py`` runs the rows; each cell sees `normal` (300 rows), `new` (100 rows, of
which the first 10 are anomalies), and the imports of its package.
"""

from __future__ import annotations

import ast
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = ("reconform", "nonconform", "pyod", "fcnd")

IMPORTS = {
    "reconform": """
from reconform import *
from reconform import stream
from reconform.detectors import DETECTORS
""",
    "nonconform": """
from nonconform import *
from nonconform.martingales import AlarmConfig, SimpleJumperMartingale
from nonconform.monitoring import ExchangeabilityMonitor
from pyod.models.knn import KNN
from sklearn.ensemble import IsolationForest
forest = IsolationForest(random_state=0)
def half(detector=None, **options):
    detector = KNN() if detector is None else detector
    return ConformalDetector(detector, Split(n_calib=0.5), seed=0, **options)
""",
    "pyod": """
from pyod.models.ecod import ECOD
from pyod.models.iforest import IForest
from pyod.models.knn import KNN
from pyod.utils import persistence
from pyod.utils.ad_engine import ADEngine
""",
    "fcnd": """
from fcnd import *
forest = IsoForestLearner(random_state=0, n_estimators=50)
""",
}


@dataclass(frozen=True)
class Lacks:
    """No name in the package has one of these words."""

    words: tuple[str, ...]


def lacks(*words: str) -> Lacks:
    return Lacks(words)


@dataclass(frozen=True)
class Said:
    """Words that no code stands behind."""

    words: str


Cell = str | Lacks | Said


@dataclass(frozen=True)
class Feature:
    """A row: what is asked for, and how it is asked of each package."""

    title: str
    reconform: Cell
    nonconform: Cell
    pyod: Cell
    fcnd: Cell


# --- what cells may use --------------------------------------------------------------------------


class Centred:
    """A detector that scores a row relative to the batch it comes in: nothing may hold for it."""

    def __init__(self, random_state: int | None = None) -> None:
        self.random_state = random_state  # unused; nonconform warns of detectors without one

    def fit(self, X: Any, y: Any = None) -> Centred:
        """Learn nothing."""
        self.fitted_ = True
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Distances to the middle of these very rows."""
        return np.abs(np.asarray(X) - np.mean(X, axis=0)).sum(axis=1)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Name the parameters."""
        return {"random_state": self.random_state}

    def set_params(self, **_: Any) -> Centred:
        """Take parameters, and leave them."""
        return self


def outcome(work: Callable[[], Any]) -> str:
    """What becomes of it: refused, warned of (by a warning or in a log), or taken silently."""
    said: list[str] = []
    listener = logging.Handler(logging.WARNING)
    listener.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    loggers = [logging.getLogger(package) for package in PACKAGES]
    for logger in loggers:
        logger.addHandler(listener)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            work()
        ours = [w for w in caught if "DeprecationWarning" not in w.category.__name__]
    except Exception as error:
        return f"refused: `{type(error).__name__}`"
    finally:
        for logger in loggers:
            logger.removeHandler(listener)
    return "warned of" if ours or said else "taken, nothing is said"


def pipeline() -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import OneClassSVM

    return make_pipeline(StandardScaler(), OneClassSVM(gamma=0.1))


def direction(p_values: Any) -> str:
    """Whether the anomalies, which come first, have the small p-values."""
    return "read rightly" if np.mean(p_values[:10]) < 0.1 else "read the wrong way round"


def commands(package: str) -> str:
    """The programs that a package installs, or no."""
    owned = entry_points(group="console_scripts")
    names = sorted(one.name for one in owned if one.value.split(".")[0] == package)
    return ", ".join(f"`{name}`" for name in names) or "no"


def pythons(package: str) -> str:
    return metadata(package)["Requires-Python"].replace(",", ", ")


def frame_of(rows: np.ndarray) -> Any:
    """A pandas frame with a column of labels and a missing number."""
    import pandas as pd

    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    frame["valve"] = np.where(np.arange(len(rows)) % 2, "open", "shut")
    frame.loc[3, "a"] = None
    return frame


TYPES = "np.repeat(['pump', 'fan'], [len(normal) // 2, len(normal) - len(normal) // 2])"
NEW_TYPES = "np.repeat(['pump', 'fan'], [len(new) // 2, len(new) - len(new) // 2])"

FEATURES = [
    Feature(
        "p-value of every row",
        "ConformalDetector('knn').fit(normal).p_values(new)",
        "half().fit(normal).compute_p_values(new)",
        lacks("p_value", "pvalue", "conformal"),
        "d = FCND(forest); d.load_dataset(normal, new); d.score_units(); d.make_p()",
    ),
    Feature(
        "a list at a false discovery rate",
        "ConformalDetector('knn').fit(normal).discover(new, fdr=0.1)",
        "half().fit(normal).select(new, alpha=0.1)",
        lacks("fdr", "false_discovery", "benjamini"),
        "FCND(forest).detect(normal, new, alpha=0.1)",
    ),
    Feature(
        "other procedures",
        "from reconform.statistics import PROCEDURES; "
        "', '.join(p for p in PROCEDURES if p != 'bh')",
        "half().fit(normal).select(new, method='storey'); "
        "ConformalDetector(KNN(), DerandomizedSplits(n_calib=0.5), seed=0)"
        ".fit(normal).select(new); "
        "'storey, e-BH on repeated splits'",
        lacks("fdr", "false_discovery", "benjamini"),
        "FCND(forest).detect(normal, new, alpha=0.1, method='ebh'); 'e-BH'",
    ),
    Feature(
        "every reference row calibrates: cross-validation, jackknife, bootstrap",
        "[ConformalDetector('knn', m, random_state=0).fit(normal).p_values(new)"
        " for m in ('cv+', 'jackknife+', 'jab+')]",
        "[ConformalDetector(KNN(), s, seed=0).fit(normal[:60]).compute_p_values(new) for s in "
        "(CrossValidation(k=5), CrossValidation.jackknife(), JackknifeBootstrap(n_bootstraps=20))]",
        lacks("jackknife", "calibrat", "conformal"),
        "FCND(forest, leave_one_out=True).detect(normal[:20], new[:5], alpha=0.1); 'leave-one-out'",
    ),
    Feature(
        "a list with a theorem, without a split",
        "ConformalDetector('knn', 'full').fit(normal).discover(new, validity='proven')",
        lacks("transductive", "full_conformal"),
        lacks("fdr", "false_discovery", "conformal"),
        "FCND(forest).detect(normal, new, alpha=0.1, method='ebh'); EBHCC; "
        "'yes, by e-BH; `EBHCC` finds more'",
    ),
    Feature(
        "p-values that hold given this calibration set",
        "ConformalDetector('knn', 'split').fit(normal).discover(new, conditional='simes')",
        "from nonconform.scoring import ConditionalEmpirical; "
        "half(estimation=ConditionalEmpirical()).fit(normal).compute_p_values(new)",
        lacks("p_value", "pvalue", "conformal"),
        lacks("given_calibration", "dkwm", "simes"),
    ),
    Feature(
        "chooses a detector",
        "ConformalDetector().fit(normal).discover(new).ranked_by; "
        "'for every row; p-values stay exact'",
        lacks("candidate", "model_selection", "learners"),
        "ADEngine().plan_detection(ADEngine().profile_data(normal)); "
        "'for the data set, by benchmarks, or asks a language model'",
        "MSFCND([forest, OneClassSVMLearner(nu=0.05, gamma='auto')], alpha=0.1, K=10)"
        ".detect(normal, new); 'for blocks of rows; the list stays proven'",
    ),
    Feature(
        "ranks within groups, one list",
        f"ConformalDetector('knn', 'split').fit(normal, groups={TYPES})"
        f".discover(new, groups={NEW_TYPES})",
        f"half().fit(normal, groups={TYPES}).select(new, groups={NEW_TYPES})",
        lacks("mondrian", "groups"),
        lacks("mondrian", "group"),
    ),
    Feature(
        "weights that you know, for another mix of normal rows",
        "ConformalDetector('knn', 'full').fit(normal).discover(new, "
        "weights=Weights(np.ones(len(normal)), np.ones(len(new))))",
        "from nonconform.weighting import BaseWeightEstimator; "
        "'by a class of your own (`BaseWeightEstimator`)'",
        lacks("covariate_shift", "density_ratio", "importance_weight"),
        "FCND(forest).detect(normal, new, alpha=0.1, weights_ref=np.ones(len(normal)), "
        "weights_test=np.ones(len(new)))",
    ),
    Feature(
        "weights that are estimated",
        "from sklearn.ensemble import RandomForestClassifier; "
        "[Weights.estimate(normal, new, c) for c in (None, RandomForestClassifier())]; "
        "'logistic regression, or a classifier of your own; from columns that you choose'",
        "[half(weight_estimator=w()).fit(normal).select(new) for w in "
        "(logistic_weight_estimator, forest_weight_estimator)]; "
        "from nonconform.weighting import SklearnWeightEstimator; "
        "'logistic regression, a forest, or a classifier of your own; columns by a pipeline'",
        lacks("covariate_shift", "density_ratio", "importance_weight"),
        lacks("density_ratio", "estimate_weight", "weight_estimator"),
    ),
    Feature(
        "a bound on the false alarms in this list, for every cut-off at once",
        "ConformalDetector('knn', 'split').fit(normal).discover(new).fdp_bound()",
        "half().fit(normal).fdp_bounds(new, confidence=0.95)",
        lacks("fdp", "false_discovery"),
        lacks("fdp_bound", "posthoc", "certificate"),
    ),
    Feature(
        "a bound on the false-positive rate for every raw cut-off at once",
        lacks("fpr_bound", "fpr_bounds", "false_positive_rates"),
        "half().fit(normal).fpr_bounds(confidence=0.95)",
        lacks("fpr_bound", "certificate"),
        lacks("fpr_bound", "certificate"),
    ),
    Feature(
        "a raw score as cut-off, with confidence",
        "ConformalDetector('knn', 'split').fit(normal).threshold(0.1)",
        "half().fit(normal).fpr_bounds(confidence=0.95).threshold_for(0.5)",
        "KNN(contamination=0.05).fit(normal).threshold_; "
        "'a share of the training rows, without confidence'",
        lacks("threshold_for", "fpr", "certificate"),
    ),
    Feature(
        "p-values between the steps of the ranks",
        "ConformalDetector('knn', 'split', ties='randomized', random_state=0).fit(normal)"
        ".p_values(new); 'randomised ties'",
        "Probabilistic; Empirical(tie_break='randomized'); "
        "'randomised ties; kernel density of the scores (extra)'",
        lacks("p_value", "pvalue", "conformal"),
        "d = FCND(forest); d.load_dataset(normal, new); d.score_units(); d.make_p(U=0.5); "
        "'randomised ties'",
    ),
    Feature(
        "alarm when the process moves, for a stream",
        "stream.ExchangeabilityMonitor(ConformalDetector('knn', 'split').fit(normal)).update(new); "
        "stream.ChangeMonitor; "
        "'a martingale and Shiryaev-Roberts, and when it began'",
        "m = ExchangeabilityMonitor.from_split_detector(half().fit(normal), "
        "martingale=SimpleJumperMartingale(), seed=0); m.update(new[0]); "
        "'four martingales; CUSUM and Shiryaev-Roberts triggers'",
        lacks("martingale", "exchangeab"),
        lacks("martingale", "monitor", "exchangeab"),
    ),
    Feature(
        "decisions on rows as they arrive",
        "c = ConformalDetector('knn', 'split').fit(normal); stream.FalseAlarmBudget("
        "c, false_alarms=50, per=1_000).update(new); stream.MicroBatches; "
        "'a budget of false alarms, windows'",
        "half().fit(normal).compute_p_value(new[0]); "
        "'p-values; online FDR by the package online-fdr (extra)'",
        "KNN().fit(normal).predict(new[:1]); 'at its cut-off'",
        lacks("monitor", "online", "update"),
    ),
    Feature(
        "known anomalies help",
        "ConformalDetector('contrast').fit(normal, anomalies=normal[:5] + 9).discover(new)",
        lacks("known_anomal", "anomalies", "semi_supervised"),
        "find_spec('pyod.models.xgbod') and find_spec('pyod.models.devnet'); "
        "'XGBOD, DevNet (extras); no p-values'",
        lacks("known_anomal", "anomalies", "semi_supervised"),
    ),
    Feature(
        "why this row",
        "ConformalDetector('knn').fit(normal).discover(new).explain(0)",
        lacks("explain"),
        "ECOD.explain_outlier; 'for ECOD, COPOD, PCA and forests'",
        lacks("explain"),
    ),
    Feature(
        "*given* rows of a process that moved by two standard deviations",
        "found = ConformalDetector('knn').fit(normal).discover(new + 2); "
        "f'the verdict: *{found.verdict.word}*'",
        "outcome(lambda: half(forest).fit(normal).select(new + 2))",
        "outcome(lambda: KNN().fit(normal).predict(new + 2))",
        "outcome(lambda: FCND(forest).detect(normal, new + 2, alpha=0.1))",
    ),
    Feature(
        "*given* PyOD's ECOD, which scores a row by its batch",
        "from pyod.models.ecod import ECOD; "
        "outcome(lambda: ConformalDetector(ECOD(), 'split').fit(normal)) + "
        "'; `full`, `batch`: valid'",
        "from pyod.models.ecod import ECOD; "
        "outcome(lambda: half(ECOD()).fit(normal)) + ' (by name)'",
        Said("is its own, has no p-values"),
        Said("all rows are scored together: valid"),
    ),
    Feature(
        "*given* a detector of your own that does the same",
        "outcome(lambda: ConformalDetector(Centred(), 'split', larger_is='anomalous').fit(normal))",
        "outcome(lambda: half(Centred()).fit(normal).compute_p_values(new))",
        Said("has no p-values"),
        Said("all rows are scored together: valid"),
    ),
    Feature(
        "*given* a pipeline of scikit-learn, the direction of its scores not said",
        "direction(ConformalDetector(pipeline(), 'split').fit(normal).p_values(new))",
        "direction(half(pipeline()).fit(normal).compute_p_values(new)) + ' (say `score_polarity`)'",
        Said("has no p-values"),
        Said("you write a class that says it"),
    ),
    Feature(
        "*given* 20 reference rows, which can flag nothing",
        "outcome(lambda: ConformalDetector('knn', 'split').fit(normal[:20]).discover(new))",
        "outcome(lambda: half(forest).fit(normal[:20]).select(new, alpha=0.1))",
        Said("flags by its cut-off"),
        "outcome(lambda: FCND(forest).detect(normal[:20], new, alpha=0.1))",
    ),
    Feature(
        "*given* a frame with labels and a missing number",
        "ConformalDetector(Prepare('knn'), 'split').fit(frame_of(normal)).discover(frame_of(new)); "
        "'taken, with `Prepare` or a pipeline'",
        "outcome(lambda: half().fit(frame_of(normal)).select(frame_of(new)))",
        "outcome(lambda: KNN().fit(frame_of(normal)))",
        "outcome(lambda: FCND(forest).detect(frame_of(normal), frame_of(new), alpha=0.1))",
    ),
    Feature(
        "a fitted model in a file",
        "save(ConformalDetector('knn').fit(normal), 'model.rcad'); load('model.rcad'); "
        "'yes; loading executes nothing'",
        "import pickle; pickle.loads(pickle.dumps(half().fit(normal))); 'pickle'",
        "persistence.save(KNN().fit(normal), 'model.joblib'); "
        "persistence.load('model.joblib', trusted=True); 'joblib, with a check of versions'",
        "import pickle; pickle.loads(pickle.dumps(SCND(forest))); 'pickle'",
    ),
    Feature(
        "commands in the shell",
        "commands('reconform') + ' (files of any size, HTML report)'",
        "commands('nonconform')",
        "commands('pyod') + ' (for AI agents)'",
        "commands('fcnd')",
    ),
    Feature(
        "Dask and Spark",
        "find_spec('reconform.distributed') and 'yes'",
        lacks("dask", "spark"),
        lacks("dask", "spark"),
        lacks("dask", "spark"),
    ),
    Feature(
        "detectors of its own",
        "str(len([n for n in DETECTORS if n != 'auto']))",
        Said("none, takes those of PyOD and scikit-learn"),
        "str(len(ADEngine().list_detectors()))",
        Said("2 wrappers of scikit-learn"),
    ),
    Feature(
        "deep detectors, time series, graphs, text, images, audio",
        "find_spec('reconform.timeseries') and 'windows of time series; scores of any deep model'",
        lacks("torch", "autoencoder", "image"),
        "', '.join(sorted({t for d in ADEngine().list_detectors() for t in d['data_types']}))",
        lacks("torch", "autoencoder", "image"),
    ),
    Feature(
        "Python",
        "pythons('reconform')",
        "pythons('nonconform')",
        "pythons('pyod')",
        "pythons('fcnd')",
    ),
]


# --- running them --------------------------------------------------------------------------------


def named(package: str) -> set[str]:
    """Names of classes, functions and parameters in the sources of a package, in small letters."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    names = set()
    for path in Path(spec.origin).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                names.add(node.name.lower())
            elif isinstance(node, ast.arg):
                names.add(node.arg.lower())
    return names


def rows() -> tuple[np.ndarray, np.ndarray]:
    """The rows that cells are given."""
    rng = np.random.default_rng(0)
    normal, new = rng.normal(size=(300, 3)), rng.normal(size=(100, 3))
    new[:10] += 5
    return normal, new


def answer(package: str, cell: Cell) -> str:
    """What stands in the table."""
    if isinstance(cell, Said):
        return f"*{cell.words}*"
    if isinstance(cell, Lacks):
        found = [n for n in named(package) if any(word in n for word in cell.words)]
        if found:
            raise AssertionError(f"{package} is said to lack {cell.words}, and has {found}")
        return "no"
    normal, new = rows()
    names: dict[str, Any] = {**globals(), "normal": normal, "new": new}
    exec(IMPORTS[package], names)
    *before, last = ast.parse(cell).body
    exec(compile(ast.Module(before, []), cell, "exec"), names)
    assert isinstance(last, ast.Expr)
    result = eval(compile(ast.Expression(last.value), cell, "eval"), names)
    return result if isinstance(result, str) else "yes"


def column(package: str) -> dict[str, str]:
    """All answers of a package, by the title of the row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {one.title: answer(package, getattr(one, package)) for one in FEATURES}
