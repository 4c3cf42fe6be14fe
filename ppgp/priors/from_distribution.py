"""Any distribution of PyTorch or Pyro as a prior."""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions import Distribution, ExpTransform, Transform, biject_to, constraints

from ..display.overrides import computed
from ..errors import SettingError
from .positive_numbers import (
    Exponential,
    Gamma,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    LogNormal,
)
from .real_numbers import Normal, StudentT, Uniform
from .records import Prior, with_plain_numbers

__all__ = ["FromDistribution", "with_plain_fields"]

#: class of torch or Pyro -> (the record of the same family, its parameters in the field order)
RECORDS: dict[str, tuple[type[Prior], tuple[str, ...]]] = {
    "Exponential": (Exponential, ("rate",)),
    "Gamma": (Gamma, ("concentration", "rate")),
    "HalfCauchy": (HalfCauchy, ("scale",)),
    "HalfNormal": (HalfNormal, ("scale",)),
    "InverseGamma": (InverseGamma, ("concentration", "rate")),
    "LogNormal": (LogNormal, ("loc", "scale")),
    "Normal": (Normal, ("loc", "scale")),
    "StudentT": (StudentT, ("df", "loc", "scale")),
    "Uniform": (Uniform, ("low", "high")),
}
LIBRARIES = ("torch", "pyro")


@dataclass(frozen=True, eq=False)
class FromDistribution(Prior):
    """A distribution of PyTorch or Pyro as a prior, such as ``Kumaraswamy(2.0, 3.0)``.

    A distribution in place of a prior becomes one by itself: ``RBF(lengthscale=Weibull(1.0, 2.0))``
    is ``RBF(lengthscale=FromDistribution(Weibull(1.0, 2.0)))``, and one of a family that
    ``ppgp.priors`` has becomes that record. Samplers and optimisers move over its support by
    ``torch.distributions.biject_to``, as in Kucukelbir et al. (2017), section 2.3. A draw is on the
    scale that the model sees. In the units of the data it needs ``fit(standardise=False)``, as its
    equivalent on the standardised scale is not known. Files do not hold it:
    ``load_posterior(path, model=recipe)`` takes it from the recipe.

    Args:
        source: A continuous distribution of one number. Its batch shape is [], or [entries] with
            one distribution per entry along the last axis of the site.

    Raises:
        SettingError: If it is discrete or of vectors, or ``biject_to`` does not know its support.
        UnknownArgument: If an argument has another name.

    Examples:
        >>> import torch
        >>> from torch.distributions import HalfNormal, Weibull
        >>> from ppgp import kernels
        >>> prior = kernels.RBF(lengthscale=Weibull(1.0, 2.0)).lengthscale
        >>> prior
        FromDistribution(Weibull(scale=1.0, concentration=2.0))
        >>> one = torch.ones((), dtype=torch.float64)
        >>> round(float(prior.distribution(one).cdf(one)), 3)  # 1 - exp(-1)
        0.632
        >>> kernels.RBF(lengthscale=HalfNormal(2.0)).lengthscale  # ppgp.priors has the family
        HalfNormal(scale=2.0)
    """

    source: Any

    def __post_init__(self) -> None:
        given = self.source
        do = "for example torch.distributions.Weibull(1.0, 2.0)"
        if not isinstance(given, Distribution):
            raise SettingError("a distribution of PyTorch or Pyro as a prior", repr(given), do)
        if given.event_shape or len(given.batch_shape) > 1:
            shapes = f"batch {list(given.batch_shape)}, event {list(given.event_shape)}"
            got = f"{type(given).__name__} of {shapes}"
            raise SettingError("a distribution of one number as a prior", got, do)
        try:
            support: Any = given.support
            biject_to(support)
        except NotImplementedError:
            got = f"{type(given).__name__}, whose support has none"
            wanted = "a continuous prior whose support biject_to maps to the real line"
            raise SettingError(wanted, got, do) from None
        if support.is_discrete:
            got = f"the discrete {type(given).__name__}"
            raise SettingError("a continuous distribution as a prior", got, do)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FromDistribution):
            return NotImplemented
        if type(self.source) is not type(other.source):
            return self.source is other.source
        parameters = self._parameters()
        if parameters:
            return parameters == other._parameters()
        return _same(vars(self.source), other.source)

    def __hash__(self) -> int:
        return hash(type(self.source))

    def __repr__(self) -> str:
        parameters = ", ".join(f"{name}={v!r}" for name, v in self._parameters().items())
        if parameters:
            return f"FromDistribution({type(self.source).__name__}({parameters}))"
        return f"FromDistribution({self.source!r})"

    def _parameters(self) -> dict[str, Any]:
        """Return the parameters by name, as numbers; {} if they are not numbers."""
        given = self.source
        numbers = {name: _numbers_of(v) for name, v in vars(given).items() if _is_own(given, name)}
        return {} if None in numbers.values() else numbers

    def _positive(self) -> bool:
        support: Any = self.source.support
        while isinstance(support, constraints.independent):
            support = support.base_constraint
        low = getattr(support, "lower_bound", None)
        return low is not None and bool((torch.as_tensor(low) >= 0).all())

    positive = computed(_positive)

    @property
    def entries(self) -> int | None:
        """The number of entries that it has one distribution each for; None: one for all."""
        return int(self.source.batch_shape[0]) if self.source.batch_shape else None

    def distribution(self, like: Tensor) -> TorchDistributionMixin:
        return _for_pyro(_with_numbers_like(self.source, like))


def with_plain_fields(record: Any) -> None:
    """Convert the numbers and the distributions in the fields of a frozen record, in place.

    Numbers become Python's, and a distribution of PyTorch or Pyro becomes a prior.

    Raises:
        SettingError: If a field is a class of this library in place of an instance, or a
            distribution that cannot be a prior.
    """
    with_plain_numbers(record)
    for f in fields(record):
        value = getattr(record, f.name)
        if isinstance(value, Distribution):
            object.__setattr__(record, f.name, _as_prior(value))


def _as_prior(distribution: Distribution) -> Prior:
    """Return the prior of a distribution: the record of its family, or a FromDistribution."""
    kind = type(distribution)
    if kind.__name__ in RECORDS and kind.__module__.partition(".")[0] in LIBRARIES:
        record, names = RECORDS[kind.__name__]
        numbers = [_numbers_of(getattr(distribution, name)) for name in names]
        if None not in numbers:
            return record(*numbers)
    return FromDistribution(distribution)


def _is_own(distribution: Distribution, name: str) -> bool:
    """Return whether an attribute is a parameter that the constructor takes."""
    return name in distribution.arg_constraints and isinstance(vars(distribution)[name], Tensor)


def _numbers_of(parameter: Tensor) -> Any:
    """Return a parameter as one number, or one per entry; None for more axes.

    A number of float32 is the shortest decimal that it stands for: 0.1, not 0.10000000149.
    """
    array = parameter.detach().cpu().numpy()
    if array.ndim > 1:
        return None
    numbers = tuple(float(np.format_float_positional(v)) for v in np.atleast_1d(array))
    return numbers if array.ndim else numbers[0]


def _with_numbers_like(part: Any, like: Tensor) -> Any:
    """Return a copy of a distribution with its tensors of the dtype and device of ``like``."""
    if isinstance(part, Tensor):
        return part.detach().to(like) if part.is_floating_point() else part.to(like.device)
    if isinstance(part, list | tuple):
        return type(part)(_with_numbers_like(one, like) for one in part)
    if isinstance(part, Transform) and isinstance(part, type(ExpTransform().inv)):
        return _with_numbers_like(part.inv, like).inv
    if isinstance(part, Distribution | Transform):
        moved = copy.copy(part)
        for name, value in vars(part).items():
            vars(moved)[name] = None if name == "_inv" else _with_numbers_like(value, like)
        return moved
    return part


def _for_pyro(distribution: Any) -> TorchDistributionMixin:
    """Return the distribution as one that ``pyro.sample`` takes."""
    if isinstance(distribution, TorchDistributionMixin):
        return distribution
    kind = type(distribution)
    own = getattr(dist, kind.__name__, None)
    if not (isinstance(own, type) and issubclass(own, kind)):
        own = type(kind.__name__, (kind, TorchDistributionMixin), {})
    distribution.__class__ = own
    return distribution


def _same(parts: dict[str, Any], other: Any) -> bool:
    """Return whether another distribution has the same parameters."""
    others = vars(other)
    names = parts.keys() | others.keys()
    return all(_same_part(parts.get(name), others.get(name)) for name in names if name[0] != "_")


def _same_part(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and bool((a == b).all())
    if isinstance(a, Distribution) and type(a) is type(b):
        return _same(vars(a), b)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same_part, a, b))
    return bool(a == b)
