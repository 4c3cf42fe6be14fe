"""Records are written to a file and read back."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ppgp import kernels, models, priors
from ppgp.errors import StorageError
from ppgp.posterior import loading
from ppgp.posterior.files import encoding, storage


@dataclass(frozen=True, eq=False)
class Inner:
    level: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Record:
    tensor: Tensor | None = None
    inner: Inner | None = None
    values: Any = None
    tensors: dict[str, Tensor] = field(default_factory=dict)


TABLE = {encoding.class_name(kind): kind for kind in (Inner, Record)}
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda x: (
        st.lists(x, max_size=4)
        | st.lists(x, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=8), x, max_size=4)
    ),
    max_leaves=12,
)
anything = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal, including types, NaN and signs of zero."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (
            a == b and math.copysign(1, a) == math.copysign(1, b)
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return (
        list(a) == list(b) and all(same(a[k], b[k]) for k in a) if isinstance(a, dict) else a == b
    )


def round_trip(path: Path, record: Any) -> Any:
    return storage.load(storage.save(path / "record.ppgp", record), TABLE)


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.bool, torch.int64, torch.int32, torch.float16],
    ids=str,
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 4)], ids=str)
def test_tensors_keep_dtype_shape_and_values(
    tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    tensor = torch.arange(math.prod(shape)).reshape(shape).to(dtype)
    found = round_trip(tmp_path, Record(tensor, tensors={"a": tensor, "b": tensor})).tensors["b"]
    assert (found.dtype, found.shape) == (dtype, tensor.shape)
    assert torch.equal(found, tensor)


def test_tensors_keep_nan_infinity_and_layouts_that_are_not_contiguous(tmp_path: Path) -> None:
    odd = torch.tensor([[math.nan, math.inf], [-math.inf, -0.0]], dtype=torch.float64)
    views = {
        "transposed": odd.mT,
        "row": odd[1],
        "expanded": odd[:1].expand(3, 2),
        "grad": odd.clone().requires_grad_(),
    }
    found = round_trip(tmp_path, Record(tensors=views)).tensors
    for name, view in views.items():
        assert torch.equal(found[name].isnan(), view.isnan())
        assert torch.equal(found[name].nan_to_num(), view.detach().nan_to_num())
        assert not found[name].requires_grad


def test_records_nest_and_tuples_stay_tuples(tmp_path: Path) -> None:
    found = round_trip(
        tmp_path, Record(inner=Inner(0.9, ("a", "b")), values=[Inner(math.inf), (1, [2, (3,)])])
    )
    assert isinstance(found, Record)
    assert isinstance(found.inner, Inner)
    assert (found.inner.level, found.inner.names) == (0.9, ("a", "b"))
    assert found.values[0].level == math.inf
    assert found.values[1] == (1, [2, (3,)])


@anything
@given(value=PLAIN)
def test_plain_values_come_back_the_same(tmp_path: Path, value: Any) -> None:
    assert same(round_trip(tmp_path, Record(values=value)).values, value)


def test_numpy_values_come_back_as_numbers_and_arrays(tmp_path: Path) -> None:
    found = round_trip(
        tmp_path, Record(values=[np.float64(0.5), np.int64(3), np.bool_(True), np.eye(2)])
    ).values
    assert found[:3] == [0.5, 3, True]
    assert found[2] is True
    assert isinstance(found[3], np.ndarray)
    assert np.array_equal(found[3], np.eye(2))


def test_keys_that_are_not_text_come_back_unchanged(tmp_path: Path) -> None:
    values = {1: "one", (2, "b"): "two", None: "none", False: "false"}
    assert round_trip(tmp_path, Record(values=values)).values == values


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        b"text",
        1j,
        datetime(2000, 1, 1),
        np.array(["a", None], dtype=object),
        torch.eye(2).to_sparse(),
        range(3),
    ],
    ids=lambda v: type(v).__name__,
)
def test_values_that_cannot_be_stored_are_refused_when_saving(tmp_path: Path, value: Any) -> None:
    with pytest.raises(StorageError, match=r"Record\.values\.0"):
        storage.save(tmp_path / "record.ppgp", Record(values=[value]))
    assert not list(tmp_path.iterdir())


def test_a_record_that_contains_itself_is_refused(tmp_path: Path) -> None:
    values: list[Any] = []
    values.append(values)
    with pytest.raises(StorageError, match="holds itself"):
        storage.save(tmp_path / "record.ppgp", Record(values=values))


def test_two_objects_of_one_name_are_refused_unless_they_are_equal(tmp_path: Path) -> None:
    def one() -> Any:
        return lambda: 1

    with pytest.raises(StorageError, match="one object per name"):
        storage.save(tmp_path / "record.ppgp", Record(values=[one(), one()]))
    relu, tanh = (nn.Sequential(nn.Linear(2, 1), layer) for layer in (nn.ReLU(), nn.Tanh()))
    with pytest.raises(StorageError, match="one object per name"):
        storage.save(tmp_path / "record.ppgp", Record(values=[relu, tanh]))
    path = storage.save(tmp_path / "record.ppgp", Record(values=[relu, copy.deepcopy(relu)]))
    with pytest.raises(StorageError, match="other layers"):
        storage.load(path, TABLE, {"Sequential": tanh})


def test_a_failed_write_keeps_the_previous_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = storage.save(tmp_path / "record.ppgp", Inner(0.5))

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(StorageError, match="no space"):
        storage.save(path, Inner(0.9))
    monkeypatch.undo()
    assert storage.load(path, TABLE).level == 0.5
    assert list(tmp_path.iterdir()) == [path]


def test_folders_are_created_and_the_path_is_returned(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "record.ppgp"
    assert storage.save(path, Inner(0.5)) == path
    assert storage.load(str(path), TABLE).level == 0.5


def test_an_object_that_a_file_cannot_hold_is_named_and_can_be_passed(tmp_path: Path) -> None:
    network = torch.nn.Linear(2, 1)
    path = storage.save(tmp_path / "record.ppgp", Record(values=network))
    with pytest.raises(
        StorageError, match=r"'Linear', which no file can hold, got no model: pass it"
    ):
        storage.load(path, TABLE)
    assert storage.load(path, TABLE, {"Linear": network}).values is network


def test_no_two_classes_that_a_file_may_name_share_a_name() -> None:
    """A kernel and a prior are both called Exponential."""
    table = loading.table()
    assert table[encoding.class_name(kernels.Exponential)] is kernels.Exponential
    assert table[encoding.class_name(priors.Exponential)] is priors.Exponential
    assert all(encoding.class_name(kind) == name for name, kind in table.items())


def test_every_kernel_and_prior_comes_back_equal(tmp_path: Path) -> None:
    k = kernels.Scale(
        kernels.ARD(kernels.RBF()) * kernels.Exponential(lengthscale=priors.Gamma(2, 3))
        + kernels.White(0.1)
    )
    recipe = models.GP(k, noise=priors.Exponential(2.0))
    assert storage.load(storage.save(tmp_path / "gp.ppgp", recipe), loading.table()) == recipe
