# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Deep kernels: a Gaussian process of what a network makes of the inputs
#
# k(g(x), g(x')), with g a network: `Deep(network, kernel)` is a kernel like any other, and goes into every model. The network learns
# in which terms rows are alike, the Gaussian process how sure to be (Wilson, Hu, Salakhutdinov & Xing 2016). It has thousands of
# weights, against which the marginal likelihood does not guard; this notebook shows what does.

# %%
# %matplotlib inline
import warnings

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

warnings.filterwarnings("ignore", category=ppgp.errors.PpgpWarning)
train, calibration, test = ppgp.load("diabetes").split(0.5, 0.25, 0.25, seed=0)


def nlpd(posterior: ppgp.Posterior, rows: ppgp.Dataset = test) -> torch.Tensor:
    """Minus the log predictive density of each row."""
    return -posterior.predict(rows.X).log_prob(rows.y)


# %% [markdown]
# ## Beside the plain kernel and the bare network
#
# * the Gaussian process with one lengthscale a column;
# * a network trained by least squares, `networks.pretrained`, and a linear model of its features: the network by itself;
# * a deep kernel, network and hyperparameters moved together by Adam, units dropped out on the way, each group at its own rate;
# * the same, started from the network trained beforehand.

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
# On 221 rows that are nearly linear there is little for a network to find, and with 110 test rows the four are hard to tell apart.
# Pre-training is not free either: here the rows have been fitted once before the kernel sees them. A deep kernel is for many
# rows, and for inputs such as pixels, whose columns one by one say nothing.
#
# ## The marginal likelihood does not guard against thousands of weights
#
# L-BFGS climbs far, to a noise of next to nothing: the training rows become ever more probable, and the rows held out ever less
# (Ober, Rasmussen & van der Wilk 2021). Adam, which drops units out, goes the same way, slowly: it is stopped early, at 40 steps
# above, and the number should be chosen on rows held out.

# %%
sharp = models.GP(kernels.Deep(networks.MLP((64, 64), 16, dropout=0.0), kernels.RBF()))
steps = (5, 10, 20, 40, 80, 160)
climbs = {
    "L-BFGS": {k: ppgp.fit(sharp, train, inference.MAP(steps=k), progress=False) for k in steps},
    "Adam with dropout": {
        k: ppgp.fit(
            deep,
            train,
            inference.MAP("adam", steps=k, learning_rate=adam.learning_rate),
            progress=False,
        )
        for k in steps
    },
}
figure = Figure(figsize=(9, 3.2), layout="constrained")
left, right = figure.subplots(1, 2)
for name, path in climbs.items():
    left.plot(
        steps, [p.stats["log_likelihood"] / train.n for p in path.values()], "o-", ms=4, label=name
    )
    right.plot(steps, [float(nlpd(p).mean()) for p in path.values()], "o-", ms=4, label=name)
left.set(
    xscale="log",
    xlabel="steps",
    ylabel="log marginal likelihood a row",
    title="training rows: higher is better",
)
right.set(
    xscale="log",
    yscale="log",
    xlabel="steps",
    ylabel="NLPD",
    title="rows held out: lower is better",
)
right.axhline(
    float(nlpd(fits["plain GP, ARD"]).mean()), color="grey", ls="--", lw=1, label="plain GP"
)
for axis in (left, right):
    axis.spines[["top", "right"]].set_visible(False)
right.legend(frameon=False)
figure

# %%
overfit = climbs["L-BFGS"][steps[-1]]
worse = nlpd(overfit) - nlpd(
    fits["deep kernel"]
)  # row by row, so that what is hard for both cancels
error = float(worse.std()) / test.n**0.5
print(
    f"noise sd (of the standardised y): L-BFGS {float(overfit.draws['noise'].mean()) ** 0.5:.3f}, ",
    end="",
)
print(f"Adam {float(fits['deep kernel'].draws['noise'].mean()) ** 0.5:.3f}")
print(f"L-BFGS loses {float(worse.mean()):.2f} nats a row held out, standard error {error:.2f}")

# %% [markdown]
# ## A network can lose its inputs
#
# With features that are the same in all rows the kernel sees nothing, and no gradient leads away from there. A fit that starts so
# is refused; every fit looks again at its end, and one that has lost its inputs comes back with a warning.

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
print(refused)
looked = {
    name: fits[name].model.check_fit(fits[name].theta, fits[name].data) for name in fits
}  # what a fit asks of its network at the end
print(looked)

# %% [markdown]
# ## Many rows: stochastic variational deep kernels
#
# The same kernel in `SVGP` takes mini-batches and any likelihood (Wilson, Hu, Salakhutdinov & Xing 2016b). Here are handwritten
# digits, ten latent functions on the features of one network. The inducing inputs are images too, and move.

# %%
digits = ppgp.load("digits")
seen, held_out = digits.split(0.7, seed=0)
by_batches = inference.SVI(
    batch_size=100, steps=300, learning_rate={"kernel.network": 0.005, "": 0.02}
)
svdkl = models.SVGP(
    kernels.Deep(networks.MLP((64,), 16), kernels.RBF()), 50, likelihoods.Categorical()
)
classes = {
    "SVDKL": ppgp.fit(svdkl, seen, by_batches, progress=False),
    "softmax regression": ppgp.fit(
        models.SoftmaxRegression(), seen, inference.MAP(), progress=False
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

# %% [markdown]
# ## A prior on the weights
#
# With `prior=` the weights are sites like any other, and inference is over them too. Mean-field SVI gives each a mean and a spread;
# the prediction is a mixture over networks. Beside it the same network with L-BFGS on its weights: even some 50 of them suffice to
# overfit, and the mixture does so less, with neither dropout nor a step to stop at.

# %%
small = networks.MLP((4,), 2, activation="tanh", dropout=0.0)
bayes = models.GP(kernels.Deep(small, kernels.RBF(), prior=priors.Normal(0.0, 0.5)))
fits["small network, prior"] = ppgp.fit(
    bayes, train, inference.SVI("normal", steps=1000, draws=100), progress=False
)
fits["small network, L-BFGS"] = ppgp.fit(
    models.GP(kernels.Deep(small, kernels.RBF())), train, inference.MAP(), progress=False
)
fits["deep kernel, L-BFGS"] = overfit
weights = fits["small network, prior"].draws["kernel.network.0.weight"]
print(f"{weights[0, 0].numel()} weights in the first layer, {weights.shape[1]} draws of each")
gain = nlpd(fits["small network, L-BFGS"]) - nlpd(fits["small network, prior"])
print(
    f"the prior gains {float(gain.mean()):.2f} nats a row, standard error {float(gain.std()) / test.n**0.5:.2f}"
)
pd.DataFrame({n: {"NLPD": float(nlpd(p).mean())} for n, p in fits.items()}).T.round(3)

# %% [markdown]
# ## Bands before and after calibration
#
# Whatever the fit has done, intervals calibrated on rows that it has not seen cover: an overfit costs width, not coverage.

# %%
level = 0.9
regions, rows = {}, {}
for name, posterior in fits.items():
    law = posterior.predict(test.X)
    calibrator = ppgp.calibrate(
        conformal.Quantile(), posterior.predict(calibration.X), calibration.y
    )
    own, regions[name] = law.interval(level), calibrator(law, level=level)
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
law = overfit.predict(test.X)
plots.intervals(law, test.y, regions["deep kernel, L-BFGS"], law.interval(level))

# %%
assert overfit.stats["log_likelihood"] > fits["deep kernel"].stats["log_likelihood"]
assert float(worse.mean()) > 4 * error
assert "same features in all rows" in refused
assert not any(looked.values())
assert metrics.accuracy(labels["SVDKL"], held_out.y) > 0.93
assert rows["deep kernel, L-BFGS"]["coverage"] < low
assert all(low <= row["calibrated coverage"] <= high for row in rows.values())
assert float(gain.mean()) > 0
