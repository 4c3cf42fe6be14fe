"""What SKI and GridGP share: densities that are functions, calibration, files and surfaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import forked
import pandas as pd
import pyro
import pytest
import torch
from test_grid_gp import cells
from test_ski import rows
from waves import F64

import ppgp
from ppgp import Dataset, inference, models, priors
from ppgp.density import Target
from ppgp.errors import DataError
from ppgp.estimators import ProbabilisticRegressor
from ppgp.kernels import RBF, Matern
from ppgp.models import SKI, GridGP

HOW = inference.MAP(starts=1)
MODELS: dict[str, tuple[Any, Dataset]] = {
    "SKI": (SKI(RBF(), 9), rows(60)),
    "GridGP": (GridGP((Matern(1.5), RBF(1.0))), cells((10, 7))),
}
both = pytest.mark.parametrize("name", MODELS)


@both
def test_one_place_has_one_density(name: str) -> None:
    recipe, data = MODELS[name]
    found = []
    for _ in range(2):
        target = Target(recipe.prepare(data), data)
        z = target.start(seed=1, spread=0.3)
        found += [target.value_and_grad(z), target.value_and_grad(z)]
    for value, slope in found[1:]:
        assert torch.equal(value, found[0][0])
        assert torch.equal(slope, found[0][1])


def test_second_derivatives_of_a_grid_are_differences_of_slopes() -> None:
    recipe, data = MODELS["GridGP"]
    target = Target(recipe.prepare(data), data)
    z = target.start(seed=1, spread=0.3)
    H = target.hessian(z)
    for i, e in enumerate(torch.eye(len(z), dtype=F64)):
        ahead, behind = (target.value_and_grad(z + s * 1e-5 * e)[1] for s in (1, -1))
        torch.testing.assert_close(H[i], (ahead - behind) / 2e-5, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("lengthscale", [1e-3, 50.0])
def test_slopes_and_predictions_of_a_grid_hold_at_400_rows_and_little_noise(
    lengthscale: float,
) -> None:
    """The rows are drawn from the model, whose quadratic form is then about n."""
    X = cells((20, 20)).X
    prior = priors.LogNormal(0.0, 1.0)
    kernels = (Matern(1.5, prior, prior), Matern(0.5, 1.0, prior))
    model = GridGP(kernels, priors.LogNormal(0.0, 1.0), 0.0)
    theta = {
        "kernel.0.variance": 1.3,
        "kernel.0.lengthscale": lengthscale,
        "kernel.1.lengthscale": 1.0,
        "noise": 1e-6,
    }
    values = {k: torch.tensor(v, dtype=F64) for k, v in theta.items()}
    torch.manual_seed(0)
    data = Dataset(X, pyro.poutine.condition(model.model, values)(X))
    own, dense = (Target(m, data, compile=False) for m in (model, model.dense(2)))
    z = own.unconstrain({k: v[None] for k, v in values.items()})[0]
    (value, slope), (expected, other) = own.value_and_grad(z), dense.value_and_grad(z)
    assert float(value) == pytest.approx(float(expected), rel=1e-10)
    torch.testing.assert_close(slope, other, rtol=0, atol=1e-8 * float(other.abs().max()))
    draws = {k: v[None] for k, v in values.items()}
    new = X[:20] + 0.05
    one, two = (m.predict(draws, new, data) for m in (model, model.dense(2)))
    torch.testing.assert_close(one.mean, two.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(one.variance, two.variance, rtol=1e-8, atol=1e-8)


@both
@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_a_fit_goes_to_arviz_and_to_a_file(name: str, tmp_path: Path) -> None:
    recipe, data = MODELS[name]
    posterior = ppgp.fit(recipe, data, inference.Laplace(draws=40), progress=False)
    groups = posterior.to_arviz()
    assert groups.log_likelihood["y"].shape == (1, 40, data.n)
    again = ppgp.load_posterior(posterior.save(tmp_path / name))
    assert torch.equal(again.predict(data.X[:4]).mean, posterior.predict(data.X[:4]).mean)
    assert type(again.model) is type(recipe)


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize(("name", "called"), [("SKI", "ski"), ("GridGP", "gridgp")])
def test_estimators_know_them(name: str, called: str) -> None:
    _, data = MODELS[name]
    X, y = data.X.numpy(), data.y.numpy()
    mean = ProbabilisticRegressor(called, "map").fit(X, y).predict(X)
    assert float(((mean - y) ** 2).mean()) < 0.5 * float(y.var())


@pytest.mark.slow
@pytest.mark.parametrize(("name", "called"), [("SKI", "ski"), ("GridGP", "gridgp")])
def test_the_command_line_fits_and_predicts_with_them(
    name: str, called: str, tmp_path: Path
) -> None:
    _, data = MODELS[name]
    frame = pd.DataFrame(data.X.numpy(), columns=["a", "b"]).assign(y=data.y.numpy())
    frame.to_csv(tmp_path / "table.csv", index=False)
    fit = f"fit table.csv --target y --model {called} --how map --no-progress --out q.safetensors"
    for command in (fit, "predict q.safetensors table.csv --out p.csv"):
        done = forked.ppgp(*command.split(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert len(pd.read_csv(tmp_path / "p.csv")) == data.n


@pytest.mark.slow
def test_the_command_line_compares_what_suits(tmp_path: Path) -> None:
    data = cells((8, 6))
    frame = pd.DataFrame(data.X.numpy(), columns=["a", "b"]).assign(y=data.y.numpy())
    frame.to_csv(tmp_path / "table.csv", index=False)
    command = "compare table.csv --target y --models auto --how map --no-progress"
    done = forked.ppgp(*command.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = (tmp_path / "report" / "results.json").read_text()
    assert all(f'"{model}"' in printed for model in ("gp", "vecchia"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SKI", "GridGP"])
def test_nuts_passes_simulation_based_calibration(name: str) -> None:
    """At 200 rows, with a false alarm in a thousand."""
    kernel = RBF(priors.LogNormal(0.0, 0.5), priors.LogNormal(0.0, 0.3))
    noise = priors.LogNormal(-2.0, 0.5)
    model: Any = SKI(kernel, 24, noise, 0.0) if name == "SKI" else GridGP(kernel, noise, 0.0)
    X = rows(200, 1).X if name == "SKI" else cells((20, 10)).X
    how = inference.NUTS(draws=40, warmup=50, chains=1)
    found = ppgp.sbc(model, how, 20, X=X, progress=False, level=0.999)
    assert found.passes, found.to_frame()


def test_rows_that_no_grid_holds_name_models_that_do() -> None:
    data = cells((8, 5))
    with pytest.raises(DataError, match=r"1 cells empty.*GP\(kernel\), or .*SKI\(kernel\)"):
        GridGP().prepare(data.rows(slice(0, 39)))
    ready = SKI(RBF(1.0, 1.0), 9, 0.1).prepare(data)
    far = torch.full((1, 2), 99.0, dtype=F64)
    with pytest.raises(DataError, match=r"rows inside the grid of SKI.*row 0 outside.*margin"):
        ready.latent({}, far, data)
    assert models.GP(RBF(1.0, 1.0), 0.1).latent({}, far, data).mean.shape == (1, 1)
