"""Functions drawn from the posterior of a Gaussian process of one column, at any times."""

from __future__ import annotations

import torch
from torch import Tensor

from ...kernels.fourier_features import Draw
from ...kernels.state_space import StateSpace
from ...numerics.small_matrices import product, product_with_transpose, times_vector
from .kalman import passes
from .kalman_simulation import root, simulated
from .lanes import in_rows
from .state_space_rows import Steps

NEGLIGIBLE = 1e-12  # eigenvalues of a scaled covariance below it are those of rounding


def states_at_rows(steps: Steps, residual: Tensor, draw: Draw) -> Tensor:
    """Return draws of the states at the rows in order of time, [s, samples, n].

    A draw of the prior is corrected by the smoothed difference from the data. Durbin & Koopman
    (2002).

    Args:
        steps: The process at the rows, without a batch.
        residual: The difference y - mean [n], in the order of the rows.
        draw: The number of functions and the random generator.
    """
    width, size, k = len(steps.F), steps.F.shape[-2:], draw.samples

    def wide(M: Tensor) -> Tensor:
        return M.unsqueeze(M.ndim - 2).expand(*M.shape[:-2], k, *M.shape[-2:])

    F, Q = wide(steps.F), wide(steps.Q)
    P0 = steps.P0[..., None].expand(width, width, k)
    R = steps.R.expand(k, *size)
    prior = simulated(F, Q, P0, draw.normal(width, k), draw.normal(width, k, *size))
    y = steps.observed.of(prior) + R.sqrt() * draw.normal(k, *size)
    rest = steps.observed.seen * (steps.in_order(residual) - y)
    filtered, back = passes(F, Q, P0, R, rest, steps.observed)
    correction = [
        m + times_vector(P, r) for m, P, r in zip(filtered.m, filtered.P, back.r, strict=True)
    ]
    return in_rows(prior + torch.stack(correction, -2), len(steps.times))


class DrawnFunctions:
    """Functions whose states are known at some times, and drawn at others when they are asked for.

    Given the states at the known times on both sides, the state between depends on nothing else.
    A time that is asked for again keeps its state. The record grows.

    Args:
        space: The process.
        times: In order, [n]; of equal ones the last counts.
        states: [s, samples, n].
        draw: The number of functions and the random generator.
    """

    def __init__(self, space: StateSpace, times: Tensor, states: Tensor, draw: Draw) -> None:
        last = torch.cat([times.diff() > 0, torch.ones_like(times[:1], dtype=torch.bool)])
        self.space, self.draw = space, draw
        self.times, self.states = times[last], states[..., last]

    def __call__(self, t: Tensor, H: Tensor) -> Tensor:
        """Return the functions H'x at times t [m], [samples, m], for weights H [s, m]."""
        t = t.contiguous()
        new = torch.unique(t)
        while True:
            place = torch.searchsorted(self.times, new)
            known = self.times[place.clamp_max(len(self.times) - 1)] == new
            new, place = new[~known], place[~known]
            if not len(new):
                break
            # the middle one of the new times in each gap, so that few rounds suffice
            _, counts = torch.unique_consecutive(place, return_counts=True)
            self._extend(new[counts.cumsum(0) - counts + counts // 2])
        states = self.states[..., torch.searchsorted(self.times, t)]
        return (states * H[:, None]).sum(0)

    def _extend(self, t: Tensor) -> None:
        """Draw the states at times t [m], each in a gap of its own between known times."""
        n, place = len(self.times), torch.searchsorted(self.times, t)
        left, right = (place - 1).clamp_min(0), place.clamp_max(n - 1)
        F, Q = self.space.transition((t - self.times[left]).clamp_min(0.0))
        begun = place > 0
        P = torch.where(begun, Q, self.space.covariance(t))
        before = self.states[..., left]
        m = torch.where(begun, times_vector(F[:, :, None], before), 0.0)
        F, Q = self.space.transition((self.times[right] - t).clamp_min(0.0))
        FP = product(F, P)
        gain = product(FP.transpose(0, 1), pseudo_inverse(product_with_transpose(FP, F) + Q))
        gain = torch.where(place < n, gain, 0.0)
        rest = self.states[..., right] - times_vector(F[:, :, None], m)
        m = m + times_vector(gain[:, :, None], rest)
        spread = P - product(gain, FP)
        z = self.draw.normal(len(P), self.draw.samples, len(t))
        x = m + times_vector(root(0.5 * (spread + spread.transpose(0, 1)))[:, :, None], z)
        times, order = torch.sort(torch.cat([self.times, t]))
        self.times, self.states = times, torch.cat([self.states, x], -1)[..., order]


def pseudo_inverse(S: Tensor) -> Tensor:
    """Return the inverses of covariances [s, s, *many] where they have variance, 0 elsewhere."""
    sd = S.diagonal(dim1=0, dim2=1).movedim(-1, 0).clamp_min(0.0).sqrt()
    by = torch.where(sd > 0, sd, torch.ones_like(sd))
    values, vectors = torch.linalg.eigh((S / by[:, None] / by).movedim((0, 1), (-2, -1)))
    kept = values > NEGLIGIBLE * values.amax(-1, keepdim=True)
    inverted = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    inverse = (vectors * inverted.unsqueeze(-2)) @ vectors.mT
    return inverse.movedim((-2, -1), (0, 1)) / by[:, None] / by
