"""Priors against SciPy, dtype and device of the data, and bad arguments."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import config
from scipy import stats
from torch.distributions import Gumbel

from ppgp import priors
from ppgp.errors import PpgpError, SettingError
from ppgp.priors import Flat, Gamma, HalfNormal, LogNormal, Normal, Prior, Uniform, site, value_of
from ppgp.priors.sites import Site, law_of

F64 = partial(torch.tensor, dtype=torch.float64)
LIKE = torch.zeros(1, dtype=torch.float64)
SCIPY = {
    priors.Normal(0.3, 1.7): stats.norm(0.3, 1.7),
    priors.StudentT(4.0, 0.3, 1.7): stats.t(4.0, 0.3, 1.7),
    priors.LogNormal(0.3, 0.7): stats.lognorm(0.7, scale=np.exp(0.3)),
    priors.Lengthscale(0.3, 0.7, columns=4): stats.lognorm(0.7, scale=2 * np.exp(0.3)),
    priors.Gamma(2.5, 1.7): stats.gamma(2.5, scale=1 / 1.7),
    priors.InverseGamma(2.5, 1.7): stats.invgamma(2.5, scale=1.7),
    priors.Exponential(1.7): stats.expon(scale=1 / 1.7),
    priors.HalfNormal(1.7): stats.halfnorm(scale=1.7),
    priors.HalfCauchy(1.7): stats.halfcauchy(scale=1.7),
    priors.Uniform(0.3, 1.7): stats.uniform(0.3, 1.4),
    priors.LogUniform(0.3, 1.7): stats.loguniform(0.3, 1.7),
    priors.FromDistribution(Gumbel(F64(0.3), F64(1.7))): stats.gumbel_r(0.3, 1.7),
    priors.InUnitsOfData(priors.Normal(0.3, 1.7)): stats.norm(0.3, 1.7),
}
every = pytest.mark.parametrize("prior", [*SCIPY, Flat(), Flat(2.0)], ids=repr)


def test_every_member_is_checked_against_scipy() -> None:
    assert {type(p).__name__ for p in SCIPY} | {"Flat", "Dirichlet"} == set(priors.__all__)


@pytest.mark.parametrize(("prior", "expected"), SCIPY.items(), ids=[repr(p) for p in SCIPY])
def test_log_density_is_that_of_scipy(prior: Prior, expected: stats.rv_continuous) -> None:
    x = expected.ppf(np.linspace(0.01, 0.99, 21))
    ours = prior.distribution(LIKE).log_prob(torch.as_tensor(x))
    np.testing.assert_allclose(ours.numpy(), expected.logpdf(x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("prior", "expected"), SCIPY.items(), ids=[repr(p) for p in SCIPY])
def test_positive_says_whether_all_draws_are_positive(
    prior: Prior, expected: stats.rv_continuous
) -> None:
    assert prior.positive == (expected.support()[0] >= 0)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_device_follow_the_data(prior: Prior, dtype: torch.dtype) -> None:
    distribution = prior.distribution(torch.zeros(3, 2, dtype=dtype))
    draw = distribution.sample((2,))
    assert draw.dtype == dtype
    assert distribution.log_prob(draw).dtype == dtype
    if isinstance(
        prior, Flat
    ):  # torch checks the arguments of the others by value, which "meta" has not
        assert (
            prior.distribution(torch.zeros(1, dtype=dtype, device="meta")).sample().device.type
            == "meta"
        )


@every
def test_records_compare_print_and_freeze(prior: Prior) -> None:
    again = eval(repr(prior), {**vars(priors), "Gumbel": Gumbel})
    assert again == prior
    assert hash(again) == hash(prior)
    with pytest.raises(FrozenInstanceError):
        prior.scale = 3.0  # type: ignore[attr-defined]


def test_flat_has_density_zero_and_draws_its_start() -> None:
    for flat, positive, start in (
        (Flat(), False, 0.0),
        (Flat(), True, 1.0),
        (Flat(2.5), False, 2.5),
        (Flat(2.5), True, 2.5),
    ):
        distribution = flat.distribution(LIKE, positive=positive).expand([3]).to_event(1)
        assert torch.equal(
            distribution.sample((2,)), torch.full((2, 3), start, dtype=torch.float64)
        )
        assert (
            float(distribution.log_prob(torch.tensor([1.0, 20.0, 3e5], dtype=torch.float64))) == 0.0
        )
        support = (
            distribution.support.base_constraint
            if hasattr(distribution.support, "base_constraint")
            else distribution.support
        )
        assert support is (
            torch.distributions.constraints.positive
            if positive
            else torch.distributions.constraints.real
        )


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (Normal, (0.0, 0.0)),
        (Normal, (float("nan"), 1.0)),
        (LogNormal, (0.0, -1.0)),
        (Gamma, (0.0, 1.0)),
        (Gamma, (1.0, float("inf"))),
        (HalfNormal, (-2.0,)),
        (Uniform, (1.0, 1.0)),
        (Uniform, (2.0, 1.0)),
        (Flat, (float("inf"),)),
        (priors.Dirichlet, (0.0,)),
    ],
)
def test_bad_arguments_are_refused(kind: type[Prior], arguments: tuple[float, ...]) -> None:
    with pytest.raises(SettingError) as error:
        kind(*arguments)
    assert isinstance(error.value, PpgpError)
    assert kind.__name__ in str(error.value)
    assert "\n" not in str(error.value)


def test_the_concentration_of_dirichlet_is_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # as for users
    with pytest.raises(SettingError, match="one number as concentration"):
        priors.Dirichlet((1.0, 2.0))  # type: ignore[arg-type]


def test_a_site_repeats_its_prior_over_its_shape() -> None:
    distribution = site("weight", Normal(), (3, 2)).distribution(LIKE)
    assert distribution.event_shape == (3, 2)
    assert distribution.batch_shape == ()
    assert float(distribution.log_prob(torch.zeros(3, 2).double())) == pytest.approx(
        6 * stats.norm.logpdf(0)
    )


def test_zero_is_allowed_only_if_the_site_allows_it() -> None:
    assert site("noise", 0.0, positive=True, zero=True).fixed
    with pytest.raises(SettingError, match="positive number for noise"):
        site("noise", 0.0, positive=True)


def test_the_value_of_a_site_is_that_of_theta_then_the_fixed_number() -> None:
    assert float(value_of({"noise": torch.tensor(3.0)}, "noise", 0.5, LIKE)) == 3.0
    fixed = value_of({}, "noise", 0.5, LIKE)
    assert (float(fixed), fixed.dtype) == (0.5, torch.float64)
    with pytest.raises(SettingError, match="add 'noise' to theta"):
        value_of({}, "noise", Normal(), LIKE)


def test_dirichlet_is_that_of_scipy() -> None:
    distribution = site("p", priors.Dirichlet(1.7), (3,)).distribution(LIKE)
    x = np.array([0.2, 0.3, 0.5])
    expected = stats.dirichlet([1.7] * 3).logpdf(x)
    assert float(distribution.log_prob(torch.as_tensor(x))) == pytest.approx(expected, rel=1e-10)
    assert eval(repr(priors.Dirichlet(1.7)), vars(priors)) == priors.Dirichlet(1.7)


def test_equal_sites_share_their_distribution() -> None:
    """Of one dtype, and of one setting of the validation, which a distribution keeps."""
    like = torch.zeros((), dtype=torch.float64)
    one, other = (Site(priors.LogNormal(0.5, 2.0), (3,)) for _ in range(2))
    law: Any = law_of(one, like)
    assert law_of(other, like) is law
    x = torch.ones(3, dtype=torch.float64)
    assert law.log_prob(x) == one.distribution(like).log_prob(x)  # type: ignore[attr-defined]
    assert law_of(Site(priors.LogNormal(0.5, 1.0), (3,)), like) is not law
    single: Any = law_of(one, like.float())
    assert single.log_prob(torch.ones(3)).dtype == torch.float32
    before = torch.distributions.Distribution._validate_args
    try:
        torch.distributions.Distribution.set_default_validate_args(not before)
        assert law_of(one, like) is not law
    finally:
        torch.distributions.Distribution.set_default_validate_args(before)
    with torch.inference_mode():
        assert law_of(one, like) is not law


def test_distributions_of_users_are_not_shared() -> None:
    like = torch.zeros((), dtype=torch.float64)
    given = Site(priors.FromDistribution(torch.distributions.Normal(0.0, 1.0)))
    assert law_of(given, like) is not law_of(given, like)
