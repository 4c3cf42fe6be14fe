"""Posterior, Prediction and Region; convergence statistics, export to ArviZ, and saved files."""

from ..numerics import libraries as libraries  # first: it imports NumPy and torch
from .posterior import Posterior
from .prediction import Prediction
from .region import Region

__all__ = ["Posterior", "Prediction", "Region"]
