"""Small encoders for deep kernels: records that build a torch module for inputs of d columns, the same one every time.

A record prints, compares and is stored as plain data; any ``nn.Module`` from rows [n, d] to features [n, q] serves in its place.

Features are bounded: each lies within 2 / sqrt(out) of 0, so that no two rows are further apart than 4 whatever the width. A
network of free scale could undo any lengthscale by growing its weights; within a ball of radius 2 a lengthscale of 1, the centre
of the default prior, stands between "all rows are alike" and "no two rows are". Standardising features over the rows at
hand would tie the covariance of two rows to the company they keep, and the kernel would no longer be a function of two points.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from ..errors import SettingError, UnknownName, counted
from ..numerics.seeding import stream

__all__ = ["CNN", "MLP", "Network", "training"]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}
RADIUS = 2.0
T = TypeVar("T")
AT_ONCE = 2**22  # numbers between two layers of convolution
_TRAINING: ContextVar[bool] = ContextVar("training", default=False)


class _Own(threading.local):
    """What one thread of Python has for itself."""

    def __init__(self) -> None:
        self.modules: WeakKeyDictionary[nn.Module, nn.Module] = WeakKeyDictionary()


_OWN = _Own()


class Network:
    """The interface: ``build(d)`` is a new module from rows [n, d] to features [n, q], in float64; ``layers(d)`` makes it."""

    seed: int

    def layers(self, d: int) -> nn.Module:
        raise NotImplementedError

    def build(self, d: int) -> nn.Module:
        """The same weights every time, and nobody else's random numbers used up."""
        with stream(self.seed):
            return _initialised(self.layers(d))


class Bounded(nn.Module):
    """x [n, q] -> RADIUS / sqrt(q) tanh(x): within a ball, for the reason that stands at the top of this file."""

    def forward(self, x: Tensor) -> Tensor:
        return RADIUS / math.sqrt(x.shape[-1]) * torch.tanh(x)


class InBlocks(nn.Sequential):
    """Layers applied to so many rows at a time, unless they train: the values between two layers of convolution are many, and of
    all rows at once they leave the cache, several times slower.

    Args:
        layers: the layers in order.
        rows: at a time; None: all.
    """

    def __init__(self, *layers: Any, rows: int | None = None) -> None:
        super().__init__(*layers)
        self.rows = rows

    def forward(self, input: Tensor) -> Tensor:
        if self.training or self.rows is None or len(input) <= self.rows:
            return super().forward(input)
        return torch.cat([super(InBlocks, self).forward(block) for block in input.split(self.rows)])


@dataclass(frozen=True)
class MLP(Network):
    """A multilayer perceptron, [n, d] -> [n, out]; deep kernels with it: Wilson, Hu, Salakhutdinov & Xing (2016).

    Args:
        hidden: units of each hidden layer.
        out: how many features.
        activation: "relu", "tanh", "gelu" or "silu".
        dropout: share of the hidden units left out in a stochastic step of MAP or SVI. Srivastava et al. (2014).
        seed: of the initial weights, N(0, 2 / inputs of the unit). He et al. (2015).

    Raises:
        SettingError, UnknownName: if a size, the dropout or the activation is none.
    """

    hidden: tuple[int, ...] = (64, 64)
    out: int = 32
    activation: str = "relu"
    dropout: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        _check(self, self.activation, self.dropout, (*self.hidden, self.out))

    def layers(self, d: int) -> nn.Module:
        layers: list[nn.Module] = []
        width = d
        for units in self.hidden:
            layers += [
                nn.Linear(width, units, dtype=torch.float64),
                ACTIVATIONS[self.activation](),
                nn.Dropout(self.dropout),
            ]
            width = units
        return nn.Sequential(*layers, nn.Linear(width, self.out, dtype=torch.float64), Bounded())


@dataclass(frozen=True)
class CNN(Network):
    """Blocks of convolution, activation and pooling, then a linear layer: flat rows of square images, [n, side^2] -> [n, out].

    LeCun, Bottou, Bengio & Haffner (1998).

    Args:
        channels: of each block, which halves the sides of the image.
        out: how many features.
        activation, dropout, seed: as in MLP; the dropout is before the linear layer.
        normalise: each channel of a convolution by its mean and variance, those of the batch while ``pretrained`` trains and the
            running ones, buffers that nothing moves, in a kernel. Ioffe & Szegedy (2015).

    Raises:
        SettingError, UnknownName: if an option is none; on use, if a row is not a square image of at least 2^blocks pixels a side.
    """

    channels: tuple[int, ...] = (8, 16, 16)
    out: int = 16
    activation: str = "relu"
    dropout: float = 0.1
    seed: int = 0
    normalise: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "channels", tuple(self.channels))
        _check(self, self.activation, self.dropout, (*self.channels, self.out))
        if not self.channels:
            raise SettingError(
                "at least one block in CNN", "no channels", "for example channels=(8, 16, 16)"
            )

    def layers(self, d: int) -> nn.Module:
        side, least = math.isqrt(d), 2 ** len(self.channels)
        if side * side != d or side < least:
            raise SettingError(
                f"rows that are square images of at least {least} x {least} for CNN",
                counted(d, "column"),
                "use MLP",
            )
        layers: list[nn.Module] = [nn.Unflatten(1, (1, side, side))]
        before = 1
        for channels in self.channels:
            layers.append(
                nn.Conv2d(
                    before, channels, 3, padding=1, bias=not self.normalise, dtype=torch.float64
                )
            )
            if self.normalise:
                layers.append(nn.BatchNorm2d(channels, dtype=torch.float64))
            layers += [ACTIVATIONS[self.activation](), nn.MaxPool2d(2)]
            before, side = channels, side // 2
        head = nn.Linear(before * side * side, self.out, dtype=torch.float64)
        rows = max(1, AT_ONCE // (self.channels[0] * d))
        built = InBlocks(
            *layers, nn.Flatten(), nn.Dropout(self.dropout), head, Bounded(), rows=rows
        )
        return built.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # a third faster on a CPU


def _check(network: Network, activation: str, dropout: float, sizes: tuple[int, ...]) -> None:
    name = type(network).__name__
    if activation not in ACTIVATIONS:
        raise UnknownName("activation", activation, ACTIVATIONS)
    if not 0 <= dropout < 1:
        raise SettingError(f"a dropout in [0, 1) in {name}", repr(dropout), "for example 0.1")
    if not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes):
        raise SettingError(f"positive whole numbers as sizes of {name}", repr(sizes), "change them")


def _initialised(module: nn.Module) -> nn.Module:
    """Weights N(0, gain / fan in), biases 0; the last layer's gain is 1, so that few features start where tanh is flat."""
    layers = [m for m in module.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    for layer in layers:
        nn.init.kaiming_normal_(
            layer.weight, nonlinearity="linear" if layer is layers[-1] else "relu"
        )
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return module


# -- modes -------------------------------------------------------------------------------------------------------


@contextmanager
def training() -> Iterator[None]:
    """Networks drop units out inside, in this thread alone; everywhere else they do not."""
    token = _TRAINING.set(True)
    try:
        yield
    finally:
        _TRAINING.reset(token)


def module_of(network: Network | nn.Module, d: int) -> nn.Module:
    """The module that a kernel runs on rows of d columns: a clone that nobody trains, dropping out inside ``training()``.

    Each thread of Python has one of its own, on the same numbers: ``functional_call`` puts the weights into the module."""
    shared = _built(network, d, _TRAINING.get())
    if shared not in _OWN.modules:
        same = {id(value): value for value in (*shared.parameters(), *shared.buffers())}
        _OWN.modules[shared] = copy.deepcopy(shared, same)
    return _OWN.modules[shared]


@lru_cache(maxsize=32)
def _built(network: Network | nn.Module, d: int, train: bool) -> nn.Module:
    module = (
        (network.build(d) if isinstance(network, Network) else copy.deepcopy(network))
        .requires_grad_(False)
        .eval()
    )
    for part in (
        module.modules()
    ):  # dropout alone: what estimates statistics in train mode would change buffers in place
        part.training = train and isinstance(part, _DropoutNd)
    return module


@lru_cache(maxsize=32)
def width(network: Network | nn.Module, d: int) -> int:
    """How many features it makes of rows of d columns.

    Raises:
        SettingError: if it cannot take them, or does not give [n, q].
    """
    module = _built(network, d, False)
    like = next((p for p in module.parameters()), torch.zeros((), dtype=torch.float64))
    try:
        with torch.no_grad():
            shape = list(module(torch.zeros(2, d, dtype=like.dtype, device=like.device)).shape)
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SettingError(
            f"a network that takes rows of {counted(d, 'column')}", reason, "give it as many inputs"
        ) from None
    if len(shape) != 2 or shape[0] != 2 or shape[1] < 1:
        raise SettingError(
            "a network from rows [n, d] to features [n, q]",
            f"{shape} from 2 rows",
            "flatten its output",
        )
    return shape[1]


def instances_in(record: Any, kind: type[T]) -> Iterator[T]:
    """What is of that kind among the fields of a record, and of the records in it."""
    if isinstance(record, kind):
        yield record
    elif isinstance(record, tuple | list):
        for part in record:
            yield from instances_in(part, kind)
    elif is_dataclass(record) and not isinstance(record, type):
        for f in fields(record):
            yield from instances_in(getattr(record, f.name), kind)


def modules_in(record: Any) -> Iterator[nn.Module]:
    """The torch modules among the fields of a record, and of the records in it."""
    return instances_in(record, nn.Module)


def drops_out(record: Any) -> bool:
    """Whether a network somewhere in the record drops units out in train mode."""
    if getattr(record, "frozen", False):  # a network that is not trained
        return False
    if isinstance(record, Network):
        return bool(getattr(record, "dropout", 0.0))
    if isinstance(record, nn.Module):
        return any(isinstance(m, _DropoutNd) and m.p > 0 for m in record.modules())
    if isinstance(record, tuple | list):
        return any(drops_out(part) for part in record)
    if is_dataclass(record) and not isinstance(record, type):
        return any(drops_out(getattr(record, f.name)) for f in fields(record))
    return False


def weights(module: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Parameters and buffers by name; whole-number buffers (counters of batches) are not needed to run it."""
    buffers = {name: b for name, b in module.named_buffers() if b.is_floating_point()}
    return dict(module.named_parameters()), buffers


# -- training beforehand -----------------------------------------------------------------------------------------
