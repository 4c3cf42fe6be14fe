"""Exact Gaussian-process regression on a complete grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import mul
from typing import Any

import pyro
import torch
from torch import Tensor

from ...capabilities import (
    JointGaussian,
    LatentFunction,
    LeaveOneOut,
    PosteriorFunctions,
)
from ...data.dataset import Dataset, Scaler
from ...errors import NotApplicable
from ...kernels import RBF, Subspace
from ...kernels.units import Units
from ...numerics.complete_grid import Grid, complete_grid, levels_of
from ...numerics.kronecker import GridMarginal
from ...numerics.least_variance import at_least_rounding
from ...priors import LogNormal, PriorLike, rescaled, under
from ...runtime.memory import must_fit
from ...runtime.result_cache import ResultCache
from ..advice.advice import instead_of
from ..base import full_batch_only
from ..before_fit import medians
from ..exact.gp import GP
from ..means import MeanLike
from ..sites import Theta, draw
from ..units import power
from .grid_factors import Kernels, checked, of_columns, product_of
from .grid_predictions import diagonal_of_inverse, reduction, solved, sums
from .ski_grid import MOST_COLUMNS
from .structured_gp import StructuredGP

MATRICES = 6  # of each axis that the density holds for the gradient
CELLS = 8  # numbers per cell that it holds
SKI_RECIPE = "SKI(kernel)"


@dataclass(frozen=True, repr=False)
class GridGP(StructuredGP, LatentFunction, PosteriorFunctions, LeaveOneOut, JointGaussian):
    """Exact GP regression on a complete grid, with a product of kernels. Saatci (2011), chapter 5.

    The rows, in any order, hold each combination of the levels of the columns once: pixels of an
    image, places by times, subjects by questions. The kernel is the product of one kernel per
    column, or per group of columns, so that the covariance is a Kronecker product. Eigenvectors
    along each axis take the place of the Cholesky factor of ``GP``, whose values these are: for
    n = n_1 ... n_p rows the time is O(n (n_1 + ... + n_p) + n_1^3 + ... + n_p^3) and the memory
    O(n + n_1^2 + ... + n_p^2), with all rows at once. Predictions are anywhere, and fastest at the
    cells of another grid.

    A product of RBF kernels is an RBF kernel with one lengthscale per column. A product of Matern
    kernels is not the isotropic Matern kernel of several columns.

    Args:
        kernels: One kernel, which is that of each column (its variance is that of the product); or
            several, one per column in order. A Subspace reads its own columns, which then vary
            together along one axis: ``(Subspace(Matern(), [0, 1]), Periodic())`` is a kernel of
            places in columns 0 and 1, times one of column 2. The variances of several kernels are
            identified only as a product: fix all but one.
        noise: Prior or number for the noise variance, which cannot be 0 (a number is in the square
            of the units of y).
        mean: Number, prior, ``LinearMean`` or function of X: see ``GP``; None: the mean of the
            training rows.
        standardised: Set by ``fit``: whether the numbers are on the scale of the model.

    Raises:
        SettingError: If there is no kernel, or one is something else; from ``fit``, for a noise of
            0, or another number of kernels than columns.
        DataError: From ``fit``, if the rows do not form a complete grid.
        NotApplicable: From ``fit``, for a kernel with White.
        NotEnoughMemory: From ``fit``, if the covariances of the levels do not fit into memory.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, kernels, models
        >>> place, time = torch.linspace(0, 3, 6), torch.linspace(0, 1, 5)
        >>> X = torch.cartesian_prod(place, time).double()  # each of the 6 x 5 cells once
        >>> data = ppgp.Dataset(X, torch.sin(X[:, 0]) + X[:, 1])
        >>> options = {"how": inference.MAP(), "progress": False, "standardise": False}
        >>> on_grid = models.GridGP(kernels.RBF(1.0, 1.0), noise=0.01, mean=0.0)
        >>> posterior = ppgp.fit(on_grid, data, **options)
        >>> dense = models.GP(kernels.RBF(1.0, 1.0), noise=0.01, mean=0.0)  # the same model
        >>> exact = ppgp.fit(dense, data, **options)
        >>> abs(posterior.log_evidence - exact.log_evidence) < 1e-6
        True
        >>> posterior.predict(X).mean.shape
        torch.Size([30])
    """

    kernels: Kernels = field(default_factory=RBF)
    noise: PriorLike = LogNormal(-2.0, 1.0)
    mean: MeanLike | None = None
    standardised: bool = field(default=False, kw_only=True)
    sampled_rows = 10_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", checked(self.kernels))
        super().__post_init__()

    def factors(self, d: int) -> list[Subspace]:
        """Return the kernel of each axis of the grid, for inputs of d columns."""
        return of_columns(self.kernels, d)

    def dense(self, d: int) -> GP:
        return GP(product_of(self.factors(d)), self.noise, self.mean)

    def work(self, n: int, d: int) -> float:
        return 8.0 * float(n) ** 1.5 + super().work(n, d)

    def prepare(self, data: Dataset) -> GridGP:
        """Return the recipe with the mean of these rows.

        Raises:
            DataError: If the rows do not form a complete grid.
            NotApplicable: For a kernel with White, which two cells of one level would share.
            NotEnoughMemory: If the covariances of the levels do not fit into memory.
        """
        kernel = product_of(self.factors(data.d))
        hyper = under("kernel", medians(self.sites_at(data.d), data.X, 0))
        if kernel.nugget(hyper, data.X[:1]) is not None:
            raise NotApplicable(
                "kernels without White in GridGP", "a White", "leave it to the noise of the model"
            )
        grid = self._grid(data.X)
        size = data.X.element_size() * (MATRICES * sum(k * k for k in grid.shape) + CELLS * data.n)
        shape = " x ".join(map(str, grid.shape))
        do = f"use fewer levels along the longest axis, or {instead_of('GridGP', data.d, data.n)}"
        must_fit(size, f"the covariances of a grid of {shape}", do, data.X.device)
        return replace(self, mean=self.mean_for(data))

    def in_units(self, scaler: Scaler) -> GridGP:
        noise = rescaled(self.noise, power(float(scaler.y_sd), -2), what="noise")
        kernel = product_of(self.factors(len(scaler.x_sd))).in_units(Units.of(scaler))
        mean = self.mean_in_units(scaler)
        kernels: Any = getattr(kernel, "children", kernel)
        return replace(self, kernels=kernels, noise=noise, mean=mean)

    def _grid(self, X: Tensor) -> Grid:
        """Return the grid of X, which is found once for each table."""
        kept: ResultCache = vars(self).setdefault("_kept_grids", ResultCache())

        def compute() -> tuple[Tensor, ...]:
            columns = [factor.columns for factor in self.factors(X.shape[-1])]
            grid = complete_grid(X, columns, _instead(X.shape[1], len(X)))
            return grid.cell, *grid.levels

        cell, *levels = kept.get("grid", compute, {"X": X})
        return Grid(levels, cell)

    def _covariances(self, theta: Theta, grid: Grid, d: int) -> list[Tensor]:
        """Return the covariance of the levels along each axis, for one draw theta."""
        hyper = under("kernel", theta)
        return [
            factor.kernel(under(str(i), hyper), levels)
            for i, (factor, levels) in enumerate(zip(self.factors(d), grid.levels, strict=True))
        ]

    def model(self, X: Tensor, y: Tensor | None = None, *, total: int | None = None) -> Tensor:
        """Run the Pyro program of the model.

        Args:
            X: Inputs [n, d], the cells of a complete grid in any order.
            y: Targets [n]; None: they are drawn.
            total: Number of rows that a mini-batch was taken from; None: these are all the rows.

        Returns:
            The targets [n].

        Raises:
            DataError: If the rows do not form a complete grid.
            NotApplicable: For a mini-batch.
        """
        full_batch_only(self, X, total, "use the full batch, or SVGP, which takes mini-batches")
        theta = draw(self.sites_at(X.shape[-1]), X)
        grid = self._grid(X)
        loc = self.mean_at(theta, X).expand(len(X))
        Ks = self._covariances(theta, grid, X.shape[-1])
        return pyro.sample(
            "y", GridMarginal(loc, Ks, self.value(theta, "noise", X), grid.cell), obs=y
        )

    def training_factor(self, theta: Theta, train: Dataset) -> tuple[Tensor, ...]:
        """Return C^-1 (y - mean) and 1 / lam on the grid, and the eigenvectors of each axis."""
        grid = self._grid(train.X)
        R = grid.on_axes(train.y - self.mean_at(theta, train.X))
        return solved(
            R, self.value(theta, "noise", train.X), self._covariances(theta, grid, train.d)
        )

    def conditional(
        self, theta: Theta, X: Tensor, train: Dataset, factor: tuple[Tensor, ...], joint: bool
    ) -> tuple[Tensor, Tensor]:
        a, W, *Qs = factor
        hyper, grid = under("kernel", theta), self._grid(train.X)
        pairs = zip(self.factors(train.d), grid.levels, strict=True)
        codes, crosses, whitened, priors = [], [], [], []
        for i, (part, levels) in enumerate(pairs):
            own = under(str(i), hyper)
            rows, code = levels_of(X[:, list(part.columns)])
            cross = part.kernel(own, rows, levels)
            codes.append(code)
            crosses.append(cross)
            whitened.append(cross @ Qs[i])
            if joint:
                priors.append(part.kernel(own, rows)[code][:, code])
            else:
                priors.append(part.kernel.diag(own, rows)[code])
        mean = sums(a, crosses, codes) + self.mean_at(theta, X)
        prior = reduce(mul, priors)
        if joint:
            return mean, prior - reduction(W, whitened, codes)
        variance = prior - sums(W, [B.square() for B in whitened], codes)
        return mean, at_least_rounding(variance, prior)

    def leave_one_out(self, theta: Theta, train: Dataset) -> tuple[Tensor, Tensor]:
        grid = self._grid(train.X)
        a, W, *Qs = self.training_factor(theta, train)
        d = diagonal_of_inverse(W, Qs).reshape(-1)[grid.cell]
        return train.y - a.reshape(-1)[grid.cell] / d, 1 / d

    def gaussian(
        self, theta: Theta, X: Tensor, train: Dataset, noise_sd: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the joint Gaussian distribution of y and f at the first draw, as ``GP`` does."""
        return self.dense(train.d).gaussian(theta, X, train)

    def pathwise(
        self,
        theta: Theta,
        train: Dataset,
        samples: int,
        features: int | None,
        generator: torch.Generator,
    ) -> Callable[[Tensor], Tensor]:
        """Draw functions from the posterior, as ``GP`` does: at a cost of O(n^3)."""
        return self.dense(train.d).pathwise(theta, train, samples, features, generator)


def _instead(d: int, n: int) -> str:
    """Return what to fit to n rows of d columns that form no complete grid."""
    others = instead_of("GridGP", d, n)
    if d > MOST_COLUMNS or SKI_RECIPE in others:
        return others
    return f"{others}, or {SKI_RECIPE}, whose grid no row needs to be on"
