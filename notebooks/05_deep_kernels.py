# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Deep kernels: a Gaussian process of the features of a network
#
# A deep kernel is k(g(x), g(x')) with a network g. `Deep(network, kernel)` is a kernel like any
# other, and every model accepts it. The network learns in which features rows are similar, and the
# Gaussian process quantifies the uncertainty (Wilson, Hu, Salakhutdinov & Xing 2016). The network
# has thousands of weights, and the marginal likelihood does not prevent overfitting them; this
# notebook shows what does.

# %%
# %matplotlib inline
import textwrap
import warnings
from dataclasses import replace

import pandas as pd
import torch
from matplotlib.figure import Figure

import ppgp
from ppgp import (
    conformal,
    inference,
    kernels,
    likelihoods,
    metrics,
    models,
    networks,
    plots,
    priors,
)

train, calibration, test = ppgp.load("diabetes").split(0.5, 0.25, 0.25, seed=0)


def nlpd(posterior: ppgp.Posterior, rows: ppgp.Dataset = test) -> torch.Tensor:
    """Minus the log predictive density of each row."""
    return -posterior.predict(rows.X).log_prob(rows.y)


# %% [markdown]
# ## Comparison with the plain kernel and the network alone
#
# * the Gaussian process with one lengthscale per column;
# * a network trained by least squares, `networks.pretrained`, and a linear model of its features:
#   the network alone;
# * a deep kernel, whose network and hyperparameters are fitted together by Adam, with dropout and
#   one learning rate per group;
# * the same, started from the pre-trained network.
#
# NLPD is the negative log predictive density per row, in nats, with y in its own units.

# %%
mlp = networks.MLP((64, 64), 16, dropout=0.1)
network = networks.pretrained(mlp, train, epochs=15)
adam = inference.MAP(
    "adam", steps=40, learning_rate={"kernel.network": 0.003, "": 0.05}, schedule="cosine"
)
scaled, scaler = train.standardised()


def of_features(rows: ppgp.Dataset) -> ppgp.Dataset:
    return ppgp.Dataset(network(scaler.inputs(rows.X)), rows.y)


bare = ppgp.fit(models.LinearRegression(), of_features(train), inference.Exact(), progress=False)
deep = models.GP(kernels.Deep(mlp, kernels.RBF()))
fits = {
    "plain GP, ARD": ppgp.fit(
        models.GP(kernels.ARD(kernels.RBF())), train, inference.MAP(), progress=False
    ),
    "deep kernel": ppgp.fit(deep, train, adam, progress=False),
    "deep kernel, pre-trained": ppgp.fit(
        models.GP(kernels.Deep(network, kernels.RBF())), train, adam, progress=False
    ),
}
predictions = {"bare network": bare.predict(of_features(test).X)} | {
    name: fit.predict(test.X) for name, fit in fits.items()
}
pd.DataFrame(
    {
        n: {"RMSE": metrics.rmse(p, test.y), "NLPD": metrics.nll(p, test.y)}
        for n, p in predictions.items()
    }
).T.round(3)

# %% [markdown]
# With 221 rows that are nearly linear a network can gain little, and with 110 test rows the four
# results are hard to distinguish. Pre-training has a cost, too: it fits the rows once before the
# kernel does.
#
# ## The marginal likelihood does not prevent overfitting
#
# L-BFGS reaches a noise close to zero: the density of the training rows keeps increasing, and that
# of held-out rows keeps decreasing (Ober, Rasmussen & van der Wilk 2021). Adam with dropout goes
# the same way, slowly: its best number of steps is 20 here, at 40, as above, it predicts as well as
# the plain GP, and at 160 it is a nat worse per row.
#
# The fits by L-BFGS warn of it, in the output of the cell. Their other warning, that a search of so
# few steps has not converged, is filtered by its text, since the steps are few on purpose.

# %%
sharp = models.GP(kernels.Deep(networks.MLP((64, 64), 16, dropout=0.0), kernels.RBF()))
steps = (5, 10, 20, 40, 80, 160)
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="the search ended after")
    by_lbfgs = {k: ppgp.fit(sharp, train, inference.MAP(steps=k), progress=False) for k in steps}
by_adam = {k: ppgp.fit(deep, train, replace(adam, steps=k), progress=False) for k in steps}
paths = {"L-BFGS": by_lbfgs, "Adam with dropout": by_adam}
best = float(nlpd(fits["plain GP, ARD"]).mean())
figure = Figure(figsize=(10, 3.6), layout="constrained")
left, right = figure.subplots(1, 2)
for (name, path), marker in zip(paths.items(), "os"):
    density = [p.stats["log_likelihood"] / train.n for p in path.values()]
    left.plot(steps, density, f"{marker}-", ms=4, label=name)
    excess = [float(nlpd(p).mean()) - best for p in path.values()]
    right.plot(steps, excess, f"{marker}-", ms=4, label=name)
left.set(
    ylabel="log marginal likelihood per row\n(nats, y standardised)",
    title="Training rows: higher is better",
)
right.set(
    ylabel="NLPD minus that of the plain GP\n(nats per row)",
    title="Test rows: lower is better",
)
right.axhline(0.0, color="grey", ls="--", lw=1, label="plain GP")
right.set_yscale("symlog", linthresh=0.1)
right.set_ylim(-0.15, 3000)
right.set_yticks([-0.1, 0, 0.1, 1, 10, 100, 1000], ["-0.1", "0", "0.1", "1", "10", "100", "1000"])
for axis in (left, right):
    axis.set_xscale("log")
    axis.set_xticks(steps, [str(k) for k in steps])
    axis.minorticks_off()
    axis.set(xlabel="steps")
    axis.spines[["top", "right"]].set_visible(False)
figure.legend(
    *right.get_legend_handles_labels(), frameon=False, ncols=3, loc="outside lower center"
)
figure

# %% [markdown]
# The right axis is linear between -0.1 and 0.1, and logarithmic outside.

# %%
overfit = paths["L-BFGS"][steps[-1]]
# differences per row, so that rows that are hard for both cancel
worse = nlpd(overfit) - nlpd(fits["deep kernel"])
error = float(worse.std()) / test.n**0.5
print(
    f"noise sd (of the standardised y): L-BFGS {float(overfit.draws['noise'].mean()) ** 0.5:.3f}, ",
    end="",
)
print(f"Adam {float(fits['deep kernel'].draws['noise'].mean()) ** 0.5:.3f}")
print(f"L-BFGS loses {float(worse.mean()):.2f} nats per test row, standard error {error:.2f}")

# %% [markdown]
# ## The number of steps, chosen on held-out rows
#
# The test rows must not choose the number of steps. With `hold_out=0.1` the fit sets a tenth of the
# training rows aside, ends when their predictive density has stopped rising, and returns the point
# where it was highest. For L-BFGS that is the point after 2 steps, and the network that loses more
# than a thousand nats per row without `hold_out` predicts nearly as well as the plain GP. For Adam
# with dropout it is the point after 15 steps.

# %%
stopped = {
    "L-BFGS": ppgp.fit(sharp, train, inference.MAP(hold_out=0.1), progress=False),
    "Adam with dropout": ppgp.fit(
        deep, train, replace(adam, steps=160, hold_out=0.1), progress=False
    ),
}
fits["deep kernel, hold_out"] = stopped["Adam with dropout"]
pd.DataFrame(
    {
        name: {
            "steps": fit.stats["held_out_step"],
            "NLPD": float(nlpd(fit).mean()),
            "NLPD without hold_out, 160 steps": float(nlpd(paths[name][160]).mean()),
        }
        for name, fit in stopped.items()
    }
).T.round(3)

# %% [markdown]
# ## A network can lose its inputs
#
# If the features are the same in all rows, the kernel receives no information, and the gradient is
# zero. A fit that starts there is refused. Every fit checks its network again at the end, and
# warns if the features have become constant. An empty list below means that there is no such
# warning.

# %%
dead = mlp.build(train.d)
with torch.no_grad():
    for parameter in dead.parameters():
        parameter.zero_()
refused = ""
try:
    ppgp.fit(models.GP(kernels.Deep(dead, kernels.RBF())), train, inference.MAP(), progress=False)
except ppgp.errors.NumericalError as sentence:
    refused = str(sentence)
print(textwrap.fill(refused, 100))
# the check of the network that every fit makes at its end
checked = {name: fits[name].model.check_fit(fits[name].theta, fits[name].data) for name in fits}
for name, sentences in checked.items():
    print(f"{name}: {sentences}")

# %% [markdown]
# ## Many rows: stochastic variational deep kernels
#
# The same kernel in `SVGP` is fitted in mini-batches and with any likelihood (Wilson, Hu,
# Salakhutdinov & Xing 2016b). The data here are handwritten digits, with ten latent functions on
# the features of one network. The inducing inputs are images too, and are optimised. Both fits warn
# of three pixels that are the same in all training images. SVI warns too that the ELBO still rises
# after 300 steps; it reaches its plateau after 950, in three times the time, with an accuracy of
# 0.968 and a log loss of 0.118.

# %%
digits = ppgp.load("digits")
fitted_rows, held_out = digits.split(0.7, seed=0)
by_batches = inference.SVI(
    batch_size=100, steps=300, patience=100, learning_rate={"kernel.network": 0.005, "": 0.02}
)
svdkl = models.SVGP(
    kernels.Deep(networks.MLP((64,), 16), kernels.RBF()), 50, likelihoods.Categorical()
)
classes = {
    "SVDKL": ppgp.fit(svdkl, fitted_rows, by_batches, progress=False),
    "softmax regression": ppgp.fit(
        models.SoftmaxRegression(), fitted_rows, inference.MAP(), progress=False
    ),
}
labels = {name: fit.predict(held_out.X) for name, fit in classes.items()}
pd.DataFrame(
    {
        name: {
            "accuracy": metrics.accuracy(p, held_out.y),
            "log loss": metrics.nll(p, held_out.y),
            "seconds": classes[name].seconds,
        }
        for name, p in labels.items()
    }
).T.round(3)

# %%
saved = -labels["SVDKL"].log_prob(held_out.y) + labels["softmax regression"].log_prob(held_out.y)
error_of_saved = float(saved.std()) / held_out.n**0.5
print(f"log loss, SVDKL - softmax: {float(saved.mean()):.3f}, standard error {error_of_saved:.3f}")

# %% [markdown]
# On these digits the deep kernel gains little: accuracy and log loss differ by less than their
# standard errors on 539 test images (about 0.008 for the accuracy), and softmax regression takes a
# small fraction of the time. The images are small, their classes nearly separable by a linear
# function, and 1,258 rows are few. A deep kernel can pay with many more rows, and with inputs of
# which single columns carry no information, such as the pixels of larger images; compare it with a
# linear model first.
#
# ## A prior on the weights
#
# With `prior=` the weights are sites like any other, and inference includes them. Mean-field SVI
# gives each weight a mean and a standard deviation, and the prediction is a mixture over networks.
# The same network with weights from L-BFGS overfits even with about 50 weights. The mixture
# overfits less, with neither dropout nor early stopping. Both are fitted to 100 rows. L-BFGS warns
# that it has not converged: the density still rises slowly after 1,000 steps, but more steps do not
# help, as the optimum itself overfits.

# %%
small = networks.MLP((4,), 2, activation="tanh", dropout=0.0)
few = train.rows(slice(0, 100))
bayes = models.GP(kernels.Deep(small, kernels.RBF(), prior=priors.Normal(0.0, 0.5)))
fits["small network, prior"] = ppgp.fit(
    bayes, few, inference.SVI("normal", steps=1000, draws=100), progress=False
)
fits["small network, L-BFGS"] = ppgp.fit(
    models.GP(kernels.Deep(small, kernels.RBF())), few, inference.MAP(), progress=False
)
fits["deep kernel, L-BFGS"] = overfit
weights = fits["small network, prior"].draws["kernel.network.0.weight"]
print(f"{weights[0, 0].numel()} weights in the first layer, {weights.shape[1]} draws of each")
gain = nlpd(fits["small network, L-BFGS"]) - nlpd(fits["small network, prior"])
error_of_gain = float(gain.std()) / test.n**0.5
print(f"the prior gains {float(gain.mean()):.2f} nats per row, standard error {error_of_gain:.2f}")
pd.DataFrame({n: {"NLPD": float(nlpd(p).mean())} for n, p in fits.items()}).T.round(3)

# %% [markdown]
# ## Bands before and after calibration
#
# Intervals calibrated on rows that are not training rows cover, whatever the fit: overfitting
# costs width, not coverage.

# %%
level = 0.9
regions, rows = {}, {}
for name, posterior in fits.items():
    predictive = posterior.predict(test.X)
    calibrator = ppgp.calibrate(
        conformal.Quantile(), posterior.predict(calibration.X), calibration.y
    )
    own, regions[name] = predictive.interval(level), calibrator(predictive, level=level)
    rows[name] = {
        "coverage": metrics.coverage(own, test.y),
        "width": metrics.mean_width(own),
        "calibrated coverage": metrics.coverage(regions[name], test.y),
        "calibrated width": metrics.mean_width(regions[name]),
    }
low, high = calibrator.coverage_band(level, 0.999, test.n)
print(
    f"calibrated coverage of {test.n} test rows lies in {low:.3f} .. {high:.3f}, 999 times in 1,000"
)
table = pd.DataFrame(rows).T.round(3)
table

# %%
predictive, region = overfit.predict(test.X), regions["deep kernel, L-BFGS"]
own = predictive.interval(level)
score = pd.Series(test.y.numpy(), name="score")
figure = plots.intervals(predictive, score, region)
axis = figure.axes[0]
order = predictive.mean.argsort()
middle, half = (own.lower + own.upper)[order] / 2, own.width[order] / 2
whiskers = axis.errorbar(
    range(test.n), middle, half, fmt="none", ecolor="black", elinewidth=1, capsize=2, zorder=5
)
whiskers.set_label(f"model's own 90%: covers {metrics.coverage(own, test.y):.0%}")
axis.set_ylabel("disease progression after a year (score)")
axis.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, fontsize=8)
print(
    f"own intervals are {float(own.width.min()):.1f} to {float(own.width.max()):.1f} wide; "
    f"calibration moves both ends of each by {float((own.lower - region.lower).mean()):.0f}"
)
figure

# %% [markdown]
# The black whiskers are the intervals of the overfitted network itself, 4 to 14 units wide. The
# calibrated intervals, in blue, are those moved outwards by one number, the same for all rows and
# at both ends, which is chosen on the calibration rows. The number knows nothing of the sign of y:
# the lower ends reach below 0, though no score does. Such intervals cover, but they are about as
# wide for easy rows as for hard ones. Calibration does not replace a fit that does not overfit.

# %%
assert overfit.stats["log_likelihood"] > fits["deep kernel"].stats["log_likelihood"]
assert float(worse.mean()) > 4 * error
assert all(float(nlpd(fit).mean()) < best + 0.25 for fit in stopped.values())
assert "same features in all rows" in refused
assert not any(checked.values())
assert metrics.accuracy(labels["SVDKL"], held_out.y) > 0.93
assert abs(float(saved.mean())) < 2 * error_of_saved
assert rows["deep kernel, L-BFGS"]["coverage"] < low
assert all(low <= row["calibrated coverage"] <= high for row in rows.values())
assert float(gain.mean()) > 0
