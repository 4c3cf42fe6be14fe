"""The distribution of y for uncertain functions f, as a weighted mixture over nodes of f."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..numerics import univariate
from .base import hermite

NODES = {1: 64, 2: 24}  # per function, by the number of functions integrated by quadrature
FEWEST = 12  # for more functions


class LatentAverage(dist.TorchDistribution):
    """y given f, averaged over f ~ N(loc, scale^2) by Gauss-Hermite quadrature.

    A likelihood that knows the average over its first function uses it, and nodes serve the others.

    Args:
        loc: [*batch, K], the means of the functions.
        scale: [*batch, K], their standard deviations.
        given: [*batch, P], per parameter of the likelihood its value, or its level where it is
            predicted.
        likelihood: A likelihood with ``at_nodes``, ``_distribution`` and, if ``integrates_f``,
            ``_marginal``.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {
        "loc": constraints.real_vector,
        "scale": constraints.independent(constraints.nonnegative, 1),
        "given": constraints.real_vector,
    }

    def __init__(
        self,
        loc: Tensor,
        scale: Tensor,
        given: Tensor,
        likelihood: Any,
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.scale = torch.broadcast_tensors(loc, scale)
        self.given, self.likelihood = given, likelihood
        super().__init__(self.loc.shape[:-1], torch.Size(), validate_args=False)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> LatentAverage:
        shape = torch.Size(batch_shape)
        loc, scale, given = (
            x.expand(shape + x.shape[-1:]) for x in (self.loc, self.scale, self.given)
        )
        return LatentAverage(loc, scale, given, self.likelihood)

    @property
    def support(self) -> Any:
        """The support of y."""
        return self._given_f(self.loc, self.scale).support

    def _given_f(self, f: Tensor, scale: Tensor) -> Distribution:
        """Return y where the functions are f [..., K], the first with sd scale[..., 0]."""
        p = self.likelihood.at_nodes(f[..., 1:], self.given)
        if self.likelihood.integrates_f:
            return self.likelihood._marginal(p, f[..., 0], scale[..., 0].square())
        return self.likelihood._distribution(p, f[..., 0])

    def _components(self) -> tuple[Distribution, Tensor]:
        """Return the components, batch [node, *batch], and the logs of their weights [node]."""
        held = 1 if self.likelihood.integrates_f else 0
        count = self.loc.shape[-1] - held
        nodes, weights = hermite(NODES.get(count, FEWEST), self.loc)
        points = torch.cartesian_prod(*[nodes] * count).reshape(-1, count)
        each = torch.cartesian_prod(*[weights] * count).reshape(-1, count).prod(-1)
        offsets = points.reshape(-1, *(1,) * len(self.batch_shape), count)
        if held:
            offsets = torch.cat([torch.zeros_like(offsets[..., :1]), offsets], -1)
        return self._given_f(self.loc + self.scale * offsets, self.scale), each.log()

    def _averaged(self, of: Any, value: Tensor) -> Tensor:
        """Return the log of the weighted mean of exp(of(component, value)) over the nodes."""
        components, log_weights = self._components()
        shape = torch.broadcast_shapes(value.shape, self.batch_shape)
        # the axes of ``value`` before those of the batch go after the axis of the nodes
        between = (1,) * (len(shape) - len(self.batch_shape))
        parameters = {
            name: v.reshape(len(v), *between, *v.shape[1:])
            for name, v in univariate.parameters(components).items()
        }
        wide = univariate.rebuilt(components, parameters)
        logs = of(wide, value.expand(shape))
        return torch.logsumexp(logs + log_weights.reshape(-1, *(1,) * len(shape)), 0)

    def log_prob(self, value: Tensor) -> Tensor:
        return self._averaged(univariate.log_prob, value)

    def cdf(self, value: Tensor) -> Tensor:
        return self._averaged(lambda d, y: univariate.cdf(d, y).log(), value).exp()

    @property
    def mean(self) -> Tensor:
        components, log_weights = self._components()
        weights = log_weights.exp().reshape(-1, *(1,) * len(self.batch_shape))
        return (weights * components.mean).sum(0)

    @property
    def variance(self) -> Tensor:
        components, log_weights = self._components()
        weights = log_weights.exp().reshape(-1, *(1,) * len(self.batch_shape))
        apart = (components.mean - self.mean).square()
        return (weights * (components.variance + apart)).sum(0)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            shape = torch.Size(sample_shape)
            f = self.loc + self.scale * torch.randn(shape + self.loc.shape).to(self.loc)
            p = self.likelihood.at_nodes(f[..., 1:], self.given)
            return self.likelihood._distribution(p, f[..., 0]).sample()
