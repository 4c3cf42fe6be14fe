"""The Matern kernels that have closed forms: nu = 1/2, 3/2 and 5/2."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import SettingError
from ..priors import Lengthscale, LogNormal, PriorLike
from .base import Theta, constant_variance
from .distance import distance
from .fourier_features import Draw, student_frequencies
from .radial import Profile, Radial, at_least_zero, exponential_profile
from .state_space import Markov, StateSpace, matern_states


@dataclass(frozen=True)
class Matern(Radial, Markov):
    """variance * (polynomial in s) * exp(-s), where s = sqrt(2 nu) |x - x'| / lengthscale.

    Here x and x' are rows of X [n, d]. Functions are continuous for nu = 0.5, have one derivative
    for 1.5 and two for 2.5.

    Isotropic in X as the model sees it: ``fit`` standardises columns one by one, and those that
    ``Dataset(coordinates=)`` names by one common factor. A fixed lengthscale is in the units of the
    data, and is the same in every direction of the data.

    Rasmussen & Williams (2006), equation 4.17, and equation 4.18 with gamma = 1 for nu = 0.5.

    Args:
        nu: Smoothness, one of 0.5, 1.5 and 2.5.
        variance: Prior of the variance, or a number that fixes it, in the unit of y^2.
        lengthscale: Prior of the lengthscale, or a number that fixes it, in the unit of X.

    Raises:
        SettingError: If nu is not 0.5, 1.5 or 2.5; if a hyperparameter is neither a prior nor a
            finite number, or is negative; in a fit, if it is fixed to 0.

    Examples:
        Correlations of rows that are one lengthscale apart, from rough to smooth functions:

        >>> import torch
        >>> from ppgp import kernels
        >>> X = torch.tensor([[0.0], [1.0]])
        >>> for nu in (0.5, 1.5, 2.5):
        ...     K = kernels.Matern(nu, variance=1.0, lengthscale=1.0)({}, X)
        ...     print(nu, round(float(K[0, 1]), 4))
        0.5 0.3679
        1.5 0.4834
        2.5 0.524
    """

    nu: float = 2.5
    variance: PriorLike = LogNormal(0.0, 1.0)
    lengthscale: PriorLike = Lengthscale()
    hyper = ("variance", "lengthscale")
    rescales = True
    about_origin = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in (0.5, 1.5, 2.5):
            do = "use one of them, or RBF for infinity"
            raise SettingError("nu = 0.5, 1.5 or 2.5 in Matern", repr(self.nu), do)

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        s = math.sqrt(2 * self.nu) * distance(X1, X2, h["lengthscale"])
        polynomial = {0.5: 1.0, 1.5: 1.0 + s, 2.5: 1.0 + s + s.square() / 3.0}[self.nu]
        return h["variance"] * polynomial * (-s).exp()

    def profile(self, h: Theta, squared: Tensor, spare: bool = False) -> Profile:
        if self.nu == 0.5:
            return exponential_profile(h["variance"], squared, spare)
        s = at_least_zero(squared, spare).mul_(2 * self.nu).sqrt_()
        tail = torch.sub(h["variance"].log(), s).exp_()
        K = torch.addcmul(tail, tail, s)  # variance (1 + s) exp(-s)
        if self.nu == 1.5:
            return Profile(K, tail, 3.0)
        return Profile(torch.addcmul(K, tail, s.square_(), value=1 / 3), K, 5 / 3)

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        return constant_variance(h, X)

    def spectrum(self, h: Theta, d: int, draw: Draw) -> Tensor:
        return student_frequencies(draw, d, h["lengthscale"], self.nu)

    def state_space(self, theta: Theta, like: Tensor) -> StateSpace:
        return matern_states(self.nu, lambda axes: self._values(theta, like, axes))
