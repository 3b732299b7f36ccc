"""From ranks to a list: what a rule decides for new rows, and what the list says of itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import FloatArray, IndexArray
from .assumption import (
    Category,
    Compared,
    InOrder,
    alike_in_groups,
    in_runs,
    new_rows,
)
from .detectors.prepared import category_columns
from .discoveries import CountedDiscoveries, Discoveries, Provenance
from .explain import explainer_for
from .explain.features import Words
from .grouping import GroupFound
from .rule import Rule
from .statistics.conditional_calibration import cost_sentence
from .statistics.exact import Grid
from .statistics.fdr import RankCounts
from .statistics.ranks import Candidate, Choice, Chosen, Ranks, by_evidence, choice_sentence
from .weights import Weights

if TYPE_CHECKING:
    from .detector import ConformalDetector
from .deciding import ByGrid, Decider, JudgedRows, decider_for, weighable

_LOG = logging.getLogger(__name__)


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
        As in `reconform.explain.Explainer`.
    times : float array of shape (m,), optional
        Seconds, where the rows have a time.
    """

    read: Callable[[], FloatArray]
    ranks: Ranks
    p_values: FloatArray
    index: Any = None
    library: str | None = None
    categories: Mapping[int, Category] | None = None
    unlisted: Words | None = None
    times: FloatArray | None = None

    def in_order(self, X: FloatArray) -> InOrder:
        """The rows that the order is tested by."""
        seen, ranks = in_runs(len(X)), self.ranks
        return InOrder(
            np.asarray(X[seen]),
            ranks.scores[seen],
            None if self.times is None else self.times[seen],
            None if ranks.groups is None else ranks.groups[seen],
        )


@dataclass(frozen=True, eq=False)
class Observed:
    """What is known of new rows beside the counts of their ranks; all of it may be missing.

    Attributes
    ----------
    sample : float array of shape (t, d), optional
        Some of the rows (`reconform.assumption.Reservoir`), to check the assumption by.
    together : Ranks, optional
        Of all rows, where these are one batch that was ranked together.
    choice : Choice or Chosen, optional
        Which detectors were chosen: for every row of `together`, or one for all rows.
    categories : mapping, optional
        By position, what a reader of files knows of the columns that hold labels.
    sample_groups : int array of shape (t,), optional
        The groups of the sample (`codes_of`), where rows are ranked within several.
    in_order : InOrder, optional
        Some of the rows in their order.
    """

    sample: FloatArray | None = None
    together: Ranks | None = None
    choice: Choice | Chosen | None = None
    categories: Mapping[int, Category] | None = None
    sample_groups: IndexArray | None = None
    in_order: InOrder | None = None


def decided_in_memory(
    cad: ConformalDetector, rule: Rule, grid: Grid, new: NewRows, weights: Weights | None = None
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
    X, ranks = new.read(), new.ranks
    decider = decider_for(cad, rule, grid, weights)
    p_values, outcome = decider.decide(X, ranks, new.p_values)
    looked_at = new_rows(X)
    seen = Observed(
        np.array(X[looked_at]),
        ranks,
        None,
        new.categories,
        None if ranks.groups is None else ranks.groups[looked_at],
        new.in_order(X),
    )
    groups = decider.groups(JudgedRows(ranks.groups, p_values, outcome.mask))
    facts = _facts(decider, len(p_values), seen, groups)
    if outcome.plain is not None:
        said = facts["claim"]
        cost = cost_sentence(outcome.mask, outcome.plain)
        facts["claim"] = replace(said, full=f"{said.full} {cost}")
    if ranks.choice is not None:
        facts["choice"] = _logged(decider.choice(ranks.choice, outcome.mask))
    return Discoveries(
        mask=outcome.mask,
        p_values=p_values,
        q_values=outcome.q_values,
        scores=ranks.scores,
        ranks=ranks.at_most if decider.on_grid else None,
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
        row_groups=cad.grouping_.labels(ranks.groups, len(X))
        if cad.grouping_ is not None and groups
        else None,
        p_threshold=float(p_values[outcome.mask].max(initial=0.0)),
        **facts,
    )


def decided_by_counts(
    cad: ConformalDetector, rule: Rule, counts: RankCounts, seen: Observed
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
    grid = rule.counting_grid(cad, "what is merged", "whole" if as_one else "parts")
    decider = ByGrid(cad, rule, grid)
    decision = rule.decide_counts(counts, grid)
    every = np.arange(1, len(counts.counts))
    codes = None if cad.joint is None else cad.joint.apart(every)[0]
    tally = JudgedRows(codes, grid.values(every), decision.mask(every), counts.counts[1:])
    facts = _facts(decider, decision.tested, seen, decider.groups(tally))
    if isinstance(seen.choice, Chosen):
        one = np.arange(len(seen.choice.names)) == seen.choice.index
        numbers = (one * decision.tested).tolist(), (one * decision.count).tolist()
        facts["choice"] = _logged(by_evidence(seen.choice.names, seen.choice.evidence, *numbers))
    elif seen.choice is not None:
        assert seen.together is not None
        facts["choice"] = _logged(decider.choice(seen.choice, decision.mask(seen.together.at_most)))
    return CountedDiscoveries(
        decision=decision,
        rank_counts=counts,
        p_threshold=decision.p_threshold,
        **facts,
    )


def provenance_of(cad: ConformalDetector, against: FloatArray | None = None) -> Provenance:
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
        left_out=cad.left_out_,
        one_split=len(cad.plan_.repeats) == 1
        and not cad.left_out_
        and cad.joint is None
        and (bool(cad.plan_.row.fits_batch) or (cad.plan_.one_model and cad.ranks_rows != "batch")),
    )


def _logged(candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Log which detectors were chosen, where that is known."""
    if candidates:
        _LOG.info("%s", choice_sentence(candidates))
    return candidates


def _facts(
    decider: Decider, m: int, seen: Observed, groups: tuple[GroupFound, ...]
) -> dict[str, Any]:
    """What every list says of itself, whatever the source of the rows."""
    cad, rule = decider.cad, decider.rule
    categories = seen.categories
    if categories is None:
        categories = cad._intake.categories() or {
            j: Category() for j in category_columns(cad.detector)
        }
    reference, sample = cad.reference_sample_, seen.sample
    ours, theirs = cad._sample_groups, seen.sample_groups
    if cad.joint is not None and reference is not None and sample is not None:
        assert ours is not None
        assert theirs is not None
        reference, sample = alike_in_groups(reference, ours, sample, theirs)
    looked_up = cad._looked_up if cad.joint is None else None
    return {
        "procedure": rule.procedure,
        "fdr": None if rule.false_alarms is not None else float(rule.level),
        "false_alarms": None if rule.false_alarms is None else float(rule.level),
        "top": rule.top,
        "claim": decider.claim(groups),
        "compared": Compared(
            reference,
            sample,
            cad._names(),
            decider.findings(seen.together),
            categories,
            weighted=decider.weights is not None,
            weighable=weighable(cad, rule, m),
            looked_up=looked_up,
            learned=seen.together is not None and seen.together.learned,
            order=cad.order_,
            in_order=seen.in_order,
        ),
        "provenance": provenance_of(cad, None if seen.together is None else seen.together.against),
        "warning": decider.warning(m, groups),
        "weights": decider.weights,
        "groups": groups,
    }
