"""The sum over the paths of a chain, beside the same sum in plain operations."""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from ppgp.density import Target
from ppgp.density.chains import log_of_chain, log_of_paths
from ppgp.models import Program

F64 = torch.float64


def in_steps(single: Tensor, pairs: Tensor, which: tuple[int, ...]) -> Tensor:
    forward = single[0]
    for t, kind in enumerate(which, 1):
        forward = torch.logsumexp(forward[..., :, None] + pairs[kind], -2) + single[t]
    return torch.logsumexp(forward, -1)


def drawn(*shape: int, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return scale * torch.randn(*shape, generator=generator, dtype=F64)


WHICH = (0, 1, 0, 1, 1, 0, 1, 0, 0, 0, 1)


@pytest.mark.parametrize("batch", [(), (2,), (3, 2)])
@pytest.mark.parametrize("own_pairs", [True, False])
@pytest.mark.parametrize("scale", [1.0, 400.0])
def test_value_and_gradients(batch: tuple[int, ...], own_pairs: bool, scale: float) -> None:
    """At a scale of 400 some paths are exp(-4,000) times as probable as others."""
    single = drawn(len(WHICH) + 1, *batch, 4, scale=scale).requires_grad_()
    of_pairs = batch if own_pairs else (1,) * len(batch)
    pairs = drawn(2, *of_pairs, 4, 4, scale=scale).requires_grad_()
    found, expected = (f(single, pairs, WHICH) for f in (log_of_chain, in_steps))
    assert torch.allclose(found, expected, rtol=1e-12)
    weights = torch.arange(1.0, 1 + found.numel(), dtype=F64).reshape(found.shape)
    slopes = [torch.autograd.grad((x * weights).sum(), (single, pairs)) for x in (found, expected)]
    for a, b in zip(*slopes, strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-12)


KINDS = {
    "one": lambda steps: (0,) * (steps - 1),
    "another first": lambda steps: (1, 0, *(1,) * (steps - 3)),
    "three": lambda steps: tuple((t * t) % 7 % 3 for t in range(steps - 1)),
    "all differ": lambda steps: tuple(range(steps - 1)),
}


@pytest.mark.parametrize("steps", [129, 140, 423])
@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize(("batch", "own_pairs"), [((), True), ((3,), True), ((3,), False)])
@pytest.mark.parametrize("scale", [1.0, 8.0, 60.0])
def test_long_chains_in_blocks(
    steps: int, kinds: str, batch: tuple[int, ...], own_pairs: bool, scale: float
) -> None:
    which = KINDS[kinds](steps)
    single = drawn(steps, *batch, 3, scale=scale).requires_grad_()
    of_pairs = batch if own_pairs else (1,) * len(batch)
    pairs = drawn(1 + max(which), *of_pairs, 3, 3, scale=scale).requires_grad_()
    found, expected = (f(single, pairs, which) for f in (log_of_chain, in_steps))
    assert torch.allclose(found, expected, rtol=1e-12)
    slopes = [torch.autograd.grad(x.sum(), (single, pairs)) for x in (found, expected)]
    # the sums of the peer are as large as the largest step times their number
    rounding = 1e-15 * float(found.detach().abs().max()) * len(which)
    for a, b in zip(*slopes, strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=rounding)


@pytest.mark.parametrize("impossible", [0, 77, 128, 199])
def test_a_value_that_is_impossible_at_one_step_of_a_long_chain(impossible: int) -> None:
    """Rows of the products between two steps are zero then."""
    single, pairs, which = drawn(200, 2), drawn(1, 2, 2), (0,) * 199
    single[impossible, 0] = -torch.inf
    pairs[0, 1, 0] = -torch.inf
    single.requires_grad_()
    pairs.requires_grad_()
    found, expected = (f(single, pairs, which) for f in (log_of_chain, log_of_paths))
    assert torch.allclose(found, expected, rtol=1e-12)
    slopes = [torch.autograd.grad(x, (single, pairs)) for x in (found, expected)]
    for a, b in zip(*slopes, strict=True):
        assert bool(a.isfinite().all())
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-11)


def lost_at_an_end(steps: int) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """The likely path begins and ends with exp(-760), which underflows in both directions."""
    single = torch.zeros(steps, 2, dtype=F64)
    single[:, 0] = -45.0
    single[0] = single[-1] = torch.tensor([0.0, -760.0])
    pairs = torch.tensor([[[0.0, -torch.inf], [-torch.inf, 0.0]]], dtype=F64)
    return single, pairs, (0,) * (steps - 1)


def lost_by_and_by(steps: int) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """No factor underflows, and the product of twenty does."""
    single = torch.zeros(steps, 2, dtype=F64)
    single[:, 0] = -10.0
    single[:20] = single[-20:] = torch.tensor([0.0, -40.0])
    pairs = torch.tensor([[[0.0, -torch.inf], [-torch.inf, 0.0]]], dtype=F64)
    return single, pairs, (0,) * (steps - 1)


def lost_in_a_block(steps: int) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """The path that survives is a small part of those that begin as it does."""
    pairs = torch.zeros(steps - 1, 2, 2, dtype=F64)
    pairs[:, 0, 1] = pairs[:, 1, 0] = -torch.inf
    first, second = steps * 3 // 10, steps * 6 // 10
    pairs[first, 0, 0] = pairs[second, 0, 0] = -760.0
    pairs[second + 3, 1, 0] = -200.0
    single = torch.zeros(steps, 2, dtype=F64)
    single[first + 5 : second + 1, 1] = -40.0
    single[-1, 1] = -torch.inf
    return single, pairs, tuple(range(steps - 1))


@pytest.mark.parametrize("chain", [lost_at_an_end, lost_by_and_by, lost_in_a_block])
@pytest.mark.parametrize("steps", [40, 137, 200, 500])
@pytest.mark.parametrize("least", [-torch.inf, -3000.0, -900.0, -50.0])
def test_no_path_is_lost_where_another_is_more_probable_for_a_while(
    chain: Any, steps: int, least: float
) -> None:
    """Neither direction alone sees the path that survives."""
    single, pairs, which = chain(steps)
    pairs = pairs.clamp(min=least).requires_grad_()
    single.requires_grad_()
    found, expected = (f(single, pairs, which) for f in (log_of_chain, log_of_paths))
    assert torch.allclose(found, expected, rtol=1e-12)
    slopes = [torch.autograd.grad(x, (single, pairs)) for x in (found, expected)]
    for a, b in zip(*slopes, strict=True):
        assert torch.allclose(a, b, rtol=1e-8, atol=1e-9)


def test_one_chain_of_several_without_a_path_has_no_slope() -> None:
    single = torch.zeros(140, 2, 2, dtype=F64)
    single[70, 0] = -torch.inf
    pairs = torch.zeros(1, 1, 2, 2, dtype=F64)
    single.requires_grad_()
    totals = log_of_chain(single, pairs, (0,) * 139)
    assert torch.allclose(totals[1], 140 * torch.tensor(2.0, dtype=F64).log())
    assert totals[0].item() == -torch.inf
    (slope,) = torch.autograd.grad(totals[1], single)
    assert slope[:, 0].tolist() == [[0.0, 0.0]] * 140
    assert torch.allclose(slope[:, 1], torch.tensor(0.5, dtype=F64))


def test_a_long_chain_without_a_path_has_no_probability() -> None:
    single, pairs = torch.zeros(200, 2, dtype=F64), torch.zeros(1, 2, 2, dtype=F64)
    single[120] = -torch.inf
    assert float(log_of_chain(single, pairs, (0,) * 199)) == -torch.inf


@pytest.mark.parametrize("length", [12, 200])
def test_a_path_that_alone_is_possible_is_found_where_probabilities_underflow(length: int) -> None:
    """The state that all others are exp(2,000) times as probable as, until they end."""
    single = torch.zeros(length, 2, dtype=F64)
    single[0] = torch.tensor([0.0, -2000.0])
    pairs = torch.tensor([[[0.0, -torch.inf], [-torch.inf, 0.0]]], dtype=F64)
    single[-1] = torch.tensor([-torch.inf, 0.0])
    single.requires_grad_()
    total = log_of_chain(single, pairs, (0,) * (length - 1))
    assert float(total.detach()) == -2000.0
    assert torch.autograd.grad(total, single)[0].tolist() == [[0.0, 1.0]] * length


def test_second_derivatives() -> None:
    single, pairs = drawn(12, 2), drawn(2, 2, 2)

    def by(f: Any) -> Tensor:
        return torch.autograd.functional.hessian(lambda x: f(x, pairs, WHICH), single)

    assert torch.allclose(by(log_of_chain), by(in_steps), rtol=1e-9, atol=1e-12)


def test_a_long_chain_is_discrete_hmm() -> None:
    y = drawn(60)

    def program(y: Tensor) -> None:
        centre = pyro.sample("centre", dist.Normal(torch.arange(3, dtype=F64), 1.0).to_event(1))
        alpha = torch.ones(3, 3, dtype=F64)
        move = pyro.sample("move", dist.Dirichlet(alpha).to_event(1))
        z: Any = 0
        for t in pyro.markov(range(len(y))):
            z = pyro.sample(f"z_{t}", dist.Categorical(move[z]))
            pyro.sample(f"y_{t}", dist.Normal(centre[z], 0.7), obs=y[t])

    def as_one(y: Tensor) -> None:
        centre = pyro.sample("centre", dist.Normal(torch.arange(3, dtype=F64), 1.0).to_event(1))
        alpha = torch.ones(3, 3, dtype=F64)
        move = pyro.sample("move", dist.Dirichlet(alpha).to_event(1))
        # the first state of DiscreteHMM comes before the first observation
        law = dist.DiscreteHMM(
            torch.tensor([0.0, -torch.inf, -torch.inf], dtype=F64),
            move.log(),
            dist.Normal(centre, 0.7),
            duration=len(y),
        )
        pyro.sample("y", law, obs=y)

    ours, theirs = (Target(Program(f), {"y": y}) for f in (program, as_one))
    assert not ours.eager
    z = drawn(3, ours.dim, scale=0.5)
    values, gradients = ours.value_and_grad_batch(z)
    for point, value, gradient in zip(z, values, gradients, strict=True):
        expected, slope = theirs.eager_gradient(True, point)
        assert torch.allclose(value, expected, rtol=1e-10)
        assert torch.allclose(gradient, slope, rtol=1e-8, atol=1e-8)
        one, own = ours.value_and_grad(point)
        assert torch.allclose(one, expected, rtol=1e-10)
        assert torch.allclose(own, slope, rtol=1e-8, atol=1e-8)
    assert torch.allclose(ours.hessian(z[0]), theirs.hessian(z[0]), rtol=1e-7, atol=1e-7)
