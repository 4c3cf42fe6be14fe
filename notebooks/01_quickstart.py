# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Quickstart: from a table to an interval that can be trusted
#
# One model, four ways to fit it, one referee, and intervals with a stated guarantee, on the diabetes data that ship with
# scikit-learn: 442 patients, ten measurements, and a score of how the disease went on a year later.

# %%
# %matplotlib inline
import warnings

import ppgp
from ppgp import conformal, inference, metrics, models, plots

warnings.filterwarnings("ignore", category=ppgp.errors.PpgpWarning)

data = ppgp.load("diabetes")
train, calibration, test = data.split(0.6, 0.2, 0.2, seed=0)
data

# %% [markdown]
# ## Fit it any way
#
# A model is a recipe: priors and structure, no data. The same recipe goes to every method.

# %%
model = models.LinearRegression()
ways = {
    "map": inference.MAP(),
    "laplace": inference.Laplace(),
    "svi": inference.SVI(),
    "nuts": inference.NUTS(draws=500, warmup=500),
}
posteriors = {name: ppgp.fit(model, train, how, progress=False) for name, how in ways.items()}
posteriors["nuts"].summary().round(3)

# %% [markdown]
# Draws are on the standardised scale that the priors are meant for; the coefficients in the units of the data are one call away.

# %%
weights = posteriors["nuts"].coefficients()["weight"].mean((0, 1))
dict(zip(data.feature_names, weights.round(decimals=1).tolist(), strict=True))

# %% [markdown]
# ## See which answer to trust
#
# Differences are in standard deviations of the reference (NUTS), with their Monte Carlo error; the verdict counts only what
# exceeds three of them.

# %%
comparison = ppgp.compare(posteriors, test=test, calibration=calibration, level=0.9)
comparison

# %%
comparison.reasons

# %%
plots.differences(comparison)

# %%
plots.marginals(posteriors, sites=8)

# %% [markdown]
# ## Intervals with a guarantee
#
# The model's own interval covers as often as it says only if the model is right. Calibrated on rows that the fit has not seen,
# it covers at least nine times in ten whatever the model, for rows exchangeable with those.

# %%
prediction = posteriors["nuts"].predict(test.X)
calibrator = ppgp.calibrate(
    conformal.Normalized(), posteriors["nuts"].predict(calibration.X), calibration.y
)
region = calibrator(prediction, level=0.9)
region

# %%
plots.intervals(prediction, test.y, region, own=prediction.interval(0.9))

# %% [markdown]
# How far the coverage on these test rows may lie from 0.9 is known too: given the calibration rows it follows a Beta law.

# %%
low, high = calibrator.coverage_band(0.9, confidence=0.99)
covered = metrics.coverage(region, test.y)
print(
    f"covered {covered:.3f} of {test.n} test rows; the coverage given these calibration rows lies in [{low:.3f}, {high:.3f}]"
)

# %% [markdown]
# ## What this page stands on

# %%
assert comparison.verdicts["nuts"] == "reference"
assert comparison.verdicts["svi"] == "agrees"
assert comparison.verdicts["map"] != "agrees"
assert region.guarantee == "marginal coverage >= 0.9 (exchangeable rows)"
assert low - 0.1 < covered < high + 0.1
assert comparison.to_frame()["rmse"].max() < test.y.std()
