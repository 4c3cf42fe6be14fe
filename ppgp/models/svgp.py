"""Stochastic variational Gaussian processes: any likelihood, mini-batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..data.dataset import Dataset, Scaler
from ..errors import NotApplicable, NumericalError, SettingError, UnknownName
from ..kernels import RBF, Kernel
from ..kernels.base import check_kernel
from ..likelihoods import Gaussian, Likelihood
from ..likelihoods.expected_log_likelihood import Expected
from ..numerics.blocks import Assembled
from ..numerics.cholesky import add_diagonal, cholesky, factor_or_nan
from ..numerics.collapsed_bound import jittered
from ..numerics.whitened import Moments, divergence, marginals
from ..priors import Normal, Param, Prior, PriorLike, Site, prefixed, site, under
from ..target.capabilities import CollapsedBound, LatentFunction, OwnGuide, SubsetModel
from .base import Model
from .inducing import (
    DEFAULT_INDUCING,
    all_rows,
    check_given,
    check_number,
    medians,
    place,
    refuse_broken,
    say_if_fewer,
    take_given,
)
from .memory_checks import check_memory_of_predictions, check_memory_of_rows
from .sgpr import SGPR
from .sites import Theta, begun, draw, split_params
from .units import filled, level, of_gp, units_of

ROWS_AT_ONCE = 8192
SURVEY = 1000
MATRICES = 8  # of m by n that a gradient holds at once
SUBSET_ROWS = 4000
OBJECTIVES = ("elbo", "ppgpr")
GUIDES = ("natural", "full", "mean_field")
Q = ("v_loc", "v_scale_tril", "v_scale")


@dataclass(frozen=True, repr=False)
class SVGP(Model, LatentFunction, OwnGuide, CollapsedBound, SubsetModel):
    """f ~ GP(mean, kernel), y given f by a likelihood; m inducing variables u = L v carry what the rows say of f.

    Hensman, Fusi & Lawrence (2013); Hensman, Matthews & Ghahramani (2015). The program draws v ~ N(0, I) and gives row i the
    density exp E log p(y_i given f_i), f_i given v: its ELBO under q(v) is the true one, and MCMC on it draws the optimal q of v
    and the hyperparameters, which is the exact posterior where the inducing inputs are the rows (``selection="all"``).

    Args:
        kernel: any member of ``ppgp.kernels``, or a composition. White in it stays in f, where no inducing variable reaches it: a
            bound, and a loose one; Gaussian noise belongs in the likelihood.
        inducing: m; None: 100, or all different rows where there are fewer.
        likelihood: any member of ``ppgp.likelihoods``.
        objective: of SVI: "elbo", or "ppgpr", log of the predictive density in place of its expected logarithm (Jankowiak, Pleiss
            & Gardner 2020): better calibrated variances, and no bound.
        q: of v under SVI: "natural" (full covariance, moved along its natural gradient), "full" or "mean_field" (moved with the
            rest). None: "natural", but "full" for ppgpr.
        selection: how inducing inputs are placed in ``prepare``: "kmeans", "random", "conditional_variance", "bound" or "all".
        learn: whether SVI and MAP move them.
        mean: prior or number of the constant mean of each latent function; None: the mean of the training rows, and 0 under a likelihood
            of classes or counts.
        seed: of the selection.
        Z: inducing inputs by hand, in the units of X, in place of ``inducing`` and ``selection``.

    Fit it by SVI or NUTS. MAP and Laplace find the joint mode of v and the hyperparameters, a poor fit, and say so; with numbers
    for all hyperparameters Laplace is the usual approximation of f. A step on b rows costs O(b m^2 + m^3).
    """

    kernel: Kernel = field(default_factory=RBF)
    inducing: int | None = None
    likelihood: Likelihood = field(default_factory=Gaussian)
    objective: str = "elbo"
    q: str | None = None
    selection: str = "kmeans"
    learn: bool = True
    mean: PriorLike | None = None
    seed: int = 0
    Z: Any = field(default=None, repr=False, compare=False)
    standardised: bool = field(default=False, kw_only=True)
    collapsed = ("v",)
    latent_values = ("v",)

    def __post_init__(self) -> None:
        super().__post_init__()
        take_given(self)
        check_kernel(self.kernel)
        if not isinstance(self.likelihood, Likelihood):
            raise SettingError(
                "a member of ppgp.likelihoods as likelihood",
                repr(self.likelihood),
                "for example Bernoulli()",
            )
        if self.objective not in OBJECTIVES:
            raise UnknownName("objective", self.objective, OBJECTIVES)
        if self.q is not None and self.q not in GUIDES:
            raise UnknownName("q", self.q, GUIDES)
        if self.q == "natural" and self.objective == "ppgpr":
            raise SettingError(
                "q='full' or 'mean_field' with objective='ppgpr'", "q='natural'", "leave q out"
            )
        check_number(self.inducing)

    @property
    def scales(self) -> str:  # type: ignore[override]
        return self.likelihood.scales

    def sites(self, d: int) -> dict[str, Site | Param]:
        """Hyperparameters and v; of shape [K, m] where a row has K latent functions."""
        m = DEFAULT_INDUCING if self.inducing is None else self.inducing
        return {**self._hyper(d), "v": self._v(m if self.Z is None else len(self.Z))}

    def _hyper(self, d: int) -> dict[str, Site | Param]:
        return {
            **prefixed("kernel", self.kernel.sites(d)),
            **self.likelihood.sites(),
            "mean": site("mean", 0.0 if self.mean is None else self.mean),
        }

    def _v(self, m: int) -> Site:
        k = self.likelihood.latents
        return Site(Normal(0.0, 1.0), (k, m) if k > 1 else (m,))

    def work(self, n: int, d: int) -> float:
        m = DEFAULT_INDUCING if self.inducing is None else self.inducing
        return float(n) * m * m + super().work(n, d)

    @property
    def survey(self) -> int | None:  # type: ignore[override]
        """Some of the rows, unless inducing inputs are still to be chosen among them."""
        return None if self.Z is None else SURVEY

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        """Raises NotEnoughMemory where the covariances of the inducing inputs with so many rows at once do not fit."""
        m = DEFAULT_INDUCING if self.inducing is None else self.inducing
        name = f"the covariances of {m:,} inducing inputs with the rows"
        check_memory_of_rows(
            n, MATRICES * m, like, name, "pass SVI(batch_size=1000), or use fewer inducing inputs"
        )

    def prepare(self, data: Dataset) -> SVGP:
        """With a likelihood, a mean and inducing inputs for these rows.

        Raises:
            SettingError: if there are more inducing inputs than rows.
            DataError: if fewer rows differ, y does not fit the likelihood, or a Z given by hand repeats itself or has other columns.
            NumericalError: if a network starts broken.
        """
        mean = filled(self.mean, data, numbers="y" in self.scales)
        ready = replace(self, likelihood=self.likelihood.prepare(data), mean=mean)
        refuse_broken(self.kernel, data.X)
        if self.Z is not None:
            check_given(self.Z, data.d)
            return ready
        Z = ready._select(data.X, data.y)
        if self.selection != "all":
            say_if_fewer(Z, self.inducing, data.X)
        return replace(ready, Z=Z, inducing=len(Z))

    def check(self, data: Dataset) -> None:
        replace(self, selection="random" if self.selection == "kmeans" else self.selection).prepare(
            data
        )

    def _select(self, X: Tensor, y: Tensor | None) -> Tensor:
        if self.selection == "all":
            return all_rows(X, self.inducing)
        if self.selection == "bound" and not isinstance(self.likelihood, Gaussian):
            raise NotApplicable(
                "Gaussian noise to select by the bound",
                type(self.likelihood).__name__,
                "use 'conditional_variance'",
            )
        middle = medians(self._hyper(X.shape[1]), X, self.seed)
        r = None if y is None else y - self.value(middle, "mean", X)
        noise = middle.get("noise", X.new_ones(()))
        return place(
            self.selection, self.inducing, self.kernel, middle, X, r, float(noise), self.seed
        )

    def in_units(self, scaler: Scaler) -> SVGP:
        Z = None if self.Z is None else scaler.inputs(self.Z.to(scaler.x_mean))
        kernel, mean = self.kernel.in_units(units_of(scaler)), level(self.mean, scaler)
        return replace(
            self,
            kernel=kernel,
            likelihood=self.likelihood.in_units(float(scaler.y_sd)),
            mean=mean,
            Z=Z,
        )

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        own = {f"kernel.{name}": f for name, f in self.kernel.factors(units_of(scaler)).items()}
        return of_gp(
            draws, {**own, **self.likelihood.factors(float(scaler.y_sd)), "v": 1.0}, scaler
        )

    def start(self, data: Dataset) -> dict[str, Tensor]:
        """The initial weights of a network that has a prior."""
        return begun(self._hyper(data.d))

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """What the fit has made of a network."""
        return self.kernel.check_fit(under("kernel", theta), data.X)

    # -- the program, its guide and its bound --------------------------------------------------------------------

    def _inducing(self, X: Tensor) -> Tensor:
        """The param, which is Z unless something has moved it."""
        if self.Z is None and not self.learn:
            raise SettingError(
                "inducing inputs", "an SVGP that has not seen data", "call prepare(data) first"
            )
        Z = X.new_zeros(()) if self.Z is None else self.Z.to(X)
        return (
            pyro.param("inducing", Z if self.Z is not None else lambda: self._select(X, None))
            if self.learn
            else Z
        )

    def _prior(self, theta: Theta, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Kmm [m, m] with its jitter, Kmn [m, b] and the diagonal of Knn [b], at one draw."""
        kernel, hyper, (Z, X) = self.kernel.to_feature_space(under("kernel", theta), Z, X)
        return jittered(kernel.shared(hyper, Z)), kernel(hyper, Z, X), kernel.diag(hyper, X)

    def _whitened(self, theta: Theta, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
        """A = L^-1 Kmn [m, b], NaN where Kmm has no root, and the diagonal of Knn [b], at one draw."""
        Kmm, Kmn, diagonal = self._prior(theta, X, Z)
        return torch.linalg.solve_triangular(factor_or_nan(Kmm), Kmn, upper=False), diagonal

    def model(self, X: Tensor, y: Tensor | None = None, *, total: int | None = None) -> Tensor:
        Z = self._inducing(X)
        theta = draw({**self._hyper(X.shape[-1]), "v": self._v(len(Z))}, X)
        mean, variance = self._given_v(theta, X, Z)
        with pyro.plate("rows", total or len(X), subsample=X):
            return pyro.sample("y", Expected(self.likelihood, theta, mean, variance), obs=y)

    def _variational(self, Z: Tensor) -> dict[str, Tensor]:
        """The params of q(v), which begins as the prior."""
        shape = self._v(len(Z)).shape
        loc = pyro.param("v_loc", lambda: Z.new_zeros(shape))
        if self.q == "mean_field":
            return {
                "v_loc": loc,
                "v_scale": pyro.param(
                    "v_scale", lambda: Z.new_ones(shape), constraint=constraints.positive
                ),
            }
        eye = torch.eye(len(Z)).to(Z).expand(*shape, len(Z))
        return {
            "v_loc": loc,
            "v_scale_tril": pyro.param(
                "v_scale_tril", lambda: eye.clone(), constraint=constraints.lower_cholesky
            ),
        }

    def guide(self, X: Tensor, y: Tensor | None = None, *, total: int | None = None) -> None:
        """q(v), and a Delta on each hyperparameter, for Pyro's own SVI."""
        sites = self._hyper(X.shape[-1])
        for name, one in sites.items():
            if isinstance(one, Site) and isinstance(one.prior, Prior):
                support = one.distribution(X).support  # type: ignore[attr-defined]
                value = pyro.param(
                    f"{name}.value",
                    lambda n=name, s=one: medians({n: s}, X, self.seed)[n],
                    constraint=support,
                )
                pyro.sample(name, dist.Delta(value, event_dim=len(one.shape)))
        q = self._variational(self._inducing(X))
        axes = q["v_loc"].ndim
        if "v_scale" in q:
            pyro.sample("v", dist.Normal(q["v_loc"], q["v_scale"]).to_event(axes))  # type: ignore[attr-defined]
        else:
            pyro.sample(
                "v",
                dist.MultivariateNormal(q["v_loc"], scale_tril=q["v_scale_tril"]).to_event(
                    axes - 1
                ),
            )

    def elbo(self, theta: Theta, X: Tensor, y: Tensor, *, total: int) -> Tensor:
        """E_q log p(y given f) - KL(q(v) from N(0, I)), from b of ``total`` rows without bias; theta {site: [*event]} with the params
        of q in place of v. ("ppgpr": its own objective.)"""
        Z = self._of(theta, X)
        width = (
            max(1, len(X)) if torch.is_grad_enabled() else ROWS_AT_ONCE
        )  # a gradient needs all that it was made from
        parts = [
            self._fit_of(theta, a, b, Z)
            for a, b in zip(X.split(width), y.split(width), strict=True)
        ]
        fitted = parts[0] if len(parts) == 1 else torch.stack(parts).sum()
        return fitted * (total / len(X)) - divergence(theta["v_loc"], _spread(theta))

    def _fit_of(self, theta: Theta, X: Tensor, y: Tensor, Z: Tensor) -> Tensor:
        """E_q log p(y given f) of some rows, or PPGPR's sum."""
        mean, variance = self._under_q(theta, X, Z)
        if self.objective == "ppgpr":
            return self.likelihood.marginal(theta, mean, variance).log_prob(y).sum()
        return self.likelihood.expected(theta, mean, variance, y).sum()

    def collapsed_elbo(self, X: Tensor, y: Tensor, *, total: int | None = None) -> None:
        """The program with ``elbo`` in place of v and the likelihood: its density is what SVI climbs."""
        Z = self._inducing(X)
        theta = {**draw(self._hyper(X.shape[-1]), X), "inducing": Z, **self._variational(Z)}
        pyro.factor("elbo", self.elbo(theta, X, y, total=total or len(X)))

    def _under_q(self, theta: Theta, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance [(K,) b] of f, v integrated out."""
        mean, variance = marginals(*self._prior(theta, X, Z), theta["v_loc"], _spread(theta))
        return mean + self.value(theta, "mean", X), variance

    def natural(
        self, theta: Theta, X: Tensor, y: Tensor, *, total: int, rate: float
    ) -> tuple[dict[str, Tensor], Tensor] | None:
        """The params of q(v) after a step of ``rate`` along the natural gradient of ``elbo``, and ``elbo`` before it; None where q
        moves with the rest. With Gaussian noise, all rows and rate 1 it ends at the optimum. Salimbeni, Eleftheriadis & Hensman
        (2018)."""
        if self.objective != "elbo" or self.q not in (None, "natural"):
            return None
        loc, W = theta["v_loc"], theta["v_scale_tril"]
        level, Z = self.value(theta, "mean", X), self._of(theta, X)
        moments, value, weight = Moments(loc), -divergence(loc, W), total / len(X)
        for rows in torch.arange(len(X)).split(ROWS_AT_ONCE):
            with torch.no_grad():
                A, diagonal = self._whitened(theta, X[rows], Z)
                spread = (W.mT @ A).square().sum(-2) - A.square().sum(0)
                mean, variance = loc @ A, (diagonal + spread).clamp_min(0.0)
            with torch.enable_grad():
                mean, variance = mean.requires_grad_(True), variance.requires_grad_(True)
                part = self.likelihood.expected(theta, mean + level, variance, y[rows]).sum()
                g, h = torch.autograd.grad(part, (mean, variance))
            moments.add(A, mean.detach(), g, h)
            value = value + weight * part.detach()
        loc, W = moments.step(loc, W, weight, rate)
        return {"v_loc": loc, "v_scale_tril": W}, value

    def subset_model(self, data: Dataset) -> tuple[Model, Dataset] | None:
        """A cheaper model of the same hyperparameters on fewer rows, whose mode is where SVI begins; None where there is none."""
        deep = any(isinstance(s, Param) for s in self.kernel.sites(data.d).values())
        if not isinstance(self.likelihood, Gaussian) or deep or self.Z is None:
            return None
        order = torch.randperm(data.n, generator=torch.Generator().manual_seed(self.seed))[
            : max(SUBSET_ROWS, 2 * len(self.Z))
        ]
        own = {"learn": self.learn, "Z": self.Z, "inducing": self.inducing}
        small = SGPR(
            self.kernel, noise=self.likelihood.noise, mean=self.mean, seed=self.seed, **own
        )
        return small, data.rows(order.sort().values)

    # -- predictions ---------------------------------------------------------------------------------------------

    def _of(self, theta: Theta, like: Tensor) -> Tensor:
        """The inducing inputs behind theta."""
        if "inducing" in theta:
            return theta["inducing"].to(like)
        return self._select(like, None) if self.Z is None else self.Z.to(like)

    def _one_by_one(self, theta: Theta, d: int) -> Iterator[dict[str, Tensor]]:
        """theta of each draw; without v where the params of q are there."""
        params = {k: v for k, v in theta.items() if k in Q or k == "inducing"}
        drawn, networks = split_params(
            self._hyper(d), {k: v for k, v in theta.items() if k not in params}
        )
        if "v_loc" in params:
            drawn.pop("v", None)
        for i in range(next((len(v) for v in drawn.values()), 1)):
            yield {**params, **networks, **{k: v[i] for k, v in drawn.items()}}

    def _moments(self, theta: Theta, X: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Mean and variance [draw, (K,) n] of f, and the sites of the likelihood [draw]."""
        names, K = self.likelihood.sites(), self.likelihood.latents
        every = list(self._one_by_one(theta, X.shape[1]))
        inner = (K,) if K > 1 else ()
        check_memory_of_predictions(len(every) * K, len(X), X)
        means, variances, others = (
            Assembled(len(every), len(X), inner),
            Assembled(len(every), len(X), inner),
            [],
        )
        for i, one in enumerate(every):
            Z = self._of(one, X)
            law = self._under_q if "v_loc" in one else self._given_v
            for row in range(0, max(1, len(X)), ROWS_AT_ONCE):
                mean, variance = law(one, X[row : row + ROWS_AT_ONCE], Z)
                if not bool(torch.isfinite(mean).all()):
                    raise NumericalError(
                        "a positive definite covariance of the inducing inputs",
                        "one that is not",
                        "use fewer, or a shorter lengthscale",
                    )
                means.put(mean, slice(i, i + 1), row)
                variances.put(variance, slice(i, i + 1), row)
            others.append({k: one[k] for k in names if k in one})
        return (
            means.whole,
            variances.whole,
            {k: torch.stack([o[k] for o in others]) for k in others[0]},
        )

    def _given_v(self, theta: Theta, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance [(K,) b] of f given v."""
        A, diagonal = self._whitened(theta, X, Z)
        mean = theta["v"] @ A + self.value(theta, "mean", X)
        least = torch.finfo(diagonal.dtype).eps * diagonal
        return mean, torch.maximum(diagonal - A.square().sum(0), least).expand_as(mean)

    def predict(
        self, theta: Theta, X: Tensor, train: Dataset, *, joint: bool = False
    ) -> Distribution:
        if joint:
            return self._joint(theta, X)
        mean, variance, others = self._moments(theta, X)
        return self.likelihood.marginal(others, mean, variance)

    def _joint(self, theta: Theta, X: Tensor) -> Distribution:
        if not isinstance(self.likelihood, Gaussian):
            raise NotApplicable(
                "Gaussian noise for a joint law",
                type(self.likelihood).__name__,
                "predict without joint=True, or sample latent",
            )
        means, roots = [], []
        for one in self._one_by_one(theta, X.shape[1]):
            hyper, Z = under("kernel", one), self._of(one, X)
            A, _ = self._whitened(one, X, Z)
            spread = self.kernel(hyper, X) - A.mT @ A
            if "v_loc" in one:
                P = one["v_scale"][:, None] * A if "v_scale" in one else one["v_scale_tril"].mT @ A
                spread = spread + P.mT @ P
            means.append(one["v_loc" if "v_loc" in one else "v"] @ A + self.value(one, "mean", X))
            roots.append(
                cholesky(
                    add_diagonal(spread, self.likelihood.value(one, "noise", X)),
                    "predictive covariance",
                )
            )
        return dist.MultivariateNormal(torch.stack(means), scale_tril=torch.stack(roots))

    def latent(self, theta: Theta, X: Tensor, train: Dataset) -> Distribution:
        """The law of f at X, batch [draw, n].

        Raises:
            NotApplicable: for several latent functions.
        """
        if self.likelihood.latents > 1:
            raise NotApplicable(
                "one latent function", f"{self.likelihood.latents}, one a class", "use predict"
            )
        mean, variance, _ = self._moments(theta, X)
        return dist.Normal(mean, variance.sqrt_())


def _spread(theta: Theta) -> Tensor:
    """The root of q's covariance, or its sds where that is diagonal."""
    return theta["v_scale"] if "v_scale" in theta else theta["v_scale_tril"]
