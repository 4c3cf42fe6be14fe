"""Laplace's approximation of a latent Gaussian vector: its derivatives, and where it is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ppgp.likelihoods import (
    Bernoulli,
    Beta,
    Exponential,
    Gamma,
    Gaussian,
    Likelihood,
    LogNormal,
    NegativeBinomial,
    Ordinal,
    Poisson,
    StudentT,
    Weibull,
    ZeroInflated,
)
from ppgp.likelihoods.joint_rows import LatentMarginal, LikelihoodRows
from ppgp.numerics import latent_laplace as module
from ppgp.numerics import latent_mode
from ppgp.numerics.latent_laplace import expand_at_mode, laplace_log_evidence

F64 = torch.float64
GENERATOR = torch.Generator().manual_seed(0)
N = 8
X = torch.randn(N, 2, generator=GENERATOR, dtype=F64)
NUMBERS = 2 * torch.randn(N, generator=GENERATOR, dtype=F64)
POSITIVE = NUMBERS.abs() + 0.1
COUNTS = POSITIVE.round()
LABELS = (NUMBERS > 0.3).to(F64)
#: name -> the likelihood, y and the values of its sites
CASES: dict[str, tuple[Likelihood, Tensor, dict[str, float | list[float]]]] = {
    "labels": (Bernoulli(), LABELS, {}),
    "labels, probit": (Bernoulli("probit"), LABELS, {}),
    "ordered": (Ordinal(classes=3), COUNTS.clamp(max=2), {"cutpoints": [-0.5, 0.6]}),
    "counts": (Poisson(), COUNTS, {}),
    "overdispersed counts": (NegativeBinomial(), COUNTS, {"shape": 1.5}),
    "counts with more zeros": (ZeroInflated(Poisson()), COUNTS, {"probability": 0.3}),
    "numbers": (Gaussian(), NUMBERS, {"noise": 0.5}),
    "numbers with outliers": (StudentT(), 2 * NUMBERS, {"df": 3.0, "scale": 0.4}),
    "shares": (Beta(), torch.sigmoid(NUMBERS), {"precision": 3.0}),
    "rates": (Gamma(), POSITIVE, {"shape": 3.0}),
    "times": (Weibull(), POSITIVE, {"shape": 1.3}),
    "waits": (Exponential(), POSITIVE, {}),
    "sizes": (LogNormal(), POSITIVE, {"noise": 0.7}),
}
every_case = pytest.mark.parametrize("name", list(CASES))


def covariance(variance: Tensor, lengthscale: Tensor) -> Tensor:
    square = (X[:, None] - X[None]).square().sum(-1)
    K = variance * torch.exp(-0.5 * square / lengthscale.square())
    return K + 1e-6 * torch.eye(N, dtype=F64)


@every_case
def test_first_and_second_derivatives_are_those_of_the_value(name: str) -> None:
    likelihood, y, values = CASES[name]

    def value(variance: Tensor, lengthscale: Tensor, level: Tensor, *own: Tensor) -> Tensor:
        theta = dict(zip(values, own, strict=True))
        mean = level.expand(N)
        return LatentMarginal(likelihood, theta, mean, covariance(variance, lengthscale)).log_prob(
            y
        )

    numbers = [2.0, 1.1, 0.2, *values.values()]
    arguments = [torch.tensor(v, dtype=F64, requires_grad=True) for v in numbers]
    assert torch.autograd.gradcheck(value, arguments, atol=1e-6, rtol=1e-5)
    assert torch.autograd.gradgradcheck(value, arguments, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["numbers", "sizes"])
def test_it_is_exact_where_the_rows_are_gaussian_in_f(name: str) -> None:
    likelihood, y, values = CASES[name]
    theta = {k: torch.tensor(v, dtype=F64) for k, v in values.items()}
    K, mean, noise = covariance(torch.tensor(2.0), torch.tensor(1.1)), torch.full((N,), 0.3), 0.5
    C = K + theta["noise"] * torch.eye(N, dtype=F64)
    own = likelihood.distribution(theta, torch.zeros(N, dtype=F64))
    z = y
    volume = torch.zeros((), dtype=F64)
    if name == "sizes":
        z, volume = y.log(), y.log().sum()
        spread = own.variance / own.mean.square()  # exp(scale^2) - 1
        C = K + torch.diag(torch.log1p(spread))
    exact = torch.distributions.MultivariateNormal(mean.to(F64), C).log_prob(z) - volume
    found = LatentMarginal(likelihood, theta, mean.to(F64), K).log_prob(y)
    torch.testing.assert_close(found, exact)
    assert noise


@every_case
def test_the_mode_solves_its_equation_and_the_covariance_is_the_inverse_curvature(
    name: str,
) -> None:
    likelihood, y, values = CASES[name]
    parameters = tuple(torch.tensor(v, dtype=F64) for v in values.values())
    rows = LikelihoodRows(likelihood, list(values), y)
    K, mean = covariance(torch.tensor(2.0), torch.tensor(1.1)), torch.full((N,), 0.2, dtype=F64)
    found = expand_at_mode(K, mean, rows, parameters)
    f = mean + found.mean(K)
    first, second = rows.slopes(f, parameters)
    torch.testing.assert_close(found.weights, first, rtol=1e-7, atol=1e-8)
    posterior = torch.linalg.inv(torch.linalg.inv(K) - torch.diag(second))
    explained = found.covariance_explained(K)
    torch.testing.assert_close(K - explained, posterior, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.variance_explained(K), explained.diagonal())


def test_rows_far_in_a_tail_keep_the_digits_of_the_gradient() -> None:
    """Their curvature is so small that s^-1 (I - B^-1) s^-1 has no digits."""
    y = torch.ones(N, dtype=F64)
    rows = LikelihoodRows(Bernoulli(), [], y)

    def value(level: Tensor) -> Tensor:
        K = covariance(torch.tensor(2.0, dtype=F64), torch.tensor(1.1, dtype=F64))
        return laplace_log_evidence(K, level.expand(N), rows)

    level = torch.tensor(25.0, dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad(value(level), level)
    assert float(slope) > 0
    far = torch.exp(-level.detach() + 1.0)  # E exp(-f) of a prior variance of 2
    assert float(slope) == pytest.approx(float(N * far), rel=0.7)


def test_a_covariance_that_is_not_finite_gives_nan() -> None:
    K = torch.full((N, N), torch.nan, dtype=F64)
    rows = LikelihoodRows(Poisson(), [], COUNTS)
    assert bool(laplace_log_evidence(K, torch.zeros(N, dtype=F64), rows).isnan())


@pytest.mark.parametrize(("variance", "level"), [(1e2, 1e1), (1e4, 1e5), (1e7, 1e5)])
def test_rough_steps_lead_to_the_mode_of_exact_steps(
    variance: float, level: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = module.ROWS_OF_ROUGH_STEPS
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(n, 2, generator=generator, dtype=F64)
    y = (level * (2 * torch.randn(n, generator=generator, dtype=F64)).abs()).round()
    K = variance * torch.exp(-0.5 * torch.cdist(X, X).square() / 0.3**2)
    K = K + 1e-4 * variance * torch.eye(n, dtype=F64)
    rows = LikelihoodRows(Poisson(), [], y)
    mean = torch.zeros(n, dtype=F64)
    rough = float(laplace_log_evidence(K, mean, rows))
    monkeypatch.setattr(module, "ROWS_OF_ROUGH_STEPS", n + 1)
    exact = float(laplace_log_evidence(K, mean, rows))
    assert rough == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("scale", [0.1, 0.015])
def test_outlying_rows_do_not_hold_the_mode_back(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a stiff function and narrow heavy tails, most rows are outliers on the way."""
    monkeypatch.setattr(latent_mode, "STEPS", 60)
    x = torch.linspace(-2.0, 2.0, 40, dtype=F64)
    noise = torch.randn(40, generator=torch.Generator().manual_seed(2), dtype=F64)
    y = torch.sin(2 * x) + 0.5 * x + 0.2 * noise
    K = 2.5 * torch.exp(-0.5 * (x[:, None] - x).square()) + 1e-6 * torch.eye(40, dtype=F64)
    rows = LikelihoodRows(StudentT(df=20.0), ["scale"], y)
    parameters = (torch.tensor(scale, dtype=F64),)
    a, h = latent_mode.mode_of(module.DensePrior(K), torch.zeros(40, dtype=F64), rows, parameters)
    first, second = rows.slopes(h, parameters)
    torch.testing.assert_close(a, first, rtol=1e-6, atol=1e-6 * float(first.abs().max()))
    root = torch.linalg.cholesky(K)
    curvature = torch.eye(40, dtype=F64) - root.mT @ (second[:, None] * root)
    assert float(torch.linalg.eigvalsh(curvature)[0]) > 0


def evidence_of_em(K: Tensor, y: Tensor, df: float, scale: float, f: Tensor) -> float:
    """Return Laplace's approximation at the mode to which EM steps lead from f, plainly."""
    eye, C, z, g = torch.eye(len(y), dtype=F64), K.numpy(), y.numpy(), f.numpy()
    for _ in range(500):
        V, before = (df * scale**2 + (z - g) ** 2) / (df + 1), g
        g = C @ np.linalg.solve(C + np.diag(V), z)
        if np.abs(g - before).max() < 1e-5 * scale:
            break
    f = torch.as_tensor(g)
    rows = torch.distributions.StudentT(df, f, scale).log_prob(y).sum()
    W = (df + 1) * (df * scale**2 - (y - f).square()) / (df * scale**2 + (y - f).square()) ** 2
    height = rows - 0.5 * f @ torch.linalg.solve(K, f)
    return float(height - 0.5 * torch.linalg.slogdet(eye + K * W).logabsdet)


def with_outliers(seed: int) -> tuple[Tensor, Tensor, float, float]:
    """Return K, y, df and the scale of 30 rows, six of which are outliers of any size."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.linspace(0.0, 1.0, 30, dtype=F64)
    y = torch.sin(6 * x) + 0.1 * torch.randn(30, generator=generator, dtype=F64)
    size = 10 ** (3 * torch.rand(6, generator=generator, dtype=F64))
    y[torch.randperm(30, generator=generator)[:6]] += size * torch.randn(
        6, generator=generator, dtype=F64
    )
    K = torch.exp(-0.5 * ((x[:, None] - x) / 0.2).square()) + 1e-6 * torch.eye(30, dtype=F64)
    df, scale = [(4.0, 0.1), (1.0, 0.1), (0.5, 0.05), (4.0, 0.03)][seed % 4]
    return K, y - y.mean(), df, scale


def test_the_mode_is_no_lower_than_those_from_the_mean_and_from_y() -> None:
    """Each is higher by far in some tables, and what noise that narrows leads to in others."""
    gaps, above = [], []
    for seed in range(24):
        K, y, df, scale = with_outliers(seed)
        rows = LikelihoodRows(StudentT(df=df, scale=scale), [], y)
        found = float(laplace_log_evidence(K, torch.zeros_like(y), rows))
        start = [evidence_of_em(K, y, df, scale, f) for f in (torch.zeros_like(y), y)]
        assert found >= max(start) - 1e-3, (seed, found, start)
        gaps.append(start[1] - start[0])
        above.append(found - max(start))
    assert max(gaps) > 1.0
    assert min(gaps) < -1.0
    assert max(above) > 1.0


def test_concave_rows_have_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []
    climbed: Any = latent_mode._climbed

    def counted(*arguments: Any) -> Any:
        searches.append(1)
        return climbed(*arguments)

    monkeypatch.setattr(latent_mode, "_climbed", counted)
    K = covariance(torch.tensor(2.0, dtype=F64), torch.tensor(1.1, dtype=F64))
    for likelihood, y in ((Poisson(), COUNTS), (StudentT(df=4.0, scale=9.0), NUMBERS)):
        laplace_log_evidence(K, torch.zeros(N, dtype=F64), LikelihoodRows(likelihood, [], y))
    assert len(searches) == 2
    rows = LikelihoodRows(StudentT(df=4.0, scale=0.1), [], NUMBERS)
    laplace_log_evidence(K, torch.zeros(N, dtype=F64), rows)
    assert len(searches) > 3
