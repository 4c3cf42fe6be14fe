"""Learners: regressions that boosting fits to gradients, one per file."""

from ..numerics import libraries as libraries  # first: it imports NumPy and torch
from .base import Growing, Learner
from .stacking import stack
from .trees import Trees

__all__ = ["Growing", "Learner", "Trees", "stack"]
