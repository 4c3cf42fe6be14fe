# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Gaussian processes, from a dozen lines to the library
#
# This notebook follows M. Facure's tutorial *Processos Gaussianos* (2018), with the data that it
# begins with: the bikes rented in Washington on each day of 2011 and 2012 (UCI 275). The code here
# corrects several mistakes of the tutorial: `exp(-d^2 / (2 l))` for `exp(-d^2 / (2 l^2))`, a
# Kronecker product for the Kronecker delta, the covariance of the *test* rows where that of the
# training rows belongs, `L'L` for `LL'`, and bands without the noise.
#
# The data are read from `bike/day.csv` in the folder that the environment variable `PPGP_DATA`
# names, by default `data/` at the top of the repository; `docs/data.md` gives the source. Without
# the file the notebook runs on simulated days, and prints that it does; the text describes the
# published data. The target is the sum of `casual` and `registered`, so neither is ever an input.

# %%
# %matplotlib inline
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from scipy.linalg import solve_triangular

import ppgp
from ppgp import inference, kernels, metrics, models, priors


def simulated_days():
    """731 days with the columns that the notebook reads: a season, a trend and noise."""
    rng = np.random.default_rng(0)
    day = np.arange(731)
    season = np.sin(2 * np.pi * (day - 105) / 365.25)
    warmth = 0.5 + 0.25 * season + 0.05 * rng.normal(size=731)
    humidity, wind = rng.uniform(0.3, 0.95, 731), rng.uniform(0.05, 0.4, 731)
    mean = 3000 + 2.7 * day + 1500 * season - 1200 * humidity - 1500 * wind
    casual = np.round(np.clip(0.2 * mean + 150 * rng.normal(size=731), 0, None)).astype(int)
    registered = np.round(np.clip(0.8 * mean + 500 * rng.normal(size=731), 0, None)).astype(int)
    return pd.DataFrame(
        {
            "dteday": pd.date_range("2011-01-01", periods=731),
            "temp": warmth,
            "hum": humidity,
            "windspeed": wind,
            "casual": casual,
            "registered": registered,
            "cnt": casual + registered,
        }
    )


file = Path(os.environ.get("PPGP_DATA", "../data")) / "bike" / "day.csv"
published = file.is_file()
if published:
    days = pd.read_csv(file, parse_dates=["dteday"])
else:
    print("bike/day.csv is missing: the rows are simulated")
    days = simulated_days()
assert (days["cnt"] == days["casual"] + days["registered"]).all()
table = pd.DataFrame(
    {
        "day": np.arange(len(days), dtype=float),
        # the file has these three divided by 41, 100 and 67: C, % and km/h
        "temperature": 41 * days["temp"],
        "humidity": 100 * days["hum"],
        "wind": 67 * days["windspeed"],
        "rides": days["cnt"] / 1000,  # in thousands
    }
)
table.describe().loc[["mean", "std", "min", "max"]].round(1)

# %% [markdown]
# ## A dozen lines
#
# The input is the temperature alone. Forty days of 2011 are the training rows, and the other 325
# days are predicted. All quantities are in standard deviations.

# %%
order = np.random.default_rng(0).permutation(365)
first, others = order[:40], order[40:]


def standard(v):
    return (v - v[first].mean()) / v[first].std()


warmth, rides = (
    standard(table["temperature"].to_numpy()[:365]),
    standard(table["rides"].to_numpy()[:365]),
)
x, y, new = warmth[first], rides[first], warmth[others]


def kernel(a, b, variance=1.0, lengthscale=0.7):
    return variance * np.exp(-0.5 * (a[:, None] - b[None, :]) ** 2 / lengthscale**2)


def gaussian_process(x, y, new, noise=0.3):
    """Mean and covariance of f at the new rows, and log p(y).

    Rasmussen & Williams (2006), algorithm 2.1.
    """
    # K + noise I = L L' of the training rows
    L = np.linalg.cholesky(kernel(x, x) + noise * np.eye(len(x)))
    V = solve_triangular(L, kernel(x, new), lower=True)
    w = solve_triangular(L, y, lower=True)
    evidence = -0.5 * w @ w - np.log(np.diag(L)).sum() - 0.5 * len(x) * np.log(2 * np.pi)
    return V.T @ w, kernel(new, new) - V.T @ V, evidence


# %%
grid = np.linspace(-2.5, 2.5, 200)
mean, covariance, evidence = gaussian_process(x, y, grid)
draw = np.random.default_rng(1).multivariate_normal
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True)
axes[0].plot(grid, draw(np.zeros(200), kernel(grid, grid), 8).T, lw=0.8)
axes[0].fill_between(grid, -1.96, 1.96, color="0.9")
axes[0].set(title="before the data", xlabel="temperature (sd)", ylabel="rides (sd)")
sd = np.sqrt(np.diag(covariance))
axes[1].fill_between(
    grid,
    mean - 1.96 * np.sqrt(sd**2 + 0.3),
    mean + 1.96 * np.sqrt(sd**2 + 0.3),
    color="0.93",
    label="95 % of y",
)
axes[1].fill_between(grid, mean - 1.96 * sd, mean + 1.96 * sd, color="0.8", label="95 % of f")
axes[1].plot(grid, draw(mean, covariance, 8).T, lw=0.8)
axes[1].plot(x, y, "k.", label="40 days")
axes[1].set(title="after", xlabel="temperature (sd)")
axes[1].legend(fontsize=8, loc="lower right")
plt.show()

# %% [markdown]
# The inner band is that of the function. The rides of a day scatter around the function, and a
# band for *them* includes the noise:

# %%
centre, spread, _ = gaussian_process(x, y, new)
covered = {
    name: float((np.abs(rides[others] - centre) < 1.96 * np.sqrt(np.diag(spread) + extra)).mean())
    for name, extra in (("of f", 0.0), ("of y", 0.3))
}
print({name: f"{share:.0%} of 325 days in the 95 % band" for name, share in covered.items()})

# %% [markdown]
# The library gives the same numbers; a number in place of a prior fixes the value.

# %%
fixed = models.GP(kernels.RBF(variance=1.0, lengthscale=0.7), noise=0.3)


def as_rows(v):
    return torch.as_tensor(v)[:, None]


predictive = fixed.predict({}, as_rows(new), ppgp.Dataset(as_rows(x), y))
gap = (
    float(np.abs(predictive.mean[0].numpy() - centre).max()),
    float(np.abs(predictive.variance[0].numpy() - np.diag(spread) - 0.3).max()),
)
print(f"largest difference in means {gap[0]:.1e}, in variances {gap[1]:.1e}")

# %% [markdown]
# ## Kernels: what functions are like before the data
#
# A kernel is the covariance of two values of the function. Sums and products of kernels are
# kernels.

# %%
shown = {
    "RBF, lengthscale 1": kernels.RBF(1.0, 1.0),
    "RBF, lengthscale 0.2": kernels.RBF(1.0, 0.2),
    "Exponential (Matern 1/2)": kernels.Exponential(1.0, 1.0),
    "Periodic": kernels.Periodic(1.0, 1.0, 1.5),
    "Linear + RBF": kernels.Linear(1.0) + kernels.RBF(0.1, 0.3),
    "Periodic * RBF": kernels.Periodic(1.0, 1.0, 1.0) * kernels.RBF(1.0, 1.5),
}
figure, axes = plt.subplots(2, 3, figsize=(9, 4.2), sharex=True, sharey=True)
for axis, (name, one) in zip(axes.flat, shown.items()):
    K = one({}, as_rows(grid)).numpy()
    axis.plot(grid, draw(np.zeros(200), K, 4).T, lw=0.9)
    axis.set_title(name, fontsize=9)
plt.show()

# %% [markdown]
# ## Hyperparameters: the mode, or the whole posterior
#
# Flat priors give the maximum of the likelihood (ML-II), default priors the mode of the posterior
# (MAP), and NUTS draws from the whole posterior. The fits begin at several starts, as the
# likelihood of a GP may have several modes. Lengthscale and noise are on the standardised scale,
# the other columns are about the rides of the 325 days, in thousands.

# %%
forty = ppgp.Dataset(
    table["temperature"].to_numpy()[first][:, None],
    table["rides"].to_numpy()[first],
    ["temperature"],
    "rides",
)
rest = ppgp.Dataset(
    table["temperature"].to_numpy()[others][:, None], table["rides"].to_numpy()[others]
)
flat = models.GP(kernels.RBF(priors.Flat(), priors.Flat()), noise=priors.Flat())
fits = {
    "ML-II": ppgp.fit(flat, forty, inference.MAP(starts=5), progress=False),
    "MAP": ppgp.fit(models.GP(), forty, inference.MAP(starts=5), progress=False),
    "NUTS": ppgp.fit(models.GP(), forty, inference.NUTS(draws=300, warmup=300), progress=False),
}
figures = {}
for name, posterior in fits.items():
    prediction = posterior.predict(rest.X)
    figures[name] = {
        "lengthscale": float(posterior.draws["kernel.lengthscale"].mean()),
        "noise": float(posterior.draws["noise"].mean()),
        "rmse": metrics.rmse(prediction, rest.y),
        "nll": metrics.nll(prediction, rest.y),
        "coverage at 0.9": metrics.coverage(prediction.interval(0.9), rest.y),
        "sd of f": float(posterior.latent(rest.X).std.mean()),
    }
figures = pd.DataFrame(figures).T
figures.round(3)

# %%
draws = fits["NUTS"].draws
figure, axis = plt.subplots(figsize=(5, 3.6))
axis.scatter(
    draws["kernel.lengthscale"].flatten(), draws["noise"].flatten(), s=4, alpha=0.3, label="NUTS"
)
for name, marker in (("ML-II", "^"), ("MAP", "s")):
    at = fits[name].draws
    axis.plot(
        at["kernel.lengthscale"].item(),
        at["noise"].item(),
        marker,
        ms=9,
        mec="white",
        color="black",
        label=name,
    )
axis.set(
    xscale="log", yscale="log", xlabel="lengthscale (sd of temperature)", ylabel="noise (variance)"
)
axis.set_xticks([0.25, 0.5, 1, 2, 4], labels=["0.25", "0.5", "1", "2", "4"], minor=False)
axis.set_yticks([0.2, 0.3, 0.5, 0.8], labels=["0.2", "0.3", "0.5", "0.8"], minor=False)
axis.minorticks_off()
axis.legend()
plt.show()

# %% [markdown]
# Forty days determine the lengthscale only within a factor of about three. A mode ignores this:
# the function is less certain under NUTS than under either point.
#
# ## Leave-one-out in closed form
#
# Which inputs are useful? One Cholesky factor gives the prediction of every day from all others,
# and the log densities of the observed values measure the quality. Here every second day is a
# training row, and the days between check the leave-one-out result. The season has the period of a
# year: a number is in the units of the data, here days, although `fit` standardises them.

# %%
inputs = ["day", "temperature", "humidity", "wind"]
odd, even = (
    ppgp.Dataset(table[inputs].to_numpy()[i::2], table["rides"].to_numpy()[i::2], inputs, "rides")
    for i in (1, 0)
)
terms = {
    "weather": kernels.Subspace(kernels.ARD(kernels.RBF()), [1, 2, 3]),
    # a lengthscale of about a year: slower than a season
    "trend": kernels.Subspace(kernels.RBF(lengthscale=360.0), [0]),
    "season": kernels.Subspace(kernels.Periodic(period=365.25), [0]),
}
sums = {
    "weather": terms["weather"],
    "weather + trend": terms["weather"] + terms["trend"],
    "weather + trend + season": terms["weather"] + terms["trend"] + terms["season"],
}
posteriors = {
    name: ppgp.fit(models.GP(k), odd, inference.MAP(), progress=False) for name, k in sums.items()
}
left_out = {name: p.loo().log_prob(odd.y) for name, p in posteriors.items()}
between = {name: p.predict(even.X).log_prob(even.y) for name, p in posteriors.items()}


def error(v):
    return float(v.std() * len(v) ** 0.5)


rows, before = {}, None
for name in sums:
    row = {"elpd": float(left_out[name].sum())}
    row["more than the row above"], row["its standard error"] = np.nan, np.nan
    if before is not None:
        difference = left_out[name] - left_out[before]
        row["more than the row above"] = float(difference.sum())
        row["its standard error"] = error(difference)
    row["per day, left out"] = float(left_out[name].mean())
    row["per day, between"] = float(between[name].mean())
    region = posteriors[name].predict(even.X).interval(0.9)
    row["coverage at 0.9, between"] = metrics.coverage(region, even.y)
    rows[name], before = row, name
scores = pd.DataFrame(rows).T
scores.round(3)

# %% [markdown]
# The trend improves the prediction considerably. The gain of the season is within three standard
# errors of zero: the weather already contains the seasons.
#
# ## The components of a sum of kernels
#
# Each term has its own distribution given the data. The means add up to the mean of the sum. The
# bands do not, as the terms are negatively correlated.

# %%
whole = posteriors["weather + trend + season"]
parts = dict(zip(terms, whole.components(odd.X).values()))
figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True)
date = days["dteday"][1::2]
for axis, (name, part) in zip(axes, parts.items()):
    low, high = part.mean - 1.96 * part.std, part.mean + 1.96 * part.std
    if name == "weather":
        axis.vlines(table["temperature"][1::2], low, high, color="0.85", lw=1)
        axis.plot(table["temperature"][1::2], part.mean, "k.", ms=2)
        axis.set_xlabel("temperature (C)")
    else:
        axis.fill_between(date, low, high, color="0.85")
        axis.plot(date, part.mean, color="black")
        axis.set_xticks(
            pd.to_datetime(["2011-01-01", "2012-01-01", "2013-01-01"]), ["2011", "2012", "2013"]
        )
    axis.set_title(name)
axes[0].set_ylabel("thousand rides")
plt.show()
total = sum(part.mean for part in parts.values()) + float(odd.y.mean())
difference = float((total - whole.latent(odd.X).mean).abs().max())
print(f"the means add up to that of f within {difference:.1e} thousand rides")
rise = float(parts["trend"].mean[-1] - parts["trend"].mean[0])
print(f"the trend rises by {rise:.1f} thousand rides")

# %% [markdown]
# The number of rides grew by nearly three thousand a day in two years, and it rises with the
# temperature until the days are hot. The level of each term alone is uncertain (the wide bands),
# as a constant may move from one term to another; the level of their sum is not. The days that the
# others predict worst are:

# %%
alone = whole.loo()
surprise = (odd.y - alone.mean) / alone.std
worst = surprise.abs().argsort(descending=True)[:6].tolist()
strange = pd.DataFrame(
    {
        "date": date.iloc[worst].dt.strftime("%Y-%m-%d").tolist(),
        "rides": odd.y[worst] * 1000,
        "predicted": alone.mean[worst] * 1000,
        "in sds": surprise[worst],
    }
)
strange.round(1)

# %% [markdown]
# Hurricane Sandy (29 October 2012) is the first of them. A Gaussian distribution gives such days
# almost no probability; an input for the kind of weather, or Student-t noise, would help.
#
# ## What was shown

# %%
d = np.array([0.1, 0.5, 2.0])
K = kernel(x, x) + 0.3 * np.eye(len(x))
L = np.linalg.cholesky(K)
# the tutorial's lengthscale is the root of the one here
assert not np.allclose(np.exp(-0.5 * d**2 / 0.7), np.exp(-0.5 * d**2 / 0.7**2))
# its Kronecker product is a linear kernel, not noise
assert np.allclose(np.kron(x[:, None], x[None, :]), np.outer(x, x))
assert np.allclose(L @ L.T, K)
assert not np.allclose(L.T @ L, K)
assert max(gap) < 1e-10
normal = torch.distributions.MultivariateNormal(torch.zeros(40).double(), torch.as_tensor(K))
assert abs(evidence - float(normal.log_prob(torch.as_tensor(y)))) < 1e-8
if published:
    assert covered["of f"] < 0.6 < 0.85 < covered["of y"]
    assert figures.loc["NUTS", "sd of f"] > figures.loc[["ML-II", "MAP"], "sd of f"].max()
    gain, its_error = scores["more than the row above"], scores["its standard error"]
    assert gain["weather + trend"] > 5 * its_error["weather + trend"]
    assert abs(gain["weather + trend + season"]) < 3 * its_error["weather + trend + season"]
    for name in sums:
        apart = left_out[name].mean() - between[name].mean()
        assert abs(float(apart)) < 3 * float(
            (left_out[name].var() / odd.n + between[name].var() / even.n).sqrt()
        )
    # the sum is known better than its terms
    assert float((whole.latent(odd.X).std / parts["trend"].std).max()) < 1
    assert 2.5 < rise < 3
    assert strange["date"][0] == "2012-10-29"
assert float((total - whole.latent(odd.X).mean).abs().max()) < 1e-6
