"""Priors and numbers converted from the units of the data to another scale."""

from __future__ import annotations

import math

import pytest
import torch

from ppgp import priors
from ppgp.errors import SettingError
from ppgp.priors import (
    Flat,
    Gamma,
    InUnitsOfData,
    LogNormal,
    Normal,
    Prior,
    Uniform,
    bare,
    rescaled,
    site,
)

LIKE = torch.zeros(1, dtype=torch.float64)
POSITIVE = [
    priors.LogNormal(0.3, 0.7),
    priors.Gamma(2.5, 1.7),
    priors.InverseGamma(2.5, 1.7),
    priors.Exponential(1.7),
    priors.HalfNormal(1.7),
    priors.HalfCauchy(1.7),
]
REAL = [priors.Normal(0.3, 1.7), priors.StudentT(4.0, 0.3, 1.7), priors.Uniform(0.3, 1.7)]


@pytest.mark.parametrize("prior", [*POSITIVE, *REAL], ids=repr)
def test_the_density_is_transformed_with_its_jacobian(prior: Prior) -> None:
    shift = 0.0 if prior in POSITIVE else -4.0
    distribution = prior.distribution(LIKE)
    x = torch.tensor([0.31, 0.9, 1.6], dtype=torch.float64)
    there = rescaled(InUnitsOfData(prior), 2.5, shift)
    assert isinstance(there, type(prior))
    torch.testing.assert_close(
        there.distribution(LIKE).log_prob(2.5 * x + shift) + math.log(2.5), distribution.log_prob(x)
    )


def test_a_prior_on_the_scale_of_the_model_is_kept_and_a_number_converted() -> None:
    assert rescaled(Normal(0.3, 1.7), 2.0, 5.0) == Normal(0.3, 1.7)
    assert rescaled(3.0, 2.0, 5.0) == 11.0
    assert rescaled(3.0, (2.0, 4.0), 1.0) == (7.0, 13.0)
    assert rescaled(InUnitsOfData(Flat(3.0)), 2.0, 1.0) == Flat(7.0)
    assert rescaled(InUnitsOfData(Flat()), 2.0, 1.0) == Flat()


def test_one_factor_per_column_gives_one_prior_per_column() -> None:
    there = rescaled(InUnitsOfData(Normal(1.0, 2.0)), (3.0, 0.5))
    distribution = site("weight", there, (2,)).distribution(LIKE)
    apart = sum(
        torch.distributions.Normal(m, s).log_prob(torch.tensor(v))
        for m, s, v in ((3, 6, 1.0), (0.5, 1.0, 2.0))
    )
    assert float(
        distribution.log_prob(torch.tensor([1.0, 2.0], dtype=torch.float64))
    ) == pytest.approx(float(apart))  # type: ignore[attr-defined]


@pytest.mark.parametrize("prior", POSITIVE, ids=repr)
def test_a_positive_prior_has_no_equivalent_under_a_shift(prior: Prior) -> None:
    with pytest.raises(SettingError, match="standardise=False"):
        rescaled(InUnitsOfData(prior), 2.0, 1.0, "the mean")


def test_plain_use_is_the_prior_as_written() -> None:
    x = torch.tensor([0.4], dtype=torch.float64)
    for prior in (LogNormal(0.2, 0.3), Gamma(2.0, 3.0), Uniform(0.0, 2.0)):
        one = site("length", InUnitsOfData(prior), positive=True)
        assert not one.fixed
        torch.testing.assert_close(
            one.distribution(LIKE).log_prob(x), prior.distribution(LIKE).log_prob(x)
        )
        assert bare(InUnitsOfData(prior)) == prior
    assert (
        float(site("length", InUnitsOfData(Flat()), positive=True).distribution(LIKE).sample())
        == 1.0
    )  # type: ignore[attr-defined]


def test_mistakes_are_refused() -> None:
    with pytest.raises(SettingError, match="pass a number by itself"):
        InUnitsOfData(3.0)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="leave one of them out"):
        InUnitsOfData(InUnitsOfData(Normal()))
    with pytest.raises(SettingError, match=r"got 'LogNormal': for example InUnitsOfData\(Log"):
        InUnitsOfData("LogNormal")
    with pytest.raises(SettingError, match="positive"):
        site("length", InUnitsOfData(Normal()), positive=True)
    with pytest.raises(SettingError, match="3"):
        site("weight", (1.0, 2.0), (3,))
    with pytest.raises(SettingError, match="one number"):
        site("bias", Normal((1.0, 2.0), 1.0))
    with pytest.raises(SettingError, match="positive"):
        Normal(0.0, (1.0, -1.0))
