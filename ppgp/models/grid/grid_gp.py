"""Exact Gaussian-process regression on a complete grid.

Notation as in ``numerics.kronecker``: the covariance of the cells has eigenvectors Q_i along each
axis, and the eigenvalues lam. Products with new rows go over one axis of the grid after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from ...errors import NotApplicable, SettingError, counted
from ...kernels import ARD, RBF, Kernel, Multiple, Product, Scale, Subspace
from ...kernels.base import check_kernel, replaced
from ...kernels.units import Units
from ...numerics.cholesky import at_least_rounding
from ...numerics.complete_grid import Grid, complete_grid, levels_of
from ...priors import LogNormal, PriorLike, rescaled, under
from ...runtime.memory import must_fit
from ...runtime.result_cache import ResultCache
from ..advice.advice import instead_of
from ..base import mini_batch
from ..exact.gp import GP
from ..means import MeanLike
from ..sites import Theta, draw, medians
from ..units import power
from .kronecker import GridMarginal, eigen, outer, rotated
from .ski import MOST_COLUMNS
from .structured_gp import StructuredGP

MATRICES = 6  # of each axis that the density holds for the gradient
CELLS = 8  # numbers per cell that it holds
SKI_RECIPE = "SKI(kernel)"
CELLS_PER_ROW = 4  # of the grid of new rows, up to which that grid is predicted as a whole
CHUNK_BYTES = 64 * 2**20

Kernels = Kernel | tuple[Kernel, ...]


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
        object.__setattr__(self, "kernels", _checked(self.kernels))
        super().__post_init__()

    def factors(self, d: int) -> list[Subspace]:
        """Return the kernel of each axis of the grid, with the columns that it reads.

        One kernel is that of each column, and its variance that of their product. Of several
        kernels, a Subspace reads its own columns, and each other one the next column that no
        Subspace reads.

        Raises:
            SettingError: If the kernels do not read each of the d columns once.
        """
        kernels = self.kernels
        if isinstance(kernels, Kernel) and not isinstance(kernels, Subspace):
            first, rest = kernels, _of_variance_one(kernels)
            return [Subspace(first if k == 0 else rest, (k,)) for k in range(d)]
        given = kernels if isinstance(kernels, tuple) else (kernels,)
        named = [c for kernel in given if isinstance(kernel, Subspace) for c in kernel.columns]
        free = [c for c in range(d) if c not in named]
        alone = [kernel for kernel in given if not isinstance(kernel, Subspace)]
        if sorted(named) != [c for c in range(d) if c in named] or len(alone) != len(free):
            raise SettingError(
                f"kernels of GridGP that read each of {counted(d, 'column')} once",
                f"{counted(len(given), 'kernel')}, of which Subspace reads columns {named}",
                "give one kernel per column, and columns that vary together one Subspace(kernel, "
                "columns)",
            )
        columns = iter(free)
        return [
            kernel if isinstance(kernel, Subspace) else Subspace(kernel, (next(columns),))
            for kernel in given
        ]

    def dense(self, d: int) -> GP:
        return GP(Product(tuple(self.factors(d))), self.noise, self.mean)

    def work(self, n: int, d: int) -> float:
        return 8.0 * float(n) ** 1.5 + super().work(n, d)

    def prepare(self, data: Dataset) -> GridGP:
        """Return the recipe with the mean of these rows.

        Raises:
            DataError: If the rows do not form a complete grid.
            NotApplicable: For a kernel with White, which two cells of one level would share.
            NotEnoughMemory: If the covariances of the levels do not fit into memory.
        """
        kernel = Product(tuple(self.factors(data.d)))
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
        kernel = Product(tuple(self.factors(len(scaler.x_sd)))).in_units(Units.of(scaler))
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
        """Run the Pyro program of the model; see ``Model.model``.

        The rows X [n, d] are the cells of a complete grid, in any order.

        Raises:
            DataError: If the rows do not form a complete grid.
            NotApplicable: For a mini-batch.
        """
        if total is not None and total != len(X):
            raise mini_batch(
                self, X, total, "use the full batch, or SVGP, which takes mini-batches"
            )
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
        pairs = [eigen(K) for K in self._covariances(theta, grid, train.d)]
        Qs = [Q for _, Q in pairs]
        noise = self.value(theta, "noise", train.X)
        W = 1 / (outer([values for values, _ in pairs]) + noise)
        a = rotated(W * rotated(R, [Q.mT for Q in Qs]), Qs)
        return a, W, *Qs

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
        mean = _sums(a, crosses, codes) + self.mean_at(theta, X)
        prior = reduce(mul, priors)
        if joint:
            return mean, prior - _reduction(W, whitened, codes)
        variance = prior - _sums(W, [B.square() for B in whitened], codes)
        return mean, at_least_rounding(variance, prior)

    def leave_one_out(self, theta: Theta, train: Dataset) -> tuple[Tensor, Tensor]:
        grid = self._grid(train.X)
        a, W, *Qs = self.training_factor(theta, train)
        d = rotated(W, [Q.square() for Q in Qs]).reshape(-1)[grid.cell]  # the diagonal of C^-1
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


def _checked(kernels: object) -> Kernels:
    """Return one kernel, or a tuple of kernels.

    Raises:
        SettingError: If it is anything else.
    """
    if isinstance(kernels, list | tuple):
        if not kernels:
            raise SettingError("at least one kernel in GridGP", "none", "for example GridGP(RBF())")
        return tuple(check_kernel(kernel) for kernel in kernels)
    return check_kernel(kernels)


def _of_variance_one(kernel: Kernel) -> Kernel:
    """Return a kernel with its variance fixed to 1, where it has one."""
    if isinstance(kernel, Scale):
        return replace(kernel, outputscale=1.0)
    if isinstance(kernel, ARD | Multiple):
        return replace(kernel, kernel=_of_variance_one(kernel.kernel))
    if "variance" in kernel.hyper:
        return replaced(kernel, variance=1.0)
    return kernel


def _sums(T: Tensor, factors: Sequence[Tensor], codes: Sequence[Tensor]) -> Tensor:
    """Return the sum over all cells of T times one factor per axis, for each new row.

    Args:
        T: [n_1, ..., n_p].
        factors: B_i [k_i, n_i], for the k_i different levels of new rows along each axis.
        codes: The level of each new row along each axis, [m].

    Returns:
        [m]: for row j, the sum over cells of T[a, b, ...] B_1[j, a] B_2[j, b] ...
    """
    m = len(codes[0])
    if math.prod(len(B) for B in factors) <= CELLS_PER_ROW * m:
        return rotated(T, factors)[tuple(codes)]
    first = max(range(T.ndim), key=lambda i: T.shape[i])
    order = [first, *(i for i in range(T.ndim) if i != first)]
    moved = T.permute(order).reshape(T.shape[first], -1)
    width = max(1, CHUNK_BYTES // (moved.shape[1] * T.element_size()))
    parts = []
    for row in range(0, m, width):
        rows = slice(row, row + width)
        part = factors[first][codes[first][rows]] @ moved
        for i in order[1:]:
            part = part.reshape(len(part), T.shape[i], -1)
            part = (factors[i][codes[i][rows]][:, None] @ part)[:, 0]
        parts.append(part[:, 0])
    return torch.cat(parts) if parts else T.new_zeros(0)


def _reduction(W: Tensor, factors: Sequence[Tensor], codes: Sequence[Tensor]) -> Tensor:
    """Return the covariance between new rows that the grid explains, [m, m].

    Args:
        W: 1 / lam, [n_1, ..., n_p].
        factors: B_i Q_i [k_i, n_i] at the different levels of new rows along each axis.
        codes: The level of each new row along each axis, [m].
    """
    m, rest = len(codes[0]), math.prod(W.shape[1:])
    others = torch.ones(m, 1, dtype=W.dtype, device=W.device)
    for B, code in zip(factors[1:], codes[1:], strict=True):
        others = (others[:, :, None] * B[code][:, None]).reshape(m, -1)
    total, width = W.new_zeros(m, m), max(1, CHUNK_BYTES // max(1, m * rest * W.element_size()))
    for a in range(0, W.shape[0], width):
        own = factors[0][codes[0]][:, a : a + width]
        root = W[a : a + width].reshape(-1, rest).sqrt()
        rows = (own[:, :, None] * others[:, None] * root).reshape(m, -1)
        total = torch.addmm(total, rows, rows.mT)
    return total
