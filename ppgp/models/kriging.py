"""Kriging: Gaussian-process regression with an unknown trend, in the words of geostatistics."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset, Scaler
from ..errors import DataError, NotApplicable, SettingError, counted
from ..kernels import Exponential, Kernel
from ..kernels.base import check_kernel
from ..kernels.units import Factor, Units
from ..numerics.blocks import Assembled
from ..numerics.cholesky import add_diagonal, cholesky
from ..numerics.distributions import TrendMarginal
from ..numerics.gls import Solved, solve
from ..priors import Flat, LogNormal, Param, PriorLike, Site, moved, prefixed, site, under
from ..target.capabilities import BlockMeans, JointGaussian, LatentFunction, LeaveOneOut
from .base import Model, full_batch_only
from .drift import Drift, basis, checked, places
from .inducing import medians, refuse_broken
from .known_noise import known_at, refuse_twins, with_known
from .memory_checks import check_memory_of_covariance, check_memory_of_predictions
from .sites import Theta, begun, draw, first_draw, number_of_draws, split_params
from .units import filled

MEMORY_BUDGET = 256 * 2**20  # bytes in the matrices of one chunk of draws or of places
ESTIMATORS = ("reml", "ml")


def scales(where: Tensor, y: Tensor) -> tuple[float, float]:
    """A sill and a range that suit these rows: the variance of y, and a tenth of the diagonal of the box around them."""
    return max(float(y.var()), 1e-12), max(
        float((where.amax(0) - where.amin(0)).norm()) / 10.0, 1e-12
    )


@dataclass(frozen=True, repr=False)
class Kriging(Model, LatentFunction, LeaveOneOut, JointGaussian, BlockMeans):
    """y ~ N(F beta, K + nugget I): simple, ordinary and universal kriging. Cressie (1993), chapter 3; Matheron (1963).

    Args:
        variogram: the covariance, any member of ``ppgp.kernels``: its variance is the (partial) sill, its variogram
            ``variance - k(h)``. A lengthscale is that of the kernel's formula (gstat's range; its Gau has sqrt(2) of it).
            GSLIB's practical range a, where 95 % of the sill is reached: Exponential(lengthscale=a / 3),
            RBF(lengthscale=a / sqrt(6)), Spherical(lengthscale=a). PyKrige has the same but for its gaussian, exp(-(7 h / 4 a)^2).
        nugget: prior (or number) for the variance of what is not continuous, taken as an error of measurement: ``predict`` is the
            law of another measurement (GSLIB's variance away from the rows; at a row GSLIB returns the row), ``latent`` that of
            the surface without it. 0 interpolates.
        drift: "none" (simple kriging), "constant" (ordinary), a degree (universal, all monomials), a tuple of columns of X (an
            external drift; the other columns are the coordinates), or a function of X. A constant is always added.
        mean: prior or number for the known mean; None: that of the training rows. Used with drift "none" alone.
        estimator: the density that the program has: "reml", beta integrated out under a flat prior, or "ml", beta at its best
            for each theta (the profile likelihood: for MAP with ``Flat`` priors; no law of y, so draw from "reml").
        noise_sd: the known error of each measurement [n], on top of the nugget; ``prepare`` takes it from the Dataset.
        neighbours: predict each place from so many nearest rows (Euclidean, in the coordinates), the drift among them; None:
            from all. The density is that of all rows either way.

    Left out (None), variogram and nugget are exponential with priors that ``prepare`` centres on the data: sills around the
    variance of y, ranges around a tenth of the diagonal of the box around the rows, each within a factor of e or so. Rows at
    one place are repeated measurements, told apart by the nugget; a nugget of exactly 0 refuses them. Under ``Flat`` priors a sill
    that the rows do not show runs off to infinity with its range: that limit is ``kernels.LinearVariogram``. O(n^3); all rows at
    once.
    """

    variogram: Kernel | None = None
    nugget: PriorLike | None = None
    drift: Drift = "constant"
    mean: PriorLike | None = None
    estimator: str = "reml"
    neighbours: int | None = None
    noise_sd: Tensor | None = field(default=None, repr=False, compare=False)
    standardised: bool = field(default=False, kw_only=True)
    scales = ""
    known_noise = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kernel(self.kernel)
        object.__setattr__(self, "drift", checked(self.drift))
        if self.estimator not in ESTIMATORS:
            raise SettingError('estimator "reml" or "ml"', repr(self.estimator), "choose one")
        if self.neighbours is not None and (
            type(self.neighbours) is not int or self.neighbours < 1
        ):
            raise SettingError(
                "a whole number of neighbours",
                repr(self.neighbours),
                "pass 1 or more, or None for all rows",
            )
        if self.drift != "none" and self.mean not in (None, 0.0):
            raise SettingError(
                'a known mean with drift="none"',
                f"mean={self.mean!r} and drift={self.drift!r}",
                "drop one",
            )

    @property
    def kernel(self) -> Kernel:
        """The covariance of the surface."""
        return Exponential() if self.variogram is None else self.variogram

    @property
    def density_at_numbers(self) -> str | None:  # type: ignore[override]
        """The profile likelihood is no density of y."""
        return None if self.estimator == "ml" and self.drift != "none" else "log_evidence"

    def value(self, theta: Theta, name: str, like: Tensor) -> Tensor:
        filled = replace(self, nugget=LogNormal(-2.0, 1.0)) if self.nugget is None else self
        return Model.value(filled, theta, name, like)

    def sites(self, d: int) -> dict[str, Site | Param]:
        width = d - len(self.drift) if isinstance(self.drift, tuple) else d
        nugget = LogNormal(-2.0, 1.0) if self.nugget is None else self.nugget
        own = {
            **prefixed("variogram", self.kernel.sites(width)),
            "nugget": site("nugget", nugget, positive=True, zero=True),
        }
        return (
            {**own, "mean": site("mean", 0.0 if self.mean is None else self.mean)}
            if self.drift == "none"
            else own
        )

    def work(self, n: int, d: int) -> float:
        return float(n) ** 3 + super().work(n, d)

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        """Raises NotEnoughMemory where the covariance of n rows, and what its gradient needs, does not fit."""
        check_memory_of_covariance(n, self.kernel, like)

    def prepare(self, data: Dataset) -> Kriging:
        """The recipe with its missing priors filled in, and the known noise of these rows.

        Raises:
            DataError: for rows at one place where the nugget is exactly 0, or a drift that the rows cannot tell.
            SettingError: for fewer neighbours than the drift has functions.
            NumericalError: for a network that starts broken.
        """
        where = places(self.drift, data.X)
        self.sites(data.d)
        refuse_broken(self.kernel, where)
        F = basis(self.drift, data.X, data.X)
        p = F.shape[1]
        if p >= data.n or int(torch.linalg.matrix_rank(F / F.abs().amax(0).clamp_min(1e-300))) < p:
            got = (
                f"{counted(data.n, 'row')} for {p}"
                if p >= data.n
                else "columns that depend on one another"
            )
            raise DataError(
                "more rows than functions in the drift, all different", got, "use a simpler drift"
            )
        if self.neighbours is not None and self.neighbours < p:
            raise SettingError(
                f"at least {counted(p, 'neighbour')} for this drift",
                str(self.neighbours),
                "use more, or a simpler drift",
            )
        if self.nugget == 0:
            own = self.kernel.nugget(
                under("variogram", medians(self.sites(data.d), where, 0)), where
            )
            refuse_twins(where, data.noise_sd, own, "rows at different places", "nugget")
        mean = filled(self.mean, data) if self.drift == "none" else self.mean
        return replace(self._filled(where, data.y), noise_sd=data.noise_sd, mean=mean)

    def in_units(self, scaler: Scaler) -> Kriging:
        """Nothing is standardised: priors come out of their ``InUnitsOfData``."""
        width = len(scaler.x_mean) - (len(self.drift) if isinstance(self.drift, tuple) else 0)
        variogram = None if self.variogram is None else self.variogram.in_units(Units.none(width))
        nugget, mean = (
            None if prior is None else moved(prior) for prior in (self.nugget, self.mean)
        )
        return replace(self, variogram=variogram, nugget=nugget, mean=mean)

    def start(self, data: Dataset) -> dict[str, Tensor]:
        """Where sites begin that have no prior to begin in, in the units of the data; and a kernel's own: the weights of a network that
        has a prior, the frequencies of a spectrum."""
        sites, where = self.sites(data.d), places(self.drift, data.X)
        sill, length = scales(where, data.y)
        width = where.shape[1]
        units = Units(
            (0.0,) * width, (length,) * width, sill**0.5
        )  # where 1 is a number that suits these rows
        found: dict[str, Factor] = self.kernel.factors(units)
        at = {
            f"variogram.{name}": factor
            for name, factor in found.items()
            if isinstance(factor, float)
        }
        at |= {"nugget": sill * math.exp(-2.0), "mean": float(data.y.mean())}
        known = {}
        for name, s in sites.items():
            begins = isinstance(s, Site) and isinstance(s.prior, Flat) and s.prior.start is None
            if begins and math.isfinite(at.get(name, math.nan)):
                known[name] = data.y.new_full(s.shape, at[name])
        return {**known, **begun(sites)}

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """What the fit has made of a network."""
        return self.kernel.check_fit(under("variogram", theta), places(self.drift, data.X))

    def _filled(self, where: Tensor, y: Tensor) -> Kriging:
        sill, size = map(math.log, scales(where, y))
        variogram = (
            Exponential(LogNormal(sill, 1.0), LogNormal(size, 1.0))
            if self.variogram is None
            else self.variogram
        )
        nugget = LogNormal(sill - 2.0, 1.0) if self.nugget is None else self.nugget
        return replace(self, variogram=variogram, nugget=nugget)

    def _covariance(self, theta: Theta, where: Tensor, noise_sd: Tensor | None) -> Tensor:
        return add_diagonal(
            self.kernel(under("variogram", theta), where), self._noise(theta, where, noise_sd)
        )

    def _noise(self, theta: Theta, like: Tensor, noise_sd: Tensor | None) -> Tensor:
        return with_known(self.value(theta, "nugget", like)[..., None], noise_sd)

    def _centre(self, theta: Theta, like: Tensor) -> Tensor:
        """The known mean, [*draw, 1]: 0 where the drift is unknown."""
        return (
            self.value(theta, "mean", like)[..., None]
            if self.drift == "none"
            else like.new_zeros(1)
        )

    def model(self, X: Tensor, y: Tensor | None = None, *, total: int | None = None) -> Tensor:
        full_batch_only(
            self,
            X,
            total,
            "use the full batch; neighbours= makes predictions local, not the density",
        )
        theta = draw(self.sites(X.shape[-1]), X)
        C = self._covariance(theta, places(self.drift, X), known_at(X, self.noise_sd))
        loc = self._centre(theta, X).expand(len(X))
        F = basis(self.drift, X, X)
        return pyro.sample("y", TrendMarginal(loc, C, F, self.estimator == "ml"), obs=y)

    # -- prediction ----------------------------------------------------------------------------------------------

    def _solved(
        self, theta: Theta, train: Dataset
    ) -> Iterator[tuple[slice, dict[str, Tensor], Solved]]:
        """Chunks of draws: which, theta there, and the rows solved under each."""
        F, where = basis(self.drift, train.X, train.X), places(self.drift, train.X)
        drawn, params = split_params(self.sites(train.d), theta)
        size = max(1, MEMORY_BUDGET // (train.X.element_size() * 6 * train.n**2))
        for i in range(0, number_of_draws(drawn), size):
            some = slice(i, i + size)
            part = {**params, **{name: value[some] for name, value in drawn.items()}}
            yield (
                some,
                part,
                solve(
                    self._covariance(part, where, train.noise_sd),
                    train.y - self._centre(part, where),
                    F,
                ),
            )

    def _means(
        self, theta: Theta, blocks: Tensor, train: Dataset, alone: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Mean and variance [draw, m] of the average of f over each block of places [m, k, d], from all rows or the nearest.

        ``alone``: block i is row i of ``train``, which is then not among its own neighbours.
        """
        step = self._places_at_once(theta, blocks, train)
        count = number_of_draws(split_params(self.sites(train.d), theta)[0])
        check_memory_of_predictions(count, len(blocks), blocks)
        means, variances = Assembled(count, len(blocks)), Assembled(count, len(blocks))
        if self.neighbours is not None and self.neighbours < train.n - alone:
            for i in range(0, len(blocks), step):
                mean, variance = self._local(
                    theta, blocks[i : i + step], train, i if alone else None
                )
                means.put(mean, slice(None), i)
                variances.put(variance, slice(None), i)
            return means.whole, variances.whole
        self.check_memory(train.n, train.d, train.X)
        where = places(self.drift, train.X)
        for draws, part, solved in self._solved(theta, train):
            hyper, centre = under("variogram", part), self._centre(part, blocks)
            for i in range(0, len(blocks), step):
                block = blocks[i : i + step]
                m, k = block.shape[:2]
                there = places(self.drift, block)
                K = self.kernel(hyper, where, there.flatten(0, 1))
                new = basis(self.drift, block, train.X).mean(1)
                K = K.reshape(*K.shape[:-1], m, k).mean(-1)
                mean, variance = solved.at(K, new, self._within(part, there, train.d))
                means.put(mean + centre, draws, i)
                variances.put(variance, draws, i)
        return means.whole, variances.whole

    def _places_at_once(self, theta: Theta, blocks: Tensor, train: Dataset) -> int:
        n = min(self.neighbours or train.n, train.n)
        draws = number_of_draws(split_params(self.sites(train.d), theta)[0])
        each = (
            draws * (4 * n * (n if self.neighbours else blocks.shape[1]) + blocks.shape[1] ** 2)
            + train.n
        )
        return max(1, MEMORY_BUDGET // (blocks.element_size() * each))

    def _lifted(self, theta: Theta, d: int) -> dict[str, Tensor]:
        """One axis more after that of the draws, for places [m, k, d]."""
        drawn, params = split_params(self.sites(d), theta)
        return {**params, **{name: value.unsqueeze(1) for name, value in drawn.items()}}

    def _within(self, theta: Theta, there: Tensor, d: int) -> Tensor:
        """Mean covariance of the places of a block with one another, [*draw, m]."""
        if there.shape[1] == 1:
            return self.kernel.diag(under("variogram", theta), there[:, 0])
        return self.kernel(under("variogram", self._lifted(theta, d)), there).mean((-2, -1))

    def _local(
        self, theta: Theta, blocks: Tensor, train: Dataset, first: int | None
    ) -> tuple[Tensor, Tensor]:
        where, there = places(self.drift, train.X), places(self.drift, blocks)
        apart = torch.cdist(there.mean(1), where, compute_mode="donot_use_mm_for_euclid_dist")
        if first is not None:
            rows = torch.arange(len(blocks), device=apart.device)
            apart[rows, first + rows] = torch.inf
        near = apart.topk(self.neighbours or train.n, largest=False).indices  # [m, k]
        lifted = self._lifted(theta, train.d)
        hyper = under("variogram", lifted)
        known = None if train.noise_sd is None else train.noise_sd[near]
        C = add_diagonal(self.kernel(hyper, where[near]), self._noise(lifted, where, known))
        centre = self._centre(theta, where)
        residual = train.y[near] - centre[..., None]
        F = basis(self.drift, train.X, train.X)[near]
        new = basis(self.drift, blocks, train.X).mean(1, keepdim=True)
        K = self.kernel(hyper, where[near], there).mean(-1, keepdim=True)
        prior = self._within(theta, there, train.d)[..., None]
        mean, variance = solve(C, residual, F).at(K, new, prior)
        shape = (-1, len(blocks))
        return (mean[..., 0] + centre).reshape(shape), variance[..., 0].reshape(shape)

    def predict(
        self,
        theta: Theta,
        X: Tensor,
        train: Dataset,
        *,
        joint: bool = False,
        noise_sd: Tensor | None = None,
    ) -> Distribution:
        """The law of a measurement at X: kriging mean, and kriging variance plus the nugget (and the known noise there, [m]).

        Raises:
            NotApplicable: for a joint law from neighbours, as each place has its own.
        """
        nugget = self._noise(theta, X, noise_sd)
        if not joint:
            mean, variance = self._means(theta, X[:, None], train)
            return dist.Normal(mean, (variance + nugget).sqrt())
        if self.neighbours is not None and self.neighbours < train.n:
            raise NotApplicable(
                "a joint law from all rows",
                f"neighbours={self.neighbours}",
                "leave joint or neighbours out",
            )
        where, there, new = (
            places(self.drift, train.X),
            places(self.drift, X),
            basis(self.drift, X, train.X),
        )
        means, spreads = [], []
        for _, part, solved in self._solved(theta, train):
            hyper = under("variogram", part)
            mean, spread = solved.at(
                self.kernel(hyper, where, there), new, self.kernel(hyper, there), joint=True
            )
            means.append((mean + self._centre(part, X)).reshape(-1, len(X)))
            spreads.append(spread.expand(len(means[-1]), -1, -1))
        spread = add_diagonal(torch.cat(spreads), nugget)
        return dist.MultivariateNormal(
            torch.cat(means), scale_tril=cholesky(spread, "predictive covariance")
        )

    def latent(self, theta: Theta, X: Tensor, train: Dataset) -> Distribution:
        """The law of the surface at X, without the nugget: batch [draw, m]."""
        return self.block(theta, X[:, None], train)

    def block(self, theta: Theta, blocks: Tensor, train: Dataset) -> Distribution:
        """The law of the average of the surface over each block of places [m, k, d]: batch [draw, m].

        A nugget has no share in it, as GSLIB has it: over any area it averages out. Journel & Huijbregts (1978), chapter V.
        """
        mean, variance = self._means(theta, blocks, train)
        return dist.Normal(mean, variance.sqrt())

    def trend(self, theta: Theta, X: Tensor, train: Dataset) -> Distribution:
        """The law of the drift F(x) beta at X, by generalised least squares on all rows: batch [draw, m].

        Raises:
            NotApplicable: with drift "none", which has no beta.
        """
        if self.drift == "none":
            raise NotApplicable(
                "a drift to estimate", 'drift="none"', 'use drift="constant", or a degree'
            )
        new, means, variances = basis(self.drift, X, train.X), [], []
        for _, _, solved in self._solved(theta, train):
            beta, root = solved.trend()
            means.append((beta @ new.mT).reshape(-1, len(X)))
            variances.append((new @ root).square().sum(-1).reshape(-1, len(X)))
        return dist.Normal(torch.cat(means), torch.cat(variances).sqrt())

    def gaussian(  # type: ignore[override]
        self, theta: Theta, X: Tensor, train: Dataset, noise_sd: Tensor | None = None
    ) -> tuple[object, ...]:
        """At one draw: covariance of y [n, n], y - mean [n], covariance with f at X [n, m], variance of y there [m], mean [m],
        and the drift's functions (F [n, p], F* [m, p]) or None."""
        if self.neighbours is not None and self.neighbours < train.n:
            raise NotApplicable(
                "predictions from all rows", f"neighbours={self.neighbours}", "leave neighbours out"
            )
        one = first_draw(self.sites(train.d), theta)
        hyper, where, there = (
            under("variogram", one),
            places(self.drift, train.X),
            places(self.drift, X),
        )
        centre = self._centre(one, X)
        variance = self.kernel.diag(hyper, there) + self._noise(one, X, noise_sd)
        drift = (
            None
            if self.drift == "none"
            else tuple(basis(self.drift, Z, train.X) for Z in (train.X, X))
        )
        K = self.kernel(hyper, where, there)
        return (
            self._covariance(one, where, train.noise_sd),
            train.y - centre,
            K,
            variance,
            centre.expand(len(X)),
            drift,
        )

    def loo(self, theta: Theta, train: Dataset) -> Distribution:
        """y_i given the other rows (or the nearest of them), the drift estimated without it: batch [draw, n]. Dubrule (1983)."""
        if self.neighbours is not None and self.neighbours < train.n - 1:
            mean, variance = self._means(theta, train.X[:, None], train, alone=True)
            return dist.Normal(mean, (variance + self._noise(theta, mean, train.noise_sd)).sqrt())
        means, variances = [], []
        for _, _, solved in self._solved(theta, train):
            residual, variance = solved.leave_one_out()
            means.append((train.y - residual).reshape(-1, train.n))
            variances.append(variance.expand(len(means[-1]), -1))
        return dist.Normal(torch.cat(means), torch.cat(variances).sqrt())

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """The likelihood is joint; pointwise it is the leave-one-out density."""
        return {"y": self.loo(theta, data).log_prob(data.y)}
