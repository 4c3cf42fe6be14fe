# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Mixtures: assignments summed out, sampled, or enumerated
#
# Each y_i belongs to one of K components, and the assignments are unknown. Gradient methods sum
# over the assignments, and Gibbs sampling draws them. For a few rows all K^n can be enumerated,
# which gives the exact posterior to compare with.

# %%
# %matplotlib inline
import textwrap
import warnings

import pandas as pd
import torch
from matplotlib.figure import Figure

import ppgp
from ppgp import inference, models

generator = torch.Generator().manual_seed(0)


def sample(
    sizes: tuple[int, ...], centres: tuple[float, ...], sds: tuple[float, ...]
) -> ppgp.Dataset:
    parts = [
        m + s * torch.randn(n, generator=generator, dtype=torch.float64)
        for n, m, s in zip(sizes, centres, sds)
    ]
    y = torch.cat(parts)
    return ppgp.Dataset(torch.arange(len(y), dtype=torch.float64)[:, None], y)


# %% [markdown]
# ## Ten rows: the exact evidence
#
# The log evidence of two and three components is computed by enumeration. Ten rows hardly tell two
# components from three. Laplace's method sees one of K! modes, so that its log evidence lacks log
# K!, which is 0.69 for two components. The rest of the difference, 0.26, is the error of its normal
# approximation.
#
# The draws of an enumeration have the labels in every order, by definition. The warning that labels
# switched is therefore expected here and in the next section, and is not shown: the draws are
# sorted by the mean of the components. The section on label switching shows it.

# %%
warnings.filterwarnings("ignore", message="labels switched")
tiny = sample((5, 5), (-1.5, 1.5), (0.4, 0.4))
evidence = {
    K: ppgp.fit(
        models.GaussianMixture(K), tiny, inference.Exact(), standardise=False, progress=False
    ).log_evidence
    for K in (2, 3)
}
laplace = ppgp.fit(
    models.GaussianMixture(2), tiny, inference.Laplace(), standardise=False, progress=False
).log_evidence
pd.Series(
    {
        "2 components, exact": evidence[2],
        "2 components, Laplace": laplace,
        "3 components, exact": evidence[3],
    },
    name="log evidence",
).round(2)

# %% [markdown]
# ## Three methods, one posterior
#
# After relabelling (components by increasing mean) Gibbs, NUTS and enumeration agree.

# %%
hows = {
    "enumeration": inference.Exact(draws=8000),
    "Gibbs": inference.Gibbs(draws=2000),
    "NUTS": inference.NUTS(draws=2000),
}
small = {
    n: ppgp.fit(models.GaussianMixture(2), tiny, how, standardise=False, progress=False)
    for n, how in hows.items()
}
table = pd.DataFrame({n: p.summary()["50%"] for n, p in small.items()})
table.round(3)

# %% [markdown]
# ## Label switching
#
# If components overlap, chains exchange the labels of the components. The draws are sorted, and a
# warning of the posterior states how often labels were switched. Two more warnings are about R-hat
# and the effective sample size: the sorted draws of components that overlap mix slowly.

# %%
overlapping = sample((40, 40), (-0.5, 0.5), (1.0, 1.0))
blurred = ppgp.fit(models.GaussianMixture(2), overlapping, inference.Gibbs(), progress=False)
for sentence in blurred.warnings:
    print(textwrap.fill(sentence, 100))

# %% [markdown]
# ## The predictive distribution
#
# The rows come from three components with the means 0, 6 and 12. The density of the fit averages
# the mixture over the draws. The default prior of the variances, InverseGamma(3, 1) on the
# standardised scale, makes the narrow component at 6 a little wider than its rows.

# %%
data = sample((150, 100, 50), (0.0, 6.0, 12.0), (1.0, 0.7, 2.0))
posterior = ppgp.fit(models.GaussianMixture(3), data, inference.Gibbs(), progress=False)
x = torch.linspace(-4, 18, 300, dtype=torch.float64)
grid = ppgp.Dataset(x[:, None], x)
density = posterior.predict(grid.X).log_prob(x).exp()
figure = Figure(figsize=(7, 3), layout="constrained")
axis = figure.subplots()
axis.hist(data.y.numpy(), bins=50, density=True, color="#BBBBBB", label="data")
axis.plot(x, density, color="#0072B2", label="posterior predictive")
axis.legend(frameon=False)
axis.set(xlabel="y")
axis.spines[["top", "right"]].set_visible(False)
figure

# %%
scaler = posterior.scaler
means = (posterior.draws["mean"].mean((0, 1)) * scaler.y_sd + scaler.y_mean).tolist()
mass = float(torch.trapezoid(density, x))
print("posterior means of the components:", ", ".join(f"{m:.2f}" for m in means))
print(f"integral of the density over the grid: {mass:.4f}")

# %%
assert evidence[2] - laplace > 0.4
assert float((table["Gibbs"] - table["enumeration"]).abs().max()) < 0.08
assert float((table["NUTS"] - table["enumeration"]).abs().max()) < 0.08
assert any("labels switched" in sentence for sentence in blurred.warnings)
assert all(abs(m - truth) < 0.8 for m, truth in zip(means, (0.0, 6.0, 12.0)))
assert abs(mass - 1) < 0.01
