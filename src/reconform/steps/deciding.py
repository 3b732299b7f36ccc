"""From ranks to a list: what a rule decides for new rows, and what the list says of itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np

from ..arrays import BoolArray, FloatArray, IndexArray, RankArray
from ..assumption import (
    Category,
    Compared,
    alike_in_groups,
    monotone_columns,
    new_rows,
    unused_batch,
)
from ..detectors.auto.ensembles import ChoiceEnsemble
from ..detectors.prepared import category_columns
from ..discoveries import CountedDiscoveries, Discoveries, Provenance
from ..ensemble.grouped import GroupedEnsemble
from ..explaining import explainer_for
from ..explaining.feature_columns import Words
from ..grouping import POOLED, GroupFound, found_in_groups, out_of_reach
from ..parallel import track
from ..rule import Rule
from ..statistics.choice import ChoiceCounts, choice_sentence, with_mask
from ..statistics.fdr import RankCounts
from ..statistics.grid import Grid, usual
from ..statistics.joint import JointGrid
from ..statistics.ranks import RankedBatch, Ranks
from ..statistics.worlds import Worlds, cost_sentence
from ..weights import Weights
from .ranking import Ranker
from .weighing import (
    check_weighted,
    decide_weighted,
    weighted_claim,
    weighted_ranks,
    weights_finding,
)

_LOG = logging.getLogger(__name__)

# With fewer reference rows a list says that a classifier learns little from them.
ENOUGH_TO_LEARN = 1_000


@dataclass(frozen=True, eq=False)
class NewRows:
    """A batch in memory that has been ranked.

    Attributes
    ----------
    read : callable
        Gives the rows, as the detector sees them.
    ranks : Ranks
    p_values : float array of shape (m,)
    index : sequence, optional
        Labels of the rows.
    library : str, optional
        Whose frame the rows came in.
    categories : mapping, optional
        As in `Observed`.
    unlisted : callable, optional
        As in `reconform.explaining.Explainer`.
    """

    read: Callable[[], FloatArray]
    ranks: Ranks
    p_values: FloatArray
    index: Any = None
    library: str | None = None
    categories: Mapping[int, Category] | None = None
    unlisted: Words | None = None


@dataclass(frozen=True, eq=False)
class Observed:
    """What is known of new rows beside the counts of their ranks; all of it may be missing.

    Attributes
    ----------
    sample : float array of shape (t, d), optional
        Some of the rows, to check the assumption by.
    together : Ranks, optional
        Of all rows, where these are one batch that was ranked together.
    choice : ChoiceCounts, optional
        Which detectors were chosen, where one is for every row.
    categories : mapping, optional
        By position, what a reader of files knows of the columns that hold labels.
    monotone : bool array of shape (d,), optional
        Which columns only rise or only fall from row to row.
    sample_groups : int array of shape (t,), optional
        The groups of the sample, where rows are ranked within several.
    """

    sample: FloatArray | None = None
    together: Ranks | None = None
    choice: ChoiceCounts | None = None
    categories: Mapping[int, Category] | None = None
    monotone: BoolArray | None = None
    sample_groups: IndexArray | None = None


def decided_in_memory(
    cad: Ranker, rule: Rule, grid: Grid, new: NewRows, weights: Weights | None = None
) -> Discoveries:
    """Decide for a batch in memory.

    Parameters
    ----------
    cad : ConformalDetector
        The one that ranked it.
    rule : Rule
    grid : Grid
        Of the rule and the detector.
    new : NewRows
    weights : Weights, optional

    Returns
    -------
    Discoveries
    """
    if weights is not None and not weights.constant:
        return _decided_by_weights(cad, rule, grid, new, weights)
    smoothed, ranks, p_values = cad.ties == "randomized", new.ranks, new.p_values
    batch = RankedBatch(
        ranks,
        p_values,
        grid,
        cad.calibration_,
        cad.highest_rank - 1,
        smoothed,
        partial(_worlds, cad, new.read, ranks),
        cad.joint,
        None if cad.joint is None or cad.grouping_ is None else len(cad.grouping_.names),
    )
    outcome = rule.decide_batch(batch, cad)
    X = new.read()
    looked_at = new_rows(X)
    seen = Observed(
        np.array(X[looked_at]),
        ranks,
        None,
        new.categories,
        monotone_columns(np.asarray(X)),
        None if ranks.groups is None else ranks.groups[looked_at],
    )
    groups = _groups(cad, rule, grid, _OfRows(ranks.groups, p_values, outcome.mask))
    facts = _facts(cad, rule, grid, len(p_values), seen, groups)
    if outcome.plain is not None:
        facts["claim"] += " " + cost_sentence(outcome.mask, outcome.plain)
    if ranks.choice is not None:
        counts = ChoiceCounts(ranks.choice.names, cad.highest_rank - 1).add(ranks.choice)
        nobody = np.zeros(cad.highest_rank + 1, dtype=np.bool_)
        tried = counts.candidates(nobody, partial(_alone, cad, rule))
        facts["choice"] = with_mask(tried, ranks.choice, outcome.mask)
        _LOG.info("%s", choice_sentence(facts["choice"]))
    return Discoveries(
        mask=outcome.mask,
        p_values=p_values,
        q_values=outcome.q_values,
        scores=ranks.scores,
        ranks=None if smoothed else ranks.at_most,
        index=new.index,
        library=new.library,
        decision=outcome.decision,
        e_values=outcome.e_values,
        plain_mask=outcome.plain,
        explainer=explainer_for(
            cad,
            new.read,
            choose=None if ranks.choice is None else partial(getattr, ranks.choice, "chosen"),
            unlisted=new.unlisted,
        ),
        row_groups=None if cad.grouping_ is None else cad.grouping_.labels(ranks.groups, len(X)),
        p_threshold=float(p_values[outcome.mask].max(initial=0.0)),
        **facts,
    )


def _decided_by_weights(
    cad: Ranker, rule: Rule, grid: Grid, new: NewRows, weights: Weights
) -> Discoveries:
    """Decide for a batch in memory whose rows come in other proportions than the reference."""
    X, m = new.read(), len(new.p_values)
    check_weighted(cad, rule, weights, m)
    ranks = weighted_ranks(cad, X, new.ranks, weights, rule)
    outcome = decide_weighted(ranks, rule)
    seen = Observed(
        np.array(X[new_rows(X)]), None, None, new.categories, monotone_columns(np.asarray(X))
    )
    facts = _facts(cad, rule, grid, m, seen)
    compared: Compared = facts["compared"]
    size = weights.effective_size_of(cad.calibration_.rows)
    facts |= {
        "claim": weighted_claim(cad, rule, weights),
        "compared": replace(
            compared, found=(*compared.found, weights_finding(weights)), weighted=True
        ),
        "warning": rule.warning(max(1, int(size)), m),
        "weights": weights,
    }
    if outcome.plain is not None:
        facts["claim"] += " " + cost_sentence(outcome.mask, outcome.plain)
    p_values = ranks.p_values
    return Discoveries(
        mask=outcome.mask,
        p_values=p_values,
        q_values=outcome.q_values,
        scores=new.ranks.scores,
        ranks=None,
        index=new.index,
        library=new.library,
        e_values=outcome.e_values,
        plain_mask=outcome.plain,
        p_threshold=float(p_values[outcome.mask].max(initial=0.0)),
        **facts,
    )


def decided_by_counts(
    cad: Ranker, rule: Rule, counts: RankCounts, seen: Observed
) -> CountedDiscoveries:
    """Decide for all rows whose ranks were counted, exactly as if they had been one batch.

    Parameters
    ----------
    cad : ConformalDetector
        The one that ranked them.
    rule : Rule
    counts : RankCounts
    seen : Observed

    Returns
    -------
    CountedDiscoveries
    """
    as_one = seen.together is not None or seen.choice is not None
    grid = rule.counting_grid(cad, "what is merged", together=as_one)
    decision = rule.decide_counts(counts, grid)
    every = np.arange(1, len(counts.counts))
    codes = None if cad.joint is None else cad.joint.apart(every)[0]
    tally = _OfRows(codes, grid.values(every), decision.mask(every), counts.counts[1:])
    facts = _facts(cad, rule, grid, decision.tested, seen, _groups(cad, rule, grid, tally))
    if seen.choice is not None:
        alone = partial(_alone, cad, rule)
        facts["choice"] = seen.choice.candidates(decision.mask(np.arange(len(every) + 1)), alone)
        _LOG.info("%s", choice_sentence(facts["choice"]))
    return CountedDiscoveries(
        decision=decision,
        rank_counts=counts,
        p_threshold=decision.p_threshold,
        **facts,
    )


def provenance_of(cad: Ranker, against: FloatArray | None = None) -> Provenance:
    """Say where decisions of a detector come from: method, detector, sizes, seed, version.

    Parameters
    ----------
    cad : ConformalDetector
    against : float array, optional
        The calibration scores, where they depend on the new rows.
    """
    return Provenance(
        detector=repr(cad.detector),
        method=repr(cad.method),
        scheme=cad.plan_.scheme,
        variant=cad.plan_.variant,
        n_reference=cad.plan_.n,
        n_calibration=cad.n_calibration_,
        n_features=cad.n_features_in_,
        calibration_scores=cad.calibration_.scores if against is None else against,
        calibration_fingerprint=cad.calibration_.fingerprint,
        feature_names=cad._names(),
        random_state=repr(cad.random_state),
        version=version("reconform"),
        joint=cad.joint,
        one_split=len(cad.plan_.repeats) == 1
        and cad.joint is None
        and (
            cad.plan_.fits_batch or (cad.plan_.scheme in ("split", "prefit") and not cad.uses_batch)
        ),
    )


@dataclass(frozen=True, eq=False)
class _OfRows:
    """Rows, or kinds of rows that occur `counts` times: what says what became of each group."""

    codes: IndexArray | None
    p_values: FloatArray
    mask: BoolArray
    counts: RankArray | None = None


def _groups(cad: Ranker, rule: Rule, grid: Grid, rows: _OfRows) -> tuple[GroupFound, ...]:
    """What became of every group; nothing where there are none."""
    if cad.grouping_ is None:
        return ()
    codes = np.zeros(len(rows.mask), dtype=np.intp) if rows.codes is None else rows.codes
    if rule.whole_batch(cad) is not None:  # made from ranks, whatever the p-values are worth
        sizes = [cad.n_calibration_] if cad.joint is None else cad.joint.sizes.tolist()
        least = [Fraction(1, n + 1) for n in sizes]
    else:
        least = grid.smallest_of_each()
    return found_in_groups(
        cad.grouping_, least, codes, rows.p_values, rows.mask, counts=rows.counts
    )


def _facts(
    cad: Ranker,
    rule: Rule,
    grid: Grid,
    m: int,
    seen: Observed,
    groups: tuple[GroupFound, ...] = (),
) -> dict[str, Any]:
    """What every list says of itself, whatever the source of the rows."""
    categories = seen.categories
    if categories is None:
        categories = cad._intake.categories() or {
            j: Category() for j in category_columns(cad.detector)
        }
    # A certified list is made from ranks, whatever the p-values beside it are worth.
    by_ranks = rule.whole_batch(cad) is not None
    found = () if seen.together is None else unused_batch(seen.together.clumped)
    reference, sample = cad.reference_sample_, seen.sample
    ours, theirs = cad._sample_groups, seen.sample_groups
    if cad.joint is not None and reference is not None and sample is not None:
        assert ours is not None
        assert theirs is not None
        reference, sample = alike_in_groups(reference, ours, sample, theirs)
    unknown = sum(group.rows for group in groups if group.name == POOLED)
    smallest = None if by_ranks else grid.smallest
    return {
        "procedure": rule.procedure,
        "fdr": None if rule.false_alarms is not None else float(rule.level),
        "false_alarms": None if rule.false_alarms is None else float(rule.level),
        "top": rule.top,
        "claim": rule.sentence(cad, doubtful=unknown),
        "compared": Compared(reference, sample, cad._names(), found, categories, seen.monotone),
        "provenance": provenance_of(cad, None if seen.together is None else seen.together.against),
        "warning": _warning(cad, rule, m, smallest)
        if cad.joint is None
        else _warning_in_groups(rule, m, groups),
        "groups": groups,
    }


def _warning_in_groups(rule: Rule, m: int, groups: tuple[GroupFound, ...]) -> str | None:
    """Name the groups that are too small for any of their rows to be flagged in this list."""
    shortest = [rule.smallest_list(one.calibration, m, smallest_p=one.least_p) for one in groups]
    said = out_of_reach(groups, sum(one.flagged for one in groups), shortest)
    return " ".join(said) or None


def _warning(cad: Ranker, rule: Rule, m: int, smallest_p: Fraction | None) -> str | None:
    """Say what may keep anomalies from being flagged, whatever they are like."""
    few = rule.warning(cad.n_calibration_, m, n_reference=cad.plan_.n, smallest_p=smallest_p)
    more = None
    if cad.plan_.scheme == "batch":
        more = (
            "One model was fitted on all new rows, too: anomalies that resemble each other, and "
            "are many, look normal to it. Compare with `method='full'` if many rows may be "
            "anomalies."
        )
    elif cad.plan_.scheme == "learned" and cad.plan_.n < ENOUGH_TO_LEARN:
        more = (
            f"A classifier learned from {cad.plan_.n:,} reference rows, which is little: with "
            f"fewer than {ENOUGH_TO_LEARN:,}, 'full' and 'batch' find more."
        )
    return " ".join(said for said in (few, more) if said is not None) or None


def _alone(cad: Ranker, rule: Rule, by_rank: RankArray) -> int:
    """Count what a plain list of rows would have, of which so many have rank 0, 1, ..."""
    counts = cad.no_counts().add_counts(by_rank)
    plain = replace(rule, validity="nominal", conditional=None)
    if cad.joint is None:
        return plain.decide_counts(counts, usual(cad.n_calibration_)).count
    grid = JointGrid.of([usual(n) for n in cad.joint.sizes.tolist()])
    return plain.decide_counts(counts, grid).count


def _worlds(
    cad: Ranker,
    read: Callable[[], FloatArray],
    ranks: Ranks,
    candidates: RankArray,
    step: Any,
) -> Iterator[tuple[int, Worlds]]:
    """`Ensemble.worlds` of new rows, with a bar where it was asked for."""
    choice, fitted = ranks.choice, cad.ensemble_
    if isinstance(fitted, GroupedEnsemble):
        assert cad.joint is not None
        assert ranks.groups is not None
        within = replace(cad.joint.within(ranks)[0], choice=choice)
        every = fitted.worlds_in(read(), ranks.groups, candidates, step, within)
    elif choice is not None and isinstance(fitted, ChoiceEnsemble):
        every = fitted.worlds_of_choice(read(), candidates, step, choice)
    else:
        every = fitted.worlds(read(), candidates, step)
    return track(every, total=len(candidates), label="certifying rows", verbose=cad.verbose)
