"""What a fit asks of its data: of a Dataset, and of the arguments of a program."""

from __future__ import annotations

from types import MappingProxyType

import pytest
import torch

from ppgp.data import Dataset
from ppgp.data.arguments import Arguments, as_training_data
from ppgp.errors import NotApplicable
from ppgp.posterior import Posterior

X = torch.linspace(-1, 2, 12, dtype=torch.float64)[:, None]
Y = X[:, 0].sin() + 3.0


def test_a_table_passes_its_rows_to_the_program() -> None:
    data = Dataset(X, Y)
    assert as_training_data(data) is data
    assert (data.is_table, data.n, data.d) == (True, 12, 1)
    assert data.like is data.X
    (inputs, targets), named = data.passed()
    assert inputs is data.X
    assert targets is data.y
    assert named == {"total": 12}
    assert data.passed(observed=False)[0][1] is None
    rows = torch.tensor([3, 1])
    (inputs, targets), named = data.passed(data.tables(rows))
    assert torch.equal(inputs, X[rows])
    assert torch.equal(targets, Y[rows])
    assert named == {"total": 12}
    assert data.tables(None) == ()


def test_a_table_passes_known_noise_and_flags_by_name() -> None:
    sd, flags = torch.linspace(0.1, 1, 12, dtype=torch.float64), torch.arange(12) > 7
    data, rows = Dataset(X, Y, noise_sd=sd, right_censored=flags), torch.tensor([9, 1])
    assert data.passed()[1] == {
        "total": 12,
        "noise_sd": data.noise_sd,
        "right_censored": data.right_censored,
    }
    _, named = data.passed(data.tables(rows))
    assert torch.equal(named["noise_sd"], sd[rows])
    assert torch.equal(named["right_censored"], flags[rows])
    # targets that are drawn have their noise, and none is censored
    assert data.passed(observed=False)[1] == {"total": 12, "noise_sd": data.noise_sd}
    noisy = Dataset(X, Y, noise_sd=sd)
    assert noisy.passed(noisy.tables(rows))[1].keys() == {"total", "noise_sd"}


def test_arguments_are_a_mapping_without_rows() -> None:
    given = {"x": X, "y": Y, "k": 3}
    data = as_training_data(MappingProxyType(given))
    assert isinstance(data, dict)
    assert as_training_data(data) is data
    assert dict(data) == data.content == data.passed(observed=False)[1] == given
    assert (data.is_table, data.n, data.d, data.passed()[0]) == (False, None, 0, ())
    assert data.like.dtype == torch.get_default_dtype()
    assert data.tables(None) == ()
    with pytest.raises(NotApplicable, match="a Dataset to take mini-batches from"):
        data.tables(torch.tensor([0]))


def test_rows_are_the_same_up_to_the_rounding_of_a_scaler_and_arguments_in_every_number() -> None:
    data = Dataset(X, Y)
    scaled, scaler = data.standardised()
    assert data.same_rows(scaler.back(scaled))
    assert not data.same_rows(scaled)
    assert not data.same_rows(data.rows(slice(3)))
    assert not data.same_rows({"X": X, "y": Y})
    named = Arguments(x=X, k=3)
    assert named.same_rows({"x": X.clone(), "k": 3})
    assert not named.same_rows({"x": X.clone(), "k": 4})
    assert not named.same_rows({"x": X})
    assert not named.same_rows(data)


def test_a_posterior_takes_any_mapping_as_its_arguments() -> None:
    given = {"x": X}
    posterior = Posterior(None, MappingProxyType(given), {}, None, also_seen=(given, Dataset(X, Y)))
    assert posterior.data == given
    assert isinstance(posterior.data, Arguments)
    assert [type(one) for one in posterior.also_seen] == [Arguments, Dataset]
