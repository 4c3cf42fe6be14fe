"""Gaussian guides over z in R^p, trained on Target's compiled gradient: what the autoguides "normal" and "multivariate_normal" are.

z = origin + root w,  w = loc + exp(log_scale) * (T e),  e ~ N(0, I),  T unit lower triangular (the identity for mean field).
The root is fixed: an optimiser sees w, in which a posterior near its Laplace approximation is near N(0, I).
The gradient is pathwise with the score of the guide left out ("sticking the landing", Roeder, Wu & Duvenaud 2017):
d/dw [log p - log q] carried back to the parameters, unbiased, and without variance where q equals p.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..linalg import LOG_2PI
from ..target import Target


class GaussianGuide:
    """The parameters, their gradients, and draws. ``correlated``: full covariance, else a diagonal one (root diagonal too)."""

    def __init__(self, origin: Tensor, root: Tensor, correlated: bool) -> None:
        self.origin, self.root, self.correlated = origin, root, correlated
        self.log_det_root = float(torch.linalg.slogdet(root).logabsdet)
        self.loc, self.log_scale = torch.zeros_like(origin), torch.zeros_like(origin)
        self.lower = torch.zeros_like(root) if correlated else None

    def parameters(self) -> list[Tensor]:
        return [self.loc, self.log_scale] + ([self.lower] if self.lower is not None else [])

    def _mixed(self, e: Tensor) -> Tensor:
        return e if self.lower is None else e + e @ self.lower.mT

    def draw(self, e: Tensor) -> Tensor:
        """z [..., p] from standard normal e [..., p]."""
        return self.origin + (self.loc + self.log_scale.exp() * self._mixed(e)) @ self.root.mT

    def log_prob(self, e: Tensor) -> Tensor:
        """log q(draw(e)), [...]."""
        return -0.5 * e.square().sum(-1) - self.log_scale.sum() - self.log_det_root - 0.5 * e.shape[-1] * LOG_2PI

    def set_gradients(self, target: Target, e: Tensor, batch: Tensor | None) -> float:
        """Add minus the ELBO's gradient at one draw to ``.grad``; returns that draw's ELBO."""
        scale = self.log_scale.exp()
        mixed = self._mixed(e)
        value, slope = target.value_and_grad(self.origin + self.root @ (self.loc + scale * mixed), batch)
        elbo = float(value - self.log_prob(e))
        whitened = e
        if self.lower is not None:
            unit = self.lower + torch.eye(len(e), dtype=e.dtype, device=e.device)
            whitened = torch.linalg.solve_triangular(unit.mT, e[:, None], upper=True, unitriangular=True)[:, 0]
        force = self.root.mT @ slope + whitened / scale
        gradients = [force, force * scale * mixed]
        if self.lower is not None:
            gradients.append(torch.outer(force * scale, e).tril_(-1))
        for parameter, gradient in zip(self.parameters(), gradients, strict=True):
            g = torch.nan_to_num(-gradient, nan=0.0, posinf=0.0, neginf=0.0)
            parameter.grad = g if parameter.grad is None else parameter.grad + g
        return elbo
