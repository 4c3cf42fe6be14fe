# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Kriging
#
# The data are the zinc contents of 155 soil samples from a flood plain of the river Meuse (Rikken
# & Van Rijn 1993). Kriging is Gaussian-process regression in the terms of geostatistics: a
# variogram instead of a kernel, a drift instead of a mean, and coordinates in metres that are
# never standardised.
#
# The data are read from `kriging/meuse.csv` in the folder that the environment variable
# `PPGP_DATA` names, by default `data/` at the top of the repository; `docs/data.md` gives the
# source. Without the file the notebook runs on simulated samples, and prints that it does; the
# text describes the published data.

# %%
# %matplotlib inline
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

import ppgp
from ppgp import inference, kernels, metrics, models


def simulated_samples():
    """155 places beside a river, with zinc that falls with the distance to it."""
    rng = np.random.default_rng(0)
    places = rng.uniform([178600, 329700], [181500, 333700], (155, 2))
    to_river = np.abs(places[:, 0] - 178600 - 0.7 * (places[:, 1] - 329700)) / 2900
    apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
    root = np.linalg.cholesky(0.3 * np.exp(-apart / 300) + 0.05 * np.eye(155))
    log_zinc = 7 - 2 * np.sqrt(to_river) + root @ rng.normal(size=155)
    return pd.DataFrame(
        {"x": places[:, 0], "y": places[:, 1], "zinc": np.exp(log_zinc), "dist": to_river}
    )


file = Path(os.environ.get("PPGP_DATA", "../data")) / "kriging" / "meuse.csv"
published = file.is_file()
if published:
    table = pd.read_csv(file)
else:
    print("kriging/meuse.csv is missing: the rows are simulated")
    table = simulated_samples()
places = table[["x", "y"]].to_numpy(float)
zinc = np.log(table["zinc"].to_numpy(float))
data = ppgp.Dataset(places, zinc, feature_names=["x", "y"], target_name="log zinc")

# %% [markdown]
# ## The variogram
#
# The empirical variogram is half the mean squared difference of two samples, by their distance.
# Number of pairs, lags and cutoff are those of gstat. The spherical model is fitted by least
# squares with gstat's weights, pairs / distance^2.

# %%
empirical = ppgp.empirical_variogram(data)
fitted = ppgp.fit_variogram(empirical, kernels.Spherical())
print(empirical.to_frame().head().round(3).to_string(index=False))
print(
    f"nugget {fitted.nugget:.4f}, partial sill {fitted.variogram.variance:.4f}, "
    f"range {fitted.variogram.lengthscale:.0f} m"
)

# %% [markdown]
# The area of a circle is proportional to its number of pairs: the shortest lag has 57, the others
# several hundred.

# %%
h = torch.linspace(1, float(empirical.edges[-1]), 200, dtype=torch.float64)
figure, axis = plt.subplots(figsize=(6, 3.5))
axis.plot(h, fitted(h), color="black", lw=1, label="spherical, weighted least squares")
axis.scatter(
    empirical.distance,
    empirical.semivariance,
    s=empirical.pairs / 5,
    alpha=0.7,
    edgecolor="black",
    zorder=3,
    label="empirical, area by pairs",
)
axis.set(
    title="Variogram of 155 soil samples",
    xlabel="distance of two samples (m)",
    ylabel="semivariance of ln(zinc in mg/kg)",
    ylim=(0, None),
)
axis.legend(loc="lower right")
plt.show()

# %% [markdown]
# ## Ordinary and universal kriging
#
# The mean is unknown: one constant (ordinary), or a constant and the square root of the distance
# to the river (universal, with a column of X that is not a coordinate as the drift). In both cases
# the mean is integrated out, so that the density is the restricted likelihood (REML), and NUTS
# draws sill, range and nugget with the drift marginalised.
#
# The chains are short, to keep this notebook quick, and NUTS warns of it below. The scores of the
# table hardly depend on it: with 400 draws per chain after a warmup of 400, each rmse and crps is
# the same to three digits, and each width within 0.005. For numbers to publish raise `warmup` and
# `draws`.

# %%
river = np.sqrt(table["dist"].to_numpy(float))
with_river = ppgp.Dataset(np.column_stack([places, river]), zinc)
fits = {
    "ordinary, weighted fit": (fitted.kriging(), data),
    "ordinary, REML by NUTS": (models.Kriging(), data),
    "universal, REML by NUTS": (models.Kriging(drift=(2,)), with_river),
}
rows, posteriors = {}, {}
for name, (model, samples) in fits.items():
    if "NUTS" in name:
        posterior = ppgp.fit(model, samples, inference.NUTS(draws=150, warmup=150), progress=False)
        alone = posteriors[name] = posterior.loo()
    else:  # all hyperparameters are numbers: the recipe itself predicts
        alone = ppgp.Prediction(model.loo({}, samples))
    region = alone.interval(0.9)
    rows[name] = {
        "rmse": metrics.rmse(alone, zinc),
        "crps": float(alone.crps(zinc).mean()),
        "coverage at 0.9": float(region.covers(zinc).double().mean()),
        "width": float(region.width.mean()),
    }
scores = pd.DataFrame(rows).T
print(scores.round(3).to_string())

# %% [markdown]
# The samples are left out one at a time in closed form, with the drift estimated anew each time.
# The drift explains a part of the variation that the surface then need not explain: the intervals
# are narrower. All intervals cover at their level, within the precision of 155 rows (a standard
# error of 0.024).
#
# ## Blocks
#
# A field is remediated or not as a whole: the mean over 200 m by 200 m varies less than the value
# at a point. The nugget, here a measurement error, does not contribute.

# %%
posterior = ppgp.fit(models.Kriging(), data, inference.MAP(), progress=False)
centres = torch.as_tensor(places[::10])
point = posterior.latent(centres + 60.0)
block = ppgp.block_kriging(posterior, ppgp.discretised(centres + 60.0, (200.0, 200.0), (4, 4)))
print(f"mean sd at a point {float(point.std.mean()):.3f}, of a block {float(block.std.mean()):.3f}")

# %% [markdown]
# ## A map from neighbourhoods
#
# The map is by ordinary kriging with the fitted variogram, at places within 200 m of a sample.
# Each place is predicted from its 30 nearest samples, as is usual for large data sets. In some
# places the range of 900 m is wider than the neighbourhood, so that the two maps differ: typically
# by a small share of the kriging sd, and at the worst place by more than half of it.
#
# Coordinates are those of the Dutch grid. Black points are the samples, and the kriging sd, in
# units of ln(zinc), is smallest beside them. White places, a few of them inside the area, are
# farther than 200 m from every sample.

# %%
east, north = np.meshgrid(np.arange(178600, 181500, 50.0), np.arange(329700, 333700, 50.0))
grid = np.column_stack([east.ravel(), north.ravel()])
near = np.linalg.norm(grid[:, None] - places[None], axis=2).min(1) < 200
grid = grid[near]
local = ppgp.Prediction(fitted.kriging(neighbours=30).latent({}, torch.as_tensor(grid), data))
everywhere = ppgp.Prediction(fitted.kriging().latent({}, torch.as_tensor(grid), data))
figure, axes = plt.subplots(1, 2, figsize=(10, 5.2), sharey=True, layout="constrained")
maps = (
    (local.mean, "Prediction", "ln(zinc in mg/kg)"),
    (local.std, "Kriging sd", "sd of ln(zinc)"),
)
for axis, (values, title, unit) in zip(axes, maps):
    image = np.full(near.shape, np.nan)
    image[near] = values
    drawn = axis.pcolormesh(east / 1000, north / 1000, image.reshape(east.shape))
    axis.scatter(*(places.T / 1000), s=3, color="black", lw=0, label="sample")
    axis.set(title=title, aspect="equal", xlabel="easting (km)", xticks=[179, 180, 181])
    figure.colorbar(drawn, ax=axis, label=unit)
axes[0].set(ylabel="northing (km)")
axes[0].legend(loc="upper left")
plt.show()
gap = (local.mean - everywhere.mean).abs() / everywhere.std
print(
    f"30 neighbours and all, in kriging sds: {float(gap.median()):.2f} in the median, "
    f"{float(gap.max()):.2f} at the worst place"
)

# %% [markdown]
# ## What was shown

# %%
if published:
    assert abs(fitted.variogram.lengthscale - 897.02) < 1  # metres, as in gstat's vignette
    assert abs(fitted.nugget - 0.0507) < 0.0005
    crps = scores["crps"]
    assert crps["universal, REML by NUTS"] < crps["ordinary, REML by NUTS"]
    assert (scores["coverage at 0.9"] - 0.9).abs().max() < 0.06
    assert float(gap.median()) < 0.1
assert float((block.std / point.std).max()) < 1
