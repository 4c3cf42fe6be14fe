"""Bayesian linear regression, with its exact posterior and its full conditionals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ...capabilities import (
    ClosedForm,
    FullConditionals,
    LikelihoodOfFunctions,
    LinearCoefficients,
)
from ...data.dataset import Dataset, Scaler
from ...distributions.blocks import distribution_by_rows
from ...errors import NotApplicable, SettingError
from ...likelihoods import Gaussian, Likelihood
from ...priors import (
    Flat,
    InverseGamma,
    LogNormal,
    Normal,
    Number,
    Prior,
    PriorLike,
    Site,
    bare,
    rescaled,
    single,
    site,
    tensor_of,
)
from ...runtime.seeding import permutation, standard_normal, standard_uniform
from ..base import Model, linear
from ..independent_rows import observed, predicted
from ..sites import Theta, draw, with_fixed
from ..units import coefficients_in_units, coefficients_of_data, power, times
from .conjugate_linear import (
    Decomposition,
    conjugate_posterior,
    decompose,
    inverse_gamma_quantiles,
    invert,
    moments,
    noise_posterior,
)

EXACT = "exact."  # prefix of the params of the closed form


@dataclass(frozen=True, repr=False)
class LinearRegression(
    Model, ClosedForm, FullConditionals, LinearCoefficients, LikelihoodOfFunctions
):
    """Linear regression: y ~ N(X weight + bias, noise), with independent priors.

    The sites are ``weight`` [d], ``bias`` [] and ``noise`` []. Gelman et al. (2013), chapter 14.
    Least squares is ``LinearRegression(Flat(), Flat(), Flat())``; ridge regression has ``Normal``
    weights, a flat bias and a number as noise.

    Args:
        weight: Prior or number of each of the d weights.
        bias: Prior or number of the intercept.
        noise: Prior or number of the noise variance.
        conjugate: Whether the prior standard deviations of weight and bias are in units of the
            noise sd. With ``noise=InverseGamma(a, b)`` this is the Normal-inverse-gamma prior,
            whose predictive distribution is Student's t. Under any other prior on the noise
            ``Exact`` integrates over the noise on a grid.
        standardised: Set by ``fit``: whether the numbers are on the scale of the model.

    Raises:
        SettingError: For a negative noise; from ``fit``, for a weight, bias or noise that is
            neither a prior nor a number, or, with ``conjugate``, for priors on weight or bias that
            are neither Normal nor Flat.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, models, priors
        >>> data = ppgp.Dataset([[0.0], [1.0], [2.0], [3.0]], [1.1, 2.9, 5.1, 6.9])
        >>> least_squares = models.LinearRegression(priors.Flat(), priors.Flat(), priors.Flat())
        >>> posterior = ppgp.fit(least_squares, data, inference.MAP(), progress=False)
        >>> posterior.coefficients()
                           value
        units of the data
        intercept           1.06
        x0                  1.96
        >>> conjugate = models.LinearRegression(noise=priors.InverseGamma(2.0, 1.0), conjugate=True)
        >>> posterior = ppgp.fit(conjugate, data, inference.Exact(), progress=False)
        >>> type(posterior.predict([[1.0]]).distribution).__name__
        'StudentT'
    """

    weight: PriorLike = Normal(0.0, 1.0)
    bias: PriorLike = Normal(0.0, 1.0)
    noise: PriorLike = LogNormal(-1.0, 1.5)
    conjugate: bool = False
    standardised: bool = field(default=False, kw_only=True)
    collapsed = ("weight", "bias", "noise")
    one_mode = takes_stream = True
    roles = ("weights",)

    def sites(self, d: int) -> dict[str, Site]:
        return {
            "weight": site("weight", self.weight, (d,)),
            "bias": site("bias", self.bias),
            "noise": site("noise", self.noise, positive=True),
        }

    def distribution(self, theta: Theta, X: Tensor) -> Distribution:
        loc = linear(self.value(theta, "weight", X), self.value(theta, "bias", X), X)
        return dist.Normal(loc, self.value(theta, "noise", X).sqrt()[..., None])

    def functions_of_rows(self, theta: Theta, X: Tensor) -> Tensor:
        return linear(self.value(theta, "weight", X), self.value(theta, "bias", X), X)[None]

    def likelihood_of_functions(self) -> Likelihood:
        return Gaussian(noise=self.noise)

    def model(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        total: int | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        theta = self._draw_conjugate(X) if self.conjugate else draw(self.sites_at(X.shape[-1]), X)
        return observed(self.distribution(theta, X), X, y, total, weights)

    def _draw_conjugate(self, X: Tensor) -> dict[str, Tensor]:
        """Run the Pyro statements of the sites, with normal priors in units of the noise sd."""
        sites = self.sites_at(X.shape[-1])
        theta = draw({"noise": sites["noise"]}, X)
        sd = self.value(theta, "noise", X).sqrt()
        for name in ("weight", "bias"):
            s, prior = sites[name], bare(getattr(self, name))
            if isinstance(prior, Normal):
                shape, normal = torch.Size(s.shape), prior.distribution(X)
                # sd * 0 gives the mean the batch of the noise
                scaled: Any = dist.Normal(sd * 0 + normal.loc, normal.scale * sd).expand(shape)
                theta[name] = pyro.sample(name, scaled.to_event(len(s.shape)))
            else:
                theta |= draw({name: s}, X)
        return theta

    def prepare(self, data: Dataset) -> LinearRegression:
        """Return this recipe.

        Raises:
            SettingError: With ``conjugate``, for priors on weight or bias that are neither Normal
                nor Flat.
        """
        priors = [bare(p) for p in (self.weight, self.bias) if isinstance(p, Prior)]
        if self.conjugate and not all(isinstance(p, Normal | Flat) for p in priors):
            raise SettingError(
                "Normal or Flat priors on weight and bias with conjugate=True",
                f"{self.weight}, {self.bias}",
                "change them",
            )
        return self

    def in_units(self, scaler: Scaler) -> LinearRegression:
        weight, bias = coefficients_in_units(self.weight, self.bias, scaler, self.conjugate)
        noise = rescaled(self.noise, power(float(scaler.y_sd), -2), what="noise")
        return replace(self, weight=weight, bias=bias, noise=noise)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        noise = times(draws, {"noise": power(float(scaler.y_sd), 2)})
        weight = self.value(draws, "weight", scaler.x_mean)
        return noise | coefficients_of_data(draws, weight, scaler)

    def start(self, data: Dataset) -> dict[str, Tensor]:
        """Return least-squares estimates, whatever the units of X and y."""
        features, y = self._weighted(data)
        size = features.abs().amax(0).clamp_min(torch.finfo(features.dtype).tiny)
        # the driver for columns that depend on each other computes on the CPU alone
        scaled, column = (features / size).cpu(), y[:, None].cpu()
        w = torch.linalg.lstsq(scaled, column, driver="gelsd").solution[:, 0].to(y) / size
        rows = data.n if data.weights is None else float(data.weights.sum())
        least = 1e-6 * (float(y.square().sum() / rows) or 1.0)
        noise = ((y - features @ w).square().sum() / rows).clamp_min(least)
        return {"noise": noise, **self._by_site(w, data.d)}

    def coefficients(self, draws: Theta, scaler: Scaler, X: Tensor) -> dict[str, Tensor]:
        """Return the coefficients in the units of the data; see ``LinearCoefficients``.

        They are "weight" [chain, draw, d] (units of y over units of x_j) and "bias" [chain, draw]
        (units of y).
        """
        weight, bias = with_fixed(self, draws, {"weight": X.shape[1:], "bias": ()}, X)
        weight = weight * scaler.y_sd / scaler.x_sd
        return {
            "weight": weight,
            "bias": scaler.y_mean + scaler.y_sd * bias - weight @ scaler.x_mean,
        }

    # -- the closed form ------------------------------------------------------------

    def _uncertain(self) -> list[str]:
        """Return which of weight and bias have a prior."""
        return [name for name in ("weight", "bias") if isinstance(getattr(self, name), Prior)]

    def _by_site(self, w: Tensor, d: int) -> dict[str, Tensor]:
        """Split the uncertain coefficients [*batch, p] by site."""
        values = {}
        for name in self._uncertain():
            if name == "weight":
                values[name], w = w[..., :d], w[..., d:]
            else:
                values[name], w = w[..., 0], w[..., 1:]
        return values

    def _features(self, X: Tensor) -> Tensor:
        """Return the columns of the uncertain coefficients, [n, p]."""
        columns = {"weight": X, "bias": torch.ones_like(X[:, :1])}
        return torch.cat([columns[name] for name in self._uncertain()] or [X[:, :0]], 1)

    def _weighted(self, data: Dataset) -> tuple[Tensor, Tensor]:
        """Return ``_features`` and y without its fixed part, times the roots of the weights."""
        features, y = self._features(data.X), data.y - self._fixed(data.X)
        if data.offset is not None:  # of a GLM
            y = y - data.offset
        if data.weights is None:
            return features, y
        root = data.weights.sqrt()
        return root[:, None] * features, root * y

    def _fixed(self, X: Tensor) -> Tensor:
        """Return the part of the mean that is fixed, [n]."""
        uncertain = self._uncertain()
        weight: Any = self.weight
        bias: Any = self.bias
        if "weight" in uncertain:
            weight = 0.0
        if "bias" in uncertain:
            bias = 0.0
        return X @ tensor_of(weight, X).expand(X.shape[1]) + bias

    def _known_noise(self, k: int, like: Tensor) -> Tensor:
        """Return the number that the noise is fixed to, [k]."""
        noise = float(cast(float, self.noise))
        return torch.full((k,), noise, dtype=like.dtype, device=like.device)

    def _decomposition(self, train: Dataset) -> Decomposition:
        """Return the decomposition of the normal equations.

        Raises:
            NotApplicable: For priors on weight or bias that are neither Normal nor Flat.
        """
        precision, mean, names = [], [], []
        for name in self._uncertain():
            prior = getattr(self, name)
            if not isinstance(prior, Normal | Flat):
                raise NotApplicable(
                    f"a Normal or Flat prior on {name} for the closed form", repr(prior), "use NUTS"
                )
            size = train.d if name == "weight" else 1
            if isinstance(prior, Normal):
                precision += [s**-2 for s in _per_coefficient(prior.scale, size)]
                mean += _per_coefficient(prior.loc, size)
            else:
                precision += [0.0] * size
                mean += [0.0] * size
            if name == "weight":
                names += list(train.feature_names or map(str, range(train.d)))
            else:
                names.append("the constant (bias)")
        like = {"dtype": train.X.dtype, "device": train.X.device}
        found = decompose(
            *self._weighted(train),
            torch.tensor(precision, **like),
            torch.tensor(mean, **like),
            names,
        )
        n = found.n if train.weights is None else float(train.weights.sum())
        return replace(found, n=n)

    def exact(
        self, train: Dataset, draws: int, generator: torch.Generator
    ) -> tuple[dict, dict, float]:
        """Draw from the exact posterior.

        Given the noise the coefficients are Gaussian. The noise is fixed; or inverse-gamma, if the
        prior is conjugate; or integrated over on a grid, with stratified draws.
        """
        d = self._decomposition(train)
        like = train.X
        e = standard_normal(generator, draws, len(d.fit)).to(like)
        order = permutation(generator, draws)
        u = ((order + standard_uniform(generator, draws)) / draws).to(like)
        params = {"basis": d.basis, "fit": d.fit, "rest": d.rest, "data": d.data, "prior": d.prior}
        out: dict[str, Tensor] = {}
        if not isinstance(self.noise, Prior):
            noise = self._known_noise(draws, like)
            evidence = float(d.log_marginal(noise[:1], self.conjugate))
        elif self.conjugate and isinstance(self.noise, InverseGamma | Flat):
            start = (-1.0, 0.0)
            if isinstance(self.noise, InverseGamma):
                start = (single(self.noise.shape), single(self.noise.rate))
            shape, rate, evidence = conjugate_posterior(d, *start)
            params["noise"] = torch.tensor([shape, rate], dtype=like.dtype, device=like.device)
            noise = out["noise"] = inverse_gamma_quantiles(shape, rate, u)
        else:
            prior = self.sites(train.d)["noise"].distribution(like)
            grid, cdf, evidence = noise_posterior(d, prior.log_prob, like, self.conjugate)
            noise = out["noise"] = invert(grid, cdf, u).exp()
        mean, variance = d.coefficients(noise, self.conjugate)
        w = (mean + variance.sqrt() * e) @ d.basis.mT
        out |= self._by_site(w, train.d)
        return out, {EXACT + name: value for name, value in params.items()}, evidence

    def predict(
        self, theta: Theta, X: Tensor, train: Dataset, *, joint: bool = False
    ) -> Distribution:
        """Return the predictive distribution of y at X; see ``Model.predict``.

        Where theta holds the params of the closed form, as after ``Exact``, the coefficients are
        integrated out: the rows then have Student's t, or a Normal for each draw of the noise.
        """
        if EXACT + "basis" not in theta or joint:
            return predicted(self.distribution, theta, X, joint, linear=True)
        draws = len(theta["noise"]) if "noise" in theta else 1
        return distribution_by_rows(lambda rows: self._integrated(theta, rows), X, draws)

    def _integrated(self, theta: Theta, X: Tensor) -> Distribution:
        """Return the distribution of y with the coefficients integrated out, batch [draw, n]."""
        basis, fit, rest, data, prior = (
            theta[EXACT + name] for name in ("basis", "fit", "rest", "data", "prior")
        )
        features, fixed = self._features(X) @ basis, self._fixed(X)
        if EXACT + "noise" in theta:
            shape, rate = theta[EXACT + "noise"]
            scale = (rate / shape * (1 + features.square().sum(1))).sqrt()
            return dist.StudentT(2 * shape, (fixed + features @ (data + prior))[None], scale[None])
        noise = theta["noise"] if "noise" in theta else self._known_noise(1, X)
        mean, variance = moments(fit, rest, data, prior, noise, self.conjugate)
        sd = (noise[:, None] + variance @ features.square().mT).sqrt()
        return dist.Normal(fixed + mean @ features.mT, sd)

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        return {"y": self.distribution(theta, data.X).log_prob(data.y)}

    # -- full conditionals ----------------------------------------------------------

    def gibbs(self, train: Dataset) -> Callable[[Theta, torch.Generator], dict[str, Tensor]]:
        """Return a Gibbs sweep: the coefficients given the noise, then the noise given them.

        Raises:
            NotApplicable: Unless weight and bias are Normal or Flat, and noise is InverseGamma,
                Flat or a number.
        """
        if isinstance(self.noise, Prior) and not isinstance(self.noise, InverseGamma | Flat):
            raise NotApplicable(
                "an InverseGamma prior on noise for Gibbs",
                repr(self.noise),
                "use that prior, Exact, or NUTS",
            )
        d = self._decomposition(train)
        shape, rate = 0.0, 0.0
        if isinstance(self.noise, Flat):
            shape = -1.0
        elif isinstance(self.noise, InverseGamma):
            shape, rate = cast(float, self.noise.shape), cast(float, self.noise.rate)

        def step(theta: Theta, generator: torch.Generator) -> dict[str, Tensor]:
            if "noise" in theta:
                noise = theta["noise"]
            else:
                some = next(iter(theta.values()))
                noise = self._known_noise(len(some), some)
            mean, variance = d.coefficients(noise, self.conjugate)
            e = standard_normal(generator, *mean.shape).to(mean)
            v = mean + variance.sqrt() * e
            new = self._by_site(v @ d.basis.mT, train.d)
            if "noise" in theta:
                squares, penalty = d.squares(v)
                count = d.n
                if self.conjugate:  # the prior of the coefficients depends on the noise too
                    count, squares = d.n + d.proper, squares + penalty
                a, b = shape + 0.5 * count, rate + 0.5 * squares
                u = standard_uniform(generator, *b.shape)
                new["noise"] = b * inverse_gamma_quantiles(a, 1.0, u).to(b)
            return new

        return step


def _per_coefficient(value: Number, size: int) -> list[float]:
    """Return one number per coefficient."""
    if isinstance(value, tuple):
        return list(value)
    return [value] * size
