# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Natural gradient boosting
#
# `models.Boosted` makes every parameter of a distribution of y a sum of trees of x, and
# `NaturalGradientBoosting` finds the sum (Duan et al. 2020). This notebook shows why the gradient
# is the natural one, what a wrong metric costs, how the score changes with the stages, how the rows
# that a member has not seen calibrate the intervals, and what the spread of the members does not
# say.
# The trees are grown by LightGBM: `pip install "ppgp[boost]"`.

# %%
# %matplotlib inline
import math
from dataclasses import dataclass, replace

import matplotlib.pyplot as plt
import pandas as pd
import torch

import ppgp
from ppgp import conformal, inference, kernels, learners, likelihoods, metrics, models

F64 = torch.float64
law = likelihoods.Gaussian(noise=likelihoods.Predicted())

# %% [markdown]
# ## The gradient field
#
# The rows are N(0, 1), and the parameters are mu and log sigma. The arrows are minus the mean
# gradient of a score over these rows: the ordinary gradient above, the natural gradient below,
# which is the inverse of the metric of the score times the gradient. Long arrows are drawn shorter
# than they are. The star is the optimum. The library predicts the log variance, 2 log sigma, so
# that a slope in log sigma is twice that in the log variance, and a step half of it.

# %%
levels = (torch.arange(200, dtype=F64) + 0.5) / 200
rows = torch.special.ndtri(levels)  # quantiles of N(0, 1)
mu, log_sigma = torch.meshgrid(
    torch.linspace(-2, 2, 13, dtype=F64), torch.linspace(-1.2, 1.2, 13, dtype=F64), indexing="ij"
)
points = torch.stack([mu.flatten(), 2 * log_sigma.flatten()])  # f [K, point]


def field(kind: str, natural: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return minus the mean gradient at each point, in mu and log sigma."""
    f = points[:, :, None].expand(-1, -1, len(rows)).flatten(1)
    gradient = law.gradient({}, f, rows.repeat(points.shape[1]), kind)
    mean = gradient.unflatten(1, (-1, len(rows))).mean(-1)
    if not natural:
        return -mean[0], -2 * mean[1]
    step = torch.linalg.solve(law.metric({}, points, kind), mean.mT)
    return -step[:, 0], -step[:, 1] / 2


def lengths_even(u: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Shorten long arrows: their lengths to the power 1/4, the longest of length 1."""
    length = (u.square() + v.square()).sqrt().clamp_min(1e-9)
    shorter = (length / length.max()).pow(0.25) / length
    return u * shorter, v * shorter


names = {"nll": "log score", "crps": "CRPS"}
figure, axes = plt.subplots(2, 2, figsize=(8, 7), sharex=True, sharey=True, layout="constrained")
for column, kind in enumerate(names):
    for row, natural in enumerate((False, True)):
        ax = axes[row, column]
        u, v = lengths_even(*field(kind, natural))
        ax.quiver(mu.flatten(), log_sigma.flatten(), u, v, scale=14, width=0.004, color="C0")
        ax.plot(0, 0, "*", color="C3", markersize=12)
        ax.set_title(f"{names[kind]}, {'natural' if natural else 'ordinary'} gradient")
for ax in axes[1]:
    ax.set_xlabel("mu")
for ax in axes[:, 0]:
    ax.set_ylabel("log sigma")
plt.show()

# %% [markdown]
# The mean cosine of the angle between an arrow and the direction of the star. The ordinary gradient
# of the CRPS points well in these units of y; only a natural gradient does not depend on the units.

# %%
towards = torch.stack([-mu.flatten(), -log_sigma.flatten()])
away = towards.norm(dim=0) > 1e-9
cosines = {}
for kind in names:
    for natural in (False, True):
        arrow = torch.stack(field(kind, natural))
        cosine = torch.cosine_similarity(arrow, towards, dim=0)[away].mean()
        cosines[kind, natural] = float(cosine)
pd.Series(cosines).rename(index=names | {False: "ordinary", True: "natural"}).round(2)

# %% [markdown]
# ## A wrong metric
#
# With the right metric a step does not depend on the units of y. The metric of the CRPS is
# diag(1 / (s sqrt(pi)), s / (2 sqrt(pi))) in mu and log s. Here it is multiplied by s. The score
# of test rows is shown, divided by the factor, for y times 0.1, 1 and 10. With the right metric it
# is one line, whatever the factor. With the wrong one the steps are too large for small y, where
# the search for the step length shortens them for all rows, and too small for large y. A curve
# ends early where no step lowers the score of the training rows any more.


# %%
@dataclass(frozen=True)
class WrongMetric(likelihoods.Gaussian):
    """A normal distribution whose metric of the CRPS is s times the right one.

    ``scales`` is that of counts, so that boosting works in the units of y and not in a unit near
    their sd.
    """

    scales = "X"

    def natural(self, theta, f, y, kind="nll", *, right_censored=None):
        step = super().natural(theta, f, y, kind, right_censored=right_censored)
        return step / (0.5 * f[..., 1:, :]).exp()


def sample(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of a wave whose noise grows with x; the second column has no effect."""
    generator = torch.Generator().manual_seed(seed)
    X = 4 * torch.rand(n, 2, generator=generator, dtype=F64)
    sd = 0.1 + 0.5 * torch.sigmoid(4 * (X[:, 0] - 2))
    return X, torch.sin(3 * X[:, 0]) + sd * torch.randn(n, generator=generator, dtype=F64)


(X, y), (X_new, y_new) = sample(400, 0), sample(4000, 1)
trees = learners.Trees(leaves=8)
how = inference.NaturalGradientBoosting(steps=120, learning_rate=0.1, folds=None, temperature=False)


def curve(likelihood, factor):
    """Return the CRPS of the test rows after every 10 stages, divided by the factor."""
    fit = ppgp.fit(
        models.Boosted(likelihood, trees), ppgp.Dataset(X, factor * y), how, progress=False
    )
    staged = fit.staged(X_new, every=10)
    return [metrics.mean_crps(p, factor * y_new) / factor for p in staged]


factors = (0.1, 1.0, 10.0)
laws = {"right": law, "wrong": WrongMetric(noise=likelihoods.Predicted())}
curves = {(name, c): curve(likelihood, c) for name, likelihood in laws.items() for c in factors}
figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
for ax, name in zip(axes, laws, strict=True):
    for c, line in zip(factors, ("-", "--", ":"), strict=True):
        stages = range(10, 10 * len(curves[name, c]) + 1, 10)
        ax.plot(stages, curves[name, c], line, label=f"y times {c:g}")
    ax.set_title(f"{name} metric")
    ax.set_xlabel("stage")
axes[0].set_ylabel("CRPS of test rows / factor")
axes[1].legend()
plt.show()

# %% [markdown]
# ## Staged score
#
# `posterior.staged` gives the predictions after some of the stages. The score of the training rows
# keeps falling, that of test rows rises again, and the log score suffers more from rows that are
# predicted too surely than the CRPS does. `hold_out=` and `folds=` choose the number of stages on
# rows that a fit has not seen.

# %%
longer = inference.NaturalGradientBoosting(
    steps=300, learning_rate=0.1, folds=None, temperature=False
)
figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
staged_nll = {}
for kind in names:
    train = ppgp.Dataset(X, y)
    fit = ppgp.fit(models.Boosted(law, trees), train, replace(longer, score=kind), progress=False)
    nlls, scores = [], []
    for p, q in zip(fit.staged(X_new, every=10), fit.staged(X, every=10), strict=True):
        nlls.append((metrics.nll(p, y_new), metrics.nll(q, y)))
        scores.append((metrics.mean_crps(p, y_new), metrics.mean_crps(q, y)))
    staged_nll[kind] = [test for test, _ in nlls]
    stages = range(10, 10 * len(nlls) + 1, 10)
    color = {"nll": "C0", "crps": "C1"}[kind]
    for ax, values in zip(axes, (nlls, scores), strict=True):
        ax.plot(stages, [v[0] for v in values], color=color, label=f"by {names[kind]}, test")
        ax.plot(stages, [v[1] for v in values], "--", color=color, label="the same, training")
axes[0].set_title("negative log density")
axes[1].set_title("CRPS")
for ax in axes:
    ax.set_xlabel("stage")
axes[1].legend(fontsize=8)
plt.show()

# %% [markdown]
# ## Calibration by the rows that a member has not seen
#
# With `folds=5` each of five members is fitted without one fold. `posterior.out_of_fold()` is the
# distribution of each row by the member that has not seen it. A temperature, found on such rows,
# widens the distributions, and `cross_calibrate` makes intervals of CV+ from the same rows without
# another fit. The coverage is that of 4,000 test rows, at the level of 90 %. One fit with 120
# stages is far too sure of itself.

# %%
folds = inference.NaturalGradientBoosting(learning_rate=0.1)
data = ppgp.Dataset(X, y)
cold = ppgp.fit(models.Boosted(law, trees), data, replace(folds, temperature=False), progress=False)
members = ppgp.fit(models.Boosted(law, trees), data, folds, progress=False)
calibrator = ppgp.cross_calibrate(members, score=conformal.Normalized())
once = ppgp.fit(models.Boosted(law, trees), data, how, progress=False)
regions = {
    "one fit, 120 stages": once.predict(X_new).interval(0.9),
    "5 members, no temperature": cold.predict(X_new).interval(0.9),
    "5 members": members.predict(X_new).interval(0.9),
    "CV+": calibrator(X_new, level=0.9),
}
calibration = pd.DataFrame(
    {
        name: {
            "coverage": metrics.coverage(region, y_new),
            "width": metrics.mean_width(region),
        }
        for name, region in regions.items()
    }
).T
calibration.round(3)

# %%
for name, region in regions.items():
    print(f"{name}: {region.guarantee}")

# %% [markdown]
# The predicted distribution function F at the observed y is uniform on rows that were not seen, if
# the distributions are calibrated. One fit is too sure: on new rows, F is often near 0 or 1. Its
# own rows do not show this. Rows out of fold are new to the member that predicts them.

# %%
figure, axes = plt.subplots(1, 3, figsize=(9.5, 3), sharey=True, layout="constrained")
for ax, (title, (prediction, at)) in zip(
    axes,
    {
        "one fit, its own rows": (once.predict(X), y),
        "one fit, new rows": (once.predict(X_new), y_new),
        "5 members, out of fold": (members.out_of_fold(), y),
    }.items(),
    strict=True,
):
    ax.hist(prediction.cdf(at).numpy(), bins=10, range=(0, 1), density=True)
    ax.axhline(1, color="black", linewidth=0.8)
    ax.set_title(title)
    ax.set_xlabel("F(y)")
axes[0].set_ylabel("density")
plt.show()

# %% [markdown]
# ## What the spread of members does not say
#
# One boosted fit is one draw: its `epistemic` variance is 0. Members of `folds=` differ, as they
# were fitted to different rows, but trees are constant where there are no rows: a member keeps the
# value that it has at the edge of a gap. Their spread is then that at the edge, however far a row
# is from the data, while the sd of a Gaussian process grows. If the two edges differ, members also
# disagree about where between them the jump is, which is no distance from the data either. The
# spread of members is therefore no posterior.

# %%
generator = torch.Generator().manual_seed(3)
x = 6 * torch.rand(300, generator=generator, dtype=F64)
x = x[(x < 2) | (x > 4)]
gap_data = ppgp.Dataset(
    x[:, None], torch.cos(math.pi * x) + 0.2 * torch.randn(len(x), generator=generator, dtype=F64)
)
grid = torch.linspace(-1, 7, 321, dtype=F64)
one = ppgp.fit(
    models.Boosted(),
    gap_data,
    inference.NaturalGradientBoosting(folds=None, hold_out=0.2),
    progress=False,
)
five = ppgp.fit(models.Boosted(), gap_data, inference.NaturalGradientBoosting(), progress=False)
gp = ppgp.fit(models.GP(kernels.RBF()), gap_data, inference.MAP(), progress=False)
boosted_sd = five.predict(grid[:, None]).epistemic.sqrt()
latent = gp.latent(grid[:, None])
assert float(one.predict(grid[:, None]).epistemic.max()) == 0.0
inside = ((grid > 0.2) & (grid < 1.8)) | ((grid > 4.2) & (grid < 5.8))
gap, outside = (grid > 2.2) & (grid < 3.8), (grid < -0.2) | (grid > 6.2)
places = {"inside": inside, "in the gap": gap, "outside": outside}
spread = pd.DataFrame(
    {
        "boosted, 5 members": {k: float(boosted_sd[v].mean()) for k, v in places.items()},
        "Gaussian process": {k: float(latent.std[v].mean()) for k, v in places.items()},
    }
)
spread.round(3)

# %%
figure, axes = plt.subplots(2, 1, figsize=(8, 5.5), sharex=True, layout="constrained")
for prediction, color, label in (
    (five.predict(grid[:, None]), "C0", "boosted, 5 members"),
    (gp.predict(grid[:, None]), "C1", "Gaussian process"),
):
    region = prediction.interval(0.9)
    axes[0].fill_between(grid, region.lower, region.upper, color=color, alpha=0.2)
    axes[0].plot(grid, prediction.mean, color=color, label=label)
axes[0].plot(gap_data.X[:, 0], gap_data.y, ".", color="black", markersize=3)
axes[0].set_ylabel("y, with 90 % intervals")
axes[0].legend()
axes[1].plot(grid, boosted_sd, color="C0", label="sd of the means of 5 members")
axes[1].plot(grid, latent.std, color="C1", label="sd of the Gaussian process")
axes[1].axvspan(2, 4, color="grey", alpha=0.15, label="no rows")
axes[1].axvspan(-1, 0, color="grey", alpha=0.15)
axes[1].axvspan(6, 7, color="grey", alpha=0.15)
axes[1].set_xlabel("x")
axes[1].set_ylabel("sd of the function")
axes[1].legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
plt.show()

# %% [markdown]
# ## Trees or Gaussian processes
#
# Two functions with ten columns, of which two matter: one is smooth, the other has steps. The
# Gaussian process has one lengthscale per column. `docs/trees-or-gaussian-processes.md` says when
# to choose which.


# %%
def columns(n: int, seed: int, steps: bool) -> ppgp.Dataset:
    """Rows of ten columns."""
    generator = torch.Generator().manual_seed(seed)
    X = 2 * torch.rand(n, 10, generator=generator, dtype=F64) - 1
    smooth = torch.sin(3 * X[:, 0]) + X[:, 0] * X[:, 1]
    stepped = (X[:, 0] > -0.5).to(F64) + 2 * ((X[:, 0] > 0.3) & (X[:, 1] > -0.2)).to(F64)
    noise = 0.2 * torch.randn(n, generator=generator, dtype=F64)
    return ppgp.Dataset(X, (stepped if steps else smooth) + noise)


records = []
for steps in (False, True):
    train, test = columns(400, 5, steps), columns(2000, 6, steps)
    for name, model in {
        "trees": models.Boosted(),
        "Gaussian process": models.GP(kernels.ARD(kernels.Matern(2.5))),
    }.items():
        method = None if name == "trees" else inference.MAP()
        prediction = ppgp.fit(model, train, method, progress=False).predict(test.X)
        records.append(
            {
                "function": "steps" if steps else "smooth",
                "model": name,
                "rmse": metrics.rmse(prediction, test.y),
                "nll": metrics.nll(prediction, test.y),
                "coverage": metrics.coverage(prediction.interval(0.9), test.y),
            }
        )
league = pd.DataFrame(records).set_index(["function", "model"])
league.round(2)

# %%
assert cosines["nll", True] > cosines["nll", False]
right = [curves["right", c][2] for c in factors]
wrong = [curves["wrong", c][2] for c in factors]
assert max(right) < 1.01 * min(right)
assert max(wrong) > 1.2 * min(wrong)
assert abs(calibration.loc["CV+", "coverage"] - 0.9) < 0.04
assert spread.loc["in the gap", "boosted, 5 members"] < 1.5 * spread.loc["inside"].iloc[0]
assert spread.loc["in the gap", "Gaussian process"] > 5 * spread.loc["inside"].iloc[1]
rmse = league["rmse"]
assert rmse["smooth", "Gaussian process"] < rmse["smooth", "trees"]
assert rmse["steps", "trees"] < rmse["steps", "Gaussian process"]
