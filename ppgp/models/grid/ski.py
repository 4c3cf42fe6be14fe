"""Gaussian-process regression by interpolation from a grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyro
import torch
from torch import Tensor

from ...capabilities import LatentFunction, LeaveOneOut
from ...data.dataset import Dataset, Scaler
from ...errors import DataError, NotApplicable, NumericalError, SettingError, counted, listed
from ...kernels import RBF, Deep, Kernel
from ...kernels.base import check_kernel
from ...kernels.units import Units
from ...networks.networks import RADIUS, width
from ...numerics.cholesky import add_diagonal, at_least_rounding, inducing_root, jittered
from ...priors import LogNormal, Param, PriorLike, Site, rescaled, under
from ...runtime.memory import must_fit
from ...runtime.result_cache import ResultCache
from ...runtime.team import ALONE, Team
from ..advice.advice import instead_of
from ..base import broken_network, mini_batch
from ..exact.gp import GP
from ..means import MeanLike
from ..sites import Theta, draw, medians, one_by_one
from ..units import power
from .cubic_interpolation import Axis, cubic_weights, interpolation, nodes_of
from .grid_space import GridSpaceMarginal, projected
from .grid_statistics import GridStatistics, differentiable_statistics, spread, statistics
from .many_nodes import (
    Estimate,
    GridSums,
    ManyNodes,
    ManyNodesMarginal,
    RowSums,
    estimate,
    explained,
    from_nodes,
    row_sums,
)
from .structured_gp import StructuredGP

MATRICES = 16  # of all pairs of nodes that the density and its gradient hold
CHUNK_BYTES = 64 * 2**20
NOT_SOLVED = 1e-6  # share that conjugate gradients leave, from which a fit warns
AT_THE_EDGE = 1e-9  # of a spacing, by which rounding may move a row out of the grid
MOST_COLUMNS = 4
MOST_FEATURES = 2  # of a network
NODES_OF_FEATURES = {1: 64, 2: 32}  # per feature, as the lengthscale of features is near 1
MOST_NODES = 5000  # of dense algebra, whose time grows with their cube
MOST_IN_ALL = 100_000  # of a product kernel
MOST_ALONG = 2000  # in one column, past dense algebra
CHOSEN_NODES = 1024  # the most that are chosen without being asked for
FEW_NODES = 256  # are chosen for any number of rows; more, only up to that number
FEWEST = 6  # nodes of a column
LEFT_OUT = 3e-4  # share of the variance that interpolation may leave out between nodes
NEIGHBOURS = 0.965  # correlation of neighbouring nodes, that of RBF at a quarter lengthscale
FINER = 1.1  # ratio of the numbers of nodes that are tried one after the other
PAIRS = 24  # nodes on either side of the check of a product kernel
SAME = 1e-6  # share of the variance by which a product may differ


@dataclass(frozen=True, repr=False)
class SKI(StructuredGP, LatentFunction, LeaveOneOut):
    """GP regression by cubic interpolation from a grid (KISS-GP). Wilson & Nickisch (2015).

    The model is y ~ N(mean, W K W' + noise I), where K [m, m] is the covariance of m nodes on a
    regular grid and W [n, m] holds the weights of cubic convolution (Keys 1981), 4^d a row. The
    sums W'W, W'y and y'y are computed once (Stanton et al. 2021). After that a density costs O(m^3)
    whatever the number of rows, and is exact for the interpolated kernel: without conjugate
    gradients or random probes. (A mean that depends on X takes O(n 4^d) more.) Predictions have the
    variance of the kernel itself far from the rows. For one to four columns, and functions that
    vary over many spacings.

    Past 5,000 nodes the kernel has to be a product over the columns, as RBF is. The log
    determinant is then estimated from fixed probes, after a preconditioner that is exact where the
    columns are independent, and solves are conjugate gradients. The density remains a function of
    theta. Its standard error is the entry ``log_density_error`` of the stats of a fit, which a
    warning repeats.

    The bias of the evidence grows with the number of rows: each loses about what interpolation
    leaves out of its variance, over twice the noise. A fit warns where the grid is too coarse for
    the fitted kernel, about a quarter of the lengthscale of RBF and a tenth of that of Matern(1.5).

    Args:
        kernel: Any kernel of ``ppgp.kernels``, or a composition. ``Deep(network, kernel)`` with one
            or two features has a grid over the box in which the features of a bounded network lie,
            and the sums are computed at every step: the deep kernel learning of Wilson et al.
            (2016).
        grid: Nodes per column (or feature): one number, or one per column; at most 100,000 in all,
            and 5,000 of features. None: as many as the medians of the priors need, and twice as
            many in one or two columns, up to 1,024.
        noise: Prior or number for the noise variance, which cannot be 0 (a number is in the square
            of the units of y).
        mean: Number, prior, ``LinearMean`` or function of X: see ``GP``; None: the mean of the
            training rows.
        margin: How far the grid reaches beyond the rows on either side, as a share of their range
            in each column. Predictions beyond it are refused.
        seed: Seed of the probes past 5,000 nodes.
        axes: Set by ``prepare``: the nodes of each column on the scale of the model.
        standardised: Set by ``fit``: whether the numbers are on the scale of the model.

    Raises:
        SettingError: If the kernel is something else, for fewer than 6 nodes in a column, or a
            negative margin; from ``fit``, for a noise of 0, or if ``grid`` has not one number per
            column.
        NotApplicable: From ``fit``, for more than four columns, more than 5,000 nodes with a kernel
            that is no product over the columns, a network inside another kernel, or a White whose
            variance differs between rows.
        NotEnoughMemory: From ``fit``, if the covariance of the nodes does not fit into memory.
        DataError: From ``predict``, for rows outside the grid.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, kernels, models
        >>> X = torch.linspace(0, 10, 200, dtype=torch.float64)[:, None]
        >>> data = ppgp.Dataset(X, torch.sin(X[:, 0]))
        >>> fixed = {"kernel": kernels.RBF(1.0, 1.0), "noise": 0.01, "mean": 0.0}
        >>> options = {"how": inference.MAP(), "progress": False, "standardise": False}
        >>> exact = ppgp.fit(models.GP(**fixed), data, **options)
        >>> on_grid = ppgp.fit(models.SKI(grid=64, **fixed), data, **options)
        >>> new = [[2.5], [7.5]]
        >>> bool((on_grid.predict(new).mean - exact.predict(new).mean).abs().max() < 1e-3)
        True
        >>> abs(on_grid.log_evidence - exact.log_evidence) < 1.0
        True
    """

    kernel: Kernel = field(default_factory=RBF)
    grid: int | tuple[int, ...] | None = None
    noise: PriorLike = LogNormal(-2.0, 1.0)
    mean: MeanLike | None = None
    margin: float = 0.05
    seed: int = field(default=0, kw_only=True)
    axes: tuple[tuple[float, float, int], ...] | None = field(
        default=None, repr=False, compare=False, kw_only=True
    )
    standardised: bool = field(default=False, kw_only=True)
    sampled_rows = 0  # a gradient of many nodes is slow, whatever the rows
    sums_over_team = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kernel(self.kernel)
        if isinstance(self.grid, list):
            object.__setattr__(self, "grid", tuple(self.grid))
        _check_grid(self.grid)
        if not self.margin >= 0:
            raise SettingError("a margin of at least 0 in SKI", repr(self.margin), "use 0.05")

    def sites(self, d: int) -> dict[str, Site | Param]:
        if not isinstance(self.kernel, Deep):
            _check_columns(d)
        sites = super().sites(d)
        deep = _features(self.kernel, d)
        if deep is None and any(isinstance(one, Param) for one in sites.values()):
            raise NotApplicable(
                "a kernel of the columns of X in SKI, or Deep around one",
                "a network inside another kernel",
                f"put Deep outside, or {instead_of('SKI', d)}",
            )
        return sites

    def dense(self, d: int) -> GP:
        return GP(self.kernel, self.noise, self.mean)

    def work(self, n: int, d: int) -> float:
        m = CHOSEN_NODES / 2
        if self.axes is not None:
            m = float(torch.tensor([axis[2] for axis in self.axes]).prod())
        if m > MOST_NODES:
            return 1000 * m * 4**d
        return 8 * m**3

    def chunked(self, data: Dataset) -> bool:
        """Return whether the density has a search or sums over a team inside.

        Neither can be compiled.
        """
        many = self.axes is not None and _many(self.axes)
        return many or not data.team.alone

    def prepare(self, data: Dataset) -> SKI:
        """Return the recipe with a grid around these rows, and with their mean.

        Raises:
            NotApplicable: For more than four columns, more than 5,000 nodes, a network, or a White
                whose variance differs between rows.
            NotEnoughMemory: If the covariance of the nodes does not fit into memory.
            SettingError: If ``grid`` has not one number per column.
        """
        self.sites_at(data.d)
        if broken := self.kernel.check_fit({}, data.X):
            raise broken_network(broken[0], data.X)
        hyper = under("kernel", medians(self.sites_at(data.d), data.X, 0))
        nugget = self.kernel.nugget(hyper, data.X)
        if nugget is not None and float(nugget.max() - nugget.min()) > 1e-6 * float(nugget.max()):
            raise NotApplicable(
                "a White that is the same in every row",
                "one multiplied by a kernel that is not",
                "use GP, or White by itself in a sum",
            )
        ready = replace(self, mean=self.mean_for(data))
        if self.axes is not None:
            return ready
        axes = self._axes_around(data.X)
        if _many(axes):
            _require_product(self.kernel, hyper, axes, data.X)
            return replace(ready, axes=tuple(tuple(axis) for axis in axes))
        m = len(nodes_of(axes, data.X[:1]))
        size = data.X.element_size() * MATRICES * m * m
        must_fit(size, f"the covariances of {m:,} nodes", "use a coarser grid", data.X.device)
        return replace(ready, axes=tuple(tuple(axis) for axis in axes))

    def in_units(self, scaler: Scaler) -> SKI:
        noise = rescaled(self.noise, power(float(scaler.y_sd), -2), what="noise")
        kernel = self.kernel.in_units(Units.of(scaler))
        mean = self.mean_in_units(scaler)
        return replace(self, kernel=kernel, noise=noise, mean=mean)

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """Return warnings about a grid that is too coarse, and about an estimated density.

        Both are those at the middle of the draws.
        """
        middle, axes = self._middle(theta, data.d), self._axes(data.X)
        kernel, hyper, F = self._inputs(middle, data.shared.X)
        margin = 0.0 if kernel is not self.kernel else self.margin
        said = _too_coarse(kernel, hyper, F, axes, margin)
        notes = [*super().check_fit(theta, data), *([] if said is None else [said])]
        found = self._estimated(middle, data)
        if found is not None:
            notes.append(
                f"the log density is estimated, with a standard error of {float(found.error):.2g}: "
                f"only up to {MOST_NODES:,} nodes are computed exactly"
            )
            if found.left > NOT_SOLVED:
                notes.append(
                    f"conjugate gradients stopped after {found.steps} steps with a share of "
                    f"{found.left:.1g} of the right-hand side left, which no standard error "
                    f"counts: use a grid of at most {MOST_NODES:,} nodes, or models.SVGP"
                )
        return notes

    def fit_stats(self, theta: Theta, data: Dataset) -> dict[str, float]:
        """Return the standard error of the log density where it is estimated."""
        found = self._estimated(self._middle(theta, data.d), data)
        if found is None:
            return {}
        return {"log_density_error": float(found.error), "lanczos_steps": found.steps}

    def _middle(self, theta: Theta, d: int) -> Theta:
        """Return the median of the draws, {site: [*event]}."""
        one = one_by_one(self.sites_at(d), theta)
        return {name: torch.stack([t[name] for t in one]).median(0).values for name in one[0]}

    def _inputs(self, theta: Theta, X: Tensor) -> tuple[Kernel, Theta, Tensor]:
        """Return the kernel on the grid, its hyperparameters, and what it reads at the rows.

        These are the columns of X, or the features of a deep kernel.
        """
        kernel, hyper, (F,) = self.kernel.to_feature_space(under("kernel", theta), X)
        return kernel, hyper, F

    def _axes_around(self, X: Tensor) -> tuple[Axis, ...]:
        """Return the axes of a grid around rows, before there is a fit."""
        q, counts = _features(self.kernel, X.shape[1]), self.grid
        if q is not None:
            return _axes_of_features(q, counts)
        if counts is None:
            hyper = under("kernel", medians(self.sites_at(X.shape[1]), X, 0))
            counts = _chosen(self.kernel, hyper, X, self.margin)
        if isinstance(counts, int):
            counts = (counts,) * X.shape[1]
        return _axes_around_rows(X, counts, self.margin)

    def _axes(self, X: Tensor) -> tuple[Axis, ...]:
        """Return the axes of the grid: those that ``prepare`` made, or those around X."""
        if self.axes is None:
            return self._axes_around(X)
        return tuple(Axis(*axis) for axis in self.axes)

    def _sums(self, X: Tensor, axes: tuple[Axis, ...], team: Team, y: Tensor) -> GridStatistics:
        """Return the sums over the rows of all ranks, which are computed once for each table."""
        kept: ResultCache = vars(self).setdefault("_kept_sums", ResultCache())

        def compute() -> tuple[Tensor, ...]:
            sums = statistics(X, y, axes).over_ranks(team)
            n = torch.tensor(sums.n)
            return sums.G, sums.Wz, sums.W1, sums.z, sums.zz, sums.origin, n

        key = (axes, team.size)
        G, Wz, W1, total, square, origin, n = kept.get(
            key, compute, {"X": X, "y": y}, not team.alone
        )
        return GridStatistics(G, Wz, W1, total, square, origin, int(n))

    def _sums_of_many(
        self, X: Tensor, axes: tuple[Axis, ...], y: Tensor, team: Team = ALONE
    ) -> RowSums:
        """Return the same sums for many nodes, over the rows of all ranks."""
        kept: ResultCache = vars(self).setdefault("_kept_sums", ResultCache())

        def compute() -> tuple[Tensor, ...]:
            *parts, factors, n = row_sums(X, y, axes).over_ranks(team)
            return *parts, torch.tensor(n), *factors

        starts, columns, values, Wz, W1, total, square, origin, n, *factors = kept.get(
            ("many", axes, team.size), compute, {"X": X, "y": y}, not team.alone
        )
        each = tuple(factors)
        return RowSums(starts, columns, values, Wz, W1, total, square, origin, each, int(n))

    def _all_noise(self, theta: Theta, kernel: Kernel, hyper: Theta, like: Tensor) -> Tensor:
        """Return the noise variance for one draw, with that of White, which no rows share."""
        noise, nugget = self.value(theta, "noise", like), kernel.nugget(hyper, like[:1])
        return noise if nugget is None else noise + nugget[0]

    def _mean_of_rows(self, theta: Theta, X: Tensor) -> Tensor:
        """Return the mean at rows of X, [n], or [] if it is constant, for one draw."""
        mean = self.mean_at(theta, X)
        return mean if self.mean_function.varies else mean[0]

    def _marginal(
        self, theta: Theta, X: Tensor, team: Team = ALONE, draws: bool = False
    ) -> GridSpaceMarginal:
        """Return the distribution of y at X, which can be drawn from if ``draws``."""
        axes = self._axes(X)
        kernel, hyper, F = self._inputs(theta, X)
        K = kernel.shared(hyper, nodes_of(axes, F))
        noise = self._all_noise(theta, kernel, hyper, F)
        sums: Callable[[Tensor], GridStatistics] = partial(self._sums, X, axes, team)
        at, weights = X.new_zeros(len(X), 1, dtype=torch.long), X[:, :1]
        mean = self._mean_of_rows(theta, X)
        if draws or mean.ndim or kernel is not self.kernel:
            at, weights = interpolation(F, axes)
        if kernel is not self.kernel:  # the weights move with the network
            sums = partial(_sums_of_features, at, weights, len(K), team)
        return GridSpaceMarginal(mean, K, noise, at, weights, sums, team)

    def _marginal_of_many(self, theta: Theta, X: Tensor, team: Team = ALONE) -> ManyNodesMarginal:
        """Return the distribution of y at X with an estimated density."""
        axes, hyper, n = self._axes(X), under("kernel", theta), len(X)
        noise = self._all_noise(theta, self.kernel, hyper, X)
        Ls = [inducing_root(K) for K in _covariances(self.kernel, hyper, axes, X)]

        def sums(y: Tensor, mean: Tensor) -> tuple[GridSums, Tensor, Tensor]:
            kept = self._sums_of_many(X, axes, y, team)
            of_rows = kept.grid_sums(self.seed)
            if not mean.ndim:
                return of_rows, *kept.about(mean)
            r = y - mean
            Wr = spread(r, *interpolation(X, axes), len(kept.W1))
            Wr, rr = team.differentiable_sums(Wr, r.square().sum())
            return of_rows, Wr, rr

        def interpolated(f: Tensor) -> Tensor:
            at, weights = interpolation(X, axes)
            return (f[at] * weights).sum(1)

        mean = self._mean_of_rows(theta, X)
        return ManyNodesMarginal(mean, Ls, noise, n, sums, interpolated)

    def _estimated(self, theta: Theta, data: Dataset) -> Estimate | None:
        """Return the estimated density at one draw; None where it is exact."""
        if not _many(self._axes(data.X)):
            return None
        marginal = self._marginal_of_many(theta, data.X, data.team)
        sums, Wr, rr = marginal.sums(data.y, marginal.mean_of_rows)
        return estimate(sums, marginal.noise, Wr, rr, marginal.Ls)

    def model(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        total: int | None = None,
        team: Team = ALONE,
    ) -> Tensor:
        if total is not None and total != len(X):
            raise mini_batch(
                self, X, total, "use the full batch (its rows are summed up once), or SVGP"
            )
        theta = draw(self.sites_at(X.shape[-1]), X)
        if _many(self._axes(X)):
            return pyro.sample("y", self._marginal_of_many(theta, X, team), obs=y)
        return pyro.sample("y", self._marginal(theta, X, team, y is None), obs=y)

    def training_factor(self, theta: Theta, train: Dataset) -> tuple[Tensor, ...]:
        """Return the posterior mean [m] of f at the nodes, its covariance, and that less K.

        For many nodes these are the mean and the roots of the prior covariance.
        """
        if _many(self._axes(train.X)):
            return self._posterior_of_many(theta, train)
        marginal = self._marginal(theta, train.X, train.team)
        L = inducing_root(marginal.K)
        if not bool(torch.isfinite(L).all()):
            raise NumericalError(
                "a positive definite covariance of the nodes",
                "one that is not",
                "use a coarser grid, or a shorter lengthscale",
            )
        sums, Wr, rr = marginal.sums_of_residuals(train.y)
        mean, root = projected(L, sums.G, Wr, rr, sums.n).posterior(marginal.noise)
        R = root @ L.mT
        covariance = R.mT @ R
        return L @ mean, covariance, covariance - jittered(marginal.K)

    def _posterior_of_many(self, theta: Theta, train: Dataset) -> tuple[Tensor, ...]:
        """Return the posterior mean [m] of f at the nodes, and the roots of K along the axes."""
        marginal = self._marginal_of_many(theta, train.X, train.team)
        sums, Wr, _ = marginal.sums(train.y, marginal.mean_of_rows)
        M = ManyNodes.at(sums, marginal.noise, marginal.Ls)
        mean = M.turned(M.solved(M.back(Wr[:, None])), M.Ps)[:, 0] / marginal.noise
        return mean, *marginal.Ls

    def _at_nodes(self, theta: Theta, train: Dataset, factor: tuple[Tensor, ...]) -> ManyNodes:
        """Return the parts of the posterior of f at many nodes."""
        noise = self._all_noise(theta, self.kernel, under("kernel", theta), train.X)
        sums = self._sums_of_many(train.X, self._axes(train.X), train.y, train.team)
        return ManyNodes.at(sums.grid_sums(self.seed), noise, factor[1:])

    def _inside(self, X: Tensor, axes: tuple[Axis, ...]) -> None:
        """Raise DataError for rows outside of the grid."""
        outside = torch.zeros(len(X), dtype=torch.bool, device=X.device)
        for k, axis in enumerate(axes):
            low, high = axis.ends
            slack = AT_THE_EDGE * axis.spacing
            outside |= (X[:, k] < low - slack) | (X[:, k] > high + slack)
        if bool(outside.any()):
            rows = torch.nonzero(outside).flatten().tolist()
            raise DataError(
                f"rows inside the grid of SKI, which reaches {self.margin:g} of the range of the "
                "training rows beyond them",
                f"{listed(rows, 'row')} outside",
                f"leave them out, or fit SKI(kernel, margin={max(4 * self.margin, 0.5):g})",
            )

    def conditional(
        self, theta: Theta, X: Tensor, train: Dataset, factor: tuple[Tensor, ...], joint: bool
    ) -> tuple[Tensor, Tensor]:
        nodes_mean, axes = factor[0], self._axes(train.X)
        kernel, hyper, F = self._inputs(theta, X)
        self._inside(F, axes)
        at, weights = interpolation(F, axes)
        mean = (nodes_mean[at] * weights).sum(1) + self.mean_at(theta, X)
        M = self._at_nodes(theta, train, factor) if _many(axes) else None
        if M is not None:
            before, after = explained(M, at, weights)
        else:
            after, change = (_squares(part, at, weights) for part in factor[1:])
            before = after - change
        prior = kernel.diag(hyper, F)
        left_out = (prior - before).clamp_min(0.0)
        if not joint:
            return mean, at_least_rounding(after + left_out, prior)
        if M is not None:
            R = from_nodes(M, at, weights)
            covariance = R.mT @ M.solved(R)
        else:
            covariance = _rows_of(_rows_of(factor[1], at, weights).mT, at, weights)
        # what interpolation leaves out counts as independent, so that no variance is negative
        return mean, add_diagonal(0.5 * (covariance + covariance.mT), left_out)

    def leave_one_out(self, theta: Theta, train: Dataset) -> tuple[Tensor, Tensor]:
        """Return the moments of each y_i given the others.

        Each variance includes the part of k_ii that interpolation leaves out, as in ``predict``.
        """
        factor, axes = self.training_factor(theta, train), self._axes(train.X)
        kernel, hyper, F = self._inputs(theta, train.X)
        noise = self._all_noise(theta, kernel, hyper, F)
        at, weights = interpolation(F, axes)
        f = (factor[0][at] * weights).sum(1) + self.mean_at(theta, train.X)
        if _many(axes):
            before, after = explained(self._at_nodes(theta, train, factor), at, weights)
        else:
            after, change = (_squares(part, at, weights) for part in factor[1:])
            before = after - change
        # a variance given other rows is at most that without them
        d = torch.maximum((1 - after / noise) / noise, 1 / (before + noise))
        smooth, nugget = kernel.diag(hyper, F), kernel.nugget(hyper, F)
        if nugget is not None:
            smooth = smooth - nugget
        left_out = (smooth - before).clamp_min(0.0)
        return train.y - (train.y - f) / (noise * d), 1 / d + left_out


def _sums_of_features(
    at: Tensor, weights: Tensor, nodes: int, team: Team, y: Tensor
) -> GridStatistics:
    """Return the sums over the rows of all ranks, as functions of the weights."""
    return differentiable_statistics(at, weights, y, nodes).over_ranks(team)


def _rows_of(M: Tensor, at: Tensor, weights: Tensor) -> Tensor:
    """Return W M [n, k] for M [m, k]."""
    return torch.nn.functional.embedding_bag(
        at, M.contiguous(), per_sample_weights=weights, mode="sum"
    )


def _squares(M: Tensor, at: Tensor, weights: Tensor) -> Tensor:
    """Return the diagonal of W M W' [n], in chunks of rows."""
    width = max(1, CHUNK_BYTES // (len(M) * M.element_size()))
    parts = []
    for row in range(0, len(at), width):
        own, w = at[row : row + width], weights[row : row + width]
        parts.append((_rows_of(M, own, w).gather(1, own) * w).sum(1))
    return torch.cat(parts) if parts else weights.new_zeros(0)


def _check_grid(grid: object) -> None:
    """Check the option ``grid``.

    Raises:
        SettingError: If it is neither None nor one or several numbers of nodes.
    """
    if grid is None:
        return
    given = grid if isinstance(grid, tuple) else (grid,)
    whole = [k for k in given if isinstance(k, int) and not isinstance(k, bool)]
    if not whole or len(whole) < len(given) or min(whole) < FEWEST:
        got, do = repr(grid), "for example grid=32 or grid=(64, 32)"
        if any(hasattr(k, "shape") for k in given):
            got, do = "arrays", f"pass their lengths, {do}: the nodes are evenly spaced"
        raise SettingError(
            f"grid=None, or whole numbers of nodes from {FEWEST} on, one or one per column", got, do
        )


def _check_columns(d: int) -> None:
    """Raise NotApplicable for more columns than a grid suits."""
    if d > MOST_COLUMNS:
        raise NotApplicable(
            f"at most {MOST_COLUMNS} columns of X for SKI, as the nodes of a grid multiply",
            str(d),
            instead_of("SKI", d),
        )


def _features(kernel: Kernel, d: int) -> int | None:
    """Return the number of features of a deep kernel; None for a kernel of the columns themselves.

    Raises:
        NotApplicable: For more than two features, or features of a network that are not bounded.
    """
    if not isinstance(kernel, Deep):
        return None
    q = width(kernel.network, d)
    if q > MOST_FEATURES or not getattr(kernel.network, "bounded", False):
        unbounded = "a network whose features are not bounded"
        raise NotApplicable(
            f"at most {MOST_FEATURES} bounded features of a network in SKI",
            unbounded if q <= MOST_FEATURES else f"{q} features",
            f"use MLP(hidden, out=2), or {instead_of('SKI', d, kernel=kernel)}",
        )
    return q


def _axes_of_features(q: int, grid: int | Sequence[int] | None) -> tuple[Axis, ...]:
    """Return axes over the box in which all features of a bounded network lie."""
    given = NODES_OF_FEATURES[q] if grid is None else grid
    counts = (given,) * q if isinstance(given, int) else tuple(given)
    end = RADIUS / math.sqrt(q)
    if math.prod(counts) > MOST_NODES:
        do = "use a coarser grid"
        got = f"{math.prod(counts):,}"
        raise NotApplicable(f"at most {MOST_NODES:,} nodes for the features of a network", got, do)
    box = torch.tensor([[-end] * q, [end] * q], dtype=torch.float64)
    return _axes_around_rows(box, counts, 0.0)


def _axis_of(low: float, high: float, margin: float, nodes: int) -> Axis:
    """Return equally spaced nodes that interpolate from low to high, and a margin beyond."""
    reach = (high - low) or 1.0
    spacing = reach * (1 + 2 * margin) / (nodes - 3)
    return Axis(low - margin * reach - spacing, spacing, nodes)


def _fine_enough(kernel: Kernel, theta: Theta, centre: Tensor, column: int, spacing: float) -> bool:
    """Return whether interpolation at this spacing of a column leaves out little of f.

    The first condition is on the variance of f(x) - w'f(nodes) between two nodes, with the nodes of
    this column alone. The second, on the correlation of neighbours, is stricter for smooth kernels.

    Args:
        kernel: The kernel.
        theta: Its hyperparameters, one draw.
        centre: A place in the middle of the rows [d].
        column: The column.
        spacing: The distance between nodes.
    """
    step = torch.zeros_like(centre)
    step[column] = spacing
    offsets = torch.arange(-1, 3).to(centre)
    nodes = centre + offsets[:, None] * step
    t = torch.linspace(0.0, 1.0, 9).to(centre)[1:-1]
    rows, w = centre + t[:, None] * step, cubic_weights(t)
    with torch.no_grad():
        K, cross = kernel.shared(theta, nodes), kernel(theta, rows, nodes)
        total = kernel.shared(theta, rows).diagonal()
    left = total - 2 * (w * cross).sum(1) + ((w @ K) * w).sum(1)
    correlation = K[1, 2] / (K[1, 1] * K[2, 2]).sqrt()
    return bool((left <= LEFT_OUT * total).all()) and bool(correlation >= NEIGHBOURS)


def _nodes_needed(
    kernel: Kernel,
    theta: Theta,
    centre: Tensor,
    column: int,
    low: float,
    high: float,
    margin: float,
) -> int | None:
    """Return the smallest number of nodes that is fine enough; None if ``MOST_NODES`` is not."""
    nodes = FEWEST
    while nodes <= MOST_NODES:
        if _fine_enough(kernel, theta, centre, column, _axis_of(low, high, margin, nodes).spacing):
            return nodes
        nodes = math.ceil(FINER * nodes)
    return None


def _chosen(kernel: Kernel, theta: Theta, X: Tensor, margin: float) -> tuple[int, ...]:
    """Return a number of nodes per column for a fit that may end at shorter lengthscales.

    One or two columns get twice the nodes that theta needs. More nodes than there are rows, or than
    ``CHOSEN_NODES``, are reduced alike in all columns.
    """
    d, centre = X.shape[1], X.mean(0)
    counts = []
    for k in range(d):
        low, high = float(X[:, k].min()), float(X[:, k].max())
        wanted = _nodes_needed(kernel, theta, centre, k, low, high, margin) or MOST_NODES
        counts.append(2 * wanted if d <= 2 else wanted)
    total, most = math.prod(counts), min(CHOSEN_NODES, max(FEW_NODES, len(X)))
    if total > most:
        share = (most / total) ** (1 / d)
        counts = [max(FEWEST, math.floor(share * k)) for k in counts]
    return tuple(counts)


def _axes_around_rows(X: Tensor, counts: Sequence[int], margin: float) -> tuple[Axis, ...]:
    """Return the axes of a grid around the rows of X.

    Raises:
        SettingError: If there is not one number per column.
        NotApplicable: If the nodes are too many.
    """
    d = X.shape[1]
    if len(counts) != d:
        raise SettingError(
            f"grid with {counted(d, 'number')} of nodes, one per column",
            repr(tuple(counts)),
            "pass one number for all columns, or one per column",
        )
    most = _most_nodes(counts)
    if math.prod(counts) > most:
        raise NotApplicable(
            f"at most {most:,} nodes in SKI",
            f"{math.prod(counts):,}",
            f"use a coarser grid, or {instead_of('SKI', d, len(X))}",
        )
    ends = zip(X.amin(0).tolist(), X.amax(0).tolist(), counts, strict=True)
    return tuple(_axis_of(low, high, margin, nodes) for low, high, nodes in ends)


def _many(axes: Sequence[Sequence[float]]) -> bool:
    """Return whether a grid has more nodes than dense algebra takes."""
    return math.prod(int(axis[2]) for axis in axes) > MOST_NODES


def _most_nodes(counts: Sequence[int]) -> int:
    """Return the most nodes that a grid of this shape may have, of a product kernel."""
    return MOST_IN_ALL if len(counts) > 1 and max(counts) <= MOST_ALONG else MOST_NODES


def _too_coarse(
    kernel: Kernel, theta: Theta, X: Tensor, axes: Sequence[Axis], margin: float
) -> str | None:
    """Return a warning if the spacing is too coarse at theta, with the nodes that would do."""
    centre = X.mean(0)
    coarse = [
        k for k, axis in enumerate(axes) if not _fine_enough(kernel, theta, centre, k, axis.spacing)
    ]
    if not coarse:
        return None
    counts: list[int | None] = []
    for k, axis in enumerate(axes):
        low, high = float(X[:, k].min()), float(X[:, k].max())
        counts.append(axis.nodes)
        if k in coarse:
            counts[-1] = _nodes_needed(kernel, theta, centre, k, low, high, margin)
    grid = " x ".join(str(axis.nodes) for axis in axes)
    found = [k for k in counts if k is not None]
    said = f"the grid of {grid} nodes is too coarse for the fitted kernel in column"
    where = f"{said}{'s' if len(coarse) > 1 else ''} {', '.join(map(str, coarse))}"
    most = MOST_NODES
    if len(found) == len(counts) and _is_product(kernel, theta, axes, X):
        most = _most_nodes(found)
    if len(found) < len(counts) or math.prod(found) > most:
        wanted = "more nodes than SKI takes"
        if len(found) == len(counts):
            wanted = f"{' x '.join(map(str, found))} nodes, more than SKI takes"
        do = instead_of("SKI", X.shape[1], len(X), kernel=kernel)
        return f"{where}: it needs {wanted}; {do}"
    numbers = str(found[0]) if len(found) == 1 else repr(tuple(found))
    return f"{where}: use SKI(kernel, grid={numbers})"


def _covariances(kernel: Kernel, theta: Theta, axes: Sequence[Axis], like: Tensor) -> list[Tensor]:
    """Return the covariance along each axis; their Kronecker product is that of the nodes.

    The other columns are held at the middle of the grid, and its variance there counts once.
    """
    places = [axis.places(like) for axis in axes]
    middle = torch.stack([place[len(place) // 2] for place in places])
    Ks = []
    for k, place in enumerate(places):
        line = middle.repeat(len(place), 1)
        line[:, k] = place
        K = kernel.shared(theta, line)
        Ks.append(K if k == 0 else K / K[len(place) // 2, len(place) // 2])
    return Ks


def _is_product(kernel: Kernel, theta: Theta, axes: Sequence[Axis], like: Tensor) -> bool:
    """Return whether the kernel is a product over the columns, at some pairs of nodes."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, PAIRS)
    codes = [
        torch.randint(0, axis.nodes, shape, generator=generator, device="cpu") for axis in axes
    ]
    one, other = torch.stack(
        [axis.places(like)[code.to(like.device)] for axis, code in zip(axes, codes, strict=True)],
        -1,
    )
    with torch.no_grad():
        Ks = _covariances(kernel, theta, axes, like)
        product = torch.ones(PAIRS, PAIRS).to(like)
        for K, code in zip(Ks, codes, strict=True):
            product = product * K[code[0]][:, code[1]]
        whole = kernel(theta, one, other)
    return bool((product - whole).abs().max() <= SAME * Ks[0].diagonal().max())


def _require_product(kernel: Kernel, theta: Theta, axes: Sequence[Axis], like: Tensor) -> None:
    """Raise NotApplicable for a kernel that is no product over the columns."""
    if not _is_product(kernel, theta, axes, like):
        nodes = math.prod(axis.nodes for axis in axes)
        raise NotApplicable(
            "a kernel that is a product over the columns, such as RBF, for more than 5,000 nodes "
            "of SKI",
            f"another one and {nodes:,} nodes",
            "use RBF, a product of Subspace kernels, or a coarser grid",
        )
