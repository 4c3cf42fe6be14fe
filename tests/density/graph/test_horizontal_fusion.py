"""Operations on parts of a vector are done in one go, with the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from ppgp import Dataset, kernels, models
from ppgp.density import Target
from ppgp.density.graph.recorder import recorded
from ppgp.density.graph.simplify import simplified

F64 = torch.float64


def counts(function: Callable[[Tensor], Tensor], size: int = 6) -> dict[str, int]:
    """Return how often a graph does each operation."""
    found: dict[str, int] = {}
    for node in simplified(recorded(function, (torch.ones(size, dtype=F64),))).graph.nodes:
        if node.op == "call_function":
            name = str(node.target)
            found[name] = found.get(name, 0) + 1
    return found


def one_exp(z: Tensor) -> Tensor:
    return z[0].exp() * z[1:4].exp().sum() * z[4:].view(1, 2).exp().prod()


def other_constants(z: Tensor) -> Tensor:
    return (z[:2] * 3.0 - 1.0).prod() / (z[2:5] * torch.arange(3.0, dtype=F64) - 2.0).prod() + z[5]


def a_part_without_the_operation(z: Tensor) -> Tensor:
    x = z.exp()
    return (x[:2] - 1.0).square().prod() * x[2:4].square().prod() * (x[4:] - 3.0).square().prod()


def sums_of_parts(z: Tensor) -> Tensor:
    x = z.exp()
    return x[0] + x[1:3].sum() + x[3:].sum() + z[0] + z[1:3].sum() + z[3:].sum()


def a_sum_that_holds_a_part_twice(z: Tensor) -> Tensor:
    return z[0] + z[0] + z[1:].sum() + z[1:].exp().sum() + z[0].exp()


def a_sum_of_some_parts(z: Tensor) -> Tensor:
    return z[0] + z[2:].sum() + z[1] * 2.0


def laid_end_to_end(z: Tensor) -> Tensor:
    x = z.exp()
    odd = torch.stack([z.prod(), z.sum(), z[0]])
    return torch.cat([odd[:1] * x[:1] + 1.0, odd.tile(2)[1:] * x[1:] + 2.0]).cumsum(0)


def parts_that_overlap(z: Tensor) -> Tensor:
    return z[:4].exp().prod() * z[2:].exp().sum() + z[1].exp() * z[1].log1p()


def a_part_that_is_written(z: Tensor) -> Tensor:
    x = z.clone()
    before = x[:3].exp().sum()
    x[3:].mul_(2.0)
    return before + x[3:].exp().sum()


def in_single_precision(z: Tensor) -> Tensor:
    x = z.float()
    return (x[:3] - 0.1).exp().sum().double() + (x[3:] - 0.3).exp().sum().double() + z[0]


def selected_from_the_end(z: Tensor) -> Tensor:
    return z[-1].exp() + z[-3:-1].exp().prod() + z[:3].exp().prod()


def divided_by_parts(z: Tensor) -> Tensor:
    return 1.0 / z[:3].exp().prod() + (2.0 / z[3:].exp()).sum() + (z[:3] / z[3:]).sum()


def a_multiple_that_two_read(z: Tensor) -> Tensor:
    twice = 2.0 * z.sin()
    return (z + twice).prod() - (3.0 - twice).sum() + (0.5 - z.square()).sum()


def parts_of_vectors_of_two_lengths(z: Tensor) -> Tensor:
    x = torch.outer(z[:2], z[2:4]).view(4).exp()
    short = torch.cat([z[:2].sum()[None], z[3:]])
    return (x[:2] * short[:2]).exp().sum() + (x[2:] * short[2:]).exp().sum() + (z[:4] * x).sum()


FUNCTIONS = [
    parts_of_vectors_of_two_lengths,
    one_exp,
    other_constants,
    a_part_without_the_operation,
    sums_of_parts,
    a_sum_that_holds_a_part_twice,
    a_sum_of_some_parts,
    laid_end_to_end,
    parts_that_overlap,
    a_part_that_is_written,
    in_single_precision,
    selected_from_the_end,
    divided_by_parts,
    a_multiple_that_two_read,
]


def with_gradient(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], list[Tensor]]:
    def both(z: Tensor) -> list[Tensor]:
        with torch.enable_grad():
            z = z.detach().requires_grad_(True)
            value = function(z)
            (gradient,) = torch.autograd.grad(value.sum(), z)
        return [value.detach(), gradient]

    return both


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_value_and_gradient_stay(function: Callable[[Tensor], Tensor]) -> None:
    own = with_gradient(function)
    graph = simplified(recorded(own, (torch.ones(6, dtype=F64),)))
    graph.graph.lint()
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        z = 0.1 + torch.rand(6, generator=generator, dtype=F64)
        # the sum of a long vector and that of its parts round differently
        tolerance = 1e-6 if function is in_single_precision else 1e-13
        torch.testing.assert_close(graph(z), own(z), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_several_points(function: Callable[[Tensor], Tensor]) -> None:
    own = with_gradient(function)
    z = 0.1 + torch.rand(3, 6, generator=torch.Generator().manual_seed(1), dtype=F64)
    wide = torch.vmap(simplified(recorded(own, (z[0].clone(),))))
    graph = simplified(recorded(wide, (z.clone(),)))
    expected = [torch.stack(each) for each in zip(*map(own, z), strict=True)]
    tolerance = 1e-6 if function is in_single_precision else 1e-13
    torch.testing.assert_close(list(graph(z)), expected, rtol=tolerance, atol=tolerance)


def test_each_operation_is_done_once() -> None:
    assert counts(one_exp)["aten.exp.default"] == 1
    assert counts(sums_of_parts)["aten.sum.default"] == 1
    assert counts(a_part_without_the_operation)["aten.sub.Tensor"] == 1
    assert counts(a_part_without_the_operation)["aten.pow.Tensor_Scalar"] == 1
    together = counts(laid_end_to_end)
    assert together["aten.mul.Tensor"] == together["aten.add.Tensor"] == 1


def test_minus_zero_stays() -> None:
    def function(z: Tensor) -> Tensor:
        x = z * -1.0
        return torch.cat([(x[:2] + 1.0).reciprocal(), x[2:4].reciprocal(), (x[4:] + 2.0).neg()])

    z = torch.zeros(6, dtype=F64)
    found = simplified(recorded(function, (torch.ones(6, dtype=F64),)))(z)
    assert torch.equal(found, function(z))


def test_priors_of_a_gp_are_one_vector() -> None:
    X = torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=F64)
    target = Target(models.GP(kernels.ARD(kernels.RBF())), Dataset(X, X[:, 0].sin()))
    z = target.start()
    graph = simplified(recorded(partial(target.eager_gradient, True), (z.clone(),)))
    names = [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
    assert names.count("aten.exp.default") == 1
    assert names.count("aten.log.default") == 2  # of the hyperparameters, and of the pivots
    assert len(names) <= 75


@pytest.mark.parametrize("size", [-720.0, -60.0, 60.0, 720.0])
def test_far_out_the_density_is_that_of_the_program(size: float) -> None:
    """The graph is finite where the program is, and its values are the same."""
    X = torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=F64)
    data = Dataset(X, X[:, 0].sin())
    kernel = kernels.ARD(kernels.RBF())
    compiled, eager = Target(models.GP(kernel), data), Target(models.GP(kernel), data, False, False)
    for i in range(compiled.dim):
        z = compiled.origin()
        z[i] = size
        (value, gradient), (own, slope) = compiled.value_and_grad(z), eager.value_and_grad(z)
        torch.testing.assert_close(value, own, rtol=1e-12, atol=0, equal_nan=True)
        if not bool(torch.isfinite(slope).all()):
            continue
        scale = float(slope.abs().max())
        torch.testing.assert_close(gradient, slope, rtol=1e-11, atol=1e-12 * scale)


def test_results_may_be_differentiated_further() -> None:
    """What a graph returns is a tensor like any other."""
    X = torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=F64)
    target = Target(models.GP(kernels.RBF()), Dataset(X, X[:, 0].sin()))
    value, gradient = target.value_and_grad(target.start())
    weight = torch.ones_like(gradient, requires_grad=True)
    ((weight * gradient).sum() * value).backward()
    assert weight.grad is not None
    gradient.mul_(2.0)
