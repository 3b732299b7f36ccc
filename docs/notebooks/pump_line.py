# %% [markdown]
# # One pump, hour by hour
#
# A pump reports its flow and its temperature every hour. Both follow the day, and an hour is much
# like the hour before. Ten weeks were in order. What happened in the two weeks after that?
#
# The readings are simulated, with two faults: a leak for a day and a half, and a bearing that runs
# hot for ten hours.

# %%
import altair as alt
import numpy as np
import pandas as pd

from reconform import ConformalDetector
from reconform.stream import WindowStream
from reconform.timeseries import Windows, fit

rng = np.random.default_rng(5)
hours = 24 * 7 * 12
wave = np.sin(2 * np.pi * np.arange(hours) / 24)


def noise(rho):
    """Every hour is like the one before, and a little different."""
    steps = rng.normal(size=hours) * np.sqrt(1 - rho**2)
    out = np.zeros(hours)
    for t in range(1, hours):
        out[t] = rho * out[t - 1] + steps[t]
    return out


pump = pd.DataFrame({"when": pd.date_range("2025-01-06", periods=hours, freq="h")})
pump["flow"] = 50 + 4 * wave + noise(0.6)
pump["temperature"] = 60 + 2 * wave + noise(0.6)
leak, hot = slice(1_760, 1_795), slice(1_920, 1_929)
pump.loc[leak, "flow"] -= 4
pump.loc[hot, "temperature"] += 6
normal, new = pump[:1_680], pump[1_680:]

# %% [markdown]
# ## Hour by hour, as if the order did not matter
#
# The list promises nothing, and says why: neighbouring rows are alike.

# %%
columns = ["flow", "temperature"]
rows = ConformalDetector("knn", "full").fit(normal[columns], times=normal["when"])
plain = rows.discover(new[columns], times=new["when"])
print(plain.verdict.word)
print(plain.verdict.findings[0].sentence)

# %% [markdown]
# ## In windows
#
# `Windows` cuts the series into ten hours each and looks at what a forecast misses, from the hour
# of the day and the hours before. What is left is nearly independent, and a window tells flow from
# temperature.

# %%
windows = Windows("when")
cad = fit(normal, windows, random_state=0)
found = cad.discover(new, units=windows, fdr=0.2)
print(found.headline)
for event in found.events:
    print(event.sentence)

# %%
expected = found.units.forecasts()
shown = new.assign(expected=expected[:, 0])[["when", "flow", "expected"]]
shown["when"] = shown["when"].astype(str)
marks = pd.DataFrame(
    [{"begin": event.begin, "end": event.end} for event in found.events if "flow" in event.columns]
)
flow = (
    alt.Chart(alt.Data(values=shown.round(2).to_dict("records")))
    .transform_fold(["flow", "expected"], as_=["what", "value"])
    .mark_line(strokeWidth=1.2)
    .encode(
        alt.X("when:T", title=None),
        alt.Y("value:Q", title="flow", scale=alt.Scale(zero=False)),
        alt.Color(
            "what:N",
            title=None,
            legend=alt.Legend(orient="top"),
            scale=alt.Scale(domain=["flow", "expected"], range=["#4c78a8", "#bbbbbb"]),
        ),
    )
)
shade = (
    alt.Chart(alt.Data(values=marks.to_dict("records")))
    .mark_rect(opacity=0.25, color="#e45756")
    .encode(alt.X("begin:T"), alt.X2("end:T"))
)
picture = (shade + flow).properties(
    title="Flow of the two weeks after the reference, what was expected, and the events",
    width=640,
    height=180,
)

# %% [markdown]
# ## While it happens
#
# The same windows, decided as the hours arrive:

# %%
stream = WindowStream(cad, false_alarms=2, per=100)
for k in range(0, len(new), 24):  # a batch every night
    for told in stream.update(new[k : k + 24]):
        if told.flagged:
            print(f"event {told.event}: {told.begin} to {told.end}, {', '.join(told.columns)}")

# %% [markdown]
# On the command line: `reconform detect normal.csv new.csv --time when --report report.html`. What
# holds for windows, and what to do about a reference that grows old:
# [rows in time order](../time.md).
