"""Whether all numbers of a tensor are finite."""

from __future__ import annotations

import math

import pytest
import torch

from ppgp.numerics.finite import all_finite


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_one_number_anywhere_is_found(dtype: torch.dtype, wrong: float) -> None:
    for place in range(0, 1000, 37):
        values = torch.linspace(-1, 1, 1000, dtype=dtype)
        assert all_finite(values.reshape(10, 100))
        values[place] = wrong
        assert not all_finite(values.reshape(10, 100))


def test_extreme_numbers_and_none_are_finite() -> None:
    largest = torch.finfo(torch.float64).max
    assert all_finite(torch.tensor([largest, -largest, 5e-324], dtype=torch.float64))
    assert all_finite(torch.empty(0, 3))
    assert all_finite(torch.tensor([1, 2]))
    assert all_finite(torch.ones(2, requires_grad=True))
