"""Natural gradients from the draws of a guide: the closed form of a Gaussian, and any guide."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import autoguide
from torch import Tensor
from torch.distributions import constraints
from torch.func import grad, jacrev, vmap

import ppgp
from ppgp.density import Target
from ppgp.errors import NotApplicable
from ppgp.inference import SVI
from ppgp.inference.variational import natural_steps
from ppgp.inference.variational.natural_steps import NaturalSteps, natural_direction
from ppgp.models import Program

D = 4
LOWER = torch.tril_indices(D, D)
PRECISION = torch.tensor([[2.0, 0.9], [0.9, 1.0]], dtype=torch.float64)
MEAN = torch.tensor([1.0, -2.0], dtype=torch.float64)


def gaussian(mean: Tensor) -> None:
    pyro.sample("z", dist.MultivariateNormal(mean, precision_matrix=PRECISION))


def own_guide(mean: Tensor) -> None:
    loc = pyro.param("loc", lambda: torch.zeros(2, dtype=torch.float64))
    scale = pyro.param(
        "scale", lambda: torch.ones(2, dtype=torch.float64), constraint=constraints.positive
    )
    pyro.sample("z", dist.Normal(loc, scale).to_event(1))


def root(parameters: Tensor) -> Tensor:
    """Return the lower triangular L of the parameters, which are a mean and its entries."""
    L = torch.zeros(D, D, dtype=parameters.dtype)
    return L.index_put((LOWER[0], LOWER[1]), parameters[D:])


def log_q(parameters: Tensor, z: Tensor) -> Tensor:
    L = root(parameters)
    e = torch.linalg.solve_triangular(L, (z - parameters[:D])[:, None], upper=False)[:, 0]
    return -0.5 * e.square().sum() - L.diagonal().abs().log().sum()


def closed_form(parameters: Tensor) -> Tensor:
    """Return the Fisher matrix: dm' S^-1 dm + tr(S^-1 dS S^-1 dS) / 2."""
    L = root(parameters)
    inverse = torch.linalg.inv(L @ L.mT)
    dS = jacrev(lambda p: root(p) @ root(p).mT)(parameters).movedim(-1, 0)
    dm = torch.eye(len(parameters), dtype=torch.float64)[:, :D]
    moved = inverse @ dS
    return dm @ inverse @ dm.mT + 0.5 * torch.einsum("iab,jba->ij", moved, moved)


@pytest.mark.parametrize("draws", [5000, 50_000])
def test_the_direction_is_the_closed_form_of_a_full_rank_gaussian(draws: int) -> None:
    """Within five Monte Carlo errors, F^-1 times that of F_S x, in each parameter."""
    random = torch.Generator().manual_seed(draws)
    L = torch.randn(D, D, generator=random, dtype=torch.float64).tril(-1)
    L += torch.diag(torch.tensor([0.5, 1.0, 2.0, 0.1], dtype=torch.float64))
    mean = torch.randn(D, generator=random, dtype=torch.float64)
    parameters = torch.cat([mean, L[LOWER[0], LOWER[1]]])
    z = mean + torch.randn(draws, D, generator=random, dtype=torch.float64) @ L.mT
    scores = vmap(grad(log_q), (None, 0))(parameters, z)
    gradient = torch.randn(len(parameters), generator=random, dtype=torch.float64)
    F = closed_form(parameters)
    expected = torch.linalg.solve(F, gradient)
    each = torch.linalg.solve(F, (scores * (scores @ expected)[:, None]).mT)
    error = each.std(-1) / draws**0.5
    unit = scores.square().mean(0).rsqrt()  # conjugate gradients end after p steps in these units
    found = unit * natural_direction(scores * unit, gradient * unit, left=1e-12)
    assert bool(((found - expected).abs() < 5 * error).all())


def test_damping_is_relative_to_the_diagonal() -> None:
    random = torch.Generator().manual_seed(0)
    scores = torch.randn(50, 8, generator=random, dtype=torch.float64)
    gradient = torch.randn(8, generator=random, dtype=torch.float64)
    F = scores.mT @ scores / 50
    F += 0.7 * F.diagonal().mean() * torch.eye(8, dtype=torch.float64)
    found = natural_direction(scores, gradient, 0.7, left=1e-12)
    torch.testing.assert_close(found, torch.linalg.solve(F, gradient))


def steps_of(guide: Any, target: Target) -> NaturalSteps:
    how = SVI(guide=guide, optimizer="natural", particles=1000)
    return NaturalSteps(how._options(), target, gaussian, guide, torch.Generator())


def test_draws_at_once_and_one_by_one_give_the_same_fisher_matrix_and_gradient() -> None:
    """Both estimate the closed form within five Monte Carlo errors."""
    target = Target(Program(gaussian), {"mean": MEAN})
    pyro.set_rng_seed(0)
    with pyro.get_param_store().scope():
        guide = autoguide.AutoDiagonalNormal(gaussian, init_scale=0.5)
        guide(MEAN)
        steps = steps_of(guide, target)
        assert steps.at_once
        fisher = torch.diag(torch.cat([torch.full((2,), 4.0), torch.zeros(2)]).double())
        for elbo, gradient, scores, divergence in (
            steps._of_all_draws(None),
            steps._of_each_draw(None),
        ):
            products = scores[:, :2, None] * scores[:, None, :2]
            error = products.std(0) / len(scores) ** 0.5
            assert bool(((products.mean(0) - fisher[:2, :2]).abs() < 5 * error).all())
            assert bool((scores.mean(0).abs() < 5 * scores.std(0) / len(scores) ** 0.5).all())
            loc = next(iter(guide.parameters())).detach()
            slope = PRECISION @ (MEAN - loc)
            assert torch.allclose(gradient[:2], slope, atol=5 * 2.4 / len(scores) ** 0.5)
            assert elbo < 0.0
            assert divergence() == 0.0


@pytest.mark.parametrize(
    "guide",
    [autoguide.AutoMultivariateNormal, "lowrank", own_guide],
    ids=["full", "lowrank", "own"],
)
def test_a_guide_reaches_its_best_elbo(guide: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 for a full covariance; for independent coordinates minus the KL divergence from it."""
    how = SVI(guide=guide, optimizer="natural", learning_rate=0.5, steps=100)
    best = 0.0
    if guide is own_guide:
        monkeypatch.setattr(natural_steps, "DRAWS", 16)
        covariance = torch.linalg.inv(PRECISION)
        diagonal = PRECISION.diagonal().log().sum()
        best = -0.5 * float(torch.logdet(covariance) + diagonal)
    posterior = ppgp.fit(gaussian, {"mean": MEAN}, how, progress=False)
    last = posterior.stats["elbo_history"][-10:]
    assert float(last.mean()) == pytest.approx(best, abs=0.1)
    assert not posterior.warnings


@pytest.mark.filterwarnings("ignore:the ELBO was still rising")
def test_a_flow_is_better_than_a_gaussian_where_the_posterior_bends() -> None:
    def banana() -> None:
        x = pyro.sample("x", dist.Normal(torch.zeros((), dtype=torch.float64), 1.0))
        pyro.sample("y", dist.Normal(2 * x.square(), 0.3))

    how = SVI(guide="iaf", optimizer="natural", learning_rate=0.5, steps=150)
    flow = ppgp.fit(banana, {}, how, seed=2, progress=False)  # its order of sites is x, y
    straight = ppgp.fit(banana, {}, SVI("multivariate_normal"), progress=False)
    assert flow.stats["elbo"] > straight.stats["elbo"] + 0.3


def test_a_step_that_moves_the_guide_too_far_is_taken_back(monkeypatch: Any) -> None:
    target = Target(Program(gaussian), {"mean": MEAN})
    with pyro.get_param_store().scope():
        steps = steps_of(autoguide.AutoDiagonalNormal(gaussian, init_scale=0.5), target)
        before = [value.detach().clone() for value in steps.parameters]
        monkeypatch.setattr(natural_steps, "TOO_FAR", 0.0)
        steps.step(0.1)
        for value, was in zip(steps.parameters, before, strict=True):
            torch.testing.assert_close(value.detach(), was)
        assert steps.damping == natural_steps.RISE * natural_steps.DAMPING
        monkeypatch.undo()
        steps.step(0.1)
        assert not torch.equal(steps.parameters[0], before[0])


def test_what_has_no_natural_gradient_is_refused() -> None:
    def with_a_param() -> None:
        loc = pyro.param("loc", torch.zeros((), dtype=torch.float64))
        pyro.sample("z", dist.Normal(loc, 1.0))

    with pytest.raises(NotApplicable, match="program without params"):
        ppgp.fit(with_a_param, {}, SVI(guide="iaf", optimizer="natural"), progress=False)

    def fixed(mean: Tensor) -> None:
        pyro.sample("z", dist.Normal(mean, 1.0).to_event(1))

    with pytest.raises(NotApplicable, match="guide with parameters"):
        ppgp.fit(gaussian, {"mean": MEAN}, SVI(guide=fixed, optimizer="natural"), progress=False)
