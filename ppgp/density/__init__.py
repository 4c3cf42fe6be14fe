"""Where a model meets data: one log density with its compiled gradient."""

from ..runtime import libraries as libraries  # first: it imports NumPy and torch
from .target import Target

__all__ = ["Target"]
