"""Variograms and block kriging."""

from ..runtime import libraries as libraries  # first: it imports NumPy and torch
from .kriging_of_blocks import block_kriging, discretised
from .variogram import EmpiricalVariogram, empirical_variogram
from .variogram_fit import VariogramFit, fit_variogram

__all__ = [
    "EmpiricalVariogram",
    "VariogramFit",
    "block_kriging",
    "discretised",
    "empirical_variogram",
    "fit_variogram",
]
