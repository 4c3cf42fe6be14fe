"""Conversion of the caller's tensors to dense float tensors, all of one layout in memory."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...errors import DataError, listed
from .entries import refuse_complex, refuse_masked
from .row_numbers import WrongRows

KEPT = (torch.float32, torch.float64)  # other dtypes become float64
ALIGNMENT = 64  # bytes; that of the tensors that torch allocates


def laid_out(values: Tensor) -> Tensor:
    """Return a dense tensor in C order, at an address that is a multiple of 64 bytes.

    Matrix products of one set of numbers differ in their last digits between layouts and between
    addresses, so that a fit would depend on how a table was made. A tensor that lies so already is
    returned as it is.

    Args:
        values: The tensor, of any shape and dtype.
    """
    strides = torch.empty(values.shape, device="meta").stride()
    if values.stride() == strides and values.data_ptr() % ALIGNMENT == 0:
        return values
    return values.clone(memory_format=torch.contiguous_format)


def of_array(array: np.ndarray, dtype: torch.dtype) -> Tensor:
    """Return a copy of an array, laid out as by ``laid_out``.

    Args:
        array: Booleans or real numbers of any shape, layout and byte order.
        dtype: The dtype of the copy; what overflows becomes infinite.
    """
    copy = torch.empty(array.shape, dtype=dtype, device="cpu")
    with np.errstate(over="ignore"):
        np.copyto(copy.numpy(), array, casting="unsafe")
    return copy


def of_tensor(values: Tensor, what: str) -> Tensor:
    """Return a dense tensor of real numbers in float32 or float64, without its gradient.

    It is laid out as by ``laid_out``.

    Args:
        values: The tensor.
        what: What it is called in messages.

    Raises:
        DataError: For complex numbers, and for tensors that are sparse, nested, masked or without
            values.
    """
    if isinstance(values, torch.masked.MaskedTensor):
        refuse_masked(~values.get_mask().cpu().numpy(), what)
        values = values.get_data()
    if values.layout is not torch.strided or values.is_nested:
        raise DataError(
            f"a dense tensor as {what}",
            "a sparse or nested one",
            "call .to_dense() or pad it first",
        )
    if values.is_meta:
        raise DataError(
            f"values in {what}", "a tensor without any, on the meta device", "pass the values"
        )
    if values.is_complex():
        refuse_complex(what)
    values = values.dequantize() if values.is_quantized else values.detach()
    if values.dtype not in KEPT:
        values = values.to(torch.float64)
    return laid_out(values)


def cast(values: Tensor, like: Tensor, what: str) -> Tensor:
    """Return ``values`` in the dtype and on the device of ``like``.

    Raises:
        DataError: If the dtype cannot represent a value; the message names its row.
    """
    moved = values.to(like)
    if torch.finfo(values.dtype).max > torch.finfo(moved.dtype).max:
        lost = torch.isinf(moved) & torch.isfinite(values).to(moved.device)
        if bool(lost.any()):
            rows = torch.nonzero(lost)[:, 0].unique().tolist()
            held = f"numbers that {str(moved.dtype).removeprefix('torch.')} holds in {what}"
            raise WrongRows(
                held,
                lambda rows: f"larger ones in {listed(rows, 'row')}",
                rows,
                "use float64 throughout",
            )
    return moved
