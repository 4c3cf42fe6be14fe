"""The Laplace approximation of networks, whose precision is the Gauss-Newton matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from ...capabilities import (
    LikelihoodOfFunctions,
    NetworkWeights,
    require,
    supports,
)
from ...density.layout import Slice
from ...density.target import Target
from ...errors import NotApplicable
from ...networks.linearised_networks import LINEARISED_AT
from .curvature_of_rows import CurvatureOfRows
from .expansion import Peak, expanded
from .search import SearchResult

LARGEST_FULL = 5000  # weights up to which the matrix is formed and decomposed


def sites_of_network(target: Target) -> list[str]:
    """Return the sites that are weights of the network.

    Raises:
        NotApplicable: If the model is no network.
    """
    prefix, _ = require(target.model, NetworkWeights).network_module(target.data.d)
    return [name for name in target.slices if name.startswith(f"{prefix}.")]


def has_gauss_newton_matrix(target: Target) -> bool:
    """Return whether the model is a network with unbounded weights and a likelihood of scores."""
    model = target.model
    if not (supports(model, NetworkWeights) and supports(model, LikelihoodOfFunctions)):
        return False
    z = target.origin()
    return all(unbounded(target.slices[name], z) for name in sites_of_network(target))


def unbounded(s: Slice, z: Tensor) -> bool:
    """Return whether a site is its own unconstrained value; z [p] is any point."""
    value = s.of(z)
    moved = torch.stack([value, value - 1.0])
    return torch.equal(s.transform(moved), moved)


def check_size(target: Target) -> None:
    """Raise NotApplicable for a network that is too large for the whole matrix."""
    if target.dim > LARGEST_FULL:
        raise NotApplicable(
            f"at most {LARGEST_FULL:,} weights for structure='full', whose matrix holds the "
            "square of their number",
            f"{target.dim:,}",
            "use structure='kron' or structure='last_layer'",
        )


def full_expansion(target: Target, result: SearchResult) -> Peak:
    """Return the expansion at a mode with the Gauss-Newton matrix plus the prior precision."""
    return expanded(target, result, CurvatureOfRows(target, True).matrix(result.z))


def linearised_at(target: Target, mode: Tensor) -> dict[str, Tensor]:
    """Return the params by which predictions are those of the network linearised at z [p]."""
    slices = target.slices
    return {f"{LINEARISED_AT}.{name}": slices[name].of(mode) for name in sites_of_network(target)}
