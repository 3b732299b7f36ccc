"""The paper's tables in results/: layout, comparison, charts, and that what is stored fits."""

import doctest
from pathlib import Path

import numpy as np
import paper_comparison
import paper_tables
import pytest
from paper_comparison import Reference, compare_cells, read_reference, stored_cells
from paper_data import PAPER_METHODS
from paper_tables import best_power, columns, columns_of, format_table, table

from reconform.study import Cell, Estimate, Protocol, Study
from reconform.study.subjects import resolve_readings
from refusals import refused

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def study():
    """Run in a moment."""
    rng = np.random.default_rng(5)
    X = np.vstack([rng.normal(size=(90, 2)), rng.normal(2.5, 1, size=(12, 2))])
    methods = ["split", "cv", ("a / b: \\ %", "cv+")]
    data = ("blobs", X, np.repeat([0, 1], [90, 12]))
    return Study([data], ["knn"], methods, Protocol(draws=2, test_sets=3, folds=4)).run()


PAPER_COLUMNS = columns_of(
    {
        "split": None,
        **dict.fromkeys(("cv+", "jab+", "jackknife+"), "plus"),
        **dict.fromkeys(("jackknife", "jab", "cv"), "basic"),
    }
)


def papers_cells():
    """The paper's numbers, as if they were ours."""
    estimates = read_reference("paper").estimates
    return [
        Cell(dataset, detector, method, fdr, estimates[detector, dataset, method, "power"], 0.1)
        for (detector, dataset, method, metric), fdr in estimates.items()
        if metric == "fdr"
    ]


def test_columns_are_in_the_papers_order():
    assert [column.heading for column in PAPER_COLUMNS] == [
        *("Split", "JaB+", "10-CV+", "Jackknife+", "JaB", "10-CV", "Jackknife")
    ]
    variants = {"cv-pooled": "pooled", "cv+": "plus", "full": None, "mine": "basic"}
    both = columns_of(variants, folds=5)
    assert [column.heading for column in both] == ["Full", "5-CV+", "5-CV pooled", "mine"]


@pytest.mark.parametrize(
    ("detector", "dataset", "bold"),
    [  # as printed in the paper
        ("knn", "wbc", {"jab+", "jab"}),
        ("knn", "breast", {"jab+", "jackknife"}),
        ("knn", "musk", {"split", "jab+", "cv+", "jab", "cv"}),  # all 1.000
        ("knn", "satellite", {"jab+", "jab"}),
        ("iforest", "wdbc", {"jackknife+", "jackknife"}),
        ("inne", "musk", {"split", "jab+", "cv+", "cv"}),  # jab's 1.000 has an FDR of 0.189
        ("inne", "wbc", {"cv+", "cv"}),
    ],
)
def test_bold_is_the_papers(detector, dataset, bold):
    row = [c for c in papers_cells() if (c.detector, c.dataset) == (detector, dataset)]
    assert best_power(row, PAPER_COLUMNS) == bold


def test_the_papers_only_violation():
    violated = [(c.detector, c.dataset, c.method) for c in papers_cells() if c.violation]
    assert violated == [("inne", "musk", "jab")]


def test_markdown_has_the_papers_layout():
    lines = format_table(papers_cells(), PAPER_COLUMNS).splitlines()
    start = lines.index("### Isolation-based Nearest-Neighbor Ensemble")
    assert lines[start + 2] == (
        "| False discovery rate | Split | JaB+ | 10-CV+ | Jackknife+ | JaB | 10-CV | Jackknife |"
    )
    fdr, power = (line for line in lines[start:] if line.startswith("| Musk"))
    assert fdr == (
        "| Musk | 0.086 ± 0.041 | 0.076 ± 0.026 | 0.020 ± 0.019 | — | 0.189 ± 0.102 † "
        "| 0.101 ± 0.094 | — |"
    )
    one = "**1.000 ± 0.000**"
    assert power == f"| Musk | {one} | {one} | {one} | — | 1.000 ± 0.000 | {one} | — |"
    assert lines[-1].endswith("† marks evidence that the marginal FDR exceeds 0.1.")


def test_latex_rows_have_a_column_each():
    text = format_table(papers_cells(), PAPER_COLUMNS, fmt="latex")
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == 3
    for line in text.splitlines():
        if line.strip().startswith(("WBC", "Musk", "Mammography")):
            assert line.count("&") == 7
            assert line.endswith(r"\\")
    assert r"\textbf{0.638 $\pm$ 0.192}" in text
    assert r"0.189 $\pm$ 0.102\textsuperscript{\dag}" in text
    assert r"JaB$^{+}_{\mathrm{AD}}$" in text
    assert text.count("{") == text.count("}")
    assert "±" not in text


def test_csv_reads_back_as_a_reference(tmp_path):
    path = tmp_path / "ours.csv"
    path.write_text(format_table(papers_cells(), PAPER_COLUMNS, fmt="csv"))
    again = read_reference(path)
    assert again.estimates == read_reference("paper").estimates
    comparison = compare_cells(papers_cells(), again)
    assert len(comparison.cells) == comparison.within(0) == 288


def test_tables_of_a_study(study):
    text = table(study)
    assert "| blobs | " in text
    assert r"a / b: \textbackslash{} \%" in table(study, "latex")
    refused("Did you mean 'markdown'", table, study, "markdwon")


def test_the_stored_tables_follow_from_the_stored_numbers():
    """So the 288 numbers and their comparison can be checked without running the study."""
    cells = stored_cells(RESULTS / "paper.csv")
    variants = {reading.label: reading.variant for reading in resolve_readings(PAPER_METHODS)}
    ours = columns_of(variants)
    assert format_table(cells, ours, fmt="csv") == (RESULTS / "paper.csv").read_text()
    comparison = compare_cells(cells, read_reference("paper"))
    assert len(comparison.cells) == 288
    assert (RESULTS / "comparison.md").read_text().startswith(str(comparison))
    stored = (RESULTS / "comparison.csv").read_text().splitlines()
    made = comparison.to_csv().splitlines()
    assert len(stored) == len(made)
    for line, again in zip(stored[1:], made[1:], strict=True):
        (*words, error, z), (*same, error_again, z_again) = line.split(","), again.split(",")
        assert words == same
        # Ours are stored with six digits.
        assert abs(float(error) - float(error_again)) <= 2e-6
        assert abs(float(z) - float(z_again)) <= 2e-3


@pytest.mark.parametrize("module", [paper_comparison, paper_tables], ids=lambda m: m.__name__)
def test_examples(module):
    failed, tried = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert (failed, tried > 1) == (0, True)


def cell(method, fdr, power):
    return Cell("wbc", "knn", method, Estimate(*fdr, 100), Estimate(*power, 100), 0.1)


def test_differences_in_combined_standard_errors():
    # Paper, kNN on WBC: jab+ has FDR 0.078 ± 0.095 and power 0.638 ± 0.192, both over 25 draws.
    ours = cell("jab-pooled", (0.100, 0.080), (0.5, 0.3))
    comparison = compare_cells([ours], read_reference("paper"))
    fdr, power = comparison.cells
    assert fdr.reference_method == "jab+"
    assert np.isclose(fdr.z, 0.022 / np.sqrt(0.095**2 / 25 + 0.080**2 / 100))
    assert np.isclose(power.z, -0.138 / np.sqrt(0.192**2 / 25 + 0.3**2 / 100))
    assert len(comparison.missing) == 286


def test_summary_of_a_comparison():
    # Standard errors of 0.01 on their side, none on ours: means at 0, 1, ..., 9 of them.
    theirs = {("knn", f"d{k}", "cv", "fdr"): Estimate(0.5, 0.05, 25) for k in range(10)}
    means = [Estimate(0.5 + 0.01 * k, 0.0, 9) for k in range(10)]
    ours = [Cell(f"d{k}", "knn", "cv", fdr, Estimate(0, 0, 9), 0.1) for k, fdr in enumerate(means)]
    comparison = compare_cells(ours, Reference("theirs", theirs, {}))
    assert (comparison.within(2.5), comparison.within(3.5)) == (3, 4)
    assert [c.dataset for c in comparison.beyond(6.5)] == ["d9", "d8", "d7"]
    assert "of 10 cells" in str(comparison)
    assert "largest difference is 9.0" in str(comparison)
    text = comparison.to_markdown(beyond=6.5)
    assert text.count("| d9 | cv |") == 2  # among the far ones, and among all
    assert (text.count("| d2 | cv |"), len(comparison.to_csv().splitlines())) == (1, 11)


def test_true_plus_can_be_read_against_the_paper_too():
    ours = cell("jab+", (0.1, 0.1), (0.5, 0.3))
    paper = read_reference("paper")
    assert compare_cells([ours], paper).cells == ()
    assert len(compare_cells([ours], paper, {"jab+": "jab+"}).cells) == 2


def test_bad_references(tmp_path):
    refused("there is no file 'papr'", read_reference, "papr", error=FileNotFoundError)
    (tmp_path / "a.csv").write_text("detector,dataset\nknn,wbc\n")
    refused("must be a CSV file with the columns", read_reference, tmp_path / "a.csv")
    one = Cell("wbc", "knn", "cv", Estimate(0, float("nan"), 1), Estimate(0, float("nan"), 1), 0.1)
    refused("at least two draws", compare_cells, [one], read_reference("paper"))


def test_chart_of_results(study, tmp_path):
    charts = pytest.importorskip("paper_charts", reason="charts need Altair")
    pytest.importorskip("vl_convert", reason="needs vl-convert-python to draw")
    charts.results_chart(study.cells(), columns(study)).save(str(tmp_path / "chart.svg"))
    svg = (tmp_path / "chart.svg").read_text()
    for shown in ("blobs", "False discovery rate", "Statistical power", "Non-retaining"):
        assert shown in svg
