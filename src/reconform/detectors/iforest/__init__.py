"""Isolation forest: a row is unusual if random splits separate it from the others quickly."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...arrays import FloatArray
from ...ensemble import Ensemble
from ...errors import ReconformError, check_count
from ...methods import Plan
from ...records import (
    INT,
    JOBS,
    ROWS,
    SUMS,
    Array,
    DetectorRecord,
    Maybe,
    Record,
    Scalar,
    Spec,
    ascending,
    check_entries,
    check_kept,
    check_reference,
    expected_entries,
    increasing,
    require,
    within,
)
from ..base import NativeDetector, rows_drawn, wants_sharing
from .ensembles import (
    EnteredForest,
    LeaveOneOutForests,
    Variants,
    fit_full_forest,
    fit_leave_one_out,
)
from .model import UNITS, FittedForest, Forest, Recipe, TreeDraws, fit_forest

AUTO_SAMPLES = 256


class IForest(NativeDetector):
    """Isolation forest with PyOD's parameters and scikit-learn's law.

    Parameters
    ----------
    n_estimators : int, default=100
        Trees.
    max_samples : "auto", int or float, default="auto"
        Rows drawn for a tree: min(256, n), so many but at most n, or this share of n.
    contamination : float, default=0.1
        Share of the training rows that `predict` calls outliers.
    max_features : int or float, default=1.0
        Features drawn without replacement for a tree: so many, or this share of them.
    bootstrap : bool, default=False
        Draw rows with replacement.
    n_jobs : int or None, default=None
        Threads, as joblib counts them: None is 1, unless a ``parallel_config`` says otherwise.
        Inside a `ConformalDetector` its own `n_jobs` counts, if it has one.
    random_state : int, SeedSequence, RandomState, Generator or None, default=None
        Same seed, same forest, whatever `n_jobs` is.
    share : bool or "auto", default="auto"
        Whether leave-one-out models have one seed, and so share their trees: only those trees that
        took row i are grown again for the model without it. n models cost as much as 257, whatever
        n is. They depend on each other more than models with seeds of their own, so p-values vary
        more from seed to seed. "auto" shares from 1,001 rows on.

    Attributes
    ----------
    forest_ : Forest
        The trees, in flat arrays.
    max_samples_ : int
        Rows drawn for a tree.
    offset_ : float
        `score_samples` below it is an outlier.
    n_features_in_ : int
    feature_names_in_ : array of str

    See Also
    --------
    sklearn.ensemble.IsolationForest : the same law; other random numbers.

    Notes
    -----
    Scores are -2 ** (-E[path length] / c(psi)), as in scikit-learn: in [-1, 0], small = anomalous.
    A forest is a function of its seed and of the multiset of its rows: their order does not matter.
    Models of a plan equal ``IForest(random_state=seeds[k]).fit(X[plan.train[k]])`` bit for bit,
    A(D) the one with the last seed on all rows; models that share their trees all have the last
    seed. A full plan has a forest per new row x, the one with the last seed on X and x.

    Data stay in double precision, and any two different values can be split; scikit-learn rounds
    to single precision and takes a range below 1e-7 for constant.

    References
    ----------
    F. T. Liu, K. M. Ting, Z.-H. Zhou: Isolation forest. ICDM 2008.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform.detectors.iforest import IForest
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> forest = IForest(random_state=0).fit(X)
    >>> forest.predict([[0.0, 0.0], [5.0, 5.0]])
    array([ 1, -1])
    """

    forest_: Forest
    in_threads = True

    def __init__(
        self,
        n_estimators: int = 100,
        max_samples: str | int | float = "auto",
        contamination: float = 0.1,
        max_features: int | float = 1.0,
        bootstrap: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        share: bool | str = "auto",
    ) -> None:
        self.n_estimators = n_estimators
        self.max_samples = max_samples
        self.contamination = contamination
        self.max_features = max_features
        self.bootstrap = bootstrap
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.share = share

    def recipe(self, n_rows: int, n_columns: int) -> Recipe:
        """Work out the size of a forest for training data of this shape.

        Parameters
        ----------
        n_rows, n_columns : int

        Returns
        -------
        Recipe

        Examples
        --------
        >>> IForest().recipe(1000, 5)
        Recipe(n_trees=100, psi=256, n_features=5, replace=False)
        """
        psi = rows_drawn(self.max_samples, n_rows, auto=AUTO_SAMPLES)
        given: Any = self.max_features
        whole = isinstance(given, numbers.Integral)
        if whole and not isinstance(given, bool) and int(given) >= 1:
            n_features = int(given)
        elif not whole and isinstance(given, numbers.Real) and 0 < float(given) <= 1:
            n_features = max(1, int(float(given) * n_columns))  # as scikit-learn rounds
        else:
            raise ReconformError(
                f"max_features must be a positive integer or a share in (0, 1]; got {given!r}."
            )
        if n_features > n_columns:
            raise ReconformError(
                f"max_features={self.max_features!r} asks for more features than the {n_columns} "
                "that X has; ask for fewer, or for a share such as 1.0."
            )
        n_trees = check_count("n_estimators", self.n_estimators, least=1)
        return Recipe(n_trees, psi, n_features, bool(self.bootstrap))

    def _fit_rows(self, X: FloatArray, seed: np.random.SeedSequence) -> None:
        wants_sharing(self.share, len(X))  # only to refuse what is neither
        recipe = self.recipe(*X.shape)
        self.forest_ = fit_forest(X, None, recipe, seed, n_jobs=self.n_jobs)
        self.max_samples_ = recipe.psi

    def _score_rows(self, X: FloatArray) -> FloatArray:
        return self.forest_.scores(X, n_jobs=self.n_jobs)

    def fit_model(self, X: FloatArray, seed: np.random.SeedSequence) -> FittedForest:
        """Fit one forest of a plan."""
        forest = fit_forest(X, None, self.recipe(*X.shape), seed, n_jobs=self.n_jobs)
        return FittedForest(forest, self.n_jobs)

    def _fit_together(
        self, X: FloatArray, plan: Plan, seeds: Sequence[np.random.SeedSequence], verbose: int
    ) -> Ensemble | None:
        n, d = X.shape
        shares = wants_sharing(self.share, n)
        if plan.row.augments:
            return fit_full_forest(X, self.recipe(n + 1, d), seeds[-1], n_jobs=self.n_jobs)
        if shares and plan.leaves_one_out:
            recipe_for = partial(self.recipe, n_columns=d)
            return fit_leave_one_out(X, plan, recipe_for, seeds[-1], n_jobs=self.n_jobs)
        return None


# Paths are shorter than this for any number of rows; sums of them must not overflow.
LONGEST = UNITS << 7


def _check_forest(forest: Forest, d: int) -> None:
    width = 1 << (max(forest.psi, 2) - 1).bit_length()
    shapes = {forest.thresholds.shape, forest.features.shape, forest.lengths.shape}
    require(forest.psi >= 1 and shapes == {(len(forest), width)}, "trees have the wrong shape")
    require(within(forest.features, 0, d), "a tree splits a feature that does not exist")
    require(within(forest.lengths, 0, LONGEST), "a path is longer than any")


def check_grown(forest: Forest, d: int) -> None:
    """Refuse arrays that do not form a forest, and a forest without trees."""
    _check_forest(forest, d)
    require(len(forest), "a forest has no trees")


def _check_recipe(recipe: Recipe, d: int) -> None:
    require(recipe.n_trees >= 1 and recipe.psi >= 1, "a recipe has no trees or no rows")
    require(1 <= recipe.n_features <= d, "a recipe draws features that do not exist")


_HEAPS: Mapping[str, Spec] = {
    "psi": INT,
    "thresholds": Array("f8", ndim=2),
    "features": Array("u4", ndim=2),
    "lengths": Array("i8", ndim=2),
}
FOREST = Record("Forest", Forest, _HEAPS, check_grown)
SOME_TREES = Record("Forest", Forest, _HEAPS, _check_forest)  # there may be none
RECIPE = Record(
    "Recipe",
    Recipe,
    {"n_trees": INT, "psi": INT, "n_features": INT, "replace": Scalar(bool)},
    _check_recipe,
)
FITTED_FOREST = Record("FittedForest", FittedForest, {"forest": FOREST, "n_jobs": JOBS})


def _check_variants(some: Variants, d: int) -> None:
    require(len(some.indptr) == len(some.rows) + 1, "rows and their trees do not go together")
    require(increasing(some.indptr, len(some.trees)), "the trees of a row are not in order")
    require(ascending(some.rows, strictly=True), "the rows of variants are not in order")


TREE_DRAWS = Record(
    "TreeDraws",
    TreeDraws,
    {"keys": Array("u8", ndim=1), "features": Array("i4", ndim=2), "sizes": Array("i8", ndim=1)},
)
VARIANTS = Record(
    "Variants",
    Variants,
    dict.fromkeys(("rows", "indptr", "trees", "model"), Array("i8", ndim=1)),
    _check_variants,
)


def _check_leave_one_out_forests(ensemble: LeaveOneOutForests, d: int) -> None:
    n, some, base = ensemble.plan.n, ensemble.variants, ensemble.base
    require(ensemble.plan.leaves_one_out and len(ensemble.path_sums) == n, "a row has no model")
    check_kept(ensemble.regrown, ensemble.plan)
    require(ensemble.recipe.psi == base.psi, "trees draw another number of rows")
    sizes = {ensemble.recipe.n_trees, len(base), len(ensemble.full)}
    require(len(sizes) == 1, "the forest has another number of trees")
    require(within(some.rows, 0, n), "a row does not exist")
    require(len(some.model) == n and within(some.model, -1, len(some.rows)), "a row has no model")
    require(within(some.trees, 0, len(base)), "a tree that is replaced does not exist")
    if ensemble.regrown is not None:
        fits = len(ensemble.regrown) == len(some) and ensemble.regrown.psi == base.psi
        require(fits, "the trees that replace others are not those that should")


def _check_entered_forest(ensemble: EnteredForest, d: int) -> None:
    n, psi, draws = len(ensemble.totals), ensemble.recipe.psi, ensemble.draws
    trees = ensemble.recipe.n_trees
    check_reference(n, ensemble)
    require(ensemble.base.psi == psi <= n + 1, "trees draw more rows than there are")
    each = (ensemble.base, draws.keys, draws.sizes, ensemble.limits, ensemble.last)
    require(all(len(one) == trees for one in each), "a tree is missing")
    require(within(draws.sizes, 1, psi + 1), "a tree has too many rows")
    require(ensemble.samples.shape == (trees, min(psi, n)), "a tree has no rows")
    exist = within(ensemble.samples, 0, n) and within(ensemble.last, -1, n)
    require(exist, "a tree drew a row that does not exist")
    require(((ensemble.last < 0) == (draws.sizes > n)).all(), "a tree has no last row")
    require(len(draws.features) in (1, trees), "a tree has no features")
    require(within(draws.features, 0, d), "a tree splits a feature that does not exist")
    require(ensemble.reference.shape == (n, d), "the reference has another size")
    check_entries(_entered(ensemble), trees * psi, n)
    require(np.isfinite(ensemble.reference).all(), "a row is not finite")


def _entered(ensemble: EnteredForest) -> float:
    return expected_entries(ensemble.limits, ensemble.draws.sizes > len(ensemble.totals))


def _entered_cost(ensemble: EnteredForest) -> int:
    """A new row enters the trees in which its hash is small enough, and these are grown again."""
    n, psi = len(ensemble.totals), max(ensemble.recipe.psi, 1)
    return int(_entered(ensemble) * (8 * psi + 2 * n) * psi.bit_length())


IFOREST_RECORD = DetectorRecord(
    "IForest",
    {"max_samples_": INT, "forest_": FOREST},
    models=(FITTED_FOREST,),
    ensembles=(
        Record(
            "LeaveOneOutForests",
            LeaveOneOutForests,
            {
                "full": FOREST,
                "other_base": Maybe(FOREST),
                "recipe": RECIPE,
                "variants": VARIANTS,
                "regrown": Maybe(SOME_TREES),
                "path_sums": SUMS,
                "n_jobs": JOBS,
            },
            _check_leave_one_out_forests,
        ),
        Record(
            "EnteredForest",
            EnteredForest,
            {
                "recipe": RECIPE,
                "base": FOREST,
                "draws": TREE_DRAWS,
                "limits": Array("u8", ndim=1),
                "last": Array("i4", ndim=1),
                "reference": ROWS,
                "totals": SUMS,
                "samples": Array("i4", ndim=2),
                "n_jobs": JOBS,
            },
            _check_entered_forest,
            cost=_entered_cost,
        ),
    ),
)
