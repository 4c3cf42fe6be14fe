"""An error of a user's program in a chain of NUTS reaches the user as it is."""

from __future__ import annotations

import threading

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import inference


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
@pytest.mark.parametrize("chains", [1, 2], ids=["a thread", "processes"])
@pytest.mark.parametrize("limit", [1.0, -100.0], ids=["at some values", "at all values"])
def test_a_value_error_is_raised_itself(chains: int, limit: float) -> None:
    """The posterior of r has mean 0.23 and standard deviation 0.58."""

    def program(y: Tensor) -> None:
        r = pyro.sample("r", dist.Normal(0.0, 1.0))
        # chains run in threads of their own; without this the start would meet the error
        if float(r) > limit and threading.current_thread() is not threading.main_thread():
            raise ValueError("r must be lower")
        pyro.sample("y", dist.Normal(r * torch.ones(2), 1.0).to_event(1), obs=y)

    how = inference.NUTS(draws=100, warmup=100, chains=chains)
    with pytest.raises(ValueError, match=r"^r must be lower$") as caught:
        ppgp.fit(program, {"y": torch.tensor([0.3, 0.4])}, how, progress=False)
    assert type(caught.value) is ValueError
