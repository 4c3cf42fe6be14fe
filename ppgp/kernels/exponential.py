"""The exponential kernel, that of the Ornstein-Uhlenbeck process."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..priors import Lengthscale, LogNormal, PriorLike
from .base import Theta, constant_variance
from .distance import distance
from .fourier_features import Draw, student_frequencies
from .radial import Profile, Radial, exponential_profile
from .state_space import Markov, StateSpace, matern_states


@dataclass(frozen=True)
class Exponential(Radial, Markov):
    """variance * exp(-|x - x'| / lengthscale): rough paths, and the default of geostatistics.

    Here x and x' are rows of X [n, d].

    Isotropic in X as the model sees it: ``fit`` standardises columns one by one, and those that
    ``Dataset(coordinates=)`` names by one common factor. A fixed lengthscale is in the units of the
    data, and is the same in every direction of the data.

    Rasmussen & Williams (2006), equation 4.18 with gamma = 1.

    Args:
        variance: Prior of the variance, or a number that fixes it, in the unit of y^2.
        lengthscale: Prior of the lengthscale, or a number that fixes it, in the unit of X.

    Raises:
        SettingError: If a hyperparameter is neither a prior nor a finite number, or is negative;
            in a fit, if it is fixed to 0.

    Examples:
        On a line the process is Markov: correlations of neighbours multiply.

        >>> import torch
        >>> from ppgp import kernels
        >>> K = kernels.Exponential(1.0, 1.0)({}, torch.tensor([[0.0], [1.0], [2.0]]))
        >>> K[0]
        tensor([1.0000, 0.3679, 0.1353])
        >>> torch.allclose(K[0, 2], K[0, 1] * K[1, 2])
        True
    """

    variance: PriorLike = LogNormal(0.0, 1.0)
    lengthscale: PriorLike = Lengthscale()
    hyper = ("variance", "lengthscale")
    rescales = True
    about_origin = False

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        return h["variance"] * (-distance(X1, X2, h["lengthscale"])).exp()

    def profile(self, h: Theta, squared: Tensor, spare: bool = False) -> Profile:
        return exponential_profile(h["variance"], squared, spare)

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        return constant_variance(h, X)

    def spectrum(self, h: Theta, d: int, draw: Draw) -> Tensor:
        return student_frequencies(draw, d, h["lengthscale"], 0.5)

    def state_space(self, theta: Theta, like: Tensor) -> StateSpace:
        return matern_states(0.5, lambda axes: self._values(theta, like, axes))
