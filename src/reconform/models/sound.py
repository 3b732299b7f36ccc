"""Whether other people's objects fit together, before their compiled code sees them.

skops makes the objects of scikit-learn from the attributes in a file, and scikit-learn trusts what
it finds in itself: its compiled predictors read as far as one array says in another. So an object
is checked when it was made, and all that it contains, by class: one row of `CHECKS` for every
class whose compiled code relies on its attributes. Classes that only do arithmetic of NumPy,
which checks for itself, are listed in `ARITHMETIC`. All other classes of scikit-learn are made
only if the caller trusts them by name, and a compiled class that is not known is never made.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, clone
from sklearn.frozen import FrozenEstimator

from ..arrays import AnyArray
from ..records import ascending, require, within
from ..records.plain import check_bits
from .archive import MOST_EMPTY
from .settings import attributes_of, check_cost, parts_of, pipelines

# What scores or transforms by NumPy alone, module by module.
ARITHMETIC = frozenset(
    f"sklearn.{module}.{name}"
    for module, names in {
        "compose._column_transformer": ("ColumnTransformer",),
        "covariance._elliptic_envelope": ("EllipticEnvelope",),
        "covariance._empirical_covariance": ("EmpiricalCovariance",),
        "covariance._graph_lasso": ("GraphicalLasso", "GraphicalLassoCV"),
        "covariance._robust_covariance": ("MinCovDet",),
        "covariance._shrunk_covariance": ("LedoitWolf", "OAS", "ShrunkCovariance"),
        "decomposition._factor_analysis": ("FactorAnalysis",),
        "decomposition._fastica": ("FastICA",),
        "decomposition._incremental_pca": ("IncrementalPCA",),
        "decomposition._kernel_pca": ("KernelPCA",),
        "decomposition._pca": ("PCA",),
        "decomposition._truncated_svd": ("TruncatedSVD",),
        "feature_selection._variance_threshold": ("VarianceThreshold",),
        "frozen._frozen": ("FrozenEstimator",),
        "impute._base": ("MissingIndicator", "SimpleImputer"),
        "impute._knn": ("KNNImputer",),
        "kernel_approximation": ("Nystroem", "RBFSampler"),
        "linear_model._stochastic_gradient": ("SGDOneClassSVM",),
        "mixture._bayesian_mixture": ("BayesianGaussianMixture",),
        "mixture._gaussian_mixture": ("GaussianMixture",),
        "pipeline": ("FeatureUnion", "Pipeline"),
        "preprocessing._data": (
            "Binarizer", "KernelCenterer", "MaxAbsScaler", "MinMaxScaler", "Normalizer",
            "PowerTransformer", "QuantileTransformer", "RobustScaler", "StandardScaler",
        ),
        "preprocessing._discretization": ("KBinsDiscretizer",),
        "preprocessing._encoders": ("OneHotEncoder", "OrdinalEncoder"),
        "preprocessing._function_transformer": ("FunctionTransformer",),
        "preprocessing._polynomial": ("PolynomialFeatures",),
        "random_projection": ("GaussianRandomProjection", "SparseRandomProjection"),
    }.items()
    for name in names
)  # fmt: skip

# What has compiled code and a row in `CHECKS`, by itself or by what it is derived from.
CHECKED = frozenset(
    {
        "sklearn.ensemble._iforest.IsolationForest",
        "sklearn.neighbors._kde.KernelDensity",
        "sklearn.neighbors._lof.LocalOutlierFactor",
        "sklearn.neighbors._unsupervised.NearestNeighbors",
        "sklearn.svm._classes.OneClassSVM",
        "sklearn.tree._classes.DecisionTreeRegressor",
        "sklearn.tree._classes.ExtraTreeRegressor",
    }
)

# Libraries whose classes keep their own names to themselves.
MADE_BY_SKOPS = ("sklearn", "pyod")

# Compiled classes that hold a few numbers, and follow none of them.
HARMLESS_MODULES = ("sklearn._loss._loss", "sklearn.linear_model._sgd_fast")

MOST_DEGREE, MOST_COLUMNS = 1 << 5, 1 << 16


def needs_trust(name: str) -> bool:
    """Whether a class of scikit-learn is made only if it is trusted by name.

    Examples
    --------
    >>> needs_trust("sklearn.svm._classes.OneClassSVM")
    False
    >>> needs_trust("sklearn.cluster._kmeans.KMeans")
    True
    """
    return name.startswith("sklearn.") and name not in ARITHMETIC | CHECKED


def check_columns(detector: Any, d: int) -> None:
    """Refuse a detector, or a step of a pipeline, that was fitted on rows of another width."""
    width: int | None = d
    for part in _chain(detector):
        columns = getattr(part, "n_features_in_", None)
        if width is not None:
            fits = columns is None or columns == width
            require(fits, f"a detector was fitted on {columns!r} columns")
            _check_metric_parameters(part, width)
            for base in type(part).__mro__:
                name = WIDTHS.get(f"{base.__module__}.{base.__qualname__}")
                if name is not None and hasattr(part, name):
                    require(np.shape(getattr(part, name))[-1:] == (width,), f"{name} does not fit")
        width = _width_behind(part, width)


def _chain(detector: Any) -> Iterator[Any]:
    """The steps that rows go through, one after the other."""
    if isinstance(detector, FrozenEstimator):
        yield from _chain(detector.estimator)
    elif isinstance(detector, pipelines()):
        for _, step in detector.steps:
            if step not in (None, "passthrough"):
                yield from _chain(step)
    else:
        yield detector


def _width_behind(step: Any, width: int | None) -> int | None:
    """Columns that come out of a step, if that can be known."""
    if isinstance(step, OneToOneFeatureMixin):
        return width
    try:
        return int(step._n_features_out)
    except (AttributeError, TypeError, ValueError):
        return None


def check_refit(template: Any, n: int, d: int) -> None:
    """Refuse a detector that cannot be fitted, or only at a price that a file named."""
    check_cost(template, n, d)
    if hasattr(template, "get_params"):
        clone(template)
    for part in parts_of(template):
        known = type(part).__module__.startswith("sklearn.") and isinstance(part, BaseEstimator)
        if known and hasattr(part, "_parameter_constraints"):  # a FeatureUnion has none
            part._validate_params()


def check_sound(thing: Any) -> None:
    """Refuse an object, or one that it contains, whose parts do not fit together."""
    for part in parts_of(thing):
        if sparse.issparse(part):
            _check_sparse(part)
            continue
        if isinstance(part, np.random.RandomState):
            check_bits(part.get_state(legacy=False))
            continue
        if isinstance(part, np.random.Generator):
            check_bits(part.bit_generator.state)
            continue
        kind = type(part)
        if kind.__module__.split(".")[0] in MADE_BY_SKOPS:
            _check_attributes(part, kind)
            _check_parameters(part, kind)
        names = [f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__]
        known = [CHECKS[name] for name in names if name in CHECKS]
        for check in known:
            check(part)
        if not known and _is_compiled(kind):
            require(kind.__module__ in HARMLESS_MODULES, f"a {names[0]} cannot be checked")


def _check_parameters(part: Any, kind: type) -> None:
    """Refuse an estimator without one of its parameters, and a pipeline without steps."""
    if isinstance(part, BaseEstimator):
        for name, parameter in inspect.signature(kind).parameters.items():
            named = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            require(not named or hasattr(part, name), f"{kind.__name__} has no {name}")
    if isinstance(part, pipelines()):
        steps = part.steps
        pairs = isinstance(steps, list) and all(
            isinstance(step, tuple | list) and len(step) == 2 and isinstance(step[0], str)
            for step in steps
        )
        require(pairs and steps, "a pipeline has no steps")
        require(hasattr(steps[-1][1], "fit"), "a pipeline does not end in a detector")


def _is_compiled(kind: type) -> bool:
    """Whether a class of scikit-learn or SciPy is no Python."""
    if kind.__module__.split(".")[0] not in ("sklearn", "scipy"):
        return False
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return file.endswith(tuple(EXTENSION_SUFFIXES))


def _check_attributes(part: Any, kind: type) -> None:
    """Refuse attributes that would take the place of a method or a constant of the class."""
    for name in attributes_of(part):
        shadowed = hasattr(kind, name)
        require(not shadowed, f"{name} of {kind.__name__} is replaced by an attribute")


# --- what must hold, class by class --------------------------------------------------------------


def _array(thing: Any, name: str, *shape: int | None, kinds: str = "f") -> AnyArray:
    """An attribute that must be an array of this shape (None: any size), of these kinds."""
    array: Any = getattr(thing, name, None)
    fits = (
        isinstance(array, np.ndarray)
        and array.dtype.kind in kinds
        and array.ndim == len(shape)
        and all(want in (None, got) for want, got in zip(shape, array.shape, strict=True))
    )
    require(fits, f"{name} of {type(thing).__name__} does not fit the rest of it")
    return np.asarray(array)


def _columns(thing: Any) -> int:
    columns = getattr(thing, "n_features_in_", None)
    known = isinstance(columns, int | np.integer) and 1 <= columns <= MOST_EMPTY
    require(known, f"n_features_in_ of {type(thing).__name__} is {columns!r}")
    return int(columns)  # type: ignore[arg-type]


def _is_fitted(thing: Any) -> bool:
    """Whether an estimator has anything that `fit` sets."""
    return any(name.endswith("_") or name.startswith("_") for name in vars(thing)) and not (
        set(vars(thing)) <= {"_sklearn_output_config", "_metadata_request"}
    )


def _check_sparse(matrix: Any) -> None:
    require(matrix.format in ("csr", "csc", "coo"), f"a sparse matrix is {matrix.format}")
    require(len(matrix.shape) == 2, "a sparse matrix has two dimensions")
    rows, columns = matrix.shape
    require(0 <= rows <= MOST_EMPTY and 0 <= columns <= MOST_EMPTY, "a sparse matrix is too large")
    require(matrix.data.ndim == 1 and matrix.data.dtype.kind in "biuf", "a matrix has no numbers")
    count = len(matrix.data)
    places: tuple[tuple[Any, int], ...]
    if matrix.format == "coo":
        places = ((matrix.row, rows), (matrix.col, columns))
    else:
        major, minor = (rows, columns) if matrix.format == "csr" else (columns, rows)
        ends = matrix.indptr
        bounds = len(ends) == major + 1 and ends[0] == 0 and ends[-1] == count and ascending(ends)
        require(bounds, "the rows of a sparse matrix are not in order")
        places = ((matrix.indices, minor),)
    for index, size in places:
        fits = index.dtype.kind == "i" and index.shape == (count,) and within(index, 0, size)
        require(fits, "a sparse matrix has an entry outside")


def _check_libsvm(machine: Any) -> None:
    named = machine.kernel in ("linear", "poly", "rbf", "sigmoid")
    require(named or callable(machine.kernel), f"kernel is {machine.kernel!r}")
    if not _is_fitted(machine):
        return
    require(type(machine._sparse) is bool, "a machine is dense or sparse")
    support = _array(machine, "support_", None, kinds="i")
    m = len(support)
    # With one class libsvm looks at how many numbers these are, and not at the numbers.
    counts = _array(machine, "_n_support", 2, kinds="i")
    for array in (support, counts):
        require(array.dtype == np.int32, "support vectors are counted in 32 bits")
    for name in ("_probA", "_probB"):
        _array(machine, name, 0)
    _array(machine, "_intercept_", 1)
    vectors: Any = machine.support_vectors_
    if callable(machine.kernel):  # rows are compared with all that were fitted
        require(not machine._sparse, "a machine with a kernel of one's own is dense")
        rows = _array(machine, "_BaseLibSVM__Xfit", None, None)
        require(machine.shape_fit_[0] == len(rows), "the rows that were fitted are missing")
        require(within(support, 0, len(rows)), "a support vector does not exist")
        _array(machine, "_dual_coef_", 1, m)
        _array(machine, "support_vectors_", None, None)
    elif machine._sparse:
        shapes = ((vectors, (m, _columns(machine))), (machine._dual_coef_, (1, m)))
        for matrix, shape in shapes:
            fits = sparse.issparse(matrix) and matrix.format == "csr" and matrix.shape == shape
            require(fits and matrix.dtype == np.float64, "support vectors do not fit together")
        thin = vectors.indices.dtype == vectors.indptr.dtype == np.int32
        require(thin, "support vectors are counted in 32 bits")
        require(machine._dual_coef_.nnz == m, "a support vector has no weight")
    else:
        for name, shape in (("support_vectors_", (m, _columns(machine))), ("_dual_coef_", (1, m))):
            array = _array(machine, name, *shape)
            plain = array.dtype == np.float64 and array.flags.c_contiguous
            require(plain, f"{name} is not stored row by row")
    require(machine._intercept_.dtype == np.float64, "the intercept is not a number")
    gamma = machine._gamma
    require(isinstance(gamma, int | float | np.floating), "gamma is not a number")


def _check_one_class(machine: Any) -> None:
    if _is_fitted(machine):
        offset = np.asarray(machine.offset_)
        require(offset.dtype.kind == "f" and offset.size == 1, "offset_ is not one number")


def _check_tree(tree: Any) -> None:
    count = tree.node_count
    require(1 <= count == tree.capacity, "a tree has another number of nodes")
    left, right, feature = tree.children_left, tree.children_right, tree.feature
    inner = left != -1
    require(np.array_equal(inner, right != -1), "a node has one child")
    node = np.arange(count)[inner]
    for child in (left[inner], right[inner]):  # children come later: every walk ends
        require((child > node).all() and within(child, 0, count), "a child does not exist")
    require(within(feature[inner], 0, tree.n_features), "a tree splits a column that is not there")
    require(1 <= tree.n_features <= MOST_EMPTY, "a tree has no columns")
    require(0 <= tree.max_depth <= count, "a tree is deeper than it has nodes")


def _check_decision_tree(model: Any) -> None:
    if _is_fitted(model):
        tree: Any = getattr(model, "tree_", None)
        require(type(tree).__name__ == "Tree", "a tree is missing")
        require(tree.n_features == _columns(model), "a tree has another number of columns")
        require(tree.n_outputs == getattr(model, "n_outputs_", None), "outputs do not fit")


def _check_isolation_forest(forest: Any) -> None:
    if not _is_fitted(forest):
        return
    d, trees = _columns(forest), forest.estimators_
    some = forest._max_features
    columns = forest.estimators_features_
    require(isinstance(trees, list) and trees, "a forest has no trees")
    require(isinstance(some, int | np.integer) and 1 <= some <= d, "a tree has no columns")
    require(len(columns) == len(trees), "a tree has no columns")
    lengths = (forest._average_path_length_per_tree, forest._decision_path_lengths)
    require(all(len(per_tree) == len(trees) for per_tree in lengths), "a tree has no lengths")
    for k, model in enumerate(trees):
        own = np.asarray(columns[k])
        fits = own.dtype.kind in "iu" and own.shape == (some,) and within(own, 0, d)
        require(fits and _columns(model) == some, "a tree has columns that are not there")
        require(hasattr(model, "tree_"), "a tree is missing")
        for per_tree in lengths:
            values = np.asarray(per_tree[k])
            good = values.dtype.kind in "iuf" and values.shape == (model.tree_.node_count,)
            require(good, "a leaf has no length")
    samples = forest._max_samples
    require(isinstance(samples, int | np.integer) and samples >= 1, "a tree has no rows")
    require(isinstance(forest.offset_, float | np.floating), "offset_ is not a number")


def _check_binary_tree(tree: Any) -> None:
    """Check a KDTree or a BallTree: nodes by number, the children of node i are 2i + 1, 2i + 2."""
    data, places, nodes, bounds, leaf, levels, count, *_, metric, weights = tree.__getstate__()
    n, d = data.shape
    require(n >= 1 and d >= 1 and leaf >= 1, "a tree has no rows")
    require(places.shape == (n,) and within(places, 0, n), "a tree has a row that is not there")
    require(1 <= levels <= 48 and count == 2**levels - 1 == len(nodes), "nodes are missing")
    sides = 1 if type(tree).__name__.startswith("Ball") else 2
    require(bounds.shape == (sides, count, d), "a node has no bounds")
    start, stop, is_leaf = nodes["idx_start"], nodes["idx_end"], nodes["is_leaf"]
    require(within(start, 0, n + 1) and within(stop, 0, n + 1), "a node has rows that do not exist")
    require((start <= stop).all(), "a node has rows that do not exist")
    inner = np.flatnonzero(is_leaf == 0)
    require(not len(inner) or 2 * inner[-1] + 2 < count, "a node has no children")
    require(weights is None or np.shape(weights) in ((0,), (n,)), "a row has no weight")
    _check_metric(metric, d)


def _check_metric(metric: Any, d: int | None = None) -> None:
    """Check a distance; the sizes of its arrays are those of the rows, if it has any."""
    name = type(metric).__name__.rstrip("0123456789")
    require(name.endswith("Distance") and "PyFunc" not in name, f"{name} is no distance")
    _, vector, matrix = metric.__getstate__()[:3]
    wanted = {"SEuclideanDistance": 1, "MinkowskiDistance": 1, "MahalanobisDistance": 2}.get(name)
    shape = np.shape(vector) if wanted == 1 else np.shape(matrix)
    bare = wanted is None or (name == "MinkowskiDistance" and shape == (0,))
    require(bare or shape == (d,) * (wanted or 0), f"the weights of {name} do not fit the rows")
    require(name != "HaversineDistance" or d in (None, 2), "places have two coordinates")


def _check_neighbours(model: Any) -> None:
    if not _is_fitted(model):
        return
    d, rows, tree = _columns(model), model._fit_X, model._tree
    if sparse.issparse(rows):
        fits = rows.shape[1] == d and rows.dtype.kind == "f"
    else:
        rows = _array(model, "_fit_X", None, d)
        fits = rows.flags.c_contiguous
    n = rows.shape[0]
    require(fits and n == model.n_samples_fit_, "the rows of neighbours do not fit")
    ways = {"brute": (None,), "kd_tree": ("KDTree",), "ball_tree": ("BallTree",)}
    require(model._fit_method in ways, f"{model._fit_method!r} is no search")
    if model._fit_method == "brute":
        require(tree is None, "a search has a tree that it does not need")
        require(model.effective_metric_ != "precomputed", "distances cannot be computed before")
    else:
        (name,) = ways[model._fit_method]
        require(type(tree).__name__.startswith(str(name)), "a search has no tree")
        require(tree.__getstate__()[0].shape == (n, d), "a tree has other rows")
    _check_metric_parameters(model, d)


def _check_local_outliers(model: Any) -> None:
    if not _is_fitted(model):
        return
    k = getattr(model, "n_neighbors_", None)
    n = model.n_samples_fit_
    require(isinstance(k, int | np.integer) and 1 <= k <= n, "there are not as many neighbours")
    _array(model, "_lrd", n)
    _array(model, "_distances_fit_X_", n, k)


def _check_density(model: Any) -> None:
    if not _is_fitted(model):
        return
    tree = model.tree_
    require(type(tree).__name__.startswith(("KDTree", "BallTree")), "a tree is missing")
    require(tree.__getstate__()[0].shape[1] == _columns(model), "a tree has other rows")
    require(isinstance(model.bandwidth_, int | float | np.floating), "the bandwidth is no number")


def _check_metric_parameters(model: Any, d: int) -> None:
    """Check arrays that go to a distance beside the rows; SciPy does not look at their shape."""
    for name in ("metric_params", "effective_metric_params_"):
        for key, value in (getattr(model, name, None) or {}).items():
            dimensions = {"VI": 2, "V": 1, "w": 1, "p": 0}.get(key)
            fits = dimensions is not None and np.shape(value) == (d,) * dimensions
            require(value is None or fits, f"{key} of a distance does not fit the rows")


def _check_covariance(model: Any) -> None:
    if not _is_fitted(model):
        return
    d = _columns(model)
    _array(model, "location_", d)
    for name in ("covariance_", "precision_"):
        if getattr(model, name, None) is not None:
            _array(model, name, d, d)


def _check_components(model: Any) -> None:
    """Check PCA and its kin, which multiply what they have by itself."""
    if not _is_fitted(model):
        return
    d = _columns(model)
    count = len(_array(model, "components_", None, d))
    require(count <= d, "there are more components than columns")
    _array(model, "mean_", d)
    if hasattr(model, "explained_variance_"):
        _array(model, "explained_variance_", count)
    noise = np.shape(model.noise_variance_)
    require(noise in ((), (d,)), "the noise does not fit the columns")


def _check_one_hot(encoder: Any) -> None:
    """Check what the columns of ones are counted by: the matrix is made without a look at them."""
    categories = getattr(encoder, "categories_", None)
    if categories is None:
        return
    d = _columns(encoder)
    require(isinstance(categories, list) and len(categories) == d, "a column has no categories")
    sizes = [_count_categories(values) for values in categories]
    if encoder._infrequent_enabled:
        groups = encoder._default_to_infrequent_mappings
        require(isinstance(groups, list) and len(groups) == d, "rare categories do not fit")
        for k, group in enumerate(groups):
            if group is not None:
                whole = np.asarray(group)
                fits = whole.shape == (sizes[k],) and whole.dtype.kind == "i" and whole.size
                require(fits and within(whole, 0, sizes[k]), "rare categories do not fit")
                sizes[k] = int(whole.max()) + 1
    dropped = encoder._drop_idx_after_grouping
    if dropped is not None:
        require(np.shape(dropped) == (d,), "the categories to drop do not fit")
        for k, place in enumerate(dropped):
            if place is not None:
                exists = isinstance(place, int | np.integer) and 0 <= place < sizes[k]
                require(exists, "a category to drop does not exist")
                sizes[k] -= 1
    require(encoder._n_features_outs == sizes, "another number of columns comes out")


def _count_categories(values: Any) -> int:
    require(isinstance(values, np.ndarray) and values.ndim == 1, "categories are no array")
    if values.dtype.kind in "biuf":  # looked up by bisection; a missing value comes last
        numbers = values[:-1] if len(values) and np.isnan(values[-1]) else values
        require(ascending(numbers, strictly=True), "categories are not in order")
    else:
        plain = all(isinstance(item, str | int | float | None) for item in values.tolist())
        require(values.dtype.kind in "OU" and plain, "a category is neither word nor number")
    return len(values)


def _check_histograms(model: Any) -> None:
    """Check HBOS of PyOD, whose code numba compiles; it reads one array as far as another goes."""
    if not hasattr(model, "hist_") or model.n_bins == "auto":
        return
    bins = model.n_bins
    require(isinstance(bins, int | np.integer) and bins >= 2, f"n_bins is {bins!r}")
    width = _array(model, "hist_", int(bins), None).shape[1]
    _array(model, "bin_edges_", int(bins) + 1, width)


def _check_discrepancy(model: Any) -> None:
    """Check QMCD of PyOD."""
    if hasattr(model, "_fitted_data"):
        _array(model, "_fitted_data", None, None)


def _check_polynomial(model: Any) -> None:
    if not _is_fitted(model):
        return
    low, high, d = model._min_degree, model._max_degree, _columns(model)
    degrees = all(isinstance(k, int | np.integer) for k in (low, high))
    require(degrees and 0 <= low <= high <= MOST_DEGREE, "a degree is too large")
    columns = type(model)._num_combinations(
        d, low, high, bool(model.interaction_only), bool(model.include_bias)
    )
    require(columns <= MOST_COLUMNS, f"{columns:,} products of columns are too many")
    require(model.n_output_features_ == columns, "another number of columns comes out")


CHECKS: Mapping[str, Callable[[Any], None]] = {
    "sklearn.svm._base.BaseLibSVM": _check_libsvm,
    "sklearn.svm._classes.OneClassSVM": _check_one_class,
    "sklearn.tree._tree.Tree": _check_tree,
    "sklearn.tree._classes.BaseDecisionTree": _check_decision_tree,
    "sklearn.ensemble._iforest.IsolationForest": _check_isolation_forest,
    "sklearn.neighbors._base.NeighborsBase": _check_neighbours,
    "sklearn.neighbors._lof.LocalOutlierFactor": _check_local_outliers,
    "sklearn.neighbors._kde.KernelDensity": _check_density,
    "sklearn.neighbors._kd_tree.BinaryTree64": _check_binary_tree,
    "sklearn.neighbors._kd_tree.BinaryTree32": _check_binary_tree,
    "sklearn.neighbors._ball_tree.BinaryTree64": _check_binary_tree,
    "sklearn.neighbors._ball_tree.BinaryTree32": _check_binary_tree,
    "sklearn.metrics._dist_metrics.DistanceMetric": _check_metric,
    "sklearn.covariance._empirical_covariance.EmpiricalCovariance": _check_covariance,
    "sklearn.decomposition._base._BasePCA": _check_components,
    "sklearn.decomposition._factor_analysis.FactorAnalysis": _check_components,
    "sklearn.preprocessing._encoders.OneHotEncoder": _check_one_hot,
    "sklearn.preprocessing._polynomial.PolynomialFeatures": _check_polynomial,
    "pyod.models.hbos.HBOS": _check_histograms,
    "pyod.models.qmcd.QMCD": _check_discrepancy,
}

# Of detectors that do not look at the width of rows: an array that has it.
WIDTHS = {"pyod.models.hbos.HBOS": "hist_", "pyod.models.qmcd.QMCD": "_fitted_data"}
