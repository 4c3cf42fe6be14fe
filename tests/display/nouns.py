"""One object of every kind that notebooks show as a table, of made-up draws."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch

import ppgp
from ppgp import Dataset, Posterior, conformal, inference, kernels, models

N = 40
SITES = {"weight": (2,), "bias": (), "noise": ()}
KINDS = (
    "Dataset",
    "Posterior",
    "Prediction",
    "Region",
    "Comparison",
    "Diagnosis",
    "GP",
    "LinearRegression",
    "Product",
)


def frame() -> pd.DataFrame:
    """Return rows with two inputs, groups and a target."""
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"bmi": rng.normal(size=N), "a<b": rng.normal(size=N)})
    return table.assign(school=["north", "south"] * (N // 2), y=table["bmi"] + 1.0)


def posterior(chains: int = 4, draws: int = 500, how: Any = None, seed: int = 2) -> Posterior:
    """Return a posterior of linear regression whose draws are those of a normal distribution."""
    generator = torch.Generator().manual_seed(seed)
    found = {
        name: torch.randn(chains, draws, *shape, generator=generator, dtype=torch.float64)
        for name, shape in SITES.items()
    }
    found["noise"] = (0.1 * found["noise"]).exp()
    data = Dataset.from_frame(frame().drop(columns="school"), "y")
    how = how or inference.NUTS(chains=4)
    warnings = ("a < b & c",)
    return Posterior(models.LinearRegression(), data, found, how, warnings=warnings)


@cache
def nouns() -> dict[str, Any]:
    """Return ``{kind: object}``."""
    fit = posterior()
    prediction = fit.predict(frame()[["bmi", "a<b"]])
    other = posterior(1, 1000, inference.Laplace(), seed=3)
    found = {
        "Dataset": Dataset.from_frame(frame(), "y", groups=["school"]),
        "Posterior": fit,
        "Prediction": prediction,
        "Region": conformal.Absolute().region(prediction, torch.tensor(1.0), 0.9),
        "Comparison": ppgp.compare({"nuts": fit, "laplace": other}, reference="nuts"),
        "Diagnosis": ppgp.diagnose(fit),
        "GP": models.GP(kernels.ARD(kernels.RBF()) + kernels.Linear()),
        "LinearRegression": models.LinearRegression(),
        "Product": kernels.Matern() * kernels.Constant(1.0),
    }
    assert tuple(found) == KINDS
    return found
