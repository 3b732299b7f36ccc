# %% [markdown]
# # Sensors of three types of machine
#
# A plant has pumps, fans and a few mixers, and every machine reports three numbers. What is normal
# for a fan would be alarming for a pump. Which machines should be looked at today, in one list for
# the whole plant?
#
# The readings are simulated: normal within each type, with means and spreads of its own, and
# vibration that goes with the load. Ten machines are broken: they vibrate more than their load
# explains.

# %%
import altair as alt
import numpy as np
import pandas as pd

from reconform import ConformalDetector
from reconform.metrics import false_discovery_proportion, power

rng = np.random.default_rng(3)
#          mean of load, heat, vibration; spread of the vibration
NORMAL = {"pump": (50, 60, 2, 0.2), "fan": (80, 40, 6, 1.0), "mixer": (30, 70, 4, 0.5)}


def readings(**count):
    parts = []
    for kind, n in count.items():
        load, heat, vibration, spread = NORMAL[kind]
        up = rng.normal(size=n)
        columns = {"type": kind, "load": load + 5 * up, "heat": rng.normal(heat, 3, n)}
        columns["vibration"] = vibration + spread * (up + 0.5 * rng.normal(size=n))
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


reference = readings(pump=300, fan=250, mixer=60)
today = readings(pump=120, fan=60, mixer=20)
broken = np.zeros(200, bool)
broken[[*range(6), 120, 121, 122, 180]] = True
today.loc[broken, "vibration"] += 3.5 * today["type"].map(lambda kind: NORMAL[kind][3])[broken]
columns = ["load", "heat", "vibration"]

# %% [markdown]
# ## All machines together
#
# Fans vibrate more than pumps, so that a broken pump does not stand out.

# %%
together = ConformalDetector("knn", "full", random_state=0).fit(reference[columns])
mixed = together.discover(today[columns], fdr=0.1)
print(f"flagged: {mixed.count}, of the broken ones found: {power(mixed, broken):.0%}")

# %% [markdown]
# ## Ranked within their type
#
# `groups` names the type of each row. A row is compared with machines of its type only, by a
# detector of its type (`group_models=True`), and all types are decided together: one list, one
# rate.

# %%
cad = ConformalDetector("mahalanobis", "full", group_models=True, random_state=0)
cad.fit(reference[columns], groups=reference["type"])
found = cad.discover(today[columns], fdr=0.1, groups=today["type"])
print(found.headline)
print(f"of the broken ones found: {power(found, broken):.0%}")
print(f"false ones in the list: {false_discovery_proportion(found, broken):.0%}")
for group in found.groups:
    print(
        f"{group.name}: {group.flagged} of {group.rows} flagged, {group.reference} reference rows"
    )

# %%
p_values = np.concatenate([mixed.p_values, found.p_values])
values = pd.DataFrame(
    {
        "p-value": p_values,
        "type": [*today["type"]] * 2,
        "way": np.repeat(["all together", "within the type"], 200),
        "machine": np.where([*broken, *broken], "broken", "in order"),
    }
)
picture = (
    alt.Chart(alt.Data(values=values.round(5).to_dict("records")))
    .mark_tick(thickness=2, size=18)
    .encode(
        alt.X("p-value:Q", scale=alt.Scale(type="log"), title="p-value"),
        alt.Y("type:N", title=None),
        alt.Color(
            "machine:N",
            title=None,
            legend=alt.Legend(orient="top"),
            scale=alt.Scale(domain=["in order", "broken"], range=["#bbbbbb", "#e45756"]),
        ),
        alt.Row("way:N", title=None),
    )
    .properties(title="p-values of today's machines", width=480, height=90)
)

# %% [markdown]
# Within their type broken machines are at the left. Among all machines they are anywhere.
#
# ## Few machines of a type
#
# With r reference rows of a type no p-value is below 1/(r + 1): for sixty mixers that is 1/61, and
# a list of ten flags nothing above 0.1 · 10/200 = 1/200. So the broken mixer is not in the list,
# and the result says so:

# %%
print(found.warning)

# %% [markdown]
# The remedy is more reference rows of this type, or a list of the mixers alone. With ten of them
# it is worse:

# %%
few = pd.concat([reference[reference["type"] != "mixer"], readings(mixer=10)])
cad.fit(few[columns], groups=few["type"])
print(cad.discover(today[columns], fdr=0.1, groups=today["type"]).warning)

# %% [markdown]
# On the command line, with one detector for all types: `reconform detect normal.csv new.csv --group
# type`. Methods, unknown types and what is proven: [groups](../groups.md).
