"""Networks over many rows, evaluated in blocks that keep no activations for the gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ppgp import Dataset
from ppgp.density import Target
from ppgp.kernels import RBF, Deep
from ppgp.models import SGPR
from ppgp.networks import row_blocks
from ppgp.networks.networks import CNN, MLP, module_of, outputs, training, weights
from ppgp.networks.row_blocks import Rows
from ppgp.runtime.seeding import stream

N, D, Q = 40, 64, 3
BYTES = 8 * 200  # of the activations of a block, which makes blocks of several rows
Given = dict[str, Tensor]


class MeanRemoved(nn.Module):
    """A network whose outputs of one row depend on the other rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(D, Q, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        features = torch.tanh(self.linear(x))
        return features - features.mean(0)


class Counting(MeanRemoved):
    """A network that counts its evaluations in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return torch.tanh(self.linear(x))


class Noisy(MeanRemoved):
    """A network that adds noise in evaluation mode too."""

    def forward(self, x: Tensor) -> Tensor:
        features = torch.tanh(self.linear(x))
        return features + torch.randn_like(features)


def of_batches() -> nn.Module:
    """Return a network that normalises by the batch in evaluation mode too."""
    norm = nn.BatchNorm1d(Q, track_running_stats=False, dtype=torch.float64)
    return nn.Sequential(nn.Linear(D, Q, dtype=torch.float64), norm)


NETWORKS = {
    "mlp": MLP((8, 8), out=Q),
    "cnn": CNN((4, 4), out=Q),
    "normalised": CNN((4, 4), out=Q, normalise=True),
    "module": nn.Sequential(nn.Linear(D, 8), nn.Tanh(), nn.Linear(8, Q)).double(),
}
NOT_BY_ROW = {
    "batch normalisation": of_batches,
    "mean over rows": MeanRemoved,
    "changed buffer": Counting,
    "noise": Noisy,
}


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_blocks, "KEPT", 0)
    monkeypatch.setattr(row_blocks, "BLOCK", BYTES)


@pytest.fixture(autouse=True)
def no_costs_from_other_tests() -> Iterator[None]:
    row_blocks._COSTS.clear()
    yield
    row_blocks._COSTS.clear()


def rows(n: int = N) -> Tensor:
    return torch.randn(n, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def given(network: Any) -> Given:
    parameters, _ = weights(module_of(network, D))
    return {name: value.detach().clone().requires_grad_() for name, value in parameters.items()}


def with_derivatives(network: Any) -> list[Tensor]:
    """Return outputs, their derivatives and second derivatives by X and by the weights."""
    own, X = given(network), rows().requires_grad_()
    F = outputs(network, own, X)
    loss = (F.sin() * torch.arange(F.numel()).reshape(F.shape)).sum()
    sources = [X, *own.values()]
    slopes = torch.autograd.grad(loss, sources, retain_graph=True)
    differentiable = torch.autograd.grad(loss, sources, create_graph=True)
    norm = torch.stack([slope.square().sum() for slope in differentiable]).sum()
    return [F, *slopes, *torch.autograd.grad(norm, sources)]


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12 * float(b.detach().abs().max()))


def evaluation(network: Any) -> str:
    """Return the name of what computes the derivatives of the outputs."""
    node: Any = outputs(network, given(network), rows()).grad_fn
    return type(node.next_functions[0][0]).__name__


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_and_derivatives_are_those_of_all_rows_at_once(
    name: str, request: pytest.FixtureRequest
) -> None:
    network = NETWORKS[name]
    assert evaluation(network) != "_InBlocksBackward"
    expected = with_derivatives(network)
    request.getfixturevalue("blocks")
    assert evaluation(network) == "_InBlocksBackward"
    assert_same(with_derivatives(network), expected)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("name", NOT_BY_ROW)
def test_networks_whose_rows_are_not_independent_take_all_rows_at_once(name: str) -> None:
    torch.manual_seed(0)
    assert evaluation(NOT_BY_ROW[name]()) != "_InBlocksBackward"


@pytest.mark.usefixtures("blocks")
def test_a_look_at_a_network_changes_neither_it_nor_the_random_numbers() -> None:
    network = Counting()
    own = given(network)
    module = module_of(network, D)
    before, state = dict(module.named_buffers())["count"].clone(), torch.get_rng_state()
    parameters = {**own, "count": before.clone()}
    assert row_blocks.rows_at_once(module, parameters, rows(), False) is None
    assert torch.equal(dict(module.named_buffers())["count"], before)
    assert torch.equal(parameters["count"], before)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("second", [False, True])
def test_the_gradient_drops_out_the_units_that_the_outputs_did(second: bool) -> None:
    network, X = MLP((8, 8), out=Q, dropout=0.5), rows()
    own = given(network)
    sources = list(own.values())

    def derivatives(F: Tensor) -> list[Tensor]:
        slopes = torch.autograd.grad(F.sin().sum(), sources, create_graph=second)
        if not second:
            return [F, *slopes]
        norm = torch.stack([slope.square().sum() for slope in slopes]).sum()
        return [F, *torch.autograd.grad(norm, sources)]

    with training():
        module = module_of(network, D)
        state = dict(own)
        size = row_blocks.rows_at_once(module, state, X, True)
        assert size is not None
        assert 1 < size < N
        with stream(1):
            parts = [torch.func.functional_call(module, state, (x,)) for x in X.split(size)]
            expected = derivatives(torch.cat(parts))
            after = torch.rand(())
        with stream(1):
            found = derivatives(outputs(network, own, X))
            assert torch.equal(torch.rand(()), after)  # the stream goes on where it was
    assert_same(found, expected)
    assert bool((outputs(network, own, X) != found[0]).any())


def test_few_bytes_are_kept_for_the_gradient(request: pytest.FixtureRequest) -> None:
    network, X = CNN((4, 4), out=Q), rows(400)
    own = given(network)

    def kept() -> int:
        storages: dict[int, Tensor] = {}

        def keep(x: Tensor) -> Tensor:
            storages[x.untyped_storage().data_ptr()] = x
            return x

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
            F = outputs(network, own, X)
        del F
        return sum(x.untyped_storage().nbytes() for x in storages.values())

    plain = kept()
    request.getfixturevalue("blocks")
    arguments = sum(x.untyped_storage().nbytes() for x in (X, *own.values()))
    assert kept() <= arguments
    assert plain > 5 * arguments


@pytest.mark.usefixtures("blocks")
def test_batched_slopes_and_transforms_of_torch_func() -> None:
    network, X = NETWORKS["mlp"], rows()
    own = given(network)
    F = outputs(network, own, X)
    slopes = torch.eye(Q).double()[:, None].expand(Q, N, Q)
    batched = torch.autograd.grad(
        F, list(own.values()), slopes, retain_graph=True, is_grads_batched=True
    )
    for i in range(Q):
        single = torch.autograd.grad(F, list(own.values()), slopes[i], retain_graph=True)
        assert_same([x[i] for x in batched], list(single))
    plain = {name: value.detach() for name, value in own.items()}
    by_func = torch.func.grad(lambda w: outputs(network, w, X)[:, 0].sum())(plain)
    assert_same(list(by_func.values()), [x[0] for x in batched])


def deep(**settings: Any) -> SGPR:
    network = MLP((8,), out=Q, dropout=0.0)
    return SGPR(Deep(network, RBF(), **settings), inducing=5, learn=not settings)


def target(model: SGPR) -> Target:
    X = rows()
    data = Dataset(X, X[:, 0].sin())
    return Target(model.prepare(data), data, optimise_params=True)


def of_target(model: SGPR) -> tuple[Target, list[Tensor]]:
    """Return a target, and values and gradients at a point, as a graph and by the program."""
    one = target(model)
    z = one.start() + 0.01
    by_graph = one.value_and_grad(z)
    by_program = one.eager_gradient(True, z)
    several = one.value_and_grad_batch(torch.stack([z, z - 0.01]))
    return one, [*by_graph, *by_program, *several]


def evaluations(one: Target) -> int:
    """Return how often the graph evaluates a network in blocks."""
    graph: Any = one.compiled()
    return sum(isinstance(node.target, Rows) for node in graph.graph.nodes)


def test_a_graph_evaluates_the_network_once(request: pytest.FixtureRequest) -> None:
    _, expected = of_target(deep())
    request.getfixturevalue("blocks")
    one, found = of_target(deep())
    assert_same(found, expected)
    assert not one.eager
    assert not one.notes
    assert evaluations(one) == 1  # the 5 inducing inputs are too few for blocks


def test_a_frozen_network_is_a_constant_of_the_graph(request: pytest.FixtureRequest) -> None:
    _, expected = of_target(deep(frozen=True))
    request.getfixturevalue("blocks")
    one, found = of_target(deep(frozen=True))
    assert_same(found, expected)
    graph: Any = one.compiled()
    nodes = getattr(getattr(graph, "graph", None), "nodes", ())
    assert not any(isinstance(node.target, Rows) for node in nodes)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("train", [False, True])
def test_the_same_rows_are_together_with_and_without_a_gradient(train: bool) -> None:
    """A step of SVI evaluates the network twice, and drops the same units out."""
    network, X = MLP((8,), out=Q, dropout=0.5), rows()
    own = given(network)
    with training() if train else nullcontext():
        with stream(2):
            F = outputs(network, own, X)
        with stream(2), torch.no_grad():
            again = outputs(network, own, X)
    assert torch.equal(F, again)
