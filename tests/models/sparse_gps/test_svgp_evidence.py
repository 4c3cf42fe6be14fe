"""The bound of SVGP beside the evidence by brute force, of every likelihood of one function."""

from __future__ import annotations

import math

import pytest
import torch

import ppgp
from ppgp import inference, kernels, models
from ppgp.data import Dataset
from ppgp.likelihoods import (
    Beta,
    Binomial,
    Gamma,
    Likelihood,
    NegativeBinomial,
    Ordinal,
    Poisson,
    ZeroInflated,
)
from ppgp.likelihoods.base import hermite

F64 = torch.float64
X = torch.tensor([[-1.5], [-0.6], [0.1], [0.9], [1.8]], dtype=F64)
COUNTS = torch.tensor([0.0, 1.0, 0.0, 4.0, 9.0], dtype=F64)
CODES = torch.tensor([0.0, 1.0, 0.0, 2.0, 2.0], dtype=F64)
SHARES = torch.tensor([0.05, 0.3, 0.2, 0.8, 0.95], dtype=F64)
CASES: dict[str, tuple[Likelihood, torch.Tensor]] = {
    "binomial": (Binomial(9), COUNTS),
    "negative binomial": (NegativeBinomial(1.5), COUNTS),
    "beta": (Beta(8.0), SHARES),
    "ordinal": (Ordinal(cutpoints=(-0.5, 0.6)), CODES),
    "ordinal, probit": (Ordinal("probit", (-0.5, 0.6)), CODES),
    "ordinal, cloglog": (Ordinal("cloglog", (-0.5, 0.6)), CODES),
    "zero-inflated": (ZeroInflated(Poisson(), 0.3), COUNTS),
    "zero-inflated negative binomial": (ZeroInflated(NegativeBinomial(2.0), 0.2), COUNTS),
    "gamma": (Gamma(2.0), 0.1 + COUNTS),
}
KERNEL = kernels.RBF(1.2, 0.9)
NODES = 18


def evidence(likelihood: Likelihood, y: torch.Tensor) -> float:
    """Return log E prod_i p(y_i given f_i) over the prior, by a product rule in 5 dimensions.

    The rule is centred on the posterior by importance weights.
    """
    gap = (X - X.mT).square()
    K = 1.2 * torch.exp(-0.5 * gap / 0.9**2) + 1e-9 * torch.eye(5, dtype=F64)
    prior = torch.distributions.MultivariateNormal(torch.zeros(5, dtype=F64), K)

    def joint(f: torch.Tensor) -> torch.Tensor:
        rows = likelihood.distribution({}, f).log_prob(y)
        return rows.sum(-1) + prior.log_prob(f)

    mode = torch.zeros(5, dtype=F64)
    for _ in range(60):
        gradient = torch.autograd.functional.jacobian(joint, mode)
        fisher = likelihood.metric({}, mode[None])[:, 0, 0]  # type: ignore[attr-defined]
        curvature = prior.precision_matrix + torch.diag(fisher)
        step = torch.linalg.solve(curvature, gradient)
        mode = mode + step.clamp(-0.5, 0.5)
    root = torch.linalg.cholesky(torch.linalg.inv(curvature))
    nodes, weights = hermite(NODES, mode)
    e = torch.cartesian_prod(*[nodes] * 5)
    w = torch.cartesian_prod(*[weights] * 5).prod(-1)
    logs = []
    for part, weight in zip(e.split(200_000), w.split(200_000), strict=True):
        base = -0.5 * part.square().sum(-1) - 2.5 * math.log(2 * math.pi)
        logs.append(joint(mode + part @ root.mT) - base + weight.log())
    total = torch.logsumexp(torch.cat(logs), 0) + root.diagonal().log().sum()
    return float(total)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("name", list(CASES))
def test_the_bound_is_below_the_evidence(name: str) -> None:
    likelihood, y = CASES[name]
    model = models.SVGP(KERNEL, likelihood=likelihood, mean=0.0, Z=X, learn=False)
    how = inference.SVI(method="deterministic")
    posterior = ppgp.fit(model, Dataset(X, y), how, progress=False, standardise=False)
    bound, exact = posterior.stats["elbo"], evidence(likelihood, y)
    assert bound <= exact + 1e-4
    assert bound > exact - 0.2
