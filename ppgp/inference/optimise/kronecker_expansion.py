"""The Laplace approximation of networks by Kronecker factors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...capabilities import NetworkWeights, require
from ...density.target import Target
from ...errors import ImproperPosterior, NotApplicable
from .curvature_of_rows import CurvatureOfRows
from .kronecker_factors import KroneckerFactors, Layer, layers_of
from .network_expansion import has_gauss_newton_matrix, sites_of_network
from .search import SearchResult

SINGULAR = 1e-12  # of the largest eigenvalue of the precision, below which there is no spread


@dataclass(frozen=True)
class LayerSpread:
    """The precision A kron G + prior I of the weights of a layer, by its eigenvectors.

    Attributes:
        layer: The layer.
        by_inputs: The eigenvectors of A, [in, in].
        by_outputs: The eigenvectors of G, [out, out].
        values: The eigenvalues of the precision, [out, in].
    """

    layer: Layer
    by_inputs: Tensor
    by_outputs: Tensor
    values: Tensor


@dataclass(frozen=True)
class KroneckerPeak:
    """A mode of the density of a network, and its expansion by Kronecker factors.

    Attributes:
        mode: The mode, [p].
        log_density: The log density there.
        layers: The spread of the weights of each layer.
        own: The coordinates of the sites of the likelihood.
        root: A square root [q, q] of the covariance of these.
        half_log_det_covariance: Half the log determinant of the covariance.
        steps: Iterations of the search.
        notes: Reasons to doubt the expansion.
        interrupted: Whether Ctrl-C ended the search.
    """

    mode: Tensor
    log_density: float
    layers: tuple[LayerSpread, ...]
    own: list[int]
    root: Tensor
    half_log_det_covariance: float
    steps: int
    notes: tuple[str, ...]
    interrupted: bool

    def spread(self, noise: Tensor) -> Tensor:
        """Return the distances [draw, p] of draws from the mode, given N(0, I) noise [draw, p]."""
        out = torch.empty_like(noise)
        for one in self.layers:
            E = one.layer.of(noise) * one.values.rsqrt()
            one.layer.put(out, one.by_outputs @ E @ one.by_inputs.mT)
        out[:, self.own] = noise[:, self.own] @ self.root.mT
        return out

    def stats(self) -> dict[str, Any]:
        """Return what a posterior records of the spread: nothing."""
        return {}


def check_kron(target: Target) -> None:
    """Check that every weight of the network has Kronecker factors.

    Raises:
        NotApplicable: If one has not, or the model is no network, or its likelihood has no scores.
    """
    sites = sites_of_network(target)
    CurvatureOfRows(target, True)
    if not has_gauss_newton_matrix(target):
        advice = "use NUTS, or a prior such as Normal(0, 1)"
        raise NotApplicable("unbounded weights for structure='kron'", "bounded ones", advice)
    _, network = require(target.model, NetworkWeights).network_module(target.data.d)
    every = sum(1 for _ in network.named_parameters(remove_duplicate=False))
    if every > sum(1 for _ in network.parameters()):
        wanted = "a network whose layers share no weights, for structure='kron'"
        raise NotApplicable(wanted, "shared weights", "use structure='full'")
    slices, layers = target.slices, layers_of(target)
    known = {s.start for layer in layers for s in (layer.weight, layer.bias) if s is not None}
    others = [name for name in sites if slices[name].start not in known]
    if others:
        raise NotApplicable(
            "a network whose weights all belong to Linear and Conv2d layers, for structure='kron'",
            others[0],
            "use structure='full'",
        )


def kronecker_expansion(target: Target, result: SearchResult) -> KroneckerPeak:
    """Return the expansion at a mode, with a Kronecker product per layer and its prior precision.

    Ritter, Botev & Barber (2018). The precision of a layer is A kron G + prior I, which the
    eigenvectors of A and G make diagonal. Layers, and the sites of the likelihood, are taken as
    independent of one another.

    Raises:
        NotApplicable: If the weights of a layer have no normal prior of one variance.
        ImproperPosterior: If the precision of a layer is singular.
    """
    z = result.z
    curvature, layers = CurvatureOfRows(target, True), layers_of(target)
    prior = curvature.prior_diagonal(z)
    factors = KroneckerFactors(curvature, layers).at(z)
    spreads, half_log_det = [], 0.0
    for layer, (A, G) in zip(layers, factors, strict=True):
        delta = None if prior is None else _one_number(layer.of(prior))
        if delta is None:
            raise NotApplicable(
                "a normal prior of one variance for the weights of a layer, for structure='kron'",
                "another prior",
                "use prior=Normal(0, 1), or structure='full'",
            )
        a, by_inputs = torch.linalg.eigh(A)
        g, by_outputs = torch.linalg.eigh(G)
        values = g.clamp_min(0.0)[:, None] * a.clamp_min(0.0) + delta
        if not float(values.min()) > SINGULAR * float(values.max()):
            raise ImproperPosterior(
                "a proper prior of the weights for structure='kron'",
                f"a flat direction in the layer {layer.name or 'of the network'}",
                "pass prior=Normal(0, 1)",
            )
        spreads.append(LayerSpread(layer, by_inputs, by_outputs, values))
        half_log_det -= 0.5 * float(values.log().sum())
    own, notes = curvature.own, list(result.notes)
    precision = curvature.of_likelihood(z)
    if prior is not None:
        precision = precision + torch.diag(prior[own])
    values, vectors = torch.linalg.eigh(precision)
    if bool((values <= 0).any()):
        notes.append(
            "the density at the mode does not curve down in the sites of the likelihood; their "
            "spread is made up and the evidence is not to be used"
        )
        values = values.abs().clamp_min(torch.finfo(values.dtype).tiny)
    half_log_det -= 0.5 * float(values.log().sum())
    return KroneckerPeak(
        mode=z,
        log_density=result.stats["log_density"],
        layers=tuple(spreads),
        own=own,
        root=vectors * values.rsqrt(),
        half_log_det_covariance=half_log_det,
        steps=result.stats["steps"],
        notes=tuple(notes),
        interrupted=result.interrupted,
    )


def _one_number(values: Tensor) -> float | None:
    """Return the number that all values are; None if they differ."""
    first = float(values.flatten()[0])
    return first if bool((values == first).all()) else None
