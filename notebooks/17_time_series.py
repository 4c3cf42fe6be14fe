# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Time series: forty years of weekly CO2
#
# `StateSpaceGP` is the exact Gaussian process of `GP` on one column, time, at a cost linear in the
# number of rows: its kernels are those whose function is part of a Markov process, so that a filter
# does the algebra. Times may be irregular. The series is the CO2 in the air of Mauna Loa, weekly
# means in ppm (Keeling & Whorf 2004), which statsmodels has.

# %%
# %matplotlib inline
import math

import matplotlib.pyplot as plt
import pandas as pd
from statsmodels.datasets import co2

import ppgp
from ppgp import conformal, inference, kernels, models, plots
from ppgp.priors import InUnitsOfData, LogNormal

weeks = co2.load_pandas().data.rename_axis("date").reset_index()
measured = weeks.dropna()
print(f"{len(weeks)} weeks, {len(weeks) - len(measured)} of them without a measurement")
weeks.plot(x="date", y="co2", figsize=(9, 3), legend=False, ylabel="ppm", linewidth=0.8)
plt.show()

# %% [markdown]
# ## Dates and priors
#
# `dates="years"` turns the dates into years. The last four years are kept aside.

# %%
later = measured["date"] >= "1998-01-01"
past = ppgp.Dataset.from_frame(measured[~later], "co2", dates="years")
past


# %% [markdown]
# The terms of the kernel follow Rasmussen & Williams (2006), section 5.4.3: a trend, the seasons,
# and short deviations. The trend is a line and a slow Matern 5/2 function. The seasons are waves of
# a year and of half a year whose size and phase change slowly: products of a Matern kernel and a
# Cosine. A prior inside `InUnitsOfData` is in ppm^2 and years, and so is a number, such as the
# period of a year.


# %%
def about(median: float) -> InUnitsOfData:
    """Return a prior that is within a factor of four of the median with probability 0.95."""
    return InUnitsOfData(LogNormal(math.log(median), 0.7))


line = kernels.Linear()
trend = kernels.Matern(2.5, about(300.0), about(20.0))
year = kernels.Matern(1.5, about(5.0), about(50.0)) * kernels.Cosine(1.0, 1.0)
half = kernels.Matern(1.5, about(0.5), about(50.0)) * kernels.Cosine(1.0, 0.5)
short = kernels.Matern(1.5, about(0.3), about(0.3))
model = models.StateSpaceGP(line + trend + year + half + short, noise=about(0.1))
fit = ppgp.fit(model, past, inference.MAP(), progress=False)
print(f"{past.n} weeks, {fit.seconds:.0f} s")
fit.summary("data")["mean"].map("{:.2g}".format)

# %% [markdown]
# `kernel.0` to `kernel.4` are the terms in the order of the sum: line, trend, year, half a year and
# short deviations. The factors of a product have one more number.
#
# ## The components
#
# Each term of the sum has a posterior distribution of its own. `update` goes on to the last weeks
# under the same hyperparameters, and costs no fit.

# %%
last = ppgp.Dataset.from_frame(measured[later], "co2", dates="years")
full = fit.update(last.X, last.y)
parts = full.components(weeks[["date"]])
names = {
    "trend": ["0 Linear", "1 Matern"],
    "year": ["2 Product"],
    "half a year": ["3 Product"],
    "short deviations": ["4 Matern"],
}
figure, axes = plt.subplots(4, 1, figsize=(9, 8), sharex=True, layout="constrained")
for axis, (title, terms) in zip(axes, names.items(), strict=True):
    mean = sum(parts[term].mean for term in terms)
    axis.plot(weeks["date"], mean, linewidth=0.8)
    if len(terms) == 1:
        low, high = parts[terms[0]].interval(0.9)
        axis.fill_between(weeks["date"], low, high, alpha=0.3, linewidth=0)
    axis.set(title=title, ylabel="ppm")

# %% [markdown]
# ## Missing weeks
#
# Weeks without a measurement are rows to predict. The longest gap is in 1964. The intervals are
# wider there. Whether such intervals cover is checked on the measured weeks, each predicted from
# all others under the same hyperparameters, in closed form.

# %%
window = weeks["date"].between("1963-06-01", "1965-06-01")
shown = weeks[window]
found = full.predict(shown[["date"]])
low, high = found.interval(0.95)
figure, axis = plt.subplots(figsize=(9, 3.5), layout="constrained")
axis.fill_between(shown["date"], low, high, alpha=0.3, linewidth=0, label="95 % intervals")
axis.plot(shown["date"], found.mean, linewidth=1)
axis.plot(shown["date"], shown["co2"], ".", color="black", label="measured")
axis.set(ylabel="ppm")
axis.legend()
plt.show()

# %%
loo = fit.loo()
inside = loo.interval(0.95).covers(past.y).double().mean()
print(f"{float(inside):.1%} of the measured weeks are in the 95 % intervals of the others")

# %% [markdown]
# ## A forecast
#
# From 1998 on, from the weeks before 1998 alone: the intervals become wider, as the trend may bend.

# %%
ahead = weeks[weeks["date"] >= "1998-01-01"]
forecast = fit.predict(ahead[["date"]])
low, high = forecast.interval(0.9)
recent = weeks[weeks["date"] >= "1995-01-01"]
figure, axis = plt.subplots(figsize=(9, 3.5), layout="constrained")
axis.fill_between(ahead["date"], low, high, alpha=0.3, linewidth=0, label="90 % intervals")
axis.plot(ahead["date"], forecast.mean, linewidth=1)
axis.plot(recent["date"], recent["co2"], ".", color="black", markersize=2, label="measured")
axis.set(ylabel="ppm")
axis.legend()
error = forecast.mean[ahead["co2"].notna().to_numpy(copy=True)] - last.y
print(f"root mean squared error over four years: {float(error.square().mean().sqrt()):.2f} ppm")

# %% [markdown]
# ## Conformal intervals over time
#
# `one_step_ahead` predicts each week from all weeks before it, in one pass. These predictions are
# as good as the model and its noise. Adaptive conformal inference (Gibbs & Candes 2021) corrects
# them: each miss makes the next intervals wider, and each hit narrower. Its statement on the share
# of misses in the long run holds for any series; for about a hundred weeks it is loose. The first
# 104 weeks calibrate; the others are the sequence.

# %%
first, rest = slice(0, 104), slice(104, None)
score = conformal.Normalized()
stepwise = fit.one_step_ahead(last.X, last.y)
calibration = conformal.calibrate(score, stepwise[first], last.y[first])
aci = conformal.ACI(score, level=0.9, rate=0.02)
runs = {"adaptive conformal": aci(stepwise[rest], last.y[rest], calibration)}
online = runs["adaptive conformal"]
print(online.region.guarantee)
plots.online(runs, window=26)

# %%
dates = measured["date"][later].iloc[rest]
figure, axis = plt.subplots(figsize=(9, 3.5), layout="constrained")
low, high = online.region
axis.fill_between(dates, low, high, alpha=0.3, linewidth=0, label="one week ahead, 90 %")
axis.plot(dates, last.y[rest], ".", color="black", markersize=3, label="measured")
missed = online.errors.numpy()
axis.plot(
    dates[missed], last.y[rest][missed], "o", color="tab:red", fillstyle="none", label="missed"
)
axis.set(ylabel="ppm")
axis.legend()
print(f"{online.coverage:.1%} of {len(dates)} weeks covered, of 90 % wanted")

# %%
widths = pd.Series((online.region.upper - online.region.lower).numpy())
assert 0.92 <= float(inside) <= 0.98
assert float(error.square().mean().sqrt()) < 1.5
assert abs(online.coverage - 0.9) <= min(aci.bound(len(dates)), 0.09)
assert widths.median() < 1.5
assert float(full.predict(weeks[["date"]]).mean.isfinite().double().mean()) == 1.0
