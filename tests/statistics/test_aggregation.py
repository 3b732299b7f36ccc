import numpy as np
import pytest

from reconform.statistics.ranks import reduction
from refusals import refused


@pytest.mark.parametrize("aggregate", ["mean", np.mean, "median", 0.3, lambda s: s.sum()])
def test_a_row_aggregates_to_the_same_number_whatever_its_neighbours(aggregate):
    phi = reduction(aggregate)
    for models in (1, 3, 9, 50, 129):
        scores = np.random.default_rng(models).normal(size=(models, 7))
        together = phi(scores)
        assert [float(phi(scores[:, [j]])[0]) for j in range(7)] == together.tolist()


@pytest.mark.parametrize("models", [1, 2, 3, 8, 9, 100, 101])
def test_the_median_is_numpys_to_the_last_bit(models):
    rng = np.random.default_rng(models)
    for scores in (rng.normal(size=(models, 3_000)), rng.integers(0, 4, (models, 50)) / 4):
        assert np.array_equal(reduction("median")(scores), np.median(scores, axis=0))


@pytest.mark.parametrize("bad", [lambda s, axis: s.mean(), lambda s: s])
def test_a_callable_must_give_one_number_per_row(bad):
    refused("one number", lambda: reduction(bad)(np.ones((3, 4))))
