"""The slow road: every model of a plan fitted by itself, and what it means to be equal to that."""

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ShuffleSplit

from reconform import Bootstrap, CrossValidation, Jackknife, Resampling, Split
from reconform.ensemble.refitting import RefitEnsemble
from reconform.statistics.ranks import calibrate, reduction

SEED = np.random.SeedSequence(20261118)
VARIANTS = ("plus", "basic", "pooled")


def plans(n, variant="plus"):
    """Every way to resample; in the last, rows are repeated and row 0 is held out by no model."""
    rng = np.random.default_rng(3)
    sets = [np.append(rng.integers(2, n, size), np.zeros(3, int)) for size in (n, n, 3, 2 * n, 9)]
    methods = {
        "jackknife": Jackknife(variant),
        "cv": CrossValidation(4, variant),
        "bootstrap": Bootstrap(9, variant=variant),
        "mean of bootstrap": Bootstrap(8, aggregate="mean", variant=variant),
        "small sets": Resampling(ShuffleSplit(4, train_size=6, random_state=0), variant=variant),
        "multisets": Resampling([*sets, np.repeat(np.arange(0, n, 2), 3)], variant=variant),
    }
    if variant == "plus":
        methods["split"] = Split(0.3)
    return {name: method.plan(n, random_state=0) for name, method in methods.items()}


def seeds_for(detector, plan):
    """One for each model; where leave-one-out shares what it draws, all have the last."""
    if plan.leaves_one_out and getattr(detector, "share", None) is True:
        return [SEED] * (plan.n_models + 1)
    return SEED.spawn(plan.n_models + 1)


def refits(detector, X, plan, seeds):
    """The slow road: every model is fitted through the public door, on its own rows."""

    def fit(rows, seed):
        drawn = {"random_state": seed} if "random_state" in detector.get_params() else {}
        return clone(detector).set_params(**drawn).fit(X[rows])

    models = [fit(rows, seed) for rows, seed in zip(plan.train, seeds, strict=False)]
    full = fit(slice(None), seeds[-1]) if plan.full else models[0]
    pairs = zip(models, plan.held_out, strict=True)
    held = [m.score_samples(X[rows]) if len(rows) else np.empty(0) for m, rows in pairs]
    calibration = calibrate(plan, held, reduction(plan.aggregate))
    return RefitEnsemble(plan, calibration, models if plan.full else [], full)


def assert_same_ranks(ours, theirs):
    for name in ("at_most", "below", "scores"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def assert_same_ensemble(fast, slow, new):
    """Calibration, scores, and the ranks of every variant."""
    assert fast.calibration.fingerprint == slow.calibration.fingerprint
    for name in ("scores", "rows", "indptr", "models"):
        expected = getattr(slow.calibration, name)
        np.testing.assert_array_equal(getattr(fast.calibration, name), expected)
    np.testing.assert_array_equal(fast.full_scores(new), slow.full_scores(new))
    if slow.plan.full:
        assert fast.retained
        np.testing.assert_array_equal(fast.scores(new), slow.scores(new))
    for variant in VARIANTS:
        ours = fast.ranks(new, variant=variant, strictly=True)
        assert_same_ranks(ours, slow.ranks(new, variant=variant, strictly=True))
        assert fast.ranks(new, variant=variant).below is None


def fits(detector, plan):
    """Whether every model of a plan has as many rows as the detector needs."""
    return min(map(len, plan.train)) >= getattr(detector, "n_neighbors", 2)
