# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Conformal prediction around scikit-learn and torch
#
# Conformal prediction asks nothing of a model but its predictions. This notebook puts intervals
# and sets with a guarantee around models of other libraries: a random forest, quantile regression,
# and networks of torch. What decides the width is not the guarantee, which all of them share, but
# what the model says about a row: a point, a standard deviation, quantiles, or probabilities.

# %%
# %matplotlib inline
import textwrap

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, QuantileRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

import ppgp
from ppgp import Prediction, conformal, estimators, metrics

# %% [markdown]
# ## The rows
#
# A wave whose noise grows from left to right. Three parts: rows to fit, rows to calibrate, and test
# rows. The calibration rows take no part in any fit: not in early stopping, not in the choice of a
# model, not in the scaling of columns.

# %%
rng = np.random.default_rng(0)


def sample(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs [n, 1] and targets [n]; the sd of the noise goes from 0.05 to 0.65."""
    x = rng.uniform(0, 1, n)
    return x[:, None], np.sin(8 * x) + (0.05 + 0.6 * x) * rng.standard_normal(n)


(X, y), (X_cal, y_cal), (X_new, y_new) = sample(600), sample(400), sample(4000)

# %% [markdown]
# ## A point: a random forest
#
# `Prediction.from_points` holds what `predict` returns. The score `Absolute` compares y with the
# point, so that all rows get one width.

# %%
forest = RandomForestRegressor(200, min_samples_leaf=10, random_state=0).fit(X, y)
points = Prediction.from_points(forest.predict(X_cal))
calibrator = ppgp.calibrate(conformal.Absolute(), points, y_cal)
regions = {"forest, points": calibrator(Prediction.from_points(forest.predict(X_new)), level=0.9)}
print(textwrap.fill(repr(regions["forest, points"]), 100))

# %% [markdown]
# ## A standard deviation: a network of torch
#
# A network with two outputs, trained on the negative log density of a normal distribution, predicts
# the mean and the standard deviation of each row. `Prediction.from_points(mean, sd=sd)` is that
# normal distribution. `Normalized` divides by the sd, so that the width follows it. The intervals
# of the network itself carry no guarantee.

# %%
torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 32), torch.nn.Tanh(),
    torch.nn.Linear(32, 2),
).double()  # fmt: skip
adam = torch.optim.Adam(network.parameters(), 0.01)
rows, targets = torch.as_tensor(X), torch.as_tensor(y)
for _ in range(1000):
    adam.zero_grad()
    mean, log_sd = network(rows).unbind(1)
    (log_sd + 0.5 * ((targets - mean) / log_sd.exp()).square()).mean().backward()
    adam.step()


def by_network(X: np.ndarray) -> Prediction:
    """Return the normal distributions that the network predicts."""
    with torch.no_grad():
        mean, log_sd = network(torch.as_tensor(X)).unbind(1)
    return Prediction.from_points(mean, sd=log_sd.exp())


known, new = by_network(X_cal), by_network(X_new)
regions["network's own"] = new.interval(0.9)
regions["network, mean and sd"] = ppgp.calibrate(conformal.Normalized(), known, y_cal)(
    new, level=0.9
)

# %% [markdown]
# ## Quantiles: quantile regression
#
# Two quantile regressions on splines give the 5 % and the 95 % quantile. `from_quantiles` holds
# them, and `Quantile` moves both ends by the same amount (conformalised quantile regression;
# Romano, Patterson & Candes 2019).

# %%
ends = [
    make_pipeline(SplineTransformer(8), QuantileRegressor(quantile=q, alpha=1e-4)).fit(X, y)
    for q in (0.05, 0.95)
]


def by_quantiles(X: np.ndarray) -> Prediction:
    """Return the two predicted quantiles of each row."""
    return Prediction.from_quantiles(np.column_stack([e.predict(X) for e in ends]), [0.05, 0.95])


cqr = ppgp.calibrate(conformal.Quantile(), by_quantiles(X_cal), y_cal)
regions["quantile regression"] = cqr(by_quantiles(X_new), level=0.9)

# %% [markdown]
# The calibrated intervals cover about 90 % of all rows. The last column is the coverage where the
# noise is largest, x > 0.8: intervals of one width are too narrow there and too wide elsewhere. The
# guarantee is for the rows as a whole; the rest is the work of the model.

# %%
loud = X_new[:, 0] > 0.8
table = pd.DataFrame(
    {
        name: {
            "coverage": metrics.coverage(region, y_new),
            "mean width": metrics.mean_width(region),
            "coverage, x > 0.8": float(region.covers(y_new)[loud].double().mean()),
        }
        for name, region in regions.items()
    }
).T
table.round(3)

# %%
grid = np.linspace(0, 1, 200)[:, None]
bands = {
    "forest, points": calibrator(Prediction.from_points(forest.predict(grid)), level=0.9),
    "network, mean and sd": ppgp.calibrate(conformal.Normalized(), known, y_cal)(
        by_network(grid), level=0.9
    ),
    "quantile regression": cqr(by_quantiles(grid), level=0.9),
}
figure, axes = plt.subplots(1, 3, figsize=(9.5, 3), sharey=True)
for axis, (name, band) in zip(axes, bands.items(), strict=True):
    axis.plot(X_new[:500], y_new[:500], ".", ms=2, color="grey")
    axis.fill_between(grid[:, 0], band.lower, band.upper, color="C0", alpha=0.3, lw=0)
    axis.set(title=name, xlabel="x")
axes[0].set_ylabel("y")
figure.tight_layout()

# %% [markdown]
# ## How sure is the coverage?
#
# The guarantee is an average over calibration sets. Given one set, the coverage follows a Beta
# distribution, whatever the model is. The histogram shows the coverage of 500 other calibration
# sets of 100 rows, drawn from all rows that the forest has not seen, beside that distribution.

# %%
X_pool, y_pool = sample(20_000)
residuals = np.abs(y_pool - forest.predict(X_pool))
coverages = []
for _ in range(500):
    order = rng.permutation(len(residuals))
    calibrating, others = residuals[order[:100]], residuals[order[100:]]
    threshold = np.sort(calibrating)[int(np.ceil(0.9 * 101)) - 1]
    coverages.append(np.mean(others <= threshold))
shares = torch.linspace(0.78, 0.99, 200, dtype=torch.float64)
rank = int(np.ceil(0.9 * 101))
a, b = torch.tensor(float(rank)).double(), torch.tensor(float(101 - rank)).double()
beta = torch.distributions.Beta(a, b).log_prob(shares).exp()
figure, axis = plt.subplots(figsize=(7, 3))
axis.hist(coverages, bins=25, density=True, color="lightgrey", label="500 calibration sets")
axis.plot(shares, beta, color="C0", label=f"Beta({rank}, {101 - rank})")
axis.axvline(0.9, color="black", lw=0.8, ls="--")
axis.set(xlabel="coverage given the calibration set", ylabel="density")
axis.legend(frameon=False)
figure.tight_layout()

# %% [markdown]
# `coverage_band` of a calibrator gives the range of this distribution, here for the 400 calibration
# rows from above.

# %%
low, high = calibrator.coverage_band(0.9, confidence=0.95)
print(f"with 400 calibration rows, the coverage lies in [{low:.3f}, {high:.3f}] for 95 % of sets")

# %% [markdown]
# ## The mistake to avoid
#
# Rows of the fit are no calibration rows: a flexible model is nearer to them than to new rows. The
# library finds this for its own posteriors. For predictions of another library it cannot, as it
# does not see the training rows.

# %%
deep = RandomForestRegressor(200, random_state=0).fit(X, y)
again = ppgp.calibrate(conformal.Absolute(), Prediction.from_points(deep.predict(X)), y)
wrong = again(Prediction.from_points(deep.predict(X_new)), level=0.9)
wrongly_covered = float(metrics.coverage(wrong, y_new))
print(f"calibrated on the rows of the fit: {wrongly_covered:.1%} of new rows are covered, not 90 %")

# %% [markdown]
# ## In one call
#
# `estimators.ConformalRegressor` splits the rows, fits and calibrates. With `method="cv+"` every
# row both fits and calibrates, in different folds; its guarantee is the weaker level 1 - 2 alpha,
# and its coverage in practice is about 1 - alpha. The intervals are arrays, as scikit-learn's are.
# With so few rows to calibrate, a coverage of 0.875 is within the range of a split.

# %%
ways = {
    "split": estimators.ConformalRegressor(forest, level=0.9),
    "cv+": estimators.ConformalRegressor(forest, method="cv+", cv=5, level=0.9),
    "split, a poor model": estimators.ConformalRegressor(LinearRegression(), level=0.9),
}
calls = {}
for name, regressor in ways.items():
    region = regressor.fit(X, y).predict_interval(X_new)
    calls[name] = {
        "coverage": metrics.coverage(region, y_new),
        "mean width": metrics.mean_width(region),
        "guarantee": region.guarantee,
    }
calls = pd.DataFrame(calls).T
for name, row in calls.iterrows():
    print(f"{name}: covers {row['coverage']:.3f}, width {row['mean width']:.2f}")
    print(f"    {row['guarantee']}")

# %% [markdown]
# ## Labels: a network that classifies digits
#
# Handwritten digits of 8 by 8 pixels, with noise added so that the task is hard. The network
# returns logits; `softmax` makes them probabilities, and `Prediction.from_probabilities` holds
# them. A region is then a set of labels, here at the level of 95 %. `LAC` gives the smallest sets
# on average if the probabilities are right; `APS` spreads the coverage more evenly over easy and
# hard images. Here the sets of `APS` are a little smaller, and cover a little less.

# %%
images, digits = load_digits(return_X_y=True)
images = images / 16 + 0.4 * rng.standard_normal(images.shape)
parts = np.split(rng.permutation(len(digits)), [700, 1100])
fit_rows, cal_rows, test_rows = parts
classifier = torch.nn.Sequential(
    torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
).double()
adam = torch.optim.Adam(classifier.parameters(), 0.01, weight_decay=1e-3)
for _ in range(60):
    adam.zero_grad()
    logits = classifier(torch.as_tensor(images[fit_rows]))
    torch.nn.functional.cross_entropy(logits, torch.as_tensor(digits[fit_rows])).backward()
    adam.step()


def by_classifier(rows: np.ndarray) -> Prediction:
    """Return the probabilities of the ten digits."""
    with torch.no_grad():
        return Prediction.from_probabilities(classifier(torch.as_tensor(images[rows])).softmax(1))


sets = {
    name: ppgp.calibrate(score, by_classifier(cal_rows), digits[cal_rows])(
        by_classifier(test_rows), level=0.95
    )
    for name, score in {"LAC": conformal.LAC(), "APS": conformal.APS()}.items()
}
labels = pd.DataFrame(
    {
        name: {
            "coverage": metrics.coverage(region, digits[test_rows]),
            "labels per set": metrics.mean_width(region),
            "share of single labels": float((region.width == 1).double().mean()),
        }
        for name, region in sets.items()
    }
).T
likeliest = by_classifier(test_rows).probabilities.argmax(1).numpy()
accuracy = float(np.mean(likeliest == digits[test_rows]))
print(f"accuracy {accuracy:.3f}")
labels.round(3)

# %% [markdown]
# ## What was shown

# %%
for name in ("forest, points", "network, mean and sd", "quantile regression"):
    assert abs(table.loc[name, "coverage"] - 0.9) < 0.05, name
adaptive = table.loc[["network, mean and sd", "quantile regression"]]
assert (adaptive["mean width"] < table.loc["forest, points", "mean width"]).all()
assert table.loc["forest, points", "coverage, x > 0.8"] < 0.87
assert abs(np.mean(coverages) - 91 / 101) < 0.01
assert low < table.loc["forest, points", "coverage"] < high
assert wrongly_covered < 0.8
assert (labels["coverage"] > 0.92).all()
