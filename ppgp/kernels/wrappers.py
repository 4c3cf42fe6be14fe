"""Kernels that wrap one kernel: Multiple, Scale, ARD, Metric and Subspace.

They add nothing to the names of sites: ``ARD(RBF())`` has a site ``lengthscale``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..display.overrides import computed
from ..errors import NotApplicable, SettingError, counted
from ..priors import (
    LogNormal,
    Normal,
    Param,
    Prior,
    PriorLike,
    Site,
    finite_numbers,
    in_units_of_data,
    per_column,
    plain,
    refuse_negative,
    rescaled,
    site,
    tensor_of,
    value_of,
)
from .around import Around, Unscaled, proportioned
from .base import Kernel, OutputColumn, Product, Sum, Theta, mapped, replaced, unit_carrier
from .fourier_features import Draw, Path
from .state_space import Markov, StateSpace, require
from .units import Factor, Units, power


@dataclass(frozen=True)
class Multiple(Around, Markov):
    """factor * kernel, with a number that has no unit: ``2.0 * RBF()`` and ``RBF() * 2.0``.

    The variance of the function is ``factor`` times as large, in the data's units and on the
    standardised scale alike. ``Scale(kernel, 2.0)`` is another kernel: its number is a variance, in
    the unit y^2. Rasmussen & Williams (2006), section 4.2.4.

    Args:
        kernel: The kernel to multiply, of X [n, d].
        factor: A finite number above 0.

    Raises:
        SettingError: If the factor is anything else, or ``kernel`` is no kernel.

    Examples:
        Half of the variance of a sum goes to each term:

        >>> import torch
        >>> from ppgp import kernels
        >>> X = torch.tensor([[0.0], [1.0]])
        >>> kernel = 0.5 * kernels.RBF(1.0, 1.0) + 0.5 * kernels.Constant(1.0)
        >>> kernel({}, X)
        tensor([[1.0000, 0.8033],
                [0.8033, 1.0000]])
    """

    kernel: Kernel
    factor: float

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = finite_numbers(self.factor)
        if len(numbers) != 1 or not numbers[0] > 0:
            wanted = "a positive number as factor of a kernel"
            raise SettingError(wanted, repr(self.factor), "change it, or leave the kernel out")
        if isinstance(self.kernel, Multiple):
            object.__setattr__(self, "factor", numbers[0] * self.kernel.factor)
            object.__setattr__(self, "kernel", self.kernel.kernel)

    def sites(self, d: int) -> dict[str, Site | Param]:
        return self.kernel.sites(d)

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        return self.factor * self.kernel(theta, X1, X2)

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        return self.factor * self.kernel.diag(theta, X)

    def nugget(self, theta: Theta, X: Tensor) -> Tensor | None:
        return mapped(lambda variance: self.factor * variance, self.kernel.nugget(theta, X))

    def check_fit(self, theta: Theta, X: Tensor) -> list[str]:
        return self.kernel.check_fit(theta, X)

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        inner = self.kernel.path(theta, d, draw)
        return lambda X: math.sqrt(self.factor) * inner(X)

    def state_space(self, theta: Theta, like: Tensor) -> StateSpace:
        size = torch.as_tensor(self.factor, dtype=like.dtype, device=like.device)
        return require(self.kernel).state_space(theta, like).scaled(lambda axes: size)


Kernel.multiple = Multiple


@dataclass(frozen=True)
class Scale(Around, Markov):
    """outputscale * kernel: one variance for a whole sum or product (a single kernel has its own).

    As in a product, one variance carries the unit y^2: the first that has a prior, or the
    outputscale if none has. Rasmussen & Williams (2006), section 4.2.4.

    Args:
        kernel: The kernel to scale, of X [n, d].
        outputscale: Prior of the factor, or a number that fixes it.

    Raises:
        SettingError: If ``kernel`` is no kernel, or the outputscale a negative number; in a fit, if
            the outputscale is 0 or neither a prior nor a number, or a Scale lies inside another.

    Examples:
        A sum with fixed proportions and one variance, the only free hyperparameter:

        >>> import torch
        >>> from ppgp import kernels
        >>> terms = kernels.RBF(0.7, lengthscale=1.0) + kernels.Constant(0.3)
        >>> kernel = kernels.Scale(terms)
        >>> [name for name, site in kernel.sites(d=1).items() if not site.fixed]
        ['outputscale']
        >>> kernel({"outputscale": torch.tensor(4.0)}, torch.tensor([[0.0], [1.0]]))
        tensor([[4.0000, 2.8983],
                [2.8983, 4.0000]])
    """

    kernel: Kernel
    outputscale: PriorLike = LogNormal(0.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_negative("outputscale", self.outputscale)

    def sites(self, d: int) -> dict[str, Site | Param]:
        inner = self.kernel.sites(d)
        if "outputscale" in inner:
            got = "a Scale in a Scale"
            raise SettingError("one Scale around a kernel", got, "keep the outer one")
        return {"outputscale": site("outputscale", self.outputscale, positive=True), **inner}

    def uncertain_level(self) -> bool:
        return isinstance(self.outputscale, Prior) or self.kernel.uncertain_level()

    def _shared(self, units: Units) -> tuple[Units, Units]:
        """Return the units of the outputscale, and those of the kernel."""
        have_priors = [isinstance(self.outputscale, Prior), self.kernel.uncertain_level()]
        if unit_carrier(have_priors) == 0:
            return units, units.alone()
        return units.alone(), units

    def in_units(self, units: Units) -> Kernel:
        own, inner = self._shared(units)
        outputscale = rescaled(self.outputscale, power(own.y_sd, -2), what="outputscale")
        return replace(self, kernel=self.kernel.in_units(inner), outputscale=outputscale)

    def factors(self, units: Units) -> dict[str, Factor]:
        own, inner = self._shared(units)
        return {"outputscale": own.scale(2, 0), **self.kernel.factors(inner)}

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        return self._value(theta, X1)[..., None, None] * self.kernel(theta, X1, X2)

    def _value(self, theta: Theta, like: Tensor) -> Tensor:
        return value_of(theta, "outputscale", self.outputscale, like)

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        return self._value(theta, X)[..., None] * self.kernel.diag(theta, X)

    def nugget(self, theta: Theta, X: Tensor) -> Tensor | None:
        own = self.kernel.nugget(theta, X)
        return mapped(lambda variance: self._value(theta, X)[..., None] * variance, own)

    def check_fit(self, theta: Theta, X: Tensor) -> list[str]:
        return self.kernel.check_fit(theta, X)

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        size = self._value(theta, draw.like).sqrt()
        inner = self.kernel.path(theta, d, draw)
        return lambda X: size * inner(X)

    def state_space(self, theta: Theta, like: Tensor) -> StateSpace:
        size = self._value(theta, like)
        inner = require(self.kernel).state_space(theta, like)
        return inner.scaled(lambda axes: size[(..., *(None,) * axes)])


@dataclass(frozen=True)
class ARD(Around, Markov):
    """One lengthscale per column: the site ``lengthscale`` is [d] instead of a scalar.

    "Automatic relevance determination", MacKay (1994) and Neal (1996). As the lengthscale of the
    kernel, a number fixes all entries, a tuple of numbers each of them, in the units of the
    columns. The default prior has a median of sqrt(d), see ``priors.Lengthscale``. In sums and
    products it goes around each term: ``ARD(RBF()) + ARD(Matern())``.

    Args:
        kernel: A kernel of |x - x'| / lengthscale, or a Scale around one.

    Raises:
        SettingError: If ``kernel`` is no kernel; on use, if there is not one lengthscale for each
            column of X.
        NotApplicable: If the kernel has no lengthscale that merely rescales the inputs.

    Examples:
        A step of 1 in the second column matters less, as its lengthscale is longer:

        >>> import torch
        >>> from ppgp import kernels
        >>> kernel = kernels.ARD(kernels.RBF(1.0, lengthscale=(1.0, 2.0)))
        >>> kernel({}, torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))[0]
        tensor([1.0000, 0.6065, 0.8825])
        >>> kernels.ARD(kernels.RBF()).sites(d=5)["lengthscale"].shape
        (5,)
    """

    kernel: Kernel

    def __post_init__(self) -> None:
        super().__post_init__()
        leaf_of_distance(self.kernel, "ARD")

    def sites(self, d: int) -> dict[str, Site | Param]:
        inner = with_one_length(self.kernel).sites(d)
        prior = per_column(leaf_of_distance(self.kernel).lengthscale, d)
        own = site("lengthscale", prior, (d,), True)
        return {**inner, "lengthscale": own}

    def in_units(self, units: Units) -> Kernel:
        if not self.measured():
            return super().in_units(units)
        return proportioned(ARD(self.kernel.in_units(units.even())), units)

    def lengthscales(self, theta: Theta, X: Tensor) -> Tensor:
        """Return the lengthscales [*batch, d].

        Raises:
            SettingError: If X has another number of columns.
        """
        given = leaf_of_distance(self.kernel).lengthscale
        lengthscale = value_of(theta, "lengthscale", given, X)
        if lengthscale.ndim == 0:
            lengthscale = lengthscale.expand(X.shape[-1])
        if lengthscale.shape[-1] != X.shape[-1]:
            wanted = f"{counted(lengthscale.shape[-1], 'column')} of X, one per lengthscale"
            raise SettingError(wanted, f"{X.shape[-1]}", "pass the same columns")
        return lengthscale

    def _rescaled(self, theta: Theta, X: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Return theta with a lengthscale of 1, and the lengthscales [*batch, 1, d]."""
        lengthscale = self.lengthscales(theta, X)
        inner = {**theta, "lengthscale": torch.ones_like(lengthscale.select(-1, 0))}
        return inner, lengthscale.unsqueeze(-2)

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        inner, lengthscale = self._rescaled(theta, X1)
        return self.kernel(inner, X1 / lengthscale, mapped(lambda X: X / lengthscale, X2))

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        self.lengthscales(theta, X)  # which checks the number of columns
        # the kernel inside is one of |x - x'| / lengthscale, which is 0 here
        return self.kernel.diag(theta, X)

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        rescaled, lengthscale = self._rescaled(theta, draw.like[:1])
        inner = self.kernel.path(rescaled, d, draw)
        return lambda X: inner(X / lengthscale)

    def state_space(self, theta: Theta, like: Tensor) -> StateSpace:
        given = leaf_of_distance(self.kernel).lengthscale
        lengthscale = value_of(theta, "lengthscale", given, like)
        one = lengthscale if lengthscale.ndim == 0 else lengthscale[..., 0]
        return require(self.kernel).state_space({**theta, "lengthscale": one}, like)


def leaf_of_distance(kernel: Kernel, wrapper: str = "ARD") -> Any:
    """Return the kernel inside all Scale and Multiple, which has a lengthscale.

    Args:
        kernel: The kernel inside an ARD or a Metric.
        wrapper: The name of the latter, for the error message.

    Raises:
        NotApplicable: If it has no lengthscale that merely rescales the inputs.
    """
    leaf: Any = kernel
    while isinstance(leaf, Scale | Multiple):
        leaf = leaf.kernel
    if not leaf.rescales:
        wanted = f"a kernel of |x - x'| / lengthscale inside {wrapper}"
        do = f"put {wrapper} around RBF, Matern, ... itself"
        raise NotApplicable(wanted, repr(kernel), do)
    return leaf


def with_one_length(kernel: Kernel) -> Kernel:
    """Return the kernel inside an ARD or a Metric with lengthscale 1.

    Its own site takes no tuple.
    """
    if isinstance(kernel, Scale | Multiple):
        return replace(kernel, kernel=with_one_length(kernel.kernel))
    return replaced(kernel, lengthscale=1.0)


@dataclass(frozen=True)
class Metric(Around):
    """k(|P'(x - x')|): the covariance of the distance under a full metric P P'.

    ``ARD`` stretches each column; a metric stretches each direction, so that a function of a few
    linear combinations of the columns is learnt as one of few columns. P is known up to a rotation
    alone, as |P'(x - x')| does not change if P is multiplied by one from the right. So P [d, r] is
    lower triangular with a positive diagonal: P_jj = 1 / lengthscale_j, and P_ij = shear_ij P_jj
    for i > j. With all of ``shear`` at 0, its median and the start of a search, it is ``ARD``.
    Vivarelli & Williams (1999); Snelson & Ghahramani (2006), section 3, have r < d.

    The sites are those of the kernel, with ``lengthscale`` [r] and ``shear`` [d (d - 1) / 2], the
    entries below the diagonal of P, each over the diagonal of its column, row by row. With one
    column of X there is no ``shear``.

    Args:
        kernel: A kernel of |x - x'| / lengthscale, or a Scale around one.
        rank: The number r of columns of P; None: d, that of X [n, d]. With r < d the columns of X
            after the first r enter through their shear alone, so that the first r are best those
            that matter.
        shear: Prior of the entries of ``shear``, or numbers that fix them. A number is in the
            units of the data: the step in column j, in its units, that changes the function as
            much as one unit of column i, along direction j.

    Raises:
        SettingError: If ``kernel`` is no kernel, or the rank no whole number of at least 1; on use,
            if the rank is larger than the number of columns of X.
        NotApplicable: If the kernel has no lengthscale that merely rescales the inputs, such as
            ``ARD``, ``Anisotropy`` and ``Sphere``.

    Examples:
        A function of the sum of two columns alone: a step of 1 in one of them is undone by a step
        of -1 in the other.

        >>> import torch
        >>> from ppgp import kernels
        >>> ridge = kernels.Metric(kernels.RBF(1.0, lengthscale=1.0), rank=1, shear=1.0)
        >>> ridge({}, torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, -1.0]]))[0]
        tensor([1.0000, 0.6065, 1.0000])
        >>> {name: site.shape for name, site in kernels.Metric(kernels.RBF()).sites(d=4).items()}
        {'variance': (), 'lengthscale': (4,), 'shear': (6,)}
    """

    kernel: Kernel
    rank: int | None = None
    shear: PriorLike = Normal(0.0, 0.3)

    def __post_init__(self) -> None:
        super().__post_init__()
        leaf_of_distance(self.kernel, "Metric")
        rank = plain(self.rank)
        if rank is not None and (type(rank) is not int or rank < 1):
            do = "leave it out for a metric of all columns"
            raise SettingError("a whole number of at least 1 as rank", repr(self.rank), do)
        object.__setattr__(self, "rank", rank)

    def _several_modes(self) -> bool:
        return self.rank is not None  # few directions of many are found or missed

    several_modes = computed(_several_modes)

    def _widths(self) -> tuple[int, float]:
        return self.rank or 1, math.inf

    widths = computed(_widths)

    def check_columns(self, d: int) -> None:
        if self.rank is not None and self.rank > d:
            wanted = f"at least {counted(self.rank, 'column')} of X for a metric of that rank"
            raise SettingError(wanted, str(d), f"give a rank of at most {d}, or leave it out")

    def sites(self, d: int) -> dict[str, Site | Param]:
        self.check_columns(d)
        r = self.rank or d
        inner = with_one_length(self.kernel).sites(r)
        prior = per_column(leaf_of_distance(self.kernel).lengthscale, d)
        found = {**inner, "lengthscale": site("lengthscale", prior, (r,), True)}
        entries = len(_below_diagonal(d, r))
        if entries:
            found["shear"] = site("shear", self.shear, (entries,))
        return found

    def measured(self) -> bool:
        return in_units_of_data(self.shear) or self.kernel.measured()

    def in_units(self, units: Units) -> Kernel:
        if not self.measured():
            return super().in_units(units)
        kernel = self.kernel.in_units(units.even())
        return proportioned(replace(self, kernel=kernel, shear=rescaled(self.shear)), units)

    def factors(self, units: Units) -> dict[str, Factor]:
        d = len(units.x_sd)
        r = self.rank or d
        found = self.kernel.factors(units)
        if any(math.isnan(s) for s in units.x_sd):
            return {**found, "lengthscale": math.nan, "shear": math.nan}
        ratios = tuple(units.x_sd[j] / units.x_sd[i] for i, j in _below_diagonal(d, r))
        return {**found, "lengthscale": units.x_sd[:r], "shear": ratios}

    def projection(self, theta: Theta, like: Tensor) -> Tensor:
        """Return P [*batch, d, r].

        Args:
            theta: The hyperparameters that no number fixes.
            like: Inputs [n, d].

        Raises:
            SettingError: If X has fewer columns than the rank, or theta is of other columns.
        """
        d = like.shape[-1]
        self.check_columns(d)
        r = self.rank or d
        given = leaf_of_distance(self.kernel).lengthscale
        lengthscale = value_of(theta, "lengthscale", given, like)
        if lengthscale.ndim == 0:
            lengthscale = lengthscale.expand(r)
        if lengthscale.shape[-1] != r:
            wanted = f"{counted(r, 'lengthscale')} for a metric of {counted(r, 'direction')}"
            got = f"{lengthscale.shape[-1]}"
            raise SettingError(wanted, got, "give one number, or one per direction")
        entries = len(_below_diagonal(d, r))
        shear = lengthscale.new_zeros(0)
        if entries:
            shear = value_of(theta, "shear", self.shear, like)
            shear = shear.expand(entries) if shear.ndim == 0 else shear
        if shear.shape[-1] != entries:
            wanted = f"{counted(entries, 'number')} of shear for {counted(d, 'column')}"
            raise SettingError(wanted, f"{shear.shape[-1]}", "pass the same columns")
        known = shear.new_tensor([0.0, 1.0]).expand(*shear.shape[:-1], 2)
        places = torch.tensor(_places(d, r), device=shear.device)
        triangle = torch.cat([known, shear], -1).index_select(-1, places)
        return triangle.unflatten(-1, (d, r)) / lengthscale.unsqueeze(-2)

    def slopes(self, theta: Theta, P: Tensor, slope: Tensor) -> dict[str, Tensor]:
        """Return the derivatives in ``lengthscale`` [r] and ``shear`` of what has those in P.

        Args:
            theta: The hyperparameters that no number fixes, without leading axes.
            P: ``projection(theta, X)``, [d, r].
            slope: The derivative in P, [d, r].
        """
        d, r = P.shape
        found = {}
        if "lengthscale" in theta:
            found["lengthscale"] = -(slope * P).sum(0) * P.diagonal()
        if "shear" in theta:
            below = torch.tensor(_below_diagonal(d, r), device=P.device).unbind(-1)
            found["shear"] = (slope * P.diagonal())[below]
        return found

    def _inside(self, theta: Theta, X: Tensor) -> tuple[Theta, Tensor]:
        """Return the hyperparameters of the kernel inside, and P."""
        P = self.projection(theta, X)
        return {**theta, "lengthscale": torch.ones_like(P[..., 0, 0])}, P

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        inner, P = self._inside(theta, X1)
        return self.kernel(inner, X1 @ P, mapped(lambda X: X @ P, X2))

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        self.check_columns(X.shape[-1])
        # the kernel inside is one of a distance, which is 0 here
        return self.kernel.diag(theta, X)

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        inner, P = self._inside(theta, draw.like[:1])
        own = replace(draw, like=draw.like @ P)
        path = self.kernel.path(inner, P.shape[-1], own)
        return lambda X: path(X @ P)


def maps_of_metrics(kernel: Kernel, theta: Theta, like: Tensor) -> list[Tensor]:
    """Return the matrix P [d, r] of each full metric in a kernel, 0 in columns it does not see.

    Args:
        kernel: The kernel.
        theta: Its hyperparameters, without leading axes.
        like: Inputs [n, d].
    """
    if isinstance(kernel, Metric):
        return [kernel.projection(theta, like)]
    if isinstance(kernel, Scale | Multiple):
        return maps_of_metrics(kernel.kernel, theta, like)
    if isinstance(kernel, Unscaled):
        factor = tensor_of(kernel.factor, like).expand(like.shape[-1])
        found = maps_of_metrics(kernel.kernel, theta, kernel.rescaled(like))
        return [factor[:, None] * P for P in found]
    if isinstance(kernel, Subspace):
        whole = []
        for P in maps_of_metrics(kernel.kernel, theta, kernel.chosen(like)):
            padded = P.new_zeros(like.shape[-1], P.shape[-1])
            padded[list(kernel.columns)] = P
            whole.append(padded)
        return whole
    if isinstance(kernel, Sum | Product):
        parts = kernel.parts(theta)
        return [found for child, own in parts for found in maps_of_metrics(child, own, like)]
    return []


@cache
def _below_diagonal(d: int, r: int) -> tuple[tuple[int, int], ...]:
    """Return the places (i, j) of a [d, r] matrix below its diagonal, row by row."""
    return tuple((i, j) for i in range(d) for j in range(min(i, r)))


@cache
def _places(d: int, r: int) -> tuple[int, ...]:
    """Return for each entry of P its place in [0, 1, *shear], row by row."""
    below = {place: k + 2 for k, place in enumerate(_below_diagonal(d, r))}
    return tuple(below.get((i, j), int(i == j)) for i in range(d) for j in range(r))


@dataclass(frozen=True)
class Subspace(Around, Markov):
    """The kernel on some columns alone: ``Subspace(Periodic(), columns=[3])``.

    The kernel inside sees the columns of X [n, d] that are named, in this order, and its numbers
    are in the units of these columns. A sum or a product of such kernels is a direct sum or a
    tensor product, Rasmussen & Williams (2006), section 4.2.4.

    Args:
        kernel: The kernel on these columns.
        columns: Column numbers, counted from 0.

    Raises:
        SettingError: If ``kernel`` is no kernel; if there are no columns, or they are repeated or
            not whole numbers; on use, if X lacks one of them.

    Examples:
        A step in the first column changes nothing:

        >>> import torch
        >>> from ppgp import kernels
        >>> kernel = kernels.Subspace(kernels.RBF(1.0, 1.0), columns=[1])
        >>> kernel({}, torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))[0]
        tensor([1.0000, 1.0000, 0.6065])
    """

    kernel: Kernel
    columns: Sequence[int]

    def __post_init__(self) -> None:
        super().__post_init__()
        columns = plain(tuple(self.columns)) if isinstance(self.columns, Iterable) else ()
        whole = all(type(c) is int and c >= 0 for c in columns)
        if not columns or not whole or len(set(columns)) < len(columns):
            do = "list each once" if columns and whole else "give numbers such as columns=[0, 2]"
            wanted = "different column numbers, counted from 0, in Subspace"
            raise SettingError(wanted, repr(self.columns), do)
        object.__setattr__(self, "columns", columns)

    def _check(self, d: int) -> None:
        if max(self.columns) >= d:
            wanted = f"X with at least {counted(max(self.columns) + 1, 'column')} for {self!r}"
            raise SettingError(wanted, f"{d}", "name columns that exist")

    def check_places(self, X: Tensor, names: Sequence[str] | None = None) -> None:
        if not self.has_places():
            return
        inner = names and [names[c] for c in self.columns]
        self.kernel.check_places(self.chosen(X), inner)

    def in_units(self, units: Units) -> Kernel:
        self._check(len(units.x_sd))
        return replace(self, kernel=self.kernel.in_units(units.columns(self.columns)))

    def factors(self, units: Units) -> dict[str, Factor]:
        return self.kernel.factors(units.columns(self.columns))

    def sites(self, d: int) -> dict[str, Site | Param]:
        self._check(d)
        return self.kernel.sites(len(self.columns))

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        return self.kernel(theta, self.chosen(X1), mapped(self.chosen, X2))

    def output_columns(self) -> Mapping[int, OutputColumn]:
        return {self.columns[c]: column for c, column in self.kernel.output_columns().items()}

    def waves(self, X: Tensor) -> Mapping[str, Tensor]:
        return self.kernel.waves(self.chosen(X))

    def alike(self, d: int) -> tuple[str, ...]:
        return self.kernel.alike(len(self.columns))

    def chosen(self, X: Tensor) -> Tensor:
        """Return the columns of X that the kernel sees."""
        self._check(X.shape[-1])
        return X[..., list(self.columns)]

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        return self.kernel.diag(theta, self.chosen(X))

    def nugget(self, theta: Theta, X: Tensor) -> Tensor | None:
        return self.kernel.nugget(theta, self.chosen(X))

    def check_fit(self, theta: Theta, X: Tensor) -> list[str]:
        return self.kernel.check_fit(theta, self.chosen(X))

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        own = replace(draw, like=self.chosen(draw.like))
        inner = self.kernel.path(theta, len(self.columns), own)
        return lambda X: inner(self.chosen(X))

    def state_space(self, theta: Theta, like: Tensor) -> StateSpace:
        return require(self.kernel).state_space(theta, like)


def labels_of_terms(kernel: Sum) -> list[str]:
    """Return labels such as ``0 RBF`` and ``1 Linear``, numbered as in the names of the sites."""
    return [f"{i} {type(as_written(child)).__name__}" for i, child in enumerate(kernel.children)]


def roles_of_terms(kernel: Kernel) -> list[str]:
    """Return "trend", "season" or "cycle" for each term of a sum, or for the one kernel."""
    terms = kernel.children if isinstance(kernel, Sum) else (kernel,)
    return [_role_of(term) for term in terms]


def _role_of(term: Kernel) -> str:
    """Return the role of a term of a series.

    A season has a known period, or the shape of ``Periodic``; a cycle is a wave whose period is
    estimated; all else is trend.
    """
    leaves = list(_leaves(term))
    names = {type(leaf).__name__ for leaf in leaves}
    waves: list[Any] = [leaf for leaf in leaves if type(leaf).__name__ == "Cosine"]
    known = any(isinstance(wave.period, int | float) for wave in waves)
    if known or "Periodic" in names:
        return "season"
    return "cycle" if waves or "SpectralMixture" in names else "trend"


def _leaves(kernel: Kernel) -> Iterator[Kernel]:
    """Yield the kernels inside a kernel that hold no others."""
    inner: Any = getattr(kernel, "children", None) or (getattr(kernel, "kernel", None),)
    if not isinstance(inner[0], Kernel):
        yield kernel
        return
    for child in inner:
        yield from _leaves(child)


def as_written(kernel: Kernel) -> Kernel:
    """Return the kernel as the user wrote it."""
    while isinstance(kernel, Unscaled | Multiple):
        kernel = kernel.kernel
    return kernel


def in_words(kernel: Kernel) -> str:
    """Return a kernel in short: ``Constant + Matern(1.5) + Periodic(7) * Matern(1.5)``.

    The numbers are orders and fixed periods.
    """
    kernel = as_written(kernel)
    if isinstance(kernel, Sum):
        return " + ".join(map(in_words, kernel.children))
    if isinstance(kernel, Product):
        words = [
            f"({in_words(child)})" if isinstance(as_written(child), Sum) else in_words(child)
            for child in kernel.children
        ]
        return " * ".join(words)
    numbers = [getattr(kernel, name, None) for name in ("nu", "period")]
    shown = [f"{number:g}" for number in numbers if isinstance(number, int | float)]
    return type(kernel).__name__ + (f"({', '.join(shown)})" if shown else "")
