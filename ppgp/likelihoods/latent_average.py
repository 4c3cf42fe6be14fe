"""The distribution of y for uncertain functions f, averaged over them by quadrature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..distributions import univariate
from ..numerics.gaussian_nodes import Peak, find_peak
from ..numerics.shapes import broadcast_shapes
from .base import hermite, product_nodes

NODES = 64  # over one function, of moments
OTHERS = {1: 24}  # over each further one, by their number
FEWEST = 12  # for more of them
ENDS = 4.0  # sds of a further function, at which the likelihood may be narrowest
REACH = 9.5  # sds, of moments of a bounded y
CLOSE, MOST = 2.0, 8.0  # the sd of f from which there are more nodes, and how many times as many
NEGLIGIBLE = 1e-10  # weights of nodes that are left out
BUDGET = 4_000_000  # numbers in a temporary


class LatentAverage(dist.TorchDistribution):
    """y given f, averaged over f ~ N(loc, scale^2) by quadrature.

    A likelihood that knows the average over its first function uses it. Of the others, the first
    has nodes around the peak of the density of each value, which may be much narrower than its
    distribution; the rest have Gauss-Hermite nodes, also all of them in moments.

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

    def _at(self, z: Tensor, others: Tensor) -> Distribution:
        """Return y given the functions that are averaged, in sds from their means.

        Args:
            z: The first of them, [node, 1 or M, *batch].
            others: The others, [M, K'].
        """
        batch = broadcast_shapes(z.shape, (len(others), *(1,) * (z.ndim - 2)))
        offsets = [z.expand(batch)[..., None]]
        if self.likelihood.integrates_f:
            offsets.insert(0, torch.zeros_like(offsets[0]))
        columns = others.reshape(len(others), *(1,) * (z.ndim - 2), -1)
        offsets.append(columns.expand(*batch, -1))
        return self._given_f(self.loc + self.scale * torch.cat(offsets, -1), self.scale)

    def _others(self) -> tuple[Tensor, Tensor]:
        """Return nodes [M, K'] and weights of the functions after the first that is averaged."""
        count = self.loc.shape[-1] - 1
        if self.likelihood.integrates_f:
            count -= 1
        points, weights = product_nodes(OTHERS.get(count, FEWEST), count, self.loc)
        kept = weights > NEGLIGIBLE
        return points[kept], weights[kept]

    def _peak(self, value: Tensor, shape: torch.Size, others: Tensor) -> Peak:
        """Return where the density of values has its peak in z, per element of a shape."""
        count = others.shape[-1]
        corners = torch.cat([torch.eye(count), -torch.eye(count), torch.zeros(1, count)])
        corners = ENDS * corners.to(others)
        with torch.no_grad():
            peak = find_peak(
                lambda z: univariate.log_prob(self._at(z, corners), value),
                self.loc.new_zeros(len(corners), *shape),
            )
        return peak.narrowest()

    def _nodes_needed(self, others: int) -> float:
        """Return by what to multiply the number of nodes, given the number of further functions.

        Three functions have so few nodes each that as many digits are not to be had. The
        probability of the least or the largest count falls from 1 to 0 within a few units of f,
        away from the peak, so that nodes must be that close everywhere.
        """
        times = 0.5 if others > 1 else 1.0
        return times * self._wider() if self.support.is_discrete else times

    def _wider(self) -> float:
        """Return how many times as many nodes the widest function that is averaged needs."""
        sd = self.scale[..., int(self.likelihood.integrates_f)]
        return min(max(float(sd.max()) / CLOSE, 1.0), MOST) if sd.numel() else 1.0

    def _nodes_of_moments(self) -> tuple[Tensor, Tensor]:
        """Return nodes and weights [node] of averages of moments.

        Those of a bounded y level off within a few units of f, where the trapezoidal rule is
        accurate; others may grow like exp(f), where that of Gauss and Hermite is.
        """
        if getattr(self.support, "upper_bound", None) is None:
            return hermite(NODES, self.loc)
        z = torch.linspace(-REACH, REACH, int(NODES * self._wider()), dtype=torch.float64)
        z = z.to(self.loc)
        return z, torch.softmax(-0.5 * z.square(), 0)

    def _averaged(self, of: Any, value: Tensor, over_all: bool) -> Tensor:
        """Return the log of the mean of exp(of(distribution given the functions, value)).

        Args:
            of: A function of which the density or the cdf is the exponential.
            value: [..., *batch].
            over_all: Whether it has no limit of 0 on either side of the peak of the density.
        """
        shape = broadcast_shapes(value.shape, self.batch_shape)
        value = value.expand(shape)
        others, weights = self._others()
        times = self._nodes_needed(others.shape[-1])
        z, log_weights = self._peak(value, shape, others).nodes(over_all, times)
        size = max(1, BUDGET // max(1, z.numel()))
        parts = []
        for some, share in zip(others.split(size), weights.split(size), strict=True):
            logs = of(self._at(z[:, None], some), value) + log_weights[:, None]
            column = share.log().reshape(-1, *(1,) * len(shape))
            parts.append(torch.logsumexp(logs + column, (0, 1)))
        return torch.logsumexp(torch.stack(parts), 0)

    def log_prob(self, value: Tensor) -> Tensor:
        return self._averaged(univariate.log_prob, value, False)

    def cdf(self, value: Tensor) -> Tensor:
        if self.support.is_discrete:
            value = value.floor()
        return self._averaged(lambda d, y: univariate.cdf(d, y).log(), value, True).exp()

    def _mean_of(self, of: Any) -> Tensor:
        """Return the mean of a moment of the distribution given the functions."""
        others, weights = self._others()
        nodes, own = self._nodes_of_moments()
        z = nodes.reshape(-1, *(1,) * (1 + len(self.batch_shape)))
        size = max(1, BUDGET // (len(nodes) * max(1, self.batch_shape.numel())))
        total = torch.zeros(self.batch_shape).to(self.loc)
        for some, share in zip(others.split(size), weights.split(size), strict=True):
            weight = (own[:, None] * share).reshape(*z.shape[:1], -1, *z.shape[2:])
            total = total + (weight * of(self._at(z, some))).sum((0, 1))
        return total

    @property
    def mean(self) -> Tensor:
        return self._mean_of(lambda d: d.mean)

    @property
    def variance(self) -> Tensor:
        mean = self.mean
        return self._mean_of(lambda d: d.variance + (d.mean - mean).square())

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            shape = torch.Size(sample_shape)
            f = self.loc + self.scale * torch.randn(shape + self.loc.shape).to(self.loc)
            p = self.likelihood.at_nodes(f[..., 1:], self.given)
            return self.likelihood._distribution(p, f[..., 0]).sample()
