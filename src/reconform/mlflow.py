"""A fitted detector as an MLflow model: saved, logged, loaded and served, nothing in it pickled.

The model is our own file (`reconform.save`), which is parsed and never executed; MLflow finds this
module as the loader of it. Served rows are judged one by one, by their p-values. A list with a
bounded share of false alarms needs a batch, which a request may ask for.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sklearn.utils.validation import check_is_fitted

from .detector import ConformalDetector
from .errors import ReconformError
from .extras import extra
from .models import load, save

__all__ = ["load_model", "log_model", "save_model"]

FILE = "detector.reconform"

# What a request may set, and the values where it does not.
PARAMETERS = {"discover": False, "fdr": 0.1}

ALONE = (
    "each row by itself: outlier means p <= {alpha:g}, so that of many normal rows a share of "
    "{alpha:g} are outliers, too. For a list with few false alarms send a batch with "
    '"params": {{"discover": true}}.'
)


class ServedDetector:
    """What MLflow asks: rows in, p-values and decisions out.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> served = ServedDetector(ConformalDetector("knn", "split", random_state=0).fit(X))
    >>> list(served.predict([[0.0, 9.0]]).columns)
    ['p_value', 'outlier', 'judged']
    """

    def __init__(self, cad: ConformalDetector) -> None:
        self.cad = cad

    def predict(self, X: Any, params: dict[str, Any] | None = None) -> Any:
        """Judge rows.

        Parameters
        ----------
        X : frame or array of shape (m, d)
        params : dict, optional
            ``discover``: whether the rows are one batch of which a list is made; ``fdr``: its
            level.

        Returns
        -------
        pandas.DataFrame
            ``p_value`` and ``outlier`` of every row by itself, or ``p_value``, ``q_value`` and
            ``anomaly`` of a list; ``judged`` says which, and what it promises.
        """
        import pandas as pd

        asked = PARAMETERS | (params or {})
        if not asked["discover"]:
            p = self.cad.p_values(X)
            judged = ALONE.format(alpha=self.cad.alpha)
            return pd.DataFrame(
                {"p_value": p, "outlier": self.cad.predict(X) < 0, "judged": judged}
            )
        found = self.cad.discover(X, fdr=asked["fdr"])
        return pd.DataFrame(
            {
                "p_value": found.p_values,
                "q_value": found.q_values,
                "anomaly": found.mask,
                "judged": str(found),
            }
        )


def save_model(
    cad: ConformalDetector,
    path: str | Path,
    *,
    signature: Any = None,
    input_example: Any = None,
    mlflow_model: Any = None,
    pip_requirements: list[str] | str | None = None,
    metadata: dict[str, Any] | None = None,
) -> None:
    """Save a fitted detector as an MLflow model in a folder.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted.
    path : str or Path
        A folder that does not exist yet.
    signature : mlflow.models.ModelSignature, optional
        By default the columns of the fit, as numbers; columns of text need an `input_example`.
    input_example : frame or array, optional
        A few rows; the signature is inferred from them, and they are saved, too.
    mlflow_model : mlflow.models.Model, optional
    pip_requirements : list of str or str, optional
        By default this version of reconform.
    metadata : dict, optional

    See Also
    --------
    log_model, load_model
    """
    check_is_fitted(cad, "ensemble_")
    mlflow = _mlflow()
    if signature is None:
        signature = _signature(cad, input_example)
    with TemporaryDirectory() as folder:
        file = Path(folder, FILE)
        save(cad, file)
        mlflow.pyfunc.save_model(
            path=str(path),
            loader_module=__name__,
            data_path=str(file),
            mlflow_model=mlflow_model,
            signature=signature,
            input_example=input_example,
            pip_requirements=pip_requirements or [f"reconform=={version('reconform')}"],
            metadata=metadata,
        )


def log_model(cad: ConformalDetector, name: str = "model", **options: Any) -> Any:
    """Log a fitted detector as a model of the active run, or register it.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted.
    name : str, default="model"
    **options
        Those of `save_model`, and ``registered_model_name``.

    Returns
    -------
    mlflow.models.model.ModelInfo
    """
    import reconform.mlflow as flavor

    return _mlflow().models.Model.log(
        artifact_path=None, name=name, flavor=flavor, cad=cad, **options
    )


def load_model(model_uri: str | Path) -> ConformalDetector:
    """Load the detector of an MLflow model: a folder, ``models:/name/1`` or ``runs:/id/model``.

    Parameters
    ----------
    model_uri : str or Path

    Returns
    -------
    ConformalDetector
    """
    folder = Path(_mlflow().artifacts.download_artifacts(str(model_uri)))
    files = sorted(folder.rglob(FILE))
    if not files:
        raise ReconformError(
            f"{model_uri} has no {FILE}; it was not written by reconform.mlflow. "
            "mlflow.pyfunc.load_model loads other models."
        )
    return load(files[0])


def _load_pyfunc(path: str) -> ServedDetector:
    """What MLflow calls with the file that `save_model` gave it."""
    return ServedDetector(load(path))


def _signature(cad: ConformalDetector, example: Any) -> Any:
    """What rows a served model takes, and which parameters."""
    schema = _mlflow().types
    parameters = schema.schema.ParamSchema(
        [
            schema.ParamSpec("discover", "boolean", False),
            schema.ParamSpec("fdr", "double", PARAMETERS["fdr"]),
        ]
    )
    if example is not None:
        inputs = _mlflow().models.infer_signature(example).inputs
    elif hasattr(cad, "feature_names_in_"):
        text = [cad.names[j] for j in cad.state_.intake.categories()]
        if text:
            raise ReconformError(
                f"column {text[0]!r} is text; give `input_example`, a few rows by which MLflow "
                "knows the types of columns."
            )
        inputs = schema.Schema([schema.ColSpec("double", str(one)) for one in cad.names])
    else:
        import numpy as np

        kind = np.dtype(np.float64)
        inputs = schema.Schema([schema.TensorSpec(kind, (-1, cad.n_features_in_))])
    return _mlflow().models.ModelSignature(inputs=inputs, params=parameters)


def _mlflow() -> Any:
    extra("mlflow.pyfunc", "mlflow", "reconform.mlflow")
    return extra("mlflow", "mlflow", "reconform.mlflow")
