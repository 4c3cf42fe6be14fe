"""E|X - X'| / 2 of mixtures of normals, and their CRPS, against sums over all pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import special
from torch import Tensor
from torch.distributions import Normal

from ppgp.distributions.crps import (
    POINTS,
    _weights,
    crps,
    half_mean_difference,
    points_needed,
)

F64 = torch.float64


def mean_absolute(mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Return E|Z| of normal variables."""
    z = mean / sd
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    return 2 * sd * density + mean * special.erf(z / math.sqrt(2))


def by_pairs(loc: np.ndarray, scale: np.ndarray) -> float:
    """Return E|X - X'| / 2 of a mixture with components [draw]."""
    sd = np.hypot(scale[:, None], scale)
    return 0.5 * float(mean_absolute(loc[:, None] - loc, sd).mean())


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64)


ROWS = 4
CASES = {
    "overlapping": (0.3 * drawn(40, ROWS), torch.ones(40, ROWS, dtype=F64)),
    "two modes": (
        drawn(40, ROWS) + 15.0 * (torch.arange(40) < 9)[:, None],
        0.8 + drawn(40, 1) ** 2,
    ),
    "far apart": (100.0 * drawn(40, ROWS), 1.0 + drawn(40, ROWS, seed=1) ** 2),
    "uneven rows": (drawn(40, ROWS) * 4.0 ** torch.arange(ROWS), torch.ones(40, ROWS, dtype=F64)),
    "one component": (drawn(1, ROWS), torch.ones(1, ROWS, dtype=F64)),
    "large numbers": (1e150 * drawn(40, ROWS), torch.full((40, ROWS), 2e150, dtype=F64)),
    "many draws": (drawn(900, ROWS), 0.7 + 0.1 * drawn(900, 1, seed=1) ** 2),
}


def normals(name: str) -> Normal:
    loc, scale = CASES[name]
    return Normal(loc, scale.expand_as(loc))


@pytest.mark.parametrize("name", CASES)
def test_half_the_mean_difference_is_that_of_all_pairs(name: str) -> None:
    """The tails left out and the frequencies left out are 1e-12 of the largest scale each."""
    d = normals(name)
    ours = half_mean_difference(d, points_needed(d))
    expected = [by_pairs(d.loc[:, i].numpy(), d.scale[:, i].numpy()) for i in range(ROWS)]
    np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-11)


@pytest.mark.parametrize("name", CASES)
def test_crps_of_normals_is_that_of_all_pairs(name: str) -> None:
    d = normals(name)
    y = d.loc[0] + d.scale[0]
    for i in range(ROWS):
        loc, scale = d.loc[:, i].numpy(), d.scale[:, i].numpy()
        expected = mean_absolute(y[i].item() - loc, scale).mean() - by_pairs(loc, scale)
        assert float(crps(d, y)[i]) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(
    ("place", "scale"), [(1.7e9, 1e-3), (1e12, 1e-2), (1e15, 1.0), (1e17, 64.0)]
)
@pytest.mark.parametrize("draws", [1, 40, 300])
def test_far_from_zero_the_crps_keeps_its_digits(place: float, scale: float, draws: int) -> None:
    """Only the rounding of the locations themselves counts: it is the same for both."""
    loc = place + scale * drawn(draws, ROWS)
    d = Normal(loc, torch.full_like(loc, scale))
    y = loc[0] + 2.0 * scale
    moved = Normal(loc - place, d.scale)  # exact, as the locations are near
    torch.testing.assert_close(crps(d, y), crps(moved, y - place), rtol=1e-11, atol=0)


def test_scales_below_the_rounding_of_the_locations() -> None:
    loc = torch.full((5, 2), 1e17, dtype=F64)
    found = crps(Normal(loc, torch.full_like(loc, 0.1)), loc[0])
    exact = 0.1 * (math.sqrt(2 / math.pi) - 1 / math.sqrt(math.pi))
    np.testing.assert_allclose(found.numpy(), exact, rtol=1e-12)


def test_weights_are_those_of_each_difference() -> None:
    for count in (2, 35, 300):
        apart = np.arange(count)[:, None] - np.arange(count)
        expected = 0.5 + special.sici(math.pi * apart)[0] / math.pi
        np.testing.assert_array_equal(_weights(count), expected)


def test_rows_of_many_points_take_another_form() -> None:
    """Their weights would take memory that grows with the square of their number."""
    loc = drawn(300, 2)
    loc[0] += 2000.0
    d = Normal(loc, torch.full_like(loc, 0.3))
    assert float(points_needed(d).max()) > POINTS
    y = torch.zeros(2, dtype=F64)
    for i in range(2):
        mean, scale = loc[:, i].numpy(), d.scale[:, i].numpy()
        expected = mean_absolute(-mean, scale).mean() - by_pairs(mean, scale)
        assert float(crps(d, y)[i]) == pytest.approx(expected, rel=1e-4)


def test_rows_are_independent_of_the_other_rows_in_their_block() -> None:
    loc, scale = CASES["uneven rows"]
    y = torch.zeros(ROWS, dtype=F64)
    together = crps(Normal(loc, scale), y)
    for i in range(ROWS):
        alone = crps(Normal(loc[:, i : i + 1], scale[:, i : i + 1]), y[i : i + 1])
        torch.testing.assert_close(together[i : i + 1], alone, rtol=1e-11, atol=0)


def test_float32_stays_float32() -> None:
    loc, scale = (v.float() for v in CASES["overlapping"])
    y = torch.ones(ROWS)
    found = crps(Normal(loc, scale), y)
    assert found.dtype == torch.float32
    exact = crps(Normal(loc.double(), scale.double()), y.double())
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=0)


def test_nan_and_infinity_stay_in_their_rows() -> None:
    loc, scale = (v.clone() for v in CASES["overlapping"])
    loc[3, 1] = torch.nan
    found = crps(Normal(loc, scale, validate_args=False), torch.zeros(ROWS, dtype=F64))
    assert torch.isnan(found).tolist() == [False, True, False, False]


def test_the_gradient_of_the_crps_is_that_of_differences() -> None:
    loc, scale = CASES["overlapping"]
    leaf = loc.clone().requires_grad_()
    y = torch.full((ROWS,), 0.3, dtype=F64)
    crps(Normal(leaf, scale), y).sum().backward()
    step = torch.zeros_like(loc)
    step[5, 2] = 1e-5
    up, down = (crps(Normal(loc + s * step, scale), y).sum() for s in (1, -1))
    assert leaf.grad is not None
    assert float(leaf.grad[5, 2]) == pytest.approx(float(up - down) / 2e-5, rel=1e-5)
