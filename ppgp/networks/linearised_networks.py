"""Networks that are linear in their weights around one set of weights.

The Gaussian of a Laplace approximation whose precision is the Gauss-Newton matrix is the posterior
of the linearised network. Draws of it in the network itself predict poorly where it is wide.
Immer, Korzepa & Bauer (2021).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import jvp

from ..numerics.shapes import broadcast_shapes
from .networks import Network, outputs

#: Names of the weights around which a network is linear begin with this word.
LINEARISED_AT = "linearised_at"


def linearised_outputs(
    network: Network | nn.Module, at: Mapping[str, Tensor], given: Mapping[str, Tensor], X: Tensor
) -> Tensor:
    """Return f(X; at) + J (given - at), [*batch, n, q], where J is the derivative by the weights.

    Args:
        network: The network f.
        at: {name of a parameter: [*shape]}.
        given: {name of a parameter: [*batch, *shape]}; those that are left out are as in ``at``.
        X: The rows [n, d].
    """
    point = {name: value.to(X) for name, value in at.items()}
    steps = {name: given[name].to(X) - value for name, value in point.items() if name in given}
    batches = (step.shape[: step.ndim - point[name].ndim] for name, step in steps.items())
    batch = broadcast_shapes(*batches)
    each = {}
    for name, value in point.items():
        step = steps.get(name, torch.zeros_like(value))
        each[name] = step.expand(*batch, *value.shape).reshape(-1, *value.shape)

    def f(weights: dict[str, Tensor]) -> Tensor:
        return outputs(network, weights, X)

    def move(step: dict[str, Tensor]) -> Tensor:
        return jvp(f, (point,), (step,))[1]

    level = f(point)
    return level + torch.vmap(move)(each).reshape(*batch, *level.shape)
