# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Linear regression: one model, every inference method
#
# This notebook compares inference methods on one simple model. Each method is one line, and the
# results agree where they must.

# %%
# %matplotlib inline

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

import ppgp
from ppgp import inference, metrics, models, priors
from ppgp.estimators import ProbabilisticRegressor, RBFFeatures

train, test = ppgp.load("diabetes").split(0.7, seed=0)
train

# %% [markdown]
# ## Least squares, ridge and Bayes are one recipe
#
# `Flat()` priors give maximum likelihood: least squares. A `Normal` prior of the weights and a
# number for the noise give ridge regression. With unknown noise the posterior of the weights is a
# mixture over the noise; `Exact` integrates over it on a grid, so that even this needs no
# sampling.

# %%
flat = priors.Flat()
fits = {
    "least squares": ppgp.fit(
        models.LinearRegression(flat, flat, flat), train, inference.MAP(), progress=False
    ),
    "ridge": ppgp.fit(
        models.LinearRegression(priors.Normal(0, 0.2), flat, 0.5),
        train,
        inference.Exact(),
        progress=False,
    ),
    "exact": ppgp.fit(models.LinearRegression(), train, inference.Exact(), progress=False),
    "conjugate": ppgp.fit(
        models.LinearRegression(noise=priors.InverseGamma(2, 1), conjugate=True),
        train,
        inference.Exact(),
        progress=False,
    ),
    "laplace": ppgp.fit(models.LinearRegression(), train, inference.Laplace(), progress=False),
    "svi": ppgp.fit(models.LinearRegression(), train, inference.SVI(), progress=False),
    "nuts": ppgp.fit(models.LinearRegression(), train, inference.NUTS(), progress=False),
}
rows = []
for name, posterior in fits.items():
    predictive = posterior.predict(test.X)
    row = {
        "how": name,
        "rmse": metrics.rmse(predictive, test.y),
        "nll": metrics.nll(predictive, test.y),
        "seconds": posterior.seconds,
    }
    rows.append(row | {"coverage of 90 %": metrics.coverage(predictive.interval(0.9), test.y)})
pd.DataFrame(rows).set_index("how").round(3)

# %% [markdown]
# The exact posterior is the reference; NUTS agrees with it within Monte Carlo error.

# %%
comparison = ppgp.compare({k: fits[k] for k in ("laplace", "svi", "nuts")}, reference=fits["exact"])
(
    pd.Series(comparison.verdicts),
    comparison.sites.query("name == 'nuts'")[["site", "difference", "difference_error", "ratio"]],
)

# %% [markdown]
# ## The evidence chooses the order of a polynomial
#
# The log evidence log p(y) has a closed form. It decreases again when additional terms no longer
# improve the fit enough.

# %%
x = np.linspace(-1, 1, 40)[:, None]
y = np.sin(3 * x[:, 0]) + 0.2 * np.random.default_rng(0).normal(size=40)
evidence = {}
for degree in range(1, 10):
    X = PolynomialFeatures(degree, include_bias=False).fit_transform(x)
    evidence[degree] = ppgp.fit(
        models.LinearRegression(), ppgp.Dataset(X, y), inference.Exact(), progress=False
    ).log_evidence
best = max(evidence, key=lambda degree: evidence[degree])
pd.Series(evidence, name="log evidence").round(2)

# %% [markdown]
# ## Features in a scikit-learn pipeline
#
# Far from the data the bands of a linear model depend on its features: a polynomial diverges,
# radial basis functions return to their prior.

# %%
new = np.linspace(-1.6, 1.6, 200)[:, None]
figure = Figure(figsize=(9, 3.2), layout="constrained")
axes = figure.subplots(1, 2, sharey=True)
shown = {
    "polynomial of degree 5": PolynomialFeatures(5, include_bias=False),
    "12 radial basis functions": RBFFeatures(12),
}
for axis, (title, features) in zip(axes, shown.items()):
    pipe = make_pipeline(features, ProbabilisticRegressor("linear", "exact")).fit(x, y)
    predictive = pipe[-1].predict_distribution(pipe[0].transform(new))
    lower, upper = predictive.interval(0.9)
    axis.fill_between(new[:, 0], lower, upper, alpha=0.25, label="90 % of y")
    axis.plot(new[:, 0], predictive.mean, label="mean")
    axis.scatter(x[:, 0], y, s=12, color="black", label="data")
    axis.set(title=title, xlabel="x", ylim=(-3, 3))
    axis.spines[["top", "right"]].set_visible(False)
axes[0].legend(frameon=False)
figure

# %% [markdown]
# ## Categories
#
# A column of text becomes one column per level. New data frames are read by column name.

# %%
frame = pd.DataFrame(
    {"size": np.tile([1.0, 2.0, 3.0], 20), "colour": np.repeat(["red", "green", "blue"], 20)}
)
frame["price"] = (
    frame["size"] + 2 * (frame["colour"] == "red") + 0.1 * np.random.default_rng(1).normal(size=60)
)
posterior = ppgp.fit(
    models.LinearRegression(),
    ppgp.Dataset.from_frame(frame, "price", one_hot=True),
    inference.Exact(),
    progress=False,
)
pair = pd.DataFrame({"size": [2.0, 2.0], "colour": ["red", "blue"]})
difference = posterior.predict(pair).mean.diff()
difference

# %%
assert set(comparison.verdicts.values()) <= {"agrees", "means agree, spread does not", "do not use"}
assert comparison.verdicts["nuts"] == "agrees"
assert best in (3, 4, 5)
assert abs(abs(float(difference)) - 2) < 0.15
assert abs(fits["exact"].log_evidence - fits["laplace"].log_evidence) < 1.0
