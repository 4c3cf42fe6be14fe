# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Scaling out: more rows than memory, more processes than one
#
# Two questions decide how a large table is fitted. Do the rows fit into memory? If not, they stay
# in Parquet files, and `ppgp.stream` reads them in mini-batches. Is one process too slow? Then
# `torchrun` starts several, each takes a part of the rows, and `ppgp.Team` adds up what they find.
# The models and the calls of `fit` stay as they are.
#
# The rows are simulated here: 60,000 of them, in six files.

# %%
# %matplotlib inline
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import ppgp
from ppgp import inference, metrics, models

ROWS = 60_000
work = Path(tempfile.mkdtemp())
folder = work / "rows"
folder.mkdir()
rng = np.random.default_rng(0)


def simulated(n):
    """Return rows of a surface over two inputs, with noise of standard deviation 0.3."""
    east, north = rng.uniform(-3, 3, (2, n))
    y = 20 + 4 * np.sin(east) * np.cos(north) + north + 0.3 * rng.standard_normal(n)
    return pd.DataFrame({"east": east, "north": north, "y": y})


for part in range(6):
    simulated(ROWS // 6).to_parquet(folder / f"part-{part}.parquet", row_group_size=5_000)
test = simulated(2_000)

# %% [markdown]
# ## Rows that stay in files
#
# `ppgp.stream` reads the footers of the files and nothing else. One pass gives means and standard
# deviations; `fit` makes it by itself.

# %%
rows = ppgp.stream(folder, "y")
statistics = rows.statistics()
print(rows)
print("means", statistics.means.round(3), "y", round(statistics.y_mean, 3))

# %% [markdown]
# A sparse variational Gaussian process takes a mini-batch at each step, so that it needs no table.
# Its inducing inputs start from a sample of the rows.

# %%
how = inference.SVI(steps=500, batch_size=500)
streamed = ppgp.fit(models.SVGP(inducing=60), rows, how, progress=False)
prediction = streamed.predict(test[["east", "north"]])
y = test["y"].to_numpy()
error = prediction.mean.numpy() - y
print(f"RMSE {np.sqrt(np.mean(error**2)):.3f} (the noise alone has 0.3)")
covered = float(metrics.coverage(prediction.interval(0.9), y))
print(f"90 % intervals cover {covered:.1%}")

# %% [markdown]
# ## Several processes
#
# This script is the same for one process and for many. `Team.of_environment()` is a team of one
# without `torchrun`; under it, `share` gives each process its part of the rows, and every process
# takes the same steps. Its bound is computed from sums over the rows, which the processes add up.

# %%
script = work / "fit.py"
script.write_text(
    """
import sys
import pandas as pd
import ppgp
from ppgp import inference, models

team = ppgp.Team.of_environment()
table = pd.read_parquet(sys.argv[1]).iloc[:6000]
data = team.share(ppgp.Dataset.from_frame(table, "y"))
posterior = ppgp.fit(models.SGPR(inducing=60), data, inference.MAP(), progress=False)
if team.rank == 0:
    print(f"{team}: {data.n} rows on this rank")
    print(f"log density {posterior.stats['log_density']:.6f}")
    print("noise", f"{float(posterior.theta['noise']):.6f}")
"""
)
environment = {**os.environ, "OMP_NUM_THREADS": "1"}
for processes in (1, 2):
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [sys.executable, *launcher, str(script), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    print(done.stdout)

# %% [markdown]
# Both runs end at the same place, up to rounding. Pass `checkpoint=` to `fit`, and start `torchrun`
# with `--max-restarts`: if a process is killed, all start again, go on from the file, and end where
# an undisturbed fit would have.
#
# ## Many fits at once
#
# Simulation-based calibration, cross-calibration, ensembles and the starts of a search are many
# independent fits. `workers=` spreads them over processes of this machine;
# `with joblib.parallel_config("dask"):` spreads them over a cluster. Each fit has its own seed and
# one thread, so that the results are the same wherever they ran.

# %%
small = ppgp.Dataset.from_frame(simulated(300), "y")
splits = ppgp.cross_calibrate(
    models.LinearRegression(), small, inference.MAP(), folds=5, workers=2, progress=False
)
one = ppgp.cross_calibrate(
    models.LinearRegression(), small, inference.MAP(), folds=5, progress=False
)
new = test[["east", "north"]].iloc[:5]
same = np.array_equal(splits(new, level=0.9).lower, one(new, level=0.9).lower)
print("two workers and one give the same intervals:", same)

# %%
grid = np.stack(np.meshgrid(np.linspace(-3, 3, 60), np.linspace(-3, 3, 60)), -1).reshape(-1, 2)
surface = streamed.predict(pd.DataFrame(grid, columns=["east", "north"]))
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
parts = ((surface.mean, "predicted mean of y"), (surface.std, "its standard deviation"))
for axis, (values, title) in zip(axes, parts, strict=True):
    image = axis.pcolormesh(*grid.reshape(60, 60, 2).transpose(2, 0, 1), values.reshape(60, 60))
    axis.set(title=title, xlabel="east", ylabel="north")
    figure.colorbar(image, ax=axis)

# %%
assert same
assert 0.85 < covered < 0.95
