"""A branch on a number that torch does not hand out: the value of the program, at any point."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from ppgp import Target
from ppgp.errors import NumericalWarning
from ppgp.models import Program

F64 = torch.float64
FIVE = torch.tensor(5.0, dtype=F64)


def _written_first(z: Tensor) -> bool:
    buffer = torch.zeros(1, dtype=F64)
    buffer[0] = z.detach()
    return bool(buffer.numpy()[0] > 5)


def _loop(z: Tensor) -> bool:
    left, taken = z.detach(), 0
    while left > 0:
        left, taken = left - 5, taken + 1
    return taken > 1


FORMS: dict[str, Callable[[Tensor], Any]] = {
    "item": lambda z: z.item() > 5,
    "compare": lambda z: z > 5,
    "bool": lambda z: bool(z > 5),
    "float": lambda z: float(z) > 5,
    "int": lambda z: int(z) > 5,
    "math": lambda z: math.exp(z) > math.exp(5),
    "max": lambda z: max(z, FIVE) is z,
    "sorted": lambda z: sorted([z, FIVE])[0] is not z,
    "while": _loop,
    "tolist": lambda z: z.detach().reshape(1).tolist()[0] > 5,
    "numpy": lambda z: z.detach().numpy() > 5,
    "numpy by force": lambda z: z.numpy(force=True) > 5,
    "cpu": lambda z: z.detach().cpu().numpy() > 5,
    "asarray": lambda z: np.asarray(z.detach()) > 5,
    "where": lambda z: np.where(z.detach() > 5, 1, 0) == 1,
    "exp of NumPy": lambda z: np.exp(z.detach()) > math.exp(5),
    "series": lambda z: pd.Series(z.detach().reshape(1)).iloc[0] > 5,
    "dlpack": lambda z: np.from_dlpack(z.detach()) > 5,
    "data": lambda z: z.data > 5,
    "data of a result": lambda z: (z * 1).data.numpy() > 5,
    "deepcopy": lambda z: copy.deepcopy(z.detach()).item() > 5,
    "written first": _written_first,
    "tensor of a list": lambda z: torch.tensor([z.detach(), 1.0])[0] > 5,
    "tensor of a tuple": lambda z: torch.as_tensor((z.detach(), 1.0))[0] > 5,
    "new_tensor": lambda z: z.new_tensor([z.detach()])[0] > 5,
}


#: Forms whose conditions are tensors, so that each way through the program has a graph.
OF_TENSORS = {"compare", "bool", "max", "sorted", "while", "data"}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", FORMS)
def test_the_value_is_that_of_the_program(name: str) -> None:
    look = FORMS[name]

    def program():
        z = pyro.sample("z", dist.Normal(torch.zeros((), dtype=F64), 3.0))
        if look(z):
            pyro.factor("far", -2.0 * (z - 5) ** 2)

    target = Target(Program(program), {})
    eager = pytest.warns(NumericalWarning, match="turns a value into a Python number")
    with nullcontext() if name in OF_TENSORS else eager:
        value, gradient = target.value_and_grad(torch.tensor([8.0], dtype=F64))
    assert target.eager == (name not in OF_TENSORS)
    normal = -(8.0**2) / 18 - math.log(3 * math.sqrt(2 * math.pi))
    assert math.isclose(float(value), normal - 18, rel_tol=1e-12)
    assert math.isclose(float(gradient), -8 / 9 - 12, rel_tol=1e-12)
    value, _ = target.value_and_grad(torch.tensor([4.0], dtype=F64))
    assert math.isclose(float(value), normal + (64 - 16) / 18, rel_tol=1e-12)


def test_data_may_be_read_in_any_way() -> None:
    """Numbers that no site changes are constants, and such a program is compiled."""
    y = torch.arange(4.0, dtype=F64)

    def program(y):
        scale = float(np.std(y.numpy())) + y.tolist()[1] + torch.tensor([y[0], 1.0])[1].item()
        z = pyro.sample("z", dist.Normal(torch.zeros((), dtype=F64), 3.0))
        with pyro.plate("rows", 4):
            pyro.sample("y", dist.Normal(z + z.data, scale), obs=y)

    target = Target(Program(program), {"y": y})
    z = torch.tensor([2.0], dtype=F64)
    value, gradient = target.value_and_grad(z)
    assert not target.eager
    own, slope = target.eager_gradient(True, z)
    torch.testing.assert_close(value, own)
    torch.testing.assert_close(gradient, slope)
