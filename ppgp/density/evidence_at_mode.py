"""The log evidence by Laplace's method near a mode that a search has found."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import NumericalError
from .target import Target

LOG_2PI = math.log(2 * math.pi)
STEP = 1e-4  # of each unconstrained number, for differences of gradients
NEAR = 1e-9  # nats that are left to climb where the quadratic is taken for exact
STEPS = 30
LEAST_ANGLE = 1e-8  # cosine between an error and a step below which the step says nothing of it
LONGEST = 2.0  # of one step
FLAT = 1e-6  # of the largest curvature: smaller ones count as so large for the length of a step
#: of the largest curvature: smaller ones are the rounding of the differences
ROUNDING = 1e-8
FEW = 20  # unconstrained numbers, whose gradients are too few to repay a graph
MOST = 1000  # unconstrained numbers, whose second derivatives take as many gradients


def log_evidence_near(target: Target, z: Tensor) -> float:
    """Return log p(y) by Laplace's method on the unconstrained scale, with its Jacobian.

    The mode of that density is a few steps of Newton's method from that on the natural scale, where
    MAP ends. Second derivatives are differences of gradients: one-sided ones lead to the mode, with
    updates of rank one after each step (Nocedal & Wright 2006, equation 6.24), and central ones are
    those of the result. Tierney & Kadane (1986).

    Args:
        target: The density.
        z: Near its mode, [p].

    Raises:
        NumericalError: If the density does not curve down in every direction.
    """
    density = _Density(target)
    if target.survey.kinked:
        return _near_kinks(density, z)
    value, gradient = density(z)
    precision, precise = density.precision(z, gradient)
    for _ in range(STEPS):
        if not bool(torch.isfinite(precision).all()):  # LAPACK raises an error of its own
            break
        values, vectors = torch.linalg.eigh(precision)
        size = values.abs().clamp_min(FLAT * float(values.abs().max()))
        along = vectors.mT @ gradient.double()
        left = 0.5 * float((along.square() / size).sum())
        if left < NEAR and not precise:
            precision, precise = density.precision(z)
            continue
        if left < NEAR:
            return float(value) + left + _log_volume(values)
        # uphill also where the density curves up
        step = vectors @ (along / size)
        step = step * min(1.0, LONGEST / max(float(step.norm()), LONGEST))
        there = density(z + step.to(z))
        while not bool(there[0] > value) and float(step.norm()) > STEP:
            step = 0.5 * step
            there = density(z + step.to(z))
        z, before, (value, gradient) = z + step.to(z), gradient, there
        if density.exact:
            precision, precise = density.precision(z)
        else:
            change = (before - gradient).double()
            precision, precise = _updated(precision, step, change), False
    raise _not_curved()


def precision_near(target: Target, z: Tensor) -> Tensor:
    """Return about minus the second derivatives of the log density at z [p], [p, p] in float64.

    They are one-sided differences of gradients, unless the density has derivatives of its own.
    """
    density = _Density(target)
    return density.precision(z, density(z)[1])[0]


def _near_kinks(density: _Density, z: Tensor) -> float:
    """Return the log evidence near a mode at kinks, where gradients average to 0.

    The slope of the Jacobian is what is left to climb, in one step by the expected information.
    """
    value, _ = density(z)
    _, slope = density.jacobian(z)
    precision, _ = density.precision(z)
    if not bool(torch.isfinite(precision).all()):
        raise _not_curved()
    values, vectors = torch.linalg.eigh(precision)
    along = vectors.mT @ slope.double()
    left = 0.5 * float((along.square() / values).sum())
    return float(value) + left + _log_volume(values)


def _log_volume(values: Tensor) -> float:
    """Return the log of the integral of exp(-x'Hx / 2), given the eigenvalues [p] of H.

    Raises:
        NumericalError: If one is not positive, or the rounding of the largest.
    """
    if not bool((values > ROUNDING * values.max()).all()):
        raise _not_curved()
    return 0.5 * len(values) * LOG_2PI - 0.5 * float(values.log().sum())


def _not_curved() -> NumericalError:
    """Return the error of a density that is flat, or rises, in some direction."""
    return NumericalError(
        "a density that curves down in every direction at the mode",
        "one that does not",
        "fit by Laplace, which names the directions, or give proper priors",
    )


def _updated(matrix: Tensor, step: Tensor, change: Tensor) -> Tensor:
    """Return the symmetric matrix [p, p] after the update of rank one that takes step to change."""
    error = change - matrix @ step
    size = error @ step
    if not bool(size.abs() > LEAST_ANGLE * error.norm() * step.norm()):
        return matrix
    return matrix + torch.outer(error, error) / size


@dataclass(frozen=True, eq=False)
class _Density:
    """The log density on the unconstrained scale, with its Jacobian.

    Of many numbers it comes from the graph without the Jacobian, which MAP has run already.
    """

    target: Target

    def __call__(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the value and the gradient [p]."""
        few = self.target.dim <= FEW
        if few or not self.target.static:
            return self.target.value_and_grad(z, compile=not few)
        value, gradient = self.target.value_and_grad(z, jacobian=False)
        volume, slope = self.jacobian(z)
        return value + volume, gradient + slope

    def jacobian(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log determinant of the transforms of all sites and its gradient [p]."""
        with torch.enable_grad():
            free = z.detach().clone().requires_grad_()
            volume = free.sum() * 0.0
            for part in self.target.slices.values():
                inner = part.of(free)
                each = part.transform.log_abs_det_jacobian(inner, part.transform(inner))
                volume = volume + each.sum()
            (slope,) = torch.autograd.grad(volume, free)
        return volume.detach(), slope

    @property
    def exact(self) -> bool:
        """Whether the density has second derivatives of its own."""
        return self.target.has_curvature or self.target.survey.kinked

    def precision(self, z: Tensor, gradient: Tensor | None = None) -> tuple[Tensor, bool]:
        """Return minus the second derivatives [p, p] in float64, and whether they are precise.

        Args:
            z: Where, [p].
            gradient: That at z, from which one-sided differences are taken; None: central ones.
        """
        if self.exact:
            return -self.target.curvature(z)[2].double(), True
        columns = []
        for i in range(self.target.dim):
            shift = torch.zeros_like(z)
            shift[i] = STEP
            above = self(z + shift)[1].double()
            if gradient is None:
                columns.append((self(z - shift)[1].double() - above) / (2 * STEP))
            else:
                columns.append((gradient.double() - above) / STEP)
        matrix = torch.stack(columns)
        return 0.5 * (matrix + matrix.mT), gradient is None
