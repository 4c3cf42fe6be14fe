"""The rows of a Gaussian process of one column as a Markov process, in order of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.distributions import constraints

from ...kernels.state_space import StateSpace, with_batch
from ...numerics.shapes import broadcast_shapes
from .kalman import Observed, log_density, simulated
from .parallel_scan import in_lanes, in_rows, lanes_for

Theta = Mapping[str, Tensor]
MANY_ROWS = 1000  # from which equal steps are looked for
ROUNDING = 1e-12  # of the largest time, by which equally spaced times may err in double precision
UNEVEN = 1e-6  # of the spacing: more is no rounding, however large the times are


@dataclass(frozen=True)
class Steps:
    """The matrices of ``models.markov.kalman`` for n rows.

    Attributes:
        times: In order, [n].
        order: The rows in that order, [n].
        lanes: Number of lanes.
        F, Q, P0, R, observed: see ``models.markov.kalman.log_density``.
    """

    times: Tensor
    order: Tensor
    lanes: int
    F: Tensor
    Q: Tensor
    P0: Tensor
    R: Tensor
    observed: Observed

    @property
    def batch(self) -> torch.Size:
        """The axes of the hyperparameters."""
        return self.R.shape[:-2]

    def in_order(self, values: Tensor) -> Tensor:
        """Return values [*b, n] of the rows in lanes, [*batch, steps, lanes]."""
        sorted_ = values[..., self.order].expand(*self.batch, len(self.order))
        return in_lanes(sorted_, self.lanes)

    def expand(self, batch: torch.Size) -> Steps:
        """Return these steps with other axes of the hyperparameters."""

        def wide(M: Tensor, axes: int) -> Tensor:
            event = M.shape[M.ndim - axes :]
            return with_batch(M, len(batch) + axes).expand(*M.shape[:2], *batch, *event)

        R = self.R.expand(*batch, *self.R.shape[-2:])
        return replace(self, F=wide(self.F, 2), Q=wide(self.Q, 2), P0=wide(self.P0, 0), R=R)

    def one_by_one(self) -> Iterator[Steps]:
        """Yield the steps at each of the hyperparameters, without axes for them."""
        F, Q = (M.reshape(*M.shape[:2], -1, *M.shape[-2:]) for M in (self.F, self.Q))
        P0, R = self.P0.flatten(2), self.R.reshape(-1, *self.R.shape[-2:])
        for i in range(len(R)):
            yield replace(self, F=F[:, :, i], Q=Q[:, :, i], P0=P0[..., i], R=R[i])

    def as_given(self, values: Tensor) -> Tensor:
        """Return values [*b, n] in order of time as those of the rows as they were given."""
        return values[..., torch.argsort(self.order)]


def steps_of(space: StateSpace, t: Tensor, noise: Tensor, columns: Tensor | None = None) -> Steps:
    """Return the matrices of rows in any order.

    Args:
        space: The process.
        t: Times [n].
        noise: Noise variances [*b, 1] or [*b, n].
        columns: Regressors [r, n]; None: there are none.
    """
    n = len(t)
    times, order = torch.sort(t, stable=True)
    lanes = lanes_for(n)
    dt = in_lanes(torch.cat([torch.zeros_like(times[:1]), times.diff()]), lanes)
    seen = in_lanes(torch.ones_like(times), lanes)
    F, Q = _transitions(space, times, dt)
    P0 = space.covariance(times[:1])
    if noise.shape[-1] == n:
        noise = noise[..., order]
    R = in_lanes(noise.expand(*noise.shape[:-1], n), lanes, 1.0)
    every = (F.shape[2:-2], Q.shape[2:-2], P0.shape[2:-1], R.shape[:-2])
    batch = broadcast_shapes(*every)

    def wide(M: Tensor, *event: int) -> Tensor:
        return with_batch(M, len(batch) + len(event)).expand(*M.shape[:2], *batch, *event)

    F, Q, P0 = wide(F, *dt.shape), wide(Q, *dt.shape), wide(P0, 1)[..., 0]
    R = R.expand(*batch, *dt.shape)
    weights = None if columns is None else in_lanes(columns[:, order], lanes)
    observed = Observed(space.observed, weights, seen=seen, blocks=space.sizes)
    return Steps(times, order, lanes, F, Q, P0, R, observed)


def _transitions(space: StateSpace, times: Tensor, dt: Tensor) -> tuple[Tensor, Tensor]:
    """Return the transitions over steps dt [steps, lanes], where the first and padding have none.

    The many steps of equally spaced times, whose rounding is left aside, have one transition.
    """
    n, span = len(times), times[-1] - times[0]
    if n < MANY_ROWS or not _equally_spaced(times):
        return space.transition(dt)
    F, Q = space.transition(torch.stack([torch.zeros_like(span), span / (n - 1)]))
    found = []
    for M in (F, Q):
        wide = M[..., 1, None, None].expand(*M.shape[:-1], *dt.shape).clone()
        wide[..., 0, 0] = M[..., 0]
        found.append(wide)
    return found[0], found[1]


def _equally_spaced(times: Tensor) -> bool:
    """Return whether times in order [n] are equally spaced up to their rounding."""
    if times.requires_grad or is_functorch_wrapped_tensor(times):
        return False
    # NumPy, as a trace of torch's operations has no numbers
    t = times.detach().cpu().numpy()
    reach = max(ROUNDING, 4 * float(np.finfo(t.dtype).eps)) * np.abs(t).max()
    reach = min(reach, UNEVEN * (t[-1] - t[0]) / (len(t) - 1))
    return bool((np.abs(t - np.linspace(t[0], t[-1], len(t))) <= reach).all())


class StateSpaceMarginal(dist.TorchDistribution):
    """N(loc, K + noise) over all rows at once, where K is the covariance of a Markov process.

    Args:
        loc: [*batch, n], the mean.
        steps: The process at the rows.
        validate_args: Whether to check arguments, as in torch.
    """

    arg_constraints: Any = {"loc": constraints.real_vector}
    support: Any = constraints.real_vector
    has_rsample = True

    def __init__(self, loc: Tensor, steps: Steps, validate_args: bool | None = None) -> None:
        self.loc, self.steps = loc, steps
        batch = broadcast_shapes(loc.shape[:-1], steps.batch)
        super().__init__(batch, loc.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: object = None) -> StateSpaceMarginal:
        loc = self.loc.expand(torch.Size(batch_shape) + self.event_shape)
        return StateSpaceMarginal(loc, self.steps, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.loc

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        s = self.steps
        return log_density(s.F, s.Q, s.P0, s.R, s.in_order(value - self.loc), s.observed)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        s = self.steps
        shape = self._extended_shape(torch.Size(sample_shape))[:-1]
        f = drawn_functions(s, shape)
        noise = torch.randn(f.shape, dtype=f.dtype, device=f.device)
        f = f + s.R.sqrt() * noise
        return self.loc + s.as_given(in_rows(f, self.loc.shape[-1]))


def drawn_functions(steps: Steps, shape: torch.Size) -> Tensor:
    """Return draws of f - mean at the rows, [*shape, steps, lanes], where shape ends in a batch."""
    s = steps.expand(shape)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, dtype=s.F.dtype, device=s.F.device)

    width, lanes = len(s.F), s.F.shape[-2:]
    z0, z = normal(width, *shape), normal(width, *shape, *lanes)
    return s.observed.of(simulated(s.F, s.Q, s.P0, z0, z))
