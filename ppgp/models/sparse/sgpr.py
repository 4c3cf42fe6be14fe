"""Sparse Gaussian-process regression: inducing inputs, with q(u) in closed form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ...capabilities import (
    JointLatent,
    LatentFunction,
    LeaveOneOut,
    Reselects,
    Updates,
    WarmStart,
)
from ...data.dataset import Dataset, Scaler
from ...data.stream.streamed_rows import SUMS, StreamedRows
from ...errors import NotApplicable, NumericalError, SettingError
from ...kernels import RBF, Kernel, Unscaled
from ...kernels.base import check_kernel
from ...kernels.units import Units
from ...numerics.cholesky import at_least_rounding, inducing_root, jittered
from ...numerics.projection import Projection, posterior_of
from ...numerics.triangles import solved
from ...priors import LogNormal, Param, PriorLike, Site, prefixed, rescaled, site, tensor_of, under
from ...runtime.result_cache import ResultCache
from ...runtime.seeding import permutation
from ...runtime.team import ALONE, Team
from ..advice.memory_checks import check_memory_of_predictions, check_memory_of_rows
from ..base import broken_network, mini_batch
from ..exact.gp import GP, GPMarginal, gp_marginal
from ..means import MeanLike, WithMean, rows_of_mean
from ..noise import with_noise
from ..sites import Theta, draw, medians, one_by_one
from ..units import power
from .collapsed_bound import Slopes, SparseMarginal, slopes_of
from .inducing import (
    DEFAULT_INDUCING,
    GREEDY,
    check_given,
    check_number,
    in_units_of_model,
    matrix_of,
    number_before_data,
    place,
    say_if_fewer,
)

SUBSET_ROWS = 1024
ROWS_AT_ONCE = 8192
STREAMED = 256 * 2**20  # bytes of Kmn above which the density visits the rows in chunks
MATRICES = 6  # of the size of Kmn that a gradient holds at once
OF_ROWS = "sums over the rows"  # the name of what an update keeps

#: params by which a posterior keeps the sums over a stream, so that predictions and bounds need no
#: rows: S, Ar, (r'r, the trace, n) for each draw, and the draw
KEPT = S, AR, NUMBERS, AT = tuple(f"{SUMS}.{name}" for name in ("S", "Ar", "numbers", "at"))


@dataclass(frozen=True, repr=False)
class SGPR(WithMean, LatentFunction, LeaveOneOut, WarmStart, Reselects, Updates, JointLatent):
    """Sparse GP regression with the collapsed bound of Titsias (2009).

    The model is y ~ N(mean, K + noise I). Its evidence is replaced by a lower bound over m
    inducing inputs, in O(n m^2) time, with the rows in chunks. Samplers therefore draw from a
    density proportional to the bound; ``bounds`` reports how far it may be from the evidence.

    Args:
        kernel: Any kernel of ``ppgp.kernels``, or a composition.
        inducing: The number m of inducing inputs; None: 100, or all different rows if there are
            fewer. With m = n and Z = X this is the exact GP.
        selection: How ``prepare`` places the inducing inputs: "kmeans", "random",
            "conditional_variance" or "bound" (the last two are greedy, at the medians of the
            priors; ``reselected`` places them again at fitted values). Under a deep kernel "kmeans"
            clusters features. None: "kmeans"; but "random" with ``learn``, where MAP then starts
            from a selection by conditional variance at the mode of its subset model.
        learn: Whether MAP and SVI move the inducing inputs by gradient (they are the param
            ``inducing``).
        noise: Prior or number for the noise variance, which cannot be 0 (a number is in the square
            of the units of y).
        mean: Number, prior, ``LinearMean`` or function of X: see ``GP``; None: the mean of the
            training rows.
        seed: Seed of the selection.
        reselect: Place the inducing inputs again every this many steps of MAP("adam") or
            MAP("sgd"), at the current weights and hyperparameters, in place of moving them by
            gradient.
        Z: Inducing inputs by hand [m, d], in the units of X, in place of ``inducing`` and
            ``selection``.
        standardised: Set by ``fit``: whether the numbers and Z are on the scale of the model.

    Raises:
        SettingError: If the kernel is something else, if ``inducing`` or ``reselect`` is not a
            positive whole number, or for ``reselect`` with ``learn``; from ``fit``, for a noise of
            0, or more inducing inputs than rows.
        UnknownName: From ``fit``, if there is no such selection.
        DataError: From ``fit``, if there are more inducing inputs than different rows, or if Z has
            equal rows or another number of columns than X.
        NotApplicable: From ``fit``, for a White whose variance differs between rows, or for
            ``reselect`` with a method that takes no stochastic steps.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, kernels, models
        >>> X = torch.linspace(0, 10, 60, dtype=torch.float64)[:, None]
        >>> data = ppgp.Dataset(X, torch.sin(X[:, 0]))
        >>> fixed = {"kernel": kernels.RBF(1.0, 1.0), "noise": 0.01, "mean": 0.0}
        >>> options = {"how": inference.MAP(), "progress": False, "standardise": False}
        >>> exact = ppgp.fit(models.GP(**fixed), data, **options)
        >>> sparse = ppgp.fit(models.SGPR(inducing=12, **fixed), data, **options)
        >>> sparse.model.Z.shape
        torch.Size([12, 1])
        >>> bool((sparse.predict(X).mean - exact.predict(X).mean).abs().max() < 0.1)
        True
        >>> lower, upper = sparse.model.bounds(sparse.theta, sparse.data)
        >>> bool(lower < exact.log_evidence < upper)
        True
    """

    kernel: Kernel = field(default_factory=RBF)
    inducing: int | None = None
    selection: str | None = None
    learn: bool = False
    noise: PriorLike = LogNormal(-2.0, 1.0)
    mean: MeanLike | None = None
    seed: int = 0
    reselect: int | None = None
    Z: Any = field(default=None, repr=False, compare=False)
    standardised: bool = field(default=False, kw_only=True)
    joint_rows = True
    keeps_factor = True
    sums_over_team = True
    sampled_rows = 1000
    density_at_numbers = "elbo"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "Z", matrix_of(self.Z))
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
            **self.mean_of(d).sites(d),
        }

    def work(self, n: int, d: int) -> float:
        m = number_before_data(self.inducing)
        return float(n) * m * m + super().work(n, d)

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        """Check that the covariances with the inducing inputs fit into memory.

        Past ``STREAMED`` bytes these go over the rows in chunks.

        Raises:
            NotEnoughMemory: If they do not fit.
        """
        m = number_before_data(self.inducing)
        chunk = min(MATRICES * m, MATRICES * STREAMED / (like.element_size() * n))
        name = f"the covariances of {m:,} inducing inputs with the rows"
        check_memory_of_rows(n, chunk + 10 * m * m / n, like, name, "use fewer inducing inputs")

    def chunked(self, data: Dataset) -> bool:
        """Return whether a graph of the bound would not serve.

        It would hold all of Kmn at once, which matters from 256 MB, and no sums over a team.
        """
        if data.is_sample or not data.team.alone:
            return True
        m = DEFAULT_INDUCING
        if self.Z is not None:
            m = len(self.Z)
        return data.n * m * data.X.element_size() > STREAMED

    def prepare(self, data: Dataset) -> SGPR:
        """Return the recipe with inducing inputs for these rows, and with their mean.

        Raises:
            SettingError: If there are more inducing inputs than rows.
            DataError: If there are more inducing inputs than different rows, or if a Z given by
                hand has equal rows or another number of columns.
            NotApplicable: For a White whose variance differs between rows.
            NumericalError: For a network whose units are all dead or saturated at the start.
        """
        self.sites_at(data.d)
        if broken := self.kernel.check_fit({}, data.X):
            raise broken_network(broken[0], data.X)
        nugget = self.kernel.nugget(under("kernel", self._medians(data.X)), data.X)
        if nugget is not None and float(nugget.max() - nugget.min()) > 1e-6 * float(nugget.max()):
            raise NotApplicable(
                "a White that is the same in every row",
                "one multiplied by a kernel that is not",
                "use GP, or White by itself in a sum",
            )
        if self.Z is not None:
            check_given(self.Z, data.d)
        ready = replace(self, mean=self.mean_for(data))
        if self.Z is not None:
            return ready
        Z = ready._select(self._medians(data.X), data.X, data.y)
        if self._selection in GREEDY:
            say_if_fewer(Z, self.inducing, data.X)
        # in the order of the rows, by which ``model`` finds the exact GP
        return replace(ready, Z=data.X if len(Z) == data.n else Z, inducing=len(Z))

    def in_units(self, scaler: Scaler) -> SGPR:
        noise = rescaled(self.noise, power(float(scaler.y_sd), -2), what="noise")
        kernel, mean = self.kernel.in_units(Units.of(scaler)), self.mean_in_units(scaler)
        Z = in_units_of_model(self.Z, scaler)
        return replace(self, kernel=kernel, noise=noise, mean=mean, Z=Z)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        of_kernel = prefixed("kernel", self.kernel.factors(Units.of(scaler)))
        return self.hyperparameters_of_data(draws, of_kernel, scaler)

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """Return warnings about the fitted network of a deep kernel."""
        return self.kernel.check_fit(under("kernel", theta), data.X)

    # -- the inducing inputs ------------------------------------------------------------------

    @property
    def _selection(self) -> str:
        """The method of selection."""
        return self.selection or ("random" if self.learn else "kmeans")

    def _medians(self, X: Tensor) -> dict[str, Tensor]:
        return medians(self.sites_at(X.shape[1]), X, self.seed)

    def _select(self, theta: Theta, X: Tensor, y: Tensor | None) -> Tensor:
        """Place inducing inputs at the hyperparameters theta."""
        noise = float(self.value(theta, "noise", X))
        residual = None
        if y is not None:
            residual = y - self.mean_at(theta, X)
        return place(
            self._selection, self.inducing, self.kernel, theta, X, residual, noise, self.seed
        )

    def _inducing_inputs(self, theta: Theta, like: Tensor) -> Tensor:
        """Return the inducing inputs that belong to theta."""
        if "inducing" in theta:
            return theta["inducing"].to(like)
        if self.Z is None:
            return self._select(self._medians(like), like, None)
        return self.Z.to(like)

    def _inducing_param(self, X: Tensor) -> Tensor:
        """Return the param of the inducing inputs, which starts at Z; Z itself if none moves it."""
        Z = self._inducing_inputs({}, X)
        if self.learn or self.reselect:
            return pyro.param("inducing", Z)
        return Z

    def reselected(self, theta: Theta, data: Dataset) -> SGPR:
        """Return the recipe with inducing inputs placed again at theta, for another fit.

        Args:
            theta: The hyperparameters of one draw, {site: [*event]}.
            data: The training rows.
        """
        moved = replace(self, Z=self._select(theta, data.X, data.y))
        return moved.made_from(self, self.made_for)

    def reselected_inducing(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return the param ``inducing`` placed again at theta, as ``reselect`` requires.

        Args:
            theta: {site: [*event]}, with the params of a network.
            data: The training rows.

        Returns:
            {"inducing": Z}, or {} if fewer rows than there are inducing inputs span the rest.
        """
        Z = self._select(theta, data.X, data.y)
        if self.Z is None or len(Z) == len(self.Z):
            return {"inducing": Z}
        return {}

    def step_scales(self, theta: Theta) -> dict[str, Tensor]:
        """Return the typical step of the inducing inputs: twice the lengthscale of each column.

        The factor 2 is there because they have far to move.
        """
        lengthscale = theta.get("kernel.lengthscale")
        if lengthscale is None:
            return {}
        step = 2.0 * lengthscale.detach()
        if isinstance(self.kernel, Unscaled):
            step = step / tensor_of(self.kernel.factor, lengthscale)
        return {"inducing": step}

    # -- the start of a search ----------------------------------------------------------------

    def subset_model(self, data: Dataset) -> tuple[GP, Dataset] | None:
        """Return an exact GP and a random subset of the rows.

        In contrast to those of a sparse model, its hyperparameters do not compensate for a lack
        of inducing inputs. None for few rows, and for a network, which L-BFGS would overfit.
        """
        deep = any(isinstance(s, Param) for s in self.kernel.sites(data.d).values())
        if deep or data.n < 2 * SUBSET_ROWS:
            return None
        generator = torch.Generator().manual_seed(self.seed)
        subset = permutation(generator, data.n)[:SUBSET_ROWS].to(data.X.device)
        return GP(self.kernel, self.noise, self.mean), data.rows(subset)

    def warm_start(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return starting values from the mode theta of the subset model.

        Inducing inputs that are learnt, and that the user did not place (Z given, inducing=None),
        start from a selection by conditional variance at theta. The noise starts with the variance
        of f that the inducing inputs leave unexplained, which the subset model does not include.
        """
        start = dict(theta)
        if self.learn and self.selection is None and self.inducing is not None:
            Z = replace(self, selection="conditional_variance")._select(theta, data.X, data.y)
            # under a very long lengthscale fewer rows may span the rest
            if len(Z) == self.inducing:
                start["inducing"] = Z
        if "noise" in start:
            Z = start.get("inducing", self._inducing_inputs(theta, data.X))
            marginal = self._marginal(theta, data.X, Z)
            gap = marginal.project(data.y, inducing_root(marginal.Kmm)).gap / data.n
            start["noise"] = start["noise"] + torch.nan_to_num(gap).clamp_min(0.0)
        return start

    # -- the program --------------------------------------------------------------------------

    def model(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        total: int | None = None,
        team: Team = ALONE,
    ) -> Tensor:
        if total is not None and total != len(X):
            raise mini_batch(
                self,
                X,
                total,
                "use the full batch (its cost grows linearly with the rows), or SVGP",
            )
        theta = draw(self.sites_at(X.shape[-1]), X)
        Z = self._inducing_param(X)
        held = not (self.learn or self.reselect)
        if held and team is ALONE and Z.shape == X.shape and torch.equal(Z, X):
            return pyro.sample("y", self._exact_marginal(theta, X), obs=y)
        return pyro.sample("y", self._marginal(theta, X, Z, team), obs=y)

    def _exact_marginal(self, theta: Theta, X: Tensor) -> GPMarginal:
        """Return the distribution of y where each row is an inducing input: that of the exact GP.

        The bound is then the density itself, which takes a third of the time.
        """
        noise, loc = self.value(theta, "noise", X), self.mean_at(theta, X).expand(len(X))
        sites, hyper = self.kernel.sites(X.shape[-1]), under("kernel", theta)
        return gp_marginal(self.kernel, sites, hyper, X, loc, noise.reshape(1))

    def _marginal(self, theta: Theta, X: Tensor, Z: Tensor, team: Team = ALONE) -> SparseMarginal:
        """Return the approximate distribution of y at X for one draw theta {site: [*event]}."""
        kernel, hyper, (Z, X) = self.kernel.to_feature_space(under("kernel", theta), Z, X)
        Kmm, diagonal = kernel.shared(hyper, Z), kernel.diag(hyper, X)
        nugget = kernel.nugget(hyper, Z)
        mean, noise = self.mean_at(theta, X), self.value(theta, "noise", X)
        if nugget is not None:  # no other row shares it, so it counts as noise
            diagonal = diagonal - nugget[0]
            noise = noise + nugget[0]
        return SparseMarginal(mean.expand(len(X)), Kmm, kernel, hyper, Z, X, diagonal, noise, team)

    def _marginal_at(self, theta: Theta, X: Tensor) -> SparseMarginal:
        return self._marginal(theta, X, self._inducing_inputs(theta, X))

    # -- the posterior of the inducing variables, and bounds ----------------------------------

    def _one_by_one(self, theta: Theta, d: int) -> list[dict[str, Tensor]]:
        """Return theta of each draw, {site: [*event]}, with the params."""
        shared = {name: theta[name] for name in ("inducing",) if name in theta}
        kept = {name: theta[name] for name in KEPT if name in theta}
        others = {n: value for n, value in theta.items() if n not in (*shared, *kept)}
        every = [{**shared, **one} for one in one_by_one(self.sites_at(d), others)]
        return [{**one, **_kept_sums(one, kept)} for one in every] if kept else every

    def _solved(self, theta: Theta, train: Dataset) -> DrawOfSparse:
        """Solve the system of the training rows for one draw theta {site: [*event]}.

        Raises:
            NumericalError: If the covariance of the inducing inputs is not positive definite.
        """
        known = _projection_of(theta)
        if known is not None:  # in float64, whose jitter the sums belong to
            like, own = train.X[:1].double(), _without_sums(theta)
            theta = {name: value.double() for name, value in own.items()}
            Z = self._inducing_inputs(theta, like)
            marginal = self._marginal(theta, like, Z)
        else:
            Z = self._inducing_inputs(theta, train.X)
            marginal = self._marginal(theta, train.X, Z, train.team)
        L = inducing_root(marginal.Kmm)
        if not bool(torch.isfinite(L).all()):
            raise NumericalError(
                "a positive definite covariance of the inducing inputs",
                "one that is not",
                "use fewer, or a shorter lengthscale",
            )
        if known is None:
            return DrawOfSparse(Z, L, marginal.noise, marginal.project(train.y, L))
        return DrawOfSparse(Z, L, marginal.noise, known).to(train.X)

    def bounds(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor]:
        """Return a lower and an upper bound on log p(y given theta).

        Titsias (2009) for the lower bound and Titsias (2014) for the upper. theta and data are on
        one scale: after a fit, call ``posterior.model.bounds(posterior.theta, posterior.data)``.

        Args:
            theta: {site: [draw, *event]}, or {site: [*event]} for one draw.
            data: The training rows.

        Returns:
            The lower and the upper bound, [draw] each, or [] for theta without a draw axis.
        """
        axes = {name: len(s.shape) for name, s in self.sites(data.d).items() if isinstance(s, Site)}
        single = all(v.ndim == axes[k] for k, v in theta.items() if k in axes)
        batch = {k: v[None] if single and k in axes else v for k, v in theta.items()}
        both = []
        for part in self._one_by_one(batch, data.d):
            one = self._solved(part, data)
            both.append(torch.stack([one.rows.lower(one.noise), one.rows.upper(one.noise)]))
        lower, upper = torch.stack(both, 1)
        if single:
            return lower[0], upper[0]
        return lower, upper

    def inducing_posterior(self, theta: Theta, data: Dataset) -> tuple[Tensor, Tensor]:
        """Return the mean [draw, m] and the covariance [draw, m, m] of q(u) for each draw.

        Titsias (2009), equation 10.
        """
        means, covariances = [], []
        for part in self._one_by_one(theta, data.d):
            one = self._solved(part, data)
            mean, W = one.rows.posterior(one.noise)
            means.append(one.L @ mean + self.mean_at(part, one.Z))
            root = W @ one.L.mT
            covariances.append(root.mT @ root)
        return torch.stack(means), torch.stack(covariances)

    def training_factor(
        self, theta: Theta, train: Dataset
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return what predictions at any rows share, for one draw theta {site: [*event]}.

        These are the inducing inputs Z [m, d], the root L [m, m] of their covariance, and the mean
        [m] and a root W [m, m] of the covariance W' W of q(v), where u = L v.
        """
        one = self._solved(theta, train)
        return one.Z, one.L, *one.rows.posterior(one.noise)

    # -- predictions --------------------------------------------------------------------------

    def _shared(
        self, i: int, theta: dict[str, Tensor], train: Dataset, kept: ResultCache
    ) -> tuple[Tensor, ...]:
        """Return what predictions at any rows share, of draw i, from sums if they are kept."""
        sums = kept.found((OF_ROWS, i), theta)
        compute = partial(self.training_factor, theta, train)
        if sums is not None:
            compute = partial(self._of_sums, theta, train.X[:1], Sums(*sums))
        return kept.get(i, compute, theta, not train.team.alone)

    def _of_sums(
        self, theta: Theta, like: Tensor, sums: Sums
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return what ``training_factor`` does, given the sums over all rows."""
        Z = self._inducing_inputs(theta, like)
        marginal = self._marginal(theta, like, Z)
        return Z, inducing_root(marginal.Kmm), *posterior_of(sums.S, sums.Ar, marginal.noise)

    def _conditional(
        self, theta: Theta, X: Tensor, train: Dataset, joint: bool, kept: ResultCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the moments of f at X given the training rows, and the noise.

        These are the mean [draw, k], the variance [draw, k] or, if ``joint``, the covariance
        [draw, k, k], and the noise variance [draw].
        """
        kept = kept or ResultCache(limit=0)
        every = self._one_by_one(theta, train.d)
        check_memory_of_predictions(len(every), len(X), X, joint)
        means = X.new_empty(len(every), len(X))
        spreads = X.new_empty(len(every), *((len(X),) if joint else ()), len(X))
        noises = X.new_empty(len(every))
        width = max(1, len(X) if joint else ROWS_AT_ONCE)
        for i, one in enumerate(every):
            hyper, level = under("kernel", one), self.mean_at(one, X)
            Z, L, mean, W = self._shared(i, one, train, kept)
            for row in range(0, len(X), width):
                rows = slice(row, row + width)
                cross = self.kernel(hyper, Z, X[rows])
                A = solved(L, cross)
                means[i, rows] = A.mT @ mean + rows_of_mean(level, rows)
                if joint:
                    spread = self.kernel(hyper, X[rows]) - A.mT @ A + (W @ A).mT @ (W @ A)
                else:
                    prior = self.kernel.diag(hyper, X[rows])
                    spread = prior - A.square().sum(0) + (W @ A).square().sum(0)
                    spread = at_least_rounding(spread, prior)
                spreads[i, ..., rows] = spread
            noises[i] = self.value(one, "noise", X)
        return means, spreads, noises

    def predict(
        self,
        theta: Theta,
        X: Tensor,
        train: Dataset,
        *,
        joint: bool = False,
        kept: ResultCache | None = None,
    ) -> Distribution:
        mean, spread, noise = self._conditional(theta, X, train, joint, kept)
        return with_noise(mean, spread, noise[:, None], joint)

    def latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> Distribution:
        mean, spread, _ = self._conditional(theta, X, train, False, kept)
        return dist.Normal(mean, spread.sqrt_())

    def joint_latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._conditional(theta, X, train, True, kept)[:2]

    def loo(self, theta: Theta, train: Dataset) -> Distribution:
        """Return the distribution of each y_i given the other rows, batch [draw, n].

        This is leave-one-out of a GP (Rasmussen & Williams 2006, equations 5.10 to 5.12) with the
        covariance Q + noise I. Each variance also includes the part of k_ii that Q leaves out, as
        in ``predict``.
        """
        means, variances = [], []
        for part in self._one_by_one(theta, train.d):
            one = self._solved(part, train)
            hyper, level = under("kernel", part), self.mean_at(part, train.X)
            nugget = self.kernel.nugget(hyper, one.Z)
            mean, W = one.rows.posterior(one.noise)
            for i in range(0, train.n, ROWS_AT_ONCE):
                rows = slice(i, i + ROWS_AT_ONCE)
                X, y = train.X[rows], train.y[rows]
                cross = self.kernel(hyper, one.Z, X)
                A = solved(one.L, cross)
                a = (y - rows_of_mean(level, rows) - A.mT @ mean) / one.noise
                d = (1 - (W @ A).square().sum(0) / one.noise) / one.noise
                smooth = self.kernel.diag(hyper, X)
                if nugget is not None:
                    smooth = smooth - nugget[0]
                left_out = (smooth - A.square().sum(0)).clamp_min(0.0)
                means.append(y - a / d)
                variances.append(1 / d + left_out)
        mean = torch.cat(means).reshape(-1, train.n)
        return dist.Normal(mean, torch.cat(variances).reshape(-1, train.n).sqrt())

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return the leave-one-out log densities, because the likelihood of the rows is joint."""
        return {"y": self.loo(theta, data).log_prob(data.y)}

    # -- further rows, whose sums are added with the same inducing inputs, in O(k m^2) --------

    def _sums(self, theta: Theta, rows: Dataset) -> Sums:
        """Return the sums over rows for one draw theta {site: [*event]}."""
        found = self._solved(theta, rows).rows
        return Sums(found.S, found.Ar)

    def carry_over(
        self, theta: Theta, old: Dataset, new: Dataset, kept: ResultCache, into: ResultCache
    ) -> None:
        if KEPT[0] in theta:
            do = "fit a Dataset, or the stream with the further rows"
            raise NotApplicable("a fit to a Dataset for further rows", "one to a stream", do)
        rows = new.rows(slice(old.n, None))
        for i, one in enumerate(self._one_by_one(theta, old.d)):
            before = kept.get((OF_ROWS, i), lambda one=one: self._sums(one, old), one)
            further = self._sums(one, rows)
            after = Sums(*(a + b for a, b in zip(before, further, strict=True)))
            into.get((OF_ROWS, i), lambda after=after: after, one)

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

    # -- rows that are read as they are needed: sums over them, and their slopes --------------

    def kept_of(self, theta: Theta, data: StreamedRows) -> dict[str, Tensor]:
        """Return the params by which a posterior keeps the sums at its draws.

        Args:
            theta: {site: [draw, *event]}, with the params.
            data: The rows of a stream, over which it takes one pass.
        """
        every = self._one_by_one(_without_sums(theta), data.d)
        wide = [{name: value.double() for name, value in one.items()} for one in every]
        totals: list[Projection] = []
        for table, *_ in data.portions():
            X, y = table.X.double(), table.y.double()
            own = [self.sums_of_rows(one, X, y) for one in wide]
            totals = [a.plus(b) for a, b in zip(totals, own, strict=True)] if totals else own
        return _params_of(every, [total.over_ranks(data.team) for total in totals])

    def sums_of_rows(self, theta: Theta, X: Tensor, y: Tensor) -> Projection:
        """Return the sums over some rows X [n, d] and y [n] at theta {site: [*event]}."""
        marginal = self._marginal_at(theta, X)
        return marginal.project(y, inducing_root(marginal.Kmm))

    def bound_of_sums(self, theta: Theta, like: Tensor, sums: Projection) -> Tensor:
        """Return the bound at theta; the arguments are those of ``slopes_of_sums``."""
        return sums.lower(self._marginal_at(theta, like).noise)

    def slopes_of_sums(self, theta: Theta, like: Tensor, sums: Projection) -> Slopes:
        """Return the slopes of the bound at theta, given the sums over all rows.

        Args:
            theta: {site: [*event]}.
            like: One row [1, d].
            sums: The sums over all rows.
        """
        marginal = self._marginal_at(theta, like)
        return slopes_of(sums, inducing_root(marginal.Kmm), marginal.noise)

    def term_of_rows(self, theta: Theta, X: Tensor, y: Tensor, slopes: Slopes) -> Tensor:
        """Return a number with the slopes of the bound by theta that some rows contribute."""
        marginal = self._marginal_at(theta, X)
        K = marginal.cross(marginal.X, *marginal.inputs)
        return slopes.of_rows(K, y - marginal.loc, marginal.diagonal)

    def term_of_shared(self, theta: Theta, like: Tensor, slopes: Slopes) -> Tensor:
        """Return a number with the slopes of the bound by theta that belong to no row."""
        marginal = self._marginal_at(theta, like)
        return slopes.of_shared(jittered(marginal.Kmm), marginal.noise)


class Sums(NamedTuple):
    """The sums over rows that q(u) depends on: A A' [m, m] and A r [m] (``Projection``)."""

    S: Tensor
    Ar: Tensor


class DrawOfSparse(NamedTuple):
    """The sums over the training rows that the posterior under one draw of theta needs.

    Attributes:
        Z: The inducing inputs [m, d].
        L: The root of their covariance [m, m].
        noise: The variance of y that is independent between rows: the noise, and White in f.
        rows: The training rows projected onto the inducing variables.
    """

    Z: Tensor
    L: Tensor
    noise: Tensor
    rows: Projection

    def to(self, like: Tensor) -> DrawOfSparse:
        """Return the same with the dtype and on the device of a tensor."""
        sums = self.rows
        rows = Projection(
            sums.S.to(like), sums.Ar.to(like), sums.rr.to(like), sums.trace.to(like), sums.n
        )
        return DrawOfSparse(self.Z.to(like), self.L.to(like), self.noise.to(like), rows)


def _params_of(thetas: list[dict[str, Tensor]], sums: list[Projection]) -> dict[str, Tensor]:
    """Return the sums at the draws of a fit as params of its posterior."""
    parts = (
        torch.stack([one.S for one in sums]),
        torch.stack([one.Ar for one in sums]),
        torch.stack([torch.stack([s.rr, s.trace, s.rr.new_tensor(float(s.n))]) for s in sums]),
        torch.stack([_flat(theta) for theta in thetas]),
    )
    return dict(zip(KEPT, parts, strict=True))


def _kept_sums(theta: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the sums that are kept for one draw theta {site: [*event]}, by their names.

    Raises:
        NotApplicable: If theta is no draw of the fit.
    """
    same = (kept[AT] == _flat(theta)).all(1).nonzero().flatten()
    if not len(same):
        raise NotApplicable(
            "the hyperparameters of a draw of the fit, at which the sums over the stream are kept",
            "others",
            "fit a Dataset, or the stream again",
        )
    return {name: value[same[0]] for name, value in kept.items()}


def _projection_of(theta: Mapping[str, Tensor]) -> Projection | None:
    """Return the sums that theta brings along; None if it has none."""
    if S not in theta:
        return None
    rr, trace, n = theta[NUMBERS]
    return Projection(theta[S], theta[AR], rr, trace, round(float(n)))


def _without_sums(theta: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return theta without the sums that are kept."""
    return {name: value for name, value in theta.items() if name not in KEPT}


def _flat(theta: Mapping[str, Tensor]) -> Tensor:
    """Return the hyperparameters of one draw, end to end, in float64."""
    names = sorted(_without_sums(theta))
    none = torch.zeros(0, dtype=torch.float64)
    return torch.cat([none, *(theta[name].detach().double().reshape(-1).cpu() for name in names)])
