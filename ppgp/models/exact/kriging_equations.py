"""The kriging equations: the mean and variance of a surface at places and over blocks of places.

They are solved with all rows, or for each place with its nearest rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ...capabilities import JointLatent
from ...data.dataset import Dataset
from ...errors import DataError, NotApplicable, counted
from ...kernels import Kernel
from ...kernels.base import output_of_rows
from ...numerics.cholesky import add_diagonal, cholesky
from ...priors import under
from ...runtime.result_cache import ResultCache
from ..advice.memory_checks import check_memory_of_conditioning, check_memory_of_predictions
from ..factor_updates import ROOT, FactorUpdates, slice_of
from ..means import WithMean, rows_of_mean
from ..noise import with_known
from ..sites import Theta, number_of_draws, split_params
from .drift import Drift, basis, coordinate_columns, of_each_output, places
from .gls import Solved, solve, solve_given

MEMORY_BUDGET = 256 * 2**20  # bytes in the matrices of one chunk of draws or of places


class KrigingEquations(WithMean, FactorUpdates, JointLatent):
    """The equations of a model y ~ N(F beta, K + nugget I) with an unknown trend F beta.

    Attributes:
        drift: The functions F of the trend, see ``Drift``.
        neighbours: Number of nearest rows that predict each place; None: all rows.
    """

    drift: Drift
    neighbours: int | None
    keeps_factor = True

    @property
    def kernel(self) -> Kernel:
        """The covariance K of the surface."""
        raise NotImplementedError

    def covariance_columns(self, d: int) -> list[int]:
        return coordinate_columns(self.drift, d)

    def _functions(self, X: Tensor, train: Tensor) -> Tensor:
        """Return the functions of the drift at X [*b, n, d], [*b, n, p]; see ``basis``."""
        return basis(self.drift, X, train, self.kernel.output_columns())

    def _covariance(self, theta: Theta, where: Tensor, noise_sd: Tensor | None) -> Tensor:
        """Return the covariance of measurements at the coordinates ``where``, [*draw, n, n]."""
        hyper = under("variogram", theta)
        return add_diagonal(self.kernel(hyper, where), self._noise(theta, where, noise_sd))

    def _noise(self, theta: Theta, like: Tensor, noise_sd: Tensor | None) -> Tensor:
        """Return the nugget plus the known error variance of each measurement."""
        return with_known(self.value(theta, "nugget", like)[..., None], noise_sd)

    def _centre(self, theta: Theta, X: Tensor) -> Tensor:
        """Return the known mean at X [*b, n, d], [*draw, *b, n] or [*draw, 1]; 0 with a drift."""
        if self.drift == "none":
            return self.mean_at(theta, X)
        return X.new_zeros(1)

    def _centre_of_blocks(self, theta: Theta, blocks: Tensor) -> Tensor:
        """Return the average of the known mean over blocks [m, k, d], [*draw, m] or [*draw, 1]."""
        centre = self._centre(theta, blocks)
        return centre.mean(-1) if self.mean_function.varies else centre

    def _count(self, theta: Theta, d: int) -> int:
        """Return the number of draws in theta."""
        return number_of_draws(split_params(self.sites_at(d), theta)[0])

    def training_factor(self, theta: Theta, train: Dataset) -> Solved:
        """Solve the system of the training rows, which predictions at all places share."""
        C = self._covariance(theta, places(self.drift, train.X), train.noise_sd)
        return self._with_root(cholesky(C, "covariance of the training rows"), theta, train)

    def _with_root(self, L: Tensor, theta: Theta, train: Dataset) -> Solved:
        F = self._functions(train.X, train.X)
        return solve_given(L, train.y - self._centre(theta, train.X), F)

    def _solved(
        self, theta: Theta, train: Dataset, kept: ResultCache | None = None
    ) -> Iterator[tuple[slice, dict[str, Tensor], Solved]]:
        """Solve the system of the training rows for a chunk of draws at a time.

        Yields:
            The slice of the draws, theta there, and the solved system.

        Raises:
            NotEnoughMemory: If the matrices of one chunk do not fit into memory.
        """
        kept = kept or ResultCache(limit=0)
        drawn, params = split_params(self.sites_at(train.d), theta)
        count, root = number_of_draws(drawn), kept.found(ROOT, theta)
        size = max(1, MEMORY_BUDGET // (train.X.element_size() * 6 * train.n**2))
        check_memory_of_conditioning(train.n, 0, min(size, count), self.kernel, train.X)
        for i in range(0, count, size):
            draws = slice(i, i + size)
            part = {**params, **{name: value[draws] for name, value in drawn.items()}}
            solve_it = partial(self.training_factor, part, train)
            if root is not None:
                solve_it = partial(self._with_root, slice_of(root[0], draws), part, train)
            yield draws, part, kept.get((i, size), solve_it, part)

    def factored(
        self, theta: Theta, train: Dataset, kept: ResultCache | None, width: int
    ) -> Iterator[tuple[slice, dict[str, Tensor], tuple[Tensor, ...]]]:
        return self._solved(theta, train, kept)

    def covariances(self, theta: Theta, old: Dataset, new: Dataset) -> tuple[Tensor, Tensor]:
        there = places(self.drift, new.X)
        cross = self.kernel(under("variogram", theta), places(self.drift, old.X), there)
        return cross, self._covariance(theta, there, new.noise_sd)

    def carry_over(
        self, theta: Theta, old: Dataset, new: Dataset, kept: ResultCache, into: ResultCache
    ) -> None:
        if not self._is_local(new):
            super().carry_over(theta, old, new, kept, into)

    def _is_local(self, train: Dataset) -> bool:
        """Return whether each place is predicted from some of the rows."""
        return self.neighbours is not None and self.neighbours < train.n

    def one_step_ahead(
        self, theta: Theta, train: Dataset, new: Dataset, kept: ResultCache
    ) -> Distribution:
        """Return the distribution of each new y given all rows before it, in the order given.

        The drift is estimated anew from these rows, by recursive least squares.

        Raises:
            NotApplicable: For predictions from neighbours.
        """
        if self._is_local(train):
            got = f"neighbours={self.neighbours}"
            raise NotApplicable("predictions from all rows", got, "leave neighbours out")
        F = self._functions(new.X, train.X)
        means, sds = [], []
        for _, part, solved in self._solved(theta, train, kept):
            grown = self.extended(part, solved.L, train, new).checked()
            residual = (new.y - self._centre(part, new.X)).unsqueeze(-1)
            e, sd = solved.ahead(grown.onward(solved.w, residual), grown.onward(solved.H, F))
            scale = grown.root.diagonal(dim1=-2, dim2=-1)
            means.append((new.y - scale * e).reshape(-1, new.n))
            sds.append((scale * sd).expand(len(means[-1]), -1))
        return dist.Normal(torch.cat(means), torch.cat(sds))

    def _means(
        self,
        theta: Theta,
        blocks: Tensor,
        train: Dataset,
        leave_out: bool = False,
        kept: ResultCache | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the mean and the variance [draw, m] of the average of f over each block.

        Args:
            theta: {site: [draw, *event]}.
            blocks: Places [m, k, d], the k points of each block.
            train: The training rows.
            leave_out: Whether block i is row i of ``train``, which is then not among its own
                neighbours.
            kept: Where the solved system of all rows is kept between predictions.
        """
        step = self._places_at_once(theta, blocks, train)
        count = self._count(theta, train.d)
        check_memory_of_predictions(count, len(blocks), blocks)
        means = blocks.new_empty(count, len(blocks))
        variances = torch.empty_like(means)
        if self.neighbours is not None and self.neighbours < train.n - leave_out:
            groups = [torch.arange(len(blocks), device=blocks.device)]
            if leave_out:
                groups = self._rows_of_outputs(places(self.drift, train.X))
            for rows in groups:
                for at in rows.split(step):
                    left_out = at if leave_out else None
                    means[:, at], variances[:, at] = self._local(theta, blocks[at], train, left_out)
            return means, variances
        where = places(self.drift, train.X)
        for draws, part, solved in self._solved(theta, train, kept):
            hyper, centre = under("variogram", part), self._centre_of_blocks(part, blocks)
            for i in range(0, len(blocks), step):
                at = slice(i, i + step)
                block = blocks[at]
                m, k = block.shape[:2]
                there = places(self.drift, block)
                K = self.kernel(hyper, where, there.flatten(0, 1))
                new = self._functions(block, train.X).mean(1)
                K = K.reshape(*K.shape[:-1], m, k).mean(-1)
                mean, variance = solved.at(K, new, self._within(part, there, train.d))
                means[draws, at], variances[draws, at] = mean + rows_of_mean(centre, at), variance
        return means, variances

    def _places_at_once(self, theta: Theta, blocks: Tensor, train: Dataset) -> int:
        """Return how many blocks fit into ``MEMORY_BUDGET``."""
        n = min(self.neighbours or train.n, train.n)
        draws = self._count(theta, train.d)
        points = blocks.shape[1]
        columns = n if self.neighbours else points
        numbers_per_block = draws * (4 * n * columns + points**2) + train.n
        return max(1, MEMORY_BUDGET // (blocks.element_size() * numbers_per_block))

    def _with_block_axis(self, theta: Theta, d: int) -> dict[str, Tensor]:
        """Return theta with a further axis after that of the draws, for places [m, k, d]."""
        drawn, params = split_params(self.sites_at(d), theta)
        return {**params, **{name: value.unsqueeze(1) for name, value in drawn.items()}}

    def _within(self, theta: Theta, there: Tensor, d: int) -> Tensor:
        """Return the mean covariance between the places of each block, [*draw, m]."""
        if there.shape[1] == 1:
            return self.kernel.diag(under("variogram", theta), there[:, 0])
        hyper = under("variogram", self._with_block_axis(theta, d))
        return self.kernel(hyper, there).mean((-2, -1))

    def _local(
        self, theta: Theta, blocks: Tensor, train: Dataset, left_out: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean and the variance [draw, m] of each block, from its nearest rows.

        ``left_out`` [m] are the rows of ``train`` that the blocks are, each of which is left out of
        its own neighbours. They are rows of one output if each output has functions of its own.
        None: nothing is left out.
        """
        where, there = places(self.drift, train.X), places(self.drift, blocks)
        near = self._nearest(where, there.mean(1), left_out)  # [m, k]
        with_axis = self._with_block_axis(theta, train.d)
        hyper = under("variogram", with_axis)
        known = None
        if train.noise_sd is not None:
            known = train.noise_sd[near]
        C = add_diagonal(self.kernel(hyper, where[near]), self._noise(with_axis, where, known))
        centre = self._centre_of_blocks(theta, blocks)
        residual = (train.y - self._centre(theta, train.X))[..., near]
        F = self._functions(train.X, train.X)[near]
        new = self._functions(blocks, train.X).mean(1, keepdim=True)
        K = self.kernel(hyper, where[near], there).mean(-1, keepdim=True)
        prior = self._within(theta, there, train.d)[..., None]
        mean, variance = solve(C, residual, F).at(K, new, prior)
        shape = (-1, len(blocks))
        return (mean[..., 0] + centre).reshape(shape), variance[..., 0].reshape(shape)

    def _rows_of_outputs(self, where: Tensor) -> list[Tensor]:
        """Return the rows of each output, if each output has functions of its own; else all."""
        outputs = self.kernel.output_columns()
        if not of_each_output(self.drift, outputs):
            return [torch.arange(len(where), device=where.device)]
        number = output_of_rows(outputs, where)
        return [torch.nonzero(number == one).flatten() for one in number.unique()]

    def check_leave_one_out(self, train: Dataset) -> None:
        """Check that the coefficients of every output are known without one of its rows.

        Raises:
            DataError: If an output has functions of its own, and no more rows than functions.
        """
        if not of_each_output(self.drift, self.kernel.output_columns()):
            return
        groups = self._rows_of_outputs(places(self.drift, train.X))
        functions = self._functions(train.X, train.X).shape[-1] // len(groups)
        for rows in groups:
            if len(rows) <= functions:
                wanted = f"more than {counted(functions, 'row')} of each output, to leave one out"
                got = f"{len(rows)} of the output of row {int(rows[0])}"
                raise DataError(wanted, got, "add rows of it, or leave its rows out")

    def _nearest(self, where: Tensor, there: Tensor, left_out: Tensor | None) -> Tensor:
        """Return the rows ``where`` [n, d] nearest to each place ``there`` [m, d], [m, k].

        Where each output has functions of its own, these are the nearest rows of every output, or
        all of an output that has fewer: the place then determines all of its coefficients.
        ``left_out`` is that of ``_local``.
        """
        count = self.neighbours or len(where)
        outputs = self.kernel.output_columns()
        own = self._rows_of_outputs(where)
        if of_each_output(self.drift, outputs):
            columns = [c for c in range(where.shape[-1]) if c not in outputs]
            where, there = where[:, columns], there[:, columns]
        distance = torch.cdist(there, where, compute_mode="donot_use_mm_for_euclid_dist")
        if left_out is not None:
            rows = torch.arange(len(there), device=distance.device)
            distance[rows, left_out] = torch.inf
        near = []
        for of_output in own:
            left = len(of_output)
            if left_out is not None and bool((of_output == left_out[0]).any()):
                left -= 1
            found = distance[:, of_output].topk(min(count, left), largest=False).indices
            near.append(of_output[found])
        return torch.cat(near, -1)

    def latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> Distribution:
        """Return the distribution of the surface at X, without the nugget: batch [draw, m]."""
        mean, variance = self._means(theta, X[:, None], train, kept=kept)
        return dist.Normal(mean, variance.sqrt())

    def joint_latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> tuple[Tensor, Tensor]:
        if self._is_local(train):
            raise NotApplicable(
                "a joint distribution from all rows",
                f"neighbours={self.neighbours}",
                "leave joint or neighbours out",
            )
        where, there = places(self.drift, train.X), places(self.drift, X)
        new = self._functions(X, train.X)
        means, spreads = [], []
        check_memory_of_predictions(self._count(theta, train.d), len(X), X, joint=True)
        for _, part, solved in self._solved(theta, train, kept):
            hyper = under("variogram", part)
            cross, prior = self.kernel(hyper, where, there), self.kernel(hyper, there)
            mean, spread = solved.at(cross, new, prior, joint=True)
            means.append((mean + self._centre(part, X)).reshape(-1, len(X)))
            spreads.append(spread.expand(len(means[-1]), -1, -1))
        return torch.cat(means), torch.cat(spreads)

    def block(self, theta: Theta, blocks: Tensor, train: Dataset) -> Distribution:
        """Return the distribution of the average of the surface over each block.

        The nugget is not part of it, as in GSLIB: over any area it averages out. Journel &
        Huijbregts (1978), chapter V.

        Args:
            theta: {site: [draw, *event]}.
            blocks: Places [m, k, d], the k points of each block.
            train: The training rows.

        Returns:
            A Normal of batch [draw, m].
        """
        mean, variance = self._means(theta, blocks, train)
        return dist.Normal(mean, variance.sqrt())

    def trend(self, theta: Theta, X: Tensor, train: Dataset) -> Distribution:
        """Return the distribution of the drift F(x) beta at X: batch [draw, m].

        beta is estimated by generalised least squares on all rows.

        Raises:
            NotApplicable: With drift "none", which has no beta.
        """
        if self.drift == "none":
            raise NotApplicable(
                "a drift to estimate", 'drift="none"', 'use drift="constant", or a degree'
            )
        new, means, variances = self._functions(X, train.X), [], []
        for _, _, solved in self._solved(theta, train):
            beta, root = solved.trend()
            means.append((beta @ new.mT).reshape(-1, len(X)))
            variances.append((new @ root).square().sum(-1).reshape(-1, len(X)))
        return dist.Normal(torch.cat(means), torch.cat(variances).sqrt())
