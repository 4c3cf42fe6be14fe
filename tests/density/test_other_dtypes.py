"""Programs that mix dtypes, and arguments in dtypes in which torch does not compute."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroSample
from torch import Tensor, nn

import ppgp
from ppgp import inference
from ppgp.errors import DataError
from ppgp.inference import Inference

F32, F64 = torch.float32, torch.float64
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(20, 2, generator=GENERATOR, dtype=F64)
Y = X @ torch.tensor([1.0, -1.0], dtype=F64) + 0.3 * torch.randn(20, generator=GENERATOR, dtype=F64)
HOWS: list[Inference] = [
    inference.MAP(),
    inference.Laplace(draws=20),
    inference.SVI(steps=5),
    inference.SVI(method="deterministic", steps=5),
    inference.NUTS(draws=5, warmup=5, chains=1),
    inference.HMC(draws=4, warmup=4, chains=1, trajectory=0.3),
    inference.Pathfinder(draws=10, steps=50, paths=1),
    inference.MetropolisHastings(draws=5, warmup=5, chains=1),
    inference.SGLD(draws=5, warmup=5, chains=1),
]
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
each_method = pytest.mark.parametrize("how", HOWS, ids=lambda h: f"{type(h).__name__}")


def zeros(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


def weights(dtype: torch.dtype, size: int = 2, name: str = "w") -> Tensor:
    return pyro.sample(name, dist.Normal(zeros(dtype, size), 1.0).to_event(1))


def observed(mean: Tensor, y: Tensor | None) -> Tensor:
    with pyro.plate("rows", len(mean)):
        return pyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def fitted(program: Callable[..., Any], how: Inference | None = None, **arguments: Any) -> Any:
    return ppgp.fit(program, arguments, how or inference.MAP(), progress=False)


# --- mixtures that Pyro runs


def one_matrix(X: Tensor, y: Tensor | None = None) -> Tensor:
    """All but y in float32."""
    return observed(X.float() @ weights(F32), y)


def two_sites(X: Tensor, y: Tensor | None = None) -> Tensor:
    """A product in float32, and a site in float64 that is added."""
    level = pyro.sample("level", dist.Normal(zeros(F64), 1.0))
    return observed(X.float() @ weights(F32) + level, y)


def concatenated(X: Tensor, y: Tensor | None = None) -> Tensor:
    """``torch.cat`` takes the wider dtype."""
    return observed(X @ torch.cat([weights(F32, 1), weights(F64, 1, "level")]), y)


def promoted(X: Tensor, y: Tensor | None = None) -> Tensor:
    """Priors in Pyro's default dtype, parameters of two dtypes, and data in float64."""
    slope = pyro.sample("w", dist.Normal(zeros(F32), torch.ones((), dtype=F64)))
    level = pyro.sample("level", dist.Normal(0.0, 1.0))
    return observed(slope * X[:, 0] + level, y)


MIXED: dict[Any, dict[str, torch.dtype]] = {
    one_matrix: {"w": F32},
    two_sites: {"w": F32, "level": F64},
    concatenated: {"w": F32, "level": F64},
    promoted: {"w": F64, "level": F32},  # as pyro.sample returns them, by rsample
}
PAIRS = [(two_sites, how) for how in HOWS] + [(program, HOWS[0]) for program in MIXED]


@quiet
@pytest.mark.parametrize(
    ("program", "how"), PAIRS, ids=lambda p: getattr(p, "__name__", type(p).__name__)
)
def test_what_pyro_runs_is_fitted_and_draws_have_the_dtypes_of_the_priors(
    program: Any, how: Inference
) -> None:
    posterior = fitted(program, how, X=X, y=Y)
    assert {name: v.dtype for name, v in posterior.draws.items()} == MIXED[program]
    assert all(bool(torch.isfinite(v).all()) for v in posterior.draws.values())
    assert len(posterior.predict(X=X[:3]).mean) == 3


def test_the_modes_of_mixed_programs_are_those_in_float64() -> None:
    """(X'X + I)^-1 X'y for the weights of one matrix, and the same with a column of ones."""
    ones = torch.ones(20, 1, dtype=F64)
    for program, design in (
        (one_matrix, X),
        (two_sites, torch.cat([X, ones], 1)),
        (concatenated, X),
        (promoted, torch.cat([X[:, :1], ones], 1)),
    ):
        theta = fitted(program, X=X, y=Y).theta
        found = torch.cat([theta[n].double().reshape(-1) for n in ("w", "level") if n in theta])
        precision = design.mT @ design + torch.eye(design.shape[1], dtype=F64)
        sd = precision.inverse().diagonal().sqrt()
        exact = torch.linalg.solve(precision, design.mT @ Y)
        assert float(((found - exact) / sd).abs().max()) < 2e-3


# --- mixtures that Pyro does not run


class Layer(PyroModule):
    """A linear layer in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = PyroModule[nn.Linear](2, 1)
        self.linear.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 2]).to_event(2))
        self.linear.bias = PyroSample(dist.Normal(0.0, 1.0).expand([1]).to_event(1))

    def forward(self, X: Tensor, y: Tensor | None = None) -> Tensor:
        return observed(self.linear(X)[:, 0], y)


def product(X: Tensor, y: Tensor | None = None) -> Tensor:
    return observed(X @ weights(F32), y)


def placed(X: Tensor, y: Tensor | None = None) -> Tensor:
    both = zeros(F64, 2).index_put((torch.tensor([0]),), weights(F32, 1))
    return observed(X @ both + weights(F64, 1, "level"), y)


def correlated(X: Tensor, y: Tensor | None = None) -> Tensor:
    law = dist.MultivariateNormal(zeros(F64, 2), scale_tril=torch.eye(2, dtype=F32))
    return observed(X @ pyro.sample("w", law), y)


def of_a_param(X: Tensor, y: Tensor | None = None) -> Tensor:
    return observed(X @ pyro.param("w", zeros(F32, 2)) + weights(F64, 1, "level"), y)


NOT_RUN: dict[Any, str] = {
    product: "float32 at site 'w'",
    Layer(): "float32 at site 'linear.weight', float32 at site 'linear.bias'",
    placed: "float32 at site 'w'",
    correlated: "float32 and float64 at site 'w'",
    of_a_param: "float32 at site 'w'",
}


@each_method
@pytest.mark.parametrize(
    ("program", "site"), NOT_RUN.items(), ids=lambda p: getattr(p, "__name__", "Layer")
)
def test_what_pyro_does_not_run_names_the_sites_and_both_dtypes(
    program: Any, site: str, how: Inference
) -> None:
    with pytest.raises(DataError, match="of one dtype in the program, got float64 X") as caught:
        fitted(program, how, X=X, y=Y)
    assert site in caught.value.got
    assert "float64" in caught.value.do


def test_a_log_density_of_two_dtypes_names_its_site() -> None:
    def strict(X: Tensor, y: Tensor) -> None:
        mean = (X @ weights(F64)).float()
        pyro.sample("y", dist.Delta(mean).to_event(1), obs=mean)
        pyro.factor("f", (y @ mean).sum())

    with pytest.raises(DataError, match="of one dtype in the program, got float64 X, float64 y"):
        fitted(strict, X=X, y=Y)
    wanted = r"one dtype at site 'y', got float32 loc, float32 scale, float64 obs"
    with pytest.raises(DataError, match=wanted):
        fitted(lambda X, y: _of_a_matrix(X, y), X=X, y=Y)


class OneProduct(dist.Normal):
    """A normal distribution whose log density is a product of matrices, of one dtype."""

    def log_prob(self, value: Tensor) -> Tensor:
        return -0.5 * torch.diagonal(torch.outer(value, value) @ torch.eye(20)) + 0 * self.loc


def _of_a_matrix(X: Tensor, y: Tensor) -> None:
    mean = (X @ weights(F64)).float()
    with pyro.plate("rows", 20):
        pyro.sample("y", OneProduct(mean, torch.ones(20)), obs=y)


def test_rows_of_another_dtype_name_the_sites_of_the_fit() -> None:
    posterior = fitted(product, X=X.float(), y=Y.float())
    with pytest.raises(DataError, match="got float64 X, float32 at site 'w'"):
        posterior.predict(X=X)


# --- half precision, whole numbers, booleans

HALF = [torch.float16, torch.bfloat16, torch.float8_e5m2]
WHOLE = [
    torch.int8,
    torch.int16,
    torch.int32,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
]
GROUPS = torch.arange(4).repeat(5)
GROUP_MEANS = torch.tensor([0.0, 1.0, 2.0, 3.0])[GROUPS]


def intercepts(g: Tensor, y: Tensor | None = None) -> Tensor:
    with pyro.plate("groups", 4):
        a = pyro.sample("a", dist.Normal(0.0, 2.0))
    return observed(a[g], y)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_is_computed_in_the_dtype_of_the_other_arguments(dtype: Any) -> None:
    half = X.to(dtype)
    for other, program in ((F32, product), (F64, lambda X, y=None: observed(X @ weights(F64), y))):
        posterior = fitted(program, X=half, y=Y.to(other))
        same = fitted(program, X=half.to(other), y=Y.to(other))
        assert torch.equal(posterior.draws["w"], same.draws["w"])
        assert posterior.draws["w"].dtype == other
        predicted = posterior.predict(X=half[:3]).mean
        assert torch.equal(predicted, same.predict(X=half[:3].to(other)).mean)


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_whole_numbers_of_any_width_are_an_index_and_a_number(dtype: Any) -> None:
    exact = fitted(intercepts, g=GROUPS, y=GROUP_MEANS)
    found = fitted(intercepts, g=GROUPS.to(dtype), y=GROUP_MEANS.to(dtype))
    assert torch.equal(found.draws["a"], exact.draws["a"])
    assert torch.equal(found.predict(g=GROUPS[:5].to(dtype)).mean, exact.predict(g=GROUPS[:5]).mean)


@pytest.mark.parametrize(
    ("g", "kind"), [(GROUPS.float(), "float32 g"), (GROUPS > 1, "bool g")], ids=str
)
def test_an_index_of_other_numbers_is_named(g: Tensor, kind: str) -> None:
    with pytest.raises(DataError, match=rf"whole numbers as an index .*{kind}.*\.long\(\)"):
        fitted(intercepts, g=g, y=GROUP_MEANS)


def test_booleans_are_a_mask_or_numbers_but_no_observations_of_numbers() -> None:
    flags = X[:, 0] > 0

    def program(flags: Tensor, y: Tensor | None = None) -> Tensor:
        level = pyro.sample("level", dist.Normal(0.0, 1.0))
        return observed(level * flags, y)

    assert torch.equal(
        fitted(program, flags=flags, y=GROUP_MEANS).draws["level"],
        fitted(program, flags=flags.float(), y=GROUP_MEANS).draws["level"],
    )
    with pytest.raises(DataError, match=r"numbers as obs of 'y', got booleans .*y\.to\("):
        fitted(program, flags=flags, y=flags)


@each_method
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sites_in_half_precision_are_refused(dtype: Any, how: Inference) -> None:
    def program(y: Tensor) -> None:
        w = pyro.sample("w", dist.Normal(zeros(dtype), torch.ones((), dtype=dtype)))
        observed(w * torch.ones(20, dtype=dtype), y)

    name = str(dtype).removeprefix("torch.")
    with pytest.raises(DataError, match=f"float32 or float64 at the sites .*, got {name} at 'w'"):
        fitted(program, how, y=Y)


def test_complex_numbers_are_refused_unless_the_density_is_real() -> None:
    signal = torch.complex(X[:, 0], X[:, 1])
    parts = "pass real and imaginary parts as two arguments"
    for X_or_y in ({"X": signal, "y": Y}, {"X": X[:, 0], "y": signal}):
        with pytest.raises(DataError, match=parts):
            fitted(lambda X, y: observed(pyro.sample("w", dist.Normal(0.0, 1.0)) * X, y), **X_or_y)
    power = fitted(lambda s, y: observed(weights(F64, 1) * s.abs(), y), s=signal, y=Y)
    assert power.draws["w"].dtype == F64


# --- devices


def test_a_device_that_is_not_there_is_named() -> None:
    def program(y: Tensor) -> None:
        w = pyro.sample("w", dist.Normal(torch.zeros((), device="cuda:99"), 1.0))
        observed(w * y, y)

    with pytest.raises(DataError, match="tensors are on one device, got y on cpu"):
        fitted(program, y=Y)


def test_arguments_on_two_devices_are_named() -> None:
    with pytest.raises(DataError, match="got X on meta, y on cpu"):
        fitted(product, X=X.float().to("meta"), y=Y.float())


@pytest.mark.parametrize("dtype", [F32, F64])
def test_arrays_in_half_precision_have_the_dtype_of_the_others(dtype: torch.dtype) -> None:
    program = lambda x, y=None: observed(weights(dtype, 1) * x, y)  # noqa: E731
    half = X[:, 0].numpy().astype(np.float16)
    assert fitted(program, x=half, y=Y.to(dtype)).draws["w"].dtype == dtype


def test_a_program_of_two_dtypes_is_compiled() -> None:
    """Its graph differs from the program by the rounding errors of float32, not by a branch."""
    how = inference.Laplace(draws=20)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted(two_sites, how, X=X.round(), y=Y)
    assert not [w for w in caught if "eagerly" in str(w.message)]
