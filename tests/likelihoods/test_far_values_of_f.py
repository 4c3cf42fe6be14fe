"""Log densities and slopes where f is so far out that probabilities underflow."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import pytest
import torch

from ppgp.distributions.ordered_links import LINKS
from ppgp.likelihoods import (
    Bernoulli,
    Beta,
    Gamma,
    Gaussian,
    Ordinal,
    Poisson,
    Predicted,
    StudentT,
    ZeroInflated,
)
from ppgp.likelihoods.joint_rows import LikelihoodRows
from ppgp.numerics.latent_ep import ep_log_evidence
from ppgp.numerics.latent_laplace import laplace_log_evidence

F64 = torch.float64
FAR = (-1e9, -1e4, -800.0, -40.0, -37.9, 0.3, 38.1, 40.0, 800.0, 1e4, 1e9)


@pytest.mark.parametrize("law", [Bernoulli("probit"), Ordinal("probit", (0.0,))], ids=str)
@pytest.mark.parametrize("y", [0.0, 1.0])
def test_slopes_of_probit_are_those_of_the_hazard(law: Any, y: float) -> None:
    f = torch.tensor([FAR], dtype=F64)
    target = torch.full((f.shape[1],), y, dtype=F64)
    first, second = law.slopes({}, f, target)
    sign = 2 * y - 1
    with mp.workdps(60):
        hazards = [mp.npdf(sign * x) / mp.ncdf(sign * x) for x in FAR]
        slopes = [float(sign * h) for h in hazards]
        curvatures = [float(-h * (h + sign * x)) for h, x in zip(hazards, FAR, strict=True)]
        both = [mp.npdf(x) ** 2 / mp.ncdf(x) / mp.ncdf(-x) for x in FAR]
    same = {"rtol": 1e-12, "atol": 1e-250}
    torch.testing.assert_close(first, torch.tensor([slopes], dtype=F64), **same)
    torch.testing.assert_close(second, torch.tensor([curvatures], dtype=F64), **same)
    metric = law.metric({}, f)[:, 0, 0]
    torch.testing.assert_close(metric, torch.tensor([float(m) for m in both], dtype=F64), **same)


@pytest.mark.parametrize("kind", ["nll", "crps"])
def test_natural_steps_of_probit_are_finite(kind: str) -> None:
    law, f = Bernoulli("probit"), torch.tensor([FAR], dtype=F64)
    for y in (0.0, 1.0):
        step = law.natural({}, f, torch.full((f.shape[1],), y, dtype=F64), kind)
        assert bool(torch.isfinite(step).all())
        assert bool((step * (1 - 2 * y) > 0).all())


def test_a_class_of_proportional_hazards_keeps_its_log_probability() -> None:
    """log(1 - exp(-exp(z))) is z where exp(z) underflows."""
    law, f = Ordinal("cloglog", (-1.0, 2.0)), torch.tensor([[800.0, 2000.0]], dtype=F64)
    low = -law.score({}, f, torch.zeros(2, dtype=F64))
    torch.testing.assert_close(low, -1.0 - f[0])
    middle = -law.score({}, f, torch.ones(2, dtype=F64))
    torch.testing.assert_close(middle, 2.0 - f[0] + float(mp.log(1 - mp.exp(-3))))
    first, _ = law.slopes({}, f, torch.ones(2, dtype=F64))
    torch.testing.assert_close(first, -torch.ones_like(f))
    assert bool(torch.isfinite(law.metric({}, torch.tensor([[-700.0, -360.0]], dtype=F64))).all())


def test_a_tiny_target_beside_a_huge_mean() -> None:
    """y / mean underflows; with shape 1 the log density is that of the exponential, -f."""
    f, y = torch.tensor([[300.0, 40.0]], dtype=F64), torch.full((2,), 1e-300, dtype=F64)
    torch.testing.assert_close(-Gamma(1.0).score({}, f, y), -f[0], rtol=1e-14, atol=0)


def test_the_information_of_inflated_counts_is_positive_where_counts_are_all_zero() -> None:
    law = ZeroInflated(Poisson(), Predicted())
    f = torch.tensor([[-40.0, -40.0, -300.0], [0.0, 40.0, -2.0]], dtype=F64)
    metric = law.metric({}, f)
    unit = metric.diagonal(dim1=-2, dim2=-1).rsqrt()
    scaled = unit[:, :, None] * metric * unit[:, None, :]
    assert float(torch.linalg.eigvalsh(scaled).min()) > -1e-12


@pytest.mark.parametrize("sd", [1.0, 300.0, 1e4])
def test_evidence_of_probit_is_that_of_the_same_ordinal_model(sd: float) -> None:
    """A wide prior of f takes the search for its mode far out."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(40, 1, generator=g, dtype=F64)
    y, mean = torch.arange(40).remainder(2).to(F64), torch.zeros(40, dtype=F64)
    K = sd**2 * torch.exp(-0.5 * ((x - x.mT) / 0.1) ** 2)
    one, other = (
        laplace_log_evidence(K, mean, LikelihoodRows(law, (), y))
        for law in (Bernoulli("probit"), Ordinal("probit", (0.0,)))
    )
    torch.testing.assert_close(one, other, rtol=1e-6, atol=0)


def test_the_gradient_of_ep_in_the_mean_where_f_is_nearly_known() -> None:
    law, mean = Bernoulli(), torch.tensor([5.0, 6.0], dtype=F64, requires_grad=True)
    y = torch.ones(2, dtype=F64)
    K = 1e-12 * torch.eye(2, dtype=F64)
    (slope,) = torch.autograd.grad(ep_log_evidence(K, mean, LikelihoodRows(law, (), y)), mean)
    torch.testing.assert_close(slope, torch.sigmoid(-mean.detach()), rtol=1e-6, atol=0)


def test_a_narrow_class_of_probit_keeps_the_digits_of_its_slopes() -> None:
    """With a width of nearly 0 the log probability is that of the density, -z^2 / 2."""
    law = Ordinal("probit", (0.5, 0.5 + 1e-9))
    f = torch.tensor([[-700.0, -3.0, 0.7, 40.0]], dtype=F64)
    first, second = law.slopes({}, f, torch.ones(4, dtype=F64))
    torch.testing.assert_close(first, 0.5 + 5e-10 - f, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(second, -torch.ones_like(f), rtol=1e-12, atol=0)
    z, width = torch.tensor([[-0.3], [0.1]], dtype=F64), 0.4  # on both sides of the limit
    exact = [mp.log(mp.ncdf(x + 0.4) - mp.ncdf(x)) for x in z[:, 0].tolist()]
    found = LINKS["probit"].log_masses(torch.cat([z, z + width], 1).mT)[1]
    torch.testing.assert_close(found, torch.tensor([float(x) for x in exact], dtype=F64))


def test_student_t_of_huge_df_is_normal() -> None:
    f, y = torch.tensor([[0.0, 2.0]], dtype=F64), torch.tensor([0.3, -1.0], dtype=F64)
    for df in (1e10, 1e17):
        found = -StudentT(df, 1.0).score({}, f, y)
        torch.testing.assert_close(found, -Gaussian(1.0).score({}, f, y), rtol=1e-9, atol=0)


@pytest.mark.parametrize("law", [ZeroInflated(Poisson(), 0.3), Beta(1e-8), Beta(20.0)], ids=str)
def test_slopes_are_finite_where_squares_of_the_mean_are_not(law: Any) -> None:
    f = torch.tensor([[-700.0, 700.0]], dtype=F64)
    y = torch.full((2,), 0.0 if law.counts else 0.3, dtype=F64)
    first, second = law.slopes({}, f, y)
    assert bool(torch.isfinite(first).all() & torch.isfinite(second).all())
