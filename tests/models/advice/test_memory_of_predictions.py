"""What predictions of exact GPs allocate at their peak, and what their check of memory asks for."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ppgp import Dataset, kernels, models
from ppgp.errors import NotEnoughMemory
from ppgp.kernels import Kernel
from ppgp.models.advice import memory_checks
from ppgp.runtime import memory

N, M, DRAWS = 160, 120, 3
GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(N, 2, generator=GENERATOR, dtype=torch.float64)
DATA = Dataset(X, X.sin().sum(1))
NEW = torch.rand(M, 2, generator=GENERATOR, dtype=torch.float64)

LEAVES = [
    kernels.RBF(),
    kernels.Matern(0.5),
    kernels.Matern(1.5),
    kernels.Matern(2.5),
    kernels.Exponential(),
    kernels.Spherical(),
    kernels.RationalQuadratic(),
    kernels.Periodic(),
    kernels.Linear(),
    kernels.Polynomial(),
    kernels.ARD(kernels.Matern(2.5)),
]
SUMS = [
    kernels.RBF() + kernels.Matern(2.5),
    kernels.RBF() + kernels.Periodic() + kernels.Matern(2.5),
    (kernels.RBF() + kernels.Linear()) * (kernels.Matern(2.5) + kernels.Periodic()),
]


class Live(TorchDispatchMode):
    """The bytes of the tensors that operations inside the block have made and that still live.

    Attributes:
        now: their bytes.
        peak: the most that there were at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.holders: dict[int, list[int]] = {}  # address -> bytes, and the tensors that view it

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {
            self.address(t) for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)
        }
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.numel():
                self.add(tensor, given)
        return out

    @staticmethod
    def address(tensor: torch.Tensor) -> int:
        return tensor.untyped_storage().data_ptr()

    def add(self, tensor: torch.Tensor, given: set[int]) -> None:
        address = self.address(tensor)
        if address not in self.holders:
            if address in given:  # a view of a tensor from outside
                return
            self.holders[address] = [tensor.untyped_storage().nbytes(), 0]
            self.now += self.holders[address][0]
            self.peak = max(self.peak, self.now)
        self.holders[address][1] += 1
        weakref.finalize(tensor, self.drop, address)

    def drop(self, address: int) -> None:
        self.holders[address][1] -= 1
        if not self.holders[address][1]:
            self.now -= self.holders.pop(address)[0]


def drawn(model: Any, draws: int = DRAWS) -> dict[str, torch.Tensor]:
    """Return draws of all sites near the medians of their priors."""
    values = {}
    for name, site in model.sites(2).items():
        if not site.fixed:
            shape = (draws, *site.shape)
            values[name] = torch.full(shape, 0.3, dtype=torch.float64)
    return values


def peak_and_check(model: Any, act: Callable[[Any], Any], monkeypatch: Any) -> tuple[float, float]:
    """Return the bytes at the peak of ``act(model)``, and those that it was checked for."""
    checked: list[float] = []
    monkeypatch.setattr(memory_checks, "SMALL", 0.0)
    monkeypatch.setattr(memory_checks, "must_fit", lambda size, *_: checked.append(size))
    with torch.no_grad(), Live() as live:
        act(model)
    return live.peak, sum(checked)


ACTS: dict[str, Callable[[Any], Any]] = {
    "predict": lambda model: model.predict(drawn(model), NEW, DATA),
    "joint": lambda model: model.predict(drawn(model), NEW, DATA, joint=True),
    "loo": lambda model: model.loo(drawn(model), DATA),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("family", [models.GP, models.Kriging])
@pytest.mark.parametrize("kernel", [*LEAVES, *SUMS], ids=repr)
def test_the_peak_is_at_most_what_was_checked(
    kernel: Kernel, family: Any, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    peak, checked = peak_and_check(family(kernel), ACTS[act], monkeypatch)
    assert peak <= checked <= 2.5 * peak


@pytest.mark.parametrize("family", [models.GP, models.Kriging])
def test_a_prediction_needs_less_memory_than_a_gradient(
    family: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 1000
    rows = torch.rand(n, 2, generator=GENERATOR, dtype=torch.float64)
    data, model = Dataset(rows, rows.sum(1)), family(kernels.RBF(), mean=None)
    matrix = 8 * n * n
    monkeypatch.setattr(memory, "available", lambda device=None: 7.5 * matrix)
    with pytest.raises(NotEnoughMemory, match="SGPR"):
        model.check_memory(n, 2, rows)
    assert model.predict(drawn(model, 1), NEW, data).mean.isfinite().all()
    monkeypatch.setattr(memory, "available", lambda device=None: 5.5 * matrix)
    acts = [
        lambda: model.predict(drawn(model, 1), NEW, data),
        lambda: model.loo(drawn(model, 1), data),
    ]
    for act in acts:
        with pytest.raises(NotEnoughMemory, match=r"1,000 training rows.*fewer rows per call"):
            act()
