"""Files that are foreign, damaged or name unknown classes raise a StorageError."""

from __future__ import annotations

import pickle
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from ppgp import models
from ppgp.errors import StorageError
from ppgp.posterior.files import encoding, storage
from ppgp.posterior.loading import load_posterior, table


@dataclass(frozen=True, eq=False)
class Record:
    tensor: Tensor | None = None
    level: Any = None


TABLE = {encoding.class_name(Record): Record}
anything = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)


def written(path: Path, tree: Any, **tensors: Tensor) -> Path:
    """Write a file of the right format with any tree of records in it."""
    return storage.write(path / "made.ppgp", tree, tensors)


FOREIGN = {
    "text": b"hello",
    "empty": b"",
    "pickle": pickle.dumps({"a": 1}),
    "zip": b"PK\x03\x04" + bytes(64),
    "zeros": bytes(1024),
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.ppgp"
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"posterior\.save") as error:
        storage.load(path, TABLE)
    assert "\n" not in str(error.value)


def test_a_missing_file_or_a_folder_is_refused(tmp_path: Path) -> None:
    for path, kind in ((tmp_path / "absent.ppgp", "no file"), (tmp_path, "the folder")):
        with pytest.raises(StorageError, match=f"got {kind} {path}"):
            storage.load(path, TABLE)


def test_another_safetensors_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    for metadata in (
        None,
        {"format": "pt"},
        {"format": storage.FORMAT},
        {"format": "ppgp-1", "record": "{}"},
        {"format": "ppgp-1", "record": "{}", "checksum": "0" * 64},
    ):
        save_file({"w": torch.zeros(2)}, str(path), metadata=metadata)
        with pytest.raises(StorageError, match="another kind of file"):
            storage.load(path, TABLE)


def test_a_file_without_its_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.ppgp"
    record = {"record": "{}"}
    for metadata in (
        {**record, "format": storage.FORMAT},
        {**record, "format": storage.FORMAT, "checksum": "0" * 64},
        {**record, "format": storage.FORMAT, "checksum": "none"},
    ):
        save_file({"w": torch.zeros(2)}, str(path), metadata=metadata)
        with pytest.raises(StorageError, match="checksum"):
            storage.load(path, TABLE)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.99])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    path = storage.save(tmp_path / "record.ppgp", Record(torch.arange(100.0), 0.5))
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(StorageError, match="unreadable"):
        storage.load(path, TABLE)


@pytest.mark.parametrize(
    "name", ["system", "os.system", "builtins.eval", "Record", "", None, 3, ["x"]], ids=repr
)
def test_a_class_that_is_not_in_the_table_is_refused(tmp_path: Path, name: object) -> None:
    path = written(tmp_path, {"class": name, "fields": {}})
    with pytest.raises(StorageError, match=r"a class of ppgp in the file|unreadable"):
        storage.load(path, TABLE)


def test_a_field_that_this_version_lacks_is_named(tmp_path: Path) -> None:
    tree = {"class": "inference.MAP", "fields": {"steps": 3, "momentum": 0.9}}
    with pytest.raises(StorageError, match=r"'momentum': a newer version of ppgp wrote the file"):
        storage.load(written(tmp_path, tree), table())


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.text(max_size=3)
    | st.sampled_from(sorted(TABLE)),
    lambda x: (
        st.lists(x, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["class", "fields", "tensor", "tuple", "map", "number", "missing", "level"]
            ),
            x,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@anything
@given(tree=JSON)
def test_a_damaged_record_gives_a_value_or_a_storage_error(tmp_path: Path, tree: Any) -> None:
    path = written(tmp_path, tree, **{"0": torch.zeros(1)})
    with suppress(StorageError):
        storage.load(path, TABLE)


def test_a_file_with_another_record_is_not_a_posterior(tmp_path: Path) -> None:
    path = storage.save(tmp_path / "gp.ppgp", models.GP())
    with pytest.raises(StorageError, match="a Posterior in the file, got GP"):
        load_posterior(path)
