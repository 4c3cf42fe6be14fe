"""Parquet files and options that no stream can be made of: one sentence each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ppgp
from ppgp.data.files.parquet_files import parquet_files
from ppgp.errors import DataError, PpgpError, SettingError, UnknownName
from tests.parquet_tables import write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "a.parquet", 2, x=[0.0, 1.0, 2.0], y=[0.0, 1.0, 2.0], t=["u", "v", "u"])


def refused(kind: type[PpgpError], sentence: str, call: Any) -> None:
    with pytest.raises(kind, match=re.escape(sentence)) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "_hidden.parquet").touch()
    refused(DataError, f"none in {tmp_path}", lambda: ppgp.stream(tmp_path, "y"))


def test_no_file(tmp_path: Path) -> None:
    refused(DataError, "expected a Parquet file or a", lambda: ppgp.stream(tmp_path / "no", "y"))
    refused(DataError, "got an empty list", lambda: ppgp.stream([], "y"))
    pattern = str(tmp_path / "*.parquet")
    refused(DataError, "pass the folder, or a list of files", lambda: ppgp.stream(pattern, "y"))


def test_rows_in_memory() -> None:
    frame = pd.DataFrame({"x": [1.0], "y": [2.0]})
    words = "got DataFrame: pass a path as text; rows in memory are a ppgp.Dataset"
    refused(DataError, words, lambda: parquet_files(frame))


def test_a_text_file(tmp_path: Path) -> None:
    other = tmp_path / "a.csv"
    other.write_text("x,y\n1,2\n" * 10, encoding="utf-8")
    words = "convert it once: pandas.read_csv(path).to_parquet(other)"
    refused(DataError, words, lambda: ppgp.stream(other, "y"))


def test_a_file_that_is_not_parquet(tmp_path: Path) -> None:
    other = tmp_path / "a.parquet"
    other.write_text("x,y\n1,2\n" * 10, encoding="utf-8")
    refused(DataError, "a readable Parquet file, got a.parquet", lambda: ppgp.stream(other, "y"))


def test_a_file_that_was_cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])
    refused(DataError, "a readable Parquet file, got a.parquet", lambda: ppgp.stream(path, "y"))


def test_a_file_twice(path: Path) -> None:
    refused(DataError, "each file once", lambda: ppgp.stream([path, path], "y"))


def test_no_rows(tmp_path: Path) -> None:
    empty = write(tmp_path / "a.parquet", x=np.zeros(0), y=np.zeros(0))
    refused(
        DataError, "at least one row, got none in file a.parquet", lambda: ppgp.stream(empty, "y")
    )


def test_names_that_no_column_has(path: Path) -> None:
    refused(UnknownName, "target column", lambda: ppgp.stream(path, "z"))
    refused(UnknownName, "feature", lambda: ppgp.stream(path, "y", ["z"]))
    refused(UnknownName, "column of weights", lambda: ppgp.stream(path, "y", ["x"], weights="z"))


def test_a_column_with_two_parts(path: Path) -> None:
    refused(SettingError, "column y twice", lambda: ppgp.stream(path, "y", ["x", "y"]))
    refused(SettingError, "write ['x']", lambda: ppgp.stream(path, "y", "x"))
    refused(DataError, "at least one feature", lambda: ppgp.stream(path, "y", []))


def test_text_among_the_features(path: Path) -> None:
    refused(DataError, "numbers in column t, got the type string", lambda: ppgp.stream(path, "y"))


@pytest.mark.parametrize("bad", [None, np.nan, np.inf])
def test_a_value_that_is_missing_or_not_finite(tmp_path: Path, bad: float | None) -> None:
    write(tmp_path / "a.parquet", 2, x=[0.0, 1.0, 2.0], y=[0.0, 1.0, 2.0])
    write(tmp_path / "b.parquet", 2, x=[0.0, 1.0, bad], y=[0.0, 1.0, 2.0])
    stream = ppgp.stream(tmp_path, "y")
    where = "in column x of b.parquet, row group 1"
    refused(DataError, where, stream.statistics)
    refused(DataError, where, lambda: list(stream.batches(2, epochs=1)))


def test_a_label_that_is_missing(tmp_path: Path) -> None:
    stream = ppgp.stream(write(tmp_path / "a.parquet", x=[0.0, 1.0], y=["u", None]), "y")
    refused(DataError, "an empty cell in column y of a.parquet, row group 0", stream.statistics)


@pytest.mark.parametrize("bad", [None, np.nan])
def test_the_first_bad_row_is_counted_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: float | None
) -> None:
    monkeypatch.setattr("ppgp.data.files.parquet_rows.AT_ONCE", 3)
    x: list[float | None] = [float(i) for i in range(20)]
    x[16], x[18] = bad, bad
    stream = ppgp.stream(write(tmp_path / "a.parquet", 10, x=x, y=np.zeros(20)), "y")
    refused(DataError, "row group 1, row 16 of the file", stream.statistics)
    second = stream.shard(3, 4)  # the second half of the second row group
    assert second.pieces[0].start == 5
    refused(DataError, "row group 1, row 16 of the file", second.statistics)


def test_weights_that_are_not_positive(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", x=[0.0, 1.0], y=[1.0, 2.0], w=[1.0, 0.0])
    refused(DataError, "weights above 0", ppgp.stream(path, "y", weights="w").statistics)


def test_numbers_whose_squares_overflow(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", x=[0.0, 1e200], y=[1.0, 2.0])
    refused(DataError, "column x with larger numbers", ppgp.stream(path, "y").statistics)


def test_a_column_that_is_missing_in_a_file(path: Path) -> None:
    other = write(path.parent / "b.parquet", y=[0.0])
    refused(
        DataError,
        "column x in every file, got b.parquet without",
        lambda: ppgp.stream([path, other], "y", ["x"]),
    )


@pytest.mark.parametrize("other", [[1, 2], ["1", "2"], [True, False]])
def test_a_column_that_changes_its_type_between_files(path: Path, other: list[Any]) -> None:
    second = write(path.parent / "b.parquet", x=other, y=[0.0, 1.0])
    refused(
        DataError,
        "column x of one type in all files, got double in a.parquet and",
        lambda: ppgp.stream([path, second], "y", ["x"]),
    )


def test_ranks_that_do_not_exist(path: Path) -> None:
    stream = ppgp.stream(path, "y", ["x"])
    refused(SettingError, "a rank from 0 to size - 1, got rank 2 of 2", lambda: stream.shard(2, 2))
    refused(SettingError, "at most 3 processes, got 4", lambda: stream.shard(0, 4))


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"seed": -1}, {"pool": 0}, {"epochs": 0}])
def test_options_of_batches(path: Path, options: dict[str, Any]) -> None:
    ((name, _),) = options.items()
    stream = ppgp.stream(path, "y", ["x"])
    refused(SettingError, f" as {name}", lambda: stream.batches(**{"batch_size": 2, **options}))


def test_tables_without_rows(path: Path) -> None:
    stream = ppgp.stream(path, "y", ["x"])
    refused(SettingError, "at least 1 as rows, got 0", lambda: stream.sample(0))
    refused(SettingError, "at least 1 as rows, got -1", lambda: stream.sample(-1))
    refused(SettingError, "at least 1 as rows, got 0", lambda: list(stream.chunks(0)))


def test_a_state_of_another_order(path: Path) -> None:
    stream = ppgp.stream(path, "y", ["x"])
    state = iter(stream.batches(2, seed=1)).state_dict()
    resumed = iter(stream.batches(2, seed=2))
    refused(SettingError, "seed=2, got seed=1", lambda: resumed.load_state_dict(state))
