"""Draw results/power.svg: what each list finds, by data set, from the tables in results/.

The numbers are those of `benchmarks/proven.py` and of results/auto.md; run it again after these.
"""

from __future__ import annotations

from pathlib import Path

import altair as alt

RESULTS = Path(__file__).parent.parent / "results"
# What stands in the tables, what the figure calls it, and whether it is proven.
PAPER = "the paper's best, knn jackknife-pooled"
FORMER = "auto: power"
LISTS = {
    PAPER: ("the paper's best, as nonconform computes it: kNN, jackknife", False),
    "FCND, its forest": ("fcnd: FCND with its forest", True),
    FORMER: ("reconform, the former default: BH", False),
    "auto, full, certified": ("reconform, the default", True),
}
COLOURS = ("#999999", "#E69F00", "#56B4E9", "#0072B2")


def table(name: str) -> list[dict[str, str]]:
    """Read the first table of a page."""
    lines = [line for line in (RESULTS / name).read_text("utf-8").splitlines() if line[:1] == "|"]
    head, _, *rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(head, row, strict=True)) for row in rows]


def numbers() -> list[dict[str, object]]:
    """Power by data set and list."""
    by_list = {row["list"]: row for row in table("proven.md")}
    found: list[dict[str, object]] = []
    for row in table("auto.md"):
        name = row["data set"]
        for key, (said, proven) in LISTS.items():
            column = "mean power" if name == "mean" else name
            power = row[key] if key in (PAPER, FORMER) else by_list[key][column]
            claim = "proven" if proven else "not proven"
            found.append({"data": name, "list": said, "power": float(power), "claim": claim})
    return found


def main() -> None:
    """Draw it."""
    names = [said for said, _ in LISTS.values()]
    y = alt.Y("data:N", sort=None, title=None, axis=alt.Axis(grid=True))
    axis = alt.Axis(tickCount=5, format="%")
    x = alt.X("power:Q", title="anomalies found, at a level of 10%", axis=axis)
    legend = alt.Legend(title=None, orient="top", columns=2, labelLimit=400)
    colour = alt.Color("list:N", scale=alt.Scale(domain=names, range=COLOURS), legend=legend)
    shape = alt.Shape("claim:N", scale=alt.Scale(range=["circle", "cross"]), legend=legend)
    marks = alt.Chart(alt.Data(values=numbers()), width=620, height=300).mark_point(
        filled=True, size=130, opacity=0.9
    )
    marks.encode(x=x, y=y, color=colour, shape=shape).save(str(RESULTS / "power.svg"))


if __name__ == "__main__":
    main()
