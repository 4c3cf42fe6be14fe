"""GridGP: the values, slopes and predictions of GP with the product of its kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyro
import pytest
import torch
from torch import Tensor
from waves import F64

import ppgp
from ppgp import Dataset, inference, kernels, models
from ppgp.density import Target
from ppgp.errors import DataError, NotApplicable, NotEnoughMemory, SettingError
from ppgp.kernels import RBF, Matern, Periodic, Subspace, White
from ppgp.models import GridGP
from ppgp.models.grid.kronecker import kronecker_log_density
from ppgp.runtime import memory

RECIPES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "one kernel": (RBF(), (9, 8)),
    "two kernels": ((RBF(lengthscale=0.5), Matern(1.5, 1.0)), (16, 25)),
    "a sum": ((RBF() + Periodic(), Matern(0.5, 1.0, 0.3)), (12, 6)),
    "three columns": ((RBF(), Matern(2.5, 1.0), RBF(1.0)), (5, 4, 3)),
    "one column": (Matern(1.5), (30,)),
    "places": ((Subspace(Matern(1.5), [0, 2]), RBF(1.0)), (12, 5)),
}


def cells(shape: tuple[int, ...], places: bool = False, seed: int = 0) -> Dataset:
    """Return the cells of a grid in random order, with a wave and noise as y.

    With ``places``, columns 0 and 2 hold points of the plane, and column 1 the other axis.
    """
    generator = torch.Generator().manual_seed(seed)
    axes = [3 * torch.rand(k, generator=generator, dtype=F64) for k in shape]
    X = torch.cartesian_prod(*axes).reshape(-1, len(shape))
    if places:
        other = 3 * torch.rand(shape[0], generator=generator, dtype=F64)
        X = torch.cat([X, other.repeat_interleave(shape[1])[:, None]], 1)
    X = X[torch.randperm(len(X), generator=generator)]
    y = torch.sin(2 * X).prod(1) + 0.2 * torch.randn(len(X), generator=generator, dtype=F64)
    return Dataset(X, y)


def both(name: str) -> tuple[GridGP, models.GP, Dataset]:
    """Return the model of a recipe, the GP with the same kernel, and rows."""
    kernel, shape = RECIPES[name]
    data = cells(shape, name == "places")
    model = GridGP(kernel).prepare(data)
    return model, model.dense(data.d), data


def close(one: Any, other: Any, tolerance: float = 1e-8) -> None:
    """Check that two predictive distributions have the same moments."""
    torch.testing.assert_close(one.mean, other.mean, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(one.variance, other.variance, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", RECIPES)
def test_values_slopes_and_predictions_are_those_of_gp(name: str) -> None:
    model, gp, data = both(name)
    assert type(gp) is models.GP
    own, dense = Target(model, data, compile=False), Target(gp, data, compile=False)
    z = own.start(seed=1, spread=0.4)
    (value, slope), (expected, expected_slope) = own.value_and_grad(z), dense.value_and_grad(z)
    assert float(value) == pytest.approx(float(expected), rel=1e-10)
    torch.testing.assert_close(slope, expected_slope, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(own.hessian(z), dense.hessian(z), atol=1e-6, rtol=1e-8)
    theta = {k: torch.stack([v, 1.2 * v]) for k, v in own.constrain(z).items()}
    generator = torch.Generator().manual_seed(2)
    new = 3 * torch.rand(7, data.d, generator=generator, dtype=F64)
    for X in (new, data.X, data.X[:30] + 0.1):
        close(model.predict(theta, X, data), gp.predict(theta, X, data))
        close(model.latent(theta, X, data), gp.latent(theta, X, data))
    together, expected_joint = (m.predict(theta, new, data, joint=True) for m in (model, gp))
    close(together, expected_joint)
    torch.testing.assert_close(together.covariance_matrix, expected_joint.covariance_matrix)
    close(model.loo(theta, data), gp.loo(theta, data))
    for part, other in zip(
        model.gaussian(theta, new, data), gp.gaussian(theta, new, data), strict=True
    ):
        assert torch.equal(part, other)


@pytest.mark.parametrize("lengthscale", [1e-3, 0.3, 50.0])
@pytest.mark.parametrize("noise", [1e-6, 1.0])
def test_values_hold_for_little_noise_and_any_lengthscale(noise: float, lengthscale: float) -> None:
    """The rows are drawn from the model, whose quadratic form is then about n."""
    X = cells((20, 20)).X
    model = GridGP((Matern(1.5, 1.0, lengthscale), Matern(0.5, 2.0, 1.0)), noise, 0.0)
    torch.manual_seed(0)
    data = Dataset(X, model.model(X))
    programs = [pyro.poutine.trace(m.model) for m in (model, model.dense(2))]
    values = [float(p.get_trace(data.X, data.y).log_prob_sum()) for p in programs]
    assert values[0] == pytest.approx(values[1], rel=1e-10)
    scale = 1e-8 * float(data.y.abs().max())
    close(model.loo({}, data), model.dense(2).loo({}, data), max(scale, 1e-8))


def test_draws_have_the_covariance_of_the_model() -> None:
    """The squared length of a whitened draw is chi-square: n plus or minus sqrt(2 n)."""
    data = cells((6, 5))
    model = GridGP((RBF(1.5, 1.0), Matern(0.5, 1.0, 0.7)), 0.3, 2.0)
    torch.manual_seed(0)
    draws = torch.stack([model.model(data.X) for _ in range(300)]) - 2.0
    L = torch.linalg.cholesky(model.dense(2)._covariance({}, data.X))
    white = torch.linalg.solve_triangular(L, draws.mT, upper=False)
    error = (2 / (300 * 30)) ** 0.5
    assert float(white.square().mean()) == pytest.approx(1.0, abs=4 * error)
    assert float((white @ white.mT / 300 - torch.eye(30)).abs().max()) < 6 / 300**0.5


def test_the_density_of_a_covariance_that_is_not_finite_is_nan() -> None:
    K = torch.eye(3, dtype=F64)
    R, noise = torch.ones(3, 3, dtype=F64), torch.tensor(0.1, dtype=F64)
    for wrong in (torch.nan, torch.inf):
        value = kronecker_log_density(R, noise, [K, K.fill_diagonal_(wrong)])
        assert bool(value.isnan())


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_a_fit_on_the_scale_of_the_data_saves_and_loads(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    years, places = 2000 + torch.arange(12.0, dtype=F64), 100 * torch.arange(6.0, dtype=F64)
    X = torch.cartesian_prod(years, places)
    y = 300 + 20 * torch.sin(X[:, 0]) + 0.1 * X[:, 1]
    data = Dataset(X, y + torch.randn(len(X), generator=generator, dtype=F64))
    how = inference.MAP(starts=1)
    posterior = ppgp.fit(GridGP((Matern(), RBF(1.0))), data, how, progress=False)
    again = ppgp.load_posterior(posterior.save(tmp_path / "grid"))
    new = torch.tensor([[2003.5, 250.0], [2013.0, 0.0]], dtype=F64)
    assert torch.equal(again.predict(new).mean, posterior.predict(new).mean)
    dense = models.GP(Subspace(Matern(), [0]) * Subspace(RBF(1.0), [1]))
    exact = ppgp.fit(dense, data, how, progress=False)
    assert posterior.stats["log_density"] == pytest.approx(exact.stats["log_density"], abs=1e-6)
    torch.testing.assert_close(
        posterior.predict(new).mean, exact.predict(new).mean, rtol=1e-4, atol=0
    )
    assert posterior.pathwise(3, features=None)(new).shape == (3, 2)


def test_rows_that_form_no_grid_are_refused() -> None:
    data = cells((5, 4))
    with pytest.raises(DataError, match=r"each of its 5 x 4 cells once, got 19 rows.* 1 cells"):
        GridGP().prepare(data.rows(slice(0, 19)))
    twice = Dataset(torch.cat([data.X, data.X[:2]]), torch.cat([data.y, data.y[:2]]))
    with pytest.raises(DataError, match=r"more than one in some cells.*average"):
        GridGP().prepare(twice)
    with pytest.raises(DataError, match="Subspace"):
        ppgp.fit(GridGP(), Dataset(torch.rand(30, 2), torch.rand(30)), progress=False)
    near = Dataset(data.X + 1e-15 * torch.randn(20, 2, dtype=F64), data.y)  # rounding errors
    assert GridGP()._grid(near.X).shape == [5, 4]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((RBF(), RBF(), RBF()), "each of 2 columns once, got 3 kernels"),
        ((Subspace(RBF(), [0]), Subspace(RBF(), [0, 1])), "once"),
        (Subspace(RBF(), [1]), "one kernel per column"),
        ((), "at least one kernel"),
    ],
)
def test_kernels_that_do_not_read_each_column_once_are_refused(given: Any, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        GridGP(given).prepare(cells((5, 4)))


def test_what_a_grid_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = cells((5, 4))
    with pytest.raises(NotApplicable, match=r"White.*the noise of the model"):
        GridGP((RBF() + White(), RBF(1.0))).prepare(data)
    with pytest.raises(NotApplicable, match="noise_sd"):
        ppgp.fit(GridGP(), Dataset(data.X, data.y, noise_sd=0.1), progress=False)
    with pytest.raises(SettingError, match="noise"):
        ppgp.fit(GridGP(noise=0.0), data, progress=False)
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "available", lambda _: 1000)
    with pytest.raises(NotEnoughMemory, match="a grid of 5 x 4"):
        GridGP().prepare(data)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_nuts_agrees_with_nuts_on_gp() -> None:
    data, how = cells((8, 6)), inference.NUTS(draws=500, warmup=300, chains=2)
    dense = kernels.Product((Subspace(RBF(), [0]), Subspace(RBF(1.0), [1])))
    one, two = (
        ppgp.fit(m, data, how, seed=i, progress=False)
        for i, m in enumerate((GridGP(), models.GP(dense)))
    )
    for name in two.draws:
        logs: list[Tensor] = [posterior.draws[name].log() for posterior in (one, two)]
        error = sum(ppgp.diagnostics.mcse(x.numpy(), "mean") ** 2 for x in logs) ** 0.5
        assert float(logs[0].mean() - logs[1].mean()) == pytest.approx(0.0, abs=5 * error)
