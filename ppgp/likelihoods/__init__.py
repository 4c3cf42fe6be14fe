"""Likelihoods: what stands between a latent function and y, one a file."""

from ..numerics import libraries as libraries  # first: it imports NumPy and torch
from .base import Likelihood
from .bernoulli import Bernoulli
from .categorical import Categorical
from .gaussian import Gaussian
from .poisson import Poisson
from .student_t import StudentT

__all__ = ["Bernoulli", "Categorical", "Gaussian", "Likelihood", "Poisson", "StudentT"]
