"""Derivatives of functions by autograd."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

__all__ = ["derivatives_of_sum"]


def derivatives_of_sum(
    function: Callable[..., Tensor], inputs: tuple[Tensor, ...], beside: tuple[Tensor, ...] = ()
) -> tuple[Tensor, ...]:
    """Return the derivatives of the sum of ``function(*inputs)`` in each input.

    What the function reads beside its inputs is constant. The derivatives can be differentiated
    again if an input or a tensor beside them needs a gradient. ``torch.func.grad`` gives the same,
    but its first call imports the compiler of torch, which takes longer than many fits: it is left
    to inputs inside a transformation of ``torch.func``, and to inference mode.

    Args:
        function: Inputs -> a tensor of any shape.
        inputs: Tensors of any shape.
        beside: Other tensors that the function reads.
    """
    if torch.is_inference_mode_enabled() or any(map(_transformed, (*inputs, *beside))):
        places = tuple(range(len(inputs)))
        return torch.func.grad(lambda *own: function(*own).sum(), argnums=places)(*inputs)
    again = torch.is_grad_enabled() and any(x.requires_grad for x in (*inputs, *beside))
    with torch.enable_grad():
        # a view is another node of the graph: what was computed from an input before is constant
        own = [
            x.view_as(x) if again and x.requires_grad else x.detach().requires_grad_()
            for x in inputs
        ]
        total = function(*own).sum()
        if not total.requires_grad:  # it depends on no input
            return tuple(torch.zeros_like(x) for x in inputs)
        return torch.autograd.grad(total, own, create_graph=again, materialize_grads=True)


def _transformed(x: Tensor) -> bool:
    """Return whether a transformation of ``torch.func`` follows x, which autograd does not see."""
    return is_functorch_wrapped_tensor(x)
