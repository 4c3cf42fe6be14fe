# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Quickstart: from a table to intervals with a guarantee
#
# This notebook fits one model by four methods, compares the posteriors, and computes intervals
# with a stated guarantee. The data are the diabetes data of scikit-learn: 442 patients, ten
# measurements, and a score of the progression of the disease after one year.

# %%
# %matplotlib inline
import textwrap

import ppgp
from ppgp import conformal, inference, metrics, models, plots

data = ppgp.load("diabetes")
train, calibration, test = data.split(0.6, 0.2, 0.2, seed=0)
data

# %% [markdown]
# ## Fit by any method
#
# A model is a recipe: priors and structure, without data. Every method takes the same recipe.

# %%
model = models.LinearRegression()
methods = {
    "map": inference.MAP(),
    "laplace": inference.Laplace(),
    "svi": inference.SVI(),
    "nuts": inference.NUTS(draws=500, warmup=500),
}
posteriors = {name: ppgp.fit(model, train, how, progress=False) for name, how in methods.items()}
posteriors["nuts"].summary().round(3)

# %% [markdown]
# Draws are on the standardised scale, to which the priors refer; `noise` is the variance of the
# noise. `coefficients()` gives the coefficients in the units of the data.

# %%
weights = posteriors["nuts"].coefficients()["weight"].mean((0, 1))
dict(zip(data.feature_names, weights.round(decimals=1).tolist(), strict=True))

# %% [markdown]
# ## Compare the posteriors
#
# Three scores of the test rows: the root mean squared error, minus the mean log density (`nll`),
# and the continuous ranked probability score (`crps`); then coverage and mean width of the 90 %
# intervals. Two verdicts compare each posterior with the reference, NUTS. `verdict` is about the
# parameters, `predictions` about the predictive distributions of the test rows. Differences are in
# standard deviations of the reference, and only what exceeds three Monte Carlo errors counts.

# %%
comparison = ppgp.compare(posteriors, test=test, calibration=calibration, level=0.9)
table = comparison.to_frame()
table[["rmse", "nll", "crps", "coverage", "width", "seconds", "verdict", "predictions"]].round(3)

# %% [markdown]
# The same intervals after calibration on rows that are not training rows; and how far predictions
# are from those of the reference: the largest shift of a mean in standard deviations, and the
# probability that the reference gives to the 90 % intervals.

# %%
table[["conformal_coverage", "conformal_width", "predictive_shift", "interval_content"]].round(3)

# %% [markdown]
# The reasons of the verdicts on the parameters. MAP and Laplace's method find the mode of the
# noise, which is below its mean; their predictions are those of NUTS all the same.

# %%
for name, reason in comparison.reasons.items():
    print(f"{name}: {reason}")

# %% [markdown]
# The figure shows all parameters: differences of the means, and ratios of the standard deviations.
# A MAP estimate is one point, so its standard deviation is 0.

# %%
plots.differences(comparison)

# %%
plots.marginals(posteriors, sites=8)

# %% [markdown]
# ## Intervals with a guarantee
#
# The interval of a model covers at its nominal level only if the model is right. Calibrated on
# rows that are not training rows, it covers with probability at least 0.9 whatever the model is,
# for rows exchangeable with the calibration rows.

# %%
prediction = posteriors["nuts"].predict(test.X)
calibrator = ppgp.calibrate(
    conformal.Normalized(), posteriors["nuts"].predict(calibration.X), calibration.y
)
region = calibrator(prediction, level=0.9)
print(textwrap.fill(repr(region), 100))

# %%
plots.intervals(prediction, test.y, region, own=prediction.interval(0.9))

# %% [markdown]
# The guarantee is an average over calibration and test rows. With 89 calibration rows and 88 test
# rows the share of covered rows varies, and `coverage_band` gives its range.

# %%
low, high = calibrator.coverage_band(0.9, confidence=0.99, rows=test.n)
covered = metrics.coverage(region, test.y)
print(f"covered {covered:.3f} of {test.n} test rows")
print(f"expected: between {low:.3f} and {high:.3f} with probability 0.99")

# %% [markdown]
# ## What was shown

# %%
assert comparison.verdicts["nuts"] == "reference"
assert comparison.verdicts["svi"] == "agrees"
assert comparison.verdicts["map"] != "agrees"
assert (table["predictions"].drop("nuts") == "agrees").all()
assert region.guarantee == "marginal coverage >= 0.9 (exchangeable rows)"
assert low <= covered <= high
assert table["rmse"].max() < test.y.std()
