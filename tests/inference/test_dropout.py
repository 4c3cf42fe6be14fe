"""Dropout during the fit of a model with a bound of its own."""

from __future__ import annotations

import pytest
import torch

from ppgp import Dataset, inference
from ppgp.density import Target
from ppgp.density.handlers import quietly
from ppgp.inference.variational.collapsed_svi import JointSteps, NaturalSteps
from ppgp.kernels import RBF, Deep
from ppgp.likelihoods import Gaussian
from ppgp.models import SVGP
from ppgp.networks.networks import MLP


@pytest.mark.parametrize("batch_size", [None, 12])
def test_the_two_halves_of_a_step_drop_the_same_units_out(batch_size: int | None) -> None:
    """At a tiny rate q does not move, so both halves of a step must see the same bound."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(30, 2, generator=generator, dtype=torch.float64)
    data = Dataset(X, X[:, 0].sin())
    network = MLP(hidden=(16,), out=4, dropout=0.4)
    model = SVGP(Deep(network, RBF(1.0, 1.0)), 8, Gaussian(0.1)).prepare(
        data
    )  # no priors: the density is the bound
    bound = Target(model, data, optimise_params=True, collapsed_elbo=True)
    z = bound.start().clone()
    q = NaturalSteps(bound, model, data, z)
    q.fit(z)
    q.rate = 1e-12
    before: list[float] = []
    step = q.step
    q.step = lambda *given: before.append(step(*given)) or before[-1]  # type: ignore[method-assign,func-returns-value]
    move = JointSteps(inference.SVI(batch_size=batch_size)._options(), bound, q, z, generator)
    objectives = [move(1e-12) for _ in range(3)]
    assert before == pytest.approx(objectives, rel=1e-6)
    with torch.no_grad(), quietly():
        whole = float(bound.log_density(z, jacobian=False))
    # without dropout the bound would be that of all units
    assert all(abs(value - whole) > 1e-3 * abs(whole) for value in objectives)
