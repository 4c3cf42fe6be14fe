"""Student's t at many degrees of freedom, where differences of gamma functions cancel."""

from __future__ import annotations

import math

import mpmath as mp
import pytest
import torch
from torch import Tensor

from ppgp.errors import NotApplicable
from ppgp.likelihoods import Poisson, Predicted, StudentT

F64 = torch.float64
LAW = StudentT(df=Predicted(), scale=Predicted())
LOG_DFS = (-1.0, 1.0, 3.0, 4.09, 4.1, 6.0, 9.0, 12.0, 14.0, 16.0, 20.0, 30.0)
each = pytest.mark.parametrize("log_df", LOG_DFS)


def at(log_df: float) -> Tensor:
    return torch.tensor([[0.2], [log_df], [0.3]], dtype=F64)


def exact(log_df: float, z: float) -> tuple[mp.mpf, mp.mpf, mp.mpf]:
    """Return the slope and the second slope of the log density, and the information of log df."""
    with mp.workdps(80):
        df, square = mp.exp(mp.mpf(log_df)), mp.mpf(z) ** 2
        half = df / 2
        first = (
            mp.digamma(half + 0.5)
            - mp.digamma(half)
            - 1 / df
            - mp.log1p(square / df)
            + (df + 1) * square / (df * (df + square))
        ) / 2
        second = (
            (mp.psi(1, half + 0.5) - mp.psi(1, half)) / 4
            + 1 / (2 * df**2)
            + square * (df * (square - 2) - square) / (2 * df**2 * (df + square) ** 2)
        )
        by_df = (mp.psi(1, half) - mp.psi(1, half + 0.5)) / 4
        by_df -= (df + 5) / (2 * df * (df + 1) * (df + 3))
        return df * first, df**2 * second + df * first, df**2 * by_df


@each
def test_slopes_and_information_keep_their_digits(log_df: float) -> None:
    f = at(log_df)
    for z in (0.0, 0.4, 2.5, 40.0):
        y = f[0] + z * f[2].exp()
        z = float((y - f[0]) / f[2].exp())
        slope, second, information = exact(log_df, z)
        found, seconds = LAW.slopes({}, f, y)
        assert float(found[1]) == pytest.approx(float(slope), rel=1e-9)
        assert float(seconds[1]) == pytest.approx(float(second), rel=1e-9)
        assert float(LAW.metric({}, f)[0, 1, 1]) == pytest.approx(float(information), rel=1e-9)


@each
def test_natural_steps_solve_the_exact_metric(log_df: float) -> None:
    f = at(log_df)
    y = f[0] + 2.5 * f[2].exp()
    z = float((y - f[0]) / f[2].exp())
    with mp.workdps(80):
        df = mp.exp(mp.mpf(log_df))
        slope, _, information = exact(log_df, z)
        by_scale = 1 - (df + 1) * mp.mpf(z) ** 2 / (df + mp.mpf(z) ** 2)
        both, scales = -2 * df / ((df + 1) * (df + 3)), 2 * df / (df + 3)
        determinant = information * scales - both**2
        steps = (
            (-scales * slope - both * by_scale) / determinant,
            (information * by_scale + both * slope) / determinant,
        )
    found = LAW.natural({}, f, y)[1:, 0].tolist()
    for ours, step in zip(found, steps, strict=True):
        limited = math.copysign(min(abs(float(step)), 4.0), float(step))
        assert ours == pytest.approx(limited, rel=1e-8)


def test_one_degree_of_freedom_has_no_crps() -> None:
    """The CRPS is E abs(Y - y) - E abs(Y - Y') / 2, and neither mean is finite."""
    y = torch.linspace(-1, 1, 5, dtype=F64)
    for df in (0.8, 1, 1.0):
        law = StudentT(df=df, scale=Predicted())
        assert law.kinds == ("nll",)
        with pytest.raises(NotApplicable, match="kind='nll'"):
            law.score({}, torch.zeros(2, 5, dtype=F64), y, "crps")
    assert "crps" in StudentT(df=1.1, scale=Predicted()).kinds


@pytest.mark.parametrize("df", [0.5, 3.0, 200.0])
def test_the_parabola_of_a_step_touches_the_log_density_from_below(df: float) -> None:
    """It does so at f and, as both are even about y, at 2y - f."""
    law = StudentT(df=df)
    theta = {"scale": torch.tensor([0.1, 2.0], dtype=F64)}
    y = torch.linspace(-5.0, 5.0, 21, dtype=F64)
    f = torch.full((2, 1, 21), 0.3, dtype=F64)
    first, second = law.slopes(theta, f, y)
    W = law.step_curvature(theta, f, y)
    assert W.shape == (2, 21)
    assert bool((W > 0).all())
    assert bool((-second[:, 0] <= W).all())
    here = law.score(theta, f, y)
    for step in torch.linspace(-8.0, 8.0, 81, dtype=F64):
        below = -here + first[:, 0] * step - 0.5 * W * step**2
        assert bool((-law.score(theta, f + step, y) - below >= -1e-10 * (1 + below.abs())).all())
    across = 2 * (y - f[:, 0])
    below = -here + first[:, 0] * across - 0.5 * W * across**2
    torch.testing.assert_close(-law.score(theta, f + across[:, None], y), below)


@pytest.mark.parametrize("df", [0.5, 3.0, 200.0])
def test_rows_as_normal_ones_have_the_noise_of_a_wider_scale(df: float) -> None:
    law, wide = StudentT(df=df, scale=0.2), StudentT(df=df, scale=1.6)
    y = torch.linspace(-5.0, 5.0, 21, dtype=F64)
    f = torch.full((1, 21), 0.3, dtype=F64)
    W = law.precision_as_normal({}, f, y, 8.0)
    torch.testing.assert_close(W, wide.step_curvature({}, f, y))
    assert Poisson().precision_as_normal({}, f, y.abs()) is None
