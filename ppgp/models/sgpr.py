"""Sparse Gaussian-process regression: inducing inputs, q(u) in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ..data.dataset import Dataset, Scaler
from ..errors import NotApplicable, NumericalError, SettingError
from ..kernels import RBF, Kernel, Unscaled
from ..kernels.base import check_kernel
from ..numerics.blocks import Assembled
from ..numerics.cholesky import add_diagonal, cholesky
from ..numerics.collapsed_bound import Projection, SparseMarginal, inducing_root
from ..priors import LogNormal, Param, PriorLike, Site, moved, prefixed, site, tensor_of, under
from ..target.capabilities import LatentFunction, LeaveOneOut, Reselects, WarmStart
from .base import Model, full_batch_only, made_from
from .gp import GP
from .inducing import (
    DEFAULT_INDUCING,
    check_given,
    check_number,
    medians,
    place,
    refuse_broken,
    say_if_fewer,
    take_given,
)
from .memory_checks import check_memory_of_predictions, check_memory_of_rows
from .sites import Theta, begun, draw, number_of_draws, split_params
from .units import filled, level, of_gp, power, units_of

ROWS_AT_ONCE = 8192
SUBSET_ROWS = 1024
STREAMED = 256 * 2**20  # bytes of Kmn
MATRICES = 6  # of the size of Kmn that a gradient holds at once


@dataclass(frozen=True, repr=False)
class SGPR(Model, LatentFunction, LeaveOneOut, WarmStart, Reselects):
    """y ~ N(mean, K + noise I), the evidence replaced by its collapsed lower bound over m inducing inputs. Titsias (2009).

    Args:
        kernel: any member of ``ppgp.kernels``, or a composition.
        inducing: m; None: 100, or all different rows where there are fewer. At m = n and Z = X this is the exact GP.
        selection: how they are placed in ``prepare``: "kmeans", "random", "conditional_variance" or "bound" (greedy, at the
            medians of the priors; ``reselected`` places them again at fitted values). Under a deep kernel "kmeans" is of features.
            None: "kmeans", but "random" where they are learnt, and MAP then begins from those of conditional variance at the mode of
            its subset model.
        learn: whether MAP and SVI move them by gradient (they are the param ``inducing``).
        reselect: place them again every so many steps of MAP("adam") or MAP("sgd"), at the weights and hyperparameters reached,
            in place of moving them by gradient.
        noise, mean: as in ``GP``; noise cannot be 0.
        seed: of the selection.
        Z: inducing inputs by hand, in the units of X, in place of ``inducing`` and ``selection``.

    O(n m^2) time, rows in chunks. The density is a bound, so that samplers draw from what is
    proportional to it; ``bounds`` says how far it may be from the evidence.
    """

    kernel: Kernel = field(default_factory=RBF)
    inducing: int | None = None
    selection: str | None = None
    learn: bool = False
    noise: PriorLike = LogNormal(-2.0, 1.0)
    mean: PriorLike | None = None
    seed: int = 0
    reselect: int | None = None
    Z: Any = field(default=None, repr=False, compare=False)
    standardised: bool = field(default=False, kw_only=True)
    density_at_numbers = "elbo"

    def __post_init__(self) -> None:
        super().__post_init__()
        take_given(self)
        check_kernel(self.kernel)
        check_number(self.inducing)
        if self.reselect is not None and (self.learn or self.reselect < 1):
            got = "learn=True" if self.learn else repr(self.reselect)
            raise SettingError(
                "reselect=None, or a positive number of steps without learn", got, "leave one out"
            )

    def sites(self, d: int) -> dict[str, Site | Param]:
        return {
            **prefixed("kernel", self.kernel.sites(d)),
            "noise": site("noise", self.noise, positive=True),
            "mean": site("mean", 0.0 if self.mean is None else self.mean),
        }

    def work(self, n: int, d: int) -> float:
        m = DEFAULT_INDUCING if self.inducing is None else self.inducing
        return float(n) * m * m + super().work(n, d)

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        """Raises NotEnoughMemory where the covariances with the inducing inputs, which go over the rows in chunks past ``STREAMED``
        bytes, do not fit."""
        m = DEFAULT_INDUCING if self.inducing is None else self.inducing
        numbers = (
            min(MATRICES * m, MATRICES * STREAMED / (like.element_size() * n)) + 10 * m * m / n
        )
        check_memory_of_rows(
            n,
            numbers,
            like,
            f"the covariances of {m:,} inducing inputs with the rows",
            "use fewer inducing inputs",
        )

    def prepare(self, data: Dataset) -> SGPR:
        """With inducing inputs for these rows, and their mean.

        Raises:
            SettingError: if there are more inducing inputs than rows.
            DataError: if fewer rows differ, or a Z given by hand repeats itself or has other columns.
            NotApplicable: for a White that is larger in some rows than in others.
            NumericalError: if a network starts broken.
        """
        self.sites(data.d)
        refuse_broken(self.kernel, data.X)
        own = self.kernel.nugget(under("kernel", self._medians(data.X)), data.X)
        if own is not None and float(own.max() - own.min()) > 1e-6 * float(own.max()):
            do = "use GP, or White by itself in a sum"
            raise NotApplicable(
                "a White that is the same in every row",
                "one multiplied by a kernel that is not",
                do,
            )
        if self.Z is not None:
            check_given(self.Z, data.d)
        ready = replace(self, mean=filled(self.mean, data))
        if self.Z is not None:
            return ready
        Z = ready._select(self._medians(data.X), data.X, data.y)
        say_if_fewer(Z, self.inducing, data.X)
        return replace(ready, Z=Z, inducing=len(Z))

    def check(self, data: Dataset) -> None:
        if self.Z is not None:
            self.prepare(data)
        else:
            replace(
                self, selection="random" if self._how in ("kmeans", "random") else self._how
            ).prepare(data)

    def in_units(self, scaler: Scaler) -> SGPR:
        noise = moved(self.noise, power(float(scaler.y_sd), -2), what="noise")
        kernel, mean = self.kernel.in_units(units_of(scaler)), level(self.mean, scaler)
        return replace(
            self,
            kernel=kernel,
            noise=noise,
            mean=mean,
            Z=None if self.Z is None else scaler.inputs(self.Z.to(scaler.x_mean)),
        )

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        return of_gp(
            draws,
            {f"kernel.{name}": f for name, f in self.kernel.factors(units_of(scaler)).items()},
            scaler,
        )

    def start(self, data: Dataset) -> dict[str, Tensor]:
        """Where a kernel's own sites begin: the weights of a network that has a prior, the frequencies of a spectrum."""
        return begun(self.sites(data.d))

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """What the fit has made of a network."""
        return self.kernel.check_fit(under("kernel", theta), data.X)

    @property
    def _how(self) -> str:
        return self.selection or ("random" if self.learn else "kmeans")

    def subset_model(self, data: Dataset) -> tuple[GP, Dataset] | None:
        """An exact GP of some of the rows, at random: its hyperparameters make up for no lack of inducing inputs."""
        deep = any(isinstance(s, Param) for s in self.kernel.sites(data.d).values())
        if deep or data.n < 2 * SUBSET_ROWS:  # L-BFGS would fit a network to few rows
            return None
        generator = torch.Generator().manual_seed(self.seed)
        some = torch.randperm(data.n, generator=generator)[:SUBSET_ROWS].to(data.X.device)
        return GP(self.kernel, self.noise, self.mean), data.rows(some)

    def warm_start(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """The subset model's sites; inducing inputs that are learnt, and were not placed by the user (a Z without a number), by conditional
        variance there.

        The noise begins with what the inducing inputs leave unexplained of f, which the subset model knows nothing of.
        """
        start = dict(theta)
        if self.learn and self.selection is None and self.inducing is not None:
            Z = replace(self, selection="conditional_variance")._select(theta, data.X, data.y)
            if (
                len(Z) == self.inducing
            ):  # not so under a lengthscale so long that fewer rows span the rest
                start["inducing"] = Z
        if "noise" in start:
            law = self._law(theta, data.X, start.get("inducing", self._of(theta, data.X)))
            gap = law.project(data.y, inducing_root(law.Kmm)).gap / data.n
            start["noise"] = start["noise"] + torch.nan_to_num(gap).clamp_min(0.0)
        return start

    def step_scales(self, theta: Theta) -> dict[str, Tensor]:
        """Inducing inputs move by lengthscales, where there is one a column: twice that, as they have far to go."""
        lengthscale = theta.get("kernel.lengthscale")
        if lengthscale is None:
            return {}
        factor = self.kernel.factor if isinstance(self.kernel, Unscaled) else 1.0
        return {"inducing": 2.0 * lengthscale.detach() / tensor_of(factor, lengthscale)}

    def chunked(self, data: Dataset) -> bool:
        """Past 256 MB of covariances; a graph would hold every chunk while it is traced."""
        m = DEFAULT_INDUCING if self.Z is None else len(self.Z)
        return data.n * m * data.X.element_size() > STREAMED

    def reselected(self, theta: Theta, data: Dataset) -> SGPR:
        """Inducing inputs placed again, at hyperparameters theta {site: [*event]} (one draw), for another fit."""
        return made_from(replace(self, Z=self._select(theta, data.X, data.y)), self)

    def reselected_inducing(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """The param ``inducing`` placed again, at theta {site: [*event]} with the network's params: what ``reselect`` asks for.
        Nothing where fewer rows than there are inducing inputs span the rest."""
        Z = self._select(theta, data.X, data.y)
        return {"inducing": Z} if self.Z is None or len(Z) == len(self.Z) else {}

    def _medians(self, X: Tensor) -> dict[str, Tensor]:
        return medians(self.sites(X.shape[1]), X, self.seed)

    def _select(self, theta: Theta, X: Tensor, y: Tensor | None) -> Tensor:
        noise = float(self.value(theta, "noise", X))
        r = None if y is None else y - self.value(theta, "mean", X)
        return place(self._how, self.inducing, self.kernel, theta, X, r, noise, self.seed)

    def _inducing(self, X: Tensor) -> Tensor:
        """The param, which is Z unless something has moved it."""
        Z = self.Z if self.Z is not None else self._select(self._medians(X), X, None)
        return pyro.param("inducing", Z.to(X)) if self.learn or self.reselect else Z.to(X)

    def _law(self, theta: Theta, X: Tensor, Z: Tensor) -> SparseMarginal:
        """One draw: theta {site: [*event]}."""
        kernel, hyper, (Z, X) = self.kernel.to_feature_space(under("kernel", theta), Z, X)
        Kmm, diagonal = kernel.shared(hyper, Z), kernel.diag(hyper, X)
        own = kernel.nugget(hyper, Z)
        if own is not None:  # what no other row shares is noise
            diagonal = diagonal - own[0]

        def cross(block: Tensor, Z: Tensor, *values: Tensor) -> Tensor:
            return kernel(dict(zip(hyper, values, strict=True)), Z, block)

        mean, noise = self.value(theta, "mean", X), self.value(theta, "noise", X)
        noise = noise if own is None else noise + own[0]
        return SparseMarginal(
            mean.expand(len(X)), Kmm, cross, (Z, *hyper.values()), X, diagonal, noise
        )

    def model(self, X: Tensor, y: Tensor | None = None, *, total: int | None = None) -> Tensor:
        full_batch_only(
            self, X, total, "use the full batch (its cost grows linearly with the rows), or SVGP"
        )
        theta = draw(self.sites(X.shape[-1]), X)
        return pyro.sample("y", self._law(theta, X, self._inducing(X)), obs=y)

    def _of(self, theta: Theta, like: Tensor) -> Tensor:
        """The inducing inputs behind theta."""
        if "inducing" in theta:
            return theta["inducing"].to(like)
        if self.Z is None:
            return self._select(self._medians(like), like, None)
        return self.Z.to(like)

    def _one_by_one(
        self, theta: Theta, train: Dataset
    ) -> Iterator[tuple[dict[str, Tensor], Tensor, Tensor, Tensor, Projection]]:
        """(theta of a draw, Z, L, all that is not smooth: the noise of y and White in f, what the rows say), draw by draw."""
        drawn, params = split_params(
            self.sites(train.d), {k: v for k, v in theta.items() if k != "inducing"}
        )
        for i in range(number_of_draws(drawn)):
            one = {**params, **{k: v[i] for k, v in drawn.items()}}
            Z = self._of(theta, train.X)
            law = self._law(one, train.X, Z)
            L = inducing_root(law.Kmm)
            if not bool(torch.isfinite(L).all()):
                raise NumericalError(
                    "a positive definite covariance of the inducing inputs",
                    "one that is not",
                    "use fewer, or a shorter lengthscale",
                )
            yield one, Z, L, law.noise, law.project(train.y, L)

    def bounds(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor]:
        """Lower and upper bound on log p(y given theta), Titsias (2009) and (2014): [draw], or [] for theta without a draw axis.

        theta and data are on one scale: after a fit, ``posterior.model.bounds(posterior.theta, posterior.data)``.
        """
        axes = {name: len(s.shape) for name, s in self.sites(data.d).items() if isinstance(s, Site)}
        single = all(v.ndim == axes[k] for k, v in theta.items() if k in axes)
        batch = {k: v[None] if single and k in axes else v for k, v in theta.items()}
        found = []
        for _, _, _, noise, rows in self._one_by_one(batch, data):
            found.append(torch.stack([rows.lower(noise), rows.upper(noise)]))
        lower, upper = torch.stack(found, 1)
        return (lower[0], upper[0]) if single else (lower, upper)

    def inducing_posterior(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor]:
        """q(u) at each draw: mean [draw, m] and covariance [draw, m, m]. Titsias (2009), equation 10."""
        means, covariances = [], []
        for one, _, L, rough, rows in self._one_by_one(theta, data):
            mean, W = rows.posterior(rough)
            means.append(L @ mean + self.value(one, "mean", data.X))
            covariances.append((W @ L.mT).mT @ (W @ L.mT))
        return torch.stack(means), torch.stack(covariances)

    def _conditional(
        self, theta: Theta, X: Tensor, train: Dataset, joint: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Mean [draw, k], variance [draw, k] or covariance [draw, k, k] of f at X, and the noise [draw]."""
        count = number_of_draws(
            split_params(self.sites(train.d), {k: v for k, v in theta.items() if k != "inducing"})[
                0
            ]
        )
        check_memory_of_predictions(count, len(X), X, joint)
        means, spreads, noises = (
            Assembled(count, len(X)),
            Assembled(count, len(X), (len(X),) if joint else ()),
            [],
        )
        width = max(1, len(X) if joint else ROWS_AT_ONCE)
        for i, (one, Z, L, rough, rows) in enumerate(self._one_by_one(theta, train)):
            hyper, noise, draw = under("kernel", one), self.value(one, "noise", X), slice(i, i + 1)
            mean, W = rows.posterior(rough)
            for row in range(0, max(1, len(X)), width):
                block = X[row : row + width]
                A = torch.linalg.solve_triangular(L, self.kernel(hyper, Z, block), upper=False)
                means.put(A.mT @ mean + self.value(one, "mean", X), draw, row)
                if joint:
                    spreads.put(
                        self.kernel(hyper, block) - A.mT @ A + (W @ A).mT @ (W @ A), draw, row
                    )
                else:
                    prior = self.kernel.diag(hyper, block)
                    spread = prior - A.square().sum(0) + (W @ A).square().sum(0)
                    spreads.put(
                        torch.maximum(spread, torch.finfo(prior.dtype).eps * prior), draw, row
                    )
            noises.append(noise)
        return means.whole, spreads.whole, torch.stack(noises)

    def predict(
        self, theta: Theta, X: Tensor, train: Dataset, *, joint: bool = False
    ) -> Distribution:
        mean, spread, noise = self._conditional(theta, X, train, joint)
        if joint:
            covariance = add_diagonal(spread, noise[:, None])
            return dist.MultivariateNormal(
                mean, scale_tril=cholesky(covariance, "predictive covariance")
            )
        return dist.Normal(
            mean, spread.add_(noise[:, None]).sqrt_()
        )  # their own, and as large as the answer

    def latent(self, theta: Theta, X: Tensor, train: Dataset) -> Distribution:
        """The law of f at X, without the noise: batch [draw, k]."""
        mean, spread, _ = self._conditional(theta, X, train, False)
        return dist.Normal(mean, spread.sqrt_())

    def loo(self, theta: Theta, train: Dataset) -> Distribution:
        """y_i given the other rows, batch [draw, n]: as for a GP (Rasmussen & Williams 2006, equations 5.10 to 5.12) of covariance
        Q + noise I, each variance with the part of k_ii that Q leaves out, as in ``predict``."""
        means, variances = [], []
        for one, Z, L, s2, rows in self._one_by_one(theta, train):
            hyper, level = under("kernel", one), self.value(one, "mean", train.X)
            own = self.kernel.nugget(hyper, Z)
            mean, W = rows.posterior(s2)
            for i in range(0, train.n, ROWS_AT_ONCE):
                X, y = train.X[i : i + ROWS_AT_ONCE], train.y[i : i + ROWS_AT_ONCE]
                A = torch.linalg.solve_triangular(L, self.kernel(hyper, Z, X), upper=False)
                a = (y - level - A.mT @ mean) / s2
                d = (1 - (W @ A).square().sum(0) / s2) / s2
                smooth = (
                    self.kernel.diag(hyper, X)
                    if own is None
                    else self.kernel.diag(hyper, X) - own[0]
                )
                left_out = (smooth - A.square().sum(0)).clamp_min(0.0)
                means.append(y - a / d)
                variances.append(1 / d + left_out)
        return dist.Normal(
            torch.cat(means).reshape(-1, train.n), torch.cat(variances).reshape(-1, train.n).sqrt()
        )

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """The likelihood is joint; pointwise it is the leave-one-out density."""
        return {"y": self.loo(theta, data).log_prob(data.y)}
