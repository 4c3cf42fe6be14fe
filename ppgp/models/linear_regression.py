"""Bayesian linear regression, and its exact posterior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset, Scaler
from ..errors import NotApplicable, SettingError
from ..numerics.blocks import distribution_by_rows
from ..numerics.conjugate_linear import (
    Decomposition,
    conjugate_posterior,
    decompose,
    invert,
    moments,
    noise_posterior,
)
from ..priors import (
    Flat,
    InverseGamma,
    LogNormal,
    Normal,
    Number,
    Prior,
    PriorLike,
    Site,
    bare,
    moved,
    single,
    site,
    tensor_of,
)
from ..target.capabilities import ClosedForm, FullConditionals, LinearCoefficients
from .base import Model, linear, with_fixed
from .sites import Theta, draw
from .units import coefficients_in_units, coefficients_of_data, power, times

EXACT = "exact."  # prefix of the params of the closed form


@dataclass(frozen=True, repr=False)
class LinearRegression(Model, ClosedForm, FullConditionals, LinearCoefficients):
    """y ~ N(X weight + bias, noise), weight_j, bias and noise with independent priors. Gelman et al. (2013), chapter 14.

    Least squares is ``LinearRegression(Flat(), Flat(), Flat())``; ridge regression has ``Normal`` weights, a flat bias and
    a number as noise.

    Args:
        weight: prior (or number) of each of the d weights.
        bias: prior or number of the intercept.
        noise: prior or number of the noise variance.
        conjugate: whether the priors' standard deviations of weight and bias are in units of the noise sd; with
            ``noise=InverseGamma(a, b)`` this is the Normal-inverse-gamma prior, whose predictive is Student's t. Under any
            other prior on the noise ``Exact`` integrates over the noise on a grid.
    """

    weight: PriorLike = Normal(0.0, 1.0)
    bias: PriorLike = Normal(0.0, 1.0)
    noise: PriorLike = LogNormal(-1.0, 1.5)
    conjugate: bool = False
    standardised: bool = field(default=False, kw_only=True)
    collapsed = ("weight", "bias", "noise")
    one_mode = True

    def sites(self, d: int) -> dict[str, Site]:
        return {
            "weight": site("weight", self.weight, (d,)),
            "bias": site("bias", self.bias),
            "noise": site("noise", self.noise, positive=True),
        }

    def distribution(self, theta: Theta, X: Tensor) -> Distribution:
        loc = linear(self.value(theta, "weight", X), self.value(theta, "bias", X), X)
        return dist.Normal(loc, self.value(theta, "noise", X).sqrt()[..., None])

    def model(self, X: Tensor, y: Tensor | None = None, *, total: int | None = None) -> Tensor:
        """The Pyro program: X [n, d], y [n]; ``total`` is the number of rows that a mini-batch was taken from."""
        sites = self.sites(X.shape[-1])
        if self.conjugate:
            theta = draw({"noise": sites["noise"]}, X)
            sd = self.value(theta, "noise", X).sqrt()
            for name in ("weight", "bias"):
                s, prior = sites[name], bare(getattr(self, name))
                if isinstance(prior, Normal):
                    shape, law = torch.Size(s.shape), prior.distribution(X)
                    scaled: Any = dist.Normal(sd * 0 + law.loc, law.scale * sd).expand(shape)
                    scaled = scaled.to_event(len(s.shape))
                    theta[name] = pyro.sample(name, scaled)
                else:
                    theta |= draw({name: s}, X)
        else:
            theta = draw(sites, X)
        with pyro.plate("rows", total or len(X), subsample=X):
            return pyro.sample("y", self.distribution(theta, X), obs=y)  # type: ignore[arg-type]

    def prepare(self, data: Dataset) -> LinearRegression:
        """Raises SettingError where ``conjugate`` has no meaning for the priors."""
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
        noise = moved(self.noise, power(float(scaler.y_sd), -2), what="noise")
        return replace(self, weight=weight, bias=bias, noise=noise)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        found = times(draws, {"noise": power(float(scaler.y_sd), 2)})
        return found | coefficients_of_data(
            draws, self.value(draws, "weight", scaler.x_mean), scaler
        )

    def start(self, data: Dataset) -> dict[str, Tensor]:
        """Where searches begin: least squares, whatever the units of X and y."""
        features, y = self._features(data.X), data.y - self._fixed(data.X)
        size = features.abs().amax(0).clamp_min(torch.finfo(features.dtype).tiny)
        w = torch.linalg.lstsq(features / size, y[:, None], driver="gelsd").solution[:, 0] / size
        spread = float(y.square().mean()) or 1.0
        values = {"noise": ((y - features @ w).square().mean()).clamp_min(1e-6 * spread)}
        for name in self._uncertain():
            values[name], w = (w[: data.d], w[data.d :]) if name == "weight" else (w[0], w[1:])
        return values

    def coefficients(self, draws: Theta, scaler: Scaler | None, X: Tensor) -> dict[str, Tensor]:
        """weight [chain, draw, d] (units of y over units of x_j) and bias [chain, draw] (units of y)."""
        weight, bias = with_fixed(self, draws, {"weight": X.shape[1:], "bias": ()}, X)
        if scaler is None:
            return {"weight": weight, "bias": bias}
        weight = weight * scaler.y_sd / scaler.x_sd
        return {
            "weight": weight,
            "bias": scaler.y_mean + scaler.y_sd * bias - weight @ scaler.x_mean,
        }

    # -- the closed form -----------------------------------------------------------------------------------------

    def _uncertain(self) -> list[str]:
        return [name for name in ("weight", "bias") if isinstance(getattr(self, name), Prior)]

    def _features(self, X: Tensor) -> Tensor:
        """[n, p]: a column for each coefficient that is not fixed."""
        columns = {"weight": X, "bias": torch.ones_like(X[:, :1])}
        return torch.cat([columns[name] for name in self._uncertain()] or [X[:, :0]], 1)

    def _fixed(self, X: Tensor) -> Tensor:
        """[n]: the part of the mean that is fixed."""
        fixed = {
            n: 0.0 if isinstance(getattr(self, n), Prior) else getattr(self, n)
            for n in ("weight", "bias")
        }
        return X @ tensor_of(fixed["weight"], X).expand(X.shape[1]) + fixed["bias"]

    def _known_noise(self, k: int, like: Tensor) -> Tensor:
        """[k]: the number that the noise is fixed to."""
        return torch.full((k,), float(self.noise), dtype=like.dtype, device=like.device)  # type: ignore[arg-type]

    def _decomposition(self, train: Dataset) -> Decomposition:
        precision, mean, names = [], [], []
        for name in self._uncertain():
            prior = getattr(self, name)
            if not isinstance(prior, Normal | Flat):
                raise NotApplicable(
                    f"a Normal or Flat prior on {name} for the closed form", repr(prior), "use NUTS"
                )
            size = train.d if name == "weight" else 1
            proper = isinstance(prior, Normal)
            precision += [s**-2 for s in _listed(prior.scale, size)] if proper else [0.0] * size
            mean += _listed(prior.loc, size) if proper else [0.0] * size
            names += (
                list(train.feature_names or map(str, range(train.d)))
                if name == "weight"
                else ["the constant (bias)"]
            )
        like = {"dtype": train.X.dtype, "device": train.X.device}
        return decompose(
            self._features(train.X),
            train.y - self._fixed(train.X),
            torch.tensor(precision, **like),
            torch.tensor(mean, **like),
            names,
        )

    def exact(
        self, train: Dataset, draws: int, generator: torch.Generator
    ) -> tuple[dict, dict, float]:
        """Draws {site: [draw, *event]}, the params of the closed form, and the log evidence.

        Given the noise the coefficients are Gaussian; the noise is fixed, inverse-gamma (conjugate, under such a prior), or
        integrated over on a grid, its draws stratified.
        """
        d = self._decomposition(train)
        like = train.X
        e = torch.randn(draws, len(d.fit), generator=generator, dtype=torch.float64).to(like)
        order = torch.randperm(draws, generator=generator, dtype=torch.int64)
        u = ((order + torch.rand(draws, generator=generator, dtype=torch.float64)) / draws).to(like)
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
            noise = out["noise"] = _inverse_gamma(shape, rate, u)
        else:
            prior = self.sites(train.d)["noise"].distribution(like)
            grid, cdf, evidence = noise_posterior(d, prior.log_prob, like, self.conjugate)
            noise = out["noise"] = invert(grid, cdf, u).exp()
        mean, variance = d.coefficients(noise, self.conjugate)
        w = (mean + variance.sqrt() * e) @ d.basis.mT
        for name in self._uncertain():
            out[name], w = (
                (w[:, : train.d], w[:, train.d :]) if name == "weight" else (w[:, 0], w[:, 1:])
            )
        return out, {EXACT + name: value for name, value in params.items()}, evidence

    def predict(
        self, theta: Theta, X: Tensor, train: Dataset, *, joint: bool = False
    ) -> Distribution:
        """The law of y at X, batch [draw, n]; ``joint``: batch [draw], event [n].

        With the closed form's params the coefficients are integrated out: Student's t, or a Normal for each noise.
        """
        if EXACT + "basis" not in theta or joint:
            return super().predict(theta, X, train, joint=joint)
        draws = len(theta["noise"]) if "noise" in theta else 1
        return distribution_by_rows(lambda rows: self._integrated(theta, rows), X, draws)

    def _integrated(self, theta: Theta, X: Tensor) -> Distribution:
        """The law of y with the coefficients integrated out, batch [draw, n]."""
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
        return dist.Normal(
            fixed + mean @ features.mT, (noise[:, None] + variance @ features.square().mT).sqrt()
        )

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """{"y": log p(y_i given theta), [draw, n]}."""
        return {"y": self.distribution(theta, data.X).log_prob(data.y)}

    # -- conditionals --------------------------------------------------------------------------------------------

    def gibbs(self, train: Dataset) -> Callable[[Theta, torch.Generator], dict[str, Tensor]]:
        """(theta [chain, *event], generator) -> theta: coefficients given the noise, then the noise given them.

        Raises:
            NotApplicable: unless weight and bias are Normal or Flat and noise is InverseGamma, Flat or a number.
        """
        if isinstance(self.noise, Prior) and not isinstance(self.noise, InverseGamma | Flat):
            raise NotApplicable(
                "an InverseGamma prior on noise for Gibbs",
                repr(self.noise),
                "use that prior, Exact, or NUTS",
            )
        d = self._decomposition(train)
        flat = isinstance(self.noise, Flat)
        shape, rate = (
            (-1.0, 0.0)
            if flat
            else (getattr(self.noise, "shape", 0.0), getattr(self.noise, "rate", 0.0))
        )

        def step(theta: Theta, generator: torch.Generator) -> dict[str, Tensor]:
            some = next(iter(theta.values()))
            noise = theta["noise"] if "noise" in theta else self._known_noise(len(some), some)  # type: ignore[arg-type]
            mean, variance = d.coefficients(noise, self.conjugate)
            e = torch.randn(mean.shape, generator=generator, dtype=torch.float64).to(mean)
            v = mean + variance.sqrt() * e
            w, new = v @ d.basis.mT, {}
            for name in self._uncertain():
                new[name], w = (
                    (w[:, : train.d], w[:, train.d :]) if name == "weight" else (w[:, 0], w[:, 1:])
                )
            if "noise" in theta:
                residual, penalty = d.squares(v)
                a = shape + 0.5 * (d.n + (d.proper if self.conjugate else 0))
                b = rate + 0.5 * (residual + (penalty if self.conjugate else 0.0))
                u = torch.rand(b.shape, generator=generator, dtype=torch.float64)
                new["noise"] = b * _inverse_gamma(a, 1.0, u).to(b)
            return new

        return step


def _listed(value: Number, size: int) -> list[float]:
    """One number a coefficient."""
    return list(value) if isinstance(value, tuple) else [value] * size


def _inverse_gamma(shape: float, rate: float, u: Tensor) -> Tensor:
    """Its quantiles at u; torch has no inverse of the incomplete gamma function."""
    from scipy import special

    gamma: Any = special.gammaincinv(shape, 1 - u.double().cpu().numpy())
    return rate / torch.as_tensor(gamma, dtype=u.dtype, device=u.device)
