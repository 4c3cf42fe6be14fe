"""Optimisers of torch that do not import its compiler, which takes two seconds.

Torch hides some of their methods from the compiler, and imports it to do so. No step of this
package is compiled by it. Where a version of torch hides nothing, these are its own classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import Optimizer

__all__ = ["Adagrad", "Adam"]


def _seen(method: Any) -> Any:
    """Return what a method is before it is hidden."""
    return getattr(method, "__wrapped__", method)


class _WithoutCompiler:
    """The methods of ``Optimizer`` as they are written."""

    add_param_group = _seen(Optimizer.add_param_group)
    load_state_dict = _seen(Optimizer.load_state_dict)
    state_dict = _seen(Optimizer.state_dict)
    zero_grad = _seen(Optimizer.zero_grad)


class Adam(_WithoutCompiler, torch.optim.Adam):
    """Adam (Kingma & Ba 2015)."""

    step = torch.no_grad()(_seen(torch.optim.Adam.step))


class Adagrad(_WithoutCompiler, torch.optim.Adagrad):
    """AdaGrad (Duchi, Hazan & Singer 2011)."""

    step = torch.no_grad()(_seen(torch.optim.Adagrad.step))
