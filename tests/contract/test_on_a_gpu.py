"""Every model with every method on a GPU: the results stay there, and equal those on the CPU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from dtype_programs import cases, methods
from samples import data_for, every_model
from test_pairs import HOWS, ROWS, shortest
from torch import Tensor

import ppgp
from ppgp import conformal, inference, models
from ppgp.diagnostics.leave_one_out import psis_loo
from ppgp.errors import NotApplicable
from ppgp.inference import Inference
from ppgp.models import Model
from ppgp.posterior.posterior import Posterior
from ppgp.posterior.prediction import Prediction

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU and torch with CUDA"),
    pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning"),
]
GPU = "cuda"
CASES = cases()
FEW = ("varying intercepts", "Hilbert-space GP")  # programs under torch's default device


def fitted(model: Any, data: Any, on_the_cpu: Any, how: Inference) -> Posterior | None:
    """Return a fit on the GPU; None for a pair that is refused, which is so on the CPU too."""
    try:
        return ppgp.fit(model, data, how, progress=False)
    except NotApplicable:
        with torch.device("cpu"), pytest.raises(NotApplicable):
            ppgp.fit(model, on_the_cpu, how, progress=False)
        return None


def check_figures(prediction: Prediction) -> None:
    """Check that the means or probabilities of a prediction are finite, and on the GPU."""
    figure = prediction.probabilities if prediction.kind == "classes" else prediction.mean
    assert figure.device.type == GPU
    assert bool(torch.isfinite(figure).all())


def check_a_recipe(model: Model, how: Inference) -> None:
    """Fit a recipe on the GPU, and predict."""
    with torch.device("cpu"):
        on_the_cpu = data_for(model, ROWS)
    data = on_the_cpu.to(GPU)
    posterior = fitted(model, data, on_the_cpu, how)
    if posterior is None:
        return
    assert all(v.device.type == GPU for v in posterior.draws.values())
    assert all(bool(torch.isfinite(v).all()) for v in posterior.draws.values())
    prediction = posterior.predict(data.rows(slice(0, 3)))
    check_figures(prediction)
    assert bool(torch.isfinite(prediction.log_prob(data.y[:3])).all())


@pytest.mark.usefixtures("shared_graphs")
@pytest.mark.parametrize("how", HOWS, ids=lambda h: type(h).__name__)
@every_model
def test_draws_and_predictions_are_on_the_gpu(model: Model, how: Inference) -> None:
    check_a_recipe(model, how)


@every_model
def test_the_log_density_and_its_gradient_equal_those_on_the_cpu(model: Model) -> None:
    data = data_for(model, ROWS)
    try:
        cpu, gpu = (ppgp.Target(model.prepare(d), d) for d in (data, data.to(GPU)))
    except NotApplicable:
        return
    z = 0.3 * torch.linspace(-1, 1, cpu.dim, dtype=torch.float64)
    value, gradient = cpu.value_and_grad(z)
    on_gpu = gpu.value_and_grad(z.to(GPU))
    assert on_gpu[1].device.type == GPU
    assert float(on_gpu[0]) == pytest.approx(float(value), rel=1e-9, abs=1e-8)
    torch.testing.assert_close(on_gpu[1].cpu(), gradient, rtol=1e-7, atol=1e-7)


@every_model
def test_the_end_of_a_search_equals_that_on_the_cpu(model: Model) -> None:
    """Compare the log density, in nats, and predictions in the sd of y."""
    if isinstance(model, models.NeuralRegression):
        pytest.skip("a network has many modes, and rounding decides which of them is found")
    data = data_for(model, ROWS)
    try:
        cpu = ppgp.fit(model, data, inference.MAP(), progress=False)
    except NotApplicable:
        return
    gpu = ppgp.fit(model, data.to(GPU), inference.MAP(), progress=False)
    assert gpu.stats["log_density"] == pytest.approx(cpu.stats["log_density"], abs=1e-5)
    new = data.rows(slice(0, 3))
    one, two = cpu.predict(new), gpu.predict(new.to(GPU))
    if one.kind == "classes":
        torch.testing.assert_close(two.probabilities.cpu(), one.probabilities, atol=1e-3, rtol=0)
        return
    spread = float(data.y.to(one.mean).std())
    torch.testing.assert_close(two.mean.cpu(), one.mean, atol=1e-3 * spread, rtol=0)


def test_intervals_scores_files_and_tables_of_a_fit_on_a_gpu(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(300, 2, dtype=torch.float64, generator=generator)
    y = X[:, 0].sin() + 0.1 * torch.randn(300, dtype=torch.float64, generator=generator)
    data = ppgp.Dataset(X, y).to(GPU)
    train, held_out, new = (data.rows(slice(k, k + 100)) for k in (0, 100, 200))
    posterior = ppgp.fit(models.GP(), train, progress=False)
    calibrator = ppgp.calibrate(conformal.Absolute(), posterior.predict(held_out), held_out.y)
    prediction = posterior.predict(new)
    region = calibrator(prediction, level=0.9)
    assert region.lower.device.type == GPU
    assert float(region.covers(new.y).double().mean()) > 0.75
    assert bool(torch.isfinite(prediction.crps(new.y)).all())
    posterior.save(tmp_path / "fit.ppgp")
    again = ppgp.load_posterior(tmp_path / "fit.ppgp")
    torch.testing.assert_close(
        again.predict(new.X.cpu()).mean.cpu(), prediction.mean.cpu(), rtol=1e-8, atol=1e-8
    )
    assert set(posterior.theta) == set(again.theta)
    posterior.to_arviz()


def test_rows_on_another_device_than_those_of_the_fit_are_moved() -> None:
    data = data_for(models.GP(), ROWS).to(GPU)
    posterior = ppgp.fit(models.GP(), data, progress=False)
    assert posterior.predict(data.X[:2].cpu()).mean.shape == (2,)


# -- programs --------------------------------------------------------------------------------------


def moved(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments whose tensors are on the GPU."""
    return {
        name: value.to(GPU) if isinstance(value, Tensor) else value
        for name, value in arguments.items()
    }


def check_a_program(method: str, name: str) -> None:
    """Fit a program in float32 on the GPU, and go on from its posterior."""
    case, dtype = CASES[name], torch.float32
    with torch.device(GPU):
        program = case.make(dtype)
    arguments = case.fit_arguments(dtype)
    how = shortest(methods()[method])
    posterior = fitted(program, moved(arguments), arguments, how)
    if posterior is None:
        return
    for value in posterior.draws.values():
        assert (value.device.type, value.dtype) == (GPU, dtype)
        assert bool(torch.isfinite(value).all())
    with suppress(NotApplicable):  # a mode, a subsample or a sum over classes
        assert math.isfinite(psis_loo(posterior).elpd)
    with suppress(NotApplicable):
        posterior.to_arviz()
    new = case.new_arguments(dtype)
    if new is None:
        return
    with suppress(NotApplicable):
        found = posterior.predict(**moved(new))
        for prediction in found.values() if isinstance(found, dict) else [found]:
            check_figures(prediction)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("method", methods())
def test_a_program_runs_where_its_arguments_are(method: str, name: str) -> None:
    check_a_program(method, name)


@pytest.fixture
def gpu_by_default() -> Iterator[None]:
    """Let torch put new tensors on the GPU."""
    torch.set_default_device(GPU)
    yield
    torch.set_default_device(None)


@pytest.mark.usefixtures("gpu_by_default")
@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("method", methods())
def test_a_program_runs_where_the_gpu_is_the_default_device(method: str, name: str) -> None:
    check_a_program(method, name)


@pytest.mark.usefixtures("shared_graphs", "gpu_by_default")
@pytest.mark.parametrize("how", HOWS, ids=lambda h: type(h).__name__)
@every_model
def test_a_recipe_runs_where_the_gpu_is_the_default_device(model: Model, how: Inference) -> None:
    check_a_recipe(model, how)
