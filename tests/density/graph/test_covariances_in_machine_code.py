"""Factors, solves and inverses of covariances in machine code: equal to those of torch."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import kernels as k
from ppgp import models
from ppgp.data.dataset import Dataset
from ppgp.density.graph import machine_code as codes
from ppgp.density.graph.machine_code import MachineCode, machine_code
from ppgp.density.graph.tracing import one_point
from ppgp.models.program import Program

pytest.importorskip("llvmlite")
F64 = torch.float64
ROWS = 24


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


def table(seed: int = 0, columns: int = 2, rows: int = ROWS) -> Dataset:
    X = normal(seed, rows, columns)
    return Dataset(X, X[:, 0].sin() + 0.3 * X[:, -1] ** 2 + 0.2 * normal(seed + 1, rows))


def code_of(model: Any, data: Dataset) -> tuple[ppgp.Target, MachineCode]:
    """Return a density on torch's graph, and its machine code."""
    target = ppgp.Target(model.prepare(data), data)
    target.callback()
    (recorded,) = target._graphs._recorded.values()
    return target, MachineCode(recorded.graph)


def compiled(function: Callable[[Tensor], Tensor], z: Tensor) -> MachineCode:
    """Return the machine code of the sum of a function and of its gradient."""

    def value_and_gradient(z: Tensor) -> tuple[Tensor, Tensor]:
        z = z.detach().requires_grad_()
        with torch.enable_grad():
            value = function(z).sum()
            (gradient,) = torch.autograd.grad(value, z)
        return value.detach(), gradient

    return MachineCode(one_point(value_and_gradient, (z,)))


def covariance(z: Tensor, n: int = 12) -> Tensor:
    """Return a positive definite matrix of numbers z [3]."""
    x = torch.linspace(0, 2, n, dtype=F64)
    distance = (x[:, None] - x).abs()
    return z[0].exp() * torch.exp(-distance * z[1].exp()) + torch.diag_embed(z[2].exp().expand(n))


def several(z: Tensor) -> Tensor:
    return torch.stack([covariance(z), covariance(z * 0.5)])


def side(n: int = 12, m: int = 3) -> Tensor:
    return torch.linspace(-1, 1, n * m, dtype=F64).reshape(n, m).cos()


def root(z: Tensor, n: int = 12) -> Tensor:
    return torch.linalg.cholesky(covariance(z, n))


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "factor": lambda z: root(z) * side(12, 12),
    "factor of three rows": lambda z: root(z, 3) * side(3, 3),
    "factors": lambda z: torch.linalg.cholesky(several(z)) * side(12, 12),
    "lower system": lambda z: torch.linalg.solve_triangular(root(z), side(), upper=False),
    "upper system": lambda z: torch.linalg.solve_triangular(root(z).mT, side() * z[0], upper=True),
    "one right-hand side": lambda z: torch.linalg.solve_triangular(
        root(z), side(12, 1) * z[1], upper=False
    ),
    "system on the right": lambda z: torch.linalg.solve_triangular(
        root(z).mT, side().mT * z[0], upper=True, left=False
    ),
    "ones on the diagonal": lambda z: torch.linalg.solve_triangular(
        root(z), side() * z[2], upper=False, unitriangular=True
    ),
    "systems": lambda z: torch.linalg.solve_triangular(
        torch.linalg.cholesky(several(z)), side() * z[0], upper=False
    ),
    "inverse": lambda z: torch.cholesky_inverse(root(z)) * side(12, 12),
    "inverses": lambda z: torch.cholesky_inverse(torch.linalg.cholesky(several(z))) * side(12, 12),
    "solution": lambda z: torch.cholesky_solve(side() * z[1], root(z)),
    "solution by an upper factor": lambda z: torch.cholesky_solve(
        side() * z[1], root(z).mT.contiguous(), upper=True
    ),
    "outer product": lambda z: (
        root(z)
        + torch.addr(
            covariance(z), side(12, 1)[:, 0], z[0] * side(12, 1)[:, 0], beta=0.5, alpha=-2.0
        )
    ),
    "diagonal replaced": lambda z: root(z).diagonal_scatter(z[0] * side(12, 1)[:, 0]),
    "norm": lambda z: root(z).norm() + root(z).norm(dim=1),
    "mean": lambda z: root(z).mean() + root(z).mean(1) * root(z).mean((0, 1), keepdim=True),
    "large products": lambda z: root(z, 60) @ (covariance(z, 60) @ root(z, 60)).mT,
    "products in batches": lambda z: torch.stack([root(z, 60), covariance(z, 60)]) @ root(z, 60),
    "one number repeated in a row": lambda z: (
        root(z, 3).sum() + (z[0].expand(1, 400) @ covariance(z, 400) * side(400, 1)[:, 0])
    ),
    "one number repeated in a column": lambda z: (
        root(z, 3).sum() + (covariance(z, 400) @ z[0].expand(400, 1) * side(400, 1))
    ),
    "outer product of repeated numbers": lambda z: (
        root(z, 3).sum() + (z[0].expand(400, 1) @ (z[1] * side(1, 400))).square()
    ),
    "outer product added to a row": lambda z: (
        root(z, 3).sum() + (torch.addr(z, z[0] * side(4, 1)[:, 0], side(3, 1)[:, 0]) * side(4, 3))
    ),
    "sum with a multiple": lambda z: torch.add(root(z), covariance(z), alpha=0.37),
    "difference of a multiple": lambda z: torch.sub(root(z), covariance(z), alpha=0.37),
    "sum with a multiple of products": lambda z: torch.addcmul(
        root(z), covariance(z), root(z), value=0.37
    ),
    "sum with a multiple of quotients": lambda z: torch.addcdiv(
        root(z), root(z), covariance(z), value=0.37
    ),
    "sign of another": lambda z: root(z).diagonal() * torch.copysign(z[0], z[1]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operations_are_those_of_torch(name: str) -> None:
    function = FUNCTIONS[name]
    code = compiled(function, normal(0, 3))
    for seed in range(3):
        z = normal(seed, 3).requires_grad_()
        value = function(z).sum()
        (gradient,) = torch.autograd.grad(value, z)
        found = code(z)
        torch.testing.assert_close(found[0], value.detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(found[1], gradient, rtol=1e-11, atol=1e-11)


def test_the_mean_of_no_numbers_is_nan() -> None:
    code = compiled(lambda z: root(z)[:0].mean(), normal(0, 3))
    assert code(normal(0, 3))[0].isnan()


KERNELS: dict[str, k.Kernel] = {
    "RBF": k.RBF(),
    "Matern 1/2": k.Matern(0.5),
    "Matern 3/2": k.Matern(1.5),
    "Matern 5/2": k.Matern(2.5),
    "Exponential": k.Exponential(),
    "RationalQuadratic": k.RationalQuadratic(),
    "Periodic": k.Periodic(),
    "Linear": k.Linear(),
    "LinearVariogram": k.LinearVariogram(),
    "Polynomial": k.Polynomial(),
    "Constant": k.Constant() + k.RBF(),
    "White": k.White() + k.RBF(),
    "Spherical": k.Spherical(),
    "Anisotropy": k.Anisotropy(k.RBF()),
    "ARD": k.ARD(k.RBF()),
    "ARD of Matern": k.ARD(k.Matern(1.5)),
    "ARD of RationalQuadratic": k.ARD(k.RationalQuadratic()),
    "Metric": k.Metric(k.RBF()),
    "Metric of Matern": k.Metric(k.Matern(0.5), rank=1),
    "Scale": k.Scale(k.RBF()),
    "sum of products": k.RBF() + k.Periodic() * k.Matern(2.5),
    "columns": k.Subspace(k.RBF(), (0,)) * k.Subspace(k.Matern(1.5), (1,)),
}
MODELS: dict[str, tuple[Any, Dataset]] = {
    **{f"GP {name}": (models.GP(kernel), table()) for name, kernel in KERNELS.items()},
    "GP of seven columns": (models.GP(k.ARD(k.Matern(2.5))), table(columns=7)),
    "SGPR": (models.SGPR(k.RBF(), inducing=10), table()),
    "SGPR with ARD": (models.SGPR(k.ARD(k.Matern(1.5)), inducing=10), table()),
    "Kriging": (models.Kriging(), table()),
    "Kriging with a linear drift": (models.Kriging(drift=1), table()),
    "Kriging with a quadratic drift": (models.Kriging(drift=2), table()),
    "SKI": (models.SKI(), table()),
    "SVGP": (models.SVGP(inducing=10), table()),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_are_those_of_the_graph_of_torch(name: str) -> None:
    target, code = code_of(*MODELS[name])
    for seed in range(3):
        z = target.origin() + 0.5 * normal(seed, target.dim)
        value, gradient = target.value_and_grad(z)
        found = code(z)
        torch.testing.assert_close(found[0], value, rtol=1e-12, atol=1e-11)
        slack = 1e-11 * (1 + float(gradient.abs().max()))
        torch.testing.assert_close(found[1], gradient, rtol=1e-11, atol=slack)


def test_a_covariance_without_a_factor_has_no_density() -> None:
    """NaN, as torch's graph has it where a factor fails, and where torch raises an error."""
    target, code = code_of(models.GP(k.RBF()), table())
    z = torch.full((target.dim,), -800.0, dtype=F64)  # variances of 0
    assert target.value_and_grad(z)[0].isnan()
    assert code(z)[0].isnan()

    def raising(z: Tensor) -> Tensor:
        return torch.linalg.cholesky(z[0] * torch.eye(4, dtype=F64))

    code = compiled(raising, torch.ones(1, dtype=F64))
    assert code(torch.full((1,), 4.0, dtype=F64))[0] == 8.0
    assert code(-torch.ones(1, dtype=F64))[0].isnan()


def test_a_program_with_a_latent_process_and_heavy_tails() -> None:
    def program(X: Tensor, y: Tensor) -> None:
        length = pyro.sample("length", dist.LogNormal(X.new_zeros(()), 1.0))
        scale = pyro.sample("scale", dist.HalfNormal(X.new_ones(())))
        df = pyro.sample("df", dist.Gamma(X.new_full((), 3.0), 0.5))
        K = torch.exp(-0.5 * ((X[:, None] - X) / length) ** 2) + 1e-4 * torch.eye(len(X)).to(X)
        f = pyro.sample("f", dist.MultivariateNormal(X.new_zeros(len(X)), K))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.StudentT(df, f, scale), obs=y)

    X = normal(0, ROWS)
    target = ppgp.Target(Program(program), {"X": X, "y": X.sin() + 0.2 * normal(1, ROWS)})
    target.callback(often=True)
    code = target._graphs._machine_code[True]
    assert isinstance(code, MachineCode)
    for seed in range(3):
        z = target.origin() + 0.1 * normal(seed, target.dim)
        value, gradient = target.value_and_grad(z)
        found = code(z)
        torch.testing.assert_close(found[0], value, rtol=1e-11, atol=1e-9)
        slack = 1e-9 * (1 + float(gradient.abs().max()))  # of a covariance near a singular one
        torch.testing.assert_close(found[1], gradient, rtol=1e-9, atol=slack)


def test_many_sines_stay_on_torch() -> None:
    """Those of the C library are computed one by one."""
    target = ppgp.Target(models.GP(k.Periodic()), table(columns=1, rows=70))
    target.callback(often=True)
    assert target._graphs._machine_code[True] is None


def test_large_covariances_stay_on_torch() -> None:
    n = codes.MOST_ROWS + 1

    def graph(n: int) -> Any:
        return one_point(
            lambda z: (torch.linalg.cholesky_ex(torch.eye(n, dtype=F64) * z)[0].sum(), z),
            (torch.ones(1, dtype=F64),),
        )

    assert machine_code(graph(n)) is None
    assert machine_code(graph(n - 1)) is not None


def test_other_data_of_the_same_shape_are_not_compiled_again() -> None:
    """Each fit has its own values all the same."""
    codes.engine.cache_clear()
    first, one = code_of(models.GP(k.ARD(k.RBF())), table(0))
    second, two = code_of(models.GP(k.ARD(k.RBF())), table(7))
    assert codes.engine.cache_info().misses == 1
    z = first.origin()
    assert float(one(z)[0]) == pytest.approx(float(first.value_and_grad(z)[0]), rel=1e-12)
    assert float(two(z)[0]) == pytest.approx(float(second.value_and_grad(z)[0]), rel=1e-12)
    assert float(one(z)[0]) != pytest.approx(float(two(z)[0]), rel=1e-3)
    code_of(models.GP(k.ARD(k.RBF())), table(0, rows=ROWS + 1))
    assert codes.engine.cache_info().misses == 2
    assert codes.engine.cache_info().maxsize == codes.KEPT


def test_constants_of_a_program_are_no_part_of_the_code() -> None:
    def program(y: Tensor, scale: Tensor) -> None:
        mean = pyro.sample("mean", dist.Normal(scale * 0, scale))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(mean, scale), obs=y)

    codes.engine.cache_clear()
    z = torch.tensor([0.3], dtype=F64)
    for scale in (1.7, 2.9):
        arguments = {"y": normal(0, 6), "scale": torch.tensor(scale, dtype=F64)}
        target = ppgp.Target(Program(program), arguments)
        value = target.callback(often=True)(z.numpy())[0]
        assert value == pytest.approx(float(target.log_density(z)), rel=1e-12)
    assert codes.engine.cache_info().misses == 1


def test_code_that_is_kept_holds_no_data() -> None:
    target, code = code_of(models.GP(k.RBF()), table())
    held = [weakref.ref(code), weakref.ref(target), weakref.ref(target.data)]
    code(target.origin())
    kept = codes.engine.cache_info().currsize
    del target, code
    gc.collect()
    assert [ref() for ref in held] == [None] * 3
    assert codes.engine.cache_info().currsize == kept > 0


def test_chains_in_machine_code_agree_with_those_of_the_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    how = ppgp.inference.NUTS(draws=500, chains=2)
    made: list[MachineCode | None] = []

    def kept(graph: Any) -> MachineCode | None:
        made.append(machine_code(graph))
        return made[-1]

    monkeypatch.setattr("ppgp.density.target.machine_code", kept)
    model = models.GP(k.RBF())
    fast = ppgp.fit(model, table(), how, progress=False)
    assert [type(code) for code in made] == [MachineCode]
    monkeypatch.setattr("ppgp.density.target.machine_code", lambda graph: None)
    slow = ppgp.fit(model, table(), how, progress=False)
    found = ppgp.compare({"fast": fast, "slow": slow}, reference="slow")
    assert found.verdicts["fast"] == "agrees"
