"""What the library draws does not depend on torch's default device, which a caller may set."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

import ppgp
from ppgp.models.neighbours.weights import conditional_weights, pairs_below
from ppgp.runtime.seeding import permutation, standard_normal, standard_uniform

DRAWS = ("rand", "randn", "randint", "randperm")


@pytest.fixture
def another_default() -> Iterator[None]:
    """Let torch put new tensors on another device than the CPU."""
    pairs_below.cache_clear()  # what was cached before would be on the CPU
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)
    pairs_below.cache_clear()


def numbers(draw: Callable[..., Tensor]) -> Tensor:
    return draw(torch.Generator().manual_seed(0), 5)


@pytest.mark.usefixtures("another_default")
@pytest.mark.parametrize("draw", [standard_normal, standard_uniform, permutation])
def test_draws_are_on_the_cpu(draw: Callable[..., Tensor]) -> None:
    found = numbers(draw)
    torch.set_default_device(None)
    assert found.device.type == "cpu"
    assert torch.equal(found, numbers(draw))


@pytest.mark.usefixtures("another_default")
def test_conditional_weights_are_where_the_covariances_are() -> None:
    with torch.device("cpu"):
        covariances, variances = torch.full((1, 3), 0.5), torch.ones(2, 3)
    found = conditional_weights(covariances, variances)
    torch.testing.assert_close(found[0], covariances.new_tensor(3 * [-2 / 3]))


@pytest.mark.usefixtures("another_default")
def test_rows_on_another_device_than_the_default_are_refused() -> None:
    with torch.device("cpu"):
        data = ppgp.Dataset(torch.arange(12.0).reshape(6, 2), torch.arange(6.0))
    with pytest.raises(ppgp.errors.DataError, match=r"device, meta, got rows on cpu: use data\.to"):
        ppgp.fit(ppgp.models.LinearRegression(), data, progress=False)


def test_every_draw_from_a_generator_names_its_device() -> None:
    unnamed = []
    for path in Path(ppgp.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            words = {keyword.arg for keyword in node.keywords}
            if node.func.attr in DRAWS and "generator" in words and "device" not in words:
                unnamed.append(f"{path.name}:{node.lineno}")
    assert unnamed == []
