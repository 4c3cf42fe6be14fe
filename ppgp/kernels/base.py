"""The interface of every kernel, priors plus a pure function of (theta, X1, X2); and the sums and products of kernels.

Shapes: theta holds ``{name: [*batch]}`` (``[*batch, d]`` under ARD), X1 is [n1, d], X2 is [n2, d], and
``kernel(theta, X1, X2)`` is [*batch, n1, n2]: all draws of the hyperparameters at once.
Names: ``+`` and ``*`` flatten and number their children (``0.lengthscale``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add, mul
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import NotApplicable, SettingError
from ..priors import Param, Site, prefixed, site, under, value_of
from .fourier_features import Draw, Path, fourier

Theta = Mapping[str, Tensor]


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

    def check_columns(self, d: int) -> None:
        """Raises SettingError where it is no covariance for inputs of d columns."""
        low, high = self.widths
        if not low <= d <= high:
            wanted = f"at least {low} columns of X" if d < low else f"at most {high:g} columns of X"
            raise SettingError(
                f"{wanted} for {type(self).__name__}", str(d), "choose another kernel, or Subspace(kernel, columns)"
            )

    #: (h of one draw, d, Draw) -> frequencies [samples, L, d] of the kernel over its variance; None: no spectral law is known
    spectrum: ClassVar[Callable[..., Tensor] | None] = None

    def gram(self, h: Theta, X1: Tensor, X2: Tensor | None) -> Tensor:
        raise NotImplementedError

    def variances(self, h: Theta, X: Tensor) -> Tensor:
        raise NotImplementedError

    def sites(self, d: int) -> dict[str, Site | Param]:
        """{name: Site} of the hyperparameters for inputs of d columns; Param for what is optimised rather than inferred."""
        self.check_columns(d)
        return {name: site(f"{type(self).__name__}.{name}", getattr(self, name), positive=True) for name in self.hyper}

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        """Functions drawn from the prior at one theta (no draw axis): X [m, d] -> [samples, m].

        Raises:
            NotApplicable: if this kernel knows no functions that it is the covariance of.
        """
        if self.spectrum is None:
            raise NotApplicable("a kernel with a spectral law", type(self).__name__, "draw the prior exactly: features=None")
        h = self._values(theta, draw.like, 0)
        return fourier(draw, self.spectrum(h, d, draw), h["variance"])

    def seen(self, theta: Theta, *tables: Tensor) -> tuple[Kernel, Theta, list[Tensor]]:
        """The kernel, its theta and the rows that it is about at last: of a deep kernel the inner one and features, made in one pass."""
        return self, theta, list(tables)

    def faults(self, theta: Theta, X: Float[Tensor, "*b n d"]) -> list[str]:
        """Sentences on why this kernel cannot tell the rows of X apart; a network can fail so."""
        return []

    def _values(self, theta: Theta, like: Tensor, axes: int) -> dict[str, Tensor]:
        lift = (...,) + (None,) * axes
        return {name: value_of(theta, name, getattr(self, name), like)[lift] for name in self.hyper}

    def __call__(
        self, theta: Theta, X1: Float[Tensor, "*b n1 d"], X2: Float[Tensor, "*b n2 d"] | None = None
    ) -> Float[Tensor, "*batch n1 n2"]:
        """k(X1, X2), [*batch, n1, n2]; X2 left out means X1 (and then White adds its variance)."""
        self.check_columns(X1.shape[-1])
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
    do = f"call it: {found.__name__}()" if isinstance(found, type) else "for a number write Scale(kernel, 2.0) or Constant(1.0)"
    raise SettingError("a kernel, a member of ppgp.kernels", repr(found), do)


@dataclass(frozen=True)
class _Many(Kernel):
    """Children combined entry by entry; a sum within a sum is flattened, and a product within a product."""

    children: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        flat: list[Kernel] = []
        for child in self.children:
            check_kernel(child)
            flat.extend(child.children if isinstance(child, _Many) and type(child) is type(self) else [child])
        object.__setattr__(self, "children", tuple(flat))

    def sites(self, d: int) -> dict[str, Site | Param]:
        return {k: s for i, child in enumerate(self.children) for k, s in prefixed(str(i), child.sites(d)).items()}

    def faults(self, theta: Theta, X: Tensor) -> list[str]:
        return [sentence for child, part in self.parts(theta) for sentence in child.faults(part, X)]

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
    """k1 * k2 * ...: covariances multiplied. Their variances are only identified as a product: fix all but one."""

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        return reduce(mul, [child(part, X1, X2) for child, part in self.parts(theta)])

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        return reduce(mul, [child.diag(part, X) for child, part in self.parts(theta)])

    def nugget(self, theta: Theta, X: Tensor) -> Tensor | None:
        own = [child.nugget(part, X) for child, part in self.parts(theta)]
        if all(each is None for each in own):
            return None
        whole = [child.diag(part, X) for child, part in self.parts(theta)]
        shared = [diag if each is None else diag - each for diag, each in zip(whole, own, strict=True)]
        return reduce(mul, whole) - reduce(mul, shared)


def constant_variance(h: Theta, X: Tensor) -> Tensor:
    """The diagonal of a kernel that has ``variance`` there: [*batch, n]."""
    return h["variance"].expand(*h["variance"].shape[:-1], X.shape[-2])
