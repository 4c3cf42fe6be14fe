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
# kernel does. A deep kernel is suited to many rows, and to inputs such as pixels, of which single
# columns carry no information.
#
# ## The marginal likelihood does not prevent overfitting
#
# L-BFGS reaches a noise close to zero: the density of the training rows keeps increasing, and that
# of held-out rows keeps decreasing (Ober, Rasmussen & van der Wilk 2021). Adam with dropout goes
# the same way, slowly. It is stopped early, at 40 steps above; the number of steps should be
# chosen on held-out rows.

# %%
sharp = models.GP(kernels.Deep(networks.MLP((64, 64), 16, dropout=0.0), kernels.RBF()))
steps = (5, 10, 20, 40, 80, 160)
paths = {
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
for name, path in paths.items():
    left.plot(
        steps, [p.stats["log_likelihood"] / train.n for p in path.values()], "o-", ms=4, label=name
    )
    right.plot(steps, [float(nlpd(p).mean()) for p in path.values()], "o-", ms=4, label=name)
left.set(
    xscale="log",
    xlabel="steps",
    ylabel="log marginal likelihood per row",
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
overfit = paths["L-BFGS"][steps[-1]]
# differences per row, so that rows that are hard for both cancel
worse = nlpd(overfit) - nlpd(fits["deep kernel"])
error = float(worse.std()) / test.n**0.5
print(
    f"noise sd (of the standardised y): L-BFGS {float(overfit.draws['noise'].mean()) ** 0.5:.3f}, ",
    end="",
)
print(f"Adam {float(fits['deep kernel'].draws['noise'].mean()) ** 0.5:.3f}")
print(f"L-BFGS loses {float(worse.mean()):.2f} nats per held-out row, standard error {error:.2f}")

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
print(checked)

# %% [markdown]
# ## Many rows: stochastic variational deep kernels
#
# The same kernel in `SVGP` is fitted in mini-batches and with any likelihood (Wilson, Hu,
# Salakhutdinov & Xing 2016b). The data here are handwritten digits, with ten latent functions on
# the features of one network. The inducing inputs are images too, and are optimised.

# %%
digits = ppgp.load("digits")
fitted_rows, held_out = digits.split(0.7, seed=0)
by_batches = inference.SVI(
    batch_size=100, steps=300, learning_rate={"kernel.network": 0.005, "": 0.02}
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

# %% [markdown]
# ## A prior on the weights
#
# With `prior=` the weights are sites like any other, and inference includes them. Mean-field SVI
# gives each weight a mean and a standard deviation, and the prediction is a mixture over networks.
# The same network with weights from L-BFGS overfits even with about 50 weights. The mixture
# overfits less, with neither dropout nor early stopping. Both are fitted to 100 rows.

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
predictive = overfit.predict(test.X)
plots.intervals(predictive, test.y, regions["deep kernel, L-BFGS"], predictive.interval(level))

# %%
assert overfit.stats["log_likelihood"] > fits["deep kernel"].stats["log_likelihood"]
assert float(worse.mean()) > 4 * error
assert "same features in all rows" in refused
assert not any(checked.values())
assert metrics.accuracy(labels["SVDKL"], held_out.y) > 0.93
assert rows["deep kernel, L-BFGS"]["coverage"] < low
assert all(low <= row["calibrated coverage"] <= high for row in rows.values())
assert float(gain.mean()) > 0
