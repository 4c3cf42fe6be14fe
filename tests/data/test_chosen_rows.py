"""The rows that a caller chooses: numbers, slices and masks of every kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ppgp import Dataset
from ppgp.data.entries.row_numbers import NoSuchRow, chosen_rows
from ppgp.errors import DataError

N = 5
MASK = [True, False, True, False, False]
FORMS: dict[str, Any] = {
    "number": 2,
    "from the end": -1,
    "NumPy number": np.int32(3),
    "tensor number": torch.tensor(3),
    "list": [1, 4],
    "tuple": (1, 4),
    "range": range(3),
    "nothing": [],
    "array": np.array([4, 0]),
    "array backwards": np.array([0, 1, 2])[::-1],
    "uint8 array": np.array([1, 2], np.uint8),
    "tensor": torch.tensor([3, 3]),
    "uint8 tensor": torch.tensor([1, 2], dtype=torch.uint8),
    "uint16 tensor": torch.tensor([1, 2], dtype=torch.uint16),
    "column": pd.Series([4, 2], index=[7, 8]),
    "index": pd.Index([1, 2]),
    "mask list": MASK,
    "mask array": np.array(MASK),
    "mask tensor": torch.tensor(MASK),
    "mask column": pd.Series(MASK, index=[9, 8, 7, 6, 5]),
    "slice": slice(1, 4),
    "backwards": slice(None, None, -1),
    "all": ...,
}
each_form = pytest.mark.parametrize("index", FORMS.values(), ids=FORMS)


def by_numpy(index: Any) -> list[int]:
    plain = index if isinstance(index, slice) or index is ... else np.asarray(index)
    if not isinstance(plain, slice) and plain is not ... and not plain.size:
        return []
    return np.arange(N)[plain].reshape(-1).tolist()


@each_form
def test_every_form_chooses_the_rows_that_numpy_does(index: Any) -> None:
    assert chosen_rows(index, N).tolist() == by_numpy(index)


@given(st.slices(N))
def test_every_slice_chooses_the_rows_that_python_does(index: slice) -> None:
    assert chosen_rows(index, N).tolist() == list(range(N))[index]


@each_form
def test_a_table_gives_the_rows_of_every_form(index: Any) -> None:
    if index == [] if isinstance(index, list) else isinstance(index, int | np.integer):
        return  # no table: a row has no second axis, and no rows are none
    weights = np.arange(1.0, N + 1)
    data = Dataset(np.eye(N), np.arange(N), weights=weights, ids=[f"row {i}" for i in range(N)])
    rows = by_numpy(index)
    part = data.rows(index)
    assert part.y.tolist() == rows
    assert part.weights is not None
    assert part.weights.tolist() == weights[rows].tolist()
    assert part.ids == tuple(f"row {i}" for i in rows)


@pytest.mark.parametrize("index", [N, -N - 1, [0, N]], ids=repr)
def test_a_row_that_is_not_there_is_an_index_error_with_a_sentence(index: Any) -> None:
    with pytest.raises(NoSuchRow, match=r"rows from 0 to 4, got row (5|-6): count"):
        chosen_rows(index, N)
    with pytest.raises(IndexError):
        chosen_rows(index, N)


@pytest.mark.parametrize(
    "index",
    [1.5, "a", None, np.array([0.0, 1.0]), torch.tensor([1.0]), [[1], [2, 3]], slice("a", None)],
    ids=repr,
)
def test_what_is_no_index_is_refused(index: Any) -> None:
    with pytest.raises(DataError, match="numbers of rows, a slice or a mask"):
        chosen_rows(index, N)


@pytest.mark.parametrize("mask", [True, [True], np.ones((N, 1), bool)], ids=repr)
def test_a_mask_of_another_shape_is_refused(mask: Any) -> None:
    with pytest.raises(DataError, match=r"one entry for each of 5 rows, got shape"):
        chosen_rows(mask, N)
