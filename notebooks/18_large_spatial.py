# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A large spatial field
#
# Kriging with all rows costs n^3, and stops at some 5,000 rows. A row of a spatial field is almost
# independent of far ones given the near ones. Vecchia's approximation uses that: with the rows in
# an order, each depends on its nearest neighbours among those before it. The product of these
# conditional densities is the density of a Gaussian process too, and costs n m^3 for m neighbours
# (Vecchia 1988; Datta et al. 2016; Katzfuss & Guinness 2021).
#
# The field here is simulated, so that the truth is known: 16,000 rows of a Matern 3/2 field with
# lengthscale 0.05 on the unit square, whose noise has heavier tails than a normal distribution.
# No row lies in a lake.

# %%
# %matplotlib inline
import textwrap
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

import ppgp
from ppgp import conformal, inference, kernels, metrics, models

NODES, LENGTHSCALE, NOISE = 512, 0.05, 0.1
LAKE, RADIUS = np.array([0.66, 0.36]), 0.09
TRAIN, REST = 16_000, 3_000
rng = np.random.default_rng(0)


def matern_field(nodes, lengthscale):
    """Simulate the field at the nodes of a grid by circulant embedding, which is exact.

    Dietrich & Newsam (1997).
    """
    side = np.minimum(np.arange(2 * nodes), 2 * nodes - np.arange(2 * nodes)) / nodes
    s = np.sqrt(3) * np.hypot(side[:, None], side) / lengthscale
    root = np.sqrt(np.fft.fft2((1 + s) * np.exp(-s)).real.clip(0))
    white = rng.standard_normal(s.shape) + 1j * rng.standard_normal(s.shape)
    return np.fft.fft2(root * white).real[:nodes, :nodes] / (2 * nodes)


field = matern_field(NODES, LENGTHSCALE)
i, j = np.unravel_index(rng.choice(NODES**2, 30_000, replace=False), field.shape)
places = np.stack([i, j], 1) / NODES
dry = np.linalg.norm(places - LAKE, axis=1) > RADIUS
places, f = places[dry], field[i, j][dry]
y = f + np.sqrt(NOISE / 3) * rng.standard_t(3, len(f))  # a t with 3 degrees has the variance 3
train, calibration, test = (
    ppgp.Dataset(places[rows], y[rows])
    for rows in (
        slice(TRAIN),
        slice(TRAIN, TRAIN + REST),
        slice(TRAIN + REST, TRAIN + 2 * REST),
    )
)
truth = torch.from_numpy(f[TRAIN + REST : TRAIN + 2 * REST])

# %% [markdown]
# ## A fit
#
# `advise` names the models that suit the table. `Vecchia` is fitted by maximum a posteriori; its
# constant trend is integrated out, as in ordinary kriging. With `standardise=False` the
# hyperparameters are in the units of the data.

# %%
for line in str(ppgp.advise(train, kernel=kernels.Matern(1.5))).splitlines():
    print(textwrap.fill(line, 100, subsequent_indent=" " * 42))
fits, seconds = {}, {}


def fit(name, model, how):
    started = time.perf_counter()
    fits[name] = ppgp.fit(model, train, how, standardise=False, progress=False)
    seconds[name] = time.perf_counter() - started


fit("Vecchia, m = 30", models.Vecchia(kernels.Matern(1.5)), inference.MAP())
vecchia = fits["Vecchia, m = 30"]
theta = {name: float(value) for name, value in vecchia.theta.items()}
pd.DataFrame(
    {"fitted": theta, "true": {**dict.fromkeys(theta, 1.0), "kernel.lengthscale": LENGTHSCALE}}
).assign(true=lambda t: t["true"].where(t.index != "noise", NOISE)).round(3)

# %% [markdown]
# ## The map
#
# A prediction is kriging from the 30 nearest rows. Its standard deviation is even where the rows
# are, and rises in the lake up to that of the field.

# %%
SIDE = 128
axis_of_map = (np.arange(SIDE) + 0.5) / SIDE
grid = np.stack(np.meshgrid(axis_of_map, axis_of_map, indexing="ij"), -1).reshape(-1, 2)
latent = vecchia.latent(grid)
mean, sd = (v.reshape(SIDE, SIDE).numpy() for v in (latent.mean, latent.std))
step = NODES // SIDE
figure, axes = plt.subplots(1, 3, figsize=(13, 3.8))
pictures = {"field": field[step // 2 :: step, step // 2 :: step], "mean": mean, "sd": sd}
for axis, (title, picture) in zip(axes, pictures.items()):
    limits = {"vmin": -3, "vmax": 3, "cmap": "RdBu_r"} if title != "sd" else {"cmap": "viridis"}
    shown = axis.imshow(picture.T, origin="lower", extent=(0, 1, 0, 1), **limits)
    axis.add_patch(plt.Circle(LAKE, RADIUS, fill=False, color="black", lw=0.8))
    axis.set(title=title)
    figure.colorbar(shown, ax=axis)
plt.show()

# %% [markdown]
# ## How many neighbours
#
# At the fitted hyperparameters, the first ten neighbours tell most. From 10 to 30 log p(y) rises by
# a hundredth of a nat per row, and the error of the predictions comes within a few per cent of that
# of kriging from the 200 nearest rows.

# %%
kernel = kernels.Matern(1.5, theta["kernel.variance"], theta["kernel.lengthscale"])
by_number = {}
for m in (3, 5, 10, 15, 20, 30):
    model = models.Vecchia(kernel, theta["noise"], m)
    one = ppgp.fit(model, train, inference.MAP(), standardise=False, progress=False)
    by_number[m] = {
        "log p(y)": one.stats["log_evidence"],
        "rmse to the field": metrics.rmse(one.latent(test.X), truth),
    }
by_number = pd.DataFrame(by_number).T
reference = models.Vecchia(kernel, theta["noise"], 200, drift="none").prepare(train)
best = float((reference.latent({}, test.X, train).mean[0] - truth).square().mean().sqrt())
figure, axes = plt.subplots(1, 2, figsize=(9, 3.2))
for axis, column in zip(axes, by_number):
    axis.plot(by_number.index, by_number[column], "o-")
    axis.set(xlabel="m", title=column)
axes[1].axhline(best, color="black", lw=0.8, label="200 nearest rows")
axes[1].legend()
plt.show()
by_number.round(4)

# %% [markdown]
# ## Beside inducing inputs and a grid of nodes
#
# `SGPR` has 300 inducing inputs on the unit square, about as far apart as the lengthscale: the
# function between them counts as noise. `SKI` interpolates between the nodes of a grid, which has
# to be fine for a rough field. A warning says that this one is too coarse. The others say that
# twelve steps end two searches early, which is enough for this comparison.

# %%
quick = inference.MAP(steps=12)
fit("SKI, 32 x 32 nodes", models.SKI(kernels.Matern(1.5), 32), quick)
fit("SGPR, 300 inducing", models.SGPR(kernels.Matern(1.5), inducing=300), quick)
LEVEL = 0.9
scores = pd.DataFrame(
    {
        name: {
            "rmse to the field": metrics.rmse(posterior.latent(test.X), truth),
            "nll of y": metrics.nll(posterior.predict(test.X), test.y),
            "noise": float(posterior.theta["noise"]),
            "lengthscale": float(posterior.theta["kernel.lengthscale"]),
        }
        for name, posterior in fits.items()
    }
).T
print({name: f"{value:.0f} s" for name, value in seconds.items()})
scores.round(3)

# %%
line = np.stack([np.linspace(0, 1, 400), np.full(400, LAKE[1])], 1)
along = field[np.minimum((line[:, 0] * NODES).round().astype(int), NODES - 1)]
along = along[:, round(LAKE[1] * NODES)]
figure, axes = plt.subplots(2, 1, figsize=(10, 5.4), sharex=True, sharey=True)
for axis, name in zip(axes, ("Vecchia, m = 30", "SGPR, 300 inducing")):
    here = fits[name].latent(line)
    low, high = here.mean - 1.645 * here.std, here.mean + 1.645 * here.std
    axis.fill_between(line[:, 0], low, high, alpha=0.3)
    axis.plot(line[:, 0], here.mean, label=name)
    axis.plot(line[:, 0], along, "k", lw=0.8, label="field")
    axis.axvspan(LAKE[0] - RADIUS, LAKE[0] + RADIUS, color="0.92", zorder=0)
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
axes[1].set(xlabel="first coordinate, through the lake (shaded)")
plt.show()

# %% [markdown]
# ## Intervals
#
# The noise has heavy tails, so the intervals of the model, which assumes normal noise, are too
# wide at low levels and too narrow at high ones. Conformal prediction measures on 3,000 rows that
# the fit has not seen how far y is from the mean in predicted standard deviations. On average over
# such rows its intervals cover at least at their level, whatever the noise.

# %%
prediction = vecchia.predict(test.X)
calibrator = conformal.calibrate(
    conformal.Normalized(), vecchia.predict(calibration.X), calibration.y
)
levels = np.array([0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99])
covered = pd.DataFrame(
    {
        "model": [metrics.coverage(prediction.interval(a), test.y) for a in levels],
        "conformal": [metrics.coverage(calibrator(prediction, a), test.y) for a in levels],
    },
    index=pd.Index(levels, name="level"),
)
error = 1.96 * np.sqrt(levels * (1 - levels) * (1 / REST + 1 / REST))
figure, axis = plt.subplots(figsize=(5.5, 3.4))
for name in covered:
    axis.plot(levels, covered[name] - levels, "o-", label=name)
axis.fill_between(levels, -error, error, color="0.9", label="Monte Carlo error", zorder=0)
axis.axhline(0, color="black", lw=0.8)
axis.set(xlabel="level", ylabel="coverage - level")
axis.legend()
plt.show()
print(calibrator(prediction, LEVEL).guarantee)
covered.round(4)

# %% [markdown]
# ## What was shown

# %%
lake = np.linalg.norm(grid - LAKE, axis=1).reshape(SIDE, SIDE) < RADIUS / 2
assert abs(theta["kernel.lengthscale"] / LENGTHSCALE - 1) < 0.2
assert abs(theta["noise"] / NOISE - 1) < 0.15
assert sd[lake].mean() > 2 * sd[~lake].mean()
assert by_number.loc[30, "rmse to the field"] < 1.08 * best
gains = by_number["log p(y)"].diff()
assert gains.loc[30] < 0.1 * gains.loc[5]
assert scores["rmse to the field"].idxmin() == "Vecchia, m = 30"
assert scores.loc["SGPR, 300 inducing", "rmse to the field"] > 1.5 * best
assert covered.loc[0.5, "model"] > 0.5 + error[0]
assert covered.loc[0.99, "model"] < 0.99
assert ((covered["conformal"] - levels).abs() < 1.5 * error).all()
