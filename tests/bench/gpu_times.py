"""Seconds of fits on a GPU and on the CPU of the same machine: ``python -m tests.bench.gpu_times``.

Each figure is the median of the runs after the first, which loads libraries and compiles.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

import ppgp
from ppgp import inference, kernels, models
from ppgp.models import Model


def rows(n: int, d: int, dtype: torch.dtype = torch.float64) -> ppgp.Dataset:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(n, d, dtype=torch.float64, generator=generator)
    noise = torch.randn(n, dtype=torch.float64, generator=generator)
    y = (X[:, 0] + X[:, 1]).sin() + 0.3 * noise
    return ppgp.Dataset(X.to(dtype), y.to(dtype))


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the median time of the runs after the first."""
    times = []
    for _ in range(1 + repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def gradient(model: Model, data: ppgp.Dataset) -> float:
    """Return the seconds of one value and gradient of the log density."""
    target = ppgp.Target(model.prepare(data), data)
    graph = target.compiled()
    z = torch.zeros(target.dim).to(data.X)
    return seconds(lambda: graph(z))


def step_of_svgp(data: ppgp.Dataset, inducing: int) -> float:
    """Return the seconds of one step on 4,096 rows, from fits of 20 and of 120 steps."""

    def fit(steps: int) -> None:
        how = inference.SVI(steps=steps, batch_size=4096, patience=steps)
        ppgp.fit(models.SVGP(inducing=inducing), data, how, progress=False)

    return (seconds(lambda: fit(120), 1) - seconds(lambda: fit(20), 1)) / 100


def main() -> None:
    print(torch.cuda.get_device_name(), torch.__version__, f"{torch.get_num_threads()} threads")
    ard = kernels.ARD(kernels.Matern(2.5))
    cases: list[tuple[str, Callable[[str], float]]] = [
        *(
            (
                f"GP gradient, n = {n:,}",
                lambda device, n=n: gradient(models.GP(ard), rows(n, 8).to(device)),
            )
            for n in (500, 2_000, 8_000)
        ),
        (
            "SGPR gradient, n = 400,000, m = 512",
            lambda device: gradient(models.SGPR(ard, inducing=512), rows(400_000, 8).to(device)),
        ),
        (
            "SVGP step, m = 512, b = 4,096",
            lambda device: step_of_svgp(rows(50_000, 8).to(device), 512),
        ),
    ]
    for name, work in cases:
        gpu, cpu = work("cuda"), work("cpu")
        print(f"{name:40} GPU {gpu * 1e3:9.2f} ms  CPU {cpu * 1e3:9.2f} ms  {cpu / gpu:6.1f}")


if __name__ == "__main__":
    main()
