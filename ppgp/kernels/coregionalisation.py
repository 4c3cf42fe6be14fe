"""The covariance between outputs of several related functions, by a column of their codes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..errors import SettingError
from ..priors import LogNormal, Normal, Param, Prior, PriorLike, Site, rescaled, site, value_of
from .around import Unscaled
from .base import Kernel, OutputColumn, Theta, mapped
from .fourier_features import Draw, Path
from .units import Factor, Units, power


@dataclass(frozen=True)
class Coregionalisation(Kernel):
    """B[i, j] for rows of outputs i and j, where B = W W' + diag(variance) and X holds codes.

    The one column of X [n, 1] holds the codes of the outputs: 0, 1, .., outputs - 1.

    Times a kernel of the other columns it is the intrinsic model of coregionalisation: with
    ``Subspace(Matern(variance=1.0), [0]) * Subspace(Coregionalisation(2), [1])`` the outputs of one
    place have the covariance B, and a missing output of a place is a row that is left out. Bonilla,
    Chai & Williams (2007), section 2; Alvarez, Rosasco & Lawrence (2012), section 4.2.

    The outputs do not share a mean: each has a constant of its own in ``GP`` and in the models
    with a ``mean``, and in the drift of ``Kriging`` and ``Vecchia``, unless a mean or a drift is
    given.

    The sign of a column of W, and a rotation of its columns, do not change B. Fix the variance of
    the other kernel to 1.

    Args:
        outputs: The number of outputs.
        rank: The number of columns of W; 0: independent outputs.
        weight: Prior of W [outputs, rank], or a number that fixes all of it, in the unit of y.
        variance: Prior of the variance [outputs] that an output shares with no other, or a number
            for all outputs, or a tuple of one each, in the unit of y^2.

    Raises:
        SettingError: If ``outputs`` is not a positive whole number, or ``rank`` not a whole number
            of at least 0; if a hyperparameter is neither a prior nor finite numbers, or a variance
            is negative; on use, if X has several columns.
        DataError: On use, if a code is not among 0, 1, .., outputs - 1.

    Examples:
        Two outputs with the correlation 1 / 1.5, of which the first is measured twice:

        >>> import torch
        >>> from ppgp import kernels
        >>> kernel = kernels.Coregionalisation(outputs=2, rank=1, weight=1.0, variance=0.5)
        >>> kernel({}, torch.tensor([[0.0], [1.0], [0.0]]))
        tensor([[1.5000, 1.0000, 1.5000],
                [1.0000, 1.5000, 1.0000],
                [1.5000, 1.0000, 1.5000]])
    """

    outputs: int = 2
    rank: int = 1
    weight: PriorLike = Normal(0.0, 1.0)
    variance: PriorLike = LogNormal(-1.0, 1.0)
    hyper = ("weight", "variance")
    signed = ("weight",)
    dimensions = {"weight": (1, 0)}
    widths = (1, 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("outputs", 1), ("rank", 0)):
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                wanted = f"a whole number of at least {least} for {name} in Coregionalisation"
                raise SettingError(wanted, repr(value), f"use {least + 1}")

    def uncertain_level(self) -> bool:
        return isinstance(self.variance, Prior) or (
            self.rank > 0 and isinstance(self.weight, Prior)
        )

    def output_columns(self) -> Mapping[int, OutputColumn]:
        return {0: OutputColumn(self.outputs)}

    def sites(self, d: int) -> dict[str, Site | Param]:
        self.check_columns(d)
        q, r = self.outputs, self.rank
        own: dict[str, Site | Param] = {}
        own["variance"] = site("variance", self.variance, (q,), positive=True, zero=r > 0)
        if r == 0:
            return own
        weight = site("weight", self.weight, (q, r))
        if not weight.fixed:  # at W = 0 the density has a slope of 0
            start = 0.5 + 0.1 * torch.arange(q * r, dtype=torch.float64).reshape(q, r) / (q * r)
            weight = replace(weight, start=start)
        return {"weight": weight, **own}

    def in_units(self, units: Units) -> Kernel:
        weight = rescaled(self.weight, power(units.y_sd, -1), what="weight")
        variance = rescaled(self.variance, power(units.y_sd, -2), what="variance")
        kernel = replace(self, weight=weight, variance=variance)
        if (units.x_sd, units.x_mean) == ((1.0,), (0.0,)):
            return kernel
        return Unscaled(kernel, units.x_sd, units.x_mean)

    def factors(self, units: Units) -> dict[str, Factor]:
        own = super().factors(units)
        return {name: value for name, value in own.items() if name != "weight" or self.rank}

    def matrix(self, theta: Theta, like: Tensor) -> Tensor:
        """Return B, [*batch, outputs, outputs], with the dtype and the device of ``like``."""
        q, r = self.outputs, self.rank
        variance = value_of(theta, "variance", self.variance, like)
        if variance.ndim == 0:
            variance = variance.expand(q)
        own = torch.diag_embed(variance)
        if r == 0:
            return own
        W = value_of(theta, "weight", self.weight, like)
        if W.ndim < 2:
            W = W.expand(q, r)
        return W @ W.mT + own

    def _outputs(self, X: Tensor) -> Tensor:
        """Return which output each row belongs to, as one-hot rows [*b, n, outputs]."""
        self.check_columns(X.shape[-1])
        code = OutputColumn(self.outputs).codes(X[..., 0])
        every = torch.arange(self.outputs, device=X.device, dtype=X.dtype)
        return (code[..., None] == every).to(X.dtype)

    def __call__(self, theta: Theta, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        one, other = self._outputs(X1), mapped(self._outputs, X2)
        return one @ self.matrix(theta, X1) @ (one if other is None else other).mT

    def diag(self, theta: Theta, X: Tensor) -> Tensor:
        level = self.matrix(theta, X).diagonal(dim1=-2, dim2=-1)
        return (self._outputs(X) @ level[..., None])[..., 0]

    def path(self, theta: Theta, d: int, draw: Draw) -> Path:
        B = self.matrix(theta, draw.like)
        root = torch.linalg.cholesky(B + 1e-12 * B.diagonal().mean() * torch.eye(len(B)).to(B))
        levels = draw.normal(draw.samples, self.outputs) @ root.mT
        return lambda X: levels @ self._outputs(X).mT
