"""``prepare`` of a rank's own rows gives the recipe of the whole team, as in ``fit``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from ppgp import kernels, likelihoods, models
from ppgp.data import Dataset
from ppgp.runtime.team import Team

G = torch.Generator().manual_seed(0)
X = torch.rand(40, 1, generator=G, dtype=torch.float64).sort(0).values
COUNTS = (10 * X[:, 0]).round()
WHOLE = Dataset(X, COUNTS)


class OfTwo(Team):
    """Rank 0 of two ranks, of which the other has the last rows of ``WHOLE``."""

    def __init__(self) -> None:
        super().__init__(0, 2)

    def rows_of_all(self, value: Tensor) -> Tensor:
        return WHOLE.X if value.ndim == 2 else WHOLE.y


def shard() -> Dataset:
    own = WHOLE.rows(slice(0, 10))
    vars(own).update(team=OfTwo(), sample_of_team=WHOLE)
    return own


MODELS: dict[str, Any] = {
    "GP": models.GP(),
    "SGPR": models.SGPR(inducing=5),
    "SKI": models.SKI(kernels.Matern(1.5), 16),
    "StateSpaceGP": models.StateSpaceGP(),
    "Vecchia without a drift": models.Vecchia(drift="none", neighbours=4),
    "Kriging": models.Kriging(),
    "counts": models.GLM(likelihoods.NegativeBinomial()),
    "SVGP": models.SVGP(likelihood=likelihoods.Poisson(), inducing=5),
}


@pytest.mark.parametrize("name", MODELS)
def test_it_has_the_statistics_of_all_rows(name: str) -> None:
    recipe = MODELS[name]
    of_team, of_all = recipe.prepare(shard()), recipe.prepare(WHOLE)
    assert repr(of_team) == repr(of_all)
    assert torch.equal(
        torch.as_tensor(getattr(of_team, "Z", 0)), torch.as_tensor(getattr(of_all, "Z", 0))
    )
    if getattr(of_all, "mean", None) is not None and "y" in recipe.scales:
        assert of_team.mean == pytest.approx(float(WHOLE.y.mean()))
