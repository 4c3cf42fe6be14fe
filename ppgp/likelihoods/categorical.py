"""Any number of classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.quasirandom import SobolEngine

from ..data.dataset import Dataset
from ..errors import SettingError
from .base import Likelihood, Theta, root
from .target_checks import check_codes, count_classes

POINTS = 64  # pairs of opposite quasi-random points: an expectation of the softmax has no rule of its own
FINE_POINTS = 512


@dataclass(frozen=True)
class Categorical(Likelihood):
    """y ~ Categorical(softmax(f)), one latent function a class. Rasmussen & Williams (2006), section 3.5.

    Averages over f in R^K are taken at fixed quasi-random points, so that the bound is a function and not an estimate. With 3
    classes the expected log likelihood is off by .005 where the sds of f are 1, .01 where they are 2 and .03 where they are 20;
    predictive probabilities by .001, .001 and .003.

    Args:
        classes: K; None: as many as the data have.
    """

    classes: int | None = None
    scales = "X"

    @property
    def latents(self) -> int:
        if self.classes is None:
            raise SettingError(
                "the number of classes",
                "None",
                "pass classes=, or fit with ppgp.fit, which counts them",
            )
        return self.classes

    def prepare(self, data: Dataset) -> Categorical:
        """Count the classes; raises DataError for targets that are not the codes 0 .. K - 1."""
        ready = self if self.classes is not None else replace(self, classes=count_classes(data))
        check_codes(data, ready.latents)
        return ready

    def distribution(self, theta: Theta, f: Tensor) -> Distribution:
        return dist.Categorical(logits=f.movedim(-2, -1))

    def marginal(self, theta: Theta, mean: Tensor, variance: Tensor) -> Distribution:
        total = torch.zeros_like(mean.movedim(-2, -1))
        for e in _points(self.latents, FINE_POINTS).to(
            mean
        ):  # one after the other: all at once are 1,024 times as many numbers
            total = total + torch.softmax((mean + root(variance) * e[:, None]).movedim(-2, -1), -1)
        return dist.Categorical(probs=total / total.sum(-1, keepdim=True))

    def expected(self, theta: Theta, mean: Tensor, variance: Tensor, y: Tensor) -> Tensor:
        """E f_y is closed, E log sum exp(f) the mean over the points."""
        points = _points(self.latents, POINTS).to(mean)
        f = mean + root(variance) * points.reshape(-1, *(1,) * (mean.ndim - 2), self.latents, 1)
        own = mean.gather(-2, y.long().expand(*mean.shape[:-2], mean.shape[-1])[..., None, :])[
            ..., 0, :
        ]
        return own - torch.logsumexp(f, -2).mean(0)


@lru_cache(maxsize=16)
def _points(dimension: int, pairs: int) -> Tensor:
    """[2 pairs, dimension] of N(0, I), each with its opposite, and of unit variance in each coordinate."""
    uniform = SobolEngine(dimension, scramble=True, seed=0).draw(pairs, dtype=torch.float64)
    e = torch.special.ndtri(uniform.clamp(1e-12, 1 - 1e-12))
    e = e / e.square().mean(0).sqrt()
    return torch.cat([e, -e])
