"""A plan: which rows train which model, which are held out, and how scores are compared.

Lines 1 to 4 of Algorithm 1 as a value. Methods (`reconform.methods`) make plans, ensembles carry
them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import overload

import numpy as np

from .arrays import IndexArray, Int32Array
from .statistics.aggregation import Aggregate

VARIANTS = ("basic", "plus", "pooled")

# Schemes whose models are fitted on the new rows, too, and what is said where these are not there.
FITS_BATCH = {
    "batch": "`method='batch'` fits one model on the reference and all new rows",
    "learned": "`method='learned'` learns from the reference and all new rows",
}


class _LazySets(Sequence[IndexArray]):
    """Index sets that are computed when asked for, so that n leave-one-out sets cost nothing."""

    def __init__(self, n_sets: int) -> None:
        self._n_sets = n_sets

    def __len__(self) -> int:
        return self._n_sets

    def _compute(self, k: int) -> IndexArray:
        raise NotImplementedError

    @overload
    def __getitem__(self, k: int) -> IndexArray: ...
    @overload
    def __getitem__(self, k: slice) -> Sequence[IndexArray]: ...
    def __getitem__(self, k: int | slice) -> IndexArray | Sequence[IndexArray]:
        if isinstance(k, slice):
            return [self._compute(j) for j in range(*k.indices(self._n_sets))]
        if not -self._n_sets <= k < self._n_sets:
            raise IndexError(f"there are {self._n_sets} models; got index {k}.")
        return self._compute(int(k) % self._n_sets)

    def __iter__(self) -> Iterator[IndexArray]:
        return (self._compute(k) for k in range(self._n_sets))


class Singletons(_LazySets):
    """H_i = {i}: what the leave-one-out models hold out, of all rows or of some."""

    def __init__(self, n: int, rows: IndexArray | None = None) -> None:
        super().__init__(n if rows is None else len(rows))
        self.rows = np.arange(n) if rows is None else rows
        self.every = rows is None

    def _compute(self, k: int) -> IndexArray:
        return self.rows[k : k + 1].astype(np.intp)


class Complements(_LazySets):
    """The rows of [n] that a set leaves over, in increasing order."""

    def __init__(self, n: int, sets: Sequence[IndexArray]) -> None:
        super().__init__(len(sets))
        self._n, self._sets = n, sets

    def _compute(self, k: int) -> IndexArray:
        left = np.ones(self._n, dtype=bool)
        left[self._sets[k]] = False
        return np.flatnonzero(left)


@dataclass(frozen=True, eq=False)
class Plan:
    """Lines 1-4 of Algorithm 1, written down: every T_k and H_k, φ and the comparison.

    Attributes
    ----------
    n : int
        Rows of D.
    train : sequence of int arrays
        T_k, the rows that train model k; repeats allowed (a multiset).
    held_out : sequence of int arrays
        H_k = [n] without the support of T_k.
    scheme : str
        Where the plan comes from: "split", "jackknife", "cv", "jab", "resampling", "full",
        "batch", "learned" or "prefit".
    variant : {"plus", "basic", "pooled"}
        Which comparison is made.
    aggregate : str, float or callable
        φ.
    full : bool
        Whether A(D), the model fitted on all rows, belongs to the plan.
    """

    n: int
    train: Sequence[IndexArray] = field(repr=False)
    held_out: Sequence[IndexArray] = field(repr=False)
    scheme: str = "resampling"
    variant: str = "plus"
    aggregate: Aggregate = "median"
    full: bool = True

    @property
    def n_models(self) -> int:
        """K, the number of resampled models."""
        return len(self.train)

    @property
    def fits_batch(self) -> bool:
        """Whether a model is fitted on the new rows, too: no row is ranked without the others."""
        return self.scheme in FITS_BATCH

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
        """Some of the models, in increasing order, as a plan of their own that keeps them.

        Examples
        --------
        >>> from reconform.methods import Jackknife
        >>> part = Jackknife().plan(5).part(np.array([1, 4]))
        >>> part.left_out, part.train[1]
        (array([1, 4]), array([0, 1, 2, 3]))
        """
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
        if self.scheme not in ("split", "learned") or self.n_models == 1:
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
