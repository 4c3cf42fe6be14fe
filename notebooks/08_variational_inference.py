# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Variational inference: estimating the gradient, and following it
#
# Variational inference maximises the ELBO, E_q[log p - log q], over a guide q. Its gradient is
# estimated from draws of q. Three estimators are unbiased; their variance decides whether the fit
# takes seconds or never converges.

# %%
# %matplotlib inline

import pandas as pd
import torch
from matplotlib.figure import Figure

import ppgp
from ppgp import inference, models
from ppgp.inference.variational.gaussian_guide import GRADIENTS, GaussianGuide
from ppgp.target import Target

data, _ = ppgp.load("breast_cancer").standardised(scale_y=False)
data = ppgp.Dataset(data.X[:, :4], data.y)
target = Target(models.LogisticRegression(), data)

# %% [markdown]
# ## The variance of three estimators
#
# All estimators use the same guide: 5,000 one-draw estimates of the gradient with respect to its
# mean.
#
# * score function: (log p - log q) times the score of q;
# * the same with a baseline, a control variate whose coefficient is computed from the other draws
#   of the step;
# * pathwise: the gradient through the draw itself, z = m + L e.
#
# The black lines are the means. Each histogram has an axis of its own: the score function varies by
# hundreds where the pathwise gradient varies by tenths.

# %%
laplace = ppgp.fit(
    models.LogisticRegression(), data, inference.Laplace(), standardise=False, progress=False
)
root = torch.linalg.cholesky(laplace.stats["covariance"])
guide = GaussianGuide(laplace.stats["mode"], root, correlated=True)
guide.loc += 0.5
e = torch.randn(5000, target.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
draws = {kind: guide.estimates(target, e, kind)[1][0] for kind in GRADIENTS}
variance = {kind: float(g.var(0).mean()) for kind, g in draws.items()}
figure = Figure(figsize=(9, 2.8), layout="constrained")
for axis, (kind, g) in zip(figure.subplots(1, 3), draws.items()):
    axis.hist(g[:, 0].numpy(), bins=60, color="#0072B2")
    axis.axvline(float(g[:, 0].mean()), color="black", lw=1)
    axis.set(
        title=f"{kind}: variance {variance[kind]:.3g}",
        xlabel="d ELBO / d mean, first coordinate",
        yticks=[],
    )
    axis.spines[["top", "right", "left"]].set_visible(False)
figure

# %% [markdown]
# ## The effect on a fit
#
# The guide, the optimiser, the learning rate and the number of draws per step are the same. Without
# a baseline the score function ends at a lower ELBO.

# %%
fits = {
    kind: ppgp.fit(
        models.LogisticRegression(),
        data,
        inference.SVI(gradient=kind, particles=8, steps=1500),
        standardise=False,
        progress=False,
    )
    for kind in GRADIENTS
}
pd.DataFrame(
    {
        kind: {"ELBO": p.stats["elbo"], "steps": len(p.stats["elbo_history"]), "seconds": p.seconds}
        for kind, p in fits.items()
    }
).T.round(3)

# %% [markdown]
# ## Natural against plain gradient
#
# The natural gradient measures a step by how far q moves, not by how far its parameters do. Both
# start from the scale of the prior around zero, a poor start. The natural gradient overshoots at
# first, as its steps are as wide as q itself. Then it converges, while Adam has not converged yet.


# %%
def maximise(natural: bool, steps: int = 400) -> list[float]:
    q = GaussianGuide(
        torch.zeros(target.dim, dtype=torch.float64),
        torch.eye(target.dim, dtype=torch.float64),
        correlated=True,
    )
    generator = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(q.parameters(), lr=0.02)
    history = []
    for _ in range(steps):
        e = torch.randn(8, target.dim, generator=generator, dtype=torch.float64)
        if natural:
            elbos, slope = q.evaluate(target, e)
            q.natural_step(e, slope, 0.1)
        else:
            elbos, gradients = q.estimates(target, e, "pathwise")
            for parameter, gradient in zip(q.parameters(), gradients):
                parameter.grad = -gradient.mean(0)
            optimizer.step()
        history.append(float(elbos.mean()))
    return history


histories = {"natural gradient": maximise(True), "Adam": maximise(False)}
figure = Figure(figsize=(6, 3.2), layout="constrained")
axis = figure.subplots()
for name, history in histories.items():
    axis.plot(history, label=name, lw=1.2)
axis.set(
    xlabel="step",
    ylabel="ELBO",
    ylim=(min(histories["Adam"][30:]) - 20, max(histories["Adam"]) + 10),
)
axis.legend(frameon=False)
axis.spines[["top", "right"]].set_visible(False)
figure

# %% [markdown]
# ## When to stop
#
# `SVI` stops once the moving average of the ELBO has not increased for `patience` steps. It warns
# if it reaches the last step first, as the fit in mini-batches below does after 1,000 steps:
# `posterior.warnings` holds the sentences.

# %%
short = ppgp.fit(
    models.LogisticRegression(),
    data,
    inference.SVI(batch_size=32, steps=1000, patience=400),
    standardise=False,
    progress=False,
)
enough = inference.SVI(particles=8)
full = ppgp.fit(models.LogisticRegression(), data, enough, standardise=False, progress=False)
stopped = len(full.stats["elbo_history"])
print(f"all rows: stopped after {stopped} of at most {enough.steps} steps")
for sentence in short.warnings:
    print(f"mini-batches: {sentence}")

# %%
assert stopped < enough.steps
assert not full.warnings
assert short.warnings
assert variance["pathwise"] < variance["score_baseline"] < variance["score"]
assert fits["pathwise"].stats["elbo"] > fits["score"].stats["elbo"]
assert sum(histories["natural gradient"][200:]) > sum(histories["Adam"][200:])
