"""The end of L-BFGS: values that differ by rounding alone, and densities without a mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.reparam import LocScaleReparam
from torch import Tensor

import ppgp
from ppgp import inference, models
from ppgp.data.arguments import Arguments
from ppgp.density.target import Evaluated, Target
from ppgp.errors import ConvergenceWarning
from ppgp.inference.optimise import scipy_search
from ppgp.inference.optimise.scipy_search import lbfgs
from ppgp.inference.optimise.search import SearchOptions, SearchResult, with_edges

LEVEL = -1e6  # a value whose last digits are lost
CURVATURE = np.geomspace(1.0, 1e3, 5)


class Quadratic(Target):
    """A quadratic log density with its mode at 1, whose values carry an error of the sum."""

    may_have_kinks = True  # pyright: ignore[reportAssignmentType]

    def __init__(self, error: float) -> None:
        self.error = error

    def step_scales(self, z: Tensor) -> Tensor:
        return torch.ones_like(z)

    def callback(
        self, jacobian: bool = True, after: float = 0.0, evaluated: Evaluated | None = None
    ) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
        def value_and_gradient(z: np.ndarray) -> tuple[float, np.ndarray]:
            apart = z - 1
            error = self.error * np.sin(1e9 * z.sum())
            return LEVEL - 0.5 * (CURVATURE * apart**2).sum() + error, -CURVATURE * apart

        return value_and_gradient


class Kinked(Quadratic):
    """A log density -abs(z - 1), whose gradient is 1 up to its mode."""

    def callback(
        self, jacobian: bool = True, after: float = 0.0, evaluated: Evaluated | None = None
    ) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
        return lambda z: (-float(np.abs(z - 1).sum()), -np.sign(z - 1))


def test_a_search_that_ends_at_a_kink_has_converged_and_says_so() -> None:
    z0 = torch.linspace(0.0, 0.37, 5, dtype=torch.float64)
    options = SearchOptions(steps=1000, jacobian=True, progress=False)
    found = lbfgs(options, Kinked(0.0), z0, 0)
    assert not found.notes
    assert found.stats["at_kink"]
    assert float((found.z - 1).abs().max()) < 1e-6
    assert found.stats["gradient"] < 1e-3


def hierarchy(y: torch.Tensor) -> None:
    mean = pyro.sample("mean", dist.Normal(torch.zeros((), dtype=y.dtype), 5.0))
    spread = pyro.sample("spread", dist.HalfCauchy(torch.tensor(5.0, dtype=y.dtype)))
    with pyro.plate("schools", len(y)):
        effect = pyro.sample("effect", dist.Normal(mean, spread))
        pyro.sample("y", dist.Normal(effect, 10.0), obs=y)


@pytest.mark.filterwarnings("ignore:the Hessian at the mode")
@pytest.mark.parametrize("how", [inference.MAP(), inference.Laplace(draws=20)])
def test_a_hierarchy_without_a_highest_point_says_so(how: Any) -> None:
    y = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], dtype=torch.float64)
    with pytest.warns(ConvergenceWarning, match=r"no highest point, .* support, 'spread' \(now"):
        posterior = ppgp.fit(hierarchy, {"y": y}, how, progress=False)
    assert not any(note.startswith("the search ended") for note in posterior.warnings)
    apart = pyro.poutine.reparam(hierarchy, config={"effect": LocScaleReparam(0.0)})
    with warnings.catch_warnings():  # the way out that the sentence names
        warnings.simplefilter("error")
        ppgp.fit(apart, {"y": y}, inference.MAP(), progress=False)


def test_a_search_that_ends_near_an_edge_names_hierarchies_beside_its_gradient() -> None:
    y = torch.tensor([28.0, 8.0, -3.0], dtype=torch.float64)
    target = Target(models.Program(hierarchy), Arguments({"y": y}))
    z = target.unconstrain({"mean": y[:1], "spread": 0.01 + 0 * y[:1], "effect": y[None]})[0]
    ended = ["the search ended after 3 iterations with a gradient of 5"]
    notes = with_edges(target, SearchResult(z, {}, ended))
    assert notes[0] == ended[0]
    assert "near the edge of its support: 'spread' (now 0.01); if the effects" in notes[1]
    farther = z.clone()
    farther[target.slices["spread"].start] = 0.0
    assert with_edges(target, SearchResult(farther, {}, ended)) == ended


def search(error: float) -> tuple[int, np.ndarray, float]:
    """Return the number of evaluations, the mode found and its value."""
    z0 = torch.zeros(len(CURVATURE), dtype=torch.float64)
    options = SearchOptions(steps=1000, jacobian=True, progress=False)
    found = lbfgs(options, Quadratic(error), z0, 0)
    return len(found.stats["losses"]), found.z.numpy(), found.stats["log_density"]


@pytest.mark.parametrize("error", [1e-9, 1e-8, 5e-8])
def test_a_line_search_does_not_go_on_at_the_rounding_of_the_value(
    error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluations, z, value = search(error)
    monkeypatch.setattr(scipy_search, "IDLE", 10**9)
    before, _, _ = search(error)
    assert evaluations <= before
    # the value is within two gains of the best one, which bounds the distance to the mode
    gain = scipy_search.RELATIVE_GAIN * abs(LEVEL)
    assert value > LEVEL - 2 * gain
    assert np.all(0.5 * CURVATURE * (z - 1) ** 2 < 4 * gain)


def test_it_saves_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = [search(error)[0] for error in np.linspace(1e-9, 5e-8, 20)]
    monkeypatch.setattr(scipy_search, "IDLE", 10**9)
    otherwise = [search(error)[0] for error in np.linspace(1e-9, 5e-8, 20)]
    print(ended, otherwise)
    assert sum(ended) < 0.8 * sum(otherwise)


def test_without_rounding_the_gradient_ends_the_search() -> None:
    _, z, _ = search(0.0)
    np.testing.assert_allclose(z, 1, atol=1e-4)


def test_values_in_float32_do_not_keep_a_search_from_the_mode() -> None:
    """Values within 0.06 nats are equal at this level: the gradients tell points apart."""

    class Rounded(Quadratic):
        def callback(
            self, jacobian: bool = True, after: float = 0.0, evaluated: Evaluated | None = None
        ) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
            exact = super().callback(jacobian, after, evaluated)

            def in_single(z: np.ndarray) -> tuple[float, np.ndarray]:
                value, gradient = exact(z)
                return float(np.float32(value)), gradient.astype(np.float32).astype(float)

            return in_single

    z0 = torch.zeros(len(CURVATURE))
    found = lbfgs(SearchOptions(steps=1000, jacobian=True, progress=False), Rounded(0.0), z0, 0)
    assert not found.notes
    assert found.stats["gradient"] < 0.1
    apart = np.sqrt(CURVATURE) * (found.z.double().numpy() - 1)  # in standard deviations
    assert np.abs(apart).max() < 1e-2


def test_a_root_of_the_curvature_leads_to_the_mode_in_a_step_or_two() -> None:
    """In its units the quadratic is round, whatever the rotation of the root."""
    rotation = torch.linalg.qr(
        torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ).Q
    root = torch.as_tensor(CURVATURE**-0.5)[:, None] * rotation
    z0 = torch.full((5,), 1.5, dtype=torch.float64)
    plain = lbfgs(SearchOptions(), Quadratic(0.0), z0, 0)
    found = lbfgs(SearchOptions(root=root), Quadratic(0.0), z0, 0)
    assert found.stats["steps"] <= 2 < plain.stats["steps"]
    assert found.stats["gradient"] < 1e-6
    torch.testing.assert_close(found.z, torch.ones_like(z0))
    assert found.notes == []
