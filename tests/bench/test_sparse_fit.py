"""A sparse GP with learnt inducing inputs beside GPyTorch's SVGP, and the memory of a large bound.

Without the published sets (docs/data.md) the rows are simulated, and the quality to reach is that
of the shortest fit.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from side_by_side import show
from uci import is_published, split

import ppgp
from ppgp import inference, kernels, metrics, models
from ppgp.data import Dataset

INDUCING = 512
QUALITY = 0.18  # negative log density per test row of kin8nm, of standardised y
BEST = 0.155
STEPS = (20, 25, 30, 40, 60, 150)  # of L-BFGS: the first whole fit that reaches the quality counts
BATCH = 1024  # of GPyTorch
AT_MOST = 600.0  # seconds after which a peer is stopped, and which then count as its time


def ours(
    train: Dataset, test: Dataset, steps: int, inducing: int = INDUCING
) -> tuple[float, float]:
    """Return the test NLL and the seconds of a whole fit."""
    model = models.SGPR(kernels.ARD(kernels.RBF()), inducing=inducing, learn=True)
    started = time.perf_counter()
    posterior = ppgp.fit(
        model, train, inference.MAP(steps=steps), standardise=False, progress=False
    )
    seconds = time.perf_counter() - started
    return metrics.nll(posterior.predict(test.X), test.y), seconds


def by_gpytorch(
    train: Dataset,
    test: Dataset,
    rate: float,
    quality: float = QUALITY,
    most: float = AT_MOST,
    epochs: int = 10**6,
) -> tuple[float, float]:
    """Train an SVGP in float32 by Adam up to a quality, or for ``most`` seconds.

    The quality is evaluated once per epoch, and the evaluation is not timed.
    """
    gpytorch = pytest.importorskip("gpytorch")
    torch.manual_seed(0)
    X, y, Xt, yt = (a.float() for a in (train.X, train.y, test.X, test.y))
    m = min(INDUCING, len(X))

    class SVGP(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            q = gpytorch.variational.CholeskyVariationalDistribution(m)
            strategy = gpytorch.variational.VariationalStrategy(
                self, X[torch.randperm(len(X))[:m]], q
            )
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1])
            )

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model, likelihood = SVGP(), gpytorch.likelihoods.GaussianLikelihood()
    elbo = gpytorch.mlls.VariationalELBO(likelihood, model, len(X))
    adam = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], rate)
    seconds, nll = 0.0, float("inf")
    for _ in range(epochs):
        started = time.perf_counter()
        for rows in torch.randperm(len(X)).split(BATCH):
            adam.zero_grad()
            (-elbo(model(X[rows]), y[rows])).backward()
            adam.step()
        seconds += time.perf_counter() - started
        model.eval()
        with torch.no_grad():
            predictive = likelihood(model(Xt))
            normal = torch.distributions.Normal(predictive.mean, predictive.stddev)
            nll = -float(normal.log_prob(yt).mean())
        model.train()
        if nll <= quality or seconds > most:
            break
    return nll, seconds


@pytest.mark.filterwarnings("ignore")
def test_time_to_quality_on_kin8nm(data_dir: Path, benchmark: Any) -> None:
    train, test = split(data_dir, "kin8nm")
    some = train.rows(torch.arange(300))
    ours(some, test, 2, 20), by_gpytorch(some, test, 0.01, epochs=1)  # imports
    published = is_published(data_dir, "kin8nm")
    quality = QUALITY if published else ours(train, test, STEPS[0])[0] + 1e-6
    fits = (ours(train, test, steps) for steps in STEPS)
    reached, seconds = benchmark.pedantic(
        lambda: next((fit for fit in fits if fit[0] <= quality), (math.inf, math.inf)), rounds=1
    )
    figures = {"ppgp": seconds}
    most = AT_MOST
    for rate in (0.01, 0.03):
        nll, taken = by_gpytorch(train, test, rate, quality, most)
        print(f"\nGPyTorch, Adam {rate}: {nll:.3f}")
        figures[f"GPyTorch SVGP, Adam {rate}"] = taken
        most = min(most, taken)  # only the best of its rates counts
    title = f"kin8nm, m = {INDUCING}: to a test NLL of {quality:.3f} (ppgp: {reached:.3f})"
    ratio = show(title, figures, "s", 1.0)
    benchmark.extra_info["ratio"] = ratio
    assert reached <= quality
    if published:
        assert ratio <= 0.25


@pytest.mark.data("uci/kin8nm.npz")
@pytest.mark.filterwarnings("ignore")
def test_where_it_ends_on_kin8nm(data_dir: Path, benchmark: Any) -> None:
    train, test = split(data_dir, "kin8nm")
    nll, seconds = benchmark.pedantic(lambda: ours(train, test, 150), rounds=1)
    print(f"\nkin8nm, m = {INDUCING}, 150 steps: test NLL {nll:.4f} in {seconds:.0f} s")
    assert nll <= BEST


AIR = """
import sys, time, warnings
from pathlib import Path
import numpy as np, torch
from ppgp import kernels, models
from ppgp.data import Dataset
from ppgp.density import Target
warnings.simplefilter("error")
path = Path(sys.argv[1])
if path.is_file():
    raw = np.load(path)
    X, y = torch.as_tensor(raw["X"]).double(), torch.as_tensor(raw["pm25"]).double()
else:
    X = torch.randn(410_144, 9, generator=torch.Generator().manual_seed(0)).double()
    y = X.square().sum(1)
data = Dataset(X, y).standardised()[0]
model = models.SGPR(kernels.ARD(kernels.RBF()), inducing=512, learn=True).prepare(data)
target = Target(model, data, optimise_params=True)
z = target.origin()
value, gradient = target.value_and_grad(z)
started = time.perf_counter()
value, gradient = target.value_and_grad(z)
assert torch.isfinite(value) and torch.isfinite(gradient).all()
status = Path("/proc/self/status").read_text().splitlines()
peak = next(line for line in status if line.startswith("VmHWM"))
# ru_maxrss would be at least that of the parent process
print(time.perf_counter() - started, int(peak.split()[1]) / 2**20)
"""


def test_the_bound_of_410144_rows_in_two_gigabytes(data_dir: Path, benchmark: Any) -> None:
    path = data_dir / "beijing_air" / "beijing_air_clean.npz"
    if not path.is_file():
        print(f"\nsimulated rows of its shape, {path.name} is missing (docs/data.md)")
    command = [sys.executable, "-c", AIR, str(path)]
    done = benchmark.pedantic(
        lambda: subprocess.run(command, capture_output=True, text=True, check=True), rounds=1
    )
    seconds, peak = map(float, done.stdout.split())
    print(
        f"\nvalue and gradient, 410,144 x 9, m = 512: {seconds:.1f} s, "
        f"peak resident size of the process {peak:.2f} GB"
    )
    assert peak < 2.0
