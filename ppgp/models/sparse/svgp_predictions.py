"""Predictions of SVGP: the moments of its latent functions given v, or under q(v)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ...data.dataset import Dataset
from ...errors import NotApplicable, NumericalError
from ...kernels import Kernel
from ...likelihoods import Gaussian, Likelihood
from ...numerics.cholesky import add_diagonal, cholesky, inducing_root, jittered
from ...numerics.least_variance import at_least_rounding
from ...numerics.triangles import solved
from ...priors import Param, Site, under
from ..advice.memory_checks import check_memory_of_predictions
from ..sites import Theta, split_params
from ..with_mean import WithMean
from .whitened import marginals

ROWS_AT_ONCE = 8192
Q = ("v_loc", "v_scale_tril", "v_scale")  # the params of q(v)


class WhitenedPredictions(WithMean):
    """Predictions of f ~ GP(mean, kernel) through whitened inducing variables v, where u = L v.

    Attributes:
        kernel: The covariance of f.
        likelihood: The distribution of y given f.
        Z: The inducing inputs [m, d]; None before ``prepare``.
    """

    kernel: Kernel
    likelihood: Likelihood
    Z: Any

    @property
    def mean_is_free(self) -> bool:
        return "y" in self.scales

    def _hyperparameters(self, d: int) -> Mapping[str, Site | Param]:
        """Return the sites for inputs with d columns, without v."""
        raise NotImplementedError

    def _select(self, X: Tensor, y: Tensor | None) -> Tensor:
        """Place inducing inputs for a recipe that has none."""
        raise NotImplementedError

    def _inducing_inputs(self, theta: Theta, like: Tensor) -> Tensor:
        """Return the inducing inputs that belong to theta."""
        if "inducing" in theta:
            return theta["inducing"].to(like)
        if self.Z is None:
            return self._select(like, None)
        return self.Z.to(like)

    # The methods up to _given_v take theta of one draw, {site: [*event]}. X are b rows, and Z are
    # the m inducing inputs.

    def _prior(self, theta: Theta, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return Kmm [m, m] without jitter, Kmn [m, b] and the diagonal of Knn [b]."""
        kernel, hyper, (Z, X) = self.kernel.to_feature_space(under("kernel", theta), Z, X)
        return kernel.shared(hyper, Z), kernel(hyper, Z, X), kernel.diag(hyper, X)

    def _whitened(self, theta: Theta, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Return A = L^-1 Kmn [m, b] and the diagonal of Knn [b]; A is NaN if Kmm has no root."""
        Kmm, Kmn, diagonal = self._prior(theta, X, Z)
        return solved(inducing_root(Kmm), Kmn), diagonal

    def _under_q(self, theta: Theta, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and the variance [(K,) b] of f with v integrated out under q(v)."""
        Kmm, Kmn, diagonal = self._prior(theta, X, Z)
        loc, W = theta["v_loc"], scale_of_q(theta)
        mean, variance = marginals(jittered(Kmm), Kmn, diagonal, loc, W)
        return self._functions(self.mean_at(theta, X), mean, variance, diagonal)

    def _functions(
        self, level: Tensor, mean: Tensor, variance: Tensor, diagonal: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the moments [(K,) b] of f with mean ``level``, given those of GPs of mean 0.

        Functions of predicted parameters are divided by their prior sd, since they have no unit.
        """
        if not self.likelihood.predicted:
            return mean + level, variance
        unit = diagonal.clamp_min(torch.finfo(diagonal.dtype).tiny)
        means = torch.cat([mean[..., :1, :] + level, mean[..., 1:, :] * unit.rsqrt()], -2)
        return means, torch.cat([variance[..., :1, :], variance[..., 1:, :] / unit], -2)

    def _given_v(self, theta: Theta, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and the variance [(K,) b] of f given v."""
        A, diagonal = self._whitened(theta, X, Z)
        mean = theta["v"] @ A
        left = diagonal - A.square().sum(0)
        variance = at_least_rounding(left, diagonal).expand_as(mean)
        return self._functions(self.mean_at(theta, X), mean, variance, diagonal)

    def _one_by_one(self, theta: Theta, d: int) -> Iterator[dict[str, Tensor]]:
        """Yield theta of each draw; v is left out if the params of q(v) are in theta."""
        params = {k: v for k, v in theta.items() if k in Q or k == "inducing"}
        others = {k: v for k, v in theta.items() if k not in params}
        drawn, networks = split_params(self._hyperparameters(d), others)
        if "v_loc" in params:
            drawn.pop("v", None)
        for i in range(next((len(v) for v in drawn.values()), 1)):
            yield {**params, **networks, **{k: v[i] for k, v in drawn.items()}}

    def _moments(self, theta: Theta, X: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the mean and the variance [draw, (K,) n] of f, and the likelihood's sites [draw].

        Raises:
            NumericalError: If the covariance of the inducing inputs is not positive definite.
        """
        names = {**self.likelihood.sites(), **self.likelihood.levels()}
        K = self.likelihood.latents
        every = list(self._one_by_one(theta, X.shape[1]))
        inner = (K,) if K > 1 else ()
        check_memory_of_predictions(len(every) * K, len(X), X)
        means = X.new_empty(len(every), *inner, len(X))
        variances = torch.empty_like(means)
        likelihood_sites = []
        for i, one in enumerate(every):
            Z = self._inducing_inputs(one, X)
            moments = self._under_q if "v_loc" in one else self._given_v
            for row in range(0, len(X), ROWS_AT_ONCE):
                rows = slice(row, row + ROWS_AT_ONCE)
                mean, variance = moments(one, X[rows], Z)
                if not bool(torch.isfinite(mean).all()):
                    raise NumericalError(
                        "a positive definite covariance of the inducing inputs",
                        "one that is not",
                        "use fewer, or a shorter lengthscale",
                    )
                means[i, ..., rows], variances[i, ..., rows] = mean, variance
            likelihood_sites.append({k: one[k] for k in names if k in one})
        stacked = {k: torch.stack([s[k] for s in likelihood_sites]) for k in likelihood_sites[0]}
        return means, variances, stacked

    def predict(
        self, theta: Theta, X: Tensor, train: Dataset, *, joint: bool = False
    ) -> Distribution:
        """Return the predictive distribution of y at X, batch [draw, n].

        Args:
            theta: {site: [draw, *event]}, with the params of q(v) in place of v after SVI.
            X: Inputs [n, d].
            train: The training rows, which are not used: v carries their information.
            joint: Whether the rows are predicted jointly, with batch [draw] and event [n].

        Raises:
            NotApplicable: For ``joint`` with another likelihood than Gaussian.
        """
        if joint:
            return self._joint(theta, X)
        mean, variance, likelihood_sites = self._moments(theta, X)
        return self.likelihood.marginal(likelihood_sites, mean, variance)

    def _joint(self, theta: Theta, X: Tensor) -> Distribution:
        if not isinstance(self.likelihood, Gaussian) or self.likelihood.predicted:
            raise NotApplicable(
                "Gaussian noise of one variance for a joint distribution",
                repr(self.likelihood),
                "predict without joint=True, or sample latent",
            )
        means, roots = [], []
        for one in self._one_by_one(theta, X.shape[1]):
            hyper, Z = under("kernel", one), self._inducing_inputs(one, X)
            A, _ = self._whitened(one, X, Z)
            v = one["v_loc" if "v_loc" in one else "v"]
            spread = self.kernel(hyper, X) - A.mT @ A
            if "v_scale" in one:
                P = one["v_scale"][:, None] * A
                spread = spread + P.mT @ P
            elif "v_loc" in one:
                P = one["v_scale_tril"].mT @ A
                spread = spread + P.mT @ P
            noise = self.likelihood.value(one, "noise", X)
            means.append(v @ A + self.mean_at(one, X))
            roots.append(cholesky(add_diagonal(spread, noise), "predictive covariance"))
        return dist.MultivariateNormal(torch.stack(means), scale_tril=torch.stack(roots))

    def latent(self, theta: Theta, X: Tensor, train: Dataset) -> Distribution:
        """Return the predictive distribution of f at X, batch [draw, n].

        Beside predicted parameters it is that of the first function.

        Raises:
            NotApplicable: For several classes.
        """
        if self.likelihood.latents > 1 and not self.likelihood.predicted:
            raise NotApplicable(
                "one latent function", f"{self.likelihood.latents}, one per class", "use predict"
            )
        mean, variance, _ = self._moments(theta, X)
        if self.likelihood.predicted:
            mean, variance = mean[..., 0, :], variance[..., 0, :].clone()
        return dist.Normal(mean, variance.sqrt_())


def scale_of_q(theta: Theta) -> Tensor:
    """Return the root of the covariance of q(v), or its sds if that is diagonal."""
    if "v_scale" in theta:
        return theta["v_scale"]
    return theta["v_scale_tril"]
