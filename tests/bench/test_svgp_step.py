"""One training step of a stochastic variational GP: 1024 inducing inputs, 1024 rows, ARD RBF."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyro
import pytest
import torch
from side_by_side import alternate, show
from torch import Tensor

from ppgp import kernels, models
from ppgp.data import Dataset
from ppgp.density import Target
from ppgp.inference import SVI
from ppgp.inference.variational.collapsed_svi import JointSteps, NaturalSteps

M = BATCH = 1024
ROWS, COLUMNS = 4096, 8


pytestmark = pytest.mark.usefixtures("all_threads")


def ours(X: Tensor, y: Tensor, Z: Tensor, q: str) -> Callable[[], object]:
    """Return a step of SVI: draw rows, compute bound and gradient, move everything by Adam.

    With q "natural", q moves by its natural gradient first.
    """
    data = Dataset(X, y)
    model = models.SVGP(kernels.ARD(kernels.RBF()), q=q, Z=Z)
    bound = Target(model, data, optimise_params=True, collapsed_elbo=True)
    z = bound.origin()
    options = SVI(batch_size=BATCH, learning_rate=0.01)._options()
    natural = NaturalSteps(bound, model, data, z)
    step = JointSteps(options, bound, natural, z, torch.Generator().manual_seed(0))
    return lambda: step(0.01)


def by_gpytorch(X: Tensor, y: Tensor, Z: Tensor) -> Callable[[], object]:
    gpytorch = pytest.importorskip("gpytorch")

    class Sparse(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            q = gpytorch.variational.CholeskyVariationalDistribution(M)
            super().__init__(
                gpytorch.variational.VariationalStrategy(
                    self, Z.clone(), q, learn_inducing_locations=True
                )
            )
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.RBFKernel(ard_num_dims=COLUMNS)
            )

        def forward(self, x: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model, likelihood = Sparse().to(X), gpytorch.likelihoods.GaussianLikelihood().to(X)
    model.train()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, ROWS)
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    generator = torch.Generator().manual_seed(0)

    def work() -> None:
        rows = torch.randperm(ROWS, generator=generator)[:BATCH]
        optimizer.zero_grad()
        (-objective(model(X[rows]), y[rows])).backward()
        optimizer.step()

    return work


def by_pyro(X: Tensor, y: Tensor, Z: Tensor) -> Callable[[], object]:
    """Return a step of Pyro's whitened VariationalSparseGP.

    Its objective is not the ELBO, but the work is of the same size.
    """
    from pyro.contrib import gp
    from pyro.infer import Trace_ELBO

    kernel = gp.kernels.RBF(COLUMNS, lengthscale=torch.ones(COLUMNS, dtype=X.dtype)).to(X.dtype)
    likelihood = gp.likelihoods.Gaussian().to(X.dtype)
    model = gp.models.VariationalSparseGP(
        X[:BATCH], y[:BATCH], kernel, Z.clone(), likelihood, whiten=True, num_data=ROWS, jitter=1e-4
    ).to(X.dtype)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss = Trace_ELBO().differentiable_loss
    generator = torch.Generator().manual_seed(0)

    def work() -> None:
        with pyro.get_param_store().scope():
            rows = torch.randperm(ROWS, generator=generator)[:BATCH]
            model.set_data(X[rows], y[rows])
            optimizer.zero_grad()
            loss(model.model, model.guide).backward()
            optimizer.step()

    return work


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_a_training_step(dtype: torch.dtype, benchmark: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(ROWS, COLUMNS, generator=generator, dtype=torch.float64).to(dtype)
    noise = torch.randn(ROWS, generator=generator, dtype=torch.float64).to(dtype)
    y = torch.sin(X[:, 0]) + 0.3 * noise
    Z = X[:M].clone()
    square = torch.randn(M, M, generator=generator, dtype=torch.float64).to(dtype)
    work = {
        "ppgp": ours(X, y, Z, "full"),
        "GPyTorch": by_gpytorch(X, y, Z),
        "Pyro contrib.gp": by_pyro(X, y, Z),
        "(ppgp, q by its natural gradient)": ours(X, y, Z, "natural"),
        "(five GEMMs)": lambda: [square @ square for _ in range(5)],
    }
    figures = alternate(work, rounds=5)
    show(f"SVGP step, m = b = {M}, {str(dtype)[6:]}", figures, "ms", 1e3)
    ratio = figures["ppgp"] / figures["GPyTorch"]
    benchmark.extra_info["ratio"] = ratio
    benchmark.pedantic(work["ppgp"], rounds=3)
    assert math.isfinite(ratio)
    assert ratio <= 0.6
