"""A Dataset keeps its dtype, labels, rows through a split, and values through a Scaler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ppgp.data import Dataset
from ppgp.errors import DataWarning

X = np.random.default_rng(0).normal(2.0, 3.0, size=(50, 3))
Y = np.random.default_rng(1).normal(-1.0, 5.0, size=50)


@pytest.mark.parametrize(
    ("given_dtype", "kept"),
    [
        (np.float32, torch.float32),
        (np.float64, torch.float64),
        (np.int64, torch.float64),
        (bool, torch.float64),
        (np.float16, torch.float64),
    ],
)
def test_float32_is_kept_and_other_dtypes_become_float64(
    given_dtype: Any, kept: torch.dtype
) -> None:
    data = Dataset((X - 2).round().clip(0, 1).astype(given_dtype), Y)
    assert data.X.dtype == data.y.dtype == kept
    assert data.split(0.5)[0].X.dtype == kept
    assert data.standardised()[0].y.dtype == kept


def test_a_float32_tensor_is_kept_and_an_integer_tensor_is_not() -> None:
    assert Dataset(torch.zeros(3, 1), torch.arange(3)).y.dtype == torch.float32
    assert Dataset(torch.zeros(3, 1, dtype=torch.int32), torch.arange(3)).X.dtype == torch.float64


def test_to_moves_both_tables() -> None:
    data = Dataset(X, Y).to(torch.float32)
    assert data.X.dtype == data.y.dtype == torch.float32


def test_the_table_is_a_copy_of_the_array() -> None:
    source = X.copy()
    data = Dataset(source, Y)
    source[:] = 0
    assert np.array_equal(data.X.numpy(), X)


def test_lists_frames_and_a_target_column_are_accepted() -> None:
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    for table in (X.tolist(), frame, torch.as_tensor(X)):
        data = Dataset(table, Y[:, None])
        assert (data.n, data.d, len(data)) == (50, 3, 50)
        assert np.array_equal(data.X.numpy(), X)
        assert data.y.shape == (50,)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["no", "yes", "no"], ("no", "yes")),
        (np.array(["b", "a", "b"]), ("a", "b")),
        ([True, False, True], (False, True)),
        (torch.tensor([True, False, True]), (False, True)),
        (pd.Series(["no", "yes", "no"], dtype="category"), ("no", "yes")),
        (np.array(["no", "yes", "no"], dtype=object), ("no", "yes")),
    ],
)
def test_labels_become_codes_in_the_order_of_their_names(
    labels: Any, names: tuple[Any, ...]
) -> None:
    data = Dataset(X[:3], labels)
    assert data.classes == names
    plain = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    assert [names[int(code)] for code in data.y] == plain
    assert f"{len(names)} classes" in repr(data)


def test_codes_keep_the_order_of_given_classes() -> None:
    data = Dataset(X[:3], [1, 0, 1], classes=["yes", "no"])
    assert data.classes == ("yes", "no")
    assert data.y.tolist() == [1.0, 0.0, 1.0]
    assert data.rows([0]).classes == ("yes", "no")


def test_numbers_in_an_object_column_are_numbers() -> None:
    data = Dataset(X[:3].astype(object), np.array([1, 2.5, 3], dtype=object))
    assert data.classes is None
    assert data.y.tolist() == [1.0, 2.5, 3.0]


def test_from_frame_keeps_names_and_order() -> None:
    frame = pd.DataFrame({"b": [1, 2], "y": [3.0, 4.0], "a": [True, False]})
    data = Dataset.from_frame(frame, "y")
    assert data.feature_names == ("b", "a")
    assert data.target_name == "y"
    assert data.X.tolist() == [[1.0, 1.0], [2.0, 0.0]]
    assert data.y.tolist() == [3.0, 4.0]


def test_from_frame_takes_labels_as_target() -> None:
    data = Dataset.from_frame(pd.DataFrame({"a": [1.0, 2.0], "y": ["low", "high"]}), "y")
    assert data.classes == ("high", "low")
    assert data.y.tolist() == [1.0, 0.0]


@given(
    n=st.integers(20, 60),
    first=st.integers(10, 60),
    second=st.integers(10, 39),
    seed=st.integers(0, 999),
)
def test_a_split_is_disjoint_and_complete_with_the_given_sizes(
    n: int, first: int, second: int, seed: int
) -> None:
    fractions = first / 100, second / 100
    data = Dataset(np.arange(float(n))[:, None], np.arange(n) * 2)
    parts = data.split(*fractions, seed=seed)
    rows = torch.cat([p.X[:, 0] for p in parts])
    assert len(parts) == 3
    assert sorted(rows.tolist()) == list(range(n))
    assert all(abs(p.n - f * n) <= 1 for p, f in zip(parts, fractions, strict=False))
    assert all(torch.equal(p.y, 2 * p.X[:, 0]) for p in parts)


def test_a_split_follows_its_seed() -> None:
    data = Dataset(X, Y)
    assert torch.equal(data.split(0.5, seed=1)[0].X, data.split(0.5, seed=1)[0].X)
    assert not torch.equal(data.split(0.5, seed=1)[0].X, data.split(0.5, seed=2)[0].X)


def test_fractions_with_sum_one_give_no_further_part() -> None:
    assert [p.n for p in Dataset(X, Y).split(0.6, 0.2, 0.2)] == [30, 10, 10]
    assert [p.n for p in Dataset(X, Y).split(0.7, 0.2, 0.1)] == [35, 10, 5]
    assert [p.n for p in Dataset(X, Y).split(1.0)] == [50]


def test_splitting_does_not_change_the_random_stream() -> None:
    state = torch.get_rng_state()
    Dataset(X, Y).split(0.5)
    assert torch.equal(torch.get_rng_state(), state)


def test_standardised_leaves_the_codes_of_labels() -> None:
    data = Dataset([[1.0], [2.0], [4.0]], ["a", "b", "a"])
    scaled, scaler = data.standardised()
    assert torch.equal(scaled.y, data.y)
    assert scaled.classes == ("a", "b")
    assert float(scaler.y_sd) == 1.0


def test_standardised_has_mean_0_and_sd_1_and_the_scaler_inverts_it() -> None:
    data = Dataset(X, Y)
    scaled, scaler = data.standardised()
    for table in (scaled.X, scaled.y[:, None]):
        torch.testing.assert_close(table.mean(0), torch.zeros_like(table[0]), rtol=0, atol=1e-14)
        torch.testing.assert_close(table.std(0, correction=0), torch.ones_like(table[0]))
    torch.testing.assert_close(scaled.X * scaler.x_sd + scaler.x_mean, data.X)
    torch.testing.assert_close(scaled.y * scaler.y_sd + scaler.y_mean, data.y)
    torch.testing.assert_close(scaler.inputs(data.X), scaled.X)
    torch.testing.assert_close(scaler.targets(data.y), scaled.y)


@pytest.mark.parametrize(("scale_X", "scale_y"), [(True, False), (False, True), (False, False)])
def test_parts_that_are_not_scaled_are_unchanged(scale_X: bool, scale_y: bool) -> None:
    data = Dataset(X, Y)
    scaled, _ = data.standardised(scale_X=scale_X, scale_y=scale_y)
    assert torch.equal(scaled.X, data.X) != scale_X
    assert torch.equal(scaled.y, data.y) != scale_y


@pytest.mark.data("uci/naval.npz")
def test_the_constant_columns_of_naval_are_named(data_dir: Path) -> None:
    table = np.load(data_dir / "uci" / "naval.npz")
    with pytest.warns(UserWarning, match="columns .* of X constant"):
        scaled, scaler = Dataset(table["X"], table["y"]).standardised()
    constant = np.ptp(table["X"], axis=0) == 0
    assert constant.sum() == 2
    assert (scaler.x_sd.numpy()[constant] == 1).all()
    assert bool(torch.isfinite(scaled.X).all())


def test_as_many_labels_as_rows_are_warned_of() -> None:
    stamps = [f"12:{minute:02}" for minute in range(30)]
    with pytest.warns(DataWarning, match="y has 30 classes in 30 rows: pass numbers"):
        Dataset(np.arange(30.0)[:, None], stamps)
