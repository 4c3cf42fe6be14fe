"""Covariance functions, one kernel per file, and their sums, products and wrappers."""

from typing import TYPE_CHECKING

from ..display.missing_names import hints
from ..runtime import libraries as libraries  # first: it imports NumPy and torch
from .anisotropy import Anisotropy
from .around import Unscaled
from .base import Kernel, Product, Sum
from .constant import Constant
from .coregionalisation import Coregionalisation
from .cosine import Cosine
from .deep import Deep
from .exponential import Exponential
from .linear import Linear
from .linear_variogram import LinearVariogram
from .matern import Matern
from .periodic import Periodic
from .polynomial import Polynomial
from .rational_quadratic import RationalQuadratic
from .rbf import RBF
from .spectral_mixture import SpectralMixture
from .sphere import Sphere
from .spherical import Spherical
from .white import White
from .wrappers import ARD, Metric, Multiple, Scale, Subspace

__all__ = [
    "ARD",
    "RBF",
    "Anisotropy",
    "Constant",
    "Coregionalisation",
    "Cosine",
    "Deep",
    "Exponential",
    "Kernel",
    "Linear",
    "LinearVariogram",
    "Matern",
    "Metric",
    "Multiple",
    "Periodic",
    "Polynomial",
    "Product",
    "RationalQuadratic",
    "Scale",
    "SpectralMixture",
    "Sphere",
    "Spherical",
    "Subspace",
    "Sum",
    "Unscaled",
    "White",
]

if not TYPE_CHECKING:  # a type checker reports unknown names itself
    others = dict.fromkeys(("ExpQuad", "ExponentiatedQuadratic", "SquaredExponential"), "RBF")
    __getattr__ = hints(__name__, __all__, others)
