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
axes[0].axhline(evidence, color="black", lw=0.8, label="evidence")
axes[0].set(
    xlabel="m",
    ylabel="nats",
    ylim=(evidence - 400, evidence + 200),
    title="greedy conditional variance",
)
axes[0].legend()
for selection in selections:
    axes[1].plot(sizes, evidence - table.loc[selection, "lower"], "o-", label=selection)
axes[1].set(
    xlabel="m",
    ylabel="evidence - lower bound (nats)",
    yscale="log",
    title="selection of the inducing inputs",
)
axes[1].legend()
plt.show()
table.loc["conditional_variance"].round(2).T

# %% [markdown]
# ## Inducing inputs, and the effect of too few
#
# Six inducing inputs cannot follow the fast wave: the bound explains the rest by the noise, so
# that the function is too smooth and its band wide. With thirty the fit and the exact GP coincide
# where there are many rows; left of 1, where there are few, they differ by much less than the band.
# Grey points are the training rows, the bands hold 95 % of f.

# %%
grid = torch.linspace(-0.2, 6.2, 300, dtype=torch.float64)[:, None]
sparse = {
    m: ppgp.fit(models.SGPR(inducing=m), train, inference.MAP(), progress=False) for m in (6, 30)
}
figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), sharey=True)
for axis, (m, posterior) in zip(axes, sparse.items()):
    f, whole = posterior.latent(grid), exact.latent(grid)
    axis.plot(train.X[:, 0], train.y, ".", color="0.8", ms=3)
    axis.fill_between(grid[:, 0], f.mean - 1.96 * f.std, f.mean + 1.96 * f.std, alpha=0.3)
    axis.plot(grid[:, 0], f.mean, label=f"m = {m}")
    axis.plot(grid[:, 0], whole.mean, "k--", lw=0.8, label="exact")
    Z = posterior.model.Z[:, 0] * posterior.scaler.x_sd + posterior.scaler.x_mean
    axis.plot(Z, torch.full_like(Z, -2.3), "k|", ms=8, label="inducing inputs")
    axis.legend(fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axis.set(xlabel="x")
axes[0].set(ylabel="y")
plt.show()
scores = pd.DataFrame(
    {
        name: {
            "rmse": metrics.rmse(p.predict(test.X), test.y),
            "nll": metrics.nll(p.predict(test.X), test.y),
            "noise": float(p.draws["noise"]),
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
# SGPR, while Adam on loc and W needs hundreds of steps to come close (Salimbeni et al. 2018).

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
figure, axis = plt.subplots(figsize=(5.5, 3.2))
axis.plot(range(1, 401), [collapsed - value for value in elbos], label="Adam on loc and W")
axis.axhline(max(collapsed - after, 1e-9), color="black", lw=0.8, label="one natural step")
axis.set(yscale="log", xlabel="step", ylabel="nats below the best q")
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
    "all rows": ppgp.fit(recipe, train, inference.SVI(steps=400, patience=200), progress=False),
    "batches of 50": ppgp.fit(
        recipe, train, inference.SVI(steps=1200, patience=400, batch_size=50), progress=False
    ),
}
for name, run in runs.items():
    scores.loc[f"SVGP, {name}"] = {
        "rmse": metrics.rmse(run.predict(test.X), test.y),
        "nll": metrics.nll(run.predict(test.X), test.y),
        "noise": float(run.draws["noise"].mean()),
    }
scores.round(3)

# %% [markdown]
# ## A likelihood that is not Gaussian
#
# The task is to classify biopsies as malignant or benign (scikit-learn's breast cancer data, 569
# biopsies, 30 measurements): y ~ Bernoulli(sigmoid(f)). The expectation in the bound is a
# one-dimensional integral per row, computed by Gauss-Hermite quadrature.

# %%
biopsies, held_out = ppgp.load("breast_cancer").split(0.7, seed=0)
fits = {
    "SVGP, Bernoulli": ppgp.fit(
        models.SVGP(kernels.RBF(), 40, likelihoods.Bernoulli(), learn=False),
        biopsies,
        inference.SVI(steps=400, patience=150),
        progress=False,
    ),
    "logistic regression": ppgp.fit(
        models.LogisticRegression(), biopsies, inference.Laplace(), progress=False
    ),
}
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
assert abs(after - collapsed) < 1e-6
assert float(before) < elbos[-1] < collapsed
assert scores.loc["SGPR, m = 6", "noise"] > 1.5 * scores.loc["exact", "noise"]
assert abs(scores.loc["SGPR, m = 30", "nll"] - scores.loc["exact", "nll"]) < 0.03
assert (scores["nll"].drop("SGPR, m = 6") - scores.loc["exact", "nll"]).abs().max() < 0.1
assert classes["accuracy"].min() > 0.93
assert classes["nll"].max() < 0.2
