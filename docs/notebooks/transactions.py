# %% [markdown]
# # Card payments
#
# A person went through 1,500 payments of last month and found them in order. Today there are 400
# new ones. Which of them should be looked at, and how many of these looks will be wasted?
#
# The payments are simulated, so that the truth is known at the end. Amounts are log-normal, with a
# mean that depends on what was bought; distances from home are exponential with a mean of 8 km;
# hours are normal around two in the afternoon. In 15 of today's payments somebody else holds the
# card: two to five times the amount, far away, late.

# %%
import altair as alt
import numpy as np
import pandas as pd

from reconform import ConformalDetector, Prepare
from reconform.metrics import false_discovery_proportion, power

rng = np.random.default_rng(1)
MEAN_LOG_AMOUNT = {"food": 3.0, "clothes": 4.0, "travel": 5.5}


def payments(n):
    goods = rng.choice(list(MEAN_LOG_AMOUNT), n, p=[0.6, 0.25, 0.15])
    log_amount = rng.normal(pd.Series(goods).map(MEAN_LOG_AMOUNT), 0.5)
    hour = rng.normal(14, 3, n).clip(0, 24)
    return pd.DataFrame(
        {"goods": goods, "log_amount": log_amount, "km": rng.exponential(8, n), "hour": hour}
    )


checked, today = payments(1_500), payments(400)
stolen = np.arange(400) < 15
today.loc[stolen, "log_amount"] += np.log(rng.uniform(2, 5, 15))
today.loc[stolen, "km"] += rng.uniform(20, 60, 15)
today.loc[stolen, "hour"] = rng.uniform(20, 24, 15)
print(today.head(3).round(2).to_string())

# %% [markdown]
# Amounts are logarithms, so that doubling counts the same for bread as for a flight. `goods` is
# text: `Prepare` turns it into columns that a detector can use, and brings all columns to one
# scale.

# %%
cad = ConformalDetector(Prepare("knn"), method="full", random_state=0).fit(checked)
found = cad.discover(today, fdr=0.1)
print(found.headline)
print(found.promise)
print("verdict:", found.verdict.word)

# %% [markdown]
# Was it right? Only a simulation can say that.

# %%
print(f"false ones in the list: {false_discovery_proportion(found, stolen):.0%}")
print(f"of the 15 stolen cards found: {power(found, stolen):.0%}")

# %% [markdown]
# What most people do instead is a cut-off: flag what is more unusual than 99 % of the checked
# payments. That is one false alarm in a hundred *payments*. How many it is in the *list* depends
# on how much fraud there is. On a day without any fraud, about four payments of 400 are flagged.

# %%
quiet = payments(400)
quiet_list = cad.discover(quiet, fdr=0.1)
print("a quiet day, cut-off at 1 %:", int((quiet_list.p_values <= 0.01).sum()), "flagged")
print("a quiet day, fdr=0.1:      ", quiet_list.count, "flagged")

# %%
shown = today.assign(
    kind=np.select(
        [found.mask & stolen, found.mask, stolen], ["found", "false alarm", "missed"], ""
    )
)
shown["kind"] = shown["kind"].replace("", "normal, not flagged")
kinds = ["normal, not flagged", "found", "false alarm", "missed"]
picture = (
    alt.Chart(alt.Data(values=shown.round(3).to_dict("records")))
    .mark_circle(size=60, opacity=0.8)
    .encode(
        alt.X("km:Q", title="distance from home, km"),
        alt.Y("log_amount:Q", title="logarithm of the amount", scale=alt.Scale(zero=False)),
        alt.Color(
            "kind:N",
            title=None,
            sort=kinds,
            legend=alt.Legend(orient="top"),
            scale=alt.Scale(domain=kinds, range=["#cccccc", "#e45756", "#f2a900", "#4c78a8"]),
        ),
    )
    .properties(title="Today's payments", width=520, height=280)
)

# %% [markdown]
# Why is the first row on the list?

# %%
print(found.explain(position=int(found.order[0])))

# %% [markdown]
# If there is time for ten looks only, take the first ten, with an estimate of how many are wasted:

# %%
print(cad.discover(today, top=10).first())

# %% [markdown]
# Next: [the same every morning, on the command line](../daily.md), or [row by row,
# with a budget of false alarms](../stream.md#a-false-alarm-budget).
