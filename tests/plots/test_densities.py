"""Densities integrate to one, follow known ones, and stay within the bounds of a site."""

from __future__ import annotations

import math

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy import integrate, stats

import ppgp
from ppgp import inference, models, plots, priors
from ppgp.plots.densities import bounds_of_sites, density


@pytest.mark.parametrize(
    ("law", "bounds"),
    [
        (stats.norm(1, 2), (-math.inf, math.inf)),
        (stats.lognorm(0.6), (0.0, math.inf)),
        (stats.lognorm(0.6, loc=3.0), (3.0, math.inf)),
        (stats.beta(2, 3), (0.0, 1.0)),
    ],
)
def test_a_density_is_close_to_the_true_one(law, bounds: tuple[float, float]) -> None:
    values = law.rvs(20_000, random_state=0)
    grid, heights = density(values, bounds)
    assert integrate.trapezoid(heights, grid) == pytest.approx(1.0, abs=0.02)
    assert np.abs(heights - law.pdf(grid)).max() < 0.06 * law.pdf(grid).max()
    assert grid.min() >= bounds[0]
    assert grid.max() <= bounds[1]


def test_a_density_below_an_upper_bound_is_the_mirror_image_of_one_above_a_lower_bound() -> None:
    values = stats.lognorm(0.6).rvs(500, random_state=1)
    grid, heights = density(values, (0.0, math.inf))
    mirrored, same = density(-values, (-math.inf, 0.0))
    np.testing.assert_allclose(mirrored, -grid[::-1], rtol=1e-9)
    np.testing.assert_allclose(same, heights[::-1], rtol=1e-6)


def test_bounds_that_draws_do_not_respect_are_not_used() -> None:
    values = stats.norm().rvs(200, random_state=2)
    np.testing.assert_array_equal(density(values, (0.0, math.inf)), density(values))


def test_draws_at_the_bound_have_a_finite_density() -> None:
    values = np.concatenate([np.zeros(3), stats.expon().rvs(200, random_state=3)])
    _, heights = density(values, (0.0, math.inf))
    assert np.isfinite(heights).all()


def test_bounds_are_those_of_the_priors() -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(30, 1, generator=generator, dtype=torch.float64)
    model = models.LinearRegression(noise=priors.HalfNormal(1.0))
    y = X[:, 0] + 0.3 * torch.randn(30, generator=generator, dtype=torch.float64)
    posterior = ppgp.fit(model, ppgp.Dataset(X, y), inference.Laplace(), progress=False)
    found = bounds_of_sites(posterior)
    assert found["noise"] == (0.0, math.inf)
    assert found["bias"] == (-math.inf, math.inf)
    # no density of a positive site has a point below 0
    (axis,) = [a for a in plots.marginals({"fit": posterior}).axes if a.get_title() == "noise"]
    assert axis.lines[0].get_xdata().min() > 0


def test_bounds_of_a_program_are_those_of_its_sites() -> None:
    def program(y: torch.Tensor) -> None:
        share = pyro.sample("share", dist.Beta(2.0, 2.0))
        scale = pyro.sample("scale", dist.Gamma(2.0, 1.0))
        pyro.sample("parts", dist.Dirichlet(torch.ones(3)))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(share, scale), obs=y)

    y = torch.linspace(-1, 2, 12)
    posterior = ppgp.fit(program, {"y": y}, inference.Laplace(draws=50), progress=False)
    expected = {"share": (0.0, 1.0), "scale": (0.0, math.inf), "parts": (0.0, 1.0)}
    assert bounds_of_sites(posterior) == expected
