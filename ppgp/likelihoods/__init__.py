"""Likelihoods, the distributions of y given a latent function, one per file."""

from ..numerics import libraries as libraries  # first: it imports NumPy and torch
from .base import Likelihood
from .bernoulli import Bernoulli
from .categorical import Categorical
from .gaussian import Gaussian
from .poisson import Poisson
from .student_t import StudentT

__all__ = ["Bernoulli", "Categorical", "Gaussian", "Likelihood", "Poisson", "StudentT"]
