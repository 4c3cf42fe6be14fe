"""Simulation-based calibration of generalised linear models by NUTS, all in one program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyro
import pytest
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor

import ppgp
from ppgp import Dataset, likelihoods, models
from ppgp.errors import NotApplicable
from ppgp.inference import NUTS
from ppgp.models import GLM, Varying
from ppgp.priors import HalfNormal, LogNormal, Normal, Uniform

NARROW = Normal(0.0, 0.5)
SHAPE = LogNormal(1.0, 0.5)
N = 12
X = torch.linspace(-1.5, 1.5, N, dtype=torch.float64)[:, None]
TRIALS = torch.tensor([2.0, 6.0, 9.0] * 4, dtype=torch.float64)
TABLE = Dataset(X, np.arange(N) % 3 + 0.0, groups={"g": [f"level {i % 4}" for i in range(N)]})


def glm(likelihood: Any, bias: Any = NARROW, **options: Any) -> Any:
    return GLM(likelihood, NARROW, bias, **options)


def grouped(likelihood: Any, effects: str) -> Any:
    """Return a model of varying intercepts, prepared for the groups of the table."""
    varying = {"g": Varying("1", HalfNormal(0.7))}
    return glm(likelihood, groups=varying, effects=effects).prepare(TABLE)


#: name -> (model, columns of its program)
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "binomial": (glm(likelihoods.Binomial()), {"trials": TRIALS}),
    "counts": (glm(likelihoods.NegativeBinomial(SHAPE)), {}),
    "shares": (glm(likelihoods.Beta(LogNormal(2.0, 0.5))), {}),
    "ordered": (glm(likelihoods.Ordinal(classes=3), None), {}),
    "zeros": (glm(likelihoods.ZeroInflated(likelihoods.Poisson(), Uniform(0.0, 1.0)), 1.0), {}),
    "positive": (glm(likelihoods.Gamma(SHAPE)), {}),
    "integrated": (
        grouped(likelihoods.Gaussian(LogNormal(-1.0, 0.5)), "integrated"),
        TABLE.for_prediction,
    ),
    "sampled": (grouped(likelihoods.Poisson(), "sampled"), TABLE.for_prediction),
}


class Named(Messenger):
    """Puts the name of a model before those of its sites."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def _pyro_sample(self, msg: Any) -> None:
        msg["name"] = f"{self.name}_{msg['name']}"


def program(
    binomial_y: Tensor | None = None,
    counts_y: Tensor | None = None,
    shares_y: Tensor | None = None,
    ordered_y: Tensor | None = None,
    zeros_y: Tensor | None = None,
    positive_y: Tensor | None = None,
    integrated_y: Tensor | None = None,
    sampled_y: Tensor | None = None,
) -> None:
    """Run the program of every model on data of its own."""
    targets = locals()
    for name, (model, columns) in MODELS.items():
        with Named(name):
            model.model(X, targets[f"{name}_y"], **columns)


@pytest.mark.slow
def test_nuts_passes_of_every_likelihood_and_of_groups() -> None:
    """All posteriors are independent, so that one run judges them: a false alarm in a thousand."""
    how = NUTS(draws=40, warmup=60, chains=1, max_depth=4)
    found = ppgp.sbc(program, how, 20, progress=False, level=0.999)
    table = found.to_frame()
    assert {name.partition("_")[0] for name in table.index} == set(MODELS)
    own = {"counts_shape", "shares_precision", "zeros_probability", "positive_shape"}
    assert own | {"ordered_cutpoints[1]", "integrated_g.sd[0]", "sampled_g.sd[0]"} <= set(
        table.index
    )
    assert found.passes, table


def test_rows_of_a_table_have_its_columns() -> None:
    """The mean of counts with an offset of log 1000 is a thousand times as large."""
    model = GLM(likelihoods.Poisson(), Normal(0.0, 0.1), Normal(0.0, 0.1))
    table = Dataset(X, np.ones(N), offset=np.log(1000.0))
    from ppgp.diagnostics.prior_simulations import OfModel
    from ppgp.runtime.seeding import seeded

    with seeded(0), pyro.get_param_store().scope():
        values, _, data = OfModel(model.prepare(table), table.X, table).drawn()
    mean = 1000.0 * torch.exp(X @ values["weight"] + values["bias"])
    assert torch.equal(data.y, values["y"])
    assert float(((data.y - mean) / mean.sqrt()).abs().max()) < 5
    assert data.offset is not None
    weighted = Dataset(X, np.ones(N), weights=np.ones(N))
    with pytest.raises(NotApplicable, match="weights in the table: leave it out"):
        ppgp.sbc(model, NUTS(), X=weighted, progress=False)


@pytest.mark.slow
def test_the_sd_of_groups_of_a_table_is_ranked() -> None:
    groups = models.GLM(groups={"g": Varying("1")})
    found = ppgp.sbc(groups, ppgp.inference.Laplace(draws=100), 20, X=TABLE, progress=False)
    assert "g.sd[intercept]" in found.ranks
