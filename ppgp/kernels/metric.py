"""A lengthscale in every direction: a kernel of a learnt linear map of the columns."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from ..display.overrides import computed
from ..errors import SettingError, counted
from ..priors import (
    Normal,
    Param,
    PriorLike,
    Site,
    in_units_of_data,
    per_column,
    plain,
    rescaled,
    site,
    value_of,
)
from .around import Around, proportioned
from .base import Kernel, Theta, mapped
from .fourier_features import Draw, Path
from .units import Factor, Units
from .wrappers import leaf_of_distance, with_one_length


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


@cache
def _below_diagonal(d: int, r: int) -> tuple[tuple[int, int], ...]:
    """Return the places (i, j) of a [d, r] matrix below its diagonal, row by row."""
    return tuple((i, j) for i in range(d) for j in range(min(i, r)))


@cache
def _places(d: int, r: int) -> tuple[int, ...]:
    """Return for each entry of P its place in [0, 1, *shear], row by row."""
    below = {place: k + 2 for k, place in enumerate(_below_diagonal(d, r))}
    return tuple(below.get((i, j), int(i == j)) for i in range(d) for j in range(r))
