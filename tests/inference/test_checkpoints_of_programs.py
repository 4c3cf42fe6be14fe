"""A checkpoint of a program is refused where data that its code does not show are others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

import ppgp
from ppgp.errors import StorageError
from ppgp.inference import HMC, NUTS, SVI, Inference

F64 = torch.float64
ONE, OTHER = torch.ones(3, dtype=F64), torch.full((3,), 12.0, dtype=F64)
AROUND: dict[str, Tensor] = {}
QUICK = SVI(steps=30, draws=20)


def mean(y: Tensor | None = None) -> None:
    m = pyro.sample("m", dist.Normal(torch.zeros((), dtype=F64), 100.0))
    with pyro.plate("rows", 3):
        pyro.sample("y", dist.Normal(m, 1.0), obs=y)


class Held:
    def __init__(self, y: Tensor) -> None:
        self.y = y

    def __call__(self) -> None:
        mean(self.y)

    def run(self) -> None:
        mean(self.y)


def in_a_dict(y: Tensor) -> Callable[[], None]:
    held = {"y": y}
    return lambda: mean(held["y"])


def in_a_global_dict(y: Tensor) -> Callable[[], None]:
    AROUND["y"] = y
    return lambda: mean(AROUND["y"])


def scaled(y: Tensor) -> Any:
    return poutine.scale(lambda: mean(ONE), scale=float(y[0]))  # type: ignore[attr-defined]


MAKE: list[Callable[[Tensor], Any]] = [
    in_a_dict,
    in_a_global_dict,
    Held,
    lambda y: Held(y).run,
    lambda y: pyro.condition(mean, data={"y": y}),
    scaled,
]


def fit(program: Any, how: Inference, path: Path) -> ppgp.Posterior:
    return ppgp.fit(program, {}, how, progress=False, checkpoint=path)


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_other_data_in_the_surroundings_of_a_program(
    make: Callable[[Tensor], Any], tmp_path: Path
) -> None:
    path = tmp_path / "run.ckpt"
    first = fit(make(ONE), QUICK, path)
    again = fit(make(ONE.clone()), QUICK, path)  # only read
    assert torch.equal(first.draws["m"], again.draws["m"])
    with pytest.raises(
        StorageError, match=r"a run with (another program|other data|another density)"
    ):
        fit(make(OTHER), QUICK, path)


@pytest.mark.parametrize("how", [NUTS(draws=20, warmup=20, chains=1), HMC(20, 20, 1)], ids=repr)
@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_every_sampler_refuses_it(how: Inference, tmp_path: Path) -> None:
    fit(Held(ONE), how, tmp_path / "run.ckpt")
    with pytest.raises(
        StorageError, match=r"a run with (another program|other data|another density)"
    ):
        fit(Held(OTHER), how, tmp_path / "run.ckpt")


@pytest.mark.filterwarnings("ignore::ppgp.errors.ConvergenceWarning")
def test_a_file_without_densities_is_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    first = fit(in_a_dict(ONE), QUICK, path)
    with safe_open(str(path), "pt") as file:
        about = {key: value for key, value in file.metadata().items() if key != "density"}
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    save_file(tensors, path, about)
    assert torch.equal(first.draws["m"], fit(in_a_dict(ONE), QUICK, path).draws["m"])
