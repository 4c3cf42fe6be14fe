"""The linear kernel: Bayesian linear regression through the origin."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..priors import LogNormal, PriorLike
from .base import Kernel, Theta, other_rows
from .fourier_features import Draw, Path
from .state_space import Markov, StateSpace, stacked


@dataclass(frozen=True)
class Linear(Kernel, Markov):
    """variance * x'x: f(x) = w'x with w ~ N(0, variance I).

    Here x is a row of X [n, d]. Rasmussen & Williams (2006), section 2.1.

    Add ``Constant`` for an intercept. If ``fit`` standardises X, a prior refers to the kernel of x
    minus the mean of the training rows, and so do its draws in the units of the data; a number
    refers to the kernel of x itself.

    Args:
        variance: Prior of the variance of the weights, or a number that fixes it, in the unit of
            y^2 / X^2.

    Raises:
        SettingError: If a hyperparameter is neither a prior nor a finite number, or is negative;
            in a fit, if it is fixed to 0.

    Examples:
        A GP with this kernel is Bayesian linear regression: the weight is the sum of x y over the
        sum of x^2 plus noise / variance, here 28 / 15.

        >>> import ppgp
        >>> from ppgp import inference, kernels, models
        >>> model = models.GP(kernels.Linear(1.0), noise=1.0, mean=0.0)
        >>> data = ppgp.Dataset([[1.0], [2.0], [3.0]], [2.0, 4.0, 6.0])
        >>> fit = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> round(float(fit.predict([[1.0]]).mean), 4)
        1.8667
    """

    variance: PriorLike = LogNormal(0.0, 1.0)
    hyper = ("variance",)
    dimensions = {"variance": (2, -2)}

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        return h["variance"] * (X1 @ other_rows(X1, X2).mT)

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        return h["variance"] * X.square().sum(-1)

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        weight = self._values(theta, draw.like, 0)["variance"].sqrt() * draw.normal(draw.samples, d)
        return lambda X: weight @ X.mT

    def state_space(self, theta: Theta, like: Tensor) -> StateSpace:
        """Return the value of the line and its slope."""

        def transition(dt: Tensor) -> tuple[Tensor, Tensor]:
            one, zero = torch.ones_like(dt), torch.zeros_like(dt)
            F = stacked([[one, dt], [zero, one]])
            return F, torch.zeros_like(F)

        def covariance(t: Tensor) -> Tensor:
            v = self._values(theta, like, t.ndim)["variance"]
            return stacked([[v * t * t, v * t], [v * t, v + torch.zeros_like(t)]])

        return StateSpace(transition, covariance, (1.0, 0.0), signs=(1.0, -1.0))
