"""Stochastic variational Gaussian processes: any likelihood, and mini-batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyro
import torch
from torch import Tensor

from ...capabilities import CollapsedBound, LatentFunction, OwnGuide, SubsetModel
from ...data.dataset import Dataset, Scaler
from ...data.roles import at_rows
from ...display.overrides import computed
from ...errors import NotApplicable, SettingError, UnknownName
from ...kernels import RBF, Kernel
from ...kernels.base import check_kernel
from ...kernels.units import Units
from ...likelihoods import Gaussian, Likelihood
from ...likelihoods.base import check_is_likelihood
from ...numerics.triangles import transposed_times
from ...priors import Normal, Param, Site, prefixed, under
from ...runtime.seeding import permutation
from ...runtime.team import ALONE, Team
from ..advice.memory_checks import check_memory_of_rows
from ..any_likelihood import AnyLikelihood
from ..base import Model
from ..before_fit import medians, refuse_broken
from ..independent_rows import observed
from ..means import MeanLike, UserMean, rows_of_mean
from ..sites import Theta, draw
from .expected_log_likelihood import Expected
from .inducing import (
    GREEDY,
    all_rows,
    check_given,
    check_number,
    in_units_of_model,
    number_before_data,
    place,
    say_if_fewer,
    take_given,
)
from .natural_gradient_step import Moments
from .sgpr import SGPR
from .svgp_guide import run_guide, variational
from .svgp_predictions import ROWS_AT_ONCE, WhitenedPredictions, scale_of_q
from .whitened import divergence

WHITE = Normal(0.0, 1.0)  # the prior of v
SURVEY = 1000
MATRICES = 8  # of m by n that a gradient holds at once
SUBSET_ROWS = 4000
OBJECTIVES = ("elbo", "ppgpr")
GUIDES = ("natural", "full", "mean_field")


@dataclass(frozen=True, repr=False)
class SVGP(  # type: ignore[override] # scales follows the likelihood
    AnyLikelihood, WhitenedPredictions, LatentFunction, OwnGuide, CollapsedBound, SubsetModel
):
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
        take_given(self)
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

    def sites(self, d: int) -> dict[str, Site | Param]:
        """Return the hyperparameters and v, of shape [K, m] for K latent functions per row."""
        m = number_before_data(self.inducing)
        if self.Z is not None:
            m = len(self.Z)
        return {
            **prefixed("kernel", self.kernel.sites(d)),
            **self.likelihood.sites(),
            **self.likelihood.levels(),
            **self.mean_sites(d),
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
        refuse_broken(self.kernel, data.X)
        if self.Z is not None:
            check_given(self.Z, data.d)
            return ready
        Z = ready._select(data.X, data.y)
        if self.selection in GREEDY:
            say_if_fewer(Z, self.inducing, data.X)
        return replace(ready, Z=Z, inducing=len(Z))

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

    def in_units(self, scaler: Scaler) -> SVGP:
        Z = in_units_of_model(self.Z, scaler)
        kernel = self.kernel.in_units(Units.of(scaler))
        mean = self.mean_in_units(scaler)
        likelihood = self.likelihood.in_units(float(scaler.y_sd))
        return replace(self, kernel=kernel, likelihood=likelihood, mean=mean, Z=Z)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        factors = {f"kernel.{name}": f for name, f in self.kernel.factors(Units.of(scaler)).items()}
        factors |= self.likelihood.factors(float(scaler.y_sd))
        return self.hyperparameters_of_data(draws, {**factors, "v": 1.0}, scaler)

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """Return warnings about the fitted network of a deep kernel."""
        return self.kernel.check_fit(under("kernel", theta), data.X)

    # -- the program, its guide and its bound ---------------------------------------

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
        q = variational(self.q, self._v(len(Z)).shape, Z)
        run_guide(self._hyperparameters(X.shape[-1]), q, X, self.seed)

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
        return data_term * (total / len(X)) - divergence(theta["v_loc"], scale_of_q(theta))

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
        q = variational(self.q, self._v(len(Z)).shape, Z)
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
