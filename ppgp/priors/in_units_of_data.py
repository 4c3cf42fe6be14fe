"""A prior in the units of the data, instead of the scale that the model sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor

from ..errors import SettingError
from ..overrides import computed
from .from_distribution import with_plain_fields
from .records import Prior, finite_numbers

__all__ = ["InUnitsOfData", "bare"]


@dataclass(frozen=True)
class InUnitsOfData(Prior):
    """A prior in the units of the data, instead of the scale that the model sees.

    ``Periodic(period=InUnitsOfData(LogNormal(math.log(365.0), 0.1)))`` is a period of about 365 in
    the units of X. ``fit`` converts the prior to the scale of the model. A program that is run
    without ``fit`` has a single scale, and uses the prior as it is written.

    Args:
        prior: The prior.

    Raises:
        SettingError: If it is not given a prior.
    """

    prior: Any

    def __post_init__(self) -> None:
        with_plain_fields(self)
        given = self.prior
        if isinstance(given, InUnitsOfData):
            got = f"InUnitsOfData({given!r})"
            raise SettingError("a prior in InUnitsOfData once", got, "leave one of them out")
        if not isinstance(given, Prior):
            do = "for example InUnitsOfData(LogNormal(0, 1))"
            if finite_numbers(given):
                do = "pass a number by itself: it is in the units of the data already"
            raise SettingError("a prior in InUnitsOfData", repr(given), do)

    def _positive(self) -> bool:
        return self.prior.positive

    positive = computed(_positive)

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return self.prior.distribution(like)


def bare(prior: Any) -> Any:
    """Return the prior without ``InUnitsOfData`` around it."""
    return prior.prior if isinstance(prior, InUnitsOfData) else prior
