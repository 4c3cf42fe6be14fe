# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Generalised linear models
#
# A generalised linear model has one linear predictor, eta = X weight + bias + offset, behind a
# likelihood: `models.GLM(likelihoods.Poisson())`. With flat priors it is maximum likelihood, and
# the tables are those of other software. With other priors every method of the library applies.
# This notebook fits events among trials, then counts with an exposure, checks their dispersion,
# and ends with intervals for new rows.

# %%
# %matplotlib inline
import textwrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

import ppgp
from ppgp import conformal, inference, likelihoods, metrics, models, plots, priors

flat = priors.Flat()


def most_likely(likelihood: likelihoods.Likelihood, data: ppgp.Dataset) -> ppgp.Posterior:
    """Fit by maximum likelihood: iteratively reweighted least squares under flat priors."""
    model = models.GLM(likelihood, weight=flat, bias=flat)
    return ppgp.fit(model, data, inference.MAP("newton"), progress=False)


# %% [markdown]
# ## Events among trials
#
# Bliss (1935) counted the beetles that eight doses of a gas killed. The numbers of beetles are the
# trials, a column of the Dataset. The published fit is -60.72 + 34.27 dose, with standard errors
# 5.18 and 2.91 (Dobson & Barnett 2008, section 7.3).

# %%
dose = np.array([1.6907, 1.7242, 1.7552, 1.7842, 1.8113, 1.8369, 1.8610, 1.8839])
beetles = np.array([59, 60, 62, 56, 63, 59, 62, 60])
killed = np.array([6, 13, 18, 28, 52, 53, 61, 60])
bliss = ppgp.Dataset(dose[:, None], killed, ["dose"], "killed", trials=beetles)
logit = most_likely(likelihoods.Binomial(), bliss)
logit.coefficients("model").round(3)

# %% [markdown]
# The residuals of the logit link have a pattern: the curve is too high in the middle and too low at
# the ends. NUTS gives the curve with its uncertainty; the prior of the slope is wide on the
# standardised scale of the dose. `trials=1` asks for the probability of one beetle.

# %%
wide = models.GLM(likelihoods.Binomial(), weight=priors.Normal(0.0, 10.0))
sampled = ppgp.fit(wide, bliss, inference.NUTS(), progress=False)
grid = np.linspace(1.67, 1.90, 60)
draws = sampled.coefficients()
eta = draws["weight"].flatten(0, 1) * grid + draws["bias"].flatten(0, 1)[:, None]
low, middle, high = np.quantile(1 / (1 + np.exp(-eta.numpy())), [0.05, 0.5, 0.95], axis=0)
figure, left = plt.subplots(figsize=(5.5, 3.4))
left.fill_between(grid, low, high, alpha=0.25, label="90 % interval")
left.plot(grid, middle, label="median of NUTS")
left.plot(dose, killed / beetles, "ko", label="share killed")
left.set_xlabel("log10 dose")
left.set_ylabel("probability")
left.legend()
figure.tight_layout()

# %% [markdown]
# ## Counts with an exposure: the offset
#
# The rows are 700 simulated policies with a number of claims each. A policy that runs twice as
# long has twice as many claims, so the log of the years is an offset: a column with coefficient 1.
# The expected number of claims per year is multiplied by 1.5 in towns and by 0.97 per year of age
# above 45. Policies also differ in a way that no column tells, which makes the counts
# overdispersed.

# %%
rng = np.random.default_rng(0)
n = 700
frame = pd.DataFrame({"age": rng.uniform(20, 70, n), "town": rng.integers(0, 2, n)})
frame["log_years"] = np.log(rng.uniform(0.2, 5.0, n))
rate = np.exp(-0.3 + np.log(1.5) * frame["town"] + np.log(0.97) * (frame["age"] - 45))
unseen = rng.gamma(1.2, 1 / 1.2, n)
frame["claims"] = rng.poisson(rate * np.exp(frame["log_years"]) * unseen)
claims = ppgp.Dataset.from_frame(frame, "claims", offset="log_years")
train, calibration, test = claims.split(500 / 700, 100 / 700, 100 / 700, seed=1)
train

# %%
poisson = most_likely(likelihoods.Poisson(), train)
print(textwrap.fill(str(poisson.dispersion_check()), 100))
poisson.coefficients("model", exponentiate=True).round(3)

# %% [markdown]
# The ratios are close to the truth, but the standard errors are those of counts whose variance is
# the mean. The sandwich estimate (`HC3`) does not use the variance of the likelihood. Quasi-Poisson
# standard errors are those of the model times the root of the ratio above, 3.00:

# %%
errors = pd.DataFrame(
    {how: poisson.coefficients(how)["se"] for how in ("model", "HC3")}
    | {"quasi-Poisson": poisson.coefficients("model", dispersion="pearson")["se"]}
)
errors.round(4)

# %% [markdown]
# ## The negative binomial distribution
#
# It has the variance mean + mean^2 / shape. The shape is a site like the weights, here with a flat
# prior. The rootograms hang the root of the observed frequencies from the expected ones, so that a
# bar that goes below the line at 0 means more rows than expected. The first rootogram is that of
# the Poisson distribution: there are too many counts of 0 and 1, and too many large ones.

# %%
negative = most_likely(likelihoods.NegativeBinomial(flat), train)
fits = {"Poisson": poisson, "negative binomial": negative}
pd.DataFrame(
    {
        name: {
            "log-likelihood": p.stats["log_density"],
            "AIC": p.aic,
            "BIC": p.bic,
            "nll of test rows": metrics.nll(p.predict(test), test.y),
        }
        for name, p in fits.items()
    }
).T.round(2)

# %%
plots.rootogram(poisson)

# %%
plots.rootogram(negative)

# %% [markdown]
# Randomised quantile residuals are standard normal if the model is right, for counts too.

# %%
figure, panels = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True)
for panel, (name, posterior) in zip(panels, fits.items()):
    residuals = np.sort(posterior.residuals("quantile").numpy())
    levels = (torch.arange(train.n, dtype=torch.float64) + 0.5) / train.n
    panel.plot(torch.special.ndtri(levels), residuals, ".")
    panel.axline((0, 0), slope=1, color="k", lw=0.8)
    panel.set_title(name)
    panel.set_xlabel("normal quantiles")
panels[0].set_ylabel("quantile residuals")
figure.tight_layout()

# %% [markdown]
# ## Priors, and which posterior to trust
#
# With the default priors the same model has a posterior. Laplace's approximation costs one search;
# NUTS is the reference, and `compare` says whether they agree.

# %%
bayes = models.GLM(likelihoods.NegativeBinomial())
posteriors = {
    "laplace": ppgp.fit(bayes, train, inference.Laplace(draws=4000), progress=False),
    "nuts": ppgp.fit(bayes, train, inference.NUTS(), progress=False),
}
comparison = ppgp.compare(posteriors, reference="nuts")
print(comparison.verdicts)
posteriors["nuts"].coefficients("draws", exponentiate=True).round(3)

# %% [markdown]
# ## Intervals for new policies
#
# `predict` needs the offset of the new rows, which a Dataset or a frame has by its name. The
# intervals of the model are those of the negative binomial distribution, and hold more than 90 % as
# their ends are whole numbers; calibrated intervals hold whatever the distribution of the claims
# is. With 100 rows to calibrate and 100 to test, their coverage varies by about 0.04.

# %%
predicted = posteriors["nuts"].predict(test)
calibrator = ppgp.calibrate(
    conformal.Normalized(), posteriors["nuts"].predict(calibration), calibration.y
)
regions = {"model": predicted.interval(0.9), "calibrated": calibrator(predicted, level=0.9)}
coverage = {name: metrics.coverage(region, test.y) for name, region in regions.items()}
print(f"coverage at 0.9: model {coverage['model']:.2f}, calibrated {coverage['calibrated']:.2f}")

# %%
table = logit.coefficients("model")
assert np.allclose(table["estimate"], [-60.717, 34.270], atol=2e-3)
assert np.allclose(table["se"], [5.181, 2.912], atol=2e-3)
assert abs(logit.deviance - 11.232) < 1e-3
assert poisson.dispersion_check().ratio > 1.5
assert (errors["HC3"] > errors["model"]).all()
assert negative.aic < poisson.aic - 50
ratios = posteriors["nuts"].coefficients("draws", exponentiate=True)
assert comparison.verdicts["laplace"] in ("agrees", "means agree, spread does not")
assert min(coverage.values()) > 0.8
