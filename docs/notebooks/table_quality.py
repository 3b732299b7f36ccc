# %% [markdown]
# # Is this table in order?
#
# A supplier sends a price list every month. Last year's list was checked, more or less. The new
# one may hold wrong units, typing errors and missing values. Which rows should go back to the
# supplier, and is the old list a fair standard?
#
# The lists are simulated: a part has a length, a weight that grows with it and with the material,
# and a price that grows with the weight, each with a scatter of about a tenth.

# %%
import altair as alt
import numpy as np
import pandas as pd

from reconform import ConformalDetector, Prepare, review

rng = np.random.default_rng(5)
DENSITY = {"steel": 7.8, "brass": 8.5, "nylon": 1.1}


def parts(n):
    material = rng.choice(list(DENSITY), n)
    length = rng.uniform(2, 20, n)
    weight = length * pd.Series(material).map(DENSITY) * np.exp(rng.normal(0, 0.1, n))
    price = 0.05 * weight + 0.3 * np.exp(rng.normal(0, 0.1, n))
    columns = {"material": material, "length": length, "weight": weight, "price": price}
    return pd.DataFrame(columns).round(3)


old, new = parts(600), parts(300)
new.loc[:7, "weight"] *= 10  # eight weights in another unit
old.loc[:8, "weight"] *= 10  # and nine in the old list, which nobody noticed
new.loc[100:102, "price"] = None

# %% [markdown]
# ## The old list is dirty
#
# Text and missing values are no obstacle with `Prepare`. But the list comes out short, and the
# result says why:

# %%
cad = ConformalDetector(Prepare("knn"), "jackknife+", random_state=0).fit(old)
found = cad.discover(new, fdr=0.1)
print(found.headline)
print(found.verdict)

# %% [markdown]
# A person looks at its most unusual rows, each scored by models that have not seen it. Nothing is
# taken out automatically: every list has its most unusual rows.

# %%
seen = review(cad)
print(old.iloc[seen.order[:10]].to_string())

# %% [markdown]
# Whoever knows the material sees it at once: nylon that is heavier than steel. Among the first
# twelve, parts with more than three times the weight that their length allows are taken out.

# %%
heavy = old["weight"] > 3 * old["length"] * old["material"].map(DENSITY)
marked = [row for row in seen.order[:12] if heavy[row]]
cleaned = old.drop(index=old.index[marked])
cad = ConformalDetector(Prepare("knn"), "jackknife+", random_state=0).fit(cleaned)
found = cad.discover(new, fdr=0.1)
print(len(marked), "rows left the old list.", found.headline)
print(new[found.mask].to_string())

# %% [markdown]
# The list has all eight wrong units, the three missing prices (no price was missing before), and
# one part that is in order. About one in ten was asked for.

# %%
shown = new.assign(kind=np.where(found.mask, "flagged", "new")).dropna()
shown = pd.concat([cleaned.assign(kind="old list"), shown])
kinds = ["old list", "new", "flagged"]
picture = (
    alt.Chart(alt.Data(values=shown.to_dict("records")))
    .mark_circle(size=50, opacity=0.8)
    .encode(
        alt.X("length:Q", title="length"),
        alt.Y("weight:Q", title="weight", scale=alt.Scale(type="log")),
        alt.Color(
            "kind:N",
            title=None,
            legend=alt.Legend(orient="top"),
            sort=kinds,
            scale=alt.Scale(domain=kinds, range=["#cccccc", "#4c78a8", "#e45756"]),
        ),
    )
    .properties(title="The new list against the cleaned old one", width=520, height=280)
)

# %% [markdown]
# ## When the whole table is off
#
# A list of single rows is the wrong answer if all rows have moved. That is checked before anything
# is promised. Prices went up by a third:

# %%
dearer = new.assign(price=new["price"] * 1.33 + 0.3)
print(cad.discover(dearer).verdict)

# %% [markdown]
# And a spelling that is new:

# %%
spelled = new.assign(material=new["material"].replace("nylon", "Nylon"))
print(cad.discover(spelled).verdict.findings[0])

# %% [markdown]
# All checks, and what to do about each: [when the assumption fails](../assumptions.md). From
# files: [`reconform clean`](../cli.md#reconform-clean) and `reconform check`, with an exit code
# for a schedule.
