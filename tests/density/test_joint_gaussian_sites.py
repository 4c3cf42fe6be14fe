"""Log densities of the numbers of one joint Gaussian site, given its others."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference
from ppgp.errors import NotApplicable
from ppgp.models import Program

F64 = torch.float64
N = 6
Y = torch.randn(N, generator=torch.Generator().manual_seed(0), dtype=F64)
ROOT = torch.randn(N, 2, generator=torch.Generator().manual_seed(1), dtype=F64)
MEAN = torch.linspace(-1, 1, N, dtype=F64)
SCALE = torch.tensor([0.7, 1.5, 2.0], dtype=F64)


def dense(scale: Tensor) -> Any:
    covariance = scale * (ROOT @ ROOT.mT + torch.eye(N, dtype=F64))
    return dist.MultivariateNormal(MEAN, covariance)


def factored(scale: Tensor) -> Any:
    return dist.LowRankMultivariateNormal(
        MEAN, scale.sqrt() * ROOT, scale * torch.ones(N, dtype=F64)
    )


def at(law: Any, y: Tensor) -> ppgp.Posterior:
    def program(y: Tensor) -> None:
        scale = pyro.sample("scale", dist.Gamma(torch.ones((), dtype=F64), 1.0))
        pyro.sample("y", law(scale), obs=y)

    return ppgp.Posterior(Program(program), {"y": y}, {"scale": SCALE[None]}, inference.NUTS())


def left_out(y: Tensor) -> Tensor:
    """Return log p(y_i given the others) as a difference of joint densities, [draw, n]."""
    rows = []
    for scale in SCALE:
        law = dense(scale)
        kept = [[j for j in range(N) if j != i] for i in range(N)]
        others = torch.stack(
            [
                dist.MultivariateNormal(MEAN[k], law.covariance_matrix[k][:, k]).log_prob(y[k])
                for k in kept
            ]
        )
        rows.append(law.log_prob(y) - others)
    return torch.stack(rows)


@pytest.mark.parametrize("law", [dense, factored])
def test_each_number_is_given_the_others(law: Any) -> None:
    torch.testing.assert_close(at(law, Y).log_likelihood()[0], left_out(Y))


def test_several_outputs_have_their_own() -> None:
    both = torch.stack([Y, -Y])
    posterior = at(lambda scale: dense(scale).expand([2]).to_event(1), both)
    found = posterior.log_likelihood()[0]
    torch.testing.assert_close(found, torch.cat([left_out(Y), left_out(-Y)], -1))
    assert len(ppgp.psis_loo(posterior).pointwise) == 2 * N


def test_rows_of_a_plate_keep_their_joint_density() -> None:
    def program(y: Tensor) -> None:
        scale = pyro.sample("scale", dist.Gamma(torch.ones((), dtype=F64), 1.0))
        with pyro.plate("rows", 2):
            pyro.sample("y", dense(scale), obs=y)

    y = torch.stack([Y, -Y])
    posterior = ppgp.Posterior(Program(program), {"y": y}, {"scale": SCALE[None]}, inference.NUTS())
    each = torch.stack([dense(scale).log_prob(y) for scale in SCALE])
    torch.testing.assert_close(posterior.log_likelihood()[0], each)


def test_one_joint_distribution_has_no_rows_to_leave_out() -> None:
    def program(y: Tensor) -> None:
        scale = pyro.sample("scale", dist.Gamma(torch.ones(()), 1.0))
        one, unit = torch.eye(1), dist.Normal(torch.zeros(1), 1.0).to_event(1)
        noise = dist.Normal(torch.zeros(1), scale.unsqueeze(-1)).to_event(1)
        pyro.sample("y", dist.GaussianHMM(unit, one, unit, one, noise, duration=len(y)), obs=y)

    data = {"y": Y.float()[:, None]}
    posterior = ppgp.Posterior(
        Program(program), data, {"scale": SCALE.float()[None]}, inference.NUTS()
    )
    assert posterior.log_likelihood().shape == (1, 3, 1)
    with pytest.raises(NotApplicable, match=r"several rows, .* got one, such as one joint"):
        ppgp.psis_loo(posterior)
