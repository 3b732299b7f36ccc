"""Tables with text, gaps and constants: the default against single detectors, and large tables.

    python benchmarks/tables.py --draws 20           # power and FDR, data of our own and ai4i2020
    python benchmarks/tables.py --network            # 40,000 + 58,457 rows, found and seconds

ai4i2020 is read from RECONFORM_TABLES (a folder), and left out where there is none.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from reconform import ConformalDetector, Prepare
from reconform.metrics import false_discovery_proportion, power

SINGLE = ("knn", "iforest", "lof", "mahalanobis", "kde", "rarity")
MODES = ["TWF", "HDF", "PWF", "OSF", "RNF"]


def orders(rng, n, anomalous):
    """Orders of a shop: amounts by category, gaps, and a flag that is hardly ever set."""
    kind = rng.choice(["food", "books", "tools", "toys"], n, p=[0.5, 0.3, 0.15, 0.05])
    size = {"food": 2.0, "books": 3.0, "tools": 4.0, "toys": 3.5}
    amount = rng.normal([size[k] for k in kind], 0.4)
    amount[anomalous] = rng.normal(5.2, 0.5, anomalous.sum())
    frame = pd.DataFrame({"kind": kind, "amount": amount, "items": rng.poisson(3, n), "test": 0})
    frame.loc[rng.random(n) < 0.05, "amount"] = np.nan
    return frame


def machines(rng, n, anomalous):
    """Machines: two correlated sensors that anomalies pull apart, in three types."""
    load = rng.normal(size=n)
    heat = load + 0.3 * rng.normal(size=n)
    heat[anomalous] -= 2.5 * np.sign(load[anomalous])
    kind = rng.choice(["L", "M", "H"], n)
    frame = pd.DataFrame({"type": kind, "load": load, "heat": heat, "noise": rng.normal(size=n)})
    return frame.mask(rng.random(frame.shape) < 0.03)


def packets(rng, n, anomalous):
    """Packets: heavy tails, protocols, and a column that never changes but for anomalies."""
    frame = pd.DataFrame(
        {
            "protocol": rng.choice(["tcp", "udp", "icmp"], n, p=[0.8, 0.15, 0.05]),
            "bytes": rng.lognormal(5, 2, n).round(),
            "wrong_fragment": np.where(anomalous, rng.choice([1, 3], n), 0),
            "errors": np.where(rng.random(n) < 0.9, 0, rng.beta(1, 8, n)).round(2),
        }
    )
    frame.loc[rng.random(n) < 0.02, "bytes"] = np.nan
    return frame


def ai4i(path):
    """The table of UCI, without what names rows or says why they failed."""
    frame = pd.read_csv(path).drop(columns=["UID", "Product ID", *MODES])
    truth = frame.pop("Machine failure").to_numpy() == 1
    return frame, truth


def draw(source, seed, n=1000, m=400, odd=40):
    """Normal rows, new rows and the truth."""
    rng = np.random.default_rng(seed)
    if callable(source):
        anomalous = np.arange(n + m) >= n + m - odd
        frame = source(rng, n + m, anomalous)
        return frame[:n], frame[n:], anomalous[n:]
    frame, truth = source
    normal, bad = rng.permutation(np.flatnonzero(~truth)), rng.permutation(np.flatnonzero(truth))
    new = np.concatenate([normal[n : n + m - odd], bad[:odd]])
    return frame.iloc[normal[:n]], frame.iloc[new], truth[new]


def compare(draws):
    """Power and FDR of the default and of every single detector."""
    tables = {"orders": orders, "machines": machines, "packets": packets}
    path = Path(os.environ.get("RECONFORM_TABLES", "."), "ai4i2020.csv")
    if path.exists():
        tables["ai4i2020"] = ai4i(path)
    for name, source in tables.items():
        print(f"{name}: {draws} draws, level 0.1")
        for detector in ("auto", *SINGLE):
            method = "auto" if detector == "auto" else "full"
            found = []
            for seed in range(draws):
                normal, new, truth = draw(source, seed)
                cad = ConformalDetector(Prepare(detector), method, random_state=0).fit(normal)
                list_ = cad.discover(new, fdr=0.1)
                found.append((power(list_, truth), false_discovery_proportion(list_, truth)))
            mean = np.mean(found, axis=0)
            print(f"  {detector:12} power {mean[0]:.3f}  FDR {mean[1]:.3f}", flush=True)


def network(n=40_000, m=58_457, odd=1_179):
    """A table of connections: seconds, and how many of the anomalies are found."""
    rng = np.random.default_rng(0)
    anomalous = np.arange(n + m) >= n + m - odd
    frame = packets(rng, n + m, anomalous & (rng.random(n + m) < 0.17))
    for j in range(37):
        frame[f"x{j}"] = rng.lognormal(0, 1, n + m).round(2) * (rng.random(n + m) < 0.5)
    rest = anomalous & (frame["wrong_fragment"] == 0)
    frame.loc[rest, ["x0", "x1", "x2"]] += rng.lognormal(2, 0.5, (int(rest.sum()), 3))
    started = time.perf_counter()
    cad = ConformalDetector(Prepare("auto"), random_state=0).fit(frame[:n])
    found = cad.discover(frame[n:], fdr=0.1)
    truth = anomalous[n:]
    fdp = false_discovery_proportion(found, truth)
    print(
        f"{n:,} + {m:,} rows x {frame.shape[1]} columns: {time.perf_counter() - started:.1f} s, "
        f"{int((found.mask & truth).sum()):,} of {odd:,} found, false share {fdp:.3f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--network", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.network:
        network()
    else:
        compare(given.draws)
