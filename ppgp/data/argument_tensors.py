"""Arrays and columns among the arguments of a program, as tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ..errors import DataError, PpgpError

__all__ = ["explained", "with_tensors"]

LONGEST = 200  # characters of a message of torch
KINDS = "biuf"  # NumPy's booleans, whole numbers and floats


def with_tensors(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a program, with arrays and columns of numbers as tensors.

    NumPy arrays, pandas columns and data frames of numbers become tensors: floats keep 32 or 64
    bits, whole numbers have 64, booleans stay booleans, and missing numbers are NaN. Any other
    argument is returned as it is.

    Args:
        arguments: ``{name: value}``.

    Raises:
        DataError: For an array or a column that does not hold numbers.
    """
    return {name: _tensor(name, value) for name, value in arguments.items()}


@contextmanager
def explained(arguments: Any) -> Iterator[None]:
    """Name the arguments of a program that fails because of their kinds or sizes.

    Args:
        arguments: The training data; a Dataset explains nothing.

    Raises:
        DataError: If the program fails, and its arguments are lists, or of sizes that do not fit.
    """
    try:
        yield
    except PpgpError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        found = _explanation(arguments, error) if isinstance(arguments, Mapping) else None
        if found is None:
            raise
        raise found from error


def _explanation(arguments: Mapping[str, Any], error: Exception) -> DataError | None:
    """Return what is wrong with the arguments of a program that failed, if they are the reason.

    Args:
        arguments: ``{name: value}``, after ``with_tensors``.
        error: What the program raised.

    Returns:
        The error for lists where the program fails by a TypeError, or for tensors of several
        lengths where it fails by their sizes; None otherwise.
    """
    reason = (str(error) or type(error).__name__).splitlines()[0][:LONGEST]
    lists = [name for name, value in arguments.items() if isinstance(value, list | tuple)]
    if lists and isinstance(error, TypeError):
        got = f"a list as {', '.join(map(repr, lists))} ({reason})"
        do = "pass torch.tensor(...) or numpy.array(...) of each"
        return DataError("tensors or arrays as the program's arguments", got, do)
    shapes = {
        name: list(value.shape)
        for name, value in arguments.items()
        if isinstance(value, torch.Tensor) and value.ndim
    }
    by_size = any(word in str(error).lower() for word in ("size", "shape"))
    if not by_size or len({shape[0] for shape in shapes.values()}) < 2:
        return None
    got = ", ".join(f"{name} of shape {shape}" for name, shape in shapes.items())
    do = "give these arguments the same rows, or correct the program"
    return DataError("arguments whose sizes fit in the program", f"{got} ({reason})", do)


def _tensor(name: str, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        array = value
    elif hasattr(value, "to_numpy") and hasattr(value, "index"):  # a column or a frame of pandas
        array = _of_pandas(value)
    else:
        return value
    if array.dtype.kind not in KINDS:
        got = f"an array of {array.dtype} as {name!r}"
        do = "convert it, for example by pandas.Categorical(...).codes for labels"
        raise DataError("numbers in the arrays among a program's arguments", got, do)
    if array.dtype.kind in "iu":
        array = array.astype(np.int64)
    elif array.dtype.kind == "f" and array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    return torch.from_numpy(np.array(array, order="C"))  # a copy that can be written to


def _of_pandas(value: Any) -> np.ndarray:
    """Return a column or a frame as an array; missing numbers are NaN."""
    array = value.to_numpy()
    if array.dtype != object:
        return array
    dtypes: Any = value.dtypes
    kinds = dtypes.tolist() if hasattr(dtypes, "tolist") else [dtypes]
    if all(getattr(kind, "kind", "O") in KINDS for kind in kinds):  # numbers with missing ones
        return value.to_numpy(dtype=np.float64, na_value=np.nan)
    return array
