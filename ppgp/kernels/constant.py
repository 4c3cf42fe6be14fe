"""The constant kernel: one unknown level shared by all rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..priors import LogNormal, PriorLike
from .base import Kernel, Theta, constant_variance, other_rows
from .fourier_features import Draw, Path
from .state_space import Markov, StateSpace, level


@dataclass(frozen=True)
class Constant(Kernel, Markov):
    """The same variance for all rows: f(x) = c with c ~ N(0, variance).

    All rows of X [n, d] share the level c, and their covariance is a matrix of equal numbers.
    Rasmussen & Williams (2006), section 4.2.

    Args:
        variance: Prior of the variance, or a number that fixes it, in the unit of y^2.

    Raises:
        SettingError: If a hyperparameter is neither a prior nor a finite number, or is negative;
            in a fit, if it is fixed to 0.

    Examples:
        Alone it shrinks the mean of y to 0: here from 2 to 6 / (3 + 1), as the variances of the
        level and of the noise are equal.

        >>> import ppgp
        >>> from ppgp import inference, kernels, models
        >>> model = models.GP(kernels.Constant(1.0), noise=1.0, mean=0.0)
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0]], [1.0, 2.0, 3.0])
        >>> fit = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> round(float(fit.predict([[9.0]]).mean), 4)
        1.5
    """

    variance: PriorLike = LogNormal(0.0, 1.0)
    hyper = ("variance",)
    about_origin = False

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        columns = other_rows(X1, X2).shape[-2]
        return h["variance"].expand(*h["variance"].shape[:-2], X1.shape[-2], columns)

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        return constant_variance(h, X)

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        level = self._values(theta, draw.like, 0)["variance"].sqrt() * draw.normal(draw.samples, 1)
        return lambda X: level.expand(-1, len(X))

    def state_space(self, theta: Theta, like: Tensor) -> StateSpace:
        """Return the level itself, which never changes."""
        return level(lambda axes: self._values(theta, like, axes)["variance"])


def constants(variances: Tensor) -> StateSpace:
    """Return independent levels N(0, variances) [r], none of which is in f by itself."""
    r = len(variances)

    def transition(dt: Tensor) -> tuple[Tensor, Tensor]:
        F = torch.eye(r).to(dt).reshape(r, r, *(1,) * dt.ndim).expand(r, r, *dt.shape)
        return F, torch.zeros_like(F)

    def covariance(t: Tensor) -> Tensor:
        return variances.diag().reshape(r, r, *(1,) * t.ndim).expand(r, r, *t.shape)

    return StateSpace(transition, covariance, (0.0,) * r, (1,) * r)
