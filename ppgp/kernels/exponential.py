"""The exponential kernel, that of the Ornstein-Uhlenbeck process."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..priors import Lengthscale, LogNormal, PriorLike
from .base import Theta
from .distance import distance
from .fourier_features import Draw, student_frequencies
from .hyperparameters import constant_variance
from .matern_states import matern_states
from .radial import Profile, Radial, exponential_profile
from .state_space import Markov, StateSpace


@dataclass(frozen=True)
class Exponential(Radial, Markov):
    """variance * exp(-|x - x'| / lengthscale): rough paths, and the default of geostatistics.

    Isotropic in X as the model sees it: ``fit`` standardises columns one by one, and those that
    ``Dataset(coordinates=)`` names by one common factor. A fixed lengthscale is in the units of the
    data, and is the same in every direction of the data.

    Rasmussen & Williams (2006), equation 4.18 with gamma = 1.

    Args:
        variance: Prior of the variance, or a number that fixes it.
        lengthscale: Prior of the lengthscale, or a number that fixes it.
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
