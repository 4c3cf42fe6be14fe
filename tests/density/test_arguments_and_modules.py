"""Programs given NumPy arrays and pandas columns, and programs that are PyroModules."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroParam, PyroSample
from torch import Tensor, nn
from torch.distributions import constraints

import ppgp
from ppgp import Dataset, inference, models
from ppgp.data.arguments import with_tensors
from ppgp.errors import DataError
from ppgp.priors import Normal

F64 = torch.float64
x = np.linspace(-1.0, 1.0, 20)
y = 2.0 * x + 0.1 * np.random.default_rng(0).normal(size=20)
FRAME = pd.DataFrame({"x": x, "y": y})
ZERO = torch.zeros((), dtype=F64)
TENSORS: dict[str, Any] = {"x": torch.as_tensor(x)[:, None], "y": torch.as_tensor(y)}


def program(x: Any, y: Any = None) -> None:
    slope = pyro.sample("slope", dist.Normal(0.0, 5.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(slope * x, 0.1), obs=y)


class Line(PyroModule):
    """Linear regression with priors on the weights of a layer and noise of sd 0.1."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = PyroModule[nn.Linear](1, 1).double()
        self.linear.weight = PyroSample(dist.Normal(ZERO, 1.0).expand([1, 1]).to_event(2))
        self.linear.bias = PyroSample(dist.Normal(ZERO, 1.0).expand([1]).to_event(1))

    def forward(self, x: Tensor, y: Tensor | None = None) -> None:
        mean = self.linear(x).squeeze(-1)
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(mean, 0.1), obs=y)


class Trained(PyroModule):
    """A layer and a noise that are optimised beside one uncertain shift."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = PyroModule[nn.Linear](1, 1).double()
        self.sd = PyroParam(torch.tensor(1.0, dtype=F64), constraints.positive)

    def forward(self, x: Tensor, y: Tensor | None = None) -> None:
        shift = pyro.sample("shift", dist.Normal(ZERO, 1.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(shift + self.net(x).squeeze(-1), self.sd), obs=y)


def fitted(function: Any, arguments: dict[str, Any], how: Any = None) -> Any:
    """Fit without a warning, such as that of a program which is not compiled."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        how = how or inference.Laplace(draws=100)
        return ppgp.fit(function, arguments, how, progress=False)


def test_arrays_and_columns_are_fitted_and_predicted_as_tensors() -> None:
    expected = fitted(program, {"x": torch.as_tensor(x), "y": torch.as_tensor(y)})
    wanted = expected.predict(x=torch.as_tensor(x[:3])).mean
    for arguments in ({"x": x, "y": y}, {"x": FRAME["x"], "y": FRAME["y"]}):
        posterior = fitted(program, arguments)
        assert torch.equal(posterior.draws["slope"], expected.draws["slope"])
        assert torch.equal(posterior.predict(x=arguments["x"][:3]).mean, wanted)
        assert posterior.predict(x=arguments["x"]).in_training_with(y).all()


def test_dtypes_follow_the_arrays_and_other_arguments_are_kept() -> None:
    missing = pd.Series([1, None, 3], dtype="Int64")
    made = with_tensors(
        {
            "single": np.ones(2, np.float32),
            "half": np.ones(2, np.float16),
            "codes": np.array([0, 1], np.int8),
            "mask": np.array([True, False]),
            "frame": FRAME,
            "missing": missing,
            "reversed": x[::-1],
            "text": "abc",
            "list": [1, 2],
        }
    )
    assert made["single"].dtype == torch.float32
    assert made["half"].dtype == torch.float16  # the program takes it as a wider one
    assert made["codes"].dtype == torch.int64
    assert made["mask"].dtype == torch.bool
    assert made["frame"].shape == (20, 2)
    assert made["missing"].isnan().tolist() == [False, True, False]
    assert made["reversed"].tolist() == x[::-1].tolist()
    assert (made["text"], made["list"]) == ("abc", [1, 2])


def test_integers_that_no_tensor_holds_are_refused() -> None:
    codes = np.array([0, 2**63 - 1], np.uint64)
    assert with_tensors({"codes": codes})["codes"].tolist() == [0, 2**63 - 1]
    with pytest.raises(DataError, match=r"got 9223372036854775808 as 'codes': convert it"):
        with_tensors({"codes": codes + np.uint64(1)})


def test_lists_and_arrays_of_unequal_lengths_are_named() -> None:
    numbers = [1.0, 2.0, 3.0]
    with pytest.raises(DataError, match=r"a list as 'x', 'y' \(.*pass torch\.tensor"):
        ppgp.fit(program, {"x": numbers, "y": numbers}, progress=False)
    with pytest.raises(DataError, match=r"x of shape \[20\], y of shape \[3\] \(.*same rows"):
        ppgp.fit(program, {"x": x, "y": y[:3]}, progress=False)


def test_columns_of_text_are_refused_by_name() -> None:
    labels = pd.Series(["a", "b"])
    for column in (labels, labels.to_numpy(), labels.astype("category")):
        with pytest.raises(DataError, match="as 'x'"):
            ppgp.fit(program, {"x": column}, progress=False)


def test_a_module_is_compiled_and_has_the_posterior_of_a_linear_regression() -> None:
    """The mode and the covariance of the coefficients are those of the closed form."""
    posterior = fitted(Line(), {"x": FRAME[["x"]], "y": FRAME["y"]})
    model = models.LinearRegression(Normal(), Normal(), noise=0.01)
    data = Dataset(x[:, None], y)
    exact = ppgp.fit(model, data, inference.Laplace(), standardise=False, progress=False)
    torch.testing.assert_close(posterior.stats["mode"], exact.stats["mode"], rtol=1e-6, atol=1e-8)
    new = posterior.predict(x=FRAME[["x"]])
    assert (new.mean - torch.as_tensor(2.0 * x)).abs().max() < 0.1


def test_the_arguments_of_a_module_are_those_of_forward() -> None:
    with pytest.raises(DataError, match=r"the program's arguments: x, y, got X, y"):
        ppgp.fit(Line(), {"X": TENSORS["x"], "y": TENSORS["y"]}, progress=False)


@pytest.mark.parametrize(
    "how",
    [inference.MAP(), pytest.param(inference.SVI(steps=300), marks=pytest.mark.slow)],
    ids=["MAP", "SVI"],
)
def test_a_module_is_left_as_it_was_and_a_second_fit_is_the_same(how: Any) -> None:
    module = Trained()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of so short a run
        one, other = (ppgp.fit(module, TENSORS, how, progress=False) for _ in range(2))
    assert all(torch.equal(v, before[name]) for name, v in module.state_dict().items())
    assert torch.equal(one.predict(x=TENSORS["x"]).mean, other.predict(x=TENSORS["x"]).mean)
    trained = one.predict(x=TENSORS["x"]).mean - TENSORS["y"]
    assert float(trained.square().mean().sqrt()) < 0.5


def test_a_fitted_module_is_saved_and_loaded(tmp_path: Path) -> None:
    for module, how in ((Line(), inference.Laplace(draws=20)), (Trained(), inference.MAP())):
        posterior = fitted(module, TENSORS, how)
        path = posterior.save(tmp_path / "module.safetensors")
        again = ppgp.load_posterior(path, model=type(module)())
        new = {"x": TENSORS["x"][:4]}
        assert torch.equal(again.predict(**new).mean, posterior.predict(**new).mean)


def weighted(x: Tensor, y: Tensor | None = None) -> None:
    weight = pyro.sample("weight", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    mean = x @ weight
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(mean, 0.1), obs=y)


def two_inputs(x: torch.Tensor, z: torch.Tensor, y: torch.Tensor) -> None:
    weight = pyro.sample("weight", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(x @ weight + z @ weight, 0.1), obs=y)


class Single(Line):
    """The regression with a layer and priors in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = PyroModule[nn.Linear](1, 1)
        self.linear.weight = PyroSample(dist.Normal(0.0, 1.0).expand([1, 1]).to_event(2))
        self.linear.bias = PyroSample(dist.Normal(0.0, 1.0).expand([1]).to_event(1))


WIDE = np.column_stack([x, x**2])
DTYPES: dict[str, tuple[Any, Any]] = {
    "arrays": (weighted, {"x": WIDE, "y": y}),
    "columns": (weighted, {"x": pd.DataFrame(WIDE), "y": pd.Series(y)}),
    "layer": (Single(), {"x": x[:, None], "y": y}),
}


@pytest.mark.parametrize(("function", "arguments"), DTYPES.values(), ids=DTYPES)
def test_another_dtype_of_arguments_and_priors_is_named(function: Any, arguments: Any) -> None:
    message = (
        r"of one dtype in the program, got float64 x, float64 y, float32 at site '.*' \(.*\): "
        r"make the priors float64, as by torch\.zeros"
    )
    with pytest.raises(DataError, match=message) as caught:
        ppgp.fit(function, arguments, inference.MAP(), progress=False)
    assert str(caught.value).endswith("a module by .double(), or pass float32 arguments")
    assert "torch.zeros(2, dtype=torch.float64)" in str(ppgp.fit.__doc__)


def test_the_advice_on_dtypes_is_right() -> None:
    single = {"x": WIDE.astype(np.float32), "y": y.astype(np.float32)}
    posterior = ppgp.fit(weighted, single, inference.MAP(), progress=False)
    with pytest.raises(DataError, match=r"expected x in float32, as in the fit.*\.astype"):
        posterior.predict(x=WIDE)
    with pytest.raises(DataError, match=r"got int64 x, .*convert 'x', as by \.to\(torch\.float32"):
        posterior.predict(x=WIDE.astype(int))
    each = "float32 x, float32 y, float64 z, float32 at site"
    with pytest.raises(DataError, match=f"{each}.*give all arguments the same dtype"):
        ppgp.fit(two_inputs, {**single, "z": WIDE}, inference.MAP(), progress=False)


def test_arguments_of_a_prediction_that_are_no_arrays_are_named() -> None:
    posterior = fitted(program, {"x": x, "y": y})
    for given, message in (
        ({}, r"own arguments, got none as 'x': call predict\(x=\.\.\.\)$"),
        ({"x": [1.0, 2.0]}, r"a list as 'x' \(.*pass torch\.tensor"),
        ({"x": "abc"}, r"a str as 'x' \(.*pass x=numpy\.array\(\[\.\.\.\]\), as in the fit"),
        ({"x": 1.0}, r"a float as 'x' \(.*pass x=numpy\.array"),
        ({"x": np.array([np.nan, 1.0])}, "predictions of 'y', got NaN for 1 of 2 numbers in 'x'"),
    ):
        with pytest.raises(DataError, match=message):
            posterior.predict(**given)
