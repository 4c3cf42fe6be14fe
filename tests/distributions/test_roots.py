"""Roots row by row: how many evaluations they take, and rows that Newton's method cannot solve."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import Distribution, Normal

from ppgp.distributions import mixture
from ppgp.distributions.roots import Newton, root

F64 = torch.float64


def solved(
    value: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor], start: Tensor
) -> tuple[Tensor, list[int]]:
    """Return the roots of a function, and the number of rows of each evaluation."""
    sizes = []

    def evaluate(distribution: Distribution, x: Tensor, *_: Tensor) -> Newton:
        sizes.append(x.shape[-1])
        return Newton(value(x), value(x) / slope(x), 1e-15 * x.abs())

    rows = Normal(torch.zeros(1, len(start), dtype=F64), torch.ones(1, len(start), dtype=F64))
    zero, one = torch.zeros_like(start), torch.ones_like(start)
    return root(rows, evaluate, start, zero, zero, one, 4), sizes


def test_rows_far_from_their_root_do_not_slow_the_others() -> None:
    """Newton's method for arctan diverges from a start beyond 1.39; the other rows leave."""
    start = torch.full((1000,), 0.1, dtype=F64)
    start[7] = 30.0
    found, sizes = solved(torch.atan, lambda x: 1 / (1 + x.square()), start)
    assert float(found.abs().max()) < 1e-15
    assert sum(sizes) < 5 * len(start)


@pytest.mark.parametrize("where", [1e-200, 1e-9, 3.0, 1e9, 1e200])
def test_roots_of_any_size_are_found_where_newtons_steps_are_useless(where: float) -> None:
    """The slope is claimed to be 0: no step is finite."""
    start = torch.tensor([0.5, -0.5], dtype=F64)
    target = torch.tensor([where, -where], dtype=F64)

    def value(x: Tensor) -> Tensor:
        return torch.sign(x - target)

    found, sizes = solved(value, torch.zeros_like, start)
    assert found.tolist() == pytest.approx(target.tolist(), rel=1e-14)
    assert len(sizes) < 200


def test_a_value_that_no_float_reaches_ends_at_the_largest() -> None:
    found, sizes = solved(
        lambda x: torch.full_like(x, -1.0), torch.zeros_like, torch.zeros(2, dtype=F64)
    )
    assert found.tolist() == [torch.finfo(F64).max] * 2
    assert len(sizes) < 100


def test_quantiles_of_normal_mixtures_take_few_evaluations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where every second row has two modes far apart."""
    counted, original = [], mixture.cdf_and_density

    def counting(distribution: Distribution, x: Tensor) -> tuple[Tensor, Tensor]:
        counted.append(x.shape[-1])
        return original(distribution, x)

    monkeypatch.setattr(mixture, "cdf_and_density", counting)
    generator = torch.Generator().manual_seed(0)
    loc = torch.randn(200, 500, generator=generator, dtype=F64)
    loc[:100, ::2] += 20.0
    scale = 0.5 + torch.rand(200, 1, generator=generator, dtype=F64)
    distribution = Normal(loc, scale.expand_as(loc))
    for p in (0.05, 0.5, 0.95):
        counted.clear()
        found = mixture.quantile(distribution, p)
        assert sum(counted) < 7 * loc.shape[1]
        torch.testing.assert_close(
            mixture.cdf(distribution, found), torch.full((500,), p, dtype=F64), rtol=1e-14, atol=0
        )
