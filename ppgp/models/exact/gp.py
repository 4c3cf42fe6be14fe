"""Exact Gaussian-process regression."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from ...arguments import check_names_of_arguments
from ...capabilities import (
    Capability,
    Components,
    JointGaussian,
    LatentFunction,
    LeaveOneOut,
    PosteriorFunctions,
)
from ...data.dataset import Dataset, Scaler
from ...errors import NotApplicable, SettingError
from ...kernels import RBF, Kernel, Sum
from ...kernels.base import check_kernel
from ...kernels.fourier_features import Draw
from ...kernels.units import Units
from ...kernels.wrappers import as_written, labels_of_terms
from ...likelihoods import Likelihood
from ...numerics.cholesky import at_least_rounding
from ...numerics.triangles import solved
from ...priors import LogNormal, Param, PriorLike, Site, prefixed, rescaled, site, under
from ...runtime.result_cache import ResultCache
from ..advice.memory_checks import check_memory_of_covariance, check_memory_of_predictions
from ..base import full_batch_only
from ..before_fit import medians, refuse_broken
from ..means import MeanLike
from ..noise import NOT_OF_THE_RECIPE, check_aligned, refuse_duplicate_rows, with_noise
from ..sites import Theta, draw, first_draw, number_of_draws, split_params
from ..units import power
from .gp_conditioning import GPConditioning
from .gp_marginal import gp_marginal
from .latent_gp import with_likelihood
from .latent_model import show_latent
from .matheron import matheron


@dataclass(frozen=True, repr=False)
class GP(
    GPConditioning, LatentFunction, PosteriorFunctions, Components, LeaveOneOut, JointGaussian
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
            0: no estimated noise; the GP interpolates unless the Dataset has known noise.
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

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        """Return a GP, or with a likelihood a LatentGP."""
        if options.get("likelihood") is None and options.get("latent") is None:
            return super().__new__(cls, **options)
        check_names_of_arguments(GP, options)
        return with_likelihood(*arguments, **options)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kernel(self.kernel)
        if isinstance(self.noise, Likelihood):
            given = repr(self.noise)
            do = f"name it: likelihood={given}"
            raise SettingError("a prior or a number for the noise variance", given, do)

    def sites(self, d: int) -> dict[str, Site | Param]:
        return {
            **prefixed("kernel", self.kernel.sites(d)),
            "noise": site("noise", self.noise, positive=True, zero=True),
            **self.mean_sites(d),
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
        refuse_broken(self.kernel, data.X)
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
        factors = self.kernel.factors(Units.of(scaler))
        of_kernel = {f"kernel.{name}": f for name, f in factors.items()}
        return self.hyperparameters_of_data(draws, of_kernel, scaler)

    def check_fit(self, theta: Theta, data: Dataset) -> list[str]:
        """Return warnings about the fitted network of a deep kernel."""
        return self.kernel.check_fit(under("kernel", theta), data.X)

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
        full_batch_only(self, X, total, "use the full batch, or SVGP, which takes mini-batches")
        check_aligned(noise_sd, X)
        theta = draw(self.sites_at(X.shape[-1]), X)
        loc = self.mean_at(theta, X).expand(len(X))
        noise = self._noise(theta, X, noise_sd)
        marginal = gp_marginal(self.kernel, under("kernel", theta), X, loc, noise)
        return pyro.sample("y", marginal, obs=y)

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
        """Return the predictive distribution of y at X.

        Args:
            theta: {site: [draw, *event]}.
            X: Inputs [m, d].
            train: The training rows.
            joint: Whether the rows are predicted jointly.
            noise_sd: The known noise sd of the new rows [m], if any.
            kept: Where the factor of the training covariance is kept between predictions.

        Returns:
            A Normal of batch [draw, m]; if ``joint``, a MultivariateNormal of batch [draw] and
            event [m].
        """
        mean, spread = self._conditional(theta, X, train, joint, kept)
        noise = self._noise(theta, X, noise_sd)
        return with_noise(mean, spread, noise, joint)

    def latent(
        self, theta: Theta, X: Tensor, train: Dataset, kept: ResultCache | None = None
    ) -> Distribution:
        """Return the predictive distribution of f at X, without the noise: batch [draw, m]."""
        mean, variance = self._conditional(theta, X, train, False, kept)
        return dist.Normal(mean, variance.sqrt_())

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
        labels = labels_of_terms(self.kernel)
        means: dict[str, list[Tensor]] = {name: [] for name in labels}
        variances: dict[str, list[Tensor]] = {name: [] for name in labels}
        for _, part in self._chunks(theta, train.n, len(X), X)[1]:
            L, w = self.training_factor(part, train)
            terms = self.kernel.parts(under("kernel", part))
            for name, (child, hyper) in zip(labels, terms, strict=True):
                cross = child(hyper, train.X, X).expand(*L.shape[:-1], len(X))
                V = solved(L, cross)
                prior = child.diag(hyper, X)
                variance = at_least_rounding(prior - V.square().sum(-2), prior)
                loc = (V.mT @ w).reshape(-1, len(X))
                means[name].append(loc)
                variances[name].append(variance.expand(len(loc), -1))
        return {
            name: dist.Normal(torch.cat(means[name]), torch.cat(variances[name]).sqrt())
            for name in labels
        }

    def loo(self, theta: Theta, train: Dataset, kept: ResultCache | None = None) -> Distribution:
        """Return the distribution of each y_i given the other rows, batch [draw, n].

        Its mean is y_i - a_i / d_i and its variance 1 / d_i, with a = C^-1 (y - mean) and
        d = diag C^-1. Rasmussen & Williams (2006), equations 5.10 to 5.12.
        """
        count = number_of_draws(split_params(self.sites_at(train.d), theta)[0])
        check_memory_of_predictions(count, train.n, train.X)
        means, variances = (train.X.new_empty(count, train.n) for _ in range(2))

        def evaluate(draws: slice, part: dict[str, Tensor], factor: tuple[Tensor, Tensor]) -> None:
            inverse = torch.cholesky_inverse(factor[0])
            a = (inverse @ self._residual(part, train)).squeeze(-1)
            d = inverse.diagonal(dim1=-2, dim2=-1)
            means[draws] = train.y - a / d
            variances[draws] = 1 / d

        self._each_chunk(evaluate, theta, train, kept, train.n)
        return dist.Normal(means, variances.sqrt())

    def log_likelihood(
        self, theta: Theta, data: Dataset, kept: ResultCache | None = None
    ) -> dict[str, Tensor]:
        """Return the leave-one-out log densities, because the likelihood of the rows is joint."""
        return {"y": self.loo(theta, data, kept).log_prob(data.y)}


show_latent(GP)
