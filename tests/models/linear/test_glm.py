"""Generalised linear models: derivatives, equal models, agreement of methods, and refusals."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pyro
import pytest
import torch
from scipy import integrate, stats

import ppgp
from ppgp import priors
from ppgp.data import Dataset
from ppgp.density import Target
from ppgp.errors import DataError, NotApplicable, NumericalError, SettingError
from ppgp.inference import MAP, NUTS, SVI, Exact, Laplace
from ppgp.likelihoods import (
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Exponential,
    FromDistribution,
    Gamma,
    Gaussian,
    Likelihood,
    LogNormal,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Predicted,
    StudentT,
    Weibull,
    ZeroInflated,
)
from ppgp.models import GLM, LinearRegression, LogisticRegression, SoftmaxRegression
from ppgp.priors import Flat, InUnitsOfData, Normal
from ppgp.runtime.seeding import seeded

F64 = torch.float64
FLAT = Flat()
LAWS: dict[str, Likelihood] = {
    "gaussian": Gaussian(),
    "gaussian, two": Gaussian(Predicted()),
    "student": StudentT(),
    "student, three": StudentT(Predicted(), Predicted()),
    "log-normal": LogNormal(),
    "weibull": Weibull(),
    "exponential": Exponential(),
    "gamma": Gamma(),
    "gamma, two": Gamma(Predicted()),
    "poisson": Poisson(),
    "negative binomial": NegativeBinomial(),
    "negative binomial, two": NegativeBinomial(Predicted()),
    "known shape": NegativeBinomial(1.5),
    "beta": Beta(),
    "beta, two": Beta(Predicted()),
    "bernoulli": Bernoulli(),
    "probit": Bernoulli("probit"),
    "binomial": Binomial(trials=5),
    "categorical": Categorical(3),
    "ordinal": Ordinal(classes=4),
    "ordinal, probit": Ordinal("probit", FLAT, classes=4),
    "ordinal, cloglog": Ordinal("cloglog", classes=3),
    "known cutpoints": Ordinal(cutpoints=(-0.4, 0.9)),
    "zero-inflated": ZeroInflated(Poisson()),
    "zero-inflated, shape": ZeroInflated(NegativeBinomial(), Predicted()),
}
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
every_law = pytest.mark.parametrize("name", list(LAWS))


def drawn(law: Likelihood, n: int = 60, d: int = 2, seed: int = 1) -> Dataset:
    """Return rows drawn from the model with moderate coefficients."""
    small = Normal(0.0, 0.3)
    model = GLM(law, small, None if isinstance(law, Ordinal) else small)
    with seeded(seed), pyro.get_param_store().scope():
        X = torch.randn(n, d, dtype=F64)
        y = model.model(X).to(F64)
    if isinstance(law, Beta):
        y = y.clamp(1e-3, 1 - 1e-3)
    return Dataset(X, y)


def fit(model: Any, data: Dataset, how: Any, **options: Any) -> ppgp.Posterior:
    return ppgp.fit(model, data, how, progress=False, **options)


# -- derivatives ----------------------------------------------------------------------------------


@every_law
@pytest.mark.parametrize("jacobian", [True, False])
def test_the_formula_has_the_derivatives_of_the_density(name: str, jacobian: bool) -> None:
    data = drawn(LAWS[name])
    target = Target(GLM(LAWS[name]).prepare(data), data)
    assert target.has_curvature
    z = target.start(0, 0.3, compile=False)
    value, gradient, H = target.curvature(z, jacobian=jacobian)
    density, slope = target.value_and_grad(z, jacobian=jacobian, compile=False)
    torch.testing.assert_close(value, density, rtol=1e-12, atol=1e-10)
    torch.testing.assert_close(gradient, slope, rtol=1e-9, atol=1e-8)
    exact = target.hessian(z, jacobian=jacobian)
    size = float(exact.abs().max())
    torch.testing.assert_close(H / size, exact / size, rtol=0, atol=2e-9)


@every_law
def test_the_fisher_information_is_positive(name: str) -> None:
    data = drawn(LAWS[name])
    model = GLM(LAWS[name], FLAT, None)
    target = Target(model, data)
    z = target.start(0, 0.5, compile=False)
    expected = target.curvature(z, jacobian=False, expected=True)
    # flat weights of all classes have a direction that changes nothing
    least = float(torch.linalg.eigvalsh(-expected[2]).min())
    assert least > (-1e-9 if name == "categorical" else 0.0)


@every_law
def test_newton_ends_where_l_bfgs_does(name: str) -> None:
    data = drawn(LAWS[name])
    target = Target(GLM(LAWS[name]).prepare(data), data)
    newton, other = MAP("newton")(target), MAP()(target)
    assert not newton.warnings
    assert newton.stats["steps"] <= 20
    gap = newton.stats["log_density"] - other.stats["log_density"]
    assert -1e-9 < gap < 1e-4


def test_newton_comes_back_from_far_away() -> None:
    """Steps are halved until the density rises, and Fisher scoring serves where it is convex."""
    for name in ("student", "beta", "negative binomial", "poisson", "gamma, two"):
        data = drawn(LAWS[name])
        target = Target(GLM(LAWS[name]).prepare(data), data)
        best = MAP("newton")(target).stats["log_density"]
        z = target.origin() + 2.5
        found = MAP("newton")(target, init=z)
        assert found.stats["log_density"] == pytest.approx(best, abs=1e-6), name


# -- equal models ---------------------------------------------------------------------------------


@quiet
@pytest.mark.parametrize("prior", [Normal(0.0, 1.0), FLAT], ids=repr)
def test_bernoulli_is_logistic_regression(prior: priors.Prior) -> None:
    data = drawn(Bernoulli(), 200, 3)
    for how, near in ((MAP("newton"), 1e-9), (MAP(), 1e-5), (Laplace(), 1e-9)):
        one, other = (
            fit(model, data, how)
            for model in (GLM(Bernoulli(), prior, prior), LogisticRegression(prior, prior))
        )
        for site in ("weight", "bias"):
            torch.testing.assert_close(one.draws[site], other.draws[site], rtol=near, atol=near)
            coefficients = one.coefficients()[site], other.coefficients()[site]
            torch.testing.assert_close(*coefficients, rtol=near, atol=near)
        new = data.X[:5]
        found = one.predict(new).probabilities, other.predict(new).probabilities
        torch.testing.assert_close(*found, rtol=near, atol=near)
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-9)


def test_categorical_is_softmax_regression() -> None:
    data, prior = drawn(Categorical(3), 150), Normal(0.0, 1.0)
    one = fit(GLM(Categorical(), prior, prior), data, MAP("newton"))
    other = fit(SoftmaxRegression(), data, MAP("newton"))
    for name, value in other.coefficients().items():
        torch.testing.assert_close(one.coefficients()[name], value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("noise", [0.3, priors.LogNormal(-1.0, 1.5)])
def test_gaussian_is_linear_regression(noise: Any) -> None:
    data, prior = drawn(Gaussian(0.5)), Normal(0.0, 1.0)
    one = fit(GLM(Gaussian(noise), prior, prior), data, Exact())
    other = fit(LinearRegression(prior, prior, noise), data, Exact())
    assert one.log_evidence == other.log_evidence
    assert all(torch.equal(one.draws[name], value) for name, value in other.draws.items())
    new = data.X[:4]
    torch.testing.assert_close(one.predict(new).mean, other.predict(new).mean)
    torch.testing.assert_close(one.predict(new).variance, other.predict(new).variance)


def test_exact_needs_gaussian_noise() -> None:
    data = drawn(Poisson())
    for law in (Poisson(), Gaussian(Predicted())):
        with pytest.raises(NotApplicable, match="Gaussian noise of one variance"):
            fit(GLM(law), data, Exact())


# -- methods --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_all_methods_agree_on_counts() -> None:
    data = drawn(Poisson(), 1500)
    model = GLM(Poisson())
    reference = fit(model, data, NUTS(draws=1500, warmup=500))
    exact = torch.cat([reference.draws[n].reshape(6000, -1) for n in ("weight", "bias")], 1)
    for how in (Laplace(draws=4000), SVI("multivariate_normal", draws=4000)):
        found = fit(model, data, how)
        draws = torch.cat([found.draws[n].reshape(4000, -1) for n in ("weight", "bias")], 1)
        error = 4 * exact.std(0) / math.sqrt(1500)
        # the mean is that far from the mode, relative to the sd of order 1 / sqrt(n): .14 at n = 80
        shift = 0.05 * exact.std(0)
        assert bool(((draws.mean(0) - exact.mean(0)).abs() < error + shift).all()), how
        assert bool(((draws.std(0) / exact.std(0) - 1).abs() < 0.08).all()), how


@pytest.mark.parametrize("name", ["poisson", "known shape", "binomial", "bernoulli"])
def test_the_evidence_is_an_integral(name: str) -> None:
    data = drawn(LAWS[name], 200, 1)
    target = Target(GLM(LAWS[name]), data)
    found = Laplace()(target)
    top = float(target.value_and_grad(found.stats["mode"])[0])
    mode, sd = found.stats["mode"], found.stats["covariance"].diagonal().sqrt()

    def density(b: float, a: float) -> float:
        z = torch.tensor([a, b], dtype=F64)
        return math.exp(float(target.value_and_grad(z)[0]) - top)

    ends = [(float(m - 7 * s), float(m + 7 * s)) for m, s in zip(mode, sd, strict=True)]
    mass = integrate.dblquad(density, *ends[0], *ends[1], epsabs=1e-6)[0]
    assert found.log_evidence == pytest.approx(top + math.log(mass), abs=0.03)


def test_the_scale_of_ordered_classes_and_a_predicted_shape_are_recovered() -> None:
    g = torch.Generator().manual_seed(0)
    X = torch.randn(4000, 2, generator=g, dtype=F64)
    with seeded(1):
        y = NegativeBinomial(Predicted()).distribution(
            {}, torch.stack([0.5 + 0.6 * X[:, 0], 0.4 - 0.8 * X[:, 1]])
        )
        counts = y.sample()
        u = torch.rand(4000, generator=g, dtype=F64)
        latent = X @ torch.tensor([1.0, -0.5], dtype=F64) + torch.logit(u)
    two = fit(GLM(NegativeBinomial(Predicted())), Dataset(X, counts), MAP("newton"))
    weight = two.coefficients()["weight"][0, 0]
    torch.testing.assert_close(
        weight, torch.tensor([[0.6, 0.0], [0.0, -0.8]], dtype=F64), rtol=0, atol=0.12
    )
    classes = torch.bucketize(latent, torch.tensor([-1.0, 0.5, 2.0], dtype=F64)).double()
    ordered = fit(GLM(Ordinal(cutpoints=FLAT), FLAT), Dataset(X, classes), MAP("newton"))
    found = ordered.coefficients()
    torch.testing.assert_close(
        found["cutpoints"][0, 0], torch.tensor([-1.0, 0.5, 2.0], dtype=F64), rtol=0, atol=0.15
    )
    torch.testing.assert_close(
        found["weight"][0, 0], torch.tensor([1.0, -0.5], dtype=F64), rtol=0, atol=0.1
    )


# -- units ----------------------------------------------------------------------------------------

SHIFTED = ("gaussian", "gaussian, two", "poisson", "gamma, two", "ordinal, probit", "binomial")


@quiet
@pytest.mark.parametrize("name", SHIFTED)
def test_maximum_likelihood_is_the_same_on_both_scales(name: str) -> None:
    law: Any = LAWS[name]
    plain = drawn(law, 120)
    shift, scale = torch.tensor([5.0, -2.0], dtype=F64), torch.tensor([3.0, 0.2], dtype=F64)
    y = 7.0 + 4.0 * plain.y if "gaussian" in name else plain.y
    data = Dataset(plain.X * scale + shift, y)
    law = Gaussian(FLAT) if name == "gaussian" else law
    model = GLM(law, FLAT, None if isinstance(law, Ordinal) else FLAT)
    here = fit(model, data, MAP("newton"))
    there = fit(model, data, MAP("newton"), standardise=False)
    assert not there.warnings
    for one, other in (
        (here.coefficients(), there.coefficients()),
        (here.draws_in("data"), there.draws),
    ):
        assert set(one) == set(other)
        for site, value in other.items():
            torch.testing.assert_close(one[site], value, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(
        here.predict(data.X[:5]).log_prob(data.y[:5]),
        there.predict(data.X[:5]).log_prob(data.y[:5]),
    )


def test_priors_in_units_of_the_data() -> None:
    data = drawn(Poisson(), 80)
    moved = Dataset(10 * data.X, data.y)
    prior = InUnitsOfData(Normal(0.0, 0.01))
    one = fit(GLM(Poisson(), prior, FLAT), moved, MAP("newton"))
    two = fit(GLM(Poisson(), Normal(0.0, 0.01), FLAT), moved, MAP("newton"), standardise=False)
    torch.testing.assert_close(one.coefficients()["weight"], two.coefficients()["weight"])


def test_units_that_do_not_exist_are_refused() -> None:
    data = drawn(Gaussian(0.5))
    two = GLM(Gaussian(Predicted()), InUnitsOfData(Normal(0.0, 1.0)))
    with pytest.raises(SettingError, match="several functions, which differ in their units"):
        fit(two, Dataset(data.X + 3, 5 * data.y), MAP())
    ordered = drawn(Ordinal(cutpoints=(-0.4, 0.9)))
    with pytest.raises(SettingError, match="cutpoints in the units of the data beside fixed"):
        fit(GLM(Ordinal(cutpoints=(-0.4, 0.9))), Dataset(ordered.X + 3, ordered.y), MAP())


# -- what is refused ------------------------------------------------------------------------------


def rows(y: list[float]) -> Dataset:
    X = torch.arange(len(y), dtype=F64)[:, None] + 0.5
    return Dataset(X, torch.tensor(y, dtype=F64))


@pytest.mark.parametrize(
    ("law", "y", "words"),
    [
        (Poisson(), [0.0, -1.0, 2.0, 1.0], "got -1 in row 1"),
        (NegativeBinomial(), [0.0, 1.5, 2.0, 1.0], "got 1.5 in row 1"),
        (Binomial(trials=3), [0.0, 1.0, 2.0, 4.0], "got 4 of 3 in row 3"),
        (Gamma(), [0.0, 1.0, 2.0, 4.0], "positive targets in y, got 0 in row 0"),
        (Beta(), [0.1, 1.0, 0.2, 0.4], "got 1 in row 1"),
        (Beta(), [0.1, 0.3, 0.2, 0.0], "got 0 in row 3"),
        (Ordinal(), [0.0, 2.0, 0.0, 2.0], "none of category 1"),
    ],
    ids=str,
)
def test_targets_that_do_not_fit_are_named(law: Likelihood, y: list[float], words: str) -> None:
    with pytest.raises(DataError, match=words):
        fit(GLM(law), rows(y), MAP("newton"))


def test_an_intercept_beside_cutpoints_is_refused() -> None:
    for bias in (Normal(0.0, 1.0), FLAT, 0.7):
        with pytest.raises(SettingError, match=r"no intercept beside cutpoints.*leave bias out"):
            GLM(Ordinal(), bias=bias)


@quiet
def test_flat_weights_need_columns_that_determine_them() -> None:
    data = drawn(Poisson())
    X = torch.cat([data.X, data.X.sum(1, keepdim=True)], 1)
    with pytest.raises(DataError, match="combinations of one another"):
        fit(GLM(Poisson(), FLAT, FLAT), Dataset(X, data.y), MAP("newton"))
    constant = torch.cat([data.X, torch.full_like(data.X[:, :1], 0.1)], 1)
    for standardise in (True, False):
        one = Dataset(constant, data.y)
        with pytest.raises(DataError, match=r"or constant.*got 2"):
            fit(GLM(Poisson(), FLAT, FLAT), one, MAP("newton"), standardise=standardise)
    with pytest.raises(SettingError, match="proper priors with Categorical"):
        fit(GLM(Categorical(), FLAT), drawn(Categorical(3)), MAP("newton"))


def separated(how: Any, law: Likelihood, y: list[float]) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(GLM(law, FLAT, None if isinstance(law, Ordinal) else FLAT), rows(y), how)
    return " ".join(str(one.message) for one in caught)


def test_separated_classes_are_named() -> None:
    ordered = [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    for link in ("logit", "probit", "cloglog"):
        with pytest.raises(DataError, match=r"classes that overlap.*separate perfectly"):
            separated(MAP("newton"), Ordinal(link, FLAT), ordered)
        fit(GLM(Ordinal(link)), rows(ordered), MAP("newton"))
    mixed = [0.0, 1.0, 0.0, 1.0, 2.0, 1.0, 2.0]
    assert "separate" not in separated(MAP("newton"), Ordinal(cutpoints=FLAT), mixed)
    events = [0.0, 0.0, 0.0, 3.0, 3.0]
    assert "separate" in separated(MAP("newton"), Binomial(trials=3), events)
    assert "separate" not in separated(MAP("newton"), Binomial(trials=3), [0.0, 2.0, 1.0, 3.0])
    assert "separate" in separated(MAP("newton"), Bernoulli(), [0.0, 0.0, 0.0, 1.0, 1.0])


@pytest.mark.parametrize("law", [Poisson(), NegativeBinomial()], ids=["poisson", "nb"])
def test_separated_counts_are_named(law: Likelihood) -> None:
    """Where a group has no events, the likelihood rises as its coefficient falls."""
    group = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 0.0], dtype=F64)
    X = torch.stack([torch.arange(6, dtype=F64), group], 1)
    none = Dataset(X, torch.tensor([0.0, 0.0, 2.0, 0.0, 1.0, 3.0], dtype=F64))
    some = Dataset(X, torch.tensor([0.0, 1.0, 2.0, 0.0, 1.0, 3.0], dtype=F64))
    model = GLM(law, FLAT, FLAT)
    (found,) = model.check_identifiability(none)
    assert "where counts are positive" in found
    assert not model.check_identifiability(some)
    assert not GLM(law).check_identifiability(none)
    assert model.check_identifiability(Dataset(X, torch.zeros(6, dtype=F64)))


@quiet
def test_classes_that_touch_are_named() -> None:
    X = torch.tensor([[0.5], [1.5], [1.5], [2.5]], dtype=F64)
    touching = Dataset(X, torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=F64))
    (found,) = GLM(Ordinal(cutpoints=FLAT, classes=2), FLAT).check_identifiability(touching)
    assert "in part (quasi-separation)" in found


# -- the inverse link -----------------------------------------------------------------------------


def gamma_rows(n: int = 60) -> Dataset:
    g = torch.Generator().manual_seed(0)
    X = torch.rand(n, 2, generator=g, dtype=F64)
    with seeded(0):
        y = torch.distributions.Gamma(5.0, 5.0 * (0.4 + X[:, 0] + 2 * X[:, 1])).sample()
    return Dataset(X, y.double())


def test_a_start_in_the_domain_is_sought() -> None:
    """Without an intercept weights of 0 are outside."""
    data = gamma_rows()
    model = GLM(Gamma(FLAT, "inverse"), FLAT, 0.0)
    found = fit(model, data, MAP("newton"), standardise=False)
    assert not found.warnings
    assert bool((found.coefficients()["weight"] > 0).all())
    centred = Dataset(data.X - data.X.mean(0), data.y)
    with pytest.raises(DataError, match="some weights for which eta is positive in every row"):
        fit(model, centred, MAP("newton"), standardise=False)


def test_a_start_outside_the_domain_is_named() -> None:
    data = gamma_rows()
    target = Target(GLM(Gamma(2.0, "inverse"), FLAT, FLAT), data)
    with pytest.raises(NumericalError, match="such as eta <= 0 with the inverse link"):
        MAP("newton")(target, init=-torch.ones(target.dim, dtype=F64))


@pytest.mark.slow
def test_nuts_stays_in_the_domain() -> None:
    data = gamma_rows()
    model = GLM(Gamma(5.0, "inverse"), Normal(0.0, 1.0), Normal(0.0, 2.0))
    mode = fit(model, data, Laplace())
    chains = fit(model, data, NUTS(draws=500, warmup=500))
    a, b = mode.draws["weight"][0], chains.draws["weight"].flatten(0, 1)
    assert bool(((a.mean(0) - b.mean(0)).abs() < 0.4 * b.std(0)).all())
    assert bool((chains.predict(data.X).mean > 0).all())


def test_a_likelihood_from_elsewhere_is_fitted_by_l_bfgs() -> None:
    law = FromDistribution(lambda f: torch.distributions.Poisson(f[..., 0, :].exp()), 1)
    data = drawn(Poisson())
    one = fit(GLM(law), data, MAP())
    other = fit(GLM(Poisson()), data, MAP())
    torch.testing.assert_close(one.draws["weight"], other.draws["weight"], rtol=1e-4, atol=1e-5)


def test_published_mean_of_a_weibull() -> None:
    """The likelihood ratio of one group is that of SciPy's Weibull fit."""
    g = np.random.default_rng(0)
    y = stats.weibull_min(1.7, scale=3.0).rvs(200, random_state=g)
    X = torch.zeros(200, 1, dtype=F64)
    model = GLM(Weibull(FLAT), 0.0, FLAT)
    found = fit(model, Dataset(X, y), MAP("newton"), standardise=False)
    shape, _, scale = stats.weibull_min.fit(y, floc=0)
    assert float(found.draws["shape"]) == pytest.approx(shape, rel=1e-4)
    assert float(found.draws["bias"].exp()) == pytest.approx(scale, rel=1e-4)


# -- offset, trials and weights -------------------------------------------------------------------


@quiet
@pytest.mark.parametrize("name", ["poisson", "known shape", "binomial", "gamma, two", "ordinal"])
def test_a_constant_offset_moves_the_intercept_alone(name: str) -> None:
    data, law = drawn(LAWS[name], 80), LAWS[name]
    ordered = isinstance(law, Ordinal)
    law = Ordinal(cutpoints=FLAT) if ordered else law
    model = GLM(law, FLAT, None if ordered else FLAT)
    plain = fit(model, data, MAP("newton")).coefficients()
    moved = fit(model, Dataset(data.X, data.y, offset=0.7), MAP("newton"))
    found = moved.coefficients()
    torch.testing.assert_close(found["weight"], plain["weight"], rtol=1e-6, atol=1e-7)
    if ordered:
        torch.testing.assert_close(found["cutpoints"], plain["cutpoints"] + 0.7)
        return
    shift = torch.zeros(law.latents, dtype=F64)
    shift[0] = 0.7
    bias = plain["bias"] - (shift if law.latents > 1 else 0.7)
    torch.testing.assert_close(found["bias"], bias, rtol=1e-6, atol=1e-7)


def test_an_offset_is_the_log_exposure() -> None:
    """Rows that are added up, with their exposures, have the same estimates."""
    g = torch.Generator().manual_seed(0)
    X = torch.randint(0, 3, (300, 1), generator=g).double()
    exposure = torch.rand(300, generator=g, dtype=F64) + 0.2
    with seeded(0):
        y = torch.poisson(exposure * torch.exp(0.4 * X[:, 0] - 0.3))
    model = GLM(Poisson(), FLAT, FLAT)
    one = fit(model, Dataset(X, y, offset=exposure.log()), MAP("newton"), standardise=False)
    level = torch.arange(3, dtype=F64)
    totals = torch.stack([y[X[:, 0] == k].sum() for k in level])
    exposures = torch.stack([exposure[X[:, 0] == k].sum() for k in level])
    few = Dataset(level[:, None], totals, offset=exposures.log())
    other = fit(model, few, MAP("newton"), standardise=False)
    for name in ("weight", "bias"):
        torch.testing.assert_close(one.draws[name], other.draws[name], rtol=1e-8, atol=1e-9)
    near, far = (one.predict(X[:4], offset=math.log(k)).mean for k in (1.0, 10.0))
    torch.testing.assert_close(far, 10 * near)
    with pytest.raises(DataError, match="offset"):
        one.predict(X[:4])


WEIGHTED = ("gaussian", "poisson", "negative binomial", "ordinal", "binomial", "beta, two")


@quiet
@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.parametrize("how", [MAP("newton"), MAP(), Laplace()], ids=repr)
def test_a_weight_counts_rows(name: str, how: Any) -> None:
    """2 is the row twice and 0 the row absent, for the scaler and the evidence too."""
    data, model = drawn(LAWS[name], 40), GLM(LAWS[name])
    w = torch.ones(40, dtype=F64)
    w[::5], w[3::5] = 2.0, 0.0
    rows = torch.arange(40).repeat_interleave(w.long())
    model = model.prepare(data)
    one = fit(model, Dataset(data.X, data.y, weights=w), how)
    other = fit(model, data.rows(rows), how)
    if isinstance(how, MAP):
        found, exact = one.draws, other.draws
    else:  # equal eigenvalues of the Hessian leave the order of the noise open
        found, exact = ({n: p.stats[n] for n in ("mode", "covariance")} for p in (one, other))
        assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-6)
        assert one.bic == pytest.approx(other.bic, abs=1e-5)
    for key, value in exact.items():
        torch.testing.assert_close(found[key], value, rtol=1e-5, atol=1e-6)


def test_the_closed_form_takes_weights_and_an_offset() -> None:
    data = drawn(Gaussian(0.5), 40)
    w, offset = torch.ones(40, dtype=F64), data.X[:, 0]
    w[::5], w[3::5] = 2.0, 0.0
    rows = torch.arange(40).repeat_interleave(w.long())
    model = GLM(Gaussian(0.5))
    one = fit(model, Dataset(data.X, data.y, weights=w, offset=offset), Exact(), standardise=False)
    moved = Dataset(data.X, data.y - offset).rows(rows)
    other = fit(model, moved, Exact(), standardise=False)
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-9)
    new = data.X[:4]
    found = one.predict(new, offset=offset[:4])
    torch.testing.assert_close(found.mean, other.predict(new).mean + offset[:4])
    torch.testing.assert_close(found.variance, other.predict(new).variance)
    sampled = fit(model, one.data, Laplace(), standardise=False)
    assert sampled.log_evidence == pytest.approx(one.log_evidence, abs=1e-8)


def test_an_offset_beside_standardised_y_is_refused() -> None:
    data = drawn(Gaussian(0.5))
    with pytest.raises(SettingError, match="no offset where y is standardised"):
        fit(GLM(), Dataset(data.X, data.y, offset=1.0), MAP())


def test_columns_that_a_likelihood_does_not_use_are_refused() -> None:
    data = drawn(Poisson())
    with pytest.raises(NotApplicable, match="successes among trials, got GLM"):
        fit(GLM(Poisson()), Dataset(data.X, data.y, trials=30), MAP())
    shares = drawn(Binomial(trials=5))
    with pytest.raises(SettingError, match="trials of the rows for Binomial, got none"):
        fit(GLM(Binomial()), shares, MAP())
    with pytest.raises(SettingError, match="also trials=5 in Binomial"):
        fit(GLM(Binomial(trials=5)), Dataset(shares.X, shares.y, trials=5), MAP())
    with pytest.raises(DataError, match=r"as many events in y as trials, got . of 2 in row"):
        fit(GLM(Binomial()), Dataset(shares.X, shares.y, trials=2), MAP())
    classes = drawn(Categorical(3))
    with pytest.raises(NotApplicable, match="for an offset"):
        fit(GLM(Categorical()), Dataset(classes.X, classes.y, offset=1.0), MAP())


def test_trials_are_those_of_each_row(tmp_path: Any) -> None:
    """A row of several trials has the information of as many rows of one trial."""
    g = torch.Generator().manual_seed(0)
    X = torch.randn(30, 2, generator=g, dtype=F64)
    trials = torch.randint(1, 8, (30,), generator=g).double()
    with seeded(0):
        y = torch.distributions.Binomial(trials, logits=X[:, 0]).sample()
    one = fit(GLM(Binomial()), Dataset(X, y, trials=trials), MAP("newton"), standardise=False)
    rows = torch.arange(30).repeat_interleave(trials.long())
    first = torch.cat([torch.arange(int(k)) for k in trials]).double()
    each = Dataset(X[rows], (first < y[rows]).double())
    other = fit(GLM(Bernoulli()), each, MAP("newton"), standardise=False)
    for name in ("weight", "bias"):
        torch.testing.assert_close(one.draws[name], other.draws[name], rtol=1e-8, atol=1e-9)
    assert bool((one.predict(X, trials=trials).mean <= trials).all())
    again = ppgp.load_posterior(one.save(tmp_path / "events"))
    torch.testing.assert_close(
        again.predict(X, trials=trials).mean, one.predict(X, trials=trials).mean
    )
    assert again.log_likelihood().shape == (1, 1, 30)
