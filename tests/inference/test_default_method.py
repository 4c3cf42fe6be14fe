"""The method of ``fit`` without ``how``: NUTS, or Laplace where it would take long."""

from __future__ import annotations

import numpy as np
import pytest

import ppgp
from ppgp import Dataset, inference, kernels, models
from ppgp.cli.recipe_options import methods_of_models
from ppgp.errors import PpgpWarning
from ppgp.inference.fitting.fit import default_name, own_method

SLOW = [
    models.GP(),
    models.GridGP(),
    models.Kriging(kernels.Exponential()),
    models.LatentGP(),
    models.LatentVecchia(),
    models.SGPR(),
    models.StateSpaceGP(kernels.Matern(1.5)),
    models.Vecchia(),
]


@pytest.mark.parametrize("model", SLOW, ids=lambda model: type(model).__name__)
def test_nuts_up_to_the_rows_that_a_model_states(model: models.Model) -> None:
    most = model.sampled_rows
    assert most is not None
    assert own_method(model, most) == inference.NUTS()
    assert own_method(model, most + 1) == inference.Laplace()


def test_an_own_method_does_not_depend_on_the_rows() -> None:
    assert default_name(models.Boosted(), 10**6) == "ngb"
    assert default_name(models.LinearRegression(), 10**6) == "nuts"


def test_fit_uses_it() -> None:
    x = np.linspace(0.0, 6.0, 30)
    data = Dataset(x[:, None], np.sin(x))
    posterior = ppgp.fit(models.SKI(grid=32), data, progress=False)
    assert posterior.how == inference.Laplace()
    assert own_method(models.LatentStateSpaceGP(), 1) == inference.Laplace()


def test_the_command_line_leaves_nuts_out() -> None:
    with pytest.warns(PpgpWarning, match="nuts is left out for state_space, .* 2225 rows"):
        plan = methods_of_models(["state_space", "linear"], None, "map,nuts", 2225)
    assert plan == {"state_space": ["map"], "linear": ["map", "nuts"]}
    with pytest.warns(PpgpWarning, match="--how asks for it"):
        assert methods_of_models(["gp"], None, "nuts", 2225) == {"gp": ["laplace"]}
    assert methods_of_models(["gp"], "nuts", "map", 2225) == {"gp": ["nuts"]}
