from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from reconform import ConformalDetector, Discoveries
from reconform.files.judge import ReadOptions, judge_file
from reconform.statistics.certificates import Claim
from refusals import refused


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_rows_of_an_array_go_by_their_positions(library, rng):
    """README's quick start: the last ten of 200 rows are the anomalies."""
    new = rng.normal(size=(200, 2))
    new[190:] += 9
    found = ConformalDetector("knn", "jackknife+").fit(rng.normal(size=(500, 2))).discover(new)
    for order, where in (("anomalous", slice(10)), ("input", slice(190, None))):
        frame = found.to_frame(order=order, library=library)
        rows = frame.index if library == "pandas" else frame["row"].to_numpy()
        assert set(rows[where]) == set(range(190, 200)), (order, list(rows))


def test_rows_of_a_file_go_by_their_identifiers(tmp_path, rng):
    rows = pd.DataFrame(rng.normal(size=(40, 2)), columns=["x", "y"])
    rows.iloc[3] += 9
    rows.assign(name=[f"r{i}" for i in range(40)], site="A").to_csv(tmp_path / "new.csv")
    cad = ConformalDetector("knn", "jackknife+").fit(rows.iloc[4:])
    for ids, label in ((("name",), "r3"), (("name", "site"), ("r3", "A"))):
        judged = judge_file(cad, tmp_path / "new.csv", read=ReadOptions(id_columns=ids))
        assert judged.to_discoveries().to_frame().index[0] == label


@pytest.fixture
def found():
    return Discoveries(
        mask=np.array([False, True, True, False]),
        p_values=np.array([0.5, 0.1, 0.1, 1.0]),
        q_values=np.array([0.6, 0.2, 0.2, 1.0]),
        scores=np.array([0.0, -2.0, -3.0, 1.0]),
        p_threshold=0.1,
        procedure="bh",
        fdr=0.2,
        claim=Claim("It holds.", "proven"),
        index=pd.Index(["a", "<b>", "c", "d"]),
    )


def test_the_most_unusual_come_first_and_scores_break_ties(found):
    assert found.order.tolist() == [2, 1, 0, 3]
    assert found.to_frame().index.tolist() == ["c", "<b>", "a", "d"]
    assert found.to_frame(order="input").index.tolist() == ["a", "<b>", "c", "d"]
    assert found.to_frame()["anomaly"].tolist() == [True, True, False, False]
    refused("Did you mean 'input'", found.to_frame, order="inputs")


def test_the_repr_tells_the_story(found):
    text = repr(found)
    assert text.startswith("Discoveries: 2 of 4 rows flagged\nOn average at most 20% of them are")
    assert "<b>" not in text  # the rows are shown where so many were asked for, and in notebooks
    shown = repr(replace(found, top=2))
    assert shown.index(" c ") < shown.index("<b>")
    assert (found.guarantee, found.count, len(found)) == ("It holds.", 2, 4)
    html = found._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "2 of 4 rows flagged" in html
    m = 100
    found = Discoveries(np.zeros(m, bool), np.ones(m), np.ones(m), np.zeros(m),
                        p_threshold=0.0, procedure="by", fdr=0.1)  # fmt: skip
    assert "90 more rows" in found._repr_html_()
