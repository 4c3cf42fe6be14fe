"""Mistakes in a program that would be fitted without a warning are refused in one sentence."""

from __future__ import annotations

import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch

import ppgp
from ppgp.errors import DataError, NotApplicable
from ppgp.inference import MAP
from ppgp.kernels import RBF
from ppgp.models import SGPR, SVGP

X = torch.linspace(0.0, 1.0, 20, dtype=torch.float64)
Y = 2.0 * X
ZERO = torch.zeros((), dtype=torch.float64)


def fitted(program: object, data: object) -> ppgp.Posterior:
    return ppgp.fit(program, data, MAP(), progress=False)  # type: ignore[arg-type]


def in_a_loop(x: torch.Tensor, y: torch.Tensor) -> None:
    slope = pyro.sample("slope", dist.Normal(ZERO, 1.0))
    for i in range(len(x)):
        pyro.sample("y", dist.Normal(slope * x[i], 0.1), obs=y[i])


def twice(x: torch.Tensor, y: torch.Tensor) -> None:
    pyro.sample("slope", dist.Normal(ZERO, 1.0))
    slope = pyro.sample("slope", dist.Normal(ZERO, 2.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(slope * x, 0.1), obs=y)


def without_obs(x: torch.Tensor, y: torch.Tensor | None = None) -> None:
    slope = pyro.sample("slope", dist.Normal(ZERO, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(slope * x, 0.1))


def right(x: torch.Tensor, y: torch.Tensor | None = None) -> None:
    slope = pyro.sample("slope", dist.Normal(ZERO, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(slope * x, 0.1), obs=y)


@pytest.mark.parametrize(("program", "name"), [(in_a_loop, "'y'"), (twice, "'slope'")])
def test_two_sites_of_one_name(program: object, name: str) -> None:
    with pytest.raises(NotApplicable, match=f"two sites named {name}"):
        fitted(program, {"x": X, "y": Y})


def test_a_param_may_be_read_twice() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> None:
        for _ in range(2):
            scale = pyro.param(
                "scale", torch.ones((), dtype=torch.float64), constraint=dist.constraints.positive
            )
        slope = pyro.sample("slope", dist.Normal(ZERO, 1.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(slope * x, scale), obs=y)

    assert float(fitted(program, {"x": X, "y": Y + 0.1 * X.cos()}).draws["slope"].mean()) > 1.0


@pytest.mark.parametrize("data", [{"x": X, "y": Y}, {"x": X}])
def test_an_argument_for_data_that_nothing_observes(data: dict[str, torch.Tensor]) -> None:
    with pytest.raises(DataError, match="y=None"):
        fitted(without_obs, data)


def test_data_that_were_left_out() -> None:
    with pytest.raises(DataError, match="pass y"):
        fitted(right, {"x": X})
    assert float(fitted(right, {"x": X, "y": Y}).draws["slope"].mean()) == pytest.approx(
        2.0, abs=0.1
    )


@pytest.mark.parametrize("data", [{"X": X, "y": Y}, {"y": Y}, {"x": X, "y": Y, "z": X}])
def test_other_arguments_than_those_of_the_program(data: dict[str, torch.Tensor]) -> None:
    with pytest.raises(DataError, match="x, y"):
        fitted(right, data)


def test_a_program_that_reads_its_observed_values_predicts_as_many_rows() -> None:
    def program(x: torch.Tensor, y: torch.Tensor | None = None) -> None:
        slope = pyro.sample("slope", dist.Normal(ZERO, 1.0))
        with pyro.plate("rows", len(y)):  # type: ignore[arg-type]
            pyro.sample("y", dist.Normal(slope * x, 0.1), obs=y)

    posterior = fitted(program, {"x": X, "y": Y})
    assert len(posterior.predict(x=X + 1)) == len(Y)
    with pytest.raises(DataError, match=r"'y' with as many rows as the other .*: pass y="):
        posterior.predict(x=X[:2])


def test_numbers_that_are_spelt_as_text_are_named() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["1", "1,486", "2"]})
    with pytest.raises(DataError, match=r"column b of x, got '1,486'.*row 1"):
        fitted(right, {"x": frame, "y": Y[:3]})
    with pytest.raises(DataError, match=r"numbers in x, got '12 kg'.*row 0"):
        fitted(right, {"x": frame["b"].replace(["1", "1,486", "2"], "12 kg"), "y": Y[:3]})
    with pytest.raises(DataError, match=r"pandas\.Categorical"):
        fitted(right, {"x": pd.Series(["low", "high", "low"]), "y": Y[:3]})


def test_a_table_for_a_program_and_a_kernel_for_a_model() -> None:
    table = ppgp.Dataset(X[:, None], Y)
    with pytest.raises(DataError, match=r"x=\.\.\., y=\.\.\."):
        fitted(right, table)
    with pytest.raises(NotApplicable, match=r"GP\(RBF\(\)\)"):
        fitted(RBF(), table)


@pytest.mark.parametrize("Z", [[[0.0], [1.0]], ((0.0,), (1.0,))])
@pytest.mark.parametrize("kind", [SGPR, SVGP])
def test_inducing_inputs_in_a_list(kind: type, Z: object) -> None:
    assert kind(RBF(), Z=Z).Z.tolist() == [[0.0], [1.0]]
    with pytest.raises(DataError, match="inducing inputs"):
        kind(RBF(), Z="kmeans")


def test_programs_without_a_site_of_real_numbers() -> None:
    def discrete(y: torch.Tensor) -> None:
        z = pyro.sample("z", dist.Bernoulli(ZERO + 0.5))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(z, 1.0), obs=y)

    def certain(y: torch.Tensor) -> None:
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(ZERO, 1.0), obs=y)

    with pytest.raises(NotApplicable, match=r"got the discrete site 'z' alone.*a probability"):
        fitted(discrete, {"y": Y})
    with pytest.raises(NotApplicable, match=r"got none: draw a parameter by pyro.sample") as caught:
        fitted(certain, {"y": Y})
    assert "hyperparameter" not in str(caught.value)


@pytest.mark.usefixtures("types_unchecked")
def test_a_program_with_two_arrays_is_told_of_its_arguments() -> None:
    def line(x: torch.Tensor, y: torch.Tensor | None = None) -> None:
        pyro.sample("y", dist.Normal(x, 1.0), obs=y)

    zero = torch.zeros(3)
    with pytest.raises(NotApplicable, match=r"call fit\(program, dict\(x=\.\.\., y=\.\.\.\)"):
        ppgp.fit(line, zero, zero)  # type: ignore[arg-type] # the mistake
    data = ppgp.Dataset(zero[:, None], zero)
    with pytest.raises(NotApplicable, match=r"call fit\(model, Dataset\(X, y\)"):
        ppgp.fit(ppgp.models.LinearRegression(), data, zero)  # type: ignore[arg-type]
