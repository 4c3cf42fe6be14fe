"""Graphs as machine code: equal to torch, operation by operation and program by program."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from programs_of_users import PROGRAMS
from torch import Tensor

import ppgp
from ppgp.density.graph import machine_code as codes
from ppgp.density.graph.machine_code import ENTRIES, MachineCode, NoForm, machine_code
from ppgp.density.graph.tracing import one_point
from ppgp.models.program import Program

pytest.importorskip("llvmlite")
aten = torch.ops.aten
F64 = torch.float64
INF, NAN = math.inf, math.nan
#: without a graph of one point that is deterministic
WITHOUT_GRAPH = {
    "variational_gp",
    "params_alone",
    "hidden_site",
    "stable_observations",
    "stable_latent",
    "branches_on_a_value",
}
#: an operation without a form: a loop
WITHOUT_FORM = {
    "hidden_markov_model",
    "hidden_markov_by_scan",
    "autoregressive_emission",
    "autoregression_by_scan",
    "exponential_smoothing",
}


def compiled(function: Callable[[Tensor], Tensor], z: Tensor) -> MachineCode:
    """Return the machine code of the sum of a function and of its gradient."""

    def value_and_gradient(z: Tensor) -> tuple[Tensor, Tensor]:
        z = z.detach().requires_grad_()
        with torch.enable_grad():
            value = function(z).sum()
            (gradient,) = torch.autograd.grad(value, z)
        return value.detach(), gradient

    return MachineCode(one_point(value_and_gradient, (z,)))


def entries(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return each entry of a function from machine code, as its gradient of a product."""

    def value_and_entries(z: Tensor) -> tuple[Tensor, Tensor]:
        found = function(z)
        return found[0] * 0 + z[0] * 0, found

    return MachineCode(one_point(value_and_entries, (x,)))(x)[1]


EDGES = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-300, -1e-300, 5e-324, 1e300, -1e300, INF, -INF, NAN]
    + [709.7, -708.0, -744.0, 710.0, 1e-20, -1e-20, 1 + 2**-52, 1 - 2**-53, 20.0, 36.0, -36.0]
    + [math.pi, 1e5, -1e5, 3.0, 7.5, -2.5, 8.0, 171.5],
    dtype=F64,
)
SPREAD = torch.cat(
    [
        torch.linspace(-745, 710, 2001, dtype=F64),
        torch.linspace(-3, 3, 2001, dtype=F64),
        torch.logspace(-300, 300, 2001, dtype=F64),
        -torch.logspace(-300, 1, 1001, dtype=F64),
    ]
)
#: units in the last place by which a function may differ from torch's, which has an error too
UNITS = {"digamma": 64, "lgamma": 64, "tan": 8}


@pytest.mark.parametrize("size", [None, 1])
@pytest.mark.parametrize(
    "name",
    [
        *("exp", "expm1", "log", "log1p", "tanh", "sigmoid", "digamma", "sqrt", "rsqrt", "neg"),
        *("abs", "reciprocal", "relu", "lgamma", "erf", "erfc", "sin", "cos", "sgn"),
    ],
)
def test_a_function_of_one_number(name: str, size: int | None) -> None:
    function = getattr(torch, name)
    x = torch.cat([EDGES, SPREAD])
    if name in ("sin", "cos"):
        x = x[x.abs() < 1e4]
    if name in ("digamma", "lgamma"):  # near a pole in the negatives torch has few digits
        x = x[~((x < 0) & ((x - x.round()).abs() < 0.05))]
        x = x[(x > -30) | x.isnan()]
    wanted = function(x)
    if size == 1:  # outside a loop
        x, wanted = x[:: 1 + len(x) // 40], wanted[:: 1 + len(x) // 40]
        code = MachineCode(one_point(lambda z: (z[0] * 0, function(z)), (x[:1],)))
        found = torch.cat([code(x[i : i + 1])[1] for i in range(len(x))])
    else:
        found = entries(function, x)
    assert torch.equal(found.isnan(), wanted.isnan())
    finite = wanted.isfinite()
    assert torch.equal(found[~finite & ~wanted.isnan()], wanted[~finite & ~wanted.isnan()])
    spacing = torch.from_numpy(np.spacing(wanted[finite].abs().numpy()))
    units = (found[finite] - wanted[finite]).abs() / spacing
    if name in UNITS:  # near their zeros in units of 1
        units = (found[finite] - wanted[finite]).abs() / spacing.clamp(min=2.0**-52)
    assert float(units.max()) <= UNITS.get(name, 4), x[finite][units.argmax()]


def positive(z: Tensor) -> Tensor:
    return z.square() + 0.3


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "broadcast": lambda z: z[:3, None] * z[None, 3:7] + z[7],
    "where": lambda z: torch.where(z > 0, z * 2, z.exp()),
    "clamp": lambda z: z.clamp(-0.5, 0.5) * z,
    "powers": lambda z: positive(z) ** 1.7 + z**2 + z**3 + positive(z) ** -0.5,
    "power of tensors": lambda z: positive(z[:6]) ** z[6:],
    "softplus": torch.nn.functional.softplus,
    "log sigmoid": torch.nn.functional.logsigmoid,
    "cross entropy": lambda z: torch.nn.functional.binary_cross_entropy_with_logits(
        z, torch.tensor([0.0, 1.0] * 6, dtype=F64), reduction="none"
    ),
    "xlogy": lambda z: torch.xlogy(torch.tensor([0.0, 2.0] * 6, dtype=F64), positive(z)),
    "sums": lambda z: z.reshape(3, 4).exp().sum(0) * z.reshape(3, 4).sin().sum(1)[:, None],
    "sums of all axes but one": lambda z: z.reshape(2, 3, 2).exp().sum((0, 2)).log(),
    "sums of one number": lambda z: (z[0].expand(5).exp().sum() * z).cos(),
    "logsumexp": lambda z: torch.logsumexp(z.reshape(3, 4), 1) * z[:3],
    "log softmax": lambda z: torch.log_softmax(z.reshape(3, 4), 0) * z.reshape(3, 4),
    "log softmax of large numbers": lambda z: torch.log_softmax(z.reshape(3, 4) + 1e8, 1) * z[:4],
    "softmax": lambda z: z.reshape(3, 4).softmax(1) * z.reshape(3, 4),
    "softmax by hand": lambda z: z.exp() / z.exp().sum(),
    "largest": lambda z: z.reshape(3, 4).amax(1) * z.reshape(3, 4).max(0).values[:3],
    "cumulated": lambda z: z.reshape(3, 4).cumsum(1) * positive(z).reshape(3, 4).cumprod(0),
    "matrix products": lambda z: (
        z.reshape(3, 4) @ z.reshape(4, 3) @ z[:3] + z.reshape(4, 3).mT @ z[:4]
    ),
    "products in batches": lambda z: z.reshape(2, 3, 2) @ z.reshape(2, 2, 3),
    "outer product": lambda z: torch.outer(z[:3], z[3:]) @ z[3:],
    "dot": lambda z: z[:6] @ z[6:] * z,
    "linear": lambda z: torch.nn.functional.linear(
        torch.eye(3, dtype=F64) + 1, z[:6].reshape(2, 3), z[6:8]
    ),
    "triangular system": lambda z: torch.linalg.solve_triangular(
        z[:9].reshape(3, 3).tril() + 2 * torch.eye(3, dtype=F64), z[9:, None], upper=False
    ),
    "upper triangular system on the right": lambda z: torch.linalg.solve_triangular(
        z[:9].reshape(3, 3).triu() + 2 * torch.eye(3, dtype=F64),
        z[9:].expand(2, 3),
        upper=True,
        left=False,
    ),
    "taken by index": lambda z: z[torch.tensor([0, 3, 3, -1])].exp() * z[:4],
    "taken by two indices": lambda z: z.reshape(3, 4)[
        torch.tensor([0, 2, 2]), torch.tensor([1, 1, 3])
    ].exp(),
    "gathered": lambda z: z.reshape(3, 4).gather(1, torch.tensor([[0], [3], [3]])).exp(),
    "flipped and moved": lambda z: z.reshape(3, 4).flip(1).mT[1:, ::2].cos() * 2,
    "stacked": lambda z: torch.stack([z[:4], z[4:8].exp(), z[8:]], 1).reshape(-1).tanh() * z,
    "put together": lambda z: torch.cat([z[:2].exp(), z[2:3], z[3:] ** 2]) * z,
    "padded": lambda z: torch.nn.functional.pad(z.reshape(3, 4), (1, -1, 0, 2)).exp(),
    "diagonal": lambda z: z[:9].reshape(3, 3).diagonal().exp() * z[:3],
    "put into a diagonal": lambda z: torch.diag_embed(z[:3]) @ z[3:6],
    "masked": lambda z: z.masked_fill(torch.tensor([True, False] * 6), -1.0).exp(),
    "index add": lambda z: (
        torch.zeros(5, dtype=F64).index_add(0, torch.tensor([0, 2, 2, 4]), z[:4]).exp()
    ),
    "scatter add": lambda z: (
        torch.zeros(5, dtype=F64).scatter_add(0, torch.tensor([1, 1, 4]), z[:3]).exp()
    ),
    "index put": lambda z: torch.ones(4, dtype=F64).index_put((torch.tensor([0, 2]),), z[:2]).exp(),
    "in place": lambda z: (z * 3).mul_(2).add_(z),
    "in place through a view": lambda z: _added_to_diagonal(z),
    "written into a part": lambda z: _written(z, lambda x: x[:, 1:]),
    "written into a row": lambda z: _written(z, lambda x: x[0]),
    "taken before a change": lambda z: _changed_after_taken(z),
    "one of several parts changed": lambda z: _parts_changed(z),
    "powers that are whole numbers": lambda z: z[0].exp() ** torch.arange(5),
    "powers of whole numbers": lambda z: torch.arange(1, 13) ** z,
    "xlogy of whole numbers": lambda z: torch.xlogy(torch.arange(12), z.exp()),
    "larger of a number and a truth": lambda z: torch.maximum(z > 0, z),
    "no rows": lambda z: z.reshape(3, 4)[0:0, :2].mT.exp().sum() + z,
    "no rows, taken": lambda z: z.reshape(3, 4)[0:0, :2][:, torch.tensor([0, 1])].sum() + z,
    "comparisons": lambda z: (z > 0.1) * z + (z.abs() <= 0.3) * z**2 + (z != 0) * z,
    "logic": lambda z: torch.where((z > -1) & ~(z > 0) | (z > 0.5), z, z * 3),
    "split": lambda z: torch.cat([p.exp() * p[0] for p in z.split([2, 4, 6])]),
    "unbound": lambda z: torch.stack([p.exp() * p[0] for p in z.reshape(3, 4).unbind(1)]),
    "normal": lambda z: dist.Normal(z[:4], positive(z[4:8]), validate_args=False).log_prob(z[8:]),
    "gamma": lambda z: dist.Gamma(positive(z[:4]), positive(z[4:8]), validate_args=False).log_prob(
        positive(z[8:])
    ),
    "beta": lambda z: dist.Beta(positive(z[:4]), positive(z[4:8]), validate_args=False).log_prob(
        z[8:].sigmoid()
    ),
    "dirichlet": lambda z: dist.Dirichlet(positive(z[:4]), validate_args=False).log_prob(
        z[4:8].softmax(0)
    ),
    "categorical": lambda z: dist.Categorical(logits=z.reshape(3, 4), validate_args=False).log_prob(
        torch.tensor([0, 3, 1])
    ),
    "poisson": lambda z: dist.Poisson(positive(z), validate_args=False).log_prob(
        torch.arange(12, dtype=F64)
    ),
    "negative binomial": lambda z: dist.NegativeBinomial(
        positive(z[:6]), logits=z[6:], validate_args=False
    ).log_prob(torch.arange(6, dtype=F64)),
}


def _written(z: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
    """Return numbers, a part of which is written over; its derivative writes into views."""
    x = z.reshape(3, 4) * 2
    part(x).copy_(part(x).exp())
    return x.tanh()


def _changed_after_taken(z: Tensor) -> Tensor:
    x = z * 1.5
    taken = x[torch.tensor([0, 2, 2])]
    x.view(-1).add_(z[1])
    return taken.sum() + x


def _parts_changed(z: Tensor) -> Tensor:
    with torch.no_grad():
        x = z * 2.0
        x.unbind(0)[0].mul_(5.0)
    return x * z


def _added_to_diagonal(z: Tensor) -> Tensor:
    K = z[:9].reshape(3, 3) @ z[:9].reshape(3, 3).mT
    K.view(-1)[::4].add_(1.5)
    return (K * 2).exp()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_those_of_autograd(name: str) -> None:
    generator = torch.Generator().manual_seed(1)
    function = FUNCTIONS[name]
    code = compiled(function, torch.randn(12, dtype=F64, generator=generator))
    for _ in range(3):
        z = torch.randn(12, dtype=F64, generator=generator).requires_grad_()
        value = function(z).sum()
        (gradient,) = torch.autograd.grad(value, z)
        found = code(z)
        torch.testing.assert_close(found[0], value.detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(found[1], gradient, rtol=1e-10, atol=1e-12)


@pytest.mark.filterwarnings("ignore:torch.meshgrid")
@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in WITHOUT_GRAPH])
def test_programs_of_users(name: str) -> None:
    with pyro.get_param_store().scope():
        users = PROGRAMS[name][1]()
        target = ppgp.Target(Program(users.program), users.arguments)
        target.callback()
        (recorded,) = target._graphs._recorded.values()
        code = machine_code(recorded.graph)
        assert (code is None) == (name in WITHOUT_FORM)
        if code is None:
            return
        for seed in range(4):
            z = target.start(seed, 2.0)
            value, gradient = target.value_and_grad(z)
            found = code(z)
            torch.testing.assert_close(found[0], value, rtol=1e-4, atol=1e-4)
            slack = 1e-4 * (1 + float(gradient.abs().max()))  # of the program's own float32
            torch.testing.assert_close(found[1], gradient, rtol=1e-4, atol=slack)


def test_no_operation_without_a_form_is_compiled() -> None:
    def with_eigenvalues(z: Tensor) -> tuple[Tensor, Tensor]:
        K = torch.eye(3, dtype=F64) + z[:, None] * z
        return torch.linalg.eigvalsh(K).sum(), z

    z = torch.ones(3, dtype=F64)
    assert machine_code(one_point(with_eigenvalues, (z,))) is None
    with pytest.raises(NoForm):
        MachineCode(one_point(with_eigenvalues, (z,)))


@pytest.mark.parametrize(
    "function",
    [
        lambda z: (z * 3).long() * z,
        lambda z: ((z > 0).long() + 2 & (z > 0.5).long() + 1) * z,
        lambda z: ~(z > 0).long() * z,
        lambda z: torch.nn.functional.binary_cross_entropy_with_logits(
            z, torch.ones(12, dtype=F64), reduction="sum"
        ),
        lambda z: z[0].max(0).values * z,
        lambda z: z[0].cumsum(0) * z,
        lambda z: torch.zeros(3, dtype=F64).masked_scatter(torch.ones(2, 3) > 0, z),
    ],
)
def test_arguments_without_a_form(function: Callable[[Tensor], Tensor]) -> None:
    """They would give other numbers than torch's, or none."""
    with pytest.raises(NoForm):
        compiled(function, torch.randn(12, dtype=F64))


def test_counts_that_are_whole_numbers_have_machine_code() -> None:
    def program(y: Tensor) -> None:
        rate = pyro.sample("rate", dist.Gamma(2.0, 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Poisson(rate), obs=y)

    target = ppgp.Target(Program(program), {"y": torch.tensor([0, 3, 1])})
    target.callback(often=True)
    assert isinstance(target._graphs._machine_code[True], MachineCode)


def test_indices_that_are_computed_stay_inside() -> None:
    def taken(z: Tensor) -> tuple[Tensor, Tensor]:
        where = z.reshape(3, 4).max(1, keepdim=True).indices
        return z.sum(), z.reshape(3, 4).gather(1, where).squeeze(1) + z[:3] * 0

    z = torch.randn(12, dtype=F64, generator=torch.Generator().manual_seed(0))
    code = MachineCode(one_point(taken, (z,)))
    assert torch.equal(code(z)[1][:3], z.reshape(3, 4).amax(1))
    assert code(torch.full((12,), NAN, dtype=F64))[1][:3].isnan().all()


def test_chains_agree_with_those_of_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same density: equal posteriors within Monte Carlo error, and a graph that stays."""

    def program(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(torch.tensor(0.0, dtype=F64), 2.0))
        sd = pyro.sample("sd", dist.HalfNormal(torch.tensor(1.0, dtype=F64)))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(mu, sd), obs=y)

    y = torch.tensor([0.3, 1.2, -0.4, 0.9, 1.5], dtype=F64)
    how = ppgp.inference.NUTS(draws=1000, chains=2, target_accept=0.95)
    made: list[MachineCode | None] = []

    def kept(graph: Any) -> MachineCode | None:
        made.append(machine_code(graph))
        return made[-1]

    monkeypatch.setattr("ppgp.density.target.machine_code", kept)
    fast = ppgp.fit(program, {"y": y}, how, progress=False)
    assert [type(code) for code in made] == [MachineCode]
    monkeypatch.setattr("ppgp.density.target.machine_code", lambda graph: None)
    slow = ppgp.fit(program, {"y": y}, how, progress=False)
    found = ppgp.compare({"fast": fast, "slow": slow}, reference="slow")
    assert found.verdicts["fast"] == "agrees"


def test_without_llvmlite_the_graph_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "find_spec", lambda name: None)
    z = torch.ones(3, dtype=F64)
    assert machine_code(one_point(lambda z: (z.sum(), z), (z,))) is None


def test_every_form_of_entries_is_an_operation_of_torch() -> None:
    assert all(isinstance(target, torch._ops.OpOverload) for target in ENTRIES)
