"""Values of y that repeat belong to the sets and steps that end there, whatever the rounding."""

from __future__ import annotations

import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import Dataset, Prediction, conformal, inference, models
from ppgp.conformal import full_interval, full_system, leave_one_out_parts
from ppgp.conformal.full_conformal_closed_form import LeaveOneOutParts
from ppgp.conformal.predictive_systems import PredictiveSystem

F64 = torch.float64
VALUES = torch.linspace(0, 1, 5, dtype=F64)


def one_place(y: Tensor, noise: float, m: int) -> LeaveOneOutParts:
    """Return the parts of a GP whose rows have one place: C = 1 1' + noise I."""
    n = len(y)
    C = torch.ones(n, n, dtype=F64) + noise * torch.eye(n, dtype=F64)
    K, variance = torch.ones(n, m, dtype=F64), torch.full((m,), 1.0 + noise, dtype=F64)
    return leave_one_out_parts(C, y - 0.5, K, variance, torch.full((m,), 0.5, dtype=F64))


@pytest.mark.parametrize(("noise", "n", "level"), [(1e-4, 99, 0.8), (1e-6, 99, 0.6)])
def test_full_conformal_sets_do_not_stop_inside_a_repeated_value(
    noise: float, n: int, level: float
) -> None:
    """Sets at one place are those of the ranks of y: no end may lie just inside a value."""
    covered = []
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        y = VALUES[torch.randint(5, (n,), generator=generator)]
        parts = one_place(y, noise, 1)
        lower, upper = full_interval(parts, level)
        inside = (lower <= VALUES) & (upper >= VALUES)
        near = (lower - 1e-7 <= VALUES) & (upper + 1e-7 >= VALUES)
        torch.testing.assert_close(inside, near)
        covered.append(float(inside.double().mean()))
    assert torch.tensor(covered).mean() >= level


def test_the_cdf_of_a_full_conformal_system_is_uniform_at_repeated_values() -> None:
    low: list[float] = []
    n, u = 99, torch.linspace(0.0025, 0.9975, 200, dtype=F64)
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        y = VALUES[torch.randint(5, (n,), generator=generator)]
        parts = one_place(y, 1e-4, 5)
        system = PredictiveSystem("", values=full_system(parts), slack=parts.slack)
        cdf = system.cdf(VALUES.expand(200, 5), u[:, None])
        low.append(float((cdf <= 0.05).double().mean()))
        below = (y[:, None] < VALUES).sum(0).double()
        upto = (y[:, None] <= VALUES).sum(0).double()
        torch.testing.assert_close(system.cdf(VALUES, 0.0), below / (n + 1.0))
        torch.testing.assert_close(system.cdf(VALUES, 1.0), (upto + 1.0) / (n + 1.0))
        for p in (0.19, 0.41, 0.59, 0.81):
            assert bool((system.quantile(p) >= y.quantile(p, interpolation="lower") - 1e-12).all())
    mean = torch.tensor(low)
    assert abs(float(mean.mean()) - 0.05) <= 4 * float(mean.std()) / 60**0.5


def test_rows_without_repeated_y_have_exact_ends() -> None:
    y = torch.rand(40, generator=torch.Generator().manual_seed(0), dtype=F64)
    slack = one_place(y, 1e-6, 2).slack
    assert slack is not None
    assert not bool(slack.any())


def test_a_split_system_reaches_repeated_values() -> None:
    """The step of a repeated value is centre + sd * residual, rounded."""
    generator = torch.Generator().manual_seed(0)
    means = torch.rand(1, 500, generator=generator, dtype=F64)
    sd = 0.1 + torch.rand(1, 500, generator=generator, dtype=F64)
    y = (means + sd * torch.randint(1, 4, (500,), generator=generator) / 3.0)[0]
    predictive = Prediction(dist.Normal(means, sd))
    system = conformal.predictive_system(predictive, y)(predictive)
    residual = ((y - means[0]) / sd[0]).round(decimals=6)
    for p, value in ((0.2, 1 / 3), (0.5, 2 / 3), (0.9, 1.0)):
        at = residual == round(value, 6)
        assert bool((system.quantile(p)[at] >= y[at]).all())
        assert bool((system.cdf(y, 0.0)[at] == system.cdf(y, 0.0)[at][0]).all())


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_conformal_bayes_does_not_stop_inside_a_repeated_value() -> None:
    """Ratings in two groups: an end that lay just inside one covered .76 at a level of .8."""
    ratings, groups = 1 + 4 * VALUES, torch.tensor([[0.0], [1.0]], dtype=F64)
    share = torch.tensor([0.12, 0.26, 0.24, 0.26, 0.12], dtype=F64)
    covered = []
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        X = torch.randint(2, (60, 1), generator=generator).to(F64)
        y = 1.0 + torch.multinomial(share, 60, True, generator=generator).to(F64)
        posterior = ppgp.fit(
            models.LinearRegression(noise=1.0),
            Dataset(X, y),
            inference.Exact(draws=200),
            progress=False,
            standardise=False,
            seed=seed,
        )
        lower, upper = ppgp.conformal_bayes(posterior, groups, 0.8)
        inside = (lower[:, None] <= ratings) & (upper[:, None] >= ratings)
        near = (lower[:, None] - 1e-9 <= ratings) & (upper[:, None] + 1e-9 >= ratings)
        torch.testing.assert_close(inside, near)
        covered.append(float((inside * share).sum(1).mean()))
    mean = torch.tensor(covered)
    assert float(mean.mean()) >= 0.8 - 4 * float(mean.std()) / 6**0.5
