"""Predictive distributions that another library gave in part: points, or some quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import constraints

from ..errors import NotApplicable
from ..numerics.shapes import broadcast_shapes

__all__ = ["CountMass", "KnownInPart", "Points", "QuantileFunction"]

QUARTILES = 1.3489795003921634  # interquartile range of N(0, 1)
CLOSE = 1e-9  # probabilities nearer than this are equal


class KnownInPart(dist.TorchDistribution):
    """A distribution of one number per row, batch [1, n], of which not all is known.

    What is not known raises NotApplicable.

    Attributes:
        what: What is known, in words.
        instead: What the user can do about the rest.
    """

    support: Any = constraints.real
    what = ""
    instead = ""

    def unknown(self, wanted: str) -> NoReturn:
        """Raise NotApplicable for a statistic that is not known."""
        raise NotApplicable(f"a predictive distribution with {wanted}", self.what, self.instead)

    @property
    def centre(self) -> Tensor:
        """[n]: the point from which residuals are taken."""
        raise NotImplementedError

    @property
    def spread(self) -> Tensor:
        """[n]: the unit of normalised residuals."""
        self.unknown("a spread")

    @property
    def mean(self) -> Tensor:
        self.unknown("a mean")

    @property
    def variance(self) -> Tensor:
        self.unknown("a variance")

    def quantile(self, p: Tensor) -> Tensor:
        """Return the p-quantile of each row, [..., n]; p is [], [..., n] or [..., 1]."""
        self.unknown("quantiles")

    def cdf(self, value: Any) -> Any:
        self.unknown("a cdf")

    def log_prob(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        self.unknown("a density")

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        self.unknown("samples")


class Points(KnownInPart):
    """One number per row, without a spread.

    Args:
        value: The points [1, n].
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {"value": constraints.real}
    what = "points"
    instead = "use conformal.Absolute() or Signed(), or give Prediction.from_points an sd"

    def __init__(self, value: Tensor, validate_args: bool | None = None) -> None:
        self.value = value
        super().__init__(value.shape, torch.Size(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Points:
        return Points(self.value.expand(torch.Size(batch_shape)), validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.value

    @property
    def centre(self) -> Tensor:
        return self.value[0]


class QuantileFunction(KnownInPart):
    """Some quantiles per row, and straight lines between them.

    Args:
        quantiles: [1, n, k], in increasing order.
        probabilities: [k], or [1, n, k] with equal rows, increasing.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {
        "probabilities": constraints.independent(constraints.unit_interval, 1),
        "quantiles": constraints.real_vector,
    }

    def __init__(
        self, quantiles: Tensor, probabilities: Tensor, validate_args: bool | None = None
    ) -> None:
        self.quantiles, self.probabilities = quantiles, probabilities.expand_as(quantiles)
        super().__init__(quantiles.shape[:-1], torch.Size(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> QuantileFunction:
        shape = (*batch_shape, self.quantiles.shape[-1])
        return QuantileFunction(
            self.quantiles.expand(shape), self.probabilities.expand(shape), validate_args=False
        )

    @property
    def known(self) -> Tensor:
        """The probabilities [k]."""
        return self.probabilities.reshape(-1, self.probabilities.shape[-1])[0]

    @property
    def what(self) -> str:
        """Say at which probabilities the quantiles are known."""
        return f"quantiles at {', '.join(f'{p:g}' for p in self.known.tolist())}"

    @property
    def instead(self) -> str:
        """Say which levels these quantiles have."""
        widest = min(float(self.known[0]), 1 - float(self.known[-1]))
        advice = "use conformal.Quantile() or Prediction.quantile"
        if 0 < widest < 1 / 2:
            advice += f", at a level of {1 - 2 * widest:g} or less"
        return advice

    @property
    def centre(self) -> Tensor:
        """[n]: the median, or the middle of the outermost quantiles if it lies outside them."""
        known = self.known
        if known[0] <= 1 / 2 <= known[-1]:
            return self.quantile(torch.tensor(0.5, dtype=known.dtype))
        return (self.quantiles[0, :, 0] + self.quantiles[0, :, -1]) / 2

    @property
    def spread(self) -> Tensor:
        """[n]: the interquartile range over 1.349, its value for N(0, 1)."""
        quarter = torch.tensor(0.25, dtype=self.known.dtype)
        return (self.quantile(1 - quarter) - self.quantile(quarter)) / QUARTILES

    def quantile(self, p: Tensor) -> Tensor:
        known, each = self.known, self.quantiles[0]
        p = p.to(known)
        outside = (p < known[0] - CLOSE) | (p > known[-1] + CLOSE)
        if bool(outside.any()):
            self.unknown(f"a quantile at {float(p[outside].reshape(-1)[0]):g}")
        p = p.expand(broadcast_shapes(p.shape, each.shape[:1])).contiguous()
        right = torch.searchsorted(known, p).clamp(1, len(known) - 1)
        low, high = known[right - 1], known[right]
        share = ((p - low) / (high - low)).clamp(0.0, 1.0)
        # a probability that rounds to a known one has that quantile, without interpolation
        share = torch.where((p - high).abs() <= CLOSE, torch.ones_like(share), share)
        share = torch.where((p - low).abs() <= CLOSE, torch.zeros_like(share), share)
        rows = torch.arange(len(each), device=each.device)
        return torch.lerp(each[rows, right - 1], each[rows, right], share)


class CountMass(dist.TorchDistribution):
    """The count ``value`` with probability 1; a mixture of these is an empirical distribution.

    Args:
        value: Counts of any shape.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {"value": constraints.real}
    support: Any = constraints.nonnegative_integer

    def __init__(self, value: Tensor, validate_args: bool | None = None) -> None:
        self.value = value
        super().__init__(value.shape, torch.Size(), validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> CountMass:
        return CountMass(self.value.expand(torch.Size(batch_shape)), validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.value

    @property
    def variance(self) -> Tensor:
        return torch.zeros_like(self.value)

    def cdf(self, value: Tensor) -> Tensor:
        return (value >= self.value).to(self.value)

    def log_prob(self, value: Tensor) -> Tensor:
        return torch.log((value == self.value).to(self.value))

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:
        return self.value.expand(torch.Size(sample_shape) + self.value.shape)
