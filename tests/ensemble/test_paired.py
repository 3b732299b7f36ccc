"""The plus comparison: compiled kernels against a literal loop, exactly, ties included."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconform import parallel
from reconform.methods import Bootstrap, CrossValidation, Jackknife, Plan
from reconform.statistics import ranks as pvalues
from reconform.statistics.ranks import Calibration, calibrate, ranks_paired, reduction
from refusals import refused

# np.median and np.quantile warn where they make NaN of infinities; the kernels need not.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:numpy")


def spread(scores):
    return scores.max() - scores.min()


AGGREGATES = ["median", "mean", "min", "max", 0.0, 0.25, 0.3, 0.5, 0.77, 1.0, spread, np.median]
SPECIAL = [-np.inf, -1.7e308, -1.0, 0.0, 5e-324, 0.1, 0.3, 0.5, 1.0, 1.7e308, np.inf]


def literal_phi(aggregate, scores):
    """φ of the scores of one row, as the documentation of `aggregate` says."""
    if aggregate == "mean":
        total = scores[0]
        for score in scores[1:]:
            total = total + score
        return total / len(scores)
    named = {"median": np.median, "min": np.min, "max": np.max}
    if isinstance(aggregate, str):
        return named[aggregate](scores)
    return aggregate(scores) if callable(aggregate) else np.quantile(scores, aggregate)


def literal_ranks(calibration, scores, aggregate, strictly):
    ranks = []
    for x in range(scores.shape[1]):
        rank = 1
        for i, c in enumerate(calibration.scores):
            K_i = calibration.models[calibration.indptr[i] : calibration.indptr[i + 1]]
            t = literal_phi(aggregate, scores[K_i, x])
            rank += bool(c < t if strictly else c <= t)
        ranks.append(rank)
    return ranks


def memberships(rng, shape, n_models, n):
    """K_i for n rows."""
    if shape == "one":
        return [[k] for k in rng.integers(0, n_models, n)]
    if shape == "leave one out":
        return [[i % n_models] for i in range(n)]
    if shape == "all":
        return [range(n_models)] * n
    if shape == "two":
        return [np.sort(rng.choice(n_models, min(2, n_models), replace=False)) for _ in range(n)]
    sizes = rng.integers(1, n_models + 1, n)
    if shape == "bootstrap":
        sizes = np.clip(rng.binomial(n_models, 0.37, n), 1, None)
    return [np.sort(rng.choice(n_models, size, replace=False)) for size in sizes]


@st.composite
def comparisons(draw, aggregates=tuple(AGGREGATES), least_rows=0):
    """A calibration, test scores and φ, with scores of few values or of many."""
    aggregate = draw(st.sampled_from(aggregates))
    shape = draw(st.sampled_from(["one", "leave one out", "two", "all", "bootstrap", "any"]))
    n_models = draw(st.sampled_from([1, 2, 3, 6, 63, 64, 65, 129, 200]))
    n, m = draw(st.integers(0, 12)), draw(st.integers(least_rows, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = draw(st.lists(st.sampled_from(SPECIAL), max_size=5))
    values = np.array(values) if values else rng.normal(size=500)
    scores = rng.choice(values, (n_models, m))
    K = memberships(rng, shape, n_models, n)
    c = np.empty(n)
    with np.errstate(all="ignore"):
        for i in range(n):
            # A value that others have, φ of others, or the very t_i of some test row.
            drawn = rng.choice(values, n_models)
            kind = rng.integers(3 if m else 2)
            source = scores[:, rng.integers(m)] if kind == 2 else drawn
            c[i] = drawn[0] if kind == 0 else literal_phi(aggregate, source[K[i]])
    return calibration_of(c, K), scores, aggregate


def calibration_of(c, K):
    indptr = np.cumsum([0, *(len(K_i) for K_i in K)])
    models = np.array([k for K_i in K for k in K_i], dtype=np.int32)
    return Calibration(np.asarray(c, dtype=float), np.arange(len(c)), indptr, models)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("strictly", [False, True])
@given(case=comparisons())
@settings(max_examples=800)
def test_ranks_equal_a_literal_loop(strictly, case):
    calibration, scores, aggregate = case
    ranks = ranks_paired(calibration, scores, aggregate, strictly=strictly)
    assert ranks.dtype == np.int64
    with np.errstate(all="ignore"):
        assert ranks.tolist() == literal_ranks(calibration, scores, aggregate, strictly)


# Not the spread: of a single score it is zero, and ties with every other.
@pytest.mark.parametrize("aggregate", [a for a in AGGREGATES if a is not spread])
@pytest.mark.parametrize("draws", [10, 300])
def test_a_copy_of_a_reference_row_ties_with_it(draws, aggregate):
    # A test row that scores like row i under every model has t_i = c_i to the last bit: it is
    # counted, and strictly it is not. All other comparisons are the same both ways.
    rng = np.random.default_rng(3)
    plan = Bootstrap(draws=draws).plan(40, random_state=0)
    all_scores = rng.normal(size=(draws, 40))
    held_out = [all_scores[k, H_k] for k, H_k in enumerate(plan.held_out)]
    calibration = calibrate(plan, held_out, reduction(aggregate))
    copies = all_scores[:, calibration.rows]
    at_most = ranks_paired(calibration, copies, aggregate)
    below = ranks_paired(calibration, copies, aggregate, strictly=True)
    assert (at_most - below == 1).all()


@given(case=comparisons(aggregates=("median", "mean", 0.3, "max"), least_rows=1))
@settings(max_examples=40)
def test_threads_batches_and_blocks_never_change_a_number(case):
    calibration, scores, aggregate = case
    together = ranks_paired(calibration, scores, aggregate).tolist()
    columns = [scores[:, [x]] for x in range(scores.shape[1])]
    assert [ranks_paired(calibration, one, aggregate)[0] for one in columns] == together
    assert ranks_paired(calibration, np.asfortranarray(scores), aggregate).tolist() == together
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "LEAST_WORK", 0)
        patch.setattr(pvalues, "BLOCK_BYTES", 64)
        assert ranks_paired(calibration, scores, aggregate, n_jobs=2).tolist() == together


@pytest.mark.parametrize("aggregate", ["median", "mean", "max", 0.3])
@pytest.mark.parametrize("method", [Bootstrap(draws=70), CrossValidation(folds=3)])
def test_threads_share_a_large_batch(method, aggregate, monkeypatch):
    # More rows per thread than the mean carries at once.
    monkeypatch.setattr(parallel, "LEAST_WORK", 0)
    rng = np.random.default_rng(5)
    plan = method.plan(50, random_state=0)
    held_out = [rng.normal(size=len(H_k)) for H_k in plan.held_out]
    calibration = calibrate(plan, held_out, reduction(aggregate))
    scores = rng.normal(size=(plan.n_models, 4001))
    alone = ranks_paired(calibration, scores, aggregate)
    assert np.array_equal(alone, ranks_paired(calibration, scores, aggregate, n_jobs=2))
    assert np.array_equal(alone, ranks_paired(calibration, scores, reduction_by_axis(aggregate)))


def reduction_by_axis(aggregate):
    """φ as a callable, which sends the comparison the plain way."""

    def phi(scores, axis):
        return reduction(aggregate)(scores)

    return phi


def test_halves_are_those_of_np_median():
    # (a + b) / 2 and the interpolation of np.quantile differ in the last bit here.
    a, b = 0.01, 0.06
    half, quantile = np.median([a, b]), np.quantile([a, b], 0.5)
    assert half != quantile
    for aggregate, c in [("median", half), (0.5, quantile)]:
        for nudged, expected in [(np.nextafter(c, -1), 2), (c, 2), (np.nextafter(c, 1), 1)]:
            calibration = calibration_of([nudged], [[0, 1]])
            assert ranks_paired(calibration, np.array([[a], [b]]), aggregate) == expected


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize(
    "method", [Jackknife(), CrossValidation(folds=3), Bootstrap(draws=9), Bootstrap(draws=90)]
)
def test_calibration_is_that_of_a_literal_loop(method, aggregate):
    rng = np.random.default_rng(2)
    plan = method.plan(30, random_state=0)
    table = rng.normal(size=(plan.n_models, 30))
    held_out = [table[k, H_k] for k, H_k in enumerate(plan.held_out)]
    calibration = calibrate(plan, held_out, reduction(aggregate))
    K = {i: [k for k in range(plan.n_models) if i in plan.held_out[k]] for i in range(30)}
    rows = [i for i in range(30) if K[i]]
    assert calibration.rows.tolist() == rows
    assert calibration.models.tolist() == [k for i in rows for k in K[i]]
    expected = [literal_phi(aggregate, table[K[i], i]) for i in rows]
    assert calibration.scores.tolist() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pvalues, "BLOCK_BYTES", 64)
        assert calibrate(plan, held_out, reduction(aggregate)).scores.tolist() == expected


def test_leave_one_out_takes_one_array_or_many():
    plan, scores = Jackknife().plan(6), np.arange(6.0) ** 2
    literal = Plan(6, plan.train, tuple(plan.held_out))
    assert plan.leaves_one_out
    assert not literal.leaves_one_out
    for given_scores in (scores[:, None], [scores[[i]] for i in range(6)]):
        for same_plan in (plan, literal):
            calibration = calibrate(same_plan, given_scores, reduction("median"))
            assert calibration.scores.tolist() == scores.tolist()
            assert calibration.models.tolist() == list(range(6))


@pytest.mark.parametrize("bad", [lambda s, axis: s.mean(), lambda s: s])
def test_a_callable_must_give_one_number_per_row(bad):
    refused("one number", reduction(bad), np.ones((3, 4)))
