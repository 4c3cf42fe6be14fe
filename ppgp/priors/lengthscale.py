"""The default prior of the lengthscales of kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyro.distributions as dist
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor

from .positive_numbers import LogNormal
from .records import tensor_of


@dataclass(frozen=True)
class Lengthscale(LogNormal):
    """The default prior of lengthscales, LogNormal(loc + log(columns) / 2, scale).

    A single lengthscale for all columns has the median 1 (``columns=1``); each of the d
    lengthscales [d] of ``ARD`` has the median sqrt(d). Both are in standard deviations of a column,
    on the standardised scale.

    Two rows of d standardised columns are sqrt(2 d) apart on average. With a median of 1 in each of
    many columns all rows would be far apart, and the data would have to correct the prior in every
    column; a median of sqrt(d) leaves the distance of two rows, in lengthscales, as it is for one
    column. A single lengthscale is one quantity that few rows determine. Hvarfner, Hellsten & Nardi
    (2024) use the same growth with d. Features of a network (``Deep``) lie in a ball whatever their
    number, so the median is 1 there.

    Args:
        loc: The mean of the logarithm for one column.
        scale: The standard deviation of the logarithm.
        columns: The number d; ``ARD`` sets it.

    Raises:
        SettingError: If a number is not finite, or the scale or the number of columns is not
            positive.
        UnknownArgument: If an argument has another name.

    Examples:
        The median lengthscale of each of four columns is 2:

        >>> import torch
        >>> from ppgp import kernels
        >>> site = kernels.ARD(kernels.RBF()).sites(4)["lengthscale"]
        >>> site.prior
        Lengthscale(loc=0.0, scale=1.0, columns=4)
        >>> half = torch.tensor(0.5, dtype=torch.float64)
        >>> round(float(site.prior.distribution(half).icdf(half)), 6)
        2.0
    """

    columns: int = 1

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        numbers = (self.loc, self.scale, self.columns)
        loc, scale, columns = (tensor_of(each, like) for each in numbers)
        return dist.LogNormal(loc + 0.5 * columns.log(), scale)


def per_column(prior: Any, d: int) -> Any:
    """Return the prior of each of d lengthscales: only ``Lengthscale`` depends on d."""
    return replace(prior, columns=d) if isinstance(prior, Lengthscale) else prior
