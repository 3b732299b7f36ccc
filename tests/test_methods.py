import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold, RepeatedKFold, ShuffleSplit

from reconform import Bootstrap, CrossValidation, Jackknife, Prefit, Resampling, Split
from reconform.methods import resolve_method
from refusals import refused

METHODS = [Split(), Jackknife(), CrossValidation(folds=3), Bootstrap(draws=7), Prefit()]


def same(a, b):
    return len(a.train) == len(b.train) and all(
        np.array_equal(s, t) for s, t in zip(a.train, b.train, strict=True)
    )


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_held_out_rows_are_those_that_do_not_train(method):
    plan = method.plan(23, random_state=1)
    assert len(plan.train) == len(plan.held_out) == plan.n_models
    for train, held in zip(plan.train, plan.held_out, strict=True):
        assert np.array_equal(held, np.setdiff1d(np.arange(23), train))


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_planning_is_pure_and_seeded(method):
    before = repr(method.get_params())
    first, again = method.plan(40, random_state=5), method.plan(40, random_state=5)
    assert same(first, again)
    assert repr(clone(method).get_params()) == repr(method.get_params()) == before
    seed = np.random.SeedSequence(5)
    assert same(method.plan(40, random_state=seed), method.plan(40, random_state=seed))
    if not isinstance(method, Jackknife | Prefit):
        assert not same(first, method.plan(40, random_state=6))


@given(n=st.integers(2, 60), folds=st.integers(2, 12))
def test_fold_sizes_differ_by_at_most_one_and_cover_every_row_once(n, folds):
    if folds > n:
        return
    plan = CrossValidation(folds=folds).plan(n, random_state=n)
    sizes = [len(held) for held in plan.held_out]
    assert max(sizes) - min(sizes) <= 1
    assert np.array_equal(np.sort(np.concatenate(list(plan.held_out))), np.arange(n))


def test_bootstrap_draws_n_rows_with_replacement():
    plan = Bootstrap(draws=50).plan(100, random_state=0)
    assert all(len(train) == 100 for train in plan.train)
    # About 1/e of the rows are out of bag. 50 x 100 rows: a share outside 0.33 .. 0.41 would be
    # more than 5 standard errors away (probability below 1e-6).
    share = np.mean([len(held) for held in plan.held_out]) / 100
    assert 0.33 < share < 0.41


def test_jackknife_plans_are_lazy():
    plan = Jackknife().plan(1_000_000)
    assert plan.leaves_one_out
    assert plan.n_models == 1_000_000
    assert np.array_equal(plan.held_out[999_999], [999_999])
    assert len(plan.train[5]) == 999_999
    with pytest.raises(IndexError):
        plan.train[1_000_000]


def test_membership_lists_the_models_that_held_a_row_out():
    plan = Resampling([[0, 0, 1], [0, 1], [0, 2, 3]]).plan(4)
    rows, indptr, models = plan.membership
    # row 0 trains every model and so leaves the calibration set
    assert rows.tolist() == [1, 2, 3]
    sets = [models[a:b].tolist() for a, b in zip(indptr[:-1], indptr[1:], strict=True)]
    assert sets == [[2], [0, 1], [0, 1]]


@pytest.mark.parametrize(
    ("method", "calibration"), [(Split(0.5), 6), (Split(0.25), 3), (Split(4), 4), (Split(1), 1)]
)
def test_split_takes_a_share_or_a_number(method, calibration):
    assert len(method.plan(11, random_state=0).held_out[0]) == calibration


@pytest.mark.parametrize(
    "splitter",
    [RepeatedKFold(n_splits=3, n_repeats=2), ShuffleSplit(n_splits=4, test_size=0.3), KFold(4)],
    ids=lambda s: type(s).__name__,
)
def test_resampling_takes_any_splitter_and_leaves_it_alone(splitter):
    plan = Resampling(splitter).plan(20, random_state=3)
    assert same(plan, Resampling(splitter).plan(20, random_state=3))
    assert plan.n_models == splitter.get_n_splits()
    assert splitter.random_state is None


def test_a_splitter_with_a_seed_keeps_it():
    splitter = ShuffleSplit(n_splits=2, random_state=11)
    first = Resampling(splitter).plan(20, random_state=1)
    assert same(first, Resampling(splitter).plan(20, random_state=2))
    splitter = ShuffleSplit(n_splits=2, random_state=np.random.RandomState(0))  # is not spent
    assert same(Resampling(splitter).plan(20), Resampling(splitter).plan(20))


@pytest.mark.parametrize(
    ("method", "n", "words"),
    [
        (Split(0.0), 10, "calibration must be a number strictly between 0 and 1"),
        (Split(10), 10, "leaves none for training"),
        (CrossValidation(folds=11), 10, "folds=11` needs at least 11 rows; got 10"),
        (CrossValidation(folds=1), 10, "folds must be an integer of at least 2"),
        (CrossValidation(variant="plsu"), 10, "Did you mean 'plus'"),
        (Jackknife(variant="minus"), 10, "variant must be one of"),
        (Bootstrap(draws=0), 10, "draws must be an integer of at least 1"),
        (Bootstrap(draws=True), 10, "draws must be an integer"),
        (Bootstrap(aggregate="medain"), 10, "Did you mean 'median'"),
        (Bootstrap(aggregate=1.5), 10, r"quantile must lie in \[0, 1\]"),
        (Bootstrap(aggregate=None), 10, "aggregate must be"),
        (Resampling([]), 10, "at least one training set"),
        (Resampling([[0, 10]]), 10, "row indices from 0 to 10"),
        (Resampling([[-1, 0]]), 10, "row indices from -1"),
        (Resampling([[0.5]]), 10, "array of row indices"),
        (Resampling([[]]), 10, "non-empty"),
        (Resampling([[0, 1, 2]]), 3, "no row is held out"),
        (Resampling(GroupKFold(2)), 10, r"fit\(X, blocks=...\)"),
    ],
    ids=lambda value: repr(value) if not isinstance(value, int) else "",
)
def test_what_cannot_be_planned_is_refused_in_words(method, n, words):
    refused(words, method.plan, n)


def test_names():
    assert repr(resolve_method("jab")) == repr(Bootstrap(variant="basic"))
    assert repr(resolve_method("jackknife+")) == repr(Jackknife(variant="plus"))
    refused("Did you mean 'jackknife'", resolve_method, "jacknife")
    refused("method must be a name", resolve_method, 3)
