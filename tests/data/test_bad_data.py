"""Invalid tables raise a DataError in one sentence that states the place of the problem."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from ppgp.data import Dataset, Scaler, as_tensor, check_inputs, load
from ppgp.errors import DataError, DataWarning, PpgpError, SettingError, UnknownName

X = np.arange(12.0).reshape(6, 2)
Y = np.arange(6.0)


def with_value(value: float, row: int, column: int) -> np.ndarray:
    copy = X.copy()
    copy[row, column] = value
    return copy


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "NaN in X": (
        lambda: Dataset(with_value(np.nan, 3, 1), Y),
        "NaN or infinity in row 3, column 1",
    ),
    "infinity in X": (
        lambda: Dataset(with_value(-np.inf, 0, 0), Y),
        "NaN or infinity in row 0, column 0",
    ),
    "NaN in a named column": (
        lambda: Dataset(with_value(np.nan, 3, 1), Y, ["age", "bmi"]),
        "row 3, column bmi",
    ),
    "many NaN": (
        lambda: Dataset(np.full((9, 2), np.nan), np.zeros(9)),
        r"rows 0, 1, 2, 3, 4, \.\.\. \(9 in all\), columns 0, 1",
    ),
    "NaN in y": (lambda: Dataset(X, [0, 1, np.nan, 3, 4, 5]), "NaN or infinity in row 2 of y"),
    "infinity in y": (lambda: Dataset(X, [0, 1, 2, 3, np.inf, np.inf]), "rows 4, 5 of y"),
    "None in y": (lambda: Dataset(X, [0.0, None, 2.0, 3.0, 4.0, 5.0]), "in y"),
    "NaN among codes of classes": (
        lambda: Dataset(X, [0, 1, np.nan, 0, 1, 1], classes=["a", "b"]),
        "in y",
    ),
    "X with one axis": (lambda: Dataset(Y, Y), r"shape \[n, d\], got shape \[6\]: .*X\[:, None\]"),
    "X with three axes": (lambda: Dataset(np.zeros((6, 2, 2)), Y), "flatten each row"),
    "a number as X": (lambda: Dataset(3.0, Y), r"shape \[n, d\]"),
    "ragged X": (lambda: Dataset([[1.0, 2.0], [3.0]], [0.0, 1.0]), "X"),
    "no columns": (lambda: Dataset(np.zeros((6, 0)), Y), "at least one column"),
    "y too short": (lambda: Dataset(X, Y[:4]), r"rows of X \(6\), got 4"),
    "y with two columns": (lambda: Dataset(X, X), r"y with shape \[n\], got shape \[6, 2\]"),
    "no rows": (lambda: Dataset(np.zeros((0, 2)), []), "at least one row"),
    "text in X": (
        lambda: Dataset([["1", "red"], ["2", "blue"]], [0, 1]),
        "numbers in X, got 'red'|numbers in X, got '1'",
    ),
    "dates in X": (
        lambda: Dataset(np.array([["2024-01-01"], ["2024-01-02"]], dtype="datetime64[D]"), [0, 1]),
        "numbers in X",
    ),
    "complex X": (lambda: Dataset(X * 1j, Y), "real numbers in X"),
    "labels of two kinds": (
        lambda: Dataset(X, np.array(["a", 1, "b", 2, "a", 1], dtype=object)),
        "labels of one kind",
    ),
    "code beyond classes": (
        lambda: Dataset(X, [0, 1, 2, 0, 1, 2], classes=["a", "b"]),
        r"labels 0 \.\. 1 in y.*\[2\.0\]",
    ),
    "too few names": (lambda: Dataset(X, Y, ["age"]), "2 feature names, got 1"),
    "text in a frame": (
        lambda: Dataset.from_frame(
            pd.DataFrame({"a": [1.0, 2.0], "colour": ["red", "blue"], "y": [0.0, 1.0]}), "y"
        ),
        "text or dates in column colour: .*one_hot=True",
    ),
    "a frame of one column": (
        lambda: Dataset.from_frame(pd.DataFrame({"y": [0.0, 1.0]}), "y"),
        "at least one column",
    ),
    "a frame without rows": (
        lambda: Dataset.from_frame(pd.DataFrame({"a": [], "y": []}, dtype=float), "y"),
        "at least one row",
    ),
    "a missing value in a frame": (
        lambda: Dataset.from_frame(
            pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "y": [0.0, 1.0]}), "y"
        ),
        "column a, row 1",
    ),
    "two columns of one name": (
        lambda: Dataset.from_frame(pd.DataFrame(np.eye(3), columns=["a", "a", "y"]), "y"),
        "different column names",
    ),
    "NaN in new rows": (lambda: check_inputs(with_value(np.nan, 3, 1)), "row 3, column 1"),
    "new rows of another width": (
        lambda: Scaler.of(Dataset(X, Y)).inputs(torch.zeros(2, 3).double()),
        "2 columns, as in training, got 3",
    ),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD.keys())
def test_invalid_data_raise_one_sentence_with_the_place(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(DataError, match=message) as error:
        make()
    assert isinstance(error.value, PpgpError)
    assert "\n" not in str(error.value)
    assert error.value.do


def test_the_error_for_an_unknown_target_offers_the_nearest_column() -> None:
    frame = pd.DataFrame({"age": [1.0, 2.0], "progression": [0.0, 1.0]})
    with pytest.raises(
        UnknownName,
        match=r"target column, got 'progresion': did you mean 'progression'\? "
        "known: age, progression",
    ):
        Dataset.from_frame(frame, "progresion")


@pytest.mark.parametrize(
    "fractions", [(), (0.0, 0.5), (0.8, 0.3), (-0.1,), (1.5,), (float("nan"),)], ids=str
)
def test_fractions_outside_0_1_are_refused(fractions: tuple[float, ...]) -> None:
    with pytest.raises(SettingError, match=r"fractions in \(0, 1\]"):
        Dataset(X, Y).split(*fractions)


def test_a_part_without_rows_is_refused() -> None:
    with pytest.raises(SettingError, match="at least one row in every part"):
        Dataset(X, Y).split(0.95)


def test_a_constant_column_is_named_in_a_warning_and_only_centred() -> None:
    data = Dataset(np.column_stack([Y, np.full(6, 0.1)]), Y, ["age", "clinic"])
    with pytest.warns(DataWarning, match="column clinic of X constant"):
        scaled, _ = data.standardised()
    assert scaled.X[:, 1].abs().max() < 1e-15
    assert float(scaled.X[:, 0].std(correction=0)) == pytest.approx(1.0)


def test_a_constant_target_warns() -> None:
    with pytest.warns(DataWarning, match="y is constant"):
        scaled, scaler = Dataset(X, np.full(6, 3.0)).standardised()
    assert scaled.y.tolist() == [0.0] * 6
    assert float(scaler.y_sd) == 1.0


def test_a_single_row_is_a_constant() -> None:
    with pytest.warns(DataWarning, match="constant"):
        scaled, _ = Dataset(X[:1], Y[:1]).standardised()
    assert bool(torch.isfinite(scaled.X).all())


def test_decimal_commas_are_named() -> None:
    frame = pd.DataFrame({"depth": ["1", "1,5", "2"], "y": [1.0, 2.0, 3.0]})
    with pytest.raises(
        DataError, match=r"text in column depth: '1,5' in row 1 has a decimal comma"
    ):
        Dataset.from_frame(frame, "y")
    with pytest.raises(DataError, match=r"got '1,5' in row 1: write a point .* decimal comma"):
        as_tensor(np.array(["1", "1,5"]), "x")


def test_a_file_that_is_no_table_is_perhaps_a_posterior(tmp_path: Path) -> None:
    path = tmp_path / "fit.ppgp"
    path.write_bytes(b"a posterior")
    with pytest.raises(DataError, match=r"got fit\.ppgp: read a saved .* by ppgp\.load_posterior"):
        load(path)
    path.unlink()
    with pytest.raises(UnknownName, match="data set"):
        load(path)


def test_a_column_in_one_hot_that_is_dropped_is_named() -> None:
    with pytest.raises(SettingError, match="in one_hot, got 'rock', which is dropped"):
        load("wells.csv", "y", drop=["rock"], one_hot=["rock"])


def test_decimal_commas_in_the_target_are_named() -> None:
    with pytest.raises(DataError, match=r"got '1,5' in row 0: write a point .* decimal comma"):
        Dataset(X, ["1,5", "2", "3,5", "4", "5", "6"])
