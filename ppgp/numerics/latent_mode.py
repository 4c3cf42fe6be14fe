"""The mode of a latent Gaussian vector f, given rows that depend on one f_i each.

f = mean + h, h ~ N(0, K), and the log density of the rows is a sum over i of a function of f_i.
Rasmussen & Williams (2006), section 3.4, whose W is minus the second derivative of that function.
How K is stored, and how systems with it are solved, is left to a ``LatentPrior``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ..errors import NumericalError
from .newton import allowed_descent, at_rounding, small_gain

__all__ = ["Conditioned", "LatentPrior", "Parameters", "RowDensity", "mode_of", "require_mode"]

Parameters = tuple[Tensor, ...]
STEPS = 200
HALVINGS = 30
NEAR = 1.0  # gain of a step, in nats, below which the observed curvature is tried
#: Gain of a step, in nats, below which the search ends. Newton's steps converge quadratically, so
#: that the next one would gain its square; those with another curvature only linearly.
SMALL = {True: 1e-10, False: 1e-20}
SMALL_SINGLE = 1e-7
ROUGH = 1e-3  # gain of a step, in nats, down to which the next one may be rough
#: The noise of the rows in the steps from f = y before a search, in their own noise.
AT_ONCE, IN_STAGES = (1.0,), (16.0, 16.0, 8.0, 8.0, 4.0, 4.0, 2.0, 2.0)
SAME = 1.0  # squared distance from a mode, in posterior sd, below which a search would end in it


@runtime_checkable
class RowDensity(Protocol):
    """The log densities of n rows as functions of f [n], and of parameters."""

    def log_prob(self, f: Tensor, parameters: Parameters) -> Tensor:
        """Return the log density of each row, [n]."""
        ...

    def slopes(self, f: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Return the first and the second derivative of each by its f_i, [n]."""
        ...

    def step_curvature(self, f: Tensor, parameters: Parameters) -> Tensor:
        """Return minus a curvature of each row for steps where it is not concave, [n], >= 0."""
        ...

    def as_normal(
        self, f: Tensor | None, parameters: Parameters, width: float
    ) -> tuple[Tensor, Tensor] | None:
        """Return y [n] and the precision [n] of each row as a mixture of normal ones around f.

        It is None if the rows are no such mixtures.

        Args:
            f: [n]; None: y.
            parameters: Those of the rows.
            width: How many times as wide the noise of the rows is taken.
        """
        ...


@runtime_checkable
class Conditioned(Protocol):
    """h ~ N(0, K) given Gaussian rows, whose log densities are b_i h_i - W_i h_i^2 / 2.

    Its covariance is (K^-1 + W)^-1. The numbers are not finite where there is no such Gaussian.
    """

    @property
    def h(self) -> Tensor:
        """The mean of h, (K^-1 + W)^-1 b, [n]."""
        ...

    @property
    def a(self) -> Tensor:
        """K^-1 times the mean of h, which is b - W h, [n]."""
        ...

    def half_log_det(self) -> Tensor:
        """Return log|I + K W| / 2."""
        ...

    def variance(self) -> Tensor:
        """Return the variance of each h_i, [n]."""
        ...

    def slopes(self, u: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """Return c = (I + W K)^-1 u and K c, [n], and the slopes in the tensors of the prior.

        The slopes are those of b'h / 2 + u'h - log|I + K W| / 2, where b, u and W do not move. That
        in K is (a a' + a c' + c a' - (K + W^-1)^-1) / 2.
        """
        ...


@runtime_checkable
class LatentPrior(Protocol):
    """The distribution N(0, K) of h."""

    def given(self, W: Tensor, b: Tensor, *, differentiable: bool = False) -> Conditioned:
        """Return h given Gaussian rows.

        Args:
            W: The precision of each, [n], of any sign.
            b: The precision of each times its value, [n].
            differentiable: Whether derivatives of the result will be taken.
        """
        ...

    def rough_step(self, W: Tensor, b: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return a and h of ``given`` about, if that is faster; None if it is not.

        h = K a has to hold up to rounding. NaN stands for no solution.

        Args:
            W: The precision of each row, [n], none negative.
            b: As in ``given``.
        """
        ...


@dataclass(frozen=True, eq=False)
class _End:
    """Where a search for a mode ends.

    Attributes:
        a: K^-1 h, [n].
        h: [n].
        value: What the search maximises, log p(rows given f) - a'h / 2, [].
        W: Minus the second derivatives of the rows there, [n].
        concave: Whether every row was concave at every place of the search.
    """

    a: Tensor
    h: Tensor
    value: Tensor
    W: Tensor
    concave: bool

    def is_near(self, a: Tensor, h: Tensor) -> bool:
        """Return whether a place is within a posterior sd of this one.

        At a saddle no place is: the squared distance is negative along some direction.
        """
        d = h - self.h
        return 0 <= float(d @ (a - self.a) + (self.W * d) @ d) < SAME

    def log_evidence(self, prior: LatentPrior) -> float:
        """Return Laplace's approximation of the log density of the rows, -inf if there is none."""
        found = self.value - prior.given(self.W, self.a + self.W * self.h).half_log_det()
        return float(found.nan_to_num(nan=-math.inf))


def mode_of(
    prior: LatentPrior, mean: Tensor, rows: RowDensity, parameters: Parameters = ()
) -> tuple[Tensor, Tensor]:
    """Maximise log p(rows given f) - h' K^-1 h / 2 over f = mean + h.

    The search begins at h = 0. If a row is not concave on the way, there may be several modes, and
    a search begins at f = y too where the rows are mixtures of normal ones. If it ends elsewhere,
    another begins after steps from f = y with noise that narrows in stages, as in the graduated
    non-convexity of Blake & Zisserman (1987). The answer is the end with the highest Laplace
    approximation of the log density of the rows. That removes most of the jumps that the density of
    one search has in the parameters, where the search comes to lead to another mode.

    Returns:
        a [n] and h [n], where h = K a; NaN if a step from h = 0 is not finite or descends.
    """
    zero = torch.zeros_like(mean)
    first = _climbed(prior, mean, rows, parameters, (zero, zero), [])
    if first is None:
        return torch.full_like(mean, math.nan), torch.full_like(mean, math.nan)
    ends = [first]
    for widths in () if first.concave else (AT_ONCE, IN_STAGES):
        start = _from_the_rows(prior, mean, rows, parameters, widths)
        if start is None:
            break
        end = _climbed(prior, mean, rows, parameters, start, ends)
        if end is None:
            break
        ends.append(end)
    best = first
    if len(ends) > 1:
        best = max(ends, key=lambda end: end.log_evidence(prior))
    return best.a, best.h


def _from_the_rows(
    prior: LatentPrior,
    mean: Tensor,
    rows: RowDensity,
    parameters: Parameters,
    widths: Sequence[float],
) -> tuple[Tensor, Tensor] | None:
    """Return a and h after a step from f = y for each width; None: the rows are no mixtures."""
    start, f = None, None
    for width in widths:
        normal = rows.as_normal(f, parameters, width)
        if normal is None:
            return None
        y, W = normal
        step = prior.given(W, W * (y - mean))
        start, f = (step.a, step.h), mean + step.h
    return start


def _climbed(
    prior: LatentPrior,
    mean: Tensor,
    rows: RowDensity,
    parameters: Parameters,
    start: tuple[Tensor, Tensor],
    known: Sequence[_End],
) -> _End | None:
    """Return the mode to which algorithm 3.1 leads; None if it is known, or a step is not finite.

    Where the log density of a row is not concave, its ``step_curvature`` takes the place of the
    observed one, until steps are small. A step that does not ascend is halved. Steps far from the
    mode may be rough; the last ones are exact.

    Args:
        prior: As in ``mode_of``.
        mean: As in ``mode_of``.
        rows: As in ``mode_of``.
        parameters: As in ``mode_of``.
        start: Where it begins, a [n] and h [n].
        known: The modes that are known.
    """
    a, h = start
    value, gain = rows.log_prob(mean + h, parameters).sum() - 0.5 * a @ h, math.inf
    trusted = True  # whether rough steps ascend as they should
    concave = True
    for _ in range(STEPS):
        if any(end.is_near(a, h) for end in known):
            return None
        first, second = rows.slopes(mean + h, parameters)
        newton, before = bool((second <= 0).all()), gain
        concave = concave and newton
        along = partial(_along, (a, h), mean, rows, parameters)
        if not newton and gain < NEAR:
            found = _observed_step(prior.given(-second, first - a), along, value, first - a)
            if found is not None:
                a, h, value, gain = found
                if gain <= _small(mean.dtype, True) or at_rounding(gain, before, value):
                    break
                continue
        W = -second
        if not newton:
            W = torch.where(second <= 0, W, rows.step_curvature(mean + h, parameters))
        if trusted and gain > ROUGH:
            found = _rough_step(prior.rough_step(W, first - a), along, value, first - a)
            if found is not None:
                a, h, value, gain = found
                continue
            trusted = False
        step = prior.given(W, first - a)
        gain = float((first - a) @ step.h)
        # a negative gain: the matrix is not positive definite, up to rounding
        if not (math.isfinite(gain) and gain > -small_gain(value)):
            return None
        a, h, value = _ascended(partial(along, (step.a, step.h)), value)
        small = gain <= _small(mean.dtype, newton)
        if small or at_rounding(gain, before, value):
            break
    return _End(a, h, value, -rows.slopes(mean + h, parameters)[1], concave)


def require_mode(
    prior: LatentPrior, mean: Tensor, rows: RowDensity, parameters: Parameters = ()
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a and h of ``mode_of``, and W [n] at the mode.

    Raises:
        NumericalError: If there is no finite mode.
    """
    a, h = mode_of(prior, mean, rows, parameters)
    if not bool(torch.isfinite(h).all()):
        do = "check the hyperparameters and the targets"
        raise NumericalError("a mode of f given the rows", "steps that are not finite", do)
    return a, h, -rows.slopes(mean + h, parameters)[1]


def _small(dtype: torch.dtype, newton: bool) -> float:
    return SMALL[newton] if dtype == torch.float64 else SMALL_SINGLE


def _along(
    here: tuple[Tensor, Tensor],
    mean: Tensor,
    rows: RowDensity,
    parameters: Parameters,
    step: tuple[Tensor, Tensor],
    t: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a, h and what the mode maximises after t times a step in (a, h)."""
    a, h = here[0] + t * step[0], here[1] + t * step[1]
    return a, h, rows.log_prob(mean + h, parameters).sum() - 0.5 * a @ h


def _ascended(at: Callable[[float], Any], value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what ``at`` gives at the first of 1, 1/2, 1/4, ... that does not descend."""
    t, least = 1.0, value - allowed_descent(value)
    for _ in range(HALVINGS):
        found = at(t)
        if bool(found[2] >= least):
            return found
        t /= 2
    return at(0.0)


def _rough_step(
    step: tuple[Tensor, Tensor] | None, along: Callable[..., Any], value: Tensor, slope: Tensor
) -> tuple[Tensor, Tensor, Tensor, float] | None:
    """Return a, h, the value and the gain of a whole rough step; None if it ascends too little.

    An exact step on a parabola ascends by half of its gain.

    Args:
        step: The step in a and h; None: there is none.
        along: ``_along`` of a step and its length.
        value: What the mode maximises, before the step.
        slope: Its slope in h there.
    """
    if step is None:
        return None
    gain = float(slope @ step[1])
    if not 0 < gain < math.inf:
        return None
    found = along(step, 1.0)
    if not bool(found[2] - value >= 0.25 * gain):
        return None
    return (*found, gain)


def _observed_step(
    step: Conditioned, along: Callable[..., Any], value: Tensor, slope: Tensor
) -> tuple[Tensor, Tensor, Tensor, float] | None:
    """Return a, h, the value and the gain of a whole Newton step; None if it does not ascend.

    Args:
        step: The step, with the observed curvature.
        along: ``_along`` of a step and its length.
        value: What the mode maximises, before the step.
        slope: Its slope in h there.
    """
    gain = float(slope @ step.h)
    if not gain >= 0:
        return None
    found = along((step.a, step.h), 1.0)
    if not bool(found[2] >= value - allowed_descent(value)):
        return None
    return (*found, gain)
