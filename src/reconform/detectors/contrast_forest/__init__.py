"""Contrast forest: a row is unusual if trees that tell new rows from reference rows call it new.

Full-conformal ranks by forests that tell the reference and one new row from the other new rows.

In the world of new row j a forest tells E_j, the reference and x_j, from the other new rows, and
every row is scored by the trees that did not draw it. No row of E_j is special, so the rank of x_j
among E_j is exact if the reference and x_j are exchangeable given the other new rows
(docs/guarantees). The forest is grown once; `kernels` says what a world changes in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast

import numpy as np

from ...arrays import BoolArray, FloatArray, IndexArray, Int32Array, IntArray, UInt64Array
from ...content import digests_of
from ...ensemble import AugmentedScores, Ensemble
from ...errors import check_count
from ...methods import Plan
from ...parallel import run_blocks
from ...randomness import mix_array
from ...records import INT, DetectorRecord, Plain, Record, check_reference, require
from ...statistics.ranks import Calibration, Ranks
from ..base import Attribution, ModelDetector
from ..contrast import MODEL, Contrast, ContrastModel, FullContrast
from .kernels import CHILD, NEW, OLD, SPLIT, TRIED, VOTES, grow_trees, vote_of, votes_in_worlds

# A tree draws half of the pool, and at most about so many rows; a leaf has so many at least.
MOST_DRAWN, LEAST = 2048, 3

# Splits that are tried: as many as the root of the number of columns, up to this.
MOST_TRIED = 8

# The worlds of all new rows are kept if they have so many votes at most: they are asked for again.
MOST_KEPT = 1 << 23

# What shares of the features are of, where a forest ranks a row.
HOW = "what splits on a feature add to the votes that call the row new, in trees that never drew it"

# With fewer rows than these a tree draws too few of a kind to tell them apart.
FEWEST_REFERENCE, FEWEST_NEW = 40, 20


@dataclass(frozen=True, eq=False)
class PoolForest:
    """A forest that tells D from T, from which the forest of every world follows.

    Attributes
    ----------
    X : float array of shape (n + m, d)
        The pool: D, then T.
    n : int
    hit : bool array of shape (trees, n + m)
        Which rows a tree drew; copies of a row are all drawn or none.
    seeds : uint64 array of shape (trees,)
    n_jobs : int or None
    """

    X: FloatArray
    n: int
    hit: BoolArray
    seeds: UInt64Array
    n_jobs: int | None

    @classmethod
    def of(
        cls,
        D: FloatArray,
        T: FloatArray,
        trees: int,
        seed: np.random.SeedSequence,
        jobs: int | None,
    ) -> PoolForest:
        """Draw the rows of every tree from the pool, by their contents."""
        X = np.ascontiguousarray(np.vstack([D, T]))
        seeds = seed.generate_state(trees, np.uint64).astype(np.uint64)
        digests = digests_of(X)[1]
        limit = np.uint64(min(0.5, MOST_DRAWN / len(X)) * 2.0**64)
        hit = np.array([mix_array(digests ^ one) < limit for one in seeds])
        return cls(X, len(D), hit, seeds, jobs)

    @cached_property
    def _weights(self) -> FloatArray:
        """Of a reference and of a new row, so that both kinds count alike, and of the prior."""
        n, m = self.n, len(self.X) - self.n
        return np.array([1 / (n + 1), 1 / (m - 1), 2 / (n + m)])

    @cached_property
    def _sizes(self) -> IntArray:
        return np.asarray(self.hit.sum(axis=1), dtype=np.int64)

    @cached_property
    def _is_new(self) -> BoolArray:
        return np.arange(len(self.X)) >= self.n

    @cached_property
    def _grown(self) -> tuple[Int32Array, Int32Array, FloatArray, UInt64Array, Int32Array]:
        """Rows by leaf, nodes, cuts and keys of all trees, and their votes."""
        trees, rows = self.hit.shape
        order = np.argsort(~self.hit, axis=1, kind="stable").astype(np.int32)
        tried = min(int(np.sqrt(self.X.shape[1])), MOST_TRIED)
        most = 2 * (int(self._sizes.max()) // LEAST) + 1
        nodes = np.empty((trees, most, TRIED + 3 * tried), dtype=np.int32)
        cuts, keys = np.empty((trees, most, tried)), np.empty((trees, most), dtype=np.uint64)
        votes = np.zeros((trees, rows), dtype=np.int32)
        given = self.X, self._is_new, order, self._sizes, self.seeds, LEAST, self._weights
        kernel = partial(grow_trees, *given, nodes, cuts, keys, votes)
        run_blocks(kernel, trees, n_jobs=self.n_jobs)
        return order, nodes, cuts, keys, votes

    @cached_property
    def _sums(self) -> IntArray:
        return np.asarray(self._grown[-1].sum(axis=0, dtype=np.int64))

    def scores(self, rows: IndexArray) -> FloatArray:
        """Score the pool in the worlds of some new rows, small = anomalous: (rows, n + m).

        A row that every tree has drawn is as normal as can be.
        """
        m = len(self.X) - self.n
        votes = self._every[rows] if m * len(self.X) <= MOST_KEPT else self._votes(rows)
        asked = np.maximum((~self.hit).sum(axis=0), 1)
        return np.asarray(votes / (-VOTES * asked))  # a power of two: nothing more is rounded

    def carried(self, place: int) -> FloatArray:
        """How much splits on each feature changed the votes for a row of the pool: (d,).

        On its way through a tree that did not draw it a row passes nodes, each of which would vote
        as a leaf; a split adds what the next node votes more. Such trees are alike in all worlds.
        """
        _, nodes, cuts, _, _ = self._grown
        x, parts = self.X[place], np.zeros(self.X.shape[1])
        for t in np.flatnonzero(~self.hit[:, place]):
            node, at = nodes[t, 0], 0
            while node[SPLIT] >= 0:
                feature, cut = node[TRIED + 3 * node[SPLIT]], cuts[t, at, node[SPLIT]]
                before = vote_of(node[OLD], node[NEW], self._weights)
                at = node[CHILD] + int(x[feature] > cut)
                node = nodes[t, at]
                parts[feature] += vote_of(node[OLD], node[NEW], self._weights) - before
        return parts

    @cached_property
    def _every(self) -> IntArray:
        return self._votes(np.arange(len(self.X) - self.n))

    def _votes(self, rows: IndexArray) -> IntArray:
        """Votes for the pool in the worlds of some new rows."""
        order, nodes, cuts, keys, votes = self._grown
        out = np.empty((len(rows), len(self.X)), dtype=np.int64)
        given = self.X, self._is_new, self.hit, order, self._sizes, LEAST, self._weights
        grown = nodes, cuts, keys, votes, self._sums
        kernel = partial(votes_in_worlds, *given, *grown, rows + self.n, out)
        run_blocks(kernel, len(rows), n_jobs=self.n_jobs)
        return out


@dataclass(eq=False)
class FullContrastForest(Ensemble):
    """Forests of all worlds of a batch.

    Attributes
    ----------
    calibration : Calibration
    model : ContrastModel
        The reference rows, and what ranks rows where there is no forest.
    trees : int
    seed : SeedSequence
    """

    calibration: Calibration
    model: ContrastModel
    trees: int
    seed: np.random.SeedSequence
    enough_new = 100
    _last = cast("tuple[bytes, PoolForest] | None", None)

    @cached_property
    def contrast(self) -> FullContrast:
        """Ranks rows by themselves, small batches, and rows whose batch comes in clusters."""
        return FullContrast(self.calibration, self.model)

    @property
    def ranks_rows(self) -> str:
        """By forests that learn from the batch."""
        return "batch"

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row by itself, by its distance to reference rows."""
        return self.contrast.ranks(X, strictly=strictly)

    def batch_ranks(
        self, X: FloatArray, *, rows: IndexArray | None = None, strictly: bool = False
    ) -> Ranks:
        """Rank new rows, each by the forest of its world; scores are minus shares of votes."""
        wanted = np.arange(len(X)) if rows is None else rows
        if not self._enough(X):
            return self.contrast.batch_ranks(X, rows=wanted, strictly=strictly)
        at_most, below = np.empty((2, len(wanted)), dtype=np.int64)
        scores, clustered = np.empty(len(wanted)), np.empty(len(wanted), dtype=np.bool_)
        done = 0
        for augmented in self.augmented_scores(X, wanted):
            some = slice(done, done := done + len(augmented.rows))
            mine = augmented.own[:, -1:]
            at_most[some] = (augmented.own <= mine).sum(axis=1)
            below[some] = 1 + (augmented.own < mine).sum(axis=1)
            scores[some], clustered[some] = mine[:, 0], augmented.clustered
        below_them, learned = (below if strictly else None), not clustered.all()
        return Ranks(at_most, below_them, scores, clustered=clustered, learned=bool(learned))

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows by the forest of each world, by contrast where there are clusters."""
        forest = self._forest(X) if self._enough(X) else None
        for augmented in self.contrast.augmented_scores(X, rows):
            clustered = augmented.clustered
            assert clustered is not None
            if forest is not None and not clustered.all():
                use = np.flatnonzero(~clustered)
                scores, n = forest.scores(augmented.rows[use]), forest.n
                augmented.own[use, :n], augmented.others[use] = scores[:, :n], scores[:, n:]
                augmented.own[use, n] = scores[np.arange(len(use)), n + augmented.rows[use]]
            yield augmented

    def carried(self, X: FloatArray, j: int) -> tuple[FloatArray, str] | None:
        """By the splits of trees that call the row new; None where no forest ranks it."""
        if not self._enough(X):
            return None
        (ranked,) = self.contrast.augmented_scores(X, np.array([j]))
        if ranked.clustered is not None and ranked.clustered[0]:
            return None
        return self._forest(X).carried(len(self.model.X) + j), HOW

    def _forest(self, X: FloatArray) -> PoolForest:
        """The forest of a batch; that of the last one is kept, as a list asks for it thrice."""
        key, last = digests_of(X)[1].tobytes(), self._last
        if last is None or last[0] != key:
            D, jobs = self.model.X, self.model.n_jobs
            # Another thread may keep another batch meanwhile; this one has its own.
            last = self._last = key, PoolForest.of(D, X, self.trees, self.seed, jobs)
        return last[1]

    def __getstate__(self) -> dict[str, object]:
        """Leave out the forest of the last batch, which is large and can be grown again."""
        return {name: value for name, value in vars(self).items() if name != "_last"}

    def _enough(self, X: FloatArray) -> bool:
        return len(self.model.X) >= FEWEST_REFERENCE and len(X) >= FEWEST_NEW


# More trees than this a file does not ask for.
MOST_TREES = 1 << 16


class ContrastForest(ModelDetector):
    """A forest that learns to tell the new rows from the reference, for ``method="full"``.

    Anomalies that have something in common can be learned: trees grow to separate reference rows
    from new ones, and rows that they call new are anomalous. Normal new rows look like reference
    rows and cannot be told apart. Every row is scored by trees that did not draw it.

    Parameters
    ----------
    contamination : float, default=0.1
        Share of the training rows that `predict` of the detector itself calls outliers. Has no
        influence on conformal p-values.
    n_estimators : int, default=200
        Trees.
    scale : {"none", "robust", "direction"}, default="robust"
        Units in which distances are measured where there is no forest (see Notes); as in `KNN`.
    random_state : int, RandomState, Generator or None, default=None
        Seed of the trees. Inside a `ConformalDetector` its own counts.
    n_jobs : int or None, default=None
        Threads, as in joblib. Inside a `ConformalDetector` its own `n_jobs` counts, if it has one.

    Attributes
    ----------
    offset_ : float
        `score_samples` below it is an outlier.
    n_features_in_ : int
    feature_names_in_ : array of str

    See Also
    --------
    reconform.detectors.Contrast : By distances; better where new rows are few.

    Notes
    -----
    Only `ConformalDetector.discover` has a batch to learn from. `p_values`, `score_samples` and
    `predict` judge every row alone, as `Contrast` does. So does `discover` for fewer than 20 new
    or 40 reference rows, and where normal new rows seem to come in clusters.

    The p-values of `discover` are exact, P(p <= α) <= α, if reference rows and the row are
    exchangeable *given the other new rows* (independent rows are). What is learned is the same
    whichever of the reference rows and the row is the new one, and no tree scores a row it drew.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> rng = np.random.default_rng(0)
    >>> normal, new = rng.normal(size=(400, 8)), rng.normal(size=(200, 8))
    >>> new[:20, :2] = rng.uniform(1.8, 2.5, size=(20, 2))  # not far away, in two columns of eight
    >>> for detector in ("knn", "contrast-forest"):
    ...     cad = ConformalDetector(detector, method="full", random_state=0).fit(normal)
    ...     print(cad.discover(new, fdr=0.2).mask[:20].sum())
    4
    19
    """

    uses_batch = True

    def __init__(
        self,
        contamination: float = 0.1,
        n_estimators: int = 200,
        *,
        scale: str = "robust",
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.contamination = contamination
        self.n_estimators = n_estimators
        self.scale = scale
        self.random_state = random_state
        self.n_jobs = n_jobs

    def _fit_together(
        self, X: FloatArray, plan: Plan, seeds: Sequence[np.random.SeedSequence], verbose: int
    ) -> Ensemble:
        trees = check_count("n_estimators", self.n_estimators, least=1)
        contrast = FullContrast.fit(X, self._contrast(len(X))._counts(len(X)), self.n_jobs)
        return FullContrastForest(contrast.calibration, contrast.model, trees, seeds[-1])

    def _contrast(self, n: int) -> Contrast:
        """What ranks rows where there is no forest."""
        return Contrast(n_neighbors=min(5, n), n_jobs=self.n_jobs)

    def _carried(self, x: FloatArray, rows: FloatArray) -> Attribution | None:
        return self._contrast(len(rows))._carried(x, rows)

    def _model(self, X: FloatArray) -> ContrastModel:
        return self._contrast(len(X))._model(X)


def _check_full(ensemble: FullContrastForest, d: int) -> None:
    check_reference(len(ensemble.model.X), ensemble)
    require(0 < ensemble.trees <= MOST_TREES, "a forest has too many trees")


def _cost(ensemble: FullContrastForest) -> int:
    """Every tree draws from all rows."""
    return ensemble.trees * len(ensemble.model.X)


CONTRAST_FOREST_RECORD = DetectorRecord(
    "ContrastForest",
    {"_fitted": MODEL},
    ensembles=(
        Record(
            "FullContrastForest",
            FullContrastForest,
            {"model": MODEL, "trees": INT, "seed": Plain()},
            _check_full,
            cost=_cost,
        ),
    ),
)
