"""Stochastic variational Gaussian processes: any likelihood, and mini-batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ...capabilities import CollapsedBound, LatentFunction, SubsetModel
from ...data.dataset import Dataset, Scaler
from ...data.roles import at_rows
from ...display.overrides import computed
from ...errors import NotApplicable, NumericalError, SettingError, UnknownName
from ...kernels import RBF, Kernel
from ...kernels.base import check_kernel
from ...kernels.units import Units
from ...likelihoods import Gaussian, Likelihood
from ...likelihoods.base import check_is_likelihood
from ...numerics.cholesky import add_diagonal, at_least_rounding, cholesky, inducing_root, jittered
from ...numerics.triangles import solved, transposed_times
from ...priors import Normal, Param, Prior, Site, prefixed, under
from ...runtime.seeding import permutation
from ...runtime.team import ALONE, Team
from ..advice.memory_checks import check_memory_of_predictions, check_memory_of_rows
from ..base import AnyLikelihood, Model, broken_network
from ..independent_rows import observed
from ..means import MeanLike, UserMean, WithMean, rows_of_mean
from ..sites import Theta, draw, medians, split_params
from .inducing import (
    GREEDY,
    all_rows,
    check_given,
    check_number,
    in_units_of_model,
    matrix_of,
    number_before_data,
    place,
    say_if_fewer,
)
from .sgpr import SGPR
from .whitened import Moments, divergence, marginals

WHITE = Normal(0.0, 1.0)  # the prior of v
SURVEY = 1000
ROWS_AT_ONCE = 8192
MATRICES = 8  # of m by n that a gradient holds at once
SUBSET_ROWS = 4000
OBJECTIVES = ("elbo", "ppgpr")
GUIDES = ("natural", "full", "mean_field")
Q = ("v_loc", "v_scale_tril", "v_scale")  # the params of q(v)


@dataclass(frozen=True, repr=False)
class SVGP(AnyLikelihood, WithMean, LatentFunction, CollapsedBound, SubsetModel):
    """Stochastic variational GP: f ~ GP(mean, kernel), and y given f by any likelihood.

    Hensman, Fusi & Lawrence (2013); Hensman, Matthews & Ghahramani (2015). The m inducing
    variables u = L v carry the information of the rows about f. The program draws v ~ N(0, I) and
    gives row i the density exp E log p(y_i given f_i), with f_i given v. Its ELBO under q(v) is the
    standard one. MCMC on it draws from the optimal q of v and the hyperparameters, which is the
    exact posterior if the inducing inputs are the rows (``selection="all"``).

    Fit it by SVI or NUTS. MAP and Laplace find the joint mode of v and the hyperparameters, which
    is a poor fit, and they warn about it; with numbers for all hyperparameters Laplace is the usual
    approximation of f. A step on b rows costs O(b m^2 + m^3); past 10,000 rows SVI takes 1,000
    rows per step unless ``SVI(batch_size=)`` says otherwise.

    Args:
        kernel: Any kernel of ``ppgp.kernels``, or a composition. White in it stays in f, where no
            inducing variable reaches it, which makes the bound loose; Gaussian noise belongs in
            the likelihood.
        inducing: The number m of inducing inputs; None: 100, or all different rows if there are
            fewer.
        likelihood: Any likelihood of ``ppgp.likelihoods``. A parameter that is ``Predicted()`` is
            level * exp(g), where g is a GP with the same kernel scaled to variance 1, so that
            ``Gaussian(noise=Predicted())`` gives noise that depends on x.
        objective: The objective of SVI: "elbo", or "ppgpr", the log of the predictive density in
            place of the expected log density (Jankowiak, Pleiss & Gardner 2020). The latter has
            better calibrated variances and is not a bound.
        q: The distribution of v under SVI: "natural" (full covariance, moved along its natural
            gradient), "full" or "mean_field" (moved with the other parameters). None: "natural",
            but "full" for ppgpr.
        selection: How ``prepare`` places the inducing inputs: "kmeans", "random",
            "conditional_variance", "bound" or "all".
        learn: Whether SVI and MAP move the inducing inputs.
        mean: The mean of each latent function: number, prior, ``LinearMean`` or function of X, see
            ``GP``; None: the mean of the training rows, and 0 under a likelihood of classes, counts
            or positive numbers. The function of a ``Predicted`` parameter has mean 0. The
            functions of classes share it, which leaves their probabilities as they are.
        seed: Seed of the selection.
        Z: Inducing inputs by hand [m, d], in the units of X, in place of ``inducing`` and
            ``selection``.
        standardised: Set by ``fit``: whether the numbers and Z are on the scale of the model.

    Raises:
        SettingError: If kernel or likelihood is something else, if ``inducing`` is not a positive
            whole number, or for ``q="natural"`` with ppgpr; from ``fit``, for more inducing inputs
            than rows.
        UnknownName: If there is no such objective or ``q``; from ``fit``, no such selection.
        NotApplicable: For a likelihood whose f must be positive, or whose expected log density is
            not finite.
        DataError: From ``fit``, if there are more inducing inputs than different rows, if y does
            not suit the likelihood, or if Z has equal rows or another number of columns than X.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, kernels, likelihoods, models
        >>> X = torch.linspace(-2, 2, 40, dtype=torch.float64)[:, None]
        >>> y = (X[:, 0].abs() > 1).double()  # class 1 on both sides of class 0
        >>> model = models.SVGP(kernels.RBF(4.0, 0.5), 10, likelihoods.Bernoulli(), learn=False)
        >>> how = inference.SVI(steps=50)
        >>> posterior = ppgp.fit(model, ppgp.Dataset(X, y), how, progress=False)
        >>> (posterior.predict([[-1.8], [0.0], [1.8]]).probabilities[:, 1] > 0.5).tolist()
        [True, False, True]
        >>> posterior.params["v_loc"].shape  # of q(v), one per inducing input
        torch.Size([10])
    """

    kernel: Kernel = field(default_factory=RBF)
    inducing: int | None = None
    likelihood: Likelihood = field(default_factory=Gaussian)
    objective: str = "elbo"
    q: str | None = None
    selection: str = "kmeans"
    learn: bool = True
    mean: MeanLike | None = None
    seed: int = 0
    Z: Any = field(default=None, repr=False, compare=False)
    standardised: bool = field(default=False, kw_only=True)
    collapsed = ("v",)
    latent_values = ("v",)
    roles = ("weights",)
    takes_stream = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "Z", matrix_of(self.Z))
        check_kernel(self.kernel)
        check_is_likelihood(self.likelihood)
        self.likelihood.check_real_f()
        self.likelihood.check_expected()
        if self.objective not in OBJECTIVES:
            raise UnknownName("objective", self.objective, OBJECTIVES)
        if self.q is not None and self.q not in GUIDES:
            raise UnknownName("q", self.q, GUIDES)
        if self.q == "natural" and self.objective == "ppgpr":
            raise SettingError(
                "q='full' or 'mean_field' with objective='ppgpr'", "q='natural'", "leave q out"
            )
        check_number(self.inducing)

    def _mean_is_free(self) -> bool:
        return "y" in self.scales

    mean_is_free = computed(_mean_is_free)

    def sites(self, d: int) -> dict[str, Site | Param]:
        """Return the hyperparameters and v, of shape [K, m] for K latent functions per row."""
        m = number_before_data(self.inducing)
        if self.Z is not None:
            m = len(self.Z)
        return {
            **prefixed("kernel", self.kernel.sites(d)),
            **self.likelihood.sites(),
            **self.likelihood.levels(),
            **self.mean_of(d).sites(d),
            "v": self._v(m),
        }

    def _hyperparameters(self, d: int) -> dict[str, Site | Param]:
        return {name: s for name, s in self.sites_at(d).items() if name != "v"}

    def _v(self, m: int) -> Site:
        k = self.likelihood.latents
        return Site(WHITE, (k, m) if k > 1 else (m,))

    def work(self, n: int, d: int) -> float:
        m = number_before_data(self.inducing)
        return float(n) * m * m + super().work(n, d)

    def _survey(self) -> int | None:
        """How many rows suffice to find out which sites the program has; None until Z is set."""
        if self.Z is None:
            return None
        return SURVEY

    survey = computed(_survey)

    def chunked(self, data: Dataset) -> bool:
        """Return whether a user's function gives the mean: no graph computes it for any rows."""
        return isinstance(self.mean_function, UserMean)

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        """Check that the covariances of the inducing inputs with n rows at once fit into memory.

        Raises:
            NotEnoughMemory: If they do not.
        """
        m = number_before_data(self.inducing)
        name = f"the covariances of {m:,} inducing inputs with the rows"
        check_memory_of_rows(
            n, MATRICES * m, like, name, "pass SVI(batch_size=1000), or use fewer inducing inputs"
        )

    def prepare(self, data: Dataset) -> SVGP:
        """Return the recipe with a likelihood, a mean and inducing inputs for these rows.

        Raises:
            SettingError: If there are more inducing inputs than rows.
            DataError: If there are more inducing inputs than different rows, if y does not suit the
                likelihood, or if a Z given by hand has equal rows or another number of columns.
            NumericalError: For a network whose units are all dead or saturated at the start.
        """
        mean = self.mean_for(data)
        ready = replace(self, likelihood=self.likelihood.prepare(data), mean=mean)
        if broken := self.kernel.check_fit({}, data.X):
            raise broken_network(broken[0], data.X)
        if self.Z is not None:
            check_given(self.Z, data.d)
            return ready
        Z = ready._select(data.X, data.y)
        if self.selection in GREEDY:
            say_if_fewer(Z, self.inducing, data.X)
        return replace(ready, Z=Z, inducing=len(Z))

    def in_units(self, scaler: Scaler) -> SVGP:
        Z = in_units_of_model(self.Z, scaler)
        kernel = self.kernel.in_units(Units.of(scaler))
        mean = self.mean_in_units(scaler)
        likelihood = self.likelihood.in_units(float(scaler.y_sd))
        return replace(self, kernel=kernel, likelihood=likelihood, mean=mean, Z=Z)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        factors = prefixed("kernel", self.kernel.factors(Units.of(scaler)))
        factors |= self.likelihood.factors(float(scaler.y_sd))
        return self.hyperparameters_of_data(draws, {**factors, "v": 1.0}, scaler)

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """Return warnings about the fitted network of a deep kernel."""
        return self.kernel.check_fit(under("kernel", theta), data.X)

    # -- the inducing inputs ------------------------------------------------------------------

    def _select(self, X: Tensor, y: Tensor | None) -> Tensor:
        """Place inducing inputs at the medians of the priors."""
        if self.selection == "all":
            return all_rows(X, self.inducing)
        if self.selection == "bound" and not isinstance(self.likelihood, Gaussian):
            raise NotApplicable(
                "Gaussian noise to select by the bound",
                type(self.likelihood).__name__,
                "use 'conditional_variance'",
            )
        theta = medians(self._hyperparameters(X.shape[1]), X, self.seed)
        residual = None
        if y is not None:
            residual = y - self.mean_at(theta, X)
        noise = float(theta.get("noise", X.new_ones(())))
        return place(
            self.selection, self.inducing, self.kernel, theta, X, residual, noise, self.seed
        )

    def _inducing_inputs(self, theta: Theta, like: Tensor) -> Tensor:
        """Return the inducing inputs that belong to theta."""
        if "inducing" in theta:
            return theta["inducing"].to(like)
        if self.Z is None:
            return self._select(like, None)
        return self.Z.to(like)

    def _inducing_param(self, X: Tensor) -> Tensor:
        """Return the param of the inducing inputs, which starts at Z; Z itself if none moves it."""
        if self.Z is not None:
            Z = self.Z.to(X)
            return pyro.param("inducing", Z) if self.learn else Z
        if not self.learn:
            raise SettingError(
                "inducing inputs", "an SVGP that has not seen data", "call prepare(data) first"
            )
        return pyro.param("inducing", lambda: self._select(X, None))

    # -- the program, its guide and its bound -------------------------------------------------

    def model(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        total: int | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        Z = self._inducing_param(X)
        theta = draw({**self._hyperparameters(X.shape[-1]), "v": self._v(len(Z))}, X)
        expected = Expected(self.likelihood, theta, *self._given_v(theta, X, Z))
        return observed(expected, X, y, total, weights)

    def guide(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        total: int | None = None,
        weights: Tensor | None = None,
    ) -> None:
        """Run the guide for Pyro's own SVI: q(v), and a Delta for each hyperparameter."""
        Z = self._inducing_param(X)
        q = _variational(self.q, self._v(len(Z)).shape, Z)
        _run_guide(self._hyperparameters(X.shape[-1]), q, X, self.seed)

    def elbo(
        self, theta: Theta, X: Tensor, y: Tensor, *, total: int, weights: Tensor | None = None
    ) -> Tensor:
        """Return an unbiased estimate of E_q log p(y given f) - KL(q(v) || N(0, I)).

        With ``objective="ppgpr"`` it is the objective of that method.

        Args:
            theta: {site: [*event]}, with the params of q in place of v.
            X: Inputs of b rows [b, d].
            y: Their targets [b].
            total: The number of all rows.
            weights: How often each row counts, [b]; None: once.
        """
        Z = self._inducing_inputs(theta, X)
        # a gradient keeps all intermediate values, so chunks would save nothing
        width = max(1, len(X)) if torch.is_grad_enabled() else ROWS_AT_ONCE
        chunks = [slice(i, i + width) for i in range(0, max(1, len(X)), width)]
        parts = [self._data_term(theta, X[i], y[i], Z, at_rows(weights, i)) for i in chunks]
        data_term = parts[0] if len(parts) == 1 else torch.stack(parts).sum()
        return data_term * (total / len(X)) - divergence(theta["v_loc"], _scale_of_q(theta))

    def _data_term(
        self, theta: Theta, X: Tensor, y: Tensor, Z: Tensor, weights: Tensor | None
    ) -> Tensor:
        """Return E_q log p(y given f) of these rows, or the sum of PPGPR."""
        mean, variance = self._under_q(theta, X, Z)
        if self.objective == "ppgpr":
            each = self.likelihood.marginal(theta, mean, variance).log_prob(y)
        else:
            each = self.likelihood.expected(theta, mean, variance, y)
        return each.sum() if weights is None else (weights * each).sum()

    def collapsed_elbo(
        self, X: Tensor, y: Tensor, *, total: int | None = None, weights: Tensor | None = None
    ) -> None:
        """Run the program with ``elbo`` in place of v and the likelihood.

        Its density is the objective that SVI maximises.

        Args:
            X: Inputs of b rows [b, d].
            y: Their targets [b].
            total: The number of all rows; None: these are all.
            weights: As in ``elbo``.
        """
        Z = self._inducing_param(X)
        hyperparameters = draw(self._hyperparameters(X.shape[-1]), X)
        q = _variational(self.q, self._v(len(Z)).shape, Z)
        theta = {**hyperparameters, "inducing": Z, **q}
        n = total or len(X)
        pyro.factor("elbo", self.elbo(theta, X, y, total=n, weights=weights))

    def natural(
        self,
        theta: Theta,
        X: Tensor,
        y: Tensor,
        *,
        total: int,
        rate: float,
        weights: Tensor | None = None,
        team: Team = ALONE,
    ) -> tuple[dict[str, Tensor], Tensor] | None:
        """Take a step along the natural gradient of ``elbo`` with respect to q(v).

        With Gaussian noise, all rows and rate 1 the step ends at the optimum. Salimbeni,
        Eleftheriadis & Hensman (2018).

        Args:
            theta: {site: [*event]}, with the params of q in place of v.
            X: Inputs of b rows [b, d].
            y: Their targets [b].
            total: The number of all rows.
            rate: The length of the step.
            weights: How often each row counts, [b]; None: once.
            team: The processes that hold other rows; the step is that of the rows of all.

        Returns:
            The params of q(v) after the step, and ``elbo`` before it; None if q moves with the
            other parameters.
        """
        if self.objective != "elbo" or self.q not in (None, "natural"):
            return None
        loc, W = theta["v_loc"], theta["v_scale_tril"]
        Z = self._inducing_inputs(theta, X)
        level = self.mean_at(theta, X).detach()
        moments, value, weight = Moments(loc), -divergence(loc, W), total / len(X)
        for rows in torch.arange(len(X)).split(ROWS_AT_ONCE):
            with torch.no_grad():
                A, diagonal = self._whitened(theta, X[rows], Z)
                spread = transposed_times(W, A).square().sum(-2) - A.square().sum(0)
                mean, variance = loc @ A, (diagonal + spread).clamp_min(0.0)
            with torch.enable_grad():
                mean, variance = mean.requires_grad_(True), variance.requires_grad_(True)
                of_f = self._functions(rows_of_mean(level, rows), mean, variance, diagonal)
                each = self.likelihood.expected(theta, *of_f, y[rows])
                part = each.sum() if weights is None else (weights[rows] * each).sum()
                g, h = torch.autograd.grad(part, (mean, variance))
            moments.add(A, mean.detach(), g, h)
            value = value + weight * part.detach()
        (value,) = team.means(value)
        loc, W = moments.step(loc, W, moments.over_ranks(team, weight), rate)
        return {"v_loc": loc, "v_scale_tril": W}, value

    def subset_model(self, data: Dataset) -> tuple[Model, Dataset] | None:
        """Return a cheaper model with the same hyperparameters, and a subset of the rows.

        SVI starts at its mode. None for another likelihood than Gaussian, for a network, and before
        ``prepare``.
        """
        deep = any(isinstance(s, Param) for s in self.kernel.sites(data.d).values())
        if not isinstance(self.likelihood, Gaussian) or deep or self.Z is None:
            return None
        generator = torch.Generator().manual_seed(self.seed)
        size = max(SUBSET_ROWS, 2 * len(self.Z))
        subset = permutation(generator, data.n)[:size]
        small = SGPR(
            self.kernel,
            inducing=self.inducing,
            learn=self.learn,
            noise={**self.likelihood.sites(), **self.likelihood.levels()}["noise"].prior,
            mean=self.mean,
            seed=self.seed,
            Z=self.Z,
        )
        return small, replace(data.rows(subset.sort().values), weights=None)

    # -- f given v, or under q(v) -------------------------------------------------------------

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
        loc, W = theta["v_loc"], _scale_of_q(theta)
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

    # -- predictions --------------------------------------------------------------------------

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
        """Return the predictive distribution of y at X; see ``Model.predict``.

        After SVI theta holds the params of q(v) in place of v. The training rows are not used: v
        carries their information.

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


class Expected(dist.TorchDistribution):
    """y where f ~ N(mean, variance) per row, with log density E log p(y | f), not log E p(y | f).

    By Jensen's inequality it is at most the log density of the marginal distribution, from which
    ``sample`` draws. With it the ELBO of a guide on the inducing variables is that of Hensman,
    Matthews & Ghahramani (2015), and MCMC draws from their optimal q.

    Args:
        likelihood: A member of ``ppgp.likelihoods``.
        theta: Its sites.
        mean: The mean of f, [n], or [K, n] for K latent functions.
        variance: The variance of f, of the same shape.
    """

    arg_constraints = {}  # type: ignore[assignment] # Pyro annotates a property

    def __init__(
        self, likelihood: Likelihood, theta: Theta, mean: Tensor, variance: Tensor
    ) -> None:
        self.likelihood = likelihood
        self.theta = theta
        self.latent_mean = mean
        self.latent_variance = variance
        batch = mean.shape
        if likelihood.latents > 1:
            batch = mean.shape[:-2] + mean.shape[-1:]
        super().__init__(batch, torch.Size(), validate_args=False)

    @property
    def support(self) -> object:  # type: ignore[override] # a class attribute in Pyro
        """The support of y."""
        return self.likelihood.distribution(self.theta, self.latent_mean).support

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Expected:
        """Return this distribution with another batch shape."""
        shape = torch.Size(batch_shape)
        if self.likelihood.latents > 1:
            shape = shape[:-1] + self.latent_mean.shape[-2:-1] + shape[-1:]
        mean, variance = self.latent_mean.expand(shape), self.latent_variance.expand(shape)
        return Expected(self.likelihood, self.theta, mean, variance)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return E log p(value | f) over f."""
        return self.likelihood.expected(self.theta, self.latent_mean, self.latent_variance, value)

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draw f, then y given f."""
        with torch.no_grad():
            shape = torch.Size(sample_shape) + self.latent_mean.shape
            e = torch.randn(shape, dtype=self.latent_mean.dtype, device=self.latent_mean.device)
            f = self.latent_mean + self.latent_variance.clamp_min(0.0).sqrt() * e
            return self.likelihood.distribution(self.theta, f).sample().to(f)


def _variational(q: str | None, shape: tuple[int, ...], Z: Tensor) -> dict[str, Tensor]:
    """Return the params of q(v), which starts as the prior.

    Args:
        q: "mean_field", or another word for a full covariance.
        shape: That of v.
        Z: Inducing inputs [m, d].
    """
    loc = pyro.param("v_loc", lambda: Z.new_zeros(shape))
    if q == "mean_field":
        sd = pyro.param("v_scale", lambda: Z.new_ones(shape), constraint=constraints.positive)
        return {"v_loc": loc, "v_scale": sd}
    eye = torch.eye(len(Z)).to(Z).expand(*shape, len(Z))
    root = pyro.param("v_scale_tril", lambda: eye.clone(), constraint=constraints.lower_cholesky)
    return {"v_loc": loc, "v_scale_tril": root}


def _run_guide(
    sites: Mapping[str, Site | Param], q: Mapping[str, Tensor], X: Tensor, seed: int
) -> None:
    """Run the Pyro statements of the guide: a Delta for each hyperparameter, and q(v).

    Args:
        sites: The hyperparameters.
        q: The params of q(v).
        X: Inputs [n, d].
        seed: Of the medians of priors that have none in closed form.
    """
    for name, one in sites.items():
        if isinstance(one, Site) and isinstance(one.prior, Prior):
            distribution: Any = one.distribution(X)
            value = pyro.param(
                f"{name}.value",
                lambda n=name, s=one: medians({n: s}, X, seed)[n],
                constraint=distribution.support,
            )
            pyro.sample(name, dist.Delta(value, event_dim=len(one.shape)))
    axes = q["v_loc"].ndim
    of_v: Any
    if "v_scale" in q:
        of_v = dist.Normal(q["v_loc"], q["v_scale"])
    else:
        of_v = dist.MultivariateNormal(q["v_loc"], scale_tril=q["v_scale_tril"])
        axes = axes - 1
    pyro.sample("v", of_v.to_event(axes))


def _scale_of_q(theta: Theta) -> Tensor:
    """Return the root of the covariance of q(v), or its sds if that is diagonal."""
    if "v_scale" in theta:
        return theta["v_scale"]
    return theta["v_scale_tril"]
