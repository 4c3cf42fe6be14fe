"""Slopes of quantiles and scores of mixtures, and what they are at the ends of the number line."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import cauchy, norm
from scipy.stats import t as student
from torch.distributions import (
    Beta,
    Distribution,
    Gumbel,
    LogNormal,
    Normal,
    StudentT,
    Uniform,
    Weibull,
)

from ppgp.distributions import mixture, tails
from ppgp.distributions.crps import crps
from ppgp.distributions.tails import log_tails

STEP = 1e-5
FAMILIES: dict[str, Callable[[torch.Tensor], Distribution]] = {
    "Gumbel": lambda m: Gumbel(m, torch.ones_like(m)),
    "LogNormal": lambda m: LogNormal(m, 0.5 * torch.ones_like(m)),
    "Normal": lambda m: Normal(m, 0.3 * torch.ones_like(m)),
}


def slopes(of: Callable[[torch.Tensor], torch.Tensor], m: torch.Tensor) -> torch.Tensor:
    """Return the slope of a number with respect to each location, by central differences."""
    found = torch.zeros_like(m)
    for k in range(len(m)):
        step = torch.zeros_like(m)
        step[k] = STEP
        found[k] = (of(m + step) - of(m - step)) / (2 * STEP)
    return found


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["quantile", "crps"])
def test_slopes_are_those_of_differences(family: str, name: str) -> None:
    y = torch.tensor([0.7], dtype=torch.float64)

    def figure(m: torch.Tensor) -> torch.Tensor:
        distribution = FAMILIES[family](m)
        if name == "crps":
            return crps(distribution, y).sum()
        return mixture.quantile(distribution, 0.2).sum()

    m = torch.tensor([[0.0], [0.4], [1.3]], dtype=torch.float64)
    given = m.clone().requires_grad_()
    (found,) = torch.autograd.grad(figure(given), given)
    torch.testing.assert_close(found, slopes(figure, m), rtol=1e-6, atol=1e-8)


def test_the_slope_of_a_quantile_of_separated_components() -> None:
    m = torch.tensor([[0.0], [1.3]], dtype=torch.float64, requires_grad=True)
    quantile = mixture.quantile(Normal(m, torch.full_like(m, 1e-3)), 0.05)
    (found,) = torch.autograd.grad(quantile.sum(), m)
    torch.testing.assert_close(found, torch.tensor([[1.0], [0.0]], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [0.99, 0.99999, 1 - 1e-9, 1 - 1e-13])
@pytest.mark.parametrize("df", [4.0, np.inf])
def test_quantiles_next_to_1(df: float, p: float, dtype: torch.dtype) -> None:
    """The probability above the quantile has the digits that the probability below has not."""
    m = torch.tensor([[0.0, 1.0], [0.4, 2.0], [1.3, 3.0]], dtype=dtype)
    scale = torch.full_like(m, 0.3)
    family = Normal(m, scale) if np.isinf(df) else StudentT(df, m, scale)
    levels = torch.tensor([[0.5], [p]], dtype=torch.float64)
    middle, found = mixture.quantile(family, levels)
    z = (found.double() - m.double()) / 0.3
    above = (norm.sf(z) if np.isinf(df) else student.sf(z, df)).mean(0)
    digits = 1e-10 if dtype == torch.float64 else 1e-4
    np.testing.assert_allclose(above, 1 - p, rtol=digits)
    torch.testing.assert_close(middle, mixture.quantile(family, 0.5))


def test_a_quantile_next_to_1_of_one_normal() -> None:
    found = mixture.quantile(Normal(torch.ones(1, 1), torch.full((1, 1), 0.3)), 1 - 1e-10)
    np.testing.assert_allclose(found, 1 + 0.3 * norm.ppf(1 - 1e-10), rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "p", "wanted", "digits"),
    [(torch.float32, 1 - 4e-3, 1e6 + 2.26, 1e-6), (torch.float64, 1 - 1e-7, 1e9, 1e-14)],
)
def test_a_quantile_in_a_narrow_component_far_away(
    dtype: torch.dtype, p: float, wanted: float, digits: float
) -> None:
    loc, scale = torch.zeros(1000, 1, dtype=dtype), torch.ones(1000, 1, dtype=dtype)
    loc[-1], scale[-1] = 1e9, 1e-6
    if dtype == torch.float32:
        loc = torch.tensor([[0.0], [1e6], [-1e6]])
        scale = torch.tensor([[1e-3], [1.0], [10.0]])
    found = mixture.quantile(Normal(loc, scale), p)
    np.testing.assert_allclose(found, wanted, rtol=digits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_quantiles_stay_inside_a_bounded_support(dtype: torch.dtype) -> None:
    high = torch.tensor([[1.0], [3.0]], dtype=dtype)
    uniform = Uniform(torch.zeros_like(high), high)
    levels = torch.tensor([[1 - 1e-5], [1 - 1e-9], [1 - 1e-15]], dtype=torch.float64)
    found = mixture.quantile(uniform, levels)
    assert float(found.max()) <= 3
    # 1 - p is half of the share of the second component above
    wanted = 3 - 6 * (1 - levels)
    eps = torch.finfo(dtype).eps
    np.testing.assert_allclose(found, wanted, rtol=5 * eps)
    half = torch.full((2, 1), 0.5, dtype=dtype)
    assert float(mixture.quantile(Beta(half, 0.6 * half), levels).max()) <= 1


def test_a_row_without_parameters_takes_no_longer_than_others() -> None:
    """The continued fraction of the tail ends where its factors are NaN."""
    rate = torch.tensor([np.nan, 1.0], dtype=torch.float64)
    steps = 0

    def count(*_: object) -> None:
        nonlocal steps
        steps += 1

    z = rate.numpy() * 800.0
    sys.setprofile(count)
    try:
        found = tails._log_gamma_fraction(z, np.ones(2))
    finally:
        sys.setprofile(None)
    assert steps < 5000
    assert np.isnan(found[0])
    np.testing.assert_allclose(found[1], -800.0)


def test_the_slope_of_a_quantile_next_to_1() -> None:
    m = torch.tensor([[0.0], [0.4], [1.3]], dtype=torch.float64, requires_grad=True)

    def figure(m: torch.Tensor) -> torch.Tensor:
        return mixture.quantile(Normal(m, torch.full_like(m, 0.3)), 1 - 1e-9).sum()

    (found,) = torch.autograd.grad(figure(m), m)
    torch.testing.assert_close(found, slopes(figure, m.detach()), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("draws", [257, 1000])
def test_the_score_of_many_narrow_normals(draws: int) -> None:
    rng = np.random.default_rng(0)
    m, sd, y = rng.random(draws), 1e-4, 0.3

    def moment(mean: np.ndarray, scale: float) -> np.ndarray:
        z = mean / scale
        return 2 * scale * norm.pdf(z) + mean * (2 * norm.cdf(z) - 1)

    wanted = moment(y - m, sd).mean() - 0.5 * moment(m[:, None] - m, sd * 2**0.5).mean()
    found = crps(Normal(torch.tensor(m)[:, None], torch.full((draws, 1), sd)), torch.tensor([y]))
    assert float(found[0]) == pytest.approx(wanted, rel=1e-6)


def test_the_score_at_infinity() -> None:
    ends = torch.tensor([torch.inf, -torch.inf], dtype=torch.float64)
    zeros = torch.zeros(1, 2, dtype=torch.float64)
    for distribution in (StudentT(5.0, zeros, 1.0), Normal(zeros, torch.ones_like(zeros))):
        assert crps(distribution, ends).tolist() == [torch.inf, torch.inf]


def test_tails_beyond_the_smallest_number() -> None:
    one = torch.ones(1, 3, dtype=torch.float64)
    x = torch.tensor([800.0, 30.0, 2.0], dtype=torch.float64)
    _, above = log_tails(Gumbel(0 * one, one), x)
    wanted = np.log(-np.expm1(-np.exp(-x[1:].numpy())))
    np.testing.assert_allclose(above[0].numpy(), [-800.0, *wanted], rtol=1e-12)
    below, _ = log_tails(Weibull(one, 5 * one), torch.tensor([1e-70, 1e-20, 0.5], dtype=x.dtype))
    wanted = [5 * np.log(1e-70), 5 * np.log(1e-20), np.log(-np.expm1(-(0.5**5)))]
    np.testing.assert_allclose(below[0].numpy(), wanted, rtol=1e-12)


def test_student_t_with_one_degree_of_freedom_is_cauchy() -> None:
    x = torch.tensor([-1e10, -3.0, -1e-8, 5e-9, 2.0], dtype=torch.float64)
    one = torch.ones(1, len(x), dtype=torch.float64)
    distribution = StudentT(one, 0 * one, one)
    np.testing.assert_allclose(mixture.cdf(distribution, x), cauchy.cdf(x), rtol=1e-14)
    np.testing.assert_allclose(log_tails(distribution, x)[0][0], cauchy.logcdf(x), rtol=1e-12)
