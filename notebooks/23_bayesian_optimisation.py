# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Bayesian optimisation: where to measure next
#
# Some functions cost an experiment, or an hour of computing, per value, and have no gradient. A
# Gaussian process of the values so far says what is known about the function, and how surely, at
# every other place. An acquisition function turns this into the worth of a measurement, and the
# next measurement is made where it is highest. This notebook looks at acquisition functions in one
# dimension, runs the loop on a known test function beside random search, and suggests several
# places at a time.

# %%
# %matplotlib inline
import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

import ppgp
from ppgp import acquisition, inference, kernels, models

F64 = torch.float64

# %% [markdown]
# ## What an acquisition function sees
#
# Five values of a function of one input, to be maximised. The values are exact, so that the noise
# is fixed near 0. The posterior of the function is that of `posterior.latent`: certain at the five
# places, uncertain between them.


# %%
def hills(x: torch.Tensor) -> torch.Tensor:
    """A function with a low hill at the left and a higher one at the right."""
    return torch.exp(-(x - 2).square()) + 1.4 * torch.exp(-(x - 6.5).square() / 0.8) + 0.1 * x


start = torch.tensor([0.5, 2.4, 4.0, 7.6, 9.5], dtype=F64)
recipe = models.GP(kernels.Matern(2.5), noise=1e-6)
posterior = ppgp.fit(
    recipe, ppgp.Dataset(start[:, None], hills(start)), inference.MAP(), progress=False
)
grid = torch.linspace(0, 10, 401, dtype=F64)
functions = {
    "LogEI()": acquisition.LogEI(),
    "EI()": acquisition.EI(),
    "UCB(beta=4)": acquisition.UCB(beta=4.0),
    "UCB(beta=0)": acquisition.UCB(beta=0.0),
}
values = {name: each(posterior, grid[:, None]) for name, each in functions.items()}
best_at = {name: float(grid[value.argmax()]) for name, value in values.items()}

latent = posterior.latent(grid[:, None])
figure, axes = plt.subplots(3, 1, figsize=(8, 7), sharex=True)
half = 1.96 * latent.std
axes[0].fill_between(grid, latent.mean - half, latent.mean + half, alpha=0.2, lw=0)
axes[0].plot(grid, latent.mean, label="posterior mean, and 95 % of f")
axes[0].plot(grid, hills(grid), "k:", lw=1, label="truth")
axes[0].plot(start, hills(start), "ko", ms=5, label="measured")
axes[0].legend(frameon=False, fontsize=8, ncols=3)
axes[0].set_ylabel("f(x)")
axes[1].plot(grid, values["EI()"], color="C1")
axes[1].axvline(best_at["EI()"], color="C1", lw=0.8, ls="--")
axes[1].set_ylabel("expected improvement")
for name, colour in (("UCB(beta=4)", "C2"), ("UCB(beta=0)", "C3")):
    axes[2].plot(grid, values[name], color=colour, label=name)
    axes[2].axvline(best_at[name], color=colour, lw=0.8, ls="--")
axes[2].legend(frameon=False, fontsize=8)
axes[2].set(ylabel="upper confidence bound", xlabel="x")
figure.tight_layout()

# %% [markdown]
# Dashed lines are the places that would be measured next.
#
# - `EI` is the mean of what would be gained over the best value so far. It is high where the mean
#   is high or where the function is uncertain.
# - `LogEI` is its logarithm, computed without underflow: it has the same maximum, and a gradient
#   far from it as well, so that the search for the maximum does not get stuck (Ament et al. 2023).
# - `UCB` is the mean plus sqrt(beta) standard deviations. With beta = 0 it is the mean alone, which
#   looks only next to the best value so far: exploitation without exploration.

# %%
pd.Series(best_at, name="next place").round(2)

# %% [markdown]
# ## The loop
#
# `acquisition.suggest` finds the maximum within bounds; `posterior.update` adds the measurement
# without a new fit of the hyperparameters. With so few rows the hyperparameters themselves are
# uncertain, so it pays to fit again now and then, here after every fifth measurement.
#
# The function is that of Branin (Dixon & Szego 1978), to be minimised. Its minimum is 0.397887, at
# three places. Random search has the same number of measurements.


# %%
def branin(X: torch.Tensor) -> torch.Tensor:
    a, b = X.unbind(-1)
    bowl = (b - 5.1 / (4 * math.pi**2) * a.square() + 5 / math.pi * a - 6).square()
    return bowl + 10 * (1 - 1 / (8 * math.pi)) * a.cos() + 10


BOUNDS = [(-5.0, 10.0), (0.0, 15.0)]
LOWEST, FIRST, TOTAL = 0.397887, 6, 26
low, high = torch.tensor(BOUNDS, dtype=F64).T
surface = models.GP(kernels.ARD(kernels.Matern(2.5)), noise=1e-6)


def scattered(n: int, seed: int) -> torch.Tensor:
    """Return n random places within the bounds."""
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(n, 2, generator=generator, dtype=F64)


def fitted(X: torch.Tensor) -> ppgp.Posterior:
    """Fit the hyperparameters to all measurements."""
    return ppgp.fit(surface, ppgp.Dataset(X, branin(X)), inference.MAP(), progress=False)


def optimised(seed: int) -> torch.Tensor:
    """Return the places that the loop measures, the random first ones among them."""
    X = scattered(FIRST, seed)
    found = fitted(X)
    minimise = acquisition.LogEI(maximise=False)
    while len(X) < TOTAL:
        place = acquisition.suggest(found, BOUNDS, acquisition=minimise, seed=len(X))
        X = torch.cat([X, place])
        found = found.update(place, branin(place))
        if (len(X) - FIRST) % 5 == 0:
            found = fitted(X)
    return X


def regret(X: torch.Tensor) -> np.ndarray:
    """Return how far the best value so far is above the minimum."""
    return branin(X).cummin(0).values.numpy() - LOWEST


paths = [optimised(seed) for seed in range(4)]
regrets = {
    "Bayesian optimisation": np.array([regret(X) for X in paths]),
    "random search": np.array([regret(scattered(TOTAL, seed)) for seed in range(200)]),
}
steps = np.arange(1, TOTAL + 1)
figure, axis = plt.subplots(figsize=(7, 3.6))
for run in regrets["Bayesian optimisation"]:
    axis.plot(steps, run, color="C0", lw=0.8, alpha=0.6)
for (name, runs), colour in zip(regrets.items(), ("C0", "C1"), strict=True):
    axis.plot(steps, np.median(runs, 0), color=colour, lw=2, label=f"{name}, median")
axis.axvline(FIRST, color="black", lw=0.8, ls=":")
axis.set(yscale="log", xlabel="measurements", ylabel="best value so far - minimum")
axis.legend(frameon=False)
figure.tight_layout()

# %% [markdown]
# To the left of the dotted line the loop measures at random too. The map shows one run: crosses are
# the random first places, and the numbers the order of the others. The loop finds three valleys.
# In between it measures at the edges, where nothing is known yet.

# %%
one = paths[0]
axis_a, axis_b = (torch.linspace(*pair, 120, dtype=F64) for pair in BOUNDS)
a, b = torch.meshgrid(axis_a, axis_b, indexing="xy")
figure, axis = plt.subplots(figsize=(6, 5))
heights = branin(torch.stack([a, b], -1))
axis.contour(a, b, heights, levels=np.geomspace(1, 250, 12), colors="0.7", linewidths=0.8)
axis.plot(*one[:FIRST].T, "x", color="black", label="random")
axis.plot(*one[FIRST:].T, "o", ms=4, color="C0", label="suggested")
for number, place in enumerate(one[FIRST:], FIRST + 1):
    axis.annotate(
        str(number), place.tolist(), fontsize=8, xytext=(3, 3), textcoords="offset points"
    )
minima = torch.tensor([[-math.pi, 12.275], [math.pi, 2.275], [9.42478, 2.475]], dtype=F64)
axis.plot(*minima.T, "*", ms=12, color="C3", mfc="none", label="minima")
axis.set(xlabel="a", ylabel="b")
axis.legend(fontsize=8)
figure.tight_layout()

# %% [markdown]
# ## Several places at a time
#
# If four experiments run side by side, the best four places taken one by one would be nearly the
# same place. `suggest(..., q=4)` maximises the improvement of the best of the four together, `qEI`,
# which spreads them.

# %%
known = fitted(one[:12])
together = acquisition.suggest(
    known, BOUNDS, q=4, acquisition=acquisition.qEI(maximise=False, samples=64), starts=2
)
distances = torch.cdist(together, together) + 1e9 * torch.eye(4, dtype=F64)
print(pd.DataFrame(together.numpy(), columns=["a", "b"]).round(2))
print(f"smallest distance between two of them: {float(distances.min()):.2f}")

# %% [markdown]
# ## Noise
#
# With noisy measurements the best value so far is partly luck. Leave the noise to be estimated:
# `LogEI` then compares with the best posterior mean at the measured places, not with the best
# measurement. The answer to report is the place of that mean.

# %%
generator = torch.Generator().manual_seed(0)
X = scattered(30, 11)
y = branin(X) + 15 * torch.randn(30, generator=generator, dtype=F64)
noisy = ppgp.fit(
    models.GP(kernels.ARD(kernels.Matern(2.5))), ppgp.Dataset(X, y), inference.MAP(), progress=False
)
means = noisy.latent(X).mean
report = pd.DataFrame(
    {
        "chosen by": ["best measurement", "best posterior mean"],
        "says": [float(y.min()), float(means.min())],
        "true value": [float(branin(X)[y.argmin()]), float(branin(X)[means.argmin()])],
    }
).set_index("chosen by")
report.round(1)

# %% [markdown]
# ## What was shown

# %%
final = {name: float(np.median(runs[:, -1])) for name, runs in regrets.items()}
assert abs(best_at["EI()"] - best_at["LogEI()"]) < 0.1
assert final["Bayesian optimisation"] < 0.5 * final["random search"]
assert float(distances.min()) > 0.1
truth_minus_said = (report["true value"] - report["says"]).abs()
assert truth_minus_said["best posterior mean"] < truth_minus_said["best measurement"]
