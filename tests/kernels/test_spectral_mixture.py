"""The spectral mixture: its spectrum, and the kernels that it contains."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import ppgp
from ppgp import Dataset, inference, models
from ppgp.density import Target
from ppgp.errors import SettingError
from ppgp.kernels import RBF, SpectralMixture
from ppgp.models import GP

X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def theta(
    weight: list[float], frequency: list[list[float]], bandwidth: list[list[float]]
) -> dict[str, torch.Tensor]:
    given = {"weight": weight, "frequency": frequency, "bandwidth": bandwidth}
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in given.items()}


def test_at_frequency_0_it_is_a_squared_exponential() -> None:
    """The bandwidth is 1 / (2 pi lengthscale)."""
    s = 1 / (2 * math.pi * 0.7)
    K = SpectralMixture(1)(theta([1.3], [[0.0, 0.0]], [[s, s]]), X)
    torch.testing.assert_close(K, RBF(1.3, 0.7)({}, X), rtol=1e-12, atol=1e-12)


def test_it_is_the_fourier_transform_of_its_spectrum() -> None:
    """Integrate numerically a mixture of Gaussians at plus and minus each frequency."""
    lags = torch.tensor([[0.0], [0.3], [1.1]], dtype=torch.float64)
    K = SpectralMixture(2)(theta([0.6, 1.5], [[0.4], [1.2]], [[0.2], [0.1]]), lags[:1], lags)[0]
    s = torch.linspace(-6, 6, 20001, dtype=torch.float64)
    density = torch.zeros_like(s)
    for w, mu, b in ((0.6, 0.4, 0.2), (1.5, 1.2, 0.1)):
        for sign in (-1, 1):
            density += (
                0.5
                * w
                * torch.exp(-0.5 * ((s - sign * mu) / b).square())
                / (b * math.sqrt(2 * math.pi))
            )
    expected = torch.trapezoid(density * torch.cos(2 * math.pi * lags * s), s)
    torch.testing.assert_close(K, expected, rtol=1e-9, atol=1e-9)


def test_components_start_apart() -> None:
    """Equal components would always have equal gradients."""
    model = GP(SpectralMixture(3))
    start = Target(model, Dataset(X, X[:, 0])).constrain(
        Target(model, Dataset(X, X[:, 0])).origin()
    )
    torch.testing.assert_close(
        start["kernel.frequency"][:, 0], torch.tensor([1 / 6, 1 / 2, 5 / 6], dtype=torch.float64)
    )


@pytest.mark.filterwarnings("ignore::ppgp.errors.PpgpWarning")
def test_it_extrapolates_a_periodic_pattern() -> None:
    """Predict the sum of two sines three periods beyond the data.

    There the RBF kernel is back at its mean, with an error of the sd of y.
    """
    t = torch.linspace(0, 12, 160, dtype=torch.float64)[:, None]

    def tones(t: torch.Tensor) -> torch.Tensor:
        return torch.sin(2 * math.pi * 0.5 * t[:, 0]) + 0.5 * torch.sin(2 * math.pi * 1.3 * t[:, 0])

    y = tones(t) + 0.05 * torch.randn(
        160, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    ahead = torch.linspace(12.2, 14, 40, dtype=torch.float64)[:, None]
    rmse = {}
    for kernel in (SpectralMixture(3), RBF()):
        posterior = ppgp.fit(
            GP(kernel), Dataset(t, y), inference.MAP(), standardise=False, progress=False
        )
        rmse[type(kernel).__name__] = float(
            (posterior.predict(ahead).mean - tones(ahead)).square().mean().sqrt()
        )
    assert rmse["SpectralMixture"] < 0.3 * rmse["RBF"]


def test_bad_options_are_refused() -> None:
    with pytest.raises(SettingError, match="components"):
        SpectralMixture(0)
    with pytest.raises(SettingError, match="frequency of shape"):
        SpectralMixture(1)(theta([1.0], [[0.1, 0.1]], [[0.1, 0.1]]), X[:, :1])


@pytest.mark.parametrize("build", [models.GP, models.SGPR, models.SVGP, models.Kriging])
def test_every_search_starts_with_different_components(build: Any) -> None:
    data = Dataset(
        torch.linspace(0.0, 3.0, 20, dtype=torch.float64)[:, None],
        torch.linspace(0.0, 3.0, 20).sin(),
    )
    target = Target(build(SpectralMixture(3)).prepare(data), data)
    begun = target.constrain(target.origin())
    frequency = next(value for name, value in begun.items() if name.endswith("frequency"))
    torch.testing.assert_close(
        frequency[:, 0], torch.tensor([1.0, 3.0, 5.0], dtype=torch.float64) / 6
    )
