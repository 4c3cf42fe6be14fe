"""Small neural networks for deep kernels and for regression.

A network is a record that builds a torch module for inputs of d columns, the same one every time.
It prints, compares and is stored as plain data. Any ``nn.Module`` from rows [n, d] to features
[n, q] can take its place.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from numbers import Integral
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.dropout import _DropoutNd

from ..errors import SettingError, UnknownName, counted
from ..numerics.shapes import broadcast_shapes
from ..priors import finite_numbers
from ..runtime.seeding import stream
from .row_blocks import Rows, evaluated, rows_at_once

__all__ = ["CNN", "MLP", "Network", "training"]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}
T = TypeVar("T")
AT_ONCE = 2**22  # the most numbers between two layers of convolution
_TRAINING: ContextVar[bool] = ContextVar("training", default=False)
RADIUS = 2.0


class _Own(threading.local):
    """The modules of one thread of Python."""

    def __init__(self) -> None:
        self.modules: WeakKeyDictionary[nn.Module, nn.Module] = WeakKeyDictionary()


_OWN = _Own()


class Network:
    """The interface of networks: ``build(d)`` returns a new module from [n, d] to [n, q].

    A subclass defines ``layers``. Modules are in float64. ``build`` draws the weights from a normal
    distribution with the variance of He et al. (2015), section 2.2. In a kernel the rows are on the
    scale of the model, and features have no unit.

    Attributes:
        seed: The seed of the initial weights.

    Raises:
        SettingError: In a fit, if the module does not take rows of d columns, or does not return
            one row of features for each.

    Examples:
        A network of your own, which builds the same module every time:

        >>> from dataclasses import dataclass
        >>> import torch
        >>> from ppgp import networks
        >>> @dataclass(frozen=True)
        ... class Projection(networks.Network):
        ...     out: int = 2
        ...     seed: int = 0
        ...
        ...     def layers(self, d):
        ...         return torch.nn.Linear(d, self.out, dtype=torch.float64)
        >>> first, second = Projection().build(d=5), Projection().build(d=5)
        >>> first.weight.shape, torch.equal(first.weight, second.weight)
        (torch.Size([2, 5]), True)
    """

    seed: int

    def layers(self, d: int) -> nn.Module:
        """Return the module for inputs of d columns, with any initial weights."""
        raise NotImplementedError

    def build(self, d: int) -> nn.Module:
        """Return a module with the same weights every time; no other random numbers are used."""
        with stream(self.seed):
            return initialised(self.layers(d))


@dataclass(frozen=True)
class MLP(Network):
    """A multilayer perceptron, [n, d] -> [n, out].

    It reads rows on the scale of the model, and its features have no unit. For deep kernels see
    Wilson, Hu, Salakhutdinov & Xing (2016).

    Args:
        hidden: The number of units of each hidden layer.
        out: The number of features.
        activation: "relu", "tanh", "gelu" or "silu".
        dropout: The share of hidden units that are left out in a stochastic step of MAP or SVI.
            Srivastava et al. (2014).
        seed: The seed of the initial weights, N(0, 2 / inputs of the unit). He et al. (2015).
        bounded: Whether the features are bounded, as a deep kernel needs. ``NeuralRegression``
            leaves the bound out.

    Raises:
        SettingError: If a size is not a positive whole number, the dropout not in [0, 1) or the
            seed not a whole number.
        UnknownName: If the activation is not known.

    Examples:
        With five columns and three features there are 6 * 64 + 65 * 64 + 65 * 3 weights. The
        features lie in a ball of radius 2:

        >>> import torch
        >>> from ppgp import networks
        >>> module = networks.MLP(hidden=(64, 64), out=3).build(d=5)
        >>> sum(weights.numel() for weights in module.parameters())
        4739
        >>> features = module(100 * torch.eye(5, dtype=torch.float64))
        >>> features.shape, bool((features.norm(dim=1) < 2.001).all())
        (torch.Size([5, 3]), True)
    """

    hidden: tuple[int, ...] = (64, 64)
    out: int = 32
    activation: str = "relu"
    dropout: float = 0.1
    seed: int = 0
    bounded: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", _sizes(self, "hidden", self.hidden))
        _check(self, self.activation, self.dropout, (*self.hidden, self.out))

    def layers(self, d: int) -> nn.Module:
        layers: list[nn.Module] = []
        width = d
        for units in self.hidden:
            linear = nn.Linear(width, units, dtype=torch.float64)
            layers += [linear, ACTIVATIONS[self.activation](), nn.Dropout(self.dropout)]
            width = units
        layers.append(nn.Linear(width, self.out, dtype=torch.float64))
        return nn.Sequential(*layers, *bounds(self.bounded))


@dataclass(frozen=True)
class CNN(Network):
    """Blocks of convolution, activation and pooling, then a linear layer.

    It maps flattened square images [n, side^2] to features [n, out], which have no unit. LeCun,
    Bottou, Bengio & Haffner (1998).

    Args:
        channels: The channels of each block; a block halves the sides of the image.
        out: The number of features.
        activation: "relu", "tanh", "gelu" or "silu".
        dropout: The share of units that are left out before the linear layer, as in MLP.
        seed: The seed of the initial weights, as in MLP.
        normalise: Whether each channel of a convolution is normalised by its mean and variance.
            They are those of the batch while ``pretrained`` trains, and the running ones (constant
            buffers) in a kernel. Ioffe & Szegedy (2015).
        bounded: Whether the features are bounded, as in MLP.

    Raises:
        SettingError: If a size is not a positive whole number, the dropout not in [0, 1) or the
            seed not a whole number, or if there are no channels; on use, if a row is not a square
            image with sides of at least 2^blocks pixels.
        UnknownName: If the activation is not known.

    Examples:
        Three images of 8 by 8 pixels, in rows of 64 columns:

        >>> import torch
        >>> from ppgp import networks
        >>> module = networks.CNN(channels=(4, 8), out=5).build(d=64)
        >>> module(torch.zeros(3, 64, dtype=torch.float64)).shape
        torch.Size([3, 5])
    """

    channels: tuple[int, ...] = (8, 16, 16)
    out: int = 16
    activation: str = "relu"
    dropout: float = 0.1
    seed: int = 0
    normalise: bool = False
    bounded: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "channels", _sizes(self, "channels", self.channels))
        _check(self, self.activation, self.dropout, (*self.channels, self.out))
        if not self.channels:
            do = "for example channels=(8, 16, 16)"
            raise SettingError("at least one block in CNN", "no channels", do)

    def layers(self, d: int) -> nn.Module:
        side, least = math.isqrt(d), 2 ** len(self.channels)
        if side * side != d or side < least:
            wanted = f"rows that are square images of at least {least} x {least} for CNN"
            raise SettingError(wanted, counted(d, "column"), "use MLP")
        layers: list[nn.Module] = [nn.Unflatten(1, (1, side, side))]
        before = 1
        bias = not self.normalise
        for channels in self.channels:
            layers.append(nn.Conv2d(before, channels, 3, padding=1, bias=bias, dtype=torch.float64))
            if self.normalise:
                layers.append(nn.BatchNorm2d(channels, dtype=torch.float64))
            layers += [ACTIVATIONS[self.activation](), nn.MaxPool2d(2)]
            before, side = channels, side // 2
        head = nn.Linear(before * side * side, self.out, dtype=torch.float64)
        rows = max(1, AT_ONCE // (self.channels[0] * d))
        layers += [nn.Flatten(), nn.Dropout(self.dropout), head, *bounds(self.bounded)]
        # torch's annotations lack ``memory_format``, with which it is a third faster on a CPU
        network: Any = InBlocks(*layers, rows=rows)
        return network.to(memory_format=torch.channels_last)


def _sizes(network: Network, name: str, given: object) -> tuple[int, ...]:
    """Return the sizes of several layers as a tuple."""
    if isinstance(given, Iterable) and not isinstance(given, str):
        return tuple(given)
    wanted = f"a tuple of sizes as {name} of {type(network).__name__}"
    raise SettingError(wanted, repr(given), f"for example {name}=(64, 64)")


def _check(network: Network, activation: str, dropout: float, sizes: tuple[int, ...]) -> None:
    name = type(network).__name__
    if activation not in ACTIVATIONS:
        raise UnknownName("activation", str(activation), ACTIVATIONS)
    if not finite_numbers((dropout,)) or not 0 <= dropout < 1:
        raise SettingError(f"a dropout in [0, 1) in {name}", repr(dropout), "for example 0.1")
    if not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in sizes):
        raise SettingError(f"positive whole numbers as sizes of {name}", repr(sizes), "change them")
    seed: object = network.seed
    if not isinstance(seed, Integral) or isinstance(seed, bool):
        raise SettingError(f"a whole number as seed of {name}", repr(seed), "for example 0")


# -- modules in kernels ------------------------------------------------------------------------


@contextmanager
def training() -> Iterator[None]:
    """A context in which networks leave out hidden units (dropout), in this thread only.

    Methods of inference enter it in the steps of a search: Srivastava et al. (2014). Elsewhere the
    features [n, q] of a deep kernel are a function of X alone.

    Examples:
        >>> import torch
        >>> from ppgp import kernels, networks
        >>> kernel = kernels.Deep(networks.MLP((64,), 2, dropout=0.5), kernels.RBF(1.0, 1.0))
        >>> X = torch.linspace(0, 1, 5)[:, None]
        >>> torch.equal(kernel({}, X), kernel({}, X))
        True
        >>> with networks.training():
        ...     torch.equal(kernel({}, X), kernel({}, X))
        False
    """
    token = _TRAINING.set(True)
    try:
        yield
    finally:
        _TRAINING.reset(token)


def module_of(network: Network | nn.Module, d: int) -> nn.Module:
    """Return the module that a kernel runs on rows of d columns, with dropout in ``training()``.

    It is a clone that is never trained. Each thread of Python has its own module over the same
    numbers, as ``functional_call`` puts the weights into the module.
    """
    return _own(_built(network, d, _TRAINING.get()))


def _own(shared: nn.Module) -> nn.Module:
    """Return the module of this thread over the numbers of one that all threads share."""
    if shared not in _OWN.modules:
        same = {id(value): value for value in (*shared.parameters(), *shared.buffers())}
        _OWN.modules[shared] = copy.deepcopy(shared, same)
    return _OWN.modules[shared]


@lru_cache(maxsize=32)
def _built(network: Network | nn.Module, d: int, train: bool) -> nn.Module:
    module = network.build(d) if isinstance(network, Network) else copy.deepcopy(network)
    module.requires_grad_(False).eval()
    # only dropout: layers that estimate statistics in train mode would change buffers in place
    for part in module.modules():
        part.training = train and isinstance(part, _DropoutNd)
    return module


@lru_cache(maxsize=32)
def width(network: Network | nn.Module, d: int) -> int:
    """Return the number of features that a network computes from rows of d columns.

    Raises:
        SettingError: If it does not take these rows, or does not return [n, q].
    """
    module = _built(network, d, False)
    like = next((p for p in module.parameters()), torch.zeros((), dtype=torch.float64))
    try:
        with torch.no_grad():
            shape = list(module(torch.zeros(2, d, dtype=like.dtype, device=like.device)).shape)
    except (RuntimeError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        wanted = f"a network that takes rows of {counted(d, 'column')}"
        raise SettingError(wanted, reason, "give it as many inputs") from None
    if len(shape) != 2 or shape[0] != 2 or shape[1] < 1:
        wanted = "a network from rows [n, d] to features [n, q]"
        raise SettingError(wanted, f"{shape} from 2 rows", "flatten its output")
    return shape[1]


@dataclass(frozen=True)
class _OnRows:
    """(X [n, d], *state) -> the outputs of a module, in any thread."""

    module: nn.Module
    names: tuple[str, ...]

    def __call__(self, X: Tensor, *state: Tensor) -> Tensor:
        named = dict(zip(self.names, state, strict=True))
        return functional_call(_own(self.module), named, (X,))


def outputs(network: Network | nn.Module, given: Mapping[str, Tensor], X: Tensor) -> Tensor:
    """Return what a network computes from X with given weights, [*batch, n, q].

    Args:
        network: The network.
        given: {name of a parameter or buffer: [*batch, *shape]}; those that are left out are the
            network's own.
        X: The rows [n, d], or [*batch, n, d].
    """
    shared = _built(network, X.shape[-1], _TRAINING.get())
    module = _own(shared)
    initial = {name: value for part in weights(module) for name, value in part.items()}
    shapes = {name: value.shape for name, value in initial.items()}
    state = {name: given.get(name, value).to(X) for name, value in initial.items()}
    batches = (v.shape[: v.ndim - len(shapes[name])] for name, v in state.items())
    batch = broadcast_shapes(*batches)

    def run(state: dict[str, Tensor], X: Tensor) -> Tensor:
        flat = X.reshape(-1, X.shape[-1])
        return functional_call(module, state, (flat,)).reshape(*X.shape[:-1], -1)

    if not batch:
        flat, random = X.reshape(-1, X.shape[-1]), drops_out(module) and _TRAINING.get()
        rows = rows_at_once(shared, state, flat, random)
        if rows is None:
            return run(state, X)
        blocks = Rows(_OnRows(shared, tuple(state)), rows, random)
        return evaluated(blocks, flat, tuple(state.values())).reshape(*X.shape[:-1], -1)
    batch = broadcast_shapes(batch, X.shape[:-2])
    each = {k: v.expand(batch + shapes[k]).reshape(-1, *shapes[k]) for k, v in state.items()}
    rows, axis_of_rows = X, None
    if X.ndim > 2:
        rows, axis_of_rows = X.expand(batch + X.shape[-2:]).reshape(-1, *X.shape[-2:]), 0
    several = torch.vmap(run, in_dims=(0, axis_of_rows), randomness="different")
    return several(each, rows).reshape(*batch, X.shape[-2], -1)


def fresh(network: Network | nn.Module, d: int, seed: int) -> dict[str, Tensor]:
    """Return initial weights from another seed, {name of a parameter: value}."""
    if isinstance(network, Network):
        return dict(replace(cast(Any, network), seed=seed).build(d).named_parameters())
    with stream(seed):
        return dict(initialised(copy.deepcopy(network)).named_parameters())


def instances_in(record: Any, kind: type[T]) -> Iterator[T]:
    """Yield the instances of a class among the fields of a record, and of the records in it."""
    if isinstance(record, kind):
        yield record
    elif isinstance(record, tuple | list):
        for part in record:
            yield from instances_in(part, kind)
    elif is_dataclass(record) and not isinstance(record, type):
        for f in fields(record):
            yield from instances_in(getattr(record, f.name), kind)


def modules_in(record: Any) -> Iterator[nn.Module]:
    """Yield the torch modules among the fields of a record, and of the records in it."""
    return instances_in(record, nn.Module)


def drops_out(record: Any) -> bool:
    """Whether a network somewhere in the record has dropout."""
    if getattr(record, "frozen", False):  # such a network is not trained
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
    """Return parameters and buffers by name.

    Whole-number buffers (counters of batches) are left out, as they are not needed to run it.
    """
    buffers = {name: b for name, b in module.named_buffers() if b.is_floating_point()}
    return dict(module.named_parameters()), buffers


class Bounded(nn.Module):
    """x [n, q] -> RADIUS / sqrt(q) tanh(x), the bounded features of a deep kernel.

    Each lies within 2 / sqrt(q) of 0, so that two rows are at most 4 apart, whatever the number of
    features. A network of free scale could undo any lengthscale by growing its weights. Within a
    ball of radius 2, a lengthscale of 1, the centre of the default prior, lies between "all rows
    are alike" and "no two rows are alike". Standardising the features over the current rows would
    make the covariance of two rows depend on the other rows, and the kernel would no longer be a
    function of two points.
    """

    def forward(self, x: Tensor) -> Tensor:
        return RADIUS / math.sqrt(x.shape[-1]) * torch.tanh(x)


class InBlocks(nn.Sequential):
    """Layers that are applied to blocks of rows, except in training.

    The values between two layers of convolution do not fit into the cache for all rows at once,
    which is several times slower.

    Args:
        *layers: The layers in order.
        rows: Rows per block; None for all.
    """

    def __init__(self, *layers: Any, rows: int | None = None) -> None:
        super().__init__(*layers)
        self.rows = rows

    def forward(self, input: Tensor) -> Tensor:
        if self.training or self.rows is None or len(input) <= self.rows:
            return super().forward(input)
        return torch.cat([super(InBlocks, self).forward(block) for block in input.split(self.rows)])


def bounds(bounded: bool) -> list[nn.Module]:
    """Return the layer that bounds features, or no layer."""
    return [Bounded()] if bounded else []


def initialised(module: nn.Module) -> nn.Module:
    """Initialise weights by N(0, gain / fan in) and biases by 0.

    The gain of the last layer is 1, so that few features start where tanh is flat.
    """
    layers = [m for m in module.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    for layer in layers:
        nonlinearity = "linear" if layer is layers[-1] else "relu"
        nn.init.kaiming_normal_(layer.weight, nonlinearity=nonlinearity)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return module
