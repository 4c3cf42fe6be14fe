# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Sparse Gaussian processes
#
# An exact GP costs n^3. Its function is often so smooth that m of its values contain nearly all
# the information of the n rows: m inducing variables, at inducing inputs that need not be rows.
# `SGPR` has the optimal q of these variables in closed form (Titsias 2009). `SVGP` (Hensman et al.
# 2013, 2015) moves q step by step, on mini-batches and for any likelihood. Both give a bound on
# the evidence, which shows whether m is large enough.

# %%
# %matplotlib inline

import matplotlib.pyplot as plt
import pandas as pd
import torch

import ppgp
from ppgp import inference, kernels, likelihoods, metrics, models

generator = torch.Generator().manual_seed(0)
# more rows to the right
x = 6 * torch.rand(400, 1, generator=generator, dtype=torch.float64).sqrt()
y = (
    torch.sin(3 * x[:, 0])
    + 0.4 * torch.sin(11 * x[:, 0])
    + 0.3 * torch.randn(400, generator=generator, dtype=torch.float64)
)
train, test = ppgp.Dataset(x[:300], y[:300]), ppgp.Dataset(x[300:], y[300:])

# %% [markdown]
# ## Two bounds on the evidence
#
# At the hyperparameters of the exact fit, SGPR bounds log p(y) from below and from above. The gap
# between them bounds the error of the evidence without the exact GP. It closes as m grows, the
# upper bound later than the lower.
#
# The bounds depend on where the inducing inputs are. They are selected in one of four ways:
#
# * `kmeans`, the default: the centres of clusters of the rows;
# * `random`: rows drawn at random;
# * `conditional_variance`: one row after another, each where the variance of f given those before
#   it is largest;
# * `bound`: one row after another, each with the largest gain of the lower bound.

# %%
exact = ppgp.fit(models.GP(), train, inference.MAP(starts=4), progress=False)
theta = {name: value[0, 0] for name, value in exact.draws.items()}
hyper = {name.removeprefix("kernel."): float(value) for name, value in theta.items()}
kernel, noise = kernels.RBF(hyper["variance"], hyper["lengthscale"]), hyper["noise"]
data = exact.data  # the standardised training rows
C = kernel({}, data.X) + noise * torch.eye(data.n, dtype=torch.float64)
evidence = float(
    torch.distributions.MultivariateNormal(torch.zeros_like(data.y), C).log_prob(data.y)
)
sizes = (3, 6, 9, 12, 15, 20, 25, 30, 40, 50, 60)
selections = ("kmeans", "random", "conditional_variance", "bound")
bounds = {}
for selection in selections:
    for m in sizes:
        sgpr = models.SGPR(kernel, m, selection, noise=noise).prepare(data)
        bounds[selection, m] = [float(bound) for bound in sgpr.bounds({}, data)]
table = pd.DataFrame(bounds, index=["lower", "upper"]).T
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6))
axes[0].plot(sizes, table.loc["conditional_variance", "upper"], "v-", label="upper bound")
axes[0].plot(sizes, table.loc["conditional_variance", "lower"], "^-", label="lower bound")
axes[0].axhline(evidence, color="black", lw=0.8, label="exact log evidence")
axes[0].set(
    xlabel="number of inducing inputs, m",
    ylabel="log evidence (nats)",
    ylim=(evidence - 400, evidence + 200),
    title="Bounds, selection by conditional_variance",
)
axes[0].legend()
for selection, marker in zip(selections, "osD^"):
    gap = evidence - table.loc[selection, "lower"]
    axes[1].plot(sizes, gap, f"{marker}-", ms=5, label=selection)
axes[1].set(
    xlabel="number of inducing inputs, m",
    ylabel="exact - lower bound (nats)",
    yscale="log",
    title="Gap by the selection of the inputs",
)
axes[1].legend(loc="lower left")
plt.show()
table.loc["conditional_variance"].round(2).T

# %% [markdown]
# The left panel and the table show `conditional_variance`. In the right panel three selections
# come within 0.01 nats of the evidence. `random` stays 54 nats below it even with 60 inputs: most
# of its rows lie where there are many, and few of them on the left, where rows are rare. With 20
# inputs `kmeans` and `bound` are better than `conditional_variance`, with 60 worse.

# %%
table["lower"].unstack()[[20, 40, 60]].round(2)

# %% [markdown]
# ## Inducing inputs, and the effect of too few
#
# Six inducing inputs cannot follow the fast wave, and the fit explains it by the noise: the
# function is too smooth, the noise variance is three times as large, and the kernel has a smaller
# variance and a longer lengthscale. Where there are many rows, the band of f is wider than that of
# the exact GP. Left of 1, where there are few, it is narrower: the model is overconfident where it
# knows least. Its band misses the exact mean at about half of all places. A sparse fit with too few
# inducing inputs is therefore not a cautious one.
#
# With thirty the fit and the exact GP coincide where there are many rows; left of 1 their means
# differ by much less than the band. Bands and dotted lines hold 95 % of f.

# %%
grid = torch.linspace(-0.2, 6.2, 300, dtype=torch.float64)[:, None]
sparse = {
    m: ppgp.fit(models.SGPR(inducing=m), train, inference.MAP(), progress=False) for m in (6, 30)
}
whole = exact.latent(grid)
figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for axis, (m, posterior) in zip(axes, sparse.items()):
    f = posterior.latent(grid)
    axis.plot(train.X[:, 0], train.y, "o", color="0.55", ms=2.5, mew=0, label="training rows")
    axis.fill_between(
        grid[:, 0], f.mean - 1.96 * f.std, f.mean + 1.96 * f.std, alpha=0.3, label="SGPR, band"
    )
    axis.plot(grid[:, 0], f.mean, label="SGPR, mean")
    axis.plot(grid[:, 0], whole.mean, "k--", lw=0.8, label="exact, mean")
    for sign in (-1, 1):
        label = "exact, band" if sign == 1 else None
        axis.plot(grid[:, 0], whole.mean + sign * 1.96 * whole.std, "k:", lw=0.9, label=label)
    Z = posterior.model.Z[:, 0] * posterior.scaler.x_sd + posterior.scaler.x_mean
    axis.plot(Z, torch.full_like(Z, -2.3), "k|", ms=8, label="inducing inputs")
    axis.set(xlabel="x", title=f"{m} inducing inputs")
axes[0].set(ylabel="y")
figure.legend(*axes[0].get_legend_handles_labels(), ncols=6, fontsize=8, loc="outside lower center")
plt.show()
left = grid[:, 0] < 1
bands = pd.DataFrame(
    {
        name: {
            "half band, x < 1": float(1.96 * f.std[left].mean()),
            "half band, x >= 1": float(1.96 * f.std[~left].mean()),
            "misses the exact mean": float(
                ((f.mean - whole.mean).abs() > 1.96 * f.std).double().mean()
            ),
            "kernel variance": float(p.draws["kernel.variance"]),
            "lengthscale": float(p.draws["kernel.lengthscale"]),
        }
        for name, p, f in (
            ("exact", exact, whole),
            ("SGPR, m = 30", sparse[30], sparse[30].latent(grid)),
            ("SGPR, m = 6", sparse[6], sparse[6].latent(grid)),
        )
    }
).T
bands.round(2)

# %% [markdown]
# The scores are those of 100 held-out rows: root mean squared error, and negative log predictive
# density (nll) per row. The noise is a variance on the scale of the standardised y. The variance
# of y is 0.71 and that of the simulated noise 0.3^2, so that 0.127 is the right value.

# %%
scores = pd.DataFrame(
    {
        name: {
            "rmse": metrics.rmse(p.predict(test.X), test.y),
            "nll": metrics.nll(p.predict(test.X), test.y),
            "noise variance": float(p.draws["noise"]),
        }
        for name, p in {
            "exact": exact,
            "SGPR, m = 30": sparse[30],
            "SGPR, m = 6": sparse[6],
        }.items()
    }
).T
scores.round(3)

# %% [markdown]
# ## Natural gradients
#
# The parameters of SVGP are those of q(v) = N(loc, W W'). For Gaussian noise the bound is
# quadratic in the natural parameters: one natural-gradient step on all rows reaches the optimum of
# SGPR, while Adam on loc and W needs hundreds of steps to come close (Salimbeni et al. 2018). The
# 20 inducing inputs here are those of `kmeans`, so that the bound is that of this selection at
# m = 20.

# %%
ready = models.SVGP(kernel, 20, likelihoods.Gaussian(noise), learn=False).prepare(data)
collapsed = float(models.SGPR(kernel, noise=noise, Z=ready.Z).bounds({}, data)[0])
q = {
    "v_loc": torch.zeros(20, dtype=torch.float64),
    "v_scale_tril": torch.eye(20, dtype=torch.float64),
}
step, before = ready.natural(q, data.X, data.y, total=data.n, rate=1.0)
after = float(ready.elbo({**q, **step}, data.X, data.y, total=data.n))
loc, W = q["v_loc"].clone().requires_grad_(True), q["v_scale_tril"].clone().requires_grad_(True)
adam, elbos = torch.optim.Adam([loc, W], lr=0.05), []
for _ in range(400):
    adam.zero_grad()
    loss = -ready.elbo({"v_loc": loc, "v_scale_tril": W.tril()}, data.X, data.y, total=data.n)
    loss.backward()
    adam.step()
    elbos.append(-loss.item())
print(f"bound of SGPR {collapsed:.6f}; before {float(before):.1f}")
print(f"after one natural step {after:.6f}; after 400 steps of Adam {elbos[-1]:.4f}")
figure, axis = plt.subplots(figsize=(6, 3.6))
gaps = [collapsed - value for value in elbos]
axis.plot(range(1, 401), gaps, marker="o", markevery=25, ms=4, label="Adam on loc and W")
# a difference of rounding is drawn at 1e-9
lowest = max(collapsed - after, 1e-9)
axis.plot(1, lowest, "k*", ms=10, clip_on=False, label="one natural step (below 1e-9)")
axis.set(
    title="Distance of q from its optimum",
    yscale="log",
    xlabel="step",
    ylabel="bound of SGPR - ELBO (nats)",
    ylim=(3e-10, None),
)
axis.legend()
plt.show()

# %% [markdown]
# ## Mini-batches
#
# A step on 50 of 300 rows uses an unbiased estimate of the bound. The noise of the batches
# averages out as the rate decreases. The result is close to that of the full batch, and the cost
# of a step does not depend on the number of rows.

# %%
recipe = models.SVGP(inducing=30)
runs = {
    "all rows": ppgp.fit(recipe, train, inference.SVI(steps=600, patience=200), progress=False),
    "batches of 50": ppgp.fit(
        recipe, train, inference.SVI(steps=1200, patience=400, batch_size=50), progress=False
    ),
}
for name, run in runs.items():
    scores.loc[f"SVGP, {name}"] = {
        "rmse": metrics.rmse(run.predict(test.X), test.y),
        "nll": metrics.nll(run.predict(test.X), test.y),
        "noise variance": float(run.draws["noise"].mean()),
    }
scores.round(3)

# %% [markdown]
# ## A likelihood that is not Gaussian
#
# The task is to classify biopsies as malignant or benign (scikit-learn's breast cancer data, 569
# biopsies, 30 measurements): y ~ Bernoulli(sigmoid(f)). The expectation in the bound is a
# one-dimensional integral per row, computed by Gauss-Hermite quadrature. With the default learning
# rate of SVI, 0.02, the ELBO still rises after 2,500 steps, and `fit` warns of it. With 0.1 it
# reaches its plateau earlier, and the fit ends before its 800 steps.

# %%
biopsies, held_out = ppgp.load("breast_cancer").split(0.7, seed=0)
fits = {
    "SVGP, Bernoulli": ppgp.fit(
        models.SVGP(kernels.RBF(), 40, likelihoods.Bernoulli(), learn=False),
        biopsies,
        inference.SVI(steps=800, patience=100, learning_rate=0.1),
        progress=False,
    ),
    "logistic regression": ppgp.fit(
        models.LogisticRegression(), biopsies, inference.Laplace(), progress=False
    ),
}
taken = len(fits["SVGP, Bernoulli"].stats["objective_history"])
print(f"SVGP: the ELBO stopped rising, and the fit ended after {taken} steps")
classes = pd.DataFrame(
    {
        name: {
            "accuracy": metrics.accuracy(p.predict(held_out.X), held_out.y),
            "nll": metrics.nll(p.predict(held_out.X), held_out.y),
            "brier": metrics.brier(p.predict(held_out.X), held_out.y),
        }
        for name, p in fits.items()
    }
).T
classes.round(3)

# %% [markdown]
# ## What was shown

# %%
assert (table["lower"] < evidence + 1e-6).all()
assert (table["upper"] > evidence - 1e-6).all()
greedy = table.loc["conditional_variance"]
assert greedy["lower"].is_monotonic_increasing
assert float((greedy["upper"] - greedy["lower"]).iloc[-1]) < 0.5
assert float((greedy["upper"] - greedy["lower"]).iloc[0]) > 50
assert abs(after - collapsed) < 1e-9
assert float(before) < elbos[-1] < collapsed
assert scores.loc["SGPR, m = 6", "noise variance"] > 1.5 * scores.loc["exact", "noise variance"]
narrower, wider = bands.loc["SGPR, m = 6"] - bands.loc["exact"], 0.05
assert narrower["half band, x < 1"] < -wider < wider < narrower["half band, x >= 1"]
assert bands.loc["SGPR, m = 6", "misses the exact mean"] > 0.4
assert not any(run.warnings for run in (*runs.values(), fits["SVGP, Bernoulli"]))
assert abs(scores.loc["SGPR, m = 30", "nll"] - scores.loc["exact", "nll"]) < 0.03
assert (scores["nll"].drop("SGPR, m = 6") - scores.loc["exact", "nll"]).abs().max() < 0.1
assert classes["accuracy"].min() > 0.93
assert classes["nll"].max() < 0.2
