"""Tables: Dataset and Scaler, checked arrays, and tables loaded by name or from files."""

from ..runtime import libraries as libraries  # first: it imports NumPy and torch
from .columns import inputs_of
from .dataset import Dataset, Scaler
from .entries.arrays import as_tensor, check_inputs
from .files.loading import load
from .files.table_files import read_frame
from .new_rows import in_order
from .outputs import Outputs
from .roles import check_noise
from .stream.stream import Stream

__all__ = [
    "Dataset",
    "Outputs",
    "Scaler",
    "Stream",
    "as_tensor",
    "check_inputs",
    "check_noise",
    "in_order",
    "inputs_of",
    "load",
    "read_frame",
]
