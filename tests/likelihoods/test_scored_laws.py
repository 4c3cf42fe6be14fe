"""Scores, gradients and metrics of likelihoods, against autograd, quadrature and solves."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from panels import nodes_and_weights
from scipy import integrate
from torch import Tensor

from ppgp.distributions import univariate
from ppgp.errors import NotApplicable, SettingError, UnknownName
from ppgp.likelihoods import (
    AsymmetricLaplace,
    Bernoulli,
    Beta,
    Binomial,
    Categorical,
    Exponential,
    Gamma,
    Gaussian,
    Laplace,
    LogNormal,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Predicted,
    StudentT,
    Weibull,
    ZeroInflated,
)
from ppgp.likelihoods.parametric import Parametric
from ppgp.likelihoods.scored import LARGEST_STEP, Scored
from ppgp.runtime.seeding import seeded

F64 = torch.float64
LAWS: dict[str, Scored] = {
    "gaussian": Gaussian(noise=Predicted()),
    "gaussian, known noise": Gaussian(noise=0.7),
    "log-normal": LogNormal(noise=Predicted()),
    "log-normal, known noise": LogNormal(noise=0.4),
    "laplace": Laplace(scale=Predicted()),
    "asymmetric laplace": AsymmetricLaplace(0.6, scale=Predicted()),
    "student": StudentT(df=5.0, scale=Predicted()),
    "student, all": StudentT(df=Predicted(), scale=Predicted()),
    "gamma": Gamma(shape=Predicted()),
    "gamma, known shape": Gamma(shape=1.7),
    "weibull": Weibull(shape=Predicted()),
    "weibull, known shape": Weibull(shape=1.7),
    "exponential": Exponential(),
    "poisson": Poisson(),
    "bernoulli": Bernoulli(),
    "probit": Bernoulli("probit"),
    "categorical": Categorical(3),
    "gamma, inverse": Gamma(shape=Predicted(), link="inverse"),
    "negative binomial": NegativeBinomial(shape=Predicted()),
    "negative binomial, known shape": NegativeBinomial(shape=1.7),
    "beta": Beta(precision=Predicted()),
    "beta, known precision": Beta(precision=40.0),
    "binomial": Binomial(trials=12),
    "ordinal": Ordinal(cutpoints=(-0.4, 0.7)),
    "ordinal, probit": Ordinal("probit", (-0.4, 0.7)),
    "ordinal, cloglog": Ordinal("cloglog", (-0.4, 0.7)),
    "zero-inflated": ZeroInflated(Poisson(), Predicted()),
    "zero-inflated, all": ZeroInflated(NegativeBinomial(Predicted()), Predicted()),
}
CASES = [(name, kind) for name, law in LAWS.items() for kind in law.kinds]
CENSORED = [name for name, law in LAWS.items() if law.censorable]
#: laws of targets with a unit, all of whose parameters move with it
UNITLESS = ("negative binomial", "beta", "zero-inflated", "zero-inflated, all", "gamma, inverse")
WITH_UNITS = [(n, k) for n, k in CASES if getattr(LAWS[n], "predicted", ()) and n not in UNITLESS]
ROWS = 7
each = pytest.mark.parametrize(("name", "kind"), CASES)


def functions(law: Scored) -> Tensor:
    """Return f [K, n] of moderate size."""
    g = torch.Generator().manual_seed(3)
    K = len(law._coordinates())
    f = 0.6 * torch.randn(K, ROWS, generator=g, dtype=F64) + 0.3
    if isinstance(law, Beta) and K == 2:
        f[1] += 3.0  # shares that are not beside 0 or 1, where 1 - y loses digits
    if getattr(law, "positive_f", False):
        f[0] = f[0].exp()
    return f


def law_of(law: Scored, f: Tensor) -> torch.distributions.Distribution:
    """Return the distribution of y, batch [n]."""
    one = f[0] if isinstance(law, Parametric) and not law.predicted else f
    one = f[0] if isinstance(law, Bernoulli | Ordinal) else one
    return law.distribution({}, one)  # type: ignore[attr-defined]


def targets(law: Scored, f: Tensor) -> Tensor:
    with seeded(5):
        return law_of(law, f).sample().to(F64)


def is_counts(law: Scored) -> bool:
    return getattr(law, "counts", False) or isinstance(
        law, Bernoulli | Binomial | Categorical | Ordinal
    )


def support(law: Scored, f: Tensor) -> Tensor:
    """Return counts whose probabilities sum to 1, [count]."""
    if isinstance(law, Binomial):
        return torch.arange(13, dtype=F64)
    if isinstance(law, Poisson):
        return torch.arange(60, dtype=F64)
    if getattr(law, "counts", False):
        return torch.arange(500, dtype=F64)
    return torch.arange(3 if isinstance(law, Categorical | Ordinal) else 2, dtype=F64)


@each
def test_gradient_is_the_derivative_of_the_score(name: str, kind: str) -> None:
    law, h = LAWS[name], 1e-3
    f = functions(law)
    y = targets(law, f)
    for k in range(len(f)):
        step = torch.zeros_like(f)
        step[k] = h
        near = law.score({}, f + step, y, kind) - law.score({}, f - step, y, kind)
        far = law.score({}, f + 2 * step, y, kind) - law.score({}, f - 2 * step, y, kind)
        difference = (8 * near - far) / (12 * h)
        found = law.gradient({}, f, y, kind)[k]
        torch.testing.assert_close(found, difference, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", list(LAWS))
def test_nll_is_minus_the_log_density(name: str) -> None:
    law = LAWS[name]
    f = functions(law).requires_grad_()
    y = targets(law, f.detach())
    nll = -law_of(law, f).log_prob(y)
    torch.testing.assert_close(law.score({}, f, y), nll, rtol=1e-12, atol=1e-12)
    (slope,) = torch.autograd.grad(nll.sum(), f)
    torch.testing.assert_close(law.gradient({}, f.detach(), y), slope, rtol=1e-6, atol=1e-12)


def mean_of_products(law: Scored, f: Tensor) -> Tensor:
    """Return E[gradient gradient'] of one row, by quadrature or a sum over counts."""

    def products(y: Tensor) -> Tensor:
        every = f.expand(-1, len(y))
        g = law.gradient({}, every, y)
        return (g[:, None] * g * torch.exp(-law.score({}, every, y))).nan_to_num()

    if is_counts(law):
        return products(support(law, f)).sum(-1)
    return over_support(law, f, products)


def over_support(law: Scored, f: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    """Integrate a function of y [n], which returns [..., n], over the support."""
    middle = float(f[0, 0])
    positive = bool(getattr(law_of(law, f).support, "lower_bound", None) == 0)
    if isinstance(law, Beta):  # over logit y
        edges = [-30.0, -1.0, 0.0, 1.0, 30.0]
    elif positive:  # over log y
        edges = [middle + shift for shift in (-60.0, -3.0, 0.0, 1.0, 15.0)]
    else:  # y = middle + sinh t
        edges = [-22.0, -1.0, 0.0, 1.0, 22.0]
    t, weights = (torch.as_tensor(x) for x in nodes_and_weights(edges, parts=100))
    if isinstance(law, Beta):
        y = torch.sigmoid(t)
        return (of(y) * y * torch.sigmoid(-t)) @ weights
    if positive:
        return (of(t.exp()) * t.exp()) @ weights
    return (of(middle + t.sinh()) * t.cosh()) @ weights


# that of shares is compared with its source in test_shares_and_rates.py
@pytest.mark.parametrize("name", [n for n, law in LAWS.items() if not isinstance(law, Beta)])
def test_the_metric_of_the_log_score_is_the_fisher_information(name: str) -> None:
    law = LAWS[name]
    for row in range(2):
        f = functions(law)[:, row : row + 1]
        exact = mean_of_products(law, f)
        torch.testing.assert_close(law.metric({}, f)[0], exact, rtol=1e-6, atol=1e-9)


def cdf_slopes(law: Scored, f: Tensor, z: Tensor) -> Tensor:
    """Return dF(z)/df [K, n] by five-point differences."""
    h = 1e-3
    f = f.expand(-1, len(z))
    slopes = []
    for k in range(len(f)):
        step = torch.zeros_like(f)
        step[k] = h
        values = [univariate.cdf(law_of(law, f + c * step), z) for c in (1, -1, 2, -2)]
        slopes.append((8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * h))
    return torch.stack(slopes)


CONTINUOUS = [n for n, law in LAWS.items() if "crps" in law.kinds and not is_counts(law)]


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_metric_of_the_crps_is_its_integral(name: str) -> None:
    law = LAWS[name]
    f = functions(law)[:, :1]

    def products(z: Tensor) -> Tensor:
        slopes = cdf_slopes(law, f, z)
        return 2 * slopes[:, None] * slopes

    exact = over_support(law, f, products)
    torch.testing.assert_close(law.metric({}, f, "crps")[0], exact, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_crps_is_its_integral(name: str) -> None:
    law = LAWS[name]
    f = functions(law)[:, :1]
    distribution = law_of(law, f)
    for y in (float(targets(law, f)), float(distribution.mean) * 1.7 + 0.3):
        parts = [
            _integral(lambda z: float(univariate.cdf(distribution, _one(z))) ** 2, -math.inf, y),
            _integral(
                lambda z: (1 - float(univariate.cdf(distribution, _one(z)))) ** 2, y, math.inf
            ),
        ]
        exact = sum(parts)
        assert float(law.score({}, f, _one(y), "crps")) == pytest.approx(exact, rel=1e-7, abs=1e-8)


def _one(z: float) -> Tensor:
    return torch.tensor([z], dtype=F64)


def _integral(of: object, low: float, high: float) -> float:
    return integrate.quad(of, low, high, epsabs=1e-11, epsrel=1e-10, limit=400)[0]


def test_the_crps_and_its_metric_of_counts_are_sums() -> None:
    law, f = LAWS["poisson"], torch.tensor([[0.8]], dtype=F64)
    k = torch.arange(80, dtype=F64)
    F = torch.special.gammaincc(k + 1, f.exp().expand(1, 80))[0]
    for y in (0.0, 2.0, 9.0):
        exact = (F - (k >= y).to(F64)).square().sum()
        torch.testing.assert_close(law.score({}, f, _one(y), "crps")[0], exact)
    exact_metric = 2 * cdf_slopes(law, f, k).square().sum().reshape(1, 1)
    torch.testing.assert_close(law.metric({}, f, "crps")[0], exact_metric, rtol=1e-7, atol=0)


@pytest.mark.parametrize("name", ["bernoulli", "probit", "categorical"])
def test_the_metric_of_the_brier_score_is_twice_the_squared_slopes_of_the_shares(name: str) -> None:
    law = LAWS[name]
    f = functions(law)

    def shares(at: Tensor) -> Tensor:
        return univariate.probabilities(law_of(law, at[:, None]))[0, : max(1, 3 * (len(f) > 1))]

    for row in range(ROWS):
        J = torch.autograd.functional.jacobian(shares, f[:, row])
        metric = law.metric({}, f, "crps")[row]
        torch.testing.assert_close(metric, 2 * J.mT @ J, rtol=1e-9, atol=1e-12)


@each
def test_natural_gradients_solve_the_metric(name: str, kind: str) -> None:
    law = LAWS[name]
    f = functions(law)
    y = targets(law, f)
    if isinstance(law, StudentT):
        y = f[0] + 0.1
    elif isinstance(law, AsymmetricLaplace):
        y = f[0]
    elif not is_counts(law):
        y = law_of(law, f).mean  # no step is limited there
    natural = law.natural({}, f, y, kind)
    back = (law.metric({}, f, kind) @ natural.mT[..., None])[..., 0].mT
    whole = (natural.abs() < LARGEST_STEP - 1e-9).all(0)  # rows whose step is not limited
    assert bool(whole.all()) or (law.counts and int(whole.sum()) >= 3)  # type: ignore[attr-defined]
    gradient = law.gradient({}, f, y, kind)
    torch.testing.assert_close(back[:, whole], gradient[:, whole], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["bernoulli", "probit", "categorical"])
def test_natural_gradients_of_classes_are_the_same_for_both_scores(name: str) -> None:
    law = LAWS[name]
    f = functions(law)
    y = targets(law, f)
    assert torch.equal(law.natural({}, f, y, "nll"), law.natural({}, f, y, "crps"))


def test_steps_of_log_scales_are_limited() -> None:
    f = torch.zeros(2, 1, dtype=F64)
    far = law_step(Gaussian(noise=Predicted()), f, 100.0)
    assert far == (-100.0, -8.0)  # of the log of the variance, twice that of the sd
    assert law_step(Laplace(scale=Predicted()), f, 100.0)[1] == -4.0


def law_step(law: Scored, f: Tensor, y: float) -> tuple[float, ...]:
    return tuple(law.natural({}, f, _one(y))[:, 0].tolist())


@each
def test_the_start_has_the_least_score_of_all_constants(name: str, kind: str) -> None:
    law = LAWS[name]
    f = functions(law)
    y = targets(law, f.repeat(1, 40))
    start = law.initial(y, kind)
    assert start.shape == (len(f),)
    slope = law.gradient({}, start[:, None].expand(-1, len(y)), y, kind).mean(-1)
    smooth = 1e-5 if name not in ("categorical", "bernoulli", "probit") else 0.01
    if name == "laplace" and kind == "nll":
        smooth = 2 / len(y)  # the median of an even number of rows
    assert float(slope.abs().max()) < smooth


@pytest.mark.parametrize("name", CENSORED)
def test_censored_rows_count_with_their_survival(name: str) -> None:
    law, h = LAWS[name], 1e-3
    f = functions(law)
    y = targets(law, f)
    flags = torch.arange(ROWS) % 2 == 0
    survival = -torch.log1p(-univariate.cdf(law_of(law, f), y))
    expected = torch.where(flags, survival, law.score({}, f, y))
    torch.testing.assert_close(law.score({}, f, y, right_censored=flags), expected)
    for k in range(len(f)):
        step = torch.zeros_like(f)
        step[k] = h
        values = [
            law.score({}, f + c * step, y, right_censored=flags) for c in (1.0, -1.0, 2.0, -2.0)
        ]
        difference = (8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * h)
        found = law.gradient({}, f, y, right_censored=flags)[k]
        torch.testing.assert_close(found, difference, rtol=1e-6, atol=1e-9)


def test_the_crps_of_censored_rows_is_refused() -> None:
    law, f = LAWS["exponential"], torch.zeros(1, 2, dtype=F64)
    y, flags = torch.ones(2, dtype=F64), torch.tensor([True, False])
    with pytest.raises(NotApplicable, match="not proper"):
        law.score({}, f, y, "crps", right_censored=flags)
    with pytest.raises(NotApplicable, match="censored"):
        LAWS["laplace"].score({}, f.expand(2, 2), y, right_censored=flags)


def test_bad_arguments_are_named() -> None:
    law, y = LAWS["gaussian"], torch.ones(2, dtype=F64)
    with pytest.raises(UnknownName, match="brier"):
        law.score({}, torch.zeros(2, 2, dtype=F64), y, "brier")
    with pytest.raises(SettingError, match="2, n"):
        law.score({}, torch.zeros(1, 2, dtype=F64), y)
    with pytest.raises(NotApplicable, match="nll"):
        LAWS["student, all"].score({}, torch.zeros(3, 2, dtype=F64), y, "crps")


@pytest.mark.parametrize(("name", "kind"), WITH_UNITS)
def test_units_of_y_leave_natural_steps_equivariant(name: str, kind: str) -> None:
    """The step of a location scales with y, and that of a log scale or shape does not change."""
    law, c = LAWS[name], 1e4
    f = functions(law)
    y = targets(law, f)
    scaled = f.clone()
    location = "y" in law.scales  # type: ignore[attr-defined]
    scaled[0] = f[0] * c if location else f[0] + math.log(c)
    if location:
        power = {"gaussian": 2.0}.get(name, 1.0)
        scaled[-1] += power * math.log(c)
    step, other = law.natural({}, f, y, kind), law.natural({}, scaled, c * y, kind)
    if location:
        other = torch.cat([other[:1] / c, other[1:]])
    torch.testing.assert_close(other, step, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "name", ["gaussian", "laplace", "asymmetric laplace", "student", "weibull", "gamma", "beta"]
)
def test_a_temperature_widens(name: str) -> None:
    law = LAWS[name]
    f = functions(law)
    wider = law.tempered(f, 0.3)
    assert bool((law_of(law, wider).variance > law_of(law, f).variance).all())


def test_a_level_multiplies_a_predicted_parameter() -> None:
    law, f = Gaussian(noise=Predicted()), functions(LAWS["gaussian"])
    level = torch.tensor(2.5, dtype=F64)
    shifted = f.clone()
    shifted[1] += level.log()
    torch.testing.assert_close(
        law.distribution({"noise": level}, f).scale, law.distribution({}, shifted).scale
    )
