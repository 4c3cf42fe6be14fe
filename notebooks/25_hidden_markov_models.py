# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Hidden Markov models: states summed out, then found again
#
# The number of major earthquakes in the world changes from year to year by more than a Poisson law
# allows. A hidden Markov model explains it by states that persist: each year is in one of K states,
# and each state has a rate of earthquakes. The program says how a state follows the one before.
# The library sums over all paths of states, so that NUTS sees the rates and the transitions only.
# After the fit, `posterior.discrete` finds the states again.

# %%
# %matplotlib inline
import numpy as np
import pyro
import pyro.distributions as dist
import torch
from matplotlib.figure import Figure
from torch import Tensor

import ppgp
from ppgp import inference

# %% [markdown]
# ## The counts
#
# Earthquakes of magnitude 7 or more, 1900 to 2006 (Zucchini, MacDonald and Langrock, Hidden Markov
# Models for Time Series, second edition, 2016, table 1.1; from the U.S. Geological Survey). The
# variance is 2.7 times the mean, where a Poisson law has a ratio of 1.

# %%
COUNTS = (
    "13 14 8 10 16 26 32 27 18 32 36 24 22 23 22 18 25 21 21 14 8 11 14 23 18 17 19 20 22 19 13 "
    "26 13 14 22 24 21 22 26 21 23 24 27 41 31 27 35 26 28 36 39 21 17 22 17 19 15 34 10 15 22 18 "
    "15 20 15 22 19 16 30 27 29 23 20 16 21 21 25 16 18 15 18 14 10 15 8 15 6 11 8 7 18 16 13 12 "
    "13 20 15 16 12 18 15 16 13 15 16 11 11"
)
counts = torch.tensor([float(count) for count in COUNTS.split()], dtype=torch.float64)
years = np.arange(1900, 1900 + len(counts))
print(f"{len(counts)} years, mean {counts.mean():.2f}, variance {counts.var():.2f}")

# %% [markdown]
# ## The program
#
# `pyro.markov` tells that a state depends on the one before and on no earlier one. That is what
# makes the sum over all paths cheap: its cost is linear in the number of years. The rates increase
# by positive steps, so that the states keep their order and no labels switch. The first year has
# the stationary distribution of the chain.


# %%
def earthquakes(counts: Tensor, states: int = 2) -> None:
    first = pyro.sample("first", dist.Gamma(counts.new_tensor(3.0), 0.2))
    with pyro.plate("steps", states - 1):
        steps = pyro.sample("step", dist.Gamma(counts.new_tensor(2.0), 0.2))
    rates = torch.cat([first[..., None], first[..., None] + steps.cumsum(-1)], -1)
    pyro.deterministic("rates", rates)
    likely_to_stay = 4.0 * torch.eye(states, dtype=counts.dtype) + 1.0
    transitions = pyro.sample("transitions", dist.Dirichlet(likely_to_stay).to_event(1))
    weights = stationary(transitions)
    for t in pyro.markov(range(len(counts))):
        state = pyro.sample(f"state_{t}", dist.Categorical(weights))
        pyro.sample(f"y_{t}", dist.Poisson(rates[state]), obs=counts[t])
        weights = transitions[state]


def stationary(transitions: Tensor) -> Tensor:
    """Return the distribution p with p = p @ transitions."""
    states = transitions.shape[-1]
    ones = torch.ones(states, states, dtype=transitions.dtype)
    equations = torch.eye(states, dtype=transitions.dtype) - transitions + ones
    return torch.linalg.solve(equations.mT, ones[0])


# %% [markdown]
# ## The sum is right: a published likelihood
#
# The book gives the maximum of the likelihood of two states, with a stationary start: a negative
# log likelihood of 342.318, at the rates 15.472 and 26.125. `Target` is the density that a fit
# sees. Its value at these numbers, less the priors, is the same.

# %%
stay = torch.tensor([[0.934040638, 0.065959362], [0.128509148, 0.871490852]], dtype=torch.float64)
maximum = {
    "first": counts.new_tensor(15.472277),
    "step": counts.new_tensor([26.125439 - 15.472277]),
    "transitions": stay,
}
priors = (
    dist.Gamma(3.0, 0.2).log_prob(maximum["first"])
    + dist.Gamma(2.0, 0.2).log_prob(maximum["step"]).sum()
    + dist.Dirichlet(4.0 * torch.eye(2, dtype=torch.float64) + 1.0).log_prob(stay).sum()
)
target = ppgp.Target(ppgp.models.Program(earthquakes), {"counts": counts})
joint = target.log_density(target.unconstrain(maximum), jacobian=False)
negative = float(priors - joint)
print(f"negative log likelihood of two states: {negative:.3f}")

# %% [markdown]
# ## Two states by NUTS
#
# The chains draw the rates and the transitions. The 107 states are summed out in each evaluation.

# %%
posterior = ppgp.fit(
    earthquakes, {"counts": counts}, inference.NUTS(draws=500, warmup=500, chains=2), progress=False
)
posterior.summary()

# %% [markdown]
# ## The states again
#
# For each draw of rates and transitions, `posterior.discrete("state")` has the exact probability of
# each state in each year given all counts, forward and backward. Their mean over the draws accounts
# for the uncertainty of the rates too. The most probable path of a draw is that of Viterbi. The
# figure shows the rate of each year along these paths, averaged over the draws.

# %%
states = posterior.discrete("state")
probable = states.probabilities[..., 1].mean((0, 1))
paths = states.most_probable().flatten(0, 1)
path = paths.double().mean(0).round().long()
first, step = (posterior.draws[name].reshape(len(paths), 1) for name in ("first", "step"))
rates = torch.cat([first, first + step], 1)
level = rates.gather(1, paths).mean(0)

figure = Figure(figsize=(8, 4.5), layout="constrained")
above, below = figure.subplots(2, sharex=True, height_ratios=(2, 1))
above.bar(years, counts, color="#BBBBBB", label="earthquakes")
above.step(years, level, where="mid", color="#0072B2", label="rate along the most probable paths")
above.set(ylabel="number a year")
above.legend(frameon=False)
below.fill_between(years, probable, color="#D55E00", alpha=0.6, linewidth=0)
below.set(ylabel="P(state of\nthe higher rate)", xlabel="year", ylim=(0, 1))
for axis in (above, below):
    axis.spines[["top", "right"]].set_visible(False)
figure

# %% [markdown]
# Joint draws of all years keep what belongs together: how often the state changes, for example, has
# a posterior distribution of its own.

# %%
drawn = states.sample(seed=0).flatten(0, 1)
changes = (drawn[:, 1:] != drawn[:, :-1]).sum(1).double()
low, high = changes.quantile(torch.tensor([0.05, 0.95], dtype=torch.float64)).tolist()
print(
    f"changes of the state in 107 years: mean {changes.mean():.1f}, 90 % in {low:.0f} to {high:.0f}"
)

# %%
assert abs(negative - 342.318) < 0.001
assert posterior.summary()["r_hat"].max() < 1.02
assert float((paths == path).double().mean()) > 0.8
assert float(probable[years == 1950][0]) > 0.5 > float(probable[years == 2000][0])
