"""The parts of a function of one column: the terms of a sum of kernels, and the regressors.

Each has states of its own.
"""

from __future__ import annotations

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ...capabilities import Capability, Components, IntegratedCoefficients
from ...data.dataset import Dataset
from ...errors import NotApplicable
from ...kernels import Sum
from ...numerics.least_variance import at_least_rounding
from ..sites import Theta
from ..terms import as_written
from ..terms import labels as labels_of
from .state_space_conditioning import StateSpaceConditioning


class StateSpaceComponents(StateSpaceConditioning, Components, IntegratedCoefficients):
    """The posterior of each term of a sum of kernels, and of the weights of the regressors."""

    def lacks(self, capability: type[Capability]) -> NotApplicable | None:
        if capability is IntegratedCoefficients and self.regressors is None:
            got = f"{type(self).__name__} without regressors"
            return NotApplicable(capability.expected, got, "pass regressors=Normal(0, scale)")
        if capability is Components and not isinstance(self.kernel, Sum):
            got = type(as_written(self.kernel)).__name__
            return NotApplicable("a sum of kernels", got, "add kernels with +, or use latent")
        return None

    def components(self, theta: Theta, X: Tensor, train: Dataset) -> dict[str, Distribution]:
        """Return the distribution of each term of a sum of kernels at X, batch [draw, m].

        Each term has states of its own. No term includes the mean.
        """
        assert isinstance(self.kernel, Sum)  # see lacks
        H, labels, start = self.observation(X), labels_of(self.kernel), 0
        like = {name: X.new_ones(s.shape) for name, s in self.kernel.sites(1).items()}
        parts: dict[str, Tensor] = {}
        sizes = [len(space.observation) for space in self.kernel.state_spaces(like, X)]
        if X.shape[-1] > 1:
            labels, sizes = [*labels, "regressors"], [*sizes, X.shape[-1] - 1]
        for name, size in zip(labels, sizes, strict=True):
            parts[name] = torch.zeros_like(H)
            parts[name][start : start + size] = H[start : start + size]
            start += size
        moments: dict[str, list[tuple[Tensor, ...]]] = {name: [] for name in labels}
        for chunk, _, states in self._states(theta, X, train):
            shape = (chunk.stop - chunk.start, len(X))
            for name, own in parts.items():
                mean, variance = states.of(own)
                variance = at_least_rounding(variance, torch.zeros_like(variance))
                moments[name].append((mean.expand(shape), variance.expand(shape)))
        return {
            name: dist.Normal(
                torch.cat([m for m, _ in each]), torch.cat([v for _, v in each]).sqrt()
            )
            for name, each in moments.items()
        }

    def weighted(self, d: int) -> range:
        return range(1, d)

    def weight_moments(self, theta: Theta, train: Dataset) -> tuple[Tensor, Tensor]:
        r = train.d - 1
        # at the last time, the states given the rows before it are those given all rows
        X = train.X[train.X[:, 0].argmax()].expand(r, -1)
        H = torch.eye(self.width(train.d)).to(X)[:, -r:]
        means, variances = [], []
        for chunk, _, states in self._states(theta, X, train):
            mean, variance = states.of(H)
            shape = (chunk.stop - chunk.start, r)
            means.append(mean.expand(shape))
            variances.append(variance.expand(shape))
        return torch.cat(means), torch.cat(variances).sqrt()
