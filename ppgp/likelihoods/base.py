"""The interface of every likelihood: what stands between a latent Gaussian f and y, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset
from ..errors import Renamed, take_renamed_method
from ..priors import Site, moved, value_of, with_plain_numbers
from ..priors.units import power as to_power

Theta = Mapping[str, Tensor]


class Likelihood:
    """p(y given f), frozen: priors and structure. A new one gives ``distribution`` and ``marginal``, and ``expected`` where it is closed.

    ``theta`` is ``{site: [*draw, *event]}``; f, mean and variance are [*draw, n], or [*draw, K, n] for K latent functions.
    """

    #: what may be standardised, as in ``Model``
    scales: ClassVar[str] = "Xy"
    #: site -> power of y in its unit; what is not named has no unit
    dimensions: ClassVar[Mapping[str, float]] = {}
    #: of Gauss-Hermite in ``expected``; a law narrower than f is uncertain needs more
    nodes: ClassVar[int] = 20

    def __post_init__(self) -> None:
        """Called first by a ``__post_init__`` of one's own."""
        with_plain_numbers(self)

    @property
    def latents(self) -> int:
        """How many latent functions a row has."""
        return 1

    def sites(self) -> dict[str, Site]:
        return {}

    def in_units(self, y_sd: float) -> Likelihood:
        """This recipe for y / y_sd: a number, and a prior inside ``InUnitsOfData``, is in the units of y."""
        own = {
            name: moved(getattr(self, name), to_power(y_sd, -power), what=name)
            for name, power in self._powers().items()
        }
        changed = {name: value for name, value in own.items() if value is not getattr(self, name)}
        return replace(self, **changed) if changed else self  # type: ignore[type-var]

    def factors(self, y_sd: float) -> dict[str, float]:
        """{site: what its draws are multiplied by to be in the units of y}."""
        return {name: to_power(y_sd, power) for name, power in self._powers().items()}

    def _powers(self) -> dict[str, float]:
        return {name: self.dimensions.get(name, 0) for name in self.sites()}

    def prepare(self, data: Dataset) -> Likelihood:
        """This recipe made ready for these targets; raises where they do not fit it."""
        return self

    law = Renamed("distribution")

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        take_renamed_method(cls, "law", "distribution")

    def distribution(self, theta: Theta, f: Tensor) -> Distribution:
        """The law of y given f, batch [*draw, n]."""
        raise NotImplementedError

    def marginal(self, theta: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        """The law of y where f ~ N(mean, variance), batch [*draw, n]."""
        raise NotImplementedError

    def expected(self, theta: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        """E log p(y given f) over f ~ N(mean, variance), [*draw, n]: by Gauss-Hermite unless closed."""
        nodes, weights = hermite(self.nodes, mean)
        column = (-1,) + (1,) * mean.ndim
        f = mean + root(variance) * nodes.reshape(column)
        return (self.distribution(theta, f).log_prob(y) * weights.reshape(column)).sum(0)

    def value(self, theta: Theta, name: str, like: Tensor) -> Tensor:
        """theta[name] with an axis for the rows, or the number that this recipe fixes the field ``name`` to."""
        return value_of(theta, name, getattr(self, name), like)[..., None]


def root(variance: Tensor) -> Tensor:
    """The sd of f, its slope finite where f is certain: a linear kernel knows f(0), and one such row would make every slope NaN."""
    return variance.clamp_min(torch.finfo(variance.dtype).eps).sqrt()


@lru_cache(maxsize=8)
def _hermite(count: int) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


def hermite(count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights [count] of E h(Z), Z ~ N(0, 1)."""
    nodes, weights = _hermite(count)
    return torch.as_tensor(nodes).to(like), torch.as_tensor(weights).to(like)
