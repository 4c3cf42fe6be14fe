"""Starting a fit at the posterior of another, which may have more sites or fewer."""

from __future__ import annotations

import pytest
import torch

import ppgp
from ppgp import inference, kernels, models, networks
from ppgp.data import Dataset
from ppgp.density import Target
from ppgp.errors import NotApplicable
from ppgp.inference.base import starting_point
from ppgp.posterior import Posterior

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
DATA = Dataset(X, X[:, 0].sin() + 0.1 * X[:, 1])
PLAIN = models.GP(kernels.ARD(kernels.RBF()))
DEEP = models.GP(kernels.Deep(networks.MLP((4,), out=3), kernels.ARD(kernels.RBF())))


def ended(model: models.Model, how: inference.Inference) -> Posterior:
    return ppgp.fit(model, DATA, how, progress=False, standardise=False)


def at(model: models.Model, init: Posterior) -> dict[str, torch.Tensor]:
    target = Target(model, DATA, optimise_params=True)
    return target.constrain(starting_point(target, init, 0, jacobian=False))


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_a_deep_kernel_starts_from_the_network_and_hyperparameters_of_init() -> None:
    result = ended(DEEP, inference.MAP("adam", steps=5))
    begin = at(DEEP, result)
    assert begin.keys() == result.theta.keys()
    for name, value in result.theta.items():
        torch.testing.assert_close(begin[name].reshape(-1), value.reshape(-1))


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_a_deep_kernel_takes_hyperparameters_from_a_gp_and_keeps_its_network() -> None:
    result = ended(PLAIN, inference.MAP(steps=5))
    begin, own = at(DEEP, result), Target(DEEP, DATA, optimise_params=True)
    origin = own.constrain(own.origin())
    for name, value in begin.items():
        torch.testing.assert_close(
            value, result.theta[name][0] if name in result.theta else origin[name]
        )


def test_the_start_is_the_mean_of_the_draws_on_the_unconstrained_scale() -> None:
    result = ended(PLAIN, inference.Laplace(draws=50))
    torch.testing.assert_close(at(PLAIN, result)["noise"], result.theta["noise"].log().mean().exp())


def test_a_posterior_without_common_sites_is_refused() -> None:
    other = ended(models.LinearRegression(), inference.MAP())
    with pytest.raises(
        NotApplicable,
        match=r"init over some of kernel.variance, kernel.lengthscale, got one over weight, bias",
    ):
        ppgp.fit(
            models.GP(kernels.RBF(), noise=0.1), DATA, inference.MAP(), progress=False, init=other
        )
