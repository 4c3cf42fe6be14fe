"""Priors of numbers of either sign, and the flat prior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions import constraints

from ..display.overrides import computed
from ..errors import SettingError
from .records import Number, Prior, entries, finite_numbers, tensor_of, with_plain_numbers


@dataclass(frozen=True)
class Normal(Prior):
    """Normal with mean ``loc`` and standard deviation ``scale``. Gelman et al. (2013), appendix A.

    Its numbers are on the scale that the model sees; those of ``InUnitsOfData(Normal(...))`` are in
    the units of the data.

    Args:
        loc: The mean, a number or a tuple [entries] with one per entry along the last axis of the
            site.
        scale: The standard deviation, likewise.

    Raises:
        SettingError: If a number is not finite, or the standard deviation is not positive.
        UnknownArgument: If an argument has another name.

    Examples:
        As the prior of a weight it is the penalty of ridge regression. Here x'x is 25, x'y is 50,
        and the mode is 50 / (25 + noise / scale^2):

        >>> import ppgp
        >>> from ppgp import inference, models, priors
        >>> data = ppgp.Dataset([[1.0], [2.0], [2.0], [4.0]], [2.0, 4.0, 4.0, 8.0])
        >>> def mode(prior):
        ...     model = models.LinearRegression(weight=prior, bias=0.0, noise=25.0)
        ...     how = inference.MAP()
        ...     posterior = ppgp.fit(model, data, how, progress=False, standardise=False)
        ...     return round(float(posterior.draws_in("data")["weight"]), 3)
        >>> mode(priors.Normal(0.0, 1.0)), mode(priors.Normal(0.0, 1000.0))
        (1.0, 2.0)
    """

    loc: Number = 0.0
    scale: Number = 1.0
    family = dist.Normal


@dataclass(frozen=True)
class StudentT(Prior):
    """Student's t with ``df`` degrees of freedom, location ``loc`` and scale ``scale``.

    Gelman et al. (2013), appendix A. Its numbers are on the scale that the model sees; those of
    ``InUnitsOfData(StudentT(...))`` are in the units of the data.

    Args:
        df: The degrees of freedom, without a unit: a number or a tuple [entries] with one per entry
            along the last axis of the site.
        loc: The median, likewise.
        scale: The scale, likewise.

    Raises:
        SettingError: If a number is not finite, or df or the scale is not positive.
        UnknownArgument: If an argument has another name.

    Examples:
        A weight that the data put at 10, with a standard error of 1: a normal prior of the same
        scale takes half of it, and the tails of Student's t leave most of it.

        >>> import ppgp
        >>> from ppgp import inference, models, priors
        >>> data = ppgp.Dataset([[1.0], [1.0], [1.0], [1.0]], [10.0, 10.0, 10.0, 10.0])
        >>> def mode(prior):
        ...     model = models.LinearRegression(weight=prior, bias=0.0, noise=4.0)
        ...     how = inference.MAP()
        ...     posterior = ppgp.fit(model, data, how, progress=False, standardise=False)
        ...     return round(float(posterior.draws_in("data")["weight"]), 2)
        >>> mode(priors.Normal(0.0, 1.0)), mode(priors.StudentT(3.0, 0.0, 1.0))
        (5.0, 9.6)
    """

    df: Number = 3.0
    loc: Number = 0.0
    scale: Number = 1.0
    family = dist.StudentT


@dataclass(frozen=True)
class Uniform(Prior):
    """Uniform between ``low`` and ``high``. Gelman et al. (2013), appendix A.

    A draw is on the scale that the model sees; one of ``InUnitsOfData(Uniform(...))`` is in the
    units of the data.

    Args:
        low: The lower bound, a number or a tuple [entries] with one per entry along the last axis
            of the site. From 0 on, positive quantities may have the prior.
        high: The upper bound, likewise.

    Raises:
        SettingError: If a number is not finite, or ``low`` is not below ``high``.
        UnknownArgument: If an argument has another name.

    Examples:
        A search stays between the bounds. Least squares is 10 here:

        >>> import ppgp
        >>> from ppgp import inference, models, priors
        >>> data = ppgp.Dataset([[1.0], [1.0], [1.0], [1.0]], [10.0, 10.0, 10.0, 10.0])
        >>> bounded = priors.Uniform(-1.0, 3.0)
        >>> model = models.LinearRegression(weight=bounded, bias=0.0, noise=4.0)
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False, standardise=False)
        >>> round(float(posterior.draws_in("data")["weight"]), 1)
        3.0
    """

    low: Number
    high: Number
    family = dist.Uniform

    def __post_init__(self) -> None:
        super().__post_init__()
        like = torch.zeros((), dtype=torch.float64)
        low, high = tensor_of(self.low, like), tensor_of(self.high, like)
        if not bool((low < high).all()):
            got = f"low={self.low}, high={self.high}"
            raise SettingError("low < high in Uniform", got, "swap or widen them")

    def _positive(self) -> bool:
        return min(entries(self.low)) >= 0

    positive = computed(_positive)


@dataclass(frozen=True)
class Flat(Prior):
    """A flat prior: log density 0 on the support of the site, so that MAP is maximum likelihood.

    The posterior is proper only if the data make it so: Gelman et al. (2013), section 2.8.

    Args:
        start: The value that a draw returns, which is the starting value of an optimiser: a number
            or a tuple [entries], on the scale that the model sees, or in the units of the data
            inside ``InUnitsOfData``; by default 1 on positive sites and 0 elsewhere.

    Raises:
        SettingError: If the start is not a finite number.
        UnknownArgument: If an argument has another name.

    Examples:
        Least squares, which a normal prior shrinks:

        >>> import ppgp
        >>> from ppgp import inference, models, priors
        >>> data = ppgp.Dataset([[1.0], [1.0], [1.0], [1.0]], [9.0, 10.0, 10.0, 11.0])
        >>> def mode(prior):
        ...     model = models.LinearRegression(weight=prior, bias=0.0, noise=4.0)
        ...     how = inference.MAP()
        ...     posterior = ppgp.fit(model, data, how, progress=False, standardise=False)
        ...     return round(float(posterior.draws_in("data")["weight"]), 3)
        >>> mode(priors.Flat()), mode(priors.Normal(0.0, 1.0))
        (10.0, 5.0)
    """

    start: Number | None = None

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        if self.start is not None and not finite_numbers(self.start):
            raise SettingError("a finite number as start of Flat", repr(self.start), "change it")

    def distribution(self, like: Tensor, positive: bool = False) -> TorchDistributionMixin:
        start, support = 0.0, constraints.real
        if positive:
            start, support = 1.0, constraints.positive
        if self.start is not None:
            start = self.start
        return FlatDistribution(tensor_of(start, like), support)


class FlatDistribution(dist.TorchDistribution):
    """Log density 0 on its support; every draw is the starting value.

    Unlike Pyro's ImproperUniform it can be drawn from.
    """

    arg_constraints = {}  # type: ignore[assignment] # Pyro annotates a property
    has_rsample = True
    improper = True  # not a probability distribution: its draws are starting values

    def __init__(self, start: Tensor, support: constraints.Constraint) -> None:
        self.start, self._support = start, support
        super().__init__(batch_shape=start.shape, validate_args=False)

    @property
    def support(self) -> constraints.Constraint:  # type: ignore[override] # fixed in Pyro
        return self._support

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> FlatDistribution:
        """Return this distribution with another batch shape."""
        return FlatDistribution(self.start.expand(torch.Size(batch_shape)), self._support)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Return the starting value, repeated."""
        return self.start.expand(torch.Size(sample_shape) + self.batch_shape).clone()

    def log_prob(self, value: Tensor) -> Tensor:
        """Return 0."""
        return torch.zeros_like(value)
