"""Time two checkouts of ppgp in pairs, such as before and after a change.

    python tests/tools/paired.py BEFORE AFTER --pairs 24

A pair is one process of each checkout, one after the other, in turns. Each process takes the
median of many runs of: the gradient of a GP, a prediction of 20 rows, a small fit by MAP, and a
split calibration with its region. The ratio AFTER / BEFORE of each pair is what is compared; the
interval of its median is that of order statistics. Use a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import stats

TIMED = """
import json, time, warnings
import numpy as np, torch, ppgp
from ppgp import conformal, inference, kernels, models
warnings.simplefilter("ignore")
torch.set_num_threads(1)


def median(run, seconds):
    run(), run()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


rng = np.random.default_rng(0)
X = rng.normal(size=(100, 2))
y = X[:, 0] + 0.1 * rng.normal(size=100)
data = ppgp.Dataset(X, y)
gp = models.GP(kernels.ARD(kernels.RBF()))
target = ppgp.Target(gp.prepare(data), data)
z = target.start(0)
posterior = ppgp.fit(gp, data, inference.MAP(), progress=False)
new = X[:20] + 0.01
prediction = posterior.predict(new)


def calibration():
    ppgp.calibrate(conformal.Normalized(), prediction, y[:20])(prediction, level=0.9)


print(json.dumps({
    "gradient of a GP": median(lambda: target.value_and_grad(z), 0.4),
    "prediction of 20 rows": median(lambda: posterior.predict(new), 0.4),
    "small fit by MAP": median(
        lambda: ppgp.fit(gp, ppgp.Dataset(X[:40], y[:40]), inference.MAP(), progress=False), 1.5
    ),
    "split calibration": median(calibration, 0.4),
}))
"""


def timed(checkout: Path) -> dict[str, float]:
    """Return the seconds of each thing in a process that imports a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", TIMED]
    result = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout.splitlines()[-1])


def interval_of_median(values: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Return order statistics that hold the median with at least this probability."""
    n = len(values)
    below = int(stats.binom.ppf((1 - level) / 2, n, 0.5)) - 1
    below = max(below, 0)
    ordered = np.sort(values)
    return float(ordered[below]), float(ordered[n - 1 - below])


def main() -> None:
    """Print the ratio of each thing, with the interval of its median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--pairs", type=int, default=24)
    options = parser.parse_args()
    before, after = options.before.resolve(), options.after.resolve()
    pairs: list[tuple[dict[str, float], dict[str, float]]] = []
    for i in range(options.pairs):
        order: list[Callable[[], dict[str, float]]] = [lambda: timed(before), lambda: timed(after)]
        first, second = (run() for run in (order if i % 2 == 0 else order[::-1]))
        pairs.append((first, second) if i % 2 == 0 else (second, first))
        time.sleep(0.1)
    for name in pairs[0][0]:
        old = np.array([pair[0][name] for pair in pairs])
        new = np.array([pair[1][name] for pair in pairs])
        low, high = interval_of_median(new / old)
        print(
            f"{name:22s} {1e3 * np.median(old):8.3f} ms -> {1e3 * np.median(new):8.3f} ms, "
            f"ratio {np.median(new / old):.3f} ({low:.3f} to {high:.3f})"
        )


if __name__ == "__main__":
    main()
