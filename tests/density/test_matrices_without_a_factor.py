"""A point where a matrix of a program has no factor or no inverse has no density."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import Target, diagnostics, inference
from ppgp.errors import NumericalError
from ppgp.models import Program
from ppgp.numerics.cholesky import lacks_factor

Y = [0.3, 0.4]
FAR = [3.0, 4.0]  # the posterior is then 3 standard deviations from the singular points
WIDE = 3.0  # the standard deviation of r
#: from a variance, times I, to its inverse, times I; all fail at 0
INVERSES: dict[str, Callable[[Tensor], Tensor]] = {
    "cholesky": lambda C: torch.cholesky_solve(torch.eye(2).to(C), torch.linalg.cholesky(C)),
    "cholesky_inverse": lambda C: torch.cholesky_inverse(C.sqrt()),
    "inv": torch.linalg.inv,
    "solve": lambda C: torch.linalg.solve(C, torch.eye(2).to(C)),
}
DTYPES = [torch.float64, torch.float32]


def normal_of_variance(inverse: Callable[[Tensor], Tensor]) -> Callable[..., None]:
    """Return the program y ~ N(0, (1 + r) I), r ~ N(0, WIDE^2), which is singular at r <= -1."""

    def program(y: Tensor) -> None:
        r = pyro.sample("r", dist.Normal(y.new_tensor(0.0), y.new_tensor(WIDE)))
        variance = (1 + r).clamp_min(0)
        precision = inverse(variance * torch.eye(2).to(y))
        pyro.factor("y", -0.5 * y @ precision @ y + 0.5 * torch.logdet(precision))

    return program


def log_posterior(r: np.ndarray, y: list[float] = Y) -> np.ndarray:
    """Return the log density at r [n] in closed form, up to a constant."""
    variance = 1 + r
    return -0.5 * (r / WIDE) ** 2 - 0.5 * np.square(y).sum() / variance - np.log(variance)


GRID = np.linspace(-1, 14, 300_001)[1:]


def fitted(how: Any, dtype: torch.dtype, y: list[float] = Y) -> ppgp.Posterior:
    data = {"y": torch.tensor(y, dtype=dtype)}
    return ppgp.fit(normal_of_variance(torch.linalg.inv), data, how, seed=0, progress=False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", INVERSES)
def test_the_density_is_nan_there_and_unchanged_elsewhere(name: str, dtype: torch.dtype) -> None:
    target = Target(
        Program(normal_of_variance(INVERSES[name])), {"y": torch.tensor(Y, dtype=dtype)}
    )
    points = torch.tensor([[0.5], [-2.0], [2.0]], dtype=dtype)
    expected = torch.from_numpy(log_posterior(np.array([0.5, 2.0])))
    one = [target.value_and_grad(z)[0] for z in points]
    numpy = target.callback()
    often = target.callback(often=True)
    for values in (
        torch.stack(one),
        torch.stack([target.value_and_grad(z, compile=False)[0] for z in points]),
        target.value_and_grad_batch(points)[0],
        target.log_densities(points),
        torch.tensor([numpy(z.double().numpy())[0] for z in points]),
        torch.tensor([often(z.double().numpy())[0] for z in points]),
    ):
        assert not bool(torch.isfinite(values[1]))
        assert float(values[2] - values[0]) == pytest.approx(
            float(expected[1] - expected[0]), rel=1e-5
        )
    assert not target.eager


def test_the_error_is_known_eagerly_and_in_torchscript() -> None:
    scripted: Any = torch.jit.trace(torch.linalg.inv, torch.eye(2))
    for call in (torch.linalg.inv, scripted):
        with pytest.raises(RuntimeError) as caught:
            call(torch.zeros(2, 2))
        assert lacks_factor(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("the input matrix is singular"),  # of a user
        RuntimeError("of the TorchScript interpreter\nRuntimeError: linalg.inv: no square matrix"),
        ValueError("linalg.inv: because the input matrix is singular"),
    ],
)
def test_other_errors_are_not_taken_for_it(error: Exception) -> None:
    assert not lacks_factor(error)


def test_other_errors_in_torchscript_are_not_taken_for_it() -> None:
    scripted: Any = torch.jit.trace(lambda a, b: a @ b, (torch.eye(2), torch.eye(2)))
    with pytest.raises(RuntimeError) as caught:
        scripted(torch.eye(2), torch.eye(3))
    assert not lacks_factor(caught.value)


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("dtype", DTYPES)
def test_nuts_has_the_mean_of_the_closed_form(dtype: torch.dtype) -> None:
    posterior = fitted(inference.NUTS(draws=200, warmup=200, chains=2), dtype, FAR)
    draws = posterior.draws["r"].double().numpy()
    weights = np.exp(log_posterior(GRID, FAR))
    mean = (weights * GRID).sum() / weights.sum()
    assert draws.mean() == pytest.approx(mean, abs=4 * diagnostics.mcse(draws, "mean"))


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_search_ends_at_the_mode(dtype: torch.dtype) -> None:
    r = fitted(inference.MAP(), dtype).draws["r"]
    assert float(r) == pytest.approx(GRID[log_posterior(GRID).argmax()], abs=2e-3)


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("dtype", DTYPES)
def test_laplace_is_centred_at_the_mode(dtype: torch.dtype) -> None:
    r = fitted(inference.Laplace(), dtype).draws["r"]
    error = float(r.std()) / r.numel() ** 0.5
    assert float(r.mean()) == pytest.approx(GRID[log_posterior(GRID).argmax()], abs=4 * error)


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize(
    "how",
    [
        inference.HMC(draws=100, warmup=100, chains=4),
        inference.SVI(steps=200),
        inference.Pathfinder(),
    ],
    ids=["hmc", "svi", "pathfinder"],
)
def test_other_methods_run_past_such_points(how: Any) -> None:
    posterior = fitted(how, torch.float64)
    assert bool(torch.isfinite(posterior.draws["r"]).all())


def test_a_program_without_a_factor_near_the_start_says_why() -> None:
    def program(y: Tensor) -> None:
        r = pyro.sample("r", dist.Normal(y.new_tensor(0.0), y.new_tensor(1000.0)))
        precision = INVERSES["cholesky"]((r.abs() - 50) * torch.eye(2).to(y))
        pyro.factor("y", -0.5 * y @ precision @ y)

    data = {"y": torch.tensor(Y)}
    with pytest.raises(NumericalError, match="not positive-definite"):
        ppgp.fit(program, data, inference.MAP(), progress=False)
