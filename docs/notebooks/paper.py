# %% [markdown]
# # A cell of the paper's tables
#
# The paper draws a training set of normal rows, then test sets of which a tenth are anomalies,
# fits, and counts what is found at a level of 0.1; again and again. `reconform.study` is this
# protocol for any data. Here it redoes the row *breast, kNN* of the paper's tables and sets it
# beside the printed numbers.
#
# The data set is a file of [ADBench](https://github.com/Minqi824/ADBench); `RECONFORM_DATA` names
# a folder that has it, otherwise it is downloaded once.

# %%
from paper_charts import results_chart  # in results/ of the repository
from paper_comparison import compare
from paper_tables import columns
from paper_tables import table as table_of

from reconform.study import Protocol, Study, load

data = load("breast")
print(len(data.X), "rows,", int(data.y.sum()), "of them anomalies")

methods = ["split", "cv-pooled", "jackknife-pooled", "jackknife+", "full"]
study = Study(["breast"], ["knn"], methods, Protocol(draws=25, test_sets=20))
study.run()
table = table_of(study)

# %% [markdown]
# *FDR* is the share of false ones among the flagged rows, *power* the share of anomalies that are
# flagged: means over 25 draws with 20 test sets each (the paper has 100). A half of the rows is
# too few for the split to find much; the methods that use all of them find twice as much at the
# same level. That is the paper's point.
#
# The paper's numbers beside ours. Its columns with a plus are our `pooled` ([why](../methods.md));
# a difference of up to 2 standard errors is what chance does.

# %%
table = compare(study).to_markdown()

# %%
picture = results_chart(study.cells(), columns(study))
picture = picture.properties(title="breast, kNN: FDR and power by method")

# %% [markdown]
# `jackknife+` and `full` are not in the paper's tables: the first is its Algorithm 1 taken
# literally, the second has exact p-values. All 288 cells, and those that the paper left empty:
# [results](../results.md).
