"""Properties of every likelihood in ``ppgp.likelihoods.__all__``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import constraints

from ppgp import fit, inference, likelihoods, models, priors
from ppgp.data import Dataset
from ppgp.distributions import univariate
from ppgp.errors import DataError, SettingError
from ppgp.likelihoods import Bernoulli, Categorical, Likelihood, Parametric, Predicted, Scored
from ppgp.likelihoods.base import hermite
from ppgp.models.sites import medians
from ppgp.posterior.prediction import Prediction
from ppgp.recipes import parsing as recipes
from ppgp.runtime.seeding import seeded

F64 = torch.float64
#: likelihoods whose defaults need something from the data
SPELT_OUT: dict[str, Likelihood] = {
    "Binomial": likelihoods.Binomial(trials=12),
    "Categorical": Categorical(3),
    "FromDistribution": likelihoods.FromDistribution(
        lambda f: torch.distributions.Normal(f[..., 0, :], (0.5 * f[..., 1, :]).exp()), 2
    ),
    "Ordinal": likelihoods.Ordinal(classes=3),
    "ZeroInflated": likelihoods.ZeroInflated(likelihoods.Poisson()),
}
MEMBERS = {
    n: SPELT_OUT.get(n) or getattr(likelihoods, n)()
    for n in likelihoods.__all__
    if n not in ("Likelihood", "Predicted")
}
MEMBERS["probit"] = Bernoulli("probit")
MEMBERS["upper quantile"] = likelihoods.AsymmetricLaplace(0.9, 0.7)
MEMBERS["heavy tails"] = likelihoods.StudentT(2.1, 0.5)
MEMBERS["heteroscedastic"] = likelihoods.Gaussian(noise=Predicted())
MEMBERS["predicted scale"] = likelihoods.StudentT(df=6.0, scale=Predicted())
MEMBERS["predicted shape"] = likelihoods.Gamma(shape=Predicted())
MEMBERS["dispersed"] = likelihoods.NegativeBinomial(shape=Predicted())
MEMBERS["predicted precision"] = likelihoods.Beta(precision=Predicted())
MEMBERS["ordered probit"] = likelihoods.Ordinal("probit", classes=4)
MEMBERS["ordered cloglog"] = likelihoods.Ordinal("cloglog", (-0.5, 0.4))
MEMBERS["predicted zeros"] = likelihoods.ZeroInflated(likelihoods.Poisson(), Predicted())
MEMBERS["more zeros"] = likelihoods.ZeroInflated(likelihoods.NegativeBinomial(), 0.2)
each = pytest.mark.parametrize("lik", MEMBERS.values(), ids=MEMBERS.keys())
member = pytest.mark.parametrize(
    "lik",
    [m for n, m in MEMBERS.items() if n in likelihoods.__all__],
    ids=lambda m: type(m).__name__,
)
ROWS = 6


def theta_of(lik: Likelihood) -> dict[str, Tensor]:
    """Return every site at the median of its prior, as one draw."""
    return {k: v[None] for k, v in medians(lik.sites(), torch.zeros(1, 1, dtype=F64), 0).items()}


def moments(lik: Likelihood, draws: int = 1) -> tuple[Tensor, Tensor]:
    """Return mean and variance [draw, (K,) n] of f."""
    g = torch.Generator().manual_seed(1)
    shape = (draws, lik.latents, ROWS) if lik.latents > 1 else (draws, ROWS)
    variance = torch.linspace(0.05, 1.5, ROWS, dtype=F64)
    return torch.randn(shape, generator=g, dtype=F64), variance.expand(shape)


def targets(lik: Likelihood, theta: dict[str, Tensor], mean: Tensor, variance: Tensor) -> Tensor:
    """Return y [n] drawn from the likelihood."""
    with seeded(2):
        y = (
            lik.distribution(theta, mean + variance.sqrt() * torch.randn_like(mean))
            .sample()[0]
            .to(F64)
        )
    if isinstance(lik, likelihoods.Beta):
        return y.clamp(1e-4, 1 - 1e-4)  # single precision would round others to 0 or 1
    return y


def average(
    lik: Likelihood, mean: Tensor, variance: Tensor, of: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return E of(f) by quadrature that is far finer than that of the library.

    ``of`` maps f [nodes, (K,) n] to [nodes, n].
    """
    if lik.latents <= 2:
        x = torch.linspace(-9, 9, 4001 if lik.latents == 1 else 401, dtype=F64)
        one = torch.exp(-0.5 * x.square())
        one = one / one.sum()
        x, weight = x[:, None], one
        if lik.latents == 2:
            x = torch.cartesian_prod(x[:, 0], x[:, 0])[..., None]
            weight = torch.outer(one, one).flatten()
    else:
        nodes, one = hermite(32, mean)
        x = torch.cartesian_prod(*[nodes] * lik.latents)[..., None]
        weight = torch.cartesian_prod(*[one] * lik.latents).prod(-1)
    return torch.tensordot(weight, of(mean[0] + variance[0].sqrt() * x), 1)


def close(lik: Likelihood, found: Tensor, exact: Tensor) -> None:
    """Averages over several functions use some 100 quasi-random points, with errors near 0.01."""
    tolerance = 2e-4 if lik.latents == 1 else 2e-2
    torch.testing.assert_close(found, exact, rtol=tolerance, atol=tolerance)


@each
def test_expected_is_the_average_of_the_log_density(lik: Likelihood) -> None:
    theta, (mean, variance) = theta_of(lik), moments(lik)
    y = targets(lik, theta, mean, variance)
    close(
        lik,
        lik.expected(theta, mean, variance, y)[0],
        average(lik, mean, variance, lambda f: lik.distribution(theta, f).log_prob(y)),
    )


@each
def test_marginal_is_the_average_of_the_density(lik: Likelihood) -> None:
    theta, (mean, variance) = theta_of(lik), moments(lik)
    y = targets(lik, theta, mean, variance)
    exact = average(
        lik, mean, variance, lambda f: lik.distribution(theta, f).log_prob(y).exp()
    ).log()
    close(lik, lik.marginal(theta, mean, variance).log_prob(y)[0], exact)


@each
def test_mean_and_variance_of_the_marginal_are_those_of_its_average(lik: Likelihood) -> None:
    theta, (mean, variance) = theta_of(lik), moments(lik)
    marginal = lik.marginal(theta, mean, variance)
    if isinstance(marginal, torch.distributions.Categorical):  # its mean is not a number
        close(
            lik,
            marginal.probs[0].mT,
            average(
                lik, mean, variance, lambda f: lik.distribution(theta, f).probs.movedim(-1, -2)
            ),
        )
        return
    first, second = (
        average(
            lik,
            mean,
            variance,
            lambda f, p=p: (
                lik.distribution(theta, f).mean ** p + (p - 1) * lik.distribution(theta, f).variance
            ),
        )
        for p in (1, 2)
    )
    close(lik, marginal.mean[0], first)
    close(lik, marginal.variance[0], second - first.square())


@each
def test_draws_and_cdf_of_the_prediction_agree(lik: Likelihood) -> None:
    """Quantiles, intervals, CRPS and PIT are computed from the cdf."""
    theta, (mean, variance) = theta_of(lik), moments(lik)
    prediction = Prediction(lik.marginal(theta, mean, variance))
    n = 4000
    with seeded(3):
        draws = prediction.distribution.sample(torch.Size([n]))[:, 0].to(F64)
    y = targets(lik, theta, mean, variance)
    if prediction.kind == "classes":
        found, exact = (draws == y).to(F64).mean(0), prediction.log_prob(y).exp()
    else:
        found, exact = (draws <= y).to(F64).mean(0), prediction.cdf(y)
    error = (exact * (1 - exact) / n).clamp_min(1 / n**2).sqrt()
    assert bool(((found - exact).abs() < 5 * error).all())


def test_a_student_t_of_two_degrees_of_freedom_has_no_variance() -> None:
    distribution = likelihoods.StudentT(2.0, 0.5).marginal(
        {}, torch.zeros(1, 3, dtype=F64), torch.ones(1, 3, dtype=F64)
    )
    assert torch.isinf(distribution.variance).all()
    assert torch.isinf(distribution.expand((2, 3)).variance).all()


@each
def test_the_gradient_of_expected_is_that_of_finite_differences(lik: Likelihood) -> None:
    """Natural gradients use it."""
    theta, (mean, variance) = theta_of(lik), moments(lik)
    y = targets(lik, theta, mean, variance)
    inputs = [x.clone().requires_grad_() for x in (mean, variance)]
    assert torch.autograd.gradcheck(lambda m, v: lik.expected(theta, m, v, y), inputs)


@each
def test_a_batch_of_draws_is_a_loop_and_rows_can_be_taken(lik: Likelihood) -> None:
    mean, variance = moments(lik, 2)
    theta = {k: torch.cat([v, 1.5 * v]) for k, v in theta_of(lik).items()}
    y = targets(lik, {k: v[:1] for k, v in theta.items()}, mean[:1], variance[:1])
    marginal, value = lik.marginal(theta, mean, variance), lik.expected(theta, mean, variance, y)
    assert marginal.batch_shape == value.shape == (2, ROWS)
    for i in (0, 1):
        one, m, v = (
            {k: x[i : i + 1] for k, x in theta.items()},
            mean[i : i + 1],
            variance[i : i + 1],
        )
        torch.testing.assert_close(value[i], lik.expected(one, m, v, y)[0])
        torch.testing.assert_close(marginal.log_prob(y)[i], lik.marginal(one, m, v).log_prob(y)[0])
    some = univariate.take(marginal, torch.tensor([4, 1]))
    torch.testing.assert_close(some.log_prob(y[[4, 1]]), marginal.log_prob(y)[:, [4, 1]])


@each
def test_a_known_f_gives_the_distribution_of_y_given_f(lik: Likelihood) -> None:
    theta, (mean, variance) = theta_of(lik), moments(lik)
    y, none = targets(lik, theta, mean, variance), torch.full_like(variance, 1e-14)
    exact = lik.distribution(theta, mean).log_prob(y)
    torch.testing.assert_close(lik.expected(theta, mean, none, y), exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        lik.marginal(theta, mean, none).log_prob(y), exact, rtol=1e-5, atol=1e-5
    )


@each
def test_float32_stays_and_agrees(lik: Likelihood) -> None:
    theta, (mean, variance) = theta_of(lik), moments(lik)
    y = targets(lik, theta, mean, variance)
    single: Any = ({k: v.float() for k, v in theta.items()}, mean.float(), variance.float())
    for found, exact in (
        (lik.expected(*single, y.float()), lik.expected(theta, mean, variance, y)),
        (
            lik.marginal(*single).log_prob(y.float()),
            lik.marginal(theta, mean, variance).log_prob(y),
        ),
    ):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), exact, rtol=1e-3, atol=1e-3)


@each
def test_it_accepts_what_it_draws_and_nothing_else(lik: Likelihood) -> None:
    """It also declares that y is not scaled if that would leave the support."""
    theta, (mean, variance) = theta_of(lik), moments(lik)
    X, y = torch.zeros(ROWS, 1, dtype=F64), targets(lik, theta, mean, variance)
    assert type(lik.prepare(Dataset(X, y))) is type(lik)
    if lik.distribution(theta, mean).support is constraints.real:
        return
    assert "y" not in lik.scales
    with pytest.raises(DataError):
        lik.prepare(Dataset(X, y - 1000.5))


@member
def test_sites_can_be_drawn_and_a_fixed_number_is_respected(lik: Likelihood) -> None:
    mean, variance = moments(lik)
    theta = theta_of(lik)
    y = targets(lik, theta, mean, variance)
    priced = [f.name for f in fields(lik) if isinstance(getattr(lik, f.name), priors.Prior)]  # type: ignore[arg-type]
    assert set(lik.sites()) == set(priced)
    for name in priced:
        number = theta[name][0].tolist()  # cutpoints are several
        value = tuple(number) if isinstance(number, list) else number
        fixed: Any = replace(lik, **{name: value})  # type: ignore[type-var]
        rest = {k: v for k, v in theta.items() if k != name}
        assert fixed.sites()[name].fixed
        torch.testing.assert_close(
            fixed.expected(rest, mean, variance, y), lik.expected(theta, mean, variance, y)
        )
        torch.testing.assert_close(
            fixed.marginal(rest, mean, variance).log_prob(y),
            lik.marginal(theta, mean, variance).log_prob(y),
        )


# -- the unit of y ---------------------------------------------------------------------------------


def at_numbers(lik: Likelihood) -> Any:
    """Return the likelihood with a number in place of each prior."""
    sites = lik.sites()
    return lik.replaced(dict.fromkeys(sites, 0.7)) if sites else lik


@each
def test_a_density_is_the_same_in_any_unit_of_y(lik: Likelihood) -> None:
    """Numbers and draws of parameters follow ``dimensions``; f is in the unit of y."""
    if "y" not in lik.scales or isinstance(lik, likelihoods.FromDistribution):
        return
    theta, (mean, variance) = theta_of(lik), moments(lik)
    y, sd = targets(lik, theta, mean, variance), 40.0
    f = mean.clone()
    first = f if lik.latents == 1 else f[..., 0, :]
    first *= sd
    unit = {name: lik.dimensions.get(name, 0) * math.log(sd) for name in lik.predicted}
    for k, name in enumerate(lik.predicted, 1):
        f[..., k, :] += unit[name]
    of_data = {name: value * lik.factors(sd)[name] for name, value in theta.items()}
    density = lik.distribution(of_data, f).log_prob(sd * y)
    exact = lik.in_units(sd).distribution(theta, mean).log_prob(y) - math.log(sd)
    torch.testing.assert_close(density, exact)
    fixed = at_numbers(lik)
    density = fixed.distribution({}, f).log_prob(sd * y)
    exact = fixed.in_units(sd).distribution({}, mean).log_prob(y) - math.log(sd)
    torch.testing.assert_close(density, exact)


def test_a_number_whose_unit_is_not_stated_is_refused() -> None:
    class Unstated(likelihoods.Laplace):
        dimensions = {}

    data = Dataset([[0.0], [1.0], [2.0]], [0.0, 10.0, 50.0])
    for scale in (5.0, Predicted(5.0), priors.InUnitsOfData(priors.LogNormal(0.0, 1.0))):
        with pytest.raises(SettingError, match="Unstated that defines the unit of scale"):
            Unstated(scale).in_units(2.0)
        Unstated(scale).in_units(1.0)
    assert Unstated().in_units(2.0) == Unstated()  # a prior is on the scale of the model
    with pytest.raises(SettingError, match=r"\{'scale': 0\} if it has no unit"):
        fit(models.GLM(Unstated(5.0)), data, inference.MAP(), progress=False)


# -- the hooks of a likelihood with scores ---------------------------------------------------------


def scored(lik: Likelihood) -> tuple[Any, dict[str, Tensor], Tensor]:
    """Return a likelihood, its parameters as functions of x; theta; and f [K, 2]."""
    law: Any = lik
    if isinstance(lik, Parametric):
        free = [name for name in lik.parameters if isinstance(lik.given(name), priors.Prior)]
        law = lik.replaced(dict.fromkeys(free, Predicted()))
    g = torch.Generator().manual_seed(4)
    f = 0.5 * torch.randn(len(law._coordinates()), 2, generator=g, dtype=F64) + 0.4
    if law.positive_f:
        f[0] = f[0].exp()
    if isinstance(law, likelihoods.Beta):
        f[1] += 3.0  # shares that are not beside 0 or 1, where 1 - y loses digits
    return law, {name: value[0] for name, value in theta_of(law).items()}, f


def given_functions(law: Any, theta: dict[str, Tensor], f: Tensor) -> Any:
    """Return the distribution of y, batch [n]."""
    return law.distribution(theta, f if law.latents > 1 else f[..., 0, :])


def drawn(law: Any, theta: dict[str, Tensor], f: Tensor) -> Tensor:
    with seeded(6):
        return given_functions(law, theta, f).sample().to(F64)


hooks = pytest.mark.parametrize(
    "lik",
    [m for m in MEMBERS.values() if isinstance(m, Scored)],
    ids=[n for n, m in MEMBERS.items() if isinstance(m, Scored)],
)


@hooks
def test_the_score_is_minus_the_log_density_and_its_slopes_are_those_of_autograd(
    lik: Likelihood,
) -> None:
    """By f and by the log or logit of each parameter."""
    law, theta, f = scored(lik)
    y = drawn(law, theta, f)
    at = f.clone().requires_grad_()
    density = given_functions(law, theta, at).log_prob(y)
    torch.testing.assert_close(-law.score(theta, f, y), density.detach())
    (slopes,) = torch.autograd.grad(density.sum(), at, create_graph=True)
    first, second = law.slopes(theta, f, y)
    torch.testing.assert_close(first, slopes.detach(), rtol=1e-6, atol=1e-8)
    for k, slope in enumerate(slopes):
        bend = None  # autograd gives a straight line no graph
        if slope.requires_grad:
            (bend,) = torch.autograd.grad(slope.sum(), at, retain_graph=True, allow_unused=True)
        exact = torch.zeros_like(f) if bend is None else bend
        torch.testing.assert_close(second[k], exact[k], rtol=1e-6, atol=1e-8)


@hooks
def test_the_metric_of_the_log_score_is_the_mean_product_of_its_slopes(lik: Likelihood) -> None:
    """The Fisher information, by a sum over counts or the trapezoidal rule over y."""
    law, theta, f = scored(lik)
    for row in range(f.shape[1]):
        one = f[:, row : row + 1]
        d = given_functions(law, theta, one)
        if univariate.is_classes(d):
            y = torch.arange(univariate.probabilities(d).shape[-1], dtype=F64)
        elif univariate.is_discrete(d):
            y = torch.arange(1 + float(getattr(d.support, "upper_bound", 400)), dtype=F64)
        else:
            z = torch.linspace(-6.0, 6.0, 24, dtype=F64)
            edges = Prediction(d.expand((1, 1))).quantile(torch.special.ndtr(z))[:, 0]
            parts = torch.linspace(0.0, 1.0, 65, dtype=F64)[1:, None]
            y = (edges[:-1] + parts * edges.diff()).mT.flatten()
        every = one.expand(-1, len(y))
        slopes = law.gradient(theta, every, y)
        products = slopes[:, None] * slopes * torch.exp(-law.score(theta, every, y))
        exact = products.sum(-1)
        if not univariate.is_discrete(d) and not univariate.is_classes(d):
            exact = torch.trapezoid(products, y)
        torch.testing.assert_close(law.metric(theta, one)[0], exact, rtol=5e-3, atol=2e-3)


@hooks
def test_the_gradient_of_each_score_is_that_of_differences(lik: Likelihood) -> None:
    law, theta, f = scored(lik)
    y, h = drawn(law, theta, f), 1e-4
    for kind in law.kinds:
        found = law.gradient(theta, f, y, kind)
        for k in range(len(f)):
            step = torch.zeros_like(f)
            step[k] = h
            rise = law.score(theta, f + step, y, kind) - law.score(theta, f - step, y, kind)
            torch.testing.assert_close(found[k], rise / (2 * h), rtol=1e-4, atol=1e-6)


@each
def test_the_repr_builds_it_and_the_docstring_names_a_source(lik: Likelihood) -> None:
    if isinstance(lik, likelihoods.FromDistribution):
        with pytest.raises(SettingError, match="expected a recipe"):  # no text holds a function
            recipes.read(repr(lik), [priors, likelihoods], "Likelihood")
        built: Any = replace(lik)
    else:
        built = recipes.read(repr(lik), [priors, likelihoods], "Likelihood")
    assert built == lik
    assert hash(built) == hash(lik)
    assert re.search(r"(19|20)\d\d", type(lik).__doc__ or "")
