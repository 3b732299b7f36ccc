"""Methods only plan: which rows train model k, which are held out, how scores are compared.

A method is a small value with scikit-learn's parameter contract. It never fits and never holds
data. `plan` is pure: the same arguments give the same `Plan` (lines 1 to 4 of Algorithm 1 as a
value, which ensembles carry out), and the method is left untouched. What else the package asks
about a method stands in one row of one table, `METHODS`.

Splits, folds and bootstrap samples are cut out of a shuffle of the rows. The estimator hands one
in that goes by the contents of the rows (`content.canonical_order`), so that their order does not
matter; exchanging one row for another then moves at most one row across each cut. Without one,
positions are shuffled.
"""

from __future__ import annotations

import copy
import math
import numbers
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from .arrays import IndexArray, Int32Array, LazySequence
from .errors import ReconformError, check_count, check_probability, unknown_choice
from .randomness import root_seed
from .statistics.ranks import Aggregate, check_aggregate

Shuffle = Callable[[np.random.SeedSequence], IndexArray]

VARIANTS = ("basic", "plus", "pooled")


class Singletons(LazySequence[IndexArray]):
    """H_i = {i}: what the leave-one-out models hold out, of all rows or of some."""

    def __init__(self, n: int, rows: IndexArray | None = None) -> None:
        super().__init__(n if rows is None else len(rows))
        self.rows = np.arange(n) if rows is None else rows
        self.every = rows is None

    def _item(self, k: int) -> IndexArray:
        return self.rows[k : k + 1].astype(np.intp)


class Complements(LazySequence[IndexArray]):
    """The rows of [n] that a set leaves over, in increasing order."""

    def __init__(self, n: int, sets: Sequence[IndexArray]) -> None:
        super().__init__(len(sets))
        self._n, self._sets = n, sets

    def _item(self, k: int) -> IndexArray:
        left = np.ones(self._n, dtype=bool)
        left[self._sets[k]] = False
        return np.flatnonzero(left)


@dataclass(frozen=True, eq=False)
class Plan:
    """Lines 1-4 of Algorithm 1, written down: every T_k and H_k, φ and the comparison."""

    n: int  # rows of D
    train: Sequence[IndexArray] = field(repr=False)  # T_k; repeats allowed (a multiset)
    held_out: Sequence[IndexArray] = field(repr=False)  # H_k = [n] without the support of T_k
    scheme: str = "resampling"  # the name of a row of `METHODS`
    variant: str = "plus"  # which comparison is made
    aggregate: Aggregate = "median"  # φ

    @property
    def row(self) -> MethodRow:
        """What is known of the method that the plan comes from."""
        return METHODS[self.scheme]

    @property
    def full(self) -> bool:
        """Whether A(D), the model fitted on all rows, belongs to the plan."""
        return not (self.row.one_model or self.row.learns)

    @property
    def one_model(self) -> bool:
        """Whether there is one model, once, and calibration rows that it has not seen."""
        return self.row.one_model and self.n_models == 1

    @property
    def n_models(self) -> int:
        """K, the number of resampled models."""
        return len(self.train)

    @property
    def leaves_one_out(self) -> bool:
        """Whether model i is A(D without row i), for every i in order."""
        return isinstance(self.held_out, Singletons) and self.held_out.every

    @property
    def left_out(self) -> IndexArray | None:
        """The rows i, in increasing order, if the models are A(D without row i); otherwise None.

        All rows of a leave-one-out plan; some of them in a part of it.
        """
        return self.held_out.rows if isinstance(self.held_out, Singletons) else None

    def part(self, models: IndexArray) -> Plan:
        """Some of the models, in increasing order, as a plan of their own that keeps them."""
        kept = replace(self, variant="plus")
        if len(models) == self.n_models:
            return kept
        if self.left_out is not None:
            held_out = Singletons(self.n, self.left_out[models])
            return replace(kept, train=Complements(self.n, held_out), held_out=held_out)
        held = tuple(self.held_out[k] for k in models)
        if isinstance(self.train, Complements):
            return replace(kept, train=Complements(self.n, held), held_out=held)
        return replace(kept, train=tuple(self.train[k] for k in models), held_out=held)

    @property
    def repeats(self) -> tuple[Plan, ...]:
        """The splits of a repeated split, each a plan of its own; otherwise the plan itself."""
        if not self.row.repeated or self.n_models == 1:
            return (self,)
        return tuple(
            replace(self, train=(train,), held_out=(held,))
            for train, held in zip(self.train, self.held_out, strict=True)
        )

    def multiplicity(self, k: int) -> IndexArray:
        """How often each row of D is in T_k."""
        return np.bincount(self.train[k], minlength=self.n)

    @cached_property
    def membership(self) -> tuple[IndexArray, IndexArray, Int32Array]:
        """K_i for every row that some model held out: ``rows, indptr, models``.

        Row ``rows[j]`` was held out by ``models[indptr[j]:indptr[j + 1]]``, in increasing order.
        """
        if self.left_out is not None:
            every = np.arange(self.n_models + 1)
            return self.left_out, every, every[:-1].astype(np.int32)
        sizes = [len(held) for held in self.held_out]
        held_rows = np.concatenate([np.empty(0, np.intp), *self.held_out])
        held_by = np.repeat(np.arange(self.n_models, dtype=np.int32), sizes)
        order = np.argsort(held_rows, kind="stable")
        rows, counts = np.unique(held_rows, return_counts=True)
        return rows, np.concatenate([[0], np.cumsum(counts)]), held_by[order]


def _check_variant(variant: str) -> None:
    if variant not in VARIANTS:
        raise unknown_choice("variant", variant, VARIANTS)


class Method(BaseEstimator, ABC):
    """What every method has in common: `plan`."""

    @property
    def uses_groups(self) -> bool:
        """Whether `plan` keeps blocks of rows together; `fit` refuses `blocks` otherwise."""
        return False

    def plan(
        self,
        n: int,
        *,
        groups: npt.ArrayLike | None = None,
        random_state: object = None,
        shuffle: Shuffle | None = None,
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
        shuffle : callable, optional
            From a seed to an order of the rows, for methods that draw rows; by default positions
            are shuffled. What a user wrote down is taken literally.

        Returns
        -------
        Plan
        """
        shuffle = shuffle or (lambda seed: np.random.default_rng(seed).permutation(n))
        return self._plan(n, groups, root_seed(random_state), shuffle)

    @abstractmethod
    def _plan(self, n: int, groups: Any, seed: np.random.SeedSequence, shuffle: Shuffle) -> Plan:
        """`plan`, with a seed of its own."""


class Split(Method):
    """Split-conformal: one part of the rows trains, the other calibrates.

    The only method besides `Prefit` and full-conformal whose p-values have an exact finite-sample
    guarantee; paid for with a coarser grid of p-values.

    Parameters
    ----------
    calibration : float, int or None, default=0.5
        Share (float) or number (int) of rows for calibration. A share is rounded up. None: all but
        `training` rows, or half of the rows if that is more.
    repeats : int, default=1
        Number of independent splits. With more than one, p-values are twice the median over the
        splits, which is valid and coarser; ``discover(procedure="ebh")`` averages e-values
        instead, and depends less on the luck of one split.
    training : int, default=2000
        See `calibration`.

    Examples
    --------
    >>> plan = Split(calibration=0.4).plan(10, random_state=0)
    >>> len(plan.train[0]), len(plan.held_out[0])
    (6, 4)
    >>> Split(repeats=20).plan(10).n_models
    20
    """

    def __init__(
        self, calibration: float | int | None = 0.5, repeats: int = 1, training: int = 2_000
    ) -> None:
        self.calibration = calibration
        self.repeats = repeats
        self.training = training

    def _plan(self, n: int, groups: Any, seed: np.random.SeedSequence, shuffle: Shuffle) -> Plan:
        """Draw the calibration rows without replacement, anew for every repeat.

        With `groups`, the same share of every group calibrates, rounded up.
        """
        repeats = check_count("repeats", self.repeats, least=1)
        if self.calibration is None:
            held = max(n - check_count("training", self.training, least=1), -(-n // 2))
        elif isinstance(self.calibration, numbers.Integral):
            held = check_count("calibration", self.calibration, least=1)
        else:
            held = math.ceil(n * check_probability("calibration", self.calibration))
        if held >= n:
            raise ReconformError(
                f"`calibration={self.calibration!r}` takes {held} of {n} rows and leaves none for "
                "training; ask for fewer calibration rows or give more data."
            )
        shuffled = [shuffle(one) for one in seed.spawn(repeats)]
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

    def _plan(self, n: int, groups: Any, seed: np.random.SeedSequence, shuffle: Shuffle) -> Plan:
        """Draw the calibration rows as `Split` does; the others have label 0."""
        check_count("folds", self.folds, least=1)
        check_count("most_rows", self.most_rows, least=2)
        split = super()._plan(n, groups, seed, shuffle)
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

    def _plan(self, n: int, groups: Any, seed: np.random.SeedSequence, shuffle: Shuffle) -> Plan:
        """Hold out every row from the one model there is."""
        nothing = np.empty(0, dtype=np.intp)
        return Plan(n, (nothing,), (np.arange(n),), scheme="prefit")


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

    def _plan(self, n: int, groups: Any, seed: np.random.SeedSequence, shuffle: Shuffle) -> Plan:
        """Plan no models: there is one per new row."""
        return Plan(n, (), (), scheme="full")


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

    def _plan(self, n: int, groups: Any, seed: np.random.SeedSequence, shuffle: Shuffle) -> Plan:
        """Plan no models: there is one per batch."""
        return Plan(n, (), (), scheme="batch")


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

    def _plan(self, n: int, groups: Any, seed: np.random.SeedSequence, shuffle: Shuffle) -> Plan:
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

    def __init__(self, folds: int = 10, variant: str = "plus") -> None:
        self.folds = folds
        self.variant = variant

    def _plan(self, n: int, groups: Any, seed: np.random.SeedSequence, shuffle: Shuffle) -> Plan:
        """Shuffle the rows and cut them into folds."""
        _check_variant(self.variant)
        folds = check_count("folds", self.folds, least=2)
        if folds > n:
            raise ReconformError(
                f"`folds={folds}` needs at least {folds} rows; got {n}. "
                "Use fewer folds, or `method='jackknife+'`."
            )
        order = shuffle(seed)
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

    def __init__(
        self, draws: int = 100, aggregate: Aggregate = "median", variant: str = "plus"
    ) -> None:
        self.draws = draws
        self.aggregate = aggregate
        self.variant = variant

    def _plan(self, n: int, groups: Any, seed: np.random.SeedSequence, shuffle: Shuffle) -> Plan:
        """Draw every T_k with replacement."""
        _check_variant(self.variant)
        check_aggregate(self.aggregate)
        draws = check_count("draws", self.draws, least=1)
        shuffle_seed, draw_seed = seed.spawn(2)
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

    def _plan(self, n: int, groups: Any, seed: np.random.SeedSequence, shuffle: Shuffle) -> Plan:
        """Take the training sets from the splitter, or as they are given."""
        _check_variant(self.variant)
        check_aggregate(self.aggregate)
        if hasattr(self.splitter, "split"):
            sets = self._from_splitter(n, groups, seed)
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
                f"splitter {self.splitter!r} ignores blocks, and would separate rows of one block; "
                "leave `blocks` out, or use a splitter that keeps them together, "
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
# More rows for training make detectors slower and hardly better.
MOST_TRAINING = 2_000
# A classifier, and rows that a detector is chosen by, take so many.
MOST_LEARNING = 20_000
# With fewer reference rows, a classifier that learns the scores finds less than other methods.
ENOUGH_TO_LEARN = 1_000


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
        return Split(None, training=MOST_LEARNING if uses_batch else MOST_TRAINING)

    def most_rows(self, n: int) -> int:
        """The largest batch for full with n reference rows: m (n + m) pairs are not too many."""
        return int((math.isqrt(n * n + 4 * MOST_PAIRS) - n) // 2)

    def _plan(self, n: int, groups: Any, seed: np.random.SeedSequence, shuffle: Shuffle) -> Plan:
        """Plan for n rows, before any new row is known."""
        return self.method_for(n)._plan(n, groups, seed, shuffle)


@dataclass(frozen=True)
class MethodRow:
    """One row of the table of methods: all that the package asks about a plan, but its rows.

    To add a method, write a class with `plan`, whose plans carry the name of the row as their
    `scheme`; add the row to `METHODS`; and, if more or less is proven of it than of the methods
    there are, a row to `statistics.certificates.TABLE`. Estimator, files, streams, studies,
    messages and the command line read the row. A method that resamples needs no more than that:
    `resampling` is its guarantee, and every detector fits its models.

    Attributes
    ----------
    name : str
        What plans call it, in files, too.
    kind : type of Method
    called : mapping of str to mapping
        What users type, and the parameters that it stands for.
    guarantee : str
        The row of `statistics.certificates.TABLE`; of the variant "plus", where there are variants.
    repeated : str
        The same where there are several independent partitions; empty where there is only one.
    with_batch : str
        The same where the detector ranks a row with the help of the other new rows.
    one_model : bool
        Whether one model scores calibration rows that it has not seen.
    augments : bool
        Whether there is a model on D and each new row.
    resamples : bool
        Whether models on parts of D are compared, in one of the `VARIANTS`.
    fits_batch : str
        Of a model that is fitted on the new rows, too: what is said where these are not there.
    learns : bool
        Whether a classifier takes the place of the detector: no scores before there is a batch.
    frozen : bool
        Whether the model was fitted elsewhere, and is never fitted again.
    takes_groups, takes_weights, takes_choice : bool
        Whether rows can be ranked within groups (by "plus"), by weights, and by the best of several
        detectors; all of these on one partition.
    e_values : bool
        Whether scores and calibration scores make e-values.
    caution : str
        What is said of its lists, with ``{n}`` reference rows, if these are fewer than
        `cautious_below`.
    """

    name: str
    kind: type[Method]
    called: Mapping[str, Mapping[str, Any]]
    guarantee: str
    repeated: str = ""
    with_batch: str = ""
    one_model: bool = False
    augments: bool = False
    resamples: bool = False
    fits_batch: str = ""
    learns: bool = False
    frozen: bool = False
    takes_groups: bool = False
    takes_weights: bool = False
    takes_choice: bool = False
    e_values: bool = False
    caution: str = ""
    cautious_below: float = math.inf


METHODS: dict[str, MethodRow] = {
    row.name: row
    for row in (
        MethodRow(
            "split",
            Split,
            {"split": {}},
            guarantee="split",
            repeated="repeated split",
            with_batch="split with the batch",
            one_model=True,
            takes_groups=True,
            takes_weights=True,
            takes_choice=True,
            e_values=True,
        ),
        MethodRow(
            "jackknife",
            Jackknife,
            {"jackknife": {"variant": "basic"}, "jackknife+": {}},
            guarantee="jackknife+",
            resamples=True,
            takes_groups=True,
        ),
        MethodRow(
            "cv",
            CrossValidation,
            {"cv": {"variant": "basic"}, "cv+": {}},
            guarantee="cv+",
            resamples=True,
            takes_groups=True,
        ),
        MethodRow(
            "jab",
            Bootstrap,
            {"jab": {"variant": "basic"}, "jab+": {}},
            guarantee="jab+",
            resamples=True,
        ),
        MethodRow("resampling", Resampling, {}, guarantee="resampling", resamples=True),
        MethodRow(
            "full",
            Full,
            {"full": {}},
            guarantee="full",
            with_batch="full with the batch",
            augments=True,
            takes_groups=True,
            takes_weights=True,
            takes_choice=True,
        ),
        MethodRow(
            "batch",
            Batch,
            {"batch": {}},
            guarantee="batch",
            fits_batch="`method='batch'` fits one model on the reference and all new rows",
            e_values=True,
            caution="One model was fitted on all new rows, too: anomalies that resemble each "
            "other, and are many, look normal to it. Compare with `method='full'` if many rows may "
            "be anomalies.",
        ),
        MethodRow(
            "learned",
            Learned,
            {"learned": {}},
            guarantee="learned",
            repeated="repeated learned",
            fits_batch="`method='learned'` learns from the reference and all new rows",
            learns=True,
            e_values=True,
            caution="A classifier learned from {n:,} reference rows, which is little: with fewer "
            f"than {ENOUGH_TO_LEARN:,}, 'full' and 'batch' find more.",
            cautious_below=ENOUGH_TO_LEARN,
        ),
        MethodRow(
            "prefit",
            Prefit,
            {"prefit": {}},
            guarantee="prefit",
            one_model=True,
            frozen=True,
            takes_groups=True,
            takes_weights=True,
        ),
    )
}


def method_names() -> dict[str, tuple[type[Method], Mapping[str, Any]]]:
    """What users type for `method`, and the class and the parameters that it stands for."""
    names: dict[str, tuple[type[Method], Mapping[str, Any]]] = {"auto": (BySize, {})}
    for row in METHODS.values():
        names.update((name, (row.kind, parameters)) for name, parameters in row.called.items())
    return names


def recorded_methods() -> dict[str, type[Method]]:
    """What methods are called in model files, and in the stores and seeds of studies."""
    kinds: list[type[Method]] = [BySize, *(row.kind for row in METHODS.values())]
    return {kind.__name__: kind for kind in kinds}


def resolve_method(method: str | Method) -> Method:
    """Turn a name such as ``"jab+"`` into its method; pass methods through.

    Examples
    --------
    >>> resolve_method("cv")
    CrossValidation(variant='basic')
    """
    if isinstance(method, str):
        names = method_names()
        if method not in names:
            raise unknown_choice("method", method, names)
        kind, parameters = names[method]
        return kind(**parameters)
    if not isinstance(method, Method):
        raise ReconformError(
            "method must be a name such as 'jab+' or a method such as Bootstrap(draws=50); "
            f"got {method!r}."
        )
    return method


def named(method: Method) -> tuple[str, dict[str, Any]] | None:
    """Name a method, and say what differs from what the name alone stands for.

    Examples
    --------
    >>> named(CrossValidation(folds=5)), named(Bootstrap(variant="basic"))
    (('cv+', {'folds': 5}), ('jab', {}))
    >>> named(CrossValidation(variant="pooled")) is None
    True
    """
    for name in method_names():
        usual = resolve_method(name)
        if type(usual) is type(method):
            plain = usual.get_params(deep=False)
            given = method.get_params(deep=False)
            changed = {key: value for key, value in given.items() if value != plain[key]}
            if "variant" not in changed:
                return name, changed
    return None
