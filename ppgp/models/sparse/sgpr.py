"""Sparse Gaussian-process regression: inducing inputs, with q(u) in closed form."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyro
import torch
from torch import Tensor

from ...capabilities import LatentFunction, LeaveOneOut, Reselects, WarmStart
from ...data.dataset import Dataset, Scaler
from ...errors import NotApplicable, SettingError
from ...kernels import RBF, Kernel, Unscaled
from ...kernels.base import check_kernel
from ...kernels.units import Units
from ...numerics.cholesky import inducing_root
from ...priors import LogNormal, Param, PriorLike, Site, prefixed, rescaled, site, tensor_of, under
from ...runtime.seeding import permutation
from ...runtime.team import ALONE, Team
from ..advice.memory_checks import check_memory_of_rows
from ..base import full_batch_only
from ..before_fit import medians, refuse_broken
from ..exact.gp import GP
from ..means import MeanLike
from ..sites import Theta, draw
from ..units import power
from .greedy_selection import GREEDY
from .inducing import (
    DEFAULT_INDUCING,
    check_given,
    check_number,
    in_units_of_model,
    number_before_data,
    place,
    say_if_fewer,
    take_given,
)
from .sgpr_updates import SparseUpdates

SUBSET_ROWS = 1024
STREAMED = 256 * 2**20  # bytes of Kmn above which the density visits the rows in chunks
MATRICES = 6  # of the size of Kmn that a gradient holds at once


@dataclass(frozen=True, repr=False)
class SGPR(SparseUpdates, LatentFunction, LeaveOneOut, WarmStart, Reselects):
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
    sums_over_team = True
    sampled_rows = 1000
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
            **self.mean_sites(d),
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
        refuse_broken(self.kernel, data.X)
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
        return replace(ready, Z=Z, inducing=len(Z))

    def in_units(self, scaler: Scaler) -> SGPR:
        noise = rescaled(self.noise, power(float(scaler.y_sd), -2), what="noise")
        kernel, mean = self.kernel.in_units(Units.of(scaler)), self.mean_in_units(scaler)
        Z = in_units_of_model(self.Z, scaler)
        return replace(self, kernel=kernel, noise=noise, mean=mean, Z=Z)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        factors = self.kernel.factors(Units.of(scaler))
        of_kernel = {f"kernel.{name}": f for name, f in factors.items()}
        return self.hyperparameters_of_data(draws, of_kernel, scaler)

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """Return warnings about the fitted network of a deep kernel."""
        return self.kernel.check_fit(under("kernel", theta), data.X)

    @property
    def _selection(self) -> str:
        """The method of selection."""
        return self.selection or ("random" if self.learn else "kmeans")

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

    def _select_before_fit(self, X: Tensor) -> Tensor:
        return self._select(self._medians(X), X, None)

    def _inducing_param(self, X: Tensor) -> Tensor:
        """Return the param of the inducing inputs, which starts at Z; Z itself if none moves it."""
        Z = self._inducing_inputs({}, X)
        if self.learn or self.reselect:
            return pyro.param("inducing", Z)
        return Z

    def model(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        total: int | None = None,
        team: Team = ALONE,
    ) -> Tensor:
        full_batch_only(
            self, X, total, "use the full batch (its cost grows linearly with the rows), or SVGP"
        )
        theta = draw(self.sites_at(X.shape[-1]), X)
        return pyro.sample("y", self._marginal(theta, X, self._inducing_param(X), team), obs=y)
