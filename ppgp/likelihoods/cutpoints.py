"""Priors of the cutpoints between ordered classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions import constraints
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor

from ..distributions.ordered_links import LINKS
from ..priors import Dirichlet, FlatDistribution


@dataclass(frozen=True)
class CutpointPrior(Dirichlet):
    """The prior of the cutpoints c_1 < ... < c_(K - 1) of a link.

    Attributes:
        link: The name of the link.
        flat: Whether the log density is 0 wherever the cutpoints are ordered.
    """

    link: str = "logit"
    flat: bool = False
    positive = False

    def __post_init__(self) -> None:
        """Its numbers were checked where the user gave them."""

    def distribution(self, like: Tensor, size: int = 2) -> TorchDistributionMixin:
        like = like.new_ones(size + 1)
        if self.flat:  # classes of equal shares
            below = like.cumsum(0)[:-1] / (size + 1)
            return FlatCutpoints(LINKS[self.link].quantile(below))
        return InducedDirichlet(self.concentration * like, self.link)


class InducedDirichlet(dist.TorchDistribution):
    """The cutpoints of which the shares of the classes at f = 0 have a Dirichlet distribution.

    The density is Dir(F(c_1), F(c_2) - F(c_1), ...; concentration) prod_k F'(c_k). Betancourt
    (2019), section 2.2.

    Args:
        concentration: [*batch, K], of the classes.
        link: The name of the link F.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {"concentration": constraints.independent(constraints.positive, 1)}
    support: Any = constraints.ordered_vector
    has_rsample = False

    def __init__(
        self, concentration: Tensor, link: str = "logit", validate_args: bool | None = None
    ) -> None:
        self.concentration, self.link = concentration, link
        event = torch.Size([concentration.shape[-1] - 1])
        super().__init__(concentration.shape[:-1], event, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> InducedDirichlet:
        shape = torch.Size(batch_shape) + self.concentration.shape[-1:]
        return InducedDirichlet(self.concentration.expand(shape), self.link, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        link, a = LINKS[self.link], self.concentration
        log_shares = link.log_masses(value[..., None])[..., 0]
        constant = torch.lgamma(a.sum(-1)) - torch.lgamma(a).sum(-1)
        return ((a - 1) * log_shares).sum(-1) + constant + link.log_pdf(value).sum(-1)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        with torch.no_grad():
            shares = dist.Dirichlet(self.concentration).sample(torch.Size(sample_shape))
            below = shares.cumsum(-1)[..., :-1]
            eps = torch.finfo(below.dtype).eps
            return LINKS[self.link].quantile(below.clamp(eps, 1 - eps))


class FlatCutpoints(FlatDistribution):
    """Log density 0 where the cutpoints are ordered; a draw is the start of a search.

    Args:
        start: [*batch, K - 1], increasing.
    """

    def __init__(self, start: Tensor) -> None:
        self.start, self._support = start, constraints.ordered_vector
        dist.TorchDistribution.__init__(
            self, start.shape[:-1], start.shape[-1:], validate_args=False
        )

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> FlatCutpoints:
        return FlatCutpoints(self.start.expand(torch.Size(batch_shape) + self.event_shape))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        shape = torch.Size(sample_shape) + self.batch_shape + self.event_shape
        return self.start.expand(shape).clone()

    def log_prob(self, value: Tensor) -> Tensor:
        return torch.zeros_like(value[..., 0])
