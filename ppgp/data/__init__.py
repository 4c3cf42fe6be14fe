"""Tables: a Dataset, its Scaler, checked arrays, and reading from names and files."""

from ..numerics import libraries as libraries  # first: it imports NumPy and torch
from .arrays import as_tensor, check_inputs, check_noise
from .columns import inputs_of
from .dataset import Dataset, Scaler, in_order
from .loading import load, read_frame

__all__ = [
    "Dataset",
    "Scaler",
    "as_tensor",
    "check_inputs",
    "check_noise",
    "in_order",
    "inputs_of",
    "load",
    "read_frame",
]
