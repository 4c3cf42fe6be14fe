# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # When tomorrow is not like yesterday
#
# Hourly PM2.5 at one Beijing station (UCI 501), predicted from the weather. The model and its calibration rows come from the
# first year, and the test rows are the three years after it, in their order: rows are not exchangeable, and the
# split guarantee is void. What is left, what helps, and which sentence each method may print.
#
# The data are read from the folder `PPGP_DATA` (default `../shared/data`): `beijing_air/beijing_air_clean.npz`.

# %%
# %matplotlib inline
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import ppgp
from ppgp import conformal, inference, kernels, metrics, models, plots

warnings.filterwarnings("ignore", category=ppgp.errors.PpgpWarning)
table = np.load(
    Path(os.environ.get("PPGP_DATA", "../shared/data")) / "beijing_air" / "beijing_air_clean.npz",
    allow_pickle=False,
)
here = table["station"] == "Aotizhongxin"
raw, pm25 = table["X"][here].astype(float), table["pm25"][here].astype(float)
time = pd.to_datetime(
    pd.DataFrame(raw[:, :4], columns=["year", "month", "day", "hour"]).astype(int)
)
hour = 2 * np.pi * raw[:, 3] / 24
X = np.column_stack(
    [raw[:, 4:7], np.log1p(raw[:, 7]), np.log1p(raw[:, 8]), np.sin(hour), np.cos(hour)]
)
y = np.log1p(pm25)
first = np.flatnonzero(time < "2014-03-01")
later = np.flatnonzero(time >= "2014-03-01")[::6]  # every sixth hour
chosen = np.random.default_rng(0).permutation(first)
train, known = chosen[:800], chosen[800:2300]
print(
    f"{len(train)} rows to fit, {len(known)} to calibrate, {len(later)} to test, {time.iloc[later[0]]:%Y-%m} to {time.iloc[later[-1]]:%Y-%m}"
)

# %% [markdown]
# ## The fit, and split conformal prediction as if nothing changed

# %%
names = ["temperature", "pressure", "dew point", "log rain", "log wind", "sin hour", "cos hour"]
data = ppgp.Dataset(X[train], y[train], feature_names=names)
posterior = ppgp.fit(
    models.GP(kernels.ARD(kernels.Matern(1.5))), data, inference.MAP(), progress=False
)
seen, future = posterior.predict(X[known]), posterior.predict(X[later])
truth = torch.as_tensor(y[later])
score = conformal.Normalized()
calibrator = ppgp.calibrate(score, seen, y[known])
fixed = calibrator(future, level=0.9)

# %% [markdown]
# ## Weights
#
# If only the weather changed (covariate shift), likelihood ratios repair the guarantee. They are estimated by a classifier on
# rows of the first year that calibration does not use, against every other test row; the weights are for the rest.

# %%
spare = chosen[2300:]
w_known, w_new = (conformal.shift_weights(X[spare], X[later][::2], v) for v in (X[known], X[later]))
weighted = calibrator(future, level=0.9, weights=(w_known, w_new))

# %% [markdown]
# ## Online
#
# The label of each hour comes in before the next set is made. Adaptive conformal inference moves the level by what was
# missed, and its long-run coverage holds for any sequence; its kin learn the rate, or move the threshold itself.

# %%
runs = {
    "ACI": conformal.ACI(score, 0.9, rate=0.01, window=500)(future, truth, calibration=calibrator),
    "AgACI": conformal.AgACI(score, 0.9, window=500)(future, truth, calibration=calibrator),
    "PID": conformal.PID(score, 0.9)(future, truth, calibration=calibrator),
}
regions = {"model's own": future.interval(0.9), "split": fixed, "weighted": weighted} | {
    n: r.region for n, r in runs.items()
}


def worst_month(covered: torch.Tensor) -> float:
    months = time.iloc[later].dt.to_period("M").to_numpy()
    return float(pd.Series(covered.double().numpy()).groupby(months).mean().min())


figures = pd.DataFrame(
    {
        n: {
            "coverage": metrics.coverage(r, truth),
            "worst month": worst_month(r.covers(truth)),
            "median width": float(r.width.median()),
            "guaranteed": r.guarantee,
        }
        for n, r in regions.items()
    }
).T
figures

# %%
plots.online(runs, window=300)

# %%
assert all(abs(run.coverage - 0.9) < 0.02 for run in runs.values())
