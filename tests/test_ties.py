"""The numbers that smooth ties: independent of each other, the same on every road."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

import reconform
from reconform import ConformalDetector, UnlabelledRowWarning
from reconform.statistics.scores import tie_uniforms

pytestmark = pytest.mark.filterwarnings("ignore:all .* calibration scores are equal")


def kinds(seed, count, labels=None):
    """Rows of nine kinds."""
    rows = np.random.default_rng(seed).integers(0, 3, size=(count, 2)).astype(float)
    return pd.DataFrame(rows, columns=["x", "y"], index=labels)


def fitted(seed=27, **options):
    """A split kNN on few kinds of rows: many ties."""
    reference = kinds(seed, 120)
    options = {"ties": "randomized", "random_state": seed, **options}
    return ConformalDetector("knn", "split", **options).fit(reference)


@pytest.fixture(scope="module")
def new():
    return kinds(0, 300, [f"row {j}" for j in range(300)])


def test_rows_judged_one_by_one_are_judged_as_in_one_batch(new):
    """Keyed by position, all single rows had one number."""
    cad = fitted()
    together = cad.p_values(new)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnlabelledRowWarning)
        alone = np.concatenate([cad.p_values(new.iloc[[j]]) for j in range(len(new))])
        flagged = sum(cad.predict(new.iloc[[j]])[0] == -1 for j in range(len(new)))
    assert np.array_equal(alone, together)
    assert flagged == (together <= cad.alpha).sum()
    assert len(set(together.tolist())) == len(new)


@pytest.mark.parametrize("what", ["label", "content", "seed", "occurrence"])
def test_numbers_are_uniform_and_uncorrelated(what):
    """3,000 numbers that differ in one part of the key only; fails for 1 seed in 10^5 of each."""
    m, one = 3_000, np.array([[0.0, 1.0]])
    u = {
        "label": lambda: tie_uniforms(7, one.repeat(m, axis=0), range(m)),
        "content": lambda: tie_uniforms(7, np.c_[np.arange(m), np.zeros(m)]),
        "seed": lambda: np.concatenate([tie_uniforms(k, one) for k in range(m)]),
        "occurrence": lambda: tie_uniforms(7, one.repeat(m, axis=0)),
    }[what]()
    assert kstest(u, "uniform").pvalue > 1e-5
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 4.5 / np.sqrt(m)
    assert len(set(u.tolist())) == m


@given(
    rows=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=20),
    data=st.data(),
)
def test_order_and_batch_do_not_matter(rows, data):
    X = np.array(rows, dtype=float)
    order = data.draw(st.permutations(range(len(X))))
    labels = [f"r{j}" for j in range(len(X))]
    u = tie_uniforms(5, X, labels)
    permuted = tie_uniforms(5, X[order], [labels[j] for j in order])
    assert np.array_equal(permuted, u[order])
    some = order[: len(X) // 2]
    assert np.array_equal(tie_uniforms(5, X[some], [labels[j] for j in some]), u[some])
    # Without labels equal rows are numbered as they come: each kind keeps its numbers.
    bare, turned = tie_uniforms(5, X), tie_uniforms(5, X[order])
    pairs = sorted(zip(map(tuple, X.tolist()), bare.tolist(), strict=True))
    assert sorted(zip(map(tuple, X[order].tolist()), turned.tolist(), strict=True)) == pairs


def test_the_default_index_of_a_frame_is_no_label(new):
    cad, bare = fitted(), new.reset_index(drop=True)
    p = cad.p_values(bare)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        assert np.array_equal(cad.p_values(bare.to_numpy()), p)
    assert not np.array_equal(cad.p_values(bare.set_index(np.arange(1, 301))), p)
    assert len(set(p.tolist())) == len(p)


def test_what_is_the_same_has_the_same_number():
    zero, other = np.array([[0.0, np.nan]]), np.array([[-0.0, -np.nan]])
    assert tie_uniforms(1, zero)[0] == tie_uniforms(1, other)[0]
    row = np.ones((1, 2))
    same = [7, "7", np.int64(7), 7.0, np.float64(7)]  # one identifier, read in various ways
    assert len({float(tie_uniforms(1, row, [label])[0]) for label in same}) == 1
    differ = ["7", "8", "07", ("1", "23"), ("12", "3"), 7.5, None]
    assert len({float(tie_uniforms(1, row, [label])[0]) for label in differ}) == len(differ)
    with pytest.raises(ValueError):
        tie_uniforms(1, row, ["a", "b"])


def test_numbers_stay_what_they_are():
    """Saved models promise the same answers in later versions: these numbers must not move."""
    u = tie_uniforms(7, np.array([[0.5, 2.0], [0.5, 2.0]]), ["a", "a"])
    assert u.tolist() == [0.8537550991566348, 0.9420284325051722]


def test_jobs_parts_and_saved_models_change_nothing(new, tmp_path):
    expected = fitted().p_values(new)
    assert np.array_equal(fitted(n_jobs=2).p_values(new), expected)
    cad = fitted()
    parts = [cad.p_values(part) for part in (new[:1], new[1:7], new[7:])]
    assert np.array_equal(np.concatenate(parts), expected)
    assert np.array_equal(cad.discover(new[::-1]).p_values[::-1], expected)
    reconform.save(cad, tmp_path / "model.reconform")
    assert np.array_equal(reconform.load(tmp_path / "model.reconform").p_values(new), expected)


@pytest.mark.parametrize(
    "row",
    [np.zeros((1, 2)), [[0.0, 0.0]], pd.DataFrame({"x": [0.0], "y": [0.0]})],
    ids=["array", "list", "default index"],
)
@pytest.mark.parametrize("question", ["p_values", "predict", "score_samples", "discover"])
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_a_single_row_without_a_label_is_warned_about_once(row, question):
    cad = fitted()
    judge = getattr(cad, question)
    with pytest.warns(UnlabelledRowWarning, match="Judge rows in batches.*'conservative'") as told:
        _ = [judge(row) for _ in range(5)]
    ours = [w for w in told if w.category is UnlabelledRowWarning]
    assert [w.filename for w in ours] == [__file__]
    with pytest.warns(UnlabelledRowWarning):  # another detector, another user
        fitted().predict(row)


def test_nothing_is_said_where_rows_can_be_told_apart(new):
    cad = fitted()
    conservative = fitted(ties="conservative")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnlabelledRowWarning)
        cad.p_values(new[:1])
        cad.p_values(new.reset_index(drop=True)[5:6])
        cad.p_values(new[:2].reset_index(drop=True))
        cad.ranks(new[:1].reset_index(drop=True))  # draws nothing
        conservative.p_values(new[:1].reset_index(drop=True))
