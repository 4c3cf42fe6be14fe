"""Deep kernels in kriging and in sparse models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from deep_examples import SMALL, Identity, cliff
from torch import Tensor, nn

from ppgp import Dataset
from ppgp.kernels import ARD, RBF, Deep, Kernel
from ppgp.models import GP, SGPR, Kriging
from ppgp.priors import Normal, Site


@pytest.mark.parametrize("prior", [None, Normal(0.0, 1.0)], ids=["params", "sites"])
def test_kriging_batches_draws_and_not_weights(prior: Any) -> None:
    """There are three draws of the range; weights have a draw axis only if they are drawn."""
    data, model = (
        cliff(20, 0),
        Kriging(Deep(SMALL, RBF(1.0)), nugget=0.1, drift="none", neighbours=19),
    )
    generator, shapes = (
        torch.Generator().manual_seed(0),
        {k: s.shape for k, s in model.sites(2).items() if s.shape},
    )
    weights = {
        k: torch.randn(shape, generator=generator, dtype=torch.float64)
        for k, shape in shapes.items()
    }
    if prior is not None:
        model = Kriging(Deep(SMALL, RBF(1.0), prior=prior), nugget=0.1, drift="none", neighbours=19)
    lengths = torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64)
    theta = {
        **{k: w if prior is None else w.expand(3, *w.shape) for k, w in weights.items()},
        "variogram.lengthscale": lengths,
    }
    own = {k.replace("variogram", "kernel"): v for k, v in theta.items()}
    gp = GP(Deep(SMALL, RBF(1.0), prior=prior), noise=0.1)
    new = cliff(4, 1).X
    near = torch.cdist(new, data.X).argsort(1)[:, :19]
    alone = [
        gp.predict(own, x[None], data.rows(rows)).mean for x, rows in zip(new, near, strict=True)
    ]
    torch.testing.assert_close(model.predict(theta, new, data).mean, torch.cat(alone, 1))
    everywhere = Kriging(model.variogram, nugget=0.1, drift="none")
    torch.testing.assert_close(
        everywhere.predict(theta, new, data).mean, gp.predict(own, new, data).mean
    )
    torch.testing.assert_close(
        everywhere.gaussian(theta, new, data)[0], gp.gaussian(own, new, data)[0]
    )


class Counted(nn.Module):
    """A network that squares the columns, and appends the number of rows to ``asked``."""

    def __init__(self, asked: list[int]) -> None:
        super().__init__()
        self.asked = asked

    def forward(self, X: Tensor) -> Tensor:
        self.asked.append(len(X))
        return X.square()

    def __deepcopy__(self, memo: object) -> Counted:
        return Counted(self.asked)


@pytest.mark.parametrize("selection", ["kmeans", "bound", "conditional_variance"])
def test_inducing_inputs_are_selected_by_one_pass_through_the_network(selection: str) -> None:
    data, asked = cliff(60, 0), list[int]()
    model = SGPR(Deep(Counted(asked), ARD(RBF())), 10, selection=selection).prepare(data)
    theta = {
        name: torch.ones(s.shape, dtype=torch.float64)
        for name, s in model.sites(data.d).items()
        if isinstance(s, Site)
    }
    asked.clear()
    Z = model.reselected(theta, data).Z
    assert asked == [data.n]
    assert Z is not None
    assert all(bool((row == data.X).all(1).any()) for row in Z)


@pytest.mark.parametrize("selection", ["conditional_variance", "bound"])
@pytest.mark.parametrize(
    "kernel", [ARD(RBF()), Deep(Identity(), ARD(RBF()))], ids=["plain", "deep"]
)
def test_greedy_selection_takes_the_same_rows_in_single_and_double_precision(
    kernel: Kernel, selection: str
) -> None:
    x = torch.linspace(-1, 1, 200, dtype=torch.float32)[:, None]
    found = []
    for dtype in (torch.float32, torch.float64):
        data = Dataset(x.to(dtype), x[:, 0].sin().to(dtype))
        theta = {"kernel.variance": 1.0, "kernel.lengthscale": [0.5], "noise": 0.01}
        model = SGPR(kernel, 10, selection=selection).prepare(data)
        found.append(
            model.reselected(
                {name: torch.tensor(value, dtype=dtype) for name, value in theta.items()}, data
            ).Z
        )
    assert found[0].dtype == torch.float32
    torch.testing.assert_close(found[0].double(), found[1], rtol=0, atol=0)
