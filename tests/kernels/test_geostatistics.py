"""Facts about the kernels of geostatistics."""

from __future__ import annotations

import math

import pytest
import torch

from ppgp.errors import SettingError
from ppgp.kernels import RBF, Anisotropy, Exponential, LinearVariogram, Scale, Spherical

X = torch.randn(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_spherical_kernel_is_the_common_volume_of_two_balls() -> None:
    h = torch.linspace(0.0, 3.0, 13, dtype=torch.float64)
    K = Spherical(2.0, 2.0)({}, torch.zeros(1, 1, dtype=torch.float64), h[:, None])[0]
    radius = (
        1.0  # balls of diameter 2, centres h apart: two caps, pi (4 r + h) (2 r - h)^2 / 12 in all
    )
    volume = math.pi * (4 * radius + h) * (2 * radius - h).clamp_min(0).square() / 12
    torch.testing.assert_close(
        K, 2.0 * volume / (4 / 3 * math.pi * radius**3), rtol=1e-12, atol=1e-12
    )


def test_the_spherical_kernel_has_at_most_three_dimensions() -> None:
    with pytest.raises(SettingError, match="at most 3 columns"):
        Spherical().sites(4)
    with pytest.raises(SettingError, match="Subspace"):
        Spherical(1.0, 1.0)({}, torch.zeros(2, 4, dtype=torch.float64))


def test_the_variogram_of_the_linear_kernel_is_a_line() -> None:
    K = LinearVariogram(0.7)({}, X)
    gamma = 0.5 * (K.diagonal()[:, None] + K.diagonal()[None]) - K
    torch.testing.assert_close(gamma, 0.7 * torch.cdist(X, X), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    ("angle", "long"),
    [(0.0, (0.0, 1.0)), (90.0, (1.0, 0.0)), (45.0, (1.0, 1.0)), (135.0, (1.0, -1.0))],
)
def test_the_range_is_long_along_the_angle_and_short_across(
    angle: float, long: tuple[float, float]
) -> None:
    """Angles are clockwise from north: 45 degrees is north-east, 135 south-east."""
    kernel, origin = (
        Anisotropy(Exponential(1.0, 2.0), angle, 0.25),
        torch.zeros(1, 2, dtype=torch.float64),
    )
    along = torch.tensor([long], dtype=torch.float64)
    across = torch.tensor([[-long[1], long[0]]], dtype=torch.float64)
    h = float(along.norm())
    assert float(kernel({}, origin, along)) == pytest.approx(math.exp(-h / 2.0))
    assert float(kernel({}, origin, across)) == pytest.approx(math.exp(-h / 0.5))


def test_a_ratio_of_one_is_isotropic_and_bad_settings_are_refused() -> None:
    torch.testing.assert_close(Anisotropy(RBF(1.0, 0.8), 33.0, 1.0)({}, X), RBF(1.0, 0.8)({}, X))
    with pytest.raises(SettingError, match="clockwise from north"):
        Anisotropy(RBF(), angle=-10.0)
    with pytest.raises(SettingError, match="divide the shorter range"):
        Anisotropy(RBF(), ratio=2.0)
    with pytest.raises(SettingError, match="at least 2 columns"):
        Anisotropy(RBF()).sites(1)
    with pytest.raises(SettingError, match="keep the outer one"):
        Anisotropy(Scale(Anisotropy(RBF()))).sites(2)
