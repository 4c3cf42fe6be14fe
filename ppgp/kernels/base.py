"""The interface of every kernel, priors plus a pure function of (theta, X1, X2); and the sums and products of kernels.

Shapes: theta holds ``{name: [*batch]}`` (``[*batch, d]`` under ARD), X1 is [n1, d], X2 is [n2, d], and
``kernel(theta, X1, X2)`` is [*batch, n1, n2]: all draws of the hyperparameters at once.
Names: ``+`` and ``*`` flatten and number their children (``0.lengthscale``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, mul
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import NotApplicable, SettingError, counted
from ..numerics.memory import SMALL, must_fit
from ..priors import (
    Param,
    Prior,
    Site,
    in_units_of_data,
    moved,
    prefixed,
    site,
    tensor_of,
    under,
    value_of,
    with_plain_numbers,
)
from .fourier_features import Draw, Path, fourier
from .units import Factor, Units, power

Theta = Mapping[str, Tensor]
K = TypeVar("K", bound="Kernel")


class Kernel:
    """A covariance function. A new one gives ``hyper``, ``gram`` and ``variances``; the rest follows.

    ``hyper`` names the fields that are hyperparameters, all positive: each a prior, or a number that fixes it.
    ``gram(h, X1, X2)`` is the covariance and ``variances(h, X)`` its diagonal, where ``h[name]`` is [*batch, 1, 1]
    for ``gram`` and [*batch, 1] for ``variances``; X2 is None where both sides are the same rows.
    """

    hyper: ClassVar[tuple[str, ...]] = ()
    #: whether X enters through X / lengthscale alone, so that ARD can give each column its own
    rescales: ClassVar[bool] = False
    #: the fewest and the most columns of X that it is a covariance for
    widths: ClassVar[tuple[int, float]] = (1, math.inf)
    #: hyperparameter -> powers of y and of X in its unit; what is not named has none
    dimensions: ClassVar[Mapping[str, tuple[float, float]]] = {
        "variance": (2, 0),
        "lengthscale": (0, 1),
        "period": (0, 1),
    }
    #: whether the kernel knows where X = 0 is; a stationary one sees differences alone
    about_origin: ClassVar[bool] = True

    def check_columns(self, d: int) -> None:
        """Raises SettingError where it is no covariance for inputs of d columns."""
        low, high = self.widths
        if not low <= d <= high:
            wanted = (
                f"at least {counted(low, 'column')} of X"
                if d < low
                else f"at most {counted(int(high), 'column')} of X"
            )
            raise SettingError(
                f"{wanted} for {type(self).__name__}",
                str(d),
                "choose another kernel, or Subspace(kernel, columns)",
            )

    #: (h of one draw, d, Draw) -> frequencies [samples, L, d] of the kernel over its variance; None: no spectral law is known
    spectrum: ClassVar[Callable[..., Tensor] | None] = None

    def __post_init__(self) -> None:
        """Called first by a ``__post_init__`` of one's own."""
        with_plain_numbers(self)

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        raise NotImplementedError

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        raise NotImplementedError

    @property
    def terms(self) -> int:
        """How many kernels it is made of: each holds matrices of its own while a gradient is taken."""
        return 1

    def sites(self, d: int) -> dict[str, Site | Param]:
        """{name: Site} of the hyperparameters for inputs of d columns; Param for what is optimised rather than inferred."""
        self.check_columns(d)
        return {
            name: site(f"{type(self).__name__}.{name}", getattr(self, name), positive=True)
            for name in self.hyper
        }

    def in_units(self, units: Units) -> Kernel:
        """This kernel on the scale of a model, whose X and y were standardised by ``units``.

        A number, and a prior inside ``InUnitsOfData``, is in the units of the data; any other prior is on the scale of the model.
        Where such a length (period, slope, ...) meets columns of several sds, the kernel reads X in the proportions of the data:
        one length for all columns has no equivalent in columns scaled one by one.
        """
        g = units.middle if self.measured() else 1.0
        own = {}
        for name in self.hyper:
            y, x = self.dimensions.get(name, (0, 0))
            own[name] = moved(getattr(self, name), power(units.y_sd, -y) * power(g, -x), what=name)
        changed = {name: value for name, value in own.items() if value is not getattr(self, name)}
        kernel = replaced(self, **changed) if changed else self
        return proportioned(kernel, units) if self.measured() else kernel

    def measured(self) -> bool:
        """Whether a length (period, slope, angle, ...) is given in the units of the data."""
        return any(
            self.dimensions.get(name, (0, 0))[1] and in_units_of_data(getattr(self, name))
            for name in self.hyper
        )

    def uncertain_level(self) -> bool:
        """Whether a variance has a prior: of the factors of a product the first of these carries the unit of y."""
        return any(
            self.dimensions.get(name, (0, 0))[0] and isinstance(getattr(self, name), Prior)
            for name in self.hyper
        )

    def factors(self, units: Units) -> dict[str, Factor]:
        """{site: what its draws on the scale of a model are multiplied by to be in the units of the data}.

        One factor, or one a column of X (a length in columns of several sds is one length a column); NaN where there is none.
        """
        found = {}
        for name in self.hyper:
            y, x = self.dimensions.get(name, (0, 0))
            found[name] = units.scale(y, x)
        return found

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        """Functions drawn from the prior at one theta (no draw axis): X [m, d] -> [samples, m].

        Raises:
            NotApplicable: if this kernel knows no functions that it is the covariance of.
        """
        if self.spectrum is None:
            raise NotApplicable(
                "a kernel with a spectral law",
                type(self).__name__,
                "draw the prior exactly: features=None",
            )
        h = self._values(theta, draw.like, 0)
        return fourier(draw, self.spectrum(h, d, draw), h["variance"])

    def to_feature_space(self, theta: Theta, *tables: Tensor) -> tuple[Kernel, Theta, list[Tensor]]:
        """The kernel, its theta and the rows that it is about at last: of a deep kernel the inner one and features, made in one pass."""
        return self, theta, list(tables)

    def check_fit(self, theta: Theta, X: Float[Tensor, "*b n d"]) -> list[str]:
        """Sentences on why this kernel cannot tell the rows of X apart; a network can fail so."""
        return []

    def _values(self, theta: Theta, like: Tensor, axes: int) -> dict[str, Tensor]:
        lift = (...,) + (None,) * axes
        return {name: value_of(theta, name, getattr(self, name), like)[lift] for name in self.hyper}

    def __call__(
        self, theta: Theta, X1: Float[Tensor, "*b n1 d"], X2: Float[Tensor, "*b n2 d"] | None = None
    ) -> Float[Tensor, "*batch n1 n2"]:
        """k(X1, X2), [*batch, n1, n2]; X2 left out means X1 (and then White adds its variance).

        Raises:
            NotEnoughMemory: if the matrix does not fit.
        """
        self.check_columns(X1.shape[-1])
        n1, n2 = X1.shape[-2], (X1 if X2 is None else X2).shape[-2]
        size = X1.element_size() * n1 * n2
        if size > SMALL:
            must_fit(
                size,
                f"a kernel matrix of {n1:,} by {n2:,} rows",
                "pass fewer rows at a time",
                X1.device,
            )
        return self.gram(self._values(theta, X1, 2), X1, X2)

    def diag(self, theta: Theta, X: Float[Tensor, "*b n d"]) -> Float[Tensor, "*batch n"]:
        """The diagonal of k(X, X), [*batch, n], without the matrix."""
        return self.variances(self._values(theta, X, 1), X)

    def nugget(self, theta: Theta, X: Float[Tensor, "*b n d"]) -> Float[Tensor, "*batch n"] | None:
        """The part of each variance that a row shares with no other, not even with one at the same place; None where there is none."""
        return None

    def shared(self, theta: Theta, X: Float[Tensor, "*b n d"]) -> Float[Tensor, "*batch n n"]:
        """k(X, X) without the nugget: what inducing variables at X can carry."""
        own = self.nugget(theta, X)
        return self(theta, X) if own is None else self(theta, X) - torch.diag_embed(own)

    def __add__(self, other: Kernel) -> Sum:
        return Sum((self, other))

    def __mul__(self, other: Kernel) -> Product:
        return Product((self, other))

    def __radd__(self, other: object) -> Sum:
        return Sum((check_kernel(other), self))

    def __rmul__(self, other: object) -> Product:
        return Product((check_kernel(other), self))


def check_kernel(found: object) -> Kernel:
    """Raises SettingError where it is none: a number, a class that was not called, a kernel of another library."""
    if isinstance(found, Kernel):
        return found
    do = (
        f"call it: {found.__name__}()"
        if isinstance(found, type)
        else "for a number write Scale(kernel, 2.0) or Constant(1.0)"
    )
    raise SettingError("a kernel, a member of ppgp.kernels", repr(found), do)


@dataclass(frozen=True)
class _Many(Kernel):
    """Children combined entry by entry; a sum within a sum is flattened, and a product within a product."""

    children: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        flat: list[Kernel] = []
        for child in self.children:
            check_kernel(child)
            flat.extend(
                child.children
                if isinstance(child, _Many) and type(child) is type(self)
                else [child]
            )
        object.__setattr__(self, "children", tuple(flat))

    def sites(self, d: int) -> dict[str, Site | Param]:
        return {
            k: s
            for i, child in enumerate(self.children)
            for k, s in prefixed(str(i), child.sites(d)).items()
        }

    def check_fit(self, theta: Theta, X: Tensor) -> list[str]:
        return [
            sentence for child, part in self.parts(theta) for sentence in child.check_fit(part, X)
        ]

    @property
    def terms(self) -> int:
        return sum(child.terms for child in self.children)

    @property
    def about_origin(self) -> bool:  # type: ignore[override]
        return any(child.about_origin for child in self.children)

    def measured(self) -> bool:
        return any(child.measured() for child in self.children)

    def uncertain_level(self) -> bool:
        return any(child.uncertain_level() for child in self.children)

    def units_of_children(self, units: Units) -> list[Units]:
        return [units for _ in self.children]

    def in_units(self, units: Units) -> Kernel:
        pairs = zip(self.children, self.units_of_children(units), strict=True)
        return type(self)(tuple(child.in_units(own) for child, own in pairs))

    def factors(self, units: Units) -> dict[str, Factor]:
        pairs = zip(self.children, self.units_of_children(units), strict=True)
        return {
            f"{i}.{name}": f
            for i, (child, own) in enumerate(pairs)
            for name, f in child.factors(own).items()
        }

    def parts(self, theta: Theta) -> list[tuple[Kernel, dict[str, Tensor]]]:
        """Each child with its part of theta."""
        return [(child, under(str(i), theta)) for i, child in enumerate(self.children)]


@dataclass(frozen=True)
class Sum(_Many):
    """k1 + k2 + ...: independent functions added."""

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        return reduce(add, [child(part, X1, X2) for child, part in self.parts(theta)])

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        paths = [child.path(part, d, draw) for child, part in self.parts(theta)]
        return lambda X: reduce(add, [path(X) for path in paths])

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        return reduce(add, [child.diag(part, X) for child, part in self.parts(theta)])

    def nugget(self, theta: Theta, X: Tensor) -> Tensor | None:
        own = [child.nugget(part, X) for child, part in self.parts(theta)]
        found = [each for each in own if each is not None]
        return reduce(add, found) if found else None


@dataclass(frozen=True)
class Product(_Many):
    """k1 * k2 * ...: covariances multiplied. Their variances are only identified as a product: fix all but one.

    One variance carries the unit y^2, the others have none of it: the first that has a prior, and the first of all where none has.
    """

    def units_of_children(self, units: Units) -> list[Units]:
        carrier = carries([child.uncertain_level() for child in self.children])
        return [units if i == carrier else units.alone() for i in range(len(self.children))]

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        return reduce(mul, [child(part, X1, X2) for child, part in self.parts(theta)])

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        return reduce(mul, [child.diag(part, X) for child, part in self.parts(theta)])

    def nugget(self, theta: Theta, X: Tensor) -> Tensor | None:
        own = [child.nugget(part, X) for child, part in self.parts(theta)]
        if all(each is None for each in own):
            return None
        whole = [child.diag(part, X) for child, part in self.parts(theta)]
        shared = [
            diag if each is None else diag - each for diag, each in zip(whole, own, strict=True)
        ]
        return reduce(mul, whole) - reduce(mul, shared)


class Around(Kernel):
    """What kernels around one other kernel share."""

    kernel: Kernel

    @property
    def terms(self) -> int:
        return self.kernel.terms

    @property
    def about_origin(self) -> bool:  # type: ignore[override]
        return self.kernel.about_origin

    def measured(self) -> bool:
        return self.kernel.measured()

    def uncertain_level(self) -> bool:
        return self.kernel.uncertain_level()

    def in_units(self, units: Units) -> Kernel:
        return replaced(self, kernel=self.kernel.in_units(units))

    def factors(self, units: Units) -> dict[str, Factor]:
        return self.kernel.factors(units)


@dataclass(frozen=True)
class Unscaled(Around):
    """kernel(X * factor + shift): columns standardised one by one, read in the proportions that they have in the data.

    ``fit`` puts it around a kernel whose length, period or angle is given in the units of the data.
    """

    kernel: Kernel
    factor: Factor = 1.0
    shift: Factor = 0.0

    @property
    def widths(self) -> tuple[int, float]:  # type: ignore[override]
        sizes = [len(v) for v in (self.factor, self.shift) if isinstance(v, tuple)]
        return (sizes[0], sizes[0]) if sizes else (1, math.inf)

    def _read(self, X: Tensor) -> Tensor:
        self.check_columns(X.shape[-1])
        return X * tensor_of(self.factor, X) + tensor_of(self.shift, X)

    def sites(self, d: int) -> dict[str, Site | Param]:
        self.check_columns(d)
        return self.kernel.sites(d)

    def factors(self, units: Units) -> dict[str, Factor]:
        return self.kernel.factors(units.divided(self.factor))

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        return self.kernel(theta, self._read(X1), None if X2 is None else self._read(X2))

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        return self.kernel.diag(theta, self._read(X))

    def nugget(self, theta: Theta, X: Tensor) -> Tensor | None:
        return self.kernel.nugget(theta, self._read(X))

    def check_fit(self, theta: Theta, X: Tensor) -> list[str]:
        return self.kernel.check_fit(theta, self._read(X))

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        inner = self.kernel.path(theta, d, replace(draw, like=self._read(draw.like)))
        return lambda X: inner(self._read(X))


def proportioned(kernel: Kernel, units: Units) -> Kernel:
    """The kernel on columns in the proportions of the data, all of them measured by ``units.middle``."""
    g = units.middle
    factor = 1.0 if units.isotropic else tuple(s / g for s in units.x_sd)
    centred = kernel.about_origin and any(units.x_mean)
    shift = tuple(m / g for m in units.x_mean) if centred else 0.0
    return kernel if (factor, shift) == (1.0, 0.0) else Unscaled(kernel, factor, shift)


def carries(uncertain: list[bool]) -> int:
    """Which factor of a product carries the unit of y."""
    return uncertain.index(True) if any(uncertain) else 0


def replaced(kernel: K, /, **changes: object) -> K:
    """The record with other fields."""
    return replace(kernel, **changes)  # type: ignore[type-var]


def constant_variance(h: Theta, X: Tensor) -> Tensor:
    """The diagonal of a kernel that has ``variance`` there: [*batch, n]."""
    return h["variance"].expand(*h["variance"].shape[:-1], X.shape[-2])
