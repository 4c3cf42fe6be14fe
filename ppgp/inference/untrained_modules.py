"""Programs that are torch modules, which a fit leaves as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import Module


@contextmanager
def left_untrained(program: Any) -> Iterator[None]:
    """Give the parameters and buffers of a module their values back at the end.

    Pyro optimises the parameters of a PyroModule in place. The Posterior holds the fitted ones, so
    a second fit starts where the first one started.
    """
    if not isinstance(program, Module):
        yield
        return
    before = {name: value.detach().clone() for name, value in program.state_dict().items()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, value in program.state_dict().items():
                value.copy_(before[name])
