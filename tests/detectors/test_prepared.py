"""Missing numbers and categories inside a detector that scales: what separate fits give."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.svm import OneClassSVM

from enumeration import excess, judged, mean_e
from oracle import p_value, phi_of
from reconform import ConformalDetector, Prepare, methods
from reconform.content import Contents, RowStreams
from reconform.detectors import KDE, LOF, Auto, IForest, Mahalanobis, Rarity
from reconform.detectors.contrast import Contrast
from reconform.detectors.inne import INNE
from reconform.detectors.knn import KNN
from reconform.detectors.prepare import prepared
from reconform.detectors.prepared import Prepared, PreparedUnits
from reconform.detectors.scaled import ScaledEnsemble, ScaledFull
from reconform.frames import label_code
from reconform.statistics.conditional_calibration import StepUp, e_value_of_one_model
from reconform.tables import Feature
from reconform.tables.uses import rows_of_frame
from refusals import refused

LABELS = (0, 3, 0, 2)
MAUVE, OCHRE = label_code("mauve"), label_code("ochre")


def by_hand(train, rows, labels=LABELS, *, draws=False):
    """What docs/methods.md says of `--prepare`, column by column, with plain lists."""
    numbers, flags, encoded = [], [], []
    for j, count in enumerate(labels):
        column = rows[:, j].tolist()
        if count:
            there = set(train[:, j].tolist())
            own = sorted(code for code in there if not math.isnan(code) and code >= count)
            known = sorted([*(c for c in range(count) if c in there or not draws), *own[:1]])
            places = [*known, "missing", "other"]

            def place(code, known=known):
                if math.isnan(code):
                    return "missing"
                return code if code in known else "other"

            encoded += [[float(place(code) == where) for code in column] for where in places]
            continue
        values = sorted(value for value in train[:, j].tolist() if not math.isnan(value))
        n, spread = len(values), 0.0
        trims, trim = [], n // 4
        while trim > 1:
            trims.append(trim)
            trim //= 4
        for trim in [*trims, 1] if n > 2 else []:
            spread = values[n - 1 - trim] - values[trim]
            if spread > 0:
                break
        scale = 2.0 ** round(math.log2(spread / 1.349)) if spread > 0 else 1.0
        median = round(values[(n - 1) // 2] / scale * 4) / 4 if n else 0.0
        numbers.append([median if math.isnan(x) else x / scale for x in column])
        if np.isnan(train[:, j]).any():
            flags.append([float(math.isnan(x)) for x in column])
    return np.array([*numbers, *flags, *encoded]).T.copy()


def mixed(n=26, m=10, seed=3):
    """Ties, copies, missing values in both kinds of columns, rare labels and unseen ones."""
    rng = np.random.default_rng(seed)
    rows = np.column_stack(
        [
            rng.standard_t(3, n + m) * 1e3,
            rng.choice([0.0, 1.0, 2.0], n + m, p=[0.6, 0.36, 0.04]),
            rng.poisson(1.0, n + m),
            rng.integers(0, 2, n + m),
        ]
    )
    rows[rng.random(n + m) < 0.15, 0] = np.nan
    rows[[4, n + 1], 1] = np.nan
    rows[5, 1] = 2.0
    rows[7, 2] = np.nan  # the only one in the reference
    rows[9] = rows[10]
    rows[n + 2, 1], rows[n + 3, 1], rows[n + 4, 3] = MAUVE, OCHRE, MAUVE
    rows[n + 5, 2] = np.nan
    rows[n + 6] = rows[0]
    return rows[:n], rows[n:]


DETECTORS = {
    "knn": Prepared(KNN(n_neighbors=3, scale="robust"), LABELS),
    "mean": Prepared(KNN(n_neighbors=3, method="mean", metric="manhattan"), LABELS),
    "inne": Prepared(INNE(n_estimators=10, max_samples=4, share=False), LABELS),
    "inne, shared": Prepared(INNE(n_estimators=10, max_samples=4, share=True), LABELS),
}
SCALED = {
    "scaled knn": KNN(n_neighbors=3, scale="robust"),
    "scaled mean": KNN(n_neighbors=3, method="mean", metric="sqeuclidean", scale="robust"),
    "manhattan": KNN(n_neighbors=2, method="median", metric="manhattan", scale="robust"),
    "scaled lof": LOF(n_neighbors=3, scale="robust"),
    "scaled inne": INNE(n_estimators=12, max_samples=4, share=False, scale="robust"),
    "scaled inne, shared": INNE(n_estimators=12, max_samples=4, share=True, scale="robust"),
}
PLANNED = [(which, "mixed") for which in DETECTORS]
PLANNED += [(which, name) for which in SCALED for name in ("smooth", "lattice", "copies")]


def data(name, n=24, m=9, seed=26):
    if name == "mixed":
        return mixed()
    rng = np.random.default_rng(seed)
    rows = rng.standard_t(3, size=(n + m, 3)) * [1.0, 1e-3, 1e4]
    if name == "lattice":  # many ties, and a column where most values are equal
        rows = np.column_stack([rng.poisson([0.2, 2.0, 9.0], size=(n + m, 3)), np.full(n + m, 3.7)])
    if name == "copies":
        rows[n // 2 : n] = rows[: n - n // 2]
        rows[n + 1] = rows[0]
    rows[-1] *= 30.0
    return rows[:n].astype(float), rows[n:].astype(float)


def measured(detector, train, rows):
    """Rows as a plain detector sees them; without labels, units are all there is."""
    if isinstance(detector, Prepared):
        return by_hand(train, rows, draws=isinstance(detector.detector, INNE))
    return by_hand(train, rows, (0,) * rows.shape[1])


METHODS = {
    "jackknife+": methods.Jackknife(),
    "jackknife": methods.Jackknife("basic"),
    "pooled": methods.Jackknife("pooled"),
    "cv+": methods.CrossValidation(folds=4),
    "cv": methods.CrossValidation(folds=4, variant="basic"),
    "jab+": methods.Bootstrap(draws=7),
    "jab": methods.Bootstrap(draws=7, variant="basic"),
    "pooled jab": methods.Bootstrap(draws=6, aggregate="mean", variant="pooled"),
    "sets": methods.Resampling([np.arange(9), np.arange(5, 24), np.repeat([1, 4, 7, 9, 20], 2)]),
}


def plain(detector, seed):
    model = clone(getattr(detector, "detector", detector)).set_params(scale="none")
    return model.set_params(random_state=seed) if isinstance(model, INNE) else model


def separate(detector, train, seed=None):
    """A, as the oracle wants it: units written out, and one plain fit on its own."""
    model = plain(detector, seed).fit(measured(detector, train, train))
    return lambda rows: model.score_samples(measured(detector, train, rows))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("which", "name"), PLANNED)
def test_any_plan_gives_the_numbers_of_separate_fits(which, name, method):
    detector, (X, new) = (DETECTORS | SCALED)[which], data(name)
    plan = METHODS[method].plan(len(X), random_state=2)
    seed = np.random.SeedSequence(3)
    by_rows = RowStreams(seed, Contents.of(X))
    seeds = by_rows if plan.leaves_one_out else seed.spawn(plan.n_models + 1)
    ensemble = detector.fit_plan(X, plan, seeds)
    assert isinstance(ensemble, ScaledEnsemble)
    shared = which.endswith("shared") and plan.leaves_one_out
    of = [seeds[-1 if shared else k] for k in range(plan.n_models)]
    models = [separate(detector, X[T], one) for T, one in zip(plan.train, of, strict=True)]
    full = separate(detector, X, seeds[-1])
    ranks = ensemble.ranks(new, strictly=True)
    assert np.array_equal(ranks.scores, full(new))
    if which in SCALED:
        given = {"random_state": seeds[-1]} if "inne" in which else {}
        alone = clone(detector).set_params(**given).fit(X)
        assert np.array_equal(alone.score_samples(new), full(new))
    # The oracle fits in the order of the plan, and A(D) last.
    phi = phi_of(plan.aggregate)
    for j, x in enumerate(new):
        fits = iter([*models, full])
        expected = p_value(X, lambda rows, f=fits: next(f), x, plan.train, phi, plan.variant)
        assert ranks.at_most[j] == expected * (len(ensemble.calibration) + 1)
    if plan.variant != "basic":
        assert np.array_equal(ensemble.scores(new), [model(new) for model in models])
    else:
        refused("keeps only", ensemble.ranks, new, variant="plus")


@pytest.mark.parametrize(("which", "name"), PLANNED)
def test_full_gives_the_ranks_of_one_fit_per_new_row(which, name):
    detector, (X, new) = (DETECTORS | SCALED)[which], data(name)
    seed = np.random.SeedSequence(3)
    ensemble = detector.fit_plan(X, methods.Full().plan(len(X)), [seed])
    assert isinstance(ensemble, ScaledFull)
    ranks = ensemble.ranks(new, strictly=True)
    for j, x in enumerate(new):
        rows = np.vstack([X, x])
        seen = measured(detector, rows, rows)
        s = plain(detector, seed).fit(seen)._training_scores(seen)
        assert ranks.at_most[j] == 1 + (s[:-1] <= s[-1]).sum()
        assert ranks.below[j] == 1 + (s[:-1] < s[-1]).sum()
        assert ranks.scores[j] == s[-1]


@pytest.mark.parametrize("method", ["jackknife+", "jackknife", "full"])
def test_units_of_columns_do_not_matter(method):
    X, new = data("smooth", n=40)
    powers = 2.0 ** np.array([90, -30, 7])

    def ranks(scale, unit):
        cad = ConformalDetector(KNN(n_neighbors=3, scale=scale), method, random_state=0)
        return cad.fit(X * unit).ranks(new * unit)

    assert np.array_equal(ranks("robust", 1.0), ranks("robust", powers))
    assert not np.array_equal(ranks("none", 1.0), ranks("none", powers))


@pytest.mark.parametrize("method", ["full", "jackknife+", "cv+"])
@pytest.mark.parametrize("which", ["scaled knn", "scaled inne"])
def test_worlds_are_those_of_one_model_per_row(which, method):
    """The model is fitted on D and x_j, in their units, and scores everything."""
    X, new = data("copies", n=30, m=12)
    new[:3] += np.array([30.0, 0.03, 3e5])
    detector = SCALED[which]
    cad = ConformalDetector(detector, method, random_state=0).fit(X)
    step = StepUp.at(0.3, len(X), len(new))
    rows = np.flatnonzero(cad.ranks(new) <= step.limits[-1])
    assert len(rows) >= 3
    refit = cad.ensemble_ if method == "full" else cad.ensemble_.by_refitting
    for j, found in cad.ensemble_.e_values(new, rows, step):
        together, others = np.vstack([X, new[j]]), np.delete(new, j, axis=0)
        seen = measured(detector, together, together)
        model = plain(detector, getattr(refit, "seed", None)).fit(seen)
        outside = model.score_samples(measured(detector, together, others))
        assert found == e_value_of_one_model(model._training_scores(seen), outside, step)


def test_a_split_is_one_model():
    X, new = data("smooth")
    cad = ConformalDetector(SCALED["scaled knn"], methods.Split(repeats=3), random_state=0).fit(X)
    for part, plan in zip(cad.ensemble_.splits, cad.plan_.repeats, strict=True):
        fit = separate(SCALED["scaled knn"], X[plan.train[0]])
        assert np.array_equal(part.ranks(new).scores, fit(new))


def squares(rows):
    return ((rows[:, None] - rows) ** 2).sum(axis=2)


@pytest.mark.parametrize("which", ["knn", "inne"])
def test_units_with_one_row_more_or_less_are_those_of_the_rows(which):
    units, draws = PreparedUnits(DETECTORS[which]), which == "inne"
    for seed in range(30):
        X, new = mixed(n=12 + seed, seed=seed)
        X[seed % 12, 3] = [MAUVE, OCHRE, 1.0][seed % 3]  # an unlisted label in the reference
        for x, found in zip(new, units.with_each(X, new), strict=True):
            rows = np.vstack([X, x])
            measured, expected = units.measure(rows, found), by_hand(rows, rows, draws=draws)
            if draws:  # to the bit, and as if these were the rows of the reference
                assert np.array_equal(measured, expected)
                assert np.array_equal(found, units.of(rows))
            else:
                assert np.allclose(squares(measured), squares(expected), rtol=1e-14)
        for i, found in enumerate(units.without_each(X)):
            rest = np.delete(X, i, axis=0)
            assert np.array_equal(found, units.of(rest))
            assert np.array_equal(units.measure(new, found), by_hand(rest, new, draws=draws))


def test_which_list_of_labels_there_was_does_not_matter():
    """The list comes from the reference; ranks do not know which of E's rows it was."""
    X, new = mixed()
    X, new = X[:, :2], new[:, :2]
    turned, listed = (np.array(rows) for rows in (X, new))
    for rows in (turned, listed):  # another order, and label 2, which one row has, not listed
        codes = rows[:, 1].copy()
        rows[codes == 0, 1], rows[codes == 1, 1], rows[codes == 2, 1] = 1.0, 0.0, OCHRE - 5
    for method in ("jackknife+", "full"):
        here = ConformalDetector(Prepared(KNN(n_neighbors=2), (0, 3)), method, random_state=0)
        there = ConformalDetector(Prepared(KNN(n_neighbors=2), (0, 2)), method, random_state=0)
        assert np.array_equal(here.fit(X).ranks(new), there.fit(turned).ranks(listed))


def test_new_rows_with_different_unseen_labels_are_not_alike_to_contrast(rng):
    """As if all labels had been listed beforehand."""
    X = np.column_stack([rng.normal(size=60), rng.integers(0, 2, 60)])
    new = np.column_stack([rng.normal(size=20), rng.integers(0, 2, 20)])
    new[:6, 0] = 0.3 + 0.01 * np.arange(6)
    new[:6, 1] = 2 + np.arange(6)  # of one row each
    unseen = new.copy()
    unseen[:6, 1] = [label_code(str(label)) for label in new[:6, 1]]

    def ranks(labels, rows):
        detector = Prepared(Contrast(n_neighbors=1, scale="robust"), labels)
        cad = ConformalDetector(detector, "full").fit(X)
        return cad.ensemble_.batch_ranks(rows)

    here, there = ranks((0, 2), unseen), ranks((0, 8), new)
    assert np.array_equal(here.at_most, there.at_most)
    assert np.array_equal(here.scores, there.scores)
    some = ConformalDetector(Prepared(Contrast(n_neighbors=1), (0, 2)), "full").fit(X)
    chosen = some.ensemble_.batch_ranks(unseen, rows=np.array([3, 4]))
    assert np.array_equal(chosen.at_most, here.at_most[[3, 4]])


def test_columns_that_are_missing_everywhere():
    X = np.array([[1.0, np.nan], [2.0, np.nan], [3.0, np.nan], [5.0, np.nan]])
    for method in ("jackknife+", "full", "split"):
        cad = ConformalDetector(Prepared(KNN(n_neighbors=1), (0, 0)), method, random_state=0)
        p = cad.fit(X).p_values([[1.0, 4.0], [np.nan, np.nan]])
        assert ((p > 0) & (p <= 1)).all()


def test_prepared_chooses_it_for_detectors_of_ours():
    features = (Feature("x"), Feature("colour", ("blue", "red")), Feature("empty", ()))
    for name, kind in {"knn": KNN, "inne": INNE}.items():
        detector = prepared(name, features)
        assert isinstance(detector, Prepared)
        assert isinstance(detector.detector, kind)
        assert detector.detector.scale == "robust"
        assert detector.labels == (0, (label_code("blue"), label_code("red")), 1)
    for plain in (prepared("knn", features, distance_based=False), prepared("iforest", features)):
        assert isinstance(plain, Prepared)
        assert not plain.scaled
    assert not isinstance(prepared(OneClassSVM(), features), Prepared)


def test_numbers_that_are_not_scaled_are_as_they_were():
    """Only what is missing is filled in, by the median in quarters of the scale."""
    X, _ = mixed()
    units = PreparedUnits(Prepared(IForest(), LABELS, scaled=False))
    measured, there = units.measure(X, units.of(X)), ~np.isnan(X[:, 0])
    assert np.array_equal(measured[there, 0], X[there, 0])
    close = np.abs(measured[~there, 0] - np.nanmedian(X[:, 0])) < np.nanstd(X[:, 0])
    assert close.all()


def test_of_very_many_labels_the_commonest_have_columns(rng):
    """By counting: 64 of them, whichever row more or less there is; all others are alike."""
    codes = rng.zipf(1.3, 400).clip(max=150).astype(float)
    X, new = codes[:380, None], np.append(codes[380:], [7e9, np.nan])[:, None]
    for detector in (KNN(), IForest()):
        units = PreparedUnits(Prepared(detector, (tuple(np.arange(1.0, 151.0)),)))

        def expected(train, rows):
            counts = {c: int((train == c).sum()) for c in range(1, 151)}
            common = sorted((c for c in counts if counts[c]), key=lambda c: (-counts[c], c))[:64]
            columns = [rows[:, 0] == c for c in sorted(common)]
            missing = np.isnan(rows[:, 0])
            return np.column_stack([*columns, missing, ~np.any([*columns, missing], axis=0)])

        for x, found in zip(new, units.with_each(X, new), strict=True):
            rows = np.vstack([X, x])
            assert np.array_equal(found, units.of(rows))
            assert np.array_equal(units.measure(rows, found), expected(rows, rows))
        for i, found in enumerate(units.without_each(X)[:40]):
            rest = np.delete(X, i, axis=0)
            assert np.array_equal(found, units.of(rest))
            assert np.array_equal(units.measure(new, found), expected(rest, new))


def test_what_does_not_fit_is_refused():
    X, _ = mixed()
    refused("there are 4 columns, and it has 2", Prepared(KNN(), (0, 3)).fit, X)
    refused("codes of labels are integers", Prepared(KNN(), (2, 2, 0, 2)).fit, X)
    for labels in ((0, -1, 0, 2), (0, "3", 0, 2)):
        refused("labels must be the codes of the labels", Prepared(KNN(), labels).fit, X)


def test_worlds_know_labels_and_not_the_list_of_them():
    """By hand from the labels themselves: two that are unseen are equal or not, like others."""
    rng = np.random.default_rng(1)
    listed = ("blue", "red")
    labels = [*rng.choice(["blue", "red"], 30), "mauve", "ochre", "mauve", *["red"] * 7]
    values = rng.normal(size=40)
    values[30:33] = [2.5, 2.6, 2.7]
    codes = [listed.index(x) if x in listed else label_code(x) for x in labels]
    rows = np.column_stack([values, codes]).astype(float)
    X, new = rows[:30], rows[30:]
    cad = ConformalDetector(Prepared(KNN(n_neighbors=1), (0, 2)), "full").fit(X)
    step = StepUp.at(0.5, len(X), len(new))
    checked = 0
    for j, found in cad.ensemble_.e_values(new, np.arange(3), step):
        train = [*range(30), 30 + j]
        scale = 2.0 ** nearest(values[train])

        def distance(a, b, scale=scale):
            return math.sqrt(((values[a] - values[b]) / scale) ** 2 + 2 * (labels[a] != labels[b]))

        inside = [-min(distance(a, b) for b in train if a != b) for a in train]
        others = [a for a in range(30, 40) if a != 30 + j]
        outside = [-min(distance(a, b) for b in train) for a in others]
        assert found == e_value_of_one_model(np.array(inside), np.array(outside), step)
        checked += found > 0
    assert checked


def nearest(values):
    """Exponent of the scale of a column without ties."""
    ordered, trim = sorted(values), len(values) // 4
    return round(math.log2((ordered[-1 - trim] - ordered[trim]) / 1.349))


ENUMERATED = {
    "iforest": IForest(n_estimators=20, max_samples=6, random_state=0),
    "inne": INNE(n_estimators=20, max_samples=6, random_state=0),
    "knn": KNN(n_neighbors=3),
    "lof": LOF(n_neighbors=3),
    "kde": KDE(),
    "mahalanobis": Mahalanobis(),
    "rarity": Rarity(),
}


def rare_labels(seed, n=18):
    """Labels of which five are in one row only: which of them D lists depends on the new row."""
    rng = np.random.default_rng(seed)
    colour = rng.choice(["blue", "blue", "red"], n).astype(object)
    rare = rng.permutation(n)[:5]
    colour[rare] = [f"rare {i}" for i in rare]
    values = rng.normal(size=n).round(1)
    return pd.DataFrame({"x": values, "colour": colour, "site": rng.choice(["p", "q"], n)})


@pytest.mark.filterwarnings("ignore::reconform.errors.ReferenceWarning")
@pytest.mark.parametrize("name", ENUMERATED)
@pytest.mark.parametrize("seed", range(3))
def test_rare_labels_in_all_worlds(name, seed):
    """Given the seed: P(p <= t) <= t for every t, and e-values are 1 on average at most."""
    rows = rare_labels(seed)

    def judge(reference, new):
        cad = ConformalDetector(Prepare(ENUMERATED[name]), "full", random_state=1)
        cad.fit(rows.iloc[reference])
        found = cad.discover(rows.iloc[[new]], fdr=0.5, validity="proven")
        return cad.p_values(rows.iloc[[new]])[0], found.e_values[0]

    p, e = judged(judge, len(rows), seed).T
    assert excess(p) <= 0
    assert mean_e(e) <= 1 + 1e-12


@pytest.mark.filterwarnings("ignore::reconform.errors.ReferenceWarning")
@pytest.mark.parametrize("name", ["inne", "knn"])
def test_rare_labels_in_all_worlds_within_groups(name):
    """Ranks within groups: P(p <= t) <= t within each of them."""
    rows = rare_labels(5)
    groups = rows["site"].to_numpy()

    def judge(reference, new):
        cad = ConformalDetector(Prepare(ENUMERATED[name]), "full", random_state=1)
        cad.fit(rows.iloc[reference], groups=groups[reference])
        return cad.p_values(rows.iloc[[new]], groups=groups[[new]])[0]

    assert excess(judged(judge, len(rows)), groups=groups) <= 0


def with_gaps(rng, n):
    """Two numbers that tell each other, a third, and a category; gaps in all."""
    x = rng.normal(size=n).round(2)
    frame = pd.DataFrame({"x": x, "y": x + 0.1 * rng.normal(size=n), "z": rng.normal(size=n)})
    frame["kind"] = rng.choice(["a", "b"], n)
    return frame.mask(rng.random(frame.shape) < 0.15)


def test_missing_numbers_are_what_the_other_columns_tell_in_any_order(rng):
    features = Prepare("knn").features_of(with_gaps(rng, 60))
    rows = rows_of_frame(with_gaps(rng, 80), features)
    rows[40] = rows[41]
    ways = PreparedUnits(prepared("knn", features))
    filled, gaps = ways.filled(rows), np.isnan(rows[:, :3])
    assert not np.isnan(filled[:, :3]).any()
    assert np.array_equal(filled[:, :3][~gaps], rows[:, :3][~gaps])
    told = gaps[:, 1] & ~gaps[:, 0]
    assert np.abs(filled[told, 1] - filled[told, 0]).max() < 0.5
    order = rng.permutation(80)
    assert np.array_equal(ways.filled(rows[order]), filled[order], equal_nan=True)
    assert np.array_equal(filled[40], filled[41], equal_nan=True)
    trees = PreparedUnits(prepared("iforest", features))
    assert trees.filled(rows) is rows
    whole = np.nan_to_num(rows)
    assert ways.filled(whole) is whole


@pytest.mark.filterwarnings("ignore::reconform.errors.ReferenceWarning")
@pytest.mark.parametrize("seed", range(2))
def test_gaps_that_a_pool_fills_in_all_worlds(seed):
    rows, others = (with_gaps(np.random.default_rng(k), n) for k, n in ((seed, 16), (9, 3)))
    others["x"] = [6.0, None, 7.0]

    def judge(reference, new):
        detectors = [KNN(n_neighbors=2), Mahalanobis(), LOF(n_neighbors=3)]
        cad = ConformalDetector(Prepare(Auto(detectors)), "full").fit(rows.iloc[reference])
        batch = pd.concat([rows.iloc[[new]], others])
        found = cad.discover(batch, fdr=0.5, validity="proven")
        return cad.discover(batch, fdr=0.5).p_values[0], found.e_values[0]

    p, e = judged(judge, len(rows), seed).T
    assert excess(p) <= 0
    assert mean_e(e) <= 1 + 1e-12
