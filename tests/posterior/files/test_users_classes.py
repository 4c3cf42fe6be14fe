"""Posteriors with a user's own kernel, method, program or guide are saved and read back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer.autoguide import AutoNormal
from torch import Tensor

import ppgp
from ppgp import inference, kernels, models
from ppgp.errors import StorageError
from ppgp.posterior.files import encoding

X = torch.linspace(0, 1, 12, dtype=torch.float64)[:, None]
DATA = ppgp.Dataset(X, torch.sin(5 * X[:, 0]))


@dataclass(frozen=True)
class Squared(kernels.RBF):
    """A kernel of the user's own."""

    power: float = 2.0

    def __call__(self, theta: Any, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        return super().__call__(theta, X1, X2) ** self.power


@dataclass(frozen=True)
class Few(inference.Laplace):
    """A method of the user's own."""

    draws: int = 4


def program(x: Tensor, y: Tensor | None = None) -> None:
    slope = pyro.sample("slope", dist.Normal(x.new_zeros(()), 5.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(slope * x, 1.0), obs=y)


def guide(x: Tensor, y: Tensor | None = None) -> None:
    mean = pyro.param("mean", x.new_zeros(()))
    pyro.sample("slope", dist.Normal(mean, 0.1))


def test_a_users_kernel_is_read_back_with_the_recipe_or_its_class(tmp_path: Path) -> None:
    recipe = models.GP(kernels.Scale(Squared()))
    posterior = ppgp.fit(recipe, DATA, inference.MAP(), progress=False)
    path = posterior.save(tmp_path / "own.ppgp")
    with pytest.raises(StorageError, match=r"Squared.*model="):
        ppgp.load_posterior(path)
    for given in (recipe, Squared, Squared(), posterior.model):
        again = ppgp.load_posterior(path, model=given)
        assert again.model == posterior.model
        assert torch.equal(again.predict(X).mean, posterior.predict(X).mean)


def test_a_users_method_is_read_back_with_the_recipe(tmp_path: Path) -> None:
    recipe = models.GP(Squared())
    path = ppgp.fit(recipe, DATA, Few(), progress=False).save(tmp_path / "own.ppgp")
    with pytest.raises(StorageError, match=r"Few.*model="):
        ppgp.load_posterior(path, model=recipe)
    assert ppgp.load_posterior(path, model=(recipe, Few)).how == Few()


def test_a_program_and_its_guide_are_read_back_together(tmp_path: Path) -> None:
    data = {"x": X[:, 0], "y": DATA.y}
    path = ppgp.fit(program, data, inference.SVI(guide, steps=5, draws=4), progress=False).save(
        tmp_path / "own.ppgp"
    )
    with pytest.raises(StorageError, match="guide"):
        ppgp.load_posterior(path, model=program)
    assert ppgp.load_posterior(path, model=(program, guide)).how.guide is guide


@pytest.mark.filterwarnings("ignore:the ELBO was still rising")
def test_a_guide_of_pyro_need_not_be_passed(tmp_path: Path) -> None:
    data = {"x": X[:, 0], "y": DATA.y}
    path = ppgp.fit(
        program, data, inference.SVI(AutoNormal, steps=5, draws=4), progress=False
    ).save(tmp_path / "own.ppgp")
    assert ppgp.load_posterior(path, model=program).how.guide is AutoNormal


def test_a_users_class_with_the_name_of_ours_is_distinguished() -> None:
    """A user's module may be called kernels, and its class RBF."""
    theirs = type("RBF", (kernels.RBF,), {"__module__": "mine.kernels"})
    assert encoding.class_name(theirs) != encoding.class_name(kernels.RBF)
