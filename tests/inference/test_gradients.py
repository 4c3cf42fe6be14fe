"""Estimators of the gradient of the ELBO, all unbiased, and the natural gradient."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp.density import Target
from ppgp.errors import NotApplicable, SettingError, UnknownName
from ppgp.inference import SVI
from ppgp.inference.variational.gaussian_guide import GRADIENTS, GaussianGuide
from ppgp.models import LogisticRegression, Program

F64 = torch.float64
PRECISION = torch.tensor([[2.0, 0.9], [0.9, 1.0]], dtype=F64)
MEAN = torch.tensor([1.0, -2.0], dtype=F64)


def gaussian(mean: Tensor) -> None:
    pyro.sample("z", dist.MultivariateNormal(mean, precision_matrix=PRECISION))


def guide() -> GaussianGuide:
    q = GaussianGuide(torch.zeros(2, dtype=F64), torch.eye(2, dtype=F64), correlated=True)
    q.loc += 0.3
    q.log_scale -= 0.2
    q.lower[1, 0] = 0.4  # type: ignore[index]
    return q


def analytic(q: GaussianGuide) -> list[Tensor]:
    """Return the gradient of E_q log p - E_q log q in closed form, for a Gaussian p."""
    loc, log_scale = q.loc.clone().requires_grad_(), q.log_scale.clone().requires_grad_()
    lower = q.lower.clone().requires_grad_()  # type: ignore[union-attr]
    L = log_scale.exp()[:, None] * (lower.tril(-1) + torch.eye(2, dtype=F64))
    elbo = (
        -0.5 * ((loc - MEAN) @ PRECISION @ (loc - MEAN) + (PRECISION @ L @ L.mT).trace())
        + log_scale.sum()
    )
    return list(torch.autograd.grad(elbo, [loc, log_scale, lower]))


def sampled(kind: str, k: int = 200_000) -> list[Tensor]:
    e = torch.randn(k, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
    return guide().estimates(Target(Program(gaussian), {"mean": MEAN}), e, kind)[1]


@pytest.mark.parametrize("kind", GRADIENTS)
def test_every_estimator_is_unbiased(kind: str) -> None:
    for result, expected in zip(sampled(kind), analytic(guide()), strict=True):
        error = result.std(0) / len(result) ** 0.5
        assert bool(((result.mean(0) - expected).abs() <= 4.5 * error + 1e-12).all())


def test_a_baseline_from_few_other_draws_is_unbiased() -> None:
    """With three draws, a coefficient that used its own draw would be visibly biased."""
    q, target = guide(), Target(Program(gaussian), {"mean": MEAN})
    generator = torch.Generator().manual_seed(1)
    means = torch.stack(
        [
            q.estimates(
                target, torch.randn(3, 2, generator=generator, dtype=F64), "score_baseline"
            )[1][0].mean(0)
            for _ in range(8000)
        ]
    )
    error = means.std(0) / len(means) ** 0.5
    assert bool(((means.mean(0) - analytic(q)[0]).abs() <= 4.5 * error).all())


def test_variances_are_in_the_order_of_the_literature() -> None:
    variances = {kind: [g.var(0) for g in sampled(kind, 20_000)] for kind in GRADIENTS}
    for j in range(3):
        path, score, baseline = (
            variances[kind][j].max() for kind in ("pathwise", "score", "score_baseline")
        )
        assert float(path) < float(baseline) < float(score)


def test_at_the_optimum_the_pathwise_gradient_has_no_variance() -> None:
    L = torch.linalg.cholesky(torch.linalg.inv(PRECISION))
    q = GaussianGuide(MEAN.clone(), L, correlated=True)
    e = torch.randn(100, 2, generator=torch.Generator().manual_seed(0), dtype=F64)
    for g in q.estimates(Target(Program(gaussian), {"mean": MEAN}), e, "pathwise")[1]:
        assert float(g.abs().max()) < 1e-12


@pytest.mark.parametrize("correlated", [True, False])
def test_natural_steps_fit_a_gaussian(correlated: bool) -> None:
    q = GaussianGuide(torch.zeros(2, dtype=F64), 3 * torch.eye(2, dtype=F64), correlated)
    target = Target(Program(gaussian), {"mean": MEAN})
    generator = torch.Generator().manual_seed(0)
    for t in range(1000):
        e = torch.randn(16, 2, generator=generator, dtype=F64)
        _, slope = q.evaluate(target, e)
        assert q.natural_step(e, slope, 0.2 / (1 + t / 20))
    draws = q.draw(torch.randn(100_000, 2, generator=generator, dtype=F64))
    covariance = torch.linalg.inv(PRECISION) if correlated else torch.diag(1 / PRECISION.diagonal())
    torch.testing.assert_close(draws.mean(0), MEAN, atol=0.03, rtol=0)
    torch.testing.assert_close(draws.T.cov(), covariance, atol=0.03, rtol=0)


@pytest.mark.parametrize(
    "how",
    [
        SVI(optimizer="natural", learning_rate=0.1, particles=8, steps=2000),
        SVI(gradient="score_baseline", particles=16, steps=3000),
        SVI(schedule="inverse", learning_rate=0.05),
    ],
    ids=repr,
)
def test_all_optimisers_and_estimators_reach_the_same_elbo(how: SVI) -> None:
    data = ppgp.load("breast_cancer")
    data = ppgp.Dataset(data.X[:150, :6], data.y[:150])
    best = ppgp.fit(LogisticRegression(), data, SVI(draws=4000), progress=False).stats["elbo"]
    result = ppgp.fit(LogisticRegression(), data, how, progress=False).stats["elbo"]
    assert result == pytest.approx(best, abs=0.1)


def test_options_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(SettingError, match="at least 2 particles"):
        SVI(gradient="score_baseline")
    with pytest.raises(UnknownName, match="gradient"):
        SVI(gradient="reinforce")
    with pytest.raises(SettingError, match="pathwise"):
        SVI(gradient="score", optimizer="natural")
    data = ppgp.load("diabetes")
    with pytest.raises(NotApplicable, match="guide"):
        ppgp.fit(
            ppgp.models.LinearRegression(), data, SVI("lowrank", gradient="score"), progress=False
        )
