"""The paper's evaluation (sections VI and VII), on arrays: draws, test sets, FDP and power.

Where the paper is silent, this is the reading that reproduces its numbers: test sets of
min(1000, n_train / 3) rows, a tenth of them outliers, drawn without replacement from the normal
rows that are left and from all outliers.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..arrays import BoolArray, IndexArray, RankArray
from ..errors import ReconformError, check_count
from ..metrics import false_shares, found_shares
from ..statistics.exact import exact_fraction
from .subjects import Dataset

# The smallest value of each count, and which of them may be None.
LEAST = {
    "draws": 1,
    "test_sets": 1,
    "test_size": 2,
    "folds": 2,
    "bootstrap_draws": 1,
    "jackknife_limit": 0,
    "seed": 0,
}
OPTIONAL = ("test_size", "jackknife_limit")

# Streams of randomness within one draw.
ROWS, TEST_SETS, MODELS = range(3)


@dataclass(frozen=True)
class Sizes:
    """How many rows a draw of a data set has.

    Attributes
    ----------
    train : int
        Normal rows for training and calibration, n_train.
    test : int
        Rows of a test set.
    outliers : int
        Outliers among them.
    """

    train: int
    test: int
    outliers: int


@dataclass(frozen=True, eq=False)
class Draw:
    """D_j and its L test sets, as positions.

    Attributes
    ----------
    train : int array
        Rows of the data set that make up D_j; all normal.
    pool : int array
        Rows of the data set that test sets are drawn from: the normal ones that are left, then
        all outliers.
    test_sets : int array of shape (L, test)
        Positions in the pool; in every test set the normal rows come first.
    outliers : int
        Number of outliers at the end of every test set.
    """

    train: IndexArray
    pool: IndexArray
    test_sets: IndexArray
    outliers: int


@dataclass(frozen=True)
class Protocol:
    """What fixes the numbers of a study, besides data, detectors and methods.

    Parameters
    ----------
    fdr : float or Fraction, default=0.1
        Target level of Benjamini-Hochberg. Shares are kept as exact fractions.
    draws : int, default=25
        J, the number of training sets drawn from a data set.
    test_sets : int, default=100
        L, test sets per draw.
    anomaly_rate : float or Fraction, default=0.1
        Share of outliers in a test set, rounded to whole rows.
    test_size : int, optional
        Rows of a test set; by default min(1000, n_train / 3).
    train_share : float or Fraction, default=0.5
        Share of the normal rows for training and calibration.
    folds, bootstrap_draws : int
        Of the methods that are given by name.
    jackknife_limit : int, optional
        Leave out leave-one-out methods where n_train is this or more. The paper's is 500.
    seed : int, default=0
        Seed of all random numbers. A draw of a data set has its own stream, whatever else is run.

    Examples
    --------
    >>> Protocol().sizes(213, 10)
    Sizes(train=106, test=35, outliers=4)
    >>> Protocol(fdr=0.05).fdr
    Fraction(1, 20)
    """

    fdr: float | Fraction = Fraction(1, 10)
    draws: int = 25
    test_sets: int = 100
    anomaly_rate: float | Fraction = Fraction(1, 10)
    test_size: int | None = None
    train_share: float | Fraction = Fraction(1, 2)
    folds: int = 10
    bootstrap_draws: int = 100
    jackknife_limit: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("fdr", "anomaly_rate", "train_share"):
            object.__setattr__(self, name, exact_fraction(name, getattr(self, name)))
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None or name not in OPTIONAL:
                object.__setattr__(self, name, check_count(name, value, least=least))

    def sizes(self, n_normal: int, n_outliers: int, name: str = "this one") -> Sizes:
        """Count the rows of a draw, or say why the data set is too small for it."""
        train = int(Fraction(self.train_share) * n_normal)
        test = min(1000, train // 3) if self.test_size is None else self.test_size
        outliers = round(Fraction(self.anomaly_rate) * test)
        normal, left = test - outliers, n_normal - train
        if train < 2 or not 1 <= outliers <= n_outliers or not 1 <= normal <= left:
            raise ReconformError(
                f"data set {name!r} is too small for this study: {n_normal} normal rows give "
                f"{train} for training (at least 2 are needed) and leave {left}, and a test set "
                f"takes {normal} of those (at least 1) and {outliers} of {n_outliers} outliers "
                "(at least 1). Change `test_size`, `anomaly_rate` or `train_share`."
            )
        return Sizes(train, test, outliers)

    def draw(self, dataset: Dataset, j: int) -> Draw:
        """Draw D_j and its test sets. Detectors and methods all see the same ones."""
        normal, outliers = dataset.normal, dataset.outliers
        sizes = self.sizes(len(normal), len(outliers), dataset.name)
        shuffled = np.random.default_rng(self.stream(dataset.name, j, ROWS)).permutation(normal)
        left = len(normal) - sizes.train
        rng = np.random.default_rng(self.stream(dataset.name, j, TEST_SETS))
        # One after the other, so that more test sets keep the first ones as they were.
        test_sets = [
            np.concatenate(
                [
                    rng.choice(left, sizes.test - sizes.outliers, replace=False),
                    left + rng.choice(len(outliers), sizes.outliers, replace=False),
                ]
            )
            for _ in range(self.test_sets)
        ]
        return Draw(
            train=shuffled[: sizes.train],
            pool=np.concatenate([shuffled[sizes.train :], outliers]),
            test_sets=np.array(test_sets),
            outliers=sizes.outliers,
        )

    def stream(self, dataset: str, j: int, *purpose: int) -> np.random.SeedSequence:
        """Seed of one draw of one data set: the same whatever else the study runs."""
        return np.random.SeedSequence(self.seed, spawn_key=(name_key(dataset), j, *purpose))


def name_key(name: str) -> int:
    """Turn a name into a number of 64 bits, the same on every machine.

    Examples
    --------
    >>> name_key("wbc")
    3057006146399341199
    """
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def bh_masks(ranks: RankArray, n_calibration: int, fdr: Fraction) -> BoolArray:
    """Benjamini-Hochberg on many test sets at once, exactly.

    Parameters
    ----------
    ranks : int array of shape (L, m)
        A test set per row.
    n_calibration : int
        p = rank / (n_calibration + 1).
    fdr : Fraction

    Returns
    -------
    bool array of shape (L, m)
        The discoveries: for every row what `RankCounts.decide` says.

    Examples
    --------
    >>> import numpy as np
    >>> bh_masks(np.array([[1, 9, 2], [9, 9, 9]]), 19, Fraction(1, 5))
    array([[ True, False,  True],
           [False, False, False]])
    """
    m = ranks.shape[1]
    # p_(k) <= k fdr / m, solved for the rank: p_(k) = r_(k) / (n + 1). Python's integers are exact.
    top, bottom = (fdr * (n_calibration + 1) / m).as_integer_ratio()
    limits = np.array([k * top // bottom for k in range(1, m + 1)], dtype=np.int64)
    ascending = np.sort(ranks, axis=1)
    passes = ascending <= limits
    # The largest k that passes, or none; then its rank is the threshold.
    last = m - 1 - np.argmax(passes[:, ::-1], axis=1)
    thresholds = np.where(
        passes.any(axis=1), np.take_along_axis(ascending, last[:, None], axis=1)[:, 0], 0
    )
    return np.asarray(ranks <= thresholds[:, None])


def conditional_fdr_and_power(
    ranks: RankArray, n_calibration: int, draw: Draw, fdr: Fraction
) -> tuple[float, float]:
    """Mean FDP and mean power over the test sets of a draw: cFDR and cPower of D_j.

    Parameters
    ----------
    ranks : int array of shape (L, m)
        Of the rows of every test set.
    n_calibration : int
    draw : Draw
    fdr : Fraction

    Returns
    -------
    cfdr, cpower : float

    Examples
    --------
    >>> import numpy as np
    >>> tests = np.array([[0, 1, 3], [1, 2, 3]])  # the last row of each is an outlier
    >>> draw = Draw(np.arange(9), np.arange(4), tests, outliers=1)
    >>> ranks = np.array([50, 1, 60, 1])[tests]
    >>> conditional_fdr_and_power(ranks, 99, draw, Fraction(1, 10))
    (0.5, 1.0)
    """
    found = bh_masks(ranks, n_calibration, fdr)
    truth = np.zeros_like(found)
    truth[:, -draw.outliers :] = True  # a test set has its anomalies last
    return float(false_shares(found, truth).mean()), float(found_shares(found, truth).mean())
