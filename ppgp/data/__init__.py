"""Tables: a Dataset, its Scaler, checked arrays, and reading from names and files."""

from .arrays import as_tensor, check_inputs, check_noise
from .dataset import Dataset, Scaler, inputs_of
from .loading import load, read_frame

__all__ = ["Dataset", "Scaler", "as_tensor", "check_inputs", "check_noise", "inputs_of", "load", "read_frame"]
