"""Kriging: Gaussian-process regression with an unknown trend, as geostatistics states it.

The kriging equations are solved with all rows, or for each place with its nearest rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ...capabilities import (
    BlockMeans,
    JointGaussian,
    JointLatent,
    LatentFunction,
    LeaveOneOut,
    Updates,
)
from ...data.dataset import Dataset, Scaler
from ...display.overrides import computed
from ...display.user_warnings import warn
from ...distributions.distributions import TrendMarginal
from ...errors import DataError, DataWarning, NotApplicable, SettingError, counted
from ...kernels import Exponential, Kernel
from ...kernels.base import check_kernel, output_of_rows
from ...kernels.units import Units
from ...numerics.cholesky import add_diagonal, cholesky
from ...priors import Flat, LogNormal, Param, PriorLike, Site, prefixed, rescaled, site, under
from ...runtime.result_cache import ResultCache
from ..advice.advice import instead_of
from ..advice.memory_checks import (
    check_memory_of_conditioning,
    check_memory_of_covariance,
    check_memory_of_predictions,
)
from ..advice.suitability import MOST_ROWS
from ..base import Model, broken_network, mini_batch
from ..means import MeanLike, WithMean, rows_of_mean
from ..noise import NOT_OF_THE_RECIPE, check_aligned, refuse_duplicate_rows, with_known, with_noise
from ..sites import Theta, draw, first_draw, medians, number_of_draws, split_params, starting_values
from .drift import (
    Drift,
    basis,
    check_determined,
    checked,
    coordinate_columns,
    coordinates,
    nothing_left,
    of_each_output,
    places,
)
from .factor_updates import ROOT, Extension, extension, grown_root
from .gls import Solved, solve, solve_given

MEMORY_BUDGET = 256 * 2**20  # bytes in the matrices of one chunk of draws or of places
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
class Kriging(
    WithMean, LatentFunction, LeaveOneOut, JointGaussian, JointLatent, BlockMeans, Updates
):
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
    keeps_factor = True
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

    def covariance_columns(self, d: int) -> list[int]:
        return coordinate_columns(self.drift, d)

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
            sites |= self.mean_of(d).sites(d)
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
        if broken := self.kernel.check_fit({}, where):
            raise broken_network(broken[0], where)
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
        if total is not None and total != len(X):
            raise mini_batch(
                self,
                X,
                total,
                "use the full batch; neighbours= makes predictions local, not the density",
            )
        if noise_sd is not None:
            check_aligned(noise_sd, X)
        theta = draw(self.sites_at(X.shape[-1]), X)
        C = self._covariance(theta, places(self.drift, X), noise_sd)
        loc = self._centre(theta, X).expand(len(X))
        F = self._functions(X, X)
        return pyro.sample("y", TrendMarginal(loc, C, F, self.estimator == "ml"), obs=y)

    # -- the kriging equations ----------------------------------------------------------------

    def _functions(self, X: Tensor, train: Tensor) -> Tensor:
        """Return the functions of the drift at X [*b, n, d], [*b, n, p]; see ``basis``."""
        return basis(self.drift, X, train, self.kernel.output_columns())

    def _covariance(self, theta: Theta, where: Tensor, noise_sd: Tensor | None) -> Tensor:
        """Return the covariance of measurements at the coordinates ``where``, [*draw, n, n]."""
        hyper = under("variogram", theta)
        return add_diagonal(self.kernel(hyper, where), self._noise(theta, where, noise_sd))

    def _noise(self, theta: Theta, like: Tensor, noise_sd: Tensor | None) -> Tensor:
        """Return the nugget plus the known error variance of each measurement."""
        return with_known(self.value(theta, "nugget", like)[..., None], noise_sd)

    def _centre(self, theta: Theta, X: Tensor) -> Tensor:
        """Return the known mean at X [*b, n, d], [*draw, *b, n] or [*draw, 1]; 0 with a drift."""
        if self.drift == "none":
            return self.mean_at(theta, X)
        return X.new_zeros(1)

    def _centre_of_blocks(self, theta: Theta, blocks: Tensor) -> Tensor:
        """Return the average of the known mean over blocks [m, k, d], [*draw, m] or [*draw, 1]."""
        centre = self._centre(theta, blocks)
        return centre.mean(-1) if self.mean_function.varies else centre

    def _count(self, theta: Theta, d: int) -> int:
        """Return the number of draws in theta."""
        return number_of_draws(split_params(self.sites_at(d), theta)[0])

    def training_factor(self, theta: Theta, train: Dataset, L: Tensor | None = None) -> Solved:
        """Solve the system of the training rows, which predictions at all places share.

        Args:
            theta: {site: [*draw, *event]}.
            train: The training rows.
            L: The root of their covariance, if it is known.
        """
        if L is None:
            C = self._covariance(theta, places(self.drift, train.X), train.noise_sd)
            L = cholesky(C, "covariance of the training rows")
        F = self._functions(train.X, train.X)
        return solve_given(L, train.y - self._centre(theta, train.X), F)

    def _solved(
        self, theta: Theta, train: Dataset, kept: ResultCache | None = None
    ) -> Iterator[tuple[slice, dict[str, Tensor], Solved]]:
        """Solve the system of the training rows for a chunk of draws at a time.

        Yields:
            The slice of the draws, theta there, and the solved system.

        Raises:
            NotEnoughMemory: If the matrices of one chunk do not fit into memory.
        """
        kept = kept or ResultCache(limit=0)
        drawn, params = split_params(self.sites_at(train.d), theta)
        count, root = number_of_draws(drawn), kept.found(ROOT, theta)
        size = max(1, MEMORY_BUDGET // (train.X.element_size() * 6 * train.n**2))
        check_memory_of_conditioning(train.n, 0, min(size, count), self.kernel, train.X)
        for i in range(0, count, size):
            draws = slice(i, min(i + size, count))
            part = {**params, **{name: value[draws] for name, value in drawn.items()}}
            L = None if root is None else root[0][draws]
            solve_it = partial(self.training_factor, part, train, L)
            yield draws, part, kept.get((i, size), solve_it, part)

    def _is_local(self, train: Dataset) -> bool:
        """Return whether each place is predicted from some of the rows."""
        return self.neighbours is not None and self.neighbours < train.n

    def _means(
        self,
        theta: Theta,
        blocks: Tensor,
        train: Dataset,
        leave_out: bool = False,
        kept: ResultCache | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the mean and the variance [draw, m] of the average of f over each block.

        Args:
            theta: {site: [draw, *event]}.
            blocks: Places [m, k, d], the k points of each block.
            train: The training rows.
            leave_out: Whether block i is row i of ``train``, which is then not among its own
                neighbours.
            kept: Where the solved system of all rows is kept between predictions.
        """
        step = self._places_at_once(theta, blocks, train)
        count = self._count(theta, train.d)
        check_memory_of_predictions(count, len(blocks), blocks)
        means = blocks.new_empty(count, len(blocks))
        variances = torch.empty_like(means)
        if self.neighbours is not None and self.neighbours < train.n - leave_out:
            groups = [torch.arange(len(blocks), device=blocks.device)]
            if leave_out:
                groups = self._rows_of_outputs(places(self.drift, train.X))
            for rows in groups:
                for at in rows.split(step):
                    left_out = at if leave_out else None
                    means[:, at], variances[:, at] = self._local(theta, blocks[at], train, left_out)
            return means, variances
        where = places(self.drift, train.X)
        for draws, part, solved in self._solved(theta, train, kept):
            hyper, centre = under("variogram", part), self._centre_of_blocks(part, blocks)
            for i in range(0, len(blocks), step):
                at = slice(i, i + step)
                block = blocks[at]
                m, k = block.shape[:2]
                there = places(self.drift, block)
                K = self.kernel(hyper, where, there.flatten(0, 1))
                new = self._functions(block, train.X).mean(1)
                K = K.reshape(*K.shape[:-1], m, k).mean(-1)
                mean, variance = solved.at(K, new, self._within(part, there, train.d))
                means[draws, at], variances[draws, at] = mean + rows_of_mean(centre, at), variance
        return means, variances

    def _places_at_once(self, theta: Theta, blocks: Tensor, train: Dataset) -> int:
        """Return how many blocks fit into ``MEMORY_BUDGET``."""
        n = min(self.neighbours or train.n, train.n)
        draws = self._count(theta, train.d)
        points = blocks.shape[1]
        columns = n if self.neighbours else points
        numbers_per_block = draws * (4 * n * columns + points**2) + train.n
        return max(1, MEMORY_BUDGET // (blocks.element_size() * numbers_per_block))

    def _with_block_axis(self, theta: Theta, d: int) -> dict[str, Tensor]:
        """Return theta with a further axis after that of the draws, for places [m, k, d]."""
        drawn, params = split_params(self.sites_at(d), theta)
        return {**params, **{name: value.unsqueeze(1) for name, value in drawn.items()}}

    def _within(self, theta: Theta, there: Tensor, d: int) -> Tensor:
        """Return the mean covariance between the places of each block, [*draw, m]."""
        if there.shape[1] == 1:
            return self.kernel.diag(under("variogram", theta), there[:, 0])
        hyper = under("variogram", self._with_block_axis(theta, d))
        return self.kernel(hyper, there).mean((-2, -1))

    def _local(
        self, theta: Theta, blocks: Tensor, train: Dataset, left_out: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean and the variance [draw, m] of each block, from its nearest rows.

        ``left_out`` [m] are the rows of ``train`` that the blocks are, each of which is left out of
        its own neighbours. They are rows of one output if each output has functions of its own.
        None: nothing is left out.
        """
        where, there = places(self.drift, train.X), places(self.drift, blocks)
        near = self._nearest(where, there.mean(1), left_out)  # [m, k]
        with_axis = self._with_block_axis(theta, train.d)
        hyper = under("variogram", with_axis)
        known = None
        if train.noise_sd is not None:
            known = train.noise_sd[near]
        C = add_diagonal(self.kernel(hyper, where[near]), self._noise(with_axis, where, known))
        centre = self._centre_of_blocks(theta, blocks)
        residual = (train.y - self._centre(theta, train.X))[..., near]
        F = self._functions(train.X, train.X)[near]
        new = self._functions(blocks, train.X).mean(1, keepdim=True)
        K = self.kernel(hyper, where[near], there).mean(-1, keepdim=True)
        prior = self._within(theta, there, train.d)[..., None]
        mean, variance = solve(C, residual, F).at(K, new, prior)
        shape = (-1, len(blocks))
        return (mean[..., 0] + centre).reshape(shape), variance[..., 0].reshape(shape)

    def _rows_of_outputs(self, where: Tensor) -> list[Tensor]:
        """Return the rows of each output, if each output has functions of its own; else all."""
        outputs = self.kernel.output_columns()
        if not of_each_output(self.drift, outputs):
            return [torch.arange(len(where), device=where.device)]
        number = output_of_rows(outputs, where)
        return [torch.nonzero(number == one).flatten() for one in number.unique()]

    def _nearest(self, where: Tensor, there: Tensor, left_out: Tensor | None) -> Tensor:
        """Return the rows ``where`` [n, d] nearest to each place ``there`` [m, d], [m, k].

        Where each output has functions of its own, these are the nearest rows of every output, or
        all of an output that has fewer: the place then determines all of its coefficients.
        ``left_out`` is that of ``_local``.
        """
        count = self.neighbours or len(where)
        outputs = self.kernel.output_columns()
        own = self._rows_of_outputs(where)
        if of_each_output(self.drift, outputs):
            columns = [c for c in range(where.shape[-1]) if c not in outputs]
            where, there = where[:, columns], there[:, columns]
        distance = torch.cdist(there, where, compute_mode="donot_use_mm_for_euclid_dist")
        if left_out is not None:
            rows = torch.arange(len(there), device=distance.device)
            distance[rows, left_out] = torch.inf
        near = []
        for of_output in own:
            left = len(of_output)
            if left_out is not None and bool((of_output == left_out[0]).any()):
                left -= 1
            found = distance[:, of_output].topk(min(count, left), largest=False).indices
            near.append(of_output[found])
        return torch.cat(near, -1)

    # -- predictions ----------------------------------------------------------------------------

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
        """Return the predictive distribution of a measurement at X; see ``Model.predict``.

        Its mean is the kriging mean, its variance the kriging variance plus the nugget and the
        known noise. It is a Normal, or a MultivariateNormal if ``joint``.

        Raises:
            NotApplicable: For a joint prediction from neighbours, which differ between places.
        """
        if joint:
            mean, spread = self.joint_latent(theta, X, train, kept)
        else:
            mean, spread = self._means(theta, X[:, None], train, kept=kept)
        return with_noise(mean, spread, self._noise(theta, X, noise_sd), joint)

    def latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> Distribution:
        """Return the distribution of the surface at X, without the nugget: batch [draw, m]."""
        mean, variance = self._means(theta, X[:, None], train, kept=kept)
        return dist.Normal(mean, variance.sqrt())

    def joint_latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> tuple[Tensor, Tensor]:
        if self._is_local(train):
            raise NotApplicable(
                "a joint distribution from all rows",
                f"neighbours={self.neighbours}",
                "leave joint or neighbours out",
            )
        where, there = places(self.drift, train.X), places(self.drift, X)
        new = self._functions(X, train.X)
        means, spreads = [], []
        check_memory_of_predictions(self._count(theta, train.d), len(X), X, joint=True)
        for _, part, solved in self._solved(theta, train, kept):
            hyper = under("variogram", part)
            cross, prior = self.kernel(hyper, where, there), self.kernel(hyper, there)
            mean, spread = solved.at(cross, new, prior, joint=True)
            means.append((mean + self._centre(part, X)).reshape(-1, len(X)))
            spreads.append(spread.expand(len(means[-1]), -1, -1))
        return torch.cat(means), torch.cat(spreads)

    def block(self, theta: Theta, blocks: Tensor, train: Dataset) -> Distribution:
        """Return the distribution of the average of the surface over each block.

        The nugget is not part of it, as in GSLIB: over any area it averages out. Journel &
        Huijbregts (1978), chapter V.

        Args:
            theta: {site: [draw, *event]}.
            blocks: Places [m, k, d], the k points of each block.
            train: The training rows.

        Returns:
            A Normal of batch [draw, m].
        """
        mean, variance = self._means(theta, blocks, train)
        return dist.Normal(mean, variance.sqrt())

    def trend(self, theta: Theta, X: Tensor, train: Dataset) -> Distribution:
        """Return the distribution of the drift F(x) beta at X: batch [draw, m].

        beta is estimated by generalised least squares on all rows.

        Raises:
            NotApplicable: With drift "none", which has no beta.
        """
        if self.drift == "none":
            raise NotApplicable(
                "a drift to estimate", 'drift="none"', 'use drift="constant", or a degree'
            )
        new, means, variances = self._functions(X, train.X), [], []
        for _, _, solved in self._solved(theta, train):
            beta, root = solved.trend()
            means.append((beta @ new.mT).reshape(-1, len(X)))
            variances.append((new @ root).square().sum(-1).reshape(-1, len(X)))
        return dist.Normal(torch.cat(means), torch.cat(variances).sqrt())

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

    def check_leave_one_out(self, train: Dataset) -> None:
        """Check that the coefficients of every output are known without one of its rows.

        Raises:
            DataError: If an output has functions of its own, and no more rows than functions.
        """
        if not of_each_output(self.drift, self.kernel.output_columns()):
            return
        groups = self._rows_of_outputs(places(self.drift, train.X))
        functions = self._functions(train.X, train.X).shape[-1] // len(groups)
        for rows in groups:
            if len(rows) <= functions:
                wanted = f"more than {counted(functions, 'row')} of each output, to leave one out"
                got = f"{len(rows)} of the output of row {int(rows[0])}"
                raise DataError(wanted, got, "add rows of it, or leave its rows out")

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

    # -- further rows ---------------------------------------------------------------------------

    def _grown(self, theta: Theta, L: Tensor, old: Dataset, new: Dataset) -> Extension:
        """Return the rows by which the root L of the covariance grows with the rows of ``new``."""
        there = places(self.drift, new.X)
        cross = self.kernel(under("variogram", theta), places(self.drift, old.X), there)
        return extension(L, cross, self._covariance(theta, there, new.noise_sd))

    def carry_over(
        self, theta: Theta, old: Dataset, new: Dataset, kept: ResultCache, into: ResultCache
    ) -> None:
        """Keep the root of all rows, unless it exceeds the limit of ``into``.

        Where it does, or where the new rows make the covariance singular, the next prediction
        factors all rows; predictions from neighbours have no root.
        """
        size = self._count(theta, old.d) * new.n**2 * new.X.element_size()
        if new.n == old.n or size > into.limit or self._is_local(new):
            return
        rows = new.rows(slice(old.n, None))
        root = grown_root(
            (draws, self._grown(part, solved.L, old, rows))
            for draws, part, solved in self._solved(theta, old, kept)
        )
        if root is not None:
            into.get(ROOT, lambda: (root,), theta)

    def one_step_ahead(
        self, theta: Theta, train: Dataset, new: Dataset, kept: ResultCache
    ) -> Distribution:
        """Return the distribution of each new y given all rows before it, in the order given.

        The drift is estimated anew from these rows, by recursive least squares.

        Raises:
            NotApplicable: For predictions from neighbours.
        """
        if self._is_local(train):
            got = f"neighbours={self.neighbours}"
            raise NotApplicable("predictions from all rows", got, "leave neighbours out")
        F = self._functions(new.X, train.X)
        means, sds = [], []
        for _, part, solved in self._solved(theta, train, kept):
            grown = self._grown(part, solved.L, train, new).checked()
            residual = (new.y - self._centre(part, new.X)).unsqueeze(-1)
            e, sd = solved.ahead(grown.onward(solved.w, residual), grown.onward(solved.H, F))
            scale = grown.root.diagonal(dim1=-2, dim2=-1)
            means.append((new.y - scale * e).reshape(-1, new.n))
            sds.append((scale * sd).expand(len(means[-1]), -1))
        return dist.Normal(torch.cat(means), torch.cat(sds))
