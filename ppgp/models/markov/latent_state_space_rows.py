"""The rows of a latent function of one column, whose y have any likelihood given f."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ...likelihoods import Likelihood
from ...likelihoods.joint_rows import LatentRows, LikelihoodRows
from ...numerics.laplace_evidence import laplace_log_evidence_under
from ...numerics.latent_mode import require_mode
from ..sites import Theta
from .lanes import in_lanes, in_rows
from .markov_laplace import MarkovPrior
from .state_space_predictions import Smoothed, smoothed
from .state_space_rows import Steps, drawn_functions


def prior_of(steps: Steps) -> MarkovPrior:
    """Return the distribution of f - mean at the rows in order of time."""
    return MarkovPrior(steps.F, steps.Q, steps.P0, steps.observed, len(steps.times))


@dataclass(frozen=True)
class AtMode:
    """Gaussian rows that stand for the rows of y, at the mode of f.

    Attributes:
        steps: The process at the rows, without a batch.
        a: K^-1 (f - mean) at the mode, [n] in order of time.
        h: The difference f - mean there.
        W: Minus the second derivatives of the log densities of the rows there.
    """

    steps: Steps
    a: Tensor
    h: Tensor
    W: Tensor

    def smoothed(self) -> Smoothed:
        """Return what the Gaussian rows say about the states."""
        s = self.steps
        observed = replace(s.observed, seen=in_lanes(self.W, s.lanes))
        rows = replace(s, R=torch.ones_like(s.R), observed=observed)
        return smoothed(rows, s.as_given(self.a + self.W * self.h))

    def without_each_row(self) -> tuple[Tensor, Tensor]:
        """Return the mean less the prior mean, and the variance, of each f_i without its own row.

        Each is [n] in the order of the rows as they were given. The Gaussian row of precision W_i
        is taken out; Vehtari et al. (2016), section 3.
        """
        variance = prior_of(self.steps).given(self.W, self.a + self.W * self.h).variance()
        cavity = variance / (1 - self.W * variance)
        return self.steps.as_given(self.h - cavity * self.a), self.steps.as_given(cavity)


def at_mode(
    steps: Steps, likelihood: Likelihood, own: dict[str, Tensor], mean: Tensor, y: Tensor
) -> AtMode:
    """Return the Gaussian rows at the mode of f.

    Args:
        steps: The process at the rows, without a batch.
        likelihood: Of one function of x, with slopes.
        own: {site: value} of the likelihood.
        mean: Of f, [n] in the order of the rows.
        y: The targets [n].

    Raises:
        NumericalError: If there is no finite mode.
    """
    rows = LikelihoodRows(likelihood, tuple(own), y[steps.order])
    found = require_mode(prior_of(steps), mean[steps.order], rows, tuple(own.values()))
    return AtMode(steps, *found)


class LatentStateSpaceMarginal(LatentRows):
    """y at n rows where f is a mean plus a Markov process in time, and y_i depends on f_i alone.

    ``log_prob`` is Laplace's approximation of the log density; samples are exact.

    Args:
        likelihood: As in LatentRows.
        theta: As in LatentRows.
        mean: As in LatentRows.
        steps: The process at the rows.
    """

    def __init__(self, likelihood: Likelihood, theta: Theta, mean: Tensor, steps: Steps) -> None:
        self.steps = steps
        batch = torch.broadcast_shapes(mean.shape[:-1], steps.batch)
        super().__init__(likelihood, theta, mean, batch)

    def expand(
        self, batch_shape: Sequence[int], _instance: object = None
    ) -> LatentStateSpaceMarginal:
        """Return this distribution with another batch shape."""
        batch = torch.Size(batch_shape)
        return self._other(*self.of_batch(batch), self.steps.expand(batch))

    def one_by_one(self) -> list[LatentStateSpaceMarginal]:
        return [
            self._other(*one) for one in zip(*self.each(), self.steps.one_by_one(), strict=True)
        ]

    def _other(self, theta: Theta, mean: Tensor, steps: Steps) -> LatentStateSpaceMarginal:
        return LatentStateSpaceMarginal(self.likelihood, theta, mean, steps)

    def latent_variance(self) -> Tensor:
        s = self.steps
        nothing = torch.zeros(len(s.times)).to(s.F)
        return s.as_given(prior_of(s).given(nothing, nothing).variance())

    def log_evidence(self, y: Tensor) -> Tensor:
        s, theta = self.steps, self.theta
        rows = LikelihoodRows(self.likelihood, tuple(theta), y[s.order])
        prior = partial(MarkovPrior, observed=s.observed, n=len(s.times))
        tensors, own = (s.F, s.Q, s.P0), tuple(theta.values())
        return laplace_log_evidence_under(prior, tensors, self.latent_mean[s.order], rows, own)

    def drawn(self, shape: torch.Size) -> Tensor:
        functions = in_rows(drawn_functions(self.steps, shape), self.event_shape[0])
        return self.steps.as_given(functions)
