"""Covariance functions: one kernel a file, and the algebra that combines them."""

from .algebra import ARD, Product, Scale, Subspace, Sum
from .constant import Constant
from .exponential import Exponential
from .kernel import Kernel
from .linear import Linear
from .matern import Matern
from .periodic import Periodic
from .polynomial import Polynomial
from .rational_quadratic import RationalQuadratic
from .rbf import RBF
from .white import White

__all__ = [
    "ARD",
    "Constant",
    "Exponential",
    "Kernel",
    "Linear",
    "Matern",
    "Periodic",
    "Polynomial",
    "Product",
    "RBF",
    "RationalQuadratic",
    "Scale",
    "Subspace",
    "Sum",
    "White",
]
