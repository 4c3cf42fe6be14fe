"""Laws with a kink at their location, whose second derivatives say nothing there.

Observed sites with such laws are those of absolute errors and of quantiles. Between its kinks the
log density is linear in the location, so that its Hessian is 0, and the mode is at kinks. The
expected information takes the place of minus the Hessian, as in quantile regression.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import pyro.distributions as dist
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.distributions import Independent, Laplace, TransformedDistribution

from ..numerics.shapes import broadcast_shapes
from .handlers import is_deterministic, is_factor

__all__ = ["InExpectation", "Kinks", "averaged_precision", "is_kinked"]

ROUNDS = 50  # of the fixed point at most; each is nearer by a factor of about (p / n)^(1/2)
SETTLED = 1e-8  # the relative change of the standard deviations that ends them
#: The spreads that take a row away from its kink: of the mode, and of the posterior around it.
SPREADS = 2.0


def is_kinked(law: Any) -> bool:
    """Return whether a distribution is that of Laplace or the asymmetric one.

    It may be masked, or transformed number by number, as the exponential of a Laplace variable.
    """
    while isinstance(law, Independent | dist.MaskedDistribution | TransformedDistribution):
        if isinstance(law, TransformedDistribution):
            for t in law.transforms:
                if not t.bijective or t.domain.event_dim or t.codomain.event_dim:
                    return False
        law = law.base_dist
    return isinstance(law, Laplace | dist.AsymmetricLaplace)


@dataclass(frozen=True, eq=False)
class Kinks:
    """Observed values of one site with kinks.

    Each tensor has the shape to which values and law are broadcast.

    Attributes:
        moved: 0, with the derivatives of the locations.
        left: The scale of the exponential law below the kink, in the unit of the location.
        right: That above.
        weight: How often masks and scales count the value.
    """

    moved: Tensor
    left: Tensor
    right: Tensor
    weight: Tensor

    def log_density(self) -> Tensor:
        """Return minus half the quadratic form of the information of the scales.

        Each parameter is compared with itself, so that the changes are 0 but have derivatives. The
        information of the location is left out.
        """
        total = (self.left + self.right).detach()
        below = self.left.detach() / total  # the probability of a value below the location
        above = 1 - below
        a, b = (x.log() - x.log().detach() for x in (self.left, self.right))
        form = (2 * below - below**2) * a**2 + (2 * above - above**2) * b**2
        form = form - 2 * below * above * a * b + 2 * self.moved * (b - a) / total
        return -0.5 * form


class InExpectation(Messenger):
    """Let observed sites with kinks have minus the expected information as second derivatives.

    Koenker (2005), sections 3.2 and 4.2: the information of the location is the jump of the slope
    at the kink times the density there. It is left out, and ``averaged_precision`` adds it. The
    value and the first derivatives of the log density are not those of the program.

    Attributes:
        kinks: Those of each observed site of the last run.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kinks: list[Kinks] = []

    def __enter__(self) -> InExpectation:
        self.kinks = []
        super().__enter__()
        return self

    def _pyro_sample(self, msg: Any) -> None:
        observed = msg["is_observed"] and not is_deterministic(msg) and not is_factor(msg)
        if not (observed and is_kinked(msg["fn"])):
            return
        law, value = msg["fn"], msg["value"]
        weight = _by_value(msg["scale"], law)
        if msg["mask"] is not None:
            weight = weight * _by_value(msg["mask"], law)
        kinks = _kinks_of(law, value, weight.to(value))
        self.kinks.append(kinks)
        msg["fn"] = _with_log_prob(law, kinks.log_density)


def _by_value(of_batch: Any, law: Any) -> Tensor:
    """Return what counts entries of the batch of a distribution, with axes for each event."""
    found = torch.as_tensor(of_batch)
    shape = broadcast_shapes(found.shape, law.batch_shape)
    return found.expand(shape).reshape(shape + (1,) * len(law.event_shape))


def _kinks_of(law: Any, value: Tensor, weight: Tensor) -> Kinks:
    """Return the kinks of a distribution at values, which count with these weights."""
    while isinstance(law, Independent | dist.MaskedDistribution):
        if isinstance(law, dist.MaskedDistribution):
            weight = weight * _by_value(law._mask, law)
        law = law.base_dist
    transforms = []
    while isinstance(law, TransformedDistribution):
        transforms = [*law.transforms, *transforms]
        law = law.base_dist
    left = right = law.scale
    if isinstance(law, dist.AsymmetricLaplace):
        left, right = law.left_scale, law.right_scale
    moved = law.loc - law.loc.detach()
    if transforms:  # their parameters move the value at the kink, and the scales around it
        at_kink = law.loc
        for transform in transforms:
            at_kink = transform(at_kink)
        inner, at_kink = at_kink.detach(), at_kink.detach()
        slope = torch.zeros_like(inner)
        for transform in reversed(transforms):
            outer, inner = inner, transform.inv(inner)
            slope = slope + transform.log_abs_det_jacobian(inner, outer)
        moved = moved - (inner - inner.detach())
        left, right = (x * (slope - slope.detach()).exp() for x in (left, right))
    parts = moved, left, right, weight
    shape = broadcast_shapes(value.shape, *(part.shape for part in parts))
    return Kinks(*(part.expand(shape) for part in parts))


def _with_log_prob(law: Any, log_prob: Callable[[], Tensor]) -> Any:
    """Return a distribution with other log densities of single numbers, given the value or not."""
    if isinstance(law, Independent):
        inner = _with_log_prob(law.base_dist, log_prob)
        return dist.Independent(inner, law.reinterpreted_batch_ndims)
    if isinstance(law, dist.MaskedDistribution):
        return _with_log_prob(law.base_dist, log_prob).mask(law._mask)
    found = copy(law)
    found.log_prob = lambda value: log_prob()
    return found


def averaged_precision(
    without: Tensor,
    kinks: Sequence[tuple[Tensor, ...]],
    of_all: Callable[[Tensor], Tensor],
) -> Tensor:
    """Return the precision with the information of locations that vary as estimate and posterior.

    Near a kink, the density of the residual at 0 falls on both sides: a location that is off by e
    has the density exp(-abs(e) / scale) of the largest. The precision of the Gaussian that is
    closest to the posterior is an average over it, by Opper & Archambeau (2009), equation 14; the
    mode itself is as far off the truth, so that e has twice the variance of the posterior. The
    precision that results is a fixed point of this average.

    Args:
        without: [p, p], the precision without the information of locations.
        kinks: Of each site, the derivatives [n, p] of its locations, the scales [n] below and above
            the kinks, and how often each value counts, [n].
        of_all: The information of the rows of all processes, given that of one.
    """
    precision = without
    covariance = torch.zeros_like(without)  # none at first: all of the information counts
    before = covariance.diagonal()
    for _ in range(ROUNDS):
        own = torch.zeros_like(without)
        for J, left, right, weight in kinks:
            spread = (SPREADS * ((J @ covariance) * J).sum(1).clamp_min(0.0)).sqrt()
            share = 0.5 * (_mean_density(spread / left) + _mean_density(spread / right))
            own += J.mT @ ((weight * share / (left * right))[:, None] * J)
        precision = without + of_all(own)
        covariance = torch.linalg.pinv(precision, hermitian=True)
        sd = covariance.diagonal().clamp_min(0.0).sqrt()
        if bool(((sd - before).abs() <= SETTLED * sd).all()):
            break
        before = sd
    return precision


def _mean_density(t: Tensor) -> Tensor:
    """Return E exp(-t abs(Z)) for a standard normal variable Z."""
    return torch.special.erfcx(t / 2**0.5)
