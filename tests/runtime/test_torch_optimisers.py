"""The optimisers of torch, without its compiler."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fresh_process import printed

from ppgp.runtime.torch_optimisers import Adagrad, Adam

PAIRS = [(Adam, torch.optim.Adam), (Adagrad, torch.optim.Adagrad)]


def path_of(kind: Any, **options: Any) -> list[torch.Tensor]:
    x = torch.linspace(-1, 2, 5, dtype=torch.float64).requires_grad_()
    y = torch.ones(2, 3).requires_grad_()
    optimizer = kind([{"params": [x], "lr": 0.1}, {"params": [y], "lr": 0.02}], **options)
    found = []
    for step in range(12):
        optimizer.zero_grad()
        ((x - 1).square().sum() + y.exp().sum()).backward()
        optimizer.step()
        if step == 6:
            saved = optimizer.state_dict()
            optimizer = kind([{"params": [x]}, {"params": [y]}], **options)
            optimizer.load_state_dict(saved)
        found += [x.detach().clone(), y.detach().clone()]
    return found


@pytest.mark.parametrize(("own", "torchs"), PAIRS)
@pytest.mark.parametrize("fused", [False, True])
def test_steps_are_those_of_torch(own: Any, torchs: Any, fused: bool) -> None:
    steps = zip(path_of(own, fused=fused), path_of(torchs, fused=fused), strict=True)
    assert all(torch.equal(a, b) for a, b in steps)


SCRIPT = """
import sys
import pyro, pyro.distributions as dist, torch, ppgp
from ppgp import inference

def program(y):
    m = pyro.sample("m", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(m, 1.0), obs=y)

how = inference.SVI(steps=20)
ppgp.fit(program, {"y": torch.linspace(-1, 1, 20)}, how, progress=False)
print("torch._dynamo" in sys.modules)
"""


def test_a_stochastic_fit_does_not_import_the_compiler() -> None:
    assert printed(SCRIPT)[-1] == "False"
