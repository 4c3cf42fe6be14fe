"""The Bernoulli likelihood of two classes."""

from __future__ import annotations

from dataclasses import dataclass

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset
from ..errors import UnknownName
from ..numerics.logistic_normal import expected_softplus, log_odds
from .base import Likelihood, Theta, root
from .target_checks import check_codes

LINKS = ("logit", "probit")


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """y ~ Bernoulli(g(f)), y in {0, 1}. Rasmussen & Williams (2006), section 3.3.

    Args:
        link: "logit" (g is the sigmoid) or "probit" (g is the normal cdf, whose average over f has
            a closed form).

    Raises:
        UnknownName: If the link is neither.
    """

    link: str = "logit"
    scales = "X"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.link not in LINKS:
            raise UnknownName("link", self.link, LINKS)

    def prepare(self, data: Dataset) -> Bernoulli:
        """Return this likelihood.

        Raises:
            DataError: If a target is neither 0 nor 1.
        """
        check_codes(data, 2)
        return self

    def distribution(self, theta: Theta, f: Tensor) -> Distribution:
        if self.link == "probit":
            f = _logit_of_probit(f)
        return dist.Bernoulli(logits=f)

    def marginal(self, theta: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        if self.link == "probit":  # equation 3.82
            return dist.Bernoulli(logits=_logit_of_probit(mean / (1 + variance).sqrt()))
        return dist.Bernoulli(logits=log_odds(mean, root(variance).square()))

    def expected(self, theta: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        """Return E log p(y | f).

        For "logit" the error is at most 2e-8, however uncertain f is. For "probit" it is computed
        by Gauss-Hermite quadrature, with errors of 4e-6, .004, .35 and 7.5 where the sd of f is 2,
        5, 20 and 100.
        """
        if self.link == "probit":
            return super().expected(theta, mean, variance, y)
        return -expected_softplus((1 - 2 * y) * mean, variance)


def _logit_of_probit(f: Tensor) -> Tensor:
    """Return log ndtr(f) - log ndtr(-f), which keeps full precision in the tails."""
    return torch.special.log_ndtr(f) - torch.special.log_ndtr(-f)
