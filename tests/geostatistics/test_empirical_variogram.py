"""The empirical variogram against explicit sums, and its fit against known variograms."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

import ppgp
from ppgp import kernels, models
from ppgp.data import Dataset
from ppgp.errors import ConvergenceWarning, DataError, NotApplicable, SettingError
from ppgp.geostatistics.variogram import EmpiricalVariogram
from ppgp.geostatistics.variogram_fit import semivariance
from ppgp.kernels import ARD, RBF, Anisotropy, Exponential, LinearVariogram, Matern, Spherical

GENERATOR = torch.Generator().manual_seed(0)
X = 10 * torch.rand(60, 2, generator=GENERATOR, dtype=torch.float64)
Y = torch.sin(X[:, 0]) + 0.3 * torch.randn(60, generator=GENERATOR, dtype=torch.float64)
DATA = Dataset(X, Y)


@pytest.mark.parametrize("kind", ["matheron", "cressie"])
@pytest.mark.parametrize("direction", [None, 0.0, 60.0, 180.0])
def test_the_semivariance_is_the_mean_over_pairs(kind: str, direction: float | None) -> None:
    result = ppgp.empirical_variogram(DATA, 6, 5.0, kind=kind, direction=direction, tolerance=30.0)
    for j in range(6):
        gaps, distances = [], []
        for a in range(60):
            for b in range(a):
                east, north = (X[a] - X[b]).tolist()
                h = math.hypot(east, north)
                turn = math.degrees(math.atan2(east, north)) - (direction or 0.0)
                off = abs((turn + 90) % 180 - 90)
                if j * 5 / 6 < h <= (j + 1) * 5 / 6 and (direction is None or off <= 30):
                    gaps.append(abs(float(Y[a] - Y[b])))
                    distances.append(h)
        n = len(gaps)
        mean = sum(g**2 for g in gaps) / n
        if kind == "cressie":
            mean = (sum(g**0.5 for g in gaps) / n) ** 4 / (0.457 + 0.494 / n)
        assert int(result.pairs[j]) == n
        assert float(result.semivariance[j]) == pytest.approx(mean / 2, rel=1e-12)
        assert float(result.distance[j]) == pytest.approx(sum(distances) / n, rel=1e-12)
    assert list(result.to_frame().columns) == [
        "lower",
        "upper",
        "distance",
        "semivariance",
        "pairs",
    ]


def test_blocks_of_rows_do_not_change_the_variogram(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ppgp.empirical_variogram(DATA)
    monkeypatch.setattr("ppgp.geostatistics.variogram.ROWS_AT_ONCE", 7)
    torch.testing.assert_close(ppgp.empirical_variogram(DATA).semivariance, whole.semivariance)
    assert float(whole.edges[-1]) == pytest.approx(float((X.amax(0) - X.amin(0)).norm()) / 3)


def test_a_sample_of_pairs_estimates_the_mean_over_all() -> None:
    """With 1769 draws from 1770 pairs, the mean of each lag lies within 5 standard errors."""
    whole = ppgp.empirical_variogram(DATA, 5, 8.0)
    fine = replace(DATA)
    some = ppgp.empirical_variogram(fine, 5, 8.0, max_pairs=1769, seed=1)
    again = ppgp.empirical_variogram(fine, 5, 8.0, max_pairs=1769, seed=1)
    assert some.subsampled == 1769
    assert whole.subsampled is None
    assert torch.equal(some.semivariance, again.semivariance)
    # the sd of a squared normal difference is sqrt(2) times its mean; the 5 covers heavier tails
    error = math.sqrt(2) * whole.semivariance / some.pairs.sqrt()
    assert bool(((some.semivariance - whole.semivariance).abs() < 5 * error).all())


def test_a_drift_is_subtracted_first() -> None:
    tilted = Dataset(X, Y + 100 + 7 * X[:, 0] - 3 * X[:, 1])
    one, two = (ppgp.empirical_variogram(d, drift=1) for d in (DATA, tilted))
    torch.testing.assert_close(one.semivariance, two.semivariance)


@pytest.mark.parametrize("weights", ["pairs/distance^2", "pairs", "cressie", "equal"])
@pytest.mark.parametrize(
    ("kernel", "numbers"),
    [
        (Exponential(), {"variance": 2.0, "lengthscale": 1.5}),
        (Spherical(), {"variance": 2.0, "lengthscale": 6.0}),
        (Matern(1.5), {"variance": 2.0, "lengthscale": 1.5}),
        (RBF(), {"variance": 2.0, "lengthscale": 2.0}),
        (LinearVariogram(), {"slope": 0.4}),
    ],
    ids=lambda v: type(v).__name__,
)
def test_an_exact_variogram_is_recovered(
    kernel: kernels.Kernel, numbers: dict[str, float], weights: str
) -> None:
    h = torch.linspace(0.5, 8.0, 16, dtype=torch.float64)
    theta = {name: torch.tensor(value, dtype=torch.float64) for name, value in numbers.items()}
    gamma = semivariance(kernel, theta, h) + 0.3
    empirical = EmpiricalVariogram(torch.linspace(0.25, 8.25, 17), h, gamma, torch.full((16,), 50))
    fit = ppgp.fit_variogram(empirical, kernel, weights=weights)
    assert fit.converged
    assert fit.nugget == pytest.approx(0.3, rel=1e-3)
    for name, value in numbers.items():
        assert getattr(fit.variogram, name) == pytest.approx(value, rel=1e-3)
    torch.testing.assert_close(fit(h), gamma, rtol=1e-4, atol=1e-4)


def test_fixed_numbers_stay_and_sums_and_wrappers_are_fitted() -> None:
    h = torch.linspace(0.5, 8.0, 16, dtype=torch.float64)
    gamma = 0.05 + 0.4 * (1 - torch.exp(-h)) + semivariance(Spherical(0.5, 3.0), {}, h)
    empirical = EmpiricalVariogram(
        torch.linspace(0.25, 8.25, 17), h, gamma, torch.full((16,), 50), 30.0
    )
    fit = ppgp.fit_variogram(
        empirical, Spherical(lengthscale=3.0) + Anisotropy(Exponential(), 30.0, 0.5), nugget=0.05
    )
    first, second = cast(Any, fit.variogram).children
    assert first.lengthscale == 3.0
    assert first.variance == pytest.approx(0.5, rel=1e-3)
    assert second.kernel.lengthscale == pytest.approx(1.0, rel=1e-3)
    assert (second.angle, second.ratio, fit.nugget) == (30.0, 0.5, 0.05)
    model = fit.kriging(1, neighbours=12)
    assert model == models.Kriging(fit.variogram, 0.05, 1, neighbours=12)
    assert model.prepare(DATA).predict({}, X[:3] + 0.1, DATA).mean.shape == (1, 3)


def test_lags_that_show_no_sill_warn() -> None:
    h = torch.linspace(0.5, 8.0, 16, dtype=torch.float64)
    straight = EmpiricalVariogram(torch.linspace(0.25, 8.25, 17), h, 0.4 * h, torch.full((16,), 50))
    with pytest.warns(ConvergenceWarning, match="no sill; use a larger cutoff, or LinearVariogram"):
        ppgp.fit_variogram(straight)


def test_invalid_options_and_data_raise_a_clear_error() -> None:
    clusters = Dataset(
        torch.tensor([[0.0, 0], [0.1, 0], [10, 0], [10.1, 0]], dtype=torch.float64), Y[:4]
    )
    with pytest.raises(DataError, match=r"none in lag 2 \(2 to 4\) and 2 more"):
        ppgp.empirical_variogram(clusters, 5, 10.0)
    with pytest.raises(DataError, match="all at one"):
        ppgp.empirical_variogram(Dataset(torch.ones(4, 2, dtype=torch.float64), Y[:4]))
    invalid: tuple[dict[str, Any], ...] = (
        {"lags": 0},
        {"cutoff": -1.0},
        {"kind": "mean"},
        {"direction": 200.0},
        {"tolerance": 0},
        {"max_pairs": 0},
    )
    for options in invalid:
        with pytest.raises(SettingError):
            ppgp.empirical_variogram(DATA, **options)
    result = ppgp.empirical_variogram(DATA)
    with pytest.raises(SettingError, match="weights"):
        ppgp.fit_variogram(result, weights="n")
    with pytest.raises(SettingError, match="nugget"):
        ppgp.fit_variogram(result, nugget=-1.0)
    with pytest.raises(NotApplicable, match="fix the angle"):
        ppgp.fit_variogram(result, Anisotropy(RBF()))
    with pytest.raises(NotApplicable, match="direction="):
        ppgp.fit_variogram(result, Anisotropy(RBF(), 30.0, 0.5))
    with pytest.raises(NotApplicable):
        ppgp.fit_variogram(result, ARD(RBF()))
    with pytest.raises(DataError, match="at least 3 lags"):
        ppgp.fit_variogram(ppgp.empirical_variogram(DATA, 2))


@pytest.mark.data("kriging/meuse.csv")
def test_the_variogram_of_the_meuse_data_equals_gstat(data_dir: Path) -> None:
    """Compare log(zinc) of 155 samples with the vignettes of gstat (Pebesma 2004), at its defaults.

    These are the pairs, distance and semivariance of the first lags, and the spherical fit. gstat
    stops sooner than least squares does here, hence three digits.
    """
    import pandas as pd

    frame = pd.read_csv(data_dir / "kriging" / "meuse.csv")
    data = Dataset(frame[["x", "y"]].to_numpy(float), frame["zinc"].map(math.log).to_numpy(float))
    result = ppgp.empirical_variogram(data)
    assert result.pairs[:5].tolist() == [57, 299, 419, 457, 547]
    printed = [
        (79.29244, 0.1234479),
        (163.97367, 0.2162185),
        (267.36483, 0.3027859),
        (372.73542, 0.4121448),
    ]
    for j, (distance, gamma) in enumerate(printed):
        assert float(result.distance[j]) == pytest.approx(distance, rel=1e-6)
        assert float(result.semivariance[j]) == pytest.approx(gamma, rel=1e-6)
    fit = ppgp.fit_variogram(result, Spherical())
    assert fit.nugget == pytest.approx(0.05066243, rel=5e-3)
    variogram = cast(Any, fit.variogram)
    assert variogram.variance == pytest.approx(0.5906009, rel=5e-3)
    assert variogram.lengthscale == pytest.approx(897.0209, rel=5e-3)
