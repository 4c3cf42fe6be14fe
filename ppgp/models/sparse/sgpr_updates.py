"""Further rows of a sparse GP: their sums are added, with the same inducing inputs, in O(k m^2)."""

from __future__ import annotations

from collections.abc import Mapping

import pyro.distributions as dist
import torch
from torch import Tensor

from ...capabilities import JointLatent, Updates
from ...data.dataset import Dataset
from ...errors import NotApplicable
from ...numerics.triangles import solved
from ...priors import under
from ...runtime.result_cache import ResultCache
from ..factor_updates import later_rows
from ..sites import Theta
from .sgpr_predictions import SUMS, CollapsedPosterior, Sums
from .sgpr_streams import KEPT


class SparseUpdates(CollapsedPosterior, Updates, JointLatent):
    """The posterior of the inducing variables, which further rows change by their own sums."""

    def carry_over(
        self, theta: Theta, old: Dataset, new: Dataset, kept: ResultCache, into: ResultCache
    ) -> None:
        if KEPT[0] in theta:
            do = "fit a Dataset, or the stream with the further rows"
            raise NotApplicable("a fit to a Dataset for further rows", "one to a stream", do)
        rows = later_rows(old, new)
        for i, one in enumerate(self._one_by_one(theta, old.d)):
            before = kept.get((SUMS, i), lambda one=one: self._sums(one, old), one)
            further = self._sums(one, rows)
            after = Sums(*(a + b for a, b in zip(before, further, strict=True)))
            into.get((SUMS, i), lambda after=after: after, one)

    def joint_latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._conditional(theta, X, train, True, kept)[:2]

    def one_step_ahead(
        self, theta: Theta, train: Dataset, new: Dataset, kept: ResultCache
    ) -> dist.Normal:
        """Return the distribution of each new y given all rows before it, in the order given."""
        moments = [
            self._ahead(one, self._shared(i, one, train, kept), new)
            for i, one in enumerate(self._one_by_one(theta, train.d))
        ]
        means, variances = zip(*moments, strict=True)
        return dist.Normal(torch.stack(means), torch.stack(variances).sqrt())

    def _ahead(
        self, theta: Mapping[str, Tensor], shared: tuple[Tensor, ...], new: Dataset
    ) -> tuple[Tensor, Tensor]:
        """Return the means and the variances [k] of one draw, row by row."""
        Z, L, mean, W = shared
        marginal = self._marginal(theta, new.X, Z)
        hyper, level = under("kernel", theta), self.mean_at(theta, new.X).expand(new.n)
        A = solved(L, self.kernel(hyper, Z, new.X))
        left = (marginal.diagonal - A.square().sum(0)).clamp_min(0.0)
        P, means, variances = W.mT @ W, [], []
        for a, y, m, own in zip(A.mT, new.y, level, left, strict=True):
            Pa = P @ a
            known = a @ Pa + marginal.noise
            means.append(a @ mean + m)
            variances.append(known + own)
            mean = mean + Pa * ((y - m - a @ mean) / known)
            P = P - torch.outer(Pa, Pa) / known
        return torch.stack(means), torch.stack(variances)
