"""Facts special to HMC: its metric, its step size, and divergences in a funnel."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import ppgp
from ppgp import models
from ppgp.density import Target
from ppgp.errors import ConvergenceWarning, SettingError
from ppgp.inference import HMC
from ppgp.models import Program


def stretched() -> None:
    scales = torch.tensor([1e-3, 1.0, 1e3], dtype=torch.float64)
    pyro.sample("z", dist.StudentT(6.0, torch.zeros_like(scales), scales).to_event(1))


def funnel() -> None:
    v = pyro.sample("v", dist.Normal(torch.zeros((), dtype=torch.float64), 3.0))
    pyro.sample("x", dist.Normal(torch.zeros(5, dtype=torch.float64), (v / 2).exp()).to_event(1))


def test_the_metric_adapts_to_scales_six_orders_apart() -> None:
    posterior = ppgp.fit(stretched, {}, HMC(), progress=False)
    sd = posterior.draws["z"].std((0, 1))
    wanted = torch.tensor([1e-3, 1.0, 1e3], dtype=torch.float64) * 1.5**0.5
    assert bool(((sd / wanted - 1).abs() < 0.15).all())
    assert posterior.stats["acceptance_rate"].mean() == pytest.approx(0.8, abs=0.1)
    assert not bool(posterior.stats["diverging"].any())


def test_divergences_in_a_funnel_are_reported() -> None:
    with pytest.warns(ConvergenceWarning, match="diverged|R-hat|effective"):
        posterior = ppgp.fit(funnel, {}, HMC(draws=500, warmup=500), progress=False)
    assert posterior.warnings


def test_a_batch_of_points_equals_single_points() -> None:
    """The graph of many points gives the values of the graph of one, mini-batches included."""
    data = ppgp.load("diabetes").standardised()[0].rows(slice(0, 60))
    target = Target(models.LinearRegression(), data)
    z = torch.stack([target.start(seed, 1.0) for seed in range(3)])
    for rows in (None, torch.arange(7, 19)):
        values, gradients = target.value_and_grad_batch(z, rows)
        for k in range(3):
            value, gradient = target.value_and_grad(z[k], rows)
            assert torch.allclose(values[k], value, rtol=1e-12)
            assert torch.allclose(gradients[k], gradient, rtol=1e-10, atol=1e-10)


def moody(mean: Tensor) -> None:
    z = pyro.sample("z", dist.Normal(mean, 1.0))
    pyro.factor("f", -z if float(z) > 0 else z)


@pytest.mark.filterwarnings("ignore::ppgp.errors.NumericalWarning")
def test_a_batch_of_points_of_an_untraceable_program() -> None:
    target = Target(Program(moody), {"mean": torch.zeros((), dtype=torch.float64)})
    z = torch.tensor([[-1.0], [0.5], [2.0]], dtype=torch.float64)
    values, _ = target.value_and_grad_batch(z)
    expected = (
        -0.5 * z[:, 0] ** 2
        - 0.5 * torch.log(torch.tensor(2 * torch.pi, dtype=torch.float64))
        - z[:, 0].abs()
    )
    assert torch.allclose(values, expected)


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(SettingError, match="trajectory"):
        HMC(trajectory=0.0)
    with pytest.raises(SettingError, match="target_accept"):
        HMC(target_accept=1.0)


def test_hmc_warns_of_divergences_like_nuts() -> None:
    from ppgp.inference.base import divergences

    diverging = torch.tensor([[True, False, True]])
    (sentence,) = HMC().notes({"diverging": diverging})
    assert divergences(diverging) == [sentence]
    assert sentence.startswith("2 of 3 draws diverged")
    assert HMC().notes({"diverging": torch.zeros(1, 3)}) == []
