# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Ordered classes and groups of rows
#
# Two extensions of generalised linear models. Ordered classes have cutpoints on the scale of one
# linear predictor in place of an intercept: `likelihoods.Ordinal`. Rows in groups have coefficients
# that vary between the groups around those that all rows share: `GLM(groups=...)`.

# %%
# %matplotlib inline
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import ppgp
from ppgp import inference, likelihoods, models, plots, priors

flat = priors.Flat()

# %% [markdown]
# ## The bitterness of wine
#
# Randall (1989): 72 ratings of bitterness from 1 to 5, of wines whose grapes were pressed cold or
# warm, with or without contact of juice and skin. The order of the classes is that of pandas'
# ordered categories.

# %%
counts = {
    ("cold", "no"): (4, 9, 5, 0, 0),
    ("cold", "yes"): (1, 7, 8, 2, 0),
    ("warm", "no"): (0, 5, 8, 3, 2),
    ("warm", "yes"): (0, 1, 5, 7, 5),
}
rows = [
    {"warm": temperature == "warm", "contact": contact == "yes", "rating": f"rating {k + 1}"}
    for (temperature, contact), row in counts.items()
    for k, count in enumerate(row)
    for _ in range(count)
]
frame = pd.DataFrame(rows).astype({"warm": float, "contact": float})
order = [f"rating {k}" for k in range(1, 6)]
frame["rating"] = pd.Categorical(frame["rating"], order, ordered=True)
wine = ppgp.Dataset.from_frame(frame, "rating")
wine

# %% [markdown]
# Under flat priors the fit is the proportional-odds model: its published coefficients are 2.503 for
# warm and 1.528 for contact, with standard errors 0.529 and 0.477, and the log-likelihood is -86.49
# (Christensen 2015).

# %%
odds = models.GLM(likelihoods.Ordinal(cutpoints=flat), weight=flat)
likeliest = ppgp.fit(odds, wine, inference.MAP("newton"), progress=False)
likeliest.coefficients("model").round(3)

# %% [markdown]
# The default prior of the cutpoints is the one that a Dirichlet prior of the class probabilities
# induces, so that none of the classes is favoured beforehand. The evidence of Laplace's
# approximation compares the links: the data hardly distinguish them. In the figure, bars are the
# shares of the ratings, and points their predicted probabilities.

# %%
links = {
    link: ppgp.fit(models.GLM(likelihoods.Ordinal(link)), wine, inference.Laplace(), progress=False)
    for link in ("logit", "probit", "cloglog")
}
pd.Series({link: p.log_evidence for link, p in links.items()}, name="log evidence").round(2)

# %%
nuts = ppgp.fit(models.GLM(likelihoods.Ordinal()), wine, inference.NUTS(), progress=False)
pressings = np.array([[w, c] for w, c in ((0, 0), (0, 1), (1, 0), (1, 1))], dtype=float)
predicted = nuts.predict(pressings).probabilities.numpy()
figure, panels = plt.subplots(1, 4, figsize=(9, 2.8), sharey=True)
for panel, (pressing, row), p in zip(panels, counts.items(), predicted):
    panel.bar(range(1, 6), np.array(row) / sum(row), color="lightgrey", label="share")
    panel.plot(range(1, 6), p, "o-", label="NUTS")
    panel.set_title(f"{pressing[0]}, contact {pressing[1]}")
    panel.set_xlabel("rating")
panels[0].set_ylabel("probability")
panels[0].legend()
figure.tight_layout()

# %% [markdown]
# ## Batches of dyestuff: an intercept per group
#
# Davies & Goldsmith (1972) measured five yields from each of six batches. With Gaussian noise the
# effects of the batches are integrated out by formula. Maximum likelihood gives the mean 1527.5 and
# the standard deviations 37.26 between and 49.51 within batches, as lme4 does (Bates et al. 2015).

# %%
yields = {
    "A": (1545, 1440, 1440, 1520, 1580),
    "B": (1540, 1555, 1490, 1560, 1495),
    "C": (1595, 1550, 1605, 1510, 1560),
    "D": (1445, 1440, 1595, 1465, 1545),
    "E": (1595, 1630, 1515, 1635, 1625),
    "F": (1520, 1455, 1450, 1480, 1445),
}
batch = np.repeat(list(yields), 5)
dyestuff = ppgp.Dataset(
    np.zeros((30, 1)), np.array([*yields.values()], float).ravel(), groups={"batch": batch}
)
mixed = models.GLM(
    likelihoods.Gaussian(flat), 0.0, flat, groups={"batch": models.Varying("1", flat)}
)
lme4 = ppgp.fit(mixed, dyestuff, inference.MAP(), standardise=False, progress=False)
found = {name: float(v.flatten()[0]) for name, v in lme4.draws.items()}
pd.Series(
    {"mean": found["bias"], "sd of batches": found["batch.sd"], "sd within": found["noise"] ** 0.5}
).round(2)

# %% [markdown]
# The mode of the standard deviation ignores its uncertainty. With priors, NUTS samples it; a batch
# that is not among the training rows is drawn from the distribution of batches, so that its
# interval is wider than that of a known batch.
#
# The table has no inputs but one column of zeros. A fit that standardises warns that this column is
# constant. That is meant here, so that the sentence is not shown. The warning that is shown is
# about one of 4,000 draws. In the figure, squares are the estimates of each batch alone, dots and
# bars those of the model, as differences from the level that all batches share.

# %%
warnings.filterwarnings("ignore", message="column 0 of X constant")
bayes = models.GLM(bias=priors.Normal(0.0, 2.0), groups={"batch": models.Varying("1")})
sampled = ppgp.fit(bayes, dyestuff, inference.NUTS(), progress=False)
batches = sampled.predict(np.zeros((3, 1)), groups={"batch": ["A", "E", "a new one"]})
pd.DataFrame({"mean": batches.mean, "sd": batches.std}, index=["A", "E", "a new one"]).round(1)

# %%
plots.shrinkage(sampled)

# %% [markdown]
# ## Eight schools: which posterior to trust
#
# Rubin (1981): the effect of coaching in eight schools, each with a known standard error. The
# posterior of the spread between the schools reaches 0, where the effects are equal. With the
# priors N(0, 5) of the mean (`bias`) and HalfCauchy(5) of the spread (`school.sd`), quadrature
# gives the posterior means 4.397 and 3.598, with standard deviations 3.318 and 3.220. The standard
# errors are the only noise, so that the likelihood itself has none.

# %%
effect = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
error = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
schools = ppgp.Dataset(
    np.zeros((8, 1)), effect, noise_sd=error, groups={"school": [f"school {i}" for i in "ABCDEFGH"]}
)
hierarchy = models.GLM(
    likelihoods.Gaussian(1e-9),
    0.0,
    priors.Normal(0.0, 5.0),
    groups={"school": models.Varying("1", priors.HalfCauchy(5.0))},
)
fits = {
    name: ppgp.fit(hierarchy, schools, how, standardise=False, progress=False)
    for name, how in {
        "laplace": inference.Laplace(draws=4000),
        "nuts": inference.NUTS(draws=2000, target_accept=0.95),
    }.items()
}
comparison = ppgp.compare(fits, reference="nuts")
spread = fits["nuts"].summary()[["mean", "sd"]].round(2)
for name, verdict in comparison.verdicts.items():
    print(f"{name}: {verdict} ({comparison.reasons[name]})")
spread

# %%
plots.shrinkage(fits["nuts"])

# %% [markdown]
# ## Slopes that vary
#
# Measurements on two floors of houses in 40 simulated counties, few in most of them. The level and
# the difference between the floors vary between the counties: `Varying("1 + floor")`. Estimates of
# counties with few houses are pulled towards the line that all counties share.

# %%
rng = np.random.default_rng(3)
sizes = rng.integers(2, 12, 40)
county = np.repeat(np.arange(40), sizes)
level, step = rng.normal(0.0, 0.5, 40), rng.normal(0.0, 0.4, 40)
floor = rng.integers(0, 2, len(county)) + 0.0
measured = 1.5 + level[county] + (step[county] - 0.7) * floor + rng.normal(0, 0.6, len(county))
houses = ppgp.Dataset(
    floor[:, None], measured, ["floor"], groups={"county": [f"county {i:02d}" for i in county]}
)
slopes = models.GLM(groups={"county": models.Varying("1 + floor")})
radon = ppgp.fit(slopes, houses, inference.NUTS(), progress=False)
plots.shrinkage(radon)

# %%
table = likeliest.coefficients("model")
assert np.allclose(table.loc[["warm", "contact"], "estimate"], [2.503, 1.528], atol=1e-3)
assert np.allclose(table.loc[["warm", "contact"], "se"], [0.529, 0.477], atol=1e-3)
assert abs(likeliest.stats["log_density"] + 86.49) < 0.01
assert abs(links["logit"].log_evidence - links["probit"].log_evidence) < 2
assert abs(found["batch.sd"] - 37.26) < 0.01
assert abs(found["noise"] ** 0.5 - 49.51) < 0.01
assert float(batches.std[2]) > float(batches.std[0])
assert comparison.verdicts["laplace"] != "agrees"
assert abs(spread.loc["bias", "mean"] - 4.397) < 0.5
assert tuple(radon.effects()["county"].shape[-2:]) == (40, 2)
