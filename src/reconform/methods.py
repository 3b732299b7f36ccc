"""Methods only plan: which rows train model k, which are held out, how scores are compared.

A method is a small value with scikit-learn's parameter contract. It never fits and never holds
data. `plan` is pure: the same arguments give the same `Plan`, and the method is left untouched.

Splits, folds and bootstrap samples are cut out of a shuffle of the rows. The estimator hands one
in that goes by the contents of the rows (`content.by_content`), so that their order does not
matter; exchanging one row for another then moves at most one row across each cut. Without one,
positions are shuffled.
"""

from __future__ import annotations

import copy
import math
import numbers
import warnings
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from .arrays import IndexArray
from .content import Shuffle, by_position
from .errors import ReconformError, check_count, check_probability, unknown_choice
from .plan import VARIANTS, Complements, Plan, Singletons
from .randomness import root_seed
from .statistics.aggregation import Aggregate, check_aggregate


def _check_variant(variant: str) -> None:
    if variant not in VARIANTS:
        raise unknown_choice("variant", variant, VARIANTS)


class Method(BaseEstimator, ABC):
    """What every method has in common: `plan`.

    Attributes
    ----------
    shuffles : bool
        Whether `plan` draws rows, and takes the argument `shuffle`. What draws nothing, or what a
        user wrote down, is taken literally.
    """

    shuffles = False

    @property
    def uses_groups(self) -> bool:
        """Whether `plan` keeps blocks of rows together; `fit` refuses `blocks` otherwise."""
        return False

    @abstractmethod
    def plan(
        self, n: int, *, groups: npt.ArrayLike | None = None, random_state: object = None
    ) -> Plan:
        """Plan the models for `n` rows.

        Parameters
        ----------
        n : int
            Rows of D.
        groups : array-like of shape (n,), optional
            Labels of rows: a split calibrates with the same share of every group, and a splitter
            that keeps rows together is handed them.
        random_state : int, SeedSequence or None
            Source of the plan's own draws.

        A method that draws rows (`shuffles`) also takes ``shuffle``, a function from a seed to an
        order of the rows; by default positions are shuffled.

        Returns
        -------
        Plan
        """


class Split(Method):
    """Split-conformal: one part of the rows trains, the other calibrates.

    The only method besides `Prefit` and full-conformal whose p-values have an exact finite-sample
    guarantee; paid for with a coarser grid of p-values.

    Parameters
    ----------
    calibration : float, int or None, default=0.5
        Share (float) or number (int) of rows for calibration. A share is rounded up. None: all but
        2,000, or half of the rows if that is more.
    repeats : int, default=1
        Number of independent splits. With more than one, p-values are twice the median over the
        splits, which is valid and coarser; ``discover(procedure="ebh")`` averages e-values
        instead, and depends less on the luck of one split.

    Examples
    --------
    >>> plan = Split(calibration=0.4).plan(10, random_state=0)
    >>> len(plan.train[0]), len(plan.held_out[0])
    (6, 4)
    >>> Split(repeats=20).plan(10).n_models
    20
    """

    shuffles = True

    def __init__(self, calibration: float | int | None = 0.5, repeats: int = 1) -> None:
        self.calibration = calibration
        self.repeats = repeats

    def plan(
        self,
        n: int,
        *,
        groups: npt.ArrayLike | None = None,
        random_state: object = None,
        shuffle: Shuffle | None = None,
    ) -> Plan:
        """Draw the calibration rows without replacement, anew for every repeat.

        With `groups`, the same share of every group calibrates, rounded up.
        """
        repeats = check_count("repeats", self.repeats, least=1)
        if self.calibration is None:
            held = max(n - MOST_TRAINING, -(-n // 2))
        elif isinstance(self.calibration, numbers.Integral):
            held = check_count("calibration", self.calibration, least=1)
        else:
            held = math.ceil(n * check_probability("calibration", self.calibration))
        if held >= n:
            raise ReconformError(
                f"`calibration={self.calibration!r}` takes {held} of {n} rows and leaves none for "
                "training; ask for fewer calibration rows or give more data."
            )
        shuffle = by_position(n) if shuffle is None else shuffle
        shuffled = [shuffle(seed) for seed in root_seed(random_state).spawn(repeats)]
        if groups is not None:
            cuts = [_cut_by_group(rows, np.asarray(groups), held) for rows in shuffled]
        else:
            cuts = [(rows[held:], rows[:held]) for rows in shuffled]
        if any(not len(train) for train, _ in cuts):
            raise ReconformError(
                f"`calibration={self.calibration!r}` takes all rows of every group and leaves none "
                "for training; ask for fewer calibration rows or give more data."
            )
        return Plan(
            n,
            tuple(np.sort(train) for train, _ in cuts),
            tuple(np.sort(calibration) for _, calibration in cuts),
            scheme="split",
            full=False,
        )


def _cut_by_group(
    shuffled: IndexArray, groups: IndexArray, held: int
) -> tuple[IndexArray, IndexArray]:
    """Cut shuffled rows into training and calibration rows, in the same proportion everywhere.

    Examples
    --------
    >>> _cut_by_group(np.array([3, 0, 2, 1, 4]), np.array([0, 0, 0, 1, 1]), 3)
    (array([1]), array([0, 2, 3, 4]))
    """
    calibrates = np.zeros(len(shuffled), dtype=bool)
    for group in np.unique(groups):
        theirs = shuffled[groups[shuffled] == group]
        calibrates[theirs[: -(-len(theirs) * held // len(shuffled))]] = True
    return np.flatnonzero(~calibrates), np.flatnonzero(calibrates)


class Learned(Split):
    """AdaDetect: a classifier learns what tells the new rows from the reference.

    One part of the reference trains, the other calibrates. The classifier learns the training rows
    (label 0) against calibration and new rows together (label 1), and its scores of these are
    ranked. Strong where rows are many; with fewer than a few hundred it finds little. All that is
    proven of a split is proven here.

    Parameters
    ----------
    classifier : scikit-learn classifier, optional
        With ``predict_proba`` or ``decision_function``; by default a random forest of 100 trees
        that are at most 10 deep.
    calibration : float or int, default=0.5
        Share or number of the reference rows that calibrate, as in `Split`.
    repeats : int, default=1
        Number of independent partitions of the reference, as in `Split`: ``procedure="ebh"``
        averages their e-values.
    folds : int, default=5
        The union of calibration and new rows is cut into folds, and every row is scored by a
        classifier that has not seen its fold. With 1, as in the paper, there is one classifier,
        which scores the rows that it has learned.
    most_rows : int, default=20000
        The classifier learns from no more rows of either label; of more, a part is drawn, from the
        union as a whole.

    References
    ----------
    A. Marandon, L. Lei, D. Mary, E. Roquain, "Adaptive novelty detection with false discovery rate
    guarantee", Annals of Statistics 52 (2024).

    Examples
    --------
    >>> plan = Learned(calibration=0.4).plan(10, random_state=0)
    >>> plan.scheme, len(plan.train[0]), len(plan.held_out[0])
    ('learned', 6, 4)
    """

    def __init__(
        self,
        classifier: Any = None,
        calibration: float | int = 0.5,
        repeats: int = 1,
        folds: int = 5,
        most_rows: int = 20_000,
    ) -> None:
        super().__init__(calibration, repeats)
        self.classifier = classifier
        self.folds = folds
        self.most_rows = most_rows

    def plan(
        self,
        n: int,
        *,
        groups: npt.ArrayLike | None = None,
        random_state: object = None,
        shuffle: Shuffle | None = None,
    ) -> Plan:
        """Draw the calibration rows as `Split` does; the others have label 0."""
        check_count("folds", self.folds, least=1)
        check_count("most_rows", self.most_rows, least=2)
        split = super().plan(n, groups=groups, random_state=random_state, shuffle=shuffle)
        return replace(split, scheme="learned")


class Prefit(Method):
    """Calibrate a model that was fitted elsewhere; every row given to `fit` calibrates.

    Exact like `Split`, provided the model never saw the calibration rows.

    Examples
    --------
    >>> plan = Prefit().plan(3)
    >>> plan.train[0], plan.held_out[0]
    (array([], dtype=int64), array([0, 1, 2]))
    """

    def plan(
        self, n: int, *, groups: npt.ArrayLike | None = None, random_state: object = None
    ) -> Plan:
        """Hold out every row from the one model there is."""
        nothing = np.empty(0, dtype=np.intp)
        return Plan(n, (nothing,), (np.arange(n),), scheme="prefit", full=False)


class Full(Method):
    """Full-conformal (transductive): for every new row, A is fitted on D and that row together.

    All rows train and all calibrate, and P(p <= α) <= α holds exactly given the seed, because every
    detector is made to treat its rows symmetrically. With the native detectors this costs little
    more than one fit; any other detector is fitted once per new row.

    Examples
    --------
    >>> Full().plan(3).n_models
    0
    """

    def plan(
        self, n: int, *, groups: npt.ArrayLike | None = None, random_state: object = None
    ) -> Plan:
        """Plan no models: there is one per new row."""
        return Plan(n, (), (), scheme="full", full=True)


class Batch(Method):
    """One fit of A on the reference and the whole batch; new rows are ranked by its own scores.

    All n rows calibrate, there is one fit whatever the detector, and all that is proven of a split
    is proven here, the false discovery rate of Benjamini-Hochberg among it. Detectors that rank a
    batch against itself (ECOD, COPOD) are as good as any. Nothing is known of a row before the
    whole batch is there, and anomalies that resemble each other may hide each other.

    Examples
    --------
    >>> Batch().plan(3).n_models
    0
    """

    def plan(
        self, n: int, *, groups: npt.ArrayLike | None = None, random_state: object = None
    ) -> Plan:
        """Plan no models: there is one per batch."""
        return Plan(n, (), (), scheme="batch", full=True)


class Jackknife(Method):
    """Leave-one-out: model i is fitted without row i (J_AD, J+_AD).

    Parameters
    ----------
    variant : {"plus", "basic", "pooled"}, default="plus"
        ``"plus"`` compares c_i with the test score of the same model (J+_AD), ``"basic"`` with
        that of one model fitted on all rows (J_AD), ``"pooled"`` with the median over all models.

    Examples
    --------
    >>> plan = Jackknife().plan(4)
    >>> plan.train[1], plan.held_out[1]
    (array([0, 2, 3]), array([1]))
    """

    def __init__(self, variant: str = "plus") -> None:
        self.variant = variant

    def plan(
        self, n: int, *, groups: npt.ArrayLike | None = None, random_state: object = None
    ) -> Plan:
        """Leave every row out once; nothing is drawn."""
        _check_variant(self.variant)
        held_out = Singletons(n)
        return Plan(n, Complements(n, held_out), held_out, scheme="jackknife", variant=self.variant)


class CrossValidation(Method):
    """K-fold: model k is fitted without fold k (CV_AD, CV+_AD).

    Parameters
    ----------
    folds : int, default=10
        Number of folds; their sizes differ by at most one row.
    variant : {"plus", "basic", "pooled"}, default="plus"
        As in `Jackknife`.

    Examples
    --------
    >>> plan = CrossValidation(folds=3).plan(8, random_state=0)
    >>> [len(held) for held in plan.held_out]
    [3, 3, 2]
    """

    shuffles = True

    def __init__(self, folds: int = 10, variant: str = "plus") -> None:
        self.folds = folds
        self.variant = variant

    def plan(
        self,
        n: int,
        *,
        groups: npt.ArrayLike | None = None,
        random_state: object = None,
        shuffle: Shuffle | None = None,
    ) -> Plan:
        """Shuffle the rows and cut them into folds."""
        _check_variant(self.variant)
        folds = check_count("folds", self.folds, least=2)
        if folds > n:
            raise ReconformError(
                f"`folds={folds}` needs at least {folds} rows; got {n}. "
                "Use fewer folds, or `method='jackknife+'`."
            )
        shuffle = by_position(n) if shuffle is None else shuffle
        order = shuffle(root_seed(random_state))
        held_out = tuple(np.sort(fold) for fold in np.array_split(order, folds))
        return Plan(n, Complements(n, held_out), held_out, scheme="cv", variant=self.variant)


class Bootstrap(Method):
    """Models on bootstrap samples, calibrated out of bag (JaB_AD, J+aB_AD).

    Parameters
    ----------
    draws : int, default=100
        Number of bootstrap samples of size n.
    aggregate : {"median", "mean", "min", "max"}, float or callable, default="median"
        φ, applied to the conformity scores (small = anomalous) of the models that held a row out. A
        float is a quantile. A callable has an ``axis`` parameter like NumPy's reductions, or takes
        the scores of one row and returns a number.
    variant : {"plus", "basic", "pooled"}, default="plus"
        As in `Jackknife`; ``"pooled"`` takes φ over all draws.

    Examples
    --------
    >>> plan = Bootstrap(draws=5).plan(8, random_state=0)
    >>> [len(train) for train in plan.train]
    [8, 8, 8, 8, 8]
    """

    shuffles = True

    def __init__(
        self, draws: int = 100, aggregate: Aggregate = "median", variant: str = "plus"
    ) -> None:
        self.draws = draws
        self.aggregate = aggregate
        self.variant = variant

    def plan(
        self,
        n: int,
        *,
        groups: npt.ArrayLike | None = None,
        random_state: object = None,
        shuffle: Shuffle | None = None,
    ) -> Plan:
        """Draw every T_k with replacement."""
        _check_variant(self.variant)
        check_aggregate(self.aggregate)
        draws = check_count("draws", self.draws, least=1)
        shuffle = by_position(n) if shuffle is None else shuffle
        shuffle_seed, draw_seed = root_seed(random_state).spawn(2)
        order, rng = shuffle(shuffle_seed), np.random.default_rng(draw_seed)
        train = tuple(
            np.sort(order[rng.integers(0, n, size=n)]).astype(np.intp) for _ in range(draws)
        )
        held_out = tuple(Complements(n, train))
        return Plan(
            n, train, held_out, scheme="jab", variant=self.variant, aggregate=self.aggregate
        )


class Resampling(Method):
    """Algorithm 1 in full generality: any training sets T_k.

    Parameters
    ----------
    splitter : scikit-learn splitter or list of int arrays
        A splitter (`RepeatedKFold`, `ShuffleSplit`, `GroupKFold`, ...) whose training sets are
        taken, or the training indices of every model, literally; repeats allowed. As in
        Algorithm 1, everything that does not train model k is held out by it.
    aggregate : {"median", "mean", "min", "max"}, float or callable, default="median"
        φ, as in `Bootstrap`.
    variant : {"plus", "basic", "pooled"}, default="plus"
        As in `Jackknife`.

    Examples
    --------
    >>> plan = Resampling([[0, 1, 1], [2, 3]]).plan(4)
    >>> plan.held_out[0], plan.held_out[1]
    (array([2, 3]), array([0, 1]))
    """

    @property
    def uses_groups(self) -> bool:
        """Whether there is a splitter, which may keep groups together."""
        return hasattr(self.splitter, "split")

    def __init__(
        self, splitter: Any, aggregate: Aggregate = "median", variant: str = "plus"
    ) -> None:
        self.splitter = splitter
        self.aggregate = aggregate
        self.variant = variant

    def plan(
        self, n: int, *, groups: npt.ArrayLike | None = None, random_state: object = None
    ) -> Plan:
        """Take the training sets from the splitter, or as they are given."""
        _check_variant(self.variant)
        check_aggregate(self.aggregate)
        if hasattr(self.splitter, "split"):
            sets = self._from_splitter(n, groups, root_seed(random_state))
        else:
            sets = self.splitter
        train = tuple(self._check_set(k, rows, n) for k, rows in enumerate(sets))
        if not train:
            raise ReconformError("splitter must give at least one training set; got none.")
        held_out = tuple(Complements(n, train))
        if not any(len(held) for held in held_out):
            raise ReconformError(
                "every model trains on all rows, so no row is held out and nothing can be "
                "calibrated; leave some rows out of some training sets."
            )
        return Plan(n, train, held_out, variant=self.variant, aggregate=self.aggregate)

    def _from_splitter(
        self, n: int, groups: npt.ArrayLike | None, seed: np.random.SeedSequence
    ) -> list[IndexArray]:
        # A copy, so that neither the seed we set nor a generator that the user put in is spent.
        splitter = copy.deepcopy(self.splitter)
        if getattr(splitter, "random_state", 0) is None:
            splitter.random_state = int(seed.generate_state(1)[0])
        try:
            with warnings.catch_warnings():  # what scikit-learn ignores with a warning is an error
                warnings.filterwarnings("error", "The groups parameter is ignored")
                return [train for train, _ in splitter.split(np.empty((n, 1)), None, groups)]
        except UserWarning:
            raise ReconformError(
                f"splitter {self.splitter!r} does not look at blocks, and rows of one block would "
                "be torn apart; leave `blocks` out, or use a splitter that keeps them together, "
                "such as GroupKFold(10)."
            ) from None
        except (TypeError, ValueError) as error:
            hint = " Pass fit(X, blocks=...)." if groups is None and "groups" in str(error) else ""
            raise ReconformError(
                f"splitter {self.splitter!r} could not split {n} rows: {error}{hint}"
            ) from error

    @staticmethod
    def _check_set(k: int, rows: npt.ArrayLike, n: int) -> IndexArray:
        indices = np.asarray(rows)
        if indices.ndim != 1 or not len(indices) or not np.issubdtype(indices.dtype, np.integer):
            raise ReconformError(
                f"training set {k} must be a non-empty one-dimensional array of row indices; "
                f"got an array of shape {indices.shape} and type {indices.dtype}."
            )
        if indices.min() < 0 or indices.max() >= n:
            raise ReconformError(
                f"training set {k} has row indices from {indices.min()} to {indices.max()}, but "
                f"the data has rows 0 to {n - 1}."
            )
        return indices.astype(np.intp)


# A choice of detectors takes less than a minute for so many pairs of rows.
MOST_PAIRS = 1 << 24
# From so many reference rows on, full is not prepared for: a part of them calibrates as well.
MOST_REFERENCE = 15_000
# More rows for training make models slower and hardly better.
MOST_TRAINING = 2_000


class BySize(Method):
    """Full where it is cheap, split where rows are many: decided by the numbers of rows alone.

    For detectors that have to be fitted again for every new row, cv+ takes the place of full, or
    split where a detector is chosen among several, which cv+ cannot do.

    Examples
    --------
    >>> BySize().method_for(1_000), BySize().method_for(1_000, 100_000)
    (Full(), Split(calibration=None))
    >>> BySize().method_for(1_000_000).plan(1_000_000).held_out[0].size
    998000
    >>> BySize().method_for(1_000, refits=True)
    CrossValidation()
    """

    shuffles = True

    def method_for(
        self, n: int, m: int | None = None, *, refits: bool = False, uses_batch: bool = False
    ) -> Method:
        """Decide.

        Parameters
        ----------
        n : int
            Reference rows.
        m : int, optional
            New rows, where these are known.
        refits : bool
            Whether the detector is fitted again for every new row by full.
        uses_batch : bool
            Whether it judges a new row with the help of the others, as a choice of detectors does.
        """
        if n <= MOST_REFERENCE and (m is None or m <= self.most_rows(n)):
            if not refits or n < 10:
                return Full()
            return Split() if uses_batch else CrossValidation()
        return Split(None)

    def most_rows(self, n: int) -> int:
        """The largest batch for full with n reference rows: m (n + m) pairs are not too many."""
        return int((math.isqrt(n * n + 4 * MOST_PAIRS) - n) // 2)

    def plan(
        self,
        n: int,
        *,
        groups: npt.ArrayLike | None = None,
        random_state: object = None,
        shuffle: Shuffle | None = None,
    ) -> Plan:
        """Plan for n rows, before any new row is known."""
        chosen = self.method_for(n)
        draws: dict[str, Any] = {"shuffle": shuffle} if chosen.shuffles else {}
        return chosen.plan(n, groups=groups, random_state=random_state, **draws)


_NAMED: dict[str, tuple[type[Method], dict[str, Any]]] = {
    "auto": (BySize, {}),
    "split": (Split, {}),
    "jackknife": (Jackknife, {"variant": "basic"}),
    "jackknife+": (Jackknife, {}),
    "cv": (CrossValidation, {"variant": "basic"}),
    "cv+": (CrossValidation, {}),
    "jab": (Bootstrap, {"variant": "basic"}),
    "jab+": (Bootstrap, {}),
    "full": (Full, {}),
    "batch": (Batch, {}),
    "learned": (Learned, {}),
    "prefit": (Prefit, {}),
}


def resolve_method(method: str | Method) -> Method:
    """Turn a name such as ``"jab+"`` into its method; pass methods through.

    Examples
    --------
    >>> resolve_method("cv")
    CrossValidation(variant='basic')
    """
    if isinstance(method, str):
        if method not in _NAMED:
            raise unknown_choice("method", method, _NAMED)
        kind, parameters = _NAMED[method]
        return kind(**parameters)
    if not isinstance(method, Method):
        raise ReconformError(
            "method must be a name such as 'jab+' or a method such as Bootstrap(draws=50); "
            f"got {method!r}."
        )
    return method


# What methods are called in model files, and in the stores and seeds of studies. These names never
# change, whatever happens to the classes.
RECORDED_AS: dict[type[Method], str] = {
    Batch: "Batch",
    Bootstrap: "Bootstrap",
    BySize: "BySize",
    CrossValidation: "CrossValidation",
    Full: "Full",
    Jackknife: "Jackknife",
    Learned: "Learned",
    Prefit: "Prefit",
    Resampling: "Resampling",
    Split: "Split",
}


def named(method: Method) -> tuple[str, dict[str, Any]] | None:
    """Name a method, and say what differs from what the name alone stands for.

    Examples
    --------
    >>> named(CrossValidation(folds=5)), named(Bootstrap(variant="basic"))
    (('cv+', {'folds': 5}), ('jab', {}))
    >>> named(CrossValidation(variant="pooled")) is None
    True
    """
    for name in _NAMED:
        usual = resolve_method(name)
        if type(usual) is type(method):
            plain = usual.get_params(deep=False)
            given = method.get_params(deep=False)
            changed = {key: value for key, value in given.items() if value != plain[key]}
            if "variant" not in changed:
                return name, changed
    return None
