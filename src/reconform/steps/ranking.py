"""How a fitted detector ranks new rows: each by itself, or a batch together.

All p-values and lists are made of these ranks, whatever rows come from: arrays, frames, files or
partitions. `ConformalDetector` inherits this; its `fit`, or a model file, sets what is used here.
"""

from __future__ import annotations

import logging
import numbers
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import _num_samples, check_is_fitted

from ..arrays import FloatArray, IndexArray, RankArray
from ..assumption import LookedUp
from ..detectors.prepare import Feature, Prepare
from ..ensemble import Ensemble
from ..ensemble.grouped import GroupedEnsemble
from ..errors import ReconformError
from ..frames import frame_as_it_is
from ..grouping import Grouping, labels_of
from ..methods import BySize, Plan
from ..scan import Part
from ..statistics.certificates import Guarantee
from ..statistics.exact import Grid
from ..statistics.fdr import RankCounts
from ..statistics.joint import JointRanks
from ..statistics.ranks import Calibration, Ranks, smoothed_p_values
from ..statistics.scores import row_labels, tie_uniforms, warn_if_unlabelled
from .intake import Intake, Numbers

_LOG = logging.getLogger(__name__)


class Ranker(BaseEstimator):
    """The part of a fitted `ConformalDetector` that ranks rows."""

    detector: Any
    method: Any
    ties: str
    larger_is: str | None
    random_state: Any
    verbose: int
    plan_: Plan
    ensemble_: Ensemble
    calibration_: Calibration
    n_calibration_: int
    n_features_in_: int
    guarantee_: Guarantee
    left_out_: int
    reference_sample_: FloatArray | None
    feature_names_in_: Any
    _tie_key: int
    # The reference rows of a fit that another method may have to be fitted on; see `for_rows`.
    _reference: FloatArray | None = None
    _large: Self | None = None
    # The reference rows that rows are explained by, as `fit` saw them.
    _known: Any = None
    _intake: Intake = Numbers()
    # The groups that rows are ranked within, those of the reference rows, and of the sample.
    grouping_: Grouping | None = None
    _reference_groups: IndexArray | None = None
    _sample_groups: IndexArray | None = None
    # Which new rows can be looked up among all reference rows, where there is only a sample.
    _looked_up: LookedUp | None = None

    @property
    def joint(self) -> JointRanks | None:
        """The joint ranks of several groups; None where ranks are those of one calibration."""
        grouping = self.grouping_
        return None if grouping is None or grouping.single else grouping.joint

    @property
    def highest_rank(self) -> int:
        """Ranks lie in 1 .. this: n_calibration_ + 1, or one more for every further group."""
        return self.n_calibration_ + 1 if self.joint is None else self.joint.highest

    def no_counts(self) -> RankCounts:
        """Counts of no ranks yet, to add ranks of this detector to."""
        return RankCounts(self.highest_rank - 1, self.calibration_.fingerprint)

    def for_rows(self, m: int) -> Self:
        """Return the detector that judges a batch of m rows: this one, or one fitted on a split.

        With ``method="auto"``, full-conformal ranks take too long for very many rows, and a split
        of the same reference rows takes their place; it is fitted when it is asked for first.

        Parameters
        ----------
        m : int

        Returns
        -------
        ConformalDetector
        """
        check_is_fitted(self, "ensemble_")
        if self._reference is None or m <= BySize().most_rows(len(self._reference)):
            return self
        if self._large is None:
            split = clone(self).set_params(method=BySize().method_for(self.plan_.n, m))
            _LOG.info("%d new rows are too many for full: fitting %r instead", m, split.method)
            if not isinstance(self.random_state, numbers.Integral):
                # A fit has one seed, whoever asks and however often, from a model file too.
                split.set_params(random_state=self._tie_key)
            if isinstance(self.detector, Prepare):  # the rows are coded already
                split.set_params(detector=self.detector.for_features(self.features))
            known = getattr(self.ensemble_, "anomalies", None)
            groups = None
            if self.grouping_ is not None:
                groups = np.array(self.grouping_.names)[self._reference_groups]
            self._large = split.fit(
                getattr(self._reference, "frame", self._reference),
                groups=groups,
                anomalies=getattr(known, "frame", known),
                left_out=self.left_out_,
            )
            self._large._intake = self._intake
            self._large._known = self._known
            if self._names():
                self._large.feature_names_in_ = self.feature_names_in_
        return self._large

    @property
    def most_rows(self) -> int | None:
        """The largest batch that this object itself judges, see `for_rows`; None for any."""
        if self._reference is None:
            return None
        return BySize().most_rows(len(self._reference))

    @property
    def ranks_rows(self) -> str:
        """How `discover` ranks a row: ``"alone"``, ``"pool"`` or ``"batch"``.

        ``"alone"``: as `p_values` does. ``"pool"``: by what is known of all new rows, which may
        come in parts. ``"batch"``: with all new rows in memory. `p_values`, `score_samples` and
        `predict` judge every row by itself, whatever the detector; one that chooses among several
        leaves it to the first of them.
        """
        check_is_fitted(self, "ensemble_")
        return self.ensemble_.ranks_rows

    def rank(
        self,
        X: npt.ArrayLike,
        *,
        groups: npt.ArrayLike | None = None,
        variant: str | None = None,
        checked: bool = False,
        together: bool = False,
    ) -> Ranks:
        """Rank and score new rows: all that is known about them before a decision.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)
        groups : array-like of shape (m,), optional
            The group of every row, where the detector was fitted with groups. Ranks are then joint
            ranks (`joint`).
        variant : {"plus", "basic", "pooled"}, optional
            A comparison other than the method's, where the models for it are kept.
        checked : bool
            X is a float array with the columns of the fit in their order, as a reader of files
            makes it; it is not checked again.
        together : bool
            X is a whole batch, and its rows are ranked as `discover` does it (`ranks_rows`).

        Returns
        -------
        Ranks
            `at_most`: 1 + #{i : c_i <= t_i}, from 1 (most anomalous) to n_calibration_ + 1;
            `below`: the same for <, with ``ties="randomized"``; `scores`: one raw score per row,
            small = anomalous.
        """
        rows = self.part_of(X, groups, checked=checked)
        return self.rank_rows(rows, variant=variant, together=together)

    def part_of(
        self, X: npt.ArrayLike, groups: npt.ArrayLike | None = None, *, checked: bool = False
    ) -> Part:
        """Check new rows and their groups; return both as the detector sees them."""
        check_is_fitted(self, "ensemble_")
        rows = self.of_file(np.asarray(X)) if checked else self._rows(X)
        return Part(rows, self.codes_of(groups, len(rows)))

    def codes_of(self, groups: npt.ArrayLike | None, rows: int) -> IndexArray | None:
        """Look up the groups of new rows; refuse labels where there are none, and the reverse.

        Parameters
        ----------
        groups : array-like of shape (rows,) or None
        rows : int
        """
        if self.grouping_ is None:
            if groups is not None:
                raise ReconformError(
                    "this detector was fitted without groups; leave `groups` out, or give those of "
                    "the reference rows: fit(X, groups=...)."
                )
            return None
        if groups is None:
            raise ReconformError(
                "this detector was fitted with groups, and ranks rows within them; give `groups`, "
                "one label per row."
            )
        return self.grouping_.codes(labels_of(groups, rows))

    def rank_rows(self, rows: Part, *, variant: str | None = None, together: bool = False) -> Ranks:
        """Rank rows as the detector sees them; see `rank`."""
        strictly, X = self.ties == "randomized", rows.X
        if isinstance(self.ensemble_, GroupedEnsemble):
            assert rows.groups is not None
            assert self.joint is not None
            if variant is not None:
                raise ReconformError("other comparisons are not made within groups.")
            within = self.ensemble_.ranks_in(X, rows.groups, together=together, strictly=strictly)
            return within.in_groups(rows.groups, self.joint)
        if together:
            return self.ensemble_.batch_ranks(X, strictly=strictly)
        return self.ensemble_.ranks(X, variant=variant, strictly=strictly)

    def ranks(self, X: npt.ArrayLike, *, groups: npt.ArrayLike | None = None) -> RankArray:
        """Return the ranks of new rows alone: 1 + #{i : c_i <= t_i}; see `rank`.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)
        groups : array-like of shape (m,), optional
            As in `rank`.

        Returns
        -------
        int array of shape (m,)
        """
        return self.rank(X, groups=groups).at_most

    def rank_counts(self, X: npt.ArrayLike, *, groups: npt.ArrayLike | None = None) -> RankCounts:
        """Count the ranks of a batch; the counts of batches merge, and decide like the whole.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)
        groups : array-like of shape (m,), optional
            As in `rank`.

        Returns
        -------
        RankCounts
        """
        if self.ties == "randomized":
            raise ReconformError(
                "smoothed p-values are off the grid of ranks and cannot be counted; "
                "use ties='conservative'."
            )
        if self.ranks_rows != "alone":
            raise ReconformError(
                "the counts of batches are merged, and here the rank of a row depends on all new "
                "rows; use discover(X) with all rows, judge_file or reconform.distributed.discover "
                "for rows that come in parts, or a single detector such as 'knn'."
            )
        return self.no_counts().add(self.rank(X, groups=groups).at_most)

    @property
    def features(self) -> tuple[Feature, ...]:
        """The columns as files are read for the detector; none if the reference had no names.

        With `Prepare` they have the categories of the reference.
        """
        check_is_fitted(self, "ensemble_")
        return self._intake.features(self._names())

    def _validate(self, X: npt.ArrayLike, *, reset: bool) -> FloatArray:
        """Part as the detector sees them: an array, or `FrameRows`, which stand in for one."""
        finite = "allow-nan" if self.__sklearn_tags__().input_tags.allow_nan else True
        rows: FloatArray = self._intake.read(
            self, X, reset=reset, least=2 if reset else 1, finite=finite
        )
        return rows

    def _rows(self, X: npt.ArrayLike) -> FloatArray:
        check_is_fitted(self, "ensemble_")
        if _num_samples(frame_as_it_is(X)) == 0:
            raise ReconformError("X has no rows; give at least one row to judge.")
        return self._validate(X, reset=False)

    def of_file(self, X: FloatArray) -> FloatArray:
        """Numbers that a reader of files made, as the detector sees them."""
        rows: FloatArray = self._intake.of_file(X, self._names())
        return rows

    def of_records(self, records: Any) -> Any:
        """Make a frame, as the detector reads it, of rows that are dicts.

        Parameters
        ----------
        records : dict or sequence of dicts
            One row, or rows; each must have every column of the reference, None where a value is
            missing. Other keys are not looked at.

        Returns
        -------
        frame of Arrow, or of the library that a pipeline was fitted with

        Examples
        --------
        >>> import numpy as np
        >>> import pyarrow as pa
        >>> from reconform import ConformalDetector
        >>> frame = pa.table({"flow": np.arange(20.0), "level": np.arange(20.0) % 7})
        >>> cad = ConformalDetector("knn", "split", random_state=0).fit(frame)
        >>> cad.of_records({"level": 2, "flow": 9.5, "id": "A7"}).to_pydict()
        {'flow': [9.5], 'level': [2.0]}
        """
        check_is_fitted(self, "ensemble_")
        return self._intake.of_records(records, self._names())

    def _judge(
        self,
        X: npt.ArrayLike,
        grid: Grid,
        groups: npt.ArrayLike | None = None,
        *,
        together: bool = False,
    ) -> tuple[Ranks, FloatArray]:
        """Ranks and p-values."""
        if self.ties != "randomized":
            ranks = self.rank(X, groups=groups, together=together)
            return ranks, grid.values(ranks.at_most)
        rows, codes = self.part_of(X, groups)
        ranks = self.rank_rows(Part(rows, codes), together=together)
        labels = row_labels(X)
        warn_if_unlabelled(labels, len(rows), self)
        uniforms = tie_uniforms(self._tie_key, rows, labels)
        if self.joint is None:
            return ranks, smoothed_p_values(ranks, self.n_calibration_, uniforms)
        return ranks, smoothed_p_values(*self.joint.within(ranks), uniforms)

    def _names(self) -> tuple[str, ...]:
        return tuple(map(str, getattr(self, "feature_names_in_", ())))
