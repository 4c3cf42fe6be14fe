"""Kriging: Gaussian-process regression with an unknown trend, as geostatistics states it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ...capabilities import (
    BlockMeans,
    JointGaussian,
    LatentFunction,
    LeaveOneOut,
)
from ...data.dataset import Dataset, Scaler
from ...display.overrides import computed
from ...display.user_warnings import warn
from ...distributions.distributions import TrendMarginal
from ...errors import DataWarning, NotApplicable, SettingError
from ...kernels import Exponential, Kernel
from ...kernels.base import check_kernel
from ...kernels.units import Units
from ...numerics.cholesky import add_diagonal, cholesky
from ...priors import Flat, LogNormal, Param, PriorLike, Site, prefixed, rescaled, site, under
from ...runtime.result_cache import ResultCache
from ..advice.advice import instead_of
from ..advice.memory_checks import check_memory_of_covariance
from ..advice.suitability import MOST_ROWS
from ..base import Model, full_batch_only
from ..before_fit import medians, refuse_broken
from ..means import MeanLike
from ..noise import NOT_OF_THE_RECIPE, check_aligned, refuse_duplicate_rows
from ..sites import Theta, draw, first_draw, starting_values
from .drift import (
    Drift,
    basis,
    check_determined,
    checked,
    coordinates,
    nothing_left,
    of_each_output,
    places,
)
from .kriging_equations import KrigingEquations

ESTIMATORS = ("reml", "ml")
DEFAULT_NUGGET = LogNormal(-2.0, 1.0)  # before ``prepare`` centres it on the data


def scales(where: Tensor, y: Tensor) -> tuple[float, float]:
    """Return a typical sill and a typical range of these rows.

    The sill is the variance of y. The range is a tenth of the diagonal of the bounding box of the
    coordinates.
    """
    diagonal = float((where.amax(0) - where.amin(0)).norm())
    return max(float(y.var()), 1e-12), max(diagonal / 10.0, 1e-12)


@dataclass(frozen=True, repr=False)
class Kriging(KrigingEquations, LatentFunction, LeaveOneOut, JointGaussian, BlockMeans):
    """Simple, ordinary and universal kriging: y ~ N(F beta, K + nugget I).

    F [n, k] holds the functions of the drift at the rows, and K [n, n] the covariances of the
    surface. Cressie (1993), chapter 3; Matheron (1963). With a ``Coregionalisation`` in the
    variogram it is cokriging of several outputs, Pebesma (2004), section 2. The cost is O(n^3),
    with all rows at once. Places are on a plane; ``kernels.Sphere`` takes latitude and longitude
    in degrees, and ``fit`` warns about columns with such names in another kernel. Nothing is
    standardised: lengthscales are in the units of the coordinates, sill and nugget in the square
    of the units of y.

    Where ``variogram`` and ``nugget`` are None, ``prepare`` uses an exponential kernel and priors
    centred on the data: sills around the variance of y, and ranges around a tenth of the diagonal
    of the bounding box of the rows, each with a standard deviation of 1 in its logarithm. Rows at
    the same place are repeated measurements, which differ by the nugget; a nugget of exactly 0
    refuses them. Under ``Flat`` priors a sill that the rows do not show diverges together with its
    range; ``kernels.LinearVariogram`` is that limit.

    Args:
        variogram: The covariance of the surface, any kernel of ``ppgp.kernels``. Its variance is
            the (partial) sill, and its variogram is ``variance - k(h)``. A lengthscale is that of
            the kernel's formula (gstat's range, except that gstat's Gau has sqrt(2) times it).
            GSLIB's practical range a, where 95 % of the sill is reached, corresponds to
            Exponential(lengthscale=a / 3), RBF(lengthscale=a / sqrt(6)) and
            Spherical(lengthscale=a). PyKrige agrees with GSLIB except for its gaussian,
            exp(-(7 h / 4 a)^2).
        nugget: Prior or number for the variance of the discontinuous part, taken as measurement
            error: ``predict`` is the distribution of a new measurement (GSLIB's variance away from
            the rows; at a row GSLIB returns the row), ``latent`` that of the surface without the
            nugget. 0 interpolates.
        drift: None (ordinary kriging): a constant, and where the kernel has a
            ``Coregionalisation`` one for each output, as in cokriging; "constant": one for all
            outputs; "none" (simple kriging); a degree (universal, all monomials of the
            coordinates), or a tuple of columns of X (an external drift; the other columns are the
            coordinates), of which each output likewise has coefficients of its own; or a function
            of X. A constant is always included, except with "none".
        mean: With drift "none" only: number, prior, ``LinearMean`` or function of X, see ``GP``;
            None: the mean of the training rows, or a constant for each output.
        estimator: The density of the program: "reml" integrates beta out under a flat prior, "ml"
            uses the best beta for each theta. The latter is the profile likelihood, for MAP with
            ``Flat`` priors; it is no distribution of y, so draw from "reml".
        neighbours: Predict each place from this many nearest rows (Euclidean distance in the
            coordinates), and estimate the drift from them; None: from all rows. Of outputs with
            constants of their own these are so many rows of each. The density is that of all rows
            in both cases.
        standardised: Set by ``fit``; kriging never standardises the data.

    Raises:
        SettingError: If the variogram is something else, for a negative nugget, an option that is
            none of these, or a ``mean`` beside a drift; from ``fit``, for fewer neighbours than the
            drift has functions.
        DataError: From ``fit``, for rows at the same place where the nugget is exactly 0, or a
            drift that the rows do not determine.
        NotEnoughMemory: From ``fit``, if the covariance [n, n] does not fit into memory.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, kernels, models
        >>> corners = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
        >>> data = ppgp.Dataset(corners, [1.0, 2.0, 3.0, 6.0])
        >>> model = models.Kriging(kernels.Exponential(variance=1.0, lengthscale=2.0), nugget=0.0)
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False)
        >>> surface = posterior.predict([[0.5, 0.5], [1.0, 1.0]])
        >>> surface.mean.numpy().round(6)  # the mean of the corners, and the row itself
        array([3., 6.])
        >>> (surface.std.numpy() > 1e-3).tolist()  # certain at a row
        [True, False]
    """

    variogram: Kernel | None = None
    nugget: PriorLike | None = None
    drift: Drift = None
    mean: MeanLike | None = None
    estimator: str = "reml"
    neighbours: int | None = None
    standardised: bool = field(default=False, kw_only=True)
    scales = ""
    known_noise = True
    arguments_elsewhere = NOT_OF_THE_RECIPE
    sampled_rows = 500
    joint_rows = True
    inputs_are_places = True

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
        if self.variogram is None:
            return Exponential()
        return self.variogram

    def _density_at_numbers(self) -> str | None:
        """None for the profile likelihood, which is no density of y."""
        if self.estimator == "ml" and self.drift != "none":
            return None
        return "log_evidence"

    density_at_numbers = computed(_density_at_numbers)

    def value(self, theta: Theta, name: str, like: Tensor) -> Tensor:
        with_nugget = self
        if self.nugget is None:
            with_nugget = replace(self, nugget=DEFAULT_NUGGET)
        return Model.value(with_nugget, theta, name, like)

    def sites(self, d: int) -> dict[str, Site | Param]:
        nugget = DEFAULT_NUGGET if self.nugget is None else self.nugget
        sites = {
            **prefixed("variogram", self.kernel.sites(coordinates(self.drift, d))),
            "nugget": site("nugget", nugget, positive=True, zero=True),
        }
        if self.drift == "none":
            sites |= self.mean_sites(d)
        return sites

    def work(self, n: int, d: int) -> float:
        return float(n) ** 3 + super().work(n, d)

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        """Check that the covariance of n rows and its gradient fit into memory.

        Raises:
            NotEnoughMemory: If they do not.
        """
        check_memory_of_covariance(n, coordinates(self.drift, d), self.kernel, like)

    def prepare(self, data: Dataset) -> Kriging:
        """Return the recipe with its missing priors.

        Raises:
            DataError: For rows at the same place where the nugget is exactly 0, or a drift that
                the rows do not determine.
            SettingError: For fewer neighbours than the drift has functions.
            NumericalError: For a network whose units are all dead or saturated at the start.
        """
        where = places(self.drift, data.X)
        self.sites_at(data.d)
        if data.n > MOST_ROWS:
            do = instead_of("GP", where.shape[1], data.n, kernel=self.kernel)
            warn(f"Kriging of {data.n:,} rows costs O(n^3): {do}", DataWarning)
        refuse_broken(self.kernel, where)
        check_determined(self.drift, data.X, self.neighbours, self.kernel.output_columns())
        if self.nugget == 0:
            hyper = under("variogram", medians(self.sites_at(data.d), where, 0))
            nugget = self.kernel.nugget(hyper, where)
            refuse_duplicate_rows(
                where, data.noise_sd, nugget, "rows at different places", "nugget"
            )
        constant = nothing_left(self._functions(data.X, data.X), data.y)
        if constant is not None:
            do = "predictions are that number, and their variance says little"
            warn(f"{constant}: the rows show no sill, range or nugget; {do}", DataWarning)
        mean = self.mean_for(data) if self.drift == "none" else self.mean
        return replace(self._with_priors(where, self._without_levels(data)), mean=mean)

    def _without_levels(self, data: Dataset) -> Tensor:
        """Return y less the mean of the rows of its output, if each output has one of its own."""
        outputs = self.kernel.output_columns()
        if not of_each_output(self.drift, outputs):
            return data.y
        F = basis(None, places(self.drift, data.X), places(self.drift, data.X), outputs)
        return data.y - F @ (F.mT @ data.y / F.sum(0))

    def _with_priors(self, where: Tensor, y: Tensor) -> Kriging:
        """Return the recipe with priors centred on the data where it has none."""
        log_sill, log_range = map(math.log, scales(where, y))
        variogram, nugget = self.variogram, self.nugget
        if variogram is None:
            variogram = Exponential(LogNormal(log_sill, 1.0), LogNormal(log_range, 1.0))
        if nugget is None:
            nugget = LogNormal(log_sill - 2.0, 1.0)
        return replace(self, variogram=variogram, nugget=nugget)

    def in_units(self, scaler: Scaler) -> Kriging:
        """Return the recipe with its priors out of ``InUnitsOfData``: nothing is standardised."""
        variogram = self.variogram
        if variogram is not None:
            variogram = variogram.in_units(Units.none(coordinates(self.drift, len(scaler.x_mean))))
        nugget = self.nugget
        if nugget is not None:
            nugget = rescaled(nugget)
        return replace(self, variogram=variogram, nugget=nugget, mean=self.mean_in_units(scaler))

    def start(self, data: Dataset) -> dict[str, Tensor]:
        """Return starting values, in the units of the data.

        These are values for sites with flat priors, and those that a kernel defines itself: the
        weights of a network with a prior, and the frequencies of a spectrum.
        """
        sites, where = self.sites_at(data.d), places(self.drift, data.X)
        sill, length = scales(where, self._without_levels(data))
        width = where.shape[1]
        # in these units a hyperparameter of 1 suits these rows
        units = Units((0.0,) * width, (length,) * width, sill**0.5)
        level = float(data.y.mean())
        typical = {"nugget": sill * math.exp(-2.0), "mean": level, "mean.bias": level}
        for name, factor in self.kernel.factors(units).items():
            if isinstance(factor, float):
                typical[f"variogram.{name}"] = factor
        values = {}
        for name, s in sites.items():
            flat = isinstance(s, Site) and isinstance(s.prior, Flat) and s.prior.start is None
            if flat and math.isfinite(typical.get(name, math.nan)):
                values[name] = data.y.new_full(s.shape, typical[name])
        return {**values, **starting_values(sites)}

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """Return warnings about the fitted network of a deep kernel."""
        return self.kernel.check_fit(under("variogram", theta), places(self.drift, data.X))

    def model(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        noise_sd: Tensor | None = None,
        total: int | None = None,
    ) -> Tensor:
        """Run the Pyro program of the model; see ``GP.model``, whose noise is the nugget here."""
        full_batch_only(
            self,
            X,
            total,
            "use the full batch; neighbours= makes predictions local, not the density",
        )
        check_aligned(noise_sd, X)
        theta = draw(self.sites_at(X.shape[-1]), X)
        C = self._covariance(theta, places(self.drift, X), noise_sd)
        loc = self._centre(theta, X).expand(len(X))
        F = self._functions(X, X)
        return pyro.sample("y", TrendMarginal(loc, C, F, self.estimator == "ml"), obs=y)

    # -- predictions ----------------------------------------------------------------

    def predict(
        self,
        theta: Theta,
        X: Tensor,
        train: Dataset,
        *,
        joint: bool = False,
        noise_sd: Tensor | None = None,
        kept: ResultCache | None = None,
    ) -> Distribution:
        """Return the predictive distribution of a measurement at X.

        Its mean is the kriging mean, its variance the kriging variance plus the nugget and the
        known noise.

        Args:
            theta: {site: [draw, *event]}.
            X: Inputs [m, d].
            train: The training rows.
            joint: Whether the places are predicted jointly.
            noise_sd: The known noise sd of the new measurements [m], if any.
            kept: Where the solved system of the training rows is kept between predictions.

        Returns:
            A Normal of batch [draw, m]; if ``joint``, a MultivariateNormal of batch [draw] and
            event [m].

        Raises:
            NotApplicable: For a joint prediction from neighbours, which differ between places.
        """
        nugget = self._noise(theta, X, noise_sd)
        if not joint:
            mean, variance = self._means(theta, X[:, None], train, kept=kept)
            return dist.Normal(mean, (variance + nugget).sqrt())
        mean, spread = self.joint_latent(theta, X, train, kept)
        root = cholesky(add_diagonal(spread, nugget), "predictive covariance")
        return dist.MultivariateNormal(mean, scale_tril=root)

    def gaussian(
        self, theta: Theta, X: Tensor, train: Dataset, noise_sd: Tensor | None = None
    ) -> tuple[Any, ...]:
        """Return the joint Gaussian distribution of y and f at the first draw.

        Returns:
            The covariance of y [n, n], y - mean [n], the covariance of y with f at X [n, m], the
            variance of y at X [m], its mean [m], and the functions of the drift at the training
            rows and at X, (F [n, p], F* [m, p]), or None.

        Raises:
            NotApplicable: For predictions from neighbours.
        """
        if self.neighbours is not None and self.neighbours < train.n:
            raise NotApplicable(
                "predictions from all rows", f"neighbours={self.neighbours}", "leave neighbours out"
            )
        one = first_draw(self.sites_at(train.d), theta)
        hyper = under("variogram", one)
        where, there = places(self.drift, train.X), places(self.drift, X)
        centre = self._centre(one, X)
        variance = self.kernel.diag(hyper, there) + self._noise(one, X, noise_sd)
        drift = None
        if self.drift != "none":
            drift = (self._functions(train.X, train.X), self._functions(X, train.X))
        K = self.kernel(hyper, where, there)
        C = self._covariance(one, where, train.noise_sd)
        residual = train.y - self._centre(one, train.X)
        return C, residual, K, variance, centre.expand(len(X)), drift

    def loo(self, theta: Theta, train: Dataset) -> Distribution:
        """Return the distribution of each y_i given the other rows, batch [draw, n].

        With ``neighbours`` it is given the nearest of them. The drift is estimated without row i.
        Dubrule (1983).

        Raises:
            DataError: If each output has functions of its own, and one has too few rows.
        """
        self.check_leave_one_out(train)
        if self.neighbours is not None and self.neighbours < train.n - 1:
            mean, variance = self._means(theta, train.X[:, None], train, leave_out=True)
            return dist.Normal(mean, (variance + self._noise(theta, mean, train.noise_sd)).sqrt())
        means, variances = [], []
        for _, _, solved in self._solved(theta, train):
            residual, variance = solved.leave_one_out()
            means.append((train.y - residual).reshape(-1, train.n))
            variances.append(variance.expand(len(means[-1]), -1))
        return dist.Normal(torch.cat(means), torch.cat(variances).sqrt())

    def log_likelihood(self, theta: Theta, data: Dataset) -> dict[str, Tensor]:
        """Return the leave-one-out log densities, because the likelihood of the rows is joint."""
        return {"y": self.loo(theta, data).log_prob(data.y)}
