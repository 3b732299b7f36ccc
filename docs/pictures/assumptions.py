"""The pictures of docs/assumptions.md: how each failure of the assumption looks.

    python docs/pictures/assumptions.py

writes `healthy.svg`, `shift.svg`, `contamination.svg`, `id.svg` and `clusters.svg` beside this
file, from numbers drawn with a fixed seed: 600 reference rows, 300 new rows of which 30 are
anomalies, four columns, kNN with full at a false discovery rate of 10 %.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

import numpy as np

from reconform import ConformalDetector

HERE = Path(__file__).parent
WIDTH, HEIGHT = 720, 262
# Left, top, width and height of the two panels.
ROWS, P_VALUES = (34, 56, 250, 170), (344, 56, 250, 170)
COLOURS = {"reference": "#bbbbbb", "normal new row": "#4c78a8", "anomaly": "#e45756"}
BINS = 20


def rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reference, new rows, and which of these are anomalies."""
    rng = np.random.default_rng(seed)
    D, T = rng.normal(size=(600, 4)), rng.normal(size=(300, 4))
    anomalous = np.arange(300) < 30
    T[anomalous] += 3.5
    return D, T, anomalous


def situations() -> dict[str, tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """By name of the picture: what happened, reference, new rows, anomalies."""
    D, T, anomalous = rows()
    rng = np.random.default_rng(1)
    contaminated = D.copy()
    contaminated[:12] = 3.5 + rng.normal(size=(12, 4))
    ids = np.arange(900.0)
    clusters = T.copy()
    clusters[30:] = np.repeat(T[30:120], 3, axis=0) + 0.02 * rng.normal(size=(270, 4))
    return {
        "healthy": ("Nothing is wrong", D, T, anomalous),
        "shift": ("Every column of the new rows is off by half a spread", D, T + 0.5, anomalous),
        "contamination": (
            "2 % of the reference rows are anomalies of the same kind",
            contaminated,
            T,
            anomalous,
        ),
        "id": (
            "A running number was left in",
            np.column_stack([ids[:600], D]),
            np.column_stack([ids[600:], T]),
            anomalous,
        ),
        "clusters": (
            "Normal new rows come in threes: repeated measurements",
            D,
            clusters,
            anomalous,
        ),
    }


def picture(title: str, D: np.ndarray, T: np.ndarray, anomalous: np.ndarray) -> str:
    """Two columns of the rows, and the histogram of p-values, as an SVG."""
    found = ConformalDetector("knn", "full").fit(D).discover(T)
    false = int((found.mask & ~anomalous).sum())
    said = f"{found.count} of {len(T)} rows flagged, {false} of them falsely. "
    checks = ", ".join(finding.check for finding in found.verdict.findings)
    said += f"Verdict: {found.verdict.word}" + (f" ({checks})" if checks else "")
    groups = {"reference": D, "normal new row": T[~anomalous], "anomaly": T[anomalous]}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(10, 20, title, 'font-size="14" font-weight="bold"'),
        text(10, 38, said, 'font-size="12"'),
        *points(groups),
        *bars(found.p_values, anomalous),
    ]
    for i, (name, colour) in enumerate(COLOURS.items()):
        parts.append(f'<rect x="612" y="{62 + 18 * i}" width="10" height="10" fill="{colour}"/>')
        parts.append(text(627, 71 + 18 * i, name))
    return "\n".join([*parts, "</svg>", ""])


def text(x: float, y: float, words: str, style: str = "") -> str:
    """A line of text."""
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'


def frame(panel: tuple[int, int, int, int], across: str, upwards: str) -> list[str]:
    """The border of a panel, and what its axes are."""
    x, y, w, h = panel
    middle = 'text-anchor="middle"'
    turned = f'{middle} transform="rotate(-90 {x - 14} {y + h / 2:g})"'
    return [
        f'<rect x="{x}" y="{y}" width="{w}" height="{h}" fill="none" stroke="#999"/>',
        text(x + w / 2, y + h + 30, across, middle),
        text(x - 14, y + h / 2, upwards, turned),
    ]


def points(groups: dict[str, np.ndarray]) -> list[str]:
    """The first two columns of the rows: a small square each, in one path for each kind."""
    x, y, w, h = ROWS
    both = np.concatenate(list(groups.values()))[:, :2]
    low, high = both.min(axis=0), both.max(axis=0)
    parts = frame(ROWS, "column 1", "column 2")
    for name, values in groups.items():
        place = (values[:, :2] - low) / (high - low)
        at = [f"M{x + u * (w - 3):.0f} {y + (1 - v) * (h - 3):.0f}h3v3h-3z" for u, v in place]
        parts.append(f'<path fill="{COLOURS[name]}" d="{"".join(at)}"/>')
    return parts


def bars(p_values: np.ndarray, anomalous: np.ndarray) -> list[str]:
    """The histogram of p-values, anomalies on top of normal rows."""
    x, y, w, h = P_VALUES
    bins = np.ceil(p_values * BINS).astype(int) - 1
    normal, bad = (np.bincount(bins[some], minlength=BINS) for some in (~anomalous, anomalous))
    tallest = (normal + bad).max()
    parts = frame(P_VALUES, "p-value", "new rows")
    for share in (0, 0.5, 1):
        parts.append(text(x + share * w, y + h + 14, f"{share:g}", 'text-anchor="middle"'))
    parts.append(text(x - 3, y + 9, str(tallest), 'text-anchor="end"'))
    for i in range(BINS):
        for count, below, kind in (
            (normal[i], 0, "normal new row"),
            (bad[i], normal[i], "anomaly"),
        ):
            if count:
                top, tall = (below + count) / tallest * (h - 2), count / tallest * (h - 2)
                parts.append(
                    f'<rect x="{x + i * w / BINS + 1:.1f}" y="{y + h - top:.1f}" '
                    f'width="{w / BINS - 2:.1f}" height="{tall:.1f}" fill="{COLOURS[kind]}"/>'
                )
    return parts


def main() -> None:
    """Write all of them."""
    for name, (title, D, T, anomalous) in situations().items():
        path = HERE / f"{name}.svg"
        path.write_text(picture(title, D, T, anomalous), encoding="utf-8")
        print(path.name)


if __name__ == "__main__":
    main()
