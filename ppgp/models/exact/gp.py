"""Exact Gaussian-process regression: the program, the rows that it is given, and predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.distributions import Distribution

from ...capabilities import (
    Capability,
    Components,
    ComponentsByRole,
    JointGaussian,
    JointLatent,
    LatentFunction,
    LeaveOneOut,
    PosteriorFunctions,
    Updates,
)
from ...data.dataset import Dataset, Scaler
from ...distributions.distributions import GPMarginal
from ...errors import NotApplicable, SettingError
from ...kernels import RBF, Kernel, Sum
from ...kernels.base import check_kernel
from ...kernels.fourier_features import Draw
from ...kernels.gram_slopes import distances_of, gram, has_formulas
from ...kernels.units import Units
from ...kernels.wrappers import as_written, labels_of_terms, roles_of_terms
from ...likelihoods import Likelihood
from ...numerics.cholesky import add_diagonal, at_least_rounding, cholesky
from ...numerics.gaussian_log_density import gaussian_log_density, value_and_slopes
from ...numerics.triangles import solved
from ...priors import (
    LogNormal,
    Param,
    Prior,
    PriorLike,
    Site,
    prefixed,
    rescaled,
    site,
    under,
)
from ...runtime.result_cache import ResultCache
from ...runtime.threads import side_by_side
from ..advice.memory_checks import (
    check_memory_of_conditioning,
    check_memory_of_covariance,
    check_memory_of_predictions,
)
from ..base import TakesLikelihood, broken_network, mini_batch, show_latent
from ..means import MeanLike, WithMean, rows_of_mean
from ..noise import (
    NOT_OF_THE_RECIPE,
    check_aligned,
    refuse_duplicate_rows,
    with_known,
    with_noise,
)
from ..sites import Theta, draw, first_draw, medians, number_of_draws, split_params
from ..units import power
from .factor_updates import ROOT, Extension, extension, grown_root
from .latent_gp import with_likelihood
from .matheron import matheron

MEMORY_BUDGET = 256 * 2**20  # bytes in the matrices of all chunks of draws at once
#: bytes in one matrix of a chunk of draws on the CPU, so that its matrices stay in the cache of the
#: processor, and the allocator uses their memory again and does not ask the system for new pages
CACHED = 8 * 2**20
#: The floor of an estimated noise variance, relative to the variance of y: with a smaller one the
#: rounding of a covariance of smooth functions would be seen in the density.
LEAST_NOISE = 3e-8
ROWS_AT_ONCE = 2048

#: the slice of some draws, and theta there
Chunk = tuple[slice, dict[str, Tensor]]
#: the draws of theta, and its params
DrawsAndParams = tuple[dict[str, Tensor], dict[str, Tensor]]


@dataclass(frozen=True, repr=False)
class GP(
    TakesLikelihood,
    WithMean,
    LatentFunction,
    PosteriorFunctions,
    Components,
    ComponentsByRole,
    LeaveOneOut,
    JointGaussian,
    JointLatent,
    Updates,
):
    """Exact GP regression: y ~ N(mean, K + noise I + diag(noise_sd^2)) with K = kernel(X, X).

    Rasmussen & Williams (2006), chapter 2. With ``noise=0`` the known noise of the Dataset is the
    only noise, as with scikit-learn's ``alpha=`` array (of variances) and GPyTorch's
    FixedNoiseGaussianLikelihood. With several draws the prediction is the mixture over the draws of
    the hyperparameters, computed for as many at a time as fit into 256 MB. The
    cost is O(n^3) time per draw and O(n^2) memory, with all rows at once.

    Args:
        kernel: Any kernel of ``ppgp.kernels``, or a sum, product or wrapping of them.
        noise: Prior or number for the noise variance (a number is in the square of the units of y).
            0: no estimated noise; the GP interpolates unless the Dataset has known noise. An
            estimated noise has a floor: s becomes (s^2 + (3e-8 v)^2)^(1/2) with the variance v of
            y, as ``fit`` standardises it. Values without noise, as of a simulator, are so
            interpolated to about 2e-4 of their standard deviation; below, the rounding of the
            covariance would decide where the search ends.
        mean: The mean of f: a number or a prior for a constant, ``LinearMean()``, or a function of
            X [n, d] that returns [n], both in the units of the data. None: the mean of the training
            rows (0 in a recipe that was not prepared); where the kernel has a
            ``Coregionalisation``, a constant for each output under a prior about as wide as y.
        likelihood: The distribution of y given f in place of Gaussian noise, such as Bernoulli().
            The result is a ``LatentGP``. None: Gaussian noise.
        latent: With a likelihood, how f is integrated out: see ``LatentGP``.
        standardised: Set by ``fit``: whether the numbers are on the scale of the model.

    Raises:
        SettingError: If kernel or likelihood is something else, for a negative noise, or for
            ``latent`` without a likelihood; from ``fit``, for another noise or mean than a prior, a
            number or what is listed above.
        UnknownName: If there is no such ``latent``.
        NotApplicable: If the likelihood has several functions of x, or no slopes by formula.
        DataError: From ``fit``, for duplicate rows under a noise of exactly 0.
        NotEnoughMemory: From ``fit``, if the covariance [n, n] does not fit into memory.

    Examples:
        >>> import ppgp
        >>> from ppgp import inference, kernels, models
        >>> # three rows so far apart that each is predicted by itself
        >>> data = ppgp.Dataset([[0.0], [50.0], [100.0]], [2.0, -1.0, 0.5])
        >>> model = models.GP(kernels.RBF(variance=1.0, lengthscale=1.0), noise=0.25, mean=0.0)
        >>> posterior = ppgp.fit(model, data, inference.MAP(), progress=False, standardise=False)
        >>> prediction = posterior.predict([[0.0], [25.0]])
        >>> prediction.mean.numpy().round(3)  # y / (variance + noise), and the mean far from rows
        array([1.6, 0. ])
        >>> prediction.variance.numpy().round(3)  # of y: that of f and the noise
        array([0.45, 1.25])
        >>> posterior.latent([[0.0]]).variance.numpy().round(3)  # of f alone
        array([0.2])
    """

    kernel: Kernel = field(default_factory=RBF)
    noise: PriorLike = LogNormal(-2.0, 1.0)
    mean: MeanLike | None = None
    likelihood: Likelihood | None = field(default=None, repr=False, kw_only=True)
    standardised: bool = field(default=False, kw_only=True)
    known_noise = True
    arguments_elsewhere = NOT_OF_THE_RECIPE
    joint_rows = True
    keeps_factor = True
    loo_keeps_factor = True
    sampled_rows = 500
    with_likelihood = staticmethod(with_likelihood)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.kernel, Kernel):
            check_kernel(self.kernel)
        if isinstance(self.noise, Likelihood):
            given = repr(self.noise)
            do = f"name it: likelihood={given}"
            raise SettingError("a prior or a number for the noise variance", given, do)

    def sites(self, d: int) -> dict[str, Site | Param]:
        return {
            **prefixed("kernel", self.kernel.sites(d)),
            "noise": site("noise", self.noise, positive=True, zero=True),
            **self.mean_of(d).sites(d),
        }

    def work(self, n: int, d: int) -> float:
        return float(n) ** 3 + super().work(n, d)

    def check_memory(self, n: int, d: int, like: Tensor) -> None:
        """Check that the covariance of n rows and its gradient fit into memory.

        Raises:
            NotEnoughMemory: If they do not.
        """
        check_memory_of_covariance(n, d, self.kernel, like)

    def prepare(self, data: Dataset) -> GP:
        """Return the recipe with the mean of these rows.

        Raises:
            DataError: For duplicate rows under a noise of exactly 0, whose covariance is singular.
            NumericalError: For a network whose units are all dead or saturated at the start.
        """
        self.sites_at(data.d)
        if broken := self.kernel.check_fit({}, data.X):
            raise broken_network(broken[0], data.X)
        if self.noise == 0:
            hyper = under("kernel", medians(self.sites_at(data.d), data.X, 0))
            nugget = self.kernel.nugget(hyper, data.X)
            refuse_duplicate_rows(data.X, data.noise_sd, nugget, "different rows of X", "noise")
        return replace(self, mean=self.mean_for(data))

    def in_units(self, scaler: Scaler) -> GP:
        noise = rescaled(self.noise, power(float(scaler.y_sd), -2), what="noise")
        kernel = self.kernel.in_units(Units.of(scaler))
        mean = self.mean_in_units(scaler)
        return replace(self, kernel=kernel, noise=noise, mean=mean)

    def data_units(self, draws: Theta, scaler: Scaler) -> dict[str, Tensor | None]:
        of_kernel = prefixed("kernel", self.kernel.factors(Units.of(scaler)))
        return self.hyperparameters_of_data(draws, of_kernel, scaler)

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """Return warnings about the fitted network of a deep kernel."""
        return self.kernel.check_fit(under("kernel", theta), data.X)

    # -- the program --------------------------------------------------------------------------

    def model(
        self,
        X: Tensor,
        y: Tensor | None = None,
        *,
        noise_sd: Tensor | None = None,
        total: int | None = None,
    ) -> Tensor:
        """Run the Pyro program of the model.

        ``fit`` passes the ``noise_sd`` of the Dataset. In a Pyro script it is passed beside the
        targets: ``MCMC(NUTS(GP().model), num_samples=500).run(X, y, noise_sd=sd)``.

        Args:
            X: Inputs [n, d].
            y: Targets [n]; None: they are drawn.
            noise_sd: The known noise sd of each row [n], in addition to ``noise``, if any.
            total: Number of rows that a mini-batch was taken from; None: these are all the rows.

        Returns:
            The targets [n].

        Raises:
            DataError: If ``noise_sd`` does not have one number per row.
            NotApplicable: For a mini-batch.
        """
        if total is not None and total != len(X):
            raise mini_batch(
                self, X, total, "use the full batch, or SVGP, which takes mini-batches"
            )
        if noise_sd is not None:
            check_aligned(noise_sd, X)
        sites = self.sites_at(X.shape[-1])
        theta = draw(sites, X)
        loc = self.mean_at(theta, X).expand(len(X))
        noise = self._noise(theta, X, noise_sd)
        of_kernel = under("kernel", sites), under("kernel", theta)
        marginal = gp_marginal(self.kernel, *of_kernel, X, loc, noise)
        return pyro.sample("y", marginal, obs=y)

    def _covariance(self, theta: Theta, X: Tensor, noise_sd: Tensor | None = None) -> Tensor:
        """Return the covariance of y at rows X, [*draw, n, n]."""
        return add_diagonal(self.kernel(under("kernel", theta), X), self._noise(theta, X, noise_sd))

    def _noise(self, theta: Theta, X: Tensor, noise_sd: Tensor | None) -> Tensor:
        """Return the variance of the noise, [*draw, 1], or [*draw, n] where some is known."""
        noise = self.value(theta, "noise", X).unsqueeze(-1)
        if self.standardised and isinstance(self.noise, Prior):
            noise = (noise.square() + LEAST_NOISE**2).sqrt()
        return noise if noise_sd is None else with_known(noise, noise_sd)

    # -- given the training rows, a chunk of draws at a time ------------------------------------

    def _chunks(self, parts: DrawsAndParams, n: int, m: int, like: Tensor) -> list[Chunk]:
        """Split the draws into chunks whose matrices fit into ``MEMORY_BUDGET``, or into one each.

        Up to the rows of ``_at_once`` the chunks do not depend on ``m``, so that predictions
        share what is kept of each chunk.

        Args:
            parts: The draws {site: [draw, *event]}, and the params.
            n: Number of training rows.
            m: Number of rows of a prediction.
            like: Inputs, with the dtype and the number of columns.

        Returns:
            (The slice of the draws, theta there) of each chunk.

        Raises:
            NotEnoughMemory: If the matrices of one chunk do not fit into memory.
        """
        drawn, params = parts
        count = number_of_draws(drawn)
        at_once, _ = _at_once(n, like)
        size = max(1, min(at_once, MEMORY_BUDGET // _bytes_of_draw(n, m, like)))
        check_memory_of_conditioning(n, m, min(size, count), self.kernel, like)
        if count <= size:
            return [(slice(0, count), {**params, **drawn})]
        slices = [slice(i, min(i + size, count)) for i in range(0, count, size)]
        return [(s, {**params, **{k: v[s] for k, v in drawn.items()}}) for s in slices]

    def training_factor(
        self, theta: Theta, train: Dataset, L: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the root L [*draw, n, n] of the training covariance, and L^-1 (y - mean).

        Args:
            theta: {site: [*draw, *event]}.
            train: The training rows.
            L: The root, if it is known.
        """
        if L is None:
            C = self._covariance(theta, train.X, train.noise_sd)
            L = cholesky(C, "covariance of the training rows")
        return L, torch.linalg.solve_triangular(L, self._residual(theta, train), upper=False)

    def _residual(self, theta: Theta, rows: Dataset) -> Tensor:
        """Return y - mean, [*draw, n, 1]."""
        return (rows.y - self.mean_at(theta, rows.X)).unsqueeze(-1)

    def _factor(
        self, chunk: Chunk, theta: Theta, train: Dataset, kept: ResultCache | None
    ) -> tuple[Tensor, Tensor]:
        """Return ``training_factor`` of a chunk of the draws theta, as far as it is not kept."""
        draws, part = chunk
        if kept is None:
            return self.training_factor(part, train)

        def factor() -> tuple[Tensor, Tensor]:
            root = kept.found(ROOT, theta)
            return self.training_factor(part, train, None if root is None else root[0][draws])

        return kept.get((draws.start, draws.stop), factor, part)

    def _conditional(
        self, theta: Theta, X: Tensor, train: Dataset, joint: bool, kept: ResultCache | None
    ) -> tuple[Tensor, Tensor]:
        """Return the moments of f at X given the training rows.

        The first is the mean [draw, m], the second the variance [draw, m] or, if ``joint``, the
        covariance [draw, m, m].
        """
        m = X.shape[0]
        width = max(1, m if joint else min(m, _at_once(train.n, X)[1]))
        parts = split_params(self.sites_at(X.shape[-1]), theta)
        count = number_of_draws(parts[0])
        check_memory_of_predictions(count, m, X, joint)
        shape = (count, m, m) if joint else (count, m)
        chunks = self._chunks(parts, train.n, width, train.X)
        if len(chunks) == 1 and 0 < m <= width:
            _, part = chunks[0]
            factor = self._factor(chunks[0], theta, train, kept)
            mean = self.mean_at(part, X)
            loc, spread = self._moments(factor, under("kernel", part), mean, X, train, joint)
            alike = loc.dtype == X.dtype == spread.dtype
            if alike and loc.shape == (count, m) and spread.shape == shape:
                return loc, spread
            # what no draw changes, such as the variance under a fixed kernel, has no axis of draws
            return X.new_empty(count, m).copy_(loc), X.new_empty(shape).copy_(spread)
        means, spreads = X.new_empty(count, m), X.new_empty(shape)

        def evaluate(chunk: Chunk) -> None:
            draws, part = chunk
            factor = self._factor(chunk, theta, train, kept)
            hyper, mean = under("kernel", part), self.mean_at(part, X)
            for row in range(0, m, width):
                rows = slice(row, row + width)
                of_rows = rows_of_mean(mean, rows)
                loc, spread = self._moments(factor, hyper, of_rows, X[rows], train, joint)
                means[draws, rows] = loc
                spreads[draws, rows] = spread

        _for_each(evaluate, chunks, train, width)
        return means, spreads

    def _moments(
        self,
        factor: tuple[Tensor, Tensor],
        hyper: Theta,
        mean: Tensor,
        X: Tensor,
        train: Dataset,
        joint: bool,
    ) -> tuple[Tensor, Tensor]:
        """Return the moments of f at all rows of X, as ``_conditional`` does.

        Args:
            factor: That of the training rows, see ``training_factor``.
            hyper: The hyperparameters of the kernel.
            mean: The mean at X, [*draw, m] or [*draw, 1].
            X: The new rows [m, d].
            train: The training rows.
            joint: Whether the second is the covariance.
        """
        L, w = factor
        V = solved(L, self.kernel(hyper, train.X, X))
        loc = mean + (V.mT @ w).squeeze(-1)
        if joint:
            return loc, self.kernel(hyper, X) - V.mT @ V
        prior = self.kernel.diag(hyper, X)
        return loc, at_least_rounding(prior - V.square().sum(-2), prior)

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
        mean, spread = self._conditional(theta, X, train, joint, kept)
        noise = self._noise(theta, X, noise_sd)
        return with_noise(mean, spread, noise, joint)

    def latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> Distribution:
        mean, variance = self._conditional(theta, X, train, False, kept)
        return dist.Normal(mean, variance.sqrt_())

    def joint_latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._conditional(theta, X, train, True, kept)

    def gaussian(
        self, theta: Theta, X: Tensor, train: Dataset, noise_sd: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the joint Gaussian distribution of y and f at the first draw.

        Returns:
            The covariance of y [n, n], y - mean [n], the covariance of y with f at X [n, m], the
            variance of y at X [m] and its mean [m].
        """
        one = first_draw(self.sites_at(X.shape[-1]), theta)
        hyper, mean = under("kernel", one), self.mean_at(one, X)
        variance = self.kernel.diag(hyper, X) + self._noise(one, X, noise_sd)
        C = self._covariance(one, train.X, train.noise_sd)
        residual = train.y - self.mean_at(one, train.X)
        return C, residual, self.kernel(hyper, train.X, X), variance, mean.expand(len(X))

    def pathwise(
        self,
        theta: Theta,
        train: Dataset,
        samples: int,
        features: int | None,
        generator: torch.Generator,
    ) -> Callable[[Tensor], Tensor]:
        """Draw functions from the posterior, each at a random draw of theta.

        See ``matheron.matheron``.

        Args:
            theta: {site: [draw, *event]}.
            train: The training rows.
            samples: Number of functions.
            features: Number of Fourier features of each; None: prior functions drawn exactly.
            generator: The random generator.

        Returns:
            A function X [m, d] -> [samples, m].
        """
        drawn, params = split_params(self.sites_at(train.d), theta)
        count = number_of_draws(drawn)
        chosen = torch.randint(count, (samples,), generator=generator, device="cpu")
        paths = []
        for i in chosen.unique().tolist():
            one = {**params, **{name: value[i] for name, value in drawn.items()}}
            draw = Draw(int((chosen == i).sum()), features or 0, generator, train.X)
            mean = partial(self.mean_at, one)
            noise = self._noise(one, train.X, train.noise_sd)
            hyper = under("kernel", one)
            paths.append(
                matheron(self.kernel, hyper, noise, mean, train.X, train.y, draw, features is None)
            )
        return lambda X: torch.cat([path(X) for path in paths])

    def lacks(self, capability: type[Capability]) -> NotApplicable | None:
        if capability is Components and not isinstance(self.kernel, Sum):
            got = type(as_written(self.kernel)).__name__
            return NotApplicable("a sum of kernels", got, "add kernels with +, or use latent")
        return None

    def components(self, theta: Theta, X: Tensor, train: Dataset) -> dict[str, Distribution]:
        """Return the distribution of each term of a sum of kernels at X, batch [draw, m].

        At a new row x*, term i has mean k_i(x*, X_train) C^-1 (y - mean) and variance
        k_i(x*, x*) - k_i(x*, X_train) C^-1 k_i(X_train, x*). Duvenaud (2014), section 2.4.5. No
        term includes the mean.
        """
        assert isinstance(self.kernel, Sum)  # see lacks
        return self._parts(theta, X, train, labels_of_terms(self.kernel))

    def parts_by_role(self, theta: Theta, X: Tensor, train: Dataset) -> dict[str, Distribution]:
        """Return the distribution of the terms of each role together, as ``components`` does."""
        return self._parts(theta, X, train, roles_of_terms(self.kernel))

    def _parts(
        self, theta: Theta, X: Tensor, train: Dataset, names: list[str]
    ) -> dict[str, Distribution]:
        """Return the distribution of the terms of each name together, given the name of each."""
        means: dict[str, list[Tensor]] = {name: [] for name in names}
        variances: dict[str, list[Tensor]] = {name: [] for name in names}
        draws_and_params = split_params(self.sites_at(train.d), theta)
        for _, part in self._chunks(draws_and_params, train.n, len(X), X):
            L, w = self.training_factor(part, train)
            hyper = under("kernel", part)
            terms = [(self.kernel, hyper)]
            if isinstance(self.kernel, Sum):
                terms = self.kernel.parts(hyper)
            for name in means:
                own = [term for term, other in zip(terms, names, strict=True) if other == name]
                each = [child(of_child, train.X, X) for child, of_child in own]
                cross = sum(each[1:], start=each[0]).expand(*L.shape[:-1], len(X))
                V = solved(L, cross)
                priors = [child.diag(of_child, X) for child, of_child in own]
                prior = sum(priors[1:], start=priors[0])
                variance = at_least_rounding(prior - V.square().sum(-2), prior)
                loc = (V.mT @ w).reshape(-1, len(X))
                means[name].append(loc)
                variances[name].append(variance.expand(len(loc), -1))
        return {
            name: dist.Normal(torch.cat(means[name]), torch.cat(variances[name]).sqrt())
            for name in means
        }

    def loo(self, theta: Theta, train: Dataset, kept: ResultCache | None = None) -> Distribution:
        """Return the distribution of each y_i given the other rows, batch [draw, n].

        Its mean is y_i - a_i / d_i and its variance 1 / d_i, with a = C^-1 (y - mean) and
        d = diag C^-1. Rasmussen & Williams (2006), equations 5.10 to 5.12.
        """
        parts = split_params(self.sites_at(train.d), theta)
        count = number_of_draws(parts[0])
        check_memory_of_predictions(count, train.n, train.X)
        means, variances = (train.X.new_empty(count, train.n) for _ in range(2))

        def evaluate(chunk: Chunk) -> None:
            draws, part = chunk
            L, _ = self._factor(chunk, theta, train, kept)
            inverse = torch.cholesky_inverse(L)
            a = (inverse @ self._residual(part, train)).squeeze(-1)
            d = inverse.diagonal(dim1=-2, dim2=-1)
            means[draws] = train.y - a / d
            variances[draws] = 1 / d

        _for_each(evaluate, self._chunks(parts, train.n, train.n, train.X), train, train.n)
        return dist.Normal(means, variances.sqrt())

    def log_likelihood(
        self, theta: Theta, data: Dataset, kept: ResultCache | None = None
    ) -> dict[str, Tensor]:
        """Return the leave-one-out log densities, because the likelihood of the rows is joint."""
        return {"y": self.loo(theta, data, kept).log_prob(data.y)}

    # -- further rows ---------------------------------------------------------------------------

    def _grown(self, theta: Theta, L: Tensor, old: Dataset, new: Dataset) -> Extension:
        """Return the rows by which the root L of the covariance grows with the rows of ``new``."""
        cross = self.kernel(under("kernel", theta), old.X, new.X)
        return extension(L, cross, self._covariance(theta, new.X, new.noise_sd))

    def carry_over(
        self, theta: Theta, old: Dataset, new: Dataset, kept: ResultCache, into: ResultCache
    ) -> None:
        """Keep the root of all rows, unless it exceeds the limit of ``into``.

        Where it does, or where the new rows make the covariance singular, the next prediction
        factors all rows.
        """
        parts = split_params(self.sites_at(old.d), theta)
        size = number_of_draws(parts[0]) * new.n**2 * new.X.element_size()
        if new.n == old.n or size > into.limit:
            return
        rows = new.rows(slice(old.n, None))
        root = grown_root(
            (draws, self._grown(part, self._factor((draws, part), theta, old, kept)[0], old, rows))
            for draws, part in self._chunks(parts, old.n, rows.n, old.X)
        )
        if root is not None:
            into.get(ROOT, lambda: (root,), theta)

    def one_step_ahead(
        self, theta: Theta, train: Dataset, new: Dataset, kept: ResultCache
    ) -> dist.Normal:
        """Return the distribution of each new y given all rows before it, in the order given.

        It is that of the whitened residual e_i = (y_i - mean_i) / sd_i, which the factor of all
        rows gives.
        """
        means, sds = [], []
        parts = split_params(self.sites_at(train.d), theta)
        for draws, part in self._chunks(parts, train.n, new.n, train.X):
            L, w = self._factor((draws, part), theta, train, kept)
            grown = self._grown(part, L, train, new).checked()
            e = grown.onward(w, self._residual(part, new))[..., 0]
            sd = grown.root.diagonal(dim1=-2, dim2=-1)
            count = draws.stop - draws.start
            means.append((new.y - sd * e).expand(count, -1))
            sds.append(sd.expand(count, -1))
        return dist.Normal(torch.cat(means), torch.cat(sds))


show_latent(GP)


def _for_each(
    evaluate: Callable[[Chunk], None], chunks: Sequence[Chunk], train: Dataset, width: int
) -> None:
    """Call ``evaluate`` with each chunk of draws, several of them side by side in threads.

    Args:
        evaluate: Chunk -> None. It stores its results at the slice of the draws.
        chunks: The chunks of all draws.
        train: The training rows.
        width: Number of new rows at once.
    """
    if len(chunks) == 1:
        evaluate(chunks[0])
        return
    draws = MEMORY_BUDGET // _bytes_of_draw(train.n, width, train.X)
    side_by_side(
        evaluate,
        chunks,
        work=float(chunks[-1][0].stop) * train.n**3,
        at_once=draws // chunks[0][0].stop,
        device=train.X.device,
    )


def _bytes_of_draw(n: int, m: int, like: Tensor) -> int:
    """Return the bytes of the matrices of one draw, for n training rows and m new ones at once."""
    return like.element_size() * 4 * n * (n + m)


def _at_once(n: int, like: Tensor) -> tuple[int, int]:
    """Return how many draws, and how many new rows of each, to compute with at once.

    On the CPU the covariances of n rows at these draws fit into ``CACHED``, and so do their
    covariances with the new rows.
    """
    if like.device.type != "cpu":
        return MEMORY_BUDGET // _bytes_of_draw(n, n, like), ROWS_AT_ONCE
    draws = max(1, CACHED // (like.element_size() * n**2))
    if draws == 1:
        return 1, ROWS_AT_ONCE
    return draws, max(1, min(ROWS_AT_ONCE, 2 * CACHED // (like.element_size() * draws * n)))


# -- the marginal distribution of y, with the slopes of its kernel by formula -------------------


def gp_marginal(
    kernel: Kernel,
    sites: Mapping[str, Site | Param],
    theta: Mapping[str, Tensor],
    X: Tensor,
    loc: Tensor,
    noise: Tensor,
) -> GPMarginal:
    """Return N(loc, k(X, X) + diag(noise)), whose density has slopes by formula where it can.

    Args:
        kernel: The kernel.
        sites: The sites of its hyperparameters.
        theta: {hyperparameter: [*batch, *event]}.
        X: [n, d].
        loc: [n], the mean.
        noise: [*batch, 1] or [*batch, n], the variances of the noise.
    """
    # One draw in float64 is the usual case: a fit then takes the formulas of KernelMarginal, in
    # numerics/gaussian_log_density.py. The noise enters there, in the class below, which torch
    # differentiates, and for predictions in GP._covariance.
    plain = X.dtype == torch.float64 and X.ndim == 2 and loc.ndim == 1 and noise.ndim == 1
    plain = plain and not X.requires_grad  # slopes are in the hyperparameters alone
    for name, value in theta.items():  # each is that of one draw
        own = sites[name]
        plain = plain and value.shape == (own.shape if isinstance(own, Site) else own.value.shape)
    if plain and has_formulas(kernel):
        return KernelMarginal(
            loc, _MarginalCovariance(kernel, tuple(theta), X), (noise, *theta.values())
        )
    return GPMarginal(loc, add_diagonal(kernel(theta, X), noise))


@dataclass(frozen=True)
class _MarginalCovariance:
    """k(X, X) + diag(noise) as a function of (noise, *hyperparameters).

    Args:
        kernel: The kernel.
        names: Of its hyperparameters.
        X: [n, d].
    """

    kernel: Kernel
    names: tuple[str, ...]
    X: Tensor

    def __call__(self, noise: Tensor, *values: Tensor) -> Tensor:
        """Return the covariance, [n, n], which torch can differentiate."""
        theta = dict(zip(self.names, values, strict=True))
        return add_diagonal(self.kernel(theta, self.X), noise)

    def by_formula(self, noise: Tensor, *values: Tensor) -> Tensor:
        """Return the covariance, [n, n], without a graph."""
        theta = dict(zip(self.names, values, strict=True))
        return add_diagonal(gram(self.kernel, theta, distances_of(self.X)).K, noise)


def _plain(tensors: Sequence[Tensor]) -> bool:
    """Return whether no transform of torch follows what is computed from these."""
    wrapped = any(is_functorch_wrapped_tensor(each) for each in tensors)
    return not wrapped and not torch.jit.is_tracing()


class KernelMarginal(GPMarginal):
    """The distribution of ``gp_marginal`` by formula.

    Args:
        loc: [n], the mean.
        covariance: The covariance as a function.
        arguments: The noise [1] or [n] and the hyperparameters.
        validate_args: Whether to check arguments, as in torch.
    """

    def __init__(
        self,
        loc: Tensor,
        covariance: _MarginalCovariance,
        arguments: Sequence[Tensor],
        validate_args: bool | None = None,
    ) -> None:
        self.loc, self.covariance, self.arguments = loc, covariance, tuple(arguments)
        super(GPMarginal, self).__init__(torch.Size(), loc.shape[-1:], validate_args=validate_args)

    @cached_property
    def covariance_matrix(self) -> Tensor:
        return self.covariance(*self.arguments)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        inputs = (value - self.loc, *self.arguments)
        if inputs[0].ndim == 1 and not torch.is_grad_enabled() and _plain(inputs):
            return gaussian_log_density(self.covariance.by_formula(*self.arguments), inputs[0])
        # torch.jit.trace, by which Pyro compiles, knows no function with a backward pass of its own
        if inputs[0].ndim > 1 or not torch.is_grad_enabled() or torch.jit.is_tracing():
            return super().log_prob(value)
        outputs: Any = _LogDensity.apply(self.covariance, *inputs)
        return outputs[0]


class _LogDensity(torch.autograd.Function):
    """log N(r; 0, covariance) with its slopes in r, the noise and the values, computed beside it.

    Where second derivatives are requested, torch differentiates the density itself.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(covariance: _MarginalCovariance, r: Tensor, noise: Tensor, *values: Tensor) -> Any:
        theta = dict(zip(covariance.names, values, strict=True))
        found = gram(covariance.kernel, theta, distances_of(covariance.X))
        # K may be the memory of a hyperparameter where it has one entry, and it is the same for
        # all points of a vmap where it has no hyperparameters
        in_place = len(r) > 1 and bool(covariance.names)
        value, W, a = value_and_slopes(found.K, noise, r, in_place)
        each = W.diagonal()
        of_noise = each.clone() if len(noise) > 1 else each.sum().reshape(1)
        slopes = found.slopes(W, True)  # last, as it overwrites W
        return value, -a, of_noise, *(slopes[name] for name in covariance.names)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.covariance = inputs[0]
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*inputs[1:], *output[1:])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        count = len(ctx.saved_tensors) // 2
        inputs, slopes = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        if torch.is_grad_enabled():
            value = gaussian_log_density(ctx.covariance(*inputs[1:]), inputs[0])
            free = [x for x in inputs if x.requires_grad]
            found = torch.autograd.grad(value, free, create_graph=True, materialize_grads=True)
            own = iter(found)
            slopes = [next(own) if x.requires_grad else torch.zeros_like(x) for x in inputs]
        return None, *(grad_outputs[0] * slope for slope in slopes)
