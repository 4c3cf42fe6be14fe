"""Devices and dtypes to which a table is moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ppgp import Dataset
from ppgp.errors import DataError, SettingError

DATA = Dataset(np.eye(3), [0.25, 0.5, 1.0], noise_sd=[0.1, 0.2, 0.3])
_, SCALER = DATA.standardised()
THERE = [*(f"cuda:{i}" for i in range(torch.cuda.device_count())), "cpu"]
NOT_THERE = [
    "cuda:99",
    "mps:7",
    "xpu:9",
    "gpu",
    "tpu:0",
    "",
    99,
    torch.device("cuda:99"),
    *(["cuda", torch.device("cuda")] if not torch.cuda.is_available() else []),
    *(["mps"] if not torch.mps.is_available() else []),
]


@pytest.mark.parametrize("moved", [DATA, SCALER], ids=["table", "scaler"])
@pytest.mark.parametrize("device", NOT_THERE, ids=repr)
def test_a_device_that_is_not_there_is_named_with_those_that_are(moved: Any, device: Any) -> None:
    for call in (
        lambda: moved.to(device),
        lambda: moved.to(device=device),
        lambda: moved.to(device, torch.float32),
    ):
        with pytest.raises(SettingError, match=r"a device that is there \(cpu.*\), got") as caught:
            call()
        assert caught.value.got == repr(str(device))


@pytest.mark.parametrize("device", THERE)
def test_a_device_that_is_there_holds_the_table(device: str) -> None:
    moved = DATA.to(device, torch.float32)
    assert moved.noise_sd is not None
    for part in (moved.X, moved.y, moved.noise_sd):
        assert str(part.device) == device
        assert part.dtype == torch.float32


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.int64,
        torch.uint16,
        torch.bool,
        torch.complex64,
        torch.quint8,
        np.int32,
        "int64",
        torch.tensor([1]),
    ],
    ids=repr,
)
def test_a_dtype_that_would_change_the_numbers_is_refused(dtype: Any) -> None:
    with pytest.raises(SettingError, match=r"torch.float32 or torch.float64 as the dtype"):
        DATA.to(dtype)


@pytest.mark.parametrize(
    "dtype", [torch.float32, np.float32, np.dtype("float32"), "float32", torch.zeros(1)], ids=repr
)
def test_single_precision_is_taken_by_any_of_its_names(dtype: Any) -> None:
    moved = DATA.to(dtype)
    assert moved.X.dtype == moved.y.dtype == torch.float32
    assert torch.equal(moved.X.double(), DATA.X)


def test_nothing_and_the_arguments_of_torch_are_taken() -> None:
    assert DATA.to().X.dtype == torch.float64
    assert DATA.to(None).X.dtype == torch.float64
    assert DATA.to("cpu", torch.float32, True).X.dtype == torch.float32
    assert DATA.to(dtype=torch.float32).y.dtype == torch.float32


def test_the_meta_device_holds_no_values() -> None:
    with pytest.raises(DataError, match="meta device"):
        DATA.to("meta")
