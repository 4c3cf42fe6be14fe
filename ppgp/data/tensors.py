"""Conversion of the caller's tensors to dense float tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import DataError, listed
from .entries import refuse_complex, refuse_masked
from .row_numbers import WrongRows

KEPT = (torch.float32, torch.float64)  # other dtypes become float64


def of_tensor(values: Tensor, what: str) -> Tensor:
    """Return a dense tensor of real numbers in float32 or float64, without its gradient.

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
    if values.dtype in KEPT:
        return values
    return values.to(torch.float64)


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
