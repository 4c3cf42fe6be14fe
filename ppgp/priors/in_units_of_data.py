"""A prior in the units of the data, instead of the scale that the model sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor

from ..display.overrides import computed
from ..errors import SettingError
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
        prior: The prior. Its numbers may be tuples [entries], as elsewhere.

    Raises:
        SettingError: If it is not given a prior. ``fit`` raises it if no prior of this library is
            its equivalent on the standardised scale.
        UnknownArgument: If an argument has another name.

    Examples:
        A noise of about 9 in the units of y squared. The variance of y is 9 too, so that the median
        is 1 on the standardised scale:

        >>> import math
        >>> import ppgp
        >>> from ppgp import inference, likelihoods, models, priors
        >>> noise = priors.InUnitsOfData(priors.LogNormal(math.log(9.0), 0.5))
        >>> model = models.GLM(likelihoods.Gaussian(noise=noise))
        >>> data = ppgp.Dataset([[0.0], [1.0], [0.0], [1.0]], [-3.0, -3.0, 3.0, 3.0])
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> prior = posterior.model.likelihood.noise  # of the model, on the standardised scale
        >>> type(prior).__name__, round(prior.loc, 6), prior.scale
        ('LogNormal', 0.0, 0.5)
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
