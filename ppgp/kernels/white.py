"""White noise as a kernel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..priors import LogNormal, PriorLike
from .base import Kernel, Theta, constant_variance


@dataclass(frozen=True)
class White(Kernel):
    """variance where both arguments are the same row, else 0: a nugget that belongs to f.

    Two rows of X [n, d] are the same if X2 is None and their index is the same: two measurements at
    one place are two rows. Noise of the observation y belongs to the likelihood instead. Rasmussen
    & Williams (2006), the last term of equation 2.20.

    Args:
        variance: Prior of the variance, or a number that fixes it, in the unit of y^2.

    Raises:
        SettingError: If a hyperparameter is neither a prior nor a finite number, or is negative;
            in a fit, if it is fixed to 0.

    Examples:
        It has no covariance with other rows, not even at the same place:

        >>> import torch
        >>> from ppgp import kernels
        >>> X = torch.tensor([[0.0], [0.0]])
        >>> kernel = kernels.White(0.5)
        >>> kernel({}, X)
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]])
        >>> kernel({}, X, X.clone())
        tensor([[0., 0.],
                [0., 0.]])
    """

    variance: PriorLike = LogNormal(-2.0, 1.0)
    hyper = ("variance",)
    about_origin = False

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        if X2 is None:
            return h["variance"] * torch.eye(X1.shape[-2], dtype=X1.dtype, device=X1.device)
        return torch.zeros_like(h["variance"]) * X1.new_zeros(X1.shape[-2], X2.shape[-2])

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        return constant_variance(h, X)

    def nugget(self, theta: Theta, X: Tensor) -> Tensor:
        return self.diag(theta, X)
