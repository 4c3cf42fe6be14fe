"""Pathfinder's Gaussians, and the chains and guides that start from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from eight_schools import SCHOOLS
from programs import eight_schools, eight_schools_centred
from torch import Tensor

import ppgp
from ppgp.density import Target
from ppgp.errors import ImproperPosterior, NumericalError
from ppgp.inference import HMC, NUTS, SVI, Laplace, Pathfinder
from ppgp.inference.optimise.scipy_search import find_mode
from ppgp.inference.variational.guide_start import initial_gaussian
from ppgp.inference.variational.pathfinder import PathGaussian, _gaussian, _scaled, best_on_path
from ppgp.models import Program
from ppgp.priors import FlatDistribution

F64 = torch.float64


def test_the_gaussian_of_a_path_is_the_lbfgs_inverse_hessian() -> None:
    """The reference is the product form of the update (Nocedal & Wright 2006, equation 7.16)."""
    generator = torch.Generator().manual_seed(0)
    p = 5
    A = torch.randn(p, p, generator=generator, dtype=F64)
    H = A @ A.mT + torch.eye(p, dtype=F64)
    variances, pairs = torch.ones(p, dtype=F64), []
    for _ in range(3):
        s = torch.randn(p, generator=generator, dtype=F64)
        variances = _scaled(variances, s, H @ s)
        pairs.append((s, H @ s))
    inverse = torch.diag(variances)
    for s, y in pairs:
        V = torch.eye(p, dtype=F64) - torch.outer(y, s) / (y @ s)
        inverse = V.mT @ inverse @ V + torch.outer(s, s) / (y @ s)
    z, slope = (
        torch.randn(p, generator=generator, dtype=F64),
        torch.randn(p, generator=generator, dtype=F64),
    )
    result = _gaussian(z, slope, variances, pairs)
    assert result is not None
    root = result.root()
    assert torch.allclose(root @ root.mT, inverse, rtol=1e-9, atol=1e-9)
    assert torch.allclose(result.mean, z + inverse @ slope)
    e = torch.randn(4, p, generator=generator, dtype=F64)
    expected = dist.MultivariateNormal(result.mean, covariance_matrix=inverse).log_prob(
        result.draw(e)
    )
    assert torch.allclose(result.log_prob(result.draw(e)), expected)


def test_a_mode_at_infinity_does_not_mislead_a_path() -> None:
    """The centred schools have infinite density at tau = 0, to which L-BFGS runs."""
    target = Target(Program(eight_schools_centred), SCHOOLS)
    best = best_on_path(target, target.start(0, 1.0), 0, 200)
    assert isinstance(best, PathGaussian)
    mode = find_mode(target, target.start(0, 1.0), False, jacobian=True).z
    assert float(target.constrain(mode)["tau"]) < 1e-4
    assert float(target.constrain(best.mean)["tau"]) > 0.01
    assert best.elbo > -60
    start = initial_gaussian(target, True, target.start(0), 0)
    assert all(bool(torch.isfinite(x).all()) for x in start[:2])


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
@pytest.mark.parametrize("program", [eight_schools, eight_schools_centred])
def test_guides_start_well_where_laplace_is_poor(program: Any) -> None:
    """Both methods end within a tenth of a nat of each other."""
    elbos = [
        ppgp.fit(
            program,
            SCHOOLS,
            SVI("multivariate_normal", method=method, draws=4000),
            seed=1,
            progress=False,
        ).stats
        for method in ("stochastic", "deterministic")
    ]
    errors = [float((s["lp"] - s["log_q"]).std()) / 4000**0.5 for s in elbos]
    assert elbos[0]["elbo"] == pytest.approx(
        elbos[1]["elbo"], abs=0.1 + 4 * float(np.hypot(*errors))
    )


def flat() -> Any:
    return FlatDistribution(torch.zeros((), dtype=F64), torch.distributions.constraints.real)


def ridge(y: Tensor) -> None:
    a, b = pyro.sample("a", flat()), pyro.sample("b", flat())
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(a + b, 1.0), obs=y)


def unused(y: Tensor) -> None:
    a, _ = pyro.sample("a", flat()), pyro.sample("b", flat())
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(a, 1.0), obs=y)


@pytest.mark.parametrize("how", [NUTS(), HMC(), Laplace(), SVI(), SVI("normal")], ids=repr)
def test_an_improper_posterior_is_named(how: Any) -> None:
    y = torch.randn(10, generator=torch.Generator().manual_seed(0), dtype=F64)
    with pytest.raises(
        ImproperPosterior, match="however far a and b go together: give a proper prior"
    ):
        ppgp.fit(ridge, {"y": y}, how.quick(), progress=False)
    with pytest.raises(ImproperPosterior, match="however far b goes"):
        ppgp.fit(unused, {"y": y}, how.quick(), progress=False)


def test_a_path_without_a_finite_gaussian_raises() -> None:
    def steps() -> None:
        x = pyro.sample("x", dist.Normal(torch.zeros(2, dtype=F64), 1.0).to_event(1))
        pyro.factor("never", torch.where(x.square().sum() < 1e-12, 0.0, -torch.inf))

    with pytest.raises(NumericalError, match=r"finite|Gaussian"):
        ppgp.fit(steps, {}, Pathfinder(), progress=False)
