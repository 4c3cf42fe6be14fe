"""SKI past the nodes that dense algebra takes, on small grids forced into that path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from waves import F64

import ppgp
from ppgp import Dataset, inference, kernels, models, networks
from ppgp.density import Target
from ppgp.errors import ConvergenceWarning, NotApplicable
from ppgp.kernels import RBF, Matern, Subspace, White
from ppgp.models import SKI
from ppgp.models.grid import many_nodes, ski


def rows(n: int = 80, d: int = 2, seed: int = 0) -> Dataset:
    """Return random rows, denser on one side, with a wave and noise as y."""
    generator = torch.Generator().manual_seed(seed)
    X = 3 * torch.rand(n, d, generator=generator, dtype=F64) ** 1.5
    noise = torch.randn(n, generator=generator, dtype=F64)
    return Dataset(X, torch.sin(2 * X).prod(1) + 0.2 * noise)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Dense algebra takes 20 nodes."""
    monkeypatch.setattr(ski, "MOST_NODES", 20)
    return monkeypatch


KERNELS: dict[str, tuple[Any, int, Any]] = {
    "RBF": (RBF(), 2, (9, 7)),
    "ARD and White": (kernels.Scale(kernels.ARD(RBF(1.0))) + White(), 2, 8),
    "a product": (Subspace(Matern(1.5), [1]) * Subspace(RBF(1.0), [0]), 2, 8),
    "three columns": (RBF(), 3, 6),
}


def exact_and_estimated(
    name: str, few: pytest.MonkeyPatch, data: Dataset, seed: int = 0
) -> tuple[Target, Target, SKI]:
    """Return the densities of one model by dense algebra and by probes."""
    kernel, _, grid = KERNELS[name]
    model = SKI(kernel, grid, seed=seed)
    few.setattr(ski, "MOST_NODES", 5000)
    exact = Target(model.prepare(data), data, compile=False)
    few.setattr(ski, "MOST_NODES", 20)
    ready = model.prepare(data)
    assert ready.chunked(data)
    return exact, Target(ready, data), ready


@pytest.mark.parametrize("name", [name for name in KERNELS if "White" not in name])
def test_exact_probes_give_the_dense_value_slopes_and_curvature(
    name: str, few: pytest.MonkeyPatch
) -> None:
    """The mean over the unit vectors, times their number, is the trace itself."""

    def unit(m: int, seed: int, like: torch.Tensor) -> torch.Tensor:
        return m**0.5 * torch.eye(m).to(like)

    few.setattr("ppgp.models.grid.many_nodes.probes_of", unit)
    data = rows(d=KERNELS[name][1])
    exact, own, _ = exact_and_estimated(name, few, data)
    z = own.start(seed=1, spread=0.3)
    value, slope = own.value_and_grad(z)
    few.setattr(ski, "MOST_NODES", 5000)
    expected, expected_slope = exact.value_and_grad(z)
    # the jitter of the axes is not quite that of the nodes
    assert float(value) == pytest.approx(float(expected), abs=1e-4)
    torch.testing.assert_close(slope, expected_slope, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["ARD and White", "three columns"])
def test_the_estimate_is_within_its_error_and_is_a_function(
    name: str, few: pytest.MonkeyPatch
) -> None:
    data = rows(d=KERNELS[name][1])
    values, slopes, errors = [], [], []
    for seed in range(8):
        exact, own, model = exact_and_estimated(name, few, data, seed)
        z = own.start(seed=1, spread=0.3)
        value, slope = own.value_and_grad(z)
        values.append(value)
        slopes.append(slope)
        theta = {k: v[None] for k, v in own.constrain(z).items()}
        errors.append(model.fit_stats(theta, data)["log_density_error"])
    again, same = own.value_and_grad(z)
    assert torch.equal(again, value)
    assert torch.equal(same, slope)
    for i, e in enumerate(torch.eye(len(z), dtype=F64)):  # slopes of the estimate itself
        ahead, behind = (own.log_density(z + s * 1e-4 * e) for s in (1, -1))
        assert float(slope[i]) == pytest.approx(float(ahead - behind) / 2e-4, abs=1e-4, rel=1e-5)
    few.setattr(ski, "MOST_NODES", 5000)
    expected, expected_slope = exact.value_and_grad(z)
    mean_error = (sum(e**2 for e in errors)) ** 0.5 / len(errors)
    spread = float(torch.stack(values).std())
    assert 0.4 < spread / (sum(e**2 for e in errors) / len(errors)) ** 0.5 < 2.0
    assert abs(float(torch.stack(values).mean() - expected)) < 4 * mean_error + 1e-4
    every = torch.stack(slopes)
    limits = 5 * every.std(0) / len(every) ** 0.5 + 1e-4
    assert bool(((every.mean(0) - expected_slope).abs() < limits).all())


def test_second_derivatives_are_differences_of_slopes(few: pytest.MonkeyPatch) -> None:
    data = rows()
    _, own, _ = exact_and_estimated("RBF", few, data)
    z = own.start(seed=1, spread=0.3)
    H = own.hessian(z)
    for i, e in enumerate(torch.eye(len(z), dtype=F64)):
        ahead, behind = (own.value_and_grad(z + s * 1e-4 * e)[1] for s in (1, -1))
        torch.testing.assert_close(H[i], (ahead - behind) / 2e-4, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", ["RBF", "three columns"])
def test_predictions_are_those_of_dense_algebra(name: str, few: pytest.MonkeyPatch) -> None:
    """Solves are exact: the probes only enter the density."""
    data = rows(d=KERNELS[name][1])
    _, own, model = exact_and_estimated(name, few, data)
    theta = {k: torch.stack([v, 1.2 * v]) for k, v in own.constrain(own.start()).items()}
    X = data.X[:9] * 0.9 + 0.1
    found = []
    for most in (20, 5000):
        few.setattr(ski, "MOST_NODES", most)
        together = model.predict(theta, X, data, joint=True)
        alone = model.predict(theta, X, data), model.latent(theta, X, data)
        found.append((together, *alone, model.loo(theta, data)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one.mean, other.mean, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(one.variance, other.variance, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("steps", [1, 3, 150])
def test_variances_are_never_below_those_of_dense_algebra(
    steps: int, few: pytest.MonkeyPatch
) -> None:
    """Too few steps give larger ones, at most those without training rows."""
    data = rows(300)
    model = SKI(RBF(1.0, 0.7), 14, 0.003, 0.0).prepare(data)
    X = data.X[:40] * 0.9 + 0.1
    few.setattr(ski, "MOST_NODES", 5000)
    dense, loo = model.latent({}, X, data).variance, model.loo({}, data).variance
    few.setattr(ski, "MOST_NODES", 20)
    few.setattr(many_nodes, "MOST_STEPS", steps)
    found = model.latent({}, X, data).variance
    jitter = 1e-6  # of the axes, which is not quite that of the nodes
    assert bool((found >= dense - jitter).all())
    assert bool((model.loo({}, data).variance >= loo - jitter).all())
    assert bool((found <= 1.0 + jitter).all())
    if steps == 150:
        torch.testing.assert_close(found, dense, atol=2e-6, rtol=1e-3)
    else:
        assert bool((found > dense + 1e-3).any())


def test_a_fit_says_how_exact_it_is(few: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data, how = rows(200), inference.MAP(starts=1)
    model = SKI(RBF(1.0, 1.0), 18)
    with pytest.warns(ConvergenceWarning, match=r"standard error of .* 20 nodes"):
        posterior = ppgp.fit(model, data, how, progress=False)
    assert 0 < posterior.stats["log_density_error"] < 2
    assert posterior.stats["lanczos_steps"] < many_nodes.MOST_STEPS
    again = ppgp.load_posterior(posterior.save(tmp_path / "many"))
    assert torch.equal(again.predict(data.X[:5]).mean, posterior.predict(data.X[:5]).mean)
    few.setattr(ski, "MOST_NODES", 5000)
    exact = ppgp.fit(model, data, how, progress=False)
    gap = posterior.draws["noise"].log() - exact.draws["noise"].log()
    assert abs(float(gap)) < 0.05


def test_conjugate_gradients_that_stop_early_are_told(few: pytest.MonkeyPatch) -> None:
    data = rows(200)
    model = SKI(RBF(1.0, 1.0), 18, 0.01, 0.0).prepare(data)
    assert not [note for note in model.check_fit({}, data) if "conjugate" in note]
    few.setattr(many_nodes, "MOST_STEPS", 3)
    assert "stopped after 3 steps" in " ".join(model.check_fit({}, data))


def test_draws_have_the_covariance_of_the_model(few: pytest.MonkeyPatch) -> None:
    """The squared length of a whitened draw is chi-square."""
    data = rows(20)
    model = SKI(RBF(1.5, 1.0), 8, 0.3, 2.0).prepare(data)
    torch.manual_seed(0)
    draws = torch.stack([model.model(data.X) for _ in range(200)]) - 2.0
    gp = models.GP(RBF(1.5, 1.0), 0.3)
    L = torch.linalg.cholesky(gp._covariance({}, data.X))
    white = torch.linalg.solve_triangular(L, draws.mT, upper=False)
    assert float(white.square().mean()) == pytest.approx(1.0, abs=0.02 + 4 * (2 / 4000) ** 0.5)


def test_what_it_cannot_do_is_refused(few: pytest.MonkeyPatch) -> None:
    data = rows(30)
    with pytest.raises(NotApplicable, match=r"a product over the columns.*64 nodes.*RBF"):
        SKI(Matern(1.5), 8).prepare(data)
    deep = kernels.Deep(networks.MLP((3,), 2), RBF())
    with pytest.raises(NotApplicable, match="features of a network"):
        SKI(deep, 8).prepare(data)
    few.setattr(ski, "MOST_IN_ALL", 50)
    with pytest.raises(NotApplicable, match=r"at most 50 nodes in SKI, got 64.*fit GP"):
        SKI(RBF(), 8).prepare(data)
    with pytest.raises(NotApplicable, match="at most 20 nodes"):
        SKI(RBF(), 30).prepare(rows(30, 1))
