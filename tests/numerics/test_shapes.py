"""Shapes of broadcast tensors, as torch has them."""

from __future__ import annotations

import itertools

import pytest
import torch
from fresh_process import printed

from ppgp.numerics.shapes import broadcast_shapes

SHAPES = [(), (1,), (3,), (2, 1), (2, 3), (4, 1, 3), (0,), (2, 0)]


@pytest.mark.parametrize("shapes", [*itertools.product(SHAPES, SHAPES[2:5], SHAPES)], ids=str)
def test_a_shape_is_that_of_torch(shapes: tuple[tuple[int, ...], ...]) -> None:
    try:
        expected = torch.broadcast_shapes(*shapes)
    except RuntimeError:
        with pytest.raises(RuntimeError, match="cannot be broadcast"):
            broadcast_shapes(*shapes)
        return
    assert broadcast_shapes(*shapes) == expected


def test_a_small_fit_imports_no_sympy() -> None:
    code = """
        import sys, torch, ppgp
        from ppgp import inference, models
        x = torch.linspace(0, 1, 20, dtype=torch.float64)
        ppgp.fit(models.GP(), ppgp.Dataset(x[:, None], x.sin()), inference.MAP(), progress=False)
        print("sympy" in sys.modules)
    """
    assert printed(code) == ["False"]
