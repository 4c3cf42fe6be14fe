"""Functions that print how much memory they use; each runs in a process of its own."""

from __future__ import annotations

import ctypes
import gc
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import torch
from pyarrow import parquet

warnings.simplefilter("ignore")

import ppgp  # noqa: E402
from ppgp import Dataset, conformal, inference, kernels, models  # noqa: E402
from ppgp.density import Target  # noqa: E402
from ppgp.errors import NotEnoughMemory  # noqa: E402
from ppgp.inference import (  # noqa: E402
    HMC,
    MAP,
    NUTS,
    SGLD,
    SVI,
    Ensemble,
    Laplace,
    MetropolisHastings,
    Pathfinder,
)
from ppgp.networks import CNN  # noqa: E402

METHODS: dict[str, Callable[[], inference.Inference]] = {
    "MAP": lambda: MAP(),
    "Laplace": lambda: Laplace(draws=50),
    "SVI": lambda: SVI(steps=100, draws=50),
    "SVI, lowrank": lambda: SVI("lowrank", steps=20, draws=20),
    "SVI, iaf": lambda: SVI("iaf", steps=20, draws=20),
    "Pathfinder": lambda: Pathfinder(),
    "NUTS": lambda: NUTS(draws=20, warmup=30, chains=2, max_depth=5),
    "NUTS, pyro": lambda: NUTS(draws=3, warmup=3, chains=1, max_depth=2, engine="pyro"),
    "HMC": lambda: HMC().quick(),
    "MetropolisHastings": lambda: MetropolisHastings().quick(),
    "SGLD": lambda: SGLD().quick(),
    "Ensemble": lambda: Ensemble(MAP(), members=2),
}


def run(*arguments: object) -> list[float]:
    """Run a function of this file in a new process and return the numbers that it prints."""
    command = [sys.executable, __file__, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [float(word) for word in done.stdout.split()]


def resident() -> float:
    """Return the resident size in MB, without free memory that the allocator holds."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def peak() -> float:
    """Return the peak resident size in MB; ru_maxrss would be at least that of the parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


def rows(n: int, d: int, seed: int = 0) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return Dataset(
        X, X[:, 0].sin() + 0.1 * torch.randn(n, generator=generator, dtype=torch.float64)
    )


def growth(method: str, fits: str) -> None:
    """Print the growth in MB per fit, after torch has filled its caches."""
    how, first, marks = METHODS[method](), int(fits) // 4, []
    for i in range(int(fits)):
        ppgp.fit(models.GP(kernels.RBF()), rows(60, 2, i), how, seed=i, progress=False)
        if i + 1 in (first, int(fits)):
            marks.append(resident())
    print((marks[1] - marks[0]) / (int(fits) - first))


def svgp(n: str) -> None:
    """Print the peak in MB of a fit to n rows of 10 columns, those rows included."""
    before = resident()
    how = SVI(steps=200, batch_size=1000)
    ppgp.fit(models.SVGP(kernels.ARD(kernels.RBF())), rows(int(n), 10), how, progress=False)
    print(peak() - before)


def linear(draws: int) -> Any:
    return ppgp.fit(models.LinearRegression(), rows(200, 3), Laplace(draws), progress=False)


def predictions(n: str, draws: str) -> None:
    """Print the bytes per row of predict, interval, sd and one sample."""
    posterior, X = linear(int(draws)), rows(int(n), 3, 1).X
    posterior.predict(X[:2000]).interval(0.9)  # imports
    before = resident()
    prediction = posterior.predict(X)
    prediction[:5000].interval(0.9)  # its memory does not grow with the rows
    prediction.std, prediction.sample(1)
    print((peak() - before) * 1e6 / int(n))


def advice(n: str, draws: str, megabytes: str) -> None:
    """Ask for the parameters of n rows in a limited address space; print 1 and the advised rows.

    The address space is limited to the present one and so many megabytes. A prediction of the
    advised number of rows must then succeed.
    """
    posterior, X = linear(int(draws)), rows(int(n), 3, 1).X
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(
        resource.RLIMIT_AS, (int(pages * resource.getpagesize() + float(megabytes) * 1e6),) * 2
    )
    try:
        posterior.predict(X).distribution.mean
    except NotEnoughMemory as error:
        advised = int("".join(c for c in error.do if c.isdigit()))
        prediction = posterior.predict(X[:advised])
        prediction[:2000].interval(0.9), prediction.std, prediction.sample(5)
        print(1, advised)
    else:
        print(0, 0)


def bulk(n: str, draws: str, megabytes: str) -> None:
    """Print seconds of the processor and the peak in MB of the figures of n rows with two modes.

    The address space is limited to the present one and so many megabytes, so that the prediction is
    computed on demand.
    """
    posterior, X = linear(int(draws)), rows(int(n), 3, 1).X
    weight = posterior.theta["weight"]
    weight[: int(draws) // 2, 2] += 4.0
    y = X[:, 0].sin()
    few = posterior.predict(X[:2000])  # imports
    few.interval(0.9), few.crps(y[:2000]), few.log_prob(y[:2000])
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(
        resource.RLIMIT_AS, (int(pages * resource.getpagesize() + float(megabytes) * 1e6),) * 2
    )
    started = time.process_time()
    prediction = posterior.predict(X)
    prediction.mean, prediction.std, prediction.interval(0.9)
    prediction.log_prob(y), prediction.crps(y)
    print(time.process_time() - started, peak())


def intervals(n: str, draws: str) -> None:
    """Print seconds of the processor and the peak in MB of 90 % intervals of n rows, after NUTS."""
    per_chain = int(draws) // 4
    how = NUTS(draws=per_chain, warmup=per_chain, chains=4)
    posterior = ppgp.fit(models.LinearRegression(), rows(200, 10), how, progress=False)
    X = rows(int(n), 10, 1).X
    posterior.predict(X[:2000]).interval(0.9)  # imports
    started = time.process_time()
    posterior.predict(X).interval(0.9)
    print(time.process_time() - started, peak())


def exact(n: str) -> None:
    """Print how many matrices of n by n MAP of an exact GP holds at its peak."""
    data, before = rows(int(n), 3), resident()
    ppgp.fit(models.GP(kernels.ARD(kernels.RBF())), data, MAP(steps=2, starts=1), progress=False)
    print((peak() - before) * 1e6 / (8 * int(n) ** 2))


def deep(n: str, selection: str) -> None:
    """Print the peak in MB of a sparse deep kernel of n images of 64 x 64, at four steps."""
    images = rows(int(n), 64 * 64).to(torch.float32)
    kernel = kernels.Deep(CNN(channels=(16, 32, 32, 32)), kernels.ARD(kernels.RBF()))
    model = models.SGPR(kernel, 100, selection, reselect=2)
    ppgp.fit(model, images, MAP("adam", steps=4, learning_rate=1e-4), progress=False)
    print(peak())


def state_space(n: str) -> None:
    """Print seconds of the processor and the peak in MB of one gradient at n times."""
    data = rows(int(n), 1)
    target = Target(models.StateSpaceGP(kernels.Matern(1.5), mean=0.0), data)
    z = torch.zeros(target.dim, dtype=torch.float64)
    target.value_and_grad(z)
    started = time.process_time()
    target.value_and_grad(z)
    print(time.process_time() - started, peak())


def write_stream(path: str, n: str, seed: str = "0") -> None:
    """Write n rows of 10 float32 columns, and y = 10^6 + N(0, 1), in row groups of 100,000.

    Print the largest errors of the statistics of the stream beside NumPy's in float64: of the means
    in sds, of the sds relative to them.
    """
    generator, chunk = np.random.default_rng(int(seed)), 100_000
    schema = pyarrow.schema([(name, pyarrow.float32()) for name in [*map(str, range(10)), "y"]])
    values = np.empty((11, int(n)), dtype=np.float32)
    for start in range(0, int(n), chunk):
        part = values[:, start : start + chunk]
        part[:] = generator.standard_normal(part.shape, dtype=np.float32)
        # one number for each value near 10^6: float32 there has a rounding unit of 0.06
        part[10] += np.sin(part[0]) + 1e6
    with parquet.ParquetWriter(path, schema) as file:
        for start in range(0, int(n), chunk):
            arrays = [pyarrow.array(column[start : start + chunk]) for column in values]
            file.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
    found = ppgp.stream(path, "y").statistics().moments
    errors = []
    for j, column in enumerate(values):
        exact = column.astype(float)
        sd = exact.std()
        errors.append((abs(found.mean[j] - exact.mean()) / sd, abs(found.sd[j] / sd - 1)))
    print(*(max(each) for each in zip(*errors, strict=True)))


def read_stream(path: str, batches: str) -> None:
    """Print milliseconds of the processor per batch of 1,024 rows, and of the clock."""
    iterator = iter(ppgp.stream(path, "y").batches(1024))
    next(iterator)
    processor, clock = time.process_time(), time.perf_counter()
    for _ in range(int(batches)):
        next(iterator)
    elapsed = time.process_time() - processor, time.perf_counter() - clock
    print(*(1000 * each / int(batches) for each in elapsed))


def svgp_of_a_stream(path: str, steps: str) -> None:
    """Print the peak in MB of an SVGP with 256 inducing inputs, and seconds per step of the clock.

    The steps are of 1,024 rows; a whole pass for the bound at their end is part of the time.
    """
    how = SVI(steps=int(steps), batch_size=1024, patience=int(steps))
    model = models.SVGP(kernels.ARD(kernels.RBF()), inducing=256)
    started = time.perf_counter()
    ppgp.fit(model, ppgp.stream(path, "y"), how, progress=False)
    print(peak(), (time.perf_counter() - started) / int(steps))


def predict_a_file(path: str, calibration: str, out: str, few: str) -> None:
    """Predict a file by an SVGP with 256 inducing inputs, with conformal intervals from another.

    Print the peak in MB, microseconds of the processor per row, and those of so many rows in
    memory.
    """
    how = SVI(steps=200, batch_size=1024)
    model = models.SVGP(kernels.ARD(kernels.RBF()), inducing=256)
    posterior = ppgp.fit(model, ppgp.stream(calibration, "y").shard(0, 2), how, progress=False)
    held_out = ppgp.stream(calibration, "y").shard(1, 2)
    calibrator = ppgp.calibrate(conformal.Normalized(), posterior, held_out)
    started = time.process_time()
    posterior.predict_to(path, out, calibrator=calibrator, progress=False)
    processor, at_most = time.process_time() - started, peak()
    rows = next(ppgp.stream(path, "y").chunks(int(few)))
    started = time.process_time()
    prediction = posterior.predict(rows)
    mean, sd, (lower, upper) = prediction.mean, prediction.std, calibrator(prediction)
    alone = time.process_time() - started
    written = parquet.ParquetFile(out)
    first = written.read_row_group(0)
    for name, column in {"mean": mean, "sd": sd, "lower": lower, "upper": upper}.items():
        assert np.array_equal(first.column(name).to_numpy(), column[: len(first)].numpy()), name
    n = written.metadata.num_rows
    print(at_most, 1e6 * processor / n, 1e6 * alone / int(few))


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]](*sys.argv[2:])
