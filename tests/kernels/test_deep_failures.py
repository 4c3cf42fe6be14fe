"""Networks of deep kernels that fail, or do not fit the data."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from deep_examples import SMALL, cliff, quiet
from torch import Tensor, nn

import ppgp
from ppgp import Dataset, inference
from ppgp.errors import NumericalError, SettingError
from ppgp.kernels import RBF, Deep, Linear
from ppgp.models import GP, SGPR, SVGP, Kriging
from ppgp.networks.networks import CNN, MLP, module_of
from ppgp.priors import Normal


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_a_network_with_constant_features_is_refused(value: float) -> None:
    net = nn.Linear(2, 2)
    nn.init.zeros_(net.weight)
    nn.init.constant_(net.bias, value)
    with pytest.raises(NumericalError, match="same features in all rows"):
        ppgp.fit(GP(Deep(net, RBF())), cliff(10, 0), inference.MAP(), progress=False)


def test_a_network_with_nan_features_is_refused() -> None:
    net = nn.Linear(2, 2)
    nn.init.constant_(net.bias, float("nan"))
    with pytest.raises(NumericalError, match="not finite"):
        ppgp.fit(GP(Deep(net, RBF())), cliff(10, 0), inference.MAP(), progress=False)


def test_a_fit_that_ends_with_constant_features_warns() -> None:
    model, data = GP(Deep(SMALL, RBF()) + Linear()), cliff(10, 0)
    theta = {
        f"kernel.0.network.{name}": torch.zeros_like(p)
        for name, p in module_of(SMALL, 2).named_parameters()
    }
    assert any("same features in all rows" in sentence for sentence in model.check_fit(theta, data))
    assert model.check_fit({}, data) == []
    theta["kernel.0.network.0.bias"] = torch.full((8,), float("nan"), dtype=torch.float64)
    assert any("not finite" in sentence for sentence in model.check_fit(theta, data))


def test_networks_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SettingError, match="a network and a kernel"):
        Deep(RBF(), RBF())
    with pytest.raises(SettingError, match="rows of 2 columns"):
        Deep(nn.Linear(3, 2), RBF()).sites(2)
    with pytest.raises(SettingError, match=r"\[n, d\] to features"):
        Deep(nn.Flatten(0), RBF()).sites(2)
    with pytest.raises(SettingError, match="one network"):
        Deep(MLP(), Deep(MLP(), RBF())).sites(2)
    with pytest.raises(SettingError, match="square images"):
        Deep(CNN(), RBF()).sites(65)


class Broken(nn.Module):
    """A network whose features are NaN."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * float("nan")


@pytest.mark.parametrize("build", [GP, SGPR, SVGP, Kriging])
def test_every_model_checks_its_network(build: Any) -> None:
    data = cliff(30, 0)
    with pytest.raises(NumericalError, match="before the fit"):
        build(Deep(Broken(), RBF())).prepare(data)
    site = "variogram" if build is Kriging else "kernel"
    bayesian = build(Deep(SMALL, RBF(), prior=Normal(0.0, 1.0)))
    assert (
        float(bayesian.start(data)[f"{site}.network.0.weight"].abs().max()) > 0
    )  # 0, the centre of the prior, is a saddle
    weights = {
        f"{site}.network.{name}": torch.zeros_like(w)
        for name, w in module_of(SMALL, 2).named_parameters()
    }
    assert any(
        "same features" in sentence
        for sentence in build(Deep(SMALL, RBF())).check_fit(weights, data)
    )


@quiet
def test_a_network_that_starts_dead_or_saturated_is_refused_with_advice() -> None:
    """Rectified units without biases are dead on one side of 0; the advice in the error works."""
    years = 2000.0 + torch.linspace(0.0, 20.0, 30, dtype=torch.float64)[:, None]
    data = Dataset(years, (years[:, 0] / 3).sin())
    recipe = GP(Deep(MLP((16,), 4), RBF()))
    with pytest.raises(NumericalError, match=r"mean of .*standardise"):
        recipe.prepare(data)
    assert type(recipe.prepare(data.standardised()[0])) is GP
    for model in (
        recipe,
        SGPR(recipe.kernel, 5),
    ):  # and fit, which standardises, does not ask it of X as it is
        assert ppgp.fit(model, data, inference.MAP(steps=1), progress=False).stats["steps"] >= 0
    positive = Dataset(years - 1999.0, data.y)
    seeds = [
        seed for seed in range(8) if Deep(MLP((1,), 4, seed=seed), RBF()).check_fit({}, positive.X)
    ]
    assert 0 < len(seeds) < 8
    with pytest.raises(NumericalError, match="another seed"):
        GP(Deep(MLP((1,), 4, seed=seeds[0]), RBF())).prepare(positive)
