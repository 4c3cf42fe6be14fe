"""Plain dictionaries as objects of ArviZ 0.x and of ArviZ 1.x."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from ppgp.data import Dataset
from ppgp.models import LinearRegression
from ppgp.posterior import Posterior
from ppgp.posterior import arviz as arviz_bridge

CHAINS, DRAWS, ROWS = 2, 30, 7
RNG = np.random.default_rng(0)
GROUPS = {
    "posterior": {
        "weight": RNG.normal(size=(CHAINS, DRAWS, 3)),
        "bias": RNG.normal(size=(CHAINS, DRAWS)),
    },
    "log_likelihood": {"y": RNG.normal(size=(CHAINS, DRAWS, ROWS))},
    "sample_stats": {},
    "observed_data": {"y": RNG.normal(size=ROWS)},
}
COORDS = {"row": list(range(ROWS)), "feature": ["a", "b", "c"]}
DIMS = {"y": ["row"], "weight": ["feature"], "absent": ["feature"]}


@pytest.fixture(params=["arviz", "arviz_base"])
def library(request: pytest.FixtureRequest) -> ModuleType:
    return arviz_bridge.arviz() if request.param == "arviz" else pytest.importorskip("arviz_base")


def groups_of(found: Any) -> set[str]:
    return {
        str(name).strip("/")
        for name in (found.groups() if callable(found.groups) else found.groups)
    } - {""}


def test_values_dims_and_coordinates_are_kept(library: ModuleType) -> None:
    found = arviz_bridge.to_arviz(GROUPS, COORDS, DIMS, {"inference_library": "ppgp"}, library)
    weight = found["posterior"]["weight"]
    assert weight.dims == ("chain", "draw", "feature")
    assert weight.coords["feature"].values.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(weight.values, GROUPS["posterior"]["weight"])
    assert found["posterior"]["bias"].dims == ("chain", "draw")
    assert found["log_likelihood"]["y"].dims == ("chain", "draw", "row")
    np.testing.assert_array_equal(found["observed_data"]["y"].values, GROUPS["observed_data"]["y"])
    assert found.attrs["inference_library"] == "ppgp"


def test_a_group_without_values_is_left_out(library: ModuleType) -> None:
    found = arviz_bridge.to_arviz(GROUPS, COORDS, DIMS, {}, library)
    assert groups_of(found) == {"posterior", "log_likelihood", "observed_data"}


def test_a_point_estimate_is_accepted_without_a_warning(library: ModuleType) -> None:
    found = arviz_bridge.to_arviz({"posterior": {"bias": np.zeros((1, 1))}}, {}, {}, {}, library)
    assert found["posterior"]["bias"].shape == (1, 1)


def posterior() -> Posterior:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    draws = {
        "weight": normal(CHAINS, DRAWS, 3),
        "bias": normal(CHAINS, DRAWS),
        "noise": normal(CHAINS, DRAWS).exp(),
    }
    data, scaler = Dataset(
        normal(ROWS, 3), 5 * normal(ROWS), ["a", "b", "c"], "target"
    ).standardised()
    stats = {"diverging": torch.zeros(CHAINS, DRAWS, dtype=torch.bool), "losses": torch.zeros(4)}
    return Posterior(LinearRegression(), data, draws, how=None, stats=stats, scaler=scaler)


def test_a_posterior_exports_draws_likelihood_stats_and_data() -> None:
    mine = posterior()
    assert set(mine.draws) == set(mine.model.sites(3))
    found = mine.to_arviz()
    assert groups_of(found) == {
        "posterior",
        "log_likelihood",
        "log_prior",
        "sample_stats",
        "observed_data",
        "constant_data",
    }
    assert set(found["sample_stats"].data_vars) == {"diverging"}
    for name, value in mine.draws.items():
        np.testing.assert_array_equal(found["posterior"][name].values, value.numpy())
    np.testing.assert_allclose(found["log_likelihood"]["y"].values, mine.log_likelihood().numpy())


def test_the_pointwise_likelihood_is_in_the_units_of_the_data() -> None:
    """It is the Gaussian density of the unscaled target at each draw."""
    mine = posterior()
    assert not mine.scaler.is_identity
    X, y = mine.data.X, mine.data.y
    mean = (X @ mine.draws["weight"].unsqueeze(-1)).squeeze(-1) + mine.draws["bias"][..., None]
    distribution = mine.model.distribution(mine.theta, X)
    sd = distribution.stddev.reshape(CHAINS, DRAWS, -1)
    z = (y - mean) / sd
    expected = -0.5 * z.square() - (sd * mine.scaler.y_sd).log() - 0.5 * math.log(2 * math.pi)
    torch.testing.assert_close(mine.log_likelihood(), expected)
