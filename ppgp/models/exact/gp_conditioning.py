"""An exact GP given its rows: the factor of their covariance, f at new rows, and further rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyro.distributions as dist
import torch
from torch import Tensor

from ...capabilities import JointLatent
from ...data.dataset import Dataset
from ...kernels import Kernel
from ...numerics.cholesky import add_diagonal, at_least_rounding, cholesky
from ...numerics.triangles import solved
from ...priors import under
from ...runtime.result_cache import ResultCache
from ...runtime.threads import side_by_side
from ..advice.memory_checks import check_memory_of_conditioning, check_memory_of_predictions
from ..factor_updates import ROOT, FactorUpdates, slice_of
from ..means import WithMean, rows_of_mean
from ..noise import with_known
from ..sites import Theta, number_of_draws, split_params

MEMORY_BUDGET = 256 * 2**20  # bytes in the matrices of all chunks of draws at once
#: bytes in one matrix of a chunk of draws on the CPU, so that its matrices stay in the cache of the
#: processor, and the allocator uses their memory again and does not ask the system for new pages
CACHED = 8 * 2**20
ROWS_AT_ONCE = 2048

#: the slice of some draws, and theta there
Chunk = tuple[slice, dict[str, Tensor]]


class GPConditioning(WithMean, FactorUpdates, JointLatent):
    """The distribution of f given y ~ N(mean, K + noise I + diag(noise_sd^2)).

    Attributes:
        kernel: The covariance of f.
    """

    kernel: Kernel

    def _covariance(self, theta: Theta, X: Tensor, noise_sd: Tensor | None = None) -> Tensor:
        return add_diagonal(self.kernel(under("kernel", theta), X), self._noise(theta, X, noise_sd))

    def _noise(self, theta: Theta, X: Tensor, noise_sd: Tensor | None) -> Tensor:
        return with_known(self.value(theta, "noise", X)[..., None], noise_sd)

    def _chunks(self, theta: Theta, n: int, m: int, like: Tensor) -> tuple[int, Iterator[Chunk]]:
        """Split the draws into chunks whose matrices fit into ``MEMORY_BUDGET``, or into one each.

        Up to ``_rows_at_once`` new rows the chunks do not depend on ``m``, so that predictions
        share what is kept of each chunk.

        Args:
            theta: {site: [draw, *event]}.
            n: Number of training rows.
            m: Number of rows of a prediction.
            like: Inputs, with the dtype and the number of columns.

        Returns:
            The number of draws, and an iterator of (the slice of the draws, theta there).

        Raises:
            NotEnoughMemory: If the matrices of one chunk do not fit into memory.
        """
        drawn, params = split_params(self.sites_at(like.shape[-1]), theta)
        count = number_of_draws(drawn)
        size = max(1, min(_draws_at_once(n, like), MEMORY_BUDGET // _bytes_of_draw(n, m, like)))
        check_memory_of_conditioning(n, m, min(size, count), self.kernel, like)
        slices = [slice(i, min(i + size, count)) for i in range(0, count, size)]
        chunks = ((s, {**params, **{k: v[s] for k, v in drawn.items()}}) for s in slices)
        return count, chunks

    def training_factor(self, theta: Theta, train: Dataset) -> tuple[Tensor, Tensor]:
        """Return the root L [*draw, n, n] of the training covariance, and L^-1 (y - mean)."""
        C = self._covariance(theta, train.X, train.noise_sd)
        return self._whitened(cholesky(C, "covariance of the training rows"), theta, train)

    def _whitened(self, L: Tensor, theta: Theta, train: Dataset) -> tuple[Tensor, Tensor]:
        residual = self._residual(theta, train)
        return L, torch.linalg.solve_triangular(L, residual, upper=False)

    def _residual(self, theta: Theta, rows: Dataset) -> Tensor:
        """Return y - mean, [*draw, n, 1]."""
        return (rows.y - self.mean_at(theta, rows.X)).unsqueeze(-1)

    def factored(
        self, theta: Theta, train: Dataset, kept: ResultCache | None, width: int
    ) -> Iterator[tuple[slice, dict[str, Tensor], tuple[Tensor, ...]]]:
        shared = self._shared_factor(theta, train, kept)
        for draws, part in self._chunks(theta, train.n, width, train.X)[1]:
            yield draws, part, shared((draws, part))

    def _shared_factor(
        self, theta: Theta, train: Dataset, kept: ResultCache | None
    ) -> Callable[[Chunk], tuple[Tensor, Tensor]]:
        """Return a function of a chunk of draws, ``training_factor`` as far as it is not kept."""
        kept = kept or ResultCache(limit=0)
        root = kept.found(ROOT, theta)

        def shared(chunk: Chunk) -> tuple[Tensor, Tensor]:
            draws, part = chunk
            factor = partial(self.training_factor, part, train)
            if root is not None:
                factor = partial(self._whitened, slice_of(root[0], draws), part, train)
            return kept.get((draws.start, draws.stop), factor, part)

        return shared

    def _each_chunk(
        self,
        evaluate: Callable[[slice, dict[str, Tensor], tuple[Tensor, Tensor]], None],
        theta: Theta,
        train: Dataset,
        kept: ResultCache | None,
        width: int,
    ) -> None:
        """Call ``evaluate`` with what ``factored`` yields for each chunk of draws.

        Chunks run side by side in threads. ``evaluate`` stores its results at the slice of the
        draws.
        """
        shared = self._shared_factor(theta, train, kept)
        count, chunks = self._chunks(theta, train.n, width, train.X)
        pieces = list(chunks)
        draws_at_once = MEMORY_BUDGET // _bytes_of_draw(train.n, width, train.X)

        def one(chunk: Chunk) -> None:
            evaluate(*chunk, shared(chunk))

        side_by_side(
            one,
            pieces,
            work=float(count) * train.n**3,
            at_once=draws_at_once // (pieces[0][0].stop - pieces[0][0].start),
            device=train.X.device,
        )

    def covariances(self, theta: Theta, old: Dataset, new: Dataset) -> tuple[Tensor, Tensor]:
        cross = self.kernel(under("kernel", theta), old.X, new.X)
        return cross, self._covariance(theta, new.X, new.noise_sd)

    def _conditional(
        self, theta: Theta, X: Tensor, train: Dataset, joint: bool, kept: ResultCache | None
    ) -> tuple[Tensor, Tensor]:
        """Return the moments of f at X given the training rows.

        The first is the mean [draw, m], the second the variance [draw, m] or, if ``joint``, the
        covariance [draw, m, m].
        """
        width = max(1, len(X) if joint else min(len(X), _rows_at_once(train.n, X)))
        count = number_of_draws(split_params(self.sites_at(X.shape[-1]), theta)[0])
        check_memory_of_predictions(count, len(X), X, joint)
        means = X.new_empty(count, len(X))
        spreads = X.new_empty(count, *((len(X),) if joint else ()), len(X))

        def evaluate(draws: slice, part: dict[str, Tensor], factor: tuple[Tensor, Tensor]) -> None:
            L, w = factor
            hyper, mean = under("kernel", part), self.mean_at(part, X)
            for row in range(0, len(X), width):
                rows = slice(row, row + width)
                cross = self.kernel(hyper, train.X, X[rows])
                V = solved(L, cross)
                means[draws, rows] = rows_of_mean(mean, rows) + (V.mT @ w).squeeze(-1)
                if joint:
                    spreads[draws] = self.kernel(hyper, X) - V.mT @ V
                else:
                    prior = self.kernel.diag(hyper, X[rows])
                    left = prior - V.square().sum(-2)
                    spreads[draws, rows] = at_least_rounding(left, prior)

        self._each_chunk(evaluate, theta, train, kept, width)
        return means, spreads

    def joint_latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._conditional(theta, X, train, True, kept)

    def one_step_ahead(
        self, theta: Theta, train: Dataset, new: Dataset, kept: ResultCache
    ) -> dist.Normal:
        """Return the distribution of each new y given all rows before it, in the order given.

        It is that of the whitened residual e_i = (y_i - mean_i) / sd_i, which the factor of all
        rows gives.
        """
        means, sds = [], []
        for draws, part, (L, w) in self.factored(theta, train, kept, new.n):
            grown = self.extended(part, L, train, new).checked()
            e = grown.onward(w, self._residual(part, new))[..., 0]
            sd = grown.root.diagonal(dim1=-2, dim2=-1)
            count = draws.stop - draws.start
            means.append((new.y - sd * e).expand(count, -1))
            sds.append(sd.expand(count, -1))
        return dist.Normal(torch.cat(means), torch.cat(sds))


def _draws_at_once(n: int, like: Tensor) -> int:
    """Return the draws of a chunk whose covariances of n rows fit into ``CACHED`` on the CPU."""
    if like.device.type != "cpu":
        return MEMORY_BUDGET // _bytes_of_draw(n, n, like)
    return max(1, CACHED // (like.element_size() * n**2))


def _bytes_of_draw(n: int, m: int, like: Tensor) -> int:
    """Return the bytes of the matrices of one draw, for n training rows and m new ones at once."""
    return like.element_size() * 4 * n * (n + m)


def _rows_at_once(n: int, like: Tensor) -> int:
    """Return the new rows to predict at once, so that their matrices too stay in the cache."""
    draws = _draws_at_once(n, like)
    if draws == 1 or like.device.type != "cpu":
        return ROWS_AT_ONCE
    return max(1, min(ROWS_AT_ONCE, 2 * CACHED // (like.element_size() * draws * n)))
