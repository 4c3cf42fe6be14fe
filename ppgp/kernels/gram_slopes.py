"""The covariances of rows, and their slopes in the hyperparameters by formula.

Automatic differentiation keeps a matrix for every operation and passes over each again. Where a
kernel depends on X through |x - x'| / lengthscale alone, a few passes and one matrix product do.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add, mul
from typing import Any

import numpy as np
import torch
from scipy.spatial import KDTree
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ..priors import Param, value_of
from .around import Unscaled
from .base import Kernel, Product, Sum, Theta
from .constant import Constant
from .cosine import Cosine
from .distance import FEW_COLUMNS, NEAR, far_columns
from .periodic import Periodic
from .radial import Radial
from .white import White
from .wrappers import ARD, Metric, Multiple, Scale, Subspace

Slopes = dict[str, Tensor]
#: the part of the kernel that has formulas; other kernels are differentiated by torch
WITH_FORMULAS = (
    ARD, Constant, Metric, Multiple, Product, Radial, Scale, Subspace, Sum, Unscaled, White,
)  # fmt: skip
IN_P = "P"  # the name of the slope in the P of a Metric around a kernel
KEPT_ROWS = 512  # up to which the distances of a table are kept as long as the table
#: a copy and the distances of each tensor of rows that is alive
_KEPT: Any = WeakTensorKeyDictionary()
#: the modules of these classes: one derived from them elsewhere may compute another covariance
OWN = f"{__package__}."
#: lengthscales up to which a column takes part in a matrix product; an exponential kernel of rows
#: that are close in such a column needs more digits than a smooth one
REACH = 1e1
#: kernels of x - x' alone; so are sums and products of them
OF_LAGS = (Constant, Cosine, Periodic, Radial)
FEWEST_ROWS = 64  # from which some lags are much cheaper than a matrix
SHARE_OF_LAGS = 0.125  # of the entries of the matrix, up to which there are few different lags
ROUNDING_OF_TIMES = 1e-12  # of the largest time, by which lags differ that are the same
#: share of pairs that are close in one column, and not equal, from which its rows come in bursts;
#: of a normal distribution it is 0.002
BURSTS = 0.05


@dataclass(frozen=True)
class Gram:
    """A covariance and its slopes.

    Attributes:
        K: The matrix k(X, X), [n, n], or the covariances of pairs, [pairs, sets]. It may share
            memory with what ``slopes`` reads.
        slopes: (W, spare) -> {hyperparameter: sum_ij W_ij dK_ij / dhyperparameter}, for a W of the
            shape of K, symmetric if K is, with the memory of a row-major matrix. ``spare`` says
            whether W may be overwritten; it is left as it is otherwise.
    """

    K: Tensor
    slopes: Callable[[Tensor, bool], Slopes]


def has_formulas(kernel: Kernel) -> bool:
    """Return whether ``gram`` has formulas for at least the outermost part of a kernel."""
    inner: Any = kernel
    while isinstance(inner, ARD | Metric | Multiple | Scale | Subspace | Unscaled):
        if not type(inner).__module__.startswith(OWN):
            return False
        inner = inner.kernel
    return isinstance(inner, WITH_FORMULAS) and type(inner).__module__.startswith(OWN)


def gram(
    kernel: Kernel,
    theta: Theta,
    rows: RowDistances | PairDistances,
    lengthscale: Tensor | None = None,
) -> Gram:
    """Return the covariance of some rows with themselves, or of pairs of rows, and its slopes.

    Rasmussen & Williams (2006), equations 4.9 to 4.19, and their derivatives.

    Args:
        kernel: Any kernel; a part without formulas is differentiated by torch.
        theta: {hyperparameter: [] or [d]}, without fixed numbers and without leading axes.
        rows: The rows or the pairs of rows, in double precision.
        lengthscale: The lengthscales [d] of an ARD around the kernel, in place of its own, or the
            P [d, r] of a Metric around it.
    """
    if isinstance(kernel, Product) and rows.lags is not None and _of_lags(kernel):
        return _by_lags({"": (kernel, theta)}, *rows.lags)
    match kernel:
        case _ if not type(kernel).__module__.startswith(OWN):
            return _by_autograd(kernel, theta, rows)
        case ARD():
            return gram(kernel.kernel, theta, rows, kernel.lengthscales(theta, rows.given()))
        case Metric():
            return _under_metric(kernel, theta, rows)
        case Multiple():
            inner = gram(kernel.kernel, theta, rows, lengthscale)
            return _multiplied(inner, kernel.factor)
        case Scale():
            inner = gram(kernel.kernel, theta, rows, lengthscale)
            factor = value_of(theta, "outputscale", kernel.outputscale, rows.given())
            return _multiplied(inner, factor, "outputscale" in theta)
        case Subspace():
            return gram(kernel.kernel, theta, rows.moved(kernel.chosen), lengthscale)
        case Unscaled():
            return gram(kernel.kernel, theta, rows.moved(kernel.rescaled), lengthscale)
        case Sum():
            each: dict[str, tuple[Kernel, Theta]]
            each = {f"{i}.": own for i, own in enumerate(kernel.parts(theta))}
            found = {}
            if rows.lags is not None:
                of_lags = {i: own for i, own in each.items() if _of_lags(own[0])}
                each = {i: own for i, own in each.items() if i not in of_lags}
                found = {"": _by_lags(of_lags, *rows.lags)} if of_lags else {}
            return _summed(found | {i: gram(*own, rows) for i, own in each.items()})
        case Product():
            parts = [gram(child, part, rows) for child, part in kernel.parts(theta)]
            return _multiplied_together(parts)
        case Constant():
            level = value_of(theta, "variance", kernel.variance, rows.given())
            K = level.expand(rows.shape)
            return Gram(K, lambda W, _: {"variance": W.sum()} if "variance" in theta else {})
        case White():
            level = value_of(theta, "variance", kernel.variance, rows.given())
            free = "variance" in theta
            trace = rows.trace
            return Gram(rows.unit() * level, lambda W, _: {"variance": trace(W)} if free else {})
        case Radial():
            return _radial(kernel, theta, rows, lengthscale)
        case _:
            return _by_autograd(kernel, theta, rows)


def _radial(
    kernel: Radial,
    theta: Theta,
    rows: RowDistances | PairDistances,
    lengthscale: Tensor | None,
) -> Gram:
    """Return the covariance of a kernel of one distance."""
    h = kernel._values(theta, rows.given(), 0)
    length = h["lengthscale"] if lengthscale is None else lengthscale
    free = "lengthscale" in theta or "shear" in theta
    if length.ndim == 2:
        squared = rows.squared_under(length, times=kernel.times)
    else:
        squared = rows.squared(length, fixed=not free, times=kernel.times)
    # the slope in a single lengthscale reads it again, and one under fixed lengthscales is a
    # constant that a graph stores
    profile = kernel.profile(h, squared, spare=free and length.ndim > 0)

    def slopes(W: Tensor, spare: bool = False) -> Slopes:
        # sums of products of entries, as all these matrices are in row-major memory
        others = {name: each for name, each in profile.others.items() if name in theta}
        found = {name: torch.dot(W.view(-1), each.view(-1)) for name, each in others.items()}
        own = profile.decline is profile.value  # one pass serves both slopes
        if "variance" in theta and not (own and free):
            found["variance"] = torch.dot(W.view(-1), profile.value.view(-1)) / h["variance"]
        if free:
            P = W.mul_(profile.decline) if spare else W * profile.decline
            if "variance" in theta and own:
                found["variance"] = P.sum() / h["variance"]
            if length.ndim == 2:
                found[IN_P] = -profile.factor * (rows.weighted_products(P) @ length)
                return found
            if length.ndim == 0:
                slope = torch.dot(P.view(-1), squared.view(-1)) / (kernel.times * length)
            else:
                slope = rows.weighted_squares(P, length) / length**3
            found["lengthscale"] = profile.factor * slope
        return found

    return Gram(profile.value, slopes)


def _under_metric(kernel: Metric, theta: Theta, rows: RowDistances | PairDistances) -> Gram:
    """Return the covariance of a kernel of a learnt linear map of the columns."""
    P = kernel.projection(theta, rows.given())
    inner = gram(kernel.kernel, theta, rows, P)

    def slopes(W: Tensor, spare: bool = False) -> Slopes:
        found = inner.slopes(W, spare)
        slope = found.pop(IN_P, None)
        return found if slope is None else found | kernel.slopes(theta, P, slope)

    return Gram(inner.K, slopes)


def _multiplied(inner: Gram, factor: Tensor | float, free: bool = False) -> Gram:
    """Return a multiple of a covariance; ``free``: by a hyperparameter, the outputscale."""

    def slopes(W: Tensor, spare: bool = False) -> Slopes:
        own = {"outputscale": (W * inner.K).sum()} if free else {}
        return {name: factor * slope for name, slope in inner.slopes(W, spare).items()} | own

    return Gram(factor * inner.K, slopes)


def _summed(parts: dict[str, Gram]) -> Gram:
    """Return the sum of covariances by what the names of their hyperparameters begin with."""

    def slopes(W: Tensor, spare: bool = False) -> Slopes:
        last = list(parts)[-1]
        each = {key: part.slopes(W, spare and key == last) for key, part in parts.items()}
        return {key + name: slope for key, own in each.items() for name, slope in own.items()}

    return Gram(reduce(add, [part.K for part in parts.values()]), slopes)


def _multiplied_together(parts: list[Gram]) -> Gram:
    def slopes(W: Tensor, spare: bool = False) -> Slopes:
        found: Slopes = {}
        for i, part in enumerate(parts):
            others = [other.K for other in parts if other is not part]
            own = part.slopes(reduce(mul, others, W), spare or bool(others))
            found |= {f"{i}.{name}": slope for name, slope in own.items()}
        return found

    return Gram(reduce(mul, [part.K for part in parts]), slopes)


def _by_autograd(kernel: Kernel, theta: Theta, rows: RowDistances | PairDistances) -> Gram:
    """Return the covariance of a kernel without formulas, which torch differentiates."""
    inputs, free = _inputs(kernel, theta, rows.given())
    with torch.enable_grad():
        K = rows.covariance(kernel, inputs)
    return Gram(K.detach(), lambda W, _: _slopes_by_autograd(K, inputs, free, W))


def _inputs(kernel: Kernel, theta: Theta, X: Tensor) -> tuple[Slopes, Slopes]:
    """Return the hyperparameters detached, and those of them in which there are slopes."""
    sites = kernel.sites(X.shape[-1])
    held = {name for name, s in sites.items() if isinstance(s, Param) and not s.trained}
    inputs = {name: value.detach() for name, value in theta.items()}
    free = {name: value.requires_grad_() for name, value in inputs.items() if name not in held}
    return inputs, free


def _slopes_by_autograd(K: Tensor, inputs: Slopes, free: Slopes, weights: Tensor) -> Slopes:
    """Return the slopes of a weighted sum of K, of the shape of the weights; 0 in what is held."""
    found = {name: torch.zeros_like(value) for name, value in inputs.items()}
    if K.requires_grad:
        each = torch.autograd.grad(K, list(free.values()), weights, materialize_grads=True)
        found |= dict(zip(free, each, strict=True))
    return found


def _of_lags(kernel: Any) -> bool:
    """Return whether a kernel is one of x - x' alone, at different rows too."""
    if not type(kernel).__module__.startswith(OWN):
        return False
    if isinstance(kernel, Multiple | Scale):
        return _of_lags(kernel.kernel)
    if isinstance(kernel, Sum | Product):
        return all(_of_lags(child) for child in kernel.children)
    return isinstance(kernel, OF_LAGS)


def _by_lags(parts: dict[str, tuple[Kernel, Theta]], lags: Tensor, places: Tensor) -> Gram:
    """Return the covariance of a sum of kernels of x - x' at rows of few lags, and its slopes.

    Args:
        parts: {what the names of its hyperparameters begin with: (kernel, hyperparameters)}.
        lags: The different distances of two rows, [lags, 1].
        places: That of each pair of rows among them, [n, n].
    """
    inputs: Slopes = {}
    free: Slopes = {}
    each = []
    for key, (kernel, theta) in parts.items():
        own, varied = _inputs(kernel, theta, lags)
        with torch.enable_grad():
            each.append(kernel(own, torch.zeros_like(lags[:1]), lags)[0])
        inputs |= {key + name: value for name, value in own.items()}
        free |= {key + name: value for name, value in varied.items()}
    with torch.enable_grad():
        total = reduce(add, each)

    def slopes(W: Tensor, _: bool = False) -> Slopes:
        zero = torch.zeros_like(lags[:, 0])
        weights = zero.index_add(0, places.view(-1), W.reshape(-1))
        return _slopes_by_autograd(total, inputs, free, weights)

    return Gram(total.detach()[places], slopes)


def distances_of(X: Tensor) -> RowDistances:
    """Return the distances between the rows of X [n, d], which are kept as long as this tensor.

    What depends on the rows alone is computed once for all evaluations of a density. Those of more
    than ``KEPT_ROWS`` rows are not kept.
    """
    plain = type(X) is Tensor and not X.requires_grad and not is_functorch_wrapped_tensor(X)
    of_inference = torch.is_inference_mode_enabled() or X.is_inference()
    if not plain or of_inference or len(X) > KEPT_ROWS:
        return RowDistances(X)
    before, kept = _KEPT.get(X, (None, None))
    if kept is None or not torch.equal(before, X):  # it may be changed in place, by NumPy too
        kept = RowDistances(X, held=False)
        _KEPT[X] = X.clone(), kept
    return kept


class RowDistances:
    """The squared distances between the rows of X, under any lengthscales.

    With up to ``FEW_COLUMNS`` columns every difference is exact to its own rounding. With more, a
    product of matrices gives all pairs at once, and those of nearly equal rows are computed again
    by differences. Where so many rows are nearly equal that their differences would take more
    memory than a matrix, all pairs are computed by differences, one column after the other. So are
    columns in which rows come in bursts, whose lengthscale may be that of a burst, and columns that
    reach over more than ``REACH`` lengthscales. Inside a compiled density the lengthscales are not
    known and the latter stay in the product: squared distances then have an absolute error of about
    1e-16 times the square of the reach in lengthscales.

    Args:
        X: [n, d], in double precision.
        held: Whether X lives as long as this object; the caller keeps it otherwise.

    Attributes:
        given: Returns X.
        X: The rows less their median, [n, d]; a mean would follow an outlier.
    """

    def __init__(self, X: Tensor, held: bool = True) -> None:
        self.n, self.d = X.shape
        self.given: Callable[[], Any] = weakref.ref(X)
        self._held = X if held else None
        self.X = X - X.median(-2, keepdim=True).values
        self.few = self.d <= FEW_COLUMNS
        self._of_columns: dict[tuple[int, ...], RowDistances] = {}

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a covariance."""
        return self.n, self.n

    def moved(self, function: Callable[[Tensor], Tensor]) -> RowDistances:
        """Return the distances between the rows that a function makes of X."""
        return RowDistances(function(self.given()))

    def covariance(self, kernel: Kernel, theta: Theta) -> Tensor:
        """Return k(X, X), [n, n]."""
        return kernel(theta, self.given())

    def unit(self) -> Tensor:
        """Return the covariance of white noise of variance 1."""
        return torch.eye(self.n, dtype=self.X.dtype, device=self.X.device)

    def trace(self, W: Tensor) -> Tensor:
        """Return the sum of the entries of W [n, n] that belong to a row and itself."""
        return W.diagonal().sum()

    @cached_property
    def lags(self) -> tuple[Tensor, Tensor] | None:
        """The different distances of two times, [lags, 1], and that of each pair, [n, n].

        None if there are several columns, few rows, or many distances. Equally spaced times in
        order have n of them, and months in days some 4 n.
        """
        if self.d != 1 or self.n < FEWEST_ROWS or is_functorch_wrapped_tensor(self.X):
            return None
        # NumPy, see near
        x = self.X[:, 0].detach().cpu().numpy()
        reach = ROUNDING_OF_TIMES * np.abs(x).max()
        if (np.abs(x - np.linspace(x[0], x[-1], self.n)) <= reach).all():
            lags = np.abs(x - x[0])
            places = np.abs(np.arange(self.n)[:, None] - np.arange(self.n))
        elif self.n > KEPT_ROWS:
            return None
        else:
            every = np.abs(x[:, None] - x)
            order = np.argsort(every, axis=None)
            steps = np.diff(every.ravel()[order], prepend=0.0)
            numbers = np.cumsum(steps > reach)
            if numbers[-1] >= SHARE_OF_LAGS * self.n**2:
                return None
            places = np.empty(self.n**2, dtype=np.int64)
            places[order] = numbers
            first = np.unique(numbers, return_index=True)[1]
            lags, places = every.ravel()[order][first], places.reshape(self.n, self.n)
        found = torch.from_numpy(lags[:, None]), torch.from_numpy(places)
        return found[0].to(self.X.device), found[1].to(self.X.device)

    @cached_property
    def squares(self) -> Tensor:
        """The squared differences in each column, [d, n n], for few columns."""
        columns = self.X.mT
        return (columns.unsqueeze(-1) - columns.unsqueeze(-2)).square().reshape(self.d, -1)

    @cached_property
    def near(self) -> tuple[Tensor, Tensor] | None:
        """The pairs of nearly equal rows, each in both orders; None if they are too many."""
        # NumPy, as a trace of torch's operations would take these numbers for inputs
        X = self.X.detach().cpu().numpy()
        tree = KDTree(X)
        reach = NEAR * np.sqrt(np.square(X).sum(-1))
        counts = tree.query_ball_point(X, reach, return_length=True)  # a row is near itself
        if 2 * self.d * (counts.sum() - self.n) > self.n**2:
            return None
        rows = np.flatnonzero(counts > 1)
        lists = tree.query_ball_point(X[rows], reach[rows])
        i = np.repeat(rows, counts[rows])
        j = np.concatenate([np.empty(0, dtype=np.int64), *lists]).astype(np.int64)
        i, j = i[i != j], j[i != j]
        i, j = np.divmod(np.unique(np.concatenate([i * self.n + j, j * self.n + i])), self.n)
        return torch.from_numpy(i).to(self.X.device), torch.from_numpy(j).to(self.X.device)

    def squared(self, lengthscale: Tensor, fixed: bool = False, times: float = 1.0) -> Tensor:
        """Return |x - x'|^2 under the lengthscale, [n, n] in row-major memory; 0 on the diagonal.

        Args:
            lengthscale: One number [], or one per column [d].
            fixed: Whether it is the same at every call. The rows are then taken in its units, so
                that rows count as nearly equal where they are so under it.
            times: A number that multiplies the result, which costs no pass over the matrix.
        """
        if self.few:
            weight = lengthscale.pow(-2).expand(self.d)
            return torch.mv((times * self.squares).mT, weight).view(self.n, self.n)
        if lengthscale.ndim and fixed:
            own = RowDistances(self.X / lengthscale)
            return own.squared(lengthscale.new_ones(()), times=times)
        each = lengthscale.expand(self.d)
        wide, others = self._wide_columns(lengthscale)
        if wide:
            first, *rest = wide
            total = self._column(first) * (times / each[first].square())
            for k in rest:
                total.addcdiv_(self._column(k), each[k].square(), value=times)
            if others:
                total += self._only(others).squared(each[others], times=times)
            return total
        if lengthscale.ndim == 0:
            # last, so that a compiled graph computes the part without hyperparameters only once
            return self._by_product(torch.ones_like(self.X[0]), times) / lengthscale.square()
        return self._by_product(lengthscale.pow(-2), times)

    def squared_under(self, P: Tensor, times: float = 1.0) -> Tensor:
        """Return |P'(x - x')|^2, [n, n] in row-major memory; 0 on the diagonal.

        Args:
            P: [d, r].
            times: A number that multiplies the result.
        """
        Z = self.X @ P
        r = P.shape[-1]
        wide = list(range(r))
        if not self._by_differences:
            wide = far_columns(Z, Z, Z.new_ones(()), REACH)
        total = torch.zeros(self.n, self.n, dtype=Z.dtype, device=Z.device)
        others = [k for k in range(r) if k not in wide]
        if others:
            turned, by = Z[:, others], P[:, others]
            norms = times * turned.square().sum(-1, keepdim=True)
            ones = torch.ones_like(norms)
            left = torch.cat([-2.0 * times * turned, ones, norms], -1)
            total = left @ torch.cat([turned, norms, ones], -1).mT
            total.diagonal().zero_()
            if len(self._near_differences):
                near = (self._near_differences @ by).square().sum(-1)
                total.index_put_(self.near, times * near)
        for k in wide:
            total += times * (Z[:, k, None] - Z[None, :, k]).square_()
        return total

    @cached_property
    def _by_differences(self) -> bool:
        """Whether distances under a metric are summed by differences."""
        return self.few or self.near is None or bool(self._in_bursts)

    @cached_property
    def _near_differences(self) -> Tensor:
        """The differences between the rows of each near pair, [pairs, d]."""
        assert self.near is not None
        return self.X[self.near[0]] - self.X[self.near[1]]

    def weighted_products(self, P: Tensor) -> Tensor:
        """Return sum_ij P_ij (x_i - x_j)(x_i - x_j)', [d, d].

        Args:
            P: [n, n], symmetric, in row-major memory. Its diagonal does not matter. With many
                columns it is overwritten.
        """
        if self._by_differences:
            # each product is antisymmetric, so that sums over its rows are those over its columns
            sums = [(P * (self.X[:, k, None] - self.X[None, :, k])).sum(-1) for k in range(self.d)]
            found = 2.0 * self.X.mT @ torch.stack(sums, -1)
            return 0.5 * (found + found.mT)
        P.diagonal().zero_()
        of_near: Tensor | float = 0.0
        if len(self._near_differences):
            of_near = self._near_differences.mT @ (
                P[self.near].unsqueeze(-1) * self._near_differences
            )
            P.index_put_(self.near, P.new_zeros(()))
        sums, rows = (self._columns_and_ones @ P).split([self.d, 1])
        rows = 0.5 * (rows + P.sum(-1))  # see weighted_squares
        columns = self._columns_and_ones[:-1]
        moments = torch.addcmul(sums, columns, rows, value=-1)
        found = -2.0 * moments @ columns.mT
        return 0.5 * (found + found.mT) + of_near

    def _wide_columns(self, lengthscale: Tensor) -> tuple[list[int], list[int]]:
        """Return the columns to sum by differences, and the others."""
        if self.near is None:
            return list(range(self.d)), []
        scaled = self.X / lengthscale
        far = far_columns(scaled, scaled, lengthscale.new_ones(()), REACH)
        wide = [k for k in range(self.d) if k in far or k in self._in_bursts]
        return wide, [k for k in range(self.d) if k not in wide]

    @cached_property
    def _in_bursts(self) -> set[int]:
        """The columns in which many pairs are close beside the reach, and not equal."""
        X = np.sort(self.X.detach().cpu().numpy(), axis=0)
        found = set()
        for k, x in enumerate(X.T):
            reach = NEAR * np.abs(x).max()
            close = np.searchsorted(x, x + reach, "right") - np.searchsorted(x, x, "right")
            if close.sum() > BURSTS * self.n * (self.n - 1) / 2:
                found.add(k)
        return found

    def _only(self, columns: list[int]) -> RowDistances:
        """Return the distances of the rows in some columns."""
        key = tuple(columns)
        if key not in self._of_columns:
            self._of_columns[key] = RowDistances(self.X[:, columns])
        return self._of_columns[key]

    def _column(self, k: int) -> Tensor:
        """Return the squared differences in one column, [n, n]."""
        return (self.X[:, k, None] - self.X[None, :, k]).square_()

    def _by_product(self, weights: Tensor, times: float) -> Tensor:
        """Return times sum_k weights_k (x_ik - x_jk)^2 by one matrix product.

        The products with ``times`` hold constants alone, so a compiled graph stores them.
        """
        norms = torch.mv(times * self.X.square(), weights)
        ones = torch.ones_like(self.X[:, :1])
        left = torch.cat([(-2.0 * times * self.X) * weights, ones, norms.unsqueeze(-1)], -1)
        right = torch.cat([self._columns_and_ones[:-1], norms.unsqueeze(0), ones.mT], 0)
        squared = left @ right
        squared.diagonal().zero_()
        if len(self._near_squares):
            squared.index_put_(self.near, torch.mv(times * self._near_squares, weights))
        return squared

    @cached_property
    def _columns_and_ones(self) -> Tensor:
        """The columns of X as rows, and a row of ones, [d + 1, n]."""
        return torch.cat([self.X.mT, torch.ones_like(self.X[:, :1]).mT], 0)

    @cached_property
    def _near_squares(self) -> Tensor:
        """The squared differences between the rows of each near pair, [pairs, d]."""
        return self._near_differences.square()

    def weighted_squares(self, P: Tensor, lengthscale: Tensor) -> Tensor:
        """Return sum_ij P_ij (x_ik - x_jk)^2 for each column k, [d].

        Args:
            P: [n, n], symmetric, in row-major memory. Its diagonal does not matter. With many
                columns it is overwritten.
            lengthscale: [d], those of P, by which columns are summed by differences.
        """
        if self.few:
            return torch.mv(self.squares, P.view(-1))
        wide, others = self._wide_columns(lengthscale)
        if wide:
            flat = P.view(-1)
            sums = {k: torch.dot(self._column(k).view(-1), flat) for k in wide}
            if others:
                of_others = self._only(others).weighted_squares(P, lengthscale[others])
                sums |= dict(zip(others, of_others, strict=True))
            return torch.stack([sums[k] for k in range(self.d)])
        P.diagonal().zero_()
        of_near: Tensor | float = 0.0
        if len(self._near_squares):
            of_near = self._near_squares.mT @ P[self.near]
            P.index_put_(self.near, P.new_zeros(()))
        # a product with few rows on the left takes half the time of one with few columns on the
        # right
        sums, rows = (self._columns_and_ones @ P).split([self.d, 1])
        # P is symmetric up to the rounding of the product of matrices, which divisions by small
        # distances have enlarged; sums over rows alone would multiply it by squares of X
        rows = 0.5 * (rows + P.sum(-1))
        columns = self._columns_and_ones[:-1]
        moments = torch.addcmul(sums, columns, rows, value=-1)
        return ((-2.0 * columns) * moments).sum(-1) + of_near


class PairDistances:
    """The squared distances of pairs of rows, summed by differences; see ``RowDistances``.

    Args:
        X: [k, sets, d], the k members of each set of rows, in double precision.
        pairs: The first and the second member of each pair, [pairs] each.
    """

    lags = None

    def __init__(self, X: Tensor, pairs: tuple[Tensor, Tensor]) -> None:
        self.X, self.pairs = X, pairs
        self.shape = len(pairs[0]), X.shape[1]

    def given(self) -> Tensor:
        """Return the members as rows, [k sets, d]."""
        return self.X.flatten(0, 1)

    def moved(self, function: Callable[[Tensor], Tensor]) -> PairDistances:
        """Return the distances between the rows that a function makes of X."""
        return PairDistances(function(self.X), self.pairs)

    def covariance(self, kernel: Kernel, theta: Theta) -> Tensor:
        """Return the covariance of each pair, [pairs, sets]."""
        A, B = (self.X.index_select(0, each).flatten(0, 1)[:, None] for each in self.pairs)
        return kernel(theta, A, B).reshape(self.shape)

    def unit(self) -> Tensor:
        """Return the covariance of white noise of variance 1, which two rows do not share."""
        return self.X.new_zeros(self.shape)

    def trace(self, W: Tensor) -> Tensor:
        """Return 0: no pair is a row and itself."""
        return W.new_zeros(())

    def squared(self, lengthscale: Tensor, fixed: bool = False, times: float = 1.0) -> Tensor:
        """Return |x - x'|^2 under the lengthscale, [pairs, sets]; see ``RowDistances.squared``."""
        return self._sum_of_squares(self.X / lengthscale, times)

    def squared_under(self, P: Tensor, times: float = 1.0) -> Tensor:
        """Return |P'(x - x')|^2, [pairs, sets]."""
        return self._sum_of_squares(self.X @ P, times)

    def _sum_of_squares(self, Z: Tensor, times: float) -> Tensor:
        first, *others = Z.unbind(-1)
        total = self._difference(first).square_()
        for column in others:
            difference = self._difference(column)
            total.addcmul_(difference, difference)
        return total if times == 1.0 else total.mul_(times)

    def _difference(self, column: Tensor) -> Tensor:
        """Return the differences of a column [k, sets], [pairs, sets]."""
        column = column.contiguous()
        i, j = self.pairs
        return column.index_select(0, i).sub_(column.index_select(0, j))

    def weighted_squares(self, P: Tensor, lengthscale: Tensor) -> Tensor:
        """Return the sum of P [pairs, sets] times the squared differences of each column, [d]."""
        flat = P.view(-1)
        squares = (self._difference(column).square_() for column in self.X.unbind(-1))
        return torch.stack([torch.dot(flat, each.view(-1)) for each in squares])

    def weighted_products(self, P: Tensor) -> Tensor:
        """Return the sum of P [pairs, sets] times the products of two differences, [d, d]."""
        D = torch.stack([self._difference(column).view(-1) for column in self.X.unbind(-1)])
        return (D * P.view(-1)) @ D.mT
