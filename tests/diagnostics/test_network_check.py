"""check_network on a network that has memorised, one that has collapsed, and a good one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import ppgp
from ppgp import Dataset, inference
from ppgp.errors import DataError, NotApplicable
from ppgp.kernels import RBF, Deep
from ppgp.models import GP
from ppgp.networks.networks import MLP

F64 = torch.float64


def rows(n: int, seed: int) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 10, generator=generator, dtype=F64)
    return Dataset(
        X,
        5.0 + 3.0 * (torch.sin(2 * X[:, 0]) + 0.3 * torch.randn(n, generator=generator, dtype=F64)),
    )


class First(nn.Module):
    """The one informative column, and a constant one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[:, 0], torch.ones_like(x[:, 0])], 1)


def test_a_good_network_has_no_findings() -> None:
    posterior = ppgp.fit(GP(Deep(First(), RBF())), rows(150, 0), inference.MAP(), progress=False)
    test = rows(200, 1)
    found = ppgp.check_network(posterior, test)
    assert found.findings == ()
    assert found.rank == pytest.approx(1.0)
    assert found.gain > 4 * found.gain_error  # a wave is no linear function of its column
    assert found.density == pytest.approx(float(posterior.predict(test.X).log_prob(test.y).mean()))
    noise_alone = float(
        torch.distributions.Normal(0.0, 0.9)
        .log_prob(test.y - 5.0 - 3.0 * torch.sin(2 * test.X[:, 0]))
        .mean()
    )
    assert found.density < noise_alone + 3 * found.error  # in the units of the data
    assert found.promised == pytest.approx(noise_alone, abs=0.3)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_a_network_that_has_memorised_is_detected() -> None:
    deep = GP(Deep(MLP(hidden=(64,), out=8, dropout=0.0), RBF()))
    posterior = ppgp.fit(deep, rows(60, 0), inference.MAP(steps=300), progress=False)
    found = ppgp.check_network(posterior, rows(200, 1))
    assert found.promised is not None
    assert any("memorised" in sentence for sentence in found.findings)


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_a_network_that_has_nearly_collapsed_is_detected() -> None:
    net = nn.Sequential(nn.Linear(10, 2, dtype=F64))
    with torch.no_grad():
        net[0].weight.mul_(1e-5)
        net[0].bias.fill_(1.0)
    posterior = ppgp.fit(
        GP(Deep(net, RBF(), frozen=True)), rows(50, 0), inference.MAP(steps=5), progress=False
    )
    assert any(
        "nearly equal in all rows" in sentence
        for sentence in ppgp.check_network(posterior, rows(50, 1)).findings
    )


def test_bad_arguments_are_refused() -> None:
    data = rows(30, 0)
    plain = ppgp.fit(GP(), data, inference.MAP(), progress=False)
    with pytest.raises(NotApplicable, match="Deep"):
        ppgp.check_network(plain, rows(20, 1))
    deep = ppgp.fit(GP(Deep(First(), RBF())), data, inference.MAP(), progress=False)
    with pytest.raises(DataError, match="has not used"):
        ppgp.check_network(deep, data)
    with pytest.raises(DataError, match="has not used"):
        ppgp.check_network(deep, Dataset(data.X.float().double(), data.y.float().double()))
    ppgp.check_network(deep, Dataset(data.X, rows(30, 2).y))  # the same places, measured again
    with pytest.raises(DataError, match="at least 10"):
        ppgp.check_network(deep, rows(5, 1))
