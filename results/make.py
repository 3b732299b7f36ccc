"""Redo the committed results from nothing: ``make study-paper``.

    python results/make.py                                        # what is stored, and the paper
    python results/make.py --store /tmp/store --jobs 2            # everything
    python results/make.py --store /tmp/store --jobs 2 grid       # some parts

Parts run in this order and are resumable: what the store has is not computed again. Tables, charts
and ``times.json`` are written beside this file; `docs/results.md` shows them.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import pickle
import platform
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from paper_charts import comparison_chart, line_chart, results_chart
from paper_comparison import compare, compare_cells, read_reference, stored_cells
from paper_data import PAPER_DETECTORS, PAPER_METHODS, REGISTRY, load, load_all
from paper_tables import columns, format_costs, summarise_costs, table

from reconform import ConformalDetector, Learned
from reconform.detectors import INNE, KDE, KNN, LOF, Contrast, IForest, Mahalanobis
from reconform.detectors.auto import name_of
from reconform.detectors.registry import offered
from reconform.study import Protocol, Study
from reconform.study.subjects import resolve_readings

HERE = Path(__file__).parent
SMALL = ("wbc", "ionosphere", "wdbc", "breast")
EVERY_METHOD = (
    "split",
    "jab+",
    "cv+",
    "jackknife+",
    "jab",
    "cv",
    "jackknife",
    "jab-pooled",
    "cv-pooled",
    "jackknife-pooled",
    "full",
)
RETAINING = ("split", "jab+", "cv+", "jackknife+", "full")
PAPERS = "the paper's best method"
NAMES = tuple(name_of(detector) for detector in offered("full"))
SWEPT = ("wdbc", "breast", "thyroid")


def paper(store: Path, jobs: int) -> None:
    """The paper's 288 cells, and nothing else."""
    limited = Protocol(jackknife_limit=500)
    study = Study(load_all(), PAPER_DETECTORS, PAPER_METHODS, limited)
    study.run(store / "paper", n_jobs=jobs, verbose=1)
    write("paper.md", table(study))
    write("paper.tex", table(study, "latex"))
    write("paper.csv", table(study, "csv"))
    found = compare(study)
    write("comparison.md", found.to_markdown())
    write("comparison.csv", found.to_csv())
    comparison_chart(found).save(str(HERE / "comparison.svg"))
    print(found)


def grid(store: Path, jobs: int) -> None:
    """All eight data sets, three detectors, every method, jackknife everywhere."""
    study = Study(load_all(), PAPER_DETECTORS, EVERY_METHOD)
    study.run(store / "grid", n_jobs=jobs, verbose=1)
    write("grid.md", table(study))
    write("grid.csv", table(study, "csv"))
    results_chart(study.cells(), columns(study)).save(str(HERE / "grid.svg"))


def findings(store: Path, jobs: int) -> None:
    """Means over all pairs of data set and detector, from the committed grid: what docs/ quotes."""
    means: dict[tuple[str, str], list[float]] = {}
    exceeded = []
    with open(HERE / "grid.csv", encoding="utf-8") as rows:
        for row in csv.DictReader(rows):
            means.setdefault((row["method"], row["metric"]), []).append(float(row["mean"]))
            if row["violation"] == "1" and row["metric"] == "fdr":
                exceeded.append(
                    f"{row['detector']}, {row['dataset']}, {row['method']}: {row['mean']}"
                )
    lines = ["| method | mean FDR | largest FDR | mean power |", "|---|---|---|---|"]
    lines += [
        f"| {method} | {fmean(means[method, 'fdr']):.3f} | {max(means[method, 'fdr']):.3f} "
        f"| {fmean(means[method, 'power']):.3f} |"
        for method in EVERY_METHOD
    ]
    pairs = len(means["split", "fdr"])
    lines += [
        "",
        f"Means over {pairs} pairs of data set and detector, 25 draws each, FDR level 0.1.",
    ]
    lines += ["Evidence of an exceeded level: " + ("; ".join(exceeded) or "none") + "."]
    write("findings.md", "\n".join(lines))
    print("\n".join(lines))


def small(store: Path, jobs: int) -> None:
    """J = 100 for the small data sets."""
    study = Study(load_all(SMALL), PAPER_DETECTORS, EVERY_METHOD, Protocol(draws=100))
    study.run(store / "small", n_jobs=jobs, verbose=1)
    write("small.md", table(study))
    write("small.csv", table(study, "csv"))


def sweeps(store: Path, jobs: int) -> None:
    """Power and FDR against the batch size, the level, the anomaly rate and the folds."""
    base = Study(load_all(SWEPT), ["knn"], RETAINING)
    for parameter, values in {
        "test_size": (20, 40, 70, 100, 150),
        "fdr": (0.02, 0.05, 0.1, 0.2, 0.3),
        "anomaly_rate": (0.02, 0.05, 0.1, 0.2, 0.3),
    }.items():
        study = base
        if parameter == "anomaly_rate":  # enough rows that 2% is one of them
            study = Study(load_all(SWEPT[1:]), ["knn"], RETAINING, Protocol(test_size=100))
        if parameter == "test_size":
            study = Study(load_all(SWEPT[1:]), ["knn"], RETAINING)
        sweep(study, parameter, values, store, jobs)
    together()
    folds = Study(load_all(SWEPT), ["knn", "iforest"], ["cv+", "cv"], Protocol(draws=50))
    sweep(folds, "folds", (2, 3, 5, 10, 20, 50), store, jobs)


def together() -> None:
    """One chart of three sweeps: power above, FDR below, with the level that was asked for."""
    import altair
    import pyarrow.compute
    import pyarrow.csv

    rows = []
    for metric in ("cpower", "cfdr"):
        charts = []
        for parameter in ("test_size", "fdr", "anomaly_rate"):
            rows_of = pyarrow.csv.read_csv(HERE / f"sweep-{parameter}.csv")
            breast = rows_of.filter(pyarrow.compute.equal(rows_of["dataset"], "breast"))
            charts.append(line_chart(breast, x=parameter, y=metric, by="method", facet="dataset"))
        rows.append(altair.hconcat(*charts))
    altair.vconcat(*rows).save(str(HERE / "sweeps.svg"))


def sweep(study: Study, parameter: str, values: Any, store: Path, jobs: int) -> None:
    """Run one sweep and write its rows."""
    import pyarrow as pa
    import pyarrow.csv

    tables = []
    for value in values:
        changed = replace(study.protocol, **{parameter: value})
        one = Study(**{**study.get_params(deep=False), "protocol": changed})
        one.run(store / "sweeps" / f"{parameter}={value}", n_jobs=jobs, verbose=1)
        tables.append(one.results_.append_column(parameter, pa.array([value] * len(one.results_))))
    rows = pa.concat_tables(tables)
    pyarrow.csv.write_csv(rows, HERE / f"sweep-{parameter}.csv")
    if parameter == "folds":  # the others share a chart
        for metric in ("cfdr", "cpower"):
            chart = line_chart(rows, x=parameter, y=metric, by="method", facet="dataset")
            chart.save(str(HERE / f"sweep-{parameter}-{metric}.svg"))


def sharing(store: Path, jobs: int) -> None:
    """Leave-one-out models that share draws against separate ones."""
    study = Study(
        load_all(["wdbc", "breast", "musk"]),
        [
            ("iforest shared", IForest(share=True)),
            ("iforest separate", IForest(share=False)),
            ("inne shared", INNE(share=True)),
            ("inne separate", INNE(share=False)),
        ],
        ["jackknife+", "jackknife"],
    )
    study.run(store / "sharing", n_jobs=jobs, verbose=1)
    write("sharing.md", table(study))
    write("sharing.csv", table(study, "csv"))


def costs(store: Path, jobs: int) -> None:
    """What retaining costs: every method fitted on its own, one job at a time."""
    names = ("detector", "dataset", "method", "fit_seconds", "score_seconds", "model_bytes")
    rows = []
    for detector, name in product(PAPER_DETECTORS, ("breast", "thyroid")):
        dataset = load(name)
        for reading, j in product(resolve_readings(EVERY_METHOD), range(5)):
            draw = Protocol().draw(dataset, j)
            times = [time.perf_counter()]
            cad = ConformalDetector(detector, reading.method, random_state=j)
            cad.fit(dataset.X[draw.train])
            times.append(time.perf_counter())
            cad.rank(dataset.X[draw.pool], variant=reading.variant)
            times.append(time.perf_counter())
            size = len(pickle.dumps(cad.ensemble_))
            rows.append((detector, name, reading.label, *np.diff(times).tolist(), size))
    measured = dict(zip(names, zip(*rows, strict=True), strict=True))
    write("costs.md", format_costs(summarise_costs(measured)))


def detectors(store: Path, jobs: int) -> None:
    """Every native detector under full, raw and with robust scales; fewer test sets per draw."""
    kinds = {"knn": KNN, "contrast": Contrast, "mahalanobis": Mahalanobis, "kde": KDE, "lof": LOF}
    scaled = {**kinds, "inne": INNE}
    study = Study(
        load_all(),
        detectors=[
            *((name, kind()) for name, kind in kinds.items()),
            *((f"{name}, scaled", kind(scale="robust")) for name, kind in scaled.items()),
            "iforest",
            "inne",
        ],
        methods=["full"],
        protocol=Protocol(test_sets=10),
    )
    study.run(store / "detectors", n_jobs=jobs, verbose=1)
    write("detectors.md", table(study))
    write("detectors.csv", table(study, "csv"))
    cells = study.cells()
    means = []
    for name in dict.fromkeys(cell.detector for cell in cells):
        own = [cell for cell in cells if cell.detector == name]
        power, fdr = (
            sum(getattr(c, what).mean for c in own) / len(own) for what in ("power", "fdr")
        )
        means.append(
            (power, f"| {name} | {power:.3f} | {fdr:.3f} | {max(c.fdr.mean for c in own):.3f} |")
        )
    lines = ["| detector | mean power | mean FDR | largest FDR |", "|---|---|---|---|"]
    write(
        "detectors-means.md",
        "\n".join([*lines, *(line for _, line in sorted(means, reverse=True))]),
    )


def auto(store: Path, jobs: int) -> None:
    """The defaults: auto under full, against its candidates and the paper's best method."""
    large = tuple(name for name in REGISTRY if name not in SMALL)
    cells = []
    # A batch of the large data sets takes seconds, and their draws differ little.
    for names, test_sets in ((SMALL, 10), *(((name,), 4) for name in large)):
        study = Study(
            datasets=load_all(names),
            detectors=["auto"],
            methods=["full"],
            protocol=Protocol(test_sets=test_sets),
        )
        study.run(store / "auto" / "_".join(names), n_jobs=jobs, verbose=1)
        cells += study.cells()
    power = {(cell.dataset, "auto"): cell.power.mean for cell in cells}
    fdr = {cell.dataset: (cell.fdr.mean, cell.fdr.sd / cell.fdr.draws**0.5) for cell in cells}
    tried = {f"{name[7:]}, scaled" if name.startswith("scaled ") else name for name in NAMES}
    candidates = {
        key: value for key, value in table_of("detectors.csv", "full").items() if key[0] in tried
    }
    power.update({(data, name): value for (name, data), value in candidates.items()})
    names = list(dict.fromkeys(name for name, _ in candidates))
    alone = {name: fmean(candidates[name, data] for data in fdr) for name in names}
    best = max(alone, key=lambda name: alone[name])
    papers = {
        (detector, method): table_of("grid.csv", method)
        for method in ("split", "jab-pooled", "cv-pooled", "jackknife-pooled", "jab", "cv")
        for detector in ("knn", "iforest", "inne")
    }
    of_paper = max(papers, key=lambda key: fmean(papers[key][key[0], data] for data in fdr))
    lines = [
        "| data set | auto: power | auto: FDR | best candidate, chosen after the fact | "
        f"{best}, the best on average | the paper's best, {' '.join(of_paper)} |",
        "|---|---|---|---|---|---|",
    ]
    rows = []
    for data, (mean_fdr, error) in fdr.items():
        after = max(names, key=lambda name: candidates[name, data])
        row = {
            PAPERS: papers[of_paper][of_paper[0], data],
            "auto": power[data, "auto"],
            "best candidate, after the fact": candidates[after, data],
        }
        rows += [{"data": data, "what": what, "power": value} for what, value in row.items()]
        rows += [
            {"data": data, "what": "a candidate alone", "power": candidates[name, data]}
            for name in names
        ]
        lines.append(
            f"| {data} | {power[data, 'auto']:.3f} | {mean_fdr:.3f} ± {error:.3f} | "
            f"{candidates[after, data]:.3f} ({after}) | {candidates[best, data]:.3f} | "
            f"{row[PAPERS]:.3f} |"
        )
    mean_of = {what: fmean(r["power"] for r in rows if r["what"] == what) for what in row}
    lines.append(
        f"| **mean** | **{mean_of['auto']:.3f}** | {fmean(f for f, _ in fdr.values()):.3f} | "
        f"{mean_of['best candidate, after the fact']:.3f} | {alone[best]:.3f} | "
        f"{mean_of[PAPERS]:.3f} |"
    )
    write("auto.md", "\n".join(lines))
    _by_data_set(rows).save(str(HERE / "auto.svg"))


def batch(store: Path, jobs: int) -> None:
    """Methods that fit the new rows, too: batch with every detector, learned."""
    from pyod.models.copod import COPOD
    from pyod.models.ecod import ECOD
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    kinds = {"knn": KNN, "lof": LOF, "mahalanobis": Mahalanobis, "kde": KDE, "inne": INNE}
    pooled = Study(
        load_all(),
        detectors=[
            *((name, kind()) for name, kind in kinds.items()),
            *((f"{name}, scaled", kind(scale="robust")) for name, kind in kinds.items()),
            "iforest",
            ("ECOD", ECOD()),
            ("COPOD", COPOD()),
        ],
        methods=["batch"],
        protocol=Protocol(draws=25, test_sets=2),
    )
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    learned = Study(
        load_all(),
        detectors=[("classifier", "auto")],
        methods=[("random forest", "learned"), ("logistic regression", Learned(linear))],
        protocol=Protocol(draws=5, test_sets=2),  # a minute per draw
    )
    cells = pooled.run(store / "pooled", n_jobs=jobs, verbose=1).cells()
    cells += learned.run(store / "learned", n_jobs=jobs, verbose=1).cells()
    write("batch.csv", _rows_of(cells))
    write("batch.md", _power_by_data_set(cells))


def _rows_of(cells: list[Any]) -> str:
    """Every cell with its standard error."""
    lines = ["dataset,detector,method,metric,mean,error"]
    for cell in cells:
        for metric in ("power", "fdr"):
            value = getattr(cell, metric)
            error = value.sd / value.draws**0.5
            lines.append(
                f"{cell.dataset},{json.dumps(cell.detector)},{cell.method},{metric},"
                f"{value.mean:.4f},{error:.4f}"
            )
    return "\n".join(lines)


def _power_by_data_set(cells: list[Any]) -> str:
    """Power by data set, a line per detector or classifier; the mean, and the FDR."""
    names = list(dict.fromkeys(cell.dataset for cell in cells))
    lines = [
        f"| | {' | '.join(names)} | mean power | mean FDR | largest FDR |",
        "|---" * (len(names) + 4) + "|",
    ]
    for who in dict.fromkeys((cell.method, cell.detector) for cell in cells):
        own = {cell.dataset: cell for cell in cells if (cell.method, cell.detector) == who}
        method, detector = who
        label = f"batch, {detector}" if method == "batch" else f"learned, {method}"
        power = [own[name].power.mean for name in names]
        fdr = [own[name].fdr.mean for name in names]
        lines.append(
            f"| {label} | {' | '.join(f'{value:.2f}' for value in power)} | {fmean(power):.3f} "
            f"| {fmean(fdr):.3f} | {max(fdr):.3f} |"
        )
    return "\n".join(lines)


def table_of(name: str, method: str) -> dict[tuple[str, str], float]:
    """Mean power by detector and data set, from a table that was committed."""
    with open(HERE / name, encoding="utf-8") as lines:
        return {
            (row["detector"], row["dataset"]): float(row["mean"])
            for row in csv.DictReader(lines)
            if row["method"] == method and row["metric"] == "power"
        }


def _by_data_set(rows: list[dict[str, Any]]) -> Any:
    """Dots on a line per data set."""
    import altair as alt

    kinds = ["a candidate alone", PAPERS, "best candidate, after the fact", "auto"]
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("power:Q", title="share of the anomalies found").scale(domain=[0, 1]),
        y=alt.Y("data:N", title=None, sort=list(dict.fromkeys(row["data"] for row in rows))),
        color=alt.Color("what:N", title=None, sort=kinds).scale(
            domain=kinds, range=["#bbbbbb", "#0072b2", "#009e73", "#d55e00"]
        ),
        shape=alt.Shape("what:N", title=None, sort=kinds).scale(
            domain=kinds, range=["circle", "square", "triangle-up", "diamond"]
        ),
    )
    layers = [
        base.transform_filter(alt.datum.what == kind).mark_point(
            filled=True, size=45 if kind == kinds[0] else 130, opacity=0.9
        )
        for kind in kinds
    ]
    return alt.layer(*layers).properties(width=460, height=300)


PARTS: dict[str, Callable[[Path, int], None]] = {
    part.__name__: part
    for part in (paper, grid, findings, small, sweeps, sharing, costs, detectors, auto, batch)
}


def write(name: str, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = HERE / f".{name}.partial"
    temporary.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
    os.replace(temporary, HERE / name)


def main() -> None:
    """Run the parts that were asked for, and note how long each took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--store", type=Path, help="without it, what is stored is compared")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.store is None:
        print(compare_cells(stored_cells(HERE / "paper.csv"), read_reference("paper")))
        return
    times_path = HERE / "times.json"
    times = json.loads(times_path.read_text()) if times_path.exists() else {}
    for name in arguments.parts or PARTS:
        start = time.perf_counter()
        PARTS[name](arguments.store, arguments.jobs)
        usage = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(0)
        times[name] = {
            "minutes": round((time.perf_counter() - start) / 60, 1),
            "peak_gigabytes_of_one_process": round(max(u.ru_maxrss for u in usage) / 2**20, 2),
            "jobs": arguments.jobs,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "python": platform.python_version(),
        }
        write("times.json", json.dumps(times, indent=1))
        print(name, times[name])


if __name__ == "__main__":
    main()
