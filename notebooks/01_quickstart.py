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
# Draws are on the standardised scale, to which the priors refer. `coefficients()` gives the
# coefficients in the units of the data.

# %%
weights = posteriors["nuts"].coefficients()["weight"].mean((0, 1))
dict(zip(data.feature_names, weights.round(decimals=1).tolist(), strict=True))

# %% [markdown]
# ## Compare the posteriors
#
# Differences are in standard deviations of the reference (NUTS), with their Monte Carlo error. The
# verdict counts only what exceeds three Monte Carlo errors.

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

# %%
comparison.reasons

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
# The range of the coverage on these test rows is known too: given the calibration rows, the
# coverage follows a Beta distribution.

# %%
low, high = calibrator.coverage_band(0.9, confidence=0.99)
covered = metrics.coverage(region, test.y)
print(
    f"covered {covered:.3f} of {test.n} test rows; "
    f"the coverage given these calibration rows lies in [{low:.3f}, {high:.3f}]"
)

# %% [markdown]
# ## What was shown

# %%
assert comparison.verdicts["nuts"] == "reference"
assert comparison.verdicts["svi"] == "agrees"
assert comparison.verdicts["map"] != "agrees"
assert region.guarantee == "marginal coverage >= 0.9 (exchangeable rows)"
assert low - 0.1 < covered < high + 0.1
assert table["rmse"].max() < test.y.std()
