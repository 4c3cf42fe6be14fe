"""Laws with a kink at their location, whose second derivatives say nothing there.

Observed sites with such laws are those of absolute errors and of quantiles. Between its kinks the
log density is linear in the location, so that its Hessian is 0, and the mode is at kinks. The
expected information takes the place of minus the Hessian, as in quantile regression.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import pyro.distributions as dist
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.distributions import Independent, Laplace

from .handlers import is_deterministic, is_factor

__all__ = ["InExpectation", "is_kinked", "share_of_information"]


def is_kinked(law: Any) -> bool:
    """Return whether a distribution is that of Laplace or the asymmetric one, maybe masked."""
    while isinstance(law, Independent | dist.MaskedDistribution):
        law = law.base_dist
    return isinstance(law, Laplace | dist.AsymmetricLaplace)


class InExpectation(Messenger):
    """Let observed sites with kinks have minus the expected information as second derivatives.

    Koenker (2005), sections 3.2 and 4.2: the information of the location is the jump of the slope
    at the kink times the density there. The value and the first derivatives of the log density are
    not those of the program.

    Args:
        share: The share of the information of locations that counts.

    Attributes:
        rows: The number of observed values with kinks, of the last run, each as often as masks and
            scales count it.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        self.rows = 0.0

    def __enter__(self) -> InExpectation:
        self.rows = 0.0
        super().__enter__()
        return self

    def _pyro_sample(self, msg: Any) -> None:
        observed = msg["is_observed"] and not is_deterministic(msg) and not is_factor(msg)
        if observed and is_kinked(msg["fn"]):
            self.rows += msg["value"].numel() * _share_that_counts(msg)
            msg["fn"] = _expected(msg["fn"], self.share)


def _share_that_counts(site: Any) -> float:
    """Return the mean of what scales and masks multiply the log density of each value by."""
    weight = torch.as_tensor(site["scale"])
    masks, law = [site["mask"]], site["fn"]
    while isinstance(law, Independent | dist.MaskedDistribution):
        masks.append(getattr(law, "_mask", None))
        law = law.base_dist
    for mask in masks:
        if mask is not None:
            weight = weight * torch.as_tensor(mask)
    return float(weight.double().mean())


def share_of_information(with_kinks: Tensor, without: Tensor, rows: float) -> float:
    """Return what is left of the information of locations that vary as in the posterior.

    A location that is off by N(0, s^2) meets the density at its kink less often: the factor is
    E exp(-abs(N(0, s^2)) / scale). The precision of the Gaussian that is closest to the posterior
    is the average over that Gaussian, by Opper & Archambeau (2009), equation 14. The mean of
    s^2 / scale^2 over the rows is the number of parameters that the rows determine, over their
    number.

    Args:
        with_kinks: [p, p], the second derivatives with all of the information.
        without: [p, p], those with none of it.
        rows: The number of observed values, see ``InExpectation``.
    """
    own = without.double() - with_kinks.double()  # the information of the locations
    determined = torch.linalg.lstsq(-with_kinks.double(), own).solution.trace()
    t = (determined / max(1.0, rows)).clamp(0.0, 1.0).sqrt()
    return float(2 * torch.exp(0.5 * t**2 + torch.special.log_ndtr(-t)))


def _expected(law: Any, share: float) -> Any:
    """Return a distribution whose log density is a parabola in its own parameters."""
    if isinstance(law, Independent):
        return dist.Independent(_expected(law.base_dist, share), law.reinterpreted_batch_ndims)
    if isinstance(law, dist.MaskedDistribution):
        return _expected(law.base_dist, share).mask(law._mask)
    left = right = law.scale
    if isinstance(law, dist.AsymmetricLaplace):
        left, right = law.left_scale, law.right_scale
    found = copy(law)
    found.log_prob = lambda value: _parabola(law.loc, left, right, value, share)
    return found


def _parabola(loc: Tensor, left: Tensor, right: Tensor, value: Tensor, share: float) -> Tensor:
    """Return minus half the quadratic form of the information, of the changes of the parameters.

    The changes are 0, as each parameter is compared with itself, but have derivatives.

    Args:
        loc: [*batch], the location.
        left: [*batch], the scale of the exponential law below it.
        right: [*batch], that above.
        value: [*batch], the observed value, of which only the shape counts.
        share: The share of the information of the location.
    """
    total = (left + right).detach()
    below = left.detach() / total  # the probability of a value below the location
    above = 1 - below
    moved = loc - loc.detach()
    a, b = left.log() - left.log().detach(), right.log() - right.log().detach()
    form = share * moved.square() / (left * right).detach()
    form = form + (2 * below - below**2) * a**2 + (2 * above - above**2) * b**2
    form = form - 2 * below * above * a * b + 2 * moved * (b - a) / total
    return -0.5 * form + torch.zeros_like(value)
