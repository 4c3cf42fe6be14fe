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
# results agree where they must. The data are the diabetes data of scikit-learn.

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
# number for the variance of the noise give ridge regression. The prior refers to standardised
# columns, but a number is in the units of the data: the noise has a standard deviation of 54 here.
# With unknown noise the posterior of the weights is a mixture over the noise; `Exact` integrates
# over it on a grid, so that even this needs no sampling. With `conjugate=True` the standard
# deviation of the weights is in units of that of the noise; with an `InverseGamma` prior of the
# noise the posterior then has a closed form.

# %%
flat = priors.Flat()
least_squares = models.LinearRegression(flat, flat, flat)
# the first fits of a process take longer: these two are not timed
for how in (inference.MAP(), inference.Laplace()):
    ppgp.fit(least_squares, train, how, progress=False)
fits = {
    "least squares": ppgp.fit(least_squares, train, inference.MAP(), progress=False),
    "ridge": ppgp.fit(
        models.LinearRegression(priors.Normal(0, 0.2), flat, 54.0**2),
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
# The exact posterior is the reference. SVI and NUTS agree with it within Monte Carlo error,
# Laplace's method does not: it takes the mode of the noise for its mean.

# %%
comparison = ppgp.compare({k: fits[k] for k in ("laplace", "svi", "nuts")}, reference=fits["exact"])
for name, verdict in comparison.verdicts.items():
    print(f"{name}: {verdict} ({comparison.reasons[name]})")

# %% [markdown]
# All parameters of NUTS: the difference of its mean from the exact one in exact standard
# deviations, the Monte Carlo error of this difference, and the ratio of the standard deviations.

# %%
by_site = comparison.sites.query("name == 'nuts'").set_index("site")
by_site[["difference", "difference_error", "ratio"]].round(3)

# %% [markdown]
# ## The evidence chooses the order of a polynomial
#
# `Exact` gives the log evidence log p(y) too. It is largest at degree 5, but degree 7 is only 0.13
# nats lower: the data do not tell these two apart. The function, sin(3x), is odd, so that an even
# power costs evidence and does not improve the fit: each even degree is below the odd degree before
# it.

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
# Far from the data the bands of a linear model depend on its features. A polynomial diverges.
# Radial basis functions are zero there, so that the prediction is constant, and uncertain as it is
# the intercept alone.

# %%
new = np.linspace(-1.6, 1.6, 200)[:, None]
figure = Figure(figsize=(9, 3.4), layout="constrained")
figure.suptitle("Two sets of features, inside and outside the data")
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
axes[0].set(ylabel="y")
axes[1].legend(frameon=False, loc="lower right")
figure

# %% [markdown]
# ## Categories
#
# A column of text becomes one column per level. New data frames are read by column name. The prices
# below are simulated: red costs 2 more than the other colours.

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
red, blue = posterior.predict(pair).mean.tolist()
print(f"red costs {red - blue:.2f} more than blue")

# %%
assert set(comparison.verdicts.values()) <= {"agrees", "means agree, spread does not", "do not use"}
assert comparison.verdicts["nuts"] == "agrees"
assert best == 5
assert all(evidence[degree] < evidence[degree - 1] for degree in (2, 4, 6, 8))
assert abs(evidence[5] - evidence[7] - 0.13) < 0.01
assert abs(red - blue - 2) < 0.15
assert all(0.8 < row["coverage of 90 %"] < 1 for row in rows)
assert abs(fits["exact"].log_evidence - fits["laplace"].log_evidence) < 1.0
