# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Diagnostics with ArviZ
#
# `to_arviz()` converts every posterior to the object of ArviZ. Its axes are named after the plates
# of the program, so that all figures and statistics of ArviZ apply. The example is eight schools,
# (Rubin 1981: effects of coaching, each with a known standard error), first in a form that samplers
# handle badly.

# %%
# %matplotlib inline
import textwrap

import pyro
import pyro.distributions as dist
import torch

import ppgp
from ppgp import inference, models, plots
from ppgp.posterior.arviz import arviz

az = arviz()

# %%
y = torch.tensor([28, 8, -3, 7, -1, 1, 18, 12], dtype=torch.float64)
sigma = torch.tensor([15, 10, 16, 11, 9, 11, 10, 18], dtype=torch.float64)
zero, five = torch.zeros((), dtype=torch.float64), torch.tensor(5.0, dtype=torch.float64)


def centred(sigma, y=None):
    mu = pyro.sample("mu", dist.Normal(zero, five))
    tau = pyro.sample("tau", dist.HalfCauchy(five))
    with pyro.plate("school", len(sigma)):
        theta = pyro.sample("theta", dist.Normal(mu, tau))
        pyro.sample("y", dist.Normal(theta, sigma), obs=y)


def non_centred(sigma, y=None):
    mu = pyro.sample("mu", dist.Normal(zero, five))
    tau = pyro.sample("tau", dist.HalfCauchy(five))
    with pyro.plate("school", len(sigma)):
        z = pyro.sample("z", dist.Normal(zero, 1.0))
        theta = pyro.deterministic("theta", mu + tau * z)
        pyro.sample("y", dist.Normal(theta, sigma), obs=y)


data = {"sigma": sigma, "y": y}

# %% [markdown]
# ## The centred form
#
# Each plate is one axis: theta, the log densities and the data all have the axis `school`; its
# coordinates are given by `coords`. The fit warns that the chains do not agree and, at most seeds,
# that draws diverged. The cells below show these sentences, and what is behind them.

# %%
centred_fit = ppgp.fit(centred, data, inference.NUTS(draws=500, warmup=500), progress=False)
schools = centred_fit.to_arviz(
    prior=500, predictive=True, coords={"school": list("ABCDEFGH")}, dims={"sigma": ["school"]}
)
for group in schools:
    print(f"{group}: {', '.join(schools[group].data_vars)}")
az.summary(schools, var_names=["mu", "tau"]).round(2)

# %%
for line in str(ppgp.diagnose(centred_fit)).splitlines():
    print(textwrap.fill(line, 100))

# %% [markdown]
# Trace and ranks show a chain that stays in one place for a long time. The pair of mu and tau shows
# where: draws are missing at small tau, in the neck of the funnel, and divergences gather there.

# %%
plots.trace(centred_fit, sites=3)

# %%
plots.rank(centred_fit, sites=["mu", "tau", "theta[0]"])

# %%
plots.pair(centred_fit, sites=["mu", "tau", "theta[0]"])

# %% [markdown]
# ## The non-centred form
#
# This is the same prior in other coordinates, here with smaller steps (`target_accept=0.95`). The
# chains agree, and none gets stuck.

# %%
how = inference.NUTS(draws=500, warmup=500, target_accept=0.95)
fitted = ppgp.fit(non_centred, data, how, seed=1, progress=False)
sound = fitted.to_arviz()
az.summary(sound, var_names=["mu", "tau", "theta"]).round(2)

# %%
plots.rank(fitted, sites=["mu", "tau", "theta[0]"])

# %% [markdown]
# ## Leave-one-out, and replicated data
#
# PSIS-LOO estimates how well each school is predicted from the others, and its Pareto k shows
# whether the estimate is reliable. It is not for schools above the dashed line: with few schools
# each of them moves the posterior, and such a school should be left out in a fit of its own. Like
# `ppgp.psis_loo`, the call takes `reff=1.0`: the tail of the weights is as long as that of
# independent draws. Replicates are data drawn from the posterior predictive distribution: the
# observed data should look like one of them.

# %%
loo = az.loo(sound, pointwise=True, reff=1.0)
print(loo)
plots.loo(fitted)

# %%
plots.predictive_check(fitted)

# %% [markdown]
# ## Approximations
#
# Independent draws have no meaningful R-hat or effective sample size, and none is shown: these
# would always look perfect. k-hat, the Pareto shape of their importance weights, judges them.

# %%
guide = ppgp.fit(non_centred, data, inference.SVI("normal"), progress=False)
print(list(guide.summary().columns))
print(ppgp.diagnose(guide).reason)
plots.k_hat({"mean field": guide})

# %% [markdown]
# ## Simulation-based calibration
#
# Is a method correct on average over the prior? Draw parameters from the prior and data given
# them, fit, and rank the true parameters among the draws. The ranks of a correct method are
# uniform, and the lines stay within the band.

# %%
calibration = ppgp.sbc(
    models.LinearRegression(noise=0.5), inference.Laplace(draws=200), 60, progress=False
)
plots.sbc(calibration)

# %%
r_hat = fitted.r_hat()
assert max(centred_fit.r_hat().values()) > 1.01
assert max(r_hat.values()) < 1.02
assert int(fitted.stats["diverging"].sum()) <= 5  # of 2,000 draws
assert bool((loo.pareto_k < 1.0).all())  # above 1 the estimate of a row has no finite mean
assert "r_hat" not in guide.summary().columns
assert calibration.passes
