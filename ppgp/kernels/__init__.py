"""Covariance functions: one kernel a file, and the algebra that combines them."""

from .constant import Constant
from .deep import Deep
from .exponential import Exponential
from .kernel import Kernel, Product, Sum
from .linear import Linear
from .matern import Matern
from .periodic import Periodic
from .polynomial import Polynomial
from .rational_quadratic import RationalQuadratic
from .rbf import RBF
from .spectral_mixture import SpectralMixture
from .white import White
from .wrappers import ARD, Scale, Subspace

__all__ = [
    "ARD",
    "RBF",
    "Constant",
    "Deep",
    "Exponential",
    "Kernel",
    "Linear",
    "Matern",
    "Periodic",
    "Polynomial",
    "Product",
    "RationalQuadratic",
    "Scale",
    "SpectralMixture",
    "Subspace",
    "Sum",
    "White",
]
