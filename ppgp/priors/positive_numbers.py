"""Priors of positive numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.utils import broadcast_all

from ..errors import SettingError
from .records import Number, Prior, tensor_of


@dataclass(frozen=True)
class LogNormal(Prior):
    """exp of a Normal(loc, scale). Gelman et al. (2013), appendix A.

    A draw is on the scale that the model sees; one of ``InUnitsOfData(LogNormal(...))`` is in the
    units of the data.

    Args:
        loc: The log of the median, a number or a tuple [entries] with one per entry along the last
            axis of the site.
        scale: The standard deviation of the log, likewise; it has no unit.

    Raises:
        SettingError: If a number is not finite, or the scale is not positive.
        UnknownArgument: If an argument has another name.

    Examples:
        A period of about 365, which lies within 10 percent of it with probability 0.95:

        >>> import math
        >>> import torch
        >>> from ppgp import priors
        >>> period = priors.LogNormal(math.log(365.0), math.log(1.1) / 1.96)
        >>> like = torch.zeros((), dtype=torch.float64)
        >>> p = torch.tensor([0.025, 0.5, 0.975], dtype=torch.float64)
        >>> period.distribution(like).icdf(p).round(decimals=1).tolist()
        [331.8, 365.0, 401.5]
    """

    loc: Number = 0.0
    scale: Number = 1.0
    family = dist.LogNormal
    positive = True


@dataclass(frozen=True)
class Gamma(Prior):
    """Gamma with mean shape / rate. Gelman et al. (2013), appendix A.

    A draw is on the scale that the model sees; one of ``InUnitsOfData(Gamma(...))`` is in the units
    of the data.

    Args:
        shape: The shape, without a unit: a number or a tuple [entries] with one per entry along the
            last axis of the site.
        rate: The rate, in 1 / the unit of a draw, likewise.

    Raises:
        SettingError: If a number is not finite and positive.
        UnknownArgument: If an argument has another name.

    Examples:
        The default prior of the degrees of freedom of ``likelihoods.StudentT``, whose tails may be
        heavy or close to normal, and which are below 1 with a probability of half a percent:

        >>> import torch
        >>> from ppgp import likelihoods
        >>> prior = likelihoods.StudentT().df
        >>> prior
        Gamma(shape=2.0, rate=0.1)
        >>> degrees = prior.distribution(torch.zeros((), dtype=torch.float64))
        >>> float(degrees.mean), round(float(degrees.cdf(torch.ones(()))), 3)
        (20.0, 0.005)
    """

    shape: Number
    rate: Number
    family = dist.Gamma
    positive = True


@dataclass(frozen=True)
class InverseGamma(Prior):
    """1 / Gamma(shape, rate). Gelman et al. (2013), appendix A.

    A draw is on the scale that the model sees; one of ``InUnitsOfData(InverseGamma(...))`` is in
    the units of the data.

    Args:
        shape: The shape, without a unit: a number or a tuple [entries] with one per entry along the
            last axis of the site.
        rate: The rate of the gamma variable, in the unit of a draw, likewise.

    Raises:
        SettingError: If a number is not finite and positive.
        UnknownArgument: If an argument has another name.

    Examples:
        A prior of lengthscales that keeps them away from 0, where a Gaussian process follows every
        row. The mean is rate / (shape - 1):

        >>> import torch
        >>> from ppgp import priors
        >>> like = torch.zeros((), dtype=torch.float64)
        >>> inverse = priors.InverseGamma(shape=3.0, rate=2.0).distribution(like)
        >>> log_normal = priors.LogNormal(0.0, 1.0).distribution(like)
        >>> round(float(inverse.mean), 6)
        1.0
        >>> short = torch.tensor(0.1, dtype=torch.float64)
        >>> bool(inverse.cdf(short) < 1e-6), bool(log_normal.cdf(short) > 1e-2)
        (True, True)
    """

    shape: Number
    rate: Number
    family = dist.InverseGamma
    positive = True


@dataclass(frozen=True)
class Exponential(Prior):
    """Exponential with mean 1 / rate. Gelman et al. (2013), appendix A.

    A draw is on the scale that the model sees; one of ``InUnitsOfData(Exponential(...))`` is in the
    units of the data.

    Args:
        rate: The rate, in 1 / the unit of a draw: a number or a tuple [entries] with one per entry
            along the last axis of the site.

    Raises:
        SettingError: If the rate is not finite and positive.
        UnknownArgument: If an argument has another name.

    Examples:
        The penalised complexity prior of a standard deviation (Simpson et al. 2017), of which one
        says that it exceeds 3 with probability 0.01:

        >>> import math
        >>> import torch
        >>> from ppgp import priors
        >>> prior = priors.Exponential(rate=-math.log(0.01) / 3.0)
        >>> sd = prior.distribution(torch.zeros((), dtype=torch.float64))
        >>> round(1 - float(sd.cdf(torch.tensor(3.0, dtype=torch.float64))), 4)
        0.01
    """

    rate: Number = 1.0
    family = dist.Exponential
    positive = True


@dataclass(frozen=True)
class HalfNormal(Prior):
    """The absolute value of a Normal(0, scale).

    It is the limit, for many degrees of freedom, of the half-t family of Gelman (2006). A draw is
    on the scale that the model sees; one of ``InUnitsOfData(HalfNormal(...))`` is in the units of
    the data.

    Args:
        scale: The scale, in the unit of a draw: a number or a tuple [entries] with one per entry
            along the last axis of the site.

    Raises:
        SettingError: If the scale is not finite and positive.
        UnknownArgument: If an argument has another name.

    Examples:
        A standard deviation that is below 1.96 scales with probability 0.95:

        >>> import torch
        >>> from ppgp import priors
        >>> sd = priors.HalfNormal(2.0).distribution(torch.zeros((), dtype=torch.float64))
        >>> round(float(sd.icdf(torch.tensor(0.95, dtype=torch.float64))), 2)
        3.92
    """

    scale: Number = 1.0
    family = dist.HalfNormal
    positive = True


@dataclass(frozen=True)
class HalfCauchy(Prior):
    """The absolute value of a Cauchy(0, scale). Gelman (2006).

    Its tail is so heavy that it has no mean. A draw is on the scale that the model sees; one of
    ``InUnitsOfData(HalfCauchy(...))`` is in the units of the data.

    Args:
        scale: The median, in the unit of a draw: a number or a tuple [entries] with one per entry
            along the last axis of the site.

    Raises:
        SettingError: If the scale is not finite and positive.
        UnknownArgument: If an argument has another name.

    Examples:
        The median is the scale, and 10 scales are exceeded with a probability of 6 percent; under a
        half-normal prior they are out of reach:

        >>> import torch
        >>> from ppgp import priors
        >>> like = torch.zeros((), dtype=torch.float64)
        >>> values = torch.tensor([2.0, 20.0], dtype=torch.float64)
        >>> below = priors.HalfCauchy(2.0).distribution(like).cdf(values)
        >>> below.round(decimals=3).tolist()
        [0.5, 0.937]
        >>> bool(priors.HalfNormal(2.0).distribution(like).cdf(values)[1] == 1)
        True
    """

    scale: Number = 1.0
    family = dist.HalfCauchy
    positive = True


@dataclass(frozen=True)
class Dirichlet(Prior):
    """Symmetric Dirichlet of proportions [K] that sum to 1. Gelman et al. (2013), appendix A.

    The ``Site`` has the number of proportions. They have no unit: each is a probability.

    Args:
        concentration: One number for all proportions; 1 is uniform, and more brings them closer to
            1 / K.

    Raises:
        SettingError: If the concentration is not one finite and positive number.
        UnknownArgument: If an argument has another name.

    Examples:
        As the prior of the shares of K ordered classes it counts as ``concentration`` rows in each
        of them: the posterior mean of the shares is (n_k + concentration) / (n + K concentration).
        With two classes the mode of the cutpoint gives the same shares, here of 2 and 1 rows
        (2 + 3) / 9 and (1 + 3) / 9:

        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> likelihood = likelihoods.Ordinal(cutpoints=priors.Dirichlet(3.0))
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [0, 0, 1])
        >>> model = models.GLM(likelihood, weight=0.0)
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> posterior.predict([[0.0]]).probabilities.round(decimals=3).tolist()
        [[0.556, 0.444]]
    """

    concentration: float = 1.0
    positive = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.concentration, tuple):
            got = repr(self.concentration)
            raise SettingError("one number as concentration of Dirichlet", got, "change it")

    def distribution(self, like: Tensor, size: int = 2) -> TorchDistributionMixin:
        return dist.Dirichlet(tensor_of(self.concentration, like).expand(size).clone())


class LogUniformDistribution(dist.TorchDistribution):
    """exp of a uniform variable: density 1 / (x log(high / low)) for low <= x <= high.

    Hamming (1970).

    Args:
        low: The smallest value, above 0, [*batch].
        high: The largest value, [*batch].
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {"low": constraints.positive, "high": constraints.positive}
    support: Any = constraints.dependent
    has_rsample = True

    def __init__(self, low: Tensor, high: Tensor, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        self.support = constraints.interval(self.low, self.high)
        super().__init__(self.low.shape, validate_args=validate_args)

    @property
    def _range(self) -> Tensor:
        return (self.high / self.low).log()

    @property
    def mean(self) -> Tensor:
        return (self.high - self.low) / self._range

    @property
    def variance(self) -> Tensor:
        return (self.high.square() - self.low.square()) / (2 * self._range) - self.mean.square()

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Any:
        """Return this distribution with another batch shape."""
        shape = torch.Size(batch_shape)
        return LogUniformDistribution(
            self.low.expand(shape), self.high.expand(shape), validate_args=False
        )

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw by the inverse of the distribution function."""
        shape = torch.Size(sample_shape) + self.batch_shape
        u = torch.rand(shape, dtype=self.low.dtype, device=self.low.device)
        drawn = (self.low.log() + u * self._range).exp()
        return torch.maximum(torch.minimum(drawn, self.high), self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density; -inf outside the support."""
        inside = (value >= self.low) & (value <= self.high)
        safe = torch.where(inside, value, self.low)
        density = -safe.log() - self._range.log()
        return torch.where(inside, density, torch.full_like(density, -torch.inf))

    def cdf(self, value: Tensor) -> Tensor:
        """Return P(X <= value)."""
        return ((value.clamp_min(1e-300) / self.low).log() / self._range).clamp(0.0, 1.0)

    def icdf(self, value: Tensor) -> Tensor:
        """Return the quantile at a probability."""
        return (self.low.log() + value * self._range).exp()


@dataclass(frozen=True)
class LogUniform(Prior):
    """exp of a Uniform(log(low), log(high)), with 0 < low < high: no magnitude is preferred.

    Hamming (1970). A draw is on the scale that the model sees; one of
    ``InUnitsOfData(LogUniform(...))`` is in the units of the data.

    Args:
        low: The lower bound, a number or a tuple [entries] with one per entry along the last axis
            of the site.
        high: The upper bound, likewise.

    Raises:
        SettingError: If a number is not finite, or 0 < low < high does not hold.
        UnknownArgument: If an argument has another name.

    Examples:
        Each of four powers of 10 has the probability 1 / 4:

        >>> import torch
        >>> from ppgp import priors
        >>> prior = priors.LogUniform(0.01, 100.0)
        >>> ends = torch.tensor([0.01, 0.1, 1.0, 10.0, 100.0], dtype=torch.float64)
        >>> below = prior.distribution(torch.zeros((), dtype=torch.float64)).cdf(ends)
        >>> below.diff().round(decimals=6).tolist()
        [0.25, 0.25, 0.25, 0.25]
    """

    low: Number
    high: Number
    family = LogUniformDistribution
    positive = True

    def __post_init__(self) -> None:
        super().__post_init__()
        like = torch.zeros((), dtype=torch.float64)
        low, high = tensor_of(self.low, like), tensor_of(self.high, like)
        if not bool(((low > 0) & (low < high)).all()):
            got = f"low={self.low}, high={self.high}"
            raise SettingError("0 < low < high in LogUniform", got, "swap or widen them")
