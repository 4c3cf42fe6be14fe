"""The distributions that the models need and that Pyro does not have in this form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from scipy import special
from torch import Tensor
from torch.distributions import constraints

from ..numerics.cholesky import LOG_2PI, cholesky
from ..numerics.gaussian_log_density import (
    gaussian_log_density,
    profile_log_density,
    restricted_log_density,
)
from ..numerics.shapes import broadcast_shapes
from . import standard_normal

__all__ = ["GPMarginal", "NormalMixture", "PoissonLogNormal", "TrendMarginal"]


class GPMarginal(dist.TorchDistribution):
    """N(loc, covariance) over all rows at once, with an explicit gradient of the log density.

    Args:
        loc: [*batch, n], the mean.
        covariance: [*batch, n, n], the covariance, noise included.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {"loc": constraints.real_vector}
    support: Any = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, covariance: Tensor, validate_args: bool | None = None) -> None:
        self.loc, self.covariance_matrix = loc, covariance
        batch = broadcast_shapes(loc.shape[:-1], covariance.shape[:-2])
        super().__init__(batch, loc.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> GPMarginal:
        batch_shape = torch.Size(batch_shape)
        loc = self.loc.expand(batch_shape + self.event_shape)
        covariance = self.covariance_matrix.expand(batch_shape + 2 * self.event_shape)
        return GPMarginal(loc, covariance, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.covariance_matrix.diagonal(dim1=-2, dim2=-1)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = self._extended_shape(torch.Size(sample_shape))
        noise = torch.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        L = cholesky(self.covariance_matrix, "covariance of the prior draw")
        return self.loc + (L @ noise.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        residual = value - self.loc
        return gaussian_log_density(self.covariance_matrix, residual)


class TrendMarginal(GPMarginal):
    """N(loc + F beta, covariance) over all rows, with beta integrated out or maximised.

    The prior of beta is flat.

    The distribution is improper along the columns of F; a sample has beta = 0. The density depends
    on y through contrasts alone (REML), whose distribution is that of such samples whatever beta
    is.

    Args:
        loc: [*batch, n], the mean without the trend.
        covariance: [*batch, n, n], the covariance, noise included.
        F: [n, p], the functions of the trend at the rows, of full rank.
        profile: Whether the density is that at the generalised least-squares estimate of beta, in
            place of the integral. It is then not a probability density of y, but has its maximum at
            the maximum-likelihood estimates.
        validate_args: Whether to check arguments, as in torch.
    """

    def __init__(
        self,
        loc: Tensor,
        covariance: Tensor,
        F: Tensor,
        profile: bool = False,
        validate_args: bool | None = None,
    ) -> None:
        self.F, self.profile = F, profile
        GPMarginal.__init__(self, loc, covariance, validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> TrendMarginal:
        plain = GPMarginal.expand(self, batch_shape)
        return TrendMarginal(
            plain.loc, plain.covariance_matrix, self.F, self.profile, validate_args=False
        )

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        density = profile_log_density if self.profile else restricted_log_density
        return density(self.covariance_matrix, value - self.loc, self.F)


class NormalMixture(dist.TorchDistribution):
    """The mixture of normals sum_k proportion_k N(loc_k, scale_k^2), with a cdf.

    Args:
        proportion: [*batch, K], the weights of the components.
        loc: [*batch, K], their means.
        scale: [*batch, K], their standard deviations.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {
        "proportion": constraints.simplex,
        "loc": constraints.real_vector,
        "scale": constraints.independent(constraints.positive, 1),
    }
    support: Any = constraints.real

    def __init__(
        self, proportion: Tensor, loc: Tensor, scale: Tensor, validate_args: bool | None = None
    ) -> None:
        self.proportion, self.loc, self.scale = torch.broadcast_tensors(proportion, loc, scale)
        super().__init__(self.loc.shape[:-1], torch.Size(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> NormalMixture:
        shape = torch.Size(batch_shape) + self.loc.shape[-1:]
        parts = [x.expand(shape) for x in (self.proportion, self.loc, self.scale)]
        return NormalMixture(*parts, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return (self.proportion * self.loc).sum(-1)

    @property
    def variance(self) -> Tensor:
        within = (self.proportion * self.scale.square()).sum(-1)
        return within + (self.proportion * (self.loc - self.mean[..., None]).square()).sum(-1)

    def component_log_prob(self, value: Tensor) -> Tensor:
        """Return log(proportion_k N(value; loc_k, scale_k^2)), [..., K]."""
        z = (value[..., None] - self.loc) / self.scale
        return self.proportion.log() - self.scale.log() - 0.5 * (z.square() + LOG_2PI)

    def log_prob(self, value: Tensor) -> Tensor:
        return torch.logsumexp(self.component_log_prob(value), -1)

    def cdf(self, value: Tensor) -> Tensor:
        z = (value[..., None] - self.loc) / self.scale
        return (self.proportion * standard_normal.cdf(z)).sum(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            shape = torch.Size(sample_shape)
            k = torch.distributions.Categorical(self.proportion).sample(shape)[..., None]
            loc = self.loc.expand(*k.shape[:-1], -1).gather(-1, k)[..., 0]
            scale = self.scale.expand(*k.shape[:-1], -1).gather(-1, k)[..., 0]
            return loc + scale * torch.randn_like(loc)


class PoissonLogNormal(dist.TorchDistribution):
    """Poisson(exp(f)) with f ~ N(loc, scale^2). Aitchison & Ho (1989).

    The mass function is integrated by Gauss-Hermite quadrature centred on the mode of the
    integrand. The cdf is integrated by the trapezoidal rule, with a spacing below the width of the
    integrand. Nodes placed by the distribution of f alone would leave gaps where rates are large.

    Args:
        loc: [*batch], the mean of f.
        scale: [*batch], the standard deviation of f.

    Attributes:
        REACH: The half-width of the cdf's integral, in standard deviations of f.
        WIDE: The standard deviation of f above which P(Y = 0) has its own quadrature rule.
    """

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.nonnegative}
    support: Any = constraints.nonnegative_integer
    REACH = 8.0
    WIDE = 1.0

    def __init__(self, loc: Tensor, scale: Tensor, validate_args: bool | None = None) -> None:
        self.loc, self.scale = torch.broadcast_tensors(loc, scale)
        super().__init__(self.loc.shape, torch.Size(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> PoissonLogNormal:
        return PoissonLogNormal(
            self.loc.expand(batch_shape), self.scale.expand(batch_shape), validate_args=False
        )

    @property
    def mean(self) -> Tensor:
        return (self.loc + 0.5 * self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        return self.mean + self.mean.square() * torch.expm1(self.scale.square())

    def log_prob(self, value: Tensor) -> Tensor:
        loc, y = torch.broadcast_tensors(self.loc, value)
        tiny = torch.finfo(loc.dtype).tiny
        precision = 1 / self.scale.square().clamp_min(tiny**0.5).expand_as(loc)
        with torch.no_grad():  # the integral does not depend on where the nodes are
            f = (precision * loc + y * (y + 0.5).log()) / (precision + y)
            low, high = torch.minimum(loc, (y + tiny).log()), torch.maximum(loc, (y + tiny).log())
            low = torch.where(y > 0, low, torch.full_like(low, -torch.inf))
            for _ in range(40):
                newton = f + (y - f.exp() - precision * (f - loc)) / (f.exp() + precision)
                f = newton.clamp(low, high)
            width = (f.exp() + precision).rsqrt()
        nodes, weights = (
            torch.as_tensor(a).to(loc) for a in np.polynomial.hermite_e.hermegauss(32)
        )
        x = f[..., None] + width[..., None] * nodes
        inside = (
            y[..., None] * x
            - x.exp()
            - 0.5 * precision[..., None] * (x - loc[..., None]).square()
            + 0.5 * nodes.square()
        )
        total = torch.logsumexp(inside + weights.log(), -1)
        log_mass = total + width.log() + 0.5 * precision.log() - 0.5 * LOG_2PI
        log_mass = log_mass - torch.lgamma(y + 1)
        scale = self.scale.expand_as(loc)
        wide_zero = (y == 0) & (scale > self.WIDE)
        if bool(wide_zero.any()):
            log_zero = self._log_zero(loc[wide_zero], scale[wide_zero])
            log_mass = log_mass.masked_scatter(wide_zero, log_zero)
        return log_mass

    @staticmethod
    def _log_zero(loc: Tensor, scale: Tensor) -> Tensor:
        """Return log P(Y = 0) where f is so uncertain that exp(-exp(f)) is a steep step.

        exp(-exp(f)) is P(t > f) for t the log of a standard exponential variable, so that P(Y = 0)
        is the average of Phi((t - loc) / scale) over t. This integrand is smooth, and the
        trapezoidal rule is exact to rounding.
        """
        t = torch.arange(-30.0, 12.0, 0.25, dtype=loc.dtype, device=loc.device)
        inside = t - t.exp() + torch.special.log_ndtr((t - loc[..., None]) / scale[..., None])
        return torch.logsumexp(inside, -1) + math.log(0.25)

    def cdf(self, value: Tensor) -> Tensor:
        loc, k = torch.broadcast_tensors(self.loc, value.floor())
        scale = self.scale.expand_as(loc)
        # the least width of P(Y <= k given f) as a function of f, where f is likely
        narrowest = (-0.5 * (loc + 2 * scale)).exp().clamp(max=1.0)
        count = int((4 * self.REACH * (scale / narrowest).max()).clamp(64, 4096))
        total = torch.zeros_like(loc)
        grid = torch.linspace(-self.REACH, self.REACH, count, dtype=torch.float64).to(loc)
        weights = torch.exp(-0.5 * grid.square())
        counts = k.clamp_min(0).cpu().numpy()
        for e, weight in zip(grid, weights / weights.sum(), strict=True):
            rate = (loc + scale * e).exp().cpu().numpy()
            total += weight * torch.as_tensor(special.pdtr(counts, rate)).to(loc)
        return torch.where(k < 0, torch.zeros_like(total), total.clamp(0.0, 1.0))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            shape = torch.Size(sample_shape) + self.batch_shape
            f = self.loc + self.scale * torch.randn(
                shape, dtype=self.loc.dtype, device=self.loc.device
            )
            return torch.poisson(f.exp())
