"""StateSpaceGP on the weekly CO2 of Mauna Loa (Keeling & Whorf 2004), which statsmodels has.

The terms of its kernel are those of Rasmussen & Williams (2006), section 5.4.3, with waves of a
year and of half a year in place of their periodic term.
"""

from __future__ import annotations

import math

import pytest
import torch

import ppgp
from ppgp.conformal import ACI, Normalized, calibrate
from ppgp.inference import MAP
from ppgp.kernels import Cosine, Kernel, Linear, Matern
from ppgp.models import StateSpaceGP
from ppgp.priors import InUnitsOfData, LogNormal

WEEKS = 104  # of the forecast
LEVEL = 0.9

pytestmark = pytest.mark.slow


def about(median: float) -> InUnitsOfData:
    return InUnitsOfData(LogNormal(math.log(median), 0.7))


def trend_and_year() -> Kernel:
    year = Matern(1.5, about(5.0), about(50.0)) * Cosine(1.0, 1.0)
    half = Matern(1.5, about(0.5), about(50.0)) * Cosine(1.0, 0.5)
    return (
        Linear()
        + Matern(2.5, about(300.0), about(20.0))
        + year
        + half
        + Matern(1.5, about(0.3), about(0.3))
    )


@pytest.fixture(scope="module")
def series() -> tuple[torch.Tensor, torch.Tensor]:
    """Years since the first week [n, 1] and ppm [n], without the missing weeks."""
    frame = pytest.importorskip("statsmodels.api").datasets.co2.load_pandas().data.dropna()
    years = (frame.index - frame.index[0]).days.to_numpy() / 365.25
    return torch.tensor(years)[:, None], torch.tensor(frame["co2"].to_numpy())


@pytest.fixture(scope="module")
def past(series: tuple[torch.Tensor, torch.Tensor]) -> tuple[ppgp.Posterior, torch.Tensor]:
    """The fit to 80 % of the weeks before the last 208, and which of these it did not see."""
    X, y = (part[: -2 * WEEKS] for part in series)
    hidden = torch.rand(len(y), generator=torch.Generator().manual_seed(0)) < 0.2
    data = ppgp.Dataset(X[~hidden], y[~hidden])
    model = StateSpaceGP(trend_and_year(), noise=LogNormal(-4.0, 1.0))
    return ppgp.fit(model, data, MAP(), progress=False), hidden


def test_intervals_of_missing_weeks_cover(
    series: tuple[torch.Tensor, torch.Tensor], past: tuple[ppgp.Posterior, torch.Tensor]
) -> None:
    (X, y), (fit, hidden) = series, past
    X, y = X[: -2 * WEEKS][hidden], y[: -2 * WEEKS][hidden]
    found = fit.predict(X)
    share = float(found.interval(0.95).covers(y).double().mean())
    error = float((found.mean - y).square().mean().sqrt())
    print(f"{len(y)} missing weeks: {share:.1%} in 95 % intervals, RMSE {error:.2f} ppm")
    assert len(y) > 350
    assert 0.92 <= share <= 0.98
    assert error < 0.4  # the waves of the year are 3 ppm high


def test_online_conformal_intervals_of_the_last_weeks(
    series: tuple[torch.Tensor, torch.Tensor], past: tuple[ppgp.Posterior, torch.Tensor]
) -> None:
    """Each week is predicted from all weeks before it; the 104 before the last ones calibrate."""
    (X, y), (fit, _) = series, past
    before, last = slice(-2 * WEEKS, -WEEKS), slice(-WEEKS, None)
    calibration = calibrate(Normalized(), fit.one_step_ahead(X[before], y[before]), y[before])
    ahead = fit.update(X[before], y[before]).one_step_ahead(X[last], y[last])
    aci = ACI(Normalized(), LEVEL, 0.02)
    online = aci(ahead, y[last], calibration)
    widths = online.region.upper - online.region.lower
    print(f"online: {online.coverage:.1%} of {WEEKS} weeks, width {float(widths.median()):.2f} ppm")
    assert abs(online.coverage - LEVEL) <= 3 * math.sqrt(LEVEL * (1 - LEVEL) / WEEKS)
    assert abs(online.coverage - LEVEL) <= aci.bound(WEEKS)
    assert float(widths.median()) < 2.0


def test_online_conformal_intervals_cover_series_of_this_kind() -> None:
    """In series from the model itself, the score of each week is one of equally probable ranks.

    Among n scores before it, coverage is from the level to the level + 1 / (n + 1).
    """
    start, calibrating, many = 20, 52, 200
    kernel = Matern(2.5, 100.0, 20.0) + Matern(1.5, 5.0, 50.0) * Cosine(1.0, 1.0)
    kernel = kernel + Matern(1.5, 0.3, 0.3)
    X = torch.arange(start + calibrating + WEEKS, dtype=torch.float64)[:, None] * 7 / 365.25
    K = kernel({}, X) + 0.07 * torch.eye(len(X), dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(many, len(X), generator=generator, dtype=torch.float64)
    covered, aci = [], ACI(Normalized(), LEVEL, 0.02)
    for y in z @ torch.linalg.cholesky(K).mT:
        first = ppgp.Dataset(X[:start], y[:start])
        fit = ppgp.fit(StateSpaceGP(kernel, 0.07, 0.0), first, MAP(), progress=False)
        ahead, later = fit.one_step_ahead(X[start:], y[start:]), y[start:]
        earlier = calibrate(Normalized(), ahead[:calibrating], later[:calibrating])
        covered.append(aci(ahead[calibrating:], later[calibrating:], earlier).coverage)
    share = torch.tensor(covered, dtype=torch.float64)
    error = float(share.std()) / math.sqrt(many)
    print(f"{many} series: coverage {float(share.mean()):.4f}, Monte Carlo error {error:.4f}")
    above = sum(1 / (calibrating + i + 1) for i in range(WEEKS)) / WEEKS
    assert -3.5 * error <= float(share.mean()) - LEVEL <= above + 3.5 * error
