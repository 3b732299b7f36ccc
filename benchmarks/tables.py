"""Tables with text, gaps and constants: the default against single detectors, and large tables.

    python benchmarks/tables.py --draws 20           # power and FDR, data of our own and ai4i2020
    python benchmarks/tables.py --network            # 40,000 + 58,457 rows, the default and by hand
    python benchmarks/tables.py --large              # 100,000 + 100,000 rows: seconds and memory

ai4i2020 is read from RECONFORM_TABLES (a folder), and left out where there is none.
"""

from __future__ import annotations

import argparse
import os
import resource
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


def claims(rng, n, anomalous):
    """Claims: many labels, amounts with heavy tails; anomalies are dear for their kind."""
    kind = rng.choice(8, n, p=[0.3, 0.2, 0.15, 0.1, 0.1, 0.08, 0.05, 0.02])
    amount = np.exp(np.linspace(3, 7, 8)[kind] + 0.35 * rng.normal(size=n))
    days = rng.gamma(2, 10 + 5 * kind) * np.where(anomalous, rng.uniform(1, 4, n), 1)
    return pd.DataFrame(
        {
            "kind": [f"k{k}" for k in kind],
            "town": [f"t{k}" for k in rng.zipf(1.6, n).clip(1, 120)],
            "channel": rng.choice(["web", "phone", "agent", None], n, p=[0.5, 0.3, 0.15, 0.05]),
            "amount": (amount * np.where(anomalous, rng.uniform(5, 12, n), 1)).round(2),
            "days": days.round(),
            "age": rng.integers(18, 90, n),
            "renewed": rng.random(n) < 0.7,
        }
    )


def patients(rng, n, anomalous):
    """Patients: two wards, sugar measured only where it is asked for; anomalies mix the wards."""
    ward = rng.choice(["a", "b"], n, p=[0.6, 0.4])
    b = ward == "b"
    other = np.where(anomalous & (rng.random(n) < 0.7), ~b, b)
    sugar = np.where(anomalous, rng.normal(9, 1, n), rng.normal(5 + 2 * b, 0.5))
    frame = pd.DataFrame(
        {
            "ward": ward,
            "pulse": rng.normal(70 + 15 * b, 6).round(),
            "pressure": rng.normal(120 - 20 * other, 8).round(),
            "sugar": sugar.round(1),
            "smoker": rng.choice(["yes", "no", None], n, p=[0.2, 0.7, 0.1]),
        }
    )
    frame.loc[~b & (rng.random(n) < 0.5), "sugar"] = np.nan
    frame.loc[rng.random(n) < 0.05, "pulse"] = np.nan
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
    ours = (orders, machines, packets, claims, patients)
    tables = {source.__name__: source for source in ours}
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
            mean, error = np.mean(found, axis=0), np.std(found, axis=0) / np.sqrt(draws)
            print(
                f"  {detector:12} power {mean[0]:.3f} (± {error[0]:.3f})  FDR {mean[1]:.3f}",
                flush=True,
            )


def connections(n=40_000, m=58_457, odd=1_179):
    """Connections of a network: text, an id, times, 2 % of the numbers missing; and the truth."""
    rng = np.random.default_rng(0)
    rows, anomalous = n + m, np.arange(n + m) >= n + m - odd
    frame = packets(rng, rows, anomalous & (rng.random(rows) < 0.17))
    rest = anomalous & (frame["wrong_fragment"] == 0)
    x = rng.lognormal(0, 1, (rows, 33)).round(2) * (rng.random((rows, 33)) < 0.5)
    x[rest, :12] += rng.lognormal(1.5, 0.5, (int(rest.sum()), 12))
    x[rng.random(x.shape) < 0.02] = np.nan
    numbers = pd.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])])
    services = rng.zipf(1.5, rows) % 60
    words = {
        "id": [f"C{i:06}" for i in rng.permutation(rows)],
        "time": pd.Timestamp("2024-03-01") + pd.to_timedelta(np.arange(rows), "s"),
        "service": [f"s{k}" for k in services],
        "flag": rng.choice(["SF", "S0", "REJ", "RSTO"], rows, p=[0.9, 0.05, 0.04, 0.01]),
    }
    frame = pd.concat([pd.DataFrame(words), frame, numbers], axis=1)
    return frame[:n], frame[n:], anomalous[n:]


def by_hand(normal, new):
    """PyOD's isolation forest behind a one-hot encoder, split, Benjamini-Hochberg: written out."""
    from pyod.models.iforest import IForest
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    numbers = list(normal.select_dtypes("number"))
    labels = [one for one in normal.select_dtypes(["object", "string"]) if one != "id"]
    encode = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    parts = [("numbers", SimpleImputer(strategy="median"), numbers), ("labels", encode, labels)]
    prepare = ColumnTransformer(parts)
    half = np.random.default_rng(0).permutation(len(normal))
    train, held = np.array_split(half, 2)
    forest = IForest(random_state=0).fit(prepare.fit_transform(normal.iloc[train]))
    calibration = np.sort(forest.decision_function(prepare.transform(normal.iloc[held])))
    scores = forest.decision_function(prepare.transform(new))
    above = len(calibration) - np.searchsorted(calibration, scores, side="left")
    p_values = (1 + above) / (1 + len(calibration))
    ordered, order = np.sort(p_values), np.arange(1, len(new) + 1)
    enough = np.flatnonzero(ordered <= 0.1 * order / len(new))
    return p_values <= (ordered[enough[-1]] if len(enough) else -1.0)


def default(normal, new):
    """Three lines; what is needed is prepared by itself."""
    found = ConformalDetector(random_state=0).fit(normal).discover(new, fdr=0.1)
    return found.mask


def network(n, m, odd, ways):
    """Seconds, and how many of the anomalies are found, by the default and by hand."""
    normal, new, truth = connections(n, m, odd)
    print(f"{n:,} + {m:,} rows x {normal.shape[1]} columns, {odd:,} anomalies", flush=True)
    for way in ways:
        started = time.perf_counter()
        mask = way(normal, new)
        seconds = time.perf_counter() - started
        print(
            f"{way.__name__}: {seconds:.1f} s, {int(mask.sum()):,} flagged, "
            f"{int((mask & truth).sum()):,} of them anomalies",
            flush=True,
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"most memory: {peak:.2f} GB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--network", action="store_true")
    parser.add_argument("--large", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.network:
        network(40_000, 58_457, 1_179, (default, by_hand))
    elif given.large:
        network(100_000, 100_000, 2_000, (default,))
    else:
        compare(given.draws)
