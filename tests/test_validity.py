"""Lists of normal rows, over many null batches, and what the demo finds."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from reconform import ConformalDetector, Learned
from reconform.cli.detect import run_demo
from reconform.detectors import ContrastForest
from reconform.metrics import false_discovery_proportion, power


def test_the_demo_finds_what_it_claims():
    found, truth = run_demo()
    assert power(found, truth) > 0.4
    assert false_discovery_proportion(found, truth) <= 0.2


LOGISTIC, SEVERAL = LogisticRegression(), ["knn", "mahalanobis"]
# Detector, method, reference rows, new rows, what fit takes, the rule.
NULL_LISTS = {
    "contrast forest": (ContrastForest(n_estimators=40), "full", 200, 30, {}, {}),
    "groups, split": ("knn", "split", 99, 30, {"groups"}, {}),
    "groups, full": ("knn", "full", 99, 30, {"groups"}, {"validity": "proven"}),
    **{f"groups, choice on {method}, {models}": (
        SEVERAL, method, 400, 7, {"groups", *models}, {"validity": "proven"})
       for method in ("split", "full") for models in ((), ("group_models",))},
    "anomalies, contrast": ("contrast", "full", 149, 15, {"anomalies"}, {}),
    "anomalies, choice": ([*SEVERAL, "contrast"], "full", 149, 15, {"anomalies"}, {}),
    "anomalies, learned": ("auto", Learned(LOGISTIC), 149, 15, {"anomalies"}, {}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.1, 0.2])
@pytest.mark.parametrize("name", NULL_LISTS)
def test_lists_of_normal_rows(name, q):
    """300 batches without anomalies ("known" ones are normal as well): any list is false.

    The share of lists is at most q plus 3.3 standard errors: a correct program fails once in about
    2,000 runs of one case.
    """
    detector, method, n, m, takes, rule = NULL_LISTS[name]
    rng, runs, lists = np.random.default_rng(7), 300, 0
    for run in range(runs):
        D, T, A = (rng.normal(size=(rows, 3)) for rows in (n, m, 10))
        groups = (np.arange(rows) % 5 < 3 for rows in (n, m))
        ours, theirs = ({"groups": g} if "groups" in takes else {} for g in groups)
        known = {"anomalies": A} if "anomalies" in takes else {}
        cad = ConformalDetector(detector, method, random_state=run)
        cad.set_params(group_models="group_models" in takes).fit(D, **ours, **known)
        lists += cad.discover(T, fdr=q, **rule, **theirs).count > 0
    room = 3.3 * (q * (1 - q) / runs) ** 0.5
    assert lists / runs <= q + room
