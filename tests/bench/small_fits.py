"""Times of one small fit in a process of its own: the first call and later ones.

Usage: python tests/bench/small_fits.py NAME, which prints a list of seconds as JSON.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

CALLS = 6  # the first one imports and compiles


def table(n: int = 100, p: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of some of the columns of a table, with noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, p))
    y = np.sin(6 * X[:, 0]) + 2 * (X[:, 1] - 0.5) ** 2 + 0.1 * rng.normal(size=n)
    return X, y


def by_ppgp(recipe: str, method: str) -> Callable[[], object]:
    """A fit of a recipe by a method with its defaults."""
    import ppgp
    from ppgp import inference, kernels, models

    recipes: dict[str, Callable[[], Any]] = {
        "GP": lambda: models.GP(kernels.ARD(kernels.RBF())),
        "SGPR": models.SGPR,
        "Kriging": models.Kriging,
    }
    how = getattr(inference, method)()
    X, y = table(p=2) if recipe == "Kriging" else table()
    data = ppgp.Dataset(X, y)
    return lambda: ppgp.fit(recipes[recipe](), data, how, progress=False)


def of_a_program(method: str) -> Callable[[], object]:
    """A fit of a program with one latent site."""
    import pyro
    import pyro.distributions as dist

    import ppgp
    from ppgp import inference

    def program(y: torch.Tensor) -> None:
        mean = pyro.sample("mean", dist.Normal(0.0, 10.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    y = torch.from_numpy(table()[1])
    how = getattr(inference, method)()
    return lambda: ppgp.fit(program, {"y": y}, how, progress=False)


def by_scikit_learn() -> Callable[[], object]:
    """The same Gaussian process by scikit-learn, with one search."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    X, y = table()
    X = (X - X.mean(0)) / X.std(0)
    length_scales: Any = np.ones(X.shape[1])
    kernel = ConstantKernel() * RBF(length_scales) + WhiteKernel()
    return lambda: GaussianProcessRegressor(kernel, normalize_y=True).fit(X, y)


FITS: dict[str, Callable[[], Callable[[], object]]] = {
    "GP MAP": lambda: by_ppgp("GP", "MAP"),
    "GP Laplace": lambda: by_ppgp("GP", "Laplace"),
    "GP NUTS": lambda: by_ppgp("GP", "NUTS"),
    "SGPR NUTS": lambda: by_ppgp("SGPR", "NUTS"),
    "Kriging NUTS": lambda: by_ppgp("Kriging", "NUTS"),
    "program SVI": lambda: of_a_program("SVI"),
    "program NUTS": lambda: of_a_program("NUTS"),
    "scikit-learn": by_scikit_learn,
}


def main() -> None:
    warnings.simplefilter("ignore")
    work = FITS[sys.argv[1]]()
    seconds = []
    for _ in range(CALLS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
