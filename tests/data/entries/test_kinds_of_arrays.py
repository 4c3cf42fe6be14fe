"""Every kind of array is read correctly, or raises a DataError in one sentence."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

import ppgp
from ppgp import Dataset, inference, models
from ppgp.data import as_tensor
from ppgp.errors import DataError, DataWarning, PpgpError

X = np.arange(12.0).reshape(6, 2)
Y = np.array([1.0, 3.0, 2.0, 5.0, 4.0, 7.0])
MASK = X == 7.0

AS_X: dict[str, Callable[[], Any]] = {
    "bfloat16": lambda: torch.tensor(X, dtype=torch.bfloat16),
    "half": lambda: torch.tensor(X, dtype=torch.half),
    "NumPy half": lambda: X.astype(np.float16),
    "long double": lambda: X.astype(np.longdouble),
    "uint64": lambda: X.astype(np.uint64),
    "torch uint16": lambda: torch.tensor(X.astype(np.uint16)),
    "requires grad": lambda: torch.tensor(X, requires_grad=True),
    "a parameter": lambda: torch.nn.Parameter(torch.tensor(X)),
    "rows that require grad": lambda: [torch.tensor(row, requires_grad=True) for row in X],
    "rows of bfloat16": lambda: [torch.tensor(row, dtype=torch.bfloat16) for row in X],
    "masked without a mask": lambda: np.ma.array(X),
    "quantised": lambda: torch.quantize_per_tensor(
        torch.tensor(X, dtype=torch.float32), 1.0, 0, torch.qint8
    ),
    "objects": lambda: X.astype(object),
    "decimals": lambda: [[Decimal(str(v)) for v in row] for row in X],
    "text that spells numbers": lambda: X.astype(str),
    "nullable columns": lambda: pd.DataFrame(X, columns=["a", "b"]).convert_dtypes(),
}


@pytest.mark.filterwarnings("ignore:.*quantized:UserWarning")
@pytest.mark.parametrize("make", AS_X.values(), ids=AS_X)
def test_a_valid_array_is_read_correctly(make: Callable[[], Any]) -> None:
    data = Dataset(make(), Y)
    assert np.array_equal(data.X.numpy(), X)
    assert data.X.dtype in (torch.float32, torch.float64)
    assert not data.X.requires_grad
    assert np.array_equal(as_tensor(make(), "X").numpy(), X)


def test_integers_beyond_64_bits_become_the_nearest_float() -> None:
    big = [[2**70, 1], [-(2**90), 2], [3, 10**300]]
    assert Dataset(big, Y[:3]).X.tolist() == [[float(a), float(b)] for a, b in big]
    assert Dataset(X[:3], [2**70, 0, 1]).y.tolist() == [2.0**70, 0.0, 1.0]
    assert (
        Dataset.from_frame(pd.DataFrame({"a": [2**70, 1, 2], "y": Y[:3]}), "y").X[0, 0] == 2.0**70
    )


def masked_tensor() -> Any:
    with pytest.warns(UserWarning, match="prototype"):
        return torch.masked.masked_tensor(torch.tensor(X), ~torch.tensor(MASK))


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "masked": (lambda: np.ma.array(X, mask=MASK), "row 3"),
    "masked rows in a list": (lambda: [*X[:3], np.ma.array(X[3], mask=MASK[3]), *X[4:]], "row 3"),
    "masked tensor": (masked_tensor, "row 3"),
    "complex tensor": (lambda: torch.tensor(X * (1 + 1j)), "complex"),
    "complex rows": (lambda: list(torch.tensor(X * 1j)), "complex"),
    "a complex object": (
        lambda: np.array([*X.ravel()[:-1], np.complex128(1j)], dtype=object).reshape(6, 2),
        "complex",
    ),
    "a complex column": (lambda: pd.DataFrame({"a": X[:, 0] * 1j, "b": X[:, 1]}), "complex"),
    "sparse tensor": (lambda: torch.tensor(X).to_sparse(), "sparse"),
    "compressed tensor": (lambda: torch.tensor(X).to_sparse_csr(), "sparse"),
    "sparse array": (lambda: scipy.sparse.csr_array(X), "sparse"),
    "nested tensor": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
    "without values": (lambda: torch.tensor(X, device="meta"), "meta"),
    "an integer beyond floats": (
        lambda: [*X.tolist()[:3], [10**400, 1], *X.tolist()[4:]],
        "row 3, column 0",
    ),
    "a record array": (lambda: np.zeros(6, dtype=[("a", float), ("b", float)]), "type"),
    "a date among numbers": (
        lambda: pd.DataFrame({"a": [*X[:3, 0], pd.Timestamp(0), *X[4:, 0]], "b": Y}),
        "a date in row 3",
    ),
    "text among numbers": (
        lambda: [*X.tolist()[:3], ["?", 1.0], *X.tolist()[4:]],
        "'?' in row 3, column 0",
    ),
    "NA among numbers": (
        lambda: pd.DataFrame({"a": pd.array([0, 1, 2, None, 4, 5], dtype="Int64"), "b": Y}),
        "row 3",
    ),
}


@pytest.mark.filterwarnings("ignore:.*(Sparse|nested|prototype).*:UserWarning")
@pytest.mark.parametrize(("make", "got"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_array_raises_one_sentence(make: Callable[[], Any], got: str) -> None:
    posterior = ppgp.fit(
        models.LinearRegression(0.1, 0.0, 1.0), Dataset(X, Y), inference.MAP(), progress=False
    )
    for use in (lambda values: Dataset(values, Y), posterior.predict):
        with pytest.raises(PpgpError) as error:
            use(make())
        assert got in str(error.value)
        assert "\n" not in str(error.value)


TARGETS: dict[str, tuple[Any, str]] = {
    "one None": ([1.0, None, 2.0, 3.0, 4.0, 5.0], "missing one in y, row 1"),
    "None among labels": (
        np.array(["a", None, "b", "a", "b", None], dtype=object),
        "missing one in y, rows 1, 5",
    ),
    "NaN among labels": (pd.Series(["a", "b", np.nan, "a", "b", "a"]), "missing one in y, row 2"),
    "NA among integers": (pd.array([1, 2, None, 4, 5, 6], dtype="Int64"), "row 2"),
    "masked": (np.ma.array(Y, mask=Y == 5.0), "row 3"),
    "masked labels": (
        np.ma.array(["a", "b", "a", "b", "a", "b"], mask=[0, 0, 0, 1, 0, 0]),
        "row 3",
    ),
    "complex": (torch.tensor(Y * 1j), "complex"),
    "sparse": (torch.tensor(Y).to_sparse(), "sparse"),
    "two kinds": (np.array(["a", 1, "b", 2, "a", 1], dtype=object), "int and str"),
}


@pytest.mark.parametrize(("y", "got"), TARGETS.values(), ids=TARGETS)
def test_an_invalid_target_raises_one_sentence(y: Any, got: str) -> None:
    with pytest.raises(DataError) as error:
        Dataset(X, y)
    assert got in error.value.got


def test_a_target_of_half_precision_or_with_a_gradient_is_read_correctly() -> None:
    for y in (
        torch.tensor(Y, dtype=torch.bfloat16),
        torch.tensor(Y, requires_grad=True),
        np.ma.array(Y),
    ):
        assert Dataset(X, y).y.tolist() == Y.tolist()


def test_repeated_names_are_refused_everywhere() -> None:
    twice = pd.DataFrame(X, columns=["a", "a"])
    posterior = ppgp.fit(
        models.LinearRegression(0.1, 0.0, 1.0), Dataset(X, Y), inference.MAP(), progress=False
    )
    for use in (
        lambda: Dataset(twice, Y),
        lambda: Dataset(X, Y, ["a", "a"]),
        lambda: Dataset.from_frame(twice.assign(y=Y), "y"),
        lambda: posterior.predict(twice),
        lambda: ppgp.estimators.ProbabilisticRegressor("linear", "map").fit(twice, Y),
    ):
        with pytest.raises(DataError, match="column a more than once"):
            use()


def test_targets_that_float32_rounds_are_said() -> None:
    X, y = np.ones((60, 2), np.float32), 1e6 + 0.01 * np.arange(60)
    with pytest.warns(
        DataWarning, match=r"y is rounded to float32, .* by up to 0\.03 where its sd"
    ):
        Dataset(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Dataset(X, y - 1e6)
        Dataset(X.astype(float), y)


def test_a_lazy_frame_is_not_collected() -> None:
    polars = pytest.importorskip("polars")
    lazy = polars.DataFrame({"a": [1.0, 2.0], "y": [1.0, 2.0]}).lazy()
    with pytest.raises(DataError, match=r"got a LazyFrame: pass frame\.collect\(\)"):
        Dataset.from_frame(lazy, "y")


def test_a_frame_of_polars_is_read_as_that_of_pandas() -> None:
    polars = pytest.importorskip("polars")
    columns = {"a": [1.0, 2.0, 4.0], "y": [1.0, 2.0, 3.0]}
    found = Dataset.from_frame(polars.DataFrame(columns), "y")
    same = Dataset.from_frame(pd.DataFrame(columns), "y")
    assert torch.equal(found.X, same.X)
    assert torch.equal(found.y, same.y)
    assert found.feature_names == same.feature_names
