# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Markov chains and approximations
#
# Variational inference and Laplace's method are faster than NUTS, and can be wrong in ways that
# their own output does not show. This notebook uses two posteriors: one that is nearly Gaussian,
# and one that is not. `compare` shows the difference if NUTS is available; without NUTS, k-hat
# shows a large one.

# %%
# %matplotlib inline
import textwrap

import pandas as pd
import pyro
import pyro.distributions as dist
import torch

import ppgp
from ppgp import inference, models, plots

HOWS = {
    "NUTS": inference.NUTS(draws=1000, warmup=500, target_accept=0.95),
    "mean field": inference.SVI("normal"),
    "full rank": inference.SVI("multivariate_normal"),
    "deterministic": inference.SVI("multivariate_normal", method="deterministic"),
    "Laplace": inference.Laplace(),
}


def fits(model, data):
    return {name: ppgp.fit(model, data, how, progress=False) for name, how in HOWS.items()}


def verdicts(posteriors):
    """Print the reasons of the verdicts against NUTS; return the verdicts beside k-hat."""
    comparison = ppgp.compare(posteriors, reference="NUTS")
    for name, reason in comparison.reasons.items():
        if comparison.verdicts[name] == "unjudged":
            continue
        print(textwrap.fill(f"{name}: {reason}", 100, subsequent_indent="    "))
    table = comparison.to_frame()[["seconds", "verdict"]]
    table["k-hat"] = pd.Series(
        {n: ppgp.diagnose(p).k_hat for n, p in posteriors.items() if n != "NUTS"}
    )
    return table


# %% [markdown]
# ## A logistic regression
#
# The data are breast cancer: 569 rows with 30 strongly related features. The posterior is nearly
# Gaussian, but its 31 coordinates are strongly correlated: a mean-field guide, which has no
# correlations, makes the marginals too narrow.

# %%
cancer = fits(models.LogisticRegression(), ppgp.load("breast_cancer"))
cancer_table = verdicts(cancer)
cancer_table.round(2)

# %%
plots.marginals(
    {name: cancer[name] for name in ("NUTS", "mean field", "full rank", "Laplace")}, sites=8
)

# %%
plots.k_hat({name: p for name, p in cancer.items() if name != "NUTS"})

# %% [markdown]
# ## Eight schools
#
# The data are effects of coaching in eight schools, each with a known standard error (Rubin,
# 1981). A small tau forces all theta together: the posterior is a funnel, which is far from any
# Gaussian.

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
# Warnings are expected from these fits. The next cells show what they say.

# %%
raw = fits(centred, data)
raw_table = verdicts(raw)
raw_table.round(2)

# %% [markdown]
# NUTS itself warns here: its steps are too large for the neck of the centred funnel. Approximations
# are "unjudged" beside such a reference; the values of k-hat do not depend on it.
# Laplace's method has no mode to expand around: the density grows without bound as tau goes to 0,
# and the optimisation does not converge.

# %%
for sentence in raw["NUTS"].warnings + raw["Laplace"].warnings:
    print(textwrap.fill(sentence, 100))

# %% [markdown]
# ## The same model, non-centred
#
# theta = mu + tau z with z standard normal is the same prior, in coordinates in which the
# posterior is far closer to a Gaussian. The guides come closer to it; the ELBO hardly shows how
# close, as it is flat in the tail of tau. The mean of tau of the full-rank guide is off by too much
# for `compare`, though its k-hat is below the limit. Laplace's approximation lies on a plateau of
# log tau and is useless; the figure of the marginals leaves it out.

# %%
better = fits(non_centred, data)
better_table = verdicts(better)
better_table.round(2)

# %%
plots.marginals(
    {name: better[name] for name in ("NUTS", "mean field", "full rank", "deterministic")}, sites=4
)

# %%
plots.k_hat({name: p for name, p in better.items() if name != "NUTS"})

# %% [markdown]
# ## Conclusions
#
# Compute k-hat for every approximation: above its limit the draws are far from the posterior
# somewhere. Below it a mean can still be off, as those of Laplace's method in the first example and
# of the full-rank guide in the last: `diagnose` reports by how much importance weighting moves each
# mean and standard deviation. The deterministic method finds the best member of the same family in
# another way; it is not a better family.

# %%
assert cancer_table.loc["mean field", "verdict"] != "agrees"
assert cancer_table.loc["full rank", "k-hat"] < 0.7
assert raw_table.loc["full rank", "verdict"] != "agrees"
assert better_table.loc["deterministic", "k-hat"] < raw_table.loc["deterministic", "k-hat"]
assert better_table.loc["Laplace", "verdict"] == "do not use"
