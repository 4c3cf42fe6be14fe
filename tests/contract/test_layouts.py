"""The same numbers in another layout give the same fit and the same predictions, bit for bit.

Bits are owed, as a table is copied to one layout before anything is computed from it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from samples import columns_for, data_for, every_model
from test_pairs import shortest

import ppgp
from ppgp import inference, kernels, likelihoods, models
from ppgp.data import Dataset, Outputs
from ppgp.data.arguments import with_tensors
from ppgp.estimators import ProbabilisticRegressor
from ppgp.inference import Inference
from ppgp.inference.fitting.fit import own_method
from ppgp.models import Model

ROWS, NEW = 12, 4
quiet = pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")


class OnlyTheProtocol:
    """A frame that offers the dataframe protocol alone."""

    def __init__(self, table: pyarrow.Table) -> None:
        self.table = table

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        return self.table.__dataframe__(nan_as_null, allow_copy)


class OnlyTheStream:
    """A frame that offers names of columns and the stream of Arrow, as polars does."""

    def __init__(self, table: pyarrow.Table) -> None:
        self.columns, self.table = table.column_names, table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


def as_columns(array: np.ndarray) -> dict[str, np.ndarray]:
    return {f"{place}": array[:, place] for place in range(array.shape[1])}


def strided(array: np.ndarray) -> np.ndarray:
    wide = np.full([3 * size for size in array.shape], np.nan)
    wide[(slice(None, None, 3),) * array.ndim] = array
    return wide[(slice(None, None, 3),) * array.ndim]


def reversed_twice(array: np.ndarray) -> np.ndarray:
    back = (slice(None, None, -1),) * array.ndim
    return np.ascontiguousarray(array[back])[back]


def read_only(array: np.ndarray) -> np.ndarray:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def unaligned(array: np.ndarray) -> torch.Tensor:
    """Return a tensor 8 bytes behind the start of its storage."""
    place = torch.empty(array.size + 1, dtype=torch.float64)[1:].view(array.shape)
    return place.copy_(torch.from_numpy(array))


def frame(dtype: Any = "float64") -> Callable[[np.ndarray], Any]:
    """Return what makes a DataFrame of a table, or a Series of targets."""

    def of(array: np.ndarray) -> Any:
        made: Any = pd.Series(array) if array.ndim == 1 else pd.DataFrame(as_columns(array))
        return made.astype(dtype)

    return of


def arrow(kind: Callable[[pyarrow.Table], Any] = lambda table: table) -> Any:
    """Return what makes a frame from a table of Arrow, or a column of Arrow of targets."""

    def of(array: np.ndarray) -> Any:
        if array.ndim == 1:
            return pyarrow.chunked_array([array])
        return kind(pyarrow.table(as_columns(array)))

    return of


def polars(array: np.ndarray) -> Any:
    library = pytest.importorskip("polars")
    return library.Series(array) if array.ndim == 1 else library.DataFrame(as_columns(array))


def transposed(array: np.ndarray) -> torch.Tensor:
    if array.ndim == 1:
        return torch.tensor(np.stack([array, array], 1))[:, 0]
    return torch.tensor(array).T.contiguous().T


LAYOUTS: dict[str, Callable[[np.ndarray], Any]] = {
    "Fortran": lambda a: np.asfortranarray(a) if a.ndim == 2 else np.stack([a, a], 1)[:, 0],
    "strided": strided,
    "negative strides": reversed_twice,
    "big-endian": lambda a: a.astype(">f8"),
    "read-only": read_only,
    "unaligned": unaligned,
    "DataFrame": frame(),
    "nullable": frame("Float64"),
    "Arrow dtypes": frame(pd.ArrowDtype(pyarrow.float64())),
    "Arrow table": arrow(),
    "dataframe protocol": arrow(OnlyTheProtocol),
    "stream of Arrow": arrow(OnlyTheStream),
    "torch transposed": transposed,
}
FITTED = ("DataFrame", "torch transposed")
every_layout = pytest.mark.parametrize(
    "layout", [*LAYOUTS.values(), polars], ids=[*LAYOUTS, "polars"]
)


def arrays_for(model: Model) -> tuple[np.ndarray, np.ndarray]:
    data = data_for(model, ROWS)
    return data.X.numpy(), data.y.numpy()


def table(model: Model, layout: Callable[[np.ndarray], Any] = np.copy) -> Dataset:
    X, y = arrays_for(model)
    return Dataset(layout(X), layout(y), **columns_for(model, ROWS))


def figures(prediction: Any, y: torch.Tensor) -> list[torch.Tensor]:
    found = [prediction.log_prob(y)]
    if prediction.kind == "classes":
        return [*found, prediction.probabilities]
    return [*found, prediction.mean]


def predicted(posterior: Any, layout: Callable[[np.ndarray], Any], model: Model) -> Any:
    X, y = arrays_for(model)
    groups = columns_for(model, NEW)
    prediction = posterior.predict(layout(X[:NEW]), **groups)
    return figures(prediction, torch.tensor(y[:NEW]))


def same(one: Any, other: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def same_fit(one: Any, other: Any) -> bool:
    tensors = [{**fit.draws, **fit.params} for fit in (one, other)]
    assert tensors[0].keys() == tensors[1].keys()
    return same(tensors[0].values(), tensors[1].values())


@every_layout
def test_a_table_lies_in_one_way(layout: Callable[[np.ndarray], Any]) -> None:
    X, y = np.random.default_rng(0).normal(size=(9, 3)), np.arange(9.0)
    roles = {"weights": y + 1, "offset": y, "noise_sd": y, "trials": y + 1}
    data = Dataset(layout(X), layout(y), **{name: layout(v) for name, v in roles.items()})
    columns = {"X": X, "y": y, **roles}
    for rows in (slice(None), slice(1, None), slice(0, 9, 2), [3, 1]):
        part = data.rows(rows)
        for name, array in columns.items():
            found = getattr(part, name)
            wanted = torch.tensor(array[rows])
            assert torch.equal(found, wanted), name
            assert found.stride() == torch.empty(found.shape).stride(), name
            assert found.data_ptr() % 64 == 0, name


@quiet
@every_model
def test_fits_and_predictions_do_not_depend_on_the_layout(model: Model) -> None:
    how = shortest(own_method(model, ROWS))
    posterior = ppgp.fit(model, table(model), how, progress=False)
    wanted = predicted(posterior, np.copy, model)
    for name, layout in LAYOUTS.items():
        assert same(predicted(posterior, layout, model), wanted), name
    for name in FITTED:
        again = ppgp.fit(model, table(model, LAYOUTS[name]), how, progress=False)
        assert same_fit(posterior, again), name
        assert same(predicted(again, LAYOUTS[name], model), wanted), name


@cache
def fitted(number: int) -> Any:
    """Return the posterior of one of ``TWO`` from an ordinary array."""
    model, how = TWO[number]
    return ppgp.fit(model, table(model), how, progress=False)


TWO: list[tuple[Model, Inference]] = [
    (models.GLM(likelihoods.StudentT()), inference.NUTS(draws=8, warmup=8, chains=2)),
    (models.Kriging(kernels.Exponential()), inference.MAP(starts=1)),
]


@quiet
@every_layout
@pytest.mark.parametrize("number", range(len(TWO)), ids=["GLM", "Kriging"])
def test_two_models_in_every_layout(number: int, layout: Callable[[np.ndarray], Any]) -> None:
    model, how = TWO[number]
    again = ppgp.fit(model, table(model, layout), how, progress=False)
    assert same_fit(fitted(number), again)
    wanted = predicted(fitted(number), np.copy, model)
    assert same(predicted(again, layout, model), wanted)


@quiet
@every_layout
def test_several_outputs(layout: Callable[[np.ndarray], Any]) -> None:
    X = np.random.default_rng(1).normal(size=(ROWS, 3))
    Y = np.stack([X[:, 0] + np.sin(X[:, 1]), X.sum(1)], 1)
    model = models.Multi(models.LinearRegression())
    found = []
    for each in (np.copy, layout):
        posterior = ppgp.fit(model, Outputs(each(X), each(Y)), inference.Exact(), progress=False)
        found.append([one.mean for one in posterior.predict(each(X[:3])).values()])
    assert same(*found)


@quiet
@every_layout
def test_arguments_of_a_program_and_rows_of_an_estimator(layout: Callable[[Any], Any]) -> None:
    X = np.random.default_rng(2).normal(size=(ROWS, 3))
    given = layout(X)
    arguments = with_tensors({"X": given, "nested": {"inner": (torch.tensor(X).T.contiguous().T,)}})
    for found in (arguments["X"], arguments["nested"]["inner"][0]):
        assert torch.equal(found, torch.tensor(X))
        assert found.stride() == (3, 1)
        assert found.data_ptr() % 64 == 0
    fits = [
        ProbabilisticRegressor("linear", "map").fit(each(X), X[:, 0]) for each in (np.copy, layout)
    ]
    assert np.array_equal(fits[0].predict(X), fits[1].predict(layout(X)))
