"""Likelihoods, the distributions of y given functions of x, each in a file, beside helpers."""

from typing import TYPE_CHECKING

from ..display.missing_names import hints
from ..runtime import libraries as libraries  # first: it imports NumPy and torch
from .asymmetric_laplace import AsymmetricLaplace
from .base import OTHER_NAMES as OTHER_NAMES
from .base import Likelihood
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .exponential import Exponential
from .from_distribution import FromDistribution
from .gamma import Gamma
from .gaussian import Gaussian
from .laplace import Laplace
from .log_normal import LogNormal
from .negative_binomial import NegativeBinomial
from .ordinal import Ordinal
from .parametric import Parametric as Parametric
from .parametric import Predicted
from .poisson import Poisson
from .scored import Scored as Scored
from .student_t import StudentT
from .weibull import Weibull
from .zero_inflated import ZeroInflated

__all__ = [
    "AsymmetricLaplace",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Exponential",
    "FromDistribution",
    "Gamma",
    "Gaussian",
    "Laplace",
    "Likelihood",
    "LogNormal",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "Predicted",
    "StudentT",
    "Weibull",
    "ZeroInflated",
]

if not TYPE_CHECKING:  # a type checker reports unknown names itself
    __getattr__ = hints(__name__, __all__, OTHER_NAMES)
