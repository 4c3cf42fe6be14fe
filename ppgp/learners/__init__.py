"""Learners: regressions that boosting fits to gradients, each in a file, beside helper modules."""

from ..runtime import libraries as libraries  # first: it imports NumPy and torch
from .base import Growing as Growing
from .base import Learner
from .estimator import Estimator
from .linear import Linear
from .stacking import stack as stack
from .trees import Trees

__all__ = ["Estimator", "Learner", "Linear", "Trees"]
