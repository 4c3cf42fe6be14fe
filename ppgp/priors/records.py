"""What priors share: frozen records that build Pyro distributions for given data.

A number in place of a prior fixes the value, in the units of the data. A prior is on the scale that
the model sees, unless it is inside ``InUnitsOfData``. A parameter of a prior may be a tuple, with
one number per entry along the last axis of the site. ``Flat`` gives maximum likelihood. Records
compare, print and are stored as plain data; nothing here samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import numpy as np
import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions import Distribution

from ..arguments import named_arguments
from ..errors import SettingError

#: one number for all entries, or one per entry along the last axis
if TYPE_CHECKING:
    Number: TypeAlias = float | tuple[float, ...]
else:  # NumPy's numbers and tensors without axes are accepted too, and become Python's
    Number = float | int | np.generic | np.ndarray | Tensor | tuple


@named_arguments
class Prior:
    """The interface of priors.

    Attributes:
        family: The class of its Pyro distribution, where the fields are the parameters; another
            prior defines ``distribution``.
        positive: Whether all draws are positive.
    """

    family: ClassVar[Callable[..., TorchDistributionMixin]]
    positive: bool = False

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        """Return the Pyro distribution of one value, with the dtype and device of ``like``."""
        parameters = [getattr(self, f.name) for f in fields(cast(Any, self))]
        return type(self).family(*(tensor_of(numbers, like) for numbers in parameters))

    def __post_init__(self) -> None:
        with_plain_numbers(self)
        for f in fields(cast(Any, self)):
            numbers = finite_numbers(getattr(self, f.name))
            free = f.name in ("loc", "low", "high")
            if not numbers or not (free or min(numbers) > 0):
                wanted = "a finite number" if free else "a positive number"
                where = f"{f.name} of {type(self).__name__}"
                raise SettingError(f"{wanted} as {where}", repr(getattr(self, f.name)), "change it")


if TYPE_CHECKING:
    PriorLike: TypeAlias = Prior | float | int | tuple[float, ...]
else:  # a distribution of PyTorch or Pyro is accepted too, and becomes a Prior
    PriorLike = Prior | Number | Distribution


def plain(value: Any) -> Any:
    """Return NumPy's numbers and tensors without axes as Python numbers, in tuples too.

    Any other value is returned as it is.
    """
    if isinstance(value, tuple):
        numbers = tuple(map(plain, value))
        unchanged = all(a is b for a, b in zip(numbers, value, strict=True))
        return value if unchanged else numbers
    if isinstance(value, np.generic | np.ndarray | Tensor) and value.ndim == 0:
        return value.item()
    return value


PACKAGE = __name__.partition(".")[0]


def with_plain_numbers(record: Any) -> None:
    """Convert the numbers in the fields of a frozen record to Python's, in place.

    The record then compares, prints and is stored as if Python's numbers had been given.

    Raises:
        SettingError: If a field is a class of this library in place of an instance.
    """
    for f in fields(record):
        value = getattr(record, f.name)
        if isinstance(value, type) and value.__module__.partition(".")[0] == PACKAGE:
            wanted = f"an instance as {f.name} of {type(record).__name__}"
            raise SettingError(
                wanted, f"the class {value.__name__}", f"call it: {value.__name__}()"
            )
        if isinstance(value, tuple | np.generic | np.ndarray | Tensor):
            object.__setattr__(record, f.name, plain(value))


def entries(value: object) -> tuple[Any, ...]:
    """Return the numbers of a field as a tuple; an empty tuple is returned inside a tuple."""
    return value if isinstance(value, tuple) and value else (value,)


def single(value: Number) -> float:
    """Return the number that holds for all entries.

    Raises:
        SettingError: If there is one number per entry.
    """
    if isinstance(value, tuple):
        got = f"{len(value)}, one per entry"
        raise SettingError("one number for all entries here", got, "use NUTS, or one number")
    return value


def finite_numbers(value: object) -> tuple[float, ...]:
    """Return a finite number, or a tuple of them, as a tuple; () for anything else, bools too."""
    numbers: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
    for v in numbers:
        if not isinstance(v, int | float) or isinstance(v, bool) or not math.isfinite(v):
            return ()
    return numbers


def no_numbers(value: object, what: str) -> SettingError:
    """Return the error for a value that is no finite number, and no tuple of them."""
    do = (
        "write a number such as 2.0, a tuple with one per entry, or a prior such as LogNormal(0, 1)"
    )
    if isinstance(value, type):
        do = f"call it: {value.__name__}(...)"
    elif isinstance(value, list) and finite_numbers(tuple(value)):
        kernel, _, field = what.rpartition(".")
        do = "write a tuple where there is one number per entry, and otherwise one number"
        if kernel and field == "lengthscale":
            do = f"write one number, or ARD({kernel}(lengthscale={tuple(value)!r:.60}))"
    return SettingError(f"a prior or a finite number for {what}", repr(value), do)


def tensor_of(values: Number, like: Tensor) -> Tensor:
    """Return numbers as a tensor [] or [entries], with the dtype and device of ``like``."""
    if isinstance(values, tuple):
        return torch.tensor(values, dtype=like.dtype, device=like.device)
    return torch.full((), values, dtype=like.dtype, device=like.device)
