"""Vecchia's approximation of a Gaussian process: each row given its nearest neighbours."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyro
import torch
from torch import Tensor

from ...arguments import check_names_of_arguments
from ...capabilities import LatentFunction, LeaveOneOut
from ...data.dataset import Dataset, Scaler
from ...data.training_data import Batch, Rows
from ...errors import SettingError
from ...kernels import Kernel, Matern
from ...kernels.base import check_kernel
from ...kernels.units import Units
from ...likelihoods import Likelihood
from ...priors import LogNormal, Param, PriorLike, Site, prefixed, rescaled, site, under
from ...runtime.seeding import permutation
from ...runtime.team import ALONE, Team
from ..base import full_batch_only
from ..before_fit import medians, refuse_broken
from ..exact.drift import Drift, check_determined, checked, coordinates, places
from ..exact.gp import GP
from ..exact.latent_model import show_latent
from ..means import MeanLike, UserMean
from ..noise import check_aligned, refuse_duplicate_rows, with_known
from ..sites import Theta, draw, first_draw
from ..units import power
from .latent_vecchia import with_likelihood
from .number_of_neighbours import too_few_neighbours
from .vecchia_predictions import NeighbourPredictions
from .weights import ROWS_IN_ONE_PASS

SUBSET_ROWS = 1024


@dataclass(frozen=True, repr=False)
class Vecchia(NeighbourPredictions, LatentFunction, LeaveOneOut):
    """Gaussian process of many rows in few columns: each row given its nearest earlier rows.

    With the rows in an order, log p(y) is the sum of log p(y_i given the ``neighbours`` rows
    nearest to row i among those before it), where y follows the Gaussian process
    y ~ N(F beta, K + noise I) with F [n, k] and K [n, n], which is never formed. The cost is
    O(n m^3) time and O(n m) memory. The sum is the log density of a Gaussian vector, and with
    m = n - 1 it is that of the process itself. It suits 2 to 10 columns and 10^4 to 10^7 rows; the
    error grows with the smoothness of the kernel and, where there is noise, with the lengthscale,
    and falls with m. Vecchia (1988); Datta et al. (2016); Katzfuss & Guinness (2021).

    Neighbours are nearest in columns divided by how far the kernel correlates along each. ``fit``
    with MAP or Laplace searches them again if the fitted lengthscales of two columns differ by a
    factor of 2 from those of the search; other methods warn.

    With drift "none" methods take mini-batches (``batch_size``): each row of a batch comes with its
    neighbours among all rows.

    Args:
        kernel: Any kernel of ``ppgp.kernels``, or a composition.
        noise: Prior or number for the noise variance (a number is in the square of the units of y);
            0 means no noise.
        neighbours: How many earlier rows each row depends on (m), and how many training rows a
            prediction; None: 30, or all if there are fewer.
        order: The order of the rows: "random", or "maximin", in which each row is far from those
            before it.
        drift: The functions F of the trend, whose coefficients beta have a flat prior and are
            integrated out, as in ``Kriging``: None, a constant, one for each output where the
            kernel has a ``Coregionalisation``; "constant", one for all; a degree for a polynomial
            in the coordinates; columns of X, which are then no coordinates; or "none" for the
            known ``mean``.
        mean: With drift "none": number, prior, ``LinearMean`` or function of X, see ``GP``; None:
            the mean of the training rows.
        seed: Seed of the order.
        likelihood: The distribution of y given f in place of Gaussian noise, such as Poisson(). The
            result is a ``LatentVecchia``, whose f has a ``mean`` in place of a drift. None:
            Gaussian noise.
        lengths: Set by ``prepare``: the length of each coordinate by which neighbours are nearest.
        standardised: Set by ``fit``: whether the numbers are on the scale of the model.

    With a likelihood, ``latent="laplace"`` says how f is integrated out; see ``LatentVecchia``.

    Raises:
        SettingError: If kernel or likelihood is something else, for a negative noise, an option
            that is none of these, ``latent`` without a likelihood, or a ``mean`` beside a drift;
            from ``fit``, for as many neighbours as rows, or more.
        NotApplicable: With a likelihood, as ``LatentVecchia``.
        DataError: From ``fit``, for duplicate rows under a noise of exactly 0, or a drift that the
            rows do not determine.

    Examples:
        >>> import ppgp, torch
        >>> from ppgp import inference, kernels, models
        >>> generator = torch.Generator().manual_seed(0)
        >>> X = torch.rand(80, 2, generator=generator, dtype=torch.float64)
        >>> data = ppgp.Dataset(X, torch.sin(6 * X[:, 0]) + X[:, 1])
        >>> fixed = {"kernel": kernels.Matern(1.5, 1.0, 0.5), "noise": 0.01, "mean": 0.0}
        >>> options = {"how": inference.MAP(), "progress": False, "standardise": False}
        >>> exact = ppgp.fit(models.GP(**fixed), data, **options)
        >>> def error(m):
        ...     model = models.Vecchia(**fixed, neighbours=m, drift="none")
        ...     return abs(ppgp.fit(model, data, **options).log_evidence - exact.log_evidence)
        >>> error(79) < 1e-6, error(40) < error(10)
        (True, True)
    """

    kernel: Kernel = field(default_factory=lambda: Matern(1.5))
    noise: PriorLike = LogNormal(-2.0, 1.0)
    neighbours: int | None = None
    order: str = "random"
    drift: Drift = None
    mean: MeanLike | None = None
    seed: int = 0
    likelihood: Likelihood | None = field(default=None, repr=False, kw_only=True)
    lengths: tuple[float, ...] | None = field(default=None, repr=False, kw_only=True)
    standardised: bool = field(default=False, kw_only=True)
    known_noise = True
    sampled_rows = 500
    joint_rows = True
    sums_over_team = True
    rows_on_every_rank = True

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """Return a Vecchia, or with a likelihood a LatentVecchia."""
        if options.get("likelihood") is None and options.get("latent") is None:
            return super().__new__(cls, **options)
        check_names_of_arguments(Vecchia, options)
        return with_likelihood(*arguments, **options)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kernel(self.kernel)
        object.__setattr__(self, "drift", checked(self.drift))
        if callable(self.drift):
            raise SettingError(
                "a degree or columns of X as drift of Vecchia",
                "a function",
                "compute its values as columns of X, and name these: drift=(2, 3)",
            )
        self.check_neighbours()
        if self.drift != "none" and self.mean not in (None, 0.0):
            got = f"mean={self.mean!r} and drift={self.drift!r}"
            raise SettingError('a known mean with drift="none"', got, "drop one")

    def sites(self, d: int) -> dict[str, Site | Param]:
        sites = {
            **prefixed("kernel", self.kernel.sites(coordinates(self.drift, d))),
            "noise": site("noise", self.noise, positive=True, zero=True),
        }
        if self.drift == "none":
            sites |= self.mean_sites(d)
        return sites

    def work(self, n: int, d: int) -> float:
        return float(n) * self._number**3 + super().work(n, d)

    def prepare(self, data: Dataset) -> Vecchia:
        """Return the recipe with the lengths by which rows are near, and with their mean.

        Raises:
            SettingError: For as many neighbours as rows, or more.
            DataError: For duplicate rows under a noise of exactly 0, whose covariance is singular,
                or a drift that the rows do not determine.
            NumericalError: For a network whose units are all dead or saturated at the start.
        """
        where = places(self.drift, data.X)
        sites = self.sites_at(data.d)
        refuse_broken(self.kernel, where)
        check_determined(self.drift, data.X, None, self.kernel.output_columns())
        self.refuse_too_many(data)
        hyper = under("kernel", medians(sites, where, 0))
        if self.noise == 0:
            nugget = self.kernel.nugget(hyper, where)
            refuse_duplicate_rows(where, data.noise_sd, nugget, "different rows of X", "noise")
        mean = self.mean
        if self.drift == "none":
            mean = self.mean_for(data)
        return replace(self, mean=mean, lengths=self.lengths_at(hyper, where))

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        one = first_draw(self.sites_at(data.d), theta)

        def weights(number: int) -> Tensor:
            model = replace(self, neighbours=number)
            return model._marginal(one, data.X, data.noise_sd).weights()

        said = too_few_neighbours(min(self._number, data.n - 1), data.n, weights)
        return [*super().check_fit(theta, data), *([] if said is None else [said])]

    def in_units(self, scaler: Scaler) -> Vecchia:
        noise = rescaled(self.noise, power(float(scaler.y_sd), -2), what="noise")
        mean = self.mean_in_units(scaler)
        kernel = self.kernel.in_units(self._units(scaler))
        return replace(self, kernel=kernel, noise=noise, mean=mean)

    def _units(self, scaler: Scaler) -> Units:
        units = Units.of(scaler)
        if isinstance(self.drift, tuple):
            d = len(scaler.x_mean)
            return units.columns(tuple(c for c in range(d) if c not in self.drift))
        return units

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        factors = self.kernel.factors(self._units(scaler))
        of_kernel = {f"kernel.{name}": f for name, f in factors.items()}
        return self.hyperparameters_of_data(draws, of_kernel, scaler)

    def chunked(self, data: Dataset) -> bool:
        """Return whether a graph would not serve.

        The gradient of many rows computes the covariances of each part anew, and that of a team
        adds up parts of its processes.
        """
        many = data.n > ROWS_IN_ONE_PASS or not data.workers.alone
        return many or isinstance(self.mean_function, UserMean)

    def subset_model(self, data: Dataset) -> tuple[GP, Dataset] | None:
        """Return an exact GP and a random subset of the rows; None for few rows or a network."""
        if isinstance(self.drift, tuple) or self._deep(data.d) or data.n < 2 * SUBSET_ROWS:
            return None
        generator = torch.Generator().manual_seed(self.seed)
        subset = permutation(generator, data.n)[:SUBSET_ROWS].to(data.X.device)
        mean = self.mean if self.drift == "none" else None
        return GP(self.kernel, self.noise, mean), data.rows(subset)

    def _noise_of_rows(self, theta: Theta, X: Tensor, noise_sd: Tensor | None) -> Tensor:
        """Return the error variance of each row [n] at one draw."""
        return with_known(self.value(theta, "noise", X).expand(len(X)), noise_sd)

    def model(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        noise_sd: Tensor | None = None,
        total: int | None = None,
        team: Team = ALONE,
    ) -> Tensor:
        """Run the Pyro program of the model; see ``GP.model``."""
        if X.ndim == 3:  # each row after its neighbours, from ``batch``
            theta = draw(self.sites_at(X.shape[-1]), X)
            with pyro.plate("rows", total or len(X), subsample=X):
                return pyro.sample("y", self._of_batch(theta, X, noise_sd), obs=y)
        do = 'use the full batch (its cost grows linearly), or drift="none" and a method of ppgp'
        full_batch_only(self, X, total, do)
        check_aligned(noise_sd, X)
        theta = draw(self.sites_at(X.shape[-1]), X)
        return pyro.sample("y", self._marginal(theta, X, noise_sd, team), obs=y)

    def batch(self, data: Dataset, rows: Rows) -> tuple[Tensor, ...]:
        """Return X [*b, k, d], y [*b, k] and columns of rows [*b], each after its neighbours.

        A neighbour that a row lacks has y = inf. A drift is determined by all rows together, so
        that the rows come without neighbours, and ``model`` refuses them.
        """
        if self.drift != "none" or isinstance(rows, Batch):
            return data.tables(rows)
        sets = self._sets(data.X)
        place = torch.empty_like(sets.order)
        place[sets.order] = torch.arange(data.n, device=place.device)
        members = sets.members[place[rows.to(place.device)]].long()
        X, y, *others = data.tables(members.clamp_min(0))
        return X, torch.where(members < 0, torch.inf, y), *others


show_latent(Vecchia)
