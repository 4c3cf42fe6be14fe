"""Residuals against statsmodels and by their law, deviances, and the check of the dispersion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyro
import pytest
import torch
from scipy import stats

import ppgp
from ppgp import likelihoods as laws
from ppgp.data import Dataset
from ppgp.distributions.standardised_moments import skewness_and_kurtosis
from ppgp.errors import NotApplicable, UnknownName
from ppgp.inference import MAP, Laplace
from ppgp.likelihoods import Likelihood, Predicted
from ppgp.models import GLM, GP, LinearRegression, SoftmaxRegression
from ppgp.posterior import Posterior
from ppgp.priors import Flat
from ppgp.runtime.seeding import seeded

sm = pytest.importorskip("statsmodels.api")
F64 = torch.float64
FLAT = Flat()
N = 80


def inputs(n: int = N) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(n, 2))


def fit(law: Likelihood, X: Any, y: Any, how: Any = None, **columns: Any) -> Posterior:
    model = GLM(law, FLAT, None if isinstance(law, laws.Ordinal) else FLAT)
    data, how = Dataset(X, y, **columns), how or MAP("newton")
    return ppgp.fit(model, data, how, progress=False)


def peers() -> dict[str, tuple[Likelihood, Any]]:
    families = sm.families
    return {
        "gaussian": (laws.Gaussian(), families.Gaussian()),
        "gamma": (laws.Gamma(), families.Gamma(families.links.Log())),
        "gamma, inverse": (laws.Gamma(link="inverse"), families.Gamma()),
        "poisson": (laws.Poisson(), families.Poisson()),
        "negative binomial": (
            laws.NegativeBinomial(2.0),
            families.NegativeBinomial(alpha=0.5),
        ),
        "binomial": (laws.Binomial(), families.Binomial()),
        "bernoulli": (laws.Bernoulli(), families.Binomial()),
    }


@pytest.mark.filterwarnings("ignore:The InversePower link function")
@pytest.mark.parametrize("name", list(peers()))
def test_deviance_and_pearson_residuals(name: str) -> None:
    law, family = peers()[name]
    X, g = inputs(), np.random.default_rng(2)
    eta, columns = 0.3 * X[:, 0] - 0.2 * X[:, 1] + 0.4, {}
    mean = np.exp(eta)
    if name == "gaussian":
        y: Any = 40.0 + 7.0 * (eta + g.normal(size=N))
    elif name.startswith("gamma"):
        y = g.gamma(20.0, mean / 20)
    elif name == "bernoulli":
        y = (g.random(N) < 0.5).astype(float)
    elif name == "binomial":
        columns["trials"] = g.integers(1, 7, N).astype(float)
        y = g.binomial(columns["trials"].astype(int), 0.4).astype(float)
    else:
        y = g.negative_binomial(2.0, 2 / (2 + mean)).astype(float)
    endog = np.column_stack([y, columns["trials"] - y]) if columns else y
    other = sm.GLM(endog, sm.add_constant(X), family=family).fit(
        tol=1e-13, tol_criterion="params", maxiter=200
    )
    posterior = fit(law, X, y, **columns)
    for kind in ("deviance", "pearson"):
        theirs = getattr(other, f"resid_{kind}")
        np.testing.assert_allclose(posterior.residuals(kind), theirs, rtol=1e-7, atol=1e-7)
    assert posterior.deviance == pytest.approx(other.deviance, rel=1e-9)
    if name in ("poisson", "negative binomial", "binomial"):
        check = posterior.dispersion_check()
        assert check.statistic == pytest.approx(other.pearson_chi2, rel=1e-9)
        assert check.df == other.df_resid
        if name == "poisson":  # the others are not chi-squared to this precision
            assert check.p == pytest.approx(stats.chi2.sf(check.statistic, check.df), abs=0.05)


KNOWN: dict[str, Likelihood] = {
    "gaussian": laws.Gaussian(0.5),
    "student": laws.StudentT(4.0, 0.7),
    "laplace": laws.Laplace(0.6),
    "log-normal": laws.LogNormal(0.5),
    "weibull": laws.Weibull(1.7),
    "exponential": laws.Exponential(),
    "gamma": laws.Gamma(2.5),
    "beta": laws.Beta(6.0),
    "poisson": laws.Poisson(),
    "negative binomial": laws.NegativeBinomial(1.5),
    "binomial": laws.Binomial(trials=5),
    "bernoulli": laws.Bernoulli(),
    "probit": laws.Bernoulli("probit"),
    "ordinal": laws.Ordinal(cutpoints=(-0.4, 0.3, 1.0)),
    "zero-inflated": laws.ZeroInflated(laws.Poisson(), 0.3),
}


@pytest.mark.parametrize("name", list(KNOWN))
def test_quantile_residuals_are_standard_normal_under_the_truth(name: str) -> None:
    law, n = KNOWN[name], 500
    model = GLM(law, 0.4, None if isinstance(law, laws.Ordinal) else 0.2)
    X = torch.as_tensor(inputs(n))
    with seeded(3), pyro.get_param_store().scope():
        y = model.model(X).to(F64)
    posterior = ppgp.fit(model, Dataset(X, y), MAP(), progress=False, standardise=False)
    found = posterior.residuals("quantile", seed=1).numpy()
    # 18 likelihoods at 1e-3 each
    assert stats.kstest(found, "norm").pvalue > 1e-3
    wrong = ppgp.fit(
        GLM(law, -1.5, model.bias), Dataset(X, y), MAP(), progress=False, standardise=False
    )
    assert stats.kstest(wrong.residuals("quantile").numpy(), "norm").pvalue < 1e-3
    discrete = name in ("poisson", "negative binomial", "binomial", "bernoulli", "probit")
    discrete = discrete or name in ("ordinal", "zero-inflated")
    other = posterior.residuals("quantile", seed=2).numpy()
    assert np.array_equal(found, other) != discrete


@pytest.mark.parametrize("name", list(KNOWN))
def test_the_saturated_density_is_the_greatest(name: str) -> None:
    law = KNOWN[name]
    X = torch.zeros(40, 1, dtype=F64)
    with seeded(5), pyro.get_param_store().scope():
        y = GLM(law, 0.4, None if isinstance(law, laws.Ordinal) else 0.2).model(X).to(F64)
    f = law.most_probable(y)
    if f is None:
        assert name in ("beta", "ordinal", "zero-inflated")
        return
    most = law.distribution({}, f).log_prob(y)
    assert bool(torch.isfinite(most).all())
    for step in (-1.0, -1e-3, 1e-3, 1.0):
        assert bool((law.distribution({}, f + step).log_prob(y) <= most + 1e-12).all())


def test_residuals_of_far_outliers_are_finite() -> None:
    X = inputs()
    y = X[:, 0] + 0.1 * X[:, 1]
    y[3] = 1e4
    model = GLM(laws.Gaussian(0.01), 1.0, 0.0)
    posterior = ppgp.fit(model, Dataset(X, y), MAP(), progress=False, standardise=False)
    found = posterior.residuals("quantile")
    expected = (y[3] - X[3].sum()) / 0.1
    assert float(found[3]) == pytest.approx(expected, rel=1e-6)


def test_quantile_residuals_of_other_models() -> None:
    """They average over the draws, and leave one out where this has a closed form."""
    X = inputs()
    g = np.random.default_rng(4)
    data = Dataset(X, X[:, 0] + 0.3 * g.normal(size=N))
    several = ppgp.fit(LinearRegression(), data, Laplace(draws=50), progress=False)
    found = several.residuals("quantile")
    expected = torch.special.ndtri(several.predict(data.X).cdf(data.y))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    gp = ppgp.fit(GP(), data, MAP(), progress=False)
    expected = torch.special.ndtri(gp.loo().cdf(data.y))
    torch.testing.assert_close(gp.residuals("quantile"), expected, rtol=1e-6, atol=1e-6)


def test_overdispersion_is_found() -> None:
    X, g = inputs(400), np.random.default_rng(6)
    mean = np.exp(1.0 + 0.4 * X[:, 0])
    same = fit(laws.Poisson(), X, g.poisson(mean).astype(float)).dispersion_check()
    more = fit(laws.Poisson(), X, g.negative_binomial(2, 2 / (2 + mean)).astype(float))
    less = fit(laws.Poisson(), X, np.round(mean)).dispersion_check()
    assert "varies as Poisson says" in str(same)
    assert abs(same.ratio - 1) < 4 * (2 / 397) ** 0.5
    assert "varies more than Poisson says" in str(more.dispersion_check())
    assert "varies less than Poisson says" in str(less)


def test_the_check_of_the_dispersion_has_the_spread_of_its_statistic() -> None:
    """The squares of skewed residuals vary more than chi-squared ones, here twice as much."""
    law, X, repeats = laws.Gamma(0.3), inputs(400), 30
    f, p = torch.as_tensor(1.0 + 0.4 * X[:, 0]), []
    with seeded(5):
        for _ in range(repeats):
            y = law.distribution({}, f).sample()
            p.append(fit(law, X, y).dispersion_check().p)
    z = stats.norm.ppf(np.array(p))  # of standard deviation 1
    assert abs(z.std() - 1) < 4 / (2 * repeats) ** 0.5


@pytest.mark.parametrize(
    "law",
    [laws.Poisson(), laws.NegativeBinomial(1.5), laws.Binomial(4)],
    ids=["poisson", "negative binomial", "binomial"],
)
@pytest.mark.parametrize("zeros", [False, True])
def test_skewness_and_kurtosis_of_counts_are_those_of_their_sums(law: Any, zeros: bool) -> None:
    if zeros:
        if isinstance(law, laws.Binomial):
            return
        law = laws.ZeroInflated(law, 0.3)
    d = law.distribution({}, torch.tensor([0.7], dtype=F64))
    y = torch.arange(5 if isinstance(law, laws.Binomial) else 400, dtype=F64)
    mass = torch.stack([d.log_prob(value[None]) for value in y])[:, 0].exp()
    z = (y - d.mean) / d.variance.sqrt()
    found = skewness_and_kurtosis(d)
    assert found is not None
    assert float(found[0]) == pytest.approx(float(mass @ z**3), rel=1e-9)
    assert float(found[1]) == pytest.approx(float(mass @ z**4) - 3, rel=1e-9)


def test_refusals() -> None:
    X = inputs()
    y = np.arange(N) % 3.0
    counts = fit(laws.Poisson(), X, y)
    with pytest.raises(UnknownName, match="did you mean 'pearson'"):
        counts.residuals("pearsons")
    with pytest.raises(NotApplicable, match="fit by MAP"):
        fit(laws.Poisson(), X, y, Laplace(draws=9)).residuals("deviance")
    ordered = fit(laws.Ordinal(cutpoints=FLAT), X, y)
    for kind in ("deviance", "pearson"):
        with pytest.raises(NotApplicable, match="quantile"):
            ordered.residuals(kind)
    assert not hasattr(ordered, "deviance")
    student = fit(laws.StudentT(1.5, 1.0), X, y)
    with pytest.raises(NotApplicable, match="finite variance"):
        student.residuals("pearson")
    labels = ppgp.fit(SoftmaxRegression(), Dataset(X, y), MAP(), progress=False)
    with pytest.raises(NotApplicable, match="ordered classes"):
        labels.residuals("quantile")
    for law, target in ((laws.Bernoulli(), y > 0), (laws.Gaussian(), y)):
        with pytest.raises(NotApplicable, match="dispersion"):
            fit(law, X, target).dispersion_check()
    program = ppgp.fit(
        lambda x: pyro.sample("a", pyro.distributions.Normal(x, 1.0)),
        {"x": torch.zeros(())},
        Laplace(draws=5),
        progress=False,
    )
    with pytest.raises(NotApplicable, match="a model on a table"):
        program.residuals()
    two = fit(laws.Gaussian(Predicted()), X, y)
    torch.testing.assert_close(two.residuals("deviance"), two.residuals("pearson"))
