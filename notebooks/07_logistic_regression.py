# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Logistic regression: least squares, gradient descent, IRLS, Laplace, variational inference, NUTS
#
# One model is fitted by every method. The first methods give one vector of weights, the later ones
# a distribution of the weights. Verdicts compare these distributions with that of NUTS, first the
# weights, then the predictions.

# %%
# %matplotlib inline
import math
import textwrap
import warnings

import pandas as pd
import torch
from matplotlib.collections import PathCollection

import ppgp
from ppgp import inference, metrics, models, plots, priors

table = ppgp.load("iris")
keep = table.y > 0  # versicolor and virginica, which overlap
data = ppgp.Dataset(
    table.X[keep][:, :2], table.y[keep] - 1, table.feature_names[:2], "species", table.classes[1:]
)
train, test = data.split(0.7, seed=1)
train

# %% [markdown]
# ## Ordinary least squares on the labels
#
# The labels 0 and 1 are used as numbers, with a threshold of one half. This gives a line but no
# probabilities, and points far on the correct side shift it.

# %%
flat = priors.Flat()
labels = ppgp.Dataset(train.X, train.y)
ols = ppgp.fit(models.LinearRegression(flat, flat, flat), labels, inference.Exact(), progress=False)
correct = ((ols.predict(test.X).mean > 0.5) == (test.y > 0.5)).double().mean()
rows = [
    {
        "how": "least squares",
        "accuracy": float(correct),
        "nll": float("nan"),
        "seconds": ols.seconds,
    }
]

# %% [markdown]
# ## Maximum likelihood by gradient descent, stochastic gradient descent, L-BFGS and Newton
#
# Newton's method for this model is iteratively reweighted least squares. After a few steps the
# gradient is zero to rounding. Weight 0 is that of the length of the sepals, weight 1 that of their
# width, both on the standardised scale.
#
# Stochastic gradient descent takes 32 of the 70 rows per step, at a rate that falls as 1 / t. It
# has no test of convergence: it takes all its steps, and its weights keep some noise. At the
# default rate of 0.1 weight 0 only comes to 1.57 in 2,000 steps; here the rate is 1.

# %%
likelihood = models.LogisticRegression(flat, flat)
fits = {
    "gd": ppgp.fit(likelihood, train, inference.MAP("gd", steps=2000), progress=False),
    "sgd": ppgp.fit(
        likelihood, train, inference.MAP("sgd", steps=2000, learning_rate=1.0), progress=False
    ),
    "lbfgs": ppgp.fit(likelihood, train, inference.MAP("lbfgs"), progress=False),
    "irls": ppgp.fit(likelihood, train, inference.MAP("newton"), progress=False),
}
pd.DataFrame(
    {
        name: {
            **{f"weight {j}": float(p.draws["weight"][0, 0, j]) for j in range(2)},
            "bias": float(p.draws["bias"]),
            "log density": p.stats["log_density"],
            "steps": p.stats["steps"],
        }
        for name, p in fits.items()
    }
).T.round(5)

# %% [markdown]
# ## Maximum a posteriori, Laplace, variational inference, NUTS

# %%
bayes = models.LogisticRegression()
fits |= {
    "map": ppgp.fit(bayes, train, inference.MAP("newton"), progress=False),
    "laplace": ppgp.fit(bayes, train, inference.Laplace(draws=4000), progress=False),
    "svi mean-field": ppgp.fit(bayes, train, inference.SVI("normal"), progress=False),
    "svi full-rank": ppgp.fit(bayes, train, inference.SVI("multivariate_normal"), progress=False),
    "nuts": ppgp.fit(bayes, train, inference.NUTS(), progress=False),
}
for name, posterior in fits.items():
    predictive = posterior.predict(test.X)
    rows.append(
        {
            "how": name,
            "accuracy": metrics.accuracy(predictive, test.y),
            "nll": metrics.nll(predictive, test.y),
            "seconds": posterior.seconds,
        }
    )
pd.DataFrame(rows).set_index("how").round(4)

# %% [markdown]
# The nll of `laplace` is the smallest, but 30 test rows do not tell the last five methods apart:
# each difference from NUTS is within two of its standard errors over the test rows.

# %%
bayesian = {k: fits[k] for k in ("map", "laplace", "svi mean-field", "svi full-rank", "nuts")}
truth = test.y.long()
losses = {
    name: -posterior.predict(test.X).probabilities[torch.arange(test.n), truth].log()
    for name, posterior in bayesian.items()
}
differences = {name: loss - losses["nuts"] for name, loss in losses.items() if name != "nuts"}
pd.DataFrame(
    {
        name: {"nll - nll of nuts": float(d.mean()), "error": float(d.std()) / math.sqrt(test.n)}
        for name, d in differences.items()
    }
).T.round(4)

# %% [markdown]
# ## Which posteriors to trust
#
# `verdict` judges the weights against those of NUTS, and `predictions` the class probabilities of
# the test rows.

# %%
comparison = ppgp.compare(bayesian, reference="nuts", test=test)
for name, verdict in comparison.verdicts.items():
    print(textwrap.fill(f"{name}: {verdict} ({comparison.reasons[name]})", 100))
comparison.to_frame()[["nll", "verdict", "predictions"]].round(4)

# %% [markdown]
# The posterior is skewed, so that its mode is not its mean. `map` is that mode, and `laplace` has
# its mean there, so "do not use" holds for the weights of both. The probabilities hardly depend on
# it: those of every method agree with those of NUTS. For the weights, take NUTS or the full-rank
# guide. A mean-field guide ignores the correlation of the weights, and its spread is too small.
#
# ## Evidence, BIC and AIC: are both measures of the sepals needed?
#
# BIC and AIC have the usual sign and scale, -2 log L + ..., so smaller is better. A better model
# has a larger evidence. That of Laplace is an approximation too: the last column corrects it by
# importance sampling from the same Gaussian, with an error of less than 0.01.

# %%
choice = {}
for name, columns in {"length and width": [0, 1], "length alone": [0], "width alone": [1]}.items():
    part = ppgp.Dataset(train.X[:, columns], train.y)
    ml = ppgp.fit(likelihood, part, inference.MAP("newton"), progress=False)
    laplace = ppgp.fit(bayes, part, inference.Laplace(draws=4000), progress=False)
    ratio = (laplace.stats["lp"] - laplace.stats["log_q"]).flatten()
    choice[name] = {
        "BIC": ml.bic,
        "AIC": ml.aic,
        "log evidence": laplace.log_evidence,
        "corrected": float(ratio.logsumexp(0)) - math.log(len(ratio)),
    }
pd.DataFrame(choice).T.round(2)

# %% [markdown]
# No: all prefer the length alone, and Laplace's evidence is right to 0.03.
#
# ## Predictive probabilities by Monte Carlo and by the probit approximation
#
# The approximation is sigmoid(m / sqrt(1 + pi v / 8)), with m and v the mean and variance of the
# logit. It needs no average over draws and is nearly the same. Both use the draws of `laplace`,
# whose probabilities agree with those of NUTS above.

# %%
average = fits["laplace"].predict(test.X).probabilities[:, 1]
probit = fits["laplace"].probit(test.X).probabilities[:, 1]
gap = float((average - probit).abs().max())
print(f"largest difference: {gap:.4f}")

# %% [markdown]
# ## Decision boundary and probability surface
#
# The thick line is where both classes are equally probable, the thin lines are at the probabilities
# 0.1 and 0.9. Points are the training rows. Their measures are whole tenths of a centimetre: the 70
# rows lie at 56 places, seven of which have rows of both species. So each point is moved a little,
# versicolor to the left and virginica to the right by 0.025 cm, all up or down by up to 0.04 cm at
# random.

# %%
figure = plots.decision(fits["nuts"], title="NUTS: p(virginica)")
generator = torch.Generator().manual_seed(0)
species = [c for c in figure.axes[0].collections if isinstance(c, PathCollection)]
for side, points in zip((-0.025, 0.025), species, strict=True):
    places = torch.as_tensor(points.get_offsets().data)
    up = 0.08 * torch.rand(len(places), generator=generator) - 0.04
    points.set_offsets(places + torch.stack([torch.full_like(up, side), up], 1))
figure

# %% [markdown]
# ## Perfectly separable classes
#
# Setosa is separable from the other species, so that the likelihood has no maximum. The fit stays
# finite and warns with the reason; a prior solves the problem.

# %%
apart = ppgp.Dataset(table.X[table.y < 2][:, 2:], table.y[table.y < 2])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    ppgp.fit(likelihood, apart, inference.MAP("newton"), progress=False)
print(textwrap.fill(str(caught[-1].message), 100))

# %%
assert torch.allclose(fits["irls"].draws["weight"], fits["lbfgs"].draws["weight"], atol=1e-4)
assert comparison.verdicts["svi full-rank"] == "agrees"
assert comparison.verdicts["map"] == comparison.verdicts["laplace"] == "do not use"
assert (comparison.to_frame()["predictions"].drop("nuts") == "agrees").all()
for difference in differences.values():
    assert abs(float(difference.mean())) < 2 * float(difference.std()) / math.sqrt(test.n)
assert torch.allclose(fits["sgd"].draws["weight"], fits["irls"].draws["weight"], atol=0.02)
assert len(train.X.unique(dim=0)) == 56
assert gap < 0.02
assert "separate the classes perfectly" in str(caught[-1].message)
table = pd.DataFrame(choice)
assert table.loc["log evidence"].idxmax() == "length alone"
assert (table.loc["log evidence"] - table.loc["corrected"]).abs().max() < 0.04
assert table.loc["BIC"].idxmin() == table.loc["AIC"].idxmin() == "length alone"
