"""Predictions of 100,000 rows by an exact GP of 5,000 rows, beside GPyTorch: time and memory."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest
import torch
from side_by_side import show

import ppgp

START = """
import time, warnings
from pathlib import Path
import torch
warnings.simplefilter("ignore")
torch.manual_seed(0)
X, new = (torch.randn(n, 8, dtype=torch.float64) for n in (5000, 100_000))
y = torch.sin(X).sum(1) + 0.1 * torch.randn(5000, dtype=torch.float64)
"""
OURS = (
    START
    + """
from ppgp import kernels, models
from ppgp.data import Dataset
model = models.GP(kernels.ARD(kernels.RBF(variance=1.0, lengthscale=2.0)), noise=0.1, mean=0.0)
train = Dataset(X, y)
started = time.perf_counter()
with torch.no_grad():
    predictive = model.predict({}, new, train)
mean, variance = predictive.mean[0], predictive.variance[0]
"""
)
THEIRS = (
    START
    + """
import gpytorch
class Exact(gpytorch.models.ExactGP):
    def __init__(self, likelihood):
        super().__init__(X, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=8))
    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))
likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
model = Exact(likelihood).double()
model.covar_module.outputscale = 1.0
model.covar_module.base_kernel.lengthscale = 2.0
likelihood.noise = 0.1
model.eval(), likelihood.eval()
started = time.perf_counter()
parts = []
exact = gpytorch.settings.fast_computations(False, False, False)
with torch.no_grad(), exact, gpytorch.settings.max_cholesky_size(10**6):
    for block in new.split(4096):  # all rows at once would need their covariance
        predictive = likelihood(model(block))
        parts.append((predictive.mean, predictive.variance))
mean, variance = (torch.cat(p) for p in zip(*parts))
"""
)
END = """
seconds = time.perf_counter() - started
# ru_maxrss would be at least the size of the parent process
status = Path("/proc/self/status").read_text().splitlines()
peak = int(next(line for line in status if line.startswith("VmHWM")).split()[1]) / 2**20
print(seconds, peak, float(mean[7]), float(variance[7]))
"""


def run(program: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-c", program + END], capture_output=True, text=True, check=True
    )
    return [float(word) for word in done.stdout.split()]


@pytest.mark.filterwarnings("ignore")
def test_a_hundred_thousand_rows(benchmark: Any) -> None:
    pytest.importorskip("gpytorch")
    ours = benchmark.pedantic(lambda: run(OURS), rounds=1)
    theirs = run(THEIRS)
    assert ours[2:] == pytest.approx(theirs[2:], abs=1e-5)
    ratio = show(
        "prediction at 100,000 rows, n = 5,000", {"ppgp": ours[0], "GPyTorch": theirs[0]}, "s", 1.0
    )
    print(
        f"  peak resident size of the process: ppgp {ours[1]:.2f} GB, GPyTorch {theirs[1]:.2f} GB"
    )
    benchmark.extra_info["ratio"] = ratio
    assert ratio <= 0.5
    assert ours[1] < 1.0


def test_a_second_prediction_takes_a_tenth_of_the_first(benchmark: Any) -> None:
    """The factor of the training covariance is kept: n = 3,000, then 100 other rows."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(3000, 3, generator=generator, dtype=torch.float64)
    data = ppgp.Dataset(X, X.sin().sum(1))
    first_rows, other_rows = torch.rand(2, 100, 3, generator=generator, dtype=torch.float64)
    model = ppgp.models.GP(ppgp.kernels.RBF(0.5, 1.0), noise=0.01)
    posterior = ppgp.fit(model, data, ppgp.inference.MAP(), progress=False)

    def timed(rows: torch.Tensor) -> float:
        started = time.perf_counter()
        posterior.predict(rows)
        return time.perf_counter() - started

    first = timed(first_rows)
    second = benchmark.pedantic(timed, args=(other_rows,), rounds=1)
    print(f"\npredict at n = 3,000: first {first:.3f} s, second {second:.3f} s")
    assert second <= 0.1 * first
