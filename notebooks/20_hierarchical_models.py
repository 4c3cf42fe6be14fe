# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Hierarchical models: how much do groups tell about one another?
#
# Rows often come in groups: patients of a hospital, pupils of a school, houses of a county. One
# may ignore the groups (complete pooling), estimate each group from its own rows alone (no
# pooling), or let the data decide how similar the groups are (partial pooling). This notebook
# compares the three, adds a predictor of the groups themselves, and predicts a group that was not
# seen.
#
# The data are simulated, in the shape of the radon measurements of Minnesota (Gelman & Hill 2007,
# chapter 12): 85 counties, between 1 and 62 houses in each, the floor of the measurement,
# and the uranium in the soil of the county. As they are simulated, the truth is known.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import ppgp
from ppgp import inference, models, plots

COUNTIES, NOISE, BETWEEN = 85, 0.75, 0.2
rng = np.random.default_rng(4)
names = np.array([f"county {i:02d}" for i in range(COUNTIES)])
sizes = np.sort(np.ceil(rng.lognormal(1.7, 1.0, COUNTIES)).astype(int))
uranium = rng.normal(0.0, 0.4, COUNTIES)
level = 1.45 + 0.7 * uranium + rng.normal(0.0, BETWEEN, COUNTIES)  # of a basement, per county

county = np.repeat(np.arange(COUNTIES), sizes)
floor = (rng.random(len(county)) < 0.17).astype(float)
log_radon = level[county] - 0.65 * floor + rng.normal(0.0, NOISE, len(county))
houses = pd.DataFrame(
    {
        "floor": floor,
        "uranium": uranium[county],
        "county": names[county],
        "log_radon": log_radon,
    }
)
print(f"{len(houses)} houses; houses per county: {sizes.min()} to {sizes.max()}, ", end="")
print(f"median {np.median(sizes):.0f}")
houses.sample(5, random_state=0).round(2)

# %% [markdown]
# The means of small counties scatter most. Their scatter is mostly noise: the grey band contains
# nine tenths of the means if all counties had the same level.

# %%
basements = houses[houses["floor"] == 0].groupby("county")["log_radon"].agg(["mean", "size"])
n = np.arange(1, sizes.max() + 1)
middle = houses.loc[houses["floor"] == 0, "log_radon"].mean()
figure, axis = plt.subplots(figsize=(7, 3.6))
half = 1.645 * NOISE / np.sqrt(n)
axis.fill_between(n, middle - half, middle + half, color="lightgrey", label="noise alone: 90 %")
axis.plot(basements["size"], basements["mean"], "o", ms=4, label="one county")
axis.axhline(middle, color="black", lw=0.8)
axis.set_xscale("log")
axis.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"], minor=False)
axis.set_xticks([], minor=True)
axis.set(xlabel="houses measured in the basement", ylabel="mean log radon")
axis.legend(frameon=False)
figure.tight_layout()

# %% [markdown]
# ## Three poolings
#
# A grouping is a column with a role: `groups=["county"]`. `Varying("1")` gives each county an
# intercept of its own, drawn from a normal distribution around the intercept that all share. Its
# standard deviation decides the pooling:
#
# - without groups it is 0: complete pooling;
# - fixed at a large number, here 100, it leaves each county to its own rows: no pooling;
# - with a prior, the default, it is inferred from the data: partial pooling.
#
# With `standardise=False` the sites keep the units of the data, so that `summary()` can be compared
# with the numbers of the simulation: -0.65 for the floor and a noise variance of 0.5625.


# %%
def table_of(columns: list[str], grouped: bool = True) -> ppgp.Dataset:
    """Return the houses with these inputs, with or without their counties."""
    if grouped:
        frame = houses[[*columns, "county", "log_radon"]]
        return ppgp.Dataset.from_frame(frame, "log_radon", groups=["county"])
    return ppgp.Dataset.from_frame(houses[[*columns, "log_radon"]], "log_radon")


by_floor = table_of(["floor"])
nuts = inference.NUTS(draws=500, warmup=500)
options = {"standardise": False, "progress": False}
complete = ppgp.fit(
    models.GLM(), table_of(["floor"], grouped=False), inference.Laplace(), **options
)
separate = ppgp.fit(
    models.GLM(groups={"county": models.Varying("1", 100.0)}),
    by_floor,
    inference.Laplace(),
    **options,
)
partial = ppgp.fit(models.GLM(groups={"county": models.Varying("1")}), by_floor, nuts, **options)
partial.summary()[["mean", "sd", "r_hat"]].round(3)

# %% [markdown]
# The level of a county is its prediction for a basement. A single county shows what the pooling
# does to it. Each panel has the houses of one county, from few to many, and the three lines. With
# two houses the dashed line follows these houses wherever they are; the solid line stays near that
# of all counties. With many houses the two agree.

# %%
floors = np.array([[0.0], [1.0]])
shown = [int(np.searchsorted(sizes, size)) for size in (2, 4, 8, sizes.max())]
figure, axes = plt.subplots(1, 4, figsize=(9.5, 3.2), sharey=True)
for axis, k in zip(axes, shown, strict=True):
    own = houses[houses["county"] == names[k]]
    both = {"county": [names[k]] * 2}
    jitter = 0.06 * rng.uniform(-1, 1, len(own))
    axis.plot(own["floor"] + jitter, own["log_radon"], "o", ms=3, color="grey", alpha=0.6)
    axis.plot(floors, complete.predict(floors).mean, ":", color="black", label="complete pooling")
    axis.plot(floors, separate.predict(floors, groups=both).mean, "--", label="no pooling")
    axis.plot(floors, partial.predict(floors, groups=both).mean, "-", label="partial pooling")
    axis.set_title(f"{names[k]}: {len(own)} houses", fontsize=10)
    axis.set_xticks([0, 1], ["basement", "first floor"])
    axis.set_xlim(-0.3, 1.3)
axes[0].set_ylabel("log radon")
figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=3)
figure.tight_layout(rect=(0, 0.1, 1, 1))

# %% [markdown]
# ## Which estimate is nearest to the truth?
#
# The truth is known here, so the error of the level of each county can be computed. Complete
# pooling is wrong by as much for large counties as for small ones. No pooling is good for large
# counties and poor for small ones. Partial pooling is as good as the better of them, or better, in
# every size.

# %%
basement = np.zeros((COUNTIES, 1))
every = {"county": list(names)}
estimates = {
    "complete pooling": complete.predict(basement),
    "no pooling": separate.predict(basement, groups=every),
    "partial pooling": partial.predict(basement, groups=every),
}
bins = pd.cut(sizes, [0, 4, 12, 1000], labels=["1 to 4 houses", "5 to 12", "13 or more"])


def errors_by_size(predictions: dict[str, ppgp.Prediction]) -> pd.DataFrame:
    """Return the root mean squared error of the levels, by size of the county."""
    squared = pd.DataFrame({k: (p.mean.numpy() - level) ** 2 for k, p in predictions.items()})
    table = squared.groupby(bins, observed=True).mean()
    table.loc["all"] = squared.mean()
    return np.sqrt(table)


errors = errors_by_size(estimates)
errors.round(3)

# %% [markdown]
# `plots.shrinkage` shows the same for each county without knowledge of the truth: squares are the
# estimates without pooling, dots and bars those with partial pooling, as differences from the level
# that all share. The larger the county, the less its estimate moves. The 30 largest are shown.

# %%
plots.shrinkage(partial, levels=30)

# %% [markdown]
# ## A predictor of the groups
#
# Counties differ for a reason. Uranium in the soil is known for each county, and enters as a column
# of X that is constant within a county. Part of the difference between counties is then explained,
# the standard deviation of what is left, `county.sd`, falls, and the estimates of small counties
# are pulled towards the line of uranium in place of the common mean.
#
# A prediction is that of a house, so its variance is that of the level plus that of the noise. The
# bars below are for the level alone.

# %%
explained = ppgp.fit(
    models.GLM(groups={"county": models.Varying("1")}),
    table_of(["floor", "uranium"]),
    nuts,
    **options,
)
explained.summary()[["mean", "sd", "r_hat"]].round(3)


# %%
def sd_of_level(posterior: ppgp.Posterior, prediction: ppgp.Prediction) -> np.ndarray:
    """Return the standard deviation of the levels: that of the houses without their noise."""
    return (prediction.variance - posterior.theta["noise"].mean()).sqrt().numpy()


with_uranium = np.column_stack([np.zeros(COUNTIES), uranium])
estimates["with uranium"] = explained.predict(with_uranium, groups=every)
line = np.column_stack([np.zeros(50), np.linspace(uranium.min(), uranium.max(), 50)])
unseen = {"county": ["a county without houses"] * 50}
along = explained.predict(line, groups=unseen)
spread = 1.645 * sd_of_level(explained, estimates["with uranium"])
figure, axis = plt.subplots(figsize=(7, 3.8))
axis.errorbar(
    uranium,
    estimates["with uranium"].mean,
    yerr=spread,
    fmt="o",
    ms=3,
    lw=0.7,
    label="level of a county, 90 %",
)
axis.plot(uranium, level, "x", ms=4, color="C3", label="truth")
axis.plot(line[:, 1], along.mean, color="black", lw=1, label="level that uranium predicts")
axis.set(xlabel="uranium in the soil (log, centred)", ylabel="log radon of a basement")
axis.legend(frameon=False)
figure.tight_layout()

# %%
errors = errors_by_size(estimates)
errors.round(3)

# %% [markdown]
# ## Which model predicts better?
#
# Leave-one-out cross-validation compares the two models on the houses themselves, without the
# truth. `ppgp.compare` ranks them by the expected log predictive density, `elpd`, with the standard
# error of the difference. Uranium hardly matters for this question: most houses are in counties
# whose level is known from other houses. It matters for the levels of small counties, as the table
# above shows, and for counties without houses, as the next one does.

# %%
ranking = ppgp.compare({"counties": partial, "counties and uranium": explained}).ranking
ranking.round(2)

# %% [markdown]
# ## A county that was not seen
#
# A new county is drawn from the distribution of counties, so its interval for the level is wider
# than that of a county with many houses. Knowing its uranium makes it narrower. No pooling says
# nothing about a new county: its standard deviation between counties was fixed at 100.

# %%
largest = {"county": [names[-1]]}
new = {"county": ["a new one"]}
cases = {
    "largest county, partial pooling": (partial, basement[:1], largest),
    "new county, partial pooling": (partial, basement[:1], new),
    "new county with uranium 0": (explained, np.zeros((1, 2)), new),
    "new county, no pooling": (separate, basement[:1], new),
}
sds = pd.Series(
    {
        name: float(sd_of_level(posterior, posterior.predict(X, groups=group))[0])
        for name, (posterior, X, group) in cases.items()
    },
    name="sd of the level",
)
sds.round(3)

# %% [markdown]
# ## What was shown

# %%
few = errors.loc["1 to 4 houses"]
assert few["partial pooling"] < few["no pooling"]
many = errors.loc["13 or more"]
assert many["partial pooling"] < many["complete pooling"]
overall = errors.loc["all"]
assert overall["with uranium"] < overall["partial pooling"] < overall["complete pooling"]
between = [float(p.theta["county.sd"].mean()) for p in (partial, explained)]
assert between[1] < between[0]
assert sds.iloc[0] < sds.iloc[2] < sds.iloc[1] < sds.iloc[3]
