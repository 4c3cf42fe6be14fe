"""Mistakes in the arguments of kernels and networks are named when they are made."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from jaxtyping import config

import ppgp
from ppgp import kernels, networks
from ppgp.errors import DataError, PpgpError, SettingError, UnknownName
from ppgp.kernels import RBF

DATA = ppgp.Dataset(torch.rand(6, 2), torch.rand(6))
SMALL = networks.MLP((3,), 2)


@pytest.fixture(autouse=True)
def without_checks_of_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "jaxtyping_disable", True)  # users have no such checks


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (kernels.Anisotropy, ()),
        (kernels.ARD, ()),
        (kernels.Metric, ()),
        (kernels.Multiple, (2.0,)),
        (kernels.Scale, ()),
        (kernels.Sphere, ()),
        (kernels.Subspace, ([0],)),
        (kernels.Unscaled, (2.0,)),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_a_kernel_around_what_is_no_kernel_is_refused(kind: Any, more: tuple[Any, ...]) -> None:
    with pytest.raises(SettingError, match=r"a kernel, .*, got 3: for a number write Constant"):
        kind(3, *more)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda any: any(kernels.Sum)(()), r"a tuple of kernels in Sum, got \(\): write Sum\("),
        (lambda any: any(kernels.Product)(RBF()), r"a tuple of kernels in Product, got RBF\("),
        (lambda any: RBF() + any(RBF), r"got the class RBF: call it: RBF\(\)"),
        (lambda any: any(kernels.Sphere)(RBF(), "a"), "a positive radius, got 'a'"),
        (lambda any: kernels.Sphere(RBF(), math.inf), "a positive radius, got inf"),
        (lambda any: any(kernels.Deep)(SMALL, RBF(), prior=1.0), "as prior of Deep, got 1.0"),
    ],
)
def test_wrong_arguments_of_kernels_are_named(make: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make(lambda given: given)


def test_a_sum_takes_the_kernels_of_any_iterable() -> None:
    assert kernels.Sum(each for each in (RBF(), RBF())) == RBF() + RBF()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"hidden": 3}, SettingError, r"a tuple of sizes as hidden of MLP, got 3"),
        ({"hidden": "64"}, SettingError, r"a tuple of sizes as hidden of MLP, got '64'"),
        ({"dropout": "a"}, SettingError, r"a dropout in \[0, 1\) in MLP, got 'a'"),
        ({"activation": 3}, UnknownName, "an activation, got '3'"),
        ({"seed": 1.5}, SettingError, "a whole number as seed of MLP, got 1.5"),
    ],
)
def test_wrong_arguments_of_networks_are_named(
    given: dict[str, Any], error: type[PpgpError], message: str
) -> None:
    with pytest.raises(error, match=message):
        networks.MLP(**given)


@pytest.mark.parametrize("train", [networks.pretrained, networks.regressor])
@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"network": networks.MLP}, SettingError, r"got the class MLP: call it: MLP\(\)"),
        ({"network": "mlp"}, SettingError, r"a network, got 'mlp': for example MLP\(\)"),
        ({"data": 3}, DataError, r"a Dataset, got an int: pass ppgp\.Dataset\(X, y\)"),
        ({"epochs": 1.5}, SettingError, "a positive whole number as epochs, got 1.5"),
        ({"epochs": 0}, SettingError, "a positive whole number as epochs, got 0"),
        ({"batch_size": "a"}, SettingError, "a positive whole number as batch_size, got 'a'"),
        ({"learning_rate": math.inf}, SettingError, "a positive learning_rate, got inf"),
        ({"learning_rate": -1.0}, SettingError, "a positive learning_rate, got -1.0"),
    ],
)
def test_wrong_arguments_of_the_training_of_networks_are_named(
    train: Any, given: dict[str, Any], error: type[PpgpError], message: str
) -> None:
    with pytest.raises(error, match=message):
        train(**{"network": SMALL, "data": DATA, **given})
