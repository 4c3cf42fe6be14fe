"""The covariance of some rows with themselves, and its slopes in the hyperparameters by formula.

Automatic differentiation keeps a matrix for every operation and passes over each again. Where a
kernel depends on X through |x - x'| / lengthscale alone, a few passes and one matrix product do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add, mul
from typing import Any

import torch
from torch import Tensor

from ..priors import Param, value_of
from .around import Unscaled
from .base import Kernel, Product, Sum, Theta
from .constant import Constant
from .radial import Radial
from .row_distances import RowDistances
from .white import White
from .wrappers import ARD, Multiple, Scale, Subspace

Slopes = dict[str, Tensor]
#: the part of the kernel that has formulas; other kernels are differentiated by torch
WITH_FORMULAS = (ARD, Constant, Multiple, Product, Radial, Scale, Subspace, Sum, Unscaled, White)


@dataclass(frozen=True)
class Gram:
    """A covariance and its slopes.

    Attributes:
        K: The matrix k(X, X), [n, n]. It may share memory with what ``slopes`` reads.
        slopes: (W, spare) -> {hyperparameter: sum_ij W_ij dK_ij / dhyperparameter}, for a symmetric
            W [n, n] with the memory of a row-major matrix. ``spare`` says whether W may be
            overwritten; it is left as it is otherwise.
    """

    K: Tensor
    slopes: Callable[[Tensor, bool], Slopes]


def has_formulas(kernel: Kernel) -> bool:
    """Return whether ``gram`` has formulas for at least the outermost part of a kernel."""
    inner: Any = kernel
    while _of_the_library(inner) and isinstance(
        inner, ARD | Multiple | Scale | Subspace | Unscaled
    ):
        inner = inner.kernel
    return _of_the_library(inner) and isinstance(inner, WITH_FORMULAS)


def _of_the_library(kernel: Kernel) -> bool:
    """Return whether the class of a kernel is one of this package.

    A class derived from one of them may compute another covariance.
    """
    return type(kernel).__module__.startswith(f"{__package__}.")


def gram(
    kernel: Kernel, theta: Theta, rows: RowDistances, lengthscale: Tensor | None = None
) -> Gram:
    """Return the covariance of some rows with themselves, and its slopes.

    Rasmussen & Williams (2006), equations 4.9 to 4.19, and their derivatives.

    Args:
        kernel: Any kernel; a part without formulas is differentiated by torch.
        theta: {hyperparameter: [] or [d]}, without fixed numbers and without leading axes.
        rows: The rows, in double precision.
        lengthscale: The lengthscales [d] of an ARD around the kernel, in place of its own.
    """
    match kernel:
        case _ if not _of_the_library(kernel):
            return _by_autograd(kernel, theta, rows.given)
        case ARD():
            return gram(kernel.kernel, theta, rows, kernel.lengthscales(theta, rows.given))
        case Multiple():
            inner = gram(kernel.kernel, theta, rows, lengthscale)
            return _multiplied(inner, kernel.factor)
        case Scale():
            inner = gram(kernel.kernel, theta, rows, lengthscale)
            factor = value_of(theta, "outputscale", kernel.outputscale, rows.given)
            return _multiplied(inner, factor, "outputscale" in theta)
        case Subspace():
            return gram(kernel.kernel, theta, RowDistances(kernel.chosen(rows.given)), lengthscale)
        case Unscaled():
            moved = RowDistances(kernel.rescaled(rows.given))
            return gram(kernel.kernel, theta, moved, lengthscale)
        case Sum():
            return _summed([gram(child, part, rows) for child, part in kernel.parts(theta)])
        case Product():
            parts = [gram(child, part, rows) for child, part in kernel.parts(theta)]
            return _multiplied_together(parts)
        case _:
            return _leaf(kernel, theta, rows, lengthscale)


def _leaf(kernel: Kernel, theta: Theta, rows: RowDistances, lengthscale: Tensor | None) -> Gram:
    """Return the covariance of a kernel that holds no other kernel with formulas."""
    match kernel:
        case Constant():
            level = value_of(theta, "variance", kernel.variance, rows.given)
            K = level.expand(rows.n, rows.n)
            return Gram(K, lambda W, _: {"variance": W.sum()} if "variance" in theta else {})
        case White():
            level = value_of(theta, "variance", kernel.variance, rows.given)
            K = torch.diag_embed(level.expand(rows.n))
            trace = "variance" in theta
            return Gram(K, lambda W, _: {"variance": W.diagonal().sum()} if trace else {})
        case Radial():
            return _radial(kernel, theta, rows, lengthscale)
        case _:
            return _by_autograd(kernel, theta, rows.given)


def _radial(kernel: Radial, theta: Theta, rows: RowDistances, lengthscale: Tensor | None) -> Gram:
    """Return the covariance of a kernel of one distance."""
    h = {name: value_of(theta, name, getattr(kernel, name), rows.given) for name in kernel.hyper}
    length = h["lengthscale"] if lengthscale is None else lengthscale
    free = "lengthscale" in theta
    squared = rows.squared(length, fixed=not free, times=kernel.times)
    # the slope in a single lengthscale reads it again, and one under fixed lengthscales is a
    # constant that a graph stores
    profile = kernel.profile(h, squared, spare=free and length.ndim > 0)

    def slopes(W: Tensor, spare: bool = False) -> Slopes:
        found = {name: _inner(W, each) for name, each in profile.others.items() if name in theta}
        own = profile.decline is profile.value  # one pass serves both slopes
        if "variance" in theta and not (own and free):
            found["variance"] = _inner(W, profile.value) / h["variance"]
        if free:
            P = W.mul_(profile.decline) if spare else W * profile.decline
            if "variance" in theta and own:
                found["variance"] = P.sum() / h["variance"]
            if length.ndim == 0:
                slope = _inner(P, squared) / (kernel.times * length)
            else:
                slope = rows.weighted_squares(P, length) / length**3
            found["lengthscale"] = profile.factor * slope
        return found

    return Gram(profile.value, slopes)


def _inner(A: Tensor, B: Tensor) -> Tensor:
    """Return sum_ij A_ij B_ij of two matrices in row-major memory."""
    return torch.dot(A.view(-1), B.view(-1))


def _multiplied(inner: Gram, factor: Tensor | float, free: bool = False) -> Gram:
    """Return a multiple of a covariance; ``free``: by a hyperparameter, the outputscale."""

    def slopes(W: Tensor, spare: bool = False) -> Slopes:
        own = {"outputscale": (W * inner.K).sum()} if free else {}
        return {name: factor * slope for name, slope in inner.slopes(W, spare).items()} | own

    return Gram(factor * inner.K, slopes)


def _summed(parts: list[Gram]) -> Gram:
    def slopes(W: Tensor, spare: bool = False) -> Slopes:
        last = len(parts) - 1
        each = enumerate(part.slopes(W, spare and i == last) for i, part in enumerate(parts))
        return {f"{i}.{name}": slope for i, own in each for name, slope in own.items()}

    return Gram(reduce(add, [part.K for part in parts]), slopes)


def _multiplied_together(parts: list[Gram]) -> Gram:
    def slopes(W: Tensor, spare: bool = False) -> Slopes:
        found: Slopes = {}
        for i, part in enumerate(parts):
            others = [other.K for other in parts if other is not part]
            own = part.slopes(reduce(mul, others, W), spare or bool(others))
            found |= {f"{i}.{name}": slope for name, slope in own.items()}
        return found

    return Gram(reduce(mul, [part.K for part in parts]), slopes)


def _by_autograd(kernel: Kernel, theta: Theta, X: Tensor) -> Gram:
    """Return the covariance of a kernel without formulas, which torch differentiates."""
    sites = kernel.sites(X.shape[-1])
    held = {name for name, s in sites.items() if isinstance(s, Param) and not s.trained}
    inputs = {name: value.detach() for name, value in theta.items()}
    free = {name: value.requires_grad_() for name, value in inputs.items() if name not in held}
    with torch.enable_grad():
        K = kernel(inputs, X)

    def slopes(W: Tensor, spare: bool = False) -> Slopes:
        found = {name: torch.zeros_like(value) for name, value in theta.items()}
        if K.requires_grad:
            each = torch.autograd.grad(K, list(free.values()), W, materialize_grads=True)
            found |= dict(zip(free, each, strict=True))
        return found

    return Gram(K.detach(), slopes)
