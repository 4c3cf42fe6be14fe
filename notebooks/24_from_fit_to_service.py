# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # From a fit to a service
#
# A fit is made once, and its predictions are asked for many times, often in another process. This
# notebook follows a posterior on that way: save, load in a fresh process, answer requests, and
# predict a large file. The time of a request is measured, with the two things that decide it: the
# model, and how many rows one request holds.
#
# Times are those of the machine that ran the notebook, which had other work at the same time.
# Compare them with one another, and run the notebook on the machine of the service for its own.

# %%
# %matplotlib inline
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import ppgp
from ppgp import conformal, inference, metrics, models

rng = np.random.default_rng(0)
work = Path(tempfile.mkdtemp())


def simulated(n: int) -> pd.DataFrame:
    """Return rows of the output of a plant, which depends on three columns."""
    frame = pd.DataFrame(
        {
            "temperature": rng.uniform(10, 40, n),
            "pressure": rng.uniform(1, 5, n),
            "load": rng.uniform(0, 1, n),
        }
    )
    surface = 20 * np.sin(frame["temperature"] / 8) + 3 * frame["pressure"] * frame["load"]
    frame["output"] = 100 + surface + 2 * rng.standard_normal(n)
    return frame


training, held_out, requests = simulated(600), simulated(400), simulated(2_000)
train = ppgp.Dataset.from_frame(training, "output")
calibration = ppgp.Dataset.from_frame(held_out, "output")

# %% [markdown]
# ## Fit and save
#
# Four posteriors of the same rows. A file holds the draws, the recipe, the scaling, and the inputs
# and the target of all training rows, standardised, even for a linear model by MAP. As the scaling
# is there too, a file is as confidential as the rows. It holds no code, so that opening one runs
# none.

# %%
recipes = {
    "linear, MAP": (models.LinearRegression(), inference.MAP()),
    "linear, 1,000 draws": (models.LinearRegression(), inference.Exact(draws=1000)),
    "GP, MAP": (models.GP(), inference.MAP()),
    "sparse GP, MAP": (models.SGPR(inducing=50), inference.MAP()),
}
posteriors = {
    name: ppgp.fit(model, train, how, progress=False) for name, (model, how) in recipes.items()
}
paths = {
    name: posterior.save(work / f"{number}.safetensors")
    for number, (name, posterior) in enumerate(posteriors.items())
}
pd.Series({name: path.stat().st_size / 1024 for name, path in paths.items()}, name="KiB").round(0)

# %% [markdown]
# A file with a single changed byte is refused.

# %%
whole = bytearray(paths["GP, MAP"].read_bytes())
whole[len(whole) // 2] ^= 1
damaged = work / "damaged.safetensors"
damaged.write_bytes(whole)
refusal = ""
try:
    ppgp.load_posterior(damaged)
except ppgp.errors.StorageError as error:
    refusal = str(error).replace(str(work), "...")
print(textwrap.fill(refusal, 100))

# %% [markdown]
# ## Load in another process
#
# The service needs the library and the file. Columns are found by their names, so that the order of
# the columns of a request does not matter, and a missing column is an error that names it.

# %%
script = work / "answer.py"
script.write_text(
    """
import sys
import time

import pandas as pd

import ppgp

started = time.perf_counter()
posterior = ppgp.load_posterior(sys.argv[1])
loaded = time.perf_counter()
ppgp.load_posterior(sys.argv[1])
again = time.perf_counter()
row = pd.DataFrame([{"load": 0.5, "pressure": 2.0, "temperature": 25.0}])
prediction = posterior.predict(row)
lower, upper = prediction.interval(0.9)
print(f"mean {float(prediction.mean):.6f}")
print(f"90 % interval {float(lower):.2f} to {float(upper):.2f}")
print(f"first load, with the libraries: {1e3 * (loaded - started):.0f} ms")
print(f"second load: {1e3 * (again - loaded):.0f} ms")
print(f"first prediction: {1e3 * (time.perf_counter() - again):.0f} ms")
"""
)
command = [sys.executable, str(script), str(paths["GP, MAP"])]
answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
print(answer)
row = pd.DataFrame([{"temperature": 25.0, "pressure": 2.0, "load": 0.5}])
here = float(posteriors["GP, MAP"].predict(row).mean)
print(f"in this process: mean {here:.6f}")

# %%
missing = ""
try:
    posteriors["GP, MAP"].predict(row.drop(columns="pressure"))
except ppgp.errors.PpgpError as error:
    missing = str(error)
print(textwrap.fill(missing, 100))

# %% [markdown]
# ## The time of a request
#
# A service loads once and answers many times. Each request is one row and asks for the mean and the
# 90 % interval. The first ones are left out, as they compute what later ones keep, such as the
# Cholesky factor of a Gaussian process. The slowest percentile matters as much as the median: it is
# what one user in a hundred waits for. The last column is the root mean squared error of the 400
# rows held out, in units of the output.

# %%
REQUESTS = 100
inputs = ["temperature", "pressure", "load"]


def milliseconds(posterior: ppgp.Posterior, rows_each: int, repeats: int) -> np.ndarray:
    """Return the time of each request of so many rows."""
    times = []
    for k in range(repeats + 5):
        first = (k * rows_each) % (len(requests) - rows_each + 1)
        batch = requests[inputs].iloc[first : first + rows_each]
        started = time.perf_counter()
        prediction = posterior.predict(batch)
        prediction.mean, prediction.interval(0.9)
        times.append(1e3 * (time.perf_counter() - started))
    return np.array(times[5:])


served = {name: ppgp.load_posterior(path) for name, path in paths.items()}
times = {name: milliseconds(posterior, 1, REQUESTS) for name, posterior in served.items()}
latency = pd.DataFrame(
    {
        name: {
            "median, ms": np.median(values),
            "99 %, ms": np.quantile(values, 0.99),
            "rmse": metrics.rmse(served[name].predict(calibration.X), calibration.y),
        }
        for name, values in times.items()
    }
).T
latency.round(2)

# %% [markdown]
# An interval of many draws is the quantile of a mixture, which is found by a search: the linear
# model answers faster with the one draw of MAP. Where the spread of the draws hardly changes the
# predictions, as with 600 rows and four coefficients, MAP serves as well: both have the same error.
# But the linear model misses the sine of the temperature, however it is fitted. The errors of the
# Gaussian processes are near the standard deviation of the noise, which is 2, and both answer in
# less than twice the time of the linear model by MAP.
#
# Most of the time of a single row is overhead of the call. Requests that wait for one another are
# answered faster together.

# %%
batches = [1, 10, 100, 1000]
per_row = pd.DataFrame(
    {
        name: {n: np.median(milliseconds(posterior, n, 20)) / n for n in batches}
        for name, posterior in served.items()
    }
)
figure, axis = plt.subplots(figsize=(7, 3.4))
for (name, column), style in zip(per_row.items(), ("o-", "s--", "^-.", "D:"), strict=True):
    axis.plot(batches, column, style, ms=5, label=name)
axis.set(
    title="Time per row falls with the size of a request",
    xscale="log",
    yscale="log",
    xlabel="rows in a request",
    ylabel="ms per row (median of 20)",
)
axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
figure.tight_layout()

# %% [markdown]
# ## Intervals with a guarantee in the service
#
# A calibrator is the predictions of the calibration rows and their targets. Save these rows beside
# the posterior, and make the calibrator when the service starts. It adds one comparison to each
# request.
#
# The guarantee is an average over sets of calibration rows. With one set the share covered is a
# little more or less: `coverage_band` gives its range for these numbers of rows.

# %%
held_out.to_parquet(work / "calibration.parquet")
rows = ppgp.Dataset.from_frame(pd.read_parquet(work / "calibration.parquet"), "output")
gp = served["GP, MAP"]
calibrator = ppgp.calibrate(conformal.Normalized(), gp.predict(rows.X), rows.y)
region = calibrator(gp.predict(requests[inputs]), level=0.9)
covered = float(metrics.coverage(region, requests["output"].to_numpy()))
low, high = calibrator.coverage_band(0.9, confidence=0.95, rows=len(requests))
print(f"guarantee: {region.guarantee}")
print(f"share of the {len(requests):,} requests covered: {covered:.1%}")
print(
    f"band of that share with {rows.n} calibration rows: {low:.1%} to {high:.1%}, 95 % of the time"
)

# %% [markdown]
# ## A large file
#
# `predict_to` reads and writes Parquet files in chunks, so that the file need not fit into memory.
# `lower` and `upper` are the ends of the 90 % predictive interval, as `level=0.9` says.
# If it is stopped, the same call goes on behind the last chunk that was written. The command
# `ppgp predict fit.safetensors rows.parquet --out out.parquet` does the same without Python.

# %%
many = work / "rows.parquet"
simulated(50_000).to_parquet(many)
started = time.perf_counter()
sparse = served["sparse GP, MAP"]
out = sparse.predict_to(many, work / "out.parquet", level=0.9, rows_at_once=10_000, progress=False)
seconds = time.perf_counter() - started
table = pd.read_parquet(out)
print(f"{len(table):,} rows in {seconds:.1f} s")
table.head(3).round(2)

# %% [markdown]
# ## What was shown

# %%
assert refusal
assert f"mean {here:.6f}" in answer
assert "pressure" in missing
for name, posterior in posteriors.items():
    before, again = (p.predict(requests[inputs]).mean for p in (posterior, served[name]))
    assert np.allclose(before, again, rtol=1e-10), name
assert (per_row.loc[1000] < per_row.loc[1]).all()
assert low < covered < high
rmse = latency["rmse"]
assert abs(rmse["linear, MAP"] - rmse["linear, 1,000 draws"]) < 0.01
assert rmse[["GP, MAP", "sparse GP, MAP"]].max() < 2.1 < 3 < rmse["linear, MAP"]
assert len(table) == 50_000
assert list(table.columns) == ["mean", "sd", "lower", "upper"]
