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
# estimated from draws of q. Three estimators are unbiased; their variance decides how many steps a
# fit takes.

# %%
# %matplotlib inline

import pandas as pd
import torch
from matplotlib.figure import Figure

import ppgp
from ppgp import inference, models
from ppgp.density import Target
from ppgp.inference.variational.gaussian_guide import GRADIENTS, GaussianGuide

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
# The figure shows the first coordinate: black lines are the means, and titles hold them with their
# standard errors. Each histogram has an axis of its own: the score function varies by hundreds
# where the pathwise gradient varies by hundredths. The three means agree within their errors.
#
# The guide has the covariance of the Laplace approximation, and its mean is 0.5 standard deviations
# off. If the posterior were Gaussian, with this covariance, each pathwise estimate would be exactly
# -0.5. It is skewed, which adds about a quadratic function of the draw; in this coordinate that is
# hardly ever positive, hence the sharp edge.

# %%
laplace = ppgp.fit(
    models.LogisticRegression(), data, inference.Laplace(), standardise=False, progress=False
)
root = torch.linalg.cholesky(laplace.stats["covariance"])
guide = GaussianGuide(laplace.stats["mode"], root, correlated=True)
guide.loc += 0.5
e = torch.randn(5000, target.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
draws = {kind: guide.estimates(target, e, kind)[1][0] for kind in GRADIENTS}
first = {kind: g[:, 0] for kind, g in draws.items()}
variance = {kind: float(g.var()) for kind, g in first.items()}
error = {kind: (v / len(e)) ** 0.5 for kind, v in variance.items()}
figure = Figure(figsize=(9.5, 3.2), layout="constrained")
for axis, (kind, g) in zip(figure.subplots(1, 3), first.items(), strict=True):
    axis.hist(g.numpy(), bins=60, color="#0072B2")
    axis.axvline(float(g.mean()), color="black", lw=1)
    axis.set_title(
        f"{kind}\nvariance {variance[kind]:.2g}, mean {float(g.mean()):.2g} +- {error[kind]:.1g}",
        fontsize=10,
    )
    axis.set(xlabel="d ELBO / d mean, first coordinate", yticks=[])
    axis.spines[["top", "right", "left"]].set_visible(False)
figure.axes[0].set_ylabel("number of estimates")
figure.suptitle("5,000 one-draw estimates of one gradient")
figure

# %% [markdown]
# ## The effect on a fit
#
# The guide, the optimiser, the learning rate and the number of draws per step are the same. `SVI`
# starts from a Laplace approximation, which is nearly the optimum here, so that there would be
# little to see. With a `batch_size`, here of all rows, it starts from a narrow guide around zero.
# The table holds the ELBO, as the mean of the 100 steps up to each.
#
# The best ELBO of this guide is about -146.9, as the last section shows. After 3,000 steps the
# pathwise gradient is within 2 nats of it. The score function with its baseline is within 3; it
# takes about twice as many steps to the same ELBO. Without the baseline the ELBO is more than 50
# nats too low, and the library warns that it was still rising. A step takes one or two milliseconds
# with each of them.

# %%
STEPS, MARKS = 3000, (100, 300, 1000, 2000, 3000)
fits = {
    kind: ppgp.fit(
        models.LogisticRegression(),
        data,
        inference.SVI(
            gradient=kind, particles=8, steps=STEPS, learning_rate=0.05, batch_size=data.n
        ),
        standardise=False,
        progress=False,
    )
    for kind in GRADIENTS
}
elbos = {
    kind: {step: float(p.stats["elbo_history"][step - 100 : step].mean()) for step in MARKS}
    for kind, p in fits.items()
}
pd.DataFrame(elbos).T.assign(seconds=[p.seconds for p in fits.values()]).round(1)

# %% [markdown]
# ## Natural against plain gradient
#
# The natural gradient measures a step by how far q moves, not by how far its parameters do. Both
# start from the scale of the prior around zero, a poor start. The natural gradient overshoots at
# first, below the figure, as its steps are as wide as q itself. Then it converges, while Adam has
# not converged yet.


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
for (name, history), marker in zip(histories.items(), "os", strict=True):
    axis.plot(history, label=name, lw=1.2, marker=marker, ms=5, markevery=40)
axis.set(
    title="One guide and one start, two gradients",
    xlabel="step",
    ylabel="ELBO, nats",
    ylim=(min(histories["Adam"][30:]) - 20, max(histories["Adam"]) + 10),
)
axis.legend(frameon=False)
axis.spines[["top", "right"]].set_visible(False)
figure

# %% [markdown]
# ## When to stop
#
# `SVI` stops once the moving average of the ELBO has not increased for `patience` steps. It warns
# if the ELBO still rises at the last step, as it does in mini-batches below after 1,000 steps, too
# few for them: `posterior.warnings` holds the sentences.

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
best = full.stats["elbo"]
print(f"all rows: stopped after {stopped} of at most {enough.steps} steps at an ELBO of {best:.1f}")
for sentence in short.warnings:
    print(f"mini-batches: {sentence}")

# %%
assert stopped < enough.steps
assert not full.warnings
assert short.warnings
assert variance["pathwise"] < variance["score_baseline"] < variance["score"]
assert elbos["pathwise"][STEPS] > elbos["score_baseline"][STEPS] > elbos["score"][STEPS] + 40
assert fits["score"].warnings
assert not fits["pathwise"].warnings
assert not fits["score_baseline"].warnings
for kind in GRADIENTS:
    assert abs(float(first[kind].mean() - first["pathwise"].mean())) < 2 * error[kind] + 1e-9, kind
assert float((first["pathwise"] > -0.5).double().mean()) < 0.01
assert sum(histories["natural gradient"][200:]) > sum(histories["Adam"][200:])
