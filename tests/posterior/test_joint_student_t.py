"""Predictions of a joint Student-t distribution have Student-t marginals."""

from __future__ import annotations

import pyro.distributions as dist
import pytest
import torch
from scipy import stats

from ppgp.distributions import univariate
from ppgp.errors import NotApplicable
from ppgp.posterior import Prediction

F64 = torch.float64
ROOT = torch.tensor([[2.0, 0.0], [1.0, 0.5]], dtype=F64)
SCALE = ROOT.square().sum(-1).sqrt()
LOC = torch.tensor([1.0, -3.0], dtype=F64)


@pytest.mark.parametrize("df", [1.5, 3.0])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.999])
def test_intervals_are_those_of_the_marginals(df: float, level: float) -> None:
    joint = dist.MultivariateStudentT(
        torch.full((4,), df, dtype=F64), LOC.expand(4, 2), ROOT.expand(4, 2, 2)
    )
    region = Prediction(joint).interval(level)
    expected = stats.t.ppf(0.5 + level / 2, df, LOC, SCALE)
    torch.testing.assert_close(region.upper, torch.as_tensor(expected), rtol=1e-6, atol=0)


def test_marginals_of_a_joint_normal() -> None:
    for joint in (
        dist.MultivariateNormal(LOC, scale_tril=ROOT),
        dist.LowRankMultivariateNormal(LOC, ROOT, torch.ones(2, dtype=F64)),
    ):
        normal = univariate.marginals(joint)
        assert isinstance(normal, dist.Normal)
        torch.testing.assert_close(normal.scale, joint.covariance_matrix.diagonal().sqrt())


def test_other_joint_distributions_are_refused() -> None:
    joint = dist.Dirichlet(torch.ones(3, dtype=F64))
    with pytest.raises(NotApplicable, match="got Dirichlet"):
        univariate.marginals(joint)
